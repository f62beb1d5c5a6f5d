/*
 * The calls of embps.h that switch the cache on and say how long it may accumulate.
 *
 * Both may be called at any time. A cache that is replaced sends its deltas first, and waits for
 * them; a shorter period holds from the end of the present clock on. Threads: that of the client.
 */
#include "worker/cached_rows.h"

_Static_assert(EMBPS_FLUSH_MAX == PSW_CACHE_FLUSH_MAX, "one limit");

int embps_set_cache(embps_client_t *client, size_t bytes, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    return psw_cached_set(client, bytes, &what) == PSC_OK ? 0 : psw_error_export(&what, error);
}

void embps_set_flush(embps_client_t *client, uint32_t clocks)
{
    client->flush = clocks == 0 ? 1 : clocks;
    if (clocks > PSW_CACHE_FLUSH_MAX)
        client->flush = PSW_CACHE_FLUSH_MAX;
}

psc_status_t psw_flush_due(embps_client_t *client, psc_error_t *error)
{
    return psw_cached_flush_due(client, error);
}
