/* A whole server in this process, on a thread of its own, with its clients. Internal to worker/. */
#ifndef WORKER_LOCAL_SHARD_H
#define WORKER_LOCAL_SHARD_H

#include "worker/client.h"
#include "worker/client_state.h"

#define PSW_LOCAL_WORKERS_MAX 4096u

/*
 * Starts a server and connects options->n_workers clients to it; each one's home is the shard. The
 * last client that leaves joins the thread and closes the server; only that one's close returns the
 * server's own error. On error nothing is left. Errors: as embps_connect_local. Gives the clients.
 */
PSC_MUST_CHECK psc_status_t psw_local_shard_start(const embps_local_options_t *options,
                                                  const psw_local_checkpoints_t *checkpoints,
                                                  embps_client_t **clients_out, psc_error_t *error);

#endif
