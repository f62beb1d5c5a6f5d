/*
 * embps-bench grow: one table that outgrows its memory.
 *
 * Rows are added under a fixed budget; at each of a few sizes pulls and pushes are measured. What
 * one looks for is a cliff: a size from which on everything is slower by more than the share of
 * rows that still are in memory, or in the page cache, explains; and memory that grows with the
 * table.
 *
 * Unlike the other benchmarks nothing is bound to one processor: owner, I/O thread and RocksDB run
 * as in a server. Each measurement is preceded by one of the same kind that is not told, so that
 * the rows in memory are those that these requests keep there; compactions go on meanwhile, as they
 * would.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "common/options.h"
#include "tests/bench/bench_cases.h"
#include "tests/bench/bench_commands.h"
#include "tests/bench/bench_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define POOL_IDS ((size_t)1 << 20)
#define KIB 1024.0

typedef struct grow_options {
    uint64_t rows, dim, memory, batch, seed, first;
    double seconds;
    const char *dir, *optimizer;
} grow_options_t;

static const psc_option_t options_table[] = {
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(grow_options_t, rows),
     .min = 100,
     .max = 4e9,
     .default_value = "50000000",
     .help = "Rows at the end."},
    {.name = "first",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(grow_options_t, first),
     .min = 100,
     .max = 4e9,
     .default_value = "1000000",
     .help = "Rows at the first measurement. Then follow 2, 5, 10, 20, 50... times as many."},
    {.name = "dim",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(grow_options_t, dim),
     .min = 1,
     .max = PSP_DIM_MAX,
     .default_value = "32",
     .help = "Numbers in a row."},
    {.name = "memory",
     .argument = "BYTES",
     .type = PSC_OPTION_SIZE,
     .offset = offsetof(grow_options_t, memory),
     .min = (double)PS_STORE_MIN_MEMORY,
     .max = 0x1p50,
     .default_value = "1G",
     .help = "Budget of the store, RocksDB's memory included, as a server's --memory."},
    {.name = "batch",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(grow_options_t, batch),
     .min = 1,
     .max = 1 << 20,
     .default_value = "1024",
     .help = "Rows of a pull or push."},
    {.name = "optimizer",
     .argument = "NAME",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(grow_options_t, optimizer),
     .default_value = "sgd",
     .help = "Of the table; others than sgd add their state to each row."},
    {.name = "seconds",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(grow_options_t, seconds),
     .min = 0.0001,
     .max = 3600,
     .default_value = "5",
     .help = "How long one measurement takes."},
    {.name = "seed",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(grow_options_t, seed),
     .default_value = "1",
     .help = "Of the ids."},
    {.name = "dir",
     .argument = "DIR",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(grow_options_t, dir),
     .default_value = "/tmp",
     .environment = "TMPDIR",
     .help = "Where data goes: in a folder embps-bench-..., removed at the end."},
};

static const psc_command_t command = {
    .name = "embps-bench grow",
    .synopsis = "[--rows N] [--dim N] [--memory BYTES] [options]",
    .summary = "the row store while its table outgrows its memory",
    .description =
        "Adds rows to one table under a fixed budget and measures pulls and pushes at several "
        "sizes. Prints CSV with a heading: rows; bytes on disk; anonymous memory of this process; "
        "rows added a second since the size before; then rows a second, and the share of rows as "
        "given that was in memory, of pulls with even ids, pulls by Zipf's law, and pushes with "
        "even ids.\n\n"
        "tests/bench/large runs it, checks that the disk has room, and draws the figures.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench grow --rows 2000000 --first 100000 --memory 64M --seconds 2",
};

typedef struct grow {
    const grow_options_t *options;
    bench_folder_t folder;
    bench_shard_t *shard;
    bench_ids_t ids;
    float *values; /* [batch, dim] */
} grow_t;

typedef struct rate {
    double rows_per_s, hit_rate;
} rate_t;

static psc_status_t pull(void *context, size_t number, psc_error_t *error)
{
    grow_t *grow = context;
    size_t batch = (size_t)grow->options->batch, absent;
    psc_status_t st = bench_shard_pull(grow->shard, grow->ids.ids + number * batch, batch,
                                       grow->values, &absent, error);
    if (st == PSC_OK && absent != 0)
        st = psc_error_set(error, PSC_INTERNAL, "%zu rows are not there", absent);
    return st;
}

static psc_status_t push(void *context, size_t number, psc_error_t *error)
{
    grow_t *grow = context;
    size_t batch = (size_t)grow->options->batch;
    return bench_shard_push(grow->shard, PSP_PUSH_GRADIENT, grow->ids.ids + number * batch, batch,
                            grow->values, BENCH_RATE, error);
}

