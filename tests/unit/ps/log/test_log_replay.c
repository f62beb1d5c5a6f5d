/*
 * A log replayed into a new shard: rows, versions, tables, time and sessions are the same to the
 * last bit, whatever was pushed, in whichever format, to tables of every kind; also of a job whose
 * workers are in step. And records that fit no shard, or are cut short, are refused or cut off.
 */
#include "ps/log/log_replay.h"

#include "common/alloc.h"
#include "common/file.h"
#include "ps/log/log_writer.h"
#include "ps/serve/serve.h"
#include "ps/table/shard_state.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/shard_fixture.h"
#include "tests/support/test_seed.h"

#include <string.h>
#include <sys/stat.h>

enum { GUESTS = 3, TABLES = 4, IDS = 400, MOST = 60, STEPS = 300 };

static const psp_open_table_t tables[TABLES] = {
    {.name = "plain", .dim = 4, .init = "uniform", .optimizer = "adam", .seed = 5},
    {.name = "half",
     .dim = 3,
     .init = "normal",
     .optimizer = "adagrad",
     .seed = 7,
     .precision = PSP_BF16,
     .clip_norm = 2},
    {.name = "late",
     .dim = 4,
     .init = "zeros",
     .optimizer = "sgd",
     .admit_after = 3,
     .admit_counters = 16,
     .admit_shared = true},
    {.name = "aging", .dim = 2, .init = "zeros", .optimizer = "sgd", .expire_after = 2},
};

typedef struct setting {
    char *folder; /* of checkpoints */
    ps_log_start_t start;
    ps_log_chain_t chain;
    ps_log_writer_t *writer;
    shard_fixture_t f;
} setting_t;

static void open_shard(setting_t *s, uint32_t n_workers)
{
    const fixture_options_t options = {.memory_bytes = (uint64_t)32 << 20,
                                       .n_servers = 1,
                                       .n_workers = n_workers,
                                       .n_guests = GUESTS};
    psc_error_t error = PSC_ERROR_INIT;
    fixture_open(&s->f, &options);
    s->start = (ps_log_start_t){.checkpoints = s->folder,
                                .lineage = 1,
                                .n_servers = 1,
                                .base = "",
                                .replay = n_workers == 0};
    if (ps_log_chain_find(&s->start, &s->chain, &error) != PSC_OK)
        fail_msg("%s", error.message);
}

static void start_log(setting_t *s)
{
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_log_chain_begin(&s->chain, s->folder, &error), PSC_OK);
    const ps_log_writer_options_t options = {.checkpoints = s->folder,
                                             .folder = s->chain.folder,
                                             .head = s->chain.head,
                                             .records = true};
    assert_int_equal(ps_log_writer_start(&options, &s->writer, &error), PSC_OK);
    ps_logger_start(s->f.shard, ps_log_writer_sink(s->writer));
}

static void close_shard(setting_t *s)
{
    ps_log_writer_stop(s->writer);
    fixture_close(&s->f, true);
    ps_log_writer_destroy(s->writer);
    ps_log_chain_clear(&s->chain);
    s->writer = NULL;
}

/* ---- requests ---- */

/* The answer to what was sent last, which may wait for the log. */
static psp_message_t answer(setting_t *s)
{
    psp_message_t reply;
    fixture_wait(&s->f, &reply, NULL);
    if (reply.reply.error.code != PSC_OK)
        fail_msg("%s", reply.reply.error.message);
    return reply;
}

static void hello(setting_t *s, uint32_t peer, uint32_t n_workers)
{
    psp_message_t message = {
        .kind = PSP_HELLO,
        .request = {.protocol = PSP_PROTOCOL_VERSION, .request = s->f.next_request++},
        .u.hello = {.worker = peer, .n_workers = n_workers}};
    (void)fixture_send(&s->f, peer, &message);
    const psp_message_t reply = answer(s);
    s->f.session[peer] = reply.u.hello_reply.session;
    s->f.sequence[peer] = 0;
}

static void open_table(setting_t *s, uint32_t peer, size_t which)
{
    psp_message_t message = {.kind = PSP_OPEN_TABLE, .u.open_table = tables[which]};
    (void)fixture_send(&s->f, peer, &message);
    (void)answer(s);
}

