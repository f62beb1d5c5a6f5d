/*
 * The states of a round, at the first server and at the others:
 *
 *     first: IDLE -> PLACE -> OWN -> PARTS -> COMMIT -> CLOSE -> IDLE
 *                                      \----------------> CLOSE -> UNDO -> IDLE   a part failed
 *     other: IDLE -> PLACE -> OWN -> SAID -> CLOSE -> IDLE
 *
 * PLACE waits until a checkpoint may begin; OWN is the server's own part. In PARTS the first waits
 * for the word of each other, in CLOSE for each to have nothing of the round left. Of a server
 * alone there are none, and it goes straight on.
 *
 * Why in this order. The first server's folder is that of all, so it begins before the others do,
 * and when it gives a checkpoint up, which removes that folder, none of the others may be writing
 * there: before PARTS none is, and in UNDO none is any more. A server that has said that its part
 * is there leaves it alone until the first has said how the round ended: else it might be removed
 * while it is committed.
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
    OWN,
    PARTS,
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
    bool mine;         /* the saver is at work for this round */
    psc_error_t fault; /* of the round */
    uint64_t began_us, bytes, spread_us;
    uint32_t n_open;     /* servers whose word is waited for */
    uint64_t next_us;    /* when the next one is due */
    bool wanted;         /* a signal came */
    uint64_t wanted_us;  /* when what it asks for may begin */
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
    ps_round_word_t word = {.error = *error};
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

/* The word of a server that is waited for. */
static void hear_answer(ps_rounds_t *rounds, uint32_t from, const ps_round_word_t *word,
                        uint64_t now_us)
{
    PSC_BUG_ON(rounds->n_open == 0);
    rounds->n_open--;
    if (word->kind == PS_ROUND_ENDED)
        return;
    const uint64_t cut_us = now_us - (word->since_us < now_us ? word->since_us : now_us);
    if (word->error.code == PSC_OK && cut_us > rounds->began_us + rounds->spread_us)
        rounds->spread_us = cut_us - rounds->began_us;
    rounds->bytes += word->bytes;
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

void ps_rounds_hear(ps_rounds_t *rounds, uint32_t from, const ps_round_word_t *word,
                    uint64_t now_us)
{
    switch ((ps_round_word_kind_t)word->kind) {
    case PS_ROUND_ASK:
        ps_rounds_ask(rounds, from, word->passed_on != 0, now_us);
        break;
    case PS_ROUND_SAVE:
        PSC_BUG_ON(rounds->state != IDLE);
        memcpy(rounds->name, word->name, sizeof rounds->name);
        rounds->state = PLACE;
        break;
    case PS_ROUND_SAVED:
    case PS_ROUND_ENDED:
        hear_answer(rounds, from, word, now_us);
        break;
    case PS_ROUND_END:
        PSC_BUG_ON(rounds->state != SAID);
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
    rounds->state = PLACE;
    rounds->name[0] = '\0';
    rounds->began_us = now_us;
    rounds->bytes = rounds->spread_us = 0;
    rounds->fault = (psc_error_t)PSC_ERROR_INIT;
    rounds->wanted = false; /* whatever was asked for until now begins now */
    rounds->next_us = now_us + rounds->options.every_us;
}

/* At the first server, when nothing of a round is left anywhere. */
static void finish(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    const ps_round_report_t report = {.why = rounds->why,
                                      .name = rounds->name,
                                      .took_us = now_us - rounds->began_us,
                                      .bytes = rounds->bytes,
                                      .spread_us = rounds->spread_us,
                                      .error = rounds->fault};
    rounds->state = IDLE;
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
    if (now_us < ps_rounds_next(rounds))
        return false;
    start(rounds, rounds->wanted && now_us >= rounds->wanted_us ? PS_ROUND_ASKED : PS_ROUND_DUE,
          now_us);
    return true;
}

/* All parts are there, or one is not. */
static bool step_parts(ps_rounds_t *rounds)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    if (rounds->n_open != 0)
        return false;
    if (rounds->fault.code == PSC_OK) {
        hands->commit(hands->context);
        rounds->state = COMMIT;
    } else {
        tell_others(rounds, PS_ROUND_END, &rounds->fault);
        rounds->state = CLOSE;
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

/* The own part is on disk, or will not be: fault. */
static void own_ended(ps_rounds_t *rounds, uint64_t bytes, uint64_t now_us)
{
    if (!is_first(rounds)) {
        ps_round_word_t word = {
            .bytes = bytes, .since_us = now_us - rounds->began_us, .error = rounds->fault};
        rounds->state = SAID;
        tell(rounds, 0, &word, PS_ROUND_SAVED);
    } else if (rounds->fault.code != PSC_OK) {
        finish(rounds, now_us);
    } else {
        rounds->bytes = bytes;
        rounds->state = PARTS;
        tell_others(rounds, PS_ROUND_SAVE, &rounds->fault);
    }
}

static bool step_place(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    const ps_round_place_t place = hands->place(hands->context, rounds->leaving);
    if (place == PS_ROUND_WAIT)
        return false;
    rounds->fault = (psc_error_t)PSC_ERROR_INIT;
    rounds->began_us = now_us;
    if (place == PS_ROUND_TAKEN)
        (void)psc_error_set(&rounds->fault, PSC_BUSY, "a client is making a checkpoint");
    else if (hands->begin(hands->context, rounds->name, &rounds->fault) == PSC_OK)
        rounds->mine = true;
    if (rounds->mine)
        rounds->state = OWN;
    else
        own_ended(rounds, 0, now_us);
    return true;
}

static bool step_own(ps_rounds_t *rounds, uint64_t now_us)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    const char *name = "";
    uint64_t bytes = 0;
    psc_error_t result = PSC_ERROR_INIT;
    const ps_saver_phase_t phase = hands->look(hands->context, &result, &name, &bytes);
    if (phase != PS_SAVER_IDLE && phase != PS_SAVER_SAVED)
        return false;
    (void)snprintf(rounds->name, sizeof rounds->name, "%s", name);
    if (phase == PS_SAVER_IDLE) {
        rounds->fault = result;
        let_go(rounds);
    }
    own_ended(rounds, bytes, now_us);
    return true;
}

/* Commits, or gives up: whether that is over, and how it ended. */
static bool saver_ended(ps_rounds_t *rounds, psc_error_t *result_out)
{
    const ps_round_hands_t *hands = rounds->options.hands;
    const char *name;
    uint64_t bytes;
    if (hands->look(hands->context, result_out, &name, &bytes) != PS_SAVER_IDLE)
        return false;
    let_go(rounds);
    return true;
}

static bool step_commit(ps_rounds_t *rounds)
{
    if (!saver_ended(rounds, &rounds->fault))
        return false;
    tell_others(rounds, PS_ROUND_END, &rounds->fault);
    rounds->state = CLOSE;
    return true;
}

static bool step_close(ps_rounds_t *rounds, uint64_t now_us)
{
    psc_error_t ignored = PSC_ERROR_INIT; /* what is left of it, the first server removes */
    if (is_first(rounds))
        return close_first(rounds, now_us);
    if (rounds->mine && !saver_ended(rounds, &ignored))
        return false;
    rounds->state = IDLE;
    tell_first(rounds, PS_ROUND_ENDED);
    return true;
}

static bool step_undo(ps_rounds_t *rounds, uint64_t now_us)
{
    psc_error_t given_up = PSC_ERROR_INIT; /* the fault is known */
    if (!saver_ended(rounds, &given_up))
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
    if (!is_first(rounds) || rounds->state != IDLE || rounds->leaving)
        return next_us;
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
