/*
 * embps-bench store: what the row store costs over what it is made of.
 *
 * Everything runs on one processor, the store's I/O thread and RocksDB's threads included: the
 * process binds itself to it before it starts any. Which benches, dims, batches and distributions
 * are run is chosen by lists; a store is loaded once for each dim and optimizer and then used for
 * all batches and distributions.
 */
#include "common/options.h"
#include "ps/optim/optim.h"
#include "tests/bench/bench_cases.h"
#include "tests/bench/bench_choices.h"
#include "tests/bench/bench_commands.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

typedef struct store_options {
    psc_option_list_t benches, dims, batches, dists;
    uint64_t rows, repeats, seed, cpu;
    double seconds, cold_share;
    const char *dir, *ids;
    bool json, stepwise, cpu_time, raw_filters;
} store_options_t;

static const psc_option_t options_table[] = {
    {.name = "bench",
     .argument = "NAME...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(store_options_t, benches),
     .help = "What to measure: store.pull.hot, store.push.sgd, store.push.adagrad (beside a plain "
             "array), store.pull.cold, store.push.cold (beside raw RocksDB), store.pull.tenth "
             "(beside raw RocksDB and the bound that Belady's policy sets). Default: all of these. "
             "store.push.OPTIMIZER with any other optimizer is measured with --stepwise."},
    {.name = "dim",
     .argument = "N...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(store_options_t, dims),
     .help = "Numbers in a row. Default: 64 128."},
    {.name = "batch",
     .argument = "N...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(store_options_t, batches),
     .help = "Rows of a pull or push, as given. Default: 256 1024 8192."},
    {.name = "dist",
     .argument = "NAME...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(store_options_t, dists),
     .help = "How ids are drawn: uniform, or zipf (exponent 1.0). Default: both."},
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(store_options_t, rows),
     .min = 100,
     .max = 1e9,
     .default_value = "1000000",
     .help = "Rows of the table."},
    {.name = "seconds",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(store_options_t, seconds),
     .min = 0.0001,
     .max = 3600,
     .default_value = "0.5",
     .help =
         "How long one measurement of one side takes. store.pull.tenth takes as long as as many "
         "ids as there are rows take."},
    {.name = "repeats",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(store_options_t, repeats),
     .min = 1,
     .max = BENCH_MAX_REPEATS,
     .default_value = "5",
     .help = "Measurements of each side, in turn; medians are told."},
    {.name = "cold-share",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(store_options_t, cold_share),
     .min = 0.0001,
     .max = 1,
     .default_value = "0.02",
     .help = "store.pull.cold, store.push.cold: the share of the rows that there is memory for; "
             "never less than the smallest store has, nor than nine of the largest batches need "
             "(of a quarter of the rows at most)."},
    {.name = "seed",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(store_options_t, seed),
     .default_value = "1",
     .help = "Of the ids."},
    {.name = "cpu",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(store_options_t, cpu),
     .max = 1023,
     .default_value = "1023",
     .help = "The processor that everything runs on; when it is not there or not allowed, the last "
             "one that is."},
    {.name = "dir",
     .argument = "DIR",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(store_options_t, dir),
     .default_value = "/tmp",
     .environment = "TMPDIR",
     .help =
         "Where data goes: in folders embps-bench-..., removed at the end. The full run needs 3 "
         "GB, on a disk that the page cache holds."},
    {.name = "ids",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(store_options_t, ids),
     .help = "Rows to ask for instead of drawn ones: little-endian 64-bit row numbers from 0, used "
             "over and over. For benches of rows in memory."},
    {.name = "stepwise",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(store_options_t, stepwise),
     .help = "Measure the store alone, once for each line of standard input, and tell it at once: "
             "for a program that measures something else in between. For benches of rows in "
             "memory."},
    {.name = "cpu-time",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(store_options_t, cpu_time),
     .help = "Rates by the processor time of the process, all its threads together, instead of the "
             "time that passes. On a quiet machine, with the page cache warm, the two are nearly "
             "equal, since all runs on one processor; on a busy one this tells more."},
    {.name = "raw-filters",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(store_options_t, raw_filters),
     .help =
         "Raw RocksDB looks into the filters of its files, as the store must, which cannot know "
         "that all rows asked for exist."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(store_options_t, json),
     .help = "Print one JSON object a line instead of a table."},
};

