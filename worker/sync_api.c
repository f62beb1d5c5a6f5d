/*
 * Clock, staleness and barrier: how workers keep together.
 *
 * A clock goes to every server, behind all that the worker issued before; the worker's new clock is
 * in the headers from that message on. At staleness 0 it first waits for the answers to all that
 * was issued before, so that where one server knows that a clock has ended, every server has the
 * whole of it. The sum of progress is the one of server 0. A barrier first
 * waits for the answers to all outstanding requests (so that the pushes are applied everywhere),
 * then meets the other workers at server 0. Deltas that the cache accumulated leave before both:
 * those that are due, and all of them.
 */
#include "worker/cached_rows.h"
#include "worker/client_state.h"

void embps_set_staleness(embps_client_t *client, uint32_t clocks)
{
    client->staleness = clocks;
}

/* Tells the servers that the worker's clock is `clock` now. */
static psc_status_t tell_clock(embps_client_t *client, uint64_t clock, uint64_t progress,
                               psw_request_t **request_out, psc_error_t *error)
{
    psw_core_t *core = client->driver.core;
    psp_message_t message = {.kind = PSP_CLOCK, .u.clock = {.progress = progress}};
    psc_status_t st = clock == PSP_CLOCK_END ? psw_cached_flush_all(client, error)
                                             : psw_cached_flush_due(client, error);
    if (st != PSC_OK)
        return st;
    if (client->staleness == 0)
        st = psw_driver_wait_idle(&client->driver, error);
    psw_core_set_clock(core, clock);
    psw_cached_clock(client);
    return st == PSC_OK
               ? psw_client_ask(client, &message, 0, psw_core_n_servers(core), request_out, error)
               : st;
}

psc_status_t psw_client_clock_finish(embps_client_t *client, psw_request_t *request,
                                     uint64_t *total_progress_out, psc_error_t *error)
{
    psc_status_t st = psw_driver_wait(&client->driver, request, error);
    const psp_clock_reply_t told = request->clock;
    const psc_status_t finished = psw_client_finish(client, request, st == PSC_OK ? error : NULL);
    if (st == PSC_OK)
        st = finished;
    if (st == PSC_OK && total_progress_out != NULL)
        *total_progress_out = told.total_progress;
    if (st == PSC_OK) {
        client->first = told.first;
        client->n_lost = told.n_lost;
    }
    return st == PSC_OK ? psw_cached_collect(client, error) : st;
}

psc_status_t psw_client_clock_start(embps_client_t *client, uint64_t progress,
                                    psw_request_t **request_out, psc_error_t *error)
{
    const uint64_t clock = psw_core_clock(client->driver.core);
    if (clock == PSP_CLOCK_END)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "clock: this client's last clock has ended (embps_last_clock)");
    return tell_clock(client, clock + 1, progress, request_out, error);
}

/* st: of the call that began it, which has the request if it is OK. */
static int finish_clock(embps_client_t *client, psc_status_t st, psw_request_t *request,
                        uint64_t progress, uint64_t *total_progress_out, psc_error_t *what,
                        embps_error_t *error)
{
    psp_message_t message = {.kind = PSP_CLOCK, .u.clock = {.progress = progress}};
    const psw_core_t *core = client->driver.core;
    uint64_t relaid = psw_core_relaid(core);
    if (st == PSC_OK)
        st = psw_client_clock_finish(client, request, total_progress_out, what);
    while (psw_client_again(client, st, &relaid)) {
        st = psw_client_ask(client, &message, 0, psw_core_n_servers(core), &request, what);
        if (st == PSC_OK)
            st = psw_client_clock_finish(client, request, total_progress_out, what);
    }
    return st == PSC_OK ? 0 : psw_error_export(what, error);
}

int embps_clock(embps_client_t *client, uint64_t progress, uint64_t *total_progress_out,
                embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psw_request_t *request = NULL;
    psc_status_t st = psw_client_clock_start(client, progress, &request, &what);
    return finish_clock(client, st, request, progress, total_progress_out, &what, error);
}

int embps_last_clock(embps_client_t *client, uint64_t progress, uint64_t *total_progress_out,
                     embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psw_request_t *request = NULL;
    psc_status_t st = tell_clock(client, PSP_CLOCK_END, progress, &request, &what);
    return finish_clock(client, st, request, progress, total_progress_out, &what, error);
}

psc_status_t psw_client_barrier(embps_client_t *client, psp_barrier_reply_t *reply_out,
                                psc_error_t *error)
{
    psw_request_t *request;
    psp_message_t message = {.kind = PSP_BARRIER, .u.barrier = {.generation = client->barriers}};
    psc_status_t st = psw_cached_flush_all(client, error);
    if (st == PSC_OK)
        st = psw_driver_wait_idle(&client->driver, error);
    if (st == PSC_OK)
        st = psw_client_ask(client, &message, 0, 1, &request, error);
    if (st == PSC_OK) {
        st = psw_driver_wait(&client->driver, request, error);
        *reply_out = request->barrier;
        psc_status_t finished = psw_client_finish(client, request, error);
        if (st == PSC_OK)
            st = finished;
    }
    if (st == PSC_OK)
        client->barriers++;
    psw_cached_expire(client);
    return st == PSC_OK ? psw_cached_collect(client, error) : st;
}

int embps_barrier(embps_client_t *client, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psp_barrier_reply_t reply;
    return psw_client_barrier(client, &reply, &what) == PSC_OK ? 0 : psw_error_export(&what, error);
}
