/*
 * Whether whoever sent a request may have what it asks for. Requests of ranks, and of guests where
 * no tokens are asked for, are all allowed; of others it is what their token says (proto/rights.h).
 */
#ifndef PS_TABLE_PERMIT_H
#define PS_TABLE_PERMIT_H

#include "proto/rights.h"
#include "ps/table/request.h"
#include "ps/table/shard.h"

/*
 * Before a request is served. A shard for reading only refuses all that changes it, whoever asks.
 * Kinds that create or list tables are let through: they ask below. One of a table that does not
 * exist is let through too, since it fails anyway. Errors: DENIED, naming table and right, or kind.
 */
PSC_MUST_CHECK psc_status_t ps_permit_request(const ps_shard_t *shard, const ps_request_t *request,
                                              psc_error_t *error);

/* Where the shard is for reading only, what changes it; what: the change, for the message. Errors:
 * DENIED. */
PSC_MUST_CHECK psc_status_t ps_permit_change(const ps_shard_t *shard, const char *what,
                                             psc_error_t *error);

/* One of these rights for a table of this name. Errors: as above. */
PSC_MUST_CHECK psc_status_t ps_permit_table(const ps_request_t *request, const char *table,
                                            unsigned right, psc_error_t *error);

#endif
