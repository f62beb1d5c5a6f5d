/* The index against an array of "where is this id": random insertions, removals and searches. */
#include "common/alloc.h"
#include "common/hash.h"
#include "ps/store/index.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define N_ROWS 60000

/* Headers alone; row i is at place_of(i). Row 0 is not used. */
typedef struct rows {
    uint8_t *base;
    bool *present; /* [N_ROWS + 1] */
    ps_index_t *index;
    size_t count;
} rows_t;

static const uint16_t table = 9;

static ps_place_t place_of(uint32_t i)
{
    return i * (uint32_t)(sizeof(ps_row_header_t) / PS_PLACE_BYTES);
}

static uint64_t id_of(uint32_t i)
{
    if (i <= 2)
        return i == 1 ? 0 : UINT64_MAX;
    return i % 3 == 0 ? i : psc_mix64(i);
}

static ps_place_t find(const rows_t *rows, uint32_t i)
{
    uint64_t id = id_of(i);
    return ps_index_find(rows->index, id, psc_row_hash(table, id));
}

static void insert(rows_t *rows, uint32_t i)
{
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_row(rows->base, place_of(i))->id = id_of(i);
    assert_int_equal(
        ps_index_insert(rows->index, psc_row_hash(table, id_of(i)), place_of(i), &error), PSC_OK);
    rows->present[i] = true;
    rows->count++;
}

static void take_out(rows_t *rows, uint32_t i)
{
    ps_index_remove(rows->index, psc_row_hash(table, id_of(i)), place_of(i));
    /* What a freed record holds must not matter. */
    memset(ps_store_row(rows->base, place_of(i)), 0xff, sizeof(ps_row_header_t));
    rows->present[i] = false;
    rows->count--;
}

static rows_t *create_rows(void)
{
    rows_t *rows = psc_alloc_zeroed(1, sizeof *rows);
    psc_error_t error = PSC_ERROR_INIT;
    assert_non_null(rows);
    rows->base = psc_alloc_aligned((N_ROWS + 1) * sizeof(ps_row_header_t));
    rows->present = psc_alloc_zeroed(N_ROWS + 1, sizeof *rows->present);
    assert_int_equal(ps_index_create(table, rows->base, &rows->index, &error), PSC_OK);
    return rows;
}

static void destroy_rows(rows_t *rows)
{
    ps_index_destroy(rows->index);
    psc_free(rows->base);
    psc_free(rows->present);
    psc_free(rows);
}

static void check_all(const rows_t *rows)
{
    assert_int_equal(ps_index_count(rows->index), rows->count);
    for (uint32_t i = 1; i <= N_ROWS; i++)
        assert_int_equal(find(rows, i), rows->present[i] ? place_of(i) : 0);
}

static void finds_what_was_inserted_and_nothing_else(void **state)
{
    (void)state;
    rows_t *rows = create_rows();
    test_random_t random = test_random_start();
    check_all(rows);
    for (int phase = 0; phase < 4; phase++) {
        /* Grows, shrinks, grows: 0.9, 0.1 of all steps insert. */
        for (int i = 0; i < 2 * N_ROWS; i++) {
            uint32_t row = (uint32_t)(1 + test_below(&random, N_ROWS));
            bool add = test_below(&random, 10) < (phase % 2 == 0 ? 9u : 1u);
            if (add && !rows->present[row])
                insert(rows, row);
            else if (!add && rows->present[row])
                take_out(rows, row);
        }
        check_all(rows);
    }
    for (uint32_t i = 1; i <= N_ROWS; i++)
        if (rows->present[i])
            take_out(rows, i);
    check_all(rows);
    destroy_rows(rows);
}

static void a_batch_finds_what_single_searches_find(void **state)
{
    (void)state;
    rows_t *rows = create_rows();
    test_random_t random = test_random_start();
    static const size_t sizes[] = {0, 1, 15, 16, 33, 512, 513, 1000};
    for (uint32_t i = 1; i <= N_ROWS; i++)
        if (test_below(&random, 2) == 0)
            insert(rows, i);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t ids[1000], hashes[1000];
        ps_place_t places[1000];
        size_t n_absent = 0;
        uint32_t wanted[1000];
        for (size_t i = 0; i < sizes[s]; i++) {
            wanted[i] = (uint32_t)(1 + test_below(&random, i % 7 == 0 ? 3 : N_ROWS));
            ids[i] = id_of(wanted[i]);
            hashes[i] = psc_row_hash(table, ids[i]);
            n_absent += !rows->present[wanted[i]];
        }
        assert_int_equal(ps_index_find_batch(rows->index, ids, hashes, sizes[s], places), n_absent);
        for (size_t i = 0; i < sizes[s]; i++)
            assert_int_equal(places[i], rows->present[wanted[i]] ? place_of(wanted[i]) : 0);
    }
    destroy_rows(rows);
}

/* A page for the first rows, one that is not full, one of moves. */
#define FIXED_BYTES 8192

static void takes_seven_bytes_a_row_and_gives_them_back(void **state)
{
    (void)state;
    rows_t *rows = create_rows();
    for (uint32_t i = 1; i <= N_ROWS; i++) {
        insert(rows, i);
        assert_true(ps_index_bytes(rows->index) <= 72 * (size_t)i / 10 + FIXED_BYTES);
    }
    /* It gives back what would be more than 128 KiB too much. */
    for (uint32_t i = 1; i < N_ROWS; i++) {
        take_out(rows, i);
        assert_true(ps_index_bytes(rows->index) <=
                    PS_INDEX_ROW_BYTES * (N_ROWS - (size_t)i) + (128 << 10) + FIXED_BYTES);
    }
    check_all(rows);
    destroy_rows(rows);
}

