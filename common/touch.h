/*
 * Memory that will be needed soon, read now.
 *
 * A prefetch instruction is a hint that a processor may drop. A read is done in any case; nothing
 * depends on it, so a processor that executes out of order goes on, but nothing behind it retires
 * before its bytes are there. Which of the two is faster only the loop itself can say: a client's
 * cache, with much to do for each row, was faster with reads (worker/cache/entries.c; `embps-bench
 * cache`), a prototype of the store's look-up, with little, with prefetches (ps/store/fetch.h).
 */
#ifndef COMMON_TOUCH_H
#define COMMON_TOUCH_H

#include "common/inline.h"

#include <stddef.h>
#include <stdint.h>

#define PSC_LINE_BYTES 64

/* Reads a byte of each cache line from bytes [n] on, which must be readable. */
PSC_INLINE void psc_touch(const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i += PSC_LINE_BYTES)
        (void)*(const volatile uint8_t *)((const uint8_t *)bytes + i);
}

#endif
