/*
 * The client's transport over gRPC: against servers that answer, refuse, keep silent or are not
 * there, and connections that are cut.
 */
#include "proto/grpc/grpc_client.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "proto/message.h"
#include "tests/support/cmocka.h"
#include "tests/support/fake_door.h"
#include "tests/support/held_port.h"
#include "tests/support/tcp_proxy.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_US UINT64_C(60000000) /* no test waits so long unless it fails */

/* What a door does with calls, and what it saw. */
typedef struct script {
    psp_pool_t *pool;
    atomic_uint n_calls;
    atomic_uint by_kind[PSP_KIND_LAST + 1];
    atomic_uint refusals; /* so many calls are refused first */
    grpc_status_code with;
    atomic_bool silent;
} script_t;

static psp_pool_t *pool;

static int setup(void **state)
{
    (void)state;
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

/* Answers with the request's own bytes. */
static grpc_status_code decide(void *context, const psp_buffer_t *request, psp_buffer_t **reply_out)
{
    script_t *script = context;
    atomic_fetch_add(&script->n_calls, 1);
    atomic_fetch_add(&script->by_kind[request->kind], 1);
    if (atomic_load(&script->silent))
        return GRPC_STATUS_OK;
    unsigned left = atomic_load(&script->refusals);
    while (left != 0 && !atomic_compare_exchange_weak(&script->refusals, &left, left - 1))
        ;
    if (left != 0)
        return script->with;
    PSC_BUG_ON(psp_buffer_get(request->pool, request->size, reply_out, NULL) != PSC_OK);
    memcpy((*reply_out)->data, request->data, request->size);
    (*reply_out)->size = request->size;
    return GRPC_STATUS_OK;
}

static psp_transport_t *connect_to(const char *const *addresses, uint32_t n)
{
    const psp_grpc_client_options_t options = {
        .addresses = addresses, .n_servers = n, .pool = pool, .seed = 5};
    psp_transport_t *transport = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    if (psp_grpc_client_create(&options, &transport, &error) != PSC_OK)
        fail_msg("%s", error.message);
    return transport;
}

static psp_transport_t *connect_to_port(uint16_t port)
{
    char address[32];
    const char *addresses[1] = {address};
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port);
    return connect_to(addresses, 1);
}

static void send_bytes(psp_transport_t *transport, uint32_t peer, uint32_t kind, const void *bytes,
                       size_t size)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_buffer_get(pool, size, &buffer, NULL), PSC_OK);
    memcpy(buffer->data, bytes, size);
    buffer->size = size;
    buffer->kind = kind;
    assert_int_equal(psp_transport_send(transport, peer, buffer, NULL), PSC_OK);
}

static void send_number(psp_transport_t *transport, uint32_t kind, uint32_t number)
{
    send_bytes(transport, 0, kind, &number, sizeof number);
}

static psp_buffer_t *next_reply(psp_transport_t *transport)
{
    const uint64_t end_us = psc_clock_us() + PATIENCE_US;
    psp_buffer_t *reply = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    while (reply == NULL) {
        if (psp_transport_poll(transport, &reply, &error) != PSC_OK)
            fail_msg("%s", error.message);
        if (reply == NULL)
            psp_transport_wait(transport, 100000);
        assert_true(psc_clock_us() < end_us);
    }
    return reply;
}

static uint32_t next_number(psp_transport_t *transport)
{
    uint32_t number;
    psp_buffer_t *reply = next_reply(transport);
    assert_int_equal(reply->size, sizeof number);
    memcpy(&number, reply->data, sizeof number);
    psp_buffer_put(reply);
    return number;
}

