/*
 * Making room, in this order: a free record of the class; a free page; when the class has less than
 * its equal share of the pages, a page of the class that has most (so that a table that is created
 * when memory is full can work at all); a row of the same class; any page of another class.
 *
 * Evicting a dirty row copies it into a write job and frees its record at once: jobs run in order,
 * so a later read finds it. Jobs are few and all allocated at the start. When none is free the
 * answer is BUSY, which passes by itself, as jobs finish. What was evicted until then stays
 * evicted, so that trying again gets further: with nothing else under way a batch needs a bounded
 * number of tries.
 *
 * Memory that is reserved for something else lowers the budget of the pages at once; pages above it
 * go one by one, as they can be written back (ps_room_trim).
 *
 * Work per record is bounded: the eviction policy looks at a bounded number of rows, a page holds
 * at most page_bytes / 48. Owner thread only.
 */
#include "ps/store/room.h"

#include "common/hash.h"
#include "common/slots.h"
#include "ps/store/cut.h"

/* A page of dirty rows fills at most the job being filled and two more. */
#define PAGE_JOBS 2

static ps_store_table_t *table_of(const ps_store_t *store, const ps_row_header_t *row)
{
    return store->tables[row->table];
}

void ps_room_drop(ps_store_t *store, ps_place_t place)
{
    const ps_row_header_t *row = ps_store_row(store->base, place);
    ps_index_remove(table_of(store, row)->index, psc_row_hash(row->table, row->id), place);
    ps_slab_give(store->slab, place);
}

void ps_room_submit_writes(ps_store_t *store)
{
    if (store->write_job == NULL)
        return;
    (void)ps_io_submit(store->io, store->write_job);
    store->write_job = NULL;
}

bool ps_room_write_back(ps_store_t *store, const ps_row_header_t *row)
{
    ps_store_table_t *table = table_of(store, row);
    uint32_t slot = psc_slot_of_hash(psc_row_hash(row->table, row->id));
    for (int tries = 0; tries < 2; tries++) {
        if (store->write_job == NULL)
            store->write_job = ps_io_write_job(store->io);
        if (store->write_job == NULL)
            return false;
        if (ps_io_add_write(store->io, store->write_job, row, table->value_bytes, slot)) {
            table->cold_empty = false;
            return true;
        }
        ps_room_submit_writes(store);
    }
    return false;
}

bool ps_room_remove_cold(ps_store_t *store, const ps_row_header_t *row)
{
    uint32_t slot = psc_slot_of_hash(psc_row_hash(row->table, row->id));
    for (int tries = 0; tries < 2; tries++) {
        if (store->write_job == NULL)
            store->write_job = ps_io_write_job(store->io);
        if (store->write_job == NULL)
            return false;
        if (ps_io_add_remove(store->io, store->write_job, row, slot))
            return true;
        ps_room_submit_writes(store);
    }
    return false;
}

/* False: all write jobs, or all pieces of a cut, are under way. */
static bool evict(ps_store_t *store, ps_place_t place)
{
    const ps_row_header_t *row = ps_store_row(store->base, place);
    if ((row->flags & PS_ROW_DIRTY) != 0 &&
        (!ps_cut_keep_row(store, place) || !ps_room_write_back(store, row)))
        return false;
    ps_room_drop(store, place);
    store->counters.evicted++;
    return true;
}

/* The class with most pages, other than this one; class_id itself when there is no other. */
static uint32_t largest_other(const ps_store_t *store, uint32_t class_id)
{
    uint32_t best = class_id, n_best = 0;
    for (uint32_t i = 0; i < ps_slab_n_classes(store->slab); i++) {
        if (i != class_id && ps_slab_n_pages(store->slab, i) > n_best) {
            best = i;
            n_best = ps_slab_n_pages(store->slab, i);
        }
    }
    return best;
}

/* Whether the class may take a page from the largest for fairness' sake. */
static bool below_share(const ps_store_t *store, uint32_t class_id, uint32_t largest)
{
    uint32_t n_classes = 0;
    uint64_t n_pages = 0;
    for (uint32_t i = 0; i < ps_slab_n_classes(store->slab); i++) {
        n_pages += ps_slab_n_pages(store->slab, i);
        n_classes += ps_slab_n_pages(store->slab, i) != 0 || i == class_id;
    }
    uint32_t own = ps_slab_n_pages(store->slab, class_id);
    return ((uint64_t)own + 1) * n_classes <= n_pages &&
           ps_slab_n_pages(store->slab, largest) > own + 1;
}

/*
 * Evicts a page of another class. NOT_FOUND: none can be. BUSY: no write job. OK: try to grow.
 */
static psc_status_t take_page(ps_store_t *store, uint32_t from)
{
    if (ps_io_free_writes(store->io) < PAGE_JOBS)
        return PSC_BUSY;
    ps_evict_class_t *class = &store->evict[from];
    uint32_t page = ps_evict_choose_page(store->slab, from, class);
    if (page == 0)
        return PSC_NOT_FOUND;
    uint32_t n_records = ps_slab_page_records(store->slab, page);
    for (uint32_t i = 0; i < n_records; i++) {
        ps_place_t place = ps_slab_page_place(store->slab, page, i);
        if (ps_store_row(store->base, place)->state != PS_ROW_FREE && !evict(store, place))
            return PSC_BUSY;
    }
    ps_evict_forget_page(store->slab, class, page);
    ps_slab_page_free(store->slab, page);
    return PSC_OK;
}

