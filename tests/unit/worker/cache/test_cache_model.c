/*
 * The cache without I/O against a server that is an array: operations from a seed, messages that
 * wait, answers in any order. What is checked: a worker sees its own pushes, all of them and in
 * their order, whatever is under way; and of others' changes at least those that the documented
 * staleness promises.
 */
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include "common/hash.h"
#include "worker/cache/cache.h"

#include <string.h>

enum {
    DIM = 256, /* wide, so that few rows fit */
    IDS = 60,
    BATCH = 12,
    OPS = 256,
    CLOCKS = 4096,
};

#define TABLE 5u
#define NO_CALL SIZE_MAX

/* Column 0: what this worker did; column 1: what others did, which only add. Others leave every
 * third row alone, and these are assigned too. */
typedef struct row {
    float own, others;
    uint32_t version;
} row_t;

typedef struct op {
    bool is_pull, refused;
    psp_push_kind_t kind;
    size_t n, n_wanted;
    uint64_t ids[OPS];
    uint32_t held[OPS];
    psw_ticket_t tickets[OPS];
    float values[OPS]; /* pushes: of column 0 */
    /* pulls, as expected when they were issued */
    size_t call; /* NO_CALL: a prefetch */
    uint32_t first[OPS];
    /* once served */
    bool served;
    row_t rows[OPS];
    uint64_t least_clock, asked_at;
    struct op *next;
} op_t;

/* One pull of the program. */
typedef struct call {
    size_t n, open;
    uint64_t ids[BATCH];
    float own[BATCH], least[BATCH];
    float rows[BATCH][DIM];
} call_t;

typedef struct world {
    psw_cache_t *cache;
    psw_cache_table_t table;
    test_random_t random;
    row_t rows[IDS];
    float own[IDS];               /* as this worker has to see it */
    float others_at[IDS][CLOCKS]; /* of others, of clocks below this one; async: when this worker's
                                     clock began */
    uint64_t clock, others_clock;
    uint32_t staleness, flush;
    op_t *queue, *answers;
    call_t calls[OPS];
    size_t n_calls;
} world_t;

static bool is_mine(uint64_t id)
{
    return id % 3 == 0;
}

static void start(world_t *w, uint32_t staleness, uint32_t flush, bool exact)
{
    memset(w, 0, sizeof *w);
    w->random = test_random_start();
    w->table = (psw_cache_table_t){.number = TABLE, .dim = DIM, .exact = exact};
    w->staleness = staleness;
    w->flush = flush;
    assert_int_equal(psw_cache_create(64 << 10, &w->cache, NULL), PSC_OK);
    psw_cache_set_limits(w->cache, staleness, flush);
}

static void enqueue(world_t *w, op_t *op)
{
    op_t **link = &w->queue;
    while (*link != NULL)
        link = &(*link)->next;
    *link = op;
}

static op_t *new_op(size_t n)
{
    op_t *op = calloc(1, sizeof *op);
    assert_non_null(op);
    assert_true(n <= OPS);
    op->n = n;
    return op;
}

static void send_outbox(world_t *w)
{
    psw_outbox_t outbox;
    while (psw_cache_outbox(w->cache, &outbox)) {
        assert_int_equal(outbox.table, TABLE);
        op_t *op = new_op(outbox.n);
        op->kind = PSP_PUSH_DELTA;
        for (size_t i = 0; i < op->n; i++) {
            op->ids[i] = outbox.ids[i];
            op->values[i] = outbox.rows[i * DIM];
            assert_true(outbox.rows[i * DIM + DIM - 1] == op->values[i]);
        }
        enqueue(w, op);
    }
}

/* The server takes the oldest message. */
static void serve(world_t *w)
{
    op_t *op = w->queue;
    if (op == NULL)
        return;
    w->queue = op->next;
    for (size_t i = 0; i < op->n; i++) {
        row_t *row = &w->rows[op->ids[i]];
        if (!op->is_pull) {
            row->own = op->kind == PSP_PUSH_ASSIGN ? op->values[i] : row->own + op->values[i];
            row->version++;
        }
        op->rows[i] = *row;
    }
    op->least_clock = w->others_clock < w->clock ? w->others_clock : w->clock;
    op->next = w->answers;
    w->answers = op;
}

