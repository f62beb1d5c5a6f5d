/*
 * The exchange that a pull and a push over MPI are measured against: what one writes by hand who
 * has two ranks, one array, and knows each row's place in it.
 *
 *     bench_exchange_begin(exchange, BENCH_EXCHANGE_PULL, batch, in_flight, error);
 *     for (...)
 *         bench_exchange_start(exchange, rows, out, error);   // waits for the oldest when full
 *     bench_exchange_finish(exchange, error);
 *     bench_exchange_end(exchange, error);
 *
 * Row numbers go out as 64 bits each, as ids do.
 */
#ifndef TESTS_BENCH_BENCH_EXCHANGE_H
#define TESTS_BENCH_BENCH_EXCHANGE_H

#include "common/status.h"
#include "tests/bench/bench_plain.h"

#define BENCH_EXCHANGE_MAX_IN_FLIGHT 64u

typedef enum bench_exchange_kind {
    BENCH_EXCHANGE_PULL = 1, /* row numbers out, rows back */
    BENCH_EXCHANGE_PUSH = 2, /* row numbers and gradients out, one number back; a step of sgd */
} bench_exchange_kind_t;

typedef struct bench_exchange bench_exchange_t;

/* The side of the worker. comm: address of an MPI_Comm with the server at rank `server`; no other
 * messages meet these on it. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t bench_exchange_create(const void *comm, int server, size_t dim,
                                                  bench_exchange_t **exchange_out,
                                                  psc_error_t *error);
/* NULL is a no-op. */
void bench_exchange_destroy(bench_exchange_t *exchange);

/* Begins a run of pulls or of pushes; the server must be in bench_exchange_serve. Errors: IO. */
PSC_MUST_CHECK psc_status_t bench_exchange_begin(bench_exchange_t *exchange,
                                                 bench_exchange_kind_t kind, size_t batch,
                                                 size_t in_flight, psc_error_t *error);
/* Begins one batch. Borrows rows [batch], and values [batch, dim] (written by a pull, read by a
 * push), until it is finished. Errors: IO. */
PSC_MUST_CHECK psc_status_t bench_exchange_start(bench_exchange_t *exchange, const uint64_t *rows,
                                                 float *values, psc_error_t *error);
/* Waits for all that was begun. Errors: IO. */
PSC_MUST_CHECK psc_status_t bench_exchange_finish(bench_exchange_t *exchange, psc_error_t *error);
/* Ends the run, and bench_exchange_serve. Errors: IO. */
PSC_MUST_CHECK psc_status_t bench_exchange_end(bench_exchange_t *exchange, psc_error_t *error);

/* The side of the server: serves one run from rank `worker`. max_batch: rows of a batch at most.
 * Errors: IO, NO_MEMORY. */
PSC_MUST_CHECK psc_status_t bench_exchange_serve(const void *comm, int worker, size_t max_batch,
                                                 bench_plain_t *plain, float rate,
                                                 psc_error_t *error);

#endif
