/*
 * Counting words: an open-addressing index over entries in the order of first sight.
 *
 * An index slot holds 32 bits of the hash and the number of an entry, so that a probe of another
 * word costs one cache line and no visit of the entry. Entries hold the whole hash (growth does not
 * hash again) and where their bytes lie in one arena. The index is a power of two and at most half
 * full. XXH3 is the hash; it never decides a result, since counts and ids do not depend on its
 * order.
 *
 * Packed: for each word count (8 bytes), size (4), bytes; little-endian, no header.
 * Threads: one at a time. Memory: about 40 bytes and the word itself for each distinct word.
 */
#include "worker/train/word_counter.h"

#include "common/alloc.h"
#include "worker/train/corpus.h"

#include <stdbool.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAX_WORDS ((size_t)1 << 31)
#define FIRST_SLOTS ((size_t)1 << 12)
#define PACKED_HEAD 12u

typedef struct slot {
    uint32_t tag;
    uint32_t entry; /* + 1; 0: free */
} slot_t;

typedef struct entry {
    uint64_t hash;
    uint64_t count;
    uint64_t offset; /* in the arena */
    uint32_t size;
} entry_t;

struct psw_counter {
    slot_t *slots;
    size_t n_slots;
    entry_t *entries;
    size_t n_entries, entry_capacity;
    char *arena;
    size_t arena_used, arena_capacity;
    uint64_t total;
};

psc_status_t psw_counter_create(psw_counter_t **counter_out, psc_error_t *error)
{
    psw_counter_t *counter = psc_alloc_zeroed(1, sizeof *counter);
    if (counter != NULL)
        counter->slots = psc_alloc_zeroed(FIRST_SLOTS, sizeof *counter->slots);
    if (counter == NULL || counter->slots == NULL) {
        psc_free(counter);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory counting words");
    }
    counter->n_slots = FIRST_SLOTS;
    *counter_out = counter;
    return PSC_OK;
}

void psw_counter_destroy(psw_counter_t *counter)
{
    if (counter == NULL)
        return;
    psc_free(counter->slots);
    psc_free(counter->entries);
    psc_free(counter->arena);
    psc_free(counter);
}

/* The slot of a word: the one that holds it, or the free one where it would go. */
static slot_t *find(const psw_counter_t *counter, uint64_t hash, const char *bytes, size_t size)
{
    size_t mask = counter->n_slots - 1;
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        slot_t *slot = &counter->slots[i];
        if (slot->entry == 0)
            return slot;
        if (slot->tag != tag)
            continue;
        const entry_t *entry = &counter->entries[slot->entry - 1];
        if (entry->size == size && memcmp(counter->arena + entry->offset, bytes, size) == 0)
            return slot;
    }
}

static psc_status_t grow_index(psw_counter_t *counter, psc_error_t *error)
{
    size_t n_slots = counter->n_slots * 2, mask = n_slots - 1;
    slot_t *slots = psc_alloc_zeroed(n_slots, sizeof *slots);
    if (slots == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory counting words: %zu distinct",
                             counter->n_entries);
    for (size_t e = 0; e < counter->n_entries; e++) {
        uint64_t hash = counter->entries[e].hash;
        size_t i = (size_t)hash & mask;
        while (slots[i].entry != 0)
            i = (i + 1) & mask;
        slots[i].tag = (uint32_t)(hash >> 32);
        slots[i].entry = (uint32_t)e + 1;
    }
    psc_free(counter->slots);
    counter->slots = slots;
    counter->n_slots = n_slots;
    return PSC_OK;
}

/* Makes *block hold at least needed items. */
static bool reserve(void **block, size_t *capacity, size_t needed, size_t item_bytes)
{
    if (needed <= *capacity)
        return true;
    size_t wanted = *capacity < 1024 ? 1024 : *capacity + *capacity / 2;
    if (wanted < needed)
        wanted = needed;
    void *grown = psc_realloc_array(*block, wanted, item_bytes);
    if (grown == NULL)
        return false;
    *block = grown;
    *capacity = wanted;
    return true;
}

