/*
 * Every message with a seal and a number; what comes damaged, once more.
 *
 * The transports below lose nothing and keep each peer's order. So a message that is damaged is
 * noticed when it comes, and which one it was is known from those before it: the next number. It is
 * dropped, and so is all behind it that has a later number, until it has come again ("go back n"):
 * the sender is asked (PSP_TAG_AGAIN), sends again what it has kept from that number on, and tells
 * last how far it has come (PSP_TAG_COUNTS). Whoever then still misses something asks again. Those
 * two have no number of their own. They may be damaged as well, so what is missing is asked for
 * again after a rest that doubles, up to PSP_CHECKED_LONGEST_REST_US; and as nobody knows what a
 * damaged message was, whoever gets one asks, though it may miss nothing: then what is told clears
 * that up. One question is open at a time, however much comes damaged: so no storm.
 *
 * A message is kept, shared and not copied, until a message of the peer has a higher "expected".
 * Answers follow requests, so that little is kept for long; where nothing goes back for
 * COUNTS_AFTER messages or COUNTS_AFTER_BYTES, it is told by itself. When it has to be sent again
 * it is copied, since the transport below may still have it.
 *
 * Not done: at the end nobody waits until the last message has been heard undamaged. A client
 * waits for the answer to its goodbye, so that this is the only one which can be lost then. What a
 * transport tells by itself (mpi_lending's slips and offers) has no seal.
 *
 * Cost: a pass over the bytes at each end. Threads: one, as below.
 */
#include "proto/checked_transport.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/log.h"
#include "proto/message.h"
#include "proto/seal.h"

#include <inttypes.h>

#define COUNTS_AFTER 32u
#define COUNTS_AFTER_BYTES ((size_t)256 << 10)

_Static_assert(PSP_TAG_AGAIN > PSP_KIND_LAST, "no kind has these numbers");

typedef struct way {
    psp_buffer_t **kept; /* [room] the oldest at `first`, going round */
    size_t room;         /* a power of two, or 0 */
    size_t first, n_kept;
    uint32_t next_out; /* number of the next message */
    uint32_t next_in;  /* that is expected */
    bool asks;         /* to have messages again from next_in on */
    uint64_t ask_at_us, rest_us;
    uint32_t n_asked; /* since the last message that was taken */
    uint32_t n_untold;
    size_t untold_bytes; /* of messages taken, which the peer does not know of */
} way_t;

typedef struct checked {
    psp_transport_t base; /* first */
    psp_transport_t *inner;
    psp_checked_clock_fn clock;
    void *clock_context;
    way_t *ways;     /* [n_peers] */
    uint32_t n_asks; /* ways that do */
} checked_t;

static checked_t *checked_of(psp_transport_t *transport)
{
    return (checked_t *)transport; /* base is the first member */
}

static uint64_t machine_clock(void *context)
{
    (void)context;
    return psc_clock_us();
}

static uint64_t now_us(const checked_t *t)
{
    return t->clock(t->clock_context);
}

/* ---- sending ---- */

