/*
 * Sessions: one for each worker, from its Hello to its Goodbye; their clocks and barriers.
 *
 * A session's number is a mix of the run, this server and a counter: never 0, never used twice.
 */
#ifndef PS_TABLE_SESSION_H
#define PS_TABLE_SESSION_H

#include "ps/table/request.h"

typedef enum ps_session_state {
    PS_SESSION_AWAITED, /* the worker has not said hello yet: counts with clock 0 */
    PS_SESSION_LIVE,
    PS_SESSION_LEAVING, /* its Goodbye waits behind earlier requests; it waits for no other worker
                         */
    PS_SESSION_FENCED,  /* taken for lost; its clock still counts, until the servers agree on it */
    PS_SESSION_GONE,
} ps_session_state_t;

typedef struct ps_session {
    uint64_t id; /* 0: none yet */
    ps_session_state_t state;
    uint64_t clock;
    uint64_t progress;
    uint64_t push_sequence; /* highest one that was applied */
    psp_tally_t pushed;     /* as it told with its clocks */
    uint64_t barriers;      /* generations that it has reached */
    bool pushed_at_once;    /* pushes of the clock that is under way have been applied */
    const char *lost;       /* why it was taken for lost; static; NULL: it was not */
    uint32_t status;        /* told by Goodbye */
    ps_request_t *head, *tail;
    size_t n_requests;
    ps_request_t *deferred, *deferred_tail; /* answered pushes of the clock that is under way */
} ps_session_t;

typedef struct ps_sessions {
    ps_session_t *all; /* n, by worker rank; behind them the seats of guests (guests.h) */
    uint32_t n;
    uint32_t n_all;      /* seats of guests that are in use are below this */
    uint32_t n_departed; /* lost ones too */
    uint32_t n_lost;
    uint32_t worst_status;
    uint32_t worst_worker; /* who told it */
    uint64_t n_given;
    uint64_t min_clock; /* over all that are not gone; kept by the functions below */
    uint64_t time;      /* the same, but when all are gone what it was last; never falls */
} ps_sessions_t;

/* Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_sessions_init(ps_sessions_t *sessions, uint32_t n, uint32_t n_guests,
                                             psc_error_t *error);
void ps_sessions_clear(ps_sessions_t *sessions);

/* Starts the session of a worker. Errors: IN_USE (it has, or had, one). */
PSC_MUST_CHECK psc_status_t ps_session_begin(ps_sessions_t *sessions, uint32_t worker,
                                             uint64_t cluster, uint32_t rank, psc_error_t *error);

/* Ends it: it counts no longer for clocks and barriers. */
void ps_session_end(ps_sessions_t *sessions, uint32_t worker, uint32_t status);

/* Ends it as lost. */
void ps_session_lose(ps_sessions_t *sessions, uint32_t worker);

/* Least rank of those that have not ended; 0 when all have. */
uint32_t ps_sessions_first(const ps_sessions_t *sessions);

/* Whether a peer is a guest: a session that no clock and no barrier waits for. */
static inline bool ps_is_guest(const ps_sessions_t *sessions, uint32_t peer)
{
    return peer >= sessions->n;
}

/* Raises clock and progress; they never fall. The time of a server without workers is the furthest
 * clock that a guest has told. */
void ps_session_advance(ps_sessions_t *sessions, uint32_t worker, uint64_t clock,
                        uint64_t progress);

uint64_t ps_sessions_progress(const ps_sessions_t *sessions);

/* Whether all workers that are still there have reached this generation of barriers. */
bool ps_sessions_all_reached(const ps_sessions_t *sessions, uint64_t generation);

/* The session's queue: first in, first out. */
void ps_session_enqueue(ps_session_t *session, ps_request_t *request);
ps_request_t *ps_session_dequeue(ps_session_t *session);
/* Takes one out of the middle; previous: the one before it. */
void ps_session_unlink(ps_session_t *session, ps_request_t *previous, ps_request_t *request);

/* A request that was dequeued is kept until its clock has ended; the oldest one, or NULL. */
void ps_session_defer(ps_session_t *session, ps_request_t *request);
ps_request_t *ps_session_take_deferred(ps_session_t *session);

#endif
