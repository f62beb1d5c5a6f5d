/*
 * The store against a dictionary: random batches of several sessions at once, rows of several
 * sizes, a memory of 8 MiB that holds a part of them; over the memory tier and over RocksDB. And
 * the edges one by one.
 */
#include "common/alloc.h"
#include "common/hash.h"
#include "common/queue.h"
#include "ps/store/cold.h"
#include "ps/store/store.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/store_tiers.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define MAX_N 400
#define N_IDS 5000
#define N_TABLES 4
#define N_SESSIONS 5

/* ---- small tools ---- */

static psc_queue_t *woken; /* where tests sleep until the store has finished something */

static int create_queue(void **state)
{
    (void)state;
    return psc_queue_create(&woken, NULL) == PSC_OK ? 0 : -1;
}

static int destroy_queue(void **state)
{
    (void)state;
    psc_queue_destroy(woken);
    return 0;
}

static void wake(void *context)
{
    psc_queue_wake(context);
}

static ps_store_t *open_store(ps_cold_t *cold)
{
    ps_store_options_t options = {
        .memory_bytes = PS_STORE_MIN_MEMORY, .cold = cold, .wake = wake, .wake_context = woken};
    ps_store_t *store = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_store_open(&options, &store, &error), PSC_OK);
    return store;
}

static ps_cold_t *memory_tier(uint64_t fail_read_at, uint64_t fail_write_at)
{
    ps_cold_faults_t faults = {.fail_read_at = fail_read_at, .fail_write_at = fail_write_at};
    ps_cold_t *cold = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_cold_memory_create(&faults, &cold, &error), PSC_OK);
    return cold;
}

static void add_table(ps_store_t *store, uint16_t table, size_t row_bytes)
{
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_store_table_add(store, table, row_bytes, &error), PSC_OK);
}

static void close_clean(ps_store_t *store)
{
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_store_close(store, true, &error), PSC_OK);
}

typedef struct request {
    ps_batch_t batch;
    uint64_t ids[MAX_N], hashes[MAX_N];
    ps_place_t places[MAX_N];
    uint32_t before[MAX_N]; /* the dictionary's counts when it was prepared */
    uint32_t numbers[MAX_N];
    bool wanted, prepared;
} request_t;

static void set_hashes(request_t *request, uint16_t table, ps_batch_mode_t mode, size_t n)
{
    for (size_t i = 0; i < n; i++)
        request->hashes[i] = psc_row_hash(table, request->ids[i]);
    request->batch = (ps_batch_t){.table = table,
                                  .mode = mode,
                                  .n = n,
                                  .ids = request->ids,
                                  .hashes = request->hashes,
                                  .places = request->places};
}

/* Sleeps until something was finished. */
static psc_status_t wait_for_progress(ps_store_t *store, psc_error_t *error)
{
    bool progress;
    psc_status_t st;
    while ((st = ps_store_poll(store, &progress, error)) == PSC_OK && !progress)
        psc_queue_wait(woken, UINT64_MAX);
    return st;
}

/* Prepares and waits. */
static psc_status_t prepare_and_wait(ps_store_t *store, request_t *request, psc_error_t *error)
{
    psc_status_t st;
    while ((st = ps_store_prepare(store, &request->batch, error)) == PSC_BUSY) {
        st = wait_for_progress(store, error);
        if (st != PSC_OK)
            return st;
    }
    while (st == PSC_OK && !ps_store_ready(store, &request->batch))
        st = wait_for_progress(store, error);
    return st;
}

/* One row: `value` in all its floats. */
static void put_row(ps_store_t *store, uint16_t table, uint64_t id, size_t n_floats, float value)
{
    static request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    request.ids[0] = id;
    set_hashes(&request, table, PS_BATCH_WRITE, 1);
    assert_int_equal(prepare_and_wait(store, &request, &error), PSC_OK);
    ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[0]);
    if (row->state == PS_ROW_ABSENT)
        ps_store_mark_new(store, row);
    for (size_t i = 0; i < n_floats; i++)
        ps_row_floats(row)[i] = value;
    ps_store_mark_dirty(row);
    ps_store_release(store, &request.batch);
}

