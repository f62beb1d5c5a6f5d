/* Rows read by other threads where they lie, while they change, leave memory and come back. */
#include "common/hash.h"
#include "ps/store/share.h"
#include "tests/support/cmocka.h"
#include "tests/support/store_fixture.h"
#include "tests/support/test_seed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TABLES 2
#define IDS 4096
#define BATCH 200
#define READERS 2
#define HOT 16 /* rows that are changed and read all the time */
#ifdef PSC_SHARED_TSAN
#define ROUNDS 150
#define READS 2000 /* that each reader has to make */
#else
#define ROUNDS 400
#define READS 200000
#endif

static const size_t floats_of[TABLES + 1] = {0, 300, 61};

/* A row's columns all hold its id, and how often it was changed, in the bits of a float. */
static uint32_t value_of(uint64_t id, uint32_t count)
{
    return count * IDS + (uint32_t)id;
}

/* Where rows were, as the owner tells it from time to time. */
typedef struct news {
    pthread_mutex_t lock;
    uint32_t number; /* guarded by lock, as all below */
    uint16_t table;
    uint32_t layout;
    size_t n;
    uint64_t ids[BATCH];
    ps_place_t places[BATCH];
} news_t;

typedef struct reader {
    pthread_t thread;
    news_t *news;
    const char *path;
    uint64_t key, seed;
    atomic_bool *over;
    atomic_size_t reads, wrong;
} reader_t;

static void hear(news_t *news, const psc_shared_map_t *map, uint32_t *last,
                 ps_place_t places[TABLES + 1][IDS])
{
    (void)pthread_mutex_lock(&news->lock);
    if (news->number != *last && news->layout == map->layout) {
        for (size_t i = 0; i < news->n; i++)
            if (psc_shared_holds(map, news->places[i], floats_of[news->table] * sizeof(float)))
                places[news->table][news->ids[i]] = news->places[i];
    }
    *last = news->number;
    (void)pthread_mutex_unlock(&news->lock);
}

/* Whether a row that was read is one: of one moment, and not older than what was read before. */
static bool is_whole(const uint32_t *row, uint16_t table, uint64_t id, uint32_t *count)
{
    for (size_t i = 1; i < floats_of[table]; i++)
        if (row[i] != row[0])
            return false;
    if (row[0] % IDS != id || row[0] / IDS < *count)
        return false;
    *count = row[0] / IDS;
    return true;
}

static void *read_rows(void *context)
{
    static _Thread_local ps_place_t places[TABLES + 1][IDS];
    static _Thread_local uint32_t counts[TABLES + 1][IDS];
    reader_t *reader = context;
    test_random_t random = {.key = reader->seed};
    psc_shared_map_t map = {0};
    uint32_t last = 0;
    uint32_t row[300];
    if (psc_shared_open(reader->path, reader->key, &map, NULL) != PSC_OK) {
        atomic_fetch_add(&reader->wrong, 1);
        return NULL;
    }
    while (!atomic_load(reader->over)) {
        if (psc_shared_layout(&map) != map.layout) {
            memset(places, 0, sizeof places);
            map.layout = psc_shared_layout(&map);
        }
        hear(reader->news, &map, &last, places);
        for (int i = 0; i < 64; i++) {
            uint16_t table = (uint16_t)(1 + test_below(&random, TABLES));
            uint64_t id = test_below(&random, test_below(&random, 8) == 0 ? IDS : HOT);
            psc_shared_wanted_t wanted = {.id = id,
                                          .place = places[table][id],
                                          .table = table,
                                          .bytes = floats_of[table] * sizeof(float)};
            if (wanted.place == 0 || !psc_shared_read(&map, &wanted, row))
                continue;
            atomic_fetch_add(&reader->reads, 1);
            if (!is_whole(row, table, id, &counts[table][id]))
                atomic_fetch_add(&reader->wrong, 1);
        }
    }
    psc_shared_unmap(&map);
    return NULL;
}

