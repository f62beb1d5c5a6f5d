/* Mixing and row hashes: fixed for ever, bijective, spread evenly. */
#include "common/hash.h"

#include "common/slots.h"

#include "tests/support/cmocka.h"

#include <math.h>
#include <string.h>

/*
 * The first outputs of SplitMix64 from seed 1234567, as Rosetta Code ("Pseudo-random
 * numbers/Splitmix64") lists them: the n-th is the mix of seed + n * golden ratio.
 */
static void mix_gives_the_published_splitmix64_numbers(void **state)
{
    (void)state;
    static const uint64_t expected[] = {
        UINT64_C(6457827717110365317), UINT64_C(3203168211198807973), UINT64_C(9817491932198370423),
        UINT64_C(4593380528125082431), UINT64_C(16408922859458223821)};
    uint64_t x = 1234567;
    for (size_t i = 0; i < 5; i++) {
        x += UINT64_C(0x9e3779b97f4a7c15);
        assert_true(psc_mix64(x) == expected[i]);
    }
}

static void mix_can_be_undone(void **state)
{
    (void)state;
    uint64_t x = 0;
    for (int i = 0; i < 100000; i++) {
        assert_true(psc_unmix64(psc_mix64(x)) == x);
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
    }
    assert_true(psc_unmix64(psc_mix64(UINT64_MAX)) == UINT64_MAX);
}

static void row_hash_does_not_change(void **state)
{
    (void)state;
    /* Computed once in Python from the definition in the header; rows on disk depend on them. */
    static const struct {
        uint32_t table;
        uint64_t id;
        uint64_t hash;
    } rows[] = {
        {0u, 0, UINT64_C(0x0397ab29740681d9)},
        {0u, 1, UINT64_C(0xddc1ed05282d1d64)},
        {1u, 0, UINT64_C(0xc0737b7cf89e44ab)},
        {7u, 12345, UINT64_C(0xf4bcc45705f43e1d)},
        {0u, UINT64_MAX, UINT64_C(0x42d30092dcd06d20)},
        {4294967295u, UINT64_MAX, UINT64_C(0xbda9878e74d41481)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_true(psc_row_hash(rows[i].table, rows[i].id) == rows[i].hash);
}

static void a_row_can_be_found_for_any_hash(void **state)
{
    (void)state;
    static const uint32_t tables[] = {0, 1, 7, 0x8001, UINT32_MAX};
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        uint64_t x = tables[t];
        for (int i = 0; i < 20000; i++) {
            assert_true(psc_row_hash(tables[t], psc_row_id_of_hash(tables[t], x)) == x);
            assert_true(psc_row_id_of_hash(tables[t], psc_row_hash(tables[t], x)) == x);
            x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        }
        assert_true(psc_row_hash(tables[t], psc_row_id_of_hash(tables[t], 0)) == 0);
        assert_true(psc_row_hash(tables[t], psc_row_id_of_hash(tables[t], UINT64_MAX)) ==
                    UINT64_MAX);
    }
}

/* Chi-square of n balls in k bins, as a distance from its mean in standard deviations. */
static double chi_square_sigmas(const uint32_t *counts, size_t k, double n)
{
    double expected = n / (double)k;
    double sum = 0;
    for (size_t i = 0; i < k; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    double freedom = (double)(k - 1);
    return (sum - freedom) / sqrt(2 * freedom);
}

static void sequential_ids_spread_evenly(void **state)
{
    (void)state;
    static uint32_t slots[PSC_SLOT_COUNT];
    static uint32_t high[PSC_SLOT_COUNT];
    for (uint32_t table = 0; table < 3; table++) {
        memset(slots, 0, sizeof slots);
        memset(high, 0, sizeof high);
        for (uint64_t id = 0; id < 1000000; id++) {
            uint64_t hash = psc_row_hash(table, id);
            slots[psc_slot_of_hash(hash)]++;
            high[hash >> 50]++;
        }
        /* Fixed input, so no chance is involved; 5 standard deviations is far from both tails. */
        assert_true(fabs(chi_square_sigmas(slots, PSC_SLOT_COUNT, 1e6)) < 5);
        assert_true(fabs(chi_square_sigmas(high, PSC_SLOT_COUNT, 1e6)) < 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mix_gives_the_published_splitmix64_numbers),
        cmocka_unit_test(mix_can_be_undone),
        cmocka_unit_test(row_hash_does_not_change),
        cmocka_unit_test(a_row_can_be_found_for_any_hash),
        cmocka_unit_test(sequential_ids_spread_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
