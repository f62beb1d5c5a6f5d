/*
 * Initialisers against golden vectors, their statistics, and what must hold for every entry.
 *
 * The vectors were computed in Python: Philox4x32-10 written from its paper (checked with the
 * published answer for counter 0, key 0), NumPy float32 for the uniform ones, and
 * statistics.NormalDist().inv_cdf in float64 for the normal ones. That one uses libm's logarithm,
 * whose last bit may differ from ours; after rounding to float32 the chosen vectors agree bit for
 * bit.
 */
#include "tests/support/cmocka.h"

#include "ps/init/init.h"
#include "ps/init/init_entries.h"

#include <math.h>
#include <string.h>

#define D 7

typedef struct golden {
    const char *name;
    double params[2];
    size_t n_params;
    uint32_t low[D];  /* seed 1, table 1, id 0 */
    uint32_t high[D]; /* seed 0x0123456789abcdef, table 7, id 2^64 - 1 */
} golden_t;

static const golden_t goldens[] = {
    {"zeros", {0}, 0, {0}, {0}},
    {"uniform",
     {0},
     0,
     {0xbd418e3a, 0xbcc4c527, 0xbce31633, 0xbbeb1028, 0xbc51ca8c, 0xbc29b174, 0xbbc14268},
     {0x3d0e5149, 0x3d333077, 0x3ce9746a, 0x3ca194b2, 0x3d038b5d, 0xbb993cd8, 0x3cd31726}},
    {"word2vec",
     {0},
     0,
     {0xbd8a4105, 0xbd0c8cd2, 0xbd22346e, 0xbc27e6f7, 0xbc95d9d2, 0xbc726b37, 0xbc0a0adb},
     {0x3d4b4f8e, 0x3d7ffc17, 0x3d26c0de, 0x3ce6d469, 0x3d3beba9, 0xbbdae937, 0x3d16c765}},
    {"normal",
     {0},
     0,
     {0xbdc491fd, 0xbd03e1d1, 0xbd1c3820, 0xbc141b56, 0xbc85cf41, 0xbc572044, 0xbbf31a92},
     {0x3d5209df, 0x3d9d1280, 0x3d219c98, 0x3cd38d68, 0x3d3c5e66, 0xbbc07f30, 0x3d0f2025}},
    {"normal",
     {3.0, 2.0},
     2,
     {0xbf56d9ef, 0x3fdb25bb, 0x3fbcb9d8, 0x4028dbbb, 0x40162f3c, 0x401e62f5, 0x402d01ed},
     {0x40a1a316, 0x40c22b90, 0x409280f0, 0x40810e18, 0x409add80, 0x4030f610, 0x408cba0c}},
};

static void values_match_golden_vectors(void **unused)
{
    (void)unused;
    for (size_t g = 0; g < sizeof goldens / sizeof goldens[0]; g++) {
        const golden_t *golden = &goldens[g];
        const ps_init_t *init = ps_init_find(golden->name);
        assert_non_null(init);
        float params[PS_INIT_PARAMS_MAX];
        assert_int_equal(ps_init_params(init, golden->params, golden->n_params, params, NULL),
                         PSC_OK);
        float row[D];
        init->fill(row, D, 1, 1, 0, params);
        assert_memory_equal(row, golden->low, sizeof row);
        init->fill(row, D, UINT64_C(0x0123456789abcdef), 7, UINT64_MAX, params);
        assert_memory_equal(row, golden->high, sizeof row);
    }
}

static void every_entry_is_pure_and_ignores_the_width_beyond_a_column(void **unused)
{
    (void)unused;
    const ps_init_t *init;
    for (size_t e = 0; (init = ps_init_at(e)) != NULL; e++) {
        float params[PS_INIT_PARAMS_MAX];
        assert_int_equal(ps_init_params(init, NULL, 0, params, NULL), PSC_OK);
        float wide[65], again[65], other[65];
        init->fill(wide, 64, 5, 2, 99, params);
        init->fill(other, 64, 5, 2, 100, params);
        init->fill(again, 64, 5, 2, 99, params);
        assert_memory_equal(wide, again, 64 * sizeof(float));
        if (init != ps_init_find("zeros")) {
            assert_memory_not_equal(wide, other, 64 * sizeof(float));
            init->fill(other, 64, 6, 2, 99, params);
            assert_memory_not_equal(wide, other, 64 * sizeof(float));
            init->fill(other, 64, 5, 3, 99, params);
            assert_memory_not_equal(wide, other, 64 * sizeof(float));
        }
        if (init == ps_init_find("word2vec"))
            continue; /* its scale is the width */
        for (size_t dim = 1; dim < 64; dim++) {
            float guard = -77.0f;
            again[dim] = guard;
            init->fill(again, dim, 5, 2, 99, params);
            assert_memory_equal(wide, again, dim * sizeof(float));
            assert_true(again[dim] == guard);
        }
    }
}

typedef struct moments {
    double mean, deviation, lowest, highest;
} moments_t;

