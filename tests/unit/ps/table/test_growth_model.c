/*
 * Tables that admit rows late and let them expire, against a dictionary that never frees anything:
 * on clusters of one, two and three servers with one worker, whose rows, states and versions are
 * the same to the last bit, and on one server with three workers and many open requests, replayed
 * in the order of the replies. Sweepers run whenever a poll lets them, which no answer may show.
 */
#include "tests/support/cmocka.h"
#include "tests/support/shard_fixture.h"
#include "tests/support/test_seed.h"

#include "common/alloc.h"
#include "common/slots.h"
#include "ps/growth/expiry.h"
#include "ps/growth/sketch.h"
#include "ps/init/init.h"

#include <math.h>
#include <string.h>

#define D 300
#define N_SLOTS 50u
#define PER_SLOT 60u
#define N_IDS (N_SLOTS * PER_SLOT)
#define BATCH 30u
#define COMPANION 0x8000u
#define WORKERS 3u

typedef struct model_row {
    bool record;
    uint64_t id;
    uint32_t version, update_count;
    uint64_t last;
    float weights[D], sums[D];
} model_row_t;

typedef struct sent {
    struct sent *next;
    uint64_t request;
    bool is_push, is_clock;
    psp_push_kind_t kind;
    float rate;
    uint64_t clock;
    size_t n;
    uint32_t index[BATCH];
    float rows[BATCH * D];
} sent_t;

typedef struct model {
    psp_open_table_t options;
    test_random_t random;
    uint64_t time;
    uint64_t ids[N_IDS], hashes[N_IDS];
    model_row_t *rows, shared[N_SLOTS];
    ps_sketch_t *sketch; /* which has a test of its own, as ps_expiry has: floors are asked there */
    ps_expiry_t *expiry;
    const ps_init_t *init;
    float params[PS_INIT_PARAMS_MAX];
    size_t states[4]; /* pulled rows by state */
} model_t;

typedef struct case_options {
    const char *name;
    uint32_t admit_after, admit_counters;
    bool admit_shared;
    uint64_t expire_after, expire_rare_after;
    uint32_t expire_rare_below, expire_floor;
    bool expire_dry_run;
} case_t;

static const case_t cases[] = {
    {.name = "late", .admit_after = 3, .admit_counters = 16},
    {.name = "shared", .admit_after = 4, .admit_counters = 64, .admit_shared = true},
    {.name = "expires", .expire_after = 4},
    {.name = "rare", .expire_after = 20, .expire_rare_after = 3, .expire_rare_below = 2},
    {.name = "floor", .expire_after = 6, .expire_floor = 20},
    {.name = "dry", .expire_after = 2, .expire_dry_run = true},
    {.name = "late and expires", .admit_after = 2, .admit_counters = 64, .expire_after = 5},
    {.name = "all",
     .admit_after = 2,
     .admit_counters = 64,
     .admit_shared = true,
     .expire_after = 9,
     .expire_rare_after = 2,
     .expire_rare_below = 3,
     .expire_floor = 10},
};

/* ---- the dictionary ---- */

static void begin_row(const model_t *m, model_row_t *row, uint32_t table)
{
    uint64_t id = row->id;
    *row = (model_row_t){.id = id};
    m->init->fill(row->weights, D, 17, table, id, m->params);
}

