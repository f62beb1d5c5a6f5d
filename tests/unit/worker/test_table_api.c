/*
 * Options of tables, states of rows, scans and steps through the public calls, over a server in
 * this process.
 */
#include "embps.h"

#include "common/hash.h"
#include "common/rng.h"
#include "proto/row_format.h"

#include "tests/support/client_counter.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { D = 7, N = 150 };

typedef struct fixture {
    char *folder;
    embps_client_t *client;
    embps_table_t *table;
} fixture_t;

/* Ids that an index stands for; 0 and 2^64 - 1 among them. */
static uint64_t id_of(size_t index)
{
    return index == 1 ? UINT64_MAX : psc_mix64(index);
}

static embps_table_t *open_table(embps_client_t *client, const char *name,
                                 const embps_table_options_t *options)
{
    embps_table_t *table = NULL;
    embps_error_t error;
    if (embps_table_open(client, name, options, &table, &error) != 0)
        fail_msg("%s", error.message);
    return table;
}

static fixture_t fixture_open(void)
{
    fixture_t f = {.folder = test_scratch_create()};
    embps_local_options_t local = EMBPS_LOCAL_OPTIONS_DEFAULT;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_error_t error;
    local.data = f.folder;
    local.memory_bytes = (uint64_t)16 << 20;
    if (embps_connect_local(&local, &f.client, &error) != 0)
        fail_msg("%s", error.message);
    options.dim = D;
    options.init = "word2vec";
    f.table = open_table(f.client, "words", &options);
    return f;
}

static void fixture_close(fixture_t *f)
{
    assert_int_equal(embps_close(f->client, NULL), 0);
    test_scratch_destroy(f->folder);
}

