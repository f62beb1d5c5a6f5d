/*
 * The loop that finds many rows, for those who do something with each at once. For the files of the
 * store alone; index.c says how groups are laid out.
 *
 * A row costs two places in memory that nobody could foresee, its group and its record, so three
 * stages run in one loop, a few rows at a time, each on rows whose memory was asked for some rows
 * before:
 *
 *     group    ask for the home group
 *     record   compare the tags, ask for the record of the first row that has this tag
 *     visit    compare the id in the header
 *
 * A row whose id is not there yet has the next one of its tag looked at (one in thirty), and after
 * that goes on a list: it lies behind its home, or nowhere (one in twenty, when all are in memory).
 * The list is walked the same way at the end, with the group behind the home instead.
 */
#ifndef PS_STORE_INDEX_WALK_H
#define PS_STORE_INDEX_WALK_H

#include "ps/store/fetch.h"
#include "ps/store/index.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define PS_INDEX_GROUP_ROWS 12
#define PS_INDEX_SET_SHIFT 22
#define PS_INDEX_COLUMN_SHIFT 49
#define PS_INDEX_COLUMN_BITS (64 - PS_INDEX_COLUMN_SHIFT)
#define PS_INDEX_COLUMNS_MAX 16u
#define PS_INDEX_CHUNK_SHIFT 15 /* groups of a chunk */
#define PS_INDEX_CHUNK_GROUPS ((size_t)1 << PS_INDEX_CHUNK_SHIFT)

#define PS_WALK_BEHIND 3u /* runs from group to visit */
#define PS_WALK_RING 4u   /* runs that are under way */
/* Rows of a run: together they wait for about as many lines as the processor can wait for. */
#define PS_WALK_RUN_HEADERS 16u /* of each a group and the first line of its record are fetched */
#define PS_WALK_RUN_RECORDS 4u  /* the record as well */
#define PS_WALK_MAX 1024u       /* rows of one walk */

typedef struct ps_index_group {
    uint8_t tags[PS_INDEX_GROUP_ROWS]; /* 0: empty */
    uint16_t passed;                   /* rows that found this group full and lie further on */
    uint16_t unused;
    ps_place_t places[PS_INDEX_GROUP_ROWS];
} ps_index_group_t;

_Static_assert(sizeof(ps_index_group_t) == PS_FETCH_LINE, "a group is a cache line");

struct ps_index_move;

struct ps_index {
    ps_index_group_t **chunks;
    uint8_t *base;
    uint32_t set_mask;  /* sets - 1 */
    uint32_t set_bits;  /* log2 of the number of sets */
    uint32_t columns;   /* of sets that have not grown yet; 8 to 15, less in a small index */
    uint32_t n_grown;   /* sets below this have one column more */
    uint32_t n_groups;  /* all sets' columns; homes are below, rows that went past may be above */
    uint32_t n_chunks;  /* there are addresses for n_chunks * PS_INDEX_CHUNK_GROUPS groups */
    size_t pages_taken; /* pages of memory, from the first group on, that may have been written */
    size_t count;
    struct ps_index_move *moves;
    size_t n_moves, max_moves;
    uint16_t table;
};

PSC_INLINE uint8_t ps_index_tag(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 14);
    return tag != 0 ? tag : 1;
}

PSC_INLINE uint32_t ps_index_set(const ps_index_t *index, uint64_t hash)
{
    return (uint32_t)(hash >> PS_INDEX_SET_SHIFT) & index->set_mask;
}

/* The home in a set of this many columns. */
PSC_INLINE uint32_t ps_index_home_among(const ps_index_t *index, uint64_t hash, uint32_t columns)
{
    uint32_t x = (uint32_t)(hash >> PS_INDEX_COLUMN_SHIFT);
    uint32_t column = (x * columns) >> PS_INDEX_COLUMN_BITS;
    uint32_t half = (uint32_t)(hash >> PS_INDEX_SET_SHIFT >> index->set_bits) & 1;
    uint32_t paired = x >> (PS_INDEX_COLUMN_BITS - 3) << 1 | half;
    column = columns == PS_INDEX_COLUMNS_MAX ? paired : column;
    return column << index->set_bits | ps_index_set(index, hash);
}

