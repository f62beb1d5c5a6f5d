/*
 * Rounds of several servers in one process: words lie in queues, savers are a few numbers, and a
 * folder is modelled that tells who would remove or commit what another one is writing. Clients
 * make calls in parts, and each cut is looked at: it has whole calls of each client, from its first
 * one on, the same ones at all servers.
 *
 * Whatever must never be ends the test. Threads: none.
 */
#ifndef TESTS_SUPPORT_ROUND_WORLD_H
#define TESTS_SUPPORT_ROUND_WORLD_H

#include "ps/rounds.h"
#include "tests/support/test_seed.h"

enum {
    ROUND_SERVERS_MAX = 4,
    ROUND_WORDS_MAX = 256,
    ROUND_REPORTS_MAX = 4096,
    ROUND_CLIENTS = 20, /* more than a word has room for */
    ROUND_CALLS_MAX = 512,
    ROUND_PARTS_MAX = 2048,
};

typedef enum round_part { PART_NONE, PART_WRITING, PART_WHOLE } round_part_t;

struct round_world;

typedef struct round_place {
    struct round_world *world;
    uint32_t rank;
    ps_rounds_t *rounds;
    ps_round_hands_t hands;
    /* the saver */
    ps_saver_phase_t phase;
    bool own, clients; /* whose it is: the servers', whose end was not taken; a client's */
    bool lent, left;   /* to a client, which has left */
    char name[PSP_CHECKPOINT_NAME_MAX + 1];
    psc_error_t result;
    /* what it will fail at next */
    bool fail_begin, fail_save, fail_commit;
    round_part_t part;
    /* what clients push */
    ps_calls_t calls;
    uint64_t arrived[ROUND_CLIENTS];  /* parts that have come; those beyond calls.done wait */
    uint64_t cut_done[ROUND_CLIENTS]; /* parts that were applied at the newest cut */
    uint64_t clock;                   /* its own */
    uint64_t to_reach;                /* the furthest that it was told */
    uint64_t cut_clock;               /* at the newest cut */
} round_place_t;

typedef struct round_words {
    ps_round_word_t all[ROUND_WORDS_MAX];
    size_t head, tail;
} round_words_t;

/* What a client has sent. */
typedef struct round_client {
    uint64_t ends[ROUND_CALLS_MAX][ROUND_SERVERS_MAX]; /* last part of call k for each server */
    size_t n_calls;                                    /* ends[0]: before the first */
    bool dead;                                         /* what has not come will not */
} round_client_t;

typedef struct round_world {
    uint32_t n;
    round_place_t at[ROUND_SERVERS_MAX];
    round_words_t to[ROUND_SERVERS_MAX][ROUND_SERVERS_MAX]; /* [from][to] */
    round_client_t clients[ROUND_CLIENTS];
    uint64_t now_us;
    unsigned n_named;
    bool committing;
    /* what the first server reported */
    ps_round_report_t reports[ROUND_REPORTS_MAX];
    char names[ROUND_REPORTS_MAX][PSP_CHECKPOINT_NAME_MAX + 1];
    uint64_t began_us[ROUND_REPORTS_MAX];
    size_t n_reports, n_made;
} round_world_t;

/* psc_free it after its end. Gives. */
round_world_t *round_world_begin(uint32_t n, uint64_t every_us, bool last);
void round_world_end(round_world_t *world);

/* A step of a server's writer; a word that one has for another: false: there is none. */
bool round_world_write(round_place_t *at);
bool round_world_hear(round_world_t *world, uint32_t from, uint32_t to);
bool round_world_any_words(const round_world_t *world);
/* Until nothing moves by itself. */
void round_world_settle(round_world_t *world);
void round_world_ask(round_world_t *world, uint32_t server, bool passed_on);

/* A client's checkpoint at one server that goes no further, and its end. */
void round_world_client_begins(round_world_t *world, uint32_t server);
void round_world_client_ends(round_world_t *world, uint32_t server);

/* A client goes on with what was lent to it: commits it, gives it up, or is gone. False: nothing is
 * lent, or it has done so. */
typedef enum round_borrower {
    BORROWER_COMMITS,
    BORROWER_GIVES_UP,
    BORROWER_IS_GONE
} round_borrower_t;
bool round_world_borrower(round_world_t *world, round_borrower_t does);

/* A client makes its next call, with parts for some servers; false: it has made all of its. The
 * next part of a client comes to a server; the next that has come is applied, if it may be. */
bool round_world_call(round_world_t *world, uint32_t client, test_random_t *random);
bool round_world_deliver(round_world_t *world, uint32_t client, uint32_t server);
bool round_world_apply(round_world_t *world, uint32_t client, uint32_t server);

#endif
