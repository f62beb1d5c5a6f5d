/*
 * A worker of a test job: the public calls against a dictionary, over MPI or local.
 *
 * client_main one IDS FILE
 *     one worker: random pulls and pushes of all kinds must match a dictionary bit for bit; writes
 *     all rows to FILE, for a comparison between jobs
 * client_main one IDS FILE DATA
 *     the same in local mode
 * client_main many IDS
 *     several workers: shared rows, rows of one's own, clocks, barriers
 * client_main hold IDS FOLDER [DIM]
 *     every worker sets rows of its own, makes FOLDER/ready-RANK, calls nothing until FOLDER/go is
 *     there, and then must find its rows as they were
 * client_main train IDS DIM PASSES PRECISION
 *     one worker trains rows towards targets by row-wise adagrad, prints for each pass over them
 *     how far they are, and must come closer
 * client_main stopped IDS FOLDER
 *     makes FOLDER/ready, waits for FOLDER/go, and finds server 1 stopped: named, cheap, and no
 *     hindrance for others; makes FOLDER/told, and finds all well when the server goes on
 * client_main reader IDS FOLDER
 *     every worker asks for much, makes FOLDER/ready-RANK, takes no reply until FOLDER/go is there,
 *     and then gets all of it
 * client_main absent
 *     starts MPI and never connects
 * client_main refused
 *     what a server refuses comes back in words, and the job goes on
 *
 * With EMBPS_TEST_DIRECT in the environment rows are read straight from the servers' memory where
 * that can be, which must be somewhere.
 */
#include "embps.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/rng.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { D = 13, CALLS = 120, BATCH = 400 };

#define REQUIRE(condition) require((condition), #condition, __LINE__)

static embps_error_t test_error;

/* Ends the whole job. */
__attribute__((noreturn)) static void stop(const char *condition, int line)
{
    int initialised = 0;
    (void)fprintf(stderr, "client_main:%d: %s (%s)\n", line, condition,
                  test_error.code != 0 ? test_error.message : "no error");
    MPI_Initialized(&initialised);
    if (initialised)
        MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void require(bool holds, const char *condition, int line)
{
    if (!holds)
        stop(condition, line);
}

typedef struct random {
    uint64_t key, n;
} random_t;

static size_t below(random_t *random, size_t n)
{
    return (size_t)(psc_rng_at(random->key, random->n++) % n);
}

static float value(random_t *random)
{
    return psc_rng_unit((uint32_t)psc_rng_at(random->key, random->n++)) - 0.5F;
}

static uint64_t id_of(size_t index)
{
    return index == 1 ? UINT64_MAX : psc_mix64(index); /* index 0: id 0 */
}

static embps_table_t *open_table(embps_client_t *client, const char *name, const char *optimizer)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = D;
    options.init = "normal";
    options.optimizer = optimizer;
    options.seed = 17;
    REQUIRE(embps_table_open(client, name, &options, &table, &test_error) == 0);
    return table;
}

/* Tables whose rows are only compared between numbers of servers and sizes of memory. */
#define N_OTHERS 8
static void open_others(embps_client_t *client, embps_table_t *others[N_OTHERS])
{
    others[0] = open_table(client, "adagrad rows", "adagrad");
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = D;
    options.init = "truncated_normal";
    options.seed = 3;
    options.optimizer = "adagrad";
    options.precision = "bf16";
    options.clip_norm = 2;
    REQUIRE(embps_table_open(client, "bf16 rows", &options, &others[1], &test_error) == 0);
    options.optimizer = "adagrad";
    options.precision = "f16";
    options.l2 = 0.01;
    REQUIRE(embps_table_open(client, "f16 rows", &options, &others[2], &test_error) == 0);
    options.optimizer = "adam";
    options.state_precision = "bf16";
    options.per_row_steps = true;
    REQUIRE(embps_table_open(client, "adam rows", &options, &others[3], &test_error) == 0);
    options.state_precision = "f32";
    options.admit_after = 3;
    options.admit_counters = 16;
    options.admit_shared = true;
    REQUIRE(embps_table_open(client, "late rows", &options, &others[4], &test_error) == 0);
    options.admit_shared = false;
    options.admit_after = 2;
    options.expire_after = 3;
    options.expire_rare_after = 1;
    options.expire_rare_below = 2;
    REQUIRE(embps_table_open(client, "short rows", &options, &others[5], &test_error) == 0);
    options.pull_format = "f16";
    options.push_format = "bf16";
    REQUIRE(embps_table_open(client, "short rows in 16 bits", &options, &others[6], &test_error) ==
            0);
    options = (embps_table_options_t)EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = D;
    options.optimizer = "adagrad";
    options.pull_format = options.push_format = "int8";
    REQUIRE(embps_table_open(client, "rows in 8 bits", &options, &others[7], &test_error) == 0);
}

