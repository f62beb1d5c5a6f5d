/*
 * The server's end of the door, as a transport: opening the port, what its owner does, and the end.
 * The calls themselves are door_calls'.
 *
 * Threads. The owner's (poll, send, wait, flush, stop, destroy), the queue's, and gRPC's own, which
 * give lent buffers back. gRPC's own memory has a quota of its own.
 *
 * The end, in destroy: no more calls are expected; all are cancelled; those that nobody answered
 * are answered; then nothing is left that could start anything on the queue, which ends; the
 * server; and last the buffers that gRPC still reads from come back.
 */
#include "proto/grpc/grpc_server.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "proto/grpc/door_calls.h"
#include "proto/grpc/door_streams.h"
#include "proto/grpc/grpc_log.h"
#include "proto/grpc/listen_address.h"

#include <grpc/grpc_security.h>
#include <inttypes.h>

#define LIBRARY_BYTES ((size_t)64 << 20) /* of gRPC's own buffers */
#define STREAMS_PER_CONNECTION 256
#define SCRATCH_BYTES ((size_t)64 << 10)

static psp_door_t *door_of(psp_transport_t *transport)
{
    return (psp_door_t *)transport; /* base is the first member */
}

static psc_status_t door_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                              psc_error_t *error)
{
    psp_door_call_t *call = buffer->call;
    (void)transport;
    (void)peer;
    (void)error;
    PSC_BUG_ON(call == NULL || call->state != PSP_CALL_HELD);
    psp_door_reply(call, buffer);
    return PSC_OK;
}

static psc_status_t door_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                              psc_error_t *error)
{
    psp_door_t *door = door_of(transport);
    (void)error;
    psp_door_look(door);
    psc_queue_node_t *node = psc_queue_pop(door->arrived);
    *buffer_out = (psp_buffer_t *)(void *)node; /* node is its first member */
    if (node != NULL)
        transport->bytes_received += (*buffer_out)->size;
    else
        psp_door_admit(door);
    return PSC_OK;
}

static void door_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    psc_queue_wait(door_of(transport)->arrived, timeout_us);
}

static void door_wake(psp_transport_t *transport)
{
    psc_queue_wake(door_of(transport)->arrived);
}

static size_t door_backlog(psp_transport_t *transport, uint32_t peer)
{
    (void)transport;
    (void)peer; /* guests are no peers */
    return 0;
}

static psc_status_t door_flush(psp_transport_t *transport, uint64_t timeout_us, psc_error_t *error)
{
    psp_door_t *door = door_of(transport);
    const struct timespec until = psc_clock_after(timeout_us);
    int failed = 0;
    psp_door_lock(door);
    while (door->n_ending != 0 && failed == 0)
        failed = pthread_cond_timedwait(&door->changed, &door->lock, &until);
    const uint32_t n = door->n_ending;
    psp_door_unlock(door);
    return n == 0
               ? PSC_OK
               : psc_error_set(error, PSC_TIMEOUT, "%" PRIu32 " answers of calls have not left", n);
}

static void step_shut(psp_grpc_tag_t *tag, bool ok)
{
    psp_door_t *door = (psp_door_t *)(void *)((char *)tag - offsetof(psp_door_t, shut));
    (void)ok;
    psp_door_lock(door);
    door->is_shut = true;
    (void)pthread_cond_broadcast(&door->changed);
    psp_door_unlock(door);
}

static void door_stop(psp_transport_t *transport)
{
    psp_door_t *door = door_of(transport);
    psp_door_lock(door);
    const bool first = !door->stopping;
    door->stopping = true;
    psp_door_unlock(door);
    if (!first)
        return;
    psp_door_end_resting(door);
    psp_grpc_tag_give(&door->shut);
    grpc_server_shutdown_and_notify(door->server, psp_grpc_queue_inside(door->queue), &door->shut);
}

/* A call that waits for the owner or for room, and that nobody else will admit; NULL: none. */
static psp_door_call_t *take_unanswered(psp_door_t *door)
{
    psp_door_lock(door);
    door->pending = door->pending_last = NULL;
    psp_door_call_t *call = psp_door_find_unanswered(door);
    psp_door_unlock(door);
    return call;
}

/* Messages that nobody takes; their calls are PSP_CALL_HELD, or ended. */
static void drop_arrived(psp_door_t *door)
{
    psc_queue_node_t *node;
    while (door->arrived != NULL && (node = psc_queue_pop(door->arrived)) != NULL)
        psp_buffer_put((psp_buffer_t *)(void *)node);
}

/* All calls end. */
static void end_all(psp_door_t *door)
{
    door_stop(&door->base);
    grpc_server_cancel_all_calls(door->server);
    for (;;) {
        psp_door_call_t *call;
        drop_arrived(door);
        while ((call = take_unanswered(door)) != NULL)
            psp_door_end_call(call, GRPC_STATUS_UNAVAILABLE, "the server has ended");
        psp_door_lock(door);
        const bool over = door->is_shut && door->n_calls == 0 && door->n_expected == 0;
        if (!over && psp_door_find_unanswered(door) == NULL)
            (void)pthread_cond_wait(&door->changed, &door->lock);
        psp_door_unlock(door);
        if (over)
            return;
    }
}

