/* Watch requests against a shard: what they wait for, what they are told, and what ends them. */
#include "ps/table/watch_log.h"
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include <string.h>

enum { DIM = 2 };

static const fixture_options_t guests = {
    .memory_bytes = 8 << 20, .n_servers = 1, .n_workers = 1, .n_guests = 3, .lease_us = 60000000};

static void start(shard_fixture_t *f)
{
    const psp_open_table_t options = {
        .name = "t", .dim = DIM, .init = "zeros", .optimizer = "sgd", .seed = 1};
    psp_open_table_reply_t opened;
    psc_error_t error = PSC_ERROR_INIT;
    fixture_open(f, &guests);
    ps_shard_set_time(f->shard, 1);
    for (uint32_t w = 0; w < 3; w++)
        fixture_hello(f, w);
    if (fixture_open_table(f, &options, &opened, &error) != PSC_OK)
        fail_msg("%s", error.message);
}

static void push(shard_fixture_t *f, const uint64_t *ids, size_t n, float value)
{
    float rows[8 * DIM];
    psp_message_t reply;
    for (size_t i = 0; i < n * DIM; i++)
        rows[i] = value;
    const psp_push_t delta = {
        .table = 1, .table_epoch = 1, .kind = PSP_PUSH_DELTA, .dim = DIM, .n = n};
    uint32_t worker;
    (void)fixture_push(f, 0, NULL, delta, ids, rows);
    do
        fixture_wait(f, &reply, &worker);
    while (reply.kind != PSP_PUSH_REPLY);
    assert_int_equal(reply.reply.error.code, PSC_OK);
}

/* By a guest, from where `last` stands; NULL: the first one. */
static void ask(shard_fixture_t *f, uint32_t guest, const psp_watch_reply_t *last, bool want_rows,
                uint32_t wait_ms)
{
    psp_message_t m = {
        .kind = PSP_WATCH,
        .u.watch = {.table = 1, .table_epoch = 1, .want_rows = want_rows, .wait_ms = wait_ms}};
    if (last != NULL) {
        m.u.watch.cursor_size = last->block.next_size;
        memcpy(m.u.watch.cursor, last->block.next, last->block.next_size);
    }
    (void)fixture_send(f, guest, &m);
}

/* The next answer, and what it says, ids [8] copied. */
static psp_watch_reply_t told(shard_fixture_t *f, uint64_t *ids)
{
    psp_message_t reply;
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.kind, PSP_WATCH_REPLY);
    assert_int_equal(reply.reply.error.code, PSC_OK);
    assert_true(reply.u.watch_reply.block.n <= 8);
    memcpy(ids, reply.u.watch_reply.block.ids, reply.u.watch_reply.block.n * sizeof *ids);
    return reply.u.watch_reply;
}

static bool is_answered(shard_fixture_t *f)
{
    psp_message_t reply;
    fixture_poll(f);
    return fixture_take(f, &reply, NULL);
}

