/* Servers that are a few numbers, and their words in queues; see the header. */
#include "tests/support/round_world.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"

#include <string.h>

#define SECOND UINT64_C(1000000)

/* ---- hands ---- */

static ps_round_place_t look_for_place(void *context, bool leaving)
{
    round_place_t *at = context;
    if (at->phase == PS_SAVER_IDLE)
        return PS_ROUND_FREE;
    if (at->phase == PS_SAVER_SAVED && leaving) {
        assert_true(at->clients);
        at->phase = PS_SAVER_ABANDONING;
    }
    return leaving || at->phase == PS_SAVER_ABANDONING ? PS_ROUND_WAIT : PS_ROUND_TAKEN;
}

static psc_status_t open_one(void *context, const char *name, psc_error_t *error)
{
    round_place_t *at = context;
    round_world_t *world = at->world;
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
                                  : world->at[0].part != PART_NONE);
    at->part = PART_WRITING;
    at->phase = PS_SAVER_OPENING;
    at->own = true;
    at->result = (psc_error_t)PSC_ERROR_INIT;
    return PSC_OK;
}

static void hold(void *context, uint64_t *clock_out)
{
    round_place_t *at = context;
    assert_false(at->calls.holding);
    assert_int_equal(at->phase, PS_SAVER_OPEN);
    ps_calls_hold(&at->calls);
    *clock_out = at->clock;
}

static size_t calls(void *context, uint32_t server, uint32_t *seat_io, ps_call_part_t *calls_out,
                    size_t most)
{
    const round_place_t *at = context;
    assert_int_not_equal(server, at->rank);
    return ps_calls_tell(&at->calls, server, seat_io, calls_out, most);
}

static void reach(void *context, const ps_call_part_t *told, size_t n)
{
    round_place_t *at = context;
    for (size_t i = 0; i < n; i++)
        ps_calls_reach(&at->calls, told[i]);
}

static void reach_clock(void *context, uint64_t clock)
{
    round_place_t *at = context;
    at->to_reach = clock > at->to_reach ? clock : at->to_reach;
}

static bool whole(void *context, uint32_t *n_missing_out)
{
    round_place_t *at = context;
    *n_missing_out = ps_calls_missing(&at->calls);
    if (at->clock < at->to_reach)
        at->clock = at->to_reach; /* it comes there */
    return *n_missing_out == 0 && at->clock >= at->to_reach;
}

static psc_status_t cut(void *context, psc_error_t *error)
{
    round_place_t *at = context;
    (void)error;
    assert_int_equal(at->phase, PS_SAVER_OPEN);
    for (uint32_t client = 0; client < ROUND_CLIENTS; client++)
        at->cut_done[client] = at->calls.seats[client].done;
    at->cut_clock = at->clock;
    at->phase = PS_SAVER_CUTTING;
    return PSC_OK;
}

static void release(void *context)
{
    round_place_t *at = context;
    ps_calls_release(&at->calls);
    at->to_reach = 0;
}

static ps_saver_phase_t look(void *context, psc_error_t *result_out, const char **name_out,
                             uint64_t *bytes_out)
{
    const round_place_t *at = context;
    *result_out = at->result;
    *name_out = at->name;
    *bytes_out = 100 + at->rank;
    return at->phase;
}

static void lend(void *context)
{
    round_place_t *at = context;
    assert_true(at->own && at->phase == PS_SAVER_SAVED && at->rank == 0);
    at->lent = true;
    at->left = false;
}

static bool claimed(void *context)
{
    const round_place_t *at = context;
    assert_true(at->lent);
    return !at->left;
}

static void commit(void *context)
{
    round_place_t *at = context;
    assert_true(at->own && at->phase == PS_SAVER_SAVED);
    for (uint32_t i = 0; i < at->world->n; i++) /* the others hear that it is in its place */
        assert_int_equal(at->world->at[i].part, at->rank == 0 ? PART_WHOLE : PART_NONE);
    at->world->committing |= at->rank == 0;
    at->phase = PS_SAVER_COMMITTING;
}

static void abandon(void *context)
{
    round_place_t *at = context;
    round_world_t *world = at->world;
    assert_true(at->own && (at->phase == PS_SAVER_OPEN || at->phase == PS_SAVER_SAVED ||
                            at->phase == PS_SAVER_FAILED));
    assert_true(!world->committing || at->rank == 0);
    for (uint32_t i = 1; at->rank == 0 && i < world->n; i++)
        assert_int_equal(world->at[i].part, world->committing || at->lent ? PART_WHOLE : PART_NONE);
    world->committing = false;
    at->phase = PS_SAVER_ABANDONING;
}

