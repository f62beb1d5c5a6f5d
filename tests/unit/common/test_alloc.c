/* Allocation: sizes, alignment and the failure switch. */
#include "common/alloc.h"

#include "tests/support/cmocka.h"

#include <string.h>

static void size_zero_gives_a_block(void **state)
{
    (void)state;
    void *blocks[] = {psc_alloc(0),          psc_alloc_zeroed(0, 8), psc_alloc_zeroed(8, 0),
                      psc_alloc_array(0, 8), psc_alloc_aligned(0),   psc_realloc_array(NULL, 0, 8)};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        assert_non_null(blocks[i]);
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(blocks[i], blocks[j]);
    }
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        psc_free(blocks[i]);
    psc_free(NULL);
}

static void products_that_overflow_give_null(void **state)
{
    (void)state;
    size_t half = SIZE_MAX / 2 + 1;
    assert_null(psc_alloc_array(half, 2));
    assert_null(psc_alloc_zeroed(half, 2));
    char *block = psc_alloc_array(4, 1);
    assert_non_null(block);
    memcpy(block, "abc", 4);
    assert_null(psc_realloc_array(block, half, 2));
    assert_string_equal(block, "abc");
    psc_free(block);
    assert_null(psc_alloc_aligned(SIZE_MAX));
}

static void multiply_tells_overflow(void **state)
{
    (void)state;
    size_t product = 77;
    assert_false(psc_size_multiply(SIZE_MAX, 2, &product));
    assert_int_equal(product, 77);
    assert_true(psc_size_multiply(SIZE_MAX, 1, &product));
    assert_int_equal(product, SIZE_MAX);
    assert_true(psc_size_multiply(0, SIZE_MAX, &product));
    assert_int_equal(product, 0);
}

static void aligned_blocks_stand_on_64_bytes(void **state)
{
    (void)state;
    for (size_t size = 1; size < 300; size += 7) {
        char *block = psc_alloc_aligned(size);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        memset(block, 1, size);
        psc_free(block);
    }
}

static void large_blocks_stand_where_huge_pages_do(void **state)
{
    (void)state;
    const size_t page = (size_t)2 << 20;
    const size_t sizes[] = {0, 1, page - 1, page, page + 1, 5 * page};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *block = psc_alloc_huge(sizes[i]);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % (sizes[i] < page ? 64 : page), 0);
        memset(block, 1, sizes[i]);
        psc_free(block);
    }
    assert_null(psc_alloc_huge(SIZE_MAX));
}

static void zeroed_blocks_are_zero(void **state)
{
    (void)state;
    static const char zeros[400];
    char *dirty = psc_alloc(sizeof zeros);
    assert_non_null(dirty);
    memset(dirty, 9, sizeof zeros);
    psc_free(dirty);
    char *block = psc_alloc_zeroed(100, 4);
    assert_non_null(block);
    assert_memory_equal(block, zeros, sizeof zeros);
    psc_free(block);
}

static void realloc_keeps_what_was_there(void **state)
{
    (void)state;
    char *block = psc_strdup("keep me");
    assert_non_null(block);
    for (size_t n = 8; n < 100000; n *= 3) {
        char *grown = psc_realloc_array(block, n, 2);
        assert_non_null(grown);
        block = grown;
        assert_string_equal(block, "keep me");
    }
    psc_free(block);
}

static void the_nth_allocation_fails_and_only_it(void **state)
{
    (void)state;
    for (unsigned long n = 1; n <= 8; n++) {
        psc_alloc_fail_at(n);
        void *blocks[] = {psc_alloc(1),          psc_alloc_zeroed(1, 1),
                          psc_alloc_array(1, 1), psc_realloc_array(NULL, 1, 1),
                          psc_alloc_aligned(1),  psc_strdup("x"),
                          psc_alloc_huge(1),     psc_alloc_huge(3 << 20)};
        assert_int_equal(psc_alloc_count(), 8);
        psc_alloc_fail_at(0);
        for (unsigned long i = 0; i < 8; i++) {
            assert_int_equal(blocks[i] == NULL, i + 1 == n);
            psc_free(blocks[i]);
        }
    }
}

static void a_failed_realloc_leaves_the_block(void **state)
{
    (void)state;
    char *block = psc_strdup("still here");
    assert_non_null(block);
    psc_alloc_fail_at(1);
    assert_null(psc_realloc_array(block, 1000, 1));
    psc_alloc_fail_at(0);
    assert_string_equal(block, "still here");
    psc_free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_zero_gives_a_block),
        cmocka_unit_test(products_that_overflow_give_null),
        cmocka_unit_test(multiply_tells_overflow),
        cmocka_unit_test(aligned_blocks_stand_on_64_bytes),
        cmocka_unit_test(large_blocks_stand_where_huge_pages_do),
        cmocka_unit_test(zeroed_blocks_are_zero),
        cmocka_unit_test(realloc_keeps_what_was_there),
        cmocka_unit_test(the_nth_allocation_fails_and_only_it),
        cmocka_unit_test(a_failed_realloc_leaves_the_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
