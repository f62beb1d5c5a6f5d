/*
 * RMSprop: v <- alpha * v + (1 - alpha) * g * g; w <- w - rate * g / (sqrt(v) + eps).
 *
 * State: D running means of squares, from 0 and not corrected for it, so the first steps of a row
 * are up to 1 / sqrt(1 - alpha) times as long. As torch.optim.RMSprop, not centered, without
 * momentum and weight decay; eps is added to the root. The mean moves as moments.h says.
 * A row that no push touches keeps its mean: a dense step would let it decay, and a row that comes
 * back after a long time would take a longer step.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"
#include "ps/optim/columns.h"
#include "ps/optim/moments.h"

#include <math.h>

enum { ALPHA, EPS };
static const ps_optim_param_t params_table[] = {
    {"alpha", 0.99, 0.0, PS_BETA_MAX},
    {"eps", 1e-8, 1e-30, 1e30},
};

static size_t state_floats(size_t dim)
{
    return dim;
}

static void init_state(float *restrict state, size_t dim, const double *params)
{
    (void)params;
    for (size_t i = 0; i < dim; i++)
        state[i] = 0;
}

enum { C_MINUS_RATE, C_PART, C_EPS };

static void prepare(ps_optim_step_t *step)
{
    step->derived[C_MINUS_RATE] = -step->learning_rate;
    step->derived[C_PART] = (float)(1 - step->params[ALPHA]);
    step->derived[C_EPS] = (float)step->params[EPS];
}

PSC_INLINE void block(float *w, float *v, float *unused, const float *g, size_t n, const float *c)
{
    (void)unused;
    PS_EACH_COLUMN
    for (size_t i = 0; i < n; i++) {
        float gradient = ps_limit(g[i]);
        float square = v[i] + c[C_PART] * (gradient * gradient - v[i]);
        v[i] = square;
        w[i] += c[C_MINUS_RATE] * gradient / (sqrtf(square) + c[C_EPS]);
    }
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    ps_columns(weights, state, 1, grad, dim, step->derived, block);
}

const ps_optim_t ps_optim_rmsprop = {
    .name = "rmsprop",
    .formula = "v <- alpha * v + (1 - alpha) * g * g; w <- w - rate * g / (sqrt(v) + eps)",
    .source = "Tieleman and Hinton 2012, \"Neural networks for machine learning\", lecture 6.5; as "
              "torch.optim.RMSprop with its defaults",
    .untouched = "weights and mean rest; the mean does not decay",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .init_state = init_state,
    .prepare = prepare,
    .update = update,
};
