/*
 * Three servers in a few lines: a message is served when it is sent, its reply waits in a list.
 */
#include "tests/support/core_sim.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"

static const uint32_t sim_epochs[SERVERS] = {7, 8, 9};
const psw_target_t sim_target = {.table = TABLE, .dim = D, .epochs = sim_epochs};
const psw_room_t sim_no_room = {.fn = NULL};

static void open_as(sim_t *sim, uint32_t window_messages, uint32_t worker, uint32_t n_workers)
{
    memset(sim, 0, sizeof *sim);
    sim->worker = worker;
    sim->refusing = sim->stateless = SERVERS;
    sim->max_message_bytes = 1024;
    assert_int_equal(psp_pool_create(1 << 24, &sim->pool, NULL), PSC_OK);
    assert_int_equal(psp_scratch_create(1 << 20, &sim->scratch, NULL), PSC_OK);
    assert_int_equal(psc_slot_map_init(&sim->map, SERVERS, NULL), PSC_OK);
    const psw_core_options_t options = {.n_servers = SERVERS,
                                        .worker = worker,
                                        .n_workers = n_workers,
                                        .pool = sim->pool,
                                        .window_bytes = WINDOW,
                                        .window_messages = window_messages};
    assert_int_equal(psw_core_create(&options, &sim->core, NULL), PSC_OK);
    sim->issuer.core = sim->core;
    assert_int_equal(psw_batch_create(&sim->issuer.batch, NULL), PSC_OK);
    assert_int_equal(psw_router_create(&sim->issuer.router, NULL), PSC_OK);
}

void sim_open(sim_t *sim, uint32_t window_messages)
{
    open_as(sim, window_messages, 1, 2);
}

void sim_open_guest(sim_t *sim, uint32_t window_messages)
{
    open_as(sim, window_messages, 0, 0);
}

void sim_close(sim_t *sim)
{
    for (size_t i = 0; i < sim->n_replies; i++)
        psp_buffer_put(sim->replies[i]);
    psw_core_destroy(sim->core);
    psw_batch_destroy(sim->issuer.batch);
    psw_router_destroy(sim->issuer.router);
    psc_free(sim->issuer.row_scratch);
    psp_scratch_destroy(sim->scratch);
    assert_int_equal(psp_pool_bytes_out(sim->pool), 0);
    psp_pool_destroy(sim->pool);
}

psp_buffer_t *sim_pack(sim_t *sim, const psp_message_t *message)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_message_pack(sim->pool, message, &buffer, NULL), PSC_OK);
    return buffer;
}

psp_buffer_t *sim_hello_reply(sim_t *sim, uint32_t server, uint64_t number)
{
    psp_message_t reply = {.kind = PSP_HELLO_REPLY,
                           .reply = {.request = number, .error = PSC_ERROR_INIT},
                           .u.hello_reply = {.cluster = CLUSTER,
                                             .session = 100 + server,
                                             .server = server,
                                             .n_servers = SERVERS,
                                             .map_epoch = sim->map.epoch,
                                             .max_message_bytes = sim->max_message_bytes,
                                             .slot_owners = (const uint8_t *)sim->map.owner,
                                             .window_bytes = sim->told_window_bytes}};
    (void)snprintf(reply.u.hello_reply.host, sizeof reply.u.hello_reply.host, "node%u", server);
    return sim_pack(sim, &reply);
}

static psp_buffer_t *pull_reply(sim_t *sim, uint32_t server, const psp_pull_t *pull,
                                const psp_reply_header_t *header)
{
    psp_buffer_t *buffer = NULL;
    uint8_t *rows;
    uint8_t states[IDS];
    bool told = sim->states != NULL && server != sim->stateless;
    for (size_t i = 0; told && i < pull->n; i++)
        states[i] = sim->states[psp_id_at(pull->ids, i)];
    const psp_pull_reply_t reply = {
        .dim = D, .format = pull->format, .n = pull->n, .states = told ? states : NULL};
    assert_int_equal(psp_pull_reply_begin(sim->pool, header, &reply, &buffer, &rows, NULL), PSC_OK);
    for (size_t i = 0; i < pull->n; i++)
        psp_row_format(pull->format)
            ->encode(rows + i * psp_row_bytes(pull->format, D), sim->rows[psp_id_at(pull->ids, i)],
                     D);
    return buffer;
}

static void apply_push(sim_t *sim, const psp_push_t *push)
{
    for (size_t i = 0; i < push->n; i++) {
        float *row = sim->rows[psp_id_at(push->ids, i)];
        float values[D];
        psp_row_format(push->format)
            ->decode(values, push->rows + i * psp_row_bytes(push->format, D), D);
        for (size_t c = 0; c < D; c++)
            row[c] = push->kind == PSP_PUSH_ASSIGN ? values[c] : row[c] + values[c];
    }
}

/* What every request must say, in the order in which a server gets them. */
static void check_header(sim_t *sim, uint32_t server, const psp_request_header_t *header)
{
    assert_int_equal(header->protocol, PSP_PROTOCOL_VERSION);
    assert_true(header->cluster == CLUSTER);
    assert_int_equal(header->session, 100 + server);
    assert_int_equal(header->map_epoch, sim->map.epoch);
    assert_true(header->sequence == ++sim->next_sequence[server]);
    assert_true(header->lowest_unacked >= 1 && header->lowest_unacked <= header->sequence);
}

