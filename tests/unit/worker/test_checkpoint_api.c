/*
 * Checkpoints by a client: servers that are started again go on to the last bit as if nothing had
 * been, optimizer state included; and a checkpoint that fails is the only thing that does. Clients
 * that stay meanwhile: test_started_again.c.
 */
#include "embps.h"
#include "worker/checkpoint_making.h"

#include "common/clock.h"
#include "proto/saved_folder.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/held_port.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIM = 9, IDS = 2000, BATCH = 150, N_TABLES = 3, STATE = 700001 };

/* ---- the same bits ---- */

/* A table with optimizer state, one whose rows come late, and one whose rows expire. */
static void open_tables(embps_client_t *client, embps_table_t *tables[N_TABLES])
{
    static const char *const names[N_TABLES] = {"state", "late", "expires"};
    for (size_t t = 0; t < N_TABLES; t++) {
        embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
        options.dim = DIM;
        options.init = "uniform";
        options.optimizer = t == 0 ? "adam" : "adagrad";
        options.seed = 5 + t;
        if (t == 1) {
            options.admit_after = 3;
            options.admit_shared = true;
        }
        if (t == 2) {
            options.expire_after = 12;
            options.expire_floor = 1;
        }
        ok(embps_table_open(client, names[t], &options, &tables[t], &error));
    }
}

static void run_rounds(embps_client_t *client, embps_table_t *const tables[N_TABLES], uint64_t key,
                       unsigned from, unsigned to)
{
    static float rows[BATCH][DIM];
    uint64_t ids[BATCH];
    for (unsigned round = from; round < to; round++) {
        test_random_t random = {.key = psc_rng_stream(key, round, 0)};
        for (size_t i = 0; i < BATCH; i++) {
            ids[i] = test_below(&random, test_below(&random, IDS) + 1);
            for (size_t c = 0; c < DIM; c++)
                rows[i][c] = test_float(&random);
        }
        ok(embps_push(tables[round % N_TABLES], EMBPS_GRADIENT, ids, BATCH, &rows[0][0], 0.1f,
                      &error));
        ok(embps_clock(client, round, NULL, &error));
    }
}

/* Tables as they are pulled, and as they are exported. */
typedef struct image {
    float rows[N_TABLES][IDS][DIM];
    uint8_t states[N_TABLES][IDS];
    size_t n_exported[N_TABLES];
    float exported[N_TABLES][IDS][DIM];
    float optimizer[N_TABLES][IDS][2 * DIM];
    uint32_t counts[N_TABLES][IDS][2];
} image_t;

static void take_export(embps_table_t *table, image_t *image, size_t t)
{
    embps_export_t *walk = NULL;
    embps_block_t block;
    ok(embps_export_start(table, EMBPS_EXPORT_STATE, &walk, &error));
    for (;;) {
        ok(embps_export_next(walk, &block, &error));
        if (block.n == 0)
            break;
        assert_true(block.state_floats == DIM || block.state_floats == 2 * DIM);
        for (size_t i = 0; i < block.n; i++) {
            const uint64_t id = block.ids[i];
            assert_true(id < IDS);
            memcpy(image->exported[t][id], block.rows + i * DIM, DIM * sizeof(float));
            memcpy(image->optimizer[t][id], block.state + i * block.state_floats,
                   block.state_floats * sizeof(float));
            memcpy(image->counts[t][id], block.counts + 2 * i, 2 * sizeof(uint32_t));
        }
        image->n_exported[t] += block.n;
    }
    embps_export_end(walk);
}

static void look(embps_table_t *const tables[N_TABLES], image_t *image)
{
    static uint64_t ids[IDS];
    memset(image, 0, sizeof *image);
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    for (size_t t = 0; t < N_TABLES; t++) {
        ok(embps_pull_states(tables[t], ids, IDS, &image->rows[t][0][0], image->states[t], 0,
                             &error));
        take_export(tables[t], image, t);
        assert_int_not_equal(image->n_exported[t], 0);
    }
}

static void assert_same(const image_t *a, const image_t *b)
{
    assert_memory_equal(a->states, b->states, sizeof a->states);
    assert_memory_equal(a->rows, b->rows, sizeof a->rows);
    assert_memory_equal(a->n_exported, b->n_exported, sizeof a->n_exported);
    assert_memory_equal(a->exported, b->exported, sizeof a->exported);
    assert_memory_equal(a->optimizer, b->optimizer, sizeof a->optimizer);
    assert_memory_equal(a->counts, b->counts, sizeof a->counts);
}

