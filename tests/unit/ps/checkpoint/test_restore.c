/*
 * What a server says of a checkpoint that is damaged, missing, or of another run: every file of one
 * is cut short, changed by a bit, or taken away in turn, and named each time; the checkpoint before
 * it stays good, and so does what a crash leaves.
 */
#include "ps/checkpoint/restore.h"

#include "common/alloc.h"
#include "common/file.h"
#include "ps/checkpoint/keeper.h"
#include "ps/checkpoint/place_file.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"

#include "embps.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIM = 6, IDS = 3000, MAX_FILES = 64 };

typedef struct made {
    char *folder;
    char checkpoints[256], data[256];
    char names[2][EMBPS_CHECKPOINT_NAME_BYTES];
} made_t;

static embps_error_t error;

static void ok(int code)
{
    if (code != 0)
        fail_msg("code %d: %s", code, error.message);
}

/* Two servers, two checkpoints, rows in memory and sightings. */
static int make_checkpoints(void **state)
{
    static made_t made;
    static uint64_t ids[IDS];
    static float rows[IDS * DIM];
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    embps_client_t *client = NULL;
    made.folder = test_scratch_create();
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    of_servers.n = 2;
    of_servers.folder = test_path(made.data, sizeof made.data, made.folder, "data");
    of_servers.checkpoints =
        test_path(made.checkpoints, sizeof made.checkpoints, made.folder, "saved");
    door_servers_t *servers = door_servers_start(&of_servers);
    ok(embps_connect(door_servers_address(servers, 0), NULL, &client, &error));
    options.dim = DIM;
    options.admit_after = 2;
    ok(embps_table_open(client, "late", &options, &table, &error));
    for (uint64_t i = 0; i < IDS; i++)
        ids[i] = i;
    for (size_t k = 0; k < 4; k++)
        ok(embps_push(table, EMBPS_DELTA, ids, IDS, rows, 0, &error));
    for (size_t k = 0; k < 2; k++)
        ok(embps_checkpoint(client, "state", 5, made.names[k], &error));
    ok(embps_close(client, &error));
    door_servers_stop(servers);
    *state = &made;
    return 0;
}

static int remove_checkpoints(void **state)
{
    made_t *made = *state;
    test_scratch_destroy(made->folder);
    return 0;
}

/* ---- damage ---- */

static char files[MAX_FILES][512];
static size_t n_files;

static int list_file(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)where;
    if (type == FTW_F && status->st_size != 0) {
        assert_true(n_files < MAX_FILES);
        (void)snprintf(files[n_files++], sizeof files[0], "%s", path);
    }
    return 0;
}

static char *read_whole(const char *path, size_t *size_out)
{
    char *bytes = NULL;
    assert_int_equal(psc_file_read(path, (size_t)1 << 26, &bytes, size_out, NULL), PSC_OK);
    return bytes;
}

/* As it was written: files are linked, so it must be a new one. */
static void put_back(const char *path, const char *bytes, size_t size)
{
    (void)unlink(path);
    assert_int_equal(psc_file_write(path, bytes, size, NULL), PSC_OK);
}

/* Both servers, as they would start; the first fault. */
static psc_status_t find_all(const made_t *made, const char *resume, psc_error_t *fault)
{
    psc_status_t st = PSC_OK;
    for (uint32_t rank = 0; st == PSC_OK && rank < 2; rank++) {
        ps_restore_t *restore = NULL;
        st = ps_restore_find(made->checkpoints, resume, rank, 2, &restore, fault);
        ps_restore_destroy(restore);
    }
    return st;
}

static void count_fault(void *context, const psc_error_t *fault)
{
    (void)fault;
    (*(size_t *)context)++;
}

