/* One suite over every cold tier; then what only one of them can do. */
#include "common/alloc.h"
#include "common/hash.h"
#include "ps/store/cold.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY ((uint64_t)3 << 20)

typedef struct tier {
    ps_cold_t *cold;
    char *folder; /* NULL: in memory */
} tier_t;

static int open_memory(void **state)
{
    tier_t *tier = psc_alloc_zeroed(1, sizeof *tier);
    *state = tier;
    return ps_cold_memory_create(NULL, &tier->cold, NULL) == PSC_OK ? 0 : -1;
}

static int open_rocks(void **state)
{
    tier_t *tier = psc_alloc_zeroed(1, sizeof *tier);
    *state = tier;
    tier->folder = test_scratch_create();
    psc_error_t error = PSC_ERROR_INIT;
    return ps_cold_rocks_open(tier->folder, MEMORY, &tier->cold, &error) == PSC_OK ? 0 : -1;
}

static int close_tier(void **state)
{
    tier_t *tier = *state;
    if (tier->cold != NULL)
        tier->cold->ops->destroy(tier->cold);
    test_scratch_destroy(tier->folder);
    psc_free(tier);
    return 0;
}

/* ---- over every tier ---- */

/* Writes that have to wait are tried again until they do not. */
static psc_status_t write_all(ps_cold_t *cold, const ps_cold_write_t *writes, size_t n)
{
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st;
    while ((st = cold->ops->write(cold, writes, n, &error)) == PSC_BUSY)
        (void)sched_yield();
    return st;
}

static void write_one(ps_cold_t *cold, uint16_t table, uint32_t slot, uint64_t id, uint8_t fill,
                      size_t size)
{
    uint8_t record[4096];
    assert_true(size <= sizeof record);
    memset(record, fill, size);
    ps_cold_write_t write = {.record = record, .size = size};
    ps_cold_key(write.key, table, slot, id);
    assert_int_equal(write_all(cold, &write, 1), PSC_OK);
}

static psc_status_t read_one(ps_cold_t *cold, uint16_t table, uint32_t slot, uint64_t id,
                             uint8_t *record, size_t size, bool *found_out, psc_error_t *error)
{
    /* In two parts, as the store reads it. */
    size_t head_size = size < 32 ? size : 32;
    ps_cold_read_t read = {
        .head = record, .head_size = head_size, .body = record + head_size, .size = size};
    ps_cold_key(read.key, table, slot, id);
    psc_status_t st = cold->ops->read(cold, &read, 1, error);
    *found_out = read.found;
    return st;
}

static void not_found_is_a_result(void **state)
{
    ps_cold_t *cold = ((tier_t *)*state)->cold;
    psc_error_t error = PSC_ERROR_INIT;
    uint8_t record[100];
    bool found = true;
    assert_true(cold->was_empty);
    assert_int_equal(read_one(cold, 1, 2, 3, record, 100, &found, &error), PSC_OK);
    assert_false(found);
    write_one(cold, 1, 2, 3, 9, 100);
    assert_int_equal(read_one(cold, 1, 2, 3, record, 100, &found, &error), PSC_OK);
    assert_true(found && record[0] == 9 && record[99] == 9);
    /* Each part of the key matters. */
    assert_int_equal(read_one(cold, 1, 2, 4, record, 100, &found, &error), PSC_OK);
    assert_false(found);
    assert_int_equal(read_one(cold, 1, 3, 3, record, 100, &found, &error), PSC_OK);
    assert_false(found);
    assert_int_equal(read_one(cold, 2, 2, 3, record, 100, &found, &error), PSC_OK);
    assert_false(found);
    assert_int_equal(cold->ops->read(cold, NULL, 0, &error), PSC_OK);
}

static void another_size_is_damaged_data(void **state)
{
    ps_cold_t *cold = ((tier_t *)*state)->cold;
    psc_error_t error = PSC_ERROR_INIT;
    uint8_t record[100];
    bool found;
    write_one(cold, 0, 0, 0, 9, 99);
    assert_int_equal(read_one(cold, 0, 0, 0, record, 100, &found, &error), PSC_CORRUPT);
    assert_non_null(strstr(error.message, "99 bytes"));
    assert_int_equal(read_one(cold, 0, 0, 0, record, 98, &found, &error), PSC_CORRUPT);
}

