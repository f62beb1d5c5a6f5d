/*
 * One rank of the transport test: transport_main server|worker MODE.
 *
 * Modes:
 *   traffic  every worker sends every server numbered messages of many sizes, the server sends each
 *            back, and both sides check order and content; then one message over the limit
 *   jobs     cluster id, ranks, agree, gather (more than one chunk), notes, barrier, a wake
 *   flood    each side sends many large messages before it reads any: nothing may block
 *   abandon  endpoints are destroyed while messages are under way
 *   report   of ranks that fail together, or one later than another, one claims the report
 *   alone    job_create must refuse, and say which role is missing
 *   idle     processor time of an idle endpoint
 *   latency  prints round trips after pauses of several lengths (not a test)
 * Prints one line at worker 0 when all is well; aborts the job otherwise.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "common/rng.h"
#include "proto/message.h"
#include "proto/mpi/mpi_transport.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIMIT ((size_t)1 << 20)
#define N_MESSAGES 400u
#define N_FLOOD 64u
#define PATIENCE_US ((uint64_t)60 * 1000000)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                  \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        if ((call) != PSC_OK) {                                                                    \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, error.message);               \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

typedef struct rank {
    psp_mpi_role_t role;
    psp_mpi_job_t *job;
    psp_pool_t *pool;
    psp_transport_t *transport;
} rank_t;

/* Sizes around the borders of eager and rendezvous protocols, 0, and the limit itself. */
static size_t size_of_message(uint32_t i)
{
    static const size_t sizes[] = {8,     0, 9,      100, 4000, 4096,   4097,      8,     65536,
                                   65537, 8, 262144, 12,  31,   524289, LIMIT - 1, LIMIT, 64};
    return sizes[i % (sizeof sizes / sizeof sizes[0])];
}

static uint8_t byte_of_message(uint32_t i, size_t at)
{
    return (uint8_t)(psc_mix64(i) + at * 131u + (at >> 12));
}

static psp_buffer_t *make_message(rank_t *r, uint32_t i)
{
    psc_error_t error;
    psp_buffer_t *buffer;
    size_t size = size_of_message(i);
    CHECK_OK(psp_buffer_get(r->pool, size, &buffer, &error));
    for (size_t at = 0; at < size; at++)
        buffer->data[at] = byte_of_message(i, at);
    buffer->size = size;
    buffer->kind = 1 + i % 16;
    return buffer;
}

static void check_message(const psp_buffer_t *buffer, uint32_t i)
{
    CHECK(buffer->kind == 1 + i % 16);
    CHECK(buffer->size == size_of_message(i));
    for (size_t at = 0; at < buffer->size; at++)
        CHECK(buffer->data[at] == byte_of_message(i, at));
}

/* The next message; waits for it. */
static psp_buffer_t *next(rank_t *r)
{
    psc_error_t error;
    uint64_t start_us = psc_clock_us();
    for (;;) {
        psp_buffer_t *buffer;
        CHECK_OK(psp_transport_poll(r->transport, &buffer, &error));
        if (buffer != NULL)
            return buffer;
        CHECK(psc_clock_us() - start_us < PATIENCE_US);
        psp_transport_wait(r->transport, 100000);
    }
}

/* Echoes until every worker has sent all, the one over the limit included. */
static void serve_traffic(rank_t *r)
{
    psc_error_t error = PSC_ERROR_INIT;
    uint32_t n_peers = r->transport->n_peers;
    uint32_t *seen = psc_alloc_zeroed(n_peers, sizeof *seen);
    CHECK(seen != NULL);
    uint32_t refused = 0;
    uint32_t left = n_peers;
    uint64_t start_us = psc_clock_us();
    while (left != 0 || refused != n_peers) {
        CHECK(psc_clock_us() - start_us < PATIENCE_US);
        psp_buffer_t *buffer;
        psc_status_t st = psp_transport_poll(r->transport, &buffer, &error);
        if (st == PSC_PROTOCOL) {
            CHECK(strstr(error.message, "1048577") != NULL);
            refused++;
            continue;
        }
        CHECK_OK(st);
        if (buffer == NULL) {
            psp_transport_wait(r->transport, 100000);
            continue;
        }
        CHECK(buffer->peer < n_peers);
        uint32_t i = seen[buffer->peer]++;
        check_message(buffer, i);
        left -= i == N_MESSAGES; /* one more comes after the refused one */
        CHECK_OK(psp_transport_send(r->transport, buffer->peer, buffer, &error));
    }
    psc_free(seen);
}

