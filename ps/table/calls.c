/*
 * One entry for each seat of a session, in an array.
 *
 * Invariants. Numbers never fall while a session lasts. A client's message to a server comes after
 * those that it sent there before, so what it told last covers all that came; targets are taken
 * from that when the cut begins, and raised by what other servers know, also when that comes
 * before: of it parts may still be under way. A seat without a client has no target, so that all of
 * it is held.
 *
 * Cost: a message, n_servers comparisons; a cut, seats x servers, and a search for each part told.
 */
#include "ps/table/calls.h"

#include "common/alloc.h"

#include <inttypes.h>

#define GUEST_BIT (UINT64_C(1) << 63) /* workers have small numbers */

psc_status_t ps_calls_init(ps_calls_t *calls, uint32_t n_seats, uint32_t rank, uint32_t n_servers,
                           psc_error_t *error)
{
    *calls = (ps_calls_t){.n_servers = n_servers, .rank = rank, .n = n_seats};
    calls->seats = psc_alloc_zeroed(n_seats, sizeof *calls->seats);
    if (calls->seats == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %" PRIu32 " sessions",
                             n_seats);
    return PSC_OK;
}

void ps_calls_clear(ps_calls_t *calls)
{
    for (uint32_t seat = 0; calls->seats != NULL && seat < calls->n; seat++)
        ps_calls_end(calls, seat);
    psc_free(calls->seats);
    *calls = (ps_calls_t){.n = 0};
}

uint64_t ps_calls_client(bool guest, uint32_t worker, uint64_t named)
{
    if (!guest)
        return (uint64_t)worker + 1;
    return named != 0 ? named | GUEST_BIT : 0;
}

psc_status_t ps_calls_begin(ps_calls_t *calls, uint32_t seat, uint64_t client, uint64_t done,
                            psc_error_t *error)
{
    ps_calls_end(calls, seat);
    if (client == 0)
        return PSC_OK;
    uint64_t *told = psc_alloc_zeroed(calls->n_servers, sizeof *told);
    if (told == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a session");
    calls->seats[seat] = (ps_seat_calls_t){.client = client, .done = done, .told = told};
    return PSC_OK;
}

void ps_calls_end(ps_calls_t *calls, uint32_t seat)
{
    psc_free(calls->seats[seat].told);
    calls->seats[seat] = (ps_seat_calls_t){.client = 0};
}

psc_status_t ps_calls_hear(ps_calls_t *calls, uint32_t seat, const psp_request_header_t *header,
                           psc_error_t *error)
{
    uint64_t *told = calls->seats[seat].told;
    if (header->n_parts != 0 && header->n_parts != calls->n_servers)
        return psc_error_set(error, PSC_PROTOCOL,
                             "a message that tells its parts for %zu servers, but there are "
                             "%" PRIu32,
                             header->n_parts, calls->n_servers);
    for (size_t i = 0; told != NULL && i < header->n_parts; i++)
        told[i] = header->parts[i] > told[i] ? header->parts[i] : told[i];
    return PSC_OK;
}

void ps_calls_done(ps_calls_t *calls, uint32_t seat, uint64_t part)
{
    ps_seat_calls_t *at = &calls->seats[seat];
    if (part > at->done)
        at->done = part;
}

void ps_calls_hold(ps_calls_t *calls)
{
    for (uint32_t seat = 0; seat < calls->n; seat++) {
        ps_seat_calls_t *at = &calls->seats[seat];
        if (at->told != NULL && at->told[calls->rank] > at->target)
            at->target = at->told[calls->rank];
    }
    calls->holding = true;
}

void ps_calls_release(ps_calls_t *calls)
{
    for (uint32_t seat = 0; seat < calls->n; seat++)
        calls->seats[seat].target = 0;
    calls->holding = false;
}

size_t ps_calls_tell(const ps_calls_t *calls, uint32_t server, uint32_t *seat_io,
                     ps_call_part_t *parts_out, size_t most)
{
    size_t n = 0;
    for (; *seat_io < calls->n && n < most; ++*seat_io) {
        const ps_seat_calls_t *at = &calls->seats[*seat_io];
        if (at->told != NULL && at->told[server] != 0)
            parts_out[n++] = (ps_call_part_t){.client = at->client, .part = at->told[server]};
    }
    return n;
}

void ps_calls_reach(ps_calls_t *calls, ps_call_part_t told)
{
    for (uint32_t seat = 0; seat < calls->n; seat++) {
        ps_seat_calls_t *at = &calls->seats[seat];
        if (at->client != told.client)
            continue;
        at->target = told.part > at->target ? told.part : at->target;
        return;
    }
}

uint32_t ps_calls_missing(const ps_calls_t *calls)
{
    uint32_t n = 0;
    for (uint32_t seat = 0; seat < calls->n; seat++)
        n += calls->seats[seat].client != 0 && calls->seats[seat].done < calls->seats[seat].target;
    return n;
}
