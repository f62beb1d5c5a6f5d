/*
 * What is on its way to one peer over calls that may fail: which message may leave, in what order,
 * and when to try again. A state machine without threads, sockets or clock: time is injected.
 *
 *     psp_outbox_add(outbox, buffer, error);
 *     while ((post = psp_outbox_next(outbox, now_us)) != NULL)
 *         ... begin a call with post->buffer ...
 *     psp_outbox_done(outbox, post);              it was answered
 *     psp_outbox_fail(outbox, post, now_us);      or not: it will come up again
 *
 * Calls overtake each other, and one that failed may have been served all the same, or may be
 * served later. With a server that serves each sequence when all before it were served, and
 * acknowledges a push that it has applied before, the effects happen in the order of
 * psp_outbox_add and each once. One thing is left to do here: a pull whose answer was lost is
 * asked again, and must not see pushes that were added after it. So a message that changes
 * something (push, clock, open table) leaves when all that only look (pull, stats) and stand
 * before it are answered. All else leaves at once; signs of life and goodbyes even while others
 * leave one by one after a failure.
 */
#ifndef PROTO_OUTBOX_H
#define PROTO_OUTBOX_H

#include "proto/buffer.h"

#include <stdbool.h>

typedef struct psp_outbox psp_outbox_t;

/* A message that was not answered yet. */
typedef struct psp_post {
    struct psp_post *previous, *next; /* the outbox's */
    psp_buffer_t *buffer;             /* borrowed by who sends it; its bytes do not change */
    uint64_t round;                   /* rests of the outbox before it left */
    uint32_t attempts;                /* how often it left */
    uint32_t damaged;                 /* how often it, or its answer, came damaged; its sender's */
    bool under_way;
} psp_post_t;

#define PSP_OUTBOX_FIRST_REST_US UINT64_C(50000)
#define PSP_OUTBOX_LONGEST_REST_US UINT64_C(2000000)

/* seed: of the jitter; different for each client and peer, or all come back at once. Errors:
 * NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_outbox_create(uint64_t seed, psp_outbox_t **outbox_out,
                                              psc_error_t *error);
/* Puts back all buffers. NULL is a no-op. */
void psp_outbox_destroy(psp_outbox_t *outbox);

/* Behind all that was added before. Takes buffer, also on error. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psp_outbox_add(psp_outbox_t *outbox, psp_buffer_t *buffer,
                                           psc_error_t *error);

/* A message that may leave now, which from then on is under way; NULL: none. Belongs to the outbox
 * until done or destroy. */
psp_post_t *psp_outbox_next(psp_outbox_t *outbox, uint64_t now_us);

/* It was answered. Takes post. */
void psp_outbox_done(psp_outbox_t *outbox, psp_post_t *post);

/*
 * It was not answered. Nothing leaves for a while, which doubles with every failure in a row, from
 * PSP_OUTBOX_FIRST_REST_US to PSP_OUTBOX_LONGEST_REST_US, and is between half of that and the
 * whole, at random. Failures of messages that left before the last rest began count with that one.
 * Then messages leave one by one, in order, until one is answered.
 */
void psp_outbox_fail(psp_outbox_t *outbox, psp_post_t *post, uint64_t now_us);

/* When the present rest ends; 0: there is none. */
uint64_t psp_outbox_rests_until(const psp_outbox_t *outbox);

bool psp_outbox_is_empty(const psp_outbox_t *outbox);
/* Of all messages that are not answered. */
size_t psp_outbox_bytes(const psp_outbox_t *outbox);

#endif