static void servers_go_on_from_a_checkpoint_to_the_last_bit(void **state)
{
    (void)state;
    static image_t then, later, seen;
    static uint8_t kept[STATE], back[STATE];
    const uint64_t key = test_random_start().key;
    for (size_t i = 0; i < STATE; i++)
        kept[i] = (uint8_t)(i * 31 + i / 256);
    for (uint32_t n = 1; n <= 2; n++) {
        char *folder = test_scratch_create(), checkpoints[256], data[256];
        char name[EMBPS_CHECKPOINT_NAME_BYTES], read[EMBPS_CHECKPOINT_NAME_BYTES];
        embps_table_t *tables[N_TABLES];
        size_t n_back = 0;
        door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
        of_servers.n = n;
        of_servers.folder = test_path(data, sizeof data, folder, "data");
        of_servers.checkpoints = test_path(checkpoints, sizeof checkpoints, folder, "saved");
        door_servers_t *servers = door_servers_start(&of_servers);
        embps_client_t *client = connect_to(door_servers_address(servers, 0));
        open_tables(client, tables);
        run_rounds(client, tables, key, 0, 60);
        ok(embps_checkpoint(client, kept, STATE, name, &error));
        look(tables, &then);
        run_rounds(client, tables, key, 60, 120);
        look(tables, &later);
        assert_int_not_equal(memcmp(&then, &later, sizeof then), 0);
        ok(embps_close(client, &error));
        door_servers_stop(servers);

        of_servers.resume = name;
        servers = door_servers_start(&of_servers);
        client = connect_to(door_servers_address(servers, 0));
        open_tables(client, tables);
        look(tables, &seen);
        assert_same(&seen, &then);
        ok(embps_checkpoint_state(client, name, back, STATE, &n_back, read, &error));
        assert_int_equal(n_back, STATE);
        assert_memory_equal(back, kept, STATE);
        assert_string_equal(read, name);
        /* A guest that comes later is at clock 0: time stood still. */
        for (unsigned i = 0; i < 60; i++)
            ok(embps_clock(client, 0, NULL, &error));
        run_rounds(client, tables, key, 60, 120);
        look(tables, &seen);
        assert_same(&seen, &later);
        ok(embps_close(client, &error));
        door_servers_stop(servers);
        test_scratch_destroy(folder);
    }
}

/* A table of other options is refused with both values, whatever servers have it. */
static void check_refusals(embps_client_t *client)
{
    const struct {
        uint32_t dim;
        uint64_t seed;
        const char *precision, *words[2];
    } others[] = {{DIM + 1, 5, "f32", {"9", "10"}},
                  {DIM, 6, "f32", {"5", "6"}},
                  {DIM, 5, "bf16", {"f32", "bf16"}}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
        embps_table_t *table = NULL;
        options.dim = others[i].dim;
        options.init = "uniform";
        options.optimizer = "adam";
        options.seed = others[i].seed;
        options.precision = others[i].precision;
        assert_int_equal(embps_table_open(client, "state", &options, &table, &error),
                         EMBPS_MISMATCH);
        for (size_t k = 0; k < 2; k++)
            if (strstr(error.message, others[i].words[k]) == NULL)
                fail_msg("no %s: %s", others[i].words[k], error.message);
    }
}

/* Saved by 3 servers, gone on with by 1, 2, 5, 8 and 3 again, each from the checkpoint of those
 * before; and beside them servers that nothing happens to. */
static void servers_of_any_number_go_on_to_the_last_bit(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {3, 1, 2, 5, 8, 3};
    enum { N = sizeof numbers / sizeof numbers[0], ROUNDS = 30 };
    static image_t seen, wanted;
    const uint64_t key = test_random_start().key;
    char *folder = test_scratch_create(), checkpoints[256];
    embps_table_t *tables[N_TABLES], *reference_tables[N_TABLES];
    const door_servers_options_t of_reference = DOOR_SERVERS_DEFAULT;
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    of_servers.checkpoints = test_path(checkpoints, sizeof checkpoints, folder, "saved");
    door_servers_t *reference = door_servers_start(&of_reference);
    embps_client_t *undisturbed = connect_to(door_servers_address(reference, 0));
    open_tables(undisturbed, reference_tables);
    for (unsigned i = 0; i < N; i++) {
        of_servers.n = numbers[i];
        /* One server has the sightings of all slots. */
        of_servers.memory_bytes = UINT64_C(16) << (numbers[i] == 1 ? 21 : 20);
        door_servers_t *servers = door_servers_start(&of_servers); /* on data of their own */
        embps_client_t *client = connect_to(door_servers_address(servers, 0));
        open_tables(client, tables);
        if (i != 0) {
            look(tables, &seen);
            assert_same(&seen, &wanted);
            check_refusals(client);
        }
        for (unsigned k = 0; k < i * ROUNDS; k++) /* to the time of those before: it stands still */
            ok(embps_clock(client, 0, NULL, &error));
        run_rounds(client, tables, key, i * ROUNDS, (i + 1) * ROUNDS);
        run_rounds(undisturbed, reference_tables, key, i * ROUNDS, (i + 1) * ROUNDS);
        look(tables, &seen);
        look(reference_tables, &wanted);
        assert_same(&seen, &wanted);
        ok(embps_checkpoint(client, NULL, 0, NULL, &error));
        ok(embps_close(client, &error));
        door_servers_stop(servers);
    }
    ok(embps_close(undisturbed, &error));
    door_servers_stop(reference);
    test_scratch_destroy(folder);
}

