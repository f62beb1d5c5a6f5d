/*
 * Table options: names become entries of the tables of initialisers and optimizers, parameters
 * become floats with defaults filled in, so that two ways to write the same table are equal.
 *
 * Options that are single numbers stand in one table with their bounds: checking, copying and
 * comparing are loops over it, and a new one is a field in message.h and in schema.h and a line
 * below. What concerns several of them at once comes after.
 *
 * Threads: none of its own; pure but for its outputs. Cost: once per table and worker.
 */
#include "ps/table/schema.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "zeros, uniform, normal": the possible names, for a message. */
static void list_inits(char *text, size_t size)
{
    size_t used = 0;
    const ps_init_t *init;
    text[0] = '\0';
    for (size_t i = 0; (init = ps_init_at(i)) != NULL && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i != 0 ? ", " : "", init->name);
}

static void list_optims(char *text, size_t size)
{
    size_t used = 0;
    const ps_optim_t *optim;
    text[0] = '\0';
    for (size_t i = 0; (optim = ps_optim_at(i)) != NULL && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i != 0 ? ", " : "", optim->name);
}

typedef enum option_kind {
    OPTION_BOOL,      /* bool in both structs */
    OPTION_U32,       /* uint32_t in both */
    OPTION_U64,       /* uint64_t in both */
    OPTION_REAL,      /* double in the message, float in the table */
    OPTION_PRECISION, /* psp_precision_t in both */
} option_kind_t;

typedef struct option {
    const char *name;
    option_kind_t kind;
    size_t from, to; /* offsets in psp_open_table_t and in ps_table_t */
    double min, max;
} option_t;

/* Squares of such numbers are still floats. */
#define REAL_MAX 1e18

/* Of numbers that may be any. */
#define WHOLE_MAX ((double)UINT64_MAX)

#define OPTION(name, kind, min, max)                                                               \
    {                                                                                              \
#name, kind, offsetof(psp_open_table_t, name), offsetof(ps_table_t, name), min, max        \
    }

static const option_t option_table[] = {
    OPTION(dim, OPTION_U32, 1, PSP_DIM_MAX),
    OPTION(precision, OPTION_PRECISION, PSP_F32, PSP_F16),
    OPTION(state_precision, OPTION_PRECISION, PSP_F32, PSP_BF16),
    OPTION(per_row_steps, OPTION_BOOL, 0, 1),
    OPTION(l2, OPTION_REAL, 0, REAL_MAX),
    OPTION(clip_value, OPTION_REAL, 0, REAL_MAX),
    OPTION(clip_norm, OPTION_REAL, 0, REAL_MAX),
    OPTION(has_bounds, OPTION_BOOL, 0, 1),
    OPTION(weight_min, OPTION_REAL, -REAL_MAX, REAL_MAX),
    OPTION(weight_max, OPTION_REAL, -REAL_MAX, REAL_MAX),
    OPTION(has_pad, OPTION_BOOL, 0, 1),
    OPTION(pad_id, OPTION_U64, 0, WHOLE_MAX),
    OPTION(admit_after, OPTION_U32, 0, PS_ADMIT_AFTER_MAX),
    OPTION(admit_shared, OPTION_BOOL, 0, 1),
    OPTION(admit_counters, OPTION_U32, 0, PS_ADMIT_COUNTERS_MAX),
    OPTION(expire_after, OPTION_U64, 0, PS_EXPIRE_CLOCKS_MAX),
    OPTION(expire_rare_after, OPTION_U64, 0, PS_EXPIRE_CLOCKS_MAX),
    OPTION(expire_rare_below, OPTION_U32, 0, UINT32_MAX),
    OPTION(expire_floor, OPTION_U32, 0, UINT32_MAX),
    OPTION(expire_dry_run, OPTION_BOOL, 0, 1),
    OPTION(seed, OPTION_U64, 0, WHOLE_MAX),
};
#define N_OPTIONS (sizeof option_table / sizeof option_table[0])

/* The value of an option, whichever struct it came from. */
typedef struct value {
    uint64_t whole; /* all but REAL */
    double real;    /* REAL */
} value_t;

