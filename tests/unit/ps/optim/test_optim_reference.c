/*
 * Every optimizer against formulas that others computed: 100 steps over four rows, dense and with
 * rows that are touched rarely or late. optim_vectors.py made the vectors in float64, with NumPy,
 * and compared them with PyTorch's optimizers where there is one.
 *
 * The bound is 1e-6 of the largest weight of a row, in float32. Relative to each single weight it
 * could not hold: weights pass through 0 while they are added to a hundred times. It is near what
 * float32 can do: PyTorch's own float32 is up to 6e-7 from its float64 here.
 */
#include "tests/support/cmocka.h"

#include "ps/optim/optim.h"
#include "tests/unit/ps/optim/optim_vectors.h"

#include <math.h>
#include <string.h>

#define N_VECTORS (sizeof optim_vectors / sizeof optim_vectors[0])
#define K_MAX (2 * VECTOR_DIM)

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* As in optim_vectors.py. Step 0: the initial weight. */
static float number(uint64_t step, uint64_t row, uint64_t column)
{
    uint64_t x = mix((step * VECTOR_ROWS + row) * VECTOR_DIM + column) >> 40;
    return ((float)x - 0x1p23f) / 0x1p23f / (float)(1u << (column % 4));
}

static bool touched(bool dense, uint64_t step, uint64_t row)
{
    if (dense || row == 0)
        return true;
    if (row == VECTOR_ROWS - 1 && step < 20)
        return false;
    return mix(1000000 + step * VECTOR_ROWS + row) % (row + 1) == 0;
}

typedef struct row {
    float weights[VECTOR_DIM];
    float state[K_MAX];
    uint64_t count;
} row_t;

static void step_rows(const ps_optim_t *optim, const optim_vectors_t *vectors, const double *params,
                      uint64_t step, row_t *rows)
{
    for (uint64_t r = 0; r < VECTOR_ROWS; r++) {
        if (!touched(vectors->dense, step, r))
            continue;
        float gradient[VECTOR_DIM];
        for (uint64_t c = 0; c < VECTOR_DIM; c++)
            gradient[c] = number(step, r, c);
        rows[r].count++;
        ps_optim_step_t now = {.learning_rate = (float)(256 - step) / 8192,
                               .step = vectors->own_steps ? rows[r].count : step,
                               .params = params};
        if (optim->prepare != NULL)
            optim->prepare(&now);
        optim->update(rows[r].weights, rows[r].state, gradient, VECTOR_DIM, &now);
    }
}

static void start_rows(const ps_optim_t *optim, const double *params, row_t *rows)
{
    assert_true(optim->state_floats(VECTOR_DIM) <= K_MAX);
    for (uint64_t r = 0; r < VECTOR_ROWS; r++) {
        for (uint64_t c = 0; c < VECTOR_DIM; c++)
            rows[r].weights[c] = number(0, r, c);
        optim->init_state(rows[r].state, VECTOR_DIM, params);
        rows[r].count = 0;
    }
}

/* The largest difference in a row, relative to its largest weight. */
static double error_of(const float *weights, const double *truth)
{
    double difference = 0, largest = 0;
    for (size_t c = 0; c < VECTOR_DIM; c++) {
        difference = fmax(difference, fabs((double)weights[c] - truth[c]));
        largest = fmax(largest, fabs(truth[c]));
    }
    return difference / largest;
}

static void agrees_with_the_float64_reference_after_100_steps(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < N_VECTORS; i++) {
        const optim_vectors_t *vectors = &optim_vectors[i];
        const ps_optim_t *optim = ps_optim_find(vectors->optimizer);
        assert_non_null(optim);
        double params[PS_OPTIM_PARAMS_MAX];
        assert_int_equal(ps_optim_params(optim, vectors->params, vectors->n_params, params, NULL),
                         PSC_OK);
        row_t rows[VECTOR_ROWS];
        start_rows(optim, params, rows);
        for (uint64_t step = 1; step <= VECTOR_STEPS; step++)
            step_rows(optim, vectors, params, step, rows);
        double worst = 0;
        for (size_t r = 0; r < VECTOR_ROWS; r++)
            worst = fmax(worst, error_of(rows[r].weights, vectors->weights + r * VECTOR_DIM));
        print_message("%s, %s%s: %.2g\n", vectors->optimizer, vectors->dense ? "dense" : "sparse",
                      vectors->own_steps ? ", own steps" : "", worst);
        assert_true(worst <= 1e-6);
    }
}

static void every_optimizer_is_compared_dense_and_sparse(void **unused)
{
    (void)unused;
    const ps_optim_t *optim;
    for (size_t e = 0; (optim = ps_optim_at(e)) != NULL; e++) {
        bool dense = false, sparse = false, own = false;
        for (size_t i = 0; i < N_VECTORS; i++) {
            if (strcmp(optim_vectors[i].optimizer, optim->name) != 0)
                continue;
            dense |= optim_vectors[i].dense;
            sparse |= !optim_vectors[i].dense;
            own |= optim_vectors[i].own_steps;
        }
        assert_true(dense && sparse);
        assert_int_equal(own, optim->uses_step);
    }
}

/* Weights and state that went through bytes at an odd place and came back are as good as ever. */
static void a_restored_row_continues_to_the_last_bit(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < N_VECTORS; i++) {
        const optim_vectors_t *vectors = &optim_vectors[i];
        const ps_optim_t *optim = ps_optim_find(vectors->optimizer);
        size_t state_bytes = optim->state_floats(VECTOR_DIM) * sizeof(float);
        double params[PS_OPTIM_PARAMS_MAX];
        assert_int_equal(ps_optim_params(optim, vectors->params, vectors->n_params, params, NULL),
                         PSC_OK);
        row_t rows[VECTOR_ROWS], restored[VECTOR_ROWS];
        start_rows(optim, params, rows);
        for (uint64_t step = 1; step <= 37; step++)
            step_rows(optim, vectors, params, step, rows);
        for (size_t r = 0; r < VECTOR_ROWS; r++) {
            uint8_t bytes[1 + sizeof rows[r].weights + sizeof rows[r].state];
            memcpy(bytes + 1, rows[r].weights, sizeof rows[r].weights);
            memcpy(bytes + 1 + sizeof rows[r].weights, rows[r].state, state_bytes);
            memset(&restored[r], 0xa5, sizeof restored[r]);
            memcpy(restored[r].weights, bytes + 1, sizeof restored[r].weights);
            memcpy(restored[r].state, bytes + 1 + sizeof rows[r].weights, state_bytes);
            restored[r].count = rows[r].count;
        }
        for (uint64_t step = 38; step <= VECTOR_STEPS; step++) {
            step_rows(optim, vectors, params, step, rows);
            step_rows(optim, vectors, params, step, restored);
        }
        for (size_t r = 0; r < VECTOR_ROWS; r++) {
            assert_memory_equal(rows[r].weights, restored[r].weights, sizeof rows[r].weights);
            if (state_bytes != 0)
                assert_memory_equal(rows[r].state, restored[r].state, state_bytes);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_float64_reference_after_100_steps),
        cmocka_unit_test(every_optimizer_is_compared_dense_and_sparse),
        cmocka_unit_test(a_restored_row_continues_to_the_last_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
