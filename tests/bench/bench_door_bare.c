/*
 * The bare side of embps-bench door: the least that a unary call of gRPC's core takes.
 *
 * One completion queue each, polled by the thread that waits, so that no other thread has to be
 * woken; requests and replies point to memory that exists (no copy on our side), and what comes is
 * thrown away unread. The server takes one call after another. Limits are lifted, so that a call
 * may have any size. Children end with their parent (PR_SET_PDEATHSIG), and are killed: they have
 * nothing to lose.
 */
#include "tests/bench/bench_door.h"

#include "common/alloc.h"
#include "common/log.h"
#include "proto/grpc/grpc_server.h"
#include "ps/server.h"

#include <errno.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SMALL_REPLY 32u
#define MEMORY_BYTES (UINT64_C(256) << 20)

static const grpc_arg unlimited[] = {
    {.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, .value.integer = -1},
    {.type = GRPC_ARG_INTEGER, .key = GRPC_ARG_ENABLE_HTTP_PROXY, .value.integer = 0}};

/* gRPC's struct is not const, but it only reads. */
static grpc_channel_args bare_args(grpc_arg args[2])
{
    memcpy(args, unlimited, sizeof unlimited);
    return (grpc_channel_args){.num_args = 2, .args = args};
}

/* Waits for what was started last. */
static bool next_event(grpc_completion_queue *queue)
{
    return grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).success != 0;
}

/* ---- servers ---- */

static void answer(grpc_completion_queue *queue, grpc_call *call, const uint8_t *bytes, size_t n)
{
    grpc_byte_buffer *request = NULL;
    int cancelled;
    const grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message = {&request}};
    (void)grpc_call_start_batch(call, &receive, 1, call, NULL);
    (void)next_event(queue);
    grpc_slice slice = grpc_slice_from_static_buffer(bytes, n);
    grpc_byte_buffer *reply = grpc_raw_byte_buffer_create(&slice, 1);
    const grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message = {reply}},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server = {&cancelled}}};
    (void)grpc_call_start_batch(call, ops, 4, call, NULL);
    (void)next_event(queue);
    grpc_byte_buffer_destroy(reply);
    if (request != NULL)
        grpc_byte_buffer_destroy(request);
    grpc_call_unref(call);
}

static void serve_bare(size_t reply_bytes, int port_to)
{
    grpc_arg args[2];
    grpc_init();
    grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
    const grpc_channel_args all = bare_args(args);
    grpc_server *server = grpc_server_create(&all, NULL);
    uint8_t *bytes = psc_alloc_zeroed(reply_bytes, 1);
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    const int port = grpc_server_add_http2_port(server, "127.0.0.1:0", plain);
    grpc_server_register_completion_queue(server, queue, NULL);
    grpc_server_start(server);
    char address[64];
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", port);
    if (bytes == NULL || port == 0 || write(port_to, address, sizeof address) < 0)
        return;
    for (;;) {
        grpc_call *call = NULL;
        grpc_call_details details;
        grpc_metadata_array metadata;
        grpc_call_details_init(&details);
        grpc_metadata_array_init(&metadata);
        (void)grpc_server_request_call(server, &call, &details, &metadata, queue, queue, server);
        if (!next_event(queue))
            return;
        const bool pull = grpc_slice_str_cmp(details.method, BENCH_BARE_PULL) == 0;
        answer(queue, call, bytes, pull ? reply_bytes : SMALL_REPLY);
        grpc_call_details_destroy(&details);
        grpc_metadata_array_destroy(&metadata);
    }
}

static psc_status_t serve(const char *data, bool checksums, int port_to, psc_error_t *error)
{
    psp_pool_t *pool;
    psp_transport_t *door = NULL;
    ps_server_t *server = NULL;
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    options.listen = "127.0.0.1:0";
    options.checksums = checksums;
    psc_status_t st = psp_pool_create((size_t)64 << 20, &pool, error);
    if (st == PSC_OK)
        st = psp_door_open(&options, pool, &door, error);
    const ps_server_options_t of_server = {.data = data,
                                           .memory_bytes = MEMORY_BYTES,
                                           .cluster = 1,
                                           .n_servers = 1,
                                           .pool = pool,
                                           .n_guests = 8};
    if (st == PSC_OK)
        st = ps_server_open(&of_server, &server, error);
    if (st != PSC_OK)
        return st;
    char address[64] = "";
    (void)snprintf(address, sizeof address, "%s", psp_door_address(door));
    if (write(port_to, address, sizeof address) < 0)
        return psc_error_set_errno(error, errno, "the address cannot be told");
    return ps_server_run(server, door, error);
}

