/* Clients that read rows straight from the server's memory: the same values as by messages, never
 * half a row, and messages wherever it cannot be. */
#include "common/rng.h"
#include "common/shared_rows.h"
#include "embps.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define D 100
#define CLIENTS 3
#ifdef PSC_SHARED_TSAN
#define ROUNDS 300
#define PUSHES 60
#else
#define ROUNDS 1500
#define PUSHES 400
#endif

typedef struct setting {
    char *scratch;
    char data[512];
    embps_client_t *client[CLIENTS];
    embps_table_t *table[CLIENTS];
} setting_t;

static embps_error_t error;

static void check(int code)
{
    if (code != 0)
        fail_msg("code %d: %s", code, error.message);
}

static void start(setting_t *s, uint32_t n, bool direct, const char *precision)
{
    embps_local_options_t options = EMBPS_LOCAL_OPTIONS_DEFAULT;
    embps_table_options_t table = EMBPS_TABLE_OPTIONS_DEFAULT;
    *s = (setting_t){.scratch = test_scratch_create()};
    options.data = test_path(s->data, sizeof s->data, s->scratch, "data");
    options.memory_bytes = (uint64_t)8 << 20;
    options.n_workers = n;
    check(embps_connect_local_many(&options, s->client, &error));
    if (direct) {
        uint32_t n_servers = 0;
        check(embps_set_direct(s->client[0], true, &n_servers, &error));
        assert_int_equal(n_servers, 1);
    }
    table.dim = D;
    table.init = "uniform";
    table.precision = precision;
    for (uint32_t i = 0; i < n; i++)
        check(embps_table_open(s->client[i], "t", &table, &s->table[i], &error));
}

static void stop(setting_t *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        check(embps_close(s->client[i], &error));
    test_scratch_destroy(s->scratch);
}

typedef struct wanted_counter {
    const char *name;
    uint64_t value;
    bool found;
} wanted_counter_t;

static void take_counter(void *context, const char *name, uint64_t value)
{
    wanted_counter_t *wanted = context;
    if (strcmp(name, wanted->name) == 0) {
        wanted->value = value;
        wanted->found = true;
    }
}

static uint64_t counter(setting_t *s, const char *name)
{
    wanted_counter_t wanted = {.name = name};
    check(embps_stats(s->client[0], take_counter, &wanted, &error));
    assert_true(wanted.found);
    return wanted.value;
}

/* ---- one client that issues all, another one that asks by messages ---- */

#define IDS 40000
#define BATCH 300
#define OPEN 4

static uint64_t id_of(size_t i)
{
    return i == 1 ? UINT64_MAX : psc_mix64(i); /* 0 is 0 */
}

/* Of some hot ids, of all, or a run: with duplicates. */
static size_t choose(test_random_t *random, uint64_t *ids)
{
    size_t n = test_below(random, BATCH + 1), kind = test_below(random, 3);
    size_t first = test_below(random, IDS - BATCH);
    for (size_t i = 0; i < n; i++)
        ids[i] = id_of(kind == 0   ? test_below(random, 50)
                       : kind == 1 ? test_below(random, IDS)
                                   : first + i);
    return n;
}

static void every_value_is_the_one_that_messages_bring(void **state)
{
    (void)state;
    static uint64_t ids[BATCH];
    static float rows[BATCH * D], direct[BATCH * D], asked[BATCH * D];
    static uint8_t states[2][BATCH];
    setting_t s;
    test_random_t random = test_random_start();
    embps_request_t *open[OPEN] = {NULL};
    start(&s, 2, true, NULL);
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t n = choose(&random, ids), slot = test_below(&random, OPEN);
        if (test_below(&random, 2) == 0) {
            for (size_t i = 0; i < n * D; i++)
                rows[i] = test_float(&random);
            embps_push_kind_t kind = (embps_push_kind_t)test_below(&random, 3);
            check(embps_wait(open[slot], &error));
            open[slot] = NULL;
            check(embps_push_start(s.table[0], kind, ids, n, rows, 0.1F, &open[slot], &error));
        }
        if (test_below(&random, 3) == 0)
            n = choose(&random, ids);
        check(embps_pull_states(s.table[0], ids, n, direct, states[0], 0, &error));
        if (test_below(&random, 2) != 0)
            continue;
        for (size_t i = 0; i < OPEN; i++) {
            check(embps_wait(open[i], &error));
            open[i] = NULL;
        }
        check(embps_pull_states(s.table[0], ids, n, direct, states[0], 0, &error));
        check(embps_pull_states(s.table[1], ids, n, asked, states[1], 0, &error));
        assert_memory_equal(direct, asked, n * D * sizeof(float));
        assert_memory_equal(states[0], states[1], n);
    }
    for (size_t i = 0; i < OPEN; i++)
        check(embps_wait(open[i], &error));
    assert_true(counter(&s, "client.rows_direct") > 1000);
    assert_true(counter(&s, "store.evicted") > 0);
    stop(&s, 2);
}

