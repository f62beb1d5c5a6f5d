/*
 * A walk in key order over rows that lie in two places and move between them.
 *
 * The cold tier is sorted; rows in memory are not, and there is no memory to sort them all. So the
 * walk goes in windows: a pass over the slab keeps the smallest keys that lie ahead, as many as fit
 * into a heap (the largest on top, so that a smaller key replaces it). The window ends behind the
 * largest key kept; all rows in memory below that end are in the heap. Then the heap is turned
 * round and gives the window's rows smallest first, PIECE at a time, and for each piece the I/O
 * thread reads the heads of the cold tier's rows in the same range. With H rows in memory and a
 * heap of C a sweep makes about H / C passes; C is 1/2048 of the memory in bytes, so that rows of
 * 256 bytes need 8 passes at most.
 *
 * Nothing is missed, because of the order of jobs. Headers of a piece's rows in memory are copied
 * when its read is submitted: a row that is not in memory then is in the cold tier by the jobs
 * before it. A row that was in memory and is not any more when the read comes back was copied, and
 * the copy is at least as new as what the read saw. A row that was loaded meanwhile is found by the
 * read and looked up again. A row that is loaded during a pass, behind its hand, is in the cold
 * tier as well; only rows made during the pass can escape it.
 *
 * Given once: both lists of a piece are sorted and are merged; the next piece begins behind the
 * last key.
 *
 * Owner thread only; the job's memory is the I/O thread's while it is under way.
 */
#include "ps/store/sweep.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/slots.h"
#include "ps/store/cut.h"
#include "ps/store/room.h"

#include <string.h>

#define PIECE 256
#define WALK_RECORDS 4096
#define MIN_HEAP 1024
#define MAX_HEAP 65536
#define HEAP_SHARE 128 /* of the memory */

typedef struct row_key {
    uint64_t id;
    uint32_t slot;
} row_key_t;

typedef enum phase {
    PHASE_WALK,  /* over the slab */
    PHASE_PIECE, /* the next piece can be asked for */
    PHASE_READ,  /* its job is under way */
    PHASE_END,
} phase_t;

struct ps_store_scan {
    ps_store_t *store;
    const ps_store_table_t *table;
    uint64_t reserved_bytes;
    phase_t phase;
    bool closed;      /* freed when its job comes back */
    row_key_t next;   /* the first key not given yet */
    row_key_t window; /* the first key behind the window */
    row_key_t end;    /* of all */
    uint32_t page;    /* the walk's hand */
    uint32_t record;  /* in it */
    row_key_t *heap;  /* [capacity] */
    size_t n, capacity;
    bool overflowed; /* keys had to be left out of the heap */
    row_key_t piece_end;
    ps_io_job_t job;
    ps_cold_scan_t cold;
    size_t n_hot;
    ps_row_header_t *hot;    /* [PIECE] in order, as of the submission of the job */
    ps_row_header_t *heads;  /* [PIECE] of the cold tier */
    ps_row_header_t *merged; /* [2 * PIECE] */
};

static int compare(row_key_t a, row_key_t b)
{
    if (a.slot != b.slot)
        return a.slot < b.slot ? -1 : 1;
    return a.id < b.id ? -1 : a.id > b.id;
}

static row_key_t after(row_key_t key)
{
    row_key_t next = {.id = key.id + 1, .slot = key.slot + (key.id == UINT64_MAX)};
    return next;
}

static row_key_t key_of(const ps_row_header_t *row)
{
    uint64_t hash = psc_row_hash(row->table, row->id);
    return (row_key_t){.id = row->id, .slot = psc_slot_of_hash(hash)};
}

/* ---- the heap: sign 1 keeps the largest key on top, -1 the smallest ---- */

static void sift_down(row_key_t *heap, size_t n, size_t at, int sign)
{
    row_key_t key = heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && sign * compare(heap[child + 1], heap[child]) > 0)
            child++;
        if (sign * compare(heap[child], key) <= 0)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = key;
}

static void make_heap(row_key_t *heap, size_t n, int sign)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i, sign);
}

static row_key_t pop_smallest(ps_store_scan_t *scan)
{
    row_key_t key = scan->heap[0];
    scan->heap[0] = scan->heap[--scan->n];
    if (scan->n != 0)
        sift_down(scan->heap, scan->n, 0, -1);
    return key;
}

