/*
 * Building batches: read, look up, sub-sample, window, draw negatives, give each row a slot.
 *
 * Everything random is drawn here, before the rows are pulled, so that a batch knows its rows. Word
 * number p of a worker's share (words outside the vocabulary count) uses the numbers p * K .. p * K
 * + K - 1 of the stream (seed, worker, epoch): the upper half of the first one decides whether the
 * word is kept, its lower half how far the window reaches, the others are negatives. So what is
 * trained does not depend on where batches end, only its order of pulls and pushes does.
 *
 * A row's slot is found through one array entry per word of the vocabulary {batch number, slot}: no
 * hashing, nothing to clear. The same entry still holds the slot of the batch before, which is how
 * a row learns its place there.
 *
 * A sentence is cut at 1,000 kept words; so is one that would make a batch twice as long as asked
 * for. Rate: alpha * max(1e-4, 1 - words done / words to do) of the own share, all epochs.
 *
 * Threads: one. Cost: about 30 ns a word of the text and 10 ns a negative.
 */
#include "worker/train/batch_builder.h"

#include "common/alloc.h"

#include <inttypes.h>

#define LOWEST_RATE 1e-4 /* of alpha, as in the original tool */

typedef struct stamp {
    uint32_t batch; /* number of the batch that set slot */
    uint32_t slot;
} stamp_t;

/* A kept word of the sentence that is being read. */
typedef struct kept {
    uint64_t position;
    uint32_t id;
    uint32_t bits; /* for the reach of its window */
} kept_t;

struct psw_builder {
    psw_builder_options_t options;
    stamp_t *input_stamps, *output_stamps; /* [vocabulary] */
    uint32_t batch;                        /* number of the batch that is being built */
    uint32_t epoch;
    bool skips;        /* windows are counted, and not made */
    uint64_t position; /* of the next word */
    uint64_t stream;   /* of random numbers of this epoch */
    uint64_t draws;    /* K */
    double step;       /* 1 / words of all epochs */
    uint32_t n_kept;
    kept_t kept[PSW_SENTENCE_MAX];
};

static uint32_t outputs_per_word(const psw_builder_options_t *options)
{
    uint32_t contexts = options->plain ? 2 * options->window : 1;
    return contexts * (options->negative + 1);
}

static void start_epoch(psw_builder_t *builder)
{
    const psw_builder_options_t *options = &builder->options;
    builder->position = 0;
    builder->stream = psc_rng_stream(options->seed, options->worker, builder->epoch);
}

psc_status_t psw_builder_create(const psw_builder_options_t *options, psw_builder_t **builder_out,
                                psc_error_t *error)
{
    uint32_t n = psw_vocab_size(options->vocab);
    psw_builder_t *builder = psc_alloc_zeroed(1, sizeof *builder);
    if (builder != NULL) {
        builder->input_stamps = psc_alloc_zeroed(n, sizeof(stamp_t));
        builder->output_stamps = psc_alloc_zeroed(n, sizeof(stamp_t));
    }
    if (builder == NULL || builder->input_stamps == NULL || builder->output_stamps == NULL) {
        psw_builder_destroy(builder);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for batches over %u words", n);
    }
    builder->options = *options;
    builder->batch = 1; /* the first one is 2: zeroed stamps mean no batch */
    builder->draws = 1 + outputs_per_word(options);
    if (options->share_words > 0)
        builder->step = 1.0 / ((double)options->epochs * (double)options->share_words);
    else
        builder->epoch = options->epochs;
    start_epoch(builder);
    *builder_out = builder;
    return PSC_OK;
}

void psw_builder_destroy(psw_builder_t *builder)
{
    if (builder == NULL)
        return;
    psc_free(builder->input_stamps);
    psc_free(builder->output_stamps);
    psc_free(builder);
}

static bool rows_create(psw_rows_t *rows, size_t touched, uint32_t n_vocab)
{
    size_t capacity = touched < n_vocab ? touched : n_vocab;
    rows->capacity = (uint32_t)capacity;
    rows->ids = psc_alloc_array(capacity, sizeof *rows->ids);
    rows->previous = psc_alloc_array(capacity, sizeof *rows->previous);
    return rows->ids != NULL && rows->previous != NULL;
}

