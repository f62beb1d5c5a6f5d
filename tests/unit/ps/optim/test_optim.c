/*
 * Optimizers against golden vectors, and what must hold for every entry of the table.
 *
 * The vectors were computed with NumPy 1.24 in float32, one operation per rounding, from the
 * formulas in PyTorch's documentation of SGD and Adagrad:
 *     sgd:      w = w - f32(rate) * g
 *     adagrad:  s = s + g * g;  w = w + (-f32(rate) * g) / (sqrt(s) + f32(eps))
 * Square root and division are correctly rounded in both, so equality is to the last bit. The other
 * optimizers are compared in test_optim_reference.c and test_optim_kernels.c.
 */
#include "tests/support/cmocka.h"

#include "ps/optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define D 5

static const float start[D] = {0.5f, -1.25f, 3.0f, 1e-3f, -2e4f};
static const float gradients[3][D] = {
    {0.1f, -0.2f, 0.0f, 5.0f, 1e-8f},
    {-0.3f, 0.7f, 1e-12f, -5.0f, 123.0f},
    {0.01f, 0.02f, 0.03f, 0.04f, 0.05f},
};

static void assert_bits(const float *values, const uint32_t *bits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t got;
        memcpy(&got, &values[i], sizeof got);
        assert_int_equal(got, bits[i]);
    }
}

/* One step as a push does it. number: from 1. */
static void step_row(const ps_optim_t *optim, float *weights, float *state, const float *gradient,
                     size_t dim, float rate, const double *params, uint64_t number)
{
    ps_optim_step_t step = {.learning_rate = rate, .step = number, .params = params};
    if (optim->prepare != NULL)
        optim->prepare(&step);
    optim->update(weights, state, gradient, dim, &step);
}

static void sgd_matches_golden_vectors(void **unused)
{
    (void)unused;
    static const uint32_t golden[3][D] = {
        {0x3efae148, 0xbf9d70a4, 0x40400000, 0xbeff7cee, 0xc69c4000},
        {0x3f051eb8, 0xbfa66667, 0x40400000, 0x3a831200, 0xc69c589a},
        {0x3f04dd2f, 0xbfa6a7f0, 0x403fced9, 0xbb449bde, 0xc69c589d},
    };
    const ps_optim_t *sgd = ps_optim_find("sgd");
    assert_non_null(sgd);
    double params[PS_OPTIM_PARAMS_MAX];
    assert_int_equal(ps_optim_params(sgd, NULL, 0, params, NULL), PSC_OK);
    float weights[D];
    memcpy(weights, start, sizeof weights);
    for (uint32_t step = 0; step < 3; step++) {
        float none[1];
        step_row(sgd, weights, none, gradients[step], D, 0.1f, params, step + 1);
        assert_bits(weights, golden[step], D);
    }
}

