/*
 * A server's own checkpoints: its shard's saver, the other servers and the log as what ps/rounds.h
 * asks for.
 *
 * Threads: the owner's, unless said otherwise.
 */
#ifndef PS_SERVER_ROUNDS_H
#define PS_SERVER_ROUNDS_H

#include "ps/server.h"

typedef struct ps_server_rounds ps_server_rounds_t;

typedef struct ps_server_rounds_options {
    uint32_t rank, n_servers;
    uint64_t every_us;           /* as in ps_rounds_options_t */
    bool last;                   /* the same */
    ps_shard_t *shard;           /* borrowed; makes checkpoints */
    const ps_fellows_t *fellows; /* borrowed; NULL for a server of one */
} ps_server_rounds_options_t;

/* Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t ps_server_rounds_create(const ps_server_rounds_options_t *options,
                                                    ps_server_rounds_t **rounds_out,
                                                    psc_error_t *error);
/* NULL is a no-op. */
void ps_server_rounds_destroy(ps_server_rounds_t *rounds);

/* A signal asks for a checkpoint; see ps_rounds_ask. Any thread. */
void ps_server_rounds_ask(ps_server_rounds_t *rounds, bool passed_on);

/* At every turn of the loop. */
void ps_server_rounds_step(ps_server_rounds_t *rounds, uint64_t now_us, bool *progress_out);

/* When a step will have something to do by itself; UINT64_MAX: never. */
uint64_t ps_server_rounds_next(const ps_server_rounds_t *rounds);

/*
 * The loop has ended: goes on until all servers have left and the last checkpoint is made, if one
 * is to be. saved_out: its name, or "". fault_out: why it was not made. Errors: the shard's, in
 * whose middle this ends.
 */
PSC_MUST_CHECK psc_status_t ps_server_rounds_end(ps_server_rounds_t *rounds,
                                                 psp_transport_t *transport,
                                                 char saved_out[PSP_CHECKPOINT_NAME_MAX + 1],
                                                 psc_error_t *fault_out, psc_error_t *error);

#endif