static void send_push(setting_t *s, uint32_t peer, test_random_t *random, bool synchronous)
{
    uint64_t ids[MOST];
    float rows[MOST * 4];
    const size_t which = test_below(random, TABLES);
    const size_t n = test_below(random, MOST);
    const psp_push_t push = {.table = (uint32_t)which + 1,
                             .table_epoch = 1,
                             .kind = (psp_push_kind_t)test_below(random, 3),
                             .learning_rate = 0.1f,
                             .dim = tables[which].dim,
                             .step = 1 + test_below(random, 9),
                             .format = test_below(random, 3) == 0 ? PSP_FORMAT_F16 : PSP_FORMAT_F32,
                             .want_rows = test_below(random, 4) == 0,
                             .synchronous = synchronous,
                             .n = n};
    for (size_t i = 0; i < n; i++)
        ids[i] = test_below(random, IDS); /* now and then the same one twice */
    for (size_t i = 0; i < n * push.dim; i++)
        rows[i] = test_float(random);
    (void)fixture_push(&s->f, peer, NULL, push, ids, rows);
}

static void import(setting_t *s, uint32_t peer, test_random_t *random)
{
    const size_t n = 1 + test_below(random, 9);
    const psp_request_header_t header = fixture_header(&s->f, peer);
    psp_import_t import = {.rows = {.table = 1,
                                    .table_epoch = 1,
                                    .kind = PSP_PUSH_ASSIGN,
                                    .dim = 4,
                                    .format = PSP_FORMAT_F32,
                                    .n = n}};
    const uint8_t some[1] = {0};
    psp_block_t block;
    psp_buffer_t *buffer;
    import.counts = some; /* not read: it is to have some */
    assert_int_equal(psp_import_begin(s->f.pool, &header, &import, &buffer, &block, NULL), PSC_OK);
    for (size_t i = 0; i < n; i++) {
        const uint64_t id = test_below(random, IDS);
        const uint32_t counts[2] = {(uint32_t)test_below(random, 90), 3};
        memcpy(block.ids + i * sizeof id, &id, sizeof id);
        memcpy(block.counts + i * sizeof counts, counts, sizeof counts);
    }
    for (size_t i = 0; i < n * 4; i++) {
        const float value = test_float(random);
        memcpy(block.rows + i * sizeof value, &value, sizeof value);
    }
    fixture_send_bytes(&s->f, peer, PSP_IMPORT, buffer->data, buffer->size);
    psp_buffer_put(buffer);
}

static void tick(setting_t *s, uint32_t peer)
{
    psp_message_t message = {.kind = PSP_CLOCK, .u.clock = {.progress = s->f.clock[peer] * 10}};
    s->f.clock[peer]++;
    (void)fixture_send(&s->f, peer, &message);
    (void)answer(s);
}

/* ---- what a shard is ---- */

typedef struct look {
    uint8_t *bytes; /* states, versions and rows of all ids of all tables */
    size_t n;
    uint64_t time, created[TABLES];
    ps_session_t sessions[GUESTS];
    uint64_t next[GUESTS];
    size_t n_sessions;
} look_t;

static void look_at(setting_t *s, look_t *look)
{
    ps_shard_t *shard = s->f.shard;
    uint64_t ids[IDS];
    const uint32_t seat = shard->sessions.n + GUESTS - 1; /* of nobody: who comes looks */
    *look = (look_t){.time = ps_shard_time(shard)};
    for (uint32_t i = shard->sessions.n; i < shard->sessions.n_all; i++) {
        if (ps_guests_next(shard, i) == 0)
            continue;
        look->sessions[look->n_sessions] = shard->sessions.all[i];
        look->next[look->n_sessions++] = ps_guests_next(shard, i);
    }
    hello(s, seat, 0);
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    look->bytes = psc_alloc((size_t)TABLES * IDS * 64);
    for (size_t t = 0; t < TABLES; t++) {
        const psp_pull_t pull = {.table = (uint32_t)t + 1,
                                 .table_epoch = 1,
                                 .staleness = PSP_STALENESS_ASYNC,
                                 .want_versions = true,
                                 .n = IDS};
        (void)fixture_pull(&s->f, seat, NULL, pull, ids);
        const psp_message_t message = answer(s);
        const psp_pull_reply_t *reply = &message.u.pull_reply;
        if (reply->states != NULL)
            memcpy(look->bytes + look->n, reply->states, IDS);
        else
            memset(look->bytes + look->n, 0, IDS);
        look->n += IDS;
        memcpy(look->bytes + look->n, reply->versions, IDS * sizeof(uint32_t));
        look->n += IDS * sizeof(uint32_t);
        const size_t bytes = reply->n_values * psp_row_bytes(reply->format, reply->dim);
        memcpy(look->bytes + look->n, reply->rows, bytes);
        look->n += bytes;
        look->created[t] = ps_shard_created(shard->tables[t + 1]);
    }
}

