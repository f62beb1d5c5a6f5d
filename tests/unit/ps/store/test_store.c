/* The edges of the store one by one: test_store_model.c holds it against a dictionary. */
#include "common/alloc.h"
#include "common/hash.h"
#include "tests/support/cmocka.h"
#include "tests/support/store_fixture.h"
#include "tests/support/store_tiers.h"

#include <string.h>

/* One row: `value` in all its floats. */
static void put_row(ps_store_t *store, uint16_t table, uint64_t id, size_t n_floats, float value)
{
    static test_request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    request.ids[0] = id;
    test_request_set(&request, table, PS_BATCH_WRITE, 1);
    assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
    ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[0]);
    if (row->state == PS_ROW_ABSENT)
        ps_store_mark_new(store, row);
    for (size_t i = 0; i < n_floats; i++)
        ps_row_floats(row)[i] = value;
    ps_store_mark_dirty(row);
    ps_store_release(store, &request.batch);
}

/* False: absent. */
static bool get_row(ps_store_t *store, uint16_t table, uint64_t id, size_t n_floats, float *value)
{
    static test_request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    request.ids[0] = id;
    test_request_set(&request, table, PS_BATCH_READ, 1);
    assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
    bool found = request.places[0] != 0;
    if (found) {
        ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[0]);
        assert_int_equal(row->id, id);
        assert_int_equal(row->table, table);
        assert_int_equal(row->state, PS_ROW_PRESENT);
        *value = ps_row_floats(row)[0];
        assert_true(ps_row_floats(row)[n_floats - 1] == *value);
    }
    ps_store_release(store, &request.batch);
    return found;
}

static void refuses_too_little_memory(void **state)
{
    (void)state;
    ps_cold_t *cold = test_cold_memory(0, 0);
    ps_store_options_t options = {.memory_bytes = PS_STORE_MIN_MEMORY - 1, .cold = cold};
    ps_store_t *store;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_store_open(&options, &store, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "8388608"));
    cold->ops->destroy(cold);
}

static void refuses_a_table_twice_and_rows_that_do_not_fit(void **state)
{
    (void)state;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    psc_error_t error = PSC_ERROR_INIT;
    test_table_add(store, 3, 64);
    assert_int_equal(ps_store_table_add(store, 3, 64, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_store_table_add(store, 4, 100000, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "16777216 would do"));
    assert_int_equal(ps_store_table_add(store, 4, (size_t)1 << 40, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_store_table_add(store, 4, SIZE_MAX, &error), PSC_INVALID_ARGUMENT);
    test_table_add(store, 4, 0);
    assert_int_equal(ps_store_max_batch(store, 5), 0);
    test_store_close(store);
}

static void refuses_unknown_tables_and_batches_that_are_too_large(void **state)
{
    (void)state;
    static test_request_t request;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, 1, 60000);
    psc_error_t error = PSC_ERROR_INIT;
    size_t max = ps_store_max_batch(store, 1);
    assert_int_equal(max, 64);
    test_request_set(&request, 1, PS_BATCH_READ, max + 1);
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_INVALID_ARGUMENT);
    test_request_set(&request, 2, PS_BATCH_READ, 1);
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_INVALID_ARGUMENT);
    test_store_close(store);
}

static void holds_64_of_the_largest_rows_again_and_again(void **state)
{
    (void)state;
    static test_request_t request;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, 1, 60000);
    test_table_add(store, 2, 4);
    psc_error_t error = PSC_ERROR_INIT;
    for (uint64_t id = 0; id < 300; id++)
        put_row(store, 2, id, 1, (float)id);
    for (uint32_t round = 0; round < 6; round++) {
        for (size_t i = 0; i < 64; i++)
            request.ids[i] = (round % 3) * 64 + i;
        test_request_set(&request, 1, PS_BATCH_WRITE, 64);
        assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
        for (size_t i = 0; i < 64; i++) {
            ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[i]);
            assert_int_equal(row->state, round < 3 ? PS_ROW_ABSENT : PS_ROW_PRESENT);
            if (round < 3)
                ps_store_mark_new(store, row);
            else
                assert_true(ps_row_floats(row)[14999] == (float)request.ids[i]);
            ps_row_floats(row)[14999] = (float)request.ids[i];
        }
        ps_store_release(store, &request.batch);
    }
    for (uint64_t id = 0; id < 300; id++) {
        float value;
        assert_true(get_row(store, 2, id, 1, &value));
        assert_true(value == (float)id);
    }
    test_store_close(store);
}

