/*
 * Random choices of a trainer: which words are kept, which words serve as negatives, how far a
 * window reaches. All are pure functions of random bits that the caller draws for a position.
 */
#ifndef WORKER_TRAIN_SAMPLER_H
#define WORKER_TRAIN_SAMPLER_H

#include "common/rng.h"
#include "common/status.h"
#include "worker/train/vocab.h"

/* One column of the alias table: its own word below threshold, the alias above. */
typedef struct psw_alias {
    uint32_t threshold;
    uint32_t alias;
} psw_alias_t;

/* Plain data, read-only after init. */
typedef struct psw_sampler {
    uint32_t n_words;
    uint32_t *keep;     /* [n_words] a word is kept when 32 random bits are <= keep */
    psw_alias_t *alias; /* [n_words] unigram^0.75 */
} psw_sampler_t;

/*
 * sample: 0 keeps every word; otherwise in (0, 1]. vocab must have at least one word.
 * Errors: NO_MEMORY. Free with psw_sampler_clear. Source: Mikolov et al. 2013, "Distributed
 * representations of words and phrases"; the keep probability is that of its authors' tool,
 * (sqrt(f / sample) + 1) * sample / f for a word of frequency f.
 */
PSC_MUST_CHECK psc_status_t psw_sampler_init(psw_sampler_t *sampler, const psw_vocab_t *vocab,
                                             double sample, psc_error_t *error);
/* A zeroed sampler is a no-op. */
void psw_sampler_clear(psw_sampler_t *sampler);

/* Whether an occurrence of word id is trained. */
static inline bool psw_sampler_keeps(const psw_sampler_t *sampler, uint32_t id, uint32_t bits)
{
    return bits <= sampler->keep[id];
}

/* A word by unigram^0.75 (Walker 1977; Vose 1991). */
static inline uint32_t psw_sampler_negative(const psw_sampler_t *sampler, uint64_t bits)
{
    uint32_t column = psc_rng_below((uint32_t)(bits >> 32), sampler->n_words);
    const psw_alias_t *entry = &sampler->alias[column];
    return (uint32_t)bits <= entry->threshold ? column : entry->alias;
}

/* How many words a window reaches to each side: 1 to window, each as likely. */
static inline uint32_t psw_sampler_reach(uint32_t bits, uint32_t window)
{
    return 1 + psc_rng_below(bits, window);
}

#endif
