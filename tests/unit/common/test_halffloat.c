/*
 * 16-bit floats against their definition: every pattern, every neighbour, and the statistics of
 * stochastic rounding.
 *
 * The oracle, tests/support/half_oracle.h, computes in double from what IEEE 754 says about sign,
 * exponent and fraction. A few golden values are from the standard itself and from PyTorch's tables
 * of torch.finfo.
 */
#include "common/halffloat.h"

#include "tests/support/cmocka.h"
#include "tests/support/half_oracle.h"
#include "tests/support/test_seed.h"

#include <math.h>
#include <string.h>

typedef struct format {
    half_format_t of;
    void (*decode)(void *floats_out, const void *halves, size_t n);
    void (*encode)(void *halves_out, const void *floats, size_t n);
    void (*stochastic)(void *halves_out, const void *floats, const void *random, size_t n);
} format_t;

static const format_t formats[] = {
    {{8, 7}, psc_bf16_decode, psc_bf16_encode, psc_bf16_encode_stochastic},
    {{5, 10}, psc_f16_decode, psc_f16_encode, psc_f16_encode_stochastic},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t encode_one(const format_t *f, float x)
{
    uint16_t half;
    f->encode(&half, &x, 1);
    return half;
}

static uint16_t stochastic_one(const format_t *f, float x, uint16_t r)
{
    uint16_t half;
    f->stochastic(&half, &x, &r, 1);
    return half;
}

static void every_pattern_decodes_to_its_value_and_survives(void **unused)
{
    (void)unused;
    static uint16_t halves[65536], again[65536], random[65536];
    static float floats[65536];
    test_random_t seed = test_random_start();
    for (size_t i = 0; i < 65536; i++) {
        halves[i] = (uint16_t)i;
        random[i] = (uint16_t)test_next(&seed);
    }
    for (size_t k = 0; k < N_FORMATS; k++) {
        const format_t *f = &formats[k];
        f->decode(floats, halves, 65536);
        for (uint32_t i = 0; i < 65536; i++) {
            double expected = half_value(f->of, i);
            if (isnan(expected))
                assert_true(isnan(floats[i]));
            else
                assert_true((double)floats[i] == expected);
            assert_int_equal(signbit(floats[i]) != 0, i >> 15);
        }
        f->encode(again, floats, 65536);
        assert_memory_equal(again, halves, sizeof halves);
        f->stochastic(again, floats, random, 65536);
        assert_memory_equal(again, halves, sizeof halves);
    }
}

static void some_values_are_those_of_the_standards(void **unused)
{
    (void)unused;
    static const struct {
        float value;
        uint16_t halves[2]; /* bf16, f16 */
    } known[] = {
        {1.0f, {0x3f80, 0x3c00}},
        {-2.0f, {0xc000, 0xc000}},
        {0.0f, {0x0000, 0x0000}},
        {-0.0f, {0x8000, 0x8000}},
        {65504.0f, {0x4780, 0x7bff}},    /* torch.finfo(float16).max */
        {0x1p-14f, {0x3880, 0x0400}},    /* its smallest normal */
        {0x1p-24f, {0x3380, 0x0001}},    /* its smallest subnormal */
        {0x1.fep127f, {0x7f7f, 0x7bff}}, /* torch.finfo(bfloat16).max; f16 saturates */
        {3.4028235e38f, {0x7f7f, 0x7bff}} /* FLT_MAX saturates both */,
        {65520.0f, {0x4780, 0x7bff}}, /* IEEE's rounding would give an infinity */
        {-1e30f, {0xf14a, 0xfbff}},
        {0x1p-25f, {0x3300, 0x0000}}, /* a tie, to even */
        {0x1.8p-24f, {0x33c0, 0x0002}},
        {0x1p-149f, {0x0000, 0x0000}},
        {INFINITY, {0x7f80, 0x7c00}},
        {-INFINITY, {0xff80, 0xfc00}},
        {1.00390625f, {0x3f80, 0x3c04}}, /* 1 + 2^-8: a tie for bf16 */
        {1.01171875f, {0x3f82, 0x3c0c}}, /* 1 + 3 * 2^-8: the other way */
    };
    for (size_t k = 0; k < N_FORMATS; k++) {
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            assert_int_equal(encode_one(&formats[k], known[i].value), known[i].halves[k]);
        /* Whatever the payload, a NaN stays one. */
        static const uint32_t nans[] = {0x7fc00000, 0x7f800001, 0xff801fff, 0xffffffff,
                                        0x7fffffff, 0x7fa00000, 0xff80ffff};
        for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++) {
            assert_true(
                isnan(half_value(formats[k].of, encode_one(&formats[k], float_of(nans[i])))));
            uint16_t half = stochastic_one(&formats[k], float_of(nans[i]), 0xffff);
            assert_true(isnan(half_value(formats[k].of, half)));
            assert_int_equal(half >> 15, nans[i] >> 31);
        }
        assert_int_equal(stochastic_one(&formats[k], INFINITY, 0xffff),
                         encode_one(&formats[k], INFINITY));
        assert_int_equal(stochastic_one(&formats[k], -3.4028235e38f, 0xffff),
                         0x8000 | half_largest(formats[k].of));
    }
}

