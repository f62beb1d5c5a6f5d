/*
 * The server's loop over a scripted transport: what it takes, what it holds back, when it ends, and
 * what is left of it on disk. tests/unit/worker/test_client_local.c drives it with real clients.
 */
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "proto/message.h"
#include "ps/server.h"
#include "ps/store/store.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RUN UINT64_C(0xabcdef0123456789)
#define D 4

/* Hands out messages that a test's script makes from the replies so far. */
typedef struct script {
    psp_transport_t base; /* first */
    psp_pool_t *pool;
    psp_scratch_t *scratch;
    uint64_t session;
    uint64_t next_request;
    size_t step;
    size_t replies, refused;
    size_t backlog;         /* told for worker 0 */
    size_t polls;           /* while a backlog is told */
    bool shut;              /* sends fail: the peer is gone */
    bool fail_poll;         /* the transport breaks */
    size_t fail_step;       /* it breaks once, when this step is due; 0: never */
    unsigned stops;         /* how often guests were sent away */
    char why[512];          /* what the last refusal said */
    float last[D];          /* first row of the last pull */
    pthread_mutex_t lock;   /* of woken */
    pthread_cond_t changed; /* with lock */
    bool woken;             /* guarded by lock */
} script_t;

static script_t *script_of(psp_transport_t *t)
{
    return (script_t *)t;
}

static psc_status_t script_send(psp_transport_t *t, uint32_t peer, psp_buffer_t *buffer,
                                psc_error_t *error)
{
    script_t *s = script_of(t);
    (void)peer;
    if (s->shut) {
        psp_buffer_put(buffer);
        return psc_error_set(error, PSC_PEER_GONE, "gone");
    }
    psp_message_t reply;
    assert_int_equal(
        psp_message_unpack(s->scratch, buffer->kind, buffer->data, buffer->size, &reply, NULL),
        PSC_OK);
    s->replies++;
    s->refused += reply.reply.error.code != PSC_OK;
    if (reply.reply.error.code != PSC_OK)
        (void)snprintf(s->why, sizeof s->why, "%s", reply.reply.error.message);
    if (reply.kind == PSP_HELLO_REPLY)
        s->session = reply.u.hello_reply.session;
    if (reply.kind == PSP_PULL_REPLY && reply.u.pull_reply.n != 0)
        memcpy(s->last, reply.u.pull_reply.rows, sizeof s->last);
    psp_buffer_put(buffer);
    return PSC_OK;
}

static psp_buffer_t *pack_next(script_t *s)
{
    const psp_request_header_t header = {.protocol = PSP_PROTOCOL_VERSION,
                                         .cluster = s->step == 0 ? 0 : RUN,
                                         .map_epoch = s->step == 0 ? 0 : 1,
                                         .session = s->session,
                                         .sequence = s->step,
                                         .request = ++s->next_request};
    psp_message_t message = {.request = header};
    psp_buffer_t *buffer = NULL;
    uint8_t *ids, *rows;
    const uint64_t id = 99;
    static const float ones[D] = {1, 1, 1, 1};
    psp_push_t push = {.table = 1, .table_epoch = 1, .kind = PSP_PUSH_DELTA, .dim = D, .n = 1};
    switch (s->step) {
    case 0:
        message.kind = PSP_HELLO;
        message.u.hello.n_workers = 1;
        break;
    case 1:
        message.kind = PSP_OPEN_TABLE;
        message.u.open_table = (psp_open_table_t){
            .name = "t", .dim = D, .init = "zeros", .optimizer = "sgd", .seed = 1};
        break;
    case 2:
    case 3:
        assert_int_equal(psp_push_begin(s->pool, &header, &push, &buffer, &ids, &rows, NULL),
                         PSC_OK);
        memcpy(ids, &id, sizeof id);
        memcpy(rows, ones, sizeof ones);
        return buffer;
    case 4:
        message.kind = PSP_PULL;
        message.u.pull = (psp_pull_t){.table = 1,
                                      .table_epoch = 1,
                                      .staleness = PSP_STALENESS_ASYNC,
                                      .n = 1,
                                      .ids = (const uint8_t *)&id};
        break;
    case 5:
        message.kind = PSP_GOODBYE;
        message.u.goodbye.status = 3;
        break;
    default:
        return NULL;
    }
    assert_int_equal(psp_message_pack(s->pool, &message, &buffer, NULL), PSC_OK);
    return buffer;
}

