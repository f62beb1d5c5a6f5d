/*
 * One table in a store, used as the server uses it for a request, without sessions, messages or
 * transport: ids are located, the rows prepared, inspected and gathered, or checked, claimed and
 * applied, and released.
 */
#ifndef TESTS_BENCH_BENCH_SHARD_H
#define TESTS_BENCH_BENCH_SHARD_H

#include "common/status.h"
#include "proto/message.h"
#include "ps/store/store.h"

#include <stdbool.h>
#include <stddef.h>

#define BENCH_TABLE 1u /* the table's number */

typedef struct bench_shard bench_shard_t;

typedef struct bench_shard_options {
    const char *dir; /* of RocksDB, created when it is not there; NULL: no cold tier but memory */
    uint64_t memory_bytes;
    size_t dim;
    const char *optimizer;
    size_t batch; /* the largest */
} bench_shard_options_t;

/* Errors: those of the store and of table options. Gives. */
PSC_MUST_CHECK psc_status_t bench_shard_open(const bench_shard_options_t *options,
                                             bench_shard_t **shard_out, psc_error_t *error);
/* Writes all rows back. NULL is a no-op. Errors: IO, DISK_FULL. */
PSC_MUST_CHECK psc_status_t bench_shard_close(bench_shard_t *shard, psc_error_t *error);
/* Frees it and leaves unwritten what is unwritten. NULL is a no-op. */
void bench_shard_abandon(bench_shard_t *shard);

/*
 * One pull of n rows into out [n, dim]. More rows than the store takes at once are pulled in
 * parts, as a client would. absent_out: how many there are not. Errors: those of the store.
 */
PSC_MUST_CHECK psc_status_t bench_shard_pull(bench_shard_t *shard, const uint64_t *ids, size_t n,
                                             float *out, size_t *absent_out, psc_error_t *error);

/* One push of values [n, dim], in parts as above. */
PSC_MUST_CHECK psc_status_t bench_shard_push(bench_shard_t *shard, psp_push_kind_t kind,
                                             const uint64_t *ids, size_t n, const float *values,
                                             float rate, psc_error_t *error);

ps_store_counters_t bench_shard_counters(const bench_shard_t *shard);
/* Rows that one request can have at most. */
size_t bench_shard_max_batch(const bench_shard_t *shard);
/* Bytes of a row as the cold tier keeps it, header first; and where its weights begin. */
size_t bench_shard_value_bytes(const bench_shard_t *shard);
size_t bench_shard_weights_at(void);
/* Bytes that a row takes in memory: record and index. */
size_t bench_shard_row_bytes(const bench_shard_t *shard);

/*
 * The memory that a store of this kind needs, so that about n_rows rows of its table are in memory;
 * at least the smallest that there is. Errors: as bench_shard_open.
 */
PSC_MUST_CHECK psc_status_t bench_shard_memory(const bench_shard_options_t *options, size_t n_rows,
                                               uint64_t *memory_out, psc_error_t *error);

#endif
