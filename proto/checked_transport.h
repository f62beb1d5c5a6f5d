/*
 * Around another transport between ranks: every message is sealed (seal.h), and one that comes
 * damaged is sent again, so that whoever uses this one gets what was sent, whole and in order.
 *
 *     psp_checked_create(inner, NULL, NULL, &transport, error);
 *
 * Both ends must have it. The pool's messages must have room for seals (psp_pool_seal); others are
 * copied. Threads: as the inner transport.
 */
#ifndef PROTO_CHECKED_TRANSPORT_H
#define PROTO_CHECKED_TRANSPORT_H

#include "proto/transport.h"

/* Kinds of this transport's own messages, which are seals and nothing else. */
#define PSP_TAG_AGAIN 0x7eu
#define PSP_TAG_COUNTS 0x7fu

/* First and longest rest between two requests to send a message again, and how many there are in a
 * row. */
#define PSP_CHECKED_REST_US UINT64_C(5000)
#define PSP_CHECKED_LONGEST_REST_US UINT64_C(200000)
#define PSP_CHECKED_ATTEMPTS 100u

/* The time in microseconds, of any clock that never goes back. */
typedef uint64_t (*psp_checked_clock_fn)(void *context);

/* clock: NULL: the machine's. Takes inner, but not on error. poll: also CORRUPT, naming peer, kind
 * and size, when PSP_CHECKED_ATTEMPTS in a row came damaged. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_checked_create(psp_transport_t *inner, psp_checked_clock_fn clock,
                                               void *clock_context, psp_transport_t **transport_out,
                                               psc_error_t *error);

#endif