/* One push: every row gets its next value. */
static void push(ps_store_t *store, test_request_t *request, uint16_t table, size_t n,
                 uint32_t serial, uint32_t counts[TABLES + 1][IDS])
{
    psc_error_t error = PSC_ERROR_INIT;
    psc_shared_control_t *control = ps_store_shared_control(store);
    test_request_set(request, table, PS_BATCH_WRITE, n);
    assert_int_equal(test_prepare(store, request, &error), PSC_OK);
    psc_shared_begin(control, serial, 1);
    for (size_t i = 0; i < n; i++) {
        ps_row_header_t *row = ps_store_row(ps_store_base(store), request->places[i]);
        uint32_t value = value_of(request->ids[i], ++counts[table][request->ids[i]]);
        bool is_new = row->state == PS_ROW_ABSENT;
        ps_store_begin_change(row, serial);
        for (size_t k = 0; k < floats_of[table]; k++)
            memcpy(ps_row_floats(row) + k, &value, sizeof value);
        if (is_new)
            ps_store_mark_new(store, row);
        ps_store_mark_dirty(row);
    }
    psc_shared_end(control);
}

static void tell(news_t *news, const ps_store_t *store, const test_request_t *request)
{
    (void)pthread_mutex_lock(&news->lock);
    news->number++;
    news->table = request->batch.table;
    news->layout = ps_store_shared_control(store)->layout;
    news->n = request->batch.n;
    memcpy(news->ids, request->ids, request->batch.n * sizeof *news->ids);
    memcpy(news->places, request->places, request->batch.n * sizeof *news->places);
    (void)pthread_mutex_unlock(&news->lock);
}

/* Distinct ids: the hot ones, and often a run of others, so that rows leave memory. */
static size_t choose(test_random_t *random, test_request_t *request, bool hot_alone)
{
    size_t n = 0;
    for (; n < HOT; n++)
        request->ids[n] = n;
    uint64_t first = HOT + test_below(random, IDS - HOT - BATCH);
    while (!hot_alone && n < BATCH)
        request->ids[n++] = first++;
    return n;
}

static size_t total(reader_t *readers, bool wrong, size_t *least)
{
    size_t sum = 0;
    *least = SIZE_MAX;
    for (int i = 0; i < READERS; i++) {
        size_t n = atomic_load(wrong ? &readers[i].wrong : &readers[i].reads);
        *least = n < *least ? n : *least;
        sum += n;
    }
    return sum;
}

static void readers_never_see_half_a_row_while_rows_change_leave_and_come_back(void **state)
{
    (void)state;
    static test_request_t request;
    static uint32_t counts[TABLES + 1][IDS];
    static news_t news = {.lock = PTHREAD_MUTEX_INITIALIZER};
    static reader_t readers[READERS];
    atomic_bool over = false;
    test_random_t random = test_random_start();
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    assert_int_equal(ps_store_share(store, &error), PSC_OK);
    const psc_shared_file_t *file = ps_store_shared(store);
    for (uint16_t table = 1; table <= TABLES; table++)
        test_table_add(store, table, floats_of[table] * sizeof(float));
    for (int i = 0; i < READERS; i++) {
        readers[i] = (reader_t){.news = &news,
                                .path = file->path,
                                .key = file->control->key,
                                .seed = test_next(&random),
                                .over = &over};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_rows, &readers[i]), 0);
    }
    size_t least, wrong;
    uint32_t serial = 0;
    do {
        uint16_t table = (uint16_t)(1 + (serial / 200) % TABLES);
        size_t n = choose(&random, &request, serial % 8 != 0);
        push(store, &request, table, n, ++serial, counts);
        tell(&news, store, &request);
        ps_store_release(store, &request.batch);
        wrong = total(readers, true, &least);
        (void)total(readers, false, &least);
    } while (wrong == 0 && (serial < 8 * ROUNDS || (least < READS && serial < 1000 * ROUNDS)));
    ps_store_counters_t counters;
    ps_store_counters(store, &counters);
    uint32_t moved = file->control->layout;
    atomic_store(&over, true);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
    assert_int_equal(total(readers, true, &least), 0);
    assert_true(total(readers, false, &least) > 0);
    assert_true(counters.evicted > 0 && counters.cold_found > 0 && moved > 0);
    test_store_close(store);
}

