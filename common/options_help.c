/*
 * The help page of a command, printed from the table that the parser uses, so that the two cannot
 * differ. Plain text of at most 79 columns, in the order of a manual page.
 *
 * Threads: any; nothing is kept. Cost: none that matters.
 */
#include "common/options_help.h"

#include <math.h>
#include <string.h>

#define LINE_COLUMNS 79
#define INDENT 7
#define HELP_INDENT 14

/* An end that uint64_t cannot hold is no bound for a person. */
static bool is_open(double bound)
{
    return !(fabs(bound) < 0x1p63);
}

/* 8388608 -> "8M" where it is exact; whole numbers as they are; others in the shortest form. */
static void format_number(const psc_option_t *option, double value, char *text, size_t size)
{
    static const char suffixes[] = {'T', 'G', 'M', 'K'};
    if (option->type == PSC_OPTION_DOUBLE) {
        (void)snprintf(text, size, "%.10g", value);
        return;
    }
    for (size_t i = 0; option->type == PSC_OPTION_SIZE && i < sizeof suffixes; i++) {
        double unit = ldexp(1, 40 - 10 * (int)i);
        if (value >= unit && fmod(value, unit) <= 0) {
            (void)snprintf(text, size, "%.0f%c", value / unit, suffixes[i]);
            return;
        }
    }
    (void)snprintf(text, size, "%.0f", value);
}

void psc_option_format_bounds(const psc_option_t *option, char *text, size_t size)
{
    text[0] = '\0';
    bool number = option->type == PSC_OPTION_U64 || option->type == PSC_OPTION_SIZE ||
                  option->type == PSC_OPTION_DOUBLE;
    bool none = fpclassify(option->min) == FP_ZERO && fpclassify(option->max) == FP_ZERO;
    if (!number || none)
        return;
    char low[32];
    char high[32];
    format_number(option, option->min, low, sizeof low);
    format_number(option, option->max, high, sizeof high);
    if (is_open(option->min) && is_open(option->max))
        return;
    if (is_open(option->max))
        (void)snprintf(text, size, "%s or more", low);
    else if (is_open(option->min))
        (void)snprintf(text, size, "%s or less", high);
    else
        (void)snprintf(text, size, "%s to %s", low, high);
}

const char *psc_option_type_text(const psc_option_t *option)
{
    switch (option->type) {
    case PSC_OPTION_FLAG:
        return "flag";
    case PSC_OPTION_U64:
        return "whole number";
    case PSC_OPTION_SIZE:
        return "bytes; K, M, G, T are powers of 1024";
    case PSC_OPTION_DOUBLE:
        return "number";
    case PSC_OPTION_TEXT:
        return "text";
    case PSC_OPTION_LIST:
        return "one or more words";
    }
    return "";
}

/* Prints text with line breaks between words; a blank line in text separates paragraphs. */
static void print_wrapped(FILE *stream, const char *text, int indent)
{
    int column = 0;
    while (*text != '\0') {
        if (text[0] == '\n' && text[1] == '\n') {
            (void)fputs("\n\n", stream);
            column = 0;
        }
        text += strspn(text, " \n");
        size_t length = strcspn(text, " \n");
        if (length == 0)
            break;
        if (column != 0 && column + 1 + (int)length > LINE_COLUMNS) {
            (void)fputc('\n', stream);
            column = 0;
        }
        if (column == 0)
            column = fprintf(stream, "%*s", indent, "");
        else
            column += fprintf(stream, " ");
        column += fprintf(stream, "%.*s", (int)length, text);
        text += length;
    }
    (void)fputc('\n', stream);
}

/* Lines as they are, indented. */
static void print_lines(FILE *stream, const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        (void)fprintf(stream, "%*s%.*s\n", length != 0 ? INDENT : 0, "", (int)length, text);
        text += length;
        text += *text == '\n';
    }
}

static void print_option(FILE *stream, const psc_option_t *option)
{
    (void)fprintf(stream, "%*s--%s", INDENT, "", option->name);
    if (option->argument != NULL)
        (void)fprintf(stream, " %s%s", option->argument,
                      option->type == PSC_OPTION_LIST ? "..." : "");
    (void)fputc('\n', stream);
    print_wrapped(stream, option->help, HELP_INDENT);

    char facts[512];
    char bounds[64];
    psc_option_format_bounds(option, bounds, sizeof bounds);
    (void)snprintf(
        facts, sizeof facts, "[%s%s%s%s%s%s%s%s]", psc_option_type_text(option),
        bounds[0] != '\0' ? "; " : "", bounds, option->default_value != NULL ? "; default " : "",
        option->default_value != NULL ? option->default_value : "",
        option->required ? "; required" : "", option->environment != NULL ? "; environment " : "",
        option->environment != NULL ? option->environment : "");
    print_wrapped(stream, facts, HELP_INDENT);
    (void)fputc('\n', stream);
}

void psc_options_print_help(const psc_command_t *command, FILE *stream)
{
    (void)fprintf(stream, "NAME\n%*s%s - %s\n\n", INDENT, "", command->name, command->summary);
    (void)fputs("SYNOPSIS\n", stream);
    char line[1024];
    (void)snprintf(line, sizeof line, "%s %s", command->name, command->synopsis);
    print_wrapped(stream, line, INDENT);
    (void)fputs("\nDESCRIPTION\n", stream);
    print_wrapped(stream, command->description, INDENT);
    (void)fputs("\nOPTIONS\n", stream);
    for (size_t i = 0; i < command->n_options; i++)
        print_option(stream, &command->options[i]);
    (void)fprintf(stream, "%*s--help\n%*sPrints this page.\n\n", INDENT, "", HELP_INDENT, "");
    (void)fprintf(stream, "%*s--version\n%*sPrints the version.\n\n", INDENT, "", HELP_INDENT, "");
    (void)fputs("EXIT STATUS\n", stream);
#define X(name, number, text)                                                                      \
    (void)fprintf(stream, "%*s%-4d %s\n", INDENT, "", (int)PSC_##name, text);
    PSC_STATUS_LIST(X)
#undef X
    if (command->examples != NULL) {
        (void)fputs("\nEXAMPLES\n", stream);
        print_lines(stream, command->examples);
    }
}
