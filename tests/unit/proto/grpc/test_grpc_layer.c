/*
 * The layer over gRPC: messages to byte buffers and back, methods against the service of the
 * schema, codes, and a queue whose thread finishes what was started.
 */
#include "proto/grpc/grpc_layer.h"

#include "proto/embps.pb-c.h"
#include "proto/message_kinds.h"
#include "tests/support/cmocka.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT ((size_t)1 << 20)

static atomic_int released;

static void count_release(void *buffer)
{
    psp_grpc_put_back(buffer);
    atomic_fetch_add(&released, 1);
}

static psp_pool_t *new_pool(void)
{
    psp_pool_t *pool;
    assert_int_equal(psp_pool_create(1 << 20, &pool, NULL), PSC_OK);
    return pool;
}

/* What opening a queue comes to in a child after a fork. */
static psc_status_t open_in_a_child(void)
{
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
        psp_grpc_queue_t *queue = NULL;
        const psc_status_t st = psp_grpc_queue_create(&queue, NULL);
        psp_grpc_queue_destroy(queue);
        _exit((int)st);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return (psc_status_t)WEXITSTATUS(status);
}

/* Before all other cases: this process must not have opened a queue yet. */
static void children_of_a_process_that_used_grpc_are_refused(void **state)
{
    (void)state;
    psp_grpc_queue_t *queue;
    assert_int_equal(open_in_a_child(), PSC_OK);
    assert_int_equal(open_in_a_child(), PSC_OK); /* what one child does is its own */
    assert_int_equal(psp_grpc_queue_create(&queue, NULL), PSC_OK);
    assert_int_equal(open_in_a_child(), PSC_UNSUPPORTED);
    psp_grpc_queue_destroy(queue);
    assert_int_equal(open_in_a_child(), PSC_UNSUPPORTED); /* also when it is closed again */
    assert_int_equal(psp_grpc_queue_create(&queue, NULL), PSC_OK);
    psp_grpc_queue_destroy(queue);
}

static void a_lent_message_is_not_copied_and_comes_back_once(void **state)
{
    (void)state;
    psp_pool_t *pool = new_pool();
    grpc_init();
    static const size_t sizes[] = {0, 1, 31, 4096, 700000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        psp_buffer_t *sent, *got;
        assert_int_equal(psp_buffer_get(pool, sizes[i], &sent, NULL), PSC_OK);
        sent->size = sizes[i];
        for (size_t b = 0; b < sizes[i]; b++)
            sent->data[b] = (uint8_t)(b * 7 + i);
        atomic_store(&released, 0);
        grpc_byte_buffer *bytes = psp_grpc_lend(sent, count_release);
        if (sizes[i] > 64) /* gRPC keeps the shortest within the slice itself */
            assert_ptr_equal(GRPC_SLICE_START_PTR(bytes->data.raw.slice_buffer.slices[0]),
                             sent->data);
        assert_int_equal(psp_grpc_take(pool, bytes, LIMIT, &got, NULL), PSC_OK);
        assert_int_equal(got->size, sizes[i]);
        for (size_t b = 0; b < sizes[i]; b++)
            assert_int_equal(got->data[b], (uint8_t)(b * 7 + i));
        psp_buffer_put(got);
        grpc_byte_buffer_destroy(bytes);
        assert_int_equal(atomic_load(&released), 1);
    }
    grpc_shutdown();
    assert_int_equal(psp_pool_bytes_out(pool), 0);
    psp_pool_destroy(pool);
}

static void a_message_in_pieces_becomes_one(void **state)
{
    (void)state;
    psp_pool_t *pool = new_pool();
    grpc_slice pieces[3] = {grpc_slice_from_static_string("embedding "),
                            grpc_slice_from_static_string(""),
                            grpc_slice_from_static_string("tables")};
    grpc_byte_buffer *bytes = grpc_raw_byte_buffer_create(pieces, 3);
    psp_buffer_t *got;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psp_grpc_take(pool, bytes, 16, &got, NULL), PSC_OK);
    assert_int_equal(got->size, 16);
    assert_memory_equal(got->data, "embedding tables", 16);
    psp_buffer_put(got);
    assert_int_equal(psp_grpc_take(pool, bytes, 15, &got, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "limit is 15 bytes"));
    grpc_byte_buffer_destroy(bytes);
    bytes = grpc_raw_compressed_byte_buffer_create(pieces, 1, GRPC_COMPRESS_GZIP);
    assert_int_equal(psp_grpc_take(pool, bytes, LIMIT, &got, &error), PSC_PROTOCOL);
    grpc_byte_buffer_destroy(bytes);
    assert_int_equal(psp_grpc_take(pool, NULL, LIMIT, &got, NULL), PSC_OK);
    assert_int_equal(got->size, 0);
    psp_buffer_put(got);
    psp_pool_destroy(pool);
}

