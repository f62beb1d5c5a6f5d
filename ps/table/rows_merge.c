/*
 * Duplicates of a push: the same push with distinct ids.
 *
 * An optimizer has to see each row once, with the sum of its gradients. Clients sum before they
 * send, so this is for foreign ones, but those may send what a batch of tokens is: a third of it
 * duplicates. Floats are added one by one in the order of the message, whatever the vector width.
 * Which rows are duplicates of which, ps_rows_claim has found. Values of a row that occurs once
 * stay in the message; the first that comes again is copied, and the others are added to the copy.
 * Cost: the values of duplicates. Threads: the owner's.
 */
#include "ps/table/rows.h"

#include "common/alloc.h"
#include "common/vectors.h"

#include <string.h>

psc_status_t ps_rows_reserve_firsts(ps_rows_merge_space_t *space, size_t n, psc_error_t *error)
{
    if (n <= space->n)
        return PSC_OK;
    psc_free(space->firsts);
    space->n = 0;
    space->firsts = psc_alloc_array(n, sizeof *space->firsts);
    if (space->firsts == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a push of %zu rows", n);
    space->n = n;
    return PSC_OK;
}

static psc_status_t grow(ps_rows_merge_space_t *space, size_t n, size_t n_floats,
                         psc_error_t *error)
{
    if (n <= space->n_merged && n_floats <= space->n_floats)
        return PSC_OK;
    psc_free(space->ids);
    psc_free(space->places);
    psc_free(space->row_values);
    psc_free(space->merged);
    psc_free(space->sums);
    space->n_merged = space->n_floats = 0;
    space->ids = psc_alloc_array(n, sizeof *space->ids);
    space->places = psc_alloc_array(n, sizeof *space->places);
    space->row_values = psc_alloc_array(n, sizeof *space->row_values);
    space->merged = psc_alloc_array(n, sizeof *space->merged);
    space->sums = psc_alloc_array(n_floats, sizeof *space->sums);
    if (space->ids == NULL || space->places == NULL || space->row_values == NULL ||
        space->merged == NULL || space->sums == NULL)
        return psc_error_set(error, PSC_NO_MEMORY,
                             "out of memory for a push of %zu rows with duplicates", n);
    space->n_merged = n;
    space->n_floats = n_floats;
    return PSC_OK;
}

/* Values of a row that has some already. *n_sums: rows in space->sums. */
static void add(ps_rows_merge_space_t *space, size_t row, const float *values, size_t dim,
                size_t *n_sums)
{
    const float *before = space->row_values[row];
    /* An address below the sums wraps, and is beyond them as well. */
    size_t at = (size_t)((uintptr_t)before - (uintptr_t)space->sums) / sizeof *before;
    if (at >= *n_sums * dim) {
        at = *n_sums * dim;
        memcpy(space->sums + at, before, dim * sizeof *before);
        space->row_values[row] = space->sums + at;
        ++*n_sums;
    }
    psc_vector_add(space->sums + at, values, dim);
}

psc_status_t ps_rows_merge(const ps_rows_t *rows, const ps_rows_push_t *push,
                           ps_rows_merge_space_t *space, ps_rows_t *merged_out,
                           ps_rows_push_t *merged_push_out, psc_error_t *error)
{
    size_t dim = rows->table->dim;
    psc_status_t st = grow(space, rows->n, (rows->n / 2 + 1) * dim, error);
    if (st != PSC_OK)
        return st;
    size_t n = 0;
    size_t n_sums = 0;
    for (size_t i = 0; i < rows->n; i++) {
        const float *values = push->values + i * dim;
        size_t first = space->firsts[i];
        if (first == i) {
            space->places[n] = rows->places[i];
            space->ids[n] = rows->ids[i];
            space->row_values[n] = values;
            space->merged[i] = (uint32_t)n++;
        } else if (first == PS_ROWS_NONE) {
            continue;
        } else if (push->kind == PSP_PUSH_ASSIGN) {
            space->row_values[space->merged[first]] = values;
        } else {
            add(space, space->merged[first], values, dim, &n_sums);
        }
    }
    *merged_out = (ps_rows_t){.table = rows->table,
                              .store = rows->store,
                              .scratch = rows->scratch,
                              .n = n,
                              .ids = space->ids,
                              .places = space->places};
    *merged_push_out = *push;
    merged_push_out->values = NULL;
    merged_push_out->row_values = space->row_values;
    return PSC_OK;
}

void ps_rows_merge_space_clear(ps_rows_merge_space_t *space)
{
    psc_free(space->firsts);
    psc_free(space->ids);
    psc_free(space->places);
    psc_free(space->row_values);
    psc_free(space->merged);
    psc_free(space->sums);
    *space = (ps_rows_merge_space_t){0};
}