static void same(look_t *a, look_t *b, bool sessions)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->bytes, b->bytes, a->n);
    assert_int_equal(a->time, b->time);
    assert_memory_equal(a->created, b->created, sizeof a->created);
    assert_int_equal(sessions ? a->n_sessions : 0, b->n_sessions);
    for (size_t i = 0; i < b->n_sessions; i++) {
        size_t j = 0;
        while (j < a->n_sessions && a->sessions[j].id != b->sessions[i].id)
            j++;
        assert_true(j < a->n_sessions);
        assert_int_equal(a->sessions[j].clock, b->sessions[i].clock);
        assert_int_equal(a->sessions[j].progress, b->sessions[i].progress);
        assert_int_equal(a->sessions[j].push_sequence, b->sessions[i].push_sequence);
        assert_int_equal(a->next[j], b->next[i]);
    }
    psc_free(a->bytes);
    psc_free(b->bytes);
}

static void replay(setting_t *s, ps_log_replayed_t *replayed)
{
    psc_error_t error = PSC_ERROR_INIT;
    if (ps_log_replay(&s->chain, s->f.shard, replayed, &error) != PSC_OK)
        fail_msg("%s", error.message);
}

/* ---- the tests ---- */

static void guests_step(setting_t *s, test_random_t *random, bool *here)
{
    const uint32_t guest = (uint32_t)test_below(random, GUESTS - 1); /* one seat stays free */
    const size_t what = test_below(random, 20);
    if (!here[guest]) {
        hello(s, guest, 0);
        here[guest] = true;
    } else if (what < 12) {
        send_push(s, guest, random, false);
        (void)answer(s);
    } else if (what < 15) {
        import(s, guest, random);
        (void)answer(s);
    } else if (what < 18) {
        tick(s, guest);
    } else if (what < 19) {
        psp_message_t goodbye = {.kind = PSP_GOODBYE};
        (void)fixture_send(&s->f, guest, &goodbye);
        (void)answer(s);
        here[guest] = false;
    } else {
        const psp_push_t wrong = {.table = 9, .table_epoch = 1, .dim = 4};
        psp_message_t reply;
        (void)fixture_push(&s->f, guest, NULL, wrong, NULL, NULL);
        fixture_wait(&s->f, &reply, NULL);
        assert_int_equal(reply.reply.error.code, PSC_NOT_FOUND);
    }
}

/* Several runs, each killed: the same as the one that made the log, each time. */
static void guests_and_their_pushes(void **state)
{
    (void)state;
    setting_t s = {.folder = test_scratch_create()};
    test_random_t random = test_random_start();
    bool here[GUESTS] = {false};
    ps_log_replayed_t replayed;
    open_shard(&s, 0);
    for (int run = 0; run < 3; run++) {
        look_t before, after;
        start_log(&s);
        if (run == 0) {
            hello(&s, 0, 0);
            here[0] = true;
            for (size_t t = 0; t < TABLES; t++)
                open_table(&s, 0, t);
        }
        for (int step = 0; step < STEPS; step++)
            guests_step(&s, &random, here);
        s.f.shard->logger.records = false; /* who looks is none of it */
        look_at(&s, &before);
        uint64_t sequence[GUESTS], session[GUESTS], clock[GUESTS];
        memcpy(sequence, s.f.sequence, sizeof sequence);
        memcpy(session, s.f.session, sizeof session);
        memcpy(clock, s.f.clock, sizeof clock);
        close_shard(&s);
        open_shard(&s, 0);
        replay(&s, &replayed);
        assert_true(replayed.pushes > STEPS / 4 && replayed.cut_off == 0);
        look_at(&s, &after);
        same(&before, &after, true);
        memcpy(s.f.sequence, sequence, sizeof sequence);
        memcpy(s.f.session, session, sizeof session);
        memcpy(s.f.clock, clock, sizeof clock);
        ps_guests_end(s.f.shard, ps_guests_find(s.f.shard, s.f.session[GUESTS - 1]));
        /* Seats may be others, which a guest does not know of. */
    }
    close_shard(&s);
    test_scratch_destroy(s.folder);
}

