/*
 * The row store of one shard: rows as bytes, seen rows in memory under a budget, the rest in the
 * cold tier. It knows ids, never optimizers or tables' meaning.
 *
 * A batch is prepared (all its rows made resident, or known absent), used in place, and released:
 *
 *     st = ps_store_prepare(store, table, &batch, error);    // batch.ids, n, hashes, mode set
 *     if (st == PSC_BUSY)   park it; try again after ps_store_poll made progress
 *     if (!ps_store_ready(store, &batch))  park it until it is
 *     for i: row = ps_store_row(store, batch.places[i])      // NULL place: absent (READ only)
 *     ps_store_release(store, &batch);
 *
 * Between "ready" and release nothing moves. The owner thread never touches the disk: reads and
 * write-back run on the store's I/O thread, one job after another in the order of submission, so a
 * read that follows a write-back of the same row sees it. `wake` is called from the I/O thread when
 * ps_store_poll has something to do.
 *
 * Threads: one owner thread for everything here.
 */
#ifndef PS_STORE_STORE_H
#define PS_STORE_STORE_H

#include "common/shared_rows.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ps_store ps_store_t;

/* Where a row record is: its offset in the region in units of PS_PLACE_BYTES; 0: nowhere. */
typedef uint32_t ps_place_t;
#define PS_PLACE_BYTES 16u

#define PS_STORE_MIN_MEMORY ((uint64_t)8 << 20)

typedef enum ps_row_state {
    PS_ROW_FREE = 0,
    PS_ROW_PRESENT = 1,
    PS_ROW_LOADING = 2, /* the I/O thread is filling it */
    PS_ROW_ABSENT = 3,  /* looked up and not there; a place kept for a waiting batch */
} ps_row_state_t;

/* Flags of a row. */
#define PS_ROW_DIRTY 1u /* differs from the cold tier */
#define PS_ROW_SCAN 2u  /* in memory for scans alone so far: goes when the last of them ends */
#define PS_ROW_KEPT 4u  /* a cut (cut.h) has what the row was */
#define PS_ROW_SAVED 8u /* the last cut handed out the row as it is */

/* In front of every row's floats, in memory and on disk (little-endian). 32 bytes. */
typedef struct ps_row_header {
    uint64_t id;
    uint32_t version;  /* grows by one with every change of the row */
    uint32_t push_seq; /* serial number of the last pushed row that changed it, or of its load */
    uint32_t update_count; /* optimizer updates so far */
    uint32_t last_clock;   /* clock of the last push */
    uint16_t table;
    uint16_t pins;  /* batches that hold it; 0 on disk */
    uint8_t state;  /* ps_row_state_t */
    uint8_t policy; /* the eviction policy's */
    uint16_t flags;
} ps_row_header_t;

typedef void (*ps_wake_fn)(void *context);

struct ps_cold;

typedef struct ps_store_options {
    uint64_t memory_bytes; /* all of it: rows, index, RocksDB. At least PS_STORE_MIN_MEMORY */
    struct ps_cold *cold;  /* taken when open succeeds: destroyed by ps_store_close */
    ps_wake_fn wake;       /* may be NULL */
    void *wake_context;
} ps_store_options_t;

typedef enum ps_batch_mode {
    PS_BATCH_READ,  /* absent rows get place 0 */
    PS_BATCH_WRITE, /* absent rows get a new record with state ABSENT: the caller writes its floats
                       and calls ps_store_mark_new */
} ps_batch_mode_t;

/* Plain data, filled by the caller (upper part) and by prepare (lower part). */
typedef struct ps_batch {
    uint16_t table;
    ps_batch_mode_t mode;
    size_t n;
    const uint64_t *ids;    /* n, duplicates allowed */
    const uint64_t *hashes; /* n, psc_row_hash of each */
    ps_place_t *places;     /* n, caller's memory, borrowed until release */
    bool scan; /* the rows are needed once: what is loaded for this batch goes with its release,
                  unless it was changed or others want it too, and the policy learns nothing */
    bool away; /* copies of the rows will be read by another processor, and not here */

    bool pinned; /* rows are pinned: release must unpin; false: the store does so when it must */
    uint64_t ticket; /* ready once the store's finished I/O reaches it; 0: at once */
} ps_batch_t;

