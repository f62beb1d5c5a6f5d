/*
 * embps-bench-policy: hit rates of replacement policies on one trace, at several sizes, and what a
 * use costs them.
 *
 * Every policy starts empty and sees the whole trace; the first use of a row is a miss for all of
 * them, the optimum too. Processor time is that of the policy alone, its arrays by id included:
 * what a store needs to find a row, to read or to write it is not in it. Times of the optimum say
 * nothing.
 */
#include "common/log.h"
#include "common/options.h"
#include "common/output.h"
#include "tests/bench/policy/traces.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

typedef struct bench_options {
    const char *trace, *training;
    double zipf;
    uint64_t rows, uses, seed, batch;
    const char *label;
    bool header;
} bench_options_t;

static const double shares[] = {0.01, 0.05, 0.10, 0.25};

static const psc_option_t options_table[] = {
    {.name = "trace",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(bench_options_t, trace),
     .help = "Little-endian ids of 4 bytes, one use each."},
    {.name = "training",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(bench_options_t, training),
     .help = "A text: the rows that the batches of a training on it want of the output table; "
             "--batch is then words a batch, not rows."},
    {.name = "zipf",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(bench_options_t, zipf),
     .min = 0,
     .max = 10,
     .default_value = "1",
     .help = "Zipf's law with this exponent, when no file is given."},
    {.name = "rows",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(bench_options_t, rows),
     .min = 100,
     .max = 100000000,
     .default_value = "1000000",
     .help = "Rows under Zipf's law."},
    {.name = "uses",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(bench_options_t, uses),
     .min = 1,
     .max = 1000000000,
     .default_value = "5000000",
     .help = "Uses under Zipf's law."},
    {.name = "seed",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(bench_options_t, seed),
     .min = 0,
     .max = 1000000000,
     .default_value = "1",
     .help = "Of the random numbers."},
    {.name = "batch",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(bench_options_t, batch),
     .min = 1,
     .max = 1000000,
     .default_value = "1",
     .help = "Uses of a row within so many uses count once."},
    {.name = "label",
     .argument = "TEXT",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(bench_options_t, label),
     .default_value = "trace",
     .help = "What the trace is called in the table."},
    {.name = "header",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(bench_options_t, header),
     .help = "Print the table's head and the policies' sources first."},
};

static const psc_command_t command = {
    .name = "embps-bench-policy",
    .synopsis = "[options]",
    .summary = "which rows to keep in memory: policies compared with each other and the optimum",
    .description = "Prints a table in Markdown: hit rates in percent, with room for 1, 5, 10 and "
                   "25% of the trace's rows, and nanoseconds of the processor a use.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench-policy --zipf 0.9 --batch 1024 --header",
};

static void print_header(void)
{
    for (size_t k = 0; bench_policies[k] != NULL; k++)
        (void)printf("- %s: %s.\n", bench_policies[k]->name, bench_policies[k]->source);
    (void)printf("\n| trace | uses | rows | room |");
    for (size_t k = 0; bench_policies[k] != NULL; k++)
        (void)printf(" %s |", bench_policies[k]->name);
    (void)printf("\n|---|---|---|---|");
    for (size_t k = 0; bench_policies[k] != NULL; k++)
        (void)printf("---|");
    (void)printf("\n");
}

static double processor_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static psc_status_t make_trace(const bench_options_t *options, bench_trace_t *trace,
                               psc_error_t *error)
{
    if (options->training != NULL)
        return bench_trace_training(options->training, (uint32_t)options->batch, trace, error);
    psc_status_t st = options->trace != NULL
                          ? bench_trace_read(options->trace, trace, error)
                          : bench_trace_zipf(options->zipf, (uint32_t)options->rows,
                                             (size_t)options->uses, options->seed, trace, error);
    return st == PSC_OK ? bench_trace_batch(trace, (size_t)options->batch, error) : st;
}

static psc_status_t run(const bench_options_t *options, psc_error_t *error)
{
    bench_trace_t trace = {0};
    psc_status_t st = make_trace(options, &trace, error);
    for (size_t s = 0; st == PSC_OK && s < sizeof shares / sizeof shares[0]; s++) {
        double room = shares[s] * trace.n_rows;
        uint32_t capacity = room < 1 ? 1 : (uint32_t)room;
        (void)printf("| %s | %zu | %" PRIu32 " | %.0f%% |", options->label, trace.n, trace.n_rows,
                     100 * shares[s]);
        for (size_t k = 0; st == PSC_OK && bench_policies[k] != NULL; k++) {
            double started = processor_ns();
            int64_t n_hits = bench_count_hits(bench_policies[k], &trace, capacity);
            double ns = (processor_ns() - started) / (double)trace.n;
            if (n_hits < 0)
                st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a policy");
            else
                (void)printf(" %.2f (%.0f) |", 100 * (double)n_hits / (double)trace.n, ns);
            (void)fflush(stdout);
        }
        (void)printf("\n");
    }
    bench_trace_clear(&trace);
    return st;
}

int main(int argc, char *argv[])
{
    bench_options_t options = {0};
    psc_parse_result_t parsed;
    psc_error_t error = PSC_ERROR_INIT;
    psc_log_set_level(PSC_LOG_WARN);
    psc_status_t st =
        psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, &error);
    if (st == PSC_OK && parsed == PSC_PARSE_RUN) {
        if (options.header)
            print_header();
        st = run(&options, &error);
    }
    if (st != PSC_OK)
        psc_log(PSC_LOG_ERROR, "%s", error.message);
    return psc_output_end((int)st);
}
