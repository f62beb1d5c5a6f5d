/*
 * Stochastic gradient descent: w <- w - rate * g.
 *
 * No state. The formula is that of torch.optim.SGD without momentum, weight decay or dampening.
 * Cost: one multiply and one add a float, bound by the memory. Every column is independent, so bits
 * do not depend on the vector width.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"
#include "ps/optim/columns.h"

static size_t state_floats(size_t dim)
{
    (void)dim;
    return 0;
}

static void init_state(float *restrict state, size_t dim, const double *params)
{
    (void)state;
    (void)dim;
    (void)params;
}

PSC_INLINE void block(float *w, float *unused0, float *unused1, const float *g, size_t n,
                      const float *rate)
{
    (void)unused0;
    (void)unused1;
    PS_EACH_COLUMN
    for (size_t i = 0; i < n; i++)
        w[i] -= rate[0] * g[i];
}

static void prepare(ps_optim_step_t *step)
{
    step->derived[0] = step->learning_rate;
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    ps_columns(weights, state, 0, grad, dim, step->derived, block);
}

const ps_optim_t ps_optim_sgd = {
    .name = "sgd",
    .formula = "w <- w - rate * g",
    .source = "Robbins and Monro 1951, \"A stochastic approximation method\"; as torch.optim.SGD "
              "with its defaults",
    .untouched = "nothing changes, as with a zero gradient",
    .n_params = 0,
    .params = NULL,
    .state_floats = state_floats,
    .init_state = init_state,
    .prepare = prepare,
    .update = update,
};
