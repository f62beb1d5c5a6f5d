/*
 * embps-bench kernel: what this machine could do at best, to measure trainers against.
 *
 * Runs the kernel of a window alone on one core, without text, queue or server: skip-gram windows
 * as training has them (a window shrunk at random on each side, one centre word and its negatives),
 * once over so few rows that they stay in the first-level cache (the bound by arithmetic) and once
 * over two tables of a vocabulary's size, the rows chosen by Zipf's law (the bound by memory). No
 * trainer that uses this arithmetic can pass the first, none with tables of its own the second.
 *
 * Windows are drawn beforehand, so that drawing costs nothing here. Flops: 6 for each input, output
 * and dimension (logit, what the input learns, what the output learns, each one multiplication and
 * one addition).
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "common/options.h"
#include "common/rng.h"
#include "tests/bench/bench_commands.h"
#include "worker/train/window.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define N_WINDOWS ((size_t)20000) /* drawn once, trained over and over */
#define CACHED_ROWS ((size_t)16)  /* 16 inputs and 16 outputs of dim 100: 14 KB */
#define ROW_LANES ((size_t)16)    /* floats; kernels take rows of multiples of it */
#define RATE 0.001f

typedef struct bench_options {
    uint64_t dim, window, negative, words;
    double seconds;
    bool json;
} bench_options_t;

static const psc_option_t options_table[] = {
    {.name = "dim",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(bench_options_t, dim),
     .min = 1,
     .max = 65536,
     .default_value = "100",
     .help = "Numbers in a vector."},
    {.name = "window",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(bench_options_t, window),
     .min = 1,
     .max = 100,
     .default_value = "5",
     .help = "Words to each side of the centre word at most."},
    {.name = "negative",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(bench_options_t, negative),
     .min = 1,
     .max = 1000,
     .default_value = "5",
     .help = "Negatives for each centre word."},
    {.name = "words",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(bench_options_t, words),
     .min = 16,
     .max = 100000000,
     .default_value = "36000",
     .help = "Rows of each of the two tables."},
    {.name = "seconds",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(bench_options_t, seconds),
     .min = 0.01,
     .max = 3600,
     .default_value = "2",
     .help = "How long each of the two measurements takes."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(bench_options_t, json),
     .help = "Print JSON instead of text."},
};

static const psc_command_t command = {
    .name = "embps-bench kernel",
    .synopsis = "[options]",
    .summary = "how fast the arithmetic of training can be on one core of this machine",
    .description =
        "Trains skip-gram windows with the kernel alone, without text or server: over rows that "
        "stay in the cache, and over tables of a vocabulary's size by Zipf's law. "
        "tests/bench/speed "
        "sets the trainers beside it.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench kernel --dim 300 --seconds 5",
};

/* Windows as lists of rows; window w has its inputs from first[w] on, and n_outputs outputs. */
typedef struct windows {
    float **inputs, **outputs;
    size_t *first; /* N_WINDOWS + 1 */
    size_t n_outputs;
} windows_t;

typedef struct result {
    double windows_per_s, gflops;
} result_t;

/* A row by Zipf's law with exponent 1: the logarithm of its rank is evenly spread. */
static size_t draw_row(uint64_t key, uint64_t *n, size_t rows)
{
    double unit = (double)psc_rng_unit((uint32_t)(psc_rng_at(key, (*n)++) >> 32));
    size_t row = (size_t)exp(unit * log((double)rows));
    return row < rows ? row : rows - 1;
}

static void draw(const bench_options_t *options, float *in, float *out, size_t rows, size_t stride,
                 windows_t *windows)
{
    uint64_t key = psc_rng_stream(1, rows, 0), n = 0;
    size_t at = 0;
    for (size_t w = 0; w < N_WINDOWS; w++) {
        windows->first[w] = at;
        uint32_t bits = (uint32_t)(psc_rng_at(key, n++) >> 32);
        size_t reach = 1 + psc_rng_below(bits, (uint32_t)options->window);
        for (size_t c = 0; c < 2 * reach; c++)
            windows->inputs[at++] = in + stride * draw_row(key, &n, rows);
        for (size_t o = 0; o < windows->n_outputs; o++)
            windows->outputs[w * windows->n_outputs + o] = out + stride * draw_row(key, &n, rows);
    }
    windows->first[N_WINDOWS] = at;
}

