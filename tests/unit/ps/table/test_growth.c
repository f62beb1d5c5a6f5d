/*
 * One row of a table that admits late or expires, step by step: its states, what it begins with,
 * what a sweep does to it. Random requests are in test_growth_model.c.
 */
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include "common/alloc.h"
#include "common/slots.h"

#include <stdio.h>
#include <string.h>

typedef struct small {
    shard_fixture_t f;
    psp_open_table_t options;
} small_t;

static void small_open(small_t *s, psp_open_table_t options)
{
    fixture_options_t fixture = {
        .memory_bytes = PS_STORE_MIN_MEMORY, .n_servers = 1, .n_workers = 1};
    s->options = options;
    fixture_open(&s->f, &fixture);
    fixture_hello(&s->f, 0);
    assert_int_equal(fixture_open_table(&s->f, &options, NULL, NULL), PSC_OK);
}

/* n times the same id in one push. */
static void small_push(small_t *s, psp_push_kind_t kind, uint64_t id, float value, size_t n)
{
    uint64_t ids[4] = {id, id, id, id};
    float rows[4 * 2] = {value, value, value, value, value, value, value, value};
    psp_push_t push = {
        .table = 1, .table_epoch = 1, .kind = kind, .learning_rate = 1.0f, .dim = 2, .n = n};
    psp_message_t reply;
    (void)fixture_push(&s->f, 0, NULL, push, ids, rows);
    fixture_wait(&s->f, &reply, NULL);
    assert_string_equal(reply.reply.error.message, "");
}

static psp_row_state_t small_pull(small_t *s, uint64_t id, float *value_out, uint32_t *version_out)
{
    psp_pull_t pull = {.table = 1,
                       .table_epoch = 1,
                       .staleness = PSP_STALENESS_ASYNC,
                       .want_versions = true,
                       .n = 1};
    psp_message_t reply;
    (void)fixture_pull(&s->f, 0, NULL, pull, &id);
    fixture_wait(&s->f, &reply, NULL);
    assert_string_equal(reply.reply.error.message, "");
    const psp_pull_reply_t *rows = &reply.u.pull_reply;
    memcpy(value_out, rows->rows, sizeof *value_out);
    memcpy(version_out, rows->versions, sizeof *version_out);
    return rows->states != NULL ? (psp_row_state_t)rows->states[0] : PSP_ROW_PRESENT;
}

static void expect_row(small_t *s, uint64_t id, psp_row_state_t state, float value,
                       uint32_t version)
{
    float found;
    uint32_t found_version;
    assert_int_equal(small_pull(s, id, &found, &found_version), state);
    assert_true(found == value);
    assert_int_equal(found_version, version);
}

static void small_clock(small_t *s, uint64_t clock)
{
    psp_message_t message = {.kind = PSP_CLOCK}, reply;
    s->f.clock[0] = clock;
    (void)fixture_send(&s->f, 0, &message);
    fixture_wait(&s->f, &reply, NULL);
}

/* Polls until the sweep that is due has ended. */
static void small_sweep(small_t *s)
{
    uint64_t before = fixture_counter(&s->f, 0, "sweeps");
    for (int i = 0; fixture_counter(&s->f, 0, "sweeps") == before; i++) {
        assert_true(i < 100000);
        for (int j = 0; j < 10; j++)
            fixture_poll(&s->f);
    }
}

static const psp_open_table_t plain = {
    .name = "t", .dim = 2, .init = "zeros", .optimizer = "sgd", .seed = 1};

