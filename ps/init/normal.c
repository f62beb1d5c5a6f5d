/*
 * Normal with a mean and a deviation, by inversion: w = mean + deviation * quantile(u).
 *
 * One random word b gives one column, u = (b + 0.5) / 2^32, so |w - mean| stays below 6.4
 * deviations. The quantile is algorithm AS 241 (PPND16): three rational functions, in double. Its
 * logarithm is our own, since libm's bits differ between versions: the exponent is taken from the
 * number's bits, the rest from the series of atanh, whose terms past s^23 are below 10^-18 for |s|
 * < 0.172. What is left is +, -, *, / and sqrt, all correctly rounded by IEEE 754, and contraction
 * is off for the whole build. Cost: about 20 multiplications and 1 division a column, and a
 * logarithm for 15% of them.
 */
#include "ps/init/init_entries.h"

#include "common/rng.h"

#include <math.h>
#include <string.h>

static const ps_init_param_t params_table[] = {
    {"mean", 0.0, -1e30, 1e30},
    {"deviation", 0.05, 0.0, 1e30},
};

/* Coefficients of AS 241, lowest power first: numerator, denominator. */
static const double centre[2][8] = {
    {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3},
    {1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3},
};
static const double middle[2][8] = {
    {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4},
    {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9},
};
static const double tail[2][8] = {
    {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7},
    {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15},
};

static double ratio(const double coefficients[2][8], double r)
{
    double numerator = coefficients[0][7];
    double denominator = coefficients[1][7];
    for (int i = 6; i >= 0; i--) {
        numerator = numerator * r + coefficients[0][i];
        denominator = denominator * r + coefficients[1][i];
    }
    return numerator / denominator;
}

/* Natural logarithm of a normal, positive x. */
static double natural_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(0x3ff0000000000000);
    double m; /* in [1, 2) */
    memcpy(&m, &bits, sizeof m);
    if (m > 0x1.6a09e667f3bcdp0) { /* sqrt(2) */
        m *= 0.5;
        exponent++;
    }
    double s = (m - 1) / (m + 1); /* log m = 2 atanh s */
    double s2 = s * s;
    double sum = 0;
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return 2 * s * sum + exponent * 0x1.62e42fefa39efp-1; /* log 2 */
}

double ps_init_normal_quantile(double p)
{
    double q = p - 0.5;
    if (q <= 0.425 && q >= -0.425)
        return q * ratio(centre, 0.180625 - q * q);
    double r = sqrt(-natural_log(q < 0 ? p : 1 - p));
    double x = r <= 5 ? ratio(middle, r - 1.6) : ratio(tail, r - 5);
    return q < 0 ? -x : x;
}

static void fill(float *row, size_t dim, uint64_t seed, uint32_t table, uint64_t id,
                 const float *params)
{
    for (size_t i = 0; i < dim; i += 4) {
        uint32_t bits[4];
        psc_rng_row(seed, table, id, (uint32_t)(i / 4), PSC_RNG_INIT, 0, bits);
        for (size_t lane = 0; lane < 4 && i + lane < dim; lane++) {
            double u = ((double)bits[lane] + 0.5) * 0x1p-32;
            row[i + lane] =
                (float)((double)params[0] + (double)params[1] * ps_init_normal_quantile(u));
        }
    }
}

const ps_init_t ps_init_normal = {
    .name = "normal",
    .formula = "w = mean + deviation * z, z standard normal",
    .source =
        "Wichura 1988, \"Algorithm AS 241: the percentage points of the normal distribution\"; "
        "random bits: Salmon et al. 2011",
    .n_params = sizeof params_table / sizeof params_table[0],
    .params = params_table,
    .check = NULL,
    .fill = fill,
};
