/* The eviction policy: what it may never choose, and that it keeps what is used often. */
#include "common/alloc.h"
#include "common/hash.h"
#include "ps/store/evict.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define PAGE 4096
#define PER_PAGE 64 /* records, of 64 bytes */

typedef struct rows {
    ps_slab_t *slab;
    uint8_t *base;
    uint32_t class_id;
    ps_evict_class_t evict;
    size_t n;
    ps_place_t places[4096];
} rows_t;

static ps_row_header_t *row_at(const rows_t *rows, ps_place_t place)
{
    return ps_store_row(rows->base, place);
}

/* n_pages pages full of rows that are present, not pinned, never used since. */
static rows_t *create_rows(size_t n_pages)
{
    rows_t *rows = psc_alloc_zeroed(1, sizeof *rows);
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_slab_create(n_pages * PAGE, PAGE, 0, &rows->slab, &error), PSC_OK);
    assert_int_equal(ps_slab_class(rows->slab, 64, &rows->class_id, &error), PSC_OK);
    rows->base = ps_slab_base(rows->slab);
    for (size_t page = 0; page < n_pages; page++) {
        assert_int_equal(ps_slab_grow(rows->slab, rows->class_id, &error), PSC_OK);
        for (int i = 0; i < PER_PAGE; i++) {
            ps_place_t place = ps_slab_take(rows->slab, rows->class_id);
            rows->places[rows->n++] = place;
            memset(row_at(rows, place), 0, 64);
            row_at(rows, place)->state = PS_ROW_PRESENT;
        }
    }
    return rows;
}

static void destroy_rows(rows_t *rows)
{
    ps_evict_clear(&rows->evict);
    ps_slab_destroy(rows->slab);
    psc_free(rows);
}

static ps_place_t choose(rows_t *rows)
{
    return ps_evict_choose(rows->slab, rows->class_id, &rows->evict);
}

static void chooses_nothing_from_an_empty_class(void **state)
{
    (void)state;
    rows_t *rows = create_rows(1);
    uint32_t other;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_slab_class(rows->slab, 128, &other, &error), PSC_OK);
    ps_evict_class_t evict = {0};
    assert_int_equal(ps_evict_choose(rows->slab, other, &evict), 0);
    assert_int_equal(ps_evict_choose_page(rows->slab, other, &evict), 0);
    destroy_rows(rows);
}

static void never_chooses_rows_that_are_pinned_or_not_present(void **state)
{
    (void)state;
    rows_t *rows = create_rows(8);
    test_random_t random = test_random_start();
    for (int round = 0; round < 300; round++) {
        size_t n_eligible = 0;
        for (size_t i = 0; i < rows->n; i++) {
            ps_row_header_t *row = row_at(rows, rows->places[i]);
            row->state = (uint8_t)test_below(&random, 4);
            row->pins = (uint16_t)(test_below(&random, 8) == 0 ? 0 : 1);
            row->policy = (uint8_t)test_below(&random, PS_EVICT_MAX_USES + 1);
            n_eligible += row->state == PS_ROW_PRESENT && row->pins == 0;
        }
        ps_place_t place = choose(rows);
        assert_int_equal(place != 0, n_eligible != 0);
        if (place != 0) {
            assert_int_equal(row_at(rows, place)->state, PS_ROW_PRESENT);
            assert_int_equal(row_at(rows, place)->pins, 0);
        }
    }
    for (size_t i = 0; i < rows->n; i++)
        row_at(rows, rows->places[i])->pins = 1;
    assert_int_equal(choose(rows), 0);
    /* The only eligible row is found wherever the hand is. */
    row_at(rows, rows->places[77])->state = PS_ROW_PRESENT;
    row_at(rows, rows->places[77])->pins = 0;
    for (int i = 0; i < 5; i++)
        assert_int_equal(choose(rows), rows->places[77]);
    destroy_rows(rows);
}

static void a_row_used_once_leaves_before_one_used_again(void **state)
{
    (void)state;
    rows_t *rows = create_rows(1);
    for (size_t i = 0; i < rows->n; i += 2)
        ps_evict_touch(row_at(rows, rows->places[i]));
    for (size_t i = 0; i < rows->n / 2; i++) {
        ps_place_t place = choose(rows);
        for (size_t k = 0; k < rows->n; k += 2)
            assert_int_not_equal(place, rows->places[k]);
        row_at(rows, place)->state = PS_ROW_FREE;
    }
    assert_int_not_equal(choose(rows), 0);
    destroy_rows(rows);
}

