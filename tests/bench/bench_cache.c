/*
 * embps-bench cache: what a client's cache costs, beside an array whose places are known.
 *
 * A step is what a trainer does in a clock: it pulls a batch by Zipf's law, what the cache asks for
 * is answered, it pushes a delta to each row of the batch, and what is due leaves. The functions
 * are the cache's own, called as worker/cached_rows calls them, without messages. The other side
 * copies the same rows out of one array and adds to them there, one by one, which is the least that
 * rows kept at the worker can cost. One process, one thread, processor time.
 */
#include "common/alloc.h"
#include "common/options.h"
#include "proto/message.h"
#include "tests/bench/bench_cases.h"
#include "tests/bench/bench_commands.h"
#include "worker/batch.h"
#include "worker/cache/cache.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BATCHES ((size_t)64) /* then the same again */
#define TABLE 1u
#define AHEAD 8u

typedef struct cache_options {
    uint64_t dim, batch, rows, bytes, flush, repeats, seed;
    double seconds;
    bool json;
} cache_options_t;

#define NUMBER(text, letter, field, least, most, value, says)                                      \
    {                                                                                              \
        .name = (text), .argument = (letter), .type = PSC_OPTION_U64,                              \
        .offset = offsetof(cache_options_t, field), .min = (least), .max = (most),                 \
        .default_value = (value), .help = (says)                                                   \
    }

static const psc_option_t options_table[] = {
    NUMBER("dim", "N", dim, 1, PSP_DIM_MAX, "100", "Numbers in a row."),
    NUMBER("batch", "N", batch, 1, 1e6, "40000", "Ids of a step, duplicates included."),
    NUMBER("rows", "N", rows, 100, 1e8, "60000", "Different ids."),
    {.name = "cache",
     .argument = "BYTES",
     .type = PSC_OPTION_SIZE,
     .offset = offsetof(cache_options_t, bytes),
     .min = 64 << 10,
     .max = 1e12,
     .default_value = "64M",
     .help = "As embps-train has it; below what all rows take, some are asked for each time."},
    NUMBER("flush", "N", flush, 1, PSW_CACHE_FLUSH_MAX, "16", "As embps-train has it."),
    NUMBER("repeats", "N", repeats, 1, BENCH_MAX_REPEATS, "5",
           "Measurements of each side, in turn; medians are told."),
    NUMBER("seed", "N", seed, 0, 1e15, "1", "Of the ids."),
    {.name = "seconds",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(cache_options_t, seconds),
     .min = 0.0001,
     .max = 3600,
     .default_value = "0.5",
     .help = "How long one measurement of one side takes."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(cache_options_t, json),
     .help = "Print one JSON object instead of a table."},
};

static const psc_command_t command = {
    .name = "embps-bench cache",
    .synopsis = "[--dim N] [--batch N] [--rows N] [--cache BYTES] [options]",
    .summary = "what a client's cache costs, without messages",
    .description =
        "cache.step: distinct ids, pull, the answers to what the cache asks for, a delta to each "
        "row, and the flush of what is due, asynchronous. Beside it, \"array\": the same distinct "
        "rows copied out of an array whose places are known, and added to there.\n\n"
        "Rates are distinct rows per second of processor time, medians; the ratio is that within "
        "the rounds. A last line tells nanoseconds a row, and which share of rows were asked for "
        "and flushed.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench cache\nembps-bench cache --dim 64 --cache 16M",
};

typedef struct stage {
    const cache_options_t *options;
    size_t dim;
    psw_cache_t *cache;
    psw_cache_table_t table;
    psw_batch_t *distinct;
    bench_ids_t ids;
    bench_plain_t plain;
    float *out, *deltas; /* [batch, dim] each */
    uint32_t *places;    /* [batch] */
    uint64_t clock, n_rows;
} stage_t;

static void fill(void *context, size_t i, float *row)
{
    const stage_t *stage = context;
    memcpy(row, stage->deltas + i * stage->dim, stage->dim * sizeof *row);
}

/* What would be sent; nobody takes it. */
static void drain(psw_cache_t *cache)
{
    psw_outbox_t outbox;
    while (psw_cache_outbox(cache, &outbox))
        ;
}

static void answer(const stage_t *stage, const psw_asked_t *asked)
{
    for (size_t k = 0; k < asked->n; k++) {
        if (k + AHEAD < asked->n)
            psw_cache_expect(stage->cache, asked->tickets[k + AHEAD]);
        psw_cache_answer(stage->cache, &(psw_answer_t){.ticket = asked->tickets[k],
                                                       .asked_at = stage->clock,
                                                       .least_clock = stage->clock,
                                                       .version = (uint32_t)stage->clock + 1,
                                                       .row = (const uint8_t *)stage->deltas});
    }
}

static psc_status_t find_distinct(stage_t *stage, size_t number, const uint64_t **ids_out,
                                  psw_distinct_t *found, psc_error_t *error)
{
    const size_t n = (size_t)stage->options->batch;
    *ids_out = stage->ids.ids + number * n;
    return psw_batch_dedupe(stage->distinct, TABLE, *ids_out, n, found, error);
}

