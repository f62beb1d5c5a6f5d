/*
 * Rights by kind of request.
 *
 * What a kind needs stands in one table; a kind that is not in it needs admin of all tables, as
 * Checkpoint does, so that a new one is closed until somebody has thought about it. Sessions,
 * clocks and counters need no right: who has a token may have a session, which is that token's
 * alone (guests.h).
 *
 * Cost: nothing without tokens; else a look at the patterns of one token. Threads: the owner's.
 */
#include "ps/table/permit.h"

#include "ps/table/shard_state.h"

#define ANYBODY PSP_RIGHT_ANY /* with a token, of whatever table */

static const unsigned needed[PS_KINDS] = {
    [PSP_HELLO] = ANYBODY,           [PSP_GOODBYE] = ANYBODY,
    [PSP_CLOCK] = ANYBODY,           [PSP_BARRIER] = ANYBODY,
    [PSP_STATS] = ANYBODY,           [PSP_ATTACH] = ANYBODY, /* guests get nothing by it */
    [PSP_OPEN_TABLE] = ANYBODY,                              /* these two ask for themselves */
    [PSP_FIND_TABLE] = ANYBODY,      [PSP_PULL] = PSP_RIGHT_READ,
    [PSP_PREFETCH] = PSP_RIGHT_READ, [PSP_TOUCHES] = PSP_RIGHT_READ,
    [PSP_EXPORT] = PSP_RIGHT_READ,   [PSP_PUSH] = PSP_RIGHT_WRITE,
    [PSP_IMPORT] = PSP_RIGHT_WRITE,  [PSP_WATCH] = PSP_RIGHT_READ,
};

static uint32_t table_of(const psp_message_t *message)
{
    switch (message->kind) {
    case PSP_PULL:
        return message->u.pull.table;
    case PSP_PREFETCH:
        return message->u.prefetch.table; /* a sign of life has none */
    case PSP_TOUCHES:
        return message->u.touches.table;
    case PSP_EXPORT:
        return message->u.export.table;
    case PSP_WATCH:
        return message->u.watch.table;
    case PSP_PUSH:
        return message->u.push.table;
    case PSP_IMPORT:
        return message->u.import.rows.table;
    default:
        return 0;
    }
}

psc_status_t ps_permit_table(const ps_request_t *request, const char *table, unsigned right,
                             psc_error_t *error)
{
    if (psp_grant_allows(request->buffer->grant, table, right))
        return PSC_OK;
    return psc_error_set(error, PSC_DENIED, "the token does not allow this: table %.80s, %s", table,
                         psp_right_name(right));
}

psc_status_t ps_permit_change(const ps_shard_t *shard, const char *what, psc_error_t *error)
{
    if (!shard->options.read_only)
        return PSC_OK;
    return psc_error_set(error, PSC_DENIED,
                         "%s is refused: this server only shows checkpoint %s (--read-only)", what,
                         shard->options.resumed);
}

/* Whether a request leaves all as it is. Clocks move the time by which rows expire; a checkpoint's
 * state may be read. */
static bool only_reads(const psp_message_t *message)
{
    if (message->kind == PSP_CHECKPOINT)
        return message->u.checkpoint.step == PSP_CHECKPOINT_READ;
    return message->kind != PSP_CLOCK &&
           (needed[message->kind] == ANYBODY || needed[message->kind] == PSP_RIGHT_READ);
}

psc_status_t ps_permit_request(const ps_shard_t *shard, const ps_request_t *request,
                               psc_error_t *error)
{
    const psp_message_t *message = &request->message;
    const unsigned right = needed[message->kind];
    if (!only_reads(message)) {
        psc_status_t st = ps_permit_change(shard, psp_kind_name((uint32_t)message->kind), error);
        if (st != PSC_OK)
            return st;
    }
    if (request->buffer->grant == NULL || right == ANYBODY)
        return PSC_OK;
    if (right == 0)
        return psp_grant_allows_all(request->buffer->grant, PSP_RIGHT_ADMIN)
                   ? PSC_OK
                   : psc_error_set(error, PSC_DENIED,
                                   "the token does not allow this: all tables, admin");
    const uint32_t number = table_of(message);
    if (number >= shard->n_tables || shard->tables[number] == NULL)
        return PSC_OK;
    const char *name = shard->tables[number]->name;
    psc_status_t st = ps_permit_table(request, name, right, error);
    if (st == PSC_OK && message->kind == PSP_PUSH && message->u.push.want_rows)
        st = ps_permit_table(request, name, PSP_RIGHT_READ, error);
    return st;
}
