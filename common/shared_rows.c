/*
 * The memory file, and the reader's half of the sequence lock.
 *
 * The file is a memfd: it has no name that could be left behind, no limit of a mounted /dev/shm,
 * and a size that is sealed, so that no access to a mapping can ever fail by a file that became
 * shorter. Readers open it as /proc/PID/fd/N, which the system allows to processes of the same user
 * that see this one; they look at the link before they open it, so that a number from another host
 * opens nothing that it should not, and at a random key, so that it is this file and no other. They
 * map it read-only. It lives until the last mapping is gone: a server that dies leaves a reader
 * with rows that do not change any more, not with a fault.
 *
 * A read (psc_shared_read) takes the record as it is: PRESENT, of this table and id, its serial not
 * the one that is being written; then the values; then state and serial again. The orders: a
 * reader that sees a serial sees `changing` of at least that push, so where it differs, the push is
 * over and its values are seen; a reader that sees a value of a later change sees its serial, or a
 * state that is not PRESENT, when it looks again. Where memory was given to records of another
 * size, a place is none any more, and what lies there could look like a header: `layout` has grown
 * then. A serial does not come back at a place before 2^31 pushes or loads have been, during a copy
 * of some hundred bytes.
 *
 * Threads: one writer; any number of readers, in any process.
 */
#include "common/shared_rows.h"

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

#define MAGIC UINT64_C(0x31776f7273706265) /* "ebpsrow1" */
/* Where the rows begin: behind the control block, fit for huge pages. */
#define ROWS_OFFSET ((uint64_t)2 << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* ---- the host ---- */

static uint64_t mix_in(uint64_t hash, const void *bytes, size_t n)
{
    const uint8_t *byte = bytes;
    for (size_t i = 0; i < n; i++)
        hash = psc_mix64(hash ^ byte[i]);
    return hash;
}

uint64_t psc_shared_host(void)
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

/* ---- the file ---- */

/* What the link to the file reads. */
static void name_of(uint64_t key, char name_out[PSC_SHARED_PATH_MAX])
{
    (void)snprintf(name_out, PSC_SHARED_PATH_MAX, "embps-rows-%016" PRIx64, key);
}

static psc_status_t make_file(uint64_t key, uint64_t bytes, int *fd_out, psc_error_t *error)
{
    char name[PSC_SHARED_PATH_MAX];
    name_of(key, name);
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return psc_error_set(error, PSC_IO, "no memory file for rows: %s", strerrordesc_np(errno));
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        int reason = errno;
        (void)close(fd);
        return psc_error_set(error, PSC_IO, "a memory file of %" PRIu64 " bytes for rows: %s",
                             bytes, strerrordesc_np(reason));
    }
    *fd_out = fd;
    return PSC_OK;
}

psc_status_t psc_shared_create(uint64_t rows_bytes, psc_shared_file_t *file_out, psc_error_t *error)
{
    uint64_t key = 0;
    int fd = -1;
    if (getrandom(&key, sizeof key, 0) != (ssize_t)sizeof key)
        return psc_error_set(error, PSC_IO, "no random number for a memory file");
    psc_status_t st = make_file(key, ROWS_OFFSET + rows_bytes, &fd, error);
    if (st != PSC_OK)
        return st;
    void *head =
        mmap(NULL, sizeof(psc_shared_control_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (head == MAP_FAILED) {
        int reason = errno;
        (void)close(fd);
        return psc_error_set(error, PSC_IO, "mapping a memory file for rows: %s",
                             strerrordesc_np(reason));
    }
    *file_out = (psc_shared_file_t){.fd = fd, .control = head};
    *file_out->control = (psc_shared_control_t){
        .magic = MAGIC, .key = key, .rows_offset = ROWS_OFFSET, .rows_bytes = rows_bytes};
    (void)snprintf(file_out->path, sizeof file_out->path, "/proc/%ld/fd/%d", (long)getpid(), fd);
    return PSC_OK;
}

void psc_shared_destroy(psc_shared_file_t *file)
{
    if (file->control == NULL)
        return;
    psc_shared_close(file->control);
    (void)munmap(file->control, sizeof *file->control);
    (void)close(file->fd);
    *file = (psc_shared_file_t){.fd = -1};
}

/* Looks at the link alone. */
static bool is_the_link(const char *path, uint64_t key)
{
    char name[PSC_SHARED_PATH_MAX], expected[2 * PSC_SHARED_PATH_MAX], link[256];
    name_of(key, name);
    int n = snprintf(expected, sizeof expected, "/memfd:%s", name);
    ssize_t length = readlink(path, link, sizeof link);
    return length >= n && memcmp(link, expected, (size_t)n) == 0;
}

static psc_status_t map_file(int fd, uint64_t key, psc_shared_map_t *map_out, psc_error_t *error)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &file) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
        (uint64_t)file.st_size < ROWS_OFFSET)
        return psc_error_set(error, PSC_MISMATCH, "a memory file that could become shorter");
    size_t bytes = (size_t)file.st_size;
    void *mapping = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (mapping == MAP_FAILED)
        return psc_error_set(error, PSC_IO, "mapping the rows of a server: %s",
                             strerrordesc_np(errno));
    psc_shared_map_t map = {.control = mapping, .bytes = bytes};
    const psc_shared_control_t *control = map.control;
    if (control->magic != MAGIC || control->key != key || control->rows_offset != ROWS_OFFSET ||
        control->rows_bytes > bytes - ROWS_OFFSET) {
        psc_shared_unmap(&map);
        return psc_error_set(error, PSC_MISMATCH, "a memory file with other contents");
    }
    map.rows = (const uint8_t *)mapping + ROWS_OFFSET;
    map.rows_bytes = control->rows_bytes;
    map.layout = psc_shared_layout(&map);
    (void)madvise(mapping, bytes, MADV_HUGEPAGE); /* works where the system shares huge pages */
    *map_out = map;
    return PSC_OK;
}

