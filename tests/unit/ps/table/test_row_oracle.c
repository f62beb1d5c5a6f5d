/*
 * Random pulls, pushes of each kind, clocks, evictions, reopenings and crashes against a dictionary
 * (tests/support/row_oracle.h), over RocksDB: every optimizer with every precision, in one store.
 *
 * All records are of such a size that ten make a page, so that a budget of one page is a hot tier
 * of ten rows for all tables together. Requests of two workers are under way at once, and replayed
 * in the order of the replies; every pulled row, state and version is compared to the last bit.
 *
 * A crash is a process that kills itself in the middle, with requests and write-back under way. It
 * keeps a log of all that any row ever was in a file that outlives it. The next process reads every
 * record: it must be one of the log, no older than what was known to be written back; rows that
 * nobody pushed must not exist. Then it goes on from there.
 */
#include "tests/support/cmocka.h"
#include "tests/support/row_oracle.h"
#include "tests/support/scratch.h"
#include "tests/support/shard_fixture.h"
#include "tests/support/test_seed.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/slots.h"
#include "ps/store/store_core.h"
#include "ps/store/sweep.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS 2u
#define PAGE_BYTES ((size_t)64 << 10) /* of stores of 8 MiB */
#define HOT_ROWS ORACLE_BATCH
#define RECORD_BYTES (PAGE_BYTES / HOT_ROWS / 16 * 16)
#define HISTORY_MAX 20000u
#define CRASH_ROUNDS 3

typedef enum mode { HOT_ONLY, COLD_ONLY, TEN_ROWS, CRASHES } world_mode_t;

/* What outlives a crash. */
typedef struct history {
    uint64_t seed;
    uint64_t clock[WORKERS];
    uint64_t n_found, n_lost, n_older; /* rows after crashes; lost: never written back */
    size_t n;
    struct {
        uint32_t table, index;
        uint64_t hash;
    } was[HISTORY_MAX];
    size_t latest[ORACLE_TABLES_MAX][ORACLE_IDS];  /* in `was`, plus 1; 0: never was */
    size_t written[ORACLE_TABLES_MAX][ORACLE_IDS]; /* the same, known to be written back */
    bool may_lack[ORACLE_TABLES_MAX][ORACLE_IDS];  /* freed since then, perhaps, and begun anew */
    uint64_t written_last[ORACLE_TABLES_MAX][ORACLE_IDS]; /* time of the last push before that */
} history_t;

typedef struct sent {
    struct sent *next;
    uint64_t request;
    bool is_push, is_clock;
    uint64_t clock;
    oracle_push_t push;
    uint32_t index[ORACLE_BATCH];
    float *values;
} sent_t;

typedef struct world {
    world_mode_t mode;
    test_random_t random;
    oracle_t *oracle;
    shard_fixture_t f;
    char data[256];
    history_t *history; /* or NULL */
    sent_t *first[WORKERS], *last[WORKERS];
    uint64_t clock[WORKERS]; /* told and answered */
    size_t n_open;
    size_t turn, round; /* of a table; of all tables */
    size_t states[4];
    uint64_t evicted, cold_found, freed; /* of shards that were closed */
} world_t;

/* ---- opening ---- */

static uint64_t memory_of(world_mode_t mode)
{
    return mode == HOT_ONLY ? 3 * PS_STORE_MIN_MEMORY : PS_STORE_MIN_MEMORY;
}

static void limit_rows(ps_store_t *store, uint64_t bytes)
{
    store->layout.rows_bytes = bytes + store->reserved_bytes;
    ps_slab_set_budget(store->slab, bytes);
}

static void tell_clock(world_t *w, uint32_t worker)
{
    psp_message_t clock = {.kind = PSP_CLOCK}, reply;
    w->f.clock[worker] = w->clock[worker];
    (void)fixture_send(&w->f, worker, &clock);
    fixture_wait(&w->f, &reply, NULL);
    assert_int_equal(reply.reply.error.code, PSC_OK);
}

