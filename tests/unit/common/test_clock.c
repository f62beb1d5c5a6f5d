/* Monotonic time. */
#include "common/clock.h"

#include "tests/support/cmocka.h"

static void time_does_not_go_back(void **state)
{
    (void)state;
    uint64_t last = psc_clock_us();
    for (int i = 0; i < 100000; i++) {
        uint64_t now = psc_clock_us();
        assert_true(now >= last);
        last = now;
    }
}

static void a_nap_lasts_at_least_its_time(void **state)
{
    (void)state;
    uint64_t start = psc_clock_us();
    psc_clock_sleep_us(3000);
    uint64_t slept = psc_clock_us() - start;
    assert_true(slept >= 3000);
    assert_true(slept < 5000000); /* microseconds, not milliseconds */
    psc_clock_sleep_us(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_does_not_go_back),
        cmocka_unit_test(a_nap_lasts_at_least_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
