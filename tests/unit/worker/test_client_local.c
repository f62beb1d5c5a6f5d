/* The public calls over a server in this process, against a dictionary. */
#include "embps.h"

#include "common/alloc.h"
#include "worker/client_state.h"

#include "tests/support/cmocka.h"
#include "tests/support/scratch.h"
#include "tests/support/test_seed.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

enum { D = 7, IDS = 300, N = 150 };

typedef struct fixture {
    char *folder;
    embps_client_t *client;
    embps_table_t *table;
} fixture_t;

/* Ids that a dictionary index stands for; 0 and 2^64 - 1 among them. */
static uint64_t id_of(size_t index)
{
    return index == 1 ? UINT64_MAX : psc_mix64(index);
}

static embps_local_options_t local_options(const char *folder, uint32_t n_workers)
{
    embps_local_options_t options = EMBPS_LOCAL_OPTIONS_DEFAULT;
    options.data = folder;
    options.memory_bytes = (uint64_t)16 << 20;
    options.n_workers = n_workers;
    return options;
}

static embps_table_t *open_table(embps_client_t *client, const char *name, uint32_t dim)
{
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    embps_error_t error;
    options.dim = dim;
    options.init = "word2vec";
    if (embps_table_open(client, name, &options, &table, &error) != 0)
        fail_msg("%s", error.message);
    return table;
}

static fixture_t fixture_open(void)
{
    fixture_t f = {.folder = test_scratch_create()};
    const embps_local_options_t options = local_options(f.folder, 1);
    embps_error_t error;
    if (embps_connect_local(&options, &f.client, &error) != 0)
        fail_msg("%s", error.message);
    f.table = open_table(f.client, "words", D);
    return f;
}

static void fixture_close(fixture_t *f)
{
    assert_int_equal(embps_close(f->client, NULL), 0);
    test_scratch_destroy(f->folder);
}

/* ---- the model: what a table holds after the calls made so far ---- */

typedef struct model {
    float rows[IDS][D];
} model_t;

static void model_push(model_t *model, embps_push_kind_t kind, const size_t *indexes, size_t n,
                       float (*rows)[D], float rate)
{
    float sums[IDS][D];
    bool seen[IDS] = {false};
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < D; c++)
            sums[indexes[i]][c] = kind != EMBPS_ASSIGN && seen[indexes[i]]
                                      ? sums[indexes[i]][c] + rows[i][c]
                                      : rows[i][c];
        seen[indexes[i]] = true;
    }
    for (size_t k = 0; k < IDS; k++) {
        for (size_t c = 0; seen[k] && c < D; c++) {
            if (kind == EMBPS_ASSIGN)
                model->rows[k][c] = sums[k][c];
            else if (kind == EMBPS_DELTA)
                model->rows[k][c] += sums[k][c];
            else
                model->rows[k][c] -= rate * sums[k][c];
        }
    }
}

static void model_start(model_t *model, embps_table_t *table)
{
    uint64_t ids[IDS];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = id_of(i);
    assert_int_equal(embps_pull(table, ids, IDS, &model->rows[0][0], NULL), 0);
}

static size_t random_batch(test_random_t *random, size_t *indexes, uint64_t *ids, float (*rows)[D])
{
    size_t n = test_below(random, N + 1);
    for (size_t i = 0; i < n; i++) {
        indexes[i] = test_below(random, IDS);
        ids[i] = id_of(indexes[i]);
        for (size_t c = 0; c < D; c++)
            rows[i][c] = test_float(random);
    }
    return n;
}

