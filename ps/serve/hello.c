/*
 * Hello: a worker's first message to this server. It gets the run's id, a session of its own, the
 * map of slots, the limits of a message and of what it may have under way, and this machine's name,
 * so that an error can say where to look. In a run that goes on from a checkpoint it also gets that
 * one's name, and a worker the clock that it goes on from.
 *
 * The worker's rank must be the transport's, and both sides must count the same workers: a worker
 * of another job cannot slip in. One session a worker and run; a guest (n_workers 0) gets a new one
 * with each Hello, and is told what counts of those that it takes the place of. That is asked
 * first: where one of them is still being served, nothing has begun yet.
 */
#include "ps/serve/serve.h"

#include "common/alloc.h"

#include <inttypes.h>
#include <stdio.h>

/* *counted_out: [n_former], NULL for none. Gives. */
static psc_status_t replace_former(ps_shard_t *shard, const ps_request_t *request,
                                   uint64_t **counted_out, psc_error_t *error)
{
    const psp_hello_t *hello = &request->message.u.hello;
    psc_status_t st = PSC_OK;
    *counted_out = NULL;
    if (hello->n_former == 0)
        return PSC_OK;
    uint64_t *counted = psc_alloc_zeroed(hello->n_former, sizeof *counted);
    if (counted == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %zu former sessions",
                             hello->n_former);
    for (size_t i = 0; st == PSC_OK && i < hello->n_former; i++)
        st = ps_guests_replace(shard, hello->former[i], request->buffer->grant, &counted[i], error);
    if (st == PSC_OK)
        *counted_out = counted;
    else
        psc_free(counted);
    return st;
}

psc_status_t ps_serve_hello(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                            psc_error_t *error)
{
    const psp_hello_t *hello = &request->message.u.hello;
    uint32_t peer = request->buffer->peer;
    const bool guest = ps_is_guest(&shard->sessions, peer);
    if (!guest && (hello->worker != peer || hello->n_workers != shard->options.n_workers))
        return psc_error_set(error, PSC_PROTOCOL,
                             "hello of worker %" PRIu32 " of %" PRIu32
                             ", but it came from worker %" PRIu32 " of %" PRIu32,
                             hello->worker, hello->n_workers, peer, shard->options.n_workers);
    uint64_t *counted = NULL;
    psc_status_t st = guest ? replace_former(shard, request, &counted, error) : PSC_OK;
    if (st == PSC_OK)
        st = ps_session_begin(&shard->sessions, peer, shard->options.cluster, shard->options.rank,
                              error);
    if (st == PSC_OK)
        st = ps_calls_begin(&shard->calls, peer, ps_calls_client(guest, peer, hello->client), 0,
                            error);
    if (st == PSC_OK && guest)
        st = ps_guests_begin(shard, peer, request->buffer->grant, error);
    if (st != PSC_OK) {
        psc_free(counted);
        return st;
    }
    if (guest && request->buffer->sealed)
        ps_guests_expect_seals(shard, peer);
    psp_message_t reply = {
        .kind = PSP_HELLO_REPLY,
        .u.hello_reply = {.cluster = shard->options.cluster,
                          .session = session->id,
                          .server = shard->options.rank,
                          .n_servers = shard->options.n_servers,
                          .map_epoch = shard->map.epoch,
                          .max_message_bytes = (uint32_t)shard->options.max_message_bytes,
                          .slot_owners = (const uint8_t *)shard->map.owner},
    };
    psp_hello_reply_t *to = &reply.u.hello_reply;
    to->window_bytes =
        (uint32_t)(guest ? shard->options.guest_window_bytes : shard->options.window_bytes);
    to->lease_ms = guest ? (uint32_t)(shard->options.lease_us / 1000) : 0;
    to->addresses = shard->options.addresses;
    to->n_addresses = to->addresses != NULL ? shard->options.n_servers : 0;
    to->counted = counted;
    to->n_counted = counted != NULL ? hello->n_former : 0;
    to->clock = guest ? 0 : session->clock;
    if (shard->options.resumed != NULL)
        (void)snprintf(to->resumed, sizeof to->resumed, "%s", shard->options.resumed);
    if (shard->options.host != NULL)
        (void)snprintf(to->host, sizeof to->host, "%s", shard->options.host);
    st = ps_shard_reply(shard, request, &reply, error);
    psc_free(counted);
    return st;
}
