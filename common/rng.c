/*
 * Philox through Random123's header; kept out of ours so that only this file compiles it.
 *
 * psc_rng_row_blocks runs eight blocks side by side, a lane each: with AVX2 about 10 ns a block
 * instead of 27. The constants are those of Salmon et al. 2011, table 2; the test holds it to the
 * numbers of psc_rng_row.
 */
#include "common/rng.h"

#include "common/lanes.h"
#include "common/vectors.h"

#include <Random123/philox.h>

#include <string.h>

void psc_rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    philox4x32_ctr_t c = {{counter[0], counter[1], counter[2], counter[3]}};
    philox4x32_key_t k = {{key[0], key[1]}};
    philox4x32_ctr_t r = philox4x32(c, k);
    for (int i = 0; i < 4; i++)
        out[i] = r.v[i];
}

/* The update count enters through the key, since the counter's 128 bits are taken. */
static uint64_t key_of(uint64_t seed, uint32_t update_count)
{
    return update_count == 0 ? seed : psc_mix64(seed ^ psc_mix64(update_count));
}

void psc_rng_row(uint64_t seed, uint32_t table, uint64_t id, uint32_t block, psc_rng_use_t use,
                 uint32_t update_count, uint32_t out[4])
{
    uint64_t k = key_of(seed, update_count);
    uint32_t key[2] = {(uint32_t)k, (uint32_t)(k >> 32)};
    uint32_t counter[4] = {(uint32_t)id, (uint32_t)(id >> 32), table, block | (uint32_t)use << 28};
    psc_rng_philox(counter, key, out);
}

#define LANES 8u
#define ROUNDS 10

typedef uint32_t words_t __attribute__((vector_size(32)));

/* x * m, lane by lane. */
PSC_INLINE void multiply(const words_t *x, uint32_t m, words_t *high, words_t *low)
{
    for (size_t l = 0; l < LANES; l++)
        (*high)[l] = (uint32_t)(((uint64_t)(*x)[l] * m) >> 32);
    *low = *x * m;
}

/* Eight blocks, the first of number `block`. */
PSC_INLINE void eight_blocks(uint64_t key, uint32_t table, uint64_t id, uint32_t block,
                             uint32_t out[4 * LANES])
{
    const words_t zero = {0};
    uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    words_t c0 = zero + (uint32_t)id;
    words_t c1 = zero + (uint32_t)(id >> 32);
    words_t c2 = zero + table;
    words_t c3 = block + (words_t){0, 1, 2, 3, 4, 5, 6, 7};
    PSC_UNROLL
    for (int round = 0; round < ROUNDS; round++) {
        words_t high0, low0, high1, low1;
        multiply(&c0, UINT32_C(0xd2511f53), &high0, &low0);
        multiply(&c2, UINT32_C(0xcd9e8d57), &high1, &low1);
        c0 = high1 ^ c1 ^ k[0];
        c1 = low1;
        c2 = high0 ^ c3 ^ k[1];
        c3 = low0;
        k[0] += UINT32_C(0x9e3779b9);
        k[1] += UINT32_C(0xbb67ae85);
    }
    for (size_t l = 0; l < LANES; l++) {
        out[4 * l] = c0[l];
        out[4 * l + 1] = c1[l];
        out[4 * l + 2] = c2[l];
        out[4 * l + 3] = c3[l];
    }
}

PSC_MULTIVERSION
void psc_rng_row_blocks(uint64_t seed, uint32_t table, uint64_t id, psc_rng_use_t use,
                        uint32_t update_count, uint32_t block, uint32_t n_blocks, uint32_t *out)
{
    uint64_t key = key_of(seed, update_count);
    uint32_t first = block | (uint32_t)use << 28;
    uint32_t b = 0;
    for (; b + LANES <= n_blocks; b += LANES)
        eight_blocks(key, table, id, first + b, out + (size_t)4 * b);
    if (b < n_blocks) {
        uint32_t last[4 * LANES];
        eight_blocks(key, table, id, first + b, last);
        memcpy(out + (size_t)4 * b, last, (size_t)(n_blocks - b) * 4 * sizeof *out);
    }
}
