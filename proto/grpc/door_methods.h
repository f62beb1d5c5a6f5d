/*
 * Which methods the door knows, and who answers them. Inside proto/grpc/ only.
 */
#ifndef PROTO_GRPC_DOOR_METHODS_H
#define PROTO_GRPC_DOOR_METHODS_H

#include "proto/buffer.h"

#include <grpc/slice.h>
#include <stdbool.h>
#include <stdint.h>

struct psp_door_call;

/* Answers a call of which a message is in. Takes message. On the queue's thread: must not wait. */
typedef void (*psp_door_answer_fn)(struct psp_door_call *call, psp_buffer_t *message);

typedef struct psp_door_method {
    uint32_t kind; /* of message, for the owner; 0: answered by the door itself */
    psp_door_answer_fn answer;
    bool is_stream;  /* it may be answered more than once: door_streams */
    bool asks_again; /* a stream of questions too: answer is called for each */

    /* Of streams that the owner answers (door_frames); NULL: the usual. What is done with the
     * owner's answer, which it takes, on the owner's thread; when an answer has left (ok false: it
     * could not); when no further message comes. */
    void (*reply)(struct psp_door_call *call, psp_buffer_t *answer);
    void (*sent)(struct psp_door_call *call, bool ok);
    void (*finish)(struct psp_door_call *call);
} psp_door_method_t;

/* The method of this path; false: there is none. Any bytes are safe. */
bool psp_door_method_find(grpc_slice path, psp_door_method_t *method_out);

#endif