static psc_status_t measure(grow_t *grow, bench_batch_fn batch, bool zipf, size_t rows,
                            rate_t *rate_out, psc_error_t *error)
{
    const grow_options_t *options = grow->options;
    size_t n_ids = POOL_IDS > options->batch ? POOL_IDS : (size_t)options->batch;
    bench_draw_t draw = {
        .zipf = zipf, .n_rows = rows, .n_ids = n_ids, .seed = options->seed + rows};
    psc_status_t st = bench_ids_draw(&draw, &grow->ids, error);
    if (st != PSC_OK)
        return st;
    bench_side_t side = {.batch = batch,
                         .context = grow,
                         .n_batches = n_ids / (size_t)options->batch,
                         .rows = (size_t)options->batch};
    bench_fill_gradients(grow->values, (size_t)(options->batch * options->dim));
    double unused;
    st = bench_run_for(&side, options->seconds, &unused, error);
    ps_store_counters_t before = bench_shard_counters(grow->shard);
    side.n_done = 0;
    if (st == PSC_OK)
        st = bench_run_for(&side, options->seconds, &rate_out->rows_per_s, error);
    uint64_t reads = bench_shard_counters(grow->shard).cold_reads - before.cold_reads;
    rate_out->hit_rate = 1 - (double)reads / (double)(side.n_done * side.rows);
    bench_ids_clear(&grow->ids);
    return st;
}

/* Bytes of the files in a folder without folders. */
static double folder_bytes(const char *path)
{
    DIR *folder = opendir(path);
    double sum = 0;
    const struct dirent *entry;
    struct stat about;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (fstatat(dirfd(folder), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(about.st_mode))
            sum += (double)about.st_size;
    if (folder != NULL)
        (void)closedir(folder);
    return sum;
}

/* RssAnon of this process; 0 when the system does not tell. */
static double anonymous_bytes(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && kib == 0 && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "RssAnon:", 8) == 0)
            kib = strtoull(line + 8, NULL, 10);
    if (status != NULL)
        (void)fclose(status);
    return (double)kib * KIB;
}

/* Measures at `to` rows; `from` are there. */
static psc_status_t grow_to(grow_t *grow, size_t from, size_t to, psc_error_t *error)
{
    rate_t even = {0}, zipf = {0}, pushes = {0};
    uint64_t start = psc_clock_us();
    psc_status_t st =
        bench_load_rows(grow->shard, (size_t)grow->options->dim, from, to, NULL, error);
    double took = (double)(psc_clock_us() - start) * 1e-6;
    if (st == PSC_OK)
        st = measure(grow, pull, false, to, &even, error);
    if (st == PSC_OK)
        st = measure(grow, pull, true, to, &zipf, error);
    if (st == PSC_OK)
        st = measure(grow, push, false, to, &pushes, error);
    if (st != PSC_OK)
        return st;
    (void)printf("%zu,%.0f,%.0f,%.0f,%.0f,%.4f,%.0f,%.4f,%.0f,%.4f\n", to,
                 folder_bytes(grow->folder.path), anonymous_bytes(), (double)(to - from) / took,
                 even.rows_per_s, even.hit_rate, zipf.rows_per_s, zipf.hit_rate, pushes.rows_per_s,
                 pushes.hit_rate);
    (void)fflush(stdout);
    return PSC_OK;
}

/* 1, 2, 5, 10, 20, 50... times the first. */
static uint64_t next_size(uint64_t first, uint64_t size)
{
    uint64_t scale = first;
    while (scale <= (UINT64_MAX - 1) / 10 && scale * 10 <= size)
        scale *= 10;
    return size < 2 * scale ? 2 * scale : size < 5 * scale ? 5 * scale : 10 * scale;
}

static psc_status_t run(grow_t *grow, psc_error_t *error)
{
    const grow_options_t *options = grow->options;
    size_t batch = (size_t)options->batch;
    if (batch < BENCH_LOAD_BATCH)
        batch = BENCH_LOAD_BATCH;
    grow->values = psc_alloc_array(batch, (size_t)options->dim * sizeof *grow->values);
    if (grow->values == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a batch");
    psc_status_t st = bench_folder_make(options->dir, &grow->folder, error);
    if (st != PSC_OK)
        return st;
    bench_shard_options_t shard = {.dir = grow->folder.path,
                                   .memory_bytes = options->memory,
                                   .dim = (size_t)options->dim,
                                   .optimizer = options->optimizer,
                                   .batch = batch};
    st = bench_shard_open(&shard, &grow->shard, error);
    if (st != PSC_OK)
        return st;
    (void)printf("rows,disk_bytes,memory_bytes,added_per_s,pull_uniform_per_s,pull_uniform_hits,"
                 "pull_zipf_per_s,pull_zipf_hits,push_uniform_per_s,push_uniform_hits\n");
    uint64_t from = 0, to = options->first < options->rows ? options->first : options->rows;
    while (st == PSC_OK && from < options->rows) {
        st = grow_to(grow, (size_t)from, (size_t)to, error);
        from = to;
        to = next_size(options->first, to);
        to = to < options->rows ? to : options->rows;
    }
    return st;
}

psc_status_t bench_grow(int argc, char *const argv[], psc_error_t *error)
{
    grow_options_t options = {0};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    grow_t grow = {.options = &options};
    st = run(&grow, error);
    bench_shard_abandon(grow.shard);
    bench_folder_remove(&grow.folder);
    psc_free(grow.values);
    return st;
}
