/* Splitting by owner, against the definition. */
#include "worker/router.h"

#include "common/alloc.h"

#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

enum { MOST = 500 };

static void check(psw_router_t *router, const psc_slot_map_t *map, const uint64_t *hashes,
                  const uint32_t *labels, size_t n)
{
    uint32_t order[MOST];
    const uint32_t *start;
    assert_int_equal(psw_router_split(router, map, hashes, labels, n, order, &start, NULL), PSC_OK);
    assert_int_equal(start[0], 0);
    assert_int_equal(start[map->n_servers], n);
    for (uint32_t s = 0; s < map->n_servers; s++) {
        uint32_t at = start[s];
        for (size_t i = 0; i < n; i++) { /* all items of s, in input order */
            if (map->owner[hashes[i] % PSC_SLOT_COUNT] != s)
                continue;
            assert_true(at < start[s + 1]);
            assert_int_equal(order[at], labels != NULL ? labels[i] : i);
            at++;
        }
        assert_int_equal(at, start[s + 1]);
    }
}

static void every_row_goes_to_its_owner_in_input_order(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    psw_router_t *router;
    assert_int_equal(psw_router_create(&router, NULL), PSC_OK);
    static const uint32_t servers[] = {1, 2, 3, 7, 64, PSC_MAX_SERVERS, 2};
    for (size_t k = 0; k < sizeof servers / sizeof *servers; k++) {
        psc_slot_map_t map;
        assert_int_equal(psc_slot_map_init(&map, servers[k], NULL), PSC_OK);
        for (uint32_t slot = 0; slot < PSC_SLOT_COUNT; slot++) /* any map, not only the first */
            map.owner[slot] = (uint16_t)test_below(&random, servers[k]);
        uint64_t hashes[MOST];
        uint32_t labels[MOST];
        for (size_t i = 0; i < MOST; i++) {
            hashes[i] = test_next(&random);
            labels[i] = (uint32_t)(3 * i + 1);
        }
        check(router, &map, hashes, NULL, 0);
        check(router, &map, hashes, NULL, 1);
        check(router, &map, hashes, NULL, MOST);
        check(router, &map, hashes, labels, MOST / 2);
    }
    psw_router_destroy(router);
    psw_router_destroy(NULL);
}

static void a_warm_router_does_not_allocate(void **state)
{
    (void)state;
    psw_router_t *router;
    assert_int_equal(psw_router_create(&router, NULL), PSC_OK);
    psc_slot_map_t map;
    assert_int_equal(psc_slot_map_init(&map, 5, NULL), PSC_OK);
    uint64_t hashes[MOST];
    for (size_t i = 0; i < MOST; i++)
        hashes[i] = psc_row_hash(1, i);
    check(router, &map, hashes, NULL, MOST);
    psc_alloc_fail_at(0);
    for (size_t n = 0; n <= MOST; n += 25)
        check(router, &map, hashes, NULL, n);
    assert_int_equal(psc_alloc_count(), 0);
    psw_router_destroy(router);
}

static void memory_that_is_short_is_an_error(void **state)
{
    (void)state;
    psw_router_t *router;
    psc_alloc_fail_at(1);
    assert_int_equal(psw_router_create(&router, NULL), PSC_NO_MEMORY);
    psc_alloc_fail_at(0);
    assert_int_equal(psw_router_create(&router, NULL), PSC_OK);
    psc_slot_map_t map;
    assert_int_equal(psc_slot_map_init(&map, 5, NULL), PSC_OK);
    const uint64_t hashes[3] = {1, 2, 3};
    uint32_t order[3];
    const uint32_t *start;
    for (unsigned long n = 1; n <= 2; n++) {
        psc_alloc_fail_at(n);
        assert_int_equal(psw_router_split(router, &map, hashes, NULL, 3, order, &start, NULL),
                         PSC_NO_MEMORY);
    }
    psc_alloc_fail_at(0);
    check(router, &map, hashes, NULL, 3);
    psw_router_destroy(router);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_goes_to_its_owner_in_input_order),
        cmocka_unit_test(a_warm_router_does_not_allocate),
        cmocka_unit_test(memory_that_is_short_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
