/*
 * Prefetch: rows of a later clock. Answered as it arrives, before earlier requests of its session
 * that wait, since it changes nothing; what becomes of it is the prefetcher's (ps/table). One
 * without ids asks for a sign of life and is answered like any other.
 */
#include "ps/serve/serve.h"

psc_status_t ps_serve_prefetch(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                               psc_error_t *error)
{
    (void)session;
    const psp_prefetch_t *prefetch = &request->message.u.prefetch;
    psc_status_t st = PSC_OK;
    if (prefetch->n != 0)
        st = ps_shard_find_table(shard, prefetch->table, prefetch->table_epoch, &request->table,
                                 error);
    if (st == PSC_OK && prefetch->n != 0)
        st = ps_request_keep(request, error);
    if (st == PSC_OK)
        st = ps_shard_reply_bare(shard, request, NULL, error);
    if (st != PSC_OK)
        return st;
    shard->counters.rows_announced += prefetch->n;
    if (prefetch->n != 0)
        ps_prefetcher_keep(shard, request);
    else
        request->state = PS_REQUEST_DONE;
    return PSC_OK;
}
