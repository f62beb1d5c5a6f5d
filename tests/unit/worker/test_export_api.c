/*
 * Exports and imports of clients: all servers, over gRPC and within a process; what came out goes
 * in elsewhere, under another number of servers, and goes on to the same bits.
 */
#include "embps.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "tests/support/client_calls.h"
#include "tests/support/client_counter.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 5, IDS = 2000, BATCH = 300, K = 2 * DIM };

/* One row of a table, whole. */
typedef struct whole_row {
    uint64_t id;
    float row[DIM];
    float state[K];
    uint32_t counts[2];
} whole_row_t;

typedef struct image {
    size_t n;
    whole_row_t rows[IDS];
} image_t;

static embps_table_t *open_table(embps_client_t *client, const char *init, const char *precision)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table;
    options.dim = DIM;
    options.init = init;
    options.optimizer = "adam";
    options.precision = precision;
    ok(embps_table_open(client, "t", &options, &table, &error));
    return table;
}

static void train(embps_table_t *table, test_random_t *random, int rounds)
{
    uint64_t ids[BATCH];
    float rows[BATCH][DIM];
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < BATCH; i++) {
            ids[i] = test_below(random, IDS);
            for (size_t c = 0; c < DIM; c++)
                rows[i][c] = test_float(random);
        }
        ok(embps_push(table, EMBPS_GRADIENT, ids, BATCH, rows[0], 0.1f, &error));
    }
}

static int by_id(const void *a, const void *b)
{
    const whole_row_t *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static image_t *take_image(embps_table_t *table)
{
    image_t *image = psc_alloc_zeroed(1, sizeof *image);
    embps_export_t *walk;
    embps_block_t block;
    assert_non_null(image);
    ok(embps_export_start(table, EMBPS_EXPORT_STATE, &walk, &error));
    for (;;) {
        ok(embps_export_next(walk, &block, &error));
        if (block.n == 0)
            break;
        assert_int_equal(block.dim, DIM);
        assert_int_equal(block.state_floats, K);
        assert_true(image->n + block.n <= IDS);
        for (size_t i = 0; i < block.n; i++) {
            whole_row_t *row = &image->rows[image->n++];
            row->id = block.ids[i];
            memcpy(row->row, block.rows + i * DIM, sizeof row->row);
            memcpy(row->state, block.state + i * K, sizeof row->state);
            memcpy(row->counts, block.counts + 2 * i, sizeof row->counts);
        }
    }
    ok(embps_export_next(walk, &block, &error)); /* still over */
    assert_int_equal(block.n, 0);
    embps_export_end(walk);
    qsort(image->rows, image->n, sizeof image->rows[0], by_id);
    return image;
}

static void copy(embps_table_t *from, embps_table_t *to)
{
    embps_export_t *walk;
    embps_block_t block;
    uint64_t created, total = 0, n = 0;
    ok(embps_export_start(from, EMBPS_EXPORT_STATE, &walk, &error));
    do {
        ok(embps_export_next(walk, &block, &error));
        ok(embps_import(to, &block, &created, &error));
        total += created;
        n += block.n;
    } while (block.n != 0);
    embps_export_end(walk);
    assert_true(n != 0 && total == n);
}

static void assert_same(image_t *a, image_t *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a, b, sizeof *a);
    psc_free(a);
    psc_free(b);
}

static void a_table_moves_between_runs_and_goes_on_to_the_same_bits(void **unused)
{
    (void)unused;
    char *path = test_scratch_create();
    test_random_t random = test_random_start();
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n = 3;
    door_servers_t *servers = door_servers_start(&options);
    embps_client_t *three, *one;
    embps_local_options_t local = EMBPS_LOCAL_OPTIONS_DEFAULT;
    local.data = path;
    three = connect_to(door_servers_address(servers, 0));
    ok(embps_connect_local(&local, &one, &error));
    embps_table_t *from = open_table(three, "normal", "bf16"),
                  *to = open_table(one, "normal", "bf16");
    train(from, &random, 12);
    copy(from, to);
    assert_same(take_image(from), take_image(to));
    test_random_t again = random;
    train(from, &random, 5);
    train(to, &again, 5);
    assert_same(take_image(from), take_image(to));
    ok(embps_close(three, &error));
    ok(embps_close(one, &error));
    door_servers_stop(servers);
    test_scratch_destroy(path);
}

