/*
 * The server's end of the door.
 *
 * A call goes through these states; what moves it is in brackets:
 *
 *     EXPECTED    gRPC was told where to put the next call        [queue's thread: it came]
 *     PENDING     too much is here already: its message is not read yet   [either: there is room]
 *     RECEIVING   its message is being read                       [queue's thread: it is in]
 *     HELD        the message was given to the owner              [owner: it answers]
 *     ENDING      answer and status are being sent                [queue's thread: gone]
 *
 * Threads. The owner's (poll, send, wait, flush, stop, destroy), the queue's, and gRPC's own, which
 * give lent buffers back (release). `lock` guards the list of calls, their states and the counts;
 * no call of gRPC is made inside, since it may give buffers back at once. A call in HELD is the
 * owner's alone, in other states the queue's.
 *
 * Bounds. Messages here, and answers that have not left, are quota_bytes, over which messages stay
 * unread, so that HTTP/2's windows hold back who sends. RECEIVING_MAX are read at a time, so a
 * quota is overdrawn by as many messages at most. Who sends a message or takes an answer for
 * longer than `patience_us` is cancelled. gRPC's own memory has a quota of its own.
 *
 * The end, in destroy: no more calls are expected; all are cancelled; those that nobody answered
 * are answered; then nothing is left that could start anything on the queue, which ends; the
 * server; and last the buffers that gRPC still reads from come back.
 */
#include "proto/grpc/grpc_server.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "proto/grpc/grpc_health.h"
#include "proto/grpc/grpc_layer.h"
#include "proto/grpc/grpc_tls.h"
#include "proto/grpc/listen_address.h"
#include "proto/message.h"

#include <grpc/grpc_security.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define RECEIVING_MAX 32u
#define EXPECTED_MAX 4u
#define LIBRARY_BYTES ((size_t)64 << 20) /* of gRPC's own buffers */
#define STREAMS_PER_CONNECTION 256
#define LOOK_US UINT64_C(1000000)
#define OPS_MAX 4u
#define HEALTH UINT32_MAX /* a kind that the door answers itself */
#define LATE_MAX 64u      /* calls that are cancelled at a time */

typedef enum call_state { EXPECTED, PENDING, RECEIVING, HELD, ENDING } call_state_t;

struct door;
struct call;

/* A tag that knows its call. */
typedef struct step {
    psp_grpc_tag_t tag; /* first */
    struct call *call;
} step_t;

typedef struct call {
    struct door *door;
    struct call *previous, *next; /* in door->calls, or (next) among the free ones */
    struct call *next_pending;
    call_state_t state;
    uint64_t since_us; /* of the state */
    uint32_t kind;
    size_t bytes; /* of the request */
    grpc_call *inside;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *request, *reply;
    grpc_slice status_text;
    int was_cancelled;
    step_t accepted, received, ended;
} call_t;

typedef struct door {
    psp_transport_t base; /* first */
    psp_door_options_t options;
    psp_grpc_queue_t *queue;
    grpc_server *server;
    psp_grpc_tls_t *tls;  /* NULL: plain text */
    psc_queue_t *arrived; /* messages for the owner */
    psp_grpc_tag_t shut;
    char address[PSP_ADDRESS_MAX + 8];
    uint64_t looked_us;
    atomic_size_t bytes_here; /* of requests and answers */
    pthread_mutex_t lock;
    pthread_cond_t changed;         /* with lock: something ended */
    call_t *calls;                  /* those that came; guarded by lock */
    call_t *pending, *pending_last; /* guarded by lock */
    call_t *unused;                 /* guarded by lock */
    uint32_t n_calls;               /* in calls; guarded by lock */
    uint32_t n_expected;            /* guarded by lock */
    uint32_t n_receiving;           /* guarded by lock */
    uint32_t n_ending;              /* guarded by lock */
    size_t n_lent;                  /* buffers that gRPC has; guarded by lock */
    bool stopping, is_shut;         /* guarded by lock */
} door_t;

static door_t *door_of(psp_transport_t *transport)
{
    return (door_t *)transport; /* base is the first member */
}

