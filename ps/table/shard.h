/*
 * A shard: the tables of one server and the requests on them, as a state machine without threads,
 * sockets or clock. Drivers (ps/server.c over MPI or local queues, the tests' simulator) feed it
 * messages and send its replies.
 *
 * Requests of one session take effect in the order of arrival; each is answered exactly once.
 */
#ifndef PS_TABLE_SHARD_H
#define PS_TABLE_SHARD_H

#include "proto/message.h"
#include "ps/store/store.h"

typedef struct ps_shard ps_shard_t;

/* Sends a reply. Takes buffer. Called on the owner thread from within shard calls. */
typedef void (*ps_reply_fn)(void *context, uint32_t peer, psp_buffer_t *buffer);

struct ps_session;
struct ps_request;

/* What a request kind does; ps/serve/serve.h says more, and has the table of them. */
typedef psc_status_t (*ps_serve_fn)(ps_shard_t *shard, struct ps_session *session,
                                    struct ps_request *request, psc_error_t *error);

#define PS_KINDS (PSP_KIND_LAST + 1) /* psp_kind_t values are below */

/* Whether workers on this host may read rows straight from memory. */
typedef enum ps_direct {
    PS_DIRECT_OFF = 0,
    PS_DIRECT_AUTO = 1, /* once one of them asks, before there are rows */
    PS_DIRECT_ON = 2,   /* the store was shared when it was opened */
} ps_direct_t;

typedef struct ps_shard_options {
    const ps_serve_fn *serve; /* [PS_KINDS], by psp_kind_t: ps_serve_functions */
    ps_store_t *store;        /* borrowed; outlives the shard */
    psp_pool_t *pool;         /* borrowed */
    ps_reply_fn reply;
    void *reply_context;
    uint64_t cluster; /* id of this run; from another one requests are refused */
    uint32_t rank, n_servers, n_workers;
    size_t max_message_bytes;
    ps_direct_t direct;
    size_t window_bytes;       /* that a client may have under way; 0: no limit */
    const char *host;          /* name of this machine, told to clients; NULL: unknown. Borrowed */
    uint32_t n_guests;         /* sessions at a time that belong to no worker; 0: none may come */
    uint64_t lease_us;         /* of a guest that says nothing; 0: for ever */
    size_t guest_window_bytes; /* that a guest may have under way; 0: no limit */
    const char *const
        *addresses; /* [n_servers] where guests reach the servers, or NULL. Borrowed */
    const struct ps_save_writer *writer; /* of checkpoints; NULL: none are made. Borrowed */
    bool read_only;                      /* what changes anything is refused */
    const char *resumed; /* the checkpoint that the run goes on from; NULL: none. Borrowed */
} ps_shard_options_t;

/* Errors: NO_MEMORY, INVALID_ARGUMENT. Gives. */
PSC_MUST_CHECK psc_status_t ps_shard_create(const ps_shard_options_t *options,
                                            ps_shard_t **shard_out, psc_error_t *error);
/* Drops waiting requests. NULL is a no-op. */
void ps_shard_destroy(ps_shard_t *shard);

/*
 * The time, in microseconds of any clock that never goes back; to be told before handle and poll.
 * Deadlines go by it; without any it need not be told.
 */
void ps_shard_set_time(ps_shard_t *shard, uint64_t now_us);

/* When ps_shard_poll has to answer a request at the latest; UINT64_MAX: no request says. */
uint64_t ps_shard_next_deadline(const ps_shard_t *shard);

/*
 * One message from a peer, PSP_PEER_GUEST for all guests. Takes buffer. A malformed one is answered
 * with an error where a reply is possible. Errors: only what ends the shard (the store failed: IO,
 * DISK_FULL, CORRUPT; NO_MEMORY); waiting requests have then been answered with it.
 */
PSC_MUST_CHECK psc_status_t ps_shard_handle(ps_shard_t *shard, psp_buffer_t *buffer,
                                            psc_error_t *error);

/* Goes on with what waited (finished I/O, room). *progress_out: something moved. Errors: as handle.
 */
PSC_MUST_CHECK psc_status_t ps_shard_poll(ps_shard_t *shard, bool *progress_out,
                                          psc_error_t *error);

/* Answers all that waits, and all that comes from now on, with why: nothing will be served any
 * more. */
void ps_shard_end(ps_shard_t *shard, const psc_error_t *why);

/* Guests cannot be heard any more: no lease of theirs ends from now on, so that what a last
 * checkpoint says of their sessions stays so. */
void ps_shard_stop_hearing(ps_shard_t *shard);

/*
 * The same as ps_shard_end, at an end after which the sessions of guests go on, at the next server:
 * their requests with a sequence, those parked and those whose answer waits for the log too, get no
 * answer, so that their calls are made again, there. An answer that refuses would be the client's
 * last word on that sequence, and the next server would wait for it in vain.
 */
void ps_shard_end_in_order(ps_shard_t *shard, const psc_error_t *why);

/* Workers that have said goodbye, and whether all n_workers did and nothing of theirs waits; never
 * without workers. */
uint32_t ps_shard_departed(const ps_shard_t *shard);
bool ps_shard_finished(const ps_shard_t *shard);

/* The worst exit status a departed worker told; 0 when all ended well. */
uint32_t ps_shard_worst_status(const ps_shard_t *shard);

/* ---- workers that are lost ---- */

/* What becomes of the clock that a lost worker had not ended. */
typedef enum ps_loss_rule {
    PS_LOSS_AUTO,     /* what is kept until it ends (staleness 0) does not, what was applied does */
    PS_LOSS_ROLLBACK, /* it does not count; where pushes of it have been applied, the job ends */
    PS_LOSS_CONTINUE, /* what came of it counts */
} ps_loss_rule_t;

/* How far a worker came, as one server knows it, or as the servers have agreed. */
typedef struct ps_loss {
    uint64_t clock; /* clocks that it has ended */
    uint64_t progress;
} ps_loss_t;

/* Workers that have neither left nor been taken for lost. */
bool ps_shard_expects(const ps_shard_t *shard, uint32_t worker);

/*
 * Takes a worker for lost: nothing more of it is served, and what it says is refused with PEER_GONE
 * and why (static). The others still wait for its clock. *loss_out: what this server knows.
 */
void ps_shard_fence(ps_shard_t *shard, uint32_t worker, const char *why, ps_loss_t *loss_out);

/*
 * After all servers have fenced a worker: it has left, with what they agreed on, the furthest that
 * any of them knows. Nobody waits for it any more. Errors: as ps_shard_handle.
 */
PSC_MUST_CHECK psc_status_t ps_shard_bury(ps_shard_t *shard, uint32_t worker, const ps_loss_t *loss,
                                          ps_loss_rule_t rule, psc_error_t *error);

/* Workers that were buried. */
uint32_t ps_shard_lost(const ps_shard_t *shard);

/* Requests that wait now, of this peer or of all (UINT32_MAX: with answers that wait for the log):
 * the driver's bound. */
size_t ps_shard_waiting(const ps_shard_t *shard, uint32_t peer);

/* Bytes of messages that are kept until their clock ends; they are part of the store's budget. */
uint64_t ps_shard_deferred_bytes(const ps_shard_t *shard);

/* Sessions whose oldest request waits for the store: it goes on without any further message. */
size_t ps_shard_waiting_store(const ps_shard_t *shard);

#endif
