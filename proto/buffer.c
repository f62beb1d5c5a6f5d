/*
 * The buffer pool: free lists by size class under one mutex.
 *
 * A class is a power of two from 256 bytes to 4 MiB; what is larger is allocated for its message
 * alone. The struct stands in the 128 bytes before its data, so that a buffer is one allocation.
 * Pages that a message does not touch cost nothing, which is why a class may be twice the size
 * asked for.
 *
 * The pool keeps at most keep_bytes. A buffer that comes back when it is full pushes out others of
 * the class that holds most, so that the pool follows a change of message sizes instead of keeping
 * what nobody asks for any more.
 *
 * Threads: any thread gets and puts; the mutex is held for a few instructions and at most for a
 * scan of the classes, never over allocation. A thread that held it when the process was forked is
 * not there in the child, who would wait for ever: so a child is told from its parent first.
 */
#include "proto/buffer.h"

#include "common/alloc.h"
#include "common/fork_mark.h"
#include "proto/message_memory.h"

#include <pthread.h>

#define HEADER_BYTES 128u
#define SMALLEST_SHIFT 8u
#define N_CLASSES 15u /* 256 bytes to 4 MiB */

_Static_assert(sizeof(psp_buffer_t) <= HEADER_BYTES, "data follows the struct");

struct psp_pool {
    psc_fork_mark_t *mark; /* of the process that made it */
    pthread_mutex_t lock;
    psc_queue_node_t *free_list[N_CLASSES]; /* guarded by lock */
    size_t kept_in[N_CLASSES];              /* bytes in each list; guarded by lock */
    size_t kept_bytes;                      /* their sum; guarded by lock */
    size_t keep_bytes;
    atomic_size_t bytes_out;
    bool seals;           /* messages have room for one */
    psp_memory_t *memory; /* what it has is guarded by lock; NULL: none */
};

static size_t class_bytes(unsigned int class_index)
{
    return (size_t)1 << (SMALLEST_SHIFT + class_index);
}

/* The smallest class that holds capacity; N_CLASSES when none does. */
static unsigned int class_of(size_t capacity)
{
    if (capacity <= class_bytes(0))
        return 0;
    if (capacity > class_bytes(N_CLASSES - 1))
        return N_CLASSES;
    unsigned int bits = 64u - (unsigned int)__builtin_clzll((unsigned long long)capacity - 1);
    return bits - SMALLEST_SHIFT;
}

static psp_buffer_t *buffer_of_node(psc_queue_node_t *node)
{
    return (psp_buffer_t *)(void *)node; /* node is the first member */
}

