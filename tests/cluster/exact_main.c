/*
 * A worker of a test job that counts: exact_main PUSHES
 *
 * Every worker pushes PUSHES gradients of 1 to the same few rows of zeros, which sgd at rate 1
 * applies, with a window of them under way, and reads the rows all along. At the end each component
 * of each row must be exactly minus the number of all pushes; numbers up to 2^24 are exact in
 * float32, and so is every step towards them. Of what is read on the way must hold:
 *
 *     all components of a row are equal: no reader sees a half-made change
 *     a whole number, never above what this worker read before
 *     this worker's pushes up to the read are in it, and none of its later ones
 */
#include "embps.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { D = 37, ROWS = 4, WINDOW = 32, READ_EVERY = 8 };

#define REQUIRE(condition) require((condition), #condition, __LINE__)

static embps_error_t test_error;

static void require(bool holds, const char *condition, int line)
{
    if (holds)
        return;
    (void)fprintf(stderr, "exact_main:%d: %s (%s)\n", line, condition,
                  test_error.code != 0 ? test_error.message : "no error");
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* A read under way, and what this worker had pushed when it was issued. */
typedef struct reading {
    embps_request_t *request;
    double pushed;
    float rows[ROWS][D];
} reading_t;

/* Ends a read: total is what all workers will have pushed, each what one will, last what was read
 * before. */
static void settle(reading_t *reading, double total, double each, float last[ROWS])
{
    if (reading->request == NULL)
        return;
    REQUIRE(embps_wait(reading->request, &test_error) == 0);
    reading->request = NULL;
    for (size_t r = 0; r < ROWS; r++) {
        const float value = reading->rows[r][0];
        for (size_t c = 1; c < D; c++)
            REQUIRE(reading->rows[r][c] == value);
        REQUIRE(value == (float)(long)value);
        REQUIRE(value <= last[r]);
        REQUIRE((double)-value >= reading->pushed);
        REQUIRE((double)-value <= total - each + reading->pushed);
        last[r] = value;
    }
}

static void run(embps_client_t *client, size_t n_pushes)
{
    static reading_t readings[2];
    static float ones[ROWS][D];
    static float rows[ROWS][D];
    const uint64_t ids[ROWS] = {0, 7, 1000000007, UINT64_MAX};
    const double each = (double)n_pushes;
    const double total = each * embps_worker_count(client);
    embps_request_t *pushes[WINDOW] = {NULL};
    float last[ROWS] = {0};
    embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_table_t *table = NULL;
    options.dim = D;
    REQUIRE(embps_table_open(client, "counts", &options, &table, &test_error) == 0);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < D; c++)
            ones[r][c] = 1;
    }
    for (size_t i = 0; i < n_pushes; i++) {
        embps_request_t **push = &pushes[i % WINDOW];
        REQUIRE(embps_wait(*push, &test_error) == 0);
        *push = NULL;
        REQUIRE(embps_push_start(table, EMBPS_GRADIENT, ids, ROWS, &ones[0][0], 1, push,
                                 &test_error) == 0);
        if (i % READ_EVERY != 0)
            continue;
        reading_t *reading = &readings[i / READ_EVERY % 2];
        settle(reading, total, each, last);
        reading->pushed = (double)(i + 1);
        REQUIRE(embps_pull_start(table, ids, ROWS, &reading->rows[0][0], &reading->request,
                                 &test_error) == 0);
    }
    for (size_t i = 0; i < WINDOW; i++)
        REQUIRE(embps_wait(pushes[i], &test_error) == 0);
    const size_t next = (n_pushes + READ_EVERY - 1) / READ_EVERY % 2; /* the older one first */
    settle(&readings[next], total, each, last);
    settle(&readings[1 - next], total, each, last);
    REQUIRE(embps_barrier(client, &test_error) == 0);
    REQUIRE(embps_pull(table, ids, ROWS, &rows[0][0], &test_error) == 0);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < D; c++)
            REQUIRE((double)rows[r][c] == -total);
    }
    if (embps_worker_rank(client) == 0)
        printf("each component is %.1f\n", (double)rows[0][0]);
}

int main(int argc, char **argv)
{
    int provided;
    embps_client_t *client = NULL;
    const size_t n_pushes = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) : 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm comm = MPI_COMM_WORLD;
    REQUIRE(n_pushes > 0);
    REQUIRE(embps_connect_mpi(&comm, &client, &test_error) == 0);
    run(client, n_pushes);
    REQUIRE(embps_close(client, &test_error) == 0);
    MPI_Finalize();
    return 0;
}
