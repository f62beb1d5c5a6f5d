/*
 * What a server's data directory says of itself, for the server (ps/data_dir.h) and for whoever
 * looks at it afterwards (ps/data_check.h):
 *
 *     identity.json    {"format": 1, "sum": "…", "cluster": "…", "rank": N, "n_servers": S,
 *                      "inode": I, "state": "open" | "clean", "lineage": "…", "checkpoint": "…"};
 *                      the last two may be missing, sum and inode in directories of older releases.
 *                      sum: XXH3 of the text behind it. inode: of the directory, which a copy has
 *                      another of.
 *     contents         once it is clean: the files of rocksdb/ when it was closed, a line each,
 *                      "SIZE XXH3 NAME", and last the XXH3 of these lines. "-" instead of XXH3 for
 *                      RocksDB's tables: their blocks have checksums, and they are large.
 *
 * Threads: none.
 */
#ifndef PS_DATA_IDENTITY_H
#define PS_DATA_IDENTITY_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_DATA_IDENTITY_FORMAT 1

typedef struct ps_data_identity {
    uint64_t cluster, lineage; /* lineage 0: it makes no checkpoints */
    uint32_t rank, n_servers;
    uint64_t inode;       /* 0: not known */
    bool clean;           /* closed so */
    char checkpoint[128]; /* which has all of it; "": none has, or it is not clean */
} ps_data_identity_t;

/* Writes path, synced: the whole file or none. Errors: IO, DISK_FULL, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_data_identity_write(const char *path,
                                                   const ps_data_identity_t *identity,
                                                   psc_error_t *error);

/* Errors: NOT_FOUND (there is none), UNCLEAN (there is one that cannot be read as ours: damaged, or
 * of an earlier or later format, which it says), IO. */
PSC_MUST_CHECK psc_status_t ps_data_identity_read(const char *path,
                                                  ps_data_identity_t *identity_out,
                                                  psc_error_t *error);

/* A lock on an open file. 1: taken now. 0: somebody else holds it. -1: errno. */
int ps_data_try_lock(int fd, const char *path);
/* Whether somebody holds it; false also where there is none. */
bool ps_data_is_locked(const char *lock_path);

/* Writes "<path>/contents" of "<path>/rocksdb". Errors: IO, DISK_FULL, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_data_contents_write(const char *path, psc_error_t *error);

/* Is told each fault. */
typedef void (*ps_data_fault_fn)(void *context, const psc_error_t *fault);

/*
 * Compares them with what is there now; each file that is missing, of another size or checksum, or
 * too many goes to fn. Returns OK, or the first fault: NOT_FOUND, CORRUPT, IO, NO_MEMORY. *n_out
 * and *bytes_out: files that were written down, and their sizes.
 */
PSC_MUST_CHECK psc_status_t ps_data_contents_check(const char *path, ps_data_fault_fn fn,
                                                   void *context, size_t *n_out,
                                                   uint64_t *bytes_out, psc_error_t *error);

#endif
