/* Rows that are read before they are asked for: there in time, kept until then, and bounded. */
#include "common/hash.h"
#include "ps/store/evict.h"
#include "tests/support/cmocka.h"
#include "tests/support/store_fixture.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define TABLE 3
#define ROW_BYTES 400
#define N_ROWS 30000 /* three times what fits into memory */

/* Every row of the table has its id in its first bytes. */
static void use(ps_store_t *store, ps_batch_mode_t mode, const uint64_t *ids, size_t n)
{
    static test_request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    memcpy(request.ids, ids, n * sizeof *ids);
    test_request_set(&request, TABLE, mode, n);
    assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
    for (size_t i = 0; i < n; i++) {
        ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[i]);
        if (mode == PS_BATCH_WRITE && row->state == PS_ROW_ABSENT) {
            ps_store_mark_new(store, row);
            memcpy(ps_row_floats(row), &ids[i], sizeof ids[i]);
        }
        if (request.places[i] != 0)
            assert_memory_equal(ps_row_floats(row), &ids[i], sizeof ids[i]);
    }
    ps_store_release(store, &request.batch);
}

/* Uses the rows first .. end - 1, by batches. */
static void use_range(ps_store_t *store, ps_batch_mode_t mode, uint64_t first, uint64_t end)
{
    uint64_t ids[TEST_MAX_N];
    while (first < end) {
        size_t n = 0;
        while (n < TEST_MAX_N && first < end)
            ids[n++] = first++;
        use(store, mode, ids, n);
    }
}

/* A store with N_ROWS rows, most of them cold. */
static ps_store_t *open_full(void)
{
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, TABLE, ROW_BYTES);
    use_range(store, PS_BATCH_WRITE, 0, N_ROWS);
    return store;
}

static ps_store_counters_t counters_of(const ps_store_t *store)
{
    ps_store_counters_t counters;
    ps_store_counters(store, &counters);
    return counters;
}

/* Prefetches the rows first .. first + n - 1; how many were taken on. */
static size_t prefetch(ps_store_t *store, uint64_t first, size_t n)
{
    uint64_t ids[N_ROWS / 10], hashes[N_ROWS / 10];
    assert_true(n <= N_ROWS / 10);
    for (size_t i = 0; i < n; i++) {
        ids[i] = first + i;
        hashes[i] = psc_row_hash(TABLE, ids[i]);
    }
    const ps_store_counters_t before = counters_of(store);
    size_t done = 0;
    for (;;) {
        size_t more = ps_store_prefetch(store, TABLE, ids + done, hashes + done, n - done);
        done += more;
        uint64_t fetched = counters_of(store).fetched_ahead - before.fetched_ahead;
        while (counters_of(store).cold_found - before.cold_found < fetched)
            assert_int_equal(test_wait(store, NULL), PSC_OK);
        if (more == 0 || done == n)
            return done;
    }
}

/* How many of the rows first .. first + n - 1 are not in memory. */
static size_t count_late(ps_store_t *store, uint64_t first, size_t n)
{
    size_t n_late = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t id = first + i, hash = psc_row_hash(TABLE, id);
        ps_place_t place;
        uint8_t late;
        n_late += ps_store_peek(store, TABLE, &id, &hash, 1, &place, &late);
        assert_int_equal(late, place == 0);
    }
    return n_late;
}

static void rows_are_there_when_they_are_asked_for(void **state)
{
    (void)state;
    ps_store_t *store = open_full();
    assert_int_equal(count_late(store, 100, 300), 300);
    uint64_t fetched = counters_of(store).fetched_ahead;
    assert_int_equal(prefetch(store, 100, 300), 300);
    assert_int_equal(counters_of(store).fetched_ahead - fetched, 300);
    uint64_t misses = counters_of(store).misses;
    use_range(store, PS_BATCH_READ, 100, 400);
    assert_int_equal(counters_of(store).misses, misses);
    /* What is there is not read again. */
    assert_int_equal(prefetch(store, 100, 300), 300);
    assert_int_equal(counters_of(store).fetched_ahead - fetched, 300);
    test_store_close(store);
}

static void rows_stay_until_their_first_use_and_no_longer(void **state)
{
    (void)state;
    ps_store_t *store = open_full();
    assert_int_equal(prefetch(store, 100, 300), 300);
    for (int round = 0; round < 2; round++) {
        use_range(store, PS_BATCH_READ, 1000, N_ROWS); /* nearly three times the memory */
        use_range(store, round == 0 ? PS_BATCH_READ : PS_BATCH_WRITE, 15000, 25000);
    }
    assert_int_equal(count_late(store, 100, 300), 0); /* that was their first use */
    for (int round = 0; round < 2; round++)
        use_range(store, PS_BATCH_READ, 1000, N_ROWS);
    assert_true(count_late(store, 100, 300) > 250);
    test_store_close(store);
}

