/*
 * A hash index that grows by one group of rows at a time.
 *
 * A group is one cache line: 12 tags of one byte, 12 places of four. A row lies in its home group
 * or, when that is full, in the next one with room; a group counts the rows that went past it, so
 * that a search stops where none did, and deletion leaves no tombstones (as in F14, Bronson and Shi
 * 2019).
 *
 * Groups are numbered from 0 without a gap; this is linear hashing with partial expansions (Larson
 * 1980). There are 2^k sets of groups, set s of C columns being the groups s, s + 2^k, s + 2 * 2^k
 * and so on. To grow is to give the next set one column more: one new group at the end, and half of
 * that set's rows move one column on. When all sets have got it, C grows by one and the first set
 * is next. At 8 columns each set becomes two of 4, without a row moving: the lowest bit of the 8
 * columns is the bit of the hash that chooses between the two. So the rows of a group are 9 on
 * average, 11.2 before its set is next: 7.1 bytes a row at any size. To shrink is the
 * same backwards, below 6 rows a group.
 *
 * Work of an insertion or removal: its row, and one set, 4 to 8 groups, whose rows are read. So no
 * request waits for more.
 *
 * Bits of the hash: 0-13 chose the slot (all rows of a server share few of them) and are not used;
 * 14-21 the tag; from 22 upwards the set; 49-63 the column.
 *
 * Memory: chunks of 2 MiB of addresses, aligned so that they can be huge pages. A chunk takes
 * memory a page at a time while it is the last one; a full one is made a huge page (advice, then
 * MADV_COLLAPSE where the kernel knows it), which makes a search in a large index a third faster.
 *
 * A find costs two cache misses, the group and the row's header. The batch form has three passes in
 * one loop, 16 rows apart: fetch the group, fetch the header of the first row with this tag,
 * compare. Rows that are elsewhere (one in seven) are put on a list and searched for afterwards,
 * fetched ahead too. One owner thread.
 */
#include "ps/store/index.h"

#include "common/alloc.h"
#include "common/hash.h"

#include <string.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define GROUP_ROWS 12
#define SET_SHIFT 22
#define COLUMN_SHIFT 49
#define COLUMN_BITS (64 - COLUMN_SHIFT)
#define COLUMNS_MAX 8u
#define CHUNK_SHIFT 15 /* groups of a chunk */
#define CHUNK_GROUPS ((size_t)1 << CHUNK_SHIFT)
#define CHUNK_BYTES (CHUNK_GROUPS * sizeof(group_t))
#define PAGE_GROUPS ((size_t)64) /* 4 KiB */
#define SLACK_PAGES 16           /* memory behind the last group that is not given back at once */
#define AHEAD 16
#define RING (4 * AHEAD)
#define RUN 512

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

typedef struct group {
    uint8_t tags[GROUP_ROWS]; /* 0: empty */
    uint16_t passed;          /* rows that found this group full and lie further on */
    uint16_t unused;
    ps_place_t places[GROUP_ROWS];
} group_t;

_Static_assert(sizeof(group_t) == 64, "a group is a cache line");
_Static_assert(CHUNK_BYTES == (size_t)2 << 20, "a chunk is a huge page");

/* A row whose home changes. */
typedef struct move {
    uint64_t hash;
    ps_place_t place;
    uint32_t from; /* home until now */
    uint32_t at;   /* where it lies */
} move_t;

struct ps_index {
    group_t **chunks;
    uint8_t *base;
    uint32_t set_mask; /* sets - 1 */
    uint32_t set_bits; /* log2 of the number of sets */
    uint32_t columns;  /* of sets that have not grown yet; 4 to 7, less in a small index */
    uint32_t n_grown;  /* sets below this have one column more */
    uint32_t n_groups; /* all sets' columns; homes are below, rows that went past may be above */
    uint32_t n_chunks; /* there are addresses for n_chunks * CHUNK_GROUPS groups */
    size_t
        pages_taken; /* pages of memory, from the first group on, that may have been written to */
    size_t count;
    move_t *moves;
    size_t n_moves, max_moves;
    uint16_t table;
};

static inline uint8_t tag_of(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 14);
    return tag != 0 ? tag : 1;
}

