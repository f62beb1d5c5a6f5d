/*
 * A worker that is lost, on two servers that know differently far of it: its clocks count on both
 * or on none, the others go on, and it is refused when it comes back.
 */
#include "common/slots.h"
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"

#include <string.h>

enum { W = 3, SERVERS = 2 };

typedef struct job {
    shard_fixture_t servers[SERVERS];
    uint64_t ids[SERVERS]; /* a row of each */
} job_t;

static void open_job(job_t *job)
{
    psc_slot_map_t map;
    assert_int_equal(psc_slot_map_init(&map, SERVERS, NULL), PSC_OK);
    for (uint32_t s = 0; s < SERVERS; s++) {
        shard_fixture_t *f = &job->servers[s];
        psp_open_table_t table = {
            .name = "t", .dim = 1, .init = "zeros", .optimizer = "sgd", .table = s != 0};
        fixture_open(f,
                     &(fixture_options_t){
                         .memory_bytes = 8 << 20, .rank = s, .n_servers = SERVERS, .n_workers = W});
        for (uint32_t w = 0; w < W; w++)
            fixture_hello(f, w);
        assert_int_equal(fixture_open_table(f, &table, NULL, NULL), PSC_OK);
        while (psc_slot_owner(&map, psc_row_hash(1, job->ids[s])) != s)
            job->ids[s]++;
    }
}

static void close_job(job_t *job)
{
    for (uint32_t s = 0; s < SERVERS; s++)
        fixture_close(&job->servers[s], true);
}

static psc_status_t push(job_t *job, uint32_t s, uint32_t w, bool synchronous)
{
    const float one = 1;
    psp_message_t reply;
    psp_push_t what = {.table = 1,
                       .table_epoch = 1,
                       .kind = PSP_PUSH_DELTA,
                       .synchronous = synchronous,
                       .dim = 1,
                       .n = 1};
    (void)fixture_push(&job->servers[s], w, NULL, what, &job->ids[s], &one);
    assert_true(fixture_take(&job->servers[s], &reply, NULL));
    return reply.reply.error.code;
}

static uint64_t start_pull(job_t *job, uint32_t s, uint32_t w, uint32_t staleness)
{
    return fixture_pull(&job->servers[s], w, NULL,
                        (psp_pull_t){.table = 1, .table_epoch = 1, .staleness = staleness, .n = 1},
                        &job->ids[s]);
}

static float take_value(job_t *job, uint32_t s)
{
    psp_message_t reply;
    float value;
    fixture_wait(&job->servers[s], &reply, NULL);
    if (reply.reply.error.code != PSC_OK)
        fail_msg("%s", reply.reply.error.message);
    memcpy(&value, reply.u.pull_reply.rows, sizeof value);
    return value;
}

static void end_clock(job_t *job, uint32_t s, uint32_t w)
{
    psp_message_t message = {.kind = PSP_CLOCK, .u.clock = {.progress = 10}}, reply;
    job->servers[s].clock[w]++;
    (void)fixture_send(&job->servers[s], w, &message);
    fixture_wait(&job->servers[s], &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_OK);
}

static void bury(job_t *job, uint32_t worker, ps_loss_rule_t rule)
{
    ps_loss_t furthest = {0};
    for (uint32_t s = 0; s < SERVERS; s++) {
        ps_loss_t loss;
        assert_true(ps_shard_expects(job->servers[s].shard, worker));
        ps_shard_fence(job->servers[s].shard, worker, "it was told so", &loss);
        assert_false(ps_shard_expects(job->servers[s].shard, worker));
        if (loss.clock > furthest.clock)
            furthest = loss;
    }
    for (uint32_t s = 0; s < SERVERS; s++) {
        assert_int_equal(ps_shard_bury(job->servers[s].shard, worker, &furthest, rule, NULL),
                         PSC_OK);
        assert_int_equal(ps_shard_lost(job->servers[s].shard), 1);
    }
}

/* ended: at how many servers worker 1's clock has ended when it is lost. */
static float value_after_loss(uint32_t ended, ps_loss_rule_t rule)
{
    static job_t job;
    float values[SERVERS];
    job = (job_t){.ids = {0}};
    open_job(&job);
    for (uint32_t s = 0; s < SERVERS; s++) {
        uint64_t waits;
        for (uint32_t w = 0; w < W; w++)
            assert_int_equal(push(&job, s, w, true), PSC_OK);
        end_clock(&job, s, 0);
        end_clock(&job, s, 2);
        if (s < ended)
            end_clock(&job, s, 1);
        waits = start_pull(&job, s, 0, 0);
        (void)waits;
    }
    bury(&job, 1, rule);
    for (uint32_t s = 0; s < SERVERS; s++) {
        values[s] = take_value(&job, s);
        assert_int_equal(push(&job, s, 1, true), PSC_PEER_GONE);
    }
    assert_true(!(values[0] < values[1]) && !(values[0] > values[1]));
    /* The clock of the two that are left goes on without it. */
    for (uint32_t s = 0; s < SERVERS; s++) {
        for (uint32_t w = 0; w < W; w += 2) {
            assert_int_equal(push(&job, s, w, true), PSC_OK);
            end_clock(&job, s, w);
        }
        (void)start_pull(&job, s, 2, 0);
        assert_true(take_value(&job, s) > values[s] + 1.5F);
    }
    close_job(&job);
    return values[0];
}

