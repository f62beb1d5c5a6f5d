/*
 * The states of a round, at the first server and at the others:
 *
 *     first: IDLE -> PLACE -> OPENING -> READY -> HOLD -> OWN -> PARTS -> COMMIT -> CLOSE -> IDLE
 *                                           \                      \-> LENT -> CLOSE -> IDLE
 *                                            \----------------------\-> CLOSE -> UNDO -> IDLE
 *     other: IDLE -> PLACE -> OPENING -> READY -> HOLD -> OWN -> SAID -> CLOSE -> IDLE
 *
 * PLACE waits until a checkpoint may begin; in OPENING it gets its folder. In READY the first waits
 * for the word of each other that it is ready, and the others for the word to hold; in HOLD a
 * server waits until it has what belongs to the cut. OWN is the server's own part. In PARTS the
 * first waits for the word of each other, in CLOSE for each to have nothing of the round left. Of a
 * server alone there are none, and it goes straight on.
 *
 * Why in this order. The first server's folder is that of all, so it opens before the others do,
 * and when it gives a checkpoint up, which removes that folder, none of the others may be writing
 * there: in UNDO none is any more. A server that has said that its part is there leaves it alone
 * until the first has said how the round ended: else it might be removed while it is committed.
 *
 * LENT is a client's time to store its state and to commit. The others stay in SAID meanwhile; a
 * client that has ended, and the end of the servers, end it.
 *
 * Servers turn quickly from READY on, so that what is held is held for the time of some words. A
 * client whose call does not come to its end is waited for PS_ROUND_HOLD_US long, and the round is
 * given up then; after PS_ROUND_TRIES such rounds the client is taken for one that died in the
 * middle of a call.
 *
 * The end. A server whose loop has ended says so and goes on with rounds, so that one under way
 * ends as any other. When all have left and nothing is under way, the first makes the last
 * checkpoint, if one is to be made, and says that all is over.
 *
 * Signals that mpirun passes on reach servers at different times, a second one even before the
 * first has reached all. The first server notes whose it has heard of the newest one: the first of
 * a server that it has not is the same signal, coming late; what it asks for was begun after the
 * signal was given. Any other is a new one.
 *
 * Threads: none of its own. Cost of a step without a round: some comparisons.
 */
#include "ps/rounds.h"

#include "common/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef enum state {
    IDLE,
    PLACE,
    OPENING,
    READY,
    HOLD,
    OWN,
    PARTS,
    LENT,
    SAID,
    COMMIT,
    CLOSE,
    UNDO,
} state_t;

struct ps_rounds {
    ps_rounds_options_t options;
    state_t state;
    ps_round_why_t why;
    char name[PSP_CHECKPOINT_NAME_MAX + 1];
    bool mine; /* the saver is at work for this round */
    bool lent;
    psc_error_t fault; /* of the round */
    ps_round_haste_t haste;
    uint64_t began_us, bytes;
    uint64_t cut_us, own_held_us; /* at this server */
    uint32_t own_missing;         /* the same */
    uint64_t cuts_us[2];          /* of all servers: the first and the last one; 0: none yet */
    uint64_t held_us;             /* the longest of all servers */
    uint32_t n_missing;           /* the most of all servers */
    uint32_t n_told;              /* servers that have told all calls */
    uint32_t n_tries;             /* that were given up for a client in the middle of a call */
    uint32_t n_open;              /* servers whose word is waited for */
    uint64_t next_us;             /* when the next one is due */
    uint64_t again_us;            /* when the next try may begin */
    bool wanted;                  /* a signal came */
    uint64_t wanted_us;           /* when what it asks for may begin */
    bool client_wants;
    bool passed_on_once; /* heard is of a signal */
    bool leaving, over;
    uint32_t n_left; /* servers that have left */
    bool last_ended; /* the last one was made, or failed */
    char last_name[PSP_CHECKPOINT_NAME_MAX + 1];
    psc_error_t last_fault;
    bool heard[]; /* [n_servers] of the newest signal that was passed on */
};

static bool is_first(const ps_rounds_t *rounds)
{
    return rounds->options.rank == 0;
}

