/*
 * Benchmarks of a store whose rows are on disk, with a warm page cache.
 *
 * All rows are written through a store with the budget of the benchmark and settle; then the
 * database is copied (by hard links, so that all sides read the same files and pages), and raw
 * RocksDB opens the copy with the options of the store and a block cache as the store's tier has.
 *
 * store.pull.cold, store.push.cold: the budget holds a small share of the rows, but several of the
 * largest batches, as a user of such batches would have it (RocksDB alone needs no room for rows);
 * and no row is worth keeping: ids are even, or by Zipf's law within a batch while which rows are
 * frequent changes from batch to batch. What was in memory nevertheless is told as the hit rate, of
 * distinct rows, and does not count: our rate is lowered by that share (unless it is more than
 * half: so few rows tell nothing of the disk). Otherwise rows count as given on both sides; the raw
 * side gets each batch's distinct keys, sorted beforehand.
 * Before each timed push all compactions have settled, and those that follow it are nobody's.
 *
 * store.pull.tenth: the budget holds a tenth of the rows, ids follow Zipf's law, and each round is
 * a new part of one long sequence. Raw RocksDB gets the whole budget as block cache. The bound is
 * what a store could do that hits as often as Belady's policy does on this sequence, whose hits
 * cost a plain copy and whose misses cost a raw read: 1 / (h / hot + (1 - h) / cold). A batch then
 * has (1 - h) * batch misses, and `cold` is the rate of raw reads of so many sorted keys at a time
 * from a database of which nothing is cached but what the tier's cache holds. The more keys are
 * sorted together, the more share an index block; the bound with `cold` of whole batches, which no
 * store can have while it hits, is told as bound_full.
 */
#include "tests/bench/bench_cases.h"

#include "common/alloc.h"
#include "ps/store/cold.h"
#include "tests/bench/bench_folder.h"
#include "tests/bench/bench_rocks.h"
#include "tests/bench/policy/policies.h"

#include <math.h>

#define POOL_IDS ((size_t)1 << 22)
#define MIB ((uint64_t)1 << 20)
#define ROOM_BATCHES 9 /* that there is memory for, at least; a batch may take an eighth of it */

typedef struct cold {
    const bench_setup_t *setup;
    size_t dim, batch;
    bench_folder_t folder;
    bench_shard_options_t options;
    size_t room; /* rows that there is memory for */
    size_t value_bytes;
    uint64_t tier_cache; /* the block cache that the store's tier has */
    bench_shard_t *shard;
    bench_rocks_t *rocks;
    bench_ids_t ids;
    bench_keys_t keys;
    float *out, *grads; /* [max batch, dim] each */
    uint8_t *values;    /* [max batch, value_bytes] */
    /* of store.pull.tenth alone: */
    bench_plain_t plain;
    bench_rocks_t *all_cold; /* a third copy, with the tier's cache */
    bench_ids_t even_ids;    /* what it is asked for: */
    bench_keys_t full_keys;  /* by whole batches */
    bench_keys_t miss_keys;  /* by as many as a batch has misses at best */
} cold_t;

/* ---- the sides ---- */

static psc_status_t pull_ours(void *context, size_t number, psc_error_t *error)
{
    cold_t *cold = context;
    size_t absent;
    psc_status_t st = bench_shard_pull(cold->shard, cold->ids.ids + number * cold->batch,
                                       cold->batch, cold->out, &absent, error);
    if (st == PSC_OK && absent != 0)
        st = psc_error_set(error, PSC_INTERNAL, "%zu rows are not there", absent);
    return st;
}

static psc_status_t read_keys(cold_t *cold, bench_rocks_t *rocks, const bench_keys_t *keys,
                              size_t number, psc_error_t *error)
{
    size_t first = keys->first[number];
    return bench_rocks_read(rocks, keys->bytes + first * PS_COLD_KEY_BYTES,
                            keys->first[number + 1] - first, bench_shard_weights_at(),
                            cold->dim * sizeof(float), (uint8_t *)cold->out, error);
}

