/*
 * A library that is loaded before others (LD_PRELOAD) into what is tested. It writes down every
 * change of files below one folder, and what was synced, so that tests/power/power_cut.py can make
 * of the folder what a power cut would have left of it. It also makes calls fail.
 *
 *     EMBPS_POWER_ROOT   the folder, as realpath gives it
 *     EMBPS_POWER_STATE  a folder elsewhere, made by power_cut.py: the journals, one for each
 *                        process; `shared`, `lock`; `boot_id`, which is what the process reads in
 *                        place of the system's
 *     EMBPS_POWER_FAIL   CODE:FROM:COUNT:PART, CODE is EIO, ENOSPC or EROFS: of the calls that
 *                        change, or sync, a path with PART in it (empty: all), COUNT fail from the
 *                        FROM-th on, counted over all processes. The first of ENOSPC writes half
 *                        before
 *
 * Changes are made one at a time, of all threads and processes, and numbered: so the journals
 * together have them in the order in which they happened. A change is written down when it was
 * made; whoever is killed in between leaves one that was lost, as an unsynced one may be. Nothing
 * is really synced, since the machine stays up. At change number cut_at (in `shared`) the power is
 * cut: that process is killed, and all others stand still at their next change.
 *
 * What it does not see: writes by mappings, by stdio, to descriptors that were copied or received,
 * and moves from folder to folder. RocksDB with the options of cold_rocks.c does none of it but for
 * its log, LOG, which nobody reads; a mapping that could write, or such a move, is written down as
 * not seen, and the tool then fails. It compares too what it has read with what there is.
 *
 * Threads: any.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x31726577506d6521)
#define FDS 4096
#define BOOT "/proc/sys/kernel/random/boot_id"

/* The numbers are those of power_cut.py. */
typedef enum change {
    CREATE = 1, /* file at path */
    SIZE,       /* file: of `at` bytes */
    WRITE,      /* file: bytes at `at` */
    SYNC,       /* file, or folder */
    MKDIR,      /* file at path */
    RENAME,     /* path to other */
    LINK,       /* file at other */
    UNLINK,     /* path, of a file or of an empty folder */
    NOT_SEEN,   /* path */
} change_t;

typedef struct record {
    uint64_t magic, number, change, file, at, n_bytes;
    uint32_t n_path, n_other;
} record_t;

/* What processes share, in a file. */
typedef struct shared {
    uint64_t number; /* of the last change */
    uint64_t cut_at; /* 0: never */
    uint64_t off;
    uint64_t n_counted, n_failed; /* of EMBPS_POWER_FAIL */
} shared_t;

static struct {
    char root[PATH_MAX], boot[PATH_MAX], part[64];
    size_t n_root; /* 0: this process is not watched */
    int lock, journal;
    shared_t *shared;
    int fail_code;
    uint64_t fail_from, fail_count;
    pthread_mutex_t mutex;
    atomic_uchar ours[FDS]; /* a descriptor is of a file or folder below root */
} shim = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- start ---- */

static void give_up(const char *what)
{
    (void)dprintf(STDERR_FILENO, "power_shim: %s: %s\n", what, strerror(errno));
    _exit(99);
}

static int open_state(const char *state, const char *name, int flags)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", state, name);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        give_up(path);
    return fd;
}

static void read_faults(const char *text)
{
    char *end = NULL;
    const char *numbers = text != NULL ? strchr(text, ':') : NULL;
    if (text == NULL)
        return;
    shim.fail_code = strncmp(text, "ENOSPC:", 7) == 0  ? ENOSPC
                     : strncmp(text, "EROFS:", 6) == 0 ? EROFS
                                                       : EIO;
    shim.fail_from = numbers != NULL ? strtoull(numbers + 1, &end, 10) : 0;
    if (end == NULL || shim.fail_from == 0 || *end != ':')
        give_up("EMBPS_POWER_FAIL");
    shim.fail_count = strtoull(end + 1, &end, 10);
    if (*end != ':')
        give_up("EMBPS_POWER_FAIL");
    (void)snprintf(shim.part, sizeof shim.part, "%s", end + 1);
}

