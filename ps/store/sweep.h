/*
 * What a sweeper needs beside ps_store_erase: a walk over the rows of a table, in memory and in the
 * cold tier, in the order of (slot, id), each row once.
 *
 *     ps_store_scan_open(store, table, first_slot, end_slot, &scan, error);
 *     for (;;) {
 *         st = ps_store_scan_next(scan, &piece, error);
 *         if (st == PSC_BUSY)    come back after ps_store_poll made progress
 *         for i < piece.n: piece.rows[i] is the header of a row
 *         if (piece.end) break;              // a piece may be empty: come back when there is time
 *     }
 *     ps_store_scan_close(scan);
 *
 * The walk goes on beside all else. A row that exists from its beginning to its end is given; one
 * that is made or erased meanwhile may be given or not. A header is as the row was during the call
 * that gave it, or during an earlier call if the row left memory since: look again, in a batch that
 * was prepared, before deciding anything.
 *
 * A call does a bounded amount of work: it looks at some thousand rows in memory or sorts some
 * hundred; the cold tier is read by the I/O thread.
 *
 * Threads: the store's owner.
 */
#ifndef PS_STORE_SWEEP_H
#define PS_STORE_SWEEP_H

#include "ps/store/store.h"

typedef struct ps_store_scan ps_store_scan_t;

typedef struct ps_store_piece {
    const ps_row_header_t *rows; /* n, until the next call; pins and flags mean nothing */
    size_t n;
    bool end; /* there are no more */
} ps_store_piece_t;

/*
 * Slots first_slot to end_slot - 1 of a table. Its memory, some 100 KiB to 1 MiB, is taken off the
 * rows' budget while it is open. Errors: INVALID_ARGUMENT (no such table, no room), BUSY (a scan is
 * open, or one that was closed is still under way), NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_store_scan_open(ps_store_t *store, uint16_t table,
                                               uint32_t first_slot, uint32_t end_slot,
                                               ps_store_scan_t **scan_out, psc_error_t *error);

/* Errors: BUSY (waits for the disk: after progress); as ps_store_prepare, once the store failed. */
PSC_MUST_CHECK psc_status_t ps_store_scan_next(ps_store_scan_t *scan, ps_store_piece_t *piece_out,
                                               psc_error_t *error);

/* At any time. NULL is a no-op. */
void ps_store_scan_close(ps_store_scan_t *scan);

/* ---- for the store: the scan's job came back; the I/O thread has ended ---- */
void ps_store_scan_finish(ps_store_t *store);
void ps_store_scan_destroy(ps_store_scan_t *scan);

#endif
