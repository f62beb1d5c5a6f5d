/*
 * embps-bench batch: what a client does to a batch before it is sent and after it has come back.
 *
 * The functions are the client's own (worker/batch, router, pending), called as worker/issue calls
 * them, without messages; beside them stands a loop that copies the batch's rows once, which is the
 * least that a call with rows can cost. One process, one thread; allocations are counted, and there
 * must be none once warm.
 */
#include "common/alloc.h"
#include "proto/message.h"
#include "tests/bench/bench_cases.h"
#include "tests/bench/bench_choices.h"
#include "tests/bench/bench_commands.h"
#include "worker/batch.h"
#include "worker/pending.h"
#include "worker/router.h"

#include <math.h>
#include <string.h>

#define POOL_IDS ((size_t)1 << 20)
#define TABLE 1u

typedef struct batch_options {
    psc_option_list_t benches, dims, batches, dists;
    uint64_t rows, servers, repeats, seed;
    double seconds;
    bool json;
} batch_options_t;

static const psc_option_t options_table[] = {
    {.name = "bench",
     .argument = "NAME...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(batch_options_t, benches),
     .help = "What to measure: batch.split, batch.merge, batch.restore. Default: all of these."},
    {.name = "dim",
     .argument = "N...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(batch_options_t, dims),
     .help = "Numbers in a row. Default: 64 128."},
    {.name = "batch",
     .argument = "N...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(batch_options_t, batches),
     .help = "Rows of a batch, as given. Default: 256 1024 8192."},
    {.name = "dist",
     .argument = "NAME...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(batch_options_t, dists),
     .help = "How ids are drawn: uniform, or zipf (exponent 1.0). Default: both."},
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(batch_options_t, rows),
     .min = 100,
     .max = 1e9,
     .default_value = "1000000",
     .help = "Different ids."},
    {.name = "servers",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(batch_options_t, servers),
     .min = 1,
     .max = PSC_MAX_SERVERS,
     .default_value = "4",
     .help = "Owners of the rows."},
    {.name = "seconds",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(batch_options_t, seconds),
     .min = 0.0001,
     .max = 3600,
     .default_value = "0.1",
     .help = "How long one measurement of one side takes."},
    {.name = "repeats",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(batch_options_t, repeats),
     .min = 1,
     .max = BENCH_MAX_REPEATS,
     .default_value = "5",
     .help = "Measurements of each side, in turn; medians are told."},
    {.name = "seed",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(batch_options_t, seed),
     .default_value = "1",
     .help = "Of the ids."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(batch_options_t, json),
     .help = "Print one JSON object a line instead of a table."},
};

static const psc_command_t command = {
    .name = "embps-bench batch",
    .synopsis = "[--bench NAME...] [--dim N...] [--batch N...] [--dist NAME...] [options]",
    .summary = "what a client does to a batch, without messages",
    .description =
        "batch.split: distinct ids are found and sorted by owner. batch.merge: the rows of a push "
        "go where its messages would be, server by server, duplicates summed. batch.restore: the "
        "rows of a pull go from where its answers would be to the caller's order, duplicates "
        "copied. Beside each, \"copy\": the batch's rows copied once, one memcpy a row.\n\n"
        "The table shows medians of rows per second, as given (duplicates count), of the client "
        "and of the copy, the median of the ratios within the rounds, and their spread. JSON has "
        "the keys bench, dim, batch, dist, rows_per_s, against, ratio, against_rows_per_s, "
        "spread. A warm client that allocates is an error.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench batch\n"
                "embps-bench batch --bench batch.merge --dim 64 --batch 1024 --dist zipf --json",
};

typedef struct client {
    const batch_options_t *options;
    size_t dim, batch;
    bool zipf;
    psc_slot_map_t map;
    psw_batch_t *distinct;
    psw_router_t *router;
    bench_ids_t ids;
    uint32_t *order;
    psw_request_t *request;
    float *rows, *messages; /* [max batch, dim] each: the caller's, and those on the wire */
    psw_distinct_t found;   /* of the present batch */
} client_t;

/* ---- the sides ---- */

static psc_status_t split(void *context, size_t number, psc_error_t *error)
{
    client_t *client = context;
    const uint32_t *start;
    psc_status_t st =
        psw_batch_dedupe(client->distinct, TABLE, client->ids.ids + number * client->batch,
                         client->batch, &client->found, error);
    if (st == PSC_OK)
        st = psw_router_split(client->router, &client->map, client->found.hashes,
                              client->found.first, client->found.n, client->order, &start, error);
    return st;
}

