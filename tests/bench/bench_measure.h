/*
 * Timing of two sides in turn, and what is reported of it.
 *
 * A side does one batch of a sequence at a time. Both sides are run alternately, so that what the
 * machine does meanwhile meets both alike; ratios are taken within a round, and medians over the
 * rounds are reported.
 */
#ifndef TESTS_BENCH_BENCH_MEASURE_H
#define TESTS_BENCH_BENCH_MEASURE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

#define BENCH_MAX_REPEATS 99

typedef psc_status_t (*bench_batch_fn)(void *context, size_t number, psc_error_t *error);
typedef psc_status_t (*bench_finish_fn)(void *context, psc_error_t *error);

typedef struct bench_side {
    bench_batch_fn batch;   /* does batch `number`, or begins it */
    bench_finish_fn finish; /* ends what was begun, within the time measured; NULL: nothing is */
    void *context;
    size_t n_batches; /* of the sequence, which is begun again after the last */
    size_t rows;      /* of a batch */
    size_t next;      /* the batch that comes next */
    size_t n_done;    /* batches done so far */
    bool cpu_time;    /* measure the process's processor time instead of the time that passes */
} bench_side_t;

/* Runs batches for about so many seconds, at least one. rate_out: rows per second. */
PSC_MUST_CHECK psc_status_t bench_run_for(bench_side_t *side, double seconds, double *rate_out,
                                          psc_error_t *error);
/* Runs n batches. */
PSC_MUST_CHECK psc_status_t bench_run_batches(bench_side_t *side, size_t n, double *rate_out,
                                              psc_error_t *error);

/* Waits until the threads of this process have nothing to do, 30 s at most: what one side left to
 * be compacted must not be done in the other's time. */
void bench_settle(void);

/* Rates of the rounds. */
typedef struct bench_rounds {
    size_t n;
    double ours[BENCH_MAX_REPEATS], other[BENCH_MAX_REPEATS];
} bench_rounds_t;

double bench_median(const double *values, size_t n);

/* What is told of one comparison; see `embps-bench store --help`. NAN: does not apply. */
typedef struct bench_result {
    const char *bench, *dist, *against;
    size_t dim, batch;
    size_t in_flight; /* batches under way at once; 0: does not apply */
    double rows_per_s, against_rows_per_s, ratio, spread, wanted;
    double hit_rate, belady_hit_rate, bound_full;
} bench_result_t;

/* Fills rates, ratio and spread from the rounds. */
void bench_result_rates(bench_result_t *result, const bench_rounds_t *rounds);

void bench_result_print_heading(void);
/* The same for results with in_flight. */
void bench_result_print_wire_heading(void);
void bench_result_print(const bench_result_t *result, bool json);

#endif
