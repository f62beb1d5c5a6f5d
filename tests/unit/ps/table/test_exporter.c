/*
 * Export and import against a shard: every row once, as it was when its block was made, while
 * others push; and what was exported goes on elsewhere, to the last bit.
 */
#include "common/alloc.h"
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"
#include "tests/support/test_seed.h"

#include <string.h>

enum { DIM = 6, IDS = 3000, STATE_MAX = 2 * DIM };

/* Everything that a shard tells of a table. */
typedef struct dump {
    size_t n, state_floats;
    uint64_t ids[IDS];
    uint32_t counts[IDS][2];
    bool no_counts; /* an import brings none */
    float rows[IDS][DIM];
    float state[IDS][STATE_MAX];
} dump_t;

static void start(shard_fixture_t *f, const psp_open_table_t *options)
{
    const fixture_options_t two = {.memory_bytes = 8 << 20, .n_servers = 1, .n_workers = 2};
    psp_open_table_reply_t opened;
    psc_error_t error = PSC_ERROR_INIT;
    fixture_open(f, &two);
    fixture_hello(f, 0);
    fixture_hello(f, 1);
    if (fixture_open_table(f, options, &opened, &error) != PSC_OK)
        fail_msg("%s", error.message);
}

static psp_open_table_t adam(void)
{
    return (psp_open_table_t){.name = "t",
                              .dim = DIM,
                              .init = "normal",
                              .optimizer = "adam",
                              .seed = 3,
                              .precision = PSP_BF16,
                              .state_precision = PSP_BF16,
                              .per_row_steps = true};
}

/* n rows of random ids, floats in [-1, 1). */
static void push_some(shard_fixture_t *f, test_random_t *random, psp_push_kind_t kind, size_t n)
{
    uint64_t ids[64];
    float rows[64][DIM];
    psp_message_t reply;
    for (size_t i = 0; i < n; i++) {
        ids[i] = test_below(random, IDS);
        for (size_t c = 0; c < DIM; c++)
            rows[i][c] = (float)test_below(random, 2000) / 1000.0f - 1.0f;
    }
    const psp_push_t push = {
        .table = 1, .table_epoch = 1, .kind = kind, .learning_rate = 0.1f, .dim = DIM, .n = n};
    (void)fixture_push(f, 1, NULL, push, ids, rows[0]);
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_OK);
}

static psp_message_t ask(const psp_export_reply_t *last, uint32_t max_rows, bool want_state)
{
    psp_message_t m = {
        .kind = PSP_EXPORT,
        .u.export = {.table = 1, .table_epoch = 1, .max_rows = max_rows, .want_state = want_state}};
    if (last != NULL) {
        m.u.export.cursor_size = last->next_size;
        memcpy(m.u.export.cursor, last->next, last->next_size);
    }
    return m;
}

static void add_block(dump_t *dump, const psp_export_reply_t *block)
{
    assert_true(dump->n + block->n <= IDS);
    assert_true(block->state_floats <= STATE_MAX);
    dump->state_floats = block->state_floats;
    for (size_t i = 0; i < block->n; i++) {
        const size_t state_bytes = block->state_floats * sizeof(float), at = dump->n + i;
        dump->ids[at] = psp_id_at(block->ids, i);
        memcpy(dump->rows[at], block->rows + i * sizeof dump->rows[at], sizeof dump->rows[at]);
        if (block->counts != NULL)
            memcpy(dump->counts[at], block->counts + i * 8, 8);
        memcpy(dump->state[at], block->state + i * state_bytes, state_bytes);
    }
    dump->n += block->n;
}

static dump_t *export_all(shard_fixture_t *f, uint32_t max_rows)
{
    dump_t *dump = psc_alloc_zeroed(1, sizeof *dump);
    psp_message_t m = ask(NULL, max_rows, true), reply;
    assert_non_null(dump);
    do {
        (void)fixture_send(f, 0, &m);
        fixture_wait(f, &reply, NULL);
        assert_int_equal(reply.reply.error.code, PSC_OK);
        add_block(dump, &reply.u.export_reply);
        m = ask(&reply.u.export_reply, max_rows, true);
    } while (m.u.export.cursor_size != 0);
    return dump;
}

