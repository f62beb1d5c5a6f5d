/* Whole files: all or nothing, whatever goes wrong. */
#include "common/file.h"

#include "common/alloc.h"

#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_SIZE = 512, SKIPPED = 77 };

static int make_folder(void **state)
{
    *state = test_scratch_create();
    return 0;
}

static int remove_folder(void **state)
{
    test_scratch_destroy(*state);
    return 0;
}

static void assert_file_is(const char *path, const char *expected)
{
    char *bytes = NULL;
    size_t size = 0;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_file_read(path, 1 << 20, &bytes, &size, &error), PSC_OK);
    assert_int_equal(size, strlen(expected));
    assert_string_equal(bytes, expected);
    psc_free(bytes);
}

static void write_text(const char *path, const char *text)
{
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_file_write(path, text, strlen(text), &error), PSC_OK);
}

static void what_was_written_is_read(void **state)
{
    char path[PATH_SIZE];
    test_path(path, sizeof path, *state, "f");
    static const size_t sizes[] = {0, 1, 65535, 65536, 65537, 300000};
    static char bytes[300000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7 + i / 256);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psc_file_write(path, bytes, sizes[i], &error), PSC_OK);
        char *read = NULL;
        size_t size = 0;
        assert_int_equal(psc_file_read(path, sizes[i], &read, &size, &error), PSC_OK);
        assert_int_equal(size, sizes[i]);
        assert_memory_equal(read, bytes, size);
        assert_int_equal(read[size], 0);
        psc_free(read);
    }
    assert_int_equal(test_count_entries(*state), 1);
}

static void the_target_is_untouched_until_commit(void **state)
{
    char path[PATH_SIZE];
    test_path(path, sizeof path, *state, "f");
    write_text(path, "old");
    psc_outfile_t *out = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_outfile_open(path, &out, &error), PSC_OK);
    assert_true(fputs("new", psc_outfile_stream(out)) >= 0);
    assert_int_equal(fflush(psc_outfile_stream(out)), 0);
    assert_file_is(path, "old");
    assert_int_equal(psc_outfile_commit(out, &error), PSC_OK);
    assert_file_is(path, "new");
    assert_int_equal(test_count_entries(*state), 1);
}

static void abort_leaves_nothing(void **state)
{
    char path[PATH_SIZE];
    test_path(path, sizeof path, *state, "f");
    psc_outfile_t *out = NULL;
    assert_int_equal(psc_outfile_open(path, &out, NULL), PSC_OK);
    assert_true(fputs("new", psc_outfile_stream(out)) >= 0);
    assert_int_equal(test_count_entries(*state), 1);
    psc_outfile_abort(out);
    psc_outfile_abort(NULL);
    assert_int_equal(test_count_entries(*state), 0);
}

static void the_mode_follows_the_umask(void **state)
{
    char path[PATH_SIZE];
    test_path(path, sizeof path, *state, "f");
    mode_t old = umask(027);
    write_text(path, "x");
    (void)umask(old);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
}

