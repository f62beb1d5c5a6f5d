/*
 * embps-train: parses the command line, and runs the training in this process or as a rank of a
 * job.
 *
 * A command line that makes no sense is reported at once by a process that stands alone; under
 * mpirun the error is carried into the job first, so that of all ranks one reports it and none is
 * left waiting in MPI_Init. Threads: MPI is called by this one alone.
 */
#include "common/log.h"
#include "common/output.h"
#include "common/process.h"
#include "common/run_status.h"
#include "worker/train/run.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void abort_job(int status)
{
    if (!psc_run_recovers()) /* else it ends this rank alone, and mpirun never notices its end */
        (void)MPI_Abort(MPI_COMM_WORLD, status);
    _Exit(status);
}

static void print_help(FILE *stream)
{
    size_t n;
    const psw_model_t *const *models = psw_models(&n);
    (void)fprintf(stream, "embps-train: trains word vectors on tables that live on servers\n\n");
    for (size_t i = 0; i < n; i++)
        (void)fprintf(stream, "    embps-train %s --corpus FILE... --out FILE [options]\n",
                      models[i]->name);
    (void)fprintf(stream, "\n\"embps-train MODEL --help\" shows the options of a model.\n");
}

/* Started by mpirun or srun, so that there are other ranks to tell? */
static bool under_mpi(void)
{
    return getenv("OMPI_COMM_WORLD_SIZE") != NULL || getenv("PMIX_RANK") != NULL ||
           getenv("PMI_RANK") != NULL;
}

/* Is this one of several ranks that Open MPI's mpirun started? */
static bool among_ranks(void)
{
    const char *size = getenv("OMPI_COMM_WORLD_SIZE");
    return size != NULL && strtoul(size, NULL, 10) > 1;
}

static bool has_word(int argc, char *const argv[], const char *word)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], word) == 0)
            return true;
    }
    return false;
}

static psc_status_t parse(int argc, char *argv[], psw_train_options_t *options,
                          psc_parse_result_t *result, psc_error_t *error)
{
    *result = PSC_PARSE_RUN;
    if (argc < 2)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "no model given: embps-train skipgram or embps-train cbow; see "
                             "embps-train --help");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        *result = PSC_PARSE_EXIT;
        return PSC_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("embps-train %s\n", embps_version());
        *result = PSC_PARSE_EXIT;
        return PSC_OK;
    }
    const psw_model_t *model = psw_model_find(argv[1]);
    if (model == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "unknown model \"%s\"; there are skipgram and cbow", argv[1]);
    return psw_train_options_parse(model, argc - 1, argv + 1, options, result, error);
}

static int run_rank(int argc, char *argv[], const psw_train_options_t *options, psw_stop_t *stop,
                    psc_error_t *failed)
{
    int provided;
    /* Threads for the client's signs of life alone, where they are needed: each call costs more. */
    const int wanted = psc_run_recovers_hosts() ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED;
    if (MPI_Init_thread(&argc, &argv, wanted, &provided) != MPI_SUCCESS) {
        psc_log(PSC_LOG_ERROR, "MPI cannot be initialised; without mpirun use --local");
        return PSC_INTERNAL;
    }
    psc_process_set_abort(abort_job);
    MPI_Comm world = MPI_COMM_WORLD;
    int rank = 0;
    (void)MPI_Comm_rank(world, &rank);
    int status = psw_run_mpi(&world, rank, options, stop, failed);
    (void)MPI_Finalize();
    return status;
}

int main(int argc, char *argv[])
{
    psw_train_options_t options = {0};
    psc_parse_result_t result;
    psc_error_t error = PSC_ERROR_INIT;
    psw_stop_t stop;
    psc_status_t st = parse(argc, argv, &options, &result, &error);
    if (st == PSC_OK && result == PSC_PARSE_EXIT)
        return psc_output_end(0);
    (void)signal(SIGPIPE, SIG_IGN); /* who reads the progress may leave before the end */
    bool alone = options.local || has_word(argc, argv, "--local");
    if (alone && among_ranks()) {
        /* Said through the job, so that servers that wait for this rank end as well. */
        error = (psc_error_t)PSC_ERROR_INIT;
        st = psc_error_set(&error, PSC_INVALID_ARGUMENT,
                           "--local runs alone: start it without mpirun");
    } else if (st != PSC_OK && (!under_mpi() || alone)) {
        psc_log(PSC_LOG_ERROR, "%s", error.message);
        return (int)st;
    }
    psw_stop_init(&stop);
    if (st == PSC_OK && options.local)
        return psw_run_local(&options, &stop);
    return run_rank(argc, argv, &options, &stop, &error);
}
