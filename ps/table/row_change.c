/*
 * One row changed in place, or through scratch where its record does not hold float32.
 *
 * The optimizer's kernels know float32 alone. Weights or moments of 16 bits are decoded into the
 * shard's scratch and encoded back; what is float32 is changed where it lies. The random bits of
 * stochastic rounding are Philox blocks of (seed, table, id, the row's version before this change):
 * 16 bits a column, state field i being column dim + i, so that they are the same on any server and
 * never used twice. Norms are sums of squares in sixteen fixed lanes. When they overflow, columns
 * are first cut to finite floats and scaled by 2^-96, which keeps the direction; a norm below
 * 10^-19 underflows and clips nothing. Cost: of 16 bits at dim 64 about 0.1 us a row, most of it
 * the random bits. Threads: the owner's.
 */
#include "ps/table/row_change.h"

#include "common/rng.h"
#include "common/vectors.h"

#include <float.h>
#include <math.h>
#include <string.h>

bool ps_row_change_plain(const ps_table_t *table)
{
    return table->precision == PSP_F32 && table->state_precision == PSP_F32 && !table->has_bounds &&
           table->clip_value <= 0 && table->clip_norm <= 0 && table->l2 <= 0;
}

void ps_row_change_prepare(ps_row_change_t *change, const ps_table_t *table, psp_push_kind_t kind,
                           float learning_rate, uint64_t step, ps_row_scratch_t *scratch)
{
    const ps_optim_t *optim = table->optim;
    *change = (ps_row_change_t){
        .table = table,
        .kind = kind,
        .scratch = scratch,
        .weights = ps_precision_of(table->precision),
        .moments = ps_precision_of(table->state_precision),
        .step = {.learning_rate = learning_rate, .params = table->optim_params},
    };
    if (table->state_precision != PSP_F32)
        change->n_moments = optim->moment_floats(table->dim);
    if (table->has_bounds) {
        change->low = ps_precision_at_least(change->weights, table->weight_min);
        change->high = ps_precision_at_most(change->weights, table->weight_max);
    }
    change->step.step = table->per_row_steps ? 0 : step;
    change->own_steps = optim->uses_step && change->step.step == 0;
    if (optim->prepare != NULL)
        optim->prepare(&change->step);
}

static void clip_norm(float *grad, size_t dim, float longest)
{
    float norm = sqrtf(psc_vector_squared_norm(grad, dim));
    if (!(norm <= FLT_MAX)) {
        psc_vector_clamp(grad, -FLT_MAX, FLT_MAX, dim);
        psc_vector_scale(grad, 0x1p-96f, dim);
        norm = sqrtf(psc_vector_squared_norm(grad, dim));
        psc_vector_scale(grad, longest / norm, dim);
    } else if (norm > longest) {
        psc_vector_scale(grad, longest / norm, dim);
    }
}

/* The gradient that the optimizer gets: values, or a changed copy. */
static const float *shape_gradient(const ps_row_change_t *change, const float *weights,
                                   const float *values)
{
    const ps_table_t *table = change->table;
    if (table->clip_value <= 0 && table->clip_norm <= 0 && table->l2 <= 0)
        return values;
    size_t dim = table->dim;
    float *grad = change->scratch->grad;
    memcpy(grad, values, dim * sizeof *grad);
    if (table->clip_value > 0)
        psc_vector_clamp(grad, -table->clip_value, table->clip_value, dim);
    if (table->clip_norm > 0)
        clip_norm(grad, dim, table->clip_norm);
    if (table->l2 > 0)
        psc_vector_axpy(grad, table->l2, weights, dim);
    return grad;
}

/* Random bits for the columns first to last - 1; returns those of `first`. */
static const uint8_t *draw(const ps_row_change_t *change, const ps_row_header_t *row, size_t first,
                           size_t last)
{
    const ps_table_t *table = change->table;
    uint32_t block = (uint32_t)(first / 8);
    uint32_t n = (uint32_t)((last + 7) / 8) - block;
    psc_rng_row_blocks(table->seed, table->number, row->id, PSC_RNG_ROUND, row->version, block, n,
                       change->scratch->random);
    return (const uint8_t *)change->scratch->random + 2 * (first - (size_t)8 * block);
}

static void apply_gradient(ps_row_change_t *change, ps_row_header_t *row, const float *values)
{
    const ps_table_t *table = change->table;
    size_t dim = table->dim;
    size_t m = change->n_moments;
    uint8_t *stored = (uint8_t *)(row + 1);
    uint8_t *stored_state = stored + table->weight_bytes;
    float *weights = ps_row_floats(row);
    float *state = (float *)(void *)stored_state;
    bool halves = table->precision != PSP_F32;
    if (halves) {
        weights = change->scratch->weights;
        change->weights->decode(weights, stored, dim);
    }
    if (m != 0) {
        state = change->scratch->state;
        ps_row_read_state(table, stored_state, m, state);
    }
    ps_row_change_step(change, row->update_count);
    table->optim->update(weights, state, shape_gradient(change, weights, values), dim,
                         &change->step);
    if (table->has_bounds)
        psc_vector_clamp(weights, change->low, change->high, dim);
    if (!halves && m == 0)
        return;
    size_t first = halves ? 0 : dim;
    const uint8_t *random = draw(change, row, first, dim + m);
    if (halves)
        change->weights->encode_stochastic(stored, weights, random, dim);
    if (m != 0) {
        change->moments->encode_stochastic(stored_state, state, random + 2 * (dim - first), m);
        ps_row_write_sums(table, state, m, stored_state);
    }
}

static void apply_delta(ps_row_change_t *change, ps_row_header_t *row, const float *values)
{
    const ps_table_t *table = change->table;
    size_t dim = table->dim;
    bool halves = table->precision != PSP_F32;
    float *weights = halves ? change->scratch->weights : ps_row_floats(row);
    if (halves)
        change->weights->decode(weights, row + 1, dim);
    psc_vector_add(weights, values, dim);
    if (table->has_bounds)
        psc_vector_clamp(weights, change->low, change->high, dim);
    if (halves)
        change->weights->encode_stochastic(row + 1, weights, draw(change, row, 0, dim), dim);
}

static void assign(ps_row_change_t *change, ps_row_header_t *row, const float *values)
{
    const ps_table_t *table = change->table;
    size_t dim = table->dim;
    if (table->has_bounds) {
        memcpy(change->scratch->weights, values, dim * sizeof *values);
        values = change->scratch->weights;
        psc_vector_clamp(change->scratch->weights, change->low, change->high, dim);
    }
    change->weights->encode(row + 1, values, dim);
}

void ps_row_change_apply(ps_row_change_t *change, ps_row_header_t *row, const float *values)
{
    switch (change->kind) {
    case PSP_PUSH_GRADIENT:
        apply_gradient(change, row, values);
        break;
    case PSP_PUSH_DELTA:
        apply_delta(change, row, values);
        break;
    case PSP_PUSH_ASSIGN:
        assign(change, row, values);
        break;
    }
}
