/*
 * Push: applied whole or refused whole, and exactly once.
 *
 * Everything that can be refused is checked before a row is touched: table, width, size,
 * finiteness. From the moment its rows are there nothing can fail but memory for decoding and for
 * merging duplicates, which is had before any weight changes. Rows in other formats than float32
 * are decoded once they can be applied, so what waits is no larger than its message. Sequences of a
 * session only grow (its messages arrive in order), so one number tells a push that was applied
 * before: it is acknowledged again and not applied.
 *
 * A synchronous push of one of several workers is checked and acknowledged like any other, but kept
 * (ps/table/clock_sum.h) until all workers have ended its clock. The sums over the workers come
 * here again, as pushes without a message.
 *
 * An import goes the same way, as a push that assigns, and brings what stands beside the weights.
 */
#include "ps/serve/push.h"

#include "common/alloc.h"

#include <inttypes.h>

/* The rows of a push or an import. */
static const psp_push_t *push_of(const ps_request_t *request)
{
    return request->message.kind == PSP_IMPORT ? &request->message.u.import.rows
                                               : &request->message.u.push;
}

static psc_status_t check_values(const ps_table_t *table, psp_kind_t kind, const psp_push_t *push,
                                 psc_error_t *error)
{
    /* float32 that came unaligned was copied with the request. The rate was checked before. */
    size_t bad =
        push->format == PSP_FORMAT_F32
            ? ps_rows_find_nonfinite((const float *)(const void *)push->rows, push->n, push->dim)
            : ps_rows_find_nonfinite_coded(push->rows, push->format, push->n, push->dim);
    if (bad == push->n)
        return PSC_OK;
    uint64_t id = psp_id_at(push->ids, bad);
    psc_status_t st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                                    "%s to table %.80s: row %" PRIu64
                                    " has a value that is not finite; nothing was applied",
                                    psp_kind_name(kind), table->name, id);
    if (error != NULL)
        error->id = id;
    return st;
}

bool ps_push_restores(const ps_request_t *request)
{
    return request->message.kind == PSP_IMPORT && request->message.u.import.counts != NULL;
}

psc_status_t ps_push_check(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_push_t *push = push_of(request);
    psc_status_t st =
        ps_shard_find_table(shard, push->table, push->table_epoch, &request->table, error);
    if (st != PSC_OK)
        return st;
    const ps_table_t *table = request->table;
    if (request->message.request.sequence == 0)
        return psc_error_set(error, PSC_PROTOCOL, "a push without a sequence number");
    if (push->dim != table->dim)
        return psc_error_set(error, PSC_MISMATCH,
                             "push of rows of dim %" PRIu32 " to table %.80s of dim %" PRIu32,
                             push->dim, table->name, table->dim);
    if (push->n > table->max_rows)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "push of %zu rows to table %.80s: at most %zu fit in one message",
                             push->n, table->name, table->max_rows);
    return ps_push_restores(request) ? PSC_OK
                                     : check_values(table, request->message.kind, push, error);
}

/* What an import brings beside the weights of its rows. None has place 0: rows that are assigned
 * are always reached. */
static void set_beside(const ps_rows_t *rows, const psp_import_t *import)
{
    uint8_t *base = ps_store_base(rows->store);
    const size_t state_bytes = import->state_floats * sizeof(float);
    for (size_t i = 0; i < rows->n; i++) {
        ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        if (state_bytes != 0)
            ps_row_set_state(rows->table, row, rows->scratch, import->state + i * state_bytes);
        if (import->counts == NULL)
            continue;
        uint32_t counts[2];
        memcpy(counts, import->counts + i * sizeof counts, sizeof counts);
        row->version = counts[0] > row->version ? counts[0] : row->version;
        row->update_count = counts[1];
    }
}

/* Applies a push to rows of a table, or of its companion; those of place 0 are left out. import:
 * that it is part of, or NULL. */
static psc_status_t apply_to(ps_shard_t *shard, ps_table_t *table, ps_rows_t rows,
                             ps_rows_push_t push, const psp_import_t *import, psc_error_t *error)
{
    const ps_rows_t all = rows;
    ps_rows_claim_t claim;
    psc_status_t st = ps_rows_reserve_firsts(&shard->merge, rows.n, error);
    if (st != PSC_OK)
        return st;
    ps_rows_claim(&rows, &push, shard->merge.firsts, &claim);
    if (claim.repeated + claim.left_out != 0) {
        st = ps_rows_merge(&rows, &push, &shard->merge, &rows, &push, error);
        if (st != PSC_OK)
            return st;
        shard->counters.pushes_merged += claim.repeated != 0;
    }
    table->created += claim.created;
    shard->counters.rows_created += claim.created;
    shard->counters.rows_padded += claim.padded;
    if (table->growth != NULL)
        ps_growth_before_apply(table->growth, &rows);
    ps_rows_apply(&rows, &push);
    if (import != NULL)
        set_beside(&all, import);
    if (table->log != NULL) {
        ps_watch_log_note(table->log, rows.ids, rows.n);
        shard->watchers.news = true;
    }
    if (table->growth != NULL)
        ps_growth_after_apply(table->growth, &rows);
    return PSC_OK;
}

