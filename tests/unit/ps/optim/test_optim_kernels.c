/*
 * Every kernel against its scalar form, to the last bit, at every width from 1 to 130.
 *
 * The scalar forms are plain loops over one column after the other, without blocks, vectors or
 * multiversioning, each operation rounded to float32 in the order that the entry's file states.
 * They go on for several steps, from the same random rows. What must hold beside the bits: nothing
 * outside the row is touched, and finite gradients of any size leave the state finite.
 */
#include "tests/support/cmocka.h"

#include "ps/optim/optim.h"
#include "tests/support/test_seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define DIM_MAX 130
#define GUARD 20

typedef struct scalar_step {
    float rate;
    const double *p;
    uint64_t t;
} scalar_step_t;

typedef void scalar_fn(float *w, float *s, const float *g, size_t dim, scalar_step_t now);

static void scalar_sgd(float *w, float *s, const float *g, size_t dim, scalar_step_t now)
{
    (void)s;
    for (size_t i = 0; i < dim; i++)
        w[i] -= now.rate * g[i];
}

static void scalar_momentum(float *w, float *s, const float *g, size_t dim, scalar_step_t now)
{
    for (size_t i = 0; i < dim; i++) {
        s[i] = (float)now.p[0] * s[i] + g[i];
        w[i] -= now.rate * s[i];
    }
}

static void scalar_nesterov(float *w, float *s, const float *g, size_t dim, scalar_step_t now)
{
    for (size_t i = 0; i < dim; i++) {
        s[i] = (float)now.p[0] * s[i] + g[i];
        w[i] -= now.rate * (g[i] + (float)now.p[0] * s[i]);
    }
}

static void scalar_adagrad(float *w, float *s, const float *g, size_t dim, scalar_step_t now)
{
    for (size_t i = 0; i < dim; i++) {
        s[i] += g[i] * g[i];
        w[i] += -now.rate * g[i] / (sqrtf(s[i]) + (float)now.p[1]);
    }
}

