/*
 * Checkpoints that servers make by themselves, asked for by a signal, every so often, or at their
 * end: a state machine without I/O or clock, one at each server.
 *
 * A round is one such checkpoint: the first server's part, then those of all others at once, then
 * the first commits it. Nothing of it waits, so that servers serve meanwhile.
 *
 *     ps_rounds_ask(rounds, own_rank, passed_on, now_us)      a signal came
 *     ps_rounds_hear(rounds, from, &word, now_us)             for each word of another server
 *     ps_rounds_step(rounds, now_us, &progress)               at every turn of the loop
 *     ps_rounds_leave(rounds)                                 the loop has ended; then
 *     while (!ps_rounds_over(rounds, ...)) hear, step
 *
 * Words from one server to another come in the order in which they were told, or the job ends.
 */
#ifndef PS_ROUNDS_H
#define PS_ROUNDS_H

#include "ps/table/saver.h"

typedef enum ps_round_why {
    PS_ROUND_ASKED, /* a signal */
    PS_ROUND_DUE,   /* it was time */
    PS_ROUND_LAST,  /* the servers end */
} ps_round_why_t;

typedef enum ps_round_word_kind {
    PS_ROUND_ASK,   /* to the first server: a signal came here; passed_on */
    PS_ROUND_SAVE,  /* from the first: make a part of `name` */
    PS_ROUND_SAVED, /* to the first: it is on disk (bytes, since_us), or why not: error */
    PS_ROUND_END,   /* from the first: it is committed, or error: give it up */
    PS_ROUND_ENDED, /* to the first: nothing of it is under way here any more */
    PS_ROUND_LEFT,  /* to the first: nobody is served here any more */
    PS_ROUND_OVER,  /* from the first: all have left; name of the last checkpoint, or error */
} ps_round_word_kind_t;

/* What servers of a job tell each other; plain bytes, since all are of one release. */
typedef struct ps_round_word {
    uint32_t kind;      /* ps_round_word_kind_t */
    uint32_t passed_on; /* whether the signal was one that all servers get */
    uint64_t bytes;     /* of the part */
    uint64_t since_us;  /* how long ago the sender cut */
    char name[PSP_CHECKPOINT_NAME_MAX + 1];
    psc_error_t error;
} ps_round_word_t;

/* How a round ended, at the first server. */
typedef struct ps_round_report {
    ps_round_why_t why;
    const char *name;   /* "": it got none */
    uint64_t took_us;   /* from the first cut to the end */
    uint64_t bytes;     /* of all parts */
    uint64_t spread_us; /* between the first server's cut and the last one's, at most */
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
    /* Cuts now. name: "" at the first server. */
    psc_status_t (*begin)(void *context, const char *name, psc_error_t *error);
    /* The phase of what was begun; in IDLE how it ended. The name once it has one, and the bytes
     * of the part once it is SAVED. */
    ps_saver_phase_t (*look)(void *context, psc_error_t *result_out, const char **name_out,
                             uint64_t *bytes_out);
    void (*commit)(void *context); /* both in SAVED */
    void (*abandon)(void *context);
    void (*done)(void *context); /* it has ended, and others may begin */
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
void ps_rounds_ask(ps_rounds_t *rounds, uint32_t server, bool passed_on, uint64_t now_us);

void ps_rounds_hear(ps_rounds_t *rounds, uint32_t from, const ps_round_word_t *word,
                    uint64_t now_us);

/* Goes on as far as it can now. Sets *progress_out when anything moved. */
void ps_rounds_step(ps_rounds_t *rounds, uint64_t now_us, bool *progress_out);

/* When a step will have something to do by itself; UINT64_MAX: never. */
uint64_t ps_rounds_next(const ps_rounds_t *rounds);

/* Nobody is served here any more; only rounds go on, to their end at all servers. */
void ps_rounds_leave(ps_rounds_t *rounds);

/* All servers have left, and the last checkpoint is made, or it failed: *error_out. name: "" where
 * none was to be made; borrowed from rounds. */
bool ps_rounds_over(const ps_rounds_t *rounds, const char **name_out, psc_error_t *error_out);

#endif
