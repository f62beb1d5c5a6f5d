/*
 * Hello: a worker's first message to this server. It gets the run's id, a session of its own, the
 * map of slots, and the limit of a message.
 *
 * The worker's rank must be the transport's, and both sides must count the same workers: a worker
 * of another job cannot slip in. One session a worker and run.
 */
#include "ps/serve/serve.h"

#include <inttypes.h>

psc_status_t ps_serve_hello(ps_shard_t *shard, uint32_t peer, const psp_message_t *message,
                            psc_error_t *error)
{
    const psp_hello_t *hello = &message->u.hello;
    if (hello->worker != peer || hello->n_workers != shard->options.n_workers)
        return psc_error_set(error, PSC_PROTOCOL,
                             "hello of worker %" PRIu32 " of %" PRIu32
                             ", but it came from worker %" PRIu32 " of %" PRIu32,
                             hello->worker, hello->n_workers, peer, shard->options.n_workers);
    psc_status_t st = ps_session_begin(&shard->sessions, peer, shard->options.cluster,
                                       shard->options.rank, error);
    if (st != PSC_OK)
        return st;
    psp_message_t reply = {
        .kind = PSP_HELLO_REPLY,
        .reply = ps_shard_reply_header(shard, message),
        .u.hello_reply = {.cluster = shard->options.cluster,
                          .session = shard->sessions.all[peer].id,
                          .server = shard->options.rank,
                          .n_servers = shard->options.n_servers,
                          .map_epoch = shard->map.epoch,
                          .max_message_bytes = (uint32_t)shard->options.max_message_bytes,
                          .slot_owners = (const uint8_t *)shard->map.owner},
    };
    psp_buffer_t *buffer;
    st = psp_message_pack(shard->options.pool, &reply, &buffer, error);
    if (st == PSC_OK)
        ps_shard_send(shard, peer, buffer);
    return st;
}
