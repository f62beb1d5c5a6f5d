/*
 * The cache through the public calls: operations from a seed, by several clients of one server,
 * against a dictionary that allows exactly the staleness that embps.h documents.
 *
 * Column w of a row counts what worker w pushed to it, so a pulled row tells what it has seen of
 * whom: of itself all, in order; of others at least what the bound promises and what an earlier
 * pull had seen, at most what there is.
 */
#include "embps.h"

#include "common/hash.h"
#include "worker/client_state.h"

#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <pthread.h>
#include <string.h>

enum { W = 3, D = 6, IDS = 500, N = 40, CLOCKS = 400, CALLS = 4 };

typedef struct pull_call {
    embps_request_t *request;
    size_t n;
    size_t ids[N];
    float own[N], least[N][W];
    float rows[N][D];
} pull_call_t;

typedef struct world {
    char *folder;
    embps_client_t *clients[W];
    embps_table_t *tables[W];
    test_random_t random;
    uint32_t staleness, flush;
    uint64_t clock[W];
    uint64_t clock_seen[W][CLOCKS][W]; /* of others, when the clock of this one began */
    float total[W][IDS];
    float at[W][CLOCKS][IDS]; /* what was pushed in the first clocks */
    float seen[W][W][IDS];
    pull_call_t calls[W][CALLS];
} world_t;

static uint64_t id_of(size_t index)
{
    return index == 1 ? UINT64_MAX : psc_mix64(index);
}

/* One row in four is pushed by one worker alone, who may assign it. */
static bool may_push(size_t worker, size_t index)
{
    return index % 4 != 0 || index / 4 % W == worker;
}

static void check(int code, const embps_error_t *error)
{
    if (code != 0)
        fail_msg("%s", error->message);
}

static embps_table_t *open_table(embps_client_t *client, const char *name, const char *precision)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    embps_error_t error;
    options.dim = D;
    options.precision = precision;
    check(embps_table_open(client, name, &options, &table, &error), &error);
    return table;
}

static void start(world_t *w, uint32_t n_workers, uint32_t staleness, uint32_t flush)
{
    memset(w, 0, sizeof *w);
    w->random = test_random_start();
    w->folder = test_scratch_create();
    w->staleness = staleness;
    w->flush = flush;
    embps_local_options_t options = EMBPS_LOCAL_OPTIONS_DEFAULT;
    embps_error_t error;
    options.data = w->folder;
    options.memory_bytes = (uint64_t)16 << 20;
    options.n_workers = n_workers;
    check(embps_connect_local_many(&options, w->clients, &error), &error);
    for (uint32_t i = 0; i < n_workers; i++) {
        w->tables[i] = open_table(w->clients[i], "t", NULL);
        embps_set_staleness(w->clients[i], staleness);
        embps_set_flush(w->clients[i], flush);
        check(embps_set_cache(w->clients[i], 64 << 10, &error), &error);
    }
}

static void *close_client(void *client)
{
    assert_int_equal(embps_close(client, NULL), 0);
    return NULL;
}

static void finish(world_t *w, uint32_t n_workers)
{
    for (uint32_t i = 0; i < n_workers; i++)
        (void)close_client(w->clients[i]);
    test_scratch_destroy(w->folder);
}

static uint64_t counter_sum;
static const char *counter_name;
static void add_counter(void *context, const char *name, uint64_t value)
{
    (void)context;
    if (strcmp(name, counter_name) == 0)
        counter_sum += value;
}

static uint64_t counter(embps_client_t *client, const char *name)
{
    counter_sum = 0;
    counter_name = name;
    assert_int_equal(embps_stats(client, add_counter, NULL, NULL), 0);
    return counter_sum;
}

