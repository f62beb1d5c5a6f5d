/*
 * The checkpoints of a training, which one worker has the servers make while it goes on: worker 0,
 * and once that is lost the first one that is still there.
 */
#ifndef WORKER_TRAIN_TRAIN_CHECKPOINT_H
#define WORKER_TRAIN_TRAIN_CHECKPOINT_H

#include "worker/checkpoint_making.h"
#include "worker/train/position.h"
#include "worker/train/vocab.h"

/* Plain data; all but client, facts and vocab zero at first. */
typedef struct psw_train_checkpoint {
    embps_client_t *client;            /* borrowed */
    const psw_facts_t *facts;          /* borrowed */
    const psw_vocab_t *vocab;          /* borrowed; NULL: it keeps none */
    psw_words_t words;                 /* the vocabulary, at the worker that makes them. Owned */
    psw_making_t making;               /* the one under way */
    char position[PSW_POSITION_BYTES]; /* what it keeps */
} psw_train_checkpoint_t;

/*
 * At the first worker, by its last clock, all servers cut, with this position and how many workers
 * were lost, once all workers have ended the clocks before its own; at the others nothing happens.
 * One that cannot be made, or is not since the one before
 * still is, is logged, and no error. Errors: what ended the client.
 */
PSC_MUST_CHECK psc_status_t psw_train_checkpoint_cut(psw_train_checkpoint_t *checkpoint,
                                                     const psw_position_t *position,
                                                     psc_error_t *error);

/* Takes the one under way further, if there is one, without waiting; and until it is there. Errors:
 * as above. */
PSC_MUST_CHECK psc_status_t psw_train_checkpoint_step(psw_train_checkpoint_t *checkpoint,
                                                      psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_train_checkpoint_finish(psw_train_checkpoint_t *checkpoint,
                                                        psc_error_t *error);

/* Frees what it owns. */
void psw_train_checkpoint_clear(psw_train_checkpoint_t *checkpoint);

#endif
