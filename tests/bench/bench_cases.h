/* The benchmarks of the store, by where its rows are: all in memory, none, or a tenth. */
#ifndef TESTS_BENCH_BENCH_CASES_H
#define TESTS_BENCH_BENCH_CASES_H

#include "tests/bench/bench_ids.h"
#include "tests/bench/bench_measure.h"
#include "tests/bench/bench_plain.h"
#include "tests/bench/bench_shard.h"

#define BENCH_RATE 0.01f                /* learning rate of pushes */
#define BENCH_LOAD_BATCH ((size_t)2048) /* the least that a shard for bench_load_rows must take */

/* What was asked for. Plain data; borrows. */
typedef struct bench_setup {
    size_t rows, repeats;
    double seconds;
    uint64_t seed;
    const char *dir; /* for data; every benchmark makes a folder of its own in it and removes it */
    double cold_share; /* of the rows that fit in memory when all are to be cold */
    bool stepwise;     /* our side alone, one measurement for each line of standard input */
    bool json;
    bool cpu_time;
    bool raw_filters;             /* raw RocksDB reads with the filters that the store reads with */
    const bench_ids_t *given_ids; /* instead of drawn ones, or NULL */
    const size_t *batches;
    size_t n_batches, max_batch;
    const bool *dists; /* false: evenly, true: Zipf */
    size_t n_dists;
} bench_setup_t;

static inline const char *bench_dist_name(const bench_setup_t *setup, bool zipf)
{
    return setup->given_ids != NULL ? "given" : zipf ? "zipf" : "uniform";
}

/* Values of a row as they are written at first. */
void bench_fill_row(float *values, size_t dim, size_t row);
/* Gradients [n]; small numbers of both signs. */
void bench_fill_gradients(float *values, size_t n);
/* Writes rows [from, to) into the shard and, if it is not NULL, the plain array. Errors: those of
 * the store. */
PSC_MUST_CHECK psc_status_t bench_load_rows(bench_shard_t *shard, size_t dim, size_t from,
                                            size_t to, bench_plain_t *plain, psc_error_t *error);

/* store.pull.hot, store.push.OPTIMIZER: all rows in memory, beside a plain array. name NULL: not
 * this one. */
typedef struct bench_hot_case {
    const char *pull, *push;
    const char *optimizer;
    size_t dim;
} bench_hot_case_t;
PSC_MUST_CHECK psc_status_t bench_hot_run(const bench_setup_t *setup, const bench_hot_case_t *what,
                                          psc_error_t *error);

/* store.pull.cold, store.push.cold, beside raw RocksDB. */
PSC_MUST_CHECK psc_status_t bench_cold_run(const bench_setup_t *setup, size_t dim, bool pull,
                                           bool push, psc_error_t *error);

/* store.pull.tenth, beside raw RocksDB and Belady's bound. */
PSC_MUST_CHECK psc_status_t bench_tenth_run(const bench_setup_t *setup, size_t dim,
                                            psc_error_t *error);

#endif