/* What the servers must have made of a push with sgd. */
static void model_push(float (*rows)[D], embps_push_kind_t kind, const size_t *indexes, size_t n,
                       const float (*values)[D], float rate)
{
    static float sums[BATCH][D];
    for (size_t i = 0; i < n; i++) {
        size_t first = 0;
        while (indexes[first] != indexes[i])
            first++;
        for (size_t c = 0; c < D; c++)
            sums[first][c] =
                first == i || kind == EMBPS_ASSIGN ? values[i][c] : sums[first][c] + values[i][c];
    }
    for (size_t i = 0; i < n; i++) {
        size_t first = 0;
        while (indexes[first] != indexes[i])
            first++;
        for (size_t c = 0; first == i && c < D; c++) {
            float *weight = &rows[indexes[i]][c];
            if (kind == EMBPS_ASSIGN)
                *weight = sums[i][c];
            else if (kind == EMBPS_DELTA)
                *weight += sums[i][c];
            else
                *weight -= rate * sums[i][c];
        }
    }
}

/* A pull that is started before the next push and waited for after it. */
typedef struct pending {
    embps_request_t *request;
    size_t n;
    float got[BATCH][D];
    float expected[BATCH][D];
} pending_t;

static void settle(pending_t *pull)
{
    if (pull->request == NULL)
        return;
    REQUIRE(embps_wait(pull->request, &test_error) == 0);
    REQUIRE(memcmp(pull->got, pull->expected, pull->n * sizeof pull->got[0]) == 0);
    pull->request = NULL;
}

static void run_calls(embps_client_t *client, embps_table_t *table, embps_table_t *others[N_OTHERS],
                      float (*rows)[D], size_t n_ids)
{
    static pending_t pull;
    random_t random = {.key = 99};
    for (int call = 0; call < CALLS; call++) {
        size_t indexes[BATCH];
        uint64_t ids[BATCH];
        static float values[BATCH][D];
        size_t n = below(&random, BATCH);
        for (size_t i = 0; i < n; i++) {
            indexes[i] = below(&random, n_ids);
            ids[i] = id_of(indexes[i]);
            for (size_t c = 0; c < D; c++)
                values[i][c] = value(&random);
        }
        embps_push_kind_t kind = (embps_push_kind_t)below(&random, 3);
        float rate = value(&random);
        settle(&pull);
        pull.n = n;
        for (size_t i = 0; i < n; i++)
            memcpy(pull.expected[i], rows[indexes[i]], sizeof rows[0]);
        REQUIRE(embps_pull_start(table, ids, n, &pull.got[0][0], &pull.request, &test_error) == 0);
        REQUIRE(embps_push(table, kind, ids, n, &values[0][0], rate, &test_error) == 0);
        for (size_t t = 0; t < N_OTHERS; t++)
            REQUIRE(embps_push(others[t], call % 8 != 7 ? EMBPS_GRADIENT : EMBPS_DELTA, ids, n,
                               &values[0][0], rate, &test_error) == 0);
        model_push(rows, kind, indexes, n, values, rate);
        uint64_t progress;
        if (call % 8 == 0)
            REQUIRE(embps_clock(client, 0, &progress, &test_error) == 0);
    }
    settle(&pull);
}

