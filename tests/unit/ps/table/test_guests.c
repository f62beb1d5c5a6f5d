/*
 * Guests of a shard: sessions that come and go, whose requests overtake each other and come again.
 */
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include "common/alloc.h"
#include "ps/table/guests.h"
#include "ps/table/shard_state.h"
#include "tests/support/test_seed.h"

#include <string.h>

enum { D = 4, G = 4 }; /* places for guests */

#define SECOND UINT64_C(1000000)

static void open_with(shard_fixture_t *f, uint32_t n_workers)
{
    const fixture_options_t options = {.memory_bytes = (uint64_t)64 << 20,
                                       .n_servers = 1,
                                       .n_workers = n_workers,
                                       .n_guests = G,
                                       .lease_us = 60 * SECOND};
    fixture_open(f, &options);
    ps_shard_set_time(f->shard, SECOND);
    for (uint32_t i = 0; i < (n_workers != 0 ? n_workers : 1); i++)
        fixture_hello(f, i);
    const psp_open_table_t table = {
        .name = "t", .dim = D, .init = "zeros", .optimizer = "sgd", .seed = 1};
    assert_int_equal(fixture_open_table(f, &table, NULL, NULL), PSC_OK);
}

/* A header with a sequence of one's own choice; the fixture's own ones go on as before. */
static psp_request_header_t header_of(shard_fixture_t *f, uint32_t guest, uint64_t sequence)
{
    psp_request_header_t header = fixture_header(f, guest);
    f->sequence[guest]--;
    header.sequence = sequence;
    return header;
}

/* Adds value to all of row id, with a sequence of one's own choice. */
static void push(shard_fixture_t *f, uint32_t guest, uint64_t sequence, uint64_t lowest,
                 uint64_t id, float value)
{
    const float row[D] = {value, value, value, value};
    psp_request_header_t header = header_of(f, guest, sequence);
    header.lowest_unacked = lowest;
    const psp_push_t add = {.table = 1, .table_epoch = 1, .kind = PSP_PUSH_DELTA, .dim = D, .n = 1};
    (void)fixture_push(f, guest, &header, add, &id, row);
}

static void ask(shard_fixture_t *f, uint32_t guest, uint64_t sequence, uint64_t id)
{
    psp_request_header_t header = header_of(f, guest, sequence);
    header.clock = 1000; /* which no worker has reached */
    const psp_pull_t pull = {.table = 1, .table_epoch = 1, .staleness = 0, .n = 1};
    (void)fixture_pull(f, guest, &header, pull, &id);
}

static float value_of(const psp_message_t *reply)
{
    float value;
    assert_int_equal(reply->kind, PSP_PULL_REPLY);
    assert_int_equal(reply->reply.error.code, PSC_OK);
    memcpy(&value, reply->u.pull_reply.rows, sizeof value);
    return value;
}

/* What the row is now, by a request outside the order. */
static float look(shard_fixture_t *f, uint32_t guest, uint64_t id)
{
    psp_message_t reply;
    ask(f, guest, 0, id);
    fixture_wait(f, &reply, NULL);
    return value_of(&reply);
}

static psc_status_t status_of_next(shard_fixture_t *f, uintptr_t call)
{
    psp_message_t reply;
    assert_true(fixture_take(f, &reply, NULL));
    assert_ptr_equal(f->taken->call, (void *)call);
    return reply.reply.error.code;
}

static void nothing_comes(shard_fixture_t *f)
{
    psp_message_t reply;
    assert_false(fixture_take(f, &reply, NULL));
}

