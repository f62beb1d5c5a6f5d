/* What a store was at one moment, while rows change, come, leave memory and are erased: compared
 * with a copy of a dictionary. */
#include "ps/store/cut.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/slots.h"
#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/store_fixture.h"
#include "tests/support/store_tiers.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define TABLE 3
#define ROW_BYTES 200
#define IMAGE_BYTES (sizeof(ps_row_header_t) + ROW_BYTES)
#define N_IDS 40000 /* 9 MB of records: more than fit into memory */
#define BATCH 60

typedef struct world {
    ps_store_t *store;
    char *folder;
    uint32_t *now;                              /* [N_IDS] what each row holds; 0: there is none */
    uint32_t *then;                             /* the same at the cut */
    uint32_t *found;                            /* of images; UINT32_MAX: none */
    uint32_t *before;                           /* the same of those that a partial cut rests on */
    bool base, erase;                           /* the next may be partial; rows are erased too */
    unsigned give_up_at;                        /* turn of a cut that is abandoned */
    ps_cut_piece_t *waiting[PS_CUT_PIECES_MAX]; /* handed out, not put back */
    size_t n_waiting;
    test_random_t random;
    uint64_t kept;
} world_t;

static void take_piece(void *context, ps_cut_piece_t *piece)
{
    world_t *world = context;
    assert_true(world->n_waiting < PS_CUT_PIECES_MAX);
    assert_true(piece->used != 0 && piece->used % IMAGE_BYTES == 0);
    world->waiting[world->n_waiting++] = piece;
}

/* Reads the images of the piece that waits longest, and gives it back. */
static void write_piece(world_t *world)
{
    ps_cut_piece_t *piece = world->waiting[0];
    if (world->n_waiting == 0)
        return;
    for (size_t at = 0; at < piece->used; at += IMAGE_BYTES) {
        ps_row_header_t row;
        uint32_t value;
        memcpy(&row, piece->bytes + at, sizeof row);
        memcpy(&value, piece->bytes + at + IMAGE_BYTES - sizeof value, sizeof value);
        assert_true(row.id < N_IDS && row.table == TABLE && row.state == PS_ROW_PRESENT);
        assert_true(row.flags == 0 && row.pins == 0);
        assert_int_equal(row.version, value);
        assert_int_equal(world->found[row.id], UINT32_MAX); /* no row twice */
        world->found[row.id] = value;
        world->kept++;
    }
    memmove(world->waiting, world->waiting + 1, --world->n_waiting * sizeof(ps_cut_piece_t *));
    ps_store_cut_put(world->store, piece);
}

static void wait_for_cut(world_t *world)
{
    psc_error_t error = PSC_ERROR_INIT;
    bool progress = false;
    write_piece(world);
    ps_store_cut_step(world->store, &progress);
    assert_int_equal(ps_store_poll(world->store, &progress, &error), PSC_OK);
}

/* Changes the rows of request's ids, or takes them away. */
static void change_request(world_t *world, test_request_t *request, bool erase)
{
    psc_error_t error = PSC_ERROR_INIT;
    test_request_set(request, TABLE, PS_BATCH_WRITE, BATCH);
    psc_status_t st;
    while ((st = ps_store_prepare(world->store, &request->batch, &error)) == PSC_BUSY)
        wait_for_cut(world);
    assert_int_equal(st, PSC_OK);
    while (!ps_store_ready(world->store, &request->batch))
        wait_for_cut(world);
    while ((st = erase ? ps_store_erase(world->store, &request->batch, &error)
                       : ps_store_cut_keep(world->store, &request->batch, &error)) == PSC_BUSY)
        wait_for_cut(world);
    assert_int_equal(st, PSC_OK);
    for (size_t i = 0; i < BATCH && erase; i++)
        world->now[request->ids[i]] = 0;
    for (size_t i = 0; i < BATCH && !erase; i++) {
        ps_row_header_t *row = ps_store_row(ps_store_base(world->store), request->places[i]);
        if (row->state == PS_ROW_ABSENT) {
            row->version = 0;
            ps_store_mark_new(world->store, row);
        }
        const uint32_t value = ++world->now[request->ids[i]];
        row->version = value;
        memset(row + 1, 0, ROW_BYTES);
        memcpy((uint8_t *)row + IMAGE_BYTES - sizeof value, &value, sizeof value);
        ps_store_mark_dirty(row);
    }
    ps_store_release(world->store, &request->batch);
}

