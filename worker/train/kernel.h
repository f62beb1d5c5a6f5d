/* Inside of psw_kernel_t, for window.c and window_reference.c only. */
#ifndef WORKER_TRAIN_KERNEL_H
#define WORKER_TRAIN_KERNEL_H

#include "worker/train/window.h"

/* Logits from -PSW_LOGIT_MAX to PSW_LOGIT_MAX in PSW_TABLE_STEPS equal steps. */
#define PSW_LOGIT_MAX 6.0f
#define PSW_TABLE_STEPS 1000

/* Position of logit f in a table: (f + 6) * PSW_TABLE_SCALE + 1, cut to 0 .. PSW_TABLE_STEPS + 1.
 */
#define PSW_TABLE_SCALE ((float)PSW_TABLE_STEPS / (2.0f * PSW_LOGIT_MAX))

struct psw_kernel {
    size_t dim; /* padded */
    size_t max_inputs;
    size_t max_outputs;
    float *gradients; /* max_inputs x max_outputs logits, then g, and up to 7 floats more */
    float *hidden;    /* dim */
    float *pending;   /* max_outputs x 8: what outputs learn in the present eight columns */
    /* At the middle of each step; [0] and [STEPS + 1] are for what lies outside. */
    float sigmoid[PSW_TABLE_STEPS + 2];
    float loss[PSW_TABLE_STEPS + 2]; /* -log sigmoid */
};

/* Scalar look-up. What is no number counts as very small. */
static inline size_t psw_table_index(float logit)
{
    float t = (logit + PSW_LOGIT_MAX) * PSW_TABLE_SCALE + 1.0f;
    t = t > 0.0f ? t : 0.0f;
    t = t < (float)(PSW_TABLE_STEPS + 1) ? t : (float)(PSW_TABLE_STEPS + 1);
    return (size_t)(int)t;
}

/* -log sigmoid(logit); beyond the table its asymptotes, 0 and -logit. */
static inline float psw_pair_loss(const psw_kernel_t *kernel, float logit)
{
    return logit < -PSW_LOGIT_MAX ? -logit : kernel->loss[psw_table_index(logit)];
}

/* Of n_inputs rows of n_outputs logits; in order. */
float psw_window_loss(const psw_kernel_t *kernel, const float *logits, size_t n_inputs,
                      size_t n_outputs);

#endif
