/*
 * Messages: packing and unpacking undo each other; what is malformed is refused in words. The bytes
 * of foreign clients are written here by hand, field by field, so that the tests do not rest on the
 * packer.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "common/rng.h"
#include "common/slots.h"
#include "proto/message.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SCRATCH_BYTES ((size_t)1 << 20)

typedef struct fixture {
    psp_pool_t *pool;
    psp_scratch_t *scratch;
    psp_message_t message;
    psc_error_t error;
    uint8_t *bytes; /* a message written by hand */
    size_t size;
} fixture_t;

#define BYTES_ROOM ((size_t)2 << 20)

static int setup(void **state)
{
    fixture_t *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(psp_pool_create(1 << 20, &f->pool, &f->error), PSC_OK);
    assert_int_equal(psp_scratch_create(SCRATCH_BYTES, &f->scratch, &f->error), PSC_OK);
    f->bytes = malloc(BYTES_ROOM);
    assert_non_null(f->bytes);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    psp_scratch_destroy(f->scratch);
    psp_pool_destroy(f->pool);
    free(f->bytes);
    free(f);
    return 0;
}

/* Writing by hand. */

static void put_byte(fixture_t *f, uint8_t byte)
{
    assert_true(f->size < BYTES_ROOM);
    f->bytes[f->size++] = byte;
}

static void put_varint(fixture_t *f, uint64_t value)
{
    while (value >= 128) {
        put_byte(f, (uint8_t)(value % 128 + 128));
        value /= 128;
    }
    put_byte(f, (uint8_t)value);
}

static void put_tag(fixture_t *f, uint32_t number, uint32_t type)
{
    put_varint(f, number * 8u + type);
}

static void put_number(fixture_t *f, uint32_t number, uint64_t value)
{
    put_tag(f, number, 0);
    put_varint(f, value);
}

static void put_raw(fixture_t *f, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        put_byte(f, ((const uint8_t *)bytes)[i]);
}

static void put_bytes(fixture_t *f, uint32_t number, const void *bytes, size_t size)
{
    put_tag(f, number, 2);
    put_varint(f, size);
    put_raw(f, bytes, size);
}

static void put_fixed64(fixture_t *f, uint32_t number, uint64_t value)
{
    put_tag(f, number, 1);
    for (int i = 0; i < 8; i++)
        put_byte(f, (uint8_t)(value >> (8 * i)));
}

static void put_request_header(fixture_t *f)
{
    put_bytes(f, 1, "\x08\x01", 2); /* protocol 1 */
}

static void put_reply_header(fixture_t *f)
{
    put_bytes(f, 1, "\x08\x07", 2); /* request 7 */
}

/* Unpacking from memory of exactly the size, so that a sanitizer sees a read past the end. */
static psc_status_t unpack(fixture_t *f, uint32_t kind)
{
    static uint8_t *exact; /* the message borrows from it until the next call */
    free(exact);
    exact = malloc(f->size != 0 ? f->size : 1);
    assert_non_null(exact);
    memcpy(exact, f->bytes, f->size);
    return psp_message_unpack(f->scratch, kind, exact, f->size, &f->message, &f->error);
}

static void expect_ok(fixture_t *f, uint32_t kind)
{
    f->error = (psc_error_t)PSC_ERROR_INIT;
    psc_status_t st = unpack(f, kind);
    if (st != PSC_OK)
        fail_msg("refused: %s", f->error.message);
    assert_int_equal(f->message.kind, kind);
}

