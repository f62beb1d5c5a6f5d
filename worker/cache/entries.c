/*
 * Memory, index and policy of the copies.
 *
 * Copies lie in chunks, each for rows of one width: what is known of them, a cache line a row, and
 * their floats behind. So whoever looks at many rows reads lines that follow one another, large
 * chunks are huge pages, and a full cache does not allocate. A place is known by its slot, chunk
 * and row; it is used again, a stamp is not (until 2^32 of them are over, when the answer of a
 * ticket that old has long come). Chunks are sixteenths of the budget. A row displaces one of its
 * own width, or else the whole chunk of another one, if the copies that were looked at there are
 * all seen less than half as often.
 *
 * The index is a table with linear probing, a third to two thirds full, whose cells hold the upper
 * half of the row's hash (the lower bits chose the server). The place where a search begins is part
 * of that, so cells can be moved and the table can grow without a look at the rows; removal closes
 * the gap. Rows are sought batch-wise: first all cells, then the rows, some of which at a time are
 * read from memory at once (common/touch.h). What was found in the first pass is checked in the
 * second, as rows may have gone meanwhile.
 *
 * All of it counts against the budget. Who comes in: anybody while there is room; then a row that
 * the sketch saw more often than the rarest of a few copies at a clock's hand, one without deltas
 * first. So a row that is pulled once displaces nothing, and what was hot long ago goes as its
 * count is halved. Cost: O(1), some cache lines.
 */
#include "worker/cache/entries.h"

#include "common/alloc.h"
#include "common/touch.h"

#define BUDGET_LEAST ((size_t)64 << 10)
#define LOOKED_AT 6u
#define FIRST_CELL_BITS 8u
#define BYTES_PER_COUNTER 128u /* of the budget: some counters for each row of usual widths */
#define CHUNKS 16u             /* that a budget is for, about */
#define CHUNK_ROWS 8u          /* at least */
#define ROWS_MAX ((1u << PSW_CHUNK_SHIFT) - 1)
#define NONE PSW_CACHE_NO_SLOT
#define CELLS_AHEAD 32u
#define TOUCHED_ROWS 32u
#define TOUCHED_FLOATS 512u

_Static_assert(sizeof(psw_entry_t) == 64, "a cache line");

static size_t floats_of(uint32_t dim)
{
    return (2 * (size_t)dim + 15) / 16 * 16;
}

static size_t place_bytes(uint32_t dim)
{
    return sizeof(psw_entry_t) + floats_of(dim) * sizeof(float);
}

/* Cells that an index of so many rows has: 3/2 to 3 times as many. */
static uint32_t bits_for(const psw_entries_t *entries, size_t n_places)
{
    uint32_t bits = entries->cell_bits;
    while (((size_t)2 << bits) < 3 * n_places && bits < 32)
        bits++;
    return bits;
}

static size_t cell_bytes(uint32_t bits)
{
    return sizeof(psw_cell_t) << bits;
}

size_t psw_entries_cost(uint32_t dim)
{
    return place_bytes(dim) + 3 * sizeof(psw_cell_t);
}

static psw_cell_t *make_cells(uint32_t bits)
{
    const size_t n = (size_t)1 << bits;
    psw_cell_t *cells = psc_alloc_huge(n * sizeof *cells);
    for (size_t i = 0; cells != NULL && i < n; i++)
        cells[i] = (psw_cell_t){.slot = NONE};
    return cells;
}

psc_status_t psw_entries_init(psw_entries_t *entries, size_t budget, psc_error_t *error)
{
    *entries = (psw_entries_t){.budget = budget, .cell_bits = FIRST_CELL_BITS};
    if (budget < BUDGET_LEAST)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a cache of %zu bytes; at least %zu are needed", budget, BUDGET_LEAST);
    psc_status_t st = psw_frequency_init(&entries->frequency, budget / BYTES_PER_COUNTER, error);
    if (st != PSC_OK)
        return st;
    entries->cells = make_cells(FIRST_CELL_BITS);
    if (entries->cells == NULL) {
        psw_frequency_clear(&entries->frequency);
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a cache");
    }
    entries->used = entries->frequency.n + cell_bytes(FIRST_CELL_BITS);
    return PSC_OK;
}

