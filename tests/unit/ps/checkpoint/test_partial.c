/*
 * Checkpoints that rest on those before: with less memory than rows, pushes of random rows and a
 * checkpoint after some, servers that go on from any of them, as many as before or others, have the
 * rows as they were then.
 */
#include "common/alloc.h"
#include "common/file.h"
#include "proto/saved_folder.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include "embps.h"

#include <string.h>
#include <unistd.h>

enum { DIM = 64, IDS = 20000, BATCH = 500, STARTS = 3, CHECKPOINTS = 4 };

static float now[IDS][DIM], then[CHECKPOINTS][IDS][DIM], seen[IDS][DIM];
static char names[CHECKPOINTS][EMBPS_CHECKPOINT_NAME_BYTES];

static embps_table_t *open_table(embps_client_t *client)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = DIM;
    ok(embps_table_open(client, "rows", &options, &table, &error));
    return table;
}

/* Rows from anywhere, or from a few that stay in memory. */
static void push_some(embps_table_t *table, test_random_t *random)
{
    static float rows[BATCH][DIM];
    uint64_t ids[BATCH];
    const size_t span = test_below(random, 2) != 0 ? IDS : IDS / 20;
    for (size_t i = 0; i < BATCH; i++) {
        ids[i] = test_below(random, span);
        for (size_t c = 0; c < DIM; c++) {
            rows[i][c] = (float)(test_next(random) % 16);
            now[ids[i]][c] += rows[i][c];
        }
    }
    ok(embps_push(table, EMBPS_DELTA, ids, BATCH, &rows[0][0], 0, &error));
}

static void check_rows(embps_table_t *table, const float (*wanted)[DIM])
{
    static uint64_t ids[IDS];
    for (uint64_t i = 0; i < IDS; i++)
        ids[i] = i;
    for (size_t i = 0; i < IDS; i += BATCH)
        ok(embps_pull(table, ids + i, BATCH, &seen[i][0], &error));
    for (size_t i = 0; i < IDS; i++) {
        if (memcmp(seen[i], wanted[i], sizeof seen[i]) != 0)
            fail_msg("row %zu is %g, not %g", i, (double)seen[i][0], (double)wanted[i][0]);
    }
}

/* Parts that rest on others. */
static size_t count_partial(const char *checkpoints)
{
    size_t n = 0;
    for (size_t i = 0; i < CHECKPOINTS; i++) {
        psp_saved_t *saved = NULL;
        psc_error_t fault = PSC_ERROR_INIT;
        assert_int_equal(psp_saved_open(checkpoints, names[i], &saved, &fault), PSC_OK);
        for (uint32_t server = 0; server < psp_saved_manifest(saved)->n_servers; server++) {
            char *path = psp_saved_server_path(checkpoints, names[i], server, "rows-0");
            n += access(path, F_OK) == 0;
            psc_free(path);
        }
        psp_saved_destroy(saved);
    }
    return n;
}

static void servers_go_on_from_any_checkpoint_with_the_rows_that_were(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    char *folder = test_scratch_create(), checkpoints[256], data[256], data_name[16];
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    size_t from = 0;
    of_servers.keep = 0;
    of_servers.memory_bytes = UINT64_C(8) << 20;
    of_servers.checkpoints = test_path(checkpoints, sizeof checkpoints, folder, "saved");
    memset(now, 0, sizeof now);
    for (unsigned start = 0; start <= STARTS; start++) {
        (void)snprintf(data_name, sizeof data_name, "data-%u", start);
        of_servers.folder = test_path(data, sizeof data, folder, data_name);
        of_servers.n = 1 + (uint32_t)test_below(&random, 3);
        of_servers.resume = start == 0 ? "none" : names[from];
        door_servers_t *servers = door_servers_start(&of_servers);
        embps_client_t *client = connect_to(door_servers_address(servers, 0));
        embps_table_t *table = open_table(client);
        check_rows(table, (const float(*)[DIM])now);
        for (size_t i = 0; i < CHECKPOINTS && start < STARTS; i++) {
            const size_t n = i == 0 ? 80 : 1 + test_below(&random, 20);
            for (size_t k = 0; k < n; k++)
                push_some(table, &random);
            ok(embps_checkpoint(client, NULL, 0, names[i], &error));
            memcpy(then[i], now, sizeof now);
        }
        ok(embps_close(client, &error));
        door_servers_stop(servers);
        assert_true(count_partial(checkpoints) > 0);
        from = test_below(&random, CHECKPOINTS);
        memcpy(now, then[from], sizeof now);
    }
    psc_error_t fault = PSC_ERROR_INIT;
    for (size_t i = 0; i < CHECKPOINTS; i++)
        assert_int_equal(psp_saved_verify(checkpoints, names[i], true, NULL, NULL, &fault), PSC_OK);
    test_scratch_destroy(folder);
}

/* What a checkpoint rests on is gone: that one fails, by name, and the next is a whole one. */
static void a_part_that_is_gone_fails_one_checkpoint(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    char *folder = test_scratch_create(), checkpoints[256], path[400];
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    of_servers.checkpoints = test_path(checkpoints, sizeof checkpoints, folder, "saved");
    door_servers_t *servers = door_servers_start(&of_servers);
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    embps_table_t *table = open_table(client);
    memset(now, 0, sizeof now);
    push_some(table, &random);
    ok(embps_checkpoint(client, NULL, 0, name, &error));
    (void)test_path(path, sizeof path, checkpoints, name);
    assert_int_equal(psc_file_remove_all(path, NULL), PSC_OK);
    push_some(table, &random);
    assert_int_equal(embps_checkpoint(client, NULL, 0, NULL, &error), EMBPS_NOT_FOUND);
    if (strstr(error.message, name) == NULL || strstr(error.message, "rows") == NULL)
        fail_msg("%s", error.message);
    for (size_t i = 0; i < CHECKPOINTS; i++) {
        push_some(table, &random);
        ok(embps_checkpoint(client, NULL, 0, names[i], &error));
        (void)snprintf(path, sizeof path, "%.255s/%.100s/server-0/rows-0", checkpoints, names[i]);
        if (i < 2)
            assert_int_equal(access(path, F_OK), i == 0 ? -1 : 0);
    }
    check_rows(table, (const float(*)[DIM])now);
    ok(embps_close(client, &error));
    door_servers_stop(servers);
    test_scratch_destroy(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers_go_on_from_any_checkpoint_with_the_rows_that_were),
        cmocka_unit_test(a_part_that_is_gone_fails_one_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
