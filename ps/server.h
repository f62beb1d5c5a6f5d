/*
 * A server: data directory, store, shard and a transport, and the loop that drives them.
 *
 * ps/main.c runs one over MPI; worker/local_shard.c runs one on a thread over local queues.
 */
#ifndef PS_SERVER_H
#define PS_SERVER_H

#include "proto/transport.h"
#include "ps/table/shard.h"

typedef struct ps_server ps_server_t;

typedef struct ps_server_options {
    const char *data;      /* directory; server-N below it is made and used */
    uint64_t memory_bytes; /* at least 8 MiB */
    uint64_t cluster;      /* id of this run */
    uint32_t rank, n_servers, n_workers;
    psp_pool_t *pool; /* borrowed */
    ps_direct_t direct;
} ps_server_options_t;

/*
 * Claims the data directory and opens the store. On error nothing that was not there before is
 * left. Errors: UNCLEAN, IN_USE, IO, DISK_FULL, INVALID_ARGUMENT, NO_MEMORY, each with what to do.
 * Gives.
 */
PSC_MUST_CHECK psc_status_t ps_server_open(const ps_server_options_t *options,
                                           ps_server_t **server_out, psc_error_t *error);

/* Serves until all workers have left. transport: borrowed. Errors: what ended it early. */
PSC_MUST_CHECK psc_status_t ps_server_run(ps_server_t *server, psp_transport_t *transport,
                                          psc_error_t *error);

/* After run: the worst status a worker left with. */
uint32_t ps_server_worst_status(const ps_server_t *server);

/*
 * failed false: writes back, syncs, marks the directory clean. true: leaves it marked unclean.
 * discard true: the job never started; removes what open made. Frees in any case. NULL is a no-op.
 */
PSC_MUST_CHECK psc_status_t ps_server_close(ps_server_t *server, bool failed, bool discard,
                                            psc_error_t *error);

#endif