/* Keeps the smallest keys: once full, the heap has its largest key on top. */
static void keep_smallest(ps_store_scan_t *scan, row_key_t key)
{
    if (scan->n < scan->capacity) {
        scan->heap[scan->n++] = key;
        if (scan->n == scan->capacity)
            make_heap(scan->heap, scan->n, 1);
        return;
    }
    scan->overflowed = true;
    if (compare(key, scan->heap[0]) < 0) {
        scan->heap[0] = key;
        sift_down(scan->heap, scan->n, 0, 1);
    }
}

/* ---- a pass over the slab ---- */

static void begin_walk(ps_store_scan_t *scan)
{
    scan->phase = PHASE_WALK;
    scan->page = 1;
    scan->record = 0;
    scan->n = 0;
    scan->overflowed = false;
}

static void end_walk(ps_store_scan_t *scan)
{
    scan->window = scan->overflowed ? after(scan->heap[0]) : scan->end;
    make_heap(scan->heap, scan->n, -1);
    scan->n_hot = 0;
    scan->phase = PHASE_PIECE;
}

static void walk_page(ps_store_scan_t *scan, uint32_t n_records)
{
    const ps_store_t *store = scan->store;
    for (; scan->record < n_records; scan->record++) {
        const ps_row_header_t *row =
            ps_store_row(store->base, ps_slab_page_place(store->slab, scan->page, scan->record));
        if (row->state != PS_ROW_PRESENT || row->table != scan->table->number)
            continue;
        row_key_t key = key_of(row);
        if (compare(key, scan->next) >= 0 && compare(key, scan->end) < 0)
            keep_smallest(scan, key);
    }
}

static void walk(ps_store_scan_t *scan)
{
    const ps_slab_t *slab = scan->store->slab;
    for (uint32_t looked = 0; looked < WALK_RECORDS; looked++) {
        if (scan->page >= ps_slab_end_page(slab)) {
            end_walk(scan);
            return;
        }
        if (ps_slab_page_class(slab, scan->page) == scan->table->class_id) {
            uint32_t n_records = ps_slab_page_records(slab, scan->page);
            looked += n_records - (scan->record < n_records ? scan->record : n_records);
            walk_page(scan, n_records);
        }
        scan->page++;
        scan->record = 0;
    }
}

/* ---- pieces ---- */

/* The row of this key, if it is in memory. */
static const ps_row_header_t *find_hot(const ps_store_scan_t *scan, uint64_t id)
{
    const ps_store_table_t *table = scan->table;
    ps_place_t place = ps_index_find(table->index, id, psc_row_hash(table->number, id));
    const ps_row_header_t *row = ps_store_row(scan->store->base, place);
    return place != 0 && row->state == PS_ROW_PRESENT ? row : NULL;
}

/* Copies the headers of the next rows in memory: those left of the last piece, then the heap's. */
static void copy_hot(ps_store_scan_t *scan)
{
    size_t n = 0;
    for (size_t i = 0; i < scan->n_hot; i++) {
        const ps_row_header_t *row = find_hot(scan, scan->hot[i].id);
        if (row != NULL)
            scan->hot[n++] = *row;
    }
    while (n < PIECE && scan->n != 0) {
        row_key_t key = pop_smallest(scan);
        const ps_row_header_t *row = find_hot(scan, key.id);
        bool again = n != 0 && scan->hot[n - 1].id == key.id; /* walked past twice */
        if (row != NULL && !again)
            scan->hot[n++] = *row;
    }
    scan->n_hot = n;
    scan->piece_end = scan->n != 0 ? scan->heap[0] : scan->window;
}

static void begin_piece(ps_store_scan_t *scan)
{
    ps_store_t *store = scan->store;
    copy_hot(scan);
    scan->cold.n = 0;
    scan->cold.end = true;
    scan->phase = PHASE_READ;
    if (scan->table->cold_empty)
        return;
    uint16_t number = scan->table->number;
    ps_cold_key(scan->cold.from, number, scan->next.slot, scan->next.id);
    ps_cold_key(scan->cold.to, number, scan->piece_end.slot, scan->piece_end.id);
    scan->cold.heads = (uint8_t *)scan->heads;
    scan->cold.head_bytes = sizeof(ps_row_header_t);
    scan->cold.max = PIECE;
    ps_room_submit_writes(store); /* rows that left memory before are seen */
    scan->job.kind = PS_IO_SCAN;
    scan->job.scan = &scan->cold;
    scan->job.n = 0;
    (void)ps_io_submit(store->io, &scan->job);
}

