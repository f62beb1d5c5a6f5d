/*
 * Clients that stay while the servers end and go on from a checkpoint, as many as they were or
 * another number: what was pushed counts once and is seen, whatever was under way; other calls are
 * made again; and who cannot go on so, since something acknowledged was lost, is told.
 */
#include "embps.h"

#include "common/clock.h"
#include "common/slots.h"
#include "tests/support/client_calls.h"
#include "tests/support/client_counter.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/held_port.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { IDS = 300, BATCH = 24, UNDER_WAY = 5, MOST_SERVERS = 3 };

/* ---- servers on ports that stay theirs ---- */

typedef struct home {
    char *folder;
    char checkpoints[256], data[256];
    uint16_t ports[MOST_SERVERS];
    int holders[MOST_SERVERS];
    door_servers_options_t options;
    door_servers_t *servers;
} home_t;

static void start(home_t *home, uint32_t n)
{
    home->options.n = n;
    home->servers = door_servers_start(&home->options);
}

static void open_home(home_t *home, uint32_t n)
{
    *home = (home_t){.folder = test_scratch_create(), .options = DOOR_SERVERS_DEFAULT};
    home->options.checkpoints =
        test_path(home->checkpoints, sizeof home->checkpoints, home->folder, "saved");
    for (size_t i = 0; i < MOST_SERVERS; i++)
        home->holders[i] = held_port(&home->ports[i]);
    home->options.ports = home->ports;
    start(home, n);
}

/* Ends them as SIGTERM would, and starts others. */
static void start_again(home_t *home, uint32_t n)
{
    door_servers_stop(home->servers);
    start(home, n);
}

static void close_home(home_t *home)
{
    door_servers_stop(home->servers);
    for (size_t i = 0; i < MOST_SERVERS; i++)
        (void)close(home->holders[i]);
    test_scratch_destroy(home->folder);
}

static const char *address_of(uint16_t port, char *out, size_t size)
{
    (void)snprintf(out, size, "127.0.0.1:%u", port);
    return out;
}

static embps_client_t *connect_to_port(uint16_t port)
{
    char address[64];
    return connect_to(address_of(port, address, sizeof address));
}

static int try_table(embps_client_t *client, const char *name, embps_table_t **table_out,
                     embps_error_t *what)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = 1;
    return embps_table_open(client, name, &options, table_out, what);
}

static embps_table_t *open_table(embps_client_t *client, const char *name)
{
    embps_table_t *table = NULL;
    ok(try_table(client, name, &table, &error));
    return table;
}

static uint64_t found_anew(embps_client_t *client)
{
    return counter_of(client, "client.servers_found_anew");
}

/* ---- clients that push ---- */

/* Adds 1 to rows of a table of its own, again and again, and knows what they should be. */
typedef struct pusher {
    const char *name; /* of its table */
    uint16_t port;
    unsigned under_way; /* calls at a time; 1: it looks at the rows after each */
    size_t cache_bytes;
    uint64_t key;
    pthread_t thread;
    atomic_bool stop, ended;
    atomic_uint pushed; /* calls that were acknowledged */
    float wanted[IDS];
    int code; /* of the call that failed, or 0 */
    uint64_t renewed;
    embps_error_t error;
} pusher_t;

typedef struct call {
    uint64_t ids[BATCH];
    embps_request_t *request;
} call_t;

static void draw(pusher_t *pusher, test_random_t *random, call_t *call)
{
    for (size_t i = 0; i < BATCH; i++) {
        call->ids[i] = test_below(random, IDS);
        pusher->wanted[call->ids[i]]++;
    }
}

