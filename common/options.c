/*
 * Command lines, parsed by a table.
 *
 * One pass over argv: a word that begins with "--" names an option, which takes its value from the
 * same word (after '=') or from the next ones; other words are operands. Then environment, defaults
 * and what is required are looked at for options that were not given. Values go through one
 * function whatever their source, so that bounds hold for all; a default that breaks them is a bug
 * of ours.
 *
 * Lists and operands are runs of argv and copied nowhere; therefore a list cannot be given as
 * --name=VALUE, twice or in the environment, and operands stand together.
 *
 * Threads: any, but getenv must not race with setenv. Nothing is allocated.
 */
#include "common/options.h"

#include "common/options_help.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS 128
#define MAX_NAME 32 /* names longer than this are not compared when one is misspelt */

typedef struct parser {
    const psc_command_t *command;
    char *const *argv;
    int argc;
    int at; /* of the next word */
    char *values;
    bool given[MAX_OPTIONS];
    psc_option_list_t operands;
    psc_error_t *error;
} parser_t;

/* Decimal digits alone; end_out is set behind them. */
static bool parse_digits(const char *text, uint64_t *value_out, const char **end_out)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0)
        return false;
    *value_out = value;
    *end_out = end;
    return true;
}

psc_status_t psc_size_parse(const char *text, uint64_t *bytes_out, psc_error_t *error)
{
    static const char suffixes[] = "KMGT";
    uint64_t number;
    const char *end;
    unsigned shift = 0;
    bool ok = parse_digits(text, &number, &end);
    if (ok && *end != '\0') {
        char upper = *end >= 'a' && *end <= 'z' ? (char)(*end - 'a' + 'A') : *end;
        const char *suffix = strchr(suffixes, upper);
        ok = suffix != NULL && end[1] == '\0';
        shift = ok ? 10 * (unsigned)(suffix - suffixes + 1) : 0;
    }
    if (!ok)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%s is not a size: wanted are bytes below 2^64, as a whole number "
                             "that K, M, G or T may follow (256M)",
                             text);
    if (number > UINT64_MAX >> shift)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "size %s is 2^64 bytes or more", text);
    *bytes_out = number << shift;
    return PSC_OK;
}

/* Error about a value: "--dim 0: text", or "EMBPS_DIM=0: text" when variable is not NULL. */
PSC_PRINTF(5, 6)
static psc_status_t refuse(parser_t *parser, const psc_option_t *option, const char *variable,
                           const char *value, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return psc_error_set(parser->error, PSC_INVALID_ARGUMENT, "%s%s%s%s: %s",
                         variable != NULL ? "" : "--", variable != NULL ? variable : option->name,
                         variable != NULL   ? "="
                         : value[0] != '\0' ? " "
                                            : "",
                         value, text);
}

/* A value that is no number at all: what is wrong, and what is possible. */
static psc_status_t refuse_number(parser_t *parser, const psc_option_t *option,
                                  const char *variable, const char *value, const char *what)
{
    char bounds[64];
    psc_option_format_bounds(option, bounds, sizeof bounds);
    if (bounds[0] == '\0' && option->type == PSC_OPTION_U64)
        (void)snprintf(bounds, sizeof bounds, "0 to 2^64-1");
    return refuse(parser, option, variable, value, "%s%s%s", what,
                  bounds[0] != '\0' ? "; possible: " : "", bounds);
}

static psc_status_t check_bounds(parser_t *parser, const psc_option_t *option, const char *variable,
                                 const char *value, bool within)
{
    char bounds[64];
    psc_option_format_bounds(option, bounds, sizeof bounds);
    if (bounds[0] == '\0' || within)
        return PSC_OK;
    return refuse(parser, option, variable, value, "out of bounds; possible: %s", bounds);
}

/* Compared as integers: from 2^53 on, doubles would take a neighbour for the bound. */
static bool is_within(uint64_t number, double min, double max)
{
    bool above = min <= 0 || (min < 0x1p64 && number >= (uint64_t)ceil(min));
    bool below = max >= 0x1p64 || (max >= 0 && number <= (uint64_t)max);
    return above && below;
}

