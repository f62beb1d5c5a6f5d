/*
 * Memory, index and policy of the copies.
 *
 * A copy is one block: book-keeping, the row, its deltas. Blocks of copies that went are kept for
 * the next ones of their size, so that a full cache does not allocate. The index is a table of
 * chains over the row hash; its bits above those that choose the server. Slots give copies a number
 * for tickets: a slot is used again, a stamp is not (until 2^32 of them are over, when the answer
 * of a ticket that old has long come). All of it counts against the budget.
 *
 * Who comes in: anybody while there is room; then a row that the sketch saw more often than the
 * rarest of a few copies at the clock's hand, one without deltas first. So a row that is pulled
 * once displaces nothing, and what was hot long ago goes as its count is halved. Cost: O(1).
 */
#include "worker/cache/entries.h"

#include "common/alloc.h"

#define BUDGET_LEAST ((size_t)64 << 10)
#define LOOKED_AT 6u
#define SLOT_BYTES (sizeof(psw_entry_t *) + sizeof(uint32_t)) /* beside the bucket */
#define FIRST_BUCKETS 256u
#define BYTES_PER_COUNTER 128u /* of the budget: some counters for each row of usual widths */

static size_t block_bytes(uint32_t dim)
{
    const size_t bytes = sizeof(psw_entry_t) + 2 * (size_t)dim * sizeof(float);
    return (bytes + 63) / 64 * 64;
}

/* Buckets are between n and 2 n, slots too. */
size_t psw_entries_cost(uint32_t dim)
{
    return block_bytes(dim) + 2 * (sizeof(psw_entry_t *) + SLOT_BYTES);
}

psc_status_t psw_entries_init(psw_entries_t *entries, size_t budget, psc_error_t *error)
{
    *entries = (psw_entries_t){.budget = budget, .n_buckets = FIRST_BUCKETS};
    if (budget < BUDGET_LEAST)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a cache of %zu bytes; at least %zu are needed", budget, BUDGET_LEAST);
    psc_status_t st = psw_frequency_init(&entries->frequency, budget / BYTES_PER_COUNTER, error);
    if (st != PSC_OK)
        return st;
    entries->buckets = psc_alloc_zeroed(FIRST_BUCKETS, sizeof(psw_entry_t *));
    if (entries->buckets == NULL) {
        psw_frequency_clear(&entries->frequency);
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a cache");
    }
    entries->used = entries->frequency.n + FIRST_BUCKETS * sizeof(psw_entry_t *);
    return PSC_OK;
}

static void free_all_blocks(psw_entries_t *entries)
{
    while (entries->free_blocks != NULL) {
        psw_entry_t *block = entries->free_blocks;
        entries->free_blocks = block->chain;
        entries->used -= entries->free_bytes;
        psc_free(block);
    }
}

void psw_entries_clear(psw_entries_t *entries)
{
    for (uint32_t i = 0; i < entries->n_slots; i++)
        psc_free(entries->slots[i]);
    free_all_blocks(entries);
    psc_free(entries->slots);
    psc_free(entries->free_slots);
    psc_free(entries->buckets);
    psw_frequency_clear(&entries->frequency);
    *entries = (psw_entries_t){0};
}

static psw_entry_t **bucket_of(const psw_entries_t *entries, uint64_t hash)
{
    return &entries->buckets[(hash >> 14) & (entries->n_buckets - 1)];
}

psw_entry_t *psw_entries_find(const psw_entries_t *entries, uint64_t hash, uint32_t table)
{
    psw_entry_t *entry = *bucket_of(entries, hash);
    while (entry != NULL && (entry->hash != hash || entry->table != table))
        entry = entry->chain;
    return entry;
}

/* Without memory the chains just get longer. */
static void grow_buckets(psw_entries_t *entries)
{
    const size_t n = 2 * entries->n_buckets;
    psw_entry_t **buckets = psc_alloc_zeroed(n, sizeof(psw_entry_t *));
    if (buckets == NULL)
        return;
    psc_free(entries->buckets);
    entries->buckets = buckets;
    entries->n_buckets = n;
    for (uint32_t i = 0; i < entries->n_slots; i++) {
        psw_entry_t *entry = entries->slots[i];
        if (entry == NULL)
            continue;
        psw_entry_t **bucket = bucket_of(entries, entry->hash);
        entry->chain = *bucket;
        *bucket = entry;
    }
}