static void each_request_is_a_method_of_the_service(void **state)
{
    (void)state;
    const ProtobufCServiceDescriptor *service = &embps__v1__embps__descriptor;
    unsigned n_requests = 0;
    for (uint32_t kind = 0; kind <= PSP_KIND_LAST + 1; kind++) {
        const char *method = psp_grpc_method(kind);
        if (psp_reply_kind(kind) == 0) {
            assert_null(method);
            continue;
        }
        char path[128];
        bool found = false;
        n_requests++;
        for (unsigned i = 0; i < service->n_methods; i++) {
            const ProtobufCMethodDescriptor *m = &service->methods[i];
            (void)snprintf(path, sizeof path, "/%s/%s", service->name, m->name);
            if (strcmp(path, method) != 0)
                continue;
            found = true;
            assert_ptr_equal(m->input, psp_kind_info(kind)->descriptor);
            assert_ptr_equal(m->output, psp_kind_info(psp_reply_kind(kind))->descriptor);
        }
        assert_true(found);
        assert_int_equal(psp_grpc_kind(grpc_slice_from_static_string(method)), kind);
    }
    /* The others are streams of such requests. */
    assert_non_null(protobuf_c_service_descriptor_get_method_by_name(service, "Export"));
    assert_non_null(protobuf_c_service_descriptor_get_method_by_name(service, "Import"));
    assert_non_null(protobuf_c_service_descriptor_get_method_by_name(service, "Watch"));
    assert_int_equal(n_requests + 3, service->n_methods);
    assert_int_equal(psp_grpc_kind(grpc_slice_from_static_string("/embps.v1.Embps/Pul")), 0);
    assert_int_equal(psp_grpc_kind(grpc_slice_from_static_string("")), 0);
}

static void codes_go_both_ways(void **state)
{
    (void)state;
    assert_int_equal(psp_grpc_status(PSC_OK), GRPC_STATUS_OK);
    assert_int_equal(psp_grpc_code(GRPC_STATUS_OK), PSC_OK);
    static const psc_status_t both[] = {
        PSC_PEER_GONE,   PSC_TIMEOUT,   PSC_PROTOCOL, PSC_INVALID_ARGUMENT,
        PSC_UNSUPPORTED, PSC_NOT_FOUND, PSC_DENIED};
    for (size_t i = 0; i < sizeof both / sizeof both[0]; i++)
        assert_int_equal(psp_grpc_code(psp_grpc_status(both[i])), both[i]);
    assert_int_equal(psp_grpc_code(GRPC_STATUS_UNAUTHENTICATED), PSC_DENIED);
    assert_int_equal(psp_grpc_status(PSC_BUSY), GRPC_STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(psp_grpc_status(PSC_INTERNAL), GRPC_STATUS_INTERNAL);
    assert_int_equal(psp_grpc_code(GRPC_STATUS_UNKNOWN), PSC_INTERNAL);
}

typedef struct ended {
    psp_grpc_tag_t tag; /* first */
    atomic_bool done, ok;
} ended_t;

static void note_end(psp_grpc_tag_t *tag, bool ok)
{
    ended_t *ended = (ended_t *)tag;
    atomic_store(&ended->ok, ok);
    atomic_store(&ended->done, true);
}

static void a_queue_ends_after_all_that_was_started(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        psp_grpc_queue_t *queue;
        psp_grpc_args_t args;
        ended_t ended = {.tag.done = note_end};
        assert_int_equal(psp_grpc_queue_create(&queue, NULL), PSC_OK);
        psp_grpc_server_args(LIMIT, &args);
        grpc_server *server = grpc_server_create(&args.args, NULL);
        grpc_server_register_completion_queue(server, psp_grpc_queue_inside(queue), NULL);
        grpc_server_start(server);
        grpc_server_shutdown_and_notify(server, psp_grpc_queue_inside(queue), &ended.tag);
        psp_grpc_queue_destroy(queue);
        assert_true(atomic_load(&ended.done));
        assert_true(atomic_load(&ended.ok));
        grpc_server_destroy(server);
    }
    psp_grpc_queue_destroy(NULL);
}

static void options_fit_and_name_the_limit(void **state)
{
    (void)state;
    psp_grpc_args_t sides[2];
    psp_grpc_server_args(12345, &sides[0]);
    psp_grpc_channel_args(12345, &sides[1]);
    for (int side = 0; side < 2; side++) {
        bool limit = false, proxy = false;
        for (size_t i = 0; i < sides[side].args.num_args; i++) {
            const grpc_arg *arg = &sides[side].args.args[i];
            limit = limit || (strcmp(arg->key, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH) == 0 &&
                              arg->value.integer == 12345);
            proxy = proxy ||
                    (strcmp(arg->key, GRPC_ARG_ENABLE_HTTP_PROXY) == 0 && arg->value.integer == 0);
        }
        assert_true(limit);
        assert_true(proxy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_of_a_process_that_used_grpc_are_refused),
        cmocka_unit_test(a_lent_message_is_not_copied_and_comes_back_once),
        cmocka_unit_test(a_message_in_pieces_becomes_one),
        cmocka_unit_test(each_request_is_a_method_of_the_service),
        cmocka_unit_test(codes_go_both_ways),
        cmocka_unit_test(a_queue_ends_after_all_that_was_started),
        cmocka_unit_test(options_fit_and_name_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