/* False: absent. */
static bool get_row(ps_store_t *store, uint16_t table, uint64_t id, size_t n_floats, float *value)
{
    static request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    request.ids[0] = id;
    set_hashes(&request, table, PS_BATCH_READ, 1);
    assert_int_equal(prepare_and_wait(store, &request, &error), PSC_OK);
    bool found = request.places[0] != 0;
    if (found) {
        ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[0]);
        assert_int_equal(row->id, id);
        assert_int_equal(row->table, table);
        assert_int_equal(row->state, PS_ROW_PRESENT);
        *value = ps_row_floats(row)[0];
        assert_true(ps_row_floats(row)[n_floats - 1] == *value);
    }
    ps_store_release(store, &request.batch);
    return found;
}

/* ---- the dictionary ---- */

static const size_t table_floats[N_TABLES] = {1, 100, 700, 4001};
static const uint16_t table_numbers[N_TABLES] = {0, 7, 65535, 300};

typedef struct world {
    test_random_t random;
    ps_store_t *store;
    uint32_t counts[N_TABLES][N_IDS]; /* changes of each row so far; 0: absent */
    request_t requests[N_SESSIONS];
    uint64_t n_done;
} world_t;

static uint32_t draw(world_t *world, uint32_t n)
{
    return (uint32_t)test_below(&world->random, n);
}

static uint64_t id_of(uint32_t number)
{
    if (number < 2)
        return number == 0 ? 0 : UINT64_MAX;
    return number % 2 == 0 ? number : psc_mix64(number);
}

static size_t table_index(uint16_t table)
{
    size_t t = 0;
    while (table_numbers[t] != table)
        t++;
    return t;
}

/* The float in column c of the row after `count` changes. */
static float expected(size_t t, uint32_t number, uint32_t count, size_t c)
{
    return (float)((number * 7 + count * 13 + c + t) % 1000003);
}

static void make_request(world_t *world, request_t *request)
{
    size_t t = draw(world, N_TABLES);
    size_t max = ps_store_max_batch(world->store, table_numbers[t]);
    size_t n = draw(world, 8) == 0 ? 0 : 1 + draw(world, (uint32_t)(max < MAX_N ? max : MAX_N));
    /* A window of ids that wanders, so that there are hits and misses. */
    uint32_t limit = t == 3 ? N_IDS / 4 : N_IDS;
    uint32_t first = draw(world, limit), width = 1 + draw(world, draw(world, 2) ? 60 : limit);
    for (size_t i = 0; i < n; i++) {
        request->numbers[i] = (first + draw(world, width)) % limit;
        request->ids[i] = id_of(request->numbers[i]);
    }
    set_hashes(request, table_numbers[t], draw(world, 2) ? PS_BATCH_WRITE : PS_BATCH_READ, n);
    request->wanted = true;
    request->prepared = false;
}

static void use_row(world_t *world, request_t *request, size_t i)
{
    size_t t = table_index(request->batch.table);
    uint32_t number = request->numbers[i];
    uint32_t *count = &world->counts[t][number];
    if (request->places[i] == 0) {
        assert_int_equal(request->batch.mode, PS_BATCH_READ);
        assert_int_equal(request->before[i], 0);
        return;
    }
    ps_row_header_t *row = ps_store_row(ps_store_base(world->store), request->places[i]);
    assert_int_equal(row->id, request->ids[i]);
    assert_int_equal(row->table, request->batch.table);
    float *floats = ps_row_floats(row);
    if (row->state == PS_ROW_ABSENT) {
        assert_int_equal(*count, 0);
        assert_int_equal(row->version, 0);
        assert_int_equal(request->batch.mode, PS_BATCH_WRITE);
        if (draw(world, 8) == 0)
            return; /* refused after all: stays absent */
        ps_store_mark_new(world->store, row);
    } else {
        assert_int_equal(row->state, PS_ROW_PRESENT);
        assert_int_equal(row->version, *count);
        for (size_t c = 0; c < table_floats[t]; c++)
            assert_true(floats[c] == expected(t, number, *count, c));
    }
    if (request->batch.mode == PS_BATCH_READ)
        return;
    row->version = ++*count;
    for (size_t c = 0; c < table_floats[t]; c++)
        floats[c] = expected(t, number, *count, c);
    ps_store_mark_dirty(row);
}

