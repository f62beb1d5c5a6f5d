/* The slot map: made and checked here; read in place by router and server. */
#include "common/slots.h"

psc_status_t psc_slot_map_init(psc_slot_map_t *map, uint32_t n_servers, psc_error_t *error)
{
    if (n_servers == 0 || n_servers > PSC_MAX_SERVERS)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%u servers asked for; 1 to %u are possible", n_servers,
                             PSC_MAX_SERVERS);
    map->epoch = 1;
    map->n_servers = n_servers;
    for (uint32_t slot = 0; slot < PSC_SLOT_COUNT; slot++)
        map->owner[slot] = (uint16_t)((uint64_t)slot * n_servers / PSC_SLOT_COUNT);
    return PSC_OK;
}

psc_status_t psc_slot_map_check(const psc_slot_map_t *map, psc_error_t *error)
{
    if (map->n_servers == 0 || map->n_servers > PSC_MAX_SERVERS)
        return psc_error_set(error, PSC_CORRUPT, "slot map names %u servers; 1 to %u are possible",
                             map->n_servers, PSC_MAX_SERVERS);
    for (uint32_t slot = 0; slot < PSC_SLOT_COUNT; slot++) {
        if (map->owner[slot] >= map->n_servers)
            return psc_error_set(error, PSC_CORRUPT, "slot %u belongs to server %u of only %u",
                                 slot, map->owner[slot], map->n_servers);
    }
    return PSC_OK;
}