/* n whole rows of any bits: numbers, infinities, NaNs. */
static void import_any_bits(embps_table_t *table, test_random_t *random)
{
    enum { N = 200 };
    uint64_t ids[N];
    uint32_t counts[N][2];
    float rows[N][DIM], state[N][K];
    embps_block_t block = EMBPS_BLOCK_DEFAULT;
    uint32_t bits;
    for (size_t i = 0; i < N; i++) {
        ids[i] = i;
        counts[i][0] = counts[i][1] = 1;
        for (size_t c = 0; c < DIM + K; c++) {
            bits = (uint32_t)test_next(random);
            if (test_below(random, 3) == 0)
                bits |= UINT32_C(0x7f800000); /* not finite */
            memcpy(c < DIM ? &rows[i][c] : &state[i][c - DIM], &bits, sizeof bits);
        }
    }
    block.n = N;
    block.dim = DIM;
    block.state_floats = K;
    block.ids = ids;
    block.rows = rows[0];
    block.state = state[0];
    block.counts = counts[0];
    ok(embps_import(table, &block, NULL, &error));
    image_t *image = take_image(table);
    assert_int_equal(image->n, N);
    for (size_t i = 0; i < N; i++)
        assert_memory_equal(image->rows[i].state, state[i], sizeof state[i]);
    psc_free(image);
}

/* Finite pushes can make a row infinite; such a table can be exported, so it can be imported. */
static void rows_that_are_not_finite_move_as_they_are(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    static const char *const precisions[] = {"f32", "bf16"};
    for (size_t p = 0; p < 2; p++) {
        char *path = test_scratch_create();
        door_servers_options_t options = DOOR_SERVERS_DEFAULT;
        options.n = 2;
        door_servers_t *servers = door_servers_start(&options);
        embps_client_t *two, *one;
        embps_local_options_t local = EMBPS_LOCAL_OPTIONS_DEFAULT;
        local.data = path;
        ok(embps_connect(door_servers_address(servers, 0), NULL, &two, &error));
        ok(embps_connect_local(&local, &one, &error));
        embps_table_t *from = open_table(two, "zeros", precisions[p]),
                      *to = open_table(one, "zeros", precisions[p]);
        const uint64_t id = IDS - 1;
        float huge[DIM], seen[DIM];
        for (size_t c = 0; c < DIM; c++)
            huge[c] = 3e38f;
        import_any_bits(from, &random);
        ok(embps_push(from, EMBPS_GRADIENT, &id, 1, huge, 0.1f, &error));
        ok(embps_push(from, EMBPS_ASSIGN, &id, 1, huge, 0, &error));
        ok(embps_push(from, EMBPS_DELTA, &id, 1, huge, 0, &error));
        ok(embps_pull(from, &id, 1, seen, &error));
        assert_true(seen[0] > 3.4e38f); /* infinite */
        copy(from, to);
        assert_same(take_image(from), take_image(to));
        ok(embps_close(two, &error));
        ok(embps_close(one, &error));
        door_servers_stop(servers);
        test_scratch_destroy(path);
    }
}

static void an_export_may_end_at_any_block(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n = 2;
    door_servers_t *servers = door_servers_start(&options);
    embps_client_t *client;
    client = connect_to(door_servers_address(servers, 0));
    embps_table_t *table = open_table(client, "normal", "bf16");
    train(table, &random, 12);
    for (int n_blocks = 0; n_blocks < 5; n_blocks++) {
        embps_export_t *walk;
        embps_block_t block;
        ok(embps_export_start(table, 0, &walk, &error));
        for (int i = 0; i < n_blocks; i++) {
            ok(embps_export_next(walk, &block, &error));
            assert_true(block.n == 0 || (block.state == NULL && block.counts == NULL));
        }
        embps_export_end(walk);
    }
    embps_export_end(NULL);
    ok(embps_close(client, &error));
    door_servers_stop(servers);
}