static size_t draw(world_t *w)
{
    const size_t index = test_below(&w->random, IDS);
    return index * (1 + test_below(&w->random, IDS)) / IDS;
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

/* What worker r must see of worker o in a row, in its present clock. */
static float promised(const world_t *w, size_t r, size_t o, size_t index)
{
    uint64_t clocks = w->clock[r];
    if (w->staleness == EMBPS_ASYNC) {
        const uint64_t since = clocks + 1 > w->flush ? clocks + 1 - w->flush : 0;
        clocks = w->clock_seen[r][since][o];
    } else {
        clocks = clocks > w->staleness ? clocks - w->staleness : 0;
    }
    clocks = clocks > w->flush - 1 ? clocks - (w->flush - 1) : 0;
    return w->at[o][clocks][index];
}

static void check_row(world_t *w, size_t r, size_t index, const float *row, float own,
                      const float *least)
{
    if (row[r] != own)
        fail_msg("worker %zu, row %zu: sees %f of its own, not %f", r, index, (double)row[r],
                 (double)own);
    for (size_t o = 0; o < W; o++) {
        if (o != r && (row[o] < least[o] || row[o] > w->total[o][index]))
            fail_msg("worker %zu, row %zu: sees %f of worker %zu, promised are %f to %f", r, index,
                     (double)row[o], o, (double)least[o], (double)w->total[o][index]);
        w->seen[r][o][index] = larger(row[o], w->seen[r][o][index]);
    }
    for (size_t c = W; c < D; c++)
        assert_true(row[c] == row[c - W]); /* not torn */
}

static void finish_call(world_t *w, size_t r, pull_call_t *call)
{
    embps_error_t error;
    if (call->request == NULL)
        return;
    check(embps_wait(call->request, &error), &error);
    call->request = NULL;
    for (size_t i = 0; i < call->n; i++)
        check_row(w, r, call->ids[i], call->rows[i], call->own[i], call->least[i]);
}

static void finish_calls(world_t *w, size_t r)
{
    for (size_t c = 0; c < CALLS; c++)
        finish_call(w, r, &w->calls[r][c]);
}

static bool would_wait(const world_t *w, size_t r)
{
    uint64_t least = UINT64_MAX;
    for (size_t o = 0; o < W; o++)
        least = w->clock[o] < least ? w->clock[o] : least;
    return w->staleness != EMBPS_ASYNC && w->clock[r] > w->staleness + least;
}

static void pull(world_t *w, size_t r)
{
    embps_error_t error;
    pull_call_t *call = NULL;
    for (size_t c = 0; c < CALLS && call == NULL; c++) {
        if (w->calls[r][c].request == NULL)
            call = &w->calls[r][c];
    }
    if (call == NULL || would_wait(w, r)) {
        finish_calls(w, r);
        return;
    }
    uint64_t ids[N];
    call->n = 1 + test_below(&w->random, N);
    for (size_t i = 0; i < call->n; i++) {
        const size_t index = call->ids[i] = draw(w);
        ids[i] = id_of(index);
        call->own[i] = w->total[r][index];
        for (size_t o = 0; o < W; o++)
            call->least[i][o] = larger(promised(w, r, o, index), w->seen[r][o][index]);
    }
    check(embps_pull_start(w->tables[r], ids, call->n, &call->rows[0][0], &call->request, &error),
          &error);
    if (test_below(&w->random, 2) == 0)
        finish_calls(w, r);
}

static void pull_ages(world_t *w, size_t r)
{
    if (would_wait(w, r))
        return;
    finish_calls(w, r);
    uint64_t ids[N];
    size_t indexes[N];
    uint32_t ages[N];
    float rows[N][D];
    embps_error_t error;
    for (size_t i = 0; i < N; i++)
        ids[i] = id_of(indexes[i] = draw(w));
    check(embps_pull_ages(w->tables[r], ids, N, &rows[0][0], ages, &error), &error);
    for (size_t i = 0; i < N; i++) {
        assert_true(w->staleness == EMBPS_ASYNC || ages[i] <= w->staleness);
        float least[W];
        for (size_t o = 0; o < W; o++)
            least[o] = w->seen[r][o][indexes[i]];
        const uint64_t age = (uint64_t)ages[i] + w->flush - 1;
        for (size_t o = 0; o < W && age < w->clock[r]; o++)
            least[o] = larger(w->at[o][w->clock[r] - age][indexes[i]], least[o]);
        check_row(w, r, indexes[i], rows[i], w->total[r][indexes[i]], least);
    }
}

static void push(world_t *w, size_t r)
{
    uint64_t ids[N];
    float rows[N][D];
    embps_error_t error;
    const size_t dice = test_below(&w->random, 8);
    embps_push_kind_t kind = EMBPS_DELTA;
    if (dice < 2)
        kind = dice == 0 ? EMBPS_ASSIGN : EMBPS_GRADIENT;
    size_t n = 0;
    for (size_t tries = 1 + test_below(&w->random, N); tries > 0; tries--) {
        const size_t index = draw(w);
        if (!may_push(r, index) || (kind == EMBPS_ASSIGN && index % 4 != 0))
            continue;
        const float step = (float)(1 + test_below(&w->random, 3));
        w->total[r][index] += step; /* an assignment, too, goes on counting */
        for (size_t c = 0; c < D; c++) {
            rows[n][c] = 0;
            if (c % W == r)
                rows[n][c] = kind == EMBPS_ASSIGN ? w->total[r][index] : step;
            if (kind == EMBPS_GRADIENT)
                rows[n][c] = -rows[n][c];
        }
        ids[n++] = id_of(index);
    }
    check(embps_push(w->tables[r], kind, ids, n, &rows[0][0], 1, &error), &error);
}

static void tick(world_t *w, size_t r)
{
    embps_error_t error;
    if (w->clock[r] + 1 >= CLOCKS || would_wait(w, r))
        return;
    finish_calls(w, r); /* before bounds move */
    check(embps_clock(w->clients[r], 0, NULL, &error), &error);
    w->clock[r]++;
    memcpy(w->at[r][w->clock[r]], w->total[r], sizeof w->total[r]);
    for (size_t o = 0; o < W; o++)
        w->clock_seen[r][w->clock[r]][o] = w->clock[o];
}

static void prefetch(world_t *w, size_t r)
{
    uint64_t ids[N];
    embps_error_t error;
    const size_t n = test_below(&w->random, N + 1);
    for (size_t i = 0; i < n; i++)
        ids[i] = id_of(draw(w));
    check(embps_prefetch(w->tables[r], ids, n, w->clock[r] + test_below(&w->random, 3), &error),
          &error);
}

static void run(uint32_t staleness, uint32_t flush)
{
    static world_t w;
    start(&w, W, staleness, flush);
    for (int step = 0; step < 6000; step++) {
        const size_t r = test_below(&w.random, W);
        const size_t dice = test_below(&w.random, 12);
        if (dice < 5)
            pull(&w, r);
        else if (dice < 9)
            push(&w, r);
        else if (dice < 10)
            pull_ages(&w, r);
        else if (test_below(&w.random, 2) == 0)
            tick(&w, r);
        else
            prefetch(&w, r);
        if (step < 3000 && test_below(&w.random, 750) == 0) {
            embps_error_t error;
            finish_calls(&w, r);
            check(embps_set_cache(w.clients[r], (size_t)(64 + test_below(&w.random, 40)) << 10,
                                  &error),
                  &error);
        }
    }
    for (size_t r = 0; r < W; r++) {
        finish_calls(&w, r);
        assert_true(counter(w.clients[r], "client.cache.hits") > 100);
        assert_true(counter(w.clients[r], "client.cache.deltas") > 100);
        assert_true(counter(w.clients[r], "client.cache.bytes_saved") > 1000);
    }
    finish(&w, W);
}

static void bounded_staleness_is_what_embps_h_says(void **state)
{
    (void)state;
    run(1, 1);
    run(4, 1);
    run(3, 5);
}

static void asynchronous_copies_are_as_old_as_embps_h_says(void **state)
{
    (void)state;
    run(EMBPS_ASYNC, 1);
    run(EMBPS_ASYNC, 6);
}

static void one_client_sees_its_own_effects_whatever_is_switched(void **state)
{
    (void)state;
    static world_t w;
    embps_error_t error;
    start(&w, 1, 1, 1);
    const uint32_t stalenesses[] = {0, 1, 7, EMBPS_ASYNC};
    for (int step = 0; step < 6000; step++) {
        const size_t dice = test_below(&w.random, 40);
        if (dice == 0) {
            finish_calls(&w, 0);
            w.staleness = stalenesses[test_below(&w.random, 4)];
            embps_set_staleness(w.clients[0], w.staleness);
        } else if (dice == 1) {
            embps_set_flush(w.clients[0], 1 + (uint32_t)test_below(&w.random, 9));
        } else if (dice == 2 && test_below(&w.random, 4) == 0) {
            const size_t bytes =
                test_below(&w.random, 3) == 0 ? 0 : (64 + test_below(&w.random, 64)) << 10;
            check(embps_set_cache(w.clients[0], bytes, &error), &error);
        } else if (dice == 3) {
            check(embps_barrier(w.clients[0], &error), &error);
        } else if (dice == 4) {
            uint8_t states[N];
            uint64_t ids[N];
            size_t indexes[N];
            float rows[N][D];
            finish_calls(&w, 0);
            for (size_t i = 0; i < N; i++)
                ids[i] = id_of(indexes[i] = draw(&w));
            check(embps_pull_states(w.tables[0], ids, N, &rows[0][0], states,
                                    test_below(&w.random, 2) == 0 ? EMBPS_PULL_SCAN : 0, &error),
                  &error);
            for (size_t i = 0; i < N; i++) {
                assert_true(rows[i][0] == w.total[0][indexes[i]]);
                assert_int_equal(states[i], w.total[0][indexes[i]] != 0 ? EMBPS_ROW_PRESENT
                                                                        : EMBPS_ROW_INITIAL);
            }
        } else if (dice == 5) {
            if (w.clock[0] + 1 < CLOCKS)
                tick(&w, 0);
        } else if (dice == 6) {
            w.tables[0] = open_table(w.clients[0], "t", NULL);
        } else if (dice == 7) {
            prefetch(&w, 0);
        } else if (dice < 22) {
            pull(&w, 0);
        } else {
            push(&w, 0);
        }
    }
    finish_calls(&w, 0);
    finish(&w, 1);
}

/* The rows of a table after some random pushes of floats, as bits. */
static void run_floats(uint32_t staleness, size_t cache_bytes, float (*rows)[D])
{
    static world_t w;
    embps_error_t error;
    memset(&w, 0, sizeof w);
    w.random = (test_random_t){.key = 4711};
    w.folder = test_scratch_create();
    embps_local_options_t options = EMBPS_LOCAL_OPTIONS_DEFAULT;
    options.data = w.folder;
    check(embps_connect_local(&options, w.clients, &error), &error);
    w.tables[0] = open_table(w.clients[0], "t", NULL);
    embps_set_staleness(w.clients[0], staleness);
    embps_set_flush(w.clients[0], 4);
    check(embps_set_cache(w.clients[0], cache_bytes, &error), &error);
    uint64_t ids[IDS];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    for (int step = 0; step < 300; step++) {
        uint64_t some[N];
        float values[N][D];
        for (size_t i = 0; i < N; i++) {
            some[i] = draw(&w);
            for (size_t c = 0; c < D; c++)
                values[i][c] = test_float(&w.random);
        }
        check(embps_pull(w.tables[0], some, N, &rows[0][0], &error), &error);
        check(embps_push(w.tables[0], (embps_push_kind_t)(step % 3), some, N, &values[0][0], 0.1F,
                         &error),
              &error);
        check(embps_clock(w.clients[0], 0, NULL, &error), &error);
    }
    check(embps_barrier(w.clients[0], &error), &error);
    check(embps_pull(w.tables[0], ids, IDS, &rows[0][0], &error), &error);
    finish(&w, 1);
}

static void at_staleness_0_no_bit_changes(void **state)
{
    (void)state;
    static float without[IDS][D], with[IDS][D], bounded[IDS][D];
    run_floats(0, 0, without);
    run_floats(0, 1 << 20, with);
    assert_memory_equal(without, with, sizeof with);
    run_floats(2, 1 << 20, bounded);
    for (size_t i = 0; i < IDS; i++) {
        for (size_t c = 0; c < D; c++)
            assert_true(bounded[i][c] - without[i][c] < 1e-4F &&
                        without[i][c] - bounded[i][c] < 1e-4F);
    }
}

static void rows_of_16_bits_are_fetched_again_after_own_deltas(void **state)
{
    (void)state;
    static world_t w;
    embps_error_t error;
    start(&w, 1, EMBPS_ASYNC, 1);
    embps_table_t *table = open_table(w.clients[0], "half", "bf16");
    const uint64_t id = 3;
    float row[D], delta[D];
    for (size_t c = 0; c < D; c++)
        delta[c] = 1.0F / 1024;
    for (int i = 0; i < 100; i++) {
        check(embps_pull(table, &id, 1, row, &error), &error);
        check(embps_push(table, EMBPS_DELTA, &id, 1, delta, 0, &error), &error);
        check(embps_clock(w.clients[0], 0, NULL, &error), &error);
        float again[D], exact[D];
        check(embps_pull(table, &id, 1, again, &error), &error);
        check(embps_pull_states(table, &id, 1, exact, NULL, EMBPS_PULL_SCAN, &error), &error);
        assert_memory_equal(again, exact, sizeof exact);
    }
    finish(&w, 1);
}

static void rows_that_come_back_with_gradients_are_what_a_pull_shows(void **state)
{
    (void)state;
    static const char *const formats[] = {"f32", "bf16", "f16", "int8"};
    static world_t w;
    embps_error_t error;
    start(&w, 1, EMBPS_ASYNC, 1);
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
        embps_table_t *table = NULL;
        options.dim = D;
        options.pull_format = formats[f];
        check(embps_table_open(w.clients[0], formats[f], &options, &table, &error), &error);
        const uint64_t before = counter(w.clients[0], "rows.pushed_returned");
        for (int i = 0; i < 100; i++) {
            const uint64_t id = 3;
            float row[D], gradient[D], shown[D];
            for (size_t c = 0; c < D; c++)
                gradient[c] = test_float(&w.random);
            check(embps_pull(table, &id, 1, row, &error), &error);
            check(embps_push(table, EMBPS_GRADIENT, &id, 1, gradient, 0.1F, &error), &error);
            check(embps_pull(table, &id, 1, row, &error), &error);
            check(embps_pull_states(table, &id, 1, shown, NULL, EMBPS_PULL_SCAN, &error), &error);
            assert_memory_equal(row, shown, sizeof shown);
            check(embps_clock(w.clients[0], 0, NULL, &error), &error);
        }
        assert_true(counter(w.clients[0], "rows.pushed_returned") > before + 50);
    }
    finish(&w, 1);
}

