/*
 * The shard: takes messages, keeps each session's requests in order, and lets the functions that it
 * was given (ps/serve) do what each asks for.
 *
 * Invariants. A request is in the queue of its session from arrival to reply, and replied to
 * exactly once: by its function (DONE, DEFERRED), by the refusal that the function returned, or by
 * the failure of the shard. Only the oldest request of a session is served; the others are QUEUED.
 * So at most one batch per session holds rows, and who holds rows waits for the disk alone: no two
 * can wait for each other. A request that found no room often enough is `starving`: nobody else
 * takes room before it. What waits for other workers (clocks, barriers) is tried again whenever one
 * of those moves; what waits for the store is tried by ps_shard_poll, which begins with another
 * session each time.
 *
 * Synchronous pushes, DEFERRED, are all of one clock, `clock`: a push of the next one waits until
 * that has been ended by all workers and applied, as pulls that are in step do. Then they are
 * summed (clock_sum.h), and each of the sums is a push of its own, `summed`, which waits for the
 * store like the head of a session.
 *
 * A failure of the store or of memory is the end: every waiting request is answered with it, and
 * every later message too. Threads: none; the owner's. No clock and no socket: time and messages
 * come from the driver. Cost beside the rows themselves: one unpacking and one queue operation a
 * message.
 */
#include "ps/table/shard.h"

#include "common/alloc.h"
#include "ps/table/permit.h"
#include "ps/table/shard_state.h"

#include <inttypes.h>

/* Beside its buffer a message may take this much: small fields, and bulk fields in pieces. */
#define SCRATCH_BYTES ((size_t)4 << 20)
#define STARVING_AFTER 16u
#define IDLE_RETRY 8u /* polls without news after which waiting requests are tried all the same */

/* Whether an error ends the shard rather than one request. */
static bool is_fatal(psc_status_t code)
{
    return code == PSC_IO || code == PSC_DISK_FULL || code == PSC_CORRUPT || code == PSC_NO_MEMORY;
}

psc_status_t ps_shard_create(const ps_shard_options_t *options, ps_shard_t **shard_out,
                             psc_error_t *error)
{
    if ((options->n_workers == 0 && options->n_guests == 0) || options->rank >= options->n_servers)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "server %" PRIu32 " of %" PRIu32 " with %" PRIu32 " workers",
                             options->rank, options->n_servers, options->n_workers);
    ps_shard_t *shard = psc_alloc_zeroed(1, sizeof *shard);
    if (shard == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a shard");
    shard->options = *options;
    shard->next_deadline_us = UINT64_MAX;
    shard->saver.writer = options->writer;
    psc_status_t st = psc_slot_map_init(&shard->map, options->n_servers, error);
    if (st == PSC_OK)
        st = psp_scratch_create(SCRATCH_BYTES, &shard->scratch, error);
    if (st == PSC_OK)
        st = ps_sessions_init(&shard->sessions, options->n_workers, options->n_guests, error);
    if (st == PSC_OK)
        st = ps_guests_init(&shard->guests, options->n_guests, error);
    if (st == PSC_OK)
        st = ps_calls_init(&shard->calls, options->n_workers + options->n_guests, options->rank,
                           options->n_servers, error);
    if (st != PSC_OK) {
        ps_shard_destroy(shard);
        return st;
    }
    *shard_out = shard;
    return PSC_OK;
}

void ps_shard_drop(ps_shard_t *shard, ps_session_t *session, ps_request_t *previous,
                   ps_request_t *request)
{
    if (previous != NULL)
        ps_session_unlink(session, previous, request);
    else
        (void)ps_session_dequeue(session);
    shard->n_waiting--;
    ps_shard_release(shard, request);
    ps_exporter_release(shard, request);
    if (shard->starving == request) {
        shard->starving = NULL;
        shard->room_changed = true;
    }
    ps_request_destroy(&shard->requests, request);
}

