/*
 * One row: weights behind the header, the optimizer's state behind the weights.
 *
 * Values are written the same way whether a row is created or only read before it exists: the
 * initialiser's floats, rounded to the nearest that the table can store. So a pull of an unseen row
 * shows what the first push will find. Scratch is one block, made when a table is opened, so that
 * nothing is allocated while rows are worked on. Threads: the owner's.
 */
#include "ps/table/row_values.h"

#include "common/alloc.h"
#include "ps/table/precision.h"

#include <string.h>

/* Floats rounded up to whole cache lines. */
static size_t whole_lines(size_t n)
{
    return (n + 15) / 16 * 16;
}

psc_status_t ps_row_scratch_reserve(ps_row_scratch_t *scratch, const ps_table_t *table,
                                    psc_error_t *error)
{
    if (table->dim <= scratch->dim && table->state_floats <= scratch->state_floats)
        return PSC_OK;
    size_t dim = table->dim > scratch->dim ? table->dim : scratch->dim;
    size_t k =
        table->state_floats > scratch->state_floats ? table->state_floats : scratch->state_floats;
    size_t n_random = (dim + k) / 2 + 8; /* words, a block more than whole ones need */
    size_t n = 2 * whole_lines(dim) + whole_lines(k) + n_random;
    float *block = psc_alloc_aligned(n * sizeof *block);
    if (block == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a table");
    ps_row_scratch_clear(scratch);
    scratch->dim = dim;
    scratch->state_floats = k;
    scratch->weights = block;
    scratch->grad = block + whole_lines(dim);
    scratch->state = scratch->grad + whole_lines(dim);
    scratch->random = (uint32_t *)(void *)(scratch->state + whole_lines(k));
    return PSC_OK;
}

void ps_row_scratch_clear(ps_row_scratch_t *scratch)
{
    psc_free(scratch->weights);
    *scratch = (ps_row_scratch_t){0};
}

void ps_row_read(const ps_table_t *table, const ps_row_header_t *row, void *weights_out)
{
    ps_precision_of(table->precision)->decode(weights_out, row + 1, table->dim);
}

static void fill(const ps_table_t *table, uint64_t id, float *weights)
{
    if (table->has_pad && id == table->pad_id)
        memset(weights, 0, table->dim * sizeof *weights);
    else
        table->init->fill(weights, table->dim, table->seed, table->number, id, table->init_params);
}

const float *ps_row_initial(const ps_table_t *table, uint64_t id, ps_row_scratch_t *scratch)
{
    fill(table, id, scratch->weights);
    if (table->precision != PSP_F32) {
        const ps_precision_t *precision = ps_precision_of(table->precision);
        precision->encode(scratch->grad, scratch->weights, table->dim);
        precision->decode(scratch->weights, scratch->grad, table->dim);
    }
    return scratch->weights;
}

void ps_row_begin(const ps_table_t *table, ps_row_scratch_t *scratch, ps_row_header_t *row)
{
    uint8_t *stored = (uint8_t *)(row + 1);
    uint8_t *stored_state = stored + table->weight_bytes;
    if (table->precision == PSP_F32) {
        fill(table, row->id, ps_row_floats(row));
    } else {
        /* The padding too, so that a record's bytes say nothing of what was there before. */
        memset(stored_state - sizeof(float), 0, sizeof(float));
        fill(table, row->id, scratch->weights);
        ps_precision_of(table->precision)->encode(stored, scratch->weights, table->dim);
    }
    if (table->state_precision == PSP_F32) {
        table->optim->init_state((float *)(void *)stored_state, table->dim, table->optim_params);
    } else {
        size_t m = table->optim->moment_floats(table->dim);
        memset(stored_state, 0, table->state_bytes);
        table->optim->init_state(scratch->state, table->dim, table->optim_params);
        ps_precision_of(table->state_precision)->encode(stored_state, scratch->state, m);
        ps_row_write_sums(table, scratch->state, m, stored_state);
    }
}

/* Where the float32 part of a state begins. */
static size_t sums_at(size_t m)
{
    return (2 * m + 3) / 4 * 4;
}

void ps_row_read_state(const ps_table_t *table, const uint8_t *stored, size_t m, float *state_out)
{
    ps_precision_of(table->state_precision)->decode(state_out, stored, m);
    memcpy(state_out + m, stored + sums_at(m), (table->state_floats - m) * sizeof(float));
}

void ps_row_write_sums(const ps_table_t *table, const float *state, size_t m, uint8_t *stored_out)
{
    memcpy(stored_out + sums_at(m), state + m, (table->state_floats - m) * sizeof(float));
}

void ps_row_copy_state(const ps_table_t *table, const ps_row_header_t *row,
                       ps_row_scratch_t *scratch, void *out)
{
    const uint8_t *stored = (const uint8_t *)(row + 1) + table->weight_bytes;
    const size_t bytes = table->state_floats * sizeof(float);
    if (table->state_precision == PSP_F32) {
        memcpy(out, stored, bytes);
        return;
    }
    ps_row_read_state(table, stored, table->optim->moment_floats(table->dim), scratch->state);
    memcpy(out, scratch->state, bytes);
}

void ps_row_set_state(const ps_table_t *table, ps_row_header_t *row, ps_row_scratch_t *scratch,
                      const void *state)
{
    uint8_t *stored = (uint8_t *)(row + 1) + table->weight_bytes;
    const size_t bytes = table->state_floats * sizeof(float);
    if (table->state_precision == PSP_F32) {
        memcpy(stored, state, bytes);
        return;
    }
    const size_t m = table->optim->moment_floats(table->dim);
    memcpy(scratch->state, state, bytes);
    ps_precision_of(table->state_precision)->encode(stored, scratch->state, m);
    ps_row_write_sums(table, scratch->state, m, stored);
}