/* The same of random ones. */
static void change_rows(world_t *world, bool erase)
{
    static test_request_t request;
    const bool near = test_below(&world->random, 3) != 0;
    const size_t span = near ? 2000 : N_IDS;
    for (size_t i = 0; i < BATCH; i++)
        request.ids[i] = test_below(&world->random, span);
    change_request(world, &request, erase);
}

/* The folder's rows with the images over them are what was there. What a row holds is its version.
 */
static void check_saved(const world_t *world, const char *saved)
{
    psc_error_t error = PSC_ERROR_INIT;
    ps_cold_t *cold = NULL;
    assert_int_equal(ps_cold_rocks_open(saved, (uint64_t)4 << 20, &cold, &error), PSC_OK);
    for (uint64_t id = 0; id < N_IDS; id++) {
        uint8_t record[IMAGE_BYTES];
        ps_cold_read_t read = {.head = record,
                               .body = record + sizeof(ps_row_header_t),
                               .head_size = sizeof(ps_row_header_t),
                               .size = IMAGE_BYTES};
        uint32_t value = 0;
        ps_cold_key(read.key, TABLE, psc_slot_of_hash(psc_row_hash(TABLE, id)), id);
        assert_int_equal(cold->ops->read(cold, &read, 1, &error), PSC_OK);
        if (read.found)
            memcpy(&value, record + IMAGE_BYTES - sizeof value, sizeof value);
        if (world->before[id] != UINT32_MAX && (!read.found || value < world->before[id]))
            value = world->before[id];
        if (world->found[id] != UINT32_MAX)
            value = world->found[id];
        assert_int_equal(value, world->then[id]);
    }
    cold->ops->destroy(cold);
}

/* Makes a cut, changing rows all the while; abandons it after some steps if asked to. Returns
 * whether it was partial. */
static bool cut_once(world_t *world, const char *name, bool abandon)
{
    char saved[512];
    psc_error_t error = PSC_ERROR_INIT;
    const ps_cut_options_t options = {.folder = test_path(saved, sizeof saved, world->folder, name),
                                      .partial = world->base,
                                      .give = take_piece,
                                      .context = world};
    for (size_t id = 0; id < N_IDS; id++) {
        if (world->found[id] != UINT32_MAX)
            world->before[id] = world->found[id];
    }
    memcpy(world->then, world->now, N_IDS * sizeof *world->then);
    memset(world->found, 0xff, N_IDS * sizeof *world->found);
    assert_int_equal(ps_store_cut_begin(world->store, &options, &error), PSC_OK);
    assert_int_equal(ps_store_cut_begin(world->store, &options, &error), PSC_BUSY);
    const bool partial = ps_store_cut_is_partial(world->store);
    assert_true(world->base || !partial);
    if (!partial)
        memset(world->before, 0xff, N_IDS * sizeof *world->before);
    for (unsigned turn = 0; ps_store_cut_state(world->store, &error) == PS_CUT_GOES_ON; turn++) {
        if (turn == world->give_up_at && abandon)
            ps_store_cut_abandon(world->store);
        change_rows(world, world->erase && test_below(&world->random, 8) == 0);
        wait_for_cut(world);
    }
    assert_int_equal(ps_store_cut_state(world->store, &error),
                     abandon ? PS_CUT_FAILED : PS_CUT_DONE);
    ps_store_cut_end(world->store);
    assert_int_equal(ps_store_cut_state(world->store, &error), PS_CUT_NONE);
    if (!abandon)
        check_saved(world, saved);
    world->base = !abandon;
    return partial;
}

static void open_world(world_t *world)
{
    char path[512];
    ps_cold_t *cold = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    *world = (world_t){.folder = test_scratch_create(),
                       .erase = true,
                       .give_up_at = 3,
                       .random = test_random_start()};
    assert_int_equal(ps_cold_rocks_open(test_path(path, sizeof path, world->folder, "live"),
                                        ps_cold_rocks_memory(PS_STORE_MIN_MEMORY), &cold, &error),
                     PSC_OK);
    world->store = test_store_open(cold);
    test_table_add(world->store, TABLE, ROW_BYTES);
    world->now = psc_alloc_zeroed(N_IDS, sizeof *world->now);
    world->then = psc_alloc_zeroed(N_IDS, sizeof *world->then);
    world->found = psc_alloc_zeroed(N_IDS, sizeof *world->found);
    world->before = psc_alloc_zeroed(N_IDS, sizeof *world->before);
    memset(world->found, 0xff, N_IDS * sizeof *world->found);
    memset(world->before, 0xff, N_IDS * sizeof *world->before);
}

