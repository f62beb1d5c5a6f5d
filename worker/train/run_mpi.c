/*
 * One rank of an mpirun job as a worker.
 *
 * Until all ranks have agreed to start, an error is an ordinary one: it travels through the
 * agreements, one rank reports it, and every rank leaves in order. Workers agree among themselves
 * before each collective of their own, so that none waits in it for one that failed. The order of
 * collectives is that of the servers too: create the job, agree_all, connect.
 *
 * After that nothing is collective: workers meet at the servers, which know who is lost. A rank
 * that fails stops the whole job (psc_process_abort; or, where mpirun lets the others live, by
 * telling the servers, which refuse the others then), and one of those that fail reports
 * (psp_mpi_job_claim_report); what a server could not do is left to that server. A signal is no
 * failure: a worker finishes its batch and says goodbye with that status, and so the others stop.
 *
 * Threads: one, the one that calls MPI.
 */
#include "worker/train/run.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/process.h"
#include "common/run_status.h"
#include "proto/mpi/mpi_transport.h"
#include "worker/client.h"
#include "worker/programs/client_error.h"
#include "worker/train/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REPORT_WINDOW_US UINT64_C(300000)
#define SERVER_REPORT_WINDOW_US UINT64_C(2000000) /* a server first sends what it has */
#define ABORT_WAIT_US UINT64_C(10000000)

typedef struct run {
    psp_mpi_job_t *job;
    psw_stop_t *stop;
    uint32_t rank, n;
    psw_setup_t setup;
    psw_counter_t *counter;
    psw_part_t part;
    embps_client_t *client;
    psw_tables_t tables;
    psw_progress_t *progress;
    psw_train_counts_t counts;
    psp_barrier_reply_t others; /* who is still there, after the training */
} run_t;

/* What workers tell each other, to see that they read the same. */
typedef struct findings {
    uint64_t corpus_bytes, words, long_words, hash, fingerprint;
} findings_t;

/* All ranks that fail for one reason before the start: one prints, all record. */
static int leave(run_t *run, const psc_error_t *error, bool reporter)
{
    psc_run_status_write("worker", (int32_t)run->rank, error->code, error->message);
    if (reporter)
        psc_log(PSC_LOG_ERROR, "%s", error->message);
    return (int)error->code;
}

/* Does a server that answers with this code come to its own end, and say so? */
static bool ends_server(psc_status_t code)
{
    return code == PSC_IO || code == PSC_DISK_FULL || code == PSC_CORRUPT ||
           code == PSC_NO_MEMORY || code == PSC_INTERNAL;
}

/* A failure while the job runs. If another rank says it, that one ends the job too. */
__attribute__((noreturn)) static void fail(const run_t *run, const psc_error_t *error)
{
    const bool recovers = psc_run_recovers();
    psc_run_status_write("worker", (int32_t)run->rank, error->code, error->message);
    if (psp_mpi_job_claim_report(run->job, error->rank >= 0 && ends_server(error->code)
                                               ? SERVER_REPORT_WINDOW_US
                                               : REPORT_WINDOW_US))
        psc_log(PSC_LOG_ERROR, "%s", error->message);
    else if (!recovers)
        psc_clock_sleep_us(ABORT_WAIT_US);
    if (recovers) { /* nobody is ended with this rank: the others are told */
        embps_abandon(run->client, (int)error->code);
        psc_run_status_write("worker", (int32_t)run->rank, error->code, error->message);
        (void)fflush(NULL);
        _exit((int)error->code);
    }
    psc_process_abort(error->code);
}

static psc_status_t gather(void *context, const void *bytes, size_t size, char **bytes_out,
                           size_t *sizes_out, psc_error_t *error)
{
    return psp_mpi_job_gather(context, bytes, size, bytes_out, sizes_out, error);
}

