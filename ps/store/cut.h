/*
 * The rows of a store as they are at one moment, written out while they go on changing.
 *
 *     ps_store_cut_begin(store, &options, error);         // this is the moment
 *     before a push changes the rows of a batch:
 *         if (ps_store_cut_keep(store, &batch, error) == PSC_BUSY)  wait, as for room
 *     whenever there is time:
 *         ps_store_cut_step(store, &progress);            // pieces go to options.give
 *         ps_store_cut_put(store, piece);                 // when one was written
 *     if (ps_store_cut_state(store, error) != PS_CUT_GOES_ON)  ps_store_cut_end(store);
 *
 * What the cold tier holds at that moment goes to a folder (ps_cold_ops_t.save); rows in memory
 * that differ from it, "dirty" ones, are handed out as images: header and row as on disk, one
 * behind the other. Nothing that changed, came or went after the moment is in either. An image
 * counts more than what the folder has of the same row. The order of images means nothing, and no
 * row has two.
 *
 * A partial cut hands out only those that changed since the last cut. Of the others the images of
 * the cuts before count, the newest first, back to the last that was not partial; but not where the
 * folder has a row with the same version or a later one, since it left memory meanwhile.
 *
 * Threads: the store's owner.
 */
#ifndef PS_STORE_CUT_H
#define PS_STORE_CUT_H

#include "ps/store/store.h"

#define PS_CUT_WALK_PIECES 4u /* that may be full, or being written, of what the walk finds */
#define PS_CUT_PIECES_MAX 16u /* with those that are left to rows about to change */
#define PS_CUT_SPARE_BYTES ((uint64_t)16 << 20) /* that a cut may take beside the budget at worst */

/* Images of rows. */
typedef struct ps_cut_piece {
    uint8_t *bytes;
    size_t used, size;
} ps_cut_piece_t;

typedef struct ps_cut_options {
    const char *folder;   /* for the cold tier; must not exist, on its file system. Borrowed */
    uint64_t extra_bytes; /* taken off the rows' budget too, for the caller */
    bool partial; /* wanted, since all images of the last cut, and what it rests on, are kept */
    /* Takes a piece until ps_store_cut_put. */
    void (*give)(void *context, ps_cut_piece_t *piece);
    void *context;
} ps_cut_options_t;

/*
 * Errors: INVALID_ARGUMENT (its memory, PS_CUT_WALK_PIECES pages and extra_bytes, does not fit
 * beside the rows, and is more than PS_CUT_SPARE_BYTES: says what would do), NO_MEMORY; BUSY (one
 * is under way); as ps_store_prepare, once the store failed.
 */
PSC_MUST_CHECK psc_status_t ps_store_cut_begin(ps_store_t *store, const ps_cut_options_t *options,
                                               psc_error_t *error);

/* Whether the cut under way is partial: it was wanted, and versions tell what is newer, as no row
 * was erased since the last one or has begun anew since the store was opened. */
bool ps_store_cut_is_partial(const ps_store_t *store);

/* The rows of a ready batch are about to change: keeps what they were, where that was not done yet.
 * Errors: BUSY (all pieces are being written; what was kept is kept: call again). */
PSC_MUST_CHECK psc_status_t ps_store_cut_keep(ps_store_t *store, const ps_batch_t *batch,
                                              psc_error_t *error);

/* Looks through a page of rows in memory at most. *progress_out is set when it did. */
void ps_store_cut_step(ps_store_t *store, bool *progress_out);

/* Gives a piece back. */
void ps_store_cut_put(ps_store_t *store, ps_cut_piece_t *piece);

/* Nothing more is handed out, but the cut must still be carried to its end. */
void ps_store_cut_abandon(ps_store_t *store);

typedef enum ps_cut_state {
    PS_CUT_NONE,    /* there is none */
    PS_CUT_GOES_ON, /* step */
    PS_CUT_DONE,    /* all pieces came back, and the folder is written */
    PS_CUT_FAILED,  /* the same, but something is missing */
} ps_cut_state_t;

/* error: of FAILED, why. */
ps_cut_state_t ps_store_cut_state(const ps_store_t *store, psc_error_t *error);

/* After DONE or FAILED. */
void ps_store_cut_end(ps_store_t *store);

/* ---- for the store: its row is about to leave memory (false: not now); the folder is written; the
 * I/O thread has ended ---- */
bool ps_cut_keep_row(ps_store_t *store, ps_place_t place);
void ps_cut_finish(ps_store_t *store);
void ps_cut_destroy(ps_store_t *store);

#endif
