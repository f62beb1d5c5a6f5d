/*
 * The table of optimizers. An entry is a name, the state a row needs, its hyper-parameters with
 * bounds, pure functions and its source. Adding one touches its file and one line of optim.c.
 *
 *     ps_optim_step_t step = {.learning_rate = rate, .step = number, .params = params};
 *     if (optim->prepare != NULL)
 *         optim->prepare(&step);
 *     for each row of the push, duplicates summed:
 *         optim->update(weights, state, gradient, dim, &step);
 */
#ifndef PS_OPTIM_OPTIM_H
#define PS_OPTIM_OPTIM_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_OPTIM_PARAMS_MAX 16
#define PS_OPTIM_DERIVED_MAX 8

typedef struct ps_optim_param {
    const char *name;
    double default_value, min, max;
} ps_optim_param_t;

/* What the updates of one push have in common. Plain data; borrows params. */
typedef struct ps_optim_step {
    float learning_rate;
    uint64_t step;                       /* number of this step, from 1; 0 counts as 1 */
    const double *params;                /* [PS_OPTIM_PARAMS_MAX], of ps_optim_params */
    float derived[PS_OPTIM_DERIVED_MAX]; /* filled by prepare, read by update */
} ps_optim_step_t;

typedef struct ps_optim {
    const char *name;
    const char *formula;   /* one line, for help and docs */
    const char *source;    /* paper, equation */
    const char *untouched; /* one line: a row's state and decay while no push touches it */
    size_t n_params;
    const ps_optim_param_t *params;
    /* K: state floats of a row of D weights. */
    size_t (*state_floats)(size_t dim);
    /*
     * How many of them, from the first on, are running means that may be kept with 16 bits between
     * two updates (stochastically rounded). NULL: none.
     */
    size_t (*moment_floats)(size_t dim);
    /* state [K] of a new row. */
    void (*init_state)(float *restrict state, size_t dim, const double *params);
    /*
     * Fills step->derived from its other fields: once per push, or where uses_step is set and each
     * row has a number of its own, once per number. NULL: nothing to do. Pure; no libm.
     */
    void (*prepare)(ps_optim_step_t *step);
    bool uses_step; /* derived depends on step->step */
    /*
     * One step in place. weights [D], state [K], grad [D], float32 (aligned to 4 bytes or more),
     * none overlaps another. Pure: the bits of the result depend on nothing but the arguments, the
     * instruction set included. Any thread.
     */
    void (*update)(float *restrict weights, float *restrict state, const float *restrict grad,
                   size_t dim, const ps_optim_step_t *step);
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
                                            double *params_out, psc_error_t *error);

#endif
