/*
 * The ranks of one mpirun job: who is a server, who is a worker, and what they agree on.
 *
 * Purpose: roles by communicator split; the cluster id; and a few collectives for start and end.
 * Three communicators of our own, so that nothing of ours meets the program's own messages, nor the
 * transport's messages our collectives. Errors return (MPI_ERRORS_RETURN) and become ours here.
 *
 * MPI's blocking collectives spin; ours are the non-blocking ones, tested between naps that grow
 * with the time waited (psp_mpi_nap_us), so that a rank that waits minutes for another costs no
 * core. Only job_create uses blocking ones, once all ranks have come there.
 *
 * Errors are agreed on before anybody leaves: an error of one rank alone would leave the others in
 * a collective for ever. psc_error_t travels as bytes: all ranks run the same release on one kind
 * of processor.
 *
 * While a job runs nothing is collective, so ranks that fail then tell each other by messages, and
 * by the clock (psp_mpi_job_claim_report): the lowest rank of those that fail within one window
 * speaks, unless another did before. Notices are never waited for: who gets one may be in no state
 * to take it.
 *
 * One thread calls all of this; signs of life (mpi_beat.c) alone may have one of their own.
 */
#include "proto/mpi/mpi_job_internal.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/run_status.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <sys/random.h>

#define LONGEST_NAP_US 5000u
#define YIELD_US 50u                          /* how long to yield before napping */
#define GATHER_CHUNK_BYTES ((size_t)16 << 20) /* counts of MPI are ints */
#define NOTICE_TAG 1
#define NOTE_TAG 2
#define LOWER_RANK_US UINT64_C(2000000) /* more time that a rank gets that would speak first */

/* What failing ranks tell each other: "I would report", "I report". */
static const char notice_candidate = 'c', notice_reporter = 'r';

/* A note on its way, until all of its sends have ended. */
typedef struct psp_mpi_note {
    struct psp_mpi_note *next;
    char bytes[PSP_MPI_NOTE_BYTES];
    int n; /* of requests */
    MPI_Request requests[];
} psp_mpi_note_t;

psc_status_t psp_mpi_error(int rc, const char *what, psc_error_t *error)
{
    if (rc == MPI_SUCCESS)
        return PSC_OK;
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    (void)MPI_Error_string(rc, text, &length);
    return psc_error_set(error, PSC_IO, "MPI failed to %s: %.300s", what, text);
}

/* Waits for a non-blocking collective. rc is what starting it returned. */
static psc_status_t finish(int rc, MPI_Request *request, const char *what, psc_error_t *error)
{
    uint64_t start_us = 0;
    int done = 0;
    if (rc == MPI_SUCCESS)
        rc = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    while (rc == MPI_SUCCESS && !done) {
        uint64_t now_us = psc_clock_us();
        if (start_us == 0)
            start_us = now_us;
        if (now_us - start_us < YIELD_US)
            (void)sched_yield();
        else
            psc_clock_sleep_us(psp_mpi_nap_us(now_us - start_us, LONGEST_NAP_US));
        rc = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    }
    return psp_mpi_error(rc, what, error);
}

/* The same random number on all ranks, not 0. */
static psc_status_t make_cluster_id(MPI_Comm all, int rank, uint64_t *cluster_out,
                                    psc_error_t *error)
{
    uint64_t cluster = 0;
    while (rank == 0 && cluster == 0) {
        ssize_t got = getrandom(&cluster, sizeof cluster, 0);
        if (got != (ssize_t)sizeof cluster && errno != EINTR)
            cluster = psc_clock_us(); /* no random numbers on this system: time will do */
    }
    int rc = MPI_Bcast(&cluster, 1, MPI_UINT64_T, 0, all);
    *cluster_out = cluster;
    return psp_mpi_error(rc, "broadcast the cluster id", error);
}

#define CHECKS_BIT 0x100 /* beside a role: that rank wants messages to be checked */