static void run_one(embps_client_t *client, size_t n_ids, const char *path)
{
    embps_table_t *table = open_table(client, "rows", "sgd");
    embps_table_t *others[N_OTHERS];
    open_others(client, others);
    uint64_t *ids = psc_alloc_array(n_ids, sizeof *ids);
    float(*rows)[D] = psc_alloc_array(n_ids, sizeof *rows);
    float(*got)[D] = psc_alloc_array(n_ids, sizeof *got);
    uint8_t *states = psc_alloc(n_ids);
    REQUIRE(ids != NULL && rows != NULL && got != NULL && states != NULL);
    for (size_t i = 0; i < n_ids; i++)
        ids[i] = id_of(i);
    REQUIRE(embps_pull(table, ids, n_ids, &rows[0][0], &test_error) == 0);
    run_calls(client, table, others, rows, n_ids);
    REQUIRE(embps_pull(table, ids, n_ids, &got[0][0], &test_error) == 0);
    REQUIRE(memcmp(got, rows, n_ids * sizeof *rows) == 0);
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL);
    REQUIRE(fwrite(got, sizeof *got, n_ids, file) == n_ids);
    for (size_t t = 0; t < N_OTHERS; t++) {
        REQUIRE(embps_pull_states(others[t], ids, n_ids, &got[0][0], states, EMBPS_PULL_SCAN,
                                  &test_error) == 0);
        REQUIRE(fwrite(got, sizeof *got, n_ids, file) == n_ids);
        REQUIRE(fwrite(states, 1, n_ids, file) == n_ids);
    }
    REQUIRE(fclose(file) == 0);
    psc_free(ids);
    psc_free(states);
    psc_free(rows);
    psc_free(got);
}

/* Shared rows count all workers' pushes; rows of one's own hold one's own sums bit for bit. */
static void run_many(embps_client_t *client, size_t n_ids)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    const uint32_t rank = embps_worker_rank(client);
    const uint32_t n_workers = embps_worker_count(client);
    enum { ROUNDS = 25 };
    options.dim = D;
    REQUIRE(embps_table_open(client, "many", &options, &table, &test_error) == 0);
    embps_set_staleness(client, 0);
    random_t random = {.key = rank};
    float mine[D] = {0};
    uint64_t *ids = psc_alloc_array(n_ids + 1, sizeof *ids);
    float(*rows)[D] = psc_alloc_array(n_ids + 1, sizeof *rows);
    REQUIRE(ids != NULL && rows != NULL);
    for (size_t i = 0; i < n_ids; i++)
        ids[i] = i;
    ids[n_ids] = UINT64_MAX - rank;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (size_t c = 0; c < D; c++) {
            for (size_t i = 0; i < n_ids; i++)
                rows[i][c] = 1.0F;
            rows[n_ids][c] = value(&random);
            mine[c] += rows[n_ids][c];
        }
        REQUIRE(embps_push(table, EMBPS_DELTA, ids, n_ids + 1, &rows[0][0], 0, &test_error) == 0);
        uint64_t total = 0;
        REQUIRE(embps_clock(client, round, &total, &test_error) == 0);
        REQUIRE(total >= round && total <= (uint64_t)ROUNDS * n_workers);
        REQUIRE(embps_pull(table, ids, n_ids + 1, &rows[0][0], &test_error) == 0);
        for (size_t i = 0; i < n_ids; i++) {
            REQUIRE(rows[i][0] >= (float)(n_workers * round));
            REQUIRE(rows[i][D - 1] <= (float)(n_workers * (round + 1)));
        }
        REQUIRE(memcmp(rows[n_ids], mine, sizeof mine) == 0);
    }
    REQUIRE(embps_barrier(client, &test_error) == 0);
    REQUIRE(embps_pull(table, ids, n_ids, &rows[0][0], &test_error) == 0);
    for (size_t i = 0; i < n_ids; i++)
        REQUIRE(rows[i][D / 2] == (float)(n_workers * ROUNDS));
    REQUIRE(embps_barrier(client, &test_error) == 0);
    psc_free(ids);
    psc_free(rows);
}

static float held_value(uint64_t id, size_t column)
{
    return (float)(psc_mix64(id) & 0xffff) + (float)column;
}

