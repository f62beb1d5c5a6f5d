/*
 * Who has whose memory, and which messages are lent.
 *
 * Each side offers its own memory; each direction is used once the peer has accepted, so that a
 * peer that cannot map it (another host, another user) gets all by MPI as ever. A slip takes the
 * place of its message in MPI's order, so order and kinds are what they were. What is lent stays in
 * an array until the reader has cleared its byte; polls look at some of them, going round, so a
 * reader that keeps messages for long costs their memory and no more: when that is used up,
 * messages go by MPI.
 *
 * Cost of a message: some 24 bytes by MPI, no system call, no copy. Bounds: the memory of
 * PSP_MEMORY_BYTES. Threads: the transport's.
 */
#include "proto/mpi/mpi_lending.h"

#include "common/alloc.h"

#include <string.h>

struct psp_lending {
    psp_pool_t *pool;
    psp_memory_t *memory; /* the pool's */
    uint32_t n_peers;
    psp_memory_map_t **maps; /* [n_peers] theirs; NULL: none */
    bool *accepted;          /* [n_peers] ours */
    psp_buffer_t **lent;
    size_t n_lent, room, cursor;
};

void psp_lending_destroy(psp_lending_t *lending, bool in_use)
{
    if (lending == NULL)
        return;
    while (lending->n_lent != 0) {
        psp_buffer_t *buffer = lending->lent[--lending->n_lent];
        if (psp_memory_is_back(lending->memory, buffer))
            psp_buffer_put(buffer);
        else
            psp_buffer_abandon(buffer);
    }
    for (uint32_t peer = 0; !in_use && lending->maps != NULL && peer < lending->n_peers; peer++)
        psp_memory_close(lending->maps[peer]);
    psc_free(lending->maps);
    psc_free(lending->accepted);
    psc_free(lending->lent);
    psc_free(lending);
}

psp_lending_t *psp_lending_create(psp_pool_t *pool, uint32_t n_peers)
{
    psp_lending_t *lending = psc_alloc_zeroed(1, sizeof *lending);
    if (lending == NULL)
        return NULL;
    lending->pool = pool;
    lending->n_peers = n_peers;
    lending->maps = psc_alloc_zeroed(n_peers, sizeof(psp_memory_map_t *));
    lending->accepted = psc_alloc_zeroed(n_peers, sizeof *lending->accepted);
    if (lending->maps == NULL || lending->accepted == NULL || psc_memory_host() == 0 ||
        psp_memory_create(&lending->memory, NULL) != PSC_OK) {
        psp_lending_destroy(lending, false);
        return NULL;
    }
    psp_pool_use(pool, lending->memory);
    return lending;
}

/* A small message. */
static psc_status_t write_note(psp_pool_t *pool, uint32_t tag, const void *bytes, size_t size,
                               psp_buffer_t **note_out, psc_error_t *error)
{
    psc_status_t st = psp_buffer_get(pool, size, note_out, error);
    if (st != PSC_OK)
        return st;
    (*note_out)->kind = tag;
    (*note_out)->size = size;
    if (size != 0)
        memcpy((*note_out)->data, bytes, size);
    return PSC_OK;
}

psc_status_t psp_lending_offer(const psp_lending_t *lending, psp_buffer_t **offer_out,
                               psc_error_t *error)
{
    const psp_memory_where_t where = psp_memory_where(lending->memory);
    return write_note(lending->pool, PSP_TAG_OFFER, &where, sizeof where, offer_out, error);
}

/* ---- sending ---- */

bool psp_lending_can(const psp_lending_t *lending, uint32_t peer, const psp_buffer_t *buffer)
{
    return lending != NULL && lending->accepted[peer] && psp_memory_owns(lending->memory, buffer);
}

