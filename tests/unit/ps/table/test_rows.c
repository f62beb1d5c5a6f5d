/*
 * Pushes and pulls of one table against plain loops: every optimizer, precision and option.
 *
 * The oracle keeps a row as floats and does to it what ps/table/row_change.h says, column by
 * column: clamps and sums written out, rounding by tests/support/half_oracle.h, random bits one
 * block at a time. Of the server it uses the optimizers' kernels and the initialisers, which have
 * tests of their own. Rows are compared to the last bit.
 */
#include "ps/table/rows.h"

#include "common/rng.h"
#include "tests/support/cmocka.h"
#include "tests/support/half_oracle.h"
#include "tests/support/store_fixture.h"
#include "tests/support/test_seed.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define MAX_D 40u
#define MAX_K (2 * MAX_D)
#define N_IDS 50u
#define BATCH 30u

typedef struct oracle_row {
    bool present;
    uint32_t version, updates;
    float weights[MAX_D], state[MAX_K];
} oracle_row_t;

typedef struct world {
    ps_store_t *store;
    ps_table_t table;
    ps_row_scratch_t scratch;
    ps_rows_merge_space_t merge;
    test_request_t request;
    uint32_t serial;
    size_t n_moments;
    float low, high;
    ps_rows_claim_t claim; /* of the last push */
    oracle_row_t rows[N_IDS];
} world_t;

static uint64_t id_of(size_t index)
{
    return index == 0 ? 0 : index == 1 ? UINT64_MAX : psc_rng_at(5, index);
}

static half_format_t format_of(psp_precision_t precision)
{
    return precision == PSP_BF16 ? HALF_BF16 : HALF_F16;
}

static float stored(psp_precision_t precision, float x)
{
    if (precision == PSP_F32 || !isfinite(x))
        return x;
    half_format_t f = format_of(precision);
    return (float)half_value(f, half_nearest(f, x));
}

/* Bounds taken inwards to values that the table can store. */
static void set_bounds(world_t *w)
{
    w->low = w->table.weight_min;
    w->high = w->table.weight_max;
    if (w->table.precision == PSP_F32)
        return;
    half_format_t f = format_of(w->table.precision);
    double low = INFINITY;
    double high = -INFINITY;
    for (uint32_t half = 0; half < 65536; half++) {
        double value = half_value(f, half);
        if (value >= (double)w->table.weight_min && value < low)
            low = value;
        if (value <= (double)w->table.weight_max && value > high)
            high = value;
    }
    w->low = (float)low;
    w->high = (float)high;
}

static void start(world_t *w, const psp_open_table_t *options)
{
    *w = (world_t){0};
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_table_define(options, &w->table, &error), PSC_OK);
    w->table.number = 3;
    w->store = test_store_open(test_cold_memory(0, 0));
    test_table_add(w->store, w->table.number, ps_table_row_bytes(&w->table));
    assert_int_equal(ps_row_scratch_reserve(&w->scratch, &w->table, &error), PSC_OK);
    if (w->table.state_precision != PSP_F32)
        w->n_moments = w->table.optim->moment_floats(w->table.dim);
    set_bounds(w);
    for (size_t r = 0; r < N_IDS; r++) {
        oracle_row_t *row = &w->rows[r];
        w->table.init->fill(row->weights, w->table.dim, w->table.seed, w->table.number, id_of(r),
                            w->table.init_params);
        if (w->table.has_pad && id_of(r) == w->table.pad_id)
            memset(row->weights, 0, sizeof row->weights);
        w->table.optim->init_state(row->state, w->table.dim, w->table.optim_params);
        for (size_t c = 0; c < w->table.dim; c++)
            row->weights[c] = stored(w->table.precision, row->weights[c]);
        for (size_t i = 0; i < w->n_moments; i++)
            row->state[i] = stored(w->table.state_precision, row->state[i]);
    }
}

static void finish(world_t *w)
{
    ps_rows_merge_space_clear(&w->merge);
    ps_row_scratch_clear(&w->scratch);
    ps_row_scratch_clear(&w->scratch);
    test_store_close(w->store);
}