static void run_hold(embps_client_t *client, size_t n_ids, const char *folder, uint32_t dim)
{
    char path[4096];
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = dim;
    REQUIRE(embps_table_open(client, "held", &options, &table, &test_error) == 0);
    uint64_t *ids = psc_alloc_array(n_ids, sizeof *ids);
    float *rows = psc_alloc_array(n_ids, dim * sizeof *rows);
    REQUIRE(ids != NULL && rows != NULL);
    for (size_t i = 0; i < n_ids; i++) {
        ids[i] = (uint64_t)embps_worker_rank(client) << 32 | i;
        for (size_t c = 0; c < dim; c++)
            rows[i * dim + c] = held_value(ids[i], c);
    }
    REQUIRE(embps_push(table, EMBPS_ASSIGN, ids, n_ids, rows, 0, &test_error) == 0);
    (void)snprintf(path, sizeof path, "%s/ready-%u", folder, embps_worker_rank(client));
    FILE *ready = fopen(path, "w");
    REQUIRE(ready != NULL && fclose(ready) == 0);
    (void)snprintf(path, sizeof path, "%s/go", folder);
    while (access(path, F_OK) != 0)
        psc_clock_sleep_us(10000);
    for (uint32_t flags = 0; flags <= EMBPS_PULL_SCAN; flags += EMBPS_PULL_SCAN) {
        memset(rows, 0, n_ids * dim * sizeof *rows);
        REQUIRE(embps_pull_states(table, ids, n_ids, rows, NULL, flags, &test_error) == 0);
        for (size_t i = 0; i < n_ids; i++) {
            for (size_t c = 0; c < dim; c++)
                REQUIRE(rows[i * dim + c] == held_value(ids[i], c));
        }
    }
    psc_free(ids);
    psc_free(rows);
}

static float target(uint64_t id, size_t column)
{
    return 2 * psc_rng_unit((uint32_t)psc_mix64(id + column)) - 1;
}

/* One pass over all rows; the mean square of their distance before it. */
static double train_pass(embps_table_t *table, size_t n_ids, size_t dim, float *rows)
{
    enum { STEP = 64 };
    uint64_t ids[STEP];
    double squares = 0;
    for (size_t at = 0; at < n_ids; at += STEP) {
        size_t n = n_ids - at < STEP ? n_ids - at : STEP;
        for (size_t i = 0; i < n; i++)
            ids[i] = id_of(at + i);
        REQUIRE(embps_pull(table, ids, n, rows, &test_error) == 0);
        for (size_t i = 0; i < n; i++) {
            for (size_t c = 0; c < dim; c++) {
                rows[i * dim + c] -= target(ids[i], c);
                squares += (double)rows[i * dim + c] * (double)rows[i * dim + c];
            }
        }
        REQUIRE(embps_push(table, EMBPS_GRADIENT, ids, n, rows, 0.3f, &test_error) == 0);
    }
    return squares / ((double)n_ids * (double)dim);
}

static void run_train(embps_client_t *client, size_t n_ids, uint32_t dim, size_t n_passes,
                      const char *precision)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = dim;
    options.init = "normal";
    options.optimizer = "rowwise_adagrad";
    options.precision = precision;
    REQUIRE(embps_table_open(client, "wide", &options, &table, &test_error) == 0);
    float *rows = psc_alloc_array((size_t)64 * dim, sizeof *rows);
    REQUIRE(rows != NULL);
    double first = 0;
    double last = 0;
    for (size_t pass = 0; pass < n_passes; pass++) {
        uint64_t start = psc_clock_us();
        last = train_pass(table, n_ids, dim, rows);
        if (pass == 0)
            first = last;
        printf("pass %zu: mean square distance %.5f, %.0f rows/s\n", pass, last,
               (double)n_ids * 1e6 / (double)(psc_clock_us() - start));
    }
    REQUIRE(last < 0.1 * first);
    psc_free(rows);
}

static void count(void *context, const char *name, uint64_t counted)
{
    uint64_t *sum = context;
    if (strcmp(name, "client.pulls") == 0)
        *sum += counted;
}

