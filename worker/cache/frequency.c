/*
 * The counting sketch of the cache's admission.
 *
 * A row's four counters lie in one line of 64, chosen by the upper bits of its hash mixed anew (the
 * row hash itself chooses servers, and rows of one server must not crowd here); the counters by
 * groups of lower bits, one in each quarter of the line, so that they are distinct. Cost: one line
 * of memory a call. One thread.
 */
#include "worker/cache/frequency.h"

#include "common/alloc.h"
#include "common/hash.h"

#define LINE 64u
#define QUARTER (LINE / 4)

psc_status_t psw_frequency_init(psw_frequency_t *frequency, size_t n, psc_error_t *error)
{
    size_t size = LINE;
    while (size < n)
        size *= 2;
    *frequency = (psw_frequency_t){.counters = psc_alloc_aligned(size), .n = size};
    if (frequency->counters == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu counters of a cache", size);
    for (size_t i = 0; i < size; i++)
        frequency->counters[i] = 0;
    return PSC_OK;
}

void psw_frequency_clear(psw_frequency_t *frequency)
{
    psc_free(frequency->counters);
    *frequency = (psw_frequency_t){0};
}

/* The row's line; *bits_out chooses the counters. */
static uint8_t *line_of(const psw_frequency_t *frequency, uint64_t hash, uint64_t *bits_out)
{
    const uint64_t mixed = psc_mix64(hash + UINT64_C(0xd1b54a32d192ed03));
    *bits_out = mixed;
    return frequency->counters + (size_t)((mixed >> 16) & (frequency->n / LINE - 1)) * LINE;
}

void psw_frequency_fetch(const psw_frequency_t *frequency, uint64_t hash)
{
    uint64_t bits;
    __builtin_prefetch(line_of(frequency, hash, &bits), 1);
}

static size_t counter_of(uint64_t bits, uint32_t k)
{
    return k * QUARTER + (size_t)((bits >> (4 * k)) & (QUARTER - 1));
}

static uint32_t lowest(const uint8_t *line, uint64_t bits)
{
    uint32_t least = UINT8_MAX;
    for (uint32_t k = 0; k < 4; k++)
        least = line[counter_of(bits, k)] < least ? line[counter_of(bits, k)] : least;
    return least;
}

static void halve(psw_frequency_t *frequency)
{
    for (size_t i = 0; i < frequency->n; i++)
        frequency->counters[i] /= 2;
    frequency->counted = 0;
}

uint32_t psw_frequency_add(psw_frequency_t *frequency, uint64_t hash)
{
    if (++frequency->counted > frequency->n)
        halve(frequency);
    uint64_t bits;
    uint8_t *line = line_of(frequency, hash, &bits);
    const uint32_t least = lowest(line, bits);
    if (least == UINT8_MAX)
        return least;
    for (uint32_t k = 0; k < 4; k++) {
        uint8_t *counter = &line[counter_of(bits, k)];
        if (*counter == least)
            *counter = (uint8_t)(least + 1);
    }
    return least + 1;
}

uint32_t psw_frequency_count(const psw_frequency_t *frequency, uint64_t hash)
{
    uint64_t bits;
    const uint8_t *line = line_of(frequency, hash, &bits);
    return lowest(line, bits);
}
