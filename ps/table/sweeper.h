/*
 * Frees the forgotten rows of a shard's tables, a bounded piece at a time.
 *
 * A sweep walks over all rows of a table, hot and cold, and removes those that are forgotten
 * (ps/growth/expiry.h). It decides nothing: such a row answers like one that never was, freed or
 * not. A table is swept every quarter of its shortest life; one table at a time. With a dry run the
 * rows are only counted. What a sweep found is logged.
 *
 * Threads: the owner's.
 */
#ifndef PS_TABLE_SWEEPER_H
#define PS_TABLE_SWEEPER_H

#include "common/status.h"
#include "ps/store/sweep.h"

#include <stdbool.h>

#define PS_SWEEPER_ROWS 256u

struct ps_table;
struct ps_shard;

typedef enum ps_sweeper_state {
    PS_SWEEPER_IDLE,
    PS_SWEEPER_WALKS,    /* asks for the next piece, or looks through the present one */
    PS_SWEEPER_PREPARES, /* has ids of rows to free; wants their places */
    PS_SWEEPER_READS,    /* their places are being filled */
    PS_SWEEPER_ERASES,   /* ready; n_erased of them are */
} ps_sweeper_state_t;

/* Part of a shard; all zero at first. */
typedef struct ps_sweeper {
    ps_sweeper_state_t state;
    uint32_t table_number; /* that was swept last */
    struct ps_table *table;
    ps_store_scan_t *scan;
    ps_store_piece_t piece;
    size_t piece_at;    /* rows of the piece before it were looked at */
    size_t n, max_rows; /* to be freed at a time */
    ps_batch_t batch;
    uint64_t ids[PS_SWEEPER_ROWS], hashes[PS_SWEEPER_ROWS];
    ps_place_t places[PS_SWEEPER_ROWS];
    uint64_t seen, due, forgotten, freed; /* of this sweep */
    uint32_t polls;                       /* in which it could have done something */
} ps_sweeper_t;

/*
 * Does a little, if there is anything to do. busy: the shard had other work since the last call, so
 * that only some of the calls do anything. *progress_out is set when it did. Errors: the store's,
 * which end the shard.
 */
PSC_MUST_CHECK psc_status_t ps_sweeper_step(struct ps_shard *shard, bool busy, bool *progress_out,
                                            psc_error_t *error);

/* Ends the sweep that is under way, if there is one. */
void ps_sweeper_stop(struct ps_shard *shard);

#endif