static psc_status_t script_poll(psp_transport_t *t, psp_buffer_t **buffer_out, psc_error_t *error)
{
    script_t *s = script_of(t);
    *buffer_out = NULL;
    if (s->fail_poll)
        return psc_error_set(error, PSC_PEER_GONE, "the network is gone");
    if (s->fail_step != 0 && s->fail_step == s->step) {
        s->fail_step = 0;
        return psc_error_set(error, PSC_IO, "the network has a hole");
    }
    if (s->backlog != 0 && ++s->polls > 20)
        s->backlog = 0;
    if (s->step != 0 && s->session == 0 && !s->shut)
        return PSC_OK; /* waits for the reply of hello */
    *buffer_out = pack_next(s);
    if (*buffer_out != NULL) {
        (*buffer_out)->peer = 0;
        s->step++;
    }
    return PSC_OK;
}

static void script_wait(psp_transport_t *t, uint64_t timeout_us)
{
    (void)t;
    (void)timeout_us; /* a test does not sleep */
}

static void script_wake(psp_transport_t *t)
{
    script_t *s = script_of(t);
    (void)pthread_mutex_lock(&s->lock);
    s->woken = true;
    (void)pthread_cond_signal(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

static size_t script_backlog(psp_transport_t *t, uint32_t peer)
{
    (void)peer;
    return script_of(t)->backlog;
}

static psc_status_t script_flush(psp_transport_t *t, uint64_t timeout_us, psc_error_t *error)
{
    (void)timeout_us;
    return script_of(t)->shut ? psc_error_set(error, PSC_TIMEOUT, "never") : PSC_OK;
}

static void script_stop(psp_transport_t *t)
{
    script_of(t)->stops++;
}

static void script_destroy(psp_transport_t *t)
{
    (void)t;
}

static const psp_transport_ops_t script_ops = {.name = "script",
                                               .send = script_send,
                                               .poll = script_poll,
                                               .wait = script_wait,
                                               .wake = script_wake,
                                               .backlog = script_backlog,
                                               .flush = script_flush,
                                               .stop = script_stop,
                                               .destroy = script_destroy};

typedef struct fixture {
    char *folder;
    char data[256];
    script_t script;
    ps_server_options_t options;
    ps_server_t *server;
} fixture_t;

static int set_up(void **state)
{
    static fixture_t f;
    f = (fixture_t){.folder = test_scratch_create()};
    (void)test_path(f.data, sizeof f.data, f.folder, "data");
    f.script = (script_t){.base = {.ops = &script_ops, .n_peers = 1, .n_ranks = 1}};
    (void)pthread_mutex_init(&f.script.lock, NULL);
    (void)pthread_cond_init(&f.script.changed, NULL);
    assert_int_equal(psp_pool_create((size_t)1 << 20, &f.script.pool, NULL), PSC_OK);
    assert_int_equal(psp_scratch_create((size_t)1 << 20, &f.script.scratch, NULL), PSC_OK);
    f.script.base.pool = f.script.pool;
    f.options = (ps_server_options_t){.data = f.data,
                                      .memory_bytes = PS_STORE_MIN_MEMORY,
                                      .cluster = RUN,
                                      .n_servers = 1,
                                      .n_workers = 1,
                                      .pool = f.script.pool};
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture_t *f = *state;
    psp_scratch_destroy(f->script.scratch);
    assert_int_equal(psp_pool_bytes_out(f->script.pool), 0);
    psp_pool_destroy(f->script.pool);
    test_scratch_destroy(f->folder);
    return 0;
}

static bool identity_says(const fixture_t *f, const char *state)
{
    char path[300], *text;
    size_t size;
    (void)test_path(path, sizeof path, f->data, "server-0/identity.json");
    assert_int_equal(psc_file_read(path, 4096, &text, &size, NULL), PSC_OK);
    bool says = strstr(text, state) != NULL;
    psc_free(text);
    return says;
}

static void open_server(fixture_t *f)
{
    psc_error_t error = PSC_ERROR_INIT;
    if (ps_server_open(&f->options, &f->server, &error) != PSC_OK)
        fail_msg("%s", error.message);
}

static void serves_until_the_last_worker_leaves_and_ends_clean(void **state)
{
    fixture_t *f = *state;
    open_server(f);
    assert_true(identity_says(f, "\"open\""));
    assert_int_equal(ps_server_run(f->server, &f->script.base, NULL), PSC_OK);
    assert_int_equal(f->script.replies, 6);
    assert_int_equal(f->script.refused, 0);
    assert_true(f->script.last[0] == 2.0f);
    assert_int_equal(ps_server_worst_status(f->server), 3);
    assert_int_equal(ps_server_close(f->server, false, false, NULL), PSC_OK);
    assert_true(identity_says(f, "\"clean\""));
}

static void a_failed_run_stays_marked_open(void **state)
{
    fixture_t *f = *state;
    psc_error_t error = PSC_ERROR_INIT;
    open_server(f);
    f->script.fail_poll = true;
    assert_int_equal(ps_server_run(f->server, &f->script.base, &error), PSC_PEER_GONE);
    assert_string_equal(error.message, "the network is gone");
    assert_int_equal(ps_server_close(f->server, true, false, NULL), PSC_OK);
    assert_true(identity_says(f, "\"open\""));
    /* And the next start says what is there. */
    assert_int_equal(ps_server_open(&f->options, &f->server, &error), PSC_UNCLEAN);
    assert_non_null(strstr(error.message, "not closed clean"));
}

static void whoever_speaks_to_a_server_that_fails_is_told_why(void **state)
{
    fixture_t *f = *state;
    psc_error_t error = PSC_ERROR_INIT;
    f->options.n_guests = 1;
    open_server(f);
    f->script.fail_step = 3; /* hello, a table and a push are answered */
    assert_int_equal(ps_server_run(f->server, &f->script.base, &error), PSC_IO);
    assert_string_equal(error.message, "the network has a hole");
    assert_int_equal(f->script.stops, 1);
    assert_int_equal(f->script.replies, 6);
    assert_int_equal(f->script.refused, 3);
    assert_string_equal(f->script.why, "the network has a hole");
    assert_int_equal(ps_server_close(f->server, true, false, NULL), PSC_OK);
}

static void a_peer_that_does_not_read_is_held_and_served_in_order_later(void **state)
{
    fixture_t *f = *state;
    open_server(f);
    f->script.backlog = (size_t)100 << 20;
    assert_int_equal(ps_server_run(f->server, &f->script.base, NULL), PSC_OK);
    assert_true(f->script.polls > 20);
    assert_int_equal(f->script.replies, 6);
    assert_true(f->script.last[0] == 2.0f);
    assert_int_equal(ps_server_close(f->server, false, false, NULL), PSC_OK);
}

static void a_discarded_server_leaves_nothing(void **state)
{
    fixture_t *f = *state;
    open_server(f);
    assert_int_equal(ps_server_close(f->server, true, true, NULL), PSC_OK);
    assert_int_equal(test_count_entries(f->folder), 0);
    assert_int_equal(ps_server_close(NULL, true, true, NULL), PSC_OK);
}

static void a_start_that_fails_leaves_nothing(void **state)
{
    fixture_t *f = *state;
    psc_error_t error = PSC_ERROR_INIT;
    f->options.memory_bytes = PS_STORE_MIN_MEMORY - 1;
    assert_int_equal(ps_server_open(&f->options, &f->server, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "at least"));
    assert_int_equal(test_count_entries(f->folder), 0);
    f->options.memory_bytes = PS_STORE_MIN_MEMORY;
    psc_status_t st = PSC_NO_MEMORY;
    for (unsigned long n = 1; st != PSC_OK; n++) {
        assert_true(n < 200);
        psc_alloc_fail_at(n);
        st = ps_server_open(&f->options, &f->server, &error);
        psc_alloc_fail_at(0);
        if (st == PSC_OK)
            assert_int_equal(ps_server_close(f->server, true, true, NULL), PSC_OK);
        assert_int_equal(test_count_entries(f->folder), 0);
    }
}

static void a_worker_that_is_gone_does_not_keep_the_server(void **state)
{
    fixture_t *f = *state;
    open_server(f);
    f->script.step = 5; /* a goodbye without a session is no goodbye: then the network fails */
    f->script.shut = true;
    psc_error_t error = PSC_ERROR_INIT;
    f->script.fail_poll = true;
    assert_int_equal(ps_server_run(f->server, &f->script.base, &error), PSC_PEER_GONE);
    assert_int_equal(ps_server_close(f->server, true, false, NULL), PSC_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(serves_until_the_last_worker_leaves_and_ends_clean),
        TEST(a_failed_run_stays_marked_open),
        TEST(whoever_speaks_to_a_server_that_fails_is_told_why),
        TEST(a_peer_that_does_not_read_is_held_and_served_in_order_later),
        TEST(a_discarded_server_leaves_nothing),
        TEST(a_start_that_fails_leaves_nothing),
        TEST(a_worker_that_is_gone_does_not_keep_the_server),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