static void messages_are_calls_and_answers_come_from_their_peer(void **state)
{
    (void)state;
    static const uint32_t kinds[] = {PSP_HELLO, PSP_PUSH, PSP_PULL, PSP_GOODBYE};
    script_t scripts[2] = {0};
    fake_door_t *doors[2];
    char text[2][32];
    const char *addresses[2] = {text[0], text[1]};
    uint8_t *bytes = calloc(1, 1 << 20);
    assert_non_null(bytes);
    for (size_t i = 0; i < 2; i++) {
        doors[i] = fake_door_start(0, decide, &scripts[i]);
        (void)snprintf(text[i], sizeof text[i], "127.0.0.1:%u", (unsigned)fake_door_port(doors[i]));
    }
    psp_transport_t *transport = connect_to(addresses, 2);
    assert_int_equal(transport->n_peers, 2);
    assert_int_equal(transport->n_ranks, 0);
    for (uint32_t i = 0; i < 4; i++) {
        const size_t size = i == 2 ? 1 << 20 : i * 100;
        for (size_t b = 0; b < size; b++)
            bytes[b] = (uint8_t)(b * 13 + i);
        send_bytes(transport, i % 2, kinds[i], bytes, size);
        psp_buffer_t *reply = next_reply(transport);
        assert_int_equal(reply->kind, psp_reply_kind(kinds[i]));
        assert_int_equal(reply->peer, i % 2);
        assert_int_equal(reply->size, size);
        assert_memory_equal(reply->data, bytes, size);
        psp_buffer_put(reply);
    }
    assert_int_equal(transport->bytes_sent, (1 << 20) + 400);
    assert_int_equal(transport->bytes_received, (1 << 20) + 400);
    assert_int_equal(transport->retries, 0);
    psp_transport_destroy(transport);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(atomic_load(&scripts[i].n_calls), 2);
        fake_door_stop(doors[i]);
    }
    free(bytes);
}

static void who_is_not_there_is_tried_again_until_it_is(void **state)
{
    (void)state;
    script_t script = {0};
    uint16_t port;
    const int holder = held_port(&port);
    psp_transport_t *transport = connect_to_port(port);
    send_number(transport, PSP_PUSH, 7);
    const uint64_t end_us = psc_clock_us() + PATIENCE_US;
    while (transport->retries < 2) {
        psp_buffer_t *reply;
        assert_int_equal(psp_transport_poll(transport, &reply, NULL), PSC_OK);
        assert_null(reply);
        psp_transport_wait(transport, 100000);
        assert_true(psc_clock_us() < end_us);
    }
    assert_non_null(strstr(psp_grpc_client_trouble(transport, 0), "refused"));
    assert_int_equal(psp_transport_backlog(transport, 0), sizeof(uint32_t));
    fake_door_t *door = fake_door_start(port, decide, &script);
    assert_int_equal(next_number(transport), 7);
    assert_string_equal(psp_grpc_client_trouble(transport, 0), "");
    assert_int_equal(psp_transport_backlog(transport, 0), 0);
    assert_int_equal(atomic_load(&script.n_calls), 1);
    psp_transport_destroy(transport);
    fake_door_stop(door);
    (void)close(holder);
}

static void what_is_not_answered_when_a_connection_breaks_is_sent_again(void **state)
{
    (void)state;
    enum { N = 200 };
    script_t script = {0};
    bool answered[N] = {false};
    fake_door_t *door = fake_door_start(0, decide, &script);
    tcp_proxy_t *proxy = tcp_proxy_start(fake_door_port(door));
    const char *address = tcp_proxy_address(proxy);
    psp_transport_t *transport = connect_to(&address, 1);
    for (uint32_t i = 0; i < N; i++) {
        send_number(transport, i % 3 == 0 ? PSP_PULL : PSP_PUSH, i);
        if (i % 10 != 0)
            continue;
        const uint32_t number = next_number(transport);
        assert_false(answered[number]);
        answered[number] = true;
        if (i % 50 == 0)
            tcp_proxy_cut(proxy);
    }
    for (uint32_t i = 0; i < N - N / 10; i++) {
        const uint32_t number = next_number(transport);
        assert_false(answered[number]);
        answered[number] = true;
    }
    assert_true(tcp_proxy_connections(proxy) > 1);
    assert_true(transport->retries > 0);
    psp_transport_destroy(transport);
    tcp_proxy_stop(proxy);
    fake_door_stop(door);
}

static void a_server_that_says_later_is_asked_again(void **state)
{
    (void)state;
    static const grpc_status_code codes[] = {GRPC_STATUS_UNAVAILABLE, GRPC_STATUS_ABORTED,
                                             GRPC_STATUS_RESOURCE_EXHAUSTED};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        script_t script = {.with = codes[i]};
        atomic_store(&script.refusals, 2);
        fake_door_t *door = fake_door_start(0, decide, &script);
        psp_transport_t *transport = connect_to_port(fake_door_port(door));
        send_number(transport, PSP_PULL, 3);
        assert_int_equal(next_number(transport), 3);
        assert_int_equal(transport->retries, 2);
        assert_int_equal(atomic_load(&script.n_calls), 3);
        psp_transport_destroy(transport);
        fake_door_stop(door);
    }
}

