/* The table of precisions: sizes, neighbours of bounds, and that float32 is left alone. */
#include "ps/table/precision.h"

#include "tests/support/cmocka.h"
#include "tests/support/half_oracle.h"
#include "tests/support/test_seed.h"

#include <math.h>
#include <string.h>

static void float32_is_copied(void **unused)
{
    (void)unused;
    const ps_precision_t *f32 = ps_precision_of(PSP_F32);
    const float values[4] = {NAN, -0.0f, 1e-45f, -3.4e38f};
    const uint16_t random[4] = {1, 2, 3, 4};
    float out[4];
    assert_int_equal(f32->bytes, 4);
    f32->encode(out, values, 4);
    assert_memory_equal(out, values, sizeof values);
    memset(out, 0, sizeof out);
    f32->encode_stochastic(out, values, random, 4);
    assert_memory_equal(out, values, sizeof values);
    memset(out, 0, sizeof out);
    f32->decode(out, values, 4);
    assert_memory_equal(out, values, sizeof values);
    assert_true(ps_precision_at_least(f32, 0.1f) == 0.1f);
    assert_true(ps_precision_at_most(f32, 0.1f) == 0.1f);
}

/* By a search over all values of the format. */
static void neighbours_are_the_nearest_values_on_their_side(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    const half_format_t formats[2] = {HALF_BF16, HALF_F16};
    const psp_precision_t kinds[2] = {PSP_BF16, PSP_F16};
    static const float fixed[] = {0.0f,      -0.0f, 1.0f,   -1.0f,  1e-30f,   -1e-30f,
                                  0.1f,      -0.1f, 1e18f,  -1e18f, 65504.0f, 65505.0f,
                                  -65504.0f, 6e-8f, -6e-8f, 1e-45f, -1e-45f};
    enum { N_FIXED = sizeof fixed / sizeof fixed[0] };
    for (size_t k = 0; k < 2; k++) {
        const ps_precision_t *precision = ps_precision_of(kinds[k]);
        assert_int_equal(precision->bytes, 2);
        double largest = half_value(formats[k], half_largest(formats[k]));
        for (size_t i = 0; i < 60; i++) {
            float x = i < N_FIXED ? fixed[i] : test_float(&random) * (i % 2 == 0 ? 1.0f : 1e-6f);
            double above = largest;
            double below = -largest;
            for (uint32_t half = 0; half < 65536; half++) {
                double value = half_value(formats[k], half);
                if (!isfinite(value))
                    continue;
                if (value >= (double)x && value < above)
                    above = value;
                if (value <= (double)x && value > below)
                    below = value;
            }
            assert_true((double)ps_precision_at_least(precision, x) == above);
            assert_true((double)ps_precision_at_most(precision, x) == below);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float32_is_copied),
        cmocka_unit_test(neighbours_are_the_nearest_values_on_their_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
