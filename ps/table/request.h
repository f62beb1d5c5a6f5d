/*
 * A request of a worker, from the arrival of its message to its one reply.
 *
 *     QUEUED      behind the requests of its session that arrived before it
 *     WAIT_CLOCK  a pull whose staleness asks for clocks that other workers have not reached
 *     WAIT_ROOM   the store has no room for its rows now
 *     WAIT_ROWS   its rows are on their way from the cold tier; those in memory are pinned
 *     WAIT_OTHERS a barrier that others have not reached
 *     WAIT_CUT    a push that is to count after a checkpoint that several servers make together
 *     WAIT_SAVE   a checkpoint that is being written; by disks alone
 *     DEFERRED    a synchronous push, answered, that counts when its clock has ended (clock_sum.h)
 *     DONE        answered
 *
 * Only the oldest request of a session is ever in a waiting state: that is what keeps the effects
 * of one client in order, and what makes waiting safe: whoever holds pinned rows waits for the disk
 * alone. DEFERRED requests have left the queue and hold no rows.
 */
#ifndef PS_TABLE_REQUEST_H
#define PS_TABLE_REQUEST_H

#include "proto/message.h"
#include "ps/store/store.h"
#include "ps/table/schema.h"

typedef enum ps_request_state {
    PS_REQUEST_QUEUED,
    PS_REQUEST_WAIT_CLOCK,
    PS_REQUEST_WAIT_ROOM,
    PS_REQUEST_WAIT_ROWS,
    PS_REQUEST_WAIT_OTHERS,
    PS_REQUEST_WAIT_CUT,
    PS_REQUEST_WAIT_SAVE,
    PS_REQUEST_DEFERRED,
    PS_REQUEST_DONE,
} ps_request_state_t;

/* What the rows of one request need beside the message. One allocation, kept for reuse. */
typedef struct ps_space {
    struct ps_space *next;
    size_t capacity; /* rows */
    uint64_t *ids, *hashes;
    ps_place_t *places; /* [capacity + 1] */
    uint32_t *versions;
    uint8_t *states;
    uint8_t *late; /* of a pull whose deadline has passed */
} ps_space_t;

typedef struct ps_request {
    struct ps_request *next; /* in its session's queue, or among the free ones */
    ps_request_state_t state;
    psp_buffer_t *buffer; /* the message; its bulk fields are borrowed by `message` */
    void *bulk;           /* own copy of bulk fields that did not come in one piece; else NULL */
    size_t bulk_bytes;
    psp_message_t message;
    ps_table_t *table; /* pull and push, once found */
    ps_space_t *space; /* while it has a batch */
    ps_batch_t batch;
    ps_space_t *shared_space; /* the same for the shared rows of its rows' slots; or NULL */
    ps_batch_t shared;
    bool located;          /* space holds ids and hashes */
    bool prepared;         /* batch (and shared) is prepared and must be released */
    bool exact;            /* a pull that holds places for absent rows too */
    bool saves;            /* a checkpoint's: the step that it asks for has begun */
    bool summed;           /* no message: a push that clock_sum made of several; buffer is NULL */
    bool logged;           /* a push or import that is in the log (logger.h) */
    bool overdue;          /* its deadline has passed: it is to be answered now */
    bool behind;           /* ... while earlier requests of its session are not done */
    uint64_t deadline_us;  /* in the shard's time; 0: none */
    uint64_t since_us;     /* a guest's: since when it waits for those before it */
    uint64_t until_us;     /* a watch's: until when it waits for news */
    uint64_t created_seen; /* rows created in the table when the batch was prepared */
    uint32_t busy_tries;
} ps_request_t;

/* Free requests and spaces, so that the pull and push path does not allocate once warm. */
typedef struct ps_request_pool {
    ps_request_t *requests;
    ps_space_t *spaces;
    size_t n_spaces;
} ps_request_pool_t;

/*
 * A request around an unpacked message, which borrows from buffer and from a scratch memory: what
 * lies outside the buffer is copied. Takes buffer on success. Errors: NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_request_create(ps_request_pool_t *pool, psp_buffer_t *buffer,
                                              const psp_message_t *message,
                                              ps_request_t **request_out, psc_error_t *error);

/* For a request that stays when it has been answered: a message that another process has lent is
 * given back, and what is needed of it copied. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_request_keep(ps_request_t *request, psc_error_t *error);

/* Memory of its message here. */
size_t ps_request_bytes(const ps_request_t *request);

/* Gives back buffer and space. Its batch must have been released. Takes. */
void ps_request_destroy(ps_request_pool_t *pool, ps_request_t *request);

/* Gives back its spaces: what was located is forgotten. Its batch must have been released. */
void ps_request_trim(ps_request_pool_t *pool, ps_request_t *request);

/* Makes room for n rows in a space of a request, unless it has it. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_request_reserve(ps_request_pool_t *pool, ps_space_t **space_out,
                                               size_t n, psc_error_t *error);

/* Frees what is kept. */
void ps_request_pool_clear(ps_request_pool_t *pool);

#endif