static void the_third_push_creates_a_row_and_duplicates_count_once(void **state)
{
    (void)state;
    small_t s;
    psp_open_table_t options = plain;
    options.admit_after = 3;
    options.admit_counters = 64;
    small_open(&s, options);
    expect_row(&s, 7, PSP_ROW_INITIAL, 0, 0);
    small_push(&s, PSP_PUSH_DELTA, 7, 1, 4);
    expect_row(&s, 7, PSP_ROW_NOT_ADMITTED, 0, 0);
    small_push(&s, PSP_PUSH_GRADIENT, 7, 1, 1);
    expect_row(&s, 7, PSP_ROW_NOT_ADMITTED, 0, 0);
    assert_int_equal(fixture_counter(&s.f, 0, "rows.pushed_not_admitted"), 5);
    assert_int_equal(fixture_counter(&s.f, 0, "rows.created"), 0);
    small_push(&s, PSP_PUSH_DELTA, 7, 1, 2);
    expect_row(&s, 7, PSP_ROW_PRESENT, 2, 1);
    assert_int_equal(fixture_counter(&s.f, 0, "rows.created"), 1);
    /* An assignment says what a row is. */
    small_push(&s, PSP_PUSH_ASSIGN, 8, 5, 1);
    expect_row(&s, 8, PSP_ROW_PRESENT, 5, 1);
    fixture_close(&s.f, true);
}

static void rows_of_a_slot_share_one_until_they_have_their_own(void **state)
{
    (void)state;
    small_t s;
    psp_open_table_t options = plain;
    options.admit_after = 2;
    options.admit_counters = 64;
    options.admit_shared = true;
    small_open(&s, options);
    uint64_t a = psc_row_id_of_hash(1, (uint64_t)1 << 20 | 9);
    uint64_t b = psc_row_id_of_hash(1, (uint64_t)2 << 20 | 9);
    uint64_t elsewhere = psc_row_id_of_hash(1, (uint64_t)1 << 20 | 10);
    small_push(&s, PSP_PUSH_DELTA, a, 1, 1);
    expect_row(&s, a, PSP_ROW_NOT_ADMITTED, 1, 0);
    expect_row(&s, b, PSP_ROW_NOT_ADMITTED, 1, 0);
    expect_row(&s, elsewhere, PSP_ROW_NOT_ADMITTED, 0, 0);
    small_push(&s, PSP_PUSH_DELTA, b, 2, 2);
    expect_row(&s, a, PSP_ROW_NOT_ADMITTED, 5, 0);
    /* It begins with what was pulled in its place. */
    small_push(&s, PSP_PUSH_DELTA, a, 10, 1);
    expect_row(&s, a, PSP_ROW_PRESENT, 15, 1);
    expect_row(&s, b, PSP_ROW_NOT_ADMITTED, 5, 0);
    assert_int_equal(fixture_counter(&s.f, 0, "rows.pushed_shared"), 3);
    fixture_close(&s.f, true);
}

/* The old row's weights and state are as bad as floats can be. */
static void an_expired_row_inherits_nothing_freed_or_not(void **state)
{
    (void)state;
    for (int swept = 0; swept < 2; swept++) {
        small_t s;
        psp_open_table_t options = plain;
        (void)snprintf(options.optimizer, sizeof options.optimizer, "adagrad");
        options.expire_after = 3;
        small_open(&s, options);
        small_push(&s, PSP_PUSH_GRADIENT, 7, 1, 1);
        float fresh;
        uint32_t version;
        assert_int_equal(small_pull(&s, 7, &fresh, &version), PSP_ROW_PRESENT);
        for (int i = 0; i < 3; i++) {
            small_push(&s, PSP_PUSH_GRADIENT, 7, 1e19f, 1);
            small_push(&s, PSP_PUSH_ASSIGN, 7, 3e38f, 1);
        }
        small_clock(&s, 3);
        expect_row(&s, 7, PSP_ROW_PRESENT, 3e38f, 7);
        small_clock(&s, swept ? 7 : 4);
        expect_row(&s, 7, swept ? PSP_ROW_INITIAL : PSP_ROW_EXPIRED, 0, 0);
        if (swept)
            small_sweep(&s);
        assert_int_equal(fixture_counter(&s.f, 0, "store.erased"), swept);
        small_push(&s, PSP_PUSH_GRADIENT, 7, 1, 1);
        expect_row(&s, 7, PSP_ROW_PRESENT, fresh, 1);
        assert_int_equal(fixture_counter(&s.f, 0, "rows.renewed"), !swept);
        assert_int_equal(fixture_counter(&s.f, 0, "rows.created"), 1 + swept);
        fixture_close(&s.f, true);
    }
}

