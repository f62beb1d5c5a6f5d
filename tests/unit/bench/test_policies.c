/*
 * The simulated policies: each on a short trace whose hits were worked out by hand, all of them
 * against the optimum, the optimum against a search of everything that could have been kept.
 */
#include "common/alloc.h"
#include "tests/bench/policy/policies.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define MAX_USES 4096

/* A trace of the letters of text, a for 0. */
static bench_trace_t trace_of(const char *text, uint32_t *ids)
{
    bench_trace_t trace = {.ids = ids, .n = strlen(text), .n_rows = 26};
    for (size_t i = 0; i < trace.n; i++)
        ids[i] = (uint32_t)(text[i] - 'a');
    return trace;
}

/* hits: a plus for each use that finds its row, a point for the others. */
static void check(const bench_policy_t *policy, uint32_t capacity, const char *text,
                  const char *hits)
{
    uint32_t ids[64];
    char seen[64] = "";
    bench_trace_t trace = trace_of(text, ids);
    void *cache = policy->create(&trace, capacity);
    assert_non_null(cache);
    for (size_t i = 0; i < trace.n; i++)
        seen[i] = policy->access(cache, ids[i]) ? '+' : '.';
    policy->destroy(cache);
    assert_string_equal(seen, hits);
}

static void lru_lets_the_least_recently_used_go(void **state)
{
    (void)state;
    check(&bench_lru, 2, "abacab", "..+.+.");
    check(&bench_lru, 2, "aaabcda", ".++....");
    check(&bench_lru, 3, "abcadaebcca", "...+.+...+.");
}

static void clock_takes_one_off_and_evicts_at_zero(void **state)
{
    (void)state;
    check(&bench_clock, 2, "abacab", "..+.+.");
    /* c passes a with 2 uses, d with 1: both times the other row goes. */
    check(&bench_clock, 2, "aaabcda", ".++...+");
    /* e passes it with none. */
    check(&bench_clock, 2, "aaabcdea", ".++.....");
}

static void lfu_lets_the_least_frequently_used_go(void **state)
{
    (void)state;
    check(&bench_lfu, 2, "aabcbca", ".+....+");
    check(&bench_lfu, 2, "abac", "..+.");
    /* Of two rows used once the one that came first goes; counts are lost with their rows. */
    check(&bench_lfu, 3, "aabcdbca", ".+.....+");
}

static void sieve_keeps_its_hand_among_the_new_rows(void **state)
{
    (void)state;
    /* d clears a and takes b's place, e takes c's, b d's, c e's: a was passed over once. */
    check(&bench_sieve, 3, "abcadaebcca", "...+.+...++");
}

static void s3_fifo_takes_back_what_it_remembers_into_the_main_queue(void **state)
{
    (void)state;
    /* small 1, ghosts 2. a comes back from the ghosts, then c; e and f pass by. */
    check(&bench_s3_fifo, 3, "abcdaeacafac", "......+.+.++");
    /* Used twice before its turn comes: b goes on to the main queue, and a and c leave. */
    check(&bench_s3_fifo, 3, "abbbcdeb", "..++...+");
}

static void w_tinylfu_lets_in_what_was_used_more_often(void **state)
{
    (void)state;
    /* window 1, main 1: a is the main row until b was used four times to its three. */
    check(&bench_w_tinylfu, 2, "abacbabcbcab", "..+..++....+");
}

static void the_optimum_turns_away_what_is_used_last(void **state)
{
    (void)state;
    check(&bench_belady, 2, "abcabc", "...++.");
    check(&bench_belady, 1, "abba", "..+.");
    check(&bench_belady, 2, "abcbab", "...+++");
}

/* ---- all of them ---- */

static void rows_that_all_fit_are_missed_once_each(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    uint32_t ids[MAX_USES];
    bench_trace_t trace = {.ids = ids, .n = MAX_USES, .n_rows = 100};
    for (size_t i = 0; i < trace.n; i++)
        ids[i] = i < 100 ? (uint32_t)i : (uint32_t)test_below(&random, 100);
    for (size_t k = 0; bench_policies[k] != NULL; k++)
        assert_int_equal(bench_count_hits(bench_policies[k], &trace, 100), MAX_USES - 100);
}

static void a_row_used_twice_in_a_row_is_there(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    uint32_t ids[MAX_USES];
    bench_trace_t trace = {.ids = ids, .n = MAX_USES, .n_rows = 500};
    for (size_t i = 0; i < trace.n; i += 2)
        ids[i] = ids[i + 1] = (uint32_t)test_below(&random, 500);
    for (size_t k = 0; bench_policies[k] != NULL; k++) {
        for (uint32_t capacity = 1; capacity <= 256; capacity = capacity * 3 + 1) {
            void *cache = bench_policies[k]->create(&trace, capacity);
            assert_non_null(cache);
            for (size_t i = 0; i < trace.n; i += 2) {
                (void)bench_policies[k]->access(cache, ids[i]);
                assert_true(bench_policies[k]->access(cache, ids[i + 1]));
            }
            bench_policies[k]->destroy(cache);
        }
    }
}

