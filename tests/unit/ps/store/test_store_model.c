/*
 * The store against a dictionary: random batches of several sessions at once, some of them scans,
 * some of which erase; rows of several sizes, a memory of 8 MiB that holds a part of them, and a
 * sweep that walks over a table meanwhile; over the memory tier and over RocksDB, and reopened.
 */
#include "common/alloc.h"
#include "common/hash.h"
#include "common/slots.h"
#include "ps/store/sweep.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/store_fixture.h"
#include "tests/support/store_tiers.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define N_IDS 5000
#define N_TABLES 4
#define N_SESSIONS 5

static const size_t table_floats[N_TABLES] = {1, 100, 700, 4001};
static const uint16_t table_numbers[N_TABLES] = {0, 7, 65535, 300};

typedef struct world {
    test_random_t random;
    ps_store_t *store;
    test_tier_t *tier;                /* whose writes are refused now and then; or NULL */
    uint32_t counts[N_TABLES][N_IDS]; /* changes of each row so far; 0: absent */
    uint64_t born[N_TABLES][N_IDS];   /* n_done when it was made */
    test_request_t requests[N_SESSIONS];
    uint64_t n_done;
    ps_store_scan_t *scan; /* a sweep that goes on; or NULL */
    size_t scan_table;
    uint64_t scan_start;
    ps_row_header_t last; /* of those given */
    bool given[N_IDS];
    uint64_t n_sweeps, n_erased;
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

static void make_request(world_t *world, test_request_t *request)
{
    size_t t = draw(world, N_TABLES);
    size_t max = ps_store_max_batch(world->store, table_numbers[t]);
    size_t n =
        draw(world, 8) == 0 ? 0 : 1 + draw(world, (uint32_t)(max < TEST_MAX_N ? max : TEST_MAX_N));
    /* A window of ids that wanders, so that there are hits and misses. */
    uint32_t limit = t == 3 ? N_IDS / 4 : N_IDS;
    uint32_t first = draw(world, limit), width = 1 + draw(world, draw(world, 2) ? 60 : limit);
    for (size_t i = 0; i < n; i++) {
        request->numbers[i] = (first + draw(world, width)) % limit;
        request->ids[i] = id_of(request->numbers[i]);
    }
    test_request_set(request, table_numbers[t], draw(world, 2) ? PS_BATCH_WRITE : PS_BATCH_READ, n);
    request->batch.scan = draw(world, 4) == 0;
    request->wanted = true;
    request->prepared = false;
}

static void use_row(world_t *world, test_request_t *request, size_t i)
{
    size_t t = table_index(request->batch.table);
    uint32_t number = request->numbers[i];
    uint32_t *count = &world->counts[t][number];
    if (request->places[i] == 0) {
        assert_int_equal(request->batch.mode, PS_BATCH_READ);
        assert_true(request->before[i] == 0 || *count == 0); /* erased while it waited */
        return;
    }
    ps_row_header_t *row = ps_store_row(ps_store_base(world->store), request->places[i]);
    assert_int_equal(row->id, request->ids[i]);
    assert_int_equal(row->table, request->batch.table);
    float *floats = ps_row_floats(row);
    if (row->state == PS_ROW_ABSENT) {
        assert_int_equal(*count, 0);
        assert_int_equal(row->version, 0);
        if (request->batch.mode == PS_BATCH_READ)
            return; /* erased while it waited */
        if (draw(world, 8) == 0)
            return; /* refused after all: stays absent */
        ps_store_mark_new(world->store, row);
        world->born[t][number] = world->n_done;
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

static void erase_rows(world_t *world, test_request_t *request)
{
    psc_error_t error = PSC_ERROR_INIT;
    size_t t = table_index(request->batch.table);
    psc_status_t st;
    while ((st = ps_store_erase(world->store, &request->batch, &error)) == PSC_BUSY) {
        if (world->tier != NULL)
            test_tier_stall(world->tier, false);
        assert_int_equal(test_wait(world->store, &error), PSC_OK);
    }
    assert_int_equal(st, PSC_OK);
    for (size_t i = 0; i < request->batch.n; i++) {
        world->n_erased += world->counts[t][request->numbers[i]] != 0;
        world->counts[t][request->numbers[i]] = 0;
    }
}

/* False: it waits. */
static bool step_request(world_t *world, test_request_t *request)
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
    if (request->batch.mode == PS_BATCH_WRITE && draw(world, 8) == 0)
        erase_rows(world, request);
    else
        for (size_t i = 0; i < request->batch.n; i++)
            use_row(world, request, i);
    ps_store_release(world->store, &request->batch);
    request->wanted = false;
    world->n_done++;
    return true;
}

static uint32_t number_of(uint64_t id)
{
    for (uint32_t number = 0; number < N_IDS; number++)
        if (id_of(number) == id)
            return number;
    fail_msg("row %llu was never made", (unsigned long long)id);
    return 0;
}

static void take_piece(world_t *world, const ps_store_piece_t *piece)
{
    uint16_t table = table_numbers[world->scan_table];
    for (size_t i = 0; i < piece->n; i++) {
        const ps_row_header_t *row = &piece->rows[i], *last = &world->last;
        assert_int_equal(row->table, table);
        uint32_t slot = psc_slot_of_hash(psc_row_hash(table, row->id));
        uint32_t last_slot = psc_slot_of_hash(psc_row_hash(table, last->id));
        assert_true(last->version == 0 || slot > last_slot ||
                    (slot == last_slot && row->id > last->id));
        assert_true(row->version > 0);
        world->last = *row;
        world->given[number_of(row->id)] = true;
    }
}

/* One step of the sweep, or a new one. False: it waits. */
static bool step_sweep(world_t *world)
{
    psc_error_t error = PSC_ERROR_INIT;
    if (world->scan == NULL) {
        world->scan_table = draw(world, N_TABLES);
        world->scan_start = world->n_done;
        world->last = (ps_row_header_t){0};
        memset(world->given, 0, sizeof world->given);
        psc_status_t st = ps_store_scan_open(world->store, table_numbers[world->scan_table], 0,
                                             PSC_SLOT_COUNT, &world->scan, &error);
        assert_true(st == PSC_OK || st == PSC_BUSY);
        return st == PSC_OK;
    }
    if (draw(world, 200) == 0) { /* given up */
        ps_store_scan_close(world->scan);
        world->scan = NULL;
        return true;
    }
    ps_store_piece_t piece;
    psc_status_t st = ps_store_scan_next(world->scan, &piece, &error);
    if (st == PSC_BUSY)
        return false;
    assert_int_equal(st, PSC_OK);
    take_piece(world, &piece);
    if (!piece.end)
        return true;
    size_t t = world->scan_table;
    for (uint32_t number = 0; number < N_IDS; number++)
        assert_true(world->given[number] || world->counts[t][number] == 0 ||
                    world->born[t][number] >= world->scan_start);
    world->n_sweeps++;
    ps_store_scan_close(world->scan);
    world->scan = NULL;
    return true;
}

static void run_world(world_t *world, uint64_t n_requests)
{
    psc_error_t error = PSC_ERROR_INIT;
    uint64_t until = world->n_done + n_requests;
    for (;;) {
        bool any = false, moved = false, progress;
        for (size_t s = 0; s < N_SESSIONS; s++) {
            test_request_t *request = &world->requests[s];
            if (!request->wanted && world->n_done < until)
                make_request(world, request);
            if (request->wanted) {
                moved |= step_request(world, request);
                any = true;
            }
        }
        if (!any)
            break;
        if (draw(world, 3) != 0)
            moved |= step_sweep(world);
        if (world->tier != NULL) /* never while nothing moves: it might not pass */
            test_tier_stall(world->tier, moved && draw(world, 3) == 0);
        if (!moved)
            assert_int_equal(test_wait(world->store, &error), PSC_OK);
        else
            assert_int_equal(ps_store_poll(world->store, &progress, &error), PSC_OK);
    }
    ps_store_scan_close(world->scan);
    world->scan = NULL;
}

static void add_tables(ps_store_t *store)
{
    for (size_t t = 0; t < N_TABLES; t++)
        test_table_add(store, table_numbers[t], table_floats[t] * sizeof(float));
}

/* Every row is what the dictionary says. */
static void check_all(world_t *world)
{
    static test_request_t request;
    psc_error_t error = PSC_ERROR_INIT;
    for (size_t t = 0; t < N_TABLES; t++) {
        for (uint32_t first = 0; first < N_IDS; first += 50) {
            for (uint32_t i = 0; i < 50; i++) {
                request.numbers[i] = first + i;
                request.ids[i] = id_of(first + i);
                request.before[i] = world->counts[t][first + i];
            }
            test_request_set(&request, table_numbers[t], PS_BATCH_READ, 50);
            assert_int_equal(test_prepare(world->store, &request, &error), PSC_OK);
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
    ps_cold_t *inner = test_cold_memory(0, 0);
    test_tier_t *tier = test_tier_create(inner, true);
    world->store = test_store_open(test_tier_cold(tier));
    world->tier = tier;
    add_tables(world->store);
    run_world(world, 1500);
    test_tier_stall(tier, false);
    world->tier = NULL;
    ps_store_counters_t counters;
    ps_store_counters(world->store, &counters);
    assert_true(counters.evicted > 0 && counters.cold_found > 0);
    assert_true(counters.write_stalls > 0);
    assert_true(world->n_sweeps > 3 && world->n_erased > 0 && counters.erased > 0);
    test_store_close(world->store);
    test_tier_destroy(tier);

    tier = test_tier_create(inner, false);
    world->store = test_store_open(test_tier_cold(tier));
    add_tables(world->store);
    check_all(world);
    run_world(world, 200);
    test_store_close(world->store);
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
    ps_store_t *store = test_store_open(cold);
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
    test_store_close(world->store);
    world->store = open_rocks(folder);
    check_all(world);
    run_world(world, 100);
    test_store_close(world->store);
    test_scratch_destroy(folder);
    psc_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_a_dictionary_over_the_memory_tier),
        cmocka_unit_test(agrees_with_a_dictionary_over_rocksdb_and_after_reopening),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
