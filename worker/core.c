/*
 * The client's state machine.
 *
 * A part is one message of a request. Parts live in one array and are known on the wire by
 * (generation << 32 | index), so that a reply finds its part at once and a stale or foreign number
 * is noticed. Each server has two lists of parts: open (sent or to be sent, in the order of
 * sequences; its head is the lowest sequence without an answer) and queued (not sent yet, in
 * order). A server is on the ready list when its first queued part fits into the window;
 * psw_core_next takes servers in turn, so that all owners of a batch are asked at once.
 *
 * Invariants: a part is in the open list from enqueue to its answer; queued parts are the tail of
 * the open list; request->open_parts counts its parts in open lists. A sequence is used up by
 * enqueue alone. Hello goes outside sessions: session and sequence 0. A part may be without a
 * request: hints, whose answers nobody waits for, and parts that were given up (core_time.c), whose
 * answers may still come; it stays in the window until it is answered.
 *
 * What servers refuse is the error of one request. What cannot be understood (a malformed reply, an
 * unknown number, another kind) ends the core: every request fails with that error, now and later.
 * Cost: O(1) a message, no allocation once the arrays have grown. One thread.
 */
#include "worker/core_state.h"

#include "common/alloc.h"

#define NONE PSW_CORE_NONE
#define SCRATCH_BYTES ((size_t)1 << 20) /* a reply with 256 counters takes 70 KiB */

psw_server_state_t psw_core_new_server(const psw_core_t *core)
{
    return (psw_server_state_t){.next_sequence = 1,
                                .open_head = NONE,
                                .open_tail = NONE,
                                .queued_head = NONE,
                                .queued_tail = NONE,
                                .next_ready = NONE,
                                .max_window_bytes = core->options.window_bytes};
}

psc_status_t psw_core_create(const psw_core_options_t *options, psw_core_t **core_out,
                             psc_error_t *error)
{
    if (options->n_servers == 0 || options->n_servers > PSC_MAX_SERVERS)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%u servers; 1 to %u are possible",
                             options->n_servers, PSC_MAX_SERVERS);
    psw_core_t *core = psc_alloc_zeroed(1, sizeof *core);
    if (core == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a client");
    core->options = *options;
    if (core->options.window_bytes == 0)
        core->options.window_bytes = (size_t)8 << 20;
    if (core->options.window_messages == 0)
        core->options.window_messages = 64;
    core->error = (psc_error_t)PSC_ERROR_INIT;
    core->cluster = options->cluster;
    core->max_message_bytes = PSP_MAX_MESSAGE_BYTES;
    core->free_part = NONE;
    core->ready_head = core->ready_tail = NONE;
    core->next_deadline_us = UINT64_MAX;
    core->servers = psc_alloc_array(options->n_servers, sizeof *core->servers);
    core->promised = psc_alloc_zeroed(options->n_servers, sizeof *core->promised);
    psc_status_t st = PSC_OK;
    if (core->servers == NULL || core->promised == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for a client of %u servers",
                           options->n_servers);
    else
        st = psp_scratch_create(SCRATCH_BYTES, &core->scratch, error);
    if (st != PSC_OK) {
        psw_core_destroy(core);
        return st;
    }
    for (uint32_t s = 0; s < options->n_servers; s++)
        core->servers[s] = psw_core_new_server(core);
    *core_out = core;
    return PSC_OK;
}

static void destroy_requests(psw_request_t *request)
{
    while (request != NULL) {
        psw_request_t *next = request->next;
        psw_request_destroy(request);
        request = next;
    }
}

void psw_core_destroy(psw_core_t *core)
{
    if (core == NULL)
        return;
    for (size_t i = 0; i < core->n_parts; i++) {
        psp_buffer_put(core->parts[i].buffer);
        psp_buffer_put(core->parts[i].kept);
    }
    psw_core_free_strands(core, NULL);
    destroy_requests(core->live);
    destroy_requests(core->free_requests);
    psp_scratch_destroy(core->scratch);
    psc_free(core->parts);
    psc_free(core->servers);
    psc_free(core->promised);
    psc_free(core);
}

/* ---- requests ---- */

