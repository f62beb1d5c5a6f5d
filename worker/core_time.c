/*
 * What the core does because of time: rows that are late, servers that do not answer.
 *
 * Two times. Deadlines go by the driver's (psw_core_set_time). Silence goes by `patience`, which
 * grows only while somebody looks for answers: of the time between two looks at most LOOK_US
 * counts. So a program that computes for minutes, or is stopped itself, blames no server.
 *
 * A part whose deadline has passed, GRACE_US later, has only late rows: its server did not even
 * answer that. A part that was not sent yet is taken back; one that was sent is given up: it loses
 * its request and stays in the window until its answer comes, which then is dropped. The same
 * happens to parts of a server that has been silent for too long, and their requests fail with
 * TIMEOUT. So what a stopped server can cost is its window. A guest's server waits for every
 * sequence: in the place of a part that is taken back goes an empty hint with its number.
 *
 * A server that waits for other workers (a barrier, a clock) owes answers for long and is well. So
 * after a quarter of the time a server is asked for a sign of life: a prefetch without ids, which
 * is answered at once whatever waits, goes past queue and window, one at a time. It says which
 * answers the client has by now. What is under way was made before that: a server that went back,
 * or failed, and waits for a number that it had answered, learns only so that it will not come.
 *
 * Cost: nothing is sorted; the open parts are looked at when a deadline has passed, and the oldest
 * ones of each server when the driver looks. One thread.
 */
#include "worker/core_state.h"

#define LOOK_US UINT64_C(200000)
#define GRACE_US UINT64_C(20000)
#define AROUND_US UINT64_C(1000000)
#define PING_SHARE 4u
#define PING_NUMBER (UINT64_MAX - 1) /* of no part: its lower half is out of range */

void psw_core_set_time(psw_core_t *core, uint64_t now_us)
{
    uint64_t passed_us = core->now_us != 0 && now_us > core->now_us ? now_us - core->now_us : 0;
    core->patience_us += passed_us < LOOK_US ? passed_us : LOOK_US;
    core->now_us = now_us;
}

void psw_core_set_timeout(psw_core_t *core, uint64_t timeout_us)
{
    core->timeout_us = timeout_us;
}

uint64_t psw_core_timeout(const psw_core_t *core)
{
    return core->timeout_us;
}

void psw_core_set_trouble(psw_core_t *core, psw_trouble_fn trouble, const void *context)
{
    core->trouble = trouble;
    core->trouble_context = context;
}

static const char *trouble_with(const psw_core_t *core, uint32_t server)
{
    return core->trouble != NULL ? core->trouble(core->trouble_context, server) : "";
}

bool psw_core_in_trouble(const psw_core_t *core)
{
    for (uint32_t s = 0; s < core->options.n_servers; s++) {
        if (core->servers[s].session != 0 && trouble_with(core, s)[0] != '\0')
            return true;
    }
    return false;
}

const char *psw_core_host(const psw_core_t *core, uint32_t server)
{
    return core->servers[server].host;
}

uint64_t psw_core_next_deadline(const psw_core_t *core)
{
    return core->next_deadline_us;
}

void psw_core_note_deadline(psw_core_t *core, psw_part_state_t *part, uint32_t deadline_ms)
{
    if (deadline_ms == 0)
        return;
    part->deadline_us = core->now_us + (uint64_t)deadline_ms * 1000 + GRACE_US;
    if (part->deadline_us < core->next_deadline_us)
        core->next_deadline_us = part->deadline_us;
}

/* Takes a part that was not sent out of the queue of its server. */
static void unqueue(psw_core_t *core, uint32_t index)
{
    psw_part_state_t *part = &core->parts[index];
    psw_server_state_t *to = &core->servers[part->server];
    uint32_t before = PSW_CORE_NONE;
    for (uint32_t i = to->queued_head; i != index; i = core->parts[i].next_queued)
        before = i;
    if (before == PSW_CORE_NONE)
        to->queued_head = part->next_queued;
    else
        core->parts[before].next_queued = part->next_queued;
    if (to->queued_tail == index)
        to->queued_tail = before;
    to->queued_bytes -= part->buffer->size;
    to->n_queued--;
}

