/*
 * The door: calls of a bare C-core client as messages, limits, foreign bytes, and its end at any
 * moment. An owner's thread answers each message with its own bytes.
 */
#include "proto/grpc/grpc_server.h"

#include "common/clock.h"
#include "proto/message.h"
#include "tests/support/cmocka.h"
#include "tests/support/grpc_caller.h"
#include "tests/support/test_seed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PULL "/embps.v1.Embps/Pull"
#define LIMIT ((size_t)1 << 20)

/* Who answers, on a thread of its own. */
typedef struct owner {
    psp_pool_t *pool;
    psp_transport_t *door;
    pthread_t thread;
    atomic_bool stop;
    atomic_bool silent; /* takes messages and answers none */
    atomic_size_t n_taken;
} owner_t;

static void answer(owner_t *owner, psp_buffer_t *asked)
{
    psp_buffer_t *reply;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psp_buffer_get(owner->pool, asked->size + 1, &reply, NULL), PSC_OK);
    reply->data[0] = (uint8_t)asked->kind;
    memcpy(reply->data + 1, asked->data, asked->size);
    reply->size = asked->size + 1;
    reply->call = asked->call;
    assert_int_equal(psp_transport_send(owner->door, asked->peer, reply, &error), PSC_OK);
}

static void *serve(void *context)
{
    owner_t *owner = context;
    while (!atomic_load(&owner->stop)) {
        psp_buffer_t *buffer;
        assert_int_equal(psp_transport_poll(owner->door, &buffer, NULL), PSC_OK);
        if (buffer == NULL) {
            psp_transport_wait(owner->door, 100000);
            continue;
        }
        assert_true(buffer->peer == PSP_PEER_GUEST);
        atomic_fetch_add(&owner->n_taken, 1);
        if (!atomic_load(&owner->silent))
            answer(owner, buffer);
        psp_buffer_put(buffer);
    }
    return NULL;
}

static void open_with(owner_t *owner, const psp_door_options_t *given)
{
    psp_door_options_t options = *given;
    psc_error_t error = PSC_ERROR_INIT;
    if (options.listen == NULL)
        options.listen = "127.0.0.1:0";
    *owner = (owner_t){.pool = NULL};
    assert_int_equal(psp_pool_create((size_t)4 << 20, &owner->pool, NULL), PSC_OK);
    if (psp_door_open(&options, owner->pool, &owner->door, &error) != PSC_OK)
        fail_msg("%s", error.message);
    assert_int_equal(pthread_create(&owner->thread, NULL, serve, owner), 0);
}

static void open_door(owner_t *owner)
{
    const psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    open_with(owner, &options);
}

static void close_door(owner_t *owner)
{
    atomic_store(&owner->stop, true);
    psp_transport_wake(owner->door);
    assert_int_equal(pthread_join(owner->thread, NULL), 0);
    psp_transport_destroy(owner->door);
    assert_int_equal(psp_pool_bytes_out(owner->pool), 0);
    psp_pool_destroy(owner->pool);
}

static void check_echo(const grpc_called_t *called, const uint8_t *bytes, size_t size)
{
    if (called->status != GRPC_STATUS_OK)
        fail_msg("status %d: %s", (int)called->status, called->text);
    assert_int_equal(called->reply_size, size + 1);
    assert_int_equal(called->reply[0], PSP_PULL);
    assert_memory_equal(called->reply + 1, bytes, size);
}

static void messages_of_any_size_come_and_are_answered(void **state)
{
    (void)state;
    static uint8_t bytes[LIMIT];
    static const size_t sizes[] = {0, 1, 100, 65536, 300001, LIMIT};
    owner_t owner;
    grpc_caller_t caller;
    grpc_called_t called;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + (i >> 9));
    open_door(&owner);
    grpc_caller_open(&caller, psp_door_address(owner.door));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        (void)grpc_caller_call(&caller, PULL, bytes, sizes[i], &called);
        check_echo(&called, bytes, sizes[i]);
        free(called.reply);
    }
    grpc_caller_close(&caller);
    close_door(&owner);
}

