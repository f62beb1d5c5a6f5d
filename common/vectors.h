/*
 * Arithmetic on float vectors, with the same bits on every processor.
 *
 * Sums run in sixteen fixed lanes (common/lanes.h) whatever the instruction set; products and sums
 * are rounded one by one (no fused multiply-add). n may be 0 and need not be a multiple of
 * anything; pointers need no alignment beyond a float's. NaN and infinities follow IEEE 754. Any
 * thread.
 */
#ifndef COMMON_VECTORS_H
#define COMMON_VECTORS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Put before the definition of a function whose loops gain from wide registers: it is compiled once
 * per instruction set and chosen when the program is loaded. Sanitizers that are not ready by then
 * switch it off. So does clang before 18, where other files would call a name that does not exist.
 */
#if defined(PSC_NO_MULTIVERSION) || !defined(__x86_64__) ||                                        \
    (defined(__clang__) && __clang_major__ < 18)
#define PSC_MULTIVERSION
#else
#define PSC_MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
#endif

/* Sum of a[i] * b[i]. */
float psc_vector_dot(const float *a, const float *b, size_t n);

/* Sum of a[i] * a[i]; the bits of psc_vector_dot(a, a, n). */
float psc_vector_squared_norm(const float *a, size_t n);

/* y[i] += x[i]. x and y are the same or do not overlap; so too below. */
void psc_vector_add(float *y, const float *x, size_t n);

/* out[i] = a[i] + b[i]. Are all within limit, as psc_vector_all_within says? out may be a or b. */
bool psc_vector_sum(float *out, const float *a, const float *b, size_t n, float limit);

/* out[i] = a[i] - b[i]. out may be a or b. */
void psc_vector_subtract(float *out, const float *a, const float *b, size_t n);

/* y[i] += factor * x[i], rounded twice. */
void psc_vector_axpy(float *y, float factor, const float *x, size_t n);

/* y[i] *= factor. */
void psc_vector_scale(float *y, float factor, size_t n);

/* y[i] put into [low, high]; low <= high, neither a NaN. A NaN stays as it is. */
void psc_vector_clamp(float *y, float low, float high, size_t n);

/* No NaN and no infinity among n floats? True for n = 0. */
bool psc_vector_all_finite(const float *a, size_t n);

/* All of n floats between -limit and limit, both excluded? A NaN is not. limit > 0, or infinite.
 * True for n = 0. */
bool psc_vector_all_within(const float *a, size_t n, float limit);

/*
 * out[q * out_stride + r] = dot of query q and row r over n floats, with the bits of
 * psc_vector_dot. Shapes: queries [n_queries x query_stride], rows [n_rows x row_stride], out
 * [n_queries x out_stride]. Fastest when n is a multiple of 16 and the rows of one call fit the
 * cache.
 */
void psc_vector_dot_many(const float *queries, size_t query_stride, size_t n_queries,
                         const float *rows, size_t row_stride, size_t n_rows, size_t n, float *out,
                         size_t out_stride);

#endif