psc_status_t psp_pool_create(size_t keep_bytes, psp_pool_t **pool_out, psc_error_t *error)
{
    psp_pool_t *pool = psc_alloc_zeroed(1, sizeof *pool);
    if (pool == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a buffer pool");
    psc_status_t st = psc_fork_mark_create(&pool->mark, error);
    if (st != PSC_OK) {
        psc_free(pool);
        return st;
    }
    (void)pthread_mutex_init(&pool->lock, NULL);
    pool->keep_bytes = keep_bytes;
    *pool_out = pool;
    return PSC_OK;
}

void psp_pool_destroy(psp_pool_t *pool)
{
    if (pool == NULL || !psc_fork_mark_is_own(pool->mark))
        return;
    PSC_BUG_ON(psp_pool_bytes_out(pool) != 0);
    for (unsigned int i = 0; i < N_CLASSES; i++) {
        while (pool->free_list[i] != NULL) {
            psp_buffer_t *buffer = buffer_of_node(pool->free_list[i]);
            pool->free_list[i] = buffer->node.next;
            psc_free(buffer);
        }
    }
    (void)pthread_mutex_destroy(&pool->lock);
    psp_memory_destroy(pool->memory);
    psc_fork_mark_destroy(pool->mark);
    psc_free(pool);
}

void psp_pool_use(psp_pool_t *pool, psp_memory_t *memory)
{
    PSC_BUG_ON(pool->memory != NULL);
    pool->memory = memory;
}

void psp_pool_seal(psp_pool_t *pool)
{
    pool->seals = true;
}

bool psp_pool_seals(const psp_pool_t *pool)
{
    return pool->seals;
}

/* A buffer of the memory, or NULL. */
static psp_buffer_t *take_shared(psp_pool_t *pool, size_t capacity)
{
    if (pool->memory == NULL || capacity <= PSP_MEMORY_LEAST_BYTES)
        return NULL;
    (void)pthread_mutex_lock(&pool->lock);
    psp_buffer_t *buffer = psp_memory_take(pool->memory, capacity);
    (void)pthread_mutex_unlock(&pool->lock);
    if (buffer == NULL)
        return NULL;
    *buffer = (psp_buffer_t){.pool = pool, .data = buffer->data, .capacity = buffer->capacity};
    atomic_fetch_add_explicit(&pool->bytes_out, buffer->capacity, memory_order_relaxed);
    return buffer;
}

/* A kept buffer of the class, or NULL. */
static psp_buffer_t *take_kept(psp_pool_t *pool, unsigned int class_index)
{
    (void)pthread_mutex_lock(&pool->lock);
    psc_queue_node_t *node = pool->free_list[class_index];
    if (node != NULL) {
        pool->free_list[class_index] = node->next;
        pool->kept_in[class_index] -= class_bytes(class_index);
        pool->kept_bytes -= class_bytes(class_index);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return node != NULL ? buffer_of_node(node) : NULL;
}

psc_status_t psp_buffer_get(psp_pool_t *pool, size_t capacity, psp_buffer_t **buffer_out,
                            psc_error_t *error)
{
    if (!psc_fork_mark_is_own(pool->mark))
        return psc_error_set(error, PSC_UNSUPPORTED,
                             "this client belongs to another process; a child after a fork has to "
                             "connect itself");
    unsigned int class_index = class_of(capacity);
    psp_buffer_t *buffer = take_shared(pool, capacity);
    if (buffer != NULL) {
        *buffer_out = buffer;
        return PSC_OK;
    }
    if (class_index < N_CLASSES) {
        capacity = class_bytes(class_index);
        buffer = take_kept(pool, class_index);
    }
    if (buffer == NULL && capacity <= SIZE_MAX - HEADER_BYTES)
        buffer = psc_alloc_aligned(HEADER_BYTES + capacity);
    if (buffer == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a message of %zu bytes",
                             capacity);
    *buffer = (psp_buffer_t){
        .pool = pool,
        .data = (uint8_t *)buffer + HEADER_BYTES,
        .capacity = capacity,
    };
    atomic_fetch_add_explicit(&pool->bytes_out, capacity, memory_order_relaxed);
    *buffer_out = buffer;
    return PSC_OK;
}

/* The class other than but_not that keeps most bytes; N_CLASSES when all others are empty. */
static unsigned int fullest_class(const psp_pool_t *pool, unsigned int but_not)
{
    unsigned int best = N_CLASSES;
    size_t most = 0;
    for (unsigned int i = 0; i < N_CLASSES; i++) {
        if (i != but_not && pool->kept_in[i] > most) {
            most = pool->kept_in[i];
            best = i;
        }
    }
    return best;
}

/* Keeps buffer if it can; returns what is to be freed, a list linked by node.next. */
static psc_queue_node_t *keep(psp_pool_t *pool, psp_buffer_t *buffer, unsigned int class_index)
{
    psc_queue_node_t *dropped = NULL;
    (void)pthread_mutex_lock(&pool->lock);
    while (pool->kept_bytes + buffer->capacity > pool->keep_bytes) {
        unsigned int victim = fullest_class(pool, class_index);
        if (victim == N_CLASSES || buffer->capacity > pool->keep_bytes)
            break;
        psc_queue_node_t *node = pool->free_list[victim];
        pool->free_list[victim] = node->next;
        pool->kept_in[victim] -= class_bytes(victim);
        pool->kept_bytes -= class_bytes(victim);
        node->next = dropped;
        dropped = node;
    }
    if (pool->kept_bytes + buffer->capacity <= pool->keep_bytes) {
        buffer->node.next = pool->free_list[class_index];
        pool->free_list[class_index] = &buffer->node;
        pool->kept_in[class_index] += buffer->capacity;
        pool->kept_bytes += buffer->capacity;
    } else {
        buffer->node.next = dropped;
        dropped = &buffer->node;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return dropped;
}

void psp_buffer_share(psp_buffer_t *buffer)
{
    atomic_fetch_add_explicit(&buffer->shared, 1, memory_order_relaxed);
}

void psp_buffer_put(psp_buffer_t *buffer)
{
    if (buffer == NULL || !psc_fork_mark_is_own(buffer->pool->mark))
        return;
    /* The common case, an only owner, costs no atomic change. */
    if (atomic_load_explicit(&buffer->shared, memory_order_acquire) != 0 &&
        atomic_fetch_sub_explicit(&buffer->shared, 1, memory_order_acq_rel) != 0)
        return;
    psp_pool_t *pool = buffer->pool;
    unsigned int class_index = class_of(buffer->capacity);
    atomic_fetch_sub_explicit(&pool->bytes_out, buffer->capacity, memory_order_relaxed);
    if (psp_memory_owns(pool->memory, buffer)) {
        (void)pthread_mutex_lock(&pool->lock);
        psp_memory_put(pool->memory, buffer);
        (void)pthread_mutex_unlock(&pool->lock);
        return;
    }
    psp_buffer_give_back(buffer);
    if (class_index == N_CLASSES) {
        psc_free(buffer);
        return;
    }
    psc_queue_node_t *dropped = keep(pool, buffer, class_index);
    while (dropped != NULL) {
        psp_buffer_t *old = buffer_of_node(dropped);
        dropped = dropped->next;
        psc_free(old);
    }
}

void psp_buffer_give_back(psp_buffer_t *buffer)
{
    if (buffer->lender == NULL)
        return;
    __atomic_store_n(buffer->lender, 0, __ATOMIC_RELEASE);
    buffer->lender = NULL;
    buffer->data = (uint8_t *)buffer + HEADER_BYTES;
    buffer->size = 0;
}

void psp_buffer_abandon(psp_buffer_t *buffer)
{
    psp_pool_t *pool = buffer->pool;
    atomic_fetch_sub_explicit(&pool->bytes_out, buffer->capacity, memory_order_relaxed);
    if (psp_memory_owns(pool->memory, buffer)) {
        (void)pthread_mutex_lock(&pool->lock);
        psp_memory_abandon(pool->memory);
        (void)pthread_mutex_unlock(&pool->lock);
    }
    buffer->pool = NULL;
}

size_t psp_pool_bytes_out(const psp_pool_t *pool)
{
    return atomic_load_explicit(&pool->bytes_out, memory_order_relaxed);
}
