/*
 * What a server says of a checkpoint that is damaged or missing: every file of one is cut short,
 * changed by a bit, or taken away in turn, and named each time, by as many servers as made it and
 * by others; the checkpoint before it stays good, and so does what a crash leaves, also one in the
 * middle of a restore.
 */
#include "ps/checkpoint/restore.h"

#include "common/alloc.h"
#include "common/file.h"
#include "ps/checkpoint/keeper.h"
#include "ps/checkpoint/place_file.h"
#include "ps/data_dir.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"

#include "embps.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DIM = 6, IDS = 3000, MAX_FILES = 64 };

typedef struct made {
    char *folder;
    char checkpoints[256], data[256];
    char names[2][EMBPS_CHECKPOINT_NAME_BYTES];
    float rows[IDS * DIM]; /* as they were then */
} made_t;

static embps_table_t *open_table(embps_client_t *client)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = DIM;
    options.admit_after = 2;
    ok(embps_table_open(client, "late", &options, &table, &error));
    return table;
}

/* Two servers, two checkpoints, rows in memory and sightings. */
static int make_checkpoints(void **state)
{
    static made_t made;
    static uint64_t ids[IDS];
    static float rows[IDS * DIM];
    embps_client_t *client = NULL;
    made.folder = test_scratch_create();
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    of_servers.n = 2;
    of_servers.folder = test_path(made.data, sizeof made.data, made.folder, "data");
    of_servers.checkpoints =
        test_path(made.checkpoints, sizeof made.checkpoints, made.folder, "saved");
    door_servers_t *servers = door_servers_start(&of_servers);
    ok(embps_connect(door_servers_address(servers, 0), NULL, &client, &error));
    embps_table_t *table = open_table(client);
    for (uint64_t i = 0; i < IDS; i++)
        ids[i] = i;
    for (size_t i = 0; i < (size_t)IDS * DIM; i++)
        rows[i] = (float)(i % 251) + 0.5f;
    for (size_t k = 0; k < 4; k++)
        ok(embps_push(table, EMBPS_DELTA, ids, IDS, rows, 0, &error));
    for (size_t k = 0; k < 2; k++)
        ok(embps_checkpoint(client, "state", 5, made.names[k], &error));
    ok(embps_pull(table, ids, IDS, made.rows, &error));
    ok(embps_close(client, &error));
    door_servers_stop_behind(servers, made.checkpoints, made.names[1]);
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

/* All servers, as they would start; the first fault. */
static psc_status_t find_all(const made_t *made, const char *resume, uint32_t n_servers,
                             psc_error_t *fault)
{
    psc_status_t st = PSC_OK;
    for (uint32_t rank = 0; st == PSC_OK && rank < n_servers; rank++) {
        ps_restore_t *restore = NULL;
        st = ps_restore_find(made->checkpoints, resume, rank, n_servers, false, &restore, fault);
        if (st == PSC_OK)
            assert_int_equal(ps_restore_servers(restore), 2);
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
    const bool is_state = strstr(path, "/state") != NULL; /* weights go on without it */
    psc_error_t fault = PSC_ERROR_INIT;
    ps_restore_t *restore = NULL;
    size_t n_faults = 0;
    for (uint32_t n = 1; n <= 3; n++) {
        const psc_status_t st = find_all(made, "auto", n, &fault);
        assert_int_equal(st, code);
        if (strstr(fault.message, strrchr(path, '/') + 1) == NULL ||
            strstr(fault.message, made->names[0]) == NULL)
            fail_msg("%s is not named: %s", path, fault.message);
        if (!is_state)
            continue;
        assert_int_equal(
            ps_restore_find_weights(made->checkpoints, made->names[1], 0, n, &restore, &fault),
            PSC_OK);
        ps_restore_destroy(restore);
    }
    assert_int_equal(find_all(made, made->names[0], 2, &fault), PSC_OK);
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
    assert_int_equal(find_all(made, "auto", 2, &fault), PSC_OK);
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
    assert_int_equal(find_all(made, "auto", 2, &fault), PSC_OK);
}

/* As on another node, which sees less. */
static void parts_that_are_missing_are_named_each_with_server_and_host(void **state)
{
    const made_t *made = *state;
    char host[256], words[2][300], parts[2][512], hidden[2][520];
    psc_error_t fault = PSC_ERROR_INIT;
    assert_int_equal(gethostname(host, sizeof host), 0);
    for (unsigned i = 0; i < 2; i++) {
        (void)snprintf(words[i], sizeof words[i], "server %u (host %s)", i, host);
        (void)snprintf(parts[i], sizeof parts[i], "%s/%s/server-%u", made->checkpoints,
                       made->names[1], i);
        (void)snprintf(hidden[i], sizeof hidden[i], "%s.away", parts[i]);
        assert_int_equal(rename(parts[i], hidden[i]), 0);
    }
    for (uint32_t n = 1; n <= 3; n++) {
        assert_int_equal(find_all(made, made->names[1], n, &fault), PSC_NOT_FOUND);
        for (unsigned i = 0; i < 2; i++)
            if (strstr(fault.message, words[i]) == NULL)
                fail_msg("no %s: %s", words[i], fault.message);
    }
    assert_int_equal(rename(hidden[0], parts[0]), 0);
    assert_int_equal(find_all(made, "auto", 1, &fault), PSC_NOT_FOUND);
    assert_null(strstr(fault.message, words[0]));
    assert_non_null(strstr(fault.message, words[1]));
    assert_non_null(strstr(fault.message, made->names[0]));
    assert_int_equal(rename(hidden[1], parts[1]), 0);
    assert_int_equal(find_all(made, "auto", 1, &fault), PSC_OK);
}

/* More than a message has room for: as many as it has, and how many more. */
static void of_many_that_are_missing_the_number_is_told(void **state)
{
    enum { SERVERS = 40 };
    const made_t *made = *state;
    psp_saved_manifest_t manifest = EMBPS__CHECKPOINT__V1__MANIFEST__INIT;
    psp_saved_part_file_t parts[SERVERS], *all[SERVERS];
    char hosts[SERVERS][32], checkpoints[512], folder[600], path[700];
    uint64_t size, checksum;
    psc_error_t fault = PSC_ERROR_INIT;
    for (unsigned i = 0; i < SERVERS; i++) {
        embps__checkpoint__v1__part_file__init(&parts[i]);
        (void)snprintf(hosts[i], sizeof hosts[i], "node-%02u.cluster", i);
        parts[i].host = hosts[i];
        all[i] = &parts[i];
    }
    (void)test_path(checkpoints, sizeof checkpoints, made->folder, "elsewhere");
    (void)test_path(folder, sizeof folder, checkpoints, "many");
    (void)test_path(path, sizeof path, folder, "manifest");
    assert_int_equal(mkdir(checkpoints, 0777), 0);
    assert_int_equal(mkdir(folder, 0777), 0);
    manifest.name = "many";
    manifest.n_servers = SERVERS;
    manifest.n_parts = SERVERS;
    manifest.parts = all;
    assert_int_equal(psp_saved_write(path, PSP_SAVED_MANIFEST, NULL, 0, &manifest.base, &size,
                                     &checksum, &fault),
                     PSC_OK);
    ps_restore_t *restore = NULL;
    assert_int_equal(ps_restore_find(checkpoints, "many", 0, 1, false, &restore, &fault),
                     PSC_NOT_FOUND);
    unsigned n = 0;
    for (const char *at = fault.message; (at = strstr(at, "(host node-")) != NULL; n++)
        at += strlen("(host node-00.cluster)");
    char words[32];
    (void)snprintf(words, sizeof words, ".cluster) and %u more", SERVERS - n);
    assert_true(n > 3);
    assert_non_null(strstr(fault.message, words));
}

/* ---- kill -9 in the middle ---- */

/* A cold tier that ends the process before it has written so much. */
typedef struct deadly {
    ps_cold_t cold;
    ps_cold_t *inner;
    unsigned left; /* calls of write */
} deadly_t;

static psc_status_t write_or_die(ps_cold_t *cold, const ps_cold_write_t *writes, size_t n,
                                 psc_error_t *fault)
{
    deadly_t *deadly = (deadly_t *)(void *)cold;
    if (deadly->left-- == 0)
        (void)raise(SIGKILL);
    return deadly->inner->ops->write(deadly->inner, writes, n, fault);
}

static psc_status_t read_inner(ps_cold_t *cold, ps_cold_read_t *reads, size_t n, psc_error_t *fault)
{
    const deadly_t *deadly = (const deadly_t *)(void *)cold;
    return deadly->inner->ops->read(deadly->inner, reads, n, fault);
}

/* What a server of n_servers does at its start, until it is killed. Returns when it was not. */
static int restore_until_killed(const char *checkpoints, const char *data, uint32_t n_servers,
                                unsigned n_writes)
{
    static const ps_cold_ops_t ops = {.name = "deadly", .read = read_inner, .write = write_or_die};
    const ps_keeper_options_t of_keeper = {
        .folder = checkpoints, .rank = 0, .n_servers = n_servers, .cluster = 0xd00d};
    deadly_t deadly = {.cold.ops = &ops, .left = n_writes};
    ps_keeper_t *keeper = NULL;
    ps_restore_t *restore = NULL;
    ps_data_dir_t *dir = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    psc_status_t st = ps_keeper_open(&of_keeper, &keeper, &fault);
    if (st == PSC_OK)
        st = ps_restore_find(checkpoints, "auto", 0, n_servers, false, &restore, &fault);
    const ps_data_owner_t owner = {.cluster = 0xd00d,
                                   .rank = 0,
                                   .n_servers = n_servers,
                                   .lineage = st == PSC_OK ? ps_keeper_lineage(keeper) : 0};
    ps_restore_way_t way = {.memory_bytes = UINT64_C(4) << 20};
    if (st == PSC_OK)
        st = ps_data_dir_claim(data, &owner, &dir, &fault);
    if (st == PSC_OK)
        st = ps_restore_files(restore, ps_data_dir_rocksdb(dir), &fault);
    if (st == PSC_OK)
        st = ps_cold_rocks_open(ps_data_dir_rocksdb(dir), way.memory_bytes, &deadly.inner, &fault);
    if (st == PSC_OK) {
        way.scratch = ps_data_dir_staging(dir);
        st = ps_restore_rows(restore, &way, &deadly.cold, &fault);
    }
    (void)fprintf(stderr, "not killed: %s, %s\n", psc_status_text(st), fault.message);
    return 2;
}

static void a_kill_in_the_middle_is_begun_again_by_the_next_start(void **state)
{
    made_t *made = *state;
    static uint64_t ids[IDS];
    static float rows[IDS * DIM];
    char data[512];
    for (uint64_t i = 0; i < IDS; i++)
        ids[i] = i;
    (void)test_path(data, sizeof data, made->folder, "killed");
    static const uint32_t numbers[] = {2, 1, 3};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const uint32_t n = numbers[i];
        for (unsigned n_writes = 0; n_writes <= 2; n_writes += 2) {
            char number[2][16];
            int status = 0;
            pid_t child = 0;
            (void)snprintf(number[0], sizeof number[0], "%u", (unsigned)n);
            (void)snprintf(number[1], sizeof number[1], "%u", n_writes);
            char *const arguments[] = {"restore", made->checkpoints, data,
                                       number[0], number[1],         NULL};
            assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ),
                             0);
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        }
        embps_client_t *client = NULL;
        door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
        of_servers.n = n;
        of_servers.folder = data;
        of_servers.checkpoints = made->checkpoints;
        door_servers_t *servers = door_servers_start(&of_servers);
        ok(embps_connect(door_servers_address(servers, 0), NULL, &client, &error));
        ok(embps_pull(open_table(client), ids, IDS, rows, &error));
        assert_memory_equal(rows, made->rows, sizeof rows);
        ok(embps_close(client, &error));
        door_servers_stop(servers);
        test_scratch_destroy(strdup(data)); /* which several leave without a last checkpoint */
    }
}