/* at: the field in psp_open_table_t, or with in_table in ps_table_t. */
static value_t read_value(option_kind_t kind, const void *at, bool in_table)
{
    value_t value = {0};
    switch (kind) {
    case OPTION_BOOL:
        value.whole = *(const bool *)at;
        break;
    case OPTION_U32:
        value.whole = *(const uint32_t *)at;
        break;
    case OPTION_U64:
        value.whole = *(const uint64_t *)at;
        break;
    case OPTION_REAL:
        value.real = in_table ? (double)*(const float *)at : *(const double *)at;
        break;
    case OPTION_PRECISION:
        value.whole = *(const psp_precision_t *)at;
        break;
    }
    return value;
}

/* at: the field in ps_table_t. */
static void write_value(option_kind_t kind, value_t value, void *at)
{
    switch (kind) {
    case OPTION_BOOL:
        *(bool *)at = value.whole != 0;
        break;
    case OPTION_U32:
        *(uint32_t *)at = (uint32_t)value.whole;
        break;
    case OPTION_U64:
        *(uint64_t *)at = value.whole;
        break;
    case OPTION_REAL:
        *(float *)at = (float)value.real;
        break;
    case OPTION_PRECISION:
        *(psp_precision_t *)at = (psp_precision_t)value.whole;
        break;
    }
}

#define VALUE_TEXT 32

/* The fewest digits that read back as the value: those that it was given with, if they were few. */
static void show_real(double value, char text[VALUE_TEXT])
{
    const bool single = fabs(value) <= (double)FLT_MAX && (double)(float)value == value;
    for (int digits = 1; digits <= DBL_DECIMAL_DIG; digits++) {
        (void)snprintf(text, VALUE_TEXT, "%.*g", digits, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            return;
    }
}

static void show_value(option_kind_t kind, value_t value, char text[VALUE_TEXT])
{
    if (kind == OPTION_BOOL)
        (void)snprintf(text, VALUE_TEXT, "%s", value.whole != 0 ? "true" : "false");
    else if (kind == OPTION_REAL)
        show_real(value.real, text);
    else if (kind == OPTION_PRECISION)
        (void)snprintf(text, VALUE_TEXT, "%s", psp_precision_name((psp_precision_t)value.whole));
    else
        (void)snprintf(text, VALUE_TEXT, "%" PRIu64, value.whole);
}

static psc_status_t check_value(const psp_open_table_t *options, const option_t *option,
                                value_t value, psc_error_t *error)
{
    char text[VALUE_TEXT];
    show_value(option->kind, value, text);
    double number = option->kind == OPTION_REAL ? value.real : (double)value.whole;
    if (!(number >= option->min && number <= option->max)) {
        if (option->kind == OPTION_PRECISION)
            return psc_error_set(
                error, PSC_INVALID_ARGUMENT, "table %.80s: %s is %s; there are: %s", options->name,
                option->name, text, option->max < PSP_F16 ? "f32, bf16" : "f32, bf16, f16");
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s: %s is %s, must be between %.10g and %.10g",
                             options->name, option->name, text, option->min, option->max);
    }
    if (option->kind == OPTION_REAL && value.real != 0 && fabs(value.real) < (double)FLT_MIN)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s: %s is %s, which no float32 holds: use 0 for none",
                             options->name, option->name, text);
    return PSC_OK;
}

static psc_status_t take_options(const psp_open_table_t *options, ps_table_t *table,
                                 psc_error_t *error)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option_t *option = &option_table[i];
        value_t value = read_value(option->kind, (const char *)options + option->from, false);
        psc_status_t st = check_value(options, option, value, error);
        if (st != PSC_OK)
            return st;
        write_value(option->kind, value, (char *)table + option->to);
    }
    return PSC_OK;
}

/* What concerns several options; those without effect become 0. */
static psc_status_t settle_options(const psp_open_table_t *options, ps_table_t *table,
                                   psc_error_t *error)
{
    if (!table->has_bounds)
        table->weight_min = table->weight_max = 0;
    if (table->weight_min > table->weight_max)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s: weight_min %.9g is above weight_max %.9g", options->name,
                             (double)table->weight_min, (double)table->weight_max);
    if (!table->has_pad)
        table->pad_id = 0;
    uint32_t counters = table->admit_counters;
    if (counters != 0 && (counters < PS_ADMIT_COUNTERS_MIN || (counters & (counters - 1)) != 0))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s: admit_counters is %" PRIu32
                             ", must be a power of two between %u and %u, or 0 for %u",
                             options->name, counters, PS_ADMIT_COUNTERS_MIN, PS_ADMIT_COUNTERS_MAX,
                             PS_ADMIT_COUNTERS_DEFAULT);
    if (table->admit_after <= 1) {
        table->admit_after = table->admit_counters = 0;
        table->admit_shared = false;
    } else if (counters == 0) {
        table->admit_counters = PS_ADMIT_COUNTERS_DEFAULT;
    }
    if ((table->expire_rare_after == 0) != (table->expire_rare_below == 0))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s: expire_rare_after is %" PRIu64
                             " and expire_rare_below is %" PRIu32 ": both are needed, or neither",
                             options->name, table->expire_rare_after, table->expire_rare_below);
    if (table->expire_after == 0 && table->expire_rare_after == 0) {
        table->expire_floor = 0;
        table->expire_dry_run = false;
    }
    return PSC_OK;
}