static void a_guest_waits_for_no_worker_and_no_worker_for_it(void **state)
{
    (void)state;
    shard_fixture_t f;
    psp_message_t reply, clock = {.kind = PSP_CLOCK}, barrier = {.kind = PSP_BARRIER};
    open_with(&f, 2);
    fixture_hello(&f, 2);
    assert_true(look(&f, 2, 7) == 0); /* of clock 1000 */
    (void)fixture_send(&f, 2, &barrier);
    assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.reply.error.code, PSC_OK);
    f.clock[2] = 5;
    (void)fixture_send(&f, 2, &clock);
    assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.u.clock_reply.min_clock, 5);
    assert_int_equal(reply.reply.least_clock, 0); /* of the workers */
    /* It ends badly, which is nobody else's matter. */
    psp_message_t goodbye = {.kind = PSP_GOODBYE, .u.goodbye.status = PSC_INTERNAL};
    (void)fixture_send(&f, 2, &goodbye);
    assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.reply.error.code, PSC_OK);
    assert_int_equal(ps_shard_worst_status(f.shard), 0);
    assert_int_equal(ps_shard_departed(f.shard), 0);
    for (uint32_t worker = 0; worker < 2; worker++) {
        psp_message_t end = {.kind = PSP_GOODBYE};
        assert_false(ps_shard_finished(f.shard));
        (void)fixture_send(&f, worker, &end);
        assert_true(fixture_take(&f, &reply, NULL));
    }
    assert_true(ps_shard_finished(f.shard));
    fixture_close(&f, true);
}

static void what_comes_early_waits_for_what_goes_first(void **state)
{
    (void)state;
    shard_fixture_t f;
    psp_message_t reply;
    open_with(&f, 0);
    fixture_hello(&f, 1);
    push(&f, 1, 4, 1, 7, 8); /* calls a, b, c */
    ask(&f, 1, 3, 7);
    push(&f, 1, 2, 1, 7, 2);
    const uintptr_t last = f.next_call - 1;
    nothing_comes(&f);
    assert_true(look(&f, 0, 7) == 0);
    push(&f, 1, 1, 1, 7, 1);
    assert_int_equal(status_of_next(&f, last + 2), PSC_OK); /* behind look's */
    assert_int_equal(status_of_next(&f, last), PSC_OK);
    assert_true(fixture_take(&f, &reply, NULL));
    assert_true(value_of(&reply) == 3); /* not yet the push behind it */
    assert_int_equal(status_of_next(&f, last - 2), PSC_OK);
    assert_true(look(&f, 0, 7) == 11);
    fixture_close(&f, true);
}

static void what_comes_again_is_answered_alike_and_not_done_again(void **state)
{
    (void)state;
    shard_fixture_t f;
    psp_message_t reply;
    open_with(&f, 0);
    fixture_hello(&f, 1);
    push(&f, 1, 1, 1, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    ask(&f, 1, 2, 7);
    assert_true(fixture_take(&f, &reply, NULL));
    assert_true(value_of(&reply) == 1);
    push(&f, 1, 3, 1, 7, 4);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    push(&f, 1, 3, 1, 7, 4);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    push(&f, 1, 1, 1, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    ask(&f, 1, 2, 7); /* as it was then */
    assert_true(fixture_take(&f, &reply, NULL));
    assert_ptr_equal(f.taken->call, (void *)(f.next_call - 1));
    assert_true(value_of(&reply) == 1);
    assert_true(look(&f, 0, 7) == 5);
    /* Once the guest has said that it has the answers, a push is known all the same. */
    push(&f, 1, 4, 4, 7, 16);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    push(&f, 1, 1, 4, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    assert_true(look(&f, 0, 7) == 21);
    fixture_close(&f, true);
}

/* A call that was late, beside the one that was made in its place: the guest has the answer. */
static void what_comes_again_behind_its_answer_is_not_done_again(void **state)
{
    (void)state;
    shard_fixture_t f;
    psp_message_t reply;
    open_with(&f, 0);
    fixture_hello(&f, 1);
    psp_message_t table = {.kind = PSP_OPEN_TABLE,
                           .request = header_of(&f, 1, 1),
                           .u.open_table = {.name = "late", .dim = D, .optimizer = "sgd"}};
    (void)snprintf(table.u.open_table.init, sizeof table.u.open_table.init, "zeros");
    (void)fixture_send(&f, 1, &table);
    assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.reply.error.code, PSC_OK);
    (void)fixture_send(&f, 1, &table); /* its answer may be lost */
    assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.reply.error.code, PSC_OK);
    push(&f, 1, 2, 2, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    (void)fixture_send(&f, 1, &table);
    assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.reply.error.code, PSC_BUSY);
    assert_non_null(strstr(reply.reply.error.message, "its answer was heard"));
    fixture_close(&f, true);
}

static void a_refused_push_stays_refused(void **state)
{
    (void)state;
    shard_fixture_t f;
    const uint64_t id = 7;
    const float row[D + 1] = {0};
    open_with(&f, 0);
    fixture_hello(&f, 1);
    for (int time = 0; time < 2; time++) {
        psp_request_header_t header = header_of(&f, 1, 1);
        const psp_push_t wide = {
            .table = 1, .table_epoch = 1, .kind = PSP_PUSH_DELTA, .dim = D + 1, .n = 1};
        (void)fixture_push(&f, 1, &header, wide, &id, row);
        assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_MISMATCH);
        push(&f, 1, 2, 1, 7, 1);
        assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    }
    assert_true(look(&f, 0, 7) == 1);
    fixture_close(&f, true);
}

