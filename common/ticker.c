/*
 * A thread that calls a function now and then.
 *
 * It sleeps on a condition variable by the monotonic clock, so that the stop does not wait for the
 * interval. The lock is held for the flag alone, never while the function is called, so that the
 * function may take as long as it likes and take what locks it likes. Signals are left to the
 * program's other threads.
 *
 * Who uses it: a client over MPI for its signs of life (worker/connect.c), and a server for saying
 * who has not come while it waits in MPI (ps/main.c).
 */
#include "common/ticker.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

struct psc_ticker {
    psc_tick_fn tick;
    void *context;
    uint64_t interval_us;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake_up; /* with lock: stopping changed */
    bool stopping;          /* guarded by lock */
};

static void *run(void *context)
{
    psc_ticker_t *ticker = context;
    (void)pthread_mutex_lock(&ticker->lock);
    while (!ticker->stopping) {
        (void)pthread_mutex_unlock(&ticker->lock);
        ticker->tick(ticker->context);
        const struct timespec until = psc_clock_after(ticker->interval_us);
        (void)pthread_mutex_lock(&ticker->lock);
        int rc = 0;
        while (!ticker->stopping && rc == 0)
            rc = pthread_cond_timedwait(&ticker->wake_up, &ticker->lock, &until);
    }
    (void)pthread_mutex_unlock(&ticker->lock);
    return NULL;
}

static void ticker_free(psc_ticker_t *ticker)
{
    (void)pthread_cond_destroy(&ticker->wake_up);
    (void)pthread_mutex_destroy(&ticker->lock);
    psc_free(ticker);
}

psc_status_t psc_ticker_start(psc_tick_fn tick, void *context, uint64_t interval_us,
                              psc_ticker_t **ticker_out, psc_error_t *error)
{
    psc_ticker_t *made = psc_alloc_zeroed(1, sizeof *made);
    if (made == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a thread");
    made->tick = tick;
    made->context = context;
    made->interval_us = interval_us;
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&made->lock, NULL);
    (void)pthread_cond_init(&made->wake_up, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&made->thread, NULL, run, made);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        ticker_free(made);
        return psc_error_set(error, PSC_INTERNAL, "the system gives no thread: error %d", rc);
    }
    *ticker_out = made;
    return PSC_OK;
}

void psc_ticker_stop(psc_ticker_t *ticker)
{
    if (ticker == NULL)
        return;
    (void)pthread_mutex_lock(&ticker->lock);
    ticker->stopping = true;
    (void)pthread_cond_signal(&ticker->wake_up);
    (void)pthread_mutex_unlock(&ticker->lock);
    (void)pthread_join(ticker->thread, NULL);
    ticker_free(ticker);
}