psc_status_t ps_rounds_create(const ps_rounds_options_t *options, uint64_t now_us,
                              ps_rounds_t **rounds_out, psc_error_t *error)
{
    ps_rounds_t *rounds = psc_alloc_zeroed(1, sizeof *rounds + options->n_servers);
    if (rounds == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %" PRIu32 " servers",
                             options->n_servers);
    rounds->options = *options;
    rounds->fault = rounds->last_fault = (psc_error_t)PSC_ERROR_INIT;
    rounds->next_us = now_us + options->every_us;
    *rounds_out = rounds;
    return PSC_OK;
}

void ps_rounds_destroy(ps_rounds_t *rounds)
{
    psc_free(rounds);
}

/* ---- words ---- */

static void tell(const ps_rounds_t *rounds, uint32_t server, ps_round_word_t *word,
                 ps_round_word_kind_t kind)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    word->kind = (uint32_t)kind;
    hands->tell(hands->context, server, word);
}

/* From the first server to all others, whose words are waited for then. */
static void tell_others(ps_rounds_t *rounds, ps_round_word_kind_t kind, const psc_error_t *error)
{
    ps_round_word_t word = {.haste = rounds->haste, .error = *error};
    (void)snprintf(word.name, sizeof word.name, "%s", rounds->name);
    rounds->n_open = rounds->options.n_servers - 1;
    for (uint32_t server = 1; server < rounds->options.n_servers; server++)
        tell(rounds, server, &word, kind);
}

static void tell_first(const ps_rounds_t *rounds, ps_round_word_kind_t kind)
{
    ps_round_word_t word = {.error = PSC_ERROR_INIT};
    tell(rounds, 0, &word, kind);
}

void ps_rounds_ask(ps_rounds_t *rounds, uint32_t server, bool passed_on, uint64_t now_us)
{
    if (!is_first(rounds)) {
        ps_round_word_t word = {.passed_on = passed_on, .error = PSC_ERROR_INIT};
        tell(rounds, 0, &word, PS_ROUND_ASK);
        return;
    }
    if (passed_on && rounds->passed_on_once && !rounds->heard[server]) {
        rounds->heard[server] = true; /* the newest one, which came here late */
        return;
    }
    if (passed_on) {
        memset(rounds->heard, 0, rounds->options.n_servers);
        rounds->heard[server] = true;
        rounds->passed_on_once = true;
    }
    if (!rounds->wanted)
        rounds->wanted_us = now_us + (passed_on ? 0 : PS_ROUND_SETTLE_US);
    rounds->wanted = true;
}

void ps_rounds_ask_for_client(ps_rounds_t *rounds)
{
    PSC_BUG_ON(!is_first(rounds));
    rounds->client_wants = true;
}

/* What a server's part says of the round, the own one included. */
static void note_part(ps_rounds_t *rounds, const ps_round_word_t *word, uint64_t now_us)
{
    const uint64_t cut_us = now_us - (word->since_us < now_us ? word->since_us : now_us);
    rounds->bytes += word->bytes;
    rounds->held_us = word->held_us > rounds->held_us ? word->held_us : rounds->held_us;
    rounds->n_missing = word->n_missing > rounds->n_missing ? word->n_missing : rounds->n_missing;
    if (word->error.code != PSC_OK)
        return;
    if (rounds->cuts_us[0] == 0 || cut_us < rounds->cuts_us[0])
        rounds->cuts_us[0] = cut_us;
    if (cut_us > rounds->cuts_us[1])
        rounds->cuts_us[1] = cut_us;
}

/* The word of a server that is waited for. */
static void hear_answer(ps_rounds_t *rounds, uint32_t from, const ps_round_word_t *word,
                        uint64_t now_us)
{
    PSC_BUG_ON(rounds->n_open == 0);
    rounds->n_open--;
    if (word->kind == PS_ROUND_ENDED)
        return;
    if (word->kind == PS_ROUND_SAVED)
        note_part(rounds, word, now_us);
    if (word->error.code != PSC_OK && rounds->fault.code == PSC_OK)
        (void)psc_error_set(&rounds->fault, word->error.code, "server %" PRIu32 ": %.440s", from,
                            word->error.message);
}

