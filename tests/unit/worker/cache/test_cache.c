/* The rules of the cache, one at a time; test_cache_model.c has all of them at once. */
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "worker/cache/cache.h"

#include <math.h>
#include <string.h>

enum { DIM = 256 }; /* wide, so that few rows fit */

#define TABLE 5u

typedef struct world {
    psw_cache_t *cache;
    psw_cache_table_t table;
    uint64_t clock;
} world_t;

static void start(world_t *w, uint32_t staleness, uint32_t flush)
{
    *w = (world_t){.table = {.number = TABLE, .dim = DIM, .exact = true}};
    assert_int_equal(psw_cache_create(64 << 10, &w->cache, NULL), PSC_OK);
    psw_cache_set_limits(w->cache, staleness, flush);
}

static void write_row(float *row, float value)
{
    for (size_t c = 0; c < DIM; c++)
        row[c] = value;
}

static void fill(void *context, size_t i, float *row)
{
    (void)i;
    write_row(row, *(const float *)context);
}

static psw_asked_t pull_one(world_t *w, uint64_t id, float *row)
{
    const uint64_t hash = psc_row_hash(TABLE, id);
    const psw_cache_rows_t rows = {.table = &w->table, .ids = &id, .hashes = &hash, .n = 1};
    const psw_cache_out_t out = {.rows = row, .stride = DIM};
    psw_asked_t asked;
    assert_int_equal(psw_cache_pull(w->cache, &rows, &out, &asked, NULL), PSC_OK);
    return asked;
}

static psc_status_t push_one(world_t *w, uint64_t id, psp_push_kind_t kind, float value,
                             psw_asked_t *asked, psc_error_t *error)
{
    const uint64_t hash = psc_row_hash(TABLE, id);
    const psw_cache_rows_t rows = {.table = &w->table, .ids = &id, .hashes = &hash, .n = 1};
    return psw_cache_push(w->cache, &rows, kind, fill, &value, asked, error);
}

static void fetch_one(world_t *w, uint64_t id, uint32_t version, float own)
{
    float row[DIM], sent[DIM];
    const psw_asked_t asked = pull_one(w, id, row);
    assert_int_equal(asked.n, 1);
    write_row(sent, own);
    psw_cache_answer(w->cache, &(psw_answer_t){.ticket = asked.tickets[0],
                                               .asked_at = w->clock,
                                               .least_clock = w->clock,
                                               .version = version,
                                               .row = (const uint8_t *)sent});
}

static void tick_times(world_t *w, int n)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(psw_cache_take_due(w->cache, NULL), PSC_OK);
        psw_cache_set_clock(w->cache, ++w->clock);
    }
}

static void an_asynchronous_copy_is_asked_for_with_the_version_that_own_pushes_give_it(void **state)
{
    (void)state;
    static world_t w;
    start(&w, PSW_CACHE_ASYNC, 1);
    float row[DIM];
    psw_asked_t asked;
    psw_outbox_t outbox;
    fetch_one(&w, 8, 41, 3);
    assert_int_equal(pull_one(&w, 8, row).n, 0);
    assert_true(row[0] == 3);
    assert_int_equal(push_one(&w, 8, PSP_PUSH_DELTA, 2, &asked, NULL), PSC_OK);
    assert_int_equal(asked.n, 0);
    assert_false(psw_cache_outbox(w.cache, &outbox));
    assert_int_equal(pull_one(&w, 8, row).n, 0);
    assert_true(row[0] == 5);
    assert_int_equal(psw_cache_take_due(w.cache, NULL), PSC_OK);
    assert_true(psw_cache_outbox(w.cache, &outbox));
    assert_int_equal(outbox.n, 1);
    assert_true(outbox.rows[0] == 2);
    assert_false(psw_cache_outbox(w.cache, &outbox));
    psw_cache_set_clock(w.cache, 1);
    memset(row, 0, sizeof row);
    asked = pull_one(&w, 8, row);
    assert_int_equal(asked.n, 1);
    assert_int_equal(asked.held[0], 42);
    assert_true(row[0] == 5); /* lies there already */
    psw_cache_destroy(w.cache);
}

