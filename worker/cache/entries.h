/* The copies themselves: memory under a budget, an index, who comes in and who goes. Inside
 * worker/cache/. */
#ifndef WORKER_CACHE_ENTRIES_H
#define WORKER_CACHE_ENTRIES_H

#include "worker/cache/cache.h"
#include "worker/cache/frequency.h"

#define PSW_TABLES_MAX UINT16_MAX /* numbers below; this one marks a place without a copy */
#define PSW_CHUNKS_MAX 64u
#define PSW_CHUNK_SHIFT 26u /* a slot: chunk, then row */

/* What is known of a copy; one cache line. Its floats lie elsewhere. */
typedef struct psw_entry {
    uint64_t hash;
    uint64_t least_clock, asked_at; /* of the last answer */
    uint32_t slot;
    uint32_t stamp;          /* changes when an answer that is under way would no longer fit */
    uint32_t version;        /* that servers have if nobody else changed the row */
    uint32_t era;            /* of the last answer */
    uint32_t previous, next; /* slots of rows whose deltas are due at the same clock; next: also of
                                places without a copy */
    uint32_t since;          /* clock of the first delta, modulo 2^32 */
    uint16_t due;            /* list of the wheel that the row hangs in */
    uint16_t table;          /* index among the cache's tables */
    uint16_t pushes;         /* since then; 65,535 or more */
    uint16_t period;  /* clocks from the first delta to the flush, and of an asynchronous copy */
    uint8_t state;    /* psp_row_state_t */
    bool has_base;    /* base is the row, own pushes included that were issued */
    bool has_version; /* version is right */
    bool dirty;       /* there are deltas: value - base (without a base, base is 0). Otherwise value
                         is the base, if there is one, and undefined as it is if there is none */
} psw_entry_t;

/* Places for rows of one width. */
typedef struct psw_chunk {
    psw_entry_t *entries; /* [n]; NULL: there is no such chunk */
    float *floats;        /* of each: value [dim], base [dim]; stride in all */
    size_t stride;
    uint32_t dim, n;
    uint32_t n_used;  /* with a copy */
    uint32_t n_begun; /* had one once; those behind were not touched */
    uint32_t hand;    /* row that is looked at next */
    uint32_t free;    /* slot of one that has none any more; PSW_CACHE_NO_SLOT: there is none */
} psw_chunk_t;

/* A row in the index; slot PSW_CACHE_NO_SLOT: none. */
typedef struct psw_cell {
    uint32_t tag; /* upper half of the hash: its first bits are the cell where a search begins */
    uint32_t slot;
} psw_cell_t;

typedef struct psw_entries {
    size_t budget, used; /* bytes */
    psw_cell_t *cells;
    uint32_t cell_bits;
    psw_chunk_t chunks[PSW_CHUNKS_MAX];
    uint32_t n_chunks; /* that there are or were */
    size_t n_places;   /* of all chunks */
    size_t n;          /* with a copy */
    uint32_t turn;     /* chunk that was looked at last */
    uint32_t stamp;
    psw_frequency_t frequency;
} psw_entries_t;

static inline psw_entry_t *psw_entries_of(const psw_entries_t *entries, uint32_t slot)
{
    return &entries->chunks[slot >> PSW_CHUNK_SHIFT].entries[slot & ((1u << PSW_CHUNK_SHIFT) - 1)];
}

/* value [dim], base [dim] */
static inline float *psw_entries_value(const psw_entries_t *entries, uint32_t slot)
{
    const psw_chunk_t *chunk = &entries->chunks[slot >> PSW_CHUNK_SHIFT];
    return chunk->floats + (slot & ((1u << PSW_CHUNK_SHIFT) - 1)) * chunk->stride;
}

/* Errors: INVALID_ARGUMENT, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_entries_init(psw_entries_t *entries, size_t budget,
                                             psc_error_t *error);
void psw_entries_clear(psw_entries_t *entries);

psw_entry_t *psw_entries_find(const psw_entries_t *entries, uint64_t hash, uint32_t table);

/*
 * Where the rows of these hashes [n] may be found, for psw_entries_found: slots_out [n],
 * PSW_CACHE_NO_SLOT for those that are not kept.
 */
void psw_entries_seek(const psw_entries_t *entries, const uint64_t *hashes, size_t n,
                      uint32_t *slots_out);

/*
 * Row u of those that were sought, wherever it is now, or NULL. To be asked for one after the
 * other, from 0 on: the rows behind it are read from memory meanwhile.
 */
psw_entry_t *psw_entries_found(const psw_entries_t *entries, const uint64_t *hashes,
                               const uint32_t *slots, size_t u, size_t n, uint32_t table);

/* The copy will be needed soon; both: its base too. */
void psw_entries_touch(const psw_entries_t *entries, uint32_t slot, bool both);

/* The copy that a ticket means, if it is still that. */
psw_entry_t *psw_entries_at(const psw_entries_t *entries, psw_ticket_t ticket);

/* All copies, one after the other: *slot is 0 at first; NULL: that was all. */
psw_entry_t *psw_entries_next(const psw_entries_t *entries, uint32_t *slot);

/* Bytes that a row of dim takes of the budget, at most. */
size_t psw_entries_cost(uint32_t dim);

/* A new copy, without value, if it fits into the budget; NULL: not, or no memory. */
psw_entry_t *psw_entries_add(psw_entries_t *entries, uint64_t hash, uint32_t table, uint32_t dim);
/* Which copy should go for a row that is seen `count` times: one that is seen less often; NULL:
 * none that was looked at is. One of another width: with all copies of its chunk. */
psw_entry_t *psw_entries_victim(psw_entries_t *entries, uint32_t dim, uint32_t count);
/* Takes a copy (without deltas) out. */
void psw_entries_remove(psw_entries_t *entries, psw_entry_t *entry);
/* A chunk without copies gives its memory back. */
void psw_entries_free_chunk(psw_entries_t *entries, uint32_t chunk);

/* Answers that are under way for it no longer count. */
void psw_entries_stamp(psw_entries_t *entries, psw_entry_t *entry);

#endif
