/* Memory files: who finds them, and what is refused. */
#include "common/memory_file.h"
#include "tests/support/cmocka.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };

static psc_memory_file_t create(void)
{
    psc_memory_file_t file;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_memory_file_create("words", BYTES, &file, &error), PSC_OK);
    return file;
}

static psc_status_t open_file(const char *what, const char *path, uint64_t key, bool write,
                              int *fd_out)
{
    uint64_t bytes = 0;
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = psc_memory_file_open(what, path, key, write, fd_out, &bytes, &error);
    assert_true(st == PSC_OK ? bytes == BYTES : error.message[0] != '\0');
    return st;
}

static void a_file_is_found_by_word_path_and_key(void **state)
{
    (void)state;
    psc_memory_file_t file = create(), other = create();
    int fd;
    uint8_t byte = 0;
    assert_int_equal(pwrite(file.fd, "w", 1, 77), 1);
    assert_int_equal(open_file("words", file.path, file.key, false, &fd), PSC_OK);
    assert_int_equal(pread(fd, &byte, 1, 77), 1);
    assert_int_equal(byte, 'w');
    assert_int_equal(pwrite(fd, "x", 1, 77), -1);
    (void)close(fd);
    assert_int_equal(open_file("words", file.path, file.key, true, &fd), PSC_OK);
    assert_int_equal(pwrite(fd, "x", 1, 77), 1);
    (void)close(fd);
    assert_true(file.key != other.key);
    assert_int_equal(open_file("words", file.path, other.key, false, &fd), PSC_NOT_FOUND);
    assert_int_equal(open_file("rows", file.path, file.key, false, &fd), PSC_NOT_FOUND);
    (void)close(file.fd);
    assert_int_equal(open_file("words", file.path, file.key, false, &fd), PSC_NOT_FOUND);
    (void)close(other.fd);
}

static void it_keeps_its_size(void **state)
{
    (void)state;
    psc_memory_file_t file = create();
    assert_int_equal(ftruncate(file.fd, BYTES - 1), -1);
    assert_int_equal(ftruncate(file.fd, BYTES + 1), -1);
    (void)close(file.fd);
    char path[PSC_MEMORY_PATH_MAX];
    int fd = memfd_create("embps-words-0000000000000001", MFD_CLOEXEC | MFD_ALLOW_SEALING), again;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(open_file("words", path, 1, false, &again), PSC_MISMATCH);
    (void)close(fd);
}

static void what_a_foreign_path_leads_to_is_not_opened(void **state)
{
    (void)state;
    char path[PSC_MEMORY_PATH_MAX];
    int pipes[2], fd;
    assert_int_equal(pipe(pipes), 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", pipes[0]);
    assert_int_equal(open_file("words", path, 1, true, &fd), PSC_NOT_FOUND);
    assert_int_equal(open_file("words", "/etc/passwd", 1, true, &fd), PSC_NOT_FOUND);
    assert_int_equal(open_file("words", "", 1, true, &fd), PSC_NOT_FOUND);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static void the_host_is_the_same_for_all_processes_on_it(void **state)
{
    (void)state;
    uint64_t host = psc_memory_host(), other = 0;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        other = psc_memory_host();
        _exit(write(pipes[1], &other, sizeof other) != sizeof other);
    }
    assert_int_equal(read(pipes[0], &other, sizeof other), sizeof other);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(host != 0);
    assert_int_equal(host, other);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_found_by_word_path_and_key),
        cmocka_unit_test(it_keeps_its_size),
        cmocka_unit_test(what_a_foreign_path_leads_to_is_not_opened),
        cmocka_unit_test(the_host_is_the_same_for_all_processes_on_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
