/*
 * The three ways to a client: over a job that exists, over a communicator, and local.
 *
 * Over MPI a client owns its pool and transport, and the job when it made it. psp_mpi_job_destroy
 * is collective, so it is called only where the goodbyes were answered; a client that was abandoned
 * leaves the job to the end of the process, which is near. In a job that goes on without a lost
 * worker, on several machines, the client gives the servers signs of life, from a thread of its own
 * (common/ticker.h) that ends before transport and job do. Local clients belong to a local shard
 * (local_shard.h), which outlives them.
 */
#include "common/alloc.h"
#include "common/run_status.h"
#include "common/ticker.h"
#include "worker/client_state.h"
#include "worker/local_shard.h"

#define POOL_KEEP_BYTES ((size_t)64 << 20)
#define BEAT_US UINT64_C(500000) /* between two signs of life */

typedef struct mpi_home {
    psp_mpi_job_t *job; /* owned, or NULL when the caller keeps it */
    psp_pool_t *pool;
    psp_transport_t *transport;
    psc_ticker_t *beat; /* NULL: none is needed, or possible */
} mpi_home_t;

static psc_status_t leave_mpi(void *context, bool orderly, psc_error_t *error)
{
    (void)error;
    mpi_home_t *home = context;
    psc_ticker_stop(home->beat);
    psp_transport_destroy(home->transport);
    psp_pool_destroy(home->pool);
    if (orderly)
        psp_mpi_job_destroy(home->job);
    psc_free(home);
    return PSC_OK;
}

static void give_sign_of_life(void *job)
{
    psp_mpi_job_beat(job);
}

static psc_status_t connect_job(psp_mpi_job_t *job, bool own, embps_client_t **client_out,
                                psc_error_t *error)
{
    mpi_home_t *home = psc_alloc_zeroed(1, sizeof *home);
    if (home == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a client");
    embps_client_t *client = NULL;
    psc_status_t st = psp_pool_create(POOL_KEEP_BYTES, &home->pool, error);
    if (st == PSC_OK)
        st = psp_mpi_transport_create(job, home->pool, PSP_MAX_MESSAGE_BYTES, &home->transport,
                                      error);
    if (st == PSC_OK && psc_run_recovers() && psp_mpi_job_can_beat(job))
        st = psc_ticker_start(give_sign_of_life, job, BEAT_US, &home->beat, error);
    if (st == PSC_OK)
        st = psw_client_create(home->transport, home->pool, psp_mpi_job_cluster(job), &client,
                               error);
    if (st == PSC_OK) {
        st = psw_client_hello(client, error);
        if (st != PSC_OK) {
            psc_error_t what = PSC_ERROR_INIT;
            (void)psc_error_set(&what, st, "the connection failed");
            psw_driver_leave(&client->driver, &what, (uint32_t)st, 0);
        }
    }
    if (st != PSC_OK) {
        psw_client_destroy(client);
        psc_error_t ignored = PSC_ERROR_INIT;
        return leave_mpi(home, false, &ignored) == PSC_OK ? st : ignored.code;
    }
    if (own)
        home->job = job;
    client->home = (psw_home_t){.leave = leave_mpi, .context = home, .is_rank = true};
    *client_out = client;
    return PSC_OK;
}

psc_status_t psw_client_connect_job(psp_mpi_job_t *job, embps_client_t **client_out,
                                    psc_error_t *error)
{
    return connect_job(job, false, client_out, error);
}

int embps_connect_mpi(const void *comm, embps_client_t **client_out, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psp_mpi_job_t *job;
    if (comm == NULL || client_out == NULL) {
        (void)psc_error_set(&what, PSC_INVALID_ARGUMENT,
                            "embps_connect_mpi needs the address of a communicator and a place for "
                            "the client");
        return psw_error_export(&what, error);
    }
    psc_status_t st = psp_mpi_job_create(comm, PSP_MPI_WORKER, &job, &what);
    if (st != PSC_OK)
        return psw_error_export(&what, error);
    bool reporter;
    st = psp_mpi_job_agree_all(job, &what, &reporter);
    if (st != PSC_OK) {
        psp_mpi_job_destroy(job); /* all ranks have the same error, and all do this */
        return psw_error_export(&what, error);
    }
    return connect_job(job, true, client_out, &what) == PSC_OK ? 0 : psw_error_export(&what, error);
}

psc_status_t psw_client_connect_local(const embps_local_options_t *options,
                                      const psw_local_checkpoints_t *checkpoints,
                                      embps_client_t **clients_out, psc_error_t *error)
{
    if (options == NULL || clients_out == NULL)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a local connection needs options and a place for its clients");
    if (options->data == NULL || options->data[0] == '\0')
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "option data: a local connection needs a data directory");
    if (options->n_workers == 0 || options->n_workers > PSW_LOCAL_WORKERS_MAX)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "option n_workers: %u; 1 to %u are possible", options->n_workers,
                             PSW_LOCAL_WORKERS_MAX);
    return psw_local_shard_start(options, checkpoints, clients_out, error);
}

int embps_connect_local_many(const embps_local_options_t *options, embps_client_t **clients_out,
                             embps_error_t *error)
{
    const psw_local_checkpoints_t none = {.folder = NULL};
    psc_error_t what = PSC_ERROR_INIT;
    return psw_client_connect_local(options, &none, clients_out, &what) == PSC_OK
               ? 0
               : psw_error_export(&what, error);
}

int embps_connect_local(const embps_local_options_t *options, embps_client_t **client_out,
                        embps_error_t *error)
{
    if (options != NULL && options->n_workers != 1) {
        psc_error_t what = PSC_ERROR_INIT;
        (void)psc_error_set(&what, PSC_INVALID_ARGUMENT,
                            "option n_workers: %u; embps_connect_local gives one client, "
                            "embps_connect_local_many several",
                            options->n_workers);
        return psw_error_export(&what, error);
    }
    return embps_connect_local_many(options, client_out, error);
}
