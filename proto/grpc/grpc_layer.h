/*
 * The thin layer over gRPC's C core that both sides of the door share. Inside proto/grpc/ only:
 * nothing else includes a gRPC header.
 *
 *     st = psp_grpc_queue_create(&queue, error);      a completion queue with its thread
 *     grpc_call_start_batch(call, ops, n, &mine->tag, NULL);   with mine->tag.done set
 *     ... done(&mine->tag, ok) is called on the queue's thread ...
 *     psp_grpc_queue_destroy(queue);                  all that was started has been done by then
 *
 * A message is a buffer of the pool on our side and a byte buffer on gRPC's. Sending lends it
 * (psp_grpc_lend, no copy), receiving copies it once (psp_grpc_take).
 */
#ifndef PROTO_GRPC_GRPC_LAYER_H
#define PROTO_GRPC_GRPC_LAYER_H

#include "proto/buffer.h"

#include <grpc/grpc.h>
#include <stdbool.h>

/* Of a message that is sent: what gRPC lets the other side receive unless it says otherwise. */
#define PSP_GRPC_MAX_MESSAGE_BYTES (4 << 20)

/*
 * Keep-alive: a client pings a connection that has been silent for KEEPALIVE_MS, with or without
 * calls, and gives it up KEEPALIVE_TIMEOUT_MS later; a server allows pings from half that time on.
 */
#define PSP_GRPC_KEEPALIVE_MS 20000
#define PSP_GRPC_KEEPALIVE_TIMEOUT_MS 10000

/* What the work that a tag stands for has come to: ok false: it could not be done, or was given up.
 * On the queue's thread; must not wait for anything. */
typedef struct psp_grpc_tag psp_grpc_tag_t;
typedef void (*psp_grpc_done_fn)(psp_grpc_tag_t *tag, bool ok);
struct psp_grpc_tag {
    psp_grpc_done_fn done;
};

/* Right before a tag is given to gRPC: what the thread has done by then is done when `done` is
 * called, and from then on what belongs to the tag is not the thread's. gRPC sees to that by
 * itself; ThreadSanitizer, which cannot look into it, is told. */
void psp_grpc_tag_give(psp_grpc_tag_t *tag);

/* A completion queue and the thread that takes from it. Holds gRPC's library open. */
typedef struct psp_grpc_queue psp_grpc_queue_t;

/*
 * Opens gRPC's library and starts the thread. Any thread; before all other calls into gRPC. Errors:
 * UNSUPPORTED (a child of a fork, by a process that had ever opened the library: nothing of gRPC is
 * touched), NO_MEMORY, IO (no thread). Gives.
 */
PSC_MUST_CHECK psc_status_t psp_grpc_queue_create(psp_grpc_queue_t **queue_out, psc_error_t *error);
/*
 * Waits until everything that was started is done, then ends the thread. What would never be done
 * by itself (calls, servers) must have been cancelled or shut down before. Not on the queue's
 * thread. NULL is a no-op.
 */
void psp_grpc_queue_destroy(psp_grpc_queue_t *queue);

/* For grpc_server_register_completion_queue and the like. Borrowed. */
grpc_completion_queue *psp_grpc_queue_inside(psp_grpc_queue_t *queue);

/*
 * The buffer's bytes as gRPC's, without a copy. When gRPC needs them no more, on any thread,
 * release(buffer) is called, once: psp_grpc_put_back, or a function that ends with it. Takes
 * buffer; the result is for grpc_byte_buffer_destroy once the message is sent. Never NULL.
 */
grpc_byte_buffer *psp_grpc_lend(psp_buffer_t *buffer, void (*release)(void *buffer));
/* psp_buffer_put. */
void psp_grpc_put_back(void *buffer);

/*
 * Copies a message that was received into a buffer of the pool. bytes: borrowed; NULL is an empty
 * message. Errors: PROTOCOL (compressed), INVALID_ARGUMENT (longer than max_bytes, which it names),
 * NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t psp_grpc_take(psp_pool_t *pool, grpc_byte_buffer *bytes,
                                          size_t max_bytes, psp_buffer_t **buffer_out,
                                          psc_error_t *error);

/* "/embps.v1.Embps/Pull" for a kind of request; NULL when kind is none. Static. */
const char *psp_grpc_method(uint32_t kind);
/* The kind of such a method; 0 when there is none. */
uint32_t psp_grpc_kind(grpc_slice method);

/* The status with which the door refuses what has this error. */
grpc_status_code psp_grpc_status(psc_status_t code);
/* The error behind a status: UNAVAILABLE is PEER_GONE, DEADLINE_EXCEEDED TIMEOUT, and so on.
 * GRPC_STATUS_OK is PSC_OK. */
psc_status_t psp_grpc_code(grpc_status_code status);

/* Options that have to be the same for every server, and for every channel. */
#define PSP_GRPC_ARGS_MAX 16
typedef struct psp_grpc_args {
    grpc_arg all[PSP_GRPC_ARGS_MAX];
    grpc_channel_args args; /* points to them: does not move */
} psp_grpc_args_t;

/* One more. key: borrowed for as long as args is used. */
void psp_grpc_arg(psp_grpc_args_t *args, const char *key, int value);
void psp_grpc_arg_pointer(psp_grpc_args_t *args, const char *key, void *value,
                          const grpc_arg_pointer_vtable *vtable);

/* max_message_bytes: of a message that is received; what is sent is for the other side to limit. */
void psp_grpc_server_args(size_t max_message_bytes, psp_grpc_args_t *args_out);
void psp_grpc_channel_args(size_t max_message_bytes, psp_grpc_args_t *args_out);

#endif
