/* The buffer pool: reuse, its bound, and many threads at once. */
#include "common/alloc.h"
#include "common/rng.h"
#include "proto/buffer.h"

#include "tests/support/cmocka.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_bool stop;

static psp_pool_t *make_pool(size_t keep_bytes)
{
    psp_pool_t *pool = NULL;
    psc_error_t error;
    assert_int_equal(psp_pool_create(keep_bytes, &pool, &error), PSC_OK);
    return pool;
}

static psp_buffer_t *get(psp_pool_t *pool, size_t capacity)
{
    psp_buffer_t *buffer = NULL;
    psc_error_t error;
    assert_int_equal(psp_buffer_get(pool, capacity, &buffer, &error), PSC_OK);
    assert_true(buffer->capacity >= capacity);
    assert_int_equal(buffer->size, 0);
    assert_ptr_equal(buffer->pool, pool);
    assert_int_equal((uintptr_t)buffer->data % 64, 0);
    return buffer;
}

/* Gets and puts until it is told to stop, so that the pool's lock is held much of the time. */
static void *get_and_put(void *context)
{
    psp_buffer_t *buffer;
    psp_pool_t *pool = *(psp_pool_t **)context;
    while (!atomic_load(&stop)) {
        if (psp_buffer_get(pool, 100, &buffer, NULL) == PSC_OK)
            psp_buffer_put(buffer);
    }
    return NULL;
}

static void a_child_is_refused_before_any_lock(void **state)
{
    (void)state;
    enum { CHILDREN = 40 };
    psp_pool_t *pool = make_pool(1 << 20);
    psp_buffer_t *own = get(pool, 100), *none = NULL;
    const size_t out = psp_pool_bytes_out(pool);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, get_and_put, &pool), 0);
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            (void)alarm(60); /* one that waits for ever */
            const bool refused = psp_buffer_get(pool, 100, &none, NULL) == PSC_UNSUPPORTED;
            psp_buffer_put(own);
            psp_pool_destroy(pool);
            _exit(refused && none == NULL ? 0 : 1);
        }
        assert_true(child > 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(psp_pool_bytes_out(pool), out);
    psp_buffer_put(own);
    psp_pool_destroy(pool);
}

static void gives_aligned_room_of_every_size(void **state)
{
    (void)state;
    psp_pool_t *pool = make_pool(1 << 20);
    size_t sizes[] = {0,    1,     255,     256,     257,     511,     512,
                      4095, 65537, 1 << 20, 4194303, 4194304, 4194305, 10000000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        psp_buffer_t *buffer = get(pool, sizes[i]);
        memset(buffer->data, 0xA5, buffer->capacity); /* all of it is ours */
        assert_int_equal(psp_pool_bytes_out(pool), buffer->capacity);
        psp_buffer_put(buffer);
        assert_int_equal(psp_pool_bytes_out(pool), 0);
    }
    psp_pool_destroy(pool);
}

static void does_not_allocate_once_warm(void **state)
{
    (void)state;
    psp_pool_t *pool = make_pool(1 << 20);
    psp_buffer_put(get(pool, 5000));
    psp_buffer_put(get(pool, 300));
    psc_alloc_fail_at(0); /* resets the count */
    for (int i = 0; i < 100; i++) {
        psp_buffer_t *a = get(pool, 8192 - (size_t)i);
        psp_buffer_t *b = get(pool, 512 - (size_t)i);
        psp_buffer_put(a);
        psp_buffer_put(b);
    }
    assert_int_equal(psc_alloc_count(), 0);
    psp_pool_destroy(pool);
}

/* How many allocations n gets of the size need, all held at once. */
static unsigned long allocations_for(psp_pool_t *pool, size_t n, size_t size)
{
    psp_buffer_t *held[64];
    assert_true(n <= 64);
    psc_alloc_fail_at(0);
    for (size_t i = 0; i < n; i++)
        held[i] = get(pool, size);
    unsigned long count = psc_alloc_count();
    for (size_t i = 0; i < n; i++)
        psp_buffer_put(held[i]);
    return count;
}

static void keeps_no_more_than_its_bound(void **state)
{
    (void)state;
    psp_pool_t *pool = make_pool(10 * 4096);
    assert_int_equal(allocations_for(pool, 30, 4096), 30);
    assert_int_equal(allocations_for(pool, 30, 4096), 20); /* ten were kept */
    psp_pool_destroy(pool);

    pool = make_pool(0);
    assert_int_equal(allocations_for(pool, 3, 4096), 3);
    assert_int_equal(allocations_for(pool, 3, 4096), 3);
    psp_pool_destroy(pool);
}

static void follows_a_change_of_sizes(void **state)
{
    (void)state;
    psp_pool_t *pool = make_pool(10 * 4096);
    assert_int_equal(allocations_for(pool, 10, 4096), 10);
    assert_int_equal(allocations_for(pool, 2, 16384), 2); /* pushes small ones out when put back */
    assert_int_equal(allocations_for(pool, 2, 16384), 0);
    assert_int_equal(allocations_for(pool, 2, 4096), 0); /* and leaves what fits beside them */
    assert_int_equal(allocations_for(pool, 3, 4096), 1);
    psp_pool_destroy(pool);
}

