/*
 * What a shard tells its log, and the answers that wait for it.
 *
 * Invariants. Entries are numbered in the order of their effects; the sink writes them in that
 * order. An answer that waits does so for the entry that was last when it was given, so that it
 * leaves after all that it can tell of is written; answers leave in the order in which they were
 * given. Bytes of a push are its message's, which the logger shares until they are written; those
 * that another process has lent are copied, since it may change them.
 *
 * What waits is bounded by what clients may have under way: they wait for the answers.
 *
 * No memory for an entry or an answer is the shard's end, at the next step: nobody was answered
 * until then. Threads: the owner's.
 */
#include "ps/table/logger.h"

#include "common/alloc.h"
#include "ps/table/shard_state.h"

#include <stdio.h>
#include <string.h>

typedef struct ps_held_reply {
    struct ps_held_reply *next;
    psp_buffer_t *reply;
    uint64_t position;
    uint64_t request; /* the number that it answers */
    uint64_t since_us;
} held_reply_t;

static void no_memory(ps_logger_t *logger)
{
    (void)psc_error_set(&logger->fault, PSC_NO_MEMORY, "out of memory for the log of pushes");
}

void ps_logger_start(ps_shard_t *shard, const ps_log_sink_t *sink)
{
    ps_logger_t *logger = &shard->logger;
    logger->sink = sink;
    logger->records = sink->records;
    logger->segment = sink->segment;
    logger->time = ps_shard_time(shard);
    logger->fault = (psc_error_t)PSC_ERROR_INIT;
}

/* ---- entries ---- */

static void free_entry(ps_logger_t *logger, ps_log_entry_t *entry)
{
    psp_buffer_put(entry->buffer);
    psc_free(entry->copy);
    entry->next = logger->free;
    logger->free = entry;
}

static ps_log_entry_t *new_entry(ps_logger_t *logger, ps_log_kind_t kind)
{
    ps_log_entry_t *entry = logger->free;
    if (entry != NULL)
        logger->free = entry->next;
    else if ((entry = psc_alloc(sizeof *entry)) == NULL)
        no_memory(logger);
    if (entry != NULL)
        *entry = (ps_log_entry_t){.kind = kind};
    return entry;
}

static void submit(ps_logger_t *logger, ps_log_entry_t *entry)
{
    entry->next = NULL;
    entry->position = ++logger->position;
    logger->n_records += entry->action == PS_LOG_WRITE;
    if (logger->tail != NULL)
        logger->tail->next = entry;
    else
        logger->head = entry;
    logger->tail = entry;
    logger->sink->submit(logger->sink->context, entry);
}

static void submit_small(ps_logger_t *logger, ps_log_kind_t kind, const ps_log_session_t *small,
                         size_t n)
{
    ps_log_entry_t *entry = new_entry(logger, kind);
    if (entry == NULL)
        return;
    entry->small = *small;
    entry->bytes = (const uint8_t *)&entry->small;
    entry->n = n;
    submit(logger, entry);
}

/* Takes buffer, unless it is NULL: then st says why. */
static void submit_buffer(ps_logger_t *logger, ps_log_kind_t kind, psp_buffer_t *buffer)
{
    ps_log_entry_t *entry = buffer != NULL ? new_entry(logger, kind) : NULL;
    if (entry == NULL) {
        psp_buffer_put(buffer);
        no_memory(logger);
        return;
    }
    entry->buffer = buffer;
    entry->bytes = buffer->data;
    entry->n = buffer->size;
    submit(logger, entry);
}

/* ---- what takes effect ---- */

/* A sum of synchronous pushes, as a message. NULL: no memory. */
static psp_buffer_t *pack_sum(const ps_shard_t *shard, const ps_request_t *request)
{
    const psp_push_t *push = &request->message.u.push;
    const psp_request_header_t header = {.protocol = PSP_PROTOCOL_VERSION,
                                         .cluster = shard->options.cluster,
                                         .clock = request->message.request.clock};
    psp_buffer_t *buffer;
    uint8_t *ids, *rows;
    psp_push_t one = *push;
    one.want_rows = one.synchronous = false;
    if (psp_push_begin(shard->options.pool, &header, &one, &buffer, &ids, &rows, NULL) != PSC_OK)
        return NULL;
    memcpy(ids, push->ids, push->n * sizeof(uint64_t));
    memcpy(rows, push->rows, push->n * psp_row_bytes(push->format, push->dim));
    return buffer;
}

