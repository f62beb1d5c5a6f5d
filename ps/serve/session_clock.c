/*
 * Clock: all that the worker issued before is done in the clock that ends. Requests of a session
 * run in order, so by now its earlier pushes are applied. Pulls of others that waited for it are
 * tried again (shard.c). The reply tells the least clock and the sum of all workers' progress, as
 * far as they told this server, and who is still there. A guest's clock is its own, and it is told
 * that; on a server without workers it moves the time by which rows expire.
 */
#include "ps/serve/serve.h"

psc_status_t ps_serve_clock(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                            psc_error_t *error)
{
    const uint32_t peer = request->buffer->peer;
    const bool guest = ps_is_guest(&shard->sessions, peer);
    ps_account_hear(session, request->message.u.clock.pushed);
    ps_session_advance(&shard->sessions, peer, request->message.request.clock,
                       request->message.u.clock.progress);
    if (!guest || shard->sessions.n == 0)
        ps_shard_others_moved(shard);
    psp_message_t reply = {
        .kind = PSP_CLOCK_REPLY,
        .u.clock_reply = {.min_clock = guest ? session->clock : shard->sessions.min_clock,
                          .total_progress =
                              guest ? session->progress : ps_sessions_progress(&shard->sessions),
                          .first = ps_sessions_first(&shard->sessions),
                          .n_lost = shard->sessions.n_lost},
    };
    return ps_shard_reply(shard, request, &reply, error);
}
