/*
 * The store: batches over the slab, the indexes, the eviction policy and the I/O thread.
 *
 * Memory. The budget M is divided at open (layout_of), page = M/128 as a power of two, 64 KiB to 2
 * MiB:
 *
 *     cold tier     ps_cold_rocks_memory(M): M/8, 3 MiB to 1 GiB
 *     write-back    4 jobs of a page, the thread's buffer of a page, RocksDB's copy of one job, and
 *                   their entries: ps_io_memory() + page
 *     reads         M / 512 KiB jobs (16 to 64) of 512 rows, in ps_io_memory() too
 *     bookkeeping   128 KiB + M/1024: page descriptors (44 bytes a page), tables, queues
 *     rows          the rest, less what is reserved: pages cost page + PS_STORE_ROW_BYTES for
 *                   each record in them
 *
 * For M = 8 MiB that leaves 4.2 MiB for rows. Nothing here allocates while batches are prepared,
 * except the index and the eviction policy, whose growth is within what the pages are charged.
 *
 * Rows. FREE -> LOADING (job under way) -> PRESENT or ABSENT; or FREE -> ABSENT when it is known
 * that the cold tier has nothing. ABSENT rows are in the index, so that several waiting batches
 * share one; they turn PRESENT by ps_store_mark_new and are freed when the last pin goes. Only
 * PRESENT rows without pins are evicted. While LOADING, header.flags holds the low bits of the
 * job's number above PS_ROW_SCAN.
 *
 * Pins. A batch that needs no I/O and no eviction does not pin: nothing can move until the next
 * prepare, and that one pins the rows of such a batch (`held`) before it does anything. So the
 * common case, all rows in memory, used at once, writes to no header. Others pin once per
 * occurrence of an id.
 *
 * No deadlock. A batch takes at most 1/8 of the rows' memory (or 64 rows), and what it needs of
 * jobs is at most half of all. BUSY undoes everything but evictions. With no other batch holding
 * pins, all pages of other tables and all rows of its own can go, after one round of I/O at most
 * for each write job's worth of rows: a batch alone succeeds after a bounded number of tries. The
 * share is for several at a time; smaller pieces would share fewer blocks of the cold tier.
 *
 * Failure: the first error of the I/O thread is kept and returned by every later call.
 * Threads: one owner. Cost of a hit: two prefetched cache misses.
 */
#include "ps/store/store.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/slots.h"
#include "ps/store/cut.h"
#include "ps/store/find.h"
#include "ps/store/room.h"
#include "ps/store/share.h"
#include "ps/store/sweep.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define MAX_BATCH 8192
#define BATCH_SHARE 8
#define WRITE_JOBS 4
/* A full region and its index: what places can tell apart. More memory is left unused. */
#define ROWS_MAX (PS_SLAB_MAX_REGION + PS_SLAB_MAX_REGION / 4)

/* Numbers of read jobs in the flags of LOADING rows. */
#define JOB_MASK ((UINT64_C(1) << (16 - PS_STORE_JOB_SHIFT)) - 1)

ps_store_layout_t ps_store_layout_of(uint64_t memory_bytes)
{
    ps_store_layout_t layout = {.page_bytes = 64 << 10, .n_write_jobs = WRITE_JOBS};
    while (layout.page_bytes < 2 * MIB && layout.page_bytes * 2 <= memory_bytes / 128)
        layout.page_bytes *= 2;
    uint64_t n_reads = 2 * memory_bytes / MIB;
    layout.n_read_jobs = n_reads < 16 ? 16 : n_reads > 64 ? 64 : (size_t)n_reads;
    uint64_t taken = ps_cold_rocks_memory(memory_bytes) + layout.page_bytes +
                     ps_io_memory(layout.n_read_jobs, layout.n_write_jobs, layout.page_bytes) +
                     (128 << 10) + memory_bytes / 1024;
    layout.rows_bytes = memory_bytes - taken;
    if (layout.rows_bytes > ROWS_MAX)
        layout.rows_bytes = ROWS_MAX;
    return layout;
}

