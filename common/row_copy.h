/* Copies of rows of floats, for loops that copy one row after the other. */
#ifndef COMMON_ROW_COPY_H
#define COMMON_ROW_COPY_H

#include "common/inline.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef float psc_row_lanes_t __attribute__((vector_size(32), aligned(1), may_alias));

/* bytes: of whole floats. Any address. A call of memcpy for each row would cost as much as its
 * copy; to be inlined into functions marked PSC_MULTIVERSION. */
PSC_INLINE void psc_row_copy(uint8_t *restrict to, const uint8_t *restrict from, size_t bytes)
{
    size_t at = 0;
    for (; at + 128 <= bytes; at += 128) {
        psc_row_lanes_t a = *(const psc_row_lanes_t *)(from + at);
        psc_row_lanes_t b = *(const psc_row_lanes_t *)(from + at + 32);
        psc_row_lanes_t c = *(const psc_row_lanes_t *)(from + at + 64);
        psc_row_lanes_t d = *(const psc_row_lanes_t *)(from + at + 96);
        *(psc_row_lanes_t *)(to + at) = a;
        *(psc_row_lanes_t *)(to + at + 32) = b;
        *(psc_row_lanes_t *)(to + at + 64) = c;
        *(psc_row_lanes_t *)(to + at + 96) = d;
    }
    for (; at + 32 <= bytes; at += 32)
        *(psc_row_lanes_t *)(to + at) = *(const psc_row_lanes_t *)(from + at);
    for (; at < bytes; at += sizeof(float))
        memcpy(to + at, from + at, sizeof(float));
}

#endif
