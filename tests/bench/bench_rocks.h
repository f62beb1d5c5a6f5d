/*
 * Raw RocksDB over the files of a store: what the cold tier can be measured against. Opened with
 * the options that the store wrote them with, but for a block cache of its own size, and with
 * filters only where they are asked for.
 */
#ifndef TESTS_BENCH_BENCH_ROCKS_H
#define TESTS_BENCH_BENCH_ROCKS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_rocks bench_rocks_t;

typedef struct bench_rocks_options {
    const char *dir;
    uint64_t cache_bytes;
    size_t value_bytes; /* of each value */
    bool filters;       /* reads use the filters in the files, as the store's do */
} bench_rocks_options_t;

/* Errors: IO (with RocksDB's words), UNSUPPORTED (several column families), NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t bench_rocks_open(const bench_rocks_options_t *options,
                                             bench_rocks_t **rocks_out, psc_error_t *error);
/* NULL is a no-op. */
void bench_rocks_close(bench_rocks_t *rocks);

/* Bytes of one memtable, of which there are two at most. */
uint64_t bench_rocks_write_buffer(const bench_rocks_t *rocks);

/* The same database in a new folder, data files shared by hard links. Errors: IO. */
PSC_MUST_CHECK psc_status_t bench_rocks_copy(bench_rocks_t *rocks, const char *to,
                                             psc_error_t *error);

/*
 * Reads n distinct sorted keys by one batched MultiGet and copies out_bytes from `from` of each
 * value to out, one behind the other. Errors: IO; NOT_FOUND when one is not there.
 */
PSC_MUST_CHECK psc_status_t bench_rocks_read(bench_rocks_t *rocks, const uint8_t *keys, size_t n,
                                             size_t from, size_t out_bytes, uint8_t *out,
                                             psc_error_t *error);

/* Reads n distinct sorted keys whole into values [n, value_bytes]; as above. */
PSC_MUST_CHECK psc_status_t bench_rocks_load(bench_rocks_t *rocks, const uint8_t *keys, size_t n,
                                             uint8_t *values, psc_error_t *error);

/* Writes them by one WriteBatch, through the write-ahead log. Errors: IO. */
PSC_MUST_CHECK psc_status_t bench_rocks_store(bench_rocks_t *rocks, const uint8_t *keys, size_t n,
                                              const uint8_t *values, psc_error_t *error);

#endif
