/*
 * What a window means to a model: which rows are its inputs and outputs, and the kernel for them.
 *
 * A model is a constant; adding one means one file and one line in train_options.c.
 */
#ifndef WORKER_TRAIN_MODEL_H
#define WORKER_TRAIN_MODEL_H

#include "worker/train/batch_builder.h"
#include "worker/train/window.h"

/* The local copies of a batch's rows, and scratch for pointers to them. All borrowed. */
typedef struct psw_local {
    psw_kernel_t *kernel;
    const psw_train_batch_t *batch;
    float *inputs, *outputs; /* [slots, stride] */
    size_t stride;
    uint32_t negative;
    float **input_pointers;  /* [2 * window] */
    float **output_pointers; /* [negative + 1] */
} psw_local_t;

/*
 * Trains one window of local->batch on the local rows. Returns the loss over its pairs when wanted,
 * otherwise 0.
 */
typedef float (*psw_model_fn)(const psw_local_t *local, const psw_window_t *window, bool want_loss);

typedef struct psw_model {
    const char *name;
    double alpha;        /* default rate */
    psw_model_fn matrix; /* negatives shared by a window */
    psw_model_fn plain;  /* negatives of each pair; NULL: there is no such form */
} psw_model_t;

/* Pointers to the contexts of a window; their number. */
static inline size_t psw_local_inputs(const psw_local_t *local, const psw_window_t *window)
{
    const uint32_t *words = local->batch->words;
    size_t n = 0;
    for (uint32_t i = window->first; i <= window->last; i++) {
        if (i != window->centre)
            local->input_pointers[n++] = local->inputs + words[i] * local->stride;
    }
    return n;
}

/* Pointers to the true word and the negatives from slots on; their number. */
static inline size_t psw_local_outputs(const psw_local_t *local, const uint32_t *slots)
{
    size_t n = 0;
    for (uint32_t k = 0; k <= local->negative; k++) {
        if (slots[k] != PSW_SLOT_NONE)
            local->output_pointers[n++] = local->outputs + slots[k] * local->stride;
    }
    return n;
}

#endif
