/*
 * Redis as a store of rows: a server of one's own in a folder, over a unix socket, nothing on disk.
 * The key of a row is its id, 8 bytes; its value the row's floats.
 */
#ifndef TESTS_BENCH_BENCH_REDIS_H
#define TESTS_BENCH_BENCH_REDIS_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_redis bench_redis_t;

/*
 * Starts redis-server; socket, logs and all else below folder. Errors: UNSUPPORTED (built without
 * hiredis, or redis-server is not installed; the message says which), IO, NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t bench_redis_start(const char *folder, size_t dim, size_t max_batch,
                                              bench_redis_t **redis_out, psc_error_t *error);
/* Ends the server too. NULL is a no-op. */
void bench_redis_stop(bench_redis_t *redis);

/* MGET of n rows, begun; rows_out [n, dim] is borrowed until it is finished. Errors: IO. */
PSC_MUST_CHECK psc_status_t bench_redis_get(bench_redis_t *redis, const uint64_t *ids, size_t n,
                                            float *rows_out, psc_error_t *error);
/* MSET of n rows, begun; rows [n, dim] is copied. Errors: IO. */
PSC_MUST_CHECK psc_status_t bench_redis_set(bench_redis_t *redis, const uint64_t *ids, size_t n,
                                            const float *rows, psc_error_t *error);
/* Waits until at most in_flight of what was begun are under way. Errors: IO (what redis says). */
PSC_MUST_CHECK psc_status_t bench_redis_wait(bench_redis_t *redis, size_t in_flight,
                                             psc_error_t *error);

#endif
