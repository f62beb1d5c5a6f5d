/*
 * The local mode: a server on a thread of this process and clients on local queues.
 *
 * The one file of worker/ that includes ps/: nothing else of the client knows servers.
 *
 * Threads: the starter's thread opens the server and connects the clients; the shard's thread runs
 * and closes the server; each client is then used by its own thread; the client that leaves last
 * joins the shard's thread and frees everything, endpoints too, so that the shard's thread may wake
 * any endpoint as long as it lives. Shared: `ended` (set once by the shard's thread, after
 * `run_error` is written) and `remaining`. All signals are blocked on threads that start here, so
 * that a program's handlers run on its own threads.
 *
 * A server that ends early answers what it can, then sets `ended`; a client that waits finds no
 * message, asks alive(), polls once more and fails with the server's own error, so nobody hangs.
 */
#include "worker/local_shard.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "proto/local/local_transport.h"
#include "ps/server.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>

#define POOL_KEEP_BYTES ((size_t)32 << 20)

typedef struct local_shard {
    psp_pool_t *pool;
    psp_transport_t *server_end;
    psp_transport_t **client_ends; /* n_workers */
    ps_server_t *server;           /* the shard's thread, once that runs */
    uint32_t n_workers;
    pthread_t thread;
    atomic_uint remaining;   /* clients that have not left */
    atomic_bool ended;       /* the server answers no more */
    psc_error_t run_error;   /* written before ended is set */
    psc_error_t close_error; /* written before the thread ends */
} local_shard_t;

static void *run_server(void *context)
{
    local_shard_t *shard = context;
    psc_status_t st = ps_server_run(shard->server, shard->server_end, &shard->run_error);
    atomic_store_explicit(&shard->ended, true, memory_order_release);
    for (uint32_t i = 0; i < shard->n_workers; i++)
        psp_transport_wake(shard->client_ends[i]);
    psc_status_t closed = ps_server_close(shard->server, st != PSC_OK, false, &shard->close_error);
    if (closed == PSC_OK)
        shard->close_error.code = PSC_OK;
    return NULL;
}

static psc_status_t alive(void *context, psc_error_t *error)
{
    local_shard_t *shard = context;
    if (!atomic_load_explicit(&shard->ended, memory_order_acquire))
        return PSC_OK;
    if (shard->run_error.code == PSC_OK)
        return psc_error_set(error, PSC_PEER_GONE, "the server in this process has ended");
    *error = shard->run_error;
    return error->code;
}

static void free_shard(local_shard_t *shard)
{
    psp_transport_destroy(shard->server_end);
    for (uint32_t i = 0; shard->client_ends != NULL && i < shard->n_workers; i++)
        psp_transport_destroy(shard->client_ends[i]);
    psc_free(shard->client_ends);
    psp_pool_destroy(shard->pool);
    psc_free(shard);
}

/* A client has left (its goodbye is said); the last one ends the shard. */
static psc_status_t leave_shard(void *context, bool orderly, psc_error_t *error)
{
    (void)orderly;
    local_shard_t *shard = context;
    if (atomic_fetch_sub_explicit(&shard->remaining, 1, memory_order_acq_rel) != 1)
        return PSC_OK;
    if (pthread_join(shard->thread, NULL) != 0)
        return psc_error_set(error, PSC_INTERNAL, "the server's thread cannot be joined");
    const psc_error_t what =
        shard->run_error.code != PSC_OK ? shard->run_error : shard->close_error;
    free_shard(shard);
    if (what.code != PSC_OK)
        *error = what;
    return what.code;
}

static uint64_t random_cluster(void)
{
    uint64_t id = 0;
    if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id || id == 0)
        id = psc_mix64(psc_clock_us() ^ (uint64_t)getpid() << 40) | 1; /* never 0 */
    return id;
}

