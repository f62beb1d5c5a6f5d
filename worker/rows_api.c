/*
 * Pull and push of embps.h: checks, then issue, then (for the blocking forms) wait.
 *
 * Everything that can be wrong with a call is found before its first message. A blocking call moves
 * messages while it builds them once a server's window is full, so a push larger than memory for a
 * second copy still works; the asynchronous forms copy all at once, as embps.h says, and wait only
 * when QUEUE_WINDOWS windows are queued for a server: so a program that never waits costs bounded
 * memory.
 */
#include "common/vectors.h"
#include "worker/cached_rows.h"
#include "worker/client_state.h"

#define QUEUE_WINDOWS 4u

_Static_assert(EMBPS_ROW_PRESENT == (int)PSP_ROW_PRESENT, "states are those of the wire");
_Static_assert(EMBPS_ROW_INITIAL == (int)PSP_ROW_INITIAL, "states are those of the wire");
_Static_assert(EMBPS_ROW_NOT_ADMITTED == (int)PSP_ROW_NOT_ADMITTED, "states are those of the wire");
_Static_assert(EMBPS_ROW_EXPIRED == (int)PSP_ROW_EXPIRED, "states are those of the wire");

psc_status_t psw_check_rows(const char *what, const embps_table_t *table, const uint64_t *ids,
                            size_t n, const void *rows, psc_error_t *error)
{
    if (table == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: no table", what);
    if (n != 0 && (ids == NULL || rows == NULL))
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: %zu ids, but no %s", what, n,
                             ids == NULL ? "ids" : "rows");
    if (n > PSW_BATCH_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: %zu ids in one call; at most %zu",
                             what, n, PSW_BATCH_MAX);
    return PSC_OK;
}

/* What who calls it calls it. */
static const char *name_of(embps_push_kind_t kind)
{
    return kind == EMBPS_ASSIGN ? "assign" : kind == EMBPS_DELTA ? "push_delta" : "push";
}

static psc_status_t check_push(embps_push_kind_t kind, float learning_rate, psc_error_t *error)
{
    if (kind != EMBPS_GRADIENT && kind != EMBPS_DELTA && kind != EMBPS_ASSIGN)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "push: kind %d; EMBPS_GRADIENT, EMBPS_DELTA and EMBPS_ASSIGN are "
                             "possible",
                             (int)kind);
    if (!__builtin_isfinite(learning_rate))
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "push: the learning rate is not finite");
    return PSC_OK;
}

/* small_out: nothing is so large that a sum could be infinite. */
static psc_status_t check_finite(const char *what, const embps_table_t *table, const uint64_t *ids,
                                 size_t n, const float *rows, bool *small_out, psc_error_t *error)
{
    const size_t floats = n * table->dim;
    *small_out = psc_vector_all_within(rows, floats, PSW_BATCH_SMALL);
    if (*small_out)
        return PSC_OK;
    const size_t at = psw_batch_find_not_finite(rows, floats);
    if (at == floats)
        return PSC_OK;
    const uint64_t id = ids[at / table->dim];
    psc_status_t st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                                    "%s: the row of id %llu has a value that is not finite in "
                                    "column %zu; nothing was sent",
                                    what, (unsigned long long)id, at % table->dim);
    if (error != NULL)
        error->id = id;
    return st;
}

/* Lets leave what was built so far. */
static psc_status_t send_ahead(void *context, uint32_t server, psc_error_t *error)
{
    embps_client_t *client = context;
    bool moved;
    if (psw_core_queued_bytes(client->driver.core, server) == 0)
        return PSC_OK;
    return psw_driver_step(&client->driver, &moved, error);
}

/* The same for calls that wait anyway: no more is built than the window takes. */
static psc_status_t make_room(void *context, uint32_t server, psc_error_t *error)
{
    embps_client_t *client = context;
    psc_status_t st = send_ahead(context, server, error);
    if (st != PSC_OK)
        return st;
    return psw_driver_wait_room(&client->driver, server, psw_core_window_bytes(client->driver.core),
                                error);
}

/* The same at a few windows. */
static psc_status_t bound_queue(void *context, uint32_t server, psc_error_t *error)
{
    embps_client_t *client = context;
    psc_status_t st = send_ahead(context, server, error);
    if (st != PSC_OK)
        return st;
    return psw_driver_wait_room(&client->driver, server,
                                QUEUE_WINDOWS * psw_core_window_bytes(client->driver.core), error);
}

static psw_room_t room_of(embps_client_t *client, psw_room_kind_t kind)
{
    switch (kind) {
    case PSW_ROOM_WINDOW:
        return (psw_room_t){.fn = make_room, .context = client};
    case PSW_ROOM_QUEUE:
        return (psw_room_t){.fn = bound_queue, .context = client};
    case PSW_ROOM_NONE:
        break; /* a call that must not wait lets messages leave all the same */
    }
    return (psw_room_t){.fn = send_ahead, .context = client};
}

