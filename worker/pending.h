/*
 * One call of the program: split over servers into parts, done when every part is answered.
 *
 * Internal to worker/. The core counts parts and hands in replies; what a reply means for the
 * caller (where its rows go, what a clock reply says) is decided here.
 */
#ifndef WORKER_PENDING_H
#define WORKER_PENDING_H

#include "worker/block.h"
#include "worker/cache/cache.h"

/* embps.h's opaque handle; the same object. */
typedef struct embps_request psw_request_t;

/* Counters of a stats call, summed by name. */
typedef struct psw_counters {
    psp_counter_t *items; /* names are owned */
    size_t n;
    size_t capacity;
} psw_counters_t;

struct embps_request {
    psw_request_t *previous; /* list of the core: live or free */
    psw_request_t *next;
    void *owner;       /* the client that the request was made for; the core does not look at it */
    psp_kind_t kind;   /* of its messages */
    size_t open_parts; /* not answered yet */
    bool sealed;       /* no parts are to come */
    psc_error_t error; /* the first one; code PSC_OK: none */

    /* pull */
    float *rows_out;     /* NULL: rows go to the cache alone */
    size_t stride;       /* floats from row to row */
    uint8_t *states_out; /* a psp_row_state_t a row; NULL: not wanted */
    bool may_be_late;    /* it has a deadline, and states_out */
    uint32_t *ages_out;  /* clocks, a row; NULL: not wanted */
    uint32_t dim;
    psp_format_t format;       /* of the rows in the replies */
    struct psw_direct *direct; /* learns the places of rows; NULL: nobody does */
    uint32_t table;            /* number; of pulls and pushes */
    uint32_t *order;           /* message rows, server by server: index of the caller's row */
    size_t order_capacity;
    uint32_t *duplicates; /* pairs: a duplicate's index, its first's index */
    size_t duplicates_capacity;
    size_t n_duplicates;
    uint64_t asked_at; /* the worker's clock */

    /* a pull or push that a cache has to do with */
    psw_cache_t *cache;    /* is told of a failure; NULL: none */
    bool picked;           /* rows have tickets: the cache gets the answers */
    psw_ticket_t *tickets; /* message rows, as order */
    uint32_t *held;        /* version that lies in the caller's row already; 0: none */
    float *row;            /* one row on its way to the cache alone, in other formats than f32 */
    size_t tickets_capacity, held_capacity, row_capacity;

    /* what came back */
    psp_open_table_reply_t opened;
    psp_find_table_reply_t found; /* of the server that was asked; rows_created of all of them */
    psp_clock_reply_t clock;      /* of server 0 */
    psp_attach_reply_t attached;
    psp_barrier_reply_t barrier;
    psw_block_t block;
    bool lost;                   /* of a watch: rows that it should have told */
    psp_import_reply_t imported; /* by all servers */
    psw_counters_t counters;
    psp_checkpoint_reply_t checkpoint; /* of the server that answered last; its state is in bytes */
    uint8_t *bytes;                    /* [bytes_capacity] */
    size_t bytes_capacity;
};

/* Makes room for n entries in order. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_request_reserve_order(psw_request_t *request, size_t n,
                                                      psc_error_t *error);
/* Makes room for n tickets: the rows of the request have some. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_request_reserve_tickets(psw_request_t *request, size_t n,
                                                        psc_error_t *error);
/* For a pull or a push; cache may be NULL. */
void psw_request_set_cache(psw_request_t *request, psw_cache_t *cache, uint32_t table,
                           uint64_t clock);
/* Copies n pairs. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_request_keep_duplicates(psw_request_t *request,
                                                        const uint32_t *pairs, size_t n,
                                                        psc_error_t *error);

/*
 * Takes the reply for the part with the caller's rows order[begin .. begin + n - 1] from server.
 * Errors: PROTOCOL when it does not fit the request; NO_MEMORY (stats).
 */
PSC_MUST_CHECK psc_status_t psw_request_accept(psw_request_t *request, uint32_t server,
                                               uint32_t begin, uint32_t n,
                                               const psp_message_t *message, psc_error_t *error);

/* The rows of a part are not there in time: LATE where states are wanted, and left as they are. */
void psw_request_mark_late(psw_request_t *request, uint32_t begin, uint32_t n);

/* All parts are answered: copies rows, states and ages to their duplicates. */
void psw_request_finish(psw_request_t *request);

/* Ready for its next use; keeps its arrays. */
void psw_request_reset(psw_request_t *request);
/* Frees the arrays and the request. NULL is a no-op. */
void psw_request_destroy(psw_request_t *request);

/* Keeps the first error, with the server's number in front (server < 0: as it is). */
void psw_request_fail(psw_request_t *request, int64_t server, const psc_error_t *error);

static inline bool psw_request_done(const psw_request_t *request)
{
    return request->sealed && request->open_parts == 0;
}

/* Adds value to the counter of this name. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_counters_add(psw_counters_t *counters, const char *name,
                                             uint64_t value, psc_error_t *error);
void psw_counters_clear(psw_counters_t *counters);

#endif
