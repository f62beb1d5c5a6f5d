/*
 * CLOCK with a small counter per row instead of one bit (as in "GCLOCK", Smith 1978): a use adds
 * one up to PS_EVICT_MAX_USES, the hand takes one off and evicts at zero. A new row starts at zero:
 * one that is seen once leaves before one that was seen twice.
 *
 * Bounded work: after LOOK eligible rows without a zero among them the one with the lowest counter
 * goes, so that a table whose rows are all hot does not cost several rounds of the hand. Rows that
 * are pinned or being loaded are skipped and do not count; a full round over them is possible only
 * when nearly all memory is pinned.
 *
 * Headers are prefetched ahead of the hand. One owner thread.
 */
#include "ps/store/evict.h"

#define LOOK 32
#define PAGES_LOOKED 64
#define AHEAD 6

static bool evictable(const ps_row_header_t *row)
{
    return row->state == PS_ROW_PRESENT && row->pins == 0;
}

ps_place_t ps_evict_choose(const ps_slab_t *slab, uint32_t class_id, ps_evict_hand_t *hand)
{
    uint32_t n_pages = ps_slab_n_pages(slab, class_id);
    if (n_pages == 0)
        return 0;
    if (hand->page == 0) {
        hand->page = ps_slab_first_page(slab, class_id);
        hand->record = 0;
    }
    uint8_t *base = ps_slab_base(slab);
    ps_place_t best = 0;
    uint8_t best_uses = UINT8_MAX;
    unsigned n_seen = 0;
    for (uint32_t left = n_pages + 1; left > 0; left--) {
        uint32_t n_records = ps_slab_page_records(slab, hand->page);
        while (hand->record < n_records) {
            uint32_t i = hand->record++;
            if (i + AHEAD < n_records)
                __builtin_prefetch(
                    ps_store_row(base, ps_slab_page_place(slab, hand->page, i + AHEAD)));
            ps_place_t place = ps_slab_page_place(slab, hand->page, i);
            ps_row_header_t *row = ps_store_row(base, place);
            if (!evictable(row))
                continue;
            if (row->policy == 0)
                return place;
            row->policy--;
            if (row->policy < best_uses) {
                best_uses = row->policy;
                best = place;
            }
            if (++n_seen == LOOK)
                return best;
        }
        hand->page = ps_slab_next_page(slab, hand->page);
        hand->record = 0;
    }
    return best;
}

uint32_t ps_evict_choose_page(const ps_slab_t *slab, uint32_t class_id, ps_evict_hand_t *hand)
{
    uint32_t n_pages = ps_slab_n_pages(slab, class_id);
    if (n_pages == 0)
        return 0;
    uint8_t *base = ps_slab_base(slab);
    uint32_t page = hand->page != 0 ? hand->page : ps_slab_first_page(slab, class_id);
    for (uint32_t left = n_pages < PAGES_LOOKED ? n_pages : PAGES_LOOKED; left > 0; left--) {
        uint32_t n_records = ps_slab_page_records(slab, page);
        uint32_t i = 0;
        while (i < n_records) {
            const ps_row_header_t *row = ps_store_row(base, ps_slab_page_place(slab, page, i));
            if (row->state != PS_ROW_FREE && !evictable(row))
                break;
            i++;
        }
        if (i == n_records)
            return page;
        page = ps_slab_next_page(slab, page);
    }
    return 0;
}

void ps_evict_forget_page(const ps_slab_t *slab, ps_evict_hand_t *hand, uint32_t page)
{
    if (hand->page != page)
        return;
    uint32_t next = ps_slab_next_page(slab, page);
    hand->page = next != page ? next : 0;
    hand->record = 0;
}
