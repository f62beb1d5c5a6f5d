/*
 * Touches: some of the rows that a worker read straight from memory. The policy that decides which
 * rows leave memory hears of them here; without that the rows used most would look unused.
 *
 * Ids that are not in memory, or of another server, are passed over: a touch is a hint. Cost: one
 * look-up an id.
 */
#include "ps/serve/serve.h"
#include "ps/store/share.h"

psc_status_t ps_serve_touches(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                              psc_error_t *error)
{
    (void)session;
    const psp_touches_t *touches = &request->message.u.touches;
    psc_status_t st =
        ps_shard_find_table(shard, touches->table, touches->table_epoch, &request->table, error);
    if (st != PSC_OK)
        return st;
    uint64_t ids[PS_SHARE_TOUCHES], hashes[PS_SHARE_TOUCHES];
    for (size_t first = 0; first < touches->n; first += PS_SHARE_TOUCHES) {
        size_t n = touches->n - first < PS_SHARE_TOUCHES ? touches->n - first : PS_SHARE_TOUCHES;
        for (size_t i = 0; i < n; i++) {
            ids[i] = psp_id_at(touches->ids, first + i);
            hashes[i] = psc_row_hash(request->table->number, ids[i]);
        }
        shard->counters.rows_touched +=
            ps_store_touch(shard->options.store, request->table->number, ids, hashes, n);
    }
    request->state = PS_REQUEST_DONE;
    return ps_shard_reply_bare(shard, request, NULL, error);
}
