/*
 * A cut: a hand goes over the pages of the slab, once, and copies dirty rows out; a row ahead of
 * the hand that is about to change, or to leave memory, is copied first.
 *
 * Marks. A row ahead of the hand with PS_ROW_KEPT has been dealt with: its image is in a piece, or
 * it was clean, or absent, at the moment of the cut. The hand takes the mark off, also from rows
 * that are waited for. So after the walk no row has one; and a cut that is abandoned walks on to
 * its end without copying. A row is marked whenever it changes, so what is dirty ahead of the hand
 * without a mark was dirty at the cut, and is as it was. A record that is freed loses its mark, and
 * the row that comes into it is clean, or marked when it is pushed. Pages that come into use after
 * the cut have higher numbers than it looks at, or are of records that were freed; behind the hand
 * nothing matters.
 *
 * The cold tier. Jobs of the I/O thread run in order: what was evicted before the cut is submitted
 * before the job that saves the tier, and nothing else is. Rows that are erased leave the tier by a
 * later job.
 *
 * Pieces are as large as a page, taken off the rows' budget while the cut lasts, or, where that
 * leaves the tables too little, off what a server may take beside it. The images of a page fit into
 * one, so a step looks at one whole page, or at none when PS_CUT_WALK_PIECES are being written. A
 * large memory has some more (1 / PUSH_SHARE of it), which the walk leaves to rows that are about
 * to change, since a disk that is slow for a moment would stop pushes too. A push that finds none
 * free waits; so does an eviction.
 *
 * Partial cuts. A row that is handed out gets PS_ROW_SAVED, and loses it when it changes or leaves
 * memory. What has it in a partial cut is as the last cut had it. Versions only grow, but for rows
 * that are erased, which must not come back from an older image, and for rows that begin anew with
 * the cold tier still having the life before: after these a cut is not partial.
 *
 * Cost: without a cut, a test of a pointer for a push and for an evicted dirty row. With one, a
 * pass over all headers in memory, a page at a time, which waits for memory and for nothing else:
 * headers are prefetched, and only those of rows with something to do are written. Owner thread
 * only.
 */
#include "ps/store/cut.h"

#include "common/alloc.h"
#include "ps/store/room.h"

#define PUSH_SHARE 64u   /* of the rows' memory, for pieces that are left to pushes */
#define WALK_FETCHES 16u /* records that are fetched ahead of the one that is looked at */

struct ps_store_cut {
    ps_cut_options_t options;
    uint64_t reserved_bytes;
    uint32_t page, end_page; /* the hand, and the first page not looked at */
    bool partial;
    bool abandoned, saved; /* saved: the job came back */
    ps_io_job_t job;
    psc_error_t fault; /* of the job */
    ps_cut_piece_t pieces[PS_CUT_PIECES_MAX];
    ps_cut_piece_t *free[PS_CUT_PIECES_MAX];
    size_t n_pieces, n_free;
    uint32_t *found;         /* [records of a page at most] those of a page with something to do */
    ps_cut_piece_t *current; /* being filled, or NULL */
};

/* ---- pieces ---- */

static void hand_out(ps_store_cut_t *cut)
{
    ps_cut_piece_t *piece = cut->current;
    cut->current = NULL;
    if (piece == NULL)
        return;
    if (piece->used == 0 || cut->abandoned)
        cut->free[cut->n_free++] = piece;
    else
        cut->options.give(cut->options.context, piece);
}

/* Whether bytes more can be put into the current piece, after changing it if need be and more than
 * n_left are free. */
static bool make_room(ps_store_cut_t *cut, size_t bytes, size_t n_left)
{
    if (cut->current != NULL && cut->current->size - cut->current->used >= bytes)
        return true;
    if (cut->n_free <= n_left)
        return false;
    hand_out(cut);
    cut->current = cut->free[--cut->n_free];
    cut->current->used = 0;
    return true;
}

static size_t image_bytes(const ps_store_t *store, const ps_row_header_t *row)
{
    return store->tables[row->table]->value_bytes;
}

/* Appends a row; there is room. */
static void copy(const ps_store_t *store, ps_cut_piece_t *piece, ps_row_header_t *row)
{
    const size_t bytes = image_bytes(store, row);
    ps_io_copy_row(piece->bytes + piece->used, row, bytes);
    piece->used += bytes;
    row->flags |= PS_ROW_SAVED;
}

/* ---- rows that are about to change ---- */

static bool is_ahead(const ps_store_t *store, ps_place_t place)
{
    const uint32_t page = ps_slab_page_of(store->slab, place);
    return page >= store->cut->page && page < store->cut->end_page;
}

static bool wants(const ps_store_cut_t *cut, const ps_row_header_t *row)
{
    const uint16_t mask = PS_ROW_DIRTY | PS_ROW_KEPT | (cut->partial ? PS_ROW_SAVED : 0);
    return !cut->abandoned && row->state == PS_ROW_PRESENT && (row->flags & mask) == PS_ROW_DIRTY;
}

