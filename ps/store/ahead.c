/*
 * Rows before they are asked for, and rows that are asked for only if they are there.
 *
 * A prefetch makes records for rows that are not in memory, as prepare does for a READ batch, and
 * submits their reads; but it pins none of them, and nobody waits for them. Rows that the cold tier
 * does not have are freed when their read ends, like all absent rows without pins. What keeps the
 * others until their first use, and how many there may be, is the eviction policy's (evict.h).
 *
 * It never stands in the way of a batch: reads go out only while few are under way (MAX_JOBS), and
 * what finds no room is left for a later call. Errors are not told: whoever needs the row will
 * meet them.
 *
 * Threads: the owner's.
 */
#include "common/hash.h"
#include "common/slots.h"
#include "ps/store/room.h"
#include "ps/store/store_core.h"

#include <string.h>

#define JOBS 2     /* of one call, read as one group */
#define MAX_JOBS 2 /* read jobs under way beside which another group is sent */

typedef struct ahead {
    ps_store_t *store;
    ps_store_table_t *table;
    ps_io_job_t *jobs[JOBS];
    size_t n_jobs;
} ahead_t;

/* False: not now. */
static bool add_read(ahead_t *ahead, ps_place_t place, uint64_t hash)
{
    uint32_t slot = psc_slot_of_hash(hash);
    if (ahead->n_jobs != 0 && ps_io_add_read(ahead->jobs[ahead->n_jobs - 1], place, slot))
        return true;
    ps_io_job_t *job = ahead->n_jobs < JOBS ? ps_io_read_job(ahead->store->io) : NULL;
    if (job == NULL)
        return false;
    job->record_bytes = ahead->table->value_bytes;
    ahead->jobs[ahead->n_jobs++] = job;
    return ps_io_add_read(job, place, slot);
}

/* A record for a row that is not in memory, and its read. False: not now. */
static bool fetch(ahead_t *ahead, uint64_t id, uint64_t hash)
{
    ps_store_t *store = ahead->store;
    ps_place_t place;
    if (ps_room_take(store, ahead->table, &place, NULL) != PSC_OK)
        return false;
    ps_row_header_t *row = ps_store_row(store->base, place);
    ps_share_reset_row(row, id, ahead->table->number, PS_ROW_LOADING);
    if (ps_index_insert(ahead->table->index, hash, place, NULL) != PSC_OK) {
        ps_slab_give(store->slab, place);
        return false;
    }
    if (!add_read(ahead, place, hash)) {
        ps_room_drop(store, place);
        return false;
    }
    ps_evict_announce(&store->evict[ahead->table->class_id], row, place, hash);
    store->counters.fetched_ahead++;
    return true;
}

/* A row that is in memory stays until it is used. */
static void keep(ahead_t *ahead, ps_place_t place)
{
    ps_row_header_t *row = ps_store_row(ahead->store->base, place);
    row->flags &= (uint16_t)~PS_ROW_SCAN;
    if (row->state == PS_ROW_PRESENT)
        ps_evict_keep(&ahead->store->evict[ahead->table->class_id], row, place);
}

static void submit(ahead_t *ahead)
{
    ps_store_t *store = ahead->store;
    ps_room_submit_writes(store);
    for (size_t k = 0; k < ahead->n_jobs; k++)
        (void)ps_store_submit_read(store, ahead->jobs[k], k + 1 < ahead->n_jobs);
}

size_t ps_store_prefetch(ps_store_t *store, uint16_t number, const uint64_t *ids,
                         const uint64_t *hashes, size_t n)
{
    ahead_t ahead = {.store = store, .table = ps_store_find_table(store, number)};
    if (ahead.table == NULL || store->failure.code != PSC_OK || ahead.table->cold_empty)
        return n;
    if (ps_io_submitted(store->io) - ps_io_finished(store->io) > MAX_JOBS ||
        ps_store_settle_held(store, NULL) != PSC_OK)
        return 0;
    uint32_t class_id = ahead.table->class_id;
    size_t room = ps_evict_ahead_room(store->slab, class_id, &store->evict[class_id]);
    size_t done = 0;
    for (; done < n && room > 0; done++) {
        ps_place_t place = ps_index_find(ahead.table->index, ids[done], hashes[done]);
        if (place == 0 && !fetch(&ahead, ids[done], hashes[done]))
            break;
        if (place != 0)
            keep(&ahead, place);
        room--;
    }
    submit(&ahead);
    return done;
}

void ps_store_prefetch_lapse(ps_store_t *store, uint16_t number, size_t n)
{
    const ps_store_table_t *table = ps_store_find_table(store, number);
    if (table != NULL)
        ps_evict_lapse(store->slab, table->class_id, &store->evict[table->class_id], n);
}

size_t ps_store_peek(ps_store_t *store, uint16_t number, const uint64_t *ids,
                     const uint64_t *hashes, size_t n, ps_place_t *places_out, uint8_t *late_out)
{
    const ps_store_table_t *table = ps_store_find_table(store, number);
    size_t n_late = 0;
    if (table == NULL)
        return 0;
    (void)ps_index_find_batch(table->index, ids, hashes, n, places_out);
    for (size_t i = 0; i < n; i++) {
        ps_row_header_t *row = ps_store_row(store->base, places_out[i]);
        bool known = places_out[i] != 0 && row->state != PS_ROW_LOADING;
        late_out[i] = !known && (places_out[i] != 0 || !table->cold_empty);
        n_late += late_out[i];
        if (known && row->state == PS_ROW_PRESENT)
            ps_evict_touch(row);
        else
            places_out[i] = 0;
    }
    return n_late;
}
