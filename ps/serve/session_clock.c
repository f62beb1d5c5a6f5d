/*
 * Clock: all that the worker issued before is done in the clock that ends. Requests of a session
 * run in order, so by now its earlier pushes are applied. Pulls of others that waited for it are
 * tried again (shard.c). The reply tells the least clock and the sum of all workers' progress, as
 * far as they told this server.
 */
#include "ps/serve/serve.h"

psc_status_t ps_serve_clock(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                            psc_error_t *error)
{
    (void)session;
    ps_session_advance(&shard->sessions, request->buffer->peer, request->message.request.clock,
                       request->message.u.clock.progress);
    ps_shard_others_moved(shard);
    psp_message_t reply = {
        .kind = PSP_CLOCK_REPLY,
        .u.clock_reply = {.min_clock = shard->sessions.min_clock,
                          .total_progress = ps_sessions_progress(&shard->sessions)},
    };
    return ps_shard_reply(shard, request, &reply, error);
}
