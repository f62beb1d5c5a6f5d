/*
 * Rights at a shard: each kind of request by tokens with each of the rights, against what the
 * README says; sessions are of the token that began them.
 */
#include "ps/table/permit.h"

#include "ps/table/shard_state.h"
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include <string.h>

enum { D = 4 };

static const char file[] = "reader-token-0001 read t\n"
                           "writer-token-0001 write t\n"
                           "second-token-0001 read,write t\n"
                           "master-token-0001 admin *\n"
                           "anyone-token-0001 admin other\n";

typedef struct setting {
    shard_fixture_t f;
    psp_rights_t *rights;
} setting_t;

static const psp_grant_t *grant_of(const setting_t *s, const char *token)
{
    const psp_grant_t *grant = psp_rights_find(s->rights, token, strlen(token));
    assert_non_null(grant);
    return grant;
}

/* A shard for guests alone; the first one, with all rights, has opened table "t". */
static void open_setting(setting_t *s)
{
    const fixture_options_t options = {
        .memory_bytes = (uint64_t)64 << 20, .n_servers = 1, .n_guests = 4, .lease_us = 60000000};
    const psp_open_table_t table = {
        .name = "t", .dim = D, .init = "zeros", .optimizer = "sgd", .seed = 1};
    assert_int_equal(psp_rights_parse(file, sizeof file - 1, "file", &s->rights, NULL), PSC_OK);
    fixture_open(&s->f, &options);
    ps_shard_set_time(s->f.shard, 1000000);
    s->f.grant = grant_of(s, "master-token-0001");
    fixture_hello(&s->f, 0);
    assert_int_equal(fixture_open_table(&s->f, &table, NULL, NULL), PSC_OK);
}

static void close_setting(setting_t *s)
{
    fixture_close(&s->f, true);
    psp_rights_put(s->rights);
}

/* The code of the next answer; words: of its error, or NULL. */
static psc_status_t next_code(setting_t *s, const char *words)
{
    psp_message_t reply;
    fixture_wait(&s->f, &reply, NULL);
    if (reply.reply.error.code == PSC_DENIED && words != NULL &&
        strstr(reply.reply.error.message, words) == NULL)
        fail_msg("no \"%s\" in: %s", words, reply.reply.error.message);
    return reply.reply.error.code;
}

static psc_status_t pull(setting_t *s, uint32_t guest)
{
    const uint64_t id = 7;
    const psp_pull_t pull = {.table = 1, .table_epoch = 1, .n = 1};
    (void)fixture_pull(&s->f, guest, NULL, pull, &id);
    return next_code(s, "table t, read");
}

static psc_status_t push(setting_t *s, uint32_t guest, bool want_rows)
{
    const uint64_t id = 7;
    const float row[D] = {1, 1, 1, 1};
    const psp_push_t push = {.table = 1,
                             .table_epoch = 1,
                             .kind = PSP_PUSH_DELTA,
                             .dim = D,
                             .want_rows = want_rows,
                             .n = 1};
    (void)fixture_push(&s->f, guest, NULL, push, &id, row);
    return next_code(s, want_rows ? "table t, " : "table t, write");
}

static psc_status_t ask(setting_t *s, uint32_t guest, psp_message_t message, const char *words)
{
    (void)fixture_send(&s->f, guest, &message);
    return next_code(s, words);
}

