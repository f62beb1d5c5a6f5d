/*
 * Neighbours among unit vectors, exactly, by a blocked product of queries and rows.
 *
 * The set must have been normalised (psw_vectors_normalize). Threads: any number may search one
 * set.
 */
#ifndef WORKER_TOOL_VECTOR_SEARCH_H
#define WORKER_TOOL_VECTOR_SEARCH_H

#include "worker/vectors/vector_set.h"

/* A row and its dot product with the query. Plain data. */
typedef struct psw_hit {
    size_t row;
    float score;
} psw_hit_t;

/* Rows that a query must not find. Plain data. */
typedef struct psw_excluded {
    size_t rows[3];
    size_t n;
} psw_excluded_t;

/*
 * For each query the top rows of greatest score among the first n_rows, best first; of equal scores
 * the lower row. Shapes: queries [n_queries x stride of the set], hits_out [n_queries x top]; n_out
 * [n_queries] says how many were found. excluded may be NULL. Borrows. Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_search(const psw_vectors_t *vectors, size_t n_rows,
                                       const float *queries, size_t n_queries,
                                       const psw_excluded_t *excluded, size_t top,
                                       psw_hit_t *hits_out, size_t *n_out, psc_error_t *error);

/* Puts a hit where it belongs among the n best, top at most, best first; of equal scores the lower
 * row. A hit that is worse than all of a full list is left out. */
void psw_hits_insert(psw_hit_t *hits, size_t *n, size_t top, psw_hit_t hit);

/* query_out = b - a + c over the rows' floats (3CosAdd: Mikolov, Yih, Zweig 2013), length 1. */
void psw_analogy_query(const psw_vectors_t *vectors, size_t a, size_t b, size_t c,
                       float *query_out);

#endif
