/*
 * The rows that one server's part of a checkpoint has, one after another, without restoring it.
 *
 *     st = ps_saved_rows_open(restore, &options, &rows, error);
 *     do
 *         st = ps_saved_rows_next(rows, &record, error);
 *     while (st == PSC_OK && record != NULL);
 *     ps_saved_rows_close(rows);
 *
 * They come in the order of their tables' numbers, slots and ids, each once and as a restore would
 * make it: of what the cold tier and the images have of a row, the one that counts. Shared rows of
 * companion tables are none of them. A record is a ps_row_header_t and, behind it, as many bytes as
 * ps_table_row_bytes says of its table in the checkpoint; unaligned.
 *
 * Threads: none.
 */
#ifndef PS_CHECKPOINT_SAVED_ROWS_H
#define PS_CHECKPOINT_SAVED_ROWS_H

#include "ps/checkpoint/restore.h"
#include "ps/store/store.h"

typedef struct ps_saved_rows ps_saved_rows_t;

typedef struct ps_saved_rows_options {
    uint32_t server;       /* whose part */
    const bool *slots;     /* [PSC_SLOT_COUNT] which are wanted, among those of the server */
    const char *log_dir;   /* a folder for what RocksDB logs */
    uint64_t memory_bytes; /* for the cold tier and for the order of images; a few MiB at least are
                              taken. More memory, fewer passes over the images */
} ps_saved_rows_options_t;

/* restore: of a single server, so that all parts were checked (ps_restore_find). Borrows restore
 * and slots until the end. Errors: IO, CORRUPT, NO_MEMORY, naming the file. Gives. */
PSC_MUST_CHECK psc_status_t ps_saved_rows_open(const ps_restore_t *restore,
                                               const ps_saved_rows_options_t *options,
                                               ps_saved_rows_t **rows_out, psc_error_t *error);

/* The next record, NULL: there is none. Borrowed until the next call. Errors: IO, CORRUPT. */
PSC_MUST_CHECK psc_status_t ps_saved_rows_next(ps_saved_rows_t *rows, const uint8_t **record_out,
                                               psc_error_t *error);

/* NULL is a no-op. */
void ps_saved_rows_close(ps_saved_rows_t *rows);

/* The order in which they come: below 0, 0 or above, as memcmp. */
int ps_saved_rows_compare(const ps_row_header_t *a, const ps_row_header_t *b);

#endif
