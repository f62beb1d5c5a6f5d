/*
 * Count-min with conservative update, one sketch a slot in one block of bytes.
 *
 * The four rows of a slot lie one behind the other; a row's counter is chosen by 16 bits of a
 * second mix of the row's hash, whose own low bits are the same for all ids of a slot. An update
 * raises to (least + 1) whatever is lower: by induction every counter of an id is at least its
 * number of sightings, and no counter is raised that the id's count does not need.
 *
 * A sketch that forgets (halving, sliding windows) was left out: a count that can fall would make
 * it possible that a row seen k times is not admitted, and rows that stay rare are harmless to
 * those that are not: with n ids in a slot, each seen less than k times, an id's count is too large
 * by the chance that all four of its counters are taken, about (1 - exp(-4 n / counters))^4.
 * Cost: four cache lines a sighting, one or two when the sketch is small.
 */
#include "ps/growth/sketch.h"

#include "common/alloc.h"
#include "common/hash.h"

#include <inttypes.h>
#include <string.h>

struct ps_sketch {
    uint32_t limit;
    uint32_t width; /* of one row, a power of two */
    size_t n_bytes; /* of counters */
    uint8_t *counters;
};

size_t ps_sketch_bytes(size_t n_slots, uint32_t counters)
{
    return sizeof(ps_sketch_t) + n_slots * counters;
}

psc_status_t ps_sketch_create(size_t n_slots, uint32_t counters, uint32_t limit,
                              ps_sketch_t **sketch_out, psc_error_t *error)
{
    if (counters < PS_SKETCH_COUNTERS_MIN || counters > PS_SKETCH_COUNTERS_MAX ||
        (counters & (counters - 1)) != 0 || limit == 0 || limit > UINT8_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a sketch of %" PRIu32 " counters up to %" PRIu32
                             ": a power of two from %u to %u, up to 1 to %u, is possible",
                             counters, limit, PS_SKETCH_COUNTERS_MIN, PS_SKETCH_COUNTERS_MAX,
                             (unsigned)UINT8_MAX);
    ps_sketch_t *sketch = psc_alloc_zeroed(1, sizeof *sketch);
    if (sketch != NULL)
        sketch->counters = psc_alloc_zeroed(n_slots != 0 ? n_slots : 1, counters);
    if (sketch == NULL || sketch->counters == NULL) {
        ps_sketch_destroy(sketch);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a sketch of %zu bytes",
                             ps_sketch_bytes(n_slots, counters));
    }
    sketch->limit = limit;
    sketch->width = counters / PS_SKETCH_ROWS;
    sketch->n_bytes = n_slots * counters;
    *sketch_out = sketch;
    return PSC_OK;
}

void ps_sketch_destroy(ps_sketch_t *sketch)
{
    if (sketch == NULL)
        return;
    psc_free(sketch->counters);
    psc_free(sketch);
}

size_t ps_sketch_image_bytes(const ps_sketch_t *sketch)
{
    return sketch->n_bytes;
}

void ps_sketch_save(const ps_sketch_t *sketch, uint8_t *image)
{
    if (sketch->n_bytes != 0)
        memcpy(image, sketch->counters, sketch->n_bytes);
}

size_t ps_sketch_slot_bytes(const ps_sketch_t *sketch)
{
    return (size_t)PS_SKETCH_ROWS * sketch->width;
}

void ps_sketch_load(ps_sketch_t *sketch, size_t slot, const uint8_t *image)
{
    const size_t n = ps_sketch_slot_bytes(sketch);
    memcpy(sketch->counters + slot * n, image, n);
}

/* The id's counter in each row; returns the least count. */
static uint32_t find(const ps_sketch_t *sketch, size_t slot, uint64_t hash,
                     uint8_t *cells[PS_SKETCH_ROWS])
{
    uint64_t bits = psc_mix64(hash);
    uint8_t *row = sketch->counters + slot * PS_SKETCH_ROWS * sketch->width;
    uint32_t least = UINT8_MAX;
    for (uint32_t i = 0; i < PS_SKETCH_ROWS; i++) {
        cells[i] = row + ((uint32_t)(bits >> (16 * i)) & (sketch->width - 1));
        if (*cells[i] < least)
            least = *cells[i];
        row += sketch->width;
    }
    return least;
}

uint32_t ps_sketch_count(const ps_sketch_t *sketch, size_t slot, uint64_t hash)
{
    uint8_t *cells[PS_SKETCH_ROWS];
    return find(sketch, slot, hash, cells);
}

uint32_t ps_sketch_add(ps_sketch_t *sketch, size_t slot, uint64_t hash)
{
    uint8_t *cells[PS_SKETCH_ROWS];
    uint32_t count = find(sketch, slot, hash, cells);
    if (count >= sketch->limit)
        return count;
    count++;
    for (uint32_t i = 0; i < PS_SKETCH_ROWS; i++) {
        if (*cells[i] < count)
            *cells[i] = (uint8_t)count;
    }
    return count;
}