static void a_request_that_waits_goes_to_the_call_that_came_last(void **state)
{
    (void)state;
    shard_fixture_t f;
    open_with(&f, 0);
    fixture_hello(&f, 1);
    push(&f, 1, 2, 1, 7, 2);
    const uintptr_t first = f.next_call - 1;
    push(&f, 1, 2, 1, 7, 2);
    const uintptr_t second = f.next_call - 1;
    assert_int_equal(status_of_next(&f, first), PSC_BUSY);
    push(&f, 1, 1, 1, 7, 1);
    assert_int_equal(status_of_next(&f, second + 1), PSC_OK);
    assert_int_equal(status_of_next(&f, second), PSC_OK);
    assert_true(look(&f, 0, 7) == 3);
    fixture_close(&f, true);
}

static void who_says_nothing_for_the_lease_is_gone(void **state)
{
    (void)state;
    shard_fixture_t f;
    psp_message_t life = {.kind = PSP_PREFETCH};
    open_with(&f, 0);
    fixture_hello(&f, 1);
    ps_shard_set_time(f.shard, 40 * SECOND);
    fixture_poll(&f);
    (void)fixture_send(&f, 0, &life);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    ps_shard_set_time(f.shard, 70 * SECOND);
    fixture_poll(&f);
    push(&f, 1, 1, 1, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_PEER_GONE);
    assert_true(look(&f, 0, 7) == 0);
    assert_int_equal(fixture_counter(&f, 0, "guests.lapsed"), 1);
    fixture_close(&f, true);
}

