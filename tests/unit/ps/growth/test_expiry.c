/*
 * Ages at their borders, clocks past 32 bits, and floors against a list of rows that is counted
 * anew each time.
 */
#include "ps/growth/expiry.h"

#include "common/alloc.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

static ps_expiry_t *create(size_t n_slots, ps_expiry_rule_t rule, uint64_t clock)
{
    ps_expiry_t *expiry;
    assert_int_equal(ps_expiry_create(n_slots, &rule, clock, &expiry, NULL), PSC_OK);
    return expiry;
}

static void a_row_lives_one_life_and_is_remembered_for_another(void **state)
{
    (void)state;
    static const uint64_t lives[] = {1, 2, 15, 16, 17, 1000, INT32_MAX};
    for (size_t i = 0; i < sizeof lives / sizeof lives[0]; i++) {
        uint64_t life = lives[i];
        ps_expiry_t *expiry = create(1, (ps_expiry_rule_t){.after = life}, 0);
        ps_expiry_advance(expiry, life);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, 0), PS_AGE_LIVE);
        ps_expiry_advance(expiry, life + 1);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, 0), PS_AGE_EXPIRED);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, 1), PS_AGE_LIVE);
        ps_expiry_advance(expiry, 2 * life);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, 0), PS_AGE_EXPIRED);
        ps_expiry_advance(expiry, 2 * life + 1);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, 0), PS_AGE_FORGOTTEN);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, ps_expiry_now(expiry)), PS_AGE_LIVE);
        ps_expiry_destroy(expiry);
    }
    ps_expiry_destroy(NULL);
}

static void rare_rows_have_the_shorter_life(void **state)
{
    (void)state;
    ps_expiry_rule_t rule = {.after = 100, .rare_after = 10, .rare_below = 3};
    ps_expiry_t *expiry = create(1, rule, 11);
    assert_int_equal(ps_expiry_judge(expiry, 0, 2, 0), PS_AGE_EXPIRED);
    assert_int_equal(ps_expiry_judge(expiry, 0, 3, 0), PS_AGE_LIVE);
    assert_int_equal(ps_expiry_period(expiry), 2);
    ps_expiry_destroy(expiry);
    /* A longer one than the others' makes no difference. */
    rule.rare_after = 1000;
    expiry = create(1, rule, 101);
    assert_int_equal(ps_expiry_judge(expiry, 0, 0, 0), PS_AGE_EXPIRED);
    ps_expiry_destroy(expiry);
    /* Without a life for the others they stay for ever. */
    rule = (ps_expiry_rule_t){.rare_after = 320, .rare_below = 3};
    expiry = create(1, rule, UINT32_MAX);
    assert_int_equal(ps_expiry_judge(expiry, 0, 2, 0), PS_AGE_FORGOTTEN);
    assert_int_equal(ps_expiry_judge(expiry, 0, 3, 0), PS_AGE_LIVE);
    assert_int_equal(ps_expiry_period(expiry), 80);
    ps_expiry_destroy(expiry);
}

static void time_stands_still_after_32_bits_of_clocks(void **state)
{
    (void)state;
    for (uint32_t floor = 0; floor < 2; floor++) {
        ps_expiry_rule_t rule = {.after = 4, .floor = floor};
        ps_expiry_t *expiry = create(1, rule, (uint64_t)UINT32_MAX - 6);
        uint32_t old = ps_expiry_now(expiry);
        ps_expiry_add(expiry, 0, 1, old);
        ps_expiry_advance(expiry, (uint64_t)UINT32_MAX - 2);
        ps_expiry_add(expiry, 0, 1, ps_expiry_now(expiry));
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, old), PS_AGE_LIVE);
        ps_expiry_advance(expiry, (uint64_t)UINT32_MAX - 1);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, old), PS_AGE_EXPIRED);
        ps_expiry_advance(expiry, (uint64_t)UINT32_MAX + 1000);
        assert_int_equal(ps_expiry_now(expiry), UINT32_MAX);
        ps_expiry_advance(expiry, UINT64_MAX);
        assert_int_equal(ps_expiry_now(expiry), UINT32_MAX);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, old), PS_AGE_EXPIRED);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, UINT32_MAX - 1), PS_AGE_LIVE);
        assert_int_equal(ps_expiry_judge(expiry, 0, 1, UINT32_MAX), PS_AGE_LIVE);
        ps_expiry_destroy(expiry);
    }
}

static void a_clock_that_falls_changes_nothing(void **state)
{
    (void)state;
    ps_expiry_t *expiry = create(1, (ps_expiry_rule_t){.after = 2}, 10);
    ps_expiry_advance(expiry, 3);
    assert_int_equal(ps_expiry_now(expiry), 10);
    /* A row of an earlier run, whose clocks went further. */
    assert_int_equal(ps_expiry_judge(expiry, 0, 1, 1000), PS_AGE_LIVE);
    ps_expiry_destroy(expiry);
}