PSC_INLINE uint32_t ps_index_home(const ps_index_t *index, uint64_t hash)
{
    uint32_t columns = index->columns + (ps_index_set(index, hash) < index->n_grown);
    return ps_index_home_among(index, hash, columns);
}

PSC_INLINE ps_index_group_t *ps_index_group(const ps_index_t *index, uint32_t number)
{
    return &index->chunks[number >> PS_INDEX_CHUNK_SHIFT][number & (PS_INDEX_CHUNK_GROUPS - 1)];
}

/* Bit i: tags[i] == tag. */
PSC_INLINE uint32_t ps_index_match(const ps_index_group_t *group, uint8_t tag)
{
#ifdef __SSE2__
    __m128i tags = _mm_load_si128((const __m128i *)(const void *)group);
    __m128i equal = _mm_cmpeq_epi8(tags, _mm_set1_epi8((char)tag));
    return (uint32_t)_mm_movemask_epi8(equal) & 0xfff;
#else
    uint32_t bits = 0;
    for (unsigned i = 0; i < PS_INDEX_GROUP_ROWS; i++)
        bits |= (uint32_t)(group->tags[i] == tag) << i;
    return bits;
#endif
}

/* ---- the walk ---- */

/* What is done with row i of the walk; row NULL: it is not there. Inlined. */
typedef void (*ps_index_visit_fn)(void *context, size_t i, ps_place_t place, ps_row_header_t *row);

typedef struct ps_index_walk {
    const ps_index_t *index;
    const uint64_t *ids, *hashes; /* [n] */
    size_t n;                     /* at most PS_WALK_MAX */
    size_t n_lines;               /* of a record, to be fetched */
    size_t run;                   /* rows that a stage takes at a time: PS_WALK_RUN_... */
} ps_index_walk_t;

/* The rows under way: of each its home group, the first place with its tag, and the other bits. */
typedef struct ps_walk_ring {
    const ps_index_group_t *groups[PS_WALK_RING][PS_WALK_RUN_HEADERS];
    ps_place_t places[PS_WALK_RING][PS_WALK_RUN_HEADERS]; /* 0: none has the tag */
    uint32_t more[PS_WALK_RING][PS_WALK_RUN_HEADERS];
} ps_walk_ring_t;

PSC_INLINE void ps_walk_groups(const ps_index_walk_t *walk, ps_walk_ring_t *ring, size_t run,
                               size_t n)
{
    const uint64_t *hashes = walk->hashes + run * walk->run;
    for (size_t j = 0; j < n; j++) {
        const ps_index_group_t *group =
            ps_index_group(walk->index, ps_index_home(walk->index, hashes[j]));
        ring->groups[run % PS_WALK_RING][j] = group;
        __builtin_prefetch(group);
    }
}

PSC_INLINE void ps_walk_records(const ps_index_walk_t *walk, ps_walk_ring_t *ring, size_t run,
                                size_t n)
{
    const uint64_t *hashes = walk->hashes + run * walk->run;
    for (size_t j = 0; j < n; j++) {
        const ps_index_group_t *group = ring->groups[run % PS_WALK_RING][j];
        uint32_t bits = ps_index_match(group, ps_index_tag(hashes[j]));
        uint32_t more = bits & (bits - 1);
        ps_place_t place = group->places[__builtin_ctz(bits | 0x800)];
        place = bits != 0 ? place : 0;
        ring->places[run % PS_WALK_RING][j] = place;
        ring->more[run % PS_WALK_RING][j] = more;
        ps_fetch_record(walk->index->base, place, walk->n_lines, false);
        for (; __builtin_expect(more != 0, 0); more &= more - 1)
            __builtin_prefetch(ps_store_row(walk->index->base, group->places[__builtin_ctz(more)]));
    }
}

/* Visits the rows of a run that are in their homes; the others go on the list. Returns its new
 * length. */