static psc_status_t check_heads(ps_store_scan_t *scan, psc_error_t *error)
{
    row_key_t last = scan->next;
    for (size_t i = 0; i < scan->cold.n; i++) {
        const ps_row_header_t *row = &scan->heads[i];
        row_key_t key = key_of(row);
        if (row->table == scan->table->number && row->state == PS_ROW_PRESENT &&
            compare(key, last) >= 0 && compare(key, scan->piece_end) < 0) {
            last = after(key);
            continue;
        }
        scan->store->failure = (psc_error_t)PSC_ERROR_INIT;
        (void)psc_error_set(&scan->store->failure, PSC_CORRUPT,
                            "the %s tier holds row %llu of table %u where another should be",
                            scan->store->cold->ops->name, (unsigned long long)row->id,
                            (unsigned)row->table);
        scan->store->failure.id = row->id;
        return ps_store_failed(scan->store, error);
    }
    return PSC_OK;
}

/* Merges what memory and the cold tier have, as far as both are known. */
static void merge(ps_store_scan_t *scan, ps_store_piece_t *piece)
{
    row_key_t until = scan->piece_end;
    if (!scan->cold.end && scan->cold.n != 0)
        until = after(key_of(&scan->heads[scan->cold.n - 1]));
    size_t n = 0, h = 0, c = 0;
    for (;;) {
        const ps_row_header_t *hot = h < scan->n_hot ? &scan->hot[h] : NULL;
        const ps_row_header_t *cold = c < scan->cold.n ? &scan->heads[c] : NULL;
        if (hot != NULL && compare(key_of(hot), until) >= 0)
            hot = NULL;
        if (hot == NULL && cold == NULL)
            break;
        int order = hot == NULL ? 1 : cold == NULL ? -1 : compare(key_of(hot), key_of(cold));
        const ps_row_header_t *row = order <= 0 ? hot : cold;
        h += order <= 0;
        c += order >= 0;
        const ps_row_header_t *now = find_hot(scan, row->id);
        scan->merged[n++] = now != NULL ? *now : *row;
    }
    scan->n_hot -= h;
    if (scan->hot != NULL)
        memmove(scan->hot, scan->hot + h, scan->n_hot * sizeof *scan->hot);
    scan->next = until;
    piece->rows = scan->merged;
    piece->n = n;
    if (compare(until, scan->window) < 0)
        scan->phase = PHASE_PIECE;
    else if (compare(until, scan->end) < 0)
        begin_walk(scan);
    else
        scan->phase = PHASE_END;
}

psc_status_t ps_store_scan_next(ps_store_scan_t *scan, ps_store_piece_t *piece_out,
                                psc_error_t *error)
{
    if (scan->store->failure.code != PSC_OK)
        return ps_store_failed(scan->store, error);
    ps_store_piece_t piece = {.rows = scan->merged};
    if (scan->phase == PHASE_WALK)
        walk(scan);
    if (scan->phase == PHASE_PIECE)
        begin_piece(scan);
    if (scan->phase == PHASE_READ) {
        if (scan->job.under_way)
            return psc_error_set(error, PSC_BUSY, "a scan of table %u waits for the disk",
                                 (unsigned)scan->table->number);
        psc_status_t st = check_heads(scan, error);
        if (st != PSC_OK)
            return st;
        merge(scan, &piece);
    }
    piece.end = scan->phase == PHASE_END;
    *piece_out = piece;
    return PSC_OK;
}

/* ---- open, close ---- */

