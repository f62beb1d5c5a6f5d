/*
 * The input vectors of word2vec: uniform in [-0.5 / D, 0.5 / D).
 *
 * The original tool computes (u - 0.5) / D with u in [0, 1); here u has 24 bits, so u - 0.5 is
 * exact and the division is the only rounding. Cost: a Philox block for each four columns.
 */
#include "ps/init/init_entries.h"

#include "common/rng.h"

static void fill(float *row, size_t dim, uint64_t seed, uint32_t table, uint64_t id,
                 const float *params)
{
    (void)params;
    const float width = (float)dim;
    for (size_t i = 0; i < dim; i += 4) {
        uint32_t bits[4];
        psc_rng_row(seed, table, id, (uint32_t)(i / 4), PSC_RNG_INIT, 0, bits);
        for (size_t lane = 0; lane < 4 && i + lane < dim; lane++)
            row[i + lane] = (psc_rng_unit(bits[lane]) - 0.5f) / width;
    }
}

const ps_init_t ps_init_word2vec = {
    .name = "word2vec",
    .formula = "w = (u - 0.5) / D, u uniform in [0, 1)",
    .source = "Mikolov et al. 2013, the input vectors of the original tool",
    .n_params = 0,
    .params = NULL,
    .check = NULL,
    .fill = fill,
};
