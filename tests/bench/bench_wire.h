/* The two ranks of `embps-bench wire`. */
#ifndef TESTS_BENCH_BENCH_WIRE_H
#define TESTS_BENCH_BENCH_WIRE_H

#include "common/status.h"
#include "tests/bench/bench_choices.h"

#define BENCH_WIRE_MAX_IN_FLIGHT 64u /* of exchange and redis alike */

/* What was asked for. Plain data; borrows. */
typedef struct bench_wire_setup {
    size_t rows, repeats;
    double seconds;
    uint64_t seed;
    const char *dir;
    bool pull, push; /* which benches over messages */
    bool direct;     /* pulls straight from the server's memory */
    bool redis;      /* beside redis too, if it is there */
    bool alone;      /* beside nothing */
    bool checksums;  /* messages are checked; not those of the other side */
    bool json;
    size_t dims[BENCH_MAX_CHOICES], batches[BENCH_MAX_CHOICES], in_flight[BENCH_MAX_CHOICES];
    size_t n_dims, n_batches, n_in_flight;
    size_t max_batch, max_in_flight;
    bool zipf;
} bench_wire_setup_t;

/*
 * The rest of a rank once MPI is there: rank 0 serves, rank 1 measures and prints. Collective over
 * MPI_COMM_WORLD. Errors: what went wrong on this rank; the caller ends the job.
 */
PSC_MUST_CHECK psc_status_t bench_wire_serve(const bench_wire_setup_t *setup, psc_error_t *error);
PSC_MUST_CHECK psc_status_t bench_wire_measure(const bench_wire_setup_t *setup, psc_error_t *error);

#endif
