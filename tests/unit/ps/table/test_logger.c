/*
 * Answers that wait for a log: those of changes, and a guest's, leave when it is written and in
 * their order; those that tell of nothing wait for nothing; a log that fails ends the shard, which
 * names it to all.
 */
#include "ps/table/logger.h"

#include "ps/table/shard_state.h"
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include <string.h>

enum { D = 4, G = 4, KEPT = 64 };

/* A log that a test writes to when it likes. */
typedef struct fake {
    ps_log_sink_t sink;
    uint64_t n, written;
    ps_log_kind_t kinds[KEPT];
    ps_log_action_t actions[KEPT];
    uint64_t sequences[KEPT];
    psc_error_t fault;
} fake_t;

static void submit(void *context, ps_log_entry_t *entry)
{
    fake_t *fake = context;
    assert_true(fake->n < KEPT);
    assert_int_equal(entry->position, fake->n + 1);
    fake->kinds[fake->n] = entry->kind;
    fake->actions[fake->n] = entry->action;
    fake->sequences[fake->n] = entry->kind == PS_LOG_SESSION ? entry->small.sequence : 0;
    fake->n++;
}

static uint64_t written(void *context)
{
    return ((const fake_t *)context)->written;
}

static psc_status_t fault(void *context, psc_error_t *error)
{
    const fake_t *fake = context;
    if (fake->fault.code != PSC_OK)
        *error = fake->fault;
    return fake->fault.code;
}

static void count(void *context, uint64_t *bytes_out, uint64_t *groups_out)
{
    *bytes_out = *groups_out = ((const fake_t *)context)->written;
}

/* A table, and a log from then on. */
static void open_with(shard_fixture_t *f, fake_t *fake, uint32_t n_workers)
{
    const fixture_options_t options = {.memory_bytes = (uint64_t)64 << 20,
                                       .n_servers = 1,
                                       .n_workers = n_workers,
                                       .n_guests = G,
                                       .lease_us = 60000000};
    const psp_open_table_t table = {
        .name = "t", .dim = D, .init = "zeros", .optimizer = "sgd", .seed = 1};
    *fake = (fake_t){.fault = PSC_ERROR_INIT};
    fake->sink = (ps_log_sink_t){.context = fake,
                                 .segment = 1,
                                 .records = true,
                                 .submit = submit,
                                 .written = written,
                                 .fault = fault,
                                 .count = count};
    fixture_open(f, &options);
    for (uint32_t i = 0; i < (n_workers != 0 ? n_workers : 1); i++)
        fixture_hello(f, i);
    assert_int_equal(fixture_open_table(f, &table, NULL, NULL), PSC_OK);
    ps_logger_start(f->shard, &fake->sink);
}

static uint64_t push(shard_fixture_t *f, uint32_t peer, const psp_request_header_t *header)
{
    const float row[D] = {1, 1, 1, 1};
    const uint64_t id = 7;
    const psp_push_t add = {.table = 1, .table_epoch = 1, .kind = PSP_PUSH_DELTA, .dim = D, .n = 1};
    return fixture_push(f, peer, header, add, &id, row);
}

static uint64_t pull(shard_fixture_t *f, uint32_t peer)
{
    const uint64_t id = 7;
    const psp_pull_t all = {.table = 1, .table_epoch = 1, .staleness = PSP_STALENESS_ASYNC, .n = 1};
    return fixture_pull(f, peer, NULL, all, &id);
}

static void nothing_comes(shard_fixture_t *f)
{
    psp_message_t reply;
    for (int i = 0; i < 3; i++)
        fixture_poll(f);
    assert_false(fixture_take(f, &reply, NULL));
}

static void next_answers(shard_fixture_t *f, uint64_t request, psc_status_t code)
{
    psp_message_t reply;
    assert_true(fixture_take(f, &reply, NULL));
    assert_int_equal(reply.reply.request, request);
    assert_int_equal(reply.reply.error.code, code);
}