/* From the first server: how the round ended. */
static void hear_end(ps_rounds_t *rounds, const ps_round_word_t *word)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    rounds->state = CLOSE;
    if (rounds->mine && word->error.code == PSC_OK)
        hands->commit(hands->context);
    else if (rounds->mine)
        hands->abandon(hands->context);
}

/* ---- the cut ---- */

/* A round begins here. */
static void set_out(ps_rounds_t *rounds, uint64_t now_us)
{
    rounds->state = PLACE;
    rounds->lent = false;
    rounds->began_us = now_us;
    rounds->bytes = rounds->held_us = rounds->cut_us = 0;
    rounds->cuts_us[0] = rounds->cuts_us[1] = 0;
    rounds->n_missing = 0;
    rounds->n_told = 0;
    rounds->fault = (psc_error_t)PSC_ERROR_INIT;
}

/* Tells another server what it is to reach. */
static void tell_calls(const ps_rounds_t *rounds, uint32_t server, uint64_t clock)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    uint32_t seat = 0;
    ps_round_word_t word;
    do {
        word = (ps_round_word_t){.clock = clock, .error = PSC_ERROR_INIT};
        word.n_calls =
            (uint32_t)hands->calls(hands->context, server, &seat, word.calls, PS_ROUND_CALLS);
        word.is_last = word.n_calls < PS_ROUND_CALLS;
        tell(rounds, server, &word, PS_ROUND_REACH);
    } while (word.is_last == 0);
}

static void hold(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    uint64_t clock;
    rounds->state = HOLD;
    rounds->began_us = now_us;
    if (rounds->haste == PS_ROUND_NOW)
        return;
    hands->hold(hands->context, &clock);
    for (uint32_t server = 0; server < rounds->options.n_servers; server++) {
        if (server != rounds->options.rank)
            tell_calls(rounds, server, clock);
    }
}

void ps_rounds_hear(ps_rounds_t *rounds, uint32_t from, const ps_round_word_t *word,
                    uint64_t now_us)
{
    switch ((ps_round_word_kind_t)word->kind) {
    case PS_ROUND_ASK:
        ps_rounds_ask(rounds, from, word->passed_on != 0, now_us);
        break;
    case PS_ROUND_OPEN:
        PSC_BUG_ON(rounds->state != IDLE);
        memcpy(rounds->name, word->name, sizeof rounds->name);
        set_out(rounds, now_us);
        break;
    case PS_ROUND_HOLD:
        PSC_BUG_ON(rounds->state != READY);
        rounds->haste = (ps_round_haste_t)word->haste;
        hold(rounds, now_us);
        break;
    case PS_ROUND_REACH:
        rounds->options.hands->reach(rounds->options.hands->context, word->calls, word->n_calls);
        if (word->is_last != 0) {
            rounds->options.hands->reach_clock(rounds->options.hands->context, word->clock);
            rounds->n_told++;
        }
        break;
    case PS_ROUND_READY:
    case PS_ROUND_SAVED:
    case PS_ROUND_ENDED:
        hear_answer(rounds, from, word, now_us);
        break;
    case PS_ROUND_END:
        PSC_BUG_ON(rounds->state != SAID && rounds->state != READY);
        hear_end(rounds, word);
        break;
    case PS_ROUND_LEFT:
        rounds->n_left++;
        break;
    case PS_ROUND_OVER:
        memcpy(rounds->last_name, word->name, sizeof rounds->last_name);
        rounds->last_fault = word->error;
        rounds->over = true;
        break;
    }
}

/* ---- the first server ---- */

static void start(ps_rounds_t *rounds, ps_round_why_t why, uint64_t now_us)
{
    rounds->why = why;
    rounds->name[0] = '\0';
    rounds->haste = why == PS_ROUND_LAST                   ? PS_ROUND_NOW
                    : rounds->n_tries + 1 < PS_ROUND_TRIES ? PS_ROUND_WHOLE
                                                           : PS_ROUND_TORN;
    if (why == PS_ROUND_CLIENT) { /* who may give it up */
        rounds->client_wants = false;
    } else { /* whatever was asked for until now begins now */
        rounds->wanted = false;
        rounds->next_us = now_us + rounds->options.every_us;
    }
    set_out(rounds, now_us);
}

