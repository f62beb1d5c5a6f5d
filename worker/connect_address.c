/*
 * A client by address, and what becomes of it when the servers are others.
 *
 * A server without a free seat is asked again until the time is over, and so are servers of which
 * some answer that there are other ones than the first had said: they are being started.
 *
 * The servers may end and go on from a checkpoint while a client is there, with other addresses
 * and another number of them. The first that refuses the client's session is then asked as the
 * first one is at the beginning; hello is said to all, tables are opened again, and what was under
 * way goes where its rows are now (core_relay.c). It is waited for as long as a call waits. What
 * that needs of the caller's options is copied.
 *
 * The end: transport first; gRPC's own threads may hold the last buffers for a moment longer, so
 * the pool waits for them, and is left alone if they never come or if this is a child after a
 * fork.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "proto/grpc/grpc_client.h"
#include "worker/reach.h"
#include "worker/sized_options.h"

#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#define POOL_KEEP_BYTES ((size_t)32 << 20)
#define UNHURRIED_US UINT64_C(5000000) /* for an answer, where servers must be there */
#define AGAIN_US UINT64_C(200000)      /* between two tries for a seat */
#define GOODBYE_US UINT64_C(1000000)
#define DRAIN_US UINT64_C(5000000)
#define NAP_US UINT64_C(200)

typedef struct address_home {
    psp_pool_t *pool;
    psp_transport_t *transport;
    pid_t process;
    embps_connect_options_t options; /* its strings are copies */
    psw_reached_t reached;           /* the servers that are there */
} address_home_t;

/* ---- home ---- */

/* Copies a string of the options in its place. */
static psc_status_t own_text(const char **text, psc_error_t *error)
{
    if (*text == NULL)
        return PSC_OK;
    *text = psc_strdup(*text);
    return *text != NULL ? PSC_OK
                         : psc_error_set(error, PSC_NO_MEMORY, "no memory for a client's options");
}

static psc_status_t own_options(embps_connect_options_t *options, psc_error_t *error)
{
    const char **const texts[] = {&options->tls_ca, &options->tls_cert, &options->tls_key,
                                  &options->token_file};
    psc_status_t st = PSC_OK;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (st != PSC_OK)
            *texts[i] = NULL; /* it is the caller's */
        else
            st = own_text(texts[i], error);
    }
    options->waiting = NULL;
    options->waiting_context = NULL;
    return st;
}

static psc_status_t leave_address(void *context, bool orderly, psc_error_t *error)
{
    (void)orderly;
    (void)error;
    address_home_t *home = context;
    psp_transport_destroy(home->transport);
    if (getpid() == home->process && home->pool != NULL) {
        const uint64_t end_us = psc_clock_us() + DRAIN_US;
        while (psp_pool_bytes_out(home->pool) != 0 && psc_clock_us() < end_us)
            psc_clock_sleep_us(NAP_US);
        if (psp_pool_bytes_out(home->pool) == 0)
            psp_pool_destroy(home->pool);
    }
    psw_reached_clear(&home->reached);
    psc_free((char *)(uintptr_t)home->options.tls_ca);
    psc_free((char *)(uintptr_t)home->options.tls_cert);
    psc_free((char *)(uintptr_t)home->options.tls_key);
    psc_free((char *)(uintptr_t)home->options.token_file);
    psc_free(home);
    return PSC_OK;
}