static psc_status_t pull_rocks(void *context, size_t number, psc_error_t *error)
{
    cold_t *cold = context;
    return read_keys(cold, cold->rocks, &cold->keys, number, error);
}

static psc_status_t pull_full(void *context, size_t number, psc_error_t *error)
{
    cold_t *cold = context;
    return read_keys(cold, cold->all_cold, &cold->full_keys, number, error);
}

static psc_status_t pull_misses(void *context, size_t number, psc_error_t *error)
{
    cold_t *cold = context;
    return read_keys(cold, cold->all_cold, &cold->miss_keys, number, error);
}

static psc_status_t pull_plain(void *context, size_t number, psc_error_t *error)
{
    (void)error;
    cold_t *cold = context;
    bench_plain_gather(&cold->plain, cold->ids.rows + number * cold->batch, cold->batch, cold->out);
    return PSC_OK;
}

static psc_status_t push_ours(void *context, size_t number, psc_error_t *error)
{
    cold_t *cold = context;
    return bench_shard_push(cold->shard, PSP_PUSH_GRADIENT, cold->ids.ids + number * cold->batch,
                            cold->batch, cold->grads, BENCH_RATE, error);
}

static psc_status_t push_rocks(void *context, size_t number, psc_error_t *error)
{
    cold_t *cold = context;
    size_t first = cold->keys.first[number], n = cold->keys.first[number + 1] - first;
    const uint8_t *keys = cold->keys.bytes + first * PS_COLD_KEY_BYTES;
    const uint32_t *of_id = cold->keys.of_id + number * cold->batch;
    psc_status_t st = bench_rocks_load(cold->rocks, keys, n, cold->values, error);
    if (st != PSC_OK)
        return st;
    for (size_t i = 0; i < cold->batch; i++) {
        uint8_t *value = cold->values + of_id[i] * cold->value_bytes + bench_shard_weights_at();
        float *restrict weights = (float *)(void *)value;
        const float *restrict grad = cold->grads + i * cold->dim;
        for (size_t d = 0; d < cold->dim; d++)
            weights[d] -= BENCH_RATE * grad[d];
    }
    return bench_rocks_store(cold->rocks, keys, n, cold->values, error);
}

/* ---- set-up ---- */

static psc_status_t copy_database(cold_t *cold, size_t n_copies, psc_error_t *error)
{
    static const char *const names[] = {"raw", "all-cold"};
    char path[BENCH_PATH_MAX];
    bench_rocks_t *rocks;
    const bench_rocks_options_t options = {
        .dir = cold->options.dir, .cache_bytes = 8 * MIB, .value_bytes = cold->value_bytes};
    psc_status_t st = bench_rocks_open(&options, &rocks, error);
    if (st != PSC_OK)
        return st;
    bench_settle();
    for (size_t k = 0; st == PSC_OK && k < n_copies; k++) {
        bench_folder_join(&cold->folder, names[k], path);
        st = bench_rocks_copy(rocks, path, error);
    }
    uint64_t tier = ps_cold_rocks_memory(cold->options.memory_bytes);
    uint64_t buffers = 2 * bench_rocks_write_buffer(rocks);
    cold->tier_cache = tier > buffers + MIB ? tier - buffers : MIB;
    bench_rocks_close(rocks);
    return st;
}

