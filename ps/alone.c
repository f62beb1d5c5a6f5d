/*
 * embps-server as one process, without MPI: a server of one, whose clients are all guests.
 *
 * MPI is not even initialised: it would look for a network, and keep a core busy. The id of the run
 * is a random number, or that of the checkpoint that it goes on from. The order of the end:
 * signal; guests are sent away, and the last checkpoint is made (ps_server_run); store
 * closed and marked clean; port file; the door, whose last calls end as UNAVAILABLE.
 *
 * Threads: this one owns the server; one waits for signals; the store's; those of gRPC.
 */
#include "ps/alone.h"

#include "common/clock.h"
#include "common/log.h"
#include "proto/grpc/grpc_server.h"
#include "ps/listening.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define POOL_KEEP_BYTES ((size_t)8 << 20)

typedef struct alone {
    const ps_server_arguments_t *arguments;
    psp_pool_t *pool;
    psp_transport_t *door;
    ps_server_t *server;
    ps_signal_watch_t *watch;
} alone_t;

bool ps_is_rank(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        if (getenv(variables[i]) != NULL)
            return true;
    }
    return false;
}

static uint64_t make_cluster_id(void)
{
    uint64_t cluster = 0;
    while (cluster == 0) {
        ssize_t got = getrandom(&cluster, sizeof cluster, 0);
        if (got != (ssize_t)sizeof cluster && errno != EINTR)
            cluster = psc_clock_us();
    }
    return cluster;
}

static psc_status_t open_all(alone_t *alone, const char *address[1], psc_error_t *error)
{
    const ps_server_arguments_t *arguments = alone->arguments;
    psc_status_t st = psp_pool_create(POOL_KEEP_BYTES, &alone->pool, error);
    if (st == PSC_OK)
        st = ps_listening_open(arguments, 0, alone->pool, NULL, &alone->door, error);
    if (st != PSC_OK)
        return st;
    address[0] = psp_door_address(alone->door);
    const ps_server_options_t options = {
        .data = arguments->data,
        .memory_bytes = arguments->memory_bytes,
        .cluster = make_cluster_id(),
        .n_servers = 1,
        .pool = alone->pool,
        .direct = PS_DIRECT_OFF,
        .n_guests = (uint32_t)arguments->guests,
        .lease_us = (uint64_t)(arguments->lease_s * 1e6),
        .checkpoints = arguments->checkpoints,
        .resume = arguments->resume,
        .resets = arguments->reset_optimizer.items,
        .n_resets = arguments->reset_optimizer.n,
        .weights = arguments->weights,
        .read_only = arguments->read_only,
        .keep = arguments->keep,
        .checkpoint_every_us = (uint64_t)(arguments->checkpoint_every_s * 1e6),
        .durability = arguments->durability,
        .same_run = true,
        .addresses = address,
    };
    st = ps_server_open(&options, &alone->server, error);
    if (st == PSC_OK)
        st = ps_signals_watch(alone->server, true, &alone->watch, error);
    if (st == PSC_OK)
        ps_listening_begin(arguments, alone->door);
    if (st == PSC_OK && arguments->port_file != NULL)
        st = ps_listening_write(arguments->port_file, address, 1, error);
    if (st == PSC_OK)
        psc_log(PSC_LOG_INFO,
                "alone, run %016" PRIx64 ", data %s, memory %" PRIu64 " bytes, goes on from %s",
                ps_server_cluster(alone->server), arguments->data, arguments->memory_bytes,
                ps_server_resumed(alone->server) != NULL ? ps_server_resumed(alone->server)
                                                         : "nothing");
    return st;
}

psc_status_t ps_alone_run(const ps_server_arguments_t *arguments)
{
    alone_t alone = {.arguments = arguments};
    const char *address[1] = {NULL};
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = open_all(&alone, address, &error);
    const bool opened = st == PSC_OK;
    if (opened)
        st = ps_server_run(alone.server, alone.door, &error);
    ps_signals_unwatch(alone.watch);
    psc_error_t closing = PSC_ERROR_INIT;
    psc_status_t closed = ps_server_close(alone.server, st != PSC_OK, !opened, &closing);
    if (st == PSC_OK && closed != PSC_OK) {
        st = closed;
        error = closing;
    }
    if (opened && arguments->port_file != NULL)
        (void)unlink(arguments->port_file);
    psp_transport_destroy(alone.door);
    psp_pool_destroy(alone.pool);
    if (st != PSC_OK)
        psc_log(PSC_LOG_ERROR, "%s", error.message);
    return st;
}
