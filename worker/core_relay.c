/*
 * What the core does when servers do not know its sessions any more: they went on from a
 * checkpoint, with slots spread in another way, or this client was away for longer than its lease.
 *
 * A refused session makes the core stale. Its driver then finds the servers that are there now
 * (psw_core_relay), and says hello to them with the sessions that were; their replies tell up to
 * which sequence pushes of each count. With that all that was under way has an end
 * (psw_core_resume):
 *
 *     a push or import that counts         its answer alone was lost: it is acknowledged
 *     a push that does not                 it never will: it is sent again, to who has its rows now
 *     a pull                               it is sent again
 *     anything else                        fails, since it may have been half of something
 *     an acknowledged push that does not   the servers went back behind it: the client must know,
 *     count, or of which nobody knows      so the core ends
 *
 * So each push counts once, and a client that was told nothing that is not so goes on without a
 * word. What was never sent is sent now. Nothing here waits or knows of tables: the driver's owner
 * makes the new messages, of the bytes of the old ones, which are kept for that. One thread.
 */
#include "worker/core_state.h"

#include "common/alloc.h"

#include <inttypes.h>

#define NONE PSW_CORE_NONE

void psw_core_keep(psw_core_t *core)
{
    core->keeps = true;
}

bool psw_core_is_stale(const psw_core_t *core, uint32_t *server_out)
{
    if (core->stale && server_out != NULL)
        *server_out = core->stale_server;
    return core->stale;
}

bool psw_core_may_relay(const psw_core_t *core)
{
    return core->stale && core->n_unsealed == 0;
}

uint64_t psw_core_relaid(const psw_core_t *core)
{
    return core->relaid;
}

bool psw_core_refused(psw_core_t *core, uint32_t server, const psc_error_t *refusal)
{
    if (!core->keeps || core->relaying)
        return false;
    if (!core->stale) {
        core->stale_server = server;
        core->refusal = *refusal;
    }
    core->stale = true;
    return true;
}

psc_status_t psw_core_take_counted(psw_core_t *core, uint32_t server,
                                   const psp_hello_reply_t *reply, psc_error_t *error)
{
    if (reply->n_counted != 0 && reply->n_counted != core->n_former)
        return psc_error_set(error, PSC_PROTOCOL,
                             "server %" PRIu32 " was asked for %" PRIu32
                             " sessions and told of %zu",
                             server, core->n_former, reply->n_counted);
    for (size_t i = 0; i < reply->n_counted; i++) {
        if (core->former[i].counted < reply->counted[i])
            core->former[i].counted = reply->counted[i];
    }
    return PSC_OK;
}

/* A request has one part less to wait for. */
static void end_part(psw_request_t *request)
{
    request->open_parts--;
    if (psw_request_done(request))
        psw_request_finish(request);
}

void psw_core_free_strands(psw_core_t *core, const psc_error_t *error)
{
    for (size_t i = 0; i < core->n_strands; i++) {
        psw_strand_t *strand = &core->strands[i];
        psp_buffer_put(strand->buffer);
        if (strand->request == NULL || error == NULL)
            continue;
        psw_request_fail(strand->request, -1, error);
        end_part(strand->request);
    }
    psc_free(core->strands);
    psc_free(core->former);
    psc_free(core->former_sessions);
    core->strands = NULL;
    core->former = NULL;
    core->former_sessions = NULL;
    core->n_strands = core->n_former = 0;
}

/* ---- setting apart ---- */

static void strand(psw_core_t *core, uint32_t server, uint32_t index)
{
    psw_part_state_t *part = &core->parts[index];
    if (part->request != NULL)
        core->strands[core->n_strands++] =
            (psw_strand_t){.request = part->request,
                           .buffer = part->buffer != NULL ? part->buffer : part->kept,
                           .reply_kind = part->reply_kind,
                           .former = server,
                           .was_sent = part->buffer == NULL,
                           .sequence = part->sequence,
                           .deadline_us = part->deadline_us,
                           .begin = part->begin,
                           .n = part->n};
    else
        psp_buffer_put(part->buffer != NULL ? part->buffer : part->kept);
    core->n_unasked -= part->request == NULL;
    core->n_open--;
    *part = (psw_part_state_t){.generation = part->generation + 1, .next = core->free_part};
    core->free_part = index;
}

/* All that is under way, server by server. There is room for it. */
static void strand_all(psw_core_t *core)
{
    for (uint32_t s = 0; s < core->options.n_servers; s++) {
        for (uint32_t i = core->servers[s].open_head; i != NONE;) {
            const uint32_t next = core->parts[i].next;
            strand(core, s, i);
            i = next;
        }
    }
}

static psc_status_t keep_former(psw_core_t *core, psc_error_t *error)
{
    const uint32_t n = core->options.n_servers;
    psw_former_t *former = psc_alloc_zeroed(n, sizeof *former);
    uint64_t *sessions = psc_alloc_array(n, sizeof *sessions);
    psw_strand_t *strands = psc_alloc_array(core->n_open + 1, sizeof *strands);
    if (former == NULL || sessions == NULL || strands == NULL) {
        psc_free(former);
        psc_free(sessions);
        psc_free(strands);
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for %zu messages under way",
                             core->n_open);
    }
    for (uint32_t s = 0; s < n; s++) {
        sessions[s] = core->servers[s].session;
        former[s] = (psw_former_t){.pushed = core->servers[s].pushed};
    }
    core->former = former;
    core->former_sessions = sessions;
    core->n_former = n;
    core->strands = strands;
    return PSC_OK;
}

