/*
 * What each request kind does, one file a kind.
 *
 * A function is called when its request has become the oldest of its session (state QUEUED), and
 * again, from the start, when what it waits for may have come. It returns PSC_OK with the request
 * DONE (it has sent the reply) or in one of the waiting states; or an error, which the caller sends
 * as the reply. Errors of the store (ps_serve_is_fatal) end the shard.
 */
#ifndef PS_SERVE_SERVE_H
#define PS_SERVE_SERVE_H

#include "ps/table/shard_state.h"

typedef psc_status_t (*ps_serve_fn)(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                                    psc_error_t *error);

PSC_MUST_CHECK psc_status_t ps_serve_open_table(ps_shard_t *shard, ps_session_t *session,
                                                ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_pull(ps_shard_t *shard, ps_session_t *session,
                                          ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_push(ps_shard_t *shard, ps_session_t *session,
                                          ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_clock(ps_shard_t *shard, ps_session_t *session,
                                           ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_barrier(ps_shard_t *shard, ps_session_t *session,
                                             ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_stats(ps_shard_t *shard, ps_session_t *session,
                                           ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_goodbye(ps_shard_t *shard, ps_session_t *session,
                                             ps_request_t *request, psc_error_t *error);

/* Hello has no session yet: it is answered at once. Errors: the refusal, or NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_serve_hello(ps_shard_t *shard, uint32_t peer,
                                           const psp_message_t *message, psc_error_t *error);

/* Whether an error ends the shard rather than one request. */
static inline bool ps_serve_is_fatal(psc_status_t code)
{
    return code == PSC_IO || code == PSC_DISK_FULL || code == PSC_CORRUPT || code == PSC_NO_MEMORY;
}

#endif
