/* worker/train/window: its bits are those of the scalar form, and its changes are the gradient. */
#include "worker/train/window.h"

#include "common/alloc.h"
#include "tests/support/test_seed.h"

#include "tests/support/cmocka.h"
#include <math.h>
#include <string.h>

enum { POOL = 24, MAX_INPUTS = 10, MAX_OUTPUTS = 21 };

typedef float window_fn(psw_kernel_t *, float *const *, size_t, float *const *, size_t, float,
                        bool);

/* Two tables of POOL rows, in two copies. */
typedef struct rows {
    size_t dim;
    size_t padded;
    float *in;
    float *out;
    float *in_copy;
    float *out_copy;
    psw_kernel_t *kernel;
} rows_t;

static float *new_table(test_random_t *random, size_t dim, size_t padded, float size)
{
    float *table = psc_alloc_aligned(POOL * padded * sizeof *table);
    assert_non_null(table);
    for (size_t r = 0; r < POOL; r++)
        for (size_t c = 0; c < padded; c++)
            table[r * padded + c] = c < dim ? size * test_float(random) : 0.0f;
    return table;
}

static float *copy_table(const float *table, size_t padded)
{
    float *copy = psc_alloc_aligned(POOL * padded * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, table, POOL * padded * sizeof *copy);
    return copy;
}

static rows_t new_rows(test_random_t *random, size_t dim, float size)
{
    rows_t rows = {.dim = dim, .padded = (dim + 15) / 16 * 16};
    rows.in = new_table(random, dim, rows.padded, size);
    rows.out = new_table(random, dim, rows.padded, size);
    rows.in_copy = copy_table(rows.in, rows.padded);
    rows.out_copy = copy_table(rows.out, rows.padded);
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_kernel_create(rows.padded, MAX_INPUTS, MAX_OUTPUTS, &rows.kernel, &error),
                     PSC_OK);
    return rows;
}

static void free_rows(rows_t *rows)
{
    psw_kernel_destroy(rows->kernel);
    psc_free(rows->in);
    psc_free(rows->out);
    psc_free(rows->in_copy);
    psc_free(rows->out_copy);
}

static void assert_same_tables(const rows_t *rows)
{
    size_t bytes = POOL * rows->padded * sizeof(float);
    assert_memory_equal(rows->in, rows->in_copy, bytes);
    assert_memory_equal(rows->out, rows->out_copy, bytes);
    for (size_t r = 0; r < POOL; r++)
        for (size_t c = rows->dim; c < rows->padded; c++) {
            assert_true(rows->in[r * rows->padded + c] == 0.0f);
            assert_true(rows->out[r * rows->padded + c] == 0.0f);
        }
}

/* Random windows, rows often twice, on the fast and on the scalar form. */
static void compare(test_random_t *random, rows_t *rows, window_fn *fast, window_fn *scalar,
                    size_t n_inputs, size_t n_outputs)
{
    float *in[MAX_INPUTS];
    float *in_copy[MAX_INPUTS];
    float *out[MAX_OUTPUTS];
    float *out_copy[MAX_OUTPUTS];
    for (size_t i = 0; i < n_inputs; i++) {
        size_t r = test_below(random, POOL) * rows->padded;
        in[i] = rows->in + r;
        in_copy[i] = rows->in_copy + r;
    }
    for (size_t j = 0; j < n_outputs; j++) {
        size_t r = test_below(random, POOL) * rows->padded;
        out[j] = rows->out + r;
        out_copy[j] = rows->out_copy + r;
    }
    bool want_loss = test_below(random, 2) == 0;
    float loss = fast(rows->kernel, in, n_inputs, out, n_outputs, 0.1f, want_loss);
    float expected = scalar(rows->kernel, in_copy, n_inputs, out_copy, n_outputs, 0.1f, want_loss);
    assert_memory_equal(&loss, &expected, sizeof loss);
    assert_true(want_loss || loss == 0.0f);
}

static void windows_have_the_bits_of_scalar_code(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    static const size_t dims[] = {1, 8, 16, 17, 100, 112, 300};
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++) {
        /* Large values reach both ends of the sigmoid's table, small ones its middle. */
        for (int large = 0; large < 2; large++) {
            rows_t rows = new_rows(&random, dims[d], large ? 1.5f : 0.2f);
            for (size_t ni = 0; ni <= MAX_INPUTS; ni++)
                for (size_t nj = 0; nj <= MAX_OUTPUTS; nj++) {
                    compare(&random, &rows, psw_window_skipgram, psw_window_skipgram_reference, ni,
                            nj);
                    compare(&random, &rows, psw_window_cbow, psw_window_cbow_reference, ni, nj);
                }
            assert_same_tables(&rows);
            free_rows(&rows);
        }
    }
}

