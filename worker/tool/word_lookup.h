/* Words as people type them, against a set's vocabulary. */
#ifndef WORKER_TOOL_WORD_LOOKUP_H
#define WORKER_TOOL_WORD_LOOKUP_H

#include "worker/vectors/vector_set.h"

typedef enum psw_lookup {
    PSW_LOOKUP_NONE,
    PSW_LOOKUP_AS_IS,
    PSW_LOOKUP_LOWERED, /* only its lower-case form (ASCII letters) is there */
} psw_lookup_t;

/* The row of a word among the first n_rows. row_out is written unless NONE. */
psw_lookup_t psw_word_lookup(const psw_vectors_t *vectors, size_t n_rows, const char *word,
                             size_t size, size_t *row_out);

/* The most alternatives that psw_unknown_word names. */
#define PSW_MOST_ALTERNATIVES 5

/*
 * Rows whose words are spelt most like an unknown one: least edits (insert, delete, change, swap of
 * neighbours; at most a third of its length), then earliest row. Returns how many. Words of more
 * than 64 bytes have none.
 */
size_t psw_word_alternatives(const psw_vectors_t *vectors, const char *word, size_t size,
                             size_t rows_out[PSW_MOST_ALTERNATIVES]);

/* Fills error for an unknown word: says so and names close ones. Returns NOT_FOUND. */
psc_status_t psw_unknown_word(const psw_vectors_t *vectors, const char *path, const char *word,
                              psc_error_t *error);

#endif