static void rows_that_were_never_counted_do_no_harm(void **state)
{
    (void)state;
    ps_expiry_t *expiry = create(1, (ps_expiry_rule_t){.after = 4, .floor = 2}, 10);
    ps_expiry_remove(expiry, 0, 1, 10);
    ps_expiry_remove(expiry, 0, 1, 3);
    ps_expiry_remove(expiry, 0, 1, 5000);
    assert_int_equal(ps_expiry_live(expiry, 0), 0);
    ps_expiry_add(expiry, 0, 1, 10);
    assert_int_equal(ps_expiry_live(expiry, 0), 1);
    ps_expiry_destroy(expiry);
}

/* ---- floors, against a list ---- */

#define N_ROWS 60u
#define STEPS 16u

typedef struct listed {
    bool live; /* as counted: cleared when its slot's horizon passes it */
    bool present;
    uint32_t update_count, last_clock;
    uint32_t expired_at; /* clock */
} listed_t;

typedef struct list {
    ps_expiry_rule_t rule;
    listed_t rows[N_ROWS];
    uint64_t life[2], step[2], horizon[2];
    uint32_t clock;
} list_t;

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static size_t kind_of(const list_t *list, const listed_t *row)
{
    return row->update_count < list->rule.rare_below ? 0 : 1;
}

static bool lives(const list_t *list, const listed_t *row, size_t kind, uint64_t horizon)
{
    return row->present && row->live && kind_of(list, row) == kind &&
           (list->life[kind] == 0 || row->last_clock / list->step[kind] >= horizon);
}

static size_t count(const list_t *list, size_t kind, uint64_t horizon)
{
    size_t n = 0;
    for (size_t i = 0; i < N_ROWS; i++)
        n += lives(list, &list->rows[i], kind, horizon);
    return n;
}

static void list_advance(list_t *list, uint32_t clock)
{
    bool begins = false;
    for (size_t kind = 0; kind < 2; kind++)
        begins |= clock / list->step[kind] != list->clock / list->step[kind];
    list->clock = clock;
    for (size_t kind = 0; begins && kind < 2; kind++) {
        uint64_t current = clock / list->step[kind];
        if (list->life[kind] == 0)
            continue;
        uint64_t steps = divide_up(list->life[kind], list->step[kind]);
        size_t others = count(list, 1 - kind, list->horizon[1 - kind]);
        uint64_t begin = current > STEPS + 1 ? current - (STEPS + 1) : 0;
        for (uint64_t h = current > steps ? current - steps : 0;
             h > list->horizon[kind] && h >= begin; h--) {
            if (others + count(list, kind, h) >= list->rule.floor) {
                list->horizon[kind] = h;
                break;
            }
        }
    }
    for (size_t i = 0; i < N_ROWS; i++) {
        listed_t *row = &list->rows[i];
        size_t kind = kind_of(list, row);
        if (row->live && row->present && !lives(list, row, kind, list->horizon[kind])) {
            row->live = false;
            row->expired_at = clock;
            assert_true(clock - row->last_clock > list->life[kind]); /* never too early */
        }
    }
}

static void compare(const list_t *list, const ps_expiry_t *expiry, size_t slot)
{
    size_t live = 0;
    for (size_t i = 0; i < N_ROWS; i++) {
        const listed_t *row = &list->rows[i];
        if (!row->present)
            continue;
        ps_age_t age = ps_expiry_judge(expiry, slot, row->update_count, row->last_clock);
        assert_int_equal(age == PS_AGE_LIVE, row->live);
        live += row->live;
    }
    assert_int_equal(ps_expiry_live(expiry, slot), live);
}

static void a_floor_of_the_newest_rows_stays_alive(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    for (int round = 0; round < 60; round++) {
        ps_expiry_rule_t rule = {.after =
                                     test_below(&random, 4) == 0 ? 0 : 1 + test_below(&random, 60),
                                 .rare_after = test_below(&random, 50),
                                 .rare_below = (uint32_t)test_below(&random, 4),
                                 .floor = 1 + (uint32_t)test_below(&random, 30)};
        static list_t list;
        list = (list_t){.rule = rule};
        bool rare = rule.rare_after != 0 && (rule.after == 0 || rule.rare_after < rule.after);
        list.life[0] = rare ? rule.rare_after : rule.after;
        list.life[1] = rule.after;
        for (size_t kind = 0; kind < 2; kind++)
            list.step[kind] = list.life[kind] != 0 ? divide_up(list.life[kind], STEPS) : 1;
        ps_expiry_t *expiry = create(3, rule, 0);
        size_t slot = test_below(&random, 3), pace = 1 + test_below(&random, 8);
        for (int turn = 0; turn < 600; turn++) {
            size_t before = (size_t)ps_expiry_live(expiry, slot);
            if (test_below(&random, pace) == 0) {
                uint32_t clock =
                    list.clock + (test_below(&random, 40) == 0 ? (uint32_t)test_below(&random, 300)
                                                               : (uint32_t)test_below(&random, 3));
                ps_expiry_advance(expiry, clock);
                list_advance(&list, clock);
                size_t floor = before < rule.floor ? before : rule.floor;
                assert_true(ps_expiry_live(expiry, slot) >= floor);
            } else {
                listed_t *row = &list.rows[test_below(&random, N_ROWS)];
                if (row->present)
                    ps_expiry_remove(expiry, slot, row->update_count, row->last_clock);
                if (!row->present || !row->live)
                    row->update_count = 0;
                *row = (listed_t){.live = true,
                                  .present = true,
                                  .update_count = row->update_count + 1,
                                  .last_clock = list.clock};
                ps_expiry_add(expiry, slot, row->update_count, row->last_clock);
            }
            compare(&list, expiry, slot);
        }
        ps_expiry_destroy(expiry);
    }
}

