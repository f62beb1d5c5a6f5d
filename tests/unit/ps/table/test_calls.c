/*
 * Which parts belong to a cut, and which are missing. That cuts of several servers have whole calls
 * is looked at where they make them (test_rounds, test_one_moment).
 */
#include "ps/table/calls.h"

#include "tests/support/cmocka.h"

#include <string.h>

enum { SEATS = 5, SERVERS = 3, RANK = 1 };

static psc_status_t hear(ps_calls_t *calls, uint32_t seat, uint64_t part, const uint64_t *parts,
                         size_t n, psc_error_t *error)
{
    const psp_request_header_t header = {.part = part, .parts = parts, .n_parts = n};
    return ps_calls_hear(calls, seat, &header, error);
}

static void open_calls(ps_calls_t *calls)
{
    assert_int_equal(ps_calls_init(calls, SEATS, RANK, SERVERS, NULL), PSC_OK);
}

static void clients_have_numbers_that_are_no_others(void **state)
{
    (void)state;
    assert_true(ps_calls_client(false, 0, 0) != 0);
    assert_true(ps_calls_client(false, 0, 7) != ps_calls_client(false, 1, 7));
    assert_true(ps_calls_client(false, 0, 0) != ps_calls_client(true, 0, 1));
    assert_int_equal(ps_calls_client(true, 3, 0), 0); /* it has not named itself */
}

static void a_part_belongs_to_the_cut_when_some_server_has_heard_of_its_call(void **state)
{
    (void)state;
    ps_calls_t calls;
    open_calls(&calls);
    assert_int_equal(ps_calls_begin(&calls, 2, 77, 0, NULL), PSC_OK);
    assert_int_equal(hear(&calls, 2, 1, (const uint64_t[]){4, 2, 0}, SERVERS, NULL), PSC_OK);
    assert_false(ps_calls_blocks(&calls, 2, 9)); /* nothing is held */
    ps_calls_hold(&calls);
    assert_false(ps_calls_blocks(&calls, 2, 2));
    assert_true(ps_calls_blocks(&calls, 2, 3));
    assert_true(ps_calls_blocks(&calls, 2, 0));
    assert_true(ps_calls_blocks(&calls, 0, 1)); /* no client: it numbers nothing */
    assert_int_equal(ps_calls_missing(&calls), 1);
    ps_calls_done(&calls, 2, 1);
    assert_int_equal(ps_calls_missing(&calls), 1);
    ps_calls_done(&calls, 2, 2);
    assert_int_equal(ps_calls_missing(&calls), 0);
    /* What comes now, and is told of now, is of later calls; what others know is not. */
    assert_int_equal(hear(&calls, 2, 3, (const uint64_t[]){5, 3, 1}, SERVERS, NULL), PSC_OK);
    assert_true(ps_calls_blocks(&calls, 2, 3));
    ps_calls_reach(&calls, (ps_call_part_t){.client = 77, .part = 4});
    ps_calls_reach(&calls, (ps_call_part_t){.client = 77, .part = 3});
    ps_calls_reach(&calls, (ps_call_part_t){.client = 78, .part = 9}); /* is not here */
    assert_false(ps_calls_blocks(&calls, 2, 4));
    assert_true(ps_calls_blocks(&calls, 2, 5));
    assert_int_equal(ps_calls_missing(&calls), 1);
    ps_calls_release(&calls);
    assert_false(ps_calls_blocks(&calls, 2, 5));
    assert_int_equal(ps_calls_missing(&calls), 0);
    ps_calls_clear(&calls);
}

static void what_others_tell_first_counts_too(void **state)
{
    (void)state;
    ps_calls_t calls;
    open_calls(&calls);
    assert_int_equal(ps_calls_begin(&calls, 4, 77, 6, NULL), PSC_OK); /* as a checkpoint has it */
    ps_calls_reach(&calls, (ps_call_part_t){.client = 77, .part = 8});
    assert_false(ps_calls_blocks(&calls, 4, 9));
    ps_calls_hold(&calls);
    assert_false(ps_calls_blocks(&calls, 4, 8));
    assert_true(ps_calls_blocks(&calls, 4, 9));
    assert_int_equal(ps_calls_missing(&calls), 1);
    ps_calls_done(&calls, 4, 8);
    assert_int_equal(ps_calls_missing(&calls), 0);
    ps_calls_end(&calls, 4);
    assert_true(ps_calls_blocks(&calls, 4, 1)); /* of nobody */
    ps_calls_release(&calls);
    ps_calls_clear(&calls);
}

static void others_are_told_their_parts_in_pieces(void **state)
{
    (void)state;
    ps_calls_t calls;
    ps_call_part_t told[2];
    uint32_t seat = 0;
    open_calls(&calls);
    for (uint32_t i = 0; i < SEATS; i++) {
        const uint64_t parts[SERVERS] = {10 + i, 20 + i, i == 3 ? 0 : 30 + i};
        assert_int_equal(ps_calls_begin(&calls, i, 100 + i, 0, NULL), PSC_OK);
        if (i != 1) /* it has not pushed */
            assert_int_equal(hear(&calls, i, 1, parts, SERVERS, NULL), PSC_OK);
    }
    assert_int_equal(ps_calls_tell(&calls, 2, &seat, told, 2), 2);
    assert_true(told[0].client == 100 && told[0].part == 30);
    assert_true(told[1].client == 102 && told[1].part == 32);
    assert_int_equal(ps_calls_tell(&calls, 2, &seat, told, 2), 1);
    assert_true(told[0].client == 104 && told[0].part == 34);
    assert_int_equal(ps_calls_tell(&calls, 2, &seat, told, 2), 0);
    ps_calls_clear(&calls);
}

static void numbers_of_other_servers_are_refused(void **state)
{
    (void)state;
    ps_calls_t calls;
    psc_error_t error = PSC_ERROR_INIT;
    const uint64_t parts[SERVERS + 1] = {1, 1, 1, 1};
    open_calls(&calls);
    assert_int_equal(ps_calls_begin(&calls, 0, 5, 0, NULL), PSC_OK);
    assert_int_equal(hear(&calls, 0, 1, parts, SERVERS + 1, &error), PSC_PROTOCOL);
    assert_non_null(strstr(error.message, "4 servers, but there are 3"));
    assert_int_equal(hear(&calls, 0, 1, parts, SERVERS - 1, &error), PSC_PROTOCOL);
    assert_int_equal(hear(&calls, 0, 1, NULL, 0, &error), PSC_OK);
    assert_int_equal(hear(&calls, 1, 1, parts, SERVERS, &error), PSC_OK); /* of nobody */
    ps_calls_hold(&calls);
    assert_int_equal(ps_calls_missing(&calls), 0);
    ps_calls_clear(&calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_have_numbers_that_are_no_others),
        cmocka_unit_test(a_part_belongs_to_the_cut_when_some_server_has_heard_of_its_call),
        cmocka_unit_test(what_others_tell_first_counts_too),
        cmocka_unit_test(others_are_told_their_parts_in_pieces),
        cmocka_unit_test(numbers_of_other_servers_are_refused),
    };
    return cmocka_run_group_tests_name("calls", tests, NULL, NULL);
}
