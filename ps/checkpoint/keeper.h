/*
 * The folder of checkpoints as a server writes to it (proto/saved_folder.h has what is in it).
 *
 * The first server of a run gives names, writes manifests, and takes away what is old or was left
 * by a crash; it holds the folder's lock. The others write their parts. All see one folder.
 *
 * Threads: one at a time.
 */
#ifndef PS_CHECKPOINT_KEEPER_H
#define PS_CHECKPOINT_KEEPER_H

#include "proto/saved_folder.h"

typedef struct ps_keeper ps_keeper_t;

typedef struct ps_keeper_options {
    const char *folder; /* made where its parent exists */
    uint32_t rank, n_servers;
    uint64_t cluster;
    bool read_only; /* nothing is made, locked or removed: only for ps_keeper_standing and paths */
    uint64_t keep;  /* the newest checkpoints that stay, beside those of ps_keeper_commit; 0: all */
} ps_keeper_options_t;

/*
 * Opens the folder; the first server also locks it and removes leftovers. Errors: IN_USE (another
 * run writes there), IO, DISK_FULL, NOT_FOUND (no parent; read_only: no such folder), NO_MEMORY.
 * Gives.
 */
PSC_MUST_CHECK psc_status_t ps_keeper_open(const ps_keeper_options_t *options,
                                           ps_keeper_t **keeper_out, psc_error_t *error);
/* NULL is a no-op. */
void ps_keeper_close(ps_keeper_t *keeper);

const char *ps_keeper_folder(const ps_keeper_t *keeper);
uint64_t ps_keeper_lineage(const ps_keeper_t *keeper);
void ps_keeper_set_cluster(ps_keeper_t *keeper, uint64_t cluster);

/* The run stands at a checkpoint now, with a client's state or without: the one that it goes on
 * from, or at servers other than the first, which commits it, one that it has made. */
void ps_keeper_stand_at(ps_keeper_t *keeper, const char *name, bool with_state);
/* The newest one that this run went on from or has made; "": there is none. Borrowed until then. */
const char *ps_keeper_standing(const ps_keeper_t *keeper);

/* Begins a checkpoint: makes its folder and this server's in it, and that of the cold tier. name:
 * "" at the first server, which chooses it. Errors: IO, DISK_FULL, INVALID_ARGUMENT (no name),
 * NOT_FOUND (the first server's folder is not there). */
PSC_MUST_CHECK psc_status_t ps_keeper_begin(ps_keeper_t *keeper, char name[PSP_SAVED_NAME_MAX + 1],
                                            psc_error_t *error);

/* "<folder>/<name>.partial/server-N/<file>", or without server-N if shared. Gives; NULL: out of
 * memory. */
char *ps_keeper_path(const ps_keeper_t *keeper, const char *name, const char *file, bool shared);

/* Files of the client that asked for a checkpoint; NULL: none. Borrows. */
typedef struct ps_keeper_client {
    psp_saved_file_t *state, *vocabulary;
} ps_keeper_client_t;

/*
 * All parts are written: checks that they are there, writes the manifest, syncs, renames into
 * place, removes checkpoints that are too many (these, and what cannot be removed, are logged).
 * Beside the newest ones two are kept, which mostly are one: the newest with a client's state, and
 * the newest with it that this run went on from or has made. The run stands at this checkpoint
 * then. Errors: NOT_FOUND, CORRUPT, MISMATCH (a part, by name), IO,
 * DISK_FULL.
 */
PSC_MUST_CHECK psc_status_t ps_keeper_commit(ps_keeper_t *keeper, const char *name,
                                             const ps_keeper_client_t *client, psc_error_t *error);

/*
 * The vocabulary of the checkpoint at which the run stands becomes that of the one that is being
 * made, if it is of that size and checksum. The file is read whole before: one that is missing or
 * damaged is logged and left alone. *linked_out: whether it was taken. Errors: IO, NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_keeper_link_vocabulary(const ps_keeper_t *keeper, const char *name,
                                                      uint64_t size, uint64_t checksum,
                                                      bool *linked_out, psc_error_t *error);

/* Removes a checkpoint that was begun: this server's part, and at the first server all of it. */
PSC_MUST_CHECK psc_status_t ps_keeper_abandon(const ps_keeper_t *keeper, const char *name,
                                              psc_error_t *error);

#endif
