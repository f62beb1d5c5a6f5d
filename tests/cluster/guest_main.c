/*
 * A client by address that keeps a record of what it pushed:
 *
 *     guest_main push ADDRESS RECORD NUMBER PUSHES TIMEOUT_MS
 *     guest_main check ADDRESS RECORD...
 *
 * push: adds 1 to row (NUMBER << 32 | i) for each i below PUSHES, a window of them under way.
 * RECORD is a file of PUSHES bytes that outlives a killed process: the state of each push. Where a
 * call times out, as when the server is stopped, it says so ("timeout") and goes on.
 *
 * check: RECORD I is that of NUMBER I. A row whose push was answered must be 1, one whose push was
 * not begun 0, any other 0 or 1: nothing is lost and nothing counts twice. Prints how many of
 * each.
 */
#include "embps.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { D = 4, WINDOW = 16, BATCH = 256 };
enum { NOT_BEGUN = 0, BEGUN = 1, ANSWERED = 2 };

static embps_error_t error;

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "guest_main: %s (%s)\n", what,
                  error.code != 0 ? error.message : "no error");
    exit(1);
}

/* The record of n pushes; n 0: the one that exists, whose length goes to *n_out. */
static uint8_t *map_record(const char *path, size_t n, size_t *n_out)
{
    struct stat status;
    const int file = open(path, O_RDWR | (n != 0 ? O_CREAT | O_TRUNC : 0), 0600);
    require(file >= 0, path);
    require(n == 0 || ftruncate(file, (off_t)n) == 0, path);
    require(fstat(file, &status) == 0 && status.st_size > 0, path);
    *n_out = (size_t)status.st_size;
    void *bytes = mmap(NULL, *n_out, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    require(bytes != MAP_FAILED, path);
    (void)close(file);
    return bytes;
}

static void tell(void *context, const char *line)
{
    (void)context;
    (void)fprintf(stderr, "%s\n", line);
}

static embps_client_t *connect_to(const char *address, embps_table_t **table_out)
{
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    embps_table_options_t of_table = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_client_t *client = NULL;
    options.wait_ms = 60000; /* many of them at a time on a busy machine */
    options.waiting = tell;
    of_table.dim = D;
    require(embps_connect(address, &options, &client, &error) == 0, "connect");
    require(embps_table_open(client, "pushes", &of_table, table_out, &error) == 0, "open");
    return client;
}

/* Waits for a push and records how it ended. */
static void settle(embps_request_t **request, uint8_t *state)
{
    if (*request == NULL)
        return;
    const int code = embps_wait(*request, &error);
    *request = NULL;
    if (code == 0)
        *state = ANSWERED;
    else
        require(code == EMBPS_TIMEOUT, "push");
    if (code != 0) {
        (void)puts("timeout");
        (void)fflush(stdout);
    }
}

static void push(const char *address, const char *record, uint64_t number, size_t n, uint32_t ms)
{
    const float ones[D] = {1, 1, 1, 1};
    embps_request_t *under_way[WINDOW] = {NULL};
    embps_table_t *table;
    uint8_t *states = map_record(record, n, &n);
    embps_client_t *client = connect_to(address, &table);
    embps_set_timeout(client, ms);
    for (size_t i = 0; i < n; i++) {
        const uint64_t id = number << 32 | i;
        if (i >= WINDOW)
            settle(&under_way[i % WINDOW], &states[i - WINDOW]);
        states[i] = BEGUN;
        require(embps_push_start(table, EMBPS_DELTA, &id, 1, ones, 0, &under_way[i % WINDOW],
                                 &error) == 0,
                "push");
    }
    for (size_t i = n < WINDOW ? 0 : n - WINDOW; i < n; i++)
        settle(&under_way[i % WINDOW], &states[i]);
    require(embps_close(client, &error) == 0, "close");
}

static void check(const char *address, char *const *records, size_t n_records)
{
    embps_table_t *table;
    embps_client_t *client = connect_to(address, &table);
    size_t counts[3] = {0}, n_applied = 0;
    uint64_t ids[BATCH];
    float rows[BATCH][D];
    for (size_t r = 0; r < n_records; r++) {
        size_t n;
        const uint8_t *states = map_record(records[r], 0, &n);
        for (size_t from = 0; from < n; from += BATCH) {
            const size_t some = n - from < BATCH ? n - from : BATCH;
            for (size_t i = 0; i < some; i++)
                ids[i] = (uint64_t)r << 32 | (from + i);
            require(embps_pull(table, ids, some, &rows[0][0], &error) == 0, "pull");
            for (size_t i = 0; i < some; i++) {
                const uint8_t state = states[from + i];
                const float value = rows[i][0];
                for (size_t c = 1; c < D; c++)
                    require(rows[i][c] == value, "half a push was applied");
                require(value == 0 || value == 1, "a push counts more than once");
                require(state != ANSWERED || value == 1, "a push is lost");
                require(state != NOT_BEGUN || value == 0, "a push that was never made");
                counts[state]++;
                n_applied += value == 1;
            }
        }
    }
    printf("answered %zu, begun %zu, not begun %zu, applied %zu\n", counts[ANSWERED], counts[BEGUN],
           counts[NOT_BEGUN], n_applied);
    require(embps_close(client, &error) == 0, "close");
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "push") == 0)
        push(argv[2], argv[3], strtoull(argv[4], NULL, 10), strtoul(argv[5], NULL, 10),
             (uint32_t)strtoul(argv[6], NULL, 10));
    else if (argc > 3 && strcmp(argv[1], "check") == 0)
        check(argv[2], argv + 3, (size_t)argc - 3);
    else
        require(false, "push ADDRESS RECORD NUMBER PUSHES TIMEOUT_MS | check ADDRESS RECORD...");
    return 0;
}
