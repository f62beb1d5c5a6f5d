/*
 * A client by address that keeps a record of what it pushed:
 *
 *     guest_main push ADDRESS RECORD NUMBER PUSHES TIMEOUT_MS
 *     guest_main check ADDRESS NUMBER RECORD...
 *     guest_main prefix ADDRESS NUMBER LEAST RECORD...
 *     guest_main overflow ADDRESS TABLE ID
 *     guest_main hold N FILE
 *
 * push: adds 1 to row (NUMBER << 32 | i) for each i below PUSHES, a window of them under way.
 * RECORD is a file of PUSHES bytes that outlives a killed process: the state of each push. Where a
 * call times out, as when the server is stopped, it says so ("timeout") and goes on. A token to
 * show is in the file that EMBPS_TOKEN_FILE names.
 *
 * check: each RECORD is one of NUMBER's, which may have several, of as many pushes. A row must be
 * what was answered, and may be that plus what was begun and not answered: nothing is lost and
 * nothing counts twice. Prints how many of each.
 *
 * prefix: of each NUMBER, which has one record, all pushes count once up to some one of them, at
 * least LEAST pushes, and none behind it: what a checkpoint has. Prints how many.
 *
 * overflow: pushes finite values that make a row of TABLE, which is made if there is none,
 * infinite.
 *
 * hold: writes to FILE the first of N ports in a row, and keeps them this test's own until it is
 * killed: servers may listen there, one after another, and nobody else is given them.
 */
#include "embps.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
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

