/*
 * One process: N threads, each a worker with a client of its own, over one shard on its own thread.
 *
 * The threads count their parts of the corpus, are joined, and start again for the training;
 * between the two the main thread merges the counts and connects. It also is the one that looks for
 * signals; the first thread that fails asks the others to stop, and its error is the one that is
 * reported.
 *
 * Threads: what they share (setup, stop) is read-only or atomic; each writes its own worker_t.
 */
#include "worker/train/run.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/run_status.h"
#include "worker/client.h"
#include "worker/programs/client_error.h"
#include "worker/train/progress.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#define SIGNAL_WAIT_US UINT64_C(20000)

typedef struct worker {
    struct run *run;
    uint32_t number;
    pthread_t thread;
    psw_counter_t *counter;
    psw_part_t part;
    embps_client_t *client;
    psw_tables_t tables;
    psw_train_counts_t counts;
    psc_error_t error;
} worker_t;

typedef struct run {
    psw_setup_t setup;
    psw_stop_t *stop;
    psw_progress_t *progress;
    worker_t *workers;
    embps_client_t **clients;
    uint32_t n;
    atomic_uint running;
} run_t;

static uint32_t core_count(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? (uint32_t)n : 1;
}

static void end_thread(worker_t *worker)
{
    if (worker->error.code != PSC_OK)
        psw_stop_request(worker->run->stop);
    atomic_fetch_sub(&worker->run->running, 1);
}

static void *count_part(void *argument)
{
    worker_t *worker = argument;
    run_t *run = worker->run;
    (void)!psw_setup_count(&run->setup, worker->number, run->n, worker->counter, run->stop,
                           &worker->part, &worker->error);
    end_thread(worker);
    return NULL;
}

static void *train_part(void *argument)
{
    worker_t *worker = argument;
    run_t *run = worker->run;
    bool first = worker->number == 0;
    (void)!psw_setup_train(&run->setup, worker->client, worker->number, &worker->part, run->stop,
                           false, first ? psw_progress_report : NULL, run->progress,
                           &worker->tables, &worker->counts, &worker->error);
    end_thread(worker);
    return NULL;
}

/* The error of the thread that failed first; those that were only asked to stop come last. */
static psc_status_t first_error(const run_t *run, psc_error_t *error)
{
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < run->n; i++) {
            const psc_error_t *found = &run->workers[i].error;
            if (found->code == PSC_OK || (pass == 0 && found->code == PSC_INTERRUPTED))
                continue;
            *error = *found;
            return found->code;
        }
    }
    return PSC_OK;
}

/* Runs one phase in all threads. */
static psc_status_t run_threads(run_t *run, void *(*body)(void *), psc_error_t *error)
{
    uint32_t started = 0;
    int failed = 0;
    atomic_store(&run->running, 0);
    for (; started < run->n && failed == 0; started += failed == 0) {
        worker_t *worker = &run->workers[started];
        worker->error = (psc_error_t)PSC_ERROR_INIT;
        atomic_fetch_add(&run->running, 1);
        failed = pthread_create(&worker->thread, NULL, body, worker);
    }
    if (failed != 0) {
        atomic_fetch_sub(&run->running, 1);
        psw_stop_request(run->stop);
    }
    while (atomic_load(&run->running) > 0)
        psw_stop_wait(run->stop, SIGNAL_WAIT_US);
    for (uint32_t i = 0; i < started; i++)
        (void)pthread_join(run->workers[i].thread, NULL);
    if (failed != 0)
        return psc_error_set_errno(error, failed, "thread %u of %u cannot be started", started + 1,
                                   run->n);
    return first_error(run, error);
}

