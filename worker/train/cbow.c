/*
 * CBOW over a window: one hidden vector, one set of outputs; so the original form shares its
 * negatives already, and there is no other. Threads: those of the local copies.
 */
#include "worker/train/cbow.h"

static float train_matrix(const psw_local_t *local, const psw_window_t *window, bool want_loss)
{
    size_t n_inputs = psw_local_inputs(local, window);
    size_t n_outputs = psw_local_outputs(local, local->batch->outputs + window->outputs);
    return psw_window_cbow(local->kernel, local->input_pointers, n_inputs, local->output_pointers,
                           n_outputs, window->rate, want_loss);
}

const psw_model_t psw_cbow = {
    .name = "cbow",
    .alpha = 0.05,
    .matrix = train_matrix,
    .plain = NULL,
};
