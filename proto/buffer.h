/*
 * A message's bytes, and the pool that they come from and go back to.
 *
 * Buffers of up to the pool's largest size are kept and reused, so that the pull and push path does
 * not allocate once warm. Ownership moves with the pointer: send takes, receive gives.
 */
#ifndef PROTO_BUFFER_H
#define PROTO_BUFFER_H

#include "common/queue.h"
#include "common/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct psp_pool psp_pool_t;
struct psp_memory;

typedef struct psp_buffer {
    psc_queue_node_t node; /* free for whoever owns the buffer */
    psp_pool_t *pool;
    uint8_t *data;      /* 64-byte aligned; not to be changed when it is borrowed */
    size_t capacity;    /* bytes, of the pool's; size may be more in a borrowed one */
    size_t size;        /* bytes used */
    uint32_t kind;      /* psp_kind_t of the message within */
    uint32_t peer;      /* whom it came from or goes to */
    atomic_uint shared; /* owners beside the first */
    void *call; /* its transport's: the call that it came in by, or answers; NULL: no calls */
    /* Of a guest's message: what its token allows, until it is answered; NULL: everything */
    const struct psp_grant *grant;
    bool sealed;     /* of a request by a call: it came sealed, and so is its answer (seal.h) */
    uint8_t *lender; /* of a borrowed one (message_memory.h): cleared when it is put; else NULL */
} psp_buffer_t;

/* The peer of a message whose sender is known by its session alone. */
#define PSP_PEER_GUEST UINT32_MAX

/* keep_bytes: how much freed memory is kept for reuse at most. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_pool_create(size_t keep_bytes, psp_pool_t **pool_out,
                                            psc_error_t *error);

/* All its buffers must have been put back. NULL is a no-op, and so is all but get in a child after
 * a fork, where locks may be held by threads that are not there. */
void psp_pool_destroy(psp_pool_t *pool);

/* From now on buffers of more than PSP_MEMORY_LEAST_BYTES come from this memory, while it has room.
 * Once a pool, before other threads use it. Takes memory. */
void psp_pool_use(psp_pool_t *pool, struct psp_memory *memory);

/* From now on messages that are packed in its buffers have room for a seal (seal.h). Before other
 * threads use it. */
void psp_pool_seal(psp_pool_t *pool);
bool psp_pool_seals(const psp_pool_t *pool);

/* A buffer of at least capacity bytes, size 0. Any thread. Errors: NO_MEMORY, UNSUPPORTED (a child
 * after a fork). Gives. */
PSC_MUST_CHECK psc_status_t psp_buffer_get(psp_pool_t *pool, size_t capacity,
                                           psp_buffer_t **buffer_out, psc_error_t *error);

/* Back to its pool. Any thread. Takes; NULL is a no-op. */
void psp_buffer_put(psp_buffer_t *buffer);

/* One more owner, who puts it back too; it is free when all have. From now on its bytes must not
 * change. Any owner's thread. */
void psp_buffer_share(psp_buffer_t *buffer);

/* A borrowed one becomes an empty one of the pool's own; its lender has the message back. No-op for
 * others. */
void psp_buffer_give_back(psp_buffer_t *buffer);

/*
 * For transports: gives the memory up, never to be used or freed again, since somebody outside may
 * still read from it (a send to a dead peer that cannot be cancelled). Any thread. Takes.
 */
void psp_buffer_abandon(psp_buffer_t *buffer);

/* Bytes now outside the pool (gotten and not put back). Any thread. */
size_t psp_pool_bytes_out(const psp_pool_t *pool);

#endif