/* At the first server, when nothing of a round is left anywhere. */
static void finish(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    const ps_round_report_t report = {.why = rounds->why,
                                      .name = rounds->name,
                                      .took_us = now_us - rounds->began_us,
                                      .bytes = rounds->bytes,
                                      .spread_us = rounds->cuts_us[1] - rounds->cuts_us[0],
                                      .held_us = rounds->held_us,
                                      .n_missing = rounds->n_missing,
                                      .lent = rounds->lent,
                                      .error = rounds->fault};
    rounds->state = IDLE;
    if (rounds->fault.code != PSC_OK && rounds->n_missing != 0 && rounds->haste == PS_ROUND_WHOLE) {
        rounds->n_tries++;
        rounds->again_us = now_us + PS_ROUND_AGAIN_US;
        return;
    }
    rounds->n_tries = 0;
    if (rounds->why == PS_ROUND_LAST) {
        rounds->last_ended = true;
        rounds->last_fault = rounds->fault;
        if (rounds->fault.code == PSC_OK)
            memcpy(rounds->last_name, rounds->name, sizeof rounds->last_name);
    }
    hands->report(hands->context, &report);
}

/* Nothing is under way: is there anything to begin? */
static bool step_idle(ps_rounds_t *rounds, uint64_t now_us)
{
    if (!is_first(rounds) || rounds->over)
        return false;
    if (rounds->leaving) {
        if (rounds->n_left != rounds->options.n_servers)
            return false;
        if (rounds->options.last && !rounds->last_ended) {
            start(rounds, PS_ROUND_LAST, now_us);
            return true;
        }
        (void)snprintf(rounds->name, sizeof rounds->name, "%s", rounds->last_name);
        tell_others(rounds, PS_ROUND_OVER, &rounds->last_fault);
        rounds->over = true;
        return true;
    }
    const ps_rounds_options_t *options = &rounds->options;
    const bool asked = rounds->wanted && now_us >= rounds->wanted_us;
    const bool due = options->every_us != 0 && now_us >= rounds->next_us;
    /* By turns, so that neither keeps the other waiting for ever. */
    const bool client =
        rounds->client_wants && (rounds->why != PS_ROUND_CLIENT || (!asked && !due));
    if (rounds->n_tries != 0) {
        if (now_us < rounds->again_us)
            return false;
    } else if (client || asked || due) {
        rounds->why = client ? PS_ROUND_CLIENT : asked ? PS_ROUND_ASKED : PS_ROUND_DUE;
    } else {
        return false;
    }
    start(rounds, rounds->why, now_us);
    return true;
}

/* All parts are there, or one is not. */
static bool step_parts(ps_rounds_t *rounds)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    if (rounds->n_open != 0)
        return false;
    if (rounds->fault.code != PSC_OK) {
        tell_others(rounds, PS_ROUND_END, &rounds->fault);
        rounds->state = CLOSE;
    } else if (rounds->why == PS_ROUND_CLIENT) {
        hands->lend(hands->context);
        rounds->lent = true;
        rounds->state = LENT;
    } else {
        hands->commit(hands->context);
        rounds->state = COMMIT;
    }
    return true;
}

/* All others have nothing left of it. */
static bool close_first(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    if (rounds->n_open != 0)
        return false;
    if (rounds->mine) { /* its part, and the folder of all */
        hands->abandon(hands->context);
        rounds->state = UNDO;
    } else {
        finish(rounds, now_us);
    }
    return true;
}

/* ---- both ---- */

/* The saver is done with it. */
static void let_go(ps_rounds_t *rounds)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    rounds->mine = false;
    hands->done(hands->context);
}

/* The own one can be cut, or will not be: fault. */
static void opened(ps_rounds_t *rounds, uint64_t now_us)
{
    ps_round_word_t word = {.error = rounds->fault};
    if (!is_first(rounds)) {
        rounds->state = rounds->fault.code == PSC_OK ? READY : SAID;
        tell(rounds, 0, &word, PS_ROUND_READY);
    } else if (rounds->fault.code != PSC_OK) {
        finish(rounds, now_us);
    } else {
        rounds->state = READY;
        tell_others(rounds, PS_ROUND_OPEN, &rounds->fault);
    }
}

