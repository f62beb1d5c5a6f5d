/*
 * A transport of unary calls.
 *
 * A message goes into the outbox of its peer and leaves as a call when the outbox says so. When the
 * call has ended, the queue's thread copies the reply out of gRPC's slices, beside the program's
 * own work, and puts the call into `ended`, for which the client's thread waits; that one settles
 * it: answered, and the reply is next for poll; or failed, and its message goes back to the outbox.
 * When an outbox has rested, its messages leave at the next look.
 *
 * Statuses. What a later attempt may mend is tried again: the connection, a server that ends, and
 * for a while (MAX_REFUSALS) a server that has no room. Everything else means that the two sides do
 * not understand each other, and is what poll returns, which ends the client: a message that was
 * refused for good would leave a gap in the order of sequences for which the server waits.
 *
 * Seals. A Hello is sealed; where its answer is, so is everything that follows, both ways. A
 * request that came damaged is refused with DATA_LOSS, an answer that did is dropped here: either
 * way the message leaves again, as after any other failure.
 *
 * Connections. One channel a peer, not shared with other clients of the process. gRPC connects by
 * itself; after a failure it is told to begin anew without its own rest, since the outbox has one.
 * Where the files of certificates have changed by then, new channels take their place; a call that
 * was not let in is made again where the token has.
 *
 * End: calls under way are cancelled and waited for, then channels, then the queue. gRPC may give
 * back the last buffers a moment later, on threads of its own, so the pool's owner waits for them.
 * Threads: the client's uses everything; the queue's touches calls from their event to `ended`.
 */
#include "proto/grpc/grpc_client.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/text.h"
#include "proto/grpc/grpc_call.h"
#include "proto/grpc/grpc_probe.h"
#include "proto/grpc/grpc_secrets.h"
#include "proto/grpc/grpc_signs.h"
#include "proto/grpc/listen_address.h"
#include "proto/message.h"
#include "proto/outbox.h"
#include "proto/seal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TROUBLE_BYTES 200
#define PROBE_BYTES 400
#define MAX_REFUSALS 30u
#define MAX_DAMAGED 8u /* of one message, or answers to it */

typedef struct peer {
    char *address;
    grpc_channel *channel;
    void *methods[PSP_KIND_LAST + 1]; /* by kind; NULL: not called yet */
    psp_outbox_t *outbox;
    char trouble[TROUBLE_BYTES];
    bool seals; /* its answer to the last Hello was sealed: so is everything since, both ways */
} peer_t;

typedef struct client client_t;

typedef struct post_call {
    psp_grpc_call_t call;  /* first */
    psc_queue_node_t node; /* of ended */
    client_t *client;
    uint32_t peer;
    psp_post_t *post;
    psp_buffer_t *reply; /* copied; NULL: none */
    psp_seal_t seal;     /* of the reply */
    psc_error_t error;   /* why it could not be copied */
    struct post_call *previous, *next;
} post_call_t;

struct client {
    psp_transport_t base; /* first */
    pid_t process;
    psp_grpc_queue_t *queue;
    psp_grpc_secrets_t *secrets;
    psc_queue_t *ended;
    peer_t *peers;
    post_call_t *under_way;                   /* linked both ways */
    post_call_t *unused;                      /* linked by next */
    psc_queue_node_t *replies, *last_replies; /* for poll */
    psp_grpc_signs_t *signs;                  /* NULL: none are sent */
};

static client_t *client_of(psp_transport_t *transport)
{
    return (client_t *)transport; /* base is the first member */
}

/* ---- calls ---- */

/* On the queue's thread. */
static void call_ended(psp_grpc_tag_t *tag, bool ok)
{
    (void)ok;
    post_call_t *call = (post_call_t *)(void *)tag; /* its first member's first member */
    client_t *client = call->client;
    /* One that was not allowed is answered too, beside the status. */
    const bool answered =
        call->call.status == GRPC_STATUS_OK ||
        (call->call.status == GRPC_STATUS_PERMISSION_DENIED && call->call.reply != NULL);
    if (answered && psp_grpc_take(client->base.pool, call->call.reply, PSP_GRPC_MAX_MESSAGE_BYTES,
                                  &call->reply, &call->error) != PSC_OK)
        call->reply = NULL; /* error says why */
    if (call->reply != NULL)
        call->seal = psp_seal_look(psp_reply_kind(call->post->buffer->kind), call->reply->data,
                                   call->reply->size);
    psc_queue_push(client->ended, &call->node);
}