static void model_start(model_t *m, const case_t *c)
{
    psp_open_table_t options = {.dim = D,
                                .seed = 17,
                                .name = "t",
                                .init = "normal",
                                .optimizer = "adagrad",
                                .admit_after = c->admit_after,
                                .admit_counters = c->admit_counters,
                                .admit_shared = c->admit_shared,
                                .expire_after = c->expire_after,
                                .expire_rare_after = c->expire_rare_after,
                                .expire_rare_below = c->expire_rare_below,
                                .expire_floor = c->expire_floor,
                                .expire_dry_run = c->expire_dry_run};
    printf("%s: ", c->name);
    *m = (model_t){.options = options, .random = test_random_start()};
    m->init = ps_init_find("normal");
    assert_int_equal(ps_init_params(m->init, NULL, 0, m->params, NULL), PSC_OK);
    m->rows = psc_alloc_zeroed(N_IDS, sizeof *m->rows);
    for (size_t s = 0; s < N_SLOTS; s++) {
        uint64_t slot = s * (PSC_SLOT_COUNT / N_SLOTS) + test_below(&m->random, 300);
        for (size_t i = s * PER_SLOT; i < (s + 1) * PER_SLOT; i++) {
            m->hashes[i] = test_next(&m->random) << 14 | slot;
            m->ids[i] = m->rows[i].id = psc_row_id_of_hash(1, m->hashes[i]);
            begin_row(m, &m->rows[i], 1);
        }
        uint64_t hash = (psc_mix64(slot) & ~(uint64_t)(PSC_SLOT_COUNT - 1)) | slot;
        m->shared[s].id = psc_row_id_of_hash(1 | COMPANION, hash);
        begin_row(m, &m->shared[s], 1 | COMPANION);
    }
    if (c->admit_after != 0)
        assert_int_equal(
            ps_sketch_create(N_SLOTS, c->admit_counters, c->admit_after, &m->sketch, NULL), PSC_OK);
    ps_expiry_rule_t rule = {.after = c->expire_after,
                             .rare_after = c->expire_rare_after,
                             .rare_below = c->expire_rare_below,
                             .floor = c->expire_floor};
    if (c->expire_floor != 0)
        assert_int_equal(ps_expiry_create(N_SLOTS, &rule, 0, &m->expiry, NULL), PSC_OK);
}

static void model_finish(model_t *m)
{
    psc_free(m->rows);
    ps_sketch_destroy(m->sketch);
    ps_expiry_destroy(m->expiry);
}

static void set_time(model_t *m, uint64_t time)
{
    m->time = time;
    if (m->expiry != NULL)
        ps_expiry_advance(m->expiry, time);
}

static ps_age_t age_of(const model_t *m, const model_row_t *row, size_t slot)
{
    const psp_open_table_t *o = &m->options;
    if (!row->record)
        return PS_AGE_FORGOTTEN;
    if (o->expire_dry_run || o->expire_after + o->expire_rare_after == 0)
        return PS_AGE_LIVE;
    if (m->expiry != NULL)
        return ps_expiry_judge(m->expiry, slot, row->update_count, (uint32_t)row->last);
    uint64_t life = o->expire_after;
    if (row->update_count < o->expire_rare_below && o->expire_rare_after < life)
        life = o->expire_rare_after;
    uint64_t age = m->time - row->last;
    return age <= life ? PS_AGE_LIVE : age <= 2 * life ? PS_AGE_EXPIRED : PS_AGE_FORGOTTEN;
}

static void apply_row(const model_t *m, model_row_t *row, const sent_t *sent, const float *values)
{
    for (size_t c = 0; c < D; c++) {
        if (sent->kind == PSP_PUSH_ASSIGN) {
            row->weights[c] = values[c];
        } else if (sent->kind == PSP_PUSH_DELTA) {
            row->weights[c] += values[c];
        } else {
            row->sums[c] += values[c] * values[c];
            row->weights[c] += -sent->rate * values[c] / (sqrtf(row->sums[c]) + 1e-10f);
        }
    }
    row->record = true;
    row->version++;
    row->update_count += sent->kind == PSP_PUSH_GRADIENT;
    row->last = m->time;
}

/* Whether a push reaches the row, which begins where it has to. */
static bool admit(model_t *m, const sent_t *sent, uint32_t index)
{
    model_row_t *row = &m->rows[index];
    size_t slot = index / PER_SLOT;
    ps_age_t age = age_of(m, row, slot);
    if (age == PS_AGE_LIVE)
        return true;
    bool warm = false;
    if (age == PS_AGE_FORGOTTEN && m->sketch != NULL && sent->kind != PSP_PUSH_ASSIGN) {
        uint32_t seen = ps_sketch_count(m->sketch, slot, m->hashes[index]);
        if (seen < m->options.admit_after) {
            seen = ps_sketch_add(m->sketch, slot, m->hashes[index]);
            if (seen < m->options.admit_after)
                return false;
            warm = m->options.admit_shared;
        }
    }
    begin_row(m, row, 1);
    if (warm)
        memcpy(row->weights, m->shared[slot].weights, sizeof row->weights);
    return true;
}

static void reach(model_t *m, const sent_t *sent, uint32_t index, const float *values)
{
    model_row_t *row = &m->rows[index];
    size_t slot = index / PER_SLOT;
    if (m->expiry != NULL && row->record)
        ps_expiry_remove(m->expiry, slot, row->update_count, (uint32_t)row->last);
    apply_row(m, row, sent, values);
    if (m->expiry != NULL)
        ps_expiry_add(m->expiry, slot, row->update_count, (uint32_t)row->last);
}

