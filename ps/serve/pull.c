/*
 * Pull: waits for the clocks that its staleness asks for, then for its rows, then gathers them
 * straight into the reply.
 *
 * Absent rows are told by their state and get their initial value; nothing is created. A batch that
 * waits for the disk holds the places of present rows but none for absent ones: if other sessions
 * create rows meanwhile, the batch is prepared again, this time with places for absent rows too, so
 * that the reply shows one moment of the table and the second wait is the last.
 *
 * A pull may tell which versions of its rows the client holds: those that did not change since are
 * answered as CURRENT, without a value. Not in tables that grow: a row that expires begins its
 * versions anew.
 *
 * When its deadline has passed, a pull is answered with what is in memory; rows that may be on disk
 * are LATE, and so are all of a pull that waits for clocks or behind other requests.
 */
#include "ps/serve/serve.h"

#include <inttypes.h>

static psc_status_t check(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_pull_t *pull = &request->message.u.pull;
    psc_status_t st =
        ps_shard_find_table(shard, pull->table, pull->table_epoch, &request->table, error);
    if (st != PSC_OK)
        return st;
    if (pull->n > request->table->max_rows)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "pull of %zu rows of table %.80s: at most %zu fit in one message",
                             pull->n, request->table->name, request->table->max_rows);
    return PSC_OK;
}

/* Whether a session that stays has to wait for slower workers. */
static bool too_early(const ps_shard_t *shard, const ps_request_t *request)
{
    uint32_t staleness = request->message.u.pull.staleness;
    uint64_t clock = request->message.request.clock;
    return !ps_is_guest(&shard->sessions, request->buffer->peer) &&
           staleness != PSP_STALENESS_ASYNC && clock > staleness &&
           shard->clock < clock - staleness;
}

/* Counts what was pulled, by state. */
static void count_rows(ps_shard_t *shard, const uint8_t *states, size_t n, size_t absent)
{
    ps_shard_counters_t *counters = &shard->counters;
    counters->rows_pulled += n;
    for (size_t i = 0; absent != 0 && i < n; i++) {
        counters->rows_initial += states[i] == PSP_ROW_INITIAL;
        counters->growth.pulled_not_admitted += states[i] == PSP_ROW_NOT_ADMITTED;
        counters->growth.pulled_expired += states[i] == PSP_ROW_EXPIRED;
    }
}

/* Rows whose version the client holds become CURRENT. Returns how many. */
static size_t mark_current(const psp_pull_t *pull, const ps_space_t *space)
{
    size_t current = 0;
    for (size_t i = 0; i < pull->n; i++) {
        uint32_t held;
        memcpy(&held, pull->versions + i * sizeof held, sizeof held);
        if (held != 0 && held == space->versions[i] && space->states[i] == PSP_ROW_PRESENT) {
            space->states[i] = PSP_ROW_CURRENT;
            current++;
        }
    }
    return current;
}

/* The rows that have a value, run by run. */
static void gather_some(const ps_rows_t *rows, const uint8_t *states, psp_format_t format,
                        uint8_t *out)
{
    const size_t row_bytes = psp_row_bytes(format, rows->table->dim);
    for (size_t i = 0; i < rows->n;) {
        size_t end = i;
        while (end < rows->n && psp_row_has_value(states[end]))
            end++;
        ps_rows_t run = *rows;
        run.n = end - i;
        run.ids += i;
        run.places += i;
        if (run.n != 0)
            ps_rows_gather(&run, states + i, format, out);
        out += run.n * row_bytes;
        for (i = end; i < rows->n && !psp_row_has_value(states[i]);)
            i++;
    }
}

/* Where the rows are, for a worker that can read them there; NULL: that is not possible. Not in
 * tables that grow, whose rows are not always what they show, and not of rows of 16 bits, nor for a
 * worker that wants rows in another format: it would see other bits. */
static const uint32_t *tell_places(const ps_shard_t *shard, const ps_request_t *request)
{
    const psp_pull_t *pull = &request->message.u.pull;
    const psc_shared_control_t *control = ps_store_shared_control(shard->options.store);
    const ps_table_t *table = request->table;
    if (!pull->want_places || control == NULL || table->growth != NULL ||
        table->precision != PSP_F32 || pull->format != PSP_FORMAT_F32 || pull->scan || pull->n == 0)
        return NULL;
    request->space->places[pull->n] = control->layout;
    return request->space->places;
}

