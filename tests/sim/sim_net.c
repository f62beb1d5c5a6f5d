/*
 * A call is one attempt at a post of a client's outbox. It lives until the end of the simulation,
 * since either side may still speak of it when the other has given it up; `ended` says that its
 * client has.
 *
 * Everything that takes time is an event. Nothing leaves a process that is dead, and nothing
 * reaches it: its polls say that it was killed, so that its loops end.
 */
#include "tests/sim/sim_net.h"

#include "common/alloc.h"
#include "proto/grpc/grpc_client.h"
#include "proto/message.h"
#include "proto/outbox.h"
#include "proto/seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PORT 1000u
#define GONE_US 2000 /* until a client knows that a server is gone */

sim_weather_t sim_weather;

typedef struct client client_t;
typedef struct door door_t;

typedef struct call {
    struct call *next; /* of all */
    client_t *client;
    psp_post_t *post; /* NULL: a sign of life */
    uint32_t peer, rank;
    door_t *door;          /* that has it; NULL: none */
    psp_buffer_t *request; /* of the net's pool */
    psp_buffer_t *reply;   /* on its way */
    bool ended, sealed;
} call_t;

/* A sign of life, sent again and again. */
typedef struct sign {
    struct sign *next;
    client_t *client; /* NULL: it is gone */
    uint32_t peer;
    psp_buffer_t *buffer;
    uint64_t period_us;
} sign_t;

/* What waits in wait. */
typedef struct sleeper {
    sim_task_t *task; /* NULL: it does not wait */
    bool woken;
} sleeper_t;

struct client {
    psp_transport_t base;
    sim_process_t *process;
    uint32_t ranks[SIM_SERVERS_MAX];
    psp_outbox_t *outboxes[SIM_SERVERS_MAX];
    bool seals[SIM_SERVERS_MAX];
    char trouble[SIM_SERVERS_MAX][64];
    psc_queue_node_t *replies, *last_reply;
    sleeper_t sleeper;
};

struct door {
    psp_transport_t base;
    sim_process_t *process;
    bool open, stopping;
    psc_queue_node_t *arrived, *last_arrived;
    sleeper_t sleeper;
};

typedef struct word {
    struct word *next;
    uint64_t at_us;
    ps_round_word_t word;
} word_t;

static struct {
    sim_answer_fn answer, hear;
    psp_pool_t *pool;
    call_t *calls;
    sign_t *signs;
    door_t *doors[SIM_SERVERS_MAX];
    word_t *words[SIM_SERVERS_MAX][SIM_SERVERS_MAX]; /* [from][to], the first told first */
    bool told_over[SIM_SERVERS_MAX];
} net;

psc_status_t sim_client_create(const psp_grpc_client_options_t *options,
                               psp_transport_t **transport_out,
                               psc_error_t *error) __asm__("__wrap_psp_grpc_client_create");
const char *sim_client_trouble(const psp_transport_t *transport,
                               uint32_t peer) __asm__("__wrap_psp_grpc_client_trouble");
psp_grpc_look_t sim_client_look(const psp_transport_t *transport, uint32_t peer, char *words_out,
                                size_t size) __asm__("__wrap_psp_grpc_client_look");
psc_status_t sim_client_keep(psp_transport_t *transport, psp_buffer_t *sign, uint64_t period_us,
                             psc_error_t *error) __asm__("__wrap_psp_grpc_client_keep_session");

const char *sim_net_address(uint32_t rank)
{
    static const char *const addresses[SIM_SERVERS_MAX] = {"sim:1000", "sim:1001", "sim:1002",
                                                           "sim:1003", "sim:1004", "sim:1005",
                                                           "sim:1006", "sim:1007"};
    return addresses[rank];
}

/* ---- what both ends share ---- */

static uint64_t latency_us(void)
{
    return sim_weather.latency_us + sim_below(sim_weather.jitter_us + 1);
}

static void wake(sleeper_t *sleeper)
{
    sleeper->woken = true;
    if (sleeper->task != NULL)
        sim_task_wake(sleeper->task, sim_now() + 1);
}

static void sleep_until(sleeper_t *sleeper, uint64_t at_us)
{
    if (!sleeper->woken) {
        sleeper->task = sim_task();
        sim_wait_until(at_us);
        sleeper->task = NULL;
    }
    sleeper->woken = false;
}

static uint64_t after(uint64_t timeout_us)
{
    return timeout_us < UINT64_MAX - sim_now() ? sim_now() + timeout_us : UINT64_MAX;
}

