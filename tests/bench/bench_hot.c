/*
 * Benchmarks of a store whose rows are all in memory.
 *
 * The store has memory for all rows and some more, and RocksDB behind it as always; the plain array
 * holds the same values. Before a pull is timed, both sides' answers are compared. Both write their
 * answers to, and take their gradients from, one buffer each that is used again for every batch, as
 * a server's pooled messages are. The plain loop's distance of prefetching is tried out first.
 */
#include "tests/bench/bench_cases.h"

#include "common/alloc.h"
#include "tests/bench/bench_folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define POOL_IDS ((size_t)1 << 20) /* of a sequence that is gone through over and over */

typedef struct hot {
    const bench_setup_t *setup;
    const bench_hot_case_t *what;
    bench_folder_t folder;
    bench_shard_t *shard;
    bench_plain_t plain;
    bool has_plain;
    bench_ids_t ids;
    size_t batch;
    float *out, *grads; /* [max batch, dim] each */
} hot_t;

/* ---- the sides ---- */

static psc_status_t pull_ours(void *context, size_t number, psc_error_t *error)
{
    hot_t *hot = context;
    size_t absent;
    psc_status_t st = bench_shard_pull(hot->shard, hot->ids.ids + number * hot->batch, hot->batch,
                                       hot->out, &absent, error);
    if (st == PSC_OK && absent != 0)
        st = psc_error_set(error, PSC_INTERNAL, "%zu rows are not there", absent);
    return st;
}

static psc_status_t pull_plain(void *context, size_t number, psc_error_t *error)
{
    (void)error;
    hot_t *hot = context;
    bench_plain_gather(&hot->plain, hot->ids.rows + number * hot->batch, hot->batch, hot->out);
    return PSC_OK;
}

static psc_status_t push_ours(void *context, size_t number, psc_error_t *error)
{
    hot_t *hot = context;
    return bench_shard_push(hot->shard, PSP_PUSH_GRADIENT, hot->ids.ids + number * hot->batch,
                            hot->batch, hot->grads, BENCH_RATE, error);
}

static psc_status_t push_plain(void *context, size_t number, psc_error_t *error)
{
    (void)error;
    hot_t *hot = context;
    bench_plain_update(&hot->plain, hot->ids.rows + number * hot->batch, hot->batch, hot->grads,
                       BENCH_RATE);
    return PSC_OK;
}

/* The best distance of prefetching for the plain loop. */
static psc_status_t tune(hot_t *hot, bench_side_t *side, psc_error_t *error)
{
    static const size_t distances[] = {4, 6, 8, 12, 16, 24, 32};
    size_t best = 0;
    double best_rate = 0, rate;
    for (size_t k = 0; k < sizeof distances / sizeof distances[0]; k++) {
        hot->plain.ahead = distances[k];
        psc_status_t st = bench_run_for(side, hot->setup->seconds / 8, &rate, error);
        if (st != PSC_OK)
            return st;
        if (rate > best_rate) {
            best_rate = rate;
            best = distances[k];
        }
    }
    hot->plain.ahead = best;
    return PSC_OK;
}

