/*
 * Tables of sigmoid and -log sigmoid, and the scratch of a kernel.
 *
 * exp and log are computed here from +, -, * and / in double, since libm's last bits differ between
 * its versions and processors and training promises its own. exp halves its argument until the
 * Taylor series is short and squares back; log does Newton steps on that exp. Both are good to
 * about 1e-15, far below the float they are rounded to. About 1 ms a kernel.
 */
#include "worker/train/kernel.h"

#include "common/alloc.h"
#include "common/lanes.h"

#include <string.h>

/* |x| <= 8. */
static double exponential(double x)
{
    double y = x / 256.0;
    double term = 1.0;
    double sum = 1.0;
    for (int k = 1; k <= 12; k++) {
        term = term * y / (double)k;
        sum += term;
    }
    for (int k = 0; k < 8; k++)
        sum *= sum;
    return sum;
}

/* log(1 + u), u in (0, 410), by Newton's method: z <- z + (1 + u) / e^z - 1. */
static double log_one_plus(double u)
{
    double z = 0.0;
    double guess = 1.0;
    while (guess * 2.0 < 1.0 + u) {
        guess *= 2.0;
        z += 0.6931471805599453;
    }
    for (int k = 0; k < 6; k++)
        z += (1.0 + u) / exponential(z) - 1.0;
    return z;
}

static void fill_tables(psw_kernel_t *kernel)
{
    const double step = 2.0 * (double)PSW_LOGIT_MAX / PSW_TABLE_STEPS;
    for (int k = 0; k < PSW_TABLE_STEPS; k++) {
        double x = -(double)PSW_LOGIT_MAX + ((double)k + 0.5) * step;
        double e = exponential(-x);
        kernel->sigmoid[k + 1] = (float)(1.0 / (1.0 + e));
        kernel->loss[k + 1] = (float)log_one_plus(e);
    }
    kernel->sigmoid[0] = 0.0f;
    kernel->sigmoid[PSW_TABLE_STEPS + 1] = 1.0f;
    kernel->loss[0] = PSW_LOGIT_MAX;
    kernel->loss[PSW_TABLE_STEPS + 1] = 0.0f;
}

static psc_status_t take_scratch(psw_kernel_t *kernel, psc_error_t *error)
{
    size_t pairs;
    bool fits = psc_size_multiply(kernel->max_inputs, kernel->max_outputs, &pairs) &&
                pairs < SIZE_MAX / 8 && kernel->max_outputs < SIZE_MAX / 64 &&
                kernel->dim < SIZE_MAX / 8;
    size_t gradients_bytes = fits ? (pairs + 8) * sizeof(float) : 0;
    if (fits) {
        kernel->gradients = psc_alloc_aligned(gradients_bytes);
        kernel->hidden = psc_alloc_aligned(kernel->dim * sizeof(float));
        kernel->pending = psc_alloc_aligned(kernel->max_outputs * 8 * sizeof(float));
    }
    if (kernel->gradients == NULL || kernel->hidden == NULL || kernel->pending == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for windows of %zu x %zu rows",
                             kernel->max_inputs, kernel->max_outputs);
    memset(kernel->gradients, 0, gradients_bytes);
    return PSC_OK;
}

psc_status_t psw_kernel_create(size_t dim_padded, size_t max_inputs, size_t max_outputs,
                               psw_kernel_t **kernel_out, psc_error_t *error)
{
    if (dim_padded == 0 || dim_padded % PSC_LANES != 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a kernel's dimension must be a multiple of %d above 0, not %zu",
                             PSC_LANES, dim_padded);
    if (max_inputs == 0 || max_outputs == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a kernel for windows of %zu x %zu rows",
                             max_inputs, max_outputs);
    psw_kernel_t *kernel = psc_alloc_zeroed(1, sizeof *kernel);
    if (kernel == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a kernel");
    kernel->dim = dim_padded;
    kernel->max_inputs = max_inputs;
    kernel->max_outputs = max_outputs;
    psc_status_t st = take_scratch(kernel, error);
    if (st != PSC_OK) {
        psw_kernel_destroy(kernel);
        return st;
    }
    fill_tables(kernel);
    *kernel_out = kernel;
    return PSC_OK;
}

void psw_kernel_destroy(psw_kernel_t *kernel)
{
    if (kernel == NULL)
        return;
    psc_free(kernel->gradients);
    psc_free(kernel->hidden);
    psc_free(kernel->pending);
    psc_free(kernel);
}

float psw_window_loss(const psw_kernel_t *kernel, const float *logits, size_t n_inputs,
                      size_t n_outputs)
{
    float sum = 0.0f;
    for (size_t i = 0; i < n_inputs; i++)
        for (size_t j = 0; j < n_outputs; j++) {
            float logit = logits[i * n_outputs + j];
            sum += psw_pair_loss(kernel, j == 0 ? logit : -logit);
        }
    return sum;
}