/* The oldest one. */
static void drop_head(ps_shard_t *shard, ps_session_t *session)
{
    ps_shard_drop(shard, session, NULL, session->head);
}

void ps_shard_destroy(ps_shard_t *shard)
{
    if (shard == NULL)
        return;
    ps_sweeper_stop(shard);
    ps_exporter_stop(shard);
    ps_watchers_end(shard, NULL);
    ps_shard_end_sum(shard);
    ps_prefetcher_stop(shard);
    ps_saver_clear(shard);
    ps_logger_clear(shard);
    for (uint32_t i = 0; shard->sessions.all != NULL && i < shard->sessions.n_all; i++) {
        while (shard->sessions.all[i].head != NULL)
            drop_head(shard, &shard->sessions.all[i]);
        ps_shard_drop_deferred(shard, &shard->sessions.all[i]);
    }
    ps_guests_clear(shard);
    ps_calls_clear(&shard->calls);
    ps_clock_sum_clear(&shard->sum);
    for (uint32_t i = 0; i < shard->n_tables; i++) {
        if (shard->tables[i] != NULL) {
            ps_growth_destroy(shard->tables[i]->growth, shard->options.store);
            ps_watchers_close_log(shard, shard->tables[i]);
        }
        psc_free(shard->tables[i]);
    }
    psc_free(shard->tables);
    ps_row_scratch_clear(&shard->scratch_row);
    ps_rows_merge_space_clear(&shard->merge);
    psc_free(shard->decoded);
    ps_request_pool_clear(&shard->requests);
    ps_sessions_clear(&shard->sessions);
    psp_scratch_destroy(shard->scratch);
    psc_free(shard);
}

/* ---- rows ---- */

psc_status_t ps_shard_find_table(const ps_shard_t *shard, uint32_t number, uint32_t epoch,
                                 ps_table_t **table_out, psc_error_t *error)
{
    ps_table_t *table = number < shard->n_tables ? shard->tables[number] : NULL;
    if (table == NULL)
        return psc_error_set(error, PSC_NOT_FOUND,
                             "there is no table of number %" PRIu32 ": open it first", number);
    if (epoch != table->epoch)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %.80s has epoch %" PRIu32 ", not %" PRIu32 ": open it again",
                             table->name, table->epoch, epoch);
    *table_out = table;
    return PSC_OK;
}

psc_status_t ps_shard_reserve(ps_shard_t *shard, ps_request_t *request, size_t n,
                              psc_error_t *error)
{
    psc_status_t st = ps_request_reserve(&shard->requests, &request->space, n, error);
    if (st == PSC_OK && ps_growth_shares(request->table->growth))
        st = ps_request_reserve(&shard->requests, &request->shared_space, n, error);
    return st;
}

void ps_shard_set_located(ps_request_t *request, size_t n)
{
    const ps_growth_t *growth = request->table->growth;
    if (ps_growth_shares(growth))
        ps_growth_locate_shared(growth, request->space->hashes, n, request->shared_space->ids,
                                request->shared_space->hashes);
    request->located = true;
}

psc_status_t ps_shard_locate(ps_shard_t *shard, ps_request_t *request, const uint8_t *ids, size_t n,
                             psc_error_t *error)
{
    if (request->located)
        return PSC_OK;
    psc_status_t st = ps_shard_reserve(shard, request, n, error);
    if (st != PSC_OK)
        return st;
    ps_space_t *space = request->space;
    size_t stray = ps_rows_locate(ids, n, request->table->number, &shard->map, shard->options.rank,
                                  space->ids, space->hashes);
    if (stray != n) {
        uint64_t id = space->ids[stray];
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "row %" PRIu64 " of table %.80s belongs to server %" PRIu32
                           ", not %" PRIu32,
                           id, request->table->name,
                           psc_slot_owner(&shard->map, space->hashes[stray]), shard->options.rank);
        if (error != NULL)
            error->id = id;
        return st;
    }
    ps_shard_set_located(request, n);
    return PSC_OK;
}

