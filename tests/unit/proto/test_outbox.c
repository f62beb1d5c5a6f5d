/* The outbox: who waits for whom, rests, and a network that loses, doubles and reorders calls. */
#include "common/alloc.h"
#include "proto/message.h"
#include "proto/outbox.h"

#include "tests/support/cmocka.h"
#include "tests/support/test_seed.h"

#include <stdlib.h>

static psp_pool_t *pool;
static psp_outbox_t *outbox;

static int setup(void **state)
{
    (void)state;
    return psp_pool_create(1 << 20, &pool, NULL) == PSC_OK &&
                   psp_outbox_create(7, &outbox, NULL) == PSC_OK
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    psp_outbox_destroy(outbox);
    psp_pool_destroy(pool); /* stops the program when a buffer is missing */
    return 0;
}

/* A message of this kind whose bytes are its number. */
static void add(uint32_t kind, uint64_t number)
{
    psp_buffer_t *buffer = NULL;
    assert_int_equal(psp_buffer_get(pool, sizeof number, &buffer, NULL), PSC_OK);
    memcpy(buffer->data, &number, sizeof number);
    buffer->size = sizeof number;
    buffer->kind = kind;
    assert_int_equal(psp_outbox_add(outbox, buffer, NULL), PSC_OK);
}

static uint64_t number_of(const psp_post_t *post)
{
    uint64_t number;
    memcpy(&number, post->buffer->data, sizeof number);
    return number;
}

static psp_post_t *assert_next(uint64_t now_us, uint64_t number)
{
    psp_post_t *post = psp_outbox_next(outbox, now_us);
    assert_non_null(post);
    assert_int_equal(number_of(post), number);
    return post;
}

static void pulls_and_pushes_leave_at_once_in_order(void **state)
{
    (void)state;
    add(PSP_PUSH, 1);
    add(PSP_PUSH, 2);
    add(PSP_PULL, 3);
    add(PSP_PULL, 4);
    psp_post_t *posts[4];
    for (uint64_t i = 0; i < 4; i++)
        posts[i] = assert_next(0, i + 1);
    assert_null(psp_outbox_next(outbox, 0));
    assert_int_equal(psp_outbox_bytes(outbox), 4 * sizeof(uint64_t));
    psp_outbox_done(outbox, posts[2]); /* in any order */
    psp_outbox_done(outbox, posts[0]);
    psp_outbox_done(outbox, posts[3]);
    assert_false(psp_outbox_is_empty(outbox));
    psp_outbox_done(outbox, posts[1]);
    assert_true(psp_outbox_is_empty(outbox));
    assert_int_equal(psp_outbox_bytes(outbox), 0);
}

static void a_push_waits_for_the_pulls_before_it_and_a_hint_for_nothing(void **state)
{
    (void)state;
    add(PSP_PULL, 1);
    add(PSP_PUSH, 2);
    add(PSP_PULL, 3);
    add(PSP_PREFETCH, 4);
    psp_post_t *pull = assert_next(0, 1);
    psp_post_t *later = assert_next(0, 3);
    psp_post_t *hint = assert_next(0, 4);
    assert_null(psp_outbox_next(outbox, 0));
    psp_outbox_done(outbox, pull);
    psp_post_t *push = assert_next(0, 2); /* not held by the pull behind it */
    psp_outbox_done(outbox, push);
    psp_outbox_done(outbox, hint);
    psp_outbox_done(outbox, later);
}

static void a_rest_doubles_with_every_failure_up_to_a_limit(void **state)
{
    (void)state;
    uint64_t now_us = 1000, whole_us = PSP_OUTBOX_FIRST_REST_US;
    add(PSP_PUSH, 1);
    for (uint64_t i = 0; i < 20; i++) {
        psp_post_t *post = assert_next(now_us, 1);
        assert_int_equal(post->attempts, i + 1);
        assert_int_equal(post->round, i);
        psp_outbox_fail(outbox, post, now_us);
        const uint64_t until_us = psp_outbox_rests_until(outbox);
        assert_true(until_us - now_us >= whole_us / 2 && until_us - now_us <= whole_us);
        assert_null(psp_outbox_next(outbox, until_us - 1));
        now_us = until_us;
        whole_us =
            whole_us * 2 < PSP_OUTBOX_LONGEST_REST_US ? whole_us * 2 : PSP_OUTBOX_LONGEST_REST_US;
    }
    psp_outbox_done(outbox, assert_next(now_us, 1)); /* begins anew */
    assert_int_equal(psp_outbox_rests_until(outbox), 0);
    add(PSP_PUSH, 2);
    psp_outbox_fail(outbox, assert_next(now_us, 2), now_us);
    assert_true(psp_outbox_rests_until(outbox) - now_us <= PSP_OUTBOX_FIRST_REST_US);
}

