/*
 * The memory is a file (common/memory_file.h): one byte for each unit, then the units. A buffer is
 * a run of units, found first fit from the beginning, so that few messages at a time use the same
 * little memory over and over, which stays in the caches of both sides. The byte of a run's first
 * unit says whether a reader has the message: the owner sets it, the reader clears it. Nothing else
 * is ever written by a reader, which maps the units read-only.
 *
 * What is lent stays as it is until its reader is done with it: a reader may check a message once
 * and rely on it. (The owner could change it: ranks of one job trust each other as far as that.)
 * The units are shared pages, taken from the system when they are first used and kept.
 *
 * Cost: a get looks at one number for each unit that it takes and each run before it. Threads: take
 * and put under the pool's lock, the rest on the transport's thread; a borrowed buffer is put back
 * from any.
 */
#include "proto/message_memory.h"

#include "common/alloc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UNIT_BYTES ((size_t)8192)
#define N_UNITS (PSP_MEMORY_BYTES / UNIT_BYTES)
#define FLAG_BYTES ((size_t)4096) /* of the file, before the units: whole pages */
#define FILE_BYTES (FLAG_BYTES + PSP_MEMORY_BYTES)
#define WORD "messages"

_Static_assert(N_UNITS <= FLAG_BYTES, "a byte for each unit");

struct psp_memory {
    psc_memory_file_t file;
    uint8_t *flags; /* the mapping */
    uint8_t *units;
    bool abandoned;         /* MPI may use some of it for ever */
    uint16_t runs[N_UNITS]; /* of a run's first unit: its length; 0: free, or within a run */
    psp_buffer_t buffers[N_UNITS];
};

struct psp_memory_map {
    uint8_t *flags;
    const uint8_t *units;
};

psc_status_t psp_memory_create(psp_memory_t **memory_out, psc_error_t *error)
{
    psp_memory_t *memory = psc_alloc_zeroed(1, sizeof *memory);
    if (memory == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for messages");
    psc_status_t st = psc_memory_file_create(WORD, FILE_BYTES, &memory->file, error);
    if (st != PSC_OK) {
        psc_free(memory);
        return st;
    }
    memory->flags = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory->file.fd, 0);
    if (memory->flags == MAP_FAILED) {
        st = psc_error_set(error, PSC_IO, "mapping a memory file for messages: %s",
                           strerrordesc_np(errno));
        (void)close(memory->file.fd);
        psc_free(memory);
        return st;
    }
    memory->units = memory->flags + FLAG_BYTES;
    *memory_out = memory;
    return PSC_OK;
}

void psp_memory_destroy(psp_memory_t *memory)
{
    if (memory == NULL)
        return;
    if (!memory->abandoned)
        (void)munmap(memory->flags, FILE_BYTES);
    (void)close(memory->file.fd);
    psc_free(memory);
}

psp_memory_where_t psp_memory_where(const psp_memory_t *memory)
{
    psp_memory_where_t where = {.host = psc_memory_host(), .key = memory->file.key};
    memcpy(where.path, memory->file.path, sizeof where.path);
    return where;
}

/* ---- buffers ---- */

psp_buffer_t *psp_memory_take(psp_memory_t *memory, size_t capacity)
{
    if (capacity > PSP_MEMORY_BYTES)
        return NULL;
    const size_t n = capacity != 0 ? (capacity + UNIT_BYTES - 1) / UNIT_BYTES : 1;
    size_t first = 0, at = 0;
    while (at < first + n) {
        if (first + n > N_UNITS)
            return NULL;
        if (memory->runs[at] != 0)
            first = at += memory->runs[at];
        else
            at++;
    }
    memory->runs[first] = (uint16_t)n;
    psp_buffer_t *buffer = &memory->buffers[first];
    buffer->data = memory->units + first * UNIT_BYTES;
    buffer->capacity = n * UNIT_BYTES;
    return buffer;
}

void psp_memory_put(psp_memory_t *memory, const psp_buffer_t *buffer)
{
    memory->runs[buffer - memory->buffers] = 0;
}

