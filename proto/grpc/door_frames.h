/*
 * Streams whose messages are frames of embps: the owner of the transport sees one request after
 * another, as from any client, and knows of no stream. Inside proto/grpc/ only.
 *
 *     Export   one request, then its blocks: after each the same request with the block's `next` as
 *              cursor goes to the owner, once the block has left
 *     Watch    the same, without an end
 *     Import   requests, each handed over when the one before it is answered; one answer at the
 *              end, or at the first refusal, with the sums of all
 *
 * The functions are those of psp_door_method_t.
 */
#ifndef PROTO_GRPC_DOOR_FRAMES_H
#define PROTO_GRPC_DOOR_FRAMES_H

#include "proto/message.h"

struct psp_door_call;

/* What a call has of such a stream. All zero at first. */
typedef struct psp_door_frames {
    psp_buffer_t *kept; /* the request that is asked again, or the last answer; NULL: none yet */
    size_t cursor_size;
    uint8_t cursor[PSP_CURSOR_MAX];
    uint64_t rows, created;
} psp_door_frames_t;

/* ---- a stream of answers ---- */
void psp_door_frames_begin(struct psp_door_call *call, psp_buffer_t *message);
void psp_door_frames_write(struct psp_door_call *call, psp_buffer_t *answer);
void psp_door_frames_go_on(struct psp_door_call *call, bool ok);

/* ---- a stream of requests ---- */
void psp_door_frames_ask(struct psp_door_call *call, psp_buffer_t *answer);
void psp_door_frames_sum_up(struct psp_door_call *call);

/* When the call is over. */
void psp_door_frames_clear(psp_door_frames_t *frames);

#endif
