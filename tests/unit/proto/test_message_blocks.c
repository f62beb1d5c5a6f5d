/* Blocks of exports, imports and watches: what is packed comes back, what disagrees is refused. */
#include "tests/support/cmocka.h"
#include "tests/support/message_fixture.h"

#include <string.h>

enum { N = 3, D = 5, K = 7 };

static const uint64_t ids[N] = {0, 77, UINT64_MAX};
static const uint32_t counts[2 * N] = {1, 2, 3, 4, UINT32_MAX, 0};

static void fill(const psp_block_t *block, uint8_t *rows, size_t row_bytes, uint8_t *state)
{
    for (size_t i = 0; i < N * row_bytes; i++)
        rows[i] = (uint8_t)(i * 7 % 60); /* finite in every format */
    for (size_t i = 0; i < N * K * sizeof(float); i++)
        state[i] = (uint8_t)(i * 3);
    memcpy(block->ids, ids, sizeof ids);
    memcpy(block->rows, rows, N * row_bytes);
    memcpy(block->counts, counts, sizeof counts);
    memcpy(block->state, state, N * K * sizeof(float));
}

static void unpack(message_fixture_t *f, psp_buffer_t *buffer)
{
    assert_int_equal(psp_message_unpack(f->scratch, buffer->kind, buffer->data, buffer->size,
                                        &f->message, &f->error),
                     PSC_OK);
}

static void a_block_comes_back_in_every_format(void **state)
{
    message_fixture_t *f = *state;
    uint8_t rows[N * D * 8], row_state[N * K * sizeof(float)];
    for (uint32_t format = 0; format < PSP_FORMATS; format++) {
        psp_export_reply_t reply = {.dim = D,
                                    .format = (psp_format_t)format,
                                    .state_floats = K,
                                    .next_size = 12,
                                    .next = "where it is",
                                    .n = N,
                                    .counts = (const uint8_t *)counts};
        const size_t row_bytes = psp_row_bytes(reply.format, D);
        psp_buffer_t *buffer;
        psp_block_t block;
        assert_int_equal(
            psp_export_reply_begin(f->pool, &some_reply, &reply, &buffer, &block, &f->error),
            PSC_OK);
        assert_int_equal((uintptr_t)block.rows % 64, 0);
        fill(&block, rows, row_bytes, row_state);
        unpack(f, buffer);
        assert_reply_ok(&f->message.reply);
        const psp_export_reply_t *got = &f->message.u.export_reply;
        assert_int_equal(got->dim, D);
        assert_int_equal(got->format, format);
        assert_int_equal(got->state_floats, K);
        assert_int_equal(got->next_size, 12);
        assert_memory_equal(got->next, "where it is", 12);
        assert_int_equal(got->n, N);
        assert_memory_equal(got->ids, ids, sizeof ids);
        assert_memory_equal(got->counts, counts, sizeof counts);
        assert_memory_equal(got->state, row_state, sizeof row_state);
        assert_ptr_equal(got->rows, block.rows);
        psp_buffer_put(buffer);
    }
}

static void an_import_comes_back(void **state)
{
    message_fixture_t *f = *state;
    uint8_t rows[N * D * 8], row_state[N * K * sizeof(float)];
    psp_import_t import = {.rows = {.table = 3, .table_epoch = 4, .dim = D, .n = N},
                           .state_floats = K,
                           .counts = (const uint8_t *)counts};
    psp_buffer_t *buffer;
    psp_block_t block;
    assert_int_equal(psp_import_begin(f->pool, &some_request, &import, &buffer, &block, &f->error),
                     PSC_OK);
    fill(&block, rows, D * sizeof(float), row_state);
    unpack(f, buffer);
    assert_request_header(&f->message.request);
    const psp_import_t *got = &f->message.u.import;
    assert_int_equal(got->rows.table, 3);
    assert_int_equal(got->rows.table_epoch, 4);
    assert_int_equal(got->rows.kind, PSP_PUSH_ASSIGN);
    assert_int_equal(got->rows.dim, D);
    assert_int_equal(got->rows.n, N);
    assert_int_equal(got->state_floats, K);
    assert_memory_equal(got->rows.ids, ids, sizeof ids);
    assert_memory_equal(got->rows.rows, rows, N * D * sizeof(float));
    assert_memory_equal(got->counts, counts, sizeof counts);
    assert_memory_equal(got->state, row_state, sizeof row_state);
    psp_buffer_put(buffer);

    import = (psp_import_t){.rows = {.dim = D }};
    assert_int_equal(psp_import_begin(f->pool, &some_request, &import, &buffer, &block, &f->error),
                     PSC_OK);
    unpack(f, buffer);
    assert_int_equal(f->message.u.import.rows.n, 0);
    assert_null(f->message.u.import.counts);
    psp_buffer_put(buffer);

    import.rows.dim = 0;
    assert_int_equal(psp_import_begin(f->pool, &some_request, &import, &buffer, &block, &f->error),
                     PSC_INVALID_ARGUMENT);
    import.rows.dim = D;
    import.rows.n = SIZE_MAX / 8;
    assert_int_equal(psp_import_begin(f->pool, &some_request, &import, &buffer, &block, &f->error),
                     PSC_INVALID_ARGUMENT);
}