#define N_KEYS 5000

static int compare_keys(const void *a, const void *b)
{
    return memcmp(((const ps_cold_read_t *)a)->key, ((const ps_cold_read_t *)b)->key,
                  PS_COLD_KEY_BYTES);
}

static void key_of(uint32_t number, uint8_t key[PS_COLD_KEY_BYTES])
{
    uint64_t id = number == 0 ? 0 : number == 1 ? UINT64_MAX : psc_mix64(number);
    ps_cold_key(key, (uint16_t)(number % 3 * 30000), (uint32_t)(id % 16384), id);
}

static uint64_t number_in(const uint8_t *record)
{
    uint64_t number;
    memcpy(&number, record, sizeof number);
    return number;
}

static void agrees_with_an_array_in_random_batches(void **state)
{
    ps_cold_t *cold = ((tier_t *)*state)->cold;
    enum { SIZE = 432, MAX_BATCH = 300 };
    psc_error_t error = PSC_ERROR_INIT;
    test_random_t random = test_random_start();
    uint64_t *latest = psc_alloc_zeroed(N_KEYS, sizeof *latest); /* 0: never written */
    uint8_t *records = psc_alloc(MAX_BATCH * SIZE);
    ps_cold_read_t *reads = psc_alloc_zeroed(MAX_BATCH, sizeof *reads);
    ps_cold_write_t *writes = psc_alloc_zeroed(MAX_BATCH, sizeof *writes);
    uint64_t serial = 0;
    for (int round = 0; round < 300; round++) {
        size_t n = 1 + test_below(&random, MAX_BATCH);
        uint32_t first = (uint32_t)test_below(&random, N_KEYS);
        for (size_t i = 0; i < n; i++) {
            uint32_t number = (uint32_t)((first + i * 7) % N_KEYS);
            uint8_t *record = records + i * SIZE;
            memset(record, 0, SIZE);
            if (round % 2 == 0) {
                latest[number] = ++serial;
                memcpy(record, &serial, sizeof serial);
                memcpy(record + SIZE - sizeof serial, &serial, sizeof serial);
                writes[i] = (ps_cold_write_t){.record = record, .size = SIZE};
                key_of(number, writes[i].key);
            } else {
                reads[i] = (ps_cold_read_t){.head = record,
                                            .head_size = 8,
                                            .body = record + 8,
                                            .size = SIZE,
                                            .found = true};
                key_of(number, reads[i].key);
                memcpy(record, &number, sizeof number); /* whose record, until it is read */
            }
        }
        if (round % 2 == 0) {
            assert_int_equal(write_all(cold, writes, n), PSC_OK);
            continue;
        }
        qsort(reads, n, sizeof *reads, compare_keys);
        uint32_t numbers[MAX_BATCH];
        for (size_t i = 0; i < n; i++)
            numbers[i] = (uint32_t)number_in(reads[i].head);
        assert_int_equal(cold->ops->read(cold, reads, n, &error), PSC_OK);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(reads[i].found, latest[numbers[i]] != 0);
            if (!reads[i].found)
                continue;
            assert_int_equal(number_in(reads[i].head), latest[numbers[i]]);
            assert_int_equal(number_in(reads[i].body + SIZE - 16), latest[numbers[i]]);
        }
    }
    assert_int_equal(cold->ops->sync(cold, &error), PSC_OK);
    psc_free(latest);
    psc_free(records);
    psc_free(reads);
    psc_free(writes);
}

/* Records in a range of keys, by their first bytes; the rest of the arguments as in ps_cold_scan_t.
 */
static psc_status_t scan(ps_cold_t *cold, uint64_t from, uint64_t to, uint8_t *heads, size_t max,
                         size_t *n_out, bool *end_out, psc_error_t *error)
{
    ps_cold_scan_t scan = {.heads = heads, .head_bytes = 8, .max = max};
    ps_cold_key(scan.from, 5, 0, from);
    ps_cold_key(scan.to, 5, 0, to);
    psc_status_t st = cold->ops->scan(cold, &scan, error);
    *n_out = scan.n;
    *end_out = scan.end;
    return st;
}

