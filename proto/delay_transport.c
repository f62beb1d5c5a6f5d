/*
 * Every message later by a fixed time.
 *
 * The sender hangs its time onto the end of a message and lets it go at once; the receiver takes it
 * off and keeps the message until that time plus the delay. So the delay is exact though both sides
 * come by only now and then: a worker that computes for longer than the delay finds its replies
 * waiting, as it would on a slow network. To keep messages back at the sender, or from when the
 * receiver has seen them, would add what the other side computes.
 *
 * Kept messages are in a list by the time when they are due, equal ones in order of arrival. A
 * peer's clock does not go back, and a message is never due before an earlier one of its peer, so
 * each peer's order stays. New ones are nearly always the last ones, so insertion looks from the
 * end.
 *
 * Flush also waits until what was sent is due: who flushes before an end that others look at (the
 * local server) may rely on it that they can have taken the last message by then.
 *
 * Threads: as the inner transport.
 */
#include "proto/delay_transport.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST_DELAY_US UINT64_C(60000000)
#define MESSAGES_PER_POLL 64u

typedef struct delayed {
    struct delayed *earlier, *later;
    psp_buffer_t *buffer;
    uint64_t due_us;
} delayed_t;

typedef struct delay_transport {
    psp_transport_t base; /* first */
    psp_transport_t *inner;
    uint64_t delay_us;
    psp_delay_clock_fn clock;
    void *clock_context;
    delayed_t *first, *last; /* by due_us */
    delayed_t *unused;       /* linked by later */
    uint64_t *last_due_us;   /* [n_peers] of the messages that came from each */
    uint64_t sent_due_us;    /* when the last one sent is due */
} delay_transport_t;

_Static_assert(PSP_DELAY_BYTES == sizeof(uint64_t), "a time is what is hung on");

static delay_transport_t *delay_of(psp_transport_t *transport)
{
    return (delay_transport_t *)transport; /* base is the first member */
}

static uint64_t clock_now(void *context)
{
    (void)context;
    return psc_clock_us();
}

static uint64_t now_us(const delay_transport_t *t)
{
    return t->clock(t->clock_context);
}

/* buffer with room for more at its end: itself, or a copy that replaces it. */
static psc_status_t make_room(psp_buffer_t **buffer, psc_error_t *error)
{
    psp_buffer_t *old = *buffer;
    psp_buffer_t *larger;
    if (old->capacity - old->size >= PSP_DELAY_BYTES)
        return PSC_OK;
    psc_status_t st = psp_buffer_get(old->pool, old->size + PSP_DELAY_BYTES, &larger, error);
    if (st != PSC_OK)
        return st;
    memcpy(larger->data, old->data, old->size);
    larger->size = old->size;
    larger->kind = old->kind;
    psp_buffer_put(old);
    *buffer = larger;
    return PSC_OK;
}

static psc_status_t delay_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                               psc_error_t *error)
{
    delay_transport_t *t = delay_of(transport);
    psc_status_t st = make_room(&buffer, error);
    if (st != PSC_OK) {
        psp_buffer_put(buffer);
        return st;
    }
    const uint64_t now = now_us(t);
    memcpy(buffer->data + buffer->size, &now, sizeof now);
    buffer->size += sizeof now;
    t->sent_due_us = now + t->delay_us;
    return psp_transport_send(t->inner, peer, buffer, error);
}

/* Puts buffer into the list. Takes it, also on error. */
static psc_status_t keep(delay_transport_t *t, psp_buffer_t *buffer, psc_error_t *error)
{
    uint64_t sent = UINT64_MAX;
    if (buffer->size >= PSP_DELAY_BYTES) {
        buffer->size -= PSP_DELAY_BYTES;
        memcpy(&sent, buffer->data + buffer->size, sizeof sent);
    }
    if (sent > now_us(t)) {
        psp_buffer_put(buffer);
        return psc_error_set(error, PSC_PROTOCOL,
                             "a message that does not say when it was sent: all ranks of a job "
                             "with EMBPS_DELAY_US must have it, and be on one machine");
    }
    delayed_t *entry = t->unused;
    if (entry != NULL)
        t->unused = entry->later;
    else if ((entry = psc_alloc(sizeof *entry)) == NULL) {
        psp_buffer_put(buffer);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a delayed message");
    }
    uint64_t *last_due = &t->last_due_us[buffer->peer];
    if (sent + t->delay_us > *last_due)
        *last_due = sent + t->delay_us;
    delayed_t *earlier = t->last;
    while (earlier != NULL && earlier->due_us > *last_due)
        earlier = earlier->earlier;
    delayed_t *later = earlier != NULL ? earlier->later : t->first;
    *entry = (delayed_t){.earlier = earlier, .later = later, .buffer = buffer, .due_us = *last_due};
    *(earlier != NULL ? &earlier->later : &t->first) = entry;
    *(later != NULL ? &later->earlier : &t->last) = entry;
    return PSC_OK;
}