static bool flag_of_text(const char *text, bool *flag_out)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *flag_out = i % 2 != 0;
            return true;
        }
    }
    return false;
}

static psc_status_t set_u64(parser_t *parser, const psc_option_t *option, const char *variable,
                            const char *value)
{
    uint64_t number = 0;
    const char *end = "";
    if (option->type == PSC_OPTION_SIZE) {
        psc_error_t why = PSC_ERROR_INIT;
        if (psc_size_parse(value, &number, &why) != PSC_OK)
            return refuse_number(parser, option, variable, value, why.message);
    } else if (!parse_digits(value, &number, &end) || *end != '\0') {
        return refuse_number(parser, option, variable, value, "wanted is a whole number");
    }
    psc_status_t st =
        check_bounds(parser, option, variable, value, is_within(number, option->min, option->max));
    if (st == PSC_OK)
        *(uint64_t *)(void *)(parser->values + option->offset) = number;
    return st;
}

static psc_status_t set_double(parser_t *parser, const psc_option_t *option, const char *variable,
                               const char *value)
{
    char *end;
    double number = strtod(value, &end);
    bool starts = strchr("+-.0123456789", value[0]) != NULL; /* no blanks, no "inf" */
    if (value[0] == '\0' || !starts || *end != '\0' || !isfinite(number))
        return refuse_number(parser, option, variable, value,
                             "wanted is a finite number like 0.025");
    psc_status_t st = check_bounds(parser, option, variable, value,
                                   number >= option->min && number <= option->max);
    if (st == PSC_OK)
        *(double *)(void *)(parser->values + option->offset) = number;
    return st;
}

static psc_status_t set_text(parser_t *parser, const psc_option_t *option, const char *variable,
                             const char *value)
{
    if (value[0] == '\0')
        return refuse(parser, option, variable, value, "%s is empty", option->argument);
    char all[256] = "";
    bool found = option->choices == NULL;
    for (size_t i = 0, at = 0; !found && option->choices[i] != NULL; i++) {
        const char *choice = option->choices[i];
        const char *before = i == 0 ? "" : option->choices[i + 1] == NULL ? " or " : ", ";
        found = strcmp(value, choice) == 0;
        if (at < sizeof all)
            at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", before, choice);
    }
    if (!found)
        return refuse(parser, option, variable, value, "unknown; possible: %s", all);
    *(const char **)(void *)(parser->values + option->offset) = value;
    return PSC_OK;
}

