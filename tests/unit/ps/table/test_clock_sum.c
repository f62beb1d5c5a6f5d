/*
 * Sums over the pushes of a clock against a list of each row's pushes that is walked by hand.
 */
#include "ps/table/clock_sum.h"

#include "common/alloc.h"
#include "ps/store/cold.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <string.h>

enum { D = 3, IDS = 12, PUSHES = 14, ROWS = 6, TABLES = 2, MAX_ROWS = 5, CHANGES = 64 };

/* What one push says of one row. */
typedef struct change {
    psp_push_kind_t kind;
    float rate;
    uint64_t step;
    float values[D];
} change_t;

typedef struct history {
    change_t all[CHANGES];
    size_t n;
} history_t;

typedef struct clock_test {
    ps_store_t *store;
    ps_clock_sum_t sum;
    ps_table_t tables[TABLES];
    ps_request_t requests[PUSHES];
    uint64_t ids[PUSHES][ROWS];
    float coded[PUSHES][ROWS * (D + 1)]; /* rows in any format */
    history_t expected[TABLES][IDS], got[TABLES][IDS];
} clock_test_t;

static void open_store(clock_test_t *t, uint64_t memory)
{
    ps_cold_faults_t faults = {0};
    ps_store_options_t options = {.memory_bytes = memory};
    assert_int_equal(ps_cold_memory_create(&faults, &options.cold, NULL), PSC_OK);
    assert_int_equal(ps_store_open(&options, &t->store, NULL), PSC_OK);
    assert_int_equal(ps_store_table_add(t->store, 1, 64, NULL), PSC_OK);
}

static void close_all(clock_test_t *t)
{
    ps_clock_sum_clear(&t->sum);
    assert_int_equal(ps_store_close(t->store, true, NULL), PSC_OK);
}

static bool alike(const change_t *a, const change_t *b)
{
    return a->kind == b->kind && a->step == b->step &&
           memcmp(&a->rate, &b->rate, sizeof a->rate) == 0;
}

/* A row's pushes come in their order: into the last change if it is of the same kind. */
static void expect(history_t *history, const change_t *change)
{
    change_t *last = history->n != 0 ? &history->all[history->n - 1] : NULL;
    if (last == NULL || !alike(last, change)) {
        history->all[history->n++] = *change;
        return;
    }
    for (size_t c = 0; c < D; c++)
        last->values[c] = change->kind == PSP_PUSH_ASSIGN ? change->values[c]
                                                          : last->values[c] + change->values[c];
}

/* kinds: of how many kinds, rates and steps the pushes are. */
static void make_pushes(clock_test_t *t, test_random_t *random, size_t n, size_t kinds)
{
    for (size_t p = 0; p < n; p++) {
        size_t table = test_below(random, TABLES), n_rows = 1 + test_below(random, ROWS);
        t->requests[p] = (ps_request_t){
            .table = &t->tables[table],
            .message = {.kind = PSP_PUSH,
                        .u.push = {.kind = (psp_push_kind_t)test_below(random, kinds),
                                   .learning_rate = (float)test_below(random, kinds),
                                   .step = test_below(random, kinds),
                                   .dim = D,
                                   .n = n_rows,
                                   .ids = (const uint8_t *)t->ids[p],
                                   .format = (psp_format_t)test_below(random, PSP_FORMATS),
                                   .rows = (const uint8_t *)t->coded[p]}}};
        for (size_t i = 0; i < n_rows; i++) {
            const psp_push_t *push = &t->requests[p].message.u.push;
            const psp_row_format_t *coder = psp_row_format(push->format);
            uint8_t *coded = (uint8_t *)t->coded[p] + i * psp_row_bytes(push->format, D);
            change_t change = {.kind = push->kind, .rate = push->learning_rate, .step = push->step};
            t->ids[p][i] = test_below(random, IDS); /* also twice in one push */
            for (size_t c = 0; c < D; c++)
                change.values[c] = test_float(random);
            coder->encode(coded, change.values, D);
            coder->decode(change.values, coded, D);
            expect(&t->expected[table][t->ids[p][i]], &change);
        }
    }
}

