/*
 * Copies of hot rows at the worker: a state machine without I/O, threads or clock.
 *
 * Whoever drives it (worker/cached_rows.c) hands in the rows of each pull and push, asks servers
 * for what is named in return, and hands in what they answer. worker/cache/README.md has the
 * protocol and says how old a row may be.
 *
 *     st = psw_cache_pull(cache, &rows, &out, &asked, error);
 *     while (psw_cache_outbox(cache, &outbox))
 *         ... push outbox's deltas ...
 *     ... pull asked's rows, telling asked.held ...
 *     psw_cache_store(...) or psw_cache_confirm(...) for each answer
 *
 * The order matters: what the outbox holds has to be issued before anything that the same call
 * names, and answers may be handed in at any time, in any order.
 */
#ifndef WORKER_CACHE_CACHE_H
#define WORKER_CACHE_CACHE_H

#include "proto/message.h"

typedef struct psw_cache psw_cache_t;

#define PSW_CACHE_FLUSH_MAX 1000u    /* clocks */
#define PSW_CACHE_NO_SLOT UINT32_MAX /* the row is not kept */
#define PSW_CACHE_ASYNC PSP_STALENESS_ASYNC

/* A table, as far as the cache must know it. */
typedef struct psw_cache_table {
    uint32_t number, dim;
    bool exact;   /* servers add a delta to a row as plain float32, and no more */
    bool has_pad; /* row pad_id is never kept: servers leave it as it is */
    uint64_t pad_id;
} psw_cache_table_t;

/* Finds the row again when its answer comes, unless the copy has become another one since. */
typedef struct psw_ticket {
    uint32_t slot; /* PSW_CACHE_NO_SLOT: not kept */
    uint32_t stamp;
} psw_ticket_t;

/* The distinct rows of a call. Borrowed. */
typedef struct psw_cache_rows {
    const psw_cache_table_t *table;
    const uint64_t *ids;    /* of the call */
    const uint64_t *hashes; /* [n] psc_row_hash */
    const uint32_t *first;  /* [n] index into the call; NULL: 0, 1, ... */
    size_t n;
} psw_cache_rows_t;

/* Where a pull's rows go, by index of the call. */
typedef struct psw_cache_out {
    float *rows;
    size_t stride;
    uint8_t *states; /* psp_row_state_t; NULL: not wanted */
    uint32_t *ages;  /* clocks; NULL: not wanted */
} psw_cache_out_t;

/* Rows that servers have to be asked for or told. Borrowed until the next call with rows. */
typedef struct psw_asked {
    size_t n;
    size_t n_wanted; /* pushes: so many, the first ones, are kept and want to be sent back;
                        prefetches: are to be asked for */
    const uint32_t *first;
    const uint64_t *hashes;
    const uint32_t *held; /* pulls: version that is held, and already lies in the caller's row; 0:
                             none */
    const psw_ticket_t *tickets;
} psw_asked_t;

/* Deltas to be pushed before anything else. Borrowed until the next call of the cache. */
typedef struct psw_outbox {
    uint32_t table; /* number */
    size_t n;
    const uint64_t *ids; /* distinct */
    const float *rows;   /* [n, dim] */
} psw_outbox_t;

typedef struct psw_cache_counters {
    uint64_t rows, bytes; /* kept now */
    uint64_t hits;        /* pulled rows that were served without asking */
    uint64_t confirmed;   /* ... that a server found unchanged */
    uint64_t fetched;     /* ... that a server sent */
    uint64_t admitted, evicted;
    uint64_t deltas;      /* pushed rows that were accumulated */
    uint64_t flushed;     /* accumulated rows that were sent */
    uint64_t returned;    /* rows that replies of gradient pushes brought */
    uint64_t bytes_saved; /* of rows and ids that did not travel, less the versions that did */
    uint64_t oldest;      /* age in clocks of the oldest row served without asking */
} psw_cache_counters_t;