static void options_of_tables_may_come_from_another_header(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    embps_error_t error;
    embps_table_t *table = NULL;
    struct {
        embps_table_options_t options;
        uint64_t later;
    } longer = {.options = EMBPS_TABLE_OPTIONS_DEFAULT};
    embps_table_options_t *options = &longer.options;
    options->dim = 3;
    options->precision = "f64";
    assert_int_equal(embps_table_open(f.client, "t", options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "option precision"));
    assert_non_null(strstr(error.message, "f32, bf16, f16"));
    options->precision = "f32";
    options->state_precision = "";
    assert_int_equal(embps_table_open(f.client, "t", options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "option state_precision"));
    options->state_precision = NULL;
    options->clip_norm = (double)NAN;
    assert_int_equal(embps_table_open(f.client, "t", options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "option clip_norm"));
    options->clip_norm = -1;
    assert_int_equal(embps_table_open(f.client, "t", options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "clip_norm is -1, must be between 0 and"));

    /* An earlier header ended before `precision`: what lies there does not count. */
    options->size = offsetof(embps_table_options_t, precision);
    options->precision = "f64";
    assert_int_equal(embps_table_open(f.client, "t", options, &table, &error), 0);
    options->size--;
    assert_int_equal(embps_table_open(f.client, "t", options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "EMBPS_TABLE_OPTIONS_DEFAULT"));
    options->size = SIZE_MAX;
    assert_int_equal(embps_table_open(f.client, "t", options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);

    /* A later one may have more, as long as it is not used. */
    options->size = sizeof longer;
    options->precision = NULL;
    options->clip_norm = 0;
    embps_table_t *same = NULL;
    assert_int_equal(embps_table_open(f.client, "t", options, &same, &error), 0);
    assert_ptr_equal(same, table);
    longer.later = 1;
    assert_int_equal(embps_table_open(f.client, "t", options, &table, &error), EMBPS_UNSUPPORTED);
    fixture_close(&f);
}

static void a_pull_tells_which_rows_were_never_pushed(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    uint64_t ids[N];
    static float rows[N][D], again[N][D];
    uint8_t states[N], started[N];
    embps_error_t error;
    embps_request_t *request;
    for (size_t i = 0; i < N; i++)
        ids[i] = id_of(i / 2);        /* each twice */
    for (size_t i = 0; i < N; i += 4) /* half of them */
        assert_int_equal(embps_push(f.table, EMBPS_DELTA, &ids[i], 1, rows[i], 0, NULL), 0);
    for (uint32_t flags = 0; flags <= (EMBPS_PULL_SCAN | EMBPS_PULL_EXACT); flags++) {
        memset(states, 0xee, sizeof states);
        memset(started, 0xee, sizeof started);
        assert_int_equal(embps_pull_states(f.table, ids, N, &rows[0][0], states, flags, &error), 0);
        assert_int_equal(embps_pull_states_start(f.table, ids, N, &again[0][0], started, flags,
                                                 &request, &error),
                         0);
        assert_int_equal(embps_wait(request, &error), 0);
        for (size_t i = 0; i < N; i++)
            assert_int_equal(states[i], i % 4 < 2 ? EMBPS_ROW_PRESENT : EMBPS_ROW_INITIAL);
        assert_memory_equal(states, started, sizeof states);
        assert_memory_equal(rows, again, sizeof rows);
        assert_int_equal(embps_pull_states(f.table, ids, N, &again[0][0], NULL, flags, &error), 0);
        assert_memory_equal(rows, again, sizeof rows);
    }
    assert_int_equal(embps_pull_states(f.table, ids, N, &rows[0][0], states, 4, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "flags 4"));
    fixture_close(&f);
}

static void a_scan_leaves_the_rows_in_use_in_memory(void **state)
{
    (void)state;
    enum { WIDE = 1024, ROWS = 12000, USED = 500, CHUNK = 250 };
    static float rows[CHUNK][WIDE];
    fixture_t f = fixture_open();
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = WIDE;
    embps_table_t *table = open_table(f.client, "wide", &options); /* three times the memory */
    uint64_t ids[CHUNK];
    for (int pass = 0; pass < 5; pass++) {
        const bool pushes = pass == 0, uses = pass == 1 || pass == 3;
        const uint64_t misses = counter_of(f.client, "store.misses");
        const uint64_t before = counter_of(f.client, "store.evicted");
        const size_t last = pass == 1 ? 8 * USED : uses ? USED : ROWS; /* used again and again */
        for (size_t first = 0; first < last; first += CHUNK) {
            for (size_t i = 0; i < CHUNK; i++)
                ids[i] = id_of(uses ? (first + i) % USED : first + i);
            if (pushes)
                assert_int_equal(embps_push(table, EMBPS_DELTA, ids, CHUNK, &rows[0][0], 0, NULL),
                                 0);
            else
                assert_int_equal(embps_pull_states(table, ids, CHUNK, &rows[0][0], NULL,
                                                   pass == 2 ? EMBPS_PULL_SCAN : 0, NULL),
                                 0);
        }
        const uint64_t missed = counter_of(f.client, "store.misses") - misses;
        const uint64_t evicted = counter_of(f.client, "store.evicted") - before;
        if (pass == 2) /* room for what is under way at a time */
            assert_true(evicted <= 2 * CHUNK);
        if (pass == 3)
            assert_int_equal(missed, 0);
        if (pass == 4) /* without the flag every row takes another's place */
            assert_true(evicted > ROWS / 2);
    }
    assert_int_equal(counter_of(f.client, "rows.pulled_scan"), ROWS);
    fixture_close(&f);
}

static void the_step_of_a_push_corrects_the_bias_of_adam(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = D;
    options.optimizer = "adam";
    embps_table_t *table = open_table(f.client, "adam", &options);
    /* A first update is rate * (0.1 / (1 - 0.9^t)) / sqrt(0.001 / (1 - 0.999^t)) of the sign. */
    const uint64_t steps[] = {0, 1, 2, 10, 100, 1000000};
    for (uint64_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const float gradient[D] = {1, -2, 3, -4, 5, -6, 7};
        float row[D];
        const double t = steps[i] != 0 ? (double)steps[i] : 1;
        const double size = 0.5 * (0.1 / (1 - pow(0.9, t))) / sqrt(0.001 / (1 - pow(0.999, t)));
        embps_request_t *request;
        embps_table_set_step(table, steps[i]);
        assert_int_equal(
            embps_push_start(table, EMBPS_GRADIENT, &i, 1, gradient, 0.5F, &request, NULL), 0);
        embps_table_set_step(table, 7); /* not for what is under way */
        assert_int_equal(embps_wait(request, NULL), 0);
        assert_int_equal(embps_pull(table, &i, 1, row, NULL), 0);
        for (size_t c = 0; c < D; c++)
            assert_true(fabs((double)row[c] + (c % 2 == 0 ? size : -size)) < 1e-5 * size);
    }
    fixture_close(&f);
}

/* Pushes 1 to a row of one id and returns its state, with its first weight in *weight_out. */
static uint8_t push_and_look(embps_table_t *table, uint64_t id, float *weight_out)
{
    const float ones[D] = {1, 1, 1, 1, 1, 1, 1};
    float row[D];
    uint8_t state;
    assert_int_equal(embps_push(table, EMBPS_DELTA, &id, 1, ones, 0, NULL), 0);
    assert_int_equal(embps_pull_states(table, &id, 1, row, &state, 0, NULL), 0);
    *weight_out = row[0];
    return state;
}

static void a_pull_tells_which_rows_are_not_admitted_and_which_expired(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = D;
    options.init = "constant";
    options.n_init_params = 1;
    options.init_params[0] = 0.5;
    options.admit_after = 3;
    options.expire_after = 2;
    embps_table_t *table = open_table(f.client, "guests", &options);
    const uint64_t id = 77;
    float weight, row[D];
    uint8_t is;
    assert_int_equal(push_and_look(table, id, &weight), EMBPS_ROW_NOT_ADMITTED);
    assert_true(weight == 0.5F);
    assert_int_equal(push_and_look(table, id, &weight), EMBPS_ROW_NOT_ADMITTED);
    assert_true(weight == 0.5F);
    assert_int_equal(push_and_look(table, id, &weight), EMBPS_ROW_PRESENT);
    assert_true(weight == 1.5F);
    assert_int_equal(counter_of(f.client, "rows.pulled_not_admitted"), 2);
    assert_int_equal(counter_of(f.client, "rows.pushed_not_admitted"), 2);
    for (int clock = 0; clock < 3; clock++)
        assert_int_equal(embps_clock(f.client, 0, NULL, NULL), 0);
    assert_int_equal(embps_pull_states(table, &id, 1, row, &is, 0, NULL), 0);
    assert_int_equal(is, EMBPS_ROW_EXPIRED);
    assert_true(row[0] == 0.5F);
    assert_int_equal(counter_of(f.client, "rows.pulled_expired"), 1);
    assert_int_equal(push_and_look(table, id, &weight), EMBPS_ROW_PRESENT); /* begins anew */
    assert_true(weight == 1.5F);
    fixture_close(&f);
}

static void rules_for_gradients_and_weights_hold_in_their_order(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = 2;
    options.clip_value = 4;
    options.clip_norm = 2.5;
    options.l2 = 0.5;
    options.has_bounds = true;
    options.weight_min = -2.25;
    options.weight_max = 5;
    options.has_pad = true;
    options.pad_id = 9;
    options.precision = "bf16";
    embps_table_t *table = open_table(f.client, "rules", &options);
    const uint64_t ids[2] = {8, 9};
    const float assigned[2][2] = {{1, 6}, {0.25F, 7}}; /* 6 and 7 are above the bound */
    const float gradients[2][2] = {{100, 3}, {100, 3}};
    float rows[2][2];
    assert_int_equal(embps_push(table, EMBPS_ASSIGN, ids, 2, &assigned[0][0], 0, NULL), 0);
    assert_int_equal(embps_pull(table, ids, 2, &rows[0][0], NULL), 0);
    assert_true(rows[0][0] == 1 && rows[0][1] == 5);
    assert_true(rows[1][0] == 0.25F);
    /* (100, 3) -> (4, 3), of norm 5 -> (2, 1.5) -> + (0.5, 2.5) = (2.5, 4). */
    assert_int_equal(embps_push(table, EMBPS_GRADIENT, ids, 2, &gradients[0][0], 0.5F, NULL), 0);
    assert_int_equal(embps_pull(table, ids, 2, &rows[0][0], NULL), 0);
    assert_true(rows[0][0] == -0.25F && rows[0][1] == 3);
    assert_int_equal(embps_push(table, EMBPS_GRADIENT, ids, 2, &gradients[0][0], 100, NULL), 0);
    assert_int_equal(embps_pull(table, ids, 2, &rows[0][0], NULL), 0);
    assert_true(rows[0][0] == -2.25F && rows[0][1] == -2.25F);
    assert_true(rows[1][0] == 0.25F);
    assert_int_equal(counter_of(f.client, "rows.pushed_pad"), 2);
    fixture_close(&f);
}

/* What the nearest rows of a format are, value by value. */
static void through(const char *format, const float *row, float *row_out)
{
    uint8_t bytes[D * sizeof(float)];
    psp_format_t number = PSP_FORMAT_F32;
    assert_true(psp_row_format_find(format, &number));
    psp_row_format(number)->encode(bytes, row, D);
    psp_row_format(number)->decode(row_out, bytes, D);
}

/* The deltas that push number `number` of worker 0 brings to the server. */
static void rounded(const char *format, uint64_t seed, uint32_t table, uint64_t id, uint32_t number,
                    const float *row, float *row_out)
{
    uint8_t bytes[D * sizeof(float)];
    uint32_t random[4 * ((D + 7) / 8)];
    psp_format_t which = PSP_FORMAT_F32;
    assert_true(psp_row_format_find(format, &which));
    psc_rng_row_blocks(psc_rng_stream(seed, 0, 0), table, id, PSC_RNG_WIRE, number, 0, (D + 7) / 8,
                       random);
    psp_row_format(which)->encode_stochastic(bytes, row, random, D);
    psp_row_format(which)->decode(row_out, bytes, D);
}

static const char *const all_formats[] = {"f32", "bf16", "f16", "int8"};

static void pulls_bring_the_nearest_rows_of_the_format_whatever_their_state(void **state)
{
    (void)state;
    static const char *const precisions[] = {"f32", "bf16", "f16"};
    fixture_t f = fixture_open();
    uint64_t ids[N];
    static float exact[N][D], rows[N][D];
    uint8_t states[N];
    unsigned seen = 0;
    for (size_t i = 0; i < N; i++)
        ids[i] = id_of(i / 2);
    for (size_t p = 0; p < 3; p++) {
        embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
        options.dim = D;
        options.init = "normal";
        options.precision = precisions[p];
        options.admit_after = 2;
        options.admit_shared = true;
        options.admit_counters = 16;
        embps_table_t *table = open_table(f.client, precisions[p], &options);
        for (size_t i = 0; i < N; i++) {
            for (size_t c = 0; c < D; c++)
                rows[i][c] = (float)(i * 10 + c) * 0.01f;
        }
        assert_int_equal(embps_push(table, EMBPS_DELTA, ids, N / 2, &rows[0][0], 0, NULL), 0);
        assert_int_equal(embps_push(table, EMBPS_DELTA, ids, N / 4, &rows[0][0], 0, NULL), 0);
        for (size_t k = 0; k < 4; k++) {
            options.pull_format = all_formats[k];
            assert_ptr_equal(open_table(f.client, precisions[p], &options), table);
            assert_int_equal(
                embps_pull_states(table, ids, N, &exact[0][0], states, EMBPS_PULL_EXACT, NULL), 0);
            assert_int_equal(embps_pull(table, ids, N, &rows[0][0], NULL), 0);
            for (size_t i = 0; i < N; i++) {
                float expected[D];
                through(all_formats[k], exact[i], expected);
                assert_memory_equal(rows[i], expected, sizeof expected);
                seen |= 1u << states[i];
            }
        }
    }
    assert_int_equal(seen, 1u << EMBPS_ROW_PRESENT | 1u << EMBPS_ROW_NOT_ADMITTED);
    fixture_close(&f);
}

static void pushes_bring_assigned_rows_nearest_and_deltas_rounded_by_their_number(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    const uint64_t ids[3] = {5, 6, 5};
    const float rows[3][D] = {{1, 2, -3, 0.001f, 5, 1e-6f, 7},
                              {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f},
                              {3, -1, 4, 1, -5, 9, 2.6f}};
    for (size_t k = 0; k < 4; k++) {
        embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
        float expected[D], got[2][D], sum[D], delta[D];
        options.dim = D;
        options.seed = 77 + k;
        options.push_format = all_formats[k];
        embps_table_t *table = open_table(f.client, all_formats[k], &options);
        const uint32_t number = (uint32_t)k + 2; /* "words" is table 1 */
        assert_int_equal(embps_push(table, EMBPS_ASSIGN, ids, 3, &rows[0][0], 0, NULL), 0);
        assert_int_equal(embps_pull(table, ids, 2, &got[0][0], NULL), 0);
        through(all_formats[k], rows[2], expected);
        assert_memory_equal(got[0], expected, sizeof expected);
        through(all_formats[k], rows[1], expected);
        assert_memory_equal(got[1], expected, sizeof expected);
        for (uint32_t round = 1; round < 4; round++) {
            for (size_t c = 0; c < D; c++)
                sum[c] = rows[0][c] + rows[2][c];
            assert_int_equal(embps_push(table, EMBPS_DELTA, ids, 3, &rows[0][0], 0, NULL), 0);
            rounded(all_formats[k], options.seed, number, 5, round, sum, delta);
            for (size_t c = 0; c < D; c++)
                got[0][c] += delta[c];
            rounded(all_formats[k], options.seed, number, 6, round, rows[1], delta);
            for (size_t c = 0; c < D; c++)
                got[1][c] += delta[c];
            float now[2][D];
            assert_int_equal(embps_pull(table, ids, 2, &now[0][0], NULL), 0);
            assert_memory_equal(now, got, sizeof now);
        }
    }
    fixture_close(&f);
}

static void small_deltas_beside_large_ones_are_not_lost(void **state)
{
    (void)state;
    enum { ROUNDS = 1000 };
    fixture_t f = fixture_open();
    const uint64_t id = 3;
    const float row[D] = {1, 0.001f, -0.001f, 0, 0.0039f, 0.5f, -1};
    for (size_t k = 0; k < 4; k++) {
        embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
        float got[D];
        options.dim = D;
        options.push_format = all_formats[k];
        embps_table_t *table = open_table(f.client, all_formats[k], &options);
        for (size_t round = 0; round < ROUNDS; round++)
            assert_int_equal(embps_push(table, EMBPS_DELTA, &id, 1, row, 0, NULL), 0);
        assert_int_equal(embps_pull(table, &id, 1, got, NULL), 0);
        /* A sum of ROUNDS deviates by at most half a step * sqrt(ROUNDS): six of these, the step
         * 1 / 127 at most; and by the server's own rounding of float32. */
        for (size_t c = 0; c < D; c++)
            assert_true(fabs((double)got[c] - ROUNDS * (double)row[c]) <
                        6 * 0.5 / 127 * sqrt(ROUNDS) + ROUNDS * 1e-4);
        assert_true(got[3] == 0);
    }
    fixture_close(&f);
}

static void formats_that_do_not_exist_are_refused_in_words(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    embps_error_t error;
    options.dim = D;
    options.pull_format = "int4";
    assert_int_equal(embps_table_open(f.client, "t", &options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "option pull_format"));
    assert_non_null(strstr(error.message, "f32, bf16, f16, int8"));
    options.pull_format = NULL;
    options.push_format = "";
    assert_int_equal(embps_table_open(f.client, "t", &options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "option push_format"));

    /* An earlier header knows no formats: rows go as float32. */
    options.size = offsetof(embps_table_options_t, pull_format);
    assert_int_equal(embps_table_open(f.client, "t", &options, &table, &error), 0);
    const uint64_t id = 9;
    const float row[D] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f};
    float got[D];
    assert_int_equal(embps_push(table, EMBPS_DELTA, &id, 1, row, 0, NULL), 0);
    assert_int_equal(embps_pull(table, &id, 1, got, NULL), 0);
    assert_memory_equal(got, row, sizeof row);
    fixture_close(&f);
}

