/*
 * Packing, and that unpacking undoes it: every kind, the largest of each, and what is not packed.
 */
#include "common/alloc.h"
#include "common/slots.h"
#include "proto/message.h"

#include "tests/support/cmocka.h"
#include "tests/support/message_fixture.h"

#include <stdlib.h>

/* Packs f->message and unpacks it again into the same place; the buffer is put back by the caller.
 */
static psp_buffer_t *round_trip(message_fixture_t *f, const psp_message_t *message)
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

static void every_request_survives_the_wire(void **state)
{
    message_fixture_t *f = *state;
    psp_message_t m = {.kind = PSP_HELLO, .request = some_request};
    m.u.hello = (psp_hello_t){.worker = 3, .n_workers = 4};
    psp_buffer_put(round_trip(f, &m));
    assert_request_header(&f->message.request);
    assert_int_equal(f->message.u.hello.worker, 3);
    assert_int_equal(f->message.u.hello.n_workers, 4);

    m = (psp_message_t){.kind = PSP_CLOCK, .request = some_request};
    m.u.clock.progress = UINT64_MAX;
    m.u.clock.pushed = (psp_tally_t){.pushes = UINT64_MAX - 1, .rows = UINT64_MAX - 2};
    psp_buffer_put(round_trip(f, &m));
    assert_request_header(&f->message.request);
    assert_true(f->message.u.clock.progress == UINT64_MAX);
    assert_true(f->message.u.clock.pushed.pushes == UINT64_MAX - 1);
    assert_true(f->message.u.clock.pushed.rows == UINT64_MAX - 2);

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

    m = (psp_message_t){.kind = PSP_ATTACH, .request = some_request};
    m.u.attach.host = UINT64_MAX;
    psp_buffer_put(round_trip(f, &m));
    assert_request_header(&f->message.request);
    assert_true(f->message.u.attach.host == UINT64_MAX);

    const uint64_t ids[] = {0, UINT64_MAX, 7};
    m = (psp_message_t){.kind = PSP_TOUCHES, .request = some_request};
    for (size_t n = 0; n <= 3; n += 3) {
        m.u.touches =
            (psp_touches_t){.table = 4, .table_epoch = 5, .n = n, .ids = (const uint8_t *)ids};
        psp_buffer_t *buffer = round_trip(f, &m);
        assert_request_header(&f->message.request);
        assert_int_equal(f->message.u.touches.table, 4);
        assert_int_equal(f->message.u.touches.table_epoch, 5);
        assert_int_equal(f->message.u.touches.n, n);
        assert_memory_equal(f->message.u.touches.ids, ids, n * sizeof ids[0]);
        psp_buffer_put(buffer);
    }
    m = (psp_message_t){.kind = PSP_PREFETCH, .request = some_request};
    for (size_t n = 0; n <= 3; n += 3) {
        m.u.prefetch = (psp_prefetch_t){.table = 4,
                                        .table_epoch = 5,
                                        .when = UINT64_MAX - 1,
                                        .n = n,
                                        .ids = (const uint8_t *)ids};
        psp_buffer_t *buffer = round_trip(f, &m);
        assert_request_header(&f->message.request);
        const psp_prefetch_t *p = &f->message.u.prefetch;
        assert_int_equal(p->table, 4);
        assert_int_equal(p->table_epoch, 5);
        assert_true(p->when == UINT64_MAX - 1);
        assert_int_equal(p->n, n);
        assert_memory_equal(p->ids, ids, n * sizeof ids[0]);
        psp_buffer_put(buffer);
    }
}

