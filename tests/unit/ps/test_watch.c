/* When a worker is taken for lost; all servers come to the same from votes in any order. */
#include "ps/watch.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

enum { WORKERS = 3, SERVERS = 4 };
#define SECOND UINT64_C(1000000)

static bool see(ps_watch_t *watch, uint32_t worker, psc_process_state_t state, uint64_t now_us,
                ps_why_t *why)
{
    const ps_sight_t seen = {.state = state, .told = state == PSC_PROCESS_GONE};
    return ps_watch_see(watch, worker, &seen, now_us, why);
}

static void one_that_is_gone_is_lost_half_a_second_later(void **unused)
{
    (void)unused;
    ps_watch_t *watch;
    ps_why_t why;
    assert_int_equal(ps_watch_create(WORKERS, 1, 10 * SECOND, &watch, NULL), PSC_OK);
    assert_false(see(watch, 1, PSC_PROCESS_LIVES, 0, &why));
    assert_false(see(watch, 1, PSC_PROCESS_GONE, SECOND, &why));
    assert_false(see(watch, 1, PSC_PROCESS_GONE, SECOND + 499999, &why));
    assert_true(see(watch, 1, PSC_PROCESS_GONE, SECOND + 500000, &why));
    assert_int_equal(why, PS_WHY_GONE);
    assert_false(see(watch, 2, PSC_PROCESS_GONE, SECOND + 500000, &why));
    ps_watch_destroy(watch);
}

static void what_ended_one_that_is_gone_is_waited_for(void **unused)
{
    (void)unused;
    ps_watch_t *watch;
    ps_why_t why;
    ps_sight_t seen = {.state = PSC_PROCESS_GONE};
    assert_int_equal(ps_watch_create(WORKERS, 1, 10 * SECOND, &watch, NULL), PSC_OK);
    for (uint32_t worker = 0; worker < 2; worker++) {
        assert_false(ps_watch_see(watch, worker, &seen, SECOND, &why));
        assert_false(ps_watch_see(watch, worker, &seen, 6 * SECOND - 1, &why));
    }
    assert_true(ps_watch_see(watch, 0, &seen, 6 * SECOND, &why));
    assert_int_equal(why, PS_WHY_GONE);
    seen.told = true;
    assert_true(ps_watch_see(watch, 1, &seen, 6 * SECOND - 1, &why));
    assert_int_equal(why, PS_WHY_GONE);
    ps_watch_destroy(watch);
}

static void one_that_is_stopped_is_lost_when_it_does_not_go_on_in_time(void **unused)
{
    (void)unused;
    ps_watch_t *watch;
    ps_why_t why;
    assert_int_equal(ps_watch_create(WORKERS, 1, 10 * SECOND, &watch, NULL), PSC_OK);
    assert_false(see(watch, 0, PSC_PROCESS_STOPPED, SECOND, &why));
    assert_false(see(watch, 0, PSC_PROCESS_STOPPED, 10 * SECOND, &why));
    assert_false(see(watch, 0, PSC_PROCESS_LIVES, 10 * SECOND + 1, &why));
    assert_false(see(watch, 0, PSC_PROCESS_STOPPED, 12 * SECOND, &why));
    assert_false(see(watch, 0, PSC_PROCESS_STOPPED, 21 * SECOND, &why));
    assert_true(see(watch, 0, PSC_PROCESS_STOPPED, 22 * SECOND, &why));
    assert_int_equal(why, PS_WHY_STOPPED);
    ps_watch_destroy(watch);
    assert_int_equal(ps_watch_create(WORKERS, 1, 0, &watch, NULL), PSC_OK);
    assert_false(see(watch, 0, PSC_PROCESS_STOPPED, SECOND, &why));
    assert_false(see(watch, 0, PSC_PROCESS_STOPPED, 9999 * SECOND, &why));
    ps_watch_destroy(watch);
}

/* Looks at worker 0, of another machine, ten times a second for some seconds, while beats stand. */
static bool watch_seconds(ps_watch_t *watch, uint64_t beats, uint64_t *now_us, unsigned seconds,
                          ps_why_t *why)
{
    const ps_sight_t seen = {.state = PSC_PROCESS_ELSEWHERE, .beats = beats};
    for (unsigned i = 0; i < 10 * seconds; i++) {
        *now_us += SECOND / 10;
        if (ps_watch_see(watch, 0, &seen, *now_us, why))
            return true;
    }
    return false;
}

