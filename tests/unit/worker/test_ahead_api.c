/* Prefetches and pulls within a deadline over a server in this process. */
#include "embps.h"

#include "tests/support/client_counter.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <string.h>

enum { D = 16, N = 500 };

typedef struct fixture {
    char *folder;
    embps_client_t *clients[2];
    embps_table_t *table;
    uint64_t ids[N];
    float rows[N][D];
    uint8_t states[N];
} fixture_t;

static fixture_t *start(uint32_t n_workers)
{
    static fixture_t f;
    memset(&f, 0, sizeof f);
    f.folder = test_scratch_create();
    embps_local_options_t options = EMBPS_LOCAL_OPTIONS_DEFAULT;
    options.data = f.folder;
    options.memory_bytes = (uint64_t)16 << 20;
    options.n_workers = n_workers;
    assert_int_equal(embps_connect_local_many(&options, f.clients, NULL), 0);
    embps_table_options_t table = EMBPS_TABLE_OPTIONS_DEFAULT;
    table.dim = D;
    assert_int_equal(embps_table_open(f.clients[0], "t", &table, &f.table, NULL), 0);
    for (uint64_t i = 0; i < N; i++) {
        f.ids[i] = i * 7;
        for (size_t c = 0; c < D; c++)
            f.rows[i][c] = (float)(i + c);
    }
    assert_int_equal(embps_push(f.table, EMBPS_ASSIGN, f.ids, N, &f.rows[0][0], 0, NULL), 0);
    return &f;
}

static void finish(fixture_t *f)
{
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(embps_close(f->clients[i], NULL), 0);
    test_scratch_destroy(f->folder);
}

static void expect_rows(const fixture_t *f)
{
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(f->states[i], EMBPS_ROW_PRESENT);
        assert_true(f->rows[i][D - 1] == (float)(i + D - 1));
    }
}

static void a_prefetch_is_told_to_the_server_and_changes_nothing(void **state)
{
    (void)state;
    fixture_t *f = start(1);
    assert_int_equal(embps_prefetch(f->table, f->ids, N, 1, NULL), 0);
    assert_int_equal(embps_prefetch(f->table, f->ids, 0, 1, NULL), 0);
    assert_int_equal(embps_prefetch(f->table, NULL, 0, 1, NULL), 0);
    assert_int_equal(counter_of(f->clients[0], "rows.announced"), N);
    assert_int_equal(counter_of(f->clients[0], "requests.prefetch"), 1);
    assert_int_equal(counter_of(f->clients[0], "client.rows_prefetched"), N);
    assert_int_equal(counter_of(f->clients[0], "client.rows_prefetch_dropped"), 0);
    /* Of a clock that has passed: it does not even leave. */
    assert_int_equal(embps_clock(f->clients[0], 0, NULL, NULL), 0);
    assert_int_equal(embps_prefetch(f->table, f->ids, N, 0, NULL), 0);
    assert_int_equal(counter_of(f->clients[0], "rows.announced"), N);
    assert_int_equal(counter_of(f->clients[0], "client.rows_prefetch_dropped"), N);
    memset(f->rows, 0, sizeof f->rows);
    assert_int_equal(embps_pull_states(f->table, f->ids, N, &f->rows[0][0], f->states, 0, NULL), 0);
    expect_rows(f);
    embps_error_t error;
    assert_int_equal(embps_prefetch(f->table, NULL, 3, 1, &error), EMBPS_INVALID_ARGUMENT);
    assert_int_equal(embps_prefetch(NULL, f->ids, 3, 1, &error), EMBPS_INVALID_ARGUMENT);
    finish(f);
}

static void rows_in_memory_come_within_any_deadline(void **state)
{
    (void)state;
    fixture_t *f = start(1);
    memset(f->rows, 0, sizeof f->rows);
    /* A minute is never used up; a server that answers at once does not wait for it. */
    assert_int_equal(
        embps_pull_within(f->table, f->ids, N, &f->rows[0][0], f->states, 0, 60000, NULL), 0);
    expect_rows(f);
    assert_int_equal(embps_pull_within(f->table, f->ids, 0, NULL, NULL, 0, 1, NULL), 0);
    finish(f);
}

static void a_pull_that_waits_for_a_clock_comes_back_late(void **state)
{
    (void)state;
    fixture_t *f = start(2);
    embps_set_staleness(f->clients[0], 0);
    assert_int_equal(embps_clock(f->clients[0], 0, NULL, NULL), 0);
    memset(f->rows, 0x55, sizeof f->rows);
    uint64_t twice[] = {7, 14, 7};
    assert_int_equal(embps_pull_within(f->table, twice, 3, &f->rows[0][0], f->states, 0, 20, NULL),
                     0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(f->states[i], EMBPS_ROW_LATE);
        for (size_t byte = 0; byte < sizeof f->rows[i]; byte++)
            assert_int_equal(((const uint8_t *)f->rows[i])[byte], 0x55);
    }
    assert_int_equal(embps_clock(f->clients[1], 0, NULL, NULL), 0);
    assert_int_equal(
        embps_pull_within(f->table, twice, 3, &f->rows[0][0], f->states, 0, 60000, NULL), 0);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(f->states[i], EMBPS_ROW_PRESENT);
    assert_true(f->rows[2][0] == 1 && f->rows[1][0] == 2);
    finish(f);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    fixture_t *f = start(1);
    embps_error_t error;
    float *rows = &f->rows[0][0];
    assert_int_equal(embps_pull_within(f->table, f->ids, N, rows, f->states, 0, 0, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "deadline"));
    assert_int_equal(embps_pull_within(f->table, f->ids, N, rows, NULL, 0, 5, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "states_out"));
    assert_int_equal(embps_pull_within(f->table, f->ids, N, rows, f->states, 1u << 31, 5, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_int_equal(embps_pull_within(f->table, NULL, N, rows, f->states, 0, 5, &error),
                     EMBPS_INVALID_ARGUMENT);
    finish(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefetch_is_told_to_the_server_and_changes_nothing),
        cmocka_unit_test(rows_in_memory_come_within_any_deadline),
        cmocka_unit_test(a_pull_that_waits_for_a_clock_comes_back_late),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