static inline uint32_t set_of(const ps_index_t *index, uint64_t hash)
{
    return (uint32_t)(hash >> SET_SHIFT) & index->set_mask;
}

/* The home in a set of this many columns. */
static inline uint32_t home_among(const ps_index_t *index, uint64_t hash, uint32_t columns)
{
    uint32_t x = (uint32_t)(hash >> COLUMN_SHIFT);
    uint32_t column = (x * columns) >> COLUMN_BITS;
    uint32_t half = (uint32_t)(hash >> SET_SHIFT >> index->set_bits) & 1;
    uint32_t paired = x >> (COLUMN_BITS - 2) << 1 | half;
    column = columns == COLUMNS_MAX ? paired : column;
    return column << index->set_bits | set_of(index, hash);
}

static inline uint32_t home_of(const ps_index_t *index, uint64_t hash)
{
    return home_among(index, hash, index->columns + (set_of(index, hash) < index->n_grown));
}

static inline group_t *group_at(const ps_index_t *index, uint32_t number)
{
    return &index->chunks[number >> CHUNK_SHIFT][number & (CHUNK_GROUPS - 1)];
}

/* Bit i: tags[i] == tag. */
static inline uint32_t match(const group_t *group, uint8_t tag)
{
#ifdef __SSE2__
    __m128i tags = _mm_load_si128((const __m128i *)(const void *)group);
    __m128i equal = _mm_cmpeq_epi8(tags, _mm_set1_epi8((char)tag));
    return (uint32_t)_mm_movemask_epi8(equal) & 0xfff;
#else
    uint32_t bits = 0;
    for (unsigned i = 0; i < GROUP_ROWS; i++)
        bits |= (uint32_t)(group->tags[i] == tag) << i;
    return bits;
#endif
}

/* ---- memory ---- */

/* 2 MiB of zeros at a multiple of 2 MiB; NULL: the system has no addresses. */
static group_t *chunk_map(void)
{
    uint8_t *mapping = mmap(NULL, 2 * CHUNK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    size_t before = (CHUNK_BYTES - (uintptr_t)mapping % CHUNK_BYTES) % CHUNK_BYTES;
    if (before != 0)
        (void)munmap(mapping, before);
    (void)munmap(mapping + before + CHUNK_BYTES, CHUNK_BYTES - before);
    return (group_t *)(void *)(mapping + before);
}

static bool chunk_add(ps_index_t *index)
{
    group_t **chunks =
        psc_realloc_array(index->chunks, (size_t)index->n_chunks + 1, sizeof *chunks);
    if (chunks == NULL)
        return false;
    index->chunks = chunks;
    chunks[index->n_chunks] = chunk_map();
    if (chunks[index->n_chunks] == NULL)
        return false;
    index->n_chunks++;
    return true;
}

/* Group `number` is going to be written to: addresses for it, and its pages counted. */
static bool reach(ps_index_t *index, uint32_t number)
{
    size_t pages = number / PAGE_GROUPS + 1;
    if (pages <= index->pages_taken)
        return true;
    while (number >> CHUNK_SHIFT >= index->n_chunks) {
        if (!chunk_add(index))
            return false;
        if (index->n_chunks > 1) { /* the one before is full: only advice */
            void *full = index->chunks[index->n_chunks - 2];
            (void)madvise(full, CHUNK_BYTES, MADV_HUGEPAGE);
            (void)madvise(full, CHUNK_BYTES, MADV_COLLAPSE);
        }
    }
    index->pages_taken = pages;
    return true;
}

/* Gives memory far behind the last group back. */
static void give_back(ps_index_t *index)
{
    uint32_t end = index->n_groups;
    if (index->pages_taken < end / PAGE_GROUPS + 2 * SLACK_PAGES)
        return;
    while (group_at(index, end - 1)->passed != 0) /* rows that lie behind the last group */
        end++;
    size_t keep = end / PAGE_GROUPS + SLACK_PAGES;
    if (keep >= index->pages_taken)
        return;
    while (((size_t)index->n_chunks - 1) * CHUNK_GROUPS >= keep * PAGE_GROUPS)
        (void)munmap(index->chunks[--index->n_chunks], CHUNK_BYTES);
    size_t from = keep * PAGE_GROUPS % CHUNK_GROUPS;
    if (keep * PAGE_GROUPS < (size_t)index->n_chunks * CHUNK_GROUPS)
        (void)madvise(&index->chunks[index->n_chunks - 1][from],
                      CHUNK_BYTES - from * sizeof(group_t), MADV_DONTNEED);
    index->pages_taken = keep;
}

psc_status_t ps_index_create(uint16_t table, uint8_t *base, ps_index_t **index_out,
                             psc_error_t *error)
{
    ps_index_t *index = psc_alloc_zeroed(1, sizeof *index);
    if (index == NULL)
        goto err;
    index->base = base;
    index->table = table;
    index->columns = 1;
    index->n_groups = 1;
    if (!reach(index, 0))
        goto err;
    *index_out = index;
    return PSC_OK;

err:
    ps_index_destroy(index);
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for the index of table %u",
                         (unsigned)table);
}

