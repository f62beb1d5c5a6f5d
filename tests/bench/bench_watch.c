/*
 * embps-bench watch: what pushes by address cost while their table is watched.
 *
 * One client pushes the same rows again and again; others, each on a thread and a client of its
 * own, watch: one, four, one that takes something every tenth of a second, and one that never takes
 * anything. Each has its turn beside pushes to a table of the same rows that nobody ever watched:
 * a server remembers what is pushed to a watched table for half a minute after its last watcher, so
 * the same table could not be both. Watchers run on this machine too, and where it has no core for
 * them, what they take from the pushes is in the ratio. The server is a process of its own.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "common/options.h"
#include "embps.h"
#include "tests/bench/bench_commands.h"
#include "tests/bench/bench_door.h"
#include "tests/bench/bench_folder.h"
#include "tests/bench/bench_measure.h"
#include "worker/programs/client_error.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#define SPREAD_IDS UINT64_C(0x9e3779b97f4a7c15)
#define SLOWLY_US 100000u
#define WAIT_MS 20u

enum { MOST_WATCHERS = 4 };

typedef struct watch_options {
    uint64_t rows, dim, repeats;
    double seconds;
    const char *dir;
    bool ids_only, json;
} watch_options_t;

static const psc_option_t options_table[] = {
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(watch_options_t, rows),
     .min = 1,
     .max = 100000,
     .default_value = "1024",
     .help = "Rows of a push."},
    {.name = "dim",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(watch_options_t, dim),
     .min = 1,
     .max = 4096,
     .default_value = "64",
     .help = "Numbers of a row."},
    {.name = "seconds",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(watch_options_t, seconds),
     .min = 0.0001,
     .max = 3600,
     .default_value = "0.5",
     .help = "How long one side's turn takes."},
    {.name = "repeats",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(watch_options_t, repeats),
     .min = 1,
     .max = BENCH_MAX_REPEATS,
     .default_value = "5",
     .help = "Turns of each side; medians are told."},
    {.name = "dir",
     .argument = "DIR",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(watch_options_t, dir),
     .default_value = ".",
     .help = "Where a folder for the server's data is made, and removed."},
    {.name = "ids-only",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(watch_options_t, ids_only),
     .help = "Watchers want no rows, but their ids."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(watch_options_t, json),
     .help = "Print one JSON object a line instead of a table."},
};

static const psc_command_t command = {
    .name = "embps-bench watch",
    .synopsis = "[options]",
    .summary = "pushes by address while their table is watched",
    .description = "Pushes the same rows again and again to a server that listens on loopback, "
                   "while one client watches the table, or four, or one that reads slowly, or one "
                   "that never reads, beside the same pushes to a table that nobody watches.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench watch --rows 8192 --dim 128",
};

typedef enum manner { AT_ONCE, SLOWLY, NEVER } manner_t;

typedef struct kind {
    const char *name;
    size_t n_watchers;
    manner_t manner;
} kind_t;

static const kind_t kinds[] = {{"watch.one", 1, AT_ONCE},
                               {"watch.four", MOST_WATCHERS, AT_ONCE},
                               {"watch.slow", 1, SLOWLY},
                               {"watch.unread", 1, NEVER}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct watch_bench {
    const watch_options_t *options;
    bench_door_child_t server;
    bench_folder_t folder;
    embps_client_t *client;
    embps_table_t *watched, *other;
    uint64_t *ids;
    float *rows;
    atomic_bool over; /* of this turn's watchers */
    atomic_size_t n_ready;
} watch_bench_t;

typedef struct watcher {
    watch_bench_t *bench;
    manner_t manner;
    pthread_t thread;
    psc_status_t st;
    psc_error_t error;
} watcher_t;

static psc_status_t import(int code, const embps_error_t *from, psc_error_t *error)
{
    return code == 0 ? PSC_OK : psw_error_import(from, error);
}

static psc_status_t open_table(const watch_bench_t *b, embps_client_t *client, const char *name,
                               embps_table_t **table_out, psc_error_t *error)
{
    embps_error_t what;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = (uint32_t)b->options->dim;
    return import(embps_table_open(client, name, &options, table_out, &what), &what, error);
}

/* ---- watchers ---- */

static int look(embps_watch_t *watch, manner_t manner, embps_error_t *what)
{
    embps_block_t block;
    bool lost;
    if (manner != AT_ONCE)
        psc_clock_sleep_us(manner == SLOWLY ? SLOWLY_US : WAIT_MS * 1000);
    return manner != NEVER ? embps_watch_next(watch, WAIT_MS, &block, &lost, what) : 0;
}

static void *be_watcher(void *context)
{
    watcher_t *watcher = context;
    watch_bench_t *b = watcher->bench;
    embps_client_t *client = NULL;
    embps_table_t *table;
    embps_watch_t *watch = NULL;
    embps_error_t what;
    watcher->st =
        import(embps_connect(b->server.address, NULL, &client, &what), &what, &watcher->error);
    if (watcher->st == PSC_OK)
        watcher->st = open_table(b, client, "watched", &table, &watcher->error);
    if (watcher->st == PSC_OK)
        watcher->st = import(
            embps_watch_start(table, b->options->ids_only ? 0 : EMBPS_WATCH_ROWS, &watch, &what),
            &what, &watcher->error);
    atomic_fetch_add(&b->n_ready, 1);
    while (watcher->st == PSC_OK && !atomic_load(&b->over))
        watcher->st = import(look(watch, watcher->manner, &what), &what, &watcher->error);
    embps_watch_end(watch);
    embps_abandon(client, 0);
    return NULL;
}