psc_status_t psw_core_relay(psw_core_t *core, uint32_t n_servers, psc_error_t *error)
{
    PSC_BUG_ON(core->n_unsealed != 0 || (core->relaying && core->n_open != core->n_unasked));
    if (n_servers == 0 || n_servers > PSC_MAX_SERVERS)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%" PRIu32 " servers; 1 to %u may be",
                             n_servers, PSC_MAX_SERVERS);
    psw_server_state_t *servers = psc_alloc_array(n_servers, sizeof *servers);
    uint64_t *promised = psc_alloc_zeroed(n_servers, sizeof *promised);
    psc_status_t st = PSC_OK;
    if (servers == NULL || promised == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for a client of %" PRIu32 " servers",
                           n_servers);
    else if (!core->relaying)
        st = keep_former(core, error);
    if (st != PSC_OK) {
        psc_free(servers);
        psc_free(promised);
        return st;
    }
    strand_all(core);
    for (uint32_t s = 0; s < n_servers; s++)
        servers[s] = psw_core_new_server(core);
    psc_free(core->servers);
    psc_free(core->promised);
    core->servers = servers;
    core->promised = promised;
    core->options.n_servers = n_servers;
    core->ready_head = core->ready_tail = NONE;
    core->next_deadline_us = UINT64_MAX;
    core->pings_due = 0;
    core->n_sessions = 0;
    core->map = (psc_slot_map_t){.n_servers = 0};
    core->max_message_bytes = PSP_MAX_MESSAGE_BYTES;
    core->stale = false;
    core->relaying = true;
    return PSC_OK;
}

/* ---- going on ---- */

static bool has_effect(const psw_strand_t *strand)
{
    return strand->reply_kind == PSP_PUSH_REPLY || strand->reply_kind == PSP_IMPORT_REPLY;
}

bool psw_core_has_pushed(const psw_core_t *core)
{
    for (uint32_t s = 0; s < core->options.n_servers; s++) {
        if (core->servers[s].pushed != 0)
            return true;
    }
    return false;
}

psc_status_t psw_core_check_counted(const psw_core_t *core, psc_error_t *error)
{
    for (uint32_t s = 0; s < core->n_former; s++) {
        const psw_former_t *former = &core->former[s];
        if (former->counted != 0 && former->pushed < former->counted)
            continue;
        if (former->counted != 0)
            return psc_error_set(
                error, PSC_PEER_GONE,
                "server %" PRIu32 " had acknowledged pushes up to sequence %" PRIu64
                ", but the servers went on from a checkpoint that has those up to %" PRIu64
                ": connect again, and go on from it",
                s, former->pushed, former->counted - 1);
        bool doubtful = former->pushed != 0;
        for (size_t i = 0; i < core->n_strands; i++)
            doubtful = doubtful || (core->strands[i].former == s && core->strands[i].was_sent &&
                                    has_effect(&core->strands[i]));
        if (doubtful)
            return psc_error_set(error, PSC_PEER_GONE,
                                 "server %" PRIu32
                                 ": %.240s. Which pushes of it count is not known any more: "
                                 "connect again, and go on from the checkpoint",
                                 core->stale_server, core->refusal.message);
    }
    return PSC_OK;
}

static uint32_t deadline_left(const psw_core_t *core, const psw_strand_t *strand)
{
    if (strand->deadline_us == 0)
        return 0;
    if (strand->deadline_us <= core->now_us + 1000)
        return 1;
    const uint64_t ms = (strand->deadline_us - core->now_us) / 1000;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

/* The same once more, of other servers. */
static psc_status_t ask_again(psw_core_t *core, const psw_strand_t *strand, psw_strand_fn fn,
                              void *context, psc_error_t *error)
{
    psp_message_t message;
    psw_stranded_t stranded = {.request = strand->request,
                               .message = &message,
                               .begin = strand->begin,
                               .n = strand->n,
                               .deadline_ms = deadline_left(core, strand)};
    psc_status_t st = psp_message_unpack(core->scratch, strand->buffer->kind, strand->buffer->data,
                                         strand->buffer->size, &message, error);
    return st == PSC_OK ? fn(context, &stranded, error) : st;
}

static psc_status_t resume(psw_core_t *core, psw_strand_t *strand, psw_strand_fn fn, void *context,
                           psc_error_t *error)
{
    psw_request_t *request = strand->request;
    const bool counts = has_effect(strand) && strand->was_sent &&
                        strand->sequence < core->former[strand->former].counted;
    const bool wanted = strand->reply_kind == PSP_PUSH_REPLY ||
                        (strand->reply_kind == PSP_PULL_REPLY && request->error.code == PSC_OK);
    psc_status_t st = PSC_OK;
    if (!counts && wanted) {
        st = ask_again(core, strand, fn, context, error);
    } else if (!counts && strand->reply_kind != PSP_PULL_REPLY) {
        psc_error_t what = PSC_ERROR_INIT;
        (void)psc_error_set(&what, PSC_PEER_GONE,
                            "the servers, %" PRIu32 " now, were started again meanwhile: ask again",
                            core->options.n_servers);
        psw_request_fail(request, -1, &what);
    }
    if (st == PSC_OK) {
        strand->request = NULL;
        end_part(request);
    }
    return st;
}

psc_status_t psw_core_resume(psw_core_t *core, psw_strand_fn fn, void *context, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < core->n_strands; i++)
        st = resume(core, &core->strands[i], fn, context, error);
    if (st != PSC_OK)
        return st;
    psw_core_free_strands(core, NULL);
    core->relaying = false;
    core->relaid++;
    return PSC_OK;
}
