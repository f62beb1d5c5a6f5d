/*
 * The client core against simulated servers that keep rows in a plain array, answer in any order,
 * refuse, or answer nonsense.
 */
#include "worker/core.h"

#include "common/alloc.h"
#include "worker/issue.h"

#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

enum { SERVERS = 3, IDS = 200, D = 5, TABLE = 4, REPLIES = 4096 };

#define CLUSTER UINT64_C(0xc1)
#define WINDOW 4096u

typedef struct sim {
    psp_pool_t *pool;
    psp_scratch_t *scratch;
    psw_core_t *core;
    psw_issuer_t issuer;
    psc_slot_map_t map;
    float rows[IDS][D];
    uint64_t next_sequence[SERVERS];
    uint64_t answered[SERVERS]; /* replies handed to the core, hello aside */
    size_t in_flight[SERVERS], in_flight_most[SERVERS];
    uint32_t max_message_bytes;
    uint32_t refusing; /* server that refuses all, SERVERS: none */
    psp_buffer_t *replies[REPLIES];
    size_t n_replies;
} sim_t;

static const uint32_t epochs[SERVERS] = {7, 8, 9};
static const psw_target_t target = {.table = TABLE, .dim = D, .epochs = epochs};
static const psw_room_t no_room = {.fn = NULL};

static void sim_open(sim_t *sim, uint32_t window_messages)
{
    memset(sim, 0, sizeof *sim);
    sim->refusing = SERVERS;
    sim->max_message_bytes = 1024;
    assert_int_equal(psp_pool_create(1 << 24, &sim->pool, NULL), PSC_OK);
    assert_int_equal(psp_scratch_create(1 << 20, &sim->scratch, NULL), PSC_OK);
    assert_int_equal(psc_slot_map_init(&sim->map, SERVERS, NULL), PSC_OK);
    const psw_core_options_t options = {.n_servers = SERVERS,
                                        .worker = 1,
                                        .n_workers = 2,
                                        .pool = sim->pool,
                                        .window_bytes = WINDOW,
                                        .window_messages = window_messages};
    assert_int_equal(psw_core_create(&options, &sim->core, NULL), PSC_OK);
    sim->issuer.core = sim->core;
    assert_int_equal(psw_batch_create(&sim->issuer.batch, NULL), PSC_OK);
    assert_int_equal(psw_router_create(&sim->issuer.router, NULL), PSC_OK);
}

static void sim_close(sim_t *sim)
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

static psp_buffer_t *pack(sim_t *sim, const psp_message_t *message)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_message_pack(sim->pool, message, &buffer, NULL), PSC_OK);
    return buffer;
}

static psp_buffer_t *hello_reply(sim_t *sim, uint32_t server, uint64_t number)
{
    psp_message_t reply = {.kind = PSP_HELLO_REPLY,
                           .reply = {.request = number, .error = PSC_ERROR_INIT},
                           .u.hello_reply = {.cluster = CLUSTER,
                                             .session = 100 + server,
                                             .server = server,
                                             .n_servers = SERVERS,
                                             .map_epoch = sim->map.epoch,
                                             .max_message_bytes = sim->max_message_bytes,
                                             .slot_owners = (const uint8_t *)sim->map.owner}};
    return pack(sim, &reply);
}

static psp_buffer_t *pull_reply(sim_t *sim, const psp_pull_t *pull,
                                const psp_reply_header_t *header)
{
    psp_buffer_t *buffer = NULL;
    uint8_t *rows;
    assert_int_equal(
        psp_pull_reply_begin(sim->pool, header, D, pull->n, NULL, NULL, &buffer, &rows, NULL),
        PSC_OK);
    for (size_t i = 0; i < pull->n; i++)
        memcpy(rows + i * sizeof sim->rows[0], sim->rows[psp_id_at(pull->ids, i)],
               sizeof sim->rows[0]);
    return buffer;
}