static psp_message_t empty_hint(const psw_core_t *core, uint32_t server, uint64_t sequence,
                                uint64_t number)
{
    return (psp_message_t){.kind = PSP_PREFETCH,
                           .request = {.protocol = PSP_PROTOCOL_VERSION,
                                       .cluster = core->cluster,
                                       .map_epoch = core->map.epoch,
                                       .session = core->servers[server].session,
                                       .sequence = sequence,
                                       .lowest_unacked = psw_core_lowest_open(core, server),
                                       .request = number,
                                       .clock = core->clock}};
}

/* An empty hint in the place of a part that was not sent. Without memory for it the part stays. */
static void make_empty(psw_core_t *core, uint32_t index)
{
    psw_part_state_t *part = &core->parts[index];
    psw_server_state_t *to = &core->servers[part->server];
    const psp_message_t message =
        empty_hint(core, part->server, part->sequence, (uint64_t)part->generation << 32 | index);
    psp_buffer_t *buffer;
    if (psp_message_pack(core->options.pool, &message, &buffer, NULL) != PSC_OK)
        return;
    buffer->peer = part->server;
    to->queued_bytes += buffer->size - part->buffer->size;
    psp_buffer_put(part->buffer);
    part->buffer = buffer;
    part->cost = buffer->size;
    part->reply_kind = PSP_PREFETCH_REPLY;
    psw_core_make_ready(core, part->server);
}

/* Nobody waits for this part any longer. */
static void give_up(psw_core_t *core, uint32_t index)
{
    psw_part_state_t *part = &core->parts[index];
    uint32_t server = part->server;
    if (part->buffer != NULL && part->buffer->kind == PSP_PUSH)
        psw_core_untally_push(core, server, part->n);
    if (part->buffer != NULL && core->options.n_workers == 0) {
        make_empty(core, index);
    } else if (part->buffer != NULL) {
        psp_buffer_t *buffer = part->buffer;
        unqueue(core, index);
        psw_core_close_part(core, index);
        part->buffer = NULL;
        psp_buffer_put(buffer);
        psw_core_make_ready(core, server);
        return;
    }
    psw_request_t *request = part->request;
    part->request = NULL;
    part->deadline_us = 0;
    core->n_unasked++;
    request->open_parts--;
    if (psw_request_done(request))
        psw_request_finish(request);
}

/* Parts whose time is up. */
static bool expire_parts(psw_core_t *core)
{
    bool any = false;
    if (core->now_us < core->next_deadline_us)
        return false;
    core->next_deadline_us = UINT64_MAX;
    for (uint32_t s = 0; s < core->options.n_servers; s++) {
        for (uint32_t i = core->servers[s].open_head; i != PSW_CORE_NONE;) {
            psw_part_state_t *part = &core->parts[i];
            uint32_t index = i;
            i = part->next;
            if (part->request == NULL || part->deadline_us == 0)
                continue;
            if (part->deadline_us > core->now_us) {
                if (part->deadline_us < core->next_deadline_us)
                    core->next_deadline_us = part->deadline_us;
                continue;
            }
            psw_request_mark_late(part->request, part->begin, part->n);
            give_up(core, index);
            any = true;
        }
    }
    return any;
}

/* How long a server has owed the answer to a part without a word, in patience. */
static uint64_t silence_of(const psw_core_t *core, const psw_part_state_t *part)
{
    const psw_server_state_t *to = &core->servers[part->server];
    uint64_t since_us = part->since_us > to->heard_us ? part->since_us : to->heard_us;
    return core->patience_us - since_us;
}