static void sum_all(clock_test_t *t, size_t n)
{
    ps_request_t **requests = psc_alloc_array(n, sizeof(ps_request_t *));
    for (size_t p = 0; p < n; p++) {
        requests[p] = &t->requests[p];
        assert_int_equal(ps_clock_sum_add(&t->sum, requests[p], t->store, NULL), PSC_OK);
    }
    assert_int_equal(t->sum.n_kept, n);
    assert_int_equal(ps_clock_sum_begin(&t->sum, requests, n, NULL), PSC_OK);
    for (;;) {
        psp_push_t push;
        ps_table_t *table = NULL;
        bool more;
        bool seen[IDS] = {false};
        assert_int_equal(ps_clock_sum_next(&t->sum, &push, &table, &more, NULL), PSC_OK);
        if (!more)
            break;
        assert_true(push.n >= 1 && push.n <= MAX_ROWS);
        for (size_t i = 0; i < push.n; i++) {
            uint64_t id = psp_id_at(push.ids, i);
            history_t *history = &t->got[table - t->tables][id];
            change_t *change = &history->all[history->n++];
            assert_false(seen[id]);
            seen[id] = true;
            *change = (change_t){.kind = push.kind, .rate = push.learning_rate, .step = push.step};
            memcpy(change->values, push.rows + i * sizeof change->values, sizeof change->values);
        }
    }
    for (size_t p = 0; p < n; p++)
        ps_clock_sum_drop(&t->sum, &t->requests[p]);
    ps_clock_sum_end(&t->sum);
    assert_int_equal(t->sum.n_kept, 0);
    assert_true(t->sum.bytes == 0);
}

static void rows_are_summed_in_the_order_of_their_pushes(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    static clock_test_t t;
    open_store(&t, 16 << 20);
    for (int round = 0; round < 300; round++) {
        memset(t.expected, 0, sizeof t.expected);
        memset(t.got, 0, sizeof t.got);
        for (size_t i = 0; i < TABLES; i++)
            t.tables[i] = (ps_table_t){.number = 1, .dim = D, .max_rows = MAX_ROWS};
        size_t n = 1 + test_below(&random, PUSHES);
        make_pushes(&t, &random, n, round % 3 == 0 ? 1 : 3);
        sum_all(&t, n);
        for (size_t i = 0; i < TABLES; i++) {
            for (size_t id = 0; id < IDS; id++) {
                const history_t *want = &t.expected[i][id], *got = &t.got[i][id];
                assert_int_equal(got->n, want->n);
                for (size_t k = 0; k < want->n; k++) {
                    assert_true(alike(&got->all[k], &want->all[k]));
                    assert_memory_equal(got->all[k].values, want->all[k].values,
                                        sizeof want->all[k].values);
                }
            }
        }
    }
    close_all(&t);
}

static void what_is_kept_is_part_of_the_memory_and_bounded_by_it(void **state)
{
    (void)state;
    static clock_test_t t;
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_counters_t before, after;
    t = (clock_test_t){0};
    open_store(&t, 8 << 20);
    ps_store_counters(t.store, &before);
    t.tables[0] = (ps_table_t){.number = 1, .dim = 1000, .max_rows = 60};
    ps_request_t request = {.table = &t.tables[0],
                            .message = {.kind = PSP_PUSH, .u.push = {.dim = 1000, .n = 60}}};
    psp_buffer_t buffer = {.capacity = 256 << 10};
    request.buffer = &buffer;
    size_t n = 0;
    while (ps_clock_sum_add(&t.sum, &request, t.store, &error) == PSC_OK)
        assert_true(++n < 64);
    assert_true(n >= 4);
    assert_int_equal(error.code, PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "end it more often"));
    assert_int_equal(t.sum.n_kept, n);
    assert_true(t.sum.bytes >= n * (256 << 10));
    assert_true(t.sum.reserved >= t.sum.bytes);
    ps_store_counters(t.store, &after);
    assert_true(before.bytes_budget - after.bytes_budget >= t.sum.bytes);
    while (n-- != 0)
        ps_clock_sum_drop(&t.sum, &request);
    assert_true(t.sum.bytes == 0 && t.sum.rows_kept == 0);
    close_all(&t);
}

static void memory_that_is_short_is_told(void **state)
{
    (void)state;
    static clock_test_t t;
    test_random_t random = test_random_start();
    t = (clock_test_t){0};
    open_store(&t, 16 << 20);
    t.tables[0] = t.tables[1] = (ps_table_t){.number = 1, .dim = D, .max_rows = MAX_ROWS};
    make_pushes(&t, &random, 4, 1);
    for (unsigned long fail = 1; fail <= 3; fail++) {
        psc_status_t st;
        ps_request_t **requests = psc_alloc_array(4, sizeof(ps_request_t *));
        psp_push_t push;
        ps_table_t *table;
        bool more = true;
        for (size_t p = 0; p < 4; p++) {
            requests[p] = &t.requests[p];
            assert_int_equal(ps_clock_sum_add(&t.sum, requests[p], t.store, NULL), PSC_OK);
        }
        psc_alloc_fail_at(fail);
        st = ps_clock_sum_begin(&t.sum, requests, 4, NULL);
        if (st == PSC_OK)
            st = ps_clock_sum_next(&t.sum, &push, &table, &more, NULL);
        psc_alloc_fail_at(0);
        assert_int_equal(st, PSC_NO_MEMORY);
        ps_clock_sum_clear(&t.sum);
    }
    close_all(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_summed_in_the_order_of_their_pushes),
        cmocka_unit_test(what_is_kept_is_part_of_the_memory_and_bounded_by_it),
        cmocka_unit_test(memory_that_is_short_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
