/* Calls come while the program does something else, and cease when they are to. */
#include "common/ticker.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "tests/support/cmocka.h"

#include <pthread.h>
#include <stdatomic.h>

#define LONG_US UINT64_C(3600000000)

typedef struct counter {
    atomic_uint n;
    pthread_t thread; /* of the last one */
} counter_t;

static void count(void *context)
{
    counter_t *counter = context;
    counter->thread = pthread_self();
    atomic_fetch_add(&counter->n, 1);
}

static void wait_for(counter_t *counter, unsigned n)
{
    while (atomic_load(&counter->n) < n)
        psc_clock_sleep_us(100);
}

static void calls_come_on_a_thread_of_their_own_until_the_stop(void **unused)
{
    (void)unused;
    counter_t counter = {.n = 0};
    psc_ticker_t *ticker;
    assert_int_equal(psc_ticker_start(count, &counter, 1000, &ticker, NULL), PSC_OK);
    wait_for(&counter, 20);
    psc_ticker_stop(ticker);
    assert_false(pthread_equal(counter.thread, pthread_self()));
}

static void the_first_comes_at_once_and_the_stop_waits_for_no_interval(void **unused)
{
    (void)unused;
    counter_t counter = {.n = 0};
    psc_ticker_t *ticker;
    assert_int_equal(psc_ticker_start(count, &counter, LONG_US, &ticker, NULL), PSC_OK);
    wait_for(&counter, 1);
    psc_ticker_stop(ticker);
    assert_int_equal(atomic_load(&counter.n), 1);
    for (int i = 0; i < 200; i++) { /* a stop at any moment */
        assert_int_equal(psc_ticker_start(count, &counter, LONG_US, &ticker, NULL), PSC_OK);
        psc_ticker_stop(ticker);
    }
    psc_ticker_stop(NULL);
}

static void without_memory_there_is_no_thread(void **unused)
{
    (void)unused;
    counter_t counter = {.n = 0};
    psc_ticker_t *ticker = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    psc_alloc_fail_at(1);
    assert_int_equal(psc_ticker_start(count, &counter, 1000, &ticker, &error), PSC_NO_MEMORY);
    psc_alloc_fail_at(0);
    assert_null(ticker);
    assert_int_equal(error.code, PSC_NO_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_come_on_a_thread_of_their_own_until_the_stop),
        cmocka_unit_test(the_first_comes_at_once_and_the_stop_waits_for_no_interval),
        cmocka_unit_test(without_memory_there_is_no_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
