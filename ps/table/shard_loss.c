/*
 * Workers that are lost: fenced first, buried when all servers know how far it came.
 *
 * A server that takes a worker for lost stops serving it, so that what it knows of it stands still,
 * and tells the other servers, which do the same. Clocks of a worker end at different servers at
 * different moments; at staleness 0 a client tells a clock's end only when all servers have the
 * whole of it. So the furthest clock that any server knows counts on all: where its end has not
 * come, its pushes have. What lies behind it is the unfinished clock, for which the rule says what
 * counts. Until then the others wait for the fenced one, and no clock ends that might count it or
 * not. Threads: the owner's.
 */
#include "ps/table/shard_state.h"

bool ps_shard_expects(const ps_shard_t *shard, uint32_t worker)
{
    return shard->sessions.all[worker].state < PS_SESSION_FENCED;
}

void ps_shard_fence(ps_shard_t *shard, uint32_t worker, const char *why, ps_loss_t *loss_out)
{
    ps_session_t *session = &shard->sessions.all[worker];
    if (session->state < PS_SESSION_FENCED) {
        session->state = PS_SESSION_FENCED;
        session->lost = why;
        while (session->head != NULL)
            ps_shard_drop(shard, session, NULL, session->head);
    }
    *loss_out = (ps_loss_t){.clock = session->clock, .progress = session->progress};
}

psc_status_t ps_shard_bury(ps_shard_t *shard, uint32_t worker, const ps_loss_t *loss,
                           ps_loss_rule_t rule, psc_error_t *error)
{
    ps_session_t *session = &shard->sessions.all[worker];
    if (session->state == PS_SESSION_GONE)
        return PSC_OK;
    bool ended = loss->clock > session->clock; /* what is deferred is of its last whole clock */
    if (!ended && rule != PS_LOSS_CONTINUE)
        ps_shard_drop_deferred(shard, session);
    if (!ended && rule == PS_LOSS_ROLLBACK && session->pushed_at_once &&
        shard->sessions.worst_status < PSC_PEER_GONE) {
        shard->sessions.worst_status = PSC_PEER_GONE;
        shard->sessions.worst_worker = worker;
    }
    ps_session_advance(&shard->sessions, worker, loss->clock, loss->progress);
    ps_session_lose(&shard->sessions, worker);
    ps_calls_end(&shard->calls, worker);
    ps_shard_others_moved(shard);
    return ps_shard_settle(shard, error);
}

uint32_t ps_shard_lost(const ps_shard_t *shard)
{
    return shard->sessions.n_lost;
}