static void replay_push(model_t *m, const sent_t *sent)
{
    enum { UNSEEN, REACHED, MISSED } fate[BATCH] = {UNSEEN};
    bool missed_slot[N_SLOTS] = {false};
    static float of_slot[N_SLOTS][D];
    for (size_t i = 0; i < sent->n; i++) {
        for (size_t j = 0; j < i && fate[i] == UNSEEN; j++)
            fate[i] = sent->index[j] == sent->index[i] ? fate[j] : UNSEEN;
        if (fate[i] == UNSEEN)
            fate[i] = admit(m, sent, sent->index[i]) ? REACHED : MISSED;
        size_t slot = sent->index[i] / PER_SLOT;
        const float *values = sent->rows + i * D;
        for (size_t c = 0; fate[i] == MISSED && c < D; c++)
            of_slot[slot][c] = missed_slot[slot] ? of_slot[slot][c] + values[c] : values[c];
        missed_slot[slot] |= fate[i] == MISSED;
    }
    for (size_t i = 0; i < sent->n; i++) {
        bool first = fate[i] == REACHED;
        for (size_t j = 0; j < i; j++)
            first &= sent->index[j] != sent->index[i];
        if (!first)
            continue;
        float values[D];
        memcpy(values, sent->rows + i * D, sizeof values);
        for (size_t j = i + 1; j < sent->n; j++) {
            for (size_t c = 0; sent->index[j] == sent->index[i] && c < D; c++)
                values[c] = sent->kind == PSP_PUSH_ASSIGN ? sent->rows[j * D + c]
                                                          : values[c] + sent->rows[j * D + c];
        }
        reach(m, sent, sent->index[i], values);
    }
    for (size_t slot = 0; m->options.admit_shared && slot < N_SLOTS; slot++) {
        if (missed_slot[slot])
            apply_row(m, &m->shared[slot], sent, of_slot[slot]);
    }
}

/* What a pull has to answer for a row. */
static psp_row_state_t expect(const model_t *m, uint32_t index, const float **weights_out,
                              model_row_t *initial)
{
    const model_row_t *row = &m->rows[index];
    size_t slot = index / PER_SLOT;
    ps_age_t age = age_of(m, row, slot);
    *weights_out = row->weights;
    if (age == PS_AGE_LIVE)
        return PSP_ROW_PRESENT;
    initial->id = row->id;
    begin_row(m, initial, 1);
    *weights_out = initial->weights;
    if (age == PS_AGE_EXPIRED)
        return PSP_ROW_EXPIRED;
    uint32_t seen =
        m->sketch != NULL ? ps_sketch_count(m->sketch, slot, m->hashes[index]) : UINT32_MAX;
    if (seen >= m->options.admit_after || (seen == 0 && !m->options.admit_shared))
        return PSP_ROW_INITIAL;
    if (m->options.admit_shared)
        *weights_out = m->shared[slot].weights;
    return PSP_ROW_NOT_ADMITTED;
}

static void compare_row(model_t *m, uint32_t index, const psp_pull_reply_t *reply, size_t at)
{
    static model_row_t initial;
    const float *weights;
    psp_row_state_t state = expect(m, index, &weights, &initial);
    uint32_t version;
    memcpy(&version, reply->versions + at * sizeof version, sizeof version);
    assert_int_equal(reply->states != NULL ? reply->states[at] : PSP_ROW_PRESENT, state);
    assert_int_equal(version, state == PSP_ROW_PRESENT ? m->rows[index].version : 0);
    assert_memory_equal(reply->rows + at * sizeof initial.weights, weights, sizeof initial.weights);
    m->states[state]++;
}

static sent_t *random_request(model_t *m, bool is_clock)
{
    sent_t *sent = psc_alloc_zeroed(1, sizeof *sent);
    sent->is_clock = is_clock;
    if (sent->is_clock)
        return sent;
    sent->is_push = test_below(&m->random, 3) != 0;
    sent->kind = test_below(&m->random, 30) == 0 ? PSP_PUSH_ASSIGN
                                                 : (psp_push_kind_t)test_below(&m->random, 2);
    sent->rate = 0.1f * test_float(&m->random);
    sent->n = test_below(&m->random, BATCH + 1);
    size_t spread = test_below(&m->random, 3) == 0 ? N_IDS : N_IDS / 10;
    for (size_t i = 0; i < sent->n; i++) {
        sent->index[i] = (uint32_t)test_below(&m->random, spread);
        if (i != 0 && test_below(&m->random, 20) == 0)
            sent->index[i] = sent->index[test_below(&m->random, i)];
    }
    for (size_t i = 0; sent->is_push && i < sent->n * D; i++)
        sent->rows[i] = test_float(&m->random);
    return sent;
}

