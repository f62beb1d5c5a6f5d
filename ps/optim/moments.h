/*
 * Running means of gradients, as several entries keep them; for the entries alone.
 *
 * A mean takes a part of what is new: mean <- mean + part * (new - mean), part = 1 - beta. In
 * float32 this is truer than beta * mean + part * new, whose two rounded factors do not add up to
 * 1; and a mean of squares never gets below 0, since part is at most 1 and rounding keeps the
 * order.
 *
 * What goes into a mean is limited to PS_GRADIENT_MAX, so that its square, and the sum of the
 * squares of the widest row, stay finite: infinity minus infinity would make such a row NaN for
 * ever.
 */
#ifndef PS_OPTIM_MOMENTS_H
#define PS_OPTIM_MOMENTS_H

#include <math.h>
#include <stdint.h>

#define PS_GRADIENT_MAX 1e15f

/* Bounds of a beta: above this 1 - beta^step is lost in rounding. */
#define PS_BETA_MAX 0.9999999

static inline float ps_limit(float gradient)
{
    return fabsf(gradient) < PS_GRADIENT_MAX ? gradient : copysignf(PS_GRADIENT_MAX, gradient);
}

/*
 * 1 - beta1^step and 1 - beta2^step, by repeated squaring: no libm, so the same bits everywhere.
 * Step 0 counts as 1. Both at once and without branches, since a step may be that of a single row.
 */
static inline void ps_bias(double beta1, double beta2, uint64_t step, double *bias1_out,
                           double *bias2_out)
{
    double power1 = 1;
    double power2 = 1;
    for (uint64_t left = step != 0 ? step : 1; left != 0; left /= 2) {
        power1 *= left % 2 != 0 ? beta1 : 1.0;
        power2 *= left % 2 != 0 ? beta2 : 1.0;
        beta1 *= beta1;
        beta2 *= beta2;
    }
    *bias1_out = 1 - power1;
    *bias2_out = 1 - power2;
}

#endif
