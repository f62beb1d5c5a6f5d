/*
 * FTRL-Proximal, per coordinate, with r = sqrt(n) before and R = sqrt(n) after n <- n + g * g:
 * z <- z + g - (R - r) / rate * w; w <- 0 where |z| <= l1, else
 * w <- -(z - sign(z) * l1) / ((beta + R) / rate + l2).
 *
 * State: D values z from 0, then D sums of squares n from initial_accumulator. Algorithm 1 of
 * McMahan et al. with alpha = the push's rate, lambda1 = l1, lambda2 = l2. Against TensorFlow's
 * Ftrl: learning_rate_power is -0.5, as in the paper (other powers need pow, whose bits no two
 * libraries share); its kernels double their l2, so l2 here is 2 * l2_regularization_strength
 * there; its defaults are beta 0 and initial_accumulator 0.1. l1 makes exact zeros. The l2 option
 * of a table is another thing: it adds l2 * w to the gradient.
 *
 * The weights are a function of z and n: a row's initial value, and what DELTA and ASSIGN do to it,
 * enter only through (R - r) / rate * w, which keeps most of w while n grows fast. So tables for
 * ftrl start from zeros as a rule. A gradient is limited as in moments.h. With a rate of 0 (or
 * below the smallest normal float) nothing changes at all. A row that no push touches stays as it
 * is, which is what a zero gradient does to it at the same rate.
 * Numerics: the rounding of R comes back as that of r in the next push, so they cancel.
 * Cost: two vector roots and one division per column.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"
#include "ps/optim/columns.h"
#include "ps/optim/moments.h"

#include <float.h>
#include <math.h>

enum { L1, L2, BETA, INITIAL_ACCUMULATOR };
static const ps_optim_param_t params_table[] = {
    {"l1", 0.0, 0.0, 1e30},
    {"l2", 0.0, 0.0, 1e30},
    {"beta", 1.0, 0.0, 1e30},
    {"initial_accumulator", 0.0, 0.0, 1e30},
};

static size_t state_floats(size_t dim)
{
    return 2 * dim;
}

static void init_state(float *restrict state, size_t dim, const double *params)
{
    for (size_t i = 0; i < dim; i++) {
        state[i] = 0;
        state[dim + i] = (float)params[INITIAL_ACCUMULATOR];
    }
}

enum { C_RATE, C_INVERSE_RATE, C_L1, C_OFFSET };

static void prepare(ps_optim_step_t *step)
{
    const double rate = (double)step->learning_rate;
    step->derived[C_RATE] = step->learning_rate;
    step->derived[C_INVERSE_RATE] = (float)(1 / rate);
    step->derived[C_L1] = (float)step->params[L1];
    step->derived[C_OFFSET] = (float)(step->params[BETA] + rate * step->params[L2]);
}

PSC_INLINE void block(float *w, float *z, float *sums, const float *g, size_t n, const float *c)
{
    PS_EACH_COLUMN
    for (size_t i = 0; i < n; i++) {
        float gradient = ps_limit(g[i]);
        float sum = sums[i] + gradient * gradient;
        float root = sqrtf(sum);
        float sigma = (root - sqrtf(sums[i])) * c[C_INVERSE_RATE];
        float sum_z = z[i] + (gradient - sigma * w[i]);
        float beyond = fabsf(sum_z) - c[C_L1];
        float weight = c[C_RATE] * beyond / (c[C_OFFSET] + root);
        sums[i] = sum;
        z[i] = sum_z;
        w[i] = beyond > 0.0f ? copysignf(weight, -sum_z) : 0.0f;
    }
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    if (fabsf(step->learning_rate) < FLT_MIN)
        return;
    ps_columns(weights, state, 2, grad, dim, step->derived, block);
}

const ps_optim_t ps_optim_ftrl = {
    .name = "ftrl",
    .formula =
        "z <- z + g - (sqrt(n + g * g) - sqrt(n)) / rate * w; n <- n + g * g; w <- 0 where |z| "
        "<= l1, else -(z - sign(z) * l1) / ((beta + sqrt(n)) / rate + l2)",
    .source = "McMahan et al. 2013, \"Ad click prediction: a view from the trenches\", algorithm 1",
    .untouched = "nothing changes, as with a zero gradient at the same rate",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .init_state = init_state,
    .prepare = prepare,
    .update = update,
};
