/*
 * Drives the cache: its questions and its deltas become pulls and pushes, whose replies go to it
 * (pending.c).
 *
 * A call finds its distinct ids, lets the cache serve or take what it can, issues the deltas that
 * have to leave first, then what is left of the call. Deltas are pushes of the client's own: each
 * is a request that nobody waits for. They are collected when they are answered; the first error is
 * kept and told by the next call that can fail (a push, a clock, a barrier, the close). They use a
 * batch and a router of their own, since they are built between the two halves of a call.
 *
 * A prefetch becomes a pull whose rows go to the cache alone, as far as there is room in the
 * window, and an announcement of the rows that will be asked for when they are pulled. Nobody waits
 * for it either, and its errors are nobody's.
 *
 * With staleness 0 the cache is off: what it had is sent, and it is emptied, before anything else
 * is issued. A pull that is a scan, has a deadline, or wants another format than the table's, goes
 * past it, after all deltas.
 *
 * Threads: that of the client.
 */
#include "worker/cached_rows.h"

#include "common/alloc.h"

struct psw_cached {
    psw_cache_t *cache;
    psw_issuer_t issuer;
    psw_request_t **requests; /* deltas and prefetches under way */
    size_t n_requests, capacity;
    uint64_t *ids; /* to be announced */
    size_t ids_capacity;
    psc_error_t error; /* of deltas; code PSC_OK: none */
};

static void clear_issuer(psw_issuer_t *issuer)
{
    psw_batch_destroy(issuer->batch);
    psw_router_destroy(issuer->router);
    psc_free(issuer->row_scratch);
    psc_free(issuer->starts);
}

void psw_cached_destroy(psw_cached_t *cached)
{
    if (cached == NULL)
        return;
    psw_cache_destroy(cached->cache);
    clear_issuer(&cached->issuer);
    psc_free(cached->requests);
    psc_free(cached->ids);
    psc_free(cached);
}

