/*
 * Transport within one process: a queue per endpoint. Messages move as pointers.
 */
#ifndef PROTO_LOCAL_LOCAL_TRANSPORT_H
#define PROTO_LOCAL_LOCAL_TRANSPORT_H

#include "proto/transport.h"

/*
 * One server endpoint with n_workers peers, and n_workers worker endpoints (clients_out, an array
 * of n_workers) with one peer. Each endpoint is used by one thread and destroyed by itself, in any
 * order; what is sent to a destroyed endpoint is PEER_GONE. Pool must outlive them.
 * Errors: NO_MEMORY, INVALID_ARGUMENT. Gives all.
 */
PSC_MUST_CHECK psc_status_t psp_local_create(uint32_t n_workers, psp_pool_t *pool,
                                             psp_transport_t **server_out,
                                             psp_transport_t **clients_out, psc_error_t *error);

#endif
