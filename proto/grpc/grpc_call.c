/*
 * All six operations of a unary call in one batch, which ends as one event when the status is
 * there. The status operation always succeeds, so the event says nothing; `status` does.
 *
 * Not waiting for ready: a call to a server that cannot be reached fails at once with what is
 * wrong, and whoever makes it again decides when. Threads: start and finish are called by one
 * thread each, finish after the event.
 */
#include "proto/grpc/grpc_call.h"

#define N_OPERATIONS 6u

void psp_grpc_call_start(psp_grpc_call_t *call, psp_grpc_queue_t *queue, grpc_channel *channel,
                         void *method, psp_grpc_secrets_t *secrets, psp_buffer_t *buffer)
{
    call->inside = grpc_channel_create_registered_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                                       psp_grpc_queue_inside(queue), method,
                                                       gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    call->token = psp_grpc_secrets_token(secrets);
    call->reply = NULL;
    call->status = GRPC_STATUS_UNKNOWN;
    call->details = grpc_empty_slice();
    psp_buffer_share(buffer);
    grpc_byte_buffer *request = psp_grpc_lend(buffer, psp_grpc_put_back);
    grpc_op operations[N_OPERATIONS] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA,
         .data.send_initial_metadata = {.count = call->token.number != 0,
                                        .metadata = &call->token.metadata}},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &call->initial},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->reply},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &call->trailing,
                                        .status = &call->status,
                                        .status_details = &call->details}},
    };
    grpc_call *inside = call->inside;
    psp_grpc_tag_give(&call->tag);
    const grpc_call_error failed =
        grpc_call_start_batch(inside, operations, N_OPERATIONS, &call->tag, NULL);
    PSC_BUG_ON(failed != GRPC_CALL_OK); /* only a batch that is no valid one is refused */
    grpc_byte_buffer_destroy(request);
}

void psp_grpc_call_finish(psp_grpc_call_t *call)
{
    if (call->reply != NULL)
        grpc_byte_buffer_destroy(call->reply);
    call->reply = NULL;
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    psp_grpc_token_put(&call->token);
    grpc_slice_unref(call->details);
    grpc_call_unref(call->inside);
    call->inside = NULL;
}
