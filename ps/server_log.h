/*
 * A server's log of what changed it: looked at and replayed at the start, written while it serves.
 *
 *     ps_server_log_find(&options, restore, &log, error);    // before anything is claimed
 *     ps_server_log_open(log, shard, error);                 // behind the restored checkpoint
 *     ps_server_log_begin(log);                              // the run has begun
 *     ps_server_log_stop(log); ps_server_log_close(log, discard);
 *
 * Threads: the owner's.
 */
#ifndef PS_SERVER_LOG_H
#define PS_SERVER_LOG_H

#include "ps/checkpoint/restore.h"
#include "ps/store/io.h"

typedef struct ps_server_log ps_server_log_t;

/* Against what an acknowledged push is safe. */
typedef enum ps_durability {
    PS_DURABILITY_NONE,       /* nothing */
    PS_DURABILITY_CHECKPOINT, /* the end of a process, once a checkpoint has it */
    PS_DURABILITY_PUSH,       /* the end of every process */
    PS_DURABILITY_SYNC,       /* and of the machine */
} ps_durability_t;

typedef struct ps_server_log_options {
    const char *checkpoints; /* their folder */
    uint64_t lineage;
    uint32_t rank, n_servers, n_workers;
    ps_durability_t durability;
    const char *resume; /* "auto", "none", or a name */
    ps_wake_fn wake;
    void *wake_context;
} ps_server_log_options_t;

/*
 * Finds what the run goes on from. *log_out NULL: there is no log, and none is to be written.
 * Borrows restore (NULL: no checkpoint) and what options point to. Errors: those of
 * ps_log_chain_find. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_server_log_find(const ps_server_log_options_t *options,
                                               const ps_restore_t *restore,
                                               ps_server_log_t **log_out, psc_error_t *error);

/* The id of a run without workers that goes on from no checkpoint: the same as before a crash. */
uint64_t ps_server_log_cluster(const ps_server_log_t *log);

/* Replays it into the shard, begins a segment, and hands the shard what writes. Errors: those of
 * ps_log_replay and ps_log_chain_begin. NULL is a no-op. */
PSC_MUST_CHECK psc_status_t ps_server_log_open(ps_server_log_t *log, ps_shard_t *shard,
                                               psc_error_t *error);

/* What does not count any more is removed. NULL is a no-op. */
void ps_server_log_begin(const ps_server_log_t *log);

/* Ends the thread, before the shard goes. NULL is a no-op. */
void ps_server_log_stop(ps_server_log_t *log);

/* discard: the job never started, and leaves no segment. Frees. NULL is a no-op. */
void ps_server_log_close(ps_server_log_t *log, bool discard);

#endif