static int push_all(pusher_t *pusher, embps_table_t *table)
{
    static const float ones[BATCH] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    test_random_t random = {.key = pusher->key};
    call_t calls[UNDER_WAY] = {{.request = NULL}};
    float rows[BATCH];
    int code = 0;
    for (unsigned i = 0; code == 0; i++) {
        call_t *call = &calls[i % pusher->under_way];
        if (call->request != NULL) {
            code = embps_wait(call->request, &pusher->error);
            call->request = NULL;
            atomic_fetch_add(&pusher->pushed, code == 0);
        }
        if (code == 0 && pusher->under_way == 1 && i != 0) {
            code = embps_pull(table, call->ids, BATCH, rows, &pusher->error);
            for (size_t j = 0; code == 0 && j < BATCH; j++) {
                if (rows[j] != pusher->wanted[call->ids[j]])
                    code = -2; /* and no error */
            }
        }
        if (code != 0 || atomic_load(&pusher->stop))
            break;
        draw(pusher, &random, call);
        code = embps_push_start(table, EMBPS_DELTA, call->ids, BATCH, ones, 0, &call->request,
                                &pusher->error);
    }
    for (unsigned i = 0; i < pusher->under_way; i++) {
        if (calls[i].request != NULL && embps_wait(calls[i].request, &pusher->error) != 0 &&
            code == 0)
            code = -1;
    }
    return code;
}

static void *push_on(void *context)
{
    pusher_t *pusher = context;
    embps_error_t *what = &pusher->error;
    embps_client_t *client = NULL;
    embps_table_t *table = NULL;
    char address[64];
    counter_t renewed = {.name = "client.servers_found_anew"};
    pusher->code =
        embps_connect(address_of(pusher->port, address, sizeof address), NULL, &client, what);
    if (pusher->code == 0 && pusher->cache_bytes != 0)
        pusher->code = embps_set_cache(client, pusher->cache_bytes, what);
    if (pusher->code == 0)
        pusher->code = try_table(client, pusher->name, &table, what);
    if (pusher->code == 0)
        pusher->code = push_all(pusher, table);
    if (pusher->code == 0)
        pusher->code = embps_stats(client, counter_see, &renewed, what);
    pusher->renewed = renewed.value;
    if (embps_close(client, what) != 0 && pusher->code == 0)
        pusher->code = -1;
    atomic_store(&pusher->ended, true);
    return NULL;
}

static void start_pushing(pusher_t *pusher, uint16_t port)
{
    pusher->port = port;
    pusher->key = test_random_start().key;
    assert_int_equal(pthread_create(&pusher->thread, NULL, push_on, pusher), 0);
}

/* That many calls more. */
static void wait_for(const pusher_t *pusher, unsigned calls)
{
    const unsigned until = atomic_load(&pusher->pushed) + calls;
    while (atomic_load(&pusher->pushed) < until && !atomic_load(&pusher->ended))
        psc_clock_sleep_us(1000);
}

static void pull_all(embps_table_t *table, float rows[IDS])
{
    static uint64_t ids[IDS];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = i;
    ok(embps_pull(table, ids, IDS, rows, &error));
}

static void end_pushing(pusher_t *pusher, uint64_t renewed)
{
    float rows[IDS];
    atomic_store(&pusher->stop, true);
    assert_int_equal(pthread_join(pusher->thread, NULL), 0);
    if (pusher->code != 0)
        fail_msg("%s: %d, %s", pusher->name, pusher->code, pusher->error.message);
    /* With a cache it may have said nothing to some of the servers that came and went. */
    assert_true(pusher->renewed == renewed ||
                (pusher->cache_bytes != 0 && pusher->renewed < renewed));
    embps_client_t *client = connect_to_port(pusher->port);
    pull_all(open_table(client, pusher->name), rows);
    for (size_t i = 0; i < IDS; i++) {
        if (rows[i] != pusher->wanted[i])
            fail_msg("%s: id %zu is %g and should be %g", pusher->name, i, (double)rows[i],
                     (double)pusher->wanted[i]);
    }
    ok(embps_close(client, &error));
}

static void pushes_count_once_when_as_many_servers_are_started_again(void **state)
{
    (void)state;
    static pusher_t one = {.name = "one", .under_way = 1};
    static pusher_t many = {.name = "many", .under_way = UNDER_WAY};
    home_t home;
    open_home(&home, 2);
    home.options.folder = test_path(home.data, sizeof home.data, home.folder, "data");
    start_again(&home, 2);
    start_pushing(&one, home.ports[0]);
    start_pushing(&many, home.ports[1]);
    for (unsigned i = 0; i < 3; i++) {
        wait_for(&one, 10);
        wait_for(&many, 10);
        start_again(&home, 2);
    }
    wait_for(&one, 10);
    wait_for(&many, 10);
    end_pushing(&one, 0); /* the same sessions */
    end_pushing(&many, 0);
    close_home(&home);
}

