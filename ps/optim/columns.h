/*
 * How a kernel that treats every column alike walks over a row; for the entries alone.
 *
 * A kernel is a block: a loop over n columns whose count becomes a constant when it is inlined into
 * ps_columns, so that the compiler turns it into vectors of whatever width there is. Sixteen
 * columns are one block. What is left at the end of a row is covered by one more block over its
 * last sixteen columns: it starts from a copy that was taken before the first block changed any of
 * them, so the columns that both cover get the same bits twice. Rows of less than sixteen are done
 * the same way with blocks of four, and of less than four one by one.
 */
#ifndef PS_OPTIM_COLUMNS_H
#define PS_OPTIM_COLUMNS_H

#include "common/lanes.h"

/* Before a block's loop: its columns have nothing to do with one another. clang finds out by
 * itself, and would warn where sanitizers keep it from making vectors. */
#if defined(__clang__)
#define PS_EACH_COLUMN
#else
#define PS_EACH_COLUMN _Pragma("GCC ivdep")
#endif

/* weights, grad and up to two arrays of state, n columns of each; c: derived values of the step. */
typedef void ps_block_fn(float *weights, float *state0, float *state1, const float *grad, size_t n,
                         const float *c);

/* By registers as wide as those of the block that reads or wrote it: narrower ones would stall. */
PSC_INLINE void ps_copy_columns(float *to, const float *from, size_t n)
{
    if (n == PSC_LANES) {
        psc_v8_t low = PSC_LOAD8(from);
        psc_v8_t high = PSC_LOAD8(from + 8);
        PSC_STORE8(to, low);
        PSC_STORE8(to + 8, high);
    } else {
        memcpy(to, from, n * sizeof *to);
    }
}

/* n_states and n are constants after inlining. */
PSC_INLINE void ps_columns_by(float *weights, float *state, size_t n_states, const float *grad,
                              size_t dim, const float *c, ps_block_fn *block, size_t n)
{
    float last[3][PSC_LANES];
    const size_t rest = dim % n;
    float *state1 = n_states > 1 ? state + dim : state;
    if (rest != 0) {
        ps_copy_columns(last[0], weights + dim - n, n);
        if (n_states > 0)
            ps_copy_columns(last[1], state + dim - n, n);
        if (n_states > 1)
            ps_copy_columns(last[2], state1 + dim - n, n);
    }
    for (size_t i = 0; i + n <= dim; i += n)
        block(weights + i, state + i, state1 + i, grad + i, n, c);
    if (rest != 0) {
        block(last[0], last[1], last[2], grad + dim - n, n, c);
        ps_copy_columns(weights + dim - n, last[0], n);
        if (n_states > 0)
            ps_copy_columns(state + dim - n, last[1], n);
        if (n_states > 1)
            ps_copy_columns(state1 + dim - n, last[2], n);
    }
}

/*
 * The block over all columns of a row. state: n_states arrays of dim floats one after the other.
 * derived: of the step; copied, so that it stays in registers.
 */
PSC_INLINE void ps_columns(float *weights, float *state, size_t n_states, const float *grad,
                           size_t dim, const float *derived, ps_block_fn *block)
{
    float c[8];
    memcpy(c, derived, sizeof c);
    if (dim >= PSC_LANES)
        ps_columns_by(weights, state, n_states, grad, dim, c, block, PSC_LANES);
    else if (dim >= 4)
        ps_columns_by(weights, state, n_states, grad, dim, c, block, 4);
    else
        ps_columns_by(weights, state, n_states, grad, dim, c, block, 1);
}

/*
 * Sum of grad[i] * grad[i], with the bits of psc_vector_squared_norm, inlined. The end of a row of
 * sixteen columns or more is read as its last sixteen with zeros behind, from where it begins.
 */
PSC_INLINE float ps_squared_norm(const float *grad, size_t dim)
{
    psc_v8_t low = PSC_SPLAT8(0.0f);
    psc_v8_t high = PSC_SPLAT8(0.0f);
    const size_t rest = dim % PSC_LANES;
    size_t i = 0;
    for (; i + PSC_LANES <= dim; i += PSC_LANES) {
        psc_v8_t a = PSC_LOAD8(grad + i);
        psc_v8_t b = PSC_LOAD8(grad + i + 8);
        low += a * a;
        high += b * b;
    }
    if (rest != 0) {
        float end[2 * PSC_LANES] = {0};
        const float *from = end;
        if (dim >= PSC_LANES) {
            ps_copy_columns(end, grad + dim - PSC_LANES, PSC_LANES);
            from = end + PSC_LANES - rest;
        } else {
            for (size_t k = 0; k < rest; k++)
                end[k] = grad[k];
        }
        psc_v8_t a = PSC_LOAD8(from);
        psc_v8_t b = PSC_LOAD8(from + 8);
        low += a * a;
        high += b * b;
    }
    return psc_fold16(&low, &high);
}

#endif