/* Around every half: its value, the tie with the next, and the floats beside both. */
static void rounds_to_the_nearest_around_every_half(void **unused)
{
    (void)unused;
    for (size_t k = 0; k < N_FORMATS; k++) {
        const format_t *f = &formats[k];
        for (uint32_t half = 0; half < half_largest(f->of); half++) {
            double tie = (half_value(f->of, half) + half_value(f->of, half + 1)) / 2;
            float points[2] = {(float)half_value(f->of, half), (float)tie};
            for (size_t p = 0; p < 2; p++) {
                uint32_t bits = bits_of(points[p]);
                for (uint32_t b = bits == 0 ? 0 : bits - 1; b <= bits + 1; b++) {
                    float x = float_of(b);
                    uint32_t below = (double)x < half_value(f->of, half) ? half - 1 : half;
                    double down = (double)x - half_value(f->of, below);
                    double up = half_value(f->of, below + 1) - (double)x;
                    uint32_t expected =
                        down < up || (down == up && below % 2 == 0) ? below : below + 1;
                    assert_int_equal(encode_one(f, x), expected);
                    assert_int_equal(encode_one(f, -x), expected | 0x8000);
                }
            }
        }
    }
}

/* Values of every size: any finite pattern, and for f16 mostly those in its range. */
static float some_float(test_random_t *random)
{
    uint32_t sign = (uint32_t)test_below(random, 2) << 31;
    uint32_t exponent = (uint32_t)test_below(random, 255);
    if (test_below(random, 4) != 0)
        exponent = 127 - 44 + (uint32_t)test_below(random, 62);
    uint32_t fraction = (uint32_t)test_next(random) & 0x7fffff;
    if (test_below(random, 4) == 0)
        fraction &= 0xffe000;
    return float_of(sign | exponent << 23 | (fraction & 0x7fffff));
}

static void random_values_agree_with_the_definition(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    enum { N = 100003 };
    static float floats[N];
    static uint16_t bits[N], halves[N];
    for (size_t i = 0; i < N; i++) {
        floats[i] = some_float(&random);
        bits[i] = (uint16_t)test_next(&random);
    }
    for (size_t k = 0; k < N_FORMATS; k++) {
        const format_t *f = &formats[k];
        f->encode(halves, floats, N);
        for (size_t i = 0; i < N; i++)
            assert_int_equal(halves[i], half_nearest(f->of, floats[i]));
        f->stochastic(halves, floats, bits, N);
        for (size_t i = 0; i < N; i++)
            assert_int_equal(halves[i], half_stochastic(f->of, floats[i], bits[i]));
    }
}

static void lengths_and_alignments_do_not_matter(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    enum { MAX = 70 };
    float floats[MAX];
    uint16_t bits[MAX];
    for (size_t i = 0; i < MAX; i++) {
        floats[i] = some_float(&random);
        bits[i] = (uint16_t)test_next(&random);
    }
    for (size_t k = 0; k < N_FORMATS; k++) {
        const format_t *f = &formats[k];
        for (size_t n = 0; n <= MAX - 2; n++) {
            uint8_t from[4 * MAX + 8], to[4 * MAX + 8], back[4 * MAX + 8];
            size_t at = test_below(&random, 4);
            memcpy(from + at, floats, n * 4);
            for (int way = 0; way < 2; way++) {
                memset(to, 0xa5, sizeof to);
                if (way == 0)
                    f->encode(to + 1, from + at, n);
                else
                    f->stochastic(to + 1, from + at, bits, n);
                for (size_t i = 0; i < n; i++) {
                    uint16_t half;
                    memcpy(&half, to + 1 + 2 * i, sizeof half);
                    assert_int_equal(half, way == 0 ? half_nearest(f->of, floats[i])
                                                    : half_stochastic(f->of, floats[i], bits[i]));
                }
                assert_int_equal(to[0], 0xa5);
                assert_int_equal(to[1 + 2 * n], 0xa5);
            }
            memset(back, 0xa5, sizeof back);
            f->decode(back + 1, to + 1, n);
            for (size_t i = 0; i < n; i++) {
                float x;
                memcpy(&x, back + 1 + 4 * i, sizeof x);
                assert_true((double)x ==
                            half_value(f->of, half_stochastic(f->of, floats[i], bits[i])));
            }
            assert_int_equal(back[0], 0xa5);
            assert_int_equal(back[1 + 4 * n], 0xa5);
        }
    }
}