static void apply_push(sim_t *sim, const psp_push_t *push)
{
    for (size_t i = 0; i < push->n; i++) {
        float *row = sim->rows[psp_id_at(push->ids, i)];
        for (size_t c = 0; c < D; c++) {
            float value;
            memcpy(&value, push->rows + (i * D + c) * sizeof value, sizeof value);
            row[c] = push->kind == PSP_PUSH_ASSIGN ? value : row[c] + value;
        }
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

static void check_owners(const sim_t *sim, uint32_t server, const uint8_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(psc_slot_owner(&sim->map, psc_row_hash(TABLE, psp_id_at(ids, i))), server);
}

/* A server gets a message and makes its reply, which waits to be delivered. */
static void serve(sim_t *sim, psp_buffer_t *buffer)
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
        assert_int_equal(m.u.hello.worker, 1);
        reply = hello_reply(sim, server, m.request.request);
    } else if (server == sim->refusing) {
        (void)psc_error_set(&header.error, PSC_DISK_FULL, "no room for id 9");
        header.error.id = 9;
        assert_int_equal(
            psp_reply_pack(sim->pool, (psp_kind_t)psp_reply_kind(m.kind), &header, &reply, NULL),
            PSC_OK);
    } else if (m.kind == PSP_PULL) {
        assert_int_equal(m.u.pull.table_epoch, epochs[server]);
        check_owners(sim, server, m.u.pull.ids, m.u.pull.n);
        reply = pull_reply(sim, &m.u.pull, &header);
    } else {
        if (m.kind == PSP_PUSH) {
            check_owners(sim, server, m.u.push.ids, m.u.push.n);
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

static void send_all(sim_t *sim)
{
    psp_buffer_t *buffer;
    while ((buffer = psw_core_next(sim->core)) != NULL)
        serve(sim, buffer);
}

/* Hands in the reply at an index. */
static psc_status_t deliver(sim_t *sim, size_t at, psc_error_t *error)
{
    psp_buffer_t *buffer = sim->replies[at];
    sim->replies[at] = sim->replies[--sim->n_replies];
    sim->in_flight[buffer->peer] -= sim->in_flight[buffer->peer] != 0;
    return psw_core_receive(sim->core, buffer, error);
}

/* Everything, replies in random order. */
static void run(sim_t *sim, test_random_t *random)
{
    send_all(sim);
    while (sim->n_replies != 0) {
        assert_int_equal(deliver(sim, test_below(random, sim->n_replies), NULL), PSC_OK);
        send_all(sim);
    }
}

static void hello(sim_t *sim)
{
    test_random_t random = {.key = 1};
    psw_request_t *request;
    assert_int_equal(psw_core_hello(sim->core, &request, NULL), PSC_OK);
    assert_false(psw_request_done(request));
    run(sim, &random);
    assert_true(psw_request_done(request));
    assert_int_equal(request->error.code, PSC_OK);
    psw_core_release(sim->core, request);
    memset(sim->in_flight, 0, sizeof sim->in_flight);
}

static psw_request_t *pull(sim_t *sim, const uint64_t *ids, size_t n, float *rows)
{
    const psw_pull_options_t options = {.ids = ids, .n = n, .rows_out = rows, .stride = D};
    psw_issued_t issued = {0};
    assert_int_equal(psw_issue_pull(&sim->issuer, &target, &options, no_room, &issued, NULL),
                     PSC_OK);
    return issued.request;
}

static psw_request_t *push(sim_t *sim, psp_push_kind_t kind, const uint64_t *ids, size_t n,
                           const float *rows)
{
    const psw_push_options_t options = {.kind = kind, .ids = ids, .n = n, .rows = rows};
    psw_issued_t issued = {0};
    assert_int_equal(psw_issue_push(&sim->issuer, &target, &options, no_room, &issued, NULL),
                     PSC_OK);
    return issued.request;
}

static void hello_gives_sessions_map_and_limits(void **state)
{
    (void)state;
    sim_t sim;
    sim_open(&sim, 0);
    assert_false(psw_core_has_session(sim.core, 0));
    hello(&sim);
    for (uint32_t s = 0; s < SERVERS; s++)
        assert_true(psw_core_has_session(sim.core, s));
    assert_memory_equal(psw_core_map(sim.core)->owner, sim.map.owner, sizeof sim.map.owner);
    assert_int_equal(psw_core_map(sim.core)->n_servers, SERVERS);
    assert_int_equal(psw_core_max_message_bytes(sim.core), sim.max_message_bytes);
    assert_true(psw_core_idle(sim.core));
    sim_close(&sim);
}

static void servers_of_another_run_or_map_are_refused(void **state)
{
    (void)state;
    for (int fault = 0; fault < 5; fault++) {
        sim_t sim;
        sim_open(&sim, 0);
        psw_request_t *request;
        assert_int_equal(psw_core_hello(sim.core, &request, NULL), PSC_OK);
        psp_buffer_t *messages[SERVERS];
        for (uint32_t s = 0; s < SERVERS; s++)
            messages[s] = psw_core_next(sim.core);
        assert_null(psw_core_next(sim.core));
        psc_status_t st = PSC_OK;
        psc_error_t error = PSC_ERROR_INIT;
        for (uint32_t s = 0; s < SERVERS && st == PSC_OK; s++) {
            psp_message_t m;
            assert_int_equal(psp_message_unpack(sim.scratch, messages[s]->kind, messages[s]->data,
                                                messages[s]->size, &m, NULL),
                             PSC_OK);
            psp_buffer_t *good = hello_reply(&sim, s, m.request.request);
            assert_int_equal(
                psp_message_unpack(sim.scratch, good->kind, good->data, good->size, &m, NULL),
                PSC_OK);
            m.u.hello_reply.cluster += s == 1 && fault == 0;
            m.u.hello_reply.server += s == 1 && fault == 1;
            m.u.hello_reply.n_servers += s == 1 && fault == 2;
            m.u.hello_reply.map_epoch += s == 1 && fault == 3;
            if (s == 1 && fault == 4)
                m.u.hello_reply.session = 0;
            psp_buffer_t *reply = pack(&sim, &m);
            reply->peer = s;
            psp_buffer_put(good);
            st = psw_core_receive(sim.core, reply, &error);
        }
        assert_int_equal(st, fault == 4 ? PSC_PROTOCOL : PSC_MISMATCH);
        assert_true(psw_request_done(request));
        assert_int_equal(request->error.code, st);
        for (uint32_t s = 0; s < SERVERS; s++)
            psp_buffer_put(messages[s]);
        sim_close(&sim);
    }
}

/* Random pulls and pushes under way at once; a pull must see what was issued before, and only that.
 */
static void rows_match_a_dictionary_whatever_the_order_of_replies(void **state)
{
    (void)state;
    enum { CALLS = 24, N = 120 };
    static float got[CALLS][N][D];
    static float expected[CALLS][N][D];
    static float model[IDS][D];
    test_random_t random = test_random_start();
    sim_t sim;
    sim_open(&sim, 3);
    hello(&sim);
    memset(model, 0, sizeof model);
    for (int round = 0; round < 12; round++) {
        psw_request_t *requests[CALLS];
        bool is_pull[CALLS];
        for (size_t k = 0; k < CALLS; k++) {
            uint64_t ids[N];
            float rows[N][D];
            size_t n = test_below(&random, N);
            for (size_t i = 0; i < n; i++)
                ids[i] = test_below(&random, IDS);
            is_pull[k] = test_below(&random, 2) == 0;
            memset(expected[k], 0, sizeof expected[k]);
            memset(got[k], 0, sizeof got[k]);
            if (is_pull[k]) {
                for (size_t i = 0; i < n; i++)
                    memcpy(expected[k][i], model[ids[i]], sizeof model[0]);
                requests[k] = pull(&sim, ids, n, &got[k][0][0]);
            } else {
                bool assign = test_below(&random, 3) == 0;
                for (size_t i = 0; i < n; i++) {
                    for (size_t c = 0; c < D; c++) { /* whole numbers: sums are exact */
                        rows[i][c] = (float)test_below(&random, 100);
                        model[ids[i]][c] = assign ? rows[i][c] : model[ids[i]][c] + rows[i][c];
                    }
                }
                requests[k] =
                    push(&sim, assign ? PSP_PUSH_ASSIGN : PSP_PUSH_DELTA, ids, n, &rows[0][0]);
            }
            if (test_below(&random, 3) == 0) {
                send_all(&sim);
                if (sim.n_replies != 0)
                    assert_int_equal(deliver(&sim, test_below(&random, sim.n_replies), NULL),
                                     PSC_OK);
            }
        }
        run(&sim, &random);
        assert_true(psw_core_idle(sim.core));
        for (size_t k = 0; k < CALLS; k++) {
            assert_true(psw_request_done(requests[k]));
            assert_int_equal(requests[k]->error.code, PSC_OK);
            assert_memory_equal(got[k], expected[k], sizeof got[k]);
            psw_core_release(sim.core, requests[k]);
        }
        assert_memory_equal(model, sim.rows, sizeof model);
    }
    for (uint32_t s = 0; s < SERVERS; s++)
        assert_in_range(sim.in_flight_most[s], 1, 3);
    sim_close(&sim);
}

static void a_window_bounds_bytes_and_lets_one_message_through(void **state)
{
    (void)state;
    test_random_t random = {.key = 2};
    sim_t sim;
    sim_open(&sim, 1000);
    sim.max_message_bytes = 3000;
    hello(&sim);
    uint64_t ids[IDS];
    float rows[IDS][D];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    memset(rows, 0, sizeof rows);
    psw_request_t *requests[8];
    for (size_t k = 0; k < 8; k++)
        requests[k] = push(&sim, PSP_PUSH_DELTA, ids, IDS, &rows[0][0]);
    size_t bytes[SERVERS] = {0};
    size_t count[SERVERS] = {0};
    psp_buffer_t *buffer;
    while ((buffer = psw_core_next(sim.core)) != NULL) {
        bytes[buffer->peer] += buffer->size;
        count[buffer->peer]++;
        assert_true(count[buffer->peer] == 1 || bytes[buffer->peer] <= WINDOW);
        serve(&sim, buffer);
    }
    for (uint32_t s = 0; s < SERVERS; s++) {
        assert_true(count[s] >= 1 && count[s] < 8);
        assert_true(psw_core_queued_bytes(sim.core, s) != 0);
    }
    run(&sim, &random);
    for (size_t k = 0; k < 8; k++) {
        assert_true(psw_request_done(requests[k]));
        psw_core_release(sim.core, requests[k]);
    }
    for (uint32_t s = 0; s < SERVERS; s++)
        assert_int_equal(psw_core_queued_bytes(sim.core, s), 0);
    sim_close(&sim);
}

static void a_refused_part_fails_its_request_and_no_other(void **state)
{
    (void)state;
    test_random_t random = {.key = 3};
    sim_t sim;
    sim_open(&sim, 0);
    hello(&sim);
    uint64_t ids[IDS];
    float rows[IDS][D];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    sim.refusing = 1;
    psw_request_t *request = pull(&sim, ids, IDS, &rows[0][0]);
    run(&sim, &random);
    assert_true(psw_request_done(request));
    assert_int_equal(request->error.code, PSC_DISK_FULL);
    assert_int_equal(request->error.rank, 1);
    assert_int_equal(request->error.id, 9);
    assert_string_equal(request->error.message, "server 1: no room for id 9");
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_core_unseen_error(sim.core, &error), PSC_DISK_FULL);
    psw_core_release(sim.core, request);
    assert_int_equal(psw_core_unseen_error(sim.core, &error), PSC_OK);
    sim.refusing = SERVERS;
    request = pull(&sim, ids, IDS, &rows[0][0]);
    run(&sim, &random);
    assert_int_equal(request->error.code, PSC_OK);
    psw_core_release(sim.core, request);
    sim_close(&sim);
}

/* What a faulty server can send for a pull; each must end the core with PROTOCOL and fail the pull.
 */
static void replies_that_answer_nothing_end_the_core(void **state)
{
    (void)state;
    enum { UNKNOWN, TWICE, KIND, PEER, ROWS, BYTES, FAULTS };
    for (int fault = 0; fault < FAULTS; fault++) {
        sim_t sim;
        sim_open(&sim, 0);
        hello(&sim);
        uint64_t ids[IDS];
        float rows[IDS][D];
        for (size_t i = 0; i < IDS; i++)
            ids[i] = i;
        psw_request_t *request = pull(&sim, ids, IDS, &rows[0][0]);
        send_all(&sim);
        psp_buffer_t *reply = sim.replies[0];
        psp_message_t m;
        assert_int_equal(
            psp_message_unpack(sim.scratch, reply->kind, reply->data, reply->size, &m, NULL),
            PSC_OK);
        psp_reply_header_t header = m.reply;
        psp_buffer_t *bad = NULL;
        uint8_t *out;
        header.request += fault == UNKNOWN ? 12345 : 0;
        if (fault == KIND)
            assert_int_equal(psp_reply_pack(sim.pool, PSP_PUSH_REPLY, &header, &bad, NULL), PSC_OK);
        else
            assert_int_equal(psp_pull_reply_begin(sim.pool, &header, D,
                                                  m.u.pull_reply.n - (fault == ROWS), NULL, NULL,
                                                  &bad, &out, NULL),
                             PSC_OK);
        bad->peer = (reply->peer + (fault == PEER)) % SERVERS;
        if (fault == BYTES)
            bad->size /= 2;
        if (fault == TWICE)
            assert_int_equal(deliver(&sim, 0, NULL), PSC_OK);
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psw_core_receive(sim.core, bad, &error), PSC_PROTOCOL);
        assert_true(psw_request_done(request));
        assert_int_equal(request->error.code, PSC_PROTOCOL);
        assert_string_equal(request->error.message, error.message);
        sim_close(&sim);
    }
}

static void an_ended_core_fails_all_and_still_says_goodbye(void **state)
{
    (void)state;
    sim_t sim;
    sim_open(&sim, 1);
    hello(&sim);
    uint64_t ids[IDS];
    float rows[IDS][D];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    memset(rows, 0, sizeof rows);
    psw_request_t *a = push(&sim, PSP_PUSH_DELTA, ids, IDS, &rows[0][0]);
    psw_request_t *b = pull(&sim, ids, IDS, &rows[0][0]);
    send_all(&sim);
    psc_error_t gone = PSC_ERROR_INIT;
    (void)psc_error_set(&gone, PSC_PEER_GONE, "server 2 is gone");
    psw_core_fail(sim.core, &gone);
    psc_error_t second = PSC_ERROR_INIT;
    (void)psc_error_set(&second, PSC_IO, "something else");
    psw_core_fail(sim.core, &second);
    assert_true(psw_request_done(a) && psw_request_done(b));
    assert_int_equal(a->error.code, PSC_PEER_GONE);
    assert_int_equal(b->error.code, PSC_PEER_GONE);
    assert_true(psw_core_idle(sim.core));
    assert_null(psw_core_next(sim.core));
    psw_request_t *later;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_core_request(sim.core, PSP_STATS, &later, &error), PSC_PEER_GONE);
    assert_string_equal(error.message, "server 2 is gone");
    /* what still comes is dropped */
    while (sim.n_replies != 0)
        assert_int_equal(deliver(&sim, 0, &error), PSC_PEER_GONE);
    psp_buffer_t *buffer;
    assert_int_equal(psw_core_last_goodbye(sim.core, 2, 21, &buffer, NULL), PSC_OK);
    psp_message_t m;
    assert_int_equal(
        psp_message_unpack(sim.scratch, buffer->kind, buffer->data, buffer->size, &m, NULL),
        PSC_OK);
    assert_int_equal(m.kind, PSP_GOODBYE);
    assert_int_equal(m.u.goodbye.status, 21);
    assert_int_equal(m.request.session, 102);
    assert_int_equal(buffer->peer, 2);
    psp_buffer_put(buffer);
    sim_close(&sim);
}

