/*
 * Who of the workers is lost, and whether all servers know it: a state machine without I/O or
 * clock.
 *
 *     if (ps_watch_see(watch, worker, &seen, now_us, &why))
 *         fence it; ps_watch_vote(watch, own_rank, &vote); tell the other servers
 *     for each vote of another server that comes:
 *         if (!ps_watch_voted(watch, vote.worker, own_rank))
 *             fence it, vote and tell, as above
 *         ps_watch_vote(watch, server, &vote)
 *     if (ps_watch_decided(watch, worker, &loss))
 *         bury it
 */
#ifndef PS_WATCH_H
#define PS_WATCH_H

#include "common/process_state.h"
#include "ps/table/shard.h"

typedef enum ps_why {
    PS_WHY_GONE = 0,
    PS_WHY_STOPPED = 1,
    PS_WHY_SILENT = 2,
} ps_why_t;

/* What a server sees of a worker. */
typedef struct ps_sight {
    psc_process_state_t state;
    int signal;     /* that ended it; 0: none, or not known */
    bool told;      /* one that is gone: whether a signal ended it is known */
    uint64_t beats; /* signs of life that came from it so far; 0: it gives none */
} ps_sight_t;

/* What servers of a job tell each other; plain bytes, since all are of one release. */
typedef struct ps_vote {
    uint32_t worker;
    uint32_t why;   /* ps_why_t */
    int32_t signal; /* as in ps_sight_t */
    ps_loss_t loss;
} ps_vote_t;

typedef struct ps_watch ps_watch_t;

/* stopped_us: how long a worker may be stopped or silent; 0: for ever. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t ps_watch_create(uint32_t n_workers, uint32_t n_servers,
                                            uint64_t stopped_us, ps_watch_t **watch_out,
                                            psc_error_t *error);
/* NULL is a no-op. */
void ps_watch_destroy(ps_watch_t *watch);

/*
 * What was seen of a worker that is expected to be there, not yet voted on. True: it is lost, and
 * why. One that is gone is lost when that has been seen for half a second: its last messages are
 * here by then, and it may have said goodbye; or for five, while nobody tells what ended it: who
 * knows that is slow on a busy machine, or gone as well. One of another machine that gives signs of
 * life is lost when no more of them come; of the time between two looks at most 0.2 s counts, so
 * that a server that stood still itself blames nobody.
 */
bool ps_watch_see(ps_watch_t *watch, uint32_t worker, const ps_sight_t *seen, uint64_t now_us,
                  ps_why_t *why_out);

/* A server knows that a worker is lost, and how far it came. Its first vote counts. */
void ps_watch_vote(ps_watch_t *watch, uint32_t server, const ps_vote_t *vote);
bool ps_watch_voted(const ps_watch_t *watch, uint32_t worker, uint32_t server);

/* All servers have voted: true once for each worker, with the furthest of what they know. */
bool ps_watch_decided(ps_watch_t *watch, uint32_t worker, ps_loss_t *loss_out);

/* In words, behind "since"; static. A number that is none of them: as PS_WHY_STOPPED. */
const char *ps_why_text(ps_why_t why);

#endif
