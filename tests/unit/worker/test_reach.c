/*
 * Clients that look for their servers: who is waited for, how long, what is told meanwhile, and
 * everything that can go wrong at the start.
 */
#include "embps.h"

#include "common/clock.h"
#include "common/slots.h"
#include "proto/message.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/fake_door.h"
#include "tests/support/tcp_proxy.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int try_to_connect(const char *address, const embps_connect_options_t *options)
{
    embps_client_t *client = NULL;
    memset(&error, 0, sizeof error);
    const int code = embps_connect(address, options, &client, &error);
    assert_true((code == 0) == (client != NULL));
    assert_int_equal(code, error.code);
    if (client != NULL)
        embps_abandon(client, 0);
    return code;
}

static void nobody_there_is_an_error_in_time_that_says_why(void **state)
{
    (void)state;
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    const uint64_t start_us = psc_clock_us();
    options.wait_ms = 0;
    assert_int_equal(try_to_connect("127.0.0.1:1", &options), EMBPS_PEER_GONE);
    assert_non_null(strstr(error.message, "127.0.0.1:1"));
    assert_non_null(strstr(error.message, "refused"));
    options.wait_ms = 300;
    assert_int_equal(try_to_connect("[::1]:1", &options), EMBPS_PEER_GONE);
    assert_int_equal(try_to_connect("no-such-host.invalid:1", &options), EMBPS_PEER_GONE);
    assert_true(psc_clock_us() - start_us < UINT64_C(120000000));
}

typedef struct opener {
    tcp_proxy_t *proxy;
    unsigned n_lines;
    char line[512];
} opener_t;

static void open_now(void *context, const char *line)
{
    opener_t *opener = context;
    if (opener->n_lines++ == 0)
        (void)snprintf(opener->line, sizeof opener->line, "%s", line);
    tcp_proxy_refuse(opener->proxy, 0);
}

static void who_comes_later_is_waited_for_and_that_is_told(void **state)
{
    (void)state;
    const door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    door_servers_t *servers = door_servers_start(&of_servers);
    opener_t opener = {.proxy = tcp_proxy_start(door_servers_port(servers, 0))};
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    options.wait_ms = 60000;
    options.waiting = open_now;
    options.waiting_context = &opener;
    tcp_proxy_refuse(opener.proxy, 1);
    assert_int_equal(try_to_connect(tcp_proxy_address(opener.proxy), &options), 0);
    assert_true(opener.n_lines >= 1);
    assert_non_null(strstr(opener.line, "waiting for 127.0.0.1:"));
    const char *since = strstr(opener.line, " since ");
    assert_non_null(since); /* a machine that stood still may tell it later */
    assert_true(strtoul(since + strlen(" since "), NULL, 10) >= 1);
    tcp_proxy_stop(opener.proxy);
    door_servers_stop(servers);
}

/* The servers get their rows once the client was told that it waits for them. */
static void serve_now(void *context, const char *line)
{
    if (strstr(line, "the server is starting: it loads its rows") != NULL)
        door_servers_serve(context);
}

static void servers_that_load_their_rows_are_waited_for(void **state)
{
    (void)state;
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    of_servers.n = 2;
    of_servers.not_yet = "the server is starting: it loads its rows";
    door_servers_t *servers = door_servers_start(&of_servers);
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    options.wait_ms = 0;
    assert_int_equal(try_to_connect(door_servers_address(servers, 0), &options), EMBPS_PEER_GONE);
    assert_non_null(strstr(error.message, "it loads its rows"));
    options.wait_ms = 60000;
    options.waiting = serve_now;
    options.waiting_context = servers;
    assert_int_equal(try_to_connect(door_servers_address(servers, 1), &options), 0);
    door_servers_stop(servers);
}

static void strangers_are_refused(void **state)
{
    (void)state;
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    door_servers_t *others = door_servers_start(&options);
    options.cluster = 0xbeef;
    options.n = 2;
    options.instead_of_last = door_servers_address(others, 0);
    door_servers_t *servers = door_servers_start(&options);
    embps_connect_options_t wanted = EMBPS_CONNECT_OPTIONS_DEFAULT;
    wanted.cluster = 0xd00d;
    assert_int_equal(try_to_connect(door_servers_address(others, 0), &wanted), 0);
    assert_int_equal(try_to_connect(door_servers_address(servers, 0), &wanted), EMBPS_MISMATCH);
    assert_non_null(strstr(error.message, "run 000000000000beef"));
    wanted.cluster = 0; /* its second server is of another run */
    assert_int_equal(try_to_connect(door_servers_address(servers, 0), &wanted), EMBPS_MISMATCH);
    door_servers_stop(servers);
    door_servers_stop(others);
}

static void a_server_without_a_seat_says_so(void **state)
{
    (void)state;
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n_guests = 1;
    door_servers_t *servers = door_servers_start(&options);
    embps_client_t *first = connect_to(door_servers_address(servers, 0));
    embps_connect_options_t at_once = EMBPS_CONNECT_OPTIONS_DEFAULT;
    at_once.wait_ms = 0;
    assert_int_equal(try_to_connect(door_servers_address(servers, 0), &at_once), EMBPS_BUSY);
    ok(embps_close(first, &error));
    assert_int_equal(try_to_connect(door_servers_address(servers, 0), NULL), 0);
    door_servers_stop(servers);
}

