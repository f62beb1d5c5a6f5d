/*
 * A shard driven by messages: what it refuses, what waits for what, and that it answers each
 * request once. tests/unit/ps/table/test_shard_model.c compares values with a model.
 */
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include "common/alloc.h"
#include "common/slots.h"
#include "ps/serve/serve.h"

#include <math.h>
#include <string.h>

#define D 5

static const fixture_options_t one_worker = {
    .memory_bytes = PS_STORE_MIN_MEMORY, .n_servers = 1, .n_workers = 1};
static const fixture_options_t three_workers = {
    .memory_bytes = PS_STORE_MIN_MEMORY, .n_servers = 1, .n_workers = 3};

static psp_open_table_t table_options(const char *name)
{
    psp_open_table_t options = {.dim = D, .init = "uniform", .optimizer = "sgd", .seed = 3};
    (void)snprintf(options.name, sizeof options.name, "%s", name);
    return options;
}

/* A fixture whose workers have said hello, with table 1. */
static void start(shard_fixture_t *f, const fixture_options_t *options)
{
    fixture_open(f, options);
    for (uint32_t w = 0; w < options->n_workers; w++)
        fixture_hello(f, w);
    psp_open_table_t table = table_options("t");
    table.table = options->rank == 0 ? 0 : 1;
    psp_open_table_reply_t reply;
    assert_int_equal(fixture_open_table(f, &table, &reply, NULL), PSC_OK);
    assert_int_equal(reply.table, 1);
    assert_int_equal(reply.table_epoch, 1);
    assert_true(reply.max_rows >= 64);
}

static psp_pull_t pull_of(size_t n)
{
    return (psp_pull_t){.table = 1, .table_epoch = 1, .staleness = PSP_STALENESS_ASYNC, .n = n};
}

static psp_push_t push_of(psp_push_kind_t kind, size_t n)
{
    return (psp_push_t){
        .table = 1, .table_epoch = 1, .kind = kind, .learning_rate = 0.5f, .dim = D, .n = n};
}

/* The next reply must be this one. */
static psp_message_t expect(shard_fixture_t *f, uint64_t request, psc_status_t code)
{
    psp_message_t reply;
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.reply.request, request);
    assert_int_equal(reply.reply.error.code, code);
    return reply;
}

static void expect_silence(shard_fixture_t *f)
{
    psp_message_t reply;
    for (int i = 0; i < 50; i++)
        fixture_poll(f);
    assert_false(fixture_take(f, &reply, NULL));
}

static void sessions_are_given_once_and_never_alike(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &three_workers);
    assert_true(f.session[0] != 0 && f.session[1] != 0 && f.session[2] != 0);
    assert_true(f.session[0] != f.session[1] && f.session[1] != f.session[2] &&
                f.session[0] != f.session[2]);
    psp_message_t hello = {.kind = PSP_HELLO, .u.hello = {.worker = 1, .n_workers = 3}};
    (void)expect(&f, fixture_send(&f, 1, &hello), PSC_IN_USE);
    hello.u.hello.worker = 2; /* not whom it came from */
    (void)expect(&f, fixture_send(&f, 1, &hello), PSC_PROTOCOL);
    fixture_close(&f, true);
}

static void requests_that_do_not_belong_here_are_refused(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    fixture_open(&f, &one_worker);
    psp_message_t clock = {.kind = PSP_CLOCK};
    (void)expect(&f, fixture_send(&f, 0, &clock), PSC_PROTOCOL); /* before any hello */
    fixture_hello(&f, 0);
    const psp_request_header_t good = fixture_header(&f, 0);
    for (int what = 0; what < 5; what++) {
        clock.request = good;
        clock.request.request = f.next_request++;
        if (what == 0)
            clock.request.protocol = 2;
        else if (what == 1)
            clock.request.cluster++;
        else if (what == 2)
            clock.request.session++;
        else if (what == 3)
            clock.request.map_epoch = 2;
        uint64_t request = fixture_send(&f, 0, &clock);
        /* Nothing in a message of another protocol is believed, not even its number. */
        psp_message_t reply =
            expect(&f, what == 0 ? 0 : request, what == 4 ? PSC_OK : PSC_PROTOCOL);
        if (what != 4)
            assert_int_equal(reply.reply.error.rank, 0);
    }
    psp_message_t goodbye = {.kind = PSP_GOODBYE};
    (void)expect(&f, fixture_send(&f, 0, &goodbye), PSC_OK);
    clock.request = fixture_header(&f, 0);
    (void)expect(&f, fixture_send(&f, 0, &clock), PSC_PROTOCOL);
    fixture_close(&f, true);
}

