/* Command lines: types, bounds, sources of a value, and what a person reads when one is wrong. */
#include "common/options.h"

#include "common/options_help.h"

#include "tests/support/cmocka.h"

#include <stdlib.h>
#include <string.h>

typedef struct values {
    bool quiet;
    uint64_t dim;
    uint64_t memory;
    double alpha;
    const char *out;
    psc_option_list_t corpus;
    uint64_t seed;
    bool fast;
    const char *form;
    psc_option_list_t more;
    uint64_t count;
    const char *level;
    uint64_t guard; /* no option: stays as it was */
} values_t;

static const psc_option_t options[] = {
    {.name = "quiet",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(values_t, quiet),
     .help = "Says less."},
    {.name = "dim",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(values_t, dim),
     .min = 1,
     .max = 4096,
     .default_value = "100",
     .environment = "EMBPS_TEST_DIM",
     .help = "Floats in a row."},
    {.name = "memory",
     .argument = "BYTES",
     .type = PSC_OPTION_SIZE,
     .offset = offsetof(values_t, memory),
     .min = 8 << 20,
     .max = 0x1p64,
     .default_value = "256M",
     .environment = "EMBPS_TEST_MEMORY",
     .help = "Memory for rows."},
    {.name = "alpha",
     .argument = "RATE",
     .type = PSC_OPTION_DOUBLE,
     .offset = offsetof(values_t, alpha),
     .min = 0,
     .max = 1,
     .default_value = "0.025",
     .help = "First rate."},
    {.name = "out",
     .argument = "FILE",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(values_t, out),
     .required = true,
     .environment = "EMBPS_TEST_OUT",
     .help = "Where the vectors go. This help is long enough to need a second line, since it goes "
             "on and on until there is no room left for it on the first one."},
    {.name = "corpus",
     .argument = "FILE",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(values_t, corpus),
     .help = "Text."},
    {.name = "seed",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(values_t, seed),
     .help = "Any number."},
    {.name = "count",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(values_t, count),
     .min = 3,
     .max = 0x1p53,
     .default_value = "3",
     .help = "Large."},
    {.name = "level",
     .argument = "NAME",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(values_t, level),
     .default_value = "low",
     .environment = "EMBPS_TEST_LEVEL",
     .choices = (const char *const[]){"low", "middle", "high", NULL},
     .help = "Level."},
    {.name = "fast",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(values_t, fast),
     .environment = "EMBPS_TEST_FAST",
     .help = "Hurries."},
    {.name = "form",
     .argument = "NAME",
     .type = PSC_OPTION_TEXT,
     .offset = offsetof(values_t, form),
     .default_value = "matrix",
     .help = "Form."},
    {.name = "more",
     .argument = "WORD",
     .type = PSC_OPTION_LIST,
     .offset = offsetof(values_t, more),
     .default_value = "one",
     .help = "Words."},
};

enum { N_OPTIONS = sizeof options / sizeof options[0] };

static const psc_command_t command = {
    .name = "embps-test run",
    .synopsis = "--out FILE [options]",
    .summary = "runs a test",
    .description = "First paragraph.\n\nSecond paragraph.",
    .options = options,
    .n_options = N_OPTIONS,
    .examples = "embps-test run --out f\nembps-test run --out g",
};

typedef struct outcome {
    psc_status_t st;
    values_t values;
    psc_option_list_t operands;
    bool given[N_OPTIONS];
    psc_parse_result_t result;
    psc_error_t error;
} outcome_t;

/* Parses words, which end with NULL; operands are allowed when operands is not NULL. */
static outcome_t parse_with(const char *operands, char *const *words)
{
    psc_command_t with = command;
    with.operands = operands;
    int n = 0;
    while (words[n] != NULL)
        n++;
    outcome_t outcome = {.error = PSC_ERROR_INIT, .result = PSC_PARSE_EXIT};
    memset(&outcome.values, 0xa5, sizeof outcome.values);
    outcome.st = psc_options_parse(&with, n, words, &outcome.values, &outcome.operands,
                                   outcome.given, &outcome.result, &outcome.error);
    return outcome;
}

#define PARSE(...) parse_with(NULL, (char *[]){"embps-test", __VA_ARGS__, NULL})
#define PARSE_WORDS(...) parse_with("WORD...", (char *[]){"embps-test", __VA_ARGS__, NULL})

