/*
 * A transport around another one that lets every message take longer, as a slow network does. For
 * builds that measure (cmake -DEMBPS_DELAY=ON); released programs have nothing of it.
 *
 * In such a build each endpoint of each transport is wrapped when EMBPS_DELAY_US is set to a number
 * of microseconds above 0: for all ranks of a job or for none, and on one machine alone, since
 * sender and receiver go by the same clock.
 *
 * A message is given out no earlier than delay_us after it was sent, whatever both sides did in the
 * meantime; bandwidth and the order of a peer's messages are those of the inner transport.
 */
#ifndef PROTO_DELAY_TRANSPORT_H
#define PROTO_DELAY_TRANSPORT_H

#include "proto/transport.h"

/* What a message grows by between sender and receiver; neither of them sees it. */
#define PSP_DELAY_BYTES 8u

/* Microseconds by a clock that sender and receiver share. */
typedef uint64_t (*psp_delay_clock_fn)(void *context);

/*
 * inner: its messages may be PSP_DELAY_BYTES larger than the largest that is sent here. delay_us: 1
 * to 60,000,000. clock NULL: psc_clock_us. Errors: INVALID_ARGUMENT, NO_MEMORY; inner is then the
 * caller's. Takes inner, borrows clock_context. Gives.
 */
PSC_MUST_CHECK psc_status_t psp_delay_create(psp_transport_t *inner, uint64_t delay_us,
                                             psp_delay_clock_fn clock, void *clock_context,
                                             psp_transport_t **transport_out, psc_error_t *error);

/*
 * For the makers of transports: wraps *transport if this build has delays and EMBPS_DELAY_US asks
 * for one. Errors: those of psp_delay_create (INVALID_ARGUMENT also for a value that is no such
 * number); *transport is then as it was.
 */
#ifdef EMBPS_DELAY
#define PSP_DELAY_ROOM PSP_DELAY_BYTES /* by which a limit of messages may be exceeded */
PSC_MUST_CHECK psc_status_t psp_delay_wrap(psp_transport_t **transport, psc_error_t *error);
#else
#define PSP_DELAY_ROOM 0u
static inline PSC_MUST_CHECK psc_status_t psp_delay_wrap(psp_transport_t **transport,
                                                         psc_error_t *error)
{
    (void)transport;
    (void)error;
    return PSC_OK;
}
#endif

#endif
