/*
 * Import: rows set as given, whole message or nothing, exactly once. It is a push that assigns
 * (push.c), with the optimizer's state and the counts of the rows beside; so admission and expiry,
 * bounds and precision mean for it what they mean for such a push. Whole rows, those with counts,
 * may have values that are not finite: pushes can make such rows, and what was exported must come
 * back. It never waits for a clock: an import is no part of a training step.
 */
#include "ps/serve/push.h"

#include <inttypes.h>

static psc_status_t check(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_import_t *import = &request->message.u.import;
    psc_status_t st = ps_push_check(shard, request, error);
    if (st != PSC_OK || import->state_floats == 0)
        return st;
    const ps_table_t *table = request->table;
    if (import->state_floats != table->state_floats)
        return psc_error_set(error, PSC_MISMATCH,
                             "import of rows with %" PRIu32
                             " numbers of state to table %.80s, whose optimizer %s has %zu",
                             import->state_floats, table->name, table->optim->name,
                             table->state_floats);
    if (ps_push_restores(request))
        return PSC_OK;
    const size_t bad = ps_rows_find_nonfinite_coded(import->state, PSP_FORMAT_F32, import->rows.n,
                                                    import->state_floats);
    if (bad == import->rows.n)
        return PSC_OK;
    const uint64_t id = psp_id_at(import->rows.ids, bad);
    st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                       "import to table %.80s: the state of row %" PRIu64
                       " has a number that is not finite; nothing was set",
                       table->name, id);
    if (error != NULL)
        error->id = id;
    return st;
}

psc_status_t ps_serve_import(ps_shard_t *shard, ps_session_t *session, ps_request_t *request,
                             psc_error_t *error)
{
    const size_t n = request->message.u.import.rows.n;
    const uint64_t sequence = request->message.request.sequence;
    bool done = true;
    psc_status_t st = PSC_OK;
    psp_message_t reply = {.kind = PSP_IMPORT_REPLY, .u.import_reply = {.rows = n}};
    if (request->state == PS_REQUEST_QUEUED && (st = check(shard, request, error)) != PSC_OK)
        return st;
    if (sequence <= session->push_sequence) {
        shard->counters.pushes_repeated++;
        return ps_shard_reply(shard, request, &reply, error);
    }
    const uint64_t before = request->table->created;
    if (n != 0) {
        st = ps_push_apply_when_ready(shard, request, &done, error);
        session->pushed_at_once = true;
    }
    if (st != PSC_OK || !done)
        return st;
    session->push_sequence = sequence;
    shard->counters.rows_imported += n;
    reply.u.import_reply.created = request->table->created - before;
    ps_shard_release(shard, request);
    return ps_shard_reply(shard, request, &reply, error);
}