static void assert_refused(outcome_t outcome, const char *message)
{
    assert_int_equal(outcome.st, PSC_INVALID_ARGUMENT);
    assert_string_equal(outcome.error.message, message);
}

static void assert_double_is(double value, double expected)
{
    assert_memory_equal(&value, &expected, sizeof value);
}

static int clear_environment(void **state)
{
    (void)state;
    return unsetenv("EMBPS_TEST_DIM") | unsetenv("EMBPS_TEST_MEMORY") | unsetenv("EMBPS_TEST_OUT") |
           unsetenv("EMBPS_TEST_FAST") | unsetenv("EMBPS_TEST_LEVEL");
}

static void defaults_fill_what_is_not_given(void **state)
{
    (void)state;
    outcome_t got = PARSE("--out", "f");
    assert_int_equal(got.st, PSC_OK);
    assert_int_equal(got.result, PSC_PARSE_RUN);
    assert_false(got.values.quiet);
    assert_int_equal(got.values.dim, 100);
    assert_int_equal(got.values.memory, 256 << 20);
    assert_double_is(got.values.alpha, 0.025);
    assert_string_equal(got.values.out, "f");
    assert_int_equal(got.values.corpus.n, 0);
    assert_null(got.values.corpus.items);
    assert_int_equal(got.values.seed, 0);
    assert_false(got.values.fast);
    assert_string_equal(got.values.form, "matrix");
    assert_int_equal(got.values.more.n, 1);
    assert_string_equal(got.values.more.items[0], "one");
    assert_true(got.values.guard == UINT64_C(0xa5a5a5a5a5a5a5a5));
    for (size_t i = 0; i < N_OPTIONS; i++)
        assert_int_equal(got.given[i], strcmp(options[i].name, "out") == 0);
}

static void every_type_is_taken_in_both_spellings(void **state)
{
    (void)state;
    outcome_t apart = PARSE("--quiet", "--dim", "7", "--memory", "1G", "--alpha", "0.5", "--out",
                            "f", "--seed", "18446744073709551615");
    outcome_t joined = PARSE("--quiet", "--dim=7", "--memory=1G", "--alpha=5e-1", "--out=f",
                             "--seed=18446744073709551615");
    const outcome_t *both[] = {&apart, &joined};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(both[i]->st, PSC_OK);
        assert_true(both[i]->values.quiet);
        assert_int_equal(both[i]->values.dim, 7);
        assert_int_equal(both[i]->values.memory, 1 << 30);
        assert_double_is(both[i]->values.alpha, 0.5);
        assert_string_equal(both[i]->values.out, "f");
        assert_true(both[i]->values.seed == UINT64_MAX);
        assert_true(both[i]->given[0] && both[i]->given[1] && !both[i]->given[5]);
    }
}

static void lists_take_all_words_up_to_the_next_option(void **state)
{
    (void)state;
    outcome_t got = PARSE("--corpus", "a", "-b", "c d", "--out", "f", "--more", "x", "y");
    assert_int_equal(got.st, PSC_OK);
    assert_int_equal(got.values.corpus.n, 3);
    assert_string_equal(got.values.corpus.items[0], "a");
    assert_string_equal(got.values.corpus.items[1], "-b");
    assert_string_equal(got.values.corpus.items[2], "c d");
    assert_int_equal(got.values.more.n, 2);
    assert_string_equal(got.values.more.items[1], "y");
    assert_refused(PARSE("--out", "f", "--corpus"), "--corpus: needs a value (FILE)");
    assert_refused(PARSE("--out", "f", "--corpus=a"),
                   "--corpus: write --corpus FILE..., without '='");
    assert_refused(PARSE("--corpus", "a", "--out", "f", "--corpus", "b"), "--corpus: given twice");
}

static void values_may_begin_with_one_dash(void **state)
{
    (void)state;
    outcome_t got = PARSE("--out", "-");
    assert_int_equal(got.st, PSC_OK);
    assert_string_equal(got.values.out, "-");
    assert_refused(PARSE("--out", "f", "--alpha", "-0.5"),
                   "--alpha -0.5: out of bounds; possible: 0 to 1");
}