static psp_buffer_t *copy(psp_pool_t *pool, const psp_buffer_t *from)
{
    psp_buffer_t *buffer;
    SIM_CHECK(psp_buffer_get(pool, from->size, &buffer, NULL) == PSC_OK);
    if (from->size != 0)
        memcpy(buffer->data, from->data, from->size);
    buffer->size = from->size;
    buffer->kind = from->kind;
    return buffer;
}

static void append(psc_queue_node_t **first, psc_queue_node_t **last, psp_buffer_t *buffer)
{
    buffer->node.next = NULL;
    if (*first != NULL)
        (*last)->next = &buffer->node;
    else
        *first = &buffer->node;
    *last = &buffer->node;
}

static psp_buffer_t *take(psc_queue_node_t **first)
{
    psp_buffer_t *buffer = (psp_buffer_t *)(void *)*first; /* node is its first member */
    if (buffer != NULL)
        *first = buffer->node.next;
    return buffer;
}

/* On its way, sometimes. Of a Hello and its answer the mark of the seal stays: without it they are
 * those of a client that knows no seals. */
static void damage(psp_buffer_t *buffer)
{
    const bool hello = buffer->kind == PSP_HELLO || buffer->kind == PSP_HELLO_REPLY;
    const size_t from = hello ? PSP_SEAL_BYTES : 0;
    if (!sim_one_in(sim_weather.damaged_one_in) || buffer->size <= from)
        return;
    const size_t at = from + sim_below(buffer->size - from), left = buffer->size - at;
    sim_log("a %s of %zu bytes is damaged", psp_kind_name(buffer->kind), buffer->size);
    if (sim_one_in(3))
        buffer->data[at] ^= (uint8_t)(1u << sim_below(8));
    else if (sim_one_in(4))
        buffer->size = at;
    else
        for (size_t n = 1 + sim_below(left < 64 ? left : 64), i = 0; i < n; i++)
            buffer->data[at + i] = (uint8_t)(buffer->data[at + i] + 1 + sim_below(255));
}

static psc_status_t was_killed(psc_error_t *error)
{
    return psc_error_set(error, PSC_IO, "this process was killed");
}

/* ---- calls ---- */

static void start_all(client_t *client, uint32_t peer);

/* The client hears that it has failed. */
static void fail_call(void *context)
{
    call_t *call = context;
    if (call->ended)
        return;
    call->ended = true;
    client_t *client = call->client;
    if (call->post == NULL)
        return;
    (void)snprintf(client->trouble[call->peer], sizeof client->trouble[call->peer],
                   "the connection is gone");
    psp_outbox_fail(client->outboxes[call->peer], call->post, sim_now());
    client->base.retries++;
    wake(&client->sleeper);
}

/* The client gets the answer. */
static void answer_call(void *context)
{
    call_t *call = context;
    psp_buffer_t *reply = call->reply;
    call->reply = NULL;
    if (!call->ended && call->post != NULL) {
        client_t *client = call->client;
        psp_buffer_t *buffer = copy(client->base.pool, reply);
        buffer->kind = psp_reply_kind(call->request->kind);
        damage(buffer);
        const psp_seal_t seal = psp_seal_look(buffer->kind, buffer->data, buffer->size);
        if (!psp_seal_take_reply(call->request->kind, seal, &client->seals[call->peer])) {
            psp_buffer_put(buffer);
            psp_buffer_put(reply);
            fail_call(call);
            return;
        }
        net.hear(call->rank, call->request, reply);
        buffer->peer = call->peer;
        append(&client->replies, &client->last_reply, buffer);
        client->trouble[call->peer][0] = '\0';
        psp_outbox_done(client->outboxes[call->peer], call->post);
        wake(&client->sleeper);
    }
    call->ended = true;
    psp_buffer_put(reply);
}

/* The server gets the request, if there is one that takes any. */
static void request_arrives(void *context)
{
    call_t *call = context;
    door_t *door = net.doors[call->rank];
    if (door == NULL || !door->open || door->stopping || door->process->dead) {
        sim_at(sim_now() + latency_us(), fail_call, call);
        return;
    }
    psp_buffer_t *buffer = copy(door->base.pool, call->request);
    damage(buffer);
    if (!psp_seal_take_request(buffer, true)) {
        psp_buffer_put(buffer);
        sim_at(sim_now() + latency_us(), fail_call, call);
        return;
    }
    call->sealed = buffer->sealed;
    buffer->peer = PSP_PEER_GUEST;
    buffer->call = call;
    call->door = door;
    append(&door->arrived, &door->last_arrived, buffer);
    wake(&door->sleeper);
}