/* Asks the store for the rows of a request, and for the ones that they share: all or none. */
static psc_status_t take_rows(ps_shard_t *shard, ps_request_t *request, ps_batch_mode_t mode,
                              size_t n, psc_error_t *error)
{
    const ps_table_t *table = request->table;
    ps_space_t *space = request->space;
    bool scan = request->message.kind == PSP_EXPORT ||
                (request->message.kind == PSP_PULL && request->message.u.pull.scan);
    request->batch = (ps_batch_t){.table = table->number,
                                  .mode = mode,
                                  .n = n,
                                  .ids = space->ids,
                                  .hashes = space->hashes,
                                  .places = space->places,
                                  .scan = scan};
    psc_status_t st = ps_store_prepare(shard->options.store, &request->batch, error);
    if (st != PSC_OK || !ps_growth_shares(table->growth))
        return st;
    space = request->shared_space;
    request->shared = (ps_batch_t){.table = table->growth->companion.number,
                                   .mode = mode,
                                   .n = n,
                                   .ids = space->ids,
                                   .hashes = space->hashes,
                                   .places = space->places};
    st = ps_store_prepare(shard->options.store, &request->shared, error);
    if (st != PSC_OK)
        ps_store_release(shard->options.store, &request->batch);
    return st;
}

/* Asks the store for the rows; request->prepared tells whether it could. */
static psc_status_t prepare(ps_shard_t *shard, ps_request_t *request, ps_batch_mode_t mode,
                            size_t n, psc_error_t *error)
{
    psc_status_t st = PSC_BUSY;
    if (shard->starving == NULL || shard->starving == request) {
        st = take_rows(shard, request, mode, n, error);
        if (st == PSC_BUSY && ++request->busy_tries == STARVING_AFTER)
            shard->starving = request;
    }
    if (st == PSC_BUSY) {
        shard->counters.waits_room += request->state != PS_REQUEST_WAIT_ROOM;
        request->state = PS_REQUEST_WAIT_ROOM;
        return PSC_OK;
    }
    if (shard->starving == request) {
        shard->starving = NULL;
        shard->room_changed = true;
    }
    if (st != PSC_OK)
        return st;
    request->prepared = true;
    request->busy_tries = 0;
    request->created_seen = ps_shard_created(request->table);
    return PSC_OK;
}

psc_status_t ps_shard_prepare(ps_shard_t *shard, ps_request_t *request, ps_batch_mode_t mode,
                              const uint8_t *ids, size_t n, bool *ready_out, psc_error_t *error)
{
    psc_status_t st;
    *ready_out = false;
    if ((st = ps_shard_locate(shard, request, ids, n, error)) != PSC_OK)
        return st;
    if (n == 0) {
        *ready_out = true;
        return PSC_OK;
    }
    if (!request->prepared) {
        st = prepare(shard, request, mode, n, error);
        if (st != PSC_OK || !request->prepared)
            return st;
    }
    bool ready = ps_store_ready(shard->options.store, &request->batch);
    if (ready && ps_growth_shares(request->table->growth))
        ready = ps_store_ready(shard->options.store, &request->shared);
    if (!ready) {
        shard->counters.waits_rows += request->state != PS_REQUEST_WAIT_ROWS;
        request->state = PS_REQUEST_WAIT_ROWS;
        return PSC_OK;
    }
    *ready_out = true;
    return PSC_OK;
}

psc_status_t ps_shard_wait_clock(ps_shard_t *shard, const ps_session_t *session,
                                 ps_request_t *request, psc_error_t *error)
{
    if (session->state == PS_SESSION_LEAVING)
        return psc_error_set(error, PSC_INTERRUPTED,
                             "worker %" PRIu32 " leaves before the others reach its clock",
                             request->buffer->peer);
    shard->counters.waits_clock += request->state != PS_REQUEST_WAIT_CLOCK;
    request->state = PS_REQUEST_WAIT_CLOCK;
    return PSC_OK;
}

