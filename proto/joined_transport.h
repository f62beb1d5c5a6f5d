/*
 * Two transports as one: the job's, with its peers, and one whose messages come by calls (guests).
 *
 * An answer to a call goes the way its request came; all else is the first one's. The second has to
 * wake the first when a message arrives (psp_transport_wake), since the wait is the first one's.
 */
#ifndef PROTO_JOINED_TRANSPORT_H
#define PROTO_JOINED_TRANSPORT_H

#include "proto/transport.h"

/* Errors: NO_MEMORY; both are then the caller's. Takes both on success. Gives. */
PSC_MUST_CHECK psc_status_t psp_joined_create(psp_transport_t *first, psp_transport_t *second,
                                              psp_transport_t **transport_out, psc_error_t *error);

#endif