static void assert_found(const char *checkpoints, bool with_state, const char *name)
{
    ps_restore_t *restore = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    if (ps_restore_find(checkpoints, "auto", 0, 1, with_state, &restore, &fault) != PSC_OK)
        fail_msg("%s", fault.message);
    assert_string_equal(ps_restore_name(restore), name);
    ps_restore_destroy(restore);
}

static void workers_go_on_from_the_newest_that_has_a_state(void **state)
{
    (void)state;
    char *folder = test_scratch_create(), checkpoints[256], data[256], manifest[512];
    embps_client_t *client = NULL;
    ps_restore_t *restore = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    door_servers_options_t of_servers = DOOR_SERVERS_DEFAULT;
    of_servers.n = 1;
    of_servers.folder = test_path(data, sizeof data, folder, "data");
    of_servers.checkpoints = test_path(checkpoints, sizeof checkpoints, folder, "saved");
    door_servers_t *servers = door_servers_start(&of_servers);
    ok(embps_connect(door_servers_address(servers, 0), NULL, &client, &error));
    ok(embps_checkpoint(client, NULL, 0, NULL, &error));
    assert_found(checkpoints, true, "checkpoint-0000000001"); /* none has one */
    ok(embps_checkpoint(client, "s", 1, NULL, &error));
    ok(embps_checkpoint(client, NULL, 0, NULL, &error));
    assert_found(checkpoints, false, "checkpoint-0000000003");
    assert_found(checkpoints, true, "checkpoint-0000000002");
    /* One that cannot be read may have had one: it is named, and so is what to do. */
    (void)test_path(manifest, sizeof manifest, checkpoints, "checkpoint-0000000003/manifest");
    assert_int_equal(truncate(manifest, 10), 0);
    assert_int_equal(ps_restore_find(checkpoints, "auto", 0, 1, true, &restore, &fault),
                     PSC_CORRUPT);
    assert_non_null(strstr(fault.message, "checkpoint-0000000003"));
    assert_non_null(strstr(fault.message, "--resume checkpoint-0000000002"));
    ok(embps_close(client, &error));
    door_servers_stop(servers);
    test_scratch_destroy(folder);
}