static void rests_of_two_clients_differ(void **state)
{
    (void)state;
    psp_outbox_t *mine = outbox;
    uint64_t until_us[2];
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(psp_outbox_create(i, &outbox, NULL), PSC_OK);
        add(PSP_PULL, 1);
        psp_outbox_fail(outbox, assert_next(0, 1), 0);
        until_us[i] = psp_outbox_rests_until(outbox);
        psp_outbox_destroy(outbox);
    }
    outbox = mine;
    assert_int_not_equal(until_us[0], until_us[1]);
}

static void a_lost_connection_is_one_failure_and_all_leave_again_in_order(void **state)
{
    (void)state;
    psp_post_t *posts[3];
    for (uint64_t i = 0; i < 3; i++)
        add(PSP_PULL, i);
    for (uint64_t i = 0; i < 3; i++)
        posts[i] = assert_next(0, i);
    for (size_t i = 3; i-- > 0;)
        psp_outbox_fail(outbox, posts[i], 10);
    const uint64_t now_us = psp_outbox_rests_until(outbox);
    psp_post_t *first = assert_next(now_us, 0);
    assert_int_equal(first->round, 1);            /* after one rest */
    assert_null(psp_outbox_next(outbox, now_us)); /* one by one, */
    add(PSP_PREFETCH, 3);
    psp_post_t *sign = assert_next(now_us, 3); /* but for signs of life, */
    psp_outbox_done(outbox, first);            /* until one is answered */
    psp_outbox_done(outbox, assert_next(now_us, 1));
    psp_outbox_done(outbox, assert_next(now_us, 2));
    psp_outbox_done(outbox, sign);
}

static void what_failed_alone_leaves_although_later_ones_wait_for_it(void **state)
{
    (void)state;
    add(PSP_PUSH, 1);
    add(PSP_PUSH, 2);
    psp_post_t *first = assert_next(0, 1);
    psp_post_t *second = assert_next(0, 2); /* held by the server until 1 comes */
    psp_outbox_fail(outbox, first, 0);
    const uint64_t now_us = psp_outbox_rests_until(outbox);
    first = assert_next(now_us, 1);
    psp_outbox_done(outbox, first);
    psp_outbox_done(outbox, second);
}

static void without_memory_the_message_is_put_back(void **state)
{
    (void)state;
    psp_buffer_t *buffer = NULL;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(psp_buffer_get(pool, 8, &buffer, NULL), PSC_OK);
    psc_alloc_fail_at(1);
    assert_int_equal(psp_outbox_add(outbox, buffer, &error), PSC_NO_MEMORY);
    psp_outbox_t *none = NULL;
    psc_alloc_fail_at(1);
    assert_int_equal(psp_outbox_create(0, &none, &error), PSC_NO_MEMORY);
    psc_alloc_fail_at(0);
    assert_int_equal(psp_pool_bytes_out(pool), 0);
}

/* ---- a network and a server ---- */

enum { MESSAGES = 300, COPIES = 4096, WINDOW = 20 };

/* A call: a copy of a message, somewhere between client and server. */
typedef struct copy {
    psp_post_t *post; /* NULL: nobody waits for it any more */
    uint64_t sequence;
    bool is_push;
    bool held;
    bool over;
} copy_t;

typedef struct world {
    test_random_t random;
    copy_t copies[COPIES];
    size_t n_copies;
    uint64_t next;                   /* sequence that the server waits for */
    uint64_t n_pushed;               /* pushes applied */
    uint64_t n_before[MESSAGES + 1]; /* pushes with a lower sequence, by sequence */
    bool is_push[MESSAGES + 1];
    size_t n_open;
    uint64_t now_us;
} world_t;