static void an_unseen_row_has_its_initial_value(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    const uint64_t ids[3] = {0, UINT64_MAX, 0};
    float rows[3][D];
    float again[3][D];
    assert_int_equal(embps_pull(f.table, ids, 3, &rows[0][0], NULL), 0);
    assert_memory_equal(rows[0], rows[2], sizeof rows[0]);
    assert_memory_not_equal(rows[0], rows[1], sizeof rows[0]);
    assert_int_equal(embps_pull(f.table, ids, 3, &again[0][0], NULL), 0);
    assert_memory_equal(rows, again, sizeof rows);
    assert_int_equal(embps_table_dim(f.table), D);
    assert_int_equal(embps_worker_count(f.client), 1);
    assert_int_equal(embps_server_count(f.client), 1);
    assert_int_equal(embps_worker_rank(f.client), 0);
    assert_string_equal(embps_version(), "0.1.0");
    fixture_close(&f);
}

static void rows_match_a_dictionary_bit_for_bit(void **state)
{
    (void)state;
    enum { CALLS = 16 };
    static float got[CALLS][N][D];
    static model_t before[CALLS];
    static model_t model;
    test_random_t random = test_random_start();
    fixture_t f = fixture_open();
    model_start(&model, f.table);
    for (int round = 0; round < 40; round++) {
        embps_request_t *requests[CALLS];
        size_t pulled[CALLS][N];
        size_t n_pulled[CALLS] = {0};
        for (size_t k = 0; k < CALLS; k++) {
            size_t indexes[N];
            uint64_t ids[N];
            float rows[N][D];
            size_t n = random_batch(&random, indexes, ids, rows);
            embps_error_t error;
            int code;
            if (test_below(&random, 2) == 0) {
                before[k] = model;
                memcpy(pulled[k], indexes, sizeof indexes);
                n_pulled[k] = n;
                code = embps_pull_start(f.table, ids, n, &got[k][0][0], &requests[k], &error);
            } else {
                embps_push_kind_t kind = (embps_push_kind_t)test_below(&random, 3);
                float rate = test_float(&random);
                model_push(&model, kind, indexes, n, rows, rate);
                code = embps_push_start(f.table, kind, ids, n, &rows[0][0], rate, &requests[k],
                                        &error);
                memset(rows, 0xff, sizeof rows); /* the call has copied them */
            }
            if (code != 0)
                fail_msg("%s", error.message);
        }
        for (size_t k = 0; k < CALLS; k++) { /* in any order */
            size_t at = test_below(&random, CALLS);
            bool done;
            if (requests[at] != NULL)
                assert_int_equal(embps_test(requests[at], &done, NULL), 0);
            assert_int_equal(embps_wait(requests[at], NULL), 0);
            requests[at] = NULL;
        }
        for (size_t k = 0; k < CALLS; k++) {
            assert_int_equal(embps_wait(requests[k], NULL), 0);
            for (size_t i = 0; i < n_pulled[k]; i++)
                assert_memory_equal(got[k][i], before[k].rows[pulled[k][i]], sizeof got[k][i]);
        }
    }
    fixture_close(&f);
}

static void a_batch_larger_than_all_windows_passes(void **state)
{
    (void)state;
    enum { MANY = 50000, DIM = 64 };
    fixture_t f = fixture_open();
    embps_table_t *table = open_table(f.client, "wide", DIM);
    uint64_t *ids = calloc(MANY, sizeof *ids);
    float *rows = calloc((size_t)MANY * DIM, sizeof *rows);
    float *got = calloc((size_t)MANY * DIM, sizeof *got);
    assert_true(ids != NULL && rows != NULL && got != NULL);
    for (size_t i = 0; i < MANY; i++) {
        ids[i] = i;
        for (size_t c = 0; c < DIM; c++)
            rows[i * DIM + c] = (float)(i * 3 + c);
    }
    embps_error_t error;
    if (embps_push(table, EMBPS_ASSIGN, ids, MANY, rows, 0, &error) != 0 ||
        embps_pull(table, ids, MANY, got, &error) != 0)
        fail_msg("%s", error.message);
    assert_memory_equal(got, rows, (size_t)MANY * DIM * sizeof *rows);
    free(ids);
    free(rows);
    free(got);
    fixture_close(&f);
}

