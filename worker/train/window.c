/*
 * Kernels of one window, for speed; window_reference.c says what they compute, bit for bit.
 *
 * A window of 6 inputs and 6 outputs at 112 columns is 36 dot products and 72 row updates of 448
 * bytes; its rows (5 KiB) stay in the first-level cache throughout. Three passes:
 *   1. logits by blocks of 2 x 3 rows, whose sums fill twelve registers;
 *   2. logits to gradients, eight at a time except for the look-up itself;
 *   3. eight columns at a time, all updates at once: the outputs' columns and what they learn stay
 * in registers, each input passes once. Loads per multiply-add: 0.6. Pass 3 is compiled for each
 * number of outputs up to MOST_IN_REGISTERS; beyond, what outputs learn waits in kernel->pending,
 * in the first-level cache.
 *
 * No fused multiply-add: it is not on every processor, and bits are promised. Little is lost: on
 * Zen 3, 0.49 us for a window of 6 x 6 rows of 112 columns against 0.43 us with it.
 *
 * Threads: none shared. Rows are the caller's; see window.h for pointers that occur twice.
 */
#include "worker/train/kernel.h"

#include "common/lanes.h"
#include "common/vectors.h"

enum { MOST_IN_REGISTERS = 11 };

/* Dot products of ni x nj rows into logits; ni and nj are constants after inlining. */
PSC_INLINE void dot_block(float *const *inputs, size_t ni, float *const *outputs, size_t nj,
                          size_t dim, float *logits, size_t stride)
{
    psc_v8_t low[2][3];
    psc_v8_t high[2][3];
    PSC_UNROLL
    for (size_t i = 0; i < 2; i++) {
        PSC_UNROLL
        for (size_t j = 0; j < 3; j++)
            low[i][j] = high[i][j] = PSC_SPLAT8(0.0f);
    }
    for (size_t c = 0; c < dim; c += PSC_LANES) {
        PSC_UNROLL
        for (size_t i = 0; i < ni; i++) {
            psc_v8_t x = PSC_LOAD8(inputs[i] + c);
            PSC_UNROLL
            for (size_t j = 0; j < nj; j++)
                low[i][j] += x * PSC_LOAD8(outputs[j] + c);
            x = PSC_LOAD8(inputs[i] + c + 8);
            PSC_UNROLL
            for (size_t j = 0; j < nj; j++)
                high[i][j] += x * PSC_LOAD8(outputs[j] + c + 8);
        }
    }
    if (ni == 2 && nj == 3) {
        psc_fold16_2x3(low, high, logits, stride);
        return;
    }
    PSC_UNROLL
    for (size_t i = 0; i < ni; i++) {
        PSC_UNROLL
        for (size_t j = 0; j < nj; j++)
            logits[i * stride + j] = psc_fold16(&low[i][j], &high[i][j]);
    }
}

/* ni inputs against all outputs. */
PSC_INLINE void dot_strip(float *const *inputs, size_t ni, float *const *outputs, size_t n_outputs,
                          size_t dim, float *logits)
{
    size_t j = 0;
    for (; j + 3 <= n_outputs; j += 3)
        dot_block(inputs, ni, outputs + j, 3, dim, logits + j, n_outputs);
    if (n_outputs - j == 2)
        dot_block(inputs, ni, outputs + j, 2, dim, logits + j, n_outputs);
    else if (n_outputs - j == 1)
        dot_block(inputs, ni, outputs + j, 1, dim, logits + j, n_outputs);
}

/* g = (label - sigmoid(logit)) * rate in place, for n_inputs rows of n_outputs logits. */
PSC_INLINE void gradients_of(const psw_kernel_t *kernel, float *g, size_t n_inputs,
                             size_t n_outputs, float rate)
{
    const psc_v8_t zero = PSC_SPLAT8(0.0f);
    const psc_v8_t last = PSC_SPLAT8((float)(PSW_TABLE_STEPS + 1));
    size_t n = n_inputs * n_outputs;
    for (size_t k = 0; k < n; k += 8) {
        psc_v8_t t = (PSC_LOAD8(g + k) + PSC_SPLAT8(PSW_LOGIT_MAX)) * PSC_SPLAT8(PSW_TABLE_SCALE) +
                     PSC_SPLAT8(1.0f);
        t = (psc_v8_t)((psc_v8i_t)t & (t > zero));
        psc_v8i_t inside = t < last;
        t = (psc_v8_t)(((psc_v8i_t)t & inside) | ((psc_v8i_t)last & ~inside));
        int32_t at[8];
        psc_v8i_t index = __builtin_convertvector(t, psc_v8i_t);
        memcpy(at, &index, sizeof at);
        PSC_UNROLL
        for (size_t l = 0; l < 8; l++)
            g[k + l] = kernel->sigmoid[at[l]];
    }
    for (size_t i = 0; i < n_inputs; i++)
        g[i * n_outputs] -= 1.0f;
    psc_v8_t r = PSC_SPLAT8(rate);
    for (size_t k = 0; k < n; k += 8)
        PSC_STORE8(g + k, (zero - PSC_LOAD8(g + k)) * r);
}

