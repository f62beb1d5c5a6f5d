/* Workers that read rows straight from a shard's memory: who may, what they are told, and that what
 * they find there is what pulls show. */
#include "common/shared_rows.h"
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include <string.h>

#define D 5

static const fixture_options_t two_workers = {
    .memory_bytes = PS_STORE_MIN_MEMORY, .n_servers = 1, .n_workers = 2, .direct = PS_DIRECT_AUTO};

static psp_message_t expect(shard_fixture_t *f, uint64_t request, psc_status_t code)
{
    psp_message_t reply;
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.reply.request, request);
    assert_int_equal(reply.reply.error.code, code);
    return reply;
}

static void start(shard_fixture_t *f, const fixture_options_t *options)
{
    fixture_open(f, options);
    for (uint32_t w = 0; w < options->n_workers; w++)
        fixture_hello(f, w);
}

static void open_table(shard_fixture_t *f, uint64_t expire_after, psp_precision_t precision)
{
    psp_open_table_t table = {.name = "t",
                              .dim = D,
                              .init = "uniform",
                              .optimizer = "sgd",
                              .precision = precision,
                              .expire_after = expire_after};
    psp_open_table_reply_t reply;
    assert_int_equal(fixture_open_table(f, &table, &reply, NULL), PSC_OK);
    assert_int_equal(reply.table, 1);
}

static psp_attach_reply_t attach(shard_fixture_t *f, uint64_t host)
{
    psp_message_t message = {.kind = PSP_ATTACH, .u.attach = {.host = host}};
    psp_message_t reply = expect(f, fixture_send(f, 0, &message), PSC_OK);
    return reply.u.attach_reply;
}

static void push_ones(shard_fixture_t *f, uint32_t worker, const uint64_t *ids, size_t n)
{
    float rows[8 * D];
    for (size_t i = 0; i < n * D; i++)
        rows[i] = 1.0F;
    psp_request_header_t header = fixture_header(f, worker);
    psp_push_t push = {.table = 1, .table_epoch = 1, .kind = PSP_PUSH_DELTA, .dim = D, .n = n};
    (void)expect(f, fixture_push(f, worker, &header, push, ids, rows), PSC_OK);
}

static psp_pull_reply_t pull(shard_fixture_t *f, const uint64_t *ids, size_t n, bool scan)
{
    psp_request_header_t header = fixture_header(f, 0);
    psp_pull_t pull = {.table = 1,
                       .table_epoch = 1,
                       .staleness = PSP_STALENESS_ASYNC,
                       .want_places = true,
                       .scan = scan,
                       .n = n};
    return expect(f, fixture_pull(f, 0, &header, pull, ids), PSC_OK).u.pull_reply;
}

static uint32_t place_at(const psp_pull_reply_t *reply, size_t i)
{
    uint32_t place;
    memcpy(&place, reply->places + i * sizeof place, sizeof place);
    return place;
}

static void a_row_is_read_where_the_reply_says_and_is_what_it_says(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &two_workers);
    psp_attach_reply_t where = attach(&f, psc_memory_host());
    psc_shared_map_t map;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_shared_open(where.path, where.key, &map, &error), PSC_OK);
    open_table(&f, 0, PSP_F32);
    const uint64_t ids[3] = {5, UINT64_MAX, 9};
    push_ones(&f, 0, ids, 2);
    for (int round = 0; round < 3; round++) {
        psp_pull_reply_t reply = pull(&f, ids, 3, false);
        assert_non_null(reply.places);
        assert_int_equal(place_at(&reply, 2), 0); /* never pushed */
        assert_int_equal(place_at(&reply, 3), map.layout);
        for (size_t i = 0; i < 2; i++) {
            float row[32]; /* room for the widest step of a copy, or compilers warn of it */
            const size_t bytes = D * sizeof *row;
            psc_shared_wanted_t wanted = {
                .id = ids[i], .place = place_at(&reply, i), .table = 1, .bytes = bytes};
            assert_true(psc_shared_holds(&map, wanted.place, bytes));
            assert_true(psc_shared_read(&map, &wanted, row));
            assert_memory_equal(row, reply.rows + i * bytes, bytes);
        }
        push_ones(&f, 1, ids, 2);
    }
    psc_shared_unmap(&map);
    fixture_close(&f, true);
}

