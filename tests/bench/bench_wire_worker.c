/*
 * The worker rank of `embps-bench wire`: the same batches by embps.h, by the exchange, and by
 * redis.
 *
 * Contenders take turns within a round, every other round in the opposite order. Each has as many
 * batches in flight as are asked for: before one more is begun the oldest is waited for, and what
 * is under way at the end is waited for within the time measured. Rows that come back end up in
 * memory of the caller, one place for each batch in flight. Gradients come from another place for
 * each batch, going round: sent from one place that is never written to, they would lie ready in
 * the cache of the server's processor, as no gradients of a training do. All pulls come first,
 * while all hold the same rows; the first batch of each is compared.
 *
 * Direct reads have a server of their own, which shares its memory, and a gather from an array in
 * this process beside them. All places are learnt before anything is timed. Pulls by messages from
 * that server are those of a client whose direct reads are put aside meanwhile.
 *
 * While redis has its turn the server rank sleeps as idle servers do.
 */
#include "common/alloc.h"
#include "embps.h"
#include "tests/bench/bench_cases.h"
#include "tests/bench/bench_exchange.h"
#include "tests/bench/bench_folder.h"
#include "tests/bench/bench_redis.h"
#include "tests/bench/bench_wire.h"
#include "worker/client_state.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define SERVER_RANK 0
#define POOL_IDS ((size_t)1 << 20)
#define LOAD_ROWS ((size_t)4096)
#define MAX_CONTENDERS 4u
#define GATHER_AHEAD 16
#define GRADS_BYTES ((size_t)16 << 20) /* at least; beyond the caches of one processor */

typedef struct wire {
    const bench_wire_setup_t *setup;
    size_t dim;
    bench_folder_t folder;
    embps_client_t *client;
    embps_table_t *table;
    bench_exchange_t *exchange;
    bench_redis_t *redis; /* NULL: not there */
    bool direct;          /* the server shares its memory */
    bench_plain_t plain;  /* the same rows here; for direct reads */
    bench_ids_t ids;
    uint64_t *rows; /* [ids.n] row numbers, as the exchange sends them */
    float *values;  /* [max in flight, max batch, dim]: what comes back */
    float *grads;   /* [grads_bytes]: gradients of several batches */
    size_t grads_bytes;
    /* of the present case */
    bool push;
    size_t batch, in_flight;
    embps_request_t *ring[BENCH_WIRE_MAX_IN_FLIGHT];
    size_t first, n, place, grads_place;
} wire_t;

static psc_status_t import(const embps_error_t *from, psc_error_t *error)
{
    return psc_error_set(error, (psc_status_t)from->code, "%s", from->message);
}

/* Where the next batch's rows go. */
static float *next_values(wire_t *wire)
{
    float *values = wire->values + wire->place * wire->batch * wire->dim;
    wire->place = (wire->place + 1) % wire->in_flight;
    return values;
}

/* Where the next batch's gradients are; none that is under way has the same. */
static float *next_grads(wire_t *wire)
{
    const size_t floats = wire->batch * wire->dim;
    const size_t places = wire->grads_bytes / (floats * sizeof(float));
    float *grads = wire->grads + wire->grads_place % places * floats;
    wire->grads_place++;
    return grads;
}

/* ---- the contenders: begin a batch, and finish all ---- */

static psc_status_t wait_oldest(wire_t *wire, psc_error_t *error)
{
    embps_error_t what;
    embps_request_t *request = wire->ring[wire->first];
    wire->first = (wire->first + 1) % wire->in_flight;
    wire->n--;
    return embps_wait(request, &what) == 0 ? PSC_OK : import(&what, error);
}

static psc_status_t ours(void *context, size_t number, psc_error_t *error)
{
    wire_t *wire = context;
    const uint64_t *ids = wire->ids.ids + number * wire->batch;
    embps_error_t what;
    psc_status_t st = PSC_OK;
    if (wire->n == wire->in_flight && (st = wait_oldest(wire, error)) != PSC_OK)
        return st;
    embps_request_t **request = &wire->ring[(wire->first + wire->n) % wire->in_flight];
    int failed = wire->push ? embps_push_start(wire->table, EMBPS_GRADIENT, ids, wire->batch,
                                               next_grads(wire), BENCH_RATE, request, &what)
                            : embps_pull_start(wire->table, ids, wire->batch, next_values(wire),
                                               request, &what);
    if (failed != 0)
        return import(&what, error);
    wire->n++;
    return PSC_OK;
}