static psc_status_t start(client_t *client, uint32_t peer_number, psp_post_t *post,
                          psc_error_t *error)
{
    peer_t *peer = &client->peers[peer_number];
    const uint32_t kind = post->buffer->kind;
    post_call_t *call = client->unused;
    if (call != NULL)
        client->unused = call->next;
    else
        call = psc_alloc_zeroed(1, sizeof *call);
    if (call == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a call");
    *call = (post_call_t){.call.tag.done = call_ended,
                          .client = client,
                          .peer = peer_number,
                          .post = post,
                          .error = PSC_ERROR_INIT,
                          .next = client->under_way};
    if (client->under_way != NULL)
        client->under_way->previous = call;
    client->under_way = call;
    if (peer->methods[kind] == NULL)
        peer->methods[kind] =
            grpc_channel_register_call(peer->channel, psp_grpc_method(kind), NULL, NULL);
    psp_grpc_call_start(&call->call, client->queue, peer->channel, peer->methods[kind],
                        client->secrets, post->buffer);
    return PSC_OK;
}

/* Begins what may leave. */
static psc_status_t start_all(client_t *client, uint32_t peer, psc_error_t *error)
{
    psp_post_t *post;
    psc_status_t st = PSC_OK;
    const uint64_t now_us =
        psp_outbox_rests_until(client->peers[peer].outbox) != 0 ? psc_clock_us() : 0;
    while (st == PSC_OK && (post = psp_outbox_next(client->peers[peer].outbox, now_us)) != NULL)
        st = start(client, peer, post, error);
    return st;
}

static bool worth_another(grpc_status_code status, psp_post_t *post)
{
    switch (status) {
    case GRPC_STATUS_UNAVAILABLE:
    case GRPC_STATUS_ABORTED:
    case GRPC_STATUS_CANCELLED:
    case GRPC_STATUS_DEADLINE_EXCEEDED:
    case GRPC_STATUS_INTERNAL: /* a stream that was reset */
    case GRPC_STATUS_UNKNOWN:
        return true;
    case GRPC_STATUS_DATA_LOSS: /* it came damaged */
        return ++post->damaged < MAX_DAMAGED;
    case GRPC_STATUS_RESOURCE_EXHAUSTED:
        return post->attempts < MAX_REFUSALS;
    default:
        return false;
    }
}

/* What gRPC says of a failure, without the words that it says of every one. */
static void note_trouble(peer_t *peer, const grpc_slice *details)
{
    static const char *const prefixes[] = {
        "failed to connect to all addresses; last error: ", "UNKNOWN: ", "UNAVAILABLE: "};
    const char *text = (const char *)GRPC_SLICE_START_PTR(*details);
    size_t n = GRPC_SLICE_LENGTH(*details);
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        const size_t length = strlen(prefixes[i]);
        if (n > length && memcmp(text, prefixes[i], length) == 0) {
            text += length;
            n -= length;
        }
    }
    n = n < sizeof peer->trouble - 1 ? n : sizeof peer->trouble - 1;
    memcpy(peer->trouble, text, n);
    peer->trouble[n] = '\0';
}

static void open_channel(client_t *client, peer_t *peer)
{
    psp_grpc_args_t args;
    psp_grpc_channel_args(PSP_GRPC_MAX_MESSAGE_BYTES, &args);
    grpc_channel_credentials *credentials = psp_grpc_secrets_credentials(client->secrets);
    peer->channel = grpc_channel_create(peer->address, credentials, &args.args);
    grpc_channel_credentials_release(credentials);
}

/* Other certificates are for other channels; what is under way on the old ones fails, and comes up
 * again. */
static void renew_channels(client_t *client)
{
    if (!psp_grpc_secrets_renew(client->secrets))
        return;
    for (uint32_t i = 0; i < client->base.n_peers; i++) {
        peer_t *peer = &client->peers[i];
        grpc_channel *old = peer->channel;
        open_channel(client, peer);
        memset(peer->methods, 0, sizeof peer->methods);
        if (client->signs != NULL)
            psp_grpc_signs_move(client->signs, old, peer->channel);
        grpc_channel_destroy(old);
    }
}

/* The message comes up again. */
static void make_again(client_t *client, const post_call_t *call)
{
    psp_outbox_fail(client->peers[call->peer].outbox, call->post, psc_clock_us());
    client->base.retries++;
}

