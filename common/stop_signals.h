/*
 * The signals by which a program is asked to end in order.
 *
 *     sigset_t set;
 *     psc_stop_signals(&set);
 *     pthread_sigmask(SIG_BLOCK, &set, NULL);      before threads start; then sigwaitinfo
 */
#ifndef COMMON_STOP_SIGNALS_H
#define COMMON_STOP_SIGNALS_H

#include <signal.h>

/* What: SIGINT, SIGTERM, SIGUSR2, which mpirun passes on at once, and SIGHUP, which comes when a
 * terminal is closed, unless this process ignores that, as one under nohup does. The same set each
 * time as long as nobody changes what SIGHUP does. Any thread. */
void psc_stop_signals(sigset_t *set_out);

#endif
