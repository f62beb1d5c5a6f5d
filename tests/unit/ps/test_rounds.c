/*
 * Rounds of several servers: what they make, when, and what is left where something fails.
 */
#include "ps/rounds.h"

#include "tests/support/cmocka.h"
#include "tests/support/round_world.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define SECOND UINT64_C(1000000)

/* The newest report: how it ended, with these words where it failed. */
static void expect_report(const round_world_t *world, size_t n, ps_round_why_t why,
                          psc_status_t code, const char *words)
{
    assert_int_equal(world->n_reports, n);
    const ps_round_report_t *last = &world->reports[n - 1];
    assert_int_equal(last->why, why);
    assert_int_equal(last->error.code, code);
    if (code != PSC_OK)
        assert_non_null(strstr(last->error.message, words));
    if (code == PSC_OK)
        assert_int_equal(last->bytes, world->n * 100 + world->n * (world->n - 1) / 2);
}
/* ---- cases ---- */

static void a_server_alone_makes_one_for_each_signal(void **unused)
{
    (void)unused;
    round_world_t *world = round_world_begin(1, 0, true);
    round_world_settle(world);
    assert_int_equal(world->n_reports, 0);
    assert_true(ps_rounds_next(world->at[0].rounds) == UINT64_MAX);
    for (size_t i = 1; i <= 3; i++) {
        round_world_ask(world, 0, i % 2 == 0);
        assert_true(ps_rounds_next(world->at[0].rounds) <= world->now_us + PS_ROUND_SETTLE_US);
        world->now_us += PS_ROUND_SETTLE_US;
        round_world_settle(world);
        expect_report(world, i, PS_ROUND_ASKED, PSC_OK, "");
    }
    assert_string_equal(world->names[2], "round-3");
    round_world_end(world);
}

static void a_signal_that_all_get_makes_one_however_late_it_comes(void **unused)
{
    (void)unused;
    round_world_t *world = round_world_begin(3, 0, true);
    for (size_t i = 1; i <= 3; i++) {
        const uint32_t first = (uint32_t)i % 3;
        round_world_ask(world, first, true);
        round_world_settle(world);
        expect_report(world, i, PS_ROUND_ASKED, PSC_OK, "");
        world->now_us += 100 * SECOND;
        round_world_ask(world, (first + 2) % 3, true);
        round_world_settle(world);
        world->now_us += 100 * SECOND;
        round_world_ask(world, (first + 1) % 3, true);
        round_world_settle(world);
        assert_int_equal(world->n_reports, i);
    }
    round_world_end(world);
}

static void a_signal_to_any_one_of_the_servers_is_enough(void **unused)
{
    (void)unused;
    round_world_t *world = round_world_begin(3, 0, true);
    for (uint32_t server = 0; server < 3; server++) {
        round_world_ask(world, server, false);
        round_world_settle(world);
        assert_int_equal(world->n_reports, server);
        world->now_us += PS_ROUND_SETTLE_US;
        round_world_settle(world);
        expect_report(world, server + 1, PS_ROUND_ASKED, PSC_OK, "");
    }
    for (uint32_t server = 0; server < 3; server++) /* one command to all of them */
        round_world_ask(world, server, false);
    round_world_settle(world);
    world->now_us += PS_ROUND_SETTLE_US;
    round_world_settle(world);
    expect_report(world, 4, PS_ROUND_ASKED, PSC_OK, "");
    round_world_end(world);
}

static void a_signal_while_one_is_under_way_makes_another_behind_it(void **unused)
{
    (void)unused;
    round_world_t *world = round_world_begin(2, 0, true);
    bool moved;
    round_world_ask(world, 0, true);
    ps_rounds_step(world->at[0].rounds, world->now_us, &moved);
    ps_rounds_step(world->at[0].rounds, world->now_us, &moved);
    assert_int_equal(world->at[0].phase, PS_SAVER_OPENING);
    round_world_ask(world, 0, true);
    round_world_settle(world);
    expect_report(world, 2, PS_ROUND_ASKED, PSC_OK, "");
    round_world_ask(world, 1, true); /* of the second, or of both: signals that wait are one */
    round_world_settle(world);
    assert_int_equal(world->n_reports, 2);
    round_world_end(world);
}

