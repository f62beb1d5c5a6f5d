/*
 * What a program does that keeps all rows in one array and knows their places: the least that a
 * table can cost. One copy, or one read-modify-write, a row, with the rows ahead fetched.
 */
#ifndef TESTS_BENCH_BENCH_PLAIN_H
#define TESTS_BENCH_BENCH_PLAIN_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

typedef enum bench_plain_step { BENCH_PLAIN_SGD, BENCH_PLAIN_ADAGRAD } bench_plain_step_t;

typedef struct bench_plain {
    size_t dim, n_rows, stride; /* stride: floats from row to row */
    float *rows;                /* weights, then for adagrad the sums of squares */
    void *mapping;
    size_t mapping_bytes;
    size_t ahead; /* rows fetched ahead */
    bench_plain_step_t step;
} bench_plain_t;

/* All zeros, on huge pages where the system gives them. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t bench_plain_create(size_t dim, size_t n_rows, bench_plain_step_t step,
                                               bench_plain_t *plain_out, psc_error_t *error);
void bench_plain_clear(bench_plain_t *plain);

/* out [n, dim] */
void bench_plain_gather(const bench_plain_t *plain, const uint32_t *rows, size_t n, float *out);

/* grads [n, dim]; one step for each, in order. */
void bench_plain_update(bench_plain_t *plain, const uint32_t *rows, size_t n, const float *grads,
                        float rate);

#endif