/* False: it waits. */
static bool step_request(world_t *world, request_t *request)
{
    psc_error_t error = PSC_ERROR_INIT;
    if (!request->prepared) {
        size_t t = table_index(request->batch.table);
        for (size_t i = 0; i < request->batch.n; i++)
            request->before[i] = world->counts[t][request->numbers[i]];
        psc_status_t st = ps_store_prepare(world->store, &request->batch, &error);
        if (st == PSC_BUSY)
            return false;
        assert_int_equal(st, PSC_OK);
        request->prepared = true;
        if (draw(world, 4) == 0)
            return true; /* used after others were prepared */
    }
    if (!ps_store_ready(world->store, &request->batch)) {
        if (draw(world, 50) == 0) { /* given up */
            ps_store_release(world->store, &request->batch);
            request->wanted = false;
            return true;
        }
        return false;
    }
    for (size_t i = 0; i < request->batch.n; i++)
        use_row(world, request, i);
    ps_store_release(world->store, &request->batch);
    request->wanted = false;
    world->n_done++;
    return true;
}

static void run_world(world_t *world, uint64_t n_requests)
{
    psc_error_t error = PSC_ERROR_INIT;
    uint64_t until = world->n_done + n_requests;
    for (;;) {
        bool any = false, moved = false, progress;
        for (size_t s = 0; s < N_SESSIONS; s++) {
            request_t *request = &world->requests[s];
            if (!request->wanted && world->n_done < until)
                make_request(world, request);
            if (request->wanted) {
                moved |= step_request(world, request);
                any = true;
            }
        }
        if (!any)
            return;
        if (!moved)
            assert_int_equal(wait_for_progress(world->store, &error), PSC_OK);
        else
            assert_int_equal(ps_store_poll(world->store, &progress, &error), PSC_OK);
    }
}

static void add_tables(ps_store_t *store)
{
    for (size_t t = 0; t < N_TABLES; t++)
        add_table(store, table_numbers[t], table_floats[t] * sizeof(float));
}

/* Every row is what the dictionary says. */
static void check_all(world_t *world)
{
    static request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    for (size_t t = 0; t < N_TABLES; t++) {
        for (uint32_t first = 0; first < N_IDS; first += 50) {
            for (uint32_t i = 0; i < 50; i++) {
                request.numbers[i] = first + i;
                request.ids[i] = id_of(first + i);
                request.before[i] = world->counts[t][first + i];
            }
            set_hashes(&request, table_numbers[t], PS_BATCH_READ, 50);
            assert_int_equal(prepare_and_wait(world->store, &request, &error), PSC_OK);
            for (uint32_t i = 0; i < 50; i++) {
                assert_int_equal(request.places[i] != 0, request.before[i] != 0);
                use_row(world, &request, i);
            }
            ps_store_release(world->store, &request.batch);
        }
    }
}

static void agrees_with_a_dictionary_over_the_memory_tier(void **state)
{
    (void)state;
    world_t *world = psc_alloc_zeroed(1, sizeof *world);
    world->random = test_random_start();
    ps_cold_t *inner = memory_tier(0, 0);
    test_tier_t *tier = test_tier_create(inner, true);
    world->store = open_store(test_tier_cold(tier));
    add_tables(world->store);
    run_world(world, 1500);
    ps_store_counters_t counters;
    ps_store_counters(world->store, &counters);
    assert_true(counters.evicted > 0 && counters.cold_found > 0);
    assert_true(counters.bytes_hot <= counters.bytes_budget);
    close_clean(world->store);
    test_tier_destroy(tier);

    tier = test_tier_create(inner, false);
    world->store = open_store(test_tier_cold(tier));
    add_tables(world->store);
    check_all(world);
    run_world(world, 200);
    close_clean(world->store);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
    psc_free(world);
}

