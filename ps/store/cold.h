/*
 * What a cold tier does: keep records by (table, slot, id), read them in batches, write them in
 * batches. Called by the store's I/O thread alone, open and destroy excepted.
 *
 * cold_rocks.c keeps them in RocksDB; cold_memory.c in memory, for tests and the simulator, with
 * faults on request.
 */
#ifndef PS_STORE_COLD_H
#define PS_STORE_COLD_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PS_COLD_KEY_BYTES 14 /* table (2), slot (4), id (8), big-endian */

typedef struct ps_cold_read {
    uint8_t key[PS_COLD_KEY_BYTES];
    uint8_t *head;    /* where the first head_size bytes of the record go */
    uint8_t *body;    /* and the others */
    size_t head_size; /* at most size */
    size_t size;      /* of the record, exactly; another size found is CORRUPT */
    bool found;       /* out; false: head and body are as they were */
} ps_cold_read_t;

typedef struct ps_cold_write {
    uint8_t key[PS_COLD_KEY_BYTES];
    const uint8_t *record; /* NULL: the record of this key is removed, if there is one */
    size_t size;
} ps_cold_write_t;

/* Records, or the beginnings of them, in the order of their keys. */
typedef struct ps_cold_scan {
    uint8_t from[PS_COLD_KEY_BYTES]; /* the first key looked at */
    uint8_t to[PS_COLD_KEY_BYTES];   /* the first key no longer looked at */
    uint8_t *heads;                  /* [max][head_bytes], where they go */
    size_t head_bytes, max;
    bool whole; /* a head is all of its record: one of another size is CORRUPT */
    size_t n;   /* out */
    bool end;   /* out: there are no more records in the range */
} ps_cold_scan_t;

typedef struct ps_cold ps_cold_t;

typedef struct ps_cold_ops {
    const char *name;
    /* reads: sorted by key. Errors: IO, CORRUPT; never turned into "not found". */
    psc_status_t (*read)(ps_cold_t *cold, ps_cold_read_t *reads, size_t n, psc_error_t *error);
    /* All or none. Never waits for work in the background: BUSY (nothing was written; try again).
       Errors: IO, DISK_FULL. */
    psc_status_t (*write)(ps_cold_t *cold, const ps_cold_write_t *writes, size_t n,
                          psc_error_t *error);
    /* Errors: IO, CORRUPT (also: a record is shorter than a head). */
    psc_status_t (*scan)(ps_cold_t *cold, ps_cold_scan_t *scan, psc_error_t *error);
    /* Everything written so far is on disk when it returns. */
    psc_status_t (*sync)(ps_cold_t *cold, psc_error_t *error);
    /* Files of a tier that holds what this one does now, in a folder that is made; those that will
       never change share their bytes with the tier's own. Nothing need be synced. Errors: IO,
       DISK_FULL; UNSUPPORTED. */
    psc_status_t (*save)(ps_cold_t *cold, const char *folder, psc_error_t *error);
    void (*destroy)(ps_cold_t *cold);
} ps_cold_ops_t;

struct ps_cold {
    const ps_cold_ops_t *ops;
    bool was_empty; /* nothing was in it when it was opened: no row need be looked for */
};

static inline void ps_cold_key(uint8_t key[PS_COLD_KEY_BYTES], uint16_t table, uint32_t slot,
                               uint64_t id)
{
    key[0] = (uint8_t)(table >> 8);
    key[1] = (uint8_t)table;
    for (int i = 0; i < 4; i++)
        key[2 + i] = (uint8_t)(slot >> (24 - 8 * i));
    for (int i = 0; i < 8; i++)
        key[6 + i] = (uint8_t)(id >> (56 - 8 * i));
}

/* The memory that a RocksDB tier gets from a budget: the rest is for rows. */
uint64_t ps_cold_rocks_memory(uint64_t memory_bytes);

/* About what a record takes on disk, its key, filter and share of the index included. */
uint64_t ps_cold_rocks_row_bytes(size_t record_bytes);

/*
 * What to set aside on disk for so many bytes of records (by ps_cold_rocks_row_bytes) that are
 * written again and again: an estimate. memory_bytes: as open gets it.
 */
uint64_t ps_cold_rocks_disk(uint64_t memory_bytes, uint64_t live_bytes);

/*
 * Opens or creates RocksDB in dir. memory_bytes: for write buffers, block cache, index and filters
 * together. Errors: IN_USE (LOCK held), IO, DISK_FULL, CORRUPT, naming dir. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_cold_rocks_open(const char *dir, uint64_t memory_bytes,
                                               ps_cold_t **cold_out, psc_error_t *error);

/*
 * Opens one that is there to read from it alone; several may. Nothing is written in dir: what
 * RocksDB logs goes to log_dir. Errors: IO, CORRUPT, NO_MEMORY, naming dir. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_cold_rocks_open_to_read(const char *dir, const char *log_dir,
                                                       uint64_t memory_bytes, ps_cold_t **cold_out,
                                                       psc_error_t *error);

/* Is told each record; what it returns other than OK ends the reading. */
typedef psc_status_t (*ps_cold_record_fn)(void *context, const uint8_t *key, size_t n_key,
                                          const uint8_t *record, size_t size, psc_error_t *error);

/*
 * Reads all records of one that was closed in order, checksums verified, also those of logs and
 * indexes. What it may not notice is a bit that no record depends on, of a table's filter or in the
 * padding of its end. Nothing is written in dir, as with open_to_read. Errors: IO, CORRUPT (with
 * the name of the file), NO_MEMORY, those of fn.
 */
PSC_MUST_CHECK psc_status_t ps_cold_rocks_check(const char *dir, const char *log_dir,
                                                uint64_t memory_bytes, ps_cold_record_fn fn,
                                                void *context, psc_error_t *error);

/* Faults of a memory tier; all zero: none. */
typedef struct ps_cold_faults {
    uint64_t fail_read_at;   /* the n-th call that reads or scans fails with IO */
    uint64_t fail_write_at;  /* the n-th write call, and all after it, fail with DISK_FULL */
    uint64_t stall_write_at; /* the n-th write call, and as many after it as the next field says, */
    uint64_t stall_more;     /* are refused with BUSY */
} ps_cold_faults_t;
/* Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t ps_cold_memory_create(const ps_cold_faults_t *faults,
                                                  ps_cold_t **cold_out, psc_error_t *error);
/* One that holds what another one saved in dir, if there is anything; the folder is left as it is.
 * Faults count from then on. Errors: IO, CORRUPT, NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t ps_cold_memory_open(const char *dir, const ps_cold_faults_t *faults,
                                                ps_cold_t **cold_out, psc_error_t *error);

/* Whether a record of this size is what a scan may find. */
static inline bool ps_cold_scan_fits(const ps_cold_scan_t *scan, size_t size)
{
    return scan->whole ? size == scan->head_bytes : size >= scan->head_bytes;
}

/* Puts a record found into place. */
static inline void ps_cold_read_fill(ps_cold_read_t *read, const uint8_t *record)
{
    memcpy(read->head, record, read->head_size);
    if (read->size > read->head_size)
        memcpy(read->body, record + read->head_size, read->size - read->head_size);
    read->found = true;
}

#endif
