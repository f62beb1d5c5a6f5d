/*
 * embps checkpoint diff and prune, on folders that servers made: what changed and what is shared is
 * told as it is; what goes is old, and never the newest that is whole nor what a program that
 * trains would go on from; what is damaged is named, counts for nothing and stays; the bytes that
 * are said to be freed are those that the disk has more of.
 */
#include "common/alloc.h"
#include "common/file.h"
#include "proto/saved_change.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"
#include "worker/tool/commands.h"

#include "embps.h"

#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIM = 6, IDS = 2000, MAX_FILES = 512 };

typedef struct folder {
    char *folder;
    char checkpoints[256];
    char said[256]; /* what the tool printed */
} folder_t;

static int make_folder(void **state)
{
    static folder_t folder;
    folder.folder = test_scratch_create();
    (void)test_path(folder.checkpoints, sizeof folder.checkpoints, folder.folder, "saved");
    (void)test_path(folder.said, sizeof folder.said, folder.folder, "said");
    *state = &folder;
    return 0;
}

static int remove_folder(void **state)
{
    const folder_t *folder = *state;
    test_scratch_destroy(folder->folder);
    return 0;
}

/* ---- servers ---- */

typedef struct run {
    const char *resume, *table;
    uint32_t n_servers, dim;
    uint64_t cluster;
} run_t;

static const run_t plain_run = {
    .resume = "auto", .table = "rows", .n_servers = 2, .dim = DIM, .cluster = 0xd00d};

static void push_rows(embps_client_t *client, const run_t *run)
{
    static uint64_t ids[IDS];
    static float rows[IDS * 2 * DIM];
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    for (uint64_t i = 0; i < IDS; i++)
        ids[i] = i;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        rows[i] = (float)(i % 13);
    options.dim = run->dim;
    ok(embps_table_open(client, run->table, &options, &table, &error));
    ok(embps_push(table, EMBPS_DELTA, ids, IDS, rows, 0, &error));
}

/* A checkpoint for each letter: 's' with a state, '-' without; rows are pushed before each. Servers
 * have a new folder for their data each time. */
static void make_checkpoints(const folder_t *folder, const run_t *run, const char *letters)
{
    embps_client_t *client = NULL;
    char data[512], data_name[32], name[EMBPS_CHECKPOINT_NAME_BYTES];
    (void)snprintf(data_name, sizeof data_name, "data-%zu", test_count_entries(folder->folder));
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n = run->n_servers;
    options.cluster = run->cluster;
    options.resume = run->resume;
    options.folder = test_path(data, sizeof data, folder->folder, data_name);
    options.keep = 0;
    options.checkpoints = folder->checkpoints;
    door_servers_t *servers = door_servers_start(&options);
    ok(embps_connect(door_servers_address(servers, 0), NULL, &client, &error));
    for (; *letters != '\0'; letters++) {
        push_rows(client, run);
        ok(embps_checkpoint(client, "state", *letters == 's' ? 5 : 0, name, &error));
    }
    ok(embps_close(client, &error));
    if (run->n_servers == 1)
        door_servers_stop(servers);
    else
        door_servers_stop_behind(servers, folder->checkpoints, name);
}

/* ---- the tool ---- */

static psc_error_t fault;

/* "embps checkpoint" with these words; what it printed is in folder->said. */
static psc_status_t checkpoint(const folder_t *folder, const char *const words[])
{
    char *argv[16] = {"checkpoint"};
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    (void)fflush(stdout);
    const int before = dup(STDOUT_FILENO);
    const int to = open(folder->said, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    assert_true(before >= 0 && to >= 0 && dup2(to, STDOUT_FILENO) == STDOUT_FILENO);
    fault = (psc_error_t)PSC_ERROR_INIT;
    const psc_status_t st = psw_tool_checkpoint(argc, argv, &fault);
    (void)fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) == STDOUT_FILENO);
    (void)close(before);
    (void)close(to);
    return st;
}
#define CHECKPOINT(...) checkpoint(folder, (const char *const[]){__VA_ARGS__, NULL})

static void check_said(const folder_t *folder, const char *words)
{
    char *text;
    size_t size;
    assert_int_equal(psc_file_read(folder->said, (size_t)1 << 20, &text, &size, NULL), PSC_OK);
    if (strstr(text, words) == NULL)
        fail_msg("no \"%s\" in: %s", words, text);
    psc_free(text);
}

static json_t *said_json(const folder_t *folder)
{
    json_t *root = json_load_file(folder->said, 0, NULL);
    assert_non_null(root);
    return root;
}

