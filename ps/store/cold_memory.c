/*
 * A cold tier in memory: for tests and the simulator. Behaves like a disk that never loses anything
 * while it is open, and fails on request.
 *
 * An open-addressing hash table over the key bytes, twice as large as needed, linear probing. A
 * record that is removed leaves its key, so that searches go on past it. A scan looks at every
 * entry and sorts: slow, and right. Called by one thread at a time, like every tier.
 */
#include "ps/store/cold.h"

#include "common/alloc.h"
#include "common/hash.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    uint8_t key[PS_COLD_KEY_BYTES];
    bool used;       /* has a key */
    uint8_t *record; /* NULL: none, or removed */
    size_t size;
} entry_t;

typedef struct memory_tier {
    ps_cold_t cold;
    ps_cold_faults_t faults;
    uint64_t n_reads, n_writes; /* calls; scans are reads */
    entry_t *entries;
    size_t n_entries; /* a power of two */
    size_t count;
} memory_tier_t;

static entry_t *find_entry(entry_t *entries, size_t n, const uint8_t *key)
{
    uint64_t low = 0, high = 0;
    memcpy(&low, key, 8);
    memcpy(&high, key + 8, PS_COLD_KEY_BYTES - 8);
    size_t at = (size_t)psc_mix64(psc_mix64(low) ^ high) & (n - 1);
    while (entries[at].used && memcmp(entries[at].key, key, PS_COLD_KEY_BYTES) != 0)
        at = (at + 1) & (n - 1);
    return &entries[at];
}

static psc_status_t memory_read(ps_cold_t *cold, ps_cold_read_t *reads, size_t n,
                                psc_error_t *error)
{
    memory_tier_t *tier = (memory_tier_t *)(void *)cold;
    if (++tier->n_reads == tier->faults.fail_read_at)
        return psc_error_set(error, PSC_IO, "read %llu of the memory tier fails, as asked for",
                             (unsigned long long)tier->n_reads);
    for (size_t i = 0; i < n; i++) {
        const entry_t *entry = find_entry(tier->entries, tier->n_entries, reads[i].key);
        reads[i].found = entry->record != NULL;
        if (!reads[i].found)
            continue;
        if (entry->size != reads[i].size)
            return psc_error_set(error, PSC_CORRUPT,
                                 "a row in the memory tier has %zu bytes instead of %zu",
                                 entry->size, reads[i].size);
        ps_cold_read_fill(&reads[i], entry->record);
    }
    return PSC_OK;
}

static bool grow(memory_tier_t *tier, size_t n_more)
{
    size_t n = tier->n_entries;
    while ((tier->count + n_more) * 2 > n)
        n *= 2;
    if (n == tier->n_entries)
        return true;
    entry_t *entries = psc_alloc_zeroed(n, sizeof *entries);
    if (entries == NULL)
        return false;
    for (size_t i = 0; i < tier->n_entries; i++)
        if (tier->entries[i].used)
            *find_entry(entries, n, tier->entries[i].key) = tier->entries[i];
    psc_free(tier->entries);
    tier->entries = entries;
    tier->n_entries = n;
    return true;
}

static psc_status_t memory_write(ps_cold_t *cold, const ps_cold_write_t *writes, size_t n,
                                 psc_error_t *error)
{
    memory_tier_t *tier = (memory_tier_t *)(void *)cold;
    tier->n_writes++;
    if (tier->n_writes - tier->faults.stall_write_at <= tier->faults.stall_more &&
        tier->faults.stall_write_at != 0)
        return psc_error_set(error, PSC_BUSY, "write %llu to the memory tier has to wait",
                             (unsigned long long)tier->n_writes);
    if (tier->faults.fail_write_at != 0 && tier->n_writes >= tier->faults.fail_write_at)
        return psc_error_set(error, PSC_DISK_FULL,
                             "write %llu to the memory tier fails, as asked for",
                             (unsigned long long)tier->n_writes);
    /* All memory first: all are written or none. */
    uint8_t **records = psc_alloc_zeroed(n, sizeof *records);
    bool ok = records != NULL && grow(tier, n);
    for (size_t i = 0; ok && i < n; i++) {
        if (writes[i].record == NULL)
            continue;
        records[i] = psc_alloc(writes[i].size);
        ok = records[i] != NULL;
    }
    for (size_t i = 0; i < n && records != NULL; i++) {
        if (!ok) {
            psc_free(records[i]);
            continue;
        }
        if (writes[i].record != NULL)
            memcpy(records[i], writes[i].record, writes[i].size);
        entry_t *entry = find_entry(tier->entries, tier->n_entries, writes[i].key);
        tier->count += !entry->used;
        entry->used = true;
        psc_free(entry->record);
        memcpy(entry->key, writes[i].key, PS_COLD_KEY_BYTES);
        entry->record = records[i];
        entry->size = writes[i].size;
    }
    psc_free(records);
    if (!ok)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory in the memory tier");
    return PSC_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const entry_t *const *x = a, *const *y = b;
    return memcmp((*x)->key, (*y)->key, PS_COLD_KEY_BYTES);
}

