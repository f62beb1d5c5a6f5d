/*
 * Guests: sessions of processes that are no workers of the job. They come by Hello and go by
 * Goodbye, or when they have said nothing for their lease; nobody waits for their clocks.
 *
 * Their requests come by calls that may overtake each other and that may be made again when a
 * connection broke. So those with a sequence take effect in its order, each once, and what was
 * answered is kept until the guest says that it has it. For the files of the shard alone.
 */
#ifndef PS_TABLE_GUESTS_H
#define PS_TABLE_GUESTS_H

#include "proto/rights.h"
#include "ps/table/calls.h"
#include "ps/table/session.h"
#include "ps/table/shard.h"

#define PS_GUEST_REQUESTS 64u                  /* of one guest, waiting or kept */
#define PS_GUESTS_KEPT_BYTES ((size_t)8 << 20) /* of answers of all guests */
/* How long a request waits for those before it. Long: that may be a large push, which takes minutes
 * on a slow line, and who takes a refusal for the answer leaves a gap that is never closed. */
#define PS_GUESTS_GAP_US UINT64_C(300000000)

typedef struct ps_guest ps_guest_t;

/* A session that a checkpoint has, of other servers than there are now: it does not go on. */
typedef struct ps_guest_moved {
    uint64_t id;
    uint32_t server, n_servers; /* whose it was, of how many */
    uint64_t push_sequence;     /* the last push that counts */
    uint32_t starts;            /* of servers since, this one included */
} ps_guest_moved_t;

typedef struct ps_guests {
    uint32_t n;       /* seats */
    uint64_t *ids;    /* [n] number of the session; 0: the seat is free */
    ps_guest_t **all; /* [n] */
    uint64_t next_step_us;
    bool unheard; /* the door is closed: what does not come is no sign of anything */
    size_t kept_bytes;
    ps_guest_moved_t *moved; /* [n_moved] by id */
    size_t n_moved;
} ps_guests_t;

/* Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_guests_init(ps_guests_t *guests, uint32_t n, psc_error_t *error);
void ps_guests_clear(ps_shard_t *shard);

/*
 * Whose message this is, in buffer->peer: a free seat for a Hello, else that of its session, which
 * must have begun with the same token, or with one that had the same rights for the same tables, so
 * that a token can be replaced while its clients go on. Errors: PEER_GONE (there is no such
 * session: it has ended, or was another server's or token's), BUSY (no seat is free), PROTOCOL (a
 * Hello of a worker), CORRUPT (it has no seal).
 */
PSC_MUST_CHECK psc_status_t ps_guests_seat(ps_shard_t *shard, const psp_message_t *message,
                                           psp_buffer_t *buffer, psc_error_t *error);

/* The session of a seat has begun. grant: of its token; NULL: none. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_guests_begin(ps_shard_t *shard, uint32_t peer,
                                            const psp_grant_t *grant, psc_error_t *error);
/* From now on requests of it without a seal are refused, with CORRUPT: they were damaged where it
 * was. */
void ps_guests_expect_seals(ps_shard_t *shard, uint32_t peer);
/* The session of a free seat, as a checkpoint has it: all requests with sequences below next were
 * served, and its client's parts up to part. Errors: NO_MEMORY; BUSY (no seat is free). */
PSC_MUST_CHECK psc_status_t ps_guests_revive(ps_shard_t *shard, const ps_session_t *session,
                                             uint64_t next, ps_call_part_t part,
                                             psc_error_t *error);

/* For a log that is replayed: the seat of a session; the shard's sessions.n_all: it has none. And
 * requests of it below next were served. */
uint32_t ps_guests_find(const ps_shard_t *shard, uint64_t session);
void ps_guests_go_on(ps_shard_t *shard, uint32_t peer, uint64_t next);

/* Sessions that are refused, and told what of them counts. Takes moved [n] (psc_alloc), in any
 * order. */
void ps_guests_set_moved(ps_shard_t *shard, ps_guest_moved_t *moved, size_t n);

/*
 * A guest says that another session takes the place of this one, which ends here if it is there and
 * of the same token as grant. *counted_out: 1 + the sequence of the last push of it that counts; 0:
 * there is no such session, and it is not one of those that were moved either. Errors: BUSY: a
 * request of it is being served; ask again.
 */
PSC_MUST_CHECK psc_status_t ps_guests_replace(ps_shard_t *shard, uint64_t session,
                                              const psp_grant_t *grant, uint64_t *counted_out,
                                              psc_error_t *error);

/* The lowest sequence of a guest from which on nothing has changed rows: of a push that waits, or
 * else the next one that will be taken; 0: the seat is free. */
uint64_t ps_guests_next(const ps_shard_t *shard, uint32_t peer);

/* Ends it. A request that is being served may be left in its queue. */
void ps_guests_end(ps_shard_t *shard, uint32_t peer);

/* A request that was admitted: served when it is its turn. Takes it. Errors: the shard's end. */
PSC_MUST_CHECK psc_status_t ps_guests_take(ps_shard_t *shard, struct ps_request *request,
                                           psc_error_t *error);

/* Keeps the answer of a request, should it be asked for again. Borrows reply until it returns. */
void ps_guests_keep(ps_shard_t *shard, const struct ps_request *request, psp_buffer_t *reply);

/* Ends leases, and the waiting for requests that do not come. */
void ps_guests_step(ps_shard_t *shard);

/* What waits for requests before it: answered, or dropped, so that its calls end unanswered. */
void ps_guests_refuse_parked(ps_shard_t *shard, uint32_t peer, const psc_error_t *refusal);
void ps_guests_drop_parked(ps_shard_t *shard, uint32_t peer);

#endif
