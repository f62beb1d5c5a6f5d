/*
 * The training loop of one worker: pull, train, push, with the next batch's pull under way; at
 * staleness 0 one after another. A batch is a clock.
 *
 * Tables: "in" (input vectors, word2vec's initial values; these are the word vectors) and "out"
 * (output vectors, zeros). Row id = word id.
 */
#ifndef WORKER_TRAIN_TRAINER_H
#define WORKER_TRAIN_TRAINER_H

#include "embps.h"
#include "worker/train/batch_builder.h"
#include "worker/train/model.h"
#include "worker/train/position.h"
#include "worker/train/stop.h"
#include "worker/train/vocab.h"

#define PSW_TABLE_IN "in"
#define PSW_TABLE_OUT "out"

/* Pushes, as messages, and rows in them: by all workers since the training began, runs before this
 * one included as far as they count. */
typedef struct psw_account {
    uint64_t pushes, rows;                 /* as the workers counted them */
    uint64_t pushes_applied, rows_applied; /* as the servers did */
} psw_account_t;

/* What a worker did so far. */
typedef struct psw_train_counts {
    uint64_t words;         /* of the text, over all epochs, kept or not; by this worker */
    uint64_t total_words;   /* by all workers, as far as known */
    uint64_t resumed_words; /* of those, before this run, which goes on from a checkpoint */
    uint64_t resumed_lost;  /* workers that were lost before this run */
    uint64_t windows;
    uint64_t rows;       /* pulled and pushed */
    uint64_t loss_pairs; /* pairs of centre and context in the windows measured */
    double loss;         /* their loss: true word and negatives */
    double rate;         /* of the last window */
    uint64_t bytes_sent, bytes_received;
    psw_account_t account; /* at the end of a training that lost no worker; else 0 */
} psw_train_counts_t;

/* Called after each batch. */
typedef void (*psw_report_fn)(void *context, const psw_train_counts_t *counts);

typedef struct psw_tables {
    embps_table_t *in, *out;
} psw_tables_t;

typedef struct psw_trainer_options {
    embps_client_t *client; /* borrowed */
    psw_tables_t tables;
    psw_builder_t *builder; /* borrowed; at its begin */
    const psw_model_t *model;
    bool plain;
    uint32_t dim, window, negative;
    uint32_t prefetch;           /* batches announced to the servers ahead of their pulls */
    uint32_t staleness;          /* as embps_set_staleness */
    size_t cache_bytes;          /* as embps_set_cache */
    uint32_t flush;              /* as embps_set_flush, once the first steps are over */
    uint64_t checkpoint_batches; /* 0: no checkpoints */
    uint64_t first_batch;        /* where the builder is; so many were trained before */
    psw_train_counts_t counts;   /* of those */
    const psw_facts_t *facts;    /* borrowed; of checkpoints, and so the vocabulary */
    const psw_vocab_t *vocab;    /* borrowed; NULL: they have none */
    psw_stop_t *stop;            /* borrowed; looked at before each batch */
    bool polls_signals;          /* this thread also looks for signals */
    psw_report_fn report;        /* NULL: nobody listens, and no loss is measured */
    void *report_context;
} psw_trainer_options_t;

typedef struct psw_tables_options {
    uint32_t dim;
    uint64_t seed;                         /* of the initial values */
    const char *precision;                 /* as in embps.h, NULL: f32; so below */
    const char *pull_format, *push_format; /* of this worker alone */
} psw_tables_options_t;

/*
 * Opens both tables. Collective only in that all workers must ask for the same dim, seed and
 * precision. Errors: as embps_table_open.
 */
PSC_MUST_CHECK psc_status_t psw_tables_open(embps_client_t *client,
                                            const psw_tables_options_t *options,
                                            psw_tables_t *tables_out, psc_error_t *error);

/* Errors: INTERRUPTED (stop was requested). */
PSC_MUST_CHECK psc_status_t psw_trainer_look_for_stop(const psw_trainer_options_t *options,
                                                      psc_error_t *error);

/*
 * Trains what is left of the builder's epochs. On return nothing of this worker is under way, its
 * last clock has ended, and its pulls wait until that is so for all workers. Errors: INTERRUPTED
 * (stop was requested), those of the builder and of embps_pull and embps_push, NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_trainer_run(const psw_trainer_options_t *options,
                                            psw_train_counts_t *counts_out, psc_error_t *error);

#endif