static void start_call(client_t *client, uint32_t peer, psp_post_t *post,
                       const psp_buffer_t *message)
{
    call_t *call = psc_alloc_zeroed(1, sizeof *call);
    SIM_CHECK(call != NULL);
    *call = (call_t){.next = net.calls,
                     .client = client,
                     .post = post,
                     .peer = peer,
                     .rank = client->ranks[peer],
                     .request = copy(net.pool, message)};
    net.calls = call;
    uint64_t arrives_us = sim_now() + latency_us();
    if (sim_one_in(sim_weather.lost_one_in)) {
        sim_log("%s: a %s to server %u is lost", client->process->label,
                psp_kind_name(message->kind), call->rank);
        sim_at(arrives_us + latency_us(), fail_call, call);
        return;
    }
    if (sim_one_in(sim_weather.late_one_in)) {
        sim_log("%s: a %s to server %u will be late", client->process->label,
                psp_kind_name(message->kind), call->rank);
        sim_at(arrives_us + latency_us(), fail_call, call);
        arrives_us += sim_below(sim_weather.late_us + 1);
    } else if (sim_one_in(sim_weather.reset_one_in)) {
        sim_at(sim_now() + sim_below(8 * (latency_us() + 1)), fail_call, call);
    }
    sim_at(arrives_us, request_arrives, call);
}

static void start_all(client_t *client, uint32_t peer)
{
    psp_post_t *post;
    while (!client->process->dead &&
           (post = psp_outbox_next(client->outboxes[peer], sim_now())) != NULL)
        start_call(client, peer, post, post->buffer);
}

/* ---- a client's transport ---- */

static client_t *client_of(const psp_transport_t *transport)
{
    return (client_t *)(void *)(uintptr_t)transport;
}

static psc_status_t client_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                                psc_error_t *error)
{
    client_t *client = client_of(transport);
    if (client->seals[peer] || buffer->kind == PSP_HELLO)
        psp_seal_put(buffer, 0, 0);
    psc_status_t st = psp_outbox_add(client->outboxes[peer], buffer, error);
    if (st == PSC_OK)
        start_all(client, peer);
    return st;
}

static psc_status_t client_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                                psc_error_t *error)
{
    client_t *client = client_of(transport);
    *buffer_out = NULL;
    if (client->process->dead)
        return was_killed(error);
    for (uint32_t peer = 0; peer < client->base.n_peers; peer++)
        start_all(client, peer);
    *buffer_out = take(&client->replies);
    if (*buffer_out != NULL)
        transport->bytes_received += (*buffer_out)->size;
    return PSC_OK;
}

static void client_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    client_t *client = client_of(transport);
    uint64_t at_us = after(timeout_us);
    for (uint32_t peer = 0; peer < transport->n_peers; peer++) {
        const uint64_t until_us = psp_outbox_rests_until(client->outboxes[peer]);
        if (until_us != 0 && until_us < at_us)
            at_us = until_us;
    }
    if (client->replies == NULL)
        sleep_until(&client->sleeper, at_us);
}

static void client_wake(psp_transport_t *transport)
{
    wake(&client_of(transport)->sleeper);
}

static size_t client_backlog(psp_transport_t *transport, uint32_t peer)
{
    return psp_outbox_bytes(client_of(transport)->outboxes[peer]);
}

static psc_status_t client_flush(psp_transport_t *transport, uint64_t timeout_us,
                                 psc_error_t *error)
{
    client_t *client = client_of(transport);
    const uint64_t end_us = after(timeout_us);
    for (;;) {
        bool all = true;
        for (uint32_t peer = 0; peer < transport->n_peers; peer++) {
            start_all(client, peer);
            all = all && psp_outbox_is_empty(client->outboxes[peer]);
        }
        if (all)
            return PSC_OK;
        if (client->process->dead || sim_now() >= end_us)
            return psc_error_set(error, PSC_TIMEOUT, "messages were not answered in time");
        client->sleeper.woken = false;
        sleep_until(&client->sleeper, sim_now() + 1000 < end_us ? sim_now() + 1000 : end_us);
    }
}

static void client_destroy(psp_transport_t *transport)
{
    client_t *client = client_of(transport);
    psp_buffer_t *reply;
    for (call_t *call = net.calls; call != NULL; call = call->next)
        call->ended = call->ended || call->client == client;
    for (sign_t *sign = net.signs; sign != NULL; sign = sign->next)
        sign->client = sign->client == client ? NULL : sign->client;
    while ((reply = take(&client->replies)) != NULL)
        psp_buffer_put(reply);
    for (uint32_t peer = 0; peer < transport->n_peers; peer++)
        psp_outbox_destroy(client->outboxes[peer]);
    psc_free(client);
}

