/* When a server says that ranks have not connected, and whom it names. */
#include "ps/start_watch.h"

#include "common/run_status.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <stdlib.h>

#define SECOND UINT64_C(1000000)

static void it_is_said_after_30_seconds_and_whenever_the_time_has_doubled(void **unused)
{
    (void)unused;
    ps_start_watch_t watch = ps_start_watch(5 * SECOND, 0);
    unsigned n = 0;
    uint64_t first_us = 0;
    for (uint64_t now_us = 5 * SECOND; now_us <= 1005 * SECOND; now_us += SECOND) {
        const ps_start_due_t due = ps_start_look(&watch, now_us);
        assert_int_not_equal(due, PS_START_END);
        if (due == PS_START_SAY && n++ == 0)
            first_us = now_us;
    }
    assert_int_equal(first_us, 35 * SECOND);
    assert_int_equal(n, 6); /* 30, 60, 120, 240, 480, 960 */
}

static void at_the_limit_it_is_over_and_it_was_said_before(void **unused)
{
    (void)unused;
    ps_start_watch_t watch = ps_start_watch(SECOND, 4 * SECOND);
    assert_int_equal(ps_start_look(&watch, SECOND), PS_START_NOTHING);
    assert_int_equal(ps_start_look(&watch, 3 * SECOND + 1), PS_START_SAY);
    assert_int_equal(ps_start_look(&watch, 4 * SECOND), PS_START_NOTHING);
    assert_int_equal(ps_start_look(&watch, 5 * SECOND), PS_START_END);
    watch = ps_start_watch(SECOND, 3600 * SECOND);
    assert_int_equal(ps_start_look(&watch, 31 * SECOND), PS_START_SAY);
    /* A thread that was kept waiting itself says it once. */
    assert_int_equal(ps_start_look(&watch, 2000 * SECOND), PS_START_SAY);
    assert_int_equal(ps_start_look(&watch, 2001 * SECOND), PS_START_NOTHING);
}

static int make_folder(void **state)
{
    *state = test_scratch_create();
    return setenv(PSC_STATUS_DIR_VARIABLE, *state, 1) | setenv("OMPI_COMM_WORLD_SIZE", "5", 1) |
           setenv(PSC_SERVERS_VARIABLE, "2", 1);
}

static int remove_folder(void **state)
{
    test_scratch_destroy(*state);
    return unsetenv(PSC_STATUS_DIR_VARIABLE) | unsetenv("OMPI_COMM_WORLD_SIZE") |
           unsetenv(PSC_SERVERS_VARIABLE);
}

static void assert_missing(const char *expected)
{
    char text[PS_START_TEXT_BYTES];
    ps_start_missing(text);
    assert_string_equal(text, expected);
}

static void workers_that_left_no_mark_are_named(void **state)
{
    (void)state;
    assert_missing("of 3 workers 0, 1, 2 have not connected");
    psc_run_status_come(0);
    psc_run_status_come(3);
    assert_missing("of 3 workers 0, 2 have not connected");
    psc_run_status_come(2);
    assert_missing("of 3 workers 2 has not connected");
    psc_run_status_come(4);
    assert_missing("not all of the 5 ranks have connected"); /* a server has not */
    assert_int_equal(setenv("OMPI_COMM_WORLD_SIZE", "2000", 1), 0);
    assert_missing("of 1998 workers 3, 4, 5, 6, 7, 8, 9, 10 and 1987 more have not connected");
}

static void without_the_script_nobody_can_be_named(void **state)
{
    (void)state;
    assert_int_equal(unsetenv(PSC_SERVERS_VARIABLE), 0);
    assert_missing("not all of the 5 ranks have connected");
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_said_after_30_seconds_and_whenever_the_time_has_doubled),
        cmocka_unit_test(at_the_limit_it_is_over_and_it_was_said_before),
        IN_FOLDER(workers_that_left_no_mark_are_named),
        IN_FOLDER(without_the_script_nobody_can_be_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
