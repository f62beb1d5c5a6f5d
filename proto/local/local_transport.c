/*
 * Transport within one process: buffers move as pointers through a queue per endpoint.
 *
 * Purpose: the whole product in one process, and tests without MPI, over the same interface.
 *
 * All queues live in one shared state that is freed with the last endpoint, so that endpoints end
 * in any order: a sender looks at the receiver's `closed`, and what slips in behind a closing
 * receiver is put back to its pool with the shared state. A closing endpoint wakes its peers, so
 * that nobody sleeps on it for ever.
 *
 * Threads: each endpoint is used by one thread; the queues do the rest. Sends have left when send
 * returns, so the backlog is always 0: how much is under way is bounded by the client's window.
 */
#include "proto/local/local_transport.h"

#include "common/alloc.h"
#include "proto/delay_transport.h"

#include <stdatomic.h>

typedef struct mailbox {
    psc_queue_t *queue;
    atomic_bool closed; /* its endpoint was destroyed */
} mailbox_t;

typedef struct shared {
    atomic_size_t references; /* endpoints that are left */
    size_t n_mailboxes;       /* mailbox 0: the server's, 1 + w: worker w's */
    mailbox_t mailboxes[];
} shared_t;

typedef struct endpoint {
    psp_transport_t base; /* first */
    shared_t *shared;
    size_t own; /* index of one's mailbox */
} endpoint_t;

static endpoint_t *endpoint_of(psp_transport_t *transport)
{
    return (endpoint_t *)transport; /* base is the first member */
}

/* The mailbox of a peer. */
static mailbox_t *mailbox_of(const endpoint_t *endpoint, uint32_t peer)
{
    PSC_BUG_ON(peer >= endpoint->base.n_peers);
    return &endpoint->shared->mailboxes[endpoint->own == 0 ? 1 + (size_t)peer : 0];
}

static psc_status_t local_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                               psc_error_t *error)
{
    endpoint_t *endpoint = endpoint_of(transport);
    mailbox_t *to = mailbox_of(endpoint, peer);
    if (atomic_load_explicit(&to->closed, memory_order_acquire)) {
        psp_buffer_put(buffer);
        return psc_error_set(error, PSC_PEER_GONE, "%s %u of this process has ended",
                             endpoint->own == 0 ? "worker" : "server", peer);
    }
    buffer->peer = transport->rank;
    psc_queue_push(to->queue, &buffer->node);
    return PSC_OK;
}

static psc_status_t local_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                               psc_error_t *error)
{
    (void)error;
    endpoint_t *endpoint = endpoint_of(transport);
    psc_queue_node_t *node = psc_queue_pop(endpoint->shared->mailboxes[endpoint->own].queue);
    *buffer_out = (psp_buffer_t *)(void *)node; /* node is the first member */
    if (node != NULL)
        transport->bytes_received += (*buffer_out)->size;
    return PSC_OK;
}

static void local_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    endpoint_t *endpoint = endpoint_of(transport);
    psc_queue_wait(endpoint->shared->mailboxes[endpoint->own].queue, timeout_us);
}

static void local_wake(psp_transport_t *transport)
{
    endpoint_t *endpoint = endpoint_of(transport);
    psc_queue_wake(endpoint->shared->mailboxes[endpoint->own].queue);
}

static size_t local_backlog(psp_transport_t *transport, uint32_t peer)
{
    (void)transport;
    (void)peer;
    return 0;
}

static psc_status_t local_flush(psp_transport_t *transport, uint64_t timeout_us, psc_error_t *error)
{
    (void)transport;
    (void)timeout_us;
    (void)error;
    return PSC_OK;
}

/* Puts back what a mailbox still holds. */
static void drain(mailbox_t *mailbox)
{
    psc_queue_node_t *node;
    while ((node = psc_queue_pop(mailbox->queue)) != NULL)
        psp_buffer_put((psp_buffer_t *)(void *)node);
}

static void shared_free(shared_t *shared)
{
    for (size_t i = 0; i < shared->n_mailboxes; i++) {
        if (shared->mailboxes[i].queue != NULL)
            drain(&shared->mailboxes[i]);
        psc_queue_destroy(shared->mailboxes[i].queue);
    }
    psc_free(shared);
}

