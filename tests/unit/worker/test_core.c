/*
 * The client core against simulated servers that keep rows in a plain array, answer in any order,
 * refuse, or answer nonsense.
 */
#include "worker/core.h"

#include "common/alloc.h"

#include "tests/support/cmocka.h"
#include "tests/support/core_sim.h"

#include <math.h>

static void hello_gives_sessions_map_and_limits(void **state)
{
    (void)state;
    sim_t sim;
    sim_open(&sim, 0);
    assert_false(psw_core_has_session(sim.core, 0));
    sim_hello(&sim);
    for (uint32_t s = 0; s < SERVERS; s++)
        assert_true(psw_core_has_session(sim.core, s));
    assert_memory_equal(psw_core_map(sim.core)->owner, sim.map.owner, sizeof sim.map.owner);
    assert_int_equal(psw_core_map(sim.core)->n_servers, SERVERS);
    assert_int_equal(psw_core_max_message_bytes(sim.core), sim.max_message_bytes);
    assert_true(psw_core_idle(sim.core));
    sim_close(&sim);
}

/* All that was promised of calls has come when they are over; what is numbered, and in which order,
 * the servers look at. */
static void calls_send_all_parts_that_they_tell(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    for (int run = 0; run < 50; run++) {
        sim_t sim;
        uint64_t ids[IDS];
        float rows[IDS * D] = {0};
        sim_open_guest(&sim, 0);
        psw_core_set_client(sim.core, run % 2 == 0 ? 0 : test_next(&random) | 1);
        sim_hello(&sim);
        for (int call = 0; call < 5; call++) {
            const size_t n = test_below(&random, IDS) + 1;
            for (size_t i = 0; i < n; i++)
                ids[i] = test_below(&random, IDS);
            psw_request_t *request = sim_push(&sim, PSP_PUSH_DELTA, ids, n, rows);
            sim_run(&sim, &random);
            assert_true(psw_request_done(request));
            psw_core_release(sim.core, request);
            assert_memory_equal(sim.parts, sim.told, sizeof sim.parts);
        }
        uint64_t parts = 0;
        for (size_t s = 0; s < SERVERS; s++)
            parts += sim.parts[s];
        assert_true((parts != 0) == psw_core_numbers_parts(sim.core));
        sim_close(&sim);
    }
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
            psp_buffer_t *good = sim_hello_reply(&sim, s, m.request.request);
            assert_int_equal(
                psp_message_unpack(sim.scratch, good->kind, good->data, good->size, &m, NULL),
                PSC_OK);
            m.u.hello_reply.cluster += s == 1 && fault == 0;
            m.u.hello_reply.server += s == 1 && fault == 1;
            m.u.hello_reply.n_servers += s == 1 && fault == 2;
            m.u.hello_reply.map_epoch += s == 1 && fault == 3;
            if (s == 1 && fault == 4)
                m.u.hello_reply.session = 0;
            psp_buffer_t *reply = sim_pack(&sim, &m);
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
    sim_hello(&sim);
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
                requests[k] = sim_pull(&sim, ids, n, &got[k][0][0]);
            } else {
                bool assign = test_below(&random, 3) == 0;
                for (size_t i = 0; i < n; i++) {
                    for (size_t c = 0; c < D; c++) { /* whole numbers: sums are exact */
                        rows[i][c] = (float)test_below(&random, 100);
                        model[ids[i]][c] = assign ? rows[i][c] : model[ids[i]][c] + rows[i][c];
                    }
                }
                requests[k] =
                    sim_push(&sim, assign ? PSP_PUSH_ASSIGN : PSP_PUSH_DELTA, ids, n, &rows[0][0]);
            }
            if (test_below(&random, 3) == 0) {
                sim_send_all(&sim);
                if (sim.n_replies != 0)
                    assert_int_equal(sim_deliver(&sim, test_below(&random, sim.n_replies), NULL),
                                     PSC_OK);
            }
        }
        sim_run(&sim, &random);
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
    sim_hello(&sim);
    uint64_t ids[IDS];
    float rows[IDS][D];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    memset(rows, 0, sizeof rows);
    psw_request_t *requests[8];
    for (size_t k = 0; k < 8; k++)
        requests[k] = sim_push(&sim, PSP_PUSH_DELTA, ids, IDS, &rows[0][0]);
    size_t bytes[SERVERS] = {0};
    size_t count[SERVERS] = {0};
    psp_buffer_t *buffer;
    while ((buffer = psw_core_next(sim.core)) != NULL) {
        bytes[buffer->peer] += buffer->size;
        count[buffer->peer]++;
        assert_true(count[buffer->peer] == 1 || bytes[buffer->peer] <= WINDOW);
        sim_serve(&sim, buffer);
    }
    for (uint32_t s = 0; s < SERVERS; s++) {
        assert_true(count[s] >= 1 && count[s] < 8);
        assert_true(psw_core_queued_bytes(sim.core, s) != 0);
    }
    sim_run(&sim, &random);
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
    sim_hello(&sim);
    uint64_t ids[IDS];
    float rows[IDS][D];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    sim.refusing = 1;
    psw_request_t *request = sim_pull(&sim, ids, IDS, &rows[0][0]);
    sim_run(&sim, &random);
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
    request = sim_pull(&sim, ids, IDS, &rows[0][0]);
    sim_run(&sim, &random);
    assert_int_equal(request->error.code, PSC_OK);
    psw_core_release(sim.core, request);
    sim_close(&sim);
}

