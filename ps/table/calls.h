/*
 * Which calls of clients are whole on this server, so that a cut has all parts of a call on all
 * servers, or none.
 *
 * A client numbers the pushes that it sends to each server, and tells with each up to which number
 * every server gets some for this call. A cut takes four steps: hold (from now on no call begins to
 * count here), tell every other server which of its parts belong to calls that have come here, hear
 * the same of all others, and wait until what they name is applied.
 *
 *     ps_calls_hold(calls)
 *     ps_calls_tell(calls, server, &seat, told, most)      for each other server, until it gives 0
 *     ps_calls_reach(calls, client, part)                  for each that another server tells
 *     ps_calls_whole(calls) == 0                           now
 *     ps_calls_release(calls)
 *
 * Calls of a client that numbers nothing are held and waited for by nobody. Threads: the owner's.
 */
#ifndef PS_TABLE_CALLS_H
#define PS_TABLE_CALLS_H

#include "proto/message.h"

/* A part that a call of a client has on some server: of it, and of all before it. */
typedef struct ps_call_part {
    uint64_t client; /* the same on all servers */
    uint64_t part;
} ps_call_part_t;

typedef struct ps_seat_calls {
    uint64_t client; /* 0: none, or one that numbers nothing */
    uint64_t done;   /* the last part that was applied or refused */
    uint64_t target; /* the last part that is known to belong to the next cut */
    uint64_t *told; /* [n_servers] the last part of the calls that came here; NULL: no client yet */
} ps_seat_calls_t;

typedef struct ps_calls {
    uint32_t n_servers, rank;
    uint32_t n;             /* seats: workers, then guests */
    ps_seat_calls_t *seats; /* [n] */
    bool holding;
} ps_calls_t;

/* Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_calls_init(ps_calls_t *calls, uint32_t n_seats, uint32_t rank,
                                          uint32_t n_servers, psc_error_t *error);
void ps_calls_clear(ps_calls_t *calls);

/* The number by which all servers know a worker, or a guest that has named itself (0: it has not).
 */
uint64_t ps_calls_client(bool guest, uint32_t worker, uint64_t named);

/* A session begins at a seat, or goes on after its part `done`; and ends. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_calls_begin(ps_calls_t *calls, uint32_t seat, uint64_t client,
                                           uint64_t done, psc_error_t *error);
void ps_calls_end(ps_calls_t *calls, uint32_t seat);

/* A message has come. Errors: PROTOCOL (it tells of another number of servers). */
PSC_MUST_CHECK psc_status_t ps_calls_hear(ps_calls_t *calls, uint32_t seat,
                                          const psp_request_header_t *header, psc_error_t *error);

/* A push has its answer, whatever that is. part: 0: not numbered. */
void ps_calls_done(ps_calls_t *calls, uint32_t seat, uint64_t part);

/* From now on what belongs to the cut is what has come until now, and what others tell. */
void ps_calls_hold(ps_calls_t *calls);
void ps_calls_release(ps_calls_t *calls);

/* The next parts of another server that belong to the cut, from seat *seat_io on; 0: no more. */
size_t ps_calls_tell(const ps_calls_t *calls, uint32_t server, uint32_t *seat_io,
                     ps_call_part_t *parts_out, size_t most);

/* What another server tells of this one. Who has no session here any more is left out. */
void ps_calls_reach(ps_calls_t *calls, ps_call_part_t told);

/* Whether a part that is to be applied belongs behind the cut. */
static inline bool ps_calls_blocks(const ps_calls_t *calls, uint32_t seat, uint64_t part)
{
    return calls->holding && (part == 0 || part > calls->seats[seat].target);
}

/* Clients of which parts are missing that belong to the cut. */
uint32_t ps_calls_missing(const ps_calls_t *calls);

#endif