/* Workers in step, whose pushes are summed; servers without workers replay it. */
static void workers_in_step(void **state)
{
    (void)state;
    setting_t s = {.folder = test_scratch_create()};
    test_random_t random = test_random_start();
    ps_log_replayed_t replayed;
    look_t before, after;
    open_shard(&s, 2);
    start_log(&s);
    for (uint32_t worker = 0; worker < 2; worker++)
        hello(&s, worker, 2);
    for (size_t t = 0; t < TABLES; t++)
        open_table(&s, 0, t);
    for (int step = 0; step < STEPS / 4; step++) {
        for (uint32_t worker = 0; worker < 2; worker++) {
            for (int i = 0; i < 2; i++) {
                send_push(&s, worker, &random, test_below(&random, 8) != 0);
                (void)answer(&s);
            }
        }
        for (uint32_t worker = 0; worker < 2; worker++)
            tick(&s, worker);
    }
    while (s.f.shard->summing)
        fixture_poll(&s.f);
    s.f.shard->logger.records = false;
    look_at(&s, &before);
    close_shard(&s);
    open_shard(&s, 0);
    replay(&s, &replayed);
    assert_true(replayed.pushes > STEPS / 4);
    look_at(&s, &after);
    same(&before, &after, false);
    close_shard(&s);
    test_scratch_destroy(s.folder);
}

/* What was pushed and cut short by a crash does not count; what does not fit is refused. */
static void ends_and_misfits(void **state)
{
    (void)state;
    setting_t s = {.folder = test_scratch_create()};
    test_random_t random = test_random_start();
    ps_log_replayed_t replayed;
    psc_error_t error = PSC_ERROR_INIT;
    char *bytes;
    size_t n;
    open_shard(&s, 0);
    start_log(&s);
    hello(&s, 0, 0);
    for (size_t t = 0; t < TABLES; t++)
        open_table(&s, 0, t);
    for (int i = 0; i < 3; i++) {
        send_push(&s, 0, &random, false);
        (void)answer(&s);
    }
    char *path = ps_log_path(s.chain.folder, 1);
    close_shard(&s);
    assert_int_equal(psc_file_read(path, (size_t)1 << 20, &bytes, &n, NULL), PSC_OK);
    assert_int_equal(psc_file_write(path, bytes, n - 9, NULL), PSC_OK);
    open_shard(&s, 0);
    replay(&s, &replayed);
    assert_true(replayed.cut_off != 0);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal((uint64_t)status.st_size, s.chain.head.previous_bytes);
    assert_int_equal((uint64_t)status.st_size + replayed.cut_off, n - 9);
    start_log(&s); /* segment 2 knows how long segment 1 is now */
    close_shard(&s);
    open_shard(&s, 0);
    replay(&s, &replayed);
    assert_int_equal(replayed.cut_off, 0);
    /* The same once more does not fit any more. */
    assert_int_equal(ps_log_replay(&s.chain, s.f.shard, &replayed, &error), PSC_MISMATCH);
    assert_non_null(strstr(error.message, "cannot be replayed at offset"));
    assert_non_null(strstr(error.message, path));
    close_shard(&s);
    psc_free(bytes);
    psc_free(path);
    test_scratch_destroy(s.folder);
}

