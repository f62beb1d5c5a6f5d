/*
 * A pull or push by hand over MPI.
 *
 * Pull: the server receives row numbers, gathers the rows from its array into one of as many
 * buffers as there are batches in flight, and sends them without waiting; the worker receives them
 * where they are wanted. Push: row numbers and gradients leave from where the caller has them, two
 * messages; the server makes a step of sgd for each row in its array, and answers with one number.
 * So rows are copied once at the server and by MPI itself, and nowhere else.
 *
 * Both sides wait inside MPI, which spins. Row numbers are not checked, nothing is packed, and
 * batches are whole messages. Buffers are kept from run to run.
 */
#include "tests/bench/bench_exchange.h"

#include "common/alloc.h"

#include <mpi.h>
#include <string.h>

enum { TAG_RUN = 1, TAG_ROWS, TAG_VALUES, TAG_ANSWER };

/* What a run is told to be. */
typedef struct run {
    uint64_t kind, batch, in_flight;
} run_t;

typedef struct slot {
    MPI_Request requests[3];
    int n_requests;
    uint64_t answer;
} slot_t;

struct bench_exchange {
    MPI_Comm comm;
    int server;
    size_t dim;
    run_t run;
    size_t first, n; /* the oldest batch under way, and how many are */
    slot_t slots[BENCH_EXCHANGE_MAX_IN_FLIGHT];
};

static psc_status_t check(int rc, psc_error_t *error)
{
    return rc == MPI_SUCCESS ? PSC_OK : psc_error_set(error, PSC_IO, "MPI failed: code %d", rc);
}

/* ---- the worker ---- */

psc_status_t bench_exchange_create(const void *comm, int server, size_t dim,
                                   bench_exchange_t **exchange_out, psc_error_t *error)
{
    bench_exchange_t *exchange = psc_alloc_zeroed(1, sizeof *exchange);
    if (exchange == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for an exchange");
    memcpy(&exchange->comm, comm, sizeof exchange->comm);
    exchange->server = server;
    exchange->dim = dim;
    *exchange_out = exchange;
    return PSC_OK;
}

void bench_exchange_destroy(bench_exchange_t *exchange)
{
    psc_free(exchange);
}

psc_status_t bench_exchange_begin(bench_exchange_t *exchange, bench_exchange_kind_t kind,
                                  size_t batch, size_t in_flight, psc_error_t *error)
{
    PSC_BUG_ON(in_flight == 0 || in_flight > BENCH_EXCHANGE_MAX_IN_FLIGHT);
    exchange->run = (run_t){.kind = kind, .batch = batch, .in_flight = in_flight};
    exchange->first = exchange->n = 0;
    return check(
        MPI_Send(&exchange->run, 3, MPI_UINT64_T, exchange->server, TAG_RUN, exchange->comm),
        error);
}

static psc_status_t finish_oldest(bench_exchange_t *exchange, psc_error_t *error)
{
    slot_t *slot = &exchange->slots[exchange->first];
    exchange->first = (exchange->first + 1) % exchange->run.in_flight;
    exchange->n--;
    return check(MPI_Waitall(slot->n_requests, slot->requests, MPI_STATUSES_IGNORE), error);
}

psc_status_t bench_exchange_start(bench_exchange_t *exchange, const uint64_t *rows, float *values,
                                  psc_error_t *error)
{
    const run_t *run = &exchange->run;
    psc_status_t st = PSC_OK;
    if (exchange->n == run->in_flight && (st = finish_oldest(exchange, error)) != PSC_OK)
        return st;
    slot_t *slot = &exchange->slots[(exchange->first + exchange->n) % run->in_flight];
    int n = (int)run->batch, n_values = (int)(run->batch * exchange->dim);
    int server = exchange->server;
    MPI_Comm comm = exchange->comm;
    int rc;
    if (run->kind == BENCH_EXCHANGE_PULL) {
        slot->n_requests = 2;
        rc = MPI_Irecv(values, n_values, MPI_FLOAT, server, TAG_ANSWER, comm, &slot->requests[0]);
        if (rc == MPI_SUCCESS)
            rc = MPI_Isend(rows, n, MPI_UINT64_T, server, TAG_ROWS, comm, &slot->requests[1]);
    } else {
        slot->n_requests = 3;
        rc =
            MPI_Irecv(&slot->answer, 1, MPI_UINT64_T, server, TAG_ANSWER, comm, &slot->requests[0]);
        if (rc == MPI_SUCCESS)
            rc = MPI_Isend(rows, n, MPI_UINT64_T, server, TAG_ROWS, comm, &slot->requests[1]);
        if (rc == MPI_SUCCESS)
            rc = MPI_Isend(values, n_values, MPI_FLOAT, server, TAG_VALUES, comm,
                           &slot->requests[2]);
    }
    exchange->n++;
    return check(rc, error);
}

psc_status_t bench_exchange_finish(bench_exchange_t *exchange, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && exchange->n != 0)
        st = finish_oldest(exchange, error);
    return st;
}

