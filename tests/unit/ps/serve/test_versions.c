/* Versions of rows between a client that keeps copies and a shard: what is told, asked and sent. */
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"
#include "tests/support/test_seed.h"

#include <string.h>

enum { DIM = 3, IDS = 40 };

static const fixture_options_t two_workers = {
    .memory_bytes = 8 << 20, .n_servers = 1, .n_workers = 2};

static psp_open_table_reply_t start(shard_fixture_t *f, uint64_t expire_after)
{
    psp_open_table_t options = {.name = "t",
                                .dim = DIM,
                                .init = "zeros",
                                .optimizer = "sgd",
                                .seed = 1,
                                .expire_after = expire_after};
    psp_open_table_reply_t opened;
    psc_error_t error = PSC_ERROR_INIT;
    fixture_open(f, &two_workers);
    fixture_hello(f, 0);
    fixture_hello(f, 1);
    if (fixture_open_table(f, &options, &opened, &error) != PSC_OK)
        fail_msg("%s", error.message);
    return opened;
}

static psp_message_t reply_to(shard_fixture_t *f, uint64_t request)
{
    psp_message_t reply;
    fixture_wait(f, &reply, NULL);
    assert_true(reply.reply.request == request);
    assert_int_equal(reply.reply.error.code, PSC_OK);
    return reply;
}

static uint32_t u32_at(const uint8_t *bytes, size_t i)
{
    uint32_t value;
    memcpy(&value, bytes + i * sizeof value, sizeof value);
    return value;
}

static float float_at(const uint8_t *bytes, size_t i)
{
    float value;
    memcpy(&value, bytes + i * sizeof value, sizeof value);
    return value;
}

static psp_message_t push_row(shard_fixture_t *f, uint32_t worker, psp_push_t push, uint64_t id,
                              float value)
{
    const float row[DIM] = {value, value, value};
    push.table = push.table_epoch = 1;
    push.dim = DIM;
    push.n = 1;
    return reply_to(f, fixture_push(f, worker, NULL, push, &id, row));
}

static void rows_that_did_not_move_are_told_and_not_sent(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    test_random_t random = test_random_start();
    (void)start(&f, 0);
    float value[IDS] = {0};
    uint32_t version[IDS] = {0}, held[IDS] = {0};
    for (int round = 0; round < 200; round++) {
        const size_t hit = test_below(&random, IDS);
        const psp_push_t push = {.kind = PSP_PUSH_DELTA};
        (void)push_row(&f, (uint32_t)test_below(&random, 2), push, hit, 1);
        value[hit]++;
        version[hit]++;
        uint64_t ids[IDS];
        uint32_t told[IDS];
        const size_t n = 1 + test_below(&random, IDS);
        const size_t begin = test_below(&random, IDS);
        for (size_t i = 0; i < n; i++) {
            ids[i] = (begin + i) % IDS;
            told[i] = test_below(&random, 4) != 0 ? held[ids[i]] : 0;
        }
        const psp_pull_t pull = {.table = 1,
                                 .table_epoch = 1,
                                 .staleness = PSP_STALENESS_ASYNC,
                                 .want_versions = true,
                                 .n = n,
                                 .versions = (const uint8_t *)told};
        const psp_message_t reply = reply_to(&f, fixture_pull(&f, 0, NULL, pull, ids));
        const psp_pull_reply_t *r = &reply.u.pull_reply;
        assert_int_equal(r->n, n);
        size_t at = 0;
        for (size_t i = 0; i < n; i++) {
            const uint64_t id = ids[i];
            const uint8_t state = r->states != NULL ? r->states[i] : (uint8_t)PSP_ROW_PRESENT;
            assert_int_equal(u32_at(r->versions, i), version[id]);
            if (version[id] != 0 && told[i] == version[id]) {
                assert_int_equal(state, PSP_ROW_CURRENT);
                continue;
            }
            assert_int_equal(state, version[id] != 0 ? PSP_ROW_PRESENT : PSP_ROW_INITIAL);
            for (size_t c = 0; c < DIM; c++)
                assert_true(float_at(r->rows, at * DIM + c) == value[id]);
            at++;
            held[id] = version[id];
        }
        assert_int_equal(r->n_values, at);
    }
    assert_true(fixture_counter(&f, 0, "rows.pulled_current") > 200);
    fixture_close(&f, true);
}

