/*
 * Rows fetched ahead of the loop that will use them. For the files of ps/table with such loops.
 */
#ifndef PS_TABLE_ROWS_FETCH_H
#define PS_TABLE_ROWS_FETCH_H

#include "ps/store/store.h"

#define PS_HEADERS_AHEAD 16u
#define PS_ROWS_AHEAD 8u
#define PS_FETCH_LINE 64u
#define PS_FETCH_LINES 32u /* of one row; the processor's own prefetcher goes on from there */

/* The first `bytes` of a record, its header included. */
static inline void ps_row_fetch(const uint8_t *base, ps_place_t place, size_t bytes)
{
    const uint8_t *record = base + (size_t)place * PS_PLACE_BYTES;
    size_t before = (uintptr_t)record % PS_FETCH_LINE; /* of the line in which it begins */
    record -= before;
    for (size_t line = 0; line < before + bytes && line < PS_FETCH_LINES * PS_FETCH_LINE;
         line += PS_FETCH_LINE)
        __builtin_prefetch(record + line, 1);
}

#endif
