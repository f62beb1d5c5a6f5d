/*
 * embps-bench door: pulls and pushes by address beside bare calls of gRPC's core.
 *
 * Our side is the whole way: ids made distinct and sorted by owner, messages of at most 1 MiB, a
 * server's look-up and gather or step, rows in the caller's memory. The bare side is one unary call
 * with as many bytes of ids and rows each way, whatever their number. Servers are processes of
 * their own; the sides take turns.
 */
#include "tests/bench/bench_door.h"
#include "common/alloc.h"
#include "common/options.h"
#include "embps.h"
#include "tests/bench/bench_commands.h"
#include "tests/bench/bench_folder.h"
#include "tests/bench/bench_measure.h"
#include "worker/programs/client_error.h"

#include <math.h>
#include <stdio.h>

#define WANTED 0.7
#define SPREAD_IDS UINT64_C(0x9e3779b97f4a7c15)

typedef struct door_options {
    uint64_t rows, dim, repeats;
    double seconds;
    const char *dir;
    bool checksums, json;
} door_options_t;

static const psc_option_t options_table[] = {
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(door_options_t, rows),
     .min = 1,
     .max = 100000,
     .default_value = "8192",
     .help = "Rows of a pull or push."},
    {.name = "dim",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(door_options_t, dim),
     .min = 1,
     .max = 4096,
     .default_value = "128",
     .help = "Numbers of a row."},
    {.name = "seconds",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(door_options_t, seconds),
     .min = 0.0001,
     .max = 3600,
     .default_value = "0.5",
     .help = "How long one side's turn takes."},
    {.name = "repeats",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(door_options_t, repeats),
     .min = 1,
     .max = BENCH_MAX_REPEATS,
     .default_value = "5",
     .help = "Turns of each side; medians are told."},
    {.name = "dir",
     .argument = "DIR",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(door_options_t, dir),
     .default_value = ".",
     .help = "Where a folder for the server's data is made, and removed."},
    {.name = "checksums",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(door_options_t, checksums),
     .help = "Instead of bare calls the same without checksums is beside pulls and pushes with "
             "them (embps-server --checksums)."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(door_options_t, json),
     .help = "Print one JSON object a line instead of a table."},
};

static const psc_command_t command = {
    .name = "embps-bench door",
    .synopsis = "[options]",
    .summary = "pulls and pushes by address, beside bare calls of gRPC's core",
    .description = "Pulls and pushes the same rows again and again from a server that listens on "
                   "loopback, one call after another, beside unary calls of gRPC's core with the "
                   "same bytes each way, in which nobody looks at them.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench door --rows 1024",
};

typedef struct door_bench door_bench_t;

/* A server of ours, and who asks it. */
typedef struct served {
    const door_bench_t *bench;
    bench_folder_t folder;
    bench_door_child_t server;
    embps_client_t *client;
    embps_table_t *table;
} served_t;

struct door_bench {
    const door_options_t *options;
    served_t ours, checked; /* checked: with checksums */
    bench_door_child_t bare_server;
    bench_bare_t *bare;
    uint64_t *ids;
    float *rows;
    size_t n_values, ids_bytes, rows_bytes;
    uint8_t *request; /* of the bare side: as many bytes as ids and rows together */
};

static psc_status_t import(int code, const embps_error_t *from, psc_error_t *error)
{
    return code == 0 ? PSC_OK : psw_error_import(from, error);
}

static psc_status_t pull(void *context, size_t number, psc_error_t *error)
{
    const served_t *served = context;
    const door_bench_t *b = served->bench;
    embps_error_t what;
    (void)number;
    return import(embps_pull(served->table, b->ids, (size_t)b->options->rows, b->rows, &what),
                  &what, error);
}

static psc_status_t push(void *context, size_t number, psc_error_t *error)
{
    const served_t *served = context;
    const door_bench_t *b = served->bench;
    embps_error_t what;
    (void)number;
    return import(
        embps_push(served->table, EMBPS_DELTA, b->ids, (size_t)b->options->rows, b->rows, 0, &what),
        &what, error);
}

static psc_status_t bare_pull(void *context, size_t number, psc_error_t *error)
{
    door_bench_t *b = context;
    (void)number;
    return bench_bare_call(b->bare, BENCH_BARE_PULL, b->request, b->ids_bytes, b->rows_bytes,
                           error);
}

static psc_status_t bare_push(void *context, size_t number, psc_error_t *error)
{
    door_bench_t *b = context;
    (void)number;
    return bench_bare_call(b->bare, BENCH_BARE_PUSH, b->request, b->ids_bytes + b->rows_bytes, 0,
                           error);
}