uint64_t ps_store_rows_bytes(const ps_store_t *store)
{
    return store->layout.rows_bytes - store->reserved_bytes;
}

/* ---- open, tables ---- */

static void destroy_parts(ps_store_t *store)
{
    ps_io_stop(store->io);
    ps_store_scan_destroy(store->scan);
    ps_cut_destroy(store);
    for (uint32_t i = 0; i < store->n_tables; i++) {
        if (store->tables[i] != NULL)
            ps_index_destroy(store->tables[i]->index);
        psc_free(store->tables[i]);
    }
    psc_free(store->tables);
    for (uint32_t i = 0; i < store->n_evict; i++)
        ps_evict_clear(&store->evict[i]);
    psc_free(store->evict);
    psc_shared_destroy(&store->shared);
    ps_slab_destroy(store->slab);
    psc_free(store);
}

psc_status_t ps_store_open(const ps_store_options_t *options, ps_store_t **store_out,
                           psc_error_t *error)
{
    if (options->memory_bytes < PS_STORE_MIN_MEMORY)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "memory of %llu bytes is too little: at least %llu are needed",
                             (unsigned long long)options->memory_bytes,
                             (unsigned long long)PS_STORE_MIN_MEMORY);
    ps_store_t *store = psc_alloc_zeroed(1, sizeof *store);
    if (store == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a store");
    store->memory_bytes = options->memory_bytes;
    store->layout = ps_store_layout_of(options->memory_bytes);
    store->cold = options->cold;
    store->failure = (psc_error_t)PSC_ERROR_INIT;
    psc_status_t st = ps_slab_create(store->layout.rows_bytes, store->layout.page_bytes,
                                     PS_STORE_ROW_BYTES, &store->slab, error);
    if (st == PSC_OK) {
        store->base = ps_slab_base(store->slab);
        ps_io_options_t io = {.cold = options->cold,
                              .base = store->base,
                              .n_read_jobs = store->layout.n_read_jobs,
                              .n_write_jobs = store->layout.n_write_jobs,
                              .job_bytes = store->layout.page_bytes,
                              .wake = options->wake,
                              .wake_context = options->wake_context};
        st = ps_io_start(&io, &store->io, error);
    }
    if (st != PSC_OK) {
        destroy_parts(store);
        return st;
    }
    *store_out = store;
    return PSC_OK;
}

size_t ps_store_capacity_of(const ps_store_layout_t *layout, size_t record_bytes)
{
    if (record_bytes > layout->page_bytes)
        return 0;
    return ps_slab_capacity(layout->rows_bytes, layout->page_bytes, PS_STORE_ROW_BYTES,
                            record_bytes);
}

static psc_status_t refuse_size(const ps_store_t *store, uint16_t number, size_t row_bytes,
                                psc_error_t *error)
{
    size_t record_bytes = ps_store_record_bytes(row_bytes);
    for (uint64_t memory = 2 * store->memory_bytes; memory < (uint64_t)1 << 40; memory *= 2) {
        ps_store_layout_t layout = ps_store_layout_of(memory);
        layout.rows_bytes -= store->reserved_bytes;
        if (ps_store_capacity_of(&layout, record_bytes) >= PS_STORE_MIN_ROWS)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "table %u: %d rows of %zu bytes do not fit into a memory of %llu "
                                 "bytes; %llu would do",
                                 (unsigned)number, PS_STORE_MIN_ROWS, row_bytes,
                                 (unsigned long long)store->memory_bytes,
                                 (unsigned long long)memory);
    }
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "table %u: rows of %zu bytes are too large",
                         (unsigned)number, row_bytes);
}

