/*
 * Memory of requests: objects and row spaces on free lists.
 *
 * A request keeps its message's buffer until it is answered, so ids and rows are read where they
 * came in. A message in several pieces (no client of ours sends one) has them in scratch memory,
 * which the next message overwrites: these are copied. Spaces are sized in powers of two and the
 * few largest ones are kept; requests without rows need none. Threads: the owner's.
 */
#include "ps/table/request.h"

#include "common/alloc.h"

#include <string.h>

#define SPACES_KEPT 8u

static bool inside(const psp_buffer_t *buffer, const uint8_t *bytes)
{
    return bytes >= buffer->data && bytes <= buffer->data + buffer->size;
}

/* A bulk field of a message. */
typedef struct piece {
    const uint8_t **at;
    size_t bytes; /* 0: it has none */
} piece_t;
#define PIECES 4u

/* ids, then the rows of a push: in the order in which they are to lie. *floats_out: the rows, if
 * they are used where they lie as floats; others are decoded when they are applied. */
static void find_pieces(psp_message_t *message, piece_t pieces[PIECES], const uint8_t ***floats_out)
{
    psp_push_t *push = NULL;
    if (message->kind == PSP_PULL) {
        psp_pull_t *pull = &message->u.pull;
        pieces[0] = (piece_t){&pull->ids, pull->n * sizeof(uint64_t)};
        if (pull->versions != NULL)
            pieces[1] = (piece_t){&pull->versions, pull->n * sizeof(uint32_t)};
    } else if (message->kind == PSP_PREFETCH) {
        psp_prefetch_t *prefetch = &message->u.prefetch;
        pieces[0] = (piece_t){&prefetch->ids, prefetch->n * sizeof(uint64_t)};
    } else if (message->kind == PSP_PUSH) {
        push = &message->u.push;
    } else if (message->kind == PSP_CHECKPOINT) {
        pieces[0] = (piece_t){&message->u.checkpoint.state, message->u.checkpoint.n};
    } else if (message->kind == PSP_IMPORT) {
        psp_import_t *import = &message->u.import;
        push = &import->rows;
        if (import->counts != NULL)
            pieces[2] = (piece_t){&import->counts, push->n * 2 * sizeof(uint32_t)};
        pieces[3] = (piece_t){&import->state, push->n * import->state_floats * sizeof(float)};
    }
    if (push == NULL)
        return;
    pieces[0] = (piece_t){&push->ids, push->n * sizeof(uint64_t)};
    pieces[1] = (piece_t){&push->rows, push->n * psp_row_bytes(push->format, push->dim)};
    if (push->format == PSP_FORMAT_F32)
        *floats_out = &push->rows;
}

/* Moves bulk fields that lie outside the buffer, or (anywhere) in it too, into one block of the
 * request's own. */
static psc_status_t own_bulk(ps_request_t *request, bool anywhere, psc_error_t *error)
{
    piece_t pieces[PIECES] = {{NULL, 0}};
    const uint8_t **floats = NULL;
    find_pieces(&request->message, pieces, &floats);
    bool fine = !anywhere && (floats == NULL || ((uintptr_t)*floats & (sizeof(float) - 1)) == 0);
    size_t bytes = 0;
    for (size_t i = 0; i < PIECES; i++) {
        bytes += pieces[i].bytes;
        fine = fine && (pieces[i].bytes == 0 || inside(request->buffer, *pieces[i].at));
    }
    if (fine || bytes == 0)
        return PSC_OK;
    uint8_t *block = psc_alloc_aligned(bytes);
    if (block == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a request of %zu bytes",
                             bytes);
    request->bulk = block;
    request->bulk_bytes = bytes;
    for (size_t i = 0; i < PIECES; i++) {
        if (pieces[i].bytes == 0)
            continue;
        memcpy(block, *pieces[i].at, pieces[i].bytes);
        *pieces[i].at = block;
        block += pieces[i].bytes;
    }
    return PSC_OK;
}

