/*
 * Whole files: written to a temporary name beside the target, synced, renamed; read with a limit.
 *
 * Invariants: until commit has renamed, the target is as it was; a killed process leaves at most a
 * temporary ".<name>.<pid>-<random>.tmp", never half a target. A symbolic link is followed first,
 * so that the file it names is replaced and not the link. What is no regular file (/dev/full, a
 * pipe) and what names a descriptor of this process (/dev/stdout) cannot be replaced and is written
 * directly.
 *
 * Write errors: stdio keeps only a flag, so the stream stands on a cookie that remembers the errno
 * of the first write that failed; commit reports it ("No space left on device").
 *
 * Threads: a file belongs to one thread at a time. Cost: one 128 KiB buffer per open file, two
 * fsync per commit.
 */
#include "common/file.h"

#include "common/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define STREAM_BUFFER_BYTES ((size_t)128 << 10)
#define READ_STEP_BYTES ((size_t)64 << 10)
#define TEMPORARY_TRIES 16
#define NAME_BYTES_KEPT 200 /* of the target's name, so that the temporary's fits NAME_MAX */

struct psc_outfile {
    char *path;      /* as the caller named it, for messages */
    char *target;    /* path with symbolic links followed */
    char *folder;    /* of target */
    char *temporary; /* NULL: target is written directly */
    char *buffer;    /* of stream */
    FILE *stream;
    int fd;
    int write_errno; /* of the first write that failed, or 0 */
};

static ssize_t write_cookie(void *cookie, const char *bytes, size_t size)
{
    psc_outfile_t *out = cookie;
    size_t done = 0;
    while (done < size) {
        ssize_t n = write(out->fd, bytes + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (out->write_errno == 0)
                out->write_errno = errno;
            return 0; /* fopencookie: an error is 0, never negative */
        }
        done += (size_t)n;
    }
    return (ssize_t)size;
}

static int seek_cookie(void *cookie, off64_t *position, int whence)
{
    const psc_outfile_t *out = cookie;
    off64_t now = lseek(out->fd, *position, whence);
    if (now < 0)
        return -1;
    *position = now;
    return 0;
}

/* Length of the folder part of path without its last slash; 0 when there is none. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path);
}

static char *folder_of(const char *path)
{
    size_t length = folder_length(path);
    if (length == 0)
        return psc_strdup(path[0] == '/' ? "/" : ".");
    char *folder = psc_alloc(length + 1);
    if (folder != NULL) {
        memcpy(folder, path, length);
        folder[length] = '\0';
    }
    return folder;
}

static void destroy(psc_outfile_t *out)
{
    if (out->stream != NULL)
        (void)fclose(out->stream);
    if (out->fd >= 0)
        (void)close(out->fd);
    if (out->temporary != NULL)
        (void)unlink(out->temporary);
    psc_free(out->path);
    psc_free(out->target);
    psc_free(out->folder);
    psc_free(out->temporary);
    psc_free(out->buffer);
    psc_free(out);
}

static psc_status_t cannot_write(const char *path, int errno_value, psc_error_t *error)
{
    return psc_error_set_errno(error, errno_value, "cannot write %s", path);
}

static psc_status_t no_memory(const char *path, psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for writing %s", path);
}

/* The descriptor that a name like /dev/stdout stands for, or -1. */
static int named_descriptor(const char *path)
{
    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    if (strncmp(path, "/dev/fd/", 8) != 0 || path[8] < '0' || path[8] > '9')
        return -1;
    char *end;
    long fd = strtol(path + 8, &end, 10);
    return *end == '\0' && fd <= INT_MAX ? (int)fd : -1;
}

bool psc_file_is_stdout(const char *path)
{
    return named_descriptor(path) == STDOUT_FILENO;
}

/*
 * Fills target, and direct_out: whether it is written in place. A target that exists must be
 * writable, although renaming over it would not need that.
 */