/* The call has failed: it comes up again, or that is the end. */
static psc_status_t settle_failure(client_t *client, post_call_t *call, psc_error_t *error)
{
    peer_t *peer = &client->peers[call->peer];
    const grpc_status_code status = call->call.status;
    note_trouble(peer, &call->call.details);
    if (!worth_another(status, call->post) &&
        !(status == GRPC_STATUS_UNAUTHENTICATED &&
          psp_grpc_secrets_has_newer_token(client->secrets, &call->call.token))) {
        const psc_status_t st = psc_error_set(
            error, psp_grpc_code(status), "server %u at %s refuses a %s: %s", call->peer,
            peer->address, psp_kind_name(call->post->buffer->kind), peer->trouble);
        if (error != NULL)
            error->rank = (int32_t)call->peer;
        return st;
    }
    make_again(client, call);
    if (status == GRPC_STATUS_UNAVAILABLE)
        renew_channels(client);
    grpc_channel_reset_connect_backoff(peer->channel);
    (void)grpc_channel_check_connectivity_state(peer->channel, 1);
    return PSC_OK;
}

/* An answer that is damaged is none: it is asked for again. */
static psc_status_t settle_damaged(client_t *client, post_call_t *call, psc_error_t *error)
{
    peer_t *peer = &client->peers[call->peer];
    const char *kind = psp_kind_name(psp_reply_kind(call->post->buffer->kind));
    const size_t size = call->reply->size;
    psp_buffer_put(call->reply);
    client->base.damaged++;
    (void)snprintf(peer->trouble, sizeof peer->trouble, "a %s of %zu bytes came damaged", kind,
                   size);
    if (++call->post->damaged < MAX_DAMAGED) {
        make_again(client, call);
        return PSC_OK;
    }
    (void)psc_error_set(error, PSC_CORRUPT,
                        "server %u at %s: a %s of %zu bytes came damaged, as did the %u before it: "
                        "the way to that server, or the memory of one side, is broken",
                        call->peer, peer->address, kind, size, call->post->damaged - 1);
    if (error != NULL)
        error->rank = (int32_t)call->peer;
    return PSC_CORRUPT;
}

static void settle_reply(client_t *client, post_call_t *call)
{
    psp_buffer_t *reply = call->reply;
    reply->kind = psp_reply_kind(call->post->buffer->kind);
    reply->peer = call->peer;
    reply->node.next = NULL;
    if (client->last_replies != NULL)
        client->last_replies->next = &reply->node;
    else
        client->replies = &reply->node;
    client->last_replies = &reply->node;
    client->peers[call->peer].trouble[0] = '\0';
    psp_outbox_done(client->peers[call->peer].outbox, call->post);
}

/* Takes a call that has ended off the list. */
static void put_away(client_t *client, post_call_t *call)
{
    if (call->previous != NULL)
        call->previous->next = call->next;
    else
        client->under_way = call->next;
    if (call->next != NULL)
        call->next->previous = call->previous;
    psp_grpc_call_finish(&call->call);
    call->next = client->unused;
    client->unused = call;
}

static post_call_t *next_ended(client_t *client)
{
    psc_queue_node_t *node = psc_queue_pop(client->ended);
    return node == NULL ? NULL
                        : (post_call_t *)(void *)((char *)node - offsetof(post_call_t, node));
}

/* Settles what has ended and begins what may leave. */
static psc_status_t step(client_t *client, psc_error_t *error)
{
    post_call_t *call;
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && (call = next_ended(client)) != NULL) {
        const uint32_t peer = call->peer;
        if (call->reply != NULL &&
            psp_seal_take_reply(call->post->buffer->kind, call->seal, &client->peers[peer].seals))
            settle_reply(client, call);
        else if (call->reply != NULL)
            st = settle_damaged(client, call, error);
        else if (call->error.code != PSC_OK)
            st = psc_error_set(error, call->error.code, "the answer of server %u: %s", peer,
                               call->error.message);
        else
            st = settle_failure(client, call, error);
        put_away(client, call);
        if (st == PSC_OK)
            st = start_all(client, peer, error);
    }
    for (uint32_t peer = 0; st == PSC_OK && peer < client->base.n_peers; peer++) {
        if (psp_outbox_rests_until(client->peers[peer].outbox) != 0)
            st = start_all(client, peer, error);
    }
    return st;
}

/* ---- the transport ---- */

static psc_status_t check_process(const client_t *client, psc_error_t *error)
{
    const pid_t process = getpid();
    if (process == client->process)
        return PSC_OK;
    return psc_error_set(error, PSC_UNSUPPORTED,
                         "this client belongs to process %ld; a child after a fork (%ld) has to "
                         "connect itself",
                         (long)client->process, (long)process);
}

static psc_status_t client_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                                psc_error_t *error)
{
    client_t *client = client_of(transport);
    PSC_BUG_ON(peer >= transport->n_peers);
    psc_status_t st = check_process(client, error);
    if (st != PSC_OK) {
        psp_buffer_put(buffer);
        return st;
    }
    if (client->peers[peer].seals || buffer->kind == PSP_HELLO)
        psp_seal_put(buffer, 0, 0);
    st = psp_outbox_add(client->peers[peer].outbox, buffer, error);
    return st == PSC_OK ? start_all(client, peer, error) : st;
}

