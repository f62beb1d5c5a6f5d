/*
 * 16-bit floats in memory: bfloat16 (8 bits of exponent, 7 of fraction) and IEEE 754's binary16 (5
 * and 10), to float32 and back. The same bits on every processor.
 *
 *     psc_bf16_decode(weights, row, dim);
 *     ...                                        // a step on float32
 *     psc_bf16_encode_stochastic(row, weights, random, dim);
 *
 * Decoding is exact. Encoding, in both ways of rounding: a value that can be represented stays as
 * it is, its sign always; a finite value beyond the largest finite one (3.39e38, 65,504) becomes
 * that one and never an infinity; infinities stay infinities; a NaN stays a NaN, with the upper
 * bits of its payload. So every 16-bit pattern survives decoding and encoding.
 *
 * Stochastic rounding adds 16 random bits below the last kept one and cuts: a value between two
 * neighbours becomes the upper in size with the probability of its distance to the lower. That is
 * unbiased: exactly so, except for binary16's subnormals (below 2^-14), whose distance is cut to
 * multiples of 2^-40, and beyond the largest value.
 *
 * Arrays may be unaligned and must not overlap; n may be 0 and need not be a multiple of anything.
 * Any thread.
 */
#ifndef COMMON_HALFFLOAT_H
#define COMMON_HALFFLOAT_H

#include <stdbool.h>
#include <stddef.h>

/* floats_out [n] of float, halves [n] of 16 bits each. */
void psc_bf16_decode(void *floats_out, const void *halves, size_t n);
void psc_f16_decode(void *floats_out, const void *halves, size_t n);

/* To the nearest, ties to even. */
void psc_bf16_encode(void *halves_out, const void *floats, size_t n);
void psc_f16_encode(void *halves_out, const void *floats, size_t n);

/*
 * random [n]: 16 bits for each value, as psc_rng_row_blocks gives them. With all of them 0
 * magnitudes are rounded down.
 * Source: Gupta et al. 2015, "Deep learning with limited numerical precision", section 3.2.
 */
void psc_bf16_encode_stochastic(void *halves_out, const void *floats, const void *random, size_t n);
void psc_f16_encode_stochastic(void *halves_out, const void *floats, const void *random, size_t n);

/* No infinity and no NaN among n halves? True for n = 0. */
bool psc_bf16_all_finite(const void *halves, size_t n);
bool psc_f16_all_finite(const void *halves, size_t n);

#endif
