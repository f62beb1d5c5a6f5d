/* A thread that gives signs of life while the program computes. Internal to worker/. */
#ifndef WORKER_BEAT_H
#define WORKER_BEAT_H

#include "common/status.h"

#include <stdint.h>

/* Gives one sign of life; on the thread, at once after the start and then every interval. Must not
 * wait. */
typedef void (*psw_beat_fn)(void *context);

typedef struct psw_beat psw_beat_t;

/* context: borrowed until the stop. interval_us: at least 1. Errors: NO_MEMORY, INTERNAL (the
 * system gives no thread). Gives. */
PSC_MUST_CHECK psc_status_t psw_beat_start(psw_beat_fn beat, void *context, uint64_t interval_us,
                                           psw_beat_t **beat_out, psc_error_t *error);

/* Ends the thread: at once, but for a sign of life that it is giving. NULL is a no-op. */
void psw_beat_stop(psw_beat_t *beat);

#endif
