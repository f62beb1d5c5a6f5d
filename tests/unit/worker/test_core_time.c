/* Time and the core: late rows, silent servers, signs of life, hints; answers that come late. */
#include "tests/support/cmocka.h"
#include "tests/support/core_sim.h"

#include <string.h>

enum { N = 60 };

#define TIMEOUT_US UINT64_C(30000000)
#define STEP_US UINT64_C(100000) /* how often a driver looks */

typedef struct world {
    sim_t sim;
    uint64_t now_us;
    uint64_t ids[N];
    float rows[N][D];
    uint8_t states[N];
    psp_buffer_t *mute[REPLIES]; /* messages to servers that do not take them */
    size_t n_mute;
    uint32_t n_pings;
} world_t;

static void start_opened(world_t *w)
{
    w->now_us = 1000000;
    sim_hello(&w->sim);
    psw_core_set_time(w->sim.core, w->now_us);
    for (uint64_t i = 0; i < N; i++) {
        w->ids[i] = i;
        for (size_t c = 0; c < D; c++)
            w->sim.rows[i][c] = (float)(i * D + c);
    }
}

static void start(world_t *w, uint32_t window_messages)
{
    memset(w, 0, sizeof *w);
    sim_open(&w->sim, window_messages);
    start_opened(w);
}

static void finish(world_t *w)
{
    for (size_t i = 0; i < w->n_mute; i++)
        psp_buffer_put(w->mute[i]);
    sim_close(&w->sim);
}

static uint32_t owner(const world_t *w, uint64_t id)
{
    return psc_slot_owner(&w->sim.map, psc_row_hash(TABLE, id));
}

static psw_request_t *pull(world_t *w, uint32_t deadline_ms)
{
    const psw_pull_options_t options = {.ids = w->ids,
                                        .n = N,
                                        .rows_out = &w->rows[0][0],
                                        .stride = D,
                                        .states_out = w->states,
                                        .deadline_ms = deadline_ms};
    psw_issued_t issued = {0};
    memset(w->rows, 0xff, sizeof w->rows);
    memset(w->states, 0xff, sizeof w->states);
    assert_int_equal(
        psw_issue_pull(&w->sim.issuer, &sim_target, &options, sim_no_room, &issued, NULL), PSC_OK);
    return issued.request;
}

static bool is_ping(world_t *w, const psp_buffer_t *buffer)
{
    psp_message_t m;
    assert_int_equal(
        psp_message_unpack(w->sim.scratch, buffer->kind, buffer->data, buffer->size, &m, NULL),
        PSC_OK);
    return m.kind == PSP_PREFETCH && m.request.sequence == 0;
}

/* Everything moves but what goes to one server, which gets signs of life asked for only if well. */
static void move(world_t *w, uint32_t silent)
{
    psp_buffer_t *buffer;
    for (;;) {
        while ((buffer = psw_core_next(w->sim.core)) != NULL) {
            if (is_ping(w, buffer)) {
                psp_buffer_put(buffer);
                w->n_pings++;
            } else if (buffer->peer == silent) {
                assert_true(w->n_mute < REPLIES);
                w->mute[w->n_mute++] = buffer;
            } else {
                sim_serve(&w->sim, buffer);
            }
        }
        if (w->sim.n_replies == 0)
            return;
        assert_int_equal(sim_deliver(&w->sim, 0, NULL), PSC_OK);
    }
}

/* Time passes as a waiting driver sees it. */
static void pass(world_t *w, uint64_t us, uint32_t silent)
{
    for (uint64_t until_us = w->now_us + us; w->now_us < until_us;) {
        w->now_us += STEP_US;
        psw_core_set_time(w->sim.core, w->now_us);
        move(w, silent);
        (void)psw_core_expire(w->sim.core);
        move(w, silent);
    }
}

/* The silent server goes on: takes its messages, in order, and answers. */
static void wake(world_t *w)
{
    for (size_t i = 0; i < w->n_mute; i++)
        sim_serve(&w->sim, w->mute[i]);
    w->n_mute = 0;
    move(w, SERVERS);
}