static void malformed_messages_are_answered_and_do_no_harm(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &one_worker);
    static const uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff, 0x7f, 0x01, 0x02, 0x80};
    psp_message_t reply;
    for (uint32_t kind = PSP_HELLO; kind <= PSP_GOODBYE; kind += 2) {
        fixture_send_bytes(&f, 0, kind, garbage, sizeof garbage);
        assert_true(fixture_take(&f, &reply, NULL));
        assert_int_equal(reply.kind, kind + 1);
        assert_int_equal(reply.reply.error.code, PSC_PROTOCOL);
    }
    fixture_send_bytes(&f, 0, PSP_PULL_REPLY, garbage, sizeof garbage);
    fixture_send_bytes(&f, 0, 999, garbage, sizeof garbage);
    fixture_send_bytes(&f, 0, PSP_PULL_REPLY, garbage, 0);
    assert_false(fixture_take(&f, &reply, NULL));
    assert_int_equal(fixture_counter(&f, 0, "requests.malformed"), 11);
    assert_int_equal(f.failure.code, PSC_OK);
    fixture_close(&f, true);
}

static void a_table_with_other_options_is_a_mismatch_with_both_values(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &one_worker);
    psc_error_t error;
    psp_open_table_reply_t reply;
    psp_open_table_t options = table_options("t");
    assert_int_equal(fixture_open_table(&f, &options, &reply, NULL), PSC_OK);
    assert_int_equal(reply.table, 1);
    /* Defaults written out are the same table. */
    options.n_init_params = 2;
    options.init_params[0] = -0.05;
    options.init_params[1] = 0.05;
    assert_int_equal(fixture_open_table(&f, &options, &reply, NULL), PSC_OK);
    options.init_params[1] = 0.5;
    assert_int_equal(fixture_open_table(&f, &options, NULL, &error), PSC_MISMATCH);
    assert_non_null(strstr(error.message, "high of uniform 0.05, "));
    assert_non_null(strstr(error.message, "0.5 "));
    options = table_options("t");
    options.dim = 77;
    assert_int_equal(fixture_open_table(&f, &options, NULL, &error), PSC_MISMATCH);
    assert_non_null(strstr(error.message, "dim 5"));
    assert_non_null(strstr(error.message, "77"));
    options = table_options("t");
    options.seed = 4;
    assert_int_equal(fixture_open_table(&f, &options, NULL, &error), PSC_MISMATCH);
    assert_non_null(strstr(error.message, "seed 3"));
    options = table_options("t");
    (void)snprintf(options.optimizer, sizeof options.optimizer, "adagrad");
    assert_int_equal(fixture_open_table(&f, &options, NULL, &error), PSC_MISMATCH);
    assert_non_null(strstr(error.message, "optimizer sgd"));
    options = table_options("second");
    assert_int_equal(fixture_open_table(&f, &options, &reply, NULL), PSC_OK);
    assert_int_equal(reply.table, 2);
    fixture_close(&f, true);
}