static void lock(door_t *door)
{
    (void)pthread_mutex_lock(&door->lock);
}

static void unlock(door_t *door)
{
    (void)pthread_mutex_unlock(&door->lock);
}

/* ---- calls ---- */

static void step_accepted(psp_grpc_tag_t *tag, bool ok);
static void step_received(psp_grpc_tag_t *tag, bool ok);
static void step_ended(psp_grpc_tag_t *tag, bool ok);

/* A call that is expected; NULL: no memory. */
static call_t *new_call(door_t *door)
{
    lock(door);
    call_t *call = door->unused;
    if (call != NULL)
        door->unused = call->next;
    unlock(door);
    if (call == NULL && (call = psc_alloc(sizeof *call)) == NULL)
        return NULL;
    *call = (call_t){.door = door, .state = EXPECTED};
    call->accepted = (step_t){.tag.done = step_accepted, .call = call};
    call->received = (step_t){.tag.done = step_received, .call = call};
    call->ended = (step_t){.tag.done = step_ended, .call = call};
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    call->status_text = grpc_empty_slice();
    return call;
}

/* What gRPC gave it. */
static void empty_call(call_t *call)
{
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_slice_unref(call->status_text);
    if (call->request != NULL)
        grpc_byte_buffer_destroy(call->request);
    if (call->reply != NULL)
        grpc_byte_buffer_destroy(call->reply);
    if (call->inside != NULL)
        grpc_call_unref(call->inside);
}

static void free_call(door_t *door, call_t *call)
{
    lock(door);
    call->next = door->unused;
    door->unused = call;
    unlock(door);
}

/* Lets further calls come, as many at a time as there are to be. */
static void expect_calls(door_t *door)
{
    for (;;) {
        lock(door);
        const bool more = !door->stopping && door->n_expected < EXPECTED_MAX;
        door->n_expected += more;
        unlock(door);
        if (!more)
            return;
        call_t *call = new_call(door);
        grpc_completion_queue *queue = psp_grpc_queue_inside(door->queue);
        if (call != NULL &&
            grpc_server_request_call(door->server, &call->inside, &call->details, &call->metadata,
                                     queue, queue, &call->accepted.tag) == GRPC_CALL_OK)
            continue;
        if (call != NULL) {
            empty_call(call);
            free_call(door, call);
        }
        lock(door);
        door->n_expected--;
        unlock(door);
        return; /* again with the next that ends */
    }
}

/* Starts a batch of a call. A call that is not to be had any more still ends by its tag. */
static void start(call_t *call, const grpc_op *ops, size_t n, step_t *step)
{
    const grpc_call_error fault = grpc_call_start_batch(call->inside, ops, n, &step->tag, NULL);
    PSC_BUG_ON(fault != GRPC_CALL_OK); /* the batch itself would be wrong */
}

static void enter(call_t *call, call_state_t state)
{
    door_t *door = call->door;
    lock(door);
    door->n_receiving -= call->state == RECEIVING;
    door->n_receiving += state == RECEIVING;
    door->n_ending += state == ENDING;
    call->state = state;
    call->since_us = psc_clock_us();
    (void)pthread_cond_broadcast(&door->changed);
    unlock(door);
}