static void what_is_asked_and_told_comes_back(void **state)
{
    message_fixture_t *f = *state;
    psp_buffer_t *buffer;
    psp_message_t m = {.kind = PSP_EXPORT,
                       .request = some_request,
                       .u.export = {.table = 1,
                                    .table_epoch = 2,
                                    .format = PSP_FORMAT_BF16,
                                    .want_state = true,
                                    .max_rows = 9,
                                    .cursor_size = PSP_CURSOR_MAX}};
    memset(m.u.export.cursor, 0xc3, PSP_CURSOR_MAX);
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_OK);
    unpack(f, buffer);
    assert_memory_equal(&f->message.u.export, &m.u.export, sizeof m.u.export);
    psp_buffer_put(buffer);
    m.u.export.cursor_size = PSP_CURSOR_MAX + 1;
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
    m.u.export.cursor_size = 0;
    m.u.export.format = (psp_format_t)PSP_FORMATS;
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);

    m = (psp_message_t){.kind = PSP_IMPORT_REPLY,
                        .reply = some_reply,
                        .u.import_reply = {.rows = UINT64_MAX, .created = 5}};
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_OK);
    unpack(f, buffer);
    assert_reply_ok(&f->message.reply);
    assert_true(f->message.u.import_reply.rows == UINT64_MAX);
    assert_int_equal(f->message.u.import_reply.created, 5);
    psp_buffer_put(buffer);
}

static void what_is_watched_comes_back(void **state)
{
    message_fixture_t *f = *state;
    psp_buffer_t *buffer;
    psp_block_t block;
    const float rows[N][D] = {{1}, {2}, {3}};
    psp_message_t m = {.kind = PSP_WATCH,
                       .request = some_request,
                       .u.watch = {.table = 1,
                                   .table_epoch = 2,
                                   .format = PSP_FORMAT_F16,
                                   .want_rows = true,
                                   .max_rows = 9,
                                   .wait_ms = 77,
                                   .end = true,
                                   .cursor_size = 3,
                                   .cursor = "ab"}};
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_OK);
    unpack(f, buffer);
    assert_memory_equal(&f->message.u.watch, &m.u.watch, sizeof m.u.watch);
    psp_buffer_put(buffer);
    for (int with_rows = 0; with_rows < 2; with_rows++) {
        const psp_watch_reply_t reply = {
            .lost = with_rows == 0,
            .block = {.dim = D,
                      .next_size = 4,
                      .next = "abc",
                      .n = N,
                      .rows = with_rows != 0 ? (const uint8_t *)rows : NULL}};
        assert_int_equal(
            psp_watch_reply_begin(f->pool, &some_reply, &reply, &buffer, &block, &f->error),
            PSC_OK);
        memcpy(block.ids, ids, sizeof ids);
        if (with_rows != 0)
            memcpy(block.rows, rows, sizeof rows);
        unpack(f, buffer);
        assert_reply_ok(&f->message.reply);
        const psp_watch_reply_t *got = &f->message.u.watch_reply;
        assert_int_equal(got->lost, with_rows == 0);
        assert_int_equal(got->block.n, N);
        assert_string_equal((const char *)got->block.next, "abc");
        assert_memory_equal(got->block.ids, ids, sizeof ids);
        assert_true((got->block.rows != NULL) == (with_rows != 0));
        if (with_rows != 0)
            assert_memory_equal(got->block.rows, rows, sizeof rows);
        psp_buffer_put(buffer);
    }
    f->size = 0;
    put_reply_header(f);
    put_number(f, 2, 2);
    put_fixed64(f, 14, 1);
    put_bytes(f, 15, rows, 12);
    expect_refused(f, PSP_WATCH_REPLY, "rows as ids");
}