/* ---- the two sides ---- */

static psc_status_t push_to(watch_bench_t *b, embps_table_t *table, psc_error_t *error)
{
    embps_error_t what;
    return import(
        embps_push(table, EMBPS_DELTA, b->ids, (size_t)b->options->rows, b->rows, 0, &what), &what,
        error);
}

static psc_status_t push_watched(void *context, size_t number, psc_error_t *error)
{
    watch_bench_t *b = context;
    (void)number;
    return push_to(b, b->watched, error);
}

static psc_status_t push_other(void *context, size_t number, psc_error_t *error)
{
    watch_bench_t *b = context;
    (void)number;
    return push_to(b, b->other, error);
}

/* One turn of pushes under the eyes of a kind's watchers. */
static psc_status_t push_under_watch(bench_side_t *side, const kind_t *kind, double *rate_out,
                                     psc_error_t *error)
{
    watch_bench_t *b = side->context;
    watcher_t watchers[MOST_WATCHERS];
    size_t n = 0;
    psc_status_t st = PSC_OK;
    atomic_store(&b->over, false);
    atomic_store(&b->n_ready, 0);
    for (; st == PSC_OK && n < kind->n_watchers; n++) {
        watchers[n] = (watcher_t){.bench = b, .manner = kind->manner, .error = PSC_ERROR_INIT};
        const int code = pthread_create(&watchers[n].thread, NULL, be_watcher, &watchers[n]);
        if (code != 0) {
            st = psc_error_set_errno(error, code, "no thread for a watcher");
            break;
        }
    }
    while (atomic_load(&b->n_ready) < n)
        psc_clock_sleep_us(1000);
    if (st == PSC_OK)
        st = bench_run_for(side, b->options->seconds, rate_out, error);
    atomic_store(&b->over, true);
    for (size_t i = 0; i < n; i++) {
        (void)pthread_join(watchers[i].thread, NULL);
        if (st == PSC_OK && watchers[i].st != PSC_OK) {
            st = watchers[i].st;
            *error = watchers[i].error;
        }
    }
    return st;
}

static psc_status_t compare(watch_bench_t *b, psc_error_t *error)
{
    const watch_options_t *o = b->options;
    bench_side_t watched = {
        .batch = push_watched, .context = b, .n_batches = 1, .rows = (size_t)o->rows};
    bench_side_t other = {
        .batch = push_other, .context = b, .n_batches = 1, .rows = (size_t)o->rows};
    bench_rounds_t rounds[N_KINDS] = {{0}};
    double rate;
    psc_status_t st = bench_run_for(&other, o->seconds / 2, &rate, error); /* windows, memory */
    for (size_t r = 0; st == PSC_OK && r < o->repeats; r++) {
        for (size_t k = 0; st == PSC_OK && k < N_KINDS; k++) {
            st = bench_run_for(&other, o->seconds, &rounds[k].other[r], error);
            if (st == PSC_OK)
                st = push_under_watch(&watched, &kinds[k], &rounds[k].ours[r], error);
            rounds[k].n = r + 1;
        }
    }
    for (size_t k = 0; st == PSC_OK && k < N_KINDS; k++) {
        bench_result_t result = {.bench = kinds[k].name,
                                 .dist = "uniform",
                                 .against = "unwatched",
                                 .dim = (size_t)o->dim,
                                 .batch = (size_t)o->rows,
                                 .in_flight = 1,
                                 .wanted = kinds[k].manner == AT_ONCE ? NAN : 0.9,
                                 .hit_rate = NAN,
                                 .belady_hit_rate = NAN,
                                 .bound_full = NAN};
        bench_result_rates(&result, &rounds[k]);
        bench_result_print(&result, o->json);
    }
    return st;
}

/* The server before anything of gRPC exists in this process. */
static psc_status_t start(watch_bench_t *b, psc_error_t *error)
{
    const watch_options_t *o = b->options;
    embps_error_t what;
    psc_status_t st = bench_folder_make(o->dir, &b->folder, error);
    if (st == PSC_OK)
        st = bench_door_start(b->folder.path, 0, false, &b->server, error);
    if (st != PSC_OK)
        return st;
    b->ids = psc_alloc_array((size_t)o->rows, sizeof *b->ids);
    b->rows = psc_alloc_zeroed((size_t)(o->rows * o->dim), sizeof *b->rows);
    if (b->ids == NULL || b->rows == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for the rows");
    for (uint64_t i = 0; i < o->rows; i++)
        b->ids[i] = i * SPREAD_IDS;
    st = import(embps_connect(b->server.address, NULL, &b->client, &what), &what, error);
    if (st == PSC_OK)
        st = open_table(b, b->client, "watched", &b->watched, error);
    if (st == PSC_OK)
        st = open_table(b, b->client, "other", &b->other, error);
    if (st == PSC_OK)
        st = push_to(b, b->watched, error);
    return st == PSC_OK ? push_to(b, b->other, error) : st;
}

psc_status_t bench_watch(int argc, char *const argv[], psc_error_t *error)
{
    watch_options_t options = {0};
    watch_bench_t b = {.options = &options};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    st = start(&b, error);
    if (st == PSC_OK && !options.json)
        bench_result_print_wire_heading();
    if (st == PSC_OK)
        st = compare(&b, error);
    embps_abandon(b.client, (int)st);
    bench_door_stop(&b.server);
    bench_folder_remove(&b.folder);
    psc_free(b.ids);
    psc_free(b.rows);
    return st;
}
