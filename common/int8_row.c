/*
 * Rows of 8-bit integers, eight lanes of floats and sixteen of integers at a time: bytes are
 * widened and narrowed by way of 16 bits, which processors have instructions for.
 *
 * One pass finds the largest magnitude, whose bits are ordered as floats are; a second divides by
 * the scale and rounds. The quotient is at most 127 (and a little in the one case where the scale
 * was rounded down, hence the clamp), so adding 1.5 * 2^23 rounds it to the nearest integer, ties
 * to even, and leaves that in the lower bits. Stochastic rounding works on magnitudes in 65,536ths,
 * which is exact up to the cut. Scale times q is exact, since 17 and 7 bits are 24. Lanes do not
 * depend on each other, so the bits depend on no vector width; a tail goes through the same code,
 * padded with zeros. A row of zeros is divided by 1 instead of 0.
 *
 * Helpers take pointers and are inlined into functions marked PSC_MULTIVERSION, since vectors must
 * not cross a call. tests/unit/common/test_int8_row.c holds a scalar form in double.
 * Cost with AVX2 or more: 0.4 cycles a value to decode, as much as a copy, 1.1 to encode and 1.5
 * stochastically.
 */
#include "common/int8_row.h"

#include "common/lanes.h"
#include "common/vectors.h"

#include <float.h>
#include <math.h>

#define LANES 8u
#define STEP (2 * LANES) /* values that are 16 bytes as integers: what processors convert at once */

typedef int8_t bytes_t __attribute__((vector_size(16)));
typedef int16_t shorts_t __attribute__((vector_size(16)));
typedef int16_t wide_shorts_t __attribute__((vector_size(32)));
typedef uint16_t halves_t __attribute__((vector_size(16)));
typedef float floats_any_t __attribute__((vector_size(32), aligned(1), may_alias));
typedef int8_t bytes_any_t __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint16_t halves_any_t __attribute__((vector_size(16), aligned(1), may_alias));

#define LOAD_FLOATS(p) ((psc_v8_t) * (const floats_any_t *)(p))
#define CHOOSE(mask, yes, no) (((mask) & (yes)) | (~(mask) & (no)))

#define MAGNITUDE INT32_C(0x7fffffff)
#define INFINITE INT32_C(0x7f800000) /* and above it the NaNs */
#define LARGEST INT32_C(127)
#define LOW_BITS UINT32_C(0x7f) /* of a float's 24, those that a scale does not have */
#define ROUNDING 12582912.0f    /* 1.5 * 2^23 */
#define ROUNDING_BITS INT32_C(0x4b400000)

/* Eight values, or the last few and zeros. */
PSC_INLINE void load_part(psc_v8_t *x, const uint8_t *floats, size_t n)
{
    float padded[LANES] = {0};
    memcpy(padded, floats, n * sizeof *padded);
    *x = LOAD_FLOATS(padded);
}

/* Bits of the largest magnitude; INFINITE or above when a value is not finite. */
PSC_INLINE int32_t largest_of(const uint8_t *floats, size_t n)
{
    psc_v8i_t largest = {0};
    for (size_t i = 0; i < n; i += LANES) {
        psc_v8_t x;
        if (i + LANES <= n)
            x = LOAD_FLOATS(floats + sizeof(float) * i);
        else
            load_part(&x, floats + sizeof(float) * i, n - i);
        psc_v8i_t magnitude = (psc_v8i_t)x & MAGNITUDE;
        largest = CHOOSE(magnitude > largest, magnitude, largest);
    }
    int32_t most = 0;
    for (size_t l = 0; l < LANES; l++)
        most = largest[l] > most ? largest[l] : most;
    return most;
}

