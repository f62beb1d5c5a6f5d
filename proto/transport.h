/*
 * What a transport does: carry whole messages between an endpoint and its numbered peers.
 *
 * Messages of one peer arrive in the order in which they were sent. Nothing blocks but wait and
 * flush. A server's peers are the workers 0..W-1, a worker's are the servers 0..S-1. Guests, which
 * are no workers, come by calls: their messages are of PSP_PEER_GUEST, and an answer goes to the
 * call of its request (psp_buffer_t.call).
 *
 * Threads: one thread uses an endpoint; wake alone may be called from any.
 */
#ifndef PROTO_TRANSPORT_H
#define PROTO_TRANSPORT_H

#include "proto/buffer.h"

#include <stdbool.h>

typedef struct psp_transport psp_transport_t;

/* Implemented by each transport; psp_transport_t begins with a pointer to it. */
typedef struct psp_transport_ops {
    const char *name;
    psc_status_t (*send)(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                         psc_error_t *error);
    psc_status_t (*poll)(psp_transport_t *transport, psp_buffer_t **buffer_out, psc_error_t *error);
    void (*wait)(psp_transport_t *transport, uint64_t timeout_us);
    void (*wake)(psp_transport_t *transport);
    size_t (*backlog)(psp_transport_t *transport, uint32_t peer);
    psc_status_t (*flush)(psp_transport_t *transport, uint64_t timeout_us, psc_error_t *error);
    void (*forget)(psp_transport_t *transport, uint32_t peer); /* NULL: nothing to do */
    void (*stop)(psp_transport_t *transport);                  /* NULL: nothing to do */
    void (*destroy)(psp_transport_t *transport);
} psp_transport_ops_t;

struct psp_transport {
    const psp_transport_ops_t *ops;
    uint32_t n_peers;
    uint32_t rank;    /* own rank among one's kind */
    uint32_t n_ranks; /* how many of one's kind */
    psp_pool_t *pool; /* where received buffers come from; not owned */
    uint64_t bytes_sent;
    uint64_t bytes_received;
    uint64_t damaged; /* messages that came with a seal that is broken, and were not taken */
    uint64_t retries; /* sends that failed and were made again, where a transport does that */
};

/* Sends buffer (its kind, data, size) to peer. Takes buffer, also on error. Does not wait.
 * Errors: PEER_GONE, IO, NO_MEMORY. */
static inline PSC_MUST_CHECK psc_status_t psp_transport_send(psp_transport_t *t, uint32_t peer,
                                                             psp_buffer_t *buffer,
                                                             psc_error_t *error)
{
    t->bytes_sent += buffer->size;
    return t->ops->send(t, peer, buffer, error);
}

/* Moves what is under way; *buffer_out is the next message (its peer and kind set), or NULL when
 * none is there. Gives. Errors: PROTOCOL (larger than the limit; the message is dropped), IO,
 * NO_MEMORY (the message waits for the next poll). */
static inline PSC_MUST_CHECK psc_status_t psp_transport_poll(psp_transport_t *t,
                                                             psp_buffer_t **buffer_out,
                                                             psc_error_t *error)
{
    return t->ops->poll(t, buffer_out, error);
}

/* Returns when a message may be there, after a wake, or after about timeout_us. May return early.
 */
static inline void psp_transport_wait(psp_transport_t *t, uint64_t timeout_us)
{
    t->ops->wait(t, timeout_us);
}

/* Ends the present or next wait. Any thread. */
static inline void psp_transport_wake(psp_transport_t *t)
{
    t->ops->wake(t);
}

/* Bytes sent to peer that have not left yet. */
static inline size_t psp_transport_backlog(psp_transport_t *t, uint32_t peer)
{
    return t->ops->backlog(t, peer);
}

/* Waits until all sends have left. Errors: TIMEOUT. */
static inline PSC_MUST_CHECK psc_status_t psp_transport_flush(psp_transport_t *t,
                                                              uint64_t timeout_us,
                                                              psc_error_t *error)
{
    return t->ops->flush(t, timeout_us, error);
}

/* A peer whose process is gone: what is on its way from and to it will never end, and is given up,
 * so that it holds no place and no flush waits for it. */
static inline void psp_transport_forget(psp_transport_t *t, uint32_t peer)
{
    if (t->ops->forget != NULL)
        t->ops->forget(t, peer);
}

/* No further message is taken in: who tries is told that this end is about to close. What is under
 * way stays so. */
static inline void psp_transport_stop(psp_transport_t *t)
{
    if (t->ops->stop != NULL)
        t->ops->stop(t);
}

/* Frees; unsent messages are dropped, and what a transport cannot take back from the system below
 * it is given up (psp_buffer_abandon). NULL is a no-op. */
static inline void psp_transport_destroy(psp_transport_t *t)
{
    if (t != NULL)
        t->ops->destroy(t);
}

#endif