static void local_destroy(psp_transport_t *transport)
{
    endpoint_t *endpoint = endpoint_of(transport);
    shared_t *shared = endpoint->shared;
    mailbox_t *own = &shared->mailboxes[endpoint->own];
    atomic_store_explicit(&own->closed, true, memory_order_release);
    drain(own);
    for (uint32_t peer = 0; peer < transport->n_peers; peer++)
        psc_queue_wake(mailbox_of(endpoint, peer)->queue);
    psc_free(endpoint);
    if (atomic_fetch_sub_explicit(&shared->references, 1, memory_order_acq_rel) == 1)
        shared_free(shared);
}

static const psp_transport_ops_t local_ops = {
    .name = "local",
    .send = local_send,
    .poll = local_poll,
    .wait = local_wait,
    .wake = local_wake,
    .backlog = local_backlog,
    .flush = local_flush,
    .destroy = local_destroy,
};

static psc_status_t shared_create(size_t n_mailboxes, shared_t **shared_out, psc_error_t *error)
{
    size_t bytes;
    shared_t *shared = NULL;
    if (psc_size_multiply(n_mailboxes, sizeof(mailbox_t), &bytes) &&
        bytes <= SIZE_MAX - sizeof *shared)
        shared = psc_alloc_zeroed(1, sizeof *shared + bytes);
    if (shared == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %zu local endpoints",
                             n_mailboxes);
    shared->n_mailboxes = n_mailboxes;
    for (size_t i = 0; i < n_mailboxes; i++) {
        psc_status_t st = psc_queue_create(&shared->mailboxes[i].queue, error);
        if (st != PSC_OK) {
            shared_free(shared);
            return st;
        }
    }
    *shared_out = shared;
    return PSC_OK;
}

/* Without a reference to shared as yet. */
static endpoint_t *endpoint_create(shared_t *shared, size_t own, psp_pool_t *pool)
{
    endpoint_t *endpoint = psc_alloc_zeroed(1, sizeof *endpoint);
    if (endpoint == NULL)
        return NULL;
    uint32_t n_workers = (uint32_t)(shared->n_mailboxes - 1);
    endpoint->base = (psp_transport_t){
        .ops = &local_ops,
        .n_peers = own == 0 ? n_workers : 1,
        .rank = own == 0 ? 0 : (uint32_t)(own - 1),
        .n_ranks = own == 0 ? 1 : n_workers,
        .pool = pool,
    };
    endpoint->shared = shared;
    endpoint->own = own;
    return endpoint;
}

/* Delays, in builds that have them. On error no endpoint is left. */
static psc_status_t wrap_all(uint32_t n_workers, psp_transport_t **server,
                             psp_transport_t **clients, psc_error_t *error)
{
    psc_status_t st = psp_delay_wrap(server, error);
    for (uint32_t i = 0; st == PSC_OK && i < n_workers; i++)
        st = psp_delay_wrap(&clients[i], error);
    if (st == PSC_OK)
        return PSC_OK;
    psp_transport_destroy(*server);
    *server = NULL;
    for (uint32_t i = 0; i < n_workers; i++) {
        psp_transport_destroy(clients[i]);
        clients[i] = NULL;
    }
    return st;
}

psc_status_t psp_local_create(uint32_t n_workers, psp_pool_t *pool, psp_transport_t **server_out,
                              psp_transport_t **clients_out, psc_error_t *error)
{
    if (n_workers == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a local server needs a worker");
    shared_t *shared = NULL;
    psc_status_t st = shared_create(1 + (size_t)n_workers, &shared, error);
    if (st != PSC_OK)
        return st;
    endpoint_t *server = endpoint_create(shared, 0, pool);
    uint32_t made = 0;
    while (server != NULL && made < n_workers) {
        endpoint_t *client = endpoint_create(shared, 1 + (size_t)made, pool);
        if (client == NULL)
            break;
        clients_out[made++] = &client->base;
    }
    if (made < n_workers) {
        while (made > 0) {
            made--;
            psc_free(endpoint_of(clients_out[made]));
            clients_out[made] = NULL;
        }
        psc_free(server);
        shared_free(shared);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %u local endpoints",
                             n_workers);
    }
    atomic_init(&shared->references, shared->n_mailboxes);
    *server_out = &server->base;
    return wrap_all(n_workers, server_out, clients_out, error);
}
