/* The slot map: equal contiguous runs, checked when it comes from outside. */
#include "common/slots.h"

#include "tests/support/cmocka.h"

static psc_slot_map_t map;

static void runs_are_contiguous_and_equal_within_one(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 3, 5, 7, 64, 1000, 4095, PSC_MAX_SERVERS};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        uint32_t n = counts[c];
        psc_error_t error = PSC_ERROR_INIT;
        assert_int_equal(psc_slot_map_init(&map, n, &error), PSC_OK);
        assert_int_equal(map.epoch, 1);
        assert_int_equal(map.n_servers, n);
        assert_int_equal(map.owner[0], 0);
        assert_int_equal(map.owner[PSC_SLOT_COUNT - 1], n - 1);
        uint32_t run = 1;
        for (uint32_t slot = 1; slot <= PSC_SLOT_COUNT; slot++) {
            if (slot < PSC_SLOT_COUNT && map.owner[slot] == map.owner[slot - 1]) {
                run++;
                continue;
            }
            assert_in_range(run, PSC_SLOT_COUNT / n, PSC_SLOT_COUNT / n + 1);
            if (slot < PSC_SLOT_COUNT)
                assert_int_equal(map.owner[slot], map.owner[slot - 1] + 1);
            run = 1;
        }
        assert_int_equal(psc_slot_map_check(&map, &error), PSC_OK);
    }
}

static void zero_and_too_many_servers_are_refused(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_slot_map_init(&map, 0, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(psc_slot_map_init(&map, PSC_MAX_SERVERS + 1, &error), PSC_INVALID_ARGUMENT);
    assert_string_equal(error.message, "4097 servers asked for; 1 to 4096 are possible");
    assert_int_equal(psc_slot_map_init(&map, UINT32_MAX, NULL), PSC_INVALID_ARGUMENT);
}

static void a_damaged_map_is_told(void **state)
{
    (void)state;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_slot_map_init(&map, 3, &error), PSC_OK);
    map.owner[9000] = 3;
    assert_int_equal(psc_slot_map_check(&map, &error), PSC_CORRUPT);
    assert_string_equal(error.message, "slot 9000 belongs to server 3 of only 3");
    map.owner[9000] = 2;
    assert_int_equal(psc_slot_map_check(&map, &error), PSC_OK);
    map.n_servers = 0;
    assert_int_equal(psc_slot_map_check(&map, &error), PSC_CORRUPT);
    map.n_servers = PSC_MAX_SERVERS + 1;
    assert_int_equal(psc_slot_map_check(&map, &error), PSC_CORRUPT);
}

static void owner_follows_the_low_bits_of_the_hash(void **state)
{
    (void)state;
    assert_int_equal(psc_slot_map_init(&map, 5, NULL), PSC_OK);
    for (uint64_t id = 0; id < 1000; id++) {
        uint64_t hash = psc_row_hash(2, id);
        assert_int_equal(psc_slot_of_hash(hash), hash % 16384);
        assert_int_equal(psc_slot_owner(&map, hash), hash % 16384 * 5 / 16384);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_contiguous_and_equal_within_one),
        cmocka_unit_test(zero_and_too_many_servers_are_refused),
        cmocka_unit_test(a_damaged_map_is_told),
        cmocka_unit_test(owner_follows_the_low_bits_of_the_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
