/*
 * Memory that will be needed soon.
 *
 * A prefetch instruction may be dropped where the page's translation is not at hand, which is the
 * rule for rows that lie anywhere in much memory, most of all in a virtual machine (`embps-bench
 * pages` shows where). A read is not dropped, and as nothing depends on it, a processor that
 * executes out of order goes on. Short loops over few instructions a row do not need either.
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
