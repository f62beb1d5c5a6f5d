/* Prefetches: answered at once, whatever else waits; their rows come in time, and nothing else. */
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include "ps/table/prefetcher.h"

#include <string.h>

enum { D = 100, N_ROWS = 20000, BATCH = 500 }; /* twice what fits into the memory */

static uint64_t prefetch_of(shard_fixture_t *f, uint32_t worker, uint64_t when, uint64_t first,
                            size_t n)
{
    static uint64_t ids[4096];
    for (size_t i = 0; i < n; i++)
        ids[i] = first + i;
    psp_message_t message = {.kind = PSP_PREFETCH};
    message.u.prefetch = (psp_prefetch_t){
        .table = 1, .table_epoch = 1, .when = when, .n = n, .ids = (const uint8_t *)ids};
    return fixture_send(f, worker, &message);
}

static void expect(shard_fixture_t *f, uint64_t request, psp_kind_t kind, psc_status_t code)
{
    psp_message_t reply;
    assert_true(fixture_take(f, &reply, NULL));
    assert_int_equal(reply.reply.request, request);
    assert_int_equal(reply.kind, kind);
    assert_int_equal(reply.reply.error.code, code);
}

static void start(shard_fixture_t *f, uint32_t n_workers)
{
    const fixture_options_t options = {
        .memory_bytes = PS_STORE_MIN_MEMORY, .n_servers = 1, .n_workers = n_workers};
    fixture_open(f, &options);
    for (uint32_t i = 0; i < n_workers; i++)
        fixture_hello(f, i);
    const psp_open_table_t table = {
        .name = "t", .dim = D, .init = "zeros", .optimizer = "sgd", .seed = 3};
    assert_int_equal(fixture_open_table(f, &table, NULL, NULL), PSC_OK);
    static uint64_t ids[BATCH];
    static float rows[BATCH * D];
    for (uint64_t first = 0; first < N_ROWS; first += BATCH) {
        for (uint64_t i = 0; i < BATCH; i++) {
            ids[i] = first + i;
            rows[i * D] = (float)ids[i];
        }
        const psp_push_t push = {
            .table = 1, .table_epoch = 1, .kind = PSP_PUSH_ASSIGN, .dim = D, .n = BATCH};
        (void)fixture_push(f, 0, NULL, push, ids, rows);
        psp_message_t reply;
        fixture_wait(f, &reply, NULL);
        assert_int_equal(reply.reply.error.code, PSC_OK);
    }
}

static void expect_rows(shard_fixture_t *f, uint64_t first, size_t n)
{
    uint64_t ids[BATCH];
    for (size_t i = 0; i < n; i++)
        ids[i] = first + i;
    const psp_pull_t pull = {
        .table = 1, .table_epoch = 1, .staleness = PSP_STALENESS_ASYNC, .n = n};
    uint64_t request = fixture_pull(f, 0, NULL, pull, ids);
    psp_message_t reply;
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.reply.request, request);
    for (size_t i = 0; i < n; i++) {
        float value;
        memcpy(&value, reply.u.pull_reply.rows + i * D * sizeof value, sizeof value);
        assert_true(value == (float)ids[i]);
    }
}

static void wait_for_fetched(shard_fixture_t *f, uint64_t n)
{
    while (fixture_counter(f, 0, "store.fetched_ahead") < n)
        fixture_poll(f);
}

static void rows_are_in_memory_when_they_are_pulled(void **state)
{
    (void)state;
    shard_fixture_t f;
    start(&f, 1);
    expect(&f, prefetch_of(&f, 0, 1, 100, 400), PSP_PREFETCH_REPLY, PSC_OK);
    wait_for_fetched(&f, 400);
    uint64_t misses = fixture_counter(&f, 0, "store.misses");
    expect_rows(&f, 100, 400);
    assert_int_equal(fixture_counter(&f, 0, "store.misses"), misses);
    assert_int_equal(fixture_counter(&f, 0, "rows.announced"), 400);
    assert_int_equal(fixture_counter(&f, 0, "rows.announced_dropped"), 0);
    fixture_close(&f, true);
}

static void it_is_answered_before_what_its_session_waits_for(void **state)
{
    (void)state;
    shard_fixture_t f;
    start(&f, 2);
    psp_message_t barrier = {.kind = PSP_BARRIER};
    uint64_t waiting = fixture_send(&f, 0, &barrier);
    expect(&f, prefetch_of(&f, 0, 1, 100, 10), PSP_PREFETCH_REPLY, PSC_OK);
    expect(&f, prefetch_of(&f, 0, 1, 0, 0), PSP_PREFETCH_REPLY, PSC_OK); /* a sign of life */
    barrier.request.protocol = 0;
    uint64_t last = fixture_send(&f, 1, &barrier);
    psp_message_t reply;
    fixture_wait(&f, &reply, NULL);
    assert_true(reply.reply.request == waiting || reply.reply.request == last);
    fixture_close(&f, true);
}

static void what_comes_too_late_is_dropped(void **state)
{
    (void)state;
    shard_fixture_t f;
    start(&f, 1);
    psp_message_t clock = {.kind = PSP_CLOCK}, reply;
    f.clock[0] = 5;
    (void)fixture_send(&f, 0, &clock);
    fixture_wait(&f, &reply, NULL);
    expect(&f, prefetch_of(&f, 0, 4, 100, 400), PSP_PREFETCH_REPLY, PSC_OK);
    fixture_poll(&f);
    assert_int_equal(fixture_counter(&f, 0, "rows.announced_dropped"), 400);
    assert_int_equal(fixture_counter(&f, 0, "store.fetched_ahead"), 0);
    expect(&f, prefetch_of(&f, 0, 5, 100, 400), PSP_PREFETCH_REPLY, PSC_OK);
    wait_for_fetched(&f, 400);
    fixture_close(&f, true);
}