/* Sets the field of one option from text; variable: where it comes from, NULL for argv. */
static psc_status_t set_value(parser_t *parser, const psc_option_t *option, const char *variable,
                              const char *value)
{
    void *field = parser->values + option->offset;
    bool flag;
    switch (option->type) {
    case PSC_OPTION_FLAG:
        if (!flag_of_text(value, &flag))
            return refuse(parser, option, variable, value, "wanted is 1 or 0");
        *(bool *)field = flag;
        return PSC_OK;
    case PSC_OPTION_U64:
    case PSC_OPTION_SIZE:
        return set_u64(parser, option, variable, value);
    case PSC_OPTION_DOUBLE:
        return set_double(parser, option, variable, value);
    case PSC_OPTION_TEXT:
        return set_text(parser, option, variable, value);
    case PSC_OPTION_LIST: /* a default: a list of one */
        *(psc_option_list_t *)field = (psc_option_list_t){&option->default_value, 1};
        return PSC_OK;
    }
    return PSC_INTERNAL;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits (insert, drop, change, swap neighbours) that turn a into b; both at most MAX_NAME long. */
static size_t edit_distance(const char *a, size_t a_length, const char *b)
{
    size_t b_length = strlen(b);
    size_t d[MAX_NAME + 1][MAX_NAME + 1];
    if (a_length > MAX_NAME || b_length > MAX_NAME)
        return SIZE_MAX;
    for (size_t i = 0; i <= a_length; i++) {
        for (size_t j = 0; j <= b_length; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            size_t change = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = least(change, least(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[a_length][b_length];
}

static psc_status_t refuse_unknown(parser_t *parser, const char *word)
{
    const char *name = word + strspn(word, "-");
    size_t length = strcspn(name, "=");
    const psc_option_t *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < parser->command->n_options; i++) {
        const psc_option_t *option = &parser->command->options[i];
        size_t distance = edit_distance(name, length, option->name);
        if (length >= 3 && strncmp(name, option->name, length) == 0)
            distance = 1; /* cut short */
        if (distance < best_distance) {
            best_distance = distance;
            best = option;
        }
    }
    int shown = (int)((size_t)(name - word) + length);
    if (best != NULL && best_distance <= 1 + length / 4)
        return psc_error_set(parser->error, PSC_INVALID_ARGUMENT,
                             "%.*s: unknown option; did you mean --%s? (%s --help lists all)",
                             shown, word, best->name, parser->command->name);
    return psc_error_set(parser->error, PSC_INVALID_ARGUMENT,
                         "%.*s: unknown option (%s --help lists all)", shown, word,
                         parser->command->name);
}

/* Does the word name an option (or end them)? "-" alone is a value. */
static bool is_option(const char *word)
{
    return word[0] == '-' && word[1] == '-';
}

/* Is it a number below 0? That is no option; what takes the word says what it wants. */
static bool is_negative(const char *word)
{
    return word[0] == '-' && word[1] >= '0' && word[1] <= '9';
}

/* The values of one option from argv; inline_value is what stood after '=', or NULL. */
static psc_status_t take_values(parser_t *parser, const psc_option_t *option,
                                const char *inline_value)
{
    if (option->type == PSC_OPTION_FLAG) {
        if (inline_value != NULL)
            return refuse(parser, option, NULL, inline_value, "takes no value");
        *(bool *)(void *)(parser->values + option->offset) = true;
        return PSC_OK;
    }
    if (option->type != PSC_OPTION_LIST && inline_value != NULL)
        return set_value(parser, option, NULL, inline_value);
    if (inline_value != NULL)
        return refuse(parser, option, NULL, "", "write --%s %s..., without '='", option->name,
                      option->argument);
    int first = parser->at;
    int most = option->type == PSC_OPTION_LIST ? parser->argc : first + 1;
    while (parser->at < parser->argc && parser->at < most && !is_option(parser->argv[parser->at]))
        parser->at++;
    if (parser->at == first)
        return refuse(parser, option, NULL, "", "needs a value (%s)", option->argument);
    if (option->type != PSC_OPTION_LIST)
        return set_value(parser, option, NULL, parser->argv[first]);
    *(psc_option_list_t *)(void *)(parser->values + option->offset) = (psc_option_list_t){
        (const char *const *)parser->argv + first, (size_t)(parser->at - first)};
    return PSC_OK;
}

static psc_status_t take_option(parser_t *parser)
{
    const char *word = parser->argv[parser->at++];
    const char *name = word + 2;
    size_t length = strcspn(name, "=");
    for (size_t i = 0; i < parser->command->n_options; i++) {
        const psc_option_t *option = &parser->command->options[i];
        if (strncmp(option->name, name, length) != 0 || option->name[length] != '\0')
            continue;
        if (parser->given[i])
            return refuse(parser, option, NULL, "", "given twice");
        parser->given[i] = true;
        return take_values(parser, option, name[length] == '=' ? name + length + 1 : NULL);
    }
    return refuse_unknown(parser, word);
}

static psc_status_t take_operand(parser_t *parser)
{
    const char *const *word = (const char *const *)parser->argv + parser->at++;
    if (parser->command->operands == NULL)
        return psc_error_set(parser->error, PSC_INVALID_ARGUMENT,
                             "%s: unexpected word (%s --help tells what is possible)", *word,
                             parser->command->name);
    if (parser->operands.n == 0)
        parser->operands.items = word;
    if (word != parser->operands.items + parser->operands.n)
        return psc_error_set(parser->error, PSC_INVALID_ARGUMENT,
                             "%s: the words %s must stand together", *word,
                             parser->command->operands);
    if (parser->command->max_operands != 0 && parser->operands.n == parser->command->max_operands)
        return psc_error_set(
            parser->error, PSC_INVALID_ARGUMENT, "%s: a word too many: %s wants %s; see %s --help",
            *word, parser->command->name, parser->command->operands, parser->command->name);
    parser->operands.n++;
    return PSC_OK;
}

static psc_status_t take_words(parser_t *parser)
{
    bool options_ended = false;
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && parser->at < parser->argc) {
        const char *word = parser->argv[parser->at];
        if (options_ended || word[0] != '-' || word[1] == '\0' || is_negative(word)) {
            st = take_operand(parser);
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
            parser->at++;
            if (parser->operands.n != 0 && parser->at < parser->argc)
                st = psc_error_set(parser->error, PSC_INVALID_ARGUMENT,
                                   "%s: the words %s must stand together", parser->argv[parser->at],
                                   parser->command->operands);
        } else if (is_option(word)) {
            st = take_option(parser);
        } else {
            st = refuse_unknown(parser, word);
        }
    }
    return st;
}

static void clear_field(parser_t *parser, const psc_option_t *option)
{
    static const size_t sizes[] = {
        [PSC_OPTION_FLAG] = sizeof(bool),         [PSC_OPTION_U64] = sizeof(uint64_t),
        [PSC_OPTION_SIZE] = sizeof(uint64_t),     [PSC_OPTION_DOUBLE] = sizeof(double),
        [PSC_OPTION_TEXT] = sizeof(const char *), [PSC_OPTION_LIST] = sizeof(psc_option_list_t),
    };
    memset(parser->values + option->offset, 0, sizes[option->type]);
}

/* Environment and default of an option that was not on the command line. */
static psc_status_t fill_in(parser_t *parser, size_t index)
{
    const psc_option_t *option = &parser->command->options[index];
    clear_field(parser, option);
    if (option->environment != NULL) {
        PSC_BUG_ON(option->type == PSC_OPTION_LIST);
        const char *value = getenv(option->environment);
        if (value != NULL && value[0] != '\0') {
            parser->given[index] = true;
            return set_value(parser, option, option->environment, value);
        }
    }
    if (option->required)
        return refuse(parser, option, NULL, option->argument, "is required (%s --help)",
                      parser->command->name);
    if (option->default_value != NULL) {
        psc_status_t st = set_value(parser, option, NULL, option->default_value);
        PSC_BUG_ON(st != PSC_OK);
    }
    return PSC_OK;
}

/* True when --help or --version stands where an option can, and was printed. */
static bool print_page(const psc_command_t *command, int argc, char *const argv[])
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            psc_options_print_help(command, stdout);
            return true;
        }
        if (strcmp(argv[i], "--version") == 0) {
            (void)printf("%.*s %s\n", (int)strcspn(command->name, " "), command->name,
                         EMBPS_VERSION);
            return true;
        }
    }
    return false;
}

