/*
 * What the replies of a request mean for its caller.
 *
 * A pull's rows go from the reply message straight to the caller's memory, decoded on the way where
 * they are not float32: order[begin + j] is the caller's row for row j of the part; so go the
 * states of rows. Those of duplicate ids are copied from their first occurrence when all parts are
 * there. Answers go to the client's cache, too; a row that a server finds unchanged (CURRENT) lies
 * in the caller's memory already. Requests are reused by the core and keep their arrays, so that a
 * warm client does not allocate; only a stats call allocates (names of counters). After an error
 * the caller's rows are undefined, as embps.h says, so parts that still come are taken and dropped
 * into place as usual. One thread: that of the client.
 */
#include "worker/pending.h"

#include "common/alloc.h"
#include "worker/direct.h"

#define ROWS_AHEAD 8u

static psc_status_t grow(uint32_t **array, size_t *capacity, size_t n, psc_error_t *error)
{
    if (n <= *capacity)
        return PSC_OK;
    size_t wanted = n + n / 2;
    uint32_t *grown = psc_realloc_array(*array, wanted, sizeof *grown);
    if (grown == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a request of %zu rows", n);
    *array = grown;
    *capacity = wanted;
    return PSC_OK;
}

psc_status_t psw_request_reserve_order(psw_request_t *request, size_t n, psc_error_t *error)
{
    return grow(&request->order, &request->order_capacity, n, error);
}

psc_status_t psw_request_reserve_tickets(psw_request_t *request, size_t n, psc_error_t *error)
{
    request->picked = true;
    psc_status_t st = grow(&request->held, &request->held_capacity, n, error);
    if (st != PSC_OK || n <= request->tickets_capacity)
        return st;
    const size_t wanted = n + n / 2;
    psw_ticket_t *tickets = psc_realloc_array(request->tickets, wanted, sizeof *tickets);
    if (tickets == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a request of %zu rows", n);
    request->tickets = tickets;
    request->tickets_capacity = wanted;
    return PSC_OK;
}

void psw_request_set_cache(psw_request_t *request, psw_cache_t *cache, uint32_t table,
                           uint64_t clock)
{
    request->cache = cache;
    request->table = table;
    request->asked_at = clock;
}

psc_status_t psw_request_keep_duplicates(psw_request_t *request, const uint32_t *pairs, size_t n,
                                         psc_error_t *error)
{
    psc_status_t st = grow(&request->duplicates, &request->duplicates_capacity, 2 * n, error);
    if (st != PSC_OK)
        return st;
    if (n != 0)
        memcpy(request->duplicates, pairs, 2 * n * sizeof *pairs);
    request->n_duplicates = n;
    return PSC_OK;
}

static void tell_cache(const psw_request_t *request, uint32_t at, psw_answer_t answer)
{
    answer.ticket = request->tickets[at];
    answer.asked_at = request->asked_at;
    psw_cache_answer(request->cache, &answer);
}

static uint32_t version_at(const uint8_t *versions, size_t i)
{
    uint32_t version;
    memcpy(&version, versions + i * sizeof version, sizeof version);
    return version;
}

/* How long ago all workers' changes were in what a server answered. */
static uint32_t age_of(const psw_request_t *request, uint64_t least_clock)
{
    if (request->asked_at <= least_clock)
        return 0;
    const uint64_t age = request->asked_at - least_clock;
    return age < UINT32_MAX ? (uint32_t)age : UINT32_MAX;
}

/* What a row of a pull means; row: its value, NULL: none came. */
static void take_row(const psw_request_t *request, uint32_t at, const psp_pull_reply_t *reply,
                     uint32_t j, uint64_t least_clock, const uint8_t *row)
{
    const uint32_t to = request->order[at];
    uint8_t state = reply->states != NULL ? reply->states[j] : (uint8_t)PSP_ROW_PRESENT;
    if (state == PSP_ROW_CURRENT)
        state = PSP_ROW_PRESENT;
    if (request->states_out != NULL)
        request->states_out[to] = state;
    if (request->ages_out != NULL)
        request->ages_out[to] = age_of(request, least_clock);
    if (request->picked)
        tell_cache(request, at,
                   (psw_answer_t){.least_clock = least_clock,
                                  .version = version_at(reply->versions, j),
                                  .state = state,
                                  .row = row});
}

/* All rows as they came, those that lie one behind the other at once. */
static void copy_runs(const psw_request_t *request, const uint32_t *order, uint32_t n,
                      const uint8_t *rows)
{
    const size_t bytes = request->dim * sizeof(float);
    const bool close = request->stride == request->dim;
    for (uint32_t j = 0; j < n;) {
        uint32_t end = j + 1;
        while (close && end < n && order[end] == order[j] + (end - j))
            end++;
        memcpy(request->rows_out + (size_t)order[j] * request->stride, rows + j * bytes,
               (end - j) * bytes);
        j = end;
    }
}

/* For rows that go to the cache alone and come in another format than float32. */
static psc_status_t reserve_row(psw_request_t *request, psc_error_t *error)
{
    if (request->format == PSP_FORMAT_F32 || request->dim <= request->row_capacity)
        return PSC_OK;
    float *row = psc_realloc_array(request->row, request->dim, sizeof *row);
    if (row == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a row of %u floats",
                             request->dim);
    request->row = row;
    request->row_capacity = request->dim;
    return PSC_OK;
}

/* A row as float32, at any address; out: where it has to lie, NULL: anywhere. */
static const uint8_t *take_floats(const psw_request_t *request, const uint8_t *row, float *out)
{
    const bool coded = request->format != PSP_FORMAT_F32;
    if (out == NULL && !coded)
        return row;
    out = out != NULL ? out : request->row;
    if (coded)
        psp_row_format(request->format)->decode(out, row, request->dim);
    else
        memcpy(out, row, request->dim * sizeof *out);
    return (const uint8_t *)out;
}

static psc_status_t accept_pull(psw_request_t *request, uint32_t server, uint32_t begin, uint32_t n,
                                const psp_pull_reply_t *reply, uint64_t least_clock,
                                psc_error_t *error)
{
    const psp_row_format_t *coder = psp_row_format(request->format);
    if (reply->n != n || reply->dim != request->dim || reply->format != request->format)
        return psc_error_set(error, PSC_PROTOCOL,
                             "server %u answered a pull of %u rows of %u in %s with %zu rows of %u "
                             "in %s",
                             server, n, request->dim, coder->name, reply->n, reply->dim,
                             psp_row_format(reply->format)->name);
    if ((!request->picked && !request->may_be_late && reply->n_values != n) ||
        (request->picked && reply->versions == NULL))
        return psc_error_set(error, PSC_PROTOCOL,
                             "server %u answered a pull of %u rows with %zu values", server, n,
                             reply->n_values);
    psc_status_t st = request->rows_out == NULL ? reserve_row(request, error) : PSC_OK;
    if (st != PSC_OK)
        return st;
    const size_t bytes = psp_row_bytes(request->format, request->dim);
    const bool details =
        request->states_out != NULL || request->ages_out != NULL || request->picked;
    const uint8_t *row = reply->rows;
    const bool plain = !details && reply->states == NULL && request->format == PSP_FORMAT_F32;
    if (plain)
        copy_runs(request, request->order + begin, n, row);
    for (uint32_t j = 0; !plain && j < n; j++) {
        if (request->picked && j + ROWS_AHEAD < n)
            psw_cache_expect(request->cache, request->tickets[begin + j + ROWS_AHEAD]);
        float *out = NULL;
        if (request->rows_out != NULL)
            out = request->rows_out + (size_t)request->order[begin + j] * request->stride;
        const uint8_t *value = NULL;
        if (reply->states != NULL && !psp_row_has_value(reply->states[j])) {
            /* CURRENT answers a version that was told, LATE a deadline. */
            const bool fits = reply->states[j] == PSP_ROW_LATE
                                  ? request->may_be_late
                                  : request->picked && request->held[begin + j] != 0;
            if (!fits)
                return psc_error_set(error, PSC_PROTOCOL,
                                     "server %u answered a pull with rows of which no copy is held",
                                     server);
        } else {
            value = take_floats(request, row, out);
            row += bytes;
        }
        if (details)
            take_row(request, begin + j, reply, j, least_clock, value);
    }
    if (request->direct != NULL && reply->places != NULL)
        psw_direct_learn(request->direct, server, request->table, request->dim, reply->places, n);
    return PSC_OK;
}

/* Rows that a push brought back. */
static psc_status_t accept_push(psw_request_t *request, uint32_t server, uint32_t begin, uint32_t n,
                                const psp_push_reply_t *reply, uint64_t least_clock,
                                psc_error_t *error)
{
    if (reply->n == 0)
        return PSC_OK;
    const psp_row_format_t *coder = psp_row_format(request->format);
    if (!request->picked || reply->n != n || reply->dim != request->dim ||
        reply->format != request->format)
        return psc_error_set(error, PSC_PROTOCOL,
                             "server %u answered a push of %u rows of %u, to come back in %s, with "
                             "%zu rows of %u in %s",
                             server, n, request->dim, coder->name, reply->n, reply->dim,
                             psp_row_format(reply->format)->name);
    const size_t bytes = psp_row_bytes(request->format, request->dim);
    psc_status_t st = reserve_row(request, error);
    for (uint32_t j = 0; st == PSC_OK && j < n; j++)
        tell_cache(request, begin + j,
                   (psw_answer_t){.least_clock = least_clock,
                                  .version = version_at(reply->versions, j),
                                  .state = PSP_ROW_PRESENT,
                                  .returned = true,
                                  .row = take_floats(request, reply->rows + j * bytes, NULL)});
    return st;
}

/* Servers that have the table tell the same of it, but for the number of its rows. */
static void accept_found(psp_find_table_reply_t *found, const psp_find_table_reply_t *reply)
{
    const uint64_t rows_created = found->rows_created + reply->rows_created;
    if (reply->found)
        *found = *reply;
    found->rows_created = rows_created;
}

static psc_status_t accept_block(psw_request_t *request, uint32_t server,
                                 const psp_export_reply_t *reply, psc_error_t *error)
{
    if (reply->dim != request->dim)
        return psc_error_set(error, PSC_PROTOCOL, "server %u sent rows of dim %u, not %u", server,
                             reply->dim, request->dim);
    return psw_block_take(&request->block, reply, error);
}

/* A piece of a checkpoint's state is copied: the message goes. */
static psc_status_t accept_checkpoint(psw_request_t *request, const psp_checkpoint_reply_t *reply,
                                      psc_error_t *error)
{
    request->checkpoint = *reply;
    request->checkpoint.state = NULL;
    if (reply->n == 0)
        return PSC_OK;
    if (reply->n > request->bytes_capacity) {
        uint8_t *grown = psc_realloc_array(request->bytes, reply->n, 1);
        if (grown == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a checkpoint's state");
        request->bytes = grown;
        request->bytes_capacity = reply->n;
    }
    memcpy(request->bytes, reply->state, reply->n);
    request->checkpoint.state = request->bytes;
    return PSC_OK;
}

psc_status_t psw_request_accept(psw_request_t *request, uint32_t server, uint32_t begin, uint32_t n,
                                const psp_message_t *message, psc_error_t *error)
{
    switch (message->kind) {
    case PSP_PULL_REPLY:
        return accept_pull(request, server, begin, n, &message->u.pull_reply,
                           message->reply.least_clock, error);
    case PSP_PUSH_REPLY:
        return accept_push(request, server, begin, n, &message->u.push_reply,
                           message->reply.least_clock, error);
    case PSP_OPEN_TABLE_REPLY:
        request->opened = message->u.open_table_reply;
        return PSC_OK;
    case PSP_FIND_TABLE_REPLY:
        accept_found(&request->found, &message->u.find_table_reply);
        return PSC_OK;
    case PSP_CLOCK_REPLY:
        if (server == 0)
            request->clock = message->u.clock_reply;
        return PSC_OK;
    case PSP_ATTACH_REPLY:
        request->attached = message->u.attach_reply;
        return PSC_OK;
    case PSP_BARRIER_REPLY:
        request->barrier = message->u.barrier_reply;
        return PSC_OK;
    case PSP_EXPORT_REPLY:
        return accept_block(request, server, &message->u.export_reply, error);
    case PSP_WATCH_REPLY:
        request->lost = message->u.watch_reply.lost;
        return accept_block(request, server, &message->u.watch_reply.block, error);
    case PSP_IMPORT_REPLY:
        request->imported.rows += message->u.import_reply.rows;
        request->imported.created += message->u.import_reply.created;
        return PSC_OK;
    case PSP_CHECKPOINT_REPLY:
        return accept_checkpoint(request, &message->u.checkpoint_reply, error);
    case PSP_STATS_REPLY:
        for (size_t i = 0; i < message->u.stats_reply.n; i++) {
            const psp_counter_t *counter = &message->u.stats_reply.counters[i];
            psc_status_t st =
                psw_counters_add(&request->counters, counter->name, counter->value, error);
            if (st != PSC_OK)
                return st;
        }
        return PSC_OK;
    default: /* the others say nothing but "done" */
        return PSC_OK;
    }
}

void psw_request_mark_late(psw_request_t *request, uint32_t begin, uint32_t n)
{
    for (uint32_t j = 0; request->states_out != NULL && j < n; j++)
        request->states_out[request->order[begin + j]] = (uint8_t)PSP_ROW_LATE;
}

void psw_request_finish(psw_request_t *request)
{
    if (request->error.code != PSC_OK)
        return;
    const size_t bytes = request->dim * sizeof(float);
    for (size_t i = 0; i < request->n_duplicates; i++) {
        const uint32_t *pair = request->duplicates + 2 * i;
        uint8_t state = PSP_ROW_PRESENT;
        if (request->states_out != NULL)
            state = request->states_out[pair[0]] = request->states_out[pair[1]];
        if (state != PSP_ROW_LATE)
            memcpy(request->rows_out + (size_t)pair[0] * request->stride,
                   request->rows_out + (size_t)pair[1] * request->stride, bytes);
        if (request->ages_out != NULL)
            request->ages_out[pair[0]] = request->ages_out[pair[1]];
    }
}

void psw_request_reset(psw_request_t *request)
{
    request->owner = NULL;
    request->open_parts = 0;
    request->sealed = false;
    request->error = (psc_error_t)PSC_ERROR_INIT;
    request->rows_out = NULL;
    request->states_out = NULL;
    request->may_be_late = false;
    request->ages_out = NULL;
    request->asked_at = 0;
    request->cache = NULL;
    request->table = 0;
    request->picked = false;
    request->stride = 0;
    request->dim = 0;
    request->format = PSP_FORMAT_F32;
    request->direct = NULL;
    request->n_duplicates = 0;
    request->opened = (psp_open_table_reply_t){0};
    request->found.found = false;
    request->found.rows_created = 0;
    request->clock = (psp_clock_reply_t){0};
    request->attached = (psp_attach_reply_t){0};
    request->barrier = (psp_barrier_reply_t){0};
    psw_block_clear(&request->block);
    request->lost = false;
    request->imported = (psp_import_reply_t){0};
    request->checkpoint = (psp_checkpoint_reply_t){.name = ""};
    psw_counters_clear(&request->counters);
}

void psw_request_destroy(psw_request_t *request)
{
    if (request == NULL)
        return;
    psw_counters_clear(&request->counters);
    psw_block_clear(&request->block);
    psc_free(request->order);
    psc_free(request->duplicates);
    psc_free(request->tickets);
    psc_free(request->held);
    psc_free(request->row);
    psc_free(request->bytes);
    psc_free(request);
}

void psw_request_fail(psw_request_t *request, int64_t server, const psc_error_t *error)
{
    if (request->cache != NULL)
        psw_cache_end_table(request->cache, request->table, false);
    if (request->error.code != PSC_OK)
        return;
    if (server < 0) {
        request->error = *error;
        return;
    }
    (void)psc_error_set(&request->error, error->code, "server %u: %s", (uint32_t)server,
                        error->message);
    request->error.rank = (int32_t)server;
    request->error.id = error->id;
}

psc_status_t psw_counters_add(psw_counters_t *counters, const char *name, uint64_t value,
                              psc_error_t *error)
{
    for (size_t i = 0; i < counters->n; i++) {
        if (strcmp(counters->items[i].name, name) == 0) {
            counters->items[i].value += value;
            return PSC_OK;
        }
    }
    if (counters->n == counters->capacity) {
        size_t capacity = counters->capacity != 0 ? 2 * counters->capacity : 32;
        psp_counter_t *items = psc_realloc_array(counters->items, capacity, sizeof *items);
        if (items == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu counters", capacity);
        counters->items = items;
        counters->capacity = capacity;
    }
    char *copy = psc_strdup(name);
    if (copy == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a counter's name");
    counters->items[counters->n++] = (psp_counter_t){.name = copy, .value = value};
    return PSC_OK;
}

void psw_counters_clear(psw_counters_t *counters)
{
    for (size_t i = 0; i < counters->n; i++)
        psc_free((char *)(uintptr_t)counters->items[i].name);
    psc_free(counters->items);
    *counters = (psw_counters_t){0};
}