/* The last digits of the checkpoints that are there. */
static const char *names_left(const folder_t *folder)
{
    static char text[64];
    psp_saved_names_t found;
    assert_int_equal(psp_saved_list(folder->checkpoints, &found, &fault), PSC_OK);
    assert_true(found.n < sizeof text);
    for (size_t i = 0; i < found.n; i++)
        text[i] = found.all[i][strlen(found.all[i]) - 1];
    text[found.n] = '\0';
    psp_saved_names_clear(&found);
    return text;
}

/* Another file than before: files are linked. */
static void flip_bit(const folder_t *folder, const char *below)
{
    char path[512], *bytes;
    size_t size;
    (void)test_path(path, sizeof path, folder->checkpoints, below);
    assert_int_equal(psc_file_read(path, (size_t)1 << 26, &bytes, &size, NULL), PSC_OK);
    bytes[size / 2] = (char)(bytes[size / 2] ^ 8);
    assert_int_equal(psc_file_write(path, bytes, size, NULL), PSC_OK);
    psc_free(bytes);
}

/* ---- what the disk has ---- */

static struct stat seen[MAX_FILES];
static size_t n_seen;

static int see_file(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)path;
    (void)where;
    bool is_new = type == FTW_F;
    for (size_t i = 0; is_new && i < n_seen; i++)
        is_new = seen[i].st_ino != status->st_ino;
    if (is_new) {
        assert_true(n_seen < MAX_FILES);
        seen[n_seen++] = *status;
    }
    return 0;
}

/* Of all that is below, each file once. */
static json_int_t bytes_below(const char *path)
{
    json_int_t bytes = 0;
    n_seen = 0;
    assert_int_equal(nftw(path, see_file, 8, FTW_PHYS), 0);
    for (size_t i = 0; i < n_seen; i++)
        bytes += seen[i].st_size;
    return bytes;
}

/* ---- prune ---- */

static void old_ones_go_and_the_newest_with_a_state_stays(void **state)
{
    const folder_t *folder = *state;
    make_checkpoints(folder, &plain_run, "s-----");
    const json_int_t before = bytes_below(folder->folder);
    assert_int_equal(CHECKPOINT("prune", folder->checkpoints, "--keep", "2", "--dry-run", "--json"),
                     PSC_OK);
    assert_string_equal(names_left(folder), "123456");
    json_t *told = said_json(folder);
    assert_int_equal(CHECKPOINT("prune", folder->checkpoints, "--keep", "2"), PSC_OK);
    assert_string_equal(names_left(folder), "156");
    check_said(folder, "3 removed, ");
    check_said(folder, "the newest with a client's state");
    assert_int_equal(unlink(folder->said), 0);
    assert_true(before - bytes_below(folder->folder) ==
                json_integer_value(json_object_get(told, "bytes_freed")));
    assert_true(json_integer_value(json_object_get(told, "bytes_freed")) > 0);
    assert_int_equal(json_array_size(json_object_get(told, "checkpoints")), 6);
    json_decref(told);
    assert_int_equal(CHECKPOINT("prune", folder->checkpoints, "--keep", "3"), PSC_OK);
    check_said(folder, "0 removed, 0 bytes freed");
    assert_int_equal(CHECKPOINT("verify", folder->checkpoints), PSC_OK);
}

static void damaged_ones_are_named_and_count_for_nothing(void **state)
{
    const folder_t *folder = *state;
    char path[512];
    make_checkpoints(folder, &plain_run, "s----s--");
    flip_bit(folder, "checkpoint-0000000008/server-1/rows");
    flip_bit(folder, "checkpoint-0000000006/state");
    (void)test_path(path, sizeof path, folder->checkpoints, "checkpoint-0000000004/server-0/rows");
    assert_int_equal(unlink(path), 0);
    (void)test_path(path, sizeof path, folder->checkpoints, "checkpoint-0000000009.partial");
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(CHECKPOINT("prune", folder->checkpoints, "--keep", "3"), PSC_CORRUPT);
    assert_string_equal(names_left(folder), "1345678");
    check_said(folder, "checkpoint-0000000008/server-1/rows is damaged");
    check_said(folder, "checkpoint-0000000006/state is damaged");
    check_said(folder, "checkpoint-0000000004/server-0/rows is missing");
    check_said(folder, "left by a crash");
    assert_non_null(strstr(fault.message, "3 have faults"));
    assert_int_equal(access(path, F_OK), -1);
}