void ps_logger_push(ps_shard_t *shard, ps_request_t *request)
{
    ps_logger_t *logger = &shard->logger;
    const ps_log_kind_t kind = request->message.kind == PSP_IMPORT ? PS_LOG_IMPORT : PS_LOG_PUSH;
    psp_buffer_t *buffer = request->buffer;
    if (!logger->records)
        return;
    request->logged = true;
    if (buffer == NULL) {
        submit_buffer(logger, kind, pack_sum(shard, request));
        return;
    }
    if (buffer->lender == NULL) {
        psp_buffer_share(buffer);
        submit_buffer(logger, kind, buffer);
        return;
    }
    uint8_t *copy = psc_alloc(buffer->size);
    ps_log_entry_t *entry = copy != NULL ? new_entry(logger, kind) : NULL;
    if (entry == NULL) {
        psc_free(copy);
        no_memory(logger);
        return;
    }
    memcpy(copy, buffer->data, buffer->size);
    entry->copy = copy;
    entry->bytes = copy;
    entry->n = buffer->size;
    submit(logger, entry);
}

void ps_logger_table(ps_shard_t *shard, const ps_table_t *table)
{
    ps_logger_t *logger = &shard->logger;
    psp_message_t message = {
        .kind = PSP_OPEN_TABLE,
        .request = {.protocol = PSP_PROTOCOL_VERSION, .cluster = shard->options.cluster}};
    psp_buffer_t *buffer = NULL;
    if (!logger->records)
        return;
    ps_table_describe(table, &message.u.open_table);
    message.u.open_table.table = table->number;
    if (psp_message_pack(shard->options.pool, &message, &buffer, NULL) != PSC_OK)
        buffer = NULL;
    submit_buffer(logger, PS_LOG_TABLE, buffer);
}

void ps_logger_time(ps_shard_t *shard)
{
    ps_logger_t *logger = &shard->logger;
    const ps_log_session_t time = {.id = ps_shard_time(shard)};
    if (!logger->records || time.id == logger->time)
        return;
    logger->time = time.id;
    submit_small(logger, PS_LOG_TIME, &time, sizeof time.id);
}

static void log_session(ps_shard_t *shard, uint32_t peer, uint64_t sequence)
{
    const ps_session_t *session = &shard->sessions.all[peer];
    const ps_log_session_t record = {.id = session->id,
                                     .given = shard->sessions.n_given,
                                     .clock = session->clock,
                                     .progress = session->progress,
                                     .push_sequence = session->push_sequence,
                                     .sequence = sequence,
                                     .client = shard->calls.seats[peer].client,
                                     .part = shard->calls.seats[peer].done};
    submit_small(&shard->logger, PS_LOG_SESSION, &record, sizeof record);
}

void ps_logger_session(ps_shard_t *shard, uint32_t peer)
{
    if (shard->logger.records)
        log_session(shard, peer, 0);
}

void ps_logger_end(ps_shard_t *shard, uint64_t session)
{
    const ps_log_session_t record = {.id = session};
    if (shard->logger.records)
        submit_small(&shard->logger, PS_LOG_END, &record, sizeof record);
}

static void submit_action(ps_logger_t *logger, ps_log_action_t action, uint64_t segment,
                          const char *name)
{
    ps_log_entry_t *entry = new_entry(logger, PS_LOG_PUSH);
    if (entry == NULL)
        return;
    entry->action = action;
    entry->segment = segment;
    (void)snprintf(entry->name, sizeof entry->name, "%s", name);
    submit(logger, entry);
}

void ps_logger_cut(ps_shard_t *shard)
{
    ps_logger_t *logger = &shard->logger;
    if (logger->sink == NULL)
        return;
    /* A server that was not told may find out; where no part was written, the name, which it was
     * only asked for, may be that of another checkpoint. */
    if (shard->saver.part_bytes != 0)
        ps_logger_commit(shard);
    logger->cut_segment = ++logger->segment;
    submit_action(logger, PS_LOG_CUT, logger->segment, "");
}

void ps_logger_commit(ps_shard_t *shard)
{
    ps_logger_t *logger = &shard->logger;
    if (logger->sink != NULL && logger->cut_segment != 0)
        submit_action(logger, PS_LOG_FORGET, logger->cut_segment, shard->saver.name);
}

/* ---- answers ---- */

/* Whether an answer may tell of what is not written yet. Nobody goes on with a worker's session
 * after a restart, so of a worker's answers those of changes do. */
static bool may_tell(const ps_shard_t *shard, const ps_request_t *request)
{
    const psp_kind_t kind = request->message.kind;
    return ps_is_guest(&shard->sessions, request->buffer->peer)
               ? request->message.request.sequence != 0 || kind == PSP_HELLO || kind == PSP_GOODBYE
               : kind == PSP_PUSH || kind == PSP_IMPORT || kind == PSP_OPEN_TABLE;
}

