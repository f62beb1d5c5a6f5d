/*
 * A cold tier in memory: for tests and the simulator. Behaves like a disk that never loses anything
 * while it is open, and fails on request.
 *
 * An open-addressing hash table over the key bytes, twice as large as needed, linear probing. A
 * record that is removed leaves its key, so that searches go on past it. A scan looks at every
 * entry and sorts: slow, and right. Called by one thread at a time, like every tier.
 *
 * Files are as RocksDB's are: "000001.sst" and so on, which never change once they are there, each
 * with what was written since the one before it. One that is opened goes on from the files of its
 * folder, the oldest first, and gives later numbers. Nothing of a folder is written but by save.
 */
#include "ps/store/cold.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES ((size_t)1 << 30) /* that a file may have */

typedef struct entry {
    uint8_t key[PS_COLD_KEY_BYTES];
    bool used;       /* has a key */
    bool changed;    /* since the last file */
    uint8_t *record; /* NULL: none, or removed */
    size_t size;
} entry_t;

/* The bytes of a file: records, each behind this. */
typedef struct mark {
    uint8_t key[PS_COLD_KEY_BYTES];
    uint8_t removed;
    uint8_t padding;
    uint64_t size;
} mark_t;

typedef struct saved_file {
    char *bytes;
    size_t size;
} saved_file_t;

typedef struct memory_tier {
    ps_cold_t cold;
    ps_cold_faults_t faults;
    uint64_t n_reads, n_writes; /* calls; scans are reads */
    entry_t *entries;
    size_t n_entries; /* a power of two */
    size_t count;
    saved_file_t *files; /* [n_files], the one with number 1 first */
    size_t n_files;
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
        entry->used = entry->changed = true;
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

/* ---- files ---- */

static psc_status_t no_memory(psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory in the memory tier");
}

/* Gives; NULL: out of memory. */
static char *file_path(const char *folder, size_t number)
{
    const size_t size = strlen(folder) + 32;
    char *path = psc_alloc(size);
    if (path != NULL)
        (void)snprintf(path, size, "%s/%06zu.sst", folder, number);
    return path;
}

static psc_status_t add_file(memory_tier_t *tier, char *bytes, size_t size, psc_error_t *error)
{
    saved_file_t *files = psc_realloc_array(tier->files, tier->n_files + 1, sizeof *files);
    if (files == NULL)
        return no_memory(error);
    tier->files = files;
    files[tier->n_files++] = (saved_file_t){.bytes = bytes, .size = size};
    return PSC_OK;
}

/* What was written since the last file becomes the next one, if anything was. */
static psc_status_t make_file(memory_tier_t *tier, psc_error_t *error)
{
    size_t size = 0, used = 0;
    for (size_t i = 0; i < tier->n_entries; i++) {
        if (tier->entries[i].changed)
            size += sizeof(mark_t) + (tier->entries[i].record != NULL ? tier->entries[i].size : 0);
    }
    if (size == 0)
        return PSC_OK;
    char *bytes = psc_alloc(size);
    psc_status_t st = bytes != NULL ? add_file(tier, bytes, size, error) : no_memory(error);
    if (st != PSC_OK) {
        psc_free(bytes);
        return st;
    }
    for (size_t i = 0; i < tier->n_entries; i++) {
        entry_t *entry = &tier->entries[i];
        mark_t mark = {.removed = entry->record == NULL};
        if (!entry->changed)
            continue;
        memcpy(mark.key, entry->key, sizeof mark.key);
        mark.size = entry->record != NULL ? entry->size : 0;
        memcpy(bytes + used, &mark, sizeof mark);
        if (mark.size != 0)
            memcpy(bytes + used + sizeof mark, entry->record, mark.size);
        used += sizeof mark + mark.size;
        entry->changed = false;
    }
    return PSC_OK;
}

static psc_status_t memory_save(ps_cold_t *cold, const char *folder, psc_error_t *error)
{
    memory_tier_t *tier = (memory_tier_t *)(void *)cold;
    psc_status_t st = make_file(tier, error);
    if (st == PSC_OK && mkdir(folder, 0777) != 0)
        st = psc_error_set_errno(error, errno, "cannot make %s", folder);
    for (size_t i = 0; st == PSC_OK && i < tier->n_files; i++) {
        char *path = file_path(folder, i + 1);
        st = path == NULL ? no_memory(error)
                          : psc_file_write(path, tier->files[i].bytes, tier->files[i].size, error);
        psc_free(path);
    }
    return st;
}

/* Takes the records of a file into the tier. */
static psc_status_t load_file(memory_tier_t *tier, const char *path, const char *bytes, size_t size,
                              psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t used = 0; st == PSC_OK && used < size;) {
        mark_t mark = {.size = 0};
        if (size - used >= sizeof mark)
            memcpy(&mark, bytes + used, sizeof mark);
        if (size - used < sizeof mark || mark.size > size - used - sizeof mark)
            return psc_error_set(error, PSC_CORRUPT, "%s: its last record is cut off", path);
        ps_cold_write_t write = {.size = (size_t)mark.size};
        memcpy(write.key, mark.key, sizeof write.key);
        if (mark.removed == 0)
            write.record = (const uint8_t *)bytes + used + sizeof mark;
        st = memory_write(&tier->cold, &write, 1, error);
        used += sizeof mark + (size_t)mark.size;
    }
    return st;
}

static psc_status_t load_folder(memory_tier_t *tier, const char *folder, psc_error_t *error)
{
    for (;;) {
        char *bytes = NULL, *path = file_path(folder, tier->n_files + 1);
        size_t size = 0;
        psc_error_t fault = PSC_ERROR_INIT;
        psc_status_t st = path == NULL ? no_memory(&fault)
                                       : psc_file_read(path, FILE_BYTES, &bytes, &size, &fault);
        const bool end = st == PSC_NOT_FOUND;
        if (st == PSC_OK)
            st = add_file(tier, bytes, size, &fault);
        if (st == PSC_OK)
            st = load_file(tier, path, bytes, size, &fault);
        else
            psc_free(bytes);
        psc_free(path);
        if (st == PSC_OK)
            continue;
        if (!end && error != NULL)
            *error = fault;
        return end ? PSC_OK : st;
    }
}

static void memory_destroy(ps_cold_t *cold)
{
    if (cold == NULL)
        return;
    memory_tier_t *tier = (memory_tier_t *)(void *)cold;
    for (size_t i = 0; i < tier->n_entries; i++)
        psc_free(tier->entries[i].record);
    for (size_t i = 0; i < tier->n_files; i++)
        psc_free(tier->files[i].bytes);
    psc_free(tier->files);
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

psc_status_t ps_cold_memory_open(const char *dir, const ps_cold_faults_t *faults,
                                 ps_cold_t **cold_out, psc_error_t *error)
{
    ps_cold_t *cold = NULL;
    psc_status_t st = ps_cold_memory_create(NULL, &cold, error);
    if (st != PSC_OK)
        return st;
    memory_tier_t *tier = (memory_tier_t *)(void *)cold;
    st = load_folder(tier, dir, error);
    if (st != PSC_OK) {
        memory_destroy(cold);
        return st;
    }
    for (size_t i = 0; i < tier->n_entries; i++)
        tier->entries[i].changed = false;
    tier->n_writes = 0;
    if (faults != NULL)
        tier->faults = *faults;
    cold->was_empty = tier->n_files == 0;
    *cold_out = cold;
    return PSC_OK;
}