static void refused(embps_table_t *table, const embps_block_t *block, int code, const char *text)
{
    assert_int_equal(embps_import(table, block, NULL, &error), code);
    if (strstr(error.message, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.message, text);
}

static void what_cannot_be_imported_is_refused_before_it_is_sent(void **unused)
{
    (void)unused;
    char *path = test_scratch_create();
    embps_client_t *client;
    embps_local_options_t local = EMBPS_LOCAL_OPTIONS_DEFAULT;
    local.data = path;
    ok(embps_connect_local(&local, &client, &error));
    embps_table_t *table = open_table(client, "normal", "bf16");
    const uint64_t ids[2] = {4, 4};
    float rows[2][DIM] = {{1}, {2}}, state[2][K + 1] = {{0}}, seen[DIM];
    embps_block_t block = EMBPS_BLOCK_DEFAULT;
    block.n = 2;
    block.dim = DIM + 1;
    block.ids = ids;
    block.rows = rows[0];
    refused(table, &block, EMBPS_MISMATCH, "dim 6 into a table of dim 5");
    block.dim = DIM;
    block.rows = NULL;
    refused(table, &block, EMBPS_INVALID_ARGUMENT, "no rows");
    block.rows = rows[0];
    block.state_floats = K;
    refused(table, &block, EMBPS_INVALID_ARGUMENT, "there is no state");
    block.state = state[0];
    state[0][3] = __builtin_nanf("");
    refused(table, &block, EMBPS_INVALID_ARGUMENT, "state of id 4");
    state[0][3] = 0;
    block.state_floats = K + 1;
    refused(table, &block, EMBPS_MISMATCH, "optimizer adam has 10");
    block.state_floats = 0;
    rows[1][2] = __builtin_inff();
    refused(table, &block, EMBPS_INVALID_ARGUMENT, "row of id 4");
    rows[1][2] = 3;
    block.size = 1;
    refused(table, &block, EMBPS_INVALID_ARGUMENT, "EMBPS_BLOCK_DEFAULT");
    refused(table, NULL, EMBPS_INVALID_ARGUMENT, "no block");
    embps_export_t *walk;
    assert_int_equal(embps_export_start(table, 8, &walk, &error), EMBPS_INVALID_ARGUMENT);

    block.size = sizeof block;
    ok(embps_import(table, &block, NULL, &error)); /* the last one of an id counts */
    ok(embps_pull(table, ids, 1, seen, &error));
    assert_memory_equal(seen, rows[1], sizeof seen);
    ok(embps_close(client, &error));
    test_scratch_destroy(path);
}

/* What the client's cache holds, and what it has not sent yet. */
static void a_cache_sees_what_is_imported_and_shows_what_it_has(void **unused)
{
    (void)unused;
    char *path = test_scratch_create();
    embps_client_t *client;
    embps_local_options_t local = EMBPS_LOCAL_OPTIONS_DEFAULT;
    local.data = path;
    ok(embps_connect_local(&local, &client, &error));
    ok(embps_set_cache(client, 1 << 20, &error));
    embps_table_t *table = open_table(client, "zeros", "f32");
    const uint64_t id = 77;
    float ones[DIM], seen[DIM], before[DIM];
    for (size_t c = 0; c < DIM; c++)
        ones[c] = 1;
    for (int i = 0; i < 4; i++) { /* often enough to be kept */
        ok(embps_pull(table, &id, 1, before, &error));
        ok(embps_push(table, EMBPS_DELTA, &id, 1, ones, 0, &error));
    }
    ok(embps_pull(table, &id, 1, before, &error));
    image_t *image = take_image(table);
    assert_int_equal(image->n, 1);
    assert_memory_equal(image->rows[0].row, before, sizeof before);
    psc_free(image);
    embps_block_t block = EMBPS_BLOCK_DEFAULT;
    block.n = 1;
    block.dim = DIM;
    block.ids = &id;
    block.rows = ones;
    ok(embps_import(table, &block, NULL, &error));
    ok(embps_pull(table, &id, 1, seen, &error));
    assert_memory_equal(seen, ones, sizeof seen);
    ok(embps_close(client, &error));
    test_scratch_destroy(path);
}

static void what_others_push_is_told_to_who_watches(void **unused)
{
    (void)unused;
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n = 3;
    door_servers_t *servers = door_servers_start(&options);
    embps_client_t *pusher, *watcher;
    pusher = connect_to(door_servers_address(servers, 0));
    watcher = connect_to(door_servers_address(servers, 1));
    embps_table_t *table = open_table(pusher, "zeros", "f32");
    embps_table_t *watched = open_table(watcher, "zeros", "f32");
    embps_watch_t *watch;
    embps_block_t changes;
    bool lost;
    uint64_t ids[BATCH];
    float rows[BATCH][DIM], seen[DIM] = {0};
    bool told[BATCH] = {false};
    size_t n_told = 0;
    ok(embps_watch_start(watched, EMBPS_WATCH_ROWS, &watch, &error));
    ok(embps_watch_next(watch, 0, &changes, &lost, &error));
    assert_true(changes.n == 0 && !lost);
    for (size_t i = 0; i < BATCH; i++) {
        ids[i] = i;
        for (size_t c = 0; c < DIM; c++)
            rows[i][c] = (float)i;
    }
    ok(embps_push(table, EMBPS_ASSIGN, ids, BATCH, rows[0], 0, &error));
    while (n_told < BATCH) {
        ok(embps_watch_next(watch, 30000, &changes, &lost, &error));
        assert_true(changes.n != 0 && !lost && changes.dim == DIM);
        for (size_t i = 0; i < changes.n; i++) {
            const uint64_t id = changes.ids[i];
            assert_true(id < BATCH && !told[id]);
            told[id] = true;
            assert_memory_equal(changes.rows + i * DIM, rows[id], sizeof rows[id]);
        }
        n_told += changes.n;
        ok(embps_pull(watched, ids, 1, seen, &error)); /* the client is free for other calls */
    }
    ok(embps_watch_next(watch, 1, &changes, &lost, &error));
    assert_int_equal(changes.n, 0);
    embps_watch_end(watch);
    embps_watch_end(NULL);
    assert_int_equal(embps_watch_start(watched, 2, &watch, &error), EMBPS_INVALID_ARGUMENT);
    ok(embps_close(watcher, &error));
    ok(embps_close(pusher, &error));
    door_servers_stop(servers);
}

/* ---- a table of which most lies on disk ---- */

enum { WIDE = 250, WIDE_IDS = 50000, NEW_IDS = 2000, WIDE_BATCH = 200 };

/* What was done to a table, by row: how often one was pushed, which is what all its numbers are. */
typedef struct ledger {
    atomic_uint begun[WIDE_IDS + NEW_IDS], answered[WIDE_IDS + NEW_IDS];
    atomic_uint n_pushes;
    atomic_bool over;
    const char *address;
    uint64_t key;
    embps_error_t what;
    int code;
} ledger_t;

static uint64_t spread(uint64_t number)
{
    return number * UINT64_C(0x9e3779b97f4a7c15);
}

static int push_ones(embps_table_t *table, ledger_t *ledger, const uint64_t *numbers,
                     embps_error_t *what)
{
    static float ones[WIDE_BATCH][WIDE];
    uint64_t ids[WIDE_BATCH];
    for (size_t i = 0; i < WIDE_BATCH; i++) {
        ids[i] = spread(numbers[i]);
        for (size_t c = 0; c < WIDE; c++)
            ones[i][c] = 1;
        atomic_fetch_add(&ledger->begun[numbers[i]], 1);
    }
    const int code = embps_push(table, EMBPS_DELTA, ids, WIDE_BATCH, ones[0], 0, what);
    for (size_t i = 0; code == 0 && i < WIDE_BATCH; i++)
        atomic_fetch_add(&ledger->answered[numbers[i]], 1);
    atomic_fetch_add(&ledger->n_pushes, 1);
    return code;
}

static int open_wide(embps_client_t *client, embps_table_t **table_out, embps_error_t *what)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = WIDE;
    return embps_table_open(client, "wide", &options, table_out, what);
}

