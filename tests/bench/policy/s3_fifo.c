/*
 * S3-FIFO: three queues in the order of arrival. New rows enter the small one, a tenth of the
 * room; those used more than once by the time they reach its end go on to the main one, the others
 * leave, and their ids are remembered in the ghost queue, as many as the main queue has rows. A row
 * that comes back while it is remembered enters the main queue at once. At the main queue's end a
 * row that was used goes round once more for each use, up to 3.
 *
 * Source: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP
 * 2023, algorithm 1.
 */
#include "tests/bench/policy/id_lists.h"
#include "tests/bench/policy/policies.h"

#define MAX_USES 3

enum { OUT = 0, SMALL, MAIN, GHOST };

typedef struct s3_fifo {
    uint32_t capacity, small_capacity, ghost_capacity;
    bench_list_t small, main, ghost;
    uint8_t *where, *uses;
    bench_links_t *links;
} s3_fifo_t;

static void destroy(void *cache)
{
    s3_fifo_t *s3 = cache;
    psc_free(s3->where);
    psc_free(s3->uses);
    psc_free(s3->links);
    psc_free(s3);
}

static void *create(const bench_trace_t *trace, uint32_t capacity)
{
    s3_fifo_t *s3 = psc_alloc_zeroed(1, sizeof *s3);
    if (s3 == NULL)
        return NULL;
    s3->capacity = capacity;
    s3->small_capacity = capacity / 10 != 0 ? capacity / 10 : 1;
    s3->ghost_capacity = capacity - s3->small_capacity;
    s3->small = s3->main = s3->ghost = BENCH_LIST_EMPTY;
    s3->where = psc_alloc_zeroed(trace->n_rows, sizeof *s3->where);
    s3->uses = psc_alloc_zeroed(trace->n_rows, sizeof *s3->uses);
    s3->links = psc_alloc_array(trace->n_rows, sizeof *s3->links);
    if (s3->where != NULL && s3->uses != NULL && s3->links != NULL)
        return s3;
    destroy(s3);
    return NULL;
}

static void enter(s3_fifo_t *s3, bench_list_t *queue, uint8_t where, uint32_t id)
{
    s3->where[id] = where;
    bench_list_push(queue, s3->links, id);
}

static void remember(s3_fifo_t *s3, uint32_t id)
{
    s3->where[id] = OUT;
    if (s3->ghost_capacity == 0)
        return;
    if (s3->ghost.n == s3->ghost_capacity)
        s3->where[bench_list_pop(&s3->ghost, s3->links)] = OUT;
    enter(s3, &s3->ghost, GHOST, id);
}

static void evict_main(s3_fifo_t *s3)
{
    for (;;) {
        uint32_t id = bench_list_pop(&s3->main, s3->links);
        if (s3->uses[id] == 0) {
            s3->where[id] = OUT;
            return;
        }
        s3->uses[id]--;
        bench_list_push(&s3->main, s3->links, id);
    }
}

/* False: all that was in the small queue went on. */
static bool evict_small(s3_fifo_t *s3)
{
    while (s3->small.n != 0) {
        uint32_t id = bench_list_pop(&s3->small, s3->links);
        if (s3->uses[id] <= 1) {
            remember(s3, id);
            return true;
        }
        s3->uses[id] = 0;
        enter(s3, &s3->main, MAIN, id);
    }
    return false;
}

static bool use(void *cache, uint32_t id)
{
    s3_fifo_t *s3 = cache;
    if (s3->where[id] == SMALL || s3->where[id] == MAIN) {
        if (s3->uses[id] < MAX_USES)
            s3->uses[id]++;
        return true;
    }
    bool known = s3->where[id] == GHOST;
    if (known)
        bench_list_remove(&s3->ghost, s3->links, id);
    if (s3->small.n + s3->main.n == s3->capacity &&
        (s3->small.n < s3->small_capacity || !evict_small(s3)))
        evict_main(s3);
    s3->uses[id] = 0;
    if (known)
        enter(s3, &s3->main, MAIN, id);
    else
        enter(s3, &s3->small, SMALL, id);
    return false;
}

const bench_policy_t bench_s3_fifo = {
    .name = "S3-FIFO",
    .source = "Yang et al., SOSP 2023; small queue 10%, ghosts 90%, counters to 3",
    .create = create,
    .access = use,
    .destroy = destroy,
};
