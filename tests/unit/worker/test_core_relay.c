/*
 * The core over servers that end at any moment and go on from a checkpoint, as many or as few as
 * chance has it: rows are a dictionary's, whatever was under way, unsent, sent, served or answered.
 * Servers are simulated here: they apply what comes in order, know what they applied of each
 * session, and forget what a checkpoint did not have.
 */
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"
#include "worker/issue.h"

#include "common/alloc.h"

#include <string.h>

enum { IDS = 60, TABLE = 4, MOST_SERVERS = 5, SENT = 4096, CALLS = 40, BATCH = 12 };

#define CLUSTER UINT64_C(0xc1)

typedef struct call {
    psw_request_t *request; /* NULL: none */
    bool is_push;
    uint64_t ids[BATCH];
    float ones[BATCH], rows[BATCH];
    float least[BATCH]; /* of a pull: what was pushed before it */
} call_t;

typedef struct session {
    uint64_t id, applied; /* the last push */
} session_t;

typedef struct world {
    psp_pool_t *pool;
    psp_scratch_t *scratch;
    psw_core_t *core;
    psw_issuer_t issuer;
    test_random_t random;
    uint32_t epochs[MOST_SERVERS];
    psw_target_t target;
    /* the servers that are there */
    psc_slot_map_t map;
    session_t sessions[MOST_SERVERS];
    uint64_t given;
    float rows[IDS];
    /* those before them, as the hello of the client names them */
    session_t former[MOST_SERVERS];
    size_t n_former;
    bool knows_former;
    /* the network */
    psp_buffer_t *sent[SENT]; /* in order for each server */
    psp_buffer_t *replies[SENT];
    size_t n_sent, n_replies;
    /* the client's */
    call_t calls[CALLS];
    float pushed[IDS];
} world_t;

static void spread(world_t *world, uint32_t n_servers)
{
    const uint32_t epoch = world->map.epoch + 1;
    assert_int_equal(psc_slot_map_init(&world->map, n_servers, NULL), PSC_OK);
    world->map.epoch = epoch;
    for (uint32_t s = 0; s < n_servers; s++) {
        world->sessions[s] = (session_t){.id = ++world->given};
        world->epochs[s] = 100 * epoch + s;
    }
}

/* ---- servers ---- */

static void reply_with(world_t *world, const psp_message_t *reply, uint32_t server)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_message_pack(world->pool, reply, &buffer, NULL), PSC_OK);
    buffer->peer = server;
    assert_true(world->n_replies < SENT);
    world->replies[world->n_replies++] = buffer;
}

static void serve_hello(world_t *world, const psp_message_t *m, uint32_t server)
{
    uint64_t counted[MOST_SERVERS] = {0};
    assert_int_equal(m->u.hello.n_former, world->n_former);
    for (size_t i = 0; i < world->n_former; i++) {
        assert_true(m->u.hello.former[i] == world->former[i].id);
        /* Each server knows of one in two, the first one of all. */
        if (world->knows_former && (server == 0 || test_below(&world->random, 2) == 0))
            counted[i] = world->former[i].applied + 1;
    }
    const psp_message_t reply = {
        .kind = PSP_HELLO_REPLY,
        .reply = {.request = m->request.request, .error = PSC_ERROR_INIT},
        .u.hello_reply = {.cluster = CLUSTER,
                          .session = world->sessions[server].id,
                          .server = server,
                          .n_servers = world->map.n_servers,
                          .map_epoch = world->map.epoch,
                          .max_message_bytes = 200, /* so that calls are cut */
                          .slot_owners = (const uint8_t *)world->map.owner,
                          .n_counted = world->n_former,
                          .counted = counted}};
    reply_with(world, &reply, server);
}

static void refuse(world_t *world, psp_kind_t reply_kind, uint64_t number, uint32_t server)
{
    psp_message_t reply = {.kind = reply_kind,
                           .reply = {.request = number, .error = PSC_ERROR_INIT}};
    (void)psc_error_set(&reply.reply.error, PSC_PEER_GONE, "no such session");
    reply_with(world, &reply, server);
}

