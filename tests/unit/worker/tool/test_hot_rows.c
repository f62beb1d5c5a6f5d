/* The most frequent ids against counts of all. */
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"
#include "worker/tool/hot_rows.h"

#include <stdbool.h>
#include <string.h>

enum { IDS = 3000, N = 60000 };

static void frequent_ids_are_found_and_their_counts_are_bounds(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    static uint64_t count[IDS];
    static psw_hot_rows_t hot;
    psw_hot_row_t best[PSW_HOT_ROWS];
    memset(count, 0, sizeof count);
    for (size_t i = 0; i < N; i++) { /* low ids come more often */
        const size_t id =
            test_below(&random, 1 + test_below(&random, 1 + test_below(&random, IDS)));
        count[id]++;
        psw_hot_rows_add(&hot, id);
    }
    const size_t n = psw_hot_rows_best(&hot, best, PSW_HOT_ROWS);
    assert_int_equal(n, PSW_HOT_ROWS);
    bool found[IDS] = {false};
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(best[i].id < IDS && !found[best[i].id]);
        found[best[i].id] = true;
        assert_true(best[i].count >= count[best[i].id]);
        assert_true(best[i].count - best[i].excess <= count[best[i].id]);
        assert_true(i == 0 || best[i].count <= best[i - 1].count);
        sum += best[i].count;
    }
    assert_true(sum == N);
    for (size_t id = 0; id < IDS; id++)
        assert_true(found[id] || count[id] <= N / PSW_HOT_ROWS);
    assert_int_equal(psw_hot_rows_best(&hot, best, 3), 3);
    hot.n = 0;
    assert_int_equal(psw_hot_rows_best(&hot, best, 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequent_ids_are_found_and_their_counts_are_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
