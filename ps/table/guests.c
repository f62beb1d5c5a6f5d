/*
 * Guests, by seat: peer n_workers + i of the shard.
 *
 * Invariants. ids[i] is the number of seat i's session while it lasts, and all[i] what is known of
 * it beside ps_session_t. Requests with a sequence are handed to the session in the order 1, 2, 3;
 * one that comes early is parked until those before it are there, PS_GUESTS_GAP_US at most. One
 * that comes again is answered from the kept answer; or it takes the place of the one that still
 * waits, whose call is then answered with BUSY (nobody may be left to hear it); or, when its
 * answer was not kept, it is served anew: a push is then acknowledged and not applied
 * (ps/serve/push.c), a pull may see what was pushed since. Not so when the guest has said that it
 * has the answer: that is a call that was late, and a step of a checkpoint, say, would be taken a
 * second time.
 *
 * A kept answer is the buffer that was sent, shared and not copied; it is let go when the guest
 * says that it has it (lowest_unacked) or when another sequence needs its place. Answers that are
 * long are kept within PS_GUESTS_KEPT_BYTES of all guests.
 *
 * The number of a session can be guessed, so it counts only with the token that it began with.
 *
 * Finding a session is a pass over the numbers in use, 8 bytes each: under a microsecond for a
 * thousand. Threads: the owner's. Time is the shard's.
 */
#include "ps/table/guests.h"

#include "common/alloc.h"
#include "proto/rights.h"
#include "ps/table/shard_state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_BYTES ((size_t)1024) /* answers that are always kept */
#define STEP_US UINT64_C(250000)

typedef struct kept {
    uint64_t sequence;
    psp_buffer_t *reply; /* NULL: none */
} kept_t;

struct ps_guest {
    uint64_t next_sequence;
    uint64_t answers_below; /* the guest has the answers to all sequences below */
    uint64_t heard_us;
    bool revived;         /* of a checkpoint: it may have heard answers that are lost */
    bool sealed;          /* its requests come with seals */
    uint64_t n_lost;      /* such answers; 0: none is known of */
    uint64_t holder;      /* whose token it goes by (psp_grant_id) */
    uint64_t rights;      /* and what that allowed (psp_grant_rights_id) */
    ps_request_t *parked; /* by sequence */
    size_t n_parked;
    kept_t kept[PS_GUEST_REQUESTS]; /* by sequence modulo that */
};

