/*
 * Which rows have been seen how often, before they are worth a record: a counting sketch for each
 * slot.
 *
 * A count-min sketch (Cormode, Muthukrishnan 2005, "An improved data stream summary: the count-min
 * sketch and its applications") of four rows of counters, with conservative update (Estan, Varghese
 * 2002, "New directions in traffic measurement and accounting"): only the counters that hold the
 * least of an id's four are raised. A count is never too small; it is too large only when all four
 * counters of an id are shared with others. Counters are bytes and stop at the limit, since more
 * sightings than that make no difference. They never fall.
 *
 * A slot's counters depend on nothing but the sightings in that slot, in their order, so that what
 * is decided by them is the same on any number of servers.
 *
 *     ps_sketch_create(n_slots, 512, 3, &sketch, error);
 *     if (ps_sketch_add(sketch, slot, hash) >= 3)   third sighting at the latest
 *
 * Threads: the owner's.
 */
#ifndef PS_GROWTH_SKETCH_H
#define PS_GROWTH_SKETCH_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ps_sketch ps_sketch_t;

#define PS_SKETCH_ROWS 4u
#define PS_SKETCH_COUNTERS_MIN 4u
#define PS_SKETCH_COUNTERS_MAX (PS_SKETCH_ROWS << 16) /* 16 bits of the hash choose in a row */

/* Memory of a sketch, for a budget. */
size_t ps_sketch_bytes(size_t n_slots, uint32_t counters);

/*
 * All counts zero. counters: of one slot, its four rows together, a power of two in the bounds
 * above. limit: where counts stop, 1 to 255. Errors: INVALID_ARGUMENT, NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_sketch_create(size_t n_slots, uint32_t counters, uint32_t limit,
                                             ps_sketch_t **sketch_out, psc_error_t *error);
/* NULL is a no-op. */
void ps_sketch_destroy(ps_sketch_t *sketch);

/* Sightings of the id with this psc_row_hash, or the limit if there were more: at least the true
 * number. slot: below n_slots, the caller's own numbering of the slots that it keeps. */
uint32_t ps_sketch_count(const ps_sketch_t *sketch, size_t slot, uint64_t hash);

/* All counters as bytes: equally many for each slot, in their order. */
size_t ps_sketch_image_bytes(const ps_sketch_t *sketch);
void ps_sketch_save(const ps_sketch_t *sketch, uint8_t *image);
/* The bytes of one slot, and a slot from these: of any sketch with as many counters and the same
 * limit. */
size_t ps_sketch_slot_bytes(const ps_sketch_t *sketch);
void ps_sketch_load(ps_sketch_t *sketch, size_t slot, const uint8_t *image);

/* One more sighting. Returns the new count. */
uint32_t ps_sketch_add(ps_sketch_t *sketch, size_t slot, uint64_t hash);

#endif
