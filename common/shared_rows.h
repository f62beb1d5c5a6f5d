/*
 * Rows that another process of the same host reads where they lie: what both sides agree on.
 *
 * A server keeps its rows in a memory file: a control block, then the region of rows. A worker maps
 * the file read-only and copies rows out of it, while the server goes on changing them. A record
 * has a sequence number, its `serial`, which differs after every change, and the control block says
 * which serials are being written: a sequence lock whose numbers are those of the rows pushed, so
 * that a change of a thousand rows begins and ends once.
 *
 *     writer, for each push of n rows              reader, for each row
 *         psc_shared_begin(control, serial, n);        psc_shared_read(map, &row, out)
 *         for i of n:                                      -> false: ask the server
 *             psc_shared_stamp(&row->serial, serial + i);
 *             ... change its values ...
 *         psc_shared_end(control);
 *
 * Source of the protocol: H. Boehm, "Can seqlocks get along with programming language memory
 * models?", MSPC 2012. The values themselves are read while they may be written, which the
 * language has no words for; they are copied by a function that sanitizers are told to leave alone,
 * and are used only if nothing had changed.
 */
#ifndef COMMON_SHARED_ROWS_H
#define COMMON_SHARED_ROWS_H

#include "common/memory_file.h"
#include "common/row_copy.h"
#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PSC_SHARED_PLACE_BYTES 16u /* the unit of places */
#define PSC_SHARED_PRESENT 1u      /* the state of a record that holds a row */
#define PSC_SHARED_PATH_MAX PSC_MEMORY_PATH_MAX

/* The first 32 bytes of a record, as far as a reader looks at them. The floats follow. */
typedef struct psc_shared_row {
    uint64_t id;
    uint32_t unread_0;
    uint32_t serial; /* of the last change; never the same again at this place */
    uint32_t unread_1[2];
    uint16_t table;
    uint16_t unread_2;
    uint8_t state;
    uint8_t unread_3;
    uint16_t unread_4;
} psc_shared_row_t;

/* The beginning of the file. What changes has cache lines of its own. */
typedef struct psc_shared_control {
    uint64_t magic;
    uint64_t key; /* random: of this file */
    uint64_t rows_offset, rows_bytes;
    _Alignas(64) uint64_t changing; /* rows that are being written: their first serial, and in the
                                       upper half how many serials */
    uint32_t layout;                /* grows when memory gets records of another size */
    _Alignas(64) uint64_t clock;    /* least clock of the workers; all before it is applied */
    uint32_t closed;                /* rows are not to be read any more */
} psc_shared_control_t;

/* A memory file, as its maker has it. Plain data. */
typedef struct psc_shared_file {
    int fd;
    psc_shared_control_t *control;
    char path[PSC_SHARED_PATH_MAX]; /* where other processes of this user and host open it */
} psc_shared_file_t;

/* The same as a reader has it: read-only. Plain data; control NULL: not mapped. */
typedef struct psc_shared_map {
    const psc_shared_control_t *control;
    const uint8_t *rows;
    uint64_t rows_bytes;
    size_t bytes;    /* of the mapping */
    uint32_t layout; /* of the places that the reader knows; see psc_shared_layout */
} psc_shared_map_t;

/* A row to read. */
typedef struct psc_shared_wanted {
    uint64_t id;
    uint32_t place; /* of the record; not 0 */
    uint16_t table;
    size_t bytes; /* of its values */
} psc_shared_wanted_t;

/*
 * Makes a memory file for a region of rows_bytes, sparse, of a size that never changes. The region
 * is for the caller to map, at control->rows_offset of fd. Errors: IO (the system refused), in
 * words. Gives.
 */
PSC_MUST_CHECK psc_status_t psc_shared_create(uint64_t rows_bytes, psc_shared_file_t *file_out,
                                              psc_error_t *error);
/* Tells readers that it is over, closes fd, unmaps control. Maps of readers stay valid. */
void psc_shared_destroy(psc_shared_file_t *file);

/*
 * Maps a file read-only. key: what its control block must say. Errors: NOT_FOUND (no such file that
 * this process may read), MISMATCH (it is another one), IO. Gives; psc_shared_unmap.
 */
PSC_MUST_CHECK psc_status_t psc_shared_open(const char *path, uint64_t key,
                                            psc_shared_map_t *map_out, psc_error_t *error);
/* No-op where nothing is mapped. */
void psc_shared_unmap(psc_shared_map_t *map);

/* Whether a record of this size can be at the place. */
static inline bool psc_shared_holds(const psc_shared_map_t *map, uint32_t place, size_t bytes)
{
    uint64_t begin = (uint64_t)place * PSC_SHARED_PLACE_BYTES;
    return place != 0 && begin + sizeof(psc_shared_row_t) + bytes <= map->rows_bytes;
}