psc_status_t psc_shared_open(const char *path, uint64_t key, psc_shared_map_t *map_out,
                             psc_error_t *error)
{
    if (!is_the_link(path, key))
        return psc_error_set(error, PSC_NOT_FOUND, "the rows of the server are not at %.64s here",
                             path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return psc_error_set(error, PSC_NOT_FOUND, "%.64s: %s", path, strerrordesc_np(errno));
    psc_status_t st = map_file(fd, key, map_out, error);
    (void)close(fd);
    return st;
}

void psc_shared_unmap(psc_shared_map_t *map)
{
    if (map->control != NULL)
        (void)munmap((void *)(uintptr_t)map->control, map->bytes);
    *map = (psc_shared_map_t){0};
}

/* ---- rows ---- */

bool psc_shared_id_at(const psc_shared_map_t *map, uint32_t place, uint16_t table, uint64_t *id_out)
{
    const psc_shared_row_t *row = psc_shared_row(map, place);
    if (__atomic_load_n(&row->state, __ATOMIC_ACQUIRE) != PSC_SHARED_PRESENT ||
        __atomic_load_n(&row->table, __ATOMIC_RELAXED) != table)
        return false;
    *id_out = __atomic_load_n(&row->id, __ATOMIC_RELAXED);
    PSC_SHARED_FENCE(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&map->control->layout, __ATOMIC_RELAXED) == map->layout;
}

/* The values may be written meanwhile; see above. memcpy would be TSan's own. */
#ifdef PSC_SHARED_TSAN
__attribute__((noinline, no_sanitize("thread"))) static void
copy_values(void *out, const void *values, size_t bytes)
{
    const volatile uint8_t *from = values;
    uint8_t *to = out;
    for (size_t i = 0; i < bytes; i++)
        to[i] = from[i];
}
#else
static void copy_values(void *out, const void *values, size_t bytes)
{
    memcpy(out, values, bytes);
}
#endif

bool psc_shared_read(const psc_shared_map_t *map, const psc_shared_wanted_t *wanted, void *out)
{
    const psc_shared_row_t *row = psc_shared_row(map, wanted->place);
    if (__atomic_load_n(&row->state, __ATOMIC_ACQUIRE) != PSC_SHARED_PRESENT ||
        __atomic_load_n(&row->id, __ATOMIC_RELAXED) != wanted->id ||
        __atomic_load_n(&row->table, __ATOMIC_RELAXED) != wanted->table)
        return false;
    uint32_t serial = __atomic_load_n(&row->serial, __ATOMIC_ACQUIRE);
    uint64_t changing = __atomic_load_n(&map->control->changing, __ATOMIC_ACQUIRE);
    if ((uint32_t)(serial - (uint32_t)changing) < (uint32_t)(changing >> 32))
        return false;
    copy_values(out, row + 1, wanted->bytes);
    PSC_SHARED_FENCE(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&row->state, __ATOMIC_RELAXED) == PSC_SHARED_PRESENT &&
           __atomic_load_n(&row->serial, __ATOMIC_RELAXED) == serial &&
           __atomic_load_n(&map->control->layout, __ATOMIC_RELAXED) == map->layout;
}