/* Room in the arrays for this table and one more class. */
static bool grow_arrays(ps_store_t *store, uint16_t number)
{
    if (number >= store->n_tables) {
        ps_store_table_t **tables =
            psc_realloc_array(store->tables, (size_t)number + 1, sizeof(ps_store_table_t *));
        if (tables == NULL)
            return false;
        memset(tables + store->n_tables, 0,
               ((size_t)number + 1 - store->n_tables) * sizeof(ps_store_table_t *));
        store->tables = tables;
        store->n_tables = (uint32_t)number + 1;
    }
    if (ps_slab_n_classes(store->slab) == store->n_evict) {
        uint32_t n = store->n_evict + 1;
        ps_evict_class_t *classes = psc_realloc_array(store->evict, n, sizeof *classes);
        if (classes == NULL)
            return false;
        memset(&classes[n - 1], 0, sizeof *classes);
        store->evict = classes;
        store->n_evict = n;
    }
    return true;
}

static size_t max_batch_of(const ps_store_layout_t *layout, size_t capacity)
{
    size_t n = capacity / BATCH_SHARE;
    size_t n_reads = layout->n_read_jobs * PS_IO_JOB_READS / 2;
    n = n > MAX_BATCH ? MAX_BATCH : n;
    n = n > n_reads ? n_reads : n;
    return n < PS_STORE_MIN_ROWS ? PS_STORE_MIN_ROWS : n;
}

