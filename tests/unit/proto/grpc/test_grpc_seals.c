/*
 * Seals over gRPC: a client against a server that damages its answers, the door against a client
 * that damages its requests, and both against those that know no seals.
 */
#include "proto/seal.h"

#include "common/clock.h"
#include "common/log.h"
#include "proto/grpc/grpc_client.h"
#include "proto/grpc/grpc_server.h"
#include "proto/message.h"
#include "tests/support/cmocka.h"
#include "tests/support/fake_door.h"
#include "tests/support/grpc_caller.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE_US UINT64_C(60000000) /* no test waits so long unless it fails */
#define HELLO "/embps.v1.Embps/Hello"
#define PUSH "/embps.v1.Embps/Push"

enum { BODY = 40 };

static psp_pool_t *pool;

static int setup(void **state)
{
    (void)state;
    psc_log_set_level(PSC_LOG_ERROR);
    return psp_pool_create(1 << 20, &pool, NULL) == PSC_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    const uint64_t end_us = psc_clock_us() + PATIENCE_US;
    while (psp_pool_bytes_out(pool) != 0 && psc_clock_us() < end_us)
        psc_clock_sleep_us(100); /* gRPC's threads put back what they held */
    psp_pool_destroy(pool);
    return 0;
}

/* With room for a seal, and a body of bytes that follow from number. */
static psp_buffer_t *make(psp_pool_t *from, uint32_t kind, uint8_t number)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_buffer_get(from, PSP_SEAL_BYTES + BODY, &buffer, NULL), PSC_OK);
    psp_seal_leave_room(buffer->data);
    memset(buffer->data + PSP_SEAL_BYTES, number, BODY);
    buffer->size = PSP_SEAL_BYTES + BODY;
    buffer->kind = kind;
    return buffer;
}

static bool has_body(const uint8_t *data, size_t size, uint8_t number)
{
    bool fine = size == PSP_SEAL_BYTES + BODY;
    for (size_t i = PSP_SEAL_BYTES; fine && i < size; i++)
        fine = data[i] == number;
    return fine;
}

/* ---- the client ---- */

/* What a server does with its answers. */
typedef struct script {
    bool seals;
    atomic_uint n_damaged; /* so many answers are, first: the one after is whole */
    atomic_uint n_calls, n_sealed, n_hellos;
    atomic_uint n_refused; /* so many requests "came damaged", first */
} script_t;

static bool count_down(atomic_uint *left)
{
    unsigned int n = atomic_load(left);
    while (n != 0 && !atomic_compare_exchange_weak(left, &n, n - 1))
        ;
    return n != 0;
}

static grpc_status_code decide(void *context, const psp_buffer_t *request, psp_buffer_t **reply_out)
{
    script_t *script = context;
    const unsigned int call = atomic_fetch_add(&script->n_calls, 1);
    atomic_fetch_add(&script->n_hellos, request->kind == PSP_HELLO);
    const psp_seal_t seal = psp_seal_look(request->kind, request->data, request->size);
    PSC_BUG_ON(seal == PSP_SEAL_BROKEN);
    atomic_fetch_add(&script->n_sealed, seal == PSP_SEAL_GOOD);
    if (count_down(&script->n_refused))
        return GRPC_STATUS_DATA_LOSS;
    psp_buffer_t *reply =
        make(request->pool, psp_reply_kind(request->kind), request->data[PSP_SEAL_BYTES]);
    if (script->seals)
        psp_seal_put(reply, 0, 0);
    if (request->kind != PSP_HELLO && count_down(&script->n_damaged)) {
        if (call % 3 == 0) /* its mark is gone: as from a server that knows no seals */
            memset(reply->data, 0, 8);
        else
            reply->data[call * 7 % reply->size] ^= (uint8_t)(1u << call % 8);
    }
    *reply_out = reply;
    return GRPC_STATUS_OK;
}

static psp_transport_t *connect_to(const fake_door_t *door)
{
    char address[32];
    const char *addresses[1] = {address};
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)fake_door_port(door));
    const psp_grpc_client_options_t options = {
        .addresses = addresses, .n_servers = 1, .pool = pool, .seed = 5};
    psp_transport_t *transport = NULL;
    assert_int_equal(psp_grpc_client_create(&options, &transport, NULL), PSC_OK);
    return transport;
}

/* The status of polls until an answer, or an error. */
static psc_status_t next_reply(psp_transport_t *transport, psp_buffer_t **reply_out,
                               psc_error_t *error)
{
    const uint64_t end_us = psc_clock_us() + PATIENCE_US;
    psc_status_t st = psp_transport_poll(transport, reply_out, error);
    while (st == PSC_OK && *reply_out == NULL) {
        psp_transport_wait(transport, 100000);
        assert_true(psc_clock_us() < end_us);
        st = psp_transport_poll(transport, reply_out, error);
    }
    return st;
}