static void a_delta_that_is_refused_later_is_told_and_the_copy_ends(void **state)
{
    (void)state;
    static world_t w;
    embps_error_t error;
    start(&w, 1, EMBPS_ASYNC, 1);
    const uint64_t id = 3;
    float row[D];
    const float delta[D] = {1, 1, 1, 1, 1, 1};
    check(embps_pull(w.tables[0], &id, 1, row, &error), &error);
    check(embps_push(w.tables[0], EMBPS_DELTA, &id, 1, delta, 0, &error), &error);
    w.tables[0]->epochs[0]++; /* as if the table had been restored behind our back */
    assert_int_equal(embps_clock(w.clients[0], 0, NULL, &error), EMBPS_MISMATCH);
    w.tables[0] = open_table(w.clients[0], "t", NULL);
    check(embps_pull(w.tables[0], &id, 1, row, &error), &error);
    assert_true(row[0] == 0);
    check(embps_clock(w.clients[0], 0, NULL, &error), &error);
    finish(&w, 1);
}

/* Each in the formats f32 and bf16; rows of other formats are decoded on their way. */
static void announced_rows_are_served_without_a_question(void **state)
{
    (void)state;
    static const char *const formats[] = {NULL, "bf16"};
    for (size_t f = 0; f < 2; f++) {
        static world_t w;
        embps_error_t error;
        uint64_t ids[IDS];
        float rows[IDS][D];
        start(&w, 1, EMBPS_ASYNC, 8);
        embps_client_t *client = w.clients[0];
        embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
        embps_table_t *table;
        check(embps_set_cache(client, 1 << 20, &error), &error);
        options.dim = D;
        options.pull_format = formats[f];
        check(embps_table_open(client, "announced", &options, &table, &error), &error);
        for (size_t i = 0; i < IDS; i++) {
            const size_t index = i < IDS - 20 ? i : i - 100; /* some twice in a call */
            ids[i] = id_of(index);
            for (size_t c = 0; c < D; c++)
                rows[i][c] = (float)(index % 100) / 4; /* exact in bf16 */
        }
        check(embps_push(table, EMBPS_ASSIGN, ids, IDS, &rows[0][0], 0, &error), &error);
        check(embps_prefetch(table, ids, 200, 2, &error), &error);
        check(embps_prefetch(table, ids + 200, IDS - 200, 1, &error), &error);
        while (counter(client, "client.cache.fetched") < IDS - 20)
            ; /* answers come within the calls of the client */
        check(embps_prefetch(table, ids, IDS, 2, &error), &error); /* all are there */
        for (int clock = 0; clock < 2; clock++)
            check(embps_clock(client, 0, NULL, &error), &error);
        const uint64_t hits = counter(client, "client.cache.hits");
        memset(rows, 0, sizeof rows);
        check(embps_pull(table, ids, IDS, &rows[0][0], &error), &error);
        for (size_t i = 0; i < IDS; i++)
            assert_true(rows[i][D - 1] == (float)(i % 100) / 4); /* of those seen twice, too */
        assert_int_equal(counter(client, "client.cache.hits") - hits, IDS - 20);
        assert_int_equal(counter(client, "client.cache.fetched"), IDS - 20);
        finish(&w, 1);
    }
}

