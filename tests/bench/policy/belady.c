/*
 * The optimum: who knows the future keeps the rows that are used again soonest (Belady 1966). The
 * row whose next use lies farthest goes, the new one itself included: a row need not stay once it
 * was used. That makes it a bound for every policy, those that turn rows away as well.
 *
 * The next use of each access is found by one walk from the end. The rows that are there stand in
 * a heap by their next use, the farthest on top; a use moves its row to its new place.
 *
 * Source: Belady, "A study of replacement algorithms for a virtual-storage computer", 1966.
 */
#include "common/alloc.h"
#include "tests/bench/policy/policies.h"

typedef struct belady {
    uint32_t capacity, n;
    uint32_t *next;    /* [trace->n] when the row of access i is used again; NEVER */
    uint32_t *heap;    /* [capacity] ids */
    uint32_t *at;      /* by id: where in the heap; NEVER: not there */
    uint32_t *next_of; /* by id: of the rows in the heap */
    uint32_t now;
} belady_t;

#define NEVER UINT32_MAX

static void destroy(void *cache)
{
    belady_t *belady = cache;
    psc_free(belady->next);
    psc_free(belady->heap);
    psc_free(belady->at);
    psc_free(belady->next_of);
    psc_free(belady);
}

static void *create(const bench_trace_t *trace, uint32_t capacity)
{
    belady_t *belady = psc_alloc_zeroed(1, sizeof *belady);
    if (belady == NULL)
        return NULL;
    belady->capacity = capacity;
    belady->next = psc_alloc_array(trace->n, sizeof *belady->next);
    belady->heap = psc_alloc_array(capacity, sizeof *belady->heap);
    belady->at = psc_alloc_array(trace->n_rows, sizeof *belady->at);
    belady->next_of = psc_alloc_array(trace->n_rows, sizeof *belady->next_of);
    if (trace->n >= NEVER || belady->next == NULL || belady->heap == NULL || belady->at == NULL ||
        belady->next_of == NULL) {
        destroy(belady);
        return NULL;
    }
    for (uint32_t id = 0; id < trace->n_rows; id++)
        belady->at[id] = belady->next_of[id] = NEVER;
    for (size_t i = trace->n; i-- > 0;) {
        belady->next[i] = belady->next_of[trace->ids[i]];
        belady->next_of[trace->ids[i]] = (uint32_t)i;
    }
    return belady;
}

static void put(belady_t *belady, uint32_t place, uint32_t id)
{
    belady->heap[place] = id;
    belady->at[id] = place;
}

/* Puts id where the heap's order wants it, coming from a free place. */
static void settle(belady_t *belady, uint32_t place, uint32_t id)
{
    const uint32_t *next_of = belady->next_of;
    while (place != 0 && next_of[belady->heap[(place - 1) / 2]] < next_of[id]) {
        put(belady, place, belady->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= belady->n)
            break;
        if (child + 1 < belady->n &&
            next_of[belady->heap[child + 1]] > next_of[belady->heap[child]])
            child++;
        if (next_of[belady->heap[child]] <= next_of[id])
            break;
        put(belady, place, belady->heap[child]);
        place = child;
    }
    put(belady, place, id);
}

static bool use(void *cache, uint32_t id)
{
    belady_t *belady = cache;
    belady->next_of[id] = belady->next[belady->now++];
    uint32_t place = belady->at[id];
    if (place != NEVER) {
        settle(belady, place, id);
        return true;
    }
    if (belady->n < belady->capacity) {
        settle(belady, belady->n++, id);
        return false;
    }
    uint32_t farthest = belady->heap[0];
    if (belady->next_of[farthest] > belady->next_of[id]) {
        belady->at[farthest] = NEVER;
        settle(belady, 0, id);
    }
    return false;
}

const bench_policy_t bench_belady = {
    .name = "optimum",
    .source = "Belady 1966: the row that is used again last goes, or does not come in",
    .create = create,
    .access = use,
    .destroy = destroy,
};
