/*
 * Rounds of several servers in one process: words lie in queues, savers are a few numbers, and a
 * folder is modelled that tells who would remove or commit what another one is writing.
 */
#include "ps/rounds.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <string.h>

enum { SERVERS_MAX = 4, WORDS_MAX = 256, REPORTS_MAX = 4096 };
#define SECOND UINT64_C(1000000)

typedef enum part { PART_NONE, PART_WRITING, PART_WHOLE } part_t;

struct world;

typedef struct place {
    struct world *world;
    uint32_t rank;
    ps_rounds_t *rounds;
    ps_round_hands_t hands;
    /* the saver */
    ps_saver_phase_t phase;
    bool own, clients; /* whose it is: the servers', whose end was not taken; a client's */
    char name[PSP_CHECKPOINT_NAME_MAX + 1];
    psc_error_t result;
    /* what it will fail at next */
    bool fail_begin, fail_save, fail_commit;
    part_t part;
} place_t;

typedef struct words {
    ps_round_word_t all[WORDS_MAX];
    uint32_t from[WORDS_MAX];
    size_t head, tail;
} words_t;

typedef struct world {
    uint32_t n;
    place_t at[SERVERS_MAX];
    words_t to[SERVERS_MAX][SERVERS_MAX]; /* [from][to] */
    uint64_t now_us;
    unsigned n_named;
    bool committing;
    /* what the first server reported */
    ps_round_report_t reports[REPORTS_MAX];
    char names[REPORTS_MAX][PSP_CHECKPOINT_NAME_MAX + 1];
    uint64_t began_us[REPORTS_MAX];
    size_t n_reports, n_made;
} world_t;

/* ---- hands ---- */

static ps_round_place_t look_for_place(void *context, bool leaving)
{
    place_t *at = context;
    if (at->phase == PS_SAVER_IDLE)
        return PS_ROUND_FREE;
    if (at->phase == PS_SAVER_SAVED && leaving) {
        assert_true(at->clients);
        at->phase = PS_SAVER_ABANDONING;
    }
    return leaving || at->phase == PS_SAVER_ABANDONING ? PS_ROUND_WAIT : PS_ROUND_TAKEN;
}

static psc_status_t begin(void *context, const char *name, psc_error_t *error)
{
    place_t *at = context;
    world_t *world = at->world;
    assert_int_equal(at->phase, PS_SAVER_IDLE);
    assert_false(at->own);
    if (at->fail_begin) {
        at->fail_begin = false;
        return psc_error_set(error, PSC_NO_MEMORY, "no room to begin");
    }
    if (at->rank == 0)
        (void)snprintf(at->name, sizeof at->name, "round-%u", ++world->n_named);
    else
        (void)snprintf(at->name, sizeof at->name, "%s", name);
    assert_string_equal(at->name, world->at[0].name);
    for (uint32_t i = 0; i < world->n;
         i++) /* the first one's folder is there, and before it nothing */
        assert_true(at->rank == 0 ? world->at[i].part == PART_NONE
                                  : world->at[0].part == PART_WHOLE);
    at->part = PART_WRITING;
    at->phase = PS_SAVER_CUTTING;
    at->own = true;
    at->result = (psc_error_t)PSC_ERROR_INIT;
    return PSC_OK;
}

static ps_saver_phase_t look(void *context, psc_error_t *result_out, const char **name_out,
                             uint64_t *bytes_out)
{
    const place_t *at = context;
    *result_out = at->result;
    *name_out = at->name;
    *bytes_out = 100 + at->rank;
    return at->phase;
}

static void commit(void *context)
{
    place_t *at = context;
    assert_true(at->own && at->phase == PS_SAVER_SAVED);
    for (uint32_t i = 0; i < at->world->n; i++) /* the others hear that it is in its place */
        assert_int_equal(at->world->at[i].part, at->rank == 0 ? PART_WHOLE : PART_NONE);
    at->world->committing |= at->rank == 0;
    at->phase = PS_SAVER_COMMITTING;
}

static void abandon(void *context)
{
    place_t *at = context;
    assert_true(at->own && at->phase == PS_SAVER_SAVED);
    assert_false(at->world->committing);
    for (uint32_t i = 1; at->rank == 0 && i < at->world->n; i++)
        assert_int_equal(at->world->at[i].part, PART_NONE);
    at->phase = PS_SAVER_ABANDONING;
}