static void a_dry_run_counts_and_keeps(void **state)
{
    (void)state;
    small_t s;
    psp_open_table_t options = plain;
    options.expire_after = 2;
    options.expire_dry_run = true;
    small_open(&s, options);
    for (uint64_t id = 0; id < 40; id++)
        small_push(&s, PSP_PUSH_DELTA, id, 1, 1);
    small_clock(&s, 3);
    for (uint64_t id = 0; id < 10; id++)
        small_push(&s, PSP_PUSH_DELTA, id, 1, 1);
    small_sweep(&s);
    assert_int_equal(fixture_counter(&s.f, 0, "rows.due"), 30);
    small_clock(&s, 100);
    small_sweep(&s);
    assert_int_equal(fixture_counter(&s.f, 0, "rows.due"), 40);
    assert_int_equal(fixture_counter(&s.f, 0, "rows.freed"), 0);
    expect_row(&s, 3, PSP_ROW_PRESENT, 2, 2);
    expect_row(&s, 30, PSP_ROW_PRESENT, 1, 1);
    fixture_close(&s.f, true);
}

static void a_sketch_too_large_for_the_memory_is_refused_in_words(void **state)
{
    (void)state;
    small_t s;
    small_open(&s, plain);
    psp_open_table_t options = plain;
    (void)snprintf(options.name, sizeof options.name, "other");
    options.admit_after = 2;
    psc_error_t error;
    assert_int_equal(fixture_open_table(&s.f, &options, NULL, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "would do"));
    options.admit_counters = 64;
    assert_int_equal(fixture_open_table(&s.f, &options, NULL, NULL), PSC_OK);
    fixture_close(&s.f, true);
}

static void every_allocation_that_fails_on_opening_is_told(void **state)
{
    (void)state;
    psp_open_table_t options = plain;
    options.admit_after = 2;
    options.admit_counters = 16;
    options.admit_shared = true;
    options.expire_after = 5;
    psc_status_t st = PSC_NO_MEMORY;
    for (unsigned long n = 1; st == PSC_NO_MEMORY; n++) {
        shard_fixture_t f;
        fixture_options_t fixture = {
            .memory_bytes = PS_STORE_MIN_MEMORY, .n_servers = 1, .n_workers = 1};
        fixture_open(&f, &fixture);
        fixture_hello(&f, 0);
        psp_message_t message = {.kind = PSP_OPEN_TABLE, .u.open_table = options}, reply;
        message.request = fixture_header(&f, 0);
        psp_buffer_t *buffer;
        assert_int_equal(psp_message_pack(f.pool, &message, &buffer, NULL), PSC_OK);
        psc_error_t error = PSC_ERROR_INIT;
        psc_alloc_fail_at(n);
        st = ps_shard_handle(f.shard, buffer, &error);
        psc_alloc_fail_at(0);
        assert_true(st == PSC_OK || st == PSC_NO_MEMORY);
        if (fixture_take(&f, &reply, NULL)) {
            assert_true(st == PSC_NO_MEMORY || reply.reply.error.code == PSC_OK ||
                        reply.reply.error.code == PSC_NO_MEMORY);
            st = reply.reply.error.code;
        }
        fixture_close(&f, st == PSC_OK);
        assert_true(n < 200);
    }
    assert_int_equal(st, PSC_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_third_push_creates_a_row_and_duplicates_count_once),
        cmocka_unit_test(rows_of_a_slot_share_one_until_they_have_their_own),
        cmocka_unit_test(an_expired_row_inherits_nothing_freed_or_not),
        cmocka_unit_test(a_dry_run_counts_and_keeps),
        cmocka_unit_test(a_sketch_too_large_for_the_memory_is_refused_in_words),
        cmocka_unit_test(every_allocation_that_fails_on_opening_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
