/*
 * Watches of clients by address, opened, read and ended by threads at any moment while other
 * threads push. One of them reads all the while, and knows every row at the end; the others come
 * and go. A row that is told is one that somebody pushed, whole, and never older than it was told
 * before. This is also what runs under ThreadSanitizer (scripts/test).
 */
#include "embps.h"

#include "common/clock.h"
#include "tests/support/cmocka.h"
#include "tests/support/door_servers.h"
#include "tests/support/test_seed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { DIM = 4, IDS = 400, BATCH = 16, PUSHERS = 2, VISITORS = 3, VISITS = 4 };

/* What all threads see. */
typedef struct scene {
    const char *addresses[2];
    atomic_bool over;        /* pushers end */
    atomic_bool failed;      /* somebody */
    atomic_uint pushed[IDS]; /* how often each row was, begun ones too; a row has one pusher */
    atomic_uint n_ready, n_pushes; /* steady watches that are open; pushes that were answered */
} scene_t;

typedef struct actor {
    scene_t *scene;
    size_t number;
    test_random_t random;
    size_t n_told;
    embps_error_t what;
    char fault[256]; /* the first one */
    pthread_t thread;
} actor_t;

/* cmocka's asserts are for the test's own thread. */
static bool fine(actor_t *actor, bool holds, const char *words)
{
    if (!holds && actor->fault[0] == '\0') {
        (void)snprintf(actor->fault, sizeof actor->fault, "%s (%.200s)", words,
                       actor->what.message);
        atomic_store(&actor->scene->failed, true);
    }
    return holds;
}

static bool begin(actor_t *actor, embps_client_t **client_out, embps_table_t **table_out)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = DIM;
    return fine(actor,
                embps_connect(actor->scene->addresses[actor->number % 2], NULL, client_out,
                              &actor->what) == 0,
                "connect") &&
           fine(actor,
                embps_table_open(*client_out, "watched", &options, table_out, &actor->what) == 0,
                "open");
}

static void *push_until_the_end(void *context)
{
    actor_t *actor = context;
    scene_t *scene = actor->scene;
    embps_client_t *client = NULL;
    embps_table_t *table;
    uint64_t ids[BATCH];
    float ones[BATCH][DIM];
    bool goes_on = begin(actor, &client, &table);
    for (size_t i = 0; i < BATCH; i++) {
        for (size_t c = 0; c < DIM; c++)
            ones[i][c] = 1;
    }
    while (goes_on && !atomic_load(&scene->over)) {
        const uint64_t first = test_below(&actor->random, IDS);
        for (size_t i = 0; i < BATCH; i++) { /* of one's own: those with the number's remainder */
            ids[i] = (first + i) % (IDS / PUSHERS) * PUSHERS + actor->number;
            atomic_fetch_add(&scene->pushed[ids[i]], 1);
        }
        goes_on =
            fine(actor, embps_push(table, EMBPS_DELTA, ids, BATCH, ones[0], 0, &actor->what) == 0,
                 "push");
        atomic_fetch_add(&scene->n_pushes, 1);
    }
    if (client != NULL)
        (void)fine(actor, embps_close(client, &actor->what) == 0, "close");
    return NULL;
}

/* A row that is told, for the last time as seen[id]. */
static bool look_at(actor_t *actor, const embps_block_t *block, size_t i, uint32_t *seen)
{
    const uint64_t id = block->ids[i];
    if (!fine(actor, id < IDS, "a row that nobody pushed"))
        return false;
    if (block->rows == NULL)
        return true;
    const float *row = block->rows + i * DIM;
    const uint32_t now = (uint32_t)row[0];
    for (size_t c = 1; c < DIM; c++) {
        if (!fine(actor, row[c] == row[0], "half a push"))
            return false;
    }
    const bool right = fine(actor, row[0] == (float)now, "part of a push") &&
                       fine(actor, now >= seen[id], "a row as it was before") &&
                       fine(actor, now >= 1 && now <= atomic_load(&actor->scene->pushed[id]),
                            "a push that was never made");
    seen[id] = now;
    return right;
}

static bool look(actor_t *actor, embps_watch_t *watch, bool *lost, uint32_t *seen)
{
    embps_block_t block;
    bool now_lost = false;
    if (!fine(actor, embps_watch_next(watch, 1000, &block, &now_lost, &actor->what) == 0, "next"))
        return false;
    *lost = *lost || now_lost;
    for (size_t i = 0; i < block.n; i++) {
        if (!look_at(actor, &block, i, seen))
            return false;
    }
    actor->n_told += block.n;
    return true;
}