static void serve_rows(world_t *world, const psp_message_t *m, uint32_t server)
{
    const bool push = m->kind == PSP_PUSH;
    const uint8_t *ids = push ? m->u.push.ids : m->u.pull.ids;
    const size_t n = push ? m->u.push.n : m->u.pull.n;
    float values[BATCH];
    assert_int_equal(push ? m->u.push.table_epoch : m->u.pull.table_epoch, world->epochs[server]);
    for (size_t i = 0; i < n; i++) {
        const uint64_t id = psp_id_at(ids, i);
        assert_int_equal(psc_slot_owner(&world->map, psc_row_hash(TABLE, id)), server);
        if (push) {
            memcpy(&values[i], m->u.push.rows + i * sizeof(float), sizeof(float));
            world->rows[id] += values[i];
        }
        values[i] = world->rows[id];
    }
    if (push) {
        assert_true(m->request.sequence > world->sessions[server].applied);
        world->sessions[server].applied = m->request.sequence;
        const psp_message_t reply = {
            .kind = PSP_PUSH_REPLY,
            .reply = {.request = m->request.request, .error = PSC_ERROR_INIT}};
        reply_with(world, &reply, server);
        return;
    }
    const psp_reply_header_t header = {.request = m->request.request, .error = PSC_ERROR_INIT};
    const psp_pull_reply_t reply = {.dim = 1, .n = n};
    psp_buffer_t *buffer = NULL;
    uint8_t *rows;
    assert_int_equal(psp_pull_reply_begin(world->pool, &header, &reply, &buffer, &rows, NULL),
                     PSC_OK);
    memcpy(rows, values, n * sizeof *values);
    buffer->peer = server;
    world->replies[world->n_replies++] = buffer;
}

/* The message at an index, which no other of its server is before. */
static void serve(world_t *world, size_t at)
{
    psp_buffer_t *buffer = world->sent[at];
    const uint32_t server = buffer->peer;
    psp_message_t m;
    memmove(&world->sent[at], &world->sent[at + 1],
            (--world->n_sent - at) * sizeof(psp_buffer_t *));
    assert_int_equal(
        psp_message_unpack(world->scratch, buffer->kind, buffer->data, buffer->size, &m, NULL),
        PSC_OK);
    if (server >= world->map.n_servers)
        ; /* nobody is there */
    else if (m.kind == PSP_HELLO)
        serve_hello(world, &m, server);
    else if (m.request.session != world->sessions[server].id)
        refuse(world, psp_reply_kind(m.kind), m.request.request, server);
    else
        serve_rows(world, &m, server);
    psp_buffer_put(buffer);
}

/* Nothing without any. */
static void serve_any(world_t *world)
{
    if (world->n_sent == 0)
        return;
    size_t at = test_below(&world->random, world->n_sent);
    for (size_t i = 0; i < at; i++) {
        if (world->sent[i]->peer == world->sent[at]->peer)
            at = i;
    }
    serve(world, at);
}

/* ---- the client ---- */

static void send_some(world_t *world, bool all)
{
    psp_buffer_t *buffer;
    while ((all || test_below(&world->random, 4) != 0) &&
           (buffer = psw_core_next(world->core)) != NULL) {
        assert_true(world->n_sent < SENT);
        world->sent[world->n_sent++] = buffer;
    }
}

/* Nothing without any. */
static void take_any(world_t *world)
{
    psc_error_t error = PSC_ERROR_INIT;
    if (world->n_replies == 0)
        return;
    const size_t at = test_below(&world->random, world->n_replies);
    psp_buffer_t *reply = world->replies[at];
    world->replies[at] = world->replies[--world->n_replies];
    if (psw_core_receive(world->core, reply, &error) != PSC_OK)
        fail_msg("%s", error.message);
}

static void begin_call(world_t *world, call_t *call)
{
    psw_issued_t issued;
    call->is_push = test_below(&world->random, 3) != 0;
    for (size_t i = 0; i < BATCH; i++) {
        call->ids[i] = test_below(&world->random, IDS);
        call->ones[i] = 1;
    }
    if (call->is_push) {
        const psw_push_options_t push = {
            .kind = PSP_PUSH_DELTA, .ids = call->ids, .n = BATCH, .rows = call->ones};
        assert_int_equal(psw_issue_push(&world->issuer, &world->target, &push,
                                        (psw_room_t){.fn = NULL}, &issued, NULL),
                         PSC_OK);
        for (size_t i = 0; i < BATCH; i++)
            world->pushed[call->ids[i]]++;
    } else {
        const psw_pull_options_t pull = {.ids = call->ids,
                                         .n = BATCH,
                                         .rows_out = call->rows,
                                         .stride = 1,
                                         .staleness = PSP_STALENESS_ASYNC};
        for (size_t i = 0; i < BATCH; i++)
            call->least[i] = world->pushed[call->ids[i]];
        assert_int_equal(psw_issue_pull(&world->issuer, &world->target, &pull,
                                        (psw_room_t){.fn = NULL}, &issued, NULL),
                         PSC_OK);
    }
    call->request = issued.request;
}

static void end_call(world_t *world, call_t *call)
{
    if (call->request->error.code != PSC_OK)
        fail_msg("%s", call->request->error.message);
    for (size_t i = 0; !call->is_push && i < BATCH; i++)
        assert_true(call->rows[i] >= call->least[i] &&
                    call->rows[i] <= world->pushed[call->ids[i]]);
    psw_core_release(world->core, call->request);
    call->request = NULL;
}