/* Book-keeping of a row: its header, its part of the index, and what the policy has beside them. */
static void a_million_rows_take_at_most_forty_bytes_each_and_no_change_moves_many(void **state)
{
    (void)state;
    enum { MILLION = 1000000, MOVED_MAX = 16 * 12, POLICY = MILLION * 3 / 4 };
    psc_error_t error = PSC_ERROR_INIT;
    uint8_t *base = psc_alloc_aligned((MILLION + 1) * sizeof(ps_row_header_t));
    assert_non_null(base);
    ps_index_t *index;
    assert_int_equal(ps_index_create(table, base, &index, &error), PSC_OK);
    size_t n_moved = 0;
    for (uint32_t i = 1; i <= MILLION; i++) {
        ps_store_row(base, place_of(i))->id = i;
        assert_int_equal(ps_index_insert(index, psc_row_hash(table, i), place_of(i), &error),
                         PSC_OK);
        assert_true(ps_index_moved(index) <= MOVED_MAX);
        n_moved += ps_index_moved(index);
    }
    assert_true(sizeof(ps_row_header_t) * MILLION + ps_index_bytes(index) + POLICY <=
                (size_t)40 * MILLION);
    assert_true(n_moved <= (size_t)62 * MILLION / 10);
    for (uint32_t i = 1; i <= MILLION; i += 3)
        assert_int_equal(ps_index_find(index, i, psc_row_hash(table, i)), place_of(i));
    for (uint32_t i = 1; i <= MILLION; i++) {
        ps_index_remove(index, psc_row_hash(table, i), place_of(i));
        assert_true(ps_index_moved(index) <= MOVED_MAX);
    }
    assert_int_equal(ps_index_count(index), 0);
    assert_true(ps_index_bytes(index) <= (128 << 10) + FIXED_BYTES);
    ps_index_destroy(index);
    psc_free(base);
}

/* All rows of a server may share one slot: the low bits of their hashes are then the same. */
static void works_when_all_rows_share_a_slot(void **state)
{
    (void)state;
    rows_t *rows = create_rows();
    psc_error_t error = PSC_ERROR_INIT;
    uint32_t n = 0;
    uint64_t ids[2000];
    for (uint64_t id = 0; n < 2000; id++) {
        uint64_t hash = psc_row_hash(table, id);
        if ((hash & 63) != 5) /* fewer bits than a slot has: the test is to be short */
            continue;
        ids[n++] = id;
        ps_store_row(rows->base, place_of(n))->id = id;
        assert_int_equal(ps_index_insert(rows->index, hash, place_of(n), &error), PSC_OK);
    }
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(ps_index_find(rows->index, ids[i], psc_row_hash(table, ids[i])),
                         place_of(i + 1));
    assert_true(ps_index_bytes(rows->index) <= 8 * (size_t)n + FIXED_BYTES);
    destroy_rows(rows);
}

/* With few groups every one of them may be passed by some row. */
static void a_search_ends_in_a_small_index_whatever_was_removed(void **state)
{
    (void)state;
    rows_t *rows = create_rows();
    test_random_t random = test_random_start();
    for (int i = 0; i < 200000; i++) {
        uint32_t row = (uint32_t)(1 + test_below(&random, 70));
        if (rows->present[row])
            take_out(rows, row);
        else if (rows->count < 59)
            insert(rows, row);
        uint32_t other = (uint32_t)(1 + test_below(&random, 200));
        assert_int_equal(find(rows, other), rows->present[other] ? place_of(other) : 0);
    }
    destroy_rows(rows);
}

static void a_failed_allocation_loses_nothing(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    ps_index_t *index;
    uint8_t *base = psc_alloc_aligned(64);
    for (unsigned long n = 1; n <= 2; n++) {
        psc_alloc_fail_at(n);
        assert_int_equal(ps_index_create(table, base, &index, &error), PSC_NO_MEMORY);
    }
    psc_alloc_fail_at(0);
    psc_free(base);

    rows_t *rows = create_rows();
    uint32_t n_failures = 0;
    for (uint32_t i = 1; i <= N_ROWS; i++) {
        uint64_t hash = psc_row_hash(table, id_of(i));
        ps_store_row(rows->base, place_of(i))->id = id_of(i);
        /* The first, second, ... allocation of this insertion fails, until there is none left. */
        for (unsigned long n = 1;; n++) {
            psc_alloc_fail_at(n);
            psc_status_t st = ps_index_insert(rows->index, hash, place_of(i), &error);
            psc_alloc_fail_at(0);
            if (st == PSC_OK)
                break;
            assert_int_equal(st, PSC_NO_MEMORY);
            assert_int_equal(find(rows, i), 0);
            n_failures++;
        }
        rows->present[i] = true;
        rows->count++;
    }
    assert_true(n_failures >= 2);
    check_all(rows);
    destroy_rows(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_inserted_and_nothing_else),
        cmocka_unit_test(a_batch_finds_what_single_searches_find),
        cmocka_unit_test(takes_seven_bytes_a_row_and_gives_them_back),
        cmocka_unit_test(a_million_rows_take_at_most_forty_bytes_each_and_no_change_moves_many),
        cmocka_unit_test(works_when_all_rows_share_a_slot),
        cmocka_unit_test(a_search_ends_in_a_small_index_whatever_was_removed),
        cmocka_unit_test(a_failed_allocation_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
