/*
 * gRPC's C core, as little of it as a server and a client need.
 *
 * The core is a library for wrappers: everything is started with a tag and ends on a completion
 * queue. Here a tag is a struct with the function that goes on (psp_grpc_tag_t), and a queue has
 * one thread that calls it. Those functions take and give messages and never wait, so one thread is
 * enough; the bytes themselves are moved by gRPC's own threads.
 *
 * A message that is sent is lent as a slice that points into the pool's buffer; gRPC gives it back
 * when the last of it has been written, maybe long after the batch is done, on a thread of its own.
 * What was received lies in slices of the size of a read, and is copied once, so that what follows
 * sees one piece of memory; compressed messages are refused, since nobody can tell what they unpack
 * to.
 *
 * The library is opened once for each queue (it counts). Closing the last one waits for what the
 * library has under way, so that a handshake cannot go on while the program ends.
 *
 * gRPC's descriptors for events outlive its last closing, and a child after a fork shares them: one
 * call into gRPC there, and the parent's threads wait for ever. What could tell the child hangs off
 * no handle that a new client or door gets to see, so the process that first opened the library is
 * remembered in a static; children inherit the number, and are refused before they touch anything.
 *
 * Proxies from the environment are ignored: http_proxy is for other people's traffic. Ports are not
 * shared (SO_REUSEPORT): two servers on one would each get half of the calls.
 */
#include "proto/grpc/grpc_layer.h"

#include "common/alloc.h"
#include "proto/message.h"

#include <grpc/byte_buffer_reader.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

struct psp_grpc_queue {
    grpc_completion_queue *inside;
    pthread_t thread;
};

/* ---- tags ---- */

void psp_grpc_tag_give(psp_grpc_tag_t *tag)
{
#if defined(__SANITIZE_THREAD__)
    __tsan_release(tag);
#else
    (void)tag;
#endif
}

static void end(psp_grpc_tag_t *tag, bool ok)
{
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(tag);
#endif
    tag->done(tag, ok);
}

/* ---- the queue ---- */

static void *take_events(void *context)
{
    grpc_completion_queue *inside = context;
    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(inside, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        if (event.type == GRPC_OP_COMPLETE)
            end(event.tag, event.success != 0);
    }
}

static atomic_int first_user; /* the process that opened gRPC first; 0: none yet */

/* That this process is no child of one that used gRPC. */
static psc_status_t claim_library(psc_error_t *error)
{
    const pid_t process = getpid();
    pid_t user = 0;
    if (atomic_compare_exchange_strong(&first_user, &user, process) || user == process)
        return PSC_OK;
    return psc_error_set(error, PSC_UNSUPPORTED,
                         "this process (%ld) was forked from one that uses gRPC (%ld): start it by "
                         "spawn or exec, or open nothing by address before the fork",
                         (long)process, (long)user);
}

psc_status_t psp_grpc_queue_create(psp_grpc_queue_t **queue_out, psc_error_t *error)
{
    psc_status_t st = claim_library(error);
    if (st != PSC_OK)
        return st;
    psp_grpc_queue_t *queue = psc_alloc_zeroed(1, sizeof *queue);
    if (queue == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a queue of calls");
    grpc_init();
    queue->inside = grpc_completion_queue_create_for_next(NULL);
    int failed = pthread_create(&queue->thread, NULL, take_events, queue->inside);
    if (failed != 0) {
        grpc_completion_queue_shutdown(queue->inside);
        grpc_completion_queue_destroy(queue->inside);
        grpc_shutdown();
        psc_free(queue);
        return psc_error_set_errno(error, failed, "no thread for a queue of calls");
    }
    *queue_out = queue;
    return PSC_OK;
}

void psp_grpc_queue_destroy(psp_grpc_queue_t *queue)
{
    if (queue == NULL)
        return;
    grpc_completion_queue_shutdown(queue->inside);
    (void)pthread_join(queue->thread, NULL);
    grpc_completion_queue_destroy(queue->inside);
    grpc_shutdown_blocking();
    psc_free(queue);
}

grpc_completion_queue *psp_grpc_queue_inside(psp_grpc_queue_t *queue)
{
    return queue->inside;
}

/* ---- messages ---- */

void psp_grpc_put_back(void *buffer)
{
    psp_buffer_put(buffer);
}

grpc_byte_buffer *psp_grpc_lend(psp_buffer_t *buffer, void (*release)(void *buffer))
{
    grpc_slice slice = grpc_slice_new_with_user_data(buffer->data, buffer->size, release, buffer);
    grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice); /* bytes has a reference of its own */
    return bytes;
}