static void pushes_count_once_when_another_number_of_servers_goes_on(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {3, 1, 2};
    static pusher_t one = {.name = "one", .under_way = 1};
    static pusher_t many = {.name = "many", .under_way = UNDER_WAY};
    static pusher_t cached = {.name = "cached", .under_way = 1, .cache_bytes = 1 << 20};
    home_t home;
    open_home(&home, 2);
    start_pushing(&one, home.ports[0]);
    start_pushing(&many, home.ports[1]); /* where nobody listens when there is one server */
    start_pushing(&cached, home.ports[0]);
    for (unsigned i = 0; i < 3; i++) {
        wait_for(&one, 10);
        wait_for(&many, 10);
        wait_for(&cached, 10);
        start_again(&home, numbers[i]);
    }
    wait_for(&one, 10);
    wait_for(&many, 10);
    wait_for(&cached, 10);
    end_pushing(&one, 3);
    end_pushing(&many, 3);
    end_pushing(&cached, 3);
    close_home(&home);
}

/* ---- connecting meanwhile ---- */

typedef struct caller {
    char address[64];
    atomic_bool waits; /* it was told that servers do not belong together */
    embps_client_t *client;
    int code;
    embps_error_t error;
} caller_t;

static void note_waiting(void *context, const char *line)
{
    caller_t *caller = context;
    if (strstr(line, "answers as server") != NULL)
        atomic_store(&caller->waits, true);
}

static void *call(void *context)
{
    caller_t *caller = context;
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    options.wait_ms = 60000;
    options.waiting = note_waiting;
    options.waiting_context = caller;
    caller->code = embps_connect(caller->address, &options, &caller->client, &caller->error);
    return NULL;
}

/* As when one of them is of those that are about to end. */
static void who_finds_servers_of_two_kinds_waits_until_they_are_of_one(void **state)
{
    (void)state;
    static caller_t caller;
    pthread_t thread;
    home_t home;
    open_home(&home, 1);
    door_servers_stop(home.servers);
    door_servers_options_t of_other = DOOR_SERVERS_DEFAULT;
    door_servers_t *other = door_servers_start(&of_other);
    home.options.instead_of_last = door_servers_address(other, 0);
    start(&home, 2);
    (void)address_of(home.ports[0], caller.address, sizeof caller.address);
    assert_int_equal(pthread_create(&thread, NULL, call, &caller), 0);
    while (!atomic_load(&caller.waits))
        psc_clock_sleep_us(1000);
    home.options.instead_of_last = NULL;
    start_again(&home, 2);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (caller.code != 0)
        fail_msg("%s", caller.error.message);
    assert_int_equal(embps_server_count(caller.client), 2);
    (void)open_table(caller.client, "t");
    ok(embps_close(caller.client, &error));
    door_servers_stop(other);
    close_home(&home);
}

/* ---- other calls ---- */

static void count_table(void *context, const char *name, const embps_table_options_t *options,
                        uint64_t rows)
{
    (void)name;
    (void)options;
    *(uint64_t *)context += rows;
}

/* To its end, or to an error, which is returned. */
static int walk_on(embps_export_t *export, uint64_t *seen)
{
    embps_block_t block = {.n = 1};
    int code = 0;
    while (code == 0 && block.n != 0) {
        code = embps_export_next(export, &block, &error);
        *seen += code == 0 ? block.n : 0;
    }
    return code;
}

