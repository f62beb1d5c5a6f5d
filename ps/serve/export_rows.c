/*
 * Export: a block of the rows that a table has here. The walk over them is ps/table/exporter's;
 * here is what a block holds.
 *
 * Rows are read as they are when the block is made, all at one moment. Those that have nothing of
 * their own by then (erased since the walk saw them, expired) are left out, and a block of nothing
 * else is not worth a message: the walk goes on, a step at a time. The optimizer's state goes as
 * float32, which holds moments of 16 bits exactly.
 */
#include "ps/serve/serve.h"
#include "ps/table/exporter.h"

static psc_status_t check(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_export_t *asked = &request->message.u.export;
    ps_exporter_key_t key;
    psc_status_t st =
        ps_shard_find_table(shard, asked->table, asked->table_epoch, &request->table, error);
    return st == PSC_OK ? ps_exporter_read_cursor(asked->cursor, asked->cursor_size, &key, error)
                        : st;
}

/* Rows of a block at most. */
static size_t most_rows(const ps_shard_t *shard, const ps_request_t *request)
{
    const psp_export_t *asked = &request->message.u.export;
    const ps_table_t *table = request->table;
    const size_t fit = psp_rows_per_block(table->dim, (uint32_t)table->state_floats,
                                          shard->options.max_message_bytes);
    const size_t most = fit < table->max_rows ? fit : table->max_rows;
    return asked->max_rows != 0 && asked->max_rows < most ? asked->max_rows : most;
}

/* Moves the rows that are told to the front; returns how many. */
static size_t keep_present(ps_shard_t *shard, ps_request_t *request, size_t n)
{
    const ps_space_t *space = request->space;
    const ps_growth_rows_t rows = ps_shard_rows(shard, request, n);
    size_t n_kept = 0;
    (void)ps_rows_inspect(&rows.rows, space->states, NULL);
    if (request->table->growth != NULL)
        (void)ps_growth_inspect(&rows, space->states, NULL);
    for (size_t i = 0; i < n; i++) {
        if (space->states[i] != PSP_ROW_PRESENT)
            continue;
        space->ids[n_kept] = space->ids[i];
        space->hashes[n_kept] = space->hashes[i];
        space->places[n_kept] = space->places[i];
        n_kept++;
    }
    return n_kept;
}

static void write_state(const ps_rows_t *rows, const psp_block_t *block)
{
    uint8_t *base = ps_store_base(rows->store);
    const size_t bytes = rows->table->state_floats * sizeof(float);
    for (size_t i = 0; i < rows->n; i++) {
        const ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        const uint32_t counts[2] = {row->version, row->update_count};
        memcpy(block->counts + i * sizeof counts, counts, sizeof counts);
        if (bytes != 0)
            ps_row_copy_state(rows->table, row, rows->scratch, block->state + i * bytes);
    }
}

/* A block of the n rows at the front; those behind were looked at too. */
static psc_status_t answer(ps_shard_t *shard, ps_request_t *request, size_t n, psc_error_t *error)
{
    const psp_export_t *asked = &request->message.u.export;
    const ps_table_t *table = request->table;
    const ps_rows_t rows = ps_shard_rows(shard, request, n).rows;
    const psp_reply_header_t header = ps_shard_reply_header(shard, &request->message);
    psp_export_reply_t reply = {.dim = table->dim, .format = asked->format, .n = n};
    psp_buffer_t *buffer;
    psp_block_t block;
    if (asked->want_state) {
        reply.state_floats = (uint32_t)table->state_floats;
        reply.counts = (const uint8_t *)request->space->ids; /* there are some */
    }
    reply.next_size = ps_exporter_tell(shard, reply.next) ? PS_EXPORTER_CURSOR_BYTES : 0;
    psc_status_t st =
        psp_export_reply_begin(shard->options.pool, &header, &reply, &buffer, &block, error);
    if (st != PSC_OK)
        return st;
    memcpy(block.ids, rows.ids, n * sizeof *rows.ids);
    ps_rows_gather(&rows, NULL, asked->format, block.rows);
    if (asked->want_state)
        write_state(&rows, &block);
    ps_shard_release(shard, request);
    ps_exporter_release(shard, request);
    ps_shard_send(shard, request, buffer);
    shard->counters.rows_exported += n;
    request->state = PS_REQUEST_DONE;
    return PSC_OK;
}

psc_status_t ps_serve_export(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                             psc_error_t *error)
{
    (void)session;
    const psp_export_t *asked = &request->message.u.export;
    ps_exporter_key_t key;
    size_t n;
    bool ready;
    psc_status_t st = PSC_OK;
    if (request->state == PS_REQUEST_QUEUED)
        st = check(shard, request, error);
    if (st == PSC_OK)
        st = ps_exporter_read_cursor(asked->cursor, asked->cursor_size, &key, error);
    if (st == PSC_OK)
        st = ps_exporter_fill(shard, request, &key, most_rows(shard, request), &n, &ready, error);
    if (st != PSC_OK || !ready)
        return st;
    const size_t n_kept = keep_present(shard, request, n);
    uint8_t cursor[PS_EXPORTER_CURSOR_BYTES];
    ps_exporter_advance(shard);
    if (n_kept != 0 || !ps_exporter_tell(shard, cursor))
        return answer(shard, request, n_kept, error);
    ps_exporter_go_on(shard, request);
    return PSC_OK;
}
