/*
 * Conversions of 16-bit floats, eight lanes at a time, by integer operations on the bits.
 *
 * A value is split into sign and magnitude; magnitudes of floats are ordered as integers are, so
 * rounding is an addition below the last kept bit and a shift, and a carry into the exponent is
 * what it should be. What is no plain number is chosen by masks, without branches. Subnormals of
 * binary16 alone need float arithmetic: adding 0.5 makes the processor round to a multiple of
 * 2^-24 (to nearest even, the default mode), and multiplying by 2^40 or 2^-24 is exact; lanes that
 * are not subnormal are 0 there. Lanes do not depend on each other, so the bits depend on no vector
 * width. A tail of less than eight goes through the same code, padded with zeros. The functions'
 * inner halves are inlined into those marked PSC_MULTIVERSION; they take pointers, since vectors
 * must not cross a call. tests/unit/common/test_halffloat.c holds a scalar form of each.
 * Cost: bf16 about 1 cycle a value and f16 about 2, with AVX2.
 */
#include "common/halffloat.h"

#include "common/lanes.h"
#include "common/vectors.h"

#define LANES 8u

typedef uint32_t words_t __attribute__((vector_size(32)));
typedef int32_t ints_t __attribute__((vector_size(32)));
typedef uint16_t halves_t __attribute__((vector_size(16)));
typedef int32_t ints_any_t __attribute__((vector_size(32), aligned(1), may_alias));
typedef uint16_t halves_any_t __attribute__((vector_size(16), aligned(1), may_alias));

#define INFINITE INT32_C(0x7f800000) /* and above it the NaNs */
#define MAGNITUDE INT32_C(0x7fffffff)

/* Eight halves in memory as integers, and back. */
#define LOAD_HALVES(p) __builtin_convertvector((halves_t) * (const halves_any_t *)(p), ints_t)
#define STORE_HALVES(p, v) (*(halves_any_t *)(p) = __builtin_convertvector((v), halves_t))
#define LOAD_INTS(p) ((ints_t) * (const ints_any_t *)(p))
#define STORE_INTS(p, v) (*(ints_any_t *)(p) = (v))
#define CHOOSE(mask, yes, no) (((mask) & (yes)) | (~(mask) & (no)))

/* Sums that may pass 2^31 are of words; signs that a shift spreads are masked afterwards. */

PSC_INLINE void bf16_decode8(uint8_t *out, const uint8_t *in)
{
    STORE_INTS(out, (ints_t)((words_t)LOAD_HALVES(in) << 16));
}

/* The 16 bits of a sign, and those of a magnitude: what was rounded, or what is not finite. */
PSC_INLINE void bf16_finish8(uint8_t *out, const ints_t *x, const ints_t *rounded)
{
    ints_t magnitude = *x & MAGNITUDE;
    ints_t top = magnitude >> 16;
    ints_t lost = (magnitude > INFINITE) & (top == 0x7f80); /* a NaN whose payload was below */
    ints_t finite = CHOOSE(*rounded > 0x7f7f, 0x7f7f - (ints_t){0}, *rounded);
    ints_t half = CHOOSE(magnitude >= INFINITE, top | (lost & 0x40), finite);
    STORE_HALVES(out, half | ((*x >> 16) & 0x8000));
}

PSC_INLINE void bf16_encode8(uint8_t *out, const uint8_t *in, const uint8_t *random)
{
    (void)random;
    ints_t x = LOAD_INTS(in);
    ints_t magnitude = x & MAGNITUDE;
    words_t sum = (words_t)magnitude + 0x7fff + (words_t)((magnitude >> 16) & 1);
    ints_t rounded = (ints_t)(sum >> 16);
    bf16_finish8(out, &x, &rounded);
}

PSC_INLINE void bf16_stochastic8(uint8_t *out, const uint8_t *in, const uint8_t *random)
{
    ints_t x = LOAD_INTS(in);
    words_t sum = (words_t)(x & MAGNITUDE) + (words_t)LOAD_HALVES(random);
    ints_t rounded = (ints_t)(sum >> 16);
    bf16_finish8(out, &x, &rounded);
}

PSC_INLINE void f16_decode8(uint8_t *out, const uint8_t *in)
{
    ints_t h = LOAD_HALVES(in);
    ints_t magnitude = (h & 0x7fff) << 13;
    ints_t exponent = magnitude & 0x0f800000;
    ints_t small = exponent == 0;
    ints_t special = exponent == 0x0f800000;
    /* The exponent's bias is 15 there and 127 here. */
    ints_t normal = magnitude + 0x38000000 + (special & 0x38000000);
    psc_v8_t scaled = __builtin_convertvector(h & 0x3ff & small, psc_v8_t) * 0x1p-24f;
    ints_t bits = CHOOSE(small, (ints_t)scaled, normal);
    STORE_INTS(out, bits | (ints_t)((words_t)(h & 0x8000) << 16));
}