/* Pass 3 with n_outputs (a constant after inlining) outputs in registers. */
PSC_INLINE void update_few(float *const *inputs, size_t n_inputs, float *const *outputs,
                           size_t n_outputs, const float *gradients, size_t dim)
{
    for (size_t c = 0; c < dim; c += 8) {
        psc_v8_t out[MOST_IN_REGISTERS];
        psc_v8_t learned[MOST_IN_REGISTERS];
        PSC_UNROLL
        for (size_t j = 0; j < n_outputs; j++) {
            out[j] = PSC_LOAD8(outputs[j] + c);
            learned[j] = PSC_SPLAT8(0.0f);
        }
        const float *g = gradients;
        for (size_t i = 0; i < n_inputs; i++) {
            psc_v8_t x = PSC_LOAD8(inputs[i] + c);
            psc_v8_t y = x;
            PSC_UNROLL
            for (size_t j = 0; j < n_outputs; j++) {
                psc_v8_t factor = PSC_SPLAT8(g[j]);
                learned[j] += factor * x;
                y += factor * out[j];
            }
            PSC_STORE8(inputs[i] + c, y);
            g += n_outputs;
        }
        /* Loaded anew: the same row may stand here twice. */
        PSC_UNROLL
        for (size_t j = 0; j < n_outputs; j++)
            PSC_STORE8(outputs[j] + c, PSC_LOAD8(outputs[j] + c) + learned[j]);
    }
}

/* Pass 3 for any number of outputs. */
PSC_INLINE void update_many(float *const *inputs, size_t n_inputs, float *const *outputs,
                            size_t n_outputs, const float *gradients, size_t dim, float *pending)
{
    for (size_t c = 0; c < dim; c += 8) {
        for (size_t j = 0; j < n_outputs; j++)
            PSC_STORE8(pending + 8 * j, PSC_SPLAT8(0.0f));
        const float *g = gradients;
        for (size_t i = 0; i < n_inputs; i++) {
            psc_v8_t x = PSC_LOAD8(inputs[i] + c);
            psc_v8_t y = x;
            for (size_t j = 0; j < n_outputs; j++) {
                psc_v8_t factor = PSC_SPLAT8(g[j]);
                PSC_STORE8(pending + 8 * j, PSC_LOAD8(pending + 8 * j) + factor * x);
                y += factor * PSC_LOAD8(outputs[j] + c);
            }
            PSC_STORE8(inputs[i] + c, y);
            g += n_outputs;
        }
        for (size_t j = 0; j < n_outputs; j++)
            PSC_STORE8(outputs[j] + c, PSC_LOAD8(outputs[j] + c) + PSC_LOAD8(pending + 8 * j));
    }
}

PSC_INLINE void update(const psw_kernel_t *kernel, float *const *inputs, size_t n_inputs,
                       float *const *outputs, size_t n_outputs, const float *g)
{
    size_t dim = kernel->dim;
    switch (n_outputs) {
    case 1:
        update_few(inputs, n_inputs, outputs, 1, g, dim);
        break;
    case 2:
        update_few(inputs, n_inputs, outputs, 2, g, dim);
        break;
    case 3:
        update_few(inputs, n_inputs, outputs, 3, g, dim);
        break;
    case 4:
        update_few(inputs, n_inputs, outputs, 4, g, dim);
        break;
    case 5:
        update_few(inputs, n_inputs, outputs, 5, g, dim);
        break;
    case 6:
        update_few(inputs, n_inputs, outputs, 6, g, dim);
        break;
    case 7:
        update_few(inputs, n_inputs, outputs, 7, g, dim);
        break;
    case 8:
        update_few(inputs, n_inputs, outputs, 8, g, dim);
        break;
    case 9:
        update_few(inputs, n_inputs, outputs, 9, g, dim);
        break;
    case 10:
        update_few(inputs, n_inputs, outputs, 10, g, dim);
        break;
    case 11:
        update_few(inputs, n_inputs, outputs, 11, g, dim);
        break;
    default:
        update_many(inputs, n_inputs, outputs, n_outputs, g, dim, kernel->pending);
    }
}

