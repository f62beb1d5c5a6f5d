/*
 * id -> slot -> owner. The slot map is data with an epoch, not arithmetic in the code, so that what
 * 3 servers saved can be restored on 5.
 */
#ifndef COMMON_SLOTS_H
#define COMMON_SLOTS_H

#include "common/hash.h"
#include "common/status.h"

#include <stddef.h>

#define PSC_SLOT_COUNT 16384u
#define PSC_MAX_SERVERS 4096u

/* Plain data; about 32 KiB. */
typedef struct psc_slot_map {
    uint32_t epoch;     /* grows by one with every change; the first map is 1 */
    uint32_t n_servers; /* 1 to PSC_MAX_SERVERS */
    uint16_t owner[PSC_SLOT_COUNT];
} psc_slot_map_t;

static inline uint32_t psc_slot_of_hash(uint64_t row_hash)
{
    return (uint32_t)(row_hash & (PSC_SLOT_COUNT - 1));
}

static inline uint32_t psc_slot_owner(const psc_slot_map_t *map, uint64_t row_hash)
{
    return map->owner[psc_slot_of_hash(row_hash)];
}

/*
 * The first map of a cluster: slots in equal contiguous runs (counts differ by one at most).
 * Errors: INVALID_ARGUMENT when n_servers is 0 or above PSC_MAX_SERVERS.
 */
PSC_MUST_CHECK psc_status_t psc_slot_map_init(psc_slot_map_t *map, uint32_t n_servers,
                                              psc_error_t *error);

/* Every owner below n_servers, n_servers in range? Errors: CORRUPT, in words. */
PSC_MUST_CHECK psc_status_t psc_slot_map_check(const psc_slot_map_t *map, psc_error_t *error);

#endif
