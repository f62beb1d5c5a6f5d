/*
 * Blocks of exports, watches and imports to bytes: rows, their counts and the optimizer's state.
 *
 * A block's bulk fields are left for the caller to fill where they will be sent from, like those of
 * pulls and pushes (message_pack.c); the rows stand last and aligned. Any thread.
 */
#include "proto/pack_inside.h"

/* The four bulk fields of a block of n rows; in the order in which they are sent. */
typedef struct layout {
    psp_bulk_t bulk[4];
} layout_t;

static layout_t lay_out(size_t n, bool counted, uint32_t state_floats, size_t row_bytes,
                        psp_block_t *block)
{
    return (layout_t){{
        {9, counted ? psp_bulk_bytes(n, 2 * sizeof(uint32_t)) : 0, NULL, &block->counts},
        {10, psp_bulk_bytes(n, state_floats * sizeof(float)), NULL, &block->state},
        {14, psp_bulk_bytes(n, sizeof(uint64_t)), NULL, &block->ids},
        {15, psp_bulk_bytes(n, row_bytes), NULL, &block->rows},
    }};
}

static psc_status_t check_cursor(psp_kind_t kind, size_t size, psc_error_t *error)
{
    if (size <= PSP_CURSOR_MAX)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: a cursor of %zu bytes, over %u",
                         psp_kind_name(kind), size, PSP_CURSOR_MAX);
}

/* What a request for blocks asks. */
static psc_status_t check_question(psp_kind_t kind, psp_format_t format, size_t cursor_size,
                                   psc_error_t *error)
{
    psc_status_t st = psp_pack_check_format(kind, format, error);
    return st == PSC_OK ? check_cursor(kind, cursor_size, error) : st;
}

static psc_status_t check_answer(psp_kind_t kind, const psp_export_reply_t *block,
                                 psc_error_t *error)
{
    psc_status_t st = psp_pack_check_rows(kind, block->dim, block->format, error);
    return st == PSC_OK ? check_cursor(kind, block->next_size, error) : st;
}

psc_status_t psp_pack_export(psp_pool_t *pool, const psp_message_t *message,
                             psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_export_t *from = &message->u.export;
    psc_status_t st = check_question(PSP_EXPORT, from->format, from->cursor_size, error);
    if (st != PSC_OK)
        return st;
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__ExportRequest to = EMBPS__V1__EXPORT_REQUEST__INIT;
    to.header = &head;
    to.table = from->table;
    to.table_epoch = from->table_epoch;
    to.format = (Embps__V1__WireFormat)from->format;
    to.want_state = from->want_state;
    to.max_rows = from->max_rows;
    to.cursor.len = from->cursor_size;
    to.cursor.data = (uint8_t *)from->cursor;
    return psp_pack(pool, PSP_EXPORT, &to.base, NULL, 0, buffer_out, error);
}

psc_status_t psp_export_reply_begin(psp_pool_t *pool, const psp_reply_header_t *header,
                                    const psp_export_reply_t *reply, psp_buffer_t **buffer_out,
                                    psp_block_t *block_out, psc_error_t *error)
{
    psc_status_t st = check_answer(PSP_EXPORT_REPLY, reply, error);
    if (st != PSC_OK)
        return st;
    Embps__V1__ReplyHeader head = psp_pack_reply_header(header);
    Embps__V1__ExportReply to = EMBPS__V1__EXPORT_REPLY__INIT;
    to.header = &head;
    to.dim = reply->dim;
    to.format = (Embps__V1__WireFormat)reply->format;
    to.state_floats = reply->state_floats;
    to.next.len = reply->next_size;
    to.next.data = (uint8_t *)reply->next;
    const layout_t layout = lay_out(reply->n, reply->counts != NULL, reply->state_floats,
                                    psp_row_bytes(reply->format, reply->dim), block_out);
    return psp_pack(pool, PSP_EXPORT_REPLY, &to.base, layout.bulk, 4, buffer_out, error);
}