static void what_to_resume_is_looked_at(void **state)
{
    const made_t *made = *state;
    ps_restore_t *restore = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    assert_int_equal(ps_restore_find(made->checkpoints, "none", 0, 2, false, &restore, &fault),
                     PSC_OK);
    assert_null(restore);
    assert_int_equal(ps_restore_find(made->data, "auto", 0, 2, false, &restore, &fault), PSC_OK);
    assert_null(restore);
    assert_int_equal(ps_restore_find("/no/such/folder", "auto", 0, 2, false, &restore, &fault),
                     PSC_OK);
    assert_null(restore);
    assert_int_equal(ps_restore_find(made->checkpoints, "../x", 0, 2, false, &restore, &fault),
                     PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_restore_find(made->checkpoints, "other", 0, 2, false, &restore, &fault),
                     PSC_NOT_FOUND);
    assert_int_equal(ps_restore_find(made->checkpoints, "auto", 1, 2, false, &restore, &fault),
                     PSC_OK);
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
    assert_int_equal(psc_file_remove_all(to, NULL), PSC_OK);
}

enum { STARTS = 200, STARTING = 3 };

typedef struct starter {
    pthread_t thread;
    pthread_barrier_t *together;
    ps_keeper_options_t options;
    psc_status_t st;
    psc_error_t error;
    uint64_t lineage;
} starter_t;

