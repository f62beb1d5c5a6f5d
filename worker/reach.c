/*
 * A server is asked who it is, then all of them.
 *
 * The first Hello goes over a connection of its own, because how many servers there are is not
 * known before its answer; its session is ended at once. Then a transport to all of them is made
 * and every server gets its Hello, which must all be of the run that answered first. The server
 * that was asked keeps the address by which it was asked (a port that is forwarded, a name that
 * only this side knows); those of the others are what it tells.
 *
 * Waiting is done here, on the caller's thread, since nothing is there yet to blame for silence:
 * the transport tries again by itself and says why it fails. What it says of TLS is little, so the
 * port is looked at as well, and a fault that no waiting mends ends the wait.
 */
#include "worker/reach.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/hash.h"
#include "proto/grpc/grpc_client.h"

#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#define SCRATCH_BYTES ((size_t)1 << 20)
#define TELL_US UINT64_C(1000000)
#define LOOK_US UINT64_C(100000)
#define LOOK_SHARE 4u /* a look at a port rests for so many times as long as it took */
#define GUESSES 2u    /* of the same make a fault */
#define WORDS_BYTES 480u
#define AGAIN_US UINT64_C(200000) /* from a guess to the next look */
#define GOODBYE_US UINT64_C(1000000)
#define SIGNS_PER_LEASE 3u

/* ---- waiting ---- */

void psw_patience_tell(psw_patience_t *patience, uint64_t now_us, const char *why)
{
    char line[400];
    if (patience->options.waiting == NULL || now_us - patience->told_us < TELL_US)
        return;
    patience->told_us = now_us;
    if (why[0] == '\0')
        why = patience->refused;
    (void)snprintf(line, sizeof line, "waiting for %.100s since %llu s%s%.240s", patience->address,
                   (unsigned long long)((now_us - patience->begin_us) / 1000000),
                   why[0] != '\0' ? ": " : "", why);
    patience->options.waiting(patience->options.waiting_context, line);
}

/* Where there is trouble with a server, looks at its port now and then, and at the end: what is
 * wrong for good ends the wait. words: [WORDS_BYTES], "" or what else may be. */
static psc_status_t look(psw_patience_t *patience, psp_transport_t *transport, uint32_t server,
                         bool over, char *words, psc_error_t *error)
{
    const uint64_t begin_us = psc_clock_us();
    words[0] = '\0';
    if (psp_grpc_client_trouble(transport, server)[0] == '\0' ||
        (!over && begin_us < patience->look_us))
        return PSC_OK;
    const psp_grpc_look_t seen = psp_grpc_client_look(transport, server, words, WORDS_BYTES);
    const uint64_t now_us = psc_clock_us();
    patience->n_guesses = seen == PSP_GRPC_LOOK_GUESS ? patience->n_guesses + 1 : 0;
    patience->look_us =
        now_us +
        (seen == PSP_GRPC_LOOK_GUESS ? AGAIN_US : TELL_US + LOOK_SHARE * (now_us - begin_us));
    return seen == PSP_GRPC_LOOK_FAULT || patience->n_guesses >= GUESSES
               ? psc_error_set(error, PSC_PEER_GONE, "%s", words)
               : PSC_OK;
}

/* Waits a while for a server. Errors: PEER_GONE, TIMEOUT: the time is over; PEER_GONE: waiting is
 * of no use. */
static psc_status_t wait_for(psw_patience_t *patience, psp_transport_t *transport, uint32_t server,
                             psc_error_t *error)
{
    const char *trouble = psp_grpc_client_trouble(transport, server);
    const uint64_t now_us = psc_clock_us();
    const bool over =
        now_us >= patience->end_us || (patience->options.wait_ms == 0 && trouble[0] != '\0');
    char words[WORDS_BYTES];
    psc_status_t st = look(patience, transport, server, over, words, error);
    if (st != PSC_OK)
        return st;
    if (over && trouble[0] != '\0')
        return psc_error_set(error, PSC_PEER_GONE,
                             "server %u by way of %.100s is not there: %s%s%s", server,
                             patience->address, trouble, words[0] != '\0' ? "; " : "", words);
    if (over)
        return psc_error_set(
            error, PSC_TIMEOUT, "server %u by way of %.100s did not answer within %llu ms", server,
            patience->address, (unsigned long long)((now_us - patience->begin_us) / 1000));
    psw_patience_tell(patience, now_us, words[0] != '\0' ? words : trouble);
    const uint64_t left_us = patience->end_us - now_us;
    psp_transport_wait(transport, left_us < LOOK_US ? left_us : LOOK_US);
    return PSC_OK;
}