/* Its end would be news behind the last checkpoint. */
static void whom_a_closed_door_keeps_silent_does_not_lapse(void **state)
{
    (void)state;
    shard_fixture_t f;
    open_with(&f, 0);
    fixture_hello(&f, 1);
    ps_shard_stop_hearing(f.shard);
    ps_shard_set_time(f.shard, 70 * SECOND);
    fixture_poll(&f);
    push(&f, 1, 1, 1, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    assert_int_equal(fixture_counter(&f, 0, "guests.lapsed"), 0);
    fixture_close(&f, true);
}

static void a_gap_that_is_not_filled_is_told(void **state)
{
    (void)state;
    shard_fixture_t f;
    open_with(&f, 0);
    fixture_hello(&f, 1);
    push(&f, 1, 2, 1, 7, 2);
    const uintptr_t early = f.next_call - 1;
    ps_shard_set_time(f.shard, 2 * SECOND);
    fixture_poll(&f);
    nothing_comes(&f);
    ps_shard_set_time(f.shard, SECOND + PS_GUESTS_GAP_US); /* the guest is still there */
    push(&f, 1, 3, 1, 7, 4);
    nothing_comes(&f);
    ps_shard_set_time(f.shard, 2 * SECOND + PS_GUESTS_GAP_US);
    fixture_poll(&f);
    assert_int_equal(status_of_next(&f, early), PSC_TIMEOUT);
    assert_int_equal(status_of_next(&f, early + 1), PSC_TIMEOUT);
    /* Nothing is lost: they come again. */
    push(&f, 1, 1, 1, 7, 1);
    push(&f, 1, 2, 1, 7, 2);
    assert_int_equal(status_of_next(&f, early + 2), PSC_OK);
    assert_int_equal(status_of_next(&f, early + 3), PSC_OK);
    fixture_hello(&f, 0); /* whose lease is over by now */
    f.sequence[0] = 0;
    assert_true(look(&f, 0, 7) == 3);
    fixture_close(&f, true);
}

/*
 * A session of a checkpoint, or of a server that failed: its guest has an answer that this one
 * knows nothing of, and what is under way was made before that came. A sign of life says so, and
 * all that waits is told at once, not after the time for gaps.
 */
static void a_gap_that_will_not_be_filled_is_told_by_a_sign_of_life(void **state)
{
    (void)state;
    for (uint64_t answered = 5; answered <= 6; answered++) {
        shard_fixture_t f;
        open_with(&f, 0);
        fixture_hello(&f, 1);
        const ps_session_t saved = f.shard->sessions.all[1];
        ps_guests_end(f.shard, 1);
        assert_int_equal(ps_guests_revive(f.shard, &saved, 5, (ps_call_part_t){0}, NULL), PSC_OK);
        push(&f, 1, 6, 4, 7, 2);
        const uintptr_t waits = f.next_call - 1;
        nothing_comes(&f);
        psp_message_t sign = {.kind = PSP_PREFETCH, .request = header_of(&f, 1, 0)};
        sign.request.lowest_unacked = answered;
        (void)fixture_send(&f, 1, &sign);
        if (answered == 5) { /* that may still come */
            assert_int_equal(status_of_next(&f, waits + 1), PSC_OK);
            push(&f, 1, 5, 4, 7, 1);
            assert_int_equal(status_of_next(&f, waits + 2), PSC_OK);
            assert_int_equal(status_of_next(&f, waits), PSC_OK);
            assert_true(look(&f, 0, 7) == 3);
        } else {
            assert_int_equal(status_of_next(&f, waits), PSC_PEER_GONE);
            assert_int_equal(status_of_next(&f, waits + 1), PSC_PEER_GONE);
            assert_true(look(&f, 0, 7) == 0);
        }
        fixture_close(&f, true);
    }
}

static void there_are_as_many_places_as_were_said_and_they_are_used_again(void **state)
{
    (void)state;
    shard_fixture_t f;
    psp_message_t reply,
        hello = {.kind = PSP_HELLO, .request = {.protocol = PSP_PROTOCOL_VERSION, .request = 1}};
    open_with(&f, 1);
    uint64_t gone = 0;
    for (unsigned round = 0; round < 50; round++) {
        for (uint32_t i = 1; i <= G; i++) {
            fixture_hello(&f, i);
            f.sequence[i] = 0;
            assert_true(f.session[i] != gone);
            push(&f, i, ++f.sequence[i], 1, 7, 1); /* Goodbye is the second */
            assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
        }
        (void)fixture_send(&f, G + 1, &hello);
        assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_BUSY);
        for (uint32_t i = 1; i <= G; i++) {
            psp_message_t goodbye = {.kind = PSP_GOODBYE};
            uint32_t who = 1 + (i + round) % G;
            (void)fixture_send(&f, who, &goodbye);
            assert_true(fixture_take(&f, &reply, NULL));
            assert_int_equal(reply.reply.error.code, PSC_OK);
            push(&f, who, 3, 1, 7, 1);
            assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_PEER_GONE);
        }
        gone = f.session[1];
    }
    hello.u.hello = (psp_hello_t){.worker = 0, .n_workers = 1};
    (void)fixture_send(&f, 1, &hello);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_PROTOCOL);
    assert_int_equal(fixture_counter(&f, 0, "guests"), 50 * G);
    fixture_close(&f, true);
}

static void too_many_requests_are_refused_and_none_is_lost(void **state)
{
    (void)state;
    shard_fixture_t f;
    open_with(&f, 0);
    fixture_hello(&f, 1);
    for (uint64_t s = 2; s < 2 + PS_GUEST_REQUESTS; s++)
        push(&f, 1, s, 1, 7, 1);
    nothing_comes(&f);
    push(&f, 1, 2 + PS_GUEST_REQUESTS, 1, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_BUSY);
    push(&f, 1, 1, 1, 7, 1);
    for (uint64_t i = 0; i <= PS_GUEST_REQUESTS; i++) {
        psp_message_t reply;
        assert_true(fixture_take(&f, &reply, NULL));
        assert_int_equal(reply.reply.error.code, PSC_OK);
    }
    assert_true(look(&f, 0, 7) == 1 + (float)PS_GUEST_REQUESTS);
    fixture_close(&f, true);
}

