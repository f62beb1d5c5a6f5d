/*
 * Which rows of a table pushes have reached, for those who watch it: the last PS_WATCH_LOG_IDS of
 * them, in a ring that all watchers read, each from where it stands.
 *
 *     ps_watch_log_note(log, ids, n);                          a push
 *     from = ps_watch_log_end(log);                            begins to watch
 *     n = ps_watch_log_read(log, &from, ids, max, &lost);      later: the rows since then
 *
 * So memory does not grow with watchers, and none of them holds up a push. One that comes too late
 * has lost rows, and is told. Threads: the owner's.
 */
#ifndef PS_TABLE_WATCH_LOG_H
#define PS_TABLE_WATCH_LOG_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_WATCH_LOG_IDS ((size_t)1 << 16)

typedef struct ps_watch_log {
    uint64_t number; /* no other log has it, of whatever server and run */
    uint64_t end;    /* rows noted so far */
    uint64_t used_us;
    uint64_t ids[PS_WATCH_LOG_IDS];
} ps_watch_log_t;

/* Where a watcher stands. Plain data. */
typedef struct ps_watch_place {
    uint64_t log, at;
} ps_watch_place_t;

/* Errors: NO_MEMORY. Gives: psc_free. */
PSC_MUST_CHECK psc_status_t ps_watch_log_create(uint64_t number, ps_watch_log_t **log_out,
                                                psc_error_t *error);

void ps_watch_log_note(ps_watch_log_t *log, const uint64_t *ids, size_t n);

/* Behind all that was noted. */
ps_watch_place_t ps_watch_log_end(const ps_watch_log_t *log);

/* Whether there is anything to be read from a place. */
bool ps_watch_log_has_news(const ps_watch_log_t *log, const ps_watch_place_t *place);

/*
 * The distinct rows noted behind a place, out of max of them at most: ids_out, rising. *place is
 * then behind them. *lost_out: some were overwritten, or the place is none of this log; then none
 * is told, and *place is the end. Returns how many.
 */
size_t ps_watch_log_read(const ps_watch_log_t *log, ps_watch_place_t *place, uint64_t *ids_out,
                         size_t max, bool *lost_out);

#endif