psc_status_t ps_store_table_add(ps_store_t *store, uint16_t number, size_t row_bytes,
                                psc_error_t *error)
{
    if (number < store->n_tables && store->tables[number] != NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "table %u exists in the store already",
                             (unsigned)number);
    size_t capacity = 0;
    ps_store_layout_t layout = store->layout;
    layout.rows_bytes = ps_store_rows_bytes(store);
    if (row_bytes <= layout.page_bytes)
        capacity = ps_store_capacity_of(&layout, ps_store_record_bytes(row_bytes));
    if (capacity < PS_STORE_MIN_ROWS)
        return refuse_size(store, number, row_bytes, error);
    if (!grow_arrays(store, number))
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for table %u", (unsigned)number);
    ps_store_table_t *table = psc_alloc_zeroed(1, sizeof *table);
    if (table == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for table %u", (unsigned)number);
    table->number = number;
    table->cold_empty = store->cold->was_empty;
    table->value_bytes = sizeof(ps_row_header_t) + row_bytes;
    table->max_batch = max_batch_of(&layout, capacity);
    psc_status_t st =
        ps_slab_class(store->slab, ps_store_record_bytes(row_bytes), &table->class_id, error);
    if (st == PSC_OK)
        st = ps_index_create(number, store->base, &table->index, error);
    if (st != PSC_OK) {
        psc_free(table);
        return st;
    }
    store->tables[number] = table;
    return PSC_OK;
}

ps_store_table_t *ps_store_find_table(const ps_store_t *store, uint16_t number)
{
    return number < store->n_tables ? store->tables[number] : NULL;
}

size_t ps_store_max_batch(const ps_store_t *store, uint16_t table)
{
    const ps_store_table_t *found = ps_store_find_table(store, table);
    return found != NULL ? found->max_batch : 0;
}

uint8_t *ps_store_base(const ps_store_t *store)
{
    return store->base;
}

/* ---- pins ---- */

psc_status_t ps_store_failed(const ps_store_t *store, psc_error_t *error)
{
    if (error != NULL)
        *error = store->failure;
    return store->failure.code;
}

static bool pin(ps_row_header_t *row)
{
    if (row->pins == UINT16_MAX)
        return false;
    row->pins++;
    return true;
}

/* A row without pins: goes if nobody made it, or if scans alone wanted it. */
static void drop_unwanted(ps_store_t *store, ps_place_t place)
{
    ps_row_header_t *row = ps_store_row(store->base, place);
    bool unwanted = row->state == PS_ROW_ABSENT;
    if (row->state == PS_ROW_PRESENT && (row->flags & PS_ROW_SCAN) != 0) {
        row->flags &= (uint16_t)~PS_ROW_SCAN;
        unwanted = (row->flags & PS_ROW_DIRTY) == 0;
    }
    if (unwanted)
        ps_room_drop(store, place);
}

/* Takes a pin off, if there are any. */
static void let_go(ps_store_t *store, ps_place_t place, bool pinned)
{
    ps_row_header_t *row = ps_store_row(store->base, place);
    if (pinned) {
        PSC_BUG_ON(row->pins == 0);
        row->pins--;
    }
    if (row->pins == 0)
        drop_unwanted(store, place);
}

static psc_status_t too_many_pins(psc_error_t *error)
{
    return psc_error_set(error, PSC_BUSY, "a row is in use by too many requests");
}

/* Pins the rows of the last batch, if they are not yet: from now on rows may move. */
psc_status_t ps_store_settle_held(ps_store_t *store, psc_error_t *error)
{
    const ps_place_t *places = store->held.places;
    for (size_t i = 0; i < store->held.n; i++) {
        if (places[i] == 0 || pin(ps_store_row(store->base, places[i])))
            continue;
        while (i-- > 0)
            if (places[i] != 0)
                ps_store_row(store->base, places[i])->pins--;
        return too_many_pins(error);
    }
    store->held = (ps_store_held_t){0};
    return PSC_OK;
}

/* ---- prepare ---- */

static uint64_t job_of(const ps_store_t *store, const ps_row_header_t *loading)
{
    uint64_t finished = ps_io_finished(store->io);
    return finished + ((((uint64_t)loading->flags >> PS_STORE_JOB_SHIFT) - finished) & JOB_MASK);
}

static psc_status_t pin_found(ps_store_t *store, ps_batch_t *batch, psc_error_t *error)
{
    for (size_t i = 0; i < batch->n; i++) {
        if (batch->places[i] == 0)
            continue;
        ps_row_header_t *row = ps_store_row(store->base, batch->places[i]);
        if (!pin(row)) {
            memset(batch->places + i, 0, (batch->n - i) * sizeof *batch->places);
            return too_many_pins(error);
        }
        if (row->state == PS_ROW_LOADING && job_of(store, row) > batch->ticket)
            batch->ticket = job_of(store, row);
    }
    return PSC_OK;
}

static bool add_read(ps_store_t *store, const ps_store_table_t *table, ps_place_t place,
                     uint64_t hash)
{
    uint32_t slot = psc_slot_of_hash(hash);
    if (store->read_jobs != NULL && ps_io_add_read(store->read_jobs, place, slot))
        return true;
    ps_io_job_t *job = ps_io_read_job(store->io);
    if (job == NULL)
        return false;
    job->record_bytes = table->value_bytes;
    job->next_free = store->read_jobs;
    store->read_jobs = job;
    return ps_io_add_read(job, place, slot);
}

/* A record for row i of the batch, which is not in memory; it is absent until its read is
   submitted. */
static psc_status_t create_row(ps_store_t *store, const ps_store_table_t *table, ps_batch_t *batch,
                               size_t i, bool load, psc_error_t *error)
{
    uint64_t hash = batch->hashes[i];
    ps_place_t place;
    psc_status_t st = ps_room_take(store, table, &place, error);
    if (st != PSC_OK)
        return st;
    ps_row_header_t *row = ps_store_row(store->base, place);
    ps_share_reset_row(row, batch->ids[i], table->number, load ? PS_ROW_LOADING : PS_ROW_ABSENT);
    row->pins = batch->pinned ? 1 : 0;
    row->flags = batch->scan ? PS_ROW_SCAN : 0;
    if (!batch->scan)
        ps_evict_admit(&store->evict[table->class_id], row, place, hash);
    st = ps_index_insert(table->index, hash, place, error);
    if (st != PSC_OK) {
        ps_slab_give(store->slab, place);
        return st;
    }
    if (load && !add_read(store, table, place, hash)) {
        ps_room_drop(store, place);
        return psc_error_set(error, PSC_BUSY, "too many rows are being read");
    }
    batch->places[i] = place;
    return PSC_OK;
}

/* Rows for all ids that have none, where this batch needs one. */
static psc_status_t create_missing(ps_store_t *store, const ps_store_table_t *table,
                                   ps_batch_t *batch, bool load, psc_error_t *error)
{
    if (batch->mode == PS_BATCH_READ && !load)
        return PSC_OK;
    for (size_t i = 0; i < batch->n; i++) {
        if (batch->places[i] != 0)
            continue;
        /* Made for the same id earlier in this batch? */
        ps_place_t place = ps_index_find(table->index, batch->ids[i], batch->hashes[i]);
        if (place == 0) {
            psc_status_t st = create_row(store, table, batch, i, load, error);
            if (st != PSC_OK)
                return st;
            continue;
        }
        ps_row_header_t *row = ps_store_row(store->base, place);
        if (batch->mode == PS_BATCH_READ && row->state == PS_ROW_ABSENT)
            continue; /* of another batch, and taken out when it was found */
        if (batch->pinned && !pin(row))
            return too_many_pins(error);
        batch->places[i] = place;
    }
    return PSC_OK;
}

/* Undoes what was done for a batch, evictions excepted. */
static void undo(ps_store_t *store, ps_batch_t *batch)
{
    while (store->read_jobs != NULL) {
        ps_io_job_t *job = store->read_jobs;
        store->read_jobs = job->next_free;
        for (size_t i = 0; i < job->n; i++)
            ps_store_set_state(ps_store_row(store->base, job->reads[i].place), PS_ROW_ABSENT);
        ps_io_put(store->io, job);
    }
    for (size_t i = 0; i < batch->n; i++)
        if (batch->places[i] != 0)
            let_go(store, batch->places[i], batch->pinned);
    memset(batch->places, 0, batch->n * sizeof *batch->places);
    batch->pinned = false;
    batch->ticket = 0;
}

uint64_t ps_store_submit_read(ps_store_t *store, ps_io_job_t *job, bool more)
{
    uint64_t number = ps_io_submitted(store->io) + 1;
    for (size_t i = 0; i < job->n; i++)
        ps_store_row(store->base, job->reads[i].place)->flags |=
            (uint16_t)(number << PS_STORE_JOB_SHIFT);
    store->counters.cold_reads += job->n;
    job->more = more;
    return ps_io_submit(store->io, job);
}

static void submit_reads(ps_store_t *store, ps_batch_t *batch)
{
    while (store->read_jobs != NULL) {
        ps_io_job_t *job = store->read_jobs;
        store->read_jobs = job->next_free;
        batch->ticket = ps_store_submit_read(store, job, store->read_jobs != NULL);
    }
}

/* Prepares a batch that needs I/O, evictions or rows that others wait for. */
static psc_status_t prepare_pinned(ps_store_t *store, const ps_store_table_t *table,
                                   ps_batch_t *batch, psc_error_t *error)
{
    bool load = !table->cold_empty; /* as of now: what is evicted below is none of these rows */
    batch->pinned = true;
    psc_status_t st = pin_found(store, batch, error);
    if (st == PSC_OK)
        st = create_missing(store, table, batch, load, error);
    ps_room_submit_writes(store);
    if (st == PSC_OK)
        submit_reads(store, batch);
    else
        undo(store, batch);
    return st;
}

psc_status_t ps_store_prepare(ps_store_t *store, ps_batch_t *batch, psc_error_t *error)
{
    batch->pinned = false;
    batch->ticket = 0;
    if (store->failure.code != PSC_OK)
        return ps_store_failed(store, error);
    const ps_store_table_t *table = ps_store_find_table(store, batch->table);
    if (table == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "there is no table %u in the store",
                             (unsigned)batch->table);
    if (batch->n > table->max_batch)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %u: a batch of %zu rows is too large, at most %zu",
                             (unsigned)batch->table, batch->n, table->max_batch);
    psc_status_t st = ps_store_settle_held(store, error);
    if (st != PSC_OK)
        return st;
    ps_room_trim(store);
    bool must_pin;
    size_t n_missing = ps_find_rows(table, batch, &must_pin);
    if (n_missing != 0 && !must_pin)
        must_pin = !table->cold_empty ||
                   (batch->mode == PS_BATCH_WRITE && !ps_room_has(store, table, n_missing));
    if (must_pin) {
        st = prepare_pinned(store, table, batch, error);
    } else {
        st = n_missing != 0 ? create_missing(store, table, batch, false, error) : PSC_OK;
        if (st == PSC_OK)
            store->held = (ps_store_held_t){
                .places = batch->places, .n = batch->n, .any_new = n_missing != 0};
        else
            undo(store, batch);
    }
    if (st == PSC_OK) {
        store->counters.misses += n_missing;
        store->counters.hits += batch->n - n_missing;
    }
    return st;
}

