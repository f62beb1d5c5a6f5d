/*
 * Gradient descent with momentum: v <- momentum * v + g; w <- w - rate * v.
 *
 * State: D velocities, from 0. As torch.optim.SGD with momentum and without dampening: the gradient
 * goes into the velocity undamped, so in a steady slope a step becomes 1 / (1 - momentum) times as
 * long. The rate of the push scales the whole velocity, also what earlier gradients left in it.
 * A row that no push touches rests, and its velocity with it: a dense step would carry the row on
 * and let the velocity decay. So rare rows keep the full momentum of their last visit.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"
#include "ps/optim/columns.h"

enum { MOMENTUM };
static const ps_optim_param_t params_table[] = {
    {"momentum", 0.9, 0.0, 1.0},
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

enum { C_RATE, C_MOMENTUM };

static void prepare(ps_optim_step_t *step)
{
    step->derived[C_RATE] = step->learning_rate;
    step->derived[C_MOMENTUM] = (float)step->params[MOMENTUM];
}

PSC_INLINE void block(float *w, float *v, float *unused, const float *g, size_t n, const float *c)
{
    (void)unused;
    PS_EACH_COLUMN
    for (size_t i = 0; i < n; i++) {
        float velocity = c[C_MOMENTUM] * v[i] + g[i];
        v[i] = velocity;
        w[i] -= c[C_RATE] * velocity;
    }
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    ps_columns(weights, state, 1, grad, dim, step->derived, block);
}

const ps_optim_t ps_optim_momentum = {
    .name = "momentum",
    .formula = "v <- momentum * v + g; w <- w - rate * v",
    .source =
        "Polyak 1964, \"Some methods of speeding up the convergence of iteration methods\"; as "
        "torch.optim.SGD with momentum, dampening 0",
    .untouched = "weights and velocity rest; the velocity acts again with the next gradient",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .init_state = init_state,
    .prepare = prepare,
    .update = update,
};
