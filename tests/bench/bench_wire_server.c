/*
 * The server rank of `embps-bench wire`: a real server, which now and then takes part in the
 * exchange that it is compared with.
 *
 * The server runs as in embps-server, over its MPI transport, with memory for all rows. Around that
 * transport lies a detour: behind a Barrier (which the worker sends before each run of the
 * exchange, and which has been answered by then) the next poll serves one run of the exchange
 * first. So both sides have one process, one processor and one pair of ranks, and never run at
 * once. Beside the server's rows there is the array of the exchange with the same values.
 */
#include "common/alloc.h"
#include "proto/mpi/mpi_transport.h"
#include "ps/server.h"
#include "tests/bench/bench_cases.h"
#include "tests/bench/bench_exchange.h"
#include "tests/bench/bench_folder.h"
#include "tests/bench/bench_wire.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define POOL_KEEP_BYTES ((size_t)8 << 20) /* as embps-server */
#define WORKER_RANK 1
#define GATHER_AHEAD 16

typedef struct detour {
    psp_transport_t base; /* first */
    psp_transport_t *inner;
    const bench_wire_setup_t *setup;
    MPI_Comm comm; /* of the exchange */
    bench_plain_t *plain;
    bool due; /* the next poll serves a run of the exchange */
} detour_t;

static detour_t *detour_of(psp_transport_t *transport)
{
    return (detour_t *)transport; /* base is the first member */
}

static psc_status_t detour_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                                psc_error_t *error)
{
    return psp_transport_send(detour_of(transport)->inner, peer, buffer, error);
}

static psc_status_t detour_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                                psc_error_t *error)
{
    detour_t *detour = detour_of(transport);
    if (detour->due) {
        detour->due = false;
        psc_status_t st = bench_exchange_serve(&detour->comm, WORKER_RANK, detour->setup->max_batch,
                                               detour->plain, BENCH_RATE, error);
        if (st != PSC_OK)
            return st;
    }
    psc_status_t st = psp_transport_poll(detour->inner, buffer_out, error);
    if (st == PSC_OK && *buffer_out != NULL && (*buffer_out)->kind == PSP_BARRIER)
        detour->due = true;
    return st;
}

static void detour_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    if (!detour_of(transport)->due)
        psp_transport_wait(detour_of(transport)->inner, timeout_us);
}

static void detour_wake(psp_transport_t *transport)
{
    psp_transport_wake(detour_of(transport)->inner);
}

static size_t detour_backlog(psp_transport_t *transport, uint32_t peer)
{
    return psp_transport_backlog(detour_of(transport)->inner, peer);
}

static psc_status_t detour_flush(psp_transport_t *transport, uint64_t timeout_us,
                                 psc_error_t *error)
{
    return psp_transport_flush(detour_of(transport)->inner, timeout_us, error);
}

static const psp_transport_ops_t detour_ops = {
    .name = "detour",
    .send = detour_send,
    .poll = detour_poll,
    .wait = detour_wait,
    .wake = detour_wake,
    .backlog = detour_backlog,
    .flush = detour_flush,
};

/* ---- one server ---- */

typedef struct home {
    bench_folder_t folder;
    psp_mpi_job_t *job;
    psp_pool_t *pool;
    psp_transport_t *transport;
    ps_server_t *server;
    bench_plain_t plain;
    detour_t detour;
} home_t;

static psc_status_t open_server(const bench_wire_setup_t *setup, size_t dim, bool direct,
                                home_t *home, psc_error_t *error)
{
    bench_shard_options_t shape = {.dim = dim, .optimizer = "sgd", .batch = 1};
    uint64_t memory_bytes;
    psc_status_t st = bench_folder_make(setup->dir, &home->folder, error);
    if (st == PSC_OK)
        st = bench_shard_memory(&shape, setup->rows + setup->rows / 4 + 2 * setup->max_batch,
                                &memory_bytes, error);
    if (st == PSC_OK)
        st = psp_pool_create(POOL_KEEP_BYTES, &home->pool, error);
    if (st != PSC_OK)
        return st;
    /* Below this the server would ask for smaller messages. */
    uint64_t least_bytes = (uint64_t)64 << 20;
    ps_server_options_t options = {.data = home->folder.path,
                                   .memory_bytes =
                                       memory_bytes > least_bytes ? memory_bytes : least_bytes,
                                   .cluster = psp_mpi_job_cluster(home->job),
                                   .rank = 0,
                                   .n_servers = 1,
                                   .n_workers = 1,
                                   .pool = home->pool,
                                   .direct = direct ? PS_DIRECT_ON : PS_DIRECT_OFF};
    st = ps_server_open(&options, &home->server, error);
    if (st == PSC_OK)
        st = psp_mpi_transport_create(home->job, home->pool, PSP_MAX_MESSAGE_BYTES,
                                      &home->transport, error);
    if (st == PSC_OK)
        st = bench_plain_create(dim, setup->rows, BENCH_PLAIN_SGD, &home->plain, error);
    if (st != PSC_OK)
        return st;
    home->plain.ahead = GATHER_AHEAD;
    for (size_t row = 0; row < setup->rows; row++)
        bench_fill_row(home->plain.rows + row * home->plain.stride, dim, row);
    return PSC_OK;
}

/* Leaves all rows unwritten. */
static void close_server(home_t *home)
{
    if (ps_server_close(home->server, true, false, NULL) != PSC_OK)
        (void)fprintf(stderr, "embps-bench: a server did not close in order\n");
    psp_transport_destroy(home->transport);
    psp_pool_destroy(home->pool);
    bench_plain_clear(&home->plain);
    bench_folder_remove(&home->folder);
}

static psc_status_t serve_dim(const bench_wire_setup_t *setup, size_t dim, bool direct,
                              MPI_Comm exchange, psc_error_t *error)
{
    MPI_Comm world = MPI_COMM_WORLD;
    home_t home = {0};
    bool reporter;
    psc_status_t st = setup->checksums
                          ? psp_mpi_job_create_checked(&world, PSP_MPI_SERVER, &home.job, error)
                          : psp_mpi_job_create(&world, PSP_MPI_SERVER, &home.job, error);
    if (st != PSC_OK)
        return st;
    psc_error_t own = PSC_ERROR_INIT;
    if (open_server(setup, dim, direct, &home, &own) == PSC_OK)
        own.code = PSC_OK;
    st = psp_mpi_job_agree_all(home.job, &own, &reporter);
    if (st != PSC_OK) {
        *error = own;
    } else {
        home.detour = (detour_t){
            .base = *home.transport, .inner = home.transport, .setup = setup, .comm = exchange};
        home.detour.base.ops = &detour_ops;
        home.detour.plain = &home.plain;
        st = ps_server_run(home.server, &home.detour.base, error);
    }
    close_server(&home);
    if (st == PSC_OK)
        psp_mpi_job_destroy(home.job);
    return st;
}

psc_status_t bench_wire_serve(const bench_wire_setup_t *setup, psc_error_t *error)
{
    MPI_Comm exchange;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &exchange) != MPI_SUCCESS)
        return psc_error_set(error, PSC_IO, "MPI has no communicator for the exchange");
    psc_status_t st = PSC_OK;
    for (size_t d = 0; st == PSC_OK && d < setup->n_dims; d++) {
        if (setup->pull || setup->push)
            st = serve_dim(setup, setup->dims[d], false, exchange, error);
        if (st == PSC_OK && setup->direct)
            st = serve_dim(setup, setup->dims[d], true, exchange, error);
    }
    if (st == PSC_OK)
        (void)MPI_Comm_free(&exchange);
    return st;
}
