/*
 * A file is known by its inode. Of each it is remembered how many of its bytes were synced, which
 * is enough, since the product only appends; of each folder, which names it had when that was
 * synced. What was removed and not synced stays removed.
 *
 * A call that fails has done nothing, but for a write, of which half may have been done.
 */
#include "tests/sim/sim_disk.h"

#include "common/alloc.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NAME_BYTES 96u
#define PATH_BYTES 512u

typedef struct name {
    char text[NAME_BYTES];
    ino_t inode;
} name_t;

typedef struct names {
    name_t *all;
    size_t n;
} names_t;

typedef struct record {
    ino_t inode;
    off_t synced;  /* bytes of a file */
    names_t names; /* of a folder */
} record_t;

static struct {
    sim_last_fn last;
    record_t *records;
    size_t n_records;
} disk;

int real_open(const char *path, int flags, ...) __asm__("__real_open");
int sim_open(const char *path, int flags, ...) __asm__("__wrap_open");
ssize_t real_write(int fd, const void *bytes, size_t n) __asm__("__real_write");
ssize_t sim_write(int fd, const void *bytes, size_t n) __asm__("__wrap_write");
ssize_t real_writev(int fd, const struct iovec *pieces, int n) __asm__("__real_writev");
ssize_t sim_writev(int fd, const struct iovec *pieces, int n) __asm__("__wrap_writev");
int real_fsync(int fd) __asm__("__real_fsync");
int sim_fsync(int fd) __asm__("__wrap_fsync");
int sim_fdatasync(int fd) __asm__("__wrap_fdatasync");
int real_ftruncate(int fd, off_t size) __asm__("__real_ftruncate");
int sim_ftruncate(int fd, off_t size) __asm__("__wrap_ftruncate");
int real_rename(const char *from, const char *to) __asm__("__real_rename");
int sim_rename(const char *from, const char *to) __asm__("__wrap_rename");
int real_link(const char *from, const char *to) __asm__("__real_link");
int sim_link(const char *from, const char *to) __asm__("__wrap_link");
int real_mkdir(const char *path, mode_t mode) __asm__("__real_mkdir");
int sim_mkdir(const char *path, mode_t mode) __asm__("__wrap_mkdir");
int real_unlink(const char *path) __asm__("__real_unlink");
int sim_unlink(const char *path) __asm__("__wrap_unlink");
int real_remove(const char *path) __asm__("__real_remove");
int sim_remove(const char *path) __asm__("__wrap_remove");

/* ---- what is remembered ---- */

static record_t *find(ino_t inode)
{
    for (size_t i = 0; i < disk.n_records; i++) {
        if (disk.records[i].inode == inode)
            return &disk.records[i];
    }
    return NULL;
}

static record_t *find_or_add(ino_t inode)
{
    record_t *record = find(inode);
    if (record != NULL)
        return record;
    record_t *grown = psc_realloc_array(disk.records, disk.n_records + 1, sizeof *grown);
    SIM_CHECK(grown != NULL);
    disk.records = grown;
    grown[disk.n_records] = (record_t){.inode = inode};
    return &grown[disk.n_records++];
}

/* The inode is another file's now. */
static void forget(ino_t inode)
{
    record_t *record = find(inode);
    if (record == NULL)
        return;
    psc_free(record->names.all);
    *record = disk.records[--disk.n_records];
}

static const name_t *find_name(const names_t *names, const char *text, ino_t inode)
{
    for (size_t i = 0; i < names->n; i++) {
        if ((text == NULL || strcmp(names->all[i].text, text) == 0) &&
            (inode == 0 || names->all[i].inode == inode))
            return &names->all[i];
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const name_t *)a)->text, ((const name_t *)b)->text);
}

/* Sorted. Gives. */
static names_t list(const char *path)
{
    names_t names = {.n = 0};
    DIR *entries = opendir(path);
    const struct dirent *entry;
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        names.all = psc_realloc_array(names.all, names.n + 1, sizeof *names.all);
        SIM_CHECK(names.all != NULL);
        name_t *name = &names.all[names.n++];
        (void)snprintf(name->text, sizeof name->text, "%.95s", entry->d_name);
        name->inode = entry->d_ino;
    }
    if (entries != NULL)
        (void)closedir(entries);
    if (names.n != 0)
        qsort(names.all, names.n, sizeof *names.all, by_name);
    return names;
}