static void nothing_goes_where_none_is_whole(void **state)
{
    const folder_t *folder = *state;
    char path[512];
    make_checkpoints(folder, &plain_run, "--");
    flip_bit(folder, "checkpoint-0000000001/server-1/part");
    flip_bit(folder, "checkpoint-0000000002/manifest");
    (void)test_path(path, sizeof path, folder->checkpoints, "checkpoint-0000000003.partial");
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(CHECKPOINT("prune", folder->checkpoints, "--keep", "1", "--json"),
                     PSC_CORRUPT);
    assert_string_equal(names_left(folder), "12");
    assert_int_equal(access(path, F_OK), 0);
    check_said(folder, "server-1/part");
    check_said(folder, "0000000002/manifest");
}

/* Run 1 goes on from its own checkpoint, after run 2 made one. */
static void the_newest_with_a_state_of_the_newest_run_stays_too(void **state)
{
    const folder_t *folder = *state;
    run_t first = plain_run, second = plain_run;
    second.cluster = 0xbeef;
    second.resume = "none";
    make_checkpoints(folder, &first, "ss");
    make_checkpoints(folder, &second, "-s");
    first.resume = "checkpoint-0000000002";
    make_checkpoints(folder, &first, "--");
    assert_int_equal(CHECKPOINT("prune", folder->checkpoints, "--keep", "1"), PSC_OK);
    assert_string_equal(names_left(folder), "246");
}

static void a_folder_that_is_written_to_is_left_alone(void **state)
{
    const folder_t *folder = *state;
    char path[512];
    int fd = -1;
    make_checkpoints(folder, &plain_run, "--");
    assert_int_equal(psp_saved_lock(folder->checkpoints, &fd, &fault), PSC_OK);
    assert_int_equal(CHECKPOINT("prune", folder->checkpoints, "--keep", "1"), PSC_IN_USE);
    assert_non_null(strstr(fault.message, folder->checkpoints));
    assert_string_equal(names_left(folder), "12");
    assert_int_equal(close(fd), 0);
    assert_int_equal(CHECKPOINT("prune", folder->folder, "--keep", "1"), PSC_NOT_FOUND);
    (void)test_path(path, sizeof path, folder->folder, "lock");
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(CHECKPOINT("prune", "/no/such", "--keep", "1"), PSC_NOT_FOUND);
    assert_int_equal(CHECKPOINT("prune", folder->checkpoints), PSC_INVALID_ARGUMENT);
    assert_int_equal(CHECKPOINT("prune", folder->checkpoints, "--keep", "0"), PSC_INVALID_ARGUMENT);
    assert_int_equal(CHECKPOINT("list", folder->checkpoints, "--keep", "1"), PSC_INVALID_ARGUMENT);
    assert_int_equal(CHECKPOINT("127.0.0.1:1", "--dry-run"), PSC_INVALID_ARGUMENT);
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, "a"), PSC_INVALID_ARGUMENT);
    assert_string_equal(names_left(folder), "12");
}

/* ---- diff ---- */

static const char *const names[] = {NULL, "checkpoint-0000000001", "checkpoint-0000000002",
                                    "checkpoint-0000000003", "checkpoint-0000000004"};

/* ALL[I].KEY[SIDE] as a number. */
static json_int_t number_of(const json_t *told, const char *all, size_t i, const char *key,
                            size_t side)
{
    const json_t *value =
        json_array_get(json_object_get(json_array_get(json_object_get(told, all), i), key), side);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static const char *change_of(const json_t *told, size_t table)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(told, "tables"), table), "change"));
}

static json_t *diff(const folder_t *folder, const char *first, const char *second)
{
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, first, second, "--json"), PSC_OK);
    return said_json(folder);
}

