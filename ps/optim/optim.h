/*
 * The table of optimizers. An entry is a name, the state a row needs, its hyper-parameters with
 * bounds, a pure kernel and its source. Adding one touches its file and one line of optim.c.
 */
#ifndef PS_OPTIM_OPTIM_H
#define PS_OPTIM_OPTIM_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define PS_OPTIM_PARAMS_MAX 16

typedef struct ps_optim_param {
    const char *name;
    double default_value, min, max;
} ps_optim_param_t;

typedef struct ps_optim {
    const char *name;
    const char *formula; /* one line, for help and docs */
    const char *source;  /* paper, equation */
    size_t n_params;
    const ps_optim_param_t *params;
    /* K: state floats of a row of D weights. */
    size_t (*state_floats)(size_t dim);
    /* state [K] of a new row. */
    void (*init_state)(float *restrict state, size_t dim, const float *params);
    /*
     * One step in place. weights [D], state [K], grad [D] (may be unaligned to more than 4 bytes).
     * step: updates of this row before this one. Pure.
     */
    void (*update)(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, float learning_rate, const float *params, uint32_t step);
} ps_optim_t;

/* NULL when there is none of this name. Static. */
const ps_optim_t *ps_optim_find(const char *name);
/* The i-th entry, NULL past the last. */
const ps_optim_t *ps_optim_at(size_t i);

/*
 * Fills params_out [PS_OPTIM_PARAMS_MAX] from the n values given, defaults for the rest.
 * Errors: INVALID_ARGUMENT naming the parameter, its value and bounds.
 */
PSC_MUST_CHECK psc_status_t ps_optim_params(const ps_optim_t *optim, const double *values, size_t n,
                                            float *params_out, psc_error_t *error);

#endif