/* Splits the n ranks by role. */
static psc_status_t learn_roles(psp_mpi_job_t *job, int n, int own_rank, psc_error_t *error)
{
    int *roles = psc_alloc_array((size_t)n, sizeof *roles);
    job->ranks_of[0] = psc_alloc_array((size_t)n, sizeof(int));
    job->ranks_of[1] = psc_alloc_array((size_t)n, sizeof(int));
    if (roles == NULL || job->ranks_of[0] == NULL || job->ranks_of[1] == NULL) {
        psc_free(roles);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %d ranks", n);
    }
    int own_role = job->listens ? PSP_MPI_LISTENING_SERVER : (int)job->role;
    own_role |= job->checks ? CHECKS_BIT : 0;
    int rc = MPI_Allgather(&own_role, 1, MPI_INT, roles, 1, MPI_INT, job->all);
    for (int rank = 0; rc == MPI_SUCCESS && rank < n; rank++) {
        const int told = roles[rank] & ~CHECKS_BIT;
        const int role = told == PSP_MPI_WORKER ? PSP_MPI_WORKER : PSP_MPI_SERVER;
        job->checks = job->checks || told != roles[rank];
        job->n_listening += told == PSP_MPI_LISTENING_SERVER;
        if (rank == own_rank)
            job->rank = job->n_of[role];
        job->ranks_of[role][job->n_of[role]++] = rank;
    }
    psc_free(roles);
    return psp_mpi_error(rc, "learn the roles of all ranks", error);
}

/* Which process each of the n ranks is. */
static psc_status_t learn_processes(psp_mpi_job_t *job, int n, psc_error_t *error)
{
    psc_process_id_t self = psc_process_self();
    job->processes = psc_alloc_array((size_t)n, sizeof *job->processes);
    if (job->processes == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %d ranks", n);
    int rc = MPI_Allgather(&self, (int)sizeof self, MPI_BYTE, job->processes, (int)sizeof self,
                           MPI_BYTE, job->all);
    return psp_mpi_error(rc, "learn the processes of all ranks", error);
}

static psc_status_t check_roles(const psp_mpi_job_t *job, psc_error_t *error)
{
    if (job->n_of[PSP_MPI_SERVER] == 0)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "this job has no server: start server ranks beside the workers, as in "
                             "mpirun -n 1 embps-server --data DIR : -n %u embps-train ...",
                             job->n_of[PSP_MPI_WORKER]);
    if (job->n_of[PSP_MPI_WORKER] == 0 && job->n_listening < job->n_of[PSP_MPI_SERVER])
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "this job has no worker: start workers beside the servers, as in "
                             "mpirun -n %u embps-server --data DIR : -n 1 embps-train ..., or let "
                             "clients come by address: give the servers --listen HOST:PORT, "
                             "which needs neither workers nor mpirun",
                             job->n_of[PSP_MPI_SERVER]);
    return PSC_OK;
}

/* Waits for all ranks, which may take long: what follows spins. */
static psc_status_t meet(MPI_Comm from, psc_error_t *error)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rank = 0;
    if (MPI_Comm_rank(MPI_COMM_WORLD, &rank) == MPI_SUCCESS)
        psc_run_status_come(rank);
    return finish(MPI_Ibarrier(from, &request), &request, "meet all ranks", error);
}