static void fill_row(void *context, size_t i, float *row)
{
    (*(size_t *)context)++;
    for (size_t c = 0; c < D; c++)
        row[c] = (float)(10 * i + c);
}

static void the_fast_paths_read_and_write_what_the_others_do(void **state)
{
    (void)state;
    enum { STRIDE = 16 };
    fixture_t f = fixture_open();
    uint64_t ids[IDS];
    float got[IDS][STRIDE];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = id_of(i);
    for (size_t i = 0; i < IDS; i++) {
        for (size_t c = 0; c < STRIDE; c++)
            got[i][c] = -1.0F;
    }
    size_t filled = 0;
    embps_request_t *push;
    embps_request_t *pull;
    psc_error_t error = PSC_ERROR_INIT;
    assert_int_equal(
        psw_push_fill_start(f.table, EMBPS_ASSIGN, ids, IDS, fill_row, &filled, 0, &push, &error),
        PSC_OK);
    assert_int_equal(filled, IDS);
    assert_int_equal(psw_pull_strided_start(f.table, ids, IDS, &got[0][0], STRIDE, &pull, &error),
                     PSC_OK);
    assert_int_equal(embps_wait(push, NULL), 0);
    assert_int_equal(embps_wait(pull, NULL), 0);
    for (size_t i = 0; i < IDS; i++) {
        for (size_t c = 0; c < STRIDE; c++)
            assert_true(got[i][c] == (c < D ? (float)(10 * i + c) : -1.0F));
    }
    assert_int_equal(psw_pull_strided_start(f.table, ids, IDS, &got[0][0], D - 1, &pull, &error),
                     PSC_INVALID_ARGUMENT);
    fixture_close(&f);
}