static void every_small_reply_survives_the_wire(void **state)
{
    message_fixture_t *f = *state;
    psp_message_t m = {.kind = PSP_BARRIER_REPLY, .reply = some_reply};
    m.u.barrier_reply = (psp_barrier_reply_t){.first = 3, .n_lost = UINT32_MAX};
    psp_buffer_put(round_trip(f, &m));
    assert_int_equal(f->message.u.barrier_reply.first, 3);
    assert_true(f->message.u.barrier_reply.n_lost == UINT32_MAX);
    m = (psp_message_t){.kind = PSP_OPEN_TABLE_REPLY, .reply = some_reply};
    m.u.open_table_reply = (psp_open_table_reply_t){.table = 2, .table_epoch = 1, .max_rows = 8192};
    psp_buffer_put(round_trip(f, &m));
    assert_reply_ok(&f->message.reply);
    assert_int_equal(f->message.u.open_table_reply.table, 2);
    assert_int_equal(f->message.u.open_table_reply.table_epoch, 1);
    assert_int_equal(f->message.u.open_table_reply.max_rows, 8192);

    m = (psp_message_t){.kind = PSP_CLOCK_REPLY, .reply = some_reply};
    m.u.clock_reply = (psp_clock_reply_t){
        .min_clock = 5, .total_progress = UINT64_MAX, .first = 7, .n_lost = UINT32_MAX};
    psp_buffer_put(round_trip(f, &m));
    assert_reply_ok(&f->message.reply);
    assert_int_equal(f->message.u.clock_reply.min_clock, 5);
    assert_true(f->message.u.clock_reply.total_progress == UINT64_MAX);
    assert_int_equal(f->message.u.clock_reply.first, 7);
    assert_true(f->message.u.clock_reply.n_lost == UINT32_MAX);

    m = (psp_message_t){.kind = PSP_ATTACH_REPLY, .reply = some_reply};
    memset(m.u.attach_reply.path, 'p', PSP_PATH_MAX);
    m.u.attach_reply.key = UINT64_MAX;
    psp_buffer_put(round_trip(f, &m));
    assert_reply_ok(&f->message.reply);
    assert_string_equal(f->message.u.attach_reply.path, m.u.attach_reply.path);
    assert_true(f->message.u.attach_reply.key == UINT64_MAX);
    memset(m.u.attach_reply.path, 'p', PSP_PATH_MAX + 1);
    psp_buffer_t *none = NULL;
    assert_int_equal(psp_message_pack(f->pool, &m, &none, &f->error), PSC_INVALID_ARGUMENT);

    const psp_kind_t bare[] = {PSP_PUSH_REPLY, PSP_BARRIER_REPLY, PSP_GOODBYE_REPLY,
                               PSP_PREFETCH_REPLY, PSP_TOUCHES_REPLY};
    for (size_t i = 0; i < sizeof bare / sizeof bare[0]; i++) {
        m = (psp_message_t){.kind = bare[i], .reply = some_reply};
        psp_buffer_put(round_trip(f, &m));
        assert_reply_ok(&f->message.reply);
    }
}

static void no_message_tells_parts_of_too_many_servers(void **state)
{
    message_fixture_t *f = *state;
    static uint64_t parts[PSC_MAX_SERVERS + 1];
    psp_message_t m = {.kind = PSP_CLOCK, .request = some_request};
    m.request.parts = parts;
    m.request.n_parts = PSC_MAX_SERVERS;
    psp_buffer_t *packed;
    psp_message_t read;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(psp_message_pack(f->pool, &m, &packed, &f->error), PSC_OK);
        assert_int_equal(
            psp_message_unpack(f->scratch, PSP_CLOCK, packed->data, packed->size, &read, &f->error),
            i == 0 ? PSC_OK : PSC_PROTOCOL);
        psp_buffer_put(packed);
        m.request.n_parts++;
    }
}

static void hello_tells_former_sessions(void **state)
{
    message_fixture_t *f = *state;
    psp_message_t m = {.kind = PSP_HELLO, .request = some_request};
    psp_buffer_put(round_trip(f, &m));
    assert_int_equal(f->message.u.hello.n_former, 0);

    static uint64_t former[PSC_MAX_SERVERS + 1];
    for (size_t i = 0; i <= PSC_MAX_SERVERS; i++)
        former[i] = UINT64_MAX - i;
    m.u.hello =
        (psp_hello_t){.n_former = PSC_MAX_SERVERS, .former = former, .client = UINT64_MAX - 3};
    psp_buffer_put(round_trip(f, &m));
    assert_int_equal(f->message.u.hello.n_former, PSC_MAX_SERVERS);
    assert_true(f->message.u.hello.client == UINT64_MAX - 3);
    assert_memory_equal(f->message.u.hello.former, former, PSC_MAX_SERVERS * sizeof former[0]);
    m.u.hello.n_former++;
    psp_buffer_t *too_many;
    psp_message_t unread;
    assert_int_equal(psp_message_pack(f->pool, &m, &too_many, &f->error), PSC_OK);
    assert_int_equal(psp_message_unpack(f->scratch, PSP_HELLO, too_many->data, too_many->size,
                                        &unread, &f->error),
                     PSC_PROTOCOL);
    psp_buffer_put(too_many);
}