static void expect_rows(const world_t *w, uint32_t late_of)
{
    for (uint64_t i = 0; i < N; i++) {
        bool late = owner(w, i) == late_of;
        assert_int_equal(w->states[i], late ? PSP_ROW_LATE : PSP_ROW_PRESENT);
        if (late) {
            for (size_t byte = 0; byte < sizeof w->rows[i]; byte++)
                assert_int_equal(((const uint8_t *)w->rows[i])[byte], 0xff);
        } else {
            assert_memory_equal(w->rows[i], w->sim.rows[i], sizeof w->rows[i]);
        }
    }
}

static void rows_of_a_server_that_does_not_answer_are_late(void **state)
{
    (void)state;
    static world_t w;
    start(&w, 64);
    psw_request_t *request = pull(&w, 50);
    move(&w, 2);
    assert_false(psw_request_done(request));
    assert_true(psw_core_next_deadline(w.sim.core) > w.now_us + 50000);
    assert_true(psw_core_next_deadline(w.sim.core) < w.now_us + 100000);
    psw_core_set_time(w.sim.core, w.now_us + 49999);
    assert_false(psw_core_expire(w.sim.core));
    psw_core_set_time(w.sim.core, psw_core_next_deadline(w.sim.core));
    assert_true(psw_core_expire(w.sim.core));
    assert_true(psw_request_done(request));
    assert_int_equal(request->error.code, PSC_OK);
    expect_rows(&w, 2);
    assert_true(psw_core_idle(w.sim.core));
    assert_true(psw_core_next_deadline(w.sim.core) == UINT64_MAX);
    psw_core_release(w.sim.core, request);
    /* The answers come at last, find nobody, and do no harm. */
    memset(w.rows, 0xff, sizeof w.rows);
    wake(&w);
    for (size_t byte = 0; byte < sizeof w.rows; byte++)
        assert_int_equal(((const uint8_t *)w.rows)[byte], 0xff);
    request = pull(&w, 50);
    move(&w, SERVERS);
    assert_true(psw_request_done(request));
    expect_rows(&w, SERVERS);
    psw_core_release(w.sim.core, request);
    finish(&w);
}

static void pulls_with_deadlines_to_a_stopped_server_cost_bounded_memory(void **state)
{
    (void)state;
    static world_t w;
    start(&w, 4);
    for (int i = 0; i < 200; i++) {
        psw_request_t *request = pull(&w, 10);
        pass(&w, 200000, 1);
        assert_true(psw_request_done(request));
        expect_rows(&w, 1);
        psw_core_release(w.sim.core, request);
        assert_int_equal(psw_core_queued_bytes(w.sim.core, 1), 0);
        assert_true(w.n_mute <= 4);
    }
    assert_true(psp_pool_bytes_out(w.sim.pool) < 4 * 1024);
    finish(&w);
}

static void a_silent_server_is_named_and_others_go_on(void **state)
{
    (void)state;
    static world_t w;
    start(&w, 64);
    psw_core_set_timeout(w.sim.core, TIMEOUT_US);
    psw_request_t *request = pull(&w, 0);
    pass(&w, TIMEOUT_US - STEP_US, 1);
    assert_false(psw_request_done(request));
    assert_int_equal(w.n_pings, 1);
    pass(&w, 2 * STEP_US, 1);
    assert_true(psw_request_done(request));
    assert_int_equal(request->error.code, PSC_TIMEOUT);
    assert_int_equal(request->error.rank, 1);
    assert_string_equal(request->error.message, "server 1 (host node1) has not answered for 30 s");
    psw_core_release(w.sim.core, request);
    assert_int_equal(psw_core_state(w.sim.core, NULL), PSC_OK);
    /* Rows of the others alone. */
    uint64_t ids[N];
    size_t n = 0;
    for (uint64_t i = 0; i < N; i++) {
        if (owner(&w, i) != 1)
            ids[n++] = i;
    }
    float rows[N][D];
    request = sim_pull(&w.sim, ids, n, &rows[0][0]);
    move(&w, 1);
    assert_true(psw_request_done(request));
    assert_int_equal(request->error.code, PSC_OK);
    psw_core_release(w.sim.core, request);
    /* The silent one is waited for again, and when it goes on all is well. */
    request = pull(&w, 0);
    pass(&w, TIMEOUT_US / 2, 1);
    assert_false(psw_request_done(request));
    wake(&w);
    assert_true(psw_request_done(request));
    assert_int_equal(request->error.code, PSC_OK);
    expect_rows(&w, SERVERS);
    psw_core_release(w.sim.core, request);
    finish(&w);
}

