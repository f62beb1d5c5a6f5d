/*
 * The data directory of one server: DATA/server-N, with who it belongs to and whether it was closed
 * clean.
 *
 *     lock             held (flock) while a server uses the directory
 *     identity.json    whose it is, and whether it was closed clean (ps/data_identity.h)
 *     contents         which files it had then
 *     rocksdb/         the cold tier's
 *     cut/             what a checkpoint takes of it
 *
 * A directory that holds tables of another run is refused, never opened again, never mixed and
 * never deleted, unless both runs go on from the same checkpoints. A kill at any moment leaves the
 * state "open", or "clean" once all is on disk, or (before identity.json) nothing that anybody
 * could miss.
 */
#ifndef PS_DATA_DIR_H
#define PS_DATA_DIR_H

#include "common/status.h"

typedef struct ps_data_dir ps_data_dir_t;

/* Whose directory it is to be. */
typedef struct ps_data_owner {
    uint64_t cluster;
    uint32_t rank, n_servers;
    uint64_t lineage; /* of its checkpoints; 0: it makes none */
} ps_data_owner_t;

/*
 * Makes (with DATA itself, where its parent exists) and claims the directory for this run.
 *
 * A directory of the same lineage, whose run makes its checkpoints where this one does, is taken
 * over and emptied: what counts of it is in a checkpoint. Not so when it was closed clean with rows
 * that no checkpoint has.
 *
 * On error all that was made is removed, and nothing else. Errors: IN_USE (another process has it),
 * UNCLEAN (tables of another run; says in which state), IO, DISK_FULL, NOT_FOUND (no parent),
 * INVALID_ARGUMENT (not a directory), NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_data_dir_claim(const char *data, const ps_data_owner_t *owner,
                                              ps_data_dir_t **dir_out, psc_error_t *error);

/* Where the cold tier keeps its files. Borrowed from dir. */
const char *ps_data_dir_rocksdb(const ps_data_dir_t *dir);

/* Where the cold tier saves files for a checkpoint; not there between two. Borrowed from dir. */
const char *ps_data_dir_staging(const ps_data_dir_t *dir);

/* The run has begun: from now on nothing is discarded. */
void ps_data_dir_begin(ps_data_dir_t *dir);

/* Marks it clean; all must be on disk before. checkpoint: the name of one that has all of it, "":
 * none has. Errors: IO, DISK_FULL (it stays marked open). */
PSC_MUST_CHECK psc_status_t ps_data_dir_mark_clean(ps_data_dir_t *dir, const char *checkpoint,
                                                   psc_error_t *error);

/* Unlocks and frees; the directory stays as it is. NULL is a no-op. */
void ps_data_dir_release(ps_data_dir_t *dir);

/* The run never began: removes what claim made (and the cold tier in it). Frees. Errors: IO. */
PSC_MUST_CHECK psc_status_t ps_data_dir_discard(ps_data_dir_t *dir, psc_error_t *error);

#endif
