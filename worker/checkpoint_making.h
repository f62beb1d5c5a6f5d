/*
 * A checkpoint that a client makes while it goes on: it waits for the cuts of the servers, and not
 * for their disks. Internal to worker/.
 *
 *     st = psw_making_begin(client, true, state, n, &making, error);   // this is the moment
 *     while ((st = psw_making_step(&making, &over, error)) == PSC_OK && !over)
 *         ... pulls, pushes, clocks ...
 */
#ifndef WORKER_CHECKPOINT_MAKING_H
#define WORKER_CHECKPOINT_MAKING_H

#include "worker/checkpoint_words.h"
#include "worker/client_state.h"

/* One under way. Plain data. */
typedef struct psw_making {
    embps_client_t *client; /* NULL: none is under way */
    psp_checkpoint_t step;  /* with its name */
    const uint8_t *state;   /* [n] borrowed until it is over */
    size_t n;
    psw_words_t words;      /* to be set when it has begun, if there are any; n 0: none */
    psw_request_t *request; /* asks how far a server is */
    uint32_t server;        /* that is looked at */
    bool committed;         /* the first server has been told to */
} psw_making_t;

/*
 * Begins one: when it returns all servers have cut, behind all that this client issued before.
 * in_step: each cuts when all workers have ended the clocks before this client's; that is the same
 * moment for all if no worker pushes to it at once, which those at staleness 0 do not. Errors:
 * those of embps_checkpoint; BUSY while another one is made. Nothing is under way then.
 */
PSC_MUST_CHECK psc_status_t psw_making_begin(embps_client_t *client, bool in_step,
                                             const void *state, size_t n, psw_making_t *making_out,
                                             psc_error_t *error);

/* To be called now and then: takes it further, without waiting for a disk but for that of the
 * state. Errors: why it failed; it is given up then, and over. */
PSC_MUST_CHECK psc_status_t psw_making_step(psw_making_t *making, bool *over_out,
                                            psc_error_t *error);

/* Until it is over; none under way: at once. Errors: as psw_making_step. */
PSC_MUST_CHECK psc_status_t psw_making_wait(psw_making_t *making, psc_error_t *error);

#endif