static bool step_place(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    const ps_round_place_t place = hands->place(hands->context, rounds->leaving);
    if (place == PS_ROUND_WAIT)
        return false;
    if (place == PS_ROUND_TAKEN)
        (void)psc_error_set(&rounds->fault, PSC_BUSY, "a client is making a checkpoint");
    else if (hands->open(hands->context, rounds->name, &rounds->fault) == PSC_OK)
        rounds->mine = true;
    if (rounds->mine)
        rounds->state = OPENING;
    else
        opened(rounds, now_us);
    return true;
}

/* How the own one stands; where it has failed that is given up, and true returned when it is. The
 * first server's only where nobody else writes: else in UNDO. */
static bool has_failed(ps_rounds_t *rounds, bool alone, ps_saver_phase_t *phase_out,
                       uint64_t *bytes_out)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    const char *name = "";
    psc_error_t result = PSC_ERROR_INIT;
    *phase_out = hands->look(hands->context, &result, &name, bytes_out);
    (void)snprintf(rounds->name, sizeof rounds->name, "%s", name);
    if (*phase_out == PS_SAVER_FAILED) {
        if (rounds->fault.code == PSC_OK)
            rounds->fault = result;
        if (!alone)
            return true;
        hands->abandon(hands->context);
    } else if (*phase_out == PS_SAVER_IDLE) {
        let_go(rounds);
        return true;
    }
    return false;
}

static bool step_opening(ps_rounds_t *rounds, uint64_t now_us)
{
    ps_saver_phase_t phase;
    uint64_t bytes;
    const bool failed = has_failed(rounds, true, &phase, &bytes);
    if (!failed && phase != PS_SAVER_OPEN)
        return false;
    opened(rounds, now_us);
    return true;
}

/* At the first server: all others are ready, or one is not. */
static bool step_ready(ps_rounds_t *rounds, uint64_t now_us)
{
    if (!is_first(rounds) || rounds->n_open != 0)
        return false;
    if (rounds->fault.code != PSC_OK) {
        tell_others(rounds, PS_ROUND_END, &rounds->fault);
        rounds->state = CLOSE;
        return true;
    }
    tell_others(rounds, PS_ROUND_HOLD, &rounds->fault);
    hold(rounds, now_us);
    return true;
}

/* The own part is on disk, or will not be: fault. */
static void own_ended(ps_rounds_t *rounds, uint64_t bytes, uint64_t now_us)
{
    ps_round_word_t word = {.bytes = bytes,
                            .since_us = now_us - rounds->cut_us,
                            .held_us = rounds->own_held_us,
                            .n_missing = rounds->own_missing,
                            .error = rounds->fault};
    if (is_first(rounds)) {
        rounds->state = PARTS;
        note_part(rounds, &word, now_us);
        return;
    }
    rounds->state = SAID;
    tell(rounds, 0, &word, PS_ROUND_SAVED);
}

/* Calls go on; the cut is made, or will not be. */
static void release(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    rounds->cut_us = now_us;
    rounds->own_held_us = rounds->haste != PS_ROUND_NOW ? now_us - rounds->began_us : 0;
    hands->release(hands->context);
    rounds->state = OWN;
}

static bool step_hold(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    const bool told = rounds->n_told == rounds->options.n_servers - 1;
    const bool whole = hands->whole(hands->context, &rounds->own_missing) && told;
    const bool late = now_us - rounds->began_us >= PS_ROUND_HOLD_US;
    if (!whole && !late && rounds->haste != PS_ROUND_NOW)
        return false;
    if (whole || rounds->haste == PS_ROUND_NOW)
        rounds->own_missing = 0;
    else if (rounds->own_missing == 0)
        rounds->own_missing = 1; /* another server did not tell in time, or a clock did not end */
    if (!whole && rounds->haste == PS_ROUND_WHOLE)
        (void)psc_error_set(&rounds->fault, PSC_BUSY,
                            "calls of %" PRIu32 " clients did not come to their end",
                            rounds->own_missing);
    else if (hands->cut(hands->context, &rounds->fault) == PSC_BUSY) {
        rounds->fault = (psc_error_t)PSC_ERROR_INIT;
        return false;
    }
    release(rounds, now_us);
    return true;
}

