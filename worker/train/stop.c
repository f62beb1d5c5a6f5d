/*
 * Signals as something to ask for. sigtimedwait() takes a pending signal without a handler; while
 * the two are blocked they wait, and a signal that comes before the first question is not lost.
 * Threads: the flag is atomic, everything else is a system call.
 */
#include "worker/train/stop.h"

#include "common/stop_signals.h"

#include <signal.h>
#include <time.h>

void psw_stop_init(psw_stop_t *stop)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t set;
    atomic_init(&stop->requested, false);
    (void)sigemptyset(&ignore.sa_mask);
    (void)sigaction(SIGUSR1, &ignore, NULL); /* mpirun passes it on: it is for the servers */
    psc_stop_signals(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void psw_stop_wait(psw_stop_t *stop, uint64_t timeout_us)
{
    sigset_t set;
    struct timespec timeout = {.tv_sec = (time_t)(timeout_us / 1000000),
                               .tv_nsec = (long)(timeout_us % 1000000) * 1000};
    psc_stop_signals(&set);
    if (sigtimedwait(&set, NULL, &timeout) > 0)
        psw_stop_request(stop);
}

void psw_stop_poll(psw_stop_t *stop)
{
    psw_stop_wait(stop, 0);
}