/* Whether both sides answer the same to the first batch. */
static psc_status_t check_answers(hot_t *hot, psc_error_t *error)
{
    size_t n = hot->batch * hot->what->dim;
    float *ours = psc_alloc_array(n, sizeof *ours);
    if (ours == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for an answer");
    psc_status_t st = pull_ours(hot, 0, error);
    if (st == PSC_OK) {
        memcpy(ours, hot->out, n * sizeof *ours);
        st = pull_plain(hot, 0, error);
    }
    if (st == PSC_OK && memcmp(ours, hot->out, n * sizeof *ours) != 0)
        st = psc_error_set(error, PSC_INTERNAL, "the store and the plain array differ");
    psc_free(ours);
    return st;
}

/* ---- one comparison ---- */

static psc_status_t step_on(const bench_setup_t *setup, bench_side_t *side, bench_result_t result,
                            psc_error_t *error)
{
    char line[64];
    psc_status_t st = PSC_OK;
    result.ratio = result.spread = NAN;
    while (st == PSC_OK && fgets(line, sizeof line, stdin) != NULL) {
        st = bench_run_for(side, setup->seconds, &result.rows_per_s, error);
        if (st == PSC_OK)
            bench_result_print(&result, setup->json);
    }
    return st;
}

static psc_status_t compare(hot_t *hot, bench_side_t *ours, bench_side_t *plain,
                            bench_result_t *result, psc_error_t *error)
{
    const bench_setup_t *setup = hot->setup;
    double rate;
    psc_status_t st = bench_run_for(ours, setup->seconds / 4, &rate, error);
    if (st != PSC_OK)
        return st;
    if (setup->stepwise || !hot->has_plain)
        return step_on(setup, ours, *result, error);
    st = tune(hot, plain, error);
    bench_rounds_t rounds = {.n = setup->repeats};
    ps_store_counters_t before = bench_shard_counters(hot->shard);
    for (size_t r = 0; st == PSC_OK && r < setup->repeats; r++) {
        st = bench_run_for(ours, setup->seconds, &rounds.ours[r], error);
        if (st == PSC_OK)
            st = bench_run_for(plain, setup->seconds, &rounds.other[r], error);
    }
    if (st != PSC_OK)
        return st;
    if (bench_shard_counters(hot->shard).misses != before.misses)
        return psc_error_set(error, PSC_INTERNAL, "not all rows were in memory");
    bench_result_rates(result, &rounds);
    bench_result_print(result, setup->json);
    return PSC_OK;
}

static psc_status_t run_batch(hot_t *hot, bool push, bool zipf, psc_error_t *error)
{
    bench_side_t ours = {.batch = push ? push_ours : pull_ours,
                         .context = hot,
                         .n_batches = hot->ids.n / hot->batch,
                         .rows = hot->batch,
                         .cpu_time = hot->setup->cpu_time};
    bench_side_t plain = ours;
    plain.batch = push ? push_plain : pull_plain;
    bench_result_t result = {.bench = push ? hot->what->push : hot->what->pull,
                             .dist = bench_dist_name(hot->setup, zipf),
                             .against = hot->has_plain ? "plain" : "none",
                             .dim = hot->what->dim,
                             .batch = hot->batch,
                             .wanted = !hot->has_plain ? NAN
                                       : push          ? 0.5
                                                       : 0.6,
                             .against_rows_per_s = NAN,
                             .hit_rate = NAN,
                             .belady_hit_rate = NAN,
                             .bound_full = NAN};
    if (ours.n_batches == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "fewer ids than a batch of %zu",
                             hot->batch);
    psc_status_t st = hot->has_plain && !push ? check_answers(hot, error) : PSC_OK;
    return st == PSC_OK ? compare(hot, &ours, &plain, &result, error) : st;
}

/* ---- set-up ---- */

static psc_status_t open_both(hot_t *hot, psc_error_t *error)
{
    const bench_setup_t *setup = hot->setup;
    size_t dim = hot->what->dim;
    size_t batch = setup->max_batch > BENCH_LOAD_BATCH ? setup->max_batch : BENCH_LOAD_BATCH;
    bench_shard_options_t options = {
        .dir = hot->folder.path, .dim = dim, .optimizer = hot->what->optimizer, .batch = batch};
    psc_status_t st = bench_shard_memory(&options, setup->rows + setup->rows / 4 + 2 * batch,
                                         &options.memory_bytes, error);
    if (st == PSC_OK)
        st = bench_shard_open(&options, &hot->shard, error);
    if (st != PSC_OK)
        return st;
    bool is_adagrad = strcmp(hot->what->optimizer, "adagrad") == 0;
    hot->has_plain = !setup->stepwise && (is_adagrad || strcmp(hot->what->optimizer, "sgd") == 0);
    if (hot->has_plain) {
        st =
            bench_plain_create(dim, setup->rows, is_adagrad ? BENCH_PLAIN_ADAGRAD : BENCH_PLAIN_SGD,
                               &hot->plain, error);
        if (st != PSC_OK) {
            hot->has_plain = false;
            return st;
        }
    }
    hot->out = psc_alloc_aligned(batch * dim * sizeof *hot->out);
    hot->grads = psc_alloc_aligned(batch * dim * sizeof *hot->grads);
    if (hot->out == NULL || hot->grads == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for batches of %zu rows", batch);
    bench_fill_gradients(hot->grads, batch * dim);
    return bench_load_rows(hot->shard, dim, 0, setup->rows, hot->has_plain ? &hot->plain : NULL,
                           error);
}

static psc_status_t run_dist(hot_t *hot, bool push, bool zipf, psc_error_t *error)
{
    const bench_setup_t *setup = hot->setup;
    psc_status_t st = PSC_OK;
    if (setup->given_ids != NULL) {
        hot->ids = *setup->given_ids;
    } else {
        bench_draw_t draw = {
            .zipf = zipf, .n_rows = setup->rows, .n_ids = POOL_IDS, .seed = setup->seed};
        st = bench_ids_draw(&draw, &hot->ids, error);
    }
    for (size_t b = 0; st == PSC_OK && b < setup->n_batches; b++) {
        hot->batch = setup->batches[b];
        st = run_batch(hot, push, zipf, error);
    }
    if (setup->given_ids == NULL)
        bench_ids_clear(&hot->ids);
    return st;
}

psc_status_t bench_hot_run(const bench_setup_t *setup, const bench_hot_case_t *what,
                           psc_error_t *error)
{
    hot_t hot = {.setup = setup, .what = what};
    psc_status_t st = bench_folder_make(setup->dir, &hot.folder, error);
    if (st == PSC_OK)
        st = open_both(&hot, error);
    /* All pulls first, while the values of both sides are the same. */
    for (size_t d = 0; st == PSC_OK && what->pull != NULL && d < setup->n_dists; d++)
        st = run_dist(&hot, false, setup->dists[d], error);
    for (size_t d = 0; st == PSC_OK && what->push != NULL && d < setup->n_dists; d++)
        st = run_dist(&hot, true, setup->dists[d], error);
    psc_free(hot.out);
    psc_free(hot.grads);
    if (hot.has_plain)
        bench_plain_clear(&hot.plain);
    bench_shard_abandon(hot.shard);
    bench_folder_remove(&hot.folder);
    return st;
}