/* As for bf16; small: rounded magnitudes below 2^-14, normal: the others. */
PSC_INLINE void f16_finish8(uint8_t *out, const ints_t *x, const ints_t *small,
                            const ints_t *normal)
{
    ints_t magnitude = *x & MAGNITUDE;
    ints_t payload = (magnitude >> 13) & 0x3ff;
    ints_t lost = (magnitude > INFINITE) & (payload == 0);
    ints_t rounded = CHOOSE(magnitude < 0x38800000, *small, *normal);
    ints_t finite = CHOOSE(rounded > 0x7bff, 0x7bff - (ints_t){0}, rounded);
    ints_t half = CHOOSE(magnitude >= INFINITE, payload | 0x7c00 | (lost & 0x200), finite);
    STORE_HALVES(out, half | ((*x >> 16) & 0x8000));
}

PSC_INLINE void f16_encode8(uint8_t *out, const uint8_t *in, const uint8_t *random)
{
    (void)random;
    ints_t x = LOAD_INTS(in);
    ints_t magnitude = x & MAGNITUDE;
    words_t sum = (words_t)magnitude + 0xfff + (words_t)((magnitude >> 13) & 1);
    ints_t normal = (ints_t)(sum >> 13) - 0x1c000;
    psc_v8_t below = (psc_v8_t)(magnitude & (magnitude < 0x38800000));
    ints_t small = (ints_t)(below + 0.5f) - 0x3f000000;
    f16_finish8(out, &x, &small, &normal);
}

PSC_INLINE void f16_stochastic8(uint8_t *out, const uint8_t *in, const uint8_t *random)
{
    ints_t x = LOAD_INTS(in);
    ints_t magnitude = x & MAGNITUDE;
    ints_t r = LOAD_HALVES(random);
    ints_t normal = (ints_t)(((words_t)magnitude + (words_t)(r >> 3)) >> 13) - 0x1c000;
    psc_v8_t below = (psc_v8_t)(magnitude & (magnitude < 0x38800000));
    ints_t small = (__builtin_convertvector(below * 0x1p40f, ints_t) + r) >> 16;
    f16_finish8(out, &x, &small, &normal);
}

typedef void (*encode8_fn)(uint8_t *out, const uint8_t *in, const uint8_t *random);
typedef void (*decode8_fn)(uint8_t *out, const uint8_t *in);

PSC_INLINE void decode_all(decode8_fn decode8, uint8_t *out, const uint8_t *in, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        decode8(out + 4 * i, in + 2 * i);
    if (i < n) {
        uint8_t halves[2 * LANES] = {0};
        uint8_t floats[4 * LANES];
        memcpy(halves, in + 2 * i, 2 * (n - i));
        decode8(floats, halves);
        memcpy(out + 4 * i, floats, 4 * (n - i));
    }
}

PSC_INLINE void encode_all(encode8_fn encode8, uint8_t *out, const uint8_t *in,
                           const uint8_t *random, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        encode8(out + 2 * i, in + 4 * i, random + 2 * i);
    if (i < n) {
        uint8_t floats[4 * LANES] = {0};
        uint8_t bits[2 * LANES] = {0};
        uint8_t halves[2 * LANES];
        memcpy(floats, in + 4 * i, 4 * (n - i));
        memcpy(bits, random + 2 * i, 2 * (n - i));
        encode8(halves, floats, bits);
        memcpy(out + 2 * i, halves, 2 * (n - i));
    }
}

PSC_MULTIVERSION
void psc_bf16_decode(void *floats_out, const void *halves, size_t n)
{
    decode_all(bf16_decode8, floats_out, halves, n);
}

PSC_MULTIVERSION
void psc_f16_decode(void *floats_out, const void *halves, size_t n)
{
    decode_all(f16_decode8, floats_out, halves, n);
}

/* Rounding to nearest reads no random bits: the values stand in for them. */
PSC_MULTIVERSION
void psc_bf16_encode(void *halves_out, const void *floats, size_t n)
{
    encode_all(bf16_encode8, halves_out, floats, floats, n);
}

PSC_MULTIVERSION
void psc_f16_encode(void *halves_out, const void *floats, size_t n)
{
    encode_all(f16_encode8, halves_out, floats, floats, n);
}

PSC_MULTIVERSION
void psc_bf16_encode_stochastic(void *halves_out, const void *floats, const void *random, size_t n)
{
    encode_all(bf16_stochastic8, halves_out, floats, random, n);
}

PSC_MULTIVERSION
void psc_f16_encode_stochastic(void *halves_out, const void *floats, const void *random, size_t n)
{
    encode_all(f16_stochastic8, halves_out, floats, random, n);
}

/* infinite: the bits of infinity. A half whose magnitude is not below it is not finite. */
PSC_INLINE bool all_below(const uint8_t *halves, size_t n, uint16_t infinite)
{
    typedef int16_t mask_t __attribute__((vector_size(16)));
    mask_t bad = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        bad |= ((halves_t) * (const halves_any_t *)(halves + 2 * i) & 0x7fff) >= infinite;
    for (; i < n; i++) {
        uint16_t half;
        memcpy(&half, halves + 2 * i, sizeof half);
        bad[0] |= (int16_t) - ((half & 0x7fff) >= infinite);
    }
    int16_t any = 0;
    for (size_t l = 0; l < LANES; l++)
        any = (int16_t)(any | bad[l]);
    return any == 0;
}

PSC_MULTIVERSION
bool psc_bf16_all_finite(const void *halves, size_t n)
{
    return all_below(halves, n, 0x7f80);
}

PSC_MULTIVERSION
bool psc_f16_all_finite(const void *halves, size_t n)
{
    return all_below(halves, n, 0x7c00);
}
