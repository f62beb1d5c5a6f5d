/*
 * The two passes of a push over its rows.
 *
 * ps_rows_claim touches every header (fetched 16 rows ahead), gives absent rows a value and finds
 * duplicates: a row that already carries the serial number of this push was seen in it. A serial
 * number comes round after 2^32 pushes: a row last touched exactly then looks like a duplicate and
 * only costs the slower path (rows_merge.c). ps_rows_apply changes the values, with whole rows
 * fetched 8 ahead. What a push and its table ask for is decided once, before the loop: the usual
 * loops, float32 rows of a table without options, are one call a row. Cost: one cache line a row
 * in the first pass, the row in the second. Threads: the owner's.
 */
#include "ps/table/rows.h"

#include "common/vectors.h"
#include "ps/table/row_values.h"
#include "ps/table/rows_fetch.h"

#include <string.h>

void ps_rows_claim(const ps_rows_t *rows, const ps_rows_push_t *push, ps_rows_claim_t *claim_out)
{
    uint8_t *base = ps_store_base(rows->store);
    ps_rows_claim_t claim = {0};
    for (size_t i = 0; i < rows->n; i++) {
        if (i + PS_HEADERS_AHEAD < rows->n)
            __builtin_prefetch(ps_store_row(base, rows->places[i + PS_HEADERS_AHEAD]), 1);
        ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        if (row->state == PS_ROW_ABSENT) {
            ps_row_begin(rows->table, rows->scratch, row);
            ps_store_mark_new(rows->store, row);
            claim.created++;
        } else if (row->push_seq == push->serial) {
            claim.repeated = true;
        }
        row->push_seq = push->serial;
    }
    *claim_out = claim;
}

/* Once per push, and again for every row whose number differs where each counts its own. */
static void prepare_step(const ps_table_t *table, ps_optim_step_t *step, uint64_t number)
{
    step->step = number;
    if (table->optim->prepare != NULL)
        table->optim->prepare(step);
}

void ps_rows_apply(const ps_rows_t *rows, const ps_rows_push_t *push)
{
    const ps_table_t *table = rows->table;
    uint8_t *base = ps_store_base(rows->store);
    size_t dim = table->dim;
    size_t touched =
        sizeof(ps_row_header_t) +
        (push->kind == PSP_PUSH_GRADIENT ? ps_table_row_bytes(table) : dim * sizeof(float));
    ps_optim_step_t step = {.learning_rate = push->learning_rate, .params = table->optim_params};
    prepare_step(table, &step, push->step);
    bool own_steps = table->optim->uses_step && push->step == 0;
    for (size_t i = 0; i < rows->n; i++) {
        if (i + PS_ROWS_AHEAD < rows->n)
            ps_row_fetch(base, rows->places[i + PS_ROWS_AHEAD], touched);
        ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        float *weights = ps_row_floats(row);
        const float *values = push->values + i * dim;
        switch (push->kind) {
        case PSP_PUSH_GRADIENT:
            if (own_steps && step.step != (uint64_t)row->update_count + 1)
                prepare_step(table, &step, (uint64_t)row->update_count + 1);
            table->optim->update(weights, weights + dim, values, dim, &step);
            row->update_count++;
            break;
        case PSP_PUSH_DELTA:
            psc_vector_add(weights, values, dim);
            break;
        case PSP_PUSH_ASSIGN:
            memcpy(weights, values, dim * sizeof *weights);
            break;
        }
        row->version++;
        row->last_clock = push->clock;
        ps_store_mark_dirty(row);
    }
}
