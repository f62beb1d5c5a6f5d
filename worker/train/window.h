/*
 * One window of training with negative sampling: the maths of skip-gram and CBOW on local rows.
 *
 *     psw_kernel_t *kernel;
 *     st = psw_kernel_create(112, 10, 6, &kernel, error);
 *     loss += psw_window_skipgram(kernel, contexts, n_contexts, words, 6, rate, true);
 *
 * Rows: dim_padded floats each, a multiple of 16, 64-byte aligned, the padding 0 (and it stays 0).
 * An input row is never an output row. outputs[0] is the true word (label 1), the others are
 * negatives (label 0). With n_outputs or n_inputs 0 nothing changes and the loss is 0.
 *
 * Logits of ±6 and beyond are taken as certain (sigmoid exactly 0 or 1), between them the sigmoid
 * comes from a table of 1,000 steps, as in the original C tool of Mikolov et al. 2013.
 *
 * The same pointer may stand several times among the inputs or among the outputs; each occurrence
 * adds its own update:
 *   - all logits are taken before any change;
 *   - what inputs learn comes from the outputs as they were before the call;
 *   - inputs are handled in order, and what outputs learn comes from each input as it stands when
 *     its turn comes: as it was before the call, or for a second occurrence, as the first left it.
 *
 * Bits: the functions of window_reference.c state the order of every operation in scalar C and give
 * the same bits, on every instruction set. Threads: one kernel per thread.
 */
#ifndef WORKER_TRAIN_WINDOW_H
#define WORKER_TRAIN_WINDOW_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct psw_kernel psw_kernel_t;

/*
 * Tables and scratch for windows of at most max_inputs and max_outputs rows. Gives.
 * Errors: INVALID_ARGUMENT when dim_padded is 0 or no multiple of 16, or a maximum is 0; NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_kernel_create(size_t dim_padded, size_t max_inputs,
                                              size_t max_outputs, psw_kernel_t **kernel_out,
                                              psc_error_t *error);

/* NULL is a no-op. */
void psw_kernel_destroy(psw_kernel_t *kernel);

/*
 * Skip-gram with the negatives of a window shared by its contexts (Ji et al. 2016, "Parallelizing
 * word2vec in shared and distributed memory"): logits = In * Out^T; g = (label - sigmoid) * rate;
 * In += g * Out; Out += g^T * In. Changes the rows. Borrows. Returns the sum of -log of the
 * probability given to the label over all pairs when want_loss, otherwise 0.
 */
float psw_window_skipgram(psw_kernel_t *kernel, float *const *inputs, size_t n_inputs,
                          float *const *outputs, size_t n_outputs, float rate, bool want_loss);

/*
 * CBOW: hidden = mean of the inputs; g = (label - sigmoid(hidden * Out)) * rate; the error g * Out
 * is added to every input undivided, as the original C tool does with cbow_mean; Out += g * hidden.
 */
float psw_window_cbow(psw_kernel_t *kernel, float *const *inputs, size_t n_inputs,
                      float *const *outputs, size_t n_outputs, float rate, bool want_loss);

/*
 * The original form of skip-gram: one input against its own outputs, one after the other, each
 * output changed at once (Mikolov et al. 2013); the input learns at the end.
 */
float psw_pair_skipgram(psw_kernel_t *kernel, float *input, float *const *outputs, size_t n_outputs,
                        float rate, bool want_loss);

/* The same in plain scalar C, bit for bit; slow. */
float psw_window_skipgram_reference(psw_kernel_t *kernel, float *const *inputs, size_t n_inputs,
                                    float *const *outputs, size_t n_outputs, float rate,
                                    bool want_loss);
float psw_window_cbow_reference(psw_kernel_t *kernel, float *const *inputs, size_t n_inputs,
                                float *const *outputs, size_t n_outputs, float rate,
                                bool want_loss);
float psw_pair_skipgram_reference(psw_kernel_t *kernel, float *input, float *const *outputs,
                                  size_t n_outputs, float rate, bool want_loss);

#endif
