/*
 * Synchronous jobs on one, two and three shards, their messages in random order, against the sums
 * worked out by hand: the same bits for all.
 */
#include "common/slots.h"
#include "ps/table/saver.h"
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"
#include "tests/support/test_seed.h"

#include <string.h>

enum { W = 3, D = 5, IDS = 30, CLOCKS = 6, PUSHES = 3, ROWS = 8, SERVERS = 3 };

/* How a worker ends: worker 0 by Goodbye after its last clock, worker 1 by a last clock and later
 * Goodbye, worker 2 by Goodbye within a clock. Worker 1's share is empty in every other job. */
static const size_t clocks_of[W] = {CLOCKS, CLOCKS / 2, CLOCKS - 1};

typedef struct plan {
    size_t n_rows[W][CLOCKS][PUSHES];
    uint64_t ids[W][CLOCKS][PUSHES][ROWS];
    float rows[W][CLOCKS][PUSHES][ROWS][D];
    float rate[CLOCKS];
    bool empty;
    float expected[CLOCKS + 1][IDS][D]; /* when so many clocks have been applied */
} plan_t;

static size_t clocks(const plan_t *plan, size_t w)
{
    return w == 1 && plan->empty ? 0 : clocks_of[w];
}

static void work_out(plan_t *plan)
{
    memset(plan->expected[0], 0, sizeof plan->expected[0]);
    for (size_t clock = 0; clock < CLOCKS; clock++) {
        float sums[IDS][D] = {{0}};
        bool pushed[IDS] = {false};
        for (size_t w = 0; w < W; w++) {
            for (size_t p = 0; clock < clocks(plan, w) && p < PUSHES; p++) {
                for (size_t i = 0; i < plan->n_rows[w][clock][p]; i++) {
                    uint64_t id = plan->ids[w][clock][p][i];
                    for (size_t c = 0; c < D; c++) {
                        float value = plan->rows[w][clock][p][i][c];
                        sums[id][c] = pushed[id] ? sums[id][c] + value : value;
                    }
                    pushed[id] = true;
                }
            }
        }
        memcpy(plan->expected[clock + 1], plan->expected[clock], sizeof plan->expected[0]);
        for (size_t id = 0; id < IDS; id++) {
            for (size_t c = 0; pushed[id] && c < D; c++)
                plan->expected[clock + 1][id][c] -= plan->rate[clock] * sums[id][c];
        }
    }
}

static void make_plan(plan_t *plan, test_random_t *random)
{
    memset(plan, 0, sizeof *plan);
    plan->empty = test_below(random, 2) == 0;
    for (size_t clock = 0; clock < CLOCKS; clock++) {
        plan->rate[clock] = test_float(random);
        for (size_t w = 0; w < W; w++) {
            for (size_t p = 0; p < PUSHES; p++) {
                size_t n = test_below(random, ROWS + 1);
                plan->n_rows[w][clock][p] = n;
                uint64_t first = test_next(random);
                for (size_t i = 0; i < n; i++) {
                    plan->ids[w][clock][p][i] = (first + 7 * i) % IDS; /* distinct */
                    for (size_t c = 0; c < D; c++)
                        plan->rows[w][clock][p][i][c] = test_float(random);
                }
            }
        }
    }
    work_out(plan);
}

/* One worker's talk with one server. */
typedef struct talk {
    bool met;
    size_t clock, push;
    bool ended, pulled, left;
    uint64_t waits_for; /* request, 0: none */
} talk_t;

typedef struct job {
    const plan_t *plan;
    shard_fixture_t *f;
    psc_slot_map_t map;
    uint32_t rank;
    talk_t talks[W];
    size_t n_left;
} job_t;

static bool owned(const job_t *job, uint64_t id)
{
    return psc_slot_owner(&job->map, psc_row_hash(1, id)) == job->rank;
}

