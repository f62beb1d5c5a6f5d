/*
 * Random requests of several sessions against a plain dictionary.
 *
 * A request takes effect at the moment at which it is answered, so the model replays requests in
 * the order of the replies, one by one and naively: that checks values to the last bit, that each
 * request is atomic, that a session's requests take effect in order, and that each is answered
 * once. Tables are far larger than the memory for rows, so most requests wait for the disk (here: a
 * memory tier behind the store's I/O thread).
 */
#include "tests/support/cmocka.h"
#include "tests/support/half_oracle.h"
#include "tests/support/shard_fixture.h"
#include "tests/support/test_seed.h"

#include "common/alloc.h"
#include "ps/init/init.h"

#include <math.h>
#include <string.h>

#define D 33
#define N_IDS 12000u
#define N_TABLES 4u
#define BATCH 300u
#define WORKERS 3u

typedef struct model_row {
    bool present;
    uint32_t version;
    float weights[D], sums[D]; /* sums: adagrad's */
} model_row_t;

/* A request that was sent. */
typedef struct sent {
    uint64_t request;
    uint32_t table; /* index */
    bool is_push;
    bool wants_versions;
    psp_push_kind_t kind;
    float rate;
    size_t n;
    uint32_t index[BATCH]; /* of ids */
    float rows[BATCH * D];
    struct sent *next;
} sent_t;

typedef struct model {
    shard_fixture_t f;
    test_random_t random;
    uint64_t ids[N_IDS];
    model_row_t *rows[N_TABLES];
    sent_t *first[WORKERS], *last[WORKERS];
    size_t n_open;
    size_t n_late;
    uint64_t now_us;
} model_t;

static const char *const optimizers[N_TABLES] = {"sgd", "adagrad", "adagrad", "adagrad"};
static const char *const inits[N_TABLES] = {"word2vec", "normal", "uniform", "truncated_normal"};
static const psp_precision_t precisions[N_TABLES] = {PSP_F32, PSP_F32, PSP_BF16, PSP_F16};
#define CLIP 0.5f /* of the last table */

/* What a table of 16 bits keeps of x; random: 16 bits, or UINT32_MAX for the nearest. */
static float kept(uint32_t table, float x, uint32_t random)
{
    if (precisions[table] == PSP_F32)
        return x;
    half_format_t f = precisions[table] == PSP_BF16 ? HALF_BF16 : HALF_F16;
    uint32_t half = random == UINT32_MAX ? half_nearest(f, x) : half_stochastic(f, x, random);
    return (float)half_value(f, half);
}

static void start(model_t *m)
{
    m->random = test_random_start();
    fixture_options_t options = {
        .memory_bytes = PS_STORE_MIN_MEMORY, .n_servers = 1, .n_workers = WORKERS};
    fixture_open(&m->f, &options);
    for (uint32_t w = 0; w < WORKERS; w++)
        fixture_hello(&m->f, w);
    for (size_t i = 0; i < N_IDS; i++)
        m->ids[i] = i == 0 ? 0 : i == 1 ? UINT64_MAX : test_next(&m->random);
    for (uint32_t t = 0; t < N_TABLES; t++) {
        psp_open_table_t table = {.dim = D, .seed = 17};
        (void)snprintf(table.name, sizeof table.name, "table %u", t);
        (void)snprintf(table.init, sizeof table.init, "%s", inits[t]);
        (void)snprintf(table.optimizer, sizeof table.optimizer, "%s", optimizers[t]);
        table.precision = precisions[t];
        table.clip_value = t == N_TABLES - 1 ? (double)CLIP : 0;
        psp_open_table_reply_t reply;
        assert_int_equal(fixture_open_table(&m->f, &table, &reply, NULL), PSC_OK);
        assert_int_equal(reply.table, t + 1);
        assert_true(reply.max_rows >= BATCH);
        m->rows[t] = psc_alloc_zeroed(N_IDS, sizeof *m->rows[t]);
        float params[PS_INIT_PARAMS_MAX];
        const ps_init_t *init = ps_init_find(inits[t]);
        assert_int_equal(ps_init_params(init, NULL, 0, params, NULL), PSC_OK);
        for (size_t i = 0; i < N_IDS; i++) {
            float *weights = m->rows[t][i].weights;
            init->fill(weights, D, 17, t + 1, m->ids[i], params);
            for (size_t c = 0; c < D; c++)
                weights[c] = kept(t, weights[c], UINT32_MAX);
        }
    }
}

