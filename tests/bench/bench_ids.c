/*
 * Sequences of rows for benchmarks.
 *
 * Zipf's law (exponent 1) is drawn by rejection from its continuous form (Hoermann and Derflinger
 * 1996, "Rejection-inversion to generate variates from monotone discrete distributions"): exact,
 * and without tables, so that it does for tables far larger than memory. Ranks are given to rows by
 * multiplication modulo their number, so that frequent rows lie apart.
 * With shift_at the rank is moved on by a random number from time to time: what is asked for keeps
 * its distribution within a batch, duplicates included, but no row stays frequent, so that nothing
 * is worth keeping in memory.
 *
 * Everything is drawn before anything is timed, from SplitMix64 at a counter: same seed, same ids.
 */
#include "tests/bench/bench_ids.h"

#include "common/alloc.h"
#include "common/rng.h"
#include "common/slots.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static psc_status_t no_memory(size_t n, psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a sequence of %zu ids", n);
}

static psc_status_t reserve(size_t n, bench_ids_t *ids_out, psc_error_t *error)
{
    *ids_out = (bench_ids_t){.n = n,
                             .rows = psc_alloc_array(n, sizeof(uint32_t)),
                             .ids = psc_alloc_array(n, sizeof(uint64_t))};
    if (ids_out->rows != NULL && ids_out->ids != NULL)
        return PSC_OK;
    bench_ids_clear(ids_out);
    return no_memory(n, error);
}

void bench_ids_clear(bench_ids_t *ids)
{
    psc_free(ids->rows);
    psc_free(ids->ids);
    *ids = (bench_ids_t){0};
}

/* What drawing by Zipf's law needs to know, and the stream it draws from. */
typedef struct zipf {
    double first, last; /* ln(1.5) - 1 and ln(n + 0.5) */
    double sure;        /* what is no further above x than this is accepted at once */
    size_t n;
    uint64_t key, at;
} zipf_t;

static zipf_t start_zipf(size_t n, uint64_t key)
{
    return (zipf_t){.first = log(1.5) - 1,
                    .last = log((double)n + 0.5),
                    .sure = 2 - exp(log(2.5) - 0.5),
                    .n = n,
                    .key = key};
}

/* A rank from 0; k comes with a probability proportional to 1 / (k + 1). */
static size_t draw_rank(zipf_t *zipf)
{
    for (;;) {
        double unit = (double)(psc_rng_at(zipf->key, zipf->at++) >> 11) * 0x1p-53;
        double u = zipf->last + unit * (zipf->first - zipf->last);
        double x = exp(u), k = floor(x + 0.5);
        k = fmin(fmax(k, 1), (double)zipf->n);
        if (k - x <= zipf->sure || u >= log(k + 0.5) - 1 / k)
            return (size_t)k - 1;
    }
}

