/*
 * What a server does with directories that are there already: it takes nothing that is not its own,
 * says why, and leaves no trace of a start that failed.
 */
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include "common/alloc.h"
#include "common/file.h"
#include "ps/data_dir.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN UINT64_C(0x1111222233334444)
#define OTHER UINT64_C(0x5555666677778888)

static int set_up(void **state)
{
    *state = test_scratch_create();
    return 0;
}

static int tear_down(void **state)
{
    test_scratch_destroy(*state);
    return 0;
}

static psc_status_t claim(const char *data, uint64_t run, uint32_t rank, uint32_t n_servers,
                          ps_data_dir_t **dir_out, psc_error_t *error)
{
    *dir_out = NULL;
    const ps_data_owner_t owner = {.cluster = run, .rank = rank, .n_servers = n_servers};
    return ps_data_dir_claim(data, &owner, dir_out, error);
}

static void refused(const char *data, uint64_t run, uint32_t rank, uint32_t n_servers,
                    psc_status_t code, const char *words)
{
    ps_data_dir_t *dir;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(claim(data, run, rank, n_servers, &dir, &error), code);
    assert_null(dir);
    assert_int_equal(error.code, code);
    if (strstr(error.message, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, error.message);
}

/* Leaves the directory as a run does that ended so. */
static void leave(const char *data, uint64_t run, uint32_t rank, uint32_t n_servers, bool clean)
{
    ps_data_dir_t *dir;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(claim(data, run, rank, n_servers, &dir, &error), PSC_OK);
    assert_int_equal(mkdir(ps_data_dir_rocksdb(dir), 0777), 0);
    ps_data_dir_begin(dir);
    if (clean)
        assert_int_equal(ps_data_dir_mark_clean(dir, "", &error), PSC_OK);
    ps_data_dir_release(dir);
}

static void a_claimed_directory_is_in_use(void **state)
{
    char data[256];
    (void)test_path(data, sizeof data, *state, "data");
    ps_data_dir_t *dir;
    assert_int_equal(claim(data, RUN, 0, 1, &dir, NULL), PSC_OK);
    refused(data, OTHER, 0, 1, PSC_IN_USE, "in use by another run");
    refused(data, RUN, 0, 1, PSC_IN_USE, "server-0");
    refused(data, OTHER, 1, 2, PSC_IN_USE, "server-0"); /* its neighbour */
    assert_int_equal(test_count_entries(data), 2);      /* server-0 and the marker */
    ps_data_dir_release(dir);
}

static void tables_of_another_run_are_refused_and_kept(void **state)
{
    char data[256], file[300];
    (void)test_path(data, sizeof data, *state, "data");
    leave(data, OTHER, 0, 1, false);
    (void)test_path(file, sizeof file, data, "server-0/rocksdb");
    refused(data, RUN, 0, 1, PSC_UNCLEAN, "not closed clean");
    refused(data, RUN, 0, 1, PSC_UNCLEAN, "5555666677778888");
    refused(data, RUN, 1, 2, PSC_UNCLEAN, "use another --data directory");
    refused(data, OTHER, 0, 1, PSC_UNCLEAN, "not closed clean"); /* even with the same id */
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(test_count_entries(data), 1);
}

/* As it is copied while a server uses it: with the lock's file, which nobody holds there. */
static void a_copy_of_a_live_directory_is_refused(void **state)
{
    static const char *const names[] = {"lock", "identity.json"};
    char from[256], to[256], path[512];
    (void)test_path(from, sizeof from, *state, "data");
    (void)test_path(to, sizeof to, *state, "copy");
    ps_data_dir_t *dir;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(claim(from, RUN, 0, 1, &dir, &error), PSC_OK);
    ps_data_dir_begin(dir);
    assert_int_equal(mkdir(to, 0777), 0);
    assert_int_equal(mkdir(test_path(path, sizeof path, to, "server-0"), 0777), 0);
    for (size_t i = 0; i < 2; i++) {
        char name[64], *text;
        size_t size;
        (void)snprintf(name, sizeof name, "server-0/%s", names[i]);
        (void)test_path(path, sizeof path, from, name);
        assert_int_equal(psc_file_read(path, 4096, &text, &size, &error), PSC_OK);
        (void)test_path(path, sizeof path, to, name);
        assert_int_equal(psc_file_write(path, text, size, &error), PSC_OK);
        psc_free(text);
    }
    refused(from, OTHER, 0, 1, PSC_IN_USE, from);
    refused(to, OTHER, 0, 1, PSC_UNCLEAN, "not closed clean");
    ps_data_dir_release(dir);
}

static void a_clean_directory_is_refused_as_clean(void **state)
{
    char data[256];
    (void)test_path(data, sizeof data, *state, "data");
    leave(data, OTHER, 0, 2, true);
    refused(data, RUN, 0, 2, PSC_UNCLEAN, "server 0 of 2, which ended in order)");
    refused(data, RUN, 0, 2, PSC_UNCLEAN, "server 0 of 2");
}

static void a_run_with_fewer_servers_does_not_mix_with_the_remains_of_one_with_more(void **state)
{
    char data[256];
    (void)test_path(data, sizeof data, *state, "data");
    leave(data, OTHER, 2, 3, true);
    refused(data, RUN, 0, 2, PSC_UNCLEAN, "server 2 of 3");
    assert_int_equal(test_count_entries(data), 1);
    /* Even where nothing tells whose it is. */
    char path[300];
    (void)test_path(path, sizeof path, data, "server-2/identity.json");
    assert_int_equal(unlink(path), 0);
    refused(data, RUN, 0, 2, PSC_UNCLEAN, "this run has 2 servers");
}

static void servers_of_one_run_share_the_directory(void **state)
{
    char data[256];
    (void)test_path(data, sizeof data, *state, "data");
    ps_data_dir_t *dirs[3];
    for (uint32_t rank = 0; rank < 3; rank++)
        assert_int_equal(claim(data, RUN, rank, 3, &dirs[rank], NULL), PSC_OK);
    assert_int_equal(test_count_entries(data), 4);
    for (uint32_t rank = 0; rank < 3; rank++)
        ps_data_dir_begin(dirs[rank]);
    assert_int_equal(test_count_entries(data), 3);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(ps_data_dir_mark_clean(dirs[rank], "", NULL), PSC_OK);
        ps_data_dir_release(dirs[rank]);
    }
}