typedef struct listing {
    size_t n;
    char names[4][32];
    uint32_t dims[4];
    uint64_t rows[4];
} listing_t;

static void list_table(void *context, const char *name, const embps_table_options_t *options,
                       uint64_t n_rows_created)
{
    listing_t *listing = context;
    assert_true(listing->n < 4);
    (void)snprintf(listing->names[listing->n], sizeof listing->names[0], "%s", name);
    listing->dims[listing->n] = options->dim;
    listing->rows[listing->n++] = n_rows_created;
}

static void a_table_is_found_with_all_options_that_it_was_made_with(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    embps_error_t error;
    embps_table_t *table = NULL, *found = NULL;
    assert_int_equal(embps_table_find(f.client, "none", &found, &error), EMBPS_NOT_FOUND);
    assert_string_equal(error.message, "there is no table none");
    assert_int_equal(embps_table_find(f.client, "", &found, &error), EMBPS_INVALID_ARGUMENT);
    assert_int_equal(embps_table_find(f.client, NULL, &found, NULL), EMBPS_INVALID_ARGUMENT);
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = 12;
    options.init = "truncated_normal";
    options.n_init_params = 2;
    options.init_params[0] = 0.1;
    options.init_params[1] = 0.3;
    options.optimizer = "adam";
    options.n_optimizer_params = 1;
    options.optimizer_params[0] = 0.85;
    options.seed = UINT64_MAX - 7;
    options.precision = "bf16";
    options.state_precision = "bf16";
    options.per_row_steps = true;
    options.l2 = 0.1;
    options.clip_norm = 1e-7;
    options.has_bounds = true;
    options.weight_min = -0.7;
    options.weight_max = 0.3;
    options.has_pad = true;
    options.pad_id = 9;
    options.admit_after = 3;
    options.admit_shared = true;
    options.expire_after = 100;
    options.expire_rare_after = 10;
    options.expire_rare_below = 2;
    options.expire_floor = 1;
    table = open_table(f.client, "odd", &options);
    /* Servers compare every option when a table is opened again. */
    assert_int_equal(embps_table_find(f.client, "odd", &found, &error), 0);
    assert_ptr_equal(found, table);
    assert_int_equal(embps_table_dim(found), 12);
    const uint64_t ids[3] = {0, 5, UINT64_MAX};
    float rows[3][D] = {{0}};
    assert_int_equal(embps_push(f.table, EMBPS_ASSIGN, ids, 3, &rows[0][0], 0, &error), 0);
    listing_t listing = {0};
    assert_int_equal(embps_tables(f.client, list_table, &listing, &error), 0);
    assert_int_equal(listing.n, 2);
    assert_string_equal(listing.names[0], "words");
    assert_int_equal(listing.dims[0], D);
    assert_int_equal(listing.rows[0], 3);
    assert_string_equal(listing.names[1], "odd");
    assert_int_equal(listing.dims[1], 12);
    assert_int_equal(listing.rows[1], 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_tables_may_come_from_another_header),
        cmocka_unit_test(a_pull_tells_which_rows_were_never_pushed),
        cmocka_unit_test(a_scan_leaves_the_rows_in_use_in_memory),
        cmocka_unit_test(a_pull_tells_which_rows_are_not_admitted_and_which_expired),
        cmocka_unit_test(rules_for_gradients_and_weights_hold_in_their_order),
        cmocka_unit_test(the_step_of_a_push_corrects_the_bias_of_adam),
        cmocka_unit_test(pulls_bring_the_nearest_rows_of_the_format_whatever_their_state),
        cmocka_unit_test(pushes_bring_assigned_rows_nearest_and_deltas_rounded_by_their_number),
        cmocka_unit_test(small_deltas_beside_large_ones_are_not_lost),
        cmocka_unit_test(formats_that_do_not_exist_are_refused_in_words),
        cmocka_unit_test(a_table_is_found_with_all_options_that_it_was_made_with),
    };
    return cmocka_run_group_tests_name("table_api", tests, NULL, NULL);
}
