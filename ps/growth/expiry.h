/*
 * When a row that nobody pushes any more counts as gone: a pure decision on the row's own record,
 * its slot's own counts, and the shard's clock.
 *
 * Time is the least clock of all workers, which only grows; a row's last clock is that time when it
 * was pushed last. A row has a life: `after` clocks, or `rare_after` (when that is less) if it had
 * fewer than rare_below updates. By the age of its last push a row is
 *
 *     LIVE       at most one life old
 *     EXPIRED    older: its value counts no more, but that there was one is still told
 *     FORGOTTEN  older than two lives: like a row that never was. Only these may be freed
 *
 * Since a forgotten row's record answers as no record does, it makes no difference to anybody when,
 * or whether, it is freed.
 *
 * Floor. With a floor, expiry leaves at least so many live rows in a slot (all of them while the
 * slot has no more): the ones pushed last. The slot counts its live rows by the clock of their last
 * push, in steps of life/16 (rounded up), and keeps a horizon: rows pushed before it are expired,
 * one life of steps before it forgotten. Whenever the clock enters a new step, the horizon rises as
 * far as age and floor allow, rare rows first. It never falls, so an expired row never comes back
 * to life but by a push. Rows then expire up to a step after their life ended, never before.
 *
 * Clocks from 2^32 - 1 on count as that: time stands still for expiry then, and nothing expires any
 * more that has not already.
 *
 * A row that is live is counted by exactly one ps_expiry_add; before it changes or goes, it is
 * taken out by ps_expiry_remove with the values it was counted with. Both do nothing without a
 * floor. Threads: the owner's.
 */
#ifndef PS_GROWTH_EXPIRY_H
#define PS_GROWTH_EXPIRY_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ps_expiry ps_expiry_t;

typedef struct ps_expiry_rule {
    uint64_t after;      /* clocks; 0: never */
    uint64_t rare_after; /* clocks; 0: rare rows live as long as others */
    uint32_t rare_below; /* a row of fewer updates is rare */
    uint32_t floor;      /* live rows of a slot that expiry leaves */
} ps_expiry_rule_t;

typedef enum ps_age {
    PS_AGE_LIVE,
    PS_AGE_EXPIRED,
    PS_AGE_FORGOTTEN,
} ps_age_t;

/* Memory, for a budget. */
size_t ps_expiry_bytes(size_t n_slots, const ps_expiry_rule_t *rule);

/* n_slots: that are kept here; below, a slot is one of them. clock: the time now.
 * Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t ps_expiry_create(size_t n_slots, const ps_expiry_rule_t *rule,
                                             uint64_t clock, ps_expiry_t **expiry_out,
                                             psc_error_t *error);
/* NULL is a no-op. */
void ps_expiry_destroy(ps_expiry_t *expiry);

/* The time is clock; called at every change of it, so that horizons rise by the same steps wherever
 * a slot is kept. A smaller clock than before is ignored. */
void ps_expiry_advance(ps_expiry_t *expiry, uint64_t clock);

/* The time now as a row's last clock. */
uint32_t ps_expiry_now(const ps_expiry_t *expiry);

/* Clocks from one pass to the next of whoever frees forgotten rows: a quarter of the shortest life,
 * at least 1. */
uint64_t ps_expiry_period(const ps_expiry_t *expiry);

ps_age_t ps_expiry_judge(const ps_expiry_t *expiry, size_t slot, uint32_t update_count,
                         uint32_t last_clock);

/* A row came into being, or was changed. */
void ps_expiry_add(ps_expiry_t *expiry, size_t slot, uint32_t update_count, uint32_t last_clock);

/* A row is about to be changed; nothing is done when it is not live. */
void ps_expiry_remove(ps_expiry_t *expiry, size_t slot, uint32_t update_count, uint32_t last_clock);

/* Whether there is a floor, and so anything to count. */
bool ps_expiry_counts(const ps_expiry_t *expiry);

/* All counts as bytes: equally many for each slot, in their order; none without a floor. */
size_t ps_expiry_image_bytes(const ps_expiry_t *expiry);
void ps_expiry_save(const ps_expiry_t *expiry, uint8_t *image);
/* The bytes of one slot, and a slot from these: of any with the same rule, when the time there was
 * clock, not later than here; what has passed since has passed for this slot too. */
size_t ps_expiry_slot_bytes(const ps_expiry_t *expiry);
void ps_expiry_load(ps_expiry_t *expiry, size_t slot, uint32_t clock, const uint8_t *image);

/* Live rows of a slot, as counted; 0 without a floor. */
uint64_t ps_expiry_live(const ps_expiry_t *expiry, size_t slot);

#endif
