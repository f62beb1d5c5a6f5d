/*
 * A hash index in two levels.
 *
 * The top bits of a row's hash choose a segment through a directory that doubles when a segment
 * that is too large splits (extendible hashing: Fagin et al. 1979). A segment is an array of groups
 * of one cache line: 12 tags of one byte, 12 places of four. A row lies in its home group or, when
 * that is full, in the next one with room; a group counts the rows that went past it, so that a
 * search stops where none did, and deletion leaves no tombstones (as in F14, Bronson and Shi 2019).
 *
 * Bits of the hash: 0-13 chose the slot (all rows of a server share few of them) and are not used;
 * 14-21 the tag; 22-45 the group; from 63 downwards the directory.
 *
 * The number of groups is not a power of two: a segment grows by a quarter, so that it is 66 to 83%
 * full, 6.4 to 8 bytes a row; and shrinks when it is below 40%. Growth, shrinking and splitting
 * touch one segment, at most SEGMENT_MAX_ROWS rows, about 0.3 ms: this is the longest that an
 * insertion takes.
 *
 * A find costs two cache misses, the group and the row's header. The batch form prefetches both for
 * 32 rows at a time. One owner thread.
 */
#include "ps/store/index.h"

#include "common/alloc.h"
#include "common/hash.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define GROUP_ROWS 12
#define GROUP_FULL 10 /* rows per group at which a segment grows */
#define SEGMENT_MAX_ROWS 16384
#define MAX_DEPTH 18
#define BLOCK 32

typedef struct group {
    uint8_t tags[GROUP_ROWS]; /* 0: empty */
    uint16_t passed;          /* rows that found this group full and lie further on */
    uint16_t unused;
    ps_place_t places[GROUP_ROWS];
} group_t;

_Static_assert(sizeof(group_t) == 64, "a group is a cache line");

typedef struct segment {
    group_t *groups;
    uint32_t n_groups;
    uint32_t count;
    uint32_t depth; /* directory bits that all rows here share */
} segment_t;

struct ps_index {
    uint8_t *base;
    uint16_t table;
    uint32_t depth;        /* the directory has 2^depth entries */
    segment_t **directory; /* runs of 2^(depth - segment depth) entries share a segment */
    size_t count;
    size_t bytes;
};

static inline uint8_t tag_of(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 14);
    return tag != 0 ? tag : 1;
}

static inline uint32_t home_of(uint64_t hash, uint32_t n_groups)
{
    return (uint32_t)((((hash >> 22) & 0xffffff) * n_groups) >> 24);
}

static inline size_t entry_of(uint64_t hash, uint32_t depth)
{
    return depth != 0 ? (size_t)(hash >> (64 - depth)) : 0;
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

static group_t *groups_create(uint32_t n)
{
    group_t *groups = psc_alloc_aligned(n * sizeof *groups);
    if (groups != NULL)
        memset(groups, 0, n * sizeof *groups);
    return groups;
}

static segment_t *segment_create(ps_index_t *index, uint32_t n_groups, uint32_t depth)
{
    segment_t *segment = psc_alloc_zeroed(1, sizeof *segment);
    if (segment == NULL)
        return NULL;
    segment->groups = groups_create(n_groups);
    if (segment->groups == NULL) {
        psc_free(segment);
        return NULL;
    }
    segment->n_groups = n_groups;
    segment->depth = depth;
    index->bytes += sizeof *segment + n_groups * sizeof(group_t);
    return segment;
}

static void segment_destroy(ps_index_t *index, segment_t *segment)
{
    index->bytes -= sizeof *segment + segment->n_groups * sizeof(group_t);
    psc_free(segment->groups);
    psc_free(segment);
}

psc_status_t ps_index_create(uint16_t table, uint8_t *base, ps_index_t **index_out,
                             psc_error_t *error)
{
    ps_index_t *index = psc_alloc_zeroed(1, sizeof *index);
    if (index == NULL)
        goto err;
    index->base = base;
    index->table = table;
    index->directory = psc_alloc_array(1, sizeof(segment_t *));
    if (index->directory == NULL)
        goto err_index;
    index->bytes = sizeof *index + sizeof(segment_t *);
    index->directory[0] = segment_create(index, 1, 0);
    if (index->directory[0] == NULL)
        goto err_directory;
    *index_out = index;
    return PSC_OK;

err_directory:
    psc_free(index->directory);
err_index:
    psc_free(index);
err:
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for the index of table %u",
                         (unsigned)table);
}

