/*
 * The client as a state machine without threads, sockets or clock: sessions, sequences, parts under
 * way, windows. A driver sends what psw_core_next gives and hands in what comes.
 *
 *     psw_request_t *request;
 *     st = psw_core_request(core, PSP_CLOCK, &request, error);
 *     psw_part_t part;
 *     st = psw_core_part(core, request, server, &part, error);
 *     ... pack a message with part.header into buffer ...
 *     psw_core_enqueue(core, &part, buffer, 0, 0, 0);
 *     psw_core_seal(core, request);
 *     while ((buffer = psw_core_next(core)) != NULL)
 *         ... send buffer to buffer->peer ...
 *     st = psw_core_receive(core, buffer, error);
 *     psw_request_done(request) ...
 *     psw_core_release(core, request);
 *
 * Messages to one server leave in the order of psw_core_enqueue.
 */
#ifndef WORKER_CORE_H
#define WORKER_CORE_H

#include "common/slots.h"
#include "worker/pending.h"

typedef struct psw_core psw_core_t;

/* n_workers 0: a guest, no worker of the job. Its messages may overtake each other on their way,
 * and servers wait for each of its sequences, so none is left out. */
typedef struct psw_core_options {
    uint32_t n_servers, worker, n_workers;
    uint64_t cluster;         /* what servers must say that they are; 0: what the first one says */
    psp_pool_t *pool;         /* borrowed; outlives the core */
    size_t window_bytes;      /* under way to one server at most, expected replies included; one
                                 message is always let through. 0: 8 MiB */
    uint32_t window_messages; /* the same in messages. 0: 64 */
} psw_core_options_t;

/* A message in the making. */
typedef struct psw_part {
    psw_request_t *request;
    uint32_t server;
    psp_request_header_t header; /* complete: to be packed as it is */
} psw_part_t;

/* Errors: NO_MEMORY, INVALID_ARGUMENT. Gives. */
PSC_MUST_CHECK psc_status_t psw_core_create(const psw_core_options_t *options,
                                            psw_core_t **core_out, psc_error_t *error);
/* Frees it and all its requests; messages not sent are dropped. NULL is a no-op. */
void psw_core_destroy(psw_core_t *core);

/* ---- requests ---- */

/* A new request without parts; kind: of the messages that it will send. Errors: NO_MEMORY, and the
 * error that ended the core. Gives; psw_core_release takes it back. */
PSC_MUST_CHECK psc_status_t psw_core_request(psw_core_t *core, psp_kind_t kind,
                                             psw_request_t **request_out, psc_error_t *error);

/* Begins a part for a server. request NULL: nobody waits for its answer. Nothing needs undoing when
 * the caller does not go on with it.
 * Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t psw_core_part(psw_core_t *core, psw_request_t *request, uint32_t server,
                                          psw_part_t *part_out, psc_error_t *error);

/* ---- calls whose parts servers can tell apart (core_parts.c) ---- */

/* The number by which all servers know this guest, random, to be told before its hello; 0: it
 * numbers nothing. Workers need none. */
void psw_core_set_client(psw_core_t *core, uint64_t client);
bool psw_core_numbers_parts(const psw_core_t *core);
/* The next call has so many pushes for this server; once for each server, before the first of them
 * is begun. Then each of them is numbered, between psw_core_part and its packing. */
void psw_core_promise(psw_core_t *core, uint32_t server, uint64_t n_messages);
void psw_core_number_part(psw_core_t *core, psw_part_t *part);
/* A part tells what all servers get, this call's parts included. Borrowed until it is packed. */
void psw_core_tell_parts(const psw_core_t *core, psw_part_t *part);
/* A push of n_rows was enqueued for a server, or taken back before it was sent; and all that were.
 */
void psw_core_tally_push(psw_core_t *core, uint32_t server, size_t n_rows);
void psw_core_untally_push(psw_core_t *core, uint32_t server, size_t n_rows);
psp_tally_t psw_core_tally(const psw_core_t *core, uint32_t server);

/*
 * Ends the part begun last: buffer is sent to its server behind all that was enqueued before.
 * begin, n: its rows in request->order. reply_bytes: about how long the answer will be. Takes
 * buffer.
 */
void psw_core_enqueue(psw_core_t *core, const psw_part_t *part, psp_buffer_t *buffer,
                      uint32_t begin, uint32_t n, size_t reply_bytes);

/* Whether a message of this cost (itself and its answer) fits into the window with all that is
 * queued, so that it waits for no answer. */
