/*
 * embps-bench pages: what a read costs by the number of pages that reads are spread over.
 *
 * Each read tells where the next one is, so none begins before the one before has ended. Of each 4
 * KiB there is one line that is read, at another offset in each, so that the lines fit into the
 * caches long after their addresses fit no more into what the processor remembers of translations
 * (the TLB). The memory is advised to be huge pages, as the store's is: where a step is seen at a
 * few thousand pages all the same, some layer below has it in small ones, and every row that is met
 * by chance pays for a translation. Said beside the figures of `embps-bench store`, which compares
 * a look-up of two such places a row with a gather of one.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "common/options.h"
#include "common/rng.h"
#include "tests/bench/bench_commands.h"
#include "tests/bench/bench_measure.h"
#include "tests/bench/bench_plain.h"

#include <inttypes.h>
#include <stdio.h>

#define PAGE_FLOATS ((size_t)1024)
#define LINE_FLOATS ((size_t)16)
#define FEWEST ((size_t)256)
#define READS ((size_t)1 << 16) /* between two looks at the clock */

typedef struct pages_options {
    uint64_t most, repeats, seed;
    double seconds;
    bool json;
} pages_options_t;

static const psc_option_t options_table[] = {
    {.name = "most",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(pages_options_t, most),
     .min = FEWEST,
     .max = 16777216,
     .default_value = "65536",
     .help = "Pages of 4 KiB up to which their number is doubled, from 256 on."},
    {.name = "seconds",
     .argument = "X",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(pages_options_t, seconds),
     .min = 0.0001,
     .max = 3600,
     .default_value = "0.1",
     .help = "How long one measurement takes."},
    {.name = "repeats",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(pages_options_t, repeats),
     .min = 1,
     .max = BENCH_MAX_REPEATS,
     .default_value = "5",
     .help = "Measurements of each number; medians are told."},
    {.name = "seed",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(pages_options_t, seed),
     .default_value = "1",
     .help = "Of the order of the reads."},
    {.name = "json",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(pages_options_t, json),
     .help = "Print one JSON object a line instead of a table."},
};

static const psc_command_t command = {
    .name = "embps-bench pages",
    .synopsis = "[--most N] [options]",
    .summary = "what a read costs by the pages that reads are spread over",
    .description =
        "Follows a chain of reads, one line in each of so many pages of 4 KiB, in random order. "
        "What a line costs steps up where lines leave a cache; a step before, at a few thousand "
        "pages, is the translation of addresses, and says that the memory is in small pages "
        "somewhere, whatever was asked for. A row of the store is met at two places that could "
        "not be foreseen, a row of a plain array at one.",
    .options = options_table,
    .n_options = sizeof options_table / sizeof options_table[0],
    .examples = "embps-bench pages --most 1048576",
};

/* The line of a page that is read. */
static void **line_of(const bench_plain_t *memory, size_t page)
{
    size_t line = page % (PAGE_FLOATS / LINE_FLOATS);
    return (void **)(void *)(memory->rows + page * PAGE_FLOATS + line * LINE_FLOATS);
}

/* Makes one ring of the first n pages, in the order of a shuffle. */
static void link_pages(const bench_plain_t *memory, uint32_t *order, size_t n, uint64_t seed)
{
    uint64_t key = psc_rng_stream(seed, n, 0);
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t i = n - 1; i > 0; i--) {
        size_t k = (size_t)(psc_rng_at(key, i) % (i + 1));
        uint32_t page = order[i];
        order[i] = order[k];
        order[k] = page;
    }
    for (size_t i = 0; i < n; i++)
        *line_of(memory, order[i]) = line_of(memory, order[i + 1 < n ? i + 1 : 0]);
}

/* Nanoseconds a read. *at: where the chain goes on. */
static double follow(void **volatile *at, double seconds)
{
    uint64_t started = psc_clock_us(), now = started, end = started + (uint64_t)(seconds * 1e6);
    double n = 0;
    while (now < end || n == 0) {
        void **line = *at;
        for (size_t i = 0; i < READS; i++)
            line = *line;
        *at = line;
        n += (double)READS;
        now = psc_clock_us();
    }
    return (double)(now - started) * 1e3 / n;
}

static void measure(const pages_options_t *options, const bench_plain_t *memory, size_t n)
{
    double costs[BENCH_MAX_REPEATS];
    void **volatile at = line_of(memory, 0);
    (void)follow(&at, options->seconds / 4);
    for (size_t r = 0; r < options->repeats; r++)
        costs[r] = follow(&at, options->seconds);
    double cost = bench_median(costs, (size_t)options->repeats);
    size_t kib = n * LINE_FLOATS * sizeof(float) / 1024;
    if (options->json)
        (void)printf("{\"pages\": %zu, \"lines_kib\": %zu, \"ns\": %.2f}\n", n, kib, cost);
    else
        (void)printf("%10zu %10zu %8.1f\n", n, kib, cost);
    (void)fflush(stdout);
}

psc_status_t bench_pages(int argc, char *const argv[], psc_error_t *error)
{
    pages_options_t options = {0};
    psc_parse_result_t parsed;
    psc_status_t st = psc_options_parse(&command, argc, argv, &options, NULL, NULL, &parsed, error);
    if (st != PSC_OK || parsed == PSC_PARSE_EXIT)
        return st;
    bench_plain_t memory;
    st = bench_plain_create(PAGE_FLOATS, (size_t)options.most, BENCH_PLAIN_SGD, &memory, error);
    if (st != PSC_OK)
        return st;
    uint32_t *order = psc_alloc_array((size_t)options.most, sizeof *order);
    if (order == NULL) {
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for an order of %" PRIu64 " pages",
                           options.most);
    } else {
        if (!options.json)
            (void)printf("%10s %10s %8s\n", "pages", "lines, KiB", "ns/read");
        for (size_t n = FEWEST; n <= options.most; n *= 2) {
            link_pages(&memory, order, n, options.seed);
            measure(&options, &memory, n);
        }
    }
    psc_free(order);
    bench_plain_clear(&memory);
    return st;
}
