/*
 * Options of a table: what is refused and how it is told, what two ways to write the same are, and
 * where the bytes of a row go.
 */
#include "ps/table/schema.h"

#include "tests/support/cmocka.h"

#include <math.h>
#include <stdio.h>

static psp_open_table_t some_options(void)
{
    return (psp_open_table_t){
        .name = "t", .dim = 5, .init = "uniform", .optimizer = "sgd", .seed = 3};
}

static ps_table_t define(const psp_open_table_t *options)
{
    ps_table_t table;
    psc_error_t error = PSC_ERROR_INIT;
    if (ps_table_define(options, &table, &error) != PSC_OK)
        fail_msg("refused: %s", error.message);
    return table;
}

/* Refused as an argument, in words that hold text. */
static void expect_refused(const psp_open_table_t *options, const char *text)
{
    ps_table_t table;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_table_define(options, &table, &error), PSC_INVALID_ARGUMENT);
    if (strstr(error.message, text) == NULL)
        fail_msg("\"%s\" is not in: %s", text, error.message);
}

static void a_plain_table_has_no_rules(void **state)
{
    (void)state;
    psp_open_table_t options = some_options();
    ps_table_t table = define(&options);
    assert_string_equal(table.name, "t");
    assert_int_equal(table.dim, 5);
    assert_int_equal(table.weight_bytes, 20);
    assert_int_equal(table.state_bytes, 0);
    assert_int_equal(ps_table_row_bytes(&table), 20);
    assert_int_equal(table.precision, PSP_F32);
    assert_false(table.has_bounds || table.has_pad || table.admit_shared || table.expire_dry_run);
    assert_true(table.l2 == 0 && table.clip_value == 0 && table.clip_norm == 0);
    assert_int_equal(table.admit_after, 0);
    assert_int_equal(table.expire_after, 0);
}

static void narrow_weights_take_half_rounded_up_to_words(void **state)
{
    (void)state;
    const psp_precision_t narrow[] = {PSP_BF16, PSP_F16};
    for (size_t p = 0; p < 2; p++) {
        for (uint32_t dim = 1; dim <= 9; dim++) {
            psp_open_table_t options = some_options();
            options.dim = dim;
            options.precision = narrow[p];
            (void)snprintf(options.optimizer, sizeof options.optimizer, "adagrad");
            ps_table_t table = define(&options);
            assert_int_equal(table.weight_bytes, (dim % 2 == 0 ? dim : dim + 1) * 2);
            assert_int_equal(table.state_floats, dim);
            assert_int_equal(table.state_bytes, dim * 4);
            assert_int_equal(ps_table_row_bytes(&table), table.weight_bytes + dim * 4);
        }
    }
}

static void moments_may_be_narrow_and_sums_never_are(void **state)
{
    (void)state;
    const ps_optim_t *optim;
    for (size_t i = 0; (optim = ps_optim_at(i)) != NULL; i++) {
        for (uint32_t dim = 1; dim <= 9; dim++) {
            psp_open_table_t options = some_options();
            options.dim = dim;
            options.state_precision = PSP_BF16;
            (void)snprintf(options.optimizer, sizeof options.optimizer, "%s", optim->name);
            if (optim->moment_floats == NULL) {
                expect_refused(&options, "state_precision is bf16");
                expect_refused(&options, optim->name);
                continue;
            }
            ps_table_t table = define(&options);
            size_t moments = optim->moment_floats(dim);
            assert_int_equal(table.state_floats, optim->state_floats(dim));
            assert_int_equal(table.state_bytes, (moments % 2 == 0 ? moments : moments + 1) * 2 +
                                                    (table.state_floats - moments) * 4);
            assert_int_equal(table.weight_bytes, dim * 4);
        }
    }
}