static void door_destroy(psp_transport_t *transport)
{
    psp_door_t *door = door_of(transport);
    if (door->server != NULL)
        end_all(door);
    psp_grpc_queue_destroy(door->queue);
    drop_arrived(door);
    if (door->server != NULL)
        grpc_server_destroy(door->server);
    psp_grpc_tls_destroy(door->tls);
    psp_grpc_tokens_destroy(door->tokens);
    psp_door_lock(door);
    while (door->n_lent != 0)
        (void)pthread_cond_wait(&door->changed, &door->lock);
    psp_door_unlock(door);
    psp_door_free_calls(door);
    psc_queue_destroy(door->arrived);
    psp_scratch_destroy(door->scratch);
    (void)pthread_cond_destroy(&door->changed);
    (void)pthread_mutex_destroy(&door->lock);
    psc_free(door);
}

static const psp_transport_ops_t door_ops = {
    .name = "grpc",
    .send = door_send,
    .poll = door_poll,
    .wait = door_wait,
    .wake = door_wake,
    .backlog = door_backlog,
    .flush = door_flush,
    .stop = door_stop,
    .destroy = door_destroy,
};

/* ---- opening ---- */

static void make_server(psp_door_t *door)
{
    psp_grpc_args_t args;
    psp_grpc_server_args(door->options.max_message_bytes, &args);
    grpc_resource_quota *quota = grpc_resource_quota_create("door");
    grpc_resource_quota_resize(quota, LIBRARY_BYTES);
    psp_grpc_arg_pointer(&args, GRPC_ARG_RESOURCE_QUOTA, quota, grpc_resource_quota_arg_vtable());
    psp_grpc_arg(&args, GRPC_ARG_MAX_CONCURRENT_STREAMS, STREAMS_PER_CONNECTION);
    door->server = grpc_server_create(&args.args, NULL);
    grpc_resource_quota_unref(quota);
    grpc_server_register_completion_queue(door->server, psp_grpc_queue_inside(door->queue), NULL);
}

/* Opens the port; the server starts in any case, so that it can be shut down like any other. What
 * gRPC would only log, trying it first says. */
static psc_status_t open_port(psp_door_t *door, const psp_listen_address_t *address,
                              psc_error_t *error)
{
    char text[80];
    int port = 0;
    psp_listen_address_text(address, address->port, text, sizeof text);
    psc_status_t st = psp_listen_address_try(address, error);
    if (st == PSC_OK) {
        grpc_server_credentials *credentials = door->tls != NULL
                                                   ? psp_grpc_tls_credentials(door->tls)
                                                   : grpc_insecure_server_credentials_create();
        port = grpc_server_add_http2_port(door->server, text, credentials);
        grpc_server_credentials_release(credentials);
    }
    grpc_server_start(door->server);
    if (st == PSC_OK && port <= 0)
        st = psc_error_set(error, PSC_IO, "cannot listen on %s", text);
    if (st == PSC_OK)
        psp_listen_address_told(address, (uint32_t)port, door->address, sizeof door->address);
    return st;
}

static void init_lock(psp_door_t *door)
{
    pthread_condattr_t monotonic;
    (void)pthread_mutex_init(&door->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&door->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

psc_status_t psp_door_open(const psp_door_options_t *options, psp_pool_t *pool,
                           psp_transport_t **transport_out, psc_error_t *error)
{
    psp_listen_address_t address;
    psc_status_t st = psp_listen_address_parse(options->listen, &address, error);
    if (st != PSC_OK)
        return st;
    psp_door_t *door = psc_alloc_zeroed(1, sizeof *door);
    if (door == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a transport");
    init_lock(door);
    door->base = (psp_transport_t){.ops = &door_ops, .n_ranks = 1, .pool = pool};
    door->options = *options;
    door->options.listen = NULL;
    door->not_yet = options->not_yet;
    door->options.tls = (psp_door_tls_t){NULL, NULL, NULL};
    door->options.tokens = NULL;
    psp_pool_seal(pool);
    door->shut.done = step_shut;
    st = psc_queue_create(&door->arrived, error);
    if (st == PSC_OK)
        st = psp_scratch_create(SCRATCH_BYTES, &door->scratch, error);
    if (st == PSC_OK && options->tls.cert != NULL)
        st = psp_grpc_tls_create(&options->tls, &door->tls, error);
    if (st == PSC_OK && options->tokens != NULL)
        st = psp_grpc_tokens_create(options->tokens, &door->tokens, error);
    if (st == PSC_OK)
        st = psp_grpc_queue_create(&door->queue, error);
    if (st == PSC_OK) {
        psp_grpc_log_take();
        make_server(door);
        st = open_port(door, &address, error);
    }
    if (st != PSC_OK) {
        door_destroy(&door->base);
        return st;
    }
    psp_door_expect(door);
    *transport_out = &door->base;
    return PSC_OK;
}

void psp_door_serve(psp_transport_t *transport)
{
    psp_door_t *door = door_of(transport);
    psp_door_lock(door);
    door->not_yet = NULL;
    psp_door_unlock(door);
}

const char *psp_door_address(const psp_transport_t *transport)
{
    return ((const psp_door_t *)transport)->address;
}