static void a_symbolic_link_stays_and_its_file_is_replaced(void **state)
{
    char path[PATH_SIZE];
    char link_path[PATH_SIZE];
    test_path(path, sizeof path, *state, "f");
    test_path(link_path, sizeof link_path, *state, "link");
    write_text(path, "old");
    assert_int_equal(symlink("f", link_path), 0);
    write_text(link_path, "new");
    assert_file_is(path, "new");
    struct stat info;
    assert_int_equal(lstat(link_path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
}

static void a_long_name_is_possible(void **state)
{
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    char path[PATH_SIZE];
    write_text(test_path(path, sizeof path, *state, name), "x");
    assert_file_is(path, "x");
}

static void a_name_without_a_folder_is_in_the_current_one(void **state)
{
    char *old = getcwd(NULL, 0);
    assert_non_null(old);
    assert_int_equal(chdir(*state), 0);
    write_text("plain", "x");
    assert_file_is("plain", "x");
    assert_int_equal(chdir(old), 0);
    free(old);
    assert_int_equal(test_count_entries(*state), 1);
}

static void a_dash_is_no_file(void **state)
{
    char path[PATH_SIZE];
    psc_outfile_t *out = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_outfile_open("-", &out, &error), PSC_INVALID_ARGUMENT);
    assert_null(out);
    assert_non_null(strstr(error.message, "/dev/stdout"));
    assert_int_equal(psc_file_write("-", "x", 1, NULL), PSC_INVALID_ARGUMENT);
    write_text(test_path(path, sizeof path, *state, "-"), "x"); /* in a folder it is one */
    assert_file_is(path, "x");
    assert_true(psc_file_is_stdout("/dev/stdout") && psc_file_is_stdout("/dev/fd/1"));
    assert_false(psc_file_is_stdout("/dev/stderr") || psc_file_is_stdout("stdout"));
}

static void impossible_places_are_told_at_open(void **state)
{
    char path[PATH_SIZE];
    char missing[PATH_SIZE];
    char below_file[PATH_SIZE];
    write_text(test_path(path, sizeof path, *state, "f"), "x");
    test_path(missing, sizeof missing, *state, "no/such");
    test_path(below_file, sizeof below_file, *state, "f/g");
    const struct {
        const char *path;
        psc_status_t code;
        const char *reason;
    } cases[] = {
        {missing, PSC_NOT_FOUND, "No such file or directory"},
        {below_file, PSC_IO, "Not a directory"},
        {*state, PSC_IO, "Is a directory"},
        {"", PSC_NOT_FOUND, "No such file or directory"},
        {"/dev/fd/777", PSC_IO, "Bad file descriptor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        psc_outfile_t *out = NULL;
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psc_outfile_open(cases[i].path, &out, &error), cases[i].code);
        assert_null(out);
        char expected[PATH_SIZE + 64];
        (void)snprintf(expected, sizeof expected, "cannot write %s: %s", cases[i].path,
                       cases[i].reason);
        assert_string_equal(error.message, expected);
    }
    assert_int_equal(test_count_entries(*state), 1);
}

/* Runs body in a child; when it is root, as nobody, whom permissions bind. Returns its exit status.
 */
static int run_child(int (*body)(const char *folder), const char *folder)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(SKIPPED);
        _exit(body(folder));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int try_unwritable(const char *folder)
{
    char path[PATH_SIZE];
    psc_outfile_t *out = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    test_path(path, sizeof path, folder, "sub/new");
    if (psc_outfile_open(path, &out, &error) != PSC_IO ||
        strstr(error.message, "Permission denied") == NULL)
        return 1;
    test_path(path, sizeof path, folder, "readonly");
    if (psc_outfile_open(path, &out, &error) != PSC_IO ||
        strstr(error.message, "Permission denied") == NULL)
        return 2;
    return 0;
}

static void unwritable_folder_and_file_are_refused(void **state)
{
    char path[PATH_SIZE];
    assert_int_equal(chmod(*state, 0777), 0);
    assert_int_equal(mkdir(test_path(path, sizeof path, *state, "sub"), 0555), 0);
    write_text(test_path(path, sizeof path, *state, "readonly"), "x");
    assert_int_equal(chmod(path, 0444), 0);
    int status = run_child(try_unwritable, *state);
    if (status == SKIPPED)
        skip();
    assert_int_equal(status, 0);
    assert_file_is(path, "x");
}

static void a_full_device_is_disk_full(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_file_write("/dev/full", "x", 1, &error), PSC_DISK_FULL);
    assert_string_equal(error.message, "cannot write /dev/full: No space left on device");

    /* The write that failed is long past when commit comes. */
    psc_outfile_t *out = NULL;
    assert_int_equal(psc_outfile_open("/dev/full", &out, &error), PSC_OK);
    for (int i = 0; i < 300000; i++)
        (void)fputs("line\n", psc_outfile_stream(out));
    error = (psc_error_t)PSC_ERROR_INIT;
    assert_int_equal(psc_outfile_commit(out, &error), PSC_DISK_FULL);
    assert_string_equal(error.message, "cannot write /dev/full: No space left on device");
}