static void ask(psp_transport_t *transport, uint32_t kind, uint8_t number)
{
    psp_buffer_t *reply = NULL;
    assert_int_equal(psp_transport_send(transport, 0, make(pool, kind, number), NULL), PSC_OK);
    assert_int_equal(next_reply(transport, &reply, NULL), PSC_OK);
    assert_int_equal(reply->kind, psp_reply_kind(kind));
    assert_true(has_body(reply->data, reply->size, number));
    psp_buffer_put(reply);
}

static void who_knows_no_seals_gets_none_but_with_hello(void **state)
{
    (void)state;
    script_t script = {.seals = false};
    fake_door_t *door = fake_door_start(0, decide, &script);
    psp_transport_t *transport = connect_to(door);
    ask(transport, PSP_HELLO, 1);
    ask(transport, PSP_PUSH, 2);
    ask(transport, PSP_PULL, 3);
    assert_int_equal(atomic_load(&script.n_sealed), 1);
    assert_int_equal(transport->damaged, 0);
    assert_int_equal(transport->retries, 0);
    psp_transport_destroy(transport);
    fake_door_stop(door);
}

static void an_answer_that_is_damaged_is_asked_for_again(void **state)
{
    (void)state;
    script_t script = {.seals = true};
    fake_door_t *door = fake_door_start(0, decide, &script);
    psp_transport_t *transport = connect_to(door);
    ask(transport, PSP_HELLO, 1);
    for (uint8_t i = 0; i < 4; i++) {
        atomic_store(&script.n_damaged, i % 4);
        ask(transport, i % 2 != 0 ? PSP_PULL : PSP_PUSH, (uint8_t)(10 + i));
    }
    assert_int_equal(transport->damaged, 0 + 1 + 2 + 3);
    assert_int_equal(transport->retries, 0 + 1 + 2 + 3);
    assert_int_equal(atomic_load(&script.n_calls), 1 + 4 + 6);
    assert_int_equal(atomic_load(&script.n_sealed), atomic_load(&script.n_calls));
    assert_string_equal(psp_grpc_client_trouble(transport, 0), "");
    psp_transport_destroy(transport);
    fake_door_stop(door);
}

static void a_request_that_came_damaged_is_sent_again(void **state)
{
    (void)state;
    script_t script = {.seals = true, .n_refused = 1};
    fake_door_t *door = fake_door_start(0, decide, &script);
    psp_transport_t *transport = connect_to(door);
    ask(transport, PSP_HELLO, 1);
    assert_int_equal(atomic_load(&script.n_hellos), 2);
    atomic_store(&script.n_refused, 2);
    ask(transport, PSP_PUSH, 2);
    assert_int_equal(transport->retries, 3);
    assert_int_equal(transport->damaged, 0); /* what came to the client was whole */
    psp_transport_destroy(transport);
    fake_door_stop(door);
}

static void where_nothing_comes_whole_that_is_said(void **state)
{
    (void)state;
    script_t script = {.seals = true};
    psc_error_t error = PSC_ERROR_INIT;
    psp_buffer_t *reply = NULL;
    fake_door_t *door = fake_door_start(0, decide, &script);
    psp_transport_t *transport = connect_to(door);
    ask(transport, PSP_HELLO, 1);
    atomic_store(&script.n_damaged, 1000);
    assert_int_equal(psp_transport_send(transport, 0, make(pool, PSP_PULL, 2), NULL), PSC_OK);
    assert_int_equal(next_reply(transport, &reply, &error), PSC_CORRUPT);
    assert_null(reply);
    assert_int_equal(error.rank, 0);
    assert_non_null(strstr(error.message, "server 0 at 127.0.0.1:"));
    assert_non_null(strstr(error.message, "a pull reply of 64 bytes came damaged"));
    psp_transport_destroy(transport);
    fake_door_stop(door);
}

/* ---- the door ---- */

typedef struct visit {
    psp_transport_t *door;
    grpc_caller_t caller;
    grpc_called_t called;
} visit_t;

static void open_door(visit_t *v, bool checksums)
{
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    options.listen = "127.0.0.1:0";
    options.checksums = checksums;
    assert_int_equal(psp_door_open(&options, pool, &v->door, NULL), PSC_OK);
    grpc_caller_open(&v->caller, psp_door_address(v->door));
}

