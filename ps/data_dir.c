/*
 * Claiming a directory: mkdir tells who made it, flock tells who uses it, identity.json whose it
 * is.
 *
 * Order: directory, lock, look for an identity, write one with state "open" (a whole file or none,
 * synced), sync the folders. All servers of a run share DATA, perhaps made by one of them a moment
 * ago: each looks at its own directory, and at those of others for another run's identity or a rank
 * that this run does not have, so that no run mixes with the remains of one with more servers.
 * A run that never began takes away what it made. DATA itself goes when the last server leaves it:
 * its maker left a hidden file in it, and whoever finds nothing but that file removes both.
 * The lock is an advisory one on an open file: it ends with the process, however that ends.
 * Threads: the caller's. Cost: a few files at start and end.
 */
#include "ps/data_dir.h"

#include "common/alloc.h"
#include "common/file.h"
#include "ps/data_identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ps_data_dir {
    char *data;      /* DATA */
    char *path;      /* DATA/server-N */
    char *lock_path; /* and what is in it */
    char *identity_path;
    char *rocksdb_path;
    char *marker_path; /* DATA/.new-<cluster>: this run made DATA */
    char *staging_path;
    uint64_t cluster, lineage;
    uint32_t rank, n_servers;
    int lock_fd; /* -1: not locked */
    bool made_path, made_lock, made_identity;
};

static char *join(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = psc_alloc(size);
    if (path != NULL)
        (void)snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static psc_status_t write_identity(const ps_data_dir_t *dir, bool clean, const char *checkpoint,
                                   psc_error_t *error)
{
    struct stat status;
    if (stat(dir->path, &status) != 0)
        return psc_error_set_errno(error, errno, "cannot use %s", dir->path);
    ps_data_identity_t identity = {.cluster = dir->cluster,
                                   .lineage = dir->lineage,
                                   .rank = dir->rank,
                                   .n_servers = dir->n_servers,
                                   .inode = status.st_ino,
                                   .clean = clean};
    (void)snprintf(identity.checkpoint, sizeof identity.checkpoint, "%s", checkpoint);
    return ps_data_identity_write(dir->identity_path, &identity, error);
}

/* ---- refusals ---- */

static psc_status_t refuse_in_use(const char *path, psc_error_t *error)
{
    return psc_error_set(error, PSC_IN_USE,
                         "%s is in use by another run: wait for its end, or use another --data "
                         "directory",
                         path);
}

static psc_status_t refuse_identity(const char *path, const ps_data_identity_t *identity,
                                    psc_error_t *error)
{
    return psc_error_set(error, PSC_UNCLEAN,
                         "%s holds tables of another run (%016" PRIx64 ", server %" PRIu32
                         " of %" PRIu32 ", %s): use another --data directory, or remove this one "
                         "yourself",
                         path, identity->cluster, identity->rank, identity->n_servers,
                         identity->clean ? "which ended in order" : "not closed clean");
}

/* Whether the directory is of a run that made its checkpoints where this one does. */
static bool is_of_lineage(const ps_data_dir_t *dir, const ps_data_identity_t *identity)
{
    return dir->lineage != 0 && identity->lineage == dir->lineage;
}

/* Another server's directory below DATA: does it belong to this run? */
static psc_status_t inspect_other(const ps_data_dir_t *dir, const char *name, uint64_t rank,
                                  psc_error_t *error)
{
    char *path = join(dir->data, name);
    char *identity_path = path != NULL ? join(path, "identity.json") : NULL;
    char *lock_path = path != NULL ? join(path, "lock") : NULL;
    psc_status_t st;
    if (identity_path == NULL || lock_path == NULL) {
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path");
        goto out;
    }
    ps_data_identity_t identity;
    psc_error_t fault = PSC_ERROR_INIT;
    st = ps_data_identity_read(identity_path, &identity, &fault);
    bool missing = st == PSC_NOT_FOUND;
    if (st != PSC_OK && !missing) {
        if (error != NULL)
            *error = fault;
        goto out;
    }
    /* Without an identity: a server of this run that is not so far yet, or will refuse it itself.
     */
    bool ours = missing ? rank < dir->n_servers
                        : identity.cluster == dir->cluster || is_of_lineage(dir, &identity);
    if (ours)
        st = PSC_OK;
    else if (missing)
        st = psc_error_set(error, PSC_UNCLEAN,
                           "%s is there, but this run has %" PRIu32
                           " servers: use another --data directory",
                           path, dir->n_servers);
    else if (ps_data_is_locked(lock_path))
        st = refuse_in_use(path, error);
    else
        st = refuse_identity(path, &identity, error);
out:
    psc_free(path);
    psc_free(identity_path);
    psc_free(lock_path);
    return st;
}

/* Looks at all server directories below DATA but one's own. */
static psc_status_t inspect_others(const ps_data_dir_t *dir, psc_error_t *error)
{
    DIR *folder = opendir(dir->data);
    if (folder == NULL)
        return psc_error_set_errno(error, errno, "cannot read data directory %s", dir->data);
    psc_status_t st = PSC_OK;
    const struct dirent *entry;
    while (st == PSC_OK && (entry = readdir(folder)) != NULL) {
        static const char prefix[] = "server-";
        char *end = NULL;
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0)
            continue;
        uint64_t rank = strtoull(entry->d_name + sizeof prefix - 1, &end, 10);
        if (*end == '\0' && end != entry->d_name + sizeof prefix - 1 && rank != dir->rank)
            st = inspect_other(dir, entry->d_name, rank, error);
    }
    (void)closedir(folder);
    return st;
}