/* More than an int counts never gets to MPI: limits of messages are far below. */
static void send_endless(rank_t *r)
{
    psc_error_t error;
    psp_buffer_t *endless;
    CHECK_OK(psp_buffer_get(r->pool, 8, &endless, &error));
    endless->size = (size_t)INT_MAX + 1;
    endless->kind = PSP_PUSH;
    size_t backlog = psp_transport_backlog(r->transport, 0);
    CHECK(psp_transport_send(r->transport, 0, endless, &error) == PSC_IO);
    CHECK(psp_transport_backlog(r->transport, 0) == backlog);
}

static void send_traffic(rank_t *r)
{
    enum { WINDOW = 8 };
    psc_error_t error;
    uint32_t n_peers = r->transport->n_peers;
    uint32_t *answered = psc_alloc_zeroed(n_peers, sizeof *answered);
    CHECK(answered != NULL);
    for (uint32_t i = 0; i < WINDOW; i++)
        for (uint32_t peer = 0; peer < n_peers; peer++)
            CHECK_OK(psp_transport_send(r->transport, peer, make_message(r, i), &error));
    for (uint32_t done = 0; done < n_peers * N_MESSAGES; done++) {
        psp_buffer_t *buffer = next(r);
        uint32_t peer = buffer->peer;
        CHECK(peer < n_peers);
        uint32_t i = answered[peer]++;
        check_message(buffer, i);
        psp_buffer_put(buffer);
        if (i + WINDOW < N_MESSAGES)
            CHECK_OK(psp_transport_send(r->transport, peer, make_message(r, i + WINDOW), &error));
    }
    send_endless(r);
    for (uint32_t peer = 0; peer < n_peers; peer++) {
        psp_buffer_t *large;
        CHECK_OK(psp_buffer_get(r->pool, LIMIT + 1, &large, &error));
        memset(large->data, 1, LIMIT + 1);
        large->size = LIMIT + 1;
        large->kind = PSP_PUSH;
        CHECK_OK(psp_transport_send(r->transport, peer, large, &error));
        CHECK_OK(psp_transport_send(r->transport, peer, make_message(r, N_MESSAGES), &error));
    }
    for (uint32_t peer = 0; peer < n_peers; peer++) {
        psp_buffer_t *buffer = next(r);
        check_message(buffer, N_MESSAGES);
        psp_buffer_put(buffer);
    }
    psc_free(answered);
}

static void traffic(rank_t *r)
{
    psc_error_t error;
    if (r->role == PSP_MPI_SERVER)
        serve_traffic(r);
    else
        send_traffic(r);
    CHECK_OK(psp_transport_flush(r->transport, PATIENCE_US, &error));
    for (uint32_t peer = 0; peer < r->transport->n_peers; peer++)
        CHECK(psp_transport_backlog(r->transport, peer) == 0);
}

static void flood(rank_t *r)
{
    psc_error_t error;
    uint32_t n_peers = r->transport->n_peers;
    for (uint32_t i = 0; i < N_FLOOD; i++) {
        for (uint32_t peer = 0; peer < n_peers; peer++) {
            psp_buffer_t *buffer;
            CHECK_OK(psp_buffer_get(r->pool, 300000, &buffer, &error));
            memset(buffer->data, (int)i, 300000);
            buffer->size = 300000;
            buffer->kind = PSP_PULL;
            CHECK_OK(psp_transport_send(r->transport, peer, buffer, &error));
        }
    }
    psp_mpi_job_barrier(r->job); /* everyone has sent all, nobody has read */
    uint32_t *seen = psc_alloc_zeroed(n_peers, sizeof *seen);
    CHECK(seen != NULL);
    for (uint32_t n = 0; n < N_FLOOD * n_peers; n++) {
        psp_buffer_t *buffer = next(r);
        CHECK(buffer->size == 300000 && buffer->data[299999] == seen[buffer->peer]);
        seen[buffer->peer]++;
        psp_buffer_put(buffer);
    }
    psc_free(seen);
    CHECK_OK(psp_transport_flush(r->transport, PATIENCE_US, &error));
}