psc_status_t psp_import_begin(psp_pool_t *pool, const psp_request_header_t *header,
                              const psp_import_t *import, psp_buffer_t **buffer_out,
                              psp_block_t *block_out, psc_error_t *error)
{
    const psp_push_t *from = &import->rows;
    psc_status_t st = psp_pack_check_rows(PSP_IMPORT, from->dim, from->format, error);
    if (st != PSC_OK)
        return st;
    Embps__V1__RequestHeader head = psp_pack_request_header(header);
    Embps__V1__ImportRequest to = EMBPS__V1__IMPORT_REQUEST__INIT;
    to.header = &head;
    to.table = from->table;
    to.table_epoch = from->table_epoch;
    to.dim = from->dim;
    to.format = (Embps__V1__WireFormat)from->format;
    to.state_floats = import->state_floats;
    const layout_t layout = lay_out(from->n, import->counts != NULL, import->state_floats,
                                    psp_row_bytes(from->format, from->dim), block_out);
    return psp_pack(pool, PSP_IMPORT, &to.base, layout.bulk, 4, buffer_out, error);
}

psc_status_t psp_pack_import_reply(psp_pool_t *pool, const psp_message_t *message,
                                   psp_buffer_t **buffer_out, psc_error_t *error)
{
    Embps__V1__ReplyHeader head = psp_pack_reply_header(&message->reply);
    Embps__V1__ImportReply to = EMBPS__V1__IMPORT_REPLY__INIT;
    to.header = &head;
    to.rows = message->u.import_reply.rows;
    to.created = message->u.import_reply.created;
    return psp_pack(pool, PSP_IMPORT_REPLY, &to.base, NULL, 0, buffer_out, error);
}

psc_status_t psp_pack_watch(psp_pool_t *pool, const psp_message_t *message,
                            psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_watch_t *from = &message->u.watch;
    psc_status_t st = check_question(PSP_WATCH, from->format, from->cursor_size, error);
    if (st != PSC_OK)
        return st;
    Embps__V1__RequestHeader head = psp_pack_request_header(&message->request);
    Embps__V1__WatchRequest to = EMBPS__V1__WATCH_REQUEST__INIT;
    to.header = &head;
    to.table = from->table;
    to.table_epoch = from->table_epoch;
    to.format = (Embps__V1__WireFormat)from->format;
    to.want_rows = from->want_rows;
    to.max_rows = from->max_rows;
    to.wait_ms = from->wait_ms;
    to.end = from->end;
    to.cursor.len = from->cursor_size;
    to.cursor.data = (uint8_t *)from->cursor;
    return psp_pack(pool, PSP_WATCH, &to.base, NULL, 0, buffer_out, error);
}

psc_status_t psp_watch_reply_begin(psp_pool_t *pool, const psp_reply_header_t *header,
                                   const psp_watch_reply_t *reply, psp_buffer_t **buffer_out,
                                   psp_block_t *block_out, psc_error_t *error)
{
    const psp_export_reply_t *from = &reply->block;
    psc_status_t st = check_answer(PSP_WATCH_REPLY, from, error);
    if (st != PSC_OK)
        return st;
    Embps__V1__ReplyHeader head = psp_pack_reply_header(header);
    Embps__V1__WatchReply to = EMBPS__V1__WATCH_REPLY__INIT;
    to.header = &head;
    to.dim = from->dim;
    to.format = (Embps__V1__WireFormat)from->format;
    to.lost = reply->lost;
    to.next.len = from->next_size;
    to.next.data = (uint8_t *)from->next;
    const size_t row_bytes = from->rows != NULL ? psp_row_bytes(from->format, from->dim) : 0;
    const layout_t layout = lay_out(from->n, false, 0, row_bytes, block_out);
    return psp_pack(pool, PSP_WATCH_REPLY, &to.base, layout.bulk, 4, buffer_out, error);
}