static void a_store_is_shared_before_its_first_row_or_never(void **state)
{
    (void)state;
    static test_request_t request;
    static uint32_t counts[TABLES + 1][IDS];
    psc_error_t error = PSC_ERROR_INIT;
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    assert_null(ps_store_shared(store));
    assert_null(ps_store_shared_control(store));
    test_table_add(store, 1, floats_of[1] * sizeof(float));
    request.ids[0] = 7;
    push(store, &request, 1, 1, 1, counts);
    ps_store_release(store, &request.batch);
    assert_int_equal(ps_store_share(store, &error), PSC_BUSY);
    assert_null(ps_store_shared(store));
    test_store_close(store);
    store = test_store_open(test_cold_memory(0, 0));
    assert_int_equal(ps_store_share(store, &error), PSC_OK);
    assert_int_equal(ps_store_share(store, &error), PSC_OK);
    assert_non_null(ps_store_shared(store));
    test_store_close(store);
}

static void a_map_outlives_its_store_and_says_that_it_is_over(void **state)
{
    (void)state;
    static test_request_t request;
    static uint32_t counts[TABLES + 1][IDS];
    psc_error_t error = PSC_ERROR_INIT;
    psc_shared_map_t map;
    uint32_t row[300] = {0};
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    assert_int_equal(ps_store_share(store, &error), PSC_OK);
    const psc_shared_file_t *file = ps_store_shared(store);
    assert_int_equal(psc_shared_open(file->path, file->control->key, &map, &error), PSC_OK);
    test_table_add(store, 1, floats_of[1] * sizeof(float));
    request.ids[0] = 7;
    memset(counts, 0, sizeof counts);
    push(store, &request, 1, 1, 1, counts);
    psc_shared_wanted_t wanted = {
        .id = 7, .place = request.places[0], .table = 1, .bytes = floats_of[1] * sizeof(float)};
    assert_true(psc_shared_read(&map, &wanted, row));
    assert_true(row[0] == value_of(7, 1) && row[299] == row[0]);
    wanted.id = 8;
    assert_false(psc_shared_read(&map, &wanted, row));
    wanted.id = 7;
    wanted.table = 2;
    assert_false(psc_shared_read(&map, &wanted, row));
    wanted.table = 1;
    psc_shared_begin(file->control, 2, 1);
    assert_true(psc_shared_read(&map, &wanted, row));
    ps_store_begin_change(ps_store_row(ps_store_base(store), wanted.place), 2);
    assert_false(psc_shared_read(&map, &wanted, row));
    psc_shared_end(file->control);
    assert_true(psc_shared_read(&map, &wanted, row));
    ps_store_release(store, &request.batch);
    assert_false(psc_shared_is_closed(&map));
    test_store_close(store);
    assert_true(psc_shared_is_closed(&map));
    assert_true(psc_shared_read(&map, &wanted, row)); /* still mapped; nothing crashes */
    psc_shared_unmap(&map);
    psc_shared_unmap(&map);
}

static void touches_reach_the_rows_in_memory_and_pass_by_all_others(void **state)
{
    (void)state;
    static test_request_t request;
    static uint32_t counts[TABLES + 1][IDS];
    ps_store_t *store = test_store_open(test_cold_memory(0, 0));
    test_table_add(store, 1, floats_of[1] * sizeof(float));
    request.ids[0] = 7;
    push(store, &request, 1, 1, 1, counts);
    ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[0]);
    ps_store_release(store, &request.batch);
    uint8_t before = row->policy;
    uint64_t ids[3] = {9, 7, 7}, hashes[3];
    for (size_t i = 0; i < 3; i++)
        hashes[i] = psc_row_hash(1, ids[i]);
    assert_int_equal(ps_store_touch(store, 1, ids, hashes, 3), 2);
    assert_int_equal(row->policy, before + 2);
    assert_int_equal(ps_store_touch(store, 2, ids, hashes, 3), 0);
    assert_int_equal(ps_store_touch(store, 1, ids, hashes, PS_SHARE_TOUCHES + 1), 0);
    assert_int_equal(ps_store_touch(store, 1, ids, hashes, 0), 0);
    test_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_is_shared_before_its_first_row_or_never),
        cmocka_unit_test(a_map_outlives_its_store_and_says_that_it_is_over),
        cmocka_unit_test(touches_reach_the_rows_in_memory_and_pass_by_all_others),
        cmocka_unit_test(readers_never_see_half_a_row_while_rows_change_leave_and_come_back),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