__attribute__((constructor)) static void start(void)
{
    const char *root = getenv("EMBPS_POWER_ROOT"), *state = getenv("EMBPS_POWER_STATE");
    char name[64];
    if (root == NULL || state == NULL)
        return;
    (void)snprintf(shim.root, sizeof shim.root, "%s", root);
    (void)snprintf(shim.boot, sizeof shim.boot, "%s/boot_id", state);
    (void)snprintf(name, sizeof name, "journal-%ld", (long)getpid());
    shim.lock = open_state(state, "lock", O_RDWR | O_CREAT);
    shim.journal = open_state(state, name, O_WRONLY | O_CREAT | O_APPEND);
    const int fd = open_state(state, "shared", O_RDWR);
    void *bytes = (void *)syscall(SYS_mmap, NULL, sizeof(shared_t), PROT_READ | PROT_WRITE,
                                  MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        give_up("shared");
    shim.shared = bytes;
    (void)syscall(SYS_close, fd);
    read_faults(getenv("EMBPS_POWER_FAIL"));
    shim.n_root = strlen(shim.root);
}

/* ---- one change at a time ---- */

static void leave(void)
{
    const int failed = errno;
    (void)syscall(SYS_flock, shim.lock, LOCK_UN);
    (void)pthread_mutex_unlock(&shim.mutex);
    errno = failed;
}

static void enter(void)
{
    (void)pthread_mutex_lock(&shim.mutex);
    while (syscall(SYS_flock, shim.lock, LOCK_EX) != 0)
        ;
    shared_t *shared = shim.shared;
    if (shared->off == 0 && ++shared->number == shared->cut_at) {
        shared->off = 1;
        (void)kill(getpid(), SIGKILL);
    }
    while (shared->off != 0) { /* until it is killed */
        leave();
        (void)pause();
        (void)pthread_mutex_lock(&shim.mutex);
    }
}

static void put(change_t change, uint64_t file, uint64_t at, const char *path, const char *other,
                const struct iovec *pieces, int n_pieces, size_t n_bytes)
{
    record_t record = {.magic = MAGIC,
                       .number = shim.shared->number,
                       .change = change,
                       .file = file,
                       .at = at,
                       .n_bytes = n_bytes,
                       .n_path = (uint32_t)(path != NULL ? strlen(path) : 0),
                       .n_other = (uint32_t)(other != NULL ? strlen(other) : 0)};
    const struct iovec head[] = {
        {&record, sizeof record}, {(void *)path, record.n_path}, {(void *)other, record.n_other}};
    bool whole = syscall(SYS_writev, shim.journal, head, 3) ==
                 (ssize_t)(sizeof record + record.n_path + record.n_other);
    for (int i = 0; i < n_pieces && n_bytes != 0; i++) { /* of a short write less than all */
        const size_t n = pieces[i].iov_len < n_bytes ? pieces[i].iov_len : n_bytes;
        whole = syscall(SYS_write, shim.journal, pieces[i].iov_base, n) == (ssize_t)n && whole;
        n_bytes -= n;
    }
    if (!whole)
        give_up("journal");
}

/* Whether this change is to fail, and errno then. half: it may be done half before. */
static int fault(const char *path, bool *half)
{
    shared_t *shared = shim.shared;
    if (shim.fail_code == 0 || strstr(path, shim.part) == NULL)
        return 0;
    const uint64_t n = ++shared->n_counted;
    if (n < shim.fail_from || n - shim.fail_from >= shim.fail_count)
        return 0;
    *half = shared->n_failed++ == 0 && shim.fail_code == ENOSPC;
    return shim.fail_code;
}

/* The path of a descriptor; "": none. */
static void path_of(int fd, char path[PATH_MAX])
{
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
}

static int fault_of(int fd, bool *half)
{
    char path[PATH_MAX];
    if (shim.fail_code == 0)
        return 0;
    path_of(fd, path);
    return fault(path, half);
}

static int refuse(int failed)
{
    leave();
    errno = failed;
    return -1;
}

static bool ours(int fd, struct stat *status)
{
    return shim.n_root != 0 && fd >= 0 && fd < FDS && atomic_load(&shim.ours[fd]) != 0 &&
           fstat(fd, status) == 0 && (S_ISREG(status->st_mode) || S_ISDIR(status->st_mode));
}

/* The path below root, without a slash before it; "": root; NULL: neither. base: the descriptor of
 * the folder that a relative path begins in. */
static const char *below(int base, const char *path, char whole[2 * PATH_MAX])
{
    char folder[PATH_MAX], real[PATH_MAX];
    if (shim.n_root == 0 || path == NULL)
        return NULL;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    if (base == AT_FDCWD || path[0] == '/') {
        (void)snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1,
                       slash != NULL ? path : ".");
        if (realpath(folder, real) == NULL)
            return NULL;
    } else {
        path_of(base, real);
    }
    (void)snprintf(whole, (size_t)2 * PATH_MAX, "%s/%s", real, name);
    if (strncmp(whole, shim.root, shim.n_root) != 0)
        return NULL;
    if (whole[shim.n_root] == '\0')
        return whole + shim.n_root; /* root itself */
    if (whole[shim.n_root] != '/')
        return NULL;
    return whole + shim.n_root + 1;
}