static void all_calls_go_on_at_another_number_of_servers(void **state)
{
    (void)state;
    static const uint32_t numbers[] = {1, 3, 2, 3, 1, 2, 1, 3, 2};
    static float rows[IDS], ones[IDS];
    static uint64_t ids[IDS];
    char name[EMBPS_CHECKPOINT_NAME_BYTES], bytes[2];
    home_t home;
    open_home(&home, 2);
    embps_client_t *client = connect_to_port(home.ports[0]);
    embps_table_t *table = open_table(client, "t"), *same = NULL;
    embps_export_t *export = NULL;
    embps_watch_t *watch = NULL;
    for (size_t i = 0; i < IDS; i++) {
        ids[i] = i;
        ones[i] = 1;
    }
    ok(embps_push(table, EMBPS_DELTA, ids, IDS, ones, 0, &error));
    ok(embps_checkpoint(client, "a", 1, NULL, &error));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint64_t n = 0, seen = 0;
        size_t n_state = 0;
        start_again(&home, numbers[i]);
        switch (i) {
        case 0:
            pull_all(table, rows);
            assert_memory_equal(rows, ones, sizeof rows);
            break;
        case 1:
            ok(embps_tables(client, count_table, &n, &error));
            assert_int_equal(n, IDS);
            break;
        case 2:
            ok(embps_table_find(client, "t", &same, &error));
            assert_ptr_equal(same, table);
            break;
        case 3:
            ok(embps_checkpoint(client, "bc", 2, name, &error));
            break;
        case 4:
            ok(embps_checkpoint_state(client, name, bytes, sizeof bytes, &n_state, NULL, &error));
            assert_int_equal(n_state, 2);
            break;
        case 5:
            ok(embps_clock(client, 0, NULL, &error));
            break;
        case 6:
            ok(embps_export_start(table, 0, &export, &error));
            ok(walk_on(export, &seen));
            embps_export_end(export);
            assert_int_equal(seen, IDS);
            break;
        case 7: {
            embps_block_t imported = EMBPS_BLOCK_DEFAULT;
            imported.n = IDS;
            imported.dim = 1;
            imported.ids = ids;
            imported.rows = ones;
            ok(embps_import(table, &imported, &n, &error));
            assert_int_equal(n, 0);
            break;
        }
        default:
            ok(embps_watch_start(table, 0, &watch, &error));
            embps_watch_end(watch);
            break;
        }
        assert_int_equal(found_anew(client), i + 1);
        assert_int_equal(embps_server_count(client), numbers[i]);
    }
    ok(embps_close(client, &error));
    close_home(&home);
}

/* What goes through the servers block by block cannot go on in the middle. */
static void a_walk_over_servers_that_are_started_again_has_all_rows_or_ends(void **state)
{
    (void)state;
    home_t home;
    embps_export_t *export = NULL, *begun = NULL;
    embps_watch_t *watch = NULL;
    embps_block_t block;
    bool lost;
    uint64_t seen = 0, of_begun = 0;
    static float ones[IDS];
    static uint64_t ids[IDS];
    for (size_t i = 0; i < IDS; i++) {
        ids[i] = i;
        ones[i] = 1;
    }
    open_home(&home, 3);
    embps_client_t *client = connect_to_port(home.ports[0]);
    embps_table_t *table = open_table(client, "t");
    ok(embps_push(table, EMBPS_DELTA, ids, IDS, ones, 0, &error));
    ok(embps_watch_start(table, 0, &watch, &error));
    ok(embps_export_start(table, 0, &begun, &error));
    ok(embps_export_next(begun, &block, &error));
    of_begun = block.n;
    assert_true(of_begun != 0 && of_begun < IDS);
    ok(embps_export_start(table, 0, &export, &error));
    start_again(&home, 2);
    /* Either a server said that it ended, or the next one did not know the watch. */
    const int ended = embps_watch_next(watch, 60000, &block, &lost, &error);
    assert_true(ended == EMBPS_INTERRUPTED || ended == EMBPS_PEER_GONE);
    if (walk_on(begun, &of_begun) == 0)
        assert_int_equal(of_begun, IDS);
    else
        assert_int_equal(error.code, EMBPS_PEER_GONE);
    if (walk_on(export, &seen) == 0)
        assert_int_equal(seen, IDS);
    else
        assert_int_equal(error.code, EMBPS_PEER_GONE);
    embps_export_end(begun);
    embps_export_end(export);
    embps_watch_end(watch);
    ok(embps_watch_start(table, 0, &watch, &error));
    ok(embps_push(table, EMBPS_DELTA, ids, 1, ones, 0, &error));
    do {
        ok(embps_watch_next(watch, 60000, &block, &lost, &error));
    } while (block.n == 0);
    assert_int_equal(block.ids[0], ids[0]);
    embps_watch_end(watch);
    ok(embps_close(client, &error));
    close_home(&home);
}