static void many_calls_at_once_get_each_its_answer(void **state)
{
    (void)state;
    enum { N = 300 };
    static grpc_called_t called[N];
    static uint8_t bytes[N][900];
    owner_t owner;
    grpc_caller_t caller;
    open_door(&owner);
    grpc_caller_open(&caller, psp_door_address(owner.door));
    for (size_t i = 0; i < N; i++) {
        memset(bytes[i], (int)(i % 251), sizeof bytes[i]);
        grpc_caller_begin(&caller, PULL, bytes[i], 3 * i, &called[i]);
    }
    for (size_t n = 0; n < N; n++) {
        const grpc_called_t *ended = grpc_caller_take(&caller);
        assert_non_null(ended);
        size_t i = (size_t)(ended - called);
        check_echo(ended, bytes[i], 3 * i);
        free(ended->reply);
    }
    grpc_caller_close(&caller);
    close_door(&owner);
}

static void what_the_door_refuses_says_why(void **state)
{
    (void)state;
    static uint8_t bytes[LIMIT + 1];
    owner_t owner;
    grpc_caller_t caller;
    grpc_called_t called;
    open_door(&owner);
    grpc_caller_open(&caller, psp_door_address(owner.door));
    assert_int_equal(grpc_caller_call(&caller, PULL, bytes, sizeof bytes, &called),
                     GRPC_STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(called.text, "1048576"));
    assert_int_equal(grpc_caller_call(&caller, "/embps.v1.Embps/Pul", bytes, 1, &called),
                     GRPC_STATUS_UNIMPLEMENTED);
    assert_int_equal(grpc_caller_call(&caller, "/other.Service/Pull", bytes, 1, &called),
                     GRPC_STATUS_UNIMPLEMENTED);
    assert_int_equal(atomic_load(&owner.n_taken), 0);
    (void)grpc_caller_call(&caller, PULL, bytes, 3, &called);
    check_echo(&called, bytes, 3);
    free(called.reply);
    grpc_caller_close(&caller);
    close_door(&owner);
}

static void probes_are_told_that_it_serves(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        size_t size;
        grpc_status_code status;
    } cases[] = {
        {"", 0, GRPC_STATUS_OK},
        {"\x0a\x00", 2, GRPC_STATUS_OK},
        {"\x0a\x0e"
         "embps.v1.Embps",
         16, GRPC_STATUS_OK},
        {"\x12\x01x\x0a\x0e"
         "embps.v1.Embps",
         19, GRPC_STATUS_OK},
        {"\x0a\x05other", 7, GRPC_STATUS_NOT_FOUND},
        {"\x0a\x05oth", 5, GRPC_STATUS_INVALID_ARGUMENT},
        {"\x08\x01", 2, GRPC_STATUS_INVALID_ARGUMENT},
    };
    owner_t owner;
    grpc_caller_t caller;
    grpc_called_t called;
    open_door(&owner);
    atomic_store(&owner.silent, true); /* the owner is not asked */
    grpc_caller_open(&caller, psp_door_address(owner.door));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(grpc_caller_call(&caller, "/grpc.health.v1.Health/Check", cases[i].request,
                                          cases[i].size, &called),
                         cases[i].status);
        if (called.status == GRPC_STATUS_OK) {
            assert_int_equal(called.reply_size, 2);
            assert_memory_equal(called.reply, "\x08\x01", 2);
        }
        free(called.reply);
    }
    assert_int_equal(atomic_load(&owner.n_taken), 0);
    grpc_caller_close(&caller);
    close_door(&owner);
}

static void calls_are_refused_until_the_owner_serves(void **state)
{
    (void)state;
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    owner_t owner;
    grpc_caller_t caller;
    grpc_called_t called;
    options.not_yet = "it loads its rows";
    open_with(&owner, &options);
    grpc_caller_open(&caller, psp_door_address(owner.door));
    for (int serving = 0; serving < 2; serving++) {
        static const char *const refused[] = {"/embps.v1.Embps/Pull", "/embps.v1.Embps/Export",
                                              "/grpc.health.v1.Health/Watch"};
        for (size_t i = 0; serving == 0 && i < sizeof refused / sizeof refused[0]; i++) {
            assert_int_equal(grpc_caller_call(&caller, refused[i], "", 0, &called),
                             GRPC_STATUS_UNAVAILABLE);
            assert_string_equal(called.text, "it loads its rows");
            free(called.reply);
        }
        assert_int_equal(grpc_caller_call(&caller, "/grpc.health.v1.Health/Check", "", 0, &called),
                         GRPC_STATUS_OK);
        assert_int_equal(called.reply_size, 2);
        assert_memory_equal(called.reply, serving ? "\x08\x01" : "\x08\x02", 2);
        free(called.reply);
        assert_int_equal(atomic_load(&owner.n_taken), 0);
        psp_door_serve(owner.door);
    }
    assert_int_equal(grpc_caller_call(&caller, "/embps.v1.Embps/Pull", "abc", 3, &called),
                     GRPC_STATUS_OK);
    check_echo(&called, (const uint8_t *)"abc", 3);
    free(called.reply);
    grpc_caller_close(&caller);
    close_door(&owner);
}

