/*
 * Memory files: memory of one process that others of the same user and host map.
 *
 *     owner                                        reader, which was told path and key
 *         psc_memory_file_create("rows", bytes,        psc_memory_file_open("rows", path, key,
 *                                &file, error);                             false, &fd, &bytes, e);
 *         mmap(..., file.fd, 0);                       mmap(..., fd, 0);
 *
 * A file is sparse, keeps its size, has no name in any folder, and lives until the last mapping is
 * gone: so no access to a mapping ever faults because a process has ended.
 */
#ifndef COMMON_MEMORY_FILE_H
#define COMMON_MEMORY_FILE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PSC_MEMORY_PATH_MAX 64u

/* As its maker has it. Plain data. */
typedef struct psc_memory_file {
    int fd;
    uint64_t key;                   /* random: of this file */
    char path[PSC_MEMORY_PATH_MAX]; /* where other processes of this user and host open it */
} psc_memory_file_t;

/*
 * Makes a file. what: a word for its name, of at most 16 letters. Errors: IO (the system refused),
 * in words. Gives fd, to be closed.
 */
PSC_MUST_CHECK psc_status_t psc_memory_file_create(const char *what, uint64_t bytes,
                                                   psc_memory_file_t *file_out, psc_error_t *error);

/*
 * Opens the file of another process (or of this one). Nothing is opened at a path that does not
 * lead to a file of that word and key. write: for reading and writing, instead of reading alone.
 * Errors: NOT_FOUND (no such file that this process may open), MISMATCH (it could become shorter).
 * Gives fd, to be closed.
 */
PSC_MUST_CHECK psc_status_t psc_memory_file_open(const char *what, const char *path, uint64_t key,
                                                 bool write, int *fd_out, uint64_t *bytes_out,
                                                 psc_error_t *error);

/*
 * Who can share memory: a number of this host, its name and its process ids, the same for all
 * processes that see each other; never 0. 0: it cannot be told here.
 */
uint64_t psc_memory_host(void);

#endif