static void finish(model_t *m)
{
    for (uint32_t t = 0; t < N_TABLES; t++)
        psc_free(m->rows[t]);
    fixture_close(&m->f, true);
}

/* A few hot ids, a long tail, and duplicates. */
static uint32_t some_index(model_t *m)
{
    size_t spread = test_below(&m->random, 3) == 0 ? 40 : N_IDS;
    return (uint32_t)test_below(&m->random, spread);
}

/* Rows of some later time: whatever comes of it, no answer may show it. */
static void announce_some(model_t *m, uint32_t worker)
{
    uint64_t ids[BATCH];
    size_t n = test_below(&m->random, BATCH + 1);
    for (size_t i = 0; i < n; i++)
        ids[i] = m->ids[some_index(m)];
    psp_message_t message = {.kind = PSP_PREFETCH};
    message.u.prefetch = (psp_prefetch_t){.table = (uint32_t)test_below(&m->random, N_TABLES) + 1,
                                          .table_epoch = 1,
                                          .n = n,
                                          .ids = (const uint8_t *)ids};
    (void)fixture_send(&m->f, worker, &message);
}

static void send_one(model_t *m, uint32_t worker)
{
    if (test_below(&m->random, 3) == 0)
        announce_some(m, worker);
    sent_t *sent = psc_alloc_zeroed(1, sizeof *sent);
    sent->table = (uint32_t)test_below(&m->random, N_TABLES);
    sent->is_push = test_below(&m->random, 2) == 0;
    sent->kind = (psp_push_kind_t)test_below(&m->random, 3);
    sent->rate = 0.1f * test_float(&m->random);
    sent->n = test_below(&m->random, BATCH + 1);
    uint64_t ids[BATCH];
    for (size_t i = 0; i < sent->n; i++) {
        sent->index[i] = some_index(m);
        if (i != 0 && test_below(&m->random, 200) == 0)
            sent->index[i] = sent->index[test_below(&m->random, i)];
        ids[i] = m->ids[sent->index[i]];
    }
    for (size_t i = 0; sent->is_push && i < sent->n * D; i++)
        sent->rows[i] = test_float(&m->random);
    if (m->last[worker] != NULL)
        m->last[worker]->next = sent;
    else
        m->first[worker] = sent;
    m->last[worker] = sent;
    m->n_open++;
    /* The reply may come at once, so the number is known before. */
    psp_request_header_t header = fixture_header(&m->f, worker);
    sent->request = header.request;
    if (!sent->is_push && test_below(&m->random, 3) == 0)
        header.deadline_ms = 1 + (uint32_t)test_below(&m->random, 30);
    if (sent->is_push) {
        psp_push_t push = {.table = sent->table + 1,
                           .table_epoch = 1,
                           .kind = sent->kind,
                           .learning_rate = sent->rate,
                           .dim = D,
                           .n = sent->n};
        (void)fixture_push(&m->f, worker, &header, push, ids, sent->rows);
    } else {
        sent->wants_versions = test_below(&m->random, 2) == 0;
        psp_pull_t pull = {.table = sent->table + 1,
                           .table_epoch = 1,
                           .staleness = PSP_STALENESS_ASYNC,
                           .want_versions = sent->wants_versions,
                           .n = sent->n};
        (void)fixture_pull(&m->f, worker, &header, pull, ids);
    }
}

