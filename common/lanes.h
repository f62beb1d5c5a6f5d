/*
 * Sixteen float lanes as two registers of eight, for the files that hold kernels; not for others.
 *
 * Eight lanes fill one AVX register; on lesser instruction sets the compiler splits them, with the
 * same bits. All of this is inlined into functions marked PSC_MULTIVERSION, hence pointers instead
 * of values: vectors never cross a call.
 *
 * The order of a sum over n products, on every instruction set: lane i mod 16 adds product i, in
 * order of i; then lanes fold, l with l + 8, l + 4, l + 2, l + 1.
 */
#ifndef COMMON_LANES_H
#define COMMON_LANES_H

#include "common/inline.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PSC_LANES 16

typedef float psc_v8_t __attribute__((vector_size(32)));
typedef float psc_v4_t __attribute__((vector_size(16)));
typedef int32_t psc_v8i_t __attribute__((vector_size(32)));

/* Eight floats anywhere in memory. */
typedef float psc_v8u_t __attribute__((vector_size(32), aligned(4), may_alias));

/* Before a loop whose constant count is at most 16: unrolled, so that small arrays of vectors
 * become registers. */
#if defined(__clang__)
#define PSC_UNROLL _Pragma("unroll")
#else
#define PSC_UNROLL _Pragma("GCC unroll 16")
#endif

/* A float in all eight lanes. */
#define PSC_SPLAT8(x) ((psc_v8_t){(x), (x), (x), (x), (x), (x), (x), (x)})
#define PSC_LOAD8(p) ((psc_v8_t) * (const psc_v8u_t *)(p))
#define PSC_STORE8(p, v) (*(psc_v8u_t *)(p) = (psc_v8u_t)(v))

/* Up to eight floats, the others 0. */
PSC_INLINE void psc_load8_part(psc_v8_t *v, const float *p, size_t n)
{
    float lanes[8] = {0};
    memcpy(lanes, p, n * sizeof *p);
    *v = PSC_LOAD8(lanes);
}

/* The sum of sixteen lanes: low holds 0 to 7, high 8 to 15. */
PSC_INLINE float psc_fold16(const psc_v8_t *low, const psc_v8_t *high)
{
    psc_v8_t s = *low + *high;
    psc_v4_t a = __builtin_shufflevector(s, s, 0, 1, 2, 3);
    psc_v4_t b = __builtin_shufflevector(s, s, 4, 5, 6, 7);
    a += b;
    a += __builtin_shufflevector(a, a, 2, 3, 2, 3);
    return a[0] + a[1];
}

/*
 * Six such sums at once, for a third of the instructions: out[i * stride + j] from low[i][j] and
 * high[i][j]. Halves of two registers are paired, then pairs of numbers, so every sum is folded in
 * the order above.
 */
PSC_INLINE void psc_fold16_2x3(psc_v8_t low[2][3], psc_v8_t high[2][3], float *out, size_t stride)
{
    psc_v8_t t[3]; /* four lanes of row 0, four of row 1 */
    PSC_UNROLL
    for (size_t j = 0; j < 3; j++) {
        psc_v8_t a = low[0][j] + high[0][j];
        psc_v8_t b = low[1][j] + high[1][j];
        t[j] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
               __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
    }
    psc_v8_t u = __builtin_shufflevector(t[0], t[1], 0, 1, 8, 9, 4, 5, 12, 13) +
                 __builtin_shufflevector(t[0], t[1], 2, 3, 10, 11, 6, 7, 14, 15);
    psc_v8_t v = t[2] + __builtin_shufflevector(t[2], t[2], 2, 3, 2, 3, 6, 7, 6, 7);
    psc_v8_t sums = __builtin_shufflevector(u, v, 0, 2, 8, 8, 4, 6, 12, 12) +
                    __builtin_shufflevector(u, v, 1, 3, 9, 9, 5, 7, 13, 13);
    psc_v4_t row0 = __builtin_shufflevector(sums, sums, 0, 1, 2, 3);
    psc_v4_t row1 = __builtin_shufflevector(sums, sums, 4, 5, 6, 7);
    memcpy(out, &row0, 3 * sizeof *out);
    memcpy(out + stride, &row1, 3 * sizeof *out);
}

#endif