/* ---- what is lost is told ---- */

/* Servers go on from before what this client has pushed and knows to be pushed. */
static void check_told(uint32_t before, uint32_t after, bool knows_session, const char *words)
{
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    const uint64_t id = 3;
    const float one = 1;
    float row = -1;
    home_t home;
    open_home(&home, before);
    embps_client_t *reader = NULL, *early = connect_to_port(home.ports[0]), *late = early;
    if (knows_session)
        ok(embps_push(open_table(early, "t"), EMBPS_DELTA, &id, 1, &one, 0, &error));
    else
        (void)open_table(early, "t");
    ok(embps_checkpoint(early, NULL, 0, name, &error));
    reader = connect_to_port(home.ports[0]);
    if (!knows_session)
        late = connect_to_port(home.ports[0]);
    embps_table_t *table = open_table(late, "t"), *seen = open_table(reader, "t");
    ok(embps_push(table, EMBPS_DELTA, &id, 1, &one, 0, &error));
    ok(embps_pull(seen, &id, 1, &row, &error));
    assert_true(row == (knows_session ? 2 : 1));
    home.options.resume = name; /* as after a crash: not the last one */
    start_again(&home, after);
    for (size_t again = 0; again < 2; again++) { /* the client stays so */
        assert_int_equal(embps_push(table, EMBPS_DELTA, &id, 1, &one, 0, &error), EMBPS_PEER_GONE);
        if (strstr(error.message, words) == NULL)
            fail_msg("%s", error.message);
    }
    /* Who has pushed nothing has lost nothing, and goes on. */
    ok(embps_pull(seen, &id, 1, &row, &error));
    assert_true(row == (knows_session ? 1 : 0));
    assert_int_equal(found_anew(reader), 1);
    ok(embps_close(reader, &error));
    (void)embps_close(late, &error);
    if (late != early)
        ok(embps_close(early, &error));
    close_home(&home);
}

/* What was pushed counts; what was pulled behind the cut is nothing that can be lost. */
static void a_client_goes_on_from_before_answers_that_were_pulls(void **state)
{
    (void)state;
    for (uint32_t after = 1; after <= 2; after++) {
        char name[EMBPS_CHECKPOINT_NAME_BYTES];
        const uint64_t id = 3;
        const float one = 1;
        float row = -1;
        home_t home;
        open_home(&home, 1);
        embps_client_t *client = connect_to_port(home.ports[0]);
        embps_table_t *table = open_table(client, "t");
        ok(embps_push(table, EMBPS_DELTA, &id, 1, &one, 0, &error));
        ok(embps_checkpoint(client, NULL, 0, name, &error));
        for (size_t i = 0; i < 3; i++)
            ok(embps_pull(table, &id, 1, &row, &error));
        home.options.resume = name;
        start_again(&home, after);
        ok(embps_push(table, EMBPS_DELTA, &id, 1, &one, 0, &error));
        ok(embps_pull(table, &id, 1, &row, &error));
        assert_true(row == 2);
        assert_int_equal(found_anew(client), 1);
        ok(embps_close(client, &error));
        close_home(&home);
    }
}

static void a_client_whose_pushes_are_lost_with_a_checkpoint_is_told(void **state)
{
    (void)state;
    check_told(1, 1, true, "connect again, and go on from");
    check_told(2, 1, true, "a checkpoint that has those up to");
}

