/*
 * Rows of 8-bit integers against their definition, computed in double value by value.
 *
 * In double, quotients of floats are exact enough to be rounded once more to float as the
 * definition asks for, and products of a scale and an integer are exact; so the oracle knows no
 * vectors and no bit tricks, but for the scale's 17 bits, which frexp gives.
 */
#include "common/int8_row.h"

#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define MOST 75u

typedef struct row {
    uint8_t
        bytes[1 + PSC_INT8_ROW_BYTES(MOST) + 1]; /* at 1, so unaligned; the last one is a guard */
} row_t;

static float scale_in(const row_t *row)
{
    float scale;
    memcpy(&scale, row->bytes + 1, sizeof scale);
    return scale;
}

static int q_in(const row_t *row, size_t i)
{
    int8_t q;
    memcpy(&q, row->bytes + 1 + PSC_INT8_SCALE_BYTES + i, 1);
    return q;
}

/* 17 significant bits, multiples of 2^-142 at least, upwards. */
static double oracle_scale(const float *x, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    if (most == 0)
        return 0;
    double quotient = (double)(float)(most / 127);
    int exponent;
    (void)frexp(quotient, &exponent);
    if (quotient == 0 || exponent < -125)
        exponent = -125;
    double unit = ldexp(1, exponent - 17);
    double scale = ceil(quotient / unit) * unit;
    if (scale == 0)
        scale = unit;
    return scale * 127 > (double)FLT_MAX ? scale - unit : scale;
}

static double clamp(double q)
{
    return fmax(-127, fmin(127, q));
}

static void encode(row_t *row, const float *x, const uint16_t *random, size_t n)
{
    uint8_t floats[sizeof(float) * MOST + 1], bits[sizeof(uint16_t) * MOST + 1];
    memcpy(floats + 1, x, n * sizeof *x);
    memset(row->bytes, 0xA5, sizeof row->bytes);
    if (random != NULL) {
        memcpy(bits + 1, random, n * sizeof *random);
        psc_int8_row_encode_stochastic(row->bytes + 1, floats + 1, bits + 1, n);
    } else {
        psc_int8_row_encode(row->bytes + 1, floats + 1, n);
    }
    assert_int_equal(row->bytes[0], 0xA5);
    assert_int_equal(row->bytes[1 + PSC_INT8_ROW_BYTES(n)], 0xA5);
}

static void check_row(const float *x, const uint16_t *random, size_t n)
{
    row_t row;
    uint8_t decoded[1 + sizeof(float) * MOST];
    double scale = oracle_scale(x, n);
    encode(&row, x, random, n);
    assert_true((double)scale_in(&row) == scale);
    psc_int8_row_decode(decoded + 1, row.bytes + 1, n);
    assert_true(psc_int8_row_all_finite(row.bytes + 1, n));
    for (size_t i = 0; i < n; i++) {
        double quotient = scale == 0 ? 0 : (double)(float)((double)x[i] / scale);
        double wanted = nearbyint(quotient);
        if (random != NULL) {
            double magnitude = floor((floor(fabs(quotient) * 65536) + random[i]) / 65536);
            wanted = quotient < 0 ? -magnitude : magnitude;
        }
        assert_true((double)q_in(&row, i) == clamp(wanted));
        float back;
        memcpy(&back, decoded + 1 + sizeof back * i, sizeof back);
        assert_true((double)back == scale * q_in(&row, i)); /* no rounding */
        double error = fabs((double)x[i] - (double)back);
        assert_true(error <= scale * (random != NULL ? 1 + 0x1p-16 : 0.5 + 0x1p-16));
    }
}

/* Any exponent that leaves some values of the row large and some small. */
static void random_row(test_random_t *seed, float *x, size_t n)
{
    int top = (int)test_below(seed, 276) - 148;
    for (size_t i = 0; i < n; i++) {
        double v = ldexp((double)test_float(seed), top - (int)test_below(seed, 12));
        x[i] = (float)fmax(-(double)FLT_MAX, fmin((double)FLT_MAX, v));
    }
}

static void every_row_agrees_with_the_definition(void **unused)
{
    (void)unused;
    test_random_t seed = test_random_start();
    for (size_t round = 0; round < 20000; round++) {
        float x[MOST];
        uint16_t random[MOST];
        size_t n = test_below(&seed, MOST + 1);
        random_row(&seed, x, n);
        for (size_t i = 0; i < n; i++)
            random[i] = (uint16_t)test_next(&seed);
        check_row(x, NULL, n);
        check_row(x, random, n);
    }
}

static void edges_agree_with_the_definition(void **unused)
{
    (void)unused;
    static const float rows[][9] = {
        {0, -0.0f, 0, 0, 0, 0, 0, 0, 0},
        {FLT_MAX, -FLT_MAX, 1, 0, FLT_MAX / 2, FLT_MIN, 0x1p-149f, -1, 0},
        {0x1p-149f, -0x1p-149f, 0, 0, 0, 0, 0, 0, 0x3p-149f},
        {63 * 0x1p-149f, 64 * 0x1p-149f, 127 * 0x1p-149f, 0, 0, 0, 0, 0, 0},
        {FLT_MIN, -FLT_MIN, FLT_MIN / 2, 0x1p-140f, 0, 0, 0, 0, FLT_MIN},
        {127, 126.5f, 0.5f, 1.5f, -0.5f, -1.5f, 2.5f, -127, 63.5f}, /* ties go to even */
        {1, 1, 1, 1, 1, 1, 1, 1, 1},
        {-1, 0.5f, -0.25f, 0.125f, 1e-10f, 0, 0.3f, 0.7f, 0.9f},
    };
    static const uint16_t least[9] = {0};
    uint16_t most[9];
    memset(most, 0xff, sizeof most);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (size_t n = 0; n <= 9; n++) {
            check_row(rows[r], NULL, n);
            check_row(rows[r], least, n);
            check_row(rows[r], most, n);
        }
    }
    row_t row;
    encode(&row, rows[5], NULL, 9);
    static const int ties[9] = {127, 126, 0, 2, 0, -2, 2, -127, 64};
    assert_true(scale_in(&row) == 1);
    for (size_t i = 0; i < 9; i++)
        assert_int_equal(q_in(&row, i), ties[i]);
}