static void a_pull_sees_all_pushes_before_it_and_none_after(void **state)
{
    (void)state;
    enum { N = 40 };
    setting_t s;
    test_random_t random = test_random_start();
    uint64_t ids[N];
    float ones[N * D], rows[2][N * D];
    embps_request_t *pushes[2 * PUSHES], *pulls[2];
    start(&s, 1, true, NULL);
    for (size_t i = 0; i < N; i++)
        ids[i] = id_of(i);
    for (size_t i = 0; i < N * D; i++)
        ones[i] = 0.0F;
    check(embps_push(s.table[0], EMBPS_ASSIGN, ids, N, ones, 0, &error));
    for (size_t i = 0; i < N * D; i++)
        ones[i] = 1.0F;
    size_t n_open = 0;
    for (size_t k = 0; k < PUSHES; k++) {
        check(embps_pull_start(s.table[0], ids, N, rows[0], &pulls[0], &error));
        check(
            embps_push_start(s.table[0], EMBPS_DELTA, ids, N, ones, 0, &pushes[n_open++], &error));
        check(embps_pull_start(s.table[0], ids, N, rows[1], &pulls[1], &error));
        check(embps_wait(pulls[0], &error));
        check(embps_wait(pulls[1], &error));
        for (size_t i = 0; i < N * D; i++) {
            assert_true(rows[0][i] == (float)k);
            assert_true(rows[1][i] == (float)(k + 1));
        }
        while (n_open != 0 && test_below(&random, 3) == 0)
            check(embps_wait(pushes[--n_open], &error));
    }
    while (n_open != 0)
        check(embps_wait(pushes[--n_open], &error));
    stop(&s, 1);
}

/* ---- threads ---- */

#define SHARED 64

typedef struct pusher {
    pthread_t thread;
    embps_client_t *client;
    embps_table_t *table;
    size_t n;
    int code;
} pusher_t;

/* Adds 1 to all columns of all shared rows, n times, in parts. */
static void *push_ones(void *context)
{
    pusher_t *pusher = context;
    embps_error_t e;
    uint64_t ids[SHARED];
    static const float ones[SHARED * D] = {0};
    float rows[SHARED * D];
    for (size_t i = 0; i < SHARED; i++)
        ids[i] = id_of(i);
    for (size_t i = 0; i < SHARED * D; i++)
        rows[i] = ones[i] + 1.0F;
    for (size_t k = 0; k < pusher->n && pusher->code == 0; k++)
        pusher->code = embps_push(pusher->table, EMBPS_DELTA, ids, SHARED, rows, 0, &e);
    return NULL;
}

static void no_row_is_ever_seen_half_changed(void **state)
{
    (void)state;
    setting_t s;
    uint64_t ids[SHARED];
    float rows[SHARED * D] = {0}, before[SHARED] = {0};
    pusher_t pushers[CLIENTS - 1];
    start(&s, CLIENTS, true, NULL);
    for (size_t i = 0; i < SHARED; i++)
        ids[i] = id_of(i);
    check(embps_push(s.table[0], EMBPS_ASSIGN, ids, SHARED, rows, 0, &error));
    for (size_t i = 0; i < CLIENTS - 1; i++) {
        pushers[i] = (pusher_t){.client = s.client[i + 1], .table = s.table[i + 1], .n = PUSHES};
        assert_int_equal(pthread_create(&pushers[i].thread, NULL, push_ones, &pushers[i]), 0);
    }
    const float all = (float)(PUSHES * (CLIENTS - 1));
    while (before[0] < all) {
        check(embps_pull(s.table[0], ids, SHARED, rows, &error));
        for (size_t i = 0; i < SHARED; i++) {
            for (size_t k = 1; k < D; k++)
                assert_true(rows[i * D + k] == rows[i * D]);
            assert_true(rows[i * D] >= before[i] && rows[i * D] <= all);
            before[i] = rows[i * D];
        }
    }
    for (size_t i = 0; i < CLIENTS - 1; i++) {
        assert_int_equal(pthread_join(pushers[i].thread, NULL), 0);
        assert_int_equal(pushers[i].code, 0);
    }
    assert_true(counter(&s, "client.rows_direct") > 0);
    stop(&s, CLIENTS);
}