static void one_is_made_every_so_often_and_none_pile_up(void **unused)
{
    (void)unused;
    round_world_t *world = round_world_begin(2, 10 * SECOND, true);
    round_world_settle(world);
    assert_int_equal(world->n_reports, 0);
    for (size_t i = 1; i <= 3; i++) {
        world->now_us = ps_rounds_next(world->at[0].rounds);
        round_world_settle(world);
        expect_report(world, i, PS_ROUND_DUE, PSC_OK, "");
    }
    world->now_us += 35 * SECOND; /* three of them would have been due */
    round_world_settle(world);
    assert_int_equal(world->n_reports, 4);
    world->now_us += 6 * SECOND;
    round_world_ask(world, 0, true); /* the next one is due so long after this one */
    round_world_settle(world);
    expect_report(world, 5, PS_ROUND_ASKED, PSC_OK, "");
    world->now_us += 6 * SECOND;
    round_world_settle(world);
    assert_int_equal(world->n_reports, 5);
    assert_true(ps_rounds_next(world->at[1].rounds) == UINT64_MAX);
    round_world_end(world);
}

static void one_of_a_client_goes_first(void **unused)
{
    (void)unused;
    round_world_t *world = round_world_begin(3, 0, true);
    for (uint32_t server = 0; server < 3; server++) {
        round_world_client_begins(world, server);
        round_world_ask(world, 0, true);
        round_world_settle(world);
        expect_report(world, 2 * server + 1, PS_ROUND_ASKED, PSC_BUSY, "a client is making");
        assert_int_equal(world->at[server].phase, PS_SAVER_SAVED); /* it is not touched */
        round_world_client_ends(world, server);
        round_world_ask(world, 0, true);
        round_world_settle(world);
        expect_report(world, 2 * server + 2, PS_ROUND_ASKED, PSC_OK, "");
    }
    round_world_end(world);
}

static void a_part_that_fails_leaves_nothing_and_the_next_one_is_made(void **unused)
{
    (void)unused;
    round_world_t *world = round_world_begin(3, 0, true);
    size_t n = 0;
    for (uint32_t server = 0; server < 3; server++) {
        bool *const flags[] = {&world->at[server].fail_begin, &world->at[server].fail_save,
                               &world->at[0].fail_commit};
        for (size_t i = 0; i < 3; i++) {
            *flags[i] = true;
            round_world_ask(world, 0, true);
            round_world_settle(world);
            expect_report(world, ++n, PS_ROUND_ASKED, i == 0 ? PSC_NO_MEMORY : PSC_DISK_FULL,
                          i == 0        ? "no room"
                          : i == 2      ? "disk 0"
                          : server == 0 ? "disk 0"
                          : server == 1 ? "server 1: disk 1"
                                        : "server 2: disk 2");
            if (i != 0 || server != 0)
                assert_int_not_equal(world->names[n - 1][0], '\0');
            round_world_ask(world, 0, true);
            round_world_settle(world);
            expect_report(world, ++n, PS_ROUND_ASKED, PSC_OK, "");
        }
    }
    round_world_end(world);
}

/* A turn of each of two servers. */
static void turn_both(round_world_t *world)
{
    bool moved;
    world->now_us += 10;
    for (uint32_t i = 0; i < 2; i++) {
        (void)round_world_hear(world, 1 - i, i);
        ps_rounds_step(world->at[i].rounds, world->now_us, &moved);
        (void)round_world_write(&world->at[i]);
    }
}

static void rounds_that_are_always_due_let_a_client_s_begin(void **unused)
{
    (void)unused;
    round_world_t *world = round_world_begin(2, 1, true);
    ps_rounds_ask_for_client(world->at[0].rounds);
    for (size_t turn = 0; turn < 1000 && !world->at[0].lent; turn++)
        turn_both(world);
    assert_true(world->at[0].lent);
    assert_true(round_world_borrower(world, BORROWER_COMMITS));
    ps_rounds_ask_for_client(world->at[0].rounds); /* and the other way round */
    for (size_t turn = 0; turn < 1000 && world->n_reports < 2; turn++)
        turn_both(world);
    assert_int_equal(world->n_reports, 2);
    assert_int_equal(world->reports[1].why, PS_ROUND_DUE);
    round_world_end(world);
}