static void a_discarded_start_leaves_nothing(void **state)
{
    char data[256], file[300];
    (void)test_path(data, sizeof data, *state, "data");
    ps_data_dir_t *dirs[2];
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(claim(data, RUN, rank, 2, &dirs[rank], NULL), PSC_OK);
        assert_int_equal(mkdir(ps_data_dir_rocksdb(dirs[rank]), 0777), 0);
        (void)test_path(file, sizeof file, ps_data_dir_rocksdb(dirs[rank]), "000001.sst");
        assert_int_equal(psc_file_write(file, "x", 1, NULL), PSC_OK);
    }
    assert_int_equal(ps_data_dir_discard(dirs[0], NULL), PSC_OK);
    assert_int_equal(access(data, F_OK), 0);
    assert_int_equal(ps_data_dir_discard(dirs[1], NULL), PSC_OK);
    assert_int_not_equal(access(data, F_OK), 0);
    assert_int_equal(test_count_entries(*state), 0);
}

static void a_discarded_start_keeps_what_was_there(void **state)
{
    char data[256], file[300];
    (void)test_path(data, sizeof data, *state, "data");
    assert_int_equal(mkdir(data, 0777), 0);
    ps_data_dir_t *dir;
    assert_int_equal(claim(data, RUN, 0, 1, &dir, NULL), PSC_OK);
    assert_int_equal(ps_data_dir_discard(dir, NULL), PSC_OK);
    assert_int_equal(test_count_entries(data), 0); /* but the user's folder stays */
    (void)test_path(file, sizeof file, data, "notes");
    assert_int_equal(psc_file_write(file, "mine", 4, NULL), PSC_OK);
    assert_int_equal(claim(data, RUN, 0, 1, &dir, NULL), PSC_OK);
    assert_int_equal(ps_data_dir_discard(dir, NULL), PSC_OK);
    assert_int_equal(test_count_entries(data), 1);
}