static void counters_saturate(void **state)
{
    (void)state;
    ps_row_header_t row = {0};
    for (int newcomer = 0; newcomer < 2; newcomer++) {
        row.policy = newcomer ? PS_EVICT_NEWCOMER : 0;
        for (int i = 0; i < 1000; i++)
            ps_evict_touch(&row);
        assert_int_equal(row.policy & PS_EVICT_USES, PS_EVICT_MAX_USES);
        assert_int_equal(row.policy & PS_EVICT_NEWCOMER, newcomer ? PS_EVICT_NEWCOMER : 0);
    }
}

/* ---- newcomers ---- */

/* Evicts a row and gives its record to row `id` of table 1. Returns the id of who left. */
static uint64_t replace(rows_t *rows, uint64_t id, ps_place_t *place_out)
{
    ps_place_t place = choose(rows);
    assert_int_not_equal(place, 0);
    ps_row_header_t *row = row_at(rows, place);
    uint64_t left = row->id;
    memset(row, 0, sizeof *row);
    row->id = id;
    row->table = 1;
    row->state = PS_ROW_PRESENT;
    ps_evict_admit(&rows->evict, row, place, psc_row_hash(1, id));
    if (place_out != NULL)
        *place_out = place;
    return left;
}

/*
 * 1,024 rows with id 0, all used often but the first 65; the first eviction is behind it. So 64
 * newcomers, a sixteenth, find room.
 */
static rows_t *create_hot_rows(void)
{
    rows_t *rows = create_rows(16);
    for (size_t i = 65; i < rows->n; i++)
        row_at(rows, rows->places[i])->policy = PS_EVICT_MAX_USES;
    (void)choose(rows);
    return rows;
}

static void rows_seen_once_leave_and_displace_nothing_that_is_used(void **state)
{
    (void)state;
    rows_t *rows = create_hot_rows();
    for (uint64_t id = 1; id <= 64; id++)
        assert_int_equal(replace(rows, id, NULL), 0);
    for (uint64_t id = 65; id <= 10000; id++) {
        (void)replace(rows, id, NULL);
        for (size_t i = id % 50 == 0 ? 65 : rows->n; i < rows->n; i++)
            ps_evict_touch(row_at(rows, rows->places[i]));
    }
    size_t n_old = 0;
    for (size_t i = 0; i < rows->n; i++)
        n_old += row_at(rows, rows->places[i])->id == 0;
    assert_true(n_old >= rows->n - 65);
    destroy_rows(rows);
}

static void a_newcomer_used_twice_stays(void **state)
{
    (void)state;
    rows_t *rows = create_hot_rows();
    ps_place_t once, twice;
    (void)replace(rows, 1, &once);
    (void)replace(rows, 2, &twice);
    ps_evict_touch(row_at(rows, once));
    ps_evict_touch(row_at(rows, twice));
    ps_evict_touch(row_at(rows, twice));
    for (uint64_t id = 3; id < 120; id++)
        (void)replace(rows, id, NULL);
    assert_int_not_equal(row_at(rows, once)->id, 1);
    assert_int_equal(row_at(rows, twice)->id, 2);
    assert_int_equal(row_at(rows, twice)->policy & PS_EVICT_NEWCOMER, 0);
    destroy_rows(rows);
}

static void a_row_that_comes_back_soon_is_no_newcomer(void **state)
{
    (void)state;
    rows_t *rows = create_hot_rows();
    uint64_t id = 1;
    while (replace(rows, id, NULL) != 10)
        id++;
    ps_place_t place;
    (void)replace(rows, 10, &place);
    assert_int_equal(row_at(rows, place)->policy, 0);
    /* Much later it is forgotten. */
    for (uint64_t i = 0; i < 5000; i++)
        (void)replace(rows, ++id, NULL);
    if (row_at(rows, place)->id != 10) {
        (void)replace(rows, 10, &place);
        assert_int_equal(row_at(rows, place)->policy, PS_EVICT_NEWCOMER);
    }
    destroy_rows(rows);
}

