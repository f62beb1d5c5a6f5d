/*
 * Calls about time: rows announced for later, rows within a deadline, how long a server may be
 * silent.
 *
 * A prefetch is a hint: it never waits, costs what its ids take in the window, and where that is
 * full it is dropped and counted. Nothing depends on it. A pull with a deadline queues all its
 * messages at once instead of waiting for room, as waiting is what it must not do; what is not
 * sent by then is taken back by the core, so that a stopped server costs no memory.
 */
#include "common/clock.h"
#include "worker/cached_rows.h"
#include "worker/client_state.h"

_Static_assert(EMBPS_ROW_LATE == (int)PSP_ROW_LATE, "states are those of the wire");

int embps_prefetch(embps_table_t *table, const uint64_t *ids, size_t n, uint64_t clock,
                   embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    return psw_prefetch(table, ids, n, clock, false, &what) == PSC_OK
               ? 0
               : psw_error_export(&what, error);
}

psc_status_t psw_prefetch(embps_table_t *table, const uint64_t *ids, size_t n, uint64_t clock,
                          bool distinct, psc_error_t *error)
{
    psc_status_t st = psw_check_rows("prefetch", table, ids, n, ids, error);
    if (st != PSC_OK || n == 0)
        return st;
    embps_client_t *client = table->client;
    client->tally.prefetches++;
    client->tally.rows_prefetched += n;
    const uint64_t first = psw_core_first_clock(client->driver.core);
    const uint64_t when = clock < UINT64_MAX - first ? first + clock : UINT64_MAX;
    const psw_prefetch_options_t options = {.ids = ids, .n = n, .distinct = distinct, .when = when};
    size_t n_dropped = n;
    if (when >= psw_core_clock(client->driver.core))
        st = psw_cached_prefetch(table, &options, &n_dropped, error);
    client->tally.rows_prefetch_dropped += n_dropped;
    bool moved;
    return st == PSC_OK ? psw_driver_step(&client->driver, &moved, error) : st;
}

int embps_pull_within(embps_table_t *table, const uint64_t *ids, size_t n, float *rows_out,
                      uint8_t *states_out, uint32_t flags, uint32_t deadline_ms,
                      embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psw_request_t *request;
    psw_pull_options_t options;
    psc_status_t st =
        psw_pull_options_of(table, ids, n, rows_out, states_out, flags, &options, &what);
    if (st == PSC_OK && (deadline_ms == 0 || (n != 0 && states_out == NULL)))
        st = psc_error_set(&what, PSC_INVALID_ARGUMENT,
                           "pull: a deadline of %u ms%s; it must be at least 1 ms, and states_out "
                           "is needed to tell which rows came",
                           deadline_ms, states_out == NULL ? " without states_out" : "");
    if (st != PSC_OK)
        return psw_error_export(&what, error);
    embps_client_t *client = table->client;
    options.deadline_ms = deadline_ms;
    psw_core_set_time(client->driver.core, psc_clock_us());
    st = psw_start_pull(table, &options, PSW_ROOM_NONE, &request, &what);
    if (st == PSC_OK)
        st = psw_client_finish(client, request, &what);
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}

void embps_set_timeout(embps_client_t *client, uint32_t ms)
{
    psw_core_set_timeout(client->driver.core, (uint64_t)ms * 1000);
}
