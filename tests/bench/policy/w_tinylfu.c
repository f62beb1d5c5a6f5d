/*
 * W-TinyLFU: new rows enter a window by least recent use, a hundredth of the room. The row that
 * leaves the window competes with the one that the main part would give up: the one that was used
 * more often lately stays. How often, also for rows that are not there, a count-min sketch of 4-bit
 * counters estimates, which are halved after ten times as many uses as there are rows. The main
 * part is a segmented LRU: a fifth on probation, a row that is used there becomes protected.
 *
 * The sketch is as generous as that of the authors' own library: four lines of four counters a row.
 * No doorkeeper in front of it: it saves memory, not hits.
 *
 * Source: Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM
 * Transactions on Storage 2017 (window 1%, protected 80%, minimal increment, reset by halving).
 */
#include "common/hash.h"
#include "tests/bench/policy/id_lists.h"
#include "tests/bench/policy/policies.h"

#define LINES 4
#define MAX_COUNT 15

enum { OUT = 0, WINDOW, PROBATION, PROTECTED };

typedef struct w_tinylfu {
    uint32_t window_capacity, main_capacity, protected_capacity;
    bench_list_t lists[PROTECTED + 1]; /* [WINDOW] on */
    uint8_t *where;
    bench_links_t *links;
    uint8_t *counters; /* LINES * width */
    uint32_t width;    /* a power of two */
    uint64_t n_counted, sample;
} w_tinylfu_t;

static void destroy(void *cache)
{
    w_tinylfu_t *tiny = cache;
    psc_free(tiny->where);
    psc_free(tiny->links);
    psc_free(tiny->counters);
    psc_free(tiny);
}

static void *create(const bench_trace_t *trace, uint32_t capacity)
{
    w_tinylfu_t *tiny = psc_alloc_zeroed(1, sizeof *tiny);
    if (tiny == NULL)
        return NULL;
    tiny->window_capacity = capacity / 100 != 0 ? capacity / 100 : 1;
    tiny->main_capacity = capacity - tiny->window_capacity;
    tiny->protected_capacity = (uint32_t)((uint64_t)tiny->main_capacity * 4 / 5);
    tiny->sample = (uint64_t)10 * capacity;
    tiny->width = 16;
    while (tiny->width < (uint64_t)4 * capacity)
        tiny->width *= 2;
    for (int i = WINDOW; i <= PROTECTED; i++)
        tiny->lists[i] = BENCH_LIST_EMPTY;
    tiny->where = psc_alloc_zeroed(trace->n_rows, sizeof *tiny->where);
    tiny->links = psc_alloc_array(trace->n_rows, sizeof *tiny->links);
    tiny->counters = psc_alloc_zeroed((size_t)LINES * tiny->width, 1);
    if (tiny->where != NULL && tiny->links != NULL && tiny->counters != NULL)
        return tiny;
    destroy(tiny);
    return NULL;
}

static uint8_t *counter(const w_tinylfu_t *tiny, uint32_t id, uint32_t line)
{
    uint64_t hash = psc_mix64(((uint64_t)line << 32 | id) + 1);
    return &tiny->counters[(size_t)line * tiny->width + (hash & (tiny->width - 1))];
}

static uint8_t estimate(const w_tinylfu_t *tiny, uint32_t id)
{
    uint8_t least = MAX_COUNT;
    for (uint32_t line = 0; line < LINES; line++)
        if (*counter(tiny, id, line) < least)
            least = *counter(tiny, id, line);
    return least;
}

static void count(w_tinylfu_t *tiny, uint32_t id)
{
    uint8_t least = estimate(tiny, id);
    for (uint32_t line = 0; line < LINES && least < MAX_COUNT; line++)
        if (*counter(tiny, id, line) == least)
            (*counter(tiny, id, line))++;
    if (++tiny->n_counted < tiny->sample)
        return;
    for (size_t i = 0; i < (size_t)LINES * tiny->width; i++)
        tiny->counters[i] /= 2;
    tiny->n_counted /= 2;
}

static void enter(w_tinylfu_t *tiny, uint8_t list, uint32_t id)
{
    tiny->where[id] = list;
    bench_list_push(&tiny->lists[list], tiny->links, id);
}

static void leave(w_tinylfu_t *tiny, uint32_t id)
{
    bench_list_remove(&tiny->lists[tiny->where[id]], tiny->links, id);
    tiny->where[id] = OUT;
}

static void use_again(w_tinylfu_t *tiny, uint32_t id)
{
    uint8_t list = tiny->where[id];
    leave(tiny, id);
    if (list == PROBATION && tiny->protected_capacity != 0) {
        if (tiny->lists[PROTECTED].n == tiny->protected_capacity) {
            uint32_t oldest = tiny->lists[PROTECTED].oldest;
            leave(tiny, oldest);
            enter(tiny, PROBATION, oldest);
        }
        list = PROTECTED;
    }
    enter(tiny, list, id);
}

/* The row comes out of the window: into the main part, if it is worth more than what is there. */
static void compete(w_tinylfu_t *tiny, uint32_t id)
{
    uint32_t n_main = tiny->lists[PROBATION].n + tiny->lists[PROTECTED].n;
    if (n_main == tiny->main_capacity) {
        bench_list_t *from = &tiny->lists[tiny->lists[PROBATION].n != 0 ? PROBATION : PROTECTED];
        if (n_main == 0 || estimate(tiny, id) <= estimate(tiny, from->oldest))
            return;
        leave(tiny, from->oldest);
    }
    enter(tiny, PROBATION, id);
}

static bool use(void *cache, uint32_t id)
{
    w_tinylfu_t *tiny = cache;
    count(tiny, id);
    if (tiny->where[id] != OUT) {
        use_again(tiny, id);
        return true;
    }
    enter(tiny, WINDOW, id);
    if (tiny->lists[WINDOW].n > tiny->window_capacity) {
        uint32_t oldest = tiny->lists[WINDOW].oldest;
        leave(tiny, oldest);
        compete(tiny, oldest);
    }
    return false;
}

const bench_policy_t bench_w_tinylfu = {
    .name = "W-TinyLFU",
    .source = "Einziger et al., TOS 2017; window 1%, protected 80%, reset after 10 uses a row",
    .create = create,
    .access = use,
    .destroy = destroy,
};