/* ---- when it cannot be ---- */

static void at_staleness_0_a_pull_waits_for_the_others_as_by_messages(void **state)
{
    (void)state;
    setting_t s;
    const uint64_t ids[2] = {3, 4};
    float rows[2 * D] = {0}, seen[2 * D];
    embps_request_t *pull;
    bool done;
    start(&s, 2, true, NULL);
    check(embps_push(s.table[0], EMBPS_ASSIGN, ids, 2, rows, 0, &error));
    embps_set_staleness(s.client[0], 0);
    check(embps_pull(s.table[0], ids, 2, seen, &error));
    check(embps_pull(s.table[0], ids, 2, seen, &error));
    uint64_t before = counter(&s, "client.rows_direct");
    assert_int_equal(before, 2);
    check(embps_clock(s.client[0], 0, NULL, &error));
    check(embps_pull_start(s.table[0], ids, 2, seen, &pull, &error));
    for (int i = 0; i < 20; i++) {
        check(embps_test(pull, &done, &error));
        assert_false(done);
    }
    for (size_t i = 0; i < 2 * D; i++)
        rows[i] = 7.0F;
    check(embps_push(s.table[1], EMBPS_ASSIGN, ids, 2, rows, 0, &error));
    check(embps_clock(s.client[1], 0, NULL, &error));
    check(embps_wait(pull, &error));
    assert_memory_equal(seen, rows, sizeof rows);
    assert_int_equal(counter(&s, "client.rows_direct"), before);
    check(embps_pull(s.table[0], ids, 2, seen, &error));
    assert_memory_equal(seen, rows, sizeof rows);
    assert_int_equal(counter(&s, "client.rows_direct"), before + 2);
    stop(&s, 2);
}

static void without_places_all_comes_by_messages(void **state)
{
    (void)state;
    setting_t s;
    const uint64_t ids[2] = {3, 4};
    float rows[2 * D] = {0}, seen[2 * D];
    uint32_t n_servers = 9;
    start(&s, 1, true, "bf16");
    check(embps_push(s.table[0], EMBPS_ASSIGN, ids, 2, rows, 0, &error));
    for (int i = 0; i < 3; i++)
        check(embps_pull(s.table[0], ids, 2, seen, &error));
    assert_int_equal(counter(&s, "client.rows_direct"), 0);
    stop(&s, 1);
    start(&s, 1, false, NULL);
    check(embps_push(s.table[0], EMBPS_ASSIGN, ids, 2, rows, 0, &error));
    check(embps_set_direct(s.client[0], true, &n_servers, &error)); /* there are rows */
    assert_int_equal(n_servers, 0);
    check(embps_pull(s.table[0], ids, 2, seen, &error));
    assert_memory_equal(seen, rows, sizeof rows);
    stop(&s, 1);
}

static void it_can_be_switched_off_and_on_and_scans_stay_messages(void **state)
{
    (void)state;
    setting_t s;
    const uint64_t ids[3] = {3, 4, 3};
    float rows[3 * D], seen[3 * D];
    uint32_t n_servers = 9;
    start(&s, 1, true, NULL);
    for (size_t i = 0; i < 3 * D; i++)
        rows[i] = (float)(i % D);
    check(embps_push(s.table[0], EMBPS_ASSIGN, ids, 3, rows, 0, &error));
    for (int i = 0; i < 3; i++)
        check(embps_pull(s.table[0], ids, 3, seen, &error));
    assert_memory_equal(seen, rows, sizeof rows);
    assert_int_equal(counter(&s, "client.rows_direct"), 4); /* distinct ones, twice */
    check(embps_pull_states(s.table[0], ids, 3, seen, NULL, EMBPS_PULL_SCAN, &error));
    assert_int_equal(counter(&s, "client.rows_direct"), 4);
    check(embps_set_direct(s.client[0], false, NULL, &error));
    check(embps_pull(s.table[0], ids, 3, seen, &error));
    assert_int_equal(counter(&s, "client.rows_direct"), 0);
    check(embps_set_direct(s.client[0], true, &n_servers, &error));
    assert_int_equal(n_servers, 1);
    for (int i = 0; i < 2; i++)
        check(embps_pull(s.table[0], ids, 3, seen, &error));
    assert_memory_equal(seen, rows, sizeof rows);
    assert_int_equal(counter(&s, "client.rows_direct"), 2);
    stop(&s, 1);
}

