/*
 * A run begins with the weights of another run's checkpoint: rows are there and nothing else, as
 * one push and the clients' view show; once it has a checkpoint of its own, that is what counts.
 */
#include "common/slots.h"
#include "ps/checkpoint/restore.h"
#include "ps/store/cold.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"

#include "embps.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DIM = 5, IDS = 2000, CROWD = 24, LIFE = 4 };

static uint64_t ids[IDS], crowd[CROWD];
static float weights[IDS * DIM], found[IDS * DIM], gradients[IDS * DIM];

typedef struct home {
    char *folder;
    char first[256], second[256], data[256], weights[512];
    door_servers_t *servers;
    embps_client_t *client;
    embps_table_t *plain, *ages;
} home_t;

/* "plain" has a state, "ages" rows that expire, all of them in one slot, but for a few. */
static void open_tables(home_t *home)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = DIM;
    options.optimizer = "adagrad";
    ok(embps_table_open(home->client, "plain", &options, &home->plain, &error));
    options.expire_after = LIFE;
    options.expire_floor = 3;
    ok(embps_table_open(home->client, "ages", &options, &home->ages, &error));
}

static void begin(home_t *home, const char *checkpoints, const char *from, uint32_t n)
{
    char name[32];
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    (void)snprintf(name, sizeof name, "data-%zu", test_count_entries(home->folder));
    options.n = n;
    options.folder = test_path(home->data, sizeof home->data, home->folder, name);
    options.checkpoints = checkpoints;
    options.weights = from;
    options.cluster = from != NULL ? 0xbeef : 0xd00d;
    home->servers = door_servers_start(&options);
    home->client = connect_to(door_servers_address(home->servers, 0));
    open_tables(home);
}

static void end(home_t *home)
{
    ok(embps_close(home->client, &error));
    door_servers_stop(home->servers);
}

static void push(embps_table_t *table, const uint64_t *of, size_t n)
{
    ok(embps_push(table, EMBPS_GRADIENT, of, n, gradients, 0.5F, &error));
}

static void clocks(embps_client_t *client, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        ok(embps_clock(client, 0, NULL, &error));
}

/* Ids of one slot of the table with number 2. */
static void choose_crowd(void)
{
    const uint32_t slot = psc_slot_of_hash(psc_row_hash(2, 0));
    size_t n = 0;
    for (uint64_t id = 0; n < CROWD; id++)
        if (psc_slot_of_hash(psc_row_hash(2, id)) == slot)
            crowd[n++] = id;
}

static void make_first(home_t *home)
{
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    *home = (home_t){.folder = test_scratch_create()};
    (void)test_path(home->first, sizeof home->first, home->folder, "first");
    (void)test_path(home->second, sizeof home->second, home->folder, "second");
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i * 31;
    for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
        gradients[i] = (float)(i % 11) - 5.5F;
    choose_crowd();
    begin(home, home->first, NULL, 2);
    clocks(home->client, 2 * LIFE + 1);
    for (unsigned i = 0; i < 4; i++)
        push(home->plain, ids, IDS);
    push(home->ages, crowd, CROWD);
    ok(embps_checkpoint(home->client, "position", 8, name, &error));
    push(home->plain, ids, IDS / 2); /* over images of rows that lie in the part already */
    ok(embps_checkpoint(home->client, "position", 8, name, &error));
    ok(embps_pull(home->plain, ids, IDS, weights, &error));
    end(home);
    (void)test_path(home->weights, sizeof home->weights, home->first, name);
}

/* n pushes of the same gradients after a fresh state. */
static void check_step(unsigned n)
{
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        const float step = -0.5F * gradients[i] / sqrtf((float)n * gradients[i] * gradients[i]);
        if (fabsf(found[i] - weights[i] - step) > 1e-4F)
            fail_msg("value %zu moved by %g, not %g", i, (double)(found[i] - weights[i]),
                     (double)step);
    }
}

static void rows_and_nothing_else_is_there(void **unused)
{
    (void)unused;
    home_t home;
    char bytes[8], name[EMBPS_CHECKPOINT_NAME_BYTES];
    size_t n = 0;
    make_first(&home);
    begin(&home, home.second, home.weights, 1);
    ok(embps_pull(home.plain, ids, IDS, found, &error));
    assert_memory_equal(found, weights, sizeof found);
    assert_int_equal(
        embps_checkpoint_state(home.client, NULL, bytes, sizeof bytes, &n, name, &error),
        EMBPS_NOT_FOUND);
    push(home.plain, ids, IDS);
    ok(embps_pull(home.plain, ids, IDS, found, &error));
    check_step(1);
    memcpy(weights, found, sizeof weights);
    ok(embps_checkpoint(home.client, "second", 6, name, &error));
    end(&home);

    /* The same command line again: its own checkpoint, with all that is in it. */
    begin(&home, home.second, home.weights, 1);
    ok(embps_pull(home.plain, ids, IDS, found, &error));
    assert_memory_equal(found, weights, sizeof found);
    push(home.plain, ids, IDS);
    ok(embps_pull(home.plain, ids, IDS, found, &error));
    check_step(2);
    end(&home);
    test_scratch_destroy(home.folder);
}

/* Ages begin with the run: as if all rows had been pushed at its begin. */
static void rows_are_as_old_as_the_run(void **unused)
{
    (void)unused;
    home_t home;
    uint8_t states[2][CROWD];
    float values[CROWD * DIM];
    make_first(&home);
    for (unsigned i = 0; i < 2; i++) {
        begin(&home, home.second, i == 0 ? home.weights : NULL, 1);
        if (i == 1)
            push(home.ages, crowd, CROWD);
        clocks(home.client, LIFE - 1);
        push(home.ages, crowd, CROWD / 3);
        clocks(home.client, 2);
        ok(embps_pull_states(home.ages, crowd, CROWD, values, states[i], 0, &error));
        end(&home);
        test_scratch_destroy(strdup(home.second));
    }
    assert_memory_equal(states[0], states[1], CROWD);
    assert_int_equal(states[0][0], EMBPS_ROW_PRESENT);
    assert_int_equal(states[0][CROWD - 1], EMBPS_ROW_EXPIRED);
    test_scratch_destroy(home.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_and_nothing_else_is_there),
        cmocka_unit_test(rows_are_as_old_as_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
