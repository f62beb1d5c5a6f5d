/*
 * The values of one row: how they lie in its record, what they are at first, and the scratch that
 * working on them needs.
 *
 * Behind the header: dim weights in the table's precision, padded to 4 bytes; then the optimizer's
 * state, all float32, or its moments with 16 bits, padded to 4 bytes, before the rest.
 */
#ifndef PS_TABLE_ROW_VALUES_H
#define PS_TABLE_ROW_VALUES_H

#include "ps/store/store.h"
#include "ps/table/schema.h"

/* A row's values as floats, for the widest of the tables. All 0 at first. */
typedef struct ps_row_scratch {
    size_t dim, state_floats;
    float *weights;   /* [dim] */
    float *state;     /* [state_floats] */
    float *grad;      /* [dim] */
    uint32_t *random; /* 16 bits for each column of weights and state, whole blocks of 8 */
} ps_row_scratch_t;

/* Makes room for rows of this table. Errors: NO_MEMORY (what was there stays). */
PSC_MUST_CHECK psc_status_t ps_row_scratch_reserve(ps_row_scratch_t *scratch,
                                                   const ps_table_t *table, psc_error_t *error);
void ps_row_scratch_clear(ps_row_scratch_t *scratch);

/* weights_out [dim] of float (unaligned): the weights of a row that is there. */
void ps_row_read(const ps_table_t *table, const ps_row_header_t *row, void *weights_out);

/* The weights of a row that was never pushed: what ps_row_begin would give it. A pad row is 0. They
 * are in the scratch until its next use. */
const float *ps_row_initial(const ps_table_t *table, uint64_t id, ps_row_scratch_t *scratch);

/* Writes initial weights and fresh state behind the header of a record: all of them, whatever was
 * there before. The header, whose id says which row it is, stays as it is. */
void ps_row_begin(const ps_table_t *table, ps_row_scratch_t *scratch, ps_row_header_t *row);

/* state_out [K] from a record's state whose first m floats are moments of 16 bits. */
void ps_row_read_state(const ps_table_t *table, const uint8_t *stored, size_t m, float *state_out);

/* The float32 part behind those moments, back into the record. */
void ps_row_write_sums(const ps_table_t *table, const float *state, size_t m, uint8_t *stored_out);

/* The whole state of a row, float32, out of its record to out and back from there (unaligned). What
 * came out goes back to the last bit. */
void ps_row_copy_state(const ps_table_t *table, const ps_row_header_t *row,
                       ps_row_scratch_t *scratch, void *out);
void ps_row_set_state(const ps_table_t *table, ps_row_header_t *row, ps_row_scratch_t *scratch,
                      const void *state);

#endif