bool psw_core_has_room(const psw_core_t *core, uint32_t server, size_t cost);

/* No more parts will come: the request is done when all of its parts are answered. */
void psw_core_seal(psw_core_t *core, psw_request_t *request);

/* Takes back a request that is done (or has no parts under way). NULL is a no-op. */
void psw_core_release(psw_core_t *core, psw_request_t *request);

/* Hello to every server as a sealed request; when it is done without error, the sessions and the
 * slot map are there. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_core_hello(psw_core_t *core, psw_request_t **request_out,
                                           psc_error_t *error);

/*
 * A Goodbye to a server past all queues and windows, for a client that ends in failure: also after
 * the core has ended. It is not answered to anyone. Errors: NO_MEMORY, NOT_FOUND (no session).
 * Gives.
 */
PSC_MUST_CHECK psc_status_t psw_core_last_goodbye(psw_core_t *core, uint32_t server,
                                                  uint32_t status, psp_buffer_t **buffer_out,
                                                  psc_error_t *error);

/* ---- messages ---- */

/* The next message to send (peer is set), NULL when none may leave now. Gives. */
psp_buffer_t *psw_core_next(psw_core_t *core);

/*
 * A message that came (peer and kind set). Takes buffer. An error that a server answers with is the
 * request's. Errors: what ends the core (PROTOCOL, NO_MEMORY): all requests are then failed with
 * it.
 */
PSC_MUST_CHECK psc_status_t psw_core_receive(psw_core_t *core, psp_buffer_t *buffer,
                                             psc_error_t *error);

/* Ends the core: all requests fail with error, later ones too. The first error counts. */
void psw_core_fail(psw_core_t *core, const psc_error_t *error);

/* Takes back a request whose parts could not all be made, for this reason. When some are under way
 * it ends the core: a half-sent call can neither be finished nor taken back. error_out (may be
 * NULL) gets what. */
void psw_core_give_up(psw_core_t *core, psw_request_t *request, const psc_error_t *what,
                      psc_error_t *error_out);

/* ---- time ---- */

/*
 * The time, in microseconds of any clock that never goes back: to be told whenever the driver looks
 * for messages, and before a request with a deadline is begun.
 */
void psw_core_set_time(psw_core_t *core, uint64_t now_us);

/*
 * Ends what has waited too long, after all messages that are there were handed in: rows whose
 * deadline has passed (header.deadline_ms of their part) become late, and requests that a server
 * has kept waiting for longer than the timeout, without a word, fail with TIMEOUT, which names its
 * rank and host. Answers that come later are dropped. True when anything came of it; there may be
 * messages to send now.
 */
bool psw_core_expire(psw_core_t *core);

/* When psw_core_expire is to be called at the latest; UINT64_MAX: no part has a deadline. */
uint64_t psw_core_next_deadline(const psw_core_t *core);

/* A message that only says that this client is still there, as often as one likes, for a server
 * with which there is a session. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_core_sign_of_life(const psw_core_t *core, uint32_t server,
                                                  psp_buffer_t **buffer_out, psc_error_t *error);

/* After hello: how long a server keeps the session of a client that says nothing; 0: for ever. */
uint32_t psw_core_lease_ms(const psw_core_t *core, uint32_t server);

/* 0: none, which is how a core begins. */
void psw_core_set_timeout(psw_core_t *core, uint64_t timeout_us);
uint64_t psw_core_timeout(const psw_core_t *core);

/* Why nothing comes from a server at the moment, "" if that is not known: becomes part of the error
 * of requests that it keeps waiting for too long. Borrowed until the next call. */
typedef const char *(*psw_trouble_fn)(const void *context, uint32_t server);
/* context: borrowed for as long as the core is driven. NULL, as a core begins: nothing is known. */
void psw_core_set_trouble(psw_core_t *core, psw_trouble_fn trouble, const void *context);

/* Is there a server with a session of which it is known why nothing comes from it? */
bool psw_core_in_trouble(const psw_core_t *core);

/* Of a server, after hello; "" if it did not say. Borrowed. */
const char *psw_core_host(const psw_core_t *core, uint32_t server);

/* ---- servers that are others now ---- */

/*
 * A client whose driver can find the servers anew (core_relay.c):
 *
 *     psw_core_keep(core);
 *     ...
 *     if (psw_core_is_stale(core, &server))
 *         psw_core_relay(core, n_servers, error);
 *         ... hello over other connections ...
 *         psw_core_check_counted(core, error);
 *         ... tables ...
 *         psw_core_resume(core, fn, context, error);
 *
 * From keep on, messages with rows are kept until they are answered. When a server does not know
 * the session, nothing fails: the core is stale, and nothing leaves any more until it is relaid.
 * n_workers must be 0.
 */