static int try_over_the_limit(const char *folder)
{
    char path[PATH_SIZE];
    static char bytes[200000];
    psc_error_t error = PSC_ERROR_INIT;
    (void)signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {100000, 100000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 1;
    test_path(path, sizeof path, folder, "f");
    psc_status_t st = psc_file_write(path, bytes, sizeof bytes, &error);
    return st == PSC_IO && strstr(error.message, "File too large") != NULL ? 0 : 2;
}

static void a_write_that_fails_half_way_leaves_the_old_file(void **state)
{
    char path[PATH_SIZE];
    assert_int_equal(chmod(*state, 0777), 0);
    write_text(test_path(path, sizeof path, *state, "f"), "old");
    assert_int_equal(chmod(path, 0666), 0);
    int status = run_child(try_over_the_limit, *state);
    if (status == SKIPPED)
        skip();
    assert_int_equal(status, 0);
    assert_file_is(path, "old");
    assert_int_equal(test_count_entries(*state), 1);
}

static int die_while_writing(const char *folder)
{
    char path[PATH_SIZE];
    psc_outfile_t *out = NULL;
    test_path(path, sizeof path, folder, "f");
    if (psc_outfile_open(path, &out, NULL) != PSC_OK)
        return 1;
    (void)fputs("half", psc_outfile_stream(out));
    (void)fflush(psc_outfile_stream(out));
    (void)raise(SIGKILL);
    return 2;
}

static void a_killed_writer_leaves_no_half_file(void **state)
{
    char path[PATH_SIZE];
    assert_int_equal(chmod(*state, 0777), 0);
    int status = run_child(die_while_writing, *state);
    if (status == SKIPPED)
        skip();
    assert_int_equal(status, 1000 + SIGKILL);
    assert_int_equal(access(test_path(path, sizeof path, *state, "f"), F_OK), -1);

    write_text(path, "old");
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(run_child(die_while_writing, *state), 1000 + SIGKILL);
    assert_file_is(path, "old");
}

static void a_pipe_is_written_directly(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    char path[64];
    (void)snprintf(path, sizeof path, "/dev/fd/%d", ends[1]);
    write_text(path, "through");
    char got[16] = "";
    assert_int_equal(read(ends[0], got, sizeof got - 1), 7);
    assert_string_equal(got, "through");
    assert_int_equal(close(ends[0]), 0);
    assert_int_equal(close(ends[1]), 0); /* ours is still open, and is still ours */
}

static void a_descriptor_of_a_file_is_written_where_it_stands(void **state)
{
    char path[PATH_SIZE];
    test_path(path, sizeof path, *state, "f");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "first ", 6), 6);
    char name[64];
    (void)snprintf(name, sizeof name, "/dev/fd/%d", fd);
    write_text(name, "second ");
    assert_int_equal(write(fd, "third", 5), 5);
    assert_int_equal(close(fd), 0);
    assert_file_is(path, "first second third");
    assert_int_equal(test_count_entries(*state), 1);
}

static void reading_tells_what_is_wrong(void **state)
{
    char path[PATH_SIZE];
    char *bytes = NULL;
    size_t size = 0;
    psc_error_t error = PSC_ERROR_INIT;
    test_path(path, sizeof path, *state, "f");
    assert_int_equal(psc_file_read(path, 10, &bytes, &size, &error), PSC_NOT_FOUND);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(psc_file_read(*state, 10, &bytes, &size, &error), PSC_IO);
    write_text(path, "12345678901");
    assert_int_equal(psc_file_read(path, 10, &bytes, &size, &error), PSC_CORRUPT);
    assert_non_null(strstr(error.message, "larger than 10 bytes"));
    assert_int_equal(psc_file_read("/dev/zero", 100000, &bytes, &size, &error), PSC_CORRUPT);
    assert_int_equal(psc_file_read(path, 0, &bytes, &size, &error), PSC_CORRUPT);
    assert_null(bytes);
    assert_int_equal(psc_file_read("/dev/null", 0, &bytes, &size, &error), PSC_OK);
    assert_int_equal(size, 0);
    assert_string_equal(bytes, "");
    psc_free(bytes);
}

static void a_file_of_unknown_size_is_read_whole(void **state)
{
    (void)state;
    char *bytes = NULL;
    size_t size = 0;
    psc_error_t error = PSC_ERROR_INIT;
    /* /proc files say they are empty. */
    assert_int_equal(psc_file_read("/proc/self/status", SIZE_MAX, &bytes, &size, &error), PSC_OK);
    assert_true(size > 100);
    assert_non_null(strstr(bytes, "VmRSS"));
    psc_free(bytes);
}

