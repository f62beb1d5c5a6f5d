/*
 * Unpacking bytes of foreign clients, written by hand: fields in any order and in pieces, and all
 * that is malformed, refused in words.
 */
#include "common/slots.h"
#include "proto/message.h"

#include "tests/support/cmocka.h"
#include "tests/support/message_fixture.h"
#include "tests/support/test_seed.h"

#include <math.h>

/* An open table message with one field replaced. */
static void put_open_table(message_fixture_t *f, uint32_t but_not)
{
    f->size = 0;
    put_request_header(f);
    if (but_not != 2)
        put_bytes(f, 2, "in", 2);
    if (but_not != 3)
        put_number(f, 3, 10);
    if (but_not != 4)
        put_bytes(f, 4, "zeros", 5);
    if (but_not != 6)
        put_bytes(f, 6, "sgd", 3);
}

static void ids_may_come_packed_single_or_in_pieces(void **state)
{
    message_fixture_t *f = *state;
    const uint64_t ids[6] = {0, UINT64_MAX, 42, 1, 2, 3};
    /* all single */
    f->size = 0;
    for (int i = 0; i < 6; i++)
        put_fixed64(f, 15, ids[i]);
    put_request_header(f);
    expect_ok(f, PSP_PULL);
    assert_int_equal(f->message.u.pull.n, 6);
    assert_memory_equal(f->message.u.pull.ids, ids, sizeof ids);
    /* a packed piece, a single one, an empty piece, small fields between, a packed piece */
    f->size = 0;
    put_bytes(f, 15, ids, 16);
    put_request_header(f);
    put_fixed64(f, 15, ids[2]);
    put_bytes(f, 15, NULL, 0);
    put_number(f, 2, 9);
    put_bytes(f, 15, ids + 3, 24);
    put_number(f, 4, 8);
    expect_ok(f, PSP_PULL);
    assert_int_equal(f->message.u.pull.table, 9);
    assert_int_equal(f->message.u.pull.staleness, 8);
    assert_int_equal(f->message.u.pull.n, 6);
    assert_memory_equal(f->message.u.pull.ids, ids, sizeof ids);
}

static void the_last_rows_field_wins(void **state)
{
    message_fixture_t *f = *state;
    const float first[3] = {1, 2, 3};
    const float last[2] = {4, 5};
    f->size = 0;
    put_request_header(f);
    put_number(f, 6, 2);
    put_bytes(f, 15, first, sizeof first);
    put_fixed64(f, 14, 7);
    put_bytes(f, 15, last, sizeof last);
    expect_ok(f, PSP_PUSH);
    assert_int_equal(f->message.u.push.n, 1);
    assert_memory_equal(f->message.u.push.rows, last, sizeof last);
}

static void unknown_fields_of_any_size_are_ignored(void **state)
{
    message_fixture_t *f = *state;
    static const uint8_t nothing[300000];
    f->size = 0;
    put_bytes(f, 500, nothing, sizeof nothing);
    put_number(f, 2, 3);
    put_number(f, 77, UINT64_MAX);
    put_fixed64(f, 78, 1);
    put_tag(f, (1u << 29) - 1, 5);
    put_raw(f, "abcd", 4);
    put_bytes(f, 1, "\x08\x01\xf8\x07\x05", 5); /* header with an unknown field 127 */
    put_number(f, 3, 4);
    put_fixed64(f, 15, 11);
    expect_ok(f, PSP_PULL);
    assert_int_equal(f->message.u.pull.table, 3);
    assert_int_equal(f->message.u.pull.table_epoch, 4);
    assert_int_equal(f->message.u.pull.n, 1);
}

static void a_second_header_is_refused(void **state)
{
    message_fixture_t *f = *state;
    f->size = 0;
    put_request_header(f);
    put_number(f, 2, 3);
    put_request_header(f);
    expect_refused(f, PSP_PULL, "two headers");
}