void psw_entries_clear(psw_entries_t *entries)
{
    for (uint32_t c = 0; c < entries->n_chunks; c++)
        psc_free(entries->chunks[c].entries);
    psc_free(entries->cells);
    psw_frequency_clear(&entries->frequency);
    *entries = (psw_entries_t){0};
}

/* ---- index ---- */

static uint32_t tag_of(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}

static size_t home_of(const psw_entries_t *entries, uint32_t tag)
{
    return tag >> (32 - entries->cell_bits);
}

static size_t cell_mask(const psw_entries_t *entries)
{
    return ((size_t)1 << entries->cell_bits) - 1;
}

psw_entry_t *psw_entries_find(const psw_entries_t *entries, uint64_t hash, uint32_t table)
{
    const uint32_t tag = tag_of(hash);
    const size_t mask = cell_mask(entries);
    for (size_t at = home_of(entries, tag);; at = (at + 1) & mask) {
        const psw_cell_t cell = entries->cells[at];
        if (cell.slot == NONE)
            return NULL;
        psw_entry_t *entry = cell.tag == tag ? psw_entries_of(entries, cell.slot) : NULL;
        if (entry != NULL && entry->hash == hash && entry->table == table)
            return entry;
    }
}

void psw_entries_seek(const psw_entries_t *entries, const uint64_t *hashes, size_t n,
                      uint32_t *slots_out)
{
    const size_t mask = cell_mask(entries);
    for (size_t u = 0; u < n; u++) {
        if (u + CELLS_AHEAD < n)
            __builtin_prefetch(&entries->cells[home_of(entries, tag_of(hashes[u + CELLS_AHEAD]))]);
        const uint32_t tag = tag_of(hashes[u]);
        size_t at = home_of(entries, tag);
        while (entries->cells[at].slot != NONE && entries->cells[at].tag != tag)
            at = (at + 1) & mask;
        slots_out[u] = entries->cells[at].slot;
    }
}

/* With a copy or without one; NULL: there is no such place, or no longer. */
static psw_entry_t *place_at(const psw_entries_t *entries, uint32_t slot)
{
    const psw_chunk_t *chunk = &entries->chunks[slot >> PSW_CHUNK_SHIFT];
    return (slot & ROWS_MAX) < chunk->n_begun ? psw_entries_of(entries, slot) : NULL;
}

void psw_entries_touch(const psw_entries_t *entries, uint32_t slot, bool both)
{
    const psw_entry_t *entry = place_at(entries, slot);
    if (entry == NULL)
        return;
    const psw_chunk_t *chunk = &entries->chunks[slot >> PSW_CHUNK_SHIFT];
    const size_t n = both ? chunk->stride : chunk->dim;
    psc_touch(entry, sizeof *entry);
    psc_touch(psw_entries_value(entries, slot),
              (n < TOUCHED_FLOATS ? n : TOUCHED_FLOATS) * sizeof(float));
}

psw_entry_t *psw_entries_found(const psw_entries_t *entries, const uint64_t *hashes,
                               const uint32_t *slots, size_t u, size_t n, uint32_t table)
{
    for (size_t k = u; u % TOUCHED_ROWS == 0 && k < n && k < u + TOUCHED_ROWS; k++)
        psw_entries_touch(entries, slots[k], false);
    if (slots[u] == NONE)
        return NULL;
    psw_entry_t *entry = place_at(entries, slots[u]);
    return entry != NULL && entry->hash == hashes[u] && entry->table == table
               ? entry
               : psw_entries_find(entries, hashes[u], table);
}

static void index_put(psw_entries_t *entries, psw_cell_t cell)
{
    const size_t mask = cell_mask(entries);
    size_t at = home_of(entries, cell.tag);
    while (entries->cells[at].slot != NONE)
        at = (at + 1) & mask;
    entries->cells[at] = cell;
}

/* What lies behind the row and could not lie further in front moves up. */
static void index_remove(psw_entries_t *entries, const psw_entry_t *entry)
{
    const size_t mask = cell_mask(entries);
    size_t gap = home_of(entries, tag_of(entry->hash));
    while (entries->cells[gap].slot != entry->slot)
        gap = (gap + 1) & mask;
    for (size_t at = (gap + 1) & mask; entries->cells[at].slot != NONE; at = (at + 1) & mask) {
        const size_t home = home_of(entries, entries->cells[at].tag);
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            entries->cells[gap] = entries->cells[at];
            gap = at;
        }
    }
    entries->cells[gap].slot = NONE;
}