static void the_lowest_unacked_sequence_follows_the_replies(void **state)
{
    (void)state;
    sim_t sim;
    sim_open(&sim, 0);
    hello(&sim);
    psw_request_t *requests[3];
    psw_part_t part;
    for (size_t k = 0; k < 3; k++) {
        assert_int_equal(psw_core_request(sim.core, PSP_STATS, &requests[k], NULL), PSC_OK);
        assert_int_equal(psw_core_part(sim.core, requests[k], 0, &part, NULL), PSC_OK);
        assert_int_equal(part.header.sequence, k + 1);
        assert_int_equal(part.header.lowest_unacked, 1);
        psp_message_t m = {.kind = PSP_STATS, .request = part.header};
        psw_core_enqueue(sim.core, &part, pack(&sim, &m), 0, 0, 0);
        psw_core_seal(sim.core, requests[k]);
    }
    send_all(&sim);
    assert_int_equal(sim.n_replies, 3);
    static const uint64_t lowest_after[3] = {1, 3, 4}; /* answered: the 2nd, 1st, 3rd */
    static const size_t turn[3] = {1, 0, 0};
    for (size_t k = 0; k < 3; k++) {
        assert_int_equal(deliver(&sim, turn[k], NULL), PSC_OK);
        assert_int_equal(psw_core_part(sim.core, requests[0], 0, &part, NULL), PSC_OK);
        assert_int_equal(part.header.lowest_unacked, lowest_after[k]);
        assert_int_equal(part.header.sequence, 4);
    }
    sim_close(&sim);
}

