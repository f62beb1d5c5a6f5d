/*
 * A call goes through these states; what moves it is in brackets:
 *
 *     EXPECTED    gRPC was told where to put the next call        [queue's thread: it came]
 *     PENDING     too much is here already: its message is not read yet   [either: there is room]
 *     RECEIVING   its message is being read                       [queue's thread: it is in]
 *     HELD        the message was given to the owner              [owner: it answers]
 *     ENDING      answer and status are being sent                [queue's thread: gone]
 *
 * and a stream, after RECEIVING, through those of door_streams: SENDING, ASKING, RESTING.
 *
 * A call in HELD is the owner's alone, in other states the queue's. `lock` guards the list of
 * calls, their states and the counts; no call of gRPC is made inside, since it may give buffers
 * back at once.
 *
 * Bounds. Messages here, and answers that have not left, are quota_bytes, over which messages stay
 * unread, so that HTTP/2's windows hold back who sends. RECEIVING_MAX are read at a time, so a
 * quota is overdrawn by as many messages at most. Who sends a message or takes an answer for
 * longer than `patience_us` is cancelled.
 */
#include "proto/grpc/door_calls.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "proto/grpc/door_streams.h"
#include "proto/seal.h"

#include <grpc/support/alloc.h>
#include <inttypes.h>
#include <stdio.h>

#define RECEIVING_MAX 32u
#define EXPECTED_MAX 4u
#define LOOK_US UINT64_C(1000000)
#define OPS_MAX 4u
#define LATE_MAX 64u /* calls that are cancelled at a time */

static void step_accepted(psp_grpc_tag_t *tag, bool ok);
static void step_received(psp_grpc_tag_t *tag, bool ok);
static void step_ended(psp_grpc_tag_t *tag, bool ok);

/* A call that is expected; NULL: no memory. */
static psp_door_call_t *new_call(psp_door_t *door)
{
    psp_door_lock(door);
    psp_door_call_t *call = door->unused;
    if (call != NULL)
        door->unused = call->next;
    psp_door_unlock(door);
    if (call == NULL && (call = psc_alloc(sizeof *call)) == NULL)
        return NULL;
    *call = (psp_door_call_t){.door = door, .state = PSP_CALL_EXPECTED, .n_last = 1};
    call->accepted = (psp_door_step_t){.tag.done = step_accepted, .call = call};
    call->received = (psp_door_step_t){.tag.done = step_received, .call = call};
    call->ended = (psp_door_step_t){.tag.done = step_ended, .call = call};
    grpc_call_details_init(&call->details);
    grpc_metadata_array_init(&call->metadata);
    psp_door_stream_init(call);
    call->status_text = grpc_empty_slice();
    return call;
}

/* What gRPC gave it. */
static void empty_call(psp_door_call_t *call)
{
    grpc_call_details_destroy(&call->details);
    grpc_metadata_array_destroy(&call->metadata);
    psp_rights_put(call->rights);
    grpc_slice_unref(call->status_text);
    if (call->request != NULL)
        grpc_byte_buffer_destroy(call->request);
    if (call->reply != NULL)
        grpc_byte_buffer_destroy(call->reply);
    if (call->last_word != NULL)
        grpc_byte_buffer_destroy(call->last_word);
    psp_door_frames_clear(&call->frames);
    if (call->inside != NULL)
        grpc_call_unref(call->inside);
}

static void free_call(psp_door_t *door, psp_door_call_t *call)
{
    psp_door_lock(door);
    call->next = door->unused;
    door->unused = call;
    psp_door_unlock(door);
}

void psp_door_expect(psp_door_t *door)
{
    for (;;) {
        psp_door_lock(door);
        const bool more = !door->stopping && door->n_expected < EXPECTED_MAX;
        door->n_expected += more;
        psp_door_unlock(door);
        if (!more)
            return;
        psp_door_call_t *call = new_call(door);
        grpc_completion_queue *queue = psp_grpc_queue_inside(door->queue);
        if (call != NULL)
            psp_grpc_tag_give(&call->accepted.tag);
        if (call != NULL &&
            grpc_server_request_call(door->server, &call->inside, &call->details, &call->metadata,
                                     queue, queue, &call->accepted.tag) == GRPC_CALL_OK)
            continue;
        if (call != NULL) {
            empty_call(call);
            free_call(door, call);
        }
        psp_door_lock(door);
        door->n_expected--;
        psp_door_unlock(door);
        return; /* again with the next that ends */
    }
}

