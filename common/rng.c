/* Philox through Random123's header; kept out of ours so that only this file compiles it. */
#include "common/rng.h"

#include <Random123/philox.h>

void psc_rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    philox4x32_ctr_t c = {{counter[0], counter[1], counter[2], counter[3]}};
    philox4x32_key_t k = {{key[0], key[1]}};
    philox4x32_ctr_t r = philox4x32(c, k);
    for (int i = 0; i < 4; i++)
        out[i] = r.v[i];
}

void psc_rng_row(uint64_t seed, uint32_t table, uint64_t id, uint32_t block, psc_rng_use_t use,
                 uint32_t update_count, uint32_t out[4])
{
    /* The update count enters through the key, since the counter's 128 bits are taken. */
    uint64_t k = update_count == 0 ? seed : psc_mix64(seed ^ psc_mix64(update_count));
    uint32_t key[2] = {(uint32_t)k, (uint32_t)(k >> 32)};
    uint32_t counter[4] = {(uint32_t)id, (uint32_t)(id >> 32), table, block | (uint32_t)use << 28};
    psc_rng_philox(counter, key, out);
}