static void a_push_brings_its_rows_back_when_asked(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    (void)start(&f, 0);
    for (uint32_t i = 1; i <= 5; i++) {
        const psp_push_t push = {
            .kind = PSP_PUSH_GRADIENT, .learning_rate = 0.5F, .want_rows = i % 2 == 1};
        const psp_message_t reply = push_row(&f, 0, push, 7, -2);
        const psp_push_reply_t *r = &reply.u.push_reply;
        assert_int_equal(r->n, i % 2);
        for (size_t k = 0; k < r->n; k++) {
            assert_int_equal(r->dim, DIM);
            assert_int_equal(u32_at(r->versions, 0), i);
            assert_true(float_at(r->rows, 0) == (float)i);
            assert_true(float_at(r->rows, DIM - 1) == (float)i);
        }
    }
    assert_int_equal(fixture_counter(&f, 0, "rows.pushed_returned"), 3);
    fixture_close(&f, true);
}

static void rows_come_back_in_the_format_that_the_push_asks_for(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    (void)start(&f, 0);
    const float third = 1.0F / 3;
    (void)push_row(&f, 0, (psp_push_t){.kind = PSP_PUSH_ASSIGN}, 7, third);
    for (uint32_t format = 0; format < PSP_FORMATS; format++) {
        const psp_row_format_t *coder = psp_row_format((psp_format_t)format);
        const psp_push_t push = {
            .kind = PSP_PUSH_DELTA, .want_rows = true, .reply_format = (psp_format_t)format};
        const psp_message_t reply = push_row(&f, 0, push, 7, 0);
        const psp_push_reply_t *r = &reply.u.push_reply;
        uint8_t coded[DIM * sizeof(float)];
        coder->encode(coded, (const float[DIM]){third, third, third}, DIM);
        assert_int_equal(r->n, 1);
        assert_int_equal(r->format, format);
        assert_memory_equal(r->rows, coded, psp_row_bytes((psp_format_t)format, DIM));
    }
    fixture_close(&f, true);
}

static void tables_that_grow_neither_confirm_nor_bring_back(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    (void)start(&f, 10);
    const psp_push_t push = {.kind = PSP_PUSH_DELTA, .want_rows = true};
    psp_message_t reply = push_row(&f, 0, push, 3, 1);
    assert_int_equal(reply.u.push_reply.n, 0);
    const uint64_t id = 3;
    const uint32_t held = 1;
    const psp_pull_t pull = {.table = 1,
                             .table_epoch = 1,
                             .staleness = PSP_STALENESS_ASYNC,
                             .want_versions = true,
                             .n = 1,
                             .versions = (const uint8_t *)&held};
    reply = reply_to(&f, fixture_pull(&f, 0, NULL, pull, &id));
    assert_int_equal(u32_at(reply.u.pull_reply.versions, 0), 1);
    assert_int_equal(reply.u.pull_reply.n_values, 1);
    fixture_close(&f, true);
}

static void replies_tell_the_least_clock_of_all_workers(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    (void)start(&f, 0);
    const psp_push_t push = {.kind = PSP_PUSH_DELTA};
    for (uint64_t clock = 1; clock < 6; clock++) {
        f.clock[0] = clock;
        psp_message_t message = {.kind = PSP_CLOCK};
        (void)reply_to(&f, fixture_send(&f, 0, &message));
        assert_true(push_row(&f, 0, push, 1, 1).reply.least_clock == clock - 1);
        f.clock[1] = clock;
        message = (psp_message_t){.kind = PSP_CLOCK};
        (void)reply_to(&f, fixture_send(&f, 1, &message));
        assert_true(push_row(&f, 1, push, 1, 1).reply.least_clock == clock);
    }
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_did_not_move_are_told_and_not_sent),
        cmocka_unit_test(a_push_brings_its_rows_back_when_asked),
        cmocka_unit_test(rows_come_back_in_the_format_that_the_push_asks_for),
        cmocka_unit_test(tables_that_grow_neither_confirm_nor_bring_back),
        cmocka_unit_test(replies_tell_the_least_clock_of_all_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
