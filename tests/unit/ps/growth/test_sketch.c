/* The sketch never counts too little, is exact while it has room, and its slots are apart. */
#include "ps/growth/sketch.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define N_IDS 600u
#define N_SLOTS 5u
#define LIMIT 200u

static void count_is_never_too_small_and_stops_at_the_limit(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    ps_sketch_t *sketch;
    uint32_t truth[N_SLOTS][N_IDS] = {{0}};
    assert_int_equal(ps_sketch_create(N_SLOTS, 512, LIMIT, &sketch, NULL), PSC_OK);
    for (int i = 0; i < 200000; i++) {
        size_t slot = test_below(&random, N_SLOTS);
        size_t id = test_below(&random, test_below(&random, 2) == 0 ? 20 : N_IDS);
        uint64_t hash = psc_row_hash((uint32_t)slot, id);
        uint32_t before = ps_sketch_count(sketch, slot, hash);
        uint32_t after = ps_sketch_add(sketch, slot, hash);
        truth[slot][id]++;
        uint32_t least = truth[slot][id] < LIMIT ? truth[slot][id] : LIMIT;
        assert_true(after >= least && after <= LIMIT);
        assert_int_equal(after, before < LIMIT ? before + 1 : LIMIT);
        assert_int_equal(after, ps_sketch_count(sketch, slot, hash));
    }
    for (size_t slot = 0; slot < N_SLOTS; slot++) {
        for (size_t id = 0; id < N_IDS; id++) {
            uint32_t least = truth[slot][id] < LIMIT ? truth[slot][id] : LIMIT;
            assert_true(ps_sketch_count(sketch, slot, psc_row_hash((uint32_t)slot, id)) >= least);
        }
    }
    ps_sketch_destroy(sketch);
}

/* With n ids an id is counted too high by the chance that its four counters are taken. */
static void few_counts_are_too_large_when_there_is_room(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    ps_sketch_t *sketch;
    size_t wrong = 0;
    enum { SLOTS = 400, IDS = 32 }; /* (1 - exp(-4 * 32 / 512))^4 is 0.24% */
    assert_int_equal(ps_sketch_create(SLOTS, 512, 3, &sketch, NULL), PSC_OK);
    for (size_t slot = 0; slot < SLOTS; slot++) {
        for (size_t i = 0; i < IDS; i++)
            wrong += ps_sketch_add(sketch, slot, test_next(&random)) != 1;
    }
    assert_true(wrong < SLOTS * IDS / 100);
    ps_sketch_destroy(sketch);
}

/* The counts of a slot depend on its own sightings alone, however slots are numbered. */
static void slots_are_apart(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    ps_sketch_t *all, *one[N_SLOTS];
    assert_int_equal(ps_sketch_create(N_SLOTS, 16, 7, &all, NULL), PSC_OK);
    for (size_t i = 0; i < N_SLOTS; i++)
        assert_int_equal(ps_sketch_create(1, 16, 7, &one[i], NULL), PSC_OK);
    for (int i = 0; i < 20000; i++) {
        size_t slot = test_below(&random, N_SLOTS);
        uint64_t hash = psc_mix64(test_below(&random, 300));
        if (test_below(&random, 30) == 0)
            assert_int_equal(ps_sketch_add(all, slot, hash), ps_sketch_add(one[slot], 0, hash));
        else
            assert_int_equal(ps_sketch_count(all, slot, hash), ps_sketch_count(one[slot], 0, hash));
    }
    ps_sketch_destroy(all);
    for (size_t i = 0; i < N_SLOTS; i++)
        ps_sketch_destroy(one[i]);
}

static void a_slot_goes_on_from_its_bytes(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    ps_sketch_t *all, *two;
    assert_int_equal(ps_sketch_create(N_SLOTS, 16, 7, &all, NULL), PSC_OK);
    assert_int_equal(ps_sketch_create(2, 16, 7, &two, NULL), PSC_OK);
    for (int i = 0; i < 500; i++)
        (void)ps_sketch_add(all, test_below(&random, N_SLOTS), psc_mix64(test_below(&random, 300)));
    const size_t n = ps_sketch_slot_bytes(all);
    uint8_t *image = psc_alloc(ps_sketch_image_bytes(all));
    assert_int_equal(ps_sketch_image_bytes(all), N_SLOTS * n);
    ps_sketch_save(all, image);
    ps_sketch_load(two, 1, image);
    ps_sketch_load(two, 0, image + (N_SLOTS - 1) * n);
    for (uint64_t id = 0; id < 300; id++) {
        assert_int_equal(ps_sketch_add(two, 1, psc_mix64(id)),
                         ps_sketch_add(all, 0, psc_mix64(id)));
        assert_int_equal(ps_sketch_count(two, 0, psc_mix64(id)),
                         ps_sketch_count(all, N_SLOTS - 1, psc_mix64(id)));
    }
    psc_free(image);
    ps_sketch_destroy(all);
    ps_sketch_destroy(two);
}

static void sizes_out_of_bounds_are_refused_in_words(void **state)
{
    (void)state;
    static const struct {
        uint32_t counters, limit;
    } bad[] = {{0, 2}, {2, 2}, {513, 2}, {PS_SKETCH_COUNTERS_MAX * 2, 2}, {512, 0}, {512, 256}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        psc_error_t error = PSC_ERROR_INIT;
        ps_sketch_t *sketch = NULL;
        assert_int_equal(ps_sketch_create(1, bad[i].counters, bad[i].limit, &sketch, &error),
                         PSC_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "power of two"));
    }
    ps_sketch_t *sketch;
    assert_int_equal(ps_sketch_create(2, PS_SKETCH_COUNTERS_MIN, UINT8_MAX, &sketch, NULL), PSC_OK);
    for (uint32_t i = 1; i <= 300; i++)
        assert_int_equal(ps_sketch_add(sketch, 1, 77), i < UINT8_MAX ? i : UINT8_MAX);
    assert_int_equal(ps_sketch_count(sketch, 0, 77), 0);
    ps_sketch_destroy(sketch);
    ps_sketch_destroy(NULL);
    assert_true(ps_sketch_bytes(100, 512) >= 100 * 512);
}

static void no_memory_is_told(void **state)
{
    (void)state;
    for (unsigned long n = 1; n <= 2; n++) {
        ps_sketch_t *sketch = NULL;
        psc_alloc_fail_at(n);
        assert_int_equal(ps_sketch_create(4, 64, 3, &sketch, NULL), PSC_NO_MEMORY);
        psc_alloc_fail_at(0);
        assert_null(sketch);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(count_is_never_too_small_and_stops_at_the_limit),
        cmocka_unit_test(few_counts_are_too_large_when_there_is_room),
        cmocka_unit_test(slots_are_apart),
        cmocka_unit_test(a_slot_goes_on_from_its_bytes),
        cmocka_unit_test(sizes_out_of_bounds_are_refused_in_words),
        cmocka_unit_test(no_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
