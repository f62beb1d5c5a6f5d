/* Pulls with a deadline: answered in time with what is there, and with no row invented. */
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"
#include "tests/support/store_tiers.h"

#include <string.h>

enum { D = 100, N_ROWS = 20000, BATCH = 200 }; /* twice what fits into the memory */

typedef struct world {
    shard_fixture_t f;
    ps_cold_t *inner;
    test_tier_t *tier;
    uint64_t now_us;
} world_t;

static psp_pull_t pull_of(size_t n)
{
    return (psp_pull_t){.table = 1,
                        .table_epoch = 1,
                        .staleness = PSP_STALENESS_ASYNC,
                        .n = n,
                        .want_versions = true};
}

static void set_time(world_t *w, uint64_t now_us)
{
    w->now_us = now_us;
    ps_shard_set_time(w->f.shard, now_us);
    fixture_poll(&w->f);
}

/* Rows whose first value is their id, most of them on disk. */
static void start(world_t *w, uint32_t n_workers, bool shares)
{
    psc_error_t error = PSC_ERROR_INIT;
    const ps_cold_faults_t none = {0};
    *w = (world_t){0};
    assert_int_equal(ps_cold_memory_create(&none, &w->inner, &error), PSC_OK);
    w->tier = test_tier_create(w->inner, true);
    const fixture_options_t options = {.memory_bytes = PS_STORE_MIN_MEMORY,
                                       .n_servers = 1,
                                       .n_workers = n_workers,
                                       .cold = test_tier_cold(w->tier)};
    fixture_open(&w->f, &options);
    for (uint32_t i = 0; i < n_workers; i++)
        fixture_hello(&w->f, i);
    psp_open_table_t table = {
        .name = "t", .dim = D, .init = "constant", .optimizer = "sgd", .seed = 3};
    table.n_init_params = 1;
    table.init_params[0] = -1;
    if (shares) {
        table.admit_after = 3;
        table.admit_shared = true;
        table.admit_counters = 16;
    }
    psc_status_t st = fixture_open_table(&w->f, &table, NULL, &error);
    if (st != PSC_OK)
        fail_msg("%s", error.message);
    static uint64_t ids[BATCH];
    static float rows[BATCH * D];
    for (uint64_t first = 0; first < N_ROWS; first += BATCH) {
        for (uint64_t i = 0; i < BATCH; i++) {
            ids[i] = first + i;
            rows[i * D] = (float)ids[i];
        }
        const psp_push_t push = {
            .table = 1, .table_epoch = 1, .kind = PSP_PUSH_ASSIGN, .dim = D, .n = BATCH};
        (void)fixture_push(&w->f, 0, NULL, push, ids, rows);
        psp_message_t reply;
        fixture_wait(&w->f, &reply, NULL);
        assert_int_equal(reply.reply.error.code, PSC_OK);
    }
    set_time(w, 1000);
}

static void finish(world_t *w)
{
    test_tier_hold(w->tier, false);
    fixture_close(&w->f, true);
    test_tier_destroy(w->tier);
    w->inner->ops->destroy(w->inner);
}

static uint64_t pull(world_t *w, uint32_t worker, uint32_t deadline_ms, const uint64_t *ids,
                     size_t n)
{
    psp_request_header_t header = fixture_header(&w->f, worker);
    header.deadline_ms = deadline_ms;
    return fixture_pull(&w->f, worker, &header, pull_of(n), ids);
}

static bool nothing_came(world_t *w)
{
    psp_message_t reply;
    for (int i = 0; i < 20; i++)
        fixture_poll(&w->f);
    return !fixture_take(&w->f, &reply, NULL);
}

/* The next reply answers this pull; every row has its value or is late. How many are late. */
static size_t expect(world_t *w, uint64_t request, const uint64_t *ids, size_t n)
{
    psp_message_t reply;
    fixture_wait(&w->f, &reply, NULL);
    assert_int_equal(reply.reply.request, request);
    assert_int_equal(reply.reply.error.code, PSC_OK);
    const psp_pull_reply_t *rows = &reply.u.pull_reply;
    assert_int_equal(rows->n, n);
    size_t n_late = 0, at = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t state = rows->states != NULL ? rows->states[i] : (uint8_t)PSP_ROW_PRESENT;
        uint32_t version;
        float value;
        memcpy(&version, rows->versions + 4 * i, sizeof version);
        assert_int_equal(version, state == PSP_ROW_PRESENT ? 1 : 0);
        if (state == PSP_ROW_LATE) {
            n_late++;
            continue;
        }
        memcpy(&value, rows->rows + at++ * D * sizeof value, sizeof value);
        assert_true(value == (ids[i] < N_ROWS ? (float)ids[i] : -1.0f));
    }
    assert_int_equal(rows->n_values, at);
    return n_late;
}

