/*
 * Clients of a simulation: processes that use the public library (embps.h) as any program would,
 * and know what they may expect of it.
 *
 * Each adds whole numbers to a column of its own, and checks that it reads what it wrote; that a
 * checkpoint that it asked for has just that; and at the end, if it was never told of a loss, that
 * every push counts once.
 */
#ifndef TESTS_SIM_SIM_CLIENTS_H
#define TESTS_SIM_SIM_CLIENTS_H

#include "tests/sim/sim_model.h"

enum { SIM_CLIENTS_MAX = 3 };

typedef struct sim_clients_options {
    uint32_t n;
    size_t n_ids;
    uint32_t dim;               /* of the table; its first columns are the clients' */
    size_t batch;               /* rows of a call at most */
    uint64_t nap_us;            /* between two calls, at most */
    uint64_t checkpoint_one_in; /* calls; 0: none is asked for */
} sim_clients_options_t;

void sim_clients_begin(const sim_clients_options_t *options);
/* Starts one, again after it was killed or has ended. */
void sim_client_start(uint32_t client);
bool sim_client_runs(uint32_t client);
/* kill -9 and SIGSTOP. Outside of tasks. */
void sim_client_kill(uint32_t client);
void sim_client_pause(uint32_t client, uint64_t until_us);

/* They end what they have under way, close and end. */
void sim_clients_stop(void);
/* What calls did so far, and how often clients were told of an end. */
void sim_clients_count(uint64_t *n_calls_out, uint64_t *n_told_out);

/* A client reads the whole table and compares; done: when it has ended. All others have ended. */
void sim_reader_start(void);
bool sim_reader_runs(void);

#endif
