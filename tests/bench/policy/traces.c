/*
 * Traces are plain arrays of ids; all are made in memory, a few million uses each.
 *
 * Zipf's law is drawn by inversion: the sums of r^-exponent over all ranks, and a binary search for
 * each draw, with 53 random bits. Ids are the ranks: no policy here looks at an id's value, and the
 * sketches hash it. The training is the trainer's own: its vocabulary, its samplers and its batch
 * builder, without kernel and client.
 */
#include "tests/bench/policy/traces.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/rng.h"
#include "worker/train/batch_builder.h"

#include <math.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)4 << 30)
#define MAX_ID ((uint32_t)1 << 31)
#define STREAM 2017 /* of the random numbers of Zipf's law */

/* The trainer's defaults. */
#define MIN_COUNT 5
#define SAMPLE 1e-4
#define WINDOW 5
#define NEGATIVE 5
#define ALPHA 0.025

static psc_status_t no_memory(psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a trace");
}

void bench_trace_clear(bench_trace_t *trace)
{
    psc_free(trace->ids);
    *trace = (bench_trace_t){0};
}

psc_status_t bench_trace_read(const char *path, bench_trace_t *trace_out, psc_error_t *error)
{
    char *bytes;
    size_t size;
    psc_status_t st = psc_file_read(path, MAX_FILE_BYTES, &bytes, &size, error);
    if (st != PSC_OK)
        return st;
    bench_trace_t trace = {.n = size / sizeof *trace.ids};
    trace.ids = psc_alloc_array(trace.n, sizeof *trace.ids);
    if (trace.ids == NULL) {
        st = no_memory(error);
    } else {
        memcpy(trace.ids, bytes, trace.n * sizeof *trace.ids);
        for (size_t i = 0; i < trace.n; i++)
            if (trace.ids[i] >= trace.n_rows)
                trace.n_rows = trace.ids[i] + 1;
        if (trace.n == 0 || size % sizeof *trace.ids != 0 || trace.n_rows > MAX_ID)
            st = psc_error_set(error, PSC_CORRUPT, "%s is no list of ids of 4 bytes", path);
    }
    psc_free(bytes);
    if (st == PSC_OK)
        *trace_out = trace;
    else
        psc_free(trace.ids);
    return st;
}

