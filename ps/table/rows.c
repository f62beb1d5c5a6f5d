/*
 * The loops that look at rows and change nothing: ids out of a message, values that are not finite,
 * which rows are there, and the gather of their weights into a reply.
 *
 * Rows lie anywhere in a region far larger than the caches, so every loop fetches ahead: 16 headers
 * where a header is all it reads, 8 rows where it reads weights (ps/store/fetch.h). Which loop
 * gathers is chosen once a pull, so that the usual one, of rows that are all there, decides nothing
 * per row. Other formats than float32 are encoded from the record into the reply, with no copy
 * between; only rows of 16 bits that are asked for in yet another format go through the scratch.
 * Cost: one cache line a row to inspect it, its weights to gather it. Threads: the owner's.
 */
#include "ps/table/rows.h"

#include "common/vectors.h"
#include "ps/store/fetch.h"
#include "ps/table/row_values.h"

#include <string.h>

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

size_t ps_rows_find_nonfinite_coded(const uint8_t *rows, psp_format_t format, size_t n,
                                    uint32_t dim)
{
    const psp_row_format_t *coder = psp_row_format(format);
    size_t bytes = psp_row_bytes(format, dim);
    size_t i = 0;
    while (i < n && coder->all_finite(rows + i * bytes, dim))
        i++;
    return i;
}

size_t ps_rows_inspect(const ps_rows_t *rows, uint8_t *states, uint32_t *versions)
{
    uint8_t *base = ps_store_base(rows->store);
    size_t absent = 0;
    for (size_t i = 0; i < rows->n; i++) {
        if (i + PS_HEADERS_AHEAD < rows->n)
            __builtin_prefetch(ps_store_row(base, rows->places[i + PS_HEADERS_AHEAD]));
        const ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        bool present = rows->places[i] != 0 && row->state == PS_ROW_PRESENT;
        states[i] = present ? PSP_ROW_PRESENT : PSP_ROW_INITIAL;
        absent += !present;
        if (versions != NULL)
            versions[i] = present ? row->version : 0;
    }
    return absent;
}

/* Rows that are all there; plain: stored as they go over the wire. */
static inline void gather_present(const ps_rows_t *rows, uint8_t *out, bool plain)
{
    const ps_table_t *table = rows->table;
    uint8_t *base = ps_store_base(rows->store);
    size_t bytes = table->dim * sizeof(float);
    size_t n_lines = ps_rows_lines(table, table->weight_bytes);
    for (size_t i = 0; i < rows->n; i++) {
        if (i + PS_ROWS_AHEAD < rows->n)
            ps_fetch_record(base, rows->places[i + PS_ROWS_AHEAD], n_lines, false);
        const ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        if (plain)
            memcpy(out + i * bytes, row + 1, bytes);
        else
            ps_row_read(table, row, out + i * bytes);
    }
}

static void gather_mixed(const ps_rows_t *rows, const uint8_t *states, uint8_t *out)
{
    const ps_table_t *table = rows->table;
    uint8_t *base = ps_store_base(rows->store);
    size_t bytes = table->dim * sizeof(float);
    size_t n_lines = ps_rows_lines(table, table->weight_bytes);
    for (size_t i = 0; i < rows->n; i++) {
        if (i + PS_ROWS_AHEAD < rows->n)
            ps_fetch_record(base, rows->places[i + PS_ROWS_AHEAD], n_lines, false);
        if (states[i] == PSP_ROW_PRESENT)
            ps_row_read(table, ps_store_row(base, rows->places[i]), out + i * bytes);
        else
            memcpy(out + i * bytes, ps_row_initial(table, rows->ids[i], rows->scratch), bytes);
    }
}

/* Whether rows are stored as they go over the wire in a format that is not float32. */
static bool stored_so(const ps_table_t *table, psp_format_t format)
{
    return (table->precision == PSP_BF16 && format == PSP_FORMAT_BF16) ||
           (table->precision == PSP_F16 && format == PSP_FORMAT_F16);
}

/* Any rows, in a format other than float32. */
static void gather_coded(const ps_rows_t *rows, const uint8_t *states, psp_format_t format,
                         uint8_t *out)
{
    const ps_table_t *table = rows->table;
    const psp_row_format_t *coder = psp_row_format(format);
    uint8_t *base = ps_store_base(rows->store);
    size_t bytes = psp_row_bytes(format, table->dim);
    size_t n_lines = ps_rows_lines(table, table->weight_bytes);
    bool same = stored_so(table, format);
    for (size_t i = 0; i < rows->n; i++) {
        if (i + PS_ROWS_AHEAD < rows->n)
            ps_fetch_record(base, rows->places[i + PS_ROWS_AHEAD], n_lines, false);
        ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        const float *weights = rows->scratch->weights;
        if (states != NULL && states[i] != PSP_ROW_PRESENT) {
            weights = ps_row_initial(table, rows->ids[i], rows->scratch);
        } else if (same) {
            memcpy(out + i * bytes, row + 1, bytes);
            continue;
        } else if (table->precision == PSP_F32) {
            weights = ps_row_floats(row);
        } else {
            ps_row_read(table, row, rows->scratch->weights);
        }
        coder->encode(out + i * bytes, weights, table->dim);
    }
}

void ps_rows_gather(const ps_rows_t *rows, const uint8_t *states, psp_format_t format, uint8_t *out)
{
    if (format != PSP_FORMAT_F32)
        gather_coded(rows, states, format, out);
    else if (states != NULL)
        gather_mixed(rows, states, out);
    else if (rows->table->precision == PSP_F32)
        gather_present(rows, out, true);
    else
        gather_present(rows, out, false);
}