static void what_a_client_wants_is_lent_to_it(void **unused)
{
    (void)unused;
    for (uint32_t n = 1; n <= 3; n++) {
        round_world_t *world = round_world_begin(n, 0, true);
        ps_rounds_ask_for_client(world->at[0].rounds);
        round_world_settle(world);
        assert_int_equal(world->n_reports,
                         0); /* all parts are there, and the rest is the client's */
        assert_true(world->at[0].lent);
        round_world_ask(world, 0, true); /* which waits */
        round_world_settle(world);
        assert_int_equal(world->n_reports, 0);
        assert_true(round_world_borrower(world, BORROWER_COMMITS));
        world->now_us += SECOND;
        round_world_settle(world);
        assert_int_equal(world->reports[0].why, PS_ROUND_CLIENT);
        assert_int_equal(world->reports[0].error.code, PSC_OK);
        expect_report(world, 2, PS_ROUND_ASKED, PSC_OK, "");

        const round_borrower_t ends[] = {BORROWER_GIVES_UP, BORROWER_IS_GONE};
        for (size_t i = 0; i < 2; i++) {
            ps_rounds_ask_for_client(world->at[0].rounds);
            round_world_settle(world);
            assert_true(round_world_borrower(world, ends[i]));
            round_world_settle(world);
            expect_report(world, 3 + i, PS_ROUND_CLIENT, PSC_INTERRUPTED, "given up");
        }
        world->at[n - 1].fail_save = true;
        ps_rounds_ask_for_client(world->at[0].rounds);
        round_world_settle(world);
        expect_report(world, 5, PS_ROUND_CLIENT, PSC_DISK_FULL, "is full");
        world->at[0].fail_commit = true;
        ps_rounds_ask_for_client(world->at[0].rounds);
        round_world_settle(world);
        assert_true(round_world_borrower(world, BORROWER_COMMITS));
        round_world_settle(world);
        expect_report(world, 6, PS_ROUND_CLIENT, PSC_DISK_FULL, "disk 0");
        ps_rounds_ask_for_client(world->at[0].rounds);
        round_world_settle(world);
        for (uint32_t server = 0; server < n; server++) /* whose client is not waited for */
            ps_rounds_leave(world->at[server].rounds);
        round_world_settle(world);
        assert_int_equal(world->reports[6].why, PS_ROUND_CLIENT);
        assert_int_equal(world->reports[6].error.code, PSC_INTERRUPTED);
        expect_report(world, 8, PS_ROUND_LAST, PSC_OK, "");
        round_world_end(world);
    }
}

static void a_client_that_dies_in_a_call_is_waited_for_and_then_not(void **unused)
{
    (void)unused;
    round_world_t *world = round_world_begin(3, 0, true);
    round_client_t *client = &world->clients[3];
    client->n_calls = 1;
    client->ends[1][0] = client->ends[1][1] = 1; /* and only the first of the two comes */
    assert_true(round_world_deliver(world, 3, 0));
    client->dead = true;
    for (size_t i = 1; i <= 2; i++) {
        round_world_ask(world, 0, true);
        for (uint32_t attempt = 1; attempt <= PS_ROUND_TRIES; attempt++) {
            assert_int_equal(world->n_reports, i - 1);
            round_world_settle(world);
            world->now_us += PS_ROUND_AGAIN_US;
        }
        expect_report(world, i, PS_ROUND_ASKED, PSC_OK, "");
        assert_int_equal(world->reports[i - 1].n_missing, 1);
        assert_true(world->reports[i - 1].held_us >= PS_ROUND_HOLD_US);
        assert_true(world->reports[i - 1].held_us < 2 * PS_ROUND_HOLD_US);
    }
    for (uint32_t server = 0; server < 3; server++) { /* its session ends */
        ps_calls_end(&world->at[server].calls, 3);
        world->at[server].arrived[3] = 0;
    }
    *client = (round_client_t){.n_calls = 0};
    round_world_ask(world, 0, true);
    round_world_settle(world);
    expect_report(world, 3, PS_ROUND_ASKED, PSC_OK, "");
    assert_int_equal(world->reports[2].n_missing, 0);
    round_world_end(world);
}

