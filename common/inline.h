/* For functions in headers whose loops lose more by a call than they cost. */
#ifndef COMMON_INLINE_H
#define COMMON_INLINE_H

#define PSC_INLINE static inline __attribute__((always_inline))

#endif
