/*
 * Xavier, or Glorot, uniform: w = a (2 u - 1), a = gain * sqrt(6 / (fan_in + fan_out)).
 *
 * A lookup is the product of a one-hot vector with the table, so one input is active and D outputs
 * are fed: that is the default, fan_in 1 and fan_out 0 for "the table's dim". A table of 64-bit ids
 * does not know how many of them there will be; to get what torch.nn.init.xavier_uniform_ and
 * Keras' glorot_uniform give a matrix of V rows, set fan_in to V (they count V + D).
 *
 * u has 24 bits, so 2 u - 1 is exact, and the product is the only rounding of a column; the limit
 * is computed in double by division and square root, which IEEE 754 rounds correctly. One random
 * word gives one column. Cost: a Philox block for each four columns.
 */
#include "ps/init/init_entries.h"

#include "common/rng.h"

#include <math.h>

static const ps_init_param_t params_table[] = {
    {"fan_in", 1.0, 1.0, 1e30},
    {"fan_out", 0.0, 0.0, 1e30},
    {"gain", 1.0, 0.0, 1e15},
};

static void fill(float *row, size_t dim, uint64_t seed, uint32_t table, uint64_t id,
                 const float *params)
{
    const double fan_in = (double)params[0];
    const double fan_out = params[1] > 0.0f ? (double)params[1] : (double)dim;
    const float limit = (float)((double)params[2] * sqrt(6.0 / (fan_in + fan_out)));
    for (size_t i = 0; i < dim; i += 4) {
        uint32_t bits[4];
        psc_rng_row(seed, table, id, (uint32_t)(i / 4), PSC_RNG_INIT, 0, bits);
        for (size_t lane = 0; lane < 4 && i + lane < dim; lane++)
            row[i + lane] = limit * (2.0f * psc_rng_unit(bits[lane]) - 1.0f);
    }
}

const ps_init_t ps_init_xavier = {
    .name = "xavier",
    .formula = "w = a (2 u - 1), u uniform in [0, 1), a = gain * sqrt(6 / (fan_in + fan_out)); "
               "fan_out 0: dim",
    .source = "Glorot and Bengio 2010, \"Understanding the difficulty of training deep feedforward "
              "neural networks\", equation 16; random bits: Salmon et al. 2011",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .check = NULL,
    .fill = fill,
};