static psc_status_t make_home(const embps_connect_options_t *options, address_home_t **home_out,
                              psc_error_t *error)
{
    address_home_t *home = psc_alloc_zeroed(1, sizeof *home);
    if (home == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a client");
    home->process = getpid();
    home->options = *options;
    psc_status_t st = own_options(&home->options, error);
    if (st == PSC_OK)
        st = psp_pool_create(POOL_KEEP_BYTES, &home->pool, error);
    if (st != PSC_OK) {
        (void)!leave_address(home, false, NULL);
        return st;
    }
    *home_out = home;
    return PSC_OK;
}

/* ---- servers that are others now ---- */

/* What was under way, to who has its rows now. */
static psc_status_t send_again(void *context, const psw_stranded_t *stranded, psc_error_t *error)
{
    embps_client_t *client = context;
    const psp_message_t *message = stranded->message;
    const embps_table_t *table = psw_table_find(
        client, message->kind == PSP_PULL ? message->u.pull.table : message->u.push.table);
    PSC_BUG_ON(table == NULL); /* it lives as long as its client */
    const psw_target_t target = psw_table_target(table);
    return psw_issue_again(&client->issuer, &target, stranded, error);
}

/* One attempt at it all. Until all connections to the new servers are made, the client keeps those
 * that it has. */
static psc_status_t renew_once(psw_patience_t *patience, void *context, psc_error_t *error)
{
    embps_client_t *client = context;
    address_home_t *home = client->home.context;
    psw_core_t *core = client->driver.core;
    psw_reached_t reached = {.n_servers = 0};
    psp_transport_t *transport = NULL;
    psc_status_t st = psw_reach_first(patience, home->pool, &reached, error);
    if (st == PSC_OK)
        st = psw_reach_transport(patience, &reached, home->pool, &transport, error);
    if (st == PSC_OK)
        st = psw_core_relay(core, reached.n_servers, error);
    if (st != PSC_OK) {
        psp_transport_destroy(transport);
        psw_reached_clear(&reached);
        return st;
    }
    transport->bytes_sent += home->transport->bytes_sent;
    transport->bytes_received += home->transport->bytes_received;
    transport->damaged += home->transport->damaged;
    transport->retries += home->transport->retries;
    psp_transport_destroy(home->transport);
    home->transport = client->driver.transport = transport;
    psw_reached_clear(&home->reached);
    home->reached = reached;
    st = psw_reach_all(patience, client, error);
    if (st == PSC_OK)
        st = psw_core_check_counted(core, error);
    if (st == PSC_OK) {
        st = psw_tables_reopen(client, error);
        patience->mixed = st == PSC_PEER_GONE; /* they have ended once more */
    }
    return st == PSC_OK ? psw_core_resume(core, send_again, client, error) : st;
}

/* May another attempt be better? */
static bool is_passing(const psw_patience_t *patience, psc_status_t st)
{
    return st == PSC_BUSY || ((st == PSC_MISMATCH || st == PSC_PEER_GONE) && patience->mixed);
}

/*
 * Attempts until one is the last. One that the end of the time cut off knows less than one before
 * it that came to its end, whose reason is told then.
 */
static psc_status_t attempt(psw_patience_t *patience,
                            psc_status_t (*once)(psw_patience_t *patience, void *context,
                                                 psc_error_t *error),
                            void *context, psc_error_t *error)
{
    psc_error_t reason = PSC_ERROR_INIT, what;
    psc_status_t st;
    for (;;) {
        what = (psc_error_t)PSC_ERROR_INIT;
        st = once(patience, context, &what);
        if (st == PSC_TIMEOUT && reason.code != PSC_OK)
            what = reason;
        if (!is_passing(patience, st) || patience->options.wait_ms == 0)
            break;
        reason = what;
        (void)snprintf(patience->refused, sizeof patience->refused, "%.239s", what.message);
        psw_patience_tell(patience, psc_clock_us(), "");
        psc_clock_sleep_us(AGAIN_US);
        if (psc_clock_us() >= patience->end_us)
            break;
    }
    if (st != PSC_OK && error != NULL)
        *error = what;
    return st == PSC_OK ? PSC_OK : what.code;
}

/* psw_renew_fn. */
static psc_status_t renew(void *context, psc_error_t *error)
{
    embps_client_t *client = context;
    const address_home_t *home = client->home.context;
    const uint64_t timeout_us = psw_core_timeout(client->driver.core);
    uint32_t server = 0;
    if (getpid() != home->process || !psw_core_is_stale(client->driver.core, &server))
        return psc_error_set(error, PSC_UNSUPPORTED, "a child after a fork has to connect itself");
    char *address = psc_strdup(home->reached.addresses[server]);
    if (address == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for an address");
    psw_patience_t patience = {
        .address = address, .options = home->options, .begin_us = psc_clock_us()};
    patience.options.wait_ms = UINT32_MAX; /* end_us says how long */
    patience.options.cluster = psw_core_cluster(client->driver.core);
    patience.end_us = timeout_us != 0 ? patience.begin_us + timeout_us : UINT64_MAX;
    psc_status_t st = attempt(&patience, renew_once, client, error);
    psc_free(address);
    return st;
}

/* ---- connecting ---- */

/* home: with the servers that were reached. */
static psc_status_t make_client(psw_patience_t *patience, address_home_t *home,
                                embps_client_t **client_out, psc_error_t *error)
{
    embps_client_t *client = NULL;
    psc_status_t st =
        psw_reach_transport(patience, &home->reached, home->pool, &home->transport, error);
    if (st == PSC_OK)
        st = psw_client_create(home->transport, home->pool, home->reached.cluster, &client, error);
    if (st == PSC_OK)
        st = psw_reach_all(patience, client, error);
    if (st != PSC_OK && client != NULL) {
        psc_error_t what = PSC_ERROR_INIT;
        (void)psc_error_set(&what, st, "the connection failed");
        psw_driver_leave(&client->driver, &what, (uint32_t)st, GOODBYE_US);
        psw_client_destroy(client);
    }
    if (st == PSC_OK)
        *client_out = client;
    return st;
}

/* One attempt at it all. */
static psc_status_t connect_once(psw_patience_t *patience, void *client_out, psc_error_t *error)
{
    address_home_t *home = NULL;
    embps_client_t *client = NULL;
    psc_status_t st = make_home(&patience->options, &home, error);
    if (st != PSC_OK)
        return st;
    st = psw_reach_first(patience, home->pool, &home->reached, error);
    if (st == PSC_OK)
        st = make_client(patience, home, &client, error);
    if (st != PSC_OK) {
        (void)!leave_address(home, false, NULL);
        return st;
    }
    client->home = (psw_home_t){.leave = leave_address, .context = home};
    client->driver.renew = renew;
    client->driver.renew_context = client;
    psw_core_keep(client->driver.core);
    *(embps_client_t **)client_out = client;
    return PSC_OK;
}

static psc_status_t take_options(const embps_connect_options_t *options,
                                 embps_connect_options_t *out, psc_error_t *error)
{
    *out = (embps_connect_options_t)EMBPS_CONNECT_OPTIONS_DEFAULT;
    if (options == NULL)
        return PSC_OK;
    const psw_sized_t sized = {.what = "a connection",
                               .begin_with = "EMBPS_CONNECT_OPTIONS_DEFAULT",
                               .size = options->size,
                               .least = offsetof(embps_connect_options_t, tls_ca)};
    return psw_sized_copy(&sized, options, out, sizeof *out, error);
}

int embps_connect(const char *address, const embps_connect_options_t *options,
                  embps_client_t **client_out, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psw_patience_t patience = {.address = address, .begin_us = psc_clock_us()};
    if (address == NULL || client_out == NULL) {
        (void)psc_error_set(&what, PSC_INVALID_ARGUMENT,
                            "embps_connect needs an address and a place for the client");
        return psw_error_export(&what, error);
    }
    psc_status_t st = psp_grpc_check_address(address, &what);
    if (st == PSC_OK)
        st = take_options(options, &patience.options, &what);
    if (st != PSC_OK)
        return psw_error_export(&what, error);
    const uint64_t wait_us = patience.options.wait_ms * UINT64_C(1000);
    patience.told_us = patience.begin_us;
    patience.end_us = patience.begin_us + (wait_us != 0 ? wait_us : UNHURRIED_US);
    st = attempt(&patience, connect_once, client_out, &what);
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}
