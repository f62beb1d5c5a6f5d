/*
 * Ages by subtraction; with a floor, a ring of counts a slot.
 *
 * There are two kinds of rows, rare and common, each with its own life, step (life/16, rounded up)
 * and life in steps (at most 16). Clock c lies in step c / step. A row pushed in step e can be
 * expired when the current step is above e + life in steps: all of its clocks are then more than a
 * life ago. For each slot and kind the live rows are counted by step in a ring that holds the
 * current step and the 17 before it; `older` are the live rows before the ring, which a floor has
 * kept. The horizon rises to the newest step that age allows, or, when that would leave less than
 * the floor, to the newest one within the ring that leaves enough. Rows of one step go together,
 * and so do the older ones.
 *
 * Horizons move in ps_expiry_advance only, for all slots at once when a step begins: every life/16
 * clocks, 0.5 ms for the 16,384 slots of a lone server, 1 ms for lives of a few clocks. To do it at
 * the next access of a slot would be cheaper, but would make the steps depend on which accesses a
 * server sees.
 *
 * A count never goes below zero: a row of an earlier run, which was never counted, makes a slot
 * look emptier, and so keeps more. Kinds without a life have a horizon of 0 and count all in
 * `older`.
 */
#include "ps/growth/expiry.h"

#include "common/alloc.h"

#include <string.h>

#define STEPS 16u         /* of a life */
#define RING (STEPS + 2u) /* the current step, those of one life, and the one that goes next */
#define KINDS 2u

enum { RARE, COMMON };

/* The live rows of one kind in one slot. */
typedef struct tally {
    uint32_t horizon;      /* first step whose rows live */
    uint32_t live;         /* older, and all counts */
    uint32_t older;        /* before the ring */
    uint32_t counts[RING]; /* by step modulo RING */
} tally_t;

typedef struct kind {
    uint64_t life; /* clocks; 0: for ever */
    uint64_t step; /* clocks */
    uint32_t life_steps;
    uint32_t current; /* step */
} kind_t;

struct ps_expiry {
    ps_expiry_rule_t rule;
    uint32_t clock;
    size_t n_slots;
    kind_t kinds[KINDS];
    tally_t *tallies; /* [n_slots, KINDS]; NULL without a floor */
};

static uint32_t clamp_clock(uint64_t clock)
{
    return clock < UINT32_MAX ? (uint32_t)clock : UINT32_MAX;
}

static kind_t kind_of(uint64_t life)
{
    kind_t kind = {.life = life, .step = 1};
    if (life == 0)
        return kind;
    kind.step = life / STEPS + (life % STEPS != 0);
    kind.life_steps = (uint32_t)(life / kind.step + (life % kind.step != 0));
    return kind;
}

size_t ps_expiry_bytes(size_t n_slots, const ps_expiry_rule_t *rule)
{
    return sizeof(ps_expiry_t) + (rule->floor != 0 ? n_slots * KINDS * sizeof(tally_t) : 0);
}

psc_status_t ps_expiry_create(size_t n_slots, const ps_expiry_rule_t *rule, uint64_t clock,
                              ps_expiry_t **expiry_out, psc_error_t *error)
{
    ps_expiry_t *expiry = psc_alloc_zeroed(1, sizeof *expiry);
    if (expiry != NULL && rule->floor != 0)
        expiry->tallies =
            psc_alloc_zeroed(n_slots != 0 ? n_slots : 1, KINDS * sizeof *expiry->tallies);
    if (expiry == NULL || (rule->floor != 0 && expiry->tallies == NULL)) {
        ps_expiry_destroy(expiry);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for the counts of %zu slots",
                             n_slots);
    }
    expiry->rule = *rule;
    expiry->n_slots = n_slots;
    bool rare = rule->rare_after != 0 && (rule->after == 0 || rule->rare_after < rule->after);
    expiry->kinds[RARE] = kind_of(rare ? rule->rare_after : rule->after);
    expiry->kinds[COMMON] = kind_of(rule->after);
    expiry->clock = clamp_clock(clock);
    for (size_t i = 0; i < KINDS; i++)
        expiry->kinds[i].current = (uint32_t)(expiry->clock / expiry->kinds[i].step);
    *expiry_out = expiry;
    return PSC_OK;
}

