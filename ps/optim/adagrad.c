/*
 * Adagrad with one accumulator per weight: s <- s + g * g; w <- w - rate * g / (sqrt(s) + eps).
 *
 * State: D accumulators, each starting at initial_accumulator. The formula and the order of its
 * roundings are those of torch.optim.Adagrad with lr_decay and weight_decay 0: eps is added to the
 * root, and (-rate * g) is rounded before the division. All in float32, as there; sqrt and division
 * are correctly rounded, so the bits are the same on every processor. The smallest eps is above 0,
 * since a zero gradient on an empty accumulator would be 0 / 0.
 * Cost: bound by the vector square root and division; see sgd.c for the shape of the loop.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"

#include <math.h>

static const ps_optim_param_t params_table[] = {
    {"initial_accumulator", 0.0, 0.0, 1e30},
    {"eps", 1e-10, 1e-30, 1e30},
};

static size_t state_floats(size_t dim)
{
    return dim;
}

static void init_state(float *restrict state, size_t dim, const float *params)
{
    for (size_t i = 0; i < dim; i++)
        state[i] = params[0];
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, float learning_rate, const float *params, uint32_t step)
{
    (void)step;
    const float eps = params[1];
    const float minus_rate = -learning_rate;
    size_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        for (size_t lane = 0; lane < 16; lane++) {
            float g = grad[i + lane];
            float sum = state[i + lane] + g * g;
            state[i + lane] = sum;
            weights[i + lane] += minus_rate * g / (sqrtf(sum) + eps);
        }
    }
    for (; i < dim; i++) {
        float sum = state[i] + grad[i] * grad[i];
        state[i] = sum;
        weights[i] += minus_rate * grad[i] / (sqrtf(sum) + eps);
    }
}

const ps_optim_t ps_optim_adagrad = {
    .name = "adagrad",
    .formula = "s <- s + g * g; w <- w - rate * g / (sqrt(s) + eps)",
    .source =
        "Duchi, Hazan and Singer 2011, \"Adaptive subgradient methods\", figure 1 (diagonal); "
        "as torch.optim.Adagrad with lr_decay and weight_decay 0",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .init_state = init_state,
    .update = update,
};