PSC_INLINE size_t ps_walk_visit(const ps_index_walk_t *walk, const ps_walk_ring_t *ring, size_t run,
                                size_t n, ps_index_visit_fn visit, void *context, uint16_t *others,
                                size_t n_others)
{
    for (size_t j = 0; j < n; j++) {
        const size_t i = run * walk->run + j;
        ps_place_t place = ring->places[run % PS_WALK_RING][j];
        ps_row_header_t *row = ps_store_row(walk->index->base, place);
        if (__builtin_expect(place == 0 || row->id != walk->ids[i], 0)) {
            const ps_index_group_t *group = ring->groups[run % PS_WALK_RING][j];
            uint32_t more = ring->more[run % PS_WALK_RING][j];
            for (; more != 0; more &= more - 1) {
                place = group->places[__builtin_ctz(more)];
                row = ps_store_row(walk->index->base, place);
                if (row->id == walk->ids[i])
                    break;
            }
            if (more == 0) {
                others[n_others++] = (uint16_t)i;
                continue;
            }
        }
        visit(context, i, place, row);
    }
    return n_others;
}

/* Rows that are not in their homes. */
PSC_INLINE size_t ps_walk_others(const ps_index_walk_t *walk, ps_index_visit_fn visit,
                                 void *context, uint16_t *others, size_t n_others)
{
    const ps_index_t *index = walk->index;
    ps_place_t places[PS_WALK_MAX];
    size_t n_missing = 0, n = 0;
    for (size_t k = 0; k < n_others; k++) {
        uint32_t home = ps_index_home(index, walk->hashes[others[k]]);
        if (ps_index_group(index, home)->passed == 0) {
            visit(context, others[k], 0, NULL);
            n_missing++;
            continue;
        }
        __builtin_prefetch(ps_index_group(index, home + 1));
        others[n++] = others[k];
    }
    for (size_t k = 0; k < n; k++) {
        uint64_t hash = walk->hashes[others[k]];
        const ps_index_group_t *group = ps_index_group(index, ps_index_home(index, hash) + 1);
        uint32_t bits = ps_index_match(group, ps_index_tag(hash));
        places[k] = bits != 0 ? group->places[__builtin_ctz(bits)] : 0;
        ps_fetch_record(index->base, places[k], walk->n_lines, false);
    }
    for (size_t k = 0; k < n; k++) {
        const size_t i = others[k];
        ps_place_t place = places[k];
        if (place == 0 || ps_store_row(index->base, place)->id != walk->ids[i])
            place = ps_index_find(index, walk->ids[i], walk->hashes[i]);
        visit(context, i, place, place != 0 ? ps_store_row(index->base, place) : NULL);
        n_missing += place == 0;
    }
    return n_missing;
}

/* Visits all rows of the walk, most of them in order. Returns how many are not there. */
PSC_INLINE size_t ps_index_walk(const ps_index_walk_t *walk, ps_index_visit_fn visit, void *context)
{
    ps_walk_ring_t ring;
    uint16_t others[PS_WALK_MAX];
    size_t n_others = 0;
    const size_t whole = walk->n / walk->run, rest = walk->n % walk->run;
    for (size_t run = 0; run < whole + PS_WALK_BEHIND; run++) {
        if (run < whole)
            ps_walk_groups(walk, &ring, run, walk->run);
        if (run - 1 < whole) /* out of range at first */
            ps_walk_records(walk, &ring, run - 1, walk->run);
        if (run - PS_WALK_BEHIND < whole)
            n_others = ps_walk_visit(walk, &ring, run - PS_WALK_BEHIND, walk->run, visit, context,
                                     others, n_others);
    }
    if (rest != 0) {
        ps_walk_groups(walk, &ring, whole, rest);
        ps_walk_records(walk, &ring, whole, rest);
        n_others = ps_walk_visit(walk, &ring, whole, rest, visit, context, others, n_others);
    }
    return n_others != 0 ? ps_walk_others(walk, visit, context, others, n_others) : 0;
}

#endif
