/*
 * A job of servers in a simulation: each is a process that does what ps/main.c does with the
 * product's own server (ps/server.h), over simulated transports and files.
 */
#ifndef TESTS_SIM_SIM_SERVERS_H
#define TESTS_SIM_SIM_SERVERS_H

#include "ps/store/cold.h"
#include "tests/sim/sim_net.h"

/* How a job is started. */
typedef struct sim_job_options {
    const char *folder; /* scratch: checkpoints/ and data/ are below it */
    uint32_t n_servers;
    ps_durability_t durability;
    uint64_t boot; /* another one after a power cut */
    bool safe;     /* no power cut between */
    uint64_t keep;
    uint64_t every_us; /* 0: never */
    uint64_t lease_us; /* 0: for ever */
    uint64_t disk_us;  /* as in sim_process_t, as the next one is */
    uint32_t disk_faults;
    ps_cold_faults_t cold_faults;
} sim_job_options_t;

typedef enum sim_job_state {
    SIM_JOB_NONE,
    SIM_JOB_STARTING,
    SIM_JOB_SERVING,
    SIM_JOB_FAILED, /* one of its servers has: the others are to be killed */
    SIM_JOB_ENDED,  /* all have ended, well or not: sim_job_result */
} sim_job_state_t;

/* There is one job at a time. */
void sim_job_start(const sim_job_options_t *options);
sim_job_state_t sim_job_state(void);
/* How it ended: OK, or the first error (error_out). SIM_JOB_ENDED only. */
psc_status_t sim_job_result(psc_error_t *error_out);
/* Whether it was about to start, and did not. */
bool sim_job_never_served(void);
uint32_t sim_job_servers(void);
/* Which start it is, from 1. */
uint32_t sim_job_number(void);

/* kill -9 of all that are left. Outside of tasks. */
void sim_job_kill(void);
/* kill -9 of one: the others know of it when they are killed. Outside of tasks. */
void sim_job_kill_one(uint32_t rank);
/* SIGTERM, SIGUSR1 and SIGSTOP of one; nothing when it does not serve. */
void sim_job_stop(uint32_t rank);
void sim_job_ask(uint32_t rank, bool passed_on);
void sim_job_pause(uint32_t rank, uint64_t until_us);
/* It is killed after so many changes of files. */
void sim_job_kill_at_file(uint32_t rank, uint64_t n);
/* From now on. */
void sim_job_set_disk_faults(uint32_t faults);

#endif