/* The mean of squares in sixteen lanes, folded as common/lanes.h says. */
static float mean_of_squares(const float *g, size_t dim)
{
    float lanes[16] = {0};
    for (size_t i = 0; i < dim; i++)
        lanes[i % 16] += g[i] * g[i];
    for (size_t width = 8; width > 0; width /= 2) {
        for (size_t l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    }
    return lanes[0] / (float)dim;
}

static void scalar_rowwise_adagrad(float *w, float *s, const float *g, size_t dim,
                                   scalar_step_t now)
{
    s[0] += mean_of_squares(g, dim);
    float factor = now.rate / (sqrtf(s[0]) + (float)now.p[1]);
    for (size_t i = 0; i < dim; i++)
        w[i] -= factor * g[i];
}

static float limited(float g)
{
    if (g > 1e15f)
        return 1e15f;
    return g < -1e15f ? -1e15f : g;
}

static void scalar_rmsprop(float *w, float *s, const float *g, size_t dim, scalar_step_t now)
{
    float part = (float)(1 - now.p[0]);
    for (size_t i = 0; i < dim; i++) {
        float h = limited(g[i]);
        s[i] += part * (h * h - s[i]);
        w[i] += -now.rate * h / (sqrtf(s[i]) + (float)now.p[1]);
    }
}

/* 1 - beta^t by the binary digits of t. */
static double bias(double beta, uint64_t t)
{
    double power = 1, square = beta;
    for (; t != 0; t >>= 1) {
        power = (t & 1) != 0 ? power * square : power;
        square *= square;
    }
    return 1 - power;
}

static void scalar_adam(float *w, float *s, const float *g, size_t dim, scalar_step_t now)
{
    double correction = sqrt(bias(now.p[1], now.t)) / bias(now.p[0], now.t);
    float rate = (float)((double)now.rate * correction);
    float *m = s, *v = s + dim;
    for (size_t i = 0; i < dim; i++) {
        float h = limited(g[i]);
        m[i] += (float)(1 - now.p[0]) * (h - m[i]);
        v[i] += (float)(1 - now.p[1]) * (h * h - v[i]);
        w[i] -= rate * (m[i] / (sqrtf(v[i]) + (float)now.p[2]));
    }
}

static void scalar_partial_rowwise_adam(float *w, float *s, const float *g, size_t dim,
                                        scalar_step_t now)
{
    float rate = (float)((double)now.rate / bias(now.p[0], now.t));
    float mean = fminf(mean_of_squares(g, dim), 1e15f * 1e15f);
    s[dim] += (float)(1 - now.p[1]) * (mean - s[dim]);
    float corrected = s[dim] * (float)(1 / bias(now.p[1], now.t));
    float factor = rate / (sqrtf(corrected) + (float)now.p[2]);
    float decay = (float)((double)now.rate * now.p[3]);
    for (size_t i = 0; i < dim; i++) {
        s[i] += (float)(1 - now.p[0]) * (limited(g[i]) - s[i]);
        float step = factor * s[i];
        float loss = decay * w[i];
        w[i] -= step + loss;
    }
}

static void scalar_adamw(float *w, float *s, const float *g, size_t dim, scalar_step_t now)
{
    float rate = (float)((double)now.rate / bias(now.p[0], now.t));
    float root = (float)(1 / sqrt(bias(now.p[1], now.t)));
    float decay = (float)((double)now.rate * now.p[3]);
    float *m = s, *v = s + dim;
    for (size_t i = 0; i < dim; i++) {
        float h = limited(g[i]);
        m[i] += (float)(1 - now.p[0]) * (h - m[i]);
        v[i] += (float)(1 - now.p[1]) * (h * h - v[i]);
        float step = rate * (m[i] / (sqrtf(v[i]) * root + (float)now.p[2]));
        float loss = decay * w[i];
        w[i] -= step + loss;
    }
}

static void scalar_ftrl(float *w, float *s, const float *g, size_t dim, scalar_step_t now)
{
    float inverse = (float)(1 / (double)now.rate);
    float offset = (float)(now.p[2] + (double)now.rate * now.p[1]);
    float l1 = (float)now.p[0];
    float *z = s, *sums = s + dim;
    for (size_t i = 0; i < dim; i++) {
        float h = limited(g[i]);
        float before = sqrtf(sums[i]);
        sums[i] += h * h;
        float after = sqrtf(sums[i]);
        z[i] += h - (after - before) * inverse * w[i];
        if (fabsf(z[i]) <= l1)
            w[i] = 0;
        else if (z[i] > 0)
            w[i] = -(now.rate * (z[i] - l1) / (offset + after));
        else
            w[i] = now.rate * (-z[i] - l1) / (offset + after);
    }
}

static const struct {
    const char *name;
    scalar_fn *step;
    double params[4];
    size_t n_params;
} references[] = {
    {"sgd", scalar_sgd, {0}, 0},
    {"momentum", scalar_momentum, {0.85}, 1},
    {"nesterov", scalar_nesterov, {0.85}, 1},
    {"adagrad", scalar_adagrad, {0.1, 1e-5}, 2},
    {"rowwise_adagrad", scalar_rowwise_adagrad, {0.1, 1e-5}, 2},
    {"rmsprop", scalar_rmsprop, {0.95, 1e-6}, 2},
    {"adam", scalar_adam, {0.9, 0.999, 1e-8}, 3},
    {"partial_rowwise_adam", scalar_partial_rowwise_adam, {0.9, 0.999, 1e-8, 0.05}, 4},
    {"adamw", scalar_adamw, {0.9, 0.999, 1e-8, 0.05}, 4},
    {"ftrl", scalar_ftrl, {0.3, 0.2, 1.0, 0.1}, 4},
};

#define N_REFERENCES (sizeof references / sizeof references[0])

static void step_row(const ps_optim_t *optim, float *weights, float *state, const float *gradient,
                     size_t dim, scalar_step_t now)
{
    ps_optim_step_t step = {.learning_rate = now.rate, .step = now.t, .params = now.p};
    if (optim->prepare != NULL)
        optim->prepare(&step);
    optim->update(weights, state, gradient, dim, &step);
}

/* Mostly around 1, some zeros and small ones. */
static float random_value(test_random_t *random)
{
    float value = (float)test_below(random, 1u << 24) / 0x1p23f - 1.0f;
    switch (test_below(random, 8)) {
    case 0:
        return 0;
    case 1:
        return value * 0x1p-20f;
    default:
        return value;
    }
}

static void compare_at(size_t r, size_t dim, test_random_t *random)
{
    const ps_optim_t *optim = ps_optim_find(references[r].name);
    assert_non_null(optim);
    double params[PS_OPTIM_PARAMS_MAX];
    assert_int_equal(
        ps_optim_params(optim, references[r].params, references[r].n_params, params, NULL), PSC_OK);
    size_t k = optim->state_floats(dim);
    assert_true(k <= 2 * DIM_MAX);
    float weights[DIM_MAX + GUARD], state[2 * DIM_MAX + GUARD];
    float scalar_weights[DIM_MAX + GUARD], scalar_state[2 * DIM_MAX + GUARD];
    memset(weights, 0x7f, sizeof weights); /* NaN behind the row, which must stay there */
    memset(state, 0x7f, sizeof state);
    for (size_t i = 0; i < dim; i++)
        weights[i] = random_value(random);
    optim->init_state(state, dim, params);
    memcpy(scalar_weights, weights, sizeof weights);
    memcpy(scalar_state, state, sizeof state);
    for (uint64_t t = 1; t <= 5; t++) {
        float gradient[DIM_MAX];
        for (size_t i = 0; i < dim; i++)
            gradient[i] = random_value(random);
        scalar_step_t now = {.rate = 0.3f / (float)t, .p = params, .t = t * t};
        step_row(optim, weights, state, gradient, dim, now);
        references[r].step(scalar_weights, scalar_state, gradient, dim, now);
        assert_memory_equal(weights, scalar_weights, sizeof weights);
        assert_memory_equal(state, scalar_state, sizeof state);
    }
}

static void every_kernel_has_the_bits_of_its_scalar_form_at_any_width(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    for (size_t r = 0; r < N_REFERENCES; r++) {
        for (size_t dim = 1; dim <= DIM_MAX; dim++)
            compare_at(r, dim, &random);
    }
}

static void every_optimizer_has_a_scalar_form(void **unused)
{
    (void)unused;
    const ps_optim_t *optim;
    size_t e = 0;
    for (; (optim = ps_optim_at(e)) != NULL; e++) {
        bool found = false;
        for (size_t r = 0; r < N_REFERENCES; r++)
            found |= strcmp(references[r].name, optim->name) == 0;
        assert_true(found);
    }
    assert_int_equal(e, N_REFERENCES);
}

/* Momentum and plain descent follow a gradient wherever it leads; the others must not break. */
static void huge_and_tiny_gradients_leave_no_row_without_a_number(void **unused)
{
    (void)unused;
    static const float extremes[] = {FLT_MAX, -FLT_MAX, 1e20f, -1e-30f, FLT_TRUE_MIN,
                                     0,       FLT_MIN,  1e16f, -1e19f};
    for (size_t r = 0; r < N_REFERENCES; r++) {
        const ps_optim_t *optim = ps_optim_find(references[r].name);
        bool plain = strcmp(optim->name, "sgd") == 0 || strcmp(optim->name, "momentum") == 0 ||
                     strcmp(optim->name, "nesterov") == 0;
        double params[PS_OPTIM_PARAMS_MAX];
        assert_int_equal(ps_optim_params(optim, NULL, 0, params, NULL), PSC_OK);
        float weights[35] = {0}, state[70], gradient[35];
        optim->init_state(state, 35, params);
        for (uint64_t t = 1; t <= 200 && !plain; t++) {
            for (size_t i = 0; i < 35; i++)
                gradient[i] = extremes[(i + t * (i + 1)) % (sizeof extremes / sizeof extremes[0])];
            step_row(optim, weights, state, gradient, 35,
                     (scalar_step_t){.rate = 0.1f, .p = params, .t = t});
            for (size_t i = 0; i < 35; i++)
                assert_true(isnan(weights[i]) == 0);
            for (size_t i = 0; i < optim->state_floats(35); i++)
                assert_true(isnan(state[i]) == 0);
        }
    }
}

static void a_zero_gradient_on_a_new_row_of_zeros_is_no_division_by_zero(void **unused)
{
    (void)unused;
    const ps_optim_t *optim;
    for (size_t e = 0; (optim = ps_optim_at(e)) != NULL; e++) {
        double params[PS_OPTIM_PARAMS_MAX] = {0}, smallest[PS_OPTIM_PARAMS_MAX];
        for (size_t i = 0; i < optim->n_params; i++)
            smallest[i] = optim->params[i].min;
        assert_int_equal(ps_optim_params(optim, smallest, optim->n_params, params, NULL), PSC_OK);
        float weights[20] = {0}, state[40], gradient[20] = {0};
        optim->init_state(state, 20, params);
        step_row(optim, weights, state, gradient, 20,
                 (scalar_step_t){.rate = 1.0f, .p = params, .t = 1});
        for (size_t i = 0; i < 20; i++)
            assert_true(weights[i] == 0.0f);
    }
}

static void a_rate_of_zero_moves_no_weight(void **unused)
{
    (void)unused;
    const ps_optim_t *optim;
    for (size_t e = 0; (optim = ps_optim_at(e)) != NULL; e++) {
        double params[PS_OPTIM_PARAMS_MAX];
        assert_int_equal(ps_optim_params(optim, NULL, 0, params, NULL), PSC_OK);
        float weights[20], state[40], gradient[20];
        for (size_t i = 0; i < 20; i++)
            weights[i] = gradient[i] = (float)i - 9.5f;
        optim->init_state(state, 20, params);
        step_row(optim, weights, state, gradient, 20,
                 (scalar_step_t){.rate = 0.0f, .p = params, .t = 1});
        for (size_t i = 0; i < 20; i++)
            assert_true(weights[i] == (float)i - 9.5f);
    }
}

static void step_0_counts_as_the_first(void **unused)
{
    (void)unused;
    const ps_optim_t *optim;
    for (size_t e = 0; (optim = ps_optim_at(e)) != NULL; e++) {
        double params[PS_OPTIM_PARAMS_MAX];
        assert_int_equal(ps_optim_params(optim, NULL, 0, params, NULL), PSC_OK);
        ps_optim_step_t steps[3] = {0};
        for (uint64_t t = 0; t < 3; t++) {
            steps[t] = (ps_optim_step_t){.learning_rate = 0.5f, .step = t, .params = params};
            if (optim->prepare != NULL)
                optim->prepare(&steps[t]);
        }
        assert_memory_equal(steps[0].derived, steps[1].derived, sizeof steps[0].derived);
        bool same = memcmp(steps[1].derived, steps[2].derived, sizeof steps[1].derived) == 0;
        assert_int_equal(same, !optim->uses_step);
    }
}

static void only_running_means_may_be_kept_with_16_bits(void **unused)
{
    (void)unused;
    const ps_optim_t *optim;
    for (size_t e = 0; (optim = ps_optim_at(e)) != NULL; e++) {
        if (optim->moment_floats == NULL)
            continue;
        assert_true(optim->uses_step); /* the Adams, and no other */
        for (size_t dim = 1; dim <= DIM_MAX; dim++) {
            assert_true(optim->moment_floats(dim) >= dim);
            assert_true(optim->moment_floats(dim) <= optim->state_floats(dim));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_has_the_bits_of_its_scalar_form_at_any_width),
        cmocka_unit_test(every_optimizer_has_a_scalar_form),
        cmocka_unit_test(huge_and_tiny_gradients_leave_no_row_without_a_number),
        cmocka_unit_test(a_zero_gradient_on_a_new_row_of_zeros_is_no_division_by_zero),
        cmocka_unit_test(a_rate_of_zero_moves_no_weight),
        cmocka_unit_test(step_0_counts_as_the_first),
        cmocka_unit_test(only_running_means_may_be_kept_with_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
