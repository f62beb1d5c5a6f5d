/*
 * Clients by address against servers on threads of this process: the same bits as locally, pushes
 * that count once whatever happens to connections, sessions and tokens that go on.
 */
#include "embps.h"

#include "common/clock.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"
#include "tests/support/tcp_proxy.h"
#include "tests/support/test_seed.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the same bits ---- */

enum { DIM = 17, IDS = 300, BATCH = 120, ROUNDS = 25 };

typedef struct image {
    float rows[IDS][DIM];
    float seen[ROUNDS][BATCH][DIM]; /* by pulls on the way */
} image_t;

/* A script of pushes and pulls under way together; what is seen goes to the image. */
static void run_script(embps_client_t *client, uint64_t key, image_t *image)
{
    static const char *const optimizers[2] = {"adagrad", "sgd"};
    test_random_t random = {.key = key};
    embps_table_t *tables[2];
    embps_request_t *pull = NULL;
    uint64_t ids[BATCH], all[IDS];
    float rows[BATCH][DIM];
    for (size_t t = 0; t < 2; t++) {
        embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
        options.dim = DIM;
        options.init = "uniform";
        options.optimizer = optimizers[t];
        ok(embps_table_open(client, optimizers[t], &options, &tables[t], &error));
    }
    for (size_t round = 0; round < ROUNDS; round++) {
        embps_table_t *table = tables[round % 2];
        for (size_t i = 0; i < BATCH; i++) {
            ids[i] = test_below(&random, IDS) * UINT64_C(0x9e3779b97f4a7c15); /* with duplicates */
            for (size_t c = 0; c < DIM; c++)
                rows[i][c] = test_float(&random);
        }
        /* The pull of this round, a push behind it, and another one that nobody waits for. */
        ok(embps_pull_start(table, ids, BATCH, &image->seen[round][0][0], &pull, &error));
        ok(embps_push(table, EMBPS_GRADIENT, ids, BATCH, &rows[0][0], 0.1f, &error));
        ok(embps_wait(pull, &error));
        ok(embps_push(table, round % 3 == 0 ? EMBPS_ASSIGN : EMBPS_DELTA, ids + round, BATCH / 2,
                      &rows[round][0], 0, &error));
        ok(embps_clock(client, round, NULL, &error));
    }
    for (size_t i = 0; i < IDS; i++)
        all[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    ok(embps_pull(tables[0], all, IDS, &image->rows[0][0], &error));
}

static void one_client_gives_the_same_bits_by_address_as_locally(void **state)
{
    (void)state;
    static image_t local, remote;
    const uint64_t key = test_random_start().key;
    char *folder = test_scratch_create();
    embps_local_options_t options = EMBPS_LOCAL_OPTIONS_DEFAULT;
    embps_client_t *client = NULL;
    options.data = folder;
    options.memory_bytes = UINT64_C(32) << 20;
    ok(embps_connect_local(&options, &client, &error));
    run_script(client, key, &local);
    ok(embps_close(client, &error));
    test_scratch_destroy(folder);
    for (uint32_t n = 1; n <= 3; n += 2) {
        door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
        of_servers.n = n;
        door_servers_t *servers = door_servers_start(&of_servers);
        client = connect_to(door_servers_address(servers, n / 2)); /* any of them */
        assert_int_equal(embps_server_count(client), n);
        assert_int_equal(embps_worker_count(client), 0);
        assert_true(embps_cluster(client) == of_servers.cluster);
        memset(&remote, 0xff, sizeof remote);
        run_script(client, key, &remote);
        ok(embps_close(client, &error));
        assert_memory_equal(remote.rows, local.rows, sizeof local.rows);
        assert_memory_equal(remote.seen, local.seen, sizeof local.seen);
        door_servers_stop(servers);
    }
}

static void calls_of_any_size_are_cut_into_messages(void **state)
{
    (void)state;
    enum { N = 20000, D = 128 }; /* 10 MiB */
    const door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    door_servers_t *servers = door_servers_start(&options);
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    embps_table_options_t of_table = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table;
    uint64_t *ids = calloc(N, sizeof *ids);
    float *rows = calloc((size_t)N * D, sizeof *rows), *back = calloc((size_t)N * D, sizeof *back);
    assert_true(ids != NULL && rows != NULL && back != NULL);
    for (uint64_t i = 0; i < N; i++) {
        ids[i] = i;
        for (size_t c = 0; c < D; c++)
            rows[i * D + c] = (float)(i + c);
    }
    of_table.dim = D;
    ok(embps_table_open(client, "wide", &of_table, &table, &error));
    ok(embps_push(table, EMBPS_ASSIGN, ids, N, rows, 0, &error));
    ok(embps_pull(table, ids, N, back, &error));
    assert_memory_equal(back, rows, (size_t)N * D * sizeof *rows);
    ok(embps_close(client, &error));
    door_servers_stop(servers);
    free(ids);
    free(rows);
    free(back);
}

/* ---- once ---- */

enum { WINDOW = 16, COUNTED = 4 };

static embps_table_t *open_counts(embps_client_t *client)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = 3;
    ok(embps_table_open(client, "counts", &options, &table, &error));
    return table;
}

