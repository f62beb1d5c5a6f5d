/*
 * Calls go through three steps on the queue's thread: asked for, request read, answered. A call
 * that is kept waits for its cancellation. Messages are copied; speed does not matter here.
 */
#include "tests/support/fake_door.h"

#include "proto/grpc/grpc_layer.h"
#include "proto/message.h"
#include "tests/support/cmocka.h"

#include <grpc/grpc_security.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct visit {
    psp_grpc_tag_t tag; /* first */
    fake_door_t *door;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *request, *reply;
    int cancelled;
} visit_t;

struct fake_door {
    psp_grpc_queue_t *queue;
    psp_pool_t *pool;
    grpc_server *server;
    fake_door_fn decide;
    void *context;
    int port;
    psp_grpc_tag_t stop_tag;
    atomic_size_t n_visits;
    atomic_bool stopped;
};

static void ask(fake_door_t *door);

static void end(psp_grpc_tag_t *tag, bool ok)
{
    (void)ok;
    visit_t *visit = (visit_t *)(void *)tag;
    if (visit->request != NULL)
        grpc_byte_buffer_destroy(visit->request);
    if (visit->reply != NULL)
        grpc_byte_buffer_destroy(visit->reply);
    grpc_call_details_destroy(&visit->details);
    grpc_metadata_array_destroy(&visit->metadata);
    if (visit->call != NULL)
        grpc_call_unref(visit->call);
    atomic_fetch_sub(&visit->door->n_visits, 1);
    free(visit);
}

static void run(visit_t *visit, const grpc_op *ops, size_t n, psp_grpc_done_fn next)
{
    visit->tag.done = next;
    PSC_BUG_ON(grpc_call_start_batch(visit->call, ops, n, &visit->tag, NULL) != GRPC_CALL_OK);
}

static void answer(psp_grpc_tag_t *tag, bool ok)
{
    visit_t *visit = (visit_t *)(void *)tag;
    fake_door_t *door = visit->door;
    psp_buffer_t *request, *reply = NULL;
    const grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
                           .data.recv_close_on_server.cancelled = &visit->cancelled};
    if (!ok || psp_grpc_take(door->pool, visit->request, SIZE_MAX, &request, NULL) != PSC_OK) {
        run(visit, &close, 1, end);
        return;
    }
    request->kind = psp_grpc_kind(visit->details.method);
    const grpc_status_code status = door->decide(door->context, request, &reply);
    psp_buffer_put(request);
    grpc_slice why = grpc_slice_from_static_string("as the test wants it");
    grpc_op ops[4] = {close,
                      {.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
                       .data.send_status_from_server = {.status = status, .status_details = &why}}};
    if (status == GRPC_STATUS_OK && reply == NULL) {
        run(visit, &close, 1, end);
        return;
    }
    if (reply != NULL) {
        visit->reply = psp_grpc_lend(reply, psp_grpc_put_back);
        ops[3] =
            (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = visit->reply};
    }
    run(visit, ops, reply != NULL ? 4 : 3, end);
}

static void take(psp_grpc_tag_t *tag, bool ok)
{
    visit_t *visit = (visit_t *)(void *)tag;
    if (!ok) { /* the server stops */
        end(tag, ok);
        return;
    }
    ask(visit->door);
    const grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE,
                             .data.recv_message.recv_message = &visit->request};
    run(visit, &receive, 1, answer);
}

/* For the next call. */
static void ask(fake_door_t *door)
{
    visit_t *visit = calloc(1, sizeof *visit);
    PSC_BUG_ON(visit == NULL);
    visit->tag.done = take;
    visit->door = door;
    atomic_fetch_add(&door->n_visits, 1);
    grpc_call_details_init(&visit->details);
    grpc_metadata_array_init(&visit->metadata);
    grpc_completion_queue *inside = psp_grpc_queue_inside(door->queue);
    if (grpc_server_request_call(door->server, &visit->call, &visit->details, &visit->metadata,
                                 inside, inside, &visit->tag) != GRPC_CALL_OK)
        end(&visit->tag, false);
}

fake_door_t *fake_door_start(uint16_t port, fake_door_fn decide, void *context)
{
    char address[32];
    psp_grpc_args_t args;
    fake_door_t *door = calloc(1, sizeof *door);
    assert_non_null(door);
    door->decide = decide;
    door->context = context;
    assert_int_equal(psp_pool_create(1 << 20, &door->pool, NULL), PSC_OK);
    assert_int_equal(psp_grpc_queue_create(&door->queue, NULL), PSC_OK);
    psp_grpc_server_args(PSP_GRPC_MAX_MESSAGE_BYTES, &args);
    door->server = grpc_server_create(&args.args, NULL);
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port);
    door->port = grpc_server_add_http2_port(door->server, address, plain);
    grpc_server_credentials_release(plain);
    assert_int_not_equal(door->port, 0);
    grpc_server_register_completion_queue(door->server, psp_grpc_queue_inside(door->queue), NULL);
    grpc_server_start(door->server);
    ask(door);
    return door;
}

static void stop_done(psp_grpc_tag_t *tag, bool ok)
{
    (void)ok;
    fake_door_t *door = (fake_door_t *)(void *)((char *)tag - offsetof(fake_door_t, stop_tag));
    atomic_store(&door->stopped, true);
}

void fake_door_stop(fake_door_t *door)
{
    door->stop_tag.done = stop_done;
    grpc_server_shutdown_and_notify(door->server, psp_grpc_queue_inside(door->queue),
                                    &door->stop_tag);
    grpc_server_cancel_all_calls(door->server);
    while (!atomic_load(&door->stopped) || atomic_load(&door->n_visits) != 0)
        (void)sched_yield();
    psp_grpc_queue_destroy(door->queue);
    grpc_server_destroy(door->server);
    while (psp_pool_bytes_out(door->pool) != 0)
        (void)sched_yield(); /* gRPC's threads put back what they held */
    psp_pool_destroy(door->pool);
    free(door);
}

uint16_t fake_door_port(const fake_door_t *door)
{
    return (uint16_t)door->port;
}
