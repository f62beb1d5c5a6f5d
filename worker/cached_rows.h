/*
 * Pulls and pushes of a client with a cache: what drives worker/cache/. Internal to worker/.
 */
#ifndef WORKER_CACHED_ROWS_H
#define WORKER_CACHED_ROWS_H

#include "worker/client_state.h"

/* A cache for the client, or none (bytes 0). Sends what an earlier one had accumulated, and waits
 * for it. Errors: INVALID_ARGUMENT, NO_MEMORY, those of pushes. */
PSC_MUST_CHECK psc_status_t psw_cached_set(embps_client_t *client, size_t bytes,
                                           psc_error_t *error);
/* Without a word to anyone. */
void psw_cached_destroy(psw_cached_t *cached);

/*
 * As psw_issue_pull and psw_issue_push, through the client's cache if it has one that is on and
 * that keeps rows of this table. What was accumulated and has to be seen by the call leaves first.
 * Errors: also those of pushes that the cache made before, once.
 */
PSC_MUST_CHECK psc_status_t psw_cached_pull(embps_table_t *table, const psw_pull_options_t *options,
                                            psw_room_t room, psw_issued_t *issued_out,
                                            psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_cached_push(embps_table_t *table, const psw_push_options_t *options,
                                            psw_room_t room, psw_issued_t *issued_out,
                                            psc_error_t *error);

/*
 * As psw_issue_prefetch, through such a cache: rows that it will have to ask for are pulled now, so
 * that it can serve them then; those that it cannot keep are announced to their servers; the others
 * are there. Errors: NO_MEMORY, what ended the core.
 */
PSC_MUST_CHECK psc_status_t psw_cached_prefetch(embps_table_t *table,
                                                const psw_prefetch_options_t *options,
                                                size_t *n_dropped_out, psc_error_t *error);

/* The clock that is there ends: deltas that are due leave, without waiting for answers. Errors: as
 * psw_cached_push. */
PSC_MUST_CHECK psc_status_t psw_cached_flush_due(embps_client_t *client, psc_error_t *error);
/* All of them do. */
PSC_MUST_CHECK psc_status_t psw_cached_flush_all(embps_client_t *client, psc_error_t *error);
/* The client's clock has moved. */
void psw_cached_clock(embps_client_t *client);
/* Copies are to be asked for before they are served again. */
void psw_cached_expire(embps_client_t *client);
/* A table was opened again: epochs tells whether it has other ones. */
void psw_cached_reopened(embps_client_t *client, uint32_t table, bool other_epoch);

/* Zeros without a cache. */
void psw_cached_counters(const embps_client_t *client, psw_cache_counters_t *counters_out);

/* The first error of a push that the cache made, once; takes what is answered. */
PSC_MUST_CHECK psc_status_t psw_cached_collect(embps_client_t *client, psc_error_t *error);

#endif
