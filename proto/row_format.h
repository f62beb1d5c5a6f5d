/*
 * Formats of rows on the wire: how a row of floats becomes bytes in a message, and floats again.
 *
 *     const psp_row_format_t *format = psp_row_format(pull->format);
 *     format->encode(rows + i * psp_row_bytes(pull->format, dim), floats, dim);
 *
 * A client chooses one for each table and direction; the server answers a pull in the format that
 * the pull asks for. Sizes of a row, and what a value v of a row with largest |v| of m loses:
 *
 *     f32    4 * dim       nothing
 *     bf16   2 * dim       |v| / 256 to the nearest, |v| / 128 stochastically
 *     f16    2 * dim       |v| / 2,048 and |v| / 1,024; beyond 65,504 all but that; 2^-25 and 2^-24
 *                          below 2^-14
 *     int8   4 + dim       m / 254 and m / 127: half a scale and a scale (common/int8_row.h)
 *
 * Pulled and assigned rows are rounded to the nearest. Gradients and deltas are rounded
 * stochastically: many of them are added up in a row, and so each is right on average, whatever the
 * format. Rounding to the nearest would lose the same part each time: of int8 all that is below
 * half a scale, so that columns with small gradients never learnt. (Error feedback, Seide et al.
 * 2014, "1-bit stochastic gradient descent", loses nothing either, but keeps a remainder as wide as
 * the row for every row that a worker ever pushed, without a bound, and those of a worker that ends
 * are lost. What is left to gain by it here is variance.) The random bits depend on worker, table,
 * id, column and how many pushes the worker made before, so they are the same for any number of
 * servers. They cost 3 cycles a value, more than all the rest.
 *
 * All is constant; any thread.
 */
#ifndef PROTO_ROW_FORMAT_H
#define PROTO_ROW_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* WireFormat of embps.proto. Never renumber. */
typedef enum psp_format {
    PSP_FORMAT_F32 = 0,
    PSP_FORMAT_BF16 = 1,
    PSP_FORMAT_F16 = 2,
    PSP_FORMAT_INT8 = 3,
} psp_format_t;
#define PSP_FORMATS 4u

#define PSP_FORMAT_NAMES "f32, bf16, f16, int8"

/* n values a row; rows and floats may be unaligned and must not overlap. Same bits on every
 * processor. */
typedef struct psp_row_format {
    const char *name;
    size_t value_bytes;
    size_t row_extra_bytes; /* of a row, beside its values */
    void (*encode)(void *row_out, const void *floats, size_t n);
    /* random: 16 bits for each value. */
    void (*encode_stochastic)(void *row_out, const void *floats, const void *random, size_t n);
    void (*decode)(void *floats_out, const void *row, size_t n);
    bool (*all_finite)(const void *row, size_t n); /* do all its values decode to finite floats? */
} psp_row_format_t;

/* Static. format must be one. */
const psp_row_format_t *psp_row_format(psp_format_t format);

/* The format of a name; false when there is none of it. */
bool psp_row_format_find(const char *name, psp_format_t *format_out);

/* Bytes of a row of dim values. */
static inline size_t psp_row_bytes(psp_format_t format, size_t dim)
{
    const psp_row_format_t *of = psp_row_format(format);
    return of->row_extra_bytes + of->value_bytes * dim;
}

#endif