/* ---- the first server ---- */

void psw_reached_clear(psw_reached_t *reached)
{
    for (uint32_t s = 0; reached->addresses != NULL && s < reached->n_servers; s++)
        psc_free(reached->addresses[s]);
    psc_free(reached->addresses);
    *reached = (psw_reached_t){0};
}

/* Sends a message and waits for its answer, which it gives. */
static psc_status_t exchange(psw_patience_t *patience, psp_transport_t *transport,
                             const psp_message_t *message, psp_buffer_t **reply_out,
                             psc_error_t *error)
{
    psp_buffer_t *request, *reply = NULL;
    psc_status_t st = psp_message_pack(transport->pool, message, &request, error);
    if (st == PSC_OK)
        st = psp_transport_send(transport, 0, request, error);
    while (st == PSC_OK && (st = psp_transport_poll(transport, &reply, error)) == PSC_OK &&
           reply == NULL)
        st = wait_for(patience, transport, 0, error);
    if (st == PSC_OK)
        *reply_out = reply;
    return st;
}

/* What the reply to the first Hello says. */
static psc_status_t read_cluster(const psw_patience_t *patience, const psp_hello_reply_t *reply,
                                 psw_reached_t *reached, psc_error_t *error)
{
    const uint64_t wanted = patience->options.cluster;
    if (wanted != 0 && reply->cluster != wanted)
        return psc_error_set(
            error, PSC_MISMATCH, "%.100s is of run %016llx, but run %016llx is wanted",
            patience->address, (unsigned long long)reply->cluster, (unsigned long long)wanted);
    if (reply->cluster == 0 || reply->n_servers == 0 || reply->n_servers > PSC_MAX_SERVERS ||
        reply->server >= reply->n_servers)
        return psc_error_set(error, PSC_PROTOCOL, "%.100s says that it is server %u of %u of run 0",
                             patience->address, reply->server, reply->n_servers);
    if (reply->n_servers > 1 && reply->n_addresses != reply->n_servers)
        return psc_error_set(error, PSC_UNSUPPORTED,
                             "%.100s is one of %u servers, but does not say where the others "
                             "listen: start all of them with --listen",
                             patience->address, reply->n_servers);
    reached->cluster = reply->cluster;
    reached->n_servers = reply->n_servers;
    reached->addresses = psc_alloc_zeroed(reply->n_servers, sizeof(char *));
    bool made = reached->addresses != NULL;
    for (uint32_t s = 0; made && s < reply->n_servers; s++) {
        reached->addresses[s] =
            psc_strdup(s == reply->server ? patience->address : reply->addresses[s]);
        made = reached->addresses[s] != NULL;
    }
    return made ? PSC_OK : psc_error_set(error, PSC_NO_MEMORY, "no memory for addresses");
}

/* Over a transport to the first server alone. */
static psc_status_t ask_over(psw_patience_t *patience, psp_transport_t *transport,
                             psp_scratch_t *scratch, psw_reached_t *reached, psc_error_t *error)
{
    psp_message_t message = {.kind = PSP_HELLO,
                             .request = {.protocol = PSP_PROTOCOL_VERSION, .request = 1}};
    psp_message_t reply;
    psp_buffer_t *buffer;
    psc_status_t st = exchange(patience, transport, &message, &buffer, error);
    if (st != PSC_OK)
        return st;
    st = psp_message_unpack(scratch, buffer->kind, buffer->data, buffer->size, &reply, error);
    if (st == PSC_OK && reply.reply.error.code != PSC_OK)
        st = psc_error_set(error, reply.reply.error.code, "%.100s: %s", patience->address,
                           reply.reply.error.message);
    if (st == PSC_OK) {
        message.kind = PSP_GOODBYE;
        message.request.cluster = reply.u.hello_reply.cluster;
        message.request.map_epoch = reply.u.hello_reply.map_epoch;
        message.request.session = reply.u.hello_reply.session;
        st = read_cluster(patience, &reply.u.hello_reply, reached, error);
    }
    psp_buffer_put(buffer);
    if (message.kind == PSP_GOODBYE &&
        psp_message_pack(transport->pool, &message, &buffer, NULL) == PSC_OK &&
        psp_transport_send(transport, 0, buffer, NULL) == PSC_OK &&
        psp_transport_flush(transport, GOODBYE_US, NULL) != PSC_OK)
        return st; /* the lease ends the session */
    return st;
}

