/*
 * The table of precisions. float32 is copied; 16-bit floats are common/halffloat's.
 *
 * A new one is an entry of psp_precision_t, a line below and its kernels. Neighbours are found by
 * rounding to the nearest and, where that went the wrong way, stepping the magnitude's bits by one:
 * the bits of floats of one sign are ordered as the floats are. Threads: all is const.
 */
#include "ps/table/precision.h"

#include "common/halffloat.h"

#include <math.h>
#include <string.h>

static void copy(void *out, const void *in, size_t n)
{
    memcpy(out, in, n * sizeof(float));
}

static void copy_exactly(void *out, const void *in, const void *random, size_t n)
{
    (void)random;
    copy(out, in, n);
}

static const ps_precision_t precisions[PSP_PRECISIONS] = {
    [PSP_F32] = {sizeof(float), copy, copy, copy_exactly},
    [PSP_BF16] = {sizeof(uint16_t), psc_bf16_decode, psc_bf16_encode, psc_bf16_encode_stochastic},
    [PSP_F16] = {sizeof(uint16_t), psc_f16_decode, psc_f16_encode, psc_f16_encode_stochastic},
};

const ps_precision_t *ps_precision_of(psp_precision_t precision)
{
    return &precisions[precision];
}

float ps_precision_at_least(const ps_precision_t *precision, float x)
{
    return -ps_precision_at_most(precision, -x);
}

float ps_precision_at_most(const ps_precision_t *precision, float x)
{
    if (precision->bytes != sizeof(uint16_t))
        return x;
    uint16_t half;
    float near;
    precision->encode(&half, &x, 1);
    precision->decode(&near, &half, 1);
    if (near > x) {
        float below;
        if ((half & 0x7fff) == 0)
            half = 0x8001;
        else
            half = (uint16_t)((half & 0x8000) != 0 ? half + 1 : half - 1);
        precision->decode(&below, &half, 1);
        if (isfinite(below))
            near = below;
    }
    return near;
}
