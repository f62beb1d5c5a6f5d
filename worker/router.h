/* Which server each row of a batch belongs to: a batch, sorted by owner. */
#ifndef WORKER_ROUTER_H
#define WORKER_ROUTER_H

#include "common/slots.h"

typedef struct psw_router psw_router_t;

/* One thread at a time. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_router_create(psw_router_t **router_out, psc_error_t *error);
/* NULL is a no-op. */
void psw_router_destroy(psw_router_t *router);

/*
 * Sorts items 0..n-1 by the owner of their row hashes [n]; items of one owner keep their order.
 * order_out [n] gets the label of each item in that order; labels NULL: the item's index.
 * *start_out [n_servers + 1]: order_out[start[s]] .. order_out[start[s + 1] - 1] belong to server
 * s; borrowed until the next call. n is below 2^32. Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_router_split(psw_router_t *router, const psc_slot_map_t *map,
                                             const uint64_t *hashes, const uint32_t *labels,
                                             size_t n, uint32_t *order_out,
                                             const uint32_t **start_out, psc_error_t *error);

#endif
