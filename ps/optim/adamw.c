/*
 * Adam with decoupled weight decay: w <- (1 - rate * decay) * w, then
 * m <- b1 * m + (1 - b1) * g; v <- b2 * v + (1 - b2) * g * g;
 * w <- w - rate / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps).
 *
 * State: D first moments, then D second ones, from 0; all of them may be kept with 16 bits. As
 * torch.optim.AdamW on the rows of the push; here eps is added after the correction, which differs
 * from SparseAdam's order (adam.c) while t is small. The means move as moments.h says.
 * A row that no push touches rests: its moments do not decay and neither do its weights. So a row
 * shrinks by how often it is touched, not by time; dense AdamW would shrink a rare row to nothing.
 * Cost: bound by one vector root and one division per column.
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
    {"eps", 1e-8, 1e-30, 1e30},
    {"weight_decay", 1e-2, 0.0, 1e6},
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

enum { C_MINUS_RATE, C_PART1, C_PART2, C_EPS, C_ROOT, C_DECAY };

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
    step->derived[C_ROOT] = (float)(1 / sqrt(bias2));
    step->derived[C_DECAY] = (float)(rate * step->params[WEIGHT_DECAY]);
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
        float change = c[C_MINUS_RATE] * (mean / (sqrtf(square) * c[C_ROOT] + c[C_EPS]));
        w[i] += change - c[C_DECAY] * w[i];
    }
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    ps_columns(weights, state, 2, grad, dim, step->derived, block);
}

const ps_optim_t ps_optim_adamw = {
    .name = "adamw",
    .formula =
        "m <- b1 * m + (1 - b1) * g; v <- b2 * v + (1 - b2) * g * g; w <- w - rate * decay * "
        "w - rate / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)",
    .source = "Loshchilov and Hutter 2019, \"Decoupled weight decay regularization\", algorithm 2; "
              "as torch.optim.AdamW, on touched rows",
    .untouched =
        "weights and moments rest, nothing decays, the weights neither; t, if the table's, "
        "goes on",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .moment_floats = state_floats,
    .init_state = init_state,
    .prepare = prepare,
    .uses_step = true,
    .update = update,
};