psc_status_t psw_train_batch_create(const psw_builder_t *builder, psw_train_batch_t **batch_out,
                                    psc_error_t *error)
{
    const psw_builder_options_t *options = &builder->options;
    size_t words = (size_t)options->batch_words * 2;
    size_t outputs = words * outputs_per_word(options);
    uint32_t n_vocab = psw_vocab_size(options->vocab);
    psw_train_batch_t *batch = psc_alloc_zeroed(1, sizeof *batch);
    bool whole = batch != NULL && outputs < PSW_SLOT_NONE;
    if (whole) {
        batch->words = psc_alloc_array(words, sizeof *batch->words);
        batch->windows = psc_alloc_array(words, sizeof *batch->windows);
        batch->outputs = psc_alloc_array(outputs, sizeof *batch->outputs);
        whole = batch->words != NULL && batch->windows != NULL && batch->outputs != NULL &&
                rows_create(&batch->input_rows, words, n_vocab) &&
                rows_create(&batch->output_rows, outputs, n_vocab);
    }
    if (!whole) {
        psw_train_batch_destroy(batch);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a batch of %u words",
                             options->batch_words);
    }
    *batch_out = batch;
    return PSC_OK;
}

void psw_train_batch_destroy(psw_train_batch_t *batch)
{
    if (batch == NULL)
        return;
    psc_free(batch->words);
    psc_free(batch->windows);
    psc_free(batch->outputs);
    psc_free(batch->input_rows.ids);
    psc_free(batch->input_rows.previous);
    psc_free(batch->output_rows.ids);
    psc_free(batch->output_rows.previous);
    psc_free(batch);
}

/* The slot of word id in this batch, a new one where it has none yet. */
static inline uint32_t slot_of(const psw_builder_t *builder, stamp_t *stamps, psw_rows_t *rows,
                               uint32_t id)
{
    stamp_t *stamp = &stamps[id];
    if (stamp->batch == builder->batch)
        return stamp->slot;
    uint32_t slot = rows->n++;
    rows->ids[slot] = id;
    rows->previous[slot] = stamp->batch + 1 == builder->batch ? stamp->slot : PSW_SLOT_NONE;
    *stamp = (stamp_t){.batch = builder->batch, .slot = slot};
    return slot;
}

/* The true word and its negatives; draws the numbers from counter on. */
static void add_outputs(const psw_builder_t *builder, psw_train_batch_t *batch, uint32_t id,
                        uint64_t counter)
{
    const psw_builder_options_t *options = &builder->options;
    uint32_t *outputs = batch->outputs + batch->n_outputs;
    uint32_t ids[PSW_NEGATIVE_MAX];
    for (uint32_t k = 0; k < options->negative; k++) {
        uint64_t bits = psc_rng_at(builder->stream, counter + k);
        ids[k] = psw_sampler_negative(options->sampler, bits);
    }
    outputs[0] = slot_of(builder, builder->output_stamps, &batch->output_rows, id);
    for (uint32_t k = 0; k < options->negative; k++) {
        outputs[k + 1] =
            ids[k] == id ? PSW_SLOT_NONE
                         : slot_of(builder, builder->output_stamps, &batch->output_rows, ids[k]);
    }
    batch->n_outputs += options->negative + 1;
}