static psc_status_t step(void *context, size_t number, psc_error_t *error)
{
    stage_t *stage = context;
    psw_distinct_t found;
    psw_asked_t asked;
    const uint64_t *ids;
    psc_status_t st = find_distinct(stage, number, &ids, &found, error);
    if (st != PSC_OK)
        return st;
    const psw_cache_rows_t rows = {.table = &stage->table,
                                   .ids = ids,
                                   .hashes = found.hashes,
                                   .first = found.first,
                                   .n = found.n};
    const psw_cache_out_t out = {.rows = stage->out, .stride = stage->dim};
    st = psw_cache_pull(stage->cache, &rows, &out, &asked, error);
    drain(stage->cache);
    if (st == PSC_OK) {
        answer(stage, &asked);
        st = psw_cache_push(stage->cache, &rows, PSP_PUSH_DELTA, fill, stage, &asked, error);
        drain(stage->cache);
    }
    if (st == PSC_OK)
        st = psw_cache_take_due(stage->cache, error);
    drain(stage->cache);
    psw_cache_set_clock(stage->cache, ++stage->clock);
    stage->n_rows += found.n;
    return st;
}

static psc_status_t plain_step(void *context, size_t number, psc_error_t *error)
{
    stage_t *stage = context;
    psw_distinct_t found;
    const uint64_t *ids;
    psc_status_t st = find_distinct(stage, number, &ids, &found, error);
    if (st != PSC_OK)
        return st;
    for (size_t u = 0; u < found.n; u++)
        stage->places[u] = stage->ids.rows[ids - stage->ids.ids + found.first[u]];
    bench_plain_gather(&stage->plain, stage->places, found.n, stage->out);
    bench_plain_update(&stage->plain, stage->places, found.n, stage->deltas, -1);
    return PSC_OK;
}

static psc_status_t set_up(stage_t *stage, psc_error_t *error)
{
    const cache_options_t *options = stage->options;
    const size_t batch = (size_t)options->batch, floats = batch * stage->dim;
    const bench_draw_t draw = {.zipf = true,
                               .n_rows = (size_t)options->rows,
                               .n_ids = batch * BATCHES,
                               .seed = options->seed};
    psc_status_t st = bench_ids_draw(&draw, &stage->ids, error);
    if (st == PSC_OK)
        st = psw_batch_create(&stage->distinct, error);
    if (st == PSC_OK)
        st = psw_cache_create((size_t)options->bytes, &stage->cache, error);
    if (st == PSC_OK)
        st = bench_plain_create(stage->dim, (size_t)options->rows, BENCH_PLAIN_SGD, &stage->plain,
                                error);
    if (st != PSC_OK)
        return st;
    psw_cache_set_limits(stage->cache, PSW_CACHE_ASYNC, (uint32_t)options->flush);
    stage->out = psc_alloc_huge(floats * sizeof(float));
    stage->deltas = psc_alloc_huge(floats * sizeof(float));
    stage->places = psc_alloc_array(batch, sizeof *stage->places);
    if (stage->out == NULL || stage->deltas == NULL || stage->places == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for batches of %zu rows", batch);
    memset(stage->out, 0, floats * sizeof(float));
    bench_fill_gradients(stage->deltas, floats);
    return PSC_OK;
}

static void clear(stage_t *stage)
{
    psw_cache_destroy(stage->cache);
    psw_batch_destroy(stage->distinct);
    bench_ids_clear(&stage->ids);
    bench_plain_clear(&stage->plain);
    psc_free(stage->out);
    psc_free(stage->deltas);
    psc_free(stage->places);
}

static psc_status_t compare(stage_t *stage, psc_error_t *error)
{
    const cache_options_t *options = stage->options;
    bench_side_t ours = {.batch = step, .context = stage, .n_batches = BATCHES, .cpu_time = true};
    bench_rounds_t rounds = {.n = (size_t)options->repeats};
    bench_result_t result = {.bench = "cache.step",
                             .dist = "zipf",
                             .against = "array",
                             .dim = stage->dim,
                             .batch = (size_t)options->batch,
                             .wanted = NAN,
                             .hit_rate = NAN,
                             .belady_hit_rate = NAN,
                             .bound_full = NAN};
    psw_cache_counters_t before, after;
    double rate;
    /* Until the periods of all rows have found themselves; how many rows a batch has. */
    ours.rows = 1;
    psc_status_t st = bench_run_batches(&ours, 3 * BATCHES, &rate, error);
    ours.rows = (size_t)(stage->n_rows / (3 * BATCHES));
    bench_side_t other = ours;
    other.batch = plain_step;
    psw_cache_counters(stage->cache, &before);
    stage->n_rows = 0;
    for (size_t r = 0; st == PSC_OK && r < rounds.n; r++) {
        st = bench_run_for(&ours, options->seconds, &rounds.ours[r], error);
        if (st == PSC_OK)
            st = bench_run_for(&other, options->seconds, &rounds.other[r], error);
    }
    if (st != PSC_OK)
        return st;
    psw_cache_counters(stage->cache, &after);
    bench_result_rates(&result, &rounds);
    bench_result_print(&result, options->json);
    if (!options->json)
        (void)printf("ns a row: %.0f, array %.0f; of %zu distinct rows a batch %.0f%% asked for, "
                     "%.0f%% flushed\n",
                     1e9 / result.rows_per_s, 1e9 / result.against_rows_per_s, ours.rows,
                     100 - 100 * (double)(after.hits - before.hits) / (double)stage->n_rows,
                     100 * (double)(after.flushed - before.flushed) / (double)stage->n_rows);
    return PSC_OK;
}

psc_status_t bench_cache(int argc, char *const argv[], psc_error_t *error)
{
    cache_options_t options = {0};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    stage_t stage = {.options = &options,
                     .dim = (size_t)options.dim,
                     .table = {.number = TABLE, .dim = (uint32_t)options.dim, .exact = true}};
    st = set_up(&stage, error);
    if (st == PSC_OK && !options.json)
        bench_result_print_heading();
    if (st == PSC_OK)
        st = compare(&stage, error);
    clear(&stage);
    return st;
}