static psc_status_t memory_scan(ps_cold_t *cold, ps_cold_scan_t *scan, psc_error_t *error)
{
    memory_tier_t *tier = (memory_tier_t *)(void *)cold;
    if (++tier->n_reads == tier->faults.fail_read_at)
        return psc_error_set(error, PSC_IO, "read %llu of the memory tier fails, as asked for",
                             (unsigned long long)tier->n_reads);
    const entry_t **found = psc_alloc_array(tier->count + 1, sizeof *found);
    if (found == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory in the memory tier");
    size_t n = 0;
    for (size_t i = 0; i < tier->n_entries; i++) {
        const entry_t *entry = &tier->entries[i];
        if (entry->record != NULL && memcmp(entry->key, scan->from, PS_COLD_KEY_BYTES) >= 0 &&
            memcmp(entry->key, scan->to, PS_COLD_KEY_BYTES) < 0)
            found[n++] = entry;
    }
    qsort(found, n, sizeof(const entry_t *), compare_entries);
    psc_status_t st = PSC_OK;
    scan->n = n < scan->max ? n : scan->max;
    scan->end = n <= scan->max;
    for (size_t i = 0; st == PSC_OK && i < scan->n; i++) {
        if (!ps_cold_scan_fits(scan, found[i]->size))
            st =
                psc_error_set(error, PSC_CORRUPT, "a row in the memory tier has %zu bytes, not %zu",
                              found[i]->size, scan->head_bytes);
        else
            memcpy(scan->heads + i * scan->head_bytes, found[i]->record, scan->head_bytes);
    }
    psc_free(found);
    return st;
}

static psc_status_t memory_sync(ps_cold_t *cold, psc_error_t *error)
{
    (void)cold;
    (void)error;
    return PSC_OK;
}

static psc_status_t memory_save(ps_cold_t *cold, const char *folder, psc_error_t *error)
{
    (void)cold;
    return psc_error_set(error, PSC_UNSUPPORTED, "%s: the memory tier has no files", folder);
}

static void memory_destroy(ps_cold_t *cold)
{
    if (cold == NULL)
        return;
    memory_tier_t *tier = (memory_tier_t *)(void *)cold;
    for (size_t i = 0; i < tier->n_entries; i++)
        psc_free(tier->entries[i].record);
    psc_free(tier->entries);
    psc_free(tier);
}

static const ps_cold_ops_t memory_ops = {
    .name = "memory",
    .read = memory_read,
    .write = memory_write,
    .scan = memory_scan,
    .sync = memory_sync,
    .save = memory_save,
    .destroy = memory_destroy,
};

psc_status_t ps_cold_memory_create(const ps_cold_faults_t *faults, ps_cold_t **cold_out,
                                   psc_error_t *error)
{
    memory_tier_t *tier = psc_alloc_zeroed(1, sizeof *tier);
    if (tier != NULL) {
        tier->n_entries = 64;
        tier->entries = psc_alloc_zeroed(tier->n_entries, sizeof *tier->entries);
    }
    if (tier == NULL || tier->entries == NULL) {
        psc_free(tier);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a memory tier");
    }
    tier->cold.ops = &memory_ops;
    tier->cold.was_empty = true;
    if (faults != NULL)
        tier->faults = *faults;
    *cold_out = &tier->cold;
    return PSC_OK;
}