static void every_failed_allocation_is_an_error_and_leaves_nothing(void **state)
{
    char path[PATH_SIZE];
    test_path(path, sizeof path, *state, "f");
    unsigned long n = 1;
    for (;; n++) {
        psc_error_t error = PSC_ERROR_INIT;
        psc_alloc_fail_at(n);
        psc_status_t st = psc_file_write(path, "x", 1, &error);
        psc_alloc_fail_at(0);
        if (st == PSC_OK)
            break;
        assert_int_equal(st, PSC_NO_MEMORY);
        assert_non_null(strstr(error.message, path));
        assert_int_equal(test_count_entries(*state), 0);
    }
    assert_true(n > 3);
    char *bytes = NULL;
    size_t size = 0;
    psc_alloc_fail_at(1);
    psc_status_t st = psc_file_read(path, 10, &bytes, &size, NULL);
    psc_alloc_fail_at(0);
    assert_int_equal(st, PSC_NO_MEMORY);
}

static void a_folder_can_be_synced_and_a_missing_one_cannot(void **state)
{
    char path[PATH_SIZE];
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_file_sync_dir(*state, &error), PSC_OK);
    test_path(path, sizeof path, *state, "none");
    assert_int_equal(psc_file_sync_dir(path, &error), PSC_NOT_FOUND);
    assert_non_null(strstr(error.message, path));
}

static void who_gives_up_says_which_file_could_not_be_written(void **state)
{
    static char bytes[1 << 20];
    psc_outfile_t *out = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    char path[PATH_SIZE];
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(psc_outfile_open("/dev/full", &out, &error), PSC_OK);
    assert_true(fwrite(bytes, 1, sizeof bytes, psc_outfile_stream(out)) < sizeof bytes);
    assert_int_equal(psc_error_set(&error, PSC_IO, "cannot write rows"), PSC_IO);
    assert_int_equal(psc_outfile_give_up(out, PSC_IO, &error), PSC_DISK_FULL);
    assert_string_equal(error.message, "cannot write /dev/full: No space left on device");
    /* Where the file is well, what was said stays. */
    test_path(path, sizeof path, *state, "f");
    assert_int_equal(psc_outfile_open(path, &out, &error), PSC_OK);
    assert_int_equal(psc_error_set(&error, PSC_TIMEOUT, "no answer"), PSC_TIMEOUT);
    assert_int_equal(psc_outfile_give_up(out, PSC_TIMEOUT, &error), PSC_TIMEOUT);
    assert_string_equal(error.message, "no answer");
    assert_int_equal(test_count_entries(*state), 0);
}

static void the_folder_that_a_path_is_in_can_be_synced(void **state)
{
    char path[PATH_SIZE], below[PATH_SIZE];
    psc_error_t error = PSC_ERROR_INIT;
    test_path(path, sizeof path, *state, "none");
    assert_int_equal(psc_file_sync_parent(path, &error), PSC_OK);
    (void)snprintf(below, sizeof below, "%.400s//", path);
    assert_int_equal(psc_file_sync_parent(below, &error), PSC_OK);
    (void)snprintf(below, sizeof below, "%.400s/below/", path);
    assert_int_equal(psc_file_sync_parent(below, &error), PSC_NOT_FOUND);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(psc_file_sync_parent("name", &error), PSC_OK);
    assert_int_equal(psc_file_sync_parent("/", &error), PSC_OK);
}

static void a_folder_is_removed_with_all_in_it_and_not_what_its_links_name(void **state)
{
    char folder[PATH_SIZE], below[PATH_SIZE], path[PATH_SIZE], outside[PATH_SIZE];
    test_path(outside, sizeof outside, *state, "outside");
    test_path(folder, sizeof folder, *state, "folder");
    test_path(below, sizeof below, folder, "below");
    assert_int_equal(psc_file_write(outside, "x", 1, NULL), PSC_OK);
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(mkdir(below, 0777), 0);
    test_path(path, sizeof path, below, "file");
    assert_int_equal(psc_file_write(path, "x", 1, NULL), PSC_OK);
    test_path(path, sizeof path, below, "link");
    assert_int_equal(symlink(outside, path), 0);
    assert_int_equal(psc_file_remove_all(folder, NULL), PSC_OK);
    assert_int_equal(access(folder, F_OK), -1);
    assert_int_equal(psc_file_remove_all(folder, NULL), PSC_OK);
    assert_int_equal(access(outside, F_OK), 0);
    assert_int_equal(psc_file_remove_all(outside, NULL), PSC_OK);
    assert_int_equal(access(outside, F_OK), -1);
}

