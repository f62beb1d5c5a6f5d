/*
 * What a stopped server left, as `embps verify` sees it: good when it was closed in order and
 * nothing happened since; else the file is named, whatever bit of it changed, and what is in use,
 * was killed, copied, moved, or comes from elsewhere or from another release is called that.
 */
#include "ps/data_check.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/slots.h"
#include "ps/store/cold.h"
#include "ps/store/store.h"
#include "tests/support/client_calls.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { DIM = 6, IDS = 3000, FLIPS = 40, MEMORY = 8 << 20, TABLE = 1, PATH = 600 };

typedef struct left {
    char *folder;
    char data[256];
} left_t;

static psc_error_t fault;
static ps_data_found_t found;
static size_t n_faults;

static door_servers_t *start_servers(const left_t *left)
{
    static char checkpoints[300];
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n = 2;
    options.folder = left->data;
    options.checkpoints = test_path(checkpoints, sizeof checkpoints, left->folder, "saved");
    return door_servers_start(&options);
}

static char *in_server(char path[PATH], const left_t *left, uint32_t rank, const char *name)
{
    (void)snprintf(path, PATH, "%s/server-%u/%s", left->data, (unsigned)rank, name);
    return path;
}

/* RocksDB's log becomes a table. */
static void make_table(const left_t *left, uint32_t rank)
{
    char path[PATH], saved[PATH];
    ps_cold_t *cold = NULL;
    (void)test_path(saved, sizeof saved, left->folder, "flushed");
    (void)in_server(path, left, rank, "rocksdb");
    assert_int_equal(ps_cold_rocks_open(path, MEMORY, &cold, &fault), PSC_OK);
    assert_int_equal(cold->ops->save(cold, saved, &fault), PSC_OK);
    cold->ops->destroy(cold);
    assert_int_equal(psc_file_remove_all(saved, &fault), PSC_OK);
    *strrchr(path, '/') = '\0';
    assert_int_equal(ps_data_contents_write(path, &fault), PSC_OK);
}

/* Two servers, one with rows in a table of RocksDB, one in its log. */
static int leave_data(void **state)
{
    left_t *left = calloc(1, sizeof *left);
    static uint64_t ids[IDS];
    static float rows[IDS * DIM];
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    assert_non_null(left);
    left->folder = test_scratch_create();
    (void)test_path(left->data, sizeof left->data, left->folder, "data");
    door_servers_t *servers = start_servers(left);
    embps_client_t *client = connect_to(door_servers_address(servers, 0));
    options.dim = DIM;
    ok(embps_table_open(client, "rows", &options, &table, &error));
    for (uint64_t i = 0; i < IDS; i++)
        ids[i] = i;
    for (size_t i = 0; i < (size_t)IDS * DIM; i++)
        rows[i] = (float)(i % 251) + 0.5f;
    ok(embps_push(table, EMBPS_DELTA, ids, IDS / 2, rows, 0, &error));
    ok(embps_checkpoint(client, "", 0, name, &error));
    ok(embps_push(table, EMBPS_DELTA, ids, IDS, rows, 0, &error));
    ok(embps_close(client, &error));
    door_servers_stop(servers);
    make_table(left, 1);
    *state = left;
    return 0;
}

static int remove_data(void **state)
{
    left_t *left = *state;
    test_scratch_destroy(left->folder);
    free(left);
    return 0;
}

static void count_fault(void *context, const psc_error_t *one)
{
    (void)context;
    (void)one;
    n_faults++;
}

static psc_status_t check(const left_t *left, uint32_t rank)
{
    n_faults = 0;
    fault = (psc_error_t)PSC_ERROR_INIT;
    return ps_data_check(left->data, rank, MEMORY, count_fault, NULL, &found, &fault);
}

static void check_says(const left_t *left, uint32_t rank, psc_status_t code, const char *words)
{
    const psc_status_t st = check(left, rank);
    if (st != code || strstr(fault.message, words) == NULL)
        fail_msg("%s instead of %s and \"%s\": %s", psc_status_text(st), psc_status_text(code),
                 words, fault.message);
    assert_true(n_faults >= 1);
}

/* ---- as it was left ---- */