/* A block by hand, of one row of two floats with one float of state. */
static void write_block(message_fixture_t *f, size_t row_bytes, size_t n_counts, size_t state_bytes)
{
    const uint8_t zeros[64] = {0};
    f->size = 0;
    put_request_header(f);
    put_number(f, 4, 2);
    put_number(f, 6, 1);
    put_bytes(f, 9, zeros, n_counts * 4);
    put_bytes(f, 10, zeros, state_bytes);
    put_fixed64(f, 14, 1);
    put_bytes(f, 15, zeros, row_bytes);
}

static void counts_that_disagree_are_refused(void **state)
{
    message_fixture_t *f = *state;
    write_block(f, 8, 2, 4);
    expect_ok(f, PSP_IMPORT);
    write_block(f, 8, 0, 4);
    expect_ok(f, PSP_IMPORT);
    write_block(f, 12, 2, 4);
    expect_refused(f, PSP_IMPORT, "rows as ids");
    write_block(f, 0, 2, 4);
    expect_refused(f, PSP_IMPORT, "rows as ids");
    write_block(f, 8, 1, 4);
    expect_refused(f, PSP_IMPORT, "two counts");
    write_block(f, 8, 2, 8);
    expect_refused(f, PSP_IMPORT, "state of as many");
    write_block(f, 8, 2, 0);
    expect_refused(f, PSP_IMPORT, "state of as many");

    const uint8_t cursor[PSP_CURSOR_MAX + 1] = {0};
    f->size = 0;
    put_request_header(f);
    put_bytes(f, 6, cursor, sizeof cursor);
    expect_refused(f, PSP_EXPORT, "cursor 65");
    f->size = 0;
    put_request_header(f);
    put_number(f, 4, PSP_FORMATS);
    expect_refused(f, PSP_EXPORT, "format 4");
    f->size = 0;
    put_reply_header(f);
    put_number(f, 2, 2);
    put_bytes(f, 5, cursor, sizeof cursor);
    expect_refused(f, PSP_EXPORT_REPLY, "cursor 65");
    f->size = 0;
    put_reply_header(f);
    expect_refused(f, PSP_EXPORT_REPLY, "dim 0");
}

static void as_many_rows_as_are_told_fit_into_a_message(void **state)
{
    message_fixture_t *f = *state;
    const uint32_t dims[] = {1, 3, 64, 1000, PSP_DIM_MAX};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        for (uint32_t k = 0; k <= 2 * dims[i] + 1; k += 2 * dims[i] + 1) {
            const size_t limit = PSP_MAX_MESSAGE_BYTES;
            psp_export_reply_t reply = {.dim = dims[i],
                                        .state_floats = k,
                                        .next_size = PSP_CURSOR_MAX,
                                        .n = psp_rows_per_block(dims[i], k, limit),
                                        .counts = (const uint8_t *)counts};
            psp_buffer_t *buffer;
            psp_block_t block;
            assert_int_equal(
                psp_export_reply_begin(f->pool, &some_reply, &reply, &buffer, &block, &f->error),
                PSC_OK);
            assert_true(buffer->size <= limit);
            psp_buffer_put(buffer);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MESSAGE_TEST(a_block_comes_back_in_every_format),
        MESSAGE_TEST(an_import_comes_back),
        MESSAGE_TEST(what_is_asked_and_told_comes_back),
        MESSAGE_TEST(what_is_watched_comes_back),
        MESSAGE_TEST(counts_that_disagree_are_refused),
        MESSAGE_TEST(as_many_rows_as_are_told_fit_into_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
