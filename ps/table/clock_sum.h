/*
 * The pushes of one clock of a synchronous job, as pushes whose rows are sums over the workers.
 *
 * A synchronous push (staleness 0) is kept until all workers have ended its clock. Then, row by
 * row, the pushes of all workers are put in the order of workers, those of one worker in the order
 * in which it issued them, and neighbours of the same kind, rate and step are one change of the
 * row: gradients and deltas are added up, one after another, with plain float32 additions; of
 * assignments the last one counts. So with one kind, rate and step, as trainers have them, an
 * optimizer takes one step a row and clock, on the sum over all workers. What becomes of a row
 * depends on its own pushes alone: not on how messages were cut, on their interleaving, nor on how
 * many servers there are.
 *
 *     st = ps_clock_sum_add(&sum, request, store, error);     for each push, when it comes
 *     ... all workers have ended the clock ...
 *     st = ps_clock_sum_begin(&sum, requests, n, error);      in the order of workers
 *     while (ps_clock_sum_next(&sum, &push))
 *         apply push
 *     ps_clock_sum_end(&sum);
 *
 * Memory: the messages that are kept, 32 bytes a row of them, and one push of a message's size. It
 * is taken off the store's budget as it grows, and kept for the next clocks.
 */
#ifndef PS_TABLE_CLOCK_SUM_H
#define PS_TABLE_CLOCK_SUM_H

#include "ps/table/request.h"

/* One row of a push that was kept. */
typedef struct ps_clock_entry {
    uint64_t id;
    uint32_t request; /* in the order of workers */
    uint32_t row;     /* of its push */
} ps_clock_entry_t;

typedef struct ps_clock_sum {
    uint64_t bytes;    /* of what is kept now */
    uint64_t reserved; /* of the store's budget */
    size_t n_kept;     /* requests */
    size_t rows_kept;

    ps_request_t **requests; /* of the clock that is being summed; or NULL */
    size_t n_requests;
    size_t next_table;         /* the tables of requests before this one are done */
    const ps_table_t *table;   /* that is being done, or NULL */
    ps_clock_entry_t *entries; /* of that table, by id, then request, then row */
    size_t n_entries, entries_room;
    size_t at, kept; /* entries looked at in this pass; those of them that are left for the next */
    uint64_t *ids;   /* of the push given out last */
    float *rows;
    size_t ids_room, rows_room;
} ps_clock_sum_t;

/*
 * A push that is to be kept: takes its memory off the store's budget. Nothing is changed on error.
 * Errors: INVALID_ARGUMENT (it does not fit: says what to do).
 */
PSC_MUST_CHECK psc_status_t ps_clock_sum_add(ps_clock_sum_t *sum, const ps_request_t *request,
                                             ps_store_t *store, psc_error_t *error);

/* The same push is not kept any more. */
void ps_clock_sum_drop(ps_clock_sum_t *sum, const ps_request_t *request);

/* Begins to sum n pushes, in the order of workers. Borrows them until ps_clock_sum_end; takes
 * requests (psc_free). Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_clock_sum_begin(ps_clock_sum_t *sum, ps_request_t **requests,
                                               size_t n, psc_error_t *error);

/* The next push of distinct ids, of at most the rows of one message; it lives until the next call.
 * *table_out: its table. *more_out false: there is none. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_clock_sum_next(ps_clock_sum_t *sum, psp_push_t *push_out,
                                              ps_table_t **table_out, bool *more_out,
                                              psc_error_t *error);

/* Ends it. The requests are the caller's again. */
void ps_clock_sum_end(ps_clock_sum_t *sum);

/* Frees what is kept for reuse. */
void ps_clock_sum_clear(ps_clock_sum_t *sum);

#endif