/* Ends a call with a status, and with call->reply if there is one. text: borrowed. */
static void end_call(call_t *call, grpc_status_code status, const char *text)
{
    grpc_op ops[OPS_MAX] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
    size_t n = 1;
    enter(call, ENDING);
    if (call->reply != NULL)
        ops[n++] =
            (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = call->reply};
    call->status_text = grpc_slice_from_copied_string(text);
    ops[n] = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    ops[n].data.send_status_from_server.status = status;
    ops[n++].data.send_status_from_server.status_details = &call->status_text;
    ops[n] = (grpc_op){.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    ops[n++].data.recv_close_on_server.cancelled = &call->was_cancelled;
    start(call, ops, n, &call->ended);
}

static void receive(call_t *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->request;
    start(call, &op, 1, &call->received);
}

/* Reads messages of pending calls as far as there is room. */
static void admit_pending(door_t *door)
{
    for (;;) {
        lock(door);
        call_t *call = door->pending;
        const bool room = door->n_receiving < RECEIVING_MAX &&
                          atomic_load(&door->bytes_here) < door->options.quota_bytes;
        if (call == NULL || !room) {
            unlock(door);
            return;
        }
        door->pending = call->next_pending;
        if (door->pending == NULL)
            door->pending_last = NULL;
        call->state = RECEIVING;
        call->since_us = psc_clock_us();
        door->n_receiving++;
        unlock(door);
        receive(call);
    }
}

static void append_pending(call_t *call)
{
    door_t *door = call->door;
    lock(door);
    call->state = PENDING;
    call->since_us = psc_clock_us();
    call->next_pending = NULL;
    *(door->pending_last != NULL ? &door->pending_last->next_pending : &door->pending) = call;
    door->pending_last = call;
    (void)pthread_cond_broadcast(&door->changed);
    unlock(door);
}

/* A call has come, or, at the end, will not. */
static void step_accepted(psp_grpc_tag_t *tag, bool ok)
{
    call_t *call = ((step_t *)tag)->call;
    door_t *door = call->door;
    lock(door);
    door->n_expected--;
    const bool stopping = door->stopping, full = door->n_calls >= door->options.max_calls;
    if (ok) {
        call->next = door->calls;
        if (call->next != NULL)
            call->next->previous = call;
        door->calls = call;
        door->n_calls++;
    }
    (void)pthread_cond_broadcast(&door->changed);
    unlock(door);
    if (!ok) {
        empty_call(call);
        free_call(door, call);
        return;
    }
    expect_calls(door);
    call->kind =
        psp_grpc_is_health(call->details.method) ? HEALTH : psp_grpc_kind(call->details.method);
    char text[128];
    if (stopping) {
        end_call(call, GRPC_STATUS_UNAVAILABLE, "the server ends");
    } else if (full) {
        (void)snprintf(text, sizeof text, "more than %" PRIu32 " calls are under way",
                       door->options.max_calls);
        end_call(call, GRPC_STATUS_RESOURCE_EXHAUSTED, text);
    } else if (call->kind == 0) {
        end_call(call, GRPC_STATUS_UNIMPLEMENTED, "no such method");
    } else {
        append_pending(call);
        admit_pending(door);
    }
}

/* Gives a message to the owner. Takes buffer. */
static void hand_over(call_t *call, psp_buffer_t *buffer)
{
    door_t *door = call->door;
    buffer->kind = call->kind;
    buffer->peer = PSP_PEER_GUEST;
    buffer->call = call;
    call->bytes = buffer->capacity;
    atomic_fetch_add(&door->bytes_here, call->bytes);
    enter(call, HELD);
    psc_queue_push(door->arrived, &buffer->node);
    if (door->options.wake_also != NULL)
        psp_transport_wake(door->options.wake_also);
}

/* Takes buffer. */
static void answer_health(call_t *call, psp_buffer_t *buffer)
{
    const grpc_status_code status = psp_grpc_check_health(buffer->data, buffer->size, &call->reply);
    psp_buffer_put(buffer);
    end_call(call, status, status == GRPC_STATUS_OK ? "" : "no such service here");
}

/* A message is in, or the call is off. */
static void step_received(psp_grpc_tag_t *tag, bool ok)
{
    call_t *call = ((step_t *)tag)->call;
    door_t *door = call->door;
    psp_buffer_t *buffer = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st;
    if (!ok || call->request == NULL)
        st = psc_error_set(&error, PSC_PROTOCOL, "a call without a message");
    else
        st = psp_grpc_take(door->base.pool, call->request, door->options.max_message_bytes, &buffer,
                           &error);
    if (call->request != NULL)
        grpc_byte_buffer_destroy(call->request);
    call->request = NULL;
    if (st == PSC_OK && call->kind == HEALTH)
        answer_health(call, buffer);
    else if (st == PSC_OK)
        hand_over(call, buffer);
    else
        end_call(call, psp_grpc_status(st), error.message);
    admit_pending(door);
}

/* Answer and status have left, or cannot. */
static void step_ended(psp_grpc_tag_t *tag, bool ok)
{
    call_t *call = ((step_t *)tag)->call;
    door_t *door = call->door;
    (void)ok;
    atomic_fetch_sub(&door->bytes_here, call->bytes);
    lock(door);
    *(call->previous != NULL ? &call->previous->next : &door->calls) = call->next;
    if (call->next != NULL)
        call->next->previous = call->previous;
    unlock(door);
    empty_call(call);
    admit_pending(door);
    expect_calls(door);
    /* Last, since the end waits for it. */
    lock(door);
    call->next = door->unused;
    door->unused = call;
    door->n_ending--;
    door->n_calls--;
    (void)pthread_cond_broadcast(&door->changed);
    unlock(door);
}

/* ---- the transport ---- */

/* gRPC needs an answer no more. Any thread. */
static void release(void *context)
{
    psp_buffer_t *buffer = context;
    door_t *door = buffer->call;
    atomic_fetch_sub(&door->bytes_here, buffer->capacity);
    psp_buffer_put(buffer);
    lock(door);
    door->n_lent--;
    (void)pthread_cond_broadcast(&door->changed);
    unlock(door);
}

static psc_status_t door_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                              psc_error_t *error)
{
    door_t *door = door_of(transport);
    call_t *call = buffer->call;
    (void)peer;
    (void)error;
    PSC_BUG_ON(call == NULL || call->state != HELD);
    atomic_fetch_add(&door->bytes_here, buffer->capacity);
    lock(door);
    door->n_lent++;
    unlock(door);
    buffer->call = door; /* for release, which may come when the call has ended */
    call->reply = psp_grpc_lend(buffer, release);
    end_call(call, GRPC_STATUS_OK, "");
    return PSC_OK;
}

