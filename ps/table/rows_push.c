/*
 * The two passes of a push over its rows.
 *
 * ps_rows_claim touches every header (fetched 16 rows ahead), gives absent rows a value and finds
 * duplicates: each row is stamped with its number in the push, counted on over all pushes, so a row
 * that comes again tells which one it was. ps_rows_apply changes the values, with whole rows
 * fetched 8 ahead. What a push and its table ask for is decided once, before the loop: the usual
 * loops, float32 rows of a table without options, are one call a row. Cost: one cache line a row in
 * the first pass, the row in the second. Threads: the owner's.
 */
#include "ps/table/rows.h"

#include "common/inline.h"
#include "common/vectors.h"
#include "ps/table/row_change.h"

#include <string.h>

/* Whether a pad row is to be left as it is. */
static bool leaves_pad(const ps_rows_t *rows, const ps_rows_push_t *push)
{
    return rows->table->has_pad && push->kind != PSP_PUSH_ASSIGN;
}

void ps_rows_claim(const ps_rows_t *rows, const ps_rows_push_t *push, uint32_t *firsts,
                   ps_rows_claim_t *claim_out)
{
    uint8_t *base = ps_store_base(rows->store);
    ps_rows_claim_t claim = {0};
    const bool pad = leaves_pad(rows, push);
    for (size_t i = 0; i < rows->n; i++) {
        if (i + PS_HEADERS_AHEAD < rows->n)
            __builtin_prefetch(ps_store_row(base, rows->places[i + PS_HEADERS_AHEAD]), 1);
        firsts[i] = (uint32_t)i;
        if (rows->places[i] == 0) {
            firsts[i] = PS_ROWS_NONE;
            claim.left_out++;
            continue;
        }
        if (pad && rows->ids[i] == rows->table->pad_id) {
            claim.padded++;
            continue;
        }
        ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        size_t first = ps_rows_first(row, push, rows->ids, i);
        firsts[i] = (uint32_t)first;
        claim.repeated += first != i;
        ps_store_begin_change(row, push->serial + (uint32_t)first);
        if (row->state == PS_ROW_ABSENT) {
            ps_row_begin(rows->table, rows->scratch, row);
            ps_store_mark_new(rows->store, row);
            claim.created++;
        }
    }
    *claim_out = claim;
}

/* kind and plain are constants after inlining. plain: float32, no options, no pad row. */
PSC_INLINE void apply_rows(const ps_rows_t *rows, const ps_rows_push_t *push,
                           ps_row_change_t *change, psp_push_kind_t kind, bool plain)
{
    const ps_table_t *table = rows->table;
    uint8_t *base = ps_store_base(rows->store);
    const size_t dim = table->dim;
    const size_t n_lines = ps_rows_lines(
        table, table->weight_bytes + (kind == PSP_PUSH_GRADIENT ? table->state_bytes : 0));
    const bool pad = !plain && leaves_pad(rows, push);
    for (size_t i = 0; i < rows->n; i++) {
        if (i + PS_ROWS_AHEAD < rows->n)
            ps_fetch_record(base, rows->places[i + PS_ROWS_AHEAD], n_lines, true);
        if (pad && rows->ids[i] == table->pad_id)
            continue;
        ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        float *weights = ps_row_floats(row);
        const float *values =
            push->row_values != NULL ? push->row_values[i] : push->values + i * dim;
        if (!plain) {
            ps_row_change_apply(change, row, values);
        } else if (kind == PSP_PUSH_GRADIENT) {
            ps_row_change_step(change, row->update_count);
            table->optim->update(weights, weights + dim, values, dim, &change->step);
        } else if (kind == PSP_PUSH_DELTA) {
            psc_vector_add(weights, values, dim);
        } else {
            memcpy(weights, values, dim * sizeof *weights);
        }
        if (kind == PSP_PUSH_GRADIENT)
            row->update_count++;
        row->version++;
        row->last_clock = push->clock;
        ps_store_mark_dirty(row);
    }
}

void ps_rows_apply(const ps_rows_t *rows, const ps_rows_push_t *push)
{
    ps_row_change_t change;
    ps_row_change_prepare(&change, rows->table, push->kind, push->learning_rate, push->step,
                          rows->scratch);
    if (!ps_row_change_plain(rows->table) || leaves_pad(rows, push))
        apply_rows(rows, push, &change, push->kind, false);
    else if (push->kind == PSP_PUSH_GRADIENT)
        apply_rows(rows, push, &change, PSP_PUSH_GRADIENT, true);
    else if (push->kind == PSP_PUSH_DELTA)
        apply_rows(rows, push, &change, PSP_PUSH_DELTA, true);
    else
        apply_rows(rows, push, &change, PSP_PUSH_ASSIGN, true);
}
