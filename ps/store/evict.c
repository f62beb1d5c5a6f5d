/*
 * Newcomers on trial, and a clock for the others.
 *
 * A row that comes in is a newcomer: its place goes into a short queue. When it reaches the end it
 * was used at least PROMOTE times since and stays, or it leaves; most rows of a long-tailed law
 * leave, soon, and do not push out what is used more often. Rows that leave the queue are
 * remembered for a while: one that comes back in that time stays at once. All rows that stay form a
 * CLOCK with counters: a use adds one, the hand takes one off and evicts at zero. Rows that come in
 * before memory is full are of the clock from the start.
 *
 * The queue has a sixteenth of the class's rows, and up to a quarter (no more than MAX_SHARE) when
 * that is too little: each row that comes back makes it RETURN longer, each that leaves for the
 * first time 1 shorter. That is what happens when rows are pulled, and pushed a few large batches
 * later: the queue becomes long enough for them to be there still.
 *
 * The memory of who left is a Bloom filter in two halves, one being filled, one full; they change
 * roles when a half is full, and the older one is forgotten. A row sets BITS bits in one cache
 * line of a half. Lines carry the epoch in which they were written, and one with an older epoch
 * counts as empty, so nothing ever has to be cleared at once. 4 bits a row of the class hold the
 * last fifth to two fifths of a class's worth of rows; about 3% of all others seem known, wrongly,
 * and come into the clock at zero, where they last one round.
 *
 * The places in the queue are not told when their rows go another way (with their page, erased):
 * an entry counts when there is a newcomer at its place; the row that is there now may then be
 * judged early, and no harm is done.
 *
 * Rows that come in ahead of their use (prefetched) wait in a ring of their own until they are
 * used: neither queue nor clock takes them. When the oldest of the ring has been used, it becomes a
 * newcomer, or one of the clock if it came back, as if it had come in with that use. So what is
 * announced and used leaves the same traces as without announcing; what is announced and never used
 * stays until others were announced for it (lapse). The ring has a tenth of the class.
 *
 * Memory beside the header: 1/4 byte a row for the queue, 1 at its longest, 1/2 for who left, 1/2
 * for who is ahead; made at the first eviction, or prefetch, and again when class or queue have
 * grown by then.
 *
 * Bounded work: LOOK newcomers and LOOK others (PASS newcomers between them); when all of these
 * were used, a newcomer goes before its time, or the one with the lowest counter. So a table whose
 * rows are all hot does not cost several rounds of the hand. Rows that are pinned or being loaded
 * are skipped and do not count; a full round over them is possible only when nearly all memory is
 * pinned. Headers are prefetched ahead of the hand. One owner thread.
 */
#include "ps/store/evict.h"

#include "common/alloc.h"
#include "common/hash.h"

#define LOOK 32  /* rows, newcomers or others, whose uses are looked at */
#define PASS 128 /* newcomers that the hand passes over */
#define PAGES_LOOKED 64
#define AHEAD 6
#define SHARE 16        /* one of so many rows is a newcomer, */
#define LONGEST_SHARE 4 /* or one of so many, */
#define MAX_SHARE 65536 /* as long as that is no more than this */
#define RETURN 4        /* by how much a row that comes back lengthens the queue */
#define PROMOTE 2       /* uses after the first that make a newcomer stay */
#define HELD_LOOKED 4   /* newcomers in use, after which the clock is asked */
#define LINE_BITS 480
#define LINE_ROWS 44      /* 11 bits each */
#define ROWS_PER_LINE 256 /* of the class: 2 bits each in either half */
#define BITS 4
#define MAX_AHEAD 65536
#define SETTLED 4 /* rows that were ahead and are looked at when one is evicted */

static bool evictable(const ps_row_header_t *row)
{
    return row->state == PS_ROW_PRESENT && row->pins == 0;
}

void ps_evict_clear(ps_evict_class_t *evict)
{
    psc_free(evict->newcomers);
    psc_free(evict->left);
    psc_free(evict->ahead);
    *evict = (ps_evict_class_t){0};
}

/* ---- who left ---- */

static ps_evict_line_t *line_of(const ps_evict_class_t *evict, uint32_t epoch, uint64_t hash)
{
    uint64_t line = ((hash >> 32) * evict->n_lines) >> 32;
    return &evict->left[(size_t)(epoch % 2) * evict->n_lines + line];
}

/* The k-th bit of a row in its line, by bits of the hash that the line does not depend on. */
static uint32_t bit_of(uint64_t mixed, unsigned k)
{
    return (uint32_t)(((mixed >> (16 * k)) & 0xffff) * LINE_BITS >> 16);
}