static void world_open(world_t *w)
{
    psc_error_t error = PSC_ERROR_INIT;
    fixture_options_t options = {
        .memory_bytes = memory_of(w->mode), .n_servers = 1, .n_workers = WORKERS};
    psc_status_t st = ps_cold_rocks_open(w->data, ps_cold_rocks_memory(options.memory_bytes),
                                         &options.cold, &error);
    assert_string_equal(error.message, "");
    assert_int_equal(st, PSC_OK);
    fixture_open(&w->f, &options);
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        fixture_hello(&w->f, worker);
    for (size_t t = 0; t < w->oracle->n_tables; t++) {
        psp_open_table_reply_t reply;
        psp_open_table_t table = w->oracle->tables[t].options;
        assert_int_equal(fixture_open_table(&w->f, &table, &reply, NULL), PSC_OK);
        assert_int_equal(reply.table, t + 1);
        assert_true(reply.max_rows >= ORACLE_BATCH);
    }
    if (w->mode == TEN_ROWS) {
        assert_int_equal(w->f.store->layout.page_bytes, PAGE_BYTES);
        limit_rows(w->f.store, PAGE_BYTES + HOT_ROWS * PS_STORE_ROW_BYTES);
    }
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        tell_clock(w, worker);
}

static void world_close(world_t *w)
{
    w->evicted += fixture_counter(&w->f, 0, "store.evicted");
    w->cold_found += fixture_counter(&w->f, 0, "store.cold_found");
    w->freed += fixture_counter(&w->f, 0, "rows.freed");
    assert_int_equal(w->f.failure.code, PSC_OK);
    fixture_close(&w->f, true);
}

/* ---- requests ---- */

static void send_pull(world_t *w, uint32_t worker, const sent_t *sent,
                      const psp_request_header_t *header, const uint64_t *ids)
{
    psp_pull_t pull = {.table = (uint32_t)sent->push.table + 1,
                       .table_epoch = 1,
                       .staleness = PSP_STALENESS_ASYNC,
                       .want_versions = true,
                       .scan = sent->push.n % 3 == 0,
                       .n = sent->push.n};
    (void)fixture_pull(&w->f, worker, header, pull, ids);
}

static void send_push(world_t *w, uint32_t worker, sent_t *sent, const psp_request_header_t *header,
                      const uint64_t *ids)
{
    size_t dim = w->oracle->tables[sent->push.table].dim;
    size_t n_values = sent->push.n * dim;
    sent->values = psc_alloc_array(n_values != 0 ? n_values : 1, sizeof *sent->values);
    for (size_t i = 0; i < n_values; i++)
        sent->values[i] = test_float(&w->random);
    sent->push.values = sent->values;
    psp_push_t push = {.table = (uint32_t)sent->push.table + 1,
                       .table_epoch = 1,
                       .kind = sent->push.kind,
                       .learning_rate = sent->push.rate,
                       .step = sent->push.step,
                       .dim = (uint32_t)dim,
                       .n = sent->push.n};
    (void)fixture_push(&w->f, worker, header, push, ids, sent->values);
}