static void done(void *context)
{
    place_t *at = context;
    assert_true(at->own && at->phase == PS_SAVER_IDLE);
    at->own = false;
}

static void tell(void *context, uint32_t server, const ps_round_word_t *word)
{
    const place_t *at = context;
    words_t *words = &at->world->to[at->rank][server];
    assert_true(words->tail - words->head < WORDS_MAX);
    words->all[words->tail++ % WORDS_MAX] = *word;
}

static void report(void *context, const ps_round_report_t *report)
{
    world_t *world = ((place_t *)context)->world;
    const size_t i = world->n_reports++;
    assert_true(i < REPORTS_MAX);
    world->reports[i] = *report;
    (void)snprintf(world->names[i], sizeof world->names[i], "%s", report->name);
    world->began_us[i] = world->now_us - report->took_us;
    world->n_made += report->error.code == PSC_OK;
    for (uint32_t s = 0; s < world->n; s++) /* nothing is left of it anywhere, or all was made */
        assert_int_equal(world->at[s].part, PART_NONE);
}

/* ---- the world ---- */

static void begin_world(world_t *world, uint32_t n, uint64_t every_us, bool last)
{
    *world = (world_t){.n = n, .now_us = 1000 * SECOND};
    for (uint32_t rank = 0; rank < n; rank++) {
        place_t *at = &world->at[rank];
        at->world = world;
        at->rank = rank;
        at->hands = (ps_round_hands_t){at,      look_for_place, begin, look,  commit,
                                       abandon, done,           tell,  report};
        const ps_rounds_options_t options = {
            .rank = rank, .n_servers = n, .every_us = every_us, .last = last, .hands = &at->hands};
        assert_int_equal(ps_rounds_create(&options, world->now_us, &at->rounds, NULL), PSC_OK);
    }
}

static void end_world(world_t *world)
{
    for (uint32_t rank = 0; rank < world->n; rank++)
        ps_rounds_destroy(world->at[rank].rounds);
}

static bool fails(bool *flag)
{
    const bool it_does = *flag;
    *flag = false;
    return it_does;
}

/* A failure of the own one: what is there of it goes, of the first server's all. */
static void give_up(place_t *at)
{
    (void)psc_error_set(&at->result, PSC_DISK_FULL, "disk %u is full", (unsigned)at->rank);
    at->phase = PS_SAVER_ABANDONING;
}

/* A step of a server's writer. */
static bool write_some(place_t *at)
{
    world_t *world = at->world;
    switch (at->phase) {
    case PS_SAVER_CUTTING:
        at->phase = PS_SAVER_WRITING;
        return true;
    case PS_SAVER_WRITING:
        if (at->own && fails(&at->fail_save)) {
            give_up(at);
            return true;
        }
        if (at->own)
            at->part = PART_WHOLE;
        at->phase = PS_SAVER_SAVED;
        return true;
    case PS_SAVER_COMMITTING:
        if (at->own && at->rank == 0) {
            world->committing = false;
            if (fails(&at->fail_commit)) {
                give_up(at);
                return true;
            }
            for (uint32_t i = 0; i < world->n; i++) { /* renamed into place, whole */
                assert_int_equal(world->at[i].part, PART_WHOLE);
                world->at[i].part = PART_NONE;
            }
        }
        at->clients = false;
        at->phase = PS_SAVER_IDLE;
        return true;
    case PS_SAVER_ABANDONING:
        if (at->own && at->rank == 0) {
            for (uint32_t i = 0; i < world->n; i++) {
                assert_int_not_equal(world->at[i].part, i == 0 ? -1 : PART_WRITING);
                world->at[i].part = PART_NONE;
            }
        }
        if (at->own)
            at->part = PART_NONE;
        at->clients = false;
        at->phase = PS_SAVER_IDLE;
        return true;
    case PS_SAVER_IDLE:
    case PS_SAVER_SAVED:
    case PS_SAVER_STORING:
        break;
    }
    return false;
}

static bool hear_one(world_t *world, uint32_t from, uint32_t to)
{
    words_t *words = &world->to[from][to];
    if (words->head == words->tail)
        return false;
    const ps_round_word_t word = words->all[words->head++ % WORDS_MAX];
    ps_rounds_hear(world->at[to].rounds, from, &word, world->now_us);
    return true;
}