static const psc_command_t command = {
    .name = "embps-bench store",
    .synopsis = "[--bench NAME...] [--dim N...] [--batch N...] [--dist NAME...] [options]",
    .summary = "what the row store costs over what it is made of, on one core",
    .description =
        "Pulls and pushes batches of rows as the server does for a request, without messages: ids "
        "are hashed and looked up, rows made resident, gathered into a reply or updated by the "
        "optimizer. In turn with each measurement the same rows are asked of something simpler: "
        "an array in memory whose places are known beforehand (one memcpy, or one "
        "read-modify-write of the same arithmetic, a row, prefetched), or RocksDB itself over the "
        "same files, given each batch's distinct keys already sorted.\n\n"
        "The table shows medians of rows per second, as given (duplicates count), of the store and "
        "of the other; the median of the ratios within the rounds; what ratio is wanted ('<<': it "
        "is below); the spread of the ratios; and the share of rows found in memory: of distinct "
        "rows where all should be cold (these do not count there: the store's rate is lowered by "
        "their share), of rows as given for store.pull.tenth, with what the best "
        "policy there can be would have found.\n\n"
        "JSON has the keys bench, dim, batch, dist, rows_per_s, against, ratio, "
        "against_rows_per_s, spread, wanted, and where they apply hit_rate (0 to 1), "
        "belady_hit_rate, bound and bound_full (rows per second).\n\n"
        "With one processor busy otherwise the spread grows; ratios stay of use longer than rates.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench store\n"
                "embps-bench store --bench store.pull.hot --dim 64 --batch 1024 --seconds 0.2\n"
                "embps-bench store --bench store.pull.tenth --json",
};

/* ---- choices ---- */

typedef struct choices {
    size_t dims[BENCH_MAX_CHOICES], batches[BENCH_MAX_CHOICES];
    bool dists[2];
    size_t n_dims, n_batches, n_dists;
} choices_t;

static psc_status_t parse_choices(const store_options_t *options, choices_t *choices,
                                  psc_error_t *error)
{
    static const size_t dims[] = {64, 128}, batches[] = {256, 1024, 8192};
    psc_status_t st = bench_choices_numbers("dim", &options->dims, PSP_DIM_MAX, dims, 2,
                                            choices->dims, &choices->n_dims, error);
    if (st == PSC_OK)
        st = bench_choices_numbers("batch", &options->batches, 1 << 20, batches, 3,
                                   choices->batches, &choices->n_batches, error);
    if (st != PSC_OK)
        return st;
    for (size_t i = 0; i < options->dists.n; i++) {
        bool zipf = strcmp(options->dists.items[i], "zipf") == 0;
        if ((!zipf && strcmp(options->dists.items[i], "uniform") != 0) || i == 2)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "--dist: \"%.40s\"; there are uniform and zipf, each once",
                                 options->dists.items[i]);
        choices->dists[choices->n_dists++] = zipf;
    }
    if (choices->n_dists == 0 || options->ids != NULL) {
        choices->dists[0] = false;
        choices->dists[1] = true;
        choices->n_dists = options->ids != NULL ? 1 : 2;
    }
    return PSC_OK;
}

static bool wants(const store_options_t *options, const char *name)
{
    return bench_choices_wants(&options->benches, name);
}

/* The optimizer of "store.push.OPTIMIZER", or NULL. */
static const char *optimizer_of(const char *bench)
{
    static const char prefix[] = "store.push.";
    if (strncmp(bench, prefix, sizeof prefix - 1) != 0)
        return NULL;
    const char *name = bench + sizeof prefix - 1;
    return ps_optim_find(name) != NULL ? name : NULL;
}

static psc_status_t check_benches(const store_options_t *options, psc_error_t *error)
{
    static const char *const others[] = {"store.pull.hot", "store.pull.cold", "store.push.cold",
                                         "store.pull.tenth"};
    bool of_memory = options->benches.n != 0;
    for (size_t i = 0; i < options->benches.n; i++) {
        const char *name = options->benches.items[i];
        const char *optimizer = optimizer_of(name);
        bool known = optimizer != NULL;
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
            known = known || strcmp(name, others[k]) == 0;
        if (!known)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "--bench: there is no \"%.60s\"; --help lists them", name);
        bool has_plain = optimizer != NULL &&
                         (strcmp(optimizer, "sgd") == 0 || strcmp(optimizer, "adagrad") == 0);
        if (optimizer != NULL && !has_plain && !options->stepwise)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "%.60s is compared with nothing: use --stepwise", name);
        of_memory = of_memory && (optimizer != NULL || strcmp(name, others[0]) == 0);
    }
    if ((options->stepwise || options->ids != NULL) && !of_memory)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--stepwise and --ids need --bench with benches of rows in memory");
    return PSC_OK;
}