bool ps_cut_keep_row(ps_store_t *store, ps_place_t place)
{
    ps_store_cut_t *cut = store->cut;
    if (cut == NULL || !is_ahead(store, place))
        return true;
    ps_row_header_t *row = ps_store_row(store->base, place);
    if (wants(cut, row)) {
        if (!make_room(cut, image_bytes(store, row), 0))
            return false;
        copy(store, cut->current, row);
    }
    row->flags |= PS_ROW_KEPT;
    return true;
}

psc_status_t ps_store_cut_keep(ps_store_t *store, const ps_batch_t *batch, psc_error_t *error)
{
    for (size_t i = 0; store->cut != NULL && i < batch->n; i++) {
        if (batch->places[i] != 0 && !ps_cut_keep_row(store, batch->places[i]))
            return psc_error_set(error, PSC_BUSY, "a checkpoint's disk is behind");
    }
    return PSC_OK;
}

/* ---- the walk ---- */

static bool is_walked(const ps_store_cut_t *cut)
{
    return cut->page == cut->end_page;
}

/* Finds the rows of a page that are to be copied or have a mark, in cut->found. Returns how many;
 * bytes_out: of the images. */
static uint32_t look_through(const ps_store_t *store, uint8_t *records, size_t record_bytes,
                             size_t *bytes_out)
{
    const ps_store_cut_t *cut = store->cut;
    const uint32_t n = ps_slab_page_records(store->slab, cut->page);
    uint32_t n_found = 0;
    *bytes_out = 0;
    for (uint32_t i = 0; i < n; i++) {
        const ps_row_header_t *row = (const ps_row_header_t *)(records + i * record_bytes);
        if (i + WALK_FETCHES < n)
            __builtin_prefetch(records + (i + WALK_FETCHES) * record_bytes);
        const bool copied = wants(cut, row);
        if (copied)
            *bytes_out += image_bytes(store, row);
        if (copied || (row->flags & PS_ROW_KEPT) != 0)
            cut->found[n_found++] = i;
    }
    return n_found;
}

/* False: no piece is free. */
static bool walk_page(ps_store_t *store)
{
    ps_store_cut_t *cut = store->cut;
    const uint32_t class_id = ps_slab_page_class(store->slab, cut->page);
    if (class_id == UINT32_MAX)
        return true;
    uint8_t *records =
        (uint8_t *)ps_store_row(store->base, ps_slab_page_place(store->slab, cut->page, 0));
    const size_t record_bytes = ps_slab_record_bytes(store->slab, class_id);
    size_t bytes;
    const uint32_t n_found = look_through(store, records, record_bytes, &bytes);
    if (bytes != 0 && !make_room(cut, bytes, cut->n_pieces - PS_CUT_WALK_PIECES))
        return false;
    for (uint32_t i = 0; i < n_found; i++) {
        ps_row_header_t *row = (ps_row_header_t *)(records + cut->found[i] * record_bytes);
        if (wants(cut, row))
            copy(store, cut->current, row);
        if (row->state == PS_ROW_PRESENT || row->state == PS_ROW_ABSENT)
            row->flags &= (uint16_t)~PS_ROW_KEPT;
    }
    return true;
}

void ps_store_cut_step(ps_store_t *store, bool *progress_out)
{
    ps_store_cut_t *cut = store->cut;
    if (cut == NULL || is_walked(cut) || !walk_page(store))
        return;
    *progress_out = true;
    cut->page++;
    if (is_walked(cut))
        hand_out(cut);
}

void ps_store_cut_put(ps_store_t *store, ps_cut_piece_t *piece)
{
    store->cut->free[store->cut->n_free++] = piece;
}

void ps_store_cut_abandon(ps_store_t *store)
{
    if (store->cut != NULL)
        store->cut->abandoned = true;
}

void ps_cut_finish(ps_store_t *store)
{
    store->cut->saved = true;
}

ps_cut_state_t ps_store_cut_state(const ps_store_t *store, psc_error_t *error)
{
    const ps_store_cut_t *cut = store->cut;
    if (cut == NULL)
        return PS_CUT_NONE;
    if (!is_walked(cut) || !cut->saved || cut->n_free != cut->n_pieces)
        return PS_CUT_GOES_ON;
    if (cut->fault.code != PSC_OK) {
        if (error != NULL)
            *error = cut->fault;
        return PS_CUT_FAILED;
    }
    if (!cut->abandoned)
        return PS_CUT_DONE;
    (void)psc_error_set(error, PSC_INTERRUPTED, "the checkpoint was given up");
    return PS_CUT_FAILED;
}

/* ---- begin, end ---- */