/* Writes all rows under the budget in which cold->room of them fit, and copies the files. */
static psc_status_t load(cold_t *cold, size_t n_copies, char *ours_dir, psc_error_t *error)
{
    const bench_setup_t *setup = cold->setup;
    size_t batch = setup->max_batch > BENCH_LOAD_BATCH ? setup->max_batch : BENCH_LOAD_BATCH;
    psc_status_t st = bench_folder_make(setup->dir, &cold->folder, error);
    if (st != PSC_OK)
        return st;
    bench_folder_join(&cold->folder, "ours", ours_dir);
    cold->options = (bench_shard_options_t){
        .dir = ours_dir, .dim = cold->dim, .optimizer = "sgd", .batch = batch};
    st = bench_shard_memory(&cold->options, cold->room, &cold->options.memory_bytes, error);
    if (st == PSC_OK)
        st = bench_shard_open(&cold->options, &cold->shard, error);
    if (st != PSC_OK)
        return st;
    cold->value_bytes = bench_shard_value_bytes(cold->shard);
    st = bench_load_rows(cold->shard, cold->dim, 0, setup->rows, NULL, error);
    psc_status_t closed = bench_shard_close(cold->shard, st == PSC_OK ? error : NULL);
    cold->shard = NULL;
    if (st == PSC_OK)
        st = closed;
    if (st == PSC_OK)
        st = copy_database(cold, n_copies, error);
    if (st != PSC_OK)
        return st;
    cold->out = psc_alloc_aligned(batch * cold->dim * sizeof *cold->out);
    cold->grads = psc_alloc_aligned(batch * cold->dim * sizeof *cold->grads);
    cold->values = psc_alloc_aligned(batch * cold->value_bytes);
    if (cold->out == NULL || cold->grads == NULL || cold->values == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for batches of %zu rows", batch);
    bench_fill_gradients(cold->grads, batch * cold->dim);
    return PSC_OK;
}

static psc_status_t open_rocks(cold_t *cold, const char *name, uint64_t cache_bytes,
                               bench_rocks_t **rocks_out, psc_error_t *error)
{
    char path[BENCH_PATH_MAX];
    bench_folder_join(&cold->folder, name, path);
    const bench_rocks_options_t options = {.dir = path,
                                           .cache_bytes = cache_bytes,
                                           .value_bytes = cold->value_bytes,
                                           .filters = cold->setup->raw_filters};
    return bench_rocks_open(&options, rocks_out, error);
}

static void close_all(cold_t *cold)
{
    bench_rocks_close(cold->rocks);
    bench_rocks_close(cold->all_cold);
    bench_shard_abandon(cold->shard);
    bench_plain_clear(&cold->plain);
    bench_ids_clear(&cold->ids);
    bench_ids_clear(&cold->even_ids);
    bench_keys_clear(&cold->keys);
    bench_keys_clear(&cold->full_keys);
    bench_keys_clear(&cold->miss_keys);
    psc_free(cold->out);
    psc_free(cold->grads);
    psc_free(cold->values);
    bench_folder_remove(&cold->folder);
}

static bench_result_t new_result(const cold_t *cold, const char *bench, const char *against,
                                 bool zipf, double wanted)
{
    return (bench_result_t){.bench = bench,
                            .against = against,
                            .dist = bench_dist_name(cold->setup, zipf),
                            .dim = cold->dim,
                            .batch = cold->batch,
                            .wanted = wanted,
                            .hit_rate = NAN,
                            .belady_hit_rate = NAN,
                            .bound_full = NAN};
}

/* ---- all cold ---- */

/* Distinct rows of n batches from `first` on. */
static size_t distinct_rows(const bench_keys_t *keys, size_t first, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        size_t b = (first + i) % keys->n_batches;
        sum += keys->first[b + 1] - keys->first[b];
    }
    return sum;
}

