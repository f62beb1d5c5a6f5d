/*
 * What is done on whose thread: answers of the owner come on its own (write, ask), everything else
 * on the queue's. A call in HELD is the owner's, so it alone touches `frames` then.
 *
 * A stream has one message under way: a block is asked for when the last one has left, a message is
 * read when the last one is answered. So a client that does not read holds one block, and is
 * cancelled like any other that takes too long; one that does not write holds its place among
 * max_streams. When the client leaves, or the door stops, a stream of answers ends behind the block
 * that is under way.
 *
 * The next request is the first one with a further field behind it: of a field that comes twice the
 * last one counts. In the same way the sums are put behind an answer. Requests of a stream of
 * answers have no sequence, which is looked at with the first answer: one that comes again would be
 * answered as it was before, so that the stream would not move.
 */
#include "proto/grpc/door_frames.h"

#include "proto/grpc/door_calls.h"
#include "proto/grpc/door_streams.h"
#include "proto/wire_walk.h"

#include <string.h>

#define CURSOR_FIELD 6u /* of ExportRequest and WatchRequest */
#define ROWS_FIELD 2u   /* of ImportReply, and the next one */
#define CREATED_FIELD 3u
#define TAIL_BYTES (PSP_CURSOR_MAX + 32u)

/* Why a stream of answers ends before its end; OK: it goes on. */
static grpc_status_code why_over(psp_door_call_t *call, bool sent)
{
    psp_door_lock(call->door);
    const bool stopping = call->door->stopping, closed = call->is_closed || !sent;
    psp_door_unlock(call->door);
    if (closed)
        return GRPC_STATUS_CANCELLED;
    return stopping ? GRPC_STATUS_UNAVAILABLE : GRPC_STATUS_OK;
}

static uint8_t *put_tag(uint8_t *out, uint32_t number, psp_wire_type_t type)
{
    return psp_varint_write(out, (uint64_t)number << 3 | type);
}

/* A copy of what is kept, with a tail; NULL: no memory. Gives. */
static psp_buffer_t *with_tail(psp_door_call_t *call, const uint8_t *tail, size_t size)
{
    const psp_buffer_t *kept = call->frames.kept;
    psp_buffer_t *buffer;
    if (psp_buffer_get(call->door->base.pool, kept->size + size, &buffer, NULL) != PSC_OK)
        return NULL;
    memcpy(buffer->data, kept->data, kept->size);
    memcpy(buffer->data + kept->size, tail, size);
    buffer->size = kept->size + size;
    buffer->kind = kept->kind;
    buffer->sealed = kept->sealed; /* the seal itself is looked at no more */
    return buffer;
}

/* ---- a stream of answers ---- */

void psp_door_frames_begin(psp_door_call_t *call, psp_buffer_t *message)
{
    psp_buffer_share(message);
    call->frames.kept = message;
    psp_door_stream_hear(call);
    psp_door_hand_over(call, message);
}

/* Where the next answer begins, of one that came; false: it was the last one. */
static bool find_next(psp_door_call_t *call, const psp_buffer_t *answer)
{
    psp_message_t message;
    psp_door_frames_t *frames = &call->frames;
    if (psp_message_unpack(call->door->scratch, answer->kind, answer->data, answer->size, &message,
                           NULL) != PSC_OK ||
        message.reply.error.code != PSC_OK)
        return false;
    const psp_export_reply_t *reply =
        message.kind == PSP_WATCH_REPLY ? &message.u.watch_reply.block : &message.u.export_reply;
    frames->cursor_size = reply->next_size;
    memcpy(frames->cursor, reply->next, reply->next_size);
    return reply->next_size != 0;
}

/* Whether the stream's request has a sequence, so that it would be answered as before each time. */
static bool has_sequence(const psp_door_call_t *call)
{
    psp_message_t message;
    const psp_buffer_t *kept = call->frames.kept;
    return psp_message_unpack(call->door->scratch, call->method.kind, kept->data, kept->size,
                              &message, NULL) == PSC_OK &&
           message.request.sequence != 0;
}

void psp_door_frames_write(psp_door_call_t *call, psp_buffer_t *answer)
{
    if (!call->has_begun && has_sequence(call)) {
        psp_buffer_put(answer);
        psp_door_end_call(call, GRPC_STATUS_INVALID_ARGUMENT,
                          "the request of a stream must have sequence 0");
        return;
    }
    const bool more = find_next(call, answer);
    psp_door_lend(call, answer);
    if (more)
        psp_door_stream_answer(call);
    else
        psp_door_end_call(call, GRPC_STATUS_OK, "");
}

void psp_door_frames_go_on(psp_door_call_t *call, bool ok)
{
    const psp_door_frames_t *frames = &call->frames;
    uint8_t tail[TAIL_BYTES], *end = put_tag(tail, CURSOR_FIELD, PSP_WIRE_BYTES);
    const grpc_status_code over = why_over(call, ok);
    if (over != GRPC_STATUS_OK) {
        psp_door_end_call(call, over, over == GRPC_STATUS_UNAVAILABLE ? "the server ends" : "");
        return;
    }
    end = psp_varint_write(end, frames->cursor_size);
    memcpy(end, frames->cursor, frames->cursor_size);
    end += frames->cursor_size;
    psp_buffer_t *request = with_tail(call, tail, (size_t)(end - tail));
    if (request != NULL)
        psp_door_hand_over(call, request);
    else
        psp_door_end_call(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "no memory for a request");
}

/* ---- a stream of requests ---- */

/* The last answer, with the sums of all. */
static void end_with_sums(psp_door_call_t *call)
{
    uint8_t tail[TAIL_BYTES], *end = put_tag(tail, ROWS_FIELD, PSP_WIRE_VARINT);
    end = psp_varint_write(end, call->frames.rows);
    end = put_tag(end, CREATED_FIELD, PSP_WIRE_VARINT);
    end = psp_varint_write(end, call->frames.created);
    psp_buffer_t *answer = with_tail(call, tail, (size_t)(end - tail));
    if (answer == NULL) {
        psp_door_end_call(call, GRPC_STATUS_RESOURCE_EXHAUSTED, "no memory for an answer");
        return;
    }
    psp_door_lend(call, answer);
    psp_door_end_call(call, GRPC_STATUS_OK, "");
}

void psp_door_frames_ask(psp_door_call_t *call, psp_buffer_t *answer)
{
    psp_door_frames_t *frames = &call->frames;
    psp_message_t message;
    const psc_status_t st = psp_message_unpack(call->door->scratch, answer->kind, answer->data,
                                               answer->size, &message, NULL);
    psp_buffer_put(frames->kept);
    frames->kept = answer;
    if (st != PSC_OK || message.reply.error.code != PSC_OK || message.kind != PSP_IMPORT_REPLY) {
        end_with_sums(call);
        return;
    }
    frames->rows += message.u.import_reply.rows;
    frames->created += message.u.import_reply.created;
    psp_door_enter(call, PSP_CALL_ASKING);
    psp_door_receive(call);
}

void psp_door_frames_sum_up(psp_door_call_t *call)
{
    if (call->frames.kept == NULL)
        psp_door_end_call(call, GRPC_STATUS_INVALID_ARGUMENT, "a stream without a message");
    else
        end_with_sums(call);
}

void psp_door_frames_clear(psp_door_frames_t *frames)
{
    psp_buffer_put(frames->kept);
    frames->kept = NULL;
}
