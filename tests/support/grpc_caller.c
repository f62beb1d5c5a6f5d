/* A bare client on gRPC's C core. */
#include "tests/support/grpc_caller.h"

#include "tests/support/cmocka.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_S 60

static gpr_timespec patience(void)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_REALTIME),
                        gpr_time_from_seconds(PATIENCE_S, GPR_TIMESPAN));
}

void grpc_caller_open(grpc_caller_t *caller, const char *address)
{
    grpc_init();
    static char key[] = GRPC_ARG_ENABLE_HTTP_PROXY;
    static char own[] = GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL; /* a connection of its own */
    grpc_arg args[2] = {{.type = GRPC_ARG_INTEGER, .key = key, .value.integer = 0},
                        {.type = GRPC_ARG_INTEGER, .key = own, .value.integer = 1}};
    const grpc_channel_args all = {.num_args = 2, .args = args};
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    caller->queue = grpc_completion_queue_create_for_next(NULL);
    caller->channel = grpc_channel_create(address, plain, &all);
    grpc_channel_credentials_release(plain);
    assert_non_null(caller->channel);
}

void grpc_caller_close(grpc_caller_t *caller)
{
    grpc_channel_destroy(caller->channel);
    grpc_completion_queue_shutdown(caller->queue);
    while (grpc_completion_queue_next(caller->queue, patience(), NULL).type != GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(caller->queue);
    grpc_shutdown();
}

void grpc_caller_begin(grpc_caller_t *caller, const char *method, const void *bytes, size_t size,
                       grpc_called_t *called)
{
    *called = (grpc_called_t){.status = GRPC_STATUS_UNKNOWN};
    grpc_slice slice = grpc_slice_from_copied_buffer(bytes, size);
    called->sent = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    called->call =
        grpc_channel_create_call(caller->channel, NULL, GRPC_PROPAGATE_DEFAULTS, caller->queue,
                                 grpc_slice_from_static_string(method), NULL, patience(), NULL);
    grpc_metadata_array_init(&called->initial);
    grpc_metadata_array_init(&called->trailing);
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[1].data.send_message.send_message = called->sent;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &called->initial;
    ops[4].data.recv_message.recv_message = &called->got;
    ops[5].data.recv_status_on_client.trailing_metadata = &called->trailing;
    ops[5].data.recv_status_on_client.status = &called->status;
    ops[5].data.recv_status_on_client.status_details = &called->details;
    assert_int_equal(grpc_call_start_batch(called->call, ops, 6, called, NULL), GRPC_CALL_OK);
}

static void read_reply(grpc_called_t *called)
{
    grpc_byte_buffer_reader reader;
    if (called->got == NULL)
        return;
    assert_true(grpc_byte_buffer_reader_init(&reader, called->got));
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    called->reply_size = GRPC_SLICE_LENGTH(all);
    called->reply = malloc(called->reply_size + 1);
    assert_non_null(called->reply);
    memcpy(called->reply, GRPC_SLICE_START_PTR(all), called->reply_size);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(called->got);
}

grpc_called_t *grpc_caller_take(grpc_caller_t *caller)
{
    grpc_event event = grpc_completion_queue_next(caller->queue, patience(), NULL);
    if (event.type != GRPC_OP_COMPLETE)
        return NULL;
    grpc_called_t *called = event.tag;
    read_reply(called);
    size_t n = GRPC_SLICE_LENGTH(called->details);
    n = n < sizeof called->text - 1 ? n : sizeof called->text - 1;
    memcpy(called->text, GRPC_SLICE_START_PTR(called->details), n);
    called->text[n] = '\0';
    grpc_slice_unref(called->details);
    grpc_metadata_array_destroy(&called->initial);
    grpc_metadata_array_destroy(&called->trailing);
    grpc_byte_buffer_destroy(called->sent);
    grpc_call_unref(called->call);
    return called;
}

grpc_status_code grpc_caller_call(grpc_caller_t *caller, const char *method, const void *bytes,
                                  size_t size, grpc_called_t *called)
{
    grpc_caller_begin(caller, method, bytes, size, called);
    assert_ptr_equal(grpc_caller_take(caller), called);
    return called->status;
}

bool grpc_caller_raw(const char *address, const void *bytes, size_t size)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    size_t length = (size_t)(colon - address);
    const bool brackets = address[0] == '[';
    (void)snprintf(host, sizeof host, "%.*s", (int)(length - 2 * (size_t)brackets),
                   address + (brackets ? 1 : 0));
    struct addrinfo *found;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return false;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool connected = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0;
    freeaddrinfo(found);
    size_t sent = 0;
    while (connected && sent < size) {
        ssize_t n = send(fd, (const char *)bytes + sent, size - sent, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    char heard[4096];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (connected && poll(&wait, 1, 20) > 0 && read(fd, heard, sizeof heard) > 0)
        continue;
    if (fd >= 0)
        (void)close(fd);
    return connected;
}