static void write_row(float *out, const row_t *row)
{
    for (size_t c = 0; c < DIM; c++)
        out[c] = c % 2 == 0 ? row->own : row->others;
    out[DIM - 1] = row->own;
}

static void check_call(world_t *w, const call_t *call)
{
    for (size_t i = 0; i < call->n; i++) {
        const float *row = call->rows[i];
        const uint64_t id = call->ids[i];
        if (row[0] != call->own[i] || row[DIM - 1] != row[0])
            fail_msg("row %u: own part is %f, not %f", (unsigned)id, (double)row[0],
                     (double)call->own[i]);
        if (row[1] < call->least[i] || row[1] > w->rows[id].others)
            fail_msg("row %u: others' part is %f, at least %f and at most %f were promised",
                     (unsigned)id, (double)row[1], (double)call->least[i],
                     (double)w->rows[id].others);
    }
}

/* Any answer that is there comes. */
static void answer(world_t *w)
{
    /* The k-th of the list replaces the one before by a chance of 1 / k. */
    op_t **link = NULL;
    size_t n = 0;
    for (op_t **at = &w->answers; *at != NULL; at = &(*at)->next)
        if (test_below(&w->random, ++n) == 0)
            link = at;
    if (link == NULL)
        return;
    op_t *op = *link;
    *link = op->next;
    for (size_t i = 0; i < (op->is_pull ? op->n : op->n_wanted); i++) {
        float bytes[DIM];
        const row_t *row = &op->rows[i];
        write_row(bytes, row);
        psw_answer_t told = {.ticket = op->tickets[i],
                             .asked_at = op->asked_at,
                             .least_clock = op->least_clock,
                             .version = row->version,
                             .row = (const uint8_t *)bytes};
        if (op->is_pull && op->held[i] != 0 && op->held[i] == row->version)
            told.row = NULL;
        else if (op->is_pull && op->call != NO_CALL)
            memcpy(w->calls[op->call].rows[op->first[i]], bytes, sizeof bytes);
        psw_cache_answer(w->cache, &told);
    }
    if (op->is_pull && op->call != NO_CALL) {
        w->calls[op->call].open = 0;
        check_call(w, &w->calls[op->call]);
    }
    free(op);
}

static size_t draw_ids(world_t *w, uint64_t *ids, uint64_t *hashes)
{
    size_t n = 0;
    const size_t wanted = 1 + test_below(&w->random, BATCH);
    for (size_t tries = 0; tries < 3 * BATCH && n < wanted; tries++) {
        size_t id = test_below(&w->random, IDS);
        id = id * id / IDS; /* low ones more often */
        bool seen = false;
        for (size_t i = 0; i < n; i++)
            seen = seen || ids[i] == id;
        if (!seen)
            ids[n++] = id;
    }
    for (size_t i = 0; i < n; i++)
        hashes[i] = psc_row_hash(TABLE, ids[i]);
    return n;
}

/* What a pull of now has to see of others. */
static float promised(const world_t *w, uint64_t id)
{
    if (w->staleness == PSW_CACHE_ASYNC) {
        const uint64_t since = w->clock + 1 > w->flush ? w->clock + 1 - w->flush : 0;
        return w->others_at[id][since];
    }
    return w->clock > w->staleness ? w->others_at[id][w->clock - w->staleness] : 0;
}

/* The clock of all others, of whom one is simulated, moves. */
static void others_tick(world_t *w)
{
    if (w->staleness == PSW_CACHE_ASYNC || w->others_clock + 1 >= CLOCKS ||
        w->others_clock > w->clock + 3)
        return;
    w->others_clock++;
    for (size_t id = 0; id < IDS; id++)
        w->others_at[id][w->others_clock] = w->rows[id].others;
}