static uint64_t jitter_seed(void)
{
    return psc_mix64(psc_clock_us() ^ (uint64_t)getpid() << 40);
}

static psp_grpc_security_t security_of(const psw_patience_t *patience)
{
    const embps_connect_options_t *options = &patience->options;
    return (psp_grpc_security_t){.tls_ca = options->tls_ca,
                                 .tls_cert = options->tls_cert,
                                 .tls_key = options->tls_key,
                                 .token_file = options->token_file,
                                 .plain_text = options->plain_text};
}

psc_status_t psw_reach_first(psw_patience_t *patience, psp_pool_t *pool, psw_reached_t *reached,
                             psc_error_t *error)
{
    patience->mixed = false;
    const psp_grpc_client_options_t options = {.addresses = &patience->address,
                                               .n_servers = 1,
                                               .pool = pool,
                                               .seed = jitter_seed(),
                                               .security = security_of(patience)};
    psp_transport_t *transport = NULL;
    psp_scratch_t *scratch = NULL;
    psc_status_t st = psp_grpc_client_create(&options, &transport, error);
    if (st == PSC_OK)
        st = psp_scratch_create(SCRATCH_BYTES, &scratch, error);
    if (st == PSC_OK)
        st = ask_over(patience, transport, scratch, reached, error);
    psp_scratch_destroy(scratch);
    psp_transport_destroy(transport);
    return st;
}

psc_status_t psw_reach_transport(const psw_patience_t *patience, const psw_reached_t *reached,
                                 psp_pool_t *pool, psp_transport_t **transport_out,
                                 psc_error_t *error)
{
    const psp_grpc_client_options_t options = {.addresses = (const char *const *)reached->addresses,
                                               .n_servers = reached->n_servers,
                                               .pool = pool,
                                               .seed = jitter_seed(),
                                               .security = security_of(patience)};
    return psp_grpc_client_create(&options, transport_out, error);
}

/* ---- all servers ---- */

/* Hello to all, waiting for whom it takes. */
static psc_status_t hello_all(psw_patience_t *patience, embps_client_t *client, psc_error_t *error)
{
    psw_core_t *core = client->driver.core;
    psw_request_t *request;
    psc_status_t st = psw_core_hello(core, &request, error);
    while (st == PSC_OK && !psw_request_done(request)) {
        bool moved;
        uint32_t missing = 0;
        st = psw_driver_step(&client->driver, &moved, error);
        while (missing + 1 < psw_core_n_servers(core) && psw_core_has_session(core, missing))
            missing++;
        if (st == PSC_OK && !moved)
            st = wait_for(patience, client->driver.transport, missing, error);
    }
    if (st == PSC_OK)
        st = psw_client_finish(client, request, error);
    patience->mixed = st == PSC_MISMATCH;
    return st;
}

/* Signs of life, as often as the leases ask for. */
static psc_status_t keep_sessions(embps_client_t *client, psc_error_t *error)
{
    const psw_core_t *core = client->driver.core;
    psc_status_t st = PSC_OK;
    for (uint32_t s = 0; st == PSC_OK && s < psw_core_n_servers(core); s++) {
        const uint64_t period_us = psw_core_lease_ms(core, s) * UINT64_C(1000) / SIGNS_PER_LEASE;
        psp_buffer_t *sign;
        if (period_us == 0)
            continue;
        st = psw_core_sign_of_life(core, s, &sign, error);
        if (st == PSC_OK)
            st = psp_grpc_client_keep_session(client->driver.transport, sign, period_us, error);
    }
    return st;
}

static const char *trouble_of(const void *transport, uint32_t server)
{
    return psp_grpc_client_trouble(transport, server);
}

/* A number that no other client has; 0 where the system gives none. */
static uint64_t draw_number(void)
{
    uint64_t number = 0;
    return getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number ? number : 0;
}

psc_status_t psw_reach_all(psw_patience_t *patience, embps_client_t *client, psc_error_t *error)
{
    psw_core_set_client(client->driver.core, draw_number());
    psw_core_set_trouble(client->driver.core, trouble_of, client->driver.transport);
    psc_status_t st = hello_all(patience, client, error);
    return st == PSC_OK ? keep_sessions(client, error) : st;
}