static void no_more_calls_than_may_be_under_way(void **state)
{
    (void)state;
    enum { N = 40, MOST = 8 };
    static grpc_called_t called[N];
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    options.max_calls = MOST;
    owner_t owner;
    grpc_caller_t caller;
    open_with(&owner, &options);
    atomic_store(&owner.silent, true);
    grpc_caller_open(&caller, psp_door_address(owner.door));
    for (size_t i = 0; i < N; i++)
        grpc_caller_begin(&caller, PULL, "x", 1, &called[i]);
    for (size_t i = 0; i < N - MOST; i++) {
        const grpc_called_t *ended = grpc_caller_take(&caller);
        assert_non_null(ended);
        assert_int_equal(ended->status, GRPC_STATUS_RESOURCE_EXHAUSTED);
        assert_non_null(strstr(ended->text, "more than 8 calls"));
    }
    close_door(&owner); /* the others are never answered */
    for (size_t i = 0; i < MOST; i++) {
        const grpc_called_t *ended = grpc_caller_take(&caller);
        assert_non_null(ended);
        assert_int_equal(ended->status, GRPC_STATUS_UNAVAILABLE);
    }
    grpc_caller_close(&caller);
}

static void over_the_quota_messages_wait_and_none_is_lost(void **state)
{
    (void)state;
    enum { N = 64, BYTES = 100000 };
    static grpc_called_t called[N];
    static uint8_t bytes[BYTES];
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    options.quota_bytes = 3 * BYTES;
    owner_t owner;
    grpc_caller_t caller;
    open_with(&owner, &options);
    grpc_caller_open(&caller, psp_door_address(owner.door));
    for (size_t i = 0; i < N; i++)
        grpc_caller_begin(&caller, PULL, bytes, BYTES, &called[i]);
    for (size_t i = 0; i < N; i++) {
        const grpc_called_t *ended = grpc_caller_take(&caller);
        assert_non_null(ended);
        check_echo(ended, bytes, BYTES);
        free(ended->reply);
    }
    grpc_caller_close(&caller);
    close_door(&owner);
}

static void a_port_in_use_is_an_error_at_once(void **state)
{
    (void)state;
    owner_t owner, other;
    psp_transport_t *door;
    psc_error_t error = PSC_ERROR_INIT;
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    open_door(&owner);
    options.listen = psp_door_address(owner.door);
    assert_int_equal(psp_door_open(&options, owner.pool, &door, &error), PSC_IN_USE);
    assert_non_null(strstr(error.message, options.listen));
    options.listen = "203.0.113.1:0"; /* reserved for documentation */
    assert_int_equal(psp_door_open(&options, owner.pool, &door, &error), PSC_INVALID_ARGUMENT);
    options.listen = "nonsense";
    assert_int_equal(psp_door_open(&options, owner.pool, &door, &error), PSC_INVALID_ARGUMENT);
    open_door(&other); /* two at once, each on a port of its own */
    assert_string_not_equal(psp_door_address(other.door), psp_door_address(owner.door));
    close_door(&other);
    close_door(&owner);
}

static void it_listens_on_ipv6(void **state)
{
    (void)state;
    owner_t owner;
    grpc_caller_t caller;
    grpc_called_t called;
    psp_transport_t *door;
    psp_door_options_t options = PSP_DOOR_OPTIONS_DEFAULT;
    psp_pool_t *pool;
    options.listen = "[::1]:0";
    assert_int_equal(psp_pool_create(0, &pool, NULL), PSC_OK);
    psc_status_t st = psp_door_open(&options, pool, &door, NULL);
    if (st == PSC_OK)
        psp_transport_destroy(door);
    psp_pool_destroy(pool);
    if (st != PSC_OK)
        skip(); /* this machine has none */
    open_with(&owner, &options);
    assert_true(strncmp(psp_door_address(owner.door), "[::1]:", 6) == 0);
    grpc_caller_open(&caller, psp_door_address(owner.door));
    (void)grpc_caller_call(&caller, PULL, "six", 3, &called);
    check_echo(&called, (const uint8_t *)"six", 3);
    free(called.reply);
    grpc_caller_close(&caller);
    close_door(&owner);
}