/* Cancels what takes too long. What ends then goes on as if it had ended by itself. */
static void look(door_t *door)
{
    const uint64_t now_us = psc_clock_us();
    grpc_call *late[LATE_MAX];
    size_t n = 0;
    if (now_us - door->looked_us < LOOK_US)
        return;
    door->looked_us = now_us;
    lock(door);
    for (const call_t *call = door->calls; call != NULL && n < LATE_MAX; call = call->next) {
        /* since_us may be after now_us: the queue's thread goes on meanwhile. */
        if ((call->state == RECEIVING || call->state == ENDING) &&
            call->since_us + door->options.patience_us < now_us) {
            late[n] = call->inside;
            grpc_call_ref(late[n++]);
        }
    }
    unlock(door);
    for (size_t i = 0; i < n; i++) { /* may give buffers back, which takes the lock */
        (void)grpc_call_cancel(late[i], NULL);
        grpc_call_unref(late[i]);
    }
}

static psc_status_t door_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                              psc_error_t *error)
{
    door_t *door = door_of(transport);
    (void)error;
    look(door);
    psc_queue_node_t *node = psc_queue_pop(door->arrived);
    *buffer_out = (psp_buffer_t *)(void *)node; /* node is its first member */
    if (node != NULL)
        transport->bytes_received += (*buffer_out)->size;
    else
        admit_pending(door);
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
    door_t *door = door_of(transport);
    const struct timespec until = psc_clock_after(timeout_us);
    int failed = 0;
    lock(door);
    while (door->n_ending != 0 && failed == 0)
        failed = pthread_cond_timedwait(&door->changed, &door->lock, &until);
    const uint32_t n = door->n_ending;
    unlock(door);
    return n == 0
               ? PSC_OK
               : psc_error_set(error, PSC_TIMEOUT, "%" PRIu32 " answers of calls have not left", n);
}

static void step_shut(psp_grpc_tag_t *tag, bool ok)
{
    door_t *door = (door_t *)(void *)((char *)tag - offsetof(door_t, shut));
    (void)ok;
    lock(door);
    door->is_shut = true;
    (void)pthread_cond_broadcast(&door->changed);
    unlock(door);
}

