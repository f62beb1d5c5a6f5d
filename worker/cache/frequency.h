/*
 * How often rows were asked for lately, estimated: a count-min sketch with ageing, as in TinyLFU
 * (Einziger, Friedman, Manes 2017, "TinyLFU: A Highly Efficient Cache Admission Policy").
 *
 * One byte a counter, four counters a row within one cache line, of which only the lowest are
 * raised. When as many rows were counted as there are counters, all counters are halved.
 */
#ifndef WORKER_CACHE_FREQUENCY_H
#define WORKER_CACHE_FREQUENCY_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct psw_frequency {
    uint8_t *counters;
    size_t n; /* a power of two, at least 64 */
    size_t counted;
} psw_frequency_t;

/* At least n counters. Errors: NO_MEMORY. psw_frequency_clear gives the memory back. */
PSC_MUST_CHECK psc_status_t psw_frequency_init(psw_frequency_t *frequency, size_t n,
                                               psc_error_t *error);
/* Of zeros too. */
void psw_frequency_clear(psw_frequency_t *frequency);

/* Asks for the memory of the row's counters. */
void psw_frequency_fetch(const psw_frequency_t *frequency, uint64_t hash);

/* Counts the row of this psc_row_hash once more. Returns its estimate. */
uint32_t psw_frequency_add(psw_frequency_t *frequency, uint64_t hash);

/* Never less than how often the row was counted since counters were last halved (up to 255). */
uint32_t psw_frequency_count(const psw_frequency_t *frequency, uint64_t hash);

#endif