bool ps_store_ready(ps_store_t *store, ps_batch_t *batch)
{
    if (store->failure.code != PSC_OK || ps_io_finished(store->io) < batch->ticket)
        return false;
    if (batch->ticket == 0)
        return true;
    batch->ticket = 0;
    for (size_t i = 0; i < batch->n && batch->mode == PS_BATCH_READ; i++) {
        ps_place_t place = batch->places[i];
        if (place == 0 || ps_store_row(store->base, place)->state != PS_ROW_ABSENT)
            continue;
        let_go(store, place, true);
        batch->places[i] = 0;
    }
    return true;
}

void ps_store_release(ps_store_t *store, ps_batch_t *batch)
{
    /* A batch that was not pinned by prepare was pinned by the next one, unless it is `held` still.
     */
    bool held = store->held.places == batch->places && batch->n != 0 && !batch->pinned;
    bool any_new = store->held.any_new;
    if (held)
        store->held = (ps_store_held_t){0};
    if (!held || (batch->mode == PS_BATCH_WRITE && any_new))
        for (size_t i = 0; i < batch->n; i++)
            if (batch->places[i] != 0)
                let_go(store, batch->places[i], !held);
    batch->pinned = false;
    batch->ticket = 0;
}

void ps_store_mark_begun(ps_store_t *store, ps_row_header_t *row)
{
    store->began_anew = true;
    ps_store_mark_dirty(row);
}

