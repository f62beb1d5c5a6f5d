/*
 * The loops over rows of a pull or push: where optimizers, initialisers and the store's records
 * meet.
 *
 * All of them work on a prepared batch, in the order of the message; none fails or waits. Rows are
 * fetched ahead, since they lie anywhere in a region far larger than the caches.
 */
#ifndef PS_TABLE_ROWS_H
#define PS_TABLE_ROWS_H

#include "common/slots.h"
#include "ps/store/store.h"
#include "ps/table/row_values.h"

#include <stdbool.h>

/* What a loop works on. Plain data; borrows. */
typedef struct ps_rows {
    const ps_table_t *table;
    ps_store_t *store;
    ps_row_scratch_t *scratch; /* reserved for the table */
    size_t n;
    const uint64_t *ids;
    const ps_place_t *places;
} ps_rows_t;

/*
 * Copies n ids out of a message and hashes them. Returns n, or the index of the first id that the
 * map does not give to the server `rank`.
 */
size_t ps_rows_locate(const uint8_t *id_bytes, size_t n, uint16_t table, const psc_slot_map_t *map,
                      uint32_t rank, uint64_t *ids, uint64_t *hashes);

/* Index of the first row of dim floats with a value that is not finite; n when there is none. */
size_t ps_rows_find_nonfinite(const float *values, size_t n, uint32_t dim);

/* states [n] gets a psp_row_state_t each; versions [n] (may be NULL) the rows' versions, 0 where
 * absent. Returns how many are absent. */
size_t ps_rows_inspect(const ps_rows_t *rows, uint8_t *states, uint32_t *versions);

/* Writes n * dim floats to out (unaligned): weights, or the initial value where states says so.
 * states NULL: all rows are present. */
void ps_rows_gather(const ps_rows_t *rows, const uint8_t *states, uint8_t *out);

/* One push, its values checked. */
typedef struct ps_rows_push {
    psp_push_kind_t kind;
    float learning_rate;
    uint64_t step; /* of the optimizer, from 1; 0: each row counts its own */
    uint32_t clock;
    uint32_t serial;                /* of this push in the shard; in header.push_seq afterwards */
    const float *values;            /* [n, dim] */
    const float *const *row_values; /* [n] of [dim], instead of values; NULL: values */
} ps_rows_push_t;

typedef struct ps_rows_claim {
    size_t created; /* rows that were absent */
    size_t padded;  /* rows that are the pad row, which the push leaves as it is */
    bool repeated;  /* an id may occur twice (it does, but for rows that were last touched exactly
                       2^31 pushes ago): then ps_rows_merge has to be used */
} ps_rows_claim_t;

/* Gives absent rows their initial value and state, and stamps all rows with the push. A pad row is
 * left out, unless it is assigned. */
void ps_rows_claim(const ps_rows_t *rows, const ps_rows_push_t *push, ps_rows_claim_t *claim_out);

/* Applies a push whose ids are distinct, after ps_rows_claim: to each row what row_change.h says.
 */
void ps_rows_apply(const ps_rows_t *rows, const ps_rows_push_t *push);

/* Scratch of ps_rows_merge, grown to the largest push that had duplicates. */
typedef struct ps_rows_merge_space {
    size_t n, n_floats;
    uint32_t *buckets; /* power of two, at least 2 n */
    uint64_t *ids;
    ps_place_t *places;
    const float **row_values; /* into the message, or into sums */
    float *sums;              /* of rows that occur more than once */
} ps_rows_merge_space_t;

/*
 * The same push with distinct ids, in the order of their first occurrence: duplicates are summed in
 * the order of the message, or for ASSIGN the last one counts. Rows of place 0 are left out: the
 * push has nothing for them. The outputs borrow from space and from the push's values.
 * Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_rows_merge(const ps_rows_t *rows, const ps_rows_push_t *push,
                                          ps_rows_merge_space_t *space, ps_rows_t *merged_out,
                                          ps_rows_push_t *merged_push_out, psc_error_t *error);
void ps_rows_merge_space_clear(ps_rows_merge_space_t *space);

#endif