static void sums_that_overflow_are_refused_before_anything_is_sent(void **state)
{
    (void)state;
    sim_t sim;
    sim_open(&sim, 0);
    hello(&sim);
    const uint64_t ids[3] = {1, 77, 77};
    float rows[3][D];
    for (size_t i = 0; i < 3; i++) {
        for (size_t c = 0; c < D; c++)
            rows[i][c] = 3e38F;
    }
    psw_push_options_t options = {.kind = PSP_PUSH_DELTA, .ids = ids, .n = 3, .rows = &rows[0][0]};
    psw_issued_t issued;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_issue_push(&sim.issuer, &target, &options, no_room, &issued, &error),
                     PSC_INVALID_ARGUMENT);
    assert_int_equal(error.id, 77);
    assert_null(psw_core_next(sim.core));
    options.kind = PSP_PUSH_ASSIGN; /* nothing is summed */
    assert_int_equal(psw_issue_push(&sim.issuer, &target, &options, no_room, &issued, &error),
                     PSC_OK);
    sim_close(&sim);
}

static void warm_pulls_and_pushes_do_not_allocate(void **state)
{
    (void)state;
    test_random_t random = {.key = 4};
    sim_t sim;
    sim_open(&sim, 0);
    hello(&sim);
    uint64_t ids[2 * IDS];
    float rows[2 * IDS][D];
    for (size_t i = 0; i < 2 * IDS; i++)
        ids[i] = i % IDS;
    memset(rows, 0, sizeof rows);
    for (int round = 0; round < 6; round++) {
        if (round == 3)
            psc_alloc_fail_at(0);
        psw_request_t *a = pull(&sim, ids, 2 * IDS, &rows[0][0]);
        psw_request_t *b = push(&sim, PSP_PUSH_DELTA, ids, 2 * IDS, &rows[0][0]);
        run(&sim, &random);
        psw_core_release(sim.core, a);
        psw_core_release(sim.core, b);
    }
    assert_int_equal(psc_alloc_count(), 0);
    sim_close(&sim);
}

