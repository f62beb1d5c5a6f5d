/* The hit rate of the real store beside that of its policy simulated, and the optimum. */
#include "tests/bench/policy/traces.h"
#include "tests/support/cmocka.h"
#include "tests/support/store_fixture.h"
#include "tests/support/test_seed.h"

#define TABLE 1
#define ROW_BYTES 256
#define BATCH 200
#define N_USES 400000

/* Makes rows begin..n-1; most of them leave memory again. */
static void make_rows(ps_store_t *store, test_request_t *request, uint64_t begin, uint64_t n)
{
    psc_error_t error = PSC_ERROR_INIT;
    for (uint64_t first = begin; first < n; first += BATCH) {
        size_t count = n - first < BATCH ? (size_t)(n - first) : BATCH;
        for (size_t i = 0; i < count; i++)
            request->ids[i] = first + i;
        test_request_set(request, TABLE, PS_BATCH_WRITE, count);
        assert_int_equal(test_prepare(store, request, &error), PSC_OK);
        for (size_t i = 0; i < count; i++)
            ps_store_mark_new(store, ps_store_row(ps_store_base(store), request->places[i]));
        ps_store_release(store, &request->batch);
    }
}

static void the_store_hits_about_as_often_as_its_policy_alone(void **state)
{
    (void)state;
    static test_request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    test_random_t random = test_random_start();
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, TABLE, ROW_BYTES);
    make_rows(store, &request, 0, 30000);
    ps_store_counters_t counters;
    ps_store_counters(store, &counters);
    uint32_t capacity = (uint32_t)counters.rows_hot, n_rows = 10 * capacity;
    make_rows(store, &request, 30000, n_rows);

    bench_trace_t trace;
    assert_int_equal(bench_trace_zipf(1.0, n_rows, N_USES, random.key, &trace, &error), PSC_OK);
    assert_int_equal(bench_trace_batch(&trace, BATCH, &error), PSC_OK);
    double simulated = (double)bench_count_hits(&bench_store, &trace, capacity) / (double)trace.n;
    double optimum = (double)bench_count_hits(&bench_belady, &trace, capacity) / (double)trace.n;

    ps_store_counters(store, &counters);
    uint64_t hits = counters.hits;
    for (size_t first = 0; first < trace.n; first += BATCH) {
        size_t n = trace.n - first < BATCH ? trace.n - first : BATCH;
        for (size_t i = 0; i < n; i++)
            request.ids[i] = trace.ids[first + i];
        test_request_set(&request, TABLE, PS_BATCH_READ, n);
        assert_int_equal(test_prepare(store, &request, &error), PSC_OK);
        ps_store_release(store, &request.batch);
    }
    ps_store_counters(store, &counters);
    double real = (double)(counters.hits - hits) / (double)trace.n;
    print_message("room for %u of %u rows: store %.4f, policy alone %.4f, optimum %.4f\n", capacity,
                  n_rows, real, simulated, optimum);
    assert_true(real > simulated - 0.03 && real < simulated + 0.03);
    assert_true(real > 0.8 * optimum);
    bench_trace_clear(&trace);
    test_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_store_hits_about_as_often_as_its_policy_alone),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