static void send_push(job_t *job, uint32_t w)
{
    talk_t *talk = &job->talks[w];
    const plan_t *plan = job->plan;
    uint64_t ids[ROWS];
    float rows[ROWS][D];
    size_t n = 0;
    for (size_t i = 0; i < plan->n_rows[w][talk->clock][talk->push]; i++) {
        if (!owned(job, plan->ids[w][talk->clock][talk->push][i]))
            continue;
        ids[n] = plan->ids[w][talk->clock][talk->push][i];
        memcpy(rows[n++], plan->rows[w][talk->clock][talk->push][i], sizeof rows[0]);
    }
    psp_push_t push = {.table = 1,
                       .table_epoch = 1,
                       .kind = PSP_PUSH_GRADIENT,
                       .learning_rate = plan->rate[talk->clock],
                       .synchronous = true,
                       .dim = D,
                       .n = n};
    talk->push++;
    if (n != 0)
        talk->waits_for = fixture_push(job->f, w, NULL, push, ids, rows[0]);
}

static void send_pull(job_t *job, uint32_t w)
{
    uint64_t ids[IDS];
    size_t n = 0;
    for (uint64_t id = 0; id < IDS; id++) {
        if (owned(job, id))
            ids[n++] = id;
    }
    psp_pull_t pull = {.table = 1, .table_epoch = 1, .n = n};
    job->talks[w].pulled = true;
    job->talks[w].waits_for = fixture_pull(job->f, w, NULL, pull, ids);
}

/* The next message of a worker that waits for nothing. */
static void go_on(job_t *job, uint32_t w)
{
    talk_t *talk = &job->talks[w];
    psp_message_t message = {.kind = PSP_CLOCK};
    if (!talk->met) {
        fixture_hello(job->f, w);
        talk->met = true;
    } else if (!talk->pulled) {
        send_pull(job, w);
    } else if (talk->clock < clocks(job->plan, w) && talk->push < PUSHES) {
        send_push(job, w);
    } else if (talk->clock < clocks(job->plan, w) &&
               !(w == 2 && talk->clock + 1 == clocks(job->plan, w))) {
        job->f->clock[w] = ++talk->clock;
        talk->push = 0;
        talk->pulled = false;
        talk->waits_for = fixture_send(job->f, w, &message);
    } else if (w == 1 && !talk->ended) { /* pulls once more, what all have made */
        talk->ended = true;
        talk->pulled = false;
        job->f->clock[w] = PSP_CLOCK_END;
        talk->waits_for = fixture_send(job->f, w, &message);
    } else {
        message.kind = PSP_GOODBYE;
        talk->left = true;
        job->n_left++;
        talk->waits_for = fixture_send(job->f, w, &message);
    }
}

static void check_pull(const job_t *job, uint32_t w, const psp_pull_reply_t *pulled)
{
    size_t clock = job->talks[w].ended ? CLOCKS : job->talks[w].clock;
    size_t i = 0;
    for (uint64_t id = 0; id < IDS; id++) {
        if (owned(job, id))
            assert_memory_equal(pulled->rows + i++ * D * sizeof(float),
                                job->plan->expected[clock][id], D * sizeof(float));
    }
    assert_int_equal(i, pulled->n);
}

static void take_replies(job_t *job)
{
    psp_message_t reply;
    uint32_t w;
    while (fixture_take(job->f, &reply, &w)) {
        if (reply.reply.error.code != PSC_OK)
            fail_msg("%s", reply.reply.error.message);
        assert_true(job->talks[w].waits_for == reply.reply.request);
        job->talks[w].waits_for = 0;
        if (reply.kind == PSP_PULL_REPLY)
            check_pull(job, w, &reply.u.pull_reply);
    }
}