static psc_status_t finish_ours(void *context, psc_error_t *error)
{
    wire_t *wire = context;
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && wire->n != 0)
        st = wait_oldest(wire, error);
    return st;
}

static psc_status_t by_gather(void *context, size_t number, psc_error_t *error)
{
    wire_t *wire = context;
    (void)error;
    bench_plain_gather(&wire->plain, wire->ids.rows + number * wire->batch, wire->batch,
                       next_values(wire));
    return PSC_OK;
}

static psc_status_t by_exchange(void *context, size_t number, psc_error_t *error)
{
    wire_t *wire = context;
    return bench_exchange_start(wire->exchange, wire->rows + number * wire->batch,
                                wire->push ? next_grads(wire) : next_values(wire), error);
}

static psc_status_t finish_exchange(void *context, psc_error_t *error)
{
    return bench_exchange_finish(((wire_t *)context)->exchange, error);
}

static psc_status_t by_redis(void *context, size_t number, psc_error_t *error)
{
    wire_t *wire = context;
    const uint64_t *ids = wire->ids.ids + number * wire->batch;
    psc_status_t st = bench_redis_wait(wire->redis, wire->in_flight - 1, error);
    if (st != PSC_OK)
        return st;
    return wire->push ? bench_redis_set(wire->redis, ids, wire->batch, next_grads(wire), error)
                      : bench_redis_get(wire->redis, ids, wire->batch, next_values(wire), error);
}

static psc_status_t finish_redis(void *context, psc_error_t *error)
{
    return bench_redis_wait(((wire_t *)context)->redis, 0, error);
}

typedef struct contender {
    const char *name;
    double wanted; /* ratio of ours to it */
    bench_side_t side;
    bool by_messages; /* without direct reads */
    double rates[BENCH_MAX_REPEATS];
} contender_t;

static bool is_exchange(const contender_t *contender)
{
    return contender->side.batch == by_exchange;
}

/* Runs one contender: for some seconds, or (seconds 0) one batch. */
static psc_status_t run_one(wire_t *wire, contender_t *contender, double seconds, double *rate_out,
                            psc_error_t *error)
{
    embps_error_t what;
    psc_status_t st = PSC_OK;
    psw_direct_t *direct = wire->client->issuer.direct;
    wire->place = wire->first = 0; /* nothing is under way */
    if (contender->by_messages)
        wire->client->issuer.direct = NULL;
    if (is_exchange(contender)) {
        if (embps_barrier(wire->client, &what) != 0)
            return import(&what, error);
        st = bench_exchange_begin(wire->exchange,
                                  wire->push ? BENCH_EXCHANGE_PUSH : BENCH_EXCHANGE_PULL,
                                  wire->batch, wire->in_flight, error);
    }
    if (st == PSC_OK)
        st = seconds > 0 ? bench_run_for(&contender->side, seconds, rate_out, error)
                         : bench_run_batches(&contender->side, 1, rate_out, error);
    if (st == PSC_OK && is_exchange(contender))
        st = bench_exchange_end(wire->exchange, error);
    wire->client->issuer.direct = direct;
    return st;
}

/* ---- one case ---- */