/* What a faulty server can send for a pull; each must end the core with PROTOCOL and fail the pull.
 */
static void replies_that_answer_nothing_end_the_core(void **state)
{
    (void)state;
    enum { UNKNOWN, TWICE, KIND, PEER, ROWS, FORMAT, BYTES, FAULTS };
    for (int fault = 0; fault < FAULTS; fault++) {
        sim_t sim;
        sim_open(&sim, 0);
        sim_hello(&sim);
        uint64_t ids[IDS];
        float rows[IDS][D];
        for (size_t i = 0; i < IDS; i++)
            ids[i] = i;
        psw_request_t *request = sim_pull(&sim, ids, IDS, &rows[0][0]);
        sim_send_all(&sim);
        psp_buffer_t *reply = sim.replies[0];
        psp_message_t m;
        assert_int_equal(
            psp_message_unpack(sim.scratch, reply->kind, reply->data, reply->size, &m, NULL),
            PSC_OK);
        psp_reply_header_t header = m.reply;
        psp_buffer_t *bad = NULL;
        uint8_t *out;
        header.request += fault == UNKNOWN ? 12345 : 0;
        if (fault == KIND) {
            assert_int_equal(psp_reply_pack(sim.pool, PSP_PUSH_REPLY, &header, &bad, NULL), PSC_OK);
        } else {
            const psp_pull_reply_t wrong = {.dim = D,
                                            .format =
                                                fault == FORMAT ? PSP_FORMAT_F16 : PSP_FORMAT_F32,
                                            .n = m.u.pull_reply.n - (fault == ROWS)};
            assert_int_equal(psp_pull_reply_begin(sim.pool, &header, &wrong, &bad, &out, NULL),
                             PSC_OK);
        }
        bad->peer = (reply->peer + (fault == PEER)) % SERVERS;
        if (fault == BYTES)
            bad->size /= 2;
        if (fault == TWICE)
            assert_int_equal(sim_deliver(&sim, 0, NULL), PSC_OK);
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
    sim_hello(&sim);
    uint64_t ids[IDS];
    float rows[IDS][D];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    memset(rows, 0, sizeof rows);
    psw_request_t *a = sim_push(&sim, PSP_PUSH_DELTA, ids, IDS, &rows[0][0]);
    psw_request_t *b = sim_pull(&sim, ids, IDS, &rows[0][0]);
    sim_send_all(&sim);
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
        assert_int_equal(sim_deliver(&sim, 0, &error), PSC_PEER_GONE);
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
    sim_hello(&sim);
    psw_request_t *requests[3];
    psw_part_t part;
    for (size_t k = 0; k < 3; k++) {
        assert_int_equal(psw_core_request(sim.core, PSP_STATS, &requests[k], NULL), PSC_OK);
        assert_int_equal(psw_core_part(sim.core, requests[k], 0, &part, NULL), PSC_OK);
        assert_int_equal(part.header.sequence, k + 1);
        assert_int_equal(part.header.lowest_unacked, 1);
        psp_message_t m = {.kind = PSP_STATS, .request = part.header};
        psw_core_enqueue(sim.core, &part, sim_pack(&sim, &m), 0, 0, 0);
        psw_core_seal(sim.core, requests[k]);
    }
    sim_send_all(&sim);
    assert_int_equal(sim.n_replies, 3);
    static const uint64_t lowest_after[3] = {1, 3, 4}; /* answered: the 2nd, 1st, 3rd */
    static const size_t turn[3] = {1, 0, 0};
    for (size_t k = 0; k < 3; k++) {
        assert_int_equal(sim_deliver(&sim, turn[k], NULL), PSC_OK);
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
    sim_hello(&sim);
    const uint64_t ids[3] = {1, 77, 77};
    float rows[3][D];
    for (size_t i = 0; i < 3; i++) {
        for (size_t c = 0; c < D; c++)
            rows[i][c] = 3e38F;
    }
    psw_push_options_t options = {.kind = PSP_PUSH_DELTA, .ids = ids, .n = 3, .rows = &rows[0][0]};
    psw_issued_t issued;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(
        psw_issue_push(&sim.issuer, &sim_target, &options, sim_no_room, &issued, &error),
        PSC_INVALID_ARGUMENT);
    assert_int_equal(error.id, 77);
    assert_null(psw_core_next(sim.core));
    options.kind = PSP_PUSH_ASSIGN; /* nothing is summed */
    assert_int_equal(
        psw_issue_push(&sim.issuer, &sim_target, &options, sim_no_room, &issued, &error), PSC_OK);
    sim_close(&sim);
}

/* Messages of a pull of n distinct ids, none of which is sent. */
static size_t messages_of(sim_t *sim, const psw_target_t *target, size_t n, psw_request_t **out)
{
    static const float nothing = 0;
    uint64_t *ids = psc_alloc_array(n, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < n; i++)
        ids[i] = i;
    const psw_pull_options_t options = {
        .ids = ids, .n = n, .rows_out = (float *)(uintptr_t)&nothing, .stride = D};
    psw_issued_t issued;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psw_issue_pull(&sim->issuer, target, &options, sim_no_room, &issued, &error),
                     PSC_OK);
    psc_free(ids);
    *out = issued.request;
    return issued.request->open_parts;
}

static void a_call_alone_is_cut_into_pieces_and_others_are_not(void **state)
{
    (void)state;
    sim_t sim;
    sim_open(&sim, 0);
    sim.max_message_bytes = 1 << 20;
    sim_hello(&sim);
    psw_target_t whole = sim_target;
    whole.whole = true;
    psw_request_t *requests[3];
    psc_error_t gone = PSC_ERROR_INIT;
    const size_t n = 3 * 32000; /* about 625 KiB of rows a server: 4 * 4 * 32 KiB, not 5 * 5 */
    assert_int_equal(messages_of(&sim, &sim_target, n, &requests[0]), SERVERS * 4);
    assert_int_equal(messages_of(&sim, &sim_target, n, &requests[1]), SERVERS);
    assert_int_equal(psc_error_set(&gone, PSC_PEER_GONE, "gone"), PSC_PEER_GONE);
    psw_core_fail(sim.core, &gone);
    sim_close(&sim);

    sim_open(&sim, 0);
    sim.max_message_bytes = 1 << 20;
    sim_hello(&sim);
    assert_int_equal(messages_of(&sim, &whole, n, &requests[2]), SERVERS);
    psw_core_fail(sim.core, &gone);
    sim_close(&sim);
}

/* Rows as they arrive must not depend on the cut into messages. */
static void rows_of_every_format_reach_the_servers_and_come_back(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    for (uint32_t format = 0; format < PSP_FORMATS; format++) {
        static float kept[2][IDS][D];
        float rows[IDS][D], got[IDS][D];
        uint64_t ids[IDS];
        for (size_t i = 0; i < IDS; i++) {
            ids[i] = i;
            for (size_t c = 0; c < D; c++)
                rows[i][c] = test_float(&random);
        }
        for (int small = 0; small < 2; small++) {
            sim_t sim;
            sim_open(&sim, 0);
            sim.max_message_bytes = small ? 700 : PSP_MAX_MESSAGE_BYTES;
            sim_hello(&sim);
            psw_target_t target = sim_target;
            target.push_format = (psp_format_t)format;
            target.rounding_seed = 3;
            psw_push_options_t push = {
                .kind = PSP_PUSH_ASSIGN, .ids = ids, .n = IDS, .rows = &rows[0][0]};
            const psw_pull_options_t pull = {.ids = ids,
                                             .n = IDS,
                                             .rows_out = &got[0][0],
                                             .stride = D,
                                             .format = (psp_format_t)format};
            for (int kind = 0; kind < 2; kind++) {
                psw_issued_t issued = {0};
                push.kind = kind == 0 ? PSP_PUSH_ASSIGN : PSP_PUSH_DELTA;
                target.push_number = (uint32_t)kind;
                assert_int_equal(
                    psw_issue_push(&sim.issuer, &target, &push, sim_no_room, &issued, NULL),
                    PSC_OK);
                sim_run(&sim, &random);
                psw_core_release(sim.core, issued.request);
                assert_int_equal(
                    psw_issue_pull(&sim.issuer, &target, &pull, sim_no_room, &issued, NULL),
                    PSC_OK);
                sim_run(&sim, &random);
                assert_int_equal(issued.request->error.code, PSC_OK);
                psw_core_release(sim.core, issued.request);
            }
            memcpy(kept[small], sim.rows, sizeof sim.rows);
            for (size_t i = 0; i < IDS; i++) {
                for (size_t c = 0; c < D; c++) {
                    assert_true(fabsf(sim.rows[i][c] - 2 * rows[i][c]) < 0.03F);
                    assert_true(fabsf(got[i][c] - sim.rows[i][c]) < 0.02F);
                }
            }
            sim_close(&sim);
        }
        assert_memory_equal(kept[0], kept[1], sizeof kept[0]);
    }
}

static void warm_pulls_and_pushes_do_not_allocate(void **state)
{
    (void)state;
    test_random_t random = {.key = 4};
    sim_t sim;
    sim_open(&sim, 0);
    sim_hello(&sim);
    uint64_t ids[2 * IDS];
    float rows[2 * IDS][D];
    for (size_t i = 0; i < 2 * IDS; i++)
        ids[i] = i % IDS;
    memset(rows, 0, sizeof rows);
    for (int round = 0; round < 12; round++) {
        if (round == 6)
            psc_alloc_fail_at(0);
        psw_target_t target = sim_target;
        target.push_format = (psp_format_t)(round % (int)PSP_FORMATS);
        const psw_pull_options_t pull = {.ids = ids,
                                         .n = 2 * IDS,
                                         .rows_out = &rows[0][0],
                                         .stride = D,
                                         .format = target.push_format};
        const psw_push_options_t push = {
            .kind = PSP_PUSH_DELTA, .ids = ids, .n = 2 * IDS, .rows = &rows[0][0]};
        psw_issued_t issued[2];
        assert_int_equal(psw_issue_pull(&sim.issuer, &target, &pull, sim_no_room, &issued[0], NULL),
                         PSC_OK);
        assert_int_equal(psw_issue_push(&sim.issuer, &target, &push, sim_no_room, &issued[1], NULL),
                         PSC_OK);
        psw_request_t *a = issued[0].request, *b = issued[1].request;
        sim_run(&sim, &random);
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
        sim_hello(&sim);
        const psw_push_options_t options = {
            .kind = PSP_PUSH_DELTA, .ids = ids, .n = IDS, .rows = &rows[0][0]};
        psw_issued_t issued = {0};
        psc_error_t error = PSC_ERROR_INIT;
        psc_alloc_fail_at(n);
        psc_status_t st =
            psw_issue_push(&sim.issuer, &sim_target, &options, sim_no_room, &issued, &error);
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
        cmocka_unit_test(calls_send_all_parts_that_they_tell),
        cmocka_unit_test(servers_of_another_run_or_map_are_refused),
        cmocka_unit_test(rows_match_a_dictionary_whatever_the_order_of_replies),
        cmocka_unit_test(a_window_bounds_bytes_and_lets_one_message_through),
        cmocka_unit_test(a_refused_part_fails_its_request_and_no_other),
        cmocka_unit_test(replies_that_answer_nothing_end_the_core),
        cmocka_unit_test(an_ended_core_fails_all_and_still_says_goodbye),
        cmocka_unit_test(the_lowest_unacked_sequence_follows_the_replies),
        cmocka_unit_test(sums_that_overflow_are_refused_before_anything_is_sent),
        cmocka_unit_test(a_call_alone_is_cut_into_pieces_and_others_are_not),
        cmocka_unit_test(rows_of_every_format_reach_the_servers_and_come_back),
        cmocka_unit_test(warm_pulls_and_pushes_do_not_allocate),
        cmocka_unit_test(memory_that_is_short_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