static void options_out_of_bounds_are_named_with_value_and_bounds(void **state)
{
    (void)state;
    psp_open_table_t options = some_options();
    options.dim = 0;
    expect_refused(&options, "table t: dim is 0, must be between 1 and 65536");
    options.dim = 65537;
    expect_refused(&options, "dim is 65537");

    psp_open_table_t given = some_options();
    double *const from_zero[] = {&given.l2, &given.clip_value, &given.clip_norm};
    const char *const names[] = {"l2", "clip_value", "clip_norm"};
    for (size_t i = 0; i < 3; i++) {
        char text[64];
        *from_zero[i] = -1;
        (void)snprintf(text, sizeof text, "%s is -1, must be between 0 and 1e+18", names[i]);
        expect_refused(&given, text);
        *from_zero[i] = 2e18;
        (void)snprintf(text, sizeof text, "%s is 2e+18", names[i]);
        expect_refused(&given, text);
        *from_zero[i] = (double)NAN;
        (void)snprintf(text, sizeof text, "%s is ", names[i]);
        expect_refused(&given, text);
        *from_zero[i] = 1e-40;
        expect_refused(&given, "use 0 for none");
        *from_zero[i] = 1e18;
        (void)define(&given);
        *from_zero[i] = 0;
    }
    given.admit_after = PS_ADMIT_AFTER_MAX + 1;
    expect_refused(&given, "admit_after is 256, must be between 0 and 255");
    given.admit_after = 0;
    given.expire_after = (uint64_t)PS_EXPIRE_CLOCKS_MAX + 1;
    expect_refused(&given, "expire_after is 2147483648, must be between 0 and 2147483647");
    given.expire_after = UINT64_MAX;
    expect_refused(&given, "expire_after is 18446744073709551615");
    given.expire_after = 0;
    given.expire_rare_below = 1;
    given.expire_rare_after = UINT64_MAX;
    expect_refused(&given, "expire_rare_after");
    given = some_options();
    given.precision = (psp_precision_t)PSP_PRECISIONS;
    expect_refused(&given, "precision is unknown; there are: f32, bf16, f16");
    given.precision = PSP_F32;
    given.state_precision = PSP_F16;
    expect_refused(&given, "state_precision is f16; there are: f32, bf16");
}

static void options_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    psp_open_table_t options = some_options();
    options.has_bounds = true;
    options.weight_min = 0.5;
    options.weight_max = 0.25;
    expect_refused(&options, "weight_min 0.5 is above weight_max 0.25");
    options.weight_max = 0.5;
    (void)define(&options);

    const uint32_t counters[] = {1, 8, 15, 17, 1000, 65535, 65537, UINT32_MAX};
    options = some_options();
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        options.admit_counters = counters[i];
        expect_refused(&options, "admit_counters is ");
    }
    options = some_options();
    options.expire_rare_after = 5;
    expect_refused(&options, "expire_rare_below is 0: both are needed, or neither");
    options.expire_rare_after = 0;
    options.expire_rare_below = 5;
    expect_refused(&options, "expire_rare_after is 0");
}

static void options_without_effect_make_no_difference(void **state)
{
    (void)state;
    psp_open_table_t options = some_options();
    ps_table_t plain = define(&options);
    options.weight_min = 2;
    options.weight_max = 1;
    options.pad_id = 77;
    options.admit_after = 1;
    options.admit_shared = true;
    options.admit_counters = 64;
    options.expire_floor = 3;
    options.expire_dry_run = true;
    ps_table_t idle = define(&options);
    assert_int_equal(ps_table_compare(&plain, &idle, NULL), PSC_OK);
    assert_int_equal(idle.admit_after, 0);
    assert_int_equal(idle.admit_counters, 0);
    assert_int_equal(idle.pad_id, 0);

    /* A default written out is the default. */
    options = some_options();
    options.admit_after = 2;
    ps_table_t admits = define(&options);
    assert_int_equal(admits.admit_counters, PS_ADMIT_COUNTERS_DEFAULT);
    options.admit_counters = PS_ADMIT_COUNTERS_DEFAULT;
    ps_table_t same = define(&options);
    assert_int_equal(ps_table_compare(&admits, &same, NULL), PSC_OK);
}

