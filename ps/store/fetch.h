/*
 * Records fetched ahead of the loop that will use them. For ps/store and the loops of ps/table.
 */
#ifndef PS_STORE_FETCH_H
#define PS_STORE_FETCH_H

#include "common/inline.h"
#include "ps/store/store.h"

#define PS_FETCH_LINE 64u  /* bytes of a cache line */
#define PS_FETCH_LINES 32u /* of one record; the processor's own prefetcher goes on from there */

/* Lines that the first `bytes` of a record touch at the most. row_bytes: as in
 * ps_store_record_bytes. */
static inline size_t ps_fetch_lines(size_t bytes, size_t row_bytes)
{
    size_t record = ps_store_record_bytes(row_bytes);
    size_t step = record & (~record + 1); /* records begin at multiples of this */
    size_t before = step < PS_FETCH_LINE ? PS_FETCH_LINE - step : 0;
    size_t n = (before + bytes + PS_FETCH_LINE - 1) / PS_FETCH_LINE;
    return n < PS_FETCH_LINES ? n : PS_FETCH_LINES;
}

/*
 * The first lines of the record at a place. write, a constant, tells that they will be changed.
 * Blocks of four, since a branch for each line would cost more than the line.
 */
PSC_INLINE void ps_fetch_record(const uint8_t *base, ps_place_t place, size_t n_lines, bool write)
{
    uintptr_t record = (uintptr_t)base + (size_t)place * PS_PLACE_BYTES;
    const uint8_t *line = (const uint8_t *)(record & ~(uintptr_t)(PS_FETCH_LINE - 1));
#define PS_FETCH(k)                                                                                \
    (write ? __builtin_prefetch(line + (k)*PS_FETCH_LINE, 1)                                       \
           : __builtin_prefetch(line + (k)*PS_FETCH_LINE, 0))
    for (; n_lines >= 4; n_lines -= 4, line += 4 * PS_FETCH_LINE) {
        PS_FETCH(0);
        PS_FETCH(1);
        PS_FETCH(2);
        PS_FETCH(3);
    }
    if (n_lines >= 2) {
        PS_FETCH(0);
        PS_FETCH(1);
        line += 2 * PS_FETCH_LINE;
    }
    if ((n_lines & 1) != 0)
        PS_FETCH(0);
#undef PS_FETCH
}

#endif