static psp_buffer_t *take_reply(client_t *client)
{
    psc_queue_node_t *node = client->replies;
    if (node == NULL)
        return NULL;
    client->replies = node->next;
    if (client->replies == NULL)
        client->last_replies = NULL;
    return (psp_buffer_t *)(void *)node; /* node is the first member */
}

static psc_status_t client_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                                psc_error_t *error)
{
    client_t *client = client_of(transport);
    psc_status_t st = check_process(client, error);
    *buffer_out = NULL;
    if (st == PSC_OK && client->replies == NULL)
        st = step(client, error);
    if (st != PSC_OK)
        return st;
    *buffer_out = take_reply(client);
    if (*buffer_out != NULL)
        transport->bytes_received += (*buffer_out)->size;
    return PSC_OK;
}

static void client_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    client_t *client = client_of(transport);
    const uint64_t now_us = psc_clock_us();
    for (uint32_t peer = 0; peer < transport->n_peers; peer++) {
        const uint64_t until_us = psp_outbox_rests_until(client->peers[peer].outbox);
        if (until_us == 0)
            continue;
        const uint64_t rest_us = until_us > now_us ? until_us - now_us : 1;
        timeout_us = rest_us < timeout_us ? rest_us : timeout_us;
    }
    psc_queue_wait(client->ended, timeout_us);
}

static void client_wake(psp_transport_t *transport)
{
    psc_queue_wake(client_of(transport)->ended);
}

static size_t client_backlog(psp_transport_t *transport, uint32_t peer)
{
    return psp_outbox_bytes(client_of(transport)->peers[peer].outbox);
}

static bool all_answered(const client_t *client)
{
    for (uint32_t peer = 0; peer < client->base.n_peers; peer++) {
        if (!psp_outbox_is_empty(client->peers[peer].outbox))
            return false;
    }
    return true;
}

static psc_status_t client_flush(psp_transport_t *transport, uint64_t timeout_us,
                                 psc_error_t *error)
{
    client_t *client = client_of(transport);
    const uint64_t end_us = psc_clock_us() + timeout_us;
    psc_status_t st = check_process(client, error);
    while (st == PSC_OK) {
        st = step(client, error);
        if (st != PSC_OK || all_answered(client))
            break;
        const uint64_t now_us = psc_clock_us();
        if (now_us >= end_us)
            return psc_error_set(error, PSC_TIMEOUT, "messages were not answered in time");
        client_wait(transport, end_us - now_us);
    }
    return st;
}

static void destroy_parts(client_t *client)
{
    for (uint32_t peer = 0; client->peers != NULL && peer < client->base.n_peers; peer++) {
        psp_outbox_destroy(client->peers[peer].outbox);
        psc_free(client->peers[peer].address);
        if (client->peers[peer].channel != NULL)
            grpc_channel_destroy(client->peers[peer].channel);
    }
    psp_grpc_secrets_destroy(client->secrets);
    psp_grpc_queue_destroy(client->queue);
    psc_queue_destroy(client->ended);
    while (client->unused != NULL) {
        post_call_t *call = client->unused;
        client->unused = call->next;
        psc_free(call);
    }
    psc_free(client->peers);
    psc_free(client);
}

static void client_destroy(psp_transport_t *transport)
{
    client_t *client = client_of(transport);
    psp_buffer_t *reply;
    if (getpid() != client->process)
        return; /* gRPC's threads are not here; nothing of it may be touched */
    psp_grpc_signs_destroy(client->signs);
    for (post_call_t *call = client->under_way; call != NULL; call = call->next)
        (void)grpc_call_cancel(call->call.inside, NULL);
    while (client->under_way != NULL) {
        post_call_t *call = next_ended(client);
        if (call == NULL) {
            psc_queue_wait(client->ended, UINT64_MAX);
            continue;
        }
        psp_buffer_put(call->reply);
        put_away(client, call);
    }
    while ((reply = take_reply(client)) != NULL)
        psp_buffer_put(reply);
    destroy_parts(client);
}

static const psp_transport_ops_t client_ops = {
    .name = "grpc",
    .send = client_send,
    .poll = client_poll,
    .wait = client_wait,
    .wake = client_wake,
    .backlog = client_backlog,
    .flush = client_flush,
    .destroy = client_destroy,
};

/* ---- making one ---- */