void ps_store_mark_new(ps_store_t *store, ps_row_header_t *row)
{
    PSC_BUG_ON(row->state != PS_ROW_ABSENT);
    ps_store_set_state(row, PS_ROW_PRESENT);
    ps_store_mark_dirty(row);
    store->counters.rows_new++;
}

/* ---- finished I/O, close ---- */

static void finish_reads(ps_store_t *store, const ps_io_job_t *job)
{
    for (size_t i = 0; i < job->n; i++) {
        ps_place_t place = job->reads[i].place;
        ps_row_header_t *row = ps_store_row(store->base, place);
        row->flags &= PS_ROW_SCAN;
        psc_shared_stamp(&row->push_seq, ps_share_load_serial(store));
        ps_store_set_state(row, job->reads[i].found ? PS_ROW_PRESENT : PS_ROW_ABSENT);
        store->counters.cold_found += job->reads[i].found;
        if (row->pins == 0)
            drop_unwanted(store, place);
    }
}

psc_status_t ps_store_poll(ps_store_t *store, bool *progress_out, psc_error_t *error)
{
    *progress_out = false;
    ps_io_job_t *job;
    while (store->failure.code == PSC_OK && (job = ps_io_next(store->io)) != NULL) {
        *progress_out = true;
        if (job->status != PSC_OK) {
            /* Its rows stay LOADING, or its data in the job: nothing is given up silently. */
            store->failure = *ps_io_error(store->io);
            break;
        }
        if (job->kind == PS_IO_SCAN) {
            ps_store_scan_finish(store);
            continue;
        }
        if (job->kind == PS_IO_SAVE) {
            ps_cut_finish(store);
            continue;
        }
        if (job->kind == PS_IO_READ)
            finish_reads(store, job);
        else
            store->counters.written_back += job->n;
        ps_io_put(store->io, job);
    }
    bool too_much = ps_slab_charged_bytes(store->slab) > ps_store_rows_bytes(store);
    if (too_much && store->failure.code == PSC_OK && ps_store_settle_held(store, NULL) == PSC_OK)
        ps_room_trim(store);
    return store->failure.code != PSC_OK ? ps_store_failed(store, error) : PSC_OK;
}

