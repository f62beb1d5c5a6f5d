/*
 * The account of workers' pushes: what they tell against what is applied, at once and in step, with
 * pushes that are lost or doubled, and over a restart.
 */
#include "ps/table/account.h"

#include "tests/support/cmocka.h"

enum { W = 3, CLOCK = 7 };

static ps_sessions_t sessions;
static ps_account_t account;

static int begin(void **state)
{
    (void)state;
    account = (ps_account_t){.before = {.pushes = 0}};
    assert_int_equal(ps_sessions_init(&sessions, W, 0, NULL), PSC_OK);
    for (uint32_t w = 0; w < W; w++)
        assert_int_equal(ps_session_begin(&sessions, w, 1, 0, NULL), PSC_OK);
    return 0;
}

static int end(void **state)
{
    (void)state;
    ps_sessions_clear(&sessions);
    return 0;
}

static void tell(uint32_t worker, uint64_t pushes, uint64_t rows)
{
    ps_account_hear(&sessions.all[worker], (psp_tally_t){.pushes = pushes, .rows = rows});
}

static void assert_told(uint64_t pushes, uint64_t rows)
{
    const psp_tally_t told = ps_account_told(&account, &sessions, CLOCK);
    assert_int_equal(told.pushes, pushes);
    assert_int_equal(told.rows, rows);
}

static void pushes_of_all_workers_add_up(void **state)
{
    (void)state;
    assert_told(0, 0);
    for (size_t i = 0; i < 5; i++)
        ps_account_apply(&account, 10 + i);
    tell(0, 2, 21);
    tell(1, 1, 12);
    assert_told(3, 33); /* worker 2 has not ended its clock */
    tell(2, 2, 27);
    assert_told(account.applied.pushes, account.applied.rows);
    ps_session_end(&sessions, 2, 0); /* what a worker has told stays when it leaves, */
    ps_session_lose(&sessions, 1);   /* in order or not */
    assert_told(5, 60);
}

static void the_last_word_of_a_worker_counts(void **state)
{
    (void)state;
    tell(0, 4, 40);
    tell(0, 3, 32); /* one was taken back, unsent */
    assert_told(3, 32);
}

static void a_lost_or_doubled_push_is_a_difference(void **state)
{
    (void)state;
    tell(0, 2, 8);
    ps_account_apply(&account, 4);
    assert_int_not_equal(account.applied.pushes, ps_account_told(&account, &sessions, 0).pushes);
    ps_account_apply(&account, 4);
    assert_told(account.applied.pushes, account.applied.rows);
    ps_account_apply(&account, 4);
    assert_int_not_equal(account.applied.pushes, ps_account_told(&account, &sessions, 0).pushes);
    assert_int_not_equal(account.applied.rows, ps_account_told(&account, &sessions, 0).rows);
}

static void what_is_kept_until_its_clock_ends_is_not_in_it(void **state)
{
    (void)state;
    ps_request_t kept[2] = {{.message = {.u.push = {.n = 5}}}, {.message = {.u.push = {.n = 6}}}};
    for (uint32_t w = 0; w < W; w++)
        ps_session_advance(&sessions, w, CLOCK, 0);
    tell(0, 3, 30);
    tell(1, 3, 33);
    ps_session_defer(&sessions.all[0], &kept[0]); /* of the clock that is under way, not told yet */
    ps_session_defer(&sessions.all[0], &kept[1]);
    assert_told(6, 63);
    ps_session_advance(&sessions, 0, CLOCK + 1, 0);
    tell(0, 5, 41); /* its clock ends here, and others are in it still */
    assert_told(6, 63);
    (void)ps_session_take_deferred(&sessions.all[0]);
    (void)ps_session_take_deferred(&sessions.all[0]);
    assert_told(8, 74);
}

static void a_run_goes_on_from_what_others_had(void **state)
{
    (void)state;
    static const char *const names[] = {PS_ACCOUNT_PUSHES, PS_ACCOUNT_ROWS,
                                        PS_ACCOUNT_PUSHES_APPLIED, PS_ACCOUNT_ROWS_APPLIED};
    for (uint64_t server = 1; server <= 2; server++) {
        for (size_t i = 0; i < 4; i++)
            ps_account_add_saved(&account, names[i], 100 * server + i);
        ps_account_add_saved(&account, "rows.pushed", 1000);
        ps_account_add_saved(&account, "", 1000);
    }
    assert_told(300, 302);
    assert_int_equal(account.applied.pushes, 304);
    assert_int_equal(account.applied.rows, 306);
    tell(0, 1, 9);
    ps_account_apply(&account, 9);
    assert_told(301, 311);
    assert_int_equal(account.applied.rows, 315);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pushes_of_all_workers_add_up, begin, end),
        cmocka_unit_test_setup_teardown(the_last_word_of_a_worker_counts, begin, end),
        cmocka_unit_test_setup_teardown(a_lost_or_doubled_push_is_a_difference, begin, end),
        cmocka_unit_test_setup_teardown(what_is_kept_until_its_clock_ends_is_not_in_it, begin, end),
        cmocka_unit_test_setup_teardown(a_run_goes_on_from_what_others_had, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
