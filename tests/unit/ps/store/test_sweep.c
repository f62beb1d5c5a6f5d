/* The walk over a table's rows and their removal: edges; test_store_model.c does it at random. */
#include "ps/store/sweep.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/slots.h"
#include "ps/store/store_plan.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/store_fixture.h"
#include "tests/support/store_tiers.h"

#include <string.h>

#define TABLE 9

/* Makes the rows first to first + n - 1. */
static void make_rows(ps_store_t *store, uint64_t first, size_t n)
{
    static test_request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    for (size_t done = 0; done < n;) {
        size_t size = n - done < 60 ? n - done : 60;
        for (size_t i = 0; i < size; i++)
            request.ids[i] = first + done + i;
        test_request_set(&request, TABLE, PS_BATCH_WRITE, size);
        assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
        for (size_t i = 0; i < size; i++) {
            ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[i]);
            if (row->state == PS_ROW_ABSENT)
                ps_store_mark_new(store, row);
            row->version++;
            ps_store_mark_dirty(row);
        }
        ps_store_release(store, &request.batch);
        done += size;
    }
}

/* Walks over slots; counts the rows, checks their order; sets bits of `given` by id. */
static size_t count_rows(ps_store_t *store, uint32_t first_slot, uint32_t end_slot, bool *given)
{
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_scan_t *scan = NULL;
    assert_int_equal(ps_store_scan_open(store, TABLE, first_slot, end_slot, &scan, &error), PSC_OK);
    size_t n = 0;
    uint64_t last_id = 0;
    uint32_t last_slot = 0;
    for (;;) {
        ps_store_piece_t piece;
        psc_status_t st = ps_store_scan_next(scan, &piece, &error);
        if (st == PSC_BUSY) {
            assert_int_equal(test_wait(store, &error), PSC_OK);
            continue;
        }
        assert_int_equal(st, PSC_OK);
        for (size_t i = 0; i < piece.n; i++) {
            uint64_t id = piece.rows[i].id;
            uint32_t slot = psc_slot_of_hash(psc_row_hash(TABLE, id));
            assert_true(slot >= first_slot && slot < end_slot);
            assert_true(n == 0 || slot > last_slot || (slot == last_slot && id > last_id));
            assert_int_equal(piece.rows[i].table, TABLE);
            if (given != NULL)
                given[id] = true;
            last_id = id;
            last_slot = slot;
            n++;
        }
        if (piece.end)
            break;
    }
    ps_store_scan_close(scan);
    return n;
}

static ps_store_t *open_rocks(const char *folder, size_t row_bytes)
{
    ps_cold_t *cold = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    uint64_t memory = ps_cold_rocks_memory(PS_STORE_MIN_MEMORY);
    assert_int_equal(ps_cold_rocks_open(folder, memory, &cold, &error), PSC_OK);
    ps_store_t *store = test_store_open(cold);
    test_table_add(store, TABLE, row_bytes);
    return store;
}

static void walks_over_nothing_and_over_rows_in_memory_alone(void **state)
{
    (void)state;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, TABLE, 4);
    test_table_add(store, TABLE + 1, 4);
    assert_int_equal(count_rows(store, 0, PSC_SLOT_COUNT, NULL), 0);
    assert_int_equal(count_rows(store, 5, 5, NULL), 0);
    make_rows(store, 0, 1000);
    assert_int_equal(count_rows(store, 0, PSC_SLOT_COUNT, NULL), 1000);
    size_t low = count_rows(store, 0, 7000, NULL);
    assert_int_equal(low + count_rows(store, 7000, PSC_SLOT_COUNT, NULL), 1000);
    assert_true(low > 300 && low < 600);
    test_store_close(store);
}

