/*
 * Where traces come from: a file of ids, Zipf's law, a training of word vectors.
 *
 * A store is asked for batches of distinct rows, so a row that a batch wants twice is used once:
 * bench_trace_batch makes such a trace of one whose uses are told one by one.
 */
#ifndef TESTS_BENCH_POLICY_TRACES_H
#define TESTS_BENCH_POLICY_TRACES_H

#include "common/status.h"
#include "tests/bench/policy/policies.h"

/*
 * Little-endian uint32 ids, one use each; n_rows is the largest plus 1. Errors: NOT_FOUND, IO,
 * CORRUPT (not a multiple of 4 bytes, empty, an id above 2^31), NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t bench_trace_read(const char *path, bench_trace_t *trace_out,
                                             psc_error_t *error);

/* n independent draws of n_rows rows, rank r as likely as r^-exponent. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t bench_trace_zipf(double exponent, uint32_t n_rows, size_t n,
                                             uint64_t seed, bench_trace_t *trace_out,
                                             psc_error_t *error);

/*
 * The rows of the output table (true words and negatives) that each batch of a training on this
 * text wants, one epoch, with the trainer's defaults and batch_words words a batch. n_rows: of the
 * vocabulary. Errors: those of reading the text. Gives.
 */
PSC_MUST_CHECK psc_status_t bench_trace_training(const char *text, uint32_t batch_words,
                                                 bench_trace_t *trace_out, psc_error_t *error);

/* Keeps of each batch_size uses in a row the first of each id. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t bench_trace_batch(bench_trace_t *trace, size_t batch_size,
                                              psc_error_t *error);

void bench_trace_clear(bench_trace_t *trace);

#endif