static void a_push_that_was_refused_ends_all_copies_of_its_table(void **state)
{
    (void)state;
    static world_t w;
    float row[DIM];
    psw_asked_t asked;
    psw_outbox_t outbox;
    for (int drops = 0; drops < 2; drops++) {
        start(&w, 5, 1);
        fetch_one(&w, 1, 7, 1);
        fetch_one(&w, 2, 8, 1);
        assert_int_equal(push_one(&w, 2, PSP_PUSH_DELTA, 2, &asked, NULL), PSC_OK);
        psw_cache_end_table(w.cache, TABLE + 1, false);
        assert_int_equal(pull_one(&w, 1, row).n, 0);
        psw_cache_end_table(w.cache, TABLE, drops == 1);
        for (uint64_t id = 1; id <= 2; id++) {
            asked = pull_one(&w, id, row);
            assert_int_equal(asked.n, 1);
            assert_int_equal(asked.held[0], 0);
        }
        assert_int_equal(psw_cache_outbox(w.cache, &outbox), drops == 0);
        psw_cache_destroy(w.cache);
    }
}

static void a_gradient_ends_the_copy_until_its_reply_is_there(void **state)
{
    (void)state;
    static world_t w;
    float row[DIM], sent[DIM];
    psw_asked_t asked;
    start(&w, 5, 4);
    fetch_one(&w, 1, 7, 1);
    assert_int_equal(push_one(&w, 1, PSP_PUSH_GRADIENT, 2, &asked, NULL), PSC_OK);
    assert_int_equal(asked.n, 1);
    assert_int_equal(asked.n_wanted, 1);
    const psw_ticket_t ticket = asked.tickets[0];
    assert_int_equal(pull_one(&w, 1, row).n, 1);
    write_row(sent, 9);
    psw_cache_answer(w.cache,
                     &(psw_answer_t){.ticket = ticket, .version = 8, .row = (const uint8_t *)sent});
    assert_int_equal(pull_one(&w, 1, row).n, 0);
    assert_true(row[0] == 9);
    assert_int_equal(push_one(&w, 1, PSP_PUSH_ASSIGN, 2, &asked, NULL), PSC_OK);
    assert_int_equal(asked.n, 1);
    assert_int_equal(asked.n_wanted, 0);
    assert_int_equal(pull_one(&w, 1, row).n, 1);
    psw_cache_destroy(w.cache);
}

static void values_that_are_not_finite_and_sums_that_would_not_be(void **state)
{
    (void)state;
    static world_t w;
    psc_error_t error = PSC_ERROR_INIT;
    psw_asked_t asked;
    psw_outbox_t outbox;
    start(&w, 5, 4);
    fetch_one(&w, 11, 7, 0);
    assert_int_equal(push_one(&w, 11, PSP_PUSH_DELTA, INFINITY, &asked, &error),
                     PSC_INVALID_ARGUMENT);
    assert_int_equal(error.id, 11);
    assert_false(psw_cache_outbox(w.cache, &outbox));
    assert_int_equal(push_one(&w, 11, PSP_PUSH_DELTA, 3e38F, &asked, &error), PSC_OK);
    assert_int_equal(push_one(&w, 11, PSP_PUSH_DELTA, 2e38F, &asked, &error), PSC_OK);
    assert_true(psw_cache_outbox(w.cache, &outbox)); /* the first one leaves by itself */
    assert_true(outbox.rows[0] == 3e38F);
    psw_cache_destroy(w.cache);
}

static void pad_rows_and_rows_wider_than_the_cache_are_left_alone(void **state)
{
    (void)state;
    static world_t w;
    float row[DIM];
    start(&w, 5, 4);
    w.table.has_pad = true;
    w.table.pad_id = 3;
    psw_asked_t asked = pull_one(&w, 3, row);
    assert_int_equal(asked.tickets[0].slot, PSW_CACHE_NO_SLOT);
    asked = pull_one(&w, 4, row);
    assert_int_not_equal(asked.tickets[0].slot, PSW_CACHE_NO_SLOT);
    const psw_cache_table_t wide = {.number = TABLE + 1, .dim = 65536};
    const uint64_t id = 4, hash = psc_row_hash(TABLE + 1, id);
    const psw_cache_rows_t rows = {.table = &wide, .ids = &id, .hashes = &hash, .n = 1};
    static float much[65536];
    const psw_cache_out_t out = {.rows = much, .stride = 65536};
    assert_int_equal(psw_cache_pull(w.cache, &rows, &out, &asked, NULL), PSC_OK);
    assert_int_equal(asked.tickets[0].slot, PSW_CACHE_NO_SLOT);
    psw_cache_destroy(w.cache);
}

