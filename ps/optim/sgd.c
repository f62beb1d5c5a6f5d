/*
 * Stochastic gradient descent: w <- w - rate * g.
 *
 * No state. The formula is that of torch.optim.SGD without momentum, weight decay or dampening.
 * Cost: one multiply and one add a float. The loop over 16 lanes has a constant trip count, so that
 * the compiler turns it into vectors without -O3; every lane is independent, so bits do not depend
 * on the vector width.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"

static size_t state_floats(size_t dim)
{
    (void)dim;
    return 0;
}

static void init_state(float *restrict state, size_t dim, const float *params)
{
    (void)state;
    (void)dim;
    (void)params;
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, float learning_rate, const float *params, uint32_t step)
{
    (void)state;
    (void)params;
    (void)step;
    size_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        for (size_t lane = 0; lane < 16; lane++)
            weights[i + lane] -= learning_rate * grad[i + lane];
    }
    for (; i < dim; i++)
        weights[i] -= learning_rate * grad[i];
}

const ps_optim_t ps_optim_sgd = {
    .name = "sgd",
    .formula = "w <- w - rate * g",
    .source = "Robbins and Monro 1951, \"A stochastic approximation method\"; as torch.optim.SGD "
              "with its defaults",
    .n_params = 0,
    .params = NULL,
    .state_floats = state_floats,
    .init_state = init_state,
    .update = update,
};