static void pairs_have_the_bits_of_scalar_code(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    rows_t rows = new_rows(&random, 100, 0.5f);
    for (int k = 0; k < 300; k++) {
        size_t n = test_below(&random, MAX_OUTPUTS + 1);
        size_t r = test_below(&random, POOL) * rows.padded;
        float *out[MAX_OUTPUTS];
        float *out_copy[MAX_OUTPUTS];
        for (size_t j = 0; j < n; j++) {
            size_t o = test_below(&random, POOL) * rows.padded;
            out[j] = rows.out + o;
            out_copy[j] = rows.out_copy + o;
        }
        float loss = psw_pair_skipgram(rows.kernel, rows.in + r, out, n, 0.1f, true);
        float expected =
            psw_pair_skipgram_reference(rows.kernel, rows.in_copy + r, out_copy, n, 0.1f, true);
        assert_memory_equal(&loss, &expected, sizeof loss);
    }
    assert_same_tables(&rows);
    free_rows(&rows);
}

static double log_loss(const float *a, const float *b, size_t dim, bool is_true)
{
    double logit = 0;
    for (size_t c = 0; c < dim; c++)
        logit += (double)a[c] * (double)b[c];
    return log1p(exp(is_true ? -logit : logit));
}

/* Loss of a window of the first n rows of each table, in double with libm. */
static double skipgram_loss(const rows_t *rows, size_t ni, size_t nj)
{
    double sum = 0;
    for (size_t i = 0; i < ni; i++)
        for (size_t j = 0; j < nj; j++)
            sum += log_loss(rows->in + i * rows->padded, rows->out + j * rows->padded, rows->dim,
                            j == 0);
    return sum;
}

static double cbow_loss(const rows_t *rows, size_t ni, size_t nj)
{
    float hidden[64];
    assert_true(rows->dim <= 64);
    double sum = 0;
    for (size_t c = 0; c < rows->dim; c++) {
        double mean = 0;
        for (size_t i = 0; i < ni; i++)
            mean += (double)rows->in[i * rows->padded + c];
        hidden[c] = (float)(mean / (double)ni);
    }
    for (size_t j = 0; j < nj; j++)
        sum += log_loss(hidden, rows->out + j * rows->padded, rows->dim, j == 0);
    return sum;
}

typedef double loss_fn(const rows_t *, size_t, size_t);

/* d loss / d x by central differences. */
static double slope(rows_t *rows, float *x, loss_fn *loss, size_t ni, size_t nj)
{
    float kept = *x;
    float h = 1.0f / 64.0f;
    *x = kept + h;
    double step = (double)*x;
    double above = loss(rows, ni, nj);
    *x = kept - h;
    step -= (double)*x;
    double below = loss(rows, ni, nj);
    *x = kept;
    return (above - below) / step;
}

/*
 * A step at rate 1 must be minus the gradient. Tolerance: a step of the sigmoid's table is 0.012
 * wide and its slope at most 1/4, so each g is right within 0.0015; values are below 0.5, and up to
 * ten such terms add up.
 */
static void check_gradient(window_fn *step, loss_fn *loss, double input_factor, size_t ni,
                           size_t nj)
{
    test_random_t random = test_random_start();
    rows_t rows = new_rows(&random, 33, 0.5f);
    float *in[MAX_INPUTS];
    float *out[MAX_OUTPUTS];
    for (size_t i = 0; i < ni; i++)
        in[i] = rows.in_copy + i * rows.padded;
    for (size_t j = 0; j < nj; j++)
        out[j] = rows.out_copy + j * rows.padded;
    float told = step(rows.kernel, in, ni, out, nj, 1.0f, true);
    double expected = loss(&rows, ni, nj);
    assert_true(fabs((double)told - expected) < 0.004 * (double)(ni * nj));
    const double tolerance = 10 * 0.0015 * 0.5 + 1e-4;
    for (size_t c = 0; c < rows.dim; c++) {
        for (size_t i = 0; i < ni; i++) {
            double gradient = slope(&rows, rows.in + i * rows.padded + c, loss, ni, nj);
            double change = (double)in[i][c] - (double)rows.in[i * rows.padded + c];
            assert_true(fabs(change + gradient * input_factor) < tolerance);
        }
        for (size_t j = 0; j < nj; j++) {
            double gradient = slope(&rows, rows.out + j * rows.padded + c, loss, ni, nj);
            double change = (double)out[j][c] - (double)rows.out[j * rows.padded + c];
            assert_true(fabs(change + gradient) < tolerance);
        }
    }
    free_rows(&rows);
}

static void a_skipgram_step_follows_the_gradient_of_the_loss(void **state)
{
    (void)state;
    check_gradient(psw_window_skipgram, skipgram_loss, 1.0, 6, 6);
    check_gradient(psw_window_skipgram, skipgram_loss, 1.0, 5, 10);
}

