/*
 * 16-bit floats by their definition: sign, exponent and fraction as IEEE 754 says, computed in
 * double with ldexp and a search over all values. Slow, and knows no bit tricks.
 */
#ifndef TESTS_SUPPORT_HALF_ORACLE_H
#define TESTS_SUPPORT_HALF_ORACLE_H

#include <stdint.h>

typedef struct half_format {
    int exponent_bits, fraction_bits;
} half_format_t;

#define HALF_BF16 ((half_format_t){8, 7})
#define HALF_F16 ((half_format_t){5, 10})

/* The value of a half; NaN for NaNs. */
double half_value(half_format_t f, uint32_t half);

/* The largest finite one. */
uint32_t half_largest(half_format_t f);

/* The half next to a finite magnitude towards 0. */
uint32_t half_below(half_format_t f, double magnitude);

/* To the nearest, ties to even; finite x, which saturates. */
uint16_t half_nearest(half_format_t f, float x);

/* Upwards in size when the distance to the lower neighbour, in 65,536ths and cut, and r reach the
 * upper; finite x, which saturates. */
uint16_t half_stochastic(half_format_t f, float x, uint32_t r);

#endif
