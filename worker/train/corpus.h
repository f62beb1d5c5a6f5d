/*
 * Plain text files read as one stream of words, and the part of it that one worker reads.
 *
 *     psw_corpus_open(paths, n_paths, &corpus, error);
 *     psw_corpus_share(corpus, worker, n_workers, &begin, &end);
 *     psw_reader_create(corpus, begin, end, &reader, error);
 *     psw_token_t token;
 *     while ((st = psw_reader_next(reader, &token, error)) == PSC_OK && token.kind !=
 * PSW_TOKEN_END)
 *         ...
 *     psw_reader_rewind(reader);              // the next epoch
 *
 * Bytes: space, tab, carriage return, newline, vertical tab and form feed separate words; every
 * other byte, NUL and invalid UTF-8 included, is part of one. A newline and the end of a file are
 * line ends.
 */
#ifndef WORKER_TRAIN_CORPUS_H
#define WORKER_TRAIN_CORPUS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PSW_WORD_MAX_BYTES 4096u /* longer words are skipped and counted */

typedef struct psw_corpus psw_corpus_t;
typedef struct psw_reader psw_reader_t;

typedef enum psw_token_kind {
    PSW_TOKEN_WORD = 0,
    PSW_TOKEN_LINE_END = 1,
    PSW_TOKEN_END = 2, /* of the reader's range; repeats */
} psw_token_kind_t;

typedef struct psw_token {
    psw_token_kind_t kind;
    size_t size;       /* bytes of a word, 1 to PSW_WORD_MAX_BYTES */
    const char *bytes; /* borrowed until the next call */
} psw_token_t;

/* True for the bytes that separate words. */
bool psw_is_separator(unsigned char byte);

/*
 * Looks at the files and remembers their sizes. Copies paths.
 * Errors: INVALID_ARGUMENT (no file, a folder, a device, a pipe, all files empty), NOT_FOUND, IO
 * (not readable), NO_MEMORY; each names the file. Gives.
 */
PSC_MUST_CHECK psc_status_t psw_corpus_open(const char *const *paths, size_t n_paths,
                                            psw_corpus_t **corpus_out, psc_error_t *error);
/* NULL is a no-op. No reader may be left. */
void psw_corpus_close(psw_corpus_t *corpus);

/* Bytes of all files. */
uint64_t psw_corpus_bytes(const psw_corpus_t *corpus);

/* "text.txt", or "text.txt and 3 more": for messages. Borrowed from corpus. */
const char *psw_corpus_name(const psw_corpus_t *corpus);

/* True when path is one of the files (the same file, whatever it is called). */
bool psw_corpus_has_file(const psw_corpus_t *corpus, const char *path);

/* The bytes [begin, end) of the stream that worker i of n reads; shares differ by one byte at most.
 */
void psw_corpus_share(const psw_corpus_t *corpus, uint32_t worker, uint32_t n_workers,
                      uint64_t *begin_out, uint64_t *end_out);

/*
 * A reader of the words whose first byte lies in [begin, end), and of the line ends that lie there.
 * One thread; several readers of one corpus may run at once. Borrows corpus.
 * Errors: NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t psw_reader_create(const psw_corpus_t *corpus, uint64_t begin,
                                              uint64_t end, psw_reader_t **reader_out,
                                              psc_error_t *error);
/* NULL is a no-op. */
void psw_reader_destroy(psw_reader_t *reader);

/* The next token. Errors: IO (also: a file has another size than at the start; named), NOT_FOUND.
 */
PSC_MUST_CHECK psc_status_t psw_reader_next(psw_reader_t *reader, psw_token_t *token_out,
                                            psc_error_t *error);

/* Back to the begin of the range. The count of long words starts again. */
void psw_reader_rewind(psw_reader_t *reader);

/* Words of more than PSW_WORD_MAX_BYTES skipped so far. */
uint64_t psw_reader_long_words(const psw_reader_t *reader);

#endif
