/*
 * Goodbye: the end of a session, with the exit status of the worker. It comes after all requests
 * that the worker sent before; from its arrival on, those wait for no other worker (shard.c). It
 * ends the clock that was under way; that of a worker that failed counts for nothing. A guest
 * leaves its seat, and how it fared is nobody else's matter.
 */
#include "ps/serve/serve.h"

psc_status_t ps_serve_goodbye(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                              psc_error_t *error)
{
    const uint32_t peer = request->buffer->peer;
    request->state = PS_REQUEST_DONE;
    if (ps_is_guest(&shard->sessions, peer)) {
        ps_guests_end(shard, peer);
        return ps_shard_reply_bare(shard, request, NULL, error);
    }
    if (request->message.u.goodbye.status != 0)
        ps_shard_drop_deferred(shard, session);
    ps_session_end(&shard->sessions, peer, request->message.u.goodbye.status);
    ps_shard_others_moved(shard);
    return ps_shard_reply_bare(shard, request, NULL, error);
}
