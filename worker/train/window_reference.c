/*
 * The maths of window.c in scalar loops: the definition of its bits. The only liberty of window.c
 * is to do independent operations side by side.
 */
#include "worker/train/kernel.h"

#include "common/status.h"

static float dot(const float *a, const float *b, size_t n)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++) {
        float product = a[i] * b[i];
        lane[i % 16] += product;
    }
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static float gradient(const psw_kernel_t *kernel, float logit, bool is_true, float rate)
{
    return ((is_true ? 1.0f : 0.0f) - kernel->sigmoid[psw_table_index(logit)]) * rate;
}

static void multiply_add(float *y, float factor, float x)
{
    float product = factor * x;
    *y += product;
}

float psw_window_skipgram_reference(psw_kernel_t *kernel, float *const *inputs, size_t n_inputs,
                                    float *const *outputs, size_t n_outputs, float rate,
                                    bool want_loss)
{
    PSC_BUG_ON(n_inputs > kernel->max_inputs || n_outputs > kernel->max_outputs);
    float *g = kernel->gradients;
    for (size_t i = 0; i < n_inputs; i++)
        for (size_t j = 0; j < n_outputs; j++)
            g[i * n_outputs + j] = dot(inputs[i], outputs[j], kernel->dim);
    float loss = want_loss ? psw_window_loss(kernel, g, n_inputs, n_outputs) : 0.0f;
    for (size_t i = 0; i < n_inputs; i++)
        for (size_t j = 0; j < n_outputs; j++)
            g[i * n_outputs + j] = gradient(kernel, g[i * n_outputs + j], j == 0, rate);

    for (size_t c = 0; c < kernel->dim; c++) {
        for (size_t j = 0; j < n_outputs; j++)
            kernel->pending[j] = 0.0f;
        for (size_t i = 0; i < n_inputs; i++) {
            float x = inputs[i][c];
            float learned = x;
            for (size_t j = 0; j < n_outputs; j++) {
                multiply_add(&kernel->pending[j], g[i * n_outputs + j], x);
                multiply_add(&learned, g[i * n_outputs + j], outputs[j][c]);
            }
            inputs[i][c] = learned;
        }
        for (size_t j = 0; j < n_outputs; j++)
            outputs[j][c] += kernel->pending[j];
    }
    return loss;
}

float psw_window_cbow_reference(psw_kernel_t *kernel, float *const *inputs, size_t n_inputs,
                                float *const *outputs, size_t n_outputs, float rate, bool want_loss)
{
    PSC_BUG_ON(n_inputs > kernel->max_inputs || n_outputs > kernel->max_outputs);
    if (n_inputs == 0 || n_outputs == 0)
        return 0.0f;
    float *g = kernel->gradients;
    float share = 1.0f / (float)n_inputs;
    for (size_t c = 0; c < kernel->dim; c++) {
        float sum = 0.0f;
        for (size_t i = 0; i < n_inputs; i++)
            sum += inputs[i][c];
        kernel->hidden[c] = sum * share;
    }
    for (size_t j = 0; j < n_outputs; j++)
        g[j] = dot(kernel->hidden, outputs[j], kernel->dim);
    float loss = want_loss ? psw_window_loss(kernel, g, 1, n_outputs) : 0.0f;
    for (size_t j = 0; j < n_outputs; j++)
        g[j] = gradient(kernel, g[j], j == 0, rate);

    for (size_t c = 0; c < kernel->dim; c++) {
        float learned = 0.0f;
        for (size_t j = 0; j < n_outputs; j++)
            multiply_add(&learned, g[j], outputs[j][c]);
        for (size_t j = 0; j < n_outputs; j++)
            multiply_add(&outputs[j][c], g[j], kernel->hidden[c]);
        for (size_t i = 0; i < n_inputs; i++)
            inputs[i][c] += learned;
    }
    return loss;
}

float psw_pair_skipgram_reference(psw_kernel_t *kernel, float *input, float *const *outputs,
                                  size_t n_outputs, float rate, bool want_loss)
{
    float loss = 0.0f;
    float *learned = kernel->hidden;
    for (size_t c = 0; c < kernel->dim; c++)
        learned[c] = 0.0f;
    for (size_t j = 0; j < n_outputs; j++) {
        float logit = dot(input, outputs[j], kernel->dim);
        if (want_loss)
            loss += psw_pair_loss(kernel, j == 0 ? logit : -logit);
        float g = gradient(kernel, logit, j == 0, rate);
        for (size_t c = 0; c < kernel->dim; c++) {
            multiply_add(&learned[c], g, outputs[j][c]);
            multiply_add(&outputs[j][c], g, input[c]);
        }
    }
    for (size_t c = 0; c < kernel->dim; c++)
        input[c] += learned[c];
    return loss;
}
