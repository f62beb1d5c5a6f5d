/*
 * A thread that calls a function now and then while the rest of the program does something else.
 *
 *     st = psc_ticker_start(give_sign_of_life, job, 500000, &ticker, error);
 *     ...
 *     psc_ticker_stop(ticker);
 */
#ifndef COMMON_TICKER_H
#define COMMON_TICKER_H

#include "common/status.h"

#include <stdint.h>

/* Called on the thread: at once after the start, and then after every interval. Should not wait. */
typedef void (*psc_tick_fn)(void *context);

typedef struct psc_ticker psc_ticker_t;

/* context: borrowed until the stop. interval_us: at least 1. Errors: NO_MEMORY, INTERNAL (the
 * system gives no thread). Gives. */
PSC_MUST_CHECK psc_status_t psc_ticker_start(psc_tick_fn tick, void *context, uint64_t interval_us,
                                             psc_ticker_t **ticker_out, psc_error_t *error);

/* Ends the thread: at once, but for a call that is under way. NULL is a no-op. */
void psc_ticker_stop(psc_ticker_t *ticker);

#endif