/* Any page of any other class, the largest first. */
static psc_status_t take_any_page(ps_store_t *store, uint32_t class_id, uint32_t largest)
{
    psc_status_t st = largest != class_id ? take_page(store, largest) : PSC_NOT_FOUND;
    for (uint32_t i = 0; st == PSC_NOT_FOUND && i < ps_slab_n_classes(store->slab); i++)
        if (i != class_id && i != largest && ps_slab_n_pages(store->slab, i) != 0)
            st = take_page(store, i);
    return st;
}

psc_status_t ps_room_take(ps_store_t *store, const ps_store_table_t *table, ps_place_t *place_out,
                          psc_error_t *error)
{
    uint32_t class_id = table->class_id;
    for (;;) {
        ps_place_t place = ps_slab_take(store->slab, class_id);
        if (place != 0) {
            *place_out = place;
            return PSC_OK;
        }
        psc_status_t st = ps_slab_grow(store->slab, class_id, error);
        if (st == PSC_OK)
            continue;
        if (st != PSC_BUSY)
            return st;
        uint32_t largest = largest_other(store, class_id);
        if (below_share(store, class_id, largest)) {
            st = take_page(store, largest);
            if (st == PSC_OK)
                continue;
            if (st == PSC_BUSY)
                break;
        }
        place = ps_evict_choose(store->slab, class_id, &store->evict[class_id]);
        if (place != 0) {
            if (evict(store, place))
                continue;
            break;
        }
        if (take_any_page(store, class_id, largest) != PSC_OK)
            break;
    }
    return psc_error_set(error, PSC_BUSY, "no room for rows of table %u now",
                         (unsigned)table->number);
}

bool ps_room_has(ps_store_t *store, const ps_store_table_t *table, size_t n)
{
    while (ps_slab_free_records(store->slab, table->class_id) < n)
        if (ps_slab_grow(store->slab, table->class_id, NULL) != PSC_OK)
            return false;
    return true;
}

void ps_room_trim(ps_store_t *store)
{
    uint64_t budget = ps_store_rows_bytes(store);
    if (ps_slab_charged_bytes(store->slab) <= budget)
        return;
    uint32_t largest = largest_other(store, UINT32_MAX);
    if (largest != UINT32_MAX && take_any_page(store, UINT32_MAX, largest) == PSC_OK)
        ps_slab_set_budget(store->slab, budget); /* gives the page's memory back */
    ps_room_submit_writes(store);
}

/* Whether all tables work with this memory and this part of it reserved. */
static bool all_fit(const ps_store_t *store, uint64_t memory_bytes, uint64_t reserved_bytes)
{
    ps_store_layout_t layout = ps_store_layout_of(memory_bytes);
    if (layout.rows_bytes < reserved_bytes)
        return false;
    uint64_t rows_bytes = layout.rows_bytes - reserved_bytes;
    if (ps_slab_capacity(rows_bytes, layout.page_bytes, PS_STORE_ROW_BYTES, 64) == 0)
        return false;
    for (uint32_t i = 0; i < store->n_tables; i++) {
        const ps_store_table_t *table = store->tables[i];
        size_t record_bytes = table != NULL ? (table->value_bytes + 63) / 64 * 64 : 0;
        if (table == NULL)
            continue;
        if (record_bytes > layout.page_bytes)
            return false;
        size_t capacity =
            ps_slab_capacity(rows_bytes, layout.page_bytes, PS_STORE_ROW_BYTES, record_bytes);
        size_t n = table->max_batch > PS_STORE_MIN_ROWS ? 2 * table->max_batch : PS_STORE_MIN_ROWS;
        if (capacity < n)
            return false;
    }
    return true;
}

psc_status_t ps_store_reserve_memory(ps_store_t *store, uint64_t bytes, psc_error_t *error)
{
    uint64_t all = store->reserved_bytes + bytes;
    if (bytes <= ps_store_rows_bytes(store) && all_fit(store, store->memory_bytes, all)) {
        store->reserved_bytes = all;
        ps_slab_set_budget(store->slab, ps_store_rows_bytes(store));
        return PSC_OK;
    }
    uint64_t memory = store->memory_bytes;
    while (memory < (uint64_t)1 << 50 && !all_fit(store, memory, all))
        memory *= 2;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "a memory of %llu bytes has no room for %llu bytes beside the rows; "
                         "%llu would do",
                         (unsigned long long)store->memory_bytes, (unsigned long long)bytes,
                         (unsigned long long)memory);
}

void ps_store_unreserve_memory(ps_store_t *store, uint64_t bytes)
{
    PSC_BUG_ON(bytes > store->reserved_bytes);
    store->reserved_bytes -= bytes;
    ps_slab_set_budget(store->slab, ps_store_rows_bytes(store));
}