static void scans_heads_in_order_and_without_what_was_removed(void **state)
{
    ps_cold_t *cold = ((tier_t *)*state)->cold;
    psc_error_t error = PSC_ERROR_INIT;
    uint8_t heads[100 * 8], record[100];
    size_t n = 9;
    bool end = false, found;
    assert_int_equal(scan(cold, 0, UINT64_MAX, heads, 100, &n, &end, &error), PSC_OK);
    assert_true(n == 0 && end);
    for (uint64_t i = 0; i < 50; i++)
        write_one(cold, 5, 0, i * 7 % 50, (uint8_t)(i * 7 % 50), 100);
    write_one(cold, 4, 0, 10, 200, 100);
    write_one(cold, 5, 1, 10, 200, 100);
    write_one(cold, 6, 0, 10, 200, 100);
    ps_cold_write_t removals[3] = {{.record = NULL}};
    const uint64_t ids[3] = {20, 30, 1000}; /* the last was never there */
    for (size_t i = 0; i < 3; i++)
        ps_cold_key(removals[i].key, 5, 0, ids[i]);
    assert_int_equal(cold->ops->write(cold, removals, 3, &error), PSC_OK);
    assert_int_equal(read_one(cold, 5, 0, 20, record, 100, &found, &error), PSC_OK);
    assert_false(found);
    write_one(cold, 5, 0, 30, 30, 100);
    assert_int_equal(scan(cold, 10, 40, heads, 29, &n, &end, &error), PSC_OK);
    assert_true(n == 29 && end);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(heads[8 * i + 7], 10 + i + (i >= 10));
    assert_int_equal(scan(cold, 10, 40, heads, 28, &n, &end, &error), PSC_OK);
    assert_true(n == 28 && !end && heads[27 * 8] == 38);
    write_one(cold, 5, 0, 3, 3, 7);
    assert_int_equal(scan(cold, 0, 10, heads, 20, &n, &end, &error), PSC_CORRUPT);
}

/* What a scan saw is read next as a rule, in another way than points: the same is found, also of
 * records that were removed, written or never there, far apart, and twice in a row. */
static void neighbours_are_read_after_a_scan_like_points(void **state)
{
    enum { ALL = 300, READS = 60 };
    ps_cold_t *cold = ((tier_t *)*state)->cold;
    psc_error_t error = PSC_ERROR_INIT;
    test_random_t random = test_random_start();
    uint8_t heads[ALL * 8], bodies[READS][100];
    uint8_t fills[ALL] = {0}; /* 0: there is none */
    size_t n;
    bool end;
    for (size_t round = 0; round < 40; round++) {
        ps_cold_read_t reads[READS];
        const size_t stride = 1 + test_below(&random, 20);
        for (size_t k = 0; k < 20; k++) {
            const uint64_t id = test_below(&random, ALL);
            ps_cold_write_t removal = {.record = NULL};
            ps_cold_key(removal.key, 5, 0, id);
            fills[id] = (uint8_t)test_below(&random, 3);
            if (fills[id] == 0)
                assert_int_equal(write_all(cold, &removal, 1), PSC_OK);
            else
                write_one(cold, 5, 0, id, fills[id], 100);
        }
        if (round % 3 != 0) /* else the last scan was before these writes */
            assert_int_equal(scan(cold, 0, ALL, heads, ALL, &n, &end, &error), PSC_OK);
        uint64_t ids[READS], id = test_below(&random, ALL / 4);
        for (size_t i = 0; i < READS; i++) {
            reads[i] = (ps_cold_read_t){
                .head = bodies[i], .head_size = 32, .body = bodies[i] + 32, .size = 100};
            ids[i] = id;
            ps_cold_key(reads[i].key, 5, 0, id);
            id = id + stride < ALL && test_below(&random, 4) != 0 ? id + stride : id;
        }
        assert_int_equal(cold->ops->read(cold, reads, READS, &error), PSC_OK);
        for (size_t i = 0; i < READS; i++) {
            assert_int_equal(reads[i].found, fills[ids[i]] != 0);
            assert_true(!reads[i].found ||
                        (bodies[i][0] == fills[ids[i]] && bodies[i][99] == fills[ids[i]]));
        }
    }
    for (uint64_t i = 0; i < 16; i++)
        write_one(cold, 5, 0, i, 1, i == 7 ? 99 : 100);
    assert_int_equal(scan(cold, 0, ALL, heads, ALL, &n, &end, &error), PSC_OK);
    ps_cold_read_t reads[16];
    for (uint64_t i = 0; i < 16; i++) {
        reads[i] = (ps_cold_read_t){
            .head = bodies[i], .head_size = 32, .body = bodies[i] + 32, .size = 100};
        ps_cold_key(reads[i].key, 5, 0, i);
    }
    assert_int_equal(cold->ops->read(cold, reads, 16, &error), PSC_CORRUPT);
}