void ps_index_destroy(ps_index_t *index)
{
    if (index == NULL)
        return;
    for (uint32_t i = 0; i < index->n_chunks; i++)
        (void)munmap(index->chunks[i], CHUNK_BYTES);
    psc_free(index->chunks);
    psc_free(index->moves);
    psc_free(index);
}

size_t ps_index_count(const ps_index_t *index)
{
    return index->count;
}

size_t ps_index_bytes(const ps_index_t *index)
{
    return sizeof *index + index->n_chunks * sizeof(group_t *) +
           index->pages_taken * PAGE_GROUPS * sizeof(group_t) + index->max_moves * sizeof(move_t);
}

size_t ps_index_moved(const ps_index_t *index)
{
    return index->n_moves;
}

/* ---- searches ---- */

ps_place_t ps_index_find(const ps_index_t *index, uint64_t id, uint64_t hash)
{
    uint8_t tag = tag_of(hash);
    for (uint32_t at = home_of(index, hash);; at++) {
        const group_t *group = group_at(index, at);
        for (uint32_t bits = match(group, tag); bits != 0; bits &= bits - 1) {
            ps_place_t place = group->places[__builtin_ctz(bits)];
            if (ps_store_row(index->base, place)->id == id)
                return place;
        }
        if (group->passed == 0)
            return 0;
    }
}

/* Rows that are not the first with their tag in their home. Returns how many are not there. */
static size_t find_others(const ps_index_t *index, const uint64_t *ids, const uint64_t *hashes,
                          const uint16_t *list, size_t n, ps_place_t *places_out)
{
    for (size_t k = 0; k < n; k++) {
        uint64_t hash = hashes[list[k]];
        uint32_t at = home_of(index, hash);
        const group_t *group = group_at(index, at);
        for (uint32_t bits = match(group, tag_of(hash)); bits != 0; bits &= bits - 1)
            __builtin_prefetch(ps_store_row(index->base, group->places[__builtin_ctz(bits)]));
        if (group->passed != 0)
            __builtin_prefetch(group_at(index, at + 1));
    }
    for (size_t k = 0; k < n; k++) {
        uint64_t hash = hashes[list[k]];
        uint32_t at = home_of(index, hash);
        if (group_at(index, at)->passed == 0)
            continue;
        const group_t *group = group_at(index, at + 1);
        uint32_t bits = match(group, tag_of(hash));
        if (bits != 0)
            __builtin_prefetch(ps_store_row(index->base, group->places[__builtin_ctz(bits)]));
    }
    size_t n_missing = 0;
    for (size_t k = 0; k < n; k++) {
        ps_place_t place = ps_index_find(index, ids[list[k]], hashes[list[k]]);
        places_out[list[k]] = place;
        n_missing += place == 0;
    }
    return n_missing;
}

