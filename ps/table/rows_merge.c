/*
 * Duplicates of a push: the same push with distinct ids.
 *
 * An optimizer has to see each row once, with the sum of its gradients. Clients sum before they
 * send, so this path is for foreign ones, and is exact rather than fast: floats are added one by
 * one in the order of the message, whatever the vector width. Places tell rows apart (an id of a
 * prepared batch has one); they are found in a table of twice as many buckets. Cost: a hashed
 * look-up and the values of each row. Threads: the owner's.
 */
#include "ps/table/rows.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/vectors.h"

#include <string.h>

static psc_status_t grow(ps_rows_merge_space_t *space, size_t n, size_t n_floats,
                         psc_error_t *error)
{
    if (n > space->n || n_floats > space->n_floats) {
        size_t n_buckets = 64;
        while (n_buckets < 2 * n)
            n_buckets *= 2;
        ps_rows_merge_space_clear(space);
        space->buckets = psc_alloc_array(n_buckets, sizeof *space->buckets);
        space->ids = psc_alloc_array(n, sizeof *space->ids);
        space->places = psc_alloc_array(n, sizeof *space->places);
        space->values = psc_alloc_array(n_floats, sizeof *space->values);
        if (space->buckets == NULL || space->ids == NULL || space->places == NULL ||
            space->values == NULL) {
            ps_rows_merge_space_clear(space);
            return psc_error_set(error, PSC_NO_MEMORY,
                                 "out of memory for a push of %zu rows with duplicates", n);
        }
        space->n = n;
        space->n_floats = n_floats;
    }
    return PSC_OK;
}

psc_status_t ps_rows_merge(const ps_rows_t *rows, const ps_rows_push_t *push,
                           ps_rows_merge_space_t *space, ps_rows_t *merged_out,
                           ps_rows_push_t *merged_push_out, psc_error_t *error)
{
    size_t dim = rows->table->dim;
    psc_status_t st = grow(space, rows->n, rows->n * dim, error);
    if (st != PSC_OK)
        return st;
    size_t n_buckets = 64;
    while (n_buckets < 2 * rows->n)
        n_buckets *= 2;
    memset(space->buckets, 0xff, n_buckets * sizeof *space->buckets);
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        if (rows->places[i] == 0)
            continue;
        const float *values = push->values + i * dim;
        size_t bucket = (size_t)psc_mix64(rows->places[i]) & (n_buckets - 1);
        while (space->buckets[bucket] != UINT32_MAX &&
               space->places[space->buckets[bucket]] != rows->places[i])
            bucket = (bucket + 1) & (n_buckets - 1);
        bool first = space->buckets[bucket] == UINT32_MAX;
        if (first) {
            space->buckets[bucket] = (uint32_t)n;
            space->places[n] = rows->places[i];
            space->ids[n] = rows->ids[i];
            n++;
        }
        float *merged = space->values + (size_t)space->buckets[bucket] * dim;
        if (first || push->kind == PSP_PUSH_ASSIGN)
            memcpy(merged, values, dim * sizeof *merged);
        else
            psc_vector_add(merged, values, dim);
    }
    *merged_out = (ps_rows_t){.table = rows->table,
                              .store = rows->store,
                              .scratch = rows->scratch,
                              .n = n,
                              .ids = space->ids,
                              .places = space->places};
    *merged_push_out = *push;
    merged_push_out->values = space->values;
    return PSC_OK;
}

void ps_rows_merge_space_clear(ps_rows_merge_space_t *space)
{
    psc_free(space->buckets);
    psc_free(space->ids);
    psc_free(space->places);
    psc_free(space->values);
    *space = (ps_rows_merge_space_t){0};
}