/* ---- what fails ---- */

static void a_checkpoint_that_one_server_cannot_write_fails_and_the_others_stay(void **state)
{
    (void)state;
    char *folder = test_scratch_create(), checkpoints[256], data[256], partial[300], blocked[400];
    char first[EMBPS_CHECKPOINT_NAME_BYTES], name[EMBPS_CHECKPOINT_NAME_BYTES];
    embps_table_t *tables[N_TABLES];
    const uint64_t key = test_random_start().key;
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    of_servers.n = 2;
    of_servers.folder = test_path(data, sizeof data, folder, "data");
    of_servers.checkpoints = test_path(checkpoints, sizeof checkpoints, folder, "saved");
    door_servers_t *servers = door_servers_start(&of_servers);
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    open_tables(client, tables);
    run_rounds(client, tables, key, 0, 10);
    ok(embps_checkpoint(client, "x", 1, first, &error));
    assert_string_equal(first, "checkpoint-0000000001");
    /* A file where the second server's part of the next one should be. */
    (void)test_path(partial, sizeof partial, checkpoints, "checkpoint-0000000002.partial");
    assert_int_equal(mkdir(partial, 0777), 0);
    (void)test_path(blocked, sizeof blocked, partial, "server-1");
    FILE *file = fopen(blocked, "w");
    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(embps_checkpoint(client, "y", 1, name, &error), EMBPS_IO);
    assert_non_null(strstr(error.message, "server-1"));
    run_rounds(client, tables, key, 10, 20);
    size_t n = 0;
    char byte = 0;
    ok(embps_checkpoint_state(client, NULL, &byte, 1, &n, name, &error));
    assert_string_equal(name, first);
    assert_int_equal(byte, 'x');
    ok(embps_checkpoint(client, "zz", 2, name, &error));
    assert_string_equal(name, "checkpoint-0000000002");
    assert_int_equal(embps_checkpoint_state(client, "no-such", &byte, 1, &n, NULL, &error),
                     EMBPS_NOT_FOUND);
    assert_int_equal(embps_checkpoint_state(client, "../etc", &byte, 1, &n, NULL, &error),
                     EMBPS_INVALID_ARGUMENT);
    ok(embps_close(client, &error));
    door_servers_stop(servers);
    test_scratch_destroy(folder);
}

/* The state that is read without a name: that of this checkpoint, one byte or, '\0', none. */
static void assert_stands_at(embps_client_t *client, const char *name, char byte)
{
    char got = '\0', found[EMBPS_CHECKPOINT_NAME_BYTES];
    size_t n = 7;
    ok(embps_checkpoint_state(client, NULL, &got, 1, &n, found, &error));
    assert_string_equal(found, name);
    assert_int_equal(n, byte != '\0');
    assert_int_equal(got, byte);
}

static void assert_stands_nowhere(embps_client_t *client)
{
    size_t n = 0;
    assert_int_equal(embps_checkpoint_state(client, NULL, NULL, 0, &n, NULL, &error),
                     EMBPS_NOT_FOUND);
}

/* A run of servers with its own data that goes on from a checkpoint. One server alone makes another
 * checkpoint, without a state, when it ends. */
typedef struct stay {
    char *folder;
    door_servers_t *servers;
    embps_client_t *client;
} stay_t;

static stay_t begin_stay(const char *checkpoints, const char *resume, uint32_t n_servers)
{
    stay_t stay = {.folder = test_scratch_create()};
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    of_servers.n = n_servers;
    of_servers.folder = stay.folder;
    of_servers.checkpoints = checkpoints;
    of_servers.resume = resume;
    stay.servers = door_servers_start(&of_servers);
    stay.client = connect_to(door_servers_address(stay.servers, 0));
    return stay;
}