static void what_was_closed_in_order_is_whole(void **state)
{
    const left_t *left = *state;
    ps_data_found_t all[2];
    uint32_t *ranks = NULL;
    size_t n = 0;
    assert_int_equal(ps_data_list(left->data, &ranks, &n, &fault), PSC_OK);
    assert_int_equal(n, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ranks[i], i);
        if (check(left, i) != PSC_OK)
            fail_msg("%s", fault.message);
        all[i] = found;
        assert_true(found.known && found.identity.clean && !found.is_copy);
        assert_true(found.n_files >= 4 && found.bytes > 0);
    }
    psc_free(ranks);
    assert_int_equal(all[0].n_rows + all[1].n_rows, IDS);
    assert_int_equal(ps_data_same_run(left->data, &all[0], &all[1], &fault), PSC_OK);
    assert_int_equal(ps_data_list(left->folder, &ranks, &n, &fault), PSC_NOT_FOUND);
    assert_int_equal(ps_data_list("/no/such", &ranks, &n, &fault), PSC_NOT_FOUND);
}

/* Files of server 1's RocksDB that end so. */
static size_t files_that_end_in(const left_t *left, const char *end, char names[][64], size_t max)
{
    char path[PATH];
    DIR *entries = opendir(in_server(path, left, 1, "rocksdb"));
    const struct dirent *entry;
    size_t n = 0;
    assert_non_null(entries);
    while ((entry = readdir(entries)) != NULL) {
        const size_t length = strlen(entry->d_name), n_end = strlen(end);
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "LOCK") == 0 ||
            strncmp(entry->d_name, "LOG", 3) == 0 || length < n_end ||
            strcmp(entry->d_name + length - n_end, end) != 0)
            continue;
        assert_true(n < max);
        (void)snprintf(names[n++], 64, "rocksdb/%.50s", entry->d_name);
    }
    (void)closedir(entries);
    return n;
}

static char *read_whole(const char *path, size_t *size_out)
{
    static char *bytes;
    assert_int_equal(psc_file_read(path, (size_t)1 << 26, &bytes, size_out, NULL), PSC_OK);
    return bytes;
}

/* Another file than before: tables are linked into the checkpoint. */
static void put(const char *path, const char *bytes, size_t size)
{
    assert_int_equal(psc_file_write(path, bytes, size, NULL), PSC_OK);
}

static void each_file_that_is_damaged_or_missing_is_named(void **state)
{
    const left_t *left = *state;
    char names[34][64], path[PATH];
    size_t n = files_that_end_in(left, "", names, 32);
    assert_true(n >= 5);
    (void)snprintf(names[n++], sizeof names[0], "contents");
    for (size_t i = 0; i < n; i++) {
        size_t size = 0;
        char *bytes = read_whole(in_server(path, left, 1, names[i]), &size);
        const bool is_empty = size == 0; /* a log that nothing was written to */
        if (!is_empty) {
            put(path, bytes, size - 1);
            check_says(left, 1, PSC_CORRUPT, names[i]);
            bytes[size / 2] = (char)(bytes[size / 2] ^ 4);
            put(path, bytes, size);
            check_says(left, 1, PSC_CORRUPT, strstr(names[i], ".sst") ? ".sst" : names[i]);
            bytes[size / 2] = (char)(bytes[size / 2] ^ 4);
        }
        assert_int_equal(unlink(path), 0);
        check_says(left, 1, PSC_NOT_FOUND, names[i]);
        put(path, bytes, size);
        assert_int_equal(check(left, 1), PSC_OK);
        psc_free(bytes);
    }
    put(in_server(path, left, 1, "rocksdb/999999.sst"), "x", 1);
    check_says(left, 1, PSC_CORRUPT, "rocksdb/999999.sst was not there");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(check(left, 0), PSC_OK);
}

static psc_status_t add_record(void *context, const uint8_t *key, size_t n_key,
                               const uint8_t *record, size_t size, psc_error_t *why)
{
    (void)why;
    (void)XXH3_64bits_update(context, key, n_key);
    (void)XXH3_64bits_update(context, record, size);
    return PSC_OK;
}

/* Of all rows of server 1. */
static uint64_t sum_rows(const left_t *left)
{
    char path[PATH];
    XXH3_state_t *hash = XXH3_createState();
    assert_non_null(hash);
    (void)XXH3_64bits_reset(hash);
    (void)in_server(path, left, 1, "rocksdb");
    assert_int_equal(ps_cold_rocks_check(path, left->folder, MEMORY, add_record, hash, &fault),
                     PSC_OK);
    const uint64_t sum = XXH3_64bits_digest(hash);
    (void)XXH3_freeState(hash);
    return sum;
}

/* Of tables only the sizes are written down: the rest is for RocksDB's checksums, which leave out
 * what no row depends on. */