static void apply_row(model_row_t *row, uint64_t id, const sent_t *sent, const float *values)
{
    uint32_t words[4];
    for (size_t c = 0; c < D; c++) {
        float g = values[c];
        if (sent->table == N_TABLES - 1)
            g = g > CLIP ? CLIP : g < -CLIP ? -CLIP : g;
        if (sent->kind == PSP_PUSH_ASSIGN) {
            row->weights[c] = values[c];
        } else if (sent->kind == PSP_PUSH_DELTA) {
            row->weights[c] += values[c];
        } else if (sent->table == 0) {
            row->weights[c] -= sent->rate * values[c];
        } else {
            row->sums[c] += g * g;
            row->weights[c] += -sent->rate * g / (sqrtf(row->sums[c]) + 1e-10f);
        }
        if (c % 8 == 0)
            psc_rng_row(17, sent->table + 1, id, (uint32_t)c / 8, PSC_RNG_ROUND, row->version,
                        words);
        uint32_t random = words[c % 8 / 2] >> (c % 2 * 16) & 0xffff;
        row->weights[c] =
            kept(sent->table, row->weights[c], sent->kind == PSP_PUSH_ASSIGN ? UINT32_MAX : random);
    }
    row->present = true;
    row->version++;
}

static void replay_push(model_t *m, const sent_t *sent)
{
    bool done[BATCH] = {false};
    for (size_t i = 0; i < sent->n; i++) {
        if (done[i])
            continue;
        float values[D];
        memcpy(values, sent->rows + i * D, sizeof values);
        for (size_t j = i + 1; j < sent->n; j++) {
            if (sent->index[j] != sent->index[i])
                continue;
            done[j] = true;
            for (size_t c = 0; c < D; c++)
                values[c] = sent->kind == PSP_PUSH_ASSIGN ? sent->rows[j * D + c]
                                                          : values[c] + sent->rows[j * D + c];
        }
        uint32_t index = sent->index[i];
        apply_row(&m->rows[sent->table][index], m->ids[index], sent, values);
    }
}

static void compare_pull(model_t *m, const sent_t *sent, const psp_pull_reply_t *reply)
{
    assert_int_equal(reply->n, sent->n);
    size_t at = 0;
    for (size_t i = 0; i < sent->n; i++) {
        if (reply->states != NULL && reply->states[i] == PSP_ROW_LATE) {
            m->n_late++;
            continue;
        }
        const model_row_t *row = &m->rows[sent->table][sent->index[i]];
        bool present = reply->states == NULL || reply->states[i] == PSP_ROW_PRESENT;
        assert_int_equal(present, row->present);
        if (sent->wants_versions) {
            uint32_t version;
            memcpy(&version, reply->versions + i * sizeof version, sizeof version);
            assert_int_equal(version, row->version);
        }
        assert_memory_equal(reply->rows + at++ * sizeof row->weights, row->weights,
                            sizeof row->weights);
    }
}

/* Takes what was answered, in the order of the answers. */
static void take_all(model_t *m)
{
    psp_message_t reply;
    uint32_t worker;
    while (fixture_take(&m->f, &reply, &worker)) {
        assert_int_equal(reply.reply.error.code, PSC_OK);
        if (reply.kind == PSP_PREFETCH_REPLY)
            continue;
        sent_t *sent = m->first[worker], *before = NULL;
        assert_non_null(sent);
        /* What is answered out of turn is a pull that is late as a whole. */
        while (reply.reply.request != sent->request) {
            before = sent;
            sent = sent->next;
            assert_non_null(sent);
            assert_int_equal(reply.u.pull_reply.n_values, 0);
        }
        assert_int_equal(reply.kind, sent->is_push ? PSP_PUSH_REPLY : PSP_PULL_REPLY);
        if (sent->is_push)
            replay_push(m, sent);
        else
            compare_pull(m, sent, &reply.u.pull_reply);
        if (before != NULL)
            before->next = sent->next;
        else
            m->first[worker] = sent->next;
        if (m->last[worker] == sent)
            m->last[worker] = before;
        psc_free(sent);
        m->n_open--;
    }
}