static void pull(world_t *w)
{
    uint64_t hashes[BATCH];
    call_t *call = &w->calls[w->n_calls % OPS];
    if (call->open != 0)
        return;
    while (w->staleness != PSW_CACHE_ASYNC && w->others_clock + w->staleness < w->clock)
        others_tick(w); /* the server makes it wait so long */
    uint32_t ages[BATCH];
    call->n = draw_ids(w, call->ids, hashes);
    for (size_t i = 0; i < call->n; i++) {
        call->own[i] = w->own[call->ids[i]];
        call->least[i] = promised(w, call->ids[i]);
        ages[i] = UINT32_MAX;
    }
    const psw_cache_rows_t rows = {
        .table = &w->table, .ids = call->ids, .hashes = hashes, .n = call->n};
    const psw_cache_out_t out = {.rows = &call->rows[0][0], .stride = DIM, .ages = ages};
    psw_asked_t asked;
    assert_int_equal(psw_cache_pull(w->cache, &rows, &out, &asked, NULL), PSC_OK);
    op_t *op = new_op(asked.n);
    op->is_pull = true;
    op->call = w->n_calls++ % OPS;
    op->asked_at = w->clock;
    bool served[BATCH];
    memset(served, 1, sizeof served);
    for (size_t i = 0; i < asked.n; i++) {
        served[asked.first[i]] = false;
        op->first[i] = asked.first[i];
        op->ids[i] = call->ids[asked.first[i]];
        op->held[i] = asked.held[i];
        op->tickets[i] = asked.tickets[i];
        assert_true(asked.hashes[i] == hashes[asked.first[i]]);
    }
    for (size_t i = 0; i < call->n; i++) {
        assert_int_equal(served[i], ages[i] != UINT32_MAX);
        if (served[i] && w->staleness != PSW_CACHE_ASYNC)
            assert_true(ages[i] <= w->staleness);
    }
    send_outbox(w);
    if (op->n == 0) {
        check_call(w, call);
        free(op);
        return;
    }
    call->open = 1;
    enqueue(w, op);
}

static void prefetch(world_t *w)
{
    uint64_t ids[BATCH], hashes[BATCH];
    psw_asked_t asked;
    const psw_cache_rows_t rows = {
        .table = &w->table, .ids = ids, .hashes = hashes, .n = draw_ids(w, ids, hashes)};
    assert_int_equal(
        psw_cache_prefetch(w->cache, &rows, w->clock + test_below(&w->random, 4), &asked, NULL),
        PSC_OK);
    assert_true(asked.n_wanted <= asked.n && asked.n <= rows.n);
    op_t *op = new_op(asked.n_wanted);
    op->is_pull = true;
    op->call = NO_CALL;
    op->asked_at = w->clock;
    for (size_t i = 0; i < op->n; i++) {
        assert_true(asked.tickets[i].slot != PSW_CACHE_NO_SLOT);
        op->ids[i] = ids[asked.first[i]];
        op->held[i] = asked.held[i];
        op->tickets[i] = asked.tickets[i];
    }
    send_outbox(w);
    if (op->n != 0)
        enqueue(w, op);
    else
        free(op);
}

typedef struct values {
    float of[BATCH];
} values_t;

static void fill(void *context, size_t i, float *row)
{
    const values_t *values = context;
    for (size_t c = 0; c < DIM; c++)
        row[c] = c % 2 == 0 ? values->of[i] : 0;
    row[DIM - 1] = values->of[i];
}

static void push(world_t *w)
{
    uint64_t ids[BATCH], hashes[BATCH];
    values_t values;
    const size_t n = draw_ids(w, ids, hashes);
    psp_push_kind_t kind = PSP_PUSH_DELTA;
    const size_t dice = test_below(&w->random, 8);
    if (dice == 0)
        kind = PSP_PUSH_ASSIGN;
    else if (dice == 1)
        kind = PSP_PUSH_GRADIENT;
    for (size_t i = 0; i < n; i++) {
        values.of[i] = (float)test_below(&w->random, 5);
        if (kind == PSP_PUSH_ASSIGN)
            ids[i] -= ids[i] % 3; /* may be there twice: then once */
    }
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        bool seen = false;
        for (size_t k = 0; k < m; k++)
            seen = seen || ids[k] == ids[i];
        if (!seen)
            ids[m++] = ids[i];
    }
    for (size_t i = 0; i < m; i++) {
        hashes[i] = psc_row_hash(TABLE, ids[i]);
        w->own[ids[i]] = kind == PSP_PUSH_ASSIGN ? values.of[i] : w->own[ids[i]] + values.of[i];
    }
    const psw_cache_rows_t rows = {.table = &w->table, .ids = ids, .hashes = hashes, .n = m};
    psw_asked_t asked;
    assert_int_equal(psw_cache_push(w->cache, &rows, kind, fill, &values, &asked, NULL), PSC_OK);
    send_outbox(w);
    op_t *op = new_op(asked.n);
    op->kind = kind;
    op->n_wanted = asked.n_wanted;
    op->asked_at = w->clock;
    for (size_t i = 0; i < asked.n; i++) {
        op->ids[i] = ids[asked.first[i]];
        op->tickets[i] = asked.tickets[i];
        op->values[i] = values.of[asked.first[i]];
    }
    if (op->n != 0)
        enqueue(w, op);
    else
        free(op);
}