static psc_status_t find_target(psc_outfile_t *out, bool *direct_out, psc_error_t *error)
{
    struct stat info;
    bool exists = stat(out->path, &info) == 0;
    if (!exists && errno != ENOENT)
        return cannot_write(out->path, errno, error);
    if (exists && S_ISDIR(info.st_mode))
        return cannot_write(out->path, EISDIR, error);
    *direct_out = exists && !S_ISREG(info.st_mode);

    struct stat link;
    bool follow = !*direct_out && lstat(out->path, &link) == 0 && S_ISLNK(link.st_mode);
    char resolved[PATH_MAX];
    if (follow && realpath(out->path, resolved) == NULL)
        return cannot_write(out->path, errno, error);
    if (exists && faccessat(AT_FDCWD, out->path, W_OK, AT_EACCESS) != 0)
        return cannot_write(out->path, errno, error);
    out->target = psc_strdup(follow ? resolved : out->path);
    if (out->target == NULL)
        return no_memory(out->path, error);
    out->folder = folder_of(out->target);
    return out->folder != NULL ? PSC_OK : no_memory(out->path, error);
}

static psc_status_t open_temporary(psc_outfile_t *out, psc_error_t *error)
{
    size_t folder = folder_length(out->target);
    const char *name = strrchr(out->target, '/');
    name = name != NULL ? name + 1 : out->target;
    if (name[0] == '\0')
        return cannot_write(out->path, name == out->target ? ENOENT : EISDIR, error);
    size_t size = strlen(out->target) + 64;
    char *temporary = psc_alloc(size);
    if (temporary == NULL)
        return no_memory(out->path, error);
    for (int tries = 0; tries < TEMPORARY_TRIES && out->fd < 0; tries++) {
        uint64_t random = 0;
        (void)!getrandom(&random, sizeof random, 0);
        (void)snprintf(temporary, size, "%.*s%s.%.*s.%ld-%016llx.tmp", (int)folder, out->target,
                       name != out->target ? "/" : "", NAME_BYTES_KEPT, name, (long)getpid(),
                       (unsigned long long)random);
        out->fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (out->fd < 0 && errno != EEXIST)
            break;
    }
    if (out->fd < 0) {
        psc_status_t st = cannot_write(out->path, errno, error);
        psc_free(temporary);
        return st;
    }
    out->temporary = temporary;
    return PSC_OK;
}

static psc_status_t open_descriptor(psc_outfile_t *out, psc_error_t *error)
{
    int own = named_descriptor(out->path);
    if (own >= 0) { /* shares the offset, unlike opening it anew */
        out->fd = fcntl(own, F_DUPFD_CLOEXEC, 3);
        return out->fd >= 0 ? PSC_OK : cannot_write(out->path, errno, error);
    }
    bool direct;
    psc_status_t st = find_target(out, &direct, error);
    if (st != PSC_OK)
        return st;
    if (!direct)
        return open_temporary(out, error);
    out->fd = open(out->target, O_WRONLY | O_APPEND | O_CLOEXEC);
    return out->fd >= 0 ? PSC_OK : cannot_write(out->path, errno, error);
}

static psc_status_t open_stream(psc_outfile_t *out, psc_error_t *error)
{
    static const cookie_io_functions_t functions = {.write = write_cookie, .seek = seek_cookie};
    out->buffer = psc_alloc(STREAM_BUFFER_BYTES);
    if (out->buffer == NULL)
        return no_memory(out->path, error);
    out->stream = fopencookie(out, "w", functions);
    if (out->stream == NULL)
        return no_memory(out->path, error);
    if (setvbuf(out->stream, out->buffer, _IOFBF, STREAM_BUFFER_BYTES) != 0)
        return psc_error_set(error, PSC_INTERNAL, "cannot buffer %s", out->path);
    return PSC_OK;
}

psc_status_t psc_file_check_output(const char *path, psc_error_t *error)
{
    if (strcmp(path, "-") != 0)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "cannot write -: it is no file; name one (./- for one that is called so, "
                         "/dev/stdout for standard output)");
}

