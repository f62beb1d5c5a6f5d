/*
 * Whether another process of this machine lives, by what /proc says of it.
 *
 * A process is known by its number and the time at which it started, so that a number that is given
 * out again is not mistaken for it.
 */
#ifndef COMMON_PROCESS_STATE_H
#define COMMON_PROCESS_STATE_H

#include <stdint.h>

typedef struct psc_process_id {
    char host[64]; /* of the machine, as gethostname tells it; cut where it is longer */
    int32_t pid;
    uint64_t started; /* ticks since the machine's start; 0: not known */
} psc_process_id_t;

typedef enum psc_process_state {
    PSC_PROCESS_LIVES, /* or cannot be told */
    PSC_PROCESS_STOPPED,
    PSC_PROCESS_GONE,      /* or ended and not yet waited for by its parent */
    PSC_PROCESS_ELSEWHERE, /* of another machine: cannot be seen from here */
} psc_process_state_t;

/* This process. */
psc_process_id_t psc_process_self(void);

/* *signal_out: by which a process that is gone was ended, where that can be known; 0: not known, or
 * by none. Some microseconds. Any thread. */
psc_process_state_t psc_process_look(const psc_process_id_t *process, int *signal_out);

/* The parent of the process that leads this one's process group: of a rank of a job mpirun, or its
 * daemon, also where a shell is in between. 0: not known, as when the leader is gone. Any thread.
 */
int32_t psc_process_group_parent(void);

#endif