/* Pushes to rows that are there, and makes new ones, until it is over. */
static void *push_meanwhile(void *context)
{
    ledger_t *ledger = context;
    test_random_t random = {.key = ledger->key};
    embps_client_t *client = NULL;
    embps_table_t *table;
    uint64_t numbers[WIDE_BATCH], n_new = 0;
    ledger->code = embps_connect(ledger->address, NULL, &client, &ledger->what);
    if (ledger->code == 0)
        ledger->code = open_wide(client, &table, &ledger->what);
    while (ledger->code == 0 && !atomic_load(&ledger->over)) {
        const uint64_t first = test_below(&random, WIDE_IDS);
        for (size_t i = 0; i < WIDE_BATCH; i++)
            numbers[i] = (first + 7 * i) % WIDE_IDS;
        for (size_t i = 0; i < 10 && n_new < NEW_IDS; i++)
            numbers[i] = WIDE_IDS + n_new++;
        ledger->code = push_ones(table, ledger, numbers, &ledger->what);
    }
    embps_abandon(client, ledger->code);
    return NULL;
}

/* One row of a block, that is told for the first time. */
static void check_wide(ledger_t *ledger, const uint32_t *before, const float *row, size_t number)
{
    const uint32_t times = (uint32_t)row[0];
    for (size_t c = 0; c < WIDE; c++)
        assert_true(row[c] == (float)times); /* no half of a push */
    if (times < before[number] || times < 1 || times > atomic_load(&ledger->begun[number]))
        fail_msg("row %zu is told as pushed %u times; %u before the start, %u by now", number,
                 (unsigned)times, (unsigned)before[number],
                 (unsigned)atomic_load(&ledger->begun[number]));
}