void ps_expiry_destroy(ps_expiry_t *expiry)
{
    if (expiry == NULL)
        return;
    psc_free(expiry->tallies);
    psc_free(expiry);
}

uint32_t ps_expiry_now(const ps_expiry_t *expiry)
{
    return expiry->clock;
}

uint64_t ps_expiry_period(const ps_expiry_t *expiry)
{
    uint64_t life = expiry->kinds[RARE].life; /* never the longer one */
    return life >= 4 ? life / 4 : 1;
}

/* ---- the counts of a slot ---- */

/* First step that the ring holds. */
static uint32_t ring_begin(uint32_t current)
{
    return current >= RING - 1 ? current - (RING - 1) : 0;
}

static uint32_t *counter_of(tally_t *tally, const kind_t *kind, uint32_t step)
{
    if (kind->life == 0 || step < ring_begin(kind->current))
        return &tally->older;
    return &tally->counts[step % RING];
}

/* The ring moves on: what leaves it is older than it. at: before % RING. */
static void shift(tally_t *tally, uint32_t at, uint32_t n_steps)
{
    if (n_steps >= RING) {
        tally->older = tally->live;
        memset(tally->counts, 0, sizeof tally->counts);
        return;
    }
    for (uint32_t i = 0; i < n_steps; i++) { /* the counter of a new step holds an old one */
        at = at + 1 < RING ? at + 1 : 0;
        tally->older += tally->counts[at];
        tally->counts[at] = 0;
    }
}

/* Raises the horizon as far as age and floor allow. others: live rows of the other kind. */
static void raise_horizon(tally_t *tally, const kind_t *kind, uint64_t others, uint32_t floor)
{
    if (kind->life == 0 || kind->current <= kind->life_steps)
        return;
    const uint32_t begin = ring_begin(kind->current), first = begin % RING;
    uint32_t horizon = kind->current - kind->life_steps, at = first, gone = tally->older;
    for (uint32_t step = begin; step < horizon; step++) {
        gone += tally->counts[at];
        at = at + 1 < RING ? at + 1 : 0;
    }
    while (others + tally->live - gone < floor && horizon > begin) {
        at = at != 0 ? at - 1 : RING - 1;
        gone -= tally->counts[at];
        horizon--;
    }
    if (others + tally->live - gone < floor || horizon <= tally->horizon)
        return;
    tally->horizon = horizon;
    if (gone == 0)
        return;
    tally->live -= gone;
    tally->older = 0;
    for (uint32_t i = first; i != at; i = i + 1 < RING ? i + 1 : 0)
        tally->counts[i] = 0;
}

/* The slot's counts go on from the steps that were current before. */
static void advance_slot(ps_expiry_t *expiry, size_t slot, const uint32_t before[KINDS])
{
    tally_t *tallies = expiry->tallies + slot * KINDS;
    for (size_t i = 0; i < KINDS; i++)
        shift(&tallies[i], before[i] % RING, expiry->kinds[i].current - before[i]);
    for (size_t i = 0; i < KINDS; i++)
        raise_horizon(&tallies[i], &expiry->kinds[i], tallies[KINDS - 1 - i].live,
                      expiry->rule.floor);
}

void ps_expiry_advance(ps_expiry_t *expiry, uint64_t clock)
{
    uint32_t now = clamp_clock(clock);
    if (now <= expiry->clock)
        return;
    expiry->clock = now;
    uint32_t before[KINDS];
    bool moved = false;
    for (size_t i = 0; i < KINDS; i++) {
        before[i] = expiry->kinds[i].current;
        expiry->kinds[i].current = (uint32_t)(now / expiry->kinds[i].step);
        moved |= expiry->kinds[i].current != before[i];
    }
    for (size_t slot = 0; expiry->tallies != NULL && moved && slot < expiry->n_slots; slot++)
        advance_slot(expiry, slot, before);
}

/* ---- one row ---- */

