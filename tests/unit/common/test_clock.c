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

static void a_time_to_come_is_of_the_same_clock(void **state)
{
    (void)state;
    const uint64_t waits_us[] = {0, 1, 999999, 1000000, 1999999, UINT64_C(3600000001)};
    for (size_t i = 0; i < sizeof waits_us / sizeof waits_us[0]; i++) {
        const uint64_t before_us = psc_clock_us();
        const struct timespec time = psc_clock_after(waits_us[i]);
        const uint64_t after_us = psc_clock_us();
        const uint64_t us = (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_nsec / 1000u;
        assert_true(time.tv_nsec >= 0 && time.tv_nsec < 1000000000L);
        assert_true(us >= before_us + waits_us[i] && us <= after_us + waits_us[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_does_not_go_back),
        cmocka_unit_test(a_nap_lasts_at_least_its_time),
        cmocka_unit_test(a_time_to_come_is_of_the_same_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
