/*
 * The hands of a server's rounds: the saver is the shard's, words go by ps_fellows_t, and how a
 * round ended is logged by the first server, by the checkpoint's name.
 *
 * Signals come on a thread of their own and leave a mark, which the next step takes. Words of the
 * other servers are looked for every HEAR_US, not at every turn, since that is a call of MPI, but
 * where a round waits for them (ps_rounds_next is 0); they do not end the owner's wait, which lasts
 * a tenth of a second at most.
 */
#include "ps/server_rounds.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "ps/rounds.h"
#include "ps/table/shard_hold.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define HEAR_US UINT64_C(10000)
#define END_WAIT_US UINT64_C(20000)

struct ps_server_rounds {
    ps_server_rounds_options_t options;
    ps_rounds_t *rounds;
    ps_round_hands_t hands;
    uint64_t heard_us;
    atomic_bool asked[2]; /* [passed on] by signals, since the last step */
};

/* ---- hands ---- */

static ps_round_place_t place(void *context, bool leaving)
{
    ps_server_rounds_t *rounds = context;
    ps_shard_t *shard = rounds->options.shard;
    psc_error_t result;
    const char *name;
    uint64_t bytes;
    const ps_saver_phase_t phase = ps_saver_look(shard, &result, &name, &bytes);
    if (phase == PS_SAVER_IDLE)
        return PS_ROUND_FREE;
    if (phase == PS_SAVER_ABANDONING)
        return PS_ROUND_WAIT;
    if (phase == PS_SAVER_SAVED && (leaving || ps_saver_is_orphan(shard))) {
        ps_saver_abandon(shard); /* whoever began it is gone */
        return PS_ROUND_WAIT;
    }
    return leaving ? PS_ROUND_WAIT : PS_ROUND_TAKEN;
}

static psc_status_t open_one(void *context, const char *name, psc_error_t *error)
{
    ps_server_rounds_t *rounds = context;
    return ps_saver_open(rounds->options.shard, name, error);
}

static void hold(void *context, uint64_t *clock_out)
{
    ps_server_rounds_t *rounds = context;
    ps_shard_hold(rounds->options.shard, clock_out);
}

static size_t calls(void *context, uint32_t server, uint32_t *seat_io, ps_call_part_t *calls_out,
                    size_t most)
{
    ps_server_rounds_t *rounds = context;
    return ps_shard_hold_tell(rounds->options.shard, server, seat_io, calls_out, most);
}

static void reach(void *context, const ps_call_part_t *parts, size_t n)
{
    ps_server_rounds_t *rounds = context;
    ps_shard_hold_reach(rounds->options.shard, parts, n);
}

static void reach_clock(void *context, uint64_t clock)
{
    ps_server_rounds_t *rounds = context;
    ps_shard_hold_reach_clock(rounds->options.shard, clock);
}

static bool whole(void *context, uint32_t *n_missing_out)
{
    ps_server_rounds_t *rounds = context;
    return ps_shard_hold_whole(rounds->options.shard, n_missing_out);
}

static psc_status_t cut(void *context, psc_error_t *error)
{
    ps_server_rounds_t *rounds = context;
    ps_shard_t *shard = rounds->options.shard;
    if (!ps_saver_may_cut(shard))
        return psc_error_set(error, PSC_BUSY, "in the middle of a clock");
    return ps_saver_cut(shard, error);
}

static void release(void *context)
{
    ps_server_rounds_t *rounds = context;
    ps_shard_hold_release(rounds->options.shard);
}

static ps_saver_phase_t look(void *context, psc_error_t *result_out, const char **name_out,
                             uint64_t *bytes_out)
{
    ps_server_rounds_t *rounds = context;
    return ps_saver_look(rounds->options.shard, result_out, name_out, bytes_out);
}

static void lend(void *context)
{
    ps_server_rounds_t *rounds = context;
    ps_saver_lend(rounds->options.shard);
}

static bool claimed(void *context)
{
    ps_server_rounds_t *rounds = context;
    return !ps_saver_is_orphan(rounds->options.shard);
}

static void commit(void *context)
{
    ps_server_rounds_t *rounds = context;
    ps_saver_commit(rounds->options.shard);
}

static void abandon(void *context)
{
    ps_server_rounds_t *rounds = context;
    ps_saver_abandon(rounds->options.shard);
}

static void done(void *context)
{
    ps_server_rounds_t *rounds = context;
    ps_saver_release(rounds->options.shard);
}

static void tell(void *context, uint32_t server, const ps_round_word_t *word)
{
    ps_server_rounds_t *rounds = context;
    const ps_fellows_t *fellows = rounds->options.fellows;
    fellows->tell(fellows->context, server, word);
}

