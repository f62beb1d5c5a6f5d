/* The slab: records do not overlap, pages move between classes, the budget holds. */
#include "common/alloc.h"
#include "ps/store/slab.h"
#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <string.h>

#define PAGE 65536
#define OVERHEAD 12
#define MAX_TAKEN 40000

static ps_slab_t *create(uint64_t budget)
{
    ps_slab_t *slab = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_slab_create(budget, PAGE, OVERHEAD, &slab, &error), PSC_OK);
    return slab;
}

static uint32_t class_of(ps_slab_t *slab, size_t record_bytes)
{
    uint32_t class_id = UINT32_MAX;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_slab_class(slab, record_bytes, &class_id, &error), PSC_OK);
    return class_id;
}

/* A record, of another page when needed; 0 when the budget is used up. */
static ps_place_t take(ps_slab_t *slab, uint32_t class_id)
{
    ps_place_t place = ps_slab_take(slab, class_id);
    if (place == 0 && ps_slab_grow(slab, class_id, NULL) == PSC_OK)
        place = ps_slab_take(slab, class_id);
    return place;
}

static void refuses_sizes_that_are_not_possible(void **state)
{
    (void)state;
    ps_slab_t *slab = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(ps_slab_create(1 << 20, 5000, 0, &slab, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_slab_create(1 << 20, 64, 0, &slab, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_slab_create(PAGE - 1, PAGE, 0, &slab, &error), PSC_INVALID_ARGUMENT);
    slab = create(1 << 20);
    uint32_t class_id;
    assert_int_equal(ps_slab_class(slab, 0, &class_id, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_slab_class(slab, 100, &class_id, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(ps_slab_class(slab, PAGE + 64, &class_id, &error), PSC_INVALID_ARGUMENT);
    assert_int_equal(class_of(slab, 64), class_of(slab, 64));
    assert_int_equal(class_of(slab, PAGE), 1);
    ps_slab_destroy(slab);
    ps_slab_destroy(NULL);
}

static void gives_what_the_budget_allows_and_no_more(void **state)
{
    (void)state;
    static const size_t sizes[] = {48, 64, 288, 448, 20032, PAGE};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t budget = 20 * PAGE + 1000;
        ps_slab_t *slab = create(budget);
        uint32_t class_id = class_of(slab, sizes[s]);
        size_t n = 0;
        ps_place_t place;
        while ((place = take(slab, class_id)) != 0) {
            memset(ps_store_row(ps_slab_base(slab), place), 1, sizes[s]);
            n++;
            assert_true(ps_slab_charged_bytes(slab) <= budget);
        }
        assert_int_equal(n, ps_slab_capacity(budget, PAGE, OVERHEAD, sizes[s]));
        assert_int_equal(ps_slab_grow(slab, class_id, NULL), PSC_BUSY);
        ps_slab_destroy(slab);
    }
}

typedef struct taken {
    ps_place_t place;
    uint32_t class_id;
    uint8_t fill;
} taken_t;

static void check_fill(const ps_slab_t *slab, const taken_t *taken, size_t size)
{
    const uint8_t *bytes = (const uint8_t *)ps_store_row(ps_slab_base(slab), taken->place);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(bytes[i], taken->fill);
}

static void records_never_overlap(void **state)
{
    (void)state;
    static const size_t sizes[] = {48, 208, 3008, 30016};
    static taken_t taken[MAX_TAKEN];
    size_t n = 0;
    ps_slab_t *slab = create(40 * PAGE);
    test_random_t random = test_random_start();
    for (size_t c = 0; c < 4; c++)
        assert_int_equal(class_of(slab, sizes[c]), c);
    for (int step = 0; step < 60000; step++) {
        if (test_below(&random, 5) < 3) {
            uint32_t class_id = (uint32_t)test_below(&random, 4);
            ps_place_t place = n < MAX_TAKEN ? take(slab, class_id) : 0;
            if (place == 0)
                continue;
            uint8_t fill = (uint8_t)test_next(&random);
            taken[n++] = (taken_t){.place = place, .class_id = class_id, .fill = fill};
            memset(ps_store_row(ps_slab_base(slab), place), fill, sizes[class_id]);
        } else if (n > 0) {
            size_t i = test_below(&random, n);
            check_fill(slab, &taken[i], sizes[taken[i].class_id]);
            ps_slab_give(slab, taken[i].place);
            taken[i] = taken[--n];
        }
    }
    for (size_t i = 0; i < n; i++)
        check_fill(slab, &taken[i], sizes[taken[i].class_id]);
    ps_slab_destroy(slab);
}

static void a_page_can_go_to_another_class(void **state)
{
    (void)state;
    uint64_t budget = 8 * PAGE;
    ps_slab_t *slab = create(budget);
    uint32_t small = class_of(slab, 64), large = class_of(slab, PAGE);
    size_t n_large = 0;
    while (take(slab, large) != 0)
        n_large++;
    assert_true(n_large >= 7);
    assert_int_equal(take(slab, small), 0);
    /* Small records cost more beside their page: one page more may have to leave. */
    int n_freed = 0;
    ps_place_t place = 0;
    while (place == 0) {
        uint32_t page = ps_slab_first_page(slab, large);
        assert_int_equal(ps_slab_page_used(slab, page), 1);
        ps_slab_give(slab, ps_slab_page_place(slab, page, 0));
        ps_slab_page_free(slab, page);
        n_freed++;
        place = take(slab, small);
        assert_true(ps_slab_charged_bytes(slab) <= budget);
    }
    assert_true(n_freed <= 2);
    assert_int_equal(ps_slab_n_pages(slab, small), 1);
    assert_int_equal(ps_slab_n_pages(slab, large), n_large - (size_t)n_freed);
    assert_int_equal(ps_slab_page_records(slab, ps_slab_page_of(slab, place)), 1);
    ps_slab_destroy(slab);
}

static void the_ring_of_a_class_holds_each_page_once(void **state)
{
    (void)state;
    ps_slab_t *slab = create(32 * PAGE);
    uint32_t class_id = class_of(slab, PAGE);
    assert_int_equal(ps_slab_first_page(slab, class_id), 0);
    for (int i = 0; i < 10; i++)
        assert_int_not_equal(take(slab, class_id), 0);
    /* Frees every second page. */
    uint32_t page = ps_slab_first_page(slab, class_id);
    for (int i = 0; i < 5; i++) {
        uint32_t next = ps_slab_next_page(slab, page);
        ps_slab_give(slab, ps_slab_page_place(slab, page, 0));
        ps_slab_page_free(slab, page);
        page = ps_slab_next_page(slab, next);
    }
    bool seen[64] = {false};
    page = ps_slab_first_page(slab, class_id);
    for (uint32_t i = 0; i < ps_slab_n_pages(slab, class_id); i++) {
        assert_false(seen[page]);
        seen[page] = true;
        page = ps_slab_next_page(slab, page);
    }
    assert_int_equal(ps_slab_n_pages(slab, class_id), 5);
    assert_int_equal(page, ps_slab_first_page(slab, class_id));
    assert_int_equal(ps_slab_free_records(slab, class_id), 0);
    ps_slab_destroy(slab);
}

static void a_failed_allocation_is_reported(void **state)
{
    (void)state;
    ps_slab_t *slab = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    for (unsigned long n = 1; n <= 2; n++) {
        psc_alloc_fail_at(n);
        assert_int_equal(ps_slab_create(8 * PAGE, PAGE, 0, &slab, &error), PSC_NO_MEMORY);
    }
    psc_alloc_fail_at(0);
    slab = create(8 * PAGE);
    uint32_t class_id;
    psc_alloc_fail_at(1);
    assert_int_equal(ps_slab_class(slab, 64, &class_id, &error), PSC_NO_MEMORY);
    psc_alloc_fail_at(0);
    assert_int_equal(ps_slab_n_classes(slab), 0);
    ps_slab_destroy(slab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_sizes_that_are_not_possible),
        cmocka_unit_test(gives_what_the_budget_allows_and_no_more),
        cmocka_unit_test(records_never_overlap),
        cmocka_unit_test(a_page_can_go_to_another_class),
        cmocka_unit_test(the_ring_of_a_class_holds_each_page_once),
        cmocka_unit_test(a_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