static size_t kind_index(const ps_expiry_t *expiry, uint32_t update_count)
{
    return update_count < expiry->rule.rare_below ? RARE : COMMON;
}

ps_age_t ps_expiry_judge(const ps_expiry_t *expiry, size_t slot, uint32_t update_count,
                         uint32_t last_clock)
{
    size_t index = kind_index(expiry, update_count);
    const kind_t *kind = &expiry->kinds[index];
    if (kind->life == 0)
        return PS_AGE_LIVE;
    if (expiry->tallies != NULL) {
        uint64_t step = last_clock / kind->step;
        uint32_t horizon = expiry->tallies[slot * KINDS + index].horizon;
        if (step >= horizon)
            return PS_AGE_LIVE;
        return step + kind->life_steps >= horizon ? PS_AGE_EXPIRED : PS_AGE_FORGOTTEN;
    }
    /* A row of an earlier run may have a clock that is still to come. */
    uint64_t age = last_clock < expiry->clock ? expiry->clock - last_clock : 0;
    if (age <= kind->life)
        return PS_AGE_LIVE;
    return age - kind->life <= kind->life ? PS_AGE_EXPIRED : PS_AGE_FORGOTTEN;
}

void ps_expiry_add(ps_expiry_t *expiry, size_t slot, uint32_t update_count, uint32_t last_clock)
{
    if (expiry->tallies == NULL)
        return;
    size_t index = kind_index(expiry, update_count);
    const kind_t *kind = &expiry->kinds[index];
    tally_t *tally = &expiry->tallies[slot * KINDS + index];
    uint32_t *counter = counter_of(tally, kind, (uint32_t)(last_clock / kind->step));
    *counter += 1;
    tally->live++;
}

void ps_expiry_remove(ps_expiry_t *expiry, size_t slot, uint32_t update_count, uint32_t last_clock)
{
    if (expiry->tallies == NULL || last_clock > expiry->clock ||
        ps_expiry_judge(expiry, slot, update_count, last_clock) != PS_AGE_LIVE)
        return;
    size_t index = kind_index(expiry, update_count);
    const kind_t *kind = &expiry->kinds[index];
    tally_t *tally = &expiry->tallies[slot * KINDS + index];
    uint32_t *counter = counter_of(tally, kind, (uint32_t)(last_clock / kind->step));
    tally->live -= *counter != 0;
    *counter -= *counter != 0;
}

bool ps_expiry_counts(const ps_expiry_t *expiry)
{
    return expiry->tallies != NULL;
}

uint64_t ps_expiry_live(const ps_expiry_t *expiry, size_t slot)
{
    if (expiry->tallies == NULL)
        return 0;
    const tally_t *tallies = &expiry->tallies[slot * KINDS];
    return (uint64_t)tallies[RARE].live + tallies[COMMON].live;
}

/* ---- as bytes ---- */

size_t ps_expiry_image_bytes(const ps_expiry_t *expiry)
{
    return expiry->tallies != NULL ? expiry->n_slots * KINDS * sizeof *expiry->tallies : 0;
}

void ps_expiry_save(const ps_expiry_t *expiry, uint8_t *image)
{
    const size_t n = ps_expiry_image_bytes(expiry);
    if (n != 0)
        memcpy(image, expiry->tallies, n);
}

size_t ps_expiry_slot_bytes(const ps_expiry_t *expiry)
{
    return expiry->tallies != NULL ? KINDS * sizeof *expiry->tallies : 0;
}

void ps_expiry_load(ps_expiry_t *expiry, size_t slot, uint32_t clock, const uint8_t *image)
{
    uint32_t before[KINDS];
    bool moved = false;
    if (expiry->tallies == NULL)
        return;
    memcpy(expiry->tallies + slot * KINDS, image, ps_expiry_slot_bytes(expiry));
    for (size_t i = 0; i < KINDS; i++) {
        before[i] = (uint32_t)(clock / expiry->kinds[i].step);
        moved |= before[i] < expiry->kinds[i].current;
    }
    if (moved)
        advance_slot(expiry, slot, before);
}