psc_status_t psc_options_parse(const psc_command_t *command, int argc, char *const argv[],
                               void *values, psc_option_list_t *operands_out, bool *given_out,
                               psc_parse_result_t *result_out, psc_error_t *error)
{
    PSC_BUG_ON(command->n_options > MAX_OPTIONS);
    PSC_BUG_ON(command->operands != NULL && operands_out == NULL);
    if (print_page(command, argc, argv)) {
        *result_out = PSC_PARSE_EXIT;
        return PSC_OK;
    }
    parser_t parser = {
        .command = command, .argv = argv, .argc = argc, .at = 1, .values = values, .error = error};
    psc_status_t st = take_words(&parser);
    if (st == PSC_OK && parser.operands.n < command->min_operands)
        st = psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: wants %s; see %s --help",
                           command->name, command->operands, command->name);
    for (size_t i = 0; st == PSC_OK && i < command->n_options; i++) {
        if (!parser.given[i])
            st = fill_in(&parser, i);
    }
    if (st != PSC_OK)
        return st;
    if (operands_out != NULL)
        *operands_out = parser.operands;
    if (given_out != NULL)
        memcpy(given_out, parser.given, command->n_options * sizeof(bool));
    *result_out = PSC_PARSE_RUN;
    return PSC_OK;
}
