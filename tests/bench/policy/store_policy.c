/*
 * The policy of the row store, as it is: ps/store/evict over slab pages, with records of 64 bytes
 * that hold a header alone, in pages of 64. What the store does around it, evicting, freeing and
 * taking a record, is done here in the same order.
 */
#include "common/alloc.h"
#include "common/hash.h"
#include "ps/store/evict.h"
#include "tests/bench/policy/policies.h"

#include <string.h>

#define PAGE_BYTES 4096
#define RECORD_BYTES 64
#define PAGE_RECORDS (PAGE_BYTES / RECORD_BYTES)

typedef struct store_policy {
    uint32_t capacity, n;
    ps_slab_t *slab;
    uint8_t *base;
    uint32_t class_id;
    ps_evict_class_t evict;
    ps_place_t *places; /* by id; 0: not there */
} store_policy_t;

static void destroy(void *cache)
{
    store_policy_t *store = cache;
    ps_evict_clear(&store->evict);
    ps_slab_destroy(store->slab);
    psc_free(store->places);
    psc_free(store);
}

static void *create(const bench_trace_t *trace, uint32_t capacity)
{
    store_policy_t *store = psc_alloc_zeroed(1, sizeof *store);
    if (store == NULL)
        return NULL;
    store->capacity = capacity;
    store->places = psc_alloc_zeroed(trace->n_rows, sizeof *store->places);
    uint64_t n_pages = (capacity + PAGE_RECORDS - 1) / PAGE_RECORDS;
    psc_error_t error = PSC_ERROR_INIT;
    if (store->places != NULL &&
        ps_slab_create(n_pages * PAGE_BYTES, PAGE_BYTES, 0, &store->slab, &error) == PSC_OK &&
        ps_slab_class(store->slab, RECORD_BYTES, &store->class_id, &error) == PSC_OK) {
        store->base = ps_slab_base(store->slab);
        return store;
    }
    destroy(store);
    return NULL;
}

/* A free record, by evicting a row when there are as many as may be. */
static ps_place_t take(store_policy_t *store)
{
    if (store->n < store->capacity) {
        store->n++;
        ps_place_t place = ps_slab_take(store->slab, store->class_id);
        if (place != 0)
            return place;
        psc_error_t error = PSC_ERROR_INIT;
        PSC_BUG_ON(ps_slab_grow(store->slab, store->class_id, &error) != PSC_OK);
    } else {
        ps_place_t place = ps_evict_choose(store->slab, store->class_id, &store->evict);
        store->places[ps_store_row(store->base, place)->id] = 0;
        ps_slab_give(store->slab, place);
    }
    return ps_slab_take(store->slab, store->class_id);
}

static bool use(void *cache, uint32_t id)
{
    store_policy_t *store = cache;
    ps_place_t place = store->places[id];
    if (place != 0) {
        ps_evict_touch(ps_store_row(store->base, place));
        return true;
    }
    place = take(store);
    ps_row_header_t *row = ps_store_row(store->base, place);
    memset(row, 0, sizeof *row);
    row->id = id;
    row->state = PS_ROW_PRESENT;
    ps_evict_admit(&store->evict, row, place, psc_row_hash(row->table, id));
    store->places[id] = place;
    return false;
}

const bench_policy_t bench_store = {
    .name = "ours",
    .source = "ps/store/evict: newcomers 1/16 to 1/4, 4 bits a row for who left, CLOCK with "
              "counters to 7",
    .create = create,
    .access = use,
    .destroy = destroy,
};