static void check_agreement(rank_t *r)
{
    bool reporter = true;
    psc_error_t error = PSC_ERROR_INIT;
    CHECK(psp_mpi_job_agree_all(r->job, &error, &reporter) == PSC_OK && !reporter);
    /* the last rank of the own role fails */
    bool fails = psp_mpi_job_rank(r->job) + 1 == psp_mpi_job_size(r->job);
    if (fails)
        (void)psc_error_set(&error, PSC_DISK_FULL, "role %d is full", (int)r->role);
    CHECK(psp_mpi_job_agree(r->job, &error, &reporter) == PSC_DISK_FULL);
    CHECK(reporter == fails);
    CHECK(strcmp(error.message, r->role == PSP_MPI_SERVER ? "role 0 is full" : "role 1 is full") ==
          0);
    /* both roles: the lowest rank of the job, a server in this test, speaks for all */
    error = (psc_error_t)PSC_ERROR_INIT;
    (void)psc_error_set(&error, r->role == PSP_MPI_SERVER ? PSC_IO : PSC_CORRUPT, "from %u",
                        psp_mpi_job_rank(r->job));
    CHECK(psp_mpi_job_agree_all(r->job, &error, &reporter) == PSC_IO);
    CHECK(strcmp(error.message, "from 0") == 0);
    CHECK(reporter == (r->role == PSP_MPI_SERVER && psp_mpi_job_rank(r->job) == 0));
}

static void check_gather(rank_t *r, size_t unit)
{
    psc_error_t error;
    uint32_t rank = psp_mpi_job_rank(r->job);
    uint32_t size = psp_mpi_job_size(r->job);
    size_t own = unit * rank + (rank == 0 ? unit / 2 : 0);
    char *bytes = psc_alloc(own);
    size_t *sizes = psc_alloc_array(size, sizeof *sizes);
    CHECK(bytes != NULL && sizes != NULL);
    memset(bytes, 'a' + (int)(rank % 26), own);
    char *all;
    CHECK_OK(psp_mpi_job_gather(r->job, bytes, own, &all, sizes, &error));
    size_t at = 0;
    for (uint32_t i = 0; i < size; i++) {
        CHECK(sizes[i] == unit * i + (i == 0 ? unit / 2 : 0));
        for (size_t j = 0; j < sizes[i]; j++)
            CHECK(all[at++] == 'a' + (int)(i % 26));
    }
    psc_free(all);
    psc_free(bytes);
    psc_free(sizes);
}

enum { NOTES = 20 };

/* Notes of two kinds at once: small ones to all, large ones to the first rank, each in order. */
static void check_notes(rank_t *r)
{
    const uint32_t rank = psp_mpi_job_rank(r->job), size = psp_mpi_job_size(r->job);
    static uint32_t note[PSP_MPI_NOTE_BYTES / sizeof(uint32_t)];
    uint32_t n_small = 0, n_large = 0, from, number;
    uint32_t *next = psc_alloc_zeroed(size, sizeof *next);
    CHECK(next != NULL);
    for (uint32_t i = 0; i < NOTES; i++) {
        note[0] = i;
        note[PSP_MPI_NOTE_BYTES / sizeof(uint32_t) - 1] = ~i;
        CHECK(psp_mpi_job_send_note(r->job, PSP_MPI_TO_ALL, PSP_MPI_NOTE_LOSS, &rank, sizeof rank));
        if (rank != 0)
            CHECK(psp_mpi_job_send_note(r->job, 0, PSP_MPI_NOTE_ROUND, note, sizeof note));
    }
    while (n_small < (size - 1) * NOTES || (rank == 0 && n_large < (size - 1) * NOTES)) {
        if (psp_mpi_job_take_note(r->job, PSP_MPI_NOTE_LOSS, &number, sizeof number, &from)) {
            CHECK(from == number && from != rank);
            n_small++;
        }
        if (psp_mpi_job_take_note(r->job, PSP_MPI_NOTE_ROUND, note, sizeof note, &from)) {
            CHECK(rank == 0 && note[0] == next[from]++);
            CHECK(note[PSP_MPI_NOTE_BYTES / sizeof(uint32_t) - 1] == ~note[0]);
            n_large++;
        }
    }
    CHECK(n_small == (size - 1) * NOTES && (rank != 0 || n_large == n_small));
    psc_free(next);
}

