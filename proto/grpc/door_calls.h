/*
 * Calls of the door from the first word to the last: how they come, wait, are read, answered and
 * ended. Inside proto/grpc/ only. What a call asks is door_methods', what the transport does
 * with it grpc_server's.
 *
 *     psp_door_expect(door);                                    lets calls come
 *     ... call->method.answer(call, message), on the queue's thread ...
 *     psp_door_hand_over(call, message), then psp_door_reply(call, answer) by the owner
 *     or psp_door_end_call(call, status, text)                  once for each call
 */
#ifndef PROTO_GRPC_DOOR_CALLS_H
#define PROTO_GRPC_DOOR_CALLS_H

#include "proto/grpc/door_frames.h"
#include "proto/grpc/door_methods.h"
#include "proto/grpc/grpc_layer.h"
#include "proto/grpc/grpc_server.h"
#include "proto/grpc/grpc_tls.h"
#include "proto/grpc/grpc_tokens.h"
#include "proto/grpc/listen_address.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct psp_door psp_door_t;
typedef struct psp_door_call psp_door_call_t;

typedef enum psp_door_state {
    PSP_CALL_EXPECTED,
    PSP_CALL_PENDING,
    PSP_CALL_RECEIVING,
    PSP_CALL_HELD,
    PSP_CALL_SENDING, /* of a stream: these three */
    PSP_CALL_ASKING,
    PSP_CALL_RESTING,
    PSP_CALL_ENDING
} psp_door_state_t;

/* A tag that knows its call. */
typedef struct psp_door_step {
    psp_grpc_tag_t tag; /* first */
    psp_door_call_t *call;
} psp_door_step_t;

struct psp_door_call {
    psp_door_t *door;
    psp_door_call_t *previous, *next; /* in door->calls, or (next) among the free ones */
    psp_door_call_t *next_pending;
    psp_door_state_t state;
    uint64_t since_us; /* of the state */
    psp_door_method_t method;
    size_t bytes; /* of the request */
    grpc_call *inside;
    grpc_call_details details;
    grpc_metadata_array metadata;
    psp_rights_t *rights;     /* that it came with; NULL: none were asked for */
    const psp_grant_t *grant; /* of rights */
    grpc_byte_buffer *request, *reply;
    grpc_slice status_text;
    int was_cancelled;
    bool sealed;                 /* so is the answer */
    uint32_t n_last;             /* steps without which it is not over; guarded by door->lock */
    grpc_byte_buffer *last_word; /* of a stream that rests; NULL: none */
    bool has_begun;              /* the beginning of the answer was sent */
    bool hears_close;            /* `closed` was started */
    bool is_closed;              /* `closed` has come; guarded by door->lock */
    psp_door_frames_t frames;
    psp_door_step_t accepted, received, sent, closed, ended;
};

struct psp_door {
    psp_transport_t base; /* first */
    psp_door_options_t options;
    psp_grpc_queue_t *queue;
    grpc_server *server;
    psp_grpc_tls_t *tls;       /* NULL: plain text */
    psp_grpc_tokens_t *tokens; /* NULL: none are asked for */
    psc_queue_t *arrived;      /* messages for the owner */
    psp_scratch_t *scratch;    /* of answers that are looked at; the owner's */
    psp_grpc_tag_t shut;
    char address[PSP_ADDRESS_MAX + 8];
    uint64_t looked_us;
    atomic_size_t bytes_here; /* of requests and answers */
    pthread_mutex_t lock;
    pthread_cond_t changed;                  /* with lock: something ended */
    psp_door_call_t *calls;                  /* those that came; guarded by lock */
    psp_door_call_t *pending, *pending_last; /* guarded by lock */
    psp_door_call_t *unused;                 /* guarded by lock */
    uint32_t n_calls;                        /* in calls; guarded by lock */
    uint32_t n_expected;                     /* guarded by lock */
    uint32_t n_receiving;                    /* guarded by lock */
    uint32_t n_streams;                      /* guarded by lock */
    uint32_t n_ending;                       /* guarded by lock */
    size_t n_lent;                           /* buffers that gRPC has; guarded by lock */
    bool stopping, is_shut;                  /* guarded by lock */
    const char *not_yet;                     /* NULL: it serves; guarded by lock */
};

static inline void psp_door_lock(psp_door_t *door)
{
    (void)pthread_mutex_lock(&door->lock);
}

static inline void psp_door_unlock(psp_door_t *door)
{
    (void)pthread_mutex_unlock(&door->lock);
}

/* Why it does not serve yet; NULL: it does. Any thread. */
static inline const char *psp_door_not_yet(psp_door_t *door)
{
    psp_door_lock(door);
    const char *why = door->not_yet;
    psp_door_unlock(door);
    return why;
}

/* Lets further calls come, as many at a time as there are to be. Any thread. */
void psp_door_expect(psp_door_t *door);

/* Reads messages of pending calls as far as there is room. Any thread. */
void psp_door_admit(psp_door_t *door);

/* Gives a message to the owner, whose the call is until it replies. Takes message. */
void psp_door_hand_over(psp_door_call_t *call, psp_buffer_t *message);

/* The owner's answer, which it takes, to a call that is HELD: ends it, as a rule. Owner's thread.
 */
void psp_door_reply(psp_door_call_t *call, psp_buffer_t *answer);

/* Makes an answer call->reply, to be sent; it counts until gRPC needs it no more. Takes answer. */
void psp_door_lend(psp_door_call_t *call, psp_buffer_t *answer);

/* Starts a batch of a call. One of a call that is over still ends by its step. */
void psp_door_start(psp_door_call_t *call, const grpc_op *ops, size_t n, psp_door_step_t *step);

/* Starts to read the next message of a call. */
void psp_door_receive(psp_door_call_t *call);

/* Changes the state of a call. */
void psp_door_enter(psp_door_call_t *call, psp_door_state_t state);

/* One of the last steps of a call, which is gone when none is left. */
void psp_door_last_step(psp_door_call_t *call);

/* Ends a call with a status, and with call->reply if there is one. text: borrowed. The thread whose
 * the call is. */
void psp_door_end_call(psp_door_call_t *call, grpc_status_code status, const char *text);

/* Cancels what takes too long, once a second at most. Owner's thread. */
void psp_door_look(psp_door_t *door);

/* A call that waits for the owner or for room; NULL: none. Under the lock. */
psp_door_call_t *psp_door_find_unanswered(psp_door_t *door);

/* Calls that have ended; none is left by then. */
void psp_door_free_calls(psp_door_t *door);

#endif