static void free_cut(ps_store_cut_t *cut)
{
    for (size_t i = 0; i < PS_CUT_PIECES_MAX; i++)
        psc_free(cut->pieces[i].bytes);
    psc_free(cut->found);
    psc_free(cut);
}

/* With its first pieces, of n_pieces at most; NULL: no memory. Those that are left to pushes are
 * there when the system gives them. */
static ps_store_cut_t *create_cut(const ps_store_t *store, const ps_cut_options_t *options,
                                  size_t n_pieces)
{
    ps_store_cut_t *cut = psc_alloc_zeroed(1, sizeof *cut);
    if (cut == NULL)
        return NULL;
    cut->options = *options;
    cut->fault = (psc_error_t)PSC_ERROR_INIT;
    cut->found = psc_alloc(store->layout.page_bytes / sizeof(ps_row_header_t) * sizeof *cut->found);
    while (cut->n_pieces < n_pieces) {
        ps_cut_piece_t *piece = &cut->pieces[cut->n_pieces];
        piece->size = store->layout.page_bytes;
        piece->bytes = psc_alloc(piece->size);
        if (piece->bytes == NULL)
            break;
        cut->free[cut->n_free++] = piece;
        cut->n_pieces++;
    }
    if (cut->found == NULL || cut->n_pieces < PS_CUT_WALK_PIECES) {
        free_cut(cut);
        return NULL;
    }
    return cut;
}

/* Takes memory for pieces and what the caller needs off the rows' budget: with pieces that are left
 * to pushes, or without, or, where it is little, none. */
static psc_status_t reserve(ps_store_t *store, uint64_t extra_bytes, size_t *n_pieces_out,
                            uint64_t *bytes_out, psc_error_t *error)
{
    const size_t page_bytes = store->layout.page_bytes;
    size_t n = PS_CUT_WALK_PIECES + ps_store_rows_bytes(store) / PUSH_SHARE / page_bytes;
    n = n < PS_CUT_PIECES_MAX ? n : PS_CUT_PIECES_MAX;
    *n_pieces_out = n;
    *bytes_out = n * page_bytes + extra_bytes;
    if (n > PS_CUT_WALK_PIECES && ps_store_reserve_memory(store, *bytes_out, NULL) == PSC_OK)
        return PSC_OK;
    *n_pieces_out = PS_CUT_WALK_PIECES;
    *bytes_out = PS_CUT_WALK_PIECES * page_bytes + extra_bytes;
    const bool spare = *bytes_out <= PS_CUT_SPARE_BYTES;
    const psc_status_t st = ps_store_reserve_memory(store, *bytes_out, spare ? NULL : error);
    if (st == PSC_OK || !spare)
        return st;
    *bytes_out = 0; /* a small memory, or a walk over rows that has its part of it just now */
    return PSC_OK;
}

psc_status_t ps_store_cut_begin(ps_store_t *store, const ps_cut_options_t *options,
                                psc_error_t *error)
{
    if (store->failure.code != PSC_OK)
        return ps_store_failed(store, error);
    if (store->cut != NULL)
        return psc_error_set(error, PSC_BUSY, "a checkpoint is under way");
    size_t n_pieces;
    uint64_t bytes;
    psc_status_t st = reserve(store, options->extra_bytes, &n_pieces, &bytes, error);
    if (st != PSC_OK)
        return st;
    ps_store_cut_t *cut = create_cut(store, options, n_pieces);
    if (cut == NULL) {
        ps_store_unreserve_memory(store, bytes);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a checkpoint");
    }
    cut->reserved_bytes = bytes;
    cut->page = 1; /* page 0 is never used */
    cut->end_page = ps_slab_end_page(store->slab);
    if (cut->end_page < cut->page)
        cut->end_page = cut->page;
    cut->partial =
        options->partial && store->counters.erased == store->n_erased_cut && !store->began_anew;
    store->n_erased_cut = store->counters.erased;
    ps_room_submit_writes(store);
    cut->job.kind = PS_IO_SAVE;
    cut->job.folder = options->folder;
    cut->job.fault = &cut->fault;
    (void)ps_io_submit(store->io, &cut->job);
    store->cut = cut;
    return PSC_OK;
}

bool ps_store_cut_is_partial(const ps_store_t *store)
{
    return store->cut != NULL && store->cut->partial;
}

void ps_store_cut_end(ps_store_t *store)
{
    ps_store_cut_t *cut = store->cut;
    PSC_BUG_ON(ps_store_cut_state(store, NULL) == PS_CUT_GOES_ON);
    if (cut == NULL)
        return;
    store->cut = NULL;
    ps_store_unreserve_memory(store, cut->reserved_bytes);
    free_cut(cut);
}

void ps_cut_destroy(ps_store_t *store)
{
    if (store->cut != NULL)
        free_cut(store->cut);
    store->cut = NULL;
}
