/*
 * The ids of one call: which are distinct, where the duplicates are, and the sums of their rows.
 *
 *     psw_distinct_t d;
 *     st = psw_batch_dedupe(batch, table, ids, n, &d, error);
 *     for (size_t u = 0; u < d.n; u++)
 *         psw_batch_sum_row(rows, dim, d.next, d.first[u], out + u * dim);
 */
#ifndef WORKER_BATCH_H
#define WORKER_BATCH_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

#define PSW_BATCH_NONE UINT32_MAX
#define PSW_BATCH_MAX ((size_t)1 << 31) /* ids in one call */
#define PSW_BATCH_SMALL 0x1p96f         /* sums of PSW_BATCH_MAX values below this are finite */

typedef struct psw_batch psw_batch_t;

/* Plain data; borrows from the batch until its next call. */
typedef struct psw_distinct {
    size_t n;               /* distinct ids */
    const uint32_t *first;  /* [n] index of an id's first occurrence, rising */
    const uint64_t *hashes; /* [n] psc_row_hash of each */
    const uint32_t *next;   /* [ids] the next occurrence of the same id, or PSW_BATCH_NONE; NULL:
                               all ids are distinct */
    size_t n_duplicates;    /* ids - n */
    const uint32_t *duplicates; /* [2 * n_duplicates]: index of a duplicate, index of its first */
} psw_distinct_t;

/* One thread at a time. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_batch_create(psw_batch_t **batch_out, psc_error_t *error);
/* NULL is a no-op. */
void psw_batch_destroy(psw_batch_t *batch);

/* Finds the distinct ids among ids [n]. Errors: INVALID_ARGUMENT (n above PSW_BATCH_MAX),
 * NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_batch_dedupe(psw_batch_t *batch, uint32_t table,
                                             const uint64_t *ids, size_t n,
                                             psw_distinct_t *distinct_out, psc_error_t *error);

/* The hashes alone, for ids that the caller knows to be distinct. first is NULL. Errors: as dedupe.
 */
PSC_MUST_CHECK psc_status_t psw_batch_hash(psw_batch_t *batch, uint32_t table, const uint64_t *ids,
                                           size_t n, psw_distinct_t *distinct_out,
                                           psc_error_t *error);

/*
 * Writes the sum of the rows of an id, in input order, to out (dim floats, at any address).
 * rows [ids, dim]; first: the id's first occurrence; next: as above, NULL: no duplicates.
 */
void psw_batch_sum_row(const float *rows, size_t dim, const uint32_t *next, uint32_t first,
                       uint8_t *out);

/* Index of the last occurrence of the id whose first is given. */
uint32_t psw_batch_last(const uint32_t *next, uint32_t first);

/* Index of the first of n floats that is infinite or not a number; n when there is none. */
size_t psw_batch_find_not_finite(const float *values, size_t n);

#endif
