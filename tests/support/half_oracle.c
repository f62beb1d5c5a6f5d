/* The definition that common/halffloat and tables of 16 bits are compared with. */
#include "tests/support/half_oracle.h"

#include <math.h>

static int bias_of(half_format_t f)
{
    return (1 << (f.exponent_bits - 1)) - 1;
}

double half_value(half_format_t f, uint32_t half)
{
    int exponent = (int)(half & 0x7fff) >> f.fraction_bits;
    int fraction = (int)half & ((1 << f.fraction_bits) - 1);
    double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == (1 << f.exponent_bits) - 1)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, 1 - bias_of(f) - f.fraction_bits);
    return sign * ldexp((1 << f.fraction_bits) + fraction, exponent - bias_of(f) - f.fraction_bits);
}

uint32_t half_largest(half_format_t f)
{
    return (((1u << f.exponent_bits) - 1) << f.fraction_bits) - 1;
}

uint32_t half_below(half_format_t f, double magnitude)
{
    uint32_t low = 0;
    uint32_t high = half_largest(f) + 1;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (half_value(f, middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint16_t sign_and(float x, uint32_t magnitude)
{
    return (uint16_t)(magnitude | (signbit(x) != 0 ? 0x8000 : 0));
}

uint16_t half_nearest(half_format_t f, float x)
{
    double magnitude = fabs((double)x);
    uint32_t below = half_below(f, magnitude);
    if (below == half_largest(f))
        return sign_and(x, below);
    double down = magnitude - half_value(f, below);
    double up = half_value(f, below + 1) - magnitude;
    return sign_and(x, down < up || (down == up && below % 2 == 0) ? below : below + 1);
}

uint16_t half_stochastic(half_format_t f, float x, uint32_t r)
{
    double magnitude = fabs((double)x);
    uint32_t below = half_below(f, magnitude);
    if (below == half_largest(f))
        return sign_and(x, below);
    double step = half_value(f, below + 1) - half_value(f, below);
    double distance = floor((magnitude - half_value(f, below)) / step * 65536);
    if (f.fraction_bits == 10 && magnitude >= 0x1p-14)
        r = r / 8 * 8; /* 13 bits are cut off a normal number */
    return sign_and(x, distance + r >= 65536 ? below + 1 : below);
}
