/* For tests of the store: a store of 8 MiB, and requests that wait without polling. */
#ifndef TESTS_SUPPORT_STORE_FIXTURE_H
#define TESTS_SUPPORT_STORE_FIXTURE_H

#include "ps/store/cold.h"
#include "ps/store/store.h"

#define TEST_MAX_N 400

/* Group set-up and tear-down: what tests sleep on. */
int test_store_setup(void **state);
int test_store_teardown(void **state);

/* All of these fail the test when they do not succeed. The store takes cold. */
ps_store_t *test_store_open(ps_cold_t *cold);
ps_cold_t *test_cold_memory(uint64_t fail_read_at, uint64_t fail_write_at);
void test_table_add(ps_store_t *store, uint16_t table, size_t row_bytes);
void test_store_close(ps_store_t *store);

/* A batch with its memory. */
typedef struct test_request {
    ps_batch_t batch;
    uint64_t ids[TEST_MAX_N], hashes[TEST_MAX_N];
    ps_place_t places[TEST_MAX_N];
    uint32_t before[TEST_MAX_N];  /* the dictionary's counts when it was prepared */
    uint32_t numbers[TEST_MAX_N]; /* of the dictionary's rows */
    bool wanted, prepared;
} test_request_t;

/* Makes the batch from ids[0..n-1]. */
void test_request_set(test_request_t *request, uint16_t table, ps_batch_mode_t mode, size_t n);

/* Sleeps until the store has finished some I/O. */
psc_status_t test_wait(ps_store_t *store, psc_error_t *error);

/* Prepares, and waits until the batch is ready. */
psc_status_t test_prepare(ps_store_t *store, test_request_t *request, psc_error_t *error);

#endif