/* The error reaches each input undivided, n_inputs times the gradient of the mean's parts. */
static void a_cbow_step_follows_the_gradient_of_the_loss(void **state)
{
    (void)state;
    check_gradient(psw_window_cbow, cbow_loss, 6.0, 6, 6);
    check_gradient(psw_window_cbow, cbow_loss, 1.0, 1, 10);
}

static float pair_as_window(psw_kernel_t *kernel, float *const *in, size_t ni, float *const *out,
                            size_t nj, float rate, bool want_loss)
{
    assert_int_equal(ni, 1);
    return psw_pair_skipgram(kernel, in[0], out, nj, rate, want_loss);
}

static void a_pair_step_follows_the_gradient_of_the_loss(void **state)
{
    (void)state;
    check_gradient(pair_as_window, skipgram_loss, 1.0, 1, 10);
}

/* With equal logits and old outputs, each occurrence adds the same: n copies, n times the change.
 */
static void a_row_that_stands_twice_learns_twice(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    rows_t rows = new_rows(&random, 16, 0.5f);
    float *in[2] = {rows.in, rows.in};
    float *out[3] = {rows.out, rows.out + 16, rows.out + 16};
    float *in_once[1] = {rows.in_copy};
    float *out_once[2] = {rows.out_copy, rows.out_copy + 16};
    float old_in[16];
    float old_out[16];
    memcpy(old_in, rows.in, sizeof old_in);
    memcpy(old_out, rows.out + 16, sizeof old_out);
    /* Two inputs, one output. */
    psw_window_skipgram(rows.kernel, in, 2, out, 1, 0.5f, false);
    psw_window_skipgram(rows.kernel, in_once, 1, out_once, 1, 0.5f, false);
    for (size_t c = 0; c < 16; c++) {
        double once = (double)rows.in_copy[c] - (double)old_in[c];
        double twice = (double)rows.in[c] - (double)old_in[c];
        assert_true(fabs(once) > 1e-6);
        assert_true(fabs(twice - 2 * once) < 1e-6);
    }
    /* One input, a negative twice. */
    memcpy(rows.in, old_in, sizeof old_in);
    memcpy(rows.in_copy, old_in, sizeof old_in);
    psw_window_skipgram(rows.kernel, in, 1, out, 3, 0.5f, false);
    psw_window_skipgram(rows.kernel, in_once, 1, out_once, 2, 0.5f, false);
    for (size_t c = 0; c < 16; c++) {
        double once = (double)rows.out_copy[16 + c] - (double)old_out[c];
        double twice = (double)rows.out[16 + c] - (double)old_out[c];
        assert_true(fabs(twice - 2 * once) < 1e-6);
    }
    free_rows(&rows);
}

static void extreme_logits_and_nan_stay_within_the_table(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    rows_t rows = new_rows(&random, 16, 0.0f);
    static const float values[] = {1e30f, -1e30f, 6.0f, -6.0f, 5.9999995f, -5.9999995f, 0.0f, NAN};
    rows.out[0] = 1.0f;
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
        float *in[1] = {rows.in};
        float *out[1] = {rows.out};
        rows.in[0] = values[k];
        float loss = psw_window_skipgram(rows.kernel, in, 1, out, 1, 0.0f, true);
        assert_true(loss >= 0.0f);
    }
    free_rows(&rows);
}

static void wrong_sizes_and_short_memory_are_refused(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    psw_kernel_t *kernel = NULL;
    assert_int_equal(psw_kernel_create(100, 1, 1, &kernel, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psw_kernel_create(0, 1, 1, &kernel, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psw_kernel_create(16, 0, 1, &kernel, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psw_kernel_create(16, 1, 0, &kernel, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psw_kernel_create(16, SIZE_MAX / 2, 3, &kernel, &error), PSC_NO_MEMORY);
    for (unsigned long n = 1; n <= 4; n++) {
        psc_alloc_fail_at(n);
        assert_int_equal(psw_kernel_create(16, 2, 2, &kernel, &error), PSC_NO_MEMORY);
    }
    psc_alloc_fail_at(0);
    psw_kernel_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_have_the_bits_of_scalar_code),
        cmocka_unit_test(pairs_have_the_bits_of_scalar_code),
        cmocka_unit_test(a_skipgram_step_follows_the_gradient_of_the_loss),
        cmocka_unit_test(a_cbow_step_follows_the_gradient_of_the_loss),
        cmocka_unit_test(a_pair_step_follows_the_gradient_of_the_loss),
        cmocka_unit_test(a_row_that_stands_twice_learns_twice),
        cmocka_unit_test(extreme_logits_and_nan_stay_within_the_table),
        cmocka_unit_test(wrong_sizes_and_short_memory_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
