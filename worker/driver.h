/* Moves the messages of a core over a transport, on the calling thread. Internal to worker/. */
#ifndef WORKER_DRIVER_H
#define WORKER_DRIVER_H

#include "proto/transport.h"
#include "worker/core.h"

/* Asked when no message comes: PSC_OK while servers can still answer, otherwise why they cannot. */
typedef psc_status_t (*psw_alive_fn)(void *context, psc_error_t *error);

/* Finds the servers anew, for a stale core, and goes on with them: core and transport of the driver
 * are then of those. Waits for it. Errors: why that is not possible, which ends the core. */
typedef psc_status_t (*psw_renew_fn)(void *context, psc_error_t *error);

/* Plain data, filled by its owner; borrows all. */
typedef struct psw_driver {
    psw_core_t *core;
    psp_transport_t *transport;
    psw_alive_fn alive; /* NULL: the transport itself reports what dies */
    void *alive_context;
    psw_renew_fn renew; /* NULL: the core never gets stale */
    void *renew_context;
} psw_driver_t;

/* Sends what may leave and takes what is there, without waiting. Errors: what ended the core. */
PSC_MUST_CHECK psc_status_t psw_driver_step(psw_driver_t *driver, bool *moved_out,
                                            psc_error_t *error);

/* Until request is done. Errors: what ended the core; the request is then done with that error. The
 * request's own error is not returned here. */
PSC_MUST_CHECK psc_status_t psw_driver_wait(psw_driver_t *driver, const psw_request_t *request,
                                            psc_error_t *error);

/* Moves something, or waits until about until_us of psc_clock_us for it. Errors: what ended the
 * core. */
PSC_MUST_CHECK psc_status_t psw_driver_pause(psw_driver_t *driver, uint64_t until_us,
                                             psc_error_t *error);

/* Until no part is under way. Errors: what ended the core. */
PSC_MUST_CHECK psc_status_t psw_driver_wait_idle(psw_driver_t *driver, psc_error_t *error);

/* Until at most bytes are queued for server, or the core is stale: what is in the middle of being
 * made is then enqueued as a whole, and goes to other servers. Errors: what ended the core. */
PSC_MUST_CHECK psc_status_t psw_driver_wait_room(psw_driver_t *driver, uint32_t server,
                                                 size_t bytes, psc_error_t *error);

/* For a client that ends in failure: ends the core with error, tells all servers status, and lets
 * the messages leave for at most timeout_us. Faults are not reported: there is nobody to act on
 * them. */
void psw_driver_leave(psw_driver_t *driver, const psc_error_t *error, uint32_t status,
                      uint64_t timeout_us);

#endif
