/*
 * Calls that are answered more than once. Inside proto/grpc/ only. All on the queue's thread, but
 * for the end.
 *
 *     call->reply = ...;
 *     psp_door_stream_answer(call);             sends it; then method.answer gets the next message
 *     psp_door_stream_rest(call, last_word);    sends it; then nothing until the door is closed
 *     psp_door_end_call(call, status, text)     at any time instead
 */
#ifndef PROTO_GRPC_DOOR_STREAMS_H
#define PROTO_GRPC_DOOR_STREAMS_H

#include "proto/grpc/door_calls.h"

/* The steps of a call that only streams have. */
void psp_door_stream_init(psp_door_call_t *call);

/* Sends call->reply, then reads on, or does what the method does then. The thread whose the call
 * is. */
void psp_door_stream_answer(psp_door_call_t *call);

/* From now on call->is_closed tells whether the client has left. Before anything is sent. */
void psp_door_stream_hear(psp_door_call_t *call);

/* Sends call->reply, then waits for the client to leave or the door to be closed, of which the
 * client is told with last_word. Takes last_word; NULL: the status alone. */
void psp_door_stream_rest(psp_door_call_t *call, grpc_byte_buffer *last_word);

/* Ends all streams that rest: the door is being closed. Owner's thread, with door->stopping set. */
void psp_door_end_resting(psp_door_t *door);

#endif
