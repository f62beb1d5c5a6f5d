/*
 * What each request kind does, one file a kind, and the table of them that a shard is given.
 *
 * A function is called when its request has become the oldest of its session (state QUEUED), and
 * again, from the start, when what it waits for may have come. It returns PSC_OK with the request
 * DONE (it has sent the reply) or in one of the waiting states; or an error, which the shard sends
 * as the reply. Errors of the store and of memory end the shard.
 */
#ifndef PS_SERVE_SERVE_H
#define PS_SERVE_SERVE_H

#include "ps/table/permit.h"
#include "ps/table/shard_state.h"

/* By psp_kind_t: psp_kind_t kinds that are no requests have NULL. */
extern const ps_serve_fn ps_serve_functions[PS_KINDS];

/* Makes a table of a number that is free. Errors: INVALID_ARGUMENT (does not fit), NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_serve_make_table(ps_shard_t *shard, uint32_t number,
                                                const ps_table_t *wanted, ps_table_t **table_out,
                                                psc_error_t *error);

/* All counters of a server, as Stats tells them; names are static. Returns how many. */
size_t ps_serve_counters(const ps_shard_t *shard, psp_counter_t counters_out[PSP_COUNTERS_MAX]);

PSC_MUST_CHECK psc_status_t ps_serve_hello(ps_shard_t *shard, ps_session_t *session,
                                           ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_open_table(ps_shard_t *shard, ps_session_t *session,
                                                ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_find_table(ps_shard_t *shard, ps_session_t *session,
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
PSC_MUST_CHECK psc_status_t ps_serve_prefetch(ps_shard_t *shard, ps_session_t *session,
                                              ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_goodbye(ps_shard_t *shard, ps_session_t *session,
                                             ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_attach(ps_shard_t *shard, ps_session_t *session,
                                            ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_checkpoint(ps_shard_t *shard, ps_session_t *session,
                                                ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_touches(ps_shard_t *shard, ps_session_t *session,
                                             ps_request_t *request, psc_error_t *error);

PSC_MUST_CHECK psc_status_t ps_serve_export(ps_shard_t *shard, ps_session_t *session,
                                            ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_import(ps_shard_t *shard, ps_session_t *session,
                                            ps_request_t *request, psc_error_t *error);
PSC_MUST_CHECK psc_status_t ps_serve_watch(ps_shard_t *shard, ps_session_t *session,
                                           ps_request_t *request, psc_error_t *error);

#endif