/* Room for one more that is kept. */
static psc_status_t grow(way_t *way, psc_error_t *error)
{
    if (way->n_kept < way->room)
        return PSC_OK;
    const size_t room = way->room != 0 ? 2 * way->room : 32;
    psp_buffer_t **kept = psc_alloc_array(room, sizeof(psp_buffer_t *));
    if (kept == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %zu messages", room);
    for (size_t i = 0; i < way->n_kept; i++)
        kept[i] = way->kept[(way->first + i) & (way->room - 1)];
    psc_free(way->kept);
    way->kept = kept;
    way->room = room;
    way->first = 0;
    return PSC_OK;
}

/* A copy of from behind `before` bytes. */
static psc_status_t copy_of(const psp_buffer_t *from, psp_pool_t *pool, size_t before,
                            psp_buffer_t **copy_out, psc_error_t *error)
{
    psc_status_t st = psp_buffer_get(pool, before + from->size, copy_out, error);
    if (st != PSC_OK)
        return st;
    if (from->size != 0)
        memcpy((*copy_out)->data + before, from->data, from->size);
    (*copy_out)->size = before + from->size;
    (*copy_out)->kind = from->kind;
    return PSC_OK;
}

/* buffer with room for a seal: itself, or a copy that replaces it. */
static psc_status_t make_room(const checked_t *t, psp_buffer_t **buffer, psc_error_t *error)
{
    psp_buffer_t *larger;
    if (psp_seal_has_room(*buffer))
        return PSC_OK;
    psc_status_t st = copy_of(*buffer, t->base.pool, PSP_SEAL_BYTES, &larger, error);
    if (st != PSC_OK)
        return st;
    psp_seal_leave_room(larger->data);
    psp_buffer_put(*buffer);
    *buffer = larger;
    return PSC_OK;
}

/* Whatever is sent tells what is expected. */
static void told(way_t *way)
{
    way->n_untold = 0;
    way->untold_bytes = 0;
}

static psc_status_t checked_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                                 psc_error_t *error)
{
    checked_t *t = checked_of(transport);
    PSC_BUG_ON(peer >= transport->n_peers);
    way_t *way = &t->ways[peer];
    psc_status_t st = grow(way, error);
    if (st == PSC_OK)
        st = make_room(t, &buffer, error);
    if (st != PSC_OK) {
        psp_buffer_put(buffer);
        return st;
    }
    psp_seal_put(buffer, way->next_out, way->next_in);
    told(way);
    psp_buffer_share(buffer);
    st = psp_transport_send(t->inner, peer, buffer, error);
    if (st != PSC_OK) {
        psp_buffer_put(buffer);
        return st;
    }
    way->kept[(way->first + way->n_kept++) & (way->room - 1)] = buffer;
    way->next_out++;
    return PSC_OK;
}

/* A message of this transport's own: PSP_TAG_COUNTS tells the number that comes next, and either
 * what is expected. */
static psc_status_t send_counts(checked_t *t, uint32_t peer, uint32_t tag, psc_error_t *error)
{
    psp_buffer_t *counts;
    way_t *way = &t->ways[peer];
    psc_status_t st = psp_buffer_get(t->base.pool, PSP_SEAL_BYTES, &counts, error);
    if (st != PSC_OK)
        return st;
    counts->kind = tag;
    counts->size = PSP_SEAL_BYTES;
    psp_seal_leave_room(counts->data);
    psp_seal_put(counts, way->next_out, way->next_in);
    told(way);
    return psp_transport_send(t->inner, peer, counts, error);
}

/* All that is kept, once more, and what comes next. */
static psc_status_t send_again(checked_t *t, uint32_t peer, psc_error_t *error)
{
    way_t *way = &t->ways[peer];
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < way->n_kept; i++) {
        const psp_buffer_t *kept = way->kept[(way->first + i) & (way->room - 1)];
        psp_buffer_t *copy;
        st = copy_of(kept, t->base.pool, 0, &copy, error);
        if (st != PSC_OK)
            break;
        psp_seal_put(copy, psp_seal_number(kept), way->next_in);
        t->base.retries++;
        st = psp_transport_send(t->inner, peer, copy, error);
    }
    return st == PSC_OK ? send_counts(t, peer, PSP_TAG_COUNTS, error) : st;
}

/* ---- receiving ---- */

static void stop_asking(checked_t *t, way_t *way)
{
    t->n_asks -= way->asks;
    way->asks = false;
    way->rest_us = 0;
    way->n_asked = 0;
}

/* Asks for all from next_in on. */
static psc_status_t ask(checked_t *t, uint32_t peer, psc_error_t *error)
{
    way_t *way = &t->ways[peer];
    t->n_asks += !way->asks;
    way->asks = true;
    way->n_asked++;
    way->rest_us = way->rest_us == 0 ? PSP_CHECKED_REST_US : 2 * way->rest_us;
    if (way->rest_us > PSP_CHECKED_LONGEST_REST_US)
        way->rest_us = PSP_CHECKED_LONGEST_REST_US;
    way->ask_at_us = now_us(t) + way->rest_us;
    return send_counts(t, peer, PSP_TAG_AGAIN, error);
}