psc_status_t psp_grpc_take(psp_pool_t *pool, grpc_byte_buffer *bytes, size_t max_bytes,
                           psp_buffer_t **buffer_out, psc_error_t *error)
{
    if (bytes != NULL &&
        (bytes->type != GRPC_BB_RAW || bytes->data.raw.compression != GRPC_COMPRESS_NONE))
        return psc_error_set(error, PSC_PROTOCOL, "a compressed message: send it as it is");
    const size_t size = bytes != NULL ? grpc_byte_buffer_length(bytes) : 0;
    if (size > max_bytes)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a message of %zu bytes, but the limit is %zu bytes", size, max_bytes);
    psp_buffer_t *buffer;
    psc_status_t st = psp_buffer_get(pool, size, &buffer, error);
    if (st != PSC_OK)
        return st;
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;
    if (bytes != NULL && grpc_byte_buffer_reader_init(&reader, bytes)) {
        while (grpc_byte_buffer_reader_peek(&reader, &slice)) {
            const size_t n = GRPC_SLICE_LENGTH(*slice);
            PSC_BUG_ON(n > size - buffer->size);
            memcpy(buffer->data + buffer->size, GRPC_SLICE_START_PTR(*slice), n);
            buffer->size += n;
        }
        grpc_byte_buffer_reader_destroy(&reader);
    }
    *buffer_out = buffer;
    return PSC_OK;
}

/* ---- names and codes ---- */

#define SERVICE "/embps.v1.Embps/"

static const char *const methods[PSP_KIND_LAST + 1] = {
    [PSP_HELLO] = SERVICE "Hello",
    [PSP_OPEN_TABLE] = SERVICE "OpenTable",
    [PSP_PULL] = SERVICE "Pull",
    [PSP_PUSH] = SERVICE "Push",
    [PSP_CLOCK] = SERVICE "Clock",
    [PSP_BARRIER] = SERVICE "Barrier",
    [PSP_STATS] = SERVICE "Stats",
    [PSP_GOODBYE] = SERVICE "Goodbye",
    [PSP_PREFETCH] = SERVICE "Prefetch",
    [PSP_ATTACH] = SERVICE "Attach",
    [PSP_TOUCHES] = SERVICE "Touches",
    [PSP_FIND_TABLE] = SERVICE "FindTable",
    [PSP_EXPORT] = SERVICE "ExportBlock",
    [PSP_IMPORT] = SERVICE "ImportBlock",
    [PSP_CHECKPOINT] = SERVICE "Checkpoint",
    [PSP_WATCH] = SERVICE "WatchBlock",
};

const char *psp_grpc_method(uint32_t kind)
{
    return kind <= PSP_KIND_LAST ? methods[kind] : NULL;
}

uint32_t psp_grpc_kind(grpc_slice method)
{
    for (uint32_t kind = 0; kind <= PSP_KIND_LAST; kind++) {
        if (methods[kind] != NULL && grpc_slice_str_cmp(method, methods[kind]) == 0)
            return kind;
    }
    return 0;
}

typedef struct code_pair {
    psc_status_t code;
    grpc_status_code status;
} code_pair_t;

