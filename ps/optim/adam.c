/*
 * Adam, lazily: m <- b1 * m + (1 - b1) * g; v <- b2 * v + (1 - b2) * g * g;
 * w <- w - rate * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps).
 *
 * State: D first moments, then D second ones, from 0; all of them may be kept with 16 bits. As
 * torch.optim.SparseAdam: only the rows of a push move, t is the number of the step of the whole
 * table that the push carries, and eps is added before the correction (the form at the end of
 * section 2 of the paper). Where each row counts its own steps, t is that count. The means move as
 * moments.h says; the factor before m is derived in double once per t.
 * A row that no push touches keeps its moments undecayed; with the table's t it is, once touched,
 * corrected as if it had been there all the time: a row first seen late takes a first step of
 * (1 - b1) / sqrt(1 - b2) times the rate, about 3.2 with the defaults, instead of one of the rate.
 * Cost: bound by one vector root and one division per column.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"
#include "ps/optim/columns.h"
#include "ps/optim/moments.h"

#include <math.h>

enum { BETA1, BETA2, EPS };
static const ps_optim_param_t params_table[] = {
    {"beta1", 0.9, 0.0, PS_BETA_MAX},
    {"beta2", 0.999, 0.0, PS_BETA_MAX},
    {"eps", 1e-8, 1e-30, 1e30},
};

static size_t state_floats(size_t dim)
{
    return 2 * dim;
}

static void init_state(float *restrict state, size_t dim, const double *params)
{
    (void)params;
    for (size_t i = 0; i < 2 * dim; i++)
        state[i] = 0;
}

enum { C_MINUS_RATE, C_PART1, C_PART2, C_EPS };

static void prepare(ps_optim_step_t *step)
{
    const double beta1 = step->params[BETA1];
    const double beta2 = step->params[BETA2];
    double bias1;
    double bias2;
    ps_bias(beta1, beta2, step->step, &bias1, &bias2);
    step->derived[C_MINUS_RATE] = (float)(-(double)step->learning_rate * (sqrt(bias2) / bias1));
    step->derived[C_PART1] = (float)(1 - beta1);
    step->derived[C_PART2] = (float)(1 - beta2);
    step->derived[C_EPS] = (float)step->params[EPS];
}

PSC_INLINE void block(float *w, float *m, float *v, const float *g, size_t n, const float *c)
{
    PS_EACH_COLUMN
    for (size_t i = 0; i < n; i++) {
        float gradient = ps_limit(g[i]);
        float mean = m[i] + c[C_PART1] * (gradient - m[i]);
        float square = v[i] + c[C_PART2] * (gradient * gradient - v[i]);
        m[i] = mean;
        v[i] = square;
        w[i] += c[C_MINUS_RATE] * (mean / (sqrtf(square) + c[C_EPS]));
    }
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    ps_columns(weights, state, 2, grad, dim, step->derived, block);
}

const ps_optim_t ps_optim_adam = {
    .name = "adam",
    .formula = "m <- b1 * m + (1 - b1) * g; v <- b2 * v + (1 - b2) * g * g; "
               "w <- w - rate * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps)",
    .source = "Kingma and Ba 2015, \"Adam: a method for stochastic optimization\", algorithm 1 in "
              "the order of the end of section 2; lazily as torch.optim.SparseAdam",
    .untouched = "weights and moments rest, nothing decays; t, if the table's, goes on",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .moment_floats = state_floats,
    .init_state = init_state,
    .prepare = prepare,
    .uses_step = true,
    .update = update,
};
