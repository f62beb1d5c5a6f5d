/*
 * Memory of messages that other processes of this host read where they lie.
 *
 * A pool takes its larger buffers from such a memory (psp_pool_use). A transport may then send, in
 * place of a message, where it lies: the message is lent, until the reader puts its buffer back.
 *
 *     owner                                          reader
 *         psp_memory_create(&memory, error);
 *         ... tell psp_memory_where(memory) ...         psp_memory_open(&where, &map, error);
 *         psp_buffer_get(pool, ...) and fill it
 *         psp_memory_lend(memory, buffer, &place);
 *         ... send place ...                            psp_memory_borrow(map, pool, &place,
 *                                                                         &buffer, error);
 *                                                       ... read it ...
 *                                                       psp_buffer_put(buffer);
 *         psp_memory_is_back(memory, buffer)
 *         psp_buffer_put(buffer);
 *
 * Whoever sends a place must order it behind what was written before, as messages of MPI are.
 */
#ifndef PROTO_MESSAGE_MEMORY_H
#define PROTO_MESSAGE_MEMORY_H

#include "common/memory_file.h"
#include "proto/buffer.h"

#define PSP_MEMORY_BYTES ((size_t)16 << 20) /* of messages of one process; beyond: the pool's own */
#define PSP_MEMORY_LEAST_BYTES ((size_t)4096) /* of a buffer that comes from it */

typedef struct psp_memory psp_memory_t;
typedef struct psp_memory_map psp_memory_map_t;

/* What a reader has to be told. Plain data. */
typedef struct psp_memory_where {
    uint64_t host; /* psc_memory_host */
    uint64_t key;
    char path[PSC_MEMORY_PATH_MAX];
} psp_memory_where_t;

/* A message in it. Plain data. */
typedef struct psp_memory_place {
    uint32_t unit, size;
} psp_memory_place_t;

/* Errors: IO (the system refused), NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_memory_create(psp_memory_t **memory_out, psc_error_t *error);
/* Readers may go on reading. NULL is a no-op. */
void psp_memory_destroy(psp_memory_t *memory);
psp_memory_where_t psp_memory_where(const psp_memory_t *memory);

/* For the pool, under its lock: a buffer of at least capacity bytes, NULL: there is no room; and
 * back. */
psp_buffer_t *psp_memory_take(psp_memory_t *memory, size_t capacity);
void psp_memory_put(psp_memory_t *memory, const psp_buffer_t *buffer);
/* The buffer is given up, and somebody outside may use it for ever: the memory stays. */
void psp_memory_abandon(psp_memory_t *memory);

/* Whether a buffer is one of this memory. NULL has none. */
bool psp_memory_owns(const psp_memory_t *memory, const psp_buffer_t *buffer);
/* From now on a reader has it: it must not be changed or put back before it is back. */
psp_memory_place_t psp_memory_lend(psp_memory_t *memory, const psp_buffer_t *buffer);
bool psp_memory_is_back(const psp_memory_t *memory, const psp_buffer_t *buffer);

/* Maps the memory of another process. Errors: as psc_memory_file_open, IO, NO_MEMORY; MISMATCH: of
 * another host. Gives. */
PSC_MUST_CHECK psc_status_t psp_memory_open(const psp_memory_where_t *where,
                                            psp_memory_map_t **map_out, psc_error_t *error);
/* All that was borrowed must have been put back. NULL is a no-op. */
void psp_memory_close(psp_memory_map_t *map);

/* The message at a place as a buffer of the pool, to be read and not changed; when it is put back,
 * its owner can see that. Errors: PROTOCOL (there can be none), NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_memory_borrow(const psp_memory_map_t *map, psp_pool_t *pool,
                                              const psp_memory_place_t *place,
                                              psp_buffer_t **buffer_out, psc_error_t *error);

#endif