static void hello_reply_carries_the_slot_map(void **state)
{
    message_fixture_t *f = *state;
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
                                          .slot_owners = owners,
                                          .clock = UINT64_MAX - 1};
    memset(m.u.hello_reply.resumed, 'r', PSP_CHECKPOINT_NAME_MAX);
    psp_buffer_t *buffer = round_trip(f, &m);
    const psp_hello_reply_t *r = &f->message.u.hello_reply;
    assert_true(r->clock == UINT64_MAX - 1);
    assert_string_equal(r->resumed, m.u.hello_reply.resumed);
    assert_int_equal(r->cluster, 1);
    assert_true(r->session == UINT64_MAX);
    assert_int_equal(r->server, 2);
    assert_int_equal(r->n_servers, 3);
    assert_int_equal(r->map_epoch, 4);
    assert_int_equal(r->max_message_bytes, 1 << 20);
    assert_memory_equal(r->slot_owners, owners, sizeof owners);
    psp_buffer_put(buffer);

    memset(m.u.hello_reply.host, 'h', PSP_NAME_MAX);
    m.u.hello_reply.window_bytes = UINT32_MAX;
    m.u.hello_reply.slot_owners = NULL;
    psp_buffer_put(round_trip(f, &m));
    assert_null(f->message.u.hello_reply.slot_owners);
    assert_string_equal(f->message.u.hello_reply.host, m.u.hello_reply.host);
    assert_true(f->message.u.hello_reply.window_bytes == UINT32_MAX);
    memset(m.u.hello_reply.resumed, 'r', PSP_CHECKPOINT_NAME_MAX + 1);
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
    m.u.hello_reply.resumed[0] = '\0';
    memset(m.u.hello_reply.host, 'h', PSP_NAME_MAX + 1);
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
}

static void hello_reply_tells_where_the_servers_listen(void **state)
{
    message_fixture_t *f = *state;
    char longest[PSP_NAME_MAX + 2] = {0};
    memset(longest, 'a', PSP_NAME_MAX);
    const char *addresses[2] = {"[::1]:50051", longest};
    psp_message_t m = {.kind = PSP_HELLO_REPLY, .reply = some_reply};
    const uint64_t counted[3] = {0, 1, UINT64_MAX};
    m.u.hello_reply = (psp_hello_reply_t){.n_servers = 2,
                                          .lease_ms = 1500,
                                          .n_addresses = 2,
                                          .addresses = addresses,
                                          .n_counted = 3,
                                          .counted = counted};
    psp_buffer_t *buffer = round_trip(f, &m);
    const psp_hello_reply_t *r = &f->message.u.hello_reply;
    assert_int_equal(r->lease_ms, 1500);
    assert_int_equal(r->n_addresses, 2);
    assert_string_equal(r->addresses[0], addresses[0]);
    assert_string_equal(r->addresses[1], longest);
    assert_int_equal(r->n_counted, 3);
    assert_memory_equal(r->counted, counted, sizeof counted);
    psp_buffer_put(buffer);

    m.u.hello_reply.n_servers = 3; /* one of them has no address */
    psp_message_t got;
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_OK);
    assert_int_equal(psp_message_unpack(f->scratch, PSP_HELLO_REPLY, buffer->data, buffer->size,
                                        &got, &f->error),
                     PSC_PROTOCOL);
    psp_buffer_put(buffer);
    longest[PSP_NAME_MAX] = 'a';
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
}