static ps_store_t *open_rocks(const char *folder)
{
    ps_cold_t *cold = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(
        ps_cold_rocks_open(folder, ps_cold_rocks_memory(PS_STORE_MIN_MEMORY), &cold, &error),
        PSC_OK);
    ps_store_t *store = open_store(cold);
    add_tables(store);
    return store;
}

static void agrees_with_a_dictionary_over_rocksdb_and_after_reopening(void **state)
{
    (void)state;
    world_t *world = psc_alloc_zeroed(1, sizeof *world);
    world->random = test_random_start();
    char *folder = test_scratch_create();
    world->store = open_rocks(folder);
    run_world(world, 700);
    close_clean(world->store);
    world->store = open_rocks(folder);
    check_all(world);
    run_world(world, 100);
    close_clean(world->store);
    test_scratch_destroy(folder);
    psc_free(world);
}

/* ---- edges ---- */

static void refuses_too_little_memory(void **state)
{
    (void)state;
    ps_cold_t *cold = memory_tier(0, 0);
    ps_store_options_t options = {.memory_bytes = PS_STORE_MIN_MEMORY - 1, .cold = cold};
    ps_store_t *store;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_store_open(&options, &store, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "8388608"));
    cold->ops->destroy(cold);
}

static void refuses_a_table_twice_and_rows_that_do_not_fit(void **state)
{
    (void)state;
    ps_store_t *store = open_store(memory_tier(0, 0));
    psc_error_t error = PSC_ERROR_INIT;
    add_table(store, 3, 64);
    assert_int_equal(ps_store_table_add(store, 3, 64, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_store_table_add(store, 4, 100000, &error), PSC_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "16777216 would do"));
    assert_int_equal(ps_store_table_add(store, 4, (size_t)1 << 40, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_store_table_add(store, 4, SIZE_MAX, &error), PSC_INVALID_ARGUMENT);
    add_table(store, 4, 0);
    assert_int_equal(ps_store_max_batch(store, 5), 0);
    close_clean(store);
}

static void refuses_unknown_tables_and_batches_that_are_too_large(void **state)
{
    (void)state;
    static request_t request;
    ps_store_t *store = open_store(memory_tier(0, 0));
    add_table(store, 1, 60000);
    psc_error_t error = PSC_ERROR_INIT;
    size_t max = ps_store_max_batch(store, 1);
    assert_int_equal(max, 64);
    set_hashes(&request, 1, PS_BATCH_READ, max + 1);
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_INVALID_ARGUMENT);
    set_hashes(&request, 2, PS_BATCH_READ, 1);
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_INVALID_ARGUMENT);
    close_clean(store);
}

static void holds_64_of_the_largest_rows_again_and_again(void **state)
{
    (void)state;
    static request_t request;
    ps_store_t *store = open_store(memory_tier(0, 0));
    add_table(store, 1, 60000);
    add_table(store, 2, 4);
    psc_error_t error = PSC_ERROR_INIT;
    for (uint64_t id = 0; id < 300; id++)
        put_row(store, 2, id, 1, (float)id);
    for (uint32_t round = 0; round < 6; round++) {
        for (size_t i = 0; i < 64; i++)
            request.ids[i] = (round % 3) * 64 + i;
        set_hashes(&request, 1, PS_BATCH_WRITE, 64);
        assert_int_equal(prepare_and_wait(store, &request, &error), PSC_OK);
        for (size_t i = 0; i < 64; i++) {
            ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[i]);
            assert_int_equal(row->state, round < 3 ? PS_ROW_ABSENT : PS_ROW_PRESENT);
            if (round < 3)
                ps_store_mark_new(store, row);
            else
                assert_true(ps_row_floats(row)[14999] == (float)request.ids[i]);
            ps_row_floats(row)[14999] = (float)request.ids[i];
        }
        ps_store_release(store, &request.batch);
    }
    for (uint64_t id = 0; id < 300; id++) {
        float value;
        assert_true(get_row(store, 2, id, 1, &value));
        assert_true(value == (float)id);
    }
    close_clean(store);
}

