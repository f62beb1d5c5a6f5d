/*
 * Rows of 8-bit integers under one scale: float32 to a quarter of the bytes, and back. The same
 * bits on every processor.
 *
 *     uint8_t row[PSC_INT8_ROW_BYTES(DIM)];
 *     psc_int8_row_encode(row, floats, DIM);
 *     psc_int8_row_decode(floats, row, DIM);
 *
 * A row is its scale (float32) and behind it n integers q of -127 to 127; value i is scale * q[i].
 * The scale is max|x| / 127, rounded up to 17 significant bits (down where 127 times it would
 * overflow), so that scale * q needs no rounding and the largest value is never beyond 127. A row
 * of zeros has scale 0; the sign of a zero is lost.
 *
 * Error: to the nearest, half a scale a value and 2^-16 of one; stochastically, less than one
 * scale. So a value is off by 1/254 of the row's largest at most, whatever its own size. Values
 * that a row decoded to encode to the same row again, if one of its q is 127 or -127.
 *
 * Non-finite: a row with an infinity or a NaN becomes one of scale NaN, all of whose values decode
 * to NaN. Finite rows decode to finite values.
 *
 * Arrays may be unaligned and must not overlap; n may be 0 and need not be a multiple of anything.
 * Any thread.
 */
#ifndef COMMON_INT8_ROW_H
#define COMMON_INT8_ROW_H

#include <stdbool.h>
#include <stddef.h>

#define PSC_INT8_SCALE_BYTES sizeof(float)
#define PSC_INT8_ROW_BYTES(n) (PSC_INT8_SCALE_BYTES + (n))

/* floats_out [n] of float. Any scale and any q is taken: -128 is 128 scales below 0. */
void psc_int8_row_decode(void *floats_out, const void *row, size_t n);

/* To the nearest; ties to even, in float32's quotient of value and scale. */
void psc_int8_row_encode(void *row_out, const void *floats, size_t n);

/*
 * random [n]: 16 bits for each value. A value between two neighbours becomes the one larger in size
 * with the probability of its distance to the smaller, cut to 2^-16 of a scale: unbiased but for
 * that.
 * Source: Alistarh et al. 2017, "QSGD: communication-efficient SGD via gradient quantization and
 * encoding", section 3.1, with the largest value instead of the norm.
 */
void psc_int8_row_encode_stochastic(void *row_out, const void *floats, const void *random,
                                    size_t n);

/* Whether all n values of a row decode to finite floats. */
bool psc_int8_row_all_finite(const void *row, size_t n);

#endif
