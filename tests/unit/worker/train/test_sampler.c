/*
 * The samplers against the formulas that they stand for.
 */
#include "worker/train/sampler.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"

#include <math.h>
#include <string.h>

static psw_vocab_t *zipf_vocab(uint32_t n)
{
    psw_counter_t *counter;
    psw_vocab_t *vocab;
    assert_int_equal(psw_counter_create(&counter, NULL), PSC_OK);
    for (uint32_t i = 0; i < n; i++) {
        char word[16];
        int size = snprintf(word, sizeof word, "w%06u", i);
        assert_int_equal(psw_counter_add(counter, word, (size_t)size, 1 + 1000000 / (i + 1), NULL),
                         PSC_OK);
    }
    assert_int_equal(psw_vocab_build(counter, 1, &vocab, NULL), PSC_OK);
    psw_counter_destroy(counter);
    return vocab;
}

static void the_alias_table_holds_unigram_to_the_three_quarters(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 17, 5000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint32_t n = sizes[s];
        psw_vocab_t *vocab = zipf_vocab(n);
        psw_sampler_t sampler;
        assert_int_equal(psw_sampler_init(&sampler, vocab, 0, NULL), PSC_OK);
        double *mass = psc_alloc_zeroed(n, sizeof *mass), sum = 0;
        assert_non_null(mass);
        for (uint32_t i = 0; i < n; i++) {
            double own = ((double)sampler.alias[i].threshold + 1) * 0x1p-32;
            assert_in_range(sampler.alias[i].alias, 0, n - 1);
            mass[i] += own / n;
            mass[sampler.alias[i].alias] += (1 - own) / n;
            sum += pow((double)psw_vocab_count(vocab, i), 0.75);
        }
        /* Thresholds are rounded to 2^-32 a column. */
        for (uint32_t i = 0; i < n; i++) {
            double expected = pow((double)psw_vocab_count(vocab, i), 0.75) / sum;
            assert_true(fabs(mass[i] - expected) < 1e-9);
        }
        psc_free(mass);
        psw_sampler_clear(&sampler);
        psw_vocab_destroy(vocab);
    }
}

static void drawn_negatives_follow_the_distribution(void **state)
{
    (void)state;
    enum { N = 200, DRAWS = 400000 };
    psw_vocab_t *vocab = zipf_vocab(N);
    psw_sampler_t sampler;
    assert_int_equal(psw_sampler_init(&sampler, vocab, 0, NULL), PSC_OK);
    static uint32_t seen[N];
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < DRAWS; i++)
        seen[psw_sampler_negative(&sampler, psc_rng_at(1234567, i))]++;
    double sum = 0, chi = 0;
    for (uint32_t i = 0; i < N; i++)
        sum += pow((double)psw_vocab_count(vocab, i), 0.75);
    for (uint32_t i = 0; i < N; i++) {
        double expected = pow((double)psw_vocab_count(vocab, i), 0.75) / sum * DRAWS;
        chi += (seen[i] - expected) * (seen[i] - expected) / expected;
    }
    /* 199 degrees of freedom: mean 199, deviation 20; 5 deviations. The draws are fixed. */
    assert_true(chi < 300);
    assert_true(chi > 100);
    psw_sampler_clear(&sampler);
    psw_vocab_destroy(vocab);
}

static void words_are_kept_as_the_original_tool_keeps_them(void **state)
{
    (void)state;
    psw_vocab_t *vocab = zipf_vocab(300);
    psw_sampler_t sampler;
    double sample = 1e-3, total = (double)psw_vocab_total(vocab);
    assert_int_equal(psw_sampler_init(&sampler, vocab, sample, NULL), PSC_OK);
    for (uint32_t i = 0; i < 300; i++) {
        double count = (double)psw_vocab_count(vocab, i);
        double expected =
            (sqrt(count / (sample * total)) + 1) * (sample * total) / count; /* word2vec.c */
        double keep = ((double)sampler.keep[i] + 1) * 0x1p-32;
        assert_true(fabs(keep - (expected < 1 ? expected : 1)) < 1e-9);
        if (expected >= 1)
            assert_true(psw_sampler_keeps(&sampler, i, UINT32_MAX));
    }
    assert_false(psw_sampler_keeps(&sampler, 0, UINT32_MAX));
    psw_sampler_clear(&sampler);
    assert_int_equal(psw_sampler_init(&sampler, vocab, 0, NULL), PSC_OK);
    for (uint32_t i = 0; i < 300; i++)
        assert_true(psw_sampler_keeps(&sampler, i, UINT32_MAX));
    psw_sampler_clear(&sampler);
    psw_vocab_destroy(vocab);
}

static void windows_reach_from_one_to_the_whole_window(void **state)
{
    (void)state;
    uint32_t seen[6] = {0};
    for (uint64_t i = 0; i < 60000; i++) {
        uint32_t reach = psw_sampler_reach((uint32_t)psc_rng_at(99, i), 5);
        assert_in_range(reach, 1, 5);
        seen[reach]++;
    }
    for (uint32_t reach = 1; reach <= 5; reach++)
        assert_in_range(seen[reach], 12000 - 500, 12000 + 500); /* 5 deviations */
    assert_int_equal(psw_sampler_reach(0, 1), 1);
    assert_int_equal(psw_sampler_reach(UINT32_MAX, 1), 1);
}

static void the_same_bits_give_the_same_choice(void **state)
{
    (void)state;
    psw_vocab_t *vocab = zipf_vocab(1000);
    psw_sampler_t a, b;
    assert_int_equal(psw_sampler_init(&a, vocab, 1e-4, NULL), PSC_OK);
    assert_int_equal(psw_sampler_init(&b, vocab, 1e-4, NULL), PSC_OK);
    assert_memory_equal(a.keep, b.keep, 1000 * sizeof *a.keep);
    assert_memory_equal(a.alias, b.alias, 1000 * sizeof *a.alias);
    psw_sampler_clear(&a);
    psw_sampler_clear(&b);
    psw_vocab_destroy(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_alias_table_holds_unigram_to_the_three_quarters),
        cmocka_unit_test(drawn_negatives_follow_the_distribution),
        cmocka_unit_test(words_are_kept_as_the_original_tool_keeps_them),
        cmocka_unit_test(windows_reach_from_one_to_the_whole_window),
        cmocka_unit_test(the_same_bits_give_the_same_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