/* Errors: INVALID_ARGUMENT (memory below the minimum), NO_MEMORY, IO. Gives. */
PSC_MUST_CHECK psc_status_t ps_store_open(const ps_store_options_t *options, ps_store_t **store_out,
                                          psc_error_t *error);

/*
 * Writes all dirty rows back, waits for the I/O, closes the cold tier, frees. Frees in any case.
 * clean false: leaves unwritten what is dirty (after a failure). NULL is a no-op.
 * Errors: IO, DISK_FULL.
 */
PSC_MUST_CHECK psc_status_t ps_store_close(ps_store_t *store, bool clean, psc_error_t *error);

/*
 * Declares a table (number below 65,536) whose rows take row_bytes behind their header. Errors:
 * INVALID_ARGUMENT (exists; a batch of 64 rows would not fit into the budget: says how much memory
 * would do), NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_store_table_add(ps_store_t *store, uint16_t table, size_t row_bytes,
                                               psc_error_t *error);

/* Rows that one batch of this table may have at most, so that several batches fit at once. */
size_t ps_store_max_batch(const ps_store_t *store, uint16_t table);

/*
 * Looks up all rows of the batch, starts reading what is missing, makes room. Nothing is held on
 * error. "Absent" is as of this call: prepare a batch when it is its turn. BUSY passes by I/O and
 * by the release of other batches: who holds batches while he tries must be able to finish them
 * first. Errors: BUSY (no room now: try again after progress), IO, DISK_FULL, CORRUPT (the store
 * has failed; every later call says the same), INVALID_ARGUMENT (no such table, batch too large).
 */
PSC_MUST_CHECK psc_status_t ps_store_prepare(ps_store_t *store, ps_batch_t *batch,
                                             psc_error_t *error);

/*
 * Whether a prepared batch may be used. When a READ batch becomes ready, the places of rows that
 * the cold tier does not hold become 0. Never true once the store failed: see ps_store_poll.
 */
bool ps_store_ready(ps_store_t *store, ps_batch_t *batch);

/*
 * Ends the use of a prepared batch (ready or not). Absent places that were not made new are freed.
 * Releasing a batch that is not ready yet leaves its reads under way: a way to have rows fetched
 * early.
 */
void ps_store_release(ps_store_t *store, ps_batch_t *batch);

/*
 * Rows that will be asked for soon: starts reading those that are not in memory, and keeps those
 * that are until their next use, all within bounds: they displace no more than a tenth of the
 * table's rows, and reads of batches go first. Holds nothing, changes nothing. hashes [n]:
 * psc_row_hash. Returns how many of the ids, from the first on, were dealt with: the others may be
 * tried again after progress, or after rows that were prefetched before have been used.
 */
size_t ps_store_prefetch(ps_store_t *store, uint16_t table, const uint64_t *ids,
                         const uint64_t *hashes, size_t n);

/* The n rows of the table prefetched first that were not used yet are no longer waited for. */
void ps_store_prefetch_lapse(ps_store_t *store, uint16_t table, size_t n);

/*
 * Looks rows up and reads nothing: places_out [n] of those that are in memory, otherwise 0;
 * late_out [n] is 1 where the row may be on disk, or on its way. Nothing is held: places are good
 * until the next other call. Returns how many are late.
 */
size_t ps_store_peek(ps_store_t *store, uint16_t table, const uint64_t *ids, const uint64_t *hashes,
                     size_t n, ps_place_t *places_out, uint8_t *late_out);

/*
 * The short way to read rows that are all in memory: copies the first `bytes` behind the header of
 * each row of a batch (table, ids, hashes, n and scan are looked at) to out, one row behind the
 * other, as a READ batch that is prepared, used and released at once would. False: it takes that
 * long way, since a row is not in memory or the store has failed; out is undefined, and nothing
 * else happened but that the policy may have learnt of some rows. Takes no time but for the rows;
 * bytes: a multiple of 4, no more than rows of the table have.
 */
