/*
 * The disk of a simulation: real files in a scratch folder, of which it is known what was synced.
 *
 * The calls with which the product changes files are wrapped when embps-sim is linked. They take
 * time, fail now and then (sim_process_t.disk_faults), come to nothing in a process that is dead,
 * and can be the last thing that a process does (sim_process_t.files_left).
 */
#ifndef TESTS_SIM_SIM_DISK_H
#define TESTS_SIM_SIM_DISK_H

#include "tests/sim/sim_tasks.h"

/* Called when a process has done the last change of a file that it was to do. */
typedef void (*sim_last_fn)(sim_process_t *process);
void sim_disk_begin(sim_last_fn last);
void sim_disk_end(void);

/*
 * What a power cut leaves of a folder: all that was synced, and of the rest what chance has it.
 * Bytes that were not synced are there, or zeros, or cut off; a name that was not synced in its
 * folder is there or not; a renaming that was not has been or has not. Outside of tasks; nothing is
 * open there.
 */
void sim_disk_cut_power(const char *folder);

#endif
