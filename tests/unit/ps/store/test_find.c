/* Rows that are all in memory are copied at once, and any doubt leads the long way. */
#include "common/hash.h"
#include "tests/support/cmocka.h"
#include "tests/support/store_fixture.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define TABLE 5
#define N_ROWS 6000

/* What the row of this id has at byte `at`. */
static uint8_t byte_of(uint64_t id, size_t at)
{
    return (uint8_t)(psc_mix64(id + at / 8) >> (at % 8 * 8));
}

static void write_rows(ps_store_t *store, size_t row_bytes, uint64_t first, size_t n)
{
    static test_request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    while (n > 0) {
        size_t part = n < TEST_MAX_N ? n : TEST_MAX_N;
        for (size_t i = 0; i < part; i++)
            request.ids[i] = first + i;
        test_request_set(&request, TABLE, PS_BATCH_WRITE, part);
        assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
        for (size_t i = 0; i < part; i++) {
            ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[i]);
            if (row->state == PS_ROW_ABSENT)
                ps_store_mark_new(store, row);
            uint8_t *bytes = (uint8_t *)(row + 1);
            for (size_t b = 0; b < row_bytes; b++)
                bytes[b] = byte_of(first + i, b);
        }
        ps_store_release(store, &request.batch);
        first += part;
        n -= part;
    }
}

/* Copies rows of these ids, and checks them when it says that it did. */
static bool copies(ps_store_t *store, const uint64_t *ids, size_t n, size_t bytes, bool scan)
{
    static uint64_t hashes[N_ROWS];
    static uint8_t out[N_ROWS * 160 + 1];
    assert_true(n <= N_ROWS && bytes <= 160);
    for (size_t i = 0; i < n; i++)
        hashes[i] = psc_row_hash(TABLE, ids[i]);
    const ps_batch_t batch = {.table = TABLE, .n = n, .ids = ids, .hashes = hashes, .scan = scan};
    if (!ps_store_copy_hot(store, &batch, bytes, out + 1)) /* unaligned, as in a message */
        return false;
    for (size_t i = 0; i < n * bytes; i++)
        assert_int_equal(out[1 + i], byte_of(ids[i / bytes], i % bytes));
    return true;
}

static void rows_in_memory_are_copied_in_the_order_asked_for(void **state)
{
    (void)state;
    static const size_t sizes[] = {4, 36, 128, 160};
    test_random_t random = test_random_start();
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        ps_store_t *store = test_store_open(test_cold_memory(0, 0));
        test_table_add(store, TABLE, sizes[s]);
        write_rows(store, sizes[s], 0, N_ROWS);
        static uint64_t ids[N_ROWS];
        for (size_t n = 0; n < N_ROWS; n = n * 2 + 1) {
            for (size_t i = 0; i < n; i++)
                ids[i] = test_below(&random, N_ROWS);
            ps_store_counters_t before, after;
            ps_store_counters(store, &before);
            assert_true(copies(store, ids, n, sizes[s], n % 2 == 0));
            ps_store_counters(store, &after);
            assert_int_equal(after.hits - before.hits, n);
            assert_true(copies(store, ids, n, 4, false)); /* the beginning of each */
        }
        test_store_close(store);
    }
}

static void one_row_that_is_not_there_is_enough_to_refuse(void **state)
{
    (void)state;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, TABLE, 160);
    write_rows(store, 160, 0, 1000);
    static uint64_t ids[N_ROWS];
    for (size_t n = 1; n < 1000; n = n * 3 + 1) {
        for (size_t i = 0; i < n; i++)
            ids[i] = i;
        assert_true(copies(store, ids, n, 160, false));
        for (size_t at = 0; at < n; at = at * 2 + 1) {
            ids[at] = 1000000 + at;
            assert_false(copies(store, ids, n, 160, false));
            ids[at] = at;
        }
    }
    const ps_batch_t elsewhere = {.table = TABLE + 1, .n = 1, .ids = ids, .hashes = ids};
    uint8_t out[4];
    assert_false(ps_store_copy_hot(store, &elsewhere, 4, out));
    test_store_close(store);
}

static void rows_that_left_memory_go_the_long_way(void **state)
{
    (void)state;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, TABLE, 160);
    write_rows(store, 160, 0, 60000); /* twice what fits */
    size_t n_hot = 0, n_cold = 0;
    for (uint64_t id = 0; id < 60000; id += 7) {
        uint64_t hash = psc_row_hash(TABLE, id);
        ps_place_t place;
        uint8_t late;
        bool there = ps_store_peek(store, TABLE, &id, &hash, 1, &place, &late) == 0;
        assert_int_equal(copies(store, &id, 1, 160, false), there);
        n_hot += there;
        n_cold += !there;
    }
    assert_true(n_hot > 1000 && n_cold > 1000);
    test_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_in_memory_are_copied_in_the_order_asked_for),
        cmocka_unit_test(one_row_that_is_not_there_is_enough_to_refuse),
        cmocka_unit_test(rows_that_left_memory_go_the_long_way),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