void psw_core_keep(psw_core_t *core);
/* server_out (may be NULL) gets one that is there. */
bool psw_core_is_stale(const psw_core_t *core, uint32_t *server_out);
/* A stale core that may be relaid now: no request is in the middle of being made. */
bool psw_core_may_relay(const psw_core_t *core);

/*
 * Every session has ended, and there are n_servers servers, to which hello is to be said. What was
 * under way is set apart: nothing of it is answered meanwhile. May be called again when the rest
 * did not come to an end. Until psw_core_resume, what a server refuses is the request's error
 * again. Errors: NO_MEMORY, INVALID_ARGUMENT (n_servers); nothing has changed then.
 */
PSC_MUST_CHECK psc_status_t psw_core_relay(psw_core_t *core, uint32_t n_servers,
                                           psc_error_t *error);

/* What was under way: a message, unpacked, of a request that waits for its answer. */
typedef struct psw_stranded {
    psw_request_t *request;
    const psp_message_t *message; /* a pull or a push */
    uint32_t begin, n;            /* its rows in request->order */
    uint32_t deadline_ms;         /* what is left of it; 0: it has none */
} psw_stranded_t;
/* Is to make parts of the same request that ask the same, and enqueues them. */
typedef psc_status_t (*psw_strand_fn)(void *context, const psw_stranded_t *stranded,
                                      psc_error_t *error);

/* Whether anything that a server acknowledged could be lost with it. */
bool psw_core_has_pushed(const psw_core_t *core);
/* Once there are sessions: whether all counts that had been acknowledged, as the servers have told
 * in their hellos. Errors: PEER_GONE: something does not, or nobody knows; there is no going on. */
PSC_MUST_CHECK psc_status_t psw_core_check_counted(const psw_core_t *core, psc_error_t *error);
/*
 * Goes on. Pushes that count already are answered; pulls and the other pushes are handed to fn,
 * those of one former server in the order in which they left; what else was under way fails with
 * PEER_GONE, to be asked again. Errors: what fn returns; the core should be ended then.
 */
PSC_MUST_CHECK psc_status_t psw_core_resume(psw_core_t *core, psw_strand_fn fn, void *context,
                                            psc_error_t *error);
/* How often it has gone on so: numbers of servers are others whenever this is another. */
uint64_t psw_core_relaid(const psw_core_t *core);

/* ---- looking ---- */

/* PSC_OK, or what ended the core (error filled). */
psc_status_t psw_core_state(const psw_core_t *core, psc_error_t *error);
/* The lowest sequence to a server that was not answered; the next one when all were. */
uint64_t psw_core_lowest_open(const psw_core_t *core, uint32_t server);
/* No request waits for an answer. */
bool psw_core_idle(const psw_core_t *core);
/* Bytes enqueued for a server that have not left. */
size_t psw_core_queued_bytes(const psw_core_t *core, uint32_t server);
size_t psw_core_window_bytes(const psw_core_t *core);
/* The first failed request that was never released; PSC_OK: none. */
psc_status_t psw_core_unseen_error(const psw_core_t *core, psc_error_t *error);

uint32_t psw_core_n_servers(const psw_core_t *core);
psp_pool_t *psw_core_pool(const psw_core_t *core);
/* The run's id, after hello. */
uint64_t psw_core_cluster(const psw_core_t *core);
/* After hello. Borrowed. */
const psc_slot_map_t *psw_core_map(const psw_core_t *core);
size_t psw_core_max_message_bytes(const psw_core_t *core);
bool psw_core_has_session(const psw_core_t *core, uint32_t server);

/* After hello: the clock that it began with, 0 but in a job that goes on from a checkpoint; that
 * one's name, "": from none. Borrowed. */
uint64_t psw_core_first_clock(const psw_core_t *core);
const char *psw_core_resumed(const psw_core_t *core);
/* The worker's clock, told in every header from now on. */
uint64_t psw_core_clock(const psw_core_t *core);
void psw_core_set_clock(psw_core_t *core, uint64_t clock);

/* Requests begun and messages sent so far. */
uint64_t psw_core_requests_begun(const psw_core_t *core);
uint64_t psw_core_messages_sent(const psw_core_t *core);

#endif