static void reading_creates_nothing_and_needs_no_disk_while_nothing_was_evicted(void **state)
{
    (void)state;
    static request_t request;
    ps_cold_t *inner = memory_tier(0, 0);
    test_tier_t *tier = test_tier_create(inner, true);
    ps_store_t *store = open_store(test_tier_cold(tier));
    add_table(store, 0, 400);
    psc_error_t error = PSC_ERROR_INIT;
    put_row(store, 0, UINT64_MAX, 100, 4);
    for (size_t i = 0; i < 100; i++)
        request.ids[i] = i % 2 == 0 ? UINT64_MAX : i;
    set_hashes(&request, 0, PS_BATCH_READ, 100);
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_OK);
    assert_true(ps_store_ready(store, &request.batch));
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(request.places[i] != 0, i % 2 == 0);
    ps_store_release(store, &request.batch);
    ps_store_counters_t counters;
    ps_store_counters(store, &counters);
    assert_int_equal(counters.rows_hot, 1);
    assert_int_equal(counters.rows_new, 1);
    assert_int_equal(counters.hits, 50);
    close_clean(store);
    assert_string_equal(test_tier_calls(tier), "ws");
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void a_row_that_was_not_made_new_is_gone_after_release(void **state)
{
    (void)state;
    static request_t request;
    ps_store_t *store = open_store(memory_tier(0, 0));
    add_table(store, 0, 4);
    psc_error_t error = PSC_ERROR_INIT;
    for (size_t i = 0; i < 10; i++)
        request.ids[i] = i / 2; /* each twice */
    set_hashes(&request, 0, PS_BATCH_WRITE, 10);
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_OK);
    for (size_t i = 0; i < 10; i += 2)
        assert_int_equal(request.places[i], request.places[i + 1]);
    ps_store_mark_new(store, ps_store_row(ps_store_base(store), request.places[4]));
    ps_store_release(store, &request.batch);
    float value;
    for (uint64_t id = 0; id < 5; id++)
        assert_int_equal(get_row(store, 0, id, 1, &value), id == 2);
    close_clean(store);
}

