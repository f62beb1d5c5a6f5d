/*
 * Bytes to blocks of exports, watches and imports, and to the requests of them.
 *
 * A block's counts must agree: as many ids as rows, two counts a row or none, the state of every
 * row or of none. Whether they fit a table is for the receiver. Any thread.
 */
#include "proto/embps.pb-c.h"
#include "proto/unpack_inside.h"

/* Where the bulk fields of a block are found (message.c). */
enum { IDS, ROWS, COUNTS, STATE };

static psc_status_t read_cursor(const psp_unpacker_t *u, const ProtobufCBinaryData *from,
                                size_t *size_out, uint8_t to[PSP_CURSOR_MAX])
{
    if (from->len > PSP_CURSOR_MAX)
        return psp_unpack_refuse_number(u, "size of a cursor", from->len);
    *size_out = from->len;
    if (from->len != 0)
        memcpy(to, from->data, from->len);
    return PSC_OK;
}

psc_status_t psp_unpack_export(const psp_unpacker_t *u, const void *message, psp_export_t *to)
{
    const Embps__V1__ExportRequest *from = message;
    *to = (psp_export_t){.table = from->table,
                         .table_epoch = from->table_epoch,
                         .want_state = from->want_state != 0,
                         .max_rows = from->max_rows};
    psc_status_t st = read_cursor(u, &from->cursor, &to->cursor_size, to->cursor);
    return st == PSC_OK ? psp_unpack_format(u, (uint32_t)from->format, &to->format) : st;
}

/* Counts that disagree. */
static psc_status_t check_block(const psp_unpacker_t *u, size_t n, size_t row_bytes,
                                uint32_t state_floats)
{
    const psp_run_t *counts = &u->bulk[COUNTS];
    if (!psp_run_holds(&u->bulk[ROWS], n, row_bytes))
        return psp_unpack_refuse(u, "it has not as many rows as ids");
    if (counts->size != 0 && !psp_run_holds(counts, n, 2 * sizeof(uint32_t)))
        return psp_unpack_refuse(u, "it has not two counts for each id");
    if (!psp_run_holds(&u->bulk[STATE], n, state_floats * sizeof(float)))
        return psp_unpack_refuse(u, "it has not the state of as many rows as ids");
    return PSC_OK;
}

static const uint8_t *start_of(const psp_unpacker_t *u, int field)
{
    return u->bulk[field].size != 0 ? u->bulk[field].start : u->data;
}

psc_status_t psp_unpack_export_reply(const psp_unpacker_t *u, const void *message,
                                     psp_export_reply_t *to)
{
    const Embps__V1__ExportReply *from = message;
    *to = (psp_export_reply_t){.dim = from->dim,
                               .state_floats = from->state_floats,
                               .n = u->bulk[IDS].size / sizeof(uint64_t),
                               .ids = start_of(u, IDS),
                               .counts = u->bulk[COUNTS].size != 0 ? u->bulk[COUNTS].start : NULL,
                               .state = start_of(u, STATE),
                               .rows = start_of(u, ROWS)};
    psc_status_t st = psp_unpack_rows(u, from->dim, (uint32_t)from->format, &to->format);
    if (st == PSC_OK)
        st = read_cursor(u, &from->next, &to->next_size, to->next);
    if (st == PSC_OK)
        st = check_block(u, to->n, psp_row_bytes(to->format, to->dim), to->state_floats);
    return st;
}

psc_status_t psp_unpack_import(const psp_unpacker_t *u, const void *message, psp_import_t *to)
{
    const Embps__V1__ImportRequest *from = message;
    *to = (psp_import_t){.rows = {.table = from->table,
                                  .table_epoch = from->table_epoch,
                                  .kind = PSP_PUSH_ASSIGN,
                                  .dim = from->dim,
                                  .n = u->bulk[IDS].size / sizeof(uint64_t),
                                  .ids = start_of(u, IDS),
                                  .rows = start_of(u, ROWS)},
                         .state_floats = from->state_floats,
                         .counts = u->bulk[COUNTS].size != 0 ? u->bulk[COUNTS].start : NULL,
                         .state = start_of(u, STATE)};
    psp_push_t *rows = &to->rows;
    psc_status_t st = psp_unpack_rows(u, from->dim, (uint32_t)from->format, &rows->format);
    if (st == PSC_OK)
        st = check_block(u, rows->n, psp_row_bytes(rows->format, rows->dim), to->state_floats);
    return st;
}

psc_status_t psp_unpack_watch(const psp_unpacker_t *u, const void *message, psp_watch_t *to)
{
    const Embps__V1__WatchRequest *from = message;
    *to = (psp_watch_t){.table = from->table,
                        .table_epoch = from->table_epoch,
                        .want_rows = from->want_rows != 0,
                        .max_rows = from->max_rows,
                        .wait_ms = from->wait_ms,
                        .end = from->end != 0};
    psc_status_t st = read_cursor(u, &from->cursor, &to->cursor_size, to->cursor);
    return st == PSC_OK ? psp_unpack_format(u, (uint32_t)from->format, &to->format) : st;
}

psc_status_t psp_unpack_watch_reply(const psp_unpacker_t *u, const void *message,
                                    psp_watch_reply_t *to)
{
    const Embps__V1__WatchReply *from = message;
    psp_export_reply_t *block = &to->block;
    *to = (psp_watch_reply_t){.lost = from->lost != 0,
                              .block = {.dim = from->dim,
                                        .n = u->bulk[IDS].size / sizeof(uint64_t),
                                        .ids = start_of(u, IDS),
                                        .state = u->data}};
    psc_status_t st = psp_unpack_rows(u, from->dim, (uint32_t)from->format, &block->format);
    if (st == PSC_OK)
        st = read_cursor(u, &from->next, &block->next_size, block->next);
    if (st != PSC_OK || u->bulk[ROWS].size == 0)
        return st;
    block->rows = u->bulk[ROWS].start;
    if (!psp_run_holds(&u->bulk[ROWS], block->n, psp_row_bytes(block->format, block->dim)))
        return psp_unpack_refuse(u, "it has not as many rows as ids");
    return PSC_OK;
}