/* bytes: of rows and all book-keeping, at least 64 KiB; off (staleness 0) until limits are set.
 * Errors: INVALID_ARGUMENT, NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_cache_create(size_t bytes, psw_cache_t **cache_out,
                                             psc_error_t *error);
/* Deltas that were not sent are lost. NULL is a no-op. */
void psw_cache_destroy(psw_cache_t *cache);

/* staleness: 1 and up, or PSW_CACHE_ASYNC; flush: 1 to PSW_CACHE_FLUSH_MAX clocks. */
void psw_cache_set_limits(psw_cache_t *cache, uint32_t staleness, uint32_t flush);

/* The worker's clock from now on. Before it moves, psw_cache_take_due for the one that ends. */
void psw_cache_set_clock(psw_cache_t *cache, uint64_t clock);

/*
 * Serves the rows that it may, names the others. A row with accumulated deltas that has to be asked
 * for goes to the outbox. Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_cache_pull(psw_cache_t *cache, const psw_cache_rows_t *rows,
                                           const psw_cache_out_t *out, psw_asked_t *asked_out,
                                           psc_error_t *error);

/*
 * Names of rows that will be pulled in clock `when` those that are to be asked for now, so that
 * they can be served then: the n_wanted first ones, as a pull that has no rows of its own. Behind
 * them those that will be asked for then. Questions that are under way are not remembered: until
 * its answer is there, a row is named by each prefetch. Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_cache_prefetch(psw_cache_t *cache, const psw_cache_rows_t *rows,
                                               uint64_t when, psw_asked_t *asked_out,
                                               psc_error_t *error);

/*
 * Takes the deltas of kept rows; names the rows that have to be pushed. fill(context, i, row) is
 * called for kept rows of a delta push alone, once each. Errors: NO_MEMORY; INVALID_ARGUMENT (a
 * value is not finite; rows before it may have been taken).
 */
typedef void (*psw_cache_fill_fn)(void *context, size_t i, float *row);
PSC_MUST_CHECK psc_status_t psw_cache_push(psw_cache_t *cache, const psw_cache_rows_t *rows,
                                           psp_push_kind_t kind, psw_cache_fill_fn fill,
                                           void *context, psw_asked_t *asked_out,
                                           psc_error_t *error);

/* The deltas of one table, which are then no longer the cache's; false: there are none. */
bool psw_cache_outbox(psw_cache_t *cache, psw_outbox_t *outbox_out);

/* Puts the deltas into the outbox that have to leave before the present clock ends. Errors:
 * NO_MEMORY: call again. */
PSC_MUST_CHECK psc_status_t psw_cache_take_due(psw_cache_t *cache, psc_error_t *error);

/* Puts the deltas of at most some thousand rows there; *more_out: there are others. */
PSC_MUST_CHECK psc_status_t psw_cache_take_some(psw_cache_t *cache, bool *more_out,
                                                psc_error_t *error);

/*
 * A server sent the row (dim floats, at any address), as it was when the least clock of all workers
 * was least_clock. asked_at: the worker's clock when it was asked.
 */
typedef struct psw_answer {
    psw_ticket_t ticket;
    uint64_t asked_at;
    uint64_t least_clock;
    uint32_t version;
    uint8_t state;      /* psp_row_state_t */
    bool returned;      /* by a push */
    const uint8_t *row; /* NULL: the version that was held is the server's */
} psw_answer_t;
void psw_cache_answer(psw_cache_t *cache, const psw_answer_t *answer);
/* The answer for this ticket will come soon: asks for the memory that it goes to. */
void psw_cache_expect(const psw_cache_t *cache, psw_ticket_t ticket);

/* Copies of the table are no longer to be trusted; deltas stay. drops: they go as well. */
void psw_cache_end_table(psw_cache_t *cache, uint32_t table, bool drops);

/* No copies and no deltas are left. */
void psw_cache_empty(psw_cache_t *cache);

/* Every copy has to be asked for before it is served again, e.g. after a barrier. */
void psw_cache_expire(psw_cache_t *cache);

void psw_cache_counters(const psw_cache_t *cache, psw_cache_counters_t *counters_out);

#endif