psc_status_t bench_exchange_end(bench_exchange_t *exchange, psc_error_t *error)
{
    return check(MPI_Send(NULL, 0, MPI_UINT64_T, exchange->server, TAG_ROWS, exchange->comm),
                 error);
}

/* ---- the server ---- */

typedef struct service {
    MPI_Comm comm;
    int worker;
    run_t run;
    bench_plain_t *plain;
    float rate;
    uint64_t *rows;   /* [batch] as they come */
    uint32_t *places; /* [batch] */
    float *values;    /* [in flight, batch, dim]; of pushes the first one alone */
    MPI_Request sends[BENCH_EXCHANGE_MAX_IN_FLIGHT];
} service_t;

static psc_status_t answer_pull(service_t *service, size_t number, psc_error_t *error)
{
    const run_t *run = &service->run;
    size_t slot = number % run->in_flight, n = run->batch, dim = service->plain->dim;
    float *out = service->values + slot * n * dim;
    psc_status_t st = check(MPI_Wait(&service->sends[slot], MPI_STATUS_IGNORE), error);
    if (st != PSC_OK)
        return st;
    bench_plain_gather(service->plain, service->places, n, out);
    return check(MPI_Isend(out, (int)(n * dim), MPI_FLOAT, service->worker, TAG_ANSWER,
                           service->comm, &service->sends[slot]),
                 error);
}

static psc_status_t answer_push(service_t *service, size_t number, psc_error_t *error)
{
    size_t n = service->run.batch, dim = service->plain->dim;
    psc_status_t st = check(MPI_Recv(service->values, (int)(n * dim), MPI_FLOAT, service->worker,
                                     TAG_VALUES, service->comm, MPI_STATUS_IGNORE),
                            error);
    if (st != PSC_OK)
        return st;
    bench_plain_update(service->plain, service->places, n, service->values, service->rate);
    uint64_t answer = number;
    return check(MPI_Send(&answer, 1, MPI_UINT64_T, service->worker, TAG_ANSWER, service->comm),
                 error);
}

/* Until a message without rows. */
static psc_status_t serve_run(service_t *service, psc_error_t *error)
{
    for (size_t number = 0;; number++) {
        MPI_Status status;
        int n = 0;
        psc_status_t st = check(MPI_Recv(service->rows, (int)service->run.batch, MPI_UINT64_T,
                                         service->worker, TAG_ROWS, service->comm, &status),
                                error);
        if (st == PSC_OK)
            st = check(MPI_Get_count(&status, MPI_UINT64_T, &n), error);
        if (st != PSC_OK || n == 0)
            return st;
        for (size_t i = 0; i < service->run.batch; i++)
            service->places[i] = (uint32_t)service->rows[i];
        st = service->run.kind == BENCH_EXCHANGE_PULL ? answer_pull(service, number, error)
                                                      : answer_push(service, number, error);
        if (st != PSC_OK)
            return st;
    }
}

psc_status_t bench_exchange_serve(const void *comm, int worker, size_t max_batch,
                                  bench_plain_t *plain, float rate, psc_error_t *error)
{
    service_t service = {.worker = worker, .plain = plain, .rate = rate};
    memcpy(&service.comm, comm, sizeof service.comm);
    run_t *run = &service.run;
    psc_status_t st = check(
        MPI_Recv(run, 3, MPI_UINT64_T, worker, TAG_RUN, service.comm, MPI_STATUS_IGNORE), error);
    if (st != PSC_OK)
        return st;
    if (run->batch > max_batch || run->in_flight > BENCH_EXCHANGE_MAX_IN_FLIGHT)
        return psc_error_set(error, PSC_INTERNAL, "an exchange of %llu batches of %llu rows",
                             (unsigned long long)run->in_flight, (unsigned long long)run->batch);
    size_t n_values = (run->kind == BENCH_EXCHANGE_PULL ? run->in_flight : 1) * run->batch;
    service.rows = psc_alloc_array(run->batch, sizeof *service.rows);
    service.places = psc_alloc_array(run->batch, sizeof *service.places);
    service.values = psc_alloc_aligned(n_values * plain->dim * sizeof(float));
    if (service.rows == NULL || service.places == NULL || service.values == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for an exchange");
    else
        memset(service.values, 0, n_values * plain->dim * sizeof(float));
    for (size_t i = 0; i < run->in_flight; i++)
        service.sends[i] = MPI_REQUEST_NULL;
    if (st == PSC_OK)
        st = serve_run(&service, error);
    if (st == PSC_OK)
        st = check(MPI_Waitall((int)run->in_flight, service.sends, MPI_STATUSES_IGNORE), error);
    psc_free(service.rows);
    psc_free(service.places);
    psc_free(service.values);
    return st;
}
