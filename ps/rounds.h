/*
 * Checkpoints that all servers make at one moment, asked for by a signal, every so often, at their
 * end, or by a client: a state machine without I/O or clock, one at each server.
 *
 * A round is one such checkpoint: all servers get ready, hold what does not belong to it, and cut
 * when each has what does (ps/table/calls.h); then all write their parts, and the first commits it;
 * or, where a client wanted it, lends it to that client, who does.
 * Nothing of it waits, so that servers serve meanwhile.
 *
 *     ps_rounds_ask(rounds, own_rank, passed_on, now_us)      a signal came
 *     ps_rounds_ask_for_client(rounds)                        a client wants one, at the first
 *     ps_rounds_hear(rounds, from, &word, now_us)             for each word of another server
 *     ps_rounds_step(rounds, now_us, &progress)               at every turn of the loop
 *     ps_rounds_leave(rounds)                                 the loop has ended; then
 *     while (!ps_rounds_over(rounds, ...)) hear, step
 *
 * Words from one server to another come in the order in which they were told, or the job ends.
 */
#ifndef PS_ROUNDS_H
#define PS_ROUNDS_H

#include "ps/table/calls.h"
#include "ps/table/saver.h"

typedef enum ps_round_why {
    PS_ROUND_ASKED,  /* a signal */
    PS_ROUND_DUE,    /* it was time */
    PS_ROUND_LAST,   /* the servers end */
    PS_ROUND_CLIENT, /* a client wants it */
} ps_round_why_t;

typedef enum ps_round_word_kind {
    PS_ROUND_ASK,   /* to the first server: a signal came here; passed_on */
    PS_ROUND_OPEN,  /* from the first: get ready for a part of `name` */
    PS_ROUND_READY, /* to the first: it can be cut, or why not: error */
    PS_ROUND_HOLD,  /* from the first: cut when all is there that belongs to it; haste */
    PS_ROUND_REACH, /* to each other: which of its parts belong to it: calls; is_last: clock */
    PS_ROUND_SAVED, /* to the first: it is on disk (bytes, since_us), or why not: error */
    PS_ROUND_END,   /* from the first: it is committed, or error: give it up */
    PS_ROUND_ENDED, /* to the first: nothing of it is under way here any more */
    PS_ROUND_LEFT,  /* to the first: nobody is served here any more */
    PS_ROUND_OVER,  /* from the first: all have left; name of the last checkpoint, or error */
} ps_round_word_kind_t;

/* How long a cut may wait for what belongs to it. */
typedef enum ps_round_haste {
    PS_ROUND_WHOLE, /* as long as others may be held; then it is given up, to be tried again */
    PS_ROUND_TORN,  /* the same; then it is made as it is */
    PS_ROUND_NOW,   /* nobody is served any more */
} ps_round_haste_t;

#define PS_ROUND_CALLS 16u /* of a word */

/* What servers of a job tell each other; plain bytes, since all are of one release. */
typedef struct ps_round_word {
    uint32_t kind;      /* ps_round_word_kind_t */
    uint32_t passed_on; /* whether the signal was one that all servers get */
    uint32_t haste;     /* ps_round_haste_t */
    uint32_t n_missing; /* clients of whose calls something was missing when the time was over */
    uint64_t bytes;     /* of the part */
    uint64_t since_us;  /* how long ago the sender cut */
    uint64_t held_us;   /* that it held calls for */
    uint64_t clock;
    uint32_t is_last; /* of the words that tell calls */
    uint32_t n_calls;
    ps_call_part_t calls[PS_ROUND_CALLS];
    char name[PSP_CHECKPOINT_NAME_MAX + 1];
    psc_error_t error;
} ps_round_word_t;

/* How a round ended, at the first server. */
typedef struct ps_round_report {
    ps_round_why_t why;
    const char *name;   /* "": it got none */
    uint64_t took_us;   /* from when calls were held to the end */
    uint64_t bytes;     /* of all parts */
    uint64_t spread_us; /* between the first cut and the last one, at most */
    uint64_t held_us;   /* that a server held calls for, at most */
    uint32_t n_missing; /* the most clients that any server cut in the middle of a call */
    bool lent;          /* it was a client's from then on */
    psc_error_t error;  /* why it did not come into being; PSC_OK: it did */
} ps_round_report_t;

typedef enum ps_round_place {
    PS_ROUND_FREE,  /* one may begin */
    PS_ROUND_WAIT,  /* what is in the way goes away by itself */
    PS_ROUND_TAKEN, /* a client is making one */
} ps_round_place_t;