static const char *connection_of(const void *context, uint32_t server)
{
    return ((const char *const *)context)[server];
}

static void why_a_server_is_silent_is_said_where_that_is_known(void **state)
{
    (void)state;
    static world_t w;
    static const char *known[SERVERS] = {[0] = "", [1] = "its connection is refused", [2] = ""};
    start(&w, 64);
    psw_core_set_timeout(w.sim.core, TIMEOUT_US);
    psw_core_set_trouble(w.sim.core, connection_of, known);
    psw_request_t *request = pull(&w, 0);
    pass(&w, TIMEOUT_US + STEP_US, 1);
    assert_true(psw_request_done(request));
    assert_string_equal(request->error.message, "server 1 (host node1) has not answered for 30 s: "
                                                "its connection is refused");
    psw_core_release(w.sim.core, request);
    wake(&w);
    finish(&w);
}

static void a_server_that_gives_signs_of_life_is_waited_for(void **state)
{
    (void)state;
    static world_t w;
    start(&w, 1); /* what is asked goes past a full window */
    psw_core_set_timeout(w.sim.core, TIMEOUT_US);
    psw_request_t *requests[2] = {pull(&w, 0), pull(&w, 0)};
    for (int i = 0; i < 20; i++) {
        pass(&w, TIMEOUT_US / 2, 1);
        assert_int_equal(w.n_pings, i + 1);
        psp_message_t alive = {.kind = PSP_PREFETCH_REPLY,
                               .reply = {.request = UINT64_MAX - 1, .error = PSC_ERROR_INIT}};
        psp_buffer_t *buffer = sim_pack(&w.sim, &alive);
        buffer->peer = 1;
        assert_int_equal(psw_core_receive(w.sim.core, buffer, NULL), PSC_OK);
        assert_false(psw_request_done(requests[0]));
    }
    wake(&w);
    assert_true(psw_request_done(requests[0]));
    assert_true(psw_request_done(requests[1]));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(requests[i]->error.code, PSC_OK);
        psw_core_release(w.sim.core, requests[i]);
    }
    finish(&w);
}

static void an_unasked_sign_of_life_ends_the_core(void **state)
{
    (void)state;
    static world_t w;
    start(&w, 64);
    psp_message_t alive = {.kind = PSP_PREFETCH_REPLY,
                           .reply = {.request = UINT64_MAX - 1, .error = PSC_ERROR_INIT}};
    psp_buffer_t *buffer = sim_pack(&w.sim, &alive);
    buffer->peer = 1;
    assert_int_equal(psw_core_receive(w.sim.core, buffer, NULL), PSC_PROTOCOL);
    finish(&w);
}

static void time_in_which_nobody_looks_blames_no_server(void **state)
{
    (void)state;
    static world_t w;
    start(&w, 64);
    psw_core_set_timeout(w.sim.core, TIMEOUT_US);
    psw_request_t *request = pull(&w, 0);
    move(&w, 1);
    for (int i = 0; i < 20; i++) {
        w.now_us += 100 * TIMEOUT_US; /* the program computes, or was stopped */
        psw_core_set_time(w.sim.core, w.now_us);
        (void)psw_core_expire(w.sim.core);
        assert_false(psw_request_done(request));
    }
    wake(&w);
    assert_true(psw_request_done(request));
    assert_int_equal(request->error.code, PSC_OK);
    psw_core_release(w.sim.core, request);
    finish(&w);
}