static void several_waiting_batches_share_a_row_that_is_loading(void **state)
{
    (void)state;
    static request_t a, b, c;
    ps_cold_t *inner = memory_tier(0, 0);
    test_tier_t *tier = test_tier_create(inner, false);
    ps_store_t *store = open_store(test_tier_cold(tier));
    add_table(store, 0, 4);
    psc_error_t error = PSC_ERROR_INIT;
    test_tier_hold(tier, true);
    a.ids[0] = b.ids[0] = c.ids[0] = 5;
    b.ids[1] = 6;
    set_hashes(&a, 0, PS_BATCH_WRITE, 1);
    set_hashes(&b, 0, PS_BATCH_READ, 2);
    set_hashes(&c, 0, PS_BATCH_READ, 1);
    assert_int_equal(ps_store_prepare(store, &a.batch, &error), PSC_OK);
    assert_int_equal(ps_store_prepare(store, &b.batch, &error), PSC_OK);
    assert_int_equal(ps_store_prepare(store, &c.batch, &error), PSC_OK);
    assert_int_equal(a.places[0], b.places[0]);
    assert_false(ps_store_ready(store, &a.batch));
    assert_false(ps_store_ready(store, &b.batch));
    ps_store_release(store, &c.batch); /* given up while it waits */
    test_tier_hold(tier, false);
    while (!ps_store_ready(store, &a.batch))
        assert_int_equal(wait_for_progress(store, &error), PSC_OK);
    ps_row_header_t *row = ps_store_row(ps_store_base(store), a.places[0]);
    assert_int_equal(row->state, PS_ROW_ABSENT);
    ps_store_mark_new(store, row);
    ps_row_floats(row)[0] = 9;
    ps_store_release(store, &a.batch);
    while (!ps_store_ready(store, &b.batch))
        assert_int_equal(wait_for_progress(store, &error), PSC_OK);
    assert_int_equal(b.places[0], a.places[0]);
    assert_int_equal(b.places[1], 0);
    assert_true(ps_row_floats(row)[0] == 9);
    ps_store_release(store, &b.batch);
    close_clean(store);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void is_busy_with_nothing_held_and_goes_on_after_progress(void **state)
{
    (void)state;
    static request_t request;
    ps_cold_t *inner = memory_tier(0, 0);
    test_tier_t *tier = test_tier_create(inner, true);
    ps_store_t *store = open_store(test_tier_cold(tier));
    add_table(store, 0, 30000);
    psc_error_t error = PSC_ERROR_INIT;
    test_tier_hold(tier, true);
    psc_status_t st = PSC_OK;
    for (uint64_t id = 0; id < 1000 && st == PSC_OK; id++) {
        request.ids[0] = id;
        set_hashes(&request, 0, PS_BATCH_WRITE, 1);
        st = ps_store_prepare(store, &request.batch, &error);
        if (st != PSC_OK)
            break;
        if (ps_store_ready(store, &request.batch)) /* before the first eviction */
            ps_store_mark_new(store, ps_store_row(ps_store_base(store), request.places[0]));
        ps_store_release(store, &request.batch);
    }
    assert_int_equal(st, PSC_BUSY);
    assert_int_equal(request.places[0], 0);
    test_tier_hold(tier, false);
    assert_int_equal(prepare_and_wait(store, &request, &error), PSC_OK);
    ps_store_release(store, &request.batch);
    close_clean(store);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void a_failed_read_fails_the_store_for_good(void **state)
{
    (void)state;
    static request_t request;
    ps_cold_t *inner = memory_tier(1, 0);
    test_tier_t *tier = test_tier_create(inner, false);
    ps_store_t *store = open_store(test_tier_cold(tier));
    add_table(store, 0, 4);
    psc_error_t error = PSC_ERROR_INIT;
    request.ids[0] = 1;
    set_hashes(&request, 0, PS_BATCH_READ, 1);
    assert_int_equal(prepare_and_wait(store, &request, &error), PSC_IO);
    assert_non_null(strstr(error.message, "as asked for"));
    assert_false(ps_store_ready(store, &request.batch));
    assert_int_equal(ps_store_prepare(store, &request.batch, &error), PSC_IO);
    bool progress;
    assert_int_equal(ps_store_poll(store, &progress, &error), PSC_IO);
    assert_int_equal(ps_store_close(store, true, &error), PSC_IO);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void a_full_disk_is_told_at_eviction_and_at_close(void **state)
{
    (void)state;
    static request_t request;
    ps_store_t *store = open_store(memory_tier(0, 3));
    add_table(store, 0, 30000);
    psc_error_t error = PSC_ERROR_INIT;
    psc_status_t st = PSC_OK;
    for (uint64_t id = 0; id < 1000 && st == PSC_OK; id++) {
        request.ids[0] = id;
        set_hashes(&request, 0, PS_BATCH_WRITE, 1);
        st = prepare_and_wait(store, &request, &error);
        if (st == PSC_OK) {
            ps_row_header_t *row = ps_store_row(ps_store_base(store), request.places[0]);
            if (row->state == PS_ROW_ABSENT)
                ps_store_mark_new(store, row);
            ps_store_release(store, &request.batch);
        }
    }
    assert_int_equal(st, PSC_DISK_FULL);
    assert_int_equal(ps_store_close(store, true, &error), PSC_DISK_FULL);

    store = open_store(memory_tier(0, 1));
    add_table(store, 0, 4);
    put_row(store, 0, 1, 1, 1);
    assert_int_equal(ps_store_close(store, true, &error), PSC_DISK_FULL);

    store = open_store(memory_tier(0, 1));
    add_table(store, 0, 4);
    put_row(store, 0, 1, 1, 1);
    assert_int_equal(ps_store_close(store, false, &error), PSC_OK);
}

static void a_record_of_another_row_is_damaged_data(void **state)
{
    (void)state;
    static request_t request;
    ps_cold_t *inner = memory_tier(0, 0);
    psc_error_t error = PSC_ERROR_INIT;
    struct {
        ps_row_header_t header;
        float value;
        float pad;
    } record = {.header = {.id = 8, .table = 0, .state = PS_ROW_PRESENT}, .value = 1};
    ps_cold_write_t write = {.record = (const uint8_t *)&record, .size = sizeof record};
    ps_cold_key(write.key, 0, (uint32_t)(psc_row_hash(0, 7) & 16383), 7);
    assert_int_equal(inner->ops->write(inner, &write, 1, &error), PSC_OK);
    test_tier_t *tier = test_tier_create(inner, false);
    ps_store_t *store = open_store(test_tier_cold(tier));
    add_table(store, 0, 8);
    request.ids[0] = 7;
    set_hashes(&request, 0, PS_BATCH_READ, 1);
    assert_int_equal(prepare_and_wait(store, &request, &error), PSC_CORRUPT);
    assert_int_equal(error.id, 7);
    assert_int_equal(ps_store_close(store, true, &error), PSC_CORRUPT);
    test_tier_destroy(tier);
    inner->ops->destroy(inner);
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    for (unsigned long n = 1;; n++) {
        ps_cold_t *cold = memory_tier(0, 0);
        ps_store_options_t options = {.memory_bytes = PS_STORE_MIN_MEMORY, .cold = cold};
        ps_store_t *store = NULL;
        psc_alloc_fail_at(n);
        psc_status_t st = ps_store_open(&options, &store, &error);
        if (st == PSC_OK)
            st = ps_store_table_add(store, 1, 4, &error);
        static request_t request;
        for (uint64_t id = 0; st == PSC_OK && id < 100; id++) {
            request.ids[0] = id;
            set_hashes(&request, 1, PS_BATCH_WRITE, 1);
            st = ps_store_prepare(store, &request.batch, &error);
            if (st == PSC_OK) {
                ps_store_mark_new(store, ps_store_row(ps_store_base(store), request.places[0]));
                ps_store_release(store, &request.batch);
            }
        }
        bool reached = psc_alloc_count() >= n;
        psc_alloc_fail_at(0);
        assert_int_equal(st, reached ? PSC_NO_MEMORY : PSC_OK);
        if (store == NULL)
            cold->ops->destroy(cold);
        else
            close_clean(store);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_dictionary_over_the_memory_tier),
        cmocka_unit_test(agrees_with_a_dictionary_over_rocksdb_and_after_reopening),
        cmocka_unit_test(refuses_too_little_memory),
        cmocka_unit_test(refuses_a_table_twice_and_rows_that_do_not_fit),
        cmocka_unit_test(refuses_unknown_tables_and_batches_that_are_too_large),
        cmocka_unit_test(holds_64_of_the_largest_rows_again_and_again),
        cmocka_unit_test(reading_creates_nothing_and_needs_no_disk_while_nothing_was_evicted),
        cmocka_unit_test(a_row_that_was_not_made_new_is_gone_after_release),
        cmocka_unit_test(several_waiting_batches_share_a_row_that_is_loading),
        cmocka_unit_test(is_busy_with_nothing_held_and_goes_on_after_progress),
        cmocka_unit_test(a_failed_read_fails_the_store_for_good),
        cmocka_unit_test(a_full_disk_is_told_at_eviction_and_at_close),
        cmocka_unit_test(a_record_of_another_row_is_damaged_data),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, create_queue, destroy_queue);
}
