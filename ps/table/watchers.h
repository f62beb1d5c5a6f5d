/*
 * Watch requests that have nothing to be told yet: kept beside the queues of their sessions, so
 * that they hold up nothing, until a push reaches their table or their time is up.
 *
 * Threads: the owner's.
 */
#ifndef PS_TABLE_WATCHERS_H
#define PS_TABLE_WATCHERS_H

#include "common/status.h"
#include "ps/table/watch_log.h"

#define PS_WATCHERS_MAX 256u         /* that wait at a time */
#define PS_WATCH_WAIT_MS 1000u       /* when the request does not say how long */
#define PS_WATCH_WAIT_MOST_MS 10000u /* within a lease */
#define PS_WATCH_CURSOR_BYTES 16u

struct ps_table;
struct ps_shard;
struct ps_request;

/* Part of a shard; all zero at first. */
typedef struct ps_watchers {
    struct ps_request *waiting;
    uint32_t n;
    uint32_t n_logs;  /* of tables */
    uint64_t newest;  /* number of the newest log; 0: there was none */
    bool news;        /* a watched table was pushed to */
    uint64_t next_us; /* no waiting request has an earlier end */
    uint64_t looked_us;
} ps_watchers_t;

/* size 0: nowhere yet. Errors: INVALID_ARGUMENT. */
PSC_MUST_CHECK psc_status_t ps_watch_read_cursor(const uint8_t *cursor, size_t size,
                                                 ps_watch_place_t *place_out, psc_error_t *error);
void ps_watch_write_cursor(const ps_watch_place_t *place, uint8_t cursor[PS_WATCH_CURSOR_BYTES]);

/*
 * A Watch that arrived: goes to the queue of its session, or waits until it is worth that. Takes
 * request. Errors: the shard's end.
 */
PSC_MUST_CHECK psc_status_t ps_watchers_take(struct ps_shard *shard, struct ps_request *request,
                                             psc_error_t *error);

/* The log of a table, made if there is none. Errors: INVALID_ARGUMENT (no room within the memory),
 * NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_watchers_log(struct ps_shard *shard, struct ps_table *table,
                                            ps_watch_log_t **log_out, psc_error_t *error);

/* Takes those up that have news or whose time is up; lets go of logs that nobody reads. Errors: the
 * shard's end. */
PSC_MUST_CHECK psc_status_t ps_watchers_step(struct ps_shard *shard, psc_error_t *error);

/* When step has something to do at the latest. */
uint64_t ps_watchers_next(const struct ps_shard *shard);

/* Answers all that wait with why; NULL: drops them. */
void ps_watchers_end(struct ps_shard *shard, const psc_error_t *why);

/* With its table. */
void ps_watchers_close_log(struct ps_shard *shard, struct ps_table *table);

#endif
