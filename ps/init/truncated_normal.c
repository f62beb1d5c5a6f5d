/*
 * Normal, truncated to `cut` deviations on both sides, by inversion on what is left.
 *
 * One random word b gives one column: q = (b + 0.5) / 2^32 - 0.5 is spread over the middle of the
 * distribution, w = mean + deviation * quantile(0.5 + q * mass), mass = P(|z| < cut). So no draw is
 * thrown away, and the same word gives the value of "normal" squeezed into the cut: both are
 * increasing in b. The mass comes from Marsaglia's series, whose terms are all positive, and its
 * exponential from Taylor's after halving the argument eight times; +, -, *, / and sqrt alone, so
 * the bits are the same everywhere. A z that rounding puts past the cut is put on it.
 * Cost: that of "normal", and about 100 ns a row for the mass.
 */
#include "ps/init/init_entries.h"

#include "common/rng.h"

static const ps_init_param_t params_table[] = {
    {"mean", 0.0, -1e30, 1e30},
    {"deviation", 0.05, 0.0, 1e30},
    {"cut", 2.0, 1e-3, 6.0},
};

/* exp(-x), 0 <= x <= 18, to about 1 part in 10^13. */
static double exp_minus(double x)
{
    double y = x * 0x1p-8; /* below 0.071 */
    double sum = 0;
    for (int k = 8; k >= 1; k--)
        sum = (1 + sum) * -y / k;
    sum += 1;
    for (int i = 0; i < 8; i++)
        sum *= sum;
    return sum;
}

double ps_init_normal_mass(double cut)
{
    double square = cut * cut;
    double term = cut;
    double sum = 0;
    for (int k = 3; term > sum * 0x1p-54; k += 2) {
        sum += term;
        term *= square / k;
    }
    return sum * exp_minus(square / 2) * 0x1.9884533d43651p-1; /* sqrt(2 / pi) */
}

static void fill(float *row, size_t dim, uint64_t seed, uint32_t table, uint64_t id,
                 const float *params)
{
    const double mean = (double)params[0];
    const double deviation = (double)params[1];
    const double cut = (double)params[2];
    const double mass = ps_init_normal_mass(cut);
    for (size_t i = 0; i < dim; i += 4) {
        uint32_t bits[4];
        psc_rng_row(seed, table, id, (uint32_t)(i / 4), PSC_RNG_INIT, 0, bits);
        for (size_t lane = 0; lane < 4 && i + lane < dim; lane++) {
            double q = ((double)bits[lane] + 0.5) * 0x1p-32 - 0.5;
            double z = ps_init_normal_quantile(0.5 + q * mass);
            z = z > cut ? cut : z < -cut ? -cut : z;
            row[i + lane] = (float)(mean + deviation * z);
        }
    }
}

const ps_init_t ps_init_truncated_normal = {
    .name = "truncated_normal",
    .formula = "w = mean + deviation * z, z standard normal given |z| <= cut",
    .source = "inversion as for normal (Wichura 1988); mass: Marsaglia 2004, \"Evaluating the "
              "normal distribution\"; random bits: Salmon et al. 2011",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .check = NULL,
    .fill = fill,
};
