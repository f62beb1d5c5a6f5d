/*
 * Barrier: answered when all workers that are still there have reached this generation. A
 * generation is the number of barriers that a worker passed before, so a barrier that comes twice
 * counts once. Who has left or was lost does not count; who is leaving does not wait. The reply
 * tells who is still there. A guest is the only one of its barriers.
 */
#include "ps/serve/serve.h"

#include <inttypes.h>

psc_status_t ps_serve_barrier(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                              psc_error_t *error)
{
    uint64_t generation = request->message.u.barrier.generation;
    if (ps_is_guest(&shard->sessions, request->buffer->peer)) {
        psp_message_t reply = {.kind = PSP_BARRIER_REPLY};
        return ps_shard_reply(shard, request, &reply, error);
    }
    if (request->state == PS_REQUEST_QUEUED && session->barriers <= generation) {
        session->barriers = generation + 1;
        shard->others_changed = true;
    }
    if (!ps_sessions_all_reached(&shard->sessions, generation)) {
        if (session->state == PS_SESSION_LEAVING)
            return psc_error_set(error, PSC_INTERRUPTED,
                                 "worker %" PRIu32 " leaves before the others reach its barrier",
                                 request->buffer->peer);
        request->state = PS_REQUEST_WAIT_OTHERS;
        return PSC_OK;
    }
    psp_message_t reply = {
        .kind = PSP_BARRIER_REPLY,
        .u.barrier_reply = {.first = ps_sessions_first(&shard->sessions),
                            .n_lost = shard->sessions.n_lost},
    };
    return ps_shard_reply(shard, request, &reply, error);
}