/* Every table has its turn. */
static void send_one(world_t *w)
{
    uint32_t worker = (uint32_t)test_below(&w->random, WORKERS);
    sent_t *sent = psc_alloc_zeroed(1, sizeof *sent);
    sent->is_clock = test_below(&w->random, 15) == 0;
    sent->is_push = !sent->is_clock && test_below(&w->random, 3) != 0;
    sent->push = (oracle_push_t){.table = w->turn,
                                 .kind = (psp_push_kind_t)test_below(&w->random, 3),
                                 .rate = 0.05f + 0.04f * test_float(&w->random),
                                 .step = test_below(&w->random, 6),
                                 .n = test_below(&w->random, ORACLE_BATCH + 1),
                                 .index = sent->index};
    if (test_below(&w->random, 2) == 0)
        sent->push.kind = PSP_PUSH_GRADIENT;
    if (w->round % 4 == 1) { /* so that none goes without */
        sent->is_clock = false;
        sent->is_push = true;
        sent->push.kind = PSP_PUSH_GRADIENT;
        sent->push.n += sent->push.n == 0;
    }
    w->turn = w->turn + 1 < w->oracle->n_tables ? w->turn + 1 : 0;
    w->round += w->turn == 0;
    uint64_t ids[ORACLE_BATCH];
    size_t spread = test_below(&w->random, 2) == 0 ? 6 : ORACLE_IDS - 1; /* the last: never */
    for (size_t i = 0; i < sent->push.n; i++) {
        sent->index[i] = (uint32_t)test_below(&w->random, spread);
        if (!sent->is_push && test_below(&w->random, 20) == 0)
            sent->index[i] = ORACLE_IDS - 1;
        ids[i] = w->oracle->tables[sent->push.table].rows[sent->index[i]].id;
    }
    if (w->last[worker] != NULL)
        w->last[worker]->next = sent;
    else
        w->first[worker] = sent;
    w->last[worker] = sent;
    w->n_open++;
    if (sent->is_clock)
        sent->clock = ++w->f.clock[worker];
    psp_request_header_t header = fixture_header(&w->f, worker);
    sent->request = header.request;
    psp_message_t clock = {.kind = PSP_CLOCK, .request = header};
    if (sent->is_clock)
        (void)fixture_send(&w->f, worker, &clock);
    else if (sent->is_push)
        send_push(w, worker, sent, &header, ids);
    else
        send_pull(w, worker, sent, &header, ids);
}

static void take_clock(world_t *w, uint32_t worker, uint64_t clock)
{
    w->clock[worker] = clock;
    w->oracle->time = w->clock[0];
    for (uint32_t i = 1; i < WORKERS; i++)
        w->oracle->time = w->clock[i] < w->oracle->time ? w->clock[i] : w->oracle->time;
    if (w->history != NULL)
        w->history->clock[worker] = clock;
}

static void take_push(world_t *w, const sent_t *sent)
{
    bool begun[ORACLE_BATCH];
    const oracle_push_t *push = &sent->push;
    oracle_apply(w->oracle, push, begun);
    history_t *h = w->history;
    for (size_t i = 0; h != NULL && i < push->n; i++) {
        const oracle_table_t *table = &w->oracle->tables[push->table];
        uint32_t index = push->index[i];
        assert_true(h->n < HISTORY_MAX);
        h->was[h->n].table = (uint32_t)push->table;
        h->was[h->n].index = index;
        h->was[h->n].hash = oracle_hash(table, &table->rows[index]);
        h->latest[push->table][index] = ++h->n;
        h->may_lack[push->table][index] |= begun[i];
    }
}

static void take_pull(world_t *w, const sent_t *sent, const psp_pull_reply_t *reply)
{
    const oracle_table_t *table = &w->oracle->tables[sent->push.table];
    size_t row_bytes = table->dim * sizeof(float);
    assert_int_equal(reply->n, sent->push.n);
    for (size_t i = 0; i < reply->n; i++) {
        const float *weights;
        uint32_t index = sent->index[i], version;
        psp_row_state_t state = oracle_expect(w->oracle, sent->push.table, index, &weights);
        memcpy(&version, reply->versions + i * sizeof version, sizeof version);
        assert_int_equal(reply->states != NULL ? reply->states[i] : PSP_ROW_PRESENT, state);
        assert_int_equal(version, state == PSP_ROW_PRESENT ? table->rows[index].version : 0);
        assert_memory_equal(reply->rows + i * row_bytes, weights, row_bytes);
        w->states[state]++;
    }
}