/* The server of the simulation checks that no number is left out. */
static void a_guest_leaves_no_gap_where_it_takes_back_what_was_not_sent(void **state)
{
    (void)state;
    static world_t w;
    memset(&w, 0, sizeof w);
    sim_open_guest(&w.sim, 1);
    start_opened(&w);
    psw_core_set_timeout(w.sim.core, TIMEOUT_US);
    psw_request_t *requests[3] = {pull(&w, 0), pull(&w, 50), pull(&w, 0)};
    pass(&w, 2 * TIMEOUT_US, 1);
    for (int i = 0; i < 3; i++) {
        assert_true(psw_request_done(requests[i]));
        assert_int_equal(requests[i]->error.code, i == 1 ? PSC_OK : PSC_TIMEOUT);
        psw_core_release(w.sim.core, requests[i]);
    }
    assert_true(psw_core_idle(w.sim.core));
    assert_int_equal(w.n_mute, 1);
    assert_in_range(psw_core_queued_bytes(w.sim.core, 1), 1, 4 * 80); /* numbers, no rows */
    psw_request_t *last = pull(&w, 0);
    wake(&w);
    assert_true(psw_request_done(last));
    assert_int_equal(last->error.code, PSC_OK);
    expect_rows(&w, SERVERS);
    psw_core_release(w.sim.core, last);
    assert_true(w.sim.next_sequence[1] >= 4);
    psp_buffer_t *buffer; /* its goodbye in failure waits for no number */
    psp_message_t m;
    assert_int_equal(psw_core_last_goodbye(w.sim.core, 1, 0, &buffer, NULL), PSC_OK);
    assert_int_equal(
        psp_message_unpack(w.sim.scratch, buffer->kind, buffer->data, buffer->size, &m, NULL),
        PSC_OK);
    assert_true(m.request.sequence == 0);
    psp_buffer_put(buffer);
    finish(&w);
}

static void signs_of_life_are_of_the_session_and_of_no_number(void **state)
{
    (void)state;
    static world_t w;
    start(&w, 64);
    psp_buffer_t *sign;
    assert_int_equal(psw_core_sign_of_life(w.sim.core, 2, &sign, NULL), PSC_OK);
    assert_int_equal(sign->peer, 2);
    assert_true(is_ping(&w, sign));
    psp_message_t m;
    assert_int_equal(
        psp_message_unpack(w.sim.scratch, sign->kind, sign->data, sign->size, &m, NULL), PSC_OK);
    assert_int_equal(m.request.session, 102);
    assert_true(m.request.cluster == psw_core_cluster(w.sim.core));
    assert_int_equal(m.u.prefetch.n, 0);
    psp_buffer_put(sign);
    assert_int_equal(psw_core_lease_ms(w.sim.core, 2), 0);
    finish(&w);
}

/* So that a server which went back behind an answer does not wait for its request. */
static void signs_of_life_say_which_answers_are_there(void **state)
{
    (void)state;
    static world_t w;
    start(&w, 64);
    for (int round = 0; round < 3; round++) {
        const uint64_t first = psw_core_lowest_open(w.sim.core, 1);
        psw_request_t *request = pull(&w, 0);
        for (int answered = 0; answered < 2; answered++) {
            psp_buffer_t *sign;
            psp_message_t m;
            assert_int_equal(psw_core_sign_of_life(w.sim.core, 1, &sign, NULL), PSC_OK);
            assert_int_equal(
                psp_message_unpack(w.sim.scratch, sign->kind, sign->data, sign->size, &m, NULL),
                PSC_OK);
            assert_int_equal(m.request.sequence, 0);
            assert_int_equal(m.request.lowest_unacked, psw_core_lowest_open(w.sim.core, 1));
            assert_true((m.request.lowest_unacked > first) == (answered == 1));
            psp_buffer_put(sign);
            if (answered == 0)
                wake(&w);
        }
        assert_true(psw_request_done(request));
        psw_core_release(w.sim.core, request);
    }
    finish(&w);
}