psc_status_t ps_request_create(ps_request_pool_t *pool, psp_buffer_t *buffer,
                               const psp_message_t *message, ps_request_t **request_out,
                               psc_error_t *error)
{
    ps_request_t *request = pool->requests;
    if (request != NULL)
        pool->requests = request->next;
    else if ((request = psc_alloc(sizeof *request)) == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a request");
    *request = (ps_request_t){.buffer = buffer, .message = *message};
    psc_status_t st = own_bulk(request, false, error);
    if (st != PSC_OK) {
        request->next = pool->requests;
        pool->requests = request;
        return st;
    }
    *request_out = request;
    return PSC_OK;
}

psc_status_t ps_request_keep(ps_request_t *request, psc_error_t *error)
{
    if (request->buffer->lender == NULL)
        return PSC_OK;
    psc_status_t st = request->bulk == NULL ? own_bulk(request, true, error) : PSC_OK;
    if (st == PSC_OK)
        psp_buffer_give_back(request->buffer);
    return st;
}

size_t ps_request_bytes(const ps_request_t *request)
{
    return (request->buffer != NULL ? request->buffer->capacity : 0) + request->bulk_bytes;
}

static void put_space(ps_request_pool_t *pool, ps_space_t *space)
{
    if (pool->n_spaces >= SPACES_KEPT) {
        psc_free(space);
        return;
    }
    space->next = pool->spaces;
    pool->spaces = space;
    pool->n_spaces++;
}

void ps_request_trim(ps_request_pool_t *pool, ps_request_t *request)
{
    PSC_BUG_ON(request->prepared);
    if (request->space != NULL)
        put_space(pool, request->space);
    if (request->shared_space != NULL)
        put_space(pool, request->shared_space);
    request->space = request->shared_space = NULL;
    request->located = false;
}

void ps_request_destroy(ps_request_pool_t *pool, ps_request_t *request)
{
    ps_request_trim(pool, request);
    psp_buffer_put(request->buffer);
    psc_free(request->bulk);
    request->next = pool->requests;
    pool->requests = request;
}

psc_status_t ps_request_reserve(ps_request_pool_t *pool, ps_space_t **space_out, size_t n,
                                psc_error_t *error)
{
    if (*space_out != NULL)
        return PSC_OK;
    for (ps_space_t **link = &pool->spaces; *link != NULL; link = &(*link)->next) {
        if ((*link)->capacity >= n) {
            *space_out = *link;
            *link = (*space_out)->next;
            pool->n_spaces--;
            return PSC_OK;
        }
    }
    size_t capacity = 256;
    while (capacity < n)
        capacity *= 2;
    /* places has one more, for a reply that tells them. */
    size_t row = 2 * sizeof(uint64_t) + sizeof(ps_place_t) + sizeof(uint32_t) + 2 * sizeof(uint8_t);
    ps_space_t *space = psc_alloc_aligned(sizeof *space + 64 + capacity * row + sizeof(ps_place_t));
    if (space == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a request of %zu rows", n);
    uint8_t *block = (uint8_t *)space + (sizeof *space + 63) / 64 * 64;
    space->capacity = capacity;
    space->ids = (uint64_t *)(void *)block;
    space->hashes = space->ids + capacity;
    space->places = (ps_place_t *)(void *)(space->hashes + capacity);
    space->versions = (uint32_t *)(space->places + capacity + 1);
    space->states = (uint8_t *)(space->versions + capacity);
    space->late = space->states + capacity;
    *space_out = space;
    return PSC_OK;
}

void ps_request_pool_clear(ps_request_pool_t *pool)
{
    while (pool->requests != NULL) {
        ps_request_t *next = pool->requests->next;
        psc_free(pool->requests);
        pool->requests = next;
    }
    while (pool->spaces != NULL) {
        ps_space_t *next = pool->spaces->next;
        psc_free(pool->spaces);
        pool->spaces = next;
    }
    pool->n_spaces = 0;
}
