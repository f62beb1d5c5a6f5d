/*
 * Adam with one second moment per row: m <- b1 * m + (1 - b1) * g;
 * v <- b2 * v + (1 - b2) * mean(g * g);
 * w <- w - rate * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * w).
 *
 * State: D first moments, which may be kept with 16 bits, then the one second moment: half of
 * Adam's memory. As FBGEMM's PARTIAL_ROWWISE_ADAM (codegen/genscript/optimizers.py), its decoupled
 * weight decay included. The sum of squares runs in sixteen fixed lanes (common/lanes.h); the means
 * move as moments.h says. The smallest eps keeps rate / eps finite for any sensible rate.
 * A row that no push touches rests, its moments and weights do not decay; t, if it is the table's,
 * goes on, with the consequence told in adam.c.
 * Cost: two passes over the gradient, one over the rest, one root and one division a row.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"
#include "ps/optim/columns.h"
#include "ps/optim/moments.h"

#include <math.h>

enum { BETA1, BETA2, EPS, WEIGHT_DECAY };
static const ps_optim_param_t params_table[] = {
    {"beta1", 0.9, 0.0, PS_BETA_MAX},
    {"beta2", 0.999, 0.0, PS_BETA_MAX},
    {"eps", 1e-8, 1e-20, 1e30},
    {"weight_decay", 0.0, 0.0, 1e6},
};

static size_t state_floats(size_t dim)
{
    return dim + 1;
}

static size_t moment_floats(size_t dim)
{
    return dim;
}

static void init_state(float *restrict state, size_t dim, const double *params)
{
    (void)params;
    for (size_t i = 0; i < dim + 1; i++)
        state[i] = 0;
}

/* C_MINUS_RATE is that of the push until update makes it the factor of the row. */
enum { C_MINUS_RATE, C_PART1, C_PART2, C_EPS, C_BIAS2, C_DECAY };

static void prepare(ps_optim_step_t *step)
{
    const double beta1 = step->params[BETA1];
    const double beta2 = step->params[BETA2];
    const double rate = (double)step->learning_rate;
    double bias1;
    double bias2;
    ps_bias(beta1, beta2, step->step, &bias1, &bias2);
    step->derived[C_MINUS_RATE] = (float)(-rate / bias1);
    step->derived[C_PART1] = (float)(1 - beta1);
    step->derived[C_PART2] = (float)(1 - beta2);
    step->derived[C_EPS] = (float)step->params[EPS];
    step->derived[C_BIAS2] = (float)(1 / bias2);
    step->derived[C_DECAY] = (float)(rate * step->params[WEIGHT_DECAY]);
}

PSC_INLINE void block(float *w, float *m, float *unused, const float *g, size_t n, const float *c)
{
    (void)unused;
    PS_EACH_COLUMN
    for (size_t i = 0; i < n; i++) {
        float mean = m[i] + c[C_PART1] * (ps_limit(g[i]) - m[i]);
        m[i] = mean;
        w[i] += c[C_MINUS_RATE] * mean - c[C_DECAY] * w[i];
    }
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    float c[PS_OPTIM_DERIVED_MAX];
    memcpy(c, step->derived, sizeof c);
    float mean = ps_squared_norm(grad, dim) / (float)dim;
    if (mean > PS_GRADIENT_MAX * PS_GRADIENT_MAX)
        mean = PS_GRADIENT_MAX * PS_GRADIENT_MAX;
    float square = state[dim] + c[C_PART2] * (mean - state[dim]);
    state[dim] = square;
    c[C_MINUS_RATE] /= sqrtf(square * c[C_BIAS2]) + c[C_EPS];
    ps_columns(weights, state, 1, grad, dim, c, block);
}

const ps_optim_t ps_optim_partial_rowwise_adam = {
    .name = "partial_rowwise_adam",
    .formula =
        "m <- b1 * m + (1 - b1) * g; v <- b2 * v + (1 - b2) * mean(g * g), one per row; w <- w "
        "- rate * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * w)",
    .source = "Kingma and Ba 2015, algorithm 1, with FBGEMM's PARTIAL_ROWWISE_ADAM second moment",
    .untouched =
        "weights and moments rest, nothing decays, the weights neither; t, if the table's, "
        "goes on",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .moment_floats = moment_floats,
    .init_state = init_state,
    .prepare = prepare,
    .uses_step = true,
    .update = update,
};