/* Sends the rows of a request that lie in slots of the server; part: their positions. */
static size_t send_part(shard_fixture_t *f, const model_t *m, sent_t *sent, uint32_t worker,
                        const psc_slot_map_t *map, uint32_t rank, size_t part[BATCH])
{
    uint64_t ids[BATCH];
    static float rows[BATCH * D];
    size_t n = 0;
    for (size_t i = 0; i < sent->n; i++) {
        if (psc_slot_owner(map, m->hashes[sent->index[i]]) != rank)
            continue;
        part[n] = i;
        ids[n] = m->ids[sent->index[i]];
        memcpy(rows + n * D, sent->rows + i * D, D * sizeof *rows);
        n++;
    }
    psp_request_header_t header = fixture_header(f, worker);
    sent->request = header.request;
    psp_push_t push = {.table = 1,
                       .table_epoch = 1,
                       .kind = sent->kind,
                       .learning_rate = sent->rate,
                       .dim = D,
                       .n = n};
    psp_pull_t pull = {.table = 1,
                       .table_epoch = 1,
                       .staleness = PSP_STALENESS_ASYNC,
                       .want_versions = true,
                       .scan = sent->n % 2 == 0,
                       .n = n};
    psp_message_t clock = {.kind = PSP_CLOCK, .request = header};
    if (sent->is_clock)
        (void)fixture_send(f, worker, &clock);
    else if (sent->is_push)
        (void)fixture_push(f, worker, &header, push, ids, rows);
    else
        (void)fixture_pull(f, worker, &header, pull, ids);
    return n;
}

static void open_fixture(shard_fixture_t *f, const model_t *m, uint32_t rank, uint32_t n_servers,
                         uint32_t n_workers)
{
    fixture_options_t options = {.memory_bytes = PS_STORE_MIN_MEMORY,
                                 .rank = rank,
                                 .n_servers = n_servers,
                                 .n_workers = n_workers};
    fixture_open(f, &options);
    for (uint32_t w = 0; w < n_workers; w++)
        fixture_hello(f, w);
    psp_open_table_t table = m->options;
    table.table = rank == 0 ? 0 : 1;
    psp_open_table_reply_t reply;
    assert_int_equal(fixture_open_table(f, &table, &reply, NULL), PSC_OK);
    assert_int_equal(reply.table, 1);
    assert_true(reply.max_rows >= BATCH);
}

/* ---- one worker, one to three servers ---- */

#define CLUSTERS 3u

static void play(shard_fixture_t clusters[CLUSTERS][CLUSTERS], model_t *m, sent_t *sent)
{
    if (sent->is_clock) /* in small steps, which show rows that expire, and a few wide ones */
        set_time(m, m->time + (m->time % 16 == 9 ? 9 : 1));
    if (sent->is_push)
        replay_push(m, sent);
    for (uint32_t n_servers = 1; n_servers <= CLUSTERS; n_servers++) {
        psc_slot_map_t map;
        assert_int_equal(psc_slot_map_init(&map, n_servers, NULL), PSC_OK);
        for (uint32_t rank = 0; rank < n_servers; rank++) {
            shard_fixture_t *f = &clusters[n_servers - 1][rank];
            psp_message_t reply;
            size_t part[BATCH];
            f->clock[0] = m->time;
            size_t n = send_part(f, m, sent, 0, &map, rank, part);
            fixture_wait(f, &reply, NULL);
            assert_string_equal(reply.reply.error.message, "");
            for (size_t i = 0; reply.kind == PSP_PULL_REPLY && i < n; i++)
                compare_row(m, sent->index[part[i]], &reply.u.pull_reply, i);
            for (size_t i = test_below(&m->random, 12); i > 0; i--)
                fixture_poll(f);
        }
    }
}

