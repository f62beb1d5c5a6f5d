/*
 * Transport over MPI: ranks of one mpirun job, split into servers and workers.
 *
 * mpi.h stays in proto/mpi/ and the programs' main; here an MPI_Comm is passed by address.
 */
#ifndef PROTO_MPI_MPI_TRANSPORT_H
#define PROTO_MPI_MPI_TRANSPORT_H

#include "common/process_state.h"
#include "proto/transport.h"

typedef enum psp_mpi_role {
    PSP_MPI_SERVER = 0,
    PSP_MPI_WORKER = 1,
    PSP_MPI_LISTENING_SERVER = 2, /* for create: a server that does without workers, if all do */
} psp_mpi_role_t;

/* The ranks of a job by role, with a communicator of one's own kind. */
typedef struct psp_mpi_job psp_mpi_job_t;

/*
 * Collective over *comm (an MPI_Comm): all ranks, both roles. Errors: INVALID_ARGUMENT on every
 * rank when there is no server or no worker (message says which and what to do). Gives.
 */
PSC_MUST_CHECK psc_status_t psp_mpi_job_create(const void *comm, psp_mpi_role_t role,
                                               psp_mpi_job_t **job_out, psc_error_t *error);
/* The same, of a rank that wants messages between servers and workers to be checked
 * (checked_transport.h): where one does, those of all ranks are. */
PSC_MUST_CHECK psc_status_t psp_mpi_job_create_checked(const void *comm, psp_mpi_role_t role,
                                                       psp_mpi_job_t **job_out, psc_error_t *error);
/* Collective over the same ranks, unless the job is aborting. NULL is a no-op. */
void psp_mpi_job_destroy(psp_mpi_job_t *job);

uint32_t psp_mpi_job_rank(const psp_mpi_job_t *job); /* among one's role */
uint32_t psp_mpi_job_size(const psp_mpi_job_t *job); /* of one's role */
uint32_t psp_mpi_job_n_servers(const psp_mpi_job_t *job);
uint32_t psp_mpi_job_n_workers(const psp_mpi_job_t *job);
uint64_t psp_mpi_job_cluster(const psp_mpi_job_t *job); /* random id, the same on all ranks */
bool psp_mpi_job_checks(const psp_mpi_job_t *job);      /* messages are checked */

/* The process of a worker, as it was at the start. Borrowed from job. */
const psc_process_id_t *psp_mpi_job_worker_process(const psp_mpi_job_t *job, uint32_t worker);

#define PSP_MPI_NOTE_BYTES 1024u
#define PSP_MPI_TO_ALL UINT32_MAX

typedef enum psp_mpi_note_kind { /* each has a size of its own */
                                 PSP_MPI_NOTE_LOSS,
                                 PSP_MPI_NOTE_ROUND,
} psp_mpi_note_kind_t;

/* Sends a note of at most PSP_MPI_NOTE_BYTES to a rank of one's role, or to all others of it. It is
 * not waited for; those of a kind come in the order in which they were sent. False: out of memory,
 * or MPI failed. */
PSC_MUST_CHECK bool psp_mpi_job_send_note(psp_mpi_job_t *job, uint32_t rank,
                                          psp_mpi_note_kind_t kind, const void *bytes, size_t size);
/* Takes the next note of a kind, of exactly size bytes, if one is there; false: none. *rank_out:
 * whose, among one's role. */
bool psp_mpi_job_take_note(psp_mpi_job_t *job, psp_mpi_note_kind_t kind, void *bytes_out,
                           size_t size, uint32_t *rank_out);

/* Whether workers of this job can give signs of life from a thread, and whether servers need them:
 * MPI has MPI_THREAD_MULTIPLE, and the job's ranks are on several machines. */
bool psp_mpi_job_can_beat(const psp_mpi_job_t *job);
/* Of a worker: a sign of life to all servers; does not wait. Any thread, but one at a time; another
 * may use the job meanwhile. */
void psp_mpi_job_beat(psp_mpi_job_t *job);
/* At a server: takes the next sign of life, if one is there; false: none. *worker_out: whose. */
bool psp_mpi_job_take_beat(psp_mpi_job_t *job, uint32_t *worker_out);

/*
 * Collective over one's role: every rank passes its own error (PSC_OK: none) and gets the one of
 * the lowest failing rank, so that all stop for the same reason and one reports it.
 * reporter_out: true on the rank whose error it is. Returns that code.
 */
PSC_MUST_CHECK psc_status_t psp_mpi_job_agree(psp_mpi_job_t *job, psc_error_t *error,
                                              bool *reporter_out);
/* The same over all ranks of both roles (startup of a job). */
PSC_MUST_CHECK psc_status_t psp_mpi_job_agree_all(psp_mpi_job_t *job, psc_error_t *error,
                                                  bool *reporter_out);

/*
 * Which rank says why a running job fails. To be called once by every rank that has to stop all:
 * true on one of those that call within the same window_us, on the lowest if it can, and false on
 * whoever calls later: another rank has said it or is about to. window_us: how long others may
 * still come and be the one; also how long this takes at least when it is true. Ranks should use
 * windows that are longer by some 100 ms than messages take. Not collective; the job must be alive.
 */
bool psp_mpi_job_claim_report(psp_mpi_job_t *job, uint64_t window_us);

/*
 * Collective over one's role: the bytes of all ranks, one after another, at every rank.
 * sizes_out: array of job size. Gives bytes_out (psc_free). Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psp_mpi_job_gather(psp_mpi_job_t *job, const void *bytes, size_t size,
                                               char **bytes_out, size_t *sizes_out,
                                               psc_error_t *error);
/* Collective over one's role. Sleeps while it waits: no busy core. */
void psp_mpi_job_barrier(psp_mpi_job_t *job);

/*
 * The endpoint of this rank. One per job. pool must outlive it. max_message_bytes: larger incoming
 * messages are refused. Errors: NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t psp_mpi_transport_create(psp_mpi_job_t *job, psp_pool_t *pool,
                                                     size_t max_message_bytes,
                                                     psp_transport_t **transport_out,
                                                     psc_error_t *error);

#endif
