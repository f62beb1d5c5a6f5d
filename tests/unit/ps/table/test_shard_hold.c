/*
 * A shard on the way to a cut: what belongs behind it waits, and in its order what comes after;
 * all else goes on. Ends whatever happens then.
 */
#include "ps/table/shard_hold.h"

#include "ps/table/guests.h"
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include <string.h>

enum { DIM = 2 };

static const uint64_t ids[1] = {5};
static uint32_t table, epoch;

/* Two workers, and places for guests. */
static void open_fixture(shard_fixture_t *f)
{
    const fixture_options_t options = {
        .memory_bytes = UINT64_C(8) << 20, .n_servers = 1, .n_workers = 2, .n_guests = 2};
    psp_open_table_t opened = {.name = "rows", .dim = DIM, .init = "zeros", .optimizer = "sgd"};
    psp_open_table_reply_t reply;
    fixture_open(f, &options);
    for (uint32_t worker = 0; worker < 3; worker++)
        fixture_hello(f, worker);
    assert_int_equal(fixture_open_table(f, &opened, &reply, NULL), PSC_OK);
    table = reply.table;
    epoch = reply.table_epoch;
}

/* Adds 1 to the row. part: of the worker's, which tells that it has sent so many then. */
static void push(shard_fixture_t *f, uint32_t worker, uint64_t part, bool synchronous)
{
    static const float ones[DIM] = {1, 1};
    psp_request_header_t header = fixture_header(f, worker);
    const uint64_t parts[1] = {part};
    header.part = part;
    header.parts = parts;
    header.n_parts = part != 0 ? 1 : 0;
    (void)fixture_push(f, worker, &header,
                       (psp_push_t){.table = table,
                                    .table_epoch = epoch,
                                    .kind = PSP_PUSH_DELTA,
                                    .dim = DIM,
                                    .synchronous = synchronous,
                                    .n = 1},
                       ids, ones);
}

static void end_clock(shard_fixture_t *f, uint32_t worker)
{
    psp_message_t message = {.kind = PSP_CLOCK};
    f->clock[worker]++;
    (void)fixture_send(f, worker, &message);
}

/* The row as a worker reads it at once. */
static float read_row(shard_fixture_t *f, uint32_t worker)
{
    const psp_request_header_t header = fixture_header(f, worker);
    psp_message_t reply;
    uint32_t whose;
    float row[DIM];
    (void)fixture_pull(
        f, worker, &header,
        (psp_pull_t){
            .table = table, .table_epoch = epoch, .staleness = PSP_STALENESS_ASYNC, .n = 1},
        ids);
    fixture_wait(f, &reply, &whose);
    assert_int_equal(whose, worker);
    assert_int_equal(reply.kind, PSP_PULL_REPLY);
    memcpy(row, reply.u.pull_reply.rows, sizeof row);
    return row[0];
}

static void expect_answers(shard_fixture_t *f, size_t n)
{
    psp_message_t reply;
    uint32_t worker;
    for (int i = 0; i < 20; i++)
        fixture_poll(f);
    for (size_t i = 0; i < n; i++) {
        assert_true(fixture_take(f, &reply, &worker));
        assert_int_equal(reply.reply.error.code, PSC_OK);
    }
    assert_false(fixture_take(f, &reply, &worker));
}

static void what_is_behind_the_cut_waits_and_all_else_goes_on(void **state)
{
    (void)state;
    shard_fixture_t f;
    uint64_t clock;
    uint32_t n_missing;
    open_fixture(&f);
    push(&f, 0, 1, false);
    expect_answers(&f, 1);
    ps_shard_hold(f.shard, &clock);
    assert_int_equal(clock, 0);
    assert_true(ps_shard_hold_whole(f.shard, &n_missing));
    push(&f, 0, 2, false); /* and behind it the clock of its worker */
    end_clock(&f, 0);
    push(&f, 2, 0, false); /* of a guest that numbers nothing */
    expect_answers(&f, 0);
    assert_true(read_row(&f, 1) == 1);
    assert_true(ps_shard_hold_whole(f.shard, &n_missing)); /* as it was when it began */

    /* Another server knows that the second push of worker 0 belongs to the cut, and a third one. */
    const ps_call_part_t told = {.client = ps_calls_client(false, 0, 0), .part = 3};
    ps_shard_hold_reach(f.shard, &told, 1);
    expect_answers(&f, 2);
    assert_true(read_row(&f, 1) == 2);
    assert_false(ps_shard_hold_whole(f.shard, &n_missing));
    assert_int_equal(n_missing, 1);
    push(&f, 0, 3, false);
    push(&f, 0, 4, false);
    expect_answers(&f, 1);
    assert_true(ps_shard_hold_whole(f.shard, &n_missing));
    assert_true(read_row(&f, 1) == 3);

    ps_shard_hold_release(f.shard);
    expect_answers(&f, 2);
    assert_true(read_row(&f, 1) == 5);
    fixture_close(&f, true);
}