static void close_world(world_t *world)
{
    test_store_close(world->store);
    psc_free(world->now);
    psc_free(world->then);
    psc_free(world->found);
    psc_free(world->before);
    test_scratch_destroy(world->folder);
}

static void a_cut_has_each_row_as_it_was_while_rows_change(void **state)
{
    (void)state;
    world_t world;
    open_world(&world);
    cut_once(&world, "empty", false);
    for (unsigned i = 0; i < 1500; i++)
        change_rows(&world, i % 50 == 49);
    ps_store_counters_t counters;
    ps_store_counters(world.store, &counters);
    assert_true(counters.evicted > 1000);
    cut_once(&world, "first", false);
    assert_true(world.kept > 1000);
    for (unsigned i = 0; i < 100; i++)
        change_rows(&world, false);
    cut_once(&world, "second", false);
    close_world(&world);
}

static void a_cut_that_is_given_up_leaves_nothing_to_the_next_one(void **state)
{
    (void)state;
    world_t world;
    open_world(&world);
    for (unsigned i = 0; i < 600; i++)
        change_rows(&world, false);
    cut_once(&world, "first", true);
    cut_once(&world, "second", false);
    close_world(&world);
}

/* Rows leave memory and come back meanwhile. */
static void partial_cuts_hand_out_what_changed_since_the_last(void **state)
{
    (void)state;
    world_t world;
    open_world(&world);
    world.erase = false;
    for (unsigned i = 0; i < 800; i++)
        change_rows(&world, i % 50 == 49);
    assert_false(cut_once(&world, "whole", false));
    const uint64_t whole = world.kept;
    for (unsigned i = 0; i < 4; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "partial-%u", i);
        const size_t n = i == 0 ? 1 : test_below(&world.random, 120);
        for (size_t k = 0; k < n; k++)
            change_rows(&world, false);
        world.kept = 0;
        assert_true(cut_once(&world, name, false));
        if (i == 0)
            assert_true(world.kept < whole); /* few changed */
    }
    change_rows(&world, true); /* what is gone must not come back from an older image */
    assert_false(cut_once(&world, "erased", false));
    assert_true(cut_once(&world, "partial", false));
    world.give_up_at = 0;
    (void)cut_once(&world, "abandoned", true);
    assert_false(cut_once(&world, "after", false));
    close_world(&world);
}

static void a_row_that_begins_anew_ends_partial_cuts(void **state)
{
    (void)state;
    static test_request_t request;
    world_t world;
    psc_error_t error = PSC_ERROR_INIT;
    open_world(&world);
    world.erase = false;
    change_rows(&world, false);
    assert_false(cut_once(&world, "whole", false));
    assert_true(cut_once(&world, "partial", false));
    for (uint64_t id = 0; id < N_IDS && request.batch.n == 0; id++) {
        request.ids[0] = id;
        if (world.now[id] != 0)
            test_request_set(&request, TABLE, PS_BATCH_WRITE, 1);
    }
    assert_int_equal(ps_store_prepare(world.store, &request.batch, &error), PSC_OK);
    while (!ps_store_ready(world.store, &request.batch))
        wait_for_cut(&world);
    ps_store_mark_begun(world.store, ps_store_row(ps_store_base(world.store), request.places[0]));
    ps_store_release(world.store, &request.batch);
    assert_false(cut_once(&world, "anew", false));
    assert_false(cut_once(&world, "and all others", false));
    close_world(&world);
}