bool ps_store_copy_hot(ps_store_t *store, const ps_batch_t *batch, size_t bytes, void *out);

/*
 * Removes the rows of a ready WRITE batch, from memory and from the cold tier: they are ABSENT now,
 * as if they had never been, and go with the release unless they are made new. Errors: BUSY (some
 * may be removed already: call again after progress; needs no other batch to end); as prepare, once
 * the store failed.
 */
PSC_MUST_CHECK psc_status_t ps_store_erase(ps_store_t *store, ps_batch_t *batch,
                                           psc_error_t *error);

/*
 * Takes bytes off the rows' budget for something else that lives as long as they do, or gives them
 * back. Rows leave memory for it at the next calls of prepare and poll, not in this one. Errors:
 * INVALID_ARGUMENT (the tables that there are, or one with rows of 64 bytes, would not fit any
 * more; says what memory would do).
 */
PSC_MUST_CHECK psc_status_t ps_store_reserve_memory(ps_store_t *store, uint64_t bytes,
                                                    psc_error_t *error);
void ps_store_unreserve_memory(ps_store_t *store, uint64_t bytes);

/* Takes finished I/O; true when anything was finished. Errors: as prepare, once the store failed.
 */
PSC_MUST_CHECK psc_status_t ps_store_poll(ps_store_t *store, bool *progress_out,
                                          psc_error_t *error);

/* What a row takes of the region, header and rounding included: a multiple of PS_PLACE_BYTES. */
size_t ps_store_record_bytes(size_t row_bytes);

/* The region's first byte; ps_store_row is base + place * PS_PLACE_BYTES. */
uint8_t *ps_store_base(const ps_store_t *store);

static inline ps_row_header_t *ps_store_row(uint8_t *base, ps_place_t place)
{
    return (ps_row_header_t *)(void *)(base + (size_t)place * PS_PLACE_BYTES);
}

static inline float *ps_row_floats(ps_row_header_t *row)
{
    return (float *)(void *)(row + 1);
}

/* Serials of loads have this bit, those of pushes have not. */
#define PS_ROW_LOAD_SERIAL UINT32_C(0x80000000)

/*
 * The pushed row of this serial is about to change the row's values: to be called before, for each
 * row, between psc_shared_begin and psc_shared_end of the control block. Readers of shared rows see
 * by it that what they copied is not to be used (common/shared_rows.h).
 */
static inline void ps_store_begin_change(ps_row_header_t *row, uint32_t serial)
{
    psc_shared_stamp(&row->push_seq, serial);
}

/* A row comes or goes: after all that belongs to a PRESENT one was written, before it is not. */
static inline void ps_store_set_state(ps_row_header_t *row, ps_row_state_t state)
{
    psc_shared_set_state(&row->state, (uint8_t)state);
}

/* The row was changed: write it back some time. */
static inline void ps_store_mark_dirty(ps_row_header_t *row)
{
    row->flags = (uint16_t)((row->flags | PS_ROW_DIRTY) & ~PS_ROW_SAVED);
}

/* The same of a PRESENT row that begins anew, with version 0: what the cold tier or an older image
 * has of it may have a higher one. */
void ps_store_mark_begun(ps_store_t *store, ps_row_header_t *row);

/* An ABSENT row of a WRITE batch now has a value; marks it dirty too. Its header was all zero but
 * for id and table. */
void ps_store_mark_new(ps_store_t *store, ps_row_header_t *row);

/* Counters for statistics; all since the start. */
typedef struct ps_store_counters {
    uint64_t rows_hot, rows_new, hits, misses, evicted, written_back, cold_reads, cold_found;
    uint64_t erased;        /* rows removed by ps_store_erase */
    uint64_t fetched_ahead; /* rows that prefetches began to read */
    uint64_t bytes_hot, bytes_budget;
    uint64_t write_stalls, write_stall_us; /* writes that the cold tier could not take at once */
} ps_store_counters_t;
void ps_store_counters(const ps_store_t *store, ps_store_counters_t *counters_out);

#endif