static const uint64_t counted_ids[COUNTED] = {0, 7, 1000000007, UINT64_MAX};

/* A read under way, and how many pushes were issued before it. */
typedef struct reading {
    embps_request_t *request;
    size_t issued;
    float rows[COUNTED][3];
} reading_t;

/* What this client alone pushes: a read sees exactly what was issued before it. */
static void settle(reading_t *reading)
{
    if (reading->request == NULL)
        return;
    ok(embps_wait(reading->request, &error));
    reading->request = NULL;
    for (size_t i = 0; i < COUNTED * 3; i++)
        assert_true((double)(&reading->rows[0][0])[i] == (double)reading->issued);
}

static void count_over(const char *address, tcp_proxy_t **proxies, size_t n_proxies)
{
    enum { N = 600 };
    test_random_t random = test_random_start();
    embps_client_t *client = connect_to(address);
    embps_table_t *table = open_counts(client);
    embps_request_t *pushes[WINDOW] = {NULL};
    static reading_t readings[2];
    float ones[COUNTED][3];
    for (size_t i = 0; i < COUNTED * 3; i++)
        (&ones[0][0])[i] = 1;
    memset(readings, 0, sizeof readings);
    for (size_t i = 0; i < N; i++) {
        ok(embps_wait(pushes[i % WINDOW], &error));
        ok(embps_push_start(table, EMBPS_DELTA, counted_ids, COUNTED, &ones[0][0], 0,
                            &pushes[i % WINDOW], &error));
        if (i % 5 == 0) {
            reading_t *reading = &readings[i / 5 % 2];
            settle(reading);
            reading->issued = i + 1;
            ok(embps_pull_start(table, counted_ids, COUNTED, &reading->rows[0][0],
                                &reading->request, &error));
        }
        if (test_below(&random, 60) == 0)
            tcp_proxy_cut(proxies[test_below(&random, n_proxies)]);
    }
    for (size_t i = 0; i < WINDOW; i++)
        ok(embps_wait(pushes[i], &error));
    settle(&readings[0]);
    settle(&readings[1]);
    readings[0].issued = N;
    ok(embps_pull_start(table, counted_ids, COUNTED, &readings[0].rows[0][0], &readings[0].request,
                        &error));
    settle(&readings[0]);
    ok(embps_close(client, &error));
}

static void every_push_counts_once_while_connections_are_cut(void **state)
{
    (void)state;
    const door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    door_servers_t *servers = door_servers_start(&options);
    tcp_proxy_t *proxy = tcp_proxy_start(door_servers_port(servers, 0));
    count_over(tcp_proxy_address(proxy), &proxy, 1);
    assert_true(tcp_proxy_connections(proxy) > 2);
    tcp_proxy_stop(proxy);
    door_servers_stop(servers);
}

/* The code tells whether everything was acknowledged, for which nobody need be there any more. */
static void a_client_without_anything_open_closes_though_its_server_is_gone(void **state)
{
    (void)state;
    const door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    door_servers_t *servers = door_servers_start(&options);
    tcp_proxy_t *proxy = tcp_proxy_start(door_servers_port(servers, 0));
    embps_client_t *client = connect_to(tcp_proxy_address(proxy));
    const uint64_t id = 7;
    const float ones[3] = {1, 1, 1};
    ok(embps_push(open_counts(client), EMBPS_DELTA, &id, 1, ones, 0, &error));
    tcp_proxy_refuse(proxy, 1);
    tcp_proxy_cut(proxy);
    ok(embps_close(client, &error));
    /* With a push that is not answered, that is told. */
    tcp_proxy_refuse(proxy, 0);
    client = connect_to(tcp_proxy_address(proxy));
    embps_table_t *table = open_counts(client);
    embps_set_timeout(client, 300);
    tcp_proxy_refuse(proxy, 1);
    tcp_proxy_cut(proxy);
    embps_request_t *push;
    ok(embps_push_start(table, EMBPS_DELTA, &id, 1, ones, 0, &push, &error));
    assert_int_equal(embps_close(client, &error), EMBPS_TIMEOUT);
    assert_non_null(strstr(error.message, "has not answered for 300 ms"));
    tcp_proxy_stop(proxy);
    door_servers_stop(servers);
}