static void a_file_with_secrets_is_for_its_owner_alone(void **state)
{
    static const struct {
        mode_t mode;
        bool others_may, roots_may; /* by whom it belongs to */
    } cases[] = {{0600, true, true},   {0400, true, true},   {0640, false, true},
                 {0660, false, false}, {0604, false, false}, {0602, false, false},
                 {0601, false, false}, {0644, false, false}};
    char path[PATH_SIZE], *bytes;
    size_t size;
    test_path(path, sizeof path, *state, "f");
    assert_int_equal(psc_file_write(path, "secret", 6, NULL), PSC_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(chmod(path, cases[i].mode), 0);
        const psc_status_t st = psc_file_read_private(path, 10, &bytes, &size, &error);
        if (getuid() == 0 ? cases[i].roots_may : cases[i].others_may) {
            assert_int_equal(st, PSC_OK);
            assert_string_equal(bytes, "secret");
            psc_free_secret(bytes);
        } else {
            assert_int_equal(st, PSC_INVALID_ARGUMENT);
            assert_non_null(strstr(error.message, path));
            assert_non_null(strstr(error.message, "chmod 600"));
            assert_null(strstr(error.message, "secret"));
        }
    }
    test_path(path, sizeof path, *state, "none");
    assert_int_equal(psc_file_read_private(path, 10, &bytes, &size, NULL), PSC_NOT_FOUND);
}

static void a_file_that_changed_is_noticed_once(void **state)
{
    char path[PATH_SIZE], other[PATH_SIZE];
    psc_file_version_t version = {.size = 0};
    test_path(path, sizeof path, *state, "f");
    test_path(other, sizeof other, *state, "g");
    assert_false(psc_file_has_changed(path, &version));
    assert_int_equal(psc_file_write(path, "one", 3, NULL), PSC_OK);
    assert_true(psc_file_has_changed(path, &version));
    assert_false(psc_file_has_changed(path, &version));
    assert_int_equal(psc_file_write(path, "two", 3, NULL), PSC_OK); /* another inode */
    assert_true(psc_file_has_changed(path, &version));
    assert_int_equal(rename(path, other), 0);
    assert_true(psc_file_has_changed(path, &version)); /* it is gone */
    assert_false(psc_file_has_changed(path, &version));
    assert_int_equal(rename(other, path), 0);
    assert_true(psc_file_has_changed(path, &version)); /* and there again */
    assert_int_equal(unlink(path), 0);
    assert_true(psc_file_has_changed(path, &version));
    assert_int_equal(psc_file_write(path, "three", 5, NULL), PSC_OK);
    assert_true(psc_file_has_changed(path, &version));
    assert_false(psc_file_has_changed(path, &version));
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_was_written_is_read),
        IN_FOLDER(the_target_is_untouched_until_commit),
        IN_FOLDER(abort_leaves_nothing),
        IN_FOLDER(the_mode_follows_the_umask),
        IN_FOLDER(a_symbolic_link_stays_and_its_file_is_replaced),
        IN_FOLDER(a_long_name_is_possible),
        IN_FOLDER(a_name_without_a_folder_is_in_the_current_one),
        IN_FOLDER(a_dash_is_no_file),
        IN_FOLDER(impossible_places_are_told_at_open),
        IN_FOLDER(unwritable_folder_and_file_are_refused),
        IN_FOLDER(a_full_device_is_disk_full),
        IN_FOLDER(a_write_that_fails_half_way_leaves_the_old_file),
        IN_FOLDER(a_killed_writer_leaves_no_half_file),
        IN_FOLDER(a_pipe_is_written_directly),
        IN_FOLDER(a_descriptor_of_a_file_is_written_where_it_stands),
        IN_FOLDER(reading_tells_what_is_wrong),
        IN_FOLDER(a_file_of_unknown_size_is_read_whole),
        IN_FOLDER(every_failed_allocation_is_an_error_and_leaves_nothing),
        IN_FOLDER(a_folder_can_be_synced_and_a_missing_one_cannot),
        IN_FOLDER(who_gives_up_says_which_file_could_not_be_written),
        IN_FOLDER(the_folder_that_a_path_is_in_can_be_synced),
        IN_FOLDER(a_folder_is_removed_with_all_in_it_and_not_what_its_links_name),
        IN_FOLDER(a_file_with_secrets_is_for_its_owner_alone),
        IN_FOLDER(a_file_that_changed_is_noticed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