/* Pushes are numbered, and the first one of a call to each server tells of all of them. */
static void check_part(sim_t *sim, uint32_t server, const psp_request_header_t *header)
{
    assert_true(header->part == ++sim->parts[server]);
    assert_true(header->n_parts == 0 || header->n_parts == SERVERS);
    for (size_t s = 0; s < header->n_parts; s++)
        sim->told[s] = header->parts[s] > sim->told[s] ? header->parts[s] : sim->told[s];
    assert_true(header->part <= sim->told[server]);
}

static void check_owners(const sim_t *sim, uint32_t server, const uint8_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(psc_slot_owner(&sim->map, psc_row_hash(TABLE, psp_id_at(ids, i))), server);
}

void sim_serve(sim_t *sim, psp_buffer_t *buffer)
{
    const uint32_t server = buffer->peer;
    psp_message_t m;
    assert_true(buffer->size <= sim->max_message_bytes);
    assert_int_equal(
        psp_message_unpack(sim->scratch, buffer->kind, buffer->data, buffer->size, &m, NULL),
        PSC_OK);
    psp_reply_header_t header = {.request = m.request.request, .error = PSC_ERROR_INIT};
    psp_buffer_t *reply = NULL;
    if (m.kind != PSP_HELLO) {
        check_header(sim, server, &m.request);
        sim->in_flight[server]++;
        if (sim->in_flight[server] > sim->in_flight_most[server])
            sim->in_flight_most[server] = sim->in_flight[server];
    }
    if (m.kind == PSP_HELLO) {
        assert_int_equal(m.request.session, 0);
        assert_int_equal(m.u.hello.worker, sim->worker);
        reply = sim_hello_reply(sim, server, m.request.request);
    } else if (server == sim->refusing) {
        (void)psc_error_set(&header.error, PSC_DISK_FULL, "no room for id 9");
        header.error.id = 9;
        assert_int_equal(
            psp_reply_pack(sim->pool, (psp_kind_t)psp_reply_kind(m.kind), &header, &reply, NULL),
            PSC_OK);
    } else if (m.kind == PSP_PULL) {
        assert_int_equal(m.u.pull.table_epoch, sim_epochs[server]);
        check_owners(sim, server, m.u.pull.ids, m.u.pull.n);
        assert_int_equal(m.u.pull.scan, sim->scan);
        reply = pull_reply(sim, server, &m.u.pull, &header);
    } else {
        if (m.kind == PSP_PUSH) {
            if (psw_core_numbers_parts(sim->core))
                check_part(sim, server, &m.request);
            check_owners(sim, server, m.u.push.ids, m.u.push.n);
            assert_true(m.u.push.step == sim->step);
            apply_push(sim, &m.u.push);
        }
        assert_int_equal(
            psp_reply_pack(sim->pool, (psp_kind_t)psp_reply_kind(m.kind), &header, &reply, NULL),
            PSC_OK);
    }
    reply->peer = server;
    psp_buffer_put(buffer);
    assert_true(sim->n_replies < REPLIES);
    sim->replies[sim->n_replies++] = reply;
}

void sim_send_all(sim_t *sim)
{
    psp_buffer_t *buffer;
    while ((buffer = psw_core_next(sim->core)) != NULL)
        sim_serve(sim, buffer);
}

psc_status_t sim_deliver(sim_t *sim, size_t at, psc_error_t *error)
{
    psp_buffer_t *buffer = sim->replies[at];
    sim->replies[at] = sim->replies[--sim->n_replies];
    sim->in_flight[buffer->peer] -= sim->in_flight[buffer->peer] != 0;
    return psw_core_receive(sim->core, buffer, error);
}

void sim_run(sim_t *sim, test_random_t *random)
{
    sim_send_all(sim);
    while (sim->n_replies != 0) {
        assert_int_equal(sim_deliver(sim, test_below(random, sim->n_replies), NULL), PSC_OK);
        sim_send_all(sim);
    }
}

void sim_hello(sim_t *sim)
{
    test_random_t random = {.key = 1};
    psw_request_t *request;
    assert_int_equal(psw_core_hello(sim->core, &request, NULL), PSC_OK);
    assert_false(psw_request_done(request));
    sim_run(sim, &random);
    assert_true(psw_request_done(request));
    assert_int_equal(request->error.code, PSC_OK);
    psw_core_release(sim->core, request);
    memset(sim->in_flight, 0, sizeof sim->in_flight);
}

psw_request_t *sim_pull(sim_t *sim, const uint64_t *ids, size_t n, float *rows)
{
    const psw_pull_options_t options = {.ids = ids, .n = n, .rows_out = rows, .stride = D};
    psw_issued_t issued = {0};
    assert_int_equal(
        psw_issue_pull(&sim->issuer, &sim_target, &options, sim_no_room, &issued, NULL), PSC_OK);
    return issued.request;
}

psw_request_t *sim_push(sim_t *sim, psp_push_kind_t kind, const uint64_t *ids, size_t n,
                        const float *rows)
{
    const psw_push_options_t options = {.kind = kind, .ids = ids, .n = n, .rows = rows};
    psw_issued_t issued = {0};
    assert_int_equal(
        psw_issue_push(&sim->issuer, &sim_target, &options, sim_no_room, &issued, NULL), PSC_OK);
    return issued.request;
}