static ps_rows_t prepare(world_t *w, ps_batch_mode_t mode, const size_t *indexes, size_t n)
{
    psc_error_t error = PSC_ERROR_INIT;
    for (size_t i = 0; i < n; i++)
        w->request.ids[i] = id_of(indexes[i]);
    test_request_set(&w->request, w->table.number, mode, n);
    assert_int_equal(test_prepare(w->store, &w->request, &error), PSC_OK);
    return (ps_rows_t){.table = &w->table,
                       .store = w->store,
                       .scratch = &w->scratch,
                       .n = n,
                       .ids = w->request.ids,
                       .places = w->request.places};
}

/* ---- the oracle ---- */

static float random_rounded(const world_t *w, psp_precision_t precision, size_t r, size_t column,
                            float x)
{
    if (precision == PSP_F32 || !isfinite(x))
        return x;
    uint32_t words[4];
    psc_rng_row(w->table.seed, w->table.number, id_of(r), (uint32_t)(column / 8), PSC_RNG_ROUND,
                w->rows[r].version, words);
    uint32_t half = words[column % 8 / 2] >> (column % 2 * 16) & 0xffff;
    half_format_t f = format_of(precision);
    return (float)half_value(f, half_stochastic(f, x, half));
}

static float squared_norm(const float *x, size_t n)
{
    float lane[16] = {0};
    for (size_t i = 0; i < n; i++) {
        float square = x[i] * x[i];
        lane[i % 16] += square;
    }
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static void oracle_gradient(world_t *w, oracle_row_t *row, const float *values, float rate,
                            uint64_t step)
{
    const ps_table_t *t = &w->table;
    float grad[MAX_D];
    for (size_t c = 0; c < t->dim; c++) {
        grad[c] = values[c];
        if (t->clip_value > 0 && grad[c] > t->clip_value)
            grad[c] = t->clip_value;
        if (t->clip_value > 0 && grad[c] < -t->clip_value)
            grad[c] = -t->clip_value;
    }
    float norm = sqrtf(squared_norm(grad, t->dim));
    if (t->clip_norm > 0 && norm > t->clip_norm) {
        float factor = t->clip_norm / norm;
        for (size_t c = 0; c < t->dim; c++)
            grad[c] *= factor;
    }
    for (size_t c = 0; c < t->dim && t->l2 > 0; c++) {
        float decay = t->l2 * row->weights[c];
        grad[c] += decay;
    }
    ps_optim_step_t made = {.learning_rate = rate,
                            .step = t->per_row_steps || step == 0 ? row->updates + 1 : step,
                            .params = t->optim_params};
    if (t->optim->prepare != NULL)
        t->optim->prepare(&made);
    t->optim->update(row->weights, row->state, grad, t->dim, &made);
    row->updates++;
}

static void oracle_push(world_t *w, size_t r, psp_push_kind_t kind, const float *values, float rate,
                        uint64_t step)
{
    const ps_table_t *t = &w->table;
    oracle_row_t *row = &w->rows[r];
    if (t->has_pad && id_of(r) == t->pad_id && kind != PSP_PUSH_ASSIGN)
        return;
    if (kind == PSP_PUSH_GRADIENT)
        oracle_gradient(w, row, values, rate, step);
    for (size_t c = 0; c < t->dim; c++) {
        if (kind == PSP_PUSH_DELTA)
            row->weights[c] += values[c];
        if (kind == PSP_PUSH_ASSIGN)
            row->weights[c] = values[c];
        if (t->has_bounds && row->weights[c] < w->low)
            row->weights[c] = w->low;
        if (t->has_bounds && row->weights[c] > w->high)
            row->weights[c] = w->high;
        row->weights[c] = kind == PSP_PUSH_ASSIGN
                              ? stored(t->precision, row->weights[c])
                              : random_rounded(w, t->precision, r, c, row->weights[c]);
    }
    for (size_t i = 0; i < w->n_moments && kind == PSP_PUSH_GRADIENT; i++)
        row->state[i] = random_rounded(w, t->state_precision, r, t->dim + i, row->state[i]);
    row->version++;
    row->present = true;
}

/* Duplicates are summed in their order before anything else; the last assignment counts. */
static void oracle_push_all(world_t *w, psp_push_kind_t kind, const size_t *indexes, size_t n,
                            const float *values, float rate, uint64_t step)
{
    bool done[BATCH] = {false};
    for (size_t i = 0; i < n; i++) {
        float sum[MAX_D];
        memcpy(sum, values + i * w->table.dim, w->table.dim * sizeof *sum);
        for (size_t j = i + 1; j < n && !done[i]; j++) {
            if (indexes[j] != indexes[i])
                continue;
            done[j] = true;
            for (size_t c = 0; c < w->table.dim; c++) {
                float x = values[j * w->table.dim + c];
                sum[c] = kind == PSP_PUSH_ASSIGN ? x : sum[c] + x;
            }
        }
        if (!done[i])
            oracle_push(w, indexes[i], kind, sum, rate, step);
    }
}

/* ---- both ---- */

static void claim(world_t *w, const ps_rows_t *rows, const ps_rows_push_t *message)
{
    assert_int_equal(ps_rows_reserve_firsts(&w->merge, rows->n, NULL), PSC_OK);
    ps_rows_claim(rows, message, w->merge.firsts, &w->claim);
}

static void push(world_t *w, psp_push_kind_t kind, const size_t *indexes, size_t n,
                 const float *values, float rate, uint64_t step)
{
    ps_rows_t rows = prepare(w, PS_BATCH_WRITE, indexes, n);
    ps_rows_push_t message = {.kind = kind,
                              .learning_rate = rate,
                              .step = step,
                              .clock = 7,
                              .serial = ps_rows_take_serials(&w->serial, n),
                              .values = values};
    claim(w, &rows, &message);
    if (w->claim.repeated != 0)
        assert_int_equal(ps_rows_merge(&rows, &message, &w->merge, &rows, &message, NULL), PSC_OK);
    ps_rows_apply(&rows, &message);
    ps_store_release(w->store, &w->request.batch);
    oracle_push_all(w, kind, indexes, n, values, rate, step);
}

/* In every other format rows are those that the format's own encoder makes of the weights. */
static void compare_formats(world_t *w, const size_t *indexes, size_t n)
{
    static uint8_t out[N_IDS * MAX_D * sizeof(float) + 1];
    uint8_t states[N_IDS], expected[MAX_D * sizeof(float)];
    ps_rows_t rows = prepare(w, PS_BATCH_READ, indexes, n);
    size_t absent = ps_rows_inspect(&rows, states, NULL);
    for (uint32_t f = PSP_FORMAT_BF16; f < PSP_FORMATS; f++) {
        const psp_format_t format = (psp_format_t)f;
        const size_t bytes = psp_row_bytes(format, w->table.dim);
        out[1 + n * bytes] = 0xA5;
        ps_rows_gather(&rows, absent == 0 ? NULL : states, format, out + 1);
        assert_int_equal(out[1 + n * bytes], 0xA5);
        assert_int_equal(ps_rows_find_nonfinite_coded(out + 1, format, n, w->table.dim), n);
        for (size_t i = 0; i < n; i++) {
            psp_row_format(format)->encode(expected, w->rows[indexes[i]].weights, w->table.dim);
            assert_memory_equal(out + 1 + i * bytes, expected, bytes);
        }
    }
    ps_store_release(w->store, &w->request.batch);
}

static void compare(world_t *w, const size_t *indexes, size_t n)
{
    static uint8_t out[N_IDS * MAX_D * sizeof(float) + 1];
    uint8_t states[N_IDS];
    uint32_t versions[N_IDS];
    ps_rows_t rows = prepare(w, PS_BATCH_READ, indexes, n);
    size_t absent = ps_rows_inspect(&rows, states, versions);
    ps_rows_gather(&rows, absent == 0 ? NULL : states, PSP_FORMAT_F32, out + 1);
    ps_store_release(w->store, &w->request.batch);
    for (size_t i = 0; i < n; i++) {
        const oracle_row_t *row = &w->rows[indexes[i]];
        assert_int_equal(versions[i], row->version);
        assert_int_equal(states[i], row->present ? PSP_ROW_PRESENT : PSP_ROW_INITIAL);
        assert_memory_equal(out + 1 + i * w->table.dim * sizeof(float), row->weights,
                            w->table.dim * sizeof(float));
    }
    compare_formats(w, indexes, n);
}

static psp_open_table_t options_of(const char *optimizer, uint32_t dim)
{
    psp_open_table_t options = {.name = "t", .dim = dim, .init = "normal", .seed = 11};
    (void)snprintf(options.optimizer, sizeof options.optimizer, "%s", optimizer);
    return options;
}

static void random_options(test_random_t *random, psp_open_table_t *options)
{
    if (test_below(random, 2) == 0)
        options->l2 = 0.01;
    if (test_below(random, 2) == 0)
        options->clip_value = 0.3;
    if (test_below(random, 2) == 0)
        options->clip_norm = 0.7;
    if (test_below(random, 2) == 0) {
        options->has_bounds = true;
        options->weight_min = -0.2;
        options->weight_max = 0.1 + (double)test_float(random) * 0.05;
    }
    if (test_below(random, 2) == 0) {
        options->has_pad = true;
        options->pad_id = id_of(test_below(random, 4));
    }
    options->per_row_steps = test_below(random, 2) == 0;
}

static void run_random(test_random_t *random, const psp_open_table_t *options)
{
    static world_t w;
    start(&w, options);
    for (uint64_t i = 0; i < 40; i++) {
        size_t indexes[BATCH];
        float values[BATCH * MAX_D];
        size_t n = test_below(random, BATCH + 1);
        bool distinct = test_below(random, 3) != 0;
        size_t offset = test_below(random, N_IDS);
        for (size_t k = 0; k < n; k++)
            indexes[k] = distinct ? (offset + k) % N_IDS : test_below(random, N_IDS);
        for (size_t k = 0; k < n * w.table.dim; k++)
            values[k] = test_float(random);
        if (test_below(random, 3) == 0)
            compare(&w, indexes, n);
        push(&w, (psp_push_kind_t)test_below(random, i % 2 == 0 ? 1 : 3), indexes, n, values, 0.05f,
             i % 3 == 0 ? 0 : i + 1);
    }
    size_t all[N_IDS];
    for (size_t r = 0; r < N_IDS; r++)
        all[r] = r;
    compare(&w, all, N_IDS);
    finish(&w);
}

static void every_optimizer_and_precision_agrees_with_plain_loops(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    static const uint32_t dims[] = {1, 5, 16, 33, 40};
    const ps_optim_t *optim;
    for (size_t e = 0; (optim = ps_optim_at(e)) != NULL; e++) {
        for (int precision = PSP_F32; precision <= PSP_F16; precision++) {
            for (int moments = PSP_F32; moments <= PSP_BF16; moments++) {
                if (moments != PSP_F32 && optim->moment_floats == NULL)
                    continue;
                for (size_t round = 0; round < 3; round++) {
                    psp_open_table_t options =
                        options_of(optim->name, dims[test_below(&random, 5)]);
                    options.precision = (psp_precision_t)precision;
                    options.state_precision = (psp_precision_t)moments;
                    if (round > 0)
                        random_options(&random, &options);
                    run_random(&random, &options);
                }
            }
        }
    }
}

static void read_row(world_t *w, size_t index, float *weights_out)
{
    ps_rows_t rows = prepare(w, PS_BATCH_READ, &index, 1);
    uint8_t state;
    (void)ps_rows_inspect(&rows, &state, NULL);
    ps_rows_gather(&rows, &state, PSP_FORMAT_F32, (uint8_t *)weights_out);
    ps_store_release(w->store, &w->request.batch);
}

static void duplicates_are_summed_before_they_are_clipped(void **unused)
{
    (void)unused;
    static world_t w;
    psp_open_table_t options = options_of("sgd", 2);
    (void)snprintf(options.init, sizeof options.init, "zeros");
    options.clip_value = 1;
    start(&w, &options);
    const size_t indexes[4] = {3, 4, 3, 3};
    const float values[8] = {0.75f, 5.0f, 0.5f, 0.5f, 0.75f, -5.0f, -1.0f, 0.25f};
    push(&w, PSP_PUSH_GRADIENT, indexes, 4, values, 1.0f, 1);
    assert_true(w.claim.repeated);
    float got[2];
    read_row(&w, 3, got);
    assert_true(got[0] == -0.5f && got[1] == -0.25f);
    finish(&w);
    options.clip_value = 0;
    options.clip_norm = 1;
    start(&w, &options);
    const float triangle[4] = {1.0f, 1.0f, 2.0f, 3.0f}; /* sums: 3, 4 */
    const size_t twice[2] = {3, 3};
    push(&w, PSP_PUSH_GRADIENT, twice, 2, triangle, 1.0f, 1);
    read_row(&w, 3, got);
    assert_true(fabsf(got[0] + 0.6f) < 1e-7f && fabsf(got[1] + 0.8f) < 1e-7f);
    finish(&w);
}

/* The square of the norm is infinite, or even a sum of duplicates: the direction stays. */
static void a_norm_beyond_floats_is_clipped_all_the_same(void **unused)
{
    (void)unused;
    static world_t w;
    psp_open_table_t options = options_of("sgd", 4);
    (void)snprintf(options.init, sizeof options.init, "zeros");
    options.clip_norm = 10;
    start(&w, &options);
    const float huge[4] = {3e30f, 0.0f, -4e30f, 1.0f};
    const size_t index = 2;
    ps_rows_t rows = prepare(&w, PS_BATCH_WRITE, &index, 1);
    ps_rows_push_t message = {.learning_rate = 1.0f, .step = 1, .serial = 1, .values = huge};
    claim(&w, &rows, &message);
    ps_rows_apply(&rows, &message);
    ps_store_release(w.store, &w.request.batch);
    float got[4];
    read_row(&w, 2, got);
    assert_true(fabsf(got[0] + 6.0f) < 1e-5f && fabsf(got[2] - 8.0f) < 1e-5f);
    assert_true(got[1] == 0.0f && fabsf(got[3]) < 1e-20f);
    const size_t twice[2] = {5, 5};
    const float sums[8] = {3e38f, 0.0f, -3e38f, 0.0f, 3e38f, 0.0f, -3e38f, 0.0f};
    rows = prepare(&w, PS_BATCH_WRITE, twice, 2);
    message.serial = 2;
    message.values = sums;
    claim(&w, &rows, &message);
    assert_int_equal(ps_rows_merge(&rows, &message, &w.merge, &rows, &message, NULL), PSC_OK);
    ps_rows_apply(&rows, &message);
    ps_store_release(w.store, &w.request.batch);
    read_row(&w, 5, got);
    assert_true(fabsf(got[0] + 7.0710678f) < 1e-5f && fabsf(got[2] - 7.0710678f) < 1e-5f);
    finish(&w);
}

static void a_pad_row_is_zeros_and_only_assignments_change_it(void **unused)
{
    (void)unused;
    static world_t w;
    for (int precision = PSP_F32; precision <= PSP_F16; precision++) {
        psp_open_table_t options = options_of("adagrad", 3);
        options.has_pad = true;
        options.pad_id = id_of(1);
        options.precision = (psp_precision_t)precision;
        start(&w, &options);
        const size_t indexes[4] = {1, 2, 1, 0};
        const float values[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
        compare(&w, indexes, 3);
        push(&w, PSP_PUSH_GRADIENT, indexes, 4, values, 1.0f, 1);
        assert_int_equal(w.claim.padded, 2);
        assert_int_equal(w.claim.created, 2);
        assert_false(w.claim.repeated);
        push(&w, PSP_PUSH_DELTA, indexes, 4, values, 1.0f, 1);
        assert_int_equal(w.claim.padded, 2);
        assert_int_equal(w.claim.created, 0);
        compare(&w, indexes, 4);
        float got[3];
        read_row(&w, 1, got);
        assert_true(got[0] == 0.0f && got[1] == 0.0f && got[2] == 0.0f);
        push(&w, PSP_PUSH_ASSIGN, indexes, 1, values, 1.0f, 1);
        assert_int_equal(w.claim.padded, 0);
        assert_int_equal(w.claim.created, 1);
        push(&w, PSP_PUSH_GRADIENT, indexes, 4, values, 1.0f, 2);
        compare(&w, indexes, 4);
        read_row(&w, 1, got);
        assert_true(got[0] == 1.0f && got[1] == 2.0f && got[2] == 3.0f);
        finish(&w);
    }
}

static void sixteen_bits_take_half_the_room(void **unused)
{
    (void)unused;
    psp_open_table_t options = options_of("adam", 33);
    ps_table_t table;
    assert_int_equal(ps_table_define(&options, &table, NULL), PSC_OK);
    assert_int_equal(ps_table_row_bytes(&table), 33 * 12);
    options.precision = PSP_BF16;
    options.state_precision = PSP_BF16;
    assert_int_equal(ps_table_define(&options, &table, NULL), PSC_OK);
    assert_int_equal(table.weight_bytes, 68);
    assert_int_equal(ps_table_row_bytes(&table), 68 + 2 * 66);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_and_precision_agrees_with_plain_loops),
        cmocka_unit_test(duplicates_are_summed_before_they_are_clipped),
        cmocka_unit_test(a_norm_beyond_floats_is_clipped_all_the_same),
        cmocka_unit_test(a_pad_row_is_zeros_and_only_assignments_change_it),
        cmocka_unit_test(sixteen_bits_take_half_the_room),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
