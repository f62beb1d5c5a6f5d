/*
 * All weights start at one value: w = value.
 *
 * For biases and scales that start at a known number. Every row starts alike, so something else has
 * to tell rows apart (their gradients do). The value is rounded to float32 once, when the table is
 * opened. Cost: a store a column.
 */
#include "ps/init/init_entries.h"

static const ps_init_param_t params_table[] = {
    {"value", 0.0, -1e30, 1e30},
};

static void fill(float *row, size_t dim, uint64_t seed, uint32_t table, uint64_t id,
                 const float *params)
{
    (void)seed;
    (void)table;
    (void)id;
    for (size_t i = 0; i < dim; i++)
        row[i] = params[0];
}

const ps_init_t ps_init_constant = {
    .name = "constant",
    .formula = "w = value",
    .source = "as torch.nn.init.constant_",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .check = NULL,
    .fill = fill,
};
