/*
 * What surrounds RocksDB: few file descriptors, files that are cut off or gone, a full disk. Rows
 * are found as they were written, or an error is told; never nothing instead of a row.
 */
#include "common/alloc.h"
#include "common/hash.h"
#include "ps/store/cold.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY ((uint64_t)3 << 20)
#define SIZE 1000
#define BATCH 50

static ps_cold_t *open_rocks(const char *folder)
{
    ps_cold_t *cold = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    if (ps_cold_rocks_open(folder, MEMORY, &cold, &error) != PSC_OK)
        fail_msg("%s", error.message);
    return cold;
}

static uint8_t fill_of(uint64_t number)
{
    return (uint8_t)(psc_mix64(number) | 1);
}

/* Rows number * BATCH and those after it, spread over the keys. */
static psc_status_t write_batch(ps_cold_t *cold, uint64_t number, psc_error_t *error)
{
    static uint8_t record[SIZE];
    ps_cold_write_t writes[BATCH];
    memset(record, fill_of(number), sizeof record);
    for (uint64_t i = 0; i < BATCH; i++) {
        uint64_t id = psc_mix64(number * BATCH + i);
        writes[i] = (ps_cold_write_t){.record = record, .size = SIZE};
        ps_cold_key(writes[i].key, 1, (uint32_t)(id % 16384), id);
    }
    psc_status_t st;
    while ((st = cold->ops->write(cold, writes, BATCH, error)) == PSC_BUSY)
        (void)sched_yield();
    return st;
}

/* One row of each of n batches: as written, or an error. Returns the first error. */
static psc_status_t read_batches(ps_cold_t *cold, uint64_t n, psc_error_t *error)
{
    for (uint64_t number = 0; number < n; number++) {
        uint8_t record[SIZE];
        uint64_t id = psc_mix64(number * BATCH + number % BATCH);
        ps_cold_read_t read = {.head = record, .head_size = SIZE, .size = SIZE};
        ps_cold_key(read.key, 1, (uint32_t)(id % 16384), id);
        psc_status_t st = cold->ops->read(cold, &read, 1, error);
        if (st != PSC_OK)
            return st;
        if (!read.found || record[0] != fill_of(number) || record[SIZE - 1] != fill_of(number))
            fail_msg("row %llu is lost", (unsigned long long)id);
    }
    return PSC_OK;
}

static void write_batches(ps_cold_t *cold, uint64_t n)
{
    psc_error_t error = PSC_ERROR_INIT;
    for (uint64_t number = 0; number < n; number++)
        if (write_batch(cold, number, &error) != PSC_OK)
            fail_msg("%s", error.message);
}

static void works_with_64_file_descriptors(void **state)
{
    (void)state;
    enum { N = 1200 }; /* 60 MB, several times each file's size */
    char *folder = test_scratch_create();
    psc_error_t error = PSC_ERROR_INIT;
    struct rlimit before, few = {.rlim_cur = 64};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    ps_cold_t *cold = open_rocks(folder);
    write_batches(cold, N);
    for (int round = 0; round < 2; round++) { /* once more from what a restart finds */
        if (read_batches(cold, N, &error) != PSC_OK)
            fail_msg("%s", error.message);
        cold->ops->destroy(cold);
        cold = round == 0 ? open_rocks(folder) : NULL;
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    test_scratch_destroy(folder);
}

#define MAX_FILES 4096 /* that RocksDB numbers in a test */

/* Cuts every data file in two, or removes it; those of `harmed` were before. Returns how many.
 * A compaction may remove files meanwhile, and make others. */
static size_t harm_files(const char *folder, bool remove, bool harmed[MAX_FILES])
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || strcmp(dot, ".sst") != 0)
            continue;
        char path[768];
        struct stat status;
        unsigned long number = strtoul(entry->d_name, NULL, 10);
        assert_true(number < MAX_FILES);
        if (harmed[number])
            continue;
        (void)test_path(path, sizeof path, folder, entry->d_name);
        if (stat(path, &status) != 0 ||
            (remove ? unlink(path) : truncate(path, status.st_size / 2)) != 0) {
            assert_int_equal(errno, ENOENT);
            continue;
        }
        harmed[number] = true;
        n++;
    }
    (void)closedir(dir);
    return n;
}

static void files_that_are_cut_off_or_gone_are_told_with_the_directory(void **state)
{
    (void)state;
    enum { N = 200 };
    for (int removed = 0; removed < 2; removed++) {
        for (int open = 0; open < 2; open++) {
            char *folder = test_scratch_create();
            psc_error_t error = PSC_ERROR_INIT;
            ps_cold_t *cold = open_rocks(folder);
            write_batches(cold, N);
            if (!open) {
                cold->ops->destroy(cold);
                cold = NULL;
            }
            bool harmed[MAX_FILES] = {false};
            assert_true(harm_files(folder, removed != 0, harmed) > 0);
            while (harm_files(folder, removed != 0, harmed) > 0) {
            }
            psc_status_t st = open ? PSC_OK : ps_cold_rocks_open(folder, MEMORY, &cold, &error);
            if (st == PSC_OK)
                st = read_batches(cold, N, &error);
            /* A removed file that is open is still there for who has it open. */
            if (!(open && removed) || st != PSC_OK) {
                assert_true(st == PSC_CORRUPT || st == PSC_IO);
                assert_non_null(strstr(error.message, folder));
            }
            if (cold != NULL)
                cold->ops->destroy(cold);
            test_scratch_destroy(folder);
        }
    }
}

static void a_disk_that_was_full_has_lost_nothing_and_works_again(void **state)
{
    (void)state;
    char *folder = test_scratch_create();
    psc_error_t error = PSC_ERROR_INIT;
    if (mount("embps-test", folder, "tmpfs", 0, "size=24M") != 0) {
        test_scratch_destroy(folder);
        skip(); /* not allowed here */
    }
    ps_cold_t *cold = open_rocks(folder);
    uint64_t n = 0;
    psc_status_t st;
    while ((st = write_batch(cold, n, &error)) == PSC_OK && n < 2000)
        n++;
    assert_int_equal(st, PSC_DISK_FULL);
    assert_non_null(strstr(error.message, folder));
    assert_true(n > 100);
    /* Reading goes on; nothing is taken for missing. */
    assert_int_equal(read_batches(cold, n, &error), PSC_OK);
    cold->ops->destroy(cold);
    assert_int_equal(mount("embps-test", folder, "tmpfs", MS_REMOUNT, "size=200M"), 0);
    cold = open_rocks(folder);
    assert_int_equal(read_batches(cold, n, &error), PSC_OK);
    while (n < 600)
        assert_int_equal(write_batch(cold, n++, &error), PSC_OK);
    assert_int_equal(read_batches(cold, n, &error), PSC_OK);
    cold->ops->destroy(cold);
    assert_int_equal(umount(folder), 0);
    test_scratch_destroy(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(works_with_64_file_descriptors),
        cmocka_unit_test(files_that_are_cut_off_or_gone_are_told_with_the_directory),
        cmocka_unit_test(a_disk_that_was_full_has_lost_nothing_and_works_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