static void bounds_hold_and_are_told(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--out=f", "--dim=1").values.dim, 1);
    assert_int_equal(PARSE("--out=f", "--dim=4096").values.dim, 4096);
    assert_refused(PARSE("--out=f", "--dim=0"), "--dim 0: out of bounds; possible: 1 to 4096");
    assert_refused(PARSE("--out=f", "--dim", "4097"),
                   "--dim 4097: out of bounds; possible: 1 to 4096");
    assert_int_equal(PARSE("--out=f", "--memory=8M").st, PSC_OK);
    assert_refused(PARSE("--out=f", "--memory=8388607"),
                   "--memory 8388607: out of bounds; possible: 8M or more");
    assert_int_equal(PARSE("--out=f", "--alpha=1").st, PSC_OK);
    assert_refused(PARSE("--out=f", "--alpha=1.0000001"),
                   "--alpha 1.0000001: out of bounds; possible: 0 to 1");
}

static void bounds_beyond_the_doubles_hold_exactly(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--out=f", "--count=9007199254740992").values.count,
                     UINT64_C(9007199254740992));
    assert_refused(PARSE("--out=f", "--count=9007199254740993"),
                   "--count 9007199254740993: out of bounds; possible: 3 to 9007199254740992");
    assert_refused(PARSE("--out=f", "--count=2"),
                   "--count 2: out of bounds; possible: 3 to 9007199254740992");
}

static void what_is_no_number_is_told_the_bounds(void **state)
{
    (void)state;
    assert_refused(PARSE("--out=f", "--count", "-1"),
                   "--count -1: wanted is a whole number; possible: 3 to 9007199254740992");
    assert_refused(PARSE("--out=f", "--seed", "1.5"),
                   "--seed 1.5: wanted is a whole number; possible: 0 to 2^64-1");
    assert_refused(PARSE("--out=f", "--alpha", "x"),
                   "--alpha x: wanted is a finite number like 0.025; possible: 0 to 1");
}

static void a_text_that_is_no_choice_is_told_all_with_its_source(void **state)
{
    (void)state;
    assert_string_equal(PARSE("--out=f", "--level=high").values.level, "high");
    assert_refused(PARSE("--out=f", "--level=hi"),
                   "--level hi: unknown; possible: low, middle or high");
    assert_int_equal(setenv("EMBPS_TEST_LEVEL", "foo", 1), 0);
    assert_refused(PARSE("--out=f"),
                   "EMBPS_TEST_LEVEL=foo: unknown; possible: low, middle or high");
}

static void what_is_no_number_is_refused(void **state)
{
    (void)state;
    static const char *const not_whole[] = {"",
                                            "x",
                                            "-1",
                                            "+1",
                                            " 1",
                                            "1 ",
                                            "1.5",
                                            "1e3",
                                            "0x10",
                                            "18446744073709551616",
                                            "99999999999999999999"};
    for (size_t i = 0; i < sizeof not_whole / sizeof not_whole[0]; i++) {
        char word[64];
        (void)snprintf(word, sizeof word, "--seed=%s", not_whole[i]);
        outcome_t got = PARSE("--out=f", word);
        assert_int_equal(got.st, PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(got.error.message, "wanted is a whole number"));
    }
    static const char *const not_finite[] = {"", "x", "nan", "inf", "-inf", "1e999", "0.5x", " 1"};
    for (size_t i = 0; i < sizeof not_finite / sizeof not_finite[0]; i++) {
        char word[64];
        (void)snprintf(word, sizeof word, "--alpha=%s", not_finite[i]);
        outcome_t got = PARSE("--out=f", word);
        assert_int_equal(got.st, PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(got.error.message, "wanted is a finite number"));
    }
    assert_refused(PARSE("--out="), "--out: FILE is empty");
    assert_refused(PARSE("--out=f", "--quiet=1"), "--quiet 1: takes no value");
}

static void a_missing_value_is_told(void **state)
{
    (void)state;
    assert_refused(PARSE("--out"), "--out: needs a value (FILE)");
    assert_refused(PARSE("--out", "--quiet"), "--out: needs a value (FILE)");
    assert_refused(PARSE("--dim", "--out", "f"), "--dim: needs a value (N)");
}

