/*
 * Precisions of stored values: how a row of floats becomes bytes in a record, and floats again.
 *
 *     const ps_precision_t *precision = ps_precision_of(table->precision);
 *     precision->decode(weights, stored, dim);
 */
#ifndef PS_TABLE_PRECISION_H
#define PS_TABLE_PRECISION_H

#include "proto/message.h"

/* n values each; arrays may be unaligned and must not overlap. Same bits on every processor. */
typedef struct ps_precision {
    size_t bytes; /* of a value */
    void (*decode)(void *floats_out, const void *stored, size_t n);
    /* To the nearest, ties to even: values that are assigned, and initial ones. */
    void (*encode)(void *stored_out, const void *floats, size_t n);
    /* Stochastically: values that a gradient or a delta changed. random: 16 bits for each. */
    void (*encode_stochastic)(void *stored_out, const void *floats, const void *random, size_t n);
} ps_precision_t;

/* Static. */
const ps_precision_t *ps_precision_of(psp_precision_t precision);

/* The value of this precision next to a finite x, in [x, infinity) or else in (-infinity, x];
 * x itself when it is one, the largest finite one where there is none. */
float ps_precision_at_least(const ps_precision_t *precision, float x);
float ps_precision_at_most(const ps_precision_t *precision, float x);

#endif