static bool is_log(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    return strncmp(name, "LOG", 3) == 0;
}

/* ---- descriptors ---- */

static int open_plain(int base, const char *path, int flags, mode_t mode)
{
    if (strcmp(path, BOOT) == 0 && shim.n_root != 0)
        path = shim.boot;
    return (int)syscall(SYS_openat, base, path, flags, mode);
}

static int open_any(int base, const char *path, int flags, mode_t mode)
{
    char whole[2 * PATH_MAX];
    struct stat status = {.st_size = 0};
    bool half;
    const char *at = below(base, path, whole);
    if (at == NULL) {
        const int fd = open_plain(base, path, flags, mode);
        if (fd >= 0 && fd < FDS)
            atomic_store(&shim.ours[fd], 0);
        return fd;
    }
    const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0;
    if (changes)
        enter();
    const bool fresh = changes && lstat(whole, &status) != 0;
    const int failed = changes && (fresh || (flags & O_TRUNC) != 0) ? fault(whole, &half) : 0;
    if (failed != 0)
        return refuse(failed);
    const off_t size = status.st_size;
    const int fd = open_plain(base, path, flags, mode);
    if (fd >= 0 && changes && fstat(fd, &status) == 0) {
        if (fresh)
            put(CREATE, status.st_ino, 0, at, NULL, NULL, 0, 0);
        else if ((flags & O_TRUNC) != 0 && size != 0)
            put(SIZE, status.st_ino, 0, NULL, NULL, NULL, 0, 0);
    }
    if (fd >= FDS)
        give_up("too many descriptors");
    if (fd >= 0)
        atomic_store(&shim.ours[fd], !is_log(at));
    if (changes)
        leave();
    return fd;
}

/* Under their own names they would have to be variadic. A mode that was not given is not used. */
int shim_open(const char *path, int flags, mode_t mode) __asm__("open");
int shim_open64(const char *path, int flags, mode_t mode) __asm__("open64");
int shim_openat(int base, const char *path, int flags, mode_t mode) __asm__("openat");
int shim_openat64(int base, const char *path, int flags, mode_t mode) __asm__("openat64");

int shim_open(const char *path, int flags, mode_t mode)
{
    return open_any(AT_FDCWD, path, flags, mode);
}

int shim_open64(const char *path, int flags, mode_t mode)
{
    return open_any(AT_FDCWD, path, flags, mode);
}

