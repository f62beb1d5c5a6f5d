/*
 * What a rank tells about its end, for the script that started the job: mpirun gives one exit
 * status for all, and not always the right one.
 *
 * When the environment variable EMBPS_STATUS_DIR is set, the file <dir>/<role>-<rank> gets one line
 * "<code>\t<message>\n", whole or not at all. Call before exit or abort.
 */
#ifndef COMMON_RUN_STATUS_H
#define COMMON_RUN_STATUS_H

#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define PSC_STATUS_DIR_VARIABLE "EMBPS_STATUS_DIR"

/*
 * role: "server" or "worker"; message: one line (line ends and tabs become spaces), may be "".
 * Borrows. A failure to write is logged, since the run's own status matters more. Any thread.
 */
void psc_run_status_write(const char *role, int32_t rank, psc_status_t code, const char *message);

/* Tells the script that all ranks have started: the file <dir>/running. A failure is logged. */
void psc_run_status_begin(void);

/* Whether the process of another rank has ended, as its host wrote into <dir>/ended-<role>-<rank>
 * (on several hosts, see scripts/embps-run). *signal_out: by which; 0: by none. Some microseconds,
 * or more where the folder is on another machine. Any thread. */
bool psc_run_status_ended(const char *role, int32_t rank, int *signal_out);

/* A rank of the job has come: the file <dir>/came-<rank>. Whether another one has. Any thread. */
void psc_run_status_come(int32_t rank);
bool psc_run_status_came(int32_t rank);

#define PSC_SERVERS_VARIABLE "EMBPS_RUN_SERVERS" /* how many of the job's first ranks are servers */

#define PSC_RECOVERY_VARIABLE "EMBPS_RECOVERY"
#define PSC_RECOVERY_HOSTS "hosts" /* its value for a job on several hosts */

/* Whether the other ranks of this job live on when one is lost: the script sets the environment
 * variable EMBPS_RECOVERY to something where mpirun lets them. */
bool psc_run_recovers(void);
/* The same, and the job may be on several hosts. */
bool psc_run_recovers_hosts(void);

#endif
