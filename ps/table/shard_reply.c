/*
 * Answers of the shard: packed, counted, and sent to where their request came from, a peer or a
 * call of it. What a guest was answered is kept for it (guests.h), and where there is a log,
 * answers may wait for it (logger.h).
 *
 * Each request is answered once, by one of these; ps_shard_refuse is for messages that became none.
 * Threads: the owner's.
 */
#include "ps/table/shard_state.h"

static uint64_t least_clock(const ps_shard_t *shard)
{
    const uint64_t least = shard->clock;
    return least != UINT64_MAX ? least : shard->sessions.time;
}

psp_reply_header_t ps_shard_reply_header(const ps_shard_t *shard, const psp_message_t *message)
{
    return (psp_reply_header_t){.request = message->request.request,
                                .map_epoch = shard->map.epoch,
                                .least_clock = least_clock(shard),
                                .error = PSC_ERROR_INIT};
}

static void address(ps_shard_t *shard, const psp_buffer_t *asked, psp_buffer_t *reply)
{
    shard->counters.bytes_out += reply->size;
    reply->peer = asked->peer;
    reply->call = asked->call;
}

static void send_to(ps_shard_t *shard, const psp_buffer_t *asked, psp_buffer_t *reply)
{
    address(shard, asked, reply);
    shard->options.reply(shard->options.reply_context, reply->peer, reply);
}

void ps_shard_send_logged(ps_shard_t *shard, const ps_request_t *request, psp_buffer_t *reply)
{
    address(shard, request->buffer, reply);
    if (!ps_logger_hold(shard, request, reply))
        shard->options.reply(shard->options.reply_context, reply->peer, reply);
}

void ps_shard_send(ps_shard_t *shard, const ps_request_t *request, psp_buffer_t *reply)
{
    if (ps_is_guest(&shard->sessions, request->buffer->peer))
        ps_guests_keep(shard, request, reply);
    ps_shard_send_logged(shard, request, reply);
}

psc_status_t ps_shard_reply(ps_shard_t *shard, ps_request_t *request, psp_message_t *reply,
                            psc_error_t *error)
{
    psp_buffer_t *buffer;
    reply->reply = ps_shard_reply_header(shard, &request->message);
    psc_status_t st = psp_message_pack(shard->options.pool, reply, &buffer, error);
    if (st != PSC_OK)
        return st;
    ps_shard_send(shard, request, buffer);
    request->state = PS_REQUEST_DONE;
    return PSC_OK;
}

/* A reply of a header alone. */
static psc_status_t pack_bare(const ps_shard_t *shard, uint32_t kind, uint64_t request,
                              const psc_error_t *failure, psp_buffer_t **buffer_out,
                              psc_error_t *error)
{
    psp_reply_header_t header = {.request = request,
                                 .map_epoch = shard->map.epoch,
                                 .least_clock = least_clock(shard),
                                 .error = PSC_ERROR_INIT};
    if (failure != NULL) {
        header.error = *failure;
        header.error.rank = (int32_t)shard->options.rank;
    }
    return psp_reply_pack(shard->options.pool, (psp_kind_t)psp_reply_kind(kind), &header,
                          buffer_out, error);
}

psc_status_t ps_shard_reply_bare(ps_shard_t *shard, const ps_request_t *request,
                                 const psc_error_t *failure, psc_error_t *error)
{
    psp_buffer_t *buffer;
    psc_status_t st = pack_bare(shard, request->message.kind, request->message.request.request,
                                failure, &buffer, error);
    if (st == PSC_OK)
        ps_shard_send(shard, request, buffer);
    return st;
}

psc_status_t ps_shard_refuse(ps_shard_t *shard, const psp_buffer_t *asked, uint64_t request,
                             const psc_error_t *refusal, psc_error_t *error)
{
    psp_buffer_t *buffer;
    shard->counters.refused++;
    psc_status_t st = pack_bare(shard, asked->kind, request, refusal, &buffer, error);
    if (st == PSC_OK)
        send_to(shard, asked, buffer);
    return st;
}

psc_status_t ps_shard_refuse_request(ps_shard_t *shard, ps_request_t *request,
                                     const psc_error_t *refusal, psc_error_t *error)
{
    psc_status_t st =
        ps_shard_refuse(shard, request->buffer, request->message.request.request, refusal, error);
    ps_request_destroy(&shard->requests, request);
    return st;
}
