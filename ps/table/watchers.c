/*
 * A Watch waits here and holds nothing: no place in its session's queue, no rows. When there is
 * something to tell it becomes the youngest request of its session, and is served like any other
 * (ps/serve/watch_rows.c), which reads values from disk if need be.
 *
 * A push to a table that somebody watches sets `news`, and the next poll looks through those that
 * wait; one to any other table costs a look at a pointer. A log is made with the first Watch of its
 * table and let go when nobody has asked for REST_US, so that its memory goes back to the rows.
 *
 * Threads: the owner's.
 */
#include "ps/table/watchers.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "ps/table/shard_state.h"

#include <sys/random.h>

#define REST_US UINT64_C(30000000)
#define LOOK_US UINT64_C(1000000)

psc_status_t ps_watch_read_cursor(const uint8_t *cursor, size_t size, ps_watch_place_t *place_out,
                                  psc_error_t *error)
{
    *place_out = (ps_watch_place_t){0};
    if (size != 0 && size != PS_WATCH_CURSOR_BYTES)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a cursor of %zu bytes is none of this server", size);
    if (size != 0) {
        memcpy(&place_out->log, cursor, sizeof place_out->log);
        memcpy(&place_out->at, cursor + sizeof place_out->log, sizeof place_out->at);
    }
    return PSC_OK;
}

void ps_watch_write_cursor(const ps_watch_place_t *place, uint8_t cursor[PS_WATCH_CURSOR_BYTES])
{
    memcpy(cursor, &place->log, sizeof place->log);
    memcpy(cursor + sizeof place->log, &place->at, sizeof place->at);
}

/* A number that no other log has, nor one of another run: sessions outlive a server, and a place in
 * a log of the last one must not pass for one in this one's. */
static uint64_t next_number(ps_watchers_t *watchers)
{
    while (watchers->newest == 0) {
        if (getrandom(&watchers->newest, sizeof watchers->newest, 0) !=
            (ssize_t)sizeof watchers->newest)
            watchers->newest = psc_clock_us();
    }
    return ++watchers->newest;
}

psc_status_t ps_watchers_log(ps_shard_t *shard, ps_table_t *table, ps_watch_log_t **log_out,
                             psc_error_t *error)
{
    ps_watchers_t *watchers = &shard->watchers;
    if (table->log == NULL) {
        psc_status_t st =
            ps_store_reserve_memory(shard->options.store, sizeof(ps_watch_log_t), error);
        if (st != PSC_OK)
            return st;
        st = ps_watch_log_create(next_number(watchers), &table->log, error);
        if (st != PSC_OK) {
            ps_store_unreserve_memory(shard->options.store, sizeof(ps_watch_log_t));
            return st;
        }
        watchers->n_logs++;
    }
    table->log->used_us = shard->now_us;
    *log_out = table->log;
    return PSC_OK;
}

void ps_watchers_close_log(ps_shard_t *shard, ps_table_t *table)
{
    if (table->log == NULL)
        return;
    psc_free(table->log);
    table->log = NULL;
    shard->watchers.n_logs--;
    ps_store_unreserve_memory(shard->options.store, sizeof(ps_watch_log_t));
}

/* Whether there is something to tell, be it only that something is wrong. */
static bool has_news(const ps_shard_t *shard, const ps_request_t *request)
{
    const psp_watch_t *watch = &request->message.u.watch;
    ps_table_t *table;
    ps_watch_place_t place;
    psc_error_t ignored = PSC_ERROR_INIT;
    return ps_shard_find_table(shard, watch->table, watch->table_epoch, &table, &ignored) !=
               PSC_OK ||
           watch->cursor_size == 0 || table->log == NULL ||
           ps_watch_read_cursor(watch->cursor, watch->cursor_size, &place, &ignored) != PSC_OK ||
           ps_watch_log_has_news(table->log, &place);
}

/* Waits until request->until_us. Takes request. */
static void keep(ps_watchers_t *watchers, ps_request_t *request)
{
    if (watchers->n == 0 || request->until_us < watchers->next_us)
        watchers->next_us = request->until_us;
    request->next = watchers->waiting;
    watchers->waiting = request;
    watchers->n++;
}

