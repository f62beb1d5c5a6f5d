/* When a worker is taken for lost; all servers come to the same from votes in any order. */
#include "ps/watch.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

enum { WORKERS = 3, SERVERS = 4 };
#define SECOND UINT64_C(1000000)

static void one_that_is_gone_is_lost_half_a_second_later(void **unused)
{
    (void)unused;
    ps_watch_t *watch;
    ps_why_t why;
    assert_int_equal(ps_watch_create(WORKERS, 1, 10 * SECOND, &watch, NULL), PSC_OK);
    assert_false(ps_watch_see(watch, 1, PSC_PROCESS_LIVES, 0, &why));
    assert_false(ps_watch_see(watch, 1, PSC_PROCESS_GONE, SECOND, &why));
    assert_false(ps_watch_see(watch, 1, PSC_PROCESS_GONE, SECOND + 499999, &why));
    assert_true(ps_watch_see(watch, 1, PSC_PROCESS_GONE, SECOND + 500000, &why));
    assert_int_equal(why, PS_WHY_GONE);
    assert_false(ps_watch_see(watch, 2, PSC_PROCESS_GONE, SECOND + 500000, &why));
    ps_watch_destroy(watch);
}

static void one_that_is_stopped_is_lost_when_it_does_not_go_on_in_time(void **unused)
{
    (void)unused;
    ps_watch_t *watch;
    ps_why_t why;
    assert_int_equal(ps_watch_create(WORKERS, 1, 10 * SECOND, &watch, NULL), PSC_OK);
    assert_false(ps_watch_see(watch, 0, PSC_PROCESS_STOPPED, SECOND, &why));
    assert_false(ps_watch_see(watch, 0, PSC_PROCESS_STOPPED, 10 * SECOND, &why));
    assert_false(ps_watch_see(watch, 0, PSC_PROCESS_LIVES, 10 * SECOND + 1, &why));
    assert_false(ps_watch_see(watch, 0, PSC_PROCESS_STOPPED, 12 * SECOND, &why));
    assert_false(ps_watch_see(watch, 0, PSC_PROCESS_STOPPED, 21 * SECOND, &why));
    assert_true(ps_watch_see(watch, 0, PSC_PROCESS_STOPPED, 22 * SECOND, &why));
    assert_int_equal(why, PS_WHY_STOPPED);
    ps_watch_destroy(watch);
    assert_int_equal(ps_watch_create(WORKERS, 1, 0, &watch, NULL), PSC_OK);
    assert_false(ps_watch_see(watch, 0, PSC_PROCESS_STOPPED, SECOND, &why));
    assert_false(ps_watch_see(watch, 0, PSC_PROCESS_STOPPED, 9999 * SECOND, &why));
    ps_watch_destroy(watch);
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
        cmocka_unit_test(one_that_is_stopped_is_lost_when_it_does_not_go_on_in_time),
        cmocka_unit_test(all_servers_decide_on_the_furthest_that_any_knows),
        cmocka_unit_test(memory_that_is_short_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
