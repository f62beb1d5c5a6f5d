/*
 * Command lines of embps-train: defaults, and what is refused with which reason.
 */
#include "worker/train/train_options.h"

#include "embps.h"
#include "tests/support/cmocka.h"

#include <string.h>

#define MAX_WORDS 24

static psc_status_t parse(const char *model, const char *line, psw_train_options_t *options,
                          psc_error_t *error)
{
    static char words[512];
    static char *argv[MAX_WORDS]; /* lists borrow it, so it outlives the call as main's does */
    char *rest = words;
    argv[0] = words;
    int argc = 1;
    psc_parse_result_t result;
    (void)snprintf(words, sizeof words, "model %s", line);
    (void)strsep(&rest, " ");
    while (rest != NULL && argc < MAX_WORDS - 1)
        argv[argc++] = strsep(&rest, " ");
    argv[argc] = NULL;
    *error = (psc_error_t)PSC_ERROR_INIT;
    return psw_train_options_parse(psw_model_find(model), argc, argv, options, &result, error);
}

static void defaults_are_those_of_the_original_tool(void **state)
{
    (void)state;
    psw_train_options_t options;
    psc_error_t error;
    assert_int_equal(parse("skipgram", "--corpus a b --out v", &options, &error), PSC_OK);
    assert_int_equal(options.corpus.n, 2);
    assert_string_equal(options.corpus.items[1], "b");
    assert_string_equal(options.out, "v");
    assert_int_equal(options.dim, 100);
    assert_int_equal(options.window, 5);
    assert_int_equal(options.negative, 5);
    assert_int_equal(options.min_count, 5);
    assert_int_equal(options.epochs, 5);
    assert_int_equal(options.seed, 1);
    assert_true(options.sample == 1e-3);
    assert_true(options.alpha == 0.025);
    assert_true(options.timeout_s == 60);
    assert_string_equal(options.precision, "f32");
    assert_string_equal(options.direct, "off");
    assert_true(options.staleness_clocks == EMBPS_ASYNC);
    assert_int_equal(options.pull_format, PSP_FORMAT_F32);
    assert_int_equal(options.push_format, PSP_FORMAT_F32);
    assert_false(options.plain || options.binary || options.local || options.quiet);
    assert_int_equal(parse("cbow", "--corpus a --out v", &options, &error), PSC_OK);
    assert_true(options.alpha == 0.05);
}

static void the_command_lines_of_the_readme_are_taken(void **state)
{
    (void)state;
    psw_train_options_t options;
    psc_error_t error;
    assert_int_equal(parse("skipgram",
                           "--corpus a --out v --dim 100 --window 5 --negative 5 --sample 1e-4 "
                           "--min-count 5 --epochs 5 --alpha 0.025 --seed 1 --binary",
                           &options, &error),
                     PSC_OK);
    assert_true(options.binary);
    assert_int_equal(parse("skipgram",
                           "--local --threads 2 --data d --memory 512M --corpus a --out v "
                           "--form plain --direct auto --precision bf16",
                           &options, &error),
                     PSC_OK);
    assert_true(options.local && options.plain);
    assert_string_equal(options.precision, "bf16");
    assert_string_equal(options.direct, "auto");
    assert_int_equal(options.threads, 2);
    assert_int_equal(options.memory, 512 << 20);
    assert_int_equal(parse("cbow", "--corpus a --out v --staleness 0", &options, &error), PSC_OK);
    assert_int_equal(options.staleness_clocks, 0);
    assert_int_equal(parse("cbow", "--corpus a --out v --staleness 12", &options, &error), PSC_OK);
    assert_int_equal(options.staleness_clocks, 12);
}

static void formats_on_the_wire_are_given_together_or_by_direction(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        psp_format_t pull, push;
    } cases[] = {
        {"f32", PSP_FORMAT_F32, PSP_FORMAT_F32},
        {"int8", PSP_FORMAT_INT8, PSP_FORMAT_INT8},
        {"bf16", PSP_FORMAT_BF16, PSP_FORMAT_BF16},
        {"pull=f16", PSP_FORMAT_F16, PSP_FORMAT_F32},
        {"push=int8", PSP_FORMAT_F32, PSP_FORMAT_INT8},
        {"pull=bf16,push=int8", PSP_FORMAT_BF16, PSP_FORMAT_INT8},
        {"push=f16,pull=bf16", PSP_FORMAT_BF16, PSP_FORMAT_F16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        psw_train_options_t options;
        psc_error_t error;
        char line[100];
        (void)snprintf(line, sizeof line, "--corpus a --out v --wire %s", cases[i].text);
        if (parse("skipgram", line, &options, &error) != PSC_OK)
            fail_msg("%s", error.message);
        assert_int_equal(options.pull_format, cases[i].pull);
        assert_int_equal(options.push_format, cases[i].push);
    }
}