static const psp_transport_ops_t client_ops = {
    .name = "simulated client",
    .send = client_send,
    .poll = client_poll,
    .wait = client_wait,
    .wake = client_wake,
    .backlog = client_backlog,
    .flush = client_flush,
    .destroy = client_destroy,
};

psc_status_t sim_client_create(const psp_grpc_client_options_t *options,
                               psp_transport_t **transport_out, psc_error_t *error)
{
    client_t *client = psc_alloc_zeroed(1, sizeof *client);
    SIM_CHECK(client != NULL && options->n_servers <= SIM_SERVERS_MAX);
    client->base =
        (psp_transport_t){.ops = &client_ops, .n_peers = options->n_servers, .pool = options->pool};
    client->process = sim_current();
    psp_pool_seal(options->pool);
    for (uint32_t peer = 0; peer < options->n_servers; peer++) {
        const char *port = strrchr(options->addresses[peer], ':');
        SIM_CHECK(port != NULL);
        client->ranks[peer] = (uint32_t)strtoul(port + 1, NULL, 10) - FIRST_PORT;
        SIM_CHECK(client->ranks[peer] < SIM_SERVERS_MAX);
        psc_status_t st = psp_outbox_create(sim_below(UINT64_MAX), &client->outboxes[peer], error);
        SIM_CHECK(st == PSC_OK);
    }
    *transport_out = &client->base;
    return PSC_OK;
}

const char *sim_client_trouble(const psp_transport_t *transport, uint32_t peer)
{
    return client_of(transport)->trouble[peer];
}

psp_grpc_look_t sim_client_look(const psp_transport_t *transport, uint32_t peer, char *words_out,
                                size_t size)
{
    (void)transport;
    (void)peer;
    if (size != 0)
        words_out[0] = '\0';
    return PSP_GRPC_LOOK_NOTHING;
}

static void give_sign(void *context)
{
    sign_t *sign = context;
    if (sign->client == NULL || sign->client->process->dead)
        return;
    start_call(sign->client, sign->peer, NULL, sign->buffer);
    sim_at(sim_now() + sign->period_us, give_sign, sign);
}

psc_status_t sim_client_keep(psp_transport_t *transport, psp_buffer_t *buffer, uint64_t period_us,
                             psc_error_t *error)
{
    (void)error;
    sign_t *sign = psc_alloc_zeroed(1, sizeof *sign);
    SIM_CHECK(sign != NULL);
    if (client_of(transport)->seals[buffer->peer])
        psp_seal_put(buffer, 0, 0);
    *sign = (sign_t){.next = net.signs,
                     .client = client_of(transport),
                     .peer = buffer->peer,
                     .buffer = copy(net.pool, buffer),
                     .period_us = period_us};
    psp_buffer_put(buffer);
    net.signs = sign;
    sim_at(sim_now() + period_us, give_sign, sign);
    return PSC_OK;
}

/* ---- a server's transport ---- */

static door_t *door_of(psp_transport_t *transport)
{
    return (door_t *)(void *)transport;
}

static psc_status_t door_send(psp_transport_t *transport, uint32_t peer, psp_buffer_t *buffer,
                              psc_error_t *error)
{
    (void)peer;
    (void)error;
    door_t *door = door_of(transport);
    call_t *call = buffer->call;
    SIM_CHECK(call != NULL && call->door == door);
    if (!door->process->dead) {
        if (call->sealed)
            psp_seal_put(buffer, 0, 0);
        net.answer(transport->rank, call->request, buffer);
        call->door = NULL;
        if (sim_one_in(sim_weather.lost_one_in)) {
            sim_log("an answer of server %u is lost: %s", transport->rank,
                    psp_kind_name(buffer->kind));
            sim_at(sim_now() + latency_us(), fail_call, call);
        } else {
            call->reply = copy(net.pool, buffer);
            sim_at(sim_now() + latency_us(), answer_call, call);
        }
    }
    psp_buffer_put(buffer);
    return PSC_OK;
}

static psc_status_t door_poll(psp_transport_t *transport, psp_buffer_t **buffer_out,
                              psc_error_t *error)
{
    door_t *door = door_of(transport);
    *buffer_out = NULL;
    if (door->process->dead)
        return was_killed(error);
    *buffer_out = take(&door->arrived);
    return PSC_OK;
}

static void door_wait(psp_transport_t *transport, uint64_t timeout_us)
{
    door_t *door = door_of(transport);
    if (door->arrived == NULL)
        sleep_until(&door->sleeper, after(timeout_us));
}