psc_status_t psc_outfile_open(const char *path, psc_outfile_t **out, psc_error_t *error)
{
    psc_status_t st = psc_file_check_output(path, error);
    if (st != PSC_OK)
        return st;
    psc_outfile_t *made = psc_alloc_zeroed(1, sizeof *made);
    if (made == NULL)
        return no_memory(path, error);
    made->fd = -1;
    made->path = psc_strdup(path);
    st = made->path != NULL ? PSC_OK : no_memory(path, error);
    if (st == PSC_OK)
        st = open_descriptor(made, error);
    if (st == PSC_OK)
        st = open_stream(made, error);
    if (st != PSC_OK) {
        destroy(made);
        return st;
    }
    *out = made;
    return PSC_OK;
}

FILE *psc_outfile_stream(psc_outfile_t *out)
{
    return out->stream;
}

const char *psc_outfile_temporary(const psc_outfile_t *out)
{
    return out->temporary;
}

/* Flushes and closes; 0 or the errno of what failed first. */
static int finish_stream(psc_outfile_t *out)
{
    bool failed = fflush(out->stream) != 0 || ferror(out->stream) != 0;
    if (fclose(out->stream) != 0)
        failed = true;
    out->stream = NULL;
    if (out->write_errno != 0)
        return out->write_errno;
    if (failed)
        return EIO;
    if (out->temporary != NULL && fsync(out->fd) != 0)
        return errno;
    int fd = out->fd;
    out->fd = -1;
    return close(fd) != 0 ? errno : 0;
}

psc_status_t psc_outfile_commit(psc_outfile_t *out, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    int failed = finish_stream(out);
    if (failed != 0) {
        st = cannot_write(out->path, failed, error);
    } else if (out->temporary != NULL) {
        if (rename(out->temporary, out->target) != 0) {
            st = cannot_write(out->path, errno, error);
        } else {
            psc_free(out->temporary);
            out->temporary = NULL;
            st = psc_file_sync_dir(out->folder, error);
        }
    }
    destroy(out);
    return st;
}

void psc_outfile_abort(psc_outfile_t *out)
{
    if (out != NULL)
        destroy(out);
}

psc_status_t psc_outfile_give_up(psc_outfile_t *out, psc_status_t st, psc_error_t *error)
{
    if (out->write_errno != 0)
        st = cannot_write(out->path, out->write_errno, error);
    destroy(out);
    return st;
}

psc_status_t psc_file_write(const char *path, const void *bytes, size_t size, psc_error_t *error)
{
    psc_outfile_t *out;
    psc_status_t st = psc_outfile_open(path, &out, error);
    if (st != PSC_OK)
        return st;
    if (size != 0)
        (void)fwrite(bytes, 1, size, out->stream);
    return psc_outfile_commit(out, error);
}

/* Grows *bytes to hold at least one more byte than used, and a NUL; never above limit + 2. */
static bool grow(char **bytes, size_t used, size_t *capacity, size_t hint, size_t limit)
{
    if (used + 1 < *capacity)
        return true;
    size_t most = limit < SIZE_MAX - 2 ? limit + 2 : SIZE_MAX;
    size_t wanted = *capacity == 0 ? hint + 2 : *capacity < most / 2 ? *capacity * 2 : most;
    if (wanted > most)
        wanted = most;
    char *grown = psc_realloc_array(*bytes, wanted, 1);
    if (grown == NULL)
        return false;
    *bytes = grown;
    *capacity = wanted;
    return true;
}

