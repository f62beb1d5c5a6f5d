/*
 * Table options: names become entries of the tables of initialisers and optimizers, parameters
 * become floats with defaults filled in, so that two ways to write the same table are equal.
 *
 * Threads: none of its own; pure but for its outputs. Cost: once per table and worker.
 */
#include "ps/table/schema.h"

#include <inttypes.h>
#include <stdio.h>
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

psc_status_t ps_table_define(const psp_open_table_t *options, ps_table_t *table_out,
                             psc_error_t *error)
{
    char names[160];
    ps_table_t table = {.dim = options->dim, .seed = options->seed};
    if (options->name[0] == '\0')
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "a table needs a name of 1 to %u bytes",
                             PSP_NAME_MAX);
    if (options->dim == 0 || options->dim > PSP_DIM_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "table %.80s: dim is %" PRIu32 ", must be between 1 and %u",
                             options->name, options->dim, PSP_DIM_MAX);
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
    psc_status_t st = ps_init_params(table.init, options->init_params, options->n_init_params,
                                     table.init_params, error);
    if (st != PSC_OK)
        return st;
    st = ps_optim_params(table.optim, options->optimizer_params, options->n_optimizer_params,
                         table.optim_params, error);
    if (st != PSC_OK)
        return st;
    table.state_floats = table.optim->state_floats(table.dim);
    memcpy(table.name, options->name, sizeof table.name);
    *table_out = table;
    return PSC_OK;
}

static psc_status_t differs(const ps_table_t *table, const char *option, double exists,
                            double wanted, psc_error_t *error)
{
    return psc_error_set(error, PSC_MISMATCH,
                         "table %.80s exists with %s %.9g, but %.9g was asked for: use the same "
                         "options, or another name",
                         table->name, option, exists, wanted);
}

psc_status_t ps_table_compare(const ps_table_t *table, const ps_table_t *wanted, psc_error_t *error)
{
    if (table->dim != wanted->dim)
        return differs(table, "dim", table->dim, wanted->dim, error);
    if (table->init != wanted->init)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %.80s exists with initialiser %s, but %s was asked for",
                             table->name, table->init->name, wanted->init->name);
    if (table->optim != wanted->optim)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %.80s exists with optimizer %s, but %s was asked for",
                             table->name, table->optim->name, wanted->optim->name);
    for (size_t i = 0; i < table->init->n_params; i++) {
        if (table->init_params[i] != wanted->init_params[i])
            return differs(table, table->init->params[i].name, (double)table->init_params[i],
                           (double)wanted->init_params[i], error);
    }
    for (size_t i = 0; i < table->optim->n_params; i++) {
        if (table->optim_params[i] != wanted->optim_params[i])
            return differs(table, table->optim->params[i].name, table->optim_params[i],
                           wanted->optim_params[i], error);
    }
    if (table->seed != wanted->seed)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %.80s exists with seed %" PRIu64 ", but %" PRIu64
                             " was asked for",
                             table->name, table->seed, wanted->seed);
    return PSC_OK;
}