/* absent: rows that are not there. */
static psc_status_t answer(ps_shard_t *shard, ps_request_t *request, size_t absent,
                           const ps_growth_rows_t *rows, psc_error_t *error)
{
    const psp_pull_t *pull = &request->message.u.pull;
    psp_reply_header_t header = ps_shard_reply_header(shard, &request->message);
    const ps_space_t *space = request->space;
    psp_buffer_t *buffer;
    uint8_t *out;
    const size_t current =
        pull->versions != NULL && request->table->growth == NULL ? mark_current(pull, space) : 0;
    const uint8_t *states = absent + current != 0 ? space->states : NULL;
    const psp_pull_reply_t reply = {
        .dim = request->table->dim,
        .format = pull->format,
        .n = pull->n,
        .versions = pull->want_versions ? (const uint8_t *)space->versions : NULL,
        .states = states,
        .places = (const uint8_t *)tell_places(shard, request)};
    psc_status_t st =
        psp_pull_reply_begin(shard->options.pool, &header, &reply, &buffer, &out, error);
    if (st != PSC_OK)
        return st;
    if (current != 0)
        gather_some(&rows->rows, states, pull->format, out);
    else if (pull->n != 0)
        ps_rows_gather(&rows->rows, states, pull->format, out);
    if (absent != 0)
        ps_growth_gather_shared(rows, space->states, pull->format, out);
    ps_shard_send(shard, request, buffer);
    count_rows(shard, space->states, pull->n, absent);
    shard->counters.rows_scanned += pull->scan ? pull->n : 0;
    shard->counters.rows_current += current;
    request->state = PS_REQUEST_DONE;
    return PSC_OK;
}

/* Looks up what is in memory; space->late tells what is not. */
static void find_what_is_there(ps_shard_t *shard, ps_request_t *request, size_t n)
{
    const ps_space_t *space = request->space, *shared = request->shared_space;
    ps_store_t *store = shard->options.store;
    (void)ps_store_peek(store, request->table->number, space->ids, space->hashes, n, space->places,
                        space->late);
    ps_growth_rows_t rows = ps_shard_rows(shard, request, n);
    (void)ps_rows_inspect(&rows.rows, space->states, space->versions);
    if (request->table->growth != NULL)
        (void)ps_growth_inspect(&rows, space->states, space->versions);
    if (rows.shared.n == 0)
        return;
    (void)ps_store_peek(store, rows.shared.table->number, shared->ids, shared->hashes, n,
                        shared->places, shared->late);
    for (size_t i = 0; i < n; i++)
        space->late[i] |= space->states[i] == PSP_ROW_NOT_ADMITTED && shared->late[i];
}

/* Moves the rows that have a value to the front, in their order; returns how many. */
static size_t leave_out_others(const ps_request_t *request, size_t n)
{
    const ps_space_t *space = request->space, *shared = request->shared_space;
    size_t n_there = 0;
    for (size_t i = 0; i < n; i++) {
        if (!psp_row_has_value(space->states[i]))
            continue;
        space->ids[n_there] = space->ids[i];
        space->hashes[n_there] = space->hashes[i];
        space->places[n_there] = space->places[i];
        space->states[n_there] = space->states[i];
        if (shared != NULL) {
            shared->ids[n_there] = shared->ids[i];
            shared->places[n_there] = shared->places[i];
        }
        n_there++;
    }
    return n_there;
}

/* all_late: no row may be answered. */
static psc_status_t answer_overdue(ps_shard_t *shard, ps_request_t *request, bool all_late,
                                   psc_error_t *error)
{
    const psp_pull_t *pull = &request->message.u.pull;
    ps_shard_release(shard, request);
    psc_status_t st = ps_shard_locate(shard, request, pull->ids, pull->n, error);
    if (st != PSC_OK)
        return st;
    const ps_space_t *space = request->space;
    if (!all_late && pull->n != 0)
        find_what_is_there(shard, request, pull->n);
    size_t n_late = 0;
    for (size_t i = 0; i < pull->n; i++) {
        if (!all_late && space->late[i] == 0)
            continue;
        space->states[i] = PSP_ROW_LATE;
        space->versions[i] = 0;
        n_late++;
    }
    if (pull->versions != NULL && request->table->growth == NULL)
        (void)mark_current(pull, space);
    psp_reply_header_t header = ps_shard_reply_header(shard, &request->message);
    psp_buffer_t *buffer;
    uint8_t *out;
    const psp_pull_reply_t reply = {
        .dim = request->table->dim,
        .format = pull->format,
        .n = pull->n,
        .versions = pull->want_versions ? (const uint8_t *)space->versions : NULL,
        .states = space->states};
    st = psp_pull_reply_begin(shard->options.pool, &header, &reply, &buffer, &out, error);
    if (st != PSC_OK)
        return st;
    count_rows(shard, space->states, pull->n, pull->n);
    size_t n_there = leave_out_others(request, pull->n);
    ps_growth_rows_t rows = ps_shard_rows(shard, request, n_there);
    if (n_there != 0) {
        ps_rows_gather(&rows.rows, space->states, pull->format, out);
        ps_growth_gather_shared(&rows, space->states, pull->format, out);
    }
    ps_shard_send(shard, request, buffer);
    shard->counters.rows_late += n_late;
    request->state = PS_REQUEST_DONE;
    return PSC_OK;
}