static bool step_own(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    ps_saver_phase_t phase;
    uint64_t bytes = 0;
    const bool failed = has_failed(rounds, !is_first(rounds), &phase, &bytes);
    if (phase == PS_SAVER_OPEN && !is_first(rounds)) {
        hands->abandon(hands->context); /* it was not cut */
        return true;
    }
    if (!failed && phase != PS_SAVER_OPEN && phase != PS_SAVER_SAVED)
        return false;
    own_ended(rounds, phase == PS_SAVER_SAVED ? bytes : 0, now_us);
    return true;
}

/* Commits, or gives up: whether that is over; where it failed: fault. */
static bool saver_ended(ps_rounds_t *rounds)
{
    ps_saver_phase_t phase;
    uint64_t bytes;
    return has_failed(rounds, true, &phase, &bytes);
}

static bool step_commit(ps_rounds_t *rounds)
{
    if (!saver_ended(rounds))
        return false;
    tell_others(rounds, PS_ROUND_END, &rounds->fault);
    rounds->state = CLOSE;
    return true;
}

static bool step_lent(ps_rounds_t *rounds)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    psc_error_t result = PSC_ERROR_INIT;
    const char *name;
    uint64_t bytes;
    const ps_saver_phase_t phase = hands->look(hands->context, &result, &name, &bytes);
    if (phase == PS_SAVER_SAVED && (rounds->leaving || !hands->claimed(hands->context))) {
        hands->abandon(hands->context);
        return true;
    }
    if (phase == PS_SAVER_IDLE && result.code != PSC_OK)
        rounds->fault = result;
    return step_commit(rounds);
}

static bool step_close(ps_rounds_t *rounds, uint64_t now_us)
{
    if (is_first(rounds))
        return close_first(rounds, now_us);
    if (rounds->mine && !saver_ended(rounds))
        return false; /* where that fails, the first server removes what is left */
    rounds->state = IDLE;
    tell_first(rounds, PS_ROUND_ENDED);
    return true;
}

static bool step_undo(ps_rounds_t *rounds, uint64_t now_us)
{
    if (!saver_ended(rounds))
        return false;
    finish(rounds, now_us);
    return true;
}

static bool step_once(ps_rounds_t *rounds, uint64_t now_us)
{
    switch (rounds->state) {
    case IDLE:
        return step_idle(rounds, now_us);
    case PLACE:
        return step_place(rounds, now_us);
    case OPENING:
        return step_opening(rounds, now_us);
    case READY:
        return step_ready(rounds, now_us);
    case HOLD:
        return step_hold(rounds, now_us);
    case OWN:
        return step_own(rounds, now_us);
    case PARTS:
        return step_parts(rounds);
    case COMMIT:
        return step_commit(rounds);
    case CLOSE:
        return step_close(rounds, now_us);
    case UNDO:
        return step_undo(rounds, now_us);
    case LENT:
        return step_lent(rounds);
    case SAID:
        break;
    }
    return false;
}

void ps_rounds_step(ps_rounds_t *rounds, uint64_t now_us, bool *progress_out)
{
    if (step_once(rounds, now_us))
        *progress_out = true;
}

uint64_t ps_rounds_next(const ps_rounds_t *rounds)
{
    uint64_t next_us = UINT64_MAX;
    if (rounds->state == READY || rounds->state == HOLD)
        return 0;
    if (!is_first(rounds) || rounds->state != IDLE || rounds->leaving)
        return next_us;
    if (rounds->n_tries != 0)
        return rounds->again_us;
    if (rounds->client_wants)
        return 1; /* at once */
    if (rounds->wanted)
        next_us = rounds->wanted_us;
    if (rounds->options.every_us != 0 && rounds->next_us < next_us)
        next_us = rounds->next_us;
    return next_us;
}

void ps_rounds_leave(ps_rounds_t *rounds)
{
    rounds->leaving = true;
    if (is_first(rounds))
        rounds->n_left++;
    else
        tell_first(rounds, PS_ROUND_LEFT);
}

bool ps_rounds_over(const ps_rounds_t *rounds, const char **name_out, psc_error_t *error_out)
{
    *name_out = rounds->last_name;
    *error_out = rounds->last_fault;
    return rounds->over;
}
