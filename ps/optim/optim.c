/*
 * The table of optimizers: names to entries, and hyper-parameters checked once.
 *
 * A new optimizer is a file with one const ps_optim_t, a line in optim_entries.h and a line below;
 * the tests run over the table, so they cover it by its being there. Parameters stay double, as
 * they came over the wire: 1 - 0.999 taken from a float would be off by 1e-5 of itself.
 * Threads: all is const.
 */
#include "ps/optim/optim.h"

#include "ps/optim/optim_entries.h"

#include <string.h>

static const ps_optim_t *const table[] = {
    &ps_optim_sgd,
    &ps_optim_momentum,
    &ps_optim_nesterov,
    &ps_optim_adagrad,
    &ps_optim_rowwise_adagrad,
    &ps_optim_rmsprop,
    &ps_optim_adam,
    &ps_optim_partial_rowwise_adam,
    &ps_optim_adamw,
    &ps_optim_ftrl,
};

const ps_optim_t *ps_optim_at(size_t i)
{
    return i < sizeof table / sizeof table[0] ? table[i] : NULL;
}

const ps_optim_t *ps_optim_find(const char *name)
{
    const ps_optim_t *optim;
    for (size_t i = 0; (optim = ps_optim_at(i)) != NULL; i++) {
        if (strcmp(optim->name, name) == 0)
            return optim;
    }
    return NULL;
}

psc_status_t ps_optim_params(const ps_optim_t *optim, const double *values, size_t n,
                             double *params_out, psc_error_t *error)
{
    if (n > optim->n_params)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "optimizer %s takes at most %zu parameters, got %zu", optim->name,
                             optim->n_params, n);
    for (size_t i = 0; i < n; i++) {
        const ps_optim_param_t *param = &optim->params[i];
        if (!(values[i] >= param->min && values[i] <= param->max))
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "optimizer %s: %s is %.10g, must be between %.10g and %.10g",
                                 optim->name, param->name, values[i], param->min, param->max);
    }
    for (size_t i = 0; i < PS_OPTIM_PARAMS_MAX; i++) {
        params_out[i] = 0;
        if (i < optim->n_params)
            params_out[i] = i < n ? values[i] : optim->params[i].default_value;
    }
    return PSC_OK;
}
