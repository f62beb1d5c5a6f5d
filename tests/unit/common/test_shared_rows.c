/* Memory files: who finds them, and what is refused. */
#include "common/shared_rows.h"
#include "tests/support/cmocka.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROWS_BYTES ((uint64_t)64 << 20)

static psc_shared_file_t create(void)
{
    psc_shared_file_t file;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_shared_create(ROWS_BYTES, &file, &error), PSC_OK);
    return file;
}

static void a_file_is_found_by_path_and_key(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    psc_shared_file_t file = create();
    psc_shared_map_t map;
    assert_int_equal(psc_shared_open(file.path, file.control->key, &map, &error), PSC_OK);
    assert_int_equal(map.rows_bytes, ROWS_BYTES);
    assert_int_equal(psc_shared_clock(&map), 0);
    psc_shared_set_clock(file.control, 9);
    assert_int_equal(psc_shared_clock(&map), 9);
    uint8_t byte = 77;
    assert_int_equal(pwrite(file.fd, &byte, 1, (off_t)file.control->rows_offset + 160), 1);
    assert_int_equal(*(const uint8_t *)psc_shared_row(&map, 10), 77);
    psc_shared_unmap(&map);
    psc_shared_destroy(&file);
    psc_shared_destroy(&file);
}

static void the_key_decides_which_file_it_is(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    psc_shared_file_t file = create();
    psc_shared_file_t other = create();
    psc_shared_map_t map;
    assert_true(file.control->key != other.control->key);
    assert_int_equal(psc_shared_open(other.path, file.control->key, &map, &error), PSC_NOT_FOUND);
    psc_shared_destroy(&other);
    psc_shared_destroy(&file);
}

/* A descriptor of ours as a reader would be told of it. */
static void path_of(int fd, char path_out[PSC_SHARED_PATH_MAX])
{
    (void)snprintf(path_out, PSC_SHARED_PATH_MAX, "/proc/self/fd/%d", fd);
}

static void what_a_foreign_path_leads_to_is_not_opened(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    psc_shared_map_t map;
    char path[PSC_SHARED_PATH_MAX];
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    path_of(pipes[0], path);
    assert_int_equal(psc_shared_open(path, 1, &map, &error), PSC_NOT_FOUND);
    assert_int_equal(psc_shared_open("/proc/self/fd/1000000", 1, &map, &error), PSC_NOT_FOUND);
    assert_int_equal(psc_shared_open("/etc/passwd", 1, &map, &error), PSC_NOT_FOUND);
    assert_int_equal(psc_shared_open("", 1, &map, &error), PSC_NOT_FOUND);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static void a_file_that_could_shrink_or_says_something_else_is_refused(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    psc_shared_map_t map;
    char path[PSC_SHARED_PATH_MAX];
    int fd = memfd_create("embps-rows-0000000000000001", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    path_of(fd, path);
    assert_int_equal(ftruncate(fd, 4 << 20), 0);
    assert_int_equal(psc_shared_open(path, 1, &map, &error), PSC_MISMATCH);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(psc_shared_open(path, 1, &map, &error), PSC_MISMATCH);
    (void)close(fd);
    fd = memfd_create("embps-rows-0000000000000002", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    path_of(fd, path);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_int_equal(psc_shared_open(path, 2, &map, &error), PSC_MISMATCH); /* it is empty */
    (void)close(fd);
}

static void a_control_block_that_claims_more_rows_than_the_file_has_is_refused(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    psc_shared_file_t file = create();
    psc_shared_map_t map;
    file.control->rows_bytes = UINT64_MAX - 5;
    assert_int_equal(psc_shared_open(file.path, file.control->key, &map, &error), PSC_MISMATCH);
    file.control->rows_bytes = ROWS_BYTES;
    file.control->rows_offset = 4096;
    assert_int_equal(psc_shared_open(file.path, file.control->key, &map, &error), PSC_MISMATCH);
    psc_shared_destroy(&file);
}

static void places_outside_of_the_region_hold_nothing(void **state)
{
    (void)state;
    psc_shared_map_t map = {.rows_bytes = 1024};
    assert_false(psc_shared_holds(&map, 0, 0));
    assert_true(psc_shared_holds(&map, 1, 1024 - 16 - 32));
    assert_false(psc_shared_holds(&map, 1, 1024 - 16 - 31));
    assert_false(psc_shared_holds(&map, UINT32_MAX, 4));
    assert_false(psc_shared_holds(&map, 63, 4));
}

/* A process that makes a file, tells where, waits for a byte and is killed. */
static pid_t start_maker(int to_test[2])
{
    assert_int_equal(pipe(to_test), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid != 0)
        return pid;
    psc_shared_file_t file;
    if (psc_shared_create(ROWS_BYTES, &file, NULL) != PSC_OK ||
        write(to_test[1], &file.control->key, sizeof file.control->key) < 0 ||
        write(to_test[1], file.path, sizeof file.path) < 0)
        _exit(1);
    for (;;)
        (void)pause();
}

static void a_map_stays_readable_when_its_maker_is_killed(void **state)
{
    (void)state;
    int pipes[2];
    uint64_t key;
    char path[PSC_SHARED_PATH_MAX];
    psc_error_t error = PSC_ERROR_INIT;
    psc_shared_map_t map;
    pid_t pid = start_maker(pipes);
    assert_int_equal(read(pipes[0], &key, sizeof key), sizeof key);
    assert_int_equal(read(pipes[0], path, sizeof path), sizeof path);
    assert_int_equal(psc_shared_open(path, key, &map, &error), PSC_OK);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_false(psc_shared_is_closed(&map));
    assert_int_equal(psc_shared_row(&map, 10)->id, 0);
    psc_shared_unmap(&map);
    assert_int_equal(psc_shared_open(path, key, &map, &error), PSC_NOT_FOUND);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_found_by_path_and_key),
        cmocka_unit_test(the_key_decides_which_file_it_is),
        cmocka_unit_test(what_a_foreign_path_leads_to_is_not_opened),
        cmocka_unit_test(a_file_that_could_shrink_or_says_something_else_is_refused),
        cmocka_unit_test(a_control_block_that_claims_more_rows_than_the_file_has_is_refused),
        cmocka_unit_test(places_outside_of_the_region_hold_nothing),
        cmocka_unit_test(a_map_stays_readable_when_its_maker_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