static void fail_silent(psw_core_t *core, const psw_part_state_t *part)
{
    const psw_server_state_t *to = &core->servers[part->server];
    const uint64_t ms = core->timeout_us / 1000;
    const char *why = trouble_with(core, part->server);
    psc_error_t error = PSC_ERROR_INIT;
    (void)psc_error_set(&error, PSC_TIMEOUT,
                        "server %u (host %.255s) has not answered for %llu %s%s%s", part->server,
                        to->host[0] != '\0' ? to->host : "unknown",
                        (unsigned long long)(ms % 1000 == 0 ? ms / 1000 : ms),
                        ms % 1000 == 0 ? "s" : "ms", why[0] != '\0' ? ": " : "", why);
    error.rank = (int32_t)part->server;
    psw_request_fail(part->request, -1, &error);
}

/* Asks all servers for signs of life: where one is silent, another may know that there are fewer
 * now. */
static bool ask_around(psw_core_t *core)
{
    bool any = false;
    if (!core->keeps || core->patience_us - core->asked_around_us < AROUND_US)
        return false;
    core->asked_around_us = core->patience_us;
    for (uint32_t s = 0; s < core->options.n_servers; s++) {
        psw_server_state_t *to = &core->servers[s];
        if (to->session == 0 || to->pinged || to->ping_due)
            continue;
        to->ping_due = any = true;
        core->pings_due++;
    }
    return any;
}

/* Parts of a server that has been silent for too long; asks it for a sign of life before. */
static bool expire_server(psw_core_t *core, uint32_t server)
{
    psw_server_state_t *to = &core->servers[server];
    bool any = false;
    for (uint32_t i = to->open_head; i != PSW_CORE_NONE;) {
        psw_part_state_t *part = &core->parts[i];
        uint32_t index = i;
        i = part->next;
        if (part->request == NULL)
            continue;
        uint64_t silence_us = silence_of(core, part);
        if (silence_us >= core->timeout_us) {
            fail_silent(core, part);
            give_up(core, index);
            any = true;
            continue;
        }
        if (silence_us >= core->timeout_us / PING_SHARE && !to->pinged && !to->ping_due) {
            to->ping_due = true;
            core->pings_due++;
            any = true;
        }
        if (silence_us >= AROUND_US && trouble_with(core, server)[0] != '\0')
            any = ask_around(core) || any;
        return any; /* later ones were enqueued later */
    }
    return any;
}

bool psw_core_expire(psw_core_t *core)
{
    if (core->stale)
        return false;
    bool any = expire_parts(core);
    if (core->timeout_us == 0 || core->n_open == core->n_unasked)
        return any;
    for (uint32_t s = 0; s < core->options.n_servers; s++) {
        if (core->servers[s].session != 0)
            any = expire_server(core, s) || any;
    }
    return any;
}

bool psw_core_hear(psw_core_t *core, uint32_t server, uint64_t number)
{
    psw_server_state_t *from = &core->servers[server];
    from->heard_us = core->patience_us;
    if (number != PING_NUMBER || !from->pinged)
        return false;
    from->pinged = false;
    return true;
}

psp_buffer_t *psw_core_next_ping(psw_core_t *core)
{
    uint32_t server = 0;
    while (!core->servers[server].ping_due)
        server++;
    psw_server_state_t *to = &core->servers[server];
    to->ping_due = false;
    core->pings_due--;
    const psp_message_t message = empty_hint(core, server, 0, PING_NUMBER);
    psp_buffer_t *buffer;
    if (psp_message_pack(core->options.pool, &message, &buffer, NULL) != PSC_OK)
        return NULL; /* comes by again */
    buffer->peer = server;
    to->pinged = true;
    core->messages_sent++;
    return buffer;
}

psc_status_t psw_core_sign_of_life(const psw_core_t *core, uint32_t server,
                                   psp_buffer_t **buffer_out, psc_error_t *error)
{
    const psp_message_t message = empty_hint(core, server, 0, PING_NUMBER);
    psc_status_t st = psp_message_pack(core->options.pool, &message, buffer_out, error);
    if (st == PSC_OK)
        (*buffer_out)->peer = server;
    return st;
}

uint32_t psw_core_lease_ms(const psw_core_t *core, uint32_t server)
{
    return core->servers[server].lease_ms;
}
