/* A block of rows of a table, as it came. Internal to worker/. */
#ifndef WORKER_BLOCK_H
#define WORKER_BLOCK_H

#include "proto/message.h"

/* All zero: empty. Memory is its own, one piece. */
typedef struct psw_block {
    size_t n;
    uint32_t dim, state_floats;
    size_t next_size; /* 0: there is no further one */
    uint8_t next[PSP_CURSOR_MAX];
    uint64_t *ids;    /* [n] */
    float *rows;      /* [n, dim]; of a watch without rows: none */
    float *state;     /* [n, state_floats] */
    uint32_t *counts; /* [n, 2]: version, updates; NULL: none came */
} psw_block_t;

/* Copies a block out of its message, rows decoded. What block had is freed. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_block_take(psw_block_t *block, const psp_export_reply_t *from,
                                           psc_error_t *error);
/* Frees what it has. */
void psw_block_clear(psw_block_t *block);

#endif