static void a_server_that_does_not_understand_ends_the_transport(void **state)
{
    (void)state;
    script_t script = {.with = GRPC_STATUS_UNIMPLEMENTED};
    atomic_store(&script.refusals, 1);
    fake_door_t *door = fake_door_start(0, decide, &script);
    psp_transport_t *transport = connect_to_port(fake_door_port(door));
    psc_error_t error = PSC_ERROR_INIT;
    psp_buffer_t *reply;
    send_number(transport, PSP_PULL, 3);
    const uint64_t end_us = psc_clock_us() + PATIENCE_US;
    while (psp_transport_poll(transport, &reply, &error) == PSC_OK && psc_clock_us() < end_us)
        psp_transport_wait(transport, 100000);
    assert_int_equal(error.code, PSC_UNSUPPORTED);
    assert_int_equal(error.rank, 0);
    assert_non_null(strstr(error.message, "127.0.0.1:"));
    assert_non_null(strstr(error.message, "refuses a pull: as the test wants it"));
    psp_transport_destroy(transport);
    fake_door_stop(door);
}

static void flush_waits_for_answers_and_the_end_for_nothing(void **state)
{
    (void)state;
    script_t script = {0};
    fake_door_t *door = fake_door_start(0, decide, &script);
    psp_transport_t *transport = connect_to_port(fake_door_port(door));
    for (uint32_t i = 0; i < 5; i++)
        send_number(transport, PSP_PUSH, i);
    assert_int_equal(psp_transport_flush(transport, PATIENCE_US, NULL), PSC_OK);
    assert_int_equal(psp_transport_backlog(transport, 0), 0);
    atomic_store(&script.silent, true);
    send_number(transport, PSP_PUSH, 9);
    assert_int_equal(psp_transport_flush(transport, 1000, NULL), PSC_TIMEOUT);
    psp_transport_destroy(transport); /* with five answers that nobody took, and one to come */
    fake_door_stop(door);
}

static void wake_ends_a_wait(void **state)
{
    (void)state;
    psp_transport_t *transport = connect_to_port(1);
    psp_transport_wake(transport);
    psp_transport_wait(transport, PATIENCE_US);
    psp_transport_destroy(transport);
}

static void signs_of_life_go_out_whatever_the_program_does(void **state)
{
    (void)state;
    script_t script = {0};
    fake_door_t *door = fake_door_start(0, decide, &script);
    psp_transport_t *transport = connect_to_port(fake_door_port(door));
    for (int i = 0; i < 2; i++) {
        psp_buffer_t *sign = NULL;
        assert_int_equal(psp_buffer_get(pool, 8, &sign, NULL), PSC_OK);
        sign->kind = PSP_PREFETCH;
        assert_int_equal(psp_grpc_client_keep_session(transport, sign, 1000, NULL), PSC_OK);
    }
    const uint64_t end_us = psc_clock_us() + PATIENCE_US;
    while (atomic_load(&script.by_kind[PSP_PREFETCH]) < 10 && psc_clock_us() < end_us)
        psc_clock_sleep_us(1000); /* the program computes */
    assert_true(atomic_load(&script.by_kind[PSP_PREFETCH]) >= 10);
    psp_buffer_t *reply;
    assert_int_equal(psp_transport_poll(transport, &reply, NULL), PSC_OK);
    assert_null(reply); /* their answers are nobody's */
    atomic_store(&script.silent, true);
    psp_transport_destroy(transport);
    fake_door_stop(door);
}

static void proxies_of_the_environment_are_ignored(void **state)
{
    (void)state;
    script_t script = {0};
    fake_door_t *door = fake_door_start(0, decide, &script);
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:1", 1), 0);
    assert_int_equal(setenv("grpc_proxy", "http://127.0.0.1:1", 1), 0);
    psp_transport_t *transport = connect_to_port(fake_door_port(door));
    send_number(transport, PSP_PULL, 1);
    assert_int_equal(next_number(transport), 1);
    assert_int_equal(transport->retries, 0);
    assert_int_equal(unsetenv("http_proxy"), 0);
    assert_int_equal(unsetenv("grpc_proxy"), 0);
    psp_transport_destroy(transport);
    fake_door_stop(door);
}