static void a_missing_required_option_is_told(void **state)
{
    (void)state;
    assert_refused(PARSE("--quiet"), "--out FILE: is required (embps-test run --help)");
}

static void an_option_given_twice_is_refused(void **state)
{
    (void)state;
    assert_refused(PARSE("--dim=1", "--out=f", "--dim", "2"), "--dim: given twice");
    assert_refused(PARSE("--quiet", "--quiet", "--out=f"), "--quiet: given twice");
}

static void a_misspelt_option_gets_a_suggestion(void **state)
{
    (void)state;
    assert_refused(PARSE("--memroy=1G"), "--memroy: unknown option; did you mean --memory? "
                                         "(embps-test run --help lists all)");
    assert_refused(PARSE("--corpsu", "f"), "--corpsu: unknown option; did you mean --corpus? "
                                           "(embps-test run --help lists all)");
    assert_refused(PARSE("--mem"), "--mem: unknown option; did you mean --memory? "
                                   "(embps-test run --help lists all)");
    assert_refused(PARSE("-dim", "3"), "-dim: unknown option; did you mean --dim? "
                                       "(embps-test run --help lists all)");
    assert_refused(PARSE("--unrelated"),
                   "--unrelated: unknown option (embps-test run --help lists all)");
    assert_refused(PARSE("--an-option-whose-name-is-longer-than-any-that-exists"),
                   "--an-option-whose-name-is-longer-than-any-that-exists: unknown option "
                   "(embps-test run --help lists all)");
    assert_int_equal(PARSE("--=x").st, PSC_INVALID_ARGUMENT);
}

static void the_environment_stands_between_command_line_and_default(void **state)
{
    (void)state;
    assert_int_equal(setenv("EMBPS_TEST_DIM", "50", 1), 0);
    assert_int_equal(setenv("EMBPS_TEST_MEMORY", "", 1), 0); /* empty is not set */
    assert_int_equal(setenv("EMBPS_TEST_OUT", "from-env", 1), 0);
    assert_int_equal(setenv("EMBPS_TEST_FAST", "yes", 1), 0);
    outcome_t got = PARSE("--quiet");
    assert_int_equal(got.st, PSC_OK);
    assert_int_equal(got.values.dim, 50);
    assert_int_equal(got.values.memory, 256 << 20);
    assert_string_equal(got.values.out, "from-env");
    assert_true(got.values.fast);
    assert_true(got.given[1] && !got.given[2] && got.given[4] && got.given[9]);

    got = PARSE("--dim=60", "--out=f");
    assert_int_equal(got.values.dim, 60);
    assert_string_equal(got.values.out, "f");

    assert_int_equal(setenv("EMBPS_TEST_FAST", "off", 1), 0);
    assert_false(PARSE("--quiet").values.fast);
}

static void a_wrong_variable_is_named(void **state)
{
    (void)state;
    assert_int_equal(setenv("EMBPS_TEST_DIM", "9999", 1), 0);
    assert_refused(PARSE("--out=f"), "EMBPS_TEST_DIM=9999: out of bounds; possible: 1 to 4096");
    assert_int_equal(setenv("EMBPS_TEST_DIM", "many", 1), 0);
    assert_refused(PARSE("--out=f"),
                   "EMBPS_TEST_DIM=many: wanted is a whole number; possible: 1 to 4096");
    assert_int_equal(PARSE("--out=f", "--dim=3").st, PSC_OK); /* not looked at */
    assert_int_equal(unsetenv("EMBPS_TEST_DIM"), 0);
    assert_int_equal(setenv("EMBPS_TEST_FAST", "maybe", 1), 0);
    assert_refused(PARSE("--out=f"), "EMBPS_TEST_FAST=maybe: wanted is 1 or 0");
}

