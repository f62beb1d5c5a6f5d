/*
 * One row: weights behind the header, the optimizer's state behind the weights.
 *
 * Threads: the owner's.
 */
#include "ps/table/row_values.h"

#include "common/alloc.h"

#include <string.h>

psc_status_t ps_row_scratch_reserve(ps_row_scratch_t *scratch, const ps_table_t *table,
                                    psc_error_t *error)
{
    if (table->dim <= scratch->dim)
        return PSC_OK;
    float *weights = psc_alloc_aligned(table->dim * sizeof *weights);
    if (weights == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a table");
    ps_row_scratch_clear(scratch);
    scratch->dim = table->dim;
    scratch->weights = weights;
    return PSC_OK;
}

void ps_row_scratch_clear(ps_row_scratch_t *scratch)
{
    psc_free(scratch->weights);
    *scratch = (ps_row_scratch_t){0};
}

void ps_row_read(const ps_table_t *table, const ps_row_header_t *row, void *weights_out)
{
    memcpy(weights_out, row + 1, table->dim * sizeof(float));
}

void ps_row_read_initial(const ps_table_t *table, uint64_t id, ps_row_scratch_t *scratch,
                         void *weights_out)
{
    table->init->fill(scratch->weights, table->dim, table->seed, table->number, id,
                      table->init_params);
    memcpy(weights_out, scratch->weights, table->dim * sizeof(float));
}

void ps_row_begin(const ps_table_t *table, ps_row_scratch_t *scratch, ps_row_header_t *row)
{
    (void)scratch;
    float *weights = ps_row_floats(row);
    table->init->fill(weights, table->dim, table->seed, table->number, row->id, table->init_params);
    table->optim->init_state(weights + table->dim, table->dim, table->optim_params);
}
