/*
 * Whole files, read with a limit and written so that no reader ever sees half of one.
 *
 *     psc_outfile_t *out;
 *     st = psc_outfile_open("vectors.txt", &out, error);
 *     fprintf(psc_outfile_stream(out), ...);
 *     st = psc_outfile_commit(out, error);       // or psc_outfile_abort(out)
 */
#ifndef COMMON_FILE_H
#define COMMON_FILE_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>
#include <time.h>

typedef struct psc_outfile psc_outfile_t;

/*
 * Opens a temporary file beside path, so that an unwritable place is known at once; path itself is
 * untouched until commit. Copies path. Errors: IO, NOT_FOUND, DISK_FULL, NO_MEMORY, naming path;
 * INVALID_ARGUMENT: psc_file_check_output.
 */
PSC_MUST_CHECK psc_status_t psc_outfile_open(const char *path, psc_outfile_t **out,
                                             psc_error_t *error);

/* One rule for all files that programs are told to write: "-" is refused, which would be a file of
 * that name to some and standard output to others. Errors: INVALID_ARGUMENT. */
PSC_MUST_CHECK psc_status_t psc_file_check_output(const char *path, psc_error_t *error);

/* Whether a path names this process's standard output, as /dev/stdout does. */
bool psc_file_is_stdout(const char *path);

/* Where to write. Borrowed until commit or abort. Write errors may be left to commit. */
FILE *psc_outfile_stream(psc_outfile_t *out);

/* The temporary's name, for who removes it when a signal ends the program; NULL where path is
 * written directly. Borrowed until commit or abort. */
const char *psc_outfile_temporary(const psc_outfile_t *out);

/* Flushes, syncs, renames over path, syncs the folder. On error the temporary is removed and path
 * is as it was. Takes out in both cases. */
PSC_MUST_CHECK psc_status_t psc_outfile_commit(psc_outfile_t *out, psc_error_t *error);

/* Removes the temporary. Takes out; NULL is a no-op. */
void psc_outfile_abort(psc_outfile_t *out);

/* The same, after a failure st that error tells of; gives st. Where it was a write to the file that
 * failed, which whoever wrote to the stream cannot know all of, it is told again, with the path. */
PSC_MUST_CHECK psc_status_t psc_outfile_give_up(psc_outfile_t *out, psc_status_t st,
                                                psc_error_t *error);

/* Writes bytes as a whole file in the way above. */
PSC_MUST_CHECK psc_status_t psc_file_write(const char *path, const void *bytes, size_t size,
                                           psc_error_t *error);

/*
 * Reads a whole file of at most limit bytes. bytes_out gets a NUL after the last byte. Gives (free
 * with psc_free). Errors: NOT_FOUND, IO, NO_MEMORY, CORRUPT when it is larger than limit.
 */
PSC_MUST_CHECK psc_status_t psc_file_read(const char *path, size_t limit, char **bytes_out,
                                          size_t *size_out, psc_error_t *error);

/* The same for a file with secrets, which is refused (INVALID_ARGUMENT) where others than its owner
 * can read or write it; the group of a file of root's may read it. */
PSC_MUST_CHECK psc_status_t psc_file_read_private(const char *path, size_t limit, char **bytes_out,
                                                  size_t *size_out, psc_error_t *error);

/* By which a file is taken for the same as before: the time of its inode, which moving and changed
 * rights change too, and the rest. All zeros: never looked at. */
typedef struct psc_file_version {
    struct timespec time;
    off_t size;
    ino_t inode;
} psc_file_version_t;

/* Has the file another version than *version? That becomes the one it has. A file that was there
 * and cannot be looked at any more has changed, once: reading it will say what is wrong. */
bool psc_file_has_changed(const char *path, psc_file_version_t *version);

/* Removes a folder and all in it, or a file; OK when there is none. A link is removed, not what it
 * names. Errors: IO, and what else errno says of the path. */
PSC_MUST_CHECK psc_status_t psc_file_remove_all(const char *path, psc_error_t *error);

/* fsync of a folder, so that names in it last. Errors: IO. */
PSC_MUST_CHECK psc_status_t psc_file_sync_dir(const char *path, psc_error_t *error);

/* fsync of the folder that a path is in, so that its name there lasts. A folder that may be written
 * and not read cannot be synced: OK. Errors: IO, NOT_FOUND, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psc_file_sync_parent(const char *path, psc_error_t *error);

#endif