static void rows_that_are_pushed_in_every_clock_leave_more_often(void **state)
{
    (void)state;
    static world_t w;
    psw_asked_t asked;
    psw_outbox_t outbox;
    start(&w, PSW_CACHE_ASYNC, 16);
    size_t sent[2] = {0};
    fetch_one(&w, 1, 1, 0);
    fetch_one(&w, 2, 1, 0);
    for (int clock = 0; clock < 320; clock++) {
        assert_int_equal(push_one(&w, 1, PSP_PUSH_DELTA, 1, &asked, NULL), PSC_OK);
        if (clock % 4 == 0)
            assert_int_equal(push_one(&w, 2, PSP_PUSH_DELTA, 1, &asked, NULL), PSC_OK);
        tick_times(&w, 1);
        while (psw_cache_outbox(w.cache, &outbox)) {
            for (size_t i = 0; i < outbox.n; i++)
                sent[outbox.ids[i] - 1]++;
        }
    }
    assert_in_range(sent[0], 70, 82);
    assert_in_range(sent[1], 14, 22);
    psw_cache_destroy(w.cache);
}

static void a_shorter_period_sends_what_waits_for_the_longer_one(void **state)
{
    (void)state;
    static world_t w;
    psw_asked_t asked;
    psw_outbox_t outbox;
    start(&w, 5, 1000);
    for (uint64_t id = 0; id < 20; id++) {
        fetch_one(&w, id, 1, 0);
        assert_int_equal(push_one(&w, id, PSP_PUSH_DELTA, 1, &asked, NULL), PSC_OK);
    }
    psw_cache_set_limits(w.cache, 5, 1);
    tick_times(&w, 1);
    assert_true(psw_cache_outbox(w.cache, &outbox));
    assert_int_equal(outbox.n, 20);
    psw_cache_destroy(w.cache);
}

static void a_row_seen_once_displaces_none_that_is_used(void **state)
{
    (void)state;
    static world_t w;
    float row[DIM];
    start(&w, 5, 1);
    for (int round = 0; round < 20; round++) {
        for (uint64_t id = 0; id < 15; id++) {
            const psw_asked_t asked = pull_one(&w, id, row);
            if (asked.n != 0)
                fetch_one(&w, id, 1, 0);
        }
    }
    for (uint64_t id = 1000; id < 3000; id++) {
        (void)pull_one(&w, id, row);
        if (id % 2 == 0 && pull_one(&w, id / 2 % 15, row).n != 0)
            fetch_one(&w, id / 2 % 15, 1, 0);
    }
    size_t kept = 0;
    for (uint64_t id = 0; id < 15; id++)
        kept += pull_one(&w, id, row).n == 0;
    assert_true(kept >= 13);
    psw_cache_destroy(w.cache);
}

static psw_asked_t prefetch_one(world_t *w, uint64_t id, uint64_t when)
{
    const uint64_t hash = psc_row_hash(TABLE, id);
    const psw_cache_rows_t rows = {.table = &w->table, .ids = &id, .hashes = &hash, .n = 1};
    psw_asked_t asked;
    assert_int_equal(psw_cache_prefetch(w->cache, &rows, when, &asked, NULL), PSC_OK);
    return asked;
}

