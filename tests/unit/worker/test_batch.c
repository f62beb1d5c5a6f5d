/* Distinct ids, duplicates and sums, against a plain search through all pairs. */
#include "worker/batch.h"

#include "common/alloc.h"
#include "common/hash.h"

#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <math.h>
#include <string.h>

#define TABLE 3u

static psw_batch_t *create(void)
{
    psw_batch_t *batch = NULL;
    assert_int_equal(psw_batch_create(&batch, NULL), PSC_OK);
    return batch;
}

/* Index of the first id equal to ids[i]. */
static size_t first_of(const uint64_t *ids, size_t i)
{
    size_t first = 0;
    while (ids[first] != ids[i])
        first++;
    return first;
}

static void check(psw_batch_t *batch, const uint64_t *ids, size_t n)
{
    psw_distinct_t d;
    assert_int_equal(psw_batch_dedupe(batch, TABLE, ids, n, &d, NULL), PSC_OK);
    assert_int_equal(d.n + d.n_duplicates, n);
    assert_true((d.next == NULL) == (d.n_duplicates == 0));
    size_t u = 0;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        size_t first = first_of(ids, i);
        if (first == i) {
            assert_int_equal(d.first[u], i);
            assert_true(d.hashes[u] == psc_row_hash(TABLE, ids[i]));
            u++;
        } else {
            assert_int_equal(d.duplicates[2 * k], i);
            assert_int_equal(d.duplicates[2 * k + 1], first);
            k++;
        }
        size_t next = i + 1;
        while (next < n && ids[next] != ids[i])
            next++;
        if (d.next != NULL)
            assert_int_equal(d.next[i], next < n ? (uint32_t)next : PSW_BATCH_NONE);
    }
    assert_int_equal(u, d.n);
}

static void edges_are_handled(void **state)
{
    (void)state;
    psw_batch_t *batch = create();
    check(batch, NULL, 0);
    const uint64_t edges[] = {0, UINT64_MAX, 0, UINT64_MAX, 1, 0};
    check(batch, edges, 1);
    check(batch, edges, 2);
    check(batch, edges, 6);
    const uint64_t same[300] = {0};
    check(batch, same, 300);
    psw_distinct_t d;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_batch_dedupe(batch, TABLE, edges, PSW_BATCH_MAX + 1, &d, &error),
                     PSC_INVALID_ARGUMENT);
    psw_batch_destroy(batch);
    psw_batch_destroy(NULL);
}

static void random_batches_match_a_plain_search(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    psw_batch_t *batch = create();
    for (int round = 0; round < 60; round++) {
        uint64_t ids[700];
        size_t n = test_below(&random, 700);
        size_t range = 1 + test_below(&random, 2000);
        for (size_t i = 0; i < n; i++)
            ids[i] = psc_mix64(test_below(&random, range));
        check(batch, ids, n);
    }
    psw_batch_destroy(batch);
}

static void sums_are_made_in_input_order(void **state)
{
    (void)state;
    enum { N = 5, D = 37 };
    const uint64_t ids[N] = {7, 8, 7, 7, 8};
    float rows[N * D];
    test_random_t random = test_random_start();
    for (size_t i = 0; i < N * D; i++)
        rows[i] = test_float(&random) * (float)(1u << test_below(&random, 20));
    psw_batch_t *batch = create();
    psw_distinct_t d;
    assert_int_equal(psw_batch_dedupe(batch, TABLE, ids, N, &d, NULL), PSC_OK);
    assert_int_equal(d.n, 2);
    uint8_t bytes[D * sizeof(float) + 1];
    float sum[D];
    psw_batch_sum_row(rows, D, d.next, d.first[0], bytes + 1); /* at an odd address */
    memcpy(sum, bytes + 1, sizeof sum);
    for (size_t c = 0; c < D; c++)
        assert_true(sum[c] == (rows[c] + rows[2 * D + c]) + rows[3 * D + c]);
    psw_batch_sum_row(rows, D, d.next, d.first[1], bytes);
    memcpy(sum, bytes, sizeof sum);
    for (size_t c = 0; c < D; c++)
        assert_true(sum[c] == rows[D + c] + rows[4 * D + c]);
    psw_batch_sum_row(rows, D, NULL, 4, bytes);
    assert_memory_equal(bytes, rows + (size_t)4 * D, D * sizeof(float));
    assert_int_equal(psw_batch_last(d.next, d.first[0]), 3);
    assert_int_equal(psw_batch_last(d.next, d.first[1]), 4);
    assert_int_equal(psw_batch_last(NULL, 2), 2);
    psw_batch_destroy(batch);
}

static void values_that_are_not_finite_are_found(void **state)
{
    (void)state;
    float values[333];
    for (size_t i = 0; i < 333; i++)
        values[i] = i % 2 != 0 ? 3.4e38F : -0.0F;
    assert_int_equal(psw_batch_find_not_finite(values, 333), 333);
    assert_int_equal(psw_batch_find_not_finite(values, 0), 0);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t at = 0; at < 333; at++) {
        float kept = values[at];
        values[at] = bad[at % 3];
        assert_int_equal(psw_batch_find_not_finite(values, 333), at);
        values[at] = kept;
    }
}

static void a_warm_batch_does_not_allocate(void **state)
{
    (void)state;
    psw_batch_t *batch = create();
    uint64_t ids[1000];
    for (size_t i = 0; i < 1000; i++)
        ids[i] = i % 300;
    psw_distinct_t d;
    assert_int_equal(psw_batch_dedupe(batch, TABLE, ids, 1000, &d, NULL), PSC_OK);
    psc_alloc_fail_at(0);
    for (size_t n = 0; n <= 1000; n += 50) {
        assert_int_equal(psw_batch_dedupe(batch, TABLE, ids, n, &d, NULL), PSC_OK);
        assert_int_equal(psw_batch_hash(batch, TABLE, ids, n, &d, NULL), PSC_OK);
    }
    assert_int_equal(psc_alloc_count(), 0);
    psw_batch_destroy(batch);
}

static void memory_that_is_short_is_an_error(void **state)
{
    (void)state;
    uint64_t ids[1000];
    for (size_t i = 0; i < 1000; i++)
        ids[i] = i % 400;
    psw_batch_t *batch = NULL;
    psc_alloc_fail_at(1);
    assert_int_equal(psw_batch_create(&batch, NULL), PSC_NO_MEMORY);
    psc_alloc_fail_at(0);
    batch = create();
    psw_distinct_t d;
    for (unsigned long n = 1; n <= 6; n++) {
        psc_alloc_fail_at(n);
        assert_int_equal(psw_batch_dedupe(batch, TABLE, ids, 1000, &d, NULL), PSC_NO_MEMORY);
    }
    psc_alloc_fail_at(0);
    check(batch, ids, 1000);
    psw_batch_destroy(batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_are_handled),
        cmocka_unit_test(random_batches_match_a_plain_search),
        cmocka_unit_test(sums_are_made_in_input_order),
        cmocka_unit_test(values_that_are_not_finite_are_found),
        cmocka_unit_test(a_warm_batch_does_not_allocate),
        cmocka_unit_test(memory_that_is_short_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