static void no_bit_of_a_table_changes_a_row_unnoticed(void **state)
{
    const left_t *left = *state;
    char names[32][64], path[PATH];
    const size_t n = files_that_end_in(left, ".sst", names, 32);
    const uint64_t sum = sum_rows(left);
    test_random_t random = test_random_start();
    if (n == 0)
        fail_msg("there is no table");
    for (size_t flip = 0; n != 0 && flip < FLIPS; flip++) {
        size_t size = 0;
        char *bytes = read_whole(in_server(path, left, 1, names[test_below(&random, n)]), &size);
        const size_t at = test_below(&random, size);
        const char bit = (char)(1u << test_below(&random, 8));
        bytes[at] = (char)(bytes[at] ^ bit);
        put(path, bytes, size);
        if (check(left, 1) == PSC_OK && sum_rows(left) != sum)
            fail_msg("bit %d of byte %zu of %zu of %s", bit, at, size, path);
        bytes[at] = (char)(bytes[at] ^ bit);
        put(path, bytes, size);
        psc_free(bytes);
    }
    assert_int_equal(check(left, 1), PSC_OK);
}

static void an_identity_that_changed_or_is_of_another_release_is_told(void **state)
{
    const left_t *left = *state;
    char path[PATH];
    size_t size = 0;
    char *text = read_whole(in_server(path, left, 1, "identity.json"), &size);
    char *digit = strstr(text, "d00d");
    assert_non_null(digit);
    *digit = 'c';
    put(path, text, size);
    check_says(left, 1, PSC_UNCLEAN, "identity.json is damaged");
    *digit = 'd';
    put(path, text, size - 3);
    check_says(left, 1, PSC_UNCLEAN, "identity.json is damaged");
    char *format = strstr(text, "\"format\": 1");
    assert_non_null(format);
    format[strlen("\"format\": ")] = '0';
    put(path, text, size);
    check_says(left, 1, PSC_UNCLEAN, "format 0, of an older release");
    format[strlen("\"format\": ")] = '2';
    put(path, text, size);
    check_says(left, 1, PSC_UNCLEAN, "format 2, of an unknown, later release");
    format[strlen("\"format\": ")] = '1';
    assert_int_equal(unlink(path), 0);
    check_says(left, 1, PSC_UNCLEAN, "never began");
    put(path, text, size);
    assert_int_equal(check(left, 1), PSC_OK);
    psc_free(text);
}

/* ---- whose it is ---- */