static void malformed_bytes_are_refused_in_words(void **state)
{
    message_fixture_t *f = *state;
    f->size = 0;
    expect_refused(f, PSP_PULL, "no header");
    expect_refused(f, PSP_PULL_REPLY, "no header");

    put_bytes(f, 1, "\x08\x02", 2);
    expect_refused(f, PSP_PULL, "version 2");

    f->size = 0;
    put_request_header(f);
    put_byte(f, 0x80);
    expect_refused(f, PSP_PULL, "cut off");

    f->size = 0;
    put_request_header(f);
    put_tag(f, 15, 2);
    put_varint(f, 17);
    put_raw(f, "0123456789abcdef", 16);
    expect_refused(f, PSP_PULL, "longer than what holds it");

    f->size = 0;
    put_tag(f, 15, 2);
    put_varint(f, UINT64_MAX);
    expect_refused(f, PSP_PULL, "longer than what holds it");

    f->size = 0;
    put_request_header(f);
    put_bytes(f, 15, "0123456", 7);
    expect_refused(f, PSP_PULL, "field ids");

    f->size = 0;
    put_request_header(f);
    put_number(f, 15, 5);
    expect_refused(f, PSP_PULL, "wrong wire type");

    f->size = 0;
    put_request_header(f);
    put_bytes(f, 2, "1", 1);
    expect_refused(f, PSP_PULL, "field table");

    for (uint32_t type = 3; type <= 7; type++) {
        if (type == 5)
            continue;
        f->size = 0;
        put_request_header(f);
        put_tag(f, 9, type);
        expect_refused(f, PSP_PULL, type <= 4 ? "group" : "wire type");
    }

    f->size = 0;
    put_request_header(f);
    put_varint(f, 2); /* field number 0 */
    put_varint(f, 0);
    expect_refused(f, PSP_PULL, "field number");

    f->size = 0;
    put_bytes(f, 1, "\x08\x01\x0b", 3); /* a group within the header */
    expect_refused(f, PSP_PULL, "group");

    f->size = 0;
    put_bytes(f, 1, "\x08", 1); /* cut off within the header */
    expect_refused(f, PSP_PULL, "field header");
}

static void unknown_kinds_are_refused(void **state)
{
    message_fixture_t *f = *state;
    f->size = 0;
    put_request_header(f);
    const uint32_t kinds[] = {0, PSP_KIND_LAST + 1, 255, UINT32_MAX};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        assert_int_equal(unpack_bytes(f, kinds[i]), PSC_PROTOCOL);
        assert_string_equal(psp_kind_name(kinds[i]), "unknown");
        assert_int_equal(psp_reply_kind(kinds[i]), 0);
    }
    for (uint32_t kind = 1; kind < PSP_KIND_LAST; kind += 2) {
        assert_int_equal(psp_reply_kind(kind), kind + 1);
        assert_int_equal(psp_reply_kind(kind + 1), 0);
    }
}

static void bad_pushes_are_refused(void **state)
{
    message_fixture_t *f = *state;
    const float row[4] = {1, 2, 3, 4};
    const uint32_t dims[] = {0, PSP_DIM_MAX + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        f->size = 0;
        put_request_header(f);
        put_number(f, 6, dims[i]);
        expect_refused(f, PSP_PUSH, "dim");
    }
    f->size = 0;
    put_request_header(f);
    put_number(f, 6, 3);
    put_fixed64(f, 14, 1);
    put_bytes(f, 15, row, sizeof row);
    expect_refused(f, PSP_PUSH, "1 ids of dim 3 in f32, but 16 bytes");

    f->size = 0;
    put_request_header(f);
    put_number(f, 6, 4);
    put_bytes(f, 15, row, sizeof row);
    expect_refused(f, PSP_PUSH, "0 ids");

    f->size = 0;
    put_request_header(f);
    put_number(f, 6, 4);
    put_number(f, 4, 3);
    expect_refused(f, PSP_PUSH, "kind 3");
    f->size = 0;
    put_request_header(f);
    put_number(f, 6, 4);
    put_number(f, 4, UINT64_MAX); /* -1 */
    expect_refused(f, PSP_PUSH, "kind");

    f->size = 0;
    put_request_header(f);
    put_number(f, 6, 4);
    put_tag(f, 5, 5);
    put_raw(f, "\x00\x00\xc0\x7f", 4); /* NaN */
    expect_refused(f, PSP_PUSH, "learning rate");
}

