/*
 * Changing a folder of checkpoints (proto/saved_folder.h): the lock that keeps two who do so apart,
 * and taking checkpoints away.
 *
 * Threads: none.
 */
#ifndef PROTO_SAVED_CHANGE_H
#define PROTO_SAVED_CHANGE_H

#include "proto/saved_folder.h"

/*
 * Takes the folder's lock, which ends when the file is closed, or with the process. The folder must
 * be there. Errors: IN_USE (a run writes its checkpoints there), IO, DISK_FULL, NOT_FOUND (no
 * folder), NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psp_saved_lock(const char *folder, int *fd_out, psc_error_t *error);

/* Whether an entry of the folder is what a crash left: of a checkpoint that was being made or
 * removed, or of a lineage. So it is only for whoever has the lock. */
bool psp_saved_is_leftover(const char *entry);

/* Takes a checkpoint away: first its name, then its files, so that what a kill leaves is a
 * leftover. Errors: IO, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psp_saved_remove(const char *folder, const char *name,
                                             psc_error_t *error);

#endif