static psc_status_t add_entry(psw_counter_t *counter, slot_t *slot, uint64_t hash,
                              const char *bytes, size_t size, uint64_t n, psc_error_t *error)
{
    void *entries = counter->entries, *arena = counter->arena;
    bool fits = counter->n_entries < MAX_WORDS && reserve(&entries, &counter->entry_capacity,
                                                          counter->n_entries + 1, sizeof(entry_t));
    counter->entries = entries;
    fits = fits && reserve(&arena, &counter->arena_capacity, counter->arena_used + size, 1);
    counter->arena = arena;
    if (!fits)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory counting words: %zu distinct",
                             counter->n_entries);
    counter->entries[counter->n_entries] =
        (entry_t){.hash = hash, .count = n, .offset = counter->arena_used, .size = (uint32_t)size};
    memcpy(counter->arena + counter->arena_used, bytes, size);
    counter->arena_used += size;
    counter->n_entries++;
    slot->tag = (uint32_t)(hash >> 32);
    slot->entry = (uint32_t)counter->n_entries;
    counter->total = psw_count_sum(counter->total, n);
    if (counter->n_entries * 2 > counter->n_slots)
        return grow_index(counter, error);
    return PSC_OK;
}

psc_status_t psw_counter_add(psw_counter_t *counter, const char *bytes, size_t size, uint64_t n,
                             psc_error_t *error)
{
    uint64_t hash = XXH3_64bits(bytes, size);
    slot_t *slot = find(counter, hash, bytes, size);
    if (slot->entry == 0)
        return add_entry(counter, slot, hash, bytes, size, n, error);
    entry_t *entry = &counter->entries[slot->entry - 1];
    entry->count = psw_count_sum(entry->count, n);
    counter->total = psw_count_sum(counter->total, n);
    return PSC_OK;
}

uint64_t psw_counter_get(const psw_counter_t *counter, const char *bytes, size_t size)
{
    const slot_t *slot = find(counter, XXH3_64bits(bytes, size), bytes, size);
    return slot->entry == 0 ? 0 : counter->entries[slot->entry - 1].count;
}

size_t psw_counter_distinct(const psw_counter_t *counter)
{
    return counter->n_entries;
}

uint64_t psw_counter_total(const psw_counter_t *counter)
{
    return counter->total;
}

psw_counted_t psw_counter_at(const psw_counter_t *counter, size_t i)
{
    const entry_t *entry = &counter->entries[i];
    return (psw_counted_t){
        .bytes = counter->arena + entry->offset, .size = entry->size, .count = entry->count};
}

psc_status_t psw_counter_merge(psw_counter_t *counter, const psw_counter_t *from,
                               psc_error_t *error)
{
    for (size_t i = 0; i < from->n_entries; i++) {
        psw_counted_t word = psw_counter_at(from, i);
        psc_status_t st = psw_counter_add(counter, word.bytes, word.size, word.count, error);
        if (st != PSC_OK)
            return st;
    }
    return PSC_OK;
}

psc_status_t psw_counter_pack(const psw_counter_t *counter, char **bytes_out, size_t *size_out,
                              psc_error_t *error)
{
    size_t size = counter->n_entries * PACKED_HEAD + counter->arena_used;
    char *bytes = psc_alloc(size);
    if (bytes == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory packing %zu words",
                             counter->n_entries);
    char *to = bytes;
    for (size_t i = 0; i < counter->n_entries; i++) {
        const entry_t *entry = &counter->entries[i];
        memcpy(to, &entry->count, sizeof entry->count);
        memcpy(to + sizeof entry->count, &entry->size, sizeof entry->size);
        memcpy(to + PACKED_HEAD, counter->arena + entry->offset, entry->size);
        to += PACKED_HEAD + entry->size;
    }
    *bytes_out = bytes;
    *size_out = size;
    return PSC_OK;
}

psc_status_t psw_counter_unpack(psw_counter_t *counter, const char *bytes, size_t size,
                                psc_error_t *error)
{
    while (size > 0) {
        uint64_t count;
        uint32_t word_size;
        if (size < PACKED_HEAD)
            return psc_error_set(error, PSC_PROTOCOL, "word counts of a worker are cut short");
        memcpy(&count, bytes, sizeof count);
        memcpy(&word_size, bytes + sizeof count, sizeof word_size);
        bytes += PACKED_HEAD;
        size -= PACKED_HEAD;
        if (word_size == 0 || word_size > PSW_WORD_MAX_BYTES || word_size > size)
            return psc_error_set(error, PSC_PROTOCOL,
                                 "word counts of a worker hold a word of %u bytes", word_size);
        psc_status_t st = psw_counter_add(counter, bytes, word_size, count, error);
        if (st != PSC_OK)
            return st;
        bytes += word_size;
        size -= word_size;
    }
    return PSC_OK;
}