static size_t find_run(const ps_index_t *index, const uint64_t *ids, const uint64_t *hashes,
                       size_t n, ps_place_t *places_out)
{
    static const ps_row_header_t nowhere;
    const group_t *groups[RING];
    uint16_t others[RUN];
    size_t n_others = 0;
    for (size_t i = 0; i < n + (size_t)2 * AHEAD; i++) {
        if (i < n) {
            groups[i % RING] = group_at(index, home_of(index, hashes[i]));
            __builtin_prefetch(groups[i % RING]);
        }
        size_t k = i - AHEAD; /* out of range while i is small */
        if (k < n) {
            const group_t *group = groups[k % RING];
            uint32_t bits = match(group, tag_of(hashes[k]));
            ps_place_t place = bits != 0 ? group->places[__builtin_ctz(bits)] : 0;
            places_out[k] = place;
            __builtin_prefetch(ps_store_row(index->base, place));
        }
        k = i - (size_t)2 * AHEAD;
        if (k < n) {
            ps_place_t place = places_out[k];
            const ps_row_header_t *row = place != 0 ? ps_store_row(index->base, place) : &nowhere;
            others[n_others] = (uint16_t)k;
            n_others += row->id != ids[k] || place == 0;
        }
    }
    return n_others != 0 ? find_others(index, ids, hashes, others, n_others, places_out) : 0;
}

size_t ps_index_find_batch(const ps_index_t *index, const uint64_t *ids, const uint64_t *hashes,
                           size_t n, ps_place_t *places_out)
{
    size_t n_missing = 0;
    for (size_t i = 0; i < n; i += RUN) {
        size_t size = n - i < RUN ? n - i : RUN;
        n_missing += find_run(index, ids + i, hashes + i, size, places_out + i);
    }
    return n_missing;
}

/* ---- changes ---- */

/* False: no memory, and nothing changed. */
static bool add(ps_index_t *index, uint32_t home, uint64_t hash, ps_place_t place)
{
    uint32_t at = home, empty = 0;
    while (reach(index, at) && (empty = match(group_at(index, at), 0)) == 0)
        at++;
    if (empty == 0)
        return false;
    for (uint32_t passed = home; passed < at; passed++)
        group_at(index, passed)->passed++;
    group_t *group = group_at(index, at);
    group->tags[__builtin_ctz(empty)] = tag_of(hash);
    group->places[__builtin_ctz(empty)] = place;
    return true;
}

/* Takes a row of this home out of the group at which it lies; false: it does not lie there. */
static bool take_out(ps_index_t *index, uint32_t home, uint32_t at, uint64_t hash, ps_place_t place)
{
    group_t *group = group_at(index, at);
    uint32_t bits = match(group, tag_of(hash));
    while (bits != 0 && group->places[__builtin_ctz(bits)] != place)
        bits &= bits - 1;
    if (bits == 0)
        return false;
    group->tags[__builtin_ctz(bits)] = 0;
    group->places[__builtin_ctz(bits)] = 0;
    for (uint32_t passed = home; passed < at; passed++)
        group_at(index, passed)->passed--;
    return true;
}

static bool note_move(ps_index_t *index, move_t move)
{
    if (index->n_moves == index->max_moves) {
        size_t max = index->max_moves != 0 ? 2 * index->max_moves : 32;
        move_t *moves = psc_realloc_array(index->moves, max, sizeof *moves);
        if (moves == NULL)
            return false;
        index->moves = moves;
        index->max_moves = max;
    }
    index->moves[index->n_moves++] = move;
    return true;
}

static void fetch_groups(const ps_index_t *index, uint32_t set, uint32_t columns)
{
    for (uint32_t c = 0; c < columns; c++) {
        const group_t *group = group_at(index, c << index->set_bits | set);
        __builtin_prefetch(group);
        __builtin_prefetch(group + 1); /* it has rows that went past in two of five cases */
    }
}

/* The rows that note_moves will read. */
static void fetch_rows(const ps_index_t *index, uint32_t set, uint32_t columns)
{
    for (uint32_t c = 0; c < columns; c++) {
        const group_t *group;
        uint32_t at = c << index->set_bits | set;
        do {
            group = group_at(index, at++);
            for (unsigned i = 0; i < GROUP_ROWS; i++) /* of empty places: harmless */
                __builtin_prefetch(ps_store_row(index->base, group->places[i]));
        } while (group->passed != 0);
    }
}

/*
 * Notes the rows of a set whose home is another when it has new_columns. False: no memory.
 */