/* Few of the rows that never were there seem known. */
static void strangers_are_seldom_taken_for_known(void **state)
{
    (void)state;
    rows_t *rows = create_hot_rows();
    size_t n_known = 0;
    for (uint64_t id = 1; id <= 20000; id++) {
        ps_place_t place;
        (void)replace(rows, id, &place);
        n_known += row_at(rows, place)->policy == 0;
    }
    print_message("%zu of 20000\n", n_known);
    assert_true(n_known < 2000);
    destroy_rows(rows);
}

/* As when rows are pulled, and pushed some batches later. */
static void the_queue_grows_until_what_comes_back_is_still_there(void **state)
{
    (void)state;
    enum { BATCH = 50, N_BATCHES = 300 };
    rows_t *rows = create_hot_rows();
    static ps_place_t where[BATCH * N_BATCHES];
    size_t n_missed = 0;
    for (size_t b = 0; b < N_BATCHES; b++) {
        for (size_t i = b * BATCH; i < (b + 1) * BATCH; i++)
            (void)replace(rows, i + 1, &where[i]);
        for (size_t i = (b - 2) * BATCH; b >= 2 && i < (b - 1) * BATCH; i++) {
            bool hit = row_at(rows, where[i])->id == i + 1;
            n_missed += !hit && b >= N_BATCHES / 2;
            if (hit)
                ps_evict_touch(row_at(rows, where[i]));
            else
                (void)replace(rows, i + 1, &where[i]);
        }
    }
    print_message("%zu of %d came too late\n", n_missed, BATCH * N_BATCHES / 2);
    assert_true(n_missed < BATCH * N_BATCHES / 2 / 4);
    destroy_rows(rows);
}

static void pinned_newcomers_wait_for_their_judgement(void **state)
{
    (void)state;
    rows_t *rows = create_hot_rows();
    ps_place_t places[65];
    for (uint64_t id = 1; id <= 64; id++) {
        (void)replace(rows, id, &places[id]);
        row_at(rows, places[id])->pins = 1;
    }
    for (uint64_t id = 65; id <= 300; id++)
        (void)replace(rows, id, NULL);
    for (uint64_t id = 1; id <= 64; id++) {
        assert_int_equal(row_at(rows, places[id])->id, id);
        row_at(rows, places[id])->pins = 0;
    }
    size_t n_left = 0;
    for (uint64_t id = 301; id <= 600; id++) {
        uint64_t left = replace(rows, id, NULL);
        n_left += left >= 1 && left <= 64;
    }
    assert_int_equal(n_left, 64);
    destroy_rows(rows);
}

static void places_of_pages_that_went_elsewhere_are_passed_over(void **state)
{
    (void)state;
    rows_t *rows = create_hot_rows();
    for (uint64_t id = 1; id <= 64; id++)
        (void)replace(rows, id, NULL);
    /* Every page becomes one of records of 1,024 bytes with nonsense between them. */
    uint32_t other;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_slab_class(rows->slab, 1024, &other, &error), PSC_OK);
    for (size_t i = 0; i < rows->n; i++)
        ps_slab_give(rows->slab, rows->places[i]);
    for (int page = 0; page < 15; page++) {
        uint32_t first = ps_slab_first_page(rows->slab, rows->class_id);
        ps_evict_forget_page(rows->slab, &rows->evict, first);
        ps_slab_page_free(rows->slab, first);
        assert_int_equal(ps_slab_grow(rows->slab, other, &error), PSC_OK);
        for (int i = 0; i < 4; i++) {
            ps_place_t place = ps_slab_take(rows->slab, other);
            memset(row_at(rows, place), 0xff, 1024);
        }
    }
    assert_int_equal(choose(rows), 0);
    ps_place_t place = ps_slab_take(rows->slab, rows->class_id);
    memset(row_at(rows, place), 0, 64);
    row_at(rows, place)->state = PS_ROW_PRESENT;
    assert_int_equal(choose(rows), place);
    destroy_rows(rows);
}

static void without_memory_of_its_own_it_is_a_clock(void **state)
{
    (void)state;
    for (unsigned long n = 1; n <= 2; n++) {
        rows_t *rows = create_rows(16);
        psc_alloc_fail_at(n);
        uint64_t id = 1;
        (void)replace(rows, id, NULL);
        psc_alloc_fail_at(0);
        while (id < 3000)
            (void)replace(rows, ++id, NULL);
        assert_true(rows->evict.n_ring == 0 || rows->evict.left == NULL);
        destroy_rows(rows);
    }
}

