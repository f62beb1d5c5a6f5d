/*
 * Sessions in an array by worker rank.
 *
 * Invariant: min_clock is the least clock of the sessions that are not gone (UINT64_MAX when all
 * are), so that a pull compares one number; it is computed anew, O(W), whenever a clock or a
 * session moves, which is rare beside pulls. An awaited worker counts with clock 0: a run in step
 * does not start before all are there. Threads: the owner's.
 */
#include "ps/table/session.h"

#include "common/alloc.h"
#include "common/hash.h"

#include <inttypes.h>

static void recompute(ps_sessions_t *sessions)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < sessions->n; i++) {
        const ps_session_t *session = &sessions->all[i];
        if (session->state != PS_SESSION_GONE && session->clock < least)
            least = session->clock;
    }
    sessions->min_clock = least;
    if (least != UINT64_MAX && least > sessions->time)
        sessions->time = least;
}

psc_status_t ps_sessions_init(ps_sessions_t *sessions, uint32_t n, uint32_t n_guests,
                              psc_error_t *error)
{
    *sessions = (ps_sessions_t){.n = n, .n_all = n};
    sessions->all = psc_alloc_zeroed((size_t)n + n_guests, sizeof *sessions->all);
    if (sessions->all == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %" PRIu32 " sessions", n);
    return PSC_OK;
}

void ps_sessions_clear(ps_sessions_t *sessions)
{
    psc_free(sessions->all);
    sessions->all = NULL;
}

psc_status_t ps_session_begin(ps_sessions_t *sessions, uint32_t worker, uint64_t cluster,
                              uint32_t rank, psc_error_t *error)
{
    ps_session_t *session = &sessions->all[worker];
    if (session->state != PS_SESSION_AWAITED)
        return psc_error_set(error, PSC_IN_USE, "worker %" PRIu32 " has already %s", worker,
                             session->state == PS_SESSION_LIVE ? "said hello" : "left");
    /* Both steps are bijective, so that numbers of one run differ whatever the server. */
    while (session->id == 0)
        session->id =
            psc_mix64(cluster + psc_mix64((uint64_t)rank << 48 ^ (sessions->n_given++ + 1)));
    session->state = PS_SESSION_LIVE;
    return PSC_OK;
}

void ps_session_end(ps_sessions_t *sessions, uint32_t worker, uint32_t status)
{
    ps_session_t *session = &sessions->all[worker];
    if (session->state == PS_SESSION_GONE)
        return;
    session->state = PS_SESSION_GONE;
    session->status = status;
    sessions->n_departed++;
    /* Whose peer is gone was refused for the failure of another one. */
    if (status > sessions->worst_status &&
        (sessions->worst_status == 0 || status != PSC_PEER_GONE)) {
        sessions->worst_status = status;
        sessions->worst_worker = worker;
    }
    recompute(sessions);
}

void ps_session_lose(ps_sessions_t *sessions, uint32_t worker)
{
    ps_session_t *session = &sessions->all[worker];
    if (session->state == PS_SESSION_GONE)
        return;
    session->state = PS_SESSION_GONE;
    sessions->n_departed++;
    sessions->n_lost++;
    recompute(sessions);
}

uint32_t ps_sessions_first(const ps_sessions_t *sessions)
{
    for (uint32_t i = 0; i < sessions->n; i++) {
        if (sessions->all[i].state < PS_SESSION_FENCED)
            return i;
    }
    return 0;
}

void ps_session_advance(ps_sessions_t *sessions, uint32_t worker, uint64_t clock, uint64_t progress)
{
    ps_session_t *session = &sessions->all[worker];
    if (progress > session->progress)
        session->progress = progress;
    if (clock > session->clock) {
        session->clock = clock;
        session->pushed_at_once = false;
        if (!ps_is_guest(sessions, worker))
            recompute(sessions);
        else if (sessions->n == 0 && clock != UINT64_MAX && clock > sessions->time)
            sessions->time = sessions->min_clock = clock;
    }
}

uint64_t ps_sessions_progress(const ps_sessions_t *sessions)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < sessions->n; i++)
        sum += sessions->all[i].progress;
    return sum;
}

bool ps_sessions_all_reached(const ps_sessions_t *sessions, uint64_t generation)
{
    for (uint32_t i = 0; i < sessions->n; i++) {
        const ps_session_t *session = &sessions->all[i];
        if (session->state != PS_SESSION_GONE && session->barriers <= generation)
            return false;
    }
    return true;
}

void ps_session_enqueue(ps_session_t *session, ps_request_t *request)
{
    request->next = NULL;
    if (session->tail != NULL)
        session->tail->next = request;
    else
        session->head = request;
    session->tail = request;
    session->n_requests++;
}

void ps_session_defer(ps_session_t *session, ps_request_t *request)
{
    request->next = NULL;
    if (session->deferred_tail != NULL)
        session->deferred_tail->next = request;
    else
        session->deferred = request;
    session->deferred_tail = request;
}

ps_request_t *ps_session_take_deferred(ps_session_t *session)
{
    ps_request_t *request = session->deferred;
    if (request == NULL)
        return NULL;
    session->deferred = request->next;
    if (session->deferred == NULL)
        session->deferred_tail = NULL;
    return request;
}

ps_request_t *ps_session_dequeue(ps_session_t *session)
{
    ps_request_t *request = session->head;
    session->head = request->next;
    if (session->head == NULL)
        session->tail = NULL;
    session->n_requests--;
    return request;
}

void ps_session_unlink(ps_session_t *session, ps_request_t *previous, ps_request_t *request)
{
    previous->next = request->next;
    if (session->tail == request)
        session->tail = previous;
    request->next = NULL;
    session->n_requests--;
}
