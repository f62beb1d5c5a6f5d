/*
 * A simulation from a seed: what is started, what goes wrong and when, and what must be true then.
 */
#ifndef TESTS_SIM_SIM_WORLD_H
#define TESTS_SIM_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sim_result {
    uint64_t history; /* the same for the same seed */
    uint64_t simulated_us;
    uint64_t n_calls, n_told, n_starts, n_kills, n_power_cuts, n_checkpoints;
} sim_result_t;

/* Runs it; what is wrong ends the program. */
void sim_run(uint64_t seed, bool verbose, sim_result_t *result_out);

#endif
