/*
 * Rows of two checkpoints compared, against exports of the same moments compared row by row: random
 * pushes of every kind and states that alone are set, checkpoints that rest on others, rows in
 * memory and out of it, any two numbers of servers, and so little memory that images are read in
 * many passes. Tables that cannot be compared are named, with both values.
 */
#include "ps/checkpoint/rows_diff.h"

#include "common/hash.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    IDS = 5000,
    WIDE = 40,
    DIM = 3,
    MOMENTS = 4,
    LARGEST = 25,
    BATCH = 500,
    FEW = 20,
    WIDE_BATCHES = 60
};

typedef struct row {
    uint64_t id;
    float weights[DIM], state[DIM];
    uint32_t counts[2];
} row_t;

/* A table at one moment, as an export tells it, sorted by ids. */
typedef struct rows {
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    size_t n;
    row_t all[IDS];
} rows_t;

typedef struct home {
    char *folder;
    char checkpoints[256];
    door_servers_options_t options;
    door_servers_t *servers;
    embps_client_t *client;
    embps_table_t *table;
    size_t n_starts;
} home_t;

static rows_t moments[MOMENTS];
static psc_error_t fault;

/* ---- servers ---- */

static embps_table_t *open_table(embps_client_t *client, const char *name, uint32_t dim)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = dim;
    options.optimizer = "adagrad";
    options.init = "uniform";
    ok(embps_table_open(client, name, &options, &table, &error));
    return table;
}

static void serve(home_t *home, uint32_t n)
{
    char data[512], data_name[32];
    (void)snprintf(data_name, sizeof data_name, "data-%zu", home->n_starts++);
    home->options.n = n;
    home->options.folder = test_path(data, sizeof data, home->folder, data_name);
    home->servers = door_servers_start(&home->options);
    home->client = connect_to(door_servers_address(home->servers, 0));
    home->table = open_table(home->client, "rows", DIM);
}

static void stop(home_t *home, const char *last)
{
    ok(embps_close(home->client, &error));
    door_servers_stop_behind(home->servers, home->checkpoints, last);
}

static int begin(void **state)
{
    static home_t home;
    home = (home_t){.folder = test_scratch_create(), .options = DOOR_SERVERS_DEFAULT};
    home.options.keep = 0;
    home.options.memory_bytes = UINT64_C(8) << 20;
    home.options.checkpoints =
        test_path(home.checkpoints, sizeof home.checkpoints, home.folder, "saved");
    *state = &home;
    return 0;
}

static int end(void **state)
{
    const home_t *home = *state;
    test_scratch_destroy(home->folder);
    return 0;
}

/* ---- rows ---- */

/* From 0 to 2^64 - 1, both there. */
static uint64_t id_of(size_t i)
{
    return i == 0 ? 0 : i == 1 ? UINT64_MAX : psc_mix64(i);
}

