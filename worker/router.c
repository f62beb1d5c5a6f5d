/*
 * A counting sort by owner: count, sum up, place. Linear, stable, two passes over the hashes'
 * owners.
 *
 * The slot map is data (common/slots.h), so nothing here knows how slots are spread. Owners are
 * looked up once and kept in 16 bits for the second pass. Arrays grow to the largest batch and
 * stay: no allocation once warm. One thread at a time.
 */
#include "worker/router.h"

#include "common/alloc.h"

#include <string.h>

struct psw_router {
    uint16_t *owners;
    size_t capacity;
    uint32_t *start; /* n_servers + 1 */
    uint32_t *place; /* n_servers: where the next item of a server goes */
    uint32_t n_servers;
};

psc_status_t psw_router_create(psw_router_t **router_out, psc_error_t *error)
{
    psw_router_t *router = psc_alloc_zeroed(1, sizeof *router);
    if (router == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a client's router");
    *router_out = router;
    return PSC_OK;
}

void psw_router_destroy(psw_router_t *router)
{
    if (router == NULL)
        return;
    psc_free(router->owners);
    psc_free(router->start);
    psc_free(router->place);
    psc_free(router);
}

static psc_status_t reserve(psw_router_t *router, uint32_t n_servers, size_t n, psc_error_t *error)
{
    if (router->n_servers != n_servers) {
        uint32_t *start = psc_realloc_array(router->start, (size_t)n_servers + 1, sizeof *start);
        if (start != NULL)
            router->start = start;
        uint32_t *place = psc_realloc_array(router->place, n_servers, sizeof *place);
        if (place != NULL)
            router->place = place;
        if (start == NULL || place == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "no memory to route to %u servers",
                                 n_servers);
        router->n_servers = n_servers;
    }
    if (n > router->capacity) {
        size_t capacity = n + n / 2;
        uint16_t *owners = psc_realloc_array(router->owners, capacity, sizeof *owners);
        if (owners == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "no memory to route %zu rows", n);
        router->owners = owners;
        router->capacity = capacity;
    }
    return PSC_OK;
}

psc_status_t psw_router_split(psw_router_t *router, const psc_slot_map_t *map,
                              const uint64_t *hashes, const uint32_t *labels, size_t n,
                              uint32_t *order_out, const uint32_t **start_out, psc_error_t *error)
{
    const uint32_t n_servers = map->n_servers;
    psc_status_t st = reserve(router, n_servers, n, error);
    if (st != PSC_OK)
        return st;
    uint32_t *start = router->start;
    if (n_servers == 1) { /* nothing to sort */
        start[0] = 0;
        start[1] = (uint32_t)n;
        for (size_t i = 0; i < n; i++)
            order_out[i] = labels != NULL ? labels[i] : (uint32_t)i;
        *start_out = start;
        return PSC_OK;
    }
    memset(start, 0, ((size_t)n_servers + 1) * sizeof *start);
    for (size_t i = 0; i < n; i++) {
        uint32_t owner = psc_slot_owner(map, hashes[i]);
        router->owners[i] = (uint16_t)owner;
        start[owner + 1]++;
    }
    for (uint32_t s = 0; s < n_servers; s++) {
        router->place[s] = start[s];
        start[s + 1] += start[s];
    }
    for (size_t i = 0; i < n; i++)
        order_out[router->place[router->owners[i]]++] = labels != NULL ? labels[i] : (uint32_t)i;
    *start_out = start;
    return PSC_OK;
}