psc_status_t bench_door_start(const char *data, size_t reply_bytes, bool checksums,
                              bench_door_child_t *child_out, psc_error_t *error)
{
    int ends[2];
    if (pipe(ends) != 0)
        return psc_error_set_errno(error, errno, "no pipe for a server");
    const pid_t child = fork();
    if (child == 0) {
        psc_error_t what = PSC_ERROR_INIT;
        (void)close(ends[0]);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (data == NULL)
            serve_bare(reply_bytes, ends[1]);
        else if (serve(data, checksums, ends[1], &what) != PSC_OK)
            psc_log(PSC_LOG_ERROR, "%s", what.message);
        _exit(1);
    }
    (void)close(ends[1]);
    *child_out = (bench_door_child_t){.process = child};
    const ssize_t got =
        child > 0 ? read(ends[0], child_out->address, sizeof child_out->address) : -1;
    (void)close(ends[0]);
    if (got == (ssize_t)sizeof child_out->address)
        return PSC_OK;
    bench_door_stop(child_out);
    return psc_error_set(error, PSC_IO, "a server does not start");
}

void bench_door_stop(bench_door_child_t *child)
{
    if (child->process <= 0)
        return;
    (void)kill(child->process, SIGKILL);
    (void)waitpid(child->process, NULL, 0);
    child->process = 0;
}

/* ---- the client ---- */

struct bench_bare {
    grpc_completion_queue *queue;
    grpc_channel *channel;
};

psc_status_t bench_bare_create(const char *address, bench_bare_t **bare_out, psc_error_t *error)
{
    grpc_arg args[2];
    bench_bare_t *bare = psc_alloc_zeroed(1, sizeof *bare);
    if (bare == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a bare client");
    grpc_init();
    const grpc_channel_args all = bare_args(args);
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    bare->queue = grpc_completion_queue_create_for_next(NULL);
    bare->channel = grpc_channel_create(address, plain, &all);
    grpc_channel_credentials_release(plain);
    *bare_out = bare;
    return PSC_OK;
}

void bench_bare_destroy(bench_bare_t *bare)
{
    if (bare == NULL)
        return;
    grpc_channel_destroy(bare->channel);
    grpc_completion_queue_shutdown(bare->queue);
    while (grpc_completion_queue_next(bare->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        ;
    grpc_completion_queue_destroy(bare->queue);
    grpc_shutdown();
    psc_free(bare);
}

psc_status_t bench_bare_call(bench_bare_t *bare, const char *method, const uint8_t *request,
                             size_t request_bytes, size_t reply_bytes, psc_error_t *error)
{
    grpc_call *call = grpc_channel_create_call(bare->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                               bare->queue, grpc_slice_from_static_string(method),
                                               NULL, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_slice slice = grpc_slice_from_static_buffer(request, request_bytes);
    grpc_byte_buffer *sent = grpc_raw_byte_buffer_create(&slice, 1), *reply = NULL;
    grpc_metadata_array initial, trailing;
    grpc_status_code status = GRPC_STATUS_UNKNOWN;
    grpc_slice details = grpc_empty_slice();
    grpc_metadata_array_init(&initial);
    grpc_metadata_array_init(&trailing);
    const grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message = {sent}},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata = {&initial}},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message = {&reply}},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {&trailing, &status, &details, NULL}}};
    (void)grpc_call_start_batch(call, ops, 6, call, NULL);
    (void)next_event(bare->queue);
    const size_t got = reply != NULL ? grpc_byte_buffer_length(reply) : 0;
    psc_status_t st = PSC_OK;
    if (status != GRPC_STATUS_OK)
        st = psc_error_set(error, PSC_IO, "a bare call failed with status %d", (int)status);
    else if (reply_bytes != 0 && got != reply_bytes)
        st = psc_error_set(error, PSC_PROTOCOL, "a bare call brought %zu bytes, not %zu", got,
                           reply_bytes);
    grpc_byte_buffer_destroy(sent);
    if (reply != NULL)
        grpc_byte_buffer_destroy(reply);
    grpc_metadata_array_destroy(&initial);
    grpc_metadata_array_destroy(&trailing);
    grpc_slice_unref(details);
    grpc_call_unref(call);
    return st;
}
