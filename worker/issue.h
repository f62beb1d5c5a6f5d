/*
 * Pulls and pushes as messages: distinct ids, sorted by owner, cut to the size of a message.
 *
 * No I/O: parts are handed to the core. Internal to worker/.
 */
#ifndef WORKER_ISSUE_H
#define WORKER_ISSUE_H

#include "worker/batch.h"
#include "worker/cache/cache.h"
#include "worker/core.h"
#include "worker/direct.h"
#include "worker/router.h"

/* What issuing needs of a client. */
typedef struct psw_issuer {
    psw_core_t *core;
    psw_batch_t *batch;
    psw_router_t *router;
    psw_direct_t *direct; /* NULL: all rows come by messages */
    float *row_scratch;   /* one row and 16 random bits for each of its values, grows to the widest
                           table; psc_free */
    size_t row_scratch_floats; /* of the row */
    uint32_t *starts;          /* of a split that is kept; psc_free */
} psw_issuer_t;

/* A table as its messages name it. */
typedef struct psw_target {
    uint32_t table;
    uint32_t dim;
    uint32_t max_rows; /* of one message, beside what its bytes hold; 0: no such limit */
    bool whole; /* messages are as long as they may be: where a push is cut changes what it does */
    const uint32_t *epochs; /* table epoch by server */
    psp_format_t push_format;
    psp_format_t pull_format; /* of rows that a push brings back */
    uint64_t rounding_seed;   /* of gradients and deltas in other formats than f32 */
    uint32_t push_number;     /* the client's own count of pushes to the table */
} psw_target_t;

/*
 * Called before each message of a request is built, so that what was built can leave meanwhile, and
 * a caller who waits anyway can wait for room first, which bounds memory. NULL: messages queue up.
 * An error ends the issuing.
 */
typedef psc_status_t (*psw_room_fn)(void *context, uint32_t server, psc_error_t *error);
typedef struct psw_room {
    psw_room_fn fn;
    void *context;
} psw_room_t;

/* The rows of a call that a cache leaves to servers. */
typedef struct psw_picked {
    const psw_asked_t *asked;
    const psw_distinct_t *distinct; /* of the whole call */
} psw_picked_t;

typedef struct psw_pull_options {
    const uint64_t *ids; /* [n] */
    size_t n;
    bool distinct;   /* the caller knows that ids are distinct */
    float *rows_out; /* [n] rows, stride floats apart; NULL: picked rows go to the cache alone */
    size_t stride;
    uint8_t *states_out;  /* [n]; NULL: not wanted */
    uint32_t *ages_out;   /* [n] clocks; NULL: not wanted */
    bool scan;            /* part of a pass over many rows */
    uint32_t deadline_ms; /* rows that are not there by then are LATE; needs states_out. 0: none */
    psp_format_t format;  /* of the rows in the replies */
    uint32_t staleness;
    psw_cache_t *cache;         /* gets the answers; NULL: none does */
    const psw_picked_t *picked; /* instead of all ids; NULL: all of them */
} psw_pull_options_t;

/* Writes row i of the call, dim floats. */
typedef void (*psw_row_fn)(void *context, size_t i, float *row);

typedef struct psw_push_options {
    psp_push_kind_t kind;
    const uint64_t *ids;
    size_t n;
    const float *rows; /* [n, dim]; NULL: fill writes them, and ids are distinct */
    bool small;        /* all values are known to be within PSW_BATCH_SMALL */
    psw_row_fn fill;
    void *fill_context;
    float learning_rate;
    uint64_t step;              /* of the optimizer; 0: unknown */
    bool synchronous;           /* counts with the clock's end, summed in the order of workers */
    psw_cache_t *cache;         /* is told of a failure, gets rows that come back; NULL: none */
    const psw_picked_t *picked; /* instead of all ids, with sums that were checked; NULL: all */
} psw_push_options_t;

typedef struct psw_issued {
    psw_request_t *request;
    size_t n_distinct;
} psw_issued_t;

/*
 * Begins a sealed request. On error after a part was enqueued (no memory, or the core ended) the
 * core is ended, since a half-sent call can neither be finished nor taken back. Errors:
 * INVALID_ARGUMENT (too many ids), NO_MEMORY, what ended the core, what room returned. Gives.
 */
PSC_MUST_CHECK psc_status_t psw_issue_pull(psw_issuer_t *issuer, const psw_target_t *target,
                                           const psw_pull_options_t *options, psw_room_t room,
                                           psw_issued_t *issued_out, psc_error_t *error);

/* The same for a push. Errors: also INVALID_ARGUMENT when a sum of duplicates is not finite. */
PSC_MUST_CHECK psc_status_t psw_issue_push(psw_issuer_t *issuer, const psw_target_t *target,
                                           const psw_push_options_t *options, psw_room_t room,
                                           psw_issued_t *issued_out, psc_error_t *error);

typedef struct psw_prefetch_options {
    const uint64_t *ids; /* [n] */
    size_t n;
    bool distinct; /* the caller knows that ids are distinct */
    uint64_t when; /* clock of the pulls */
} psw_prefetch_options_t;

/*
 * Announces rows to their owners, where that costs no waiting: what would not leave at once is left
 * out, and counted in *n_dropped_out. Nobody waits for the answers. Errors: as above, but with
 * nothing half-sent: what was announced is announced.
 */
PSC_MUST_CHECK psc_status_t psw_issue_prefetch(psw_issuer_t *issuer, const psw_target_t *target,
                                               const psw_prefetch_options_t *options,
                                               size_t *n_dropped_out, psc_error_t *error);

/* Enqueues what a message asked, whose servers are others now, as messages to those that are
 * (psw_strand_fn). target: of its table. Errors: NO_MEMORY, what ended the core. */
PSC_MUST_CHECK psc_status_t psw_issue_again(psw_issuer_t *issuer, const psw_target_t *target,
                                            const psw_stranded_t *stranded, psc_error_t *error);

/* Whether the sums of duplicates are finite, as psw_issue_push looks. Errors: INVALID_ARGUMENT,
 * NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_issue_check_sums(psw_issuer_t *issuer, const psw_target_t *target,
                                                 const psw_distinct_t *distinct,
                                                 const psw_push_options_t *options,
                                                 psc_error_t *error);

#endif
