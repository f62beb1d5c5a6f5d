/*
 * The client's own thread, for signs of life.
 *
 * It touches nothing of the client: core, driver and transport stay the calling thread's, without
 * locks. All that it does is to call a function, which over MPI sends an empty message to each
 * server (proto/mpi/mpi_beat.c). So a program that computes for long between two calls is not taken
 * for lost, and one that has stopped, or whose machine has gone, is.
 *
 * It sleeps on a condition variable by the monotonic clock, so that the stop does not wait for the
 * interval. Signals are left to the program's threads.
 */
#include "worker/beat.h"

#include "common/alloc.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

struct psw_beat {
    psw_beat_fn beat;
    void *context;
    uint64_t interval_us;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake_up; /* with lock: stopping changed */
    bool stopping;          /* guarded by lock */
};

static void add_us(struct timespec *time, uint64_t us)
{
    time->tv_sec += (time_t)(us / 1000000);
    time->tv_nsec += (long)(us % 1000000) * 1000;
    if (time->tv_nsec >= 1000000000L) {
        time->tv_sec++;
        time->tv_nsec -= 1000000000L;
    }
}

static void *run(void *context)
{
    psw_beat_t *beat = context;
    (void)pthread_mutex_lock(&beat->lock);
    while (!beat->stopping) {
        (void)pthread_mutex_unlock(&beat->lock);
        beat->beat(beat->context);
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        add_us(&until, beat->interval_us);
        (void)pthread_mutex_lock(&beat->lock);
        int rc = 0;
        while (!beat->stopping && rc == 0)
            rc = pthread_cond_timedwait(&beat->wake_up, &beat->lock, &until);
    }
    (void)pthread_mutex_unlock(&beat->lock);
    return NULL;
}

static void beat_free(psw_beat_t *beat)
{
    (void)pthread_cond_destroy(&beat->wake_up);
    (void)pthread_mutex_destroy(&beat->lock);
    psc_free(beat);
}

psc_status_t psw_beat_start(psw_beat_fn beat, void *context, uint64_t interval_us,
                            psw_beat_t **beat_out, psc_error_t *error)
{
    psw_beat_t *made = psc_alloc_zeroed(1, sizeof *made);
    if (made == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a thread");
    made->beat = beat;
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
        beat_free(made);
        return psc_error_set(error, PSC_INTERNAL, "no thread for signs of life: error %d", rc);
    }
    *beat_out = made;
    return PSC_OK;
}

void psw_beat_stop(psw_beat_t *beat)
{
    if (beat == NULL)
        return;
    (void)pthread_mutex_lock(&beat->lock);
    beat->stopping = true;
    (void)pthread_cond_signal(&beat->wake_up);
    (void)pthread_mutex_unlock(&beat->lock);
    (void)pthread_join(beat->thread, NULL);
    beat_free(beat);
}