static bool note_moves(ps_index_t *index, uint32_t set, uint32_t columns, uint32_t new_columns)
{
    index->n_moves = 0;
    for (uint32_t c = 0; c < columns; c++) {
        uint32_t home = c << index->set_bits | set;
        const group_t *group;
        uint32_t at = home;
        do {
            group = group_at(index, at);
            for (unsigned i = 0; i < GROUP_ROWS; i++) {
                if (group->tags[i] == 0)
                    continue;
                ps_place_t place = group->places[i];
                uint64_t hash = psc_row_hash(index->table, ps_store_row(index->base, place)->id);
                if (home_of(index, hash) == home && home_among(index, hash, new_columns) != home &&
                    !note_move(index,
                               (move_t){.hash = hash, .place = place, .from = home, .at = at}))
                    return false;
            }
            at++;
        } while (group->passed != 0);
    }
    return true;
}

/*
 * Moves the rows of a set to where they belong when it has new_columns. The index counts its
 * columns as before yet. False: no memory, and nothing changed.
 */
static bool rehome(ps_index_t *index, uint32_t set, uint32_t columns, uint32_t new_columns)
{
    fetch_rows(index, set, columns);
    if (!note_moves(index, set, columns, new_columns))
        return false;
    /* Behind the last group there may be full ones already, and each row could lie there. */
    uint32_t end = index->n_groups;
    while (group_at(index, end - 1)->passed != 0)
        end++;
    if (!reach(index, end + (uint32_t)(index->n_moves / GROUP_ROWS) + 1))
        return false;
    for (size_t i = 0; i < index->n_moves; i++) {
        const move_t *move = &index->moves[i];
        PSC_BUG_ON(!take_out(index, move->from, move->at, move->hash, move->place));
    }
    for (size_t i = 0; i < index->n_moves; i++) {
        const move_t *move = &index->moves[i];
        PSC_BUG_ON(
            !add(index, home_among(index, move->hash, new_columns), move->hash, move->place));
    }
    return true;
}

/* One group more. False: no memory, and nothing changed. */
static bool grow(ps_index_t *index)
{
    if (!reach(index, index->n_groups) ||
        !rehome(index, index->n_grown, index->columns, index->columns + 1))
        return false;
    index->n_groups++;
    index->n_grown++;
    if (index->n_grown > index->set_mask) {
        index->n_grown = 0;
        index->columns++;
    }
    if (index->columns == COLUMNS_MAX) {
        index->columns = COLUMNS_MAX / 2;
        index->set_bits++;
        index->set_mask = 2 * index->set_mask + 1;
    }
    fetch_groups(index, index->n_grown, index->columns); /* for the next time */
    return true;
}

/* One group less. Without memory it stays as large as it is. */
static void shrink(ps_index_t *index)
{
    ps_index_t before = *index;
    if (index->n_grown == 0) {
        if (index->columns == COLUMNS_MAX / 2 && index->set_bits != 0) {
            index->columns = COLUMNS_MAX;
            index->set_bits--;
            index->set_mask /= 2;
        }
        index->columns--;
        index->n_grown = index->set_mask + 1;
    }
    if (!rehome(index, index->n_grown - 1, index->columns + 1, index->columns)) {
        index->columns = before.columns;
        index->set_bits = before.set_bits;
        index->set_mask = before.set_mask;
        index->n_grown = before.n_grown;
        return;
    }
    index->n_grown--;
    index->n_groups--;
    give_back(index);
}

psc_status_t ps_index_insert(ps_index_t *index, uint64_t hash, ps_place_t place, psc_error_t *error)
{
    index->n_moves = 0;
    bool full = index->count >= 9 * (size_t)index->n_groups;
    if ((full && !grow(index)) || !add(index, home_of(index, hash), hash, place))
        return psc_error_set(error, PSC_NO_MEMORY,
                             "out of memory for the index of table %u at %zu rows",
                             (unsigned)index->table, index->count);
    index->count++;
    return PSC_OK;
}

void ps_index_remove(ps_index_t *index, uint64_t hash, ps_place_t place)
{
    index->n_moves = 0;
    uint32_t home = home_of(index, hash);
    for (uint32_t at = home; !take_out(index, home, at, hash, place); at++)
        PSC_BUG_ON(group_at(index, at)->passed == 0);
    index->count--;
    if (index->n_groups > 1 && index->count < 6 * (size_t)index->n_groups)
        shrink(index);
}