/* Makes a file in a folder, by which a script knows how far this is. */
static void mark(const char *folder, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL && fclose(file) == 0);
}

static void await(const char *folder, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    while (access(path, F_OK) != 0)
        psc_clock_sleep_us(10000);
}

static long max_rss_kib(void)
{
    struct rusage usage;
    REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss;
}

enum { WIDE = 256, FLOOD = 100 };

/* A table of IDS rows of a KiB, all set to 1. */
static embps_table_t *open_wide(embps_client_t *client, uint64_t *ids, float *rows, size_t n)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = WIDE;
    REQUIRE(embps_table_open(client, "wide", &options, &table, &test_error) == 0);
    for (size_t i = 0; i < n; i++)
        ids[i] = i;
    for (size_t i = 0; i < n * WIDE; i++)
        rows[i] = 1;
    REQUIRE(embps_push(table, EMBPS_ASSIGN, ids, n, rows, 0, &test_error) == 0);
    return table;
}

/* Pushes a hundred times IDS KiB without waiting; the first error of any push, and how many were
 * answered. */
static int flood(embps_table_t *table, const uint64_t *ids, size_t n, const float *rows,
                 size_t *n_answered_out)
{
    static embps_request_t *requests[FLOOD];
    int first = 0;
    *n_answered_out = 0;
    for (size_t k = 0; k < FLOOD; k++)
        REQUIRE(embps_push_start(table, EMBPS_DELTA, ids, n, rows, 0, &requests[k], &test_error) ==
                0);
    for (size_t k = 0; k < FLOOD; k++) {
        embps_error_t error;
        int code = embps_wait(requests[k], &error);
        *n_answered_out += code == 0;
        if (code != 0 && first == 0) {
            first = code;
            test_error = error;
        }
    }
    return first;
}

/* What is there in time; the rest is told to be late. Returns how many are there. */
static size_t pull_in_time(embps_table_t *table, const uint64_t *ids, size_t n_ids, float *rows,
                           uint8_t *states, uint32_t within_ms)
{
    const uint64_t start_us = psc_clock_us();
    REQUIRE(embps_pull_within(table, ids, n_ids, rows, states, 0, within_ms, &test_error) == 0);
    printf("a pull within %u ms took %llu ms\n", (unsigned)within_ms,
           (unsigned long long)(psc_clock_us() - start_us) / 1000);
    size_t n_there = 0;
    for (size_t i = 0; i < n_ids; i++) {
        REQUIRE(states[i] == EMBPS_ROW_PRESENT || states[i] == EMBPS_ROW_LATE);
        n_there += states[i] == EMBPS_ROW_PRESENT;
    }
    return n_there;
}

/* Rows that were 1 before a flood: each push that was answered counts once, each other one once or
 * not at all. */
static void check_counted(const float *rows, size_t n, size_t n_answered)
{
    for (size_t i = 0; i < n; i++) {
        const float value = rows[i * WIDE];
        for (size_t c = 1; c < WIDE; c++)
            REQUIRE(rows[i * WIDE + c] == value);
        REQUIRE(value == (float)(size_t)value);
        REQUIRE(value >= (float)(1 + n_answered) && value <= 1 + FLOOD);
    }
}

static void note_account(void *context, const char *name, uint64_t value)
{
    uint64_t *account = context;
    if (strcmp(name, "workers.rows") == 0)
        account[0] = value;
    if (strcmp(name, "workers.rows_applied") == 0)
        account[1] = value;
}

