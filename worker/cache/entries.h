/* The copies themselves: memory under a budget, an index, who comes in and who goes. Inside
 * worker/cache/. */
#ifndef WORKER_CACHE_ENTRIES_H
#define WORKER_CACHE_ENTRIES_H

#include "worker/cache/cache.h"
#include "worker/cache/frequency.h"

typedef struct psw_entry {
    uint64_t hash, id;
    struct psw_entry *chain; /* of its bucket, or of free blocks */
    uint32_t table;          /* index among the cache's tables */
    uint32_t dim;
    uint32_t slot;
    uint32_t stamp;   /* changes when an answer that is under way would no longer fit */
    uint32_t version; /* that servers have if nobody else changed the row */
    uint32_t era;     /* of the last answer */
    uint64_t least_clock, asked_at;    /* of the last answer */
    struct psw_entry *previous, *next; /* rows whose deltas are due at the same clock */
    uint64_t since;                    /* clock of the first delta */
    uint64_t due;                      /* clock at whose end they leave */
    uint32_t pushes;
    uint16_t period;  /* clocks from the first delta to the flush, and of an asynchronous copy */
    uint8_t state;    /* psp_row_state_t */
    bool has_base;    /* base is the row, own pushes included, deltas aside */
    bool has_version; /* version is right */
    bool dirty;       /* there are deltas; what they hold is undefined otherwise */
    float floats[];   /* base [dim], deltas [dim] */
} psw_entry_t;

typedef struct psw_entries {
    size_t budget, used; /* bytes; used: blocks, free ones too */
    psw_entry_t **buckets;
    size_t n_buckets; /* a power of two */
    psw_entry_t **slots;
    uint32_t *free_slots;
    uint32_t n_slots, n_free_slots, capacity;
    uint32_t hand;
    uint32_t stamp;
    size_t n;
    psw_entry_t *free_blocks; /* all of free_bytes */
    size_t free_bytes;
    psw_frequency_t frequency;
} psw_entries_t;

static inline float *psw_entry_deltas(psw_entry_t *entry)
{
    return entry->floats + entry->dim;
}

/* Errors: INVALID_ARGUMENT, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_entries_init(psw_entries_t *entries, size_t budget,
                                             psc_error_t *error);
void psw_entries_clear(psw_entries_t *entries);

psw_entry_t *psw_entries_find(const psw_entries_t *entries, uint64_t hash, uint32_t table);

static inline psw_entry_t *psw_entries_at(const psw_entries_t *entries, psw_ticket_t ticket)
{
    psw_entry_t *entry = ticket.slot < entries->n_slots ? entries->slots[ticket.slot] : NULL;
    return entry != NULL && entry->stamp == ticket.stamp ? entry : NULL;
}

/*
 * For row u of hashes [n]: asks for the memory that the rows behind it will need, which lies
 * anywhere: buckets first, then the first copy of each, then its floats. Most chains have one.
 */
static inline void psw_entries_fetch(const psw_entries_t *entries, const uint64_t *hashes, size_t u,
                                     size_t n)
{
    const size_t mask = entries->n_buckets - 1;
    if (u + 24 < n)
        __builtin_prefetch(&entries->buckets[(hashes[u + 24] >> 14) & mask]);
    if (u + 12 < n)
        __builtin_prefetch(entries->buckets[(hashes[u + 12] >> 14) & mask]);
    if (u + 5 < n) {
        const psw_entry_t *entry = entries->buckets[(hashes[u + 5] >> 14) & mask];
        for (size_t k = 0; entry != NULL && k < 2 * (size_t)entry->dim && k < 512; k += 16)
            __builtin_prefetch(entry->floats + k, 1);
    }
}

/* Bytes that a row of dim takes of the budget. */
size_t psw_entries_cost(uint32_t dim);

/* A new copy, without value, if it fits into the budget; NULL: not, or no memory. */
psw_entry_t *psw_entries_add(psw_entries_t *entries, uint64_t hash, uint64_t id, uint32_t table,
                             uint32_t dim);
/* Which copy should go for a row that is seen `count` times: one that is seen less often; NULL:
 * none that was looked at is. */
psw_entry_t *psw_entries_victim(psw_entries_t *entries, uint32_t count);
/* Takes a copy (without deltas) out. */
void psw_entries_remove(psw_entries_t *entries, psw_entry_t *entry);

/* Answers that are under way for it no longer count. */
void psw_entries_stamp(psw_entries_t *entries, psw_entry_t *entry);

#endif
