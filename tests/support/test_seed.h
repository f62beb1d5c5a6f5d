/* The seed of a random test: printed, and taken from EMBPS_TEST_SEED to replay a run. */
#ifndef TESTS_SUPPORT_TEST_SEED_H
#define TESTS_SUPPORT_TEST_SEED_H

#include "common/clock.h"
#include "common/rng.h"

#include <stdio.h>
#include <stdlib.h>

/* A stream of random numbers, the next by test_next. */
typedef struct test_random {
    uint64_t key;
    uint64_t n;
} test_random_t;

static inline test_random_t test_random_start(void)
{
    const char *text = getenv("EMBPS_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : psc_clock_us();
    printf("seed %llu\n", (unsigned long long)seed);
    return (test_random_t){.key = psc_rng_stream(seed, 0, 0)};
}

static inline uint64_t test_next(test_random_t *random)
{
    return psc_rng_at(random->key, random->n++);
}

/* Below n; n > 0. */
static inline size_t test_below(test_random_t *random, size_t n)
{
    return (size_t)(test_next(random) % n);
}

/* In [-1, 1). */
static inline float test_float(test_random_t *random)
{
    return 2.0f * psc_rng_unit((uint32_t)test_next(random)) - 1.0f;
}

#endif