/* ---- the end of servers ---- */

static psc_status_t send_again(void *context, const psw_stranded_t *stranded, psc_error_t *error)
{
    world_t *world = context;
    return psw_issue_again(&world->issuer, &world->target, stranded, error);
}

static void lose(psp_buffer_t **all, size_t *n)
{
    while (*n != 0)
        psp_buffer_put(all[--*n]);
}

/* Other servers are there, with the rows of the last moment or of an earlier one. */
static void start_others(world_t *world)
{
    world->n_former = world->map.n_servers;
    memcpy(world->former, world->sessions, sizeof world->former);
    spread(world, 1 + (uint32_t)test_below(&world->random, MOST_SERVERS));
    /* Answers that never came: the transport asks again, and is refused. */
    psp_buffer_t *lost[SENT];
    const size_t n_lost = world->n_replies;
    memcpy(lost, world->replies, n_lost * sizeof(psp_buffer_t *));
    world->n_replies = 0;
    for (size_t i = 0; i < n_lost; i++) {
        psp_message_t m;
        assert_int_equal(psp_message_unpack(world->scratch, lost[i]->kind, lost[i]->data,
                                            lost[i]->size, &m, NULL),
                         PSC_OK);
        if (lost[i]->peer < world->map.n_servers)
            refuse(world, lost[i]->kind, m.reply.request, lost[i]->peer);
        psp_buffer_put(lost[i]);
    }
}

static psc_status_t say_hello(world_t *world, psc_error_t *error)
{
    psw_request_t *request;
    assert_int_equal(psw_core_hello(world->core, &request, NULL), PSC_OK);
    while (!psw_request_done(request)) {
        send_some(world, true);
        while (world->n_sent != 0)
            serve_any(world);
        while (world->n_replies != 0)
            take_any(world);
    }
    assert_int_equal(request->error.code, PSC_OK);
    psw_core_release(world->core, request);
    return psw_core_check_counted(world->core, error);
}

/* As connect_address.c does; sometimes the servers end once more in the middle. */
static psc_status_t go_on(world_t *world, psc_error_t *error)
{
    lose(world->sent, &world->n_sent);
    lose(world->replies, &world->n_replies);
    for (bool again = true; again;) {
        again = test_below(&world->random, 3) == 0;
        assert_int_equal(psw_core_relay(world->core, world->map.n_servers, NULL), PSC_OK);
        assert_false(psw_core_idle(world->core) &&
                     psw_core_n_servers(world->core) != world->map.n_servers);
        psc_status_t st = say_hello(world, error);
        if (st != PSC_OK)
            return st;
        if (again)
            spread(world, 1 + (uint32_t)test_below(&world->random, MOST_SERVERS));
    }
    world->n_former = 0;
    return psw_core_resume(world->core, send_again, world, error);
}

static void turn(world_t *world)
{
    call_t *call = &world->calls[test_below(&world->random, CALLS)];
    if (call->request == NULL)
        begin_call(world, call);
    else if (psw_request_done(call->request))
        end_call(world, call);
    send_some(world, false);
    for (size_t i = test_below(&world->random, 4); i > 0; i--)
        serve_any(world);
    for (size_t i = test_below(&world->random, 4); i > 0; i--)
        take_any(world);
}

/* Until one of the servers has refused something. */
static void be_refused(world_t *world)
{
    while (!psw_core_is_stale(world->core, NULL))
        turn(world);
    assert_null(psw_core_next(world->core));
    assert_true(psw_core_may_relay(world->core));
}

static void finish_calls(world_t *world)
{
    for (size_t i = 0; i < CALLS; i++) {
        while (world->calls[i].request != NULL && !psw_request_done(world->calls[i].request)) {
            send_some(world, true);
            serve_any(world);
            take_any(world);
        }
        if (world->calls[i].request != NULL)
            end_call(world, &world->calls[i]);
    }
    assert_true(psw_core_idle(world->core));
}

/* ---- worlds ---- */

static void open_world(world_t *world, uint32_t n_servers)
{
    memset(world, 0, sizeof *world);
    world->random = test_random_start();
    world->knows_former = true;
    world->target = (psw_target_t){.table = TABLE, .dim = 1, .epochs = world->epochs};
    spread(world, n_servers);
    assert_int_equal(psp_pool_create(1 << 22, &world->pool, NULL), PSC_OK);
    assert_int_equal(psp_scratch_create(1 << 20, &world->scratch, NULL), PSC_OK);
    const psw_core_options_t options = {
        .n_servers = n_servers, .pool = world->pool, .window_messages = 6};
    assert_int_equal(psw_core_create(&options, &world->core, NULL), PSC_OK);
    world->issuer.core = world->core;
    assert_int_equal(psw_batch_create(&world->issuer.batch, NULL), PSC_OK);
    assert_int_equal(psw_router_create(&world->issuer.router, NULL), PSC_OK);
    psw_core_keep(world->core);
    assert_int_equal(say_hello(world, NULL), PSC_OK);
}