/* Of the batch that was split last: the sequence of ids matters little for the rows. */
static psc_status_t merge(void *context, size_t number, psc_error_t *error)
{
    client_t *client = context;
    (void)number;
    (void)error;
    for (size_t i = 0; i < client->found.n; i++)
        psw_batch_sum_row(client->rows, client->dim, client->found.next, client->order[i],
                          (uint8_t *)(client->messages + i * client->dim));
    return PSC_OK;
}

static psc_status_t restore(void *context, size_t number, psc_error_t *error)
{
    client_t *client = context;
    psw_request_t *request = client->request;
    psp_message_t message = {.kind = PSP_PULL_REPLY};
    (void)number;
    message.u.pull_reply = (psp_pull_reply_t){.dim = (uint32_t)client->dim,
                                              .n = client->found.n,
                                              .n_values = client->found.n,
                                              .rows = (const uint8_t *)client->messages};
    psc_status_t st = psw_request_accept(request, 0, 0, (uint32_t)client->found.n, &message, error);
    psw_request_finish(request);
    return st;
}

static psc_status_t copy(void *context, size_t number, psc_error_t *error)
{
    client_t *client = context;
    const size_t bytes = client->dim * sizeof(float);
    (void)number;
    (void)error;
    for (size_t i = 0; i < client->batch; i++)
        memcpy(client->messages + i * client->dim, client->rows + i * client->dim, bytes);
    return PSC_OK;
}

/* ---- one comparison ---- */

static psc_status_t compare(client_t *client, const char *name, bench_batch_fn ours,
                            psc_error_t *error)
{
    const batch_options_t *options = client->options;
    bench_side_t side = {.batch = ours,
                         .context = client,
                         .n_batches = client->ids.n / client->batch,
                         .rows = client->batch};
    bench_side_t other = side;
    bench_rounds_t rounds = {.n = (size_t)options->repeats};
    bench_result_t result = {.bench = name,
                             .dist = client->zipf ? "zipf" : "uniform",
                             .against = "copy",
                             .dim = client->dim,
                             .batch = client->batch,
                             .wanted = NAN,
                             .hit_rate = NAN,
                             .belady_hit_rate = NAN,
                             .bound_full = NAN};
    double rate;
    other.batch = copy;
    psc_status_t st = bench_run_for(&side, options->seconds / 4, &rate, error);
    psc_alloc_fail_at(0); /* counts from here on */
    for (size_t r = 0; st == PSC_OK && r < rounds.n; r++) {
        st = bench_run_for(&side, options->seconds, &rounds.ours[r], error);
        if (st == PSC_OK)
            st = bench_run_for(&other, options->seconds, &rounds.other[r], error);
    }
    if (st == PSC_OK && psc_alloc_count() != 0)
        st = psc_error_set(error, PSC_INTERNAL, "%s allocated %lu times when it was warm", name,
                           psc_alloc_count());
    if (st != PSC_OK)
        return st;
    bench_result_rates(&result, &rounds);
    bench_result_print(&result, options->json);
    return PSC_OK;
}

static psc_status_t run_batch(client_t *client, psc_error_t *error)
{
    const psc_option_list_t *benches = &client->options->benches;
    psc_status_t st = PSC_OK;
    if (bench_choices_wants(benches, "batch.split"))
        st = compare(client, "batch.split", split, error);
    /* The request that a pull of the first batch would have. */
    psw_request_t *request = client->request;
    if (st == PSC_OK)
        st = split(client, 0, error);
    if (st == PSC_OK)
        st = psw_request_reserve_order(request, client->found.n, error);
    if (st == PSC_OK)
        st = psw_request_keep_duplicates(request, client->found.duplicates,
                                         client->found.n_duplicates, error);
    if (st != PSC_OK)
        return st;
    memcpy(request->order, client->order, client->found.n * sizeof *client->order);
    request->rows_out = client->rows;
    request->stride = client->dim;
    request->dim = (uint32_t)client->dim;
    if (bench_choices_wants(benches, "batch.merge"))
        st = compare(client, "batch.merge", merge, error);
    if (st == PSC_OK && bench_choices_wants(benches, "batch.restore"))
        st = compare(client, "batch.restore", restore, error);
    return st;
}

/* ---- set-up ---- */

