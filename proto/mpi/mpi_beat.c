/*
 * Signs of life from workers to servers of other machines: empty messages with a tag of their own,
 * on the communicator of the job's collectives, so that they meet no message of the transport.
 *
 * A worker keeps one request for each server. While the last sign of life has not left, since the
 * server takes nothing, no other is sent: so what a server that stands still costs is bounded, and
 * nothing here ever waits.
 *
 * Threads: sending is the one call of a job that a thread besides the job's own may make, and one
 * only; MPI must have been started with MPI_THREAD_MULTIPLE for that, which psp_mpi_job_can_beat
 * looks at. The requests are that thread's from psp_mpi_job_beat's first call until it has ended.
 */
#include "proto/mpi/mpi_job_internal.h"

#include "common/alloc.h"

#define BEAT_TAG 3

psc_status_t psp_mpi_beats_create(psp_mpi_job_t *job, psc_error_t *error)
{
    const uint32_t n = job->n_of[PSP_MPI_SERVER];
    job->beats = psc_alloc_array(n, sizeof *job->beats);
    if (job->beats == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %u servers", n);
    for (uint32_t s = 0; s < n; s++)
        job->beats[s] = MPI_REQUEST_NULL;
    return PSC_OK;
}

void psp_mpi_beats_destroy(psp_mpi_job_t *job, bool finalized)
{
    for (uint32_t s = 0; job->beats != NULL && !finalized && s < job->n_of[PSP_MPI_SERVER]; s++) {
        if (job->beats[s] != MPI_REQUEST_NULL)
            (void)MPI_Request_free(&job->beats[s]);
    }
    psc_free(job->beats);
    job->beats = NULL;
}

bool psp_mpi_job_can_beat(const psp_mpi_job_t *job)
{
    int provided = MPI_THREAD_SINGLE;
    int n_ranks = 0;
    return MPI_Query_thread(&provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE &&
           MPI_Comm_size(job->all, &n_ranks) == MPI_SUCCESS && n_ranks > job->n_on_host;
}

void psp_mpi_job_beat(psp_mpi_job_t *job)
{
    for (uint32_t s = 0; s < job->n_of[PSP_MPI_SERVER]; s++) {
        int left = 1;
        if (job->beats[s] != MPI_REQUEST_NULL &&
            MPI_Test(&job->beats[s], &left, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            continue;
        if (left && MPI_Isend(NULL, 0, MPI_BYTE, job->ranks_of[PSP_MPI_SERVER][s], BEAT_TAG,
                              job->all, &job->beats[s]) != MPI_SUCCESS)
            job->beats[s] = MPI_REQUEST_NULL; /* a server that cannot be reached ends the job */
    }
}

bool psp_mpi_job_take_beat(psp_mpi_job_t *job, uint32_t *worker_out)
{
    MPI_Status status;
    int there = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, BEAT_TAG, job->all, &there, &status) != MPI_SUCCESS || !there ||
        MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, BEAT_TAG, job->all, MPI_STATUS_IGNORE) !=
            MPI_SUCCESS)
        return false;
    const int *workers = job->ranks_of[PSP_MPI_WORKER];
    uint32_t worker = 0;
    while (worker < job->n_of[PSP_MPI_WORKER] && workers[worker] != status.MPI_SOURCE)
        worker++;
    *worker_out = worker; /* only workers send them */
    return worker < job->n_of[PSP_MPI_WORKER];
}