static psc_status_t compare(const door_bench_t *b, const char *name, bench_side_t sides[2],
                            const char *against, double wanted, psc_error_t *error)
{
    const door_options_t *o = b->options;
    bench_rounds_t rounds = {.n = (size_t)o->repeats};
    double rate;
    psc_status_t st = PSC_OK;
    for (size_t s = 0; st == PSC_OK && s < 2; s++) /* connections, windows, memory */
        st = bench_run_for(&sides[s], o->seconds / 4, &rate, error);
    for (size_t r = 0; st == PSC_OK && r < rounds.n; r++) {
        st = bench_run_for(&sides[0], o->seconds, &rounds.ours[r], error);
        if (st == PSC_OK)
            st = bench_run_for(&sides[1], o->seconds, &rounds.other[r], error);
    }
    if (st != PSC_OK)
        return st;
    bench_result_t result = {.bench = name,
                             .dist = "uniform",
                             .against = against,
                             .dim = (size_t)o->dim,
                             .batch = (size_t)o->rows,
                             .in_flight = 1,
                             .wanted = wanted,
                             .hit_rate = NAN,
                             .belady_hit_rate = NAN,
                             .bound_full = NAN};
    bench_result_rates(&result, &rounds);
    bench_result_print(&result, o->json);
    return PSC_OK;
}

static psc_status_t start_server(door_bench_t *b, served_t *served, bool checksums,
                                 psc_error_t *error)
{
    served->bench = b;
    psc_status_t st = bench_folder_make(b->options->dir, &served->folder, error);
    return st == PSC_OK
               ? bench_door_start(served->folder.path, 0, checksums, &served->server, error)
               : st;
}

static psc_status_t come(served_t *served, psc_error_t *error)
{
    embps_error_t what;
    embps_table_options_t of_table = EMBPS_TABLE_OPTIONS_DEFAULT;
    psc_status_t st =
        import(embps_connect(served->server.address, NULL, &served->client, &what), &what, error);
    of_table.dim = (uint32_t)served->bench->options->dim;
    if (st == PSC_OK)
        st = import(embps_table_open(served->client, "rows", &of_table, &served->table, &what),
                    &what, error);
    return st == PSC_OK ? push(served, 0, error) : st;
}

static psc_status_t leave(served_t *served, psc_status_t st, psc_error_t *error)
{
    embps_error_t what;
    if (st == PSC_OK)
        st = import(embps_close(served->client, &what), &what, error);
    else
        embps_abandon(served->client, (int)st);
    bench_door_stop(&served->server);
    bench_folder_remove(&served->folder);
    return st;
}

/* All servers before anything of gRPC exists in this process. */
static psc_status_t start(door_bench_t *b, psc_error_t *error)
{
    const door_options_t *o = b->options;
    b->ids_bytes = (size_t)o->rows * sizeof *b->ids;
    b->n_values = (size_t)(o->rows * o->dim);
    b->rows_bytes = b->n_values * sizeof *b->rows;
    psc_status_t st = start_server(b, &b->ours, false, error);
    if (st == PSC_OK)
        st = o->checksums ? start_server(b, &b->checked, true, error)
                          : bench_door_start(NULL, b->rows_bytes, false, &b->bare_server, error);
    if (st != PSC_OK)
        return st;
    b->ids = psc_alloc_array((size_t)o->rows, sizeof *b->ids);
    b->rows = psc_alloc_zeroed(b->n_values, sizeof *b->rows);
    b->request = psc_alloc_zeroed(b->ids_bytes + b->rows_bytes, 1);
    if (b->ids == NULL || b->rows == NULL || b->request == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu values", b->n_values);
    for (uint64_t i = 0; i < o->rows; i++)
        b->ids[i] = i * SPREAD_IDS;
    st = come(&b->ours, error);
    if (st == PSC_OK)
        st = o->checksums ? come(&b->checked, error)
                          : bench_bare_create(b->bare_server.address, &b->bare, error);
    return st;
}

static psc_status_t compare_all(door_bench_t *b, psc_error_t *error)
{
    const size_t rows = (size_t)b->options->rows;
    const bool checksums = b->options->checksums;
    void *one = checksums ? &b->checked : &b->ours, *other = checksums ? (void *)&b->ours : b;
    const char *against = checksums ? "without" : "bare call";
    bench_side_t pulls[2] = {
        {.batch = pull, .context = one, .n_batches = 1, .rows = rows},
        {.batch = checksums ? pull : bare_pull, .context = other, .n_batches = 1, .rows = rows}};
    bench_side_t pushes[2] = {
        {.batch = push, .context = one, .n_batches = 1, .rows = rows},
        {.batch = checksums ? push : bare_push, .context = other, .n_batches = 1, .rows = rows}};
    psc_status_t st = compare(b, checksums ? "door.pull.checked" : "door.pull", pulls, against,
                              checksums ? NAN : WANTED, error);
    if (st == PSC_OK)
        st = compare(b, checksums ? "door.push.checked" : "door.push", pushes, against, NAN, error);
    return st;
}

psc_status_t bench_door(int argc, char *const argv[], psc_error_t *error)
{
    door_options_t options = {0};
    door_bench_t b = {.options = &options};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    st = start(&b, error);
    if (st == PSC_OK && !options.json)
        bench_result_print_wire_heading();
    if (st == PSC_OK)
        st = compare_all(&b, error);
    st = leave(&b.ours, st, error);
    if (options.checksums)
        st = leave(&b.checked, st, error);
    bench_bare_destroy(b.bare);
    bench_door_stop(&b.bare_server);
    psc_free(b.ids);
    psc_free(b.rows);
    psc_free(b.request);
    return st;
}