/* The same for a table that grows: some rows come into being, others are not reached. */
static psc_status_t apply_growing(ps_shard_t *shard, const ps_request_t *request,
                                  const ps_growth_rows_t *rows, const ps_rows_push_t *push,
                                  const psp_import_t *import, psc_error_t *error)
{
    ps_table_t *table = request->table;
    bool shares = rows->shared.n != 0;
    ps_growth_push_t growing = {.push = *push,
                                .kept = request->space->versions,
                                .redirected = shares ? request->shared_space->versions : NULL};
    size_t created = 0;
    size_t missed = ps_growth_admit(rows, &growing, &shard->counters.growth, &created);
    table->created += created;
    shard->counters.rows_created += created;
    ps_rows_t reached = rows->rows, shared = rows->shared;
    reached.places = growing.kept;
    shared.places = growing.redirected;
    psc_status_t st = apply_to(shard, table, reached, *push, import, error);
    if (st == PSC_OK && shares && missed != 0)
        st = apply_to(shard, &table->growth->companion, shared, *push, NULL, error);
    return st;
}

/* The values of a push as floats: where they came, or decoded. */
static psc_status_t decode(ps_shard_t *shard, const psp_push_t *push, const float **values_out,
                           psc_error_t *error)
{
    if (push->format == PSP_FORMAT_F32) {
        *values_out = (const float *)(const void *)push->rows;
        return PSC_OK;
    }
    const psp_row_format_t *coder = psp_row_format(push->format);
    const size_t dim = push->dim, bytes = psp_row_bytes(push->format, dim);
    const size_t n_floats = push->n * dim; /* at most max_rows of the table */
    if (n_floats > shard->n_decoded) {
        float *grown = psc_realloc_array(shard->decoded, n_floats, sizeof *grown);
        if (grown == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a push of %zu rows",
                                 push->n);
        shard->decoded = grown;
        shard->n_decoded = n_floats;
    }
    for (size_t i = 0; i < push->n; i++)
        coder->decode(shard->decoded + i * dim, push->rows + i * bytes, dim);
    *values_out = shard->decoded;
    return PSC_OK;
}

/* The rows are there: applies the push. */
static psc_status_t apply(ps_shard_t *shard, const ps_request_t *request, psc_error_t *error)
{
    const psp_push_t *message = push_of(request);
    const psp_import_t *import =
        request->message.kind == PSP_IMPORT ? &request->message.u.import : NULL;
    ps_table_t *table = request->table;
    psc_shared_control_t *control = ps_store_shared_control(shard->options.store);
    const float *values = NULL;
    psc_status_t st = decode(shard, message, &values, error);
    if (st != PSC_OK)
        return st;
    ps_growth_rows_t rows = ps_shard_rows(shard, request, message->n);
    ps_rows_push_t push = {.kind = message->kind,
                           .learning_rate = message->learning_rate,
                           .step = message->step,
                           .clock = ps_growth_clock(table->growth, request->message.request.clock),
                           .serial = ps_rows_take_serials(&shard->serial, message->n),
                           .values = values};
    psc_shared_begin(control, push.serial, (uint32_t)message->n);
    st = table->growth != NULL ? apply_growing(shard, request, &rows, &push, import, error)
                               : apply_to(shard, table, rows.rows, push, import, error);
    psc_shared_end(control);
    return st;
}

/* The reply with the rows as they are now. A table that grows has them not all, and sends none. */
static psc_status_t reply_rows(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_push_t *push = &request->message.u.push;
    psp_reply_header_t header = ps_shard_reply_header(shard, &request->message);
    const ps_growth_rows_t rows = ps_shard_rows(shard, request, push->n);
    const ps_space_t *space = request->space;
    psp_buffer_t *buffer;
    uint8_t *out;
    (void)ps_rows_inspect(&rows.rows, space->states, space->versions);
    const psp_push_reply_t reply = {.dim = request->table->dim,
                                    .format = push->reply_format,
                                    .n = push->n,
                                    .versions = (const uint8_t *)space->versions};
    psc_status_t st =
        psp_push_reply_begin(shard->options.pool, &header, &reply, &buffer, &out, error);
    if (st != PSC_OK)
        return st;
    ps_rows_gather(&rows.rows, space->states, push->reply_format, out);
    ps_shard_send(shard, request, buffer);
    shard->counters.rows_returned += push->n;
    return PSC_OK;
}

