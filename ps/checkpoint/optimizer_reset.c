/*
 * The text is for people: parameters have the names that the optimizer's table gives them, in any
 * order. Options of a table that are not the optimizer's own (l2, clipping, per_row_steps) stay.
 *
 * A row's count of updates is its number of steps where the client does not number them, so it
 * begins anew with the state. It also tells rows that are rare from others (expire_rare_below), and
 * there it stays; an optimizer that would take it for its steps is refused for such a table.
 */
#include "ps/checkpoint/optimizer_reset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BYTES ((size_t)64)

/* Bytes of text up to a comma or the end. */
static size_t word_length(const char *text)
{
    return strcspn(text, ",");
}

/* A word as a text of its own. false: it is longer than any that there is. */
static bool take_word(const char *text, size_t n, char word_out[WORD_BYTES])
{
    if (n >= WORD_BYTES)
        return false;
    memcpy(word_out, text, n);
    word_out[n] = '\0';
    return true;
}

static psc_status_t no_optimizer(const char *text, psc_error_t *error)
{
    char names[160] = "";
    size_t used = 0;
    const ps_optim_t *optim;
    for (size_t i = 0; (optim = ps_optim_at(i)) != NULL && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i != 0 ? ", " : "",
                                 optim->name);
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "--reset-optimizer %.80s: wants TABLE=OPTIMIZER; optimizers are %s", text,
                         names);
}

/* The optimizer, and what follows its name. NULL: no '=' with an optimizer behind it. */
static const char *find_optimizer(const char *text, ps_optimizer_reset_t *reset)
{
    char word[WORD_BYTES];
    for (const char *at = strchr(text, '='); at != NULL; at = strchr(at + 1, '=')) {
        const size_t n = word_length(at + 1), n_name = (size_t)(at - text);
        if (!take_word(at + 1, n, word) || (reset->optim = ps_optim_find(word)) == NULL)
            continue;
        if (n_name == 0 || n_name > PSP_NAME_MAX)
            return NULL;
        memcpy(reset->table, text, n_name);
        reset->table[n_name] = '\0';
        return at + 1 + n;
    }
    return NULL;
}

static psc_status_t unknown(const ps_optimizer_reset_t *reset, const char *text, psc_error_t *error)
{
    char names[160] = "";
    size_t used = 0;
    for (size_t i = 0; i < reset->optim->n_params && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s=NUMBER, ",
                                 reset->optim->params[i].name);
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "--reset-optimizer: %.60s is none of what %s takes: %sstate_precision=f32 "
                         "or bf16",
                         text, reset->optim->name, names);
}

/* One NAME=VALUE of n bytes. */
static psc_status_t take_setting(ps_optimizer_reset_t *reset, const char *text, size_t n,
                                 psc_error_t *error)
{
    char word[2 * WORD_BYTES], *end;
    if (n >= sizeof word)
        return unknown(reset, text, error);
    memcpy(word, text, n);
    word[n] = '\0';
    char *value = strchr(word, '=');
    if (value == NULL)
        return unknown(reset, word, error);
    *value++ = '\0';
    if (strcmp(word, "state_precision") == 0)
        return psp_precision_find(value, &reset->state_precision) &&
                       reset->state_precision <= PSP_BF16
                   ? PSC_OK
                   : unknown(reset, text, error);
    size_t i = 0;
    while (i < reset->optim->n_params && strcmp(reset->optim->params[i].name, word) != 0)
        i++;
    const double number = strtod(value, &end);
    if (i == reset->optim->n_params || end == value || *end != '\0' || !isfinite(number))
        return unknown(reset, text, error);
    reset->params[i] = number;
    return PSC_OK;
}

psc_status_t ps_optimizer_reset_parse(const char *text, ps_optimizer_reset_t *reset_out,
                                      psc_error_t *error)
{
    ps_optimizer_reset_t reset = {.state_precision = PSP_F32};
    double checked[PS_OPTIM_PARAMS_MAX];
    const char *at = find_optimizer(text, &reset);
    if (at == NULL)
        return no_optimizer(text, error);
    psc_status_t st = ps_optim_params(reset.optim, NULL, 0, reset.params, error);
    while (st == PSC_OK && *at == ',') {
        const size_t n = word_length(++at);
        st = take_setting(&reset, at, n, error);
        at += n;
    }
    if (st == PSC_OK)
        st = ps_optim_params(reset.optim, reset.params, reset.optim->n_params, checked, error);
    if (st == PSC_OK)
        *reset_out = reset;
    return st;
}

psc_status_t ps_optimizer_reset_define(const ps_optimizer_reset_t *reset, const ps_table_t *was,
                                       ps_table_t *table_out, bool *changed_out, psc_error_t *error)
{
    psp_open_table_t options;
    ps_table_t table;
    ps_table_describe(was, &options);
    (void)snprintf(options.optimizer, sizeof options.optimizer, "%s", reset->optim->name);
    options.n_optimizer_params = (uint32_t)reset->optim->n_params;
    for (uint32_t i = 0; i < options.n_optimizer_params; i++)
        options.optimizer_params[i] = reset->params[i];
    options.state_precision = reset->state_precision;
    psc_status_t st = ps_table_define(&options, &table, error);
    if (st != PSC_OK)
        return st;
    const bool changed = ps_table_compare(was, &table, NULL) != PSC_OK;
    if (changed && table.expire_rare_below != 0 && table.optim->uses_step)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s cannot get optimizer %s: its rows' counts of updates, "
                             "which expire_rare_below goes by, would have to begin anew as steps",
                             was->name, table.optim->name);
    table.number = was->number;
    table.epoch = was->epoch + (changed ? 1 : 0);
    *table_out = table;
    *changed_out = changed;
    return PSC_OK;
}
