/*
 * Which rows stay in memory. All of the policy is here: what a use leaves in header.policy, and
 * which row, or which page of rows, goes next. Another policy replaces this module alone.
 */
#ifndef PS_STORE_EVICT_H
#define PS_STORE_EVICT_H

#include "ps/store/slab.h"

#define PS_EVICT_MAX_USES 3

/* Where the clock of one class stands. All zero at first. */
typedef struct ps_evict_hand {
    uint32_t page; /* 0: at the first page */
    uint32_t record;
} ps_evict_hand_t;

/* The row was used. Writes only while the counter still grows, so hot rows' lines stay clean. */
static inline void ps_evict_touch(ps_row_header_t *row)
{
    if (row->policy < PS_EVICT_MAX_USES)
        row->policy++;
}

/* The row is new in memory. */
static inline void ps_evict_admit(ps_row_header_t *row)
{
    row->policy = 0;
}

/* The row of this class to evict next: present and not pinned. 0: there is none. */
ps_place_t ps_evict_choose(const ps_slab_t *slab, uint32_t class_id, ps_evict_hand_t *hand);

/* A page of this class all of whose rows may be evicted; 0: none among those looked at. */
uint32_t ps_evict_choose_page(const ps_slab_t *slab, uint32_t class_id, ps_evict_hand_t *hand);

/* The page is about to leave the class. */
void ps_evict_forget_page(const ps_slab_t *slab, ps_evict_hand_t *hand, uint32_t page);

#endif