typedef struct guest {
    pthread_t thread;
    const char *address;
    size_t number;
    bool leaves_early;
    char fault[256];
} guest_t;

enum { GUESTS = 16, PUSHES = 40 };

/* Not cmocka's asserts: those are for the test's own thread. */
static void *be_guest(void *context)
{
    guest_t *guest = context;
    embps_error_t what = {0};
    embps_client_t *client = NULL;
    embps_table_t *table = NULL;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    const float ones[3] = {1, 1, 1};
    options.dim = 3;
    int code = embps_connect(guest->address, NULL, &client, &what);
    if (code == 0)
        code = embps_table_open(client, "counts", &options, &table, &what);
    for (size_t i = 0; code == 0 && i < PUSHES; i++) {
        const uint64_t id = i % COUNTED;
        code = embps_push(table, EMBPS_DELTA, &id, 1, ones, 0, &what);
        if (code == 0 && guest->leaves_early && i == PUSHES / 2) {
            embps_abandon(client, 1);
            return NULL;
        }
    }
    if (code == 0)
        code = embps_close(client, &what);
    else
        embps_abandon(client, code);
    if (code != 0)
        (void)snprintf(guest->fault, sizeof guest->fault, "guest %zu: %.200s", guest->number,
                       what.message);
    return NULL;
}

static void many_clients_come_and_go_and_nothing_is_lost(void **state)
{
    (void)state;
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n = 2;
    options.n_guests = 8; /* the others wait for a seat */
    door_servers_t *servers = door_servers_start(&options);
    static guest_t guests[GUESTS];
    size_t n_pushed = 0;
    memset(guests, 0, sizeof guests);
    for (size_t g = 0; g < GUESTS; g++) {
        guests[g] = (guest_t){.address = door_servers_address(servers, (uint32_t)g % 2),
                              .number = g,
                              .leaves_early = g % 4 == 3};
        n_pushed += guests[g].leaves_early ? PUSHES / 2 + 1 : PUSHES;
        assert_int_equal(pthread_create(&guests[g].thread, NULL, be_guest, &guests[g]), 0);
    }
    for (size_t g = 0; g < GUESTS; g++) {
        assert_int_equal(pthread_join(guests[g].thread, NULL), 0);
        assert_string_equal(guests[g].fault, "");
    }
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    const uint64_t ids[COUNTED] = {0, 1, 2, 3};
    float rows[COUNTED][3];
    double sum = 0;
    ok(embps_pull(open_counts(client), ids, COUNTED, &rows[0][0], &error));
    for (size_t i = 0; i < COUNTED; i++)
        sum += (double)rows[i][0];
    assert_true(sum == (double)n_pushed);
    ok(embps_close(client, &error));
    door_servers_stop(servers);
}

/* Something else for a while. False: the machine stood still meanwhile, which a lease may not have
 * outlived. */
static bool stay_busy(embps_client_t *busy, uint64_t for_us, uint64_t longest_us)
{
    const uint64_t start_us = psc_clock_us();
    bool even = true;
    for (uint64_t last_us = start_us, now_us = start_us; now_us - start_us < for_us;
         last_us = now_us) {
        (void)open_counts(busy);
        now_us = psc_clock_us();
        even = even && now_us - last_us < longest_us;
    }
    return even;
}

static void a_session_lasts_while_the_program_does_something_else(void **state)
{
    (void)state;
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.lease_us = 600000;
    door_servers_t *servers = door_servers_start(&options);
    embps_client_t *busy = connect_to(door_servers_address(servers, 0));
    bool seen = false;
    for (int attempt = 0; attempt < 3 && !seen; attempt++) {
        embps_client_t *idle = connect_to(door_servers_address(servers, 0));
        embps_table_t *table = open_counts(idle);
        float rows[COUNTED][3];
        const bool even = stay_busy(busy, 3 * options.lease_us, options.lease_us / 6);
        seen = embps_pull(table, counted_ids, COUNTED, &rows[0][0], &error) == 0;
        assert_true(seen || !even);
        embps_abandon(idle, 0);
    }
    ok(embps_close(busy, &error));
    door_servers_stop(servers);
}