/* Windows of the sentence read so far, which then is empty. */
static void end_sentence(psw_builder_t *builder, psw_train_batch_t *batch)
{
    const psw_builder_options_t *options = &builder->options;
    uint32_t n = builder->n_kept, base = batch->n_words;
    builder->n_kept = 0;
    if (n < 2)
        return;
    if (builder->skips) {
        batch->n_windows += n;
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        batch->words[base + i] =
            slot_of(builder, builder->input_stamps, &batch->input_rows, builder->kept[i].id);
    batch->n_words += n;
    for (uint32_t i = 0; i < n; i++) {
        const kept_t *kept = &builder->kept[i];
        uint32_t reach = psw_sampler_reach(kept->bits, options->window);
        uint32_t first = i > reach ? i - reach : 0, last = i + reach < n ? i + reach : n - 1;
        double done = (double)builder->epoch * (double)options->share_words;
        double rate = 1.0 - (done + (double)kept->position) * builder->step;
        batch->windows[batch->n_windows++] = (psw_window_t){
            .first = base + first,
            .centre = base + i,
            .last = base + last,
            .outputs = batch->n_outputs,
            .rate = (float)(options->alpha * (rate > LOWEST_RATE ? rate : LOWEST_RATE))};
        uint64_t counter = kept->position * builder->draws + 1;
        uint32_t times = options->plain ? last - first : 1;
        for (uint32_t t = 0; t < times; t++)
            add_outputs(builder, batch, kept->id, counter + (uint64_t)t * options->negative);
    }
}

static void add_word(psw_builder_t *builder, psw_train_batch_t *batch, const psw_token_t *token)
{
    const psw_builder_options_t *options = &builder->options;
    uint64_t position = builder->position++;
    batch->raw_words++;
    uint32_t id = psw_vocab_lookup(options->vocab, token->bytes, token->size);
    if (id == PSW_VOCAB_NONE)
        return;
    uint64_t bits = psc_rng_at(builder->stream, position * builder->draws);
    if (!psw_sampler_keeps(options->sampler, id, (uint32_t)(bits >> 32)))
        return;
    builder->kept[builder->n_kept++] =
        (kept_t){.position = position, .id = id, .bits = (uint32_t)bits};
    if (builder->n_kept == PSW_SENTENCE_MAX)
        end_sentence(builder, batch);
}

static psc_status_t end_epoch(psw_builder_t *builder, psc_error_t *error)
{
    const psw_builder_options_t *options = &builder->options;
    if (builder->position != options->share_words)
        return psc_error_set(error, PSC_IO,
                             "the corpus changed while it was being read: %" PRIu64
                             " words in this worker's part at the start, %" PRIu64 " now",
                             options->share_words, builder->position);
    builder->epoch++;
    psw_reader_rewind(options->reader);
    start_epoch(builder);
    return PSC_OK;
}

/* Numbers of batches start again when 32 bits are used up; rows keep their place in the last batch.
 */
static void restart_numbers(stamp_t *stamps, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        stamps[i].batch = stamps[i].batch == UINT32_MAX ? 1 : 0;
}

static void next_number(psw_builder_t *builder)
{
    if (builder->batch == UINT32_MAX) {
        uint32_t n = psw_vocab_size(builder->options.vocab);
        restart_numbers(builder->input_stamps, n);
        restart_numbers(builder->output_stamps, n);
        builder->batch = 1;
    }
    builder->batch++;
}

psc_status_t psw_builder_next(psw_builder_t *builder, psw_train_batch_t *batch, bool *more_out,
                              psc_error_t *error)
{
    const psw_builder_options_t *options = &builder->options;
    if (builder->epoch == options->epochs) {
        *more_out = false;
        return PSC_OK;
    }
    next_number(builder);
    batch->epoch = builder->epoch;
    batch->position = builder->position;
    batch->raw_words = 0;
    batch->n_words = batch->n_windows = batch->n_outputs = 0;
    batch->input_rows.n = batch->output_rows.n = 0;
    *more_out = true;
    uint64_t limit = (uint64_t)options->batch_words * 2;
    for (;;) {
        psw_token_t token;
        psc_status_t st = psw_reader_next(options->reader, &token, error);
        if (st != PSC_OK)
            return st;
        if (token.kind == PSW_TOKEN_WORD) {
            add_word(builder, batch, &token);
            if (batch->raw_words < limit &&
                (batch->raw_words < options->batch_words || builder->n_kept > 0))
                continue;
        }
        end_sentence(builder, batch);
        if (token.kind == PSW_TOKEN_END)
            return end_epoch(builder, error);
        if (batch->raw_words >= options->batch_words)
            return PSC_OK;
    }
}

psc_status_t psw_builder_skip(psw_builder_t *builder, uint64_t *words_out, uint64_t *windows_out,
                              bool *more_out, psc_error_t *error)
{
    psw_train_batch_t batch = {0};
    builder->skips = true;
    const psc_status_t st = psw_builder_next(builder, &batch, more_out, error);
    builder->skips = false;
    *words_out = batch.raw_words;
    *windows_out = batch.n_windows;
    return st;
}
