/*
 * What the MPI job and the MPI transport share. Inside proto/mpi/ only.
 */
#ifndef PROTO_MPI_MPI_JOB_INTERNAL_H
#define PROTO_MPI_MPI_JOB_INTERNAL_H

#include "proto/mpi/mpi_transport.h"

#include <mpi.h>

struct psp_mpi_job {
    MPI_Comm all;         /* a copy of the caller's, for collectives */
    MPI_Comm own;         /* the ranks of one's role */
    MPI_Comm messages;    /* another copy, for the transport alone */
    psp_mpi_role_t role;  /* SERVER or WORKER */
    bool listens;         /* a server that does without workers */
    bool checks;          /* messages are checked; at first: this rank wants that */
    uint32_t n_listening; /* servers that do */
    uint32_t rank;        /* among one's role */
    uint32_t n_of[2];     /* ranks of each role */
    int *ranks_of[2];     /* ranks in `all` of each role, ascending */
    int n_on_host;        /* ranks of the job on this machine */
    uint64_t cluster;
    psc_process_id_t *processes; /* by rank in `all` */
    struct psp_mpi_note *notes;  /* that were sent: MPI may still read them */
    MPI_Request *beats;          /* [servers] signs of life on their way (mpi_beat.c) */
};

/* Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psp_mpi_beats_create(psp_mpi_job_t *job, psc_error_t *error);
/* finalized: MPI has ended. Also for a job that has none. */
void psp_mpi_beats_destroy(psp_mpi_job_t *job, bool finalized);

/* Fills error with MPI's text for rc, what being under way: the border where MPI's errors end. */
psc_status_t psp_mpi_error(int rc, const char *what, psc_error_t *error);

/*
 * How long to sleep when nothing happened for idle_us: a thirty-second of it, so that sleeping adds
 * a few percent at most to whatever is waited for, within 20 us and longest_us.
 */
static inline uint64_t psp_mpi_nap_us(uint64_t idle_us, uint64_t longest_us)
{
    uint64_t nap_us = idle_us / 32;
    if (nap_us < 20)
        nap_us = 20;
    return nap_us < longest_us ? nap_us : longest_us;
}

#endif
