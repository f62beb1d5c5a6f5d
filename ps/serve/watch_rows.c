/*
 * Watch: which rows of a table pushes have reached since the last time, and their values if wanted.
 * Called when there is something to tell, or when nothing happened for as long as was asked for
 * (ps/table/watchers).
 *
 * Values are those of the moment of the answer, not of the push: a row that was pushed twice since
 * is told once, as it is. A row that has gone meanwhile is told with its initial value.
 */
#include "ps/serve/serve.h"
#include "ps/table/watchers.h"

/* Rows told at a time, out of so many that were noted. */
#define ROWS 4096u

static size_t most_rows(const ps_shard_t *shard, const ps_request_t *request)
{
    const psp_watch_t *watch = &request->message.u.watch;
    const ps_table_t *table = request->table;
    size_t most = watch->want_rows
                      ? psp_rows_per_block(table->dim, 0, shard->options.max_message_bytes)
                      : ROWS;
    if (watch->want_rows && table->max_rows < most)
        most = table->max_rows;
    most = most < ROWS ? most : ROWS;
    return watch->max_rows != 0 && watch->max_rows < most ? watch->max_rows : most;
}

/* What there is to tell: ids and hashes to the request's space; where the next one begins to its
 * message. */
static psc_status_t read_log(ps_shard_t *shard, ps_request_t *request, bool *lost_out,
                             psc_error_t *error)
{
    psp_watch_t *watch = &request->message.u.watch;
    ps_watch_place_t place;
    ps_watch_log_t *log;
    *lost_out = false;
    psc_status_t st =
        ps_shard_find_table(shard, watch->table, watch->table_epoch, &request->table, error);
    if (st == PSC_OK)
        st = ps_watch_read_cursor(watch->cursor, watch->cursor_size, &place, error);
    if (st == PSC_OK)
        st = ps_watchers_log(shard, request->table, &log, error);
    if (st != PSC_OK)
        return st;
    const size_t most = most_rows(shard, request);
    st = ps_shard_reserve(shard, request, most, error);
    if (st != PSC_OK)
        return st;
    ps_space_t *space = request->space;
    size_t n = 0;
    if (watch->cursor_size == 0)
        place = ps_watch_log_end(log);
    else
        n = ps_watch_log_read(log, &place, space->ids, most, lost_out);
    for (size_t i = 0; i < n; i++)
        space->hashes[i] = psc_row_hash(request->table->number, space->ids[i]);
    ps_shard_set_located(request, n);
    watch->cursor_size = PS_WATCH_CURSOR_BYTES;
    ps_watch_write_cursor(&place, watch->cursor);
    request->batch.n = n;
    return PSC_OK;
}

static psc_status_t answer(ps_shard_t *shard, ps_request_t *request, bool lost, psc_error_t *error)
{
    const psp_watch_t *watch = &request->message.u.watch;
    const size_t n = request->batch.n;
    const psp_reply_header_t header = ps_shard_reply_header(shard, &request->message);
    psp_watch_reply_t reply = {
        .lost = lost,
        .block = {.dim = request->table->dim,
                  .format = watch->format,
                  .next_size = watch->cursor_size,
                  .n = n,
                  .rows = watch->want_rows ? (const uint8_t *)request->space->ids : NULL}};
    psp_buffer_t *buffer;
    psp_block_t block;
    memcpy(reply.block.next, watch->cursor, watch->cursor_size);
    psc_status_t st =
        psp_watch_reply_begin(shard->options.pool, &header, &reply, &buffer, &block, error);
    if (st != PSC_OK)
        return st;
    memcpy(block.ids, request->space->ids, n * sizeof *request->space->ids);
    if (watch->want_rows && n != 0) {
        const ps_growth_rows_t rows = ps_shard_rows(shard, request, n);
        uint8_t *states = request->space->states;
        size_t absent = ps_rows_inspect(&rows.rows, states, NULL);
        if (request->table->growth != NULL)
            absent = ps_growth_inspect(&rows, states, NULL);
        ps_rows_gather(&rows.rows, absent != 0 ? states : NULL, watch->format, block.rows);
    }
    ps_shard_release(shard, request);
    ps_shard_send(shard, request, buffer);
    shard->counters.rows_watched += n;
    request->state = PS_REQUEST_DONE;
    return PSC_OK;
}

psc_status_t ps_serve_watch(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                            psc_error_t *error)
{
    (void)session;
    bool lost = false, ready = true;
    psc_status_t st = PSC_OK;
    if (!request->located)
        st = read_log(shard, request, &lost, error);
    if (st == PSC_OK && request->message.u.watch.want_rows && request->batch.n != 0)
        st = ps_shard_prepare(shard, request, PS_BATCH_READ, NULL, request->batch.n, &ready, error);
    return st == PSC_OK && ready ? answer(shard, request, lost, error) : st;
}