/* The first messages leave at once. An error here is the request's, and is found by its wait. */
static void send_first(embps_client_t *client)
{
    bool moved;
    if (psw_driver_step(&client->driver, &moved, NULL) != PSC_OK)
        return;
}

psw_target_t psw_table_target(const embps_table_t *table)
{
    return (psw_target_t){.table = table->number,
                          .dim = table->dim,
                          .max_rows = table->max_rows,
                          .whole = table->whole,
                          .epochs = table->epochs,
                          .push_format = table->push_format,
                          .pull_format = table->pull_format,
                          .rounding_seed = table->rounding_seed,
                          .push_number = table->pushes};
}

psc_status_t psw_start_pull(embps_table_t *table, const psw_pull_options_t *options,
                            psw_room_kind_t room, psw_request_t **request_out, psc_error_t *error)
{
    embps_client_t *client = table->client;
    psw_issued_t issued;
    /* What was pushed before can be read straight from memory once the answer is here. */
    if (client->issuer.direct != NULL && !psw_core_idle(client->driver.core))
        send_first(client);
    psc_status_t st = psw_cached_pull(table, options, room_of(client, room), &issued, error);
    if (st != PSC_OK)
        return st;
    issued.request->owner = client;
    client->tally.pulls++;
    client->tally.rows_pulled += options->n;
    client->tally.rows_pulled_distinct += issued.n_distinct;
    send_first(client);
    if (client->issuer.direct != NULL)
        psw_client_report_touches(table);
    *request_out = issued.request;
    return PSC_OK;
}

static psc_status_t start_push(embps_table_t *table, const psw_push_options_t *options,
                               psw_room_kind_t room, psw_request_t **request_out,
                               psc_error_t *error)
{
    embps_client_t *client = table->client;
    psw_issued_t issued;
    if (psw_core_clock(client->driver.core) == PSP_CLOCK_END)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "push: this client's last clock has ended (embps_last_clock)");
    psc_status_t st = psw_cached_push(table, options, room_of(client, room), &issued, error);
    if (st != PSC_OK)
        return st;
    issued.request->owner = client;
    client->tally.pushes++;
    table->pushes++;
    client->tally.rows_pushed += options->n;
    client->tally.rows_pushed_distinct += issued.n_distinct;
    send_first(client);
    *request_out = issued.request;
    return PSC_OK;
}

psc_status_t psw_pull_options_of(embps_table_t *table, const uint64_t *ids, size_t n,
                                 float *rows_out, uint8_t *states_out, uint32_t flags,
                                 psw_pull_options_t *options_out, psc_error_t *error)
{
    psc_status_t st = psw_check_rows("pull", table, ids, n, rows_out, error);
    if (st == PSC_OK && (flags & ~(EMBPS_PULL_SCAN | EMBPS_PULL_EXACT)) != 0)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "pull: flags %u; EMBPS_PULL_SCAN and EMBPS_PULL_EXACT are possible",
                           flags);
    if (st != PSC_OK)
        return st;
    *options_out = (psw_pull_options_t){
        .ids = ids,
        .n = n,
        .rows_out = rows_out,
        .stride = table->dim,
        .states_out = states_out,
        .scan = (flags & EMBPS_PULL_SCAN) != 0,
        .format = (flags & EMBPS_PULL_EXACT) != 0 ? PSP_FORMAT_F32 : table->pull_format,
        .staleness = table->client->staleness};
    return PSC_OK;
}

static psc_status_t pull(embps_table_t *table, const uint64_t *ids, size_t n, float *rows_out,
                         uint8_t *states_out, uint32_t flags, psw_room_kind_t room,
                         psw_request_t **request_out, psc_error_t *error)
{
    psw_pull_options_t options;
    psc_status_t st =
        psw_pull_options_of(table, ids, n, rows_out, states_out, flags, &options, error);
    return st == PSC_OK ? psw_start_pull(table, &options, room, request_out, error) : st;
}

static psc_status_t push(embps_table_t *table, embps_push_kind_t kind, const uint64_t *ids,
                         size_t n, const float *rows, float learning_rate, psw_room_kind_t room,
                         psw_request_t **request_out, psc_error_t *error)
{
    bool small = false;
    psc_status_t st = psw_check_rows(name_of(kind), table, ids, n, rows, error);
    if (st == PSC_OK)
        st = check_push(kind, learning_rate, error);
    if (st == PSC_OK)
        st = check_finite(name_of(kind), table, ids, n, rows, &small, error);
    if (st != PSC_OK)
        return st;
    const float none = 0.0F;
    const psw_push_options_t options = {.kind = (psp_push_kind_t)kind,
                                        .ids = ids,
                                        .n = n,
                                        .rows = n != 0 ? rows : &none,
                                        .small = small,
                                        .learning_rate = learning_rate,
                                        .step = table->step,
                                        .synchronous = table->client->staleness == 0};
    return start_push(table, &options, room, request_out, error);
}

