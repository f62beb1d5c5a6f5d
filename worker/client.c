/*
 * A client: core, driver, batch, router and tables under one handle; beginning and end of its life.
 *
 * Order of the end: deltas in the cache and outstanding work, Goodbye(0) and its answers, flush,
 * then core and tables are freed, then the home (transport, pool, in local mode the server's
 * thread). A client whose core has ended says Goodbye with the error's number instead, past all
 * queues, so that servers never wait for it. Every function here runs on the client's thread.
 */
#include "worker/cached_rows.h"
#include "worker/client_state.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/run_status.h"

#define LEAVE_US UINT64_C(1000000)
#define TIMEOUT_US UINT64_C(60000000) /* embps.h says so */

_Static_assert(EMBPS_INVALID_ARGUMENT == (int)PSC_INVALID_ARGUMENT, "codes are the same");
_Static_assert(EMBPS_INTERRUPTED == (int)PSC_INTERRUPTED, "codes are the same");
_Static_assert(EMBPS_TIMEOUT == (int)PSC_TIMEOUT, "codes are the same");
_Static_assert(EMBPS_IN_USE == (int)PSC_IN_USE, "codes are the same");
_Static_assert(EMBPS_INTERNAL == (int)PSC_INTERNAL, "codes are the same");
_Static_assert(sizeof(((embps_error_t *)0)->message) == sizeof(((psc_error_t *)0)->message),
               "messages have the same size");

int psw_error_export(const psc_error_t *from, embps_error_t *to)
{
    if (to != NULL) {
        to->code = (int)from->code;
        to->rank = from->rank;
        to->id = from->id;
        memcpy(to->message, from->message, sizeof to->message);
    }
    return (int)from->code;
}