static void serve(world_t *w, copy_t *copy)
{
    const bool first_time = copy->sequence == w->next;
    copy->over = true;
    if (copy->is_push && first_time) {
        assert_int_equal(w->n_pushed, w->n_before[copy->sequence]);
        w->n_pushed++;
    }
    if (first_time)
        w->next++;
    if (copy->post == NULL)
        return;
    if (!copy->is_push) /* what the caller gets */
        assert_int_equal(w->n_pushed, w->n_before[copy->sequence]);
    psp_outbox_done(outbox, copy->post);
    w->n_open--;
}

static void arrive(world_t *w, copy_t *copy)
{
    copy->held = copy->sequence > w->next;
    if (!copy->held)
        serve(w, copy);
    for (size_t i = 0; i < w->n_copies; i++) { /* whose turn has come */
        copy_t *waiting = &w->copies[i];
        if (!waiting->over && waiting->held && waiting->sequence <= w->next) {
            serve(w, waiting);
            i = SIZE_MAX;
        }
    }
}

static copy_t *pick(world_t *w)
{
    for (int tries = 0; tries < 50 && w->n_copies != 0; tries++) {
        copy_t *copy = &w->copies[test_below(&w->random, w->n_copies)];
        if (!copy->over && !copy->held)
            return copy;
    }
    return NULL;
}

static void fail_call(world_t *w, copy_t *copy, bool lost)
{
    if (copy->over || copy->post == NULL)
        return;
    psp_outbox_fail(outbox, copy->post, w->now_us);
    copy->post = NULL;
    copy->over = lost && !copy->held;
}

/* Something happens. */
static void happen(world_t *w, bool calm)
{
    psp_post_t *post;
    copy_t *copy;
    w->now_us += calm ? PSP_OUTBOX_LONGEST_REST_US : 1000;
    while ((post = psp_outbox_next(outbox, w->now_us)) != NULL) {
        const uint64_t sequence = number_of(post);
        assert_true(w->n_copies < COPIES);
        w->copies[w->n_copies++] =
            (copy_t){.post = post, .sequence = sequence, .is_push = w->is_push[sequence]};
    }
    const size_t what = calm ? 2 : test_below(&w->random, 100);
    if (what == 0) { /* the connection breaks */
        for (size_t i = 0; i < w->n_copies; i++)
            fail_call(w, &w->copies[i], test_below(&w->random, 2) == 0);
    } else if (what == 1 && (copy = pick(w)) != NULL) { /* one call alone fails */
        fail_call(w, copy, true);
    } else if ((copy = pick(w)) != NULL) {
        arrive(w, copy);
    }
}

static void effects_happen_once_and_in_order_over_a_bad_network(void **state)
{
    (void)state;
    world_t *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->random = test_random_start();
    w->next = 1;
    for (uint64_t sequence = 1, pushes = 0; sequence <= MESSAGES; sequence++) {
        w->is_push[sequence] = test_below(&w->random, 2) == 0;
        w->n_before[sequence] = pushes;
        pushes += w->is_push[sequence];
        add(w->is_push[sequence] ? PSP_PUSH : PSP_PULL, sequence);
        w->n_open++;
        for (size_t i = test_below(&w->random, 4); i > 0 || w->n_open >= WINDOW; i -= i > 0)
            happen(w, false);
    }
    for (int i = 0; i < 10 * MESSAGES && w->n_open != 0; i++)
        happen(w, true);
    assert_int_equal(w->n_open, 0);
    assert_int_equal(w->next, MESSAGES + 1);
    assert_int_equal(w->n_pushed, w->n_before[MESSAGES] + w->is_push[MESSAGES]);
    free(w);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(pulls_and_pushes_leave_at_once_in_order),
        TEST(a_push_waits_for_the_pulls_before_it_and_a_hint_for_nothing),
        TEST(a_rest_doubles_with_every_failure_up_to_a_limit),
        TEST(rests_of_two_clients_differ),
        TEST(a_lost_connection_is_one_failure_and_all_leave_again_in_order),
        TEST(what_failed_alone_leaves_although_later_ones_wait_for_it),
        TEST(without_memory_the_message_is_put_back),
        TEST(effects_happen_once_and_in_order_over_a_bad_network),
    };
    return cmocka_run_group_tests_name("outbox", tests, NULL, NULL);
}