void psp_door_start(psp_door_call_t *call, const grpc_op *ops, size_t n, psp_door_step_t *step)
{
    grpc_call *inside = call->inside;
    psp_grpc_tag_give(&step->tag);
    const grpc_call_error fault = grpc_call_start_batch(inside, ops, n, &step->tag, NULL);
    PSC_BUG_ON(fault != GRPC_CALL_OK); /* the batch itself would be wrong */
}

void psp_door_enter(psp_door_call_t *call, psp_door_state_t state)
{
    psp_door_t *door = call->door;
    psp_door_lock(door);
    door->n_receiving -= call->state == PSP_CALL_RECEIVING;
    door->n_receiving += state == PSP_CALL_RECEIVING;
    door->n_ending += state == PSP_CALL_ENDING;
    call->state = state;
    call->since_us = psc_clock_us();
    (void)pthread_cond_broadcast(&door->changed);
    psp_door_unlock(door);
}

void psp_door_end_call(psp_door_call_t *call, grpc_status_code status, const char *text)
{
    grpc_op ops[OPS_MAX] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
    size_t n = call->has_begun ? 0 : 1;
    psp_door_enter(call, PSP_CALL_ENDING);
    if (call->reply != NULL)
        ops[n++] =
            (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = call->reply};
    call->status_text = grpc_slice_from_copied_string(text);
    ops[n] = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    ops[n].data.send_status_from_server.status = status;
    ops[n++].data.send_status_from_server.status_details = &call->status_text;
    if (!call->hears_close) {
        ops[n] = (grpc_op){.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
        ops[n++].data.recv_close_on_server.cancelled = &call->was_cancelled;
    }
    psp_door_start(call, ops, n, &call->ended);
}

void psp_door_receive(psp_door_call_t *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->request;
    psp_door_start(call, &op, 1, &call->received);
}

void psp_door_admit(psp_door_t *door)
{
    for (;;) {
        psp_door_lock(door);
        psp_door_call_t *call = door->pending;
        const bool room = door->n_receiving < RECEIVING_MAX &&
                          atomic_load(&door->bytes_here) < door->options.quota_bytes;
        if (call == NULL || !room) {
            psp_door_unlock(door);
            return;
        }
        door->pending = call->next_pending;
        if (door->pending == NULL)
            door->pending_last = NULL;
        call->state = PSP_CALL_RECEIVING;
        call->since_us = psc_clock_us();
        door->n_receiving++;
        psp_door_unlock(door);
        psp_door_receive(call);
    }
}

static void append_pending(psp_door_call_t *call)
{
    psp_door_t *door = call->door;
    psp_door_lock(door);
    call->state = PSP_CALL_PENDING;
    call->since_us = psc_clock_us();
    call->next_pending = NULL;
    *(door->pending_last != NULL ? &door->pending_last->next_pending : &door->pending) = call;
    door->pending_last = call;
    (void)pthread_cond_broadcast(&door->changed);
    psp_door_unlock(door);
}

/* Does its token let it in? What the door answers itself, health and reflection, is for anybody. */
static psc_status_t check_token(psp_door_call_t *call, psc_error_t *error)
{
    psp_grpc_tokens_t *tokens = call->door->tokens;
    if (tokens == NULL || call->method.kind == 0)
        return PSC_OK;
    return psp_grpc_tokens_check(tokens, &call->metadata, &call->rights, &call->grant, error);
}

/* A call has come, or, at the end, will not. */
static void step_accepted(psp_grpc_tag_t *tag, bool ok)
{
    psp_door_call_t *call = ((psp_door_step_t *)tag)->call;
    psp_door_t *door = call->door;
    const bool known = ok && psp_door_method_find(call->details.method, &call->method);
    psp_door_lock(door);
    door->n_expected--;
    const bool stopping = door->stopping, full = door->n_calls >= door->options.max_calls;
    const char *not_yet = call->method.kind != 0 ? door->not_yet : NULL;
    const bool crowded = door->n_streams >= door->options.max_streams && call->method.is_stream;
    if (ok) {
        call->next = door->calls;
        if (call->next != NULL)
            call->next->previous = call;
        door->calls = call;
        door->n_calls++;
        door->n_streams += call->method.is_stream;
    }
    (void)pthread_cond_broadcast(&door->changed);
    psp_door_unlock(door);
    if (!ok) {
        empty_call(call);
        free_call(door, call);
        return;
    }
    psp_door_expect(door);
    psc_error_t refusal = PSC_ERROR_INIT;
    char text[128];
    if (stopping) {
        psp_door_end_call(call, GRPC_STATUS_UNAVAILABLE, "the server ends");
    } else if (full) {
        (void)snprintf(text, sizeof text, "more than %" PRIu32 " calls are under way",
                       door->options.max_calls);
        psp_door_end_call(call, GRPC_STATUS_RESOURCE_EXHAUSTED, text);
    } else if (crowded) {
        (void)snprintf(text, sizeof text, "more than %" PRIu32 " streams are open",
                       door->options.max_streams);
        psp_door_end_call(call, GRPC_STATUS_RESOURCE_EXHAUSTED, text);
    } else if (!known) {
        psp_door_end_call(call, GRPC_STATUS_UNIMPLEMENTED, "no such method");
    } else if (not_yet != NULL) {
        psp_door_end_call(call, GRPC_STATUS_UNAVAILABLE, not_yet);
    } else if (check_token(call, &refusal) != PSC_OK) {
        psp_door_end_call(call, GRPC_STATUS_UNAUTHENTICATED, refusal.message);
    } else {
        append_pending(call);
        psp_door_admit(door);
    }
}

void psp_door_hand_over(psp_door_call_t *call, psp_buffer_t *message)
{
    psp_door_t *door = call->door;
    message->kind = call->method.kind;
    message->peer = PSP_PEER_GUEST;
    message->call = call;
    message->grant = call->grant;
    atomic_fetch_sub(&door->bytes_here, call->bytes); /* of a message before, which is answered */
    call->bytes = message->capacity;
    atomic_fetch_add(&door->bytes_here, call->bytes);
    psp_door_enter(call, PSP_CALL_HELD);
    psc_queue_push(door->arrived, &message->node);
    if (door->options.wake_also != NULL)
        psp_transport_wake(door->options.wake_also);
}

/* CORRUPT: it came damaged. */
static psc_status_t check_seal(psp_door_call_t *call, psp_buffer_t *message, psc_error_t *error)
{
    const uint32_t kind = call->method.kind;
    if (kind == 0)
        return PSC_OK; /* health and the like */
    message->kind = kind;
    const bool whole = psp_seal_take_request(message, call->door->options.checksums);
    call->sealed = message->sealed;
    if (whole)
        return PSC_OK;
    const uint64_t n = ++call->door->base.damaged;
    char *peer = grpc_call_get_peer(call->inside);
    (void)psc_error_set(error, PSC_CORRUPT,
                        "a %s of %zu bytes from %.100s came damaged: send it again",
                        psp_kind_name(kind), message->size, peer);
    if ((n & (n - 1)) == 0) /* the 1st, 2nd, 4th and so on: nobody fills the log */
        psc_log(PSC_LOG_WARN, "%s (message %" PRIu64 " of that sort)", error->message, n);
    gpr_free(peer);
    psp_buffer_put(message);
    return PSC_CORRUPT;
}

/* A message is in, or the call is off. */
static void step_received(psp_grpc_tag_t *tag, bool ok)
{
    psp_door_call_t *call = ((psp_door_step_t *)tag)->call;
    psp_door_t *door = call->door;
    psp_buffer_t *buffer = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st;
    if (call->request == NULL && call->method.asks_again) { /* no more questions, or gone */
        if (call->method.finish != NULL)
            call->method.finish(call);
        else
            psp_door_end_call(call, GRPC_STATUS_OK, "");
        psp_door_admit(door);
        return;
    }
    if (!ok || call->request == NULL)
        st = psc_error_set(&error, PSC_PROTOCOL, "a call without a message");
    else
        st = psp_grpc_take(door->base.pool, call->request, door->options.max_message_bytes, &buffer,
                           &error);
    if (call->request != NULL)
        grpc_byte_buffer_destroy(call->request);
    call->request = NULL;
    if (st == PSC_OK)
        st = check_seal(call, buffer, &error);
    if (st == PSC_OK)
        call->method.answer(call, buffer);
    else
        psp_door_end_call(call, psp_grpc_status(st), error.message);
    psp_door_admit(door);
}

/* Nothing of a call is under way any more. */
static void finish(psp_door_call_t *call)
{
    psp_door_t *door = call->door;
    atomic_fetch_sub(&door->bytes_here, call->bytes);
    psp_door_lock(door);
    *(call->previous != NULL ? &call->previous->next : &door->calls) = call->next;
    if (call->next != NULL)
        call->next->previous = call->previous;
    door->n_streams -= call->method.is_stream;
    psp_door_unlock(door);
    empty_call(call);
    psp_door_admit(door);
    psp_door_expect(door);
    /* Last, since the end waits for it. */
    psp_door_lock(door);
    call->next = door->unused;
    door->unused = call;
    door->n_ending--;
    door->n_calls--;
    (void)pthread_cond_broadcast(&door->changed);
    psp_door_unlock(door);
}

void psp_door_last_step(psp_door_call_t *call)
{
    psp_door_lock(call->door);
    const bool over = --call->n_last == 0;
    psp_door_unlock(call->door);
    if (over)
        finish(call);
}

/* Answer and status have left, or cannot. */
static void step_ended(psp_grpc_tag_t *tag, bool ok)
{
    (void)ok;
    psp_door_last_step(((psp_door_step_t *)tag)->call);
}

/* gRPC needs an answer no more. Any thread. */
static void release(void *context)
{
    psp_buffer_t *buffer = context;
    psp_door_t *door = buffer->call;
    atomic_fetch_sub(&door->bytes_here, buffer->capacity);
    psp_buffer_put(buffer);
    psp_door_lock(door);
    door->n_lent--;
    (void)pthread_cond_broadcast(&door->changed);
    psp_door_unlock(door);
}

void psp_door_lend(psp_door_call_t *call, psp_buffer_t *answer)
{
    psp_door_t *door = call->door;
    if (call->sealed)
        psp_seal_put(answer, 0, 0);
    atomic_fetch_add(&door->bytes_here, answer->capacity);
    psp_door_lock(door);
    door->n_lent++;
    psp_door_unlock(door);
    answer->call = door; /* for release, which may come when the call has ended */
    call->reply = psp_grpc_lend(answer, release);
}

void psp_door_reply(psp_door_call_t *call, psp_buffer_t *answer)
{
    char text[sizeof(psc_error_t)];
    if (call->grant != NULL && psp_grpc_denies(answer, text, sizeof text)) {
        psp_door_lend(call, answer);
        psp_door_end_call(call, GRPC_STATUS_PERMISSION_DENIED, text);
        return;
    }
    if (call->method.reply != NULL) {
        call->method.reply(call, answer);
        return;
    }
    psp_door_lend(call, answer);
    psp_door_end_call(call, GRPC_STATUS_OK, "");
}

/* What ends then goes on as if it had ended by itself. */
void psp_door_look(psp_door_t *door)
{
    const uint64_t now_us = psc_clock_us();
    grpc_call *late[LATE_MAX];
    size_t n = 0;
    if (now_us - door->looked_us < LOOK_US)
        return;
    door->looked_us = now_us;
    psp_door_lock(door);
    for (const psp_door_call_t *call = door->calls; call != NULL && n < LATE_MAX;
         call = call->next) {
        /* since_us may be after now_us: the queue's thread goes on meanwhile. */
        const bool hurries = call->state == PSP_CALL_RECEIVING || call->state == PSP_CALL_SENDING ||
                             call->state == PSP_CALL_ENDING;
        if (hurries && call->since_us + door->options.patience_us < now_us) {
            late[n] = call->inside;
            grpc_call_ref(late[n++]);
        }
    }
    psp_door_unlock(door);
    for (size_t i = 0; i < n; i++) { /* may give buffers back, which takes the lock */
        (void)grpc_call_cancel(late[i], NULL);
        grpc_call_unref(late[i]);
    }
}

psp_door_call_t *psp_door_find_unanswered(psp_door_t *door)
{
    psp_door_call_t *call = door->calls;
    while (call != NULL && call->state != PSP_CALL_HELD && call->state != PSP_CALL_PENDING)
        call = call->next;
    return call;
}

void psp_door_free_calls(psp_door_t *door)
{
    while (door->unused != NULL) {
        psp_door_call_t *call = door->unused;
        door->unused = call->next;
        psc_free(call);
    }
}
