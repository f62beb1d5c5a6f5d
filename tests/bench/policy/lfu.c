/*
 * Least frequently used among the rows that are there: a row that leaves loses its count. A list
 * for each count, in the order of the last use; the oldest of the lowest count goes. Constant work
 * a use: the lowest count is 1 after each arrival, and rises by one at most with a use.
 *
 * Source of the lists: Shah, Mitra, Matani, "An O(1) algorithm for implementing the LFU cache
 * eviction scheme", 2010.
 */
#include "tests/bench/policy/id_lists.h"
#include "tests/bench/policy/policies.h"

typedef struct lfu {
    uint32_t capacity, n, lowest;
    uint32_t *counts;    /* 0: not there */
    bench_list_t *lists; /* [n_lists], by count */
    uint32_t n_lists;
    bench_links_t *links;
} lfu_t;

static void destroy(void *cache)
{
    lfu_t *lfu = cache;
    psc_free(lfu->counts);
    psc_free(lfu->lists);
    psc_free(lfu->links);
    psc_free(lfu);
}

/* No row is used more often than the most frequent one of the trace. */
static uint32_t largest_count(const bench_trace_t *trace, uint32_t *counts)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < trace->n; i++)
        if (++counts[trace->ids[i]] > largest)
            largest = counts[trace->ids[i]];
    for (uint32_t id = 0; id < trace->n_rows; id++)
        counts[id] = 0;
    return largest;
}

static void *create(const bench_trace_t *trace, uint32_t capacity)
{
    lfu_t *lfu = psc_alloc_zeroed(1, sizeof *lfu);
    if (lfu == NULL)
        return NULL;
    lfu->capacity = capacity;
    lfu->counts = psc_alloc_zeroed(trace->n_rows, sizeof *lfu->counts);
    lfu->links = psc_alloc_array(trace->n_rows, sizeof *lfu->links);
    if (lfu->counts != NULL) {
        lfu->n_lists = largest_count(trace, lfu->counts) + 1;
        lfu->lists = psc_alloc_array(lfu->n_lists, sizeof *lfu->lists);
    }
    if (lfu->links == NULL || lfu->lists == NULL) {
        destroy(lfu);
        return NULL;
    }
    for (uint32_t i = 0; i < lfu->n_lists; i++)
        lfu->lists[i] = BENCH_LIST_EMPTY;
    return lfu;
}

static bool use(void *cache, uint32_t id)
{
    lfu_t *lfu = cache;
    uint32_t count = lfu->counts[id];
    if (count != 0) {
        bench_list_remove(&lfu->lists[count], lfu->links, id);
        if (count == lfu->lowest && lfu->lists[count].n == 0)
            lfu->lowest++;
    } else {
        if (lfu->n == lfu->capacity)
            lfu->counts[bench_list_pop(&lfu->lists[lfu->lowest], lfu->links)] = 0;
        else
            lfu->n++;
        lfu->lowest = 1;
    }
    lfu->counts[id] = count + 1;
    bench_list_push(&lfu->lists[count + 1], lfu->links, id);
    return count != 0;
}

const bench_policy_t bench_lfu = {
    .name = "LFU",
    .source = "least frequently used, counts of rows that are there; ties: least recently used",
    .create = create,
    .access = use,
    .destroy = destroy,
};