static void *start_keeper(void *context)
{
    starter_t *starter = context;
    ps_keeper_t *keeper = NULL;
    (void)pthread_barrier_wait(starter->together);
    starter->st = ps_keeper_open(&starter->options, &keeper, &starter->error);
    if (starter->st == PSC_OK)
        starter->lineage = ps_keeper_lineage(keeper);
    ps_keeper_close(keeper);
    return NULL;
}

/* Also when the first one cleans up while another one is making its lineage. */
static void servers_that_start_at_once_in_a_new_folder_find_one_lineage(void **state)
{
    const made_t *made = *state;
    pthread_barrier_t together;
    assert_int_equal(pthread_barrier_init(&together, NULL, STARTING), 0);
    for (unsigned start = 0; start < STARTS; start++) {
        char name[32], folder[300];
        starter_t starters[STARTING];
        (void)snprintf(name, sizeof name, "start-%u", start);
        (void)test_path(folder, sizeof folder, made->folder, name);
        for (uint32_t i = 0; i < STARTING; i++) {
            starters[i] = (starter_t){
                .together = &together,
                .options = {.folder = folder, .rank = i, .n_servers = STARTING, .cluster = 1}};
            assert_int_equal(pthread_create(&starters[i].thread, NULL, start_keeper, &starters[i]),
                             0);
        }
        for (uint32_t i = 0; i < STARTING; i++)
            assert_int_equal(pthread_join(starters[i].thread, NULL), 0);
        for (uint32_t i = 0; i < STARTING; i++) {
            if (starters[i].st != PSC_OK)
                fail_msg("start %u, server %u: %s", start, (unsigned)i, starters[i].error.message);
            assert_true(starters[i].lineage == starters[0].lineage);
        }
        assert_int_equal(psc_file_remove_all(folder, NULL), PSC_OK);
    }
    assert_int_equal(pthread_barrier_destroy(&together), 0);
}

int main(int argc, char *argv[])
{
    if (argc == 5) /* started by a test */
        return restore_until_killed(argv[1], argv[2], (uint32_t)strtoul(argv[3], NULL, 10),
                                    (unsigned)strtoul(argv[4], NULL, 10));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_file_that_is_damaged_or_missing_is_named),
        cmocka_unit_test(parts_that_are_missing_are_named_each_with_server_and_host),
        cmocka_unit_test(of_many_that_are_missing_the_number_is_told),
        cmocka_unit_test(what_to_resume_is_looked_at),
        cmocka_unit_test(workers_go_on_from_the_newest_that_has_a_state),
        cmocka_unit_test(what_a_crash_left_goes_and_old_checkpoints_too),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_named),
        cmocka_unit_test(servers_that_start_at_once_in_a_new_folder_find_one_lineage),
        cmocka_unit_test(only_constant_files_are_linked),
        /* The last: a server of one makes a checkpoint of its own at its end. */
        cmocka_unit_test(a_kill_in_the_middle_is_begun_again_by_the_next_start),
    };
    return cmocka_run_group_tests(tests, make_checkpoints, remove_checkpoints);
}
