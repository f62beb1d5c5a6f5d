/*
 * The client core over simulated servers that keep rows in a plain array and answer in any order.
 * They check what every message must say; a fault ends the test.
 */
#ifndef TESTS_SUPPORT_CORE_SIM_H
#define TESTS_SUPPORT_CORE_SIM_H

#include "worker/core.h"
#include "worker/issue.h"

#include "tests/support/test_seed.h"

enum { SERVERS = 3, IDS = 200, D = 5, TABLE = 4, REPLIES = 4096 };

#define CLUSTER UINT64_C(0xc1)
#define WINDOW 4096u

typedef struct sim {
    psp_pool_t *pool;
    psp_scratch_t *scratch;
    psw_core_t *core;
    psw_issuer_t issuer;
    psc_slot_map_t map;
    float rows[IDS][D];
    const uint8_t *states; /* by id; NULL: all present, which replies do not say */
    uint32_t stateless;    /* server that has only present rows, SERVERS: none */
    bool scan;             /* what pulls must say */
    uint64_t step;         /* what pushes must say */
    uint64_t next_sequence[SERVERS];
    uint64_t parts[SERVERS], told[SERVERS]; /* pushes that came, and that were told of */
    uint64_t answered[SERVERS];             /* replies handed to the core, hello aside */
    size_t in_flight[SERVERS], in_flight_most[SERVERS];
    uint32_t max_message_bytes;
    uint32_t told_window_bytes; /* by servers; 0: no limit */
    uint32_t refusing;          /* server that refuses all, SERVERS: none */
    uint32_t worker;            /* what hello must say */
    psp_buffer_t *replies[REPLIES];
    size_t n_replies;
} sim_t;

extern const psw_target_t sim_target;
extern const psw_room_t sim_no_room;

/* window_messages: as in psw_core_options_t. */
void sim_open(sim_t *sim, uint32_t window_messages);
/* The same for a client that is no worker of the job. */
void sim_open_guest(sim_t *sim, uint32_t window_messages);
/* Asserts that no buffer was lost. */
void sim_close(sim_t *sim);

psp_buffer_t *sim_pack(sim_t *sim, const psp_message_t *message);
psp_buffer_t *sim_hello_reply(sim_t *sim, uint32_t server, uint64_t number);

/* A server gets a message and makes its reply, which waits to be delivered. Takes buffer. */
void sim_serve(sim_t *sim, psp_buffer_t *buffer);
/* Servers get all messages that may leave now, and make replies that wait to be delivered. */
void sim_send_all(sim_t *sim);
/* Hands in the reply at an index. */
psc_status_t sim_deliver(sim_t *sim, size_t at, psc_error_t *error);
/* Everything, replies in random order. */
void sim_run(sim_t *sim, test_random_t *random);
void sim_hello(sim_t *sim);

psw_request_t *sim_pull(sim_t *sim, const uint64_t *ids, size_t n, float *rows);
psw_request_t *sim_push(sim_t *sim, psp_push_kind_t kind, const uint64_t *ids, size_t n,
                        const float *rows);

#endif