/* The three communicators, each returning errors; and how many ranks share this machine. */
static psc_status_t make_communicators(psp_mpi_job_t *job, MPI_Comm from, psc_error_t *error)
{
    MPI_Comm host = MPI_COMM_NULL;
    int rc = MPI_Comm_dup(from, &job->all);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_set_errhandler(job->all, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_dup(job->all, &job->messages);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_set_errhandler(job->messages, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_split(job->all, (int)job->role, 0, &job->own);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_set_errhandler(job->own, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_split_type(job->all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    if (rc == MPI_SUCCESS)
        rc = MPI_Comm_size(host, &job->n_on_host);
    if (host != MPI_COMM_NULL)
        (void)MPI_Comm_free(&host);
    return psp_mpi_error(rc, "split the job by role", error);
}

static psc_status_t create(const void *comm, psp_mpi_role_t role, bool checks,
                           psp_mpi_job_t **job_out, psc_error_t *error)
{
    psp_mpi_job_t *job = psc_alloc_zeroed(1, sizeof *job);
    if (job == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a job");
    job->all = job->own = job->messages = MPI_COMM_NULL;
    job->listens = role == PSP_MPI_LISTENING_SERVER;
    job->role = job->listens ? PSP_MPI_SERVER : role;
    job->checks = checks;
    int rank = 0;
    int size = 0;
    psc_status_t st = meet(*(const MPI_Comm *)comm, error);
    if (st == PSC_OK)
        st = make_communicators(job, *(const MPI_Comm *)comm, error);
    if (st == PSC_OK)
        st = psp_mpi_error(MPI_Comm_rank(job->all, &rank), "learn the own rank", error);
    if (st == PSC_OK)
        st = psp_mpi_error(MPI_Comm_size(job->all, &size), "learn the size of the job", error);
    if (st == PSC_OK)
        st = learn_roles(job, size, rank, error);
    if (st == PSC_OK)
        st = learn_processes(job, size, error);
    if (st == PSC_OK)
        st = psp_mpi_beats_create(job, error);
    if (st == PSC_OK)
        st = make_cluster_id(job->all, rank, &job->cluster, error);
    if (st == PSC_OK)
        st = check_roles(job, error);
    if (st != PSC_OK) {
        psp_mpi_job_destroy(job);
        return st;
    }
    *job_out = job;
    return PSC_OK;
}

psc_status_t psp_mpi_job_create(const void *comm, psp_mpi_role_t role, psp_mpi_job_t **job_out,
                                psc_error_t *error)
{
    return create(comm, role, false, job_out, error);
}

psc_status_t psp_mpi_job_create_checked(const void *comm, psp_mpi_role_t role,
                                        psp_mpi_job_t **job_out, psc_error_t *error)
{
    return create(comm, role, true, job_out, error);
}

void psp_mpi_job_destroy(psp_mpi_job_t *job)
{
    if (job == NULL)
        return;
    int finalized = 0;
    (void)MPI_Finalized(&finalized);
    psp_mpi_beats_destroy(job, finalized != 0);
    psp_mpi_note_t *notes = job->notes; /* freed last: what nobody took, MPI may still read */
    for (psp_mpi_note_t *note = notes; !finalized && note != NULL; note = note->next) {
        for (int i = 0; i < note->n; i++) {
            if (note->requests[i] != MPI_REQUEST_NULL)
                (void)MPI_Request_free(&note->requests[i]);
        }
    }
    MPI_Comm *comms[] = {&job->messages, &job->own, &job->all};
    for (size_t i = 0; !finalized && i < sizeof comms / sizeof comms[0]; i++) {
        if (*comms[i] != MPI_COMM_NULL)
            (void)MPI_Comm_free(comms[i]);
    }
    for (psp_mpi_note_t *note = notes, *next; note != NULL; note = next) {
        next = note->next;
        psc_free(note);
    }
    psc_free(job->processes);
    psc_free(job->ranks_of[0]);
    psc_free(job->ranks_of[1]);
    psc_free(job);
}

const psc_process_id_t *psp_mpi_job_worker_process(const psp_mpi_job_t *job, uint32_t worker)
{
    return &job->processes[job->ranks_of[PSP_MPI_WORKER][worker]];
}

/* Frees notes that have left. */
static void put_notes_away(psp_mpi_job_t *job)
{
    psp_mpi_note_t **place = &job->notes;
    while (*place != NULL) {
        psp_mpi_note_t *note = *place;
        int ended = 0;
        if (MPI_Testall(note->n, note->requests, &ended, MPI_STATUSES_IGNORE) == MPI_SUCCESS &&
            ended) {
            *place = note->next;
            psc_free(note);
        } else {
            place = &note->next;
        }
    }
}

bool psp_mpi_job_send_note(psp_mpi_job_t *job, uint32_t rank, psp_mpi_note_kind_t kind,
                           const void *bytes, size_t size)
{
    const uint32_t n = psp_mpi_job_size(job), first = rank != PSP_MPI_TO_ALL ? rank : 0;
    const uint32_t end = rank != PSP_MPI_TO_ALL ? rank + 1 : n;
    PSC_BUG_ON(size > PSP_MPI_NOTE_BYTES || end > n);
    put_notes_away(job);
    psp_mpi_note_t *note = psc_alloc(sizeof *note + (end - first) * sizeof(MPI_Request));
    if (note == NULL)
        return false;
    memcpy(note->bytes, bytes, size);
    note->n = 0;
    note->next = job->notes;
    job->notes = note;
    bool sent = true;
    for (uint32_t to = first; to < end; to++) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (to == job->rank)
            continue;
        if (MPI_Isend(note->bytes, (int)size, MPI_BYTE, (int)to, NOTE_TAG + (int)kind, job->own,
                      &request) == MPI_SUCCESS)
            note->requests[note->n++] = request;
        else
            sent = false;
    }
    return sent;
}

bool psp_mpi_job_take_note(psp_mpi_job_t *job, psp_mpi_note_kind_t kind, void *bytes_out,
                           size_t size, uint32_t *rank_out)
{
    const int tag = NOTE_TAG + (int)kind;
    MPI_Status status;
    int there = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tag, job->own, &there, &status) != MPI_SUCCESS || !there ||
        MPI_Recv(bytes_out, (int)size, MPI_BYTE, status.MPI_SOURCE, tag, job->own,
                 MPI_STATUS_IGNORE) != MPI_SUCCESS)
        return false;
    *rank_out = (uint32_t)status.MPI_SOURCE;
    return true;
}

uint32_t psp_mpi_job_rank(const psp_mpi_job_t *job)
{
    return job->rank;
}

uint32_t psp_mpi_job_size(const psp_mpi_job_t *job)
{
    return job->n_of[job->role];
}

uint32_t psp_mpi_job_n_servers(const psp_mpi_job_t *job)
{
    return job->n_of[PSP_MPI_SERVER];
}

uint32_t psp_mpi_job_n_workers(const psp_mpi_job_t *job)
{
    return job->n_of[PSP_MPI_WORKER];
}

bool psp_mpi_job_checks(const psp_mpi_job_t *job)
{
    return job->checks;
}

uint64_t psp_mpi_job_cluster(const psp_mpi_job_t *job)
{
    return job->cluster;
}

static psc_status_t agree(MPI_Comm comm, psc_error_t *error, bool *reporter_out)
{
    int rank = 0;
    int lowest = INT_MAX;
    MPI_Request request = MPI_REQUEST_NULL;
    psc_error_t broken = PSC_ERROR_INIT;
    int rc = MPI_Comm_rank(comm, &rank);
    int failing = error->code != PSC_OK ? rank : INT_MAX;
    if (rc == MPI_SUCCESS)
        rc = MPI_Iallreduce(&failing, &lowest, 1, MPI_INT, MPI_MIN, comm, &request);
    psc_status_t st = finish(rc, &request, "agree on an error", &broken);
    if (st == PSC_OK && lowest != INT_MAX) {
        rc = MPI_Ibcast(error, (int)sizeof *error, MPI_BYTE, lowest, comm, &request);
        st = finish(rc, &request, "spread an error", &broken);
    }
    *reporter_out = st != PSC_OK || lowest == rank;
    if (st != PSC_OK && error->code == PSC_OK)
        *error = broken;
    return error->code;
}

psc_status_t psp_mpi_job_agree(psp_mpi_job_t *job, psc_error_t *error, bool *reporter_out)
{
    return agree(job->own, error, reporter_out);
}

psc_status_t psp_mpi_job_agree_all(psp_mpi_job_t *job, psc_error_t *error, bool *reporter_out)
{
    return agree(job->all, error, reporter_out);
}

/* Every rank learns the sizes of all, and their sum. */
static psc_status_t gather_sizes(psp_mpi_job_t *job, size_t size, size_t *sizes_out,
                                 size_t *total_out, psc_error_t *error)
{
    MPI_Request request = MPI_REQUEST_NULL;
    uint64_t own = size;
    _Static_assert(sizeof(size_t) == sizeof(uint64_t), "sizes travel as they are");
    int rc = MPI_Iallgather(&own, 1, MPI_UINT64_T, sizes_out, 1, MPI_UINT64_T, job->own, &request);
    psc_status_t st = finish(rc, &request, "gather sizes", error);
    size_t total = 0;
    for (uint32_t i = 0; st == PSC_OK && i < psp_mpi_job_size(job); i++) {
        if (__builtin_add_overflow(total, sizes_out[i], &total))
            st = psc_error_set(error, PSC_NO_MEMORY, "more bytes to gather than memory can hold");
    }
    *total_out = total;
    return st;
}

psc_status_t psp_mpi_job_gather(psp_mpi_job_t *job, const void *bytes, size_t size,
                                char **bytes_out, size_t *sizes_out, psc_error_t *error)
{
    size_t total;
    psc_status_t st = gather_sizes(job, size, sizes_out, &total, error);
    if (st != PSC_OK)
        return st;
    char *all = psc_alloc(total);
    psc_error_t own = PSC_ERROR_INIT;
    bool reporter;
    if (all == NULL)
        (void)psc_error_set(&own, PSC_NO_MEMORY, "out of memory to gather %zu bytes", total);
    st = psp_mpi_job_agree(job, &own, &reporter); /* or some would wait for ever */
    if (st != PSC_OK) {
        psc_free(all);
        if (error != NULL)
            *error = own;
        return st;
    }
    PSC_BUG_ON(all == NULL); /* or the own error would have been agreed on */
    char *place = all;
    for (uint32_t root = 0; st == PSC_OK && root < psp_mpi_job_size(job); root++) {
        if (root == job->rank && size != 0)
            memcpy(place, bytes, size);
        size_t left = sizes_out[root];
        while (st == PSC_OK && left > 0) {
            MPI_Request request = MPI_REQUEST_NULL;
            size_t chunk = left < GATHER_CHUNK_BYTES ? left : GATHER_CHUNK_BYTES;
            int rc = MPI_Ibcast(place, (int)chunk, MPI_BYTE, (int)root, job->own, &request);
            st = finish(rc, &request, "gather bytes", error);
            place += chunk;
            left -= chunk;
        }
    }
    if (st != PSC_OK) {
        psc_free(all);
        return st;
    }
    *bytes_out = all;
    return PSC_OK;
}

void psp_mpi_job_barrier(psp_mpi_job_t *job)
{
    MPI_Request request = MPI_REQUEST_NULL;
    psc_error_t ignored; /* a broken job shows at its next message */
    int rc = MPI_Ibarrier(job->own, &request);
    (void)!finish(rc, &request, "pass a barrier", &ignored);
}

/* To all other ranks. The notice is a constant, so that the request needs no end. */
static void send_notice(const psp_mpi_job_t *job, const char *notice, int own_rank, int n_ranks)
{
    for (int rank = 0; rank < n_ranks; rank++) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank != own_rank &&
            MPI_Isend(notice, 1, MPI_CHAR, rank, NOTICE_TAG, job->all, &request) == MPI_SUCCESS)
            (void)MPI_Request_free(&request);
    }
}