/* A server of one table, which is for ever the next one. */
static grpc_status_code list_without_end(void *context, const psp_buffer_t *request,
                                         psp_buffer_t **reply_out)
{
    psp_scratch_t *scratch = context;
    psp_message_t asked;
    assert_int_equal(
        psp_message_unpack(scratch, request->kind, request->data, request->size, &asked, NULL),
        PSC_OK);
    static const uint8_t owners[2 * PSC_SLOT_COUNT]; /* all of server 0 */
    psp_message_t reply = {.kind = (psp_kind_t)(request->kind + 1)};
    reply.reply = (psp_reply_header_t){.request = asked.request.request, .map_epoch = 1};
    if (request->kind == PSP_HELLO) {
        reply.u.hello_reply = (psp_hello_reply_t){.cluster = 5,
                                                  .session = 6,
                                                  .n_servers = 1,
                                                  .map_epoch = 1,
                                                  .max_message_bytes = 1 << 20,
                                                  .slot_owners = owners};
    } else if (request->kind == PSP_FIND_TABLE) {
        psp_find_table_reply_t *found = &reply.u.find_table_reply;
        found->found = true;
        found->options = (psp_open_table_t){.table = 1, .dim = 4};
        memcpy(found->options.name, "one", 4);
        memcpy(found->options.init, "zeros", 6);
        memcpy(found->options.optimizer, "sgd", 4);
    }
    assert_int_equal(psp_message_pack(request->pool, &reply, reply_out, NULL), PSC_OK);
    return GRPC_STATUS_OK;
}

static void count_table(void *context, const char *name, const embps_table_options_t *options,
                        uint64_t rows)
{
    (void)options;
    (void)rows;
    assert_string_equal(name, "one");
    if (++*(int *)context > 1)
        fail_msg("table %s is told again", name);
}

static void a_server_that_lists_a_table_twice_is_refused(void **state)
{
    (void)state;
    psp_scratch_t *scratch;
    char address[32];
    int n = 0;
    assert_int_equal(psp_scratch_create(1 << 20, &scratch, NULL), PSC_OK);
    fake_door_t *door = fake_door_start(0, list_without_end, scratch);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)fake_door_port(door));
    embps_client_t *client = connect_to(address);
    assert_int_equal(embps_tables(client, count_table, &n, &error), EMBPS_PROTOCOL);
    assert_int_equal(n, 1);
    (void)embps_close(client, &error);
    fake_door_stop(door);
    psp_scratch_destroy(scratch);
}

/* Of another run when it is asked first, and silent from then on. */
typedef struct stranger {
    psp_scratch_t *scratch;
    atomic_uint n_asked;
} stranger_t;

static grpc_status_code answer_once(void *context, const psp_buffer_t *request,
                                    psp_buffer_t **reply_out)
{
    stranger_t *stranger = context;
    if (atomic_fetch_add(&stranger->n_asked, 1) != 0)
        return GRPC_STATUS_OK;
    return list_without_end(stranger->scratch, request, reply_out);
}

static void who_runs_out_of_time_is_told_what_was_wrong_before(void **state)
{
    (void)state;
    stranger_t stranger;
    char address[32];
    embps_connect_options_t wanted = EMBPS_CONNECT_OPTIONS_DEFAULT;
    assert_int_equal(psp_scratch_create(1 << 20, &stranger.scratch, NULL), PSC_OK);
    fake_door_t *door = fake_door_start(0, answer_once, &stranger);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)fake_door_port(door));
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.cluster = 0xbeef;
    options.n = 2;
    options.instead_of_last = address;
    door_servers_t *servers = door_servers_start(&options);
    int code = 0;
    wanted.wait_ms = 500;
    do { /* a machine that is busy may need longer for a second attempt */
        wanted.wait_ms *= 2;
        atomic_init(&stranger.n_asked, 0);
        code = try_to_connect(door_servers_address(servers, 0), &wanted);
        assert_int_not_equal(code, 0);
    } while (atomic_load(&stranger.n_asked) < 2);
    assert_int_equal(code, EMBPS_MISMATCH);
    door_servers_stop(servers);
    fake_door_stop(door);
    psp_scratch_destroy(stranger.scratch);
}
static void faults_of_the_caller_are_errors(void **state)
{
    (void)state;
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    struct {
        embps_connect_options_t options;
        uint64_t later;
    } longer = {.options = EMBPS_CONNECT_OPTIONS_DEFAULT};
    embps_client_t *client = NULL;
    assert_int_equal(embps_connect(NULL, NULL, &client, &error), EMBPS_INVALID_ARGUMENT);
    assert_int_equal(embps_connect("localhost:1", NULL, NULL, NULL), EMBPS_INVALID_ARGUMENT);
    assert_int_equal(try_to_connect("localhost", NULL), EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "HOST:PORT"));
    options.size = 0;
    assert_int_equal(try_to_connect("127.0.0.1:1", &options), EMBPS_INVALID_ARGUMENT);
    longer.options.size = sizeof longer;
    longer.options.wait_ms = 0;
    assert_int_equal(try_to_connect("127.0.0.1:1", &longer.options), EMBPS_PEER_GONE);
    longer.later = 1;
    assert_int_equal(try_to_connect("127.0.0.1:1", &longer.options), EMBPS_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_there_is_an_error_in_time_that_says_why),
        cmocka_unit_test(who_comes_later_is_waited_for_and_that_is_told),
        cmocka_unit_test(servers_that_load_their_rows_are_waited_for),
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(a_server_without_a_seat_says_so),
        cmocka_unit_test(a_server_that_lists_a_table_twice_is_refused),
        cmocka_unit_test(who_runs_out_of_time_is_told_what_was_wrong_before),
        cmocka_unit_test(faults_of_the_caller_are_errors),
    };
    return cmocka_run_group_tests_name("reach", tests, NULL, NULL);
}
