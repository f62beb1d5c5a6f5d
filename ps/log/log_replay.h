/*
 * A log, replayed into a shard that was made from the checkpoint before it: through the code that
 * serves, so that rows, tables and sessions are what they were, to the last bit.
 *
 * Threads: the owner's, at the start.
 */
#ifndef PS_LOG_LOG_REPLAY_H
#define PS_LOG_LOG_REPLAY_H

#include "ps/log/log_chain.h"
#include "ps/table/shard.h"

/* What was replayed. */
typedef struct ps_log_replayed {
    uint64_t records, pushes, bytes;
    /* Of the last segment, if there is any: */
    uint64_t end;     /* bytes of the last segment that count */
    uint64_t cut_off; /* what it had behind them: what a crash left unfinished */
    uint64_t beyond;  /* records among those, as far as their heads tell */
    bool other_boot;  /* another start of the machine, or another machine, wrote it */
    uint32_t level;   /* ps_log_level_t of it */
} ps_log_replayed_t;

/*
 * Replays the segments of a chain, and takes what a crash left behind the last whole record off the
 * last one; chain->head says how long that is then. Of a shard without workers. Errors: CORRUPT (a
 * file, at which offset), MISMATCH (a record that does not fit the shard), IO, DISK_FULL,
 * NO_MEMORY; those of the store.
 */
PSC_MUST_CHECK psc_status_t ps_log_replay(ps_log_chain_t *chain, ps_shard_t *shard,
                                          ps_log_replayed_t *replayed_out, psc_error_t *error);

#endif
