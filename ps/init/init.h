/*
 * The table of initialisers. A row's initial value is a pure function of (seed, table, id, column);
 * no libm, so the bits are the same on every machine.
 */
#ifndef PS_INIT_INIT_H
#define PS_INIT_INIT_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

#define PS_INIT_PARAMS_MAX 16

typedef struct ps_init_param {
    const char *name;
    double default_value, min, max;
} ps_init_param_t;

typedef struct ps_init {
    const char *name; /* "zeros", "uniform", "normal", "word2vec", "constant", "truncated_normal",
                         "xavier" */
    const char *formula;
    const char *source;
    size_t n_params;
    const ps_init_param_t *params;
    /* What the bounds do not say, e.g. low <= high; NULL: nothing. Errors: INVALID_ARGUMENT. */
    psc_status_t (*check)(const float *params, psc_error_t *error);
    /* row [D]. Pure. */
    void (*fill)(float *row, size_t dim, uint64_t seed, uint32_t table, uint64_t id,
                 const float *params);
} ps_init_t;

const ps_init_t *ps_init_find(const char *name);
const ps_init_t *ps_init_at(size_t i);
/* As ps_optim_params. */
PSC_MUST_CHECK psc_status_t ps_init_params(const ps_init_t *init, const double *values, size_t n,
                                           float *params_out, psc_error_t *error);

#endif
