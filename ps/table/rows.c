/*
 * Gather, apply, and what they need: exact, in order, and fast for rows that are not in the caches.
 *
 * A push of distinct ids makes two passes. The first touches every header (fetched 16 rows ahead),
 * gives absent rows a value and finds duplicates: a row that already carries the serial number of
 * this push was seen in it. The second applies the values, with whole rows fetched 8 ahead. With
 * duplicates the values are first summed into a copy with distinct ids, so that an optimizer sees
 * each row once; the client sums before it sends, so this path is for foreign clients and is exact
 * rather than fast. Floats are added one by one in the order of the message, whatever the vector
 * width. A serial number comes round after 2^32 pushes: a row last touched exactly then looks like
 * a duplicate and only costs the slower path. Cost: one cache line a row in the first pass, the row
 * in the second. Threads: the owner's.
 */
#include "ps/table/rows.h"

#include "common/alloc.h"
#include "common/vectors.h"

#include <string.h>

#define HEADERS_AHEAD 16u
#define ROWS_AHEAD 8u
#define LINE 64u
#define LINES_AHEAD 32u /* of one row; the processor's own prefetcher goes on from there */

size_t ps_rows_locate(const uint8_t *id_bytes, size_t n, uint16_t table, const psc_slot_map_t *map,
                      uint32_t rank, uint64_t *ids, uint64_t *hashes)
{
    memcpy(ids, id_bytes, n * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        hashes[i] = psc_row_hash(table, ids[i]);
    if (map->n_servers == 1)
        return n;
    for (size_t i = 0; i < n; i++) {
        if (psc_slot_owner(map, hashes[i]) != rank)
            return i;
    }
    return n;
}

size_t ps_rows_find_nonfinite(const float *values, size_t n, uint32_t dim)
{
    if (psc_vector_all_finite(values, n * dim))
        return n;
    for (size_t i = 0; i < n; i++) {
        if (!psc_vector_all_finite(values + i * dim, dim))
            return i;
    }
    return n;
}

static inline void fetch_row(const uint8_t *base, ps_place_t place, size_t bytes)
{
    const uint8_t *record = base + (size_t)place * LINE;
    for (size_t line = 0; line < bytes && line < LINES_AHEAD * LINE; line += LINE)
        __builtin_prefetch(record + line, 1);
}

static size_t record_bytes(const ps_rows_t *rows, bool with_state)
{
    size_t floats = (size_t)rows->table->dim + (with_state ? rows->table->state_floats : 0);
    return sizeof(ps_row_header_t) + floats * sizeof(float);
}

size_t ps_rows_inspect(const ps_rows_t *rows, uint8_t *states, uint32_t *versions)
{
    uint8_t *base = ps_store_base(rows->store);
    size_t absent = 0;
    for (size_t i = 0; i < rows->n; i++) {
        if (i + HEADERS_AHEAD < rows->n)
            __builtin_prefetch(ps_store_row(base, rows->places[i + HEADERS_AHEAD]));
        const ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        bool present = rows->places[i] != 0 && row->state == PS_ROW_PRESENT;
        states[i] = present ? PSP_ROW_PRESENT : PSP_ROW_INITIAL;
        absent += !present;
        if (versions != NULL)
            versions[i] = present ? row->version : 0;
    }
    return absent;
}

void ps_rows_gather(const ps_rows_t *rows, const uint8_t *states, uint8_t *out, float *one_row)
{
    const ps_table_t *table = rows->table;
    uint8_t *base = ps_store_base(rows->store);
    size_t row_bytes = (size_t)table->dim * sizeof(float);
    size_t touched = record_bytes(rows, false);
    for (size_t i = 0; i < rows->n; i++) {
        if (i + ROWS_AHEAD < rows->n)
            fetch_row(base, rows->places[i + ROWS_AHEAD], touched);
        const float *weights = one_row;
        if (states[i] == PSP_ROW_PRESENT)
            weights = ps_row_floats(ps_store_row(base, rows->places[i]));
        else
            table->init->fill(one_row, table->dim, table->seed, table->number, rows->ids[i],
                              table->init_params);
        memcpy(out + i * row_bytes, weights, row_bytes);
    }
}

void ps_rows_begin(const ps_table_t *table, ps_row_header_t *row)
{
    float *weights = ps_row_floats(row);
    table->init->fill(weights, table->dim, table->seed, table->number, row->id, table->init_params);
    table->optim->init_state(weights + table->dim, table->dim, table->optim_params);
}

size_t ps_rows_claim(const ps_rows_t *rows, const ps_rows_push_t *push, bool *repeated_out)
{
    const ps_table_t *table = rows->table;
    uint8_t *base = ps_store_base(rows->store);
    size_t created = 0;
    bool repeated = false;
    for (size_t i = 0; i < rows->n; i++) {
        if (i + HEADERS_AHEAD < rows->n)
            __builtin_prefetch(ps_store_row(base, rows->places[i + HEADERS_AHEAD]), 1);
        ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        if (row->state == PS_ROW_ABSENT) {
            ps_rows_begin(table, row);
            ps_store_mark_new(rows->store, row);
            created++;
        } else if (row->push_seq == push->serial) {
            repeated = true;
        }
        row->push_seq = push->serial;
    }
    *repeated_out = repeated;
    return created;
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
    size_t touched = record_bytes(rows, push->kind == PSP_PUSH_GRADIENT);
    ps_optim_step_t step = {.learning_rate = push->learning_rate, .params = table->optim_params};
    prepare_step(table, &step, push->step);
    bool own_steps = table->optim->uses_step && push->step == 0;
    for (size_t i = 0; i < rows->n; i++) {
        if (i + ROWS_AHEAD < rows->n)
            fetch_row(base, rows->places[i + ROWS_AHEAD], touched);
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
