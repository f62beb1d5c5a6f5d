/*
 * Counters: those of all servers, summed by name, then the client's own.
 *
 * The servers' counters come in one message each and are summed in the request as replies arrive.
 * The client's own are counted where the calls are made (rows_api.c) and by core and transport.
 */
#include "worker/cached_rows.h"
#include "worker/client_state.h"

static void own_counters(const embps_client_t *client, embps_counter_fn fn, void *context)
{
    const psw_tally_t *tally = &client->tally;
    const psw_direct_counts_t direct = client->issuer.direct != NULL
                                           ? psw_direct_counts(client->issuer.direct)
                                           : (psw_direct_counts_t){0};
    fn(context, "client.pulls", tally->pulls);
    fn(context, "client.pushes", tally->pushes);
    fn(context, "client.rows_pulled", tally->rows_pulled);
    fn(context, "client.rows_pulled_distinct", tally->rows_pulled_distinct);
    fn(context, "client.rows_direct", direct.read);
    fn(context, "client.rows_direct_missed", direct.missed);
    fn(context, "client.rows_pushed", tally->rows_pushed);
    fn(context, "client.rows_pushed_distinct", tally->rows_pushed_distinct);
    fn(context, "client.prefetches", tally->prefetches);
    fn(context, "client.rows_prefetched", tally->rows_prefetched);
    fn(context, "client.rows_prefetch_dropped", tally->rows_prefetch_dropped);
    psw_cache_counters_t cache;
    psw_cached_counters(client, &cache);
    fn(context, "client.cache.rows", cache.rows);
    fn(context, "client.cache.bytes", cache.bytes);
    fn(context, "client.cache.hits", cache.hits);
    fn(context, "client.cache.confirmed", cache.confirmed);
    fn(context, "client.cache.fetched", cache.fetched);
    fn(context, "client.cache.admitted", cache.admitted);
    fn(context, "client.cache.evicted", cache.evicted);
    fn(context, "client.cache.deltas", cache.deltas);
    fn(context, "client.cache.flushed", cache.flushed);
    fn(context, "client.cache.returned", cache.returned);
    fn(context, "client.cache.bytes_saved", cache.bytes_saved);
    fn(context, "client.cache.oldest", cache.oldest);
    fn(context, "client.requests", psw_core_requests_begun(client->driver.core));
    fn(context, "client.messages_sent", psw_core_messages_sent(client->driver.core));
    fn(context, "client.servers_found_anew", psw_core_relaid(client->driver.core));
    fn(context, "client.messages_damaged", client->driver.transport->damaged);
    fn(context, "client.retries", client->driver.transport->retries);
    fn(context, "client.bytes_sent", client->driver.transport->bytes_sent);
    fn(context, "client.bytes_received", client->driver.transport->bytes_received);
}

static psc_status_t ask(embps_client_t *client, embps_counter_fn fn, void *context,
                        psc_error_t *error)
{
    psw_request_t *request;
    psp_message_t message = {.kind = PSP_STATS};
    psc_status_t st = psw_client_ask(client, &message, 0, psw_core_n_servers(client->driver.core),
                                     &request, error);
    if (st != PSC_OK)
        return st;
    st = psw_driver_wait(&client->driver, request, error);
    if (st == PSC_OK && request->error.code == PSC_OK) {
        for (size_t i = 0; i < request->counters.n; i++)
            fn(context, request->counters.items[i].name, request->counters.items[i].value);
        own_counters(client, fn, context);
    }
    const psc_status_t finished = psw_client_finish(client, request, error);
    return st != PSC_OK ? st : finished;
}

int embps_stats(embps_client_t *client, embps_counter_fn fn, void *context, embps_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    uint64_t relaid = psw_core_relaid(client->driver.core);
    psc_status_t st;
    do {
        st = ask(client, fn, context, &what);
    } while (psw_client_again(client, st, &relaid));
    return st == PSC_OK ? 0 : psw_error_export(&what, error);
}

void embps_traffic(const embps_client_t *client, uint64_t *sent_out, uint64_t *received_out)
{
    if (sent_out != NULL)
        *sent_out = client->driver.transport->bytes_sent;
    if (received_out != NULL)
        *received_out = client->driver.transport->bytes_received;
}