static void impossible_tables_are_refused_with_the_reason(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &one_worker);
    psc_error_t error;
    psp_open_table_t options = table_options("u");
    (void)snprintf(options.init, sizeof options.init, "ones");
    assert_int_equal(fixture_open_table(&f, &options, NULL, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "zeros, uniform, normal, word2vec"));
    options = table_options("u");
    (void)snprintf(options.optimizer, sizeof options.optimizer, "atom");
    assert_int_equal(fixture_open_table(&f, &options, NULL, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "sgd, momentum, nesterov, adagrad"));
    assert_non_null(strstr(error.message, "ftrl"));
    options = table_options("u");
    options.n_optimizer_params = 1;
    assert_int_equal(fixture_open_table(&f, &options, NULL, &error), PSC_INVALID_ARGUMENT);
    options = table_options("u");
    options.dim = PSP_DIM_MAX; /* 64 rows of 256 KiB do not fit into 8 MiB */
    assert_int_equal(fixture_open_table(&f, &options, NULL, &error), PSC_INVALID_ARGUMENT);
    fixture_close(&f, true);
}

static void a_new_table_has_a_name_that_can_be_shown(void **unused)
{
    (void)unused;
    static const struct {
        const char *name, *said;
    } bad[] = {{"a\033[31m", "byte 0x1b at offset 1"},
               {"two\nlines", "byte 0x0a at offset 3"},
               {"caf\xe9", "byte 0xe9 at offset 3"},
               {"\xc2\x9b", "byte 0xc2 at offset 0"}};
    shard_fixture_t f;
    start(&f, &one_worker);
    psc_error_t error;
    psp_open_table_reply_t reply;
    psp_open_table_t options;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        options = table_options(bad[i].name);
        assert_int_equal(fixture_open_table(&f, &options, NULL, &error), PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, bad[i].said));
    }
    options = table_options("gr\xc3\xb6\xc3\x9f \xe4\xb8\xad");
    assert_int_equal(fixture_open_table(&f, &options, NULL, NULL), PSC_OK);
    /* One that is there, as a checkpoint may bring it, opens as ever. */
    ps_table_t wanted, *made;
    options = table_options(bad[1].name);
    assert_int_equal(ps_table_define(&options, &wanted, NULL), PSC_OK);
    assert_int_equal(ps_serve_make_table(f.shard, 9, &wanted, &made, NULL), PSC_OK);
    assert_int_equal(fixture_open_table(&f, &options, &reply, NULL), PSC_OK);
    assert_int_equal(reply.table, 9);
    fixture_close(&f, true);
}

static void only_server_0_gives_numbers(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    fixture_options_t options = one_worker;
    options.rank = 1;
    options.n_servers = 2;
    start(&f, &options);
    psc_error_t error;
    psp_open_table_t table = table_options("other");
    assert_int_equal(fixture_open_table(&f, &table, NULL, &error), PSC_PROTOCOL);
    table.table = 1; /* is "t" */
    assert_int_equal(fixture_open_table(&f, &table, NULL, &error), PSC_MISMATCH);
    table.table = 70000;
    assert_int_equal(fixture_open_table(&f, &table, NULL, &error), PSC_INVALID_ARGUMENT);
    table.table = 9; /* numbers may have gaps */
    assert_int_equal(fixture_open_table(&f, &table, NULL, &error), PSC_OK);
    /* Rows of the other server's slots are not taken. */
    psc_slot_map_t map;
    assert_int_equal(psc_slot_map_init(&map, 2, NULL), PSC_OK);
    uint64_t id = 0;
    while (psc_slot_owner(&map, psc_row_hash(1, id)) == 1)
        id++;
    psp_message_t reply =
        expect(&f, fixture_pull(&f, 0, NULL, pull_of(1), &id), PSC_INVALID_ARGUMENT);
    assert_int_equal(reply.reply.error.id, id);
    assert_int_equal(reply.reply.error.rank, 1);
    fixture_close(&f, true);
}

