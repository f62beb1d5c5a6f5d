/*
 * Deadlines: pulls that are answered when their time is up, with the rows that are there.
 *
 * The shard has no clock: the driver tells the time (ps_shard_set_time), and asks when it has to
 * call again (ps_shard_next_deadline). Nothing is sorted: `next_deadline_us` is a lower bound of
 * all deadlines in the queues, and when it passes all requests that wait are looked at, which are
 * as few as the driver lets wait.
 *
 * What a pull's function does with its last chance is its own (ps/serve/pull.c). A request behind
 * others of its session must not overtake them: it is told to answer without any row.
 *
 * Threads: the owner's.
 */
#include "ps/table/shard_state.h"

void ps_shard_set_time(ps_shard_t *shard, uint64_t now_us)
{
    shard->now_us = now_us;
}

uint64_t ps_shard_next_deadline(const ps_shard_t *shard)
{
    const uint64_t deadline_us = shard->n_waiting != 0 ? shard->next_deadline_us : UINT64_MAX;
    const uint64_t watch_us = ps_watchers_next(shard);
    return deadline_us < watch_us ? deadline_us : watch_us;
}

void ps_shard_note_deadline(ps_shard_t *shard, ps_request_t *request)
{
    uint32_t deadline_ms = request->message.request.deadline_ms;
    if (request->message.kind != PSP_PULL || deadline_ms == 0)
        return;
    request->deadline_us = shard->now_us + (uint64_t)deadline_ms * 1000;
    if (request->deadline_us < shard->next_deadline_us)
        shard->next_deadline_us = request->deadline_us;
}

/* Answers what is overdue in one session. */
static psc_status_t expire_session(ps_shard_t *shard, uint32_t peer, psc_error_t *error)
{
    ps_session_t *session = &shard->sessions.all[peer];
    ps_request_t *previous = NULL;
    bool moved = false;
    for (ps_request_t *request = session->head; request != NULL;) {
        ps_request_t *next = request->next;
        if (request->deadline_us == 0 || request->deadline_us > shard->now_us) {
            if (request->deadline_us != 0 && request->deadline_us < shard->next_deadline_us)
                shard->next_deadline_us = request->deadline_us;
            previous = request;
            request = next;
            continue;
        }
        request->overdue = true;
        request->behind = previous != NULL;
        psc_status_t st = ps_shard_serve(shard, peer, request, error);
        if (st != PSC_OK)
            return st; /* the shard has failed, and dropped them all */
        PSC_BUG_ON(request->state != PS_REQUEST_DONE);
        moved = moved || previous == NULL;
        ps_shard_drop(shard, session, previous, request);
        request = next;
    }
    return moved ? ps_shard_advance(shard, peer, error) : PSC_OK;
}

psc_status_t ps_shard_expire(ps_shard_t *shard, psc_error_t *error)
{
    if (shard->now_us < shard->next_deadline_us || shard->n_waiting == 0)
        return PSC_OK;
    shard->next_deadline_us = UINT64_MAX;
    for (uint32_t i = 0; i < shard->sessions.n_all; i++) {
        psc_status_t st = expire_session(shard, i, error);
        if (st != PSC_OK)
            return st;
    }
    return PSC_OK;
}
