/*
 * Which segments of a log follow a checkpoint: they form a chain, which is looked at before a run
 * goes on from there, and lengthened by the run.
 *
 * Threads: none; at the start.
 */
#ifndef PS_LOG_LOG_CHAIN_H
#define PS_LOG_LOG_CHAIN_H

#include "ps/log/log_file.h"

/* What a run goes on from. Borrows. */
typedef struct ps_log_start {
    const char *checkpoints; /* their folder */
    uint64_t lineage;        /* of it */
    uint32_t rank, n_servers;
    const char *base;      /* the checkpoint; "": none */
    uint64_t *cut_segment; /* [n_before] by server: what its part says (0: nothing); NULL: none */
    uint32_t n_before;     /* servers that made the checkpoint */
    bool replay;           /* the log counts; else the checkpoint alone, or nothing, does */
} ps_log_start_t;

typedef struct ps_log_chain {
    char *folder;           /* this server's */
    uint64_t from, to;      /* segments to replay; from > to: none */
    ps_log_head_t head;     /* of the segment that the run begins with */
    uint64_t replay_bytes;  /* of those; 0: they have no record */
    uint64_t dropped_bytes; /* of segments that do not count any more */
    bool follows;           /* this server has a log from earlier runs */
} ps_log_chain_t;

/*
 * Looks at the logs of all servers. Where they have what the checkpoint does not and it is to be
 * replayed, there must be as many servers, and the checkpoint must be the one that they follow.
 * Errors: MISMATCH (another folder's, another server's, another number of servers', or it follows
 * another checkpoint; says what to do), NOT_FOUND (a segment is missing), CORRUPT, UNSUPPORTED, IO,
 * NO_MEMORY. Gives (ps_log_chain_clear).
 */
PSC_MUST_CHECK psc_status_t ps_log_chain_find(const ps_log_start_t *start,
                                              ps_log_chain_t *chain_out, psc_error_t *error);
void ps_log_chain_clear(ps_log_chain_t *chain);

/* Makes the segment that the run begins with, and the folders; removes what a crash left of a
 * segment that was being made. Errors: IO, DISK_FULL, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_log_chain_begin(const ps_log_chain_t *chain, const char *checkpoints,
                                               psc_error_t *error);
/* The run never began: removes that segment. */
void ps_log_chain_discard(const ps_log_chain_t *chain);
/* The run has begun: removes segments that do not count any more. */
void ps_log_chain_prune(const ps_log_chain_t *chain);

#endif