/* The first rank whose sum is above x. */
static uint32_t rank_of(const double *sums, uint32_t n, double x)
{
    uint32_t low = 0, high = n - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (sums[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

psc_status_t bench_trace_zipf(double exponent, uint32_t n_rows, size_t n, uint64_t seed,
                              bench_trace_t *trace_out, psc_error_t *error)
{
    double *sums = psc_alloc_array(n_rows, sizeof *sums);
    uint32_t *ids = psc_alloc_array(n, sizeof *ids);
    if (sums == NULL || ids == NULL) {
        psc_free(sums);
        psc_free(ids);
        return no_memory(error);
    }
    double sum = 0;
    for (uint32_t r = 0; r < n_rows; r++)
        sums[r] = sum += pow((double)r + 1, -exponent);
    uint64_t key = psc_rng_stream(seed, STREAM, n_rows);
    for (size_t i = 0; i < n; i++)
        ids[i] = rank_of(sums, n_rows, (double)(psc_rng_at(key, i) >> 11) * 0x1p-53 * sum);
    psc_free(sums);
    *trace_out = (bench_trace_t){.ids = ids, .n = n, .n_rows = n_rows};
    return PSC_OK;
}

/* ---- a training ---- */

typedef struct training {
    psw_corpus_t *corpus;
    psw_reader_t *reader;
    psw_counter_t *counter;
    psw_vocab_t *vocab;
    psw_sampler_t sampler;
    psw_builder_t *builder;
    psw_train_batch_t *batch;
} training_t;

static void close_training(training_t *training)
{
    psw_train_batch_destroy(training->batch);
    psw_builder_destroy(training->builder);
    psw_sampler_clear(&training->sampler);
    psw_vocab_destroy(training->vocab);
    psw_counter_destroy(training->counter);
    psw_reader_destroy(training->reader);
    psw_corpus_close(training->corpus);
}

static psc_status_t count_words(training_t *training, psc_error_t *error)
{
    psw_token_t token;
    psc_status_t st;
    while ((st = psw_reader_next(training->reader, &token, error)) == PSC_OK &&
           token.kind != PSW_TOKEN_END)
        if (token.kind == PSW_TOKEN_WORD &&
            (st = psw_counter_add(training->counter, token.bytes, token.size, 1, error)) != PSC_OK)
            return st;
    psw_reader_rewind(training->reader);
    return st;
}

static psc_status_t open_training(training_t *training, const char *text, uint32_t batch_words,
                                  psc_error_t *error)
{
    uint64_t begin, end;
    psc_status_t st = psw_corpus_open(&text, 1, &training->corpus, error);
    if (st != PSC_OK)
        return st;
    psw_corpus_share(training->corpus, 0, 1, &begin, &end);
    st = psw_reader_create(training->corpus, begin, end, &training->reader, error);
    if (st == PSC_OK)
        st = psw_counter_create(&training->counter, error);
    if (st == PSC_OK)
        st = count_words(training, error);
    if (st == PSC_OK)
        st = psw_vocab_build(training->counter, MIN_COUNT, &training->vocab, error);
    if (st == PSC_OK && psw_vocab_size(training->vocab) == 0)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT, "%s has no word %d times", text, MIN_COUNT);
    if (st == PSC_OK)
        st = psw_sampler_init(&training->sampler, training->vocab, SAMPLE, error);
    if (st != PSC_OK)
        return st;
    psw_builder_options_t options = {.vocab = training->vocab,
                                     .sampler = &training->sampler,
                                     .reader = training->reader,
                                     .share_words = psw_counter_total(training->counter),
                                     .seed = 1,
                                     .epochs = 1,
                                     .window = WINDOW,
                                     .negative = NEGATIVE,
                                     .batch_words = batch_words,
                                     .alpha = ALPHA};
    st = psw_builder_create(&options, &training->builder, error);
    return st == PSC_OK ? psw_train_batch_create(training->builder, &training->batch, error) : st;
}

static psc_status_t append(bench_trace_t *trace, size_t *capacity, const psw_rows_t *rows,
                           psc_error_t *error)
{
    if (trace->n + rows->n > *capacity) {
        size_t more = 2 * (trace->n + rows->n);
        uint32_t *ids = psc_realloc_array(trace->ids, more, sizeof *ids);
        if (ids == NULL)
            return no_memory(error);
        trace->ids = ids;
        *capacity = more;
    }
    for (uint32_t i = 0; i < rows->n; i++)
        trace->ids[trace->n++] = (uint32_t)rows->ids[i];
    return PSC_OK;
}

psc_status_t bench_trace_training(const char *text, uint32_t batch_words, bench_trace_t *trace_out,
                                  psc_error_t *error)
{
    training_t training = {0};
    bench_trace_t trace = {0};
    size_t capacity = 0;
    bool more = true;
    psc_status_t st = open_training(&training, text, batch_words, error);
    while (st == PSC_OK &&
           (st = psw_builder_next(training.builder, training.batch, &more, error)) == PSC_OK &&
           more)
        st = append(&trace, &capacity, &training.batch->output_rows, error);
    if (st == PSC_OK) {
        trace.n_rows = psw_vocab_size(training.vocab);
        *trace_out = trace;
    } else {
        psc_free(trace.ids);
    }
    close_training(&training);
    return st;
}

/* ---- batches ---- */

psc_status_t bench_trace_batch(bench_trace_t *trace, size_t batch_size, psc_error_t *error)
{
    size_t *last =
        psc_alloc_zeroed(trace->n_rows, sizeof *last); /* batch of the last use, from 1 */
    if (last == NULL)
        return no_memory(error);
    size_t n = 0;
    for (size_t i = 0; i < trace->n; i++) {
        size_t batch = 1 + i / batch_size;
        uint32_t id = trace->ids[i];
        if (last[id] != batch)
            trace->ids[n++] = id;
        last[id] = batch;
    }
    trace->n = n;
    psc_free(last);
    return PSC_OK;
}