/* ---- claim ---- */

static psc_status_t make_data(const ps_data_dir_t *dir, psc_error_t *error)
{
    if (mkdir(dir->data, 0777) == 0) {
        /* Without the marker DATA would stay after a discard: no harm. */
        int fd = open(dir->marker_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
        if (fd >= 0)
            (void)close(fd);
        return PSC_OK;
    }
    if (errno != EEXIST)
        return psc_error_set_errno(error, errno, "cannot make data directory %s", dir->data);
    struct stat status;
    if (stat(dir->data, &status) != 0)
        return psc_error_set_errno(error, errno, "cannot use data directory %s", dir->data);
    if (!S_ISDIR(status.st_mode))
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "--data %s is not a directory",
                             dir->data);
    return PSC_OK;
}

static psc_status_t take_lock(ps_data_dir_t *dir, psc_error_t *error)
{
    int fd = open(dir->lock_path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    dir->made_lock = fd >= 0;
    if (fd < 0 && errno == EEXIST)
        fd = open(dir->lock_path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return psc_error_set_errno(error, errno, "cannot open %s", dir->lock_path);
    int locked = ps_data_try_lock(fd, dir->lock_path);
    if (locked == 1) {
        dir->lock_fd = fd;
        return PSC_OK;
    }
    int reason = errno;
    (void)close(fd);
    dir->made_lock = false; /* whoever holds it needs it */
    if (locked == 0)
        return refuse_in_use(dir->path, error);
    return psc_error_set_errno(error, reason, "cannot lock %s", dir->lock_path);
}

/* Half an identity, of a start that was killed while it wrote it (common/file.c). */
static bool is_half_identity(const char *name)
{
    static const char begin[] = ".identity.json.", end[] = ".tmp";
    const size_t length = strlen(name);
    return strncmp(name, begin, sizeof begin - 1) == 0 && length >= sizeof begin + sizeof end &&
           strcmp(name + length - (sizeof end - 1), end) == 0;
}

/* The directory was there and has no identity: only remains of a start that was killed may be used.
 */
static psc_status_t check_empty(const ps_data_dir_t *dir, psc_error_t *error)
{
    DIR *folder = opendir(dir->path);
    if (folder == NULL)
        return psc_error_set_errno(error, errno, "cannot read %s", dir->path);
    psc_status_t st = PSC_OK;
    const struct dirent *entry;
    while (st == PSC_OK && (entry = readdir(folder)) != NULL) {
        if (is_half_identity(entry->d_name))
            (void)unlinkat(dirfd(folder), entry->d_name, 0); /* or it stays: no harm */
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 strcmp(entry->d_name, "lock") != 0)
            st = psc_error_set(error, PSC_UNCLEAN,
                               "%s holds %.80s, which is not of this run: use another --data "
                               "directory",
                               dir->path, entry->d_name);
    }
    (void)closedir(folder);
    return st;
}

static psc_status_t make_path(ps_data_dir_t *dir, psc_error_t *error)
{
    dir->made_path = mkdir(dir->path, 0777) == 0;
    if (dir->made_path)
        return PSC_OK;
    if (errno != EEXIST)
        return psc_error_set_errno(error, errno, "cannot make %s", dir->path);
    struct stat status;
    if (stat(dir->path, &status) != 0)
        return psc_error_set_errno(error, errno, "cannot use %s", dir->path);
    if (!S_ISDIR(status.st_mode))
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s is not a directory", dir->path);
    return PSC_OK;
}

static psc_status_t remove_data_files(const ps_data_dir_t *dir, psc_error_t *error)
{
    char *contents = join(dir->path, "contents");
    psc_status_t st = contents == NULL ? psc_error_set(error, PSC_NO_MEMORY, "out of memory")
                                       : psc_file_remove_all(contents, error);
    if (st == PSC_OK)
        st = psc_file_remove_all(dir->rocksdb_path, error);
    psc_free(contents);
    return st == PSC_OK ? psc_file_remove_all(dir->staging_path, error) : st;
}

/* The directory has an identity. */
static psc_status_t take_over(const ps_data_dir_t *dir, const ps_data_identity_t *identity,
                              psc_error_t *error)
{
    if (!is_of_lineage(dir, identity) || identity->rank != dir->rank)
        return refuse_identity(dir->path, identity, error);
    if (identity->clean && identity->checkpoint[0] == '\0')
        return psc_error_set(error, PSC_UNCLEAN,
                             "%s was closed without a checkpoint at the end: rows that changed "
                             "after the newest one are in it alone. To go on from that one "
                             "without them, use another --data directory, or remove this one "
                             "yourself",
                             dir->path);
    return remove_data_files(dir, error);
}

static psc_status_t claim(ps_data_dir_t *dir, psc_error_t *error)
{
    psc_status_t st = make_data(dir, error);
    if (st == PSC_OK)
        st = make_path(dir, error);
    if (st == PSC_OK)
        st = take_lock(dir, error);
    if (st != PSC_OK)
        return st;
    ps_data_identity_t identity;
    psc_error_t fault = PSC_ERROR_INIT;
    st = ps_data_identity_read(dir->identity_path, &identity, &fault);
    if (st == PSC_OK) {
        st = take_over(dir, &identity, error);
    } else if (st == PSC_NOT_FOUND) {
        st = dir->made_path ? PSC_OK : check_empty(dir, error);
    } else if (error != NULL) {
        *error = fault;
    }
    if (st == PSC_OK)
        st = inspect_others(dir, error);
    if (st != PSC_OK)
        return st;
    st = write_identity(dir, false, "", error);
    dir->made_identity = st == PSC_OK;
    return st == PSC_OK ? psc_file_sync_dir(dir->data, error) : st;
}

psc_status_t ps_data_dir_claim(const char *data, const ps_data_owner_t *owner,
                               ps_data_dir_t **dir_out, psc_error_t *error)
{
    char name[64];
    ps_data_dir_t *dir = psc_alloc_zeroed(1, sizeof *dir);
    if (dir == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a data directory");
    dir->lock_fd = -1;
    dir->cluster = owner->cluster;
    dir->lineage = owner->lineage;
    dir->rank = owner->rank;
    dir->n_servers = owner->n_servers;
    dir->data = psc_strdup(data);
    (void)snprintf(name, sizeof name, "server-%" PRIu32, owner->rank);
    dir->path = join(data, name);
    (void)snprintf(name, sizeof name, ".new-%016" PRIx64, owner->cluster);
    dir->marker_path = join(data, name);
    if (dir->path != NULL) {
        dir->lock_path = join(dir->path, "lock");
        dir->identity_path = join(dir->path, "identity.json");
        dir->rocksdb_path = join(dir->path, "rocksdb");
        dir->staging_path = join(dir->path, "cut");
    }
    psc_status_t st;
    if (dir->data == NULL || dir->marker_path == NULL || dir->lock_path == NULL ||
        dir->identity_path == NULL || dir->rocksdb_path == NULL || dir->staging_path == NULL) {
        ps_data_dir_release(dir);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a data directory");
    }
    st = claim(dir, error);
    if (st == PSC_OK) {
        *dir_out = dir;
        return PSC_OK;
    }
    /* The first error is the one to tell. */
    psc_error_t ignored = PSC_ERROR_INIT;
    psc_status_t undone = ps_data_dir_discard(dir, &ignored);
    (void)undone;
    return st;
}

const char *ps_data_dir_rocksdb(const ps_data_dir_t *dir)
{
    return dir->rocksdb_path;
}

const char *ps_data_dir_staging(const ps_data_dir_t *dir)
{
    return dir->staging_path;
}

void ps_data_dir_begin(ps_data_dir_t *dir)
{
    (void)unlink(dir->marker_path);
}

psc_status_t ps_data_dir_mark_clean(ps_data_dir_t *dir, const char *checkpoint, psc_error_t *error)
{
    psc_status_t st = ps_data_contents_write(dir->path, error);
    return st == PSC_OK ? write_identity(dir, true, checkpoint, error) : st;
}

void ps_data_dir_release(ps_data_dir_t *dir)
{
    if (dir == NULL)
        return;
    if (dir->lock_fd >= 0)
        (void)close(dir->lock_fd);
    psc_free(dir->data);
    psc_free(dir->path);
    psc_free(dir->lock_path);
    psc_free(dir->identity_path);
    psc_free(dir->rocksdb_path);
    psc_free(dir->staging_path);
    psc_free(dir->marker_path);
    psc_free(dir);
}

/* ---- discard ---- */

/* Removes DATA when this run made it and only the marker is left. */
static void remove_data(const ps_data_dir_t *dir)
{
    DIR *folder = opendir(dir->data);
    if (folder == NULL)
        return;
    const char *marker = strrchr(dir->marker_path, '/') + 1;
    bool marked = false, others = false;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, marker) == 0)
            marked = true;
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            others = true;
    }
    (void)closedir(folder);
    if (marked && !others && unlink(dir->marker_path) == 0)
        (void)rmdir(dir->data);
}

psc_status_t ps_data_dir_discard(ps_data_dir_t *dir, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    if (dir->made_identity) {
        st = remove_data_files(dir, error);
        if (st == PSC_OK && unlink(dir->identity_path) != 0 && errno != ENOENT)
            st = psc_error_set_errno(error, errno, "cannot remove %s", dir->identity_path);
    }
    if (st == PSC_OK && dir->made_lock)
        (void)unlink(dir->lock_path);
    if (st == PSC_OK && dir->made_path)
        (void)rmdir(dir->path);
    if (st == PSC_OK)
        remove_data(dir);
    ps_data_dir_release(dir);
    return st;
}