int shim_openat(int base, const char *path, int flags, mode_t mode)
{
    return open_any(base, path, flags, mode);
}

int shim_openat64(int base, const char *path, int flags, mode_t mode)
{
    return open_any(base, path, flags, mode);
}

int close(int fd)
{
    if (fd >= 0 && fd < FDS)
        atomic_store(&shim.ours[fd], 0);
    return (int)syscall(SYS_close, fd);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    struct stat status;
    char path[PATH_MAX];
    if ((protection & PROT_WRITE) != 0 && (flags & MAP_SHARED) != 0 && ours(fd, &status)) {
        path_of(fd, path);
        enter();
        put(NOT_SEEN, status.st_ino, 0, path, NULL, NULL, 0, 0);
        leave();
    }
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}

/* ---- bytes ---- */

/* at < 0: where the descriptor stands. */
static ssize_t write_any(int fd, const struct iovec *pieces, int n_pieces, off_t at)
{
    struct stat status;
    bool half = false;
    const bool is_ours = ours(fd, &status);
    if (!is_ours)
        return at < 0 ? syscall(SYS_writev, fd, pieces, n_pieces)
                      : syscall(SYS_pwritev, fd, pieces, n_pieces, at, 0);
    enter();
    const struct iovec part = {pieces[0].iov_base, pieces[0].iov_len / 2};
    const int failed = fault_of(fd, &half);
    if (failed != 0 && (!half || part.iov_len == 0))
        return refuse(failed);
    if (failed != 0) {
        pieces = &part;
        n_pieces = 1;
    }
    const bool appends = (fcntl(fd, F_GETFL) & O_APPEND) != 0;
    off_t begin = at >= 0 ? at : lseek(fd, 0, SEEK_CUR);
    if (appends && fstat(fd, &status) == 0)
        begin = status.st_size;
    const ssize_t n = at < 0 ? syscall(SYS_writev, fd, pieces, n_pieces)
                             : syscall(SYS_pwritev, fd, pieces, n_pieces, at, 0);
    if (n > 0)
        put(WRITE, status.st_ino, (uint64_t)begin, NULL, NULL, pieces, n_pieces, (size_t)n);
    leave();
    return n;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    const struct iovec piece = {(void *)bytes, n};
    return write_any(fd, &piece, 1, -1);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    const struct iovec piece = {(void *)bytes, n};
    return write_any(fd, &piece, 1, at);
}

ssize_t writev(int fd, const struct iovec *pieces, int n)
{
    return write_any(fd, pieces, n, -1);
}

int ftruncate(int fd, off_t size)
{
    struct stat status;
    bool half;
    if (!ours(fd, &status))
        return (int)syscall(SYS_ftruncate, fd, size);
    enter();
    const int failed = fault_of(fd, &half);
    if (failed != 0 && failed != ENOSPC)
        return refuse(failed);
    (void)fstat(fd, &status);
    const int result = (int)syscall(SYS_ftruncate, fd, size);
    if (result == 0 && status.st_size != size)
        put(SIZE, status.st_ino, (uint64_t)size, NULL, NULL, NULL, 0, 0);
    leave();
    return result;
}

/* Room alone, and holes behind the end, change nothing that is read. */
int fallocate(int fd, int mode, off_t at, off_t n)
{
    struct stat status;
    bool half;
    if (!ours(fd, &status))
        return (int)syscall(SYS_fallocate, fd, mode, at, n);
    enter();
    const int failed = fault_of(fd, &half);
    if (failed != 0)
        return refuse(failed);
    (void)fstat(fd, &status);
    const bool grows = (mode & FALLOC_FL_KEEP_SIZE) == 0 && at + n > status.st_size;
    const bool changes = mode != 0 && mode != FALLOC_FL_KEEP_SIZE && at < status.st_size;
    const int result = (int)syscall(SYS_fallocate, fd, mode, at, n);
    if (result == 0 && (grows || changes))
        put(changes ? NOT_SEEN : SIZE, status.st_ino, (uint64_t)(at + n), "fallocate", NULL, NULL,
            0, 0);
    leave();
    return result;
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    return fallocate(fd, 0, at, n) == 0 ? 0 : errno;
}

