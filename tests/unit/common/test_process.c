/* The abort hook: how a broken invariant stops every rank. */
#include "common/process.h"

#include "tests/support/cmocka.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

static void exit_with_hook(int exit_status)
{
    _exit(exit_status + 100);
}

static void return_from_hook(int exit_status)
{
    (void)exit_status;
}

/* Exit status of a child that sets hook and breaks an invariant or aborts. */
static int status_of_child(psc_abort_fn hook, bool bug)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(quiet, STDERR_FILENO);
        psc_process_set_abort(hook);
        if (!bug)
            psc_process_abort(PSC_IO);
        PSC_BUG_ON(bug);
        _exit(99);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void abort_exits_with_the_code(void **state)
{
    (void)state;
    assert_int_equal(status_of_child(NULL, false), PSC_IO);
}

static void abort_calls_the_hook_with_the_code(void **state)
{
    (void)state;
    assert_int_equal(status_of_child(exit_with_hook, false), PSC_IO + 100);
}

static void abort_does_not_return_from_a_hook_that_does(void **state)
{
    (void)state;
    assert_int_equal(status_of_child(return_from_hook, false), PSC_IO);
}

static void a_broken_invariant_calls_the_hook_with_internal(void **state)
{
    (void)state;
    assert_int_equal(status_of_child(exit_with_hook, true), PSC_INTERNAL + 100);
    PSC_BUG_ON(1 + 1 == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_exits_with_the_code),
        cmocka_unit_test(abort_calls_the_hook_with_the_code),
        cmocka_unit_test(abort_does_not_return_from_a_hook_that_does),
        cmocka_unit_test(a_broken_invariant_calls_the_hook_with_internal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
