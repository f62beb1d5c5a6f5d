/*
 * What the benchmarks of the store share: the values of rows and gradients, and the loading.
 *
 * Values are simple functions of row and column, so that every side can hold the same ones without
 * asking another; weights stay far from the ends of the float range whatever is pushed.
 */
#include "tests/bench/bench_cases.h"

#include "common/alloc.h"
#include "common/rng.h"

#include <string.h>

#define LOAD_BATCH BENCH_LOAD_BATCH

void bench_fill_row(float *values, size_t dim, size_t row)
{
    for (size_t d = 0; d < dim; d++)
        values[d] = (float)((row * 31 + d * 7) % 1009) * 0x1p-10f;
}

void bench_fill_gradients(float *values, size_t n)
{
    uint64_t key = psc_rng_stream(7, n, 0);
    for (size_t i = 0; i < n; i++)
        values[i] = psc_rng_unit((uint32_t)(psc_rng_at(key, i) >> 32)) - 0.5f;
}

psc_status_t bench_load_rows(bench_shard_t *shard, size_t dim, size_t from, size_t to,
                             bench_plain_t *plain, psc_error_t *error)
{
    uint64_t ids[LOAD_BATCH];
    float *values = psc_alloc_array(LOAD_BATCH * dim, sizeof *values);
    if (values == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a batch");
    psc_status_t st = PSC_OK;
    for (; st == PSC_OK && from < to; from += LOAD_BATCH) {
        size_t n = to - from < LOAD_BATCH ? to - from : LOAD_BATCH;
        for (size_t i = 0; i < n; i++) {
            ids[i] = bench_row_id(from + i);
            bench_fill_row(values + i * dim, dim, from + i);
            if (plain != NULL)
                memcpy(plain->rows + (from + i) * plain->stride, values + i * dim,
                       dim * sizeof *values);
        }
        st = bench_shard_push(shard, PSP_PUSH_ASSIGN, ids, n, values, 0, error);
    }
    psc_free(values);
    return st;
}