static void leave_all(round_world_t *world)
{
    for (uint32_t server = 0; server < world->n; server++)
        ps_rounds_leave(world->at[server].rounds);
}

/* How it ended at all servers. */
static void expect_over(const round_world_t *world, const char *name, psc_status_t code)
{
    for (uint32_t server = 0; server < world->n; server++) {
        const char *last;
        psc_error_t error;
        assert_true(ps_rounds_over(world->at[server].rounds, &last, &error));
        assert_string_equal(last, name);
        assert_int_equal(error.code, code);
    }
}

static void the_last_one_is_made_when_all_have_left(void **unused)
{
    (void)unused;
    const char *name;
    psc_error_t error;
    round_world_t *world;
    for (uint32_t n = 1; n <= 3; n++) {
        world = round_world_begin(n, SECOND, true);
        round_world_client_begins(world, n - 1); /* it was sent away */
        for (uint32_t server = n; server-- > 0;) {
            round_world_settle(world);
            assert_false(ps_rounds_over(world->at[0].rounds, &name, &error));
            ps_rounds_leave(world->at[server].rounds);
        }
        round_world_settle(world);
        expect_report(world, 1, PS_ROUND_LAST, PSC_OK, "");
        expect_over(world, "round-1", PSC_OK);
        round_world_end(world);

        world = round_world_begin(n, 0, false);
        leave_all(world);
        round_world_settle(world);
        assert_int_equal(world->n_reports, 0);
        expect_over(world, "", PSC_OK);
        round_world_end(world);

        world = round_world_begin(n, 0, true);
        world->at[n - 1].fail_save = true;
        leave_all(world);
        round_world_settle(world);
        expect_report(world, 1, PS_ROUND_LAST, PSC_DISK_FULL, "is full");
        expect_over(world, "", PSC_DISK_FULL);
        round_world_end(world);
    }
}

/* ---- everything at random times ---- */

typedef struct story {
    round_world_t *world;
    test_random_t random;
    bool quiet;        /* no failures, no clients, one signal after another */
    uint32_t pending;  /* servers that the newest signal has not reached */
    uint32_t left;     /* servers that have left */
    uint64_t given_us; /* when the newest signal was given */
    size_t n_signals;
} story_t;

/* A signal to all is given, or reaches server i. */
static void pass_on(story_t *story, uint32_t i)
{
    round_world_t *world = story->world;
    if ((story->pending >> i & 1) != 0) {
        story->pending &= ~(1u << i);
        round_world_ask(world, i, true);
    } else if (story->pending == 0 && !round_world_any_words(world) &&
               test_below(&story->random, 20) == 0) {
        story->pending = (1u << world->n) - 1;
        story->given_us = world->now_us;
        story->n_signals++;
    }
}

/* What is not there in a quiet story. */
static void disturb(story_t *story, uint32_t i, bool may_leave)
{
    round_place_t *at = &story->world->at[i];
    switch (test_below(&story->random, 4)) {
    case 0:
        if (at->phase == PS_SAVER_IDLE && !at->own)
            round_world_client_begins(story->world, i);
        else if (at->clients && at->phase == PS_SAVER_SAVED)
            round_world_client_ends(story->world, i);
        break;
    case 1:
        *(test_below(&story->random, 2) == 0 ? &at->fail_begin : &at->fail_save) |=
            test_below(&story->random, 10) == 0;
        story->world->at[0].fail_commit |= test_below(&story->random, 100) == 0;
        break;
    case 2:
        if (test_below(&story->random, 10) == 0)
            round_world_ask(story->world, i, false);
        else if (test_below(&story->random, 10) == 0)
            ps_rounds_ask_for_client(story->world->at[0].rounds);
        else
            (void)round_world_borrower(story->world,
                                       (round_borrower_t)test_below(&story->random, 3));
        break;
    default:
        if (may_leave && i != 0 && (story->left >> i & 1) == 0) { /* the end comes later */
            story->left |= 1u << i;
            ps_rounds_leave(at->rounds);
        }
        break;
    }
}

