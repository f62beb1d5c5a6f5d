/*
 * A bare client's stream on gRPC's C core, with nothing of ours: one thread says and hears.
 *
 *     grpc_stream_open(&stream, &caller, "/grpc.health.v1.Health/Watch");
 *     grpc_stream_say(&stream, bytes, size);
 *     while (grpc_stream_hear(&stream)) ... stream.heard, stream.heard_size ...
 *     grpc_stream_end(&stream)                       its status; stream.text
 */
#ifndef TESTS_SUPPORT_GRPC_STREAM_H
#define TESTS_SUPPORT_GRPC_STREAM_H

#include "tests/support/grpc_caller.h"

typedef struct grpc_stream {
    grpc_completion_queue *queue; /* of its own */
    grpc_call *call;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    uint8_t *heard; /* the last message; until the next or the end */
    size_t heard_size;
    char text[512]; /* what came with the status */
    char ended;     /* the tag of the end */
} grpc_stream_t;

/* Begins it; does not wait for the server. */
void grpc_stream_open(grpc_stream_t *stream, grpc_caller_t *caller, const char *method);

/* Says something; waits until it has left. False: the stream is over. */
bool grpc_stream_say(grpc_stream_t *stream, const void *bytes, size_t size);
/* Will say no more. */
void grpc_stream_said(grpc_stream_t *stream);

/* Waits for a message. False: there will be none. */
bool grpc_stream_hear(grpc_stream_t *stream);

/* From any thread, any time before its end. */
void grpc_stream_cancel(grpc_stream_t *stream);

/* Waits for the status, at most a minute, and frees the stream. */
grpc_status_code grpc_stream_end(grpc_stream_t *stream);

#endif
