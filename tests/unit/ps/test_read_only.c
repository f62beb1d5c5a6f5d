/*
 * Servers that only show a checkpoint: all kinds of requests, as a client makes them. What reads is
 * answered from the checkpoint, also what the client that made it left there; what would change
 * anything is refused by name, time included, and changes nothing.
 */
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"

#include "embps.h"

#include <string.h>

enum { DIM = 4, IDS = 500 };

static uint64_t ids[IDS];
static float values[IDS * DIM], found[IDS * DIM];

static void check_refused(int code, const char *what)
{
    assert_int_equal(code, EMBPS_DENIED);
    if (strstr(error.message, what) == NULL ||
        strstr(error.message, "only shows checkpoint") == NULL)
        fail_msg("no \"%s\": %s", what, error.message);
}

static embps_table_t *open_table(embps_client_t *client)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = DIM;
    options.expire_after = 2;
    ok(embps_table_open(client, "t", &options, &table, &error));
    return table;
}

static void make_checkpoint(const door_servers_options_t *options)
{
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    door_servers_t *servers = door_servers_start(options);
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    embps_table_t *table = open_table(client);
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i * 7;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        values[i] = (float)(i % 19) + 1;
    ok(embps_push(table, EMBPS_ASSIGN, ids, IDS, values, 0, &error));
    ok(embps_checkpoint(client, "dense", 5, name, &error));
    ok(embps_close(client, &error));
    door_servers_stop(servers);
}

static void check_rows(embps_table_t *table)
{
    ok(embps_pull(table, ids, IDS, found, &error));
    assert_memory_equal(found, values, sizeof found);
}

static void check_what_reads(embps_client_t *client, embps_table_t *table)
{
    char bytes[8], name[EMBPS_CHECKPOINT_NAME_BYTES];
    uint8_t states[2];
    const uint64_t unseen[2] = {1, 2};
    size_t n = 0;
    check_rows(table);
    ok(embps_pull_states(table, unseen, 2, found, states, 0, &error));
    assert_int_equal(states[0], EMBPS_ROW_INITIAL);
    ok(embps_checkpoint_state(client, NULL, bytes, sizeof bytes, &n, name, &error));
    assert_int_equal(n, 5);
    assert_memory_equal(bytes, "dense", 5);
    assert_string_equal(name, "checkpoint-0000000001");
}

static void check_what_changes(embps_client_t *client, embps_table_t *table)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *other = NULL;
    options.dim = DIM;
    check_refused(embps_table_open(client, "new", &options, &other, &error), "a new table");
    check_refused(embps_push(table, EMBPS_DELTA, ids, IDS, values, 0, &error), "push");
    check_refused(embps_push(table, EMBPS_ASSIGN, ids, 1, values, 0, &error), "push");
    check_refused(embps_checkpoint(client, NULL, 0, NULL, &error), "checkpoint");
    for (unsigned i = 0; i < 6; i++)
        check_refused(embps_clock(client, 0, NULL, &error), "clock");
}

static void what_reads_is_answered_and_what_changes_is_refused(void **unused)
{
    (void)unused;
    char *folder = test_scratch_create(), checkpoints[256], data[256], shown[256];
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n = 2;
    options.checkpoints = test_path(checkpoints, sizeof checkpoints, folder, "saved");
    options.folder = test_path(data, sizeof data, folder, "data");
    make_checkpoint(&options);
    options.folder = test_path(shown, sizeof shown, folder, "shown");
    options.read_only = true;
    options.resume = "checkpoint-0000000001"; /* servers make one more at their end */
    options.cluster = 0xfeed;
    for (uint32_t n = 1; n <= 3; n++) {
        options.n = n;
        door_servers_t *servers = door_servers_start(&options);
        embps_client_t *client = connect_to(door_servers_address(servers, 0));
        embps_table_t *table = open_table(client);
        check_what_reads(client, table);
        check_what_changes(client, table);
        ok(embps_close(client, &error));
        client = connect_to(door_servers_address(servers, 0)); /* nothing was aged by a clock */
        table = open_table(client);
        check_what_reads(client, table);
        ok(embps_close(client, &error));
        door_servers_stop(servers);
        assert_int_equal(test_count_entries(shown), 0); /* the copies are gone */
    }
    test_scratch_destroy(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_reads_is_answered_and_what_changes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