static void rows_that_are_announced_too_early_to_be_asked_for_displace_none(void **state)
{
    (void)state;
    static const uint32_t staleness[] = {2, PSW_CACHE_ASYNC};
    for (size_t s = 0; s < 2; s++) {
        static world_t w;
        psw_cache_counters_t counters;
        start(&w, staleness[s], 3);
        fetch_one(&w, 1, 7, 1);
        for (uint64_t id = 2; id < 200; id++) {
            const psw_asked_t asked = prefetch_one(&w, id, 3);
            assert_int_equal(asked.n_wanted, 0);
            assert_int_equal(asked.n, 1);
        }
        psw_cache_counters(w.cache, &counters);
        assert_int_equal(counters.rows, 1);
        assert_int_equal(counters.admitted, 1);
        assert_int_equal(prefetch_one(&w, 2, 2).n_wanted, 1);
        psw_cache_destroy(w.cache);
    }
}

/* What a server has for a row, without pushes. */
static float value_of(uint32_t table, uint64_t id)
{
    return (float)(table * 1000000 + id % 1000000);
}

/* Pulls ids [n] of a table; rows that are asked for are answered. How many were served. */
static size_t pull_all(psw_cache_t *cache, const psw_cache_table_t *table, const uint64_t *ids,
                       size_t n)
{
    enum { MOST = 64, WIDEST = 100 };
    uint64_t hashes[MOST];
    static float got[MOST][WIDEST], sent[WIDEST];
    psw_asked_t asked;
    assert_true(n <= MOST && table->dim <= WIDEST);
    for (size_t i = 0; i < n; i++)
        hashes[i] = psc_row_hash(table->number, ids[i]);
    const psw_cache_rows_t rows = {.table = table, .ids = ids, .hashes = hashes, .n = n};
    const psw_cache_out_t out = {.rows = got[0], .stride = WIDEST};
    memset(got, 0, sizeof got);
    assert_int_equal(psw_cache_pull(cache, &rows, &out, &asked, NULL), PSC_OK);
    bool is_asked[MOST] = {false};
    for (size_t k = 0; k < asked.n; k++)
        is_asked[asked.first[k]] = true;
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; !is_asked[i] && c < table->dim; c++)
            assert_true(got[i][c] == value_of(table->number, ids[i]));
    }
    for (size_t k = 0; k < asked.n; k++) {
        for (size_t c = 0; c < table->dim; c++)
            sent[c] = value_of(table->number, ids[asked.first[k]]);
        psw_cache_answer(cache, &(psw_answer_t){.ticket = asked.tickets[k],
                                                .version = 1,
                                                .row = (const uint8_t *)sent});
    }
    return n - asked.n;
}

static void rows_come_and_go_within_the_budget_and_each_keeps_its_value(void **state)
{
    (void)state;
    static const size_t budgets[] = {64 << 10, 1 << 20, 48 << 20};
    static const uint64_t least_hits[] = {4000, 30000, 60000};
    for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
        test_random_t random = test_random_start();
        psw_cache_t *cache;
        const psw_cache_table_t tables[] = {{.number = 1, .dim = 5},
                                            {.number = 2, .dim = 33},
                                            {.number = 9, .dim = 5},
                                            {.number = 4, .dim = 100}};
        psw_cache_counters_t counters;
        uint64_t n_emptied = 0;
        assert_int_equal(psw_cache_create(budgets[b], &cache, NULL), PSC_OK);
        psw_cache_set_limits(cache, 5, 1);
        for (int round = 0; round < 3000; round++) {
            uint64_t ids[64];
            size_t n = 0;
            for (uint64_t id = test_below(&random, 4); n < 64; id += 1 + test_below(&random, 4))
                if (test_below(&random, 1 + id / 16) == 0)
                    ids[n++] = id;
            (void)pull_all(cache, &tables[test_below(&random, 4)], ids, n);
            psw_cache_counters(cache, &counters);
            assert_true(counters.bytes <= budgets[b]);
            assert_int_equal(counters.rows, counters.admitted - counters.evicted - n_emptied);
            if (round % 500 == 400)
                psw_cache_end_table(cache, 2, false);
            if (round == 1700) {
                psw_cache_empty(cache);
                n_emptied = counters.rows;
            }
        }
        assert_true(counters.hits > least_hits[b]);
        assert_true(b == 2 || counters.evicted > 100);
        psw_cache_destroy(cache);
    }
}

