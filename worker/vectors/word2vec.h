/*
 * Writes vectors in the two formats of the original word2vec tool.
 *
 *     psw_vectors_writer_t *writer;
 *     st = psw_vectors_writer_open(stream, false, n, dim, &writer, error);
 *     for (...)
 *         st = psw_vectors_writer_row(writer, word, strlen(word), row, error);
 *     st = psw_vectors_writer_close(writer, error);
 *
 * Text: a line "n dim", then one line a row: the word and dim numbers, single blanks between. A
 * number has the fewest digits that read back as the same float. Binary: the same first line, then
 * per row the word, a blank, dim little-endian floats and a newline.
 */
#ifndef WORKER_VECTORS_WORD2VEC_H
#define WORKER_VECTORS_WORD2VEC_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct psw_vectors_writer psw_vectors_writer_t;

/* Rows of a file of which it is not known before how many they are. */
#define PSW_VECTORS_UNCOUNTED UINT64_MAX

/*
 * Writes the first line; with n PSW_VECTORS_UNCOUNTED one that close completes, for which stream
 * must be at the beginning of a file. Borrows stream until close; nobody else writes to it
 * meanwhile. Gives.
 * Errors: INVALID_ARGUMENT when dim is 0, or when what has to be completed is a pipe; NO_MEMORY;
 * IO, DISK_FULL.
 */
PSC_MUST_CHECK psc_status_t psw_vectors_writer_open(FILE *stream, bool binary, uint64_t n,
                                                    uint32_t dim, psw_vectors_writer_t **writer_out,
                                                    psc_error_t *error);

/*
 * One row of dim floats. Copies. The word may hold any byte but blank, tab, carriage return
 * and line end, which readers take for its end.
 * Errors: INVALID_ARGUMENT for an empty word, one with such a byte, or a row beyond the n-th; IO,
 * DISK_FULL.
 */
PSC_MUST_CHECK psc_status_t psw_vectors_writer_row(psw_vectors_writer_t *writer, const char *word,
                                                   size_t word_size, const float *row,
                                                   psc_error_t *error);

/*
 * Hands all bytes to the stream and flushes it; does not close it. Takes writer, also on error, so
 * it is how to leave after an error too. Errors: INTERNAL when fewer than n rows were written; IO,
 * DISK_FULL.
 */
PSC_MUST_CHECK psc_status_t psw_vectors_writer_close(psw_vectors_writer_t *writer,
                                                     psc_error_t *error);

/* The longest text of a float, with its NUL. */
#define PSW_FLOAT_TEXT_SIZE 24

/* A float as text that reads back as the same float; returns its length. "nan" and "inf" as printf.
 */
size_t psw_float_print(float value, char text[PSW_FLOAT_TEXT_SIZE]);

#endif