/*
 * With n fair draws the mean of the rounded values lies within 5 of its standard deviations of the
 * value itself, 0.6 in 10^6 times out of bounds; f16's subnormals, whose distance is cut to 2^-16
 * of a step, may lie that much lower.
 */
static void stochastic_rounding_is_unbiased(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    enum { N = 20000, VALUES = 200 };
    static float floats[N], decoded[N];
    static uint16_t bits[N], halves[N];
    for (size_t k = 0; k < N_FORMATS; k++) {
        const format_t *f = &formats[k];
        for (size_t v = 0; v < VALUES; v++) {
            float x = test_float(&random);
            x *= v % 4 == 0 ? 0x1p-15f : v % 4 == 1 ? 0x1p-20f : 1000.0f;
            uint64_t seed = test_next(&random);
            for (size_t i = 0; i < N; i += 8) {
                uint32_t words[4];
                psc_rng_row(seed, 1, v, 0, PSC_RNG_ROUND, (uint32_t)i, words);
                memcpy(bits + i, words, sizeof words);
            }
            for (size_t i = 0; i < N; i++)
                floats[i] = x;
            f->stochastic(halves, floats, bits, N);
            f->decode(decoded, halves, N);
            uint32_t below = half_below(f->of, fabs((double)x));
            double step = half_value(f->of, below + 1) - half_value(f->of, below);
            double up = (fabs((double)x) - half_value(f->of, below)) / step;
            double sum = 0;
            for (size_t i = 0; i < N; i++) {
                assert_true(fabs((double)decoded[i] - (double)x) < step);
                sum += (double)decoded[i];
            }
            double bound = 5 * step * sqrt(up * (1 - up) / N);
            /* The rarest outcomes are Poisson's, whose tails are longer; and the cut of f16. */
            bound += step * (5.0 / N + 0x1p-16);
            assert_true(fabs(sum / N - (double)x) <= bound);
        }
    }
}

static void halves_that_are_not_finite_are_found_wherever_they_are(void **unused)
{
    (void)unused;
    bool (*const all_finite[])(const void *, size_t) = {psc_bf16_all_finite, psc_f16_all_finite};
    for (size_t k = 0; k < N_FORMATS; k++) {
        const half_format_t of = formats[k].of;
        const uint16_t infinite = (uint16_t)(half_largest(of) + 1);
        const uint16_t bad[] = {infinite, (uint16_t)(infinite | 0x8000), 0x7fff, 0xffff,
                                (uint16_t)(infinite + 1)};
        for (size_t n = 0; n <= 40; n++) {
            uint8_t bytes[1 + 2 * 40];
            for (size_t i = 0; i < n; i++) {
                uint16_t finite = (uint16_t)((infinite - 1 - i) | (i % 2) << 15);
                memcpy(bytes + 1 + 2 * i, &finite, 2);
            }
            assert_true(all_finite[k](bytes + 1, n));
            for (size_t at = 0; at < n; at++) {
                uint16_t was;
                memcpy(&was, bytes + 1 + 2 * at, 2);
                memcpy(bytes + 1 + 2 * at, &bad[(n + at) % 5], 2);
                assert_false(all_finite[k](bytes + 1, n));
                memcpy(bytes + 1 + 2 * at, &was, 2);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern_decodes_to_its_value_and_survives),
        cmocka_unit_test(some_values_are_those_of_the_standards),
        cmocka_unit_test(rounds_to_the_nearest_around_every_half),
        cmocka_unit_test(random_values_agree_with_the_definition),
        cmocka_unit_test(lengths_and_alignments_do_not_matter),
        cmocka_unit_test(stochastic_rounding_is_unbiased),
        cmocka_unit_test(halves_that_are_not_finite_are_found_wherever_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