static void agrees_with_a_dictionary_when_most_rows_are_on_disk(void **unused)
{
    (void)unused;
    static model_t m;
    start(&m);
    for (int i = 0; i < 2500; i++) {
        send_one(&m, (uint32_t)test_below(&m.random, WORKERS));
        /* Now and then all deadlines pass, however fast the disk is. */
        if (test_below(&m.random, 32) == 0)
            ps_shard_set_time(m.f.shard, m.now_us += 40000);
        while (m.n_open > test_below(&m.random, 24)) {
            ps_shard_set_time(m.f.shard, m.now_us += 100);
            fixture_poll(&m.f);
            take_all(&m);
        }
        assert_int_equal(m.f.failure.code, PSC_OK);
        take_all(&m);
    }
    while (m.n_open != 0) {
        fixture_poll(&m.f);
        take_all(&m);
    }
    assert_int_equal(ps_shard_waiting(m.f.shard, UINT32_MAX), 0);
    assert_true(fixture_counter(&m.f, 0, "store.evicted") > 1000);
    assert_true(fixture_counter(&m.f, 0, "store.cold_found") > 1000);
    assert_true(fixture_counter(&m.f, 0, "push.merged") > 10);
    assert_true(fixture_counter(&m.f, 0, "requests.waited_rows") > 100);
    assert_true(fixture_counter(&m.f, 0, "store.fetched_ahead") > 1000);
    assert_int_equal(fixture_counter(&m.f, 0, "rows.pulled_late"), m.n_late);
    assert_true(m.n_late > 100);
    finish(&m);
}

/* The store fails: all that waits is answered with it, and all that comes later. */
static void a_failed_store_answers_everybody_with_its_error(void **unused)
{
    (void)unused;
    for (int writes = 0; writes < 2; writes++) {
        shard_fixture_t f;
        fixture_options_t options = {
            .memory_bytes = PS_STORE_MIN_MEMORY, .n_servers = 1, .n_workers = 2};
        if (writes)
            options.faults.fail_write_at = 3;
        else
            options.faults.fail_read_at = 3;
        fixture_open(&f, &options);
        fixture_hello(&f, 0);
        fixture_hello(&f, 1);
        psp_open_table_t table = {
            .name = "t", .dim = D, .init = "zeros", .optimizer = "sgd", .seed = 1};
        assert_int_equal(fixture_open_table(&f, &table, NULL, NULL), PSC_OK);
        float rows[BATCH * D] = {0};
        uint64_t ids[BATCH];
        size_t sent = 0, answered = 0;
        psp_message_t reply;
        for (uint64_t next = 0; f.failure.code == PSC_OK; sent++) {
            assert_true(sent < 5000);
            for (size_t i = 0; i < BATCH; i++)
                ids[i] = next++ * 7;
            psp_push_t push = {
                .table = 1, .table_epoch = 1, .kind = PSP_PUSH_DELTA, .dim = D, .n = BATCH};
            (void)fixture_push(&f, (uint32_t)(sent % 2), NULL, push, ids, rows);
            fixture_poll(&f);
            while (ps_shard_waiting(f.shard, UINT32_MAX) > 6)
                fixture_poll(&f);
        }
        psc_status_t code = writes ? PSC_DISK_FULL : PSC_IO;
        assert_int_equal(f.failure.code, code);
        psc_status_t last = PSC_OK;
        while (fixture_take(&f, &reply, NULL)) {
            last = reply.reply.error.code;
            assert_true(last == PSC_OK || last == code);
            answered++;
        }
        assert_int_equal(answered, sent);
        assert_int_equal(ps_shard_waiting(f.shard, UINT32_MAX), 0);
        psp_message_t clock = {.kind = PSP_CLOCK};
        (void)fixture_send(&f, 0, &clock);
        assert_true(fixture_take(&f, &reply, NULL));
        assert_int_equal(reply.reply.error.code, code);
        fixture_close(&f, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_dictionary_when_most_rows_are_on_disk),
        cmocka_unit_test(a_failed_store_answers_everybody_with_its_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
