/*
 * Counter-based random numbers: a pure function of what they are for, in any order, on any
 * processor.
 *
 * For rows: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3";
 * implementation: Random123), keyed by the table's seed. For trainers, where one word draws many
 * numbers: SplitMix64 at a counter.
 */
#ifndef COMMON_RNG_H
#define COMMON_RNG_H

#include "common/hash.h"

#include <stdint.h>

/* What the bits of a row are for; part of the counter, so that uses never share bits. */
typedef enum psc_rng_use {
    PSC_RNG_INIT = 0,  /* initial value */
    PSC_RNG_ROUND = 1, /* stochastic rounding */
    PSC_RNG_WIRE = 2,  /* stochastic rounding of what a client sends; update_count: its push */
} psc_rng_use_t;

/*
 * Four random words for columns 4*block .. 4*block+3 of a row. block < 2^28. update_count is the
 * row's own (0 for initial values).
 */
void psc_rng_row(uint64_t seed, uint32_t table, uint64_t id, uint32_t block, psc_rng_use_t use,
                 uint32_t update_count, uint32_t out[4]);

/*
 * The same for n_blocks blocks from `block` on, out [4 * n_blocks]: four words for columns that
 * take a word each; seen as 16-bit numbers in their order in memory, eight for columns that take a
 * half (column c: half c mod 8 of block c / 8).
 */
void psc_rng_row_blocks(uint64_t seed, uint32_t table, uint64_t id, psc_rng_use_t use,
                        uint32_t update_count, uint32_t block, uint32_t n_blocks, uint32_t *out);

/* Raw Philox4x32-10, for its known-answer test. */
void psc_rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The n-th number of stream `key`. */
static inline uint64_t psc_rng_at(uint64_t key, uint64_t n)
{
    return psc_mix64(key + (n + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* A stream of its own for each (seed, a, b), e.g. seed, worker, epoch. */
static inline uint64_t psc_rng_stream(uint64_t seed, uint64_t a, uint64_t b)
{
    return psc_mix64(psc_mix64(psc_mix64(seed + 1) ^ (a + UINT64_C(0x632be59bd9b4e019))) ^
                     (b + UINT64_C(0xd1342543de82ef95)));
}

/* The upper 24 bits as a float in [0, 1). Exact, so the same everywhere. */
static inline float psc_rng_unit(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

/* bits scaled to [0, n): the high word of a product (Lemire 2019); bias below n / 2^32. */
static inline uint32_t psc_rng_below(uint32_t bits, uint32_t n)
{
    return (uint32_t)(((uint64_t)bits * n) >> 32);
}

#endif