static void *meet(void *argument)
{
    world_t *w = argument;
    embps_error_t error;
    embps_client_t *client = w->clients[1];
    const uint64_t id = 9;
    float row[D];
    const float delta[D] = {0, 1, 0, 0, 1, 0};
    for (int round = 1; round <= 50; round++) {
        check(embps_pull(w->tables[1], &id, 1, row, &error), &error);
        check(embps_push(w->tables[1], EMBPS_DELTA, &id, 1, delta, 0, &error), &error);
        check(embps_barrier(client, &error), &error);
        check(embps_pull(w->tables[1], &id, 1, row, &error), &error);
        assert_true(row[0] >= (float)round && row[1] == (float)round);
    }
    return NULL;
}

static void after_a_barrier_everybody_sees_everything(void **state)
{
    (void)state;
    static world_t w;
    embps_error_t error;
    start(&w, 2, EMBPS_ASYNC, 1000);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, meet, &w), 0);
    const uint64_t id = 9;
    float row[D];
    const float delta[D] = {1, 0, 0, 1, 0, 0};
    for (int round = 1; round <= 50; round++) {
        check(embps_pull(w.tables[0], &id, 1, row, &error), &error);
        check(embps_push(w.tables[0], EMBPS_DELTA, &id, 1, delta, 0, &error), &error);
        check(embps_barrier(w.clients[0], &error), &error);
        check(embps_pull(w.tables[0], &id, 1, row, &error), &error);
        assert_true(row[1] >= (float)round && row[0] == (float)round);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    finish(&w, 2);
}

static void a_cache_that_is_too_small_is_refused(void **state)
{
    (void)state;
    static world_t w;
    embps_error_t error;
    start(&w, 1, 1, 1);
    assert_int_equal(embps_set_cache(w.clients[0], 1000, &error), EMBPS_INVALID_ARGUMENT);
    check(embps_set_cache(w.clients[0], 0, &error), &error);
    assert_int_equal(counter(w.clients[0], "client.cache.rows"), 0);
    finish(&w, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounded_staleness_is_what_embps_h_says),
        cmocka_unit_test(asynchronous_copies_are_as_old_as_embps_h_says),
        cmocka_unit_test(one_client_sees_its_own_effects_whatever_is_switched),
        cmocka_unit_test(at_staleness_0_no_bit_changes),
        cmocka_unit_test(rows_of_16_bits_are_fetched_again_after_own_deltas),
        cmocka_unit_test(rows_that_come_back_with_gradients_are_what_a_pull_shows),
        cmocka_unit_test(a_delta_that_is_refused_later_is_told_and_the_copy_ends),
        cmocka_unit_test(announced_rows_are_served_without_a_question),
        cmocka_unit_test(after_a_barrier_everybody_sees_everything),
        cmocka_unit_test(a_cache_that_is_too_small_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