/* More rows in memory than the walk can sort at once, and as many again in RocksDB. */
static void walks_over_many_windows_of_rows_in_both_tiers(void **state)
{
    (void)state;
    enum { N = 90000 };
    char *folder = test_scratch_create();
    ps_store_t *store = open_rocks(folder, 32);
    bool *given = psc_alloc_zeroed(N, sizeof *given);
    make_rows(store, 0, N);
    ps_store_counters_t counters;
    ps_store_counters(store, &counters);
    ps_store_plan_t plan; /* memory is full to the last place: that says how many are in RocksDB */
    ps_store_plan(PS_STORE_MIN_MEMORY, 0, 32, &plan);
    assert_int_equal(counters.rows_hot, plan.max_rows);
    /* The walk sorts keys of 16 bytes in a 128th of the memory. */
    assert_true(plan.max_rows > 10 * PS_STORE_MIN_MEMORY / 128 / 16);
    assert_true(plan.max_rows < N - 10000);
    assert_int_equal(count_rows(store, 0, PSC_SLOT_COUNT, given), N);
    for (size_t id = 0; id < N; id++)
        assert_true(given[id]);
    test_store_close(store);
    store = open_rocks(folder, 32); /* all of them cold */
    assert_int_equal(count_rows(store, 0, PSC_SLOT_COUNT, NULL), N);
    test_store_close(store);
    psc_free(given);
    test_scratch_destroy(folder);
}

static void erases_rows_from_memory_and_from_disk(void **state)
{
    (void)state;
    enum { N = 20000, ROW_BYTES = 400 };
    static test_request_t request;
    char *folder = test_scratch_create();
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_t *store = open_rocks(folder, ROW_BYTES);
    make_rows(store, 0, N);
    for (uint64_t first = 0; first < N; first += 200) { /* every second one, each told twice */
        for (size_t i = 0; i < 200; i++)
            request.ids[i] = first + i / 2 * 2;
        test_request_set(&request, TABLE, PS_BATCH_WRITE, 200);
        request.batch.scan = true;
        assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
        psc_status_t st;
        while ((st = ps_store_erase(store, &request.batch, &error)) == PSC_BUSY)
            assert_int_equal(test_wait(store, &error), PSC_OK);
        assert_int_equal(st, PSC_OK);
        for (size_t i = 0; i < 200; i++)
            assert_int_equal(ps_store_row(ps_store_base(store), request.places[i])->state,
                             PS_ROW_ABSENT);
        /* One of them comes back, with nothing of what it was. */
        ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[10]);
        assert_int_equal(row->version, 0);
        ps_store_mark_new(store, row);
        row->version = 77;
        ps_store_release(store, &request.batch);
    }
    ps_store_counters_t counters;
    ps_store_counters(store, &counters);
    assert_int_equal(counters.erased, N / 2);
    assert_int_equal(count_rows(store, 0, PSC_SLOT_COUNT, NULL), N / 2 + N / 200);
    test_store_close(store);
    store = open_rocks(folder, ROW_BYTES);
    bool given[N] = {0};
    assert_int_equal(count_rows(store, 0, PSC_SLOT_COUNT, given), N / 2 + N / 200);
    for (size_t id = 0; id < N; id++)
        assert_int_equal(given[id], id % 2 == 1 || id % 200 == 10);
    test_store_close(store);
    test_scratch_destroy(folder);
}

