/* The status record of a rank. */
#include "common/run_status.h"

#include "common/alloc.h"
#include "common/file.h"

#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_SIZE = 512 };

static int make_folder(void **state)
{
    *state = test_scratch_create();
    return setenv(PSC_STATUS_DIR_VARIABLE, *state, 1);
}

static int remove_folder(void **state)
{
    test_scratch_destroy(*state);
    return unsetenv(PSC_STATUS_DIR_VARIABLE);
}

static void assert_record_is(const char *folder, const char *name, const char *expected)
{
    char path[PATH_SIZE];
    char *bytes = NULL;
    size_t size = 0;
    test_path(path, sizeof path, folder, name);
    assert_int_equal(psc_file_read(path, 4096, &bytes, &size, NULL), PSC_OK);
    assert_string_equal(bytes, expected);
    psc_free(bytes);
}

static void a_record_is_code_tab_message(void **state)
{
    psc_run_status_write("server", 12, PSC_DISK_FULL, "cannot write /data: No space left");
    psc_run_status_write("worker", 0, PSC_OK, "");
    assert_record_is(*state, "server-12", "41\tcannot write /data: No space left\n");
    assert_record_is(*state, "worker-0", "0\t\n");
    assert_int_equal(test_count_entries(*state), 2);
}

static void the_last_record_counts(void **state)
{
    psc_run_status_write("worker", 3, PSC_OK, "done");
    psc_run_status_write("worker", 3, PSC_IO, "gone wrong after all");
    assert_record_is(*state, "worker-3", "40\tgone wrong after all\n");
}

static void a_message_stays_one_line_of_bounded_length(void **state)
{
    char message[2000];
    memset(message, 'm', sizeof message);
    message[0] = 'a';
    message[1] = '\n';
    message[2] = '\t';
    message[sizeof message - 1] = '\0';
    psc_run_status_write("worker", 1, PSC_IO, message);
    char path[PATH_SIZE];
    char *bytes = NULL;
    size_t size = 0;
    test_path(path, sizeof path, *state, "worker-1");
    assert_int_equal(psc_file_read(path, 4096, &bytes, &size, NULL), PSC_OK);
    assert_int_equal(strncmp(bytes, "40\ta  mmm", 9), 0);
    assert_ptr_equal(strchr(bytes, '\n'), bytes + size - 1);
    assert_in_range(size, 488, 1000); /* a psc_error_t's message fits */
    psc_free(bytes);
}

static void a_job_that_began_is_marked_and_may_be_one_that_recovers(void **state)
{
    psc_run_status_begin();
    assert_record_is(*state, "running", "\n");
    assert_int_equal(test_count_entries(*state), 1);
    assert_int_equal(unsetenv(PSC_RECOVERY_VARIABLE), 0);
    assert_false(psc_run_recovers());
    assert_int_equal(setenv(PSC_RECOVERY_VARIABLE, "", 1), 0);
    assert_false(psc_run_recovers());
    assert_int_equal(setenv(PSC_RECOVERY_VARIABLE, "1", 1), 0);
    assert_true(psc_run_recovers());
    assert_false(psc_run_recovers_hosts());
    assert_int_equal(setenv(PSC_RECOVERY_VARIABLE, PSC_RECOVERY_HOSTS, 1), 0);
    assert_true(psc_run_recovers());
    assert_true(psc_run_recovers_hosts());
    assert_int_equal(unsetenv(PSC_RECOVERY_VARIABLE), 0);
}

static void write_end(const char *folder, const char *name, const char *text)
{
    char path[PATH_SIZE];
    test_path(path, sizeof path, folder, name);
    assert_int_equal(psc_file_write(path, text, strlen(text), NULL), PSC_OK);
}

static void the_end_of_another_rank_is_known_by_its_host(void **state)
{
    int number = -1;
    assert_false(psc_run_status_ended("worker", 2, &number));
    assert_int_equal(number, 0);
    write_end(*state, "ended-worker-2", "9\n");
    write_end(*state, "ended-server-0", "0\n");
    write_end(*state, "ended-server-1", "");
    write_end(*state, "ended-server-2", "99999999999999999999\n");
    assert_true(psc_run_status_ended("worker", 2, &number));
    assert_int_equal(number, 9);
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_true(psc_run_status_ended("server", rank, &number));
        assert_int_equal(number, 0);
    }
    assert_false(psc_run_status_ended("worker", 0, &number));
}

static void a_rank_that_came_is_known_to_have(void **state)
{
    assert_false(psc_run_status_came(7));
    psc_run_status_come(7);
    assert_record_is(*state, "came-7", "\n");
    assert_true(psc_run_status_came(7));
    assert_false(psc_run_status_came(17));
}

static void without_the_variable_nothing_is_written(void **state)
{
    assert_int_equal(unsetenv(PSC_STATUS_DIR_VARIABLE), 0);
    psc_run_status_write("worker", 1, PSC_IO, "x");
    assert_int_equal(setenv(PSC_STATUS_DIR_VARIABLE, "", 1), 0);
    psc_run_status_write("worker", 1, PSC_IO, "x");
    assert_int_equal(test_count_entries(*state), 0);
    write_end(*state, "ended-worker-1", "9\n");
    write_end(*state, "came-1", "\n");
    assert_false(psc_run_status_came(1));
    int number;
    assert_false(psc_run_status_ended("worker", 1, &number));
}

static void a_folder_that_is_missing_is_survived(void **state)
{
    char path[PATH_SIZE];
    char long_path[5000];
    assert_int_equal(setenv(PSC_STATUS_DIR_VARIABLE, test_path(path, sizeof path, *state, "no"), 1),
                     0);
    psc_run_status_write("worker", 1, PSC_IO, "x");
    memset(long_path, 'p', sizeof long_path);
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(setenv(PSC_STATUS_DIR_VARIABLE, long_path, 1), 0);
    psc_run_status_write("worker", 1, PSC_IO, "x");
    assert_int_equal(test_count_entries(*state), 0);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_record_is_code_tab_message),
        IN_FOLDER(the_last_record_counts),
        IN_FOLDER(a_message_stays_one_line_of_bounded_length),
        IN_FOLDER(a_job_that_began_is_marked_and_may_be_one_that_recovers),
        IN_FOLDER(the_end_of_another_rank_is_known_by_its_host),
        IN_FOLDER(a_rank_that_came_is_known_to_have),
        IN_FOLDER(without_the_variable_nothing_is_written),
        IN_FOLDER(a_folder_that_is_missing_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
