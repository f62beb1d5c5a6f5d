/*
 * Tables of the sampler.
 *
 * unigram^0.75 is the square root times the square root of the square root, since square roots are
 * exact on every machine and pow() is not. Vose's construction fills the columns from a stack of
 * small and a stack of large words, both in the order of ids, so that the table is the same
 * everywhere. The original tool's table of 10^8 entries costs a cache miss per negative; this one
 * has 8 bytes a word.
 *
 * Thresholds are 32 bits: a probability is off by at most 2^-32. The rounding leftover of the last
 * columns goes to their own words.
 */
#include "worker/train/sampler.h"

#include "common/alloc.h"

#include <math.h>

static uint32_t to_threshold(double probability)
{
    double scaled = probability * 0x1p32 - 1.0;
    if (scaled >= (double)UINT32_MAX)
        return UINT32_MAX;
    return scaled > 0 ? (uint32_t)scaled : 0;
}

static void fill_keep(psw_sampler_t *sampler, const psw_vocab_t *vocab, double sample)
{
    double total = (double)psw_vocab_total(vocab);
    for (uint32_t id = 0; id < sampler->n_words; id++) {
        if (sample <= 0) {
            sampler->keep[id] = UINT32_MAX;
            continue;
        }
        double ratio = (double)psw_vocab_count(vocab, id) / (sample * total);
        sampler->keep[id] = to_threshold((sqrt(ratio) + 1.0) / ratio);
    }
}

/* share: [n_words] room for the weights; stack: [n_words]. */
static void fill_alias(psw_sampler_t *sampler, const psw_vocab_t *vocab, double *share,
                       uint32_t *stack)
{
    uint32_t n = sampler->n_words;
    double sum = 0;
    for (uint32_t id = 0; id < n; id++) {
        double root = sqrt((double)psw_vocab_count(vocab, id));
        share[id] = root * sqrt(root);
        sum += share[id];
    }
    /* Small words from the left end of the stack, large ones from the right. */
    uint32_t n_small = 0, first_large = n;
    for (uint32_t id = 0; id < n; id++) {
        share[id] = share[id] * (double)n / sum;
        if (share[id] < 1.0)
            stack[n_small++] = id;
        else
            stack[--first_large] = id;
    }
    while (n_small > 0 && first_large < n) {
        uint32_t small = stack[--n_small], large = stack[first_large];
        sampler->alias[small] =
            (psw_alias_t){.threshold = to_threshold(share[small]), .alias = large};
        share[large] = (share[large] + share[small]) - 1.0;
        if (share[large] < 1.0) {
            first_large++;
            stack[n_small++] = large;
        }
    }
    while (n_small > 0) {
        uint32_t id = stack[--n_small];
        sampler->alias[id] = (psw_alias_t){.threshold = UINT32_MAX, .alias = id};
    }
    for (; first_large < n; first_large++) {
        uint32_t id = stack[first_large];
        sampler->alias[id] = (psw_alias_t){.threshold = UINT32_MAX, .alias = id};
    }
}

psc_status_t psw_sampler_init(psw_sampler_t *sampler, const psw_vocab_t *vocab, double sample,
                              psc_error_t *error)
{
    uint32_t n = psw_vocab_size(vocab);
    PSC_BUG_ON(n == 0);
    *sampler = (psw_sampler_t){.n_words = n};
    sampler->keep = psc_alloc_array(n, sizeof *sampler->keep);
    sampler->alias = psc_alloc_array(n, sizeof *sampler->alias);
    double *share = psc_alloc_array(n, sizeof *share);
    uint32_t *stack = psc_alloc_array(n, sizeof *stack);
    psc_status_t st = PSC_OK;
    if (sampler->keep == NULL || sampler->alias == NULL || share == NULL || stack == NULL) {
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for the samplers of %u words", n);
        psw_sampler_clear(sampler);
    } else {
        fill_keep(sampler, vocab, sample);
        fill_alias(sampler, vocab, share, stack);
    }
    psc_free(share);
    psc_free(stack);
    return st;
}

void psw_sampler_clear(psw_sampler_t *sampler)
{
    psc_free(sampler->keep);
    psc_free(sampler->alias);
    *sampler = (psw_sampler_t){0};
}
