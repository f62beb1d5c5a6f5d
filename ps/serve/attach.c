/*
 * Attach: a worker asks to read rows straight from this server's memory.
 *
 * It is told where the memory file is and which key it has, or nothing: when it is on another host,
 * when this server does not allow it, when rows lie in memory that cannot be shared any more, or
 * when it is a guest, which takes no part in clocks. None of that is an error: pulls go on as
 * messages. The first worker that asks before any row is in memory makes the store share its rows,
 * so a server that nobody asks keeps its huge pages.
 */
#include "common/log.h"
#include "ps/serve/serve.h"
#include "ps/store/share.h"

#include <inttypes.h>

/* Shares the rows, if they are not yet and may be. */
static const psc_shared_file_t *share(ps_shard_t *shard, uint64_t host)
{
    ps_store_t *store = shard->options.store;
    if (shard->options.direct == PS_DIRECT_OFF || host == 0 || host != psc_memory_host())
        return NULL;
    psc_error_t error = PSC_ERROR_INIT;
    if (shard->options.direct == PS_DIRECT_AUTO && ps_store_share(store, &error) != PSC_OK)
        psc_log(PSC_LOG_INFO, "rows are not shared: %s", error.message);
    ps_shard_publish(shard);
    return ps_store_shared(store);
}

psc_status_t ps_serve_attach(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                             psc_error_t *error)
{
    (void)session;
    psp_message_t reply = {.kind = PSP_ATTACH_REPLY};
    const bool guest = ps_is_guest(&shard->sessions, request->buffer->peer);
    const psc_shared_file_t *file = guest ? NULL : share(shard, request->message.u.attach.host);
    if (file != NULL) {
        psp_attach_reply_t *to = &reply.u.attach_reply;
        size_t length = strnlen(file->path, sizeof to->path - 1);
        memcpy(to->path, file->path, length);
        to->key = file->control->key;
    }
    psc_log(PSC_LOG_DEBUG, "worker %" PRIu32 " reads %s", request->buffer->peer,
            file != NULL ? "rows in shared memory" : "rows by messages");
    return ps_shard_reply(shard, request, &reply, error);
}
