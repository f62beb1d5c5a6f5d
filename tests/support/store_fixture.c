/* The wake callback ends a wait on a queue, so no test polls: processors may be few and busy. */
#include "tests/support/store_fixture.h"

#include "common/hash.h"
#include "common/queue.h"
#include "tests/support/cmocka.h"

static psc_queue_t *woken; /* where tests sleep until the store has finished something */

int test_store_setup(void **state)
{
    (void)state;
    return psc_queue_create(&woken, NULL) == PSC_OK ? 0 : -1;
}

int test_store_teardown(void **state)
{
    (void)state;
    psc_queue_destroy(woken);
    return 0;
}

static void wake(void *context)
{
    psc_queue_wake(context);
}

ps_store_t *test_store_open(ps_cold_t *cold)
{
    ps_store_options_t options = {
        .memory_bytes = PS_STORE_MIN_MEMORY, .cold = cold, .wake = wake, .wake_context = woken};
    ps_store_t *store = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_store_open(&options, &store, &error), PSC_OK);
    return store;
}

ps_cold_t *test_cold_memory(uint64_t fail_read_at, uint64_t fail_write_at)
{
    ps_cold_faults_t faults = {.fail_read_at = fail_read_at, .fail_write_at = fail_write_at};
    ps_cold_t *cold = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_cold_memory_create(&faults, &cold, &error), PSC_OK);
    return cold;
}

void test_table_add(ps_store_t *store, uint16_t table, size_t row_bytes)
{
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_store_table_add(store, table, row_bytes, &error), PSC_OK);
}

void test_store_close(ps_store_t *store)
{
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_store_close(store, true, &error), PSC_OK);
}

void test_request_set(test_request_t *request, uint16_t table, ps_batch_mode_t mode, size_t n)
{
    for (size_t i = 0; i < n; i++)
        request->hashes[i] = psc_row_hash(table, request->ids[i]);
    request->batch = (ps_batch_t){.table = table,
                                  .mode = mode,
                                  .n = n,
                                  .ids = request->ids,
                                  .hashes = request->hashes,
                                  .places = request->places};
}

psc_status_t test_wait(ps_store_t *store, psc_error_t *error)
{
    bool progress;
    psc_status_t st;
    while ((st = ps_store_poll(store, &progress, error)) == PSC_OK && !progress)
        psc_queue_wait(woken, UINT64_MAX);
    return st;
}

psc_status_t test_prepare(ps_store_t *store, test_request_t *request, psc_error_t *error)
{
    psc_status_t st;
    while ((st = ps_store_prepare(store, &request->batch, error)) == PSC_BUSY) {
        st = test_wait(store, error);
        if (st != PSC_OK)
            return st;
    }
    while (st == PSC_OK && !ps_store_ready(store, &request->batch))
        st = test_wait(store, error);
    return st;
}