static void a_scan_of_whole_records_takes_none_of_another_size(void **state)
{
    ps_cold_t *cold = ((tier_t *)*state)->cold;
    psc_error_t error = PSC_ERROR_INIT;
    uint8_t records[3 * 100];
    ps_cold_scan_t scan = {.heads = records, .head_bytes = 100, .max = 3, .whole = true};
    for (uint64_t i = 0; i < 3; i++)
        write_one(cold, 5, (uint32_t)i, i, (uint8_t)(10 + i), 100);
    write_one(cold, 5, 3, 3, 13, 101);
    ps_cold_key(scan.from, 5, 1, 0);
    ps_cold_key(scan.to, 5, 3, 0);
    assert_int_equal(cold->ops->scan(cold, &scan, &error), PSC_OK);
    assert_true(scan.n == 2 && scan.end);
    for (size_t i = 0; i < 200; i++)
        assert_int_equal(records[i], 11 + i / 100);
    ps_cold_key(scan.to, 5, 4, 0);
    assert_int_equal(cold->ops->scan(cold, &scan, &error), PSC_CORRUPT);
    assert_non_null(strstr(error.message, "101 bytes, not 100"));
}

/* ---- memory ---- */

static void memory_fails_when_it_is_told_to(void **state)
{
    (void)state;
    ps_cold_faults_t faults = {.fail_read_at = 2, .fail_write_at = 2};
    ps_cold_t *cold;
    psc_error_t error = PSC_ERROR_INIT;
    uint8_t record[8] = {0};
    bool found;
    assert_int_equal(ps_cold_memory_create(&faults, &cold, &error), PSC_OK);
    write_one(cold, 0, 0, 1, 1, 8);
    ps_cold_write_t write = {.record = record, .size = 8};
    ps_cold_key(write.key, 0, 0, 2);
    assert_int_equal(cold->ops->write(cold, &write, 1, &error), PSC_DISK_FULL);
    assert_int_equal(cold->ops->write(cold, &write, 1, &error), PSC_DISK_FULL);
    assert_int_equal(read_one(cold, 0, 0, 2, record, 8, &found, &error), PSC_OK);
    assert_false(found);
    assert_int_equal(read_one(cold, 0, 0, 1, record, 8, &found, &error), PSC_IO);
    assert_int_equal(read_one(cold, 0, 0, 1, record, 8, &found, &error), PSC_OK);
    assert_true(found);
    cold->ops->destroy(cold);
}

static void memory_writes_all_or_none_when_memory_is_short(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    uint8_t record[8] = {1};
    for (unsigned long fail_at = 1;; fail_at++) {
        ps_cold_t *cold;
        assert_int_equal(ps_cold_memory_create(NULL, &cold, &error), PSC_OK);
        ps_cold_write_t writes[100];
        for (uint64_t i = 0; i < 100; i++) {
            writes[i] = (ps_cold_write_t){.record = record, .size = 8};
            ps_cold_key(writes[i].key, 0, 0, i);
        }
        psc_alloc_fail_at(fail_at);
        psc_status_t st = cold->ops->write(cold, writes, 100, &error);
        psc_alloc_fail_at(0);
        for (uint64_t i = 0; i < 100; i++) {
            bool found;
            assert_int_equal(read_one(cold, 0, 0, i, record, 8, &found, &error), PSC_OK);
            assert_int_equal(found, st == PSC_OK);
        }
        cold->ops->destroy(cold);
        if (st == PSC_OK)
            break;
        assert_int_equal(st, PSC_NO_MEMORY);
    }
}

