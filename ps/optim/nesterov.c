/*
 * Momentum that looks ahead: v <- momentum * v + g; w <- w - rate * (g + momentum * v).
 *
 * State: D velocities, from 0. As torch.optim.SGD with nesterov: the form of Sutskever et al. in
 * which the weights are those of the point looked ahead to, so that gradients are taken where the
 * pull read. Everything else is as in momentum.c, a row that no push touches included.
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
        w[i] -= c[C_RATE] * (g[i] + c[C_MOMENTUM] * velocity);
    }
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    ps_columns(weights, state, 1, grad, dim, step->derived, block);
}

const ps_optim_t ps_optim_nesterov = {
    .name = "nesterov",
    .formula = "v <- momentum * v + g; w <- w - rate * (g + momentum * v)",
    .source = "Nesterov 1983; Sutskever et al. 2013, \"On the importance of initialization and "
              "momentum in deep learning\", equations 3 and 4; as torch.optim.SGD with nesterov",
    .untouched = "weights and velocity rest; the velocity acts again with the next gradient",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .init_state = init_state,
    .prepare = prepare,
    .update = update,
};