static bool grow_index(psw_entries_t *entries, uint32_t bits)
{
    psw_cell_t *old = entries->cells, *cells = make_cells(bits);
    const size_t n = cell_mask(entries) + 1;
    if (cells == NULL)
        return false;
    entries->used += cell_bytes(bits) - cell_bytes(entries->cell_bits);
    entries->cells = cells;
    entries->cell_bits = bits;
    for (size_t i = 0; i < n; i++) {
        if (old[i].slot != NONE)
            index_put(entries, old[i]);
    }
    psc_free(old);
    return true;
}

/* ---- chunks ---- */

/* How many places the next chunk has, and its index the bits for them. 0: there is no room. */
static size_t plan_chunk(const psw_entries_t *entries, uint32_t dim, uint32_t *bits_out)
{
    const size_t bytes = place_bytes(dim), rest = entries->budget - entries->used;
    size_t n = entries->budget / CHUNKS / bytes;
    n = n > CHUNK_ROWS ? n : CHUNK_ROWS;
    n = n < ROWS_MAX ? n : ROWS_MAX;
    *bits_out = bits_for(entries, entries->n_places + n);
    const size_t extra = cell_bytes(*bits_out) - cell_bytes(entries->cell_bits);
    if (extra + n * bytes <= rest)
        return n;
    if (extra + bytes > rest) { /* as many as the index is for */
        const size_t most = (((size_t)2 << entries->cell_bits) / 3) - entries->n_places;
        *bits_out = entries->cell_bits;
        n = rest / bytes;
        return n < most ? n : most;
    }
    return (rest - extra) / bytes;
}

/* NULL: no room, or no memory. */
static psw_chunk_t *add_chunk(psw_entries_t *entries, uint32_t dim)
{
    uint32_t bits = entries->cell_bits, c = 0;
    while (c < entries->n_chunks && entries->chunks[c].entries != NULL)
        c++;
    const size_t n = c < PSW_CHUNKS_MAX ? plan_chunk(entries, dim, &bits) : 0;
    if (n == 0 || (bits != entries->cell_bits && !grow_index(entries, bits)))
        return NULL;
    uint8_t *memory = psc_alloc_huge(n * place_bytes(dim));
    if (memory == NULL)
        return NULL;
    entries->used += n * place_bytes(dim);
    entries->n_places += n;
    entries->chunks[c] = (psw_chunk_t){
        .entries = (psw_entry_t *)(void *)memory,
        .floats = (float *)(void *)(memory + n * sizeof(psw_entry_t)),
        .stride = floats_of(dim),
        .dim = dim,
        .n = (uint32_t)n,
        .free = NONE,
    };
    if (c == entries->n_chunks)
        entries->n_chunks++;
    return &entries->chunks[c];
}

void psw_entries_free_chunk(psw_entries_t *entries, uint32_t c)
{
    psw_chunk_t *chunk = &entries->chunks[c];
    entries->used -= chunk->n * place_bytes(chunk->dim);
    entries->n_places -= chunk->n;
    psc_free(chunk->entries);
    *chunk = (psw_chunk_t){0};
}

/* A place of that width, or NULL. */
static psw_entry_t *take_place(psw_entries_t *entries, uint32_t dim)
{
    psw_chunk_t *chunk = NULL;
    for (uint32_t c = 0; chunk == NULL && c < entries->n_chunks; c++) {
        psw_chunk_t *is = &entries->chunks[c];
        if (is->entries != NULL && is->dim == dim && is->n_used < is->n)
            chunk = is;
    }
    if (chunk == NULL)
        chunk = add_chunk(entries, dim);
    if (chunk == NULL)
        return NULL;
    const uint32_t c = (uint32_t)(chunk - entries->chunks);
    uint32_t slot = chunk->free;
    if (slot != NONE)
        chunk->free = psw_entries_of(entries, slot)->next;
    else
        slot = c << PSW_CHUNK_SHIFT | chunk->n_begun++;
    chunk->n_used++;
    psw_entry_t *entry = psw_entries_of(entries, slot);
    *entry = (psw_entry_t){.slot = slot};
    return entry;
}

