/*
 * Sightings and votes, by worker.
 *
 * A worker is taken for lost by the first server that sees it gone; the others follow its vote, so
 * a decision needs one round of messages and no coordinator: every server sends its vote once to
 * every other, and each comes to the same maximum when it has all. Between the vote and the
 * decision a server serves the worker no more, so its vote stays true. A server that dies ends the
 * job, so nobody waits for its vote for long. Threads: none.
 */
#include "ps/watch.h"

#include "common/alloc.h"

#include <inttypes.h>

#define GONE_US UINT64_C(500000)
#define UNTOLD_US UINT64_C(5000000)
#define LOOK_US UINT64_C(200000) /* of the time between two looks, what counts as silence */

typedef struct watched {
    uint64_t gone_us, stopped_us; /* since when it was seen so; 0: it was not */
    uint64_t beats, silent_us;    /* signs of life so far; how long no more have come */
    uint64_t looked_us;
    ps_loss_t furthest;
    uint32_t n_votes;
    bool decided;
} watched_t;

struct ps_watch {
    uint32_t n_workers, n_servers;
    uint64_t stopped_us;
    watched_t *workers;
    bool *voted; /* [n_workers, n_servers] */
};

psc_status_t ps_watch_create(uint32_t n_workers, uint32_t n_servers, uint64_t stopped_us,
                             ps_watch_t **watch_out, psc_error_t *error)
{
    ps_watch_t *watch = psc_alloc_zeroed(1, sizeof *watch);
    if (watch != NULL) {
        *watch =
            (ps_watch_t){.n_workers = n_workers, .n_servers = n_servers, .stopped_us = stopped_us};
        watch->workers = psc_alloc_zeroed(n_workers, sizeof *watch->workers);
        watch->voted = psc_alloc_zeroed((size_t)n_workers * n_servers, sizeof *watch->voted);
    }
    if (watch == NULL || watch->workers == NULL || watch->voted == NULL) {
        ps_watch_destroy(watch);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory to watch %" PRIu32 " workers",
                             n_workers);
    }
    *watch_out = watch;
    return PSC_OK;
}

void ps_watch_destroy(ps_watch_t *watch)
{
    if (watch == NULL)
        return;
    psc_free(watch->workers);
    psc_free(watch->voted);
    psc_free(watch);
}

/* Whether it has been so since at least limit_us. *since_us: see watched_t. */
static bool lasts(bool so, uint64_t *since_us, uint64_t now_us, uint64_t limit_us)
{
    if (!so)
        *since_us = 0;
    else if (*since_us == 0)
        *since_us = now_us != 0 ? now_us : 1;
    return so && now_us - *since_us >= limit_us;
}

/* Whether it has given no sign of life for as long as it may be stopped, though it used to. */
static bool is_silent(const ps_watch_t *watch, watched_t *watched, const ps_sight_t *seen,
                      uint64_t now_us)
{
    const uint64_t passed_us = now_us - watched->looked_us;
    watched->looked_us = now_us;
    if (seen->state != PSC_PROCESS_ELSEWHERE || seen->beats != watched->beats || seen->beats == 0)
        watched->silent_us = 0;
    else
        watched->silent_us += passed_us < LOOK_US ? passed_us : LOOK_US;
    watched->beats = seen->beats;
    return watch->stopped_us != 0 && watched->silent_us >= watch->stopped_us;
}

bool ps_watch_see(ps_watch_t *watch, uint32_t worker, const ps_sight_t *seen, uint64_t now_us,
                  ps_why_t *why_out)
{
    watched_t *watched = &watch->workers[worker];
    bool gone = lasts(seen->state == PSC_PROCESS_GONE, &watched->gone_us, now_us,
                      seen->told ? GONE_US : UNTOLD_US);
    bool stopped =
        lasts(seen->state == PSC_PROCESS_STOPPED, &watched->stopped_us, now_us, watch->stopped_us);
    bool silent = is_silent(watch, watched, seen, now_us);
    *why_out = gone ? PS_WHY_GONE : silent ? PS_WHY_SILENT : PS_WHY_STOPPED;
    return gone || silent || (stopped && watch->stopped_us != 0);
}

void ps_watch_vote(ps_watch_t *watch, uint32_t server, const ps_vote_t *vote)
{
    if (vote->worker >= watch->n_workers || server >= watch->n_servers ||
        ps_watch_voted(watch, vote->worker, server))
        return;
    watched_t *watched = &watch->workers[vote->worker];
    watch->voted[(size_t)vote->worker * watch->n_servers + server] = true;
    watched->n_votes++;
    if (vote->loss.clock > watched->furthest.clock)
        watched->furthest.clock = vote->loss.clock;
    if (vote->loss.progress > watched->furthest.progress)
        watched->furthest.progress = vote->loss.progress;
}

bool ps_watch_voted(const ps_watch_t *watch, uint32_t worker, uint32_t server)
{
    return watch->voted[(size_t)worker * watch->n_servers + server];
}

bool ps_watch_decided(ps_watch_t *watch, uint32_t worker, ps_loss_t *loss_out)
{
    watched_t *watched = &watch->workers[worker];
    if (watched->decided || watched->n_votes < watch->n_servers)
        return false;
    watched->decided = true;
    *loss_out = watched->furthest;
    return true;
}

const char *ps_why_text(ps_why_t why)
{
    switch (why) {
    case PS_WHY_GONE:
        return "its process is gone";
    case PS_WHY_SILENT:
        return "its process gave no sign of life for too long";
    case PS_WHY_STOPPED:
        break;
    }
    return "its process stood still for too long";
}