static void done(void *context)
{
    round_place_t *at = context;
    assert_true(at->own && at->phase == PS_SAVER_IDLE);
    at->own = at->lent = false;
}

static void tell(void *context, uint32_t server, const ps_round_word_t *word)
{
    const round_place_t *at = context;
    round_words_t *words = &at->world->to[at->rank][server];
    assert_true(words->tail - words->head < ROUND_WORDS_MAX);
    words->all[words->tail++ % ROUND_WORDS_MAX] = *word;
}

/* All servers cut behind the same call of each client, and at the same clock. */
static void check_cut(const round_world_t *world)
{
    for (uint32_t client = 0; client < ROUND_CLIENTS; client++) {
        const round_client_t *of = &world->clients[client];
        bool whole_calls = false;
        for (size_t k = 0; k <= of->n_calls && !whole_calls; k++) {
            whole_calls = true;
            for (uint32_t s = 0; s < world->n; s++)
                whole_calls = whole_calls && world->at[s].cut_done[client] == of->ends[k][s];
        }
        if (!whole_calls)
            fail_msg("a checkpoint has parts of a call of client %u and lacks others",
                     (unsigned)client);
    }
    for (uint32_t s = 1; s < world->n; s++)
        assert_true(world->at[s].cut_clock == world->at[0].cut_clock);
}

static void report(void *context, const ps_round_report_t *report)
{
    round_world_t *world = ((round_place_t *)context)->world;
    const size_t i = world->n_reports++;
    assert_true(i < ROUND_REPORTS_MAX);
    world->reports[i] = *report;
    (void)snprintf(world->names[i], sizeof world->names[i], "%s", report->name);
    world->began_us[i] = world->now_us - report->took_us;
    world->n_made += report->error.code == PSC_OK;
    for (uint32_t s = 0; s < world->n; s++) /* nothing is left of it anywhere, or all was made */
        assert_int_equal(world->at[s].part, PART_NONE);
    if (report->error.code == PSC_OK && report->n_missing == 0 && report->why != PS_ROUND_LAST)
        check_cut(world);
}

/* ---- the world ---- */

round_world_t *round_world_begin(uint32_t n, uint64_t every_us, bool last)
{
    round_world_t *world = psc_alloc_zeroed(1, sizeof *world);
    assert_non_null(world);
    world->n = n;
    world->now_us = 1000 * SECOND;
    for (uint32_t rank = 0; rank < n; rank++) {
        round_place_t *at = &world->at[rank];
        at->world = world;
        at->rank = rank;
        at->hands = (ps_round_hands_t){.context = at,
                                       .place = look_for_place,
                                       .open = open_one,
                                       .hold = hold,
                                       .calls = calls,
                                       .reach = reach,
                                       .reach_clock = reach_clock,
                                       .whole = whole,
                                       .cut = cut,
                                       .release = release,
                                       .look = look,
                                       .lend = lend,
                                       .claimed = claimed,
                                       .commit = commit,
                                       .abandon = abandon,
                                       .done = done,
                                       .tell = tell,
                                       .report = report};
        const ps_rounds_options_t options = {
            .rank = rank, .n_servers = n, .every_us = every_us, .last = last, .hands = &at->hands};
        assert_int_equal(ps_rounds_create(&options, world->now_us, &at->rounds, NULL), PSC_OK);
        assert_int_equal(ps_calls_init(&at->calls, ROUND_CLIENTS, rank, n, NULL), PSC_OK);
        for (uint32_t client = 0; client < ROUND_CLIENTS; client++)
            assert_int_equal(ps_calls_begin(&at->calls, client,
                                            ps_calls_client(client % 2 == 0, client, client + 1), 0,
                                            NULL),
                             PSC_OK);
    }
    return world;
}

void round_world_end(round_world_t *world)
{
    for (uint32_t rank = 0; rank < world->n; rank++) {
        ps_rounds_destroy(world->at[rank].rounds);
        ps_calls_clear(&world->at[rank].calls);
    }
    psc_free(world);
}

static bool fails(bool *flag)
{
    const bool it_does = *flag;
    *flag = false;
    return it_does;
}

static void give_up(round_place_t *at)
{
    (void)psc_error_set(&at->result, PSC_DISK_FULL, "disk %u is full", (unsigned)at->rank);
    at->phase = PS_SAVER_FAILED;
}

bool round_world_write(round_place_t *at)
{
    round_world_t *world = at->world;
    switch (at->phase) {
    case PS_SAVER_OPENING:
        at->phase = PS_SAVER_OPEN;
        return true;
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
            if (fails(&at->fail_commit)) {
                give_up(at);
                return true;
            }
            world->committing = false;
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
        if (at->result.code == PSC_OK)
            (void)psc_error_set(&at->result, PSC_INTERRUPTED, "it was given up");
        at->clients = false;
        at->phase = PS_SAVER_IDLE;
        return true;
    case PS_SAVER_IDLE:
    case PS_SAVER_OPEN:
    case PS_SAVER_SAVED:
    case PS_SAVER_FAILED:
    case PS_SAVER_STORING:
        break;
    }
    return false;
}