static void a_child_after_a_fork_is_told_to_connect_itself(void **state)
{
    (void)state;
    psp_transport_t *transport = connect_to_port(1);
    psp_buffer_t *buffer = NULL, *none = NULL;
    assert_int_equal(psp_buffer_get(pool, 8, &buffer, NULL), PSC_OK);
    const pid_t child = fork();
    if (child == 0) {
        psc_error_t error = PSC_ERROR_INIT;
        int faults = psp_buffer_get(pool, 8, &none, NULL) != PSC_UNSUPPORTED;
        faults += psp_transport_send(transport, 0, buffer, &error) != PSC_UNSUPPORTED;
        faults += strstr(error.message, "has to connect itself") == NULL;
        faults += psp_transport_poll(transport, &buffer, NULL) != PSC_UNSUPPORTED;
        faults += psp_transport_flush(transport, 1000, NULL) != PSC_UNSUPPORTED;
        psp_transport_destroy(transport); /* touches nothing */
        _exit(faults);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    psp_buffer_put(buffer);
    psp_transport_destroy(transport);
}

/* Threads of this process that may be given a SIGTERM. */
static size_t count_open_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    const struct dirent *task;
    size_t n = 0;
    while ((task = readdir(tasks)) != NULL) {
        char path[300], line[256];
        unsigned long long blocked = 0;
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *file = task->d_name[0] != '.' ? fopen(path, "r") : NULL;
        if (file == NULL)
            continue;
        while (fgets(line, sizeof line, file) != NULL) {
            if (strncmp(line, "SigBlk:", 7) == 0)
                blocked = strtoull(line + 7, NULL, 16);
        }
        (void)fclose(file);
        n += (blocked >> (SIGTERM - 1) & 1) == 0;
    }
    (void)closedir(tasks);
    return n;
}

/* The first test: what servers of other tests have started is not the client's. */
static void threads_of_a_client_take_no_signals(void **state)
{
    (void)state;
    const size_t before = count_open_threads();
    psp_transport_t *transport = connect_to_port(1);
    send_number(transport, PSP_PUSH, 1);
    const uint64_t end_us = psc_clock_us() + PATIENCE_US;
    while (transport->retries == 0 && psc_clock_us() < end_us) {
        psp_buffer_t *reply;
        assert_int_equal(psp_transport_poll(transport, &reply, NULL), PSC_OK);
        psp_transport_wait(transport, 100000);
    }
    assert_int_equal(count_open_threads(), before);
    psp_transport_destroy(transport);
}

static void addresses_are_looked_at_before_anything_else(void **state)
{
    (void)state;
    static const char *const fine[] = {"localhost:1", "127.0.0.1:65535", "[::1]:80",
                                       "unix:/run/embps", "a-b.example:50051"};
    static const char *const wrong[] = {
        "",     "localhost", ":50051", "a:",    "a:0",   "a:-1",         "a:65536",
        "a:1x", "::1:50051", "a b:5",  "a:5\n", "a/b:5", "http://a:500", "x:99999999999999"};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++)
        assert_int_equal(psp_grpc_check_address(fine[i], NULL), PSC_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(psp_grpc_check_address(wrong[i], NULL), PSC_INVALID_ARGUMENT);
    const psp_grpc_client_options_t options = {.addresses = wrong, .n_servers = 1, .pool = pool};
    psp_transport_t *transport = NULL;
    assert_int_equal(psp_grpc_client_create(&options, &transport, NULL), PSC_INVALID_ARGUMENT);
    assert_null(transport);
}

static void memory_that_is_short_is_an_error(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1:1", "127.0.0.1:2"};
    const psp_grpc_client_options_t options = {
        .addresses = addresses, .n_servers = 2, .pool = pool};
    psp_transport_t *transport = NULL;
    psc_status_t st = PSC_NO_MEMORY;
    unsigned n = 0;
    while (st != PSC_OK) {
        psc_alloc_fail_at(++n);
        st = psp_grpc_client_create(&options, &transport, NULL);
        psc_alloc_fail_at(0);
        assert_true(st == PSC_OK || st == PSC_NO_MEMORY);
    }
    assert_true(n > 5);
    psp_transport_destroy(transport);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(threads_of_a_client_take_no_signals),
        TEST(messages_are_calls_and_answers_come_from_their_peer),
        TEST(who_is_not_there_is_tried_again_until_it_is),
        TEST(what_is_not_answered_when_a_connection_breaks_is_sent_again),
        TEST(a_server_that_says_later_is_asked_again),
        TEST(a_server_that_does_not_understand_ends_the_transport),
        TEST(flush_waits_for_answers_and_the_end_for_nothing),
        TEST(wake_ends_a_wait),
        TEST(signs_of_life_go_out_whatever_the_program_does),
        TEST(proxies_of_the_environment_are_ignored),
        TEST(a_child_after_a_fork_is_told_to_connect_itself),
        TEST(addresses_are_looked_at_before_anything_else),
        TEST(memory_that_is_short_is_an_error),
    };
    return cmocka_run_group_tests_name("grpc_client", tests, NULL, NULL);
}