/* Reads the whole table; between two blocks the other thread has pushed again. */
static void export_meanwhile(embps_table_t *table, ledger_t *ledger, const uint32_t *before)
{
    static bool told[WIDE_IDS + NEW_IDS];
    embps_export_t *walk;
    embps_block_t block;
    size_t n_old = 0;
    uint64_t unspread = 1; /* the inverse of the odd factor, by Newton's iteration */
    for (int i = 0; i < 6; i++)
        unspread *= 2 - spread(1) * unspread;
    ok(embps_export_start(table, 0, &walk, &error));
    for (;;) {
        const unsigned n_pushes = atomic_load(&ledger->n_pushes);
        ok(embps_export_next(walk, &block, &error));
        if (block.n == 0)
            break;
        for (size_t i = 0; i < block.n; i++) {
            const uint64_t number = block.ids[i] * unspread;
            assert_true(number < WIDE_IDS + NEW_IDS && !told[number]);
            told[number] = true;
            n_old += number < WIDE_IDS;
            check_wide(ledger, before, block.rows + i * WIDE, number);
        }
        while (atomic_load(&ledger->n_pushes) == n_pushes && ledger->code == 0)
            psc_clock_sleep_us(50);
    }
    embps_export_end(walk);
    assert_int_equal(n_old, WIDE_IDS);
}

static void rows_on_disk_are_exported_while_others_push(void **unused)
{
    (void)unused;
    static ledger_t ledger;
    static uint32_t before[WIDE_IDS + NEW_IDS];
    uint64_t numbers[WIDE_BATCH];
    pthread_t thread;
    embps_table_t *table;
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.memory_bytes = UINT64_C(8) << 20;
    door_servers_t *servers = door_servers_start(&options);
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    ok(open_wide(client, &table, &error));
    for (uint64_t n = 0; n < WIDE_IDS; n += WIDE_BATCH) {
        for (size_t i = 0; i < WIDE_BATCH; i++)
            numbers[i] = n + i;
        ok(push_ones(table, &ledger, numbers, &error));
    }
    assert_in_range(counter_of(client, "store.rows_hot"), 1, WIDE_IDS / 10);
    ledger.address = door_servers_address(servers, 0);
    ledger.key = test_random_start().key;
    assert_int_equal(pthread_create(&thread, NULL, push_meanwhile, &ledger), 0);
    for (size_t i = 0; i < WIDE_IDS + NEW_IDS; i++)
        before[i] = atomic_load(&ledger.answered[i]);
    export_meanwhile(table, &ledger, before);
    atomic_store(&ledger.over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (ledger.code != 0)
        fail_msg("pushes meanwhile: %s", ledger.what.message);
    ok(embps_close(client, &error));
    door_servers_stop(servers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_moves_between_runs_and_goes_on_to_the_same_bits),
        cmocka_unit_test(rows_that_are_not_finite_move_as_they_are),
        cmocka_unit_test(an_export_may_end_at_any_block),
        cmocka_unit_test(what_cannot_be_imported_is_refused_before_it_is_sent),
        cmocka_unit_test(what_others_push_is_told_to_who_watches),
        cmocka_unit_test(rows_on_disk_are_exported_while_others_push),
        cmocka_unit_test(a_cache_sees_what_is_imported_and_shows_what_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
