/*
 * CLOCK with a counter to 3: rows stand in a ring, a use adds one, the hand takes one off and
 * evicts at zero; the new row takes the place of the one that left, with a counter of 0. After 32
 * rows without a zero among them the lowest of these goes, so that an eviction costs no more.
 *
 * Source: Smith, "Sequentiality and prefetching in database systems", TODS 1978 ("generalized
 * CLOCK").
 */
#include "common/alloc.h"
#include "tests/bench/policy/policies.h"

#define MAX_USES 3
#define LOOK 32
#define NOWHERE UINT32_MAX

typedef struct gclock {
    uint32_t capacity, n, hand;
    uint32_t *ring;  /* [capacity] ids */
    uint32_t *place; /* by id; NOWHERE */
    uint8_t *uses;   /* by id */
} gclock_t;

static void destroy(void *cache)
{
    gclock_t *clock = cache;
    psc_free(clock->ring);
    psc_free(clock->place);
    psc_free(clock->uses);
    psc_free(clock);
}

static void *create(const bench_trace_t *trace, uint32_t capacity)
{
    gclock_t *clock = psc_alloc_zeroed(1, sizeof *clock);
    if (clock == NULL)
        return NULL;
    clock->capacity = capacity;
    clock->ring = psc_alloc_array(capacity, sizeof *clock->ring);
    clock->place = psc_alloc_array(trace->n_rows, sizeof *clock->place);
    clock->uses = psc_alloc_zeroed(trace->n_rows, sizeof *clock->uses);
    if (clock->ring == NULL || clock->place == NULL || clock->uses == NULL) {
        destroy(clock);
        return NULL;
    }
    for (uint32_t id = 0; id < trace->n_rows; id++)
        clock->place[id] = NOWHERE;
    return clock;
}

static uint32_t evict(gclock_t *clock)
{
    uint32_t best = 0;
    unsigned best_uses = MAX_USES + 1;
    for (int left = LOOK; left > 0; left--) {
        uint32_t place = clock->hand;
        clock->hand = place + 1 < clock->capacity ? place + 1 : 0;
        uint8_t *uses = &clock->uses[clock->ring[place]];
        if (*uses == 0) {
            best = place;
            break;
        }
        if (--*uses < best_uses) {
            best_uses = *uses;
            best = place;
        }
    }
    clock->place[clock->ring[best]] = NOWHERE;
    return best;
}

static bool use(void *cache, uint32_t id)
{
    gclock_t *clock = cache;
    if (clock->place[id] != NOWHERE) {
        if (clock->uses[id] < MAX_USES)
            clock->uses[id]++;
        return true;
    }
    uint32_t place = clock->n < clock->capacity ? clock->n++ : evict(clock);
    clock->ring[place] = id;
    clock->place[id] = place;
    clock->uses[id] = 0;
    return false;
}

const bench_policy_t bench_clock = {
    .name = "CLOCK",
    .source = "generalized CLOCK, Smith 1978; counters to 3, looks at 32 rows",
    .create = create,
    .access = use,
    .destroy = destroy,
};
