/*
 * What replies mean for the caller of a pull or push, over simulated servers.
 */
#include "worker/pending.h"

#include "tests/support/cmocka.h"
#include "tests/support/core_sim.h"

static void states_of_rows_come_back_in_the_order_of_the_call(void **state)
{
    (void)state;
    enum { N = 500 };
    uint8_t of_ids[IDS];
    uint64_t ids[N];
    static float rows[N][D];
    uint8_t states[N];
    test_random_t random = test_random_start();
    sim_t sim;
    sim_open(&sim, 3);
    sim_hello(&sim);
    for (size_t i = 0; i < IDS; i++)
        of_ids[i] = (uint8_t)test_below(&random, PSP_ROW_EXPIRED + 1);
    sim.states = of_ids;
    sim.scan = true;
    for (uint32_t stateless = 0; stateless <= SERVERS; stateless++) {
        sim.stateless = stateless;
        for (size_t i = 0; i < N; i++)
            ids[i] = test_below(&random, IDS);
        memset(states, 0xee, sizeof states);
        const psw_pull_options_t options = {.ids = ids,
                                            .n = N,
                                            .rows_out = &rows[0][0],
                                            .stride = D,
                                            .states_out = states,
                                            .scan = true};
        psw_issued_t issued = {0};
        assert_int_equal(
            psw_issue_pull(&sim.issuer, &sim_target, &options, sim_no_room, &issued, NULL), PSC_OK);
        sim_run(&sim, &random);
        assert_true(psw_request_done(issued.request));
        psw_core_release(sim.core, issued.request);
        for (size_t i = 0; i < N; i++) {
            bool told = psc_slot_owner(&sim.map, psc_row_hash(TABLE, ids[i])) != stateless;
            assert_int_equal(states[i], told ? of_ids[ids[i]] : PSP_ROW_PRESENT);
        }
    }
    /* The request is used again: its old place for states is forgotten. */
    memset(states, 0xee, sizeof states);
    sim.scan = false;
    psw_request_t *request = sim_pull(&sim, ids, N, &rows[0][0]);
    sim_run(&sim, &random);
    psw_core_release(sim.core, request);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(states[i], 0xee);
    sim_close(&sim);
}

static void the_step_of_a_push_reaches_every_server(void **state)
{
    (void)state;
    uint64_t ids[IDS];
    static float rows[IDS][D];
    test_random_t random = test_random_start();
    sim_t sim;
    sim_open(&sim, 3);
    sim_hello(&sim);
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    sim.step = UINT64_MAX;
    const psw_push_options_t options = {
        .kind = PSP_PUSH_GRADIENT, .ids = ids, .n = IDS, .rows = &rows[0][0], .step = UINT64_MAX};
    psw_issued_t issued = {0};
    assert_int_equal(psw_issue_push(&sim.issuer, &sim_target, &options, sim_no_room, &issued, NULL),
                     PSC_OK);
    sim_run(&sim, &random);
    assert_true(psw_request_done(issued.request));
    psw_core_release(sim.core, issued.request);
    sim_close(&sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_of_rows_come_back_in_the_order_of_the_call),
        cmocka_unit_test(the_step_of_a_push_reaches_every_server),
    };
    return cmocka_run_group_tests_name("pending", tests, NULL, NULL);
}
