/*
 * Signals as a wish to stop.
 */
#include "worker/train/stop.h"

#include "tests/support/cmocka.h"

#include <signal.h>

static void a_signal_is_seen_at_the_next_question_and_kills_nobody(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        psw_stop_t stop;
        psw_stop_init(&stop);
        psw_stop_poll(&stop);
        assert_false(psw_stop_requested(&stop));
        assert_int_equal(raise(signals[i]), 0);
        assert_false(psw_stop_requested(&stop));
        psw_stop_poll(&stop);
        assert_true(psw_stop_requested(&stop));
    }
}

static void one_that_asks_servers_for_a_checkpoint_is_none(void **state)
{
    (void)state;
    psw_stop_t stop;
    psw_stop_init(&stop);
    assert_int_equal(raise(SIGUSR1), 0);
    psw_stop_poll(&stop);
    assert_false(psw_stop_requested(&stop));
}

static void a_wait_ends_without_a_signal(void **state)
{
    (void)state;
    psw_stop_t stop;
    psw_stop_init(&stop);
    psw_stop_wait(&stop, 1000);
    assert_false(psw_stop_requested(&stop));
    psw_stop_request(&stop);
    assert_true(psw_stop_requested(&stop));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_is_seen_at_the_next_question_and_kills_nobody),
        cmocka_unit_test(one_that_asks_servers_for_a_checkpoint_is_none),
        cmocka_unit_test(a_wait_ends_without_a_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