uint64_t ps_shard_created(const ps_table_t *table)
{
    return table->created + (table->growth != NULL ? table->growth->companion.created : 0);
}

ps_growth_rows_t ps_shard_rows(ps_shard_t *shard, const ps_request_t *request, size_t n)
{
    const ps_table_t *table = request->table;
    ps_growth_rows_t rows = {.hashes = request->space->hashes};
    rows.rows = (ps_rows_t){.table = table,
                            .store = shard->options.store,
                            .scratch = &shard->scratch_row,
                            .n = n,
                            .ids = request->space->ids,
                            .places = request->space->places};
    if (!ps_growth_shares(table->growth))
        return rows;
    rows.shared = rows.rows;
    rows.shared.table = &table->growth->companion;
    rows.shared.ids = request->shared_space->ids;
    rows.shared.places = request->shared_space->places;
    return rows;
}

void ps_shard_publish(ps_shard_t *shard)
{
    psc_shared_control_t *control = ps_store_shared_control(shard->options.store);
    psc_shared_set_clock(control, shard->clock);
    if (shard->failure.code != PSC_OK || shard->sessions.worst_status != 0)
        psc_shared_close(control);
}

void ps_shard_others_moved(ps_shard_t *shard)
{
    shard->others_changed = true;
    if (shard->sum.n_kept == 0) /* else when they are applied */
        shard->clock = shard->sessions.min_clock;
    ps_shard_publish(shard);
    for (uint32_t i = 0; i < shard->n_tables; i++) {
        if (shard->tables[i] != NULL && shard->tables[i]->growth != NULL)
            ps_growth_advance(shard->tables[i]->growth, ps_shard_time(shard));
    }
    ps_logger_time(shard);
}

void ps_shard_release(ps_shard_t *shard, ps_request_t *request)
{
    if (!request->prepared)
        return;
    ps_store_release(shard->options.store, &request->batch);
    if (ps_growth_shares(request->table->growth))
        ps_store_release(shard->options.store, &request->shared);
    request->prepared = false;
    shard->room_changed = true;
}

/* ---- the machine ---- */

/* The shard is over: answers all that waits with its failure. guests_go_on: but for requests of
 * guests that have a sequence, which come again, to the next server. */
static void end(ps_shard_t *shard, const psc_error_t *failure, bool guests_go_on)
{
    shard->failure = *failure;
    shard->failure.rank = (int32_t)shard->options.rank;
    ps_shard_publish(shard);
    ps_logger_refuse(shard, &shard->failure, guests_go_on);
    ps_watchers_end(shard, &shard->failure);
    for (uint32_t i = 0; i < shard->sessions.n_all; i++) {
        ps_session_t *session = &shard->sessions.all[i];
        const bool is_guest = ps_is_guest(&shard->sessions, i);
        while (session->head != NULL) {
            const bool comes_again =
                is_guest && guests_go_on && session->head->message.request.sequence != 0;
            /* Without memory for a reply there is nothing more to be done for this one. */
            if (!comes_again &&
                ps_shard_reply_bare(shard, session->head, &shard->failure, NULL) != PSC_OK)
                shard->counters.refused++;
            drop_head(shard, session);
        }
        if (is_guest && guests_go_on)
            ps_guests_drop_parked(shard, i);
        else if (is_guest)
            ps_guests_refuse_parked(shard, i, &shard->failure);
    }
}

static void fail(ps_shard_t *shard, const psc_error_t *failure)
{
    end(shard, failure, false);
}

/*
 * Once a worker has left with a failure, the job has failed: what would go on with the training of
 * the others is refused, so that they end too instead of working for nothing.
 */
