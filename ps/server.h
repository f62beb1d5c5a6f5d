/*
 * A server: data directory, store, shard and a transport, and the loop that drives them.
 *
 * ps/main.c runs one over MPI; worker/local_shard.c runs one on a thread over local queues.
 */
#ifndef PS_SERVER_H
#define PS_SERVER_H

#include "proto/transport.h"
#include "ps/rounds.h"
#include "ps/server_log.h"
#include "ps/watch.h"

typedef struct ps_server ps_server_t;

/* What a server sees of the processes of its job. All on the owner's thread; none waits. */
typedef struct ps_surroundings {
    void *context;
    ps_sight_t (*look)(void *context, uint32_t worker);
    /* "host, process 123" of a worker, NUL-terminated. */
    void (*describe)(void *context, uint32_t worker, char *text, size_t size);
    void (*tell_servers)(void *context, const ps_vote_t *vote); /* all other servers */
    bool (*hear_server)(void *context, ps_vote_t *vote_out, uint32_t *server_out);
} ps_surroundings_t;

/* How several servers make checkpoints together: words that come in the order in which they were
 * told, or the job ends. Both on the owner's thread; none waits. */
typedef struct ps_fellows {
    void *context;
    void (*tell)(void *context, uint32_t server, const ps_round_word_t *word);
    bool (*hear)(void *context, ps_round_word_t *word_out, uint32_t *server_out);
} ps_fellows_t;

typedef struct ps_server_options {
    const char *data;      /* directory; server-N below it is made and used */
    uint64_t memory_bytes; /* at least 8 MiB */
    uint64_t cluster;      /* id of this run */
    uint32_t rank, n_servers, n_workers;
    psp_pool_t *pool; /* borrowed */
    ps_direct_t direct;
    const ps_surroundings_t *surroundings; /* borrowed; NULL: workers cannot be lost */
    ps_loss_rule_t on_loss;
    uint64_t stopped_us; /* a worker that is stopped, or silent, for so long is lost; 0: never */
    uint32_t n_guests;   /* how many may be here at a time; 0: none, and there must be workers */
    uint64_t lease_us;   /* of a guest that says nothing; 0: for ever */
    const char *checkpoints;   /* their folder; NULL: none are made */
    const char *resume;        /* "auto", "none" or the name of one */
    const char *const *resets; /* [n_resets] texts of ps_restore_reset. Borrowed */
    size_t n_resets;           /* not 0: there must be a checkpoint to go on from */
    const char
        *weights; /* DIR/NAME of a checkpoint whose weights are taken where there is none to go
                            on from; NULL: none */
    bool
        read_only; /* serves the checkpoint and refuses whatever changes it; writes nothing there */
    uint64_t keep; /* checkpoints that stay; 0: all */
    bool same_run; /* the run goes on under the checkpoint's id, and guests with it */
    ps_durability_t durability;   /* PUSH and SYNC need checkpoints */
    uint64_t checkpoint_every_us; /* servers make one by themselves so often; 0: never */
    const ps_fellows_t *fellows;  /* borrowed; NULL: several make none by themselves */
    const char *const
        *addresses; /* [n_servers] where guests reach the servers, or NULL. Borrowed */
} ps_server_options_t;

/*
 * Claims the data directory and opens the store, as the checkpoint to go on from has it. On error
 * nothing that was not there before is left. Errors: UNCLEAN, IN_USE, IO, DISK_FULL,
 * INVALID_ARGUMENT, NO_MEMORY, and those of ps_restore_find, each with what to do.
 * Gives.
 */
PSC_MUST_CHECK psc_status_t ps_server_open(const ps_server_options_t *options,
                                           ps_server_t **server_out, psc_error_t *error);

/* Serves until all workers have left, without workers until ps_server_stop. Then guests are sent
 * away: what they have under way is finished within seconds or refused. A server of one, or
 * several without workers, then makes a last checkpoint, if it makes any. transport: borrowed.
 * Errors: what ended it early. */
PSC_MUST_CHECK psc_status_t ps_server_run(ps_server_t *server, psp_transport_t *transport,
                                          psc_error_t *error);

/* Ends the present run, or the next one. Any thread. */
void ps_server_stop(ps_server_t *server);

/* A signal asks for a checkpoint, which is made while the server serves. passed_on: as in
 * ps_rounds_ask. A server that makes none logs that. Any thread. */
void ps_server_ask(ps_server_t *server, bool passed_on);

/* The id of the run, and the name of the checkpoint that it went on from; NULL: none. */
uint64_t ps_server_cluster(const ps_server_t *server);
const char *ps_server_resumed(const ps_server_t *server);

/* After run: the worst status a worker left with; PEER_GONE when some were lost and the others
 * ended well. */
uint32_t ps_server_worst_status(const ps_server_t *server);
/* After run, or during it: workers that were lost. */
uint32_t ps_server_lost(const ps_server_t *server);

/*
 * failed false: writes back, syncs, marks the directory clean, but not where workers that were
 * stopped will go on from a checkpoint; where the last checkpoint could not be made, its error is
 * returned. true: leaves it marked unclean. discard true: the job never started; removes what open
 * made. Frees in any case. NULL is a no-op.
 */
PSC_MUST_CHECK psc_status_t ps_server_close(ps_server_t *server, bool failed, bool discard,
                                            psc_error_t *error);

#endif