static void each_kind_needs_what_the_token_has_or_not(void **state)
{
    (void)state;
    static const struct {
        const char *token;
        psc_status_t pull, push, push_and_see, find, export, opens, creates;
    } cases[] = {
        {"reader-token-0001", PSC_OK, PSC_DENIED, PSC_DENIED, PSC_OK, PSC_OK, PSC_OK, PSC_DENIED},
        {"writer-token-0001", PSC_DENIED, PSC_OK, PSC_DENIED, PSC_OK, PSC_DENIED, PSC_OK,
         PSC_DENIED},
        {"second-token-0001", PSC_OK, PSC_OK, PSC_OK, PSC_OK, PSC_OK, PSC_OK, PSC_DENIED},
        {"anyone-token-0001", PSC_DENIED, PSC_DENIED, PSC_DENIED, PSC_DENIED, PSC_DENIED,
         PSC_DENIED, PSC_DENIED},
        {"master-token-0001", PSC_OK, PSC_OK, PSC_OK, PSC_OK, PSC_OK, PSC_OK, PSC_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setting_t s;
        open_setting(&s);
        s.f.grant = grant_of(&s, cases[i].token);
        fixture_hello(&s.f, 1);
        assert_int_equal(pull(&s, 1), cases[i].pull);
        assert_int_equal(push(&s, 1, false), cases[i].push);
        assert_int_equal(push(&s, 1, true), cases[i].push_and_see);
        psp_message_t message = {.kind = PSP_FIND_TABLE};
        memcpy(message.u.find_table.name, "t", 2);
        assert_int_equal(ask(&s, 1, message, "table t, any right"), cases[i].find);
        message = (psp_message_t){.kind = PSP_EXPORT, .u.export = {.table = 1, .table_epoch = 1}};
        assert_int_equal(ask(&s, 1, message, "table t, read"), cases[i].export);
        message = (psp_message_t){
            .kind = PSP_OPEN_TABLE,
            .u.open_table = {
                .name = "t", .dim = D, .init = "zeros", .optimizer = "sgd", .seed = 1}};
        assert_int_equal(ask(&s, 1, message, "table t, any right"), cases[i].opens);
        memcpy(message.u.open_table.name, "u", 2);
        message.request.protocol = 0;
        assert_int_equal(ask(&s, 1, message, "table u, admin"), cases[i].creates);
        /* What needs no right. */
        assert_int_equal(ask(&s, 1, (psp_message_t){.kind = PSP_STATS}, NULL), PSC_OK);
        assert_int_equal(ask(&s, 1, (psp_message_t){.kind = PSP_CLOCK}, NULL), PSC_OK);
        assert_int_equal(ask(&s, 1, (psp_message_t){.kind = PSP_BARRIER}, NULL), PSC_OK);
        assert_int_equal(ask(&s, 1, (psp_message_t){.kind = PSP_GOODBYE}, NULL), PSC_OK);
        close_setting(&s);
    }
}

static void a_list_has_the_tables_that_may_be_seen(void **state)
{
    (void)state;
    static const struct {
        const char *token;
        bool sees;
    } cases[] = {{"reader-token-0001", true}, {"anyone-token-0001", false}};
    for (size_t i = 0; i < 2; i++) {
        setting_t s;
        psp_message_t reply, message = {.kind = PSP_FIND_TABLE};
        open_setting(&s);
        s.f.grant = grant_of(&s, cases[i].token);
        fixture_hello(&s.f, 1);
        (void)fixture_send(&s.f, 1, &message);
        fixture_wait(&s.f, &reply, NULL);
        assert_int_equal(reply.reply.error.code, PSC_OK);
        assert_int_equal(reply.u.find_table_reply.found, cases[i].sees);
        close_setting(&s);
    }
}

static void a_session_is_of_the_token_that_began_it(void **state)
{
    (void)state;
    setting_t s;
    open_setting(&s);
    s.f.grant = grant_of(&s, "reader-token-0001");
    fixture_hello(&s.f, 1);
    s.f.grant = grant_of(&s, "master-token-0001");
    assert_int_equal(pull(&s, 1), PSC_PEER_GONE);
    assert_int_equal(ask(&s, 1, (psp_message_t){.kind = PSP_GOODBYE}, NULL), PSC_PEER_GONE);
    s.f.grant = NULL;
    assert_int_equal(pull(&s, 1), PSC_PEER_GONE);
    uint64_t counted = 1; /* nor does another's session take its place */
    assert_int_equal(ps_guests_replace(s.f.shard, s.f.session[1], grant_of(&s, "master-token-0001"),
                                       &counted, NULL),
                     PSC_OK);
    assert_int_equal(counted, 0);
    s.f.grant = grant_of(&s, "reader-token-0001");
    s.f.sequence[1] = 0; /* none of those was one of the session */
    assert_int_equal(pull(&s, 1), PSC_OK);
    close_setting(&s);
}

/* What is known of a session after a restart: not whose it was. */
static void a_session_of_a_checkpoint_is_of_the_first_who_knows_it(void **state)
{
    (void)state;
    setting_t s;
    open_setting(&s);
    s.f.grant = grant_of(&s, "reader-token-0001");
    fixture_hello(&s.f, 1);
    const ps_session_t saved = s.f.shard->sessions.all[1];
    ps_guests_end(s.f.shard, 1);
    assert_int_equal(pull(&s, 1), PSC_PEER_GONE);
    s.f.sequence[1] = 0;
    assert_int_equal(ps_guests_revive(s.f.shard, &saved, 1, (ps_call_part_t){0}, NULL), PSC_OK);
    assert_int_equal(pull(&s, 1), PSC_OK);
    s.f.grant = grant_of(&s, "master-token-0001");
    assert_int_equal(pull(&s, 1), PSC_PEER_GONE);
    close_setting(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_needs_what_the_token_has_or_not),
        cmocka_unit_test(a_list_has_the_tables_that_may_be_seen),
        cmocka_unit_test(a_session_is_of_the_token_that_began_it),
        cmocka_unit_test(a_session_of_a_checkpoint_is_of_the_first_who_knows_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