static void memory_refuses_writes_for_a_while_when_it_is_told_to(void **state)
{
    (void)state;
    ps_cold_faults_t faults = {.stall_write_at = 2, .stall_more = 1};
    ps_cold_t *cold;
    psc_error_t error = PSC_ERROR_INIT;
    uint8_t record[8] = {0};
    assert_int_equal(ps_cold_memory_create(&faults, &cold, &error), PSC_OK);
    ps_cold_write_t write = {.record = record, .size = 8};
    const psc_status_t expected[] = {PSC_OK, PSC_BUSY, PSC_BUSY, PSC_OK, PSC_OK};
    for (uint64_t i = 0; i < 5; i++) {
        bool found;
        ps_cold_key(write.key, 0, 0, i);
        assert_int_equal(cold->ops->write(cold, &write, 1, &error), expected[i]);
        assert_int_equal(read_one(cold, 0, 0, i, record, 8, &found, &error), PSC_OK);
        assert_int_equal(found, expected[i] == PSC_OK);
    }
    cold->ops->destroy(cold);
}

/* ---- RocksDB ---- */

/* A write that RocksDB would have to wait with is refused, and written later: nothing is lost. */
/* Three files one after another: rows, others and a removal, rows of another size; what is opened
 * goes on with the next one, and leaves the folder as it is. */
static void memory_goes_on_from_what_was_saved(void **state)
{
    (void)state;
    char *folder = test_scratch_create();
    char saved[512];
    psc_error_t error = PSC_ERROR_INIT;
    for (unsigned round = 0; round < 3; round++) {
        char before[512], name[16];
        ps_cold_t *cold;
        uint8_t record[200];
        bool found;
        memcpy(before, saved, sizeof before);
        (void)snprintf(name, sizeof name, "saved-%u", round);
        (void)test_path(saved, sizeof saved, folder, name);
        assert_int_equal(ps_cold_memory_open(round == 0 ? folder : before, NULL, &cold, &error),
                         PSC_OK);
        assert_true(cold->was_empty == (round == 0));
        for (uint64_t id = 0; id < 50; id++)
            write_one(cold, 7, 3, id + 20 * round, (uint8_t)(id + round), 100 + round);
        ps_cold_write_t removed = {.record = NULL};
        ps_cold_key(removed.key, 7, 3, round);
        assert_int_equal(write_all(cold, &removed, 1), PSC_OK);
        assert_int_equal(cold->ops->save(cold, saved, &error), PSC_OK);
        assert_int_equal(cold->ops->save(cold, saved, &error), PSC_IO); /* it is there */
        write_one(cold, 7, 3, 5, 99, 100);
        cold->ops->destroy(cold);
        assert_int_equal(test_count_entries(saved), round + 1);
        assert_int_equal(ps_cold_memory_open(saved, NULL, &cold, &error), PSC_OK);
        for (uint64_t id = 0; id < 50 + 20 * round; id++) {
            const unsigned from = id < 20 * round ? (unsigned)(id / 20) : round;
            assert_int_equal(read_one(cold, 7, 3, id, record, 100 + from, &found, &error), PSC_OK);
            assert_true(found == (id > round));
            assert_true(!found || record[99] == (uint8_t)(id - 20 * from + from));
        }
        cold->ops->destroy(cold);
    }
    char path[600];
    (void)snprintf(path, sizeof path, "%s/000002.sst", saved);
    assert_int_equal(truncate(path, 150), 0);
    ps_cold_t *cold = NULL;
    assert_int_equal(ps_cold_memory_open(saved, NULL, &cold, &error), PSC_CORRUPT);
    assert_non_null(strstr(error.message, path));
    test_scratch_destroy(folder);
}