static void one_of_another_machine_is_lost_when_its_signs_of_life_cease(void **unused)
{
    (void)unused;
    ps_watch_t *watch;
    ps_why_t why;
    uint64_t now_us = SECOND;
    assert_int_equal(ps_watch_create(WORKERS, 1, 10 * SECOND, &watch, NULL), PSC_OK);
    assert_false(watch_seconds(watch, 0, &now_us, 100, &why)); /* it gives none */
    assert_false(watch_seconds(watch, 1, &now_us, 9, &why));
    assert_false(watch_seconds(watch, 2, &now_us, 9, &why));
    /* This server stood still itself: that counts little. */
    now_us += 3600 * SECOND;
    assert_false(watch_seconds(watch, 3, &now_us, 9, &why));
    now_us += 3600 * SECOND;
    assert_true(watch_seconds(watch, 3, &now_us, 2, &why));
    assert_int_equal(why, PS_WHY_SILENT);
    assert_false(see(watch, 1, PSC_PROCESS_ELSEWHERE, now_us, &why));
    ps_watch_destroy(watch);
    assert_int_equal(ps_watch_create(WORKERS, 1, 0, &watch, NULL), PSC_OK);
    assert_false(watch_seconds(watch, 1, &now_us, 1000, &why));
    ps_watch_destroy(watch);
}

static void why_one_is_lost_is_said_in_words(void **unused)
{
    (void)unused;
    assert_string_equal(ps_why_text(PS_WHY_GONE), "its process is gone");
    assert_string_equal(ps_why_text(PS_WHY_SILENT),
                        "its process gave no sign of life for too long");
    assert_string_equal(ps_why_text(PS_WHY_STOPPED), "its process stood still for too long");
}

static void all_servers_decide_on_the_furthest_that_any_knows(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    for (int round = 0; round < 100; round++) {
        ps_vote_t votes[SERVERS];
        ps_loss_t furthest = {0};
        for (uint32_t s = 0; s < SERVERS; s++) {
            votes[s] = (ps_vote_t){
                .worker = 2,
                .loss = {.clock = test_below(&random, 5), .progress = test_below(&random, 5)}};
            if (votes[s].loss.clock > furthest.clock)
                furthest.clock = votes[s].loss.clock;
            if (votes[s].loss.progress > furthest.progress)
                furthest.progress = votes[s].loss.progress;
        }
        ps_watch_t *watch;
        assert_int_equal(ps_watch_create(WORKERS, SERVERS, SECOND, &watch, NULL), PSC_OK);
        ps_loss_t loss = {0};
        uint32_t n = 0;
        bool came[SERVERS] = {false};
        while (n < SERVERS) {
            assert_false(ps_watch_decided(watch, 2, &loss));
            uint32_t s = (uint32_t)test_below(&random, SERVERS);
            assert_int_equal(ps_watch_voted(watch, 2, s), came[s]);
            ps_watch_vote(watch, s, &votes[s]); /* again, too */
            n += !came[s];
            came[s] = true;
        }
        assert_true(ps_watch_decided(watch, 2, &loss));
        assert_true(loss.clock == furthest.clock && loss.progress == furthest.progress);
        assert_false(ps_watch_decided(watch, 2, &loss));
        assert_false(ps_watch_decided(watch, 1, &loss));
        ps_vote_t foreign = {.worker = WORKERS};
        ps_watch_vote(watch, 0, &foreign);
        ps_watch_destroy(watch);
    }
}

static void memory_that_is_short_is_told(void **unused)
{
    (void)unused;
    for (unsigned long n = 1; n <= 3; n++) {
        ps_watch_t *watch = NULL;
        psc_alloc_fail_at(n);
        psc_status_t st = ps_watch_create(WORKERS, SERVERS, SECOND, &watch, NULL);
        psc_alloc_fail_at(0);
        assert_int_equal(st, PSC_NO_MEMORY);
        assert_null(watch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_is_gone_is_lost_half_a_second_later),
        cmocka_unit_test(what_ended_one_that_is_gone_is_waited_for),
        cmocka_unit_test(one_that_is_stopped_is_lost_when_it_does_not_go_on_in_time),
        cmocka_unit_test(one_of_another_machine_is_lost_when_its_signs_of_life_cease),
        cmocka_unit_test(why_one_is_lost_is_said_in_words),
        cmocka_unit_test(all_servers_decide_on_the_furthest_that_any_knows),
        cmocka_unit_test(memory_that_is_short_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
