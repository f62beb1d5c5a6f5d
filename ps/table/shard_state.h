/*
 * What a shard consists of: for shard.c and ps/serve alone.
 */
#ifndef PS_TABLE_SHARD_STATE_H
#define PS_TABLE_SHARD_STATE_H

#include "common/slots.h"
#include "ps/store/share.h"
#include "ps/table/account.h"
#include "ps/table/calls.h"
#include "ps/table/clock_sum.h"
#include "ps/table/exporter.h"
#include "ps/table/growth.h"
#include "ps/table/guests.h"
#include "ps/table/logger.h"
#include "ps/table/prefetcher.h"
#include "ps/table/rows.h"
#include "ps/table/saver.h"
#include "ps/table/session.h"
#include "ps/table/shard.h"
#include "ps/table/sweeper.h"
#include "ps/table/watchers.h"

/* Counters of ps/serve/stats.c; all since the start. */
typedef struct ps_shard_counters {
    uint64_t requests[PS_KINDS]; /* by request kind, answered or waiting */
    uint64_t refused;            /* answered with an error */
    uint64_t malformed;
    uint64_t rows_pulled, rows_initial; /* of those pulled: never pushed */
    uint64_t rows_touched;              /* read by workers straight from memory, as they told */
    uint64_t rows_scanned;              /* of those pulled: by scans */
    uint64_t rows_current;              /* of those pulled: the client held their version */
    uint64_t rows_returned;             /* of those pushed: sent back */
    uint64_t rows_pushed, rows_created;
    uint64_t rows_exported, rows_imported, rows_watched;
    uint64_t rows_padded;     /* pushed to a pad row, and left out */
    uint64_t pushes_repeated; /* acknowledged, not applied again */
    uint64_t pushes_merged;   /* had duplicate ids */
    uint64_t pushes_deferred; /* synchronous ones, kept until their clock ended */
    uint64_t clocks_summed;   /* ... and the clocks that had any */
    uint64_t waits_clock, waits_room, waits_rows;
    uint64_t rows_late;           /* of those pulled: not there within the deadline */
    uint64_t rows_announced;      /* by prefetches */
    uint64_t announced_dropped;   /* of those: came too late, too many at once, or in vain */
    uint64_t bytes_in, bytes_out; /* of messages */
    uint64_t guests,
        guests_lapsed;       /* sessions of guests that began; of them, not ended by Goodbye */
    uint64_t requests_early; /* of guests, that came before one with a lower sequence */
    uint64_t requests_again; /* of guests, that had come before */
    ps_growth_counters_t growth;
} ps_shard_counters_t;

struct ps_shard {
    ps_shard_options_t options;
    psp_scratch_t *scratch; /* of the message that is being unpacked */
    psc_slot_map_t map;
    ps_sessions_t sessions;
    ps_guests_t guests;
    ps_calls_t calls;
    uint64_t hold_clock; /* while calls are held: no later clock is applied */
    ps_request_pool_t requests;
    size_t n_waiting;    /* requests in all sessions */
    ps_table_t **tables; /* by number; 0 is not used */
    uint32_t n_tables;   /* the numbers below exist */
    ps_row_scratch_t scratch_row;
    uint32_t serial; /* see ps_rows_take_serials */
    ps_rows_merge_space_t merge;
    float *decoded; /* values of a push that did not come as float32; of the largest so far */
    size_t n_decoded;
    ps_request_t *starving; /* no other request may take room before this one; or NULL */
    bool room_changed;      /* pins were released since waiting requests were tried */
    bool others_changed;    /* a clock, a barrier or a session moved */
    bool handled;           /* messages since the last poll */
    uint32_t idle_polls;
    uint32_t turn;       /* session that is tried first at the next poll */
    uint64_t clock;      /* ended by all workers, and its synchronous pushes applied */
    ps_clock_sum_t sum;  /* of synchronous pushes */
    ps_request_t summed; /* the push that sum gave out last */
    bool summing;        /* the pushes of clock are being applied */
    psc_error_t failure; /* code PSC_OK: the shard works */
    ps_sweeper_t sweeper;
    ps_prefetcher_t prefetcher;
    ps_exporter_t exporter;
    ps_saver_t saver;
    ps_logger_t logger;
    ps_watchers_t watchers;
    ps_account_t account;
    uint64_t now_us;
    uint64_t next_deadline_us; /* no request has an earlier one; UINT64_MAX: none has any */
    ps_shard_counters_t counters;
};

/* ---- for ps/serve ---- */

/* Tries what waits for other workers, as long as any of that moves something. Errors: the shard's
 * end. */
PSC_MUST_CHECK psc_status_t ps_shard_settle(ps_shard_t *shard, psc_error_t *error);

/* The header of a reply without error. */
psp_reply_header_t ps_shard_reply_header(const ps_shard_t *shard, const psp_message_t *message);

/* Sends a reply that was packed. Takes reply. */
void ps_shard_send(ps_shard_t *shard, const ps_request_t *request, psp_buffer_t *reply);

/* Fills the header of a plain reply, packs and sends it; the request is DONE. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_shard_reply(ps_shard_t *shard, ps_request_t *request,
                                           psp_message_t *reply, psc_error_t *error);

/* A reply with only its header, failure in it (NULL: none). Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_shard_reply_bare(ps_shard_t *shard, const ps_request_t *request,
                                                const psc_error_t *failure, psc_error_t *error);

/* What tables that grow go by: the least clock of the workers, once its pushes are applied. */
static inline uint64_t ps_shard_time(const ps_shard_t *shard)
{
    return shard->clock < shard->sessions.time ? shard->clock : shard->sessions.time;
}

/*
 * Keeps a synchronous push, which was checked, until all workers have ended its clock; the request
 * is DEFERRED. Errors: INVALID_ARGUMENT (an id of another server; no room for it).
 */