static psc_status_t allocate(ps_store_scan_t *scan, psc_error_t *error)
{
    uint64_t capacity = scan->store->memory_bytes / HEAP_SHARE / sizeof(row_key_t);
    scan->capacity = (size_t)(capacity < MIN_HEAP   ? MIN_HEAP
                              : capacity > MAX_HEAP ? MAX_HEAP
                                                    : capacity);
    uint64_t bytes =
        sizeof *scan + scan->capacity * sizeof(row_key_t) + 4 * PIECE * sizeof(ps_row_header_t);
    psc_status_t st = ps_store_reserve_memory(scan->store, bytes, error);
    if (st != PSC_OK)
        return st;
    scan->reserved_bytes = bytes;
    scan->heap = psc_alloc_array(scan->capacity, sizeof *scan->heap);
    scan->hot = psc_alloc_array(PIECE, sizeof *scan->hot);
    scan->heads = psc_alloc_array(PIECE, sizeof *scan->heads);
    scan->merged = psc_alloc_array(2 * PIECE, sizeof *scan->merged);
    if (scan->heap == NULL || scan->hot == NULL || scan->heads == NULL || scan->merged == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a scan of table %u",
                             (unsigned)scan->table->number);
    return PSC_OK;
}

psc_status_t ps_store_scan_open(ps_store_t *store, uint16_t number, uint32_t first_slot,
                                uint32_t end_slot, ps_store_scan_t **scan_out, psc_error_t *error)
{
    const ps_store_table_t *table = ps_store_find_table(store, number);
    if (table == NULL || first_slot > end_slot || end_slot > PSC_SLOT_COUNT)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "slots %u to %u of table %u do not exist",
                             (unsigned)first_slot, (unsigned)end_slot, (unsigned)number);
    if (store->scan != NULL)
        return psc_error_set(error, PSC_BUSY, "another scan is open");
    ps_store_scan_t *scan = psc_alloc_zeroed(1, sizeof *scan);
    if (scan == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a scan of table %u",
                             (unsigned)number);
    scan->store = store;
    scan->table = table;
    scan->next = (row_key_t){.slot = first_slot};
    scan->end = (row_key_t){.slot = end_slot};
    psc_status_t st = allocate(scan, error);
    if (st != PSC_OK) {
        ps_store_scan_destroy(scan);
        return st;
    }
    begin_walk(scan);
    if (first_slot == end_slot)
        scan->phase = PHASE_END;
    store->scan = scan;
    *scan_out = scan;
    return PSC_OK;
}

void ps_store_scan_close(ps_store_scan_t *scan)
{
    if (scan == NULL)
        return;
    scan->closed = true;
    if (scan->job.under_way)
        return; /* until its job comes back */
    scan->store->scan = NULL;
    ps_store_scan_destroy(scan);
}

void ps_store_scan_finish(ps_store_t *store)
{
    if (store->scan->closed)
        ps_store_scan_close(store->scan);
}

void ps_store_scan_destroy(ps_store_scan_t *scan)
{
    if (scan == NULL)
        return;
    ps_store_unreserve_memory(scan->store, scan->reserved_bytes);
    psc_free(scan->heap);
    psc_free(scan->hot);
    psc_free(scan->heads);
    psc_free(scan->merged);
    psc_free(scan);
}

/* ---- erasing ---- */

psc_status_t ps_store_erase(ps_store_t *store, ps_batch_t *batch, psc_error_t *error)
{
    PSC_BUG_ON(batch->mode != PS_BATCH_WRITE);
    if (store->failure.code != PSC_OK)
        return ps_store_failed(store, error);
    const ps_store_table_t *table = ps_store_find_table(store, batch->table);
    psc_status_t st = ps_store_settle_held(store, error); /* it may have some of these rows */
    if (st == PSC_OK)
        st = ps_store_cut_keep(store, batch, error);
    for (size_t i = 0; st == PSC_OK && i < batch->n; i++) {
        ps_row_header_t *row = ps_store_row(store->base, batch->places[i]);
        if (row->state != PS_ROW_PRESENT)
            continue; /* absent, or the same id once more */
        if (!table->cold_empty && !ps_room_remove_cold(store, row)) {
            st = psc_error_set(error, PSC_BUSY, "all write jobs are under way");
            break;
        }
        uint16_t pins = row->pins;
        uint8_t policy = row->policy;
        ps_share_reset_row(row, row->id, table->number, PS_ROW_ABSENT);
        row->pins = pins;
        row->policy = policy;
        store->counters.erased++;
    }
    ps_room_submit_writes(store);
    return st;
}