static void report(void *context, const ps_round_report_t *report)
{
    static const char *const reasons[] = {
        [PS_ROUND_ASKED] = "asked for by a signal",
        [PS_ROUND_DUE] = "--checkpoint-every",
        [PS_ROUND_LAST] = "the last one",
        [PS_ROUND_CLIENT] = "asked for by a client",
    };
    const char *why = reasons[report->why], *name = report->name[0] != '\0' ? report->name : "none";
    const ps_server_rounds_t *rounds = context;
    char spread[64] = "", torn[80] = "";
    if (report->why == PS_ROUND_CLIENT && report->error.code != PSC_OK && !report->lent)
        ps_saver_refuse(rounds->options.shard, &report->error);
    if (report->error.code != PSC_OK) {
        psc_log(PSC_LOG_WARN, "checkpoint %s (%s) was not made: %s", name, why,
                report->error.message);
        return;
    }
    if (rounds->options.n_servers != 1)
        (void)snprintf(spread, sizeof spread, ", servers cut within %.3f s",
                       (double)report->spread_us / 1e6);
    if (report->n_missing != 0)
        (void)snprintf(torn, sizeof torn, ", %" PRIu32 " clients in the middle of a call",
                       report->n_missing);
    psc_log(report->n_missing != 0 ? PSC_LOG_WARN : PSC_LOG_INFO,
            "checkpoint %s (%s) is made: %.3f s, %" PRIu64 " bytes, pushes held %.3f s%s%s", name,
            why, (double)report->took_us / 1e6, report->bytes, (double)report->held_us / 1e6,
            spread, torn);
}

/* ---- life ---- */

psc_status_t ps_server_rounds_create(const ps_server_rounds_options_t *options,
                                     ps_server_rounds_t **rounds_out, psc_error_t *error)
{
    ps_server_rounds_t *rounds = psc_alloc_zeroed(1, sizeof *rounds);
    if (rounds == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a server");
    rounds->options = *options;
    rounds->hands = (ps_round_hands_t){.context = rounds,
                                       .place = place,
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
    const ps_rounds_options_t of_rounds = {.rank = options->rank,
                                           .n_servers = options->n_servers,
                                           .every_us = options->every_us,
                                           .last = options->last,
                                           .hands = &rounds->hands};
    psc_status_t st = ps_rounds_create(&of_rounds, psc_clock_us(), &rounds->rounds, error);
    if (st != PSC_OK) {
        psc_free(rounds);
        return st;
    }
    ps_saver_offer(options->shard);
    *rounds_out = rounds;
    return PSC_OK;
}

void ps_server_rounds_destroy(ps_server_rounds_t *rounds)
{
    if (rounds == NULL)
        return;
    ps_rounds_destroy(rounds->rounds);
    psc_free(rounds);
}

void ps_server_rounds_ask(ps_server_rounds_t *rounds, bool passed_on)
{
    atomic_store(&rounds->asked[passed_on], true);
}

void ps_server_rounds_step(ps_server_rounds_t *rounds, uint64_t now_us, bool *progress_out)
{
    const ps_fellows_t *fellows = rounds->options.fellows;
    ps_round_word_t word;
    uint32_t from;
    for (int passed_on = 0; passed_on < 2; passed_on++) {
        if (!atomic_load_explicit(&rounds->asked[passed_on], memory_order_relaxed))
            continue;
        atomic_store(&rounds->asked[passed_on], false);
        ps_rounds_ask(rounds->rounds, rounds->options.rank, passed_on != 0, now_us);
    }
    if (ps_saver_is_wanted(rounds->options.shard))
        ps_rounds_ask_for_client(rounds->rounds);
    const bool hurries = ps_rounds_next(rounds->rounds) == 0;
    if (fellows != NULL && (hurries || now_us - rounds->heard_us >= HEAR_US)) {
        rounds->heard_us = now_us;
        while (fellows->hear(fellows->context, &word, &from)) {
            *progress_out = true;
            ps_rounds_hear(rounds->rounds, from, &word, now_us);
        }
    }
    ps_rounds_step(rounds->rounds, now_us, progress_out);
}

uint64_t ps_server_rounds_next(const ps_server_rounds_t *rounds)
{
    return ps_rounds_next(rounds->rounds);
}

psc_status_t ps_server_rounds_end(ps_server_rounds_t *rounds, psp_transport_t *transport,
                                  char saved_out[PSP_CHECKPOINT_NAME_MAX + 1],
                                  psc_error_t *fault_out, psc_error_t *error)
{
    const char *name;
    ps_rounds_leave(rounds->rounds);
    while (!ps_rounds_over(rounds->rounds, &name, fault_out)) {
        const uint64_t now_us = psc_clock_us();
        bool progress = false;
        psc_error_t ignored = PSC_ERROR_INIT;
        ps_shard_set_time(rounds->options.shard, now_us);
        psc_status_t st = ps_shard_poll(rounds->options.shard, &progress, error);
        if (st != PSC_OK)
            return st;
        ps_server_rounds_step(rounds, now_us, &progress);
        /* Replies to who left leave; TIMEOUT: not all have. */
        if (psp_transport_flush(transport, 0, &ignored) != PSC_OK && ignored.code != PSC_TIMEOUT)
            psc_log(PSC_LOG_DEBUG, "replies are stuck: %s", ignored.message);
        if (!progress)
            psp_transport_wait(transport, END_WAIT_US);
    }
    memcpy(saved_out, name, strlen(name) + 1);
    return PSC_OK;
}