/* What carries a round out: this server's saver, and the way to the other servers. */
typedef struct ps_round_hands {
    void *context;
    /* leaving: nobody's checkpoint but the servers' own counts any more. */
    ps_round_place_t (*place)(void *context, bool leaving);
    /* Begins one that can be cut when it is OPEN. name: "" at the first server. */
    psc_status_t (*open)(void *context, const char *name, psc_error_t *error);
    /* From now on what does not belong to the cut waits, until release. *clock_out: for the others.
     */
    void (*hold)(void *context, uint64_t *clock_out);
    /* What another server is to reach, as ps_calls_tell; what others say that this one is to. */
    size_t (*calls)(void *context, uint32_t server, uint32_t *seat_io, ps_call_part_t *calls_out,
                    size_t most);
    void (*reach)(void *context, const ps_call_part_t *calls, size_t n);
    void (*reach_clock)(void *context, uint64_t clock);
    bool (*whole)(void *context, uint32_t *n_missing_out);
    /* In OPEN. Errors: BUSY: not at this moment, but soon. */
    psc_status_t (*cut)(void *context, psc_error_t *error);
    void (*release)(void *context);
    /* The phase of what was begun; in FAILED why. The name from OPEN on, and the bytes of the part
     * once it is SAVED. */
    ps_saver_phase_t (*look)(void *context, psc_error_t *result_out, const char **name_out,
                             uint64_t *bytes_out);
    /* In SAVED: whoever wants it goes on with it, and commits it or gives it up; until it is
     * IDLE, or FAILED. claimed: whoever that is is still there. */
    void (*lend)(void *context);
    bool (*claimed)(void *context);
    void (*commit)(void *context);  /* in SAVED */
    void (*abandon)(void *context); /* in OPEN, SAVED and FAILED */
    void (*done)(void *context);    /* it has ended, and others may begin */
    void (*tell)(void *context, uint32_t server, const ps_round_word_t *word);
    void (*report)(void *context, const ps_round_report_t *report);
} ps_round_hands_t;

typedef struct ps_rounds_options {
    uint32_t rank, n_servers;
    uint64_t every_us;             /* one is begun so long after the last one was; 0: never */
    bool last;                     /* one is made at the end */
    const ps_round_hands_t *hands; /* borrowed */
} ps_rounds_options_t;

typedef struct ps_rounds ps_rounds_t;

/* Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t ps_rounds_create(const ps_rounds_options_t *options, uint64_t now_us,
                                             ps_rounds_t **rounds_out, psc_error_t *error);
/* NULL is a no-op. */
void ps_rounds_destroy(ps_rounds_t *rounds);

/*
 * A signal came to a server. passed_on: as it goes to all servers, such as one that mpirun passes
 * on; the one of each server then counts together as one, however late it comes. Of others those
 * that come within PS_ROUND_SETTLE_US do.
 * A checkpoint is begun after it in any case, so that all that was answered before is in it.
 */
#define PS_ROUND_SETTLE_US UINT64_C(200000)
/* Calls are held for so long at most, and where that was not enough it is tried again so much
 * later, so often; the last time what is there is cut. */
#define PS_ROUND_HOLD_US UINT64_C(50000)
#define PS_ROUND_AGAIN_US UINT64_C(100000)
#define PS_ROUND_TRIES 4u
void ps_rounds_ask(ps_rounds_t *rounds, uint32_t server, bool passed_on, uint64_t now_us);

/* A client wants one, at the first server. Each has its own report. */
void ps_rounds_ask_for_client(ps_rounds_t *rounds);

void ps_rounds_hear(ps_rounds_t *rounds, uint32_t from, const ps_round_word_t *word,
                    uint64_t now_us);

/* Goes on as far as it can now. Sets *progress_out when anything moved. */
void ps_rounds_step(ps_rounds_t *rounds, uint64_t now_us, bool *progress_out);

/* When a step will have something to do by itself; UINT64_MAX: never; 0: words of others and what
 * is served now are waited for, and calls of clients with them. */
uint64_t ps_rounds_next(const ps_rounds_t *rounds);

/* Nobody is served here any more; only rounds go on, to their end at all servers. */
void ps_rounds_leave(ps_rounds_t *rounds);

/* All servers have left, and the last checkpoint is made, or it failed: *error_out. name: "" where
 * none was to be made; borrowed from rounds. */
bool ps_rounds_over(const ps_rounds_t *rounds, const char **name_out, psc_error_t *error_out);

#endif