static psc_status_t compare_cold(cold_t *cold, bool push, bool zipf, psc_error_t *error)
{
    const bench_setup_t *setup = cold->setup;
    bench_side_t ours = {.batch = push ? push_ours : pull_ours,
                         .context = cold,
                         .n_batches = cold->keys.n_batches,
                         .rows = cold->batch,
                         .cpu_time = setup->cpu_time};
    bench_side_t raw = ours;
    raw.batch = push ? push_rocks : pull_rocks;
    size_t warm = 3 * cold->room / cold->batch + 1;
    bench_rounds_t rounds = {.n = setup->repeats};
    double rate;
    psc_status_t st = bench_run_batches(&ours, warm, &rate, error);
    if (st == PSC_OK)
        st = bench_run_batches(&raw, warm, &rate, error);
    double n_distinct = 0, n_read = 0;
    for (size_t r = 0; st == PSC_OK && r < setup->repeats; r++) {
        size_t first = ours.next;
        if (push)
            bench_settle();
        ours.n_done = 0;
        uint64_t before = bench_shard_counters(cold->shard).cold_reads;
        st = bench_run_for(&ours, setup->seconds, &rounds.ours[r], error);
        double distinct = (double)distinct_rows(&cold->keys, first, ours.n_done);
        double read = (double)(bench_shard_counters(cold->shard).cold_reads - before);
        if (read >= distinct / 2)
            rounds.ours[r] *= fmin(read / distinct, 1);
        n_distinct += distinct;
        n_read += read;
        if (push)
            bench_settle();
        if (st == PSC_OK)
            st = bench_run_for(&raw, setup->seconds, &rounds.other[r], error);
    }
    if (st != PSC_OK)
        return st;
    bench_result_t result = new_result(cold, push ? "store.push.cold" : "store.pull.cold",
                                       "rocksdb", zipf, push ? 0.7 : 0.8);
    bench_result_rates(&result, &rounds);
    result.hit_rate = 1 - n_read / n_distinct;
    bench_result_print(&result, setup->json);
    return PSC_OK;
}

/* One kind of request, for all distributions and batches; pulls before pushes. */
static psc_status_t run_cold(cold_t *cold, bool push, psc_error_t *error)
{
    const bench_setup_t *setup = cold->setup;
    psc_status_t st = PSC_OK;
    for (size_t k = 0; st == PSC_OK && k < setup->n_dists * setup->n_batches; k++) {
        bool zipf = setup->dists[k / setup->n_batches];
        cold->batch = setup->batches[k % setup->n_batches];
        bench_draw_t draw = {.zipf = zipf,
                             .n_rows = setup->rows,
                             .n_ids = POOL_IDS,
                             .shift_at = cold->batch,
                             .seed = setup->seed};
        st = bench_ids_draw(&draw, &cold->ids, error);
        if (st == PSC_OK)
            st = bench_keys_sort(&cold->ids, cold->batch, BENCH_TABLE, &cold->keys, error);
        if (st == PSC_OK)
            st = compare_cold(cold, push, zipf, error);
        bench_ids_clear(&cold->ids);
        bench_keys_clear(&cold->keys);
    }
    return st;
}

psc_status_t bench_cold_run(const bench_setup_t *setup, size_t dim, bool pull, bool push,
                            psc_error_t *error)
{
    cold_t cold = {.setup = setup, .dim = dim};
    char ours_dir[BENCH_PATH_MAX];
    cold.room = (size_t)(setup->cold_share * (double)setup->rows);
    size_t least = ROOM_BATCHES * setup->max_batch;
    if (least > setup->rows / 4)
        least = setup->rows / 4;
    if (cold.room < least)
        cold.room = least;
    psc_status_t st = load(&cold, 1, ours_dir, error);
    if (st == PSC_OK)
        st = bench_shard_open(&cold.options, &cold.shard, error);
    if (st == PSC_OK)
        st = open_rocks(&cold, "raw", cold.tier_cache, &cold.rocks, error);
    if (st == PSC_OK && pull)
        st = run_cold(&cold, false, error);
    if (st == PSC_OK && push)
        st = run_cold(&cold, true, error);
    close_all(&cold);
    return st;
}

/* ---- a tenth ---- */

typedef struct tenth {
    size_t warm, part; /* batches before the first round, and of each */
    size_t n_misses;   /* of a batch, at Belady's hit rate */
    double belady;
} tenth_t;

/* What a round measures beside our side. */
typedef struct tenth_round {
    double raw, bound, bound_full;
} tenth_round_t;

