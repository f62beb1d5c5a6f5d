/*
 * Vocabulary files: which word is which id, as embps-train writes them: line i, from 0, is id i, a
 * word and (passed over) a count behind a blank.
 */
#ifndef WORKER_TOOL_WORD_LIST_H
#define WORKER_TOOL_WORD_LIST_H

#include "worker/vectors/vector_set.h"

/*
 * The words as a set of vectors of one number each that means nothing, so that words are looked up
 * as in a file of vectors; row i is id i. Errors: NOT_FOUND, IO; CORRUPT naming the line of an
 * empty word, one that comes twice, or one of over 1,024 bytes; NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t psw_word_list_load(const char *path, psw_vectors_t **words_out,
                                               psc_error_t *error);

/* The id of a word of the list; words NULL: of an id in decimal. Errors: NOT_FOUND, naming close
 * words; INVALID_ARGUMENT. */
PSC_MUST_CHECK psc_status_t psw_word_list_id(const psw_vectors_t *words, const char *path,
                                             const char *word, uint64_t *id_out,
                                             psc_error_t *error);

/* The other way: the word of an id, or its number, in text (NUL-terminated when it is a number).
 * words NULL: numbers alone. Returns where it is, borrowed from words or text. */
#define PSW_ID_TEXT_SIZE 24
const char *psw_word_list_word(const psw_vectors_t *words, uint64_t id, char text[PSW_ID_TEXT_SIZE],
                               size_t *size_out);

/* A whole number from 0 to 2^64 - 1 in decimal. Errors: INVALID_ARGUMENT, beginning with what. */
PSC_MUST_CHECK psc_status_t psw_parse_id(const char *what, const char *word, uint64_t *id_out,
                                         psc_error_t *error);

#endif