static void a_push_that_is_held_is_not_among_those_that_were_served(void **state)
{
    (void)state;
    shard_fixture_t f;
    uint64_t clock;
    open_fixture(&f);
    const uint64_t next = ps_guests_next(f.shard, 2);
    ps_shard_hold(f.shard, &clock);
    push(&f, 2, 0, false);
    push(&f, 2, 0, false);
    expect_answers(&f, 0);
    assert_int_equal(ps_guests_next(f.shard, 2), next); /* what a checkpoint has of the session */
    ps_shard_hold_release(f.shard);
    expect_answers(&f, 2);
    assert_int_equal(ps_guests_next(f.shard, 2), next + 2);
    fixture_close(&f, true);
}

/* An answer would be the guest's last word on its sequence, which its session has not had yet. */
static void at_an_end_in_order_a_push_that_is_held_is_for_the_next_server(void **state)
{
    (void)state;
    shard_fixture_t f;
    psp_message_t reply;
    uint64_t clock;
    uint32_t whose;
    const psc_error_t why = {.code = PSC_INTERRUPTED, .rank = -1, .message = "it ends"};
    open_fixture(&f);
    const uint64_t next = ps_guests_next(f.shard, 2);
    ps_shard_hold(f.shard, &clock);
    push(&f, 2, 0, false);
    push(&f, 0, 1, false);
    expect_answers(&f, 0);
    assert_int_equal(ps_guests_next(f.shard, 2), next);
    ps_shard_end_in_order(f.shard, &why);
    assert_true(fixture_take(&f, &reply, &whose));
    assert_int_equal(whose, 0); /* a worker's session does not go on */
    assert_int_equal(reply.reply.error.code, PSC_INTERRUPTED);
    assert_false(fixture_take(&f, &reply, &whose));
    f.failure.code = PSC_OK;
    fixture_close(&f, true);
}

static void clocks_are_applied_up_to_the_furthest(void **state)
{
    (void)state;
    shard_fixture_t f;
    uint64_t clock;
    uint32_t n_missing;
    open_fixture(&f);
    push(&f, 0, 0, true);
    expect_answers(&f, 1);
    ps_shard_hold(f.shard, &clock);
    assert_int_equal(clock, 0);
    ps_shard_hold_reach_clock(f.shard, 1); /* another server has applied it */
    end_clock(&f, 0);
    push(&f, 0, 0, true);
    expect_answers(&f, 1); /* its push waits for the clock */
    assert_false(ps_shard_hold_whole(f.shard, &n_missing));
    assert_int_equal(n_missing, 0);
    end_clock(&f, 1);
    expect_answers(&f, 2);
    assert_true(ps_shard_hold_whole(f.shard, &n_missing));
    assert_true(read_row(&f, 1) == 1);
    end_clock(&f, 0);
    end_clock(&f, 1);
    expect_answers(&f, 2);
    assert_true(read_row(&f, 1) == 1); /* the second one is held */
    ps_shard_hold_release(f.shard);
    expect_answers(&f, 0);
    assert_true(read_row(&f, 1) == 2);
    fixture_close(&f, true);
}

static void a_session_that_ends_holds_nobody_up(void **state)
{
    (void)state;
    shard_fixture_t f;
    uint64_t clock;
    uint32_t n_missing;
    psp_message_t goodbye = {.kind = PSP_GOODBYE};
    open_fixture(&f);
    ps_shard_hold(f.shard, &clock);
    push(&f, 2, 0, false);
    (void)fixture_send(&f, 2, &goodbye);
    expect_answers(&f, 0);
    assert_true(ps_shard_hold_whole(f.shard, &n_missing));
    ps_shard_hold_release(f.shard);
    expect_answers(&f, 2);
    assert_true(read_row(&f, 1) == 1);
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_behind_the_cut_waits_and_all_else_goes_on),
        cmocka_unit_test(a_push_that_is_held_is_not_among_those_that_were_served),
        cmocka_unit_test(at_an_end_in_order_a_push_that_is_held_is_for_the_next_server),
        cmocka_unit_test(clocks_are_applied_up_to_the_furthest),
        cmocka_unit_test(a_session_that_ends_holds_nobody_up),
    };
    return cmocka_run_group_tests_name("shard_hold", tests, NULL, NULL);
}
