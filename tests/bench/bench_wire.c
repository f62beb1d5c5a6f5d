/*
 * embps-bench wire: what a pull and a push cost over the wire.
 *
 * Called by itself, the program becomes mpirun with two ranks of itself and the same arguments;
 * called as a rank of a job (Open MPI says so in the environment) it goes to work: rank 0 is the
 * server, rank 1 the worker that measures and prints. A rank that fails says why and ends the job.
 */
#include "tests/bench/bench_wire.h"
#include "common/log.h"
#include "proto/message.h"
#include "tests/bench/bench_cases.h"
#include "tests/bench/bench_commands.h"

#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ARGUMENTS 64

typedef struct wire_options {
    psc_option_list_t benches, dims, batches, in_flight;
    uint64_t rows, repeats, seed;
    double seconds;
    const char *dist, *dir;
    bool without_redis, alone, checksums, json;
} wire_options_t;

static const char *const dist_names[] = {"uniform", "zipf", NULL};

static const psc_option_t options_table[] = {
    {.name = "bench",
     .argument = "NAME...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(wire_options_t, benches),
     .help = "What to measure: wire.mpi.pull, wire.mpi.push (sgd), wire.direct.pull. Default: all "
             "of these."},
    {.name = "dim",
     .argument = "N...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(wire_options_t, dims),
     .help = "Numbers in a row. Default: 64 128."},
    {.name = "batch",
     .argument = "N...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(wire_options_t, batches),
     .help = "Rows of a pull or push, as given. Default: 256 1024 8192."},
    {.name = "in-flight",
     .argument = "N...",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(wire_options_t, in_flight),
     .help = "Pulls or pushes that are under way at once, 64 at most. Default: 1 8."},
    {.name = "dist",
     .argument = "NAME",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(wire_options_t, dist),
     .default_value = "uniform",
     .choices = dist_names,
     .help =
         "How ids are drawn: uniform, or zipf (exponent 1.0), where a client sends each id of a "
         "batch once and the others send all."},
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(wire_options_t, rows),
     .min = 100,
     .max = 1e8,
     .default_value = "1000000",
     .help = "Rows of the table, all in memory."},
    {.name = "seconds",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(wire_options_t, seconds),
     .min = 0.0001,
     .max = 3600,
     .default_value = "0.3",
     .help = "How long one measurement of one side takes."},
    {.name = "repeats",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(wire_options_t, repeats),
     .min = 1,
     .max = BENCH_MAX_REPEATS,
     .default_value = "5",
     .help = "Measurements of each side, in turn; medians are told."},
    {.name = "seed",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(wire_options_t, seed),
     .default_value = "1",
     .help = "Of the ids."},
    {.name = "dir",
     .argument = "DIR",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(wire_options_t, dir),
     .default_value = "/tmp",
     .environment = "TMPDIR",
     .help = "Where the data of server and redis go: in folders embps-bench-..., removed at the "
             "end. They stay small, since all rows are in memory."},
    {.name = "without-redis",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(wire_options_t, without_redis),
     .help = "Leave redis out also where it is installed."},
    {.name = "alone",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(wire_options_t, alone),
     .help = "Compare with nothing, for a profiler."},
    {.name = "checksums",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(wire_options_t, checksums),
     .help = "Our messages carry checksums (embps-server --checksums)."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(wire_options_t, json),
     .help = "Print one JSON object a line instead of a table."},
};

static const psc_command_t command = {
    .name = "embps-bench wire",
    .synopsis = "[--bench NAME...] [--dim N...] [--batch N...] [--in-flight N...] [options]",
    .summary = "what a pull and a push cost over the wire, on two cores",
    .description =
        "Starts a job of two ranks by mpirun, a server and a worker, and measures pulls and pushes "
        "of the worker in turn with: \"exchange\", the same bytes sent by plain MPI calls between "
        "the same two ranks, with the same gather from (or step of sgd in) an array whose places "
        "are known, rows received where they are wanted and sent from where they are; and "
        "\"redis\", a server of the same rows on a unix socket that writes nothing to disk, by "
        "MGET and MSET through hiredis, pipelined. Pulls straight from the server's memory "
        "(wire.direct.pull, of a server that shares it) stand beside \"gather\", a copy of the "
        "same "
        "rows from an array of the worker's own, beside pulls by messages from the same server, "
        "and beside redis. Redis is left out, and that is said, where it "
        "is not installed.\n\n"
        "The table shows medians of rows per second, as given, of ours and of the other; the "
        "median of the ratios within the rounds; what ratio is wanted ('<<': it is below); and the "
        "spread of the ratios. JSON has the keys bench, dim, batch, dist, in_flight, rows_per_s, "
        "against, ratio, against_rows_per_s, spread and, where one is set, wanted.\n\n"
        "Two free cores are needed; on a busy machine only the ratios are of use, and those "
        "little. An own mpirun, with bindings and transports of one's choice, may start the two "
        "ranks as well: mpirun -n 2 embps-bench wire ...",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench wire\n"
                "embps-bench wire --bench wire.mpi.pull --dim 128 --batch 1024 --in-flight 1 4 8\n"
                "mpirun -n 2 --mca btl self,tcp embps-bench wire --json",
};