static void too_many_announcements_cost_bounded_memory(void **state)
{
    (void)state;
    shard_fixture_t f;
    start(&f, 1);
    for (uint64_t k = 0; k < 3 * PS_PREFETCHER_MESSAGES; k++)
        expect(&f, prefetch_of(&f, 0, 9, k * 20 % N_ROWS, 4096), PSP_PREFETCH_REPLY, PSC_OK);
    assert_true(psp_pool_bytes_out(f.pool) <= PS_PREFETCHER_BYTES + (64 << 10));
    assert_true(fixture_counter(&f, 0, "rows.announced_dropped") > 0);
    /* None of them stands in the way, and no rows are lost. */
    expect_rows(&f, 3, 400);
    for (uint64_t first = 0; first < N_ROWS; first += BATCH)
        expect_rows(&f, first, BATCH);
    psp_message_t goodbye = {.kind = PSP_GOODBYE}, reply;
    (void)fixture_send(&f, 0, &goodbye);
    fixture_wait(&f, &reply, NULL);
    assert_true(ps_shard_finished(f.shard)); /* it does not wait for announcements */
    fixture_close(&f, true);
}

static void rows_that_are_never_pulled_do_not_keep_others_out(void **state)
{
    (void)state;
    shard_fixture_t f;
    start(&f, 1);
    for (uint64_t clock = 1; clock < 20; clock++) {
        psp_message_t message = {.kind = PSP_CLOCK}, reply;
        f.clock[0] = clock;
        (void)fixture_send(&f, 0, &message);
        fixture_wait(&f, &reply, NULL);
        /* More than a tenth of the memory, pulled never. */
        expect(&f, prefetch_of(&f, 0, clock, clock * 700, 2000), PSP_PREFETCH_REPLY, PSC_OK);
        for (int i = 0; i < 20; i++)
            fixture_poll(&f);
    }
    psp_message_t message = {.kind = PSP_CLOCK}, reply;
    f.clock[0] = 30;
    (void)fixture_send(&f, 0, &message);
    fixture_wait(&f, &reply, NULL);
    uint64_t fetched = fixture_counter(&f, 0, "store.fetched_ahead");
    expect(&f, prefetch_of(&f, 0, 30, 100, 300), PSP_PREFETCH_REPLY, PSC_OK);
    wait_for_fetched(&f, fetched + 200);
    fixture_close(&f, true);
}

static void a_prefetch_of_an_unknown_table_is_refused_and_one_of_strangers_dropped(void **state)
{
    (void)state;
    shard_fixture_t f;
    const fixture_options_t options = {
        .memory_bytes = PS_STORE_MIN_MEMORY, .n_servers = 2, .n_workers = 1};
    fixture_open(&f, &options);
    fixture_hello(&f, 0);
    expect(&f, prefetch_of(&f, 0, 0, 0, 3), PSP_PREFETCH_REPLY, PSC_NOT_FOUND);
    const psp_open_table_t table = {
        .name = "t", .dim = D, .init = "zeros", .optimizer = "sgd", .seed = 3};
    assert_int_equal(fixture_open_table(&f, &table, NULL, NULL), PSC_OK);
    /* Of a hundred rows some belong to the other server. */
    expect(&f, prefetch_of(&f, 0, 0, 0, 100), PSP_PREFETCH_REPLY, PSC_OK);
    fixture_poll(&f);
    assert_int_equal(fixture_counter(&f, 0, "rows.announced_dropped"), 100);
    /* Ids in two pieces, which do not stay where they came in. */
    uint8_t bytes[256];
    psp_buffer_t *buffer;
    psp_message_t message = {.kind = PSP_PREFETCH, .request = fixture_header(&f, 0)};
    message.u.prefetch = (psp_prefetch_t){.table = 1, .table_epoch = 1};
    assert_int_equal(psp_message_pack(f.pool, &message, &buffer, NULL), PSC_OK);
    size_t size = buffer->size;
    memcpy(bytes, buffer->data, size);
    psp_buffer_put(buffer);
    for (int piece = 0; piece < 2; piece++) {
        const uint8_t field[] = {0x7a, 8, 1, 0, 0, 0, 0, 0, 0, 0};
        const uint8_t between[] = {0x20, 1}; /* the field `when` */
        memcpy(bytes + size, field, sizeof field);
        memcpy(bytes + size + sizeof field, between, sizeof between);
        size += sizeof field + sizeof between;
    }
    fixture_send_bytes(&f, 0, PSP_PREFETCH, bytes, size);
    expect(&f, message.request.request, PSP_PREFETCH_REPLY, PSC_OK);
    fixture_poll(&f);
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_in_memory_when_they_are_pulled),
        cmocka_unit_test(it_is_answered_before_what_its_session_waits_for),
        cmocka_unit_test(what_comes_too_late_is_dropped),
        cmocka_unit_test(too_many_announcements_cost_bounded_memory),
        cmocka_unit_test(rows_that_are_never_pulled_do_not_keep_others_out),
        cmocka_unit_test(a_prefetch_of_an_unknown_table_is_refused_and_one_of_strangers_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