static void reading_creates_nothing(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &one_worker);
    const uint64_t ids[] = {0, UINT64_MAX, 7, 0};
    psp_pull_t pull = pull_of(4);
    pull.want_versions = true;
    psp_message_t reply = expect(&f, fixture_pull(&f, 0, NULL, pull, ids), PSC_OK);
    const psp_pull_reply_t *rows = &reply.u.pull_reply;
    assert_int_equal(rows->n, 4);
    assert_int_equal(rows->dim, D);
    assert_non_null(rows->states);
    assert_non_null(rows->versions);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(rows->states[i], PSP_ROW_INITIAL);
        for (size_t b = 0; b < 4; b++)
            assert_int_equal(rows->versions[4 * i + b], 0);
    }
    assert_memory_equal(rows->rows, rows->rows + 3 * D * sizeof(float), D * sizeof(float));
    assert_memory_not_equal(rows->rows, rows->rows + D * sizeof(float), D * sizeof(float));
    assert_int_equal(fixture_counter(&f, 0, "store.rows_new"), 0);
    assert_int_equal(fixture_counter(&f, 0, "rows.pulled_initial"), 4);
    reply = expect(&f, fixture_pull(&f, 0, NULL, pull_of(0), NULL), PSC_OK);
    assert_int_equal(reply.u.pull_reply.n, 0);
    fixture_close(&f, true);
}

static void a_push_is_refused_whole(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &one_worker);
    const uint64_t ids[] = {10, 11, 12};
    float rows[3 * D] = {0};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3 * PSP_FORMATS; i++) {
        rows[D + 2] = bad[i % 3];
        psp_push_t coded = push_of(PSP_PUSH_DELTA, 3);
        coded.format = (psp_format_t)(i / 3);
        psp_message_t reply =
            expect(&f, fixture_push(&f, 0, NULL, coded, ids, rows), PSC_INVALID_ARGUMENT);
        assert_int_equal(reply.reply.error.id, 11);
        assert_non_null(strstr(reply.reply.error.message, "row 11"));
    }
    rows[D + 2] = 0;
    psp_push_t push = push_of(PSP_PUSH_GRADIENT, 3);
    push.learning_rate = NAN;
    (void)fixture_push(&f, 0, NULL, push, ids, rows);
    (void)expect(&f, 0, PSC_PROTOCOL); /* refused while it is unpacked */
    push = push_of(PSP_PUSH_GRADIENT, 3);
    push.table = 2;
    (void)expect(&f, fixture_push(&f, 0, NULL, push, ids, rows), PSC_NOT_FOUND);
    push = push_of(PSP_PUSH_GRADIENT, 3);
    push.table_epoch = 2;
    (void)expect(&f, fixture_push(&f, 0, NULL, push, ids, rows), PSC_MISMATCH);
    push = push_of(PSP_PUSH_GRADIENT, 1);
    push.dim = D + 1;
    (void)expect(&f, fixture_push(&f, 0, NULL, push, ids, rows), PSC_MISMATCH);
    psp_request_header_t header = fixture_header(&f, 0);
    header.sequence = 0;
    (void)expect(&f, fixture_push(&f, 0, &header, push_of(PSP_PUSH_DELTA, 1), ids, rows),
                 PSC_PROTOCOL);
    assert_int_equal(fixture_counter(&f, 0, "store.rows_new"), 0);
    (void)expect(&f, fixture_push(&f, 0, NULL, push_of(PSP_PUSH_DELTA, 0), NULL, NULL), PSC_OK);
    fixture_close(&f, true);
}

/* Pulls a row in a format; what it decodes to. */
static void pull_coded(shard_fixture_t *f, uint64_t id, psp_format_t format, float row_out[D])
{
    psp_pull_t pull = pull_of(1);
    pull.format = format;
    psp_message_t reply = expect(f, fixture_pull(f, 0, NULL, pull, &id), PSC_OK);
    assert_int_equal(reply.u.pull_reply.format, format);
    assert_int_equal(reply.u.pull_reply.n, 1);
    psp_row_format(format)->decode(row_out, reply.u.pull_reply.rows, D);
}

static void through(psp_format_t format, const float *row, float row_out[D])
{
    uint8_t bytes[D * sizeof(float)];
    psp_row_format(format)->encode(bytes, row, D);
    psp_row_format(format)->decode(row_out, bytes, D);
}