static void a_guest_is_answered_when_it_is_written(void **state)
{
    (void)state;
    shard_fixture_t f;
    fake_t fake;
    open_with(&f, &fake, 0);
    const uint64_t first = push(&f, 0, NULL), second = pull(&f, 0), third = push(&f, 0, NULL);
    assert_int_equal(fake.n, 3);
    assert_int_equal(fake.kinds[0], PS_LOG_PUSH);
    assert_int_equal(fake.kinds[1], PS_LOG_SESSION); /* that the pull was answered */
    assert_int_equal(fake.sequences[1], f.sequence[0] - 1);
    assert_int_equal(fake.kinds[2], PS_LOG_PUSH);
    nothing_comes(&f);
    assert_int_equal(ps_shard_waiting(f.shard, UINT32_MAX), 3);
    fake.written = 1;
    fixture_poll(&f);
    next_answers(&f, first, PSC_OK);
    nothing_comes(&f);
    fake.written = 3;
    fixture_poll(&f);
    next_answers(&f, second, PSC_OK);
    next_answers(&f, third, PSC_OK);
    assert_int_equal(ps_shard_waiting(f.shard, UINT32_MAX), 0);
    fixture_close(&f, true);
}

static void what_comes_again_waits_too(void **state)
{
    (void)state;
    shard_fixture_t f;
    fake_t fake;
    open_with(&f, &fake, 0);
    psp_request_header_t header = fixture_header(&f, 0);
    const uint64_t first = push(&f, 0, &header);
    nothing_comes(&f);
    header.request = f.next_request++;
    (void)push(&f, 0, &header);
    nothing_comes(&f); /* the answer is known, and nobody may have it */
    fake.written = fake.n;
    fixture_poll(&f);
    next_answers(&f, first, PSC_OK);
    next_answers(&f, first, PSC_OK); /* what was kept */
    nothing_comes(&f);
    fixture_close(&f, true);
}

static void sessions_and_refusals_are_logged(void **state)
{
    (void)state;
    shard_fixture_t f;
    fake_t fake;
    psp_message_t hello = {.kind = PSP_HELLO,
                           .request = {.protocol = PSP_PROTOCOL_VERSION, .request = 900}};
    psp_message_t goodbye = {.kind = PSP_GOODBYE}, clock = {.kind = PSP_CLOCK};
    open_with(&f, &fake, 0);
    (void)fixture_send(&f, 1, &hello);
    assert_int_equal(fake.n, 1);
    assert_int_equal(fake.kinds[0], PS_LOG_SESSION);
    nothing_comes(&f);
    f.clock[0] = 3;
    (void)fixture_send(&f, 0, &clock);
    assert_int_equal(fake.n, 3);
    assert_int_equal(fake.kinds[1], PS_LOG_TIME);
    assert_int_equal(fake.kinds[2], PS_LOG_SESSION);
    const psp_push_t wrong = {.table = 9, .table_epoch = 1, .dim = D};
    (void)fixture_push(&f, 0, NULL, wrong, NULL, NULL);
    assert_int_equal(fake.n, 4);
    assert_int_equal(fake.kinds[3], PS_LOG_SESSION);
    (void)fixture_send(&f, 0, &goodbye);
    assert_int_equal(fake.n, 5);
    assert_int_equal(fake.kinds[4], PS_LOG_END);
    nothing_comes(&f);
    fake.written = fake.n;
    fixture_poll(&f);
    psp_message_t reply;
    for (size_t i = 0; i < 4; i++)
        assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.kind, PSP_GOODBYE_REPLY);
    nothing_comes(&f);
    fixture_close(&f, true);
}

static void a_workers_pull_waits_for_nothing(void **state)
{
    (void)state;
    shard_fixture_t f;
    fake_t fake;
    psp_message_t clock = {.kind = PSP_CLOCK};
    open_with(&f, &fake, 1);
    const uint64_t first = push(&f, 0, NULL), second = pull(&f, 0);
    f.clock[0] = 1;
    const uint64_t third = fixture_send(&f, 0, &clock);
    next_answers(&f, second, PSC_OK);
    next_answers(&f, third, PSC_OK);
    nothing_comes(&f);
    psp_message_t goodbye = {.kind = PSP_GOODBYE};
    const uint64_t last = fixture_send(&f, 0, &goodbye);
    next_answers(&f, last, PSC_OK);
    assert_false(ps_shard_finished(f.shard)); /* an answer has not left */
    fake.written = fake.n;
    fixture_poll(&f);
    next_answers(&f, first, PSC_OK);
    assert_true(ps_shard_finished(f.shard));
    fixture_close(&f, true);
}