psc_status_t psw_core_request(psw_core_t *core, psp_kind_t kind, psw_request_t **request_out,
                              psc_error_t *error)
{
    psc_status_t st = psw_core_state(core, error);
    if (st != PSC_OK)
        return st;
    psw_request_t *request = core->free_requests;
    if (request != NULL) {
        core->free_requests = request->next;
    } else {
        request = psc_alloc_zeroed(1, sizeof *request);
        if (request == NULL)
            return psc_error_set(error, PSC_NO_MEMORY, "no memory for a request");
    }
    psw_request_reset(request);
    request->kind = kind;
    request->previous = NULL;
    request->next = core->live;
    if (core->live != NULL)
        core->live->previous = request;
    core->live = request;
    core->requests_begun++;
    core->n_unsealed++;
    *request_out = request;
    return PSC_OK;
}

void psw_core_release(psw_core_t *core, psw_request_t *request)
{
    if (request == NULL)
        return;
    PSC_BUG_ON(request->open_parts != 0);
    core->n_unsealed -= !request->sealed;
    if (request->previous != NULL)
        request->previous->next = request->next;
    else
        core->live = request->next;
    if (request->next != NULL)
        request->next->previous = request->previous;
    request->previous = NULL;
    request->next = core->free_requests;
    core->free_requests = request;
}

void psw_core_seal(psw_core_t *core, psw_request_t *request)
{
    core->n_unsealed -= !request->sealed;
    request->sealed = true;
    if (request->open_parts == 0)
        psw_request_finish(request);
}

/* ---- parts ---- */