static void whoever_is_elsewhere_or_not_allowed_is_told_nothing(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    const uint64_t ids[1] = {5};
    start(&f, &two_workers);
    assert_string_equal(attach(&f, 0).path, "");
    assert_string_equal(attach(&f, psc_memory_host() + 1).path, "");
    open_table(&f, 0, PSP_F32);
    push_ones(&f, 0, ids, 1);
    assert_null(pull(&f, ids, 1, false).places);
    assert_string_equal(attach(&f, psc_memory_host()).path, ""); /* too late: there is a row */
    fixture_close(&f, true);
    fixture_options_t off = two_workers;
    off.direct = PS_DIRECT_OFF;
    start(&f, &off);
    assert_string_equal(attach(&f, psc_memory_host()).path, "");
    fixture_close(&f, true);
}

static void rows_that_are_not_what_they_show_have_no_places(void **unused)
{
    (void)unused;
    const uint64_t ids[1] = {5};
    for (int what = 0; what < 3; what++) {
        shard_fixture_t f;
        start(&f, &two_workers);
        (void)attach(&f, psc_memory_host());
        open_table(&f, what == 0 ? 5 : 0, what == 1 ? PSP_BF16 : PSP_F32);
        push_ones(&f, 0, ids, 1);
        assert_null(pull(&f, ids, 1, what == 2).places);
        fixture_close(&f, true);
    }
}

static void clocks_and_the_end_are_published(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    psc_shared_map_t map;
    psc_error_t error = PSC_ERROR_INIT;
    start(&f, &two_workers);
    psp_attach_reply_t where = attach(&f, psc_memory_host());
    assert_int_equal(psc_shared_open(where.path, where.key, &map, &error), PSC_OK);
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(psc_shared_clock(&map), 0);
        f.clock[w] = 3 + w;
        psp_message_t clock = {.kind = PSP_CLOCK};
        (void)expect(&f, fixture_send(&f, w, &clock), PSC_OK);
    }
    assert_int_equal(psc_shared_clock(&map), 3);
    assert_false(psc_shared_is_closed(&map));
    psp_message_t goodbye = {.kind = PSP_GOODBYE, .u.goodbye = {.status = 0}};
    (void)expect(&f, fixture_send(&f, 0, &goodbye), PSC_OK);
    assert_int_equal(psc_shared_clock(&map), 4);
    assert_false(psc_shared_is_closed(&map));
    goodbye = (psp_message_t){.kind = PSP_GOODBYE, .u.goodbye = {.status = PSC_INTERNAL}};
    (void)expect(&f, fixture_send(&f, 1, &goodbye), PSC_OK);
    assert_true(psc_shared_is_closed(&map));
    psc_shared_unmap(&map);
    fixture_close(&f, true);
}

static void touches_are_counted_and_bad_ones_refused(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &two_workers);
    open_table(&f, 0, PSP_F32);
    uint64_t ids[700];
    for (size_t i = 0; i < 700; i++)
        ids[i] = i % 350 == 0 ? 5 : 1000 + i;
    push_ones(&f, 0, ids, 1);
    psp_message_t message = {
        .kind = PSP_TOUCHES,
        .u.touches = {.table = 1, .table_epoch = 1, .n = 700, .ids = (const uint8_t *)ids}};
    (void)expect(&f, fixture_send(&f, 0, &message), PSC_OK);
    assert_int_equal(fixture_counter(&f, 0, "rows.touched"), 2);
    assert_int_equal(fixture_counter(&f, 0, "requests.touches"), 1);
    message.u.touches.n = 0;
    (void)expect(&f, fixture_send(&f, 0, &message), PSC_OK);
    message.u.touches.table = 2;
    (void)expect(&f, fixture_send(&f, 0, &message), PSC_NOT_FOUND);
    message.u.touches.table = 1;
    message.u.touches.table_epoch = 7;
    (void)expect(&f, fixture_send(&f, 0, &message), PSC_MISMATCH);
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_read_where_the_reply_says_and_is_what_it_says),
        cmocka_unit_test(whoever_is_elsewhere_or_not_allowed_is_told_nothing),
        cmocka_unit_test(rows_that_are_not_what_they_show_have_no_places),
        cmocka_unit_test(clocks_and_the_end_are_published),
        cmocka_unit_test(touches_are_counted_and_bad_ones_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
