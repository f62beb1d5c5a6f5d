/*
 * Going on from a checkpoint, on as many servers as made it or on others: what this server needs of
 * it is looked at whole before anything is made.
 *
 * ps_restore_find(folder, "auto", rank, n_servers, false, &restore, error);   // NULL: there is
 * none
 *     ps_restore_files(restore, rocksdb, error);       // then open the cold tier there
 *     ps_restore_rows(restore, &way, cold, error);     // then the store and the shard
 *     ps_restore_shard(restore, shard, true, error);
 *
 * Threads: none; at the start.
 */
#ifndef PS_CHECKPOINT_RESTORE_H
#define PS_CHECKPOINT_RESTORE_H

#include "proto/saved_folder.h"
#include "ps/store/cold.h"
#include "ps/table/shard.h"

typedef struct ps_restore ps_restore_t;

/*
 * The checkpoint to go on from. resume: "auto" (the newest, or none if there is none), "none", or a
 * name. with_state: "auto" is the newest with a client's state, where any has one, since the others
 * do not say how far workers were. *restore_out NULL: none. The parts of all its servers are read,
 * and all files of those that had slots which this server has, and compared with their checksums;
 * by server 0 also those of the client that asked for the checkpoint, its state and vocabulary.
 * Errors: NOT_FOUND (no such checkpoint; parts are missing, all of which are named with their
 * hosts; a file is missing), CORRUPT (a file is damaged; parts that do not belong together),
 * UNSUPPORTED (a later format), INVALID_ARGUMENT (no name; more servers than there can be), IO,
 * NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_restore_find(const char *folder, const char *resume, uint32_t rank,
                                            uint32_t n_servers, bool with_state,
                                            ps_restore_t **restore_out, psc_error_t *error);
/* The same for ps_restore_weights, which needs nothing of what a client left. */
PSC_MUST_CHECK psc_status_t ps_restore_find_weights(const char *folder, const char *name,
                                                    uint32_t rank, uint32_t n_servers,
                                                    ps_restore_t **restore_out, psc_error_t *error);
/*
 * Before files and rows: a table goes on with another optimizer, text as in optimizer_reset.h,
 * whose state begins in every row at its initial value; where the table has that optimizer already
 * nothing changes. It is logged. Errors: INVALID_ARGUMENT (what is wrong with the text, or twice
 * the same table), NOT_FOUND (no such table).
 */
PSC_MUST_CHECK psc_status_t ps_restore_reset(ps_restore_t *restore, const char *text,
                                             psc_error_t *error);
/*
 * Before files and rows, and after ps_restore_reset: of the checkpoint nothing is taken but tables,
 * and of rows their weights. Rows are as old as the run, their counts of updates 0; no state of an
 * optimizer, session, clock, sighting or age goes on. It is logged.
 */
void ps_restore_weights(ps_restore_t *restore);
/* Whether that is so. */
bool ps_restore_is_weights(const ps_restore_t *restore);

/* Whether states of optimizers are dropped. */
bool ps_restore_renews(const ps_restore_t *restore);

/* NULL is a no-op. */
void ps_restore_destroy(ps_restore_t *restore);

const char *ps_restore_name(const ps_restore_t *restore);
uint64_t ps_restore_cluster(const ps_restore_t *restore);
/* Whether a client kept its state with it. */
bool ps_restore_with_state(const ps_restore_t *restore);
/* How many servers made it. */
uint32_t ps_restore_servers(const ps_restore_t *restore);
/* Which segment of server N's log follows it; 0: it had no log. Errors: as ps_restore_find. */
PSC_MUST_CHECK psc_status_t ps_restore_log_segment(const ps_restore_t *restore, uint32_t server,
                                                   uint64_t *segment_out, psc_error_t *error);

/* How many sessions count as given now, where at least so many were: more than any run can have
 * given until then. */
uint64_t ps_restore_count_given(uint64_t given);

/* Makes the files of the cold tier, where slots lie as they lay; else they come as rows. Errors:
 * IO, DISK_FULL, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_restore_files(const ps_restore_t *restore, const char *rocksdb,
                                             psc_error_t *error);

/* How rows are read. Borrows. */
typedef struct ps_restore_way {
    const char *scratch;   /* a folder that is not there, and is not afterwards */
    uint64_t memory_bytes; /* for the cold tier of another server, as for one's own */
} ps_restore_way_t;

/* Writes into the cold tier what it does not have yet: rows of this server's slots out of other
 * cold tiers, and over all the images. Errors: IO, DISK_FULL, CORRUPT, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_restore_rows(const ps_restore_t *restore,
                                            const ps_restore_way_t *way, ps_cold_t *cold,
                                            psc_error_t *error);

/* Makes the tables of a new shard; with sessions, those of guests go on too where slots lie as they
 * lay, and are refused with what counts of them where not; it takes the same cluster id. Errors:
 * CORRUPT, INVALID_ARGUMENT (does not fit into memory), NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_restore_shard(const ps_restore_t *restore, ps_shard_t *shard,
                                             bool sessions, psc_error_t *error);

#endif