static psc_status_t reserve_part(psw_core_t *core, psc_error_t *error)
{
    if (core->free_part != NONE)
        return PSC_OK;
    size_t n = core->n_parts != 0 ? 2 * core->n_parts : 64;
    psw_part_state_t *parts = n < NONE ? psc_realloc_array(core->parts, n, sizeof *parts) : NULL;
    if (parts == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu messages under way", n);
    core->parts = parts;
    for (size_t i = n; i-- > core->n_parts;) {
        parts[i] = (psw_part_state_t){.next = core->free_part, .generation = 1};
        core->free_part = (uint32_t)i;
    }
    core->n_parts = n;
    return PSC_OK;
}

psc_status_t psw_core_part(psw_core_t *core, psw_request_t *request, uint32_t server,
                           psw_part_t *part_out, psc_error_t *error)
{
    psc_status_t st = psw_core_state(core, error);
    if (st == PSC_OK && server >= core->options.n_servers)
        st = psc_error_set(error, PSC_PEER_GONE,
                           "server %u is gone, %u are there now: what was begun with it is over",
                           server, core->options.n_servers);
    if (st == PSC_OK)
        st = reserve_part(core, error);
    if (st != PSC_OK)
        return st;
    const psw_server_state_t *to = &core->servers[server];
    const bool hello = request != NULL && request->kind == PSP_HELLO;
    uint64_t lowest = psw_core_lowest_open(core, server);
    *part_out = (psw_part_t){
        .request = request,
        .server = server,
        .header = {.protocol = PSP_PROTOCOL_VERSION,
                   .cluster = hello ? 0 : core->cluster,
                   .map_epoch = core->map.epoch,
                   .session = to->session,
                   .sequence = hello ? 0 : to->next_sequence,
                   .lowest_unacked = hello ? 0 : lowest,
                   .request =
                       (uint64_t)core->parts[core->free_part].generation << 32 | core->free_part,
                   .clock = core->clock},
    };
    return PSC_OK;
}

static bool fits_window(const psw_core_t *core, const psw_server_state_t *to, size_t cost)
{
    return to->window_messages == 0 || (to->window_messages < core->options.window_messages &&
                                        to->window_bytes + cost <= to->max_window_bytes);
}

bool psw_core_has_room(const psw_core_t *core, uint32_t server, size_t cost)
{
    const psw_server_state_t *to = &core->servers[server];
    return to->window_messages + to->n_queued < core->options.window_messages &&
           to->window_bytes + to->queued_bytes + cost <= to->max_window_bytes;
}

void psw_core_make_ready(psw_core_t *core, uint32_t server)
{
    psw_server_state_t *to = &core->servers[server];
    if (to->ready || to->queued_head == NONE ||
        !fits_window(core, to, core->parts[to->queued_head].cost))
        return;
    to->ready = true;
    to->next_ready = NONE;
    if (core->ready_tail == NONE)
        core->ready_head = server;
    else
        core->servers[core->ready_tail].next_ready = server;
    core->ready_tail = server;
}

void psw_core_enqueue(psw_core_t *core, const psw_part_t *part, psp_buffer_t *buffer,
                      uint32_t begin, uint32_t n, size_t reply_bytes)
{
    const uint32_t index = (uint32_t)part->header.request;
    psw_server_state_t *to = &core->servers[part->server];
    PSC_BUG_ON(index != core->free_part);
    psw_part_state_t *p = &core->parts[index];
    core->free_part = p->next;
    buffer->peer = part->server;
    *p = (psw_part_state_t){.request = part->request,
                            .buffer = buffer,
                            .sequence = part->header.sequence,
                            .cost = buffer->size + reply_bytes,
                            .server = part->server,
                            .generation = p->generation,
                            .reply_kind = psp_reply_kind(buffer->kind),
                            .begin = begin,
                            .n = n,
                            .previous = to->open_tail,
                            .next = NONE,
                            .next_queued = NONE,
                            .since_us = core->patience_us,
                            .open = true};
    psw_core_note_deadline(core, p, part->header.deadline_ms);
    if (part->header.sequence != 0)
        to->next_sequence = part->header.sequence + 1;
    if (to->open_tail == NONE)
        to->open_head = index;
    else
        core->parts[to->open_tail].next = index;
    to->open_tail = index;
    if (to->queued_tail == NONE)
        to->queued_head = index;
    else
        core->parts[to->queued_tail].next_queued = index;
    to->queued_tail = index;
    to->queued_bytes += buffer->size;
    to->n_queued++;
    if (part->request != NULL)
        part->request->open_parts++;
    else
        core->n_unasked++;
    core->n_open++;
    psw_core_make_ready(core, part->server);
}

psp_buffer_t *psw_core_next(psw_core_t *core)
{
    if (core->stale)
        return NULL;
    psp_buffer_t *ping = core->pings_due != 0 ? psw_core_next_ping(core) : NULL;
    if (ping != NULL)
        return ping;
    const uint32_t server = core->ready_head;
    if (server == NONE)
        return NULL;
    psw_server_state_t *to = &core->servers[server];
    core->ready_head = to->next_ready;
    if (core->ready_head == NONE)
        core->ready_tail = NONE;
    to->ready = false;
    psw_part_state_t *p = to->queued_head != NONE ? &core->parts[to->queued_head] : NULL;
    if (p == NULL || !fits_window(core, to, p->cost))
        return psw_core_next(core); /* what made it ready has been given up */
    to->queued_head = p->next_queued;
    if (to->queued_head == NONE)
        to->queued_tail = NONE;
    psp_buffer_t *buffer = p->buffer;
    p->buffer = NULL;
    if (core->keeps && (buffer->kind == PSP_PULL || buffer->kind == PSP_PUSH)) {
        psp_buffer_share(buffer);
        p->kept = buffer;
    }
    to->queued_bytes -= buffer->size;
    to->n_queued--;
    to->window_bytes += p->cost;
    to->window_messages++;
    core->messages_sent++;
    psw_core_make_ready(core, server);
    return buffer;
}

void psw_core_close_part(psw_core_t *core, uint32_t index)
{
    psw_part_state_t *p = &core->parts[index];
    psw_server_state_t *to = &core->servers[p->server];
    if (p->previous != NONE)
        core->parts[p->previous].next = p->next;
    else
        to->open_head = p->next;
    if (p->next != NONE)
        core->parts[p->next].previous = p->previous;
    else
        to->open_tail = p->previous;
    if (p->buffer == NULL) { /* it was sent */
        to->window_bytes -= p->cost;
        to->window_messages--;
    }
    psp_buffer_put(p->kept);
    p->kept = NULL;
    psw_request_t *request = p->request;
    p->request = NULL;
    p->open = false;
    p->generation++;
    p->next = core->free_part;
    core->free_part = index;
    core->n_open--;
    if (request == NULL) {
        core->n_unasked--;
        return;
    }
    request->open_parts--;
    if (psw_request_done(request))
        psw_request_finish(request);
}

/* ---- hello ---- */

psc_status_t psw_core_hello(psw_core_t *core, psw_request_t **request_out, psc_error_t *error)
{
    psw_request_t *request;
    psc_status_t st = psw_core_request(core, PSP_HELLO, &request, error);
    if (st != PSC_OK)
        return st;
    for (uint32_t s = 0; s < core->options.n_servers && st == PSC_OK; s++) {
        psw_part_t part;
        st = psw_core_part(core, request, s, &part, error);
        if (st != PSC_OK)
            break;
        psp_message_t message = {.kind = PSP_HELLO,
                                 .request = part.header,
                                 .u.hello = {.worker = core->options.worker,
                                             .n_workers = core->options.n_workers,
                                             .client = core->client,
                                             .n_former = core->n_former,
                                             .former = core->former_sessions}};
        psp_buffer_t *buffer;
        st = psp_message_pack(core->options.pool, &message, &buffer, error);
        if (st == PSC_OK)
            psw_core_enqueue(core, &part, buffer, 0, 0, 0);
    }
    if (st != PSC_OK) { /* a half-asked hello cannot be waited for */
        psc_error_t copy = PSC_ERROR_INIT;
        (void)psc_error_set(&copy, st, "%s", error != NULL ? error->message : psc_status_text(st));
        psw_core_fail(core, &copy);
        psw_core_release(core, request);
        return st;
    }
    psw_core_seal(core, request);
    *request_out = request;
    return PSC_OK;
}

static psc_status_t accept_map(psw_core_t *core, uint32_t server, const psp_hello_reply_t *reply,
                               psc_error_t *error)
{
    if (core->n_sessions == 0) {
        core->map.epoch = reply->map_epoch;
        core->map.n_servers = reply->n_servers;
        memcpy(core->map.owner, reply->slot_owners, sizeof core->map.owner);
        return psc_slot_map_check(&core->map, error);
    }
    if (reply->map_epoch != core->map.epoch ||
        memcmp(core->map.owner, reply->slot_owners, sizeof core->map.owner) != 0)
        return psc_error_set(error, PSC_MISMATCH,
                             "server %u spreads the rows in another way than the other servers",
                             server);
    return PSC_OK;
}

static psc_status_t accept_hello(psw_core_t *core, uint32_t server, const psp_hello_reply_t *reply,
                                 psc_error_t *error)
{
    if (core->cluster == 0)
        core->cluster = reply->cluster;
    if (reply->cluster != core->cluster || reply->server != server ||
        reply->n_servers != core->options.n_servers)
        return psc_error_set(error, PSC_MISMATCH,
                             "server %u answers as server %u of %u of run %016llx, but this is run "
                             "%016llx with %u servers",
                             server, reply->server, reply->n_servers,
                             (unsigned long long)reply->cluster, (unsigned long long)core->cluster,
                             core->options.n_servers);
    if (reply->slot_owners == NULL || reply->session == 0)
        return psc_error_set(error, PSC_PROTOCOL, "server %u answered without a %s", server,
                             reply->session == 0 ? "session" : "slot map");
    psc_status_t st = accept_map(core, server, reply, error);
    if (st == PSC_OK)
        st = psw_core_take_counted(core, server, reply, error);
    if (st != PSC_OK)
        return st;
    if (reply->max_message_bytes != 0 && reply->max_message_bytes < core->max_message_bytes)
        core->max_message_bytes = reply->max_message_bytes;
    core->servers[server].session = reply->session;
    core->servers[server].lease_ms = reply->lease_ms;
    memcpy(core->servers[server].host, reply->host, sizeof reply->host);
    if (reply->window_bytes != 0 && reply->window_bytes < core->servers[server].max_window_bytes)
        core->servers[server].max_window_bytes = reply->window_bytes;
    core->n_sessions++;
    if (reply->clock > core->first_clock)
        core->first_clock = core->clock = reply->clock;
    memcpy(core->resumed, reply->resumed, sizeof reply->resumed);
    return PSC_OK;
}

psc_status_t psw_core_last_goodbye(psw_core_t *core, uint32_t server, uint32_t status,
                                   psp_buffer_t **buffer_out, psc_error_t *error)
{
    psw_server_state_t *to = &core->servers[server];
    const bool guest =
        core->options.n_workers == 0; /* its server would wait for what was dropped */
    if (to->session == 0)
        return psc_error_set(error, PSC_NOT_FOUND, "no session with server %u", server);
    psp_message_t message = {.kind = PSP_GOODBYE,
                             .request = {.protocol = PSP_PROTOCOL_VERSION,
                                         .cluster = core->cluster,
                                         .map_epoch = core->map.epoch,
                                         .session = to->session,
                                         .sequence = guest ? 0 : to->next_sequence,
                                         .lowest_unacked = to->next_sequence,
                                         .request = UINT64_MAX,
                                         .clock = core->clock},
                             .u.goodbye = {.status = status}};
    to->next_sequence++;
    psc_status_t st = psp_message_pack(core->options.pool, &message, buffer_out, error);
    if (st == PSC_OK)
        (*buffer_out)->peer = server;
    return st;
}

/* ---- replies ---- */

/* A guest's goodbye that was sent again, because the answer to the first one was lost. */
static bool said_before(const psw_core_t *core, const psp_message_t *message)
{
    return core->options.n_workers == 0 && message->kind == PSP_GOODBYE_REPLY &&
           message->reply.error.code == PSC_PEER_GONE;
}

static psc_status_t receive(psw_core_t *core, const psp_buffer_t *buffer, psc_error_t *error)
{
    psp_message_t message;
    psc_status_t st = psp_message_unpack(core->scratch, buffer->kind, buffer->data, buffer->size,
                                         &message, error);
    if (st != PSC_OK)
        return st;
    const uint64_t number = message.reply.request;
    const uint32_t index = (uint32_t)number;
    psw_part_state_t *p = index < core->n_parts ? &core->parts[index] : NULL;
    const bool pinged = psw_core_hear(core, buffer->peer, number);
    if (message.reply.error.code == PSC_PEER_GONE && message.kind != PSP_HELLO_REPLY &&
        message.kind != PSP_GOODBYE_REPLY &&
        psw_core_refused(core, buffer->peer, &message.reply.error))
        return PSC_OK; /* all of this server is to be asked anew */
    if (pinged)
        return PSC_OK; /* a sign of life, and no more */
    if (p == NULL || !p->open || p->buffer != NULL || p->generation != number >> 32 ||
        p->server != buffer->peer || p->reply_kind != buffer->kind) {
        if (message.reply.error.code != PSC_OK)
            return psc_error_set(error, message.reply.error.code, "server %u: %s", buffer->peer,
                                 message.reply.error.message);
        return psc_error_set(error, PSC_PROTOCOL,
                             "server %u sent a %s that answers nothing (number %llu)", buffer->peer,
                             psp_kind_name(buffer->kind), (unsigned long long)number);
    }
    if (p->request == NULL || said_before(core, &message))
        ; /* nobody waits for it */
    else if (message.reply.error.code != PSC_OK)
        psw_request_fail(p->request, buffer->peer, &message.reply.error);
    else if (message.kind == PSP_HELLO_REPLY)
        st = accept_hello(core, buffer->peer, &message.u.hello_reply, error);
    else
        st = psw_request_accept(p->request, buffer->peer, p->begin, p->n, &message, error);
    if (message.reply.error.code == PSC_OK &&
        (message.kind == PSP_PUSH_REPLY || message.kind == PSP_IMPORT_REPLY) &&
        core->servers[buffer->peer].pushed < p->sequence)
        core->servers[buffer->peer].pushed = p->sequence;
    if (st == PSC_MISMATCH && core->relaying) { /* another attempt may find them alike */
        psw_request_fail(p->request, -1, error);
        st = PSC_OK;
    }
    if (st == PSC_OK) {
        psw_core_close_part(core, index);
        psw_core_make_ready(core, buffer->peer);
    }
    return st;
}

psc_status_t psw_core_receive(psw_core_t *core, psp_buffer_t *buffer, psc_error_t *error)
{
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = PSC_OK;
    if (core->error.code != PSC_OK) /* late: nobody waits for it */
        st = psw_core_state(core, &what);
    else if (buffer->peer >= core->options.n_servers)
        st = psc_error_set(&what, PSC_PROTOCOL, "a message came from peer %u of %u servers",
                           buffer->peer, core->options.n_servers);
    else
        st = receive(core, buffer, &what);
    if (st != PSC_OK) {
        psw_core_fail(core, &what);
        if (error != NULL)
            *error = what;
    }
    psp_buffer_put(buffer);
    return st;
}

void psw_core_fail(psw_core_t *core, const psc_error_t *error)
{
    if (core->error.code != PSC_OK)
        return;
    core->error = *error;
    for (size_t i = 0; i < core->n_parts; i++) {
        psw_part_state_t *p = &core->parts[i];
        if (!p->open)
            continue;
        psp_buffer_put(p->buffer);
        psp_buffer_put(p->kept);
        p->buffer = p->kept = NULL;
        p->open = false;
        if (p->request == NULL)
            continue;
        p->request->open_parts--;
        psw_request_fail(p->request, -1, error);
    }
    for (uint32_t s = 0; s < core->options.n_servers; s++) {
        psw_server_state_t *to = &core->servers[s];
        to->open_head = to->open_tail = to->queued_head = to->queued_tail = NONE;
        to->queued_bytes = 0;
        to->n_queued = 0;
        to->ready = false;
    }
    core->ready_head = core->ready_tail = NONE;
    core->n_open = core->n_unasked = 0;
    core->next_deadline_us = UINT64_MAX;
    core->pings_due = 0;
    core->stale = false;
    psw_core_free_strands(core, error);
    for (psw_request_t *r = core->live; r != NULL; r = r->next) {
        if (!r->sealed)
            psw_request_fail(r, -1, error);
    }
}

void psw_core_give_up(psw_core_t *core, psw_request_t *request, const psc_error_t *what,
                      psc_error_t *error_out)
{
    if (request->open_parts != 0)
        psw_core_fail(core, what);
    psw_core_release(core, request);
    if (error_out != NULL)
        *error_out = *what;
}

/* ---- looking ---- */

psc_status_t psw_core_state(const psw_core_t *core, psc_error_t *error)
{
    if (core->error.code != PSC_OK && error != NULL)
        *error = core->error;
    return core->error.code;
}

uint64_t psw_core_lowest_open(const psw_core_t *core, uint32_t server)
{
    const psw_server_state_t *to = &core->servers[server];
    return to->open_head != NONE ? core->parts[to->open_head].sequence : to->next_sequence;
}

bool psw_core_idle(const psw_core_t *core)
{
    return core->n_open == core->n_unasked && core->n_strands == 0;
}

size_t psw_core_queued_bytes(const psw_core_t *core, uint32_t server)
{
    return core->servers[server].queued_bytes;
}

size_t psw_core_window_bytes(const psw_core_t *core)
{
    return core->options.window_bytes;
}

psc_status_t psw_core_unseen_error(const psw_core_t *core, psc_error_t *error)
{
    const psw_request_t *found = NULL;
    for (const psw_request_t *r = core->live; r != NULL; r = r->next) {
        if (r->error.code != PSC_OK)
            found = r; /* the list begins with the newest */
    }
    if (found != NULL && error != NULL)
        *error = found->error;
    return found != NULL ? found->error.code : PSC_OK;
}

uint32_t psw_core_n_servers(const psw_core_t *core)
{
    return core->options.n_servers;
}

psp_pool_t *psw_core_pool(const psw_core_t *core)
{
    return core->options.pool;
}

uint64_t psw_core_cluster(const psw_core_t *core)
{
    return core->cluster;
}

const psc_slot_map_t *psw_core_map(const psw_core_t *core)
{
    return &core->map;
}

size_t psw_core_max_message_bytes(const psw_core_t *core)
{
    return core->max_message_bytes;
}

bool psw_core_has_session(const psw_core_t *core, uint32_t server)
{
    return core->servers[server].session != 0;
}

uint64_t psw_core_clock(const psw_core_t *core)
{
    return core->clock;
}

uint64_t psw_core_first_clock(const psw_core_t *core)
{
    return core->first_clock;
}

const char *psw_core_resumed(const psw_core_t *core)
{
    return core->resumed;
}

void psw_core_set_clock(psw_core_t *core, uint64_t clock)
{
    core->clock = clock;
}

uint64_t psw_core_requests_begun(const psw_core_t *core)
{
    return core->requests_begun;
}

uint64_t psw_core_messages_sent(const psw_core_t *core)
{
    return core->messages_sent;
}
