/*
 * Another optimizer for a table of a checkpoint that a run goes on from: what was asked for, as
 * text, and the table that comes of it.
 *
 *     TABLE=OPTIMIZER[,PARAMETER=VALUE...][,state_precision=bf16]
 *
 * The state of the former optimizer is dropped: that of the new one begins in every row at its
 * initial value. Threads: none.
 */
#ifndef PS_CHECKPOINT_OPTIMIZER_RESET_H
#define PS_CHECKPOINT_OPTIMIZER_RESET_H

#include "ps/table/schema.h"

/* Plain data. */
typedef struct ps_optimizer_reset {
    char table[PSP_NAME_MAX + 1];
    const ps_optim_t *optim;
    double params[PS_OPTIM_PARAMS_MAX]; /* all of them, defaults filled in */
    psp_precision_t state_precision;    /* F32 where the text does not say */
} ps_optimizer_reset_t;

/*
 * Reads the text. A table's name may have any bytes: it ends at the first '=' that an optimizer
 * follows. Errors: INVALID_ARGUMENT, naming what is wrong and what is possible.
 */
PSC_MUST_CHECK psc_status_t ps_optimizer_reset_parse(const char *text,
                                                     ps_optimizer_reset_t *reset_out,
                                                     psc_error_t *error);

/*
 * The table `was` with this optimizer. *changed_out: it is another one than before; the table's
 * epoch is one more then, so that nobody's pushes that were meant for the former one are applied.
 * Errors: INVALID_ARGUMENT (the options do not fit together; the table's rows count their updates
 * for expire_rare_below, and the new optimizer needs that count for itself).
 */
PSC_MUST_CHECK psc_status_t ps_optimizer_reset_define(const ps_optimizer_reset_t *reset,
                                                      const ps_table_t *was, ps_table_t *table_out,
                                                      bool *changed_out, psc_error_t *error);

#endif