static void rows_come_and_go_in_every_format(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &one_worker);
    const float rows[3][D] = {{1, -0.3f, 1e-5f, 77.7f, 0}, {0.1f, 2, 3, 4, 5}, {9, 8, 7, 6, 0.5f}};
    for (uint32_t format = 0; format < PSP_FORMATS; format++) {
        const uint64_t ids[3] = {100 + format, 200 + format, 100 + format};
        float expected[2][D], last[D], got[D];
        through((psp_format_t)format, rows[0], expected[0]);
        through((psp_format_t)format, rows[1], expected[1]);
        psp_push_t push = push_of(PSP_PUSH_ASSIGN, 2);
        push.format = (psp_format_t)format;
        (void)expect(&f, fixture_push(&f, 0, NULL, push, ids, rows[0]), PSC_OK);
        push.kind = PSP_PUSH_DELTA;
        push.n = 3; /* a duplicate: summed as floats */
        (void)expect(&f, fixture_push(&f, 0, NULL, push, ids, rows[0]), PSC_OK);
        through((psp_format_t)format, rows[2], last);
        for (size_t c = 0; c < D; c++) {
            expected[0][c] += expected[0][c] + last[c];
            expected[1][c] += expected[1][c];
        }
        for (size_t i = 0; i < 2; i++) {
            float as[D];
            for (uint32_t wanted = 0; wanted < PSP_FORMATS; wanted++) {
                pull_coded(&f, ids[i], (psp_format_t)wanted, got);
                through((psp_format_t)wanted, expected[i], as);
                assert_memory_equal(got, as, sizeof as);
            }
        }
    }
    assert_int_equal(fixture_counter(&f, 0, "push.merged"), PSP_FORMATS);
    fixture_close(&f, true);
}

static void memory_that_is_short_for_decoding_changes_no_row(void **unused)
{
    (void)unused;
    const float row[D] = {1, 2, 3, 4, 5};
    const uint64_t id = 5;
    bool failed = false;
    for (unsigned long n = 1; n <= 8; n++) {
        shard_fixture_t f;
        float before[D], after[D];
        start(&f, &one_worker);
        (void)expect(&f, fixture_push(&f, 0, NULL, push_of(PSP_PUSH_ASSIGN, 1), &id, row), PSC_OK);
        pull_coded(&f, id, PSP_FORMAT_F32, before);
        psp_push_t push = push_of(PSP_PUSH_DELTA, 1);
        push.format = PSP_FORMAT_INT8;
        psp_request_header_t header = fixture_header(&f, 0);
        psp_buffer_t *buffer;
        uint8_t *ids_out, *rows_out;
        assert_int_equal(psp_push_begin(f.pool, &header, &push, &buffer, &ids_out, &rows_out, NULL),
                         PSC_OK);
        memcpy(ids_out, &id, sizeof id);
        psp_row_format(push.format)->encode(rows_out, row, D);
        buffer->peer = 0;
        psc_error_t error = PSC_ERROR_INIT;
        psc_alloc_fail_at(n);
        psc_status_t st = ps_shard_handle(f.shard, buffer, &error);
        psc_alloc_fail_at(0);
        if (st == PSC_NO_MEMORY && strstr(error.message, "push of 1 rows") != NULL) {
            failed = true;
            (void)expect(&f, header.request, PSC_NO_MEMORY);
        } else if (st == PSC_OK && f.first != NULL) {
            (void)expect(&f, header.request, PSC_OK);
            pull_coded(&f, id, PSP_FORMAT_F32, after);
            for (size_t c = 0; c < D; c++)
                assert_true(after[c] >= before[c]);
        }
        fixture_close(&f, true);
    }
    assert_true(failed);
}