psc_status_t psw_client_create(psp_transport_t *transport, psp_pool_t *pool, uint64_t cluster,
                               embps_client_t **client_out, psc_error_t *error)
{
    embps_client_t *client = psc_alloc_zeroed(1, sizeof *client);
    if (client == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a client");
    const psw_core_options_t options = {.n_servers = transport->n_peers,
                                        .worker = transport->rank,
                                        .n_workers = transport->n_ranks,
                                        .cluster = cluster,
                                        .pool = pool};
    client->worker = transport->rank;
    client->n_workers = transport->n_ranks;
    client->staleness = PSP_STALENESS_ASYNC;
    client->flush = 1;
    client->driver.transport = transport;
    psc_status_t st = psw_core_create(&options, &client->issuer.core, error);
    client->driver.core = client->issuer.core;
    if (st == PSC_OK) {
        psw_core_set_timeout(client->issuer.core, TIMEOUT_US);
        st = psw_batch_create(&client->issuer.batch, error);
    }
    if (st == PSC_OK)
        st = psw_router_create(&client->issuer.router, error);
    if (st != PSC_OK) {
        psw_client_destroy(client);
        return st;
    }
    *client_out = client;
    return PSC_OK;
}

void psw_client_destroy(embps_client_t *client)
{
    if (client == NULL)
        return;
    while (client->tables != NULL) {
        embps_table_t *table = client->tables;
        client->tables = table->next;
        psc_free(table->epochs);
        psc_free(table);
    }
    psw_router_destroy(client->issuer.router);
    psw_batch_destroy(client->issuer.batch);
    psw_direct_destroy(client->issuer.direct);
    psw_core_destroy(client->issuer.core);
    psw_cached_destroy(client->cached);
    psc_free(client->issuer.row_scratch);
    psc_free(client->issuer.starts);
    psc_free(client);
}

psc_status_t psw_client_finish(embps_client_t *client, psw_request_t *request, psc_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = psw_driver_wait(&client->driver, request, &what);
    if (request->error.code != PSC_OK) {
        what = request->error;
        st = what.code;
    }
    psw_core_release(client->driver.core, request);
    if (st != PSC_OK && error != NULL)
        *error = what;
    return st;
}

psc_status_t psw_client_ask(embps_client_t *client, psp_message_t *message, uint32_t first_server,
                            uint32_t n_servers, psw_request_t **request_out, psc_error_t *error)
{
    psw_core_t *core = client->driver.core;
    psw_request_t *request;
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = psw_core_request(core, message->kind, &request, error);
    if (st != PSC_OK)
        return st;
    for (uint32_t s = first_server; s < n_servers && st == PSC_OK; s++) {
        psw_part_t part;
        psp_buffer_t *buffer;
        st = psw_core_part(core, request, s, &part, &what);
        if (st != PSC_OK)
            break;
        if (message->kind == PSP_CLOCK) {
            psw_core_tell_parts(core, &part);
            message->u.clock.pushed = psw_core_tally(core, s);
        }
        message->request = part.header;
        st = psp_message_pack(psw_core_pool(core), message, &buffer, &what);
        if (st == PSC_OK)
            psw_core_enqueue(core, &part, buffer, 0, 0, 0);
    }
    if (st != PSC_OK) {
        psw_core_give_up(core, request, &what, error);
        return st;
    }
    psw_core_seal(core, request);
    *request_out = request;
    return PSC_OK;
}

bool psw_client_again(const embps_client_t *client, psc_status_t st, uint64_t *relaid)
{
    const uint64_t before = *relaid;
    *relaid = psw_core_relaid(client->driver.core);
    return st == PSC_PEER_GONE && *relaid != before;
}

psc_status_t psw_client_check_servers(const embps_client_t *client, uint64_t relaid,
                                      const char *what, psc_error_t *error)
{
    if (psw_core_relaid(client->driver.core) == relaid)
        return PSC_OK;
    return psc_error_set(error, PSC_PEER_GONE,
                         "%s: the servers were started again meanwhile: begin it again", what);
}

psc_status_t psw_client_hello(embps_client_t *client, psc_error_t *error)
{
    psw_request_t *request;
    psc_status_t st = psw_core_hello(client->driver.core, &request, error);
    return st == PSC_OK ? psw_client_finish(client, request, error) : st;
}

/*
 * Until the servers have answered the goodbye. What counts was answered before it, or has failed;
 * so a server whose connection is down is waited for no longer than LEAVE_US, nor is one that was
 * waited for in vain already (hopeless). Then the client is over, and the session ends by its
 * lease. Takes request.
 */
static psc_status_t take_leave(embps_client_t *client, psw_request_t *request, bool hopeless,
                               psc_error_t *error)
{
    psw_core_t *core = client->driver.core;
    uint64_t until_us = psc_clock_us() + LEAVE_US;
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && !psw_request_done(request)) {
        st = psw_driver_pause(&client->driver, until_us, error);
        const uint64_t now_us = psc_clock_us();
        if (!hopeless && !psw_core_in_trouble(core)) {
            until_us = now_us + LEAVE_US;
        } else if (st == PSC_OK && now_us >= until_us && !psw_request_done(request)) {
            psc_error_t gone = PSC_ERROR_INIT;
            (void)psc_error_set(&gone, PSC_PEER_GONE, "a server did not answer the goodbye");
            psw_driver_leave(&client->driver, &gone, hopeless ? PSC_TIMEOUT : 0,
                             psw_core_in_trouble(core) ? 0 : LEAVE_US);
            psw_core_release(core, request);
            return PSC_OK;
        }
    }
    return psw_client_finish(client, request, error);
}

/* Servers that went on from a checkpoint refuse the session, which tells what is lost. They refuse
 * its goodbye as well, but so do those that have heard it before. */
static psc_status_t look_back(embps_client_t *client, bool hopeless, psc_error_t *error)
{
    const psw_core_t *core = client->driver.core;
    psp_message_t message = {.kind = PSP_BARRIER};
    uint64_t relaid = psw_core_relaid(core);
    psw_request_t *request;
    psc_status_t st;
    do {
        st = psw_client_ask(client, &message, 0, psw_core_n_servers(core), &request, error);
        if (st == PSC_OK)
            st = take_leave(client, request, hopeless, error);
    } while (psw_client_again(client, st, &relaid));
    return st;
}