static void others(world_t *w)
{
    const size_t id = test_below(&w->random, IDS);
    if (!is_mine(id)) {
        w->rows[id].others++;
        w->rows[id].version++;
    }
}

static void tick(world_t *w)
{
    if (w->clock + 1 >= CLOCKS)
        return;
    assert_int_equal(psw_cache_take_due(w->cache, NULL), PSC_OK);
    send_outbox(w);
    w->clock++;
    psw_cache_set_clock(w->cache, w->clock);
    for (size_t id = 0; w->staleness == PSW_CACHE_ASYNC && id < IDS; id++)
        w->others_at[id][w->clock] = w->rows[id].others;
}

static void settle(world_t *w)
{
    bool more = true;
    while (more) {
        assert_int_equal(psw_cache_take_some(w->cache, &more, NULL), PSC_OK);
        send_outbox(w);
    }
    while (w->queue != NULL)
        serve(w);
    while (w->answers != NULL)
        answer(w);
    for (size_t id = 0; id < IDS; id++)
        assert_true(w->rows[id].own == w->own[id]);
}

static void run(uint32_t staleness, uint32_t flush, bool exact)
{
    static world_t w;
    start(&w, staleness, flush, exact);
    for (int step = 0; step < 20000; step++) {
        switch (test_below(&w.random, 16)) {
        case 0:
        case 1:
            pull(&w);
            break;
        case 2:
        case 3:
            push(&w);
            break;
        case 4:
            others(&w);
            break;
        case 5:
            if (test_below(&w.random, 3) == 0)
                tick(&w);
            break;
        case 6:
            if (test_below(&w.random, 3) == 0)
                others_tick(&w);
            break;
        case 7:
        case 8:
        case 9:
        case 10:
            serve(&w);
            break;
        default:
            answer(&w);
            break;
        }
        if (test_below(&w.random, 16) == 0)
            prefetch(&w);
        if (test_below(&w.random, 500) == 0)
            psw_cache_expire(w.cache);
        if (test_below(&w.random, 1000) == 0)
            settle(&w);
    }
    settle(&w);
    psw_cache_counters_t counters;
    psw_cache_counters(w.cache, &counters);
    printf("hits %u fetched %u confirmed %u evicted %u deltas %u flushed %u\n",
           (unsigned)counters.hits, (unsigned)counters.fetched, (unsigned)counters.confirmed,
           (unsigned)counters.evicted, (unsigned)counters.deltas, (unsigned)counters.flushed);
    assert_true(counters.hits > 100);
    assert_true(counters.fetched > 500);
    assert_true(counters.confirmed > 50 || !exact);
    assert_true(counters.evicted > 50);
    assert_true(counters.deltas > 1000 && counters.flushed <= counters.deltas);
    assert_true(counters.bytes <= 64 << 10 && counters.rows < IDS);
    assert_true(counters.oldest <= staleness);
    psw_cache_destroy(w.cache);
}

static void bounded_staleness_holds(void **state)
{
    (void)state;
    run(1, 1, true);
    run(3, 1, true);
    run(3, 7, true);
}

static void asynchronous_copies_are_served_for_the_flush_period(void **state)
{
    (void)state;
    run(PSW_CACHE_ASYNC, 1, true);
    run(PSW_CACHE_ASYNC, 9, true);
}

static void versions_are_not_trusted_where_servers_do_more_than_add(void **state)
{
    (void)state;
    run(2, 3, false);
    run(PSW_CACHE_ASYNC, 5, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounded_staleness_holds),
        cmocka_unit_test(asynchronous_copies_are_served_for_the_flush_period),
        cmocka_unit_test(versions_are_not_trusted_where_servers_do_more_than_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
