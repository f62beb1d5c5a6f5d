/* The eviction policy: what it may never choose, and that it keeps what is used often. */
#include "common/alloc.h"
#include "ps/store/evict.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define PAGE 4096
#define PER_PAGE 64

typedef struct rows {
    ps_slab_t *slab;
    uint8_t *base;
    uint32_t class_id;
    ps_evict_hand_t hand;
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
    ps_slab_destroy(rows->slab);
    psc_free(rows);
}

static ps_place_t choose(rows_t *rows)
{
    return ps_evict_choose(rows->slab, rows->class_id, &rows->hand);
}

static void chooses_nothing_from_an_empty_class(void **state)
{
    (void)state;
    rows_t *rows = create_rows(1);
    uint32_t other;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_slab_class(rows->slab, 128, &other, &error), PSC_OK);
    ps_evict_hand_t hand = {0};
    assert_int_equal(ps_evict_choose(rows->slab, other, &hand), 0);
    assert_int_equal(ps_evict_choose_page(rows->slab, other, &hand), 0);
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
    for (int i = 0; i < 1000; i++)
        ps_evict_touch(&row);
    assert_int_equal(row.policy, PS_EVICT_MAX_USES);
    ps_evict_admit(&row);
    assert_int_equal(row.policy, 0);
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
    assert_int_equal(ps_evict_choose_page(rows->slab, rows->class_id, &rows->hand), 0);
    ps_row_header_t *row = row_at(rows, rows->places[3 * PER_PAGE + 3]);
    row->pins = 0;
    uint32_t page = ps_slab_page_of(rows->slab, rows->places[3 * PER_PAGE]);
    assert_int_equal(ps_evict_choose_page(rows->slab, rows->class_id, &rows->hand), page);
    row->state = PS_ROW_LOADING;
    assert_int_equal(ps_evict_choose_page(rows->slab, rows->class_id, &rows->hand), 0);
    row->state = PS_ROW_FREE;
    assert_int_equal(ps_evict_choose_page(rows->slab, rows->class_id, &rows->hand), page);
    rows->hand.page = page;
    ps_evict_forget_page(rows->slab, &rows->hand, page);
    assert_int_not_equal(rows->hand.page, page);
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
        row_at(rows, place)->id = 1;
        ps_evict_admit(row_at(rows, place));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_nothing_from_an_empty_class),
        cmocka_unit_test(never_chooses_rows_that_are_pinned_or_not_present),
        cmocka_unit_test(a_row_used_once_leaves_before_one_used_again),
        cmocka_unit_test(counters_saturate),
        cmocka_unit_test(looks_at_a_bounded_number_of_rows_when_all_are_hot),
        cmocka_unit_test(a_page_is_chosen_only_when_nothing_in_it_is_held),
        cmocka_unit_test(keeps_frequent_rows_better_than_first_in_first_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
