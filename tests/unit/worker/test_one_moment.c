/*
 * Checkpoints that several servers make while clients push, by themselves or for a client: each has
 * whole calls. Every call of a
 * client adds 1 to all of its rows, which lie on all servers and go in several messages to each; so
 * in each checkpoint all rows of a client are alike, whichever call it was cut behind.
 */
#include "embps.h"

#include "common/clock.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { CLIENTS = 3, IDS = 400, DIM = 256, CHECKPOINTS = 8, UNDER_WAY = 3, NAMES_MAX = 512 };

typedef struct pusher {
    uint32_t number;
    const char *address;
    atomic_bool *stop;
    atomic_uint pushed;
    pthread_t thread;
    embps_error_t error;
    int code;
} pusher_t;

static uint64_t id_of(uint32_t client, uint32_t i)
{
    return client * UINT64_C(1000003) + i;
}

static int push_some(pusher_t *pusher, embps_client_t *client)
{
    static float ones[IDS * DIM]; /* alike for all */
    embps_table_t *table = NULL;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_request_t *requests[UNDER_WAY] = {NULL};
    uint64_t ids[IDS];
    options.dim = DIM;
    for (uint32_t i = 0; i < IDS; i++)
        ids[i] = id_of(pusher->number, i);
    for (uint32_t i = 0; i < IDS * DIM; i++)
        ones[i] = 1;
    int code = embps_table_open(client, "rows", &options, &table, &pusher->error);
    for (size_t k = 0; code == 0 && !atomic_load(pusher->stop); k++) {
        embps_request_t **slot = &requests[k % UNDER_WAY];
        if (*slot != NULL)
            code = embps_wait(*slot, &pusher->error);
        *slot = NULL;
        if (code == 0)
            code = embps_push_start(table, EMBPS_DELTA, ids, IDS, ones, 0, slot, &pusher->error);
        atomic_fetch_add(&pusher->pushed, 1);
    }
    for (size_t k = 0; k < UNDER_WAY; k++) {
        const int ended = requests[k] != NULL ? embps_wait(requests[k], &pusher->error) : 0;
        code = code == 0 ? ended : code;
    }
    return code;
}

static void *push_on(void *context)
{
    pusher_t *pusher = context;
    embps_client_t *client = NULL;
    pusher->code = embps_connect(pusher->address, NULL, &client, &pusher->error);
    if (pusher->code == 0)
        pusher->code = push_some(pusher, client);
    if (pusher->code == 0)
        pusher->code = embps_close(client, &pusher->error);
    return NULL;
}

/* Names of the checkpoints that are there. */
static size_t list(const char *folder, char names[NAMES_MAX][64])
{
    size_t n = 0;
    DIR *open = opendir(folder);
    const struct dirent *entry;
    while (open != NULL && (entry = readdir(open)) != NULL && n < NAMES_MAX) {
        if (strncmp(entry->d_name, "checkpoint-", 11) == 0 && strchr(entry->d_name, '.') == NULL)
            (void)snprintf(names[n++], 64, "%.63s", entry->d_name);
    }
    if (open != NULL)
        (void)closedir(open);
    return n;
}

/* What a checkpoint has of each client: how many calls. */
static void look(const char *checkpoints, const char *name, float calls_out[CLIENTS])
{
    static float rows[IDS][DIM];
    uint64_t ids[IDS];
    embps_table_t *table = NULL;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    door_servers_options_t again = DOOR_SERVERS_DEFAULT;
    again.checkpoints = checkpoints;
    again.resume = name;
    again.keep = 0;
    door_servers_t *servers = door_servers_start(&again);
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    options.dim = DIM;
    ok(embps_table_open(client, "rows", &options, &table, &error));
    for (uint32_t c = 0; c < CLIENTS; c++) {
        for (uint32_t i = 0; i < IDS; i++)
            ids[i] = id_of(c, i);
        ok(embps_pull(table, ids, IDS, &rows[0][0], &error));
        calls_out[c] = rows[0][0];
        for (uint32_t i = 0; i < IDS; i++) {
            for (uint32_t d = 0; d < DIM; d++) {
                if (rows[i][d] != rows[0][0])
                    fail_msg("%s: row %u of client %u has %g calls, and row 0 has %g", name,
                             (unsigned)i, (unsigned)c, (double)rows[i][d], (double)rows[0][0]);
            }
        }
    }
    ok(embps_close(client, &error));
    door_servers_stop(servers);
}

/* By a client that pushes nothing: their names. */
static void ask_for_checkpoints(const char *address)
{
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    embps_client_t *client = connect_to(address);
    for (uint32_t i = 0; i < CHECKPOINTS; i++)
        ok(embps_checkpoint(client, &i, sizeof i, name, &error));
    ok(embps_close(client, &error));
}

static void a_checkpoint_has_whole_calls(uint32_t n_servers, bool asked_for)
{
    static char names[NAMES_MAX][64];
    char checkpoints[256];
    char *folder = test_scratch_create();
    atomic_bool stop = false;
    pusher_t pushers[CLIENTS] = {{.number = 0}};
    float calls[CLIENTS];
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n = n_servers;
    options.keep = 0;
    options.every_us = asked_for ? 0 : 20000;
    options.checkpoints = test_path(checkpoints, sizeof checkpoints, folder, "saved");
    door_servers_t *servers = door_servers_start(&options);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        pushers[c] = (pusher_t){
            .number = c, .stop = &stop, .address = door_servers_address(servers, c % n_servers)};
        assert_int_equal(pthread_create(&pushers[c].thread, NULL, push_on, &pushers[c]), 0);
    }
    for (uint32_t c = 0; c < CLIENTS; c++) {
        while (atomic_load(&pushers[c].pushed) < 20)
            psc_clock_sleep_us(2000);
    }
    const size_t before = list(checkpoints, names);
    if (asked_for)
        ask_for_checkpoints(door_servers_address(servers, n_servers - 1));
    while (list(checkpoints, names) < before + CHECKPOINTS)
        psc_clock_sleep_us(2000);
    atomic_store(&stop, true);
    for (uint32_t c = 0; c < CLIENTS; c++) {
        assert_int_equal(pthread_join(pushers[c].thread, NULL), 0);
        if (pushers[c].code != 0)
            fail_msg("client %u: %s", (unsigned)c, pushers[c].error.message);
    }
    const size_t n = list(checkpoints, names);
    door_servers_stop(servers);
    float most = 0;
    for (size_t i = n - CHECKPOINTS; i < n; i++) {
        look(checkpoints, names[i], calls);
        for (uint32_t c = 0; c < CLIENTS; c++)
            most = calls[c] > most ? calls[c] : most;
    }
    assert_true(most > 0); /* they were made while there was something to cut */
    test_scratch_destroy(folder);
}

static void checkpoints_of_three_servers_have_whole_calls(void **state)
{
    (void)state;
    a_checkpoint_has_whole_calls(3, false);
}

static void checkpoints_that_a_client_asks_for_have_whole_calls(void **state)
{
    (void)state;
    a_checkpoint_has_whole_calls(3, true);
}

static void checkpoints_of_a_server_alone_have_whole_calls(void **state)
{
    (void)state;
    a_checkpoint_has_whole_calls(1, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_of_three_servers_have_whole_calls),
        cmocka_unit_test(checkpoints_that_a_client_asks_for_have_whole_calls),
        cmocka_unit_test(checkpoints_of_a_server_alone_have_whole_calls),
    };
    return cmocka_run_group_tests_name("one_moment", tests, NULL, NULL);
}