static void who_watches_waits_for_news_and_holds_up_nothing(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    uint64_t ids[8];
    start(&f);
    const uint64_t early = 4, some[] = {9, 3, 9}, more = 5;
    push(&f, &early, 1, 1);
    ask(&f, 1, NULL, false, 0);
    psp_watch_reply_t last = told(&f, ids);
    assert_int_equal(last.block.n, 0);
    assert_false(last.lost);
    ask(&f, 1, &last, true, 100);
    assert_false(is_answered(&f));
    psp_message_t m = {.kind = PSP_STATS}; /* another request of the same session */
    (void)fixture_send(&f, 1, &m);
    psp_message_t reply;
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.kind, PSP_STATS_REPLY);

    const float rows[3][DIM] = {{1, 1}, {2, 2}, {1, 1}};
    const psp_push_t delta = {
        .table = 1, .table_epoch = 1, .kind = PSP_PUSH_DELTA, .dim = DIM, .n = 3};
    (void)fixture_push(&f, 0, NULL, delta, some, rows[0]);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.kind, PSP_PUSH_REPLY);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.kind, PSP_WATCH_REPLY);
    const psp_watch_reply_t *w = &reply.u.watch_reply;
    const float want[2][DIM] = {{2, 2}, {2, 2}};
    assert_int_equal(w->block.n, 2);
    assert_true(psp_id_at(w->block.ids, 0) == 3 && psp_id_at(w->block.ids, 1) == 9);
    assert_memory_equal(w->block.rows, want, sizeof want);
    last = *w;

    ask(&f, 1, &last, false, 100); /* nothing happens in time */
    assert_false(is_answered(&f));
    assert_true(ps_shard_next_deadline(f.shard) == 1 + 100000);
    ps_shard_set_time(f.shard, 1 + 100000);
    psp_watch_reply_t empty = told(&f, ids);
    assert_int_equal(empty.block.n, 0);
    assert_false(empty.lost);
    assert_null(empty.block.rows);
    assert_true(ps_shard_next_deadline(f.shard) == UINT64_MAX);
    push(&f, &more, 1, 1); /* while nobody asks */
    ask(&f, 1, &empty, false, 100);
    last = told(&f, ids);
    assert_int_equal(last.block.n, 1);
    assert_true(ids[0] == more);
    fixture_close(&f, true);
}

static void who_has_seen_enough_waits_no_longer(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    uint64_t ids[8];
    psp_message_t reply;
    start(&f);
    ask(&f, 1, NULL, false, 0);
    psp_watch_reply_t one = told(&f, ids);
    ask(&f, 2, NULL, false, 0);
    psp_watch_reply_t two = told(&f, ids);
    ask(&f, 1, &one, false, 5000);
    ask(&f, 2, &two, false, 5000);
    assert_false(is_answered(&f));
    psp_message_t end = {.kind = PSP_WATCH,
                         .u.watch = {.table = 1, .table_epoch = 1, .end = true, .wait_ms = 5000}};
    end.u.watch.cursor_size = one.block.next_size;
    memcpy(end.u.watch.cursor, one.block.next, one.block.next_size);
    (void)fixture_send(&f, 1, &end);
    for (int i = 0; i < 2; i++) { /* the time stands still */
        uint32_t worker;
        fixture_wait(&f, &reply, &worker);
        assert_int_equal(reply.kind, PSP_WATCH_REPLY);
        assert_int_equal(reply.reply.error.code, PSC_OK);
        assert_true(worker == 1 && reply.u.watch_reply.block.n == 0);
    }
    assert_false(is_answered(&f)); /* the other session goes on waiting */
    const uint64_t id = 6;
    push(&f, &id, 1, 1);
    assert_int_equal(told(&f, ids).block.n, 1);
    assert_true(ids[0] == id);
    fixture_close(&f, true);
}

static void who_comes_too_late_is_told(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    uint64_t ids[8];
    start(&f);
    ask(&f, 1, NULL, false, 0);
    psp_watch_reply_t first = told(&f, ids);
    for (uint64_t i = 0; i < PS_WATCH_LOG_IDS / 8 + 1; i++) {
        for (size_t c = 0; c < 8; c++)
            ids[c] = c;
        push(&f, ids, 8, 0);
    }
    ask(&f, 1, &first, false, 0);
    psp_watch_reply_t last = told(&f, ids);
    assert_true(last.lost);
    assert_int_equal(last.block.n, 0);
    const uint64_t id = 7;
    push(&f, &id, 1, 1);
    ask(&f, 1, &last, false, 0);
    last = told(&f, ids);
    assert_true(!last.lost && last.block.n == 1 && ids[0] == 7);
    /* Who has not asked for half a minute, too: the log is gone. */
    uint64_t now_us = 1;
    for (int i = 0; i < 40; i++) {
        ps_shard_set_time(f.shard, now_us += 1000001);
        fixture_poll(&f);
        psp_message_t m = {.kind = PSP_PREFETCH}, reply; /* a sign of life */
        (void)fixture_send(&f, 1, &m);
        fixture_wait(&f, &reply, NULL);
    }
    push(&f, &id, 1, 1);
    ask(&f, 1, &last, false, 0);
    assert_true(told(&f, ids).lost);
    fixture_close(&f, true);
}