static void take_all(world_t *w)
{
    psp_message_t reply;
    uint32_t worker;
    while (fixture_take(&w->f, &reply, &worker)) {
        sent_t *sent = w->first[worker];
        assert_non_null(sent);
        assert_int_equal(reply.reply.request, sent->request);
        assert_string_equal(reply.reply.error.message, "");
        if (sent->is_clock)
            take_clock(w, worker, sent->clock);
        else if (sent->is_push)
            take_push(w, sent);
        else
            take_pull(w, sent, &reply.u.pull_reply);
        w->first[worker] = sent->next;
        if (sent->next == NULL)
            w->last[worker] = NULL;
        psc_free(sent->values);
        psc_free(sent);
        w->n_open--;
    }
    assert_int_equal(w->f.failure.code, PSC_OK);
}

static void settle(world_t *w, size_t n_open)
{
    take_all(w);
    while (w->n_open > n_open) {
        fixture_poll(&w->f);
        take_all(w);
    }
}

/* All rows leave memory; what was changed is written back when this returns. */
static void evict_all(world_t *w)
{
    ps_store_t *store = w->f.store;
    uint64_t rows_bytes = ps_store_rows_bytes(store);
    ps_store_counters_t counters;
    settle(w, 0);
    do {
        limit_rows(store, 0);
        fixture_poll(&w->f);
        ps_store_counters(store, &counters);
    } while (counters.rows_hot != 0 || !ps_io_idle(store->io) || store->write_job != NULL);
    limit_rows(store, rows_bytes);
    history_t *h = w->history;
    for (size_t t = 0; h != NULL && t < w->oracle->n_tables; t++) {
        for (uint32_t i = 0; i < ORACLE_IDS; i++) {
            h->written[t][i] = h->latest[t][i];
            h->written_last[t][i] = w->oracle->tables[t].rows[i].last;
            h->may_lack[t][i] = false;
        }
    }
}

static void run(world_t *w, size_t n_requests)
{
    for (size_t i = 0; i < n_requests; i++) {
        send_one(w);
        if (w->mode == COLD_ONLY)
            evict_all(w);
        else
            settle(w, test_below(&w->random, 6));
        if (w->mode == CRASHES && (i == n_requests / 2 || test_below(&w->random, 150) == 0))
            evict_all(w);
        if (w->mode == TEN_ROWS) {
            ps_store_counters_t counters;
            ps_store_counters(w->f.store, &counters);
            assert_true(counters.rows_hot <= HOT_ROWS);
        }
    }
}

/* ---- hot only, cold only, ten rows ---- */

static world_t *world_start(world_mode_t mode, const char *folder)
{
    world_t *w = psc_alloc_zeroed(1, sizeof *w);
    w->mode = mode;
    w->oracle = oracle_create(RECORD_BYTES);
    (void)test_path(w->data, sizeof w->data, folder, "rocksdb");
    return w;
}

static void play(world_mode_t mode, size_t n_requests)
{
    char *folder = test_scratch_create();
    world_t *w = world_start(mode, folder);
    w->random = test_random_start();
    for (int life = 0; life < 3; life++) {
        world_open(w);
        run(w, n_requests / 3);
        settle(w, 0);
        world_close(w);
    }
    for (size_t t = 0; t < w->oracle->n_tables; t++)
        assert_true(w->oracle->tables[t].n_gradients > 0);
    assert_true(w->states[PSP_ROW_PRESENT] != 0 && w->states[PSP_ROW_INITIAL] != 0);
    assert_true(w->states[PSP_ROW_EXPIRED] != 0);
    assert_true(w->cold_found != 0);
    assert_int_equal(w->evicted != 0, mode != HOT_ONLY);
    if (mode != COLD_ONLY) /* ten rows leave no room for a sweep */
        assert_int_equal(w->freed != 0, mode == HOT_ONLY);
    oracle_destroy(w->oracle);
    psc_free(w);
    test_scratch_destroy(folder);
}

static void agrees_when_all_rows_are_in_memory(void **state)
{
    (void)state;
    play(HOT_ONLY, 1500);
}