static psc_status_t refuse_after_failure(const ps_shard_t *shard, psp_kind_t kind,
                                         psc_error_t *refusal)
{
    uint32_t status = shard->sessions.worst_status;
    bool goes_on = kind == PSP_PULL || kind == PSP_PUSH || kind == PSP_CLOCK || kind == PSP_BARRIER;
    if (status == 0 || !goes_on)
        return PSC_OK;
    psc_status_t code = status == PSC_INTERRUPTED ? PSC_INTERRUPTED : PSC_PEER_GONE;
    return psc_error_set(refusal, code, "worker %" PRIu32 " has left with status %" PRIu32 ": %s",
                         shard->sessions.worst_worker, status,
                         psc_status_text(psc_status_from_number(status)));
}

psc_status_t ps_shard_serve(ps_shard_t *shard, uint32_t peer, ps_request_t *request,
                            psc_error_t *error)
{
    ps_session_t *session = &shard->sessions.all[peer];
    psc_error_t refusal = PSC_ERROR_INIT;
    psc_status_t st = refuse_after_failure(shard, request->message.kind, &refusal);
    if (st == PSC_OK)
        st = ps_permit_request(shard, request, &refusal);
    if (st == PSC_OK)
        st = shard->options.serve[request->message.kind](shard, session, request, &refusal);
    if (st != PSC_OK && !is_fatal(st)) {
        shard->counters.refused++;
        st = ps_shard_reply_bare(shard, request, &refusal, &refusal);
        request->state = PS_REQUEST_DONE;
    }
    if (st != PSC_OK) {
        fail(shard, &refusal);
        if (error != NULL)
            *error = shard->failure;
    }
    return st;
}

psc_status_t ps_shard_advance(ps_shard_t *shard, uint32_t peer, psc_error_t *error)
{
    ps_session_t *session = &shard->sessions.all[peer];
    while (session->head != NULL) {
        ps_request_t *request = session->head;
        if ((shard->calls.holding || request->state == PS_REQUEST_WAIT_CUT) &&
            ps_shard_holds(shard, peer, request))
            return PSC_OK;
        psc_status_t st = ps_shard_serve(shard, peer, request, error);
        if (st != PSC_OK)
            return st;
        if (request->state == PS_REQUEST_DEFERRED || request->state == PS_REQUEST_DONE)
            ps_calls_done(&shard->calls, peer, request->message.request.part);
        if (request->state == PS_REQUEST_DEFERRED) {
            ps_session_defer(session, ps_session_dequeue(session));
            shard->n_waiting--;
            continue;
        }
        if (request->state != PS_REQUEST_DONE)
            return PSC_OK;
        drop_head(shard, session);
    }
    return PSC_OK;
}

/* Ends clocks; a failure is the shard's end. */
static psc_status_t end_clocks(ps_shard_t *shard, psc_error_t *error)
{
    psc_error_t failure = PSC_ERROR_INIT;
    psc_status_t st = ps_shard_end_clock(shard, &failure);
    if (st == PSC_OK)
        return PSC_OK;
    fail(shard, &failure);
    if (error != NULL)
        *error = shard->failure;
    return st;
}

psc_status_t ps_shard_settle(ps_shard_t *shard, psc_error_t *error)
{
    while (shard->others_changed) {
        shard->others_changed = false;
        psc_status_t ended = end_clocks(shard, error);
        if (ended != PSC_OK)
            return ended;
        for (uint32_t i = 0; i < shard->sessions.n_all; i++) {
            const ps_request_t *head = shard->sessions.all[i].head;
            if (head == NULL ||
                (head->state != PS_REQUEST_WAIT_CLOCK && head->state != PS_REQUEST_WAIT_OTHERS &&
                 head->state != PS_REQUEST_WAIT_CUT))
                continue;
            psc_status_t st = ps_shard_advance(shard, i, error);
            if (st != PSC_OK)
                return st;
        }
    }
    return PSC_OK;
}

/* May this request be taken at all? (Its protocol was checked when it was unpacked.) Errors:
 * PROTOCOL, saying what does not fit. */