static void take_turn(story_t *story, bool may_leave)
{
    round_world_t *world = story->world;
    const uint32_t i = (uint32_t)test_below(&story->random, world->n);
    bool moved = false;
    world->now_us += test_below(&story->random, 5);
    const uint32_t client = (uint32_t)test_below(&story->random, ROUND_CLIENTS);
    switch (test_below(&story->random, story->quiet ? 12 : 16)) {
    case 5:
        (void)round_world_call(world, client, &story->random);
        break;
    case 6:
    case 7:
    case 8:
        (void)round_world_deliver(world, client, i);
        break;
    case 9:
    case 10:
        (void)round_world_apply(world, client, i);
        break;
    case 11:
        world->at[i].clock += !world->at[i].calls.holding;
        break;
    case 0:
        (void)round_world_hear(world, (uint32_t)test_below(&story->random, world->n), i);
        break;
    case 1:
    case 2:
        ps_rounds_step(world->at[i].rounds, world->now_us, &moved);
        break;
    case 3:
        (void)round_world_write(&world->at[i]);
        break;
    case 4:
        pass_on(story, i);
        break;
    default:
        disturb(story, i, may_leave);
        break;
    }
}

/* What must never be is asserted by the hands. A signal is followed by a round that began when it
 * was given or later; signals that all get make one each at most. */
static void rounds_are_whole_or_nothing_whatever_comes_when(void **unused)
{
    (void)unused;
    round_world_t *world;
    story_t story = {.random = test_random_start()};
    size_t n_made = 0, n_failed = 0;
    for (int run = 0; run < 300; run++) {
        const uint32_t n = 1 + (uint32_t)test_below(&story.random, ROUND_SERVERS_MAX);
        story.quiet = run % 2 == 0;
        story.pending = story.left = 0;
        story.n_signals = 0;
        world = story.world = round_world_begin(n, story.quiet ? 0 : 1000, true);
        for (int turn = 0; turn < 20000; turn++)
            take_turn(&story, turn > 18000);
        for (uint32_t i = 0; i < n; i++) {
            round_place_t *at = &world->at[i];
            if ((story.pending >> i & 1) != 0)
                round_world_ask(world, i, true);
            at->fail_begin = at->fail_save = at->fail_commit = false;
        }
        round_world_settle(world);
        if (story.quiet && story.n_signals != 0) {
            assert_int_equal(world->n_made, world->n_reports);
            assert_true(world->n_made <= story.n_signals && world->n_made != 0);
            assert_true(world->began_us[world->n_reports - 1] >= story.given_us);
        }
        n_made += world->n_made;
        n_failed += world->n_reports - world->n_made;
        for (uint32_t i = 0; i < n; i++) {
            if ((story.left >> i & 1) == 0)
                ps_rounds_leave(world->at[i].rounds);
        }
        round_world_settle(world);
        expect_report(world, world->n_reports, PS_ROUND_LAST, PSC_OK, "");
        expect_over(world, world->names[world->n_reports - 1], PSC_OK);
        round_world_end(world);
    }
    print_message("%zu rounds were made, %zu failed\n", n_made, n_failed);
    assert_true(n_made > 100 && n_failed > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_alone_makes_one_for_each_signal),
        cmocka_unit_test(a_signal_that_all_get_makes_one_however_late_it_comes),
        cmocka_unit_test(a_signal_to_any_one_of_the_servers_is_enough),
        cmocka_unit_test(a_signal_while_one_is_under_way_makes_another_behind_it),
        cmocka_unit_test(one_is_made_every_so_often_and_none_pile_up),
        cmocka_unit_test(one_of_a_client_goes_first),
        cmocka_unit_test(a_part_that_fails_leaves_nothing_and_the_next_one_is_made),
        cmocka_unit_test(rounds_that_are_always_due_let_a_client_s_begin),
        cmocka_unit_test(what_a_client_wants_is_lent_to_it),
        cmocka_unit_test(a_client_that_dies_in_a_call_is_waited_for_and_then_not),
        cmocka_unit_test(the_last_one_is_made_when_all_have_left),
        cmocka_unit_test(rounds_are_whole_or_nothing_whatever_comes_when),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
