/* Scratch memory: aligned, limited, and forgotten all at once. */
#include "proto/unpack_memory.h"

#include "tests/support/cmocka.h"

#include <stddef.h>
#include <string.h>

static psp_scratch_t *make(size_t limit)
{
    psp_scratch_t *scratch = NULL;
    psc_error_t error;
    assert_int_equal(psp_scratch_create(limit, &scratch, &error), PSC_OK);
    assert_int_equal(psp_scratch_limit(scratch), limit);
    return scratch;
}

static void pieces_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    psp_scratch_t *scratch = make(4096);
    uint8_t *pieces[40];
    for (size_t i = 0; i < 40; i++) {
        pieces[i] = psp_scratch_alloc(scratch, i);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)i, i);
    }
    for (size_t i = 0; i < 40; i++)
        for (size_t j = 0; j < i; j++)
            assert_int_equal(pieces[i][j], i);
    psp_scratch_destroy(scratch);
}

static void gives_its_limit_and_no_more(void **state)
{
    (void)state;
    psp_scratch_t *scratch = make(1000);
    assert_null(psp_scratch_alloc(scratch, 1001));
    assert_true(psp_scratch_exhausted(scratch));
    psp_scratch_reset(scratch);
    assert_false(psp_scratch_exhausted(scratch));
    assert_non_null(psp_scratch_alloc(scratch, 1000));
    assert_null(psp_scratch_alloc(scratch, 1));
    psp_scratch_reset(scratch);
    assert_null(psp_scratch_alloc(scratch, SIZE_MAX));
    psp_scratch_destroy(scratch);

    scratch = make(0);
    assert_null(psp_scratch_alloc(scratch, 1));
    psp_scratch_destroy(scratch);
    psp_scratch_destroy(NULL);
}

static void what_protobuf_frees_still_counts(void **state)
{
    (void)state;
    psp_scratch_t *scratch = make(1024);
    ProtobufCAllocator *allocator = psp_scratch_allocator(scratch);
    for (int i = 0; i < 8; i++) {
        void *piece = allocator->alloc(allocator->allocator_data, 128);
        assert_non_null(piece);
        allocator->free(allocator->allocator_data, piece);
    }
    assert_null(allocator->alloc(allocator->allocator_data, 128));
    psp_scratch_destroy(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_do_not_overlap),
        cmocka_unit_test(gives_its_limit_and_no_more),
        cmocka_unit_test(what_protobuf_frees_still_counts),
    };
    return cmocka_run_group_tests_name("unpack_memory", tests, NULL, NULL);
}
