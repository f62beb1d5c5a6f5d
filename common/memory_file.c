/*
 * Memory files by memfd.
 *
 * A memfd has no name that could be left behind, no limit of a mounted /dev/shm, and a size that is
 * sealed, so that no access to a mapping can ever fail by a file that became shorter. Others open
 * it as /proc/PID/fd/N, which the system allows to processes of the same user that see this one;
 * they look at the link before they open it, so that a number from another host opens nothing that
 * it should not, and at a random key in the file's name, so that it is this file and no other.
 *
 * No state; any thread.
 */
#include "common/memory_file.h"

#include "common/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* ---- the host ---- */

static uint64_t mix_in(uint64_t hash, const void *bytes, size_t n)
{
    const uint8_t *byte = bytes;
    for (size_t i = 0; i < n; i++)
        hash = psc_mix64(hash ^ byte[i]);
    return hash;
}

uint64_t psc_memory_host(void)
{
    char boot[64];
    struct stat ids;
    struct utsname names;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, boot, sizeof boot) : 0;
    if (fd >= 0)
        (void)close(fd);
    if (n <= 0 || stat("/proc/self/ns/pid", &ids) != 0 || uname(&names) != 0)
        return 0;
    uint64_t hash = mix_in(1, boot, (size_t)n);
    hash = mix_in(hash, &ids.st_ino, sizeof ids.st_ino);
    hash = mix_in(hash, names.nodename, strlen(names.nodename));
    return hash != 0 ? hash : 1;
}

/* ---- files ---- */

/* What the link to the file reads. */
static void name_of(const char *what, uint64_t key, char name_out[PSC_MEMORY_PATH_MAX])
{
    (void)snprintf(name_out, PSC_MEMORY_PATH_MAX, "embps-%.16s-%016" PRIx64, what, key);
}

psc_status_t psc_memory_file_create(const char *what, uint64_t bytes, psc_memory_file_t *file_out,
                                    psc_error_t *error)
{
    char name[PSC_MEMORY_PATH_MAX];
    uint64_t key = 0;
    if (getrandom(&key, sizeof key, 0) != (ssize_t)sizeof key)
        return psc_error_set(error, PSC_IO, "no random number for a memory file");
    name_of(what, key, name);
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return psc_error_set(error, PSC_IO, "no memory file for %.16s: %s", what,
                             strerrordesc_np(errno));
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        int reason = errno;
        (void)close(fd);
        return psc_error_set(error, PSC_IO, "a memory file of %" PRIu64 " bytes for %.16s: %s",
                             bytes, what, strerrordesc_np(reason));
    }
    *file_out = (psc_memory_file_t){.fd = fd, .key = key};
    (void)snprintf(file_out->path, sizeof file_out->path, "/proc/%ld/fd/%d", (long)getpid(), fd);
    return PSC_OK;
}

/* Looks at the link alone. */
static bool is_the_link(const char *what, const char *path, uint64_t key)
{
    char name[PSC_MEMORY_PATH_MAX], expected[2 * PSC_MEMORY_PATH_MAX], link[256];
    name_of(what, key, name);
    int n = snprintf(expected, sizeof expected, "/memfd:%s", name);
    ssize_t length = readlink(path, link, sizeof link);
    return length >= n && memcmp(link, expected, (size_t)n) == 0;
}

psc_status_t psc_memory_file_open(const char *what, const char *path, uint64_t key, bool write,
                                  int *fd_out, uint64_t *bytes_out, psc_error_t *error)
{
    if (!is_the_link(what, path, key))
        return psc_error_set(error, PSC_NOT_FOUND, "the %.16s of another process are not at %.64s",
                             what, path);
    int fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return psc_error_set(error, PSC_NOT_FOUND, "%.64s: %s", path, strerrordesc_np(errno));
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &file) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
        (void)close(fd);
        return psc_error_set(error, PSC_MISMATCH, "a memory file that could become shorter");
    }
    *fd_out = fd;
    *bytes_out = (uint64_t)file.st_size;
    return PSC_OK;
}
