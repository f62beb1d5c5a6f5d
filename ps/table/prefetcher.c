/*
 * A queue of announcements, and the reads that come of them.
 *
 * Pulls and pushes go first: nothing is done while one of them wants room, and the store starts
 * reads for an announcement only when few are under way, so that a pull waits for one piece at
 * most. When the store's share for rows ahead of their use is full, the queue stands until some
 * have been used.
 *
 * An announcement that is late (its worker has ended the clock it was for), or the oldest one when
 * too many are kept, is dropped, and as many rows as it had lapse: by then those that were
 * announced before it are not waited for either. So rows that are announced and never pulled do not
 * keep others out for ever.
 *
 * Memory: PS_PREFETCHER_BYTES of messages, one more at the most. Threads: the owner's.
 */
#include "ps/table/prefetcher.h"

#include "ps/table/shard_state.h"

static void drop_oldest(ps_shard_t *shard)
{
    ps_prefetcher_t *prefetcher = &shard->prefetcher;
    ps_request_t *request = prefetcher->head;
    prefetcher->head = request->next;
    if (prefetcher->head == NULL)
        prefetcher->tail = NULL;
    prefetcher->n--;
    prefetcher->bytes -= ps_request_bytes(request);
    prefetcher->at = 0;
    prefetcher->stands = false;
    request->next = NULL;
    ps_request_destroy(&shard->requests, request);
}

/* Gives up the rest of the oldest announcement. */
static void give_up(ps_shard_t *shard)
{
    const ps_request_t *request = shard->prefetcher.head;
    size_t n = request->message.u.prefetch.n;
    shard->counters.announced_dropped += n - shard->prefetcher.at;
    ps_store_prefetch_lapse(shard->options.store, request->table->number, n);
    drop_oldest(shard);
}

void ps_prefetcher_keep(ps_shard_t *shard, ps_request_t *request)
{
    ps_prefetcher_t *prefetcher = &shard->prefetcher;
    size_t bytes = ps_request_bytes(request);
    while (prefetcher->n == PS_PREFETCHER_MESSAGES ||
           (prefetcher->n != 0 && prefetcher->bytes + bytes > PS_PREFETCHER_BYTES))
        give_up(shard);
    request->next = NULL;
    if (prefetcher->tail != NULL)
        prefetcher->tail->next = request;
    else
        prefetcher->head = request;
    prefetcher->tail = request;
    prefetcher->n++;
    prefetcher->bytes += bytes;
}

psc_status_t ps_prefetcher_take(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    psc_status_t st = ps_shard_serve(shard, request->buffer->peer, request, error);
    if (st != PSC_OK || request->state == PS_REQUEST_DONE)
        ps_request_destroy(&shard->requests, request);
    return st;
}

static bool is_late(const ps_shard_t *shard, const ps_request_t *request)
{
    const ps_session_t *session = &shard->sessions.all[request->buffer->peer];
    return session->state != PS_SESSION_LIVE || session->id != request->message.request.session ||
           session->clock > request->message.u.prefetch.when;
}

/* Whether a request waits for room, which reads ahead would take. */
static bool room_is_wanted(const ps_shard_t *shard)
{
    if (shard->starving != NULL || (shard->summing && shard->summed.state == PS_REQUEST_WAIT_ROOM))
        return true;
    for (uint32_t i = 0; shard->n_waiting != 0 && i < shard->sessions.n_all; i++) {
        const ps_request_t *head = shard->sessions.all[i].head;
        if (head != NULL && head->state == PS_REQUEST_WAIT_ROOM)
            return true;
    }
    return false;
}

void ps_prefetcher_step(ps_shard_t *shard, bool moved, bool *progress_out)
{
    ps_prefetcher_t *prefetcher = &shard->prefetcher;
    while (prefetcher->head != NULL && is_late(shard, prefetcher->head))
        give_up(shard);
    if (prefetcher->head == NULL || (prefetcher->stands && !moved) || room_is_wanted(shard))
        return;
    const ps_request_t *request = prefetcher->head;
    const psp_prefetch_t *prefetch = &request->message.u.prefetch;
    size_t n = prefetch->n - prefetcher->at;
    if (n > PS_PREFETCHER_ROWS)
        n = PS_PREFETCHER_ROWS;
    uint16_t table = request->table->number;
    if (ps_rows_locate(prefetch->ids + prefetcher->at * sizeof(uint64_t), n, table, &shard->map,
                       shard->options.rank, prefetcher->ids, prefetcher->hashes) != n) {
        give_up(shard); /* rows of another server: a client's mistake, and it has its answer */
        return;
    }
    size_t done =
        ps_store_prefetch(shard->options.store, table, prefetcher->ids, prefetcher->hashes, n);
    prefetcher->at += done;
    prefetcher->stands = done == 0;
    *progress_out |= done != 0;
    if (prefetcher->at == prefetch->n)
        drop_oldest(shard);
}

void ps_prefetcher_stop(ps_shard_t *shard)
{
    while (shard->prefetcher.head != NULL)
        drop_oldest(shard);
}