static bool in_half(const ps_evict_class_t *evict, uint32_t epoch, uint64_t hash)
{
    const ps_evict_line_t *line = line_of(evict, epoch, hash);
    if (line->epoch != epoch)
        return false;
    uint64_t mixed = psc_mix64(hash);
    for (unsigned k = 0; k < BITS; k++)
        if ((line->bits[bit_of(mixed, k) / 32] >> (bit_of(mixed, k) % 32) & 1) == 0)
            return false;
    return true;
}

static bool has_left(const ps_evict_class_t *evict, uint64_t hash)
{
    return evict->left != NULL &&
           (in_half(evict, evict->epoch, hash) || in_half(evict, evict->epoch - 1, hash));
}

static void remember(ps_evict_class_t *evict, uint64_t hash)
{
    if (evict->left == NULL)
        return;
    if (evict->n_left == evict->max_left) {
        evict->epoch++;
        evict->n_left = 0;
    }
    evict->n_left++;
    ps_evict_line_t *line = line_of(evict, evict->epoch, hash);
    if (line->epoch != evict->epoch)
        *line = (ps_evict_line_t){.epoch = evict->epoch};
    uint64_t mixed = psc_mix64(hash);
    for (unsigned k = 0; k < BITS; k++)
        line->bits[bit_of(mixed, k) / 32] |= (uint32_t)1 << (bit_of(mixed, k) % 32);
}

/* ---- newcomers ---- */

static uint32_t least_share(size_t n_records)
{
    return n_records > SHARE ? (uint32_t)(n_records / SHARE) : 1;
}

static uint32_t most_share(size_t n_records)
{
    uint32_t least = least_share(n_records);
    size_t most = n_records / LONGEST_SHARE < MAX_SHARE ? n_records / LONGEST_SHARE : MAX_SHARE;
    return most > least ? (uint32_t)most : least;
}

static void push_newcomer(ps_evict_class_t *evict, ps_place_t place)
{
    uint32_t at = evict->oldest + evict->n_newcomers++;
    evict->newcomers[at < evict->n_ring ? at : at - evict->n_ring] = place;
}

static ps_place_t pop_newcomer(ps_evict_class_t *evict)
{
    ps_place_t place = evict->newcomers[evict->oldest];
    evict->oldest = evict->oldest + 1 < evict->n_ring ? evict->oldest + 1 : 0;
    evict->n_newcomers--;
    return place;
}

/* A longer ring with the same newcomers. Not had: as it was. */
static void lengthen_ring(ps_evict_class_t *evict, uint32_t n_ring)
{
    ps_place_t *ring = psc_alloc_array(n_ring, sizeof *ring);
    if (ring == NULL)
        return;
    uint32_t n = evict->n_newcomers;
    for (uint32_t i = 0; i < n; i++)
        ring[i] = pop_newcomer(evict);
    psc_free(evict->newcomers);
    evict->newcomers = ring;
    evict->n_ring = n_ring;
    evict->oldest = 0;
    evict->n_newcomers = n;
}

/* Memory for a class of n_records, which has grown; forgets who left. Not had: as it was. */
static void resize(ps_evict_class_t *evict, size_t n_records)
{
    evict->sized_for = evict->sized_for == 0 ? n_records : n_records + n_records / 4;
    if (evict->n_ring < least_share(evict->sized_for))
        lengthen_ring(evict, least_share(evict->sized_for));
    uint32_t n_lines = (uint32_t)(evict->sized_for / ROWS_PER_LINE) + 1;
    ps_evict_line_t *left = psc_alloc_zeroed((size_t)2 * n_lines, sizeof *left);
    if (left == NULL)
        return;
    psc_free(evict->left);
    evict->left = left;
    evict->n_lines = n_lines;
    evict->epoch = 2; /* none of the lines, which say 0 */
    evict->n_left = 0;
    evict->max_left = n_lines * LINE_ROWS;
}

/* Brings all that depends on the number of records up to date. */
static void fit(ps_evict_class_t *evict, size_t n_records)
{
    if (n_records > evict->sized_for)
        resize(evict, n_records);
    uint32_t least = least_share(n_records), most = most_share(n_records);
    if (evict->share > most)
        evict->share = most;
    if (evict->share > evict->n_ring && evict->n_ring != 0)
        lengthen_ring(evict, most < 2 * evict->n_ring ? most : 2 * evict->n_ring);
    if (evict->share > evict->n_ring)
        evict->share = evict->n_ring;
    if (evict->share < least)
        evict->share = least;
}