static void what_is_on_disk_is_late_and_the_rest_is_answered(void **state)
{
    (void)state;
    world_t w;
    start(&w, 1, false);
    /* The last rows are in memory, the first ones are not. */
    const uint64_t ids[] = {0, N_ROWS - 1, 1, N_ROWS - 2, N_ROWS - 3, 2};
    test_tier_hold(w.tier, true);
    uint64_t request = pull(&w, 0, 5, ids, 6);
    assert_int_equal(ps_shard_next_deadline(w.f.shard), 1000 + 5000);
    assert_true(nothing_came(&w));
    set_time(&w, 5999);
    assert_true(nothing_came(&w));
    set_time(&w, 6000);
    assert_int_equal(expect(&w, request, ids, 6), 3);
    assert_true(ps_shard_next_deadline(w.f.shard) == UINT64_MAX);
    /* The reads go on, and the next pull finds the rows. */
    test_tier_hold(w.tier, false);
    assert_int_equal(expect(&w, pull(&w, 0, 5, ids, 6), ids, 6), 0);
    assert_int_equal(fixture_counter(&w.f, 0, "rows.pulled_late"), 3);
    finish(&w);
}

static void a_pull_behind_others_answers_no_row(void **state)
{
    (void)state;
    world_t w;
    start(&w, 1, false);
    const uint64_t cold = 5, hot = N_ROWS - 1;
    test_tier_hold(w.tier, true);
    uint64_t first = pull(&w, 0, 0, &cold, 1);
    uint64_t second = pull(&w, 0, 3, &hot, 1);
    uint64_t third = pull(&w, 0, 0, &hot, 1);
    assert_true(nothing_came(&w));
    set_time(&w, 1000 + 3000);
    assert_int_equal(expect(&w, second, &hot, 1), 1);
    assert_true(nothing_came(&w));
    test_tier_hold(w.tier, false);
    assert_int_equal(expect(&w, first, &cold, 1), 0);
    assert_int_equal(expect(&w, third, &hot, 1), 0);
    finish(&w);
}

static void what_waits_behind_an_overdue_pull_goes_on(void **state)
{
    (void)state;
    world_t w;
    start(&w, 1, false);
    const uint64_t cold = 5, hot = N_ROWS - 1;
    test_tier_hold(w.tier, true);
    uint64_t first = pull(&w, 0, 3, &cold, 1);
    uint64_t second = pull(&w, 0, 900, &hot, 1);
    set_time(&w, 1000 + 3000);
    assert_int_equal(expect(&w, first, &cold, 1), 1);
    assert_int_equal(expect(&w, second, &hot, 1), 0);
    finish(&w);
}

static void a_pull_that_waits_for_a_clock_is_late_as_a_whole(void **state)
{
    (void)state;
    world_t w;
    start(&w, 2, false);
    const uint64_t hot = N_ROWS - 1;
    psp_message_t clock = {.kind = PSP_CLOCK}, reply;
    w.f.clock[0] = 1;
    (void)fixture_send(&w.f, 0, &clock);
    fixture_wait(&w.f, &reply, NULL);
    psp_request_header_t header = fixture_header(&w.f, 0);
    header.deadline_ms = 2;
    psp_pull_t in_step = pull_of(1);
    in_step.staleness = 0;
    uint64_t request = fixture_pull(&w.f, 0, &header, in_step, &hot);
    assert_true(nothing_came(&w));
    set_time(&w, 1000 + 2000);
    assert_int_equal(expect(&w, request, &hot, 1), 1);
    finish(&w);
}

static void rows_that_share_are_late_with_the_row_that_they_share(void **state)
{
    (void)state;
    world_t w;
    start(&w, 1, true);
    const uint64_t ids[] = {N_ROWS - 1, N_ROWS + 5, 3};
    test_tier_hold(w.tier, true);
    uint64_t request = pull(&w, 0, 2, ids, 3);
    set_time(&w, 1000 + 2000);
    size_t n_late = expect(&w, request, ids, 3);
    assert_true(n_late >= 1 && n_late <= 2);
    test_tier_hold(w.tier, false);
    assert_int_equal(expect(&w, pull(&w, 0, 0, ids, 3), ids, 3), 0);
    finish(&w);
}

static void a_pull_with_a_deadline_is_checked_like_any_other(void **state)
{
    (void)state;
    world_t w;
    start(&w, 1, false);
    const uint64_t cold = 5;
    test_tier_hold(w.tier, true);
    (void)pull(&w, 0, 0, &cold, 1);
    psp_request_header_t header = fixture_header(&w.f, 0);
    header.deadline_ms = 1;
    psp_pull_t wrong = pull_of(1);
    wrong.table = 9;
    uint64_t request = fixture_pull(&w.f, 0, &header, wrong, &cold);
    set_time(&w, 1000 + 1000);
    psp_message_t reply;
    fixture_wait(&w.f, &reply, NULL);
    assert_int_equal(reply.reply.request, request);
    assert_int_equal(reply.reply.error.code, PSC_NOT_FOUND);
    finish(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_on_disk_is_late_and_the_rest_is_answered),
        cmocka_unit_test(a_pull_behind_others_answers_no_row),
        cmocka_unit_test(what_waits_behind_an_overdue_pull_goes_on),
        cmocka_unit_test(a_pull_that_waits_for_a_clock_is_late_as_a_whole),
        cmocka_unit_test(rows_that_share_are_late_with_the_row_that_they_share),
        cmocka_unit_test(a_pull_with_a_deadline_is_checked_like_any_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