/* Against a plain model: any order of arrival, anything again, gives what order gives. */
static void any_order_of_arrival_gives_the_same_rows(void **state)
{
    (void)state;
    enum { N = 300, WINDOW = 20, BACK = 10 };
    shard_fixture_t f;
    test_random_t random = test_random_start();
    open_with(&f, 0);
    fixture_hello(&f, 1);
    float expected[3] = {0};
    bool answered[N + 1] = {false};
    uint64_t lowest = 1;
    for (uint64_t s = 1; s <= N; s++)
        expected[s % 3] = (float)s; /* the last one in order counts */
    while (lowest <= N) {
        uint64_t s = lowest + test_below(&random, WINDOW), id;
        if (test_below(&random, 4) == 0 && lowest > BACK) /* an old one, kept or not */
            s = lowest - 1 - test_below(&random, BACK);
        if (s > N)
            continue;
        id = s % 3;
        const float row[D] = {(float)s, 0, 0, 0};
        psp_request_header_t header = header_of(&f, 1, s);
        header.lowest_unacked = lowest > BACK / 2 ? lowest - BACK / 2 : 1;
        header.request = s;
        const psp_push_t assign = {
            .table = 1, .table_epoch = 1, .kind = PSP_PUSH_ASSIGN, .dim = D, .n = 1};
        (void)fixture_push(&f, 1, &header, assign, &id, row);
        psp_message_t reply;
        while (fixture_take(&f, &reply, NULL)) {
            if (reply.reply.error.code == PSC_OK)
                answered[reply.reply.request] = true;
            else
                assert_int_equal(reply.reply.error.code, PSC_BUSY);
        }
        while (lowest <= N && answered[lowest])
            lowest++;
    }
    for (uint64_t id = 0; id < 3; id++)
        assert_true(look(&f, 0, id) == expected[id]);
    assert_true(fixture_counter(&f, 0, "guests.requests_early") != 0);
    assert_true(fixture_counter(&f, 0, "guests.requests_again") != 0);
    fixture_close(&f, true);
}

/* Its guest lost it with the servers before, or says so. */
static void a_session_whose_place_another_takes_ends_and_tells_what_counts(void **state)
{
    (void)state;
    shard_fixture_t f;
    psp_message_t reply;
    ps_guest_moved_t *moved = psc_alloc_array(2, sizeof *moved);
    assert_non_null(moved);
    open_with(&f, 0);
    moved[0] = (ps_guest_moved_t){.id = 999, .server = 3, .n_servers = 4, .push_sequence = 17};
    moved[1] = (ps_guest_moved_t){.id = 998, .server = 0, .n_servers = 4, .push_sequence = 0};
    ps_guests_set_moved(f.shard, moved, 2);
    fixture_hello(&f, 1);
    push(&f, 1, 1, 1, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    push(&f, 1, 2, 1, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    push(&f, 1, 4, 1, 7, 1); /* waits for 3, which never comes */
    const uintptr_t waits = f.next_call - 1;
    nothing_comes(&f);

    const uint64_t former[] = {999, f.session[1], 12345, 998, 0};
    psp_message_t hello = {
        .kind = PSP_HELLO,
        .request = {.protocol = PSP_PROTOCOL_VERSION, .request = 70},
        .u.hello = {.n_former = sizeof former / sizeof former[0], .former = former}};
    (void)fixture_send(&f, 2, &hello);
    assert_int_equal(status_of_next(&f, waits), PSC_PEER_GONE);
    assert_true(fixture_take(&f, &reply, NULL));
    const uint64_t wanted[] = {18, 3, 0, 1, 0};
    assert_int_equal(reply.reply.error.code, PSC_OK);
    assert_int_equal(reply.u.hello_reply.n_counted, sizeof wanted / sizeof wanted[0]);
    assert_memory_equal(reply.u.hello_reply.counted, wanted, sizeof wanted);
    push(&f, 1, 3, 1, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_PEER_GONE);
    assert_true(look(&f, 0, 7) == 2);

    f.session[1] = 999; /* of servers that were others */
    push(&f, 1, 5, 1, 7, 1);
    assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.reply.error.code, PSC_PEER_GONE);
    assert_non_null(strstr(reply.reply.error.message, "of server 3 of 4, and now there are 1"));
    assert_non_null(strstr(reply.reply.error.message, "up to sequence 17 count"));
    fixture_close(&f, true);
}

/* In a session that began with a seal a request without one was damaged where that was. */
static void who_began_with_a_seal_is_heard_with_seals_alone(void **state)
{
    (void)state;
    shard_fixture_t f;
    psp_message_t reply;
    open_with(&f, 0);
    f.sealed = true;
    fixture_hello(&f, 1);
    f.sealed = false;
    push(&f, 1, 1, 1, 7, 1);
    assert_true(fixture_take(&f, &reply, NULL));
    assert_int_equal(reply.reply.error.code, PSC_CORRUPT);
    assert_non_null(strstr(reply.reply.error.message, "without its checksum"));
    assert_non_null(strstr(reply.reply.error.message, "a push of"));
    assert_true(look(&f, 0, 7) == 0);
    f.sealed = true;
    push(&f, 1, 1, 1, 7, 1); /* the same, once more */
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_OK);
    assert_true(look(&f, 1, 7) == 1);
    fixture_close(&f, true);
}