static psc_status_t admit(const ps_shard_t *shard, uint32_t peer, const psp_message_t *message,
                          psc_error_t *error)
{
    const psp_request_header_t *header = &message->request;
    bool hello = message->kind == PSP_HELLO;
    if (header->cluster != shard->options.cluster && !(hello && header->cluster == 0))
        return psc_error_set(error, PSC_PROTOCOL,
                             "a request for run %016" PRIx64
                             ", but this server is of run %016" PRIx64,
                             header->cluster, shard->options.cluster);
    const ps_session_t *session = &shard->sessions.all[peer];
    if (session->lost != NULL)
        return psc_error_set(error, PSC_PEER_GONE,
                             "worker %" PRIu32 " was taken for lost, since %s: the job goes on "
                             "without it",
                             peer, session->lost);
    if (hello)
        return PSC_OK;
    if (session->id == 0 || header->session != session->id)
        return psc_error_set(error, PSC_PROTOCOL,
                             "a request of session %016" PRIx64
                             ", which is not the one of worker %" PRIu32,
                             header->session, peer);
    if (session->state != PS_SESSION_LIVE)
        return psc_error_set(error, PSC_PROTOCOL,
                             "a request of worker %" PRIu32 ", which has said goodbye", peer);
    if (header->map_epoch != shard->map.epoch)
        return psc_error_set(error, PSC_PROTOCOL,
                             "a request by slot map %" PRIu32 ", but it is %" PRIu32 " now",
                             header->map_epoch, shard->map.epoch);
    return PSC_OK;
}

/* Answers a message that never became a request. Takes buffer. */
static psc_status_t refuse(ps_shard_t *shard, psp_buffer_t *buffer, uint64_t request,
                           const psc_error_t *refusal, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    psc_error_t failure = PSC_ERROR_INIT;
    if (psp_reply_kind(buffer->kind) != 0)
        st = ps_shard_refuse(shard, buffer, request, refusal, &failure);
    else
        shard->counters.refused++;
    psp_buffer_put(buffer);
    if (st == PSC_OK || shard->failure.code != PSC_OK)
        return PSC_OK;
    fail(shard, &failure);
    if (error != NULL)
        *error = shard->failure;
    return st;
}

psc_status_t ps_shard_take(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_kind_t kind = request->message.kind;
    if (kind == PSP_PREFETCH)
        return ps_prefetcher_take(shard, request, error);
    if (kind == PSP_WATCH)
        return ps_watchers_take(shard, request, error);
    return ps_shard_enqueue(shard, request, error);
}

psc_status_t ps_shard_enqueue(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_kind_t kind = request->message.kind;
    const uint32_t peer = request->buffer->peer;
    request->next = NULL;
    ps_shard_note_deadline(shard, request);
    ps_session_t *session = &shard->sessions.all[peer];
    bool alone = session->head == NULL;
    ps_session_enqueue(session, request);
    shard->n_waiting++;
    if (kind == PSP_GOODBYE)
        session->state = PS_SESSION_LEAVING;
    if (!alone && kind != PSP_GOODBYE)
        return PSC_OK;
    psc_status_t st = ps_shard_advance(shard, peer, error);
    return st == PSC_OK ? ps_shard_settle(shard, error) : st;
}