/* The newest checkpoint has a fault in this file: it is named, and the one before it is good. */
static void check_named(const made_t *made, const char *path, psc_status_t code)
{
    psc_error_t fault = PSC_ERROR_INIT;
    size_t n_faults = 0;
    const bool is_state = strstr(path, "/state") != NULL; /* no server needs it */
    const psc_status_t st = find_all(made, "auto", &fault);
    assert_int_equal(st, is_state ? PSC_OK : code);
    if (!is_state && (strstr(fault.message, strrchr(path, '/') + 1) == NULL ||
                      strstr(fault.message, made->names[0]) == NULL))
        fail_msg("%s is not named: %s", path, fault.message);
    assert_int_equal(find_all(made, made->names[0], &fault), PSC_OK);
    assert_int_equal(
        psp_saved_verify(made->checkpoints, made->names[1], true, count_fault, &n_faults, &fault),
        code);
    assert_int_equal(n_faults, 1);
    assert_non_null(strstr(fault.message, strrchr(path, '/') + 1));
}

static void each_file_that_is_damaged_or_missing_is_named(void **state)
{
    const made_t *made = *state;
    char newest[512];
    psc_error_t fault = PSC_ERROR_INIT;
    n_files = 0;
    (void)test_path(newest, sizeof newest, made->checkpoints, made->names[1]);
    assert_int_equal(nftw(newest, list_file, 8, FTW_PHYS), 0);
    assert_true(n_files >= 2 + 2 * 5); /* manifest, state; part, rows, growth, rocksdb/... */
    assert_int_equal(find_all(made, "auto", &fault), PSC_OK);
    for (size_t i = 0; i < n_files; i++) {
        size_t size = 0;
        char *bytes = read_whole(files[i], &size);
        const size_t at = size * 2 / 3;
        put_back(files[i], bytes, size - 1);
        check_named(made, files[i], PSC_CORRUPT);
        bytes[at] = (char)(bytes[at] ^ 4);
        put_back(files[i], bytes, size);
        check_named(made, files[i], PSC_CORRUPT);
        bytes[at] = (char)(bytes[at] ^ 4);
        (void)unlink(files[i]);
        if (strstr(files[i], "/manifest") == NULL) /* without one it is none */
            check_named(made, files[i], PSC_NOT_FOUND);
        put_back(files[i], bytes, size);
        psc_free(bytes);
    }
    assert_int_equal(find_all(made, "auto", &fault), PSC_OK);
}

static void another_number_of_servers_is_refused_with_both(void **state)
{
    const made_t *made = *state;
    ps_restore_t *restore = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    assert_int_equal(ps_restore_find(made->checkpoints, "auto", 0, 3, &restore, &fault),
                     PSC_MISMATCH);
    assert_non_null(strstr(fault.message, "is of 2 servers"));
    assert_non_null(strstr(fault.message, "this run has 3"));
    assert_null(restore);
}

static void what_to_resume_is_looked_at(void **state)
{
    const made_t *made = *state;
    ps_restore_t *restore = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    assert_int_equal(ps_restore_find(made->checkpoints, "none", 0, 2, &restore, &fault), PSC_OK);
    assert_null(restore);
    assert_int_equal(ps_restore_find(made->data, "auto", 0, 2, &restore, &fault), PSC_OK);
    assert_null(restore);
    assert_int_equal(ps_restore_find("/no/such/folder", "auto", 0, 2, &restore, &fault), PSC_OK);
    assert_null(restore);
    assert_int_equal(ps_restore_find(made->checkpoints, "../x", 0, 2, &restore, &fault),
                     PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_restore_find(made->checkpoints, "other", 0, 2, &restore, &fault),
                     PSC_NOT_FOUND);
    assert_int_equal(ps_restore_find(made->checkpoints, "auto", 1, 2, &restore, &fault), PSC_OK);
    assert_string_equal(ps_restore_name(restore), made->names[1]);
    assert_true(ps_restore_cluster(restore) == 0xd00d);
    ps_restore_destroy(restore);
}

/* ---- the folder ---- */