static void batches_beyond_the_limit_are_refused(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &one_worker);
    psp_open_table_t options = table_options("t");
    psp_open_table_reply_t table;
    assert_int_equal(fixture_open_table(&f, &options, &table, NULL), PSC_OK);
    size_t n = (size_t)table.max_rows + 1;
    uint64_t *ids = psc_alloc_zeroed(n, sizeof *ids);
    float *rows = psc_alloc_zeroed(n * D, sizeof *rows);
    (void)expect(&f, fixture_pull(&f, 0, NULL, pull_of(n), ids), PSC_INVALID_ARGUMENT);
    for (uint32_t format = 0; format < PSP_FORMATS; format++) {
        psp_push_t push = push_of(PSP_PUSH_DELTA, n);
        push.format = (psp_format_t)format;
        (void)expect(&f, fixture_push(&f, 0, NULL, push, ids, rows), PSC_INVALID_ARGUMENT);
    }
    (void)expect(&f, fixture_pull(&f, 0, NULL, pull_of(n - 1), ids), PSC_OK);
    (void)expect(&f, fixture_push(&f, 0, NULL, push_of(PSP_PUSH_DELTA, n - 1), ids, rows), PSC_OK);
    psc_free(ids);
    psc_free(rows);
    fixture_close(&f, true);
}

static void a_repeated_push_is_acknowledged_and_not_applied_again(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &one_worker);
    const uint64_t id = 5;
    const float assign[D] = {1, 2, 3, 4, 5}, delta[D] = {1, 1, 1, 1, 1};
    (void)expect(&f, fixture_push(&f, 0, NULL, push_of(PSP_PUSH_ASSIGN, 1), &id, assign), PSC_OK);
    psp_request_header_t header = fixture_header(&f, 0);
    for (int i = 0; i < 3; i++)
        (void)expect(&f, fixture_push(&f, 0, &header, push_of(PSP_PUSH_DELTA, 1), &id, delta),
                     PSC_OK);
    psp_message_t reply = expect(&f, fixture_pull(&f, 0, NULL, pull_of(1), &id), PSC_OK);
    assert_null(reply.u.pull_reply.states);
    const float expected[D] = {2, 3, 4, 5, 6};
    assert_memory_equal(reply.u.pull_reply.rows, expected, sizeof expected);
    assert_int_equal(fixture_counter(&f, 0, "push.repeated"), 2);
    fixture_close(&f, true);
}

static void a_pull_waits_for_clocks_and_later_requests_behind_it(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &three_workers);
    const uint64_t id = 1;
    const float delta[D] = {1, 1, 1, 1, 1};
    psp_pull_t pull = pull_of(1);
    pull.staleness = 1;
    f.clock[0] = 3;
    uint64_t pulled = fixture_pull(&f, 0, NULL, pull, &id);
    uint64_t pushed = fixture_push(&f, 0, NULL, push_of(PSP_PUSH_DELTA, 1), &id, delta);
    expect_silence(&f);
    assert_int_equal(ps_shard_waiting(f.shard, 0), 2);
    assert_int_equal(ps_shard_waiting(f.shard, UINT32_MAX), 2);
    for (uint32_t w = 0; w < 3; w++) {
        psp_message_t clock = {.kind = PSP_CLOCK, .u.clock = {.progress = 10 + w}};
        f.clock[w] = 2;
        if (w == 0)
            continue; /* worker 0's own clock would queue behind its pull */
        psp_message_t reply = expect(&f, fixture_send(&f, w, &clock), PSC_OK);
        assert_int_equal(reply.u.clock_reply.min_clock, 0);
        assert_int_equal(reply.u.clock_reply.total_progress, w == 1 ? 11 : 23);
        expect_silence(&f);
    }
    /* Worker 0 itself is at clock 0 still and waits for itself: it leaves. */
    psp_message_t goodbye = {.kind = PSP_GOODBYE};
    uint64_t left = fixture_send(&f, 0, &goodbye);
    (void)expect(&f, pulled, PSC_INTERRUPTED);
    (void)expect(&f, pushed, PSC_OK);
    (void)expect(&f, left, PSC_OK);
    assert_int_equal(ps_shard_departed(f.shard), 1);
    /* Worker 1 is served once worker 2 gets there. */
    f.clock[1] = 4;
    pulled = fixture_pull(&f, 1, NULL, pull, &id);
    psp_message_t clock = {.kind = PSP_CLOCK};
    expect_silence(&f);
    f.clock[2] = 3;
    uint64_t own = fixture_send(&f, 2, &clock);
    (void)expect(&f, own, PSC_OK);
    expect_silence(&f); /* worker 1 has told clock 2 so far */
    goodbye = (psp_message_t){.kind = PSP_GOODBYE};
    left = fixture_send(&f, 1, &goodbye);
    (void)expect(&f, pulled, PSC_INTERRUPTED);
    (void)expect(&f, left, PSC_OK);
    assert_false(ps_shard_finished(f.shard));
    goodbye = (psp_message_t){.kind = PSP_GOODBYE};
    (void)expect(&f, fixture_send(&f, 2, &goodbye), PSC_OK);
    assert_true(ps_shard_finished(f.shard));
    assert_int_equal(ps_shard_worst_status(f.shard), 0);
    fixture_close(&f, true);
}

