/*
 * Batches built ahead of the one that is due, so that their rows can be announced.
 *
 *     psw_lookahead_create(builder, depth, announce, context, &ahead, error);
 *     while ((st = psw_lookahead_next(ahead, &batch, &more, error)) == PSC_OK && more)
 *         ... batch ...
 */
#ifndef WORKER_TRAIN_LOOKAHEAD_H
#define WORKER_TRAIN_LOOKAHEAD_H

#include "worker/train/batch_builder.h"

#define PSW_LOOKAHEAD_MAX 64u

typedef struct psw_lookahead psw_lookahead_t;

/* Told of each batch when it has been built, `distance` batches before it is due, 1 to depth.
 * Errors: end the call that built it. */
typedef psc_status_t (*psw_announce_fn)(void *context, const psw_train_batch_t *batch,
                                        uint32_t distance, psc_error_t *error);

/* depth: batches built ahead, 0 to PSW_LOOKAHEAD_MAX. Borrows builder. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_lookahead_create(psw_builder_t *builder, uint32_t depth,
                                                 psw_announce_fn announce, void *context,
                                                 psw_lookahead_t **ahead_out, psc_error_t *error);
/* NULL is a no-op. */
void psw_lookahead_destroy(psw_lookahead_t *ahead);

/*
 * The batch that is due; *more_out false: all epochs are over. It lives until the second next call.
 * Errors: those of psw_builder_next and of announce.
 */
PSC_MUST_CHECK psc_status_t psw_lookahead_next(psw_lookahead_t *ahead,
                                               psw_train_batch_t **batch_out, bool *more_out,
                                               psc_error_t *error);

/* Tells again of the batches that have been built and are not due next, as if they were built now,
 * by a lookahead that begins with the one that is. Errors: those of announce. */
PSC_MUST_CHECK psc_status_t psw_lookahead_announce_again(psw_lookahead_t *ahead,
                                                         psc_error_t *error);

/* A batch for its capacities. Borrowed. */
const psw_train_batch_t *psw_lookahead_sample(const psw_lookahead_t *ahead);

#endif