void ps_index_destroy(ps_index_t *index)
{
    if (index == NULL)
        return;
    size_t n = (size_t)1 << index->depth;
    for (size_t i = 0; i < n;) {
        segment_t *segment = index->directory[i];
        i += (size_t)1 << (index->depth - segment->depth);
        segment_destroy(index, segment);
    }
    psc_free(index->directory);
    psc_free(index);
}

static inline segment_t *segment_of(const ps_index_t *index, uint64_t hash)
{
    return index->directory[entry_of(hash, index->depth)];
}

ps_place_t ps_index_find(const ps_index_t *index, uint64_t id, uint64_t hash)
{
    const segment_t *segment = segment_of(index, hash);
    uint8_t tag = tag_of(hash);
    uint32_t at = home_of(hash, segment->n_groups);
    /* In a small segment rows may have gone past every group: once round is enough. */
    for (uint32_t left = segment->n_groups; left > 0; left--) {
        const group_t *group = &segment->groups[at];
        for (uint32_t bits = match(group, tag); bits != 0; bits &= bits - 1) {
            ps_place_t place = group->places[__builtin_ctz(bits)];
            if (ps_store_row(index->base, place)->id == id)
                return place;
        }
        if (group->passed == 0)
            return 0;
        if (++at == segment->n_groups)
            at = 0;
    }
    return 0;
}

static size_t find_block(const ps_index_t *index, const uint64_t *ids, const uint64_t *hashes,
                         size_t n, ps_place_t *places_out)
{
    const group_t *groups[BLOCK];
    for (size_t i = 0; i < n; i++) {
        const segment_t *segment = segment_of(index, hashes[i]);
        groups[i] = &segment->groups[home_of(hashes[i], segment->n_groups)];
        __builtin_prefetch(groups[i]);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = match(groups[i], tag_of(hashes[i]));
        ps_place_t place = bits != 0 ? groups[i]->places[__builtin_ctz(bits)] : 0;
        places_out[i] = place;
        if (place != 0)
            __builtin_prefetch(ps_store_row(index->base, place));
    }
    size_t n_missing = 0;
    for (size_t i = 0; i < n; i++) {
        ps_place_t place = places_out[i];
        if (place != 0 && ps_store_row(index->base, place)->id == ids[i])
            continue;
        if (place != 0 || groups[i]->passed != 0) /* another with this tag, or further on */
            places_out[i] = ps_index_find(index, ids[i], hashes[i]);
        n_missing += places_out[i] == 0;
    }
    return n_missing;
}

size_t ps_index_find_batch(const ps_index_t *index, const uint64_t *ids, const uint64_t *hashes,
                           size_t n, ps_place_t *places_out)
{
    size_t n_missing = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t size = n - i < BLOCK ? n - i : BLOCK;
        n_missing += find_block(index, ids + i, hashes + i, size, places_out + i);
    }
    return n_missing;
}

/* There is room. */
static void segment_add(segment_t *segment, uint64_t hash, ps_place_t place)
{
    uint32_t at = home_of(hash, segment->n_groups);
    for (;;) {
        group_t *group = &segment->groups[at];
        uint32_t empty = match(group, 0);
        if (empty != 0) {
            int i = __builtin_ctz(empty);
            group->tags[i] = tag_of(hash);
            group->places[i] = place;
            segment->count++;
            return;
        }
        group->passed++;
        if (++at == segment->n_groups)
            at = 0;
    }
}

/* Groups for a segment of this many rows, with a fifth to grow. */
static uint32_t groups_for(size_t count)
{
    return (uint32_t)(count / 8 + 1);
}

/* Puts all rows of `from` into one of two segments, by the hash bit at `depth` (both may be one).
 */
static void move_rows(const ps_index_t *index, const segment_t *from, uint32_t depth,
                      segment_t *zero, segment_t *one)
{
    for (uint32_t g = 0; g < from->n_groups; g++) {
        if (g + 4 < from->n_groups) {
            const group_t *ahead = &from->groups[g + 4];
            for (unsigned i = 0; i < GROUP_ROWS; i++)
                if (ahead->tags[i] != 0)
                    __builtin_prefetch(ps_store_row(index->base, ahead->places[i]));
        }
        const group_t *group = &from->groups[g];
        for (unsigned i = 0; i < GROUP_ROWS; i++) {
            if (group->tags[i] == 0)
                continue;
            ps_place_t place = group->places[i];
            uint64_t hash = psc_row_hash(index->table, ps_store_row(index->base, place)->id);
            segment_add(hash >> (63 - depth) & 1 ? one : zero, hash, place);
        }
    }
}