psc_status_t psp_grpc_check_address(const char *text, psc_error_t *error)
{
    char host[PSP_ADDRESS_MAX + 1];
    uint32_t port;
    const bool fine =
        strlen(text) <= PSP_NAME_MAX &&
        (strncmp(text, "unix:", 5) == 0 || (psp_address_parse(text, host, sizeof host, &port) &&
                                            port != 0 && strpbrk(host, "/ \t\r\n") == NULL));
    if (fine)
        return PSC_OK;
    char shown[PSC_TEXT_SHOWN(100)];
    return psc_error_set(error, PSC_INVALID_ARGUMENT,
                         "\"%s\" is no address: HOST:PORT, [IPV6]:PORT or unix:PATH",
                         psc_text_show(text, strnlen(text, 100), shown, sizeof shown));
}

static psc_status_t create_peer(client_t *client, const psp_grpc_client_options_t *options,
                                uint32_t number, psc_error_t *error)
{
    peer_t *peer = &client->peers[number];
    psc_status_t st = psp_grpc_check_address(options->addresses[number], error);
    if (st == PSC_OK)
        st = psp_grpc_secrets_check(client->secrets, options->addresses[number], error);
    if (st == PSC_OK)
        st = psp_outbox_create(options->seed + number, &peer->outbox, error);
    if (st != PSC_OK)
        return st;
    peer->address = psc_strdup(options->addresses[number]);
    if (peer->address == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a connection");
    open_channel(client, peer);
    return PSC_OK;
}

static psc_status_t create(const psp_grpc_client_options_t *options,
                           psp_transport_t **transport_out, psc_error_t *error)
{
    client_t *client = psc_alloc_zeroed(1, sizeof *client);
    if (client == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for connections");
    client->base =
        (psp_transport_t){.ops = &client_ops, .n_peers = options->n_servers, .pool = options->pool};
    client->process = getpid();
    psp_pool_seal(options->pool);
    client->peers = psc_alloc_zeroed(options->n_servers, sizeof *client->peers);
    psc_status_t st = PSC_OK;
    if (client->peers == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for connections");
    if (st == PSC_OK)
        st = psc_queue_create(&client->ended, error);
    if (st == PSC_OK)
        st = psp_grpc_queue_create(&client->queue, error);
    if (st == PSC_OK)
        st = psp_grpc_secrets_create(&options->security, &client->secrets, error);
    for (uint32_t peer = 0; st == PSC_OK && peer < options->n_servers; peer++)
        st = create_peer(client, options, peer, error);
    if (st != PSC_OK) {
        destroy_parts(client);
        return st;
    }
    *transport_out = &client->base;
    return PSC_OK;
}

psc_status_t psp_grpc_client_create(const psp_grpc_client_options_t *options,
                                    psp_transport_t **transport_out, psc_error_t *error)
{
    sigset_t all, before; /* threads that gRPC starts meanwhile inherit the mask */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    psc_status_t st = create(options, transport_out, error);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return st;
}

const char *psp_grpc_client_trouble(const psp_transport_t *transport, uint32_t peer)
{
    return ((const client_t *)transport)->peers[peer].trouble;
}

psp_grpc_look_t psp_grpc_client_look(const psp_transport_t *transport, uint32_t peer,
                                     char *words_out, size_t size)
{
    const client_t *client = (const client_t *)transport;
    const char *address = client->peers[peer].address;
    const psp_shown_t shown = psp_grpc_secrets_shown(client->secrets);
    char words[PROBE_BYTES];
    const psp_probe_t probe = psp_grpc_probe(address, &shown, words, sizeof words);
    words_out[0] = '\0';
    if (probe == PSP_PROBE_NOTHING)
        return PSP_GRPC_LOOK_NOTHING;
    (void)snprintf(words_out, size, "the server at %.100s %s", address, words);
    return probe == PSP_PROBE_FAULT ? PSP_GRPC_LOOK_FAULT : PSP_GRPC_LOOK_GUESS;
}

psc_status_t psp_grpc_client_keep_session(psp_transport_t *transport, psp_buffer_t *sign,
                                          uint64_t period_us, psc_error_t *error)
{
    client_t *client = client_of(transport);
    psc_status_t st = PSC_OK;
    if (client->signs == NULL)
        st = psp_grpc_signs_create(client->queue, client->secrets, &client->signs, error);
    if (st != PSC_OK) {
        psp_buffer_put(sign);
        return st;
    }
    if (client->peers[sign->peer].seals)
        psp_seal_put(sign, 0, 0);
    return psp_grpc_signs_add(client->signs, client->peers[sign->peer].channel, sign, period_us,
                              error);
}
