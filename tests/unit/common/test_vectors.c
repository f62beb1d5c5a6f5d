/* common/vectors against plain scalar loops: the same bits, for every length and alignment. */
#include "common/vectors.h"

#include "tests/support/test_seed.h"

#include "tests/support/cmocka.h"
#include <math.h>
#include <string.h>

enum { MAX = 320 };

static float scalar_dot(const float *a, const float *b, size_t n)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++) {
        float product = a[i] * b[i];
        lane[i % 16] += product;
    }
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* Values of very different size, zeros of both signs, and now and then denormals. */
static void fill(test_random_t *random, float *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t kind = test_below(random, 16);
        float x = test_float(random);
        a[i] = kind == 0   ? 0.0f
               : kind == 1 ? -0.0f
               : kind == 2 ? x * 0x1p-130f
               : kind < 6  ? x * 1e4f
                           : x;
    }
}

static void assert_same_bits(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0)
            fail_msg("at %zu of %zu: %a, expected %a", i, n, (double)a[i], (double)b[i]);
}

static void sums_have_the_bits_of_sixteen_scalar_lanes(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    float a[MAX + 16];
    float b[MAX + 16];
    for (size_t n = 0; n <= MAX; n++) {
        size_t off_a = test_below(&random, 16);
        size_t off_b = test_below(&random, 16);
        fill(&random, a, MAX + 16);
        fill(&random, b, MAX + 16);
        float dot = psc_vector_dot(a + off_a, b + off_b, n);
        float expected = scalar_dot(a + off_a, b + off_b, n);
        assert_same_bits(&dot, &expected, 1);
        float norm = psc_vector_squared_norm(a + off_a, n);
        expected = scalar_dot(a + off_a, a + off_a, n);
        assert_same_bits(&norm, &expected, 1);
        /* And it is a dot product: against double, within the rounding of n additions and of
         * products that are denormal. */
        double exact = 0;
        double size = 0;
        for (size_t i = 0; i < n; i++) {
            exact += (double)a[off_a + i] * (double)b[off_b + i];
            size += fabs((double)a[off_a + i] * (double)b[off_b + i]);
        }
        assert_true(fabs((double)dot - exact) <=
                    size * (double)(n + 1) * 0x1p-24 + (double)n * 0x1p-149);
    }
}

static void elementwise_functions_have_the_bits_of_plain_loops(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    float x[MAX + 16];
    float y[MAX + 16];
    float got[MAX + 16];
    float expected[MAX + 16];
    for (size_t n = 0; n <= MAX; n++) {
        size_t off = test_below(&random, 16);
        fill(&random, x, MAX + 16);
        fill(&random, y, MAX + 16);
        float factor = test_float(&random);

        memcpy(got, y, sizeof y);
        memcpy(expected, y, sizeof y);
        psc_vector_add(got + off, x, n);
        for (size_t i = 0; i < n; i++)
            expected[off + i] += x[i];
        assert_same_bits(got, expected, MAX + 16);

        psc_vector_axpy(got + off, factor, x, n);
        for (size_t i = 0; i < n; i++) {
            float product = factor * x[i];
            expected[off + i] += product;
        }
        assert_same_bits(got, expected, MAX + 16);

        psc_vector_scale(got + off, factor, n);
        for (size_t i = 0; i < n; i++)
            expected[off + i] *= factor;
        assert_same_bits(got, expected, MAX + 16);

        float low = fminf(factor, x[0]);
        float high = fmaxf(factor, x[0]);
        got[off] = expected[off] = n % 2 == 0 ? NAN : -0.0f;
        psc_vector_clamp(got + off, low, high, n);
        for (size_t i = off; i < off + n; i++) {
            if (expected[i] < low)
                expected[i] = low;
            if (expected[i] > high)
                expected[i] = high;
        }
        assert_same_bits(got, expected, MAX + 16);

        psc_vector_subtract(got + off, x, y, n);
        for (size_t i = 0; i < n; i++)
            expected[off + i] = x[i] - y[i];
        assert_same_bits(got, expected, MAX + 16);

        assert_true(psc_vector_sum(got + off, x, y, n, INFINITY));
        for (size_t i = 0; i < n; i++)
            expected[off + i] = x[i] + y[i];
        assert_same_bits(got, expected, MAX + 16);
    }
}

