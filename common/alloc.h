/*
 * All allocation goes through here, so that tests can make the n-th one fail and sizes are checked.
 *
 * Functions return NULL when memory is short; the caller reports PSC_NO_MEMORY. Any thread.
 */
#ifndef COMMON_ALLOC_H
#define COMMON_ALLOC_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>

/* size bytes, not initialised; size 0 gives a unique pointer. Gives. */
void *psc_alloc(size_t size);

/* count items of size bytes, zeroed; NULL when the product does not fit in size_t. Gives. */
void *psc_alloc_zeroed(size_t count, size_t size);

/* count items of size bytes, not initialised; NULL when the product does not fit. Gives. */
void *psc_alloc_array(size_t count, size_t size);

/* Grows or shrinks; on NULL the old block is untouched. Takes on success, gives. */
void *psc_realloc_array(void *block, size_t count, size_t size);

/* 64-byte aligned, not initialised. Gives; free with psc_free. */
void *psc_alloc_aligned(size_t size);

/* As psc_alloc_aligned, for arrays that are read in places that lie anywhere: from 2 MiB on huge
 * pages are asked for, each of which takes its memory when it is first touched. */
void *psc_alloc_huge(size_t size);

/* Copy of a C string. Gives. */
char *psc_strdup(const char *text);

/* NULL is a no-op. */
void psc_free(void *block);
/* The same for a C string that is a secret: it is overwritten first. */
void psc_free_secret(char *text);

/* False when a * b does not fit; product_out is written only on true. */
PSC_MUST_CHECK bool psc_size_multiply(size_t a, size_t b, size_t *product_out);

/*
 * Tests: the n-th allocation from now fails (n = 1: the next one), and only it; 0 switches off.
 * psc_alloc_count tells how many were made since.
 */
void psc_alloc_fail_at(unsigned long n);
unsigned long psc_alloc_count(void);

#endif
