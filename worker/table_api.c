/*
 * Tables: server 0 numbers a name, the others learn the number from the client.
 *
 * Options are checked here for what the wire can carry (lengths, counts, the width of a row, names
 * of precisions, finite numbers); names of initialisers and optimizers and all bounds are the
 * servers' to check, since they own the tables of functions. Formats on the wire are this client's
 * alone and are not told to a server. A caller's struct may be shorter than ours (an older header),
 * or longer where the rest is zeros. Workers that open one name at the same time meet at server 0,
 * which takes one after another. A table lives as long as its client; opening it again gives the
 * same, with the formats given last.
 */
#include "common/alloc.h"
#include "common/rng.h"
#include "worker/cached_rows.h"
#include "worker/client_state.h"
#include "worker/sized_options.h"

psc_status_t psw_copy_name(const char *what, const char *text, char *out, psc_error_t *error)
{
    size_t length = text != NULL ? strlen(text) : 0;
    if (length == 0 || length > PSP_NAME_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: %zu bytes; 1 to %u are possible",
                             what, length, PSP_NAME_MAX);
    memcpy(out, text, length + 1);
    return PSC_OK;
}

static psc_status_t copy_params(const char *what, const double *params, uint32_t n, double *out,
                                psc_error_t *error)
{
    if (n > EMBPS_MAX_PARAMS)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: %u parameters; at most %u", what, n,
                             (unsigned)EMBPS_MAX_PARAMS);
    for (uint32_t i = 0; i < n; i++) {
        if (!__builtin_isfinite(params[i]))
            return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: parameter %u is not finite",
                                 what, i);
        out[i] = params[i];
    }
    return PSC_OK;
}

_Static_assert(EMBPS_MAX_PARAMS <= PSP_PARAMS_MAX, "the wire carries all parameters");

/* The caller's options in a struct of our size, with defaults for what it does not have. */
static psc_status_t take_options(const embps_table_options_t *options, embps_table_options_t *out,
                                 psc_error_t *error)
{
    *out = (embps_table_options_t)EMBPS_TABLE_OPTIONS_DEFAULT;
    const psw_sized_t sized = {.what = "a table",
                               .begin_with = "EMBPS_TABLE_OPTIONS_DEFAULT",
                               .size = options->size,
                               .least = offsetof(embps_table_options_t, precision)};
    return psw_sized_copy(&sized, options, out, sizeof *out, error);
}

static psc_status_t copy_precision(const char *what, const char *name, psp_precision_t *out,
                                   psc_error_t *error)
{
    *out = PSP_F32;
    if (name == NULL || psp_precision_find(name, out))
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "%s: there is no precision \"%.60s\"; there are: f32, bf16, f16", what,
                         name);
}

static psc_status_t copy_format(const char *what, const char *name, psp_format_t *out,
                                psc_error_t *error)
{
    *out = PSP_FORMAT_F32;
    if (name == NULL || psp_row_format_find(name, out))
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "%s: there is no format \"%.60s\"; there are: " PSP_FORMAT_NAMES, what,
                         name);
}

static psc_status_t check_finite(const char *option, double value, psc_error_t *error)
{
    if (__builtin_isfinite(value))
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT, "option %s is not finite", option);
}