/* ---- tokens ---- */

#define OLD_TOKEN "the-token-of-yesterday"
#define NEW_TOKEN "the-token-of-tomorrow"

/* A file for its owner's eyes, put in its place as a whole. */
static void put_file(const char *path, const char *text)
{
    char beside[256];
    (void)snprintf(beside, sizeof beside, "%s.new", path);
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    assert_int_equal(close(fd), 0);
    assert_int_equal(rename(beside, path), 0);
}

static void a_client_goes_on_when_its_token_is_replaced(void **state)
{
    (void)state;
    char *folder = test_scratch_create();
    char tokens[200], token[200];
    (void)snprintf(tokens, sizeof tokens, "%s/tokens", folder);
    (void)snprintf(token, sizeof token, "%s/token", folder);
    put_file(tokens, OLD_TOKEN " admin *\n" NEW_TOKEN " admin *\n");
    put_file(token, OLD_TOKEN "\n");
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    of_servers.n = 2;
    of_servers.tokens = tokens;
    door_servers_t *servers = door_servers_start(&of_servers);
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    embps_client_t *client = NULL;
    float ones[COUNTED][3], rows[COUNTED][3];
    options.token_file = token;
    ok(embps_connect(door_servers_address(servers, 0), &options, &client, &error));
    embps_table_t *table = open_counts(client);
    for (size_t i = 0; i < COUNTED * 3; i++)
        (&ones[0][0])[i] = 1;
    ok(embps_push(table, EMBPS_DELTA, counted_ids, COUNTED, &ones[0][0], 0, &error));
    put_file(token, NEW_TOKEN "\n");
    ok(embps_push(table, EMBPS_DELTA, counted_ids, COUNTED, &ones[0][0], 0, &error));
    put_file(tokens, NEW_TOKEN " admin *\n");
    ok(embps_push(table, EMBPS_DELTA, counted_ids, COUNTED, &ones[0][0], 0, &error));
    ok(embps_pull(table, counted_ids, COUNTED, &rows[0][0], &error));
    for (size_t i = 0; i < COUNTED * 3; i++)
        assert_true((double)(&rows[0][0])[i] == 3.0);
    /* A new file that is wrong changes nothing; a token that is gone ends the client, as ever. */
    put_file(token, "short\n");
    ok(embps_pull(table, counted_ids, COUNTED, &rows[0][0], &error));
    put_file(tokens, OLD_TOKEN " admin *\n");
    assert_int_equal(embps_pull(table, counted_ids, COUNTED, &rows[0][0], &error), EMBPS_DENIED);
    embps_abandon(client, EMBPS_DENIED);
    door_servers_stop(servers);
    test_scratch_destroy(folder);
}

static void a_client_is_not_for_children(void **state)
{
    (void)state;
    const door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    door_servers_t *servers = door_servers_start(&options);
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    embps_table_t *table = open_counts(client);
    float rows[COUNTED][3];
    const pid_t child = fork();
    if (child == 0) {
        int faults =
            embps_pull(table, counted_ids, COUNTED, &rows[0][0], NULL) != EMBPS_UNSUPPORTED;
        embps_connect_options_t hurried = EMBPS_CONNECT_OPTIONS_DEFAULT;
        hurried.wait_ms = 1000;
        embps_client_t *own = NULL;
        faults += embps_connect(door_servers_address(servers, 0), &hurried, &own, &error) !=
                  EMBPS_UNSUPPORTED;
        faults += own != NULL || strstr(error.message, "spawn or exec") == NULL;
        faults += embps_close(client, NULL) != EMBPS_UNSUPPORTED;
        _exit(faults);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ok(embps_pull(table, counted_ids, COUNTED, &rows[0][0], &error)); /* the parent goes on */
    ok(embps_close(client, &error));
    door_servers_stop(servers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_client_gives_the_same_bits_by_address_as_locally),
        cmocka_unit_test(calls_of_any_size_are_cut_into_messages),
        cmocka_unit_test(every_push_counts_once_while_connections_are_cut),
        cmocka_unit_test(a_client_without_anything_open_closes_though_its_server_is_gone),
        cmocka_unit_test(many_clients_come_and_go_and_nothing_is_lost),
        cmocka_unit_test(a_session_lasts_while_the_program_does_something_else),
        cmocka_unit_test(a_client_goes_on_when_its_token_is_replaced),
        cmocka_unit_test(a_client_is_not_for_children),
    };
    return cmocka_run_group_tests_name("connect_address", tests, NULL, NULL);
}