static void run_server(const plan_t *plan, uint32_t rank, uint32_t n_servers, test_random_t *random)
{
    static shard_fixture_t f;
    job_t job = {.plan = plan, .f = &f, .rank = rank};
    fixture_open(
        &f, &(fixture_options_t){
                .memory_bytes = 8 << 20, .rank = rank, .n_servers = n_servers, .n_workers = W});
    assert_int_equal(psc_slot_map_init(&job.map, n_servers, NULL), PSC_OK);
    psp_open_table_t table = {
        .name = "t", .dim = D, .init = "zeros", .optimizer = "sgd", .table = rank != 0};
    go_on(&job, 0);
    assert_int_equal(fixture_open_table(&f, &table, NULL, NULL), PSC_OK);
    uint32_t favourite = (uint32_t)test_below(random, W);
    for (size_t turn = 0; job.n_left < W || f.first != NULL; turn++) {
        assert_true(turn < 1000000);
        uint32_t w = test_below(random, 3) == 0 ? favourite : (uint32_t)test_below(random, W);
        if (job.talks[w].waits_for == 0 && !job.talks[w].left)
            go_on(&job, w);
        take_replies(&job);
        fixture_poll(&f);
        if (test_below(random, 20) == 0)
            favourite = (uint32_t)test_below(random, W);
    }
    assert_int_equal(f.failure.code, PSC_OK);
    for (int i = 0; i < 1000000 && !ps_shard_finished(f.shard); i++)
        fixture_poll(&f);
    assert_true(ps_shard_finished(f.shard));
    assert_true(ps_shard_deferred_bytes(f.shard) == 0);
    fixture_close(&f, true);
}

static void any_number_of_servers_and_any_order_give_the_same_sums(void **state)
{
    (void)state;
    static plan_t plan;
    test_random_t random = test_random_start();
    for (int round = 0; round < 12; round++) {
        make_plan(&plan, &random);
        for (uint32_t n_servers = 1; n_servers <= SERVERS; n_servers++) {
            for (uint32_t rank = 0; rank < n_servers; rank++)
                run_server(&plan, rank, n_servers, &random);
        }
    }
}

/* A job of two workers with a table; both have said hello. */
static void start_two(shard_fixture_t *f)
{
    fixture_open(f, &(fixture_options_t){.memory_bytes = 8 << 20, .n_servers = 1, .n_workers = 2});
    fixture_hello(f, 0);
    fixture_hello(f, 1);
    psp_open_table_t table = {.name = "t", .dim = 1, .init = "zeros", .optimizer = "sgd"};
    assert_int_equal(fixture_open_table(f, &table, NULL, NULL), PSC_OK);
}

static psc_status_t push_one(shard_fixture_t *f, uint32_t w, const psp_request_header_t *header)
{
    const uint64_t id = 4;
    const float one = 1;
    psp_message_t reply;
    psp_push_t push = {.table = 1,
                       .table_epoch = 1,
                       .kind = PSP_PUSH_DELTA,
                       .synchronous = true,
                       .dim = 1,
                       .n = 1};
    (void)fixture_push(f, w, header, push, &id, &one);
    assert_true(fixture_take(f, &reply, NULL));
    return reply.reply.error.code;
}

static float pull_one(shard_fixture_t *f, uint32_t w)
{
    const uint64_t id = 4;
    psp_message_t reply;
    float value;
    (void)fixture_pull(
        f, w, NULL,
        (psp_pull_t){.table = 1, .table_epoch = 1, .staleness = PSP_STALENESS_ASYNC, .n = 1}, &id);
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_OK);
    memcpy(&value, reply.u.pull_reply.rows, sizeof value);
    return value;
}

static void a_clock_of_a_worker_that_failed_counts_for_nothing(void **state)
{
    (void)state;
    for (uint32_t status = 0; status <= PSC_IO; status += PSC_IO) {
        static shard_fixture_t f;
        psp_message_t message = {.kind = PSP_GOODBYE, .u.goodbye = {.status = status}}, reply;
        start_two(&f);
        assert_int_equal(push_one(&f, 1, NULL), PSC_OK);
        assert_true(pull_one(&f, 1) == 0);
        (void)fixture_send(&f, 0, &message);
        assert_true(fixture_take(&f, &reply, NULL));
        message = (psp_message_t){.kind = PSP_GOODBYE, .u.goodbye = {.status = status}};
        (void)fixture_send(&f, 1, &message);
        assert_true(fixture_take(&f, &reply, NULL));
        assert_true(ps_shard_finished(f.shard));
        assert_true(ps_shard_deferred_bytes(f.shard) == 0);
        fixture_close(&f, true);
    }
}

