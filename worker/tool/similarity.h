/*
 * Word similarity tests: how well cosines follow human judgement, as Spearman's rank correlation.
 *
 * Files: one pair a line, two words and a score. A line with a tab is split at tabs, else at commas
 * when it has one, else at blanks; the score is the first number behind the two words. LF or CRLF,
 * the last line with or without. Empty lines and lines that begin with '#' are passed over, and so
 * is a first line without a number (a heading).
 */
#ifndef WORKER_TOOL_SIMILARITY_H
#define WORKER_TOOL_SIMILARITY_H

#include "worker/vectors/vector_set.h"

/* Plain data. */
typedef struct psw_similarity {
    size_t n_pairs;   /* in the file */
    size_t n_used;    /* both words have vectors; the others do not count */
    size_t n_lowered; /* used, but with a word that is known in lower case only */
    bool defined;     /* two or more used pairs, neither side all equal */
    double spearman;  /* -1 to 1; 0 unless defined */
} psw_similarity_t;

/*
 * Reads the pairs of a file and ranks them by the cosines of normalised vectors, of the first
 * n_rows. Errors: NOT_FOUND, IO; CORRUPT naming file and line; NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_similarity_run(const psw_vectors_t *vectors, size_t n_rows,
                                               const char *path, psw_similarity_t *result_out,
                                               psc_error_t *error);

/*
 * Spearman's rank correlation of n pairs (a[i], b[i]): Pearson's of their ranks, equal values
 * sharing the mean of theirs. defined_out false (and 0): n < 2, or all values of a side are equal.
 * Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_spearman(const double *a, const double *b, size_t n,
                                         bool *defined_out, double *spearman_out,
                                         psc_error_t *error);

#endif
