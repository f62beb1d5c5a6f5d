/*
 * A thread that sleeps until a message is due, and sends it as a call of its own.
 *
 * Not through the outbox and not on the client's thread: a program may do something else for
 * hours, and its sessions shall not end meanwhile. A sign has no effects and no order, so a sign
 * that fails is not made again; the next one comes anyway. At most one call a message is under
 * way, so a server that stands still costs nothing. The calls have no deadline of their own: the
 * connection's keep-alive ends them. Before one leaves, the file of the token is looked at, so that
 * a program that does something else while it is replaced does not lose its sessions.
 *
 * Threads and lock: the list, `under_way` and `stopping` are guarded by `lock`; calls are started,
 * finished and cancelled under it, which waits for no network. The queue's thread takes it when a
 * call ends.
 */
#include "proto/grpc/grpc_signs.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "proto/grpc/grpc_call.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define US_PER_S UINT64_C(1000000)

typedef struct sign {
    psp_grpc_call_t call; /* first */
    psp_grpc_signs_t *signs;
    grpc_channel *channel;
    void *method;
    psp_buffer_t *message;
    uint64_t period_us, due_us;
    bool under_way;
    struct sign *next;
} sign_t;

struct psp_grpc_signs {
    psp_grpc_queue_t *queue;
    psp_grpc_secrets_t *secrets;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sign_t *all;        /* guarded by lock */
    size_t n_under_way; /* guarded by lock */
    bool stopping;      /* guarded by lock */
};

/* On the queue's thread. */
static void sign_ended(psp_grpc_tag_t *tag, bool ok)
{
    (void)ok;
    sign_t *sign = (sign_t *)(void *)tag; /* its first member's first member */
    psp_grpc_signs_t *signs = sign->signs;
    (void)pthread_mutex_lock(&signs->lock);
    psp_grpc_call_finish(&sign->call);
    sign->under_way = false;
    signs->n_under_way--;
    (void)pthread_cond_broadcast(&signs->changed);
    (void)pthread_mutex_unlock(&signs->lock);
}

/* Sends what is due. Returns when the next one is. With the lock held. */
static uint64_t send_due(psp_grpc_signs_t *signs, uint64_t now_us)
{
    uint64_t next_us = now_us + 60 * US_PER_S;
    for (sign_t *sign = signs->all; sign != NULL; sign = sign->next) {
        if (sign->due_us <= now_us) {
            sign->due_us = now_us + sign->period_us;
            (void)psp_grpc_secrets_has_newer_token(signs->secrets, NULL);
            if (!sign->under_way) {
                sign->under_way = true;
                signs->n_under_way++;
                psp_grpc_call_start(&sign->call, signs->queue, sign->channel, sign->method,
                                    signs->secrets, sign->message);
            }
        }
        next_us = sign->due_us < next_us ? sign->due_us : next_us;
    }
    return next_us;
}

static void *send_signs(void *context)
{
    psp_grpc_signs_t *signs = context;
    (void)pthread_mutex_lock(&signs->lock);
    while (!signs->stopping) {
        const uint64_t next_us = send_due(signs, psc_clock_us());
        const struct timespec until = {.tv_sec = (time_t)(next_us / US_PER_S),
                                       .tv_nsec = (long)(next_us % US_PER_S) * 1000};
        (void)pthread_cond_timedwait(&signs->changed, &signs->lock, &until);
    }
    (void)pthread_mutex_unlock(&signs->lock);
    return NULL;
}

psc_status_t psp_grpc_signs_create(psp_grpc_queue_t *queue, psp_grpc_secrets_t *secrets,
                                   psp_grpc_signs_t **signs_out, psc_error_t *error)
{
    psp_grpc_signs_t *signs = psc_alloc_zeroed(1, sizeof *signs);
    if (signs == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for signs of life");
    signs->queue = queue;
    signs->secrets = secrets;
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* as psc_clock_us */
    (void)pthread_mutex_init(&signs->lock, NULL);
    (void)pthread_cond_init(&signs->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    sigset_t all, before; /* the program's handlers run on its own threads */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    const int failed = pthread_create(&signs->thread, NULL, send_signs, signs);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0) {
        (void)pthread_cond_destroy(&signs->changed);
        (void)pthread_mutex_destroy(&signs->lock);
        psc_free(signs);
        return psc_error_set_errno(error, failed, "no thread for signs of life");
    }
    *signs_out = signs;
    return PSC_OK;
}

void psp_grpc_signs_destroy(psp_grpc_signs_t *signs)
{
    if (signs == NULL)
        return;
    (void)pthread_mutex_lock(&signs->lock);
    signs->stopping = true;
    (void)pthread_cond_broadcast(&signs->changed);
    (void)pthread_mutex_unlock(&signs->lock);
    (void)pthread_join(signs->thread, NULL);
    (void)pthread_mutex_lock(&signs->lock);
    for (sign_t *sign = signs->all; sign != NULL; sign = sign->next) {
        if (sign->under_way)
            (void)grpc_call_cancel(sign->call.inside, NULL);
    }
    while (signs->n_under_way != 0)
        (void)pthread_cond_wait(&signs->changed, &signs->lock);
    (void)pthread_mutex_unlock(&signs->lock);
    while (signs->all != NULL) {
        sign_t *sign = signs->all;
        signs->all = sign->next;
        psp_buffer_put(sign->message);
        psc_free(sign);
    }
    (void)pthread_cond_destroy(&signs->changed);
    (void)pthread_mutex_destroy(&signs->lock);
    psc_free(signs);
}

psc_status_t psp_grpc_signs_add(psp_grpc_signs_t *signs, grpc_channel *channel, psp_buffer_t *sign,
                                uint64_t period_us, psc_error_t *error)
{
    sign_t *added = psc_alloc_zeroed(1, sizeof *added);
    if (added == NULL) {
        psp_buffer_put(sign);
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a sign of life");
    }
    added->call.tag.done = sign_ended;
    added->signs = signs;
    added->channel = channel;
    added->method = grpc_channel_register_call(channel, psp_grpc_method(sign->kind), NULL, NULL);
    added->message = sign;
    added->period_us = period_us;
    added->due_us = psc_clock_us() + period_us;
    (void)pthread_mutex_lock(&signs->lock);
    added->next = signs->all;
    signs->all = added;
    (void)pthread_cond_broadcast(&signs->changed);
    (void)pthread_mutex_unlock(&signs->lock);
    return PSC_OK;
}

void psp_grpc_signs_move(psp_grpc_signs_t *signs, const grpc_channel *from, grpc_channel *to)
{
    (void)pthread_mutex_lock(&signs->lock);
    for (sign_t *sign = signs->all; sign != NULL; sign = sign->next) {
        if (sign->channel != from)
            continue;
        sign->channel = to;
        sign->method =
            grpc_channel_register_call(to, psp_grpc_method(sign->message->kind), NULL, NULL);
    }
    (void)pthread_mutex_unlock(&signs->lock);
}