psc_status_t psw_client_goodbye(embps_client_t *client, psc_error_t *error)
{
    psw_core_t *core = client->driver.core;
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = psw_cached_flush_all(client, &what);
    psc_status_t unseen = PSC_OK;
    if (st == PSC_OK)
        st = psw_driver_wait_idle(&client->driver, &what);
    if (st == PSC_OK) {
        unseen = psw_core_unseen_error(core, error);
        const psc_status_t flushed = psw_cached_collect(client, unseen == PSC_OK ? error : NULL);
        if (unseen == PSC_OK)
            unseen = flushed;
        psp_message_t message = {.kind = PSP_GOODBYE, .u.goodbye = {.status = 0}};
        psw_request_t *request;
        if (client->driver.renew != NULL && psw_core_has_pushed(core))
            st = look_back(client, unseen == PSC_TIMEOUT, &what);
        if (st == PSC_OK && psw_core_state(core, NULL) == PSC_OK) {
            st = psw_client_ask(client, &message, 0, psw_core_n_servers(core), &request, &what);
            if (st == PSC_OK)
                st = take_leave(client, request, unseen == PSC_TIMEOUT, &what);
        }
    }
    if (st == PSC_OK && psw_core_state(core, NULL) == PSC_OK)
        st = psp_transport_flush(client->driver.transport, LEAVE_US, &what);
    else if (st != PSC_OK &&
             (psw_core_state(core, NULL) != PSC_OK || st == PSC_NO_MEMORY || st == PSC_TIMEOUT))
        psw_driver_leave(&client->driver, &what, (uint32_t)st, LEAVE_US);
    if (st != PSC_OK && error != NULL)
        *error = what;
    return st != PSC_OK ? st : unseen;
}

/* A program that fails after this shows it by its own exit status, or writes another record. */
static void record_end(const embps_client_t *client, psc_status_t code, const char *message)
{
    if (client->home.is_rank)
        psc_run_status_write("worker", (int32_t)client->worker, code, message);
}

static psc_status_t depart(embps_client_t *client, bool orderly, psc_error_t *error)
{
    psw_home_t home = client->home;
    psw_client_destroy(client);
    return home.leave != NULL ? home.leave(home.context, orderly, error) : PSC_OK;
}

int embps_close(embps_client_t *client, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    if (client == NULL)
        return 0;
    if (psw_client_goodbye(client, &what) == PSC_OK)
        what.code = PSC_OK;
    /* An error of one request is no reason to leave in disorder; one of the core is. */
    const bool orderly = psw_core_state(client->driver.core, NULL) == PSC_OK;
    psc_error_t leaving = PSC_ERROR_INIT;
    record_end(client, what.code, what.code != PSC_OK ? what.message : "");
    if (depart(client, orderly, &leaving) != PSC_OK && what.code == PSC_OK)
        what = leaving;
    return psw_error_export(&what, error);
}

void embps_abandon(embps_client_t *client, int status)
{
    if (client == NULL)
        return;
    psc_error_t what = PSC_ERROR_INIT;
    (void)psc_error_set(&what, PSC_INTERRUPTED, "the client was abandoned");
    psw_driver_leave(&client->driver, &what, (uint32_t)status, LEAVE_US);
    record_end(client, psc_status_from_number((uint32_t)status), what.message);
    if (depart(client, false, &what) != PSC_OK)
        return; /* the program ends with a failure that it knows */
}

uint32_t embps_worker_rank(const embps_client_t *client)
{
    return client->worker;
}

uint32_t embps_worker_count(const embps_client_t *client)
{
    return client->n_workers;
}

uint32_t embps_server_count(const embps_client_t *client)
{
    return psw_core_n_servers(client->driver.core);
}

psc_status_t psw_client_state(const embps_client_t *client, psc_error_t *error)
{
    return psw_core_state(client->driver.core, error);
}

const char *psw_client_resumed(const embps_client_t *client)
{
    return psw_core_resumed(client->driver.core);
}

uint32_t psw_client_first(const embps_client_t *client, uint32_t *n_lost_out)
{
    if (n_lost_out != NULL)
        *n_lost_out = client->n_lost;
    return client->first;
}

void psw_table_count_pushes(embps_table_t *table, uint64_t n)
{
    table->pushes = (uint32_t)n;
}

uint64_t embps_cluster(const embps_client_t *client)
{
    return psw_core_cluster(client->driver.core);
}

const char *embps_version(void)
{
    return EMBPS_VERSION;
}