/* The smallest multiple of 4 from n. */
static size_t whole_words(size_t n)
{
    return (n + 3) / 4 * 4;
}

/* Sizes of a row's parts. */
static psc_status_t lay_out(const psp_open_table_t *options, ps_table_t *table, psc_error_t *error)
{
    size_t dim = table->dim;
    table->state_floats = table->optim->state_floats(dim);
    table->weight_bytes =
        table->precision == PSP_F32 ? dim * sizeof(float) : whole_words(dim * sizeof(uint16_t));
    table->state_bytes = table->state_floats * sizeof(float);
    if (table->state_precision == PSP_F32)
        return PSC_OK;
    size_t moments = table->optim->moment_floats != NULL ? table->optim->moment_floats(dim) : 0;
    if (moments == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s: state_precision is %s, but optimizer %s has no moments, "
                             "only sums, which need f32",
                             options->name, psp_precision_name(table->state_precision),
                             table->optim->name);
    table->state_bytes =
        whole_words(moments * sizeof(uint16_t)) + (table->state_floats - moments) * sizeof(float);
    return PSC_OK;
}

psc_status_t ps_table_define(const psp_open_table_t *options, ps_table_t *table_out,
                             psc_error_t *error)
{
    char names[160];
    ps_table_t table = {0};
    if (options->name[0] == '\0')
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a table needs a name of 1 to %u bytes",
                             PSP_NAME_MAX);
    psc_status_t st = take_options(options, &table, error);
    if (st == PSC_OK)
        st = settle_options(options, &table, error);
    if (st != PSC_OK)
        return st;
    table.init = ps_init_find(options->init);
    if (table.init == NULL) {
        list_inits(names, sizeof names);
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s: there is no initialiser \"%.60s\"; there are: %s",
                             options->name, options->init, names);
    }
    table.optim = ps_optim_find(options->optimizer);
    if (table.optim == NULL) {
        list_optims(names, sizeof names);
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s: there is no optimizer \"%.60s\"; there are: %s",
                             options->name, options->optimizer, names);
    }
    st = ps_init_params(table.init, options->init_params, options->n_init_params, table.init_params,
                        error);
    if (st == PSC_OK)
        st = ps_optim_params(table.optim, options->optimizer_params, options->n_optimizer_params,
                             table.optim_params, error);
    if (st == PSC_OK)
        st = lay_out(options, &table, error);
    if (st != PSC_OK)
        return st;
    memcpy(table.name, options->name, sizeof table.name);
    *table_out = table;
    return PSC_OK;
}

void ps_table_describe(const ps_table_t *table, psp_open_table_t *options_out)
{
    psp_open_table_t *to = options_out;
    *to = (psp_open_table_t){.table = table->number,
                             .n_init_params = (uint32_t)table->init->n_params,
                             .n_optimizer_params = (uint32_t)table->optim->n_params};
    memcpy(to->name, table->name, sizeof to->name);
    (void)snprintf(to->init, sizeof to->init, "%s", table->init->name);
    (void)snprintf(to->optimizer, sizeof to->optimizer, "%s", table->optim->name);
    for (uint32_t i = 0; i < to->n_init_params; i++)
        to->init_params[i] = (double)table->init_params[i];
    for (uint32_t i = 0; i < to->n_optimizer_params; i++)
        to->optimizer_params[i] = table->optim_params[i];
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option_t *option = &option_table[i];
        const value_t value = read_value(option->kind, (const char *)table + option->to, true);
        if (option->kind == OPTION_REAL)
            *(double *)(void *)((char *)to + option->from) = value.real;
        else
            write_value(option->kind, value, (char *)to + option->from);
    }
}

