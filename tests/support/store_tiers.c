/*
 * The tier in front keeps a log of calls (read after the store is closed,
 * or while the tier is held and idle) and a gate made of a mutex and a condition variable.
 */
#include "tests/support/store_tiers.h"

#include "common/alloc.h"

#include <pthread.h>
#include <stdlib.h>

struct test_tier {
    ps_cold_t cold;
    ps_cold_t *inner;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool held;       /* guarded by lock */
    bool stalled;    /* guarded by lock */
    char calls[256]; /* guarded by lock */
    size_t n_calls;  /* guarded by lock */
};

/* NULL: a write is refused. */
static ps_cold_t *pass(ps_cold_t *cold, char call)
{
    test_tier_t *tier = (test_tier_t *)(void *)cold;
    (void)pthread_mutex_lock(&tier->lock);
    while (tier->held)
        (void)pthread_cond_wait(&tier->opened, &tier->lock);
    bool refused = call == 'w' && tier->stalled;
    if (!refused && tier->n_calls < sizeof tier->calls - 1)
        tier->calls[tier->n_calls++] = call;
    (void)pthread_mutex_unlock(&tier->lock);
    return refused ? NULL : tier->inner;
}

static psc_status_t tier_read(ps_cold_t *cold, ps_cold_read_t *reads, size_t n, psc_error_t *error)
{
    ps_cold_t *inner = pass(cold, 'r');
    return inner->ops->read(inner, reads, n, error);
}

static psc_status_t tier_write(ps_cold_t *cold, const ps_cold_write_t *writes, size_t n,
                               psc_error_t *error)
{
    ps_cold_t *inner = pass(cold, 'w');
    if (inner == NULL)
        return psc_error_set(error, PSC_BUSY, "writes have to wait, as asked for");
    return inner->ops->write(inner, writes, n, error);
}

static psc_status_t tier_scan(ps_cold_t *cold, ps_cold_scan_t *scan, psc_error_t *error)
{
    ps_cold_t *inner = pass(cold, 'h');
    return inner->ops->scan(inner, scan, error);
}

static psc_status_t tier_sync(ps_cold_t *cold, psc_error_t *error)
{
    ps_cold_t *inner = pass(cold, 's');
    return inner->ops->sync(inner, error);
}

static psc_status_t tier_save(ps_cold_t *cold, const char *folder, psc_error_t *error)
{
    ps_cold_t *inner = pass(cold, 'c');
    return inner->ops->save(inner, folder, error);
}

static void tier_destroy(ps_cold_t *cold)
{
    (void)cold; /* test_tier_destroy does it: the test still wants to look */
}

static const ps_cold_ops_t tier_ops = {
    .name = "test",
    .read = tier_read,
    .write = tier_write,
    .scan = tier_scan,
    .sync = tier_sync,
    .save = tier_save,
    .destroy = tier_destroy,
};

test_tier_t *test_tier_create(ps_cold_t *inner, bool was_empty)
{
    test_tier_t *tier = psc_alloc_zeroed(1, sizeof *tier);
    if (tier == NULL)
        abort();
    tier->cold.ops = &tier_ops;
    tier->cold.was_empty = was_empty;
    tier->inner = inner;
    (void)pthread_mutex_init(&tier->lock, NULL);
    (void)pthread_cond_init(&tier->opened, NULL);
    return tier;
}

ps_cold_t *test_tier_cold(test_tier_t *tier)
{
    return &tier->cold;
}

void test_tier_hold(test_tier_t *tier, bool hold)
{
    (void)pthread_mutex_lock(&tier->lock);
    tier->held = hold;
    (void)pthread_cond_broadcast(&tier->opened);
    (void)pthread_mutex_unlock(&tier->lock);
}

void test_tier_stall(test_tier_t *tier, bool stall)
{
    (void)pthread_mutex_lock(&tier->lock);
    tier->stalled = stall;
    (void)pthread_mutex_unlock(&tier->lock);
}

const char *test_tier_calls(const test_tier_t *tier)
{
    return tier->calls;
}

void test_tier_destroy(test_tier_t *tier)
{
    (void)pthread_cond_destroy(&tier->opened);
    (void)pthread_mutex_destroy(&tier->lock);
    psc_free(tier);
}