static void unknown_formats_and_rows_of_another_size_are_refused(void **state)
{
    message_fixture_t *f = *state;
    static const uint8_t rows[64];
    const uint64_t unknown[] = {PSP_FORMATS, 255, UINT32_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        f->size = 0;
        put_request_header(f);
        put_number(f, 7, unknown[i]);
        expect_refused(f, PSP_PULL, "format");
        f->size = 0;
        put_request_header(f);
        put_number(f, 6, 4);
        put_number(f, 8, unknown[i]);
        expect_refused(f, PSP_PUSH, "format");
        f->size = 0;
        put_reply_header(f);
        put_number(f, 2, 4);
        put_number(f, 5, unknown[i]);
        expect_refused(f, PSP_PULL_REPLY, "format");
    }
    for (uint32_t format = 0; format < PSP_FORMATS; format++) {
        const size_t right = 2 * psp_row_bytes((psp_format_t)format, 5);
        for (size_t size = 0; size <= sizeof rows; size++) {
            f->size = 0;
            put_request_header(f);
            put_number(f, 6, 5);
            put_number(f, 8, format);
            put_fixed64(f, 14, 7);
            put_fixed64(f, 14, 8);
            put_bytes(f, 15, rows, size);
            if (size == right)
                expect_ok(f, PSP_PUSH);
            else
                expect_refused(f, PSP_PUSH, "2 ids of dim 5 in");
            f->size = 0;
            put_reply_header(f);
            put_number(f, 2, 5);
            put_number(f, 5, format);
            put_bytes(f, 15, rows, size);
            if (size % (right / 2) == 0) {
                expect_ok(f, PSP_PULL_REPLY);
                assert_int_equal(f->message.u.pull_reply.n, size / (right / 2));
            } else {
                expect_refused(f, PSP_PULL_REPLY, "whole number of rows");
            }
        }
    }
}

static void bad_pull_replies_are_refused(void **state)
{
    message_fixture_t *f = *state;
    const float rows[4] = {1, 2, 3, 4};
    f->size = 0;
    put_reply_header(f);
    put_number(f, 2, 3);
    put_bytes(f, 15, rows, sizeof rows);
    expect_refused(f, PSP_PULL_REPLY, "whole number of rows");

    f->size = 0;
    put_reply_header(f);
    put_bytes(f, 15, rows, sizeof rows);
    expect_refused(f, PSP_PULL_REPLY, "dim 0");

    f->size = 0;
    put_reply_header(f);
    put_number(f, 2, 2);
    put_bytes(f, 15, rows, sizeof rows);
    put_bytes(f, 3, "0123", 4);
    expect_refused(f, PSP_PULL_REPLY, "versions");

    f->size = 0;
    put_reply_header(f);
    put_number(f, 2, 2);
    put_bytes(f, 15, rows, sizeof rows);
    put_bytes(f, 4, "\0\0\0", 3);
    expect_refused(f, PSP_PULL_REPLY, "states");

    f->size = 0;
    put_reply_header(f);
    put_number(f, 2, 2);
    put_bytes(f, 15, rows, sizeof rows);
    put_bytes(f, 4, "\3\6", 2);
    expect_refused(f, PSP_PULL_REPLY, "row state 6");

    for (int state_without = PSP_ROW_CURRENT; state_without <= PSP_ROW_LATE; state_without++) {
        const uint8_t states[3] = {0, (uint8_t)state_without, 3};
        f->size = 0;
        put_reply_header(f);
        put_number(f, 2, 2);
        put_bytes(f, 15, rows, sizeof rows);
        put_bytes(f, 4, states, 2);
        expect_refused(f, PSP_PULL_REPLY, "as many rows as states with a value");

        f->size = 0;
        put_reply_header(f);
        put_number(f, 2, 2);
        put_bytes(f, 15, rows, sizeof rows);
        put_bytes(f, 4, states, 3);
        expect_ok(f, PSP_PULL_REPLY);
        assert_int_equal(f->message.u.pull_reply.n, 3);
        assert_int_equal(f->message.u.pull_reply.n_values, 2);
    }
}