static void abandoned_memory_no_longer_counts(void **state)
{
    (void)state;
    psp_pool_t *pool = make_pool(1 << 20);
    psp_buffer_t *buffer = get(pool, 100);
    psp_buffer_abandon(buffer);
    assert_int_equal(psp_pool_bytes_out(pool), 0);
    psp_pool_destroy(pool);
    psc_free(buffer); /* only here, where nobody reads from it */
}

static void a_shared_buffer_is_free_when_all_have_put_it_back(void **state)
{
    (void)state;
    psp_pool_t *pool = make_pool(1 << 20);
    psp_buffer_t *buffer = get(pool, 300);
    for (int round = 0; round < 2; round++) {
        psp_buffer_share(buffer);
        psp_buffer_share(buffer);
        for (int owner = 0; owner < 2; owner++) {
            psp_buffer_put(buffer);
            assert_int_equal(psp_pool_bytes_out(pool), buffer->capacity);
        }
    }
    psp_buffer_put(buffer);
    assert_int_equal(psp_pool_bytes_out(pool), 0);
    buffer = get(pool, 300); /* has one owner again */
    psp_buffer_put(buffer);
    assert_int_equal(psp_pool_bytes_out(pool), 0);
    psp_pool_destroy(pool);
}

static void a_failed_allocation_is_reported(void **state)
{
    (void)state;
    psp_pool_t *pool = NULL;
    psc_error_t error;
    psc_alloc_fail_at(1);
    assert_int_equal(psp_pool_create(100, &pool, &error), PSC_NO_MEMORY);
    psc_alloc_fail_at(0);
    pool = make_pool(100);
    psp_buffer_t *buffer = NULL;
    psc_alloc_fail_at(1);
    assert_int_equal(psp_buffer_get(pool, 100, &buffer, &error), PSC_NO_MEMORY);
    psc_alloc_fail_at(0);
    assert_int_equal(psp_buffer_get(pool, SIZE_MAX, &buffer, &error), PSC_NO_MEMORY);
    assert_null(buffer);
    assert_int_equal(psp_pool_bytes_out(pool), 0);
    psp_pool_destroy(pool);
}

static void putting_nothing_is_fine(void **state)
{
    (void)state;
    psp_buffer_put(NULL);
    psp_pool_destroy(NULL);
}

enum { THREADS = 4, ROUNDS = 20000, HELD = 8 };

typedef struct churn {
    psp_pool_t *pool;
    uint64_t stream;
    bool failed;
} churn_t;

/* Gets and puts at random; each buffer holds its own pattern, so that one given out twice shows. */
static void *churn(void *argument)
{
    churn_t *c = argument;
    psp_buffer_t *held[HELD] = {NULL};
    for (uint64_t i = 0; i < ROUNDS; i++) {
        size_t at = psc_rng_at(c->stream, 2 * i) % HELD;
        uint8_t mark = (uint8_t)(c->stream + at);
        if (held[at] != NULL) {
            c->failed |= held[at]->data[0] != mark || held[at]->data[held[at]->size - 1] != mark;
            psp_buffer_put(held[at]);
            held[at] = NULL;
            continue;
        }
        size_t size = 1 + psc_rng_at(c->stream, 2 * i + 1) % 5000;
        if (psp_buffer_get(c->pool, size, &held[at], NULL) != PSC_OK)
            continue;
        held[at]->size = size;
        memset(held[at]->data, mark, size);
    }
    for (size_t at = 0; at < HELD; at++)
        psp_buffer_put(held[at]);
    return NULL;
}

static void many_threads_share_a_pool(void **state)
{
    (void)state;
    psp_pool_t *pool = make_pool(64 << 10);
    pthread_t threads[THREADS];
    churn_t churns[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        churns[i] = (churn_t){.pool = pool, .stream = i * 64};
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &churns[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_false(churns[i].failed);
    }
    assert_int_equal(psp_pool_bytes_out(pool), 0);
    psp_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_refused_before_any_lock),
        cmocka_unit_test(gives_aligned_room_of_every_size),
        cmocka_unit_test(does_not_allocate_once_warm),
        cmocka_unit_test(keeps_no_more_than_its_bound),
        cmocka_unit_test(follows_a_change_of_sizes),
        cmocka_unit_test(abandoned_memory_no_longer_counts),
        cmocka_unit_test(a_shared_buffer_is_free_when_all_have_put_it_back),
        cmocka_unit_test(a_failed_allocation_is_reported),
        cmocka_unit_test(putting_nothing_is_fine),
        cmocka_unit_test(many_threads_share_a_pool),
    };
    return cmocka_run_group_tests_name("buffer", tests, NULL, NULL);
}