static void remember_synced(const char *path, const struct stat *status)
{
    record_t *record = find_or_add(status->st_ino);
    if (S_ISDIR(status->st_mode)) {
        psc_free(record->names.all);
        record->names = list(path);
    } else if (status->st_size > record->synced) {
        record->synced = status->st_size;
    }
}

/* ---- calls ---- */

/* A change of a file is about to be made: 0, or errno of why it is not. */
static int begin_change(void)
{
    sim_process_t *process = sim_current();
    if (process == NULL)
        return 0;
    if (process->dead)
        return EIO;
    if (process->files_left != 0 && --process->files_left == 0) {
        process->dead = true; /* in the middle of it */
        sim_log("%s is killed at a file", process->label);
        disk.last(process);
        return EIO;
    }
    if (process->disk_us != 0)
        sim_wait_until(sim_now() + 1 + sim_below(process->disk_us));
    if (process->dead)
        return EIO;
    return process->disk_faults != 0 && sim_below(1000) < process->disk_faults
               ? (sim_one_in(2) ? ENOSPC : EIO)
               : 0;
}

/* What a call returns. */
static int refuse(int failed)
{
    errno = failed;
    return -1;
}

int sim_open(const char *path, int flags, ...)
{
    struct stat status;
    va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? (mode_t)va_arg(arguments, unsigned) : 0;
    va_end(arguments);
    const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0;
    const bool fresh = changes && access(path, F_OK) != 0;
    const int failed = changes ? begin_change() : 0;
    if (failed != 0)
        return refuse(failed);
    const int fd = real_open(path, flags, mode);
    if (fd >= 0 && changes && (fresh || (flags & O_TRUNC) != 0) && fstat(fd, &status) == 0)
        forget(status.st_ino);
    return fd;
}

ssize_t sim_write(int fd, const void *bytes, size_t n)
{
    const int failed = fd > STDERR_FILENO ? begin_change() : 0;
    if (failed != 0 && n > 1 && sim_current() != NULL && !sim_current()->dead)
        (void)!real_write(fd, bytes, n / 2);
    return failed != 0 ? refuse(failed) : real_write(fd, bytes, n);
}

ssize_t sim_writev(int fd, const struct iovec *pieces, int n)
{
    const int failed = fd > STDERR_FILENO ? begin_change() : 0;
    if (failed != 0 && n > 1 && sim_current() != NULL && !sim_current()->dead)
        (void)!real_writev(fd, pieces, n / 2);
    return failed != 0 ? refuse(failed) : real_writev(fd, pieces, n);
}

int sim_fsync(int fd)
{
    struct stat status;
    char path[64];
    const int failed = begin_change();
    if (failed != 0)
        return refuse(failed);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &status) != 0)
        return -1;
    remember_synced(path, &status);
    return 0; /* the machine stays up */
}

int sim_fdatasync(int fd)
{
    return sim_fsync(fd);
}

int sim_ftruncate(int fd, off_t size)
{
    struct stat status;
    const int failed = begin_change();
    if (failed != 0)
        return refuse(failed);
    record_t *record = fstat(fd, &status) == 0 ? find(status.st_ino) : NULL;
    if (record != NULL && record->synced > size)
        record->synced = size;
    return real_ftruncate(fd, size);
}

int sim_rename(const char *from, const char *to)
{
    const int failed = begin_change();
    return failed != 0 ? refuse(failed) : real_rename(from, to);
}

int sim_link(const char *from, const char *to)
{
    const int failed = begin_change();
    return failed != 0 ? refuse(failed) : real_link(from, to);
}

int sim_mkdir(const char *path, mode_t mode)
{
    struct stat status;
    const int failed = begin_change();
    if (failed != 0)
        return refuse(failed);
    const int made = real_mkdir(path, mode);
    if (made == 0 && stat(path, &status) == 0)
        forget(status.st_ino);
    return made;
}

int sim_unlink(const char *path)
{
    const int failed = begin_change();
    return failed != 0 ? refuse(failed) : real_unlink(path);
}