void ps_evict_admit(ps_evict_class_t *evict, ps_row_header_t *row, ps_place_t place, uint64_t hash)
{
    row->policy = 0;
    if (has_left(evict, hash)) {
        evict->share += RETURN;
        return;
    }
    if (evict->n_newcomers == evict->n_ring)
        return;
    row->policy = PS_EVICT_NEWCOMER;
    push_newcomer(evict, place);
}

/* The oldest newcomer that does not stay, while there are `least` of them or more; looks at `look`
 * at most. 0: none. */
static ps_place_t choose_newcomer(const ps_slab_t *slab, uint32_t class_id, ps_evict_class_t *evict,
                                  uint32_t least, unsigned look)
{
    uint8_t *base = ps_slab_base(slab);
    unsigned n_held = 0;
    while (evict->n_newcomers != 0 && evict->n_newcomers >= least && n_held < HELD_LOOKED &&
           look-- > 0) {
        ps_place_t place = pop_newcomer(evict);
        if (!ps_slab_is_record(slab, class_id, place))
            continue;
        ps_row_header_t *row = ps_store_row(base, place);
        if (row->state == PS_ROW_FREE || (row->policy & PS_EVICT_NEWCOMER) == 0)
            continue;
        if (!evictable(row) || (row->policy & PS_EVICT_AHEAD) != 0) {
            push_newcomer(evict, place);
            n_held++;
            continue;
        }
        bool stays = (row->policy & PS_EVICT_USES) >= PROMOTE;
        row->policy = 0;
        if (stays)
            continue;
        remember(evict, psc_row_hash(row->table, row->id));
        if (evict->share != 0)
            evict->share--;
        return place;
    }
    return 0;
}

/* ---- rows ahead of their use ---- */

static void push_ahead(ps_evict_class_t *evict, ps_place_t place)
{
    PSC_BUG_ON(evict->n_ahead == evict->n_ahead_ring);
    uint32_t at = evict->ahead_oldest + evict->n_ahead++;
    evict->ahead[at < evict->n_ahead_ring ? at : at - evict->n_ahead_ring] = place;
}

/* The oldest row of the ring becomes an ordinary one, if it was used, or lapses. False: neither, or
 * there is none. */
static bool settle_oldest(const ps_slab_t *slab, uint32_t class_id, ps_evict_class_t *evict,
                          bool lapses)
{
    if (evict->n_ahead == 0)
        return false;
    ps_place_t place = evict->ahead[evict->ahead_oldest];
    bool there = ps_slab_is_record(slab, class_id, place);
    ps_row_header_t *row = there ? ps_store_row(ps_slab_base(slab), place) : NULL;
    there = there && row->state != PS_ROW_FREE;
    if (there && (row->policy & PS_EVICT_AHEAD) != 0 && !lapses)
        return false;
    evict->ahead_oldest =
        evict->ahead_oldest + 1 < evict->n_ahead_ring ? evict->ahead_oldest + 1 : 0;
    evict->n_ahead--;
    if (!there)
        return true;
    row->policy &= (uint8_t)~PS_EVICT_AHEAD;
    if ((row->policy & PS_EVICT_NEWCOMER) == 0)
        return true;
    if (evict->n_newcomers < evict->n_ring)
        push_newcomer(evict, place);
    else
        row->policy &= (uint8_t)~PS_EVICT_NEWCOMER;
    return true;
}

/* A ring of n, with the same rows. Not had: as it was. */
static void lengthen_ahead(ps_evict_class_t *evict, uint32_t n)
{
    ps_place_t *ring = psc_alloc_array(n, sizeof *ring);
    if (ring == NULL)
        return;
    for (uint32_t i = 0, at = evict->ahead_oldest; i < evict->n_ahead; i++) {
        ring[i] = evict->ahead[at];
        at = at + 1 < evict->n_ahead_ring ? at + 1 : 0;
    }
    psc_free(evict->ahead);
    evict->ahead = ring;
    evict->n_ahead_ring = n;
    evict->ahead_oldest = 0;
}

size_t ps_evict_ahead_room(const ps_slab_t *slab, uint32_t class_id, ps_evict_class_t *evict)
{
    size_t most = ps_slab_class_records(slab, class_id) / PS_EVICT_AHEAD_SHARE;
    if (most > MAX_AHEAD)
        most = MAX_AHEAD;
    if (most > evict->n_ahead_ring)
        lengthen_ahead(evict, (uint32_t)(evict->n_ahead_ring == 0 ? most : most + most / 8));
    while (settle_oldest(slab, class_id, evict, false))
        continue;
    if (most > evict->n_ahead_ring)
        most = evict->n_ahead_ring;
    return most > evict->n_ahead ? most - evict->n_ahead : 0;
}