static void versions_must_fit_their_rows(void **state)
{
    message_fixture_t *f = *state;
    const uint8_t bytes[16] = {0};
    put_request_header(f);
    put_bytes(f, 15, bytes, 16);
    put_bytes(f, 8, bytes, 12);
    expect_refused(f, PSP_PULL, "as many versions as ids");

    f->size = 0;
    put_reply_header(f);
    put_bytes(f, 15, bytes, 4);
    expect_refused(f, PSP_PUSH_REPLY, "rows without versions");
    put_bytes(f, 3, bytes, 4);
    expect_refused(f, PSP_PUSH_REPLY, "dim");
    put_number(f, 2, 2);
    expect_refused(f, PSP_PUSH_REPLY, "as many versions as rows");
    put_bytes(f, 15, bytes, 8);
    expect_ok(f, PSP_PUSH_REPLY);
    put_bytes(f, 3, bytes, 4);
    expect_refused(f, PSP_PUSH_REPLY, "as many versions as rows");
}

static void places_must_fit_their_rows(void **state)
{
    message_fixture_t *f = *state;
    const uint8_t bytes[16] = {0};
    f->size = 0;
    put_reply_header(f);
    put_number(f, 2, 2);
    put_bytes(f, 15, bytes, 8);
    put_bytes(f, 7, bytes, 4);
    expect_refused(f, PSP_PULL_REPLY, "as many places as rows");
    put_bytes(f, 7, bytes, 4);
    expect_ok(f, PSP_PULL_REPLY);
    assert_int_equal(f->message.u.pull_reply.n, 1);
    put_bytes(f, 7, bytes, 4);
    expect_refused(f, PSP_PULL_REPLY, "as many places as rows");
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    message_fixture_t *f = *state;
    uint8_t path[PSP_PATH_MAX + 1];
    memset(path, '/', sizeof path);
    f->size = 0;
    put_reply_header(f);
    put_bytes(f, 2, path, PSP_PATH_MAX + 1);
    expect_refused(f, PSP_ATTACH_REPLY, "length of path");
    f->size = 0;
    put_reply_header(f);
    put_bytes(f, 2, path, PSP_PATH_MAX);
    expect_ok(f, PSP_ATTACH_REPLY);
}

static void bad_small_messages_are_refused(void **state)
{
    message_fixture_t *f = *state;
    f->size = 0;
    put_request_header(f);
    put_number(f, 2, 4);
    put_number(f, 3, 4);
    expect_refused(f, PSP_HELLO, "worker rank 4");

    f->size = 0;
    put_reply_header(f);
    expect_refused(f, PSP_HELLO_REPLY, "number of servers 0");
    put_number(f, 5, PSC_MAX_SERVERS + 1);
    expect_refused(f, PSP_HELLO_REPLY, "number of servers");
    put_number(f, 5, 3);
    put_number(f, 4, 3);
    expect_refused(f, PSP_HELLO_REPLY, "server rank 3");
    put_number(f, 4, 2);
    put_bytes(f, 7, "ab", 2);
    expect_refused(f, PSP_HELLO_REPLY, "slot_owners");

    char long_text[488];
    memset(long_text, 'x', sizeof long_text);
    f->size = 0;
    uint8_t header[520] = {0x10, 20, 0x1a, 0xe8, 0x03}; /* status 20, message of 488 bytes */
    memcpy(header + 5, long_text, sizeof long_text);
    put_bytes(f, 1, header, 5 + sizeof long_text);
    expect_refused(f, PSP_PUSH_REPLY, "error message");
    f->size = 0;
    put_bytes(f, 1, "\x10\x14\x1a\x03q\0r", 7);
    expect_refused(f, PSP_PUSH_REPLY, "field message");
    f->size = 0;
    put_bytes(f, 1, "\x10\x7f\x1a\x01q", 5); /* a status that does not exist */
    expect_ok(f, PSP_PUSH_REPLY);
    assert_int_equal(f->message.reply.error.code, PSC_INTERNAL);
    assert_string_equal(f->message.reply.error.message, "q");
}

