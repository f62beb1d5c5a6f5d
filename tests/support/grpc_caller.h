/*
 * A bare client on gRPC's C core, with nothing of ours: one unary call at a time, or many at once.
 */
#ifndef TESTS_SUPPORT_GRPC_CALLER_H
#define TESTS_SUPPORT_GRPC_CALLER_H

#include <grpc/grpc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct grpc_caller {
    grpc_completion_queue *queue;
    grpc_channel *channel;
} grpc_caller_t;

/* One call, from begin to take. */
typedef struct grpc_called {
    grpc_call *call;
    grpc_byte_buffer *sent, *got;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice details;
    uint8_t *reply; /* after take; for free */
    size_t reply_size;
    char text[512]; /* what came with the status */
} grpc_called_t;

void grpc_caller_open(grpc_caller_t *caller, const char *address);
void grpc_caller_close(grpc_caller_t *caller);

/* Begins a call. called must stay until take. Any thread. */
void grpc_caller_begin(grpc_caller_t *caller, const char *method, const void *bytes, size_t size,
                       grpc_called_t *called);
/* Waits for the end of some call, at most a minute; it ended with called->status. Frees what gRPC
 * has, not called->reply. NULL: none ended. */
grpc_called_t *grpc_caller_take(grpc_caller_t *caller);

/* Both: the status of one call. */
grpc_status_code grpc_caller_call(grpc_caller_t *caller, const char *method, const void *bytes,
                                  size_t size, grpc_called_t *called);

/* Some bytes to the address, over TCP, as they are; then reads until the other end has nothing more
 * to say or closes. False: no connection. */
bool grpc_caller_raw(const char *address, const void *bytes, size_t size);

#endif
