/*
 * The loop between core and transport: send, poll, and only when neither moved, wait.
 *
 * The transport decides how to wait (spin, sleep, futex); the time given here only bounds how late
 * a dead server is noticed. A transport error ends the core, so every caller gets the same error
 * then and later. Time is told to the core here: before messages are taken, and what has waited
 * too long ends when no more are there. The order "no message, then ask alive, then poll once more"
 * matters: a server enqueues its last replies before it is marked as ended. A stale core is renewed
 * at the beginning of a step, when whoever calls still waits for something. Threads: the client's
 * own; nothing is shared.
 */
#include "worker/driver.h"

#include "common/clock.h"

#define WAIT_US UINT64_C(100000)

static psc_status_t end(psw_driver_t *driver, const psc_error_t *what, psc_error_t *error)
{
    psw_core_fail(driver->core, what);
    return psw_core_state(driver->core, error);
}

/* Sends and receives until nothing more moves. */
static psc_status_t move(psw_driver_t *driver, bool *moved_out, psc_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    *moved_out = false;
    psw_core_set_time(driver->core, psc_clock_us());
    for (;;) {
        psp_buffer_t *buffer;
        while ((buffer = psw_core_next(driver->core)) != NULL) {
            *moved_out = true;
            if (psp_transport_send(driver->transport, buffer->peer, buffer, &what) != PSC_OK)
                return end(driver, &what, error);
        }
        if (psp_transport_poll(driver->transport, &buffer, &what) != PSC_OK)
            return end(driver, &what, error);
        if (buffer == NULL && !psw_core_expire(driver->core))
            return PSC_OK;
        *moved_out = true;
        if (buffer == NULL)
            continue;
        psc_status_t st = psw_core_receive(driver->core, buffer, error);
        if (st != PSC_OK)
            return st;
    }
}

psc_status_t psw_driver_step(psw_driver_t *driver, bool *moved_out, psc_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = psw_core_state(driver->core, error);
    if (st == PSC_OK && psw_core_may_relay(driver->core) &&
        driver->renew(driver->renew_context, &what) != PSC_OK)
        st = end(driver, &what, error);
    if (st == PSC_OK)
        st = move(driver, moved_out, error);
    if (st != PSC_OK || *moved_out || driver->alive == NULL ||
        driver->alive(driver->alive_context, &what) == PSC_OK)
        return st;
    st = move(driver, moved_out, error);
    if (st == PSC_OK && !*moved_out && !psw_core_idle(driver->core))
        st = end(driver, &what, error);
    return st;
}

/* How long nothing needs to be looked at, until until_us at most. */
static uint64_t wait_us(const psw_core_t *core, uint64_t until_us)
{
    uint64_t deadline_us = psw_core_next_deadline(core), now_us = psc_clock_us();
    deadline_us = deadline_us < until_us ? deadline_us : until_us;
    if (deadline_us > now_us + WAIT_US)
        return WAIT_US;
    return deadline_us > now_us ? deadline_us - now_us : 1;
}

psc_status_t psw_driver_pause(psw_driver_t *driver, uint64_t until_us, psc_error_t *error)
{
    bool moved;
    psc_status_t st = psw_driver_step(driver, &moved, error);
    if (st == PSC_OK && !moved)
        psp_transport_wait(driver->transport, wait_us(driver->core, until_us));
    return st;
}

/* Moves something, or waits a while for it. */
static psc_status_t advance(psw_driver_t *driver, psc_error_t *error)
{
    return psw_driver_pause(driver, UINT64_MAX, error);
}

psc_status_t psw_driver_wait(psw_driver_t *driver, const psw_request_t *request, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && !psw_request_done(request))
        st = advance(driver, error);
    return st;
}

psc_status_t psw_driver_wait_idle(psw_driver_t *driver, psc_error_t *error)
{
    psc_status_t st = psw_core_state(driver->core, error);
    while (st == PSC_OK && !psw_core_idle(driver->core))
        st = advance(driver, error);
    return st;
}

psc_status_t psw_driver_wait_room(psw_driver_t *driver, uint32_t server, size_t bytes,
                                  psc_error_t *error)
{
    psc_status_t st = psw_core_state(driver->core, error);
    while (st == PSC_OK && !psw_core_is_stale(driver->core, NULL) &&
           psw_core_queued_bytes(driver->core, server) > bytes)
        st = advance(driver, error);
    return st;
}

void psw_driver_leave(psw_driver_t *driver, const psc_error_t *error, uint32_t status,
                      uint64_t timeout_us)
{
    psw_core_fail(driver->core, error);
    for (uint32_t s = 0; s < psw_core_n_servers(driver->core); s++) {
        psp_buffer_t *buffer;
        if (psw_core_last_goodbye(driver->core, s, status, &buffer, NULL) == PSC_OK &&
            psp_transport_send(driver->transport, s, buffer, NULL) != PSC_OK)
            continue; /* that server is gone; the others still want to know */
    }
    if (psp_transport_flush(driver->transport, timeout_us, NULL) != PSC_OK)
        return;
}