static size_t largest(const size_t *numbers, size_t n)
{
    size_t max = 0;
    for (size_t i = 0; i < n; i++)
        max = numbers[i] > max ? numbers[i] : max;
    return max;
}

static psc_status_t set_up(const wire_options_t *options, bench_wire_setup_t *setup,
                           psc_error_t *error)
{
    static const size_t dims[] = {64, 128}, batches[] = {256, 1024, 8192}, in_flight[] = {1, 8};
    for (size_t i = 0; i < options->benches.n; i++) {
        if (strcmp(options->benches.items[i], "wire.mpi.pull") != 0 &&
            strcmp(options->benches.items[i], "wire.mpi.push") != 0 &&
            strcmp(options->benches.items[i], "wire.direct.pull") != 0)
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "--bench: there is no \"%.60s\"; --help lists them",
                                 options->benches.items[i]);
    }
    *setup =
        (bench_wire_setup_t){.rows = (size_t)options->rows,
                             .repeats = (size_t)options->repeats,
                             .seconds = options->seconds,
                             .seed = options->seed,
                             .dir = options->dir,
                             .pull = bench_choices_wants(&options->benches, "wire.mpi.pull"),
                             .push = bench_choices_wants(&options->benches, "wire.mpi.push"),
                             .direct = bench_choices_wants(&options->benches, "wire.direct.pull"),
                             .redis = !options->without_redis && !options->alone,
                             .alone = options->alone,
                             .checksums = options->checksums,
                             .json = options->json,
                             .zipf = strcmp(options->dist, "zipf") == 0};
    psc_status_t st = bench_choices_numbers("dim", &options->dims, PSP_DIM_MAX, dims, 2,
                                            setup->dims, &setup->n_dims, error);
    if (st == PSC_OK)
        st = bench_choices_numbers("batch", &options->batches, 1 << 17, batches, 3, setup->batches,
                                   &setup->n_batches, error);
    if (st == PSC_OK)
        st = bench_choices_numbers("in-flight", &options->in_flight, BENCH_WIRE_MAX_IN_FLIGHT,
                                   in_flight, 2, setup->in_flight, &setup->n_in_flight, error);
    setup->max_batch = largest(setup->batches, setup->n_batches);
    setup->max_in_flight = largest(setup->in_flight, setup->n_in_flight);
    return st;
}

/* This program becomes mpirun. Returns when it cannot. */
static psc_status_t start_job(int argc, char *const argv[], psc_error_t *error)
{
    static const char *const before[] = {"mpirun", "--oversubscribe", "--bind-to", "none", "-n",
                                         "2"};
    enum { N_BEFORE = sizeof before / sizeof before[0] };
    char self[4096];
    char *words[MAX_ARGUMENTS + N_BEFORE + 2];
    size_t n = 0;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0 || argc > MAX_ARGUMENTS)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "cannot start mpirun: too many arguments, or no /proc");
    self[length] = '\0';
    for (; n < N_BEFORE; n++)
        words[n] = (char *)(uintptr_t)before[n]; /* execvp does not write to them */
    words[n++] = self;
    for (int i = 0; i < argc; i++)
        words[n++] = argv[i];
    words[n] = NULL;
    if (geteuid() == 0) { /* mpirun wants to be asked twice */
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    (void)execvp(words[0], words);
    return psc_error_set(error, PSC_NOT_FOUND, "cannot start mpirun: %s", strerror(errno));
}

static psc_status_t run_rank(const bench_wire_setup_t *setup, psc_error_t *error)
{
    int provided, rank = 0, size = 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
        return psc_error_set(error, PSC_INTERNAL, "MPI could not be initialised");
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, &size);
    psc_status_t st = PSC_OK;
    if (size != 2)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT, "a job of %d ranks; 2 are needed", size);
    else
        st = rank == 0 ? bench_wire_serve(setup, error) : bench_wire_measure(setup, error);
    if (st != PSC_OK && (size == 2 || rank == 0))
        psc_log(PSC_LOG_ERROR, "%s", error->message);
    if (st != PSC_OK)
        (void)MPI_Abort(MPI_COMM_WORLD, (int)st);
    (void)MPI_Finalize();
    return st;
}

psc_status_t bench_wire(int argc, char *const argv[], psc_error_t *error)
{
    wire_options_t options = {0};
    bench_wire_setup_t setup;
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    st = set_up(&options, &setup, error);
    if (st != PSC_OK)
        return st;
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL ? run_rank(&setup, error)
                                                  : start_job(argc, argv, error);
}
