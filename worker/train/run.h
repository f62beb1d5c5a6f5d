/*
 * The two ways to run a training. Both report an error once, and return the exit status.
 */
#ifndef WORKER_TRAIN_RUN_H
#define WORKER_TRAIN_RUN_H

#include "worker/train/train_options.h"
#include "worker/train/train_setup.h"

/* Threads of this process over one shard in it. */
int psw_run_local(const psw_train_options_t *options, psw_stop_t *stop);

/*
 * This rank as a worker of an mpirun job. comm: address of an MPI_Comm, world_rank:
 * this rank in it; MPI is initialised by the
 * caller, and finalised by it afterwards. failed: an error that this rank had before (options), or
 * code PSC_OK; options is not read when there was one.
 * Collective: over comm, with the servers.
 */
int psw_run_mpi(const void *comm, int world_rank, const psw_train_options_t *options,
                psw_stop_t *stop, psc_error_t *failed);

/* Shared by both: worker 0's progress, made for the options. Errors: as psw_progress_create. */
struct psw_progress;
PSC_MUST_CHECK psc_status_t psw_run_progress(const psw_setup_t *setup,
                                             struct psw_progress **progress_out,
                                             psc_error_t *error);

/* Shared by both: what all workers have pushed, and what of it was applied, once all have ended
 * their last clock. A difference is warned of. Errors: as embps_stats. */
PSC_MUST_CHECK psc_status_t psw_run_account(embps_client_t *client, psw_account_t *account_out,
                                            psc_error_t *error);

/* Shared by both: writes what was asked for and says where. Errors: as psw_export. */
PSC_MUST_CHECK psc_status_t psw_run_export(const psw_setup_t *setup, const psw_tables_t *tables,
                                           psw_stop_t *stop, psc_error_t *error);

/* Shared by both: "corpus ...: N words, vocabulary ..." unless quiet, and a warning of long words.
 */
void psw_run_introduce(const psw_setup_t *setup, uint64_t long_words);

#endif