/* The peer has all below expected. */
static void let_go(way_t *way, uint32_t expected)
{
    const uint32_t oldest = way->next_out - (uint32_t)way->n_kept;
    if (expected - oldest > way->n_kept)
        return; /* it knows less than was known before, or is no peer of ours */
    for (uint32_t n = expected - oldest; n != 0; n--) {
        psp_buffer_put(way->kept[way->first]);
        way->first = (way->first + 1) & (way->room - 1);
        way->n_kept--;
    }
}

static psc_status_t take_damaged(checked_t *t, const psp_buffer_t *buffer, psc_error_t *error)
{
    way_t *way = &t->ways[buffer->peer];
    const uint64_t n = ++t->base.damaged;
    const char *kind = psp_kind_name(buffer->kind);
    if ((n & (n - 1)) == 0) /* the 1st, 2nd, 4th and so on */
        psc_log(PSC_LOG_WARN,
                "a message of peer %" PRIu32 " (%s, %zu bytes) came damaged and is asked for again "
                "(message %" PRIu64 " of that sort)",
                buffer->peer, kind, buffer->size, n);
    if (way->n_asked >= PSP_CHECKED_ATTEMPTS)
        return psc_error_set(error, PSC_CORRUPT,
                             "messages of peer %" PRIu32 " come damaged, the last one %u times in "
                             "a row (%s, %zu bytes): the network between, or the memory of one "
                             "side, is broken",
                             buffer->peer, way->n_asked, kind, buffer->size);
    return way->asks ? PSC_OK : ask(t, buffer->peer, error);
}

/* One of this transport's own. */
static psc_status_t take_counts(checked_t *t, const psp_buffer_t *buffer, psc_error_t *error)
{
    way_t *way = &t->ways[buffer->peer];
    if (buffer->kind == PSP_TAG_AGAIN)
        return send_again(t, buffer->peer, error);
    if (psp_seal_number(buffer) == way->next_in) {
        stop_asking(t, way); /* nothing is missing */
        return PSC_OK;
    }
    return ask(t, buffer->peer, error);
}

/* *deliver_out: it is the next one. */
static psc_status_t take(checked_t *t, const psp_buffer_t *buffer, bool *deliver_out,
                         psc_error_t *error)
{
    way_t *way = &t->ways[buffer->peer];
    *deliver_out = false;
    if (psp_seal_look(buffer->kind, buffer->data, buffer->size) != PSP_SEAL_GOOD)
        return take_damaged(t, buffer, error);
    let_go(way, psp_seal_expected(buffer));
    if (buffer->kind == PSP_TAG_COUNTS || buffer->kind == PSP_TAG_AGAIN)
        return take_counts(t, buffer, error);
    const uint32_t number = psp_seal_number(buffer);
    if (number != way->next_in) /* one that came before, or is behind one that was damaged */
        return way->asks || way->next_in - number <= UINT32_MAX / 2 ? PSC_OK
                                                                    : ask(t, buffer->peer, error);
    way->next_in++;
    way->n_asked = 0;
    way->rest_us = 0;
    way->n_untold++;
    way->untold_bytes += buffer->size;
    *deliver_out = true;
    if (way->n_untold >= COUNTS_AFTER || way->untold_bytes >= COUNTS_AFTER_BYTES)
        return send_counts(t, buffer->peer, PSP_TAG_COUNTS, error);
    return PSC_OK;
}

/* Asks again where nothing has come of it. */
static psc_status_t ask_all(checked_t *t, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    const uint64_t now = t->n_asks != 0 ? now_us(t) : 0;
    for (uint32_t peer = 0; t->n_asks != 0 && st == PSC_OK && peer < t->base.n_peers; peer++) {
        if (t->ways[peer].asks && t->ways[peer].ask_at_us <= now)
            st = ask(t, peer, error);
    }
    return st;
}