static void rows_that_are_there_and_announced_stay_too(void **state)
{
    (void)state;
    ps_store_t *store = open_full();
    use_range(store, PS_BATCH_READ, 100, 400);
    assert_int_equal(prefetch(store, 100, 300), 300);
    for (int round = 0; round < 3; round++)
        use_range(store, PS_BATCH_READ, 1000, N_ROWS);
    assert_int_equal(count_late(store, 100, 300), 0);
    test_store_close(store);
}

static void no_more_than_a_tenth_is_ahead_of_its_use(void **state)
{
    (void)state;
    ps_store_t *store = open_full();
    uint64_t hot = counters_of(store).rows_hot, fetched = counters_of(store).fetched_ahead;
    size_t first = prefetch(store, 0, 1000), more = prefetch(store, 5000, 1000);
    assert_int_equal(prefetch(store, 8000, 100), 0);
    fetched = counters_of(store).fetched_ahead - fetched;
    assert_true(fetched <= first + more && fetched + 50 > first + more);
    assert_true(fetched >= hot / PS_EVICT_AHEAD_SHARE / 2);
    assert_true(fetched <= hot / PS_EVICT_AHEAD_SHARE + 1);
    /* Uses make room, and so does giving up. */
    use_range(store, PS_BATCH_READ, 0, 100);
    assert_true(first < 100 || prefetch(store, 8000, 100) == 100);
    ps_store_prefetch_lapse(store, TABLE, 200);
    assert_int_equal(prefetch(store, 8200, 200), 200);
    assert_int_equal(prefetch(store, 8600, 100), 0);
    ps_store_prefetch_lapse(store, TABLE, SIZE_MAX);
    assert_int_equal(prefetch(store, 8600, 100), 100);
    test_store_close(store);
}

static void absent_rows_and_unknown_tables_leave_nothing(void **state)
{
    (void)state;
    ps_store_t *store = open_full();
    uint64_t id = N_ROWS + 7, hash = psc_row_hash(TABLE, id), hot = counters_of(store).rows_hot;
    ps_place_t place;
    uint8_t late;
    assert_int_equal(ps_store_prefetch(store, TABLE, &id, &hash, 1), 1);
    assert_int_equal(ps_store_peek(store, TABLE, &id, &hash, 1, &place, &late), 1);
    while (counters_of(store).rows_hot > hot) {
        bool progress;
        assert_int_equal(ps_store_poll(store, &progress, NULL), PSC_OK);
    }
    use(store, PS_BATCH_READ, &id, 1);
    assert_int_equal(ps_store_prefetch(store, TABLE + 1, &id, &hash, 1), 1);
    assert_int_equal(ps_store_prefetch(store, UINT16_MAX, &id, &hash, 1), 1);
    ps_store_prefetch_lapse(store, UINT16_MAX, 1);
    test_store_close(store);
    /* Where nothing was ever written back there is nothing to read. */
    store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, TABLE, ROW_BYTES);
    assert_int_equal(ps_store_prefetch(store, TABLE, &id, &hash, 1), 1);
    assert_int_equal(ps_store_peek(store, TABLE, &id, &hash, 1, &place, &late), 0);
    assert_int_equal(late, 0);
    test_store_close(store);
}

static void prefetches_change_no_row_and_stop_no_batch(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, TABLE, ROW_BYTES);
    test_table_add(store, TABLE + 1, 40000); /* rows of another class take pages */
    use_range(store, PS_BATCH_WRITE, 0, N_ROWS);
    for (int round = 0; round < 400; round++) {
        uint64_t first = test_below(&random, N_ROWS - 400);
        uint64_t ids[300], hashes[300];
        size_t n = test_below(&random, 300);
        for (size_t i = 0; i < n; i++) {
            ids[i] = test_below(&random, N_ROWS);
            hashes[i] = psc_row_hash(TABLE, ids[i]);
        }
        (void)ps_store_prefetch(store, TABLE, ids, hashes, n);
        if (test_below(&random, 20) == 0)
            ps_store_prefetch_lapse(store, TABLE, test_below(&random, 500));
        use_range(store, test_below(&random, 2) == 0 ? PS_BATCH_READ : PS_BATCH_WRITE, first,
                  first + test_below(&random, 400));
        if (round % 10 == 0) {
            static test_request_t wide;
            wide.ids[0] = test_below(&random, 50);
            test_request_set(&wide, TABLE + 1, PS_BATCH_WRITE, 1);
            assert_int_equal(test_prepare(store, &wide, NULL), PSC_OK);
            ps_row_header_t *row = ps_store_row(ps_store_base(store), wide.places[0]);
            if (row->state == PS_ROW_ABSENT)
                ps_store_mark_new(store, row);
            ps_store_release(store, &wide.batch);
        }
    }
    test_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_there_when_they_are_asked_for),
        cmocka_unit_test(rows_stay_until_their_first_use_and_no_longer),
        cmocka_unit_test(rows_that_are_there_and_announced_stay_too),
        cmocka_unit_test(no_more_than_a_tenth_is_ahead_of_its_use),
        cmocka_unit_test(absent_rows_and_unknown_tables_leave_nothing),
        cmocka_unit_test(prefetches_change_no_row_and_stop_no_batch),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