psc_status_t ps_guests_init(ps_guests_t *guests, uint32_t n, psc_error_t *error)
{
    *guests = (ps_guests_t){.n = n};
    guests->ids = psc_alloc_zeroed(n, sizeof *guests->ids);
    guests->all = psc_alloc_zeroed(n, sizeof(ps_guest_t *));
    if (guests->ids == NULL || guests->all == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for %" PRIu32 " guests", n);
    return PSC_OK;
}

static ps_session_t *session_of(ps_shard_t *shard, uint32_t peer)
{
    return &shard->sessions.all[peer];
}

static ps_guest_t *guest_of(const ps_shard_t *shard, uint32_t peer)
{
    return shard->guests.all[peer - shard->sessions.n];
}

/* ---- answers that are kept ---- */

static void let_go(ps_guests_t *guests, kept_t *kept)
{
    if (kept->reply == NULL)
        return;
    guests->kept_bytes -= kept->reply->capacity;
    psp_buffer_put(kept->reply);
    kept->reply = NULL;
}

static void let_go_below(ps_guests_t *guests, ps_guest_t *guest, uint64_t sequence)
{
    for (size_t i = 0; i < PS_GUEST_REQUESTS; i++) {
        if (guest->kept[i].sequence < sequence)
            let_go(guests, &guest->kept[i]);
    }
}

void ps_guests_keep(ps_shard_t *shard, const ps_request_t *request, psp_buffer_t *reply)
{
    ps_guests_t *guests = &shard->guests;
    ps_guest_t *guest = guest_of(shard, request->buffer->peer);
    const uint64_t sequence = request->message.request.sequence;
    if (guest == NULL || sequence == 0 || shard->failure.code != PSC_OK)
        return;
    kept_t *kept = &guest->kept[sequence % PS_GUEST_REQUESTS];
    let_go(guests, kept);
    if (reply->size > SHORT_BYTES && guests->kept_bytes + reply->capacity > PS_GUESTS_KEPT_BYTES)
        return;
    psp_buffer_share(reply);
    guests->kept_bytes += reply->capacity;
    *kept = (kept_t){.sequence = sequence, .reply = reply};
}

/* The kept answer once more. */
static psc_status_t answer_again(ps_shard_t *shard, const ps_request_t *request,
                                 const psp_buffer_t *kept, psc_error_t *error)
{
    psp_buffer_t *reply;
    psc_status_t st = psp_buffer_get(shard->options.pool, kept->size, &reply, error);
    if (st != PSC_OK)
        return st;
    memcpy(reply->data, kept->data, kept->size);
    reply->size = kept->size;
    reply->kind = kept->kind;
    ps_shard_send_logged(shard, request, reply);
    return PSC_OK;
}

/* ---- life ---- */

static void set_holder(ps_guest_t *guest, const psp_grant_t *grant)
{
    guest->holder = psp_grant_id(grant);
    guest->rights = psp_grant_rights_id(grant);
}

/* May a session be used with this token? A checkpoint does not say whose a session was: then it is
 * of the first who knows it. One of the same rights may follow it: its owner could do the same in a
 * session of its own. */
static bool is_holder(ps_guest_t *guest, const psp_grant_t *grant)
{
    if (guest->revived && guest->holder == 0)
        set_holder(guest, grant);
    if (guest->holder == psp_grant_id(grant))
        return true;
    if (guest->rights != psp_grant_rights_id(grant))
        return false;
    guest->holder = psp_grant_id(grant);
    return true;
}

static int compare_moved(const void *a, const void *b)
{
    const uint64_t left = ((const ps_guest_moved_t *)a)->id;
    const uint64_t right = ((const ps_guest_moved_t *)b)->id;
    return (left > right) - (left < right);
}

/* NULL: it is none of them. */
static const ps_guest_moved_t *find_moved(const ps_guests_t *guests, uint64_t session)
{
    const ps_guest_moved_t key = {.id = session};
    return guests->n_moved == 0 ? NULL
                                : bsearch(&key, guests->moved, guests->n_moved,
                                          sizeof *guests->moved, compare_moved);
}

/* The seat of a session among those in use, whose number is returned when it has none. */
static uint32_t find_seat(const ps_shard_t *shard, uint64_t session)
{
    const uint32_t n_used = shard->sessions.n_all - shard->sessions.n;
    uint32_t i = 0;
    while (i < n_used && (shard->guests.ids[i] != session || session == 0))
        i++;
    return i;
}

/* A session that is none here. */
static psc_status_t refuse_session(const ps_shard_t *shard, uint64_t wanted, psc_error_t *error)
{
    const ps_guests_t *guests = &shard->guests;
    const ps_guest_moved_t *moved = find_moved(guests, wanted);
    if (moved != NULL)
        return psc_error_set(error, PSC_PEER_GONE,
                             "session %016" PRIx64 " was of server %" PRIu32 " of %" PRIu32
                             ", and now there are %" PRIu32
                             ": it does not go on. Of what it sent to that server, pushes up "
                             "to sequence %" PRIu64
                             " count, once, and none after it. Connect (say hello) again, and "
                             "go on from the checkpoint",
                             wanted, moved->server, moved->n_servers, shard->options.n_servers,
                             moved->push_sequence);
    return psc_error_set(error, PSC_PEER_GONE,
                         "session %016" PRIx64
                         " is not, or no longer, one of this server: connect (say hello) again",
                         wanted);
}

psc_status_t ps_guests_seat(ps_shard_t *shard, const psp_message_t *message, psp_buffer_t *buffer,
                            psc_error_t *error)
{
    ps_guests_t *guests = &shard->guests;
    const bool hello = message->kind == PSP_HELLO;
    const uint64_t wanted = message->request.session;
    const uint32_t n_used = shard->sessions.n_all - shard->sessions.n;
    uint32_t i = 0;
    if (hello && message->u.hello.n_workers != 0)
        return psc_error_set(error, PSC_PROTOCOL,
                             "hello of worker %" PRIu32 " of %" PRIu32
                             ": workers are ranks of the job; others say hello with n_workers 0",
                             message->u.hello.worker, message->u.hello.n_workers);
    if (hello) {
        while (i < guests->n &&
               (guests->ids[i] != 0 || session_of(shard, shard->sessions.n + i)->head != NULL))
            i++;
        if (i == guests->n)
            return psc_error_set(error, PSC_BUSY,
                                 "%" PRIu32 " guests are here, and no more have a place: try again",
                                 guests->n);
        *session_of(shard, shard->sessions.n + i) = (ps_session_t){0};
        if (i >= n_used)
            shard->sessions.n_all = shard->sessions.n + i + 1;
    } else {
        i = find_seat(shard, wanted);
        if (i == n_used || !is_holder(guests->all[i], buffer->grant))
            return refuse_session(shard, wanted, error);
        if (guests->all[i]->sealed && !buffer->sealed)
            return psc_error_set(error, PSC_CORRUPT,
                                 "a %s of %zu bytes of session %016" PRIx64
                                 " came without its checksum: send it again",
                                 psp_kind_name(buffer->kind), buffer->size, wanted);
        guests->all[i]->heard_us = shard->now_us;
    }
    buffer->peer = shard->sessions.n + i;
    return PSC_OK;
}

psc_status_t ps_guests_begin(ps_shard_t *shard, uint32_t peer, const psp_grant_t *grant,
                             psc_error_t *error)
{
    const uint32_t i = peer - shard->sessions.n;
    ps_guest_t *guest = psc_alloc_zeroed(1, sizeof *guest);
    if (guest == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a guest");
    guest->next_sequence = 1;
    set_holder(guest, grant);
    guest->heard_us = shard->now_us;
    shard->guests.all[i] = guest;
    shard->guests.ids[i] = session_of(shard, peer)->id;
    shard->counters.guests++;
    ps_logger_session(shard, peer);
    return PSC_OK;
}

void ps_guests_expect_seals(ps_shard_t *shard, uint32_t peer)
{
    guest_of(shard, peer)->sealed = true;
}

psc_status_t ps_guests_revive(ps_shard_t *shard, const ps_session_t *session, uint64_t next,
                              ps_call_part_t part, psc_error_t *error)
{
    uint32_t i = 0;
    while (i < shard->guests.n && shard->guests.ids[i] != 0)
        i++;
    const uint32_t peer = shard->sessions.n + i;
    if (i == shard->guests.n)
        return psc_error_set(error, PSC_BUSY, "no more than %" PRIu32 " guests have a place",
                             shard->guests.n);
    *session_of(shard, peer) = *session;
    psc_status_t st = ps_guests_begin(shard, peer, NULL, error);
    if (st == PSC_OK)
        st = ps_calls_begin(&shard->calls, peer, part.client, part.part, error);
    if (st != PSC_OK)
        return st;
    if (peer >= shard->sessions.n_all)
        shard->sessions.n_all = peer + 1;
    guest_of(shard, peer)->next_sequence = next;
    guest_of(shard, peer)->revived = true;
    return PSC_OK;
}

uint32_t ps_guests_find(const ps_shard_t *shard, uint64_t session)
{
    return shard->sessions.n + find_seat(shard, session);
}

void ps_guests_go_on(ps_shard_t *shard, uint32_t peer, uint64_t next)
{
    ps_guest_t *guest = guest_of(shard, peer);
    guest->next_sequence = next > guest->next_sequence ? next : guest->next_sequence;
}

void ps_guests_set_moved(ps_shard_t *shard, ps_guest_moved_t *moved, size_t n)
{
    psc_free(shard->guests.moved);
    if (n != 0)
        qsort(moved, n, sizeof *moved, compare_moved);
    shard->guests.moved = moved;
    shard->guests.n_moved = n;
}

psc_status_t ps_guests_replace(ps_shard_t *shard, uint64_t session, const psp_grant_t *grant,
                               uint64_t *counted_out, psc_error_t *error)
{
    const ps_guests_t *guests = &shard->guests;
    const ps_guest_moved_t *moved = find_moved(guests, session);
    const uint32_t i = find_seat(shard, session), peer = shard->sessions.n + i;
    *counted_out = moved != NULL ? moved->push_sequence + 1 : 0;
    if (peer == shard->sessions.n_all || !is_holder(guests->all[i], grant))
        return PSC_OK;
    if (session_of(shard, peer)->head != NULL)
        return psc_error_set(error, PSC_BUSY,
                             "a request of session %016" PRIx64
                             ", which is to be replaced, is being served: try again",
                             session);
    *counted_out = session_of(shard, peer)->push_sequence + 1;
    ps_guests_end(shard, peer);
    return PSC_OK;
}

uint64_t ps_guests_next(const ps_shard_t *shard, uint32_t peer)
{
    const ps_guest_t *guest = guest_of(shard, peer);
    if (guest == NULL)
        return 0;
    for (const ps_request_t *r = shard->sessions.all[peer].head; r != NULL; r = r->next) {
        const psp_kind_t kind = r->message.kind;
        if ((kind == PSP_PUSH || kind == PSP_IMPORT) && r->message.request.sequence != 0)
            return r->message.request.sequence;
    }
    return guest->next_sequence;
}

void ps_guests_end(ps_shard_t *shard, uint32_t peer)
{
    ps_guests_t *guests = &shard->guests;
    const uint32_t i = peer - shard->sessions.n;
    ps_guest_t *guest = guests->all[i];
    psc_error_t refusal = PSC_ERROR_INIT;
    if (guest == NULL)
        return;
    (void)psc_error_set(&refusal, PSC_PEER_GONE, "session %016" PRIx64 " has ended",
                        guests->ids[i]);
    ps_guests_refuse_parked(shard, peer, &refusal);
    ps_logger_end(shard, guests->ids[i]);
    let_go_below(guests, guest, UINT64_MAX);
    psc_free(guest);
    guests->all[i] = NULL;
    guests->ids[i] = 0;
    ps_calls_end(&shard->calls, peer);
    session_of(shard, peer)->state = PS_SESSION_GONE;
    while (shard->sessions.n_all > shard->sessions.n) {
        const uint32_t last = shard->sessions.n_all - 1;
        if (guests->ids[last - shard->sessions.n] != 0 || session_of(shard, last)->head != NULL)
            break;
        shard->sessions.n_all = last;
    }
}

void ps_guests_clear(ps_shard_t *shard)
{
    ps_guests_t *guests = &shard->guests;
    for (uint32_t i = 0; guests->all != NULL && i < guests->n; i++) {
        ps_guest_t *guest = guests->all[i];
        if (guest != NULL) {
            ps_guests_drop_parked(shard, shard->sessions.n + i);
            let_go_below(guests, guest, UINT64_MAX);
        }
        psc_free(guest);
    }
    psc_free(guests->ids);
    psc_free(guests->all);
    psc_free(guests->moved);
    *guests = (ps_guests_t){.n = 0};
}

/* ---- requests in their order ---- */

/* The one with the lowest sequence; NULL: none. */
static ps_request_t *take_parked(ps_guest_t *guest)
{
    ps_request_t *request = guest->parked;
    if (request != NULL) {
        guest->parked = request->next;
        guest->n_parked--;
    }
    return request;
}

void ps_guests_drop_parked(ps_shard_t *shard, uint32_t peer)
{
    ps_guest_t *guest = guest_of(shard, peer);
    ps_request_t *request;
    while (guest != NULL && (request = take_parked(guest)) != NULL)
        ps_request_destroy(&shard->requests, request);
}

void ps_guests_refuse_parked(ps_shard_t *shard, uint32_t peer, const psc_error_t *refusal)
{
    ps_guest_t *guest = guest_of(shard, peer);
    ps_request_t *request;
    while (guest != NULL && (request = take_parked(guest)) != NULL) {
        /* Without memory for an answer its call ends without one. */
        if (ps_shard_refuse_request(shard, request, refusal, NULL) != PSC_OK)
            shard->counters.refused++;
    }
}

static psc_status_t refuse_many(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    psc_error_t refusal = PSC_ERROR_INIT;
    (void)psc_error_set(&refusal, PSC_BUSY, "more than %u requests of a session under way",
                        PS_GUEST_REQUESTS);
    return ps_shard_refuse_request(shard, request, &refusal, error);
}

static ps_request_t *find_sequence(ps_request_t *first, uint64_t sequence)
{
    while (first != NULL && first->message.request.sequence != sequence)
        first = first->next;
    return first;
}

/* The same request has come before, and waits: its answer goes to the call that came last. */
static psc_status_t take_over(ps_shard_t *shard, ps_request_t *waiting, ps_request_t *request,
                              psc_error_t *error)
{
    psc_error_t refusal = PSC_ERROR_INIT;
    const uint64_t number = waiting->message.request.request;
    void *call = waiting->buffer->call;
    const psp_grant_t *grant = waiting->buffer->grant; /* lives with its call */
    waiting->buffer->call = request->buffer->call;
    waiting->buffer->grant = request->buffer->grant;
    waiting->message.request.request = request->message.request.request;
    request->buffer->call = call;
    request->buffer->grant = grant;
    request->message.request.request = number;
    (void)psc_error_set(&refusal, PSC_BUSY, "the request was sent again, and is answered there");
    return ps_shard_refuse_request(shard, request, &refusal, error);
}

/* Nobody waits for its answer any more. */
static psc_status_t refuse_late(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    psc_error_t refusal = PSC_ERROR_INIT;
    (void)psc_error_set(&refusal, PSC_BUSY, "the request came before, and its answer was heard");
    return ps_shard_refuse_request(shard, request, &refusal, error);
}

/* A request with a sequence that was there before. */
static psc_status_t repeat(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const uint32_t peer = request->buffer->peer;
    const uint64_t sequence = request->message.request.sequence;
    const kept_t *kept = &guest_of(shard, peer)->kept[sequence % PS_GUEST_REQUESTS];
    shard->counters.requests_again++;
    if (kept->reply != NULL && kept->sequence == sequence) {
        psc_status_t st = answer_again(shard, request, kept->reply, error);
        ps_request_destroy(&shard->requests, request);
        return st;
    }
    ps_request_t *waiting = find_sequence(session_of(shard, peer)->head, sequence);
    if (waiting != NULL)
        return take_over(shard, waiting, request, error);
    const psp_kind_t kind = request->message.kind;
    if (sequence < guest_of(shard, peer)->answers_below && kind != PSP_PUSH && kind != PSP_IMPORT)
        return refuse_late(shard, request, error);
    if (session_of(shard, peer)->n_requests >= PS_GUEST_REQUESTS)
        return refuse_many(shard, request, error);
    return ps_shard_take(shard, request, error);
}

/* A request that came before one with a lower sequence. */
static psc_status_t park(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    ps_guest_t *guest = guest_of(shard, request->buffer->peer);
    const uint64_t sequence = request->message.request.sequence;
    ps_request_t *waiting = find_sequence(guest->parked, sequence);
    if (waiting != NULL)
        return take_over(shard, waiting, request, error);
    if (guest->n_parked + session_of(shard, request->buffer->peer)->n_requests >= PS_GUEST_REQUESTS)
        return refuse_many(shard, request, error);
    ps_request_t **at = &guest->parked;
    while (*at != NULL && (*at)->message.request.sequence < sequence)
        at = &(*at)->next;
    request->next = *at;
    request->since_us = shard->now_us;
    *at = request;
    guest->n_parked++;
    shard->counters.requests_early++;
    return PSC_OK;
}

/* The guest has answers that this server, which went back to a checkpoint, knows nothing of: none
 * of its requests is served any more. The session stays for what it can tell (ps_guests_replace).
 */
static psc_status_t refuse_ahead(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    psc_error_t refusal = PSC_ERROR_INIT;
    const uint32_t peer = request->buffer->peer;
    ps_guest_t *guest = guest_of(shard, peer);
    if (guest->n_lost == 0)
        guest->n_lost = request->message.request.lowest_unacked - guest->next_sequence;
    (void)psc_error_set(&refusal, PSC_PEER_GONE,
                        "the server went back to a checkpoint: %" PRIu64
                        " requests of this session that it had answered since are lost. Connect "
                        "(say hello) again, and go on from that checkpoint",
                        guest->n_lost);
    const bool leaves = request->message.kind == PSP_GOODBYE;
    ps_guests_refuse_parked(shard, peer, &refusal);
    psc_status_t st = ps_shard_refuse_request(shard, request, &refusal, error);
    if (leaves)
        ps_guests_end(shard, peer);
    return st;
}

psc_status_t ps_guests_take(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const uint32_t peer = request->buffer->peer;
    const psp_request_header_t *header = &request->message.request;
    ps_guest_t *guest = guest_of(shard, peer);
    if (guest == NULL) /* a Hello */
        return ps_shard_take(shard, request, error);
    if (guest->n_lost != 0 || (guest->revived && header->lowest_unacked > guest->next_sequence))
        return refuse_ahead(shard, request, error);
    if (guest->answers_below < header->lowest_unacked)
        guest->answers_below = header->lowest_unacked;
    let_go_below(&shard->guests, guest, header->lowest_unacked);
    if (header->sequence > guest->next_sequence)
        return park(shard, request, error);
    if (header->sequence != 0 && header->sequence < guest->next_sequence)
        return repeat(shard, request, error);
    if (session_of(shard, peer)->n_requests >= PS_GUEST_REQUESTS)
        return refuse_many(shard, request, error);
    if (header->sequence == 0)
        return ps_shard_take(shard, request, error);
    psc_status_t st = PSC_OK;
    for (;;) {
        guest->next_sequence++;
        st = ps_shard_take(shard, request, error);
        guest = guest_of(shard, peer); /* it may have said goodbye */
        if (st != PSC_OK || guest == NULL || guest->parked == NULL ||
            guest->parked->message.request.sequence != guest->next_sequence)
            return st;
        request = take_parked(guest);
    }
}

/* ---- time ---- */

static void step(ps_shard_t *shard, uint32_t peer)
{
    const ps_guest_t *guest = guest_of(shard, peer);
    psc_error_t refusal = PSC_ERROR_INIT;
    bool waits_long = false;
    for (const ps_request_t *r = guest->parked; r != NULL; r = r->next)
        waits_long = waits_long || shard->now_us - r->since_us >= PS_GUESTS_GAP_US;
    if (waits_long) {
        (void)psc_error_set(&refusal, PSC_TIMEOUT,
                            "request %" PRIu64 " of this session did not come, which goes first",
                            guest->next_sequence);
        ps_guests_refuse_parked(shard, peer, &refusal);
    }
    const bool idle = session_of(shard, peer)->head == NULL && guest->parked == NULL;
    if (idle && shard->options.lease_us != 0 &&
        shard->now_us - guest->heard_us >= shard->options.lease_us) {
        shard->counters.guests_lapsed++;
        ps_guests_end(shard, peer);
    }
}

void ps_guests_step(ps_shard_t *shard)
{
    if (shard->sessions.n_all == shard->sessions.n || shard->guests.unheard ||
        shard->now_us < shard->guests.next_step_us)
        return;
    shard->guests.next_step_us = shard->now_us + STEP_US;
    for (uint32_t peer = shard->sessions.n; peer < shard->sessions.n_all; peer++) {
        if (guest_of(shard, peer) != NULL)
            step(shard, peer);
    }
}
