/*
 * Adagrad with one accumulator per weight: s <- s + g * g; w <- w - rate * g / (sqrt(s) + eps).
 *
 * State: D accumulators, each starting at initial_accumulator. The formula and the order of its
 * roundings are those of torch.optim.Adagrad with lr_decay and weight_decay 0: eps is added to the
 * root, and (-rate * g) is rounded before the division. All in float32, as there; sqrt and division
 * are correctly rounded, so the bits are the same on every processor. The smallest eps is above 0,
 * since a zero gradient on an empty accumulator would be 0 / 0. A row that no push touches stays as
 * it is: a zero gradient would change nothing, so lazy and dense steps are the same.
 * Cost: bound by the vector square root and division; see columns.h for the shape of the loop.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"
#include "ps/optim/columns.h"

#include <math.h>

enum { INITIAL_ACCUMULATOR, EPS };
static const ps_optim_param_t params_table[] = {
    {"initial_accumulator", 0.0, 0.0, 1e30},
    {"eps", 1e-10, 1e-30, 1e30},
};

static size_t state_floats(size_t dim)
{
    return dim;
}

static void init_state(float *restrict state, size_t dim, const double *params)
{
    for (size_t i = 0; i < dim; i++)
        state[i] = (float)params[INITIAL_ACCUMULATOR];
}

enum { C_MINUS_RATE, C_EPS };

static void prepare(ps_optim_step_t *step)
{
    step->derived[C_MINUS_RATE] = -step->learning_rate;
    step->derived[C_EPS] = (float)step->params[EPS];
}

PSC_INLINE void block(float *w, float *s, float *unused, const float *g, size_t n, const float *c)
{
    (void)unused;
    PS_EACH_COLUMN
    for (size_t i = 0; i < n; i++) {
        float sum = s[i] + g[i] * g[i];
        s[i] = sum;
        w[i] += c[C_MINUS_RATE] * g[i] / (sqrtf(sum) + c[C_EPS]);
    }
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    ps_columns(weights, state, 1, grad, dim, step->derived, block);
}

const ps_optim_t ps_optim_adagrad = {
    .name = "adagrad",
    .formula = "s <- s + g * g; w <- w - rate * g / (sqrt(s) + eps)",
    .source =
        "Duchi, Hazan and Singer 2011, \"Adaptive subgradient methods\", figure 1 (diagonal); "
        "as torch.optim.Adagrad with lr_decay and weight_decay 0",
    .untouched = "nothing changes, as with a zero gradient",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .init_state = init_state,
    .prepare = prepare,
    .update = update,
};