static void any_number_of_servers_decides_alike(void **state)
{
    (void)state;
    static model_t m;
    static shard_fixture_t clusters[CLUSTERS][CLUSTERS];
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        model_start(&m, &cases[c]);
        for (uint32_t n = 1; n <= CLUSTERS; n++)
            for (uint32_t rank = 0; rank < n; rank++)
                open_fixture(&clusters[n - 1][rank], &m, rank, n, 1);
        for (int i = 0; i < 200; i++) {
            sent_t *sent = random_request(&m, i % 8 == 7);
            play(clusters, &m, sent);
            psc_free(sent);
        }
        uint64_t freed[CLUSTERS] = {0};
        for (uint32_t n = 1; n <= CLUSTERS; n++) {
            for (uint32_t rank = 0; rank < n; rank++) {
                freed[n - 1] += fixture_counter(&clusters[n - 1][rank], 0, "rows.freed");
                fixture_close(&clusters[n - 1][rank], true);
            }
        }
        bool frees = m.options.expire_after != 0 && !m.options.expire_dry_run;
        for (size_t n = 0; n < CLUSTERS; n++)
            assert_int_equal(freed[n] != 0, frees);
        assert_int_equal(m.states[PSP_ROW_EXPIRED] != 0, frees);
        assert_int_equal(m.states[PSP_ROW_NOT_ADMITTED] != 0, m.sketch != NULL);
        assert_true(m.states[PSP_ROW_PRESENT] != 0);
        model_finish(&m);
    }
}

/* ---- three workers, one server ---- */

typedef struct open_requests {
    sent_t *first[WORKERS], *last[WORKERS];
    uint64_t clock[WORKERS]; /* told and answered */
    size_t n;
} open_requests_t;

static void take_all(shard_fixture_t *f, model_t *m, open_requests_t *open)
{
    psp_message_t reply;
    uint32_t worker;
    while (fixture_take(f, &reply, &worker)) {
        sent_t *sent = open->first[worker];
        assert_non_null(sent);
        assert_int_equal(reply.reply.request, sent->request);
        assert_string_equal(reply.reply.error.message, "");
        if (sent->is_clock) {
            open->clock[worker] = sent->clock;
            uint64_t least = open->clock[0];
            for (uint32_t w = 1; w < WORKERS; w++)
                least = open->clock[w] < least ? open->clock[w] : least;
            set_time(m, least);
        } else if (sent->is_push) {
            replay_push(m, sent);
        } else {
            for (size_t i = 0; i < sent->n; i++)
                compare_row(m, sent->index[i], &reply.u.pull_reply, i);
        }
        open->first[worker] = sent->next;
        if (sent->next == NULL)
            open->last[worker] = NULL;
        psc_free(sent);
        open->n--;
    }
}

static void send_one(shard_fixture_t *f, model_t *m, open_requests_t *open, uint32_t worker)
{
    psc_slot_map_t map;
    size_t part[BATCH];
    sent_t *sent = random_request(m, test_below(&m->random, 8) == 0);
    assert_int_equal(psc_slot_map_init(&map, 1, NULL), PSC_OK);
    if (sent->is_clock)
        sent->clock = ++f->clock[worker];
    if (open->last[worker] != NULL)
        open->last[worker]->next = sent;
    else
        open->first[worker] = sent;
    open->last[worker] = sent;
    open->n++;
    /* The reply may come at once; it is taken later. */
    (void)send_part(f, m, sent, worker, &map, 0, part);
}

static void workers_side_by_side_see_what_the_dictionary_says(void **state)
{
    (void)state;
    static model_t m;
    static shard_fixture_t f;
    uint64_t evicted = 0;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        open_requests_t open = {.n = 0};
        model_start(&m, &cases[c]);
        open_fixture(&f, &m, 0, 1, WORKERS);
        for (int i = 0; i < 600; i++) {
            send_one(&f, &m, &open, (uint32_t)test_below(&m.random, WORKERS));
            take_all(&f, &m, &open);
            while (open.n > test_below(&m.random, 16)) {
                fixture_poll(&f);
                take_all(&f, &m, &open);
            }
        }
        while (open.n != 0) {
            fixture_poll(&f);
            take_all(&f, &m, &open);
        }
        assert_int_equal(f.failure.code, PSC_OK);
        evicted += fixture_counter(&f, 0, "store.evicted");
        assert_int_equal(ps_shard_waiting(f.shard, UINT32_MAX), 0);
        fixture_close(&f, true);
        model_finish(&m);
    }
    assert_true(evicted > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_servers_decides_alike),
        cmocka_unit_test(workers_side_by_side_see_what_the_dictionary_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