static embps_client_t *connect_to(const char *address, const char *table, embps_table_t **table_out)
{
    embps_connect_options_t options = EMBPS_CONNECT_OPTIONS_DEFAULT;
    embps_table_options_t of_table = EMBPS_TABLE_OPTIONS_DEFAULT;
    embps_client_t *client = NULL;
    options.wait_ms = 60000; /* many of them at a time on a busy machine */
    options.waiting = tell;
    options.token_file = getenv("EMBPS_TOKEN_FILE");
    of_table.dim = D;
    require(embps_connect(address, &options, &client, &error) == 0, "connect");
    require(embps_table_open(client, table, &of_table, table_out, &error) == 0, "open");
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
    embps_client_t *client = connect_to(address, "pushes", &table);
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

/* A record to check, and whose it is. */
typedef struct record {
    uint64_t number;
    const uint8_t *states;
    size_t n;
} record_t;

/* What a row may be after the pushes of all records of its client. */
typedef struct bounds {
    size_t answered, begun;
} bounds_t;

static bounds_t bounds_of(const record_t *records, size_t n_records, uint64_t number, size_t row)
{
    bounds_t bounds = {0, 0};
    for (size_t r = 0; r < n_records; r++) {
        if (records[r].number != number || row >= records[r].n)
            continue;
        bounds.answered += records[r].states[row] == ANSWERED;
        bounds.begun += records[r].states[row] == BEGUN;
    }
    return bounds;
}

/* All rows of one client; adds to the sums. */
static void check_rows(embps_table_t *table, const record_t *records, size_t n_records,
                       const record_t *first, bounds_t *sum, size_t *n_applied)
{
    uint64_t ids[BATCH];
    float rows[BATCH][D];
    for (size_t from = 0; from < first->n; from += BATCH) {
        const size_t some = first->n - from < BATCH ? first->n - from : BATCH;
        for (size_t i = 0; i < some; i++)
            ids[i] = first->number << 32 | (from + i);
        require(embps_pull(table, ids, some, &rows[0][0], &error) == 0, "pull");
        for (size_t i = 0; i < some; i++) {
            const bounds_t bounds = bounds_of(records, n_records, first->number, from + i);
            const float value = rows[i][0];
            for (size_t c = 1; c < D; c++)
                require(rows[i][c] == value, "half a push was applied");
            require(value >= (float)bounds.answered, "a push is lost");
            require(value <= (float)(bounds.answered + bounds.begun),
                    "a push counts more than once, or was never made");
            require(value == (float)(size_t)value, "part of a push was applied");
            sum->answered += bounds.answered;
            sum->begun += bounds.begun;
            *n_applied += (size_t)value;
        }
    }
}

static void check(const char *address, char *const *pairs, size_t n_records)
{
    embps_table_t *table;
    embps_client_t *client = connect_to(address, "pushes", &table);
    bounds_t sum = {0, 0};
    size_t n_applied = 0;
    record_t *records = calloc(n_records, sizeof *records);
    require(records != NULL, "memory");
    for (size_t r = 0; r < n_records; r++) {
        records[r].number = strtoull(pairs[2 * r], NULL, 10);
        records[r].states = map_record(pairs[2 * r + 1], 0, &records[r].n);
    }
    for (size_t r = 0; r < n_records; r++) {
        size_t before = 0;
        while (records[before].number != records[r].number)
            before++;
        if (before == r)
            check_rows(table, records, n_records, &records[r], &sum, &n_applied);
    }
    printf("answered %zu, begun %zu, applied %zu\n", sum.answered, sum.begun, n_applied);
    free(records);
    require(embps_close(client, &error) == 0, "close");
}

/* How many of the pushes of a record count: all that do come first. */
static size_t count_prefix(embps_table_t *table, uint64_t number, size_t n)
{
    uint64_t ids[BATCH];
    float rows[BATCH][D];
    size_t n_counted = 0;
    for (size_t from = 0; from < n; from += BATCH) {
        const size_t some = n - from < BATCH ? n - from : BATCH;
        for (size_t i = 0; i < some; i++)
            ids[i] = number << 32 | (from + i);
        require(embps_pull(table, ids, some, &rows[0][0], &error) == 0, "pull");
        for (size_t i = 0; i < some; i++) {
            for (size_t c = 1; c < D; c++)
                require(rows[i][c] == rows[i][0], "half a push was applied");
            require(rows[i][0] == 0 || rows[i][0] == 1, "a push counts more than once");
            require(rows[i][0] == 0 || n_counted == from + i, "a push counts without one before");
            n_counted += rows[i][0] == 1;
        }
    }
    return n_counted;
}

static void check_prefix(const char *address, char *const *triples, size_t n_records)
{
    embps_table_t *table;
    embps_client_t *client = connect_to(address, "pushes", &table);
    for (size_t r = 0; r < n_records; r++) {
        size_t n, n_begun = 0;
        const size_t least = strtoull(triples[3 * r + 1], NULL, 10);
        const uint8_t *states = map_record(triples[3 * r + 2], 0, &n);
        while (n_begun < n && states[n_begun] != NOT_BEGUN)
            n_begun++;
        const size_t counted = count_prefix(table, strtoull(triples[3 * r], NULL, 10), n);
        require(counted >= least, "a push is lost that a checkpoint has");
        require(counted <= n_begun, "a push counts that was never made");
        printf("%zu\n", counted);
    }
    require(embps_close(client, &error) == 0, "close");
}

static void overflow(const char *address, const char *name, uint64_t id)
{
    const float huge[D] = {3e38f, 3e38f, -3e38f, 0};
    embps_table_t *table;
    embps_client_t *client = connect_to(address, name, &table);
    for (int i = 0; i < 2; i++)
        require(embps_push(table, EMBPS_DELTA, &id, 1, huge, 0, &error) == 0, "push");
    require(embps_close(client, &error) == 0, "close");
}

/* A socket that is bound and does not listen (tests/support/held_port.h); port 0: any. -1: that is
 * taken. */
static int hold_port(uint16_t *port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(*port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0, "socket");
    if (bind(fd, (struct sockaddr *)&address, size) != 0) {
        (void)close(fd);
        return -1;
    }
    require(getsockname(fd, (struct sockaddr *)&address, &size) == 0, "port");
    *port = ntohs(address.sin_port);
    return fd;
}

static void hold(size_t n, const char *path)
{
    int held[16];
    size_t n_held = 0;
    uint16_t first = 0;
    require(n > 0 && n <= sizeof held / sizeof held[0], "a number of ports");
    while (n_held < n) {
        uint16_t port = n_held == 0 ? 0 : (uint16_t)(first + n_held);
        held[n_held] = hold_port(&port);
        if (held[n_held] >= 0) {
            first = n_held == 0 ? port : first;
            n_held++;
            continue;
        }
        while (n_held > 0)
            (void)close(held[--n_held]);
    }
    FILE *file = fopen(path, "w");
    require(file != NULL && fprintf(file, "%u\n", (unsigned)first) > 0 && fclose(file) == 0, path);
    for (;;)
        (void)pause();
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "push") == 0)
        push(argv[2], argv[3], strtoull(argv[4], NULL, 10), strtoul(argv[5], NULL, 10),
             (uint32_t)strtoul(argv[6], NULL, 10));
    else if (argc > 4 && argc % 2 == 1 && strcmp(argv[1], "check") == 0)
        check(argv[2], argv + 3, ((size_t)argc - 3) / 2);
    else if (argc > 5 && argc % 3 == 0 && strcmp(argv[1], "prefix") == 0)
        check_prefix(argv[2], argv + 3, ((size_t)argc - 3) / 3);
    else if (argc == 5 && strcmp(argv[1], "overflow") == 0)
        overflow(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    else if (argc == 4 && strcmp(argv[1], "hold") == 0)
        hold(strtoul(argv[2], NULL, 10), argv[3]);
    else
        require(false, "push ADDRESS RECORD NUMBER PUSHES TIMEOUT_MS | "
                       "check ADDRESS NUMBER RECORD... | prefix ADDRESS NUMBER LEAST RECORD... | "
                       "overflow ADDRESS TABLE ID | hold N FILE");
    return 0;
}