static void reading_creates_nothing_and_needs_no_disk_while_nothing_was_evicted(void **state)
{
    (void)state;
    static test_request_t request;
    ps_cold_t *inner = test_cold_memory(0, 0);
    test_tier_t *tier = test_tier_create(inner, true);
    ps_store_t *store = test_store_open(test_tier_cold(tier));
    test_table_add(store, 0, 400);
    psc_error_t error = PSC_ERROR_INIT;
    put_row(store, 0, UINT64_MAX, 100, 4);
    for (size_t i = 0; i < 100; i++)
        request.ids[i] = i % 2 == 0 ? UINT64_MAX : i;
    test_request_set(&request, 0, PS_BATCH_READ, 100);
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_OK);
    assert_true(ps_store_ready(store, &request.batch));
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(request.places[i] != 0, i % 2 == 0);
    ps_store_release(store, &request.batch);
    ps_store_counters_t counters;
    ps_store_counters(store, &counters);
    assert_int_equal(counters.rows_hot, 1);
    assert_int_equal(counters.rows_new, 1);
    assert_int_equal(counters.hits, 50);
    test_store_close(store);
    assert_string_equal(test_tier_calls(tier), "ws");
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void a_row_that_was_not_made_new_is_gone_after_release(void **state)
{
    (void)state;
    static test_request_t request;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, 0, 4);
    psc_error_t error = PSC_ERROR_INIT;
    for (size_t i = 0; i < 10; i++)
        request.ids[i] = i / 2; /* each twice */
    test_request_set(&request, 0, PS_BATCH_WRITE, 10);
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_OK);
    for (size_t i = 0; i < 10; i += 2)
        assert_int_equal(request.places[i], request.places[i + 1]);
    ps_store_mark_new(store, ps_store_row(ps_store_base(store), request.places[4]));
    ps_store_release(store, &request.batch);
    float value;
    for (uint64_t id = 0; id < 5; id++)
        assert_int_equal(get_row(store, 0, id, 1, &value), id == 2);
    test_store_close(store);
}

