/* All weights start at 0. For tables whose other side breaks the symmetry (word2vec's outputs). */
#include "ps/init/init_entries.h"

#include <string.h>

static void fill(float *row, size_t dim, uint64_t seed, uint32_t table, uint64_t id,
                 const float *params)
{
    (void)seed;
    (void)table;
    (void)id;
    (void)params;
    memset(row, 0, dim * sizeof *row);
}

const ps_init_t ps_init_zeros = {
    .name = "zeros",
    .formula = "w = 0",
    .source = "Mikolov et al. 2013, the output vectors of the original tool",
    .n_params = 0,
    .params = NULL,
    .check = NULL,
    .fill = fill,
};