/* False: no memory, and nothing changed. */
static bool segment_resize(ps_index_t *index, segment_t *segment, uint32_t n_groups)
{
    segment_t resized = {.n_groups = n_groups, .depth = segment->depth};
    resized.groups = groups_create(n_groups);
    if (resized.groups == NULL)
        return false;
    move_rows(index, segment, segment->depth, &resized, &resized);
    psc_free(segment->groups);
    index->bytes += n_groups * sizeof(group_t);
    index->bytes -= segment->n_groups * sizeof(group_t);
    *segment = resized;
    return true;
}

static bool directory_double(ps_index_t *index)
{
    size_t n = (size_t)1 << index->depth;
    segment_t **directory = psc_realloc_array(index->directory, 2 * n, sizeof *directory);
    if (directory == NULL)
        return false;
    for (size_t i = n; i-- > 0;)
        directory[2 * i] = directory[2 * i + 1] = directory[i];
    index->directory = directory;
    index->depth++;
    index->bytes += n * sizeof *directory;
    return true;
}

/* Splits the segment of this hash in two. False: no memory, and nothing lost. */
static bool segment_split(ps_index_t *index, segment_t *segment, uint64_t hash)
{
    if (segment->depth == index->depth && !directory_double(index))
        return false;
    /* Either half might get nearly all rows; both get room for what they then have. */
    size_t ones = 0;
    uint32_t depth = segment->depth;
    for (uint32_t g = 0; g < segment->n_groups; g++)
        for (unsigned i = 0; i < GROUP_ROWS; i++)
            if (segment->groups[g].tags[i] != 0) {
                uint64_t id = ps_store_row(index->base, segment->groups[g].places[i])->id;
                ones += psc_row_hash(index->table, id) >> (63 - depth) & 1;
            }
    segment_t *zero = segment_create(index, groups_for(segment->count - ones), depth + 1);
    segment_t *one = zero != NULL ? segment_create(index, groups_for(ones), depth + 1) : NULL;
    if (one == NULL) {
        if (zero != NULL)
            segment_destroy(index, zero);
        return false;
    }
    move_rows(index, segment, depth, zero, one);
    size_t run = (size_t)1 << (index->depth - depth); /* entries that shared it */
    size_t first = entry_of(hash, index->depth) / run * run;
    for (size_t i = 0; i < run; i++)
        index->directory[first + i] = i < run / 2 ? zero : one;
    segment_destroy(index, segment);
    return true;
}

psc_status_t ps_index_insert(ps_index_t *index, uint64_t hash, ps_place_t place, psc_error_t *error)
{
    segment_t *segment = segment_of(index, hash);
    while (segment->count >= segment->n_groups * GROUP_FULL) {
        bool split = segment->count >= SEGMENT_MAX_ROWS && segment->depth < MAX_DEPTH;
        bool ok =
            split ? segment_split(index, segment, hash)
                  : segment_resize(index, segment, segment->n_groups + segment->n_groups / 4 + 1);
        if (!ok)
            return psc_error_set(error, PSC_NO_MEMORY,
                                 "out of memory for the index of table %u at %zu rows",
                                 (unsigned)index->table, index->count);
        segment = segment_of(index, hash);
    }
    segment_add(segment, hash, place);
    index->count++;
    return PSC_OK;
}

void ps_index_remove(ps_index_t *index, uint64_t hash, ps_place_t place)
{
    segment_t *segment = segment_of(index, hash);
    uint32_t at = home_of(hash, segment->n_groups);
    for (;;) {
        group_t *group = &segment->groups[at];
        uint32_t bits = match(group, tag_of(hash));
        while (bits != 0 && group->places[__builtin_ctz(bits)] != place)
            bits &= bits - 1;
        if (bits != 0) {
            group->tags[__builtin_ctz(bits)] = 0;
            group->places[__builtin_ctz(bits)] = 0;
            break;
        }
        PSC_BUG_ON(group->passed == 0);
        group->passed--;
        if (++at == segment->n_groups)
            at = 0;
    }
    index->count--;
    segment->count--;
    /* Without memory it stays as large as it is. */
    if (segment->n_groups > 8 && segment->count * 5 < segment->n_groups * GROUP_ROWS * 2)
        (void)segment_resize(index, segment, groups_for(segment->count));
}

size_t ps_index_count(const ps_index_t *index)
{
    return index->count;
}

size_t ps_index_bytes(const ps_index_t *index)
{
    return index->bytes;
}