PSC_MUST_CHECK psc_status_t ps_shard_defer(ps_shard_t *shard, ps_request_t *request,
                                           psc_error_t *error);

/* Drops what a session has deferred: its clock does not count. */
void ps_shard_drop_deferred(ps_shard_t *shard, ps_session_t *session);

/* Applies the deferred pushes of a clock that all workers have ended, as far as that goes without
 * waiting; to be called again. Errors: those of the store, NO_MEMORY: the shard's end. */
PSC_MUST_CHECK psc_status_t ps_shard_end_clock(ps_shard_t *shard, psc_error_t *error);

/* The pushes that are being applied are done with, applied or not. */
void ps_shard_end_sum(ps_shard_t *shard);

/* Table of a pull or push. Errors: NOT_FOUND, MISMATCH (another epoch). */
PSC_MUST_CHECK psc_status_t ps_shard_find_table(const ps_shard_t *shard, uint32_t number,
                                                uint32_t epoch, ps_table_t **table_out,
                                                psc_error_t *error);

/* The request waits for the clocks of others, and is tried again when one moves. Errors:
 * INTERRUPTED (its session leaves). */
PSC_MUST_CHECK psc_status_t ps_shard_wait_clock(ps_shard_t *shard, const ps_session_t *session,
                                                ps_request_t *request, psc_error_t *error);

/* Copies the ids of a request out of its message into request->space, and hashes them; once.
 * Errors: INVALID_ARGUMENT (an id of another server), NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_shard_locate(ps_shard_t *shard, ps_request_t *request,
                                            const uint8_t *ids, size_t n, psc_error_t *error);

/* The two halves of it for who finds ids elsewhere: spaces of the request for n rows and for those
 * that they share; then, once ids and hashes of n rows are there, where the shared ones are.
 * Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_shard_reserve(ps_shard_t *shard, ps_request_t *request, size_t n,
                                             psc_error_t *error);
void ps_shard_set_located(ps_request_t *request, size_t n);

/*
 * Prepares the rows of a request. *ready_out false: request->state says what it waits for; call
 * again when it is tried next. Errors: INVALID_ARGUMENT (an id of another server), the store's.
 */
PSC_MUST_CHECK psc_status_t ps_shard_prepare(ps_shard_t *shard, ps_request_t *request,
                                             ps_batch_mode_t mode, const uint8_t *ids, size_t n,
                                             bool *ready_out, psc_error_t *error);

/* Rows that came into being in a table, and in its companion, since the start. */
uint64_t ps_shard_created(const ps_table_t *table);

/* The n prepared rows of a pull or push, and those that they share, if the table has such. */
ps_growth_rows_t ps_shard_rows(ps_shard_t *shard, const ps_request_t *request, size_t n);

/* A clock or a session moved: the tables that grow are told the time, and what waits for other
 * workers will be tried. */
void ps_shard_others_moved(ps_shard_t *shard);

/* Tells workers that read rows where they lie how far the clocks are, and when it is over. */
void ps_shard_publish(ps_shard_t *shard);

/* ---- between the files of the shard ---- */

/* Sends a reply as soon as all that it may tell of is in the log. Takes reply. */
void ps_shard_send_logged(ps_shard_t *shard, const ps_request_t *request, psp_buffer_t *reply);

/* shard_hold.c: whether the oldest request of a session waits for a cut to be made first; else it
 * is as it was before it did. */
bool ps_shard_holds(const ps_shard_t *shard, uint32_t peer, ps_request_t *request);

/* Answers a message that never became a request with refusal. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_shard_refuse(ps_shard_t *shard, const psp_buffer_t *asked,
                                            uint64_t request, const psc_error_t *refusal,
                                            psc_error_t *error);

/* The same of a request that will not be served. Takes request. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_shard_refuse_request(ps_shard_t *shard, ps_request_t *request,
                                                    const psc_error_t *refusal, psc_error_t *error);

/* A request whose turn it is among those of its session. Takes request. Errors: the shard's end. */
PSC_MUST_CHECK psc_status_t ps_shard_take(ps_shard_t *shard, ps_request_t *request,
                                          psc_error_t *error);

/* The same for one that is to wait in the queue of its session, whatever its kind. Takes request.
 */
PSC_MUST_CHECK psc_status_t ps_shard_enqueue(ps_shard_t *shard, ps_request_t *request,
                                             psc_error_t *error);

/* Serves a session's requests until one has to wait. Errors: the shard's end. */
PSC_MUST_CHECK psc_status_t ps_shard_advance(ps_shard_t *shard, uint32_t peer, psc_error_t *error);

/* Takes a request out of its session, its rows released; previous: the one before it, NULL: it is
 * the oldest. */
void ps_shard_drop(ps_shard_t *shard, ps_session_t *session, ps_request_t *previous,
                   ps_request_t *request);

/* Calls the function of a request's kind, and sends its refusal if that is the answer; other errors
 * are the shard's end, and have been told to all that waits. */
PSC_MUST_CHECK psc_status_t ps_shard_serve(ps_shard_t *shard, uint32_t peer, ps_request_t *request,
                                           psc_error_t *error);

/* Notes the deadline of a request that arrived; answers those whose deadline has passed. Errors:
 * the shard's end. */
void ps_shard_note_deadline(ps_shard_t *shard, ps_request_t *request);
PSC_MUST_CHECK psc_status_t ps_shard_expire(ps_shard_t *shard, psc_error_t *error);

/* Whether a request goes on by the store alone; NULL: no. */
bool ps_shard_waits_for_store(const ps_request_t *request);

/* Releases the rows of a request, if it holds any. */
void ps_shard_release(ps_shard_t *shard, ps_request_t *request);

#endif