static void close_door(visit_t *v)
{
    grpc_caller_close(&v->caller);
    psp_transport_destroy(v->door);
}

/* A call. Where it is to come to the owner, that one answers with a body of 7: the seal of that. */
static psp_seal_t visit(visit_t *v, uint32_t kind, const uint8_t *bytes, size_t size, bool served)
{
    const uint64_t end_us = psc_clock_us() + PATIENCE_US;
    psp_buffer_t *request = NULL;
    grpc_caller_begin(&v->caller, kind == PSP_HELLO ? HELLO : PUSH, bytes, size, &v->called);
    while (served && request == NULL) {
        assert_true(psc_clock_us() < end_us);
        assert_int_equal(psp_transport_poll(v->door, &request, NULL), PSC_OK);
        if (request == NULL)
            psp_transport_wait(v->door, 1000);
    }
    if (request != NULL) {
        psp_buffer_t *reply = make(pool, psp_reply_kind(kind), 7);
        assert_int_equal(request->kind, kind);
        assert_int_equal(request->size, size);
        assert_memory_equal(request->data, bytes, size);
        reply->call = request->call;
        psp_buffer_put(request);
        assert_int_equal(psp_transport_send(v->door, PSP_PEER_GUEST, reply, NULL), PSC_OK);
    }
    assert_ptr_equal(grpc_caller_take(&v->caller), &v->called);
    psp_seal_t seal = PSP_SEAL_NONE;
    assert_int_equal(psp_transport_poll(v->door, &request, NULL), PSC_OK);
    assert_null(request);
    if (served) {
        assert_int_equal(v->called.status, GRPC_STATUS_OK);
        assert_true(has_body(v->called.reply, v->called.reply_size, 7));
        seal = psp_seal_look(psp_reply_kind(kind), v->called.reply, v->called.reply_size);
    }
    free(v->called.reply);
    return seal;
}

static void who_seals_is_answered_with_a_seal(void **state)
{
    (void)state;
    for (int checksums = 0; checksums < 2; checksums++) {
        visit_t v;
        open_door(&v, checksums != 0);
        psp_buffer_t *hello = make(pool, PSP_HELLO, 1), *push = make(pool, PSP_PUSH, 2);
        assert_int_equal(visit(&v, PSP_HELLO, hello->data, hello->size, true), PSP_SEAL_NONE);
        assert_int_equal(visit(&v, PSP_PUSH, push->data, push->size, true), PSP_SEAL_NONE);
        assert_int_equal(visit(&v, PSP_PUSH, push->data + PSP_SEAL_BYTES, BODY, true),
                         PSP_SEAL_NONE);
        psp_seal_put(hello, 0, 0);
        psp_seal_put(push, 0, 0);
        /* Hello's answer tells whether what follows is to be sealed. */
        assert_int_equal(visit(&v, PSP_HELLO, hello->data, hello->size, true),
                         checksums != 0 ? PSP_SEAL_GOOD : PSP_SEAL_NONE);
        assert_int_equal(visit(&v, PSP_PUSH, push->data, push->size, true), PSP_SEAL_GOOD);
        psp_buffer_put(hello);
        psp_buffer_put(push);
        close_door(&v);
    }
}

static void what_came_damaged_never_gets_to_the_server(void **state)
{
    (void)state;
    visit_t v;
    open_door(&v, true);
    psp_buffer_t *push = make(pool, PSP_PUSH, 2);
    psp_seal_put(push, 0, 0);
    for (size_t byte = 0; byte < push->size; byte++) {
        push->data[byte] ^= (uint8_t)(1u << byte % 8);
        (void)visit(&v, PSP_PUSH, push->data, push->size, false);
        push->data[byte] ^= (uint8_t)(1u << byte % 8);
        assert_int_equal(v.called.status, GRPC_STATUS_DATA_LOSS);
        assert_non_null(strstr(v.called.text, "a push of 64 bytes from ipv4:127.0.0.1:"));
    }
    assert_int_equal(visit(&v, PSP_PUSH, push->data, push->size, true), PSP_SEAL_GOOD);
    psp_buffer_put(push);
    close_door(&v);
}

#define SEALS_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SEALS_TEST(who_knows_no_seals_gets_none_but_with_hello),
        SEALS_TEST(an_answer_that_is_damaged_is_asked_for_again),
        SEALS_TEST(a_request_that_came_damaged_is_sent_again),
        SEALS_TEST(where_nothing_comes_whole_that_is_said),
        SEALS_TEST(who_seals_is_answered_with_a_seal),
        SEALS_TEST(what_came_damaged_never_gets_to_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
