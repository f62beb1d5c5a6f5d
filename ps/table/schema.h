/*
 * A table: what was agreed when it was opened, checked once, and what follows from it.
 */
#ifndef PS_TABLE_SCHEMA_H
#define PS_TABLE_SCHEMA_H

#include "proto/message.h"
#include "ps/init/init.h"
#include "ps/optim/optim.h"

/* Plain data. The shard owns its tables; a table is never changed or dropped once it is open. */
typedef struct ps_table {
    uint16_t number; /* from 1 */
    uint32_t epoch;
    char name[PSP_NAME_MAX + 1];
    uint32_t dim; /* D */
    const ps_init_t *init;
    float init_params[PS_INIT_PARAMS_MAX];
    const ps_optim_t *optim;
    double optim_params[PS_OPTIM_PARAMS_MAX];
    uint64_t seed;
    size_t state_floats; /* K */
    size_t max_rows;     /* of one pull or push */
    uint64_t created;    /* rows that came into being; a waiting pull compares it */
} ps_table_t;

/*
 * Checks the options and fills the table from them: number, epoch, max_rows and created excepted.
 * Errors: INVALID_ARGUMENT, naming the option, its value and what is possible.
 */
PSC_MUST_CHECK psc_status_t ps_table_define(const psp_open_table_t *options, ps_table_t *table_out,
                                            psc_error_t *error);

/* Whether a table that exists is the wanted one. Errors: MISMATCH, naming the first option that
 * differs, and both its values. */
PSC_MUST_CHECK psc_status_t ps_table_compare(const ps_table_t *table, const ps_table_t *wanted,
                                             psc_error_t *error);

/* Bytes of a row behind its header: D weights, then K floats of state. */
static inline size_t ps_table_row_bytes(const ps_table_t *table)
{
    return ((size_t)table->dim + table->state_floats) * sizeof(float);
}

#endif