static psc_status_t checked_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                                 psc_error_t *error)
{
    checked_t *t = checked_of(transport);
    psc_status_t st = ask_all(t, error);
    *buffer_out = NULL;
    while (st == PSC_OK) {
        psp_buffer_t *buffer = NULL;
        bool deliver;
        st = psp_transport_poll(t->inner, &buffer, error);
        if (st != PSC_OK || buffer == NULL)
            break;
        PSC_BUG_ON(buffer->peer >= transport->n_peers);
        st = take(t, buffer, &deliver, error);
        if (st == PSC_OK && deliver) {
            transport->bytes_received += buffer->size;
            *buffer_out = buffer;
            break;
        }
        psp_buffer_put(buffer);
    }
    return st;
}

static void checked_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    const checked_t *t = checked_of(transport);
    const uint64_t now = t->n_asks != 0 ? now_us(t) : 0;
    for (uint32_t peer = 0; t->n_asks != 0 && peer < transport->n_peers; peer++) {
        const way_t *way = &t->ways[peer];
        const uint64_t left_us = way->ask_at_us > now ? way->ask_at_us - now : 0;
        if (way->asks && left_us < timeout_us)
            timeout_us = left_us;
    }
    if (timeout_us != 0)
        psp_transport_wait(t->inner, timeout_us);
}

/* ---- the rest ---- */

static void checked_wake(psp_transport_t *transport)
{
    psp_transport_wake(checked_of(transport)->inner);
}

static size_t checked_backlog(psp_transport_t *transport, uint32_t peer)
{
    return psp_transport_backlog(checked_of(transport)->inner, peer);
}

static psc_status_t checked_flush(psp_transport_t *transport, uint64_t timeout_us,
                                  psc_error_t *error)
{
    return psp_transport_flush(checked_of(transport)->inner, timeout_us, error);
}

static void drop_kept(way_t *way)
{
    for (; way->n_kept != 0; way->n_kept--) {
        psp_buffer_put(way->kept[way->first]);
        way->first = (way->first + 1) & (way->room - 1);
    }
}

/* What is kept goes first, so that what is under way has one owner, who may give it up. */
static void checked_forget(psp_transport_t *transport, uint32_t peer)
{
    checked_t *t = checked_of(transport);
    drop_kept(&t->ways[peer]);
    stop_asking(t, &t->ways[peer]);
    psp_transport_forget(t->inner, peer);
}

static void checked_stop(psp_transport_t *transport)
{
    psp_transport_stop(checked_of(transport)->inner);
}

static void checked_destroy(psp_transport_t *transport)
{
    checked_t *t = checked_of(transport);
    for (uint32_t peer = 0; peer < transport->n_peers; peer++) {
        drop_kept(&t->ways[peer]);
        psc_free(t->ways[peer].kept);
    }
    psp_transport_destroy(t->inner);
    psc_free(t->ways);
    psc_free(t);
}

static const psp_transport_ops_t checked_ops = {
    .name = "checked",
    .send = checked_send,
    .poll = checked_poll,
    .wait = checked_wait,
    .wake = checked_wake,
    .backlog = checked_backlog,
    .flush = checked_flush,
    .forget = checked_forget,
    .stop = checked_stop,
    .destroy = checked_destroy,
};

psc_status_t psp_checked_create(psp_transport_t *inner, psp_checked_clock_fn clock,
                                void *clock_context, psp_transport_t **transport_out,
                                psc_error_t *error)
{
    checked_t *t = psc_alloc_zeroed(1, sizeof *t);
    way_t *ways = psc_alloc_zeroed(inner->n_peers, sizeof *ways);
    if (t == NULL || ways == NULL) {
        psc_free(t);
        psc_free(ways);
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a transport");
    }
    t->base = *inner;
    t->base.ops = &checked_ops;
    t->inner = inner;
    t->clock = clock != NULL ? clock : machine_clock;
    t->clock_context = clock_context;
    t->ways = ways;
    *transport_out = &t->base;
    return PSC_OK;
}
