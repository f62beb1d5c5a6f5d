/*
 * Blocks that came from servers: one allocation each, ids first, so that all parts are aligned.
 *
 * A message is at most 1 MiB and clients ask for float32, so a block takes about as much here.
 * Threads: the client's.
 */
#include "worker/block.h"

#include "common/alloc.h"

psc_status_t psw_block_take(psw_block_t *block, const psp_export_reply_t *from, psc_error_t *error)
{
    const size_t n = from->n, n_floats = from->rows != NULL ? n * from->dim : 0;
    const size_t n_state = n * from->state_floats;
    const size_t n_counts = from->counts != NULL ? 2 * n : 0;
    psw_block_clear(block);
    *block = (psw_block_t){.n = n, .dim = from->dim, .state_floats = from->state_floats};
    block->next_size = from->next_size;
    memcpy(block->next, from->next, from->next_size);
    if (n == 0)
        return PSC_OK;
    block->ids =
        psc_alloc_aligned(n * sizeof *block->ids + n_floats * sizeof *block->rows +
                          n_state * sizeof *block->state + n_counts * sizeof *block->counts);
    if (block->ids == NULL) {
        *block = (psw_block_t){0};
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a block of %zu rows", n);
    }
    block->rows = (float *)(void *)(block->ids + n);
    block->state = block->rows + n_floats;
    memcpy(block->ids, from->ids, n * sizeof *block->ids);
    memcpy(block->state, from->state, n_state * sizeof *block->state);
    if (n_counts != 0) {
        block->counts = (uint32_t *)(void *)(block->state + n_state);
        memcpy(block->counts, from->counts, n_counts * sizeof *block->counts);
    }
    const psp_row_format_t *coder = psp_row_format(from->format);
    const size_t row_bytes = psp_row_bytes(from->format, from->dim);
    for (size_t i = 0; n_floats != 0 && i < n; i++)
        coder->decode(block->rows + i * from->dim, from->rows + i * row_bytes, from->dim);
    return PSC_OK;
}

void psw_block_clear(psw_block_t *block)
{
    psc_free(block->ids);
    *block = (psw_block_t){0};
}