static psc_status_t create(run_t *run, const psw_train_options_t *options, psc_error_t *error)
{
    psc_status_t st = psw_setup_open(&run->setup, options, true, error);
    if (st != PSC_OK)
        return st;
    run->n = options->threads > 0 ? (uint32_t)options->threads : core_count();
    run->workers = psc_alloc_zeroed(run->n, sizeof *run->workers);
    run->clients = psc_alloc_zeroed(run->n, sizeof(embps_client_t *));
    if (run->workers == NULL || run->clients == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %u threads", run->n);
    for (uint32_t i = 0; st == PSC_OK && i < run->n; i++) {
        run->workers[i].run = run;
        run->workers[i].number = i;
        if (options->read_vocab == NULL)
            st = psw_counter_create(&run->workers[i].counter, error);
    }
    return st;
}

static psc_status_t make_vocab(run_t *run, psc_error_t *error)
{
    uint64_t words = 0, long_words = 0;
    psw_counter_t *all = run->workers[0].counter;
    psc_status_t st = run_threads(run, count_part, error);
    for (uint32_t i = 0; st == PSC_OK && i < run->n; i++) {
        worker_t *worker = &run->workers[i];
        words += worker->part.words;
        long_words += worker->part.long_words;
        run->setup.corpus_hash = psc_mix64(run->setup.corpus_hash ^ worker->part.hash);
        if (i > 0 && all != NULL)
            st = psw_counter_merge(all, worker->counter, error);
    }
    if (st == PSC_OK)
        st = psw_setup_finish(&run->setup, all, words, true, error);
    for (uint32_t i = 0; i < run->n; i++) {
        psw_counter_destroy(run->workers[i].counter);
        run->workers[i].counter = NULL;
    }
    if (st == PSC_OK)
        psw_run_introduce(&run->setup, long_words);
    return st;
}

static psc_status_t connect_all(run_t *run, psc_error_t *error)
{
    embps_local_options_t options = EMBPS_LOCAL_OPTIONS_DEFAULT;
    const psw_local_checkpoints_t checkpoints = {.folder = run->setup.options->checkpoints,
                                                 .resume = run->setup.options->resume,
                                                 .keep = run->setup.options->keep};
    options.data = run->setup.options->data;
    options.memory_bytes = run->setup.options->memory;
    options.n_workers = run->n;
    psc_status_t st = psw_client_connect_local(&options, &checkpoints, run->clients, error);
    if (st != PSC_OK)
        return st;
    for (uint32_t i = 0; i < run->n; i++)
        run->workers[i].client = run->clients[i];
    return PSC_OK;
}

/* Closes all clients; the shard ends with the last one. */
static psc_status_t close_all(run_t *run, psc_status_t status, psc_error_t *error)
{
    embps_error_t what;
    for (uint32_t i = 0; run->clients != NULL && i < run->n; i++) {
        if (status != PSC_OK && status != PSC_INTERRUPTED)
            embps_abandon(run->clients[i], (int)status);
        else if (embps_close(run->clients[i], &what) != 0 && status == PSC_OK)
            status = psw_error_import(&what, error);
    }
    return status;
}

/* Warns of threads that trained nothing; when that is all of them, it is an error. */
static psc_status_t check_trained(const run_t *run, psc_error_t *error)
{
    uint64_t words = 0, windows = 0;
    for (uint32_t i = 0; i < run->n; i++) {
        words += run->workers[i].part.words;
        windows += run->workers[i].counts.windows;
    }
    psc_status_t st = psw_setup_check_trained(&run->setup, 0, 1, words, windows, error);
    for (uint32_t i = 0; st == PSC_OK && i < run->n; i++)
        st = psw_setup_check_trained(&run->setup, i, run->n, run->workers[i].part.words,
                                     run->workers[i].counts.windows, error);
    return st;
}

static psc_status_t train(run_t *run, psc_error_t *error)
{
    psc_status_t st = connect_all(run, error);
    if (st != PSC_OK)
        return st;
    st = psw_run_progress(&run->setup, &run->progress, error);
    if (st == PSC_OK)
        st = run_threads(run, train_part, error);
    if (st == PSC_OK)
        st = check_trained(run, error);
    if (st == PSC_OK) {
        /* Worker 0 may have ended before the others: the last figures are those of all. */
        psw_train_counts_t counts = run->workers[0].counts;
        counts.total_words = 0;
        for (uint32_t i = 0; i < run->n; i++)
            counts.total_words += run->workers[i].counts.words;
        st = psw_run_account(run->clients[0], &counts.account, error);
        if (st == PSC_OK)
            st = psw_progress_finish(run->progress, &counts, psc_clock_us(), error);
    }
    psw_progress_destroy(run->progress);
    if (st == PSC_OK)
        st = psw_run_export(&run->setup, &run->workers[0].tables, run->stop, error);
    return close_all(run, st, error);
}

int psw_run_local(const psw_train_options_t *options, psw_stop_t *stop)
{
    psc_error_t error = PSC_ERROR_INIT;
    run_t run = {.stop = stop};
    psc_status_t st = create(&run, options, &error);
    if (st == PSC_OK)
        st = make_vocab(&run, &error);
    if (st == PSC_OK)
        st = train(&run, &error);
    for (uint32_t i = 0; run.workers != NULL && i < run.n; i++)
        psw_counter_destroy(run.workers[i].counter);
    psc_free(run.workers);
    psc_free(run.clients);
    psw_setup_clear(&run.setup);
    psc_run_status_write("worker", 0, st, st != PSC_OK ? error.message : "");
    if (st != PSC_OK)
        psc_log(PSC_LOG_ERROR, "%s%s", error.message,
                st == PSC_INTERRUPTED ? "; no vectors were written" : "");
    return (int)st;
}
