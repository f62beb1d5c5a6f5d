/*
 * The words of a training run with their ids and counts, and the files that hold them.
 *
 * Ids 0..n-1 go by falling count, equal counts by rising bytes: the same whatever the number of
 * workers and the order of the files.
 */
#ifndef WORKER_TRAIN_VOCAB_H
#define WORKER_TRAIN_VOCAB_H

#include "worker/train/word_counter.h"

#include <stdbool.h>

#define PSW_VOCAB_NONE UINT32_MAX /* lookup: not in the vocabulary */

typedef struct psw_vocab psw_vocab_t;

/*
 * Words of counter that were seen min_count times at least. May hold none. Copies.
 * Errors: NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t psw_vocab_build(const psw_counter_t *counter, uint64_t min_count,
                                            psw_vocab_t **vocab_out, psc_error_t *error);
/* NULL is a no-op. */
void psw_vocab_destroy(psw_vocab_t *vocab);

/* Any number of threads may call these at once. */
uint32_t psw_vocab_size(const psw_vocab_t *vocab);
uint64_t psw_vocab_total(const psw_vocab_t *vocab); /* sum of the counts of all its words */
uint64_t psw_vocab_count(const psw_vocab_t *vocab, uint32_t id);
/* Borrowed from vocab; not NUL-terminated. */
const char *psw_vocab_word(const psw_vocab_t *vocab, uint32_t id, size_t *size_out);
/* The id of a word, PSW_VOCAB_NONE when there is none. */
uint32_t psw_vocab_lookup(const psw_vocab_t *vocab, const char *bytes, size_t size);

/* A hash of all words and counts: equal vocabularies have equal ones. */
uint64_t psw_vocab_fingerprint(const psw_vocab_t *vocab);

/* Writes "word count\n" in the order of ids, whole or not at all. Errors: as psc_outfile_commit. */
PSC_MUST_CHECK psc_status_t psw_vocab_save(const psw_vocab_t *vocab, const char *path,
                                           psc_error_t *error);

/* The bytes of such a file, in memory. Errors: NO_MEMORY. Gives bytes_out (psc_free). */
PSC_MUST_CHECK psc_status_t psw_vocab_write(const psw_vocab_t *vocab, char **bytes_out,
                                            size_t *n_out, psc_error_t *error);

/*
 * Adds the words and counts of such a file. The line "</s> 0" of the original tool is passed over.
 * Errors: CORRUPT naming file and line (no word, a word too long or twice, no count, a count of 0
 * or above 2^63, more behind it, no newline at the end), NOT_FOUND, IO, NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_vocab_read(const char *path, psw_counter_t *counter,
                                           psc_error_t *error);

/*
 * Collective: the bytes of all workers, one after another, at every worker; the signature of
 * psp_mpi_job_gather. sizes_out: array of n_workers. Gives bytes_out (psc_free).
 */
typedef psc_status_t (*psw_gather_fn)(void *context, const void *bytes, size_t size,
                                      char **bytes_out, size_t *sizes_out, psc_error_t *error);

/*
 * Collective over workers: own counts in, the counts of all out (a new counter, the same
 * everywhere). Errors: PROTOCOL, NO_MEMORY, those of gather. Gives.
 */
PSC_MUST_CHECK psc_status_t psw_vocab_gather(const psw_counter_t *own, uint32_t n_workers,
                                             psw_gather_fn gather, void *context,
                                             psw_counter_t **all_out, psc_error_t *error);

#endif