static void tables_rows_sessions_slots_and_bytes_are_compared(void **state)
{
    const folder_t *folder = *state;
    run_t run = plain_run;
    make_checkpoints(folder, &run, "s-");
    run.table = "more";
    run.n_servers = 3;
    make_checkpoints(folder, &run, "-");
    json_t *told = diff(folder, names[1], names[2]);
    assert_string_equal(change_of(told, 0), "not_compared");
    assert_int_equal(number_of(told, "tables", 0, "rows_created", 1), IDS);
    assert_int_equal(number_of(told, "servers", 1, "slots", 0), 8192);
    json_t *server = json_array_get(json_object_get(told, "servers"), 0);
    assert_int_equal(json_integer_value(json_object_get(server, "sessions_that_pushed")), 1);
    assert_int_equal(json_integer_value(json_object_get(server, "sessions_new")), 0);
    json_decref(told);

    told = diff(folder, names[2], names[3]);
    assert_int_equal(json_array_size(json_object_get(told, "tables")), 2);
    assert_string_equal(change_of(told, 1), "added");
    assert_int_equal(number_of(told, "tables", 1, "rows_created", 0), 0);
    assert_int_equal(number_of(told, "tables", 1, "rows_created", 1), IDS);
    assert_int_equal(json_array_size(json_object_get(told, "servers")), 3);
    const json_t *bytes = json_object_get(told, "bytes");
    const json_t *checkpoints = json_object_get(told, "checkpoints");
    const json_int_t shared = json_integer_value(json_object_get(bytes, "shared"));
    static const char *const of_side[] = {"old", "new"};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            json_integer_value(json_object_get(json_array_get(checkpoints, i), "bytes")),
            shared + json_integer_value(json_object_get(bytes, of_side[i])));
    json_decref(told);

    told = diff(folder, names[3], names[1]);
    assert_int_equal(json_array_size(json_object_get(told, "tables")), 2);
    assert_string_equal(change_of(told, 1), "removed");
    json_decref(told);
    told = diff(folder, names[3], names[3]);
    bytes = json_object_get(told, "bytes");
    assert_int_equal(json_integer_value(json_object_get(bytes, "new")), 0);
    assert_int_equal(json_integer_value(json_object_get(bytes, "old")), 0);
    assert_string_equal(change_of(told, 0), "not_compared");
    json_decref(told);

    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, names[1], names[2]), PSC_OK);
    check_said(folder, ": same options, rows not compared (--rows); 2000 -> 2000 rows created");
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, names[1], names[2], "--rows"), PSC_OK);
    check_said(folder, ": changed; 2000 -> 2000 rows created");
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, names[2], names[2], "--rows"), PSC_OK);
    check_said(folder, ": no change; 2000 -> 2000 rows created");
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, names[2], names[3]), PSC_OK);
    check_said(folder, "table more: added; 0 -> 2000 rows created");
    check_said(folder, "server 2: clock none -> 0, slots none -> 5461");
    check_said(folder, " bytes shared, ");
}

static void options_that_differ_are_told_with_both_values(void **state)
{
    const folder_t *folder = *state;
    run_t other = plain_run;
    other.cluster = 0xbeef;
    other.resume = "none";
    other.dim = 2 * DIM;
    make_checkpoints(folder, &plain_run, "-");
    make_checkpoints(folder, &other, "-");
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, names[1], names[2]), PSC_OK);
    check_said(folder, "table rows: changed; ");
    check_said(folder, "  dim: 6 -> 12\n");
    check_said(folder, "run 000000000000d00d -> 000000000000beef\n");
}

static void of_damaged_ones_nothing_is_said_but_what_is_damaged(void **state)
{
    const folder_t *folder = *state;
    char path[512];
    make_checkpoints(folder, &plain_run, "--");
    flip_bit(folder, "checkpoint-0000000002/server-1/part");
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, names[1], names[2]), PSC_CORRUPT);
    assert_non_null(strstr(fault.message, "checkpoint-0000000002/server-1/part"));
    flip_bit(folder, "checkpoint-0000000002/server-1/part");
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, names[1], names[2]), PSC_OK);
    (void)test_path(path, sizeof path, folder->checkpoints, "checkpoint-0000000001/server-0/rows");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, names[1], names[2]), PSC_NOT_FOUND);
    assert_non_null(strstr(fault.message, "checkpoint-0000000001/server-0/rows"));
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, names[2], names[4]), PSC_NOT_FOUND);
    assert_int_equal(CHECKPOINT("diff", folder->checkpoints, "../x", names[2]),
                     PSC_INVALID_ARGUMENT);
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(old_ones_go_and_the_newest_with_a_state_stays),
        IN_FOLDER(damaged_ones_are_named_and_count_for_nothing),
        IN_FOLDER(nothing_goes_where_none_is_whole),
        IN_FOLDER(the_newest_with_a_state_of_the_newest_run_stays_too),
        IN_FOLDER(a_folder_that_is_written_to_is_left_alone),
        IN_FOLDER(tables_rows_sessions_slots_and_bytes_are_compared),
        IN_FOLDER(options_that_differ_are_told_with_both_values),
        IN_FOLDER(of_damaged_ones_nothing_is_said_but_what_is_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
