/*
 * The table of initialisers: names to entries, and parameters checked once.
 *
 * A new initialiser is a file with one const ps_init_t, a line in init_entries.h and a line below.
 * Checks that concern one parameter are in its bounds; what concerns several is the entry's own
 * `check`. Threads: all is const.
 */
#include "ps/init/init.h"

#include "ps/init/init_entries.h"

#include <string.h>

static const ps_init_t *const table[] = {
    &ps_init_zeros,    &ps_init_uniform,          &ps_init_normal, &ps_init_word2vec,
    &ps_init_constant, &ps_init_truncated_normal, &ps_init_xavier,
};

const ps_init_t *ps_init_at(size_t i)
{
    return i < sizeof table / sizeof table[0] ? table[i] : NULL;
}

const ps_init_t *ps_init_find(const char *name)
{
    const ps_init_t *init;
    for (size_t i = 0; (init = ps_init_at(i)) != NULL; i++) {
        if (strcmp(init->name, name) == 0)
            return init;
    }
    return NULL;
}

psc_status_t ps_init_params(const ps_init_t *init, const double *values, size_t n,
                            float *params_out, psc_error_t *error)
{
    if (n > init->n_params)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "initialiser %s takes at most %zu parameters, got %zu", init->name,
                             init->n_params, n);
    float params[PS_INIT_PARAMS_MAX] = {0};
    for (size_t i = 0; i < init->n_params; i++) {
        const ps_init_param_t *param = &init->params[i];
        double value = i < n ? values[i] : param->default_value;
        if (!(value >= param->min && value <= param->max))
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "initialiser %s: %s is %.10g, must be between %.10g and %.10g",
                                 init->name, param->name, value, param->min, param->max);
        params[i] = (float)value;
    }
    if (init->check != NULL) {
        psc_status_t st = init->check(params, error);
        if (st != PSC_OK)
            return st;
    }
    memcpy(params_out, params, sizeof params);
    return PSC_OK;
}