static void rows_of_another_width_displace_those_that_are_no_longer_pulled(void **state)
{
    (void)state;
    psw_cache_t *cache;
    const psw_cache_table_t tables[] = {{.number = 1, .dim = 100}, {.number = 2, .dim = 3}};
    uint64_t ids[60];
    assert_int_equal(psw_cache_create(64 << 10, &cache, NULL), PSC_OK);
    psw_cache_set_limits(cache, 5, 1);
    for (uint64_t i = 0; i < 60; i++)
        ids[i] = i;
    for (size_t t = 0; t < 4; t++) {
        size_t served = 0;
        for (int round = 0; round < 100; round++)
            served = pull_all(cache, &tables[t % 2], ids, 60);
        assert_true(served >= 30);
    }
    psw_cache_destroy(cache);
}

static void memory_that_is_short_is_told_and_harms_nothing(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    psw_cache_t *cache = NULL;
    assert_int_equal(psw_cache_create(1000, &cache, &error), PSC_INVALID_ARGUMENT);
    for (unsigned long n = 1;; n++) {
        psc_alloc_fail_at(n);
        psc_status_t st = psw_cache_create(1 << 20, &cache, &error);
        psc_alloc_fail_at(0);
        if (st == PSC_OK)
            break;
        assert_int_equal(st, PSC_NO_MEMORY);
    }
    psw_cache_destroy(cache);
    static world_t w;
    for (unsigned long n = 1; n < 40; n++) {
        start(&w, PSW_CACHE_ASYNC, 3);
        psc_alloc_fail_at(n);
        float own = 0, sent = 0;
        for (int i = 0; i < 30; i++) {
            float row[DIM];
            uint64_t id = 9, hash = psc_row_hash(TABLE, id);
            const psw_cache_rows_t rows = {.table = &w.table, .ids = &id, .hashes = &hash, .n = 1};
            const psw_cache_out_t out = {.rows = row, .stride = DIM};
            psw_asked_t asked;
            psw_outbox_t outbox;
            if (psw_cache_pull(w.cache, &rows, &out, &asked, &error) != PSC_OK)
                assert_int_equal(error.code, PSC_NO_MEMORY);
            while (psw_cache_outbox(w.cache, &outbox))
                sent += outbox.rows[0];
            if (push_one(&w, 9, PSP_PUSH_DELTA, 1, &asked, &error) == PSC_OK) {
                own++;
                sent += (float)asked.n;
            }
            if (i % 5 == 4 && psw_cache_take_due(w.cache, &error) != PSC_OK)
                assert_int_equal(error.code, PSC_NO_MEMORY);
            psw_cache_set_clock(w.cache, ++w.clock);
            while (psw_cache_outbox(w.cache, &outbox))
                sent += outbox.rows[0];
        }
        psc_alloc_fail_at(0);
        bool more = true;
        psw_outbox_t outbox;
        assert_int_equal(psw_cache_take_some(w.cache, &more, NULL), PSC_OK);
        while (psw_cache_outbox(w.cache, &outbox))
            sent += outbox.rows[0];
        assert_true(own == sent && own > 20);
        psw_cache_destroy(w.cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            an_asynchronous_copy_is_asked_for_with_the_version_that_own_pushes_give_it),
        cmocka_unit_test(a_push_that_was_refused_ends_all_copies_of_its_table),
        cmocka_unit_test(a_gradient_ends_the_copy_until_its_reply_is_there),
        cmocka_unit_test(values_that_are_not_finite_and_sums_that_would_not_be),
        cmocka_unit_test(pad_rows_and_rows_wider_than_the_cache_are_left_alone),
        cmocka_unit_test(rows_that_are_pushed_in_every_clock_leave_more_often),
        cmocka_unit_test(a_shorter_period_sends_what_waits_for_the_longer_one),
        cmocka_unit_test(a_row_seen_once_displaces_none_that_is_used),
        cmocka_unit_test(rows_that_are_announced_too_early_to_be_asked_for_displace_none),
        cmocka_unit_test(rows_come_and_go_within_the_budget_and_each_keeps_its_value),
        cmocka_unit_test(rows_of_another_width_displace_those_that_are_no_longer_pulled),
        cmocka_unit_test(memory_that_is_short_is_told_and_harms_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