typedef struct tenth_sides {
    bench_side_t ours, raw, plain, full, misses;
} tenth_sides_t;

static tenth_sides_t sides_of(cold_t *cold, const tenth_t *tenth)
{
    bench_side_t base = {.batch = pull_ours,
                         .context = cold,
                         .n_batches = tenth->warm + cold->setup->repeats * tenth->part,
                         .rows = cold->batch,
                         .cpu_time = cold->setup->cpu_time};
    tenth_sides_t sides = {base, base, base, base, base};
    sides.raw.batch = pull_rocks;
    sides.plain.batch = pull_plain;
    sides.full.batch = pull_full;
    sides.full.n_batches = cold->full_keys.n_batches;
    sides.misses.batch = pull_misses;
    sides.misses.n_batches = cold->miss_keys.n_batches;
    sides.misses.rows = tenth->n_misses;
    return sides;
}

static psc_status_t run_tenth_round(const cold_t *cold, const tenth_t *tenth, tenth_sides_t *sides,
                                    double *ours_out, tenth_round_t *round_out, psc_error_t *error)
{
    double seconds = cold->setup->seconds / 2, hits = tenth->belady, plain, full, misses;
    psc_status_t st = bench_run_batches(&sides->ours, tenth->part, ours_out, error);
    if (st == PSC_OK)
        st = bench_run_batches(&sides->raw, tenth->part, &round_out->raw, error);
    if (st == PSC_OK)
        st = bench_run_for(&sides->plain, seconds, &plain, error);
    if (st == PSC_OK)
        st = bench_run_for(&sides->misses, seconds, &misses, error);
    if (st == PSC_OK)
        st = bench_run_for(&sides->full, seconds, &full, error);
    if (st != PSC_OK)
        return st;
    round_out->bound = 1 / (hits / plain + (1 - hits) / misses);
    round_out->bound_full = 1 / (hits / plain + (1 - hits) / full);
    return PSC_OK;
}

static psc_status_t compare_tenth(cold_t *cold, const tenth_t *tenth, psc_error_t *error)
{
    const bench_setup_t *setup = cold->setup;
    tenth_sides_t sides = sides_of(cold, tenth);
    bench_rounds_t raw = {.n = setup->repeats}, bound = raw, full = raw;
    double unused;
    psc_status_t st = bench_run_batches(&sides.ours, tenth->warm, &unused, error);
    if (st == PSC_OK)
        st = bench_run_batches(&sides.raw, tenth->warm, &unused, error);
    if (st == PSC_OK)
        st = bench_run_for(&sides.full, setup->seconds / 2, &unused, error);
    uint64_t reads = bench_shard_counters(cold->shard).cold_reads;
    for (size_t r = 0; st == PSC_OK && r < setup->repeats; r++) {
        tenth_round_t round = {0};
        st = run_tenth_round(cold, tenth, &sides, &raw.ours[r], &round, error);
        bound.ours[r] = full.ours[r] = raw.ours[r];
        raw.other[r] = round.raw;
        bound.other[r] = round.bound;
        full.other[r] = round.bound_full;
    }
    if (st != PSC_OK)
        return st;
    reads = bench_shard_counters(cold->shard).cold_reads - reads;
    double given = (double)(setup->repeats * tenth->part * cold->batch);
    bench_result_t result = new_result(cold, "store.pull.tenth", "rocksdb", true, NAN);
    bench_result_rates(&result, &raw);
    result.hit_rate = 1 - (double)reads / given;
    bench_result_print(&result, setup->json);
    result.against = "bound";
    result.wanted = 0.7;
    result.belady_hit_rate = tenth->belady;
    bench_result_rates(&result, &full);
    result.bound_full = result.against_rows_per_s;
    bench_result_rates(&result, &bound);
    bench_result_print(&result, setup->json);
    return PSC_OK;
}

