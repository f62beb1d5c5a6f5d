/*
 * Blocks of the rows of a table, for exports: one walk over the store (ps/store/sweep.h), which the
 * exports of a shard share.
 *
 *     ps_exporter_key_t key;
 *     st = ps_exporter_read_cursor(cursor, size, &key, error);
 *     st = ps_exporter_fill(shard, request, &key, max_rows, &n, &ready, error);
 *     ... not ready: request->state says so; else n rows of request->space are there ...
 *     ps_exporter_advance(shard);                    // behind them
 *     more = ps_exporter_tell(shard, cursor);        // cursor is where others begin
 *     ps_exporter_go_on(shard, request);             // more rows for this block, or
 *     ps_exporter_release(shard, request);           // it is made
 *
 * Threads: the owner's.
 */
#ifndef PS_TABLE_EXPORTER_H
#define PS_TABLE_EXPORTER_H

#include "common/status.h"
#include "ps/store/sweep.h"

#include <stdbool.h>

#define PS_EXPORTER_CURSOR_BYTES 12u

struct ps_table;
struct ps_shard;
struct ps_request;

/* A place in the walk's order. Plain data. */
typedef struct ps_exporter_key {
    uint32_t slot;
    uint64_t id;
} ps_exporter_key_t;

/* Part of a shard; all zero at first. */
typedef struct ps_exporter {
    ps_store_scan_t *scan; /* NULL: none is open */
    struct ps_table *table;
    ps_exporter_key_t at; /* rows before it were given */
    ps_store_piece_t piece;
    size_t piece_at;            /* rows of the piece before it were given */
    size_t n_taken;             /* rows of the piece from there on that request has looked at */
    struct ps_request *request; /* whose block is being made; NULL: none is */
    uint32_t peer;              /* whose block was made last */
    uint32_t n_blocks;          /* since the walk was opened */
    uint64_t used_us;           /* when a block was asked for last, in the shard's time */
    bool moved;                 /* since the last poll */
} ps_exporter_t;

/* size 0: the beginning. Errors: INVALID_ARGUMENT. */
PSC_MUST_CHECK psc_status_t ps_exporter_read_cursor(const uint8_t *cursor, size_t size,
                                                    ps_exporter_key_t *key_out, psc_error_t *error);

/*
 * Goes on with a request's block of rows of request->table, from key on: max_rows at most, from 1.
 * *ready_out true: request->space has the ids and places of *n_out of them, maybe 0, until they are
 * released. False: call again when the request is tried next. Errors: the store's.
 */
PSC_MUST_CHECK psc_status_t ps_exporter_fill(struct ps_shard *shard, struct ps_request *request,
                                             const ps_exporter_key_t *key, size_t max_rows,
                                             size_t *n_out, bool *ready_out, psc_error_t *error);

/* The walk stands behind the rows that are there, which stay so. */
void ps_exporter_advance(struct ps_shard *shard);

/* Where the walk is, as a cursor; false: at its end. */
bool ps_exporter_tell(const struct ps_shard *shard, uint8_t cursor_out[PS_EXPORTER_CURSOR_BYTES]);

/* None of the rows was worth telling: lets go of them, and the request fills further. */
void ps_exporter_go_on(struct ps_shard *shard, struct ps_request *request);

/* A request's block is made, or given up: another one may go on. */
void ps_exporter_release(struct ps_shard *shard, const struct ps_request *request);

/* Closes a walk that nobody has used for a while. */
void ps_exporter_rest(struct ps_shard *shard);
/* Closes the walk, if one is open. */
void ps_exporter_stop(struct ps_shard *shard);

#endif