static bool grow_slots(psw_entries_t *entries)
{
    const uint32_t capacity = entries->capacity != 0 ? 2 * entries->capacity : 64;
    psw_entry_t **slots = psc_realloc_array(entries->slots, capacity, sizeof(psw_entry_t *));
    if (slots == NULL)
        return false;
    entries->slots = slots;
    uint32_t *free_slots = psc_realloc_array(entries->free_slots, capacity, sizeof(uint32_t));
    if (free_slots == NULL)
        return false;
    entries->free_slots = free_slots;
    entries->capacity = capacity;
    return true;
}

/* A block of this size within the budget, or NULL. */
static psw_entry_t *take_block(psw_entries_t *entries, size_t bytes, size_t cost)
{
    if (entries->free_blocks != NULL && entries->free_bytes == bytes) {
        psw_entry_t *block = entries->free_blocks;
        entries->free_blocks = block->chain;
        return block;
    }
    if (entries->used + cost > entries->budget)
        free_all_blocks(entries);
    if (entries->used + cost > entries->budget)
        return NULL;
    psw_entry_t *block = psc_alloc_aligned(bytes);
    if (block != NULL)
        entries->used += bytes;
    return block;
}

static void put_block(psw_entries_t *entries, psw_entry_t *block, size_t bytes)
{
    if (entries->free_blocks != NULL && entries->free_bytes != bytes)
        free_all_blocks(entries);
    entries->free_bytes = bytes;
    block->chain = entries->free_blocks;
    entries->free_blocks = block;
}

psw_entry_t *psw_entries_add(psw_entries_t *entries, uint64_t hash, uint64_t id, uint32_t table,
                             uint32_t dim)
{
    if (entries->n_free_slots == 0 && entries->n_slots == entries->capacity && !grow_slots(entries))
        return NULL;
    const size_t bytes = block_bytes(dim), beside = psw_entries_cost(dim) - bytes;
    psw_entry_t *entry = take_block(entries, bytes, bytes + beside);
    if (entry == NULL)
        return NULL;
    entries->used += beside;
    *entry = (psw_entry_t){.hash = hash, .id = id, .table = table, .dim = dim};
    entry->slot = entries->n_free_slots != 0 ? entries->free_slots[--entries->n_free_slots]
                                             : entries->n_slots++;
    entries->slots[entry->slot] = entry;
    psw_entries_stamp(entries, entry);
    psw_entry_t **bucket = bucket_of(entries, hash);
    entry->chain = *bucket;
    *bucket = entry;
    if (++entries->n > entries->n_buckets)
        grow_buckets(entries);
    return entry;
}

psw_entry_t *psw_entries_victim(psw_entries_t *entries, uint32_t count)
{
    psw_entry_t *victim = NULL;
    uint32_t least = 0;
    uint32_t looks = 0;
    for (uint32_t i = 0; i < entries->n_slots && looks < LOOKED_AT; i++) {
        psw_entry_t *entry = entries->slots[entries->hand];
        entries->hand = entries->hand + 1 < entries->n_slots ? entries->hand + 1 : 0;
        if (entry == NULL)
            continue;
        looks++;
        /* a row with deltas costs a message: worth half a sighting */
        uint32_t worth = 2 * psw_frequency_count(&entries->frequency, entry->hash) + entry->dirty;
        if (victim == NULL || worth < least) {
            victim = entry;
            least = worth;
        }
    }
    return victim != NULL && least < 2 * count ? victim : NULL;
}

void psw_entries_remove(psw_entries_t *entries, psw_entry_t *entry)
{
    psw_entry_t **link = bucket_of(entries, entry->hash);
    while (*link != entry)
        link = &(*link)->chain;
    *link = entry->chain;
    entries->slots[entry->slot] = NULL;
    entries->free_slots[entries->n_free_slots++] = entry->slot;
    entries->n--;
    const size_t bytes = block_bytes(entry->dim);
    entries->used -= psw_entries_cost(entry->dim) - bytes;
    put_block(entries, entry, bytes);
}

void psw_entries_stamp(psw_entries_t *entries, psw_entry_t *entry)
{
    entry->stamp = ++entries->stamp;
}