static void remains_of_a_killed_start_are_used(void **state)
{
    char data[256], path[300];
    (void)test_path(data, sizeof data, *state, "data");
    assert_int_equal(mkdir(data, 0777), 0);
    (void)test_path(path, sizeof path, data, "server-0");
    assert_int_equal(mkdir(path, 0777), 0);
    (void)test_path(path, sizeof path, data, "server-0/lock");
    assert_int_equal(psc_file_write(path, "", 0, NULL), PSC_OK);
    /* As a kill while the identity is written leaves it. */
    (void)test_path(path, sizeof path, data, "server-0/identity.json");
    psc_outfile_t *half;
    assert_int_equal(psc_outfile_open(path, &half, NULL), PSC_OK);
    (void)test_path(path, sizeof path, data, "server-0");
    assert_int_equal(test_count_entries(path), 2);
    ps_data_dir_t *dir;
    assert_int_equal(claim(data, RUN, 0, 1, &dir, NULL), PSC_OK);
    assert_int_equal(test_count_entries(path), 2); /* the lock and the identity */
    psc_outfile_abort(half);
    ps_data_dir_release(dir);
}

static void what_is_no_data_directory_is_refused(void **state)
{
    char data[256], path[300];
    (void)test_path(data, sizeof data, *state, "data");
    (void)test_path(path, sizeof path, *state, "none/data");
    refused(path, RUN, 0, 1, PSC_NOT_FOUND, "none/data");
    assert_int_equal(psc_file_write(data, "x", 1, NULL), PSC_OK);
    refused(data, RUN, 0, 1, PSC_INVALID_ARGUMENT, "not a directory");
    assert_int_equal(unlink(data), 0);
    assert_int_equal(mkdir(data, 0777), 0);
    (void)test_path(path, sizeof path, data, "server-0");
    assert_int_equal(psc_file_write(path, "x", 1, NULL), PSC_OK);
    refused(data, RUN, 0, 1, PSC_INVALID_ARGUMENT, "server-0 is not a directory");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)test_path(path, sizeof path, data, "server-0/photos");
    assert_int_equal(mkdir(path, 0777), 0);
    refused(data, RUN, 0, 1, PSC_UNCLEAN, "photos");
    assert_int_equal(access(path, F_OK), 0);
    /* /proc is a place where nobody can make a folder, root included. */
    refused("/proc/embps", RUN, 0, 1, PSC_NOT_FOUND, "/proc/embps");
}

static void a_damaged_identity_is_refused(void **state)
{
    char data[256], path[300];
    (void)test_path(data, sizeof data, *state, "data");
    leave(data, OTHER, 0, 1, true);
    (void)test_path(path, sizeof path, data, "server-0/identity.json");
    static const char *const texts[] = {"", "{", "[]", "{\"format\": 1}",
                                        ("{\"format\": 99, \"cluster\": \"1\", \"rank\": 0, "
                                         "\"n_servers\": 1, \"state\": \"clean\"}")};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(psc_file_write(path, texts[i], strlen(texts[i]), NULL), PSC_OK);
        refused(data, RUN, 0, 1, PSC_UNCLEAN, "identity.json");
    }
}

static void memory_that_is_short_leaves_nothing(void **state)
{
    char data[256];
    (void)test_path(data, sizeof data, *state, "data");
    psc_status_t st = PSC_NO_MEMORY;
    for (unsigned long n = 1; st != PSC_OK; n++) {
        ps_data_dir_t *dir;
        assert_true(n < 200);
        psc_alloc_fail_at(n);
        st = claim(data, RUN, 0, 1, &dir, NULL);
        psc_alloc_fail_at(0);
        if (st == PSC_OK)
            assert_int_equal(ps_data_dir_discard(dir, NULL), PSC_OK);
        assert_int_equal(test_count_entries(*state), 0);
    }
    ps_data_dir_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(a_claimed_directory_is_in_use),
        TEST(tables_of_another_run_are_refused_and_kept),
        TEST(a_copy_of_a_live_directory_is_refused),
        TEST(a_clean_directory_is_refused_as_clean),
        TEST(a_run_with_fewer_servers_does_not_mix_with_the_remains_of_one_with_more),
        TEST(servers_of_one_run_share_the_directory),
        TEST(a_discarded_start_leaves_nothing),
        TEST(a_discarded_start_keeps_what_was_there),
        TEST(remains_of_a_killed_start_are_used),
        TEST(what_is_no_data_directory_is_refused),
        TEST(a_damaged_identity_is_refused),
        TEST(memory_that_is_short_leaves_nothing),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
