/*
 * Finding the servers of an address: one is asked, and says who else there is; then hello is said
 * to all of them. Internal to worker/. One thread: the caller's, which waits.
 */
#ifndef WORKER_REACH_H
#define WORKER_REACH_H

#include "worker/client_state.h"

/* How long is waited, and who is told. Plain data, filled by its owner; borrows. */
typedef struct psw_patience {
    const char *address;
    embps_connect_options_t options;
    uint64_t begin_us, end_us, told_us;
    uint64_t look_us;   /* when a port is looked at next */
    uint32_t n_guesses; /* looks in a row that told what may be wrong */
    char refused[240];  /* why the attempt before this one failed; "": it is the first */
    bool mixed;         /* servers answered that do not belong together: a moment later they may */
} psw_patience_t;

/* What the first server said. */
typedef struct psw_reached {
    uint64_t cluster;
    uint32_t n_servers;
    char **addresses; /* [n_servers] */
} psw_reached_t;

/* Tells who wants to know what is waited for, once a second at most. why: "" where nothing is known
 * but what the last attempt failed for. */
void psw_patience_tell(psw_patience_t *patience, uint64_t now_us, const char *why);

/*
 * Asks the server at patience->address, over a connection of its own. Errors: TIMEOUT, PEER_GONE
 * (nobody is there in time, or will be), MISMATCH (of another run than options.cluster), BUSY (it
 * has no free seat), PROTOCOL, UNSUPPORTED, NO_MEMORY, what the server answers. Gives; clear takes
 * it back.
 */
PSC_MUST_CHECK psc_status_t psw_reach_first(psw_patience_t *patience, psp_pool_t *pool,
                                            psw_reached_t *reached, psc_error_t *error);
void psw_reached_clear(psw_reached_t *reached);

/* A transport to all of them. Errors: NO_MEMORY, INVALID_ARGUMENT (certificates, addresses). Gives.
 */
PSC_MUST_CHECK psc_status_t psw_reach_transport(const psw_patience_t *patience,
                                                const psw_reached_t *reached, psp_pool_t *pool,
                                                psp_transport_t **transport_out,
                                                psc_error_t *error);

/* Hello to all over the client's transport, and signs of life from then on. Errors: as
 * psw_reach_first; MISMATCH (mixed is set): not all are of one run and layout. */
PSC_MUST_CHECK psc_status_t psw_reach_all(psw_patience_t *patience, embps_client_t *client,
                                          psc_error_t *error);

#endif