bool ps_logger_hold(ps_shard_t *shard, const ps_request_t *request, psp_buffer_t *reply)
{
    ps_logger_t *logger = &shard->logger;
    const uint32_t peer = request->buffer->peer;
    const uint64_t sequence = request->message.request.sequence;
    if (!logger->records || shard->failure.code != PSC_OK || !may_tell(shard, request))
        return false;
    if (ps_is_guest(&shard->sessions, peer) && sequence != 0 && !request->logged &&
        ps_guests_next(shard, peer) != 0)
        log_session(shard, peer, sequence);
    if (logger->position == logger->sink->written(logger->sink->context))
        return false;
    held_reply_t *held = logger->spare;
    if (held != NULL)
        logger->spare = held->next;
    else if ((held = psc_alloc(sizeof *held)) == NULL) {
        no_memory(logger);
        psp_buffer_put(reply);
        return true;
    }
    *held = (held_reply_t){.reply = reply,
                           .position = logger->position,
                           .request = request->message.request.request,
                           .since_us = shard->now_us};
    if (logger->last != NULL)
        logger->last->next = held;
    else
        logger->first = held;
    logger->last = held;
    logger->n_held++;
    logger->n_replies_held++;
    return true;
}

/* The oldest answer. */
static held_reply_t *take_first(ps_logger_t *logger)
{
    held_reply_t *held = logger->first;
    logger->first = held->next;
    if (logger->first == NULL)
        logger->last = NULL;
    logger->n_held--;
    held->next = logger->spare;
    logger->spare = held;
    return held;
}

/* Lets go of what is written. */
static void take_written(ps_logger_t *logger, uint64_t written)
{
    while (logger->head != NULL && logger->head->position <= written) {
        ps_log_entry_t *entry = logger->head;
        logger->head = entry->next;
        if (logger->head == NULL)
            logger->tail = NULL;
        free_entry(logger, entry);
    }
}

psc_status_t ps_logger_step(ps_shard_t *shard, bool *progress_out, psc_error_t *error)
{
    ps_logger_t *logger = &shard->logger;
    if (logger->sink == NULL)
        return PSC_OK;
    psc_status_t st = logger->sink->fault(logger->sink->context, error);
    if (st == PSC_OK && logger->fault.code != PSC_OK) {
        *error = logger->fault;
        st = logger->fault.code;
    }
    const uint64_t written = logger->sink->written(logger->sink->context);
    take_written(logger, written);
    while (logger->first != NULL && logger->first->position <= written) {
        const held_reply_t *held = take_first(logger);
        const uint64_t waited_us = shard->now_us - held->since_us;
        logger->held_us += waited_us;
        logger->longest_us = waited_us > logger->longest_us ? waited_us : logger->longest_us;
        *progress_out = true;
        shard->options.reply(shard->options.reply_context, held->reply->peer, held->reply);
    }
    return st;
}

void ps_logger_refuse(ps_shard_t *shard, const psc_error_t *why, bool guests_go_on)
{
    ps_logger_t *logger = &shard->logger;
    while (logger->first != NULL) {
        const held_reply_t *held = take_first(logger);
        const psp_reply_header_t header = {
            .request = held->request, .map_epoch = shard->map.epoch, .error = *why};
        const bool comes_again = guests_go_on && ps_is_guest(&shard->sessions, held->reply->peer);
        psp_buffer_t *refusal;
        /* Without memory its call ends without an answer. */
        if (!comes_again && psp_reply_pack(shard->options.pool, (psp_kind_t)held->reply->kind,
                                           &header, &refusal, NULL) == PSC_OK) {
            refusal->peer = held->reply->peer;
            refusal->call = held->reply->call;
            shard->options.reply(shard->options.reply_context, refusal->peer, refusal);
        }
        psp_buffer_put(held->reply);
    }
}

void ps_logger_clear(ps_shard_t *shard)
{
    ps_logger_t *logger = &shard->logger;
    while (logger->first != NULL)
        psp_buffer_put(take_first(logger)->reply);
    while (logger->spare != NULL) {
        held_reply_t *held = logger->spare;
        logger->spare = held->next;
        psc_free(held);
    }
    take_written(logger, UINT64_MAX);
    while (logger->free != NULL) {
        ps_log_entry_t *entry = logger->free;
        logger->free = entry->next;
        psc_free(entry);
    }
}