/* Whether all contenders bring the same rows for the first batch. */
static psc_status_t check_answers(wire_t *wire, contender_t *contenders, size_t n,
                                  psc_error_t *error)
{
    const size_t n_values = wire->batch * wire->dim;
    float *first = psc_alloc_array(n_values, sizeof *first);
    double rate;
    psc_status_t st = PSC_OK;
    if (first == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for an answer");
    for (size_t k = 0; st == PSC_OK && k < n; k++) {
        contenders[k].side.next = 0;
        memset(wire->values, 0, n_values * sizeof *wire->values);
        st = run_one(wire, &contenders[k], 0, &rate, error);
        if (st == PSC_OK && k == 0)
            memcpy(first, wire->values, n_values * sizeof *first);
        else if (st == PSC_OK && memcmp(first, wire->values, n_values * sizeof *first) != 0)
            st = psc_error_set(error, PSC_INTERNAL, "%s has other rows than the server",
                               contenders[k].name);
    }
    psc_free(first);
    return st;
}

static void report(const wire_t *wire, const contender_t *contenders, size_t n)
{
    const size_t repeats = wire->setup->repeats;
    bench_result_t result = {.bench = contenders[0].name,
                             .dist = wire->setup->zipf ? "zipf" : "uniform",
                             .against = "none",
                             .dim = wire->dim,
                             .batch = wire->batch,
                             .in_flight = wire->in_flight,
                             .rows_per_s = bench_median(contenders[0].rates, repeats),
                             .ratio = NAN,
                             .spread = NAN,
                             .wanted = NAN,
                             .against_rows_per_s = NAN,
                             .hit_rate = NAN,
                             .belady_hit_rate = NAN,
                             .bound_full = NAN};
    if (n == 1)
        bench_result_print(&result, wire->setup->json);
    for (size_t k = 1; k < n; k++) {
        bench_rounds_t rounds = {.n = repeats};
        memcpy(rounds.ours, contenders[0].rates, sizeof rounds.ours);
        memcpy(rounds.other, contenders[k].rates, sizeof rounds.other);
        result.against = contenders[k].name;
        result.wanted = contenders[k].wanted;
        bench_result_rates(&result, &rounds);
        bench_result_print(&result, wire->setup->json);
    }
}

/* Who runs in a case, ours first. Returns how many. */
static size_t line_up(wire_t *wire, contender_t contenders[MAX_CONTENDERS])
{
    bench_side_t side = {
        .context = wire, .n_batches = wire->ids.n / wire->batch, .rows = wire->batch};
    bench_side_t own = side, gather = side, exchange = side, redis = side;
    own.batch = ours;
    own.finish = finish_ours;
    gather.batch = by_gather;
    exchange.batch = by_exchange;
    exchange.finish = finish_exchange;
    redis.batch = by_redis;
    redis.finish = finish_redis;
    size_t n = 0;
    if (wire->direct) {
        contenders[n++] = (contender_t){.name = "wire.direct.pull", .side = own};
        contenders[n++] = (contender_t){.name = "gather", .wanted = 0.4, .side = gather};
        contenders[n++] =
            (contender_t){.name = "wire.mpi.pull", .wanted = 1, .side = own, .by_messages = true};
    } else {
        contenders[n++] =
            (contender_t){.name = wire->push ? "wire.mpi.push" : "wire.mpi.pull", .side = own};
        contenders[n++] = (contender_t){.name = "exchange", .wanted = 0.7, .side = exchange};
    }
    if (wire->redis != NULL)
        contenders[n++] =
            (contender_t){.name = "redis", .wanted = wire->in_flight == 8 ? 3 : NAN, .side = redis};
    return wire->setup->alone ? 1 : n;
}

static psc_status_t run_case(wire_t *wire, psc_error_t *error)
{
    const bench_wire_setup_t *setup = wire->setup;
    contender_t contenders[MAX_CONTENDERS];
    const size_t n = line_up(wire, contenders);
    psc_status_t st = wire->push ? PSC_OK : check_answers(wire, contenders, n, error);
    double rate;
    for (size_t k = 0; st == PSC_OK && k < n; k++)
        st = run_one(wire, &contenders[k], setup->seconds / 4, &rate, error);
    for (size_t r = 0; st == PSC_OK && r < setup->repeats; r++) {
        for (size_t i = 0; st == PSC_OK && i < n; i++) {
            contender_t *contender = &contenders[r % 2 == 0 ? i : n - 1 - i];
            st = run_one(wire, contender, setup->seconds, &contender->rates[r], error);
        }
    }
    if (st == PSC_OK)
        report(wire, contenders, n);
    return st;
}

static psc_status_t run_cases(wire_t *wire, bool push, psc_error_t *error)
{
    const bench_wire_setup_t *setup = wire->setup;
    psc_status_t st = PSC_OK;
    wire->push = push;
    for (size_t b = 0; b < setup->n_batches; b++) {
        for (size_t f = 0; st == PSC_OK && f < setup->n_in_flight; f++) {
            wire->batch = setup->batches[b];
            wire->in_flight = setup->in_flight[f];
            st = run_case(wire, error);
        }
    }
    return st;
}

/* Pulls every row that will be asked for once, so that its place is known. */
static psc_status_t learn_places(wire_t *wire, psc_error_t *error)
{
    bench_side_t side = {.batch = ours, .finish = finish_ours, .context = wire};
    double rate;
    wire->push = false;
    wire->batch = wire->setup->max_batch;
    wire->in_flight = 1;
    side.rows = wire->batch;
    side.n_batches = wire->ids.n / wire->batch;
    return bench_run_batches(&side, side.n_batches, &rate, error);
}

/* ---- set-up ---- */

/* All rows into the server and into redis, through the values' memory. */
static psc_status_t load(wire_t *wire, psc_error_t *error)
{
    uint64_t ids[LOAD_ROWS];
    float *values = psc_alloc_array(LOAD_ROWS * wire->dim, sizeof *values);
    psc_status_t st = PSC_OK;
    if (values == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a batch");
    for (size_t from = 0; st == PSC_OK && from < wire->setup->rows; from += LOAD_ROWS) {
        size_t left = wire->setup->rows - from;
        size_t n = left < LOAD_ROWS ? left : LOAD_ROWS;
        embps_error_t what;
        for (size_t i = 0; i < n; i++) {
            ids[i] = bench_row_id(from + i);
            bench_fill_row(values + i * wire->dim, wire->dim, from + i);
            if (wire->direct)
                memcpy(wire->plain.rows + (from + i) * wire->plain.stride, values + i * wire->dim,
                       wire->dim * sizeof *values);
        }
        if (embps_push(wire->table, EMBPS_ASSIGN, ids, n, values, 0, &what) != 0)
            st = import(&what, error);
        if (st == PSC_OK && wire->redis != NULL)
            st = bench_redis_set(wire->redis, ids, n, values, error);
        if (st == PSC_OK && wire->redis != NULL)
            st = bench_redis_wait(wire->redis, 0, error);
    }
    psc_free(values);
    return st;
}

static psc_status_t draw(wire_t *wire, psc_error_t *error)
{
    const bench_wire_setup_t *setup = wire->setup;
    bench_draw_t how = {
        .zipf = setup->zipf, .n_rows = setup->rows, .n_ids = POOL_IDS, .seed = setup->seed};
    psc_status_t st = bench_ids_draw(&how, &wire->ids, error);
    if (st != PSC_OK)
        return st;
    size_t max_floats = setup->max_batch * wire->dim;
    wire->rows = psc_alloc_array(wire->ids.n, sizeof *wire->rows);
    wire->values = psc_alloc_aligned(setup->max_in_flight * max_floats * sizeof(float));
    wire->grads_bytes = setup->max_in_flight * max_floats * sizeof(float);
    if (wire->grads_bytes < GRADS_BYTES)
        wire->grads_bytes = GRADS_BYTES;
    wire->grads = psc_alloc_aligned(wire->grads_bytes);
    if (wire->rows == NULL || wire->values == NULL || wire->grads == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for batches of %zu rows",
                             setup->max_batch);
    memset(wire->values, 0, setup->max_in_flight * max_floats * sizeof(float));
    bench_fill_gradients(wire->grads, wire->grads_bytes / sizeof(float));
    for (size_t i = 0; i < wire->ids.n; i++)
        wire->rows[i] = wire->ids.rows[i];
    return PSC_OK;
}

static psc_status_t start_redis(wire_t *wire, psc_error_t *error)
{
    size_t n = wire->setup->max_batch > LOAD_ROWS ? wire->setup->max_batch : LOAD_ROWS;
    psc_error_t what = PSC_ERROR_INIT;
    psc_status_t st = bench_folder_make(wire->setup->dir, &wire->folder, error);
    if (st != PSC_OK)
        return st;
    st = bench_redis_start(wire->folder.path, wire->dim, n, &wire->redis, &what);
    if (st == PSC_UNSUPPORTED) {
        (void)fprintf(stderr, "embps-bench: no redis beside: %s\n", what.message);
        return PSC_OK;
    }
    if (st != PSC_OK)
        *error = what;
    return st;
}

/* Before there are rows. *there_out: the server's memory can be read. */
static psc_status_t start_direct(wire_t *wire, bool *there_out, psc_error_t *error)
{
    embps_error_t what;
    uint32_t n;
    if (embps_set_direct(wire->client, true, &n, &what) != 0)
        return import(&what, error);
    *there_out = n != 0;
    if (n == 0) {
        (void)fprintf(stderr, "embps-bench: no wire.direct.pull: the server's memory cannot be "
                              "mapped here\n");
        return PSC_OK;
    }
    psc_status_t st =
        bench_plain_create(wire->dim, wire->setup->rows, BENCH_PLAIN_SGD, &wire->plain, error);
    wire->plain.ahead = GATHER_AHEAD;
    return st;
}

static psc_status_t run_benches(wire_t *wire, psc_error_t *error)
{
    psc_status_t st = load(wire, error);
    if (st == PSC_OK && wire->direct) {
        st = learn_places(wire, error);
        return st == PSC_OK ? run_cases(wire, false, error) : st;
    }
    if (st == PSC_OK && wire->setup->pull)
        st = run_cases(wire, false, error);
    if (st == PSC_OK && wire->setup->push)
        st = run_cases(wire, true, error);
    return st;
}

static psc_status_t measure_dim(wire_t *wire, MPI_Comm exchange, psc_error_t *error)
{
    const bench_wire_setup_t *setup = wire->setup;
    bool there = true;
    embps_error_t what;
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = (uint32_t)wire->dim;
    psc_status_t st =
        bench_exchange_create(&exchange, SERVER_RANK, wire->dim, &wire->exchange, error);
    if (st == PSC_OK && wire->direct)
        st = start_direct(wire, &there, error);
    if (st == PSC_OK && embps_table_open(wire->client, "bench", &options, &wire->table, &what) != 0)
        st = import(&what, error);
    if (st == PSC_OK && setup->redis && there)
        st = start_redis(wire, error);
    if (st == PSC_OK)
        st = draw(wire, error);
    if (st == PSC_OK && there)
        st = run_benches(wire, error);
    bench_plain_clear(&wire->plain);
    bench_redis_stop(wire->redis);
    bench_folder_remove(&wire->folder);
    bench_exchange_destroy(wire->exchange);
    bench_ids_clear(&wire->ids);
    psc_free(wire->rows);
    psc_free(wire->values);
    psc_free(wire->grads);
    return st;
}

psc_status_t bench_wire_measure(const bench_wire_setup_t *setup, psc_error_t *error)
{
    MPI_Comm world = MPI_COMM_WORLD, exchange;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &exchange) != MPI_SUCCESS)
        return psc_error_set(error, PSC_IO, "MPI has no communicator for the exchange");
    if (!setup->json)
        bench_result_print_wire_heading();
    psc_status_t st = PSC_OK;
    for (size_t k = 0; st == PSC_OK && k < 2 * setup->n_dims; k++) {
        wire_t wire = {.setup = setup, .dim = setup->dims[k / 2], .direct = k % 2 != 0};
        embps_error_t what;
        if (wire.direct ? !setup->direct : !setup->pull && !setup->push)
            continue;
        if (embps_connect_mpi(&world, &wire.client, &what) != 0)
            return import(&what, error);
        st = measure_dim(&wire, exchange, error);
        if (st != PSC_OK)
            embps_abandon(wire.client, (int)st);
        else if (embps_close(wire.client, &what) != 0)
            st = import(&what, error);
    }
    if (st == PSC_OK)
        (void)MPI_Comm_free(&exchange);
    return st;
}