static void bad_open_tables_are_refused(void **state)
{
    message_fixture_t *f = *state;
    put_open_table(f, 0);
    expect_ok(f, PSP_OPEN_TABLE);
    assert_string_equal(f->message.u.open_table.optimizer, "sgd");

    put_open_table(f, 2);
    expect_refused(f, PSP_OPEN_TABLE, "name has 0 bytes");
    put_open_table(f, 3);
    expect_refused(f, PSP_OPEN_TABLE, "dim 0");
    put_open_table(f, 4);
    expect_refused(f, PSP_OPEN_TABLE, "init has 0 bytes");
    put_open_table(f, 6);
    expect_refused(f, PSP_OPEN_TABLE, "optimizer has 0 bytes");

    char name[256];
    memset(name, 'x', sizeof name);
    put_open_table(f, 2);
    put_bytes(f, 2, name, 256);
    expect_refused(f, PSP_OPEN_TABLE, "name has 256 bytes");
    put_open_table(f, 2);
    put_bytes(f, 2, "a\0b", 3);
    expect_refused(f, PSP_OPEN_TABLE, "NUL");

    double params[17] = {0};
    put_open_table(f, 0);
    put_bytes(f, 5, params, sizeof params);
    expect_refused(f, PSP_OPEN_TABLE, "parameters 17");
    params[1] = (double)INFINITY;
    put_open_table(f, 0);
    put_bytes(f, 7, params, 16);
    expect_refused(f, PSP_OPEN_TABLE, "not finite");
}

static void bad_table_options_are_refused(void **state)
{
    message_fixture_t *f = *state;
    put_open_table(f, 0);
    put_number(f, 10, PSP_F16);
    put_number(f, 11, PSP_BF16);
    put_number(f, 12, 7); /* a truth value of a foreign writer */
    expect_ok(f, PSP_OPEN_TABLE);
    assert_int_equal(f->message.u.open_table.precision, PSP_F16);
    assert_int_equal(f->message.u.open_table.state_precision, PSP_BF16);
    assert_true(f->message.u.open_table.per_row_steps);

    const uint64_t precisions[] = {PSP_PRECISIONS, INT32_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        put_open_table(f, 0);
        put_number(f, 10, precisions[i]);
        expect_refused(f, PSP_OPEN_TABLE, "precision");
        put_open_table(f, 0);
        put_number(f, 11, precisions[i]);
        expect_refused(f, PSP_OPEN_TABLE, "state_precision");
    }
    static const struct {
        uint32_t number;
        const char *name;
    } reals[] = {
        {13, "l2"}, {14, "clip_value"}, {15, "clip_norm"}, {17, "weight_min"}, {18, "weight_max"}};
    const double values[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
            uint64_t bits;
            memcpy(&bits, &values[k], sizeof bits);
            put_open_table(f, 0);
            put_fixed64(f, reals[i].number, bits);
            expect_refused(f, PSP_OPEN_TABLE, reals[i].name);
        }
    }
    put_open_table(f, 0);
    put_bytes(f, 13, "01234567", 8);
    expect_refused(f, PSP_OPEN_TABLE, "l2");
}