static void *wake_later(void *transport)
{
    psc_clock_sleep_us(2000);
    psp_transport_wake(transport);
    return NULL;
}

/* A wake ends a wait: one of two that came before, or one that comes while it naps. */
static void check_wake(rank_t *r)
{
    psp_transport_wake(r->transport);
    psp_transport_wake(r->transport);
    psp_transport_wait(r->transport, PATIENCE_US);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, wake_later, r->transport) == 0);
    psp_transport_wait(r->transport, PATIENCE_US);
    (void)pthread_join(thread, NULL);
}

static void jobs(rank_t *r)
{
    CHECK(psp_mpi_job_cluster(r->job) != 0);
    uint64_t id = psp_mpi_job_cluster(r->job);
    uint64_t lowest = 0;
    uint64_t highest = 0;
    MPI_Allreduce(&id, &lowest, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&id, &highest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    CHECK(lowest == id && highest == id);
    CHECK(psp_mpi_job_rank(r->job) < psp_mpi_job_size(r->job));
    CHECK(psp_mpi_job_size(r->job) == (r->role == PSP_MPI_SERVER ? psp_mpi_job_n_servers(r->job)
                                                                 : psp_mpi_job_n_workers(r->job)));
    check_agreement(r);
    check_gather(r, 0);
    check_gather(r, 1000);
    check_gather(r, (size_t)40 << 20);
    check_notes(r);
    check_wake(r);
    psp_mpi_job_barrier(r->job);
}

static double cpu_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Servers do nothing for 3 s, workers sleep outside of MPI. */
static void idle(rank_t *r)
{
    psc_error_t error;
    uint64_t start_us = psc_clock_us();
    double start_cpu = cpu_seconds();
    while (psc_clock_us() - start_us < 3000000) {
        psp_buffer_t *buffer;
        if (r->role == PSP_MPI_WORKER) {
            psc_clock_sleep_us(100000);
            continue;
        }
        CHECK_OK(psp_transport_poll(r->transport, &buffer, &error));
        CHECK(buffer == NULL);
        psp_transport_wait(r->transport, 100000);
    }
    double share = (cpu_seconds() - start_cpu) / 3.0;
    if (r->role == PSP_MPI_SERVER)
        (void)printf("idle server uses %.2f%% of a core\n", 100 * share);
    CHECK(share < 0.03);
    bool reporter;
    error = (psc_error_t)PSC_ERROR_INIT;
    CHECK_OK(psp_mpi_job_agree_all(r->job, &error, &reporter));
}

/* Endpoints end while large messages are under way in both directions that nobody receives. */
static void abandon(rank_t *r)
{
    psc_error_t error;
    for (uint32_t peer = 0; peer < r->transport->n_peers; peer++) {
        psp_buffer_t *buffer;
        CHECK_OK(psp_buffer_get(r->pool, LIMIT, &buffer, &error));
        memset(buffer->data, 1, LIMIT);
        buffer->size = LIMIT;
        buffer->kind = PSP_PUSH;
        CHECK_OK(psp_transport_send(r->transport, peer, buffer, &error));
        CHECK(psp_transport_backlog(r->transport, peer) == LIMIT);
    }
    CHECK(psp_transport_flush(r->transport, 1000, &error) == PSC_TIMEOUT ||
          psp_transport_backlog(r->transport, 0) == 0);
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* One small message there and back, many times, with and without pauses. */
static void latency(rank_t *r)
{
    enum { ROUNDS = 2000 };
    static const uint64_t pauses_us[] = {0, 100, 1000, 10000};
    psc_error_t error;
    for (size_t p = 0; p < sizeof pauses_us / sizeof pauses_us[0]; p++) {
        int rounds = pauses_us[p] <= 100 ? ROUNDS : 100;
        uint64_t times_us[ROUNDS] = {0};
        for (int i = 0; i < rounds && psp_mpi_job_rank(r->job) == 0; i++) {
            if (r->role == PSP_MPI_SERVER) {
                psp_buffer_t *buffer = next(r);
                CHECK_OK(psp_transport_send(r->transport, buffer->peer, buffer, &error));
                continue;
            }
            psc_clock_sleep_us(pauses_us[p]);
            uint64_t start_us = psc_clock_us();
            CHECK_OK(psp_transport_send(r->transport, 0, make_message(r, 0), &error));
            psp_buffer_put(next(r));
            times_us[i] = psc_clock_us() - start_us;
        }
        qsort(times_us, (size_t)rounds, sizeof times_us[0], compare_times);
        if (r->role == PSP_MPI_WORKER && psp_mpi_job_rank(r->job) == 0)
            (void)printf("pause %llu us: round trip %llu us, 9 of 10 within %llu us\n",
                         (unsigned long long)pauses_us[p], (unsigned long long)times_us[rounds / 2],
                         (unsigned long long)times_us[rounds * 9 / 10]);
    }
}

/* How many ranks of the job say yes. */
static int count_yes(bool yes)
{
    int own = yes, sum = 0;
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

static void report(rank_t *r)
{
    const uint64_t window_us = 400000;
    int rank, n;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    /* All fail, the lowest ranks last. */
    psc_clock_sleep_us((uint64_t)(n - 1 - rank) * 20000);
    bool claimed = psp_mpi_job_claim_report(r->job, window_us);
    CHECK(claimed == (rank == 0));
    CHECK(count_yes(claimed) == 1);
    /* Whoever fails after the report keeps quiet, however low its rank; notices are of one job. */
    MPI_Comm world = MPI_COMM_WORLD;
    psp_mpi_job_t *second;
    psc_error_t error = PSC_ERROR_INIT;
    CHECK_OK(psp_mpi_job_create(&world, r->role, &second, &error));
    claimed = rank == n - 1 && psp_mpi_job_claim_report(second, window_us);
    CHECK(count_yes(claimed) == 1);
    CHECK(rank == n - 1 || !psp_mpi_job_claim_report(second, window_us));
    psp_mpi_job_destroy(second);
}

static void alone(psp_mpi_role_t role)
{
    MPI_Comm world = MPI_COMM_WORLD;
    psp_mpi_job_t *job = NULL;
    psc_error_t error;
    CHECK(psp_mpi_job_create(&world, role, &job, &error) == PSC_INVALID_ARGUMENT);
    CHECK(job == NULL);
    CHECK(strstr(error.message, role == PSP_MPI_SERVER ? "no worker" : "no server") != NULL);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        (void)printf("alone is well\n");
}

static void run(rank_t *r, const char *mode)
{
    psc_error_t error;
    MPI_Comm world = MPI_COMM_WORLD;
    CHECK_OK(psp_mpi_job_create(&world, r->role, &r->job, &error));
    CHECK_OK(psp_pool_create((size_t)16 << 20, &r->pool, &error));
    CHECK_OK(psp_mpi_transport_create(r->job, r->pool, LIMIT, &r->transport, &error));
    if (strcmp(mode, "traffic") == 0)
        traffic(r);
    else if (strcmp(mode, "flood") == 0)
        flood(r);
    else if (strcmp(mode, "abandon") == 0)
        abandon(r);
    else if (strcmp(mode, "report") == 0)
        report(r);
    else if (strcmp(mode, "idle") == 0)
        idle(r);
    else if (strcmp(mode, "latency") == 0)
        latency(r);
    else
        jobs(r);
    error = (psc_error_t)PSC_ERROR_INIT;
    bool reporter;
    CHECK_OK(psp_mpi_job_agree_all(r->job, &error, &reporter)); /* all are done */
    psp_transport_destroy(r->transport);
    CHECK(psp_pool_bytes_out(r->pool) == 0);
    psp_pool_destroy(r->pool);
    if (r->role == PSP_MPI_WORKER && psp_mpi_job_rank(r->job) == 0)
        (void)printf("%s is well\n", mode);
    psp_mpi_job_destroy(r->job);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        (void)fprintf(stderr, "usage: transport_main server|worker MODE\n");
        return 2;
    }
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    rank_t rank = {.role = strcmp(argv[1], "server") == 0 ? PSP_MPI_SERVER : PSP_MPI_WORKER};
    if (strcmp(argv[2], "alone") == 0)
        alone(rank.role);
    else
        run(&rank, argv[2]);
    MPI_Finalize();
    return 0;
}