/* Waits until all that is under way came back. */
static psc_status_t drain(ps_store_t *store, psc_error_t *error)
{
    psc_status_t st;
    bool progress;
    while ((st = ps_store_poll(store, &progress, error)) == PSC_OK && !ps_io_idle(store->io))
        ps_io_wait(store->io);
    return st;
}

static psc_status_t write_page(ps_store_t *store, uint32_t page, psc_error_t *error)
{
    uint32_t n_records = ps_slab_page_records(store->slab, page);
    for (uint32_t i = 0; i < n_records; i++) {
        ps_row_header_t *row = ps_store_row(store->base, ps_slab_page_place(store->slab, page, i));
        if (row->state != PS_ROW_PRESENT || (row->flags & PS_ROW_DIRTY) == 0)
            continue;
        while (!ps_room_write_back(store, row)) {
            ps_io_wait(store->io);
            bool progress;
            psc_status_t st = ps_store_poll(store, &progress, error);
            if (st != PSC_OK)
                return st;
        }
        row->flags &= (uint16_t)~PS_ROW_DIRTY;
    }
    return PSC_OK;
}

static psc_status_t write_all(ps_store_t *store, psc_error_t *error)
{
    psc_status_t st = drain(store, error);
    for (uint32_t i = 0; st == PSC_OK && i < ps_slab_n_classes(store->slab); i++) {
        uint32_t page = ps_slab_first_page(store->slab, i);
        for (uint32_t n = ps_slab_n_pages(store->slab, i); st == PSC_OK && n > 0; n--) {
            st = write_page(store, page, error);
            page = ps_slab_next_page(store->slab, page);
        }
    }
    if (st != PSC_OK)
        return st;
    ps_room_submit_writes(store);
    st = ps_io_submit_sync(store->io, error);
    if (st == PSC_OK)
        st = drain(store, error);
    if (st == PSC_OK && ps_io_error(store->io)->code != PSC_OK) { /* of the sync */
        store->failure = *ps_io_error(store->io);
        st = ps_store_failed(store, error);
    }
    return st;
}

psc_status_t ps_store_close(ps_store_t *store, bool clean, psc_error_t *error)
{
    if (store == NULL)
        return PSC_OK;
    psc_status_t st = clean ? write_all(store, error) : PSC_OK;
    ps_cold_t *cold = store->cold;
    destroy_parts(store); /* the I/O thread ends before the tier that it uses */
    cold->ops->destroy(cold);
    return st;
}

void ps_store_counters(const ps_store_t *store, ps_store_counters_t *counters_out)
{
    *counters_out = store->counters;
    ps_io_stalls_t stalls = ps_io_stalls(store->io);
    counters_out->write_stalls = stalls.n;
    counters_out->write_stall_us = stalls.us;
    counters_out->rows_hot = 0;
    for (uint32_t i = 0; i < store->n_tables; i++)
        if (store->tables[i] != NULL)
            counters_out->rows_hot += ps_index_count(store->tables[i]->index);
    counters_out->bytes_hot = ps_slab_charged_bytes(store->slab);
    counters_out->bytes_budget = ps_store_rows_bytes(store);
}