/* Ids about as Zipf's law has them, and now and then a run of ids one after another. */
static void draw_trace(test_random_t *random, bench_trace_t *trace)
{
    uint32_t run = 0, id = 0;
    for (size_t i = 0; i < trace->n; i++) {
        if (run > 0) {
            run--;
            id = (id + 1) % trace->n_rows;
        } else {
            uint32_t octave = 1u << test_below(random, 10);
            id = (octave + (uint32_t)test_below(random, octave) - 1) % trace->n_rows;
            run = test_below(random, 100) == 0 ? (uint32_t)test_below(random, 200) : 0;
        }
        trace->ids[i] = id;
    }
}

static void none_is_better_than_the_optimum(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    uint32_t ids[MAX_USES];
    for (int round = 0; round < 20; round++) {
        bench_trace_t trace = {.ids = ids, .n = 1 + test_below(&random, MAX_USES), .n_rows = 700};
        draw_trace(&random, &trace);
        uint32_t capacity = 1 + (uint32_t)test_below(&random, round % 2 == 0 ? 20 : 700);
        int64_t most = bench_count_hits(&bench_belady, &trace, capacity);
        for (size_t k = 0; bench_policies[k] != NULL; k++) {
            int64_t n_hits = bench_count_hits(bench_policies[k], &trace, capacity);
            assert_true(n_hits >= 0);
            assert_true(n_hits <= most);
        }
    }
}

/* The most hits from use i on, with the rows of the set `in`: tries all that can be done. */
static int search(const bench_trace_t *trace, size_t i, unsigned in, uint32_t capacity)
{
    if (i == trace->n)
        return 0;
    unsigned bit = 1u << trace->ids[i];
    if ((in & bit) != 0)
        return 1 + search(trace, i + 1, in, capacity);
    int best = search(trace, i + 1, in, capacity);
    if ((uint32_t)__builtin_popcount(in) < capacity) {
        int with = search(trace, i + 1, in | bit, capacity);
        return with > best ? with : best;
    }
    for (unsigned out = 1; out <= in; out *= 2) {
        if ((in & out) == 0)
            continue;
        int with = search(trace, i + 1, (in & ~out) | bit, capacity);
        best = with > best ? with : best;
    }
    return best;
}

static void nothing_that_could_be_kept_gives_more_hits_than_the_optimum(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    uint32_t ids[11];
    for (int round = 0; round < 200; round++) {
        uint32_t n_rows = 2 + (uint32_t)test_below(&random, 4);
        bench_trace_t trace = {.ids = ids, .n = 1 + test_below(&random, 11), .n_rows = n_rows};
        for (size_t i = 0; i < trace.n; i++)
            ids[i] = (uint32_t)test_below(&random, n_rows);
        for (uint32_t capacity = 1; capacity <= 3; capacity++)
            assert_int_equal(bench_count_hits(&bench_belady, &trace, capacity),
                             search(&trace, 0, 0, capacity));
    }
}

static void nothing_is_kept_when_memory_is_short(void **state)
{
    (void)state;
    uint32_t ids[8];
    bench_trace_t trace = trace_of("abcabc", ids);
    for (size_t k = 0; bench_policies[k] != NULL; k++) {
        unsigned long n = 1;
        for (;; n++) {
            psc_alloc_fail_at(n);
            void *cache = bench_policies[k]->create(&trace, 2);
            bool failed = psc_alloc_count() >= n;
            psc_alloc_fail_at(0);
            if (!failed)
                assert_non_null(cache);
            if (cache != NULL)
                bench_policies[k]->destroy(cache);
            if (!failed)
                break;
        }
        assert_true(n > 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_lets_the_least_recently_used_go),
        cmocka_unit_test(clock_takes_one_off_and_evicts_at_zero),
        cmocka_unit_test(lfu_lets_the_least_frequently_used_go),
        cmocka_unit_test(sieve_keeps_its_hand_among_the_new_rows),
        cmocka_unit_test(s3_fifo_takes_back_what_it_remembers_into_the_main_queue),
        cmocka_unit_test(w_tinylfu_lets_in_what_was_used_more_often),
        cmocka_unit_test(the_optimum_turns_away_what_is_used_last),
        cmocka_unit_test(rows_that_all_fit_are_missed_once_each),
        cmocka_unit_test(a_row_used_twice_in_a_row_is_there),
        cmocka_unit_test(none_is_better_than_the_optimum),
        cmocka_unit_test(nothing_that_could_be_kept_gives_more_hits_than_the_optimum),
        cmocka_unit_test(nothing_is_kept_when_memory_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