static void memory_of_its_own_stays_within_its_bound(void **state)
{
    (void)state;
    rows_t *rows = create_rows(48);
    test_random_t random = test_random_start();
    for (int i = 0; i < 100000; i++)
        (void)replace(rows, 1 + test_below(&random, i < 50000 ? 20000 : 4000), NULL);
    size_t bytes = rows->evict.n_ring * sizeof *rows->evict.newcomers +
                   (size_t)2 * rows->evict.n_lines * sizeof *rows->evict.left;
    assert_true(bytes <= rows->n * PS_EVICT_ROW_BYTES);
    destroy_rows(rows);
}

static void looks_at_a_bounded_number_of_rows_when_all_are_hot(void **state)
{
    (void)state;
    rows_t *rows = create_rows(16);
    for (size_t i = 0; i < rows->n; i++)
        row_at(rows, rows->places[i])->policy = PS_EVICT_MAX_USES;
    assert_int_not_equal(choose(rows), 0);
    size_t n_changed = 0;
    for (size_t i = 0; i < rows->n; i++)
        n_changed += row_at(rows, rows->places[i])->policy != PS_EVICT_MAX_USES;
    assert_true(n_changed <= 64);
    destroy_rows(rows);
}

static void a_page_is_chosen_only_when_nothing_in_it_is_held(void **state)
{
    (void)state;
    rows_t *rows = create_rows(6);
    for (size_t page = 0; page < 6; page++)
        row_at(rows, rows->places[page * PER_PAGE + page])->pins = 1;
    assert_int_equal(ps_evict_choose_page(rows->slab, rows->class_id, &rows->evict), 0);
    ps_row_header_t *row = row_at(rows, rows->places[3 * PER_PAGE + 3]);
    row->pins = 0;
    uint32_t page = ps_slab_page_of(rows->slab, rows->places[3 * PER_PAGE]);
    assert_int_equal(ps_evict_choose_page(rows->slab, rows->class_id, &rows->evict), page);
    row->state = PS_ROW_LOADING;
    assert_int_equal(ps_evict_choose_page(rows->slab, rows->class_id, &rows->evict), 0);
    row->state = PS_ROW_FREE;
    assert_int_equal(ps_evict_choose_page(rows->slab, rows->class_id, &rows->evict), page);
    rows->evict.page = page;
    ps_evict_forget_page(rows->slab, &rows->evict, page);
    assert_int_not_equal(rows->evict.page, page);
    destroy_rows(rows);
}

/* Ids by a law like Zipf's: rank r with probability about 1 / (r + 1). */
static size_t draw_zipf(test_random_t *random, size_t n)
{
    size_t bits = 0;
    while ((size_t)1 << (bits + 1) <= n)
        bits++;
    size_t octave = test_below(random, bits + 1);
    size_t first = (size_t)1 << octave;
    size_t id = first + test_below(random, first) - 1;
    return id < n ? id : n - 1;
}

/* Hits in n_uses, with as many rows as fit in 8 pages; `fifo`: the oldest leaves instead. */
static size_t count_hits(uint64_t seed, bool fifo)
{
    enum { N_IDS = 8192 };
    rows_t *rows = create_rows(8);
    test_random_t random = {.key = seed};
    static ps_place_t where[N_IDS];
    static size_t id_in[8 * PER_PAGE];
    memset(where, 0, sizeof where);
    size_t n_hits = 0, n_in = 0, oldest = 0;
    for (int i = 0; i < 100000; i++) {
        size_t id = draw_zipf(&random, N_IDS);
        if (where[id] != 0) {
            n_hits++;
            ps_evict_touch(row_at(rows, where[id]));
            continue;
        }
        ps_place_t place;
        if (n_in < rows->n)
            place = rows->places[n_in++];
        else
            place = fifo ? rows->places[oldest++ % rows->n] : choose(rows);
        size_t k = 0;
        while (rows->places[k] != place)
            k++;
        if (row_at(rows, place)->id != 0)
            where[id_in[k]] = 0;
        id_in[k] = id;
        where[id] = place;
        row_at(rows, place)->id = 1 + id;
        ps_evict_admit(&rows->evict, row_at(rows, place), place, psc_row_hash(0, 1 + id));
    }
    destroy_rows(rows);
    return n_hits;
}

