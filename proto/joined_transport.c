/*
 * Peers and guests over one endpoint.
 *
 * Polls take turns, so that neither keeps the other waiting. The end of the second one comes first:
 * it may still wake the first. Threads: as the inner ones.
 */
#include "proto/joined_transport.h"

#include "common/alloc.h"
#include "common/clock.h"

typedef struct joined {
    psp_transport_t base; /* first */
    psp_transport_t *first, *second;
    bool turn; /* the second is asked first */
} joined_t;

static joined_t *joined_of(psp_transport_t *transport)
{
    return (joined_t *)transport; /* base is the first member */
}

static psc_status_t joined_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                                psc_error_t *error)
{
    joined_t *joined = joined_of(transport);
    return psp_transport_send(buffer->call != NULL ? joined->second : joined->first, peer, buffer,
                              error);
}

static psc_status_t joined_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                                psc_error_t *error)
{
    joined_t *joined = joined_of(transport);
    joined->turn = !joined->turn;
    psp_transport_t *one = joined->turn ? joined->second : joined->first;
    psp_transport_t *other = joined->turn ? joined->first : joined->second;
    psc_status_t st = psp_transport_poll(one, buffer_out, error);
    if (st == PSC_OK && *buffer_out == NULL)
        st = psp_transport_poll(other, buffer_out, error);
    if (st == PSC_OK && *buffer_out != NULL)
        transport->bytes_received += (*buffer_out)->size;
    return st;
}

static void joined_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    psp_transport_wait(joined_of(transport)->first, timeout_us);
}

static void joined_wake(psp_transport_t *transport)
{
    psp_transport_wake(joined_of(transport)->first);
}

static size_t joined_backlog(psp_transport_t *transport, uint32_t peer)
{
    return psp_transport_backlog(joined_of(transport)->first, peer);
}

static psc_status_t joined_flush(psp_transport_t *transport, uint64_t timeout_us,
                                 psc_error_t *error)
{
    joined_t *joined = joined_of(transport);
    const uint64_t until_us = psc_clock_us() + timeout_us;
    psc_status_t st = psp_transport_flush(joined->first, timeout_us, error);
    const uint64_t now_us = psc_clock_us();
    psc_error_t other = PSC_ERROR_INIT;
    psc_status_t second =
        psp_transport_flush(joined->second, now_us < until_us ? until_us - now_us : 0, &other);
    if (st == PSC_OK && second != PSC_OK && error != NULL)
        *error = other;
    return st != PSC_OK ? st : second;
}

static void joined_forget(psp_transport_t *transport, uint32_t peer)
{
    psp_transport_forget(joined_of(transport)->first, peer);
}

static void joined_stop(psp_transport_t *transport)
{
    psp_transport_stop(joined_of(transport)->first);
    psp_transport_stop(joined_of(transport)->second);
}

static void joined_destroy(psp_transport_t *transport)
{
    joined_t *joined = joined_of(transport);
    psp_transport_destroy(joined->second);
    psp_transport_destroy(joined->first);
    psc_free(joined);
}

static const psp_transport_ops_t joined_ops = {
    .name = "joined",
    .send = joined_send,
    .poll = joined_poll,
    .wait = joined_wait,
    .wake = joined_wake,
    .backlog = joined_backlog,
    .flush = joined_flush,
    .forget = joined_forget,
    .stop = joined_stop,
    .destroy = joined_destroy,
};

psc_status_t psp_joined_create(psp_transport_t *first, psp_transport_t *second,
                               psp_transport_t **transport_out, psc_error_t *error)
{
    joined_t *joined = psc_alloc_zeroed(1, sizeof *joined);
    if (joined == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a transport");
    joined->base = *first;
    joined->base.ops = &joined_ops;
    joined->first = first;
    joined->second = second;
    *transport_out = &joined->base;
    return PSC_OK;
}
