/*
 * Analogy tests: "a b c d" asks whether the word nearest to b - a + c is d (3CosAdd), with a, b and
 * c themselves left out.
 *
 * Files as Google's questions-words.txt: four words a line; a line ": name" begins a section. Empty
 * lines and lines that begin with '#' or "//" are passed over.
 */
#ifndef WORKER_TOOL_QUESTIONS_H
#define WORKER_TOOL_QUESTIONS_H

#include "worker/vectors/vector_set.h"

/* Plain data. */
typedef struct psw_section {
    char name[64];      /* cut where longer; "" for questions before the first section */
    size_t n_questions; /* in the file */
    size_t n_known;     /* all four words have vectors; the others are skipped */
    size_t n_right;     /* of the known */
} psw_section_t;

typedef struct psw_questions {
    psw_section_t *sections;
    size_t n_sections;
    psw_section_t total; /* its name is "total" */
    size_t n_lowered;    /* known questions with a word that is known in lower case only */
} psw_questions_t;

/*
 * Asks all questions of a file against the first n_rows of normalised vectors; words beyond them
 * count as unknown and are never an answer. Gives the sections: psw_questions_free. Errors:
 * NOT_FOUND, IO; CORRUPT naming file and line; NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_questions_run(const psw_vectors_t *vectors, size_t n_rows,
                                              const char *path, psw_questions_t *result_out,
                                              psc_error_t *error);

/* Frees what is inside; zeroed is a no-op. */
void psw_questions_free(psw_questions_t *questions);

#endif