static void keeps_frequent_rows_better_than_first_in_first_out(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    size_t clock = count_hits(random.key, false), fifo = count_hits(random.key, true);
    print_message("hits of 100000: %zu, first in first out: %zu\n", clock, fifo);
    assert_true(clock > fifo + 2000);
}

/* Announces the i-th row. */
static void announce(rows_t *rows, size_t i)
{
    ps_place_t place = rows->places[i];
    assert_true(ps_evict_ahead_room(rows->slab, rows->class_id, &rows->evict) > 0);
    ps_evict_announce(&rows->evict, row_at(rows, place), place, psc_mix64(i));
}

static void a_row_ahead_of_its_use_goes_last(void **state)
{
    (void)state;
    rows_t *rows = create_rows(2);
    const size_t ahead = rows->n / PS_EVICT_AHEAD_SHARE;
    for (size_t i = 0; i < ahead; i++)
        announce(rows, 10 * i);
    assert_int_equal(ps_evict_ahead_room(rows->slab, rows->class_id, &rows->evict), 0);
    for (size_t n = 0; n < rows->n; n++) {
        ps_place_t place = choose(rows);
        assert_true(place != 0);
        bool is_ahead = (row_at(rows, place)->policy & PS_EVICT_AHEAD) != 0;
        assert_int_equal(is_ahead, n >= rows->n - ahead);
        ps_slab_give(rows->slab, place);
    }
    destroy_rows(rows);
}

static void a_row_that_was_used_or_has_lapsed_is_ahead_no_longer(void **state)
{
    (void)state;
    rows_t *rows = create_rows(2);
    (void)choose(rows); /* makes the queue */
    const size_t ahead = rows->n / PS_EVICT_AHEAD_SHARE;
    for (size_t i = 0; i < ahead; i++)
        announce(rows, i);
    ps_evict_touch(row_at(rows, rows->places[1]));
    assert_int_equal(row_at(rows, rows->places[1])->policy, PS_EVICT_NEWCOMER);
    assert_int_equal(ps_evict_ahead_room(rows->slab, rows->class_id, &rows->evict), 0);
    ps_evict_touch(row_at(rows, rows->places[0]));
    assert_int_equal(ps_evict_ahead_room(rows->slab, rows->class_id, &rows->evict), 2);
    ps_evict_lapse(rows->slab, rows->class_id, &rows->evict, 1);
    assert_int_equal(row_at(rows, rows->places[2])->policy & PS_EVICT_AHEAD, 0);
    assert_int_equal(ps_evict_ahead_room(rows->slab, rows->class_id, &rows->evict), 3);
    ps_evict_lapse(rows->slab, rows->class_id, &rows->evict, SIZE_MAX);
    assert_int_equal(ps_evict_ahead_room(rows->slab, rows->class_id, &rows->evict), ahead);
    destroy_rows(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_nothing_from_an_empty_class),
        cmocka_unit_test(never_chooses_rows_that_are_pinned_or_not_present),
        cmocka_unit_test(a_row_used_once_leaves_before_one_used_again),
        cmocka_unit_test(counters_saturate),
        cmocka_unit_test(rows_seen_once_leave_and_displace_nothing_that_is_used),
        cmocka_unit_test(a_newcomer_used_twice_stays),
        cmocka_unit_test(a_row_that_comes_back_soon_is_no_newcomer),
        cmocka_unit_test(strangers_are_seldom_taken_for_known),
        cmocka_unit_test(the_queue_grows_until_what_comes_back_is_still_there),
        cmocka_unit_test(pinned_newcomers_wait_for_their_judgement),
        cmocka_unit_test(places_of_pages_that_went_elsewhere_are_passed_over),
        cmocka_unit_test(without_memory_of_its_own_it_is_a_clock),
        cmocka_unit_test(memory_of_its_own_stays_within_its_bound),
        cmocka_unit_test(looks_at_a_bounded_number_of_rows_when_all_are_hot),
        cmocka_unit_test(a_page_is_chosen_only_when_nothing_in_it_is_held),
        cmocka_unit_test(keeps_frequent_rows_better_than_first_in_first_out),
        cmocka_unit_test(a_row_ahead_of_its_use_goes_last),
        cmocka_unit_test(a_row_that_was_used_or_has_lapsed_is_ahead_no_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