static void what_a_crash_left_goes_and_old_checkpoints_too(void **state)
{
    made_t *made = *state;
    char path[512], below[600];
    psc_error_t fault = PSC_ERROR_INIT;
    ps_keeper_t *keeper = NULL, *other = NULL;
    const ps_keeper_options_t options = {
        .folder = made->checkpoints, .n_servers = 2, .cluster = 1, .keep = 3};
    (void)test_path(path, sizeof path, made->checkpoints, "checkpoint-0000000009.partial");
    assert_int_equal(mkdir(path, 0777), 0);
    (void)test_path(below, sizeof below, path, "server-0");
    assert_int_equal(mkdir(below, 0777), 0);
    (void)test_path(path, sizeof path, made->checkpoints, "checkpoint-0000000000.removed");
    assert_int_equal(mkdir(path, 0777), 0);
    const size_t n = test_count_entries(made->checkpoints);
    assert_int_equal(ps_keeper_open(&options, &keeper, &fault), PSC_OK);
    assert_int_equal(test_count_entries(made->checkpoints), n - 2);
    assert_int_equal(ps_keeper_open(&options, &other, &fault), PSC_IN_USE);
    assert_non_null(strstr(fault.message, made->checkpoints));
    ps_keeper_close(keeper);
    psp_saved_names_t names;
    assert_int_equal(psp_saved_list(made->checkpoints, &names, &fault), PSC_OK);
    assert_int_equal(names.n, 2);
    assert_string_equal(names.all[0], made->names[0]);
    assert_string_equal(names.all[1], made->names[1]);
    psp_saved_names_clear(&names);
}

static void a_folder_that_cannot_be_made_is_named(void **state)
{
    (void)state;
    psc_error_t fault = PSC_ERROR_INIT;
    ps_keeper_t *keeper = NULL;
    const ps_keeper_options_t options = {.folder = "/no/such/folder", .n_servers = 1};
    assert_int_equal(ps_keeper_open(&options, &keeper, &fault), PSC_NOT_FOUND);
    assert_non_null(strstr(fault.message, "/no/such/folder"));
    assert_null(keeper);
}

static void only_constant_files_are_linked(void **state)
{
    const made_t *made = *state;
    char from[512], to[512];
    struct stat a, b;
    assert_true(ps_place_is_constant("000012.sst"));
    assert_false(ps_place_is_constant("MANIFEST-000004"));
    assert_false(ps_place_is_constant("sst"));
    (void)test_path(from, sizeof from, made->folder, "from");
    (void)test_path(to, sizeof to, made->folder, "to");
    assert_int_equal(psc_file_write(from, "bytes", 5, NULL), PSC_OK);
    for (int constant = 0; constant < 2; constant++) {
        assert_int_equal(ps_place_file(from, to, constant != 0, NULL), PSC_OK);
        assert_int_equal(stat(from, &a), 0);
        assert_int_equal(stat(to, &b), 0);
        assert_int_equal(b.st_size, 5);
        assert_int_equal(a.st_ino == b.st_ino, constant);
        assert_int_equal(ps_place_file(from, to, false, NULL), PSC_IO); /* it is there */
        assert_int_equal(unlink(to), 0);
    }
    psc_error_t fault = PSC_ERROR_INIT;
    assert_int_equal(ps_place_file(to, from, true, &fault), PSC_NOT_FOUND);
    assert_non_null(strstr(fault.message, to));
    assert_int_equal(ps_place_remove(to, NULL), PSC_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file_that_is_damaged_or_missing_is_named),
        cmocka_unit_test(another_number_of_servers_is_refused_with_both),
        cmocka_unit_test(what_to_resume_is_looked_at),
        cmocka_unit_test(what_a_crash_left_goes_and_old_checkpoints_too),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_named),
        cmocka_unit_test(only_constant_files_are_linked),
    };
    return cmocka_run_group_tests(tests, make_checkpoints, remove_checkpoints);
}
