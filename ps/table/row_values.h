/*
 * The values of one row: how they lie in its record, what they are at first, and the scratch that
 * working on them needs.
 */
#ifndef PS_TABLE_ROW_VALUES_H
#define PS_TABLE_ROW_VALUES_H

#include "ps/store/store.h"
#include "ps/table/schema.h"

/* Floats of the widest table. All 0 at first. */
typedef struct ps_row_scratch {
    size_t dim;
    float *weights; /* [dim] */
} ps_row_scratch_t;

/* Makes room for rows of this table. Errors: NO_MEMORY (what was there stays). */
PSC_MUST_CHECK psc_status_t ps_row_scratch_reserve(ps_row_scratch_t *scratch,
                                                   const ps_table_t *table, psc_error_t *error);
void ps_row_scratch_clear(ps_row_scratch_t *scratch);

/* weights_out [dim] of float (unaligned): the weights of a row that is there. */
void ps_row_read(const ps_table_t *table, const ps_row_header_t *row, void *weights_out);

/* The same of a row that was never pushed: what ps_row_begin would give it. */
void ps_row_read_initial(const ps_table_t *table, uint64_t id, ps_row_scratch_t *scratch,
                         void *weights_out);

/* Writes initial weights and fresh state behind the header of a record: all of them, whatever was
 * there before. The header, whose id says which row it is, stays as it is. */
void ps_row_begin(const ps_table_t *table, ps_row_scratch_t *scratch, ps_row_header_t *row);

#endif