static void open_table_survives_with_longest_names_and_all_params(void **state)
{
    message_fixture_t *f = *state;
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

static void a_table_that_is_found_or_not_survives_the_wire(void **state)
{
    message_fixture_t *f = *state;
    psp_message_t m = {.kind = PSP_FIND_TABLE, .request = some_request};
    m.u.find_table.after = 77;
    psp_buffer_put(round_trip(f, &m));
    assert_string_equal(f->message.u.find_table.name, "");
    assert_int_equal(f->message.u.find_table.after, 77);
    memset(m.u.find_table.name, 'n', PSP_NAME_MAX);
    psp_buffer_put(round_trip(f, &m));
    assert_string_equal(f->message.u.find_table.name, m.u.find_table.name);

    m = (psp_message_t){.kind = PSP_FIND_TABLE_REPLY, .reply = some_reply};
    psp_buffer_put(round_trip(f, &m));
    assert_false(f->message.u.find_table_reply.found);
    psp_find_table_reply_t *reply = &m.u.find_table_reply;
    reply->found = true;
    reply->rows_created = UINT64_MAX;
    reply->options = (psp_open_table_t){
        .name = "n", .init = "i", .optimizer = "o", .dim = PSP_DIM_MAX, .table = 5};
    psp_buffer_put(round_trip(f, &m));
    assert_true(f->message.u.find_table_reply.found);
    assert_true(f->message.u.find_table_reply.rows_created == UINT64_MAX);
    assert_memory_equal(&f->message.u.find_table_reply.options, &reply->options,
                        sizeof reply->options);
    psp_buffer_t *buffer; /* what no table can be is not sent */
    reply->options.dim = 0;
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
    m.kind = PSP_FIND_TABLE;
    memset(m.u.find_table.name, 'n', sizeof m.u.find_table.name);
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
}

static void a_checkpoint_survives_the_wire(void **state)
{
    message_fixture_t *f = *state;
    static uint8_t bytes[3000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    psp_message_t m = {.kind = PSP_CHECKPOINT, .request = some_request};
    m.u.checkpoint = (psp_checkpoint_t){
        .step = PSP_CHECKPOINT_STATE, .offset = UINT64_MAX, .n = sizeof bytes, .state = bytes};
    memset(m.u.checkpoint.name, 'n', PSP_CHECKPOINT_NAME_MAX);
    psp_buffer_t *buffer = round_trip(f, &m);
    const psp_checkpoint_t *read = &f->message.u.checkpoint;
    assert_int_equal(read->step, PSP_CHECKPOINT_STATE);
    assert_true(read->offset == UINT64_MAX);
    assert_string_equal(read->name, m.u.checkpoint.name);
    assert_int_equal(read->n, sizeof bytes);
    assert_memory_equal(read->state, bytes, sizeof bytes);
    psp_buffer_put(buffer);

    m = (psp_message_t){.kind = PSP_CHECKPOINT_REPLY, .reply = some_reply};
    m.u.checkpoint_reply =
        (psp_checkpoint_reply_t){.name = "c", .state_bytes = 5, .n = 1, .state = bytes + 1};
    buffer = round_trip(f, &m);
    assert_string_equal(f->message.u.checkpoint_reply.name, "c");
    assert_int_equal(f->message.u.checkpoint_reply.state_bytes, 5);
    assert_int_equal(f->message.u.checkpoint_reply.n, 1);
    assert_int_equal(f->message.u.checkpoint_reply.state[0], 7);
    psp_buffer_put(buffer);

    assert_false(f->message.u.checkpoint_reply.over);

    m.u.checkpoint_reply = (psp_checkpoint_reply_t){.over = true};
    psp_buffer_put(round_trip(f, &m));
    assert_true(f->message.u.checkpoint_reply.over);

    m = (psp_message_t){.kind = PSP_CHECKPOINT, .request = some_request};
    m.u.checkpoint.step = PSP_CHECKPOINT_LOOK;
    m.u.checkpoint.in_step = true;
    psp_buffer_put(round_trip(f, &m));
    assert_int_equal(f->message.u.checkpoint.step, PSP_CHECKPOINT_LOOK);
    assert_true(f->message.u.checkpoint.in_step && !f->message.u.checkpoint.detached);
    assert_false(f->message.u.checkpoint.everywhere);
    m.u.checkpoint.in_step = false;
    m.u.checkpoint.detached = true;
    psp_buffer_put(round_trip(f, &m));
    assert_true(f->message.u.checkpoint.detached && !f->message.u.checkpoint.in_step);
    m.u.checkpoint.detached = false;
    m.u.checkpoint.everywhere = true;
    psp_buffer_put(round_trip(f, &m));
    assert_true(f->message.u.checkpoint.everywhere && !f->message.u.checkpoint.detached);
    assert_int_equal(f->message.u.checkpoint.n, 0);
    assert_non_null(f->message.u.checkpoint.state);
    memset(m.u.checkpoint.name, 'n', sizeof m.u.checkpoint.name);
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
}

static void every_option_of_a_table_survives_the_wire(void **state)
{
    message_fixture_t *f = *state;
    psp_message_t m = {.kind = PSP_OPEN_TABLE, .request = some_request};
    psp_open_table_t *t = &m.u.open_table;
    *t = (psp_open_table_t){.name = "n", .init = "i", .optimizer = "o", .dim = 1};
    t->precision = PSP_F16;
    t->state_precision = PSP_BF16;
    t->l2 = 1e-300;
    t->clip_value = 2.5;
    t->clip_norm = 1e300;
    t->weight_min = -0.1;
    t->weight_max = 0.3;
    t->pad_id = UINT64_MAX;
    t->admit_after = UINT32_MAX - 1;
    t->admit_counters = UINT32_MAX - 2;
    t->expire_after = UINT64_MAX - 3;
    t->expire_rare_after = UINT64_MAX - 4;
    t->expire_rare_below = UINT32_MAX - 5;
    t->expire_floor = UINT32_MAX - 6;
    /* Each truth value alone, so that none is taken for another. */
    bool *const truths[] = {&t->per_row_steps, &t->has_bounds, &t->has_pad, &t->admit_shared,
                            &t->expire_dry_run};
    for (size_t i = 0; i < sizeof truths / sizeof truths[0]; i++) {
        *truths[i] = true;
        psp_buffer_put(round_trip(f, &m));
        const psp_open_table_t *got = &f->message.u.open_table;
        assert_int_equal(got->precision, PSP_F16);
        assert_int_equal(got->state_precision, PSP_BF16);
        assert_int_equal(got->per_row_steps, t->per_row_steps);
        assert_true(got->l2 == t->l2);
        assert_true(got->clip_value == t->clip_value);
        assert_true(got->clip_norm == t->clip_norm);
        assert_int_equal(got->has_bounds, t->has_bounds);
        assert_true(got->weight_min == t->weight_min);
        assert_true(got->weight_max == t->weight_max);
        assert_int_equal(got->has_pad, t->has_pad);
        assert_true(got->pad_id == t->pad_id);
        assert_int_equal(got->admit_after, t->admit_after);
        assert_int_equal(got->admit_shared, t->admit_shared);
        assert_int_equal(got->admit_counters, t->admit_counters);
        assert_true(got->expire_after == t->expire_after);
        assert_true(got->expire_rare_after == t->expire_rare_after);
        assert_int_equal(got->expire_rare_below, t->expire_rare_below);
        assert_int_equal(got->expire_floor, t->expire_floor);
        assert_int_equal(got->expire_dry_run, t->expire_dry_run);
        *truths[i] = false;
    }
}

static void precisions_have_names(void **state)
{
    (void)state;
    const char *const names[] = {"f32", "bf16", "f16"};
    for (size_t i = 0; i < PSP_PRECISIONS; i++) {
        psp_precision_t precision = PSP_F32;
        assert_string_equal(psp_precision_name((psp_precision_t)i), names[i]);
        assert_true(psp_precision_find(names[i], &precision));
        assert_int_equal(precision, i);
    }
    psp_precision_t precision = PSP_F16;
    assert_false(psp_precision_find("f", &precision));
    assert_false(psp_precision_find("", &precision));
    assert_int_equal(precision, PSP_F16);
    assert_string_equal(psp_precision_name((psp_precision_t)PSP_PRECISIONS), "unknown");
}

static void stats_reply_survives_with_most_counters(void **state)
{
    message_fixture_t *f = *state;
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
    message_fixture_t *f = *state;
    const size_t counts[] = {0, 1, 2, 15, 16, 1000, 100000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        size_t n = counts[c];
        psp_pull_t pull = {.table = 1, .table_epoch = 2, .staleness = PSP_STALENESS_ASYNC, .n = n};
        pull.want_versions = n % 2 == 0;
        pull.scan = n % 3 == 0;
        pull.format = (psp_format_t)(c % PSP_FORMATS);
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
        assert_int_equal(p->scan, n % 3 == 0);
        assert_int_equal(p->format, c % PSP_FORMATS);
        assert_int_equal(p->n, n);
        if (n != 0)
            assert_ptr_equal(p->ids, ids); /* no copy */
        for (size_t i = 0; i < n; i++)
            assert_true(psp_id_at(p->ids, i) == UINT64_MAX - i);
        psp_buffer_put(buffer);
    }
}

static void pull_tells_the_versions_that_are_held(void **state)
{
    message_fixture_t *f = *state;
    const size_t counts[] = {0, 1, 3, 1000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        size_t n = counts[c];
        uint32_t versions[1000];
        for (size_t i = 0; i < n; i++)
            versions[i] = UINT32_MAX - (uint32_t)(i * 7);
        psp_pull_t pull = {.table = 1, .n = n, .versions = (const uint8_t *)versions};
        psp_buffer_t *buffer = NULL;
        uint8_t *ids = NULL;
        assert_int_equal(psp_pull_begin(f->pool, &some_request, &pull, &buffer, &ids, &f->error),
                         PSC_OK);
        memset(ids, 5, n * 8);
        assert_int_equal(psp_message_unpack(f->scratch, PSP_PULL, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        assert_int_equal(f->message.u.pull.n, n);
        if (n == 0)
            assert_null(f->message.u.pull.versions);
        else
            assert_memory_equal(f->message.u.pull.versions, versions, n * 4);
        psp_buffer_put(buffer);
    }
}

static void push_reply_brings_rows_back(void **state)
{
    message_fixture_t *f = *state;
    enum { N = 9, D = 3 };
    static const size_t row_bytes[PSP_FORMATS] = {4 * D, 2 * D, 2 * D, 4 + D};
    uint32_t versions[N];
    for (uint32_t i = 0; i < N; i++)
        versions[i] = i * i;
    psp_push_reply_t reply = {.dim = D, .n = N, .versions = (const uint8_t *)versions};
    psp_buffer_t *buffer = NULL;
    uint8_t *rows = NULL;
    for (uint32_t format = 0; format < PSP_FORMATS; format++) {
        const size_t bytes = N * row_bytes[format];
        reply.format = (psp_format_t)format;
        assert_int_equal(
            psp_push_reply_begin(f->pool, &some_reply, &reply, &buffer, &rows, &f->error), PSC_OK);
        for (size_t i = 0; i < bytes; i++)
            rows[i] = (uint8_t)i;
        assert_ptr_equal(rows + bytes, buffer->data + buffer->size);
        assert_int_equal(psp_message_unpack(f->scratch, PSP_PUSH_REPLY, buffer->data, buffer->size,
                                            &f->message, &f->error),
                         PSC_OK);
        assert_reply_ok(&f->message.reply);
        assert_int_equal(f->message.u.push_reply.n, N);
        assert_int_equal(f->message.u.push_reply.dim, D);
        assert_int_equal(f->message.u.push_reply.format, format);
        assert_ptr_equal(f->message.u.push_reply.rows, rows);
        assert_memory_equal(f->message.u.push_reply.versions, versions, sizeof versions);
        psp_buffer_put(buffer);
    }
    reply.format = (psp_format_t)PSP_FORMATS;
    assert_int_equal(psp_push_reply_begin(f->pool, &some_reply, &reply, &buffer, &rows, &f->error),
                     PSC_INVALID_ARGUMENT);
    reply = (psp_push_reply_t){.n = N, .versions = (const uint8_t *)versions};
    assert_int_equal(psp_push_reply_begin(f->pool, &some_reply, &reply, &buffer, &rows, &f->error),
                     PSC_INVALID_ARGUMENT);
}

static void an_error_reply_of_any_kind_comes_back_whole(void **state)
{
    message_fixture_t *f = *state;
    psp_reply_header_t header = {.request = 5, .map_epoch = 6};
    header.error = (psc_error_t){.code = PSC_DISK_FULL, .rank = 3, .id = UINT64_MAX};
    memset(header.error.message, 'x', sizeof header.error.message - 1);
    for (uint32_t kind = 1; kind < PSP_KIND_LAST; kind += 2) {
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

static void arguments_out_of_range_are_not_packed(void **state)
{
    message_fixture_t *f = *state;
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
    psp_pull_reply_t reply = {.dim = 4, .n = SIZE_MAX / 2};
    assert_int_equal(psp_pull_reply_begin(f->pool, &some_reply, &reply, &buffer, &rows, &f->error),
                     PSC_INVALID_ARGUMENT);
    const psp_format_t none = (psp_format_t)PSP_FORMATS;
    reply = (psp_pull_reply_t){.dim = 4, .n = 1, .format = none};
    assert_int_equal(psp_pull_reply_begin(f->pool, &some_reply, &reply, &buffer, &rows, &f->error),
                     PSC_INVALID_ARGUMENT);
    push = (psp_push_t){.dim = 4, .n = 1, .format = none};
    assert_int_equal(psp_push_begin(f->pool, &some_request, &push, &buffer, &ids, &rows, &f->error),
                     PSC_INVALID_ARGUMENT);
    pull = (psp_pull_t){.n = 1, .format = none};
    assert_int_equal(psp_pull_begin(f->pool, &some_request, &pull, &buffer, &ids, &f->error),
                     PSC_INVALID_ARGUMENT);
    psp_message_t m = {.kind = PSP_PUSH, .request = some_request};
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
    m = (psp_message_t){.kind = PSP_OPEN_TABLE, .request = some_request};
    m.u.open_table = (psp_open_table_t){.name = "", .init = "i", .optimizer = "o", .dim = 4};
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
    m.u.open_table = (psp_open_table_t){.name = "n", .init = "i", .optimizer = "o", .dim = 4};
    m.u.open_table.precision = (psp_precision_t)PSP_PRECISIONS;
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
    m.u.open_table.precision = PSP_F32;
    m.u.open_table.state_precision = (psp_precision_t)PSP_PRECISIONS;
    assert_int_equal(psp_message_pack(f->pool, &m, &buffer, &f->error), PSC_INVALID_ARGUMENT);
    assert_null(buffer);
    assert_int_equal(psp_pool_bytes_out(f->pool), 0);
}

static void a_failed_allocation_is_reported(void **state)
{
    message_fixture_t *f = *state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        MESSAGE_TEST(every_request_survives_the_wire),
        MESSAGE_TEST(every_small_reply_survives_the_wire),
        MESSAGE_TEST(no_message_tells_parts_of_too_many_servers),
        MESSAGE_TEST(hello_tells_former_sessions),
        MESSAGE_TEST(hello_reply_carries_the_slot_map),
        MESSAGE_TEST(hello_reply_tells_where_the_servers_listen),
        MESSAGE_TEST(open_table_survives_with_longest_names_and_all_params),
        MESSAGE_TEST(a_table_that_is_found_or_not_survives_the_wire),
        MESSAGE_TEST(a_checkpoint_survives_the_wire),
        MESSAGE_TEST(every_option_of_a_table_survives_the_wire),
        cmocka_unit_test(precisions_have_names),
        MESSAGE_TEST(stats_reply_survives_with_most_counters),
        MESSAGE_TEST(pull_is_written_in_place),
        MESSAGE_TEST(pull_tells_the_versions_that_are_held),
        MESSAGE_TEST(push_reply_brings_rows_back),
        MESSAGE_TEST(an_error_reply_of_any_kind_comes_back_whole),
        MESSAGE_TEST(arguments_out_of_range_are_not_packed),
        MESSAGE_TEST(a_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests_name("message_pack", tests, NULL, NULL);
}
