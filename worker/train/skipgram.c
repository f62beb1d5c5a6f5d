/*
 * Skip-gram over a window: the matrix form trains all contexts against one set of outputs in one
 * kernel call; the plain form, the original one, trains each pair by itself with negatives of its
 * own. Pure but for the local rows. Threads: those of the local copies.
 */
#include "worker/train/skipgram.h"

static float train_matrix(const psw_local_t *local, const psw_window_t *window, bool want_loss)
{
    size_t n_inputs = psw_local_inputs(local, window);
    size_t n_outputs = psw_local_outputs(local, local->batch->outputs + window->outputs);
    return psw_window_skipgram(local->kernel, local->input_pointers, n_inputs,
                               local->output_pointers, n_outputs, window->rate, want_loss);
}

static float train_plain(const psw_local_t *local, const psw_window_t *window, bool want_loss)
{
    size_t n_inputs = psw_local_inputs(local, window);
    const uint32_t *slots = local->batch->outputs + window->outputs;
    float loss = 0;
    for (size_t i = 0; i < n_inputs; i++, slots += local->negative + 1) {
        size_t n_outputs = psw_local_outputs(local, slots);
        loss += psw_pair_skipgram(local->kernel, local->input_pointers[i], local->output_pointers,
                                  n_outputs, window->rate, want_loss);
    }
    return loss;
}

const psw_model_t psw_skipgram = {
    .name = "skipgram",
    .alpha = 0.025,
    .matrix = train_matrix,
    .plain = train_plain,
};
