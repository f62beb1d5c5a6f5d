/*
 * Adagrad with one accumulator per row: s <- s + mean(g * g); w <- w - rate / (sqrt(s) + eps) * g.
 *
 * State: one float, so 4 bytes a row instead of 4 a weight. The mean of the squares of the row's
 * gradient is added once per push, after its duplicates are summed, as FBGEMM's
 * EXACT_ROWWISE_ADAGRAD does (its rowwise_adagrad in codegen/genscript/optimizers.py, without
 * weight decay); the factor of the row is rounded before it meets the gradient, as there. The sum
 * runs in sixteen fixed lanes (common/lanes.h). A zero gradient changes nothing, so lazy and dense
 * steps are the same. The smallest eps keeps rate / eps finite for any sensible rate.
 * Cost: two passes over the gradient, one over the weights, one root and one division a row.
 */
#include "ps/optim/optim_entries.h"

#include "common/vectors.h"
#include "ps/optim/columns.h"

#include <math.h>

enum { INITIAL_ACCUMULATOR, EPS };
static const ps_optim_param_t params_table[] = {
    {"initial_accumulator", 0.0, 0.0, 1e30},
    {"eps", 1e-8, 1e-20, 1e30},
};

static size_t state_floats(size_t dim)
{
    (void)dim;
    return 1;
}

static void init_state(float *restrict state, size_t dim, const double *params)
{
    (void)dim;
    state[0] = (float)params[INITIAL_ACCUMULATOR];
}

enum { C_EPS };

static void prepare(ps_optim_step_t *step)
{
    step->derived[C_EPS] = (float)step->params[EPS];
}

PSC_INLINE void block(float *w, float *unused0, float *unused1, const float *g, size_t n,
                      const float *factor)
{
    (void)unused0;
    (void)unused1;
    PS_EACH_COLUMN
    for (size_t i = 0; i < n; i++)
        w[i] -= factor[0] * g[i];
}

PSC_MULTIVERSION
static void update(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step)
{
    float sum = state[0] + ps_squared_norm(grad, dim) / (float)dim;
    state[0] = sum;
    const float factor[PS_OPTIM_DERIVED_MAX] = {step->learning_rate /
                                                (sqrtf(sum) + step->derived[C_EPS])};
    ps_columns(weights, state, 0, grad, dim, factor, block);
}

const ps_optim_t ps_optim_rowwise_adagrad = {
    .name = "rowwise_adagrad",
    .formula = "s <- s + mean(g * g); w <- w - rate / (sqrt(s) + eps) * g; one s per row",
    .source = "Gupta, Bengio and Weston 2014, \"Training highly multiclass classifiers\", section "
              "4.1 (one rate per row); as FBGEMM's EXACT_ROWWISE_ADAGRAD without weight decay",
    .untouched = "nothing changes, as with a zero gradient",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .state_floats = state_floats,
    .init_state = init_state,
    .prepare = prepare,
    .update = update,
};