static void agrees_when_every_row_comes_from_disk(void **state)
{
    (void)state;
    play(COLD_ONLY, 600);
}

static void agrees_with_a_hot_tier_of_ten_rows(void **state)
{
    (void)state;
    play(TEN_ROWS, 900);
}

/* ---- crashes ---- */

/* Where the history has this row; plus 1, 0: nowhere. */
static size_t find_in_history(const history_t *h, size_t t, uint32_t index, uint64_t hash)
{
    for (size_t i = h->n; i > 0; i--)
        if (h->was[i - 1].hash == hash && h->was[i - 1].table == t && h->was[i - 1].index == index)
            return i;
    return 0;
}

/* A row as the crash left it. */
static void adopt_row(world_t *w, size_t t, uint32_t index, const ps_row_header_t *record)
{
    history_t *h = w->history;
    oracle_table_t *table = &w->oracle->tables[t];
    oracle_row_t *row = &table->rows[index];
    if (record == NULL) {
        if (h->latest[t][index] == 0)
            return;
        /* What was on disk may have been older than what the crash took, and forgotten by now. */
        uint64_t life = table->options.expire_after;
        uint64_t age = w->oracle->time - h->written_last[t][index];
        bool forgotten = life != 0 && age > 2 * life;
        assert_true(h->written[t][index] == 0 || h->may_lack[t][index] || forgotten);
        h->n_lost++;
        return;
    }
    oracle_adopt(table, row, record);
    size_t found = find_in_history(h, t, index, oracle_hash(table, row));
    assert_true(found != 0);
    assert_true(found >= h->written[t][index]);
    h->n_found++;
    h->n_older += found < h->latest[t][index];
}

static void adopt_all(world_t *w)
{
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_t *store = w->f.store;
    for (size_t t = 0; t < w->oracle->n_tables; t++) {
        uint64_t ids[ORACLE_IDS], hashes[ORACLE_IDS];
        ps_place_t places[ORACLE_IDS];
        for (size_t i = 0; i < ORACLE_IDS; i++) {
            ids[i] = w->oracle->tables[t].rows[i].id;
            hashes[i] = psc_row_hash((uint32_t)t + 1, ids[i]);
        }
        ps_batch_t batch = {.table = (uint16_t)(t + 1),
                            .mode = PS_BATCH_READ,
                            .n = ORACLE_IDS,
                            .ids = ids,
                            .hashes = hashes,
                            .places = places};
        psc_status_t st;
        while ((st = ps_store_prepare(store, &batch, &error)) == PSC_BUSY)
            fixture_poll(&w->f);
        assert_int_equal(st, PSC_OK);
        while (!ps_store_ready(store, &batch))
            fixture_poll(&w->f);
        for (uint32_t i = 0; i < ORACLE_IDS; i++) {
            const ps_row_header_t *row = ps_store_row(ps_store_base(store), places[i]);
            bool there = places[i] != 0 && row->state == PS_ROW_PRESENT; /* not freed meanwhile */
            adopt_row(w, t, i, there ? row : NULL);
        }
        ps_store_release(store, &batch);
    }
}

/* What was found is on disk: the history begins anew with it. */
static void restart_history(world_t *w)
{
    history_t *h = w->history;
    h->n = 0;
    for (size_t t = 0; t < w->oracle->n_tables; t++) {
        for (uint32_t i = 0; i < ORACLE_IDS; i++) {
            oracle_table_t *table = &w->oracle->tables[t];
            h->latest[t][i] = h->written[t][i] = 0;
            h->may_lack[t][i] = false;
            if (!table->rows[i].record)
                continue;
            h->was[h->n].table = (uint32_t)t;
            h->was[h->n].index = i;
            h->was[h->n].hash = oracle_hash(table, &table->rows[i]);
            h->latest[t][i] = h->written[t][i] = ++h->n;
            h->written_last[t][i] = table->rows[i].last;
        }
    }
}