static psc_status_t differs(const ps_table_t *table, const char *option, const char *exists,
                            const char *wanted, psc_error_t *error)
{
    return psc_error_set(error, PSC_MISMATCH,
                         "table %.80s exists with %s %s, but %s was asked for: use the same "
                         "options, or another name",
                         table->name, option, exists, wanted);
}

/* Parameters of an initialiser or optimizer, whose name whose is. */
static psc_status_t differs_in_number(const ps_table_t *table, const char *whose,
                                      const char *parameter, double exists, double wanted,
                                      psc_error_t *error)
{
    char texts[2][VALUE_TEXT], option[96];
    (void)snprintf(option, sizeof option, "%s of %s", parameter, whose);
    show_value(OPTION_REAL, (value_t){.real = exists}, texts[0]);
    show_value(OPTION_REAL, (value_t){.real = wanted}, texts[1]);
    return differs(table, option, texts[0], texts[1], error);
}

#define PAIR_TEXT (2 * VALUE_TEXT + 8)

static void show_bounds(const ps_table_t *table, char text[PAIR_TEXT])
{
    char low[VALUE_TEXT], high[VALUE_TEXT];
    show_real((double)table->weight_min, low);
    show_real((double)table->weight_max, high);
    if (table->has_bounds)
        (void)snprintf(text, PAIR_TEXT, "%s to %s", low, high);
    else
        (void)snprintf(text, PAIR_TEXT, "none");
}

static void show_pad(const ps_table_t *table, char text[PAIR_TEXT])
{
    if (table->has_pad)
        (void)snprintf(text, PAIR_TEXT, "%" PRIu64, table->pad_id);
    else
        (void)snprintf(text, PAIR_TEXT, "none");
}

/* Options of which a flag tells whether they are there: they have one name for those who set them.
 */
static psc_status_t compare_optional(const ps_table_t *table, const ps_table_t *wanted,
                                     psc_error_t *error)
{
    char texts[2][PAIR_TEXT];
    if (table->has_bounds != wanted->has_bounds || table->weight_min != wanted->weight_min ||
        table->weight_max != wanted->weight_max) {
        show_bounds(table, texts[0]);
        show_bounds(wanted, texts[1]);
        return differs(table, "bounds", texts[0], texts[1], error);
    }
    if (table->has_pad != wanted->has_pad || table->pad_id != wanted->pad_id) {
        show_pad(table, texts[0]);
        show_pad(wanted, texts[1]);
        return differs(table, "pad_id", texts[0], texts[1], error);
    }
    return PSC_OK;
}

static psc_status_t compare_options(const ps_table_t *table, const ps_table_t *wanted,
                                    psc_error_t *error)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option_t *option = &option_table[i];
        value_t exists = read_value(option->kind, (const char *)table + option->to, true);
        value_t asked = read_value(option->kind, (const char *)wanted + option->to, true);
        if (exists.whole != asked.whole || exists.real != asked.real) {
            char texts[2][VALUE_TEXT];
            show_value(option->kind, exists, texts[0]);
            show_value(option->kind, asked, texts[1]);
            return differs(table, option->name, texts[0], texts[1], error);
        }
    }
    return PSC_OK;
}

psc_status_t ps_table_compare(const ps_table_t *table, const ps_table_t *wanted, psc_error_t *error)
{
    if (table->init != wanted->init)
        return differs(table, "initialiser", table->init->name, wanted->init->name, error);
    if (table->optim != wanted->optim)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %.80s exists with optimizer %s, but %s was asked for: use the "
                             "same options, or another name; servers that go on from a checkpoint "
                             "change it with --reset-optimizer",
                             table->name, table->optim->name, wanted->optim->name);
    for (size_t i = 0; i < table->init->n_params; i++) {
        if (table->init_params[i] != wanted->init_params[i])
            return differs_in_number(table, table->init->name, table->init->params[i].name,
                                     (double)table->init_params[i], (double)wanted->init_params[i],
                                     error);
    }
    for (size_t i = 0; i < table->optim->n_params; i++) {
        if (table->optim_params[i] != wanted->optim_params[i])
            return differs_in_number(table, table->optim->name, table->optim->params[i].name,
                                     table->optim_params[i], wanted->optim_params[i], error);
    }
    psc_status_t st = compare_optional(table, wanted, error);
    return st == PSC_OK ? compare_options(table, wanted, error) : st;
}