static void wrong_calls_are_refused_in_words(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    embps_error_t error;
    embps_request_t *request;
    const uint64_t ids[3] = {4, 5, 6};
    float rows[3][D];
    memset(rows, 0, sizeof rows);
    assert_int_equal(embps_push(f.table, (embps_push_kind_t)3, ids, 3, &rows[0][0], 0, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_int_equal(embps_push(f.table, EMBPS_GRADIENT, ids, 3, &rows[0][0], NAN, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_int_equal(embps_push(f.table, EMBPS_DELTA, ids, 3, NULL, 0, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_int_equal(embps_pull_start(f.table, NULL, 3, &rows[0][0], &request, &error),
                     EMBPS_INVALID_ARGUMENT);
    rows[1][D - 1] = INFINITY;
    assert_int_equal(embps_push(f.table, EMBPS_DELTA, ids, 3, &rows[0][0], 0, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_int_equal(error.id, 5);
    assert_non_null(strstr(error.message, "id 5"));
    assert_int_equal(embps_push(f.table, EMBPS_DELTA, ids, 0, NULL, 0, NULL), 0);
    assert_int_equal(embps_pull(f.table, NULL, 0, NULL, NULL), 0);

    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table;
    assert_int_equal(embps_table_open(f.client, "x", &options, &table, &error),
                     EMBPS_INVALID_ARGUMENT); /* no dim */
    options.dim = 65537;
    assert_int_equal(embps_table_open(f.client, "x", &options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    options.dim = 3;
    assert_int_equal(embps_table_open(f.client, "", &options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    options.init = "none such";
    assert_int_equal(embps_table_open(f.client, "x", &options, &table, &error),
                     EMBPS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "none such"));
    options.init = "word2vec";
    assert_int_equal(embps_table_open(f.client, "words", &options, &table, &error), EMBPS_MISMATCH);
    assert_non_null(strstr(error.message, "7"));
    assert_non_null(strstr(error.message, "3"));
    options.dim = D;
    assert_int_equal(embps_table_open(f.client, "words", &options, &table, &error), 0);
    assert_ptr_equal(table, f.table);
    fixture_close(&f);
}

static void a_data_directory_serves_one_run(void **state)
{
    (void)state;
    embps_error_t error;
    embps_client_t *client = NULL;
    fixture_t f = fixture_open();
    embps_local_options_t options = local_options(f.folder, 1);
    int code = embps_connect_local(&options, &client, &error);
    assert_true(code == EMBPS_IN_USE || code == EMBPS_UNCLEAN);
    assert_true(strlen(error.message) > 10);
    assert_int_equal(embps_close(f.client, NULL), 0);
    code = embps_connect_local(&options, &client, &error);
    assert_int_equal(code, EMBPS_UNCLEAN);
    test_scratch_destroy(f.folder);

    options.data = NULL;
    assert_int_equal(embps_connect_local(&options, &client, &error), EMBPS_INVALID_ARGUMENT);
    options.data = "/proc/none";
    assert_int_not_equal(embps_connect_local(&options, &client, &error), 0);
    options.n_workers = 2;
    assert_int_equal(embps_connect_local(&options, &client, &error), EMBPS_INVALID_ARGUMENT);
    options.n_workers = 0;
    assert_int_equal(embps_connect_local_many(&options, &client, &error), EMBPS_INVALID_ARGUMENT);
    options = local_options("x", 1);
    options.memory_bytes = 1000;
    assert_int_equal(embps_connect_local(&options, &client, &error), EMBPS_INVALID_ARGUMENT);
    assert_int_equal(embps_close(NULL, NULL), 0);
    embps_abandon(NULL, 1);
}

static void close_finishes_what_is_under_way(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    uint64_t ids[IDS];
    static float rows[IDS][D];
    for (size_t i = 0; i < IDS; i++)
        ids[i] = id_of(i);
    for (int k = 0; k < 50; k++) {
        embps_request_t *request;
        assert_int_equal(
            embps_push_start(f.table, EMBPS_DELTA, ids, IDS, &rows[0][0], 0, &request, NULL), 0);
        assert_int_equal(embps_pull_start(f.table, ids, IDS, &rows[0][0], &request, NULL), 0);
    }
    /* the error of a request that nobody waited for is not lost */
    embps_table_t *table = open_table(f.client, "second", D);
    const uint32_t epoch = table->epochs[0]++;
    embps_request_t *refused;
    assert_int_equal(embps_pull_start(table, ids, IDS, &rows[0][0], &refused, NULL), 0);
    table->epochs[0] = epoch;
    embps_error_t error;
    assert_int_equal(embps_close(f.client, &error), EMBPS_MISMATCH);
    assert_int_equal(error.rank, 0);
    assert_memory_equal(error.message, "server 0: ", 10);
    test_scratch_destroy(f.folder);
    f = fixture_open(); /* and abandon waits for nothing */
    embps_request_t *request;
    assert_int_equal(embps_pull_start(f.table, ids, IDS, &rows[0][0], &request, NULL), 0);
    embps_abandon(f.client, 9);
    test_scratch_destroy(f.folder);
}

/* Whatever allocation fails on whichever thread: an error in words or a whole client, no hang. */
static void a_connection_short_of_memory_fails_clean(void **state)
{
    (void)state;
    enum { STRIDE = 3 };
    bool failed = true;
    for (unsigned long n = 1; failed; n += STRIDE) {
        char *folder = test_scratch_create();
        embps_local_options_t options = local_options(folder, 2);
        embps_client_t *clients[2] = {NULL, NULL};
        embps_error_t error = {0};
        psc_alloc_fail_at(n);
        int code = embps_connect_local_many(&options, clients, &error);
        failed = psc_alloc_count() >= n;
        psc_alloc_fail_at(0);
        if (code == 0) {
            for (size_t i = 0; i < 2; i++)
                assert_int_equal(embps_close(clients[i], NULL), 0);
        } else {
            assert_int_equal(code, EMBPS_NO_MEMORY);
            assert_true(strlen(error.message) > 5);
        }
        test_scratch_destroy(folder);
        assert_true(n < 5000);
    }
}

/* Files may not grow: the server ends with an error, which every later call of every client gets.
 */
static void a_server_that_cannot_write_ends_its_clients_in_words(void **state)
{
    (void)state;
    enum { WIDE = 64, MANY = 4000, MOST = 500 };
    char *folder = test_scratch_create();
    embps_local_options_t options = local_options(folder, 2);
    options.memory_bytes = (uint64_t)8 << 20;
    embps_client_t *clients[2];
    embps_error_t error;
    embps_error_t again;
    assert_int_equal(embps_connect_local_many(&options, clients, &error), 0);
    embps_table_t *table = open_table(clients[0], "wide", WIDE);
    embps_table_t *other = open_table(clients[1], "wide", WIDE);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    uint64_t ids[MANY];
    float *rows = calloc((size_t)MANY * WIDE, sizeof *rows);
    assert_non_null(rows);
    int code = 0;
    for (uint64_t k = 0; k < MOST && code == 0; k++) {
        for (size_t i = 0; i < MANY; i++)
            ids[i] = k * MANY + i;
        code = embps_push(table, EMBPS_ASSIGN, ids, MANY, rows, 0, &error);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_true(code == EMBPS_IO || code == EMBPS_DISK_FULL);
    assert_true(strlen(error.message) > 10);
    assert_int_equal(embps_pull(table, ids, 1, rows, &again), code);
    assert_int_equal(embps_pull(other, ids, 1, rows, &again), code);
    assert_int_equal(embps_barrier(clients[1], &again), code);
    assert_int_equal(embps_close(clients[0], &again), code);
    assert_int_equal(embps_close(clients[1], &again), code);
    assert_true(strlen(again.message) > 10);
    free(rows);
    test_scratch_destroy(folder);
}

typedef struct seen {
    uint64_t pulled, distinct, pushes, sent;
    size_t n;
} seen_t;

static void see(void *context, const char *name, uint64_t value)
{
    seen_t *seen = context;
    seen->n++;
    if (strcmp(name, "client.rows_pulled") == 0)
        seen->pulled = value;
    if (strcmp(name, "client.rows_pulled_distinct") == 0)
        seen->distinct = value;
    if (strcmp(name, "client.pushes") == 0)
        seen->pushes = value;
    if (strcmp(name, "client.bytes_sent") == 0)
        seen->sent = value;
}

static void statistics_count_calls_and_bytes(void **state)
{
    (void)state;
    fixture_t f = fixture_open();
    const uint64_t ids[4] = {1, 2, 2, 2};
    float rows[4][D];
    assert_int_equal(embps_pull(f.table, ids, 4, &rows[0][0], NULL), 0);
    assert_int_equal(embps_push(f.table, EMBPS_DELTA, ids, 4, &rows[0][0], 0, NULL), 0);
    seen_t seen = {0};
    assert_int_equal(embps_stats(f.client, see, &seen, NULL), 0);
    assert_int_equal(seen.pulled, 4);
    assert_int_equal(seen.distinct, 2);
    assert_int_equal(seen.pushes, 1);
    assert_true(seen.n > 10); /* the server's too */
    uint64_t sent;
    uint64_t received;
    embps_traffic(f.client, &sent, &received);
    assert_true(sent == seen.sent && received > 2 * D * sizeof(float));
    embps_traffic(f.client, NULL, NULL);
    fixture_close(&f);
}

/* ---- many clients ---- */

enum { WORKERS = 4, ROUNDS = 30 };

typedef struct worker {
    embps_client_t *client;
    uint64_t key;
    const char *failed; /* what did not hold */
} worker_t;

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return #condition;                                                                     \
    } while (0)

/* One round: adds 1 to a shared row and random values to a row of one's own, then looks at both. */
static const char *work_round(const worker_t *worker, embps_table_t *table, test_random_t *random,
                              uint64_t round, float *mine)
{
    const uint32_t rank = embps_worker_rank(worker->client);
    const uint64_t ids[2] = {42, 1000 + rank};
    float rows[2][D];
    float got[2][D];
    for (size_t c = 0; c < D; c++) {
        rows[0][c] = 1.0F;
        rows[1][c] = test_float(random);
        mine[c] += rows[1][c];
    }
    REQUIRE(embps_push(table, EMBPS_DELTA, ids, 2, &rows[0][0], 0, NULL) == 0);
    uint64_t total = 0;
    REQUIRE(embps_clock(worker->client, round * (rank + 1), &total, NULL) == 0);
    REQUIRE(total >= round * (rank + 1) && total <= 10 * ROUNDS);
    /* at staleness 0 the pull has every push of this round, and at most one of the next each */
    REQUIRE(embps_pull(table, ids, 2, &got[0][0], NULL) == 0);
    REQUIRE(got[0][0] >= (float)(WORKERS * round));
    REQUIRE(got[0][0] <= (float)(WORKERS * (round + 1)));
    REQUIRE(memcmp(got[1], mine, sizeof got[1]) == 0);
    return NULL;
}

static const char *work_all(const worker_t *worker)
{
    test_random_t random = {.key = worker->key};
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    options.dim = D;
    embps_table_t *table;
    REQUIRE(embps_table_open(worker->client, "shared", &options, &table, NULL) == 0);
    embps_set_staleness(worker->client, 0);
    float mine[D] = {0};
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        const char *failed = work_round(worker, table, &random, round, mine);
        if (failed != NULL)
            return failed;
    }
    REQUIRE(embps_barrier(worker->client, NULL) == 0);
    const uint64_t id = 42;
    float row[D];
    REQUIRE(embps_pull(table, &id, 1, row, NULL) == 0);
    REQUIRE(row[D - 1] == (float)(WORKERS * ROUNDS));
    REQUIRE(embps_barrier(worker->client, NULL) == 0);
    return NULL;
}

static void *work(void *context)
{
    worker_t *worker = context;
    worker->failed = work_all(worker);
    if (worker->failed != NULL)
        embps_abandon(worker->client, 1);
    else if (embps_close(worker->client, NULL) != 0)
        worker->failed = "embps_close";
    return NULL;
}

static void many_clients_share_one_server(void **state)
{
    (void)state;
    test_random_t random = test_random_start();
    char *folder = test_scratch_create();
    const embps_local_options_t options = local_options(folder, WORKERS);
    embps_client_t *clients[WORKERS];
    embps_error_t error;
    if (embps_connect_local_many(&options, clients, &error) != 0)
        fail_msg("%s", error.message);
    worker_t workers[WORKERS];
    pthread_t threads[WORKERS];
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (worker_t){.client = clients[i], .key = test_next(&random)};
        assert_int_equal(embps_worker_rank(clients[i]), i);
        assert_int_equal(embps_worker_count(clients[i]), WORKERS);
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (size_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < WORKERS; i++) {
        if (workers[i].failed != NULL)
            fail_msg("worker %zu: %s", i, workers[i].failed);
    }
    test_scratch_destroy(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unseen_row_has_its_initial_value),
        cmocka_unit_test(rows_match_a_dictionary_bit_for_bit),
        cmocka_unit_test(a_batch_larger_than_all_windows_passes),
        cmocka_unit_test(the_fast_paths_read_and_write_what_the_others_do),
        cmocka_unit_test(wrong_calls_are_refused_in_words),
        cmocka_unit_test(a_data_directory_serves_one_run),
        cmocka_unit_test(close_finishes_what_is_under_way),
        cmocka_unit_test(a_connection_short_of_memory_fails_clean),
        cmocka_unit_test(a_server_that_cannot_write_ends_its_clients_in_words),
        cmocka_unit_test(statistics_count_calls_and_bytes),
        cmocka_unit_test(many_clients_share_one_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
