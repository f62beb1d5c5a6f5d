/*
 * The store's rows in a memory file, and what a record owes to those who read it there.
 *
 * A reader may look at a record at any moment, also at one that has become another row's. So a
 * record says that it is free before it is used again (ps_slab_give), gets a new serial before it
 * becomes PRESENT, and becomes PRESENT last. Serials of pushes are the shard's; those of loads are
 * counted here, with a bit that pushes do not use, so that a row that left memory and came back to
 * the same place is told from itself.
 *
 * What a reader maps is never taken back: memory of pages that are freed is given back by a hole in
 * the file, where a reader finds zeros, which is a free record. A reader that looks there takes a
 * page of the file for it until the store uses or frees it again; it keeps no places of rows for
 * long that it does not find.
 *
 * Threads: the owner's; readers never write.
 */
#include "ps/store/share.h"

#include "ps/store/store_core.h"

_Static_assert(PSC_SHARED_PLACE_BYTES == PS_PLACE_BYTES, "one unit of places");
_Static_assert(PSC_SHARED_PRESENT == PS_ROW_PRESENT, "one number for PRESENT");
_Static_assert(sizeof(psc_shared_row_t) == sizeof(ps_row_header_t), "one size of headers");
_Static_assert(offsetof(psc_shared_row_t, id) == offsetof(ps_row_header_t, id), "id");
_Static_assert(offsetof(psc_shared_row_t, serial) == offsetof(ps_row_header_t, push_seq), "serial");
_Static_assert(offsetof(psc_shared_row_t, table) == offsetof(ps_row_header_t, table), "table");
_Static_assert(offsetof(psc_shared_row_t, state) == offsetof(ps_row_header_t, state), "state");

psc_status_t ps_store_share(ps_store_t *store, psc_error_t *error)
{
    if (store->shared.control != NULL)
        return PSC_OK;
    psc_shared_file_t file = {.fd = -1};
    psc_status_t st = psc_shared_create(ps_slab_region_bytes(store->slab), &file, error);
    if (st != PSC_OK)
        return st;
    st = ps_slab_share(store->slab, &file, error);
    if (st != PSC_OK)
        psc_shared_destroy(&file);
    else
        store->shared = file;
    return st;
}

const psc_shared_file_t *ps_store_shared(const ps_store_t *store)
{
    return store->shared.control != NULL ? &store->shared : NULL;
}

psc_shared_control_t *ps_store_shared_control(const ps_store_t *store)
{
    return store->shared.control;
}

size_t ps_store_touch(ps_store_t *store, uint16_t table, const uint64_t *ids,
                      const uint64_t *hashes, size_t n)
{
    const ps_store_table_t *found = ps_store_find_table(store, table);
    ps_place_t places[PS_SHARE_TOUCHES];
    if (found == NULL || n > PS_SHARE_TOUCHES)
        return 0;
    size_t n_missing = ps_index_find_batch(found->index, ids, hashes, n, places);
    for (size_t i = 0; i < n; i++) {
        if (places[i] != 0)
            ps_evict_touch(ps_store_row(store->base, places[i]));
    }
    return n - n_missing;
}

void ps_share_reset_row(ps_row_header_t *row, uint64_t id, uint16_t table, ps_row_state_t state)
{
    ps_store_set_state(row, PS_ROW_FREE);
    psc_shared_stamp(&row->push_seq, 0);
    __atomic_store_n(&row->id, id, __ATOMIC_RELAXED);
    __atomic_store_n(&row->table, table, __ATOMIC_RELAXED);
    row->version = row->update_count = row->last_clock = 0;
    row->pins = row->flags = 0;
    row->policy = 0;
    ps_store_set_state(row, state);
}

uint32_t ps_share_load_serial(ps_store_t *store)
{
    return ++store->n_loads | PS_ROW_LOAD_SERIAL;
}