/* The first line of a code or a status counts. */
static const code_pair_t codes[] = {
    {PSC_OK, GRPC_STATUS_OK},
    {PSC_PEER_GONE, GRPC_STATUS_UNAVAILABLE},
    {PSC_TIMEOUT, GRPC_STATUS_DEADLINE_EXCEEDED},
    {PSC_PROTOCOL, GRPC_STATUS_INVALID_ARGUMENT},
    {PSC_INVALID_ARGUMENT, GRPC_STATUS_RESOURCE_EXHAUSTED}, /* too long, too many */
    {PSC_BUSY, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {PSC_NO_MEMORY, GRPC_STATUS_RESOURCE_EXHAUSTED},
    {PSC_UNSUPPORTED, GRPC_STATUS_UNIMPLEMENTED},
    {PSC_NOT_FOUND, GRPC_STATUS_NOT_FOUND},
    {PSC_INTERRUPTED, GRPC_STATUS_CANCELLED},
    {PSC_DENIED, GRPC_STATUS_PERMISSION_DENIED},
    {PSC_DENIED, GRPC_STATUS_UNAUTHENTICATED},
    {PSC_CORRUPT, GRPC_STATUS_DATA_LOSS},
};

grpc_status_code psp_grpc_status(psc_status_t code)
{
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i].code == code)
            return codes[i].status;
    }
    return GRPC_STATUS_INTERNAL;
}

psc_status_t psp_grpc_code(grpc_status_code status)
{
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (codes[i].status == status)
            return codes[i].code;
    }
    return PSC_INTERNAL;
}

/* ---- options ---- */

/* The next option. gRPC's struct is not const, but it copies what it is given. */
static grpc_arg *next_arg(psp_grpc_args_t *args, const char *key)
{
    union {
        const char *in;
        char *out;
    } name = {.in = key};
    PSC_BUG_ON(args->args.num_args == PSP_GRPC_ARGS_MAX);
    grpc_arg *arg = &args->all[args->args.num_args++];
    *arg = (grpc_arg){.key = name.out};
    return arg;
}

void psp_grpc_arg(psp_grpc_args_t *args, const char *key, int value)
{
    grpc_arg *arg = next_arg(args, key);
    arg->type = GRPC_ARG_INTEGER;
    arg->value.integer = value;
}

void psp_grpc_arg_pointer(psp_grpc_args_t *args, const char *key, void *value,
                          const grpc_arg_pointer_vtable *vtable)
{
    grpc_arg *arg = next_arg(args, key);
    arg->type = GRPC_ARG_POINTER;
    arg->value.pointer.p = value;
    arg->value.pointer.vtable = vtable;
}

static void add_common(psp_grpc_args_t *args, size_t max_message_bytes)
{
    PSC_BUG_ON(max_message_bytes > INT32_MAX);
    *args = (psp_grpc_args_t){.args = {.num_args = 0}};
    args->args.args = args->all;
    psp_grpc_arg(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)max_message_bytes);
    psp_grpc_arg(args, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, PSP_GRPC_MAX_MESSAGE_BYTES);
    psp_grpc_arg(args, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
    psp_grpc_arg(args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    psp_grpc_arg(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    psp_grpc_arg(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0); /* as many as keep-alive wants */
}

void psp_grpc_server_args(size_t max_message_bytes, psp_grpc_args_t *args_out)
{
    add_common(args_out, max_message_bytes);
    psp_grpc_arg(args_out, GRPC_ARG_ALLOW_REUSEPORT, 0);
    psp_grpc_arg(args_out, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                 PSP_GRPC_KEEPALIVE_MS / 2);
    /* A client that is gone without a word is noticed too. */
    psp_grpc_arg(args_out, GRPC_ARG_KEEPALIVE_TIME_MS, PSP_GRPC_KEEPALIVE_MS * 3);
    psp_grpc_arg(args_out, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, PSP_GRPC_KEEPALIVE_TIMEOUT_MS);
}

void psp_grpc_channel_args(size_t max_message_bytes, psp_grpc_args_t *args_out)
{
    add_common(args_out, max_message_bytes);
    psp_grpc_arg(args_out, GRPC_ARG_KEEPALIVE_TIME_MS, PSP_GRPC_KEEPALIVE_MS);
    psp_grpc_arg(args_out, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, PSP_GRPC_KEEPALIVE_TIMEOUT_MS);
    psp_grpc_arg(args_out, GRPC_ARG_ENABLE_RETRIES,
                 0); /* who sends a push again is the client's to know */
    psp_grpc_arg(args_out, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
}