static void what_was_decoded_encodes_to_the_same_row(void **unused)
{
    (void)unused;
    test_random_t seed = test_random_start();
    for (size_t round = 0; round < 5000; round++) {
        float x[MOST], decoded[MOST];
        uint16_t random[MOST];
        row_t first, second;
        size_t n = 1 + test_below(&seed, MOST);
        random_row(&seed, x, n);
        for (size_t i = 0; i < n; i++)
            random[i] = (uint16_t)test_next(&seed);
        encode(&first, x, NULL, n);
        bool full = false;
        for (size_t i = 0; i < n; i++)
            full = full || abs(q_in(&first, i)) == 127;
        if (!full) /* only rows so small that their scale is the smallest */
            continue;
        psc_int8_row_decode(decoded, first.bytes + 1, n);
        encode(&second, decoded, NULL, n);
        assert_memory_equal(first.bytes, second.bytes, sizeof first.bytes);
        encode(&second, decoded, random, n);
        assert_memory_equal(first.bytes, second.bytes, sizeof first.bytes);
    }
}

static void stochastic_rounding_is_right_on_average(void **unused)
{
    (void)unused;
    enum { N = 33, ROUNDS = 40000 };
    test_random_t seed = test_random_start();
    float x[N];
    double sum[N] = {0};
    for (size_t i = 0; i < N; i++)
        x[i] = test_float(&seed) / (float)(1 + i * i);
    row_t row;
    for (size_t round = 0; round < ROUNDS; round++) {
        uint16_t random[N];
        for (size_t i = 0; i < N; i++)
            random[i] = (uint16_t)test_next(&seed);
        encode(&row, x, random, N);
        for (size_t i = 0; i < N; i++)
            sum[i] += q_in(&row, i);
    }
    double scale = (double)scale_in(&row);
    for (size_t i = 0; i < N; i++) {
        /* A mean of ROUNDS deviates by half a scale / sqrt(ROUNDS) at most: six of these. */
        double mean = sum[i] / ROUNDS;
        assert_true(fabs(mean - (double)x[i] / scale) < 6 * 0.5 / sqrt(ROUNDS));
    }
}

static void values_that_are_not_finite_make_the_row_none(void **unused)
{
    (void)unused;
    static const uint16_t random[MOST];
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t n = 1; n <= MOST; n++) {
        for (size_t b = 0; b < 4; b++) {
            float x[MOST], decoded[MOST];
            for (size_t i = 0; i < n; i++)
                x[i] = (float)i;
            x[(n * 7 + b) % n] = bad[b];
            for (int stochastic = 0; stochastic < 2; stochastic++) {
                row_t row;
                encode(&row, x, stochastic ? random : NULL, n);
                assert_false(psc_int8_row_all_finite(row.bytes + 1, n));
                psc_int8_row_decode(decoded, row.bytes + 1, n);
                for (size_t i = 0; i < n; i++)
                    assert_true(isnan(decoded[i]));
            }
        }
    }
}

static void foreign_rows_are_finite_exactly_when_their_values_are(void **unused)
{
    (void)unused;
    test_random_t seed = test_random_start();
    const float largest = FLT_MAX / 127;
    const float scales[] = {
        0,       -0.0f,    1,        -1,  largest,   -largest,     FLT_MAX / 128,
        FLT_MAX, -FLT_MAX, INFINITY, NAN, 0x1p-149f, FLT_MAX / 126};
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        for (size_t round = 0; round < 200; round++) {
            uint8_t row[PSC_INT8_ROW_BYTES(MOST)];
            float decoded[MOST];
            size_t n = test_below(&seed, MOST + 1);
            int bound = round % 2 == 0 ? 128 : 3;
            memcpy(row, &scales[s], sizeof scales[s]);
            for (size_t i = 0; i < n; i++)
                row[sizeof(float) + i] =
                    (uint8_t)((int)test_below(&seed, (uint64_t)bound * 2) - bound);
            psc_int8_row_decode(decoded, row, n);
            bool finite = true;
            for (size_t i = 0; i < n; i++)
                finite = finite && isfinite(decoded[i]);
            assert_int_equal(psc_int8_row_all_finite(row, n), finite);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_agrees_with_the_definition),
        cmocka_unit_test(edges_agree_with_the_definition),
        cmocka_unit_test(what_was_decoded_encodes_to_the_same_row),
        cmocka_unit_test(stochastic_rounding_is_right_on_average),
        cmocka_unit_test(values_that_are_not_finite_make_the_row_none),
        cmocka_unit_test(foreign_rows_are_finite_exactly_when_their_values_are),
    };
    return cmocka_run_group_tests_name("int8_row", tests, NULL, NULL);
}