int embps_pull_states_start(embps_table_t *table, const uint64_t *ids, size_t n, float *rows_out,
                            uint8_t *states_out, uint32_t flags, embps_request_t **request_out,
                            embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    return pull(table, ids, n, rows_out, states_out, flags, PSW_ROOM_QUEUE, request_out, &what) ==
                   PSC_OK
               ? 0
               : psw_error_export(&what, error);
}

int embps_pull_start(embps_table_t *table, const uint64_t *ids, size_t n, float *rows_out,
                     embps_request_t **request_out, embps_error_t *error)
{
    return embps_pull_states_start(table, ids, n, rows_out, NULL, 0, request_out, error);
}

int embps_pull_states(embps_table_t *table, const uint64_t *ids, size_t n, float *rows_out,
                      uint8_t *states_out, uint32_t flags, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psw_request_t *request;
    psc_status_t st =
        pull(table, ids, n, rows_out, states_out, flags, PSW_ROOM_WINDOW, &request, &what);
    if (st == PSC_OK)
        st = psw_client_finish(table->client, request, &what);
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}

int embps_pull_ages(embps_table_t *table, const uint64_t *ids, size_t n, float *rows_out,
                    uint32_t *ages_out, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psw_request_t *request;
    psc_status_t st = psw_check_rows("pull", table, ids, n, rows_out, &what);
    if (st == PSC_OK) {
        const psw_pull_options_t options = {.ids = ids,
                                            .n = n,
                                            .rows_out = rows_out,
                                            .stride = table->dim,
                                            .ages_out = ages_out,
                                            .format = table->pull_format,
                                            .staleness = table->client->staleness};
        st = psw_start_pull(table, &options, PSW_ROOM_WINDOW, &request, &what);
    }
    if (st == PSC_OK)
        st = psw_client_finish(table->client, request, &what);
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}

int embps_pull(embps_table_t *table, const uint64_t *ids, size_t n, float *rows_out,
               embps_error_t *error)
{
    return embps_pull_states(table, ids, n, rows_out, NULL, 0, error);
}

int embps_push_start(embps_table_t *table, embps_push_kind_t kind, const uint64_t *ids, size_t n,
                     const float *rows, float learning_rate, embps_request_t **request_out,
                     embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    return push(table, kind, ids, n, rows, learning_rate, PSW_ROOM_QUEUE, request_out, &what) ==
                   PSC_OK
               ? 0
               : psw_error_export(&what, error);
}

int embps_push(embps_table_t *table, embps_push_kind_t kind, const uint64_t *ids, size_t n,
               const float *rows, float learning_rate, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psw_request_t *request;
    psc_status_t st =
        push(table, kind, ids, n, rows, learning_rate, PSW_ROOM_WINDOW, &request, &what);
    if (st == PSC_OK)
        st = psw_client_finish(table->client, request, &what);
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}

psc_status_t psw_push_fill_start(embps_table_t *table, embps_push_kind_t kind, const uint64_t *ids,
                                 size_t n, psw_fill_fn fill, void *context, float learning_rate,
                                 embps_request_t **request_out, psc_error_t *error)
{
    psc_status_t st = psw_check_rows(name_of(kind), table, ids, n, ids, error);
    if (st == PSC_OK)
        st = check_push(kind, learning_rate, error);
    if (st != PSC_OK)
        return st;
    const psw_push_options_t options = {.kind = (psp_push_kind_t)kind,
                                        .ids = ids,
                                        .n = n,
                                        .fill = fill,
                                        .fill_context = context,
                                        .learning_rate = learning_rate,
                                        .step = table->step,
                                        .synchronous = table->client->staleness == 0};
    return start_push(table, &options, PSW_ROOM_QUEUE, request_out, error);
}

psc_status_t psw_pull_strided_start(embps_table_t *table, const uint64_t *ids, size_t n,
                                    float *rows_out, size_t stride_floats,
                                    embps_request_t **request_out, psc_error_t *error)
{
    psc_status_t st = psw_check_rows("pull", table, ids, n, rows_out, error);
    if (st != PSC_OK)
        return st;
    if (stride_floats < table->dim)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "pull: a stride of %zu for rows of %u",
                             stride_floats, table->dim);
    const psw_pull_options_t options = {.ids = ids,
                                        .n = n,
                                        .distinct = true,
                                        .rows_out = rows_out,
                                        .stride = stride_floats,
                                        .format = table->pull_format,
                                        .staleness = table->client->staleness};
    return psw_start_pull(table, &options, PSW_ROOM_QUEUE, request_out, error);
}

int embps_wait(embps_request_t *request, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    if (request == NULL || psw_client_finish(request->owner, request, &what) == PSC_OK)
        return 0;
    return psw_error_export(&what, error);
}

int embps_test(embps_request_t *request, bool *done_out, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    embps_client_t *client = request->owner;
    bool moved;
    bool done = psw_request_done(request);
    if (!done && psw_driver_step(&client->driver, &moved, &what) != PSC_OK &&
        !psw_request_done(request))
        return psw_error_export(&what, error);
    *done_out = psw_request_done(request);
    return 0;
}
