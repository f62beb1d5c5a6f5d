/*
 * How a shard stands, for its driver: who is there, who has left, and what waits.
 */
#include "ps/table/shard_state.h"

bool ps_shard_waits_for_store(const ps_request_t *request)
{
    return request != NULL &&
           (request->state == PS_REQUEST_WAIT_ROOM || request->state == PS_REQUEST_WAIT_ROWS ||
            request->state == PS_REQUEST_WAIT_SAVE);
}

uint32_t ps_shard_departed(const ps_shard_t *shard)
{
    return shard->sessions.n_departed;
}

bool ps_shard_finished(const ps_shard_t *shard)
{
    const ps_sessions_t *sessions = &shard->sessions;
    size_t n_waiting = 0;
    if (sessions->n == 0 || sessions->n_departed != sessions->n)
        return false;
    for (uint32_t i = 0; i < sessions->n; i++)
        n_waiting += sessions->all[i].n_requests;
    return n_waiting == 0 && !shard->summing && shard->sum.n_kept == 0 && shard->logger.n_held == 0;
}

uint32_t ps_shard_worst_status(const ps_shard_t *shard)
{
    return shard->sessions.worst_status;
}

size_t ps_shard_waiting(const ps_shard_t *shard, uint32_t peer)
{
    return peer == UINT32_MAX ? shard->n_waiting + shard->logger.n_held
                              : shard->sessions.all[peer].n_requests;
}

uint64_t ps_shard_deferred_bytes(const ps_shard_t *shard)
{
    return shard->sum.bytes;
}

size_t ps_shard_waiting_store(const ps_shard_t *shard)
{
    size_t n = shard->summing && ps_shard_waits_for_store(&shard->summed);
    for (uint32_t i = 0; shard->n_waiting != 0 && i < shard->sessions.n_all; i++)
        n += ps_shard_waits_for_store(shard->sessions.all[i].head);
    return n;
}