static void close_world(world_t *world)
{
    lose(world->sent, &world->n_sent);
    lose(world->replies, &world->n_replies);
    psw_core_destroy(world->core);
    psw_batch_destroy(world->issuer.batch);
    psw_router_destroy(world->issuer.router);
    psc_free(world->issuer.row_scratch);
    psp_scratch_destroy(world->scratch);
    assert_int_equal(psp_pool_bytes_out(world->pool), 0);
    psp_pool_destroy(world->pool);
}

static void rows_are_a_dictionarys_whatever_servers_come_after_one_another(void **state)
{
    (void)state;
    static world_t world;
    for (size_t round = 0; round < 30; round++) {
        psc_error_t error = PSC_ERROR_INIT;
        open_world(&world, 1 + (uint32_t)(round % MOST_SERVERS));
        for (uint64_t starts = 1; starts <= 6; starts++) {
            for (size_t i = test_below(&world.random, 120); i > 0; i--)
                turn(&world);
            start_others(&world);
            be_refused(&world);
            if (go_on(&world, &error) != PSC_OK)
                fail_msg("%s", error.message);
            assert_true(psw_core_relaid(world.core) == starts);
        }
        finish_calls(&world);
        assert_memory_equal(world.rows, world.pushed, sizeof world.rows);
        close_world(&world);
    }
}

/* What one server acknowledged and the checkpoint lacks, or what nobody knows of. */
static void what_was_acknowledged_and_does_not_count_ends_the_client(void **state)
{
    (void)state;
    static world_t world;
    for (size_t round = 0; round < 20; round++) {
        psc_error_t error = PSC_ERROR_INIT;
        const bool unknown = round % 2 == 0;
        open_world(&world, 1 + (uint32_t)(round % MOST_SERVERS));
        for (size_t i = 0; i < 200; i++)
            turn(&world);
        finish_calls(&world);
        start_others(&world);
        world.knows_former = !unknown;
        for (size_t i = 0; !unknown && i < world.n_former; i++)
            world.former[i].applied -= world.former[i].applied != 0;
        be_refused(&world);
        assert_int_equal(go_on(&world, &error), PSC_PEER_GONE);
        assert_non_null(strstr(error.message, unknown ? "is not known" : "from a checkpoint"));
        psw_core_fail(world.core, &error);
        for (size_t i = 0; i < CALLS; i++) {
            if (world.calls[i].request == NULL)
                continue;
            assert_true(psw_request_done(world.calls[i].request));
            psw_core_release(world.core, world.calls[i].request);
        }
        close_world(&world);
    }
}

/* Nothing of it can be lost. */
static void a_client_that_only_pulled_goes_on_with_servers_that_do_not_know_it(void **state)
{
    (void)state;
    static world_t world;
    psw_issued_t issued;
    psc_error_t error = PSC_ERROR_INIT;
    const uint64_t id = 5;
    float row = -1;
    const psw_pull_options_t pull = {
        .ids = &id, .n = 1, .rows_out = &row, .stride = 1, .staleness = PSP_STALENESS_ASYNC};
    open_world(&world, 2);
    world.rows[5] = 7;
    assert_int_equal(psw_issue_pull(&world.issuer, &world.target, &pull, (psw_room_t){.fn = NULL},
                                    &issued, NULL),
                     PSC_OK);
    send_some(&world, true);
    assert_int_equal(world.n_sent, 1);
    spread(&world, 2);
    world.n_former = 2;
    for (uint32_t s = 0; s < 2; s++)
        world.former[s] = (session_t){.id = world.given - 3 + s};
    world.knows_former = false;
    serve(&world, 0);
    take_any(&world);
    assert_true(psw_core_is_stale(world.core, NULL));
    assert_int_equal(go_on(&world, &error), PSC_OK);
    while (!psw_request_done(issued.request)) {
        send_some(&world, true);
        serve_any(&world);
        take_any(&world);
    }
    assert_int_equal(issued.request->error.code, PSC_OK);
    assert_true(row == 7);
    psw_core_release(world.core, issued.request);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_a_dictionarys_whatever_servers_come_after_one_another),
        cmocka_unit_test(what_was_acknowledged_and_does_not_count_ends_the_client),
        cmocka_unit_test(a_client_that_only_pulled_goes_on_with_servers_that_do_not_know_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