/* All options on, with values that the changes below leave possible. */
static psp_open_table_t full_options(void)
{
    psp_open_table_t options = some_options();
    options.has_bounds = options.has_pad = true;
    options.weight_min = -1;
    options.weight_max = 1;
    options.admit_after = 3;
    options.admit_counters = 64;
    options.expire_after = 10;
    options.expire_rare_after = 5;
    options.expire_rare_below = 2;
    options.expire_floor = 1;
    return options;
}

static void expect_mismatch(const psp_open_table_t *exists, const psp_open_table_t *wanted,
                            const char *text)
{
    ps_table_t tables[2] = {define(exists), define(wanted)};
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_table_compare(&tables[0], &tables[0], &error), PSC_OK);
    assert_int_equal(ps_table_compare(&tables[0], &tables[1], &error), PSC_MISMATCH);
    if (strstr(error.message, text) == NULL)
        fail_msg("\"%s\" is not in: %s", text, error.message);
}

static void every_option_that_differs_is_named_with_both_values(void **state)
{
    (void)state;
    const psp_open_table_t full = full_options();
#define DIFFERS(option, value, text)                                                               \
    do {                                                                                           \
        psp_open_table_t other = full;                                                             \
        other.option = value;                                                                      \
        expect_mismatch(&full, &other, "exists with " text " was asked for");                      \
    } while (0)
    DIFFERS(dim, 6, "dim 5, but 6");
    DIFFERS(seed, UINT64_MAX, "seed 3, but 18446744073709551615");
    DIFFERS(precision, PSP_BF16, "precision f32, but bf16");
    DIFFERS(per_row_steps, true, "per_row_steps false, but true");
    DIFFERS(l2, 0.5, "l2 0, but 0.5");
    DIFFERS(clip_value, 2, "clip_value 0, but 2");
    DIFFERS(clip_norm, 1e-3, "clip_norm 0, but 0.001");
    DIFFERS(has_bounds, false, "bounds -1 to 1, but none");
    DIFFERS(weight_min, -2, "bounds -1 to 1, but -2 to 1");
    DIFFERS(weight_max, 2, "bounds -1 to 1, but -1 to 2");
    DIFFERS(weight_max, 0.1, "bounds -1 to 1, but -1 to 0.1");
    DIFFERS(has_pad, false, "pad_id 0, but none");
    DIFFERS(pad_id, 1, "pad_id 0, but 1");
    DIFFERS(admit_after, 4, "admit_after 3, but 4");
    DIFFERS(admit_shared, true, "admit_shared false, but true");
    DIFFERS(admit_counters, 128, "admit_counters 64, but 128");
    DIFFERS(expire_after, 11, "expire_after 10, but 11");
    DIFFERS(expire_rare_after, 6, "expire_rare_after 5, but 6");
    DIFFERS(expire_rare_below, 3, "expire_rare_below 2, but 3");
    DIFFERS(expire_floor, 0, "expire_floor 1, but 0");
    DIFFERS(expire_dry_run, true, "expire_dry_run false, but true");
#undef DIFFERS
    psp_open_table_t other = full;
    (void)snprintf(other.init, sizeof other.init, "zeros");
    expect_mismatch(&full, &other, "initialiser uniform, but zeros");
    other = full;
    (void)snprintf(other.optimizer, sizeof other.optimizer, "adagrad");
    expect_mismatch(&full, &other, "optimizer sgd, but adagrad");
    other = full;
    other.n_init_params = 2;
    other.init_params[0] = -0.5;
    other.init_params[1] = 0.5;
    expect_mismatch(&full, &other, "low of uniform ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_table_has_no_rules),
        cmocka_unit_test(narrow_weights_take_half_rounded_up_to_words),
        cmocka_unit_test(moments_may_be_narrow_and_sums_never_are),
        cmocka_unit_test(options_out_of_bounds_are_named_with_value_and_bounds),
        cmocka_unit_test(options_that_contradict_each_other_are_refused),
        cmocka_unit_test(options_without_effect_make_no_difference),
        cmocka_unit_test(every_option_that_differs_is_named_with_both_values),
    };
    return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