static void
a_repeated_synchronous_push_counts_once_and_one_of_another_clock_is_refused(void **state)
{
    (void)state;
    static shard_fixture_t f;
    psp_message_t reply;
    start_two(&f);
    psp_request_header_t header = fixture_header(&f, 1);
    assert_int_equal(push_one(&f, 1, &header), PSC_OK);
    header.request = f.next_request++;
    assert_int_equal(push_one(&f, 1, &header), PSC_OK);
    header = fixture_header(&f, 1);
    header.clock = 1; /* it has not ended clock 0 */
    assert_int_equal(push_one(&f, 1, &header), PSC_PROTOCOL);
    for (uint32_t w = 0; w < 2; w++) {
        psp_message_t clock = {.kind = PSP_CLOCK};
        f.clock[w] = 1;
        (void)fixture_send(&f, w, &clock);
        fixture_wait(&f, &reply, NULL);
        assert_int_equal(reply.reply.error.code, PSC_OK);
    }
    assert_true(pull_one(&f, 0) == 1);
    assert_int_equal(fixture_counter(&f, 0, "push.repeated"), 1);
    assert_int_equal(fixture_counter(&f, 0, "push.deferred"), 1);
    assert_int_equal(fixture_counter(&f, 0, "clocks.summed"), 1);
    fixture_close(&f, true);
}

enum { WIDE = 1024, BLOCK = 32, BLOCKS = 100 };

/* Pushes block number `block` of the wide table's rows, and takes the answer. */
static void push_block(shard_fixture_t *f, uint32_t w, size_t block, bool synchronous)
{
    static const float rows[BLOCK * WIDE] = {1};
    uint64_t ids[BLOCK];
    psp_message_t reply;
    for (size_t i = 0; i < BLOCK; i++)
        ids[i] = block * BLOCK + i;
    (void)fixture_push(f, w, NULL,
                       (psp_push_t){.table = 1,
                                    .table_epoch = 1,
                                    .kind = PSP_PUSH_DELTA,
                                    .synchronous = synchronous,
                                    .dim = WIDE,
                                    .n = BLOCK},
                       ids, rows);
    fixture_wait(f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_OK);
}

/* Sums of rows that lie on disk wait for them: a checkpoint, which would have a half of the clock,
 * waits until all are applied. The shard has no writer, which is what it then says. */
static void no_checkpoint_has_half_a_clock(void **state)
{
    (void)state;
    static shard_fixture_t f;
    psp_message_t reply;
    fixture_open(&f, &(fixture_options_t){.memory_bytes = 8 << 20, .n_servers = 1, .n_workers = 2});
    fixture_hello(&f, 0);
    fixture_hello(&f, 1);
    psp_open_table_t table = {.name = "t", .dim = WIDE, .init = "zeros", .optimizer = "sgd"};
    assert_int_equal(fixture_open_table(&f, &table, NULL, NULL), PSC_OK);
    for (size_t block = 0; block < BLOCKS; block++)
        push_block(&f, 0, block, false);
    for (size_t block = 0; ps_saver_may_cut(f.shard); block++) { /* until rows are not in memory */
        assert_true(block < BLOCKS);
        push_block(&f, 1, block, true);
        for (uint32_t w = 0; w < 2; w++) {
            psp_message_t clock = {.kind = PSP_CLOCK};
            f.clock[w] = block + 1;
            (void)fixture_send(&f, w, &clock);
            assert_true(fixture_take(&f, &reply, NULL));
        }
    }
    psp_message_t save = {.kind = PSP_CHECKPOINT, .u.checkpoint = {.step = PSP_CHECKPOINT_SAVE}};
    (void)fixture_send(&f, 0, &save);
    assert_false(fixture_take(&f, &reply, NULL));
    fixture_wait(&f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_UNSUPPORTED);
    assert_true(ps_saver_may_cut(f.shard));
    fixture_close(&f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_servers_and_any_order_give_the_same_sums),
        cmocka_unit_test(a_clock_of_a_worker_that_failed_counts_for_nothing),
        cmocka_unit_test(
            a_repeated_synchronous_push_counts_once_and_one_of_another_clock_is_refused),
        cmocka_unit_test(no_checkpoint_has_half_a_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