static void several_waiting_batches_share_a_row_that_is_loading(void **state)
{
    (void)state;
    static test_request_t a, b, c;
    ps_cold_t *inner = test_cold_memory(0, 0);
    test_tier_t *tier = test_tier_create(inner, false);
    ps_store_t *store = test_store_open(test_tier_cold(tier));
    test_table_add(store, 0, 4);
    psc_error_t error = PSC_ERROR_INIT;
    test_tier_hold(tier, true);
    a.ids[0] = b.ids[0] = c.ids[0] = 5;
    b.ids[1] = 6;
    test_request_set(&a, 0, PS_BATCH_WRITE, 1);
    test_request_set(&b, 0, PS_BATCH_READ, 2);
    test_request_set(&c, 0, PS_BATCH_READ, 1);
    assert_int_equal(ps_store_prepare(store, &a.batch, &error), PSC_OK);
    assert_int_equal(ps_store_prepare(store, &b.batch, &error), PSC_OK);
    assert_int_equal(ps_store_prepare(store, &c.batch, &error), PSC_OK);
    assert_int_equal(a.places[0], b.places[0]);
    assert_false(ps_store_ready(store, &a.batch));
    assert_false(ps_store_ready(store, &b.batch));
    ps_store_release(store, &c.batch); /* given up while it waits */
    test_tier_hold(tier, false);
    while (!ps_store_ready(store, &a.batch))
        assert_int_equal(test_wait(store, &error), PSC_OK);
    ps_row_header_t *row = ps_store_row(ps_store_base(store), a.places[0]);
    assert_int_equal(row->state, PS_ROW_ABSENT);
    ps_store_mark_new(store, row);
    ps_row_floats(row)[0] = 9;
    ps_store_release(store, &a.batch);
    while (!ps_store_ready(store, &b.batch))
        assert_int_equal(test_wait(store, &error), PSC_OK);
    assert_int_equal(b.places[0], a.places[0]);
    assert_int_equal(b.places[1], 0);
    assert_true(ps_row_floats(row)[0] == 9);
    ps_store_release(store, &b.batch);
    test_store_close(store);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void is_busy_with_nothing_held_and_goes_on_after_progress(void **state)
{
    (void)state;
    static test_request_t request;
    ps_cold_t *inner = test_cold_memory(0, 0);
    test_tier_t *tier = test_tier_create(inner, true);
    ps_store_t *store = test_store_open(test_tier_cold(tier));
    test_table_add(store, 0, 30000);
    psc_error_t error = PSC_ERROR_INIT;
    test_tier_hold(tier, true);
    psc_status_t st = PSC_OK;
    for (uint64_t id = 0; id < 1000 && st == PSC_OK; id++) {
        request.ids[0] = id;
        test_request_set(&request, 0, PS_BATCH_WRITE, 1);
        st = ps_store_prepare(store, &request.batch, &error);
        if (st != PSC_OK)
            break;
        if (ps_store_ready(store, &request.batch)) /* before the first eviction */
            ps_store_mark_new(store, ps_store_row(ps_store_base(store), request.places[0]));
        ps_store_release(store, &request.batch);
    }
    assert_int_equal(st, PSC_BUSY);
    assert_int_equal(request.places[0], 0);
    test_tier_hold(tier, false);
    assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
    ps_store_release(store, &request.batch);
    test_store_close(store);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void a_failed_read_fails_the_store_for_good(void **state)
{
    (void)state;
    static test_request_t request;
    ps_cold_t *inner = test_cold_memory(1, 0);
    test_tier_t *tier = test_tier_create(inner, false);
    ps_store_t *store = test_store_open(test_tier_cold(tier));
    test_table_add(store, 0, 4);
    psc_error_t error = PSC_ERROR_INIT;
    request.ids[0] = 1;
    test_request_set(&request, 0, PS_BATCH_READ, 1);
    assert_int_equal(test_prepare(store, &request, &error), PSC_IO);
    assert_non_null(strstr(error.message, "as asked for"));
    assert_false(ps_store_ready(store, &request.batch));
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_IO);
    bool progress;
    assert_int_equal(ps_store_poll(store, &progress, &error), PSC_IO);
    assert_int_equal(ps_store_close(store, true, &error), PSC_IO);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void a_full_disk_is_told_at_eviction_and_at_close(void **state)
{
    (void)state;
    static test_request_t request;
    ps_store_t *store = test_store_open(test_cold_memory(0, 3));
    test_table_add(store, 0, 30000);
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = PSC_OK;
    for (uint64_t id = 0; id < 1000 && st == PSC_OK; id++) {
        request.ids[0] = id;
        test_request_set(&request, 0, PS_BATCH_WRITE, 1);
        st = test_prepare(store, &request, &error);
        if (st == PSC_OK) {
            ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[0]);
            if (row->state == PS_ROW_ABSENT)
                ps_store_mark_new(store, row);
            ps_store_release(store, &request.batch);
        }
    }
    assert_int_equal(st, PSC_DISK_FULL);
    assert_int_equal(ps_store_close(store, true, &error), PSC_DISK_FULL);

    store = test_store_open(test_cold_memory(0, 1));
    test_table_add(store, 0, 4);
    put_row(store, 0, 1, 1, 1);
    assert_int_equal(ps_store_close(store, true, &error), PSC_DISK_FULL);

    store = test_store_open(test_cold_memory(0, 1));
    test_table_add(store, 0, 4);
    put_row(store, 0, 1, 1, 1);
    assert_int_equal(ps_store_close(store, false, &error), PSC_OK);
}

static void a_record_of_another_row_is_damaged_data(void **state)
{
    (void)state;
    static test_request_t request;
    ps_cold_t *inner = test_cold_memory(0, 0);
    psc_error_t error = PSC_ERROR_INIT;
    struct {
        ps_row_header_t header;
        float value;
        float pad;
    } record = {.header = {.id = 8, .table = 0, .state = PS_ROW_PRESENT}, .value = 1};
    ps_cold_write_t write = {.record = (const uint8_t *)&record, .size = sizeof record};
    ps_cold_key(write.key, 0, (uint32_t)(psc_row_hash(0, 7) & 16383), 7);
    assert_int_equal(inner->ops->write(inner, &write, 1, &error), PSC_OK);
    test_tier_t *tier = test_tier_create(inner, false);
    ps_store_t *store = test_store_open(test_tier_cold(tier));
    test_table_add(store, 0, 8);
    request.ids[0] = 7;
    test_request_set(&request, 0, PS_BATCH_READ, 1);
    assert_int_equal(test_prepare(store, &request, &error), PSC_CORRUPT);
    assert_int_equal(error.id, 7);
    assert_int_equal(ps_store_close(store, true, &error), PSC_CORRUPT);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    for (unsigned long n = 1;; n++) {
        ps_cold_t *cold = test_cold_memory(0, 0);
        ps_store_options_t options = {.memory_bytes = PS_STORE_MIN_MEMORY, .cold = cold};
        ps_store_t *store = NULL;
        psc_alloc_fail_at(n);
        psc_status_t st = ps_store_open(&options, &store, &error);
        if (st == PSC_OK)
            st = ps_store_table_add(store, 1, 4, &error);
        static test_request_t request;
        for (uint64_t id = 0; st == PSC_OK && id < 100; id++) {
            request.ids[0] = id;
            test_request_set(&request, 1, PS_BATCH_WRITE, 1);
            st = ps_store_prepare(store, &request.batch, &error);
            if (st == PSC_OK) {
                ps_store_mark_new(store, ps_store_row(ps_store_base(store), request.places[0]));
                ps_store_release(store, &request.batch);
            }
        }
        bool reached = psc_alloc_count() >= n;
        psc_alloc_fail_at(0);
        assert_int_equal(st, reached ? PSC_NO_MEMORY : PSC_OK);
        if (store == NULL)
            cold->ops->destroy(cold);
        else
            test_store_close(store);
        if (!reached)
            break;
    }
}

/* Whether a row is in memory, by what a read of it does. */
static bool is_hot(ps_store_t *store, uint16_t table, uint64_t id)
{
    ps_store_counters_t before, after;
    float value;
    ps_store_counters(store, &before);
    assert_true(get_row(store, table, id, 1, &value));
    ps_store_counters(store, &after);
    return after.misses == before.misses;
}

/*
 * There is room for 140 rows, a sixteenth of it for newcomers. That many rows stay after one round;
 * of more, some would leave in the first round, be remembered, and stay from the second on.
 */
static void a_scan_leaves_memory_as_it_was(void **state)
{
    (void)state;
    enum { N = 600, FLOATS = 7000, HOT = 8 };
    static test_request_t request;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, 0, FLOATS * sizeof(float));
    psc_error_t error = PSC_ERROR_INIT;
    for (uint64_t id = 0; id < N; id++)
        put_row(store, 0, id, FLOATS, 1);
    for (int round = 0; round < 3; round++)
        for (uint64_t id = 0; id < HOT; id++)
            assert_true(is_hot(store, 0, id) || round == 0);
    /* Twice over all rows; the hot ones are still there. */
    for (uint64_t first = 0; first < 2 * N; first += 30) {
        for (uint64_t i = 0; i < 30; i++)
            request.ids[i] = (first + i) % N;
        test_request_set(&request, 0, PS_BATCH_READ, 30);
        request.batch.scan = true;
        assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
        for (uint64_t i = 0; i < 30; i++)
            assert_true(request.places[i] != 0);
        ps_store_release(store, &request.batch);
    }
    for (uint64_t id = 0; id < HOT; id++)
        assert_true(is_hot(store, 0, id));
    test_store_close(store);
}