/* Until nothing moves by itself. */
static void settle(world_t *world)
{
    bool moved = true;
    for (int turns = 0; moved; turns++) {
        moved = false;
        assert_true(turns < 1000);
        for (uint32_t i = 0; i < world->n; i++) {
            for (uint32_t from = 0; from < world->n; from++)
                moved |= hear_one(world, from, i);
            ps_rounds_step(world->at[i].rounds, world->now_us, &moved);
            moved |= write_some(&world->at[i]);
        }
        world->now_us += 10;
    }
}

static void ask(world_t *world, uint32_t server, bool passed_on)
{
    ps_rounds_ask(world->at[server].rounds, server, passed_on, world->now_us);
}

/* A client's checkpoint at one server that goes no further, and its end. */
static void client_begins(world_t *world, uint32_t server)
{
    place_t *at = &world->at[server];
    assert_int_equal(at->phase, PS_SAVER_IDLE);
    at->clients = true;
    at->phase = PS_SAVER_SAVED;
}

static void client_ends(world_t *world, uint32_t server)
{
    world->at[server].clients = false;
    world->at[server].phase = PS_SAVER_IDLE;
}

/* The newest report: how it ended, with these words where it failed. */
static void expect_report(const world_t *world, size_t n, ps_round_why_t why, psc_status_t code,
                          const char *words)
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
    world_t *world = psc_alloc(sizeof *world);
    begin_world(world, 1, 0, true);
    settle(world);
    assert_int_equal(world->n_reports, 0);
    assert_true(ps_rounds_next(world->at[0].rounds) == UINT64_MAX);
    for (size_t i = 1; i <= 3; i++) {
        ask(world, 0, i % 2 == 0);
        assert_true(ps_rounds_next(world->at[0].rounds) <= world->now_us + PS_ROUND_SETTLE_US);
        world->now_us += PS_ROUND_SETTLE_US;
        settle(world);
        expect_report(world, i, PS_ROUND_ASKED, PSC_OK, "");
    }
    assert_string_equal(world->names[2], "round-3");
    end_world(world);
    psc_free(world);
}

static void a_signal_that_all_get_makes_one_however_late_it_comes(void **unused)
{
    (void)unused;
    world_t *world = psc_alloc(sizeof *world);
    begin_world(world, 3, 0, true);
    for (size_t i = 1; i <= 3; i++) {
        const uint32_t first = (uint32_t)i % 3;
        ask(world, first, true);
        settle(world);
        expect_report(world, i, PS_ROUND_ASKED, PSC_OK, "");
        world->now_us += 100 * SECOND;
        ask(world, (first + 2) % 3, true);
        settle(world);
        world->now_us += 100 * SECOND;
        ask(world, (first + 1) % 3, true);
        settle(world);
        assert_int_equal(world->n_reports, i);
    }
    end_world(world);
    psc_free(world);
}

static void a_signal_to_any_one_of_the_servers_is_enough(void **unused)
{
    (void)unused;
    world_t *world = psc_alloc(sizeof *world);
    begin_world(world, 3, 0, true);
    for (uint32_t server = 0; server < 3; server++) {
        ask(world, server, false);
        settle(world);
        assert_int_equal(world->n_reports, server);
        world->now_us += PS_ROUND_SETTLE_US;
        settle(world);
        expect_report(world, server + 1, PS_ROUND_ASKED, PSC_OK, "");
    }
    for (uint32_t server = 0; server < 3; server++) /* one command to all of them */
        ask(world, server, false);
    settle(world);
    world->now_us += PS_ROUND_SETTLE_US;
    settle(world);
    expect_report(world, 4, PS_ROUND_ASKED, PSC_OK, "");
    end_world(world);
    psc_free(world);
}

static void a_signal_while_one_is_under_way_makes_another_behind_it(void **unused)
{
    (void)unused;
    world_t *world = psc_alloc(sizeof *world);
    bool moved;
    begin_world(world, 2, 0, true);
    ask(world, 0, true);
    ps_rounds_step(world->at[0].rounds, world->now_us, &moved);
    ps_rounds_step(world->at[0].rounds, world->now_us, &moved);
    assert_int_equal(world->at[0].phase, PS_SAVER_CUTTING);
    ask(world, 0, true);
    settle(world);
    expect_report(world, 2, PS_ROUND_ASKED, PSC_OK, "");
    ask(world, 1, true); /* of the second, or of both: signals that wait are one */
    settle(world);
    assert_int_equal(world->n_reports, 2);
    end_world(world);
    psc_free(world);
}

