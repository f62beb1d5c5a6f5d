/*
 * What servers and the tool do alike to a folder of checkpoints.
 *
 * The lock is an advisory one on the file "lock", which stays; whoever has it may take away what is
 * old and what a crash left. Removing renames first, and syncs that: a folder with a plain name is
 * whole at any moment, whatever a power cut leaves. Threads: none.
 */
#include "proto/saved_change.h"

#include "common/alloc.h"
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static psc_status_t no_memory(const char *folder, psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for checkpoints in %s", folder);
}

psc_status_t psp_saved_lock(const char *folder, int *fd_out, psc_error_t *error)
{
    char *path = psp_saved_path(folder, "lock", NULL);
    if (path == NULL)
        return no_memory(folder, error);
    psc_status_t st = PSC_OK;
    const int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0)
        st = psc_error_set_errno(error, errno, "cannot write to the checkpoints in %s", folder);
    else if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        st = errno == EWOULDBLOCK
                 ? psc_error_set(error, PSC_IN_USE,
                                 "another run writes its checkpoints to %s: use another folder, or "
                                 "wait for its end",
                                 folder)
                 : psc_error_set_errno(error, errno, "cannot lock %s", path);
    psc_free(path);
    if (st == PSC_OK)
        *fd_out = fd;
    else if (fd >= 0)
        (void)close(fd);
    return st;
}

bool psp_saved_is_leftover(const char *entry)
{
    static const char *const ends[] = {PSP_SAVED_PARTIAL, PSP_SAVED_REMOVED};
    const size_t n = strlen(entry);
    for (size_t i = 0; i < 2; i++) {
        const size_t n_end = strlen(ends[i]);
        if (n > n_end && strcmp(entry + n - n_end, ends[i]) == 0)
            return true;
    }
    return strncmp(entry, ".lineage-", strlen(".lineage-")) == 0;
}

psc_status_t psp_saved_remove(const char *folder, const char *name, psc_error_t *error)
{
    char gone[PSP_SAVED_NAME_MAX + sizeof PSP_SAVED_REMOVED];
    (void)snprintf(gone, sizeof gone, "%s%s", name, PSP_SAVED_REMOVED);
    char *from = psp_saved_path(folder, name, NULL);
    char *to = psp_saved_path(folder, gone, NULL);
    psc_status_t st = from == NULL || to == NULL ? no_memory(folder, error) : PSC_OK;
    if (st == PSC_OK && rename(from, to) != 0)
        st = psc_error_set_errno(error, errno, "cannot rename %s", from);
    if (st == PSC_OK)
        st = psc_file_sync_dir(folder, error);
    if (st == PSC_OK)
        st = psc_file_remove_all(to, error);
    psc_free(from);
    psc_free(to);
    return st;
}