static void end_stay(const stay_t *stay)
{
    ok(embps_close(stay->client, &error));
    door_servers_stop(stay->servers);
    test_scratch_destroy(stay->folder);
}

static void without_a_name_the_state_is_that_of_where_the_run_stands(void **state)
{
    (void)state;
    for (uint32_t n_servers = 1; n_servers <= 2; n_servers++) {
        char *folder = test_scratch_create(), checkpoints[256];
        char one[EMBPS_CHECKPOINT_NAME_BYTES], name[EMBPS_CHECKPOINT_NAME_BYTES];
        (void)test_path(checkpoints, sizeof checkpoints, folder, "saved");
        stay_t stay = begin_stay(checkpoints, "auto", n_servers);
        assert_stands_nowhere(stay.client);
        ok(embps_checkpoint(stay.client, "1", 1, one, &error));
        assert_stands_at(stay.client, one, '1');
        ok(embps_checkpoint(stay.client, NULL, 0, name, &error));
        assert_stands_at(stay.client, name, '\0');
        end_stay(&stay);

        stay = begin_stay(checkpoints, one, n_servers);
        assert_stands_at(stay.client, one, '1');
        ok(embps_checkpoint(stay.client, "3", 1, name, &error));
        assert_stands_at(stay.client, name, '3');
        end_stay(&stay);

        stay = begin_stay(checkpoints, "none", n_servers);
        assert_stands_nowhere(stay.client);
        ok(embps_checkpoint(stay.client, "4", 1, name, &error));
        assert_stands_at(stay.client, name, '4');
        end_stay(&stay);

        stay = begin_stay(checkpoints, name, 3 - n_servers); /* as many as made it, or others */
        assert_stands_at(stay.client, name, '4');
        end_stay(&stay);
        test_scratch_destroy(folder);
    }
}

/* The folder has checkpoints of these numbers alone: "1 3 4". */
static void assert_stay(const char *checkpoints, const char *numbers)
{
    psp_saved_names_t names;
    char found[256] = "";
    size_t used = 0;
    assert_int_equal(psp_saved_list(checkpoints, &names, NULL), PSC_OK);
    for (size_t i = 0; i < names.n; i++)
        used += (size_t)snprintf(found + used, sizeof found - used, "%s%lu", i == 0 ? "" : " ",
                                 strtoul(names.all[i] + strlen("checkpoint-"), NULL, 10));
    psp_saved_names_clear(&names);
    assert_string_equal(found, numbers);
}

static void make_without_state(embps_client_t *client, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ok(embps_checkpoint(client, NULL, 0, NULL, &error));
}

/* The servers keep three. */
static void checkpoints_without_a_state_push_out_none_that_has_one(void **state)
{
    (void)state;
    char *folder = test_scratch_create(), checkpoints[256];
    (void)test_path(checkpoints, sizeof checkpoints, folder, "saved");
    stay_t stay = begin_stay(checkpoints, "none", 1);
    ok(embps_checkpoint(stay.client, "1", 1, NULL, &error));
    make_without_state(stay.client, 5);
    assert_stay(checkpoints, "1 4 5 6");
    ok(embps_checkpoint(stay.client, "7", 1, NULL, &error));
    assert_stay(checkpoints, "5 6 7");
    ok(embps_checkpoint(stay.client, "8", 1, NULL, &error));
    assert_stay(checkpoints, "6 7 8");
    end_stay(&stay);
    assert_stay(checkpoints, "7 8 9");

    stay = begin_stay(checkpoints, "checkpoint-0000000007", 1);
    make_without_state(stay.client, 3);
    assert_stay(checkpoints, "7 8 10 11 12");
    ok(embps_checkpoint(stay.client, "13", 2, NULL, &error));
    assert_stay(checkpoints, "11 12 13");
    end_stay(&stay);
    assert_stay(checkpoints, "12 13 14");

    stay = begin_stay(checkpoints, "none", 1);
    make_without_state(stay.client, 3);
    assert_stay(checkpoints, "13 15 16 17");
    end_stay(&stay);
    test_scratch_destroy(folder);
}

