/*
 * What a push does to the values of one row, whatever the table's options and precisions.
 *
 *     ps_row_change_prepare(&change, table, kind, rate, step, scratch);
 *     for each row of the push, duplicates summed:
 *         ps_row_change_apply(&change, row, values);
 *
 * A GRADIENT g, in this order: every column is clipped to [-clip_value, clip_value]; g is scaled to
 * the length clip_norm when it is longer; l2 * w is added; the optimizer makes its step; weights
 * are put into their bounds; weights and moments of 16 bits are rounded stochastically. A DELTA is
 * added, put into the bounds, and rounded stochastically. ASSIGN copies, puts into the bounds, and
 * rounds to the nearest. Bounds of a 16-bit table are taken inwards to the next value that it can
 * store, so that no rounding leaves them. Initial values are as the initialiser gives them.
 */
#ifndef PS_TABLE_ROW_CHANGE_H
#define PS_TABLE_ROW_CHANGE_H

#include "ps/table/precision.h"
#include "ps/table/row_values.h"

/* What the rows of one push have in common. Plain data, filled by prepare; borrows all pointers. */
typedef struct ps_row_change {
    const ps_table_t *table;
    psp_push_kind_t kind;
    ps_row_scratch_t *scratch;
    const ps_precision_t *weights, *moments; /* precisions */
    size_t n_moments;
    float low, high; /* bounds, as they can be stored */
    bool own_steps;  /* each row has a step of its own */
    ps_optim_step_t step;
} ps_row_change_t;

/* step: number of the optimizer's step, from 1; 0: each row counts its own. */
void ps_row_change_prepare(ps_row_change_t *change, const ps_table_t *table, psp_push_kind_t kind,
                           float learning_rate, uint64_t step, ps_row_scratch_t *scratch);

/* Whether the table asks for nothing beyond the optimizer's step on float32. */
bool ps_row_change_plain(const ps_table_t *table);

/* The step of a row whose own count is update_count. */
static inline void ps_row_change_step(ps_row_change_t *change, uint32_t update_count)
{
    uint64_t number = (uint64_t)update_count + 1;
    if (change->own_steps && change->step.step != number) {
        change->step.step = number;
        change->table->optim->prepare(&change->step);
    }
}

/* Changes weights and state behind the header; values [dim]. The header stays as it is: its
 * version and update count, as of before, are part of the result. */
void ps_row_change_apply(ps_row_change_t *change, ps_row_header_t *row, const float *values);

#endif
