/*
 * What a run needs before its first batch, the same for threads and ranks: the corpus, a check of
 * the files to be written, the vocabulary, the samplers.
 */
#ifndef WORKER_TRAIN_TRAIN_SETUP_H
#define WORKER_TRAIN_TRAIN_SETUP_H

#include "worker/train/corpus.h"
#include "worker/train/sampler.h"
#include "worker/train/stop.h"
#include "worker/train/train_options.h"
#include "worker/train/trainer.h"
#include "worker/train/vocab.h"

/* Shared by all workers of a process, read-only after psw_setup_finish. */
typedef struct psw_setup {
    const psw_train_options_t *options; /* borrowed */
    psw_corpus_t *corpus;
    psw_vocab_t *vocab;
    psw_sampler_t sampler;
    uint64_t corpus_words; /* of all workers' parts */
    uint64_t corpus_hash;  /* of all workers' parts, in their order; set by who knows them all */
} psw_setup_t;

/* What a worker found in its part of the corpus. */
typedef struct psw_part {
    uint64_t begin, end; /* bytes */
    uint64_t words;
    uint64_t long_words; /* skipped */
    uint64_t hash;       /* of the words in their order */
} psw_part_t;

/*
 * Opens the corpus; writes: this process is the one that writes files, and they are checked for
 * being writable. Errors: those of psw_corpus_open; IO and others naming the file that cannot be
 * written; INVALID_ARGUMENT when a file to be written is one of the corpus. Clear in any case.
 */
PSC_MUST_CHECK psc_status_t psw_setup_open(psw_setup_t *setup, const psw_train_options_t *options,
                                           bool writes, psc_error_t *error);
void psw_setup_clear(psw_setup_t *setup);

/*
 * Reads one worker's part; counter (may be NULL) counts its words. Any number of threads at once.
 * Errors: those of the reader and of psw_counter_add; INTERRUPTED.
 */
PSC_MUST_CHECK psc_status_t psw_setup_count(const psw_setup_t *setup, uint32_t worker,
                                            uint32_t n_workers, psw_counter_t *counter,
                                            psw_stop_t *stop, psw_part_t *part_out,
                                            psc_error_t *error);

/*
 * Makes vocabulary and samplers. counter: the counts of all workers, or NULL with --read-vocab.
 * corpus_words: words of all workers' parts. writes: saves the vocabulary where that is wanted.
 * Errors: INVALID_ARGUMENT when nothing is left to train (tells how many words were read and kept);
 * those of psw_vocab_read and psw_vocab_save; NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_setup_finish(psw_setup_t *setup, const psw_counter_t *counter,
                                             uint64_t corpus_words, bool writes,
                                             psc_error_t *error);

/*
 * One worker's whole training on a connected client: opens the tables, runs the trainer over part,
 * from where the checkpoint is that the servers go on from, if it says so. report: NULL for workers
 * that show nothing. Errors: as psw_trainer_run; those of psw_position_read.
 */
PSC_MUST_CHECK psc_status_t psw_setup_train(const psw_setup_t *setup, embps_client_t *client,
                                            uint32_t worker, const psw_part_t *part,
                                            psw_stop_t *stop, bool polls_signals,
                                            psw_report_fn report, void *report_context,
                                            psw_tables_t *tables_out,
                                            psw_train_counts_t *counts_out, psc_error_t *error);

/*
 * After a training of all epochs, with what this worker read and trained: one without a window is
 * warned of, and when it is the only one an error. Errors: INVALID_ARGUMENT.
 */
PSC_MUST_CHECK psc_status_t psw_setup_check_trained(const psw_setup_t *setup, uint32_t worker,
                                                    uint32_t n_workers, uint64_t words,
                                                    uint64_t windows, psc_error_t *error);

#endif
