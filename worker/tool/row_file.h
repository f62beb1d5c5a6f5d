/*
 * A file of whole rows: what embps export writes and embps import reads back to the last bit.
 *
 *     "embpsrow"; uint32: version (1), dim, numbers of state of a row, flags (1: with counts),
 *     bytes of the options; the table's options as JSON; the check of all that
 *     blocks: uint32 n from 1; ids n x uint64; counts n x 2 x uint32, if there are any; state
 *     n x K x float32; rows n x dim x float32; the check of the block
 *     the end: uint32 0; uint64 rows of the file; the check of these
 *
 * All little-endian. A check is the XXH3 hash, 64 bits, of the bytes since the last one.
 */
#ifndef WORKER_TOOL_ROW_FILE_H
#define WORKER_TOOL_ROW_FILE_H

#include "common/status.h"
#include "embps.h"

#include <jansson.h>
#include <stdio.h>

typedef struct psw_row_writer psw_row_writer_t;
typedef struct psw_row_reader psw_row_reader_t;

/* options: borrowed for the call. stream: borrowed until the writer is closed. Errors: NO_MEMORY,
 * IO, DISK_FULL. Gives. */
PSC_MUST_CHECK psc_status_t psw_row_writer_open(FILE *stream, const json_t *options,
                                                psw_row_writer_t **writer_out, psc_error_t *error);
/* Blocks have all the same shape: dim, state_floats, counts or none. Errors: IO, DISK_FULL,
 * INVALID_ARGUMENT (another shape). */
PSC_MUST_CHECK psc_status_t psw_row_writer_add(psw_row_writer_t *writer, const embps_block_t *block,
                                               psc_error_t *error);
/* Writes the end. Takes writer, also on error. Errors: as above. */
PSC_MUST_CHECK psc_status_t psw_row_writer_close(psw_row_writer_t *writer, psc_error_t *error);
/* Without an end. NULL is a no-op. */
void psw_row_writer_abort(psw_row_writer_t *writer);

/* Whether a file begins like one. False when it cannot be read, and for a pipe, of which a look
 * would take the beginning. */
bool psw_row_file_is(const char *path);

/* Errors: NOT_FOUND, IO; CORRUPT (no such file, or a damaged one); UNSUPPORTED (of a later
 * version); NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_row_reader_open(const char *path, psw_row_reader_t **reader_out,
                                                psc_error_t *error);
/* The options of the table. Borrowed until the reader is closed. */
const embps_table_options_t *psw_row_reader_options(const psw_row_reader_t *reader);
/* The next block, good until the next call; n 0: the end, and the file is whole. Errors: IO;
 * CORRUPT (damaged, cut off, or with something behind its end, whose offset is named). */
PSC_MUST_CHECK psc_status_t psw_row_reader_next(psw_row_reader_t *reader, embps_block_t *block_out,
                                                psc_error_t *error);
/* NULL is a no-op. */
void psw_row_reader_close(psw_row_reader_t *reader);

#endif