static void rocks_refuses_writes_rather_than_wait(void **state)
{
    ps_cold_t *cold = ((tier_t *)*state)->cold;
    enum { N = 500, SIZE = 1000 };
    psc_error_t error = PSC_ERROR_INIT;
    static uint8_t record[SIZE];
    ps_cold_write_t *writes = psc_alloc_array(N, sizeof *writes);
    uint64_t n_batches = 0, n_refused = 0;
    while (n_refused == 0 && n_batches < 400) { /* it would write 200 MB otherwise */
        for (uint64_t i = 0; i < N; i++) {
            writes[i] = (ps_cold_write_t){.record = record, .size = SIZE};
            ps_cold_key(writes[i].key, 0, 0, n_batches * N + i);
        }
        psc_status_t st;
        while ((st = cold->ops->write(cold, writes, N, &error)) == PSC_BUSY) {
            assert_non_null(strstr(error.message, ((tier_t *)*state)->folder));
            n_refused++;
        }
        assert_int_equal(st, PSC_OK);
        n_batches++;
    }
    assert_true(n_refused != 0);
    for (uint64_t id = 0; id < n_batches * N; id += 97) {
        bool found;
        assert_int_equal(read_one(cold, 0, 0, id, record, SIZE, &found, &error), PSC_OK);
        assert_true(found);
    }
    psc_free(writes);
}

static void rocks_is_in_use_while_another_has_it_open(void **state)
{
    tier_t *tier = *state;
    ps_cold_t *second = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_cold_rocks_open(tier->folder, MEMORY, &second, &error), PSC_IN_USE);
    assert_non_null(strstr(error.message, tier->folder));
    assert_null(second);
}

static void rocks_keeps_rows_over_a_reopening_and_says_it_is_not_empty(void **state)
{
    tier_t *tier = *state;
    psc_error_t error = PSC_ERROR_INIT;
    for (uint64_t id = 0; id < 3000; id++)
        write_one(tier->cold, 7, 0, id, (uint8_t)id, 1000);
    assert_int_equal(tier->cold->ops->sync(tier->cold, &error), PSC_OK);
    tier->cold->ops->destroy(tier->cold);
    tier->cold = NULL;
    assert_int_equal(ps_cold_rocks_open(tier->folder, MEMORY, &tier->cold, &error), PSC_OK);
    assert_false(tier->cold->was_empty);
    for (uint64_t id = 0; id < 3000; id++) {
        uint8_t record[1000];
        bool found;
        assert_int_equal(read_one(tier->cold, 7, 0, id, record, 1000, &found, &error), PSC_OK);
        assert_true(found && record[999] == (uint8_t)id);
    }
}

/* What was saved is read by two at once, who leave nothing there. */
static void rocks_reads_what_was_saved_and_writes_nothing_there(void **state)
{
    tier_t *tier = *state;
    psc_error_t error = PSC_ERROR_INIT;
    char saved[512], logs[512];
    ps_cold_t *readers[2];
    for (uint64_t id = 0; id < 100; id++)
        write_one(tier->cold, 7, 0, id, (uint8_t)id, 1000);
    (void)test_path(saved, sizeof saved, tier->folder, "saved");
    (void)test_path(logs, sizeof logs, tier->folder, "logs");
    assert_int_equal(mkdir(logs, 0777), 0);
    assert_int_equal(tier->cold->ops->save(tier->cold, saved, &error), PSC_OK);
    write_one(tier->cold, 7, 0, 5, 77, 1000);
    const size_t n = test_count_entries(saved);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(ps_cold_rocks_open_to_read(saved, logs, MEMORY, &readers[i], &error),
                         PSC_OK);
    for (uint64_t id = 0; id < 100; id++) {
        uint8_t record[1000];
        bool found;
        assert_int_equal(read_one(readers[id % 2], 7, 0, id, record, 1000, &found, &error), PSC_OK);
        assert_true(found && record[999] == (uint8_t)id);
    }
    const uint8_t record[1000] = {0};
    ps_cold_write_t write = {.record = record, .size = sizeof record};
    assert_int_not_equal(readers[0]->ops->write(readers[0], &write, 1, &error), PSC_OK);
    for (size_t i = 0; i < 2; i++)
        readers[i]->ops->destroy(readers[i]);
    assert_int_equal(test_count_entries(saved), n);
    assert_int_not_equal(ps_cold_rocks_open_to_read(logs, logs, MEMORY, &readers[0], &error),
                         PSC_OK);
    assert_non_null(strstr(error.message, logs));
}