static void adagrad_matches_golden_vectors(void **unused)
{
    (void)unused;
    static const struct {
        double params[2];
        size_t n_params;
        float rate;
        uint32_t weights[3][D], state[3][D];
    } cases[2] = {
        {{0},
         0, /* the defaults */
         0.1f,
         {{0x3ecccccc, 0xbf933333, 0x40400000, 0xbdcac083, 0xc69c4033},
          {0x3efd5f61, 0xbf9f81ec, 0x403fefc7, 0xbce7bf00, 0xc69c4066},
          {0x3efbc11a, 0xbf9fdbe9, 0x40398961, 0xbcec614f, 0xc69c4066}},
         {{0x3c23d70b, 0x3d23d70b, 0x00000000, 0x41c80000, 0x24e69595},
          {0x3dcccccd, 0x3f07ae14, 0x179abe15, 0x42480000, 0x466c6400},
          {0x3dcd013b, 0x3f07c84b, 0x3a6bedfa, 0x424801a3, 0x466c6403}}},
        {{0.1, 1e-3},
         2,
         0.025f,
         {{0x3efc26fa, 0xbf9e4b49, 0x40400000, 0xbcc428a9, 0xc69c4000},
          {0x3f025c1c, 0xbfa11cd8, 0x40400000, 0xbbce0898, 0xc69c400d},
          {0x3f023791, 0xbfa13174, 0x403fd970, 0xbbd2a98d, 0xc69c400d}},
         {{0x3de147ae, 0x3e0f5c29, 0x3dcccccd, 0x41c8cccd, 0x3dcccccd},
          {0x3e4ccccd, 0x3f2147ae, 0x3dcccccd, 0x42486666, 0x466c6466},
          {0x3e4ce704, 0x3f2161e5, 0x3dcea4a9, 0x42486809, 0x466c6469}}},
    };
    const ps_optim_t *adagrad = ps_optim_find("adagrad");
    assert_non_null(adagrad);
    for (size_t c = 0; c < 2; c++) {
        double params[PS_OPTIM_PARAMS_MAX];
        assert_int_equal(ps_optim_params(adagrad, cases[c].params, cases[c].n_params, params, NULL),
                         PSC_OK);
        assert_int_equal(adagrad->state_floats(D), D);
        float weights[D], state[D];
        memcpy(weights, start, sizeof weights);
        adagrad->init_state(state, D, params);
        for (uint32_t step = 0; step < 3; step++) {
            step_row(adagrad, weights, state, gradients[step], D, cases[c].rate, params, step + 1);
            assert_bits(weights, cases[c].weights[step], D);
            assert_bits(state, cases[c].state[step], D);
        }
    }
}

static void every_entry_refuses_parameters_out_of_bounds(void **unused)
{
    (void)unused;
    const ps_optim_t *optim;
    for (size_t e = 0; (optim = ps_optim_at(e)) != NULL; e++) {
        assert_ptr_equal(ps_optim_find(optim->name), optim);
        assert_true(strlen(optim->formula) > 0 && strlen(optim->source) > 0);
        assert_true(strlen(optim->untouched) > 0);
        assert_true(optim->n_params <= PS_OPTIM_PARAMS_MAX);
        double values[PS_OPTIM_PARAMS_MAX + 1] = {0};
        double params[PS_OPTIM_PARAMS_MAX];
        psc_error_t error = PSC_ERROR_INIT;
        for (size_t i = 0; i < optim->n_params; i++)
            values[i] = optim->params[i].default_value;
        for (size_t i = 0; i < optim->n_params; i++) {
            const double bad[] = {nextafter(optim->params[i].max, INFINITY),
                                  nextafter(optim->params[i].min, -INFINITY), (double)NAN};
            for (size_t b = 0; b < 3; b++) {
                values[i] = bad[b];
                assert_int_equal(ps_optim_params(optim, values, optim->n_params, params, &error),
                                 PSC_INVALID_ARGUMENT);
                assert_non_null(strstr(error.message, optim->params[i].name));
                const char *bounds = strstr(error.message, "between ");
                assert_non_null(bounds);
                char *end = NULL;
                const double least = strtod(bounds + strlen("between "), &end);
                assert_int_equal(strncmp(end, " and ", 5), 0);
                const double most = strtod(end + 5, NULL);
                assert_true(fabs(least - optim->params[i].min) <=
                            1e-9 * fabs(optim->params[i].min));
                assert_true(fabs(most - optim->params[i].max) <= 1e-9 * fabs(optim->params[i].max));
            }
            values[i] = optim->params[i].default_value;
        }
        assert_int_equal(ps_optim_params(optim, values, optim->n_params, params, &error), PSC_OK);
        assert_int_equal(ps_optim_params(optim, values, optim->n_params + 1, params, &error),
                         PSC_INVALID_ARGUMENT);
    }
    assert_null(ps_optim_find("none"));
    assert_null(ps_optim_find(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_matches_golden_vectors),
        cmocka_unit_test(adagrad_matches_golden_vectors),
        cmocka_unit_test(every_entry_refuses_parameters_out_of_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