static void operands_are_taken_where_they_are_allowed(void **state)
{
    (void)state;
    outcome_t got = PARSE_WORDS("--out", "f", "king", "queen");
    assert_int_equal(got.st, PSC_OK);
    assert_int_equal(got.operands.n, 2);
    assert_string_equal(got.operands.items[0], "king");
    assert_string_equal(got.operands.items[1], "queen");

    got = PARSE_WORDS("king", "--out", "f");
    assert_int_equal(got.st, PSC_OK);
    assert_int_equal(got.operands.n, 1);

    got = PARSE_WORDS("--out", "f", "--", "--king", "--help");
    assert_int_equal(got.st, PSC_OK);
    assert_int_equal(got.operands.n, 2);
    assert_string_equal(got.operands.items[0], "--king");

    got = PARSE_WORDS("7", "-1", "--out", "f"); /* no option: who reads ids says what one is */
    assert_int_equal(got.st, PSC_OK);
    assert_int_equal(got.operands.n, 2);
    assert_string_equal(got.operands.items[1], "-1");

    got = PARSE_WORDS("--out", "f");
    assert_int_equal(got.st, PSC_OK);
    assert_int_equal(got.operands.n, 0);

    assert_refused(PARSE_WORDS("king", "--out", "f", "queen"),
                   "queen: the words WORD... must stand together");
    assert_refused(PARSE_WORDS("--out", "f", "king", "--", "queen"),
                   "queen: the words WORD... must stand together");
    assert_refused(PARSE("--out", "f", "king"),
                   "king: unexpected word (embps-test run --help tells what is possible)");
}

static void as_many_operands_are_taken_as_there_must_be(void **state)
{
    (void)state;
    psc_command_t with = command;
    with.operands = "A B";
    with.min_operands = 1;
    with.max_operands = 2;
    for (int n = 0; n <= 3; n++) {
        char *words[] = {"embps-test", "--out", "f", "one", "two", "three", NULL};
        outcome_t got = {.error = PSC_ERROR_INIT};
        got.st = psc_options_parse(&with, 3 + n, words, &got.values, &got.operands, NULL,
                                   &got.result, &got.error);
        if (n == 0) {
            assert_refused(got, "embps-test run: wants A B; see embps-test run --help");
        } else if (n == 3) {
            assert_refused(got, "three: a word too many: embps-test run wants A B; see embps-test "
                                "run --help");
        } else {
            assert_int_equal(got.st, PSC_OK);
            assert_int_equal(got.operands.n, n);
        }
    }
}

static void sizes_take_suffixes_and_tell_overflow(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"8388608", 8388608},
        {"1K", 1024},
        {"1k", 1024},
        {"512M", UINT64_C(536870912)},
        {"4G", UINT64_C(4294967296)},
        {"3t", UINT64_C(3298534883328)},
        {"18446744073709551615", UINT64_MAX},
        {"18014398509481983K", UINT64_MAX - 1023},
        {"16777215T", UINT64_C(16777215) << 40},
        {"0T", 0},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 1;
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psc_size_parse(good[i].text, &bytes, &error), PSC_OK);
        assert_true(bytes == good[i].bytes);
    }
    static const char *const bad[] = {"",
                                      "M",
                                      "-1",
                                      "1.5G",
                                      "1KB",
                                      "1 K",
                                      " 1K",
                                      "1P",
                                      "0x10",
                                      "18446744073709551616",
                                      "1KK",
                                      "1K ",
                                      "16777216T",
                                      "18014398509481984K",
                                      "99999999999999999999G"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 1;
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psc_size_parse(bad[i], &bytes, &error), PSC_INVALID_ARGUMENT);
        assert_int_equal(bytes, 1);
        assert_true(bad[i][0] == '\0' || strstr(error.message, bad[i]) != NULL);
    }
}

static void a_wrong_size_is_told_with_its_option(void **state)
{
    (void)state;
    assert_refused(
        PARSE("--out=f", "--memory=16777216T"),
        "--memory 16777216T: size 16777216T is 2^64 bytes or more; possible: 8M or more");
    outcome_t got = PARSE("--out=f", "--memory", "lots");
    assert_int_equal(got.st, PSC_INVALID_ARGUMENT);
    assert_int_equal(strncmp(got.error.message, "--memory lots: lots is not a size", 33), 0);
}