/* The scale of a row with this largest magnitude, which is finite. */
static float scale_of(int32_t largest)
{
    if (largest == 0)
        return 0;
    float most, scale;
    memcpy(&most, &largest, sizeof most);
    scale = most / (float)LARGEST;
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    bits = (bits + LOW_BITS) & ~LOW_BITS;
    if (bits == 0)
        bits = LOW_BITS + 1;
    memcpy(&scale, &bits, sizeof scale);
    if (scale <= FLT_MAX / (float)LARGEST)
        return scale;
    bits -= LOW_BITS + 1;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* Eight values to integers. random: 16 bits a value, or NULL: to the nearest. */
PSC_INLINE void encode8(shorts_t *q_out, const uint8_t *in, const uint8_t *random, float divisor)
{
    psc_v8_t quotient = LOAD_FLOATS(in) / PSC_SPLAT8(divisor);
    psc_v8i_t q;
    if (random == NULL) {
        q = (psc_v8i_t)(quotient + ROUNDING) - ROUNDING_BITS;
        q = CHOOSE(q > LARGEST, LARGEST - (psc_v8i_t){0}, q);
        q = CHOOSE(q < -LARGEST, -LARGEST - (psc_v8i_t){0}, q);
    } else {
        psc_v8i_t sign = (psc_v8i_t)quotient >> 31;
        psc_v8_t magnitude = (psc_v8_t)((psc_v8i_t)quotient & MAGNITUDE);
        psc_v8i_t r = __builtin_convertvector((halves_t) * (const halves_any_t *)random, psc_v8i_t);
        q = (__builtin_convertvector(magnitude * 0x1p16f, psc_v8i_t) + r) >> 16;
        q = CHOOSE(q > LARGEST, LARGEST - (psc_v8i_t){0}, q);
        q = (q ^ sign) - sign;
    }
    *q_out = __builtin_convertvector(q, shorts_t);
}

PSC_INLINE void encode16(uint8_t *out, const uint8_t *in, const uint8_t *random, float divisor)
{
    shorts_t low, high;
    encode8(&low, in, random, divisor);
    encode8(&high, in + sizeof(float) * LANES, random != NULL ? random + 2 * LANES : NULL, divisor);
    wide_shorts_t both =
        __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    *(bytes_any_t *)out = (bytes_any_t) __builtin_convertvector(both, bytes_t);
}

PSC_INLINE void decode16(uint8_t *out, const uint8_t *in, float scale)
{
    wide_shorts_t both =
        __builtin_convertvector((bytes_t) * (const bytes_any_t *)in, wide_shorts_t);
    shorts_t low = __builtin_shufflevector(both, both, 0, 1, 2, 3, 4, 5, 6, 7);
    shorts_t high = __builtin_shufflevector(both, both, 8, 9, 10, 11, 12, 13, 14, 15);
    psc_v8i_t q[2] = {__builtin_convertvector(low, psc_v8i_t),
                      __builtin_convertvector(high, psc_v8i_t)};
    floats_any_t *floats = (floats_any_t *)out;
    floats[0] = __builtin_convertvector(q[0], psc_v8_t) * PSC_SPLAT8(scale);
    floats[1] = __builtin_convertvector(q[1], psc_v8_t) * PSC_SPLAT8(scale);
}

/* stochastic is a constant after inlining; random is not read without it. */
PSC_INLINE void encode(uint8_t *row, const uint8_t *floats, const uint8_t *random, size_t n,
                       bool stochastic)
{
    const int32_t largest = largest_of(floats, n);
    uint8_t *out = row + PSC_INT8_SCALE_BYTES;
    if (largest >= INFINITE) {
        const float none = NAN;
        memcpy(row, &none, sizeof none);
        memset(out, 0, n);
        return;
    }
    const float scale = scale_of(largest);
    memcpy(row, &scale, sizeof scale);
    const float divisor = scale > 0 ? scale : 1.0f;
    size_t i = 0;
    for (; i + STEP <= n; i += STEP)
        encode16(out + i, floats + sizeof(float) * i, stochastic ? random + 2 * i : NULL, divisor);
    if (i < n) {
        uint8_t padded[sizeof(float) * STEP] = {0}, bits[2 * STEP] = {0}, q[STEP];
        memcpy(padded, floats + sizeof(float) * i, sizeof(float) * (n - i));
        if (stochastic)
            memcpy(bits, random + 2 * i, 2 * (n - i));
        encode16(q, padded, stochastic ? bits : NULL, divisor);
        memcpy(out + i, q, n - i);
    }
}

PSC_MULTIVERSION
void psc_int8_row_encode(void *row_out, const void *floats, size_t n)
{
    encode(row_out, floats, floats, n, false);
}

PSC_MULTIVERSION
void psc_int8_row_encode_stochastic(void *row_out, const void *floats, const void *random, size_t n)
{
    encode(row_out, floats, random, n, true);
}

PSC_MULTIVERSION
void psc_int8_row_decode(void *floats_out, const void *row, size_t n)
{
    const uint8_t *in = (const uint8_t *)row + PSC_INT8_SCALE_BYTES;
    uint8_t *out = floats_out;
    float scale;
    memcpy(&scale, row, sizeof scale);
    size_t i = 0;
    for (; i + STEP <= n; i += STEP)
        decode16(out + sizeof(float) * i, in + i, scale);
    if (i < n) {
        uint8_t padded[STEP] = {0}, floats[sizeof(float) * STEP];
        memcpy(padded, in + i, n - i);
        decode16(floats, padded, scale);
        memcpy(out + sizeof(float) * i, floats, sizeof(float) * (n - i));
    }
}

bool psc_int8_row_all_finite(const void *row, size_t n)
{
    const uint8_t *q = (const uint8_t *)row + PSC_INT8_SCALE_BYTES;
    float scale;
    memcpy(&scale, row, sizeof scale);
    if (!isfinite(scale))
        return n == 0;
    bool finite = true;
    if (!isfinite(scale * -128.0f)) {
        for (size_t i = 0; i < n; i++)
            finite = finite && isfinite((float)(int8_t)q[i] * scale);
    }
    return finite;
}
