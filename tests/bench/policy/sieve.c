/*
 * SIEVE: one queue in the order of arrival and a bit a row. A use sets the bit and moves nothing.
 * The hand goes from the oldest to the newest, clears set bits and evicts the first row without;
 * it stays there, while new rows come in at the front: what survived is passed over by the new ones
 * and is not looked at again before they were.
 *
 * Source: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024, algorithm 1.
 */
#include "tests/bench/policy/id_lists.h"
#include "tests/bench/policy/policies.h"

typedef struct sieve {
    uint32_t capacity;
    uint32_t hand; /* BENCH_NO_ID: at the oldest */
    bench_list_t queue;
    bool *in, *visited;
    bench_links_t *links;
} sieve_t;

static void destroy(void *cache)
{
    sieve_t *sieve = cache;
    psc_free(sieve->in);
    psc_free(sieve->visited);
    psc_free(sieve->links);
    psc_free(sieve);
}

static void *create(const bench_trace_t *trace, uint32_t capacity)
{
    sieve_t *sieve = psc_alloc_zeroed(1, sizeof *sieve);
    if (sieve == NULL)
        return NULL;
    sieve->capacity = capacity;
    sieve->hand = BENCH_NO_ID;
    sieve->queue = BENCH_LIST_EMPTY;
    sieve->in = psc_alloc_zeroed(trace->n_rows, sizeof *sieve->in);
    sieve->visited = psc_alloc_zeroed(trace->n_rows, sizeof *sieve->visited);
    sieve->links = psc_alloc_array(trace->n_rows, sizeof *sieve->links);
    if (sieve->in != NULL && sieve->visited != NULL && sieve->links != NULL)
        return sieve;
    destroy(sieve);
    return NULL;
}

static void evict(sieve_t *sieve)
{
    uint32_t id = sieve->hand != BENCH_NO_ID ? sieve->hand : sieve->queue.oldest;
    while (sieve->visited[id]) {
        sieve->visited[id] = false;
        id = sieve->links[id].newer;
        if (id == BENCH_NO_ID)
            id = sieve->queue.oldest;
    }
    sieve->hand = sieve->links[id].newer;
    sieve->in[id] = false;
    bench_list_remove(&sieve->queue, sieve->links, id);
}

static bool use(void *cache, uint32_t id)
{
    sieve_t *sieve = cache;
    if (sieve->in[id]) {
        sieve->visited[id] = true;
        return true;
    }
    if (sieve->queue.n == sieve->capacity)
        evict(sieve);
    sieve->in[id] = true;
    sieve->visited[id] = false;
    bench_list_push(&sieve->queue, sieve->links, id);
    return false;
}

const bench_policy_t bench_sieve = {
    .name = "SIEVE",
    .source = "Zhang et al., NSDI 2024",
    .create = create,
    .access = use,
    .destroy = destroy,
};
