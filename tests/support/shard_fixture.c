/*
 * Drives a shard as ps/server.c does, without a transport: replies are put in a list.
 *
 * The store's I/O thread is real; waiting for it is polling with sched_yield, bounded in time so
 * that a lost reply is a failed test and not a hanging one.
 */
#include "tests/support/shard_fixture.h"

#include "common/clock.h"
#include "common/slots.h"
#include "ps/serve/serve.h"
#include "tests/support/cmocka.h"

#include <sched.h>
#include <string.h>

#define PATIENCE_US UINT64_C(60000000)

static void collect(void *context, uint32_t peer, psp_buffer_t *buffer)
{
    shard_fixture_t *f = context;
    buffer->peer = peer;
    buffer->node.next = NULL;
    if (f->last != NULL)
        f->last->node.next = &buffer->node;
    else
        f->first = buffer;
    f->last = buffer;
}

void fixture_open(shard_fixture_t *f, const fixture_options_t *options)
{
    *f = (shard_fixture_t){.next_request = 1,
                           .n_workers = options->n_workers,
                           .next_call = 1,
                           .failure = PSC_ERROR_INIT};
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psp_pool_create((size_t)16 << 20, &f->pool, &error), PSC_OK);
    assert_int_equal(psp_scratch_create((size_t)4 << 20, &f->scratch, &error), PSC_OK);
    ps_store_options_t store_options = {.memory_bytes = options->memory_bytes,
                                        .cold = options->cold};
    if (options->cold == NULL)
        assert_int_equal(ps_cold_memory_create(&options->faults, &store_options.cold, &error),
                         PSC_OK);
    assert_int_equal(ps_store_open(&store_options, &f->store, &error), PSC_OK);
    ps_shard_options_t shard_options = {.serve = ps_serve_functions,
                                        .store = f->store,
                                        .pool = f->pool,
                                        .reply = collect,
                                        .reply_context = f,
                                        .cluster = FIXTURE_CLUSTER,
                                        .rank = options->rank,
                                        .n_servers = options->n_servers,
                                        .n_workers = options->n_workers,
                                        .max_message_bytes = PSP_MAX_MESSAGE_BYTES,
                                        .direct = options->direct,
                                        .n_guests = options->n_guests,
                                        .lease_us = options->lease_us};
    assert_int_equal(ps_shard_create(&shard_options, &f->shard, &error), PSC_OK);
}

void fixture_close(shard_fixture_t *f, bool clean)
{
    psp_buffer_put(f->taken);
    while (f->first != NULL) {
        psp_buffer_t *buffer = f->first;
        f->first = (psp_buffer_t *)(void *)buffer->node.next;
        psp_buffer_put(buffer);
    }
    ps_shard_destroy(f->shard);
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = ps_store_close(f->store, clean, &error);
    assert_int_equal(st, PSC_OK);
    psp_scratch_destroy(f->scratch);
    assert_int_equal(psp_pool_bytes_out(f->pool), 0);
    psp_pool_destroy(f->pool);
}

psp_request_header_t fixture_header(shard_fixture_t *f, uint32_t worker)
{
    return (psp_request_header_t){.protocol = PSP_PROTOCOL_VERSION,
                                  .cluster = FIXTURE_CLUSTER,
                                  .map_epoch = 1,
                                  .session = f->session[worker],
                                  .sequence = ++f->sequence[worker],
                                  .lowest_unacked = 1,
                                  .request = f->next_request++,
                                  .clock = f->clock[worker]};
}

static void hand_in(shard_fixture_t *f, uint32_t worker, psp_buffer_t *buffer)
{
    buffer->peer = worker;
    if (worker >= f->n_workers) {
        buffer->peer = PSP_PEER_GUEST;
        buffer->call = (void *)f->next_call++;
        buffer->sealed = f->sealed;
        buffer->grant = f->grant;
    }
    psc_error_t error = PSC_ERROR_INIT;
    if (ps_shard_handle(f->shard, buffer, &error) != PSC_OK)
        f->failure = error;
}

uint64_t fixture_send(shard_fixture_t *f, uint32_t worker, psp_message_t *message)
{
    psp_buffer_t *buffer;
    if (message->request.protocol == 0)
        message->request = fixture_header(f, worker);
    assert_int_equal(psp_message_pack(f->pool, message, &buffer, NULL), PSC_OK);
    hand_in(f, worker, buffer);
    return message->request.request;
}

uint64_t fixture_pull(shard_fixture_t *f, uint32_t worker, const psp_request_header_t *header,
                      psp_pull_t pull, const uint64_t *ids)
{
    psp_buffer_t *buffer;
    uint8_t *out;
    psp_request_header_t own = header != NULL ? *header : fixture_header(f, worker);
    assert_int_equal(psp_pull_begin(f->pool, &own, &pull, &buffer, &out, NULL), PSC_OK);
    if (pull.n != 0)
        memcpy(out, ids, pull.n * sizeof *ids);
    hand_in(f, worker, buffer);
    return own.request;
}