static void foreign_bytes_leave_it_alive(void **state)
{
    (void)state;
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    test_random_t random = test_random_start();
    owner_t owner;
    grpc_caller_t caller;
    grpc_called_t called;
    uint8_t bytes[400];
    open_door(&owner);
    const char *address = psp_door_address(owner.door);
    assert_true(grpc_caller_raw(address, http, sizeof http - 1));
    for (int i = 0; i < 60; i++) {
        size_t n = test_below(&random, sizeof bytes);
        for (size_t b = 0; b < n; b++)
            bytes[b] = (uint8_t)test_next(&random);
        if (i % 2 == 0 && n > sizeof preface) /* frames of nonsense behind a good beginning */
            memcpy(bytes, preface, sizeof preface - 1);
        assert_true(grpc_caller_raw(address, bytes, n));
    }
    grpc_caller_open(&caller, address);
    (void)grpc_caller_call(&caller, PULL, "still", 5, &called);
    check_echo(&called, (const uint8_t *)"still", 5);
    free(called.reply);
    grpc_caller_close(&caller);
    close_door(&owner);
}

/* Calls without end, until the door is gone. */
typedef struct load {
    char address[64];
    atomic_bool stop;
    pthread_t thread;
} load_t;

static void *make_load(void *context)
{
    enum { WIDTH = 8 };
    load_t *load = context;
    static const uint8_t bytes[20000];
    grpc_called_t called[WIDTH];
    grpc_caller_t caller;
    grpc_caller_open(&caller, load->address);
    while (!atomic_load(&load->stop)) {
        for (size_t i = 0; i < WIDTH; i++)
            grpc_caller_begin(&caller, PULL, bytes, i * 2500, &called[i]);
        for (size_t i = 0; i < WIDTH; i++) {
            const grpc_called_t *ended = grpc_caller_take(&caller);
            assert_non_null(ended);
            if (ended->status == GRPC_STATUS_OK)
                assert_int_equal(ended->reply_size, (size_t)(ended - called) * 2500 + 1);
            else
                atomic_store(&load->stop, true); /* it has gone: as it should in the end */
            free(ended->reply);
        }
    }
    grpc_caller_close(&caller);
    return NULL;
}

static void it_starts_and_stops_under_load(void **state)
{
    (void)state;
    enum { TIMES = 100, LOADS = 2 };
    for (size_t i = 0; i < TIMES; i++) {
        owner_t owner;
        load_t loads[LOADS];
        open_door(&owner);
        for (size_t l = 0; l < LOADS; l++) {
            atomic_init(&loads[l].stop, false);
            (void)snprintf(loads[l].address, sizeof loads[l].address, "%s",
                           psp_door_address(owner.door));
            assert_int_equal(pthread_create(&loads[l].thread, NULL, make_load, &loads[l]), 0);
        }
        while (atomic_load(&owner.n_taken) < 1 + i % 40)
            psc_clock_sleep_us(100);
        if (i % 3 == 0)
            atomic_store(&owner.silent, true);
        if (i % 4 == 1) /* the owner's thread is in poll or wait: only the library is stopped */
            psp_transport_stop(owner.door);
        close_door(&owner);
        for (size_t l = 0; l < LOADS; l++) {
            atomic_store(&loads[l].stop, true);
            assert_int_equal(pthread_join(loads[l].thread, NULL), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_any_size_come_and_are_answered),
        cmocka_unit_test(many_calls_at_once_get_each_its_answer),
        cmocka_unit_test(what_the_door_refuses_says_why),
        cmocka_unit_test(probes_are_told_that_it_serves),
        cmocka_unit_test(calls_are_refused_until_the_owner_serves),
        cmocka_unit_test(no_more_calls_than_may_be_under_way),
        cmocka_unit_test(over_the_quota_messages_wait_and_none_is_lost),
        cmocka_unit_test(a_port_in_use_is_an_error_at_once),
        cmocka_unit_test(it_listens_on_ipv6),
        cmocka_unit_test(foreign_bytes_leave_it_alive),
        cmocka_unit_test(it_starts_and_stops_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