/* ---- running ---- */

static psc_status_t bind_to(uint64_t wanted, psc_error_t *error)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return psc_error_set(error, PSC_INTERNAL, "sched_getaffinity: %s", strerror(errno));
    size_t cpu = CPU_SETSIZE;
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &allowed) && (cpu == CPU_SETSIZE || i <= wanted))
            cpu = i;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return psc_error_set(error, PSC_INTERNAL, "sched_setaffinity: %s", strerror(errno));
    return PSC_OK;
}

/* Benches of rows in memory: pulls share the store of sgd. */
static psc_status_t run_hot(const store_options_t *options, const bench_setup_t *setup, size_t dim,
                            psc_error_t *error)
{
    static const char *const defaults[] = {"store.push.sgd", "store.push.adagrad"};
    bool by_default = options->benches.n == 0;
    size_t n = by_default ? 2 : options->benches.n;
    const char *const *names = by_default ? defaults : options->benches.items;
    const char *pull = wants(options, "store.pull.hot") ? "store.pull.hot" : NULL;
    psc_status_t st = PSC_OK;
    if (pull != NULL && !wants(options, "store.push.sgd"))
        st = bench_hot_run(setup, &(bench_hot_case_t){.pull = pull, .optimizer = "sgd", .dim = dim},
                           error);
    for (size_t i = 0; st == PSC_OK && i < n; i++) {
        bench_hot_case_t what = {.push = names[i], .optimizer = optimizer_of(names[i]), .dim = dim};
        if (what.optimizer == NULL)
            continue;
        if (strcmp(what.optimizer, "sgd") == 0)
            what.pull = pull;
        st = bench_hot_run(setup, &what, error);
    }
    return st;
}

static psc_status_t run_dim(const store_options_t *options, const bench_setup_t *setup, size_t dim,
                            psc_error_t *error)
{
    psc_status_t st = run_hot(options, setup, dim, error);
    bool pull = wants(options, "store.pull.cold"), push = wants(options, "store.push.cold");
    if (st == PSC_OK && (pull || push))
        st = bench_cold_run(setup, dim, pull, push, error);
    bool zipf = setup->dists[0] || (setup->n_dists == 2 && setup->dists[1]);
    if (st == PSC_OK && wants(options, "store.pull.tenth") && zipf)
        st = bench_tenth_run(setup, dim, error);
    return st;
}

static psc_status_t run(const store_options_t *options, psc_error_t *error)
{
    choices_t choices = {0};
    psc_status_t st = check_benches(options, error);
    if (st == PSC_OK)
        st = parse_choices(options, &choices, error);
    if (st == PSC_OK)
        st = bind_to(options->cpu, error);
    bench_ids_t ids = {0};
    if (st == PSC_OK && options->ids != NULL)
        st = bench_ids_read(options->ids, (size_t)options->rows, &ids, error);
    if (st != PSC_OK)
        return st;
    bench_setup_t setup = {.rows = (size_t)options->rows,
                           .repeats = (size_t)options->repeats,
                           .seconds = options->seconds,
                           .seed = options->seed,
                           .dir = options->dir,
                           .cold_share = options->cold_share,
                           .stepwise = options->stepwise,
                           .json = options->json,
                           .cpu_time = options->cpu_time,
                           .raw_filters = options->raw_filters,
                           .given_ids = options->ids != NULL ? &ids : NULL,
                           .batches = choices.batches,
                           .n_batches = choices.n_batches,
                           .dists = choices.dists,
                           .n_dists = choices.n_dists};
    for (size_t b = 0; b < choices.n_batches; b++)
        if (choices.batches[b] > setup.max_batch)
            setup.max_batch = choices.batches[b];
    if (!options->json)
        bench_result_print_heading();
    for (size_t d = 0; st == PSC_OK && d < choices.n_dims; d++)
        st = run_dim(options, &setup, choices.dims[d], error);
    bench_ids_clear(&ids);
    return st;
}

psc_status_t bench_store(int argc, char *const argv[], psc_error_t *error)
{
    store_options_t options = {0};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    return run(&options, error);
}
