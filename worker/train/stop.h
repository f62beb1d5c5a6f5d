/*
 * The wish to stop: one flag that all threads of a program look at between batches.
 *
 * No signal handler: the program blocks those of psc_stop_signals and asks whether one is
 * waiting, so that nothing global is needed and no call is cut off half done. SIGUSR1, which asks
 * servers for a checkpoint, is ignored.
 */
#ifndef WORKER_TRAIN_STOP_H
#define WORKER_TRAIN_STOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct psw_stop {
    atomic_bool requested;
} psw_stop_t;

/* Blocks these signals for this thread and those it starts, and ignores SIGUSR1. Call before
 * threads start. */
void psw_stop_init(psw_stop_t *stop);

/* Takes a waiting signal, if there is one. Any thread. Cost: a system call. */
void psw_stop_poll(psw_stop_t *stop);

/* Waits at most timeout_us for a signal. */
void psw_stop_wait(psw_stop_t *stop, uint64_t timeout_us);

static inline bool psw_stop_requested(psw_stop_t *stop)
{
    return atomic_load_explicit(&stop->requested, memory_order_relaxed);
}

/* Lets all threads stop; also when one of them failed. Any thread. */
static inline void psw_stop_request(psw_stop_t *stop)
{
    atomic_store_explicit(&stop->requested, true, memory_order_relaxed);
}

#endif