static psp_message_t import(shard_fixture_t *f, const dump_t *dump, size_t first, size_t n,
                            const psp_request_header_t *header)
{
    const psp_import_t import = {.rows = {.table = 1, .table_epoch = 1, .dim = DIM, .n = n},
                                 .state_floats = (uint32_t)dump->state_floats,
                                 .counts = dump->no_counts ? NULL : (const uint8_t *)dump->counts};
    const psp_request_header_t own = header != NULL ? *header : fixture_header(f, 0);
    const size_t state_bytes = dump->state_floats * sizeof(float);
    psp_buffer_t *buffer;
    psp_block_t block;
    psp_message_t reply;
    assert_int_equal(psp_import_begin(f->pool, &own, &import, &buffer, &block, NULL), PSC_OK);
    memcpy(block.ids, dump->ids + first, n * sizeof *dump->ids);
    if (!dump->no_counts)
        memcpy(block.counts, dump->counts + first, n * sizeof *dump->counts);
    memcpy(block.rows, dump->rows + first, n * sizeof *dump->rows);
    for (size_t i = 0; i < n; i++)
        memcpy(block.state + i * state_bytes, dump->state[first + i], state_bytes);
    fixture_send_bytes(f, 0, PSP_IMPORT, buffer->data, buffer->size);
    psp_buffer_put(buffer);
    fixture_wait(f, &reply, NULL);
    return reply;
}

static void assert_same(const dump_t *a, const dump_t *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->state_floats, b->state_floats);
    assert_memory_equal(a->ids, b->ids, sizeof a->ids);
    assert_memory_equal(a->counts, b->counts, sizeof a->counts);
    assert_memory_equal(a->rows, b->rows, sizeof a->rows);
    assert_memory_equal(a->state, b->state, sizeof a->state);
}

/* With each of some optimizers: exported, imported into an empty table, and trained further. */
static void what_was_exported_goes_on_elsewhere_to_the_last_bit(void **unused)
{
    (void)unused;
    test_random_t random = test_random_start();
    const char *const optimizers[] = {"adam", "adagrad", "sgd", "rowwise_adagrad"};
    for (size_t o = 0; o < sizeof optimizers / sizeof optimizers[0]; o++) {
        shard_fixture_t from, to;
        psp_open_table_t options = adam();
        memcpy(options.optimizer, optimizers[o], strlen(optimizers[o]) + 1);
        if (o != 0)
            options.state_precision = PSP_F32;
        start(&from, &options);
        start(&to, &options);
        for (int i = 0; i < 60; i++)
            push_some(&from, &random, i % 3 == 0 ? PSP_PUSH_DELTA : PSP_PUSH_GRADIENT, 64);
        dump_t *dump = export_all(&from, 0);
        uint64_t created = 0;
        for (size_t at = 0; at < dump->n; at += 100) {
            const size_t n = dump->n - at < 100 ? dump->n - at : 100;
            const psp_message_t reply = import(&to, dump, at, n, NULL);
            assert_int_equal(reply.reply.error.code, PSC_OK);
            assert_int_equal(reply.u.import_reply.rows, n);
            created += reply.u.import_reply.created;
        }
        assert_int_equal(created, dump->n);
        dump_t *copy = export_all(&to, 37);
        assert_same(dump, copy);
        psc_free(dump);
        psc_free(copy);
        test_random_t again = random;
        for (int i = 0; i < 20; i++) {
            push_some(&from, &random, PSP_PUSH_GRADIENT, 64);
            push_some(&to, &again, PSP_PUSH_GRADIENT, 64);
        }
        dump = export_all(&from, 500);
        copy = export_all(&to, 0);
        assert_same(dump, copy);
        psc_free(dump);
        psc_free(copy);
        assert_int_equal(fixture_counter(&from, 0, "store.written_back"), 0); /* nothing flushed */
        fixture_close(&from, true);
        fixture_close(&to, true);
    }
}

/* What a row was, by a pull just before. */
static void pull_row(shard_fixture_t *f, uint64_t id, float row_out[DIM])
{
    psp_message_t reply;
    const psp_pull_t pull = {
        .table = 1, .table_epoch = 1, .staleness = PSP_STALENESS_ASYNC, .n = 1};
    (void)fixture_pull(f, 1, NULL, pull, &id);
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_OK);
    memcpy(row_out, reply.u.pull_reply.rows, DIM * sizeof(float));
}