/* A disk that is slow for a moment stops the walk, but not yet who is about to change rows. */
static void the_walk_leaves_pieces_to_pushes(void **state)
{
    (void)state;
    static test_request_t request;
    world_t world;
    char saved[512];
    psc_error_t error = PSC_ERROR_INIT;
    open_world(&world);
    for (uint64_t id = 0; id < 10200; id += BATCH) { /* many pages, and all of them in memory */
        for (size_t i = 0; i < BATCH; i++)
            request.ids[i] = id + i;
        change_request(&world, &request, false);
    }
    memcpy(world.then, world.now, N_IDS * sizeof *world.then);
    const ps_cut_options_t options = {.folder = test_path(saved, sizeof saved, world.folder, "cut"),
                                      .give = take_piece,
                                      .context = &world};
    assert_int_equal(ps_store_cut_begin(world.store, &options, &error), PSC_OK);
    bool progress = true;
    while (progress) { /* nothing is written */
        progress = false;
        ps_store_cut_step(world.store, &progress);
    }
    assert_true(world.n_waiting > 0 && world.n_waiting <= PS_CUT_WALK_PIECES);
    assert_int_equal(ps_store_cut_state(world.store, &error), PS_CUT_GOES_ON);
    const size_t walked = world.n_waiting;
    test_request_set(&request, TABLE, PS_BATCH_WRITE, BATCH); /* the last ones */
    assert_int_equal(ps_store_prepare(world.store, &request.batch, &error), PSC_OK);
    assert_true(ps_store_ready(world.store, &request.batch));
    assert_int_equal(ps_store_cut_keep(world.store, &request.batch, &error), PSC_OK);
    assert_int_equal(world.n_waiting, walked + 1); /* that is: in another piece */
    ps_store_release(world.store, &request.batch);
    while (ps_store_cut_state(world.store, &error) == PS_CUT_GOES_ON)
        wait_for_cut(&world);
    ps_store_cut_end(world.store);
    check_saved(&world, saved);
    close_world(&world);
}

static void a_folder_that_cannot_be_written_fails_the_cut_and_not_the_store(void **state)
{
    (void)state;
    world_t world;
    open_world(&world);
    change_rows(&world, false);
    psc_error_t error = PSC_ERROR_INIT;
    const ps_cut_options_t options = {
        .folder = "/proc/nowhere", .give = take_piece, .context = &world};
    assert_int_equal(ps_store_cut_begin(world.store, &options, &error), PSC_OK);
    while (ps_store_cut_state(world.store, &error) == PS_CUT_GOES_ON)
        wait_for_cut(&world);
    assert_int_equal(ps_store_cut_state(world.store, &error), PS_CUT_FAILED);
    assert_non_null(strstr(error.message, "/proc/nowhere"));
    ps_store_cut_end(world.store);
    change_rows(&world, false);
    cut_once(&world, "good", false);
    close_world(&world);
}

/* The pieces do not fit beside what others have taken. */
static void a_small_memory_is_cut_all_the_same(void **state)
{
    (void)state;
    world_t world;
    open_world(&world);
    psc_error_t error = PSC_ERROR_INIT;
    uint64_t taken = 0;
    while (ps_store_reserve_memory(world.store, 64 << 10, &error) == PSC_OK)
        taken += 64 << 10;
    for (unsigned i = 0; i < 100; i++)
        change_rows(&world, false);
    cut_once(&world, "small", false);
    ps_store_unreserve_memory(world.store, taken);
    close_world(&world);
}

static void memory_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    world_t world;
    open_world(&world);
    psc_error_t error = PSC_ERROR_INIT;
    const ps_cut_options_t options = {.folder = world.folder,
                                      .extra_bytes = PS_CUT_SPARE_BYTES,
                                      .give = take_piece,
                                      .context = &world};
    assert_int_equal(ps_store_cut_begin(world.store, &options, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_store_cut_state(world.store, &error), PS_CUT_NONE);
    cut_once(&world, "good", false);
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_has_each_row_as_it_was_while_rows_change),
        cmocka_unit_test(a_cut_that_is_given_up_leaves_nothing_to_the_next_one),
        cmocka_unit_test(partial_cuts_hand_out_what_changed_since_the_last),
        cmocka_unit_test(a_row_that_begins_anew_ends_partial_cuts),
        cmocka_unit_test(the_walk_leaves_pieces_to_pushes),
        cmocka_unit_test(a_folder_that_cannot_be_written_fails_the_cut_and_not_the_store),
        cmocka_unit_test(a_small_memory_is_cut_all_the_same),
        cmocka_unit_test(memory_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, test_store_setup, test_store_teardown);
}
