/*
 * Messages that went to servers that are others now, for those that have their rows.
 *
 * A message has all that is needed: its ids, and a push's rows as they were coded, so that nothing
 * is rounded twice. Ids are sorted by their new owners, in their order, and cut as any call is. A
 * part has rows [begin, begin + n) of its request to itself: there order and tickets are put into
 * the order of the new messages. Versions that a cache holds are not told, since a row that went
 * back can have come to the same number with another value. Cost: as the first time, but for the
 * dedupe.
 */
#include "worker/issue.h"

#include "common/alloc.h"

/* One message, and where its rows go. */
typedef struct again {
    psw_issuer_t *issuer;
    const psw_target_t *target;
    const psw_stranded_t *from;
    const uint8_t *ids;    /* of the message */
    const uint32_t *order; /* [n] rows of the message, server by server */
} again_t;

static void copy_ids(const again_t *again, uint32_t at, uint32_t n, uint8_t *out)
{
    for (uint32_t j = 0; j < n; j++)
        memcpy(out + j * sizeof(uint64_t), again->ids + again->order[at + j] * sizeof(uint64_t),
               sizeof(uint64_t));
}

/* Rows order[at .. at + n - 1] of the message, in one part. */
static psc_status_t send_part(const again_t *again, uint32_t server, uint32_t at, uint32_t n,
                              psc_error_t *error)
{
    psw_core_t *core = again->issuer->core;
    psw_request_t *request = again->from->request;
    const uint32_t begin = again->from->begin + at;
    psw_part_t part;
    psp_buffer_t *buffer = NULL;
    uint8_t *ids, *rows;
    size_t reply_bytes = 0;
    psc_status_t st = psw_core_part(core, request, server, &part, error);
    if (st != PSC_OK)
        return st;
    if (again->from->message->kind == PSP_PULL) {
        psp_pull_t pull = again->from->message->u.pull;
        pull.table_epoch = again->target->epochs[server];
        pull.want_places = false;
        pull.n = n;
        pull.versions = request->picked ? (const uint8_t *)(request->held + begin) : NULL;
        part.header.deadline_ms = again->from->deadline_ms;
        reply_bytes = (size_t)n * psp_row_bytes(pull.format, again->target->dim);
        st = psp_pull_begin(psw_core_pool(core), &part.header, &pull, &buffer, &ids, error);
    } else {
        psp_push_t push = again->from->message->u.push;
        const size_t bytes = psp_row_bytes(push.format, push.dim);
        push.table_epoch = again->target->epochs[server];
        push.n = n;
        st = psp_push_begin(psw_core_pool(core), &part.header, &push, &buffer, &ids, &rows, error);
        for (uint32_t j = 0; st == PSC_OK && j < n; j++)
            memcpy(rows + j * bytes,
                   again->from->message->u.push.rows + again->order[at + j] * bytes, bytes);
    }
    if (st != PSC_OK)
        return st;
    copy_ids(again, at, n, ids);
    psw_core_enqueue(core, &part, buffer, begin, n, reply_bytes);
    return PSC_OK;
}

/* [n] words from begin on, in the order of the new messages. */
static void reorder(const again_t *again, uint32_t *words, uint32_t *scratch)
{
    const uint32_t n = again->from->n;
    memcpy(scratch, words + again->from->begin, n * sizeof *words);
    for (uint32_t j = 0; j < n; j++)
        words[again->from->begin + j] = scratch[again->order[j]];
}

/* What the request knows of each row goes along. */
static psc_status_t reorder_request(const again_t *again, psc_error_t *error)
{
    psw_request_t *request = again->from->request;
    const uint32_t n = again->from->n, begin = again->from->begin;
    psw_ticket_t *scratch = psc_alloc_array(n, sizeof *scratch);
    if (scratch == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory to ask for %u rows again", n);
    _Static_assert(sizeof(psw_ticket_t) >= sizeof(uint32_t), "a ticket's room is enough");
    reorder(again, request->order, (uint32_t *)(void *)scratch);
    if (request->picked) {
        memset(request->held + begin, 0, n * sizeof *request->held);
        memcpy(scratch, request->tickets + begin, n * sizeof *scratch);
        for (uint32_t j = 0; j < n; j++)
            request->tickets[begin + j] = scratch[again->order[j]];
    }
    psc_free(scratch);
    return PSC_OK;
}

static psc_status_t send_all(const again_t *again, const uint32_t *start, psc_error_t *error)
{
    const psw_core_t *core = again->issuer->core;
    size_t most = psp_rows_per_message(again->target->dim, psw_core_max_message_bytes(core));
    if (again->target->max_rows != 0 && again->target->max_rows < most)
        most = again->target->max_rows;
    psc_status_t st = PSC_OK;
    for (uint32_t s = 0; s < psw_core_n_servers(core); s++) {
        for (uint32_t at = start[s]; st == PSC_OK && at < start[s + 1];) {
            const uint32_t left = start[s + 1] - at, n = left < most ? left : (uint32_t)most;
            st = send_part(again, s, at, n, error);
            at += n;
        }
    }
    return st;
}

psc_status_t psw_issue_again(psw_issuer_t *issuer, const psw_target_t *target,
                             const psw_stranded_t *stranded, psc_error_t *error)
{
    const psp_message_t *message = stranded->message;
    const uint32_t n = stranded->n;
    again_t again = {.issuer = issuer, .target = target, .from = stranded};
    again.ids = message->kind == PSP_PULL ? message->u.pull.ids : message->u.push.ids;
    uint64_t *hashes = psc_alloc_array((size_t)n + 1, sizeof *hashes);
    uint32_t *order = psc_alloc_array((size_t)n + 1, sizeof *order);
    const uint32_t *start = NULL;
    psc_status_t st = PSC_OK;
    if (hashes == NULL || order == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory to ask for %u rows again", n);
    for (uint32_t j = 0; st == PSC_OK && j < n; j++) {
        uint64_t id;
        memcpy(&id, again.ids + j * sizeof id, sizeof id);
        hashes[j] = psc_row_hash(target->table, id);
    }
    again.order = order;
    if (st == PSC_OK)
        st = psw_router_split(issuer->router, psw_core_map(issuer->core), hashes, NULL, n, order,
                              &start, error);
    if (st == PSC_OK)
        st = reorder_request(&again, error);
    if (st == PSC_OK)
        st = send_all(&again, start, error);
    psc_free(hashes);
    psc_free(order);
    return st;
}