static void one_is_made_every_so_often_and_none_pile_up(void **unused)
{
    (void)unused;
    world_t *world = psc_alloc(sizeof *world);
    begin_world(world, 2, 10 * SECOND, true);
    settle(world);
    assert_int_equal(world->n_reports, 0);
    for (size_t i = 1; i <= 3; i++) {
        world->now_us = ps_rounds_next(world->at[0].rounds);
        settle(world);
        expect_report(world, i, PS_ROUND_DUE, PSC_OK, "");
    }
    world->now_us += 35 * SECOND; /* three of them would have been due */
    settle(world);
    assert_int_equal(world->n_reports, 4);
    world->now_us += 6 * SECOND;
    ask(world, 0, true); /* the next one is due so long after this one */
    settle(world);
    expect_report(world, 5, PS_ROUND_ASKED, PSC_OK, "");
    world->now_us += 6 * SECOND;
    settle(world);
    assert_int_equal(world->n_reports, 5);
    assert_true(ps_rounds_next(world->at[1].rounds) == UINT64_MAX);
    end_world(world);
    psc_free(world);
}

static void one_of_a_client_goes_first(void **unused)
{
    (void)unused;
    world_t *world = psc_alloc(sizeof *world);
    begin_world(world, 3, 0, true);
    for (uint32_t server = 0; server < 3; server++) {
        client_begins(world, server);
        ask(world, 0, true);
        settle(world);
        expect_report(world, 2 * server + 1, PS_ROUND_ASKED, PSC_BUSY, "a client is making");
        assert_int_equal(world->at[server].phase, PS_SAVER_SAVED); /* it is not touched */
        client_ends(world, server);
        ask(world, 0, true);
        settle(world);
        expect_report(world, 2 * server + 2, PS_ROUND_ASKED, PSC_OK, "");
    }
    end_world(world);
    psc_free(world);
}

static void a_part_that_fails_leaves_nothing_and_the_next_one_is_made(void **unused)
{
    (void)unused;
    world_t *world = psc_alloc(sizeof *world);
    begin_world(world, 3, 0, true);
    size_t n = 0;
    for (uint32_t server = 0; server < 3; server++) {
        bool *const flags[] = {&world->at[server].fail_begin, &world->at[server].fail_save,
                               &world->at[0].fail_commit};
        for (size_t i = 0; i < 3; i++) {
            *flags[i] = true;
            ask(world, 0, true);
            settle(world);
            expect_report(world, ++n, PS_ROUND_ASKED, i == 0 ? PSC_NO_MEMORY : PSC_DISK_FULL,
                          i == 0        ? "no room"
                          : i == 2      ? "disk 0"
                          : server == 0 ? "disk 0"
                          : server == 1 ? "server 1: disk 1"
                                        : "server 2: disk 2");
            if (i != 0 || server != 0)
                assert_int_not_equal(world->names[n - 1][0], '\0');
            ask(world, 0, true);
            settle(world);
            expect_report(world, ++n, PS_ROUND_ASKED, PSC_OK, "");
        }
    }
    end_world(world);
    psc_free(world);
}

static void leave_all(world_t *world)
{
    for (uint32_t server = 0; server < world->n; server++)
        ps_rounds_leave(world->at[server].rounds);
}

/* How it ended at all servers. */
static void expect_over(const world_t *world, const char *name, psc_status_t code)
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
    world_t *world = psc_alloc(sizeof *world);
    for (uint32_t n = 1; n <= 3; n++) {
        begin_world(world, n, SECOND, true);
        client_begins(world, n - 1); /* it was sent away */
        for (uint32_t server = n; server-- > 0;) {
            settle(world);
            assert_false(ps_rounds_over(world->at[0].rounds, &name, &error));
            ps_rounds_leave(world->at[server].rounds);
        }
        settle(world);
        expect_report(world, 1, PS_ROUND_LAST, PSC_OK, "");
        expect_over(world, "round-1", PSC_OK);
        end_world(world);

        begin_world(world, n, 0, false);
        leave_all(world);
        settle(world);
        assert_int_equal(world->n_reports, 0);
        expect_over(world, "", PSC_OK);
        end_world(world);

        begin_world(world, n, 0, true);
        world->at[n - 1].fail_save = true;
        leave_all(world);
        settle(world);
        expect_report(world, 1, PS_ROUND_LAST, PSC_DISK_FULL, "is full");
        expect_over(world, "", PSC_DISK_FULL);
        end_world(world);
    }
    psc_free(world);
}

