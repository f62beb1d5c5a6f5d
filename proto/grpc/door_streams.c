/*
 * Two ways to go on once a message is answered; what moves a stream is in brackets:
 *
 *     SENDING     the answer is being sent                   [queue's thread: it has left]
 *     ASKING      the next message is awaited                [queue's thread: it is in]
 *     RESTING     nothing is under way but `closed`          [either: the client or the door ends]
 *
 * Each stream has one message under way at most, so that a client that does not read holds no more
 * than that, and is cancelled like any other that takes too long. A client may be silent for as
 * long as it likes: max_streams bounds how many are.
 *
 * A stream that rests is taken out of RESTING under the lock, by the owner (the door closes) or by
 * the queue (the client has left), and ended by whoever took it. While it is SENDING neither takes
 * it: the queue looks at both when the answer has left. The call is over when `ended` and `closed`
 * have both come.
 */
#include "proto/grpc/door_streams.h"

void psp_door_stream_answer(psp_door_call_t *call)
{
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
    size_t n = call->has_begun ? 0 : 1;
    ops[n] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE};
    ops[n++].data.send_message.send_message = call->reply;
    psp_door_enter(call, PSP_CALL_SENDING);
    call->has_begun = true;
    psp_door_start(call, ops, n, &call->sent);
}

/* Ends a stream that was taken out of RESTING. */
static void end_rest(psp_door_call_t *call, bool stopping)
{
    call->reply = stopping ? call->last_word : NULL;
    if (stopping)
        call->last_word = NULL;
    psp_door_end_call(call, stopping ? GRPC_STATUS_UNAVAILABLE : GRPC_STATUS_CANCELLED,
                      stopping ? "the server ends" : "");
}

/* An answer has left, or cannot. */
static void step_sent(psp_grpc_tag_t *tag, bool ok)
{
    psp_door_call_t *call = ((psp_door_step_t *)tag)->call;
    psp_door_t *door = call->door;
    grpc_byte_buffer_destroy(call->reply);
    call->reply = NULL;
    if (call->method.sent != NULL) {
        call->method.sent(call, ok);
        return;
    }
    if (!call->hears_close) {
        psp_door_enter(call, PSP_CALL_ASKING);
        psp_door_receive(call); /* of one that is off there is nothing more, which ends it */
        return;
    }
    psp_door_lock(door);
    const bool stopping = door->stopping, rests = ok && !stopping && !call->is_closed;
    if (rests)
        call->state = PSP_CALL_RESTING;
    psp_door_unlock(door);
    if (!rests)
        end_rest(call, stopping);
}

/* The client has left, or the call has ended. */
static void step_closed(psp_grpc_tag_t *tag, bool ok)
{
    psp_door_call_t *call = ((psp_door_step_t *)tag)->call;
    psp_door_t *door = call->door;
    (void)ok;
    psp_door_lock(door);
    call->is_closed = true;
    const bool taken = call->state == PSP_CALL_RESTING;
    if (taken)
        call->state = PSP_CALL_SENDING;
    psp_door_unlock(door);
    if (taken)
        end_rest(call, false);
    psp_door_last_step(call);
}

void psp_door_stream_init(psp_door_call_t *call)
{
    call->sent = (psp_door_step_t){.tag.done = step_sent, .call = call};
    call->closed = (psp_door_step_t){.tag.done = step_closed, .call = call};
}

void psp_door_stream_hear(psp_door_call_t *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &call->was_cancelled;
    call->hears_close = true;
    psp_door_lock(call->door);
    call->n_last++;
    psp_door_unlock(call->door);
    psp_door_start(call, &op, 1, &call->closed);
}

void psp_door_stream_rest(psp_door_call_t *call, grpc_byte_buffer *last_word)
{
    call->last_word = last_word;
    psp_door_enter(call, PSP_CALL_SENDING); /* before `closed` may come */
    psp_door_stream_hear(call);
    psp_door_stream_answer(call);
}

void psp_door_end_resting(psp_door_t *door)
{
    for (;;) {
        psp_door_lock(door);
        psp_door_call_t *call = door->calls;
        while (call != NULL && call->state != PSP_CALL_RESTING)
            call = call->next;
        if (call != NULL)
            call->state = PSP_CALL_SENDING;
        psp_door_unlock(door);
        if (call == NULL)
            return;
        end_rest(call, true);
    }
}
