/*
 * Servers and trainers block these signals and ask for them. Linux keeps a blocked signal also
 * where it is ignored, since its handler may be another one by the time it is let through, and
 * hands it to whoever asks: so one that is to be ignored must not be among them. Only SIGHUP is
 * looked at: a script that starts a program in the background has it ignore SIGINT, which such a
 * program is to hear all the same.
 */
#include "common/stop_signals.h"

#include <stddef.h>

void psc_stop_signals(sigset_t *set_out)
{
    struct sigaction now;
    (void)sigemptyset(set_out);
    (void)sigaddset(set_out, SIGINT);
    (void)sigaddset(set_out, SIGTERM);
    (void)sigaddset(set_out, SIGUSR2);
    if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        (void)sigaddset(set_out, SIGHUP);
}