/* Pushes of the clients' own go on meanwhile, and are not in it. */
static void a_client_goes_on_while_its_checkpoint_is_made(void **state)
{
    (void)state;
    static image_t then, seen;
    const uint64_t key = test_random_start().key;
    for (uint32_t n_servers = 1; n_servers <= 3; n_servers += 2) {
        char *folder = test_scratch_create(), checkpoints[256], byte = '\0';
        char found[EMBPS_CHECKPOINT_NAME_BYTES];
        embps_table_t *tables[N_TABLES];
        psw_making_t making;
        psc_error_t fault = PSC_ERROR_INIT;
        bool over = false;
        size_t n = 0;
        unsigned round = 60; /* until all tables have rows for sure */
        (void)test_path(checkpoints, sizeof checkpoints, folder, "saved");
        stay_t stay = begin_stay(checkpoints, "auto", n_servers);
        open_tables(stay.client, tables);
        run_rounds(stay.client, tables, key, 0, round);
        look(tables, &then);
        if (psw_making_begin(stay.client, true, "s", 1, &making, &fault) != PSC_OK)
            fail_msg("%s", fault.message);
        while (!over) {
            run_rounds(stay.client, tables, key, round, round + 1);
            round++;
            if (psw_making_step(&making, &over, &fault) != PSC_OK)
                fail_msg("%s", fault.message);
        }
        assert_null(making.client);
        assert_stands_at(stay.client, "checkpoint-0000000001", 's');
        if (psw_making_begin(stay.client, false, NULL, 0, &making, &fault) != PSC_OK ||
            psw_making_wait(&making, &fault) != PSC_OK ||
            psw_making_wait(&making, &fault) != PSC_OK)
            fail_msg("%s", fault.message);
        assert_stands_at(stay.client, "checkpoint-0000000002", '\0');
        end_stay(&stay);

        stay = begin_stay(checkpoints, "checkpoint-0000000001", n_servers);
        open_tables(stay.client, tables);
        look(tables, &seen);
        assert_same(&seen, &then);
        ok(embps_checkpoint_state(stay.client, NULL, &byte, 1, &n, found, &error));
        assert_int_equal(byte, 's');
        end_stay(&stay);
        test_scratch_destroy(folder);
    }
}

static void one_that_fails_while_the_client_goes_on_is_given_up(void **state)
{
    (void)state;
    char *folder = test_scratch_create(), checkpoints[256], partial[300], blocked[400];
    psw_making_t making;
    psc_error_t fault = PSC_ERROR_INIT;
    (void)test_path(checkpoints, sizeof checkpoints, folder, "saved");
    stay_t stay = begin_stay(checkpoints, "auto", 2);
    /* A file where the second server's part should be. */
    (void)test_path(partial, sizeof partial, checkpoints, "checkpoint-0000000001.partial");
    assert_int_equal(mkdir(partial, 0777), 0);
    (void)test_path(blocked, sizeof blocked, partial, "server-1");
    FILE *file = fopen(blocked, "w");
    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(psw_making_begin(stay.client, false, "x", 1, &making, &fault), PSC_IO);
    assert_non_null(strstr(fault.message, "server-1"));
    assert_null(making.client);
    if (psw_making_begin(stay.client, false, "y", 1, &making, &fault) != PSC_OK ||
        psw_making_wait(&making, &fault) != PSC_OK)
        fail_msg("%s", fault.message);
    assert_stands_at(stay.client, "checkpoint-0000000001", 'y');
    end_stay(&stay);
    test_scratch_destroy(folder);
}

static void servers_without_a_folder_for_checkpoints_say_so(void **state)
{
    (void)state;
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    door_servers_t *servers = door_servers_start(&of_servers);
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    size_t n = 0;
    assert_int_equal(embps_checkpoint(client, NULL, 0, NULL, &error), EMBPS_UNSUPPORTED);
    assert_non_null(strstr(error.message, "--checkpoints"));
    assert_int_equal(embps_checkpoint_state(client, NULL, NULL, 0, &n, NULL, &error),
                     EMBPS_UNSUPPORTED);
    assert_int_equal(embps_checkpoint(client, NULL, 1, NULL, &error), EMBPS_INVALID_ARGUMENT);
    assert_int_equal(embps_checkpoint_state(NULL, NULL, NULL, 0, &n, NULL, &error),
                     EMBPS_INVALID_ARGUMENT);
    ok(embps_close(client, &error));
    door_servers_stop(servers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers_go_on_from_a_checkpoint_to_the_last_bit),
        cmocka_unit_test(servers_of_any_number_go_on_to_the_last_bit),
        cmocka_unit_test(a_checkpoint_that_one_server_cannot_write_fails_and_the_others_stay),
        cmocka_unit_test(without_a_name_the_state_is_that_of_where_the_run_stands),
        cmocka_unit_test(checkpoints_without_a_state_push_out_none_that_has_one),
        cmocka_unit_test(a_client_goes_on_while_its_checkpoint_is_made),
        cmocka_unit_test(one_that_fails_while_the_client_goes_on_is_given_up),
        cmocka_unit_test(servers_without_a_folder_for_checkpoints_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