static moments_t measure(const char *name, const double *values, size_t n_values)
{
    const ps_init_t *init = ps_init_find(name);
    float params[PS_INIT_PARAMS_MAX];
    assert_int_equal(ps_init_params(init, values, n_values, params, NULL), PSC_OK);
    enum { WIDTH = 50, ROWS = 4000 };
    double sum = 0, squares = 0;
    moments_t m = {.lowest = INFINITY, .highest = -INFINITY};
    for (uint64_t id = 0; id < ROWS; id++) {
        float row[WIDTH];
        init->fill(row, WIDTH, 12345, 1, id, params);
        for (size_t i = 0; i < WIDTH; i++) {
            double x = (double)row[i];
            sum += x;
            squares += x * x;
            m.lowest = x < m.lowest ? x : m.lowest;
            m.highest = x > m.highest ? x : m.highest;
        }
    }
    m.mean = sum / (WIDTH * ROWS);
    m.deviation = sqrt(squares / (WIDTH * ROWS) - m.mean * m.mean);
    return m;
}

/* n = 200,000: the mean is within 5 / sqrt(n) = 0.0112 deviations, the deviation within 1%. */
static void uniform_has_its_bounds_and_moments(void **unused)
{
    (void)unused;
    moments_t m = measure("uniform", (const double[]){-1.0, 3.0}, 2);
    assert_true(m.lowest >= -1.0 && m.lowest < -0.999);
    assert_true(m.highest <= 3.0 && m.highest > 2.999);
    double deviation = 4.0 / sqrt(12.0);
    assert_true(fabs(m.mean - 1.0) < 0.0112 * deviation);
    assert_true(fabs(m.deviation - deviation) < 0.01 * deviation);
    m = measure("word2vec", NULL, 0);
    assert_true(m.lowest >= -0.5 / 50 && m.highest <= 0.5 / 50);
    assert_true(fabs(m.mean) < 0.0112 * 0.02 / sqrt(12.0));
    m = measure("uniform", (const double[]){2.0, 2.0}, 2);
    assert_true(m.lowest == 2.0 && m.highest == 2.0);
}

static void normal_has_its_moments(void **unused)
{
    (void)unused;
    moments_t m = measure("normal", (const double[]){-2.0, 0.5}, 2);
    assert_true(fabs(m.mean + 2.0) < 0.0112 * 0.5);
    assert_true(fabs(m.deviation - 0.5) < 0.005);
    /* Of 200,000 draws the extremes lie beyond 3.5 and within 6.4 deviations. */
    assert_true(m.highest > -2.0 + 1.75 && m.highest < -2.0 + 3.2);
    assert_true(m.lowest < -2.0 - 1.75 && m.lowest > -2.0 - 3.2);
    m = measure("normal", (const double[]){1.5, 0.0}, 2);
    assert_true(m.lowest == 1.5 && m.highest == 1.5);
}

/* References: Python's statistics.NormalDist().inv_cdf (the same algorithm over libm's logarithm).
 */
static void quantile_agrees_in_each_of_its_three_ranges(void **unused)
{
    (void)unused;
    static const double pairs[][2] = {
        {0.5, 0.0},
        {0.075, -0x1.7085226d3e523p+0},
        {0.925, 0x1.7085226d3e524p+0},
        {0.02425, -0x1.f913f9b7aa941p+0},
        {0.001, -0x1.8b8cbb7204470p+1},
        {0.999, 0x1.8b8cbb7204470p+1},
        {1e-10, -0x1.97203597a2154p+2},
        {1e-20, -0x1.2865170b43a4bp+3},
        {1e-300, -0x1.286074064c26ep+5},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        double got = ps_init_normal_quantile(pairs[i][0]);
        assert_true(fabs(got - pairs[i][1]) <= 1e-15 * fabs(pairs[i][1]));
    }
    /* And inverts the distribution function, from libm: 0.5 erfc(-x / sqrt 2). */
    for (int i = 1; i < 1000; i++) {
        double p = i / 1000.0;
        double back = 0.5 * erfc(-ps_init_normal_quantile(p) / sqrt(2.0));
        assert_true(fabs(back - p) < 1e-14);
    }
}

static void refuses_parameters_out_of_bounds(void **unused)
{
    (void)unused;
    psc_error_t error = PSC_ERROR_INIT;
    float params[PS_INIT_PARAMS_MAX];
    const ps_init_t *uniform = ps_init_find("uniform");
    assert_int_equal(ps_init_params(uniform, (const double[]){1.0, 0.5}, 2, params, &error),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "low is 1"));
    assert_int_equal(ps_init_params(uniform, (const double[]){(double)NAN}, 1, params, &error),
                     PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_init_params(uniform, (const double[]){0.0, INFINITY}, 2, params, &error),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "high"));
    const ps_init_t *normal = ps_init_find("normal");
    assert_int_equal(ps_init_params(normal, (const double[]){0.0, -1.0}, 2, params, &error),
                     PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "deviation"));
    const ps_init_t *zeros = ps_init_find("zeros");
    assert_int_equal(ps_init_params(zeros, (const double[]){0.0}, 1, params, &error),
                     PSC_INVALID_ARGUMENT);
    assert_null(ps_init_find("ones"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_match_golden_vectors),
        cmocka_unit_test(every_entry_is_pure_and_ignores_the_width_beyond_a_column),
        cmocka_unit_test(uniform_has_its_bounds_and_moments),
        cmocka_unit_test(normal_has_its_moments),
        cmocka_unit_test(quantile_agrees_in_each_of_its_three_ranges),
        cmocka_unit_test(refuses_parameters_out_of_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