static psp_buffer_t *remove_first(delay_transport_t *t)
{
    delayed_t *entry = t->first;
    psp_buffer_t *buffer = entry->buffer;
    t->first = entry->later;
    *(t->first != NULL ? &t->first->earlier : &t->last) = NULL;
    entry->later = t->unused;
    t->unused = entry;
    return buffer;
}

static psc_status_t delay_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                               psc_error_t *error)
{
    delay_transport_t *t = delay_of(transport);
    *buffer_out = NULL;
    for (unsigned int i = 0; i < MESSAGES_PER_POLL; i++) {
        psp_buffer_t *buffer = NULL;
        psc_status_t st = psp_transport_poll(t->inner, &buffer, error);
        if (st == PSC_OK && buffer != NULL)
            st = keep(t, buffer, error);
        if (st != PSC_OK)
            return st;
        if (buffer == NULL)
            break;
    }
    if (t->first == NULL || t->first->due_us > now_us(t))
        return PSC_OK;
    *buffer_out = remove_first(t);
    transport->bytes_received += (*buffer_out)->size;
    return PSC_OK;
}

static void delay_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    delay_transport_t *t = delay_of(transport);
    if (t->first != NULL) {
        uint64_t now = now_us(t);
        uint64_t left_us = t->first->due_us > now ? t->first->due_us - now : 0;
        if (left_us < timeout_us)
            timeout_us = left_us;
    }
    if (timeout_us != 0)
        psp_transport_wait(t->inner, timeout_us);
}

static void delay_wake(psp_transport_t *transport)
{
    psp_transport_wake(delay_of(transport)->inner);
}

static size_t delay_backlog(psp_transport_t *transport, uint32_t peer)
{
    return psp_transport_backlog(delay_of(transport)->inner, peer);
}

static void delay_forget(psp_transport_t *transport, uint32_t peer)
{
    psp_transport_forget(delay_of(transport)->inner, peer);
}

static void delay_stop(psp_transport_t *transport)
{
    psp_transport_stop(delay_of(transport)->inner);
}

static psc_status_t delay_flush(psp_transport_t *transport, uint64_t timeout_us, psc_error_t *error)
{
    delay_transport_t *t = delay_of(transport);
    const uint64_t start = now_us(t);
    psc_status_t st = psp_transport_flush(t->inner, timeout_us, error);
    while (st == PSC_OK) {
        uint64_t now = now_us(t);
        if (now >= t->sent_due_us)
            return PSC_OK;
        if (now - start >= timeout_us)
            return psc_error_set(error, PSC_TIMEOUT, "messages are still under way");
        psc_clock_sleep_us(100);
    }
    return st;
}

static void delay_destroy(psp_transport_t *transport)
{
    delay_transport_t *t = delay_of(transport);
    while (t->first != NULL)
        psp_buffer_put(remove_first(t));
    while (t->unused != NULL) {
        delayed_t *entry = t->unused;
        t->unused = entry->later;
        psc_free(entry);
    }
    psp_transport_destroy(t->inner);
    psc_free(t->last_due_us);
    psc_free(t);
}

static const psp_transport_ops_t delay_ops = {
    .name = "delay",
    .send = delay_send,
    .poll = delay_poll,
    .wait = delay_wait,
    .wake = delay_wake,
    .backlog = delay_backlog,
    .flush = delay_flush,
    .forget = delay_forget,
    .stop = delay_stop,
    .destroy = delay_destroy,
};

psc_status_t psp_delay_create(psp_transport_t *inner, uint64_t delay_us, psp_delay_clock_fn clock,
                              void *clock_context, psp_transport_t **transport_out,
                              psc_error_t *error)
{
    if (delay_us == 0 || delay_us > LONGEST_DELAY_US)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a delay of %llu us; 1 to 60,000,000 are possible",
                             (unsigned long long)delay_us);
    delay_transport_t *t = psc_alloc_zeroed(1, sizeof *t);
    uint64_t *last_due_us = psc_alloc_zeroed(inner->n_peers, sizeof *last_due_us);
    if (t == NULL || last_due_us == NULL) {
        psc_free(t);
        psc_free(last_due_us);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a transport");
    }
    t->base = *inner;
    t->base.ops = &delay_ops;
    t->inner = inner;
    t->delay_us = delay_us;
    t->clock = clock != NULL ? clock : clock_now;
    t->clock_context = clock_context;
    t->last_due_us = last_due_us;
    *transport_out = &t->base;
    return PSC_OK;
}

#ifdef EMBPS_DELAY
psc_status_t psp_delay_wrap(psp_transport_t **transport, psc_error_t *error)
{
    const char *text = getenv("EMBPS_DELAY_US");
    if (text == NULL || strcmp(text, "0") == 0 || text[0] == '\0')
        return PSC_OK;
    char *end;
    unsigned long long delay_us = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0')
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "EMBPS_DELAY_US must be a number of microseconds, not \"%.40s\"",
                             text);
    return psp_delay_create(*transport, delay_us, NULL, NULL, transport, error);
}
#endif
