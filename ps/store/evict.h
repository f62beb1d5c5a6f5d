/*
 * Which rows stay in memory. All of the policy is here: what a use leaves in header.policy, and
 * which row, or which page of rows, goes next. Another policy replaces this module alone.
 *
 *     ps_evict_touch(row);                                  // at each use
 *     place = ps_evict_choose(slab, class_id, evict);       // no room: this row goes
 *     ps_evict_admit(evict, row, place, hash);              // a row came in
 *     ps_evict_announce(evict, row, place, hash);           // or came in ahead of its use
 *
 * Sources: the small queue of newcomers and the memory of those that left come from S3-FIFO (Yang
 * et al., "FIFO queues are all you need for cache eviction", SOSP 2023), that the queue's length
 * follows what comes back from ARC (Megiddo, Modha, FAST 2003), the rest is generalized CLOCK
 * (Smith 1978). tests/bench/policy compares it with others.
 */
#ifndef PS_STORE_EVICT_H
#define PS_STORE_EVICT_H

#include "ps/store/slab.h"

#define PS_EVICT_MAX_USES 7u

/* header.policy: uses since the hand came by, and whether the row is a newcomer. */
#define PS_EVICT_USES 0x07u
#define PS_EVICT_NEWCOMER 0x80u
#define PS_EVICT_AHEAD 0x40u /* is here before its use, which has not come yet */

/* One of so many rows of a class may be here ahead of its use. */
#define PS_EVICT_AHEAD_SHARE 10

/* What this takes for each row of a class beside the header, at the most; for budgets. It is 3/4
 * byte mostly, and always from a million rows on. */
#define PS_EVICT_ROW_BYTES 2

/* One line of the memory of rows that left; see evict.c. */
typedef struct ps_evict_line {
    uint32_t epoch;
    uint32_t bits[15];
} ps_evict_line_t;

/* The state of one class. All zero at first; ps_evict_clear at the end. */
typedef struct ps_evict_class {
    uint32_t page; /* where the hand stands; 0: at the first page */
    uint32_t record;

    size_t sized_for;      /* records that what follows was made for; 0: nothing was made */
    ps_place_t *newcomers; /* ring of [n_ring] */
    uint32_t n_ring;       /* 0: no memory for them */
    uint32_t oldest, n_newcomers;
    uint32_t share; /* newcomers that there may be before the oldest goes */

    ps_evict_line_t *left; /* two halves of n_lines; NULL: nothing is remembered */
    uint32_t n_lines;
    uint32_t epoch;            /* even: the first half is being filled */
    uint32_t n_left, max_left; /* rows in that half */

    ps_place_t
        *ahead; /* ring of [n_ahead_ring], in the order of arrival; NULL: nothing was ahead */
    uint32_t n_ahead_ring;
    uint32_t ahead_oldest, n_ahead;
} ps_evict_class_t;

/* Frees what the class holds. */
void ps_evict_clear(ps_evict_class_t *evict);

/* The row was used. Writes only while the counter still grows, so hot rows' lines stay clean. */
static inline void ps_evict_touch(ps_row_header_t *row)
{
    if ((row->policy & PS_EVICT_USES) >= PS_EVICT_MAX_USES)
        return;
    /* The first use of a row that came ahead of it is the one that would have brought it in. */
    if ((row->policy & PS_EVICT_AHEAD) != 0)
        row->policy &= (uint8_t)~PS_EVICT_AHEAD;
    else
        row->policy++;
}

/* The row is new in memory. hash: psc_row_hash of it. */
void ps_evict_admit(ps_evict_class_t *evict, ps_row_header_t *row, ps_place_t place, uint64_t hash);

/*
 * Rows that come in ahead of their use, and rows that are there and will be used: they are not
 * evicted before, unless nothing else can be. ps_evict_ahead_room says how many more there may be;
 * no more than that may be announced or kept until it is asked again. Rows that are never used
 * become ordinary ones by ps_evict_lapse, which takes the n oldest.
 */
size_t ps_evict_ahead_room(const ps_slab_t *slab, uint32_t class_id, ps_evict_class_t *evict);
void ps_evict_announce(ps_evict_class_t *evict, ps_row_header_t *row, ps_place_t place,
                       uint64_t hash);
void ps_evict_keep(ps_evict_class_t *evict, ps_row_header_t *row, ps_place_t place);
void ps_evict_lapse(const ps_slab_t *slab, uint32_t class_id, ps_evict_class_t *evict, size_t n);

/*
 * The row of this class to evict next: present and not pinned. 0: there is none. Makes what it
 * needs of memory when the class has grown; without it a plain CLOCK chooses.
 */
ps_place_t ps_evict_choose(const ps_slab_t *slab, uint32_t class_id, ps_evict_class_t *evict);

/* A page of this class all of whose rows may be evicted (also those ahead of their use); 0: none
 * among those looked at. */
uint32_t ps_evict_choose_page(const ps_slab_t *slab, uint32_t class_id,
                              const ps_evict_class_t *evict);

/* The page is about to leave the class. */
void ps_evict_forget_page(const ps_slab_t *slab, ps_evict_class_t *evict, uint32_t page);

#endif