/* ---- copies ---- */

psw_entry_t *psw_entries_add(psw_entries_t *entries, uint64_t hash, uint32_t table, uint32_t dim)
{
    psw_entry_t *entry = take_place(entries, dim);
    if (entry == NULL)
        return NULL;
    entry->hash = hash;
    entry->table = (uint16_t)table;
    psw_entries_stamp(entries, entry);
    index_put(entries, (psw_cell_t){.tag = tag_of(hash), .slot = entry->slot});
    entries->n++;
    return entry;
}

void psw_entries_remove(psw_entries_t *entries, psw_entry_t *entry)
{
    psw_chunk_t *chunk = &entries->chunks[entry->slot >> PSW_CHUNK_SHIFT];
    index_remove(entries, entry);
    entry->table = PSW_TABLES_MAX;
    entry->next = chunk->free;
    chunk->free = entry->slot;
    chunk->n_used--;
    entries->n--;
}

psw_entry_t *psw_entries_at(const psw_entries_t *entries, psw_ticket_t ticket)
{
    psw_entry_t *entry = place_at(entries, ticket.slot);
    return entry != NULL && entry->stamp == ticket.stamp && entry->table != PSW_TABLES_MAX ? entry
                                                                                           : NULL;
}

psw_entry_t *psw_entries_next(const psw_entries_t *entries, uint32_t *slot)
{
    for (uint32_t c = *slot >> PSW_CHUNK_SHIFT; c < entries->n_chunks; c++) {
        for (uint32_t i = *slot & ROWS_MAX; i < entries->chunks[c].n_begun; i++) {
            psw_entry_t *entry = &entries->chunks[c].entries[i];
            if (entry->table != PSW_TABLES_MAX) {
                *slot = entry->slot + 1;
                return entry;
            }
        }
        *slot = (c + 1) << PSW_CHUNK_SHIFT;
    }
    *slot = NONE;
    return NULL;
}

/* The next chunk of that width, or of any other one; NULL: there is none. */
static psw_chunk_t *next_chunk(psw_entries_t *entries, uint32_t dim, bool other)
{
    for (uint32_t i = 0; i < entries->n_chunks; i++) {
        entries->turn = entries->turn + 1 < entries->n_chunks ? entries->turn + 1 : 0;
        psw_chunk_t *chunk = &entries->chunks[entries->turn];
        if (chunk->n_used != 0 && (chunk->dim != dim) == other)
            return chunk;
    }
    return NULL;
}

/* Of some copies of the chunk at its clock's hand the one that is worth least, and what the others
 * are worth at most. */
static psw_entry_t *look(const psw_entries_t *entries, psw_chunk_t *chunk, uint32_t *least_out,
                         uint32_t *most_out)
{
    psw_entry_t *victim = NULL;
    *most_out = 0;
    for (uint32_t looks = 0; looks < LOOKED_AT && looks < chunk->n_used;) {
        psw_entry_t *entry = &chunk->entries[chunk->hand];
        chunk->hand = chunk->hand + 1 < chunk->n_begun ? chunk->hand + 1 : 0;
        if (entry->table == PSW_TABLES_MAX)
            continue;
        looks++;
        /* a row with deltas costs a message: worth half a sighting */
        const uint32_t worth =
            2 * psw_frequency_count(&entries->frequency, entry->hash) + entry->dirty;
        *most_out = worth > *most_out ? worth : *most_out;
        if (victim == NULL || worth < *least_out) {
            victim = entry;
            *least_out = worth;
        }
    }
    return victim;
}

psw_entry_t *psw_entries_victim(psw_entries_t *entries, uint32_t dim, uint32_t count)
{
    uint32_t least = 0, most;
    psw_chunk_t *chunk = next_chunk(entries, dim, false);
    psw_entry_t *victim = chunk != NULL ? look(entries, chunk, &least, &most) : NULL;
    if (victim != NULL && least < 2 * count)
        return victim;
    chunk = next_chunk(entries, dim, true);
    victim = chunk != NULL ? look(entries, chunk, &least, &most) : NULL;
    return victim != NULL && most < count ? victim : NULL;
}

void psw_entries_stamp(psw_entries_t *entries, psw_entry_t *entry)
{
    entry->stamp = ++entries->stamp;
}
