/*
 * One record after another.
 *
 * A push was checked when it came, so here it is only compared with its table, and applied; it
 * waits for rows as it did then. Guests' sessions go on where they were: what was answered counts
 * as answered, and a push that comes again is acknowledged and not applied. Time moves when it did,
 * so that rows are as old as they were.
 *
 * Nothing is sent, and nothing is logged: the log that is replayed has it. Its last segment is
 * synced before anything is acknowledged by it: a process that was killed may have left that to
 * do. Threads: the owner's.
 */
#include "ps/log/log_replay.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "ps/serve/push.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define SCRATCH_BYTES ((size_t)4 << 20)
#define WAIT_US UINT64_C(50) /* between two looks for rows that the I/O thread reads */

typedef struct replay {
    ps_shard_t *shard;
    psp_scratch_t *scratch;
    ps_log_replayed_t so_far;
} replay_t;

static psc_status_t misfit(const char *what, psc_error_t *error)
{
    return psc_error_set(error, PSC_MISMATCH, "%s", what);
}

/* ---- sessions ---- */

static psc_status_t replay_session(ps_shard_t *shard, const ps_log_record_t *record,
                                   psc_error_t *error)
{
    ps_log_session_t from;
    psc_status_t st = PSC_OK;
    if (record->n != sizeof from)
        return misfit("a session of another size", error);
    memcpy(&from, record->bytes, sizeof from);
    uint32_t peer = ps_guests_find(shard, from.id);
    if (from.given > shard->sessions.n_given)
        shard->sessions.n_given = from.given;
    if (from.id == 0)
        return misfit("a session without a number", error);
    if (record->kind == PS_LOG_END) {
        if (peer != shard->sessions.n_all)
            ps_guests_end(shard, peer);
        return PSC_OK;
    }
    if (peer == shard->sessions.n_all) {
        const ps_session_t session = {.id = from.id, .state = PS_SESSION_LIVE};
        st = ps_guests_revive(shard, &session, 1, (ps_call_part_t){.client = from.client}, error);
        peer = ps_guests_find(shard, from.id);
    }
    if (st != PSC_OK)
        return st;
    ps_session_t *session = &shard->sessions.all[peer];
    session->clock = from.clock > session->clock ? from.clock : session->clock;
    session->progress = from.progress > session->progress ? from.progress : session->progress;
    if (from.push_sequence > session->push_sequence)
        session->push_sequence = from.push_sequence;
    ps_calls_done(&shard->calls, peer, from.part);
    if (from.sequence != UINT64_MAX)
        ps_guests_go_on(shard, peer, from.sequence + 1);
    return PSC_OK;
}

/* A push of a guest was applied. */
static void count_push(ps_shard_t *shard, const psp_request_header_t *header)
{
    const uint32_t peer = ps_guests_find(shard, header->session);
    if (header->session == 0 || peer == shard->sessions.n_all || header->sequence == UINT64_MAX)
        return;
    ps_session_t *session = &shard->sessions.all[peer];
    if (header->sequence > session->push_sequence)
        session->push_sequence = header->sequence;
    ps_calls_done(&shard->calls, peer, header->part);
    ps_guests_go_on(shard, peer, header->sequence + 1);
}

/* ---- pushes ---- */

static psc_status_t fits(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    const psp_message_t *message = &request->message;
    const psp_push_t *push =
        message->kind == PSP_IMPORT ? &message->u.import.rows : &message->u.push;
    psc_status_t st =
        ps_shard_find_table(shard, push->table, push->table_epoch, &request->table, error);
    if (st != PSC_OK)
        return st;
    const ps_table_t *table = request->table;
    if (push->dim != table->dim ||
        (message->kind == PSP_IMPORT && message->u.import.state_floats != 0 &&
         message->u.import.state_floats != table->state_floats))
        return psc_error_set(error, PSC_MISMATCH, "rows of another size than table %.80s has",
                             table->name);
    if (push->n > table->max_rows)
        return psc_error_set(error, PSC_MISMATCH,
                             "%zu rows of table %.80s in one message, of which at most %zu fit: "
                             "start the server with as much --memory as before",
                             push->n, table->name, table->max_rows);
    return PSC_OK;
}

