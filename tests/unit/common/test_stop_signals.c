/*
 * Which signals ask a program to end.
 */
#include "common/stop_signals.h"

#include "tests/support/cmocka.h"

#include <stddef.h>

static void a_hangup_is_one_unless_it_is_ignored(void **state)
{
    static const int always[] = {SIGINT, SIGTERM, SIGUSR2};
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t set;
    (void)state;
    (void)sigemptyset(&action.sa_mask);
    for (int ignored = 0; ignored < 2; ignored++) {
        action.sa_handler = ignored != 0 ? SIG_IGN : SIG_DFL;
        assert_int_equal(sigaction(SIGHUP, &action, NULL), 0);
        psc_stop_signals(&set);
        for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
            assert_int_equal(sigismember(&set, always[i]), 1);
        assert_int_equal(sigismember(&set, SIGHUP), ignored == 0);
        assert_int_equal(sigismember(&set, SIGUSR1), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hangup_is_one_unless_it_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