static psc_status_t make_shard(const embps_local_options_t *options, local_shard_t **shard_out,
                               psc_error_t *error)
{
    local_shard_t *shard = psc_alloc_zeroed(1, sizeof *shard);
    if (shard == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a server in this process");
    shard->run_error = shard->close_error = (psc_error_t)PSC_ERROR_INIT;
    shard->n_workers = options->n_workers;
    atomic_init(&shard->remaining, options->n_workers);
    atomic_init(&shard->ended, false);
    psc_status_t st = PSC_OK;
    shard->client_ends = psc_alloc_zeroed(options->n_workers, sizeof *shard->client_ends);
    if (shard->client_ends == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for %u clients", options->n_workers);
    if (st == PSC_OK)
        st = psp_pool_create(POOL_KEEP_BYTES, &shard->pool, error);
    if (st == PSC_OK)
        st = psp_local_create(options->n_workers, shard->pool, &shard->server_end,
                              shard->client_ends, error);
    if (st != PSC_OK) {
        free_shard(shard);
        return st;
    }
    *shard_out = shard;
    return PSC_OK;
}

/* Opens the server and starts its thread. On error the server is gone again. */
static psc_status_t start_server(local_shard_t *shard, const embps_local_options_t *options,
                                 const psw_local_checkpoints_t *checkpoints, uint64_t cluster,
                                 psc_error_t *error)
{
    const ps_server_options_t server_options = {.data = options->data,
                                                .memory_bytes = options->memory_bytes,
                                                .cluster = cluster,
                                                .rank = 0,
                                                .n_servers = 1,
                                                .n_workers = options->n_workers,
                                                .pool = shard->pool,
                                                .direct = PS_DIRECT_AUTO,
                                                .checkpoints = checkpoints->folder,
                                                .resume = checkpoints->resume,
                                                .keep = checkpoints->keep,
                                                .durability = PS_DURABILITY_CHECKPOINT};
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    int failed = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (failed != 0)
        return psc_error_set_errno(error, failed, "signals cannot be blocked");
    psc_status_t st = ps_server_open(&server_options, &shard->server, error);
    if (st == PSC_OK) {
        failed = pthread_create(&shard->thread, NULL, run_server, shard);
        if (failed != 0) {
            st = psc_error_set_errno(error, failed, "the server's thread cannot be started");
            psc_error_t ignored = PSC_ERROR_INIT;
            if (ps_server_close(shard->server, true, true, &ignored) != PSC_OK)
                shard->server = NULL; /* the first error is the one to report */
        }
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

/*
 * A connection failed with the server running: it ends only when every worker has said goodbye, so
 * a client without a session gets one more try, over a new core.
 */
static psc_status_t retract(local_shard_t *shard, embps_client_t *client, uint64_t cluster,
                            const psc_error_t *why)
{
    psc_status_t st = PSC_OK;
    if (!psw_core_has_session(client->driver.core, 0)) {
        embps_client_t *second;
        st = psw_client_create(client->driver.transport, shard->pool, cluster, &second, NULL);
        psw_client_destroy(client);
        if (st != PSC_OK)
            return st;
        client = second;
        client->driver.alive = alive;
        client->driver.alive_context = shard;
        st = psw_client_hello(client, NULL);
    }
    if (st == PSC_OK)
        psw_driver_leave(&client->driver, why, (uint32_t)why->code, 0);
    psw_client_destroy(client);
    return st;
}

static psc_status_t connect_all(local_shard_t *shard, uint64_t cluster, embps_client_t **clients,
                                psc_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = PSC_OK;
    for (uint32_t i = 0; i < shard->n_workers && st == PSC_OK; i++)
        st = psw_client_hello(clients[i], &what);
    if (st == PSC_OK)
        return PSC_OK;
    bool stuck = false;
    for (uint32_t i = 0; i < shard->n_workers; i++) {
        psc_status_t left = retract(shard, clients[i], cluster, &what);
        clients[i] = NULL;
        stuck = stuck || (left != PSC_OK && !atomic_load(&shard->ended));
    }
    if (stuck) { /* no memory twice: the thread stays with what it uses */
        (void)pthread_detach(shard->thread);
    } else {
        psc_error_t ignored = PSC_ERROR_INIT;
        atomic_store(&shard->remaining, 1);
        if (leave_shard(shard, false, &ignored) != PSC_OK && what.code == PSC_PEER_GONE)
            what = ignored;
    }
    if (error != NULL)
        *error = what;
    return st;
}

psc_status_t psw_local_shard_start(const embps_local_options_t *options,
                                   const psw_local_checkpoints_t *checkpoints,
                                   embps_client_t **clients_out, psc_error_t *error)
{
    local_shard_t *shard = NULL;
    psc_status_t st = make_shard(options, &shard, error);
    if (st != PSC_OK)
        return st;
    const uint64_t cluster = random_cluster();
    embps_client_t **clients = psc_alloc_zeroed(options->n_workers, sizeof *clients);
    if (clients == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for %u clients", options->n_workers);
    for (uint32_t i = 0; i < options->n_workers && st == PSC_OK; i++) {
        st = psw_client_create(shard->client_ends[i], shard->pool, cluster, &clients[i], error);
        if (st == PSC_OK) {
            clients[i]->driver.alive = alive;
            clients[i]->driver.alive_context = shard;
            clients[i]->home = (psw_home_t){.leave = leave_shard, .context = shard};
        }
    }
    if (st == PSC_OK)
        st = start_server(shard, options, checkpoints, cluster, error);
    if (st != PSC_OK) {
        for (uint32_t i = 0; clients != NULL && i < options->n_workers; i++)
            psw_client_destroy(clients[i]);
        psc_free(clients);
        free_shard(shard);
        return st;
    }
    st = connect_all(shard, cluster, clients, error);
    if (st == PSC_OK)
        memcpy(clients_out, clients, options->n_workers * sizeof *clients);
    psc_free(clients);
    return st;
}