int sim_remove(const char *path)
{
    const int failed = begin_change();
    return failed != 0 ? refuse(failed) : real_remove(path);
}

/* ---- power cuts ---- */

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return real_remove(path);
}

#define SECTOR_BYTES 512

/* Zeros in the place of sectors that did not come to the disk, from an offset on. */
static void lose_sectors(const char *path, off_t from, off_t size)
{
    static const char zeros[SECTOR_BYTES] = {0};
    const int fd = real_open(path, O_WRONLY | O_CLOEXEC);
    SIM_CHECK(fd >= 0);
    for (off_t at = from; at < size;) {
        const off_t next = (at / SECTOR_BYTES + 1) * SECTOR_BYTES;
        const off_t end = next < size ? next : size;
        if (sim_one_in(2))
            SIM_CHECK(pwrite(fd, zeros, (size_t)(end - at), at) == end - at);
        at = end;
    }
    (void)close(fd);
    sim_log("power cut: %s has some of its sectors", strrchr(path, '/') + 1);
}

/* Of a file: what was not synced of it. */
static void cut_file(const char *path, const struct stat *status)
{
    const record_t *record = find(status->st_ino);
    const off_t synced = record != NULL ? record->synced : 0;
    if (status->st_size <= synced || sim_one_in(3))
        return;
    if (sim_one_in(3)) {
        lose_sectors(path, synced, status->st_size);
        return;
    }
    const off_t left = synced + (off_t)sim_below((uint64_t)(status->st_size - synced) + 1);
    SIM_CHECK(truncate(path, left) == 0);
    if (sim_one_in(2)) /* as long as it was, with zeros */
        SIM_CHECK(truncate(path, status->st_size) == 0);
    sim_log("power cut: %s has %lld of its %lld bytes", strrchr(path, '/') + 1, (long long)left,
            (long long)status->st_size);
}

static void cut_folder(const char *path, const struct stat *status);

/* A name that is there. */
static void cut_name(const char *folder, const names_t *synced, const names_t *now,
                     const name_t *name)
{
    char path[PATH_BYTES], before[PATH_BYTES];
    struct stat status;
    const name_t *former = find_name(synced, NULL, name->inode);
    (void)snprintf(path, sizeof path, "%.400s/%s", folder, name->text);
    const bool is_synced = find_name(synced, name->text, name->inode) != NULL;
    const bool renamed =
        !is_synced && former != NULL && find_name(now, former->text, name->inode) == NULL;
    if (renamed && sim_one_in(2)) {
        (void)snprintf(before, sizeof before, "%.400s/%s", folder, former->text);
        SIM_CHECK(real_rename(path, before) == 0);
        sim_log("power cut: %s is %s again", name->text, former->text);
        memcpy(path, before, sizeof path);
    } else if (!is_synced && !renamed && sim_one_in(2)) {
        SIM_CHECK(nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS) == 0);
        sim_log("power cut: %s is not there", name->text);
        return;
    }
    SIM_CHECK(lstat(path, &status) == 0);
    if (S_ISDIR(status.st_mode))
        cut_folder(path, &status);
    else
        cut_file(path, &status);
}

static void cut_folder(const char *path, const struct stat *status)
{
    const record_t *record = find(status->st_ino);
    const names_t synced = record != NULL ? record->names : (names_t){.n = 0};
    names_t now = list(path);
    for (size_t i = 0; i < now.n; i++)
        cut_name(path, &synced, &now, &now.all[i]);
    psc_free(now.all);
}

static int sync_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)type;
    (void)where;
    remember_synced(path, status);
    return 0;
}

void sim_disk_cut_power(const char *folder)
{
    struct stat status;
    if (stat(folder, &status) != 0)
        return;
    cut_folder(folder, &status);
    SIM_CHECK(nftw(folder, sync_entry, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

void sim_disk_begin(sim_last_fn last)
{
    disk.last = last;
}

void sim_disk_end(void)
{
    for (size_t i = 0; i < disk.n_records; i++)
        psc_free(disk.records[i].names.all);
    psc_free(disk.records);
    disk.records = NULL;
    disk.n_records = 0;
}