static int compare_ids(const void *left, const void *right)
{
    const row_t *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

static void export_rows(embps_table_t *table, rows_t *rows)
{
    embps_export_t *export = NULL;
    embps_block_t block;
    rows->n = 0;
    ok(embps_export_start(table, EMBPS_EXPORT_STATE, &export, &error));
    do {
        ok(embps_export_next(export, &block, &error));
        for (size_t i = 0; i < block.n; i++) {
            assert_true(rows->n < IDS && block.state_floats == DIM);
            row_t *row = &rows->all[rows->n++];
            row->id = block.ids[i];
            memcpy(row->weights, block.rows + i * DIM, sizeof row->weights);
            memcpy(row->state, block.state + i * DIM, sizeof row->state);
            memcpy(row->counts, block.counts + i * 2, sizeof row->counts);
        }
    } while (block.n != 0);
    embps_export_end(export);
    qsort(rows->all, rows->n, sizeof rows->all[0], compare_ids);
}

/* Of some rows the state alone becomes another one. */
static void set_states(embps_table_t *table, const rows_t *rows, test_random_t *random)
{
    for (size_t k = 0; rows->n != 0 && k < FEW; k++) {
        row_t row = rows->all[test_below(random, rows->n)];
        embps_block_t block = EMBPS_BLOCK_DEFAULT;
        row.state[test_below(random, DIM)] += 1.5f;
        block.n = 1;
        block.dim = block.state_floats = DIM;
        block.ids = &row.id;
        block.rows = row.weights;
        block.state = row.state;
        block.counts = row.counts;
        ok(embps_import(table, &block, NULL, &error));
    }
}

static void push_some(embps_table_t *table, size_t among, test_random_t *random)
{
    static uint64_t ids[BATCH];
    static float rows[BATCH * DIM];
    for (size_t i = 0; i < BATCH; i++)
        ids[i] = id_of(test_below(random, among));
    for (size_t i = 0; i < (size_t)BATCH * DIM; i++)
        rows[i] = test_float(random);
    const embps_push_kind_t kinds[] = {EMBPS_GRADIENT, EMBPS_DELTA, EMBPS_ASSIGN};
    ok(embps_push(table, kinds[test_below(random, 3)], ids, BATCH, rows, 0.1f, &error));
}

/* Rows of another table, more than there is memory for: 1 is added to the first number of each. */
static void push_wide(home_t *home)
{
    static uint64_t ids[BATCH];
    static float rows[BATCH * WIDE];
    embps_table_t *table = open_table(home->client, "wide", WIDE);
    for (size_t i = 0; i < BATCH; i++)
        rows[i * WIDE] = 1;
    for (size_t batch = 0; batch < WIDE_BATCHES; batch++) {
        for (size_t i = 0; i < BATCH; i++)
            ids[i] = batch * BATCH + i;
        ok(embps_push(table, EMBPS_DELTA, ids, BATCH, rows, 0, &error));
    }
}

static void save(home_t *home, rows_t *rows)
{
    ok(embps_checkpoint(home->client, NULL, 0, rows->name, &error));
    export_rows(home->table, rows);
}

/* ---- what should be found ---- */

static double norm_of(const row_t *a, const row_t *b)
{
    double sum = 0;
    for (size_t c = 0; c < DIM; c++)
        sum += ((double)b->weights[c] - (double)a->weights[c]) *
               ((double)b->weights[c] - (double)a->weights[c]);
    return isfinite(sum) ? sqrt(sum) : (double)INFINITY;
}

static int compare_norms(const void *left, const void *right)
{
    const ps_rows_diff_row_t *a = left, *b = right;
    if (a->norm < b->norm || a->norm > b->norm)
        return a->norm > b->norm ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* Rows, one by one: into wanted and all [IDS]. */
static void compare_plainly(const rows_t *first, const rows_t *second, ps_rows_diff_table_t *wanted,
                            ps_rows_diff_row_t *all)
{
    *wanted = (ps_rows_diff_table_t){.n_rows = {first->n, second->n}};
    for (size_t i = 0; i < first->n; i++) {
        const row_t *a = &first->all[i];
        const row_t *b = bsearch(a, second->all, second->n, sizeof second->all[0], compare_ids);
        if (b == NULL)
            wanted->n_removed++;
        else if (memcmp(a->weights, b->weights, sizeof a->weights) != 0)
            all[wanted->n_changed++] = (ps_rows_diff_row_t){.id = a->id, .norm = norm_of(a, b)};
        else if (memcmp(a->state, b->state, sizeof a->state) != 0)
            wanted->n_state_changed++;
        else
            wanted->n_same++;
    }
    wanted->n_added = second->n - wanted->n_changed - wanted->n_state_changed - wanted->n_same;
    qsort(all, wanted->n_changed, sizeof all[0], compare_norms);
    wanted->n_largest = wanted->n_changed < LARGEST ? wanted->n_changed : LARGEST;
}

static const ps_rows_diff_table_t *find(const ps_rows_diff_t *diff, const char *name)
{
    for (size_t i = 0; i < diff->n_tables; i++) {
        if (strcmp(diff->tables[i].name, name) == 0)
            return &diff->tables[i];
    }
    fail_msg("no table %s", name);
    return NULL;
}

static void check(const home_t *home, const rows_t *first, const rows_t *second, uint64_t memory)
{
    static ps_rows_diff_row_t all[IDS];
    const ps_rows_diff_options_t options = {.n_largest = LARGEST, .memory_bytes = memory};
    const char *const names[] = {first->name, second->name};
    ps_rows_diff_table_t wanted;
    ps_rows_diff_t *diff = NULL;
    compare_plainly(first, second, &wanted, all);
    if (ps_rows_diff(home->checkpoints, names, &options, &diff, &fault) != PSC_OK)
        fail_msg("%s", fault.message);
    const ps_rows_diff_table_t *found = find(diff, "rows");
    assert_true(found->has[0] && found->has[1] && found->states_compared);
    assert_int_equal(found->n_rows[0], wanted.n_rows[0]);
    assert_int_equal(found->n_rows[1], wanted.n_rows[1]);
    assert_int_equal(found->n_added, wanted.n_added);
    assert_int_equal(found->n_removed, wanted.n_removed);
    assert_int_equal(found->n_changed, wanted.n_changed);
    assert_int_equal(found->n_state_changed, wanted.n_state_changed);
    assert_int_equal(found->n_same, wanted.n_same);
    assert_int_equal(found->n_largest, wanted.n_largest);
    for (size_t i = 0; i < found->n_largest; i++) {
        assert_int_equal(found->largest[i].id, all[i].id);
        assert_true(found->largest[i].norm >= all[i].norm && found->largest[i].norm <= all[i].norm);
    }
    ps_rows_diff_destroy(diff);
}

/* ---- tests ---- */

static void what_is_found_is_what_exports_say(void **state)
{
    home_t *home = *state;
    test_random_t random = test_random_start();
    size_t among = IDS / 4;
    bool wide = false;
    serve(home, 1 + (uint32_t)test_below(&random, 3));
    for (size_t k = 0; k < MOMENTS; k++) {
        for (size_t n = 1 + test_below(&random, 6); n > 0; n--)
            push_some(home->table, among, &random);
        if (k != 0)
            set_states(home->table, &moments[k - 1], &random);
        if (!wide && test_below(&random, 2) == 0)
            push_wide(home);
        among = among + IDS / 4 < IDS ? among + IDS / 4 : IDS;
        save(home, &moments[k]);
        if (test_below(&random, 3) == 0) {
            stop(home, moments[k].name);
            serve(home, 1 + (uint32_t)test_below(&random, 3));
        }
    }
    stop(home, moments[MOMENTS - 1].name);
    for (size_t i = 0; i < MOMENTS; i++) {
        const size_t k = test_below(&random, MOMENTS);
        check(home, &moments[i], &moments[k], test_below(&random, 2) == 0 ? 0 : 64 << 20);
    }
    check(home, &moments[0], &moments[MOMENTS - 1], 0);
}

/* Of these, what the cold tier has counts, and not the image of the checkpoint before. */
static void rows_that_left_memory_after_an_image_was_made(void **state)
{
    home_t *home = *state;
    const ps_rows_diff_options_t options = {.n_largest = LARGEST};
    ps_rows_diff_t *diff = NULL;
    char names[2][EMBPS_CHECKPOINT_NAME_BYTES], rests[512];
    serve(home, 1);
    for (size_t i = 0; i < 2; i++) {
        push_wide(home);
        ok(embps_checkpoint(home->client, NULL, 0, names[i], &error));
    }
    stop(home, names[1]);
    (void)snprintf(rests, sizeof rests, "%s/%s/server-0/rows-0", home->checkpoints, names[1]);
    assert_int_equal(access(rests, F_OK), 0);
    const char *const both[] = {names[0], names[1]};
    assert_int_equal(ps_rows_diff(home->checkpoints, both, &options, &diff, &fault), PSC_OK);
    const ps_rows_diff_table_t *found = find(diff, "wide");
    assert_int_equal(found->n_changed, WIDE_BATCHES * BATCH);
    assert_int_equal(found->n_rows[1], WIDE_BATCHES * BATCH);
    for (size_t i = 0; i < LARGEST; i++)
        assert_true(fabs(found->largest[i].norm - 1) < 1e-6);
    ps_rows_diff_destroy(diff);
}

/* A difference that is not finite is the largest, and of equal ones the lesser id is first. */
static void infinite_differences_come_first(void **state)
{
    home_t *home = *state;
    uint64_t ids[4] = {9, 7, 3, 5};
    float rows[4 * DIM] = {0};
    const ps_rows_diff_options_t options = {.n_largest = 3};
    ps_rows_diff_t *diff = NULL;
    serve(home, 2);
    ok(embps_push(home->table, EMBPS_ASSIGN, ids, 4, rows, 0, &error));
    save(home, &moments[0]);
    rows[0] = rows[DIM] = 3e38f;
    rows[2 * DIM] = rows[3 * DIM] = 2;
    ok(embps_push(home->table, EMBPS_DELTA, ids, 4, rows, 0, &error));
    rows[2 * DIM] = rows[3 * DIM] = 0;
    ok(embps_push(home->table, EMBPS_DELTA, ids, 4, rows, 0, &error));
    save(home, &moments[1]);
    stop(home, moments[1].name);
    check(home, &moments[0], &moments[1], 0);
    const char *const names[] = {moments[0].name, moments[1].name};
    assert_int_equal(ps_rows_diff(home->checkpoints, names, &options, &diff, &fault), PSC_OK);
    const ps_rows_diff_row_t *found = diff->tables[0].largest;
    assert_int_equal(diff->tables[0].n_largest, 3);
    assert_true(isinf(found[0].norm) && isinf(found[1].norm) && found[2].norm == 2);
    assert_true(found[0].id == 7 && found[1].id == 9 && found[2].id == 3);
    ps_rows_diff_destroy(diff);
}

static void tables_come_and_optimizers_change(void **state)
{
    home_t *home = *state;
    static const char *const resets[] = {"rows=sgd"};
    test_random_t random = test_random_start();
    const ps_rows_diff_options_t options = {.n_largest = 0};
    ps_rows_diff_t *diff = NULL;
    serve(home, 2);
    push_some(home->table, IDS, &random);
    save(home, &moments[0]);
    push_wide(home);
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    ok(embps_checkpoint(home->client, NULL, 0, name, &error));
    stop(home, name);
    home->options.resets = resets;
    home->options.n_resets = 1;
    door_servers_options_t changed = home->options;
    char data[512];
    changed.n = 3;
    changed.folder = test_path(data, sizeof data, home->folder, "changed");
    home->servers = door_servers_start(&changed);
    home->client = connect_to(door_servers_address(home->servers, 0));
    ok(embps_checkpoint(home->client, NULL, 0, moments[1].name, &error));
    stop(home, moments[1].name);
    const char *const names[] = {moments[0].name, moments[1].name};
    const char *const back[] = {moments[1].name, moments[0].name};
    assert_int_equal(ps_rows_diff(home->checkpoints, names, &options, &diff, &fault), PSC_OK);
    const ps_rows_diff_table_t *found = find(diff, "rows");
    assert_false(found->states_compared);
    assert_int_equal(found->n_same, moments[0].n);
    assert_int_equal(found->n_changed + found->n_state_changed, 0);
    found = find(diff, "wide");
    assert_true(!found->has[0] && found->has[1]);
    assert_int_equal(found->n_added, WIDE_BATCHES * BATCH);
    assert_int_equal(found->n_rows[0], 0);
    ps_rows_diff_destroy(diff);
    assert_int_equal(ps_rows_diff(home->checkpoints, back, &options, &diff, &fault), PSC_OK);
    assert_int_equal(find(diff, "wide")->n_removed, WIDE_BATCHES * BATCH);
    ps_rows_diff_destroy(diff);
}

/* Of two runs in one folder. */
static void what_cannot_be_compared_is_named(void **state)
{
    home_t *home = *state;
    static const uint64_t id = 1;
    static const float row[2 * DIM] = {1};
    const ps_rows_diff_options_t options = {.n_largest = 1};
    ps_rows_diff_t *diff = NULL;
    char names[3][EMBPS_CHECKPOINT_NAME_BYTES];
    home->options.resume = "none";
    for (size_t k = 0; k < 3; k++) {
        serve(home, 1);
        embps_table_t *second = open_table(home->client, "more", k == 1 ? 2 * DIM : DIM);
        ok(embps_push(second, EMBPS_ASSIGN, &id, 1, row, 0, &error));
        ok(embps_checkpoint(home->client, NULL, 0, names[k], &error));
        stop(home, names[k]);
        home->options.cluster++;
    }
    const char *const dims[] = {names[0], names[1]};
    assert_int_equal(ps_rows_diff(home->checkpoints, dims, &options, &diff, &fault), PSC_MISMATCH);
    assert_non_null(strstr(fault.message, "table more has dim 3 in checkpoint-"));
    assert_non_null(strstr(fault.message, " and 6 in checkpoint-"));
    const char *const none[] = {names[0], "auto"};
    assert_int_equal(ps_rows_diff(home->checkpoints, none, &options, &diff, &fault), PSC_NOT_FOUND);
    assert_non_null(strstr(fault.message, "no checkpoint auto"));
    const char *const fits[] = {names[0], names[2]};
    assert_int_equal(ps_rows_diff(home->checkpoints, fits, &options, &diff, &fault), PSC_OK);
    assert_int_equal(find(diff, "more")->n_same, 1);
    assert_int_equal(find(diff, "rows")->n_rows[0], 0);
    ps_rows_diff_destroy(diff);
}

int main(void)
{
#define AT_HOME(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        AT_HOME(what_is_found_is_what_exports_say),
        AT_HOME(rows_that_left_memory_after_an_image_was_made),
        AT_HOME(infinite_differences_come_first),
        AT_HOME(tables_come_and_optimizers_change),
        AT_HOME(what_cannot_be_compared_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