static inline const psc_shared_row_t *psc_shared_row(const psc_shared_map_t *map, uint32_t place)
{
    return (const psc_shared_row_t *)(const void *)(map->rows +
                                                    (uint64_t)place * PSC_SHARED_PLACE_BYTES);
}

#if defined(__SANITIZE_THREAD__)
#define PSC_SHARED_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PSC_SHARED_TSAN 1
#endif
#endif

/* Between a row's header and its values. Costs nothing on x86. TSan knows no fences, and does not
 * look at the values. */
#ifdef PSC_SHARED_TSAN
#define PSC_SHARED_FENCE(order) ((void)0)
#else
#define PSC_SHARED_FENCE(order) __atomic_thread_fence(order)
#endif

/* ---- the writer; control NULL: nobody reads ---- */

/* Rows are about to be changed and will carry n serials from this one on, none of which is 0. */
static inline void psc_shared_begin(psc_shared_control_t *control, uint32_t serial, uint32_t n)
{
    if (control != NULL)
        __atomic_store_n(&control->changing, (uint64_t)n << 32 | serial, __ATOMIC_RELAXED);
}

/* Before the values of a row are changed. Any number of rows, also again. */
static inline void psc_shared_stamp(uint32_t *row_serial, uint32_t serial)
{
    __atomic_store_n(row_serial, serial, __ATOMIC_RELEASE);
    PSC_SHARED_FENCE(__ATOMIC_RELEASE);
}

/* All rows are as they shall be. */
static inline void psc_shared_end(psc_shared_control_t *control)
{
    if (control != NULL)
        __atomic_store_n(&control->changing, 0, __ATOMIC_RELEASE);
}

/* A record's state, where a row comes or goes: all that belongs to a PRESENT row is written before
 * it is, and what is written after it is another state is not taken for that row. */
static inline void psc_shared_set_state(uint8_t *row_state, uint8_t state)
{
    __atomic_store_n(row_state, state, __ATOMIC_RELEASE);
    PSC_SHARED_FENCE(__ATOMIC_RELEASE);
}

/* All that workers did before this clock is applied. */
static inline void psc_shared_set_clock(psc_shared_control_t *control, uint64_t clock)
{
    if (control != NULL)
        __atomic_store_n(&control->clock, clock, __ATOMIC_RELEASE);
}

/* Before memory is given to records of another size: places there are none any more. */
static inline void psc_shared_move(psc_shared_control_t *control)
{
    if (control != NULL) {
        __atomic_store_n(&control->layout, control->layout + 1, __ATOMIC_RELEASE);
        PSC_SHARED_FENCE(__ATOMIC_RELEASE);
    }
}

static inline void psc_shared_close(psc_shared_control_t *control)
{
    if (control != NULL)
        __atomic_store_n(&control->closed, 1, __ATOMIC_RELEASE);
}

/* ---- the reader ---- */

static inline bool psc_shared_is_closed(const psc_shared_map_t *map)
{
    return __atomic_load_n(&map->control->closed, __ATOMIC_ACQUIRE) != 0;
}

static inline uint64_t psc_shared_clock(const psc_shared_map_t *map)
{
    return __atomic_load_n(&map->control->clock, __ATOMIC_ACQUIRE);
}

/* The present layout: when it is not map->layout, no row is found until the reader has forgotten
 * all places of this map and sets it. */
static inline uint32_t psc_shared_layout(const psc_shared_map_t *map)
{
    return __atomic_load_n(&map->control->layout, __ATOMIC_ACQUIRE);
}

/* The id of the row at a place, which psc_shared_holds: false where there is none of this table. */
bool psc_shared_id_at(const psc_shared_map_t *map, uint32_t place, uint16_t table,
                      uint64_t *id_out);

/* The values may be written meanwhile, and are used only if nothing had changed. */
#ifdef PSC_SHARED_TSAN
void psc_shared_copy_values(void *out, const void *values, size_t bytes);
#else
PSC_INLINE void psc_shared_copy_values(void *out, const void *values, size_t bytes)
{
    psc_row_copy(out, values, bytes);
}
#endif

/* Copies the values of the row that is wanted to out, which is undefined when it is not there, or
 * is being written. place: psc_shared_holds it. For functions marked PSC_MULTIVERSION. */
PSC_INLINE bool psc_shared_read(const psc_shared_map_t *map, const psc_shared_wanted_t *wanted,
                                void *out)
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
    psc_shared_copy_values(out, row + 1, wanted->bytes);
    PSC_SHARED_FENCE(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&row->state, __ATOMIC_RELAXED) == PSC_SHARED_PRESENT &&
           __atomic_load_n(&row->serial, __ATOMIC_RELAXED) == serial &&
           __atomic_load_n(&map->control->layout, __ATOMIC_RELAXED) == map->layout;
}

#endif