/* Opens everything anew, so that each batch size begins with empty caches. */
static psc_status_t run_tenth_batch(cold_t *cold, double belady, psc_error_t *error)
{
    const bench_setup_t *setup = cold->setup;
    tenth_t tenth = {.warm = setup->rows / cold->batch,
                     .part = setup->rows / cold->batch,
                     .n_misses = (size_t)((1 - belady) * (double)cold->batch) + 1,
                     .belady = belady};
    if (tenth.part == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a batch of %zu of %zu rows", cold->batch,
                             setup->rows);
    psc_status_t st = bench_keys_sort(&cold->ids, cold->batch, BENCH_TABLE, &cold->keys, error);
    if (st == PSC_OK)
        st = bench_keys_sort(&cold->even_ids, cold->batch, BENCH_TABLE, &cold->full_keys, error);
    if (st == PSC_OK)
        st = bench_keys_sort(&cold->even_ids, tenth.n_misses, BENCH_TABLE, &cold->miss_keys, error);
    if (st == PSC_OK)
        st = bench_shard_open(&cold->options, &cold->shard, error);
    if (st == PSC_OK)
        st = open_rocks(cold, "raw", cold->options.memory_bytes, &cold->rocks, error);
    if (st == PSC_OK)
        st = open_rocks(cold, "all-cold", cold->tier_cache, &cold->all_cold, error);
    if (st == PSC_OK)
        st = compare_tenth(cold, &tenth, error);
    bench_rocks_close(cold->rocks);
    bench_rocks_close(cold->all_cold);
    bench_shard_abandon(cold->shard);
    cold->rocks = cold->all_cold = NULL;
    cold->shard = NULL;
    bench_keys_clear(&cold->keys);
    bench_keys_clear(&cold->full_keys);
    bench_keys_clear(&cold->miss_keys);
    return st;
}

/* How many ids behind the first `rows` find their row, if the best policy there can be has room for
 * a tenth of the rows and begins without any. */
static psc_status_t count_best_hits(const bench_ids_t *ids, size_t rows, size_t *hits_out,
                                    psc_error_t *error)
{
    bench_trace_t trace = {.ids = ids->rows, .n = ids->n, .n_rows = (uint32_t)rows};
    void *cache = bench_belady.create(&trace, (uint32_t)(rows / 10));
    if (cache == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %zu ids", ids->n);
    *hits_out = 0;
    for (size_t i = 0; i < ids->n; i++) {
        bool hit = bench_belady.access(cache, ids->rows[i]);
        *hits_out += hit && i >= rows;
    }
    bench_belady.destroy(cache);
    return PSC_OK;
}

psc_status_t bench_tenth_run(const bench_setup_t *setup, size_t dim, psc_error_t *error)
{
    cold_t cold = {.setup = setup, .dim = dim, .room = setup->rows / 10};
    char ours_dir[BENCH_PATH_MAX];
    bench_draw_t draw = {.zipf = true,
                         .n_rows = setup->rows,
                         .n_ids = setup->rows * (setup->repeats + 1),
                         .seed = setup->seed};
    bench_draw_t even = {.n_rows = setup->rows, .n_ids = POOL_IDS, .seed = setup->seed + 1};
    size_t hits = 0;
    psc_status_t st = load(&cold, 2, ours_dir, error);
    if (st == PSC_OK)
        st = bench_plain_create(dim, setup->rows, BENCH_PLAIN_SGD, &cold.plain, error);
    if (st == PSC_OK)
        st = bench_ids_draw(&draw, &cold.ids, error);
    if (st == PSC_OK)
        st = bench_ids_draw(&even, &cold.even_ids, error);
    if (st == PSC_OK)
        st = count_best_hits(&cold.ids, setup->rows, &hits, error);
    for (size_t b = 0; st == PSC_OK && b < setup->n_batches; b++) {
        cold.batch = setup->batches[b];
        st = run_tenth_batch(&cold, (double)hits / (double)(cold.ids.n - setup->rows), error);
    }
    close_all(&cold);
    return st;
}
