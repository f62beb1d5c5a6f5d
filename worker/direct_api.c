/*
 * Direct reads of embps.h: asks each server where its rows are, and tells it now and then which of
 * them were read.
 *
 * A server that says no, or whose memory cannot be mapped here, is asked for rows as before, so
 * nothing fails but what would fail anyway. One report is under way at a time. When it is not
 * answered for long, counted in rows, the next ones are asked for by messages, and a server that is
 * gone shows itself. Threads: the client's.
 */
#include "common/log.h"
#include "common/shared_rows.h"
#include "worker/client_state.h"

#define UNANSWERED_ROWS (UINT64_C(1) << 20)

/* One server. *attached_out: its rows can be read. */
static psc_status_t attach(embps_client_t *client, uint32_t server, uint64_t host,
                           bool *attached_out, psc_error_t *error)
{
    psw_request_t *request;
    psp_message_t message = {.kind = PSP_ATTACH, .u.attach = {.host = host}};
    psc_status_t st = psw_client_ask(client, &message, server, server + 1, &request, error);
    if (st != PSC_OK)
        return st;
    st = psw_driver_wait(&client->driver, request, error);
    const psp_attach_reply_t reply = request->attached;
    psc_status_t finished = psw_client_finish(client, request, error);
    if (st == PSC_OK)
        st = finished;
    *attached_out = false;
    if (st != PSC_OK || reply.path[0] == '\0')
        return st;
    psc_error_t refusal = PSC_ERROR_INIT;
    *attached_out =
        psw_direct_attach(client->issuer.direct, server, reply.path, reply.key, &refusal) == PSC_OK;
    if (!*attached_out)
        psc_log(PSC_LOG_INFO, "rows of server %u are asked for by messages: %s", server,
                refusal.message);
    return PSC_OK;
}

static psc_status_t attach_all(embps_client_t *client, uint32_t *n_out, psc_error_t *error)
{
    const uint64_t host = psc_memory_host();
    psc_status_t st = PSC_OK;
    if (client->issuer.direct == NULL)
        st = psw_direct_create(client->driver.core, &client->issuer.direct, error);
    const uint32_t n_servers = psw_core_n_servers(client->driver.core);
    for (uint32_t s = 0; st == PSC_OK && s < n_servers; s++) {
        bool attached = false;
        st = attach(client, s, host, &attached, error);
        *n_out += attached;
    }
    return st;
}

static psc_status_t set_direct(embps_client_t *client, bool on, uint32_t *n_out, psc_error_t *error)
{
    psc_status_t st = psw_driver_wait_idle(&client->driver, error); /* requests may refer to it */
    if (st == PSC_OK && on)
        st = attach_all(client, n_out, error);
    if (!on || (st == PSC_OK && *n_out == 0)) {
        psw_direct_destroy(client->issuer.direct);
        client->issuer.direct = NULL;
    }
    return st;
}

int embps_set_direct(embps_client_t *client, bool on, uint32_t *n_servers_out, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    uint32_t n = 0;
    psc_status_t st = set_direct(client, on, &n, &what);
    if (n_servers_out != NULL)
        *n_servers_out = n;
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}

void psw_client_report_touches(embps_table_t *table)
{
    embps_client_t *client = table->client;
    uint32_t server;
    const uint64_t *ids;
    if (client->touches != NULL && psw_request_done(client->touches)) {
        psw_core_release(client->driver.core, client->touches);
        client->touches = NULL;
        psw_direct_pause(client->issuer.direct, false);
    }
    if (!psw_direct_touches(client->issuer.direct, table->number, &server, &ids))
        return;
    const uint64_t n_read = psw_direct_counts(client->issuer.direct).read;
    if (client->touches != NULL) {
        if (n_read - client->touches_at > UNANSWERED_ROWS)
            psw_direct_pause(client->issuer.direct, true);
        return;
    }
    client->touches_at = n_read;
    psp_message_t message = {.kind = PSP_TOUCHES,
                             .u.touches = {.table = table->number,
                                           .table_epoch = table->epochs[server],
                                           .n = PSW_DIRECT_TOUCHES,
                                           .ids = (const uint8_t *)ids}};
    /* An error of the core is found by the next call that waits; without memory nothing is told. */
    if (psw_client_ask(client, &message, server, server + 1, &client->touches, NULL) != PSC_OK)
        client->touches = NULL;
}