static void every_row_is_told_once_as_it_is_while_others_push(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    test_random_t random = test_random_start();
    psp_open_table_t options = adam();
    bool *was_there = psc_alloc_zeroed(IDS, sizeof *was_there);
    bool *told = psc_alloc_zeroed(IDS, sizeof *told);
    dump_t *block = psc_alloc_zeroed(1, sizeof *block);
    assert_true(was_there != NULL && told != NULL && block != NULL);
    start(&f, &options);
    for (int i = 0; i < 40; i++)
        push_some(&f, &random, PSP_PUSH_GRADIENT, 64);
    dump_t *first = export_all(&f, 0);
    for (size_t i = 0; i < first->n; i++)
        was_there[first->ids[i]] = true;
    psp_message_t m = ask(NULL, 50, true), reply;
    do {
        (void)fixture_send(&f, 0, &m);
        fixture_wait(&f, &reply, NULL);
        assert_int_equal(reply.reply.error.code, PSC_OK);
        block->n = 0;
        add_block(block, &reply.u.export_reply);
        m = ask(&reply.u.export_reply, 1 + (uint32_t)test_below(&random, 90), true);
        for (size_t i = 0; i < block->n; i++) {
            float now[DIM];
            assert_false(told[block->ids[i]]);
            told[block->ids[i]] = true;
            pull_row(&f, block->ids[i], now);
            assert_memory_equal(now, block->rows[i], sizeof now);
        }
        push_some(&f, &random, PSP_PUSH_GRADIENT, 16);
    } while (m.u.export.cursor_size != 0);
    for (size_t i = 0; i < IDS; i++)
        assert_true(told[i] || !was_there[i]);
    psc_free(first);
    psc_free(block);
    psc_free(told);
    psc_free(was_there);
    fixture_close(&f, true);
}

/* Both ask in turn, so that the walk changes hands. */
static void exports_at_a_time_do_not_disturb_each_other(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    test_random_t random = test_random_start();
    psp_open_table_t options = adam();
    start(&f, &options);
    for (int i = 0; i < 30; i++)
        push_some(&f, &random, PSP_PUSH_GRADIENT, 64);
    dump_t *whole = export_all(&f, 0), *dumps[2];
    psp_message_t asked[2], reply;
    for (int w = 0; w < 2; w++) {
        dumps[w] = psc_alloc_zeroed(1, sizeof *dumps[w]);
        assert_non_null(dumps[w]);
        asked[w] = ask(NULL, w == 0 ? 7 : 11, true);
    }
    uint64_t now_us = 1;
    bool under_way[2] = {false, false}, done[2] = {false, false};
    while (!done[0] || !done[1]) {
        for (uint32_t w = 0; w < 2; w++) {
            if (!under_way[w] && !done[w])
                (void)fixture_send(&f, w, &asked[w]);
            under_way[w] = !done[w];
        }
        uint32_t worker;
        ps_shard_set_time(f.shard, now_us += 20000);
        fixture_wait(&f, &reply, &worker);
        assert_int_equal(reply.reply.error.code, PSC_OK);
        add_block(dumps[worker], &reply.u.export_reply);
        asked[worker] = ask(&reply.u.export_reply, worker == 0 ? 7 : 11, true);
        done[worker] = asked[worker].u.export.cursor_size == 0;
        under_way[worker] = false;
    }
    for (int w = 0; w < 2; w++) {
        assert_same(whole, dumps[w]);
        psc_free(dumps[w]);
    }
    psc_free(whole);
    fixture_close(&f, true);
}

static void rows_with_nothing_of_their_own_are_not_told(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    psp_open_table_t options = adam();
    options.admit_after = 2;
    options.admit_counters = 16;
    options.expire_after = 3;
    start(&f, &options);
    const uint64_t seen_once = 5, seen_twice = 6;
    const float row[DIM] = {1};
    const uint64_t pushed[] = {seen_once, seen_twice, seen_twice};
    psp_message_t reply;
    const psp_push_t push = {.table = 1, .table_epoch = 1, .dim = DIM, .n = 1};
    for (size_t i = 0; i < 3; i++) {
        (void)fixture_push(&f, 0, NULL, push, &pushed[i], row);
        fixture_wait(&f, &reply, NULL);
    }
    dump_t *dump = export_all(&f, 0);
    assert_int_equal(dump->n, 1);
    assert_true(dump->ids[0] == seen_twice);
    psc_free(dump);
    for (int clock = 0; clock < 5; clock++) {
        for (uint32_t w = 0; w < 2; w++) {
            psp_message_t m = {.kind = PSP_CLOCK};
            f.clock[w]++;
            (void)fixture_send(&f, w, &m);
            fixture_wait(&f, &reply, NULL);
        }
    }
    dump = export_all(&f, 0);
    assert_int_equal(dump->n, 0);
    /* What is imported is admitted, and lives from now on. */
    *dump = (dump_t){.n = 1, .state_floats = 2 * DIM, .ids = {seen_once}, .counts = {{4, 4}}};
    dump->rows[0][0] = 0.5f;
    assert_int_equal(import(&f, dump, 0, 1, NULL).reply.error.code, PSC_OK);
    dump_t *copy = export_all(&f, 0);
    assert_same(dump, copy);
    psc_free(dump);
    psc_free(copy);
    fixture_close(&f, true);
}