bool round_world_any_words(const round_world_t *world)
{
    bool any = false;
    for (uint32_t from = 0; from < world->n; from++) {
        for (uint32_t to = 0; to < world->n; to++)
            any |= world->to[from][to].head != world->to[from][to].tail;
    }
    return any;
}

bool round_world_hear(round_world_t *world, uint32_t from, uint32_t to)
{
    round_words_t *words = &world->to[from][to];
    if (words->head == words->tail)
        return false;
    const ps_round_word_t word = words->all[words->head++ % ROUND_WORDS_MAX];
    ps_rounds_hear(world->at[to].rounds, from, &word, world->now_us);
    return true;
}

/* Whether a server holds what others have to wait for. */
static bool any_holds(const round_world_t *world)
{
    bool any = false;
    for (uint32_t i = 0; i < world->n; i++)
        any |= world->at[i].calls.holding;
    return any;
}

static bool serve(round_world_t *world, uint32_t server)
{
    bool moved = false;
    for (uint32_t client = 0; client < ROUND_CLIENTS; client++) {
        while (round_world_deliver(world, client, server) ||
               round_world_apply(world, client, server))
            moved = true;
    }
    return moved;
}

void round_world_settle(round_world_t *world)
{
    bool moved = true;
    for (int turns = 0; moved; turns++) {
        moved = false;
        assert_true(turns < 1000);
        for (uint32_t i = 0; i < world->n; i++) {
            for (uint32_t from = 0; from < world->n; from++)
                moved |= round_world_hear(world, from, i);
            moved |= serve(world, i);
            ps_rounds_step(world->at[i].rounds, world->now_us, &moved);
            moved |= round_world_write(&world->at[i]);
        }
        world->now_us += 10;
        if (!moved && any_holds(world)) { /* for a client that is dead */
            world->now_us += PS_ROUND_HOLD_US;
            moved = true;
        }
    }
}

void round_world_ask(round_world_t *world, uint32_t server, bool passed_on)
{
    ps_rounds_ask(world->at[server].rounds, server, passed_on, world->now_us);
}

void round_world_client_begins(round_world_t *world, uint32_t server)
{
    round_place_t *at = &world->at[server];
    assert_int_equal(at->phase, PS_SAVER_IDLE);
    at->clients = true;
    at->phase = PS_SAVER_SAVED;
}

void round_world_client_ends(round_world_t *world, uint32_t server)
{
    world->at[server].clients = false;
    world->at[server].phase = PS_SAVER_IDLE;
}

bool round_world_borrower(round_world_t *world, round_borrower_t does)
{
    round_place_t *at = &world->at[0];
    if (!at->lent || at->left || at->phase != PS_SAVER_SAVED)
        return false;
    if (does == BORROWER_COMMITS) {
        commit(at);
    } else if (does == BORROWER_GIVES_UP) {
        abandon(at);
    } else {
        at->left = true;
    }
    return true;
}

/* ---- clients ---- */

bool round_world_call(round_world_t *world, uint32_t client, test_random_t *random)
{
    round_client_t *of = &world->clients[client];
    if (of->n_calls + 1 == ROUND_CALLS_MAX)
        return false;
    const size_t k = ++of->n_calls;
    for (uint32_t s = 0; s < world->n; s++)
        of->ends[k][s] = of->ends[k - 1][s] + test_below(random, 3);
    return true;
}

bool round_world_deliver(round_world_t *world, uint32_t client, uint32_t server)
{
    const round_client_t *of = &world->clients[client];
    round_place_t *at = &world->at[server];
    size_t k = 0;
    while (k <= of->n_calls && of->ends[k][server] <= at->arrived[client])
        k++;
    if (of->dead || k > of->n_calls)
        return false;
    const psp_request_header_t header = {
        .part = ++at->arrived[client], .parts = of->ends[k], .n_parts = world->n};
    assert_int_equal(ps_calls_hear(&at->calls, client, &header, NULL), PSC_OK);
    return true;
}

bool round_world_apply(round_world_t *world, uint32_t client, uint32_t server)
{
    round_place_t *at = &world->at[server];
    const uint64_t part = at->calls.seats[client].done + 1;
    if (part > at->arrived[client] || ps_calls_blocks(&at->calls, client, part))
        return false;
    ps_calls_done(&at->calls, client, part);
    return true;
}