int fsync(int fd)
{
    struct stat status;
    bool half;
    if (!ours(fd, &status))
        return (int)syscall(SYS_fsync, fd);
    enter();
    const int failed = fault_of(fd, &half);
    if (failed != 0)
        return refuse(failed);
    put(SYNC, status.st_ino, 0, NULL, NULL, NULL, 0, 0);
    leave();
    return 0;
}

int fdatasync(int fd)
{
    return fsync(fd);
}

/* ---- names ---- */

int mkdir(const char *path, mode_t mode)
{
    char whole[2 * PATH_MAX];
    struct stat status;
    bool half;
    const char *at = below(AT_FDCWD, path, whole);
    if (at == NULL)
        return (int)syscall(SYS_mkdir, path, mode);
    enter();
    const int failed = fault(whole, &half);
    if (failed != 0)
        return refuse(failed);
    const int result = (int)syscall(SYS_mkdir, path, mode);
    if (result == 0 && lstat(path, &status) == 0)
        put(MKDIR, status.st_ino, 0, at, NULL, NULL, 0, 0);
    leave();
    return result;
}

/* Two paths, of which both or none must be below root. */
static int pair(long call, const char *from, const char *to)
{
    char whole_from[2 * PATH_MAX], whole_to[2 * PATH_MAX];
    struct stat status = {.st_ino = 0};
    bool half;
    const char *at = below(AT_FDCWD, from, whole_from), *other = below(AT_FDCWD, to, whole_to);
    if (at == NULL && other == NULL)
        return (int)syscall(call, from, to);
    enter();
    const int failed = fault(other != NULL ? whole_to : whole_from, &half);
    if (failed != 0)
        return refuse(failed);
    const int result = (int)syscall(call, from, to);
    const bool is_link = call == SYS_link;
    if (result == 0 && (at == NULL || other == NULL || (is_link && lstat(to, &status) != 0)))
        put(NOT_SEEN, 0, 0, at != NULL ? at : other, NULL, NULL, 0, 0);
    else if (result == 0)
        put(is_link ? LINK : RENAME, status.st_ino, 0, at, other, NULL, 0, 0);
    leave();
    return result;
}

int rename(const char *from, const char *to)
{
    return pair(SYS_rename, from, to);
}

int link(const char *from, const char *to)
{
    return pair(SYS_link, from, to);
}

/* A full disk takes names away. */
int unlinkat(int base, const char *path, int flags)
{
    char whole[2 * PATH_MAX];
    bool half;
    const char *at = below(base, path, whole);
    if (at == NULL)
        return (int)syscall(SYS_unlinkat, base, path, flags);
    enter();
    const int failed = shim.fail_code != ENOSPC ? fault(whole, &half) : 0;
    if (failed != 0)
        return refuse(failed);
    const int result = (int)syscall(SYS_unlinkat, base, path, flags);
    if (result == 0)
        put(UNLINK, 0, 0, at, NULL, NULL, 0, 0);
    leave();
    return result;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int remove(const char *path)
{
    struct stat status;
    const bool folder = lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
    return unlinkat(AT_FDCWD, path, folder ? AT_REMOVEDIR : 0);
}

/* The same calls, as they are called where off_t was not always 64 bits. */
ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t at) __attribute__((alias("pwrite")));
int ftruncate64(int fd, off_t size) __attribute__((alias("ftruncate")));
int fallocate64(int fd, int mode, off_t at, off_t n) __attribute__((alias("fallocate")));
int posix_fallocate64(int fd, off_t at, off_t n) __attribute__((alias("posix_fallocate")));
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));