PSC_MULTIVERSION
float psw_window_skipgram(psw_kernel_t *kernel, float *const *inputs, size_t n_inputs,
                          float *const *outputs, size_t n_outputs, float rate, bool want_loss)
{
    PSC_BUG_ON(n_inputs > kernel->max_inputs || n_outputs > kernel->max_outputs);
    float *g = kernel->gradients;
    size_t i = 0;
    for (; i + 2 <= n_inputs; i += 2)
        dot_strip(inputs + i, 2, outputs, n_outputs, kernel->dim, g + i * n_outputs);
    if (i < n_inputs)
        dot_strip(inputs + i, 1, outputs, n_outputs, kernel->dim, g + i * n_outputs);
    float loss = want_loss ? psw_window_loss(kernel, g, n_inputs, n_outputs) : 0.0f;
    gradients_of(kernel, g, n_inputs, n_outputs, rate);
    update(kernel, inputs, n_inputs, outputs, n_outputs, g);
    return loss;
}

PSC_MULTIVERSION
float psw_window_cbow(psw_kernel_t *kernel, float *const *inputs, size_t n_inputs,
                      float *const *outputs, size_t n_outputs, float rate, bool want_loss)
{
    PSC_BUG_ON(n_inputs > kernel->max_inputs || n_outputs > kernel->max_outputs);
    if (n_inputs == 0 || n_outputs == 0)
        return 0.0f;
    size_t dim = kernel->dim;
    float *hidden = kernel->hidden;
    psc_v8_t share = PSC_SPLAT8(1.0f / (float)n_inputs);
    for (size_t c = 0; c < dim; c += 8) {
        psc_v8_t sum = PSC_SPLAT8(0.0f);
        for (size_t i = 0; i < n_inputs; i++)
            sum += PSC_LOAD8(inputs[i] + c);
        PSC_STORE8(hidden + c, sum * share);
    }
    float *g = kernel->gradients;
    dot_strip(&hidden, 1, outputs, n_outputs, dim, g);
    float loss = want_loss ? psw_window_loss(kernel, g, 1, n_outputs) : 0.0f;
    gradients_of(kernel, g, 1, n_outputs, rate);
    for (size_t c = 0; c < dim; c += 8) {
        psc_v8_t learned = PSC_SPLAT8(0.0f);
        for (size_t j = 0; j < n_outputs; j++)
            learned += PSC_SPLAT8(g[j]) * PSC_LOAD8(outputs[j] + c);
        psc_v8_t h = PSC_LOAD8(hidden + c);
        for (size_t j = 0; j < n_outputs; j++)
            PSC_STORE8(outputs[j] + c, PSC_LOAD8(outputs[j] + c) + PSC_SPLAT8(g[j]) * h);
        for (size_t i = 0; i < n_inputs; i++)
            PSC_STORE8(inputs[i] + c, PSC_LOAD8(inputs[i] + c) + learned);
    }
    return loss;
}

PSC_MULTIVERSION
float psw_pair_skipgram(psw_kernel_t *kernel, float *input, float *const *outputs, size_t n_outputs,
                        float rate, bool want_loss)
{
    size_t dim = kernel->dim;
    float loss = 0.0f;
    float *learned = kernel->hidden;
    memset(learned, 0, dim * sizeof *learned);
    for (size_t j = 0; j < n_outputs; j++) {
        float *output = outputs[j];
        float logit;
        dot_block(&input, 1, &output, 1, dim, &logit, 1);
        if (want_loss)
            loss += psw_pair_loss(kernel, j == 0 ? logit : -logit);
        float label = j == 0 ? 1.0f : 0.0f;
        psc_v8_t g = PSC_SPLAT8((label - kernel->sigmoid[psw_table_index(logit)]) * rate);
        for (size_t c = 0; c < dim; c += 8) {
            psc_v8_t out = PSC_LOAD8(output + c);
            PSC_STORE8(learned + c, PSC_LOAD8(learned + c) + g * out);
            PSC_STORE8(output + c, out + g * PSC_LOAD8(input + c));
        }
    }
    for (size_t c = 0; c < dim; c += 8)
        PSC_STORE8(input + c, PSC_LOAD8(input + c) + PSC_LOAD8(learned + c));
    return loss;
}
