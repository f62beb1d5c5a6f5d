/* What is printed and cannot be written is an error, however little it was. */
#include "common/output.h"

#include "tests/support/cmocka.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exit status of a program that prints a text to that file, may ask on the way, and ends with that
 * status. */
static int end_of(const char *path, const char *text, bool on_the_way, int status)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const int file = open(path, O_WRONLY | O_CLOEXEC);
        const int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
        (void)dup2(file, STDOUT_FILENO);
        (void)dup2(quiet, STDERR_FILENO);
        (void)fputs(text, stdout);
        if (on_the_way && psc_output_flush(NULL) != PSC_OK)
            (void)fputs("the rest", stdout);
        _exit(psc_output_end(status));
    }
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended));
    return WEXITSTATUS(ended);
}

static void what_cannot_be_written_is_an_error_at_the_end(void **state)
{
    (void)state;
    assert_int_equal(end_of("/dev/full", "text\n", false, 0), PSC_DISK_FULL);
    assert_int_not_equal(end_of("/dev/full", "text\n", true, 0), 0);
    assert_int_equal(end_of("/dev/full", "text\n", false, 7), 7); /* what was wrong before */
}

static void what_can_be_written_or_was_never_printed_is_none(void **state)
{
    (void)state;
    assert_int_equal(end_of("/dev/null", "text\n", false, 0), 0);
    assert_int_equal(end_of("/dev/null", "text\n", true, 3), 3);
    assert_int_equal(end_of("/dev/full", "", true, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_written_is_an_error_at_the_end),
        cmocka_unit_test(what_can_be_written_or_was_never_printed_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