static psc_status_t read_all(int fd, const char *path, size_t limit, char **bytes, size_t *used,
                             psc_error_t *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return psc_error_set_errno(error, errno, "cannot read %s", path);
    size_t hint = S_ISREG(info.st_mode) ? (size_t)info.st_size : READ_STEP_BYTES;
    if (hint > limit && !S_ISREG(info.st_mode))
        hint = limit;
    size_t capacity = 0;
    for (;;) {
        if (hint > limit || *used > limit)
            return psc_error_set(error, PSC_CORRUPT, "%s is larger than %zu bytes", path, limit);
        if (!grow(bytes, *used, &capacity, hint, limit))
            return psc_error_set(error, PSC_NO_MEMORY, "out of memory for reading %s", path);
        ssize_t n = read(fd, *bytes + *used, capacity - 1 - *used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return psc_error_set_errno(error, errno, "cannot read %s", path);
        if (n == 0)
            break;
        *used += (size_t)n;
    }
    (*bytes)[*used] = '\0';
    return PSC_OK;
}

/* Errors: INVALID_ARGUMENT: whom the file's mode lets in. */
static psc_status_t check_private(int fd, const char *path, psc_error_t *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return psc_error_set_errno(error, errno, "cannot read %s", path);
    const mode_t open_to = info.st_uid == 0 ? S_IWGRP | S_IRWXO : S_IRWXG | S_IRWXO;
    if ((info.st_mode & open_to) == 0)
        return PSC_OK;
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "%s is for its owner's eyes, but others can read or write it (mode %03o): "
                         "chmod 600",
                         path, (unsigned)(info.st_mode & 0777));
}

static psc_status_t read_file(const char *path, size_t limit, bool private, char **bytes_out,
                              size_t *size_out, psc_error_t *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return psc_error_set_errno(error, errno, "cannot read %s", path);
    char *bytes = NULL;
    size_t used = 0;
    psc_status_t st = private ? check_private(fd, path, error) : PSC_OK;
    if (st == PSC_OK)
        st = read_all(fd, path, limit, &bytes, &used, error);
    (void)close(fd);
    if (st != PSC_OK) {
        psc_free(bytes);
        return st;
    }
    *bytes_out = bytes;
    *size_out = used;
    return PSC_OK;
}

psc_status_t psc_file_read(const char *path, size_t limit, char **bytes_out, size_t *size_out,
                           psc_error_t *error)
{
    return read_file(path, limit, false, bytes_out, size_out, error);
}

psc_status_t psc_file_read_private(const char *path, size_t limit, char **bytes_out,
                                   size_t *size_out, psc_error_t *error)
{
    return read_file(path, limit, true, bytes_out, size_out, error);
}

bool psc_file_has_changed(const char *path, psc_file_version_t *version)
{
    struct stat now;
    const psc_file_version_t then = *version;
    if (stat(path, &now) != 0) {
        *version = (psc_file_version_t){.size = 0};
        return then.inode != 0;
    }
    *version = (psc_file_version_t){.time = now.st_ctim, .size = now.st_size, .inode = now.st_ino};
    return now.st_ino != then.inode || now.st_size != then.size ||
           now.st_ctim.tv_sec != then.time.tv_sec || now.st_ctim.tv_nsec != then.time.tv_nsec;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

psc_status_t psc_file_remove_all(const char *path, psc_error_t *error)
{
    if (nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return psc_error_set_errno(error, errno, "cannot remove %s", path);
    return PSC_OK;
}

psc_status_t psc_file_sync_dir(const char *path, psc_error_t *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return psc_error_set_errno(error, errno, "cannot open folder %s", path);
    /* EINVAL: a file system that does not sync folders. */
    int failed = fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    (void)close(fd);
    if (failed != 0)
        return psc_error_set_errno(error, failed, "cannot sync folder %s", path);
    return PSC_OK;
}

psc_status_t psc_file_sync_parent(const char *path, psc_error_t *error)
{
    char *bare = psc_strdup(path), *folder = NULL;
    for (size_t n = strlen(path); bare != NULL && n > 1 && bare[n - 1] == '/'; n--)
        bare[n - 1] = '\0';
    if (bare != NULL)
        folder = folder_of(bare);
    psc_status_t st = folder == NULL ? no_memory(path, error) : PSC_OK;
    if (st == PSC_OK && (faccessat(AT_FDCWD, folder, R_OK, AT_EACCESS) == 0 || errno != EACCES))
        st = psc_file_sync_dir(folder, error);
    psc_free(bare);
    psc_free(folder);
    return st;
}
