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

/* Before a block's loop: its columns have nothing to do with one another. */
#if defined(__clang__)
#define PS_EACH_COLUMN _Pragma("clang loop vectorize(assume_safety)")
#else
#define PS_EACH_COLUMN _Pragma("GCC ivdep")
#endif

/* weights, grad and up to two arrays of state, n columns of each; c: derived values of the step. */
typedef void ps_block_fn(float *weights, float *state0, float *state1, const float *grad, size_t n,
                         const float *c);

/* n_states and n are constants after inlining. */
PSC_INLINE void ps_columns_by(float *weights, float *state, size_t n_states, const float *grad,
                              size_t dim, const float *c, ps_block_fn *block, size_t n)
{
    float last[3][PSC_LANES];
    const size_t rest = dim % n;
    float *state1 = n_states > 1 ? state + dim : state;
    if (rest != 0) {
        memcpy(last[0], weights + dim - n, n * sizeof *weights);
        if (n_states > 0)
            memcpy(last[1], state + dim - n, n * sizeof *state);
        if (n_states > 1)
            memcpy(last[2], state1 + dim - n, n * sizeof *state);
    }
    for (size_t i = 0; i + n <= dim; i += n)
        block(weights + i, state + i, state1 + i, grad + i, n, c);
    if (rest != 0) {
        block(last[0], last[1], last[2], grad + dim - n, n, c);
        memcpy(weights + dim - n, last[0], n * sizeof *weights);
        if (n_states > 0)
            memcpy(state + dim - n, last[1], n * sizeof *state);
        if (n_states > 1)
            memcpy(state1 + dim - n, last[2], n * sizeof *state);
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

#endif