psc_status_t ps_shard_handle(ps_shard_t *shard, psp_buffer_t *buffer, psc_error_t *error)
{
    const bool guest = buffer->peer == PSP_PEER_GUEST;
    PSC_BUG_ON(!guest && buffer->peer >= shard->sessions.n);
    shard->counters.bytes_in += buffer->size;
    shard->handled = true;
    psp_message_t message;
    psc_error_t refusal = PSC_ERROR_INIT;
    psc_status_t st = psp_message_unpack(shard->scratch, buffer->kind, buffer->data, buffer->size,
                                         &message, &refusal);
    if (st != PSC_OK || shard->options.serve[message.kind] == NULL) {
        shard->counters.malformed++;
        return refuse(shard, buffer, 0, &refusal, error);
    }
    uint64_t number = message.request.request;
    shard->counters.requests[message.kind]++;
    if (shard->failure.code != PSC_OK) {
        (void)refuse(shard, buffer, number, &shard->failure, NULL);
        if (error != NULL)
            *error = shard->failure;
        return shard->failure.code;
    }
    if (guest)
        st = ps_guests_seat(shard, &message, buffer, &refusal);
    if (st == PSC_OK)
        st = admit(shard, buffer->peer, &message, &refusal);
    if (st == PSC_OK)
        st = ps_calls_hear(&shard->calls, buffer->peer, &message.request, &refusal);
    message.request.n_parts = 0;
    ps_request_t *request = NULL;
    if (st == PSC_OK)
        st = ps_request_create(&shard->requests, buffer, &message, &request, &refusal);
    if (st != PSC_OK)
        return refuse(shard, buffer, number, &refusal, error);
    return guest ? ps_guests_take(shard, request, error) : ps_shard_take(shard, request, error);
}

/* Tries the requests that wait for the store, beginning with another session each time. */
static psc_status_t retry(ps_shard_t *shard, psc_error_t *error)
{
    shard->room_changed = false;
    shard->turn = (shard->turn + 1) % shard->sessions.n_all;
    for (uint32_t i = 0; i < shard->sessions.n_all; i++) {
        uint32_t peer = (shard->turn + i) % shard->sessions.n_all;
        if (!ps_shard_waits_for_store(shard->sessions.all[peer].head))
            continue;
        psc_status_t st = ps_shard_advance(shard, peer, error);
        if (st != PSC_OK)
            return st;
    }
    psc_status_t st = end_clocks(shard, error);
    return st == PSC_OK ? ps_shard_settle(shard, error) : st;
}

psc_status_t ps_shard_poll(ps_shard_t *shard, bool *progress_out, psc_error_t *error)
{
    *progress_out = false;
    psc_status_t st = shard->failure.code;
    psc_error_t failure = PSC_ERROR_INIT;
    bool busy = shard->handled || shard->n_waiting != 0;
    shard->handled = false;
    if (st == PSC_OK) {
        st = ps_store_poll(shard->options.store, progress_out, &failure);
        ps_saver_step(shard, progress_out);
        if (st == PSC_OK)
            st = ps_logger_step(shard, progress_out, &failure);
        if (st == PSC_OK)
            st = ps_sweeper_step(shard, busy || *progress_out, progress_out, &failure);
        if (st != PSC_OK)
            fail(shard, &failure);
        else
            ps_prefetcher_step(shard, busy || *progress_out, progress_out);
    }
    if (st != PSC_OK) {
        if (error != NULL)
            *error = shard->failure;
        return st;
    }
    st = ps_shard_expire(shard, error);
    if (st == PSC_OK && shard->others_changed)
        st = ps_shard_settle(shard, error);
    if (st != PSC_OK)
        return st;
    ps_guests_step(shard);
    ps_exporter_rest(shard);
    st = ps_watchers_step(shard, error);
    if (st != PSC_OK)
        return st;
    bool again = *progress_out || shard->room_changed || ++shard->idle_polls % IDLE_RETRY == 0;
    if (shard->n_waiting == 0 || !again)
        return PSC_OK;
    size_t before = shard->n_waiting;
    shard->exporter.moved = false;
    st = retry(shard, error);
    *progress_out |= shard->n_waiting != before || shard->exporter.moved;
    return st;
}

void ps_shard_end(ps_shard_t *shard, const psc_error_t *why)
{
    if (shard->failure.code == PSC_OK)
        fail(shard, why);
}

void ps_shard_stop_hearing(ps_shard_t *shard)
{
    shard->guests.unheard = true;
}

void ps_shard_end_in_order(ps_shard_t *shard, const psc_error_t *why)
{
    if (shard->failure.code == PSC_OK)
        end(shard, why, true);
}
