/*
 * A table: what was agreed when it was opened, checked once, and what follows from it.
 */
#ifndef PS_TABLE_SCHEMA_H
#define PS_TABLE_SCHEMA_H

#include "proto/message.h"
#include "ps/init/init.h"
#include "ps/optim/optim.h"

#define PS_TABLES_MAX 32767u
/* number | this: the companion of a table, whose rows are shared by rows not yet admitted. */
#define PS_TABLE_COMPANION 0x8000u

#define PS_ADMIT_AFTER_MAX 255u
#define PS_ADMIT_COUNTERS_DEFAULT 512u
#define PS_ADMIT_COUNTERS_MIN 16u
#define PS_ADMIT_COUNTERS_MAX 65536u
#define PS_EXPIRE_CLOCKS_MAX INT32_MAX /* a row's last clock is kept as 32 bits */

/* Plain data. The shard owns its tables; a table is never changed or dropped once it is open. */
typedef struct ps_table {
    uint16_t number; /* 1 to PS_TABLES_MAX */
    uint32_t epoch;
    char name[PSP_NAME_MAX + 1];
    uint32_t dim; /* D */
    const ps_init_t *init;
    float init_params[PS_INIT_PARAMS_MAX];
    const ps_optim_t *optim;
    double optim_params[PS_OPTIM_PARAMS_MAX];
    uint64_t seed;
    size_t state_floats; /* K: of the optimizer, which always computes with float32 */

    psp_precision_t precision;       /* of the weights in a row */
    psp_precision_t state_precision; /* of the moments, which stand first in the state */
    size_t weight_bytes;             /* of a row: D weights, rounded up to 4 */
    size_t state_bytes;              /* of a row: moments, rounded up to 4, and the other floats */

    bool per_row_steps;
    float l2, clip_value, clip_norm; /* 0: none */
    bool has_bounds;
    float weight_min, weight_max; /* 0 without bounds */
    bool has_pad;
    uint64_t pad_id; /* 0 without a pad row */

    uint32_t admit_after; /* 0: at once; else 2 to PS_ADMIT_AFTER_MAX */
    bool admit_shared;
    uint32_t admit_counters; /* of a slot, a power of two; 0 without admission */

    uint64_t expire_after; /* clocks; 0: never */
    uint64_t expire_rare_after;
    uint32_t expire_rare_below; /* 0 exactly where expire_rare_after is 0 */
    uint32_t expire_floor;      /* rows of a slot */
    bool expire_dry_run;

    size_t max_rows;          /* of one pull or push */
    bool replayed;            /* made, or met, when a log was replayed */
    uint64_t created;         /* rows that came into being; a waiting pull compares it */
    bool all_hot;             /* the last pull found all its rows in memory: the next may, too */
    struct ps_growth *growth; /* of admission and expiry; NULL: with neither (growth.h) */
    struct ps_watch_log *log; /* of what pushes reach; NULL: nobody watches (watch_log.h) */
} ps_table_t;

/*
 * Checks the options and fills the table from them: number, epoch and what stands below
 * max_rows excepted.
 * Options without effect (bounds without has_bounds, a sketch without admission) become 0.
 * Errors: INVALID_ARGUMENT, naming the option, its value and what is possible.
 */
PSC_MUST_CHECK psc_status_t ps_table_define(const psp_open_table_t *options, ps_table_t *table_out,
                                            psc_error_t *error);

/* The options from which ps_table_define makes the same table, with every default filled in. */
void ps_table_describe(const ps_table_t *table, psp_open_table_t *options_out);

/* Whether a table that exists is the wanted one. Errors: MISMATCH, naming the first option that
 * differs, and both its values. */
PSC_MUST_CHECK psc_status_t ps_table_compare(const ps_table_t *table, const ps_table_t *wanted,
                                             psc_error_t *error);

/* Bytes of a row behind its header: weights, then state. */
static inline size_t ps_table_row_bytes(const ps_table_t *table)
{
    return table->weight_bytes + table->state_bytes;
}

#endif