static void once_a_worker_has_left_with_a_failure_the_others_are_refused(void **unused)
{
    (void)unused;
    for (uint32_t status = PSC_INTERRUPTED; status <= PSC_INTERRUPTED + 1; status++) {
        psc_status_t refusal = status == PSC_INTERRUPTED ? PSC_INTERRUPTED : PSC_PEER_GONE;
        shard_fixture_t f;
        start(&f, &three_workers);
        const uint64_t id = 5;
        psp_pull_t pull = pull_of(1);
        pull.staleness = 0;
        f.clock[1] = 3;
        uint64_t waits_clock = fixture_pull(&f, 1, NULL, pull, &id);
        psp_message_t barrier = {.kind = PSP_BARRIER};
        uint64_t waits_others = fixture_send(&f, 2, &barrier);
        expect_silence(&f);
        psp_message_t goodbye = {.kind = PSP_GOODBYE, .u.goodbye = {.status = status}};
        (void)expect(&f, fixture_send(&f, 0, &goodbye), PSC_OK);
        psp_message_t reply = expect(&f, waits_clock, refusal);
        assert_non_null(strstr(reply.reply.error.message, "worker 0 has left with status"));
        (void)expect(&f, waits_others, refusal);
        psp_message_t clock = {.kind = PSP_CLOCK};
        (void)expect(&f, fixture_send(&f, 1, &clock), refusal);
        pull.staleness = PSP_STALENESS_ASYNC;
        (void)expect(&f, fixture_pull(&f, 2, NULL, pull, &id), refusal);
        for (uint32_t w = 1; w < 3; w++) {
            goodbye = (psp_message_t){.kind = PSP_GOODBYE};
            (void)expect(&f, fixture_send(&f, w, &goodbye), PSC_OK);
        }
        assert_true(ps_shard_finished(f.shard));
        assert_int_equal(ps_shard_worst_status(f.shard), status);
        fixture_close(&f, true);
    }
}

static void a_slow_clock_lets_go_those_who_waited_for_it(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &three_workers);
    const uint64_t id = 1;
    psp_pull_t pull = pull_of(1);
    pull.staleness = 0;
    uint64_t pulled[3];
    for (uint32_t w = 0; w < 3; w++) {
        psp_message_t clock = {.kind = PSP_CLOCK};
        f.clock[w] = 1;
        uint64_t request = fixture_send(&f, w, &clock);
        (void)expect(&f, request, PSC_OK);
        pulled[w] = fixture_pull(&f, w, NULL, pull, &id);
        if (w < 2)
            expect_silence(&f);
    }
    /* The last clock frees workers 0 and 1; worker 2's pull never waits. */
    (void)expect(&f, pulled[0], PSC_OK);
    (void)expect(&f, pulled[1], PSC_OK);
    (void)expect(&f, pulled[2], PSC_OK);
    assert_int_equal(fixture_counter(&f, 0, "requests.waited_clock"), 2);
    fixture_close(&f, true);
}

