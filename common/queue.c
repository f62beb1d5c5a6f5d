/*
 * A mutex and a condition variable over a linked list. An atomic count lets the consumer look
 * without the lock, so that a polling owner thread pays one load when nothing is there.
 */
#include "common/queue.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

struct psc_queue {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    psc_queue_node_t *head; /* guarded by lock */
    psc_queue_node_t *tail; /* guarded by lock */
    bool woken;             /* guarded by lock */
    atomic_size_t count;
};

psc_status_t psc_queue_create(psc_queue_t **queue_out, psc_error_t *error)
{
    psc_queue_t *queue = psc_alloc_zeroed(1, sizeof *queue);
    if (queue == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a queue");
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&queue->lock, NULL);
    (void)pthread_cond_init(&queue->arrived, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    *queue_out = queue;
    return PSC_OK;
}

void psc_queue_destroy(psc_queue_t *queue)
{
    if (queue == NULL)
        return;
    (void)pthread_cond_destroy(&queue->arrived);
    (void)pthread_mutex_destroy(&queue->lock);
    psc_free(queue);
}

void psc_queue_push(psc_queue_t *queue, psc_queue_node_t *node)
{
    node->next = NULL;
    (void)pthread_mutex_lock(&queue->lock);
    if (queue->tail != NULL)
        queue->tail->next = node;
    else
        queue->head = node;
    queue->tail = node;
    atomic_fetch_add_explicit(&queue->count, 1, memory_order_release);
    (void)pthread_cond_signal(&queue->arrived);
    (void)pthread_mutex_unlock(&queue->lock);
}

psc_queue_node_t *psc_queue_pop(psc_queue_t *queue)
{
    if (!psc_queue_ready(queue))
        return NULL;
    (void)pthread_mutex_lock(&queue->lock);
    psc_queue_node_t *node = queue->head;
    if (node != NULL) {
        queue->head = node->next;
        if (queue->head == NULL)
            queue->tail = NULL;
        atomic_fetch_sub_explicit(&queue->count, 1, memory_order_relaxed);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return node;
}

bool psc_queue_ready(const psc_queue_t *queue)
{
    return atomic_load_explicit(&queue->count, memory_order_acquire) != 0;
}

void psc_queue_wait(psc_queue_t *queue, uint64_t timeout_us)
{
    struct timespec until = {0};
    if (timeout_us != UINT64_MAX)
        until = psc_clock_after(timeout_us);
    (void)pthread_mutex_lock(&queue->lock);
    int rc = 0;
    while (queue->head == NULL && !queue->woken && rc != ETIMEDOUT) {
        rc = timeout_us == UINT64_MAX
                 ? pthread_cond_wait(&queue->arrived, &queue->lock)
                 : pthread_cond_timedwait(&queue->arrived, &queue->lock, &until);
    }
    queue->woken = false;
    (void)pthread_mutex_unlock(&queue->lock);
}

void psc_queue_wake(psc_queue_t *queue)
{
    (void)pthread_mutex_lock(&queue->lock);
    queue->woken = true;
    (void)pthread_cond_signal(&queue->arrived);
    (void)pthread_mutex_unlock(&queue->lock);
}