/* Refused as PROTOCOL, with both texts in the message. */
static void expect_refused(fixture_t *f, uint32_t kind, const char *text)
{
    f->error = (psc_error_t)PSC_ERROR_INIT;
    assert_int_equal(unpack(f, kind), PSC_PROTOCOL);
    assert_int_equal(f->error.code, PSC_PROTOCOL);
    if (strstr(f->error.message, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", f->error.message, text);
    if (strstr(f->error.message, psp_kind_name(kind)) == NULL)
        fail_msg("\"%s\" does not name the kind", f->error.message);
}

/* Packs f->message and unpacks it again into the same place; the buffer is put back by the caller.
 */
static psp_buffer_t *round_trip(fixture_t *f, const psp_message_t *message)
{
    psp_buffer_t *buffer = NULL;
    psc_status_t st = psp_message_pack(f->pool, message, &buffer, &f->error);
    if (st != PSC_OK)
        fail_msg("not packed: %s", f->error.message);
    assert_int_equal(buffer->kind, message->kind);
    memset(&f->message, 0xAA, sizeof f->message);
    st = psp_message_unpack(f->scratch, buffer->kind, buffer->data, buffer->size, &f->message,
                            &f->error);
    if (st != PSC_OK)
        fail_msg("not unpacked: %s", f->error.message);
    assert_int_equal(f->message.kind, message->kind);
    return buffer;
}

static const psp_request_header_t some_request = {
    .protocol = PSP_PROTOCOL_VERSION,
    .cluster = UINT64_MAX,
    .map_epoch = 3,
    .session = UINT64_C(0x8000000000000001),
    .sequence = UINT64_MAX,
    .lowest_unacked = 77,
    .request = UINT64_C(1) << 63,
    .clock = 12,
    .deadline_ms = UINT32_MAX,
};

static void assert_request_header(const psp_request_header_t *h)
{
    assert_int_equal(h->protocol, some_request.protocol);
    assert_true(h->cluster == some_request.cluster);
    assert_int_equal(h->map_epoch, some_request.map_epoch);
    assert_true(h->session == some_request.session);
    assert_true(h->sequence == some_request.sequence);
    assert_true(h->lowest_unacked == some_request.lowest_unacked);
    assert_true(h->request == some_request.request);
    assert_true(h->clock == some_request.clock);
    assert_true(h->deadline_ms == some_request.deadline_ms);
}

static const psp_reply_header_t some_reply = {
    .request = UINT64_MAX, .map_epoch = 9, .error = PSC_ERROR_INIT};

static void assert_reply_ok(const psp_reply_header_t *h)
{
    assert_true(h->request == UINT64_MAX);
    assert_int_equal(h->map_epoch, 9);
    assert_int_equal(h->error.code, PSC_OK);
    assert_int_equal(h->error.rank, -1);
}

static void every_request_survives_the_wire(void **state)
{
    fixture_t *f = *state;
    psp_message_t m = {.kind = PSP_HELLO, .request = some_request};
    m.u.hello = (psp_hello_t){.worker = 3, .n_workers = 4};
    psp_buffer_put(round_trip(f, &m));
    assert_request_header(&f->message.request);
    assert_int_equal(f->message.u.hello.worker, 3);
    assert_int_equal(f->message.u.hello.n_workers, 4);

    m = (psp_message_t){.kind = PSP_CLOCK, .request = some_request};
    m.u.clock.progress = UINT64_MAX;
    psp_buffer_put(round_trip(f, &m));
    assert_request_header(&f->message.request);
    assert_true(f->message.u.clock.progress == UINT64_MAX);

    m = (psp_message_t){.kind = PSP_BARRIER, .request = some_request};
    m.u.barrier.generation = 5;
    psp_buffer_put(round_trip(f, &m));
    assert_request_header(&f->message.request);
    assert_int_equal(f->message.u.barrier.generation, 5);

    m = (psp_message_t){.kind = PSP_STATS, .request = some_request};
    psp_buffer_put(round_trip(f, &m));
    assert_request_header(&f->message.request);

    m = (psp_message_t){.kind = PSP_GOODBYE, .request = some_request};
    m.u.goodbye.status = 7;
    psp_buffer_put(round_trip(f, &m));
    assert_request_header(&f->message.request);
    assert_int_equal(f->message.u.goodbye.status, 7);
}

static void every_small_reply_survives_the_wire(void **state)
{
    fixture_t *f = *state;
    psp_message_t m = {.kind = PSP_OPEN_TABLE_REPLY, .reply = some_reply};
    m.u.open_table_reply = (psp_open_table_reply_t){.table = 2, .table_epoch = 1, .max_rows = 8192};
    psp_buffer_put(round_trip(f, &m));
    assert_reply_ok(&f->message.reply);
    assert_int_equal(f->message.u.open_table_reply.table, 2);
    assert_int_equal(f->message.u.open_table_reply.table_epoch, 1);
    assert_int_equal(f->message.u.open_table_reply.max_rows, 8192);

    m = (psp_message_t){.kind = PSP_CLOCK_REPLY, .reply = some_reply};
    m.u.clock_reply = (psp_clock_reply_t){.min_clock = 5, .total_progress = UINT64_MAX};
    psp_buffer_put(round_trip(f, &m));
    assert_reply_ok(&f->message.reply);
    assert_int_equal(f->message.u.clock_reply.min_clock, 5);
    assert_true(f->message.u.clock_reply.total_progress == UINT64_MAX);

    const psp_kind_t bare[] = {PSP_PUSH_REPLY, PSP_BARRIER_REPLY, PSP_GOODBYE_REPLY};
    for (size_t i = 0; i < sizeof bare / sizeof bare[0]; i++) {
        m = (psp_message_t){.kind = bare[i], .reply = some_reply};
        psp_buffer_put(round_trip(f, &m));
        assert_reply_ok(&f->message.reply);
    }
}

static void hello_reply_carries_the_slot_map(void **state)
{
    fixture_t *f = *state;
    uint8_t owners[PSC_SLOT_COUNT * 2];
    for (size_t i = 0; i < sizeof owners; i++)
        owners[i] = (uint8_t)(i * 7);
    psp_message_t m = {.kind = PSP_HELLO_REPLY, .reply = some_reply};
    m.u.hello_reply = (psp_hello_reply_t){.cluster = 1,
                                          .session = UINT64_MAX,
                                          .server = 2,
                                          .n_servers = 3,
                                          .map_epoch = 4,
                                          .max_message_bytes = 1 << 20,
                                          .slot_owners = owners};
    psp_buffer_t *buffer = round_trip(f, &m);
    const psp_hello_reply_t *r = &f->message.u.hello_reply;
    assert_int_equal(r->cluster, 1);
    assert_true(r->session == UINT64_MAX);
    assert_int_equal(r->server, 2);
    assert_int_equal(r->n_servers, 3);
    assert_int_equal(r->map_epoch, 4);
    assert_int_equal(r->max_message_bytes, 1 << 20);
    assert_memory_equal(r->slot_owners, owners, sizeof owners);
    psp_buffer_put(buffer);

    m.u.hello_reply.slot_owners = NULL;
    psp_buffer_put(round_trip(f, &m));
    assert_null(f->message.u.hello_reply.slot_owners);
}

static void open_table_survives_with_longest_names_and_all_params(void **state)
{
    fixture_t *f = *state;
    psp_message_t m = {.kind = PSP_OPEN_TABLE, .request = some_request};
    psp_open_table_t *t = &m.u.open_table;
    memset(t->name, 'n', PSP_NAME_MAX);
    memset(t->init, 'i', PSP_NAME_MAX);
    memset(t->optimizer, 'o', PSP_NAME_MAX);
    t->dim = PSP_DIM_MAX;
    t->n_init_params = t->n_optimizer_params = PSP_PARAMS_MAX;
    for (uint32_t i = 0; i < PSP_PARAMS_MAX; i++) {
        t->init_params[i] = -1.0 / (i + 1);
        t->optimizer_params[i] = 1e300 * (i + 1);
    }
    t->seed = UINT64_MAX;
    t->table = 6;
    psp_buffer_put(round_trip(f, &m));
    assert_memory_equal(&f->message.u.open_table, t, sizeof *t);

    m.u.open_table = (psp_open_table_t){.name = "a", .init = "b", .optimizer = "c", .dim = 1};
    psp_buffer_put(round_trip(f, &m));
    assert_string_equal(f->message.u.open_table.name, "a");
    assert_int_equal(f->message.u.open_table.n_init_params, 0);
}

static void stats_reply_survives_with_most_counters(void **state)
{
    fixture_t *f = *state;
    static char names[PSP_COUNTERS_MAX][PSP_NAME_MAX + 1];
    psp_counter_t counters[PSP_COUNTERS_MAX];
    for (size_t i = 0; i < PSP_COUNTERS_MAX; i++) {
        memset(names[i], 'a' + (int)(i % 26), PSP_NAME_MAX);
        counters[i] = (psp_counter_t){.name = names[i], .value = UINT64_MAX - i};
    }
    psp_message_t m = {.kind = PSP_STATS_REPLY, .reply = some_reply};
    m.u.stats_reply = (psp_stats_reply_t){.n = PSP_COUNTERS_MAX, .counters = counters};
    psp_buffer_put(round_trip(f, &m));
    assert_int_equal(f->message.u.stats_reply.n, PSP_COUNTERS_MAX);
    for (size_t i = 0; i < PSP_COUNTERS_MAX; i++) {
        assert_string_equal(f->message.u.stats_reply.counters[i].name, names[i]);
        assert_true(f->message.u.stats_reply.counters[i].value == UINT64_MAX - i);
    }
    m.u.stats_reply = (psp_stats_reply_t){.n = PSP_COUNTERS_MAX + 1, .counters = counters};
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
}

static void pull_is_written_in_place(void **state)
{
    fixture_t *f = *state;
    const size_t counts[] = {0, 1, 2, 15, 16, 1000, 100000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        size_t n = counts[c];
        psp_pull_t pull = {.table = 1, .table_epoch = 2, .staleness = PSP_STALENESS_ASYNC, .n = n};
        pull.want_versions = n % 2 == 0;
        psp_buffer_t *buffer = NULL;
        uint8_t *ids = NULL;
        assert_int_equal(psp_pull_begin(f->pool, &some_request, &pull, &buffer, &ids, &f->error),
                         PSC_OK);
        for (size_t i = 0; i < n; i++) {
            uint64_t id = UINT64_MAX - i;
            memcpy(ids + 8 * i, &id, 8);
        }
        assert_int_equal(psp_message_unpack(f->scratch, PSP_PULL, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        const psp_pull_t *p = &f->message.u.pull;
        assert_request_header(&f->message.request);
        assert_int_equal(p->table, 1);
        assert_int_equal(p->table_epoch, 2);
        assert_true(p->staleness == PSP_STALENESS_ASYNC);
        assert_int_equal(p->want_versions, n % 2 == 0);
        assert_int_equal(p->n, n);
        if (n != 0)
            assert_ptr_equal(p->ids, ids); /* no copy */
        for (size_t i = 0; i < n; i++)
            assert_true(psp_id_at(p->ids, i) == UINT64_MAX - i);
        psp_buffer_put(buffer);
    }
}

static void push_is_written_in_place(void **state)
{
    fixture_t *f = *state;
    const size_t shapes[][2] = {{0, 1}, {1, 1}, {1, PSP_DIM_MAX}, {7, 3}, {1000, 100}};
    for (size_t c = 0; c < sizeof shapes / sizeof shapes[0]; c++) {
        size_t n = shapes[c][0];
        size_t d = shapes[c][1];
        psp_push_t push = {.table = 4,
                           .table_epoch = 5,
                           .kind = (psp_push_kind_t)(c % 3),
                           .learning_rate = 0.1f,
                           .dim = (uint32_t)d,
                           .n = n};
        psp_buffer_t *buffer = NULL;
        uint8_t *ids = NULL;
        uint8_t *rows = NULL;
        assert_int_equal(
            psp_push_begin(f->pool, &some_request, &push, &buffer, &ids, &rows, &f->error), PSC_OK);
        for (size_t i = 0; i < 8 * n; i++)
            ids[i] = (uint8_t)(i * 3);
        for (size_t i = 0; i < 4 * n * d; i++)
            rows[i] = (uint8_t)(i * 5);
        assert_int_equal(psp_message_unpack(f->scratch, PSP_PUSH, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        const psp_push_t *p = &f->message.u.push;
        assert_request_header(&f->message.request);
        assert_int_equal(p->table, 4);
        assert_int_equal(p->table_epoch, 5);
        assert_int_equal(p->kind, c % 3);
        assert_true(p->learning_rate == 0.1f);
        assert_int_equal(p->dim, d);
        assert_int_equal(p->n, n);
        if (n != 0) {
            assert_ptr_equal(p->ids, ids);
            assert_ptr_equal(p->rows, rows);
        }
        for (size_t i = 0; i < 8 * n; i++)
            assert_int_equal(p->ids[i], (uint8_t)(i * 3));
        for (size_t i = 0; i < 4 * n * d; i++)
            assert_int_equal(p->rows[i], (uint8_t)(i * 5));
        psp_buffer_put(buffer);
    }
}

static void pull_reply_carries_rows_versions_and_states(void **state)
{
    fixture_t *f = *state;
    enum { N = 300, D = 7 };
    uint32_t versions[N];
    uint8_t states[N];
    for (uint32_t i = 0; i < N; i++) {
        versions[i] = UINT32_MAX - i;
        states[i] = (uint8_t)(i % 2);
    }
    for (int with = 0; with < 4; with++) {
        psp_buffer_t *buffer = NULL;
        uint8_t *rows = NULL;
        assert_int_equal(
            psp_pull_reply_begin(f->pool, &some_reply, D, N, (with & 1) != 0 ? versions : NULL,
                                 (with & 2) != 0 ? states : NULL, &buffer, &rows, &f->error),
            PSC_OK);
        for (size_t i = 0; i < N * D * 4; i++)
            rows[i] = (uint8_t)i;
        assert_int_equal(psp_message_unpack(f->scratch, PSP_PULL_REPLY, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        const psp_pull_reply_t *r = &f->message.u.pull_reply;
        assert_reply_ok(&f->message.reply);
        assert_int_equal(r->dim, D);
        assert_int_equal(r->n, N);
        assert_ptr_equal(r->rows, rows);
        assert_int_equal(r->versions != NULL, with & 1);
        assert_int_equal(r->states != NULL, (with & 2) >> 1);
        if (r->versions != NULL)
            assert_memory_equal(r->versions, versions, sizeof versions);
        if (r->states != NULL)
            assert_memory_equal(r->states, states, sizeof states);
        psp_buffer_put(buffer);
    }
}

static void an_error_reply_of_any_kind_comes_back_whole(void **state)
{
    fixture_t *f = *state;
    psp_reply_header_t header = {.request = 5, .map_epoch = 6};
    header.error = (psc_error_t){.code = PSC_DISK_FULL, .rank = 3, .id = UINT64_MAX};
    memset(header.error.message, 'x', sizeof header.error.message - 1);
    for (uint32_t kind = 1; kind <= PSP_GOODBYE; kind += 2) {
        uint32_t reply = psp_reply_kind(kind);
        psp_buffer_t *buffer = NULL;
        assert_int_equal(psp_reply_pack(f->pool, (psp_kind_t)reply, &header, &buffer, &f->error),
                         PSC_OK);
        assert_int_equal(buffer->kind, reply);
        assert_int_equal(psp_message_unpack(f->scratch, reply, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        assert_int_equal(f->message.reply.request, 5);
        assert_int_equal(f->message.reply.map_epoch, 6);
        assert_memory_equal(&f->message.reply.error, &header.error, sizeof header.error);
        psp_buffer_put(buffer);
    }
    /* message_pack with an error does the same. */
    psp_message_t m = {.kind = PSP_PULL_REPLY, .reply = header};
    psp_buffer_put(round_trip(f, &m));
    assert_int_equal(f->message.reply.error.code, PSC_DISK_FULL);
    assert_int_equal(f->message.u.pull_reply.n, 0);
}

static void ids_may_come_packed_single_or_in_pieces(void **state)
{
    fixture_t *f = *state;
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
    fixture_t *f = *state;
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
    fixture_t *f = *state;
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
    fixture_t *f = *state;
    f->size = 0;
    put_request_header(f);
    put_number(f, 2, 3);
    put_request_header(f);
    expect_refused(f, PSP_PULL, "two headers");
}

static void malformed_bytes_are_refused_in_words(void **state)
{
    fixture_t *f = *state;
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
    fixture_t *f = *state;
    f->size = 0;
    put_request_header(f);
    const uint32_t kinds[] = {0, 17, 255, UINT32_MAX};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        assert_int_equal(unpack(f, kinds[i]), PSC_PROTOCOL);
        assert_string_equal(psp_kind_name(kinds[i]), "unknown");
        assert_int_equal(psp_reply_kind(kinds[i]), 0);
    }
    for (uint32_t kind = 1; kind <= 16; kind += 2) {
        assert_int_equal(psp_reply_kind(kind), kind + 1);
        assert_int_equal(psp_reply_kind(kind + 1), 0);
    }
}

static void bad_pushes_are_refused(void **state)
{
    fixture_t *f = *state;
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
    expect_refused(f, PSP_PUSH, "1 ids of dim 3, but 16 bytes");

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

static void bad_pull_replies_are_refused(void **state)
{
    fixture_t *f = *state;
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
    put_bytes(f, 4, "\0\2", 2);
    expect_refused(f, PSP_PULL_REPLY, "row state 2");
}

static void bad_small_messages_are_refused(void **state)
{
    fixture_t *f = *state;
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

/* An open table message with one field replaced. */
static void put_open_table(fixture_t *f, uint32_t but_not)
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

static void bad_open_tables_are_refused(void **state)
{
    fixture_t *f = *state;
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

static void too_many_counters_and_small_bytes_are_refused(void **state)
{
    fixture_t *f = *state;
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
    fixture_t *f = *state;
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
    fixture_t *f = *state;
    put_open_table(f, 0);
    put_bytes(f, 5, "01234567", 8);
    size_t whole = f->size;
    for (f->size = 0; f->size < whole; f->size++)
        (void)!unpack(f, PSP_OPEN_TABLE);
    f->size = whole;
    expect_ok(f, PSP_OPEN_TABLE);
}

static void random_damage_is_safe(void **state)
{
    fixture_t *f = *state;
    const char *text = getenv("EMBPS_TEST_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : psc_clock_us();
    printf("seed %llu\n", (unsigned long long)seed);
    uint64_t draw = 0;
    for (int round = 0; round < 20000; round++) {
        put_open_table(f, 0);
        put_bytes(f, 15, "0123456789abcdef", 16);
        put_fixed64(f, 14, 3);
        size_t changes = 1 + psc_rng_at(seed, draw++) % 4;
        for (size_t i = 0; i < changes; i++) {
            size_t at = psc_rng_at(seed, draw++) % f->size;
            f->bytes[at] = (uint8_t)psc_rng_at(seed, draw++);
        }
        f->size -= psc_rng_at(seed, draw++) % 3;
        psc_status_t st = unpack(f, (uint32_t)(1 + psc_rng_at(seed, draw++) % 16));
        assert_true(st == PSC_OK || st == PSC_PROTOCOL);
    }
}

static void arguments_out_of_range_are_not_packed(void **state)
{
    fixture_t *f = *state;
    psp_buffer_t *buffer = NULL;
    uint8_t *ids = NULL;
    uint8_t *rows = NULL;
    psp_push_t push = {.dim = 0, .n = 1};
    assert_int_equal(psp_push_begin(f->pool, &some_request, &push, &buffer, &ids, &rows, &f->error),
                     PSC_INVALID_ARGUMENT);
    push = (psp_push_t){.dim = PSP_DIM_MAX + 1, .n = 1};
    assert_int_equal(psp_push_begin(f->pool, &some_request, &push, &buffer, &ids, &rows, &f->error),
                     PSC_INVALID_ARGUMENT);
    push = (psp_push_t){.dim = PSP_DIM_MAX, .n = SIZE_MAX / 4};
    assert_int_equal(psp_push_begin(f->pool, &some_request, &push, &buffer, &ids, &rows, &f->error),
                     PSC_INVALID_ARGUMENT);
    psp_pull_t pull = {.n = SIZE_MAX / 8 + 2};
    assert_int_equal(psp_pull_begin(f->pool, &some_request, &pull, &buffer, &ids, &f->error),
                     PSC_INVALID_ARGUMENT);
    assert_int_equal(psp_pull_reply_begin(f->pool, &some_reply, 4, SIZE_MAX / 2, NULL, NULL,
                                          &buffer, &rows, &f->error),
                     PSC_INVALID_ARGUMENT);
    psp_message_t m = {.kind = PSP_PUSH, .request = some_request};
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
    m = (psp_message_t){.kind = PSP_OPEN_TABLE, .request = some_request};
    m.u.open_table = (psp_open_table_t){.name = "", .init = "i", .optimizer = "o", .dim = 4};
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
    assert_null(buffer);
    assert_int_equal(psp_pool_bytes_out(f->pool), 0);
}

static void rows_per_message_stay_within_the_limit(void **state)
{
    fixture_t *f = *state;
    const uint32_t dims[] = {1, 2, 3, 100, 4096, PSP_DIM_MAX};
    const size_t limits[] = {0, 1, 600, 4096, PSP_MAX_MESSAGE_BYTES};
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        for (size_t j = 0; j < sizeof limits / sizeof limits[0]; j++) {
            size_t n = psp_rows_per_message(dims[i], limits[j]);
            assert_true(n >= 1);
            if (n == 1)
                continue;
            psp_push_t push = {.dim = dims[i],
                               .n = n,
                               .table = UINT32_MAX,
                               .table_epoch = UINT32_MAX,
                               .kind = PSP_PUSH_ASSIGN,
                               .learning_rate = 1};
            psp_buffer_t *buffer = NULL;
            uint8_t *ids = NULL;
            uint8_t *rows = NULL;
            assert_int_equal(
                psp_push_begin(f->pool, &some_request, &push, &buffer, &ids, &rows, &f->error),
                PSC_OK);
            assert_true(buffer->size <= limits[j]);
            psp_buffer_put(buffer);
            uint32_t *versions = calloc(n, sizeof *versions);
            uint8_t *states = calloc(n, 1);
            assert_int_equal(psp_pull_reply_begin(f->pool, &some_reply, dims[i], n, versions,
                                                  states, &buffer, &rows, &f->error),
                             PSC_OK);
            assert_true(buffer->size <= limits[j]);
            psp_buffer_put(buffer);
            free(versions);
            free(states);
        }
    }
}

static void a_failed_allocation_is_reported(void **state)
{
    fixture_t *f = *state;
    psp_message_t m = {.kind = PSP_STATS, .request = some_request};
    psp_buffer_t *buffer = NULL;
    psc_alloc_fail_at(1);
    psc_status_t st = psp_message_pack(f->pool, &m, &buffer, &f->error);
    psc_alloc_fail_at(0);
    assert_int_equal(st, PSC_NO_MEMORY);
    for (unsigned long n = 1; n <= 2; n++) {
        psp_scratch_t *scratch = NULL;
        psc_alloc_fail_at(n);
        st = psp_scratch_create(100, &scratch, &f->error);
        psc_alloc_fail_at(0);
        assert_int_equal(st, PSC_NO_MEMORY);
        assert_null(scratch);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_request_survives_the_wire),
        TEST(every_small_reply_survives_the_wire),
        TEST(hello_reply_carries_the_slot_map),
        TEST(open_table_survives_with_longest_names_and_all_params),
        TEST(stats_reply_survives_with_most_counters),
        TEST(pull_is_written_in_place),
        TEST(push_is_written_in_place),
        TEST(pull_reply_carries_rows_versions_and_states),
        TEST(an_error_reply_of_any_kind_comes_back_whole),
        TEST(ids_may_come_packed_single_or_in_pieces),
        TEST(the_last_rows_field_wins),
        TEST(unknown_fields_of_any_size_are_ignored),
        TEST(a_second_header_is_refused),
        TEST(malformed_bytes_are_refused_in_words),
        TEST(unknown_kinds_are_refused),
        TEST(bad_pushes_are_refused),
        TEST(bad_pull_replies_are_refused),
        TEST(bad_small_messages_are_refused),
        TEST(bad_open_tables_are_refused),
        TEST(too_many_counters_and_small_bytes_are_refused),
        TEST(joining_needs_scratch_for_all_pieces),
        TEST(every_cut_of_a_message_is_safe),
        TEST(random_damage_is_safe),
        TEST(arguments_out_of_range_are_not_packed),
        TEST(rows_per_message_stay_within_the_limit),
        TEST(a_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