void ps_evict_announce(ps_evict_class_t *evict, ps_row_header_t *row, ps_place_t place,
                       uint64_t hash)
{
    bool returns = has_left(evict, hash);
    row->policy = (uint8_t)(returns ? PS_EVICT_AHEAD : PS_EVICT_AHEAD | PS_EVICT_NEWCOMER);
    if (returns)
        evict->share += RETURN;
    push_ahead(evict, place);
}

void ps_evict_keep(ps_evict_class_t *evict, ps_row_header_t *row, ps_place_t place)
{
    /* One that was used since the hand came by stays for a while anyway. */
    if ((row->policy & (PS_EVICT_USES | PS_EVICT_AHEAD)) != 0)
        return;
    row->policy = (uint8_t)(row->policy | PS_EVICT_AHEAD | 1);
    push_ahead(evict, place);
}

void ps_evict_lapse(const ps_slab_t *slab, uint32_t class_id, ps_evict_class_t *evict, size_t n)
{
    while (n-- > 0 && settle_oldest(slab, class_id, evict, true))
        continue;
}

/* ---- the clock ---- */

typedef struct found {
    ps_place_t unused;   /* a row of the clock without uses since the hand came by */
    ps_place_t least;    /* the one with the fewest among those looked at */
    ps_place_t newcomer; /* met on the way */
    ps_place_t ahead;    /* met on the way, its use still to come */
} found_t;

/* Moves the hand to the first unused row, or LOOK rows further. */
static found_t look_by_clock(const ps_slab_t *slab, uint32_t class_id, ps_evict_class_t *evict)
{
    uint8_t *base = ps_slab_base(slab);
    found_t found = {0};
    unsigned least_uses = UINT8_MAX, n_seen = 0, n_passed = 0;
    for (uint32_t left = ps_slab_n_pages(slab, class_id) + 1; left > 0; left--) {
        uint32_t n_records = ps_slab_page_records(slab, evict->page);
        while (evict->record < n_records) {
            uint32_t i = evict->record++;
            if (i + AHEAD < n_records)
                __builtin_prefetch(
                    ps_store_row(base, ps_slab_page_place(slab, evict->page, i + AHEAD)));
            ps_place_t place = ps_slab_page_place(slab, evict->page, i);
            ps_row_header_t *row = ps_store_row(base, place);
            if (!evictable(row))
                continue;
            if ((row->policy & PS_EVICT_AHEAD) != 0) {
                found.ahead = place;
                continue;
            }
            if ((row->policy & PS_EVICT_NEWCOMER) != 0) {
                found.newcomer = place;
                if (++n_passed == PASS)
                    return found;
                continue;
            }
            if (row->policy == 0) {
                found.unused = place;
                return found;
            }
            if (--row->policy < least_uses) {
                least_uses = row->policy;
                found.least = place;
            }
            if (++n_seen == LOOK)
                return found;
        }
        evict->page = ps_slab_next_page(slab, evict->page);
        evict->record = 0;
    }
    return found;
}

ps_place_t ps_evict_choose(const ps_slab_t *slab, uint32_t class_id, ps_evict_class_t *evict)
{
    if (ps_slab_n_pages(slab, class_id) == 0)
        return 0;
    fit(evict, ps_slab_class_records(slab, class_id));
    for (unsigned i = 0; i < SETTLED && settle_oldest(slab, class_id, evict, false);)
        i++;
    ps_place_t newcomer = choose_newcomer(slab, class_id, evict, evict->share, LOOK);
    if (newcomer != 0)
        return newcomer;
    if (evict->page == 0) {
        evict->page = ps_slab_first_page(slab, class_id);
        evict->record = 0;
    }
    found_t found = look_by_clock(slab, class_id, evict);
    if (found.unused != 0)
        return found.unused;
    newcomer = choose_newcomer(slab, class_id, evict, 1, HELD_LOOKED);
    if (newcomer != 0)
        return newcomer;
    if (found.least == 0 && found.newcomer == 0)
        return found.ahead;
    return found.least != 0 ? found.least : found.newcomer;
}

uint32_t ps_evict_choose_page(const ps_slab_t *slab, uint32_t class_id,
                              const ps_evict_class_t *evict)
{
    uint32_t n_pages = ps_slab_n_pages(slab, class_id);
    if (n_pages == 0)
        return 0;
    uint8_t *base = ps_slab_base(slab);
    uint32_t page = evict->page != 0 ? evict->page : ps_slab_first_page(slab, class_id);
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

void ps_evict_forget_page(const ps_slab_t *slab, ps_evict_class_t *evict, uint32_t page)
{
    if (evict->page != page)
        return;
    uint32_t next = ps_slab_next_page(slab, page);
    evict->page = next != page ? next : 0;
    evict->record = 0;
}
