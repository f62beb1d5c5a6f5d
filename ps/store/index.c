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
 * is next. At 16 columns each set becomes two of 8, without a row moving: the lowest bit of the 16
 * columns is the bit of the hash that chooses between the two. So the rows of a group are 9 on
 * average, 9.6 before its set is next: 7.1 bytes a row at any size. To shrink is the same
 * backwards, below 6 rows a group.
 *
 * Work of an insertion or removal: its row, and one set, 8 to 16 groups, whose rows are read. So no
 * request waits for more. Fewer columns would be less work, and leave more rows out of their homes:
 * with 4 to 8 one in seven instead of one in twenty-five, and each costs several times as much to
 * find.
 *
 * Bits of the hash: 0-13 chose the slot (all rows of a server share few of them) and are not used;
 * 14-21 the tag; from 22 upwards the set; 49-63 the column.
 *
 * Memory: chunks of 2 MiB of addresses, aligned so that they can be huge pages. A chunk takes
 * memory a page at a time while it is the last one; a full one is made a huge page (advice, then
 * MADV_COLLAPSE where the kernel knows it), which makes a search in a large index a third faster.
 *
 * A find costs two cache misses, the group and the row's header: index_walk.h has the loop for
 * many. One owner thread.
 */
#include "ps/store/index.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/vectors.h"
#include "ps/store/index_walk.h"

#include <sys/mman.h>

#define GROUP_ROWS PS_INDEX_GROUP_ROWS
#define COLUMNS_MAX PS_INDEX_COLUMNS_MAX
#define CHUNK_SHIFT PS_INDEX_CHUNK_SHIFT
#define CHUNK_GROUPS PS_INDEX_CHUNK_GROUPS
#define CHUNK_BYTES (CHUNK_GROUPS * sizeof(ps_index_group_t))
#define PAGE_GROUPS ((size_t)64) /* 4 KiB */
#define SLACK_PAGES 16           /* memory behind the last group that is not given back at once */

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

_Static_assert(CHUNK_BYTES == (size_t)2 << 20, "a chunk is a huge page");

/* A row whose home changes. */
typedef struct ps_index_move {
    uint64_t hash;
    ps_place_t place;
    uint32_t from; /* home until now */
    uint32_t at;   /* where it lies */
} move_t;

/* ---- memory ---- */

/* 2 MiB of zeros at a multiple of 2 MiB; NULL: the system has no addresses. */
static ps_index_group_t *chunk_map(void)
{
    uint8_t *mapping = mmap(NULL, 2 * CHUNK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    size_t before = (CHUNK_BYTES - (uintptr_t)mapping % CHUNK_BYTES) % CHUNK_BYTES;
    if (before != 0)
        (void)munmap(mapping, before);
    (void)munmap(mapping + before + CHUNK_BYTES, CHUNK_BYTES - before);
    return (ps_index_group_t *)(void *)(mapping + before);
}

static bool chunk_add(ps_index_t *index)
{
    ps_index_group_t **chunks =
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
    while (ps_index_group(index, end - 1)->passed != 0) /* rows that lie behind the last group */
        end++;
    size_t keep = end / PAGE_GROUPS + SLACK_PAGES;
    if (keep >= index->pages_taken)
        return;
    while (((size_t)index->n_chunks - 1) * CHUNK_GROUPS >= keep * PAGE_GROUPS)
        (void)munmap(index->chunks[--index->n_chunks], CHUNK_BYTES);
    size_t from = keep * PAGE_GROUPS % CHUNK_GROUPS;
    if (keep * PAGE_GROUPS < (size_t)index->n_chunks * CHUNK_GROUPS)
        (void)madvise(&index->chunks[index->n_chunks - 1][from],
                      CHUNK_BYTES - from * sizeof(ps_index_group_t), MADV_DONTNEED);
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
    return sizeof *index + index->n_chunks * sizeof(ps_index_group_t *) +
           index->pages_taken * PAGE_GROUPS * sizeof(ps_index_group_t) +
           index->max_moves * sizeof(move_t);
}

size_t ps_index_moved(const ps_index_t *index)
{
    return index->n_moves;
}

/* ---- searches ---- */

ps_place_t ps_index_find(const ps_index_t *index, uint64_t id, uint64_t hash)
{
    uint8_t tag = ps_index_tag(hash);
    for (uint32_t at = ps_index_home(index, hash);; at++) {
        const ps_index_group_t *group = ps_index_group(index, at);
        for (uint32_t bits = ps_index_match(group, tag); bits != 0; bits &= bits - 1) {
            ps_place_t place = group->places[__builtin_ctz(bits)];
            if (ps_store_row(index->base, place)->id == id)
                return place;
        }
        if (group->passed == 0)
            return 0;
    }
}

static void note_place(void *context, size_t i, ps_place_t place, ps_row_header_t *row)
{
    (void)row;
    ps_place_t *places = context;
    places[i] = place;
}

PSC_MULTIVERSION
size_t ps_index_find_batch(const ps_index_t *index, const uint64_t *ids, const uint64_t *hashes,
                           size_t n, ps_place_t *places_out)
{
    size_t n_missing = 0;
    for (size_t i = 0; i < n; i += PS_WALK_MAX) {
        const ps_index_walk_t walk = {.index = index,
                                      .ids = ids + i,
                                      .hashes = hashes + i,
                                      .n = n - i < PS_WALK_MAX ? n - i : PS_WALK_MAX,
                                      .n_lines = 1,
                                      .run = PS_WALK_RUN_HEADERS};
        n_missing += ps_index_walk(&walk, note_place, places_out + i);
    }
    return n_missing;
}

/* ---- changes ---- */

/* False: no memory, and nothing changed. */
static bool add(ps_index_t *index, uint32_t home, uint64_t hash, ps_place_t place)
{
    uint32_t at = home, empty = 0;
    while (reach(index, at) && (empty = ps_index_match(ps_index_group(index, at), 0)) == 0)
        at++;
    if (empty == 0)
        return false;
    for (uint32_t passed = home; passed < at; passed++)
        ps_index_group(index, passed)->passed++;
    ps_index_group_t *group = ps_index_group(index, at);
    group->tags[__builtin_ctz(empty)] = ps_index_tag(hash);
    group->places[__builtin_ctz(empty)] = place;
    return true;
}

/* Takes a row of this home out of the group at which it lies; false: it does not lie there. */
static bool take_out(ps_index_t *index, uint32_t home, uint32_t at, uint64_t hash, ps_place_t place)
{
    ps_index_group_t *group = ps_index_group(index, at);
    uint32_t bits = ps_index_match(group, ps_index_tag(hash));
    while (bits != 0 && group->places[__builtin_ctz(bits)] != place)
        bits &= bits - 1;
    if (bits == 0)
        return false;
    group->tags[__builtin_ctz(bits)] = 0;
    group->places[__builtin_ctz(bits)] = 0;
    for (uint32_t passed = home; passed < at; passed++)
        ps_index_group(index, passed)->passed--;
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
        const ps_index_group_t *group = ps_index_group(index, c << index->set_bits | set);
        __builtin_prefetch(group);
        __builtin_prefetch(group + 1); /* it has rows that went past in two of five cases */
    }
}