static size_t prefetch(world_t *w, uint64_t when)
{
    const psw_prefetch_options_t options = {.ids = w->ids, .n = N, .when = when};
    size_t n_dropped = SIZE_MAX;
    assert_int_equal(psw_issue_prefetch(&w->sim.issuer, &sim_target, &options, &n_dropped, NULL),
                     PSC_OK);
    return n_dropped;
}

/* Servers answer hints with an error here: nobody learns of it. */
static void hints_are_dropped_where_they_would_wait_and_waited_for_by_nobody(void **state)
{
    (void)state;
    static world_t w;
    start(&w, 3);
    psw_core_set_timeout(w.sim.core, TIMEOUT_US);
    size_t of_server_1 = 0;
    for (uint64_t i = 0; i < N; i++)
        of_server_1 += owner(&w, i) == 1;
    assert_int_equal(prefetch(&w, 1), 0);
    assert_true(psw_core_idle(w.sim.core));
    w.sim.refusing = 0;
    psp_buffer_t *buffer;
    size_t n_held = 0;
    for (int round = 0; round < 5; round++) {
        while ((buffer = psw_core_next(w.sim.core)) != NULL) {
            if (buffer->peer == 1) {
                w.mute[n_held++] = buffer;
                continue;
            }
            sim_serve(&w.sim, buffer);
            assert_int_equal(sim_deliver(&w.sim, 0, NULL), PSC_OK);
        }
        assert_int_equal(prefetch(&w, 1), n_held >= 3 ? of_server_1 : 0);
    }
    assert_int_equal(n_held, 3);
    w.n_mute = n_held;
    /* Nobody is blamed for hints. */
    pass(&w, 3 * TIMEOUT_US, 1);
    assert_int_equal(psw_core_unseen_error(w.sim.core, NULL), PSC_OK);
    assert_int_equal(w.n_pings, 0);
    finish(&w);
}

static void a_window_that_a_server_tells_is_kept(void **state)
{
    (void)state;
    static world_t w;
    memset(&w, 0, sizeof w);
    sim_open(&w.sim, 64);
    w.sim.told_window_bytes = 1200;
    sim_hello(&w.sim);
    for (uint64_t i = 0; i < N; i++)
        w.ids[i] = i;
    psw_request_t *requests[8];
    for (int i = 0; i < 8; i++)
        requests[i] = sim_pull(&w.sim, w.ids, N, &w.rows[0][0]);
    sim_send_all(&w.sim);
    for (uint32_t s = 0; s < SERVERS; s++)
        assert_true(w.sim.in_flight_most[s] >= 1 && w.sim.in_flight_most[s] <= 3);
    test_random_t random = {.key = 5};
    sim_run(&w.sim, &random);
    for (int i = 0; i < 8; i++) {
        assert_true(psw_request_done(requests[i]));
        psw_core_release(w.sim.core, requests[i]);
    }
    finish(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_server_that_does_not_answer_are_late),
        cmocka_unit_test(pulls_with_deadlines_to_a_stopped_server_cost_bounded_memory),
        cmocka_unit_test(a_silent_server_is_named_and_others_go_on),
        cmocka_unit_test(why_a_server_is_silent_is_said_where_that_is_known),
        cmocka_unit_test(a_server_that_gives_signs_of_life_is_waited_for),
        cmocka_unit_test(an_unasked_sign_of_life_ends_the_core),
        cmocka_unit_test(time_in_which_nobody_looks_blames_no_server),
        cmocka_unit_test(a_guest_leaves_no_gap_where_it_takes_back_what_was_not_sent),
        cmocka_unit_test(signs_of_life_are_of_the_session_and_of_no_number),
        cmocka_unit_test(signs_of_life_say_which_answers_are_there),
        cmocka_unit_test(hints_are_dropped_where_they_would_wait_and_waited_for_by_nobody),
        cmocka_unit_test(a_window_that_a_server_tells_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
