/*
 * Least recently used: one list, a use moves the row to its front, the last row goes.
 */
#include "tests/bench/policy/id_lists.h"
#include "tests/bench/policy/policies.h"

typedef struct lru {
    uint32_t capacity;
    bench_list_t list;
    bool *in;
    bench_links_t *links;
} lru_t;

static void destroy(void *cache)
{
    lru_t *lru = cache;
    psc_free(lru->in);
    psc_free(lru->links);
    psc_free(lru);
}

static void *create(const bench_trace_t *trace, uint32_t capacity)
{
    lru_t *lru = psc_alloc_zeroed(1, sizeof *lru);
    if (lru == NULL)
        return NULL;
    lru->capacity = capacity;
    lru->list = BENCH_LIST_EMPTY;
    lru->in = psc_alloc_zeroed(trace->n_rows, sizeof *lru->in);
    lru->links = psc_alloc_array(trace->n_rows, sizeof *lru->links);
    if (lru->in != NULL && lru->links != NULL)
        return lru;
    destroy(lru);
    return NULL;
}

static bool use(void *cache, uint32_t id)
{
    lru_t *lru = cache;
    bool hit = lru->in[id];
    if (hit)
        bench_list_remove(&lru->list, lru->links, id);
    else if (lru->list.n == lru->capacity)
        lru->in[bench_list_pop(&lru->list, lru->links)] = false;
    lru->in[id] = true;
    bench_list_push(&lru->list, lru->links, id);
    return hit;
}

const bench_policy_t bench_lru = {
    .name = "LRU",
    .source = "least recently used",
    .create = create,
    .access = use,
    .destroy = destroy,
};