/* The counts of a slot depend on what happened in it and on the clock, not on other slots. */
static void slots_are_apart(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    ps_expiry_rule_t rule = {.after = 20, .rare_after = 5, .rare_below = 2, .floor = 3};
    ps_expiry_t *all = create(4, rule, 0), *one = create(1, rule, 0);
    uint32_t clock = 0;
    for (int i = 0; i < 5000; i++) {
        size_t slot = test_below(&random, 4);
        uint32_t updates = (uint32_t)test_below(&random, 4);
        if (test_below(&random, 6) == 0) {
            ps_expiry_advance(all, ++clock);
            ps_expiry_advance(one, clock);
        } else {
            ps_expiry_add(all, slot, updates, clock);
            if (slot == 2)
                ps_expiry_add(one, 0, updates, clock);
        }
        for (uint32_t last = clock > 50 ? clock - 50 : 0; last < clock; last++)
            assert_int_equal(ps_expiry_judge(all, 2, updates, last),
                             ps_expiry_judge(one, 0, updates, last));
    }
    ps_expiry_destroy(all);
    ps_expiry_destroy(one);
}

/* A slot that was saved goes on among others as where it was, also after clocks that it missed. */
static void a_slot_goes_on_from_its_bytes(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    ps_expiry_rule_t rule = {.after = 40, .rare_after = 20, .rare_below = 2, .floor = 3};
    for (uint32_t later = 0; later < 50; later += 7) {
        ps_expiry_t *all = create(4, rule, 0), *two = create(2, rule, 0);
        uint32_t clock = 0;
        for (int i = 0; i < 1000; i++) {
            if (test_below(&random, 6) == 0)
                ps_expiry_advance(all, ++clock);
            else
                ps_expiry_add(all, test_below(&random, 4), (uint32_t)test_below(&random, 4), clock);
        }
        const size_t n = ps_expiry_slot_bytes(all);
        uint8_t *image = psc_alloc(ps_expiry_image_bytes(all));
        assert_int_equal(ps_expiry_image_bytes(all), 4 * n);
        ps_expiry_save(all, image);
        ps_expiry_advance(two, clock + later);
        ps_expiry_load(two, 0, clock, image + 3 * n);
        ps_expiry_load(two, 1, clock, image + n);
        for (uint32_t passed = later; passed < 100; passed++) {
            ps_expiry_advance(all, clock + passed);
            ps_expiry_advance(two, clock + passed);
            assert_int_equal(ps_expiry_live(two, 0), ps_expiry_live(all, 3));
            assert_int_equal(ps_expiry_live(two, 1), ps_expiry_live(all, 1));
            for (uint32_t last = 0; last <= clock + passed; last += 3)
                assert_int_equal(ps_expiry_judge(two, 0, last % 4, last),
                                 ps_expiry_judge(all, 3, last % 4, last));
        }
        psc_free(image);
        ps_expiry_destroy(all);
        ps_expiry_destroy(two);
    }
    ps_expiry_t *none = create(2, (ps_expiry_rule_t){.after = 4}, 7);
    assert_int_equal(ps_expiry_slot_bytes(none), 0);
    ps_expiry_load(none, 1, 7, NULL);
    ps_expiry_destroy(none);
}

static void no_memory_is_told(void **state)
{
    (void)state;
    ps_expiry_rule_t rule = {.after = 20, .floor = 3};
    for (unsigned long n = 1; n <= 2; n++) {
        ps_expiry_t *expiry = NULL;
        psc_alloc_fail_at(n);
        assert_int_equal(ps_expiry_create(4, &rule, 0, &expiry, NULL), PSC_NO_MEMORY);
        psc_alloc_fail_at(0);
        assert_null(expiry);
    }
    assert_true(ps_expiry_bytes(1000, &rule) >= 1000 * 2 * 18 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_lives_one_life_and_is_remembered_for_another),
        cmocka_unit_test(rare_rows_have_the_shorter_life),
        cmocka_unit_test(time_stands_still_after_32_bits_of_clocks),
        cmocka_unit_test(a_clock_that_falls_changes_nothing),
        cmocka_unit_test(rows_that_were_never_counted_do_no_harm),
        cmocka_unit_test(a_floor_of_the_newest_rows_stays_alive),
        cmocka_unit_test(slots_are_apart),
        cmocka_unit_test(a_slot_goes_on_from_its_bytes),
        cmocka_unit_test(no_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