static void rocks_cannot_be_opened_where_a_file_is(void **state)
{
    tier_t *tier = *state;
    char path[512];
    (void)test_path(path, sizeof path, tier->folder, "file");
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    ps_cold_t *cold = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_cold_rocks_open(path, MEMORY, &cold, &error), PSC_IO);
    assert_non_null(strstr(error.message, path));
    for (unsigned long n = 1; n <= 2; n++) {
        psc_alloc_fail_at(n);
        assert_int_equal(ps_cold_rocks_open(tier->folder, MEMORY, &cold, &error), PSC_NO_MEMORY);
    }
    psc_alloc_fail_at(0);
}

/* Turns a bit in the middle of every data file. */
static size_t damage_files(const char *folder)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, ".sst") != 0)
            continue;
        char path[768];
        (void)test_path(path, sizeof path, folder, entry->d_name);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        struct stat status;
        assert_int_equal(fstat(fd, &status), 0);
        for (off_t at = 100; at < status.st_size * 3 / 4; at += 1000) {
            uint8_t byte;
            assert_int_equal(pread(fd, &byte, 1, at), 1);
            byte ^= 4;
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        (void)close(fd);
        n++;
    }
    (void)closedir(dir);
    return n;
}

static void rocks_finds_damaged_files_damaged(void **state)
{
    tier_t *tier = *state;
    psc_error_t error = PSC_ERROR_INIT;
    for (uint64_t id = 0; id < 3000; id++)
        write_one(tier->cold, 7, 0, id, (uint8_t)id, 1000);
    tier->cold->ops->destroy(tier->cold);
    tier->cold = NULL;
    assert_true(damage_files(tier->folder) > 0);
    psc_status_t st = ps_cold_rocks_open(tier->folder, MEMORY, &tier->cold, &error);
    for (uint64_t id = 0; st == PSC_OK && id < 3000; id++) {
        uint8_t record[1000];
        bool found;
        st = read_one(tier->cold, 7, 0, id, record, 1000, &found, &error);
    }
    assert_int_equal(st, PSC_CORRUPT);
}

static void rocks_gets_a_bounded_share_of_memory(void **state)
{
    (void)state;
    assert_int_equal(ps_cold_rocks_memory((uint64_t)8 << 20), (uint64_t)3 << 20);
    assert_int_equal(ps_cold_rocks_memory((uint64_t)256 << 20), (uint64_t)32 << 20);
    assert_int_equal(ps_cold_rocks_memory((uint64_t)1 << 40), (uint64_t)1 << 30);
}

#define OVER_ALL(test)                                                                             \
    {"memory: " #test, test, open_memory, close_tier, NULL},                                       \
    {                                                                                              \
        "RocksDB: " #test, test, open_rocks, close_tier, NULL                                      \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_ALL(not_found_is_a_result),
        OVER_ALL(another_size_is_damaged_data),
        OVER_ALL(agrees_with_an_array_in_random_batches),
        OVER_ALL(scans_heads_in_order_and_without_what_was_removed),
        OVER_ALL(neighbours_are_read_after_a_scan_like_points),
        OVER_ALL(a_scan_of_whole_records_takes_none_of_another_size),
        cmocka_unit_test(memory_fails_when_it_is_told_to),
        cmocka_unit_test(memory_writes_all_or_none_when_memory_is_short),
        cmocka_unit_test(memory_refuses_writes_for_a_while_when_it_is_told_to),
        cmocka_unit_test(memory_goes_on_from_what_was_saved),
        cmocka_unit_test_setup_teardown(rocks_refuses_writes_rather_than_wait, open_rocks,
                                        close_tier),
        cmocka_unit_test_setup_teardown(rocks_is_in_use_while_another_has_it_open, open_rocks,
                                        close_tier),
        cmocka_unit_test_setup_teardown(rocks_keeps_rows_over_a_reopening_and_says_it_is_not_empty,
                                        open_rocks, close_tier),
        cmocka_unit_test_setup_teardown(rocks_reads_what_was_saved_and_writes_nothing_there,
                                        open_rocks, close_tier),
        cmocka_unit_test_setup_teardown(rocks_cannot_be_opened_where_a_file_is, open_rocks,
                                        close_tier),
        cmocka_unit_test_setup_teardown(rocks_finds_damaged_files_damaged, open_rocks, close_tier),
        cmocka_unit_test(rocks_gets_a_bounded_share_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