static void run_stopped(embps_client_t *client, size_t n_ids, const char *folder)
{
    uint64_t *ids = psc_alloc_array(n_ids, sizeof *ids);
    float *rows = psc_alloc_array(n_ids, WIDE * sizeof *rows);
    uint8_t *states = psc_alloc(n_ids);
    REQUIRE(ids != NULL && rows != NULL && states != NULL);
    embps_table_t *table = open_wide(client, ids, rows, n_ids);
    mark(folder, "ready");
    await(folder, "go");
    size_t n_there = 0;
    /* On a busy machine the other server may take longer. */
    for (uint32_t within_ms = 50; within_ms <= 12800 && n_there <= n_ids / 4; within_ms *= 4)
        n_there = pull_in_time(table, ids, n_ids, rows, states, within_ms);
    REQUIRE(n_there > n_ids / 4 && n_there < n_ids * 3 / 4);
    for (size_t i = 0, there = 0; i < n_ids; i++) {
        if (states[i] == EMBPS_ROW_PRESENT)
            ids[there++] = i;
    }
    embps_set_timeout(client, 5000);
    for (size_t i = n_there, late = 0; i < n_ids; late++) {
        if (states[late] == EMBPS_ROW_LATE)
            ids[i++] = late;
    }
    for (size_t i = 0; i < n_ids * WIDE; i++)
        rows[i] = 1;
    long before_kib = max_rss_kib();
    size_t n_answered;
    REQUIRE(flood(table, ids, n_ids, rows, &n_answered) == EMBPS_TIMEOUT);
    printf("%s; %ld KiB more\n", test_error.message, max_rss_kib() - before_kib);
    REQUIRE(test_error.rank == 1);
    REQUIRE(strncmp(test_error.message, "server 1 (host ", 15) == 0);
    REQUIRE(strstr(test_error.message, "has not answered for 5 s") != NULL);
    REQUIRE(getenv("EMBPS_TEST_SANITIZER") != NULL || max_rss_kib() - before_kib < 96 * 1024);
    REQUIRE(embps_pull(table, ids, n_there, rows, &test_error) == 0); /* of the other server */
    mark(folder, "told");
    embps_set_timeout(client, 60000);
    REQUIRE(embps_pull(table, ids, n_ids, rows, &test_error) == 0);
    check_counted(rows, n_there, FLOOD);
    check_counted(rows + n_there * WIDE, n_ids - n_there, n_answered);
    uint64_t account[2] = {0, 0};
    REQUIRE(embps_clock(client, 0, NULL, &test_error) == 0);
    REQUIRE(embps_stats(client, note_account, account, &test_error) == 0);
    printf("%zu of %d pushes answered in time, %.0f counted at the stopped server; %llu rows, "
           "%llu applied\n",
           n_answered, FLOOD, (double)rows[n_there * WIDE] - 1, (unsigned long long)account[0],
           (unsigned long long)account[1]);
    REQUIRE(account[0] != 0 && account[0] == account[1]);
    REQUIRE(embps_barrier(client, &test_error) == 0);
    psc_free(ids);
    psc_free(rows);
    psc_free(states);
}

static void run_reader(embps_client_t *client, size_t n_ids, const char *folder)
{
    enum { PULLS = 64 };
    embps_request_t *requests[PULLS];
    char name[64];
    uint64_t *ids = psc_alloc_array(n_ids, sizeof *ids);
    float *rows = psc_alloc_array(n_ids, WIDE * sizeof *rows);
    REQUIRE(ids != NULL && rows != NULL);
    embps_table_t *table = open_wide(client, ids, rows, n_ids);
    REQUIRE(embps_barrier(client, &test_error) == 0);
    for (size_t k = 0; k < PULLS; k++)
        REQUIRE(embps_pull_start(table, ids, n_ids, rows, &requests[k], &test_error) == 0);
    (void)snprintf(name, sizeof name, "ready-%u", embps_worker_rank(client));
    mark(folder, name);
    await(folder, "go");
    for (size_t k = 0; k < PULLS; k++)
        REQUIRE(embps_wait(requests[k], &test_error) == 0);
    for (size_t i = 0; i < n_ids * WIDE; i++)
        REQUIRE(rows[i] == 1);
    psc_free(ids);
    psc_free(rows);
}

