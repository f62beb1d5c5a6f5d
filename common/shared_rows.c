/*
 * The memory file, and the reader's half of the sequence lock.
 *
 * Readers map the file (common/memory_file.h) read-only. It lives until the last mapping is gone: a
 * server that dies leaves a reader with rows that do not change any more, not with a fault.
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

#include "common/memory_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x31776f7273706265) /* "ebpsrow1" */
/* Where the rows begin: behind the control block, fit for huge pages. */
#define ROWS_OFFSET ((uint64_t)2 << 20)
#define HUGE_BYTES ((size_t)2 << 20)

/* ---- the file ---- */

psc_status_t psc_shared_create(uint64_t rows_bytes, psc_shared_file_t *file_out, psc_error_t *error)
{
    psc_memory_file_t file;
    psc_status_t st = psc_memory_file_create("rows", ROWS_OFFSET + rows_bytes, &file, error);
    if (st != PSC_OK)
        return st;
    void *head =
        mmap(NULL, sizeof(psc_shared_control_t), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
    if (head == MAP_FAILED) {
        int reason = errno;
        (void)close(file.fd);
        return psc_error_set(error, PSC_IO, "mapping a memory file for rows: %s",
                             strerrordesc_np(reason));
    }
    *file_out = (psc_shared_file_t){.fd = file.fd, .control = head};
    *file_out->control = (psc_shared_control_t){
        .magic = MAGIC, .key = file.key, .rows_offset = ROWS_OFFSET, .rows_bytes = rows_bytes};
    memcpy(file_out->path, file.path, sizeof file_out->path);
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

/* Read-only, where huge pages of the file can be huge pages here. */
static void *map_aligned(int fd, size_t bytes)
{
    uint8_t *room = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    const size_t before = (HUGE_BYTES - (uintptr_t)room % HUGE_BYTES) % HUGE_BYTES;
    void *mapping =
        mmap(room + before, bytes, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0);
    const int reason = errno;
    if (mapping == MAP_FAILED) {
        (void)munmap(room, bytes + HUGE_BYTES);
    } else {
        const size_t used = (bytes + 4095) / 4096 * 4096;
        if (before != 0)
            (void)munmap(room, before);
        if (before + used < bytes + HUGE_BYTES)
            (void)munmap(room + before + used, HUGE_BYTES - before);
    }
    errno = reason;
    return mapping;
}

static psc_status_t map_file(int fd, uint64_t file_bytes, uint64_t key, psc_shared_map_t *map_out,
                             psc_error_t *error)
{
    if (file_bytes < ROWS_OFFSET)
        return psc_error_set(error, PSC_MISMATCH, "a memory file that is too short for rows");
    size_t bytes = (size_t)file_bytes;
    void *mapping = map_aligned(fd, bytes);
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
    int fd;
    uint64_t bytes;
    psc_status_t st = psc_memory_file_open("rows", path, key, false, &fd, &bytes, error);
    if (st != PSC_OK)
        return st;
    st = map_file(fd, bytes, key, map_out, error);
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

#ifdef PSC_SHARED_TSAN
/* The values may be written meanwhile; see above. memcpy would be TSan's own. */
__attribute__((noinline, no_sanitize("thread"))) void
psc_shared_copy_values(void *out, const void *values, size_t bytes)
{
    const volatile uint8_t *from = values;
    uint8_t *to = out;
    for (size_t i = 0; i < bytes; i++)
        to[i] = from[i];
}
#endif