static bool knows_all(const scene_t *scene, const uint32_t *seen)
{
    for (size_t i = 0; i < IDS; i++) {
        if (seen[i] != atomic_load(&scene->pushed[i]))
            return false;
    }
    return true;
}

/* From before the first push until it has been told of the last one, or that it has lost some. */
static void *watch_all_the_while(void *context)
{
    actor_t *actor = context;
    scene_t *scene = actor->scene;
    embps_client_t *client = NULL;
    embps_table_t *table;
    embps_watch_t *watch = NULL;
    uint32_t seen[IDS] = {0};
    bool lost = false;
    bool goes_on =
        begin(actor, &client, &table) &&
        fine(actor, embps_watch_start(table, EMBPS_WATCH_ROWS, &watch, &actor->what) == 0, "watch");
    atomic_fetch_add(&scene->n_ready, 1);
    while (goes_on && !atomic_load(&scene->failed) &&
           !(atomic_load(&scene->over) && (lost || knows_all(scene, seen))))
        goes_on = look(actor, watch, &lost, seen);
    embps_watch_end(watch);
    if (client != NULL)
        (void)fine(actor, embps_close(client, &actor->what) == 0, "close");
    return NULL;
}

static bool visit(actor_t *actor, embps_table_t *table)
{
    uint32_t seen[IDS] = {0};
    const uint32_t flags = test_below(&actor->random, 3) == 0 ? 0 : EMBPS_WATCH_ROWS;
    uint64_t n_looks = test_below(&actor->random, 6);
    embps_watch_t *watch = NULL;
    bool lost = false;
    bool goes_on = fine(actor, embps_watch_start(table, flags, &watch, &actor->what) == 0, "watch");
    for (; goes_on && n_looks > 0; n_looks--)
        goes_on = look(actor, watch, &lost, seen);
    embps_watch_end(watch);
    return goes_on;
}

/* Watches that end anywhere, of clients that go at once. */
static void *come_and_go(void *context)
{
    actor_t *actor = context;
    bool goes_on = true;
    for (size_t i = 0; goes_on && i < VISITS; i++) {
        embps_client_t *client = NULL;
        embps_table_t *table;
        goes_on = begin(actor, &client, &table) && visit(actor, table) && visit(actor, table);
        if (client != NULL && test_below(&actor->random, 2) == 0)
            embps_abandon(client, 0);
        else if (client != NULL)
            goes_on = fine(actor, embps_close(client, &actor->what) == 0, "close") && goes_on;
    }
    return NULL;
}

static void start(actor_t *actor, scene_t *scene, size_t number, test_random_t *random,
                  void *(*act)(void *))
{
    *actor = (actor_t){.scene = scene, .number = number, .random = {.key = test_next(random)}};
    assert_int_equal(pthread_create(&actor->thread, NULL, act, actor), 0);
}

static void join(actor_t *actor)
{
    assert_int_equal(pthread_join(actor->thread, NULL), 0);
}

static void watches_come_and_go_while_others_push(void **state)
{
    (void)state;
    static scene_t scene;
    static actor_t pushers[PUSHERS], visitors[VISITORS], steady;
    test_random_t random = test_random_start();
    door_servers_options_t options = DOOR_SERVERS_DEFAULT;
    options.n = 2;
    door_servers_t *servers = door_servers_start(&options);
    for (uint32_t s = 0; s < 2; s++)
        scene.addresses[s] = door_servers_address(servers, s);
    start(&steady, &scene, 0, &random, watch_all_the_while);
    while (atomic_load(&scene.n_ready) == 0)
        psc_clock_sleep_us(100);
    for (size_t i = 0; i < PUSHERS; i++)
        start(&pushers[i], &scene, i, &random, push_until_the_end);
    for (size_t i = 0; i < VISITORS; i++)
        start(&visitors[i], &scene, i, &random, come_and_go);
    for (size_t i = 0; i < VISITORS; i++)
        join(&visitors[i]);
    while (atomic_load(&scene.n_pushes) < 100 && !atomic_load(&scene.failed))
        psc_clock_sleep_us(100);
    atomic_store(&scene.over, true);
    for (size_t i = 0; i < PUSHERS; i++)
        join(&pushers[i]);
    join(&steady);
    door_servers_stop(servers);
    for (size_t i = 0; i < PUSHERS; i++)
        assert_string_equal(pushers[i].fault, "");
    for (size_t i = 0; i < VISITORS; i++)
        assert_string_equal(visitors[i].fault, "");
    assert_string_equal(steady.fault, "");
    assert_true(steady.n_told > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watches_come_and_go_while_others_push),
    };
    return cmocka_run_group_tests_name("watch_api", tests, NULL, NULL);
}