static void run_refused(embps_client_t *client)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    (void)open_table(client, "rows", "sgd");
    options.dim = D + 1;
    options.init = "normal";
    options.seed = 17;
    REQUIRE(embps_table_open(client, "rows", &options, &table, &test_error) == EMBPS_MISMATCH);
    REQUIRE(strstr(test_error.message, "13") != NULL && strstr(test_error.message, "14") != NULL);
    options.optimizer = "nothing";
    REQUIRE(embps_table_open(client, "other", &options, &table, &test_error) ==
            EMBPS_INVALID_ARGUMENT);
    REQUIRE(strstr(test_error.message, "nothing") != NULL);
    table = open_table(client, "rows", "sgd");
    uint64_t id = 3;
    float row[D];
    REQUIRE(embps_pull(table, &id, 1, row, &test_error) == 0);
    uint64_t pulls = 0;
    REQUIRE(embps_stats(client, count, &pulls, &test_error) == 0);
    REQUIRE(pulls == 1);
}

/* data: of a local server; NULL: over MPI. */
static void connect(const char *data, embps_client_t **client_out)
{
    if (data != NULL) {
        embps_local_options_t options = EMBPS_LOCAL_OPTIONS_DEFAULT;
        options.data = data;
        options.memory_bytes = (uint64_t)16 << 20;
        REQUIRE(embps_connect_local(&options, client_out, &test_error) == 0);
    } else {
        MPI_Comm comm = MPI_COMM_WORLD;
        REQUIRE(embps_connect_mpi(&comm, client_out, &test_error) == 0);
    }
    if (getenv("EMBPS_TEST_DIRECT") != NULL) {
        uint32_t n = 0;
        REQUIRE(embps_set_direct(*client_out, true, &n, &test_error) == 0);
        REQUIRE(n == embps_server_count(*client_out));
    }
}

static void count_direct(void *context, const char *name, uint64_t counted)
{
    uint64_t *sum = context;
    if (strcmp(name, "client.rows_direct") == 0)
        *sum += counted;
}

/* That some rows did not come by messages. */
static void check_direct(embps_client_t *client)
{
    uint64_t rows = 0;
    if (getenv("EMBPS_TEST_DIRECT") == NULL)
        return;
    REQUIRE(embps_stats(client, count_direct, &rows, &test_error) == 0);
    REQUIRE(rows != 0);
}

static void run_alone(void)
{
    MPI_Comm comm = MPI_COMM_WORLD;
    embps_client_t *client = NULL;
    REQUIRE(embps_connect_mpi(&comm, &client, &test_error) == EMBPS_INVALID_ARGUMENT);
    REQUIRE(strstr(test_error.message, "server") != NULL);
    REQUIRE(embps_connect_mpi(NULL, &client, &test_error) == EMBPS_INVALID_ARGUMENT);
}

int main(int argc, char **argv)
{
    int provided;
    const char *mode = argc > 1 ? argv[1] : "";
    const bool local = argc > 4 && strcmp(mode, "one") == 0;
    if (!local)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    embps_client_t *client = NULL;
    const size_t n_ids = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 1;
    if (n_ids == 0)
        stop("IDS must be above 0", __LINE__);
    if (strcmp(mode, "alone") == 0) {
        run_alone();
        MPI_Finalize();
        return 0;
    }
    while (strcmp(mode, "absent") == 0)
        (void)pause();
    connect(local ? argv[4] : NULL, &client);
    if (strcmp(mode, "one") == 0 && argc > 3)
        run_one(client, n_ids, argv[3]);
    else if (strcmp(mode, "hold") == 0 && argc > 3)
        run_hold(client, n_ids, argv[3], argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : D);
    else if (strcmp(mode, "train") == 0 && argc > 5)
        run_train(client, n_ids, (uint32_t)strtoul(argv[3], NULL, 10),
                  (size_t)strtoul(argv[4], NULL, 10), argv[5]);
    else if (strcmp(mode, "stopped") == 0 && argc > 3)
        run_stopped(client, n_ids, argv[3]);
    else if (strcmp(mode, "reader") == 0 && argc > 3)
        run_reader(client, n_ids, argv[3]);
    else if (strcmp(mode, "many") == 0)
        run_many(client, n_ids);
    else
        run_refused(client);
    check_direct(client);
    uint64_t sent;
    uint64_t received;
    embps_traffic(client, &sent, &received);
    REQUIRE(sent > 0 && received > 0);
    REQUIRE(embps_close(client, &test_error) == 0);
    if (!local)
        MPI_Finalize();
    return 0;
}
