/*
 * Word vectors in memory: words, a matrix, and a look-up from word to row.
 *
 *     psw_vectors_t *vectors;
 *     st = psw_vectors_load("vectors.txt", &vectors, error);
 *     size_t row;
 *     if (psw_vectors_find(vectors, "king", 4, &row))
 *         use(psw_vectors_row(vectors, row));
 *     psw_vectors_destroy(vectors);
 *
 * Words are bytes, in whatever encoding the file had, and differ from each other. Rows keep the
 * order of the file. Threads: any number may read one set.
 */
#ifndef WORKER_VECTORS_VECTOR_SET_H
#define WORKER_VECTORS_VECTOR_SET_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct psw_vectors psw_vectors_t;

/* An empty set of vectors of dim > 0 floats. Gives. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_vectors_create(size_t dim, psw_vectors_t **vectors_out,
                                               psc_error_t *error);

/*
 * Reads a file of vectors (or a pipe) and tells its format by its first bytes: word2vec text with
 * or without the line "n dim" (GloVe and fastText's .vec are such), word2vec binary with or without
 * a newline after each row. A word that comes again is passed over and counted. Memory is taken as
 * rows come, never on the word of a first line. Gives.
 * Errors, naming the file and the line or row: NOT_FOUND, IO; UNSUPPORTED, naming the format, for
 * fastText's models, finalfusion, NumPy, pickle, HDF5, archives and compressed files; CORRUPT for
 * numbers that are none or not finite, too few or too many of them, a promised row that is missing
 * or one too many; NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_vectors_load(const char *path, psw_vectors_t **vectors_out,
                                             psc_error_t *error);

/*
 * Appends a row of dim floats unless the word is there already: then nothing changes, and
 * *added_out is false. Copies. Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_vectors_add(psw_vectors_t *vectors, const char *word,
                                            size_t word_size, const float *row, bool *added_out,
                                            psc_error_t *error);

/* NULL is a no-op. */
void psw_vectors_destroy(psw_vectors_t *vectors);

/* Number of rows; floats in a row; floats from one row to the next (dim rounded up to a multiple of
 * 16, the rest is 0). */
size_t psw_vectors_count(const psw_vectors_t *vectors);
size_t psw_vectors_dim(const psw_vectors_t *vectors);
size_t psw_vectors_stride(const psw_vectors_t *vectors);

/* Row i < count; row 0 is the start of the matrix. Borrowed until the set changes. */
const float *psw_vectors_row(const psw_vectors_t *vectors, size_t i);

/* The word of row i < count, with a NUL after it that size_out does not count. Borrowed likewise.
 */
const char *psw_vectors_word(const psw_vectors_t *vectors, size_t i, size_t *size_out);

/* The row of a word; false when there is none. row_out is written only on true. */
bool psw_vectors_find(const psw_vectors_t *vectors, const char *word, size_t word_size,
                      size_t *row_out);

/* What the file was ("word2vec text", ...); "" for a set that was not loaded. Static. */
const char *psw_vectors_format(const psw_vectors_t *vectors);

/* How often psw_vectors_add met a word that was there already. */
uint64_t psw_vectors_repeated(const psw_vectors_t *vectors);

/* Scales every row to length 1; rows of zeros stay. The second: a row alone, stride floats of which
 * those past dim are 0. */
void psw_vectors_normalize(psw_vectors_t *vectors);
void psw_vector_normalize(float *row, size_t dim, size_t stride);

#endif