/* What is in server 1's directory is in another one now, as after a copy. */
static void copy_server(const left_t *left)
{
    static const char *const names[] = {"lock", "identity.json", "contents", "rocksdb"};
    char from[PATH], to[PATH];
    assert_int_equal(mkdir(in_server(to, left, 9, ""), 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(
            rename(in_server(from, left, 1, names[i]), in_server(to, left, 9, names[i])), 0);
    assert_int_equal(psc_file_remove_all(in_server(from, left, 1, ""), NULL), PSC_OK);
    assert_int_equal(rename(in_server(to, left, 9, ""), from), 0);
}

static void copies_and_what_was_killed_are_told_apart(void **state)
{
    const left_t *left = *state;
    char path[PATH];
    ps_data_identity_t identity;
    (void)in_server(path, left, 1, "identity.json");
    assert_int_equal(ps_data_identity_read(path, &identity, &fault), PSC_OK);
    identity.clean = false;
    assert_int_equal(ps_data_identity_write(path, &identity, &fault), PSC_OK);
    check_says(left, 1, PSC_UNCLEAN, "was not closed in order");
    assert_non_null(strstr(fault.message, "the newest whole checkpoint"));
    copy_server(left);
    check_says(left, 1, PSC_UNCLEAN, "is a copy that was made while a server ran");
    identity.lineage = 0;
    assert_int_equal(ps_data_identity_write(path, &identity, &fault), PSC_OK);
    check_says(left, 1, PSC_UNCLEAN, "nothing of it counts");
    identity.clean = true;
    assert_int_equal(ps_data_identity_write(path, &identity, &fault), PSC_OK);
    assert_int_equal(check(left, 1), PSC_OK);
    assert_true(found.is_copy && found.n_rows > 0);
}

static void directories_of_others_are_told_with_whose_they_are(void **state)
{
    const left_t *left = *state;
    char path[PATH], other[PATH];
    ps_data_found_t first;
    ps_data_identity_t identity;
    assert_int_equal(check(left, 0), PSC_OK);
    first = found;
    assert_int_equal(rename(in_server(path, left, 1, ""), in_server(other, left, 3, "")), 0);
    check_says(left, 3, PSC_MISMATCH, "is of server 1 of 2, not of server 3");
    assert_int_equal(rename(other, path), 0);
    (void)in_server(path, left, 1, "identity.json");
    assert_int_equal(ps_data_identity_read(path, &identity, &fault), PSC_OK);
    identity.cluster++;
    assert_int_equal(ps_data_identity_write(path, &identity, &fault), PSC_OK);
    assert_int_equal(check(left, 1), PSC_OK);
    assert_int_equal(ps_data_same_run(left->data, &first, &found, &fault), PSC_MISMATCH);
    assert_non_null(strstr(fault.message, "000000000000d00e with 2 servers"));
    identity.cluster--;
    identity.lineage++;
    assert_int_equal(ps_data_identity_write(path, &identity, &fault), PSC_OK);
    assert_int_equal(check(left, 1), PSC_OK);
    assert_int_equal(ps_data_same_run(left->data, &first, &found, &fault), PSC_MISMATCH);
}

static void what_is_in_use_is_not_looked_at(void **state)
{
    left_t left = *(const left_t *)*state;
    char data[300];
    (void)test_path(data, sizeof data, left.folder, "running");
    (void)snprintf(left.data, sizeof left.data, "%.255s", data);
    door_servers_t *servers = start_servers(&left);
    check_says(&left, 0, PSC_IN_USE, "server-0 is in use");
    check_says(&left, 1, PSC_IN_USE, "server-1 is in use");
    door_servers_stop(servers);
    assert_int_equal(check(&left, 0), PSC_OK);
    assert_int_equal(check(&left, 1), PSC_OK);
}

/* ---- rows ---- */

static void records_that_are_no_rows_are_told_by_table_and_id(void **state)
{
    const left_t *left = *state;
    char path[PATH], server[PATH];
    uint8_t record[sizeof(ps_row_header_t) + DIM * sizeof(float) + 4] = {0};
    const size_t size = sizeof(ps_row_header_t) + DIM * sizeof(float);
    const struct {
        uint64_t id, says_id;
        size_t size;
        uint8_t state;
        const char *words; /* NULL: it is good */
    } cases[] = {
        {IDS + 7, IDS + 7, size, PS_ROW_PRESENT, NULL},
        {IDS + 7, IDS + 8, size, PS_ROW_PRESENT, "it says to be another one"},
        {IDS + 7, IDS + 7, size + 4, PS_ROW_PRESENT, "not as long as others"},
        {IDS + 7, IDS + 7, sizeof(ps_row_header_t) - 1, PS_ROW_PRESENT, "shorter than any row"},
        {IDS + 7, IDS + 7, size, PS_ROW_PRESENT + 40, "no state that rows are kept in"},
    };
    (void)in_server(path, left, 1, "rocksdb");
    (void)in_server(server, left, 1, "");
    server[strlen(server) - 1] = '\0';
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ps_cold_t *cold = NULL;
        const ps_row_header_t row = {
            .id = cases[i].says_id, .table = TABLE, .state = cases[i].state, .version = 1};
        ps_cold_write_t write = {.record = record, .size = cases[i].size};
        memcpy(record, &row, sizeof row);
        ps_cold_key(write.key, TABLE, psc_slot_of_hash(psc_row_hash(TABLE, cases[i].id)),
                    cases[i].id);
        assert_int_equal(ps_cold_rocks_open(path, MEMORY, &cold, &fault), PSC_OK);
        assert_int_equal(cold->ops->write(cold, &write, 1, &fault), PSC_OK);
        assert_int_equal(cold->ops->sync(cold, &fault), PSC_OK);
        cold->ops->destroy(cold);
        assert_int_equal(ps_data_contents_write(server, &fault), PSC_OK);
        if (cases[i].words == NULL) {
            if (check(left, 1) != PSC_OK)
                fail_msg("%s", fault.message);
            continue;
        }
        check_says(left, 1, PSC_CORRUPT, cases[i].words);
        assert_non_null(strstr(fault.message, "row 3007 of table 1"));
        assert_non_null(strstr(fault.message, path));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_closed_in_order_is_whole),
        cmocka_unit_test(each_file_that_is_damaged_or_missing_is_named),
        cmocka_unit_test(no_bit_of_a_table_changes_a_row_unnoticed),
        cmocka_unit_test(an_identity_that_changed_or_is_of_another_release_is_told),
        cmocka_unit_test(what_is_in_use_is_not_looked_at),
        /* These leave it changed. */
        cmocka_unit_test_setup_teardown(records_that_are_no_rows_are_told_by_table_and_id,
                                        leave_data, remove_data),
        cmocka_unit_test_setup_teardown(directories_of_others_are_told_with_whose_they_are,
                                        leave_data, remove_data),
        cmocka_unit_test_setup_teardown(copies_and_what_was_killed_are_told_apart, leave_data,
                                        remove_data),
    };
    return cmocka_run_group_tests(tests, leave_data, remove_data);
}
