/*
 * Uniform between low and high: w = low + (high - low) * u, u a multiple of 2^-24 in [0, 1).
 *
 * One random word gives one column. Float operations alone, each correctly rounded, so the bits are
 * the same everywhere; rounding of the last step may give high itself. Cost: a Philox block for
 * each four columns.
 */
#include "ps/init/init_entries.h"

#include "common/rng.h"

static const ps_init_param_t params_table[] = {
    {"low", -0.05, -1e30, 1e30},
    {"high", 0.05, -1e30, 1e30},
};

static psc_status_t check(const float *params, psc_error_t *error)
{
    if (params[0] > params[1])
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "initialiser uniform: low is %.10g, must not be above high, %.10g",
                             (double)params[0], (double)params[1]);
    return PSC_OK;
}

static void fill(float *row, size_t dim, uint64_t seed, uint32_t table, uint64_t id,
                 const float *params)
{
    const float low = params[0];
    const float range = params[1] - params[0];
    for (size_t i = 0; i < dim; i += 4) {
        uint32_t bits[4];
        psc_rng_row(seed, table, id, (uint32_t)(i / 4), PSC_RNG_INIT, 0, bits);
        for (size_t lane = 0; lane < 4 && i + lane < dim; lane++)
            row[i + lane] = low + range * psc_rng_unit(bits[lane]);
    }
}

const ps_init_t ps_init_uniform = {
    .name = "uniform",
    .formula = "w = low + (high - low) * u, u uniform in [0, 1)",
    .source = "as torch.nn.init.uniform_; random bits: Salmon et al. 2011",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .check = check,
    .fill = fill,
};