/* The session may have gone on, at a server that has begun a log of its own. */
static void a_place_in_the_log_of_another_run_has_lost_rows(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    uint64_t ids[8];
    const uint64_t id = 7;
    for (size_t n_seen = 0; n_seen < 2; n_seen++) {
        start(&f);
        ask(&f, 1, NULL, false, 0);
        psp_watch_reply_t old = told(&f, ids);
        if (n_seen != 0) {
            push(&f, &id, 1, 1);
            ask(&f, 1, &old, false, 0);
            old = told(&f, ids);
            assert_int_equal(old.block.n, 1);
        }
        fixture_close(&f, true);
        start(&f);
        ask(&f, 2, NULL, false, 0);
        (void)told(&f, ids);
        push(&f, &id, 1, 1);
        push(&f, &id, 1, 1);
        ask(&f, 1, &old, false, 0);
        assert_true(told(&f, ids).lost);
        fixture_close(&f, true);
    }
}

static void requests_that_watch_end_with_their_session_and_their_shard(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    uint64_t ids[8];
    psp_message_t reply;
    start(&f);
    ask(&f, 1, NULL, false, 0);
    psp_watch_reply_t one = told(&f, ids);
    ask(&f, 2, NULL, false, 0);
    psp_watch_reply_t two = told(&f, ids);
    ask(&f, 1, &one, false, 5000);
    ask(&f, 2, &two, false, 5000);
    assert_false(is_answered(&f));
    psp_message_t m = {.kind = PSP_GOODBYE};
    (void)fixture_send(&f, 1, &m);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.kind, PSP_GOODBYE_REPLY);
    const uint64_t id = 1;
    push(&f, &id, 1, 1);
    bool gone = false, went_on = false;
    for (int i = 0; i < 2; i++) {
        uint32_t worker;
        if (!fixture_take(&f, &reply, &worker))
            fixture_wait(&f, &reply, &worker);
        gone = gone || reply.reply.error.code == PSC_PEER_GONE;
        went_on = went_on || reply.u.watch_reply.block.n == 1;
    }
    assert_true(gone && went_on);
    two = reply.u.watch_reply.block.n == 1 ? reply.u.watch_reply : two;
    ask(&f, 2, NULL, false, 0);
    two = told(&f, ids);
    ask(&f, 2, &two, false, 5000);
    psc_error_t why = PSC_ERROR_INIT;
    (void)psc_error_set(&why, PSC_INTERRUPTED, "it is over");
    ps_shard_end(f.shard, &why);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_INTERRUPTED);
    fixture_close(&f, true);
}

static void what_cannot_be_watched_is_refused(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    psp_message_t reply, m = {.kind = PSP_WATCH, .u.watch = {.table = 3, .table_epoch = 1}};
    start(&f);
    (void)fixture_send(&f, 1, &m);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_NOT_FOUND);
    m = (psp_message_t){.kind = PSP_WATCH,
                        .u.watch = {.table = 1, .table_epoch = 1, .cursor_size = 3}};
    (void)fixture_send(&f, 1, &m);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_INVALID_ARGUMENT);
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_watches_waits_for_news_and_holds_up_nothing),
        cmocka_unit_test(who_has_seen_enough_waits_no_longer),
        cmocka_unit_test(who_comes_too_late_is_told),
        cmocka_unit_test(a_place_in_the_log_of_another_run_has_lost_rows),
        cmocka_unit_test(requests_that_watch_end_with_their_session_and_their_shard),
        cmocka_unit_test(what_cannot_be_watched_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
