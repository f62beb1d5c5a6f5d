/*
 * One walk at a time, since the store has one; it stays open between the blocks of an export.
 *
 * A block says itself where it begins, so nothing is kept for a client: a walk that stands there
 * goes on, which is the rule; any other is opened anew, at the block's slot, and what lies before
 * its first id is passed over. Opening costs a pass over the rows in memory, so an export keeps the
 * walk for QUANTUM blocks before another one that waits may have it, or until it has asked for
 * nothing for PAUSE_US; a session's own exports give it to each other at once, since the next block
 * of the one is asked for behind that of the other. A walk that nobody uses is closed after
 * REST_US, which gives its memory back to the rows.
 *
 * The rows of a piece of the walk are prepared like those of a pull that scans: they displace
 * nothing, and what is dirty stays so. A request that makes its block holds its place (`request`)
 * but no rows while it walks, and waits for the disk alone while it holds rows. A call makes one
 * step of the walk, so that the shard's other work goes on between.
 *
 * Threads: the owner's.
 */
#include "ps/table/exporter.h"

#include "ps/table/shard_state.h"

#define QUANTUM 64u
#define PAUSE_US UINT64_C(50000)
#define REST_US UINT64_C(1000000)

static int compare(const ps_exporter_key_t *a, const ps_exporter_key_t *b)
{
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

psc_status_t ps_exporter_read_cursor(const uint8_t *cursor, size_t size, ps_exporter_key_t *key_out,
                                     psc_error_t *error)
{
    ps_exporter_key_t key = {0};
    if (size != 0 && size != PS_EXPORTER_CURSOR_BYTES)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a cursor of %zu bytes is none of this server", size);
    if (size != 0) {
        memcpy(&key.slot, cursor, sizeof key.slot);
        memcpy(&key.id, cursor + sizeof key.slot, sizeof key.id);
    }
    if (key.slot > PSC_SLOT_COUNT)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a cursor that is none of this server");
    *key_out = key;
    return PSC_OK;
}

bool ps_exporter_tell(const ps_shard_t *shard, uint8_t cursor_out[PS_EXPORTER_CURSOR_BYTES])
{
    const ps_exporter_t *exporter = &shard->exporter;
    if (exporter->piece_at == exporter->piece.n && exporter->piece.end)
        return false;
    memcpy(cursor_out, &exporter->at.slot, sizeof exporter->at.slot);
    memcpy(cursor_out + sizeof exporter->at.slot, &exporter->at.id, sizeof exporter->at.id);
    return true;
}

void ps_exporter_stop(ps_shard_t *shard)
{
    ps_store_scan_close(shard->exporter.scan);
    shard->exporter = (ps_exporter_t){.request = NULL};
}

void ps_exporter_rest(ps_shard_t *shard)
{
    const ps_exporter_t *exporter = &shard->exporter;
    if (exporter->scan != NULL && exporter->request == NULL &&
        exporter->used_us + REST_US < shard->now_us)
        ps_exporter_stop(shard);
}

void ps_exporter_release(ps_shard_t *shard, const ps_request_t *request)
{
    ps_exporter_t *exporter = &shard->exporter;
    if (exporter->request != request)
        return;
    exporter->request = NULL;
    exporter->n_taken = 0;
    shard->room_changed = true; /* another one may go on */
}

/* Whether a request may have the walk, which stands where it wants it. */
static psc_status_t take_walk(ps_shard_t *shard, ps_request_t *request,
                              const ps_exporter_key_t *key, bool *taken_out, psc_error_t *error)
{
    ps_exporter_t *exporter = &shard->exporter;
    *taken_out = exporter->request == request;
    if (exporter->request != NULL)
        return PSC_OK;
    const bool fits = exporter->scan != NULL && exporter->table == request->table &&
                      compare(&exporter->at, key) == 0;
    const bool free = exporter->scan == NULL || exporter->peer == request->buffer->peer ||
                      exporter->n_blocks >= QUANTUM ||
                      exporter->used_us + PAUSE_US < shard->now_us ||
                      (exporter->piece.end && exporter->piece_at == exporter->piece.n);
    if (!fits && !free)
        return PSC_OK;
    if (!fits) {
        ps_exporter_stop(shard);
        psc_status_t st = ps_store_scan_open(shard->options.store, request->table->number,
                                             key->slot, PSC_SLOT_COUNT, &exporter->scan, error);
        if (st == PSC_BUSY)
            return PSC_OK;
        if (st != PSC_OK)
            return st;
        exporter->table = request->table;
        exporter->at = *key;
    }
    exporter->request = request;
    exporter->peer = request->buffer->peer;
    exporter->n_blocks++;
    *taken_out = true;
    return PSC_OK;
}

/* Copies the next rows of the piece to the request; *n_out may be 0. Errors: NO_MEMORY. */
static psc_status_t take_rows(ps_shard_t *shard, ps_request_t *request, size_t max_rows,
                              size_t *n_out, psc_error_t *error)
{
    ps_exporter_t *exporter = &shard->exporter;
    psc_status_t st = ps_shard_reserve(shard, request, max_rows, error);
    if (st != PSC_OK)
        return st;
    ps_space_t *space = request->space;
    size_t n = 0;
    exporter->n_taken = 0;
    while (n < max_rows && exporter->piece_at + exporter->n_taken < exporter->piece.n) {
        const uint64_t id = exporter->piece.rows[exporter->piece_at + exporter->n_taken++].id;
        const uint64_t hash = psc_row_hash(request->table->number, id);
        const ps_exporter_key_t key = {.slot = psc_slot_of_hash(hash), .id = id};
        if (compare(&key, &exporter->at) < 0)
            continue; /* of the first slot, before the first id */
        space->ids[n] = id;
        space->hashes[n] = hash;
        n++;
    }
    ps_shard_set_located(request, n);
    *n_out = n;
    return PSC_OK;
}

/* The next piece. *there_out false: not yet. */
static psc_status_t next_piece(ps_shard_t *shard, ps_request_t *request, bool *there_out,
                               psc_error_t *error)
{
    ps_exporter_t *exporter = &shard->exporter;
    exporter->piece_at = 0;
    psc_status_t st = ps_store_scan_next(exporter->scan, &exporter->piece, error);
    *there_out = st == PSC_OK && (exporter->piece.n != 0 || exporter->piece.end);
    if (st == PSC_OK || st == PSC_BUSY)
        request->state = st == PSC_OK ? PS_REQUEST_WAIT_ROOM : PS_REQUEST_WAIT_ROWS;
    if (st != PSC_OK)
        exporter->piece = (ps_store_piece_t){0};
    if (st == PSC_OK && !*there_out) { /* it walks: a step at every poll */
        exporter->moved = true;
        shard->room_changed = true;
    }
    return st == PSC_BUSY ? PSC_OK : st;
}

psc_status_t ps_exporter_fill(ps_shard_t *shard, ps_request_t *request,
                              const ps_exporter_key_t *key, size_t max_rows, size_t *n_out,
                              bool *ready_out, psc_error_t *error)
{
    ps_exporter_t *exporter = &shard->exporter;
    bool taken;
    *ready_out = false;
    *n_out = 0;
    psc_status_t st = take_walk(shard, request, key, &taken, error);
    if (st != PSC_OK)
        return st;
    if (!taken) {
        request->state = PS_REQUEST_WAIT_ROOM;
        return PSC_OK;
    }
    exporter->used_us = shard->now_us;
    if (request->located) { /* its rows were being read, or wait for room */
        *n_out = request->batch.n;
    } else {
        if (exporter->piece_at == exporter->piece.n && !exporter->piece.end) {
            bool there;
            st = next_piece(shard, request, &there, error);
            if (st != PSC_OK || !there)
                return st;
        }
        st = take_rows(shard, request, max_rows, n_out, error);
        if (st != PSC_OK)
            return st;
    }
    request->batch.n = *n_out; /* known, also while there is no room for it */
    st = ps_shard_prepare(shard, request, PS_BATCH_READ, NULL, *n_out, ready_out, error);
    exporter->moved = exporter->moved || *ready_out;
    return st;
}

void ps_exporter_advance(ps_shard_t *shard)
{
    ps_exporter_t *exporter = &shard->exporter;
    if (exporter->n_taken != 0) {
        const uint64_t last = exporter->piece.rows[exporter->piece_at + exporter->n_taken - 1].id;
        const uint64_t hash = psc_row_hash(exporter->table->number, last);
        exporter->at = (ps_exporter_key_t){.slot = psc_slot_of_hash(hash) + (last == UINT64_MAX),
                                           .id = last + 1};
        exporter->piece_at += exporter->n_taken;
        exporter->n_taken = 0;
    }
}

void ps_exporter_go_on(ps_shard_t *shard, ps_request_t *request)
{
    ps_shard_release(shard, request);
    ps_request_trim(&shard->requests, request);
    request->state = PS_REQUEST_WAIT_ROOM;
    shard->exporter.moved = true;
    shard->room_changed = true;
}