static void door_stop(psp_transport_t *transport)
{
    door_t *door = door_of(transport);
    lock(door);
    const bool first = !door->stopping;
    door->stopping = true;
    unlock(door);
    if (first)
        grpc_server_shutdown_and_notify(door->server, psp_grpc_queue_inside(door->queue),
                                        &door->shut);
}

/* A call that waits for the owner or for room; NULL: none. Under the lock. */
static call_t *find_unanswered(door_t *door)
{
    call_t *call = door->calls;
    while (call != NULL && call->state != HELD && call->state != PENDING)
        call = call->next;
    return call;
}

/* The same, and nobody else will admit it. */
static call_t *take_unanswered(door_t *door)
{
    lock(door);
    door->pending = door->pending_last = NULL;
    call_t *call = find_unanswered(door);
    unlock(door);
    return call;
}

/* Messages that nobody takes; their calls are HELD, or ended. */
static void drop_arrived(door_t *door)
{
    psc_queue_node_t *node;
    while (door->arrived != NULL && (node = psc_queue_pop(door->arrived)) != NULL)
        psp_buffer_put((psp_buffer_t *)(void *)node);
}

/* All calls end. */
static void end_all(door_t *door)
{
    door_stop(&door->base);
    grpc_server_cancel_all_calls(door->server);
    for (;;) {
        call_t *call;
        drop_arrived(door);
        while ((call = take_unanswered(door)) != NULL)
            end_call(call, GRPC_STATUS_UNAVAILABLE, "the server has ended");
        lock(door);
        const bool over = door->is_shut && door->n_calls == 0 && door->n_expected == 0;
        if (!over && find_unanswered(door) == NULL)
            (void)pthread_cond_wait(&door->changed, &door->lock);
        unlock(door);
        if (over)
            return;
    }
}

static void door_destroy(psp_transport_t *transport)
{
    door_t *door = door_of(transport);
    if (door->server != NULL)
        end_all(door);
    psp_grpc_queue_destroy(door->queue);
    drop_arrived(door);
    if (door->server != NULL)
        grpc_server_destroy(door->server);
    psp_grpc_tls_destroy(door->tls);
    lock(door);
    while (door->n_lent != 0)
        (void)pthread_cond_wait(&door->changed, &door->lock);
    unlock(door);
    while (door->unused != NULL) {
        call_t *call = door->unused;
        door->unused = call->next;
        psc_free(call);
    }
    psc_queue_destroy(door->arrived);
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

static void make_server(door_t *door)
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
static psc_status_t open_port(door_t *door, const psp_listen_address_t *address, psc_error_t *error)
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
    if (st == PSC_OK && port <= 0 && door->tls != NULL)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "cannot listen on %s: certificate, key or authority is no PEM, or the "
                           "key is not the certificate's",
                           text);
    else if (st == PSC_OK && port <= 0)
        st = psc_error_set(error, PSC_IO, "cannot listen on %s", text);
    if (st == PSC_OK)
        psp_listen_address_told(address, (uint32_t)port, door->address, sizeof door->address);
    return st;
}

static void init_lock(door_t *door)
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
    door_t *door = psc_alloc_zeroed(1, sizeof *door);
    if (door == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a transport");
    init_lock(door);
    door->base = (psp_transport_t){.ops = &door_ops, .n_ranks = 1, .pool = pool};
    door->options = *options;
    door->options.listen = NULL;
    door->options.tls = (psp_door_tls_t){NULL, NULL, NULL};
    door->shut.done = step_shut;
    st = psc_queue_create(&door->arrived, error);
    if (st == PSC_OK && options->tls.cert != NULL)
        st = psp_grpc_tls_create(&options->tls, &door->tls, error);
    if (st == PSC_OK)
        st = psp_grpc_queue_create(&door->queue, error);
    if (st == PSC_OK) {
        make_server(door);
        st = open_port(door, &address, error);
    }
    if (st != PSC_OK) {
        door_destroy(&door->base);
        return st;
    }
    expect_calls(door);
    *transport_out = &door->base;
    return PSC_OK;
}

const char *psp_door_address(const psp_transport_t *transport)
{
    return ((const door_t *)transport)->address;
}