/* Exchanges own findings; sums of all, and a hash of theirs, in *sum_out. Errors: MISMATCH. */
static psc_status_t compare(run_t *run, const findings_t *own, findings_t *sum_out,
                            psc_error_t *error)
{
    char *bytes = NULL;
    findings_t sum = {0};
    size_t *sizes = psc_alloc_zeroed(run->n, sizeof *sizes);
    if (sizes == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %u workers", run->n);
    psc_status_t st = psp_mpi_job_gather(run->job, own, sizeof *own, &bytes, sizes, error);
    for (uint32_t i = 0; st == PSC_OK && i < run->n; i++) {
        findings_t other;
        if (sizes[i] != sizeof other) {
            st = psc_error_set(error, PSC_PROTOCOL, "worker %u is of another version", i);
            break;
        }
        memcpy(&other, bytes + i * sizeof other, sizeof other);
        sum.words += other.words;
        sum.long_words += other.long_words;
        sum.hash = psc_mix64(sum.hash ^ other.hash);
        if (other.corpus_bytes != own->corpus_bytes)
            st = psc_error_set(error, PSC_MISMATCH,
                               "the corpus has %" PRIu64 " bytes at worker %u and %" PRIu64
                               " at worker %u: all hosts need the same files",
                               own->corpus_bytes, run->rank, other.corpus_bytes, i);
        else if (other.fingerprint != own->fingerprint)
            st = psc_error_set(error, PSC_MISMATCH,
                               "workers %u and %u have different vocabularies: all hosts need the "
                               "same files and options",
                               run->rank, i);
    }
    psc_free(sizes);
    psc_free(bytes);
    if (st == PSC_OK)
        *sum_out = sum;
    return st;
}

/* This worker's part of the corpus, without a word to the others. */
static psc_status_t count(run_t *run, const psw_train_options_t *options, psc_error_t *error)
{
    psc_status_t st = psw_setup_open(&run->setup, options, run->rank == 0, error);
    if (st == PSC_OK && options->read_vocab == NULL)
        st = psw_counter_create(&run->counter, error);
    if (st == PSC_OK)
        st = psw_setup_count(&run->setup, run->rank, run->n, run->counter, run->stop, &run->part,
                             error);
    return st;
}

/* Counts and vocabulary. Every worker comes to every collective, whatever it met before. */
static psc_status_t prepare(run_t *run, const psw_train_options_t *options, psc_error_t *error)
{
    bool reporter;
    findings_t own = {0}, sum = {0};
    if (error->code == PSC_OK)
        (void)!count(run, options, error);
    if (psp_mpi_job_agree(run->job, error, &reporter) != PSC_OK)
        return error->code;
    own = (findings_t){.corpus_bytes = psw_corpus_bytes(run->setup.corpus),
                       .words = run->part.words,
                       .long_words = run->part.long_words,
                       .hash = run->part.hash};
    (void)!compare(run, &own, &sum, error);
    if (psp_mpi_job_agree(run->job, error, &reporter) != PSC_OK)
        return error->code;
    psw_counter_t *all = NULL;
    run->setup.corpus_hash = sum.hash;
    if (run->counter != NULL)
        (void)!psw_vocab_gather(run->counter, run->n, gather, run->job, &all, error);
    if (error->code == PSC_OK)
        (void)!psw_setup_finish(&run->setup, all, sum.words, run->rank == 0, error);
    psw_counter_destroy(all);
    psw_counter_destroy(run->counter);
    run->counter = NULL;
    if (psp_mpi_job_agree(run->job, error, &reporter) != PSC_OK)
        return error->code;
    own.fingerprint = psw_vocab_fingerprint(run->setup.vocab);
    if (compare(run, &own, &sum, error) == PSC_OK && run->rank == 0)
        psw_run_introduce(&run->setup, sum.long_words);
    return error->code;
}

/* Trains; an error other than a signal does not return. */
static psc_status_t train(run_t *run, psc_error_t *error)
{
    bool first = run->rank == 0;
    if (psw_client_connect_job(run->job, &run->client, error) != PSC_OK ||
        (first && psw_run_progress(&run->setup, &run->progress, error) != PSC_OK))
        fail(run, error);
    psc_status_t st = psw_setup_train(&run->setup, run->client, run->rank, &run->part, run->stop,
                                      true, first ? psw_progress_report : NULL, run->progress,
                                      &run->tables, &run->counts, error);
    if (st == PSC_OK)
        st = psw_setup_check_trained(&run->setup, run->rank, run->n, run->part.words,
                                     run->counts.windows, error);
    if (st != PSC_OK && st != PSC_INTERRUPTED) {
        psw_progress_destroy(run->progress);
        fail(run, error);
    }
    if (st == PSC_OK) /* at the servers: ranks may be lost, and MPI would wait for them */
        st = psw_client_barrier(run->client, &run->others, error);
    if (st == PSC_INTERRUPTED) {
        embps_abandon(run->client, (int)st);
        run->client = NULL;
    } else if (st != PSC_OK) {
        fail(run, error);
    }
    return st;
}

/* What all workers have trained, which is less than all words where some were lost. */
static psc_status_t count_words(run_t *run, psc_error_t *error)
{
    const uint64_t all = run->setup.corpus_words * run->setup.options->epochs;
    embps_error_t what;
    run->counts.total_words = all;
    if (run->others.n_lost == 0)
        return PSC_OK;
    if (embps_last_clock(run->client, run->counts.words, &run->counts.total_words, &what) != 0)
        return psw_error_import(&what, error);
    psc_log(PSC_LOG_WARN,
            "%" PRIu64 " of %" PRIu64 " words were not trained: %" PRIu32 " of %" PRIu32
            " workers were lost",
            all - run->counts.total_words, all, run->others.n_lost, run->n);
    return PSC_OK;
}

/* What one worker does for all, after all have trained. */
static psc_status_t finish(run_t *run, psc_error_t *error)
{
    psc_status_t st = count_words(run, error);
    if (st == PSC_OK && run->others.n_lost == 0 && run->counts.resumed_lost == 0)
        st = psw_run_account(run->client, &run->counts.account, error);
    if (st == PSC_OK && run->progress != NULL) /* worker 0 has it */
        st = psw_progress_finish(run->progress, &run->counts, psc_clock_us(), error);
    return st == PSC_OK ? psw_run_export(&run->setup, &run->tables, run->stop, error) : st;
}

/*
 * The first worker that is still there finishes; the others wait for it, since the next one does it
 * in its place should it be lost before it has. Whoever is lost later had nothing left to do.
 */
static psc_status_t finish_together(run_t *run, psc_error_t *error)
{
    psc_error_t refusal = PSC_ERROR_INIT;
    uint32_t first;
    do {
        psp_barrier_reply_t others;
        first = run->others.first;
        psc_status_t st = run->rank == first ? finish(run, error) : PSC_OK;
        if (st != PSC_OK)
            return st;
        st = psw_client_barrier(run->client, &others, &refusal);
        if (st == PSC_INTERRUPTED || st == PSC_PEER_GONE)
            return PSC_OK; /* the first one has left and says why; if it is us, the goodbye tells */
        if (st != PSC_OK) {
            *error = refusal;
            return st;
        }
        run->others = others;
    } while (run->others.first != first);
    return PSC_OK;
}

static int work(run_t *run)
{
    psc_error_t error = PSC_ERROR_INIT;
    embps_error_t what;
    psc_status_t st = train(run, &error);
    if (st == PSC_OK)
        st = finish_together(run, &error);
    psw_progress_destroy(run->progress);
    if (st != PSC_OK && st != PSC_INTERRUPTED && error.rank >= 0)
        fail(run, &error);
    embps_client_t *client = run->client;
    run->client = NULL;
    if (st != PSC_OK)
        embps_abandon(client, (int)st);
    else if (embps_close(client, &what) != 0) {
        st = psw_error_import(&what, &error);
        if (st != PSC_INTERRUPTED)
            fail(run, &error);
    }
    psc_run_status_write("worker", (int32_t)run->rank, st, st != PSC_OK ? error.message : "");
    if (st != PSC_OK && (run->rank == 0 || st != PSC_INTERRUPTED))
        psc_log(PSC_LOG_ERROR, "%s%s", error.message,
                st == PSC_INTERRUPTED ? "; no vectors were written" : "");
    return (int)st;
}

int psw_run_mpi(const void *comm, int world_rank, const psw_train_options_t *options,
                psw_stop_t *stop, psc_error_t *failed)
{
    run_t run = {.stop = stop};
    bool reporter = false;
    int status;
    psc_error_t error = PSC_ERROR_INIT;
    if (psp_mpi_job_create(comm, PSP_MPI_WORKER, &run.job, &error) != PSC_OK) {
        /* Every rank of the job has this error: the first one says it. */
        return leave(&run, failed->code != PSC_OK ? failed : &error, world_rank == 0);
    }
    run.rank = psp_mpi_job_rank(run.job);
    run.n = psp_mpi_job_size(run.job);
    char label[32];
    (void)snprintf(label, sizeof label, "worker %u", run.rank);
    psc_process_set_label(label);
    error = *failed;
    (void)!prepare(&run, options, &error);
    if (psp_mpi_job_agree_all(run.job, &error, &reporter) != PSC_OK)
        status = leave(&run, &error, reporter);
    else
        status = work(&run);
    if (run.others.n_lost != 0) { /* MPI_Finalize would wait for those who are gone */
        (void)fflush(NULL);
        _exit(status);
    }
    psw_counter_destroy(run.counter);
    psw_setup_clear(&run.setup);
    psp_mpi_job_destroy(run.job);
    return status;
}