static result_t measure(const bench_options_t *options, psw_kernel_t *kernel,
                        const windows_t *windows)
{
    uint64_t started = psc_clock_us(), now = started;
    uint64_t end = started + (uint64_t)(options->seconds * 1e6);
    double n_windows = 0, n_pairs = 0;
    while (now < end) {
        for (size_t w = 0; w < N_WINDOWS; w++) {
            size_t first = windows->first[w], n_inputs = windows->first[w + 1] - first;
            (void)psw_window_skipgram(kernel, windows->inputs + first, n_inputs,
                                      windows->outputs + w * windows->n_outputs, windows->n_outputs,
                                      RATE, false);
        }
        n_windows += (double)N_WINDOWS;
        n_pairs += (double)(windows->first[N_WINDOWS] * windows->n_outputs);
        now = psc_clock_us();
    }
    double seconds = (double)(now - started) * 1e-6;
    return (result_t){.windows_per_s = n_windows / seconds,
                      .gflops = 6 * n_pairs * (double)options->dim / seconds * 1e-9};
}

static psc_status_t run(const bench_options_t *options, result_t results[2], psc_error_t *error)
{
    size_t stride = ((size_t)options->dim + ROW_LANES - 1) / ROW_LANES * ROW_LANES;
    size_t words = (size_t)options->words, n_outputs = 1 + (size_t)options->negative;
    size_t reach = 2 * (size_t)options->window;
    psw_kernel_t *kernel = NULL;
    psc_status_t st = psw_kernel_create(stride, reach, n_outputs, &kernel, error);
    if (st != PSC_OK)
        return st;
    windows_t windows = {.inputs = psc_alloc_array(N_WINDOWS * reach, sizeof(float *)),
                         .outputs = psc_alloc_array(N_WINDOWS * n_outputs, sizeof(float *)),
                         .first = psc_alloc_array(N_WINDOWS + 1, sizeof(size_t)),
                         .n_outputs = n_outputs};
    size_t bytes = 2 * words * stride * sizeof(float);
    float *tables = psc_alloc_aligned(bytes);
    if (windows.inputs == NULL || windows.outputs == NULL || windows.first == NULL ||
        tables == NULL) {
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for two tables of %" PRIu64 " rows",
                           options->words);
    } else {
        memset(tables, 0, bytes); /* zeros stay: no logit grows out of the sigmoid's table */
        for (size_t k = 0; k < 2; k++) {
            size_t rows = k == 0 && words > CACHED_ROWS ? CACHED_ROWS : words;
            draw(options, tables, tables + words * stride, rows, stride, &windows);
            results[k] = measure(options, kernel, &windows);
        }
    }
    psc_free(tables);
    psc_free(windows.first);
    psc_free(windows.outputs);
    psc_free(windows.inputs);
    psw_kernel_destroy(kernel);
    return st;
}

static void print(const bench_options_t *options, const result_t results[2])
{
    static const char *const names[] = {"cache", "tables"};
    if (options->json) {
        (void)printf("{\"dim\": %" PRIu64 ", \"words\": %" PRIu64, options->dim, options->words);
        for (size_t k = 0; k < 2; k++)
            (void)printf(", \"%s\": {\"windows_per_s\": %.0f, \"gflops\": %.2f}", names[k],
                         results[k].windows_per_s, results[k].gflops);
        (void)printf("}\n");
        return;
    }
    (void)printf("rows in the cache   %8.0f windows/s  %6.2f Gflop/s\n", results[0].windows_per_s,
                 results[0].gflops);
    (void)printf("rows by Zipf's law  %8.0f windows/s  %6.2f Gflop/s  (two tables of %" PRIu64
                 " rows)\n",
                 results[1].windows_per_s, results[1].gflops, options->words);
}

psc_status_t bench_kernel(int argc, char *const argv[], psc_error_t *error)
{
    bench_options_t options = {0};
    result_t results[2];
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    st = run(&options, results, error);
    if (st == PSC_OK)
        print(&options, results);
    return st;
}
