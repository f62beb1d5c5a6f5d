/*
 * Going on from a checkpoint: its part of this server, looked at whole before anything is made.
 *
 *     ps_restore_find(folder, "auto", rank, n_servers, &restore, error);   // NULL: there is none
 *     ps_restore_files(restore, rocksdb, error);       // then open the cold tier there
 *     ps_restore_rows(restore, cold, error);           // then the store and the shard
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
 * The checkpoint to go on from. resume: "auto" (the newest, or none if there is none), "none", or
 * a name. *restore_out NULL: none. All files of this server are read and compared with their
 * checksums. Errors: NOT_FOUND (no such checkpoint; a file is missing), CORRUPT (a file is
 * damaged), UNSUPPORTED (a later format), MISMATCH (another number of servers: both are named), IO,
 * NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_restore_find(const char *folder, const char *resume, uint32_t rank,
                                            uint32_t n_servers, ps_restore_t **restore_out,
                                            psc_error_t *error);
/* NULL is a no-op. */
void ps_restore_destroy(ps_restore_t *restore);

const char *ps_restore_name(const ps_restore_t *restore);
uint64_t ps_restore_cluster(const ps_restore_t *restore);

/* Makes the folder of the cold tier. Errors: IO, DISK_FULL, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_restore_files(const ps_restore_t *restore, const char *rocksdb,
                                             psc_error_t *error);

/* Writes the images over what the cold tier has. Errors: IO, DISK_FULL, CORRUPT, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_restore_rows(const ps_restore_t *restore, ps_cold_t *cold,
                                            psc_error_t *error);

/* Makes the tables of a new shard; with sessions, those of guests go on too, which takes the same
 * cluster id. Errors: CORRUPT, INVALID_ARGUMENT (does not fit into memory), NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_restore_shard(const ps_restore_t *restore, ps_shard_t *shard,
                                             bool sessions, psc_error_t *error);

#endif
