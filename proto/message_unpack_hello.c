/*
 * Bytes to what client and server tell each other first. Any thread.
 */
#include "common/slots.h"
#include "proto/embps.pb-c.h"
#include "proto/unpack_inside.h"

#include <string.h>

psc_status_t psp_unpack_hello(const psp_unpacker_t *u, const void *message, psp_hello_t *to)
{
    const Embps__V1__HelloRequest *from = message;
    if (from->worker >= from->n_workers && from->n_workers != 0)
        return psp_unpack_refuse_number(u, "worker rank", from->worker);
    if (from->n_former_sessions > PSC_MAX_SERVERS)
        return psp_unpack_refuse_number(u, "number of former sessions", from->n_former_sessions);
    *to = (psp_hello_t){.worker = from->worker,
                        .n_workers = from->n_workers,
                        .n_former = from->n_former_sessions,
                        .former = from->former_sessions,
                        .client = from->client};
    return PSC_OK;
}

psc_status_t psp_unpack_hello_reply(const psp_unpacker_t *u, const void *message,
                                    psp_hello_reply_t *to)
{
    const Embps__V1__HelloReply *from = message;
    if (from->n_servers == 0 || from->n_servers > PSC_MAX_SERVERS)
        return psp_unpack_refuse_number(u, "number of servers", from->n_servers);
    if (from->server >= from->n_servers)
        return psp_unpack_refuse_number(u, "server rank", from->server);
    if (u->bulk[0].size != 0 && u->bulk[0].size != PSC_SLOT_COUNT * sizeof(uint16_t))
        return psp_unpack_refuse_number(u, "size of slot_owners", u->bulk[0].size);
    size_t host_length = strlen(from->host);
    if (host_length > PSP_NAME_MAX)
        return psp_unpack_refuse_number(u, "length of host", host_length);
    size_t resumed_length = strlen(from->resumed);
    if (resumed_length > PSP_CHECKPOINT_NAME_MAX)
        return psp_unpack_refuse_number(u, "length of resumed", resumed_length);
    if (from->n_addresses != 0 && from->n_addresses != from->n_servers)
        return psp_unpack_refuse_number(u, "number of addresses", from->n_addresses);
    for (size_t i = 0; i < from->n_addresses; i++) {
        size_t length = strlen(from->addresses[i]);
        if (length == 0 || length > PSP_NAME_MAX)
            return psp_unpack_refuse_number(u, "length of an address", length);
    }
    *to = (psp_hello_reply_t){
        .cluster = from->cluster,
        .session = from->session,
        .server = from->server,
        .n_servers = from->n_servers,
        .map_epoch = from->map_epoch,
        .max_message_bytes = from->max_message_bytes,
        .slot_owners = u->bulk[0].size != 0 ? u->bulk[0].start : NULL,
        .window_bytes = from->window_bytes,
        .lease_ms = from->lease_ms,
        .n_addresses = from->n_addresses,
        .addresses = (const char *const *)from->addresses,
        .n_counted = from->n_former_counted,
        .counted = from->former_counted,
        .clock = from->clock,
    };
    memcpy(to->host, from->host, host_length + 1);
    memcpy(to->resumed, from->resumed, resumed_length + 1);
    return PSC_OK;
}