static void refused(shard_fixture_t *f, const dump_t *dump, psc_status_t code, const char *text)
{
    const psp_message_t reply = import(f, dump, 0, dump->n, NULL);
    assert_int_equal(reply.reply.error.code, code);
    if (strstr(reply.reply.error.message, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", reply.reply.error.message, text);
}

static void an_import_is_applied_whole_and_once_or_not_at_all(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    psp_open_table_t options = adam();
    start(&f, &options);
    dump_t *dump = psc_alloc_zeroed(1, sizeof *dump);
    assert_non_null(dump);
    dump->n = 2;
    dump->ids[0] = 1;
    dump->ids[1] = 2;
    dump->counts[0][0] = 9;
    dump->state_floats = 2 * DIM - 1;
    refused(&f, dump, PSC_MISMATCH, "optimizer adam has 12");
    dump->state_floats = 2 * DIM;
    dump->no_counts = true; /* a program's own values */
    dump->state[1][3] = __builtin_inff();
    refused(&f, dump, PSC_INVALID_ARGUMENT, "state of row 2");
    dump->state[1][3] = 0;
    dump->rows[0][1] = __builtin_nanf("");
    refused(&f, dump, PSC_INVALID_ARGUMENT, "row 1");
    dump->rows[0][1] = 0;
    dump->no_counts = false;
    dump_t *empty = export_all(&f, 0);
    assert_int_equal(empty->n, 0);
    psc_free(empty);
    psp_request_header_t header = fixture_header(&f, 0);
    header.sequence = 0;
    assert_int_equal(import(&f, dump, 0, 2, &header).reply.error.code, PSC_PROTOCOL);

    header = fixture_header(&f, 0);
    psp_message_t reply = import(&f, dump, 0, 2, &header);
    assert_int_equal(reply.reply.error.code, PSC_OK);
    assert_int_equal(reply.u.import_reply.created, 2);
    push_some(&f, &(test_random_t){.key = 1, .n = 0}, PSP_PUSH_DELTA, 64);
    dump_t *before = export_all(&f, 0);
    reply = import(&f, dump, 0, 2, &header); /* the same once more */
    assert_int_equal(reply.reply.error.code, PSC_OK);
    assert_int_equal(reply.u.import_reply.rows, 2);
    assert_int_equal(reply.u.import_reply.created, 0);
    dump_t *after = export_all(&f, 0);
    assert_same(before, after);
    /* A row that exists never gets a version that it had. */
    const uint32_t version = 1;
    dump->counts[0][0] = version;
    assert_int_equal(import(&f, dump, 0, 1, NULL).reply.error.code, PSC_OK);
    psc_free(after);
    after = export_all(&f, 0);
    for (size_t i = 0; i < after->n; i++)
        assert_true(after->ids[i] != 1 || after->counts[i][0] > before->counts[i][0]);
    psc_free(before);
    psc_free(after);
    psc_free(dump);
    fixture_close(&f, true);
}

static void what_is_no_cursor_or_no_table_is_refused(void **unused)
{
    (void)unused;
    shard_fixture_t f;
    psp_open_table_t options = adam();
    psp_message_t m, reply;
    start(&f, &options);
    m = ask(NULL, 0, false);
    m.u.export.cursor_size = 5;
    (void)fixture_send(&f, 0, &m);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_INVALID_ARGUMENT);
    m = ask(NULL, 0, false);
    m.u.export.cursor_size = 12;
    memset(m.u.export.cursor, 0xff, 12);
    (void)fixture_send(&f, 0, &m);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_INVALID_ARGUMENT);
    m = ask(NULL, 0, false);
    m.u.export.table = 9;
    (void)fixture_send(&f, 0, &m);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_NOT_FOUND);
    m = ask(NULL, 0, false);
    m.u.export.table_epoch = 9;
    (void)fixture_send(&f, 0, &m);
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_MISMATCH);
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_exported_goes_on_elsewhere_to_the_last_bit),
        cmocka_unit_test(every_row_is_told_once_as_it_is_while_others_push),
        cmocka_unit_test(exports_at_a_time_do_not_disturb_each_other),
        cmocka_unit_test(rows_with_nothing_of_their_own_are_not_told),
        cmocka_unit_test(an_import_is_applied_whole_and_once_or_not_at_all),
        cmocka_unit_test(what_is_no_cursor_or_no_table_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
