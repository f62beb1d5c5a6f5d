/*
 * Rows that workers will pull later, brought into memory when there is nothing better to do.
 *
 * A prefetch is answered when it arrives and leaves no trace but speed: its ids are kept here, in
 * the order of arrival, and their reads are started a piece at a time. What cannot be done in time
 * is left out: when the clock that it was for has passed at its worker, or when too much is kept.
 *
 * Threads: the owner's.
 */
#ifndef PS_TABLE_PREFETCHER_H
#define PS_TABLE_PREFETCHER_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PS_PREFETCHER_ROWS 1024u              /* looked at in one step */
#define PS_PREFETCHER_MESSAGES 256u           /* kept at most, */
#define PS_PREFETCHER_BYTES ((size_t)2 << 20) /* and their bytes */

struct ps_shard;
struct ps_request;

/* Part of a shard; all zero at first. */
typedef struct ps_prefetcher {
    struct ps_request *head, *tail;
    size_t n, bytes;
    size_t at;   /* ids of the oldest that were dealt with */
    bool stands; /* the last step could do nothing */
    uint64_t ids[PS_PREFETCHER_ROWS], hashes[PS_PREFETCHER_ROWS];
} ps_prefetcher_t;

/*
 * A Prefetch that arrived: answered at once, before whatever else its session waits for, by its
 * function in ps/serve, which may keep it. Takes request. Errors: the shard's end.
 */
PSC_MUST_CHECK psc_status_t ps_prefetcher_take(struct ps_shard *shard, struct ps_request *request,
                                               psc_error_t *error);

/* For that function: keeps the request, whose table has been found. It is not DONE then. */
void ps_prefetcher_keep(struct ps_shard *shard, struct ps_request *request);

/* Starts some reads, if there are any to start. moved: something happened since the last step.
 * *progress_out is set when reads were started. */
void ps_prefetcher_step(struct ps_shard *shard, bool moved, bool *progress_out);

/* Drops all that is kept. */
void ps_prefetcher_stop(struct ps_shard *shard);

#endif