static void door_wake(psp_transport_t *transport)
{
    wake(&door_of(transport)->sleeper);
}

static size_t door_backlog(psp_transport_t *transport, uint32_t peer)
{
    (void)transport;
    (void)peer;
    return 0;
}

static psc_status_t door_flush(psp_transport_t *transport, uint64_t timeout_us, psc_error_t *error)
{
    (void)transport;
    (void)timeout_us;
    (void)error;
    return PSC_OK;
}

static void door_stop(psp_transport_t *transport)
{
    door_of(transport)->stopping = true;
}

/* Calls that it has not answered end. */
static void door_destroy(psp_transport_t *transport)
{
    door_t *door = door_of(transport);
    psp_buffer_t *buffer;
    while ((buffer = take(&door->arrived)) != NULL)
        psp_buffer_put(buffer);
    for (call_t *call = net.calls; call != NULL; call = call->next) {
        if (call->door != door)
            continue;
        call->door = NULL;
        sim_at(sim_now() + sim_below(GONE_US), fail_call, call);
    }
    if (net.doors[transport->rank] == door)
        net.doors[transport->rank] = NULL;
    psc_free(door);
}

static const psp_transport_ops_t door_ops = {
    .name = "simulated door",
    .send = door_send,
    .poll = door_poll,
    .wait = door_wait,
    .wake = door_wake,
    .backlog = door_backlog,
    .flush = door_flush,
    .stop = door_stop,
    .destroy = door_destroy,
};

psp_transport_t *sim_door_create(uint32_t rank, sim_process_t *process, psp_pool_t *pool)
{
    door_t *door = psc_alloc_zeroed(1, sizeof *door);
    SIM_CHECK(door != NULL);
    door->base = (psp_transport_t){.ops = &door_ops, .rank = rank, .pool = pool};
    door->process = process;
    psp_pool_seal(pool);
    net.doors[rank] = door;
    return &door->base;
}

void sim_door_let_in(psp_transport_t *transport)
{
    door_of(transport)->open = true;
}

/* ---- words ---- */

void sim_words_clear(void)
{
    for (size_t i = 0; i < SIM_SERVERS_MAX; i++) {
        for (size_t k = 0; k < SIM_SERVERS_MAX; k++) {
            while (net.words[i][k] != NULL) {
                word_t *word = net.words[i][k];
                net.words[i][k] = word->next;
                psc_free(word);
            }
        }
        net.told_over[i] = false;
    }
}

void sim_words_tell(sim_process_t *process, uint32_t from, uint32_t to, const ps_round_word_t *word)
{
    word_t **end = &net.words[from][to];
    uint64_t at_us = sim_now() + latency_us();
    if (process->dead)
        return;
    for (; *end != NULL; end = &(*end)->next)
        at_us = (*end)->at_us > at_us ? (*end)->at_us : at_us;
    word_t *told = psc_alloc_zeroed(1, sizeof *told);
    SIM_CHECK(told != NULL);
    *told = (word_t){.at_us = at_us, .word = *word};
    *end = told;
}

bool sim_words_hear(sim_process_t *process, uint32_t to, ps_round_word_t *word_out,
                    uint32_t *from_out)
{
    if (process->dead) { /* its rounds are over, or it would wait for others for ever */
        *word_out = (ps_round_word_t){.kind = PS_ROUND_OVER, .error = PSC_ERROR_INIT};
        *from_out = 0;
        net.told_over[to] = !net.told_over[to];
        return net.told_over[to];
    }
    for (uint32_t from = 0; from < SIM_SERVERS_MAX; from++) {
        word_t *word = net.words[from][to];
        if (word == NULL || word->at_us > sim_now())
            continue;
        net.words[from][to] = word->next;
        *word_out = word->word;
        *from_out = from;
        psc_free(word);
        return true;
    }
    return false;
}

/* ---- life ---- */

void sim_net_begin(sim_answer_fn answer, sim_answer_fn hear)
{
    net.answer = answer;
    net.hear = hear;
    SIM_CHECK(psp_pool_create((size_t)1 << 20, &net.pool, NULL) == PSC_OK);
}

void sim_net_end(void)
{
    sim_words_clear();
    while (net.calls != NULL) {
        call_t *call = net.calls;
        net.calls = call->next;
        psp_buffer_put(call->request);
        psp_buffer_put(call->reply);
        psc_free(call);
    }
    while (net.signs != NULL) {
        sign_t *sign = net.signs;
        net.signs = sign->next;
        psp_buffer_put(sign->buffer);
        psc_free(sign);
    }
    psp_pool_destroy(net.pool);
}