static psc_status_t create(embps_client_t *client, size_t bytes, psc_error_t *error)
{
    psw_cached_t *cached = psc_alloc_zeroed(1, sizeof *cached);
    if (cached == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a cache");
    cached->error = (psc_error_t)PSC_ERROR_INIT;
    cached->issuer.core = client->driver.core;
    psc_status_t st = psw_cache_create(bytes, &cached->cache, error);
    if (st == PSC_OK)
        st = psw_batch_create(&cached->issuer.batch, error);
    if (st == PSC_OK)
        st = psw_router_create(&cached->issuer.router, error);
    if (st != PSC_OK) {
        psw_cached_destroy(cached);
        return st;
    }
    client->cached = cached;
    psw_cached_clock(client);
    return PSC_OK;
}

psc_status_t psw_cached_set(embps_client_t *client, size_t bytes, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    if (client->cached != NULL) {
        st = psw_cached_flush_all(client, error);
        if (st == PSC_OK) /* requests under way know the cache */
            st = psw_driver_wait_idle(&client->driver, error);
        if (st == PSC_OK)
            st = psw_cached_collect(client, error);
        if (st != PSC_OK)
            return st;
        psw_cached_destroy(client->cached);
        client->cached = NULL;
    }
    return bytes != 0 ? create(client, bytes, error) : PSC_OK;
}

/* ---- requests that nobody waits for ---- */

/* Takes what is answered. */
static void reap(embps_client_t *client)
{
    psw_cached_t *cached = client->cached;
    size_t left = 0;
    for (size_t i = 0; i < cached->n_requests; i++) {
        psw_request_t *request = cached->requests[i];
        if (!psw_request_done(request)) {
            cached->requests[left++] = request;
            continue;
        }
        /* nothing depends on a prefetch */
        if (request->kind == PSP_PUSH && request->error.code != PSC_OK &&
            cached->error.code == PSC_OK)
            cached->error = request->error;
        psw_core_release(client->driver.core, request);
    }
    cached->n_requests = left;
}

psc_status_t psw_cached_collect(embps_client_t *client, psc_error_t *error)
{
    psw_cached_t *cached = client->cached;
    if (cached == NULL)
        return PSC_OK;
    reap(client);
    const psc_status_t st = cached->error.code;
    if (st != PSC_OK && error != NULL)
        *error = cached->error;
    cached->error = (psc_error_t)PSC_ERROR_INIT;
    return st;
}

static psc_status_t reserve_request(psw_cached_t *cached, psc_error_t *error)
{
    if (cached->n_requests < cached->capacity)
        return PSC_OK;
    const size_t capacity = cached->capacity != 0 ? 2 * cached->capacity : 64;
    psw_request_t **requests =
        psc_realloc_array(cached->requests, capacity, sizeof(psw_request_t *));
    if (requests == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu requests under way",
                             capacity);
    cached->requests = requests;
    cached->capacity = capacity;
    return PSC_OK;
}

static embps_table_t *find_table(embps_client_t *client, uint32_t number)
{
    embps_table_t *table = client->tables;
    while (table->number != number)
        table = table->next;
    return table;
}

/* Issues what is in the outbox. What cannot be issued is lost, and ends the copies. */
static psc_status_t send_outbox(embps_client_t *client, psw_room_t room, psc_error_t *error)
{
    psw_cached_t *cached = client->cached;
    psw_outbox_t outbox;
    psc_status_t st = PSC_OK;
    cached->issuer.direct = client->issuer.direct; /* which must know what is on its way */
    while (psw_cache_outbox(cached->cache, &outbox)) {
        embps_table_t *table = find_table(client, outbox.table);
        const psw_target_t target = psw_table_target(table);
        const psw_push_options_t options = {.kind = PSP_PUSH_DELTA,
                                            .ids = outbox.ids,
                                            .n = outbox.n,
                                            .rows = outbox.rows,
                                            .cache = cached->cache};
        psw_issued_t issued;
        if (st == PSC_OK)
            st = reserve_request(cached, error);
        if (st == PSC_OK)
            st = psw_issue_push(&cached->issuer, &target, &options, room, &issued, error);
        if (st != PSC_OK) {
            psw_cache_end_table(cached->cache, outbox.table, false);
            continue;
        }
        issued.request->owner = client;
        table->pushes++;
        cached->requests[cached->n_requests++] = issued.request;
    }
    return st;
}

/* ---- what the cache is told ---- */

static bool is_on(const embps_client_t *client)
{
    return client->cached != NULL && client->staleness != 0;
}

static void set_limits(embps_client_t *client)
{
    psw_cache_set_limits(client->cached->cache, client->staleness, client->flush);
}

psc_status_t psw_cached_flush_all(embps_client_t *client, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    bool more = client->cached != NULL;
    while (st == PSC_OK && more) {
        st = psw_cache_take_some(client->cached->cache, &more, error);
        const psc_status_t sent =
            send_outbox(client, (psw_room_t){.fn = NULL}, st == PSC_OK ? error : NULL);
        if (st == PSC_OK)
            st = sent;
    }
    return st;
}

psc_status_t psw_cached_flush_due(embps_client_t *client, psc_error_t *error)
{
    if (client->cached == NULL)
        return PSC_OK;
    if (!is_on(client))
        return psw_cached_flush_all(client, error);
    set_limits(client);
    psc_status_t st = psw_cache_take_due(client->cached->cache, error);
    if (st == PSC_OK)
        st = send_outbox(client, (psw_room_t){.fn = NULL}, error);
    return st == PSC_OK ? psw_cached_collect(client, error) : st;
}

void psw_cached_clock(embps_client_t *client)
{
    if (client->cached != NULL)
        psw_cache_set_clock(client->cached->cache, psw_core_clock(client->driver.core));
}

void psw_cached_expire(embps_client_t *client)
{
    if (client->cached != NULL)
        psw_cache_expire(client->cached->cache);
}

void psw_cached_reopened(embps_client_t *client, uint32_t table, bool other_epoch)
{
    if (client->cached != NULL)
        psw_cache_end_table(client->cached->cache, table, other_epoch);
}

void psw_cached_counters(const embps_client_t *client, psw_cache_counters_t *counters_out)
{
    *counters_out = (psw_cache_counters_t){0};
    if (client->cached != NULL)
        psw_cache_counters(client->cached->cache, counters_out);
}

/* ---- pulls and pushes ---- */

/* A call goes past the cache. ends: and may change what it has. */
static psc_status_t step_aside(embps_client_t *client, bool ends, psc_error_t *error)
{
    psc_status_t st = psw_cached_flush_all(client, error);
    if (st == PSC_OK && ends)
        psw_cache_empty(client->cached->cache);
    return st;
}

static psc_status_t distinct_rows(embps_table_t *table, const uint64_t *ids, size_t n,
                                  bool distinct, psw_distinct_t *distinct_out, psc_error_t *error)
{
    psw_batch_t *batch = table->client->issuer.batch;
    return distinct ? psw_batch_hash(batch, table->number, ids, n, distinct_out, error)
                    : psw_batch_dedupe(batch, table->number, ids, n, distinct_out, error);
}

static psw_cache_rows_t cache_rows(const embps_table_t *table, const uint64_t *ids,
                                   const psw_distinct_t *distinct)
{
    return (psw_cache_rows_t){.table = &table->kept,
                              .ids = ids,
                              .hashes = distinct->hashes,
                              .first = distinct->first,
                              .n = distinct->n};
}

psc_status_t psw_cached_pull(embps_table_t *table, const psw_pull_options_t *options,
                             psw_room_t room, psw_issued_t *issued_out, psc_error_t *error)
{
    embps_client_t *client = table->client;
    const psw_target_t target = psw_table_target(table);
    psc_status_t st = PSC_OK;
    if (client->cached == NULL || !table->keeps)
        return psw_issue_pull(&client->issuer, &target, options, room, issued_out, error);
    reap(client);
    if (!is_on(client) || options->scan || options->deadline_ms != 0 ||
        options->format != table->pull_format) {
        st = step_aside(client, !is_on(client), error);
        return st == PSC_OK
                   ? psw_issue_pull(&client->issuer, &target, options, room, issued_out, error)
                   : st;
    }
    psw_cache_t *cache = client->cached->cache;
    psw_distinct_t distinct;
    psw_asked_t asked;
    const psw_cache_out_t out = {.rows = options->rows_out,
                                 .stride = options->stride,
                                 .states = options->states_out,
                                 .ages = options->ages_out};
    set_limits(client);
    st = distinct_rows(table, options->ids, options->n, options->distinct, &distinct, error);
    if (st != PSC_OK)
        return st;
    const psw_cache_rows_t rows = cache_rows(table, options->ids, &distinct);
    st = psw_cache_pull(cache, &rows, &out, &asked, error);
    const psc_status_t sent = send_outbox(client, room, st == PSC_OK ? error : NULL);
    if (st == PSC_OK)
        st = sent;
    if (st != PSC_OK)
        return st;
    psw_pull_options_t rest = *options;
    rest.cache = cache;
    rest.picked = &(psw_picked_t){.asked = &asked, .distinct = &distinct};
    return psw_issue_pull(&client->issuer, &target, &rest, room, issued_out, error);
}

/* ---- prefetches ---- */

/* How many of the rows can be asked for without waiting for room. */
static size_t fitting(const embps_table_t *table, size_t n)
{
    const psw_core_t *core = table->client->driver.core;
    const uint32_t n_servers = psw_core_n_servers(core);
    const size_t row_bytes =
        psp_row_bytes(table->pull_format, table->dim) + sizeof(uint64_t) + 3 * sizeof(uint32_t);
    for (uint32_t s = 0; n != 0 && s < n_servers;) {
        /* not every server's part is the same */
        const size_t rows = n_servers == 1 ? n : 2 * n / n_servers + 1;
        if (psw_core_has_room(core, s, rows * row_bytes))
            s++;
        else
            n /= 2;
    }
    return n;
}

static psc_status_t fill_cache(embps_table_t *table, const uint64_t *ids, const psw_asked_t *asked,
                               psc_error_t *error)
{
    embps_client_t *client = table->client;
    psw_cached_t *cached = client->cached;
    const psw_target_t target = psw_table_target(table);
    const psw_distinct_t none = {.n = asked->n};
    const psw_picked_t picked = {.asked = asked, .distinct = &none};
    /* No server makes this wait for other workers; how old the rows are is told. */
    const psw_pull_options_t options = {.ids = ids,
                                        .format = table->pull_format,
                                        .staleness = PSP_STALENESS_ASYNC,
                                        .cache = cached->cache,
                                        .picked = &picked};
    psw_issued_t issued;
    psc_status_t st = reserve_request(cached, error);
    if (st == PSC_OK)
        st = psw_issue_pull(&cached->issuer, &target, &options, (psw_room_t){.fn = NULL}, &issued,
                            error);
    if (st != PSC_OK)
        return st;
    issued.request->owner = client;
    cached->requests[cached->n_requests++] = issued.request;
    return PSC_OK;
}

static psc_status_t announce(embps_table_t *table, const psw_prefetch_options_t *options,
                             const psw_asked_t *asked, size_t from, size_t *n_dropped_out,
                             psc_error_t *error)
{
    psw_cached_t *cached = table->client->cached;
    const psw_target_t target = psw_table_target(table);
    const size_t n = asked->n - from;
    if (n > cached->ids_capacity) {
        const size_t capacity = n + n / 2;
        uint64_t *ids = psc_realloc_array(cached->ids, capacity, sizeof *ids);
        if (ids == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "no memory for a prefetch of %zu rows", n);
        cached->ids = ids;
        cached->ids_capacity = capacity;
    }
    for (size_t i = 0; i < n; i++)
        cached->ids[i] = options->ids[asked->first[from + i]];
    return psw_issue_prefetch(
        &cached->issuer, &target,
        &(psw_prefetch_options_t){
            .ids = cached->ids, .n = n, .distinct = true, .when = options->when},
        n_dropped_out, error);
}

psc_status_t psw_cached_prefetch(embps_table_t *table, const psw_prefetch_options_t *options,
                                 size_t *n_dropped_out, psc_error_t *error)
{
    embps_client_t *client = table->client;
    psw_distinct_t distinct;
    psw_asked_t asked;
    if (!is_on(client) || !table->keeps) {
        const psw_target_t target = psw_table_target(table);
        return psw_issue_prefetch(&client->issuer, &target, options, n_dropped_out, error);
    }
    reap(client);
    set_limits(client);
    psc_status_t st =
        distinct_rows(table, options->ids, options->n, options->distinct, &distinct, error);
    if (st != PSC_OK)
        return st;
    const psw_cache_rows_t rows = cache_rows(table, options->ids, &distinct);
    st = psw_cache_prefetch(client->cached->cache, &rows, options->when, &asked, error);
    const psc_status_t sent =
        send_outbox(client, (psw_room_t){.fn = NULL}, st == PSC_OK ? error : NULL);
    if (st == PSC_OK)
        st = sent;
    psw_asked_t wanted = asked;
    wanted.n = st == PSC_OK ? fitting(table, asked.n_wanted) : 0;
    if (wanted.n != 0)
        st = fill_cache(table, options->ids, &wanted, error);
    *n_dropped_out = 0;
    if (st == PSC_OK && wanted.n < asked.n)
        st = announce(table, options, &asked, wanted.n, n_dropped_out, error);
    return st;
}

/* ---- pushes ---- */

typedef struct source {
    const psw_push_options_t *options;
    const uint32_t *next;
    size_t dim;
} source_t;

static void fill_row(void *context, size_t i, float *row)
{
    const source_t *source = context;
    const psw_push_options_t *options = source->options;
    if (options->rows == NULL)
        options->fill(options->fill_context, i, row);
    else
        psw_batch_sum_row(options->rows, source->dim, source->next, (uint32_t)i, (uint8_t *)row);
}

psc_status_t psw_cached_push(embps_table_t *table, const psw_push_options_t *options,
                             psw_room_t room, psw_issued_t *issued_out, psc_error_t *error)
{
    embps_client_t *client = table->client;
    const psw_target_t target = psw_table_target(table);
    psc_status_t st = psw_cached_collect(client, error);
    if (st != PSC_OK)
        return st;
    if (client->cached == NULL || !table->keeps)
        return psw_issue_push(&client->issuer, &target, options, room, issued_out, error);
    if (!is_on(client)) {
        st = step_aside(client, true, error);
        return st == PSC_OK
                   ? psw_issue_push(&client->issuer, &target, options, room, issued_out, error)
                   : st;
    }
    psw_cache_t *cache = client->cached->cache;
    psw_distinct_t distinct;
    psw_asked_t asked;
    set_limits(client);
    st = distinct_rows(table, options->ids, options->n, options->rows == NULL, &distinct, error);
    if (st == PSC_OK)
        st = psw_issue_check_sums(&client->issuer, &target, &distinct, options, error);
    if (st != PSC_OK)
        return st;
    source_t source = {.options = options, .next = distinct.next, .dim = table->dim};
    const psw_cache_rows_t rows = cache_rows(table, options->ids, &distinct);
    st = psw_cache_push(cache, &rows, options->kind, fill_row, &source, &asked, error);
    const psc_status_t sent = send_outbox(client, room, st == PSC_OK ? error : NULL);
    if (st == PSC_OK)
        st = sent;
    if (st != PSC_OK)
        return st;
    psw_push_options_t rest = *options;
    rest.cache = cache;
    rest.picked = &(psw_picked_t){.asked = &asked, .distinct = &distinct};
    return psw_issue_push(&client->issuer, &target, &rest, room, issued_out, error);
}