static size_t common_divisor(size_t a, size_t b)
{
    while (b != 0) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* rank * this mod n is a different row for every rank, and neighbours come to lie far apart. */
static size_t choose_stride(size_t n)
{
    size_t stride = (size_t)((double)n * 0.6180339887) | 1;
    while (common_divisor(stride, n) != 1)
        stride += 2;
    return stride;
}

psc_status_t bench_ids_draw(const bench_draw_t *draw, bench_ids_t *ids_out, psc_error_t *error)
{
    size_t n_rows = draw->n_rows, stride = choose_stride(n_rows);
    psc_status_t st = reserve(draw->n_ids, ids_out, error);
    if (st != PSC_OK)
        return st;
    uint64_t even = psc_rng_stream(draw->seed, 1, 0), shifts = psc_rng_stream(draw->seed, 2, 0);
    zipf_t zipf = start_zipf(n_rows, psc_rng_stream(draw->seed, 3, 0));
    for (size_t i = 0; i < draw->n_ids; i++) {
        size_t row;
        if (draw->zipf) {
            size_t rank = draw_rank(&zipf);
            if (draw->shift_at != 0)
                rank = (rank + (size_t)(psc_rng_at(shifts, i / draw->shift_at) % n_rows)) % n_rows;
            row = rank * stride % n_rows;
        } else {
            row = (size_t)(psc_rng_at(even, i) % n_rows);
        }
        ids_out->rows[i] = (uint32_t)row;
        ids_out->ids[i] = bench_row_id(row);
    }
    return PSC_OK;
}

psc_status_t bench_ids_read(const char *path, size_t n_rows, bench_ids_t *ids_out,
                            psc_error_t *error)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        if (file != NULL)
            (void)fclose(file);
        return psc_error_set(error, PSC_IO, "cannot read %.200s", path);
    }
    long bytes = ftell(file);
    size_t n = bytes > 0 ? (size_t)bytes / sizeof(uint64_t) : 0;
    rewind(file);
    psc_status_t st = reserve(n, ids_out, error);
    if (st == PSC_OK && fread(ids_out->ids, sizeof(uint64_t), n, file) != n)
        st = psc_error_set(error, PSC_IO, "cannot read %.200s", path);
    (void)fclose(file);
    for (size_t i = 0; st == PSC_OK && i < n; i++) {
        if (ids_out->ids[i] >= n_rows)
            st = psc_error_set(error, PSC_INVALID_ARGUMENT, "%.200s: row %llu of %zu", path,
                               (unsigned long long)ids_out->ids[i], n_rows);
        ids_out->rows[i] = (uint32_t)ids_out->ids[i];
        ids_out->ids[i] = bench_row_id(ids_out->rows[i]);
    }
    if (st != PSC_OK)
        bench_ids_clear(ids_out);
    return st;
}

/* ---- keys ---- */

typedef struct sort_entry {
    uint64_t id;
    uint32_t slot, at;
} sort_entry_t;

static int compare(const void *left, const void *right)
{
    const sort_entry_t *a = left, *b = right;
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

psc_status_t bench_keys_sort(const bench_ids_t *ids, size_t batch, uint16_t table,
                             bench_keys_t *keys_out, psc_error_t *error)
{
    size_t n_batches = ids->n / batch;
    sort_entry_t *entries = psc_alloc_array(batch, sizeof *entries);
    *keys_out = (bench_keys_t){.n_batches = n_batches,
                               .first = psc_alloc_array(n_batches + 1, sizeof(size_t)),
                               .bytes = psc_alloc_array(n_batches * batch, PS_COLD_KEY_BYTES),
                               .of_id = psc_alloc_array(n_batches * batch, sizeof(uint32_t))};
    if (entries == NULL || keys_out->first == NULL || keys_out->bytes == NULL ||
        keys_out->of_id == NULL) {
        psc_free(entries);
        bench_keys_clear(keys_out);
        return no_memory(ids->n, error);
    }
    size_t n_keys = 0;
    for (size_t b = 0; b < n_batches; b++) {
        keys_out->first[b] = n_keys;
        for (size_t i = 0; i < batch; i++) {
            uint64_t id = ids->ids[b * batch + i];
            entries[i] = (sort_entry_t){
                .id = id, .slot = psc_slot_of_hash(psc_row_hash(table, id)), .at = (uint32_t)i};
        }
        qsort(entries, batch, sizeof *entries, compare);
        for (size_t i = 0; i < batch; i++) {
            if (i == 0 || entries[i].id != entries[i - 1].id)
                ps_cold_key(keys_out->bytes + PS_COLD_KEY_BYTES * n_keys++, table, entries[i].slot,
                            entries[i].id);
            keys_out->of_id[b * batch + entries[i].at] =
                (uint32_t)(n_keys - 1 - keys_out->first[b]);
        }
    }
    keys_out->first[n_batches] = n_keys;
    psc_free(entries);
    return PSC_OK;
}

void bench_keys_clear(bench_keys_t *keys)
{
    psc_free(keys->first);
    psc_free(keys->bytes);
    psc_free(keys->of_id);
    *keys = (bench_keys_t){0};
}
