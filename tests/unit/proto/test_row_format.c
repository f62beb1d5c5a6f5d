/*
 * The table of formats: names, numbers and sizes, errors as the header states them, and that each
 * kernel stands in its place. The kernels have tests of their own in tests/unit/common.
 */
#include "proto/row_format.h"

#include "proto/embps.pb-c.h"

#include "tests/support/cmocka.h"
#include "tests/support/half_oracle.h"
#include "tests/support/test_seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { N = 37 };

static void formats_have_the_names_numbers_and_sizes_of_the_wire(void **unused)
{
    (void)unused;
    static const struct {
        const char *name;
        int number;
        size_t bytes_of_0, bytes_of_100;
    } expected[PSP_FORMATS] = {
        {"f32", EMBPS__V1__WIRE_FORMAT__WIRE_F32, 0, 400},
        {"bf16", EMBPS__V1__WIRE_FORMAT__WIRE_BF16, 0, 200},
        {"f16", EMBPS__V1__WIRE_FORMAT__WIRE_F16, 0, 200},
        {"int8", EMBPS__V1__WIRE_FORMAT__WIRE_INT8, 4, 104},
    };
    psp_format_t found = PSP_FORMAT_F16;
    for (uint32_t i = 0; i < PSP_FORMATS; i++) {
        assert_int_equal(expected[i].number, i);
        assert_string_equal(psp_row_format((psp_format_t)i)->name, expected[i].name);
        assert_non_null(strstr(PSP_FORMAT_NAMES, expected[i].name));
        assert_int_equal(psp_row_bytes((psp_format_t)i, 0), expected[i].bytes_of_0);
        assert_int_equal(psp_row_bytes((psp_format_t)i, 100), expected[i].bytes_of_100);
        assert_true(psp_row_format_find(expected[i].name, &found));
        assert_int_equal(found, i);
    }
    assert_false(psp_row_format_find("", &found));
    assert_false(psp_row_format_find("int", &found));
    assert_false(psp_row_format_find("F32", &found));
    assert_int_equal(found, PSP_FORMAT_INT8);
}

/* What a value of a row may lose to the nearest; stochastically twice that. */
static double bound(psp_format_t format, double value, double largest)
{
    switch (format) {
    case PSP_FORMAT_F32:
        return 0;
    case PSP_FORMAT_BF16:
        return fabs(value) / 256;
    case PSP_FORMAT_F16:
        return fabs(value) < 0x1p-14 ? 0x1p-25 : fabs(value) / 2048;
    case PSP_FORMAT_INT8:
        break;
    }
    return largest / 127 * (1 + 0x1p-15) * (0.5 + 0x1p-15);
}

static void values_lose_no_more_than_the_header_says(void **unused)
{
    (void)unused;
    test_random_t seed = test_random_start();
    for (size_t round = 0; round < 2000; round++) {
        for (uint32_t f = 0; f < PSP_FORMATS; f++) {
            const psp_row_format_t *format = psp_row_format((psp_format_t)f);
            float x[N], nearest[N], stochastic[N];
            uint16_t random[N];
            uint8_t row[1 + sizeof x];
            double largest = 0;
            for (size_t i = 0; i < N; i++) {
                x[i] = ldexpf(test_float(&seed), (int)test_below(&seed, 30) - 20);
                random[i] = (uint16_t)test_next(&seed);
                largest = fmax(largest, fabs((double)x[i]));
            }
            format->encode(row + 1, x, N);
            assert_true(format->all_finite(row + 1, N));
            format->decode(nearest, row + 1, N);
            format->encode_stochastic(row + 1, x, random, N);
            format->decode(stochastic, row + 1, N);
            for (size_t i = 0; i < N; i++) {
                double most = bound((psp_format_t)f, (double)x[i], largest);
                assert_true(fabs((double)nearest[i] - (double)x[i]) <= most);
                assert_true(fabs((double)stochastic[i] - (double)x[i]) <= 2 * most);
            }
        }
    }
}

static void a_value_that_is_not_finite_is_seen_in_every_format(void **unused)
{
    (void)unused;
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    for (uint32_t f = 0; f < PSP_FORMATS; f++) {
        const psp_row_format_t *format = psp_row_format((psp_format_t)f);
        for (size_t n = 1; n <= N; n++) {
            float x[N] = {0};
            uint8_t row[1 + sizeof x];
            for (size_t i = 0; i < n; i++)
                x[i] = i % 2 == 0 ? -65504.0f : FLT_MIN;
            format->encode(row + 1, x, n);
            assert_true(format->all_finite(row + 1, n));
            for (size_t at = 0; at < n; at++) {
                float was = x[at];
                x[at] = bad[(n + at) % 4];
                format->encode(row + 1, x, n);
                assert_false(format->all_finite(row + 1, n));
                x[at] = was;
            }
        }
    }
}

static void sixteen_bits_are_those_of_the_definition(void **unused)
{
    (void)unused;
    test_random_t seed = test_random_start();
    const half_format_t formats[] = {HALF_BF16, HALF_F16};
    const psp_format_t numbers[] = {PSP_FORMAT_BF16, PSP_FORMAT_F16};
    for (size_t k = 0; k < 2; k++) {
        const psp_row_format_t *format = psp_row_format(numbers[k]);
        for (size_t round = 0; round < 2000; round++) {
            float x = ldexpf(test_float(&seed), (int)test_below(&seed, 40) - 20);
            uint16_t r = (uint16_t)test_next(&seed), half;
            format->encode(&half, &x, 1);
            assert_int_equal(half, half_nearest(formats[k], x));
            format->encode_stochastic(&half, &x, &r, 1);
            assert_int_equal(half, half_stochastic(formats[k], x, r));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_have_the_names_numbers_and_sizes_of_the_wire),
        cmocka_unit_test(values_lose_no_more_than_the_header_says),
        cmocka_unit_test(a_value_that_is_not_finite_is_seen_in_every_format),
        cmocka_unit_test(sixteen_bits_are_those_of_the_definition),
    };
    return cmocka_run_group_tests_name("row_format", tests, NULL, NULL);
}