static void too_many_counters_and_small_bytes_are_refused(void **state)
{
    message_fixture_t *f = *state;
    f->size = 0;
    put_reply_header(f);
    for (int i = 0; i < 257; i++)
        put_bytes(f, 2, "\x0a\x01x", 3);
    expect_refused(f, PSP_STATS_REPLY, "number of counters 257");
    f->size = 0;
    put_reply_header(f);
    put_bytes(f, 2, NULL, 0);
    expect_refused(f, PSP_STATS_REPLY, "counter's name");
    /* 1 MiB of empty submessages */
    f->size = 0;
    put_reply_header(f);
    while (f->size < (1u << 20))
        put_bytes(f, 2, NULL, 0);
    expect_refused(f, PSP_STATS_REPLY, "small fields");
    /* within the limit of bytes, but not of memory */
    f->size = 0;
    put_reply_header(f);
    while (f->size < 80000)
        put_bytes(f, 2, NULL, 0);
    expect_refused(f, PSP_STATS_REPLY, "memory");
}

static void joining_needs_scratch_for_all_pieces(void **state)
{
    message_fixture_t *f = *state;
    psp_scratch_t *small = NULL;
    assert_int_equal(psp_scratch_create(4096, &small, &f->error), PSC_OK);
    f->size = 0;
    put_request_header(f);
    for (uint64_t i = 0; i < 1000; i++)
        put_fixed64(f, 15, i);
    assert_int_equal(psp_message_unpack(small, PSP_PULL, f->bytes, f->size, &f->message, &f->error),
                     PSC_PROTOCOL);
    assert_non_null(strstr(f->error.message, "memory"));
    expect_ok(f, PSP_PULL);
    assert_int_equal(f->message.u.pull.n, 1000);
    psp_scratch_destroy(small);
}

static void every_cut_of_a_message_is_safe(void **state)
{
    message_fixture_t *f = *state;
    put_open_table(f, 0);
    put_bytes(f, 5, "01234567", 8);
    size_t whole = f->size;
    for (f->size = 0; f->size < whole; f->size++)
        (void)!unpack_bytes(f, PSP_OPEN_TABLE);
    f->size = whole;
    expect_ok(f, PSP_OPEN_TABLE);
}

static void random_damage_is_safe(void **state)
{
    message_fixture_t *f = *state;
    test_random_t random = test_random_start();
    for (int round = 0; round < 20000; round++) {
        put_open_table(f, 0);
        put_bytes(f, 15, "0123456789abcdef", 16);
        put_fixed64(f, 14, 3);
        size_t changes = 1 + test_below(&random, 4);
        for (size_t i = 0; i < changes; i++) {
            size_t at = test_below(&random, f->size);
            f->bytes[at] = (uint8_t)test_next(&random);
        }
        f->size -= test_below(&random, 3);
        psc_status_t st = unpack_bytes(f, (uint32_t)(1 + test_below(&random, 16)));
        assert_true(st == PSC_OK || st == PSC_PROTOCOL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MESSAGE_TEST(ids_may_come_packed_single_or_in_pieces),
        MESSAGE_TEST(the_last_rows_field_wins),
        MESSAGE_TEST(unknown_fields_of_any_size_are_ignored),
        MESSAGE_TEST(a_second_header_is_refused),
        MESSAGE_TEST(malformed_bytes_are_refused_in_words),
        MESSAGE_TEST(unknown_kinds_are_refused),
        MESSAGE_TEST(bad_pushes_are_refused),
        MESSAGE_TEST(unknown_formats_and_rows_of_another_size_are_refused),
        MESSAGE_TEST(bad_pull_replies_are_refused),
        MESSAGE_TEST(versions_must_fit_their_rows),
        MESSAGE_TEST(places_must_fit_their_rows),
        MESSAGE_TEST(a_path_that_is_too_long_is_refused),
        MESSAGE_TEST(bad_small_messages_are_refused),
        MESSAGE_TEST(bad_open_tables_are_refused),
        MESSAGE_TEST(bad_table_options_are_refused),
        MESSAGE_TEST(too_many_counters_and_small_bytes_are_refused),
        MESSAGE_TEST(joining_needs_scratch_for_all_pieces),
        MESSAGE_TEST(every_cut_of_a_message_is_safe),
        MESSAGE_TEST(random_damage_is_safe),
    };
    return cmocka_run_group_tests_name("message_unpack", tests, NULL, NULL);
}