static void what_makes_no_sense_is_refused_with_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *model, *line, *reason;
    } cases[] = {
        {"skipgram", "--out v", "corpus"},
        {"skipgram", "--corpus a", "out"},
        {"skipgram", "--corpus a --out v --threads 2", "--local"},
        {"skipgram", "--corpus a --out v --data d", "embps-server"},
        {"skipgram", "--corpus a --out v --memory 8M", "embps-server"},
        {"skipgram", "--corpus a --out v --local", "--data"},
        {"skipgram", "--corpus a --out v --local --data d --memory 1M", "memory"},
        {"skipgram", "--corpus a --out v --negative 0", "negative"},
        {"skipgram", "--corpus a --out v --sample 1.5", "sample"},
        {"skipgram", "--corpus a --out v --sample -1", "sample"},
        {"skipgram", "--corpus a --out v --epochs 0", "epochs"},
        {"skipgram", "--corpus a --out v --window 0", "window"},
        {"skipgram", "--corpus a --out v --dim 0", "dim"},
        {"skipgram", "--corpus a --out v --dim 100000", "dim"},
        {"skipgram", "--corpus a --out v --alpha nan", "alpha"},
        {"skipgram", "--corpus a --out v --alpha 0", "alpha"},
        {"skipgram", "--corpus a --out v --form quick", "matrix"},
        {"skipgram", "--corpus a --out v --precision f64", "f32, bf16 or f16"},
        {"skipgram", "--corpus a --out v --direct on", "off or auto"},
        {"skipgram", "--corpus a --out v --wire f64", "f32, bf16, f16, int8"},
        {"skipgram", "--corpus a --out v --wire pull", "--wire is"},
        {"skipgram", "--corpus a --out v --wire pull=", "--wire is"},
        {"skipgram", "--corpus a --out v --wire pull=f16,", "--wire is"},
        {"skipgram", "--corpus a --out v --wire ,pull=f16", "--wire is"},
        {"skipgram", "--corpus a --out v --wire pull=f16,f32", "--wire is"},
        {"skipgram", "--corpus a --out v --wire pull=f16,pull=f16", "--wire is"},
        {"skipgram", "--corpus a --out v --wire pull=bf16bf16bf16", "--wire is"},
        {"skipgram", "--corpus a --out v --hs", "hs"},
        {"skipgram", "--corpus a --out v --staleness -1", "async and 0"},
        {"skipgram", "--corpus a --out v --staleness 1x", "async and 0"},
        {"skipgram", "--corpus a --out v --staleness 4294967296", "async and 0"},
        {"skipgram", "--corpus a --out v --timeout -1", "timeout"},
        {"skipgram", "--corpus a --out v --out-context v", "same file"},
        {"skipgram", "--corpus a --out v --save-vocab v", "same file"},
        {"cbow", "--corpus a --out v --form plain", "no effect"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        psw_train_options_t options;
        psc_error_t error;
        if (parse(cases[i].model, cases[i].line, &options, &error) != PSC_INVALID_ARGUMENT)
            fail_msg("taken: %s", cases[i].line);
        if (strstr(error.message, cases[i].reason) == NULL)
            fail_msg("%s: %s", cases[i].line, error.message);
    }
}

static void models_are_found_by_name(void **state)
{
    (void)state;
    size_t n;
    const psw_model_t *const *models = psw_models(&n);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(psw_model_find(models[i]->name), models[i]);
        assert_non_null(models[i]->matrix);
    }
    assert_null(psw_model_find("glove"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_original_tool),
        cmocka_unit_test(the_command_lines_of_the_readme_are_taken),
        cmocka_unit_test(formats_on_the_wire_are_given_together_or_by_direction),
        cmocka_unit_test(what_makes_no_sense_is_refused_with_the_reason),
        cmocka_unit_test(models_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