/* Deltas are whole numbers, so that every sum is exact, whatever is added up first. */
static void check_cache(bool direct)
{
    enum { HOT = 200, N = 60, STEPS = 4000 };
    setting_t s;
    static float rows[N * D], seen[N * D];
    float sums[HOT] = {0};
    uint64_t ids[N];
    size_t which[N];
    embps_table_t *table = NULL;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    test_random_t random = test_random_start();
    start(&s, 1, direct, NULL);
    check(embps_set_cache(s.client[0], 65536, &error)); /* not for all of them */
    options.dim = D;
    options.init = "zeros";
    options.pull_format = "f16"; /* exact pulls go past the cache */
    check(embps_table_open(s.client[0], "whole numbers", &options, &table, &error));
    for (size_t step = 0; step < STEPS; step++) {
        const size_t n = 1 + test_below(&random, N);
        const bool push = test_below(&random, 2) == 0;
        for (size_t i = 0; i < n; i++) {
            which[i] = test_below(&random, HOT);
            ids[i] = id_of(which[i]);
            const float delta = push ? (float)test_below(&random, 3) - 1 : 0;
            for (size_t d = 0; d < D; d++)
                rows[i * D + d] = delta;
            sums[which[i]] += delta;
        }
        if (push)
            check(embps_push(table, EMBPS_DELTA, ids, n, rows, 0, &error));
        if (test_below(&random, 8) == 0)
            check(embps_clock(s.client[0], 0, NULL, &error));
        check(embps_pull_states(table, ids, n, seen, NULL,
                                test_below(&random, 2) == 0 ? EMBPS_PULL_EXACT : 0, &error));
        for (size_t i = 0; i < n * D; i++)
            assert_true(seen[i] == sums[which[i / D]]);
    }
    assert_true(counter(&s, "client.cache.hits") > STEPS);
    if (direct)
        assert_true(counter(&s, "client.rows_direct") > STEPS);
    stop(&s, 1);
}

static void with_a_cache_direct_reads_show_all_own_deltas(void **state)
{
    (void)state;
    check_cache(true);
}

static void with_a_cache_messages_show_all_own_deltas(void **state)
{
    (void)state;
    check_cache(false);
}

static void what_is_read_is_reported(void **state)
{
    (void)state;
    enum { N = 200 };
    setting_t s;
    static uint64_t ids[N];
    static float rows[N * D];
    start(&s, 1, true, NULL);
    for (size_t i = 0; i < N; i++)
        ids[i] = id_of(i);
    check(embps_push(s.table[0], EMBPS_ASSIGN, ids, N, rows, 0, &error));
    for (int i = 0; i < 400; i++)
        check(embps_pull(s.table[0], ids, N, rows, &error));
    uint64_t read = counter(&s, "client.rows_direct"), told = counter(&s, "rows.touched");
    assert_true(read > 390 * N && read < 400 * N);
    assert_true(told > 0 && told < read / 5);
    stop(&s, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_the_one_that_messages_bring),
        cmocka_unit_test(a_pull_sees_all_pushes_before_it_and_none_after),
        cmocka_unit_test(no_row_is_ever_seen_half_changed),
        cmocka_unit_test(at_staleness_0_a_pull_waits_for_the_others_as_by_messages),
        cmocka_unit_test(without_places_all_comes_by_messages),
        cmocka_unit_test(it_can_be_switched_off_and_on_and_scans_stay_messages),
        cmocka_unit_test(with_a_cache_direct_reads_show_all_own_deltas),
        cmocka_unit_test(with_a_cache_messages_show_all_own_deltas),
        cmocka_unit_test(what_is_read_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
