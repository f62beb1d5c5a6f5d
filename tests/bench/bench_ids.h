/*
 * Which rows a benchmark asks for: sequences of row numbers, as ids and as sorted distinct keys.
 *
 *     bench_ids_draw(&(bench_draw_t){.zipf = true, .n_rows = 1000, .n_ids = 5000}, &ids, error);
 *     bench_keys_sort(&ids, 1024, table, &keys, error);      // for a store of sorted keys
 *
 * Rows are numbered from 0; the id of a row is its number mixed, so that ids are any uint64.
 */
#ifndef TESTS_BENCH_BENCH_IDS_H
#define TESTS_BENCH_BENCH_IDS_H

#include "common/hash.h"
#include "common/status.h"
#include "ps/store/cold.h"

#include <stdbool.h>
#include <stddef.h>

static inline uint64_t bench_row_id(uint64_t row)
{
    return psc_mix64(row + 1);
}

/* A sequence; n of each. */
typedef struct bench_ids {
    size_t n;
    uint32_t *rows;
    uint64_t *ids;
} bench_ids_t;

typedef struct bench_draw {
    bool zipf;     /* P(rank k) ~ 1 / k over n_rows ranks, ranks spread over the rows; or evenly */
    size_t n_rows; /* below 2^32 */
    size_t n_ids;
    size_t shift_at; /* after so many ids other rows become the frequent ones; 0: never */
    uint64_t seed;
} bench_draw_t;

/* Errors: NO_MEMORY. Gives: bench_ids_clear. */
PSC_MUST_CHECK psc_status_t bench_ids_draw(const bench_draw_t *draw, bench_ids_t *ids_out,
                                           psc_error_t *error);

/* Row numbers from a file of little-endian uint64, each below n_rows. Errors: IO,
 * INVALID_ARGUMENT, NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t bench_ids_read(const char *path, size_t n_rows, bench_ids_t *ids_out,
                                           psc_error_t *error);
void bench_ids_clear(bench_ids_t *ids);

/* The keys of the cold tier for each batch of a sequence, distinct and sorted. */
typedef struct bench_keys {
    size_t n_batches;
    size_t *first;   /* n_batches + 1; batch b has keys first[b] .. first[b + 1] - 1 */
    uint8_t *bytes;  /* PS_COLD_KEY_BYTES each */
    uint32_t *of_id; /* of every id its key within its batch, counted from 0 */
} bench_keys_t;

/* Batches are ids 0 .. batch - 1, batch .. 2 * batch - 1 and so on; a rest is left out.
 * Errors: NO_MEMORY. Gives: bench_keys_clear. */
PSC_MUST_CHECK psc_status_t bench_keys_sort(const bench_ids_t *ids, size_t batch, uint16_t table,
                                            bench_keys_t *keys_out, psc_error_t *error);
void bench_keys_clear(bench_keys_t *keys);

#endif
