/*
 * The network of a simulation: clients' calls to servers, and words between servers.
 *
 * A client's transport is what psp_grpc_client_create makes (wrapped when embps-sim is linked),
 * with the product's own outbox: a call may be lost, may fail while the server serves it, may come
 * late and beside the one that was made in its place, may be damaged on its way, either way, and
 * calls overtake each other. Words between
 * servers come in order, or not at all once one of the two has ended.
 */
#ifndef TESTS_SIM_SIM_NET_H
#define TESTS_SIM_SIM_NET_H

#include "proto/transport.h"
#include "ps/server.h"
#include "tests/sim/sim_tasks.h"

enum { SIM_SERVERS_MAX = 8 };

/* How it behaves; may be changed at any time. "One in n" calls, 0: none. */
typedef struct sim_weather {
    uint64_t latency_us, jitter_us;
    uint64_t lost_one_in;  /* requests, and as many answers */
    uint64_t late_one_in;  /* requests take up to late_us longer, and their calls fail meanwhile */
    uint64_t reset_one_in; /* calls fail at any time; what they asked is served all the same */
    uint64_t late_us;
    uint64_t damaged_one_in; /* requests and answers come with other bytes; clients and servers seal
                              * theirs */
} sim_weather_t;
extern sim_weather_t sim_weather;

/* A server's answer: what was asked, and what is answered. */
typedef void (*sim_answer_fn)(uint32_t rank, const psp_buffer_t *request,
                              const psp_buffer_t *reply);
/* answer: it leaves the server; hear: the client gets it. */
void sim_net_begin(sim_answer_fn answer, sim_answer_fn hear);
/* All transports are destroyed. */
void sim_net_end(void);

/* "HOST:PORT" of a server, static. */
const char *sim_net_address(uint32_t rank);

/* A server's transport. Guests' calls are refused until it is let in, and after a stop. Gives. */
psp_transport_t *sim_door_create(uint32_t rank, sim_process_t *process, psp_pool_t *pool);
void sim_door_let_in(psp_transport_t *transport);

/* The words of a job of servers. process: of the server. */
void sim_words_clear(void);
void sim_words_tell(sim_process_t *process, uint32_t from, uint32_t to,
                    const ps_round_word_t *word);
bool sim_words_hear(sim_process_t *process, uint32_t to, ps_round_word_t *word_out,
                    uint32_t *from_out);

#endif