uint64_t fixture_push(shard_fixture_t *f, uint32_t worker, const psp_request_header_t *header,
                      psp_push_t push, const uint64_t *ids, const float *rows)
{
    psp_buffer_t *buffer;
    uint8_t *ids_out, *rows_out;
    psp_request_header_t own = header != NULL ? *header : fixture_header(f, worker);
    assert_int_equal(psp_push_begin(f->pool, &own, &push, &buffer, &ids_out, &rows_out, NULL),
                     PSC_OK);
    if (push.n != 0) {
        memcpy(ids_out, ids, push.n * sizeof *ids);
        for (size_t i = 0; i < push.n; i++)
            psp_row_format(push.format)
                ->encode(rows_out + i * psp_row_bytes(push.format, push.dim), rows + i * push.dim,
                         push.dim);
    }
    hand_in(f, worker, buffer);
    return own.request;
}

void fixture_send_bytes(shard_fixture_t *f, uint32_t worker, uint32_t kind, const uint8_t *bytes,
                        size_t size)
{
    psp_buffer_t *buffer;
    assert_int_equal(psp_buffer_get(f->pool, size, &buffer, NULL), PSC_OK);
    if (size != 0)
        memcpy(buffer->data, bytes, size);
    buffer->size = size;
    buffer->kind = kind;
    hand_in(f, worker, buffer);
}

bool fixture_take(shard_fixture_t *f, psp_message_t *reply_out, uint32_t *worker_out)
{
    psp_buffer_put(f->taken);
    psp_buffer_t *buffer = f->taken = f->first;
    if (buffer == NULL)
        return false;
    f->first = (psp_buffer_t *)(void *)buffer->node.next;
    if (f->first == NULL)
        f->last = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(
        psp_message_unpack(f->scratch, buffer->kind, buffer->data, buffer->size, reply_out, &error),
        PSC_OK);
    if (worker_out != NULL)
        *worker_out = buffer->peer;
    return true;
}

void fixture_poll(shard_fixture_t *f)
{
    bool progress;
    psc_error_t error = PSC_ERROR_INIT;
    if (ps_shard_poll(f->shard, &progress, &error) != PSC_OK)
        f->failure = error;
    else if (!progress)
        (void)sched_yield();
}

void fixture_wait(shard_fixture_t *f, psp_message_t *reply_out, uint32_t *worker_out)
{
    uint64_t until_us = psc_clock_us() + PATIENCE_US;
    while (!fixture_take(f, reply_out, worker_out)) {
        assert_true(psc_clock_us() < until_us);
        fixture_poll(f);
    }
}

void fixture_hello(shard_fixture_t *f, uint32_t worker)
{
    psp_message_t hello = {
        .kind = PSP_HELLO,
        .request = {.protocol = PSP_PROTOCOL_VERSION, .request = f->next_request++},
        .u.hello = {.worker = worker, .n_workers = 0},
    };
    /* The number of workers is the shard's: a hello with another one is refused (tested apart). */
    const bool guest = worker >= f->n_workers;
    for (uint32_t n = guest ? 0 : 1; n <= (guest ? 0 : FIXTURE_WORKERS_MAX); n++) {
        psp_message_t reply = {0};
        hello.u.hello.n_workers = n;
        (void)fixture_send(f, worker, &hello);
        assert_true(fixture_take(f, &reply, NULL));
        if (reply.reply.error.code != PSC_OK)
            continue;
        assert_int_equal(reply.kind, PSP_HELLO_REPLY);
        f->session[worker] = reply.u.hello_reply.session;
        return;
    }
    fail_msg("no hello was accepted");
}

psc_status_t fixture_open_table(shard_fixture_t *f, const psp_open_table_t *options,
                                psp_open_table_reply_t *reply_out, psc_error_t *error_out)
{
    psp_message_t message = {.kind = PSP_OPEN_TABLE, .u.open_table = *options};
    psp_message_t reply = {0};
    uint64_t request = fixture_send(f, 0, &message);
    assert_true(fixture_take(f, &reply, NULL));
    assert_int_equal(reply.reply.request, request);
    if (error_out != NULL)
        *error_out = reply.reply.error;
    if (reply.reply.error.code == PSC_OK && reply_out != NULL)
        *reply_out = reply.u.open_table_reply;
    return reply.reply.error.code;
}

uint64_t fixture_counter(shard_fixture_t *f, uint32_t worker, const char *name)
{
    psp_message_t message = {.kind = PSP_STATS}, reply;
    (void)fixture_send(f, worker, &message);
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.kind, PSP_STATS_REPLY);
    for (size_t i = 0; i < reply.u.stats_reply.n; i++) {
        if (strcmp(reply.u.stats_reply.counters[i].name, name) == 0)
            return reply.u.stats_reply.counters[i].value;
    }
    fail_msg("no counter %s", name);
    return 0;
}
