/*
 * From words to batches: which rows a stretch of text touches, and its windows in terms of them.
 *
 *     psw_builder_create(&options, &builder, error);
 *     psw_train_batch_create(builder, &batch, error);
 *     while ((st = psw_builder_next(builder, batch, &more, error)) == PSC_OK && more)
 *         ... pull batch->inputs.ids and batch->outputs.ids, train batch->windows ...
 *
 * A row of a batch is named by its slot: its index among the batch's distinct rows of that table.
 */
#ifndef WORKER_TRAIN_BATCH_BUILDER_H
#define WORKER_TRAIN_BATCH_BUILDER_H

#include "worker/train/corpus.h"
#include "worker/train/sampler.h"
#include "worker/train/vocab.h"

#define PSW_SENTENCE_MAX 1000u /* kept words; longer ones are cut, as the original tool does */
#define PSW_SLOT_NONE                                                                              \
    UINT32_MAX /* no row: a negative that was the true word; no such row before                    \
                */
#define PSW_BATCH_WORDS_MAX 1000000u
#define PSW_WINDOW_MAX 1000u
#define PSW_NEGATIVE_MAX 1000u

typedef struct psw_builder psw_builder_t;

/* The distinct rows of one table that a batch touches. */
typedef struct psw_rows {
    uint32_t n, capacity;
    uint64_t *ids;      /* [n] */
    uint32_t *previous; /* [n] slot of the same row in the batch before, or PSW_SLOT_NONE */
} psw_rows_t;

/* A centre word and its contexts words[first..last] without words[centre]. */
typedef struct psw_window {
    uint32_t first, centre, last; /* first <= centre <= last, first < last */
    uint32_t outputs;             /* where its outputs begin */
    float rate;
} psw_window_t;

/*
 * outputs of a window: matrix form: the true word, then `negative` negatives, for all its contexts.
 * Plain form: that many for each context, one context after the other.
 */
typedef struct psw_train_batch {
    uint64_t raw_words; /* of the text, kept or not */
    uint64_t position;  /* of its first word in the share */
    uint32_t epoch;
    uint32_t n_words, n_windows, n_outputs;
    uint32_t *words;       /* [n_words] input slots of the kept words, in the order of the text */
    psw_window_t *windows; /* [n_windows] */
    uint32_t *outputs;     /* [n_outputs] output slots, or PSW_SLOT_NONE */
    psw_rows_t input_rows, output_rows;
} psw_train_batch_t;

typedef struct psw_builder_options {
    const psw_vocab_t *vocab;     /* borrowed; not empty */
    const psw_sampler_t *sampler; /* borrowed */
    psw_reader_t *reader;         /* borrowed; at the begin of the share */
    uint64_t share_words;         /* words of the share, as counted before */
    uint64_t seed;
    uint32_t worker;
    uint32_t epochs;      /* at least 1 */
    uint32_t window;      /* 1 to PSW_WINDOW_MAX */
    uint32_t negative;    /* 1 to PSW_NEGATIVE_MAX */
    uint32_t batch_words; /* words of the text a batch has about; 1 to PSW_BATCH_WORDS_MAX */
    bool plain;           /* negatives for each pair instead of each window */
    double alpha;
} psw_builder_options_t;

/* Copies options. Errors: NO_MEMORY. Gives. One thread at a time. */
PSC_MUST_CHECK psc_status_t psw_builder_create(const psw_builder_options_t *options,
                                               psw_builder_t **builder_out, psc_error_t *error);
/* NULL is a no-op. */
void psw_builder_destroy(psw_builder_t *builder);

/* Room for any batch of this builder (untouched room costs no memory). Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_train_batch_create(const psw_builder_t *builder,
                                                   psw_train_batch_t **batch_out,
                                                   psc_error_t *error);
/* NULL is a no-op. */
void psw_train_batch_destroy(psw_train_batch_t *batch);

/*
 * The next batch; *more_out false: all epochs are over and batch is untouched. A batch ends with a
 * sentence, and with the epoch; it may have no window. `previous` of its rows means the batch of
 * the call before.
 * Errors: those of the reader; IO when the share has another number of words than share_words.
 */
PSC_MUST_CHECK psc_status_t psw_builder_next(psw_builder_t *builder, psw_train_batch_t *batch,
                                             bool *more_out, psc_error_t *error);

/*
 * Passes over the next batch, as if it had been trained: the one after it is what it would be then.
 * *words_out: of the text. Much quicker than psw_builder_next.
 * Errors: as psw_builder_next.
 */
PSC_MUST_CHECK psc_status_t psw_builder_skip(psw_builder_t *builder, uint64_t *words_out,
                                             uint64_t *windows_out, bool *more_out,
                                             psc_error_t *error);

#endif