static psc_status_t copy_numbers(const embps_table_options_t *options, psp_open_table_t *open,
                                 psc_error_t *error)
{
    psc_status_t st = PSC_OK;
#define COPY(option) open->option = options->option;
#define COPY_FINITE(option)                                                                        \
    if (st == PSC_OK)                                                                              \
        st = check_finite(#option, options->option, error);                                        \
    open->option = options->option;
    PSP_TABLE_WHOLE_OPTIONS(COPY)
    PSP_TABLE_REAL_OPTIONS(COPY_FINITE)
#undef COPY_FINITE
#undef COPY
    return st;
}

static psc_status_t fill_message(const char *name, const embps_table_options_t *options,
                                 psp_open_table_t *open, psc_error_t *error)
{
    if (options->dim == 0 || options->dim > PSP_DIM_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "option dim: %u; 1 to %u are possible",
                             options->dim, PSP_DIM_MAX);
    open->n_init_params = options->n_init_params;
    open->n_optimizer_params = options->n_optimizer_params;
    psc_status_t st = psw_copy_name("table name", name, open->name, error);
    if (st == PSC_OK)
        st = psw_copy_name("option init", options->init, open->init, error);
    if (st == PSC_OK)
        st = psw_copy_name("option optimizer", options->optimizer, open->optimizer, error);
    if (st == PSC_OK)
        st = copy_params("option init_params", options->init_params, options->n_init_params,
                         open->init_params, error);
    if (st == PSC_OK)
        st = copy_params("option optimizer_params", options->optimizer_params,
                         options->n_optimizer_params, open->optimizer_params, error);
    if (st == PSC_OK)
        st = copy_precision("option precision", options->precision, &open->precision, error);
    if (st == PSC_OK)
        st = copy_precision("option state_precision", options->state_precision,
                            &open->state_precision, error);
    if (st == PSC_OK)
        st = copy_numbers(options, open, error);
    return st;
}

/* What servers tell of a table. */
typedef struct opened {
    uint32_t number, max_rows;
    uint32_t *epochs; /* by server */
} opened_t;

/* One server's number and epoch of the table. */
static psc_status_t open_at(embps_client_t *client, psp_message_t *message, uint32_t server,
                            psp_open_table_reply_t *reply_out, psc_error_t *error)
{
    psw_request_t *request;
    psc_status_t st = psw_client_ask(client, message, server, server + 1, &request, error);
    if (st != PSC_OK)
        return st;
    st = psw_driver_wait(&client->driver, request, error);
    *reply_out = request->opened;
    psc_status_t finished = psw_client_finish(client, request, error);
    return st != PSC_OK ? st : finished;
}

/* opened: freed by the caller whatever comes. */
static psc_status_t open_everywhere(embps_client_t *client, const psp_open_table_t *options,
                                    opened_t *opened, psc_error_t *error)
{
    const uint32_t n_servers = psw_core_n_servers(client->driver.core);
    psp_message_t message = {.kind = PSP_OPEN_TABLE, .u.open_table = *options};
    opened->epochs = psc_alloc_zeroed(n_servers, sizeof *opened->epochs);
    psc_status_t st =
        opened->epochs != NULL
            ? PSC_OK
            : psc_error_set(error, PSC_NO_MEMORY, "no memory for table %s", options->name);
    for (uint32_t s = 0; s < n_servers && st == PSC_OK; s++) {
        psp_open_table_reply_t reply;
        st = open_at(client, &message, s, &reply, error);
        if (st == PSC_OK && (reply.table == 0 || (s != 0 && reply.table != opened->number)))
            st = psc_error_set(error, PSC_PROTOCOL, "server %u gave table %s the number %u, not %u",
                               s, options->name, reply.table, opened->number);
        if (st == PSC_OK) {
            opened->number = message.u.open_table.table = reply.table;
            opened->epochs[s] = reply.table_epoch;
            if (reply.max_rows != 0 && (opened->max_rows == 0 || reply.max_rows < opened->max_rows))
                opened->max_rows = reply.max_rows;
        }
    }
    return st;
}

embps_table_t *psw_table_find(embps_client_t *client, uint32_t number)
{
    embps_table_t *table = client->tables;
    while (table != NULL && table->number != number)
        table = table->next;
    return table;
}

static void free_table(embps_table_t *table)
{
    psc_free(table->epochs);
    psc_free(table);
}

/* Whether and how the cache may keep rows of the table: not where rows come late or expire, since a
 * row that begins anew begins its versions anew, and pushes are counted. */
static void set_kept(embps_table_t *table, const psp_open_table_t *options)
{
    table->keeps =
        options->admit_after <= 1 && options->expire_after == 0 && options->expire_rare_after == 0;
    table->kept =
        (psw_cache_table_t){.dim = options->dim,
                            .exact = options->precision == PSP_F32 && !options->has_bounds,
                            .has_pad = options->has_pad,
                            .pad_id = options->pad_id};
}

static psc_status_t open_table(embps_client_t *client, const char *name,
                               const embps_table_options_t *given, embps_table_t **table_out,
                               psc_error_t *error)
{
    psp_message_t message = {.kind = PSP_OPEN_TABLE};
    opened_t opened = {.number = 0};
    embps_table_options_t known;
    psc_status_t st = take_options(given, &known, error);
    if (st == PSC_OK)
        st = fill_message(name, &known, &message.u.open_table, error);
    psp_format_t pull_format = PSP_FORMAT_F32, push_format = PSP_FORMAT_F32;
    if (st == PSC_OK)
        st = copy_format("option pull_format", known.pull_format, &pull_format, error);
    if (st == PSC_OK)
        st = copy_format("option push_format", known.push_format, &push_format, error);
    if (st != PSC_OK)
        return st;
    embps_table_t *table = psc_alloc_zeroed(1, sizeof *table);
    if (table == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for table %s", name);
    table->client = client;
    table->options = message.u.open_table;
    table->dim = message.u.open_table.dim;
    table->whole = known.admit_shared; /* a shared row makes one step for all that a message has */
    set_kept(table, &message.u.open_table);
    table->rounding_seed = psc_rng_stream(known.seed, client->worker, 0);
    st = open_everywhere(client, &table->options, &opened, error);
    table->number = table->kept.number = opened.number;
    table->max_rows = opened.max_rows;
    table->epochs = opened.epochs;
    if (st != PSC_OK) {
        free_table(table);
        return st;
    }
    embps_table_t *same = psw_table_find(client, table->number);
    if (same != NULL) {
        const size_t bytes = psw_core_n_servers(client->driver.core) * sizeof *opened.epochs;
        psw_cached_reopened(client, same->number, memcmp(same->epochs, opened.epochs, bytes) != 0);
        memcpy(same->epochs, opened.epochs, bytes);
        free_table(table);
    } else {
        table->next = client->tables;
        client->tables = table;
        same = table;
    }
    same->pull_format = pull_format;
    same->push_format = push_format;
    same->kept.exact = same->kept.exact && push_format == PSP_FORMAT_F32;
    *table_out = same;
    return PSC_OK;
}

psc_status_t psw_tables_reopen(embps_client_t *client, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (embps_table_t *table = client->tables; st == PSC_OK && table != NULL;
         table = table->next) {
        opened_t opened = {.number = 0};
        st = open_everywhere(client, &table->options, &opened, error);
        if (st == PSC_OK && opened.number != table->number)
            st = psc_error_set(error, PSC_MISMATCH,
                               "table %s is number %u at the servers that are there now, and was "
                               "%u: connect again",
                               table->options.name, opened.number, table->number);
        if (st != PSC_OK) {
            psc_free(opened.epochs);
            break;
        }
        psw_cached_reopened(client, table->number, false);
        psc_free(table->epochs);
        table->epochs = opened.epochs;
        table->max_rows = opened.max_rows;
    }
    return st;
}

int embps_table_open(embps_client_t *client, const char *name, const embps_table_options_t *options,
                     embps_table_t **table_out, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st;
    if (client == NULL || options == NULL || table_out == NULL) {
        (void)psc_error_set(&what, PSC_INVALID_ARGUMENT,
                            "embps_table_open needs a client, options and a place for the table");
        return psw_error_export(&what, error);
    }
    uint64_t relaid = psw_core_relaid(client->driver.core);
    do {
        st = open_table(client, name, options, table_out, &what);
    } while (psw_client_again(client, st, &relaid));
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}

uint32_t embps_table_dim(const embps_table_t *table)
{
    return table->dim;
}

void embps_table_set_step(embps_table_t *table, uint64_t step)
{
    table->step = step;
}