static psc_status_t apply(ps_shard_t *shard, ps_request_t *request, psc_error_t *error)
{
    bool done = false;
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && !done) {
        bool moved = false;
        st = ps_push_apply_when_ready(shard, request, &done, error);
        if (st == PSC_OK && !done)
            st = ps_store_poll(shard->options.store, &moved, error);
        if (st == PSC_OK && !done && !moved)
            psc_clock_sleep_us(WAIT_US);
    }
    ps_shard_release(shard, request);
    return st;
}

static psc_status_t replay_push(replay_t *replay, const ps_log_record_t *record, psc_error_t *error)
{
    ps_shard_t *shard = replay->shard;
    const psp_kind_t kind = record->kind == PS_LOG_PUSH ? PSP_PUSH : PSP_IMPORT;
    psp_message_t message;
    psp_buffer_t *buffer = NULL;
    ps_request_t *request = NULL;
    psc_status_t st = psp_buffer_get(shard->options.pool, record->n, &buffer, error);
    if (st != PSC_OK)
        return st;
    memcpy(buffer->data, record->bytes, record->n);
    buffer->size = record->n;
    buffer->kind = kind;
    st = psp_message_unpack(replay->scratch, kind, buffer->data, buffer->size, &message, error);
    if (st == PSC_OK)
        st = ps_request_create(&shard->requests, buffer, &message, &request, error);
    if (st != PSC_OK) {
        psp_buffer_put(buffer);
        return st;
    }
    request->summed = true; /* nobody is to be answered */
    st = fits(shard, request, error);
    if (st == PSC_OK)
        st = apply(shard, request, error);
    if (st == PSC_OK)
        count_push(shard, &request->message.request);
    ps_request_destroy(&shard->requests, request);
    replay->so_far.pushes++;
    return st;
}

/* ---- the rest ---- */

static psc_status_t replay_table(const replay_t *replay, const ps_log_record_t *record,
                                 psc_error_t *error)
{
    ps_shard_t *shard = replay->shard;
    psp_message_t message;
    ps_table_t wanted, *table;
    psc_status_t st = psp_message_unpack(replay->scratch, PSP_OPEN_TABLE, record->bytes, record->n,
                                         &message, error);
    if (st == PSC_OK)
        st = ps_table_define(&message.u.open_table, &wanted, error);
    if (st != PSC_OK)
        return st;
    const uint32_t number = message.u.open_table.table;
    ps_table_t *there = number < shard->n_tables ? shard->tables[number] : NULL;
    /* Where another server had it at its cut, all have it. */
    if (there != NULL && !there->replayed && strcmp(there->name, wanted.name) == 0 &&
        ps_table_compare(there, &wanted, NULL) == PSC_OK) {
        there->replayed = true;
        return PSC_OK;
    }
    if (number == 0 || number > PS_TABLES_MAX || there != NULL)
        return psc_error_set(error, PSC_MISMATCH,
                             "table %.80s was made as number %" PRIu32 ", which is taken",
                             wanted.name, number);
    st = ps_serve_make_table(shard, number, &wanted, &table, error);
    if (st == PSC_OK)
        table->replayed = true;
    return st;
}

static psc_status_t replay_time(ps_shard_t *shard, const ps_log_record_t *record,
                                psc_error_t *error)
{
    uint64_t time;
    if (record->n != sizeof time)
        return misfit("a time of another size", error);
    memcpy(&time, record->bytes, sizeof time);
    if (time > shard->sessions.time) {
        shard->sessions.time = shard->sessions.min_clock = time;
        ps_shard_others_moved(shard);
    }
    return PSC_OK;
}

