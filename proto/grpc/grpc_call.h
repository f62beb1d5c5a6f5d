/*
 * One unary call from the client's side: its operations and what they leave behind. Inside
 * proto/grpc/ only.
 *
 *     call->tag.done = ended;
 *     psp_grpc_call_start(call, queue, channel, method, secrets, buffer);
 *     ... ended(&call->tag, ok) on the queue's thread: look at status, reply, details ...
 *     psp_grpc_call_finish(call);
 */
#ifndef PROTO_GRPC_GRPC_CALL_H
#define PROTO_GRPC_GRPC_CALL_H

#include "proto/grpc/grpc_layer.h"
#include "proto/grpc/grpc_secrets.h"

typedef struct psp_grpc_call {
    psp_grpc_tag_t tag;     /* first */
    grpc_call *inside;      /* for grpc_call_cancel, until finish */
    psp_grpc_token_t token; /* that it carries */
    grpc_metadata_array initial, trailing;
    grpc_byte_buffer *reply; /* NULL: none came */
    grpc_status_code status;
    grpc_slice details; /* what the status says in words */
} psp_grpc_call_t;

/* method: of grpc_channel_register_call with this channel. secrets: whose token goes with it as
 * metadata; borrowed until start returns. buffer: the request, which gets one more owner until gRPC
 * has sent it. Without a deadline: it ends when it is answered, when the connection is gone, or
 * when it is cancelled. */
void psp_grpc_call_start(psp_grpc_call_t *call, psp_grpc_queue_t *queue, grpc_channel *channel,
                         void *method, psp_grpc_secrets_t *secrets, psp_buffer_t *buffer);

/* Frees what the call holds, once it has ended; it may be started again. Any thread. */
void psp_grpc_call_finish(psp_grpc_call_t *call);

#endif
