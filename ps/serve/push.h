/* What a push and an import have in common. */
#ifndef PS_SERVE_PUSH_H
#define PS_SERVE_PUSH_H

#include "ps/serve/serve.h"

/* Whether it is an import of whole rows, which brings their counts: rows that an export told, whose
 * values are taken as they are, finite or not. */
bool ps_push_restores(const ps_request_t *request);

/* Finds the table of a push or import, and refuses what can be refused of its rows. Errors:
 * NOT_FOUND, MISMATCH, PROTOCOL (no sequence), INVALID_ARGUMENT. */
PSC_MUST_CHECK psc_status_t ps_push_check(ps_shard_t *shard, ps_request_t *request,
                                          psc_error_t *error);

/* *done_out: it is applied; else request->state says what it waits for. Errors: the store's,
 * INVALID_ARGUMENT (an id of another server), NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_push_apply_when_ready(ps_shard_t *shard, ps_request_t *request,
                                                     bool *done_out, psc_error_t *error);

#endif