/* What the help prints, in a block that the caller frees. */
static char *help_text(const psc_command_t *of)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    psc_options_print_help(of, stream);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void the_help_is_a_page_with_every_option(void **state)
{
    (void)state;
    char *text = help_text(&command);
    static const char *const parts[] = {
        "NAME\n       embps-test run - runs a test\n",
        "\nSYNOPSIS\n       embps-test run --out FILE [options]\n",
        "\nDESCRIPTION\n       First paragraph.\n\n       Second paragraph.\n",
        "\nOPTIONS\n       --quiet\n              Says less.\n              [flag]\n",
        ("       --dim N\n              Floats in a row.\n"
         "              [whole number; 1 to 4096; default 100; environment\n"
         "              EMBPS_TEST_DIM]\n"),
        "       --memory BYTES\n",
        "8M or more; default 256M;",
        "[number; 0 to 1; default 0.025]",
        "       --corpus FILE...\n",
        "[text; required; environment EMBPS_TEST_OUT]",
        "       --help\n",
        "       --version\n",
        "\nEXIT STATUS\n       0    ok\n       2    invalid argument\n",
        "       61   internal error\n",
        "\nEXAMPLES\n       embps-test run --out f\n       embps-test run --out g\n",
    };
    const char *at = text;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *found = strstr(i < 9 ? at : text, parts[i]);
        if (found == NULL)
            print_message("missing: %s\n", parts[i]);
        assert_non_null(found);
        at = found != NULL ? found : at;
    }
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        assert_in_range(length, 0, 79);
        if (length != 0)
            assert_int_not_equal(line[length - 1], ' ');
        line += length + (line[length] == '\n');
    }
    free(text);
}

static void help_and_version_end_the_program(void **state)
{
    (void)state;
    assert_int_equal(fflush(stdout), 0);
    assert_int_equal(PARSE("--help").result, PSC_PARSE_EXIT);
    assert_int_equal(PARSE("--bad", "--help").st, PSC_OK);
    assert_int_equal(PARSE("-h").result, PSC_PARSE_EXIT);
    assert_int_equal(PARSE("--version").result, PSC_PARSE_EXIT);
    assert_int_equal(PARSE("--version").st, PSC_OK);
}

static void bounds_are_worded_for_a_person(void **state)
{
    (void)state;
    static const struct {
        psc_option_t option;
        const char *text;
    } cases[] = {
        {{.type = PSC_OPTION_U64, .min = 1, .max = 10}, "1 to 10"},
        {{.type = PSC_OPTION_U64, .min = 2, .max = 0x1p64}, "2 or more"},
        {{.type = PSC_OPTION_U64}, ""},
        {{.type = PSC_OPTION_SIZE, .min = 1000, .max = 0x1p40}, "1000 to 1T"},
        {{.type = PSC_OPTION_DOUBLE, .min = -0.5, .max = 1e-4}, "-0.5 to 0.0001"},
        {{.type = PSC_OPTION_DOUBLE, .min = -1e300, .max = 0}, "0 or less"},
        {{.type = PSC_OPTION_DOUBLE, .min = -1e300, .max = 1e300}, ""},
        {{.type = PSC_OPTION_TEXT, .min = 1, .max = 2}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        psc_option_format_bounds(&cases[i].option, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
#define CLEAN(test) cmocka_unit_test_setup_teardown(test, clear_environment, clear_environment)
    const struct CMUnitTest tests[] = {
        CLEAN(defaults_fill_what_is_not_given),
        CLEAN(every_type_is_taken_in_both_spellings),
        CLEAN(lists_take_all_words_up_to_the_next_option),
        CLEAN(values_may_begin_with_one_dash),
        CLEAN(bounds_hold_and_are_told),
        CLEAN(bounds_beyond_the_doubles_hold_exactly),
        CLEAN(what_is_no_number_is_told_the_bounds),
        CLEAN(a_text_that_is_no_choice_is_told_all_with_its_source),
        CLEAN(what_is_no_number_is_refused),
        CLEAN(a_missing_value_is_told),
        CLEAN(a_missing_required_option_is_told),
        CLEAN(an_option_given_twice_is_refused),
        CLEAN(a_misspelt_option_gets_a_suggestion),
        CLEAN(the_environment_stands_between_command_line_and_default),
        CLEAN(a_wrong_variable_is_named),
        CLEAN(operands_are_taken_where_they_are_allowed),
        CLEAN(as_many_operands_are_taken_as_there_must_be),
        CLEAN(sizes_take_suffixes_and_tell_overflow),
        CLEAN(a_wrong_size_is_told_with_its_option),
        CLEAN(the_help_is_a_page_with_every_option),
        CLEAN(help_and_version_end_the_program),
        CLEAN(bounds_are_worded_for_a_person),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