/* Every row of the table that a walk finds is one that was pushed. */
static void nothing_is_invented(world_t *w, size_t t)
{
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_scan_t *scan;
    psc_status_t st;
    while ((st = ps_store_scan_open(w->f.store, (uint16_t)(t + 1), 0, PSC_SLOT_COUNT, &scan,
                                    &error)) == PSC_BUSY)
        fixture_poll(&w->f);
    assert_int_equal(st, PSC_OK);
    ps_store_piece_t piece = {0};
    while (!piece.end) {
        st = ps_store_scan_next(scan, &piece, &error);
        if (st == PSC_BUSY) {
            piece.end = false;
            fixture_poll(&w->f);
            continue;
        }
        assert_int_equal(st, PSC_OK);
        for (size_t r = 0; r < piece.n; r++) {
            uint32_t i = 0;
            while (i < ORACLE_IDS && w->oracle->tables[t].rows[i].id != piece.rows[r].id)
                i++;
            assert_true(i < ORACLE_IDS && w->oracle->tables[t].rows[i].record);
        }
    }
    ps_store_scan_close(scan);
}

static history_t *map_history(const char *folder, bool create)
{
    char path[256];
    int fd = open(test_path(path, sizeof path, folder, "history"),
                  O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(history_t)), 0);
    void *memory = mmap(NULL, sizeof(history_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    (void)close(fd);
    return memory;
}

/* One life, in a process of its own. All but the last end in the middle of something. */
static int live(const char *folder, int round)
{
    world_t *w = world_start(CRASHES, folder);
    w->history = map_history(folder, false);
    w->random.key = psc_rng_stream(w->history->seed, 1, (uint32_t)round);
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        take_clock(w, worker, w->history->clock[worker]);
    world_open(w);
    adopt_all(w);
    for (size_t t = 0; t < w->oracle->n_tables; t++)
        nothing_is_invented(w, t);
    restart_history(w);
    run(w, 300 + test_below(&w->random, 300));
    if (round < CRASH_ROUNDS - 1)
        (void)raise(SIGKILL);
    settle(w, 0);
    world_close(w);
    (void)munmap(w->history, sizeof *w->history);
    oracle_destroy(w->oracle);
    psc_free(w);
    return 0;
}

static int run_life(const char *folder, int round)
{
    char number[16];
    (void)snprintf(number, sizeof number, "%d", round);
    (void)fflush(stdout);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failure there ends it, and is shown */
        (void)execl("/proc/self/exe", "test_row_oracle", "--live", folder, number, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void after_a_crash_every_row_is_one_that_was(void **state)
{
    (void)state;
    char *folder = test_scratch_create();
    history_t *h = map_history(folder, true);
    test_random_t random = test_random_start();
    h->seed = test_next(&random);
    for (int round = 0; round < CRASH_ROUNDS; round++) {
        int status = run_life(folder, round);
        if (round < CRASH_ROUNDS - 1)
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    print_message("rows after crashes: %llu found, %llu of them older than the last; %llu lost\n",
                  (unsigned long long)h->n_found, (unsigned long long)h->n_older,
                  (unsigned long long)h->n_lost);
    assert_true(h->n_found > 0 && h->n_older + h->n_lost > 0);
    (void)munmap(h, sizeof *h);
    test_scratch_destroy(folder);
}

int main(int argc, char *argv[])
{
    psc_log_set_level(PSC_LOG_ERROR);
    if (argc == 4 && strcmp(argv[1], "--live") == 0)
        return live(argv[2], (int)strtol(argv[3], NULL, 10));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_when_all_rows_are_in_memory),
        cmocka_unit_test(agrees_when_every_row_comes_from_disk),
        cmocka_unit_test(agrees_with_a_hot_tier_of_ten_rows),
        cmocka_unit_test(after_a_crash_every_row_is_one_that_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
