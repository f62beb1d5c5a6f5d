/*
 * The plain array that the store is measured against.
 *
 * Rows lie one behind the other, without header or index, in a region aligned and advised as the
 * store's own is. The loops are those one would write by hand: whole rows fetched `ahead` rows
 * before they are used (the caller tries which distance is best), then memcpy, or the same
 * arithmetic as the store's optimizers in the same vector widths. Duplicates are not looked for:
 * each gradient is a step of its own, which is less work than to sum them first.
 */
#include "tests/bench/bench_plain.h"

#include "common/vectors.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define LINE 64u
#define EPS 1e-10f /* as the adagrad of the store */

psc_status_t bench_plain_create(size_t dim, size_t n_rows, bench_plain_step_t step,
                                bench_plain_t *plain_out, psc_error_t *error)
{
    size_t stride = step == BENCH_PLAIN_ADAGRAD ? 2 * dim : dim;
    bench_plain_t plain = {
        .dim = dim, .n_rows = n_rows, .stride = stride, .ahead = 8, .step = step};
    size_t bytes = n_rows * stride * sizeof(float);
    plain.mapping_bytes = bytes + HUGE_BYTES;
    plain.mapping = mmap(NULL, plain.mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (plain.mapping == MAP_FAILED)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %zu rows of dim %zu", n_rows,
                             dim);
    size_t misaligned = (uintptr_t)plain.mapping % HUGE_BYTES;
    uint8_t *start = plain.mapping;
    start += misaligned != 0 ? HUGE_BYTES - misaligned : 0;
    (void)madvise(start, bytes, MADV_HUGEPAGE);
    memset(start, 0, bytes);
    plain.rows = (float *)(void *)start;
    *plain_out = plain;
    return PSC_OK;
}

void bench_plain_clear(bench_plain_t *plain)
{
    if (plain->mapping != NULL)
        (void)munmap(plain->mapping, plain->mapping_bytes);
    *plain = (bench_plain_t){0};
}

static inline void fetch(const bench_plain_t *plain, const uint32_t *rows, size_t i, size_t n,
                         size_t bytes, bool write)
{
    if (i + plain->ahead >= n)
        return;
    const char *row = (const char *)(plain->rows + (size_t)rows[i + plain->ahead] * plain->stride);
    for (size_t line = 0; line < bytes; line += LINE) {
        if (write)
            __builtin_prefetch(row + line, 1);
        else
            __builtin_prefetch(row + line, 0);
    }
}

void bench_plain_gather(const bench_plain_t *plain, const uint32_t *rows, size_t n, float *out)
{
    size_t dim = plain->dim, bytes = dim * sizeof(float);
    for (size_t i = 0; i < n; i++) {
        fetch(plain, rows, i, n, bytes, false);
        memcpy(out + i * dim, plain->rows + (size_t)rows[i] * plain->stride, bytes);
    }
}

static inline void step_sgd(float *restrict weights, const float *restrict grad, size_t dim,
                            float rate)
{
    size_t d = 0;
    for (; d + 16 <= dim; d += 16)
        for (size_t lane = 0; lane < 16; lane++)
            weights[d + lane] -= rate * grad[d + lane];
    for (; d < dim; d++)
        weights[d] -= rate * grad[d];
}

static inline void step_adagrad(float *restrict weights, float *restrict sums,
                                const float *restrict grad, size_t dim, float rate)
{
    size_t d = 0;
    for (; d + 16 <= dim; d += 16) {
        for (size_t lane = 0; lane < 16; lane++) {
            float g = grad[d + lane];
            float sum = sums[d + lane] + g * g;
            sums[d + lane] = sum;
            weights[d + lane] -= rate * g / (sqrtf(sum) + EPS);
        }
    }
    for (; d < dim; d++) {
        float sum = sums[d] + grad[d] * grad[d];
        sums[d] = sum;
        weights[d] -= rate * grad[d] / (sqrtf(sum) + EPS);
    }
}

PSC_MULTIVERSION
static void update_sgd(bench_plain_t *plain, const uint32_t *rows, size_t n, const float *grads,
                       float rate)
{
    size_t dim = plain->dim;
    for (size_t i = 0; i < n; i++) {
        fetch(plain, rows, i, n, dim * sizeof(float), true);
        step_sgd(plain->rows + (size_t)rows[i] * plain->stride, grads + i * dim, dim, rate);
    }
}

PSC_MULTIVERSION
static void update_adagrad(bench_plain_t *plain, const uint32_t *rows, size_t n, const float *grads,
                           float rate)
{
    size_t dim = plain->dim;
    for (size_t i = 0; i < n; i++) {
        fetch(plain, rows, i, n, 2 * dim * sizeof(float), true);
        float *weights = plain->rows + (size_t)rows[i] * plain->stride;
        step_adagrad(weights, weights + dim, grads + i * dim, dim, rate);
    }
}

void bench_plain_update(bench_plain_t *plain, const uint32_t *rows, size_t n, const float *grads,
                        float rate)
{
    if (plain->step == BENCH_PLAIN_ADAGRAD)
        update_adagrad(plain, rows, n, grads, rate);
    else
        update_sgd(plain, rows, n, grads, rate);
}