static void a_log_that_fails_ends_the_shard(void **state)
{
    (void)state;
    shard_fixture_t f;
    fake_t fake;
    open_with(&f, &fake, 0);
    const uint64_t first = push(&f, 0, NULL), second = push(&f, 0, NULL);
    fake.written = 1;
    (void)psc_error_set(&fake.fault, PSC_DISK_FULL, "cannot write the log of that name");
    fixture_poll(&f);
    assert_int_equal(f.failure.code, PSC_DISK_FULL);
    next_answers(&f, first, PSC_OK); /* that is written */
    psp_message_t reply;
    assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.reply.request, second);
    assert_int_equal(reply.reply.error.code, PSC_DISK_FULL);
    assert_non_null(strstr(reply.reply.error.message, "that name"));
    next_answers(&f, push(&f, 0, NULL), PSC_DISK_FULL);
    fixture_close(&f, true);
}

static void at_an_end_in_order_what_waits_for_the_log_is_not_refused(void **state)
{
    (void)state;
    shard_fixture_t f;
    fake_t fake;
    const psc_error_t why = {.code = PSC_INTERRUPTED, .rank = -1, .message = "it ends"};
    open_with(&f, &fake, 0);
    (void)push(&f, 0, NULL); /* counts, and is acknowledged when it comes again */
    nothing_comes(&f);
    ps_shard_end_in_order(f.shard, &why);
    psp_message_t reply;
    assert_false(fixture_take(&f, &reply, NULL));
    assert_int_equal(ps_shard_waiting(f.shard, UINT32_MAX), 0);
    f.failure.code = PSC_OK;
    fixture_close(&f, true);
}

static void without_records_nothing_is_logged(void **state)
{
    (void)state;
    shard_fixture_t f;
    fake_t fake;
    open_with(&f, &fake, 0);
    fake.sink.records = false;
    ps_logger_start(f.shard, &fake.sink);
    next_answers(&f, push(&f, 0, NULL), PSC_OK);
    assert_int_equal(fake.n, 0);
    ps_logger_cut(f.shard);
    assert_int_equal(fake.n, 1);
    assert_int_equal(fake.actions[0], PS_LOG_CUT);
    ps_logger_commit(f.shard);
    assert_int_equal(fake.n, 2);
    assert_int_equal(fake.actions[1], PS_LOG_FORGET);
    assert_int_equal(f.shard->logger.segment, 2);
    fixture_close(&f, true);
}

/* A checkpoint that was begun in vain may have had the name of another one, which is there. */
static void what_was_not_saved_lets_nothing_go(void **state)
{
    (void)state;
    shard_fixture_t f;
    fake_t fake;
    open_with(&f, &fake, 0);
    ps_logger_cut(f.shard);
    ps_logger_cut(f.shard);
    assert_int_equal(fake.n, 2);
    assert_int_equal(fake.actions[1], PS_LOG_CUT);
    f.shard->saver.part_bytes = 1; /* of the second */
    ps_logger_cut(f.shard);
    assert_int_equal(fake.n, 4);
    assert_int_equal(fake.actions[2], PS_LOG_FORGET);
    assert_int_equal(fake.actions[3], PS_LOG_CUT);
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guest_is_answered_when_it_is_written),
        cmocka_unit_test(what_comes_again_waits_too),
        cmocka_unit_test(sessions_and_refusals_are_logged),
        cmocka_unit_test(a_workers_pull_waits_for_nothing),
        cmocka_unit_test(a_log_that_fails_ends_the_shard),
        cmocka_unit_test(at_an_end_in_order_what_waits_for_the_log_is_not_refused),
        cmocka_unit_test(without_records_nothing_is_logged),
        cmocka_unit_test(what_was_not_saved_lets_nothing_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
