/* Random numbers: known answers, independence of uses, ranges. */
#include "common/rng.h"

#include "tests/support/cmocka.h"

#include <string.h>

/* From tests/kat_vectors of the Random123 distribution, "philox4x32 10". */
static void philox_gives_the_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], expected[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint32_t out[4];
        psc_rng_philox(vectors[i].counter, vectors[i].key, out);
        assert_memory_equal(out, vectors[i].expected, sizeof out);
    }
}

static void a_row_draws_from_its_own_counter_and_the_seed(void **state)
{
    (void)state;
    uint32_t row[4];
    uint32_t raw[4];
    psc_rng_row(UINT64_C(0x1122334455667788), 7, UINT64_C(0xaabbccddeeff0011), 5, PSC_RNG_ROUND, 0,
                row);
    psc_rng_philox((uint32_t[4]){0xeeff0011, 0xaabbccdd, 7, 0x10000005},
                   (uint32_t[2]){0x55667788, 0x11223344}, raw);
    assert_memory_equal(row, raw, sizeof raw);
}

static void many_blocks_are_the_single_ones(void **state)
{
    (void)state;
    enum { MAX = 40 };
    for (uint32_t n = 0; n <= MAX; n++) {
        uint32_t blocks[4 * MAX + 1];
        uint64_t seed = psc_rng_at(1, n);
        uint64_t id = psc_rng_at(2, n);
        uint32_t count = n % 3 == 0 ? 0 : n;
        psc_rng_use_t use = n % 2 == 0 ? PSC_RNG_INIT : PSC_RNG_ROUND;
        blocks[4 * n] = 77;
        uint32_t first = n % 5;
        psc_rng_row_blocks(seed, n, id, use, count, first, n, blocks);
        for (uint32_t b = 0; b < n; b++) {
            uint32_t expected[4];
            psc_rng_row(seed, n, id, first + b, use, count, expected);
            assert_memory_equal(blocks + (size_t)4 * b, expected, sizeof expected);
        }
        assert_int_equal(blocks[4 * n], 77);
    }
}

static void every_part_of_the_name_changes_the_bits(void **state)
{
    (void)state;
    uint32_t out[7][4];
    psc_rng_row(1, 0, 0, 0, PSC_RNG_INIT, 0, out[0]);
    psc_rng_row(2, 0, 0, 0, PSC_RNG_INIT, 0, out[1]);
    psc_rng_row(1, 1, 0, 0, PSC_RNG_INIT, 0, out[2]);
    psc_rng_row(1, 0, 1, 0, PSC_RNG_INIT, 0, out[3]);
    psc_rng_row(1, 0, 0, 1, PSC_RNG_INIT, 0, out[4]);
    psc_rng_row(1, 0, 0, 0, PSC_RNG_ROUND, 0, out[5]);
    psc_rng_row(1, 0, 0, 0, PSC_RNG_INIT, 1, out[6]);
    for (size_t i = 0; i < 7; i++) {
        for (size_t j = 0; j < i; j++)
            assert_memory_not_equal(out[i], out[j], sizeof out[i]);
    }
}

static void streams_differ_in_seed_worker_and_epoch(void **state)
{
    (void)state;
    enum { SIDE = 12, TOTAL = SIDE * SIDE * SIDE };
    static uint64_t keys[TOTAL];
    for (uint64_t i = 0; i < TOTAL; i++) {
        keys[i] = psc_rng_stream(i / (SIDE * SIDE), i / SIDE % SIDE, i % SIDE);
        for (uint64_t j = 0; j < i; j++)
            assert_true(keys[i] != keys[j]);
    }
}

static void numbers_of_a_stream_are_splitmix64(void **state)
{
    (void)state;
    uint64_t x = 99;
    for (uint64_t n = 0; n < 100; n++) {
        x += UINT64_C(0x9e3779b97f4a7c15);
        assert_true(psc_rng_at(99, n) == psc_mix64(x));
    }
}

static void unit_is_in_zero_to_one(void **state)
{
    (void)state;
    assert_true(memcmp(&(float){psc_rng_unit(0)}, &(float){0.0f}, sizeof(float)) == 0);
    assert_true(psc_rng_unit(UINT32_MAX) < 1.0f);
    assert_true(psc_rng_unit(UINT32_MAX) > 0.9999999f - 1e-7f);
    assert_true(psc_rng_unit(0x80000000u) >= 0.5f && psc_rng_unit(0x80000000u) <= 0.5f);
}

static void below_stays_below_and_reaches_all(void **state)
{
    (void)state;
    static const uint32_t bounds[] = {1, 2, 3, 10, 1000};
    for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++) {
        uint32_t n = bounds[b];
        static uint32_t counts[1000];
        memset(counts, 0, sizeof counts);
        for (uint32_t i = 0; i < 200 * n; i++) {
            uint32_t drawn = psc_rng_below((uint32_t)psc_rng_at(b, i), n);
            assert_true(drawn < n);
            counts[drawn]++;
        }
        for (uint32_t i = 0; i < n; i++) /* 200 each; 6 standard deviations are 85 */
            assert_in_range(counts[i], 115, 285);
    }
    assert_int_equal(psc_rng_below(UINT32_MAX, UINT32_MAX), UINT32_MAX - 1);
    assert_int_equal(psc_rng_below(UINT32_MAX, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(a_row_draws_from_its_own_counter_and_the_seed),
        cmocka_unit_test(many_blocks_are_the_single_ones),
        cmocka_unit_test(every_part_of_the_name_changes_the_bits),
        cmocka_unit_test(streams_differ_in_seed_worker_and_epoch),
        cmocka_unit_test(numbers_of_a_stream_are_splitmix64),
        cmocka_unit_test(unit_is_in_zero_to_one),
        cmocka_unit_test(below_stays_below_and_reaches_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