static void a_barrier_holds_all_but_those_who_left(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    start(&f, &three_workers);
    psp_message_t barrier = {.kind = PSP_BARRIER};
    uint64_t first = fixture_send(&f, 0, &barrier);
    barrier.request.protocol = 0;
    uint64_t second = fixture_send(&f, 1, &barrier);
    expect_silence(&f);
    psp_message_t goodbye = {.kind = PSP_GOODBYE};
    uint64_t left = fixture_send(&f, 2, &goodbye);
    (void)expect(&f, left, PSC_OK);
    (void)expect(&f, first, PSC_OK);
    (void)expect(&f, second, PSC_OK);
    /* The next generation: a worker may be one ahead, not two. */
    barrier = (psp_message_t){.kind = PSP_BARRIER, .u.barrier = {.generation = 1}};
    first = fixture_send(&f, 1, &barrier);
    expect_silence(&f);
    barrier.request.protocol = 0;
    second = fixture_send(&f, 0, &barrier);
    (void)expect(&f, second, PSC_OK);
    (void)expect(&f, first, PSC_OK);
    barrier = (psp_message_t){.kind = PSP_BARRIER, .u.barrier = {.generation = 1}};
    (void)expect(&f, fixture_send(&f, 0, &barrier), PSC_OK); /* repeated: passed already */
    fixture_close(&f, true);
}

static void memory_that_is_short_fails_the_start(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    fixture_open(&f, &one_worker);
    ps_shard_options_t options = {.store = f.store,
                                  .pool = f.pool,
                                  .n_servers = 1,
                                  .n_workers = 4,
                                  .max_message_bytes = PSP_MAX_MESSAGE_BYTES};
    psc_status_t st = PSC_NO_MEMORY;
    for (unsigned long n = 1; st != PSC_OK; n++) {
        ps_shard_t *shard = NULL;
        psc_alloc_fail_at(n);
        st = ps_shard_create(&options, &shard, NULL);
        psc_alloc_fail_at(0);
        assert_true(n < 100);
        assert_true(st == PSC_OK ? n > 2 : st == PSC_NO_MEMORY && shard == NULL);
        ps_shard_destroy(shard);
    }
    options.n_workers = 0;
    ps_shard_t *shard = NULL;
    assert_int_equal(ps_shard_create(&options, &shard, NULL), PSC_INVALID_ARGUMENT);
    ps_shard_destroy(NULL);
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_are_given_once_and_never_alike),
        cmocka_unit_test(requests_that_do_not_belong_here_are_refused),
        cmocka_unit_test(malformed_messages_are_answered_and_do_no_harm),
        cmocka_unit_test(a_table_with_other_options_is_a_mismatch_with_both_values),
        cmocka_unit_test(impossible_tables_are_refused_with_the_reason),
        cmocka_unit_test(a_new_table_has_a_name_that_can_be_shown),
        cmocka_unit_test(only_server_0_gives_numbers),
        cmocka_unit_test(reading_creates_nothing),
        cmocka_unit_test(a_push_is_refused_whole),
        cmocka_unit_test(rows_come_and_go_in_every_format),
        cmocka_unit_test(memory_that_is_short_for_decoding_changes_no_row),
        cmocka_unit_test(batches_beyond_the_limit_are_refused),
        cmocka_unit_test(a_repeated_push_is_acknowledged_and_not_applied_again),
        cmocka_unit_test(a_pull_waits_for_clocks_and_later_requests_behind_it),
        cmocka_unit_test(a_slow_clock_lets_go_those_who_waited_for_it),
        cmocka_unit_test(once_a_worker_has_left_with_a_failure_the_others_are_refused),
        cmocka_unit_test(a_barrier_holds_all_but_those_who_left),
        cmocka_unit_test(memory_that_is_short_fails_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