/* A checkpoint gets what the rows are before they change. False: its disk is behind. */
static bool keep_for_cut(ps_shard_t *shard, const ps_request_t *request)
{
    ps_store_t *store = shard->options.store;
    if (ps_store_cut_keep(store, &request->batch, NULL) != PSC_OK)
        return false;
    return !ps_growth_shares(request->table->growth) ||
           ps_store_cut_keep(store, &request->shared, NULL) == PSC_OK;
}

psc_status_t ps_push_apply_when_ready(ps_shard_t *shard, ps_request_t *request, bool *done_out,
                                      psc_error_t *error)
{
    const psp_push_t *push = push_of(request);
    psc_status_t st =
        ps_shard_prepare(shard, request, PS_BATCH_WRITE, push->ids, push->n, done_out, error);
    if (st == PSC_OK && *done_out && !keep_for_cut(shard, request)) {
        request->state = PS_REQUEST_WAIT_ROWS; /* for a disk too */
        *done_out = false;
    }
    if (st == PSC_OK && *done_out && (st = apply(shard, request, error)) == PSC_OK)
        ps_logger_push(shard, request);
    return st;
}

/* One of the sums over the pushes of a clock. */
static psc_status_t apply_summed(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    bool done;
    psc_status_t st = ps_push_apply_when_ready(shard, request, &done, error);
    if (st == PSC_OK && done) {
        ps_shard_release(shard, request);
        request->state = PS_REQUEST_DONE;
    }
    return st;
}

/* Keeps a synchronous push until its clock ends. *done_out false: it waits for that of another one
 * first. */
static psc_status_t defer(ps_shard_t *shard, const ps_session_t *session, ps_request_t *request,
                          bool *done_out, psc_error_t *error)
{
    const uint64_t clock = request->message.request.clock;
    *done_out = false;
    if (clock != session->clock)
        return psc_error_set(error, PSC_PROTOCOL,
                             "a synchronous push of clock %" PRIu64 ", but worker %" PRIu32
                             " is in clock %" PRIu64,
                             clock, request->buffer->peer, session->clock);
    if (clock > shard->clock || shard->summing)
        return ps_shard_wait_clock(shard, session, request, error);
    *done_out = true;
    return ps_shard_defer(shard, request, error);
}

psc_status_t ps_serve_push(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                           psc_error_t *error)
{
    const psp_push_t *push = &request->message.u.push;
    const uint64_t sequence = request->message.request.sequence;
    bool done = true, returned = false;
    psc_status_t st = PSC_OK;
    if (request->summed) /* acknowledged long ago */
        return apply_summed(shard, request, error);
    if (request->state == PS_REQUEST_QUEUED &&
        (st = ps_push_check(shard, request, error)) != PSC_OK)
        return st;
    if (sequence <= session->push_sequence) {
        shard->counters.pushes_repeated++;
    } else if (push->n != 0 && push->synchronous && shard->options.n_workers > 1 &&
               !ps_is_guest(&shard->sessions, request->buffer->peer)) {
        st = defer(shard, session, request, &done, error);
    } else if (push->n != 0) {
        st = ps_push_apply_when_ready(shard, request, &done, error);
        session->pushed_at_once = true;
    }
    if (st != PSC_OK || !done)
        return st;
    if (sequence > session->push_sequence) {
        session->push_sequence = sequence;
        shard->counters.rows_pushed += push->n;
        if (request->state != PS_REQUEST_DEFERRED &&
            !ps_is_guest(&shard->sessions, request->buffer->peer))
            ps_account_apply(&shard->account, push->n);
        returned = push->want_rows && push->n != 0 && request->table->growth == NULL &&
                   request->state != PS_REQUEST_DEFERRED;
        if (returned && (st = reply_rows(shard, request, error)) != PSC_OK)
            return st;
    }
    ps_shard_release(shard, request);
    if (request->state != PS_REQUEST_DEFERRED)
        request->state = PS_REQUEST_DONE;
    if (returned)
        return PSC_OK;
    return ps_shard_reply_bare(shard, request, NULL, error);
}
