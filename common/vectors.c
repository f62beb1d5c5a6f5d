/*
 * Vector kernels. Written with the compiler's vector types, so that one text serves every
 * instruction set and the order of sums stands in the code instead of in an optimiser's choice.
 *
 * Bits: lane i mod 16 adds product i, see common/lanes.h. A tail of less than sixteen is padded
 * with zeros; that changes no bit, since a lane starts at +0 and so never holds -0, to which alone
 * adding +0 makes a difference. tests/unit/common/test_vectors.c holds the scalar form of each
 * function.
 *
 * psc_vector_dot_many keeps 2 x 3 sums of sixteen lanes in twelve of AVX's sixteen registers, which
 * keeps both multipliers and both adders of a core busy; loads stay below two per cycle.
 */
#include "common/vectors.h"

#include "common/lanes.h"

#include <string.h>

/* Sums of nq queries times nr rows; nq and nr are constants after inlining. */
PSC_INLINE void dot_block(const float *const *q, size_t nq, const float *const *r, size_t nr,
                          size_t n, float *out, size_t out_stride)
{
    psc_v8_t low[2][3];
    psc_v8_t high[2][3];
    PSC_UNROLL
    for (size_t i = 0; i < 2; i++) {
        PSC_UNROLL
        for (size_t j = 0; j < 3; j++)
            low[i][j] = high[i][j] = PSC_SPLAT8(0.0f);
    }
    size_t k = 0;
    for (; k + PSC_LANES <= n; k += PSC_LANES) {
        PSC_UNROLL
        for (size_t i = 0; i < nq; i++) {
            psc_v8_t a = PSC_LOAD8(q[i] + k);
            PSC_UNROLL
            for (size_t j = 0; j < nr; j++)
                low[i][j] += a * PSC_LOAD8(r[j] + k);
            a = PSC_LOAD8(q[i] + k + 8);
            PSC_UNROLL
            for (size_t j = 0; j < nr; j++)
                high[i][j] += a * PSC_LOAD8(r[j] + k + 8);
        }
    }
    if (k < n) {
        size_t n_low = n - k < 8 ? n - k : 8;
        PSC_UNROLL
        for (size_t i = 0; i < nq; i++) {
            PSC_UNROLL
            for (size_t j = 0; j < nr; j++) {
                psc_v8_t a;
                psc_v8_t b;
                psc_load8_part(&a, q[i] + k, n_low);
                psc_load8_part(&b, r[j] + k, n_low);
                low[i][j] += a * b;
                psc_load8_part(&a, q[i] + k + n_low, n - k - n_low);
                psc_load8_part(&b, r[j] + k + n_low, n - k - n_low);
                high[i][j] += a * b;
            }
        }
    }
    if (nq == 2 && nr == 3) {
        psc_fold16_2x3(low, high, out, out_stride);
        return;
    }
    PSC_UNROLL
    for (size_t i = 0; i < nq; i++) {
        PSC_UNROLL
        for (size_t j = 0; j < nr; j++)
            out[i * out_stride + j] = psc_fold16(&low[i][j], &high[i][j]);
    }
}

PSC_MULTIVERSION
float psc_vector_dot(const float *a, const float *b, size_t n)
{
    float sum;
    dot_block(&a, 1, &b, 1, n, &sum, 1);
    return sum;
}

PSC_MULTIVERSION
float psc_vector_squared_norm(const float *a, size_t n)
{
    float sum;
    dot_block(&a, 1, &a, 1, n, &sum, 1);
    return sum;
}

/* nq queries against all rows, by threes. */
PSC_INLINE void dot_strip(const float *const *q, size_t nq, const float *rows, size_t row_stride,
                          size_t n_rows, size_t n, float *out, size_t out_stride)
{
    size_t r = 0;
    for (; r + 3 <= n_rows; r += 3) {
        const float *row = rows + r * row_stride;
        const float *three[3] = {row, row + row_stride, row + 2 * row_stride};
        dot_block(q, nq, three, 3, n, out + r, out_stride);
    }
    for (; r < n_rows; r++) {
        const float *row = rows + r * row_stride;
        dot_block(q, nq, &row, 1, n, out + r, out_stride);
    }
}

PSC_MULTIVERSION
void psc_vector_dot_many(const float *queries, size_t query_stride, size_t n_queries,
                         const float *rows, size_t row_stride, size_t n_rows, size_t n, float *out,
                         size_t out_stride)
{
    size_t q = 0;
    for (; q + 2 <= n_queries; q += 2) {
        const float *two[2] = {queries + q * query_stride, queries + (q + 1) * query_stride};
        dot_strip(two, 2, rows, row_stride, n_rows, n, out + q * out_stride, out_stride);
    }
    if (q < n_queries) {
        const float *one = queries + q * query_stride;
        dot_strip(&one, 1, rows, row_stride, n_rows, n, out + q * out_stride, out_stride);
    }
}

