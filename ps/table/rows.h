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
#include "ps/store/fetch.h"
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

/* How far ahead the loops fetch, in rows: headers, and whole rows. */
#define PS_HEADERS_AHEAD 16u
#define PS_ROWS_AHEAD 8u

/* Lines to fetch of a row of which header and the first `bytes` behind it are used. */
static inline size_t ps_rows_lines(const ps_table_t *table, size_t bytes)
{
    return ps_fetch_lines(sizeof(ps_row_header_t) + bytes, ps_table_row_bytes(table));
}

/*
 * Copies n ids out of a message and hashes them. Returns n, or the index of the first id that the
 * map does not give to the server `rank`.
 */
size_t ps_rows_locate(const uint8_t *id_bytes, size_t n, uint16_t table, const psc_slot_map_t *map,
                      uint32_t rank, uint64_t *ids, uint64_t *hashes);

/* Index of the first row of dim floats with a value that is not finite; n when there is none. */
size_t ps_rows_find_nonfinite(const float *values, size_t n, uint32_t dim);

/* The same of rows as they came in a format; of float32 too, then unaligned. */
size_t ps_rows_find_nonfinite_coded(const uint8_t *rows, psp_format_t format, size_t n,
                                    uint32_t dim);

/* states [n] gets a psp_row_state_t each; versions [n] (may be NULL) the rows' versions, 0 where
 * absent. Returns how many are absent. */
size_t ps_rows_inspect(const ps_rows_t *rows, uint8_t *states, uint32_t *versions);

/* Writes n rows of a format to out (unaligned), straight from their records: weights, or the
 * initial value where states says so. states NULL: all rows are present. */
void ps_rows_gather(const ps_rows_t *rows, const uint8_t *states, psp_format_t format,
                    uint8_t *out);

/* One push, its values checked and decoded. */
typedef struct ps_rows_push {
    psp_push_kind_t kind;
    float learning_rate;
    uint64_t step; /* of the optimizer, from 1; 0: each row counts its own */
    uint32_t clock;
    uint32_t serial;                /* of its first row in the shard; the next push begins behind
                                       the last one. header.push_seq says which row it was */
    const float *values;            /* [n, dim] */
    const float *const *row_values; /* [n] of [dim], instead of values; NULL: values */
} ps_rows_push_t;

/* The serials of a push of n rows, out of those that are counted in *next (0 at first): below
 * PS_ROW_LOAD_SERIAL, none of them 0; round and round. Returns the first. */
static inline uint32_t ps_rows_take_serials(uint32_t *next, size_t n)
{
    if (*next == 0 || n > PS_ROW_LOAD_SERIAL - *next)
        *next = 1;
    uint32_t first = *next;
    *next += (uint32_t)n;
    return first;
}

/* Which row of the push, before row i, was for the same record; i or more: none. ids: of the push.
 * The stamp of another push may look like one of this push; the id does not. */
static inline size_t ps_rows_first(const ps_row_header_t *row, const ps_rows_push_t *push,
                                   const uint64_t *ids, size_t i)
{
    size_t first = (uint32_t)(row->push_seq - push->serial);
    return first < i && ids[first] == row->id ? first : i;
}

#define PS_ROWS_NONE UINT32_MAX

typedef struct ps_rows_claim {
    size_t created;  /* rows that were absent */
    size_t padded;   /* rows that are the pad row, which the push leaves as it is */
    size_t repeated; /* rows whose id came before: then ps_rows_merge has to be used */
    size_t left_out; /* rows of place 0, for which the push has nothing: then too */
} ps_rows_claim_t;

/*
 * Gives absent rows their initial value and state, and stamps all rows with the push. A pad row is
 * left out, unless it is assigned. firsts [n] gets, for each row, the first one with its id (itself
 * as a rule), or PS_ROWS_NONE for those of place 0.
 */
void ps_rows_claim(const ps_rows_t *rows, const ps_rows_push_t *push, uint32_t *firsts,
                   ps_rows_claim_t *claim_out);

/* Applies a push whose ids are distinct, after ps_rows_claim: to each row what row_change.h says.
 */
void ps_rows_apply(const ps_rows_t *rows, const ps_rows_push_t *push);

/* Scratch of a push, grown to the largest one so far. */
typedef struct ps_rows_merge_space {
    size_t n, n_merged, n_floats;
    uint32_t *firsts; /* [n] */
    uint64_t *ids;    /* [n_merged], and so the next three */
    ps_place_t *places;
    const float **row_values; /* into the message, or into sums */
    uint32_t *merged;         /* where the rows of the message are among these [n_merged] */
    float *sums;              /* of rows that occur more than once */
} ps_rows_merge_space_t;

/* Makes room for firsts of n rows. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_rows_reserve_firsts(ps_rows_merge_space_t *space, size_t n,
                                                   psc_error_t *error);

/*
 * The same push with distinct ids, in the order of their first occurrence, after ps_rows_claim
 * filled space->firsts: duplicates are summed in the order of the message, or for ASSIGN the last
 * one counts. Rows of place 0 are left out. The outputs borrow from space and from the push's
 * values. Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_rows_merge(const ps_rows_t *rows, const ps_rows_push_t *push,
                                          ps_rows_merge_space_t *space, ps_rows_t *merged_out,
                                          ps_rows_push_t *merged_push_out, psc_error_t *error);
void ps_rows_merge_space_clear(ps_rows_merge_space_t *space);

#endif
