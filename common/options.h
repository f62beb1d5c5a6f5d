/*
 * Command lines: one table per program (or sub-command), from which parsing, bounds, --help and the
 * README's option lists come.
 *
 *     static const psc_option_t options[] = {
 *         {.name = "memory", .argument = "BYTES", .type = PSC_OPTION_SIZE,
 *          .offset = offsetof(opts_t, memory), .min = 8 << 20, .max = 0x1p62,
 *          .default_value = "256M", .environment = "EMBPS_MEMORY", .help = "Memory for rows."},
 *         ...
 *     };
 *
 * Sizes accept K, M, G, T (powers of 1,024). `--name VALUE` and `--name=VALUE`; flags take none;
 * lists take all words up to the next option; `--` ends the options. An option is given once. An
 * unknown option, a value out of bounds, a missing required option, a word too many are
 * INVALID_ARGUMENT naming the option, the value and what is possible (and the nearest known name
 * for a misspelt one). The parser handles --help and --version.
 *
 * Where a value comes from: command line, else environment (set and not empty), else default.
 */
#ifndef COMMON_OPTIONS_H
#define COMMON_OPTIONS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum psc_option_type {
    PSC_OPTION_FLAG,   /* bool; in the environment: 1, true, yes, on or 0, false, no, off */
    PSC_OPTION_U64,    /* uint64_t, whole number */
    PSC_OPTION_SIZE,   /* uint64_t, bytes with suffix */
    PSC_OPTION_DOUBLE, /* double, finite */
    PSC_OPTION_TEXT,   /* const char *, borrowed from argv or the environment */
    PSC_OPTION_LIST,   /* psc_option_list_t of texts, borrowed from argv */
} psc_option_type_t;

typedef struct psc_option_list {
    const char *const *items;
    size_t n;
} psc_option_list_t;

typedef struct psc_option {
    const char *name;     /* without dashes */
    const char *argument; /* name of the value in the help; NULL for a flag */
    psc_option_type_t type;
    size_t offset;             /* of the field in the options struct */
    double min, max;           /* of numbers and sizes, both allowed; 0 and 0: no bounds */
    const char *default_value; /* as text, parsed like a value; NULL: zero, or required */
    bool required;
    const char *environment;    /* variable read when the option is not given, or NULL; no lists */
    const char *const *choices; /* of a text: the only ones possible, ended by NULL; or NULL */
    const char *help;           /* one paragraph, plain text, without trailing newline */
} psc_option_t;

typedef struct psc_command {
    const char *name;        /* "embps-train skipgram" */
    const char *synopsis;    /* after the name: "--corpus FILE... --out FILE [options]" */
    const char *summary;     /* one line */
    const char *description; /* paragraphs, separated by blank lines */
    const psc_option_t *options;
    size_t n_options;
    const char *operands; /* name of positional words ("WORD..."), NULL: none allowed */
    size_t min_operands;  /* how many of them there must be */
    size_t max_operands;  /* how many there can be; 0: any number */
    const char *examples; /* lines, or NULL */
} psc_command_t;

typedef enum psc_parse_result {
    PSC_PARSE_RUN,  /* go on */
    PSC_PARSE_EXIT, /* --help or --version was printed: exit with 0 */
} psc_parse_result_t;

/*
 * Parses argv[1..argc-1] into the struct at values; every field that has an option is set.
 * operands_out (may be NULL when none are allowed) gets the positional words, which stand together.
 * given_out (may be NULL; one bool per option) tells which were on the command line or in the
 * environment. On PSC_PARSE_EXIT and on an error the values are unspecified. Borrows argv for as
 * long as values are used. Errors: INVALID_ARGUMENT.
 */
PSC_MUST_CHECK psc_status_t psc_options_parse(const psc_command_t *command, int argc,
                                              char *const argv[], void *values,
                                              psc_option_list_t *operands_out, bool *given_out,
                                              psc_parse_result_t *result_out, psc_error_t *error);

/* The help as a manual page of plain text: NAME, SYNOPSIS, DESCRIPTION, OPTIONS (with type, bounds,
 * default, environment), EXIT STATUS, EXAMPLES. */
void psc_options_print_help(const psc_command_t *command, FILE *stream);

/* "512M", "8388608" as bytes. Errors: INVALID_ARGUMENT. */
PSC_MUST_CHECK psc_status_t psc_size_parse(const char *text, uint64_t *bytes_out,
                                           psc_error_t *error);

#endif