/* A checkpoint in which another server had the table already, and this one had not. */
/* Starts with these bytes in the place of segment 1. */
static psc_status_t replay_bytes(setting_t *s, const char *path, const char *bytes, size_t n,
                                 ps_log_replayed_t *replayed, look_t *look, psc_error_t *error)
{
    assert_int_equal(psc_file_write(path, bytes, n, NULL), PSC_OK);
    open_shard(s, 0);
    const psc_status_t st = ps_log_replay(&s->chain, s->f.shard, replayed, error);
    if (st == PSC_OK)
        look_at(s, look);
    fixture_close(&s->f, true);
    ps_log_chain_clear(&s->chain);
    return st;
}

/*
 * A hole in a log that nobody synced: on the machine that wrote it, damage; after another start of
 * the machine what is before it counts, as if the log ended there, and what is behind it does not,
 * which is told.
 */
static void what_a_power_cut_leaves(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        setting_t s = {.folder = test_scratch_create()};
        test_random_t random = test_random_start();
        ps_log_replayed_t replayed;
        psc_error_t error = PSC_ERROR_INIT;
        char *bytes;
        size_t n, before = 0;
        look_t cut, hole;
        open_shard(&s, 0);
        s.chain.head.level = PS_LOG_LEVEL_WRITTEN;
        s.chain.head.boot[0] ^= (uint8_t)other;
        start_log(&s);
        hello(&s, 0, 0);
        for (size_t t = 0; t < TABLES; t++)
            open_table(&s, 0, t);
        char *path = ps_log_path(s.chain.folder, 1);
        for (int i = 0; i < 6; i++) {
            struct stat status;
            assert_int_equal(stat(path, &status), 0);
            before = i <= 3 ? (size_t)status.st_size : before;
            send_push(&s, 0, &random, false);
            (void)answer(&s);
        }
        close_shard(&s);
        assert_int_equal(psc_file_read(path, (size_t)1 << 20, &bytes, &n, NULL), PSC_OK);
        assert_int_equal(replay_bytes(&s, path, bytes, before, &replayed, &cut, &error), PSC_OK);
        assert_int_equal(replayed.cut_off, 0);
        memset(bytes + before + 8, 0, 24);
        const psc_status_t st = replay_bytes(&s, path, bytes, n, &replayed, &hole, &error);
        if (other == 0) {
            assert_int_equal(st, PSC_CORRUPT);
            assert_non_null(strstr(error.message, path));
            psc_free(cut.bytes);
        } else {
            assert_int_equal(st, PSC_OK);
            same(&cut, &hole, true);
            assert_int_equal(replayed.pushes, 3);
            assert_int_equal(replayed.end, before);
            assert_int_equal(replayed.cut_off, n - before);
            assert_true(replayed.beyond >= 2 && replayed.other_boot);
            assert_int_equal(replayed.level, PS_LOG_LEVEL_WRITTEN);
        }
        psc_free(bytes);
        psc_free(path);
        test_scratch_destroy(s.folder);
    }
}

static void a_table_that_a_checkpoint_brought_is_met(void **state)
{
    (void)state;
    setting_t s = {.folder = test_scratch_create()};
    ps_log_replayed_t replayed;
    psc_error_t error = PSC_ERROR_INIT;
    ps_table_t like, *table;
    open_shard(&s, 0);
    start_log(&s);
    hello(&s, 0, 0);
    open_table(&s, 0, 0);
    close_shard(&s);
    for (int same = 1; same >= 0; same--) {
        psp_open_table_t options = tables[0];
        options.dim += same == 0;
        open_shard(&s, 0);
        assert_int_equal(ps_table_define(&options, &like, &error), PSC_OK);
        assert_int_equal(ps_serve_make_table(s.f.shard, 1, &like, &table, &error), PSC_OK);
        assert_int_equal(ps_log_replay(&s.chain, s.f.shard, &replayed, &error),
                         same != 0 ? PSC_OK : PSC_MISMATCH);
        close_shard(&s);
    }
    test_scratch_destroy(s.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guests_and_their_pushes),
        cmocka_unit_test(workers_in_step),
        cmocka_unit_test(ends_and_misfits),
        cmocka_unit_test(what_a_power_cut_leaves),
        cmocka_unit_test(a_table_that_a_checkpoint_brought_is_met),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
