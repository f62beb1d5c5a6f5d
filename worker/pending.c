/*
 * What the replies of a request mean for its caller.
 *
 * A pull's rows go from the reply message straight to the caller's memory, decoded on the way where
 * they are not float32: order[begin + j] is the caller's row for row j of the part; so go the
 * states of rows. Those of duplicate ids are copied from their first occurrence when all parts are
 * there. Requests are reused by the core and keep their arrays, so that a warm client does not
 * allocate; only a stats call allocates (names of counters). After an error the caller's rows are
 * undefined, as embps.h says, so parts that still come are taken and dropped into place as usual.
 * One thread: that of the client.
 */
#include "worker/pending.h"

#include "common/alloc.h"
#include "worker/direct.h"

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

static psc_status_t accept_pull(psw_request_t *request, uint32_t server, uint32_t begin, uint32_t n,
                                const psp_pull_reply_t *reply, psc_error_t *error)
{
    const psp_row_format_t *coder = psp_row_format(request->format);
    if (reply->n != n || reply->dim != request->dim || reply->format != request->format)
        return psc_error_set(error, PSC_PROTOCOL,
                             "server %u answered a pull of %u rows of %u in %s with %zu rows of %u "
                             "in %s",
                             server, n, request->dim, coder->name, reply->n, reply->dim,
                             psp_row_format(reply->format)->name);
    /* CURRENT answers a version, and none was sent. */
    for (uint32_t j = 0; request->may_be_late && reply->states != NULL && j < n; j++) {
        if (reply->states[j] == PSP_ROW_CURRENT)
            return psc_error_set(error, PSC_PROTOCOL,
                                 "server %u answered a pull with rows of which no copy is held",
                                 server);
    }
    const size_t dim = request->dim, bytes = psp_row_bytes(request->format, dim);
    const uint32_t *order = request->order + begin;
    const uint8_t *row = reply->rows;
    if (reply->n_values != n && !request->may_be_late)
        return psc_error_set(error, PSC_PROTOCOL,
                             "server %u answered a pull of %u rows with %zu values", server, n,
                             reply->n_values);
    for (uint32_t j = 0; j < n; j++) {
        if (reply->states != NULL && reply->states[j] == PSP_ROW_LATE)
            continue;
        float *out = request->rows_out + (size_t)order[j] * request->stride;
        if (request->format == PSP_FORMAT_F32)
            memcpy(out, row, bytes);
        else
            coder->decode(out, row, dim);
        row += bytes;
    }
    if (request->direct != NULL && reply->places != NULL)
        psw_direct_learn(request->direct, server, request->table, request->dim, reply->places, n);
    for (uint32_t j = 0; request->states_out != NULL && j < n; j++)
        request->states_out[order[j]] =
            reply->states != NULL ? reply->states[j] : (uint8_t)PSP_ROW_PRESENT;
    return PSC_OK;
}

psc_status_t psw_request_accept(psw_request_t *request, uint32_t server, uint32_t begin, uint32_t n,
                                const psp_message_t *message, psc_error_t *error)
{
    switch (message->kind) {
    case PSP_PULL_REPLY:
        return accept_pull(request, server, begin, n, &message->u.pull_reply, error);
    case PSP_OPEN_TABLE_REPLY:
        request->opened = message->u.open_table_reply;
        return PSC_OK;
    case PSP_CLOCK_REPLY:
        if (server == 0)
            request->clock = message->u.clock_reply;
        return PSC_OK;
    case PSP_ATTACH_REPLY:
        request->attached = message->u.attach_reply;
        return PSC_OK;
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
    request->stride = 0;
    request->dim = 0;
    request->format = PSP_FORMAT_F32;
    request->direct = NULL;
    request->n_duplicates = 0;
    request->opened = (psp_open_table_reply_t){0};
    request->clock = (psp_clock_reply_t){0};
    request->attached = (psp_attach_reply_t){0};
    psw_counters_clear(&request->counters);
}

void psw_request_destroy(psw_request_t *request)
{
    if (request == NULL)
        return;
    psw_counters_clear(&request->counters);
    psc_free(request->order);
    psc_free(request->duplicates);
    psc_free(request);
}

void psw_request_fail(psw_request_t *request, int64_t server, const psc_error_t *error)
{
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
