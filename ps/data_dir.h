/*
 * The data directory of one server: DATA/server-N, with who it belongs to and whether it was closed
 * clean.
 *
 *     lock             held (flock) while a server uses the directory
 *     identity.json    {"format": 1, "cluster": "…", "rank": N, "n_servers": S, "state": "open" |
 * "clean"} rocksdb/         the cold tier's
 *
 * A directory that holds tables is refused, never opened again, never mixed and never deleted: it
 * is another run's. A kill at any moment leaves the state "open", or "clean" once all is on disk,
 * or (before identity.json) nothing that anybody could miss.
 */
#ifndef PS_DATA_DIR_H
#define PS_DATA_DIR_H

#include "common/status.h"

typedef struct ps_data_dir ps_data_dir_t;

/*
 * Makes (with DATA itself, where its parent exists) and claims the directory for this run.
 * On error all that was made is removed, and nothing else. Errors: IN_USE (another process has it),
 * UNCLEAN (tables of another run, or another number of servers; says in which state), IO,
 * DISK_FULL, NOT_FOUND (no parent), INVALID_ARGUMENT (not a directory), NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_data_dir_claim(const char *data, uint64_t cluster, uint32_t rank,
                                              uint32_t n_servers, ps_data_dir_t **dir_out,
                                              psc_error_t *error);

/* Where the cold tier keeps its files. Borrowed from dir. */
const char *ps_data_dir_rocksdb(const ps_data_dir_t *dir);

/* The run has begun: from now on nothing is discarded. */
void ps_data_dir_begin(ps_data_dir_t *dir);

/* Marks it clean; all must be on disk before. Errors: IO, DISK_FULL (it stays marked open). */
PSC_MUST_CHECK psc_status_t ps_data_dir_mark_clean(ps_data_dir_t *dir, psc_error_t *error);

/* Unlocks and frees; the directory stays as it is. NULL is a no-op. */
void ps_data_dir_release(ps_data_dir_t *dir);

/* The run never began: removes what claim made (and the cold tier in it). Frees. Errors: IO. */
PSC_MUST_CHECK psc_status_t ps_data_dir_discard(ps_data_dir_t *dir, psc_error_t *error);

#endif