PSC_MULTIVERSION
void psc_vector_add(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        PSC_STORE8(y + i, PSC_LOAD8(y + i) + PSC_LOAD8(x + i));
    for (; i < n; i++)
        y[i] += x[i];
}

PSC_MULTIVERSION
void psc_vector_subtract(float *out, const float *a, const float *b, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        PSC_STORE8(out + i, PSC_LOAD8(a + i) - PSC_LOAD8(b + i));
    for (; i < n; i++)
        out[i] = a[i] - b[i];
}

PSC_MULTIVERSION
void psc_vector_axpy(float *y, float factor, const float *x, size_t n)
{
    psc_v8_t f = PSC_SPLAT8(factor);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        PSC_STORE8(y + i, PSC_LOAD8(y + i) + f * PSC_LOAD8(x + i));
    for (; i < n; i++) {
        float product = factor * x[i];
        y[i] += product;
    }
}

PSC_MULTIVERSION
void psc_vector_scale(float *y, float factor, size_t n)
{
    psc_v8_t f = PSC_SPLAT8(factor);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        PSC_STORE8(y + i, PSC_LOAD8(y + i) * f);
    for (; i < n; i++)
        y[i] *= factor;
}

/* v where the comparison's mask is all ones, else w. */
#define CHOOSE8(mask, v, w) ((psc_v8_t)(((mask) & (psc_v8i_t)(v)) | (~(mask) & (psc_v8i_t)(w))))

PSC_MULTIVERSION
void psc_vector_clamp(float *y, float low, float high, size_t n)
{
    psc_v8_t lowest = PSC_SPLAT8(low);
    psc_v8_t highest = PSC_SPLAT8(high);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        psc_v8_t v = PSC_LOAD8(y + i);
        v = CHOOSE8(v < lowest, lowest, v);
        v = CHOOSE8(v > highest, highest, v);
        PSC_STORE8(y + i, v);
    }
    for (; i < n; i++)
        y[i] = y[i] < low ? low : y[i] > high ? high : y[i];
}

/* A float is finite when its exponent bits are not all ones. */
#define EXPONENT INT32_C(0x7f800000)

PSC_INLINE bool is_zero(const psc_v8i_t *v)
{
    int32_t any = 0;
    for (int lane = 0; lane < 8; lane++)
        any |= (*v)[lane];
    return any == 0;
}

PSC_MULTIVERSION
bool psc_vector_all_finite(const float *a, size_t n)
{
    psc_v8i_t bad = {0};
    const psc_v8i_t mask = {EXPONENT, EXPONENT, EXPONENT, EXPONENT,
                            EXPONENT, EXPONENT, EXPONENT, EXPONENT};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        bad |= ((psc_v8i_t)PSC_LOAD8(a + i) & mask) == mask;
    if (i < n) {
        psc_v8_t tail;
        psc_load8_part(&tail, a + i, n - i);
        bad |= ((psc_v8i_t)tail & mask) == mask;
    }
    return is_zero(&bad);
}

/* Without their signs, floats are in the order of their bits. Sets lanes in bad. */
PSC_INLINE void find_beyond(psc_v8i_t *bad, const psc_v8_t *v, float limit)
{
    int32_t bits;
    memcpy(&bits, &limit, sizeof bits);
    const psc_v8i_t most = {bits, bits, bits, bits, bits, bits, bits, bits};
    const psc_v8i_t mask = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX,
                            INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    *bad |= ((psc_v8i_t)*v & mask) >= most;
}

PSC_MULTIVERSION
bool psc_vector_all_within(const float *a, size_t n, float limit)
{
    psc_v8i_t bad = {0};
    psc_v8_t v;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        v = PSC_LOAD8(a + i);
        find_beyond(&bad, &v, limit);
    }
    if (i < n) {
        psc_load8_part(&v, a + i, n - i);
        find_beyond(&bad, &v, limit);
    }
    return is_zero(&bad);
}

PSC_MULTIVERSION
bool psc_vector_sum(float *out, const float *a, const float *b, size_t n, float limit)
{
    psc_v8i_t bad = {0};
    psc_v8_t v;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        v = PSC_LOAD8(a + i) + PSC_LOAD8(b + i);
        PSC_STORE8(out + i, v);
        find_beyond(&bad, &v, limit);
    }
    if (i < n) {
        psc_v8_t w;
        psc_load8_part(&v, a + i, n - i);
        psc_load8_part(&w, b + i, n - i);
        v += w;
        memcpy(out + i, &v, (n - i) * sizeof *out);
        find_beyond(&bad, &v, limit);
    }
    return is_zero(&bad);
}