/* Those that wait for the same table in the same session are taken up by the next step. */
static void release(ps_watchers_t *watchers, const ps_request_t *request)
{
    for (ps_request_t *other = watchers->waiting; other != NULL; other = other->next) {
        if (other->buffer->peer == request->buffer->peer &&
            other->message.u.watch.table == request->message.u.watch.table)
            other->until_us = watchers->next_us = 0;
    }
}

psc_status_t ps_watchers_take(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    ps_watchers_t *watchers = &shard->watchers;
    const psp_watch_t *watch = &request->message.u.watch;
    if (watch->end)
        release(watchers, request);
    if (watch->end || has_news(shard, request))
        return ps_shard_enqueue(shard, request, error);
    if (watchers->n == PS_WATCHERS_MAX) {
        psc_error_t refusal = PSC_ERROR_INIT;
        (void)psc_error_set(&refusal, PSC_BUSY, "%u requests watch tables here: try again",
                            PS_WATCHERS_MAX);
        return ps_shard_refuse_request(shard, request, &refusal, error);
    }
    uint64_t wait_ms = watch->wait_ms != 0 ? watch->wait_ms : PS_WATCH_WAIT_MS;
    wait_ms = wait_ms < PS_WATCH_WAIT_MOST_MS ? wait_ms : PS_WATCH_WAIT_MOST_MS;
    request->until_us = shard->now_us + wait_ms * 1000;
    keep(watchers, request);
    return PSC_OK;
}

/* A request whose session has gone is answered, since a call may wait for it. */
static psc_status_t refuse_stray(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    psc_error_t refusal = PSC_ERROR_INIT;
    (void)psc_error_set(&refusal, PSC_PEER_GONE, "the session that watched has ended");
    return ps_shard_refuse_request(shard, request, &refusal, error);
}

static void let_logs_go(ps_shard_t *shard)
{
    for (uint32_t i = 0; i < shard->n_tables; i++) {
        ps_table_t *table = shard->tables[i];
        if (table != NULL && table->log != NULL && table->log->used_us + REST_US < shard->now_us)
            ps_watchers_close_log(shard, table);
    }
}

psc_status_t ps_watchers_step(ps_shard_t *shard, psc_error_t *error)
{
    ps_watchers_t *watchers = &shard->watchers;
    psc_status_t st = PSC_OK;
    if (watchers->n_logs != 0 && watchers->looked_us + LOOK_US < shard->now_us) {
        watchers->looked_us = shard->now_us;
        let_logs_go(shard);
    }
    if (watchers->n == 0 || (!watchers->news && shard->now_us < watchers->next_us))
        return PSC_OK;
    watchers->news = false;
    ps_request_t *request = watchers->waiting;
    watchers->waiting = NULL; /* those that go on waiting come back */
    watchers->n = 0;
    while (request != NULL) {
        ps_request_t *next = request->next;
        const ps_session_t *session = &shard->sessions.all[request->buffer->peer];
        const bool live =
            session->state == PS_SESSION_LIVE && session->id == request->message.request.session;
        if (st == PSC_OK && !live) {
            st = refuse_stray(shard, request, error);
        } else if (st == PSC_OK &&
                   (request->until_us <= shard->now_us || has_news(shard, request))) {
            st = ps_shard_enqueue(shard, request, error);
        } else {
            keep(watchers, request);
        }
        request = next;
    }
    return st;
}

uint64_t ps_watchers_next(const ps_shard_t *shard)
{
    return shard->watchers.n != 0 ? shard->watchers.next_us : UINT64_MAX;
}

void ps_watchers_end(ps_shard_t *shard, const psc_error_t *why)
{
    while (shard->watchers.waiting != NULL) {
        ps_request_t *request = shard->watchers.waiting;
        shard->watchers.waiting = request->next;
        shard->watchers.n--;
        /* Without memory for an answer its call ends without one. */
        if (why == NULL)
            ps_request_destroy(&shard->requests, request);
        else if (ps_shard_refuse_request(shard, request, why, NULL) != PSC_OK)
            shard->counters.refused++;
    }
}
