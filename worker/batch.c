/*
 * Distinct ids by an open-addressing table that is never cleared.
 *
 * For a fixed table psc_row_hash is a bijection of the id, so two ids are equal exactly when their
 * hashes are, and a probe compares hashes alone. A table entry counts only while it carries the
 * stamp of the present call; the stamp grows by one a call, and the table is cleared only when the
 * stamp wraps or the table grows. At most half of the entries are used. Occurrences of an id are
 * chained in input order (next), so that sums are made in that order whatever the table looks like.
 * Cost: one hash and about 1.5 probes an id; no allocation once the arrays have reached the size of
 * the largest call. One thread at a time.
 */
#include "worker/batch.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/vectors.h"

#include <string.h>

typedef struct entry {
    uint32_t stamp;
    uint32_t distinct;
} entry_t;

/* Rows lie at any address within a message. */
typedef float __attribute__((aligned(1), may_alias)) loose_float_t;

struct psw_batch {
    size_t capacity; /* ids that the arrays hold */
    uint32_t *first;
    uint32_t *last;
    uint32_t *next;
    uint32_t *duplicates; /* 2 * capacity */
    uint64_t *hashes;
    entry_t *entries;
    uint32_t entry_bits;
    uint32_t stamp;
};

psc_status_t psw_batch_create(psw_batch_t **batch_out, psc_error_t *error)
{
    psw_batch_t *batch = psc_alloc_zeroed(1, sizeof *batch);
    if (batch == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a client's batch");
    *batch_out = batch;
    return PSC_OK;
}

void psw_batch_destroy(psw_batch_t *batch)
{
    if (batch == NULL)
        return;
    psc_free(batch->first);
    psc_free(batch->last);
    psc_free(batch->next);
    psc_free(batch->duplicates);
    psc_free(batch->hashes);
    psc_free(batch->entries);
    psc_free(batch);
}

static bool grow_u32(uint32_t **array, size_t count)
{
    uint32_t *grown = psc_realloc_array(*array, count, sizeof **array);
    if (grown != NULL)
        *array = grown;
    return grown != NULL;
}

static psc_status_t reserve(psw_batch_t *batch, size_t n, psc_error_t *error)
{
    if (n <= batch->capacity)
        return PSC_OK;
    if (n > PSW_BATCH_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%zu ids in one call; at most %zu", n,
                             PSW_BATCH_MAX);
    size_t capacity = 256;
    uint32_t bits = 9;
    for (; capacity < n; capacity *= 2)
        bits++;
    uint64_t *hashes = psc_realloc_array(batch->hashes, capacity, sizeof *hashes);
    if (hashes != NULL)
        batch->hashes = hashes;
    if (hashes == NULL || !grow_u32(&batch->first, capacity) || !grow_u32(&batch->last, capacity) ||
        !grow_u32(&batch->next, capacity) || !grow_u32(&batch->duplicates, 2 * capacity))
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a batch of %zu ids", n);
    entry_t *entries = psc_alloc_zeroed((size_t)1 << bits, sizeof *entries);
    if (entries == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a batch of %zu ids", n);
    psc_free(batch->entries);
    batch->entries = entries;
    batch->entry_bits = bits;
    batch->stamp = 0;
    batch->capacity = capacity;
    return PSC_OK;
}

static void next_stamp(psw_batch_t *batch)
{
    if (++batch->stamp == 0) {
        memset(batch->entries, 0, ((size_t)1 << batch->entry_bits) * sizeof *batch->entries);
        batch->stamp = 1;
    }
}

psc_status_t psw_batch_dedupe(psw_batch_t *batch, uint32_t table, const uint64_t *ids, size_t n,
                              psw_distinct_t *distinct_out, psc_error_t *error)
{
    psc_status_t st = reserve(batch, n, error);
    if (st != PSC_OK)
        return st;
    memset(distinct_out, 0, sizeof *distinct_out);
    if (n == 0)
        return PSC_OK;
    next_stamp(batch);
    entry_t *entries = batch->entries;
    const uint32_t shift = 64 - batch->entry_bits;
    const size_t mask = ((size_t)1 << batch->entry_bits) - 1;
    const uint32_t stamp = batch->stamp;
    size_t n_distinct = 0;
    size_t n_duplicates = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = psc_row_hash(table, ids[i]);
        size_t at = (size_t)(hash >> shift);
        while (entries[at].stamp == stamp && batch->hashes[entries[at].distinct] != hash)
            at = (at + 1) & mask;
        batch->next[i] = PSW_BATCH_NONE;
        if (entries[at].stamp == stamp) {
            uint32_t u = entries[at].distinct;
            batch->next[batch->last[u]] = (uint32_t)i;
            batch->last[u] = (uint32_t)i;
            batch->duplicates[2 * n_duplicates] = (uint32_t)i;
            batch->duplicates[2 * n_duplicates + 1] = batch->first[u];
            n_duplicates++;
        } else {
            entries[at] = (entry_t){.stamp = stamp, .distinct = (uint32_t)n_distinct};
            batch->hashes[n_distinct] = hash;
            batch->first[n_distinct] = (uint32_t)i;
            batch->last[n_distinct] = (uint32_t)i;
            n_distinct++;
        }
    }
    *distinct_out = (psw_distinct_t){.n = n_distinct,
                                     .first = batch->first,
                                     .hashes = batch->hashes,
                                     .next = n_duplicates != 0 ? batch->next : NULL,
                                     .n_duplicates = n_duplicates,
                                     .duplicates = batch->duplicates};
    return PSC_OK;
}

psc_status_t psw_batch_hash(psw_batch_t *batch, uint32_t table, const uint64_t *ids, size_t n,
                            psw_distinct_t *distinct_out, psc_error_t *error)
{
    psc_status_t st = reserve(batch, n, error);
    if (st != PSC_OK)
        return st;
    for (size_t i = 0; i < n; i++)
        batch->hashes[i] = psc_row_hash(table, ids[i]);
    *distinct_out = (psw_distinct_t){.n = n, .hashes = batch->hashes};
    return PSC_OK;
}

static void add_row(loose_float_t *restrict out, const float *restrict row, size_t dim)
{
    size_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        for (size_t k = 0; k < 16; k++)
            out[i + k] += row[i + k];
    }
    for (; i < dim; i++)
        out[i] += row[i];
}

void psw_batch_sum_row(const float *rows, size_t dim, const uint32_t *next, uint32_t first,
                       uint8_t *out)
{
    memcpy(out, rows + (size_t)first * dim, dim * sizeof *rows);
    if (next == NULL)
        return;
    for (uint32_t i = next[first]; i != PSW_BATCH_NONE; i = next[i])
        add_row((loose_float_t *)out, rows + (size_t)i * dim, dim);
}

uint32_t psw_batch_last(const uint32_t *next, uint32_t first)
{
    if (next == NULL)
        return first;
    uint32_t i = first;
    while (next[i] != PSW_BATCH_NONE)
        i = next[i];
    return i;
}

static uint32_t not_finite(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & UINT32_C(0x7f800000)) == UINT32_C(0x7f800000);
}

size_t psw_batch_find_not_finite(const float *values, size_t n)
{
    size_t i = 0;
    if (psc_vector_all_finite(values, n))
        return n;
    while (i < n && !not_finite(values[i]))
        i++;
    return i;
}