static void a_clock_counts_on_all_servers_or_on_none(void **state)
{
    (void)state;
    for (uint32_t ended = 0; ended <= SERVERS; ended++) {
        float whole = ended != 0 ? 3 : 2;
        assert_true(value_after_loss(ended, PS_LOSS_AUTO) == whole);
        assert_true(value_after_loss(ended, PS_LOSS_ROLLBACK) == whole);
        assert_true(value_after_loss(ended, PS_LOSS_CONTINUE) == 3);
    }
}

static void what_was_applied_at_once_stays_or_ends_the_job(void **state)
{
    (void)state;
    static const ps_loss_rule_t rules[] = {PS_LOSS_AUTO, PS_LOSS_CONTINUE, PS_LOSS_ROLLBACK};
    for (size_t i = 0; i < 3; i++) {
        static job_t job;
        psp_message_t reply;
        job = (job_t){.ids = {0}};
        open_job(&job);
        assert_int_equal(push(&job, 0, 1, false), PSC_OK);
        end_clock(&job, 0, 1);
        end_clock(&job, 1, 1);
        assert_int_equal(push(&job, 0, 1, false), PSC_OK);
        bury(&job, 1, rules[i]);
        for (uint32_t s = 0; s < SERVERS; s++)
            (void)start_pull(&job, s, 0, PSP_STALENESS_ASYNC);
        if (rules[i] != PS_LOSS_ROLLBACK) {
            assert_true(take_value(&job, 0) == 2);
        } else {
            fixture_wait(&job.servers[0], &reply, NULL);
            assert_int_equal(reply.reply.error.code, PSC_PEER_GONE);
            assert_int_equal(ps_shard_worst_status(job.servers[0].shard), PSC_PEER_GONE);
        }
        assert_true(take_value(&job, 1) == 0);
        close_job(&job);
    }
}

static void nobody_waits_for_the_lost(void **state)
{
    (void)state;
    static job_t job;
    psp_message_t message = {.kind = PSP_BARRIER}, reply;
    job = (job_t){.ids = {0}};
    open_job(&job);
    shard_fixture_t *f = &job.servers[0];
    /* Worker 0 is lost while requests of its own wait. */
    f->clock[0] = 4;
    (void)start_pull(&job, 0, 0, 0);
    (void)start_pull(&job, 0, 0, 0);
    assert_int_equal(ps_shard_waiting(f->shard, 0), 2);
    for (uint32_t w = 1; w < W; w++) {
        message.request.protocol = 0;
        (void)fixture_send(f, w, &message);
    }
    assert_false(fixture_take(f, &reply, NULL));
    bury(&job, 0, PS_LOSS_AUTO);
    assert_int_equal(ps_shard_waiting(f->shard, UINT32_MAX), 0);
    for (uint32_t w = 1; w < W; w++) {
        fixture_wait(f, &reply, NULL);
        assert_int_equal(reply.reply.error.code, PSC_OK);
        assert_int_equal(reply.u.barrier_reply.first, 1);
        assert_int_equal(reply.u.barrier_reply.n_lost, 1);
    }
    f->clock[2] = 1;
    message = (psp_message_t){.kind = PSP_CLOCK};
    (void)fixture_send(f, 2, &message);
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.u.clock_reply.first, 1);
    assert_int_equal(reply.u.clock_reply.n_lost, 1);
    for (uint32_t w = 0; w < W; w++) {
        message = (psp_message_t){.kind = PSP_GOODBYE};
        (void)fixture_send(f, w, &message);
        fixture_wait(f, &reply, NULL);
        assert_int_equal(reply.reply.error.code, w == 0 ? PSC_PEER_GONE : PSC_OK);
        if (w == 0)
            assert_non_null(strstr(reply.reply.error.message, "it was told so"));
    }
    assert_true(ps_shard_finished(f->shard));
    assert_int_equal(ps_shard_worst_status(f->shard), 0);
    close_job(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_counts_on_all_servers_or_on_none),
        cmocka_unit_test(what_was_applied_at_once_stays_or_ends_the_job),
        cmocka_unit_test(nobody_waits_for_the_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