static psc_status_t replay_record(replay_t *replay, const ps_log_record_t *record,
                                  psc_error_t *error)
{
    switch (record->kind) {
    case PS_LOG_PUSH:
    case PS_LOG_IMPORT:
        return replay_push(replay, record, error);
    case PS_LOG_TABLE:
        return replay_table(replay, record, error);
    case PS_LOG_TIME:
        return replay_time(replay->shard, record, error);
    case PS_LOG_SESSION:
    case PS_LOG_END:
        return replay_session(replay->shard, record, error);
    }
    return misfit("a record of an unknown kind", error);
}

/* ---- segments ---- */

/* What was replayed is there for good, whatever became of whoever wrote it; what is behind the last
 * whole record is taken off. */
static psc_status_t settle_end(const char *path, uint64_t bytes, bool cut, psc_error_t *error)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return psc_error_set_errno(error, errno, "cannot write the log %s", path);
    const int failed = (cut && ftruncate(fd, (off_t)bytes) != 0) || fsync(fd) != 0 ? errno : 0;
    (void)close(fd);
    return failed == 0 ? PSC_OK
                       : psc_error_set_errno(error, failed, "cannot %s the log %s",
                                             cut ? "cut" : "sync", path);
}

/* tail: of the chain's last segment. */
static psc_status_t replay_segment(replay_t *replay, const char *path, uint64_t number, bool last,
                                   uint64_t *end_out, psc_error_t *error)
{
    uint8_t boot[PS_LOG_BOOT_BYTES];
    ps_log_reader_t *reader = NULL;
    psc_status_t st = ps_log_reader_open(path, number, &reader, error);
    if (st != PSC_OK)
        return st;
    ps_log_boot(boot);
    const ps_log_head_t *head = ps_log_reader_head(reader);
    replay->so_far.other_boot = memcmp(boot, head->boot, sizeof boot) != 0;
    replay->so_far.level = head->level;
    const ps_log_tail_t tail = !last                        ? PS_LOG_TAIL_NONE
                               : !replay->so_far.other_boot ? PS_LOG_TAIL_SHORT
                                                            : PS_LOG_TAIL_ANY;
    for (bool more = true; st == PSC_OK && more;) {
        ps_log_record_t record;
        st = ps_log_reader_next(reader, tail, &record, &more, end_out, error);
        if (st != PSC_OK || !more)
            break;
        psc_error_t why = PSC_ERROR_INIT;
        st = replay_record(replay, &record, &why);
        if (st != PSC_OK)
            st = psc_error_set(error, st, "the log %s cannot be replayed at offset %" PRIu64 ": %s",
                               path, record.offset, why.message);
        replay->so_far.records++;
        replay->so_far.bytes += ps_log_record_bytes(record.n);
    }
    replay->so_far.end = *end_out;
    replay->so_far.cut_off = ps_log_reader_bytes(reader) - *end_out;
    replay->so_far.beyond = ps_log_reader_beyond(reader);
    ps_log_reader_close(reader);
    if (st != PSC_OK || !last)
        return st;
    return settle_end(path, *end_out, replay->so_far.cut_off != 0, error);
}

psc_status_t ps_log_replay(ps_log_chain_t *chain, ps_shard_t *shard,
                           ps_log_replayed_t *replayed_out, psc_error_t *error)
{
    replay_t replay = {.shard = shard};
    uint64_t end = 0;
    psc_status_t st = psp_scratch_create(SCRATCH_BYTES, &replay.scratch, error);
    for (uint64_t number = chain->from; st == PSC_OK && number <= chain->to; number++) {
        char *path = ps_log_path(chain->folder, number);
        st = path == NULL ? psc_error_set(error, PSC_NO_MEMORY, "out of memory for a log")
                          : replay_segment(&replay, path, number, number == chain->to, &end, error);
        psc_free(path);
    }
    psp_scratch_destroy(replay.scratch);
    if (chain->from <= chain->to)
        chain->head.previous_bytes = end;
    *replayed_out = replay.so_far;
    return st;
}