/* Whatever allocation fails, the call fails, nothing leaks, and the core says why afterwards. */
static void memory_that_is_short_is_an_error(void **state)
{
    (void)state;
    uint64_t ids[IDS];
    float rows[IDS][D];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i / 2;
    memset(rows, 0, sizeof rows);
    bool failed = true;
    for (unsigned long n = 1; failed; n++) {
        sim_t sim;
        sim_open(&sim, 0);
        hello(&sim);
        const psw_push_options_t options = {
            .kind = PSP_PUSH_DELTA, .ids = ids, .n = IDS, .rows = &rows[0][0]};
        psw_issued_t issued = {0};
        psc_error_t error = PSC_ERROR_INIT;
        psc_alloc_fail_at(n);
        psc_status_t st = psw_issue_push(&sim.issuer, &target, &options, no_room, &issued, &error);
        psc_alloc_fail_at(0);
        failed = st != PSC_OK;
        if (failed) {
            assert_int_equal(st, PSC_NO_MEMORY);
            assert_int_equal(error.code, PSC_NO_MEMORY);
            assert_true(psw_core_idle(sim.core)); /* ended, or nothing was enqueued */
        }
        sim_close(&sim);
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_gives_sessions_map_and_limits),
        cmocka_unit_test(servers_of_another_run_or_map_are_refused),
        cmocka_unit_test(rows_match_a_dictionary_whatever_the_order_of_replies),
        cmocka_unit_test(a_window_bounds_bytes_and_lets_one_message_through),
        cmocka_unit_test(a_refused_part_fails_its_request_and_no_other),
        cmocka_unit_test(replies_that_answer_nothing_end_the_core),
        cmocka_unit_test(an_ended_core_fails_all_and_still_says_goodbye),
        cmocka_unit_test(the_lowest_unacked_sequence_follows_the_replies),
        cmocka_unit_test(sums_that_overflow_are_refused_before_anything_is_sent),
        cmocka_unit_test(warm_pulls_and_pushes_do_not_allocate),
        cmocka_unit_test(memory_that_is_short_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