/* The rows that note_moves will read. */
static void fetch_rows(const ps_index_t *index, uint32_t set, uint32_t columns)
{
    for (uint32_t c = 0; c < columns; c++) {
        const ps_index_group_t *group;
        uint32_t at = c << index->set_bits | set;
        do {
            group = ps_index_group(index, at++);
            for (unsigned i = 0; i < GROUP_ROWS; i++) /* of empty places: harmless */
                __builtin_prefetch(ps_store_row(index->base, group->places[i]));
        } while (group->passed != 0);
    }
}

/*
 * Notes the rows of a set whose home is another when it has new_columns, and those that are not in
 * their home: there may be room for them now. False: no memory.
 */
static bool note_moves(ps_index_t *index, uint32_t set, uint32_t columns, uint32_t new_columns)
{
    index->n_moves = 0;
    for (uint32_t c = 0; c < columns; c++) {
        uint32_t home = c << index->set_bits | set;
        const ps_index_group_t *group;
        uint32_t at = home;
        do {
            group = ps_index_group(index, at);
            for (unsigned i = 0; i < GROUP_ROWS; i++) {
                if (group->tags[i] == 0)
                    continue;
                ps_place_t place = group->places[i];
                uint64_t hash = psc_row_hash(index->table, ps_store_row(index->base, place)->id);
                if (ps_index_home(index, hash) != home)
                    continue;
                if (at == home && ps_index_home_among(index, hash, new_columns) == home)
                    continue;
                if (!note_move(index,
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
    while (ps_index_group(index, end - 1)->passed != 0)
        end++;
    if (!reach(index, end + (uint32_t)(index->n_moves / GROUP_ROWS) + 1))
        return false;
    for (size_t i = 0; i < index->n_moves; i++) {
        const move_t *move = &index->moves[i];
        PSC_BUG_ON(!take_out(index, move->from, move->at, move->hash, move->place));
    }
    for (size_t i = 0; i < index->n_moves; i++) {
        const move_t *move = &index->moves[i];
        PSC_BUG_ON(!add(index, ps_index_home_among(index, move->hash, new_columns), move->hash,
                        move->place));
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
    if ((full && !grow(index)) || !add(index, ps_index_home(index, hash), hash, place))
        return psc_error_set(error, PSC_NO_MEMORY,
                             "out of memory for the index of table %u at %zu rows",
                             (unsigned)index->table, index->count);
    index->count++;
    return PSC_OK;
}

void ps_index_remove(ps_index_t *index, uint64_t hash, ps_place_t place)
{
    index->n_moves = 0;
    uint32_t home = ps_index_home(index, hash);
    for (uint32_t at = home; !take_out(index, home, at, hash, place); at++)
        PSC_BUG_ON(ps_index_group(index, at)->passed == 0);
    index->count--;
    if (index->n_groups > 1 && index->count < 6 * (size_t)index->n_groups)
        shrink(index);
}