psc_status_t psp_lending_lend(psp_lending_t *lending, psp_buffer_t *buffer, psp_buffer_t **slip_out,
                              psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    if (lending->n_lent == lending->room) {
        const size_t room = lending->room != 0 ? 2 * lending->room : 64;
        psp_buffer_t **lent = psc_realloc_array(lending->lent, room, sizeof(psp_buffer_t *));
        if (lent == NULL)
            st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for %zu messages", room);
        else
            lending->lent = lent;
        lending->room = lent != NULL ? room : lending->room;
    }
    psp_memory_place_t place = {0};
    if (st == PSC_OK)
        st = write_note(lending->pool, buffer->kind | PSP_TAG_LENT, &place, sizeof place, slip_out,
                        error);
    if (st != PSC_OK) {
        psp_buffer_put(buffer);
        return st;
    }
    place = psp_memory_lend(lending->memory, buffer);
    memcpy((*slip_out)->data, &place, sizeof place);
    lending->lent[lending->n_lent++] = buffer;
    return PSC_OK;
}

size_t psp_lending_n_lent(const psp_lending_t *lending)
{
    return lending != NULL ? lending->n_lent : 0;
}

static void take_back(psp_lending_t *lending, size_t i, size_t *backlog)
{
    psp_buffer_t *buffer = lending->lent[i];
    backlog[buffer->peer] -= buffer->size;
    lending->lent[i] = lending->lent[--lending->n_lent];
    psp_buffer_put(buffer);
}

void psp_lending_collect(psp_lending_t *lending, size_t count, size_t *backlog)
{
    if (count > lending->n_lent)
        count = lending->n_lent;
    for (; count != 0 && lending->n_lent != 0; count--) {
        if (lending->cursor >= lending->n_lent)
            lending->cursor = 0;
        if (psp_memory_is_back(lending->memory, lending->lent[lending->cursor]))
            take_back(lending, lending->cursor, backlog); /* another has its place now */
        else
            lending->cursor++;
    }
}

void psp_lending_forget(psp_lending_t *lending, uint32_t peer, size_t *backlog)
{
    for (size_t i = psp_lending_n_lent(lending); i-- != 0;) /* another takes the place of one */
        if (lending->lent[i]->peer == peer)
            take_back(lending, i, backlog);
}

/* ---- receiving ---- */

static psc_status_t accept_offer(psp_lending_t *lending, const psp_buffer_t *offer,
                                 psp_buffer_t **answer_out, psc_error_t *error)
{
    psp_memory_where_t where;
    if (offer->size != sizeof where)
        return psc_error_set(error, PSC_PROTOCOL, "an offer of %zu bytes", offer->size);
    memcpy(&where, offer->data, sizeof where);
    if (lending->maps[offer->peer] != NULL ||
        psp_memory_open(&where, &lending->maps[offer->peer], NULL) != PSC_OK)
        return PSC_OK; /* then all goes by MPI */
    return write_note(lending->pool, PSP_TAG_ACCEPT, NULL, 0, answer_out, error);
}

static psc_status_t borrow(psp_lending_t *lending, const psp_buffer_t *slip,
                           psp_buffer_t **buffer_out, psc_error_t *error)
{
    psp_memory_place_t place;
    const psp_memory_map_t *map = lending->maps[slip->peer];
    if (slip->size != sizeof place || map == NULL)
        return psc_error_set(error, PSC_PROTOCOL, "a message at a place, but %s",
                             map == NULL ? "no memory was accepted" : "the place is malformed");
    memcpy(&place, slip->data, sizeof place);
    return psp_memory_borrow(map, lending->pool, &place, buffer_out, error);
}

psc_status_t psp_lending_receive(psp_lending_t *lending, psp_buffer_t **buffer,
                                 psp_buffer_t **answer_out, psc_error_t *error)
{
    psp_buffer_t *note = *buffer;
    psc_status_t st = PSC_OK;
    *buffer = *answer_out = NULL;
    if (lending == NULL)
        ; /* its offers are not accepted */
    else if (note->kind == PSP_TAG_OFFER)
        st = accept_offer(lending, note, answer_out, error);
    else if (note->kind == PSP_TAG_ACCEPT)
        lending->accepted[note->peer] = true;
    else if (note->kind < 2 * PSP_TAG_LENT)
        st = borrow(lending, note, buffer, error);
    else
        st = psc_error_set(error, PSC_PROTOCOL, "a message of kind %u", note->kind);
    if (*buffer != NULL) {
        (*buffer)->peer = note->peer;
        (*buffer)->kind = note->kind & (PSP_TAG_LENT - 1);
    }
    psp_buffer_put(note);
    return st;
}