/*
 * The usual pull at once: rows of a float32 table that are all in memory, about which nothing is
 * asked. Tried while it is the usual one; done: request->state says so.
 */
static psc_status_t answer_hot(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_pull_t *pull = &request->message.u.pull;
    ps_table_t *table = request->table;
    bool asks = pull->want_versions || pull->versions != NULL || pull->want_places ||
                pull->format != PSP_FORMAT_F32;
    if (!table->all_hot || request->prepared || request->exact || asks)
        return PSC_OK;
    psc_status_t st = ps_shard_locate(shard, request, pull->ids, pull->n, error);
    if (st != PSC_OK)
        return st;
    psp_reply_header_t header = ps_shard_reply_header(shard, &request->message);
    psp_buffer_t *buffer;
    uint8_t *out;
    const psp_pull_reply_t reply = {.dim = table->dim, .n = pull->n};
    st = psp_pull_reply_begin(shard->options.pool, &header, &reply, &buffer, &out, error);
    if (st != PSC_OK)
        return st;
    const ps_batch_t batch = {.table = table->number,
                              .n = pull->n,
                              .ids = request->space->ids,
                              .hashes = request->space->hashes,
                              .scan = pull->scan,
                              .away = true};
    table->all_hot =
        ps_store_copy_hot(shard->options.store, &batch, table->dim * sizeof(float), out);
    if (!table->all_hot) {
        psp_buffer_put(buffer);
        return PSC_OK;
    }
    ps_shard_send(shard, request, buffer);
    shard->counters.rows_pulled += pull->n;
    shard->counters.rows_scanned += pull->scan ? pull->n : 0;
    request->state = PS_REQUEST_DONE;
    return PSC_OK;
}

psc_status_t ps_serve_pull(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                           psc_error_t *error)
{
    const psp_pull_t *pull = &request->message.u.pull;
    psc_status_t st = PSC_OK;
    if (request->state == PS_REQUEST_QUEUED && (st = check(shard, request, error)) != PSC_OK)
        return st;
    if (request->overdue)
        return answer_overdue(shard, request,
                              request->behind || (!request->prepared && too_early(shard, request)),
                              error);
    if (!request->prepared && too_early(shard, request))
        return ps_shard_wait_clock(shard, session, request, error);
    st = answer_hot(shard, request, error);
    if (st != PSC_OK || request->state == PS_REQUEST_DONE)
        return st;
    for (;;) {
        bool ready;
        st = ps_shard_prepare(shard, request, request->exact ? PS_BATCH_WRITE : PS_BATCH_READ,
                              pull->ids, pull->n, &ready, error);
        if (st != PSC_OK || !ready)
            return st;
        ps_growth_rows_t rows = ps_shard_rows(shard, request, pull->n);
        uint32_t *versions =
            pull->want_versions || pull->versions != NULL ? request->space->versions : NULL;
        size_t absent = ps_rows_inspect(&rows.rows, request->space->states, versions);
        if (request->table->growth != NULL)
            absent = ps_growth_inspect(&rows, request->space->states, versions);
        if (absent == 0 || request->exact ||
            request->created_seen == ps_shard_created(request->table)) {
            request->table->all_hot = absent == 0 && !request->batch.pinned && pull->n != 0 &&
                                      request->table->precision == PSP_F32 &&
                                      request->table->growth == NULL;
            return answer(shard, request, absent, &rows, error);
        }
        ps_shard_release(shard, request);
        request->exact = true;
    }
}