static void outputs_may_be_the_inputs(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    float a[37];
    float b[37];
    float doubled[37];
    fill(&random, a, 37);
    for (size_t i = 0; i < 37; i++)
        doubled[i] = a[i] + a[i];
    memcpy(b, a, sizeof a);
    psc_vector_add(b, b, 37);
    assert_same_bits(b, doubled, 37);
    psc_vector_subtract(b, b, a, 37);
    for (size_t i = 0; i < 37; i++)
        doubled[i] -= a[i];
    assert_same_bits(b, doubled, 37);
    for (size_t i = 0; i < 37; i++)
        doubled[i] += a[i];
    assert_true(psc_vector_sum(b, a, b, 37, INFINITY));
    assert_same_bits(b, doubled, 37);
    for (size_t i = 0; i < 37; i++)
        doubled[i] += a[i];
    assert_true(psc_vector_sum(b, b, a, 37, INFINITY));
    assert_same_bits(b, doubled, 37);
}

static void many_dots_have_the_bits_of_single_ones(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    enum { Q = 5, R = 11, STRIDE = 117, OUT = 13 };
    static float queries[Q * STRIDE];
    static float rows[R * STRIDE];
    static const size_t dims[] = {0, 1, 7, 8, 9, 15, 16, 17, 100, 112};
    fill(&random, queries, Q * STRIDE);
    fill(&random, rows, R * STRIDE);
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (size_t nq = 0; nq <= Q; nq++)
            for (size_t nr = 0; nr <= R; nr++) {
                float out[Q * OUT];
                float expected[Q * OUT];
                for (size_t i = 0; i < Q * OUT; i++)
                    out[i] = expected[i] = 77.0f;
                for (size_t q = 0; q < nq; q++)
                    for (size_t r = 0; r < nr; r++)
                        expected[q * OUT + r] =
                            scalar_dot(queries + q * STRIDE, rows + r * STRIDE, dims[d]);
                psc_vector_dot_many(queries, STRIDE, nq, rows, STRIDE, nr, dims[d], out, OUT);
                assert_same_bits(out, expected, Q * OUT);
            }
}

static void one_value_that_is_not_finite_is_found_anywhere(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    float a[50];
    static const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (size_t n = 0; n <= 50; n++) {
        fill(&random, a, 50);
        if (n > 0)
            a[n - 1] = 3.4028234e38f;
        assert_true(psc_vector_all_finite(a, n));
        for (size_t i = 0; i < n; i++) {
            float kept = a[i];
            a[i] = bad[i % 4];
            assert_false(psc_vector_all_finite(a, n));
            assert_true(psc_vector_all_finite(a, i));
            a[i] = kept;
        }
    }
}

static void one_value_out_of_bounds_is_found_anywhere(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    const float limit = 0x1p96f;
    const float below = nextafterf(limit, 0);
    const float bad[] = {NAN, -INFINITY, limit, -limit};
    float a[51];
    for (size_t n = 0; n <= 50; n++) {
        fill(&random, a, 50);
        if (n > 0)
            a[n - 1] = n % 2 == 0 ? below : -below;
        a[n] = limit; /* not looked at */
        assert_true(psc_vector_all_within(a, n, limit));
        for (size_t i = 0; i < n; i++) {
            float kept = a[i];
            float halves[50], sums[50];
            a[i] = bad[i % 4];
            assert_false(psc_vector_all_within(a, n, limit));
            for (size_t k = 0; k < n; k++)
                halves[k] = a[k] / 2;
            assert_false(psc_vector_sum(sums, halves, halves, n, limit));
            assert_true(psc_vector_sum(sums, halves, halves, i, limit));
            a[i] = kept;
        }
    }
    a[0] = 3.4028234e38f;
    assert_true(psc_vector_all_within(a, 1, INFINITY));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_have_the_bits_of_sixteen_scalar_lanes),
        cmocka_unit_test(elementwise_functions_have_the_bits_of_plain_loops),
        cmocka_unit_test(outputs_may_be_the_inputs),
        cmocka_unit_test(many_dots_have_the_bits_of_single_ones),
        cmocka_unit_test(one_value_that_is_not_finite_is_found_anywhere),
        cmocka_unit_test(one_value_out_of_bounds_is_found_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