typedef struct choices {
    size_t dims[BENCH_MAX_CHOICES], batches[BENCH_MAX_CHOICES];
    size_t n_dims, n_batches, max_dim, max_batch;
} choices_t;

static psc_status_t parse(const batch_options_t *options, choices_t *choices, psc_error_t *error)
{
    static const size_t dims[] = {64, 128}, batches[] = {256, 1024, 8192};
    for (size_t i = 0; i < options->benches.n; i++) {
        const char *name = options->benches.items[i];
        if (strcmp(name, "batch.split") != 0 && strcmp(name, "batch.merge") != 0 &&
            strcmp(name, "batch.restore") != 0)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "--bench: there is no \"%.60s\"; --help lists them", name);
    }
    for (size_t i = 0; i < options->dists.n; i++) {
        const char *name = options->dists.items[i];
        if (strcmp(name, "uniform") != 0 && strcmp(name, "zipf") != 0)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "--dist: \"%.40s\"; there are uniform and zipf", name);
    }
    psc_status_t st = bench_choices_numbers("dim", &options->dims, PSP_DIM_MAX, dims, 2,
                                            choices->dims, &choices->n_dims, error);
    if (st == PSC_OK)
        st = bench_choices_numbers("batch", &options->batches, POOL_IDS, batches, 3,
                                   choices->batches, &choices->n_batches, error);
    for (size_t i = 0; i < choices->n_dims; i++)
        if (choices->dims[i] > choices->max_dim)
            choices->max_dim = choices->dims[i];
    for (size_t i = 0; i < choices->n_batches; i++)
        if (choices->batches[i] > choices->max_batch)
            choices->max_batch = choices->batches[i];
    return st;
}

static psc_status_t set_up(client_t *client, const choices_t *choices, psc_error_t *error)
{
    psc_status_t st = psc_slot_map_init(&client->map, (uint32_t)client->options->servers, error);
    if (st == PSC_OK)
        st = psw_batch_create(&client->distinct, error);
    if (st == PSC_OK)
        st = psw_router_create(&client->router, error);
    if (st != PSC_OK)
        return st;
    size_t floats = choices->max_batch * choices->max_dim;
    client->order = psc_alloc_array(choices->max_batch, sizeof *client->order);
    client->request = psc_alloc_zeroed(1, sizeof *client->request);
    client->rows = psc_alloc_aligned(floats * sizeof(float));
    client->messages = psc_alloc_aligned(floats * sizeof(float));
    if (client->order == NULL || client->request == NULL || client->rows == NULL ||
        client->messages == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for batches of %zu rows",
                             choices->max_batch);
    psw_request_reset(client->request);
    bench_fill_gradients(client->rows, floats);
    memset(client->messages, 0, floats * sizeof(float));
    return PSC_OK;
}

static psc_status_t run_dist(client_t *client, const choices_t *choices, psc_error_t *error)
{
    bench_draw_t draw = {.zipf = client->zipf,
                         .n_rows = (size_t)client->options->rows,
                         .n_ids = POOL_IDS,
                         .seed = client->options->seed};
    psc_status_t st = bench_ids_draw(&draw, &client->ids, error);
    for (size_t d = 0; d < choices->n_dims; d++) {
        for (size_t b = 0; st == PSC_OK && b < choices->n_batches; b++) {
            client->dim = choices->dims[d];
            client->batch = choices->batches[b];
            st = run_batch(client, error);
        }
    }
    bench_ids_clear(&client->ids);
    return st;
}

psc_status_t bench_batch(int argc, char *const argv[], psc_error_t *error)
{
    batch_options_t options = {0};
    choices_t choices = {0};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    st = parse(&options, &choices, error);
    if (st != PSC_OK)
        return st;
    client_t client = {.options = &options};
    st = set_up(&client, &choices, error);
    if (st == PSC_OK && !options.json)
        bench_result_print_heading();
    if (st == PSC_OK && bench_choices_wants(&options.dists, "uniform"))
        st = run_dist(&client, &choices, error);
    client.zipf = true;
    if (st == PSC_OK && bench_choices_wants(&options.dists, "zipf"))
        st = run_dist(&client, &choices, error);
    psw_batch_destroy(client.distinct);
    psw_router_destroy(client.router);
    psw_request_destroy(client.request);
    psc_free(client.order);
    psc_free(client.rows);
    psc_free(client.messages);
    return st;
}
