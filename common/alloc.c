/* Allocation with a failure switch for tests. The counter costs one relaxed atomic add a call. */
#include "common/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

static atomic_ulong calls;
static atomic_ulong fail_at;

static bool must_fail(void)
{
    unsigned long n = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    return n == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *psc_alloc(size_t size)
{
    return must_fail() ? NULL : malloc(size != 0 ? size : 1);
}

void *psc_alloc_zeroed(size_t count, size_t size)
{
    size_t bytes;
    if (!psc_size_multiply(count, size, &bytes) || must_fail())
        return NULL;
    return calloc(1, bytes != 0 ? bytes : 1);
}

void *psc_alloc_array(size_t count, size_t size)
{
    size_t bytes;
    return psc_size_multiply(count, size, &bytes) ? psc_alloc(bytes) : NULL;
}

void *psc_realloc_array(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (!psc_size_multiply(count, size, &bytes) || must_fail())
        return NULL;
    return realloc(block, bytes != 0 ? bytes : 1);
}

void *psc_alloc_aligned(size_t size)
{
    if (must_fail() || size > SIZE_MAX - 63)
        return NULL;
    return aligned_alloc(64, size != 0 ? (size + 63) / 64 * 64 : 64);
}

void *psc_alloc_huge(size_t size)
{
    if (size < HUGE_PAGE)
        return psc_alloc_aligned(size);
    if (must_fail() || size > SIZE_MAX - 2 * HUGE_PAGE)
        return NULL;
    const size_t whole = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *block = aligned_alloc(HUGE_PAGE, whole);
    if (block != NULL) /* only advice: without huge pages everything works, slower */
        (void)madvise(block, whole, MADV_HUGEPAGE);
    return block;
}

char *psc_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = psc_alloc(size);
    if (copy != NULL)
        memcpy(copy, text, size);
    return copy;
}

void psc_free(void *block)
{
    free(block);
}

void psc_free_secret(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}

bool psc_size_multiply(size_t a, size_t b, size_t *product_out)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *product_out = product;
    return true;
}

void psc_alloc_fail_at(unsigned long n)
{
    atomic_store(&calls, 0);
    atomic_store(&fail_at, n);
}

unsigned long psc_alloc_count(void)
{
    return atomic_load(&calls);
}