/* The first server has nothing that is lost, and is the only one that makes a checkpoint. */
static void a_checkpoint_without_what_another_server_lost_is_none(void **state)
{
    (void)state;
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    psc_slot_map_t map;
    uint64_t id = 0;
    const float one = 1;
    home_t home;
    open_home(&home, 2);
    embps_client_t *client = connect_to_port(home.ports[0]);
    embps_client_t *other = connect_to_port(home.ports[0]);
    embps_table_t *table = open_table(client, "t");
    assert_int_equal(psc_slot_map_init(&map, 2, NULL), PSC_OK);
    while (psc_slot_owner(&map, psc_row_hash(1, id)) != 1)
        id++;
    ok(embps_checkpoint(other, NULL, 0, name, &error));
    ok(embps_push(table, EMBPS_DELTA, &id, 1, &one, 0, &error));
    home.options.resume = name;
    start_again(&home, 2);
    assert_int_equal(embps_checkpoint(client, NULL, 0, name, &error), EMBPS_PEER_GONE);
    assert_non_null(strstr(error.message, "go on from"));
    (void)embps_close(client, &error);
    ok(embps_checkpoint(other, NULL, 0, name, &error)); /* which has lost nothing */
    ok(embps_close(other, &error));
    close_home(&home);
}

/* Who has nothing more to ask is told by the end, and who has lost nothing leaves well. */
static void who_leaves_is_told_what_is_lost(void **state)
{
    (void)state;
    for (uint32_t after = 1; after <= 2; after++) {
        char name[EMBPS_CHECKPOINT_NAME_BYTES];
        const uint64_t id = 3;
        const float one = 1;
        home_t home;
        open_home(&home, 1);
        embps_client_t *early = connect_to_port(home.ports[0]);
        embps_client_t *late = connect_to_port(home.ports[0]);
        embps_table_t *table = open_table(late, "t");
        ok(embps_push(open_table(early, "t"), EMBPS_DELTA, &id, 1, &one, 0, &error));
        ok(embps_push(table, EMBPS_DELTA, &id, 1, &one, 0, &error));
        ok(embps_checkpoint(early, NULL, 0, name, &error));
        ok(embps_push(table, EMBPS_DELTA, &id, 1, &one, 0, &error));
        home.options.resume = name;
        start_again(&home, after);
        assert_int_equal(embps_close(late, &error), EMBPS_PEER_GONE);
        assert_non_null(strstr(error.message, "go on from"));
        ok(embps_close(early, &error));
        close_home(&home);
    }
}

/* The number of a session that was given behind the cut is not given again. */
static void a_session_that_a_checkpoint_does_not_know_is_never_taken_for_another(void **state)
{
    (void)state;
    check_told(1, 1, false, "is not known any more");
    check_told(1, 2, false, "is not known any more");
}

static void servers_of_another_run_are_not_gone_on_with(void **state)
{
    (void)state;
    home_t home;
    float rows[IDS];
    open_home(&home, 1);
    embps_client_t *client = connect_to_port(home.ports[0]);
    embps_table_t *table = open_table(client, "t");
    home.options.resume = "none";
    home.options.cluster++;
    start_again(&home, 2);
    const uint64_t id = 0;
    assert_int_not_equal(embps_pull(table, &id, 1, rows, &error), 0);
    assert_non_null(strstr(error.message, "run"));
    (void)embps_close(client, &error);
    close_home(&home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_count_once_when_as_many_servers_are_started_again),
        cmocka_unit_test(pushes_count_once_when_another_number_of_servers_goes_on),
        cmocka_unit_test(who_finds_servers_of_two_kinds_waits_until_they_are_of_one),
        cmocka_unit_test(all_calls_go_on_at_another_number_of_servers),
        cmocka_unit_test(a_walk_over_servers_that_are_started_again_has_all_rows_or_ends),
        cmocka_unit_test(a_client_goes_on_from_before_answers_that_were_pulls),
        cmocka_unit_test(a_client_whose_pushes_are_lost_with_a_checkpoint_is_told),
        cmocka_unit_test(a_checkpoint_without_what_another_server_lost_is_none),
        cmocka_unit_test(who_leaves_is_told_what_is_lost),
        cmocka_unit_test(a_session_that_a_checkpoint_does_not_know_is_never_taken_for_another),
        cmocka_unit_test(servers_of_another_run_are_not_gone_on_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
