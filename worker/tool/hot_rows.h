/*
 * The most frequent of a stream of ids, in little memory: Space-Saving (Metwally, Agrawal, El
 * Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
 *
 *     psw_hot_rows_t hot = {0};
 *     psw_hot_rows_add(&hot, id);
 *     n = psw_hot_rows_best(&hot, best, 10);
 */
#ifndef WORKER_TOOL_HOT_ROWS_H
#define WORKER_TOOL_HOT_ROWS_H

#include <stddef.h>
#include <stdint.h>

#define PSW_HOT_ROWS 256u

/* An id that came at most `count` times, and at least count - excess. Plain data. */
typedef struct psw_hot_row {
    uint64_t id, count, excess;
} psw_hot_row_t;

/* All zero at first. An id that came more often than the PSW_HOT_ROWS-th part of all is in it. */
typedef struct psw_hot_rows {
    size_t n;
    psw_hot_row_t rows[PSW_HOT_ROWS];
} psw_hot_rows_t;

void psw_hot_rows_add(psw_hot_rows_t *hot, uint64_t id);

/* The most frequent ones, best first, of equal ones the lower id; most at most. Returns how many.
 */
size_t psw_hot_rows_best(const psw_hot_rows_t *hot, psw_hot_row_t *best_out, size_t most);

#endif
