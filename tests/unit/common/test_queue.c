/* The queue: order, many producers, waiting and waking. */
#include "common/queue.h"

#include "common/alloc.h"
#include "common/clock.h"

#include "tests/support/cmocka.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct item {
    psc_queue_node_t node; /* first: a node is an item */
    uint32_t producer;
    uint32_t number;
} item_t;

static psc_queue_t *create(void)
{
    psc_queue_t *queue = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psc_queue_create(&queue, &error), PSC_OK);
    return queue;
}

static void nodes_leave_in_the_order_they_came(void **state)
{
    (void)state;
    psc_queue_t *queue = create();
    item_t items[5];
    assert_false(psc_queue_ready(queue));
    assert_null(psc_queue_pop(queue));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5; i++)
            psc_queue_push(queue, &items[i].node);
        assert_true(psc_queue_ready(queue));
        for (int i = 0; i < 5; i++)
            assert_ptr_equal(psc_queue_pop(queue), &items[i].node);
        assert_null(psc_queue_pop(queue));
        assert_false(psc_queue_ready(queue));
    }
    psc_queue_destroy(queue);
}

static void push_and_pop_may_alternate(void **state)
{
    (void)state;
    psc_queue_t *queue = create();
    item_t items[3];
    psc_queue_push(queue, &items[0].node);
    psc_queue_push(queue, &items[1].node);
    assert_ptr_equal(psc_queue_pop(queue), &items[0].node);
    psc_queue_push(queue, &items[2].node);
    assert_ptr_equal(psc_queue_pop(queue), &items[1].node);
    psc_queue_push(queue, &items[0].node); /* the same node again */
    assert_ptr_equal(psc_queue_pop(queue), &items[2].node);
    assert_ptr_equal(psc_queue_pop(queue), &items[0].node);
    assert_null(psc_queue_pop(queue));
    psc_queue_destroy(queue);
    psc_queue_destroy(NULL);
}

enum { PRODUCERS = 4, ITEMS = 20000 };

typedef struct producer {
    pthread_t thread;
    psc_queue_t *queue;
    item_t items[ITEMS];
    uint32_t number;
} producer_t;

static void *produce(void *argument)
{
    producer_t *producer = argument;
    for (uint32_t i = 0; i < ITEMS; i++) {
        producer->items[i] = (item_t){.producer = producer->number, .number = i};
        psc_queue_push(producer->queue, &producer->items[i].node);
    }
    return NULL;
}

static void many_producers_lose_and_double_nothing(void **state)
{
    (void)state;
    static producer_t producers[PRODUCERS];
    psc_queue_t *queue = create();
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        producers[i].queue = queue;
        producers[i].number = i;
        assert_int_equal(pthread_create(&producers[i].thread, NULL, produce, &producers[i]), 0);
    }
    uint32_t next[PRODUCERS] = {0};
    for (uint32_t got = 0; got < PRODUCERS * ITEMS;) {
        psc_queue_wait(queue, UINT64_MAX);
        for (psc_queue_node_t *n = psc_queue_pop(queue); n != NULL; n = psc_queue_pop(queue)) {
            const item_t *item = (const item_t *)(const void *)n;
            assert_int_equal(item->number, next[item->producer]);
            next[item->producer]++;
            got++;
        }
    }
    for (int i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_join(producers[i].thread, NULL), 0);
    assert_null(psc_queue_pop(queue));
    psc_queue_destroy(queue);
}

static void a_wait_without_nodes_ends_at_its_time(void **state)
{
    (void)state;
    psc_queue_t *queue = create();
    uint64_t start = psc_clock_us();
    psc_queue_wait(queue, 0);
    psc_queue_wait(queue, 20000);
    assert_true(psc_clock_us() - start >= 20000);
    psc_queue_destroy(queue);
}

static void a_wait_with_a_node_ends_at_once(void **state)
{
    (void)state;
    psc_queue_t *queue = create();
    item_t item;
    psc_queue_push(queue, &item.node);
    psc_queue_wait(queue, UINT64_MAX); /* would hang */
    assert_ptr_equal(psc_queue_pop(queue), &item.node);
    psc_queue_destroy(queue);
}

static void a_wake_before_the_wait_ends_it_once(void **state)
{
    (void)state;
    psc_queue_t *queue = create();
    psc_queue_wake(queue);
    psc_queue_wake(queue);
    psc_queue_wait(queue, UINT64_MAX); /* would hang */
    uint64_t start = psc_clock_us();
    psc_queue_wait(queue, 5000); /* the wakes are used up */
    assert_true(psc_clock_us() - start >= 5000);
    psc_queue_destroy(queue);
}

typedef struct sleeper {
    psc_queue_t *queue;
    atomic_bool awake;
} sleeper_t;

static void *sleep_in_queue(void *argument)
{
    sleeper_t *sleeper = argument;
    psc_queue_wait(sleeper->queue, UINT64_MAX);
    atomic_store(&sleeper->awake, true);
    return NULL;
}

static void a_wake_ends_the_wait_of_another_thread(void **state)
{
    (void)state;
    sleeper_t sleeper = {.queue = create()};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, sleep_in_queue, &sleeper), 0);
    psc_queue_wake(sleeper.queue); /* before or in the wait: both must end it */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(atomic_load(&sleeper.awake));
    psc_queue_destroy(sleeper.queue);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    psc_queue_t *queue = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    psc_alloc_fail_at(1);
    psc_status_t st = psc_queue_create(&queue, &error);
    psc_alloc_fail_at(0);
    assert_int_equal(st, PSC_NO_MEMORY);
    assert_null(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_leave_in_the_order_they_came),
        cmocka_unit_test(push_and_pop_may_alternate),
        cmocka_unit_test(many_producers_lose_and_double_nothing),
        cmocka_unit_test(a_wait_without_nodes_ends_at_its_time),
        cmocka_unit_test(a_wait_with_a_node_ends_at_once),
        cmocka_unit_test(a_wake_before_the_wait_ends_it_once),
        cmocka_unit_test(a_wake_ends_the_wait_of_another_thread),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