void psp_memory_abandon(psp_memory_t *memory)
{
    memory->abandoned = true;
}

bool psp_memory_owns(const psp_memory_t *memory, const psp_buffer_t *buffer)
{
    return memory != NULL && (uintptr_t)buffer >= (uintptr_t)memory->buffers &&
           (uintptr_t)buffer < (uintptr_t)(memory->buffers + N_UNITS);
}

psp_memory_place_t psp_memory_lend(psp_memory_t *memory, const psp_buffer_t *buffer)
{
    const size_t unit = (size_t)(buffer - memory->buffers);
    __atomic_store_n(&memory->flags[unit], 1, __ATOMIC_RELEASE);
    return (psp_memory_place_t){.unit = (uint32_t)unit, .size = (uint32_t)buffer->size};
}

bool psp_memory_is_back(const psp_memory_t *memory, const psp_buffer_t *buffer)
{
    return __atomic_load_n(&memory->flags[buffer - memory->buffers], __ATOMIC_ACQUIRE) == 0;
}

/* ---- the reader ---- */

static psc_status_t map_file(int fd, psp_memory_map_t **map_out, psc_error_t *error)
{
    psp_memory_map_t *map = psc_alloc_zeroed(1, sizeof *map);
    if (map == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for the messages of a peer");
    void *flags = mmap(NULL, FLAG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *units = mmap(NULL, PSP_MEMORY_BYTES, PROT_READ, MAP_SHARED, fd, (off_t)FLAG_BYTES);
    if (flags == MAP_FAILED || units == MAP_FAILED) {
        psc_status_t st = psc_error_set(error, PSC_IO, "mapping the messages of a peer: %s",
                                        strerrordesc_np(errno));
        if (flags != MAP_FAILED)
            (void)munmap(flags, FLAG_BYTES);
        if (units != MAP_FAILED)
            (void)munmap(units, PSP_MEMORY_BYTES);
        psc_free(map);
        return st;
    }
    *map = (psp_memory_map_t){.flags = flags, .units = units};
    *map_out = map;
    return PSC_OK;
}

psc_status_t psp_memory_open(const psp_memory_where_t *where, psp_memory_map_t **map_out,
                             psc_error_t *error)
{
    int fd;
    uint64_t bytes;
    if (where->host == 0 || where->host != psc_memory_host() ||
        memchr(where->path, '\0', sizeof where->path) == NULL)
        return psc_error_set(error, PSC_MISMATCH, "the messages of a peer on another host");
    psc_status_t st = psc_memory_file_open(WORD, where->path, where->key, true, &fd, &bytes, error);
    if (st != PSC_OK)
        return st;
    if (bytes == FILE_BYTES)
        st = map_file(fd, map_out, error);
    else
        st = psc_error_set(error, PSC_MISMATCH, "the messages of a peer have another size");
    (void)close(fd);
    return st;
}

void psp_memory_close(psp_memory_map_t *map)
{
    if (map == NULL)
        return;
    (void)munmap(map->flags, FLAG_BYTES);
    (void)munmap((void *)(uintptr_t)map->units, PSP_MEMORY_BYTES);
    psc_free(map);
}

psc_status_t psp_memory_borrow(const psp_memory_map_t *map, psp_pool_t *pool,
                               const psp_memory_place_t *place, psp_buffer_t **buffer_out,
                               psc_error_t *error)
{
    if (place->unit >= N_UNITS || place->size > PSP_MEMORY_BYTES - place->unit * UNIT_BYTES)
        return psc_error_set(error, PSC_PROTOCOL,
                             "a message of %u bytes at unit %u of a memory of "
                             "%zu units",
                             place->size, place->unit, N_UNITS);
    psc_status_t st = psp_buffer_get(pool, 0, buffer_out, error);
    if (st != PSC_OK)
        return st;
    psp_buffer_t *buffer = *buffer_out;
    buffer->data = (uint8_t *)(uintptr_t)(map->units + place->unit * UNIT_BYTES);
    buffer->size = place->size;
    buffer->lender = &map->flags[place->unit];
    return PSC_OK;
}