/* ---- everything at random times ---- */

typedef struct story {
    world_t *world;
    test_random_t random;
    bool quiet;        /* no failures, no clients, one signal after another */
    uint32_t pending;  /* servers that the newest signal has not reached */
    uint32_t left;     /* servers that have left */
    uint64_t given_us; /* when the newest signal was given */
    size_t n_signals;
} story_t;

static bool any_words(const world_t *world)
{
    bool any = false;
    for (uint32_t from = 0; from < world->n; from++) {
        for (uint32_t to = 0; to < world->n; to++)
            any |= world->to[from][to].head != world->to[from][to].tail;
    }
    return any;
}

/* A signal to all is given, or reaches server i. */
static void pass_on(story_t *story, uint32_t i)
{
    world_t *world = story->world;
    if ((story->pending >> i & 1) != 0) {
        story->pending &= ~(1u << i);
        ask(world, i, true);
    } else if (story->pending == 0 && !any_words(world) && test_below(&story->random, 20) == 0) {
        story->pending = (1u << world->n) - 1;
        story->given_us = world->now_us;
        story->n_signals++;
    }
}

/* What is not there in a quiet story. */
static void disturb(story_t *story, uint32_t i, bool may_leave)
{
    place_t *at = &story->world->at[i];
    switch (test_below(&story->random, 4)) {
    case 0:
        if (at->phase == PS_SAVER_IDLE && !at->own)
            client_begins(story->world, i);
        else if (at->clients && at->phase == PS_SAVER_SAVED)
            client_ends(story->world, i);
        break;
    case 1:
        *(test_below(&story->random, 2) == 0 ? &at->fail_begin : &at->fail_save) |=
            test_below(&story->random, 10) == 0;
        story->world->at[0].fail_commit |= test_below(&story->random, 100) == 0;
        break;
    case 2:
        if (test_below(&story->random, 10) == 0)
            ask(story->world, i, false);
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
    world_t *world = story->world;
    const uint32_t i = (uint32_t)test_below(&story->random, world->n);
    bool moved = false;
    world->now_us += test_below(&story->random, 5);
    switch (test_below(&story->random, story->quiet ? 5 : 9)) {
    case 0:
        (void)hear_one(world, (uint32_t)test_below(&story->random, world->n), i);
        break;
    case 1:
    case 2:
        ps_rounds_step(world->at[i].rounds, world->now_us, &moved);
        break;
    case 3:
        (void)write_some(&world->at[i]);
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
    world_t *world = psc_alloc(sizeof *world);
    story_t story = {.world = world, .random = test_random_start()};
    size_t n_made = 0, n_failed = 0;
    for (int run = 0; run < 300; run++) {
        const uint32_t n = 1 + (uint32_t)test_below(&story.random, SERVERS_MAX);
        story.quiet = run % 2 == 0;
        story.pending = story.left = 0;
        story.n_signals = 0;
        begin_world(world, n, story.quiet ? 0 : 1000, true);
        for (int turn = 0; turn < 10000; turn++)
            take_turn(&story, turn > 9000);
        for (uint32_t i = 0; i < n; i++) {
            place_t *at = &world->at[i];
            if ((story.pending >> i & 1) != 0)
                ask(world, i, true);
            at->fail_begin = at->fail_save = at->fail_commit = false;
        }
        settle(world);
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
        settle(world);
        expect_report(world, world->n_reports, PS_ROUND_LAST, PSC_OK, "");
        expect_over(world, world->names[world->n_reports - 1], PSC_OK);
        end_world(world);
    }
    print_message("%zu rounds were made, %zu failed\n", n_made, n_failed);
    assert_true(n_made > 100 && n_failed > 100);
    psc_free(world);
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
        cmocka_unit_test(the_last_one_is_made_when_all_have_left),
        cmocka_unit_test(rounds_are_whole_or_nothing_whatever_comes_when),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