static void a_row_of_a_scan_stays_when_others_want_it_or_it_was_changed(void **state)
{
    (void)state;
    static test_request_t scan, other;
    ps_cold_t *inner = test_cold_memory(0, 0);
    test_tier_t *tier = test_tier_create(inner, true);
    ps_store_t *store = test_store_open(test_tier_cold(tier));
    test_table_add(store, 0, 4);
    for (uint64_t id = 0; id < 4; id++)
        put_row(store, 0, id, 1, 1);
    test_store_close(store);
    test_tier_destroy(tier);

    tier = test_tier_create(inner, false);
    store = test_store_open(test_tier_cold(tier));
    test_table_add(store, 0, 4);
    psc_error_t error = PSC_ERROR_INIT;
    test_tier_hold(tier, true);
    for (uint64_t id = 0; id < 4; id++)
        scan.ids[id] = id;
    other.ids[0] = 1;
    test_request_set(&scan, 0, PS_BATCH_WRITE, 4);
    scan.batch.scan = true;
    assert_int_equal(ps_store_prepare(store, &scan.batch, &error), PSC_OK);
    test_request_set(&other, 0, PS_BATCH_READ, 1);
    assert_int_equal(ps_store_prepare(store, &other.batch, &error), PSC_OK);
    test_tier_hold(tier, false);
    while (!ps_store_ready(store, &scan.batch))
        assert_int_equal(test_wait(store, &error), PSC_OK);
    ps_row_header_t *changed = ps_store_row(ps_store_base(store), scan.places[2]);
    ps_row_floats(changed)[0] = 2;
    ps_store_mark_dirty(changed);
    ps_store_release(store, &scan.batch);
    assert_true(ps_store_ready(store, &other.batch));
    ps_store_release(store, &other.batch);
    assert_false(is_hot(store, 0, 0));
    assert_true(is_hot(store, 0, 1));
    assert_true(is_hot(store, 0, 2));
    assert_false(is_hot(store, 0, 3));

    /* Given up while it is read: the row goes when it comes. */
    test_store_close(store);
    test_tier_destroy(tier);
    tier = test_tier_create(inner, false);
    store = test_store_open(test_tier_cold(tier));
    test_table_add(store, 0, 4);
    test_request_set(&scan, 0, PS_BATCH_READ, 4);
    scan.batch.scan = true;
    assert_int_equal(ps_store_prepare(store, &scan.batch, &error), PSC_OK);
    ps_store_release(store, &scan.batch);
    assert_int_equal(test_wait(store, &error), PSC_OK);
    ps_store_counters_t counters;
    ps_store_counters(store, &counters);
    assert_int_equal(counters.rows_hot, 0);
    test_store_close(store);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

/* Rounding a record up costs no more than an eighth of it, but for the shortest. */
static void records_waste_little_and_touch_no_more_lines_than_they_must(void **state)
{
    (void)state;
    for (size_t row_bytes = 4; row_bytes <= 20000; row_bytes += 4) {
        size_t value_bytes = sizeof(ps_row_header_t) + row_bytes;
        size_t record = ps_store_record_bytes(row_bytes);
        assert_int_equal(record % PS_PLACE_BYTES, 0);
        assert_true(record >= value_bytes && record - value_bytes < 32);
        if (value_bytes >= 85)
            assert_true((record - value_bytes) * 8 <= value_bytes);
        if (record % 32 != 0)
            continue;
        for (size_t offset = 0; offset < 64; offset += 32)
            if (offset == 0 || record % 64 == 32)
                assert_true((offset + value_bytes + 63) / 64 <= (record + 63) / 64);
    }
    /* Usual rows: dim 16, 64 and 128 alone; with an accumulator each; with one for the row. */
    assert_int_equal(ps_store_record_bytes(16 * 4), 96);
    assert_int_equal(ps_store_record_bytes(64 * 4), 288);
    assert_int_equal(ps_store_record_bytes(128 * 4), 544);
    assert_int_equal(ps_store_record_bytes(2 * 64 * 4), 544);
    assert_int_equal(ps_store_record_bytes(65 * 4), 320);
    assert_int_equal(ps_store_record_bytes(17 * 4), 112);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_too_little_memory),
        cmocka_unit_test(refuses_a_table_twice_and_rows_that_do_not_fit),
        cmocka_unit_test(refuses_unknown_tables_and_batches_that_are_too_large),
        cmocka_unit_test(holds_64_of_the_largest_rows_again_and_again),
        cmocka_unit_test(reading_creates_nothing_and_needs_no_disk_while_nothing_was_evicted),
        cmocka_unit_test(a_row_that_was_not_made_new_is_gone_after_release),
        cmocka_unit_test(several_waiting_batches_share_a_row_that_is_loading),
        cmocka_unit_test(is_busy_with_nothing_held_and_goes_on_after_progress),
        cmocka_unit_test(a_scan_leaves_memory_as_it_was),
        cmocka_unit_test(a_row_of_a_scan_stays_when_others_want_it_or_it_was_changed),
        cmocka_unit_test(a_failed_read_fails_the_store_for_good),
        cmocka_unit_test(a_full_disk_is_told_at_eviction_and_at_close),
        cmocka_unit_test(a_record_of_another_row_is_damaged_data),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(records_waste_little_and_touch_no_more_lines_than_they_must),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