/* Takes all notices that are here. */
static void take_notices(const psp_mpi_job_t *job, int own_rank, bool *lower, bool *reported)
{
    int there = 1;
    while (there) {
        char notice = 0;
        MPI_Status status;
        if (MPI_Iprobe(MPI_ANY_SOURCE, NOTICE_TAG, job->all, &there, &status) != MPI_SUCCESS ||
            !there ||
            MPI_Recv(&notice, 1, MPI_CHAR, status.MPI_SOURCE, NOTICE_TAG, job->all,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        *reported |= notice == notice_reporter;
        *lower |= status.MPI_SOURCE < own_rank;
    }
}

bool psp_mpi_job_claim_report(psp_mpi_job_t *job, uint64_t window_us)
{
    int own_rank = 0, n_ranks = 1;
    bool lower = false, reported = false;
    if (MPI_Comm_rank(job->all, &own_rank) != MPI_SUCCESS ||
        MPI_Comm_size(job->all, &n_ranks) != MPI_SUCCESS)
        return true;
    uint64_t start_us = psc_clock_us();
    send_notice(job, &notice_candidate, own_rank, n_ranks);
    for (;;) {
        uint64_t now_us = psc_clock_us();
        take_notices(job, own_rank, &lower, &reported);
        if (reported)
            return false;
        if (now_us - start_us >= window_us + (lower ? LOWER_RANK_US : 0))
            break;
        psc_clock_sleep_us(psp_mpi_nap_us(now_us - start_us, LONGEST_NAP_US));
    }
    send_notice(job, &notice_reporter, own_rank, n_ranks);
    return true;
}