static void a_scan_that_is_closed_while_it_reads_is_freed_when_the_read_is_back(void **state)
{
    (void)state;
    ps_cold_t *inner = test_cold_memory(0, 0);
    test_tier_t *tier = test_tier_create(inner, false);
    ps_store_t *store = test_store_open(test_tier_cold(tier));
    test_table_add(store, TABLE, 4);
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_counters_t before, during;
    ps_store_counters(store, &before);
    ps_store_scan_t *scan = NULL, *second = NULL;
    assert_int_equal(ps_store_scan_open(store, TABLE, 0, 10, &scan, &error), PSC_OK);
    ps_store_counters(store, &during);
    assert_true(during.bytes_budget < before.bytes_budget);
    assert_int_equal(ps_store_scan_open(store, TABLE, 0, 10, &second, &error), PSC_BUSY);
    test_tier_hold(tier, true);
    ps_store_piece_t piece;
    assert_int_equal(ps_store_scan_next(scan, &piece, &error), PSC_BUSY);
    ps_store_scan_close(scan);
    assert_int_equal(ps_store_scan_open(store, TABLE, 0, 10, &second, &error), PSC_BUSY);
    test_tier_hold(tier, false);
    assert_int_equal(test_wait(store, &error), PSC_OK);
    ps_store_counters(store, &during);
    assert_int_equal(during.bytes_budget, before.bytes_budget);
    assert_int_equal(ps_store_scan_open(store, TABLE, 0, 10, &second, &error), PSC_OK);
    ps_store_scan_close(second);
    ps_store_scan_close(NULL);
    test_store_close(store);
    assert_string_equal(test_tier_calls(tier), "hs");
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void a_failed_read_of_a_walk_fails_the_store(void **state)
{
    (void)state;
    ps_cold_t *inner = test_cold_memory(1, 0);
    test_tier_t *tier = test_tier_create(inner, false);
    ps_store_t *store = test_store_open(test_tier_cold(tier));
    test_table_add(store, TABLE, 4);
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_scan_t *scan = NULL;
    ps_store_piece_t piece;
    assert_int_equal(ps_store_scan_open(store, TABLE, 0, 10, &scan, &error), PSC_OK);
    assert_int_equal(ps_store_scan_next(scan, &piece, &error), PSC_BUSY);
    assert_int_equal(test_wait(store, &error), PSC_IO);
    assert_int_equal(ps_store_scan_next(scan, &piece, &error), PSC_IO);
    assert_non_null(strstr(error.message, "as asked for"));
    ps_store_scan_close(scan);
    assert_int_equal(ps_store_close(store, true, &error), PSC_IO);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void refuses_tables_slots_and_memory_that_there_are_not(void **state)
{
    (void)state;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, TABLE, 4);
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_scan_t *scan = NULL;
    assert_int_equal(ps_store_scan_open(store, TABLE + 1, 0, 1, &scan, &error),
                     PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_store_scan_open(store, TABLE, 2, 1, &scan, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_store_scan_open(store, TABLE, 0, PSC_SLOT_COUNT + 1, &scan, &error),
                     PSC_INVALID_ARGUMENT);
    ps_store_counters_t counters;
    for (unsigned long n = 1; n <= 5; n++) {
        psc_alloc_fail_at(n);
        assert_int_equal(ps_store_scan_open(store, TABLE, 0, 1, &scan, &error), PSC_NO_MEMORY);
        psc_alloc_fail_at(0);
    }
    ps_store_counters(store, &counters);
    uint64_t budget = counters.bytes_budget;
    assert_int_equal(ps_store_reserve_memory(store, budget - 1000, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "would do"));
    assert_int_equal(ps_store_reserve_memory(store, UINT64_MAX, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_store_reserve_memory(store, budget / 2, &error), PSC_OK);
    assert_int_equal(ps_store_reserve_memory(store, budget / 2, &error), PSC_INVALID_ARGUMENT);
    ps_store_unreserve_memory(store, budget / 2);
    ps_store_counters(store, &counters);
    assert_int_equal(counters.bytes_budget, budget);
    test_store_close(store);
}

static void memory_that_is_reserved_is_given_up_page_by_page_and_no_row_is_lost(void **state)
{
    (void)state;
    enum { N = 20000 };
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, TABLE, 400);
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_counters_t counters;
    make_rows(store, 0, N);
    ps_store_counters(store, &counters);
    uint64_t full = counters.bytes_hot;
    assert_true(full > counters.bytes_budget / 10 * 9);
    assert_int_equal(ps_store_reserve_memory(store, counters.bytes_budget / 2, &error), PSC_OK);
    ps_store_counters(store, &counters);
    while (counters.bytes_hot > counters.bytes_budget) { /* as fast as rows are written back */
        bool progress;
        assert_int_equal(ps_store_poll(store, &progress, &error), PSC_OK);
        ps_store_counters(store, &counters);
    }
    assert_true(counters.bytes_budget < full / 10 * 6);
    make_rows(store, N, 1000);
    ps_store_counters(store, &counters);
    assert_true(counters.bytes_hot <= counters.bytes_budget);
    assert_int_equal(count_rows(store, 0, PSC_SLOT_COUNT, NULL), N + 1000);
    test_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks_over_nothing_and_over_rows_in_memory_alone),
        cmocka_unit_test(walks_over_many_windows_of_rows_in_both_tiers),
        cmocka_unit_test(erases_rows_from_memory_and_from_disk),
        cmocka_unit_test(a_scan_that_is_closed_while_it_reads_is_freed_when_the_read_is_back),
        cmocka_unit_test(a_failed_read_of_a_walk_fails_the_store),
        cmocka_unit_test(refuses_tables_slots_and_memory_that_there_are_not),
        cmocka_unit_test(memory_that_is_reserved_is_given_up_page_by_page_and_no_row_is_lost),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