static void the_end_answers_all_that_waits(void **state)
{
    (void)state;
    shard_fixture_t f;
    const psc_error_t why = {.code = PSC_INTERRUPTED, .rank = -1, .message = "it ends"};
    open_with(&f, 0);
    fixture_hello(&f, 1);
    push(&f, 1, 2, 1, 7, 1);
    ps_shard_end(f.shard, &why);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_INTERRUPTED);
    push(&f, 1, 1, 1, 7, 1);
    assert_int_equal(status_of_next(&f, f.next_call - 1), PSC_INTERRUPTED);
    f.failure.code = PSC_OK;
    fixture_close(&f, true);
}

/* Whose session goes on at the next server asks again: an answer now would be its last word on that
 * sequence. */
static void the_end_in_order_leaves_what_came_early_unanswered(void **state)
{
    (void)state;
    shard_fixture_t f;
    const psc_error_t why = {.code = PSC_INTERRUPTED, .rank = -1, .message = "it ends"};
    open_with(&f, 0);
    fixture_hello(&f, 1);
    push(&f, 1, 2, 1, 7, 1);
    ps_shard_end_in_order(f.shard, &why);
    nothing_comes(&f);
    f.failure.code = PSC_OK;
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_guest_waits_for_no_worker_and_no_worker_for_it),
        cmocka_unit_test(what_comes_early_waits_for_what_goes_first),
        cmocka_unit_test(what_comes_again_is_answered_alike_and_not_done_again),
        cmocka_unit_test(what_comes_again_behind_its_answer_is_not_done_again),
        cmocka_unit_test(a_refused_push_stays_refused),
        cmocka_unit_test(a_request_that_waits_goes_to_the_call_that_came_last),
        cmocka_unit_test(who_says_nothing_for_the_lease_is_gone),
        cmocka_unit_test(whom_a_closed_door_keeps_silent_does_not_lapse),
        cmocka_unit_test(a_gap_that_is_not_filled_is_told),
        cmocka_unit_test(a_gap_that_will_not_be_filled_is_told_by_a_sign_of_life),
        cmocka_unit_test(there_are_as_many_places_as_were_said_and_they_are_used_again),
        cmocka_unit_test(too_many_requests_are_refused_and_none_is_lost),
        cmocka_unit_test(any_order_of_arrival_gives_the_same_rows),
        cmocka_unit_test(a_session_whose_place_another_takes_ends_and_tells_what_counts),
        cmocka_unit_test(who_began_with_a_seal_is_heard_with_seals_alone),
        cmocka_unit_test(the_end_answers_all_that_waits),
        cmocka_unit_test(the_end_in_order_leaves_what_came_early_unanswered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
