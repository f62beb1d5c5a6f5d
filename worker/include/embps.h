/*
 * embps: a distributed, sharded parameter server for embedding tables. The client library.
 *
 * A table maps any uint64 id to a row of dim floats. A worker pulls the rows that its batch
 * touches, computes, and pushes gradients or deltas:
 *
 *     embps_error_t error;
 *     embps_client_t *client;
 *     embps_local_options_t local = EMBPS_LOCAL_OPTIONS_DEFAULT;
 *     local.data = "data";
 *     if (embps_connect_local(&local, &client, &error) != 0)
 *         die(error.message);
 *     embps_table_options_t options = EMBPS_TABLE_OPTIONS_DEFAULT;
 *     options.dim = 64;
 *     embps_table_t *table;
 *     embps_table_open(client, "words", &options, &table, &error);
 *     uint64_t ids[2] = {7, 42};
 *     float rows[2 * 64];
 *     embps_pull(table, ids, 2, rows, &error);
 *     embps_push(table, EMBPS_GRADIENT, ids, 2, gradients, 0.1f, &error);
 *     embps_close(client, &error);
 *
 * Errors: every function that can fail returns 0 or a code (EMBPS_...), and fills *error (may be
 * NULL). Pointers are borrowed for the call unless stated otherwise. A NULL handle or output
 * pointer where the text does not allow it is a fault of the caller, and may crash the program.
 *
 * Threads: a client and its tables and requests are used by one thread at a time; different clients
 * are independent. Messages move inside calls of this library (any call moves them), on the calling
 * thread: a program that computes for long without a call leaves its replies waiting, and loses
 * nothing. Over MPI, only one thread per process may use this library, and MPI must have been
 * initialised with at least MPI_THREAD_FUNNELED (that thread) or MPI_THREAD_SERIALIZED.
 *
 * Order: the effects of one client on one row happen in the order in which it issued them. A pull
 * issued before a push never sees it.
 */
#ifndef EMBPS_H
#define EMBPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EMBPS_VERSION_MAJOR 0
#define EMBPS_VERSION_MINOR 1
#define EMBPS_VERSION_PATCH 0

#if defined(__GNUC__)
#define EMBPS_API __attribute__((visibility("default")))
#define EMBPS_MUST_CHECK __attribute__((warn_unused_result))
#else
#define EMBPS_API
#define EMBPS_MUST_CHECK
#endif

/* Codes. Fixed numbers, also a program's exit status. */
enum {
    EMBPS_OK = 0,
    EMBPS_INVALID_ARGUMENT = 2,
    EMBPS_NOT_FOUND = 3,
    EMBPS_MISMATCH = 4, /* e.g. a table opened with another dim */
    EMBPS_UNSUPPORTED = 5,
    EMBPS_BUSY = 6,
    EMBPS_INTERRUPTED = 7,
    EMBPS_DENIED = 8, /* this client's token does not allow it; or the servers only show rows */
    EMBPS_PROTOCOL = 20,
    EMBPS_PEER_GONE = 21,
    EMBPS_TIMEOUT = 22,
    EMBPS_IO = 40,
    EMBPS_DISK_FULL = 41,
    EMBPS_CORRUPT = 42,
    EMBPS_UNCLEAN = 43, /* data directory of another run, or not closed clean */
    EMBPS_IN_USE = 44,
    EMBPS_NO_MEMORY = 60,
    EMBPS_INTERNAL = 61,
};

typedef struct embps_error {
    int code;          /* EMBPS_... */
    int32_t rank;      /* server rank it concerns, -1: none */
    uint64_t id;       /* row id it concerns, 0: none */
    char message[488]; /* what happened and what to do; NUL-terminated */
} embps_error_t;

typedef struct embps_client embps_client_t;
typedef struct embps_table embps_table_t;
typedef struct embps_request embps_request_t;

/* ---- connecting ---- */

typedef struct embps_local_options {
    const char *data;      /* data directory; must not hold tables of another run. Required */
    uint64_t memory_bytes; /* for rows, RocksDB's own included. At least 8 MiB. Default 256 MiB */
    uint32_t n_workers;    /* clients of embps_connect_local_many. Default 1 */
} embps_local_options_t;

#define EMBPS_LOCAL_OPTIONS_DEFAULT                                                                \
    {                                                                                              \
        NULL, (uint64_t)256 << 20, 1                                                               \
    }

/* What: a client with the whole shard in this process; no mpirun, no other process.
 * Errors: INVALID_ARGUMENT, UNCLEAN, IN_USE, IO, NO_MEMORY.
 * Ownership: gives client; embps_close ends the shard too. options->n_workers must be 1. */
EMBPS_API EMBPS_MUST_CHECK int embps_connect_local(const embps_local_options_t *options,
                                                   embps_client_t **client_out,
                                                   embps_error_t *error);

/* What: the same for several threads: n_workers clients of one shard, clients_out[i] for thread i.
 * Every client must be closed, each by its thread; the last close ends the shard. */
EMBPS_API EMBPS_MUST_CHECK int embps_connect_local_many(const embps_local_options_t *options,
                                                        embps_client_t **clients_out,
                                                        embps_error_t *error);

/*
 * What: this rank as a worker of an mpirun job that has embps-server ranks in the same
 * communicator.
 * comm: address of an MPI_Comm (normally MPI_COMM_WORLD); MPI is initialised by the caller.
 * Threads: in a job of embps-run on several hosts, if MPI_Init_thread gave MPI_THREAD_MULTIPLE, the
 * client gives servers of other hosts signs of life from a thread of its own, so that they notice
 * when this process stands still or its host is gone, and do not while it computes for long.
 * Without that they only notice that the process has ended.
 * Collective: over comm, together with the servers.
 * Errors: INVALID_ARGUMENT (no server in comm), MISMATCH, PEER_GONE, and what a server could not do
 * at its start (UNCLEAN, IN_USE, IO).
 * Ownership: gives client. Close before MPI_Finalize.
 */
EMBPS_API EMBPS_MUST_CHECK int embps_connect_mpi(const void *comm, embps_client_t **client_out,
                                                 embps_error_t *error);

/* Called while embps_connect waits: a line about whom it waits for and why, without a newline. */
typedef void (*embps_waiting_fn)(void *context, const char *line);

/* Begin with EMBPS_CONNECT_OPTIONS_DEFAULT, which sets size. */
typedef struct embps_connect_options {
    size_t size; /* of this struct, in bytes */
    /* How long servers may take until they are there and have answered, in milliseconds. 0: they
     * must be there. Default 10,000 */
    uint32_t wait_ms;
    uint64_t cluster;         /* the run that it must be (embps_cluster); 0 (default): any */
    embps_waiting_fn waiting; /* about once a second while it waits. NULL (default): silent */
    void *waiting_context;

    /* Names of files; NULL (default): none. They are read anew, where they were replaced (by
     * rename), when a call is not let in, a connection fails or a sign of life is due; a new one
     * that is wrong changes nothing. A token is replaced by one of the same rights, which servers
     * know before this file has it and beside the old one until then. */

    /* TLS: the authorities (PEM) of which one must have signed the servers' certificates; these
     * must name the hosts of the servers' addresses. NULL: plain text */
    const char *tls_ca;
    /* This client's certificate and key (PEM), where servers want them (--tls-client-ca). Both or
     * neither, with tls_ca */
    const char *tls_cert, *tls_key;
    /* This client's token on a line, where servers want one (--tokens). The file must be for its
     * owner's eyes alone (mode 600) */
    const char *token_file;
    /* The token may go to other machines in plain text, where whoever is on the way can read it.
     * Default false: embps_connect refuses to */
    bool plain_text;
} embps_connect_options_t;

#define EMBPS_CONNECT_OPTIONS_DEFAULT                                                              \
    {                                                                                              \
        sizeof(embps_connect_options_t), 10000, 0, NULL, NULL, NULL, NULL, NULL, NULL, false       \
    }

/*
 * What: a client of servers that listen (embps-server --listen), from any process. address is that
 * of one of them, "HOST:PORT", "[IPV6]:PORT" or "unix:PATH"; it tells where the others are.
 * options: NULL for the defaults.
 *
 * Such a client is a guest and no worker of a job: it comes and goes as it likes, its rank and the
 * number of workers are 0, its clock is its own, a barrier of it waits for nobody, staleness makes
 * no difference, and whatever becomes of it harms nobody.
 *
 * Lost connections are made again, at growing intervals, and what was not answered is sent again:
 * each push is applied once, and order is kept. A server that cannot be reached is one that is
 * silent: embps_set_timeout says for how long calls wait for it. Servers that go on from a
 * checkpoint, any number of them, are found anew if one listens at an address that was known, and
 * calls go on; exports and watches may end with PEER_GONE, and so does the client where something
 * acknowledged is not in the checkpoint. The library's threads move messages and keep sessions
 * alive; they take no signals. Proxies from the environment are ignored. Between machines give
 * tls_ca: without it all that goes over the wire can be read and changed there.
 *
 * Fork: a client belongs to the process that connected. In a child of a fork its calls fail with
 * UNSUPPORTED (embps_close is allowed). It cannot connect by address either (UNSUPPORTED, at once)
 * if there had ever been a client by address, or a server that listens, in the process it was
 * forked from: it would share its connections. So fork first, or spawn. The parent goes on well.
 *
 * Errors: INVALID_ARGUMENT (what is no address; files that are no certificates, no key, no token; a
 * key of another certificate, one that has expired), NOT_FOUND (a file), PEER_GONE (nobody answers
 * there within wait_ms; at once where one side does not trust the other; the message says why),
 * DENIED (a token that the servers want or do not know), TIMEOUT (a server took the call, but did
 * not answer), MISMATCH (another run than options->cluster, or servers that are not of one run),
 * UNSUPPORTED (options that this library does not know, servers that do not all listen, a forked
 * child as above), BUSY (a server has no place for one more guest), NO_MEMORY, IO.
 * Ownership: gives client.
 */
EMBPS_API EMBPS_MUST_CHECK int embps_connect(const char *address,
                                             const embps_connect_options_t *options,
                                             embps_client_t **client_out, embps_error_t *error);

/* The number of the run: the same at all its servers, and never again. Not 0. */
EMBPS_API uint64_t embps_cluster(const embps_client_t *client);

/* What: waits for all outstanding requests, says goodbye and frees the client, its tables and its
 * requests, in any case. The code tells whether everything was acknowledged, and is so still
 * (PEER_GONE: servers went back behind it). A server that is out of reach is waited for a second if
 * only the goodbye is open. embps-run records it as how this rank ended. client NULL: no-op. */
EMBPS_API int embps_close(embps_client_t *client, embps_error_t *error);

/* What: the same after a failure: tells the servers (status: what the program will exit with),
 * waits for nothing. The program should exit soon. From then on pulls, pushes, clocks and barriers
 * of the other workers fail, with INTERRUPTED after that status and with PEER_GONE after any other
 * but 0, so that they end too. client NULL: no-op. */
EMBPS_API void embps_abandon(embps_client_t *client, int status);

EMBPS_API uint32_t embps_worker_rank(const embps_client_t *client);
EMBPS_API uint32_t embps_worker_count(const embps_client_t *client);
EMBPS_API uint32_t embps_server_count(const embps_client_t *client);

/* ---- tables ---- */

#define EMBPS_MAX_PARAMS 16

/*
 * Begin with EMBPS_TABLE_OPTIONS_DEFAULT, which sets size: a program that was compiled with an
 * earlier header then gets the defaults of the options that it does not know. Parameters stand in
 * the order given here; those that are left out have their defaults.
 *
 * Initialisers, u uniform in [0, 1), z standard normal; a pure function of seed, table, id and
 * column:
 *
 *     "zeros"
 *     "constant"          value (0)
 *     "uniform"           low (-0.05), high (0.05)
 *     "normal"            mean (0), deviation (0.05)
 *     "truncated_normal"  mean (0), deviation (0.05), cut (2): |z| <= cut
 *     "xavier"            fan_in (1), fan_out (0: dim), gain (1): uniform within
 *                         gain * sqrt(6 / (fan_in + fan_out))
 *     "word2vec"          (u - 0.5) / dim
 *
 * Optimizers, for EMBPS_GRADIENT (ps/optim/README.md has their formulas):
 *
 *     "sgd"
 *     "momentum", "nesterov"  momentum (0.9)
 *     "adagrad"               initial_accumulator (0), eps (1e-10)
 *     "rowwise_adagrad"       initial_accumulator (0), eps (1e-8): one accumulator a row
 *     "rmsprop"               alpha (0.99), eps (1e-8)
 *     "adam"                  beta1 (0.9), beta2 (0.999), eps (1e-8)
 *     "partial_rowwise_adam"  those of adam, weight_decay (0): one second moment a row
 *     "adamw"                 those of adam, weight_decay (0.01)
 *     "ftrl"                  l1 (0), l2 (0), beta (1), initial_accumulator (0)
 *
 * All are lazy: a row that no push touches stays as it is, its state too; weights decay when they
 * are touched.
 *
 * A gradient of a row, duplicates summed, goes through clip_value, clip_norm, l2, the optimizer and
 * the bounds, in this order.
 */
typedef struct embps_table_options {
    size_t size;      /* of this struct, in bytes */
    uint32_t dim;     /* row width, 1 to 65,536. Required */
    const char *init; /* Default "zeros" */
    uint32_t n_init_params;
    double init_params[EMBPS_MAX_PARAMS];
    const char *optimizer; /* Default "sgd" */
    uint32_t n_optimizer_params;
    double optimizer_params[EMBPS_MAX_PARAMS];
    uint64_t seed; /* of the initial values. Default 1 */

    /* How weights are kept: "f32", "bf16" or "f16"; NULL (default): "f32". Sums with gradients and
     * deltas are rounded to 16 bits stochastically, assigned and initial values to the nearest.
     * What goes over the wire is another matter (pull_format, push_format). A finite weight beyond
     * the largest of the format (f16: 65,504) becomes that one. */
    const char *precision;
    /* How an optimizer's moments are kept: "f32" or "bf16"; the latter for adam, adamw and
     * partial_rowwise_adam alone. NULL (default): "f32" */
    const char *state_precision;
    /* Bias correction counts the updates of the row; false (default): the step of the push
     * (embps_table_set_step), where it has one. */
    bool per_row_steps;
    double l2;         /* g += l2 * w. From 0. Default 0 */
    double clip_value; /* each g is clamped to [-c, c]. From 0. Default 0: not */
    double clip_norm;  /* g is scaled to norm c when it is longer. From 0. Default 0: not */

    bool has_bounds; /* weights are clamped to [weight_min, weight_max] after each change */
    double weight_min, weight_max;

    bool has_pad; /* row pad_id is zeros; gradients and deltas leave it, EMBPS_ASSIGN sets it */
    uint64_t pad_id;

    /* Admission: the push of a row that creates it, 2 to 255; 0 (default) and 1: the first.
     * Duplicates in one push count once; EMBPS_ASSIGN creates a row at once. Pushes are estimated
     * by a sketch, which counts a row at least as often as it was pushed. */
    uint32_t admit_after;
    /* Until then its pushes go to, and its pulls read, a row that it shares with others, and it
     * begins with that row's weights; false (default): pushes are dropped and counted, and pulls
     * read the initial value. */
    bool admit_shared;
    /* Counters that estimate the pushes, for each of the 16,384 slots: a power of two from 16 to
     * 65,536, a byte each, of the servers' memory. 0 (default): 512 */
    uint32_t admit_counters;

    /* Expiry: a row whose last push is more than this many clocks ago, by the clock of the slowest
     * worker. Its next push begins it anew, with its initial value and nothing of the old one. It
     * is told as EMBPS_ROW_EXPIRED for as many clocks again; then it is freed some time, and as if
     * it had never been. 0 (default): never */
    uint64_t expire_after;
    /* The same for rows with fewer updates than expire_rare_below. Both or neither. Default 0 */
    uint64_t expire_rare_after;
    uint32_t expire_rare_below;
    /* So many rows of each of the 16,384 slots never expire: those pushed last. Default 0 */
    uint32_t expire_floor;
    bool expire_dry_run; /* rows are only counted and stay. Default false */

    /* How rows go over the wire: "f32" as they are, "bf16" or "f16" in half the bytes, "int8" in a
     * quarter, as integers under one scale a row; NULL (default): "f32". They are this client's
     * choice and no part of the table: other clients may choose others, and a table that is opened
     * again has those given last. Programs see float32 in any case.
     *
     * Error of a value v in a row whose largest is m: bf16 |v| / 256; f16 |v| / 2,048, and 2^-25
     * where v is below 2^-14; int8 m / 254. That holds for pulled rows and for EMBPS_ASSIGN, which
     * are rounded to the nearest. Gradients and deltas are rounded stochastically, with twice that
     * error but right on average, so that small ones are not lost (proto/row_format.h says more);
     * the random bits depend on worker, table, id, column and the number of the push, so that one
     * worker's rows have the same bits for any number of servers.
     *
     * f16: what is beyond 65,504 becomes that. int8: a pulled row with a value that is not finite
     * is all NaN. */
    const char *pull_format;
    const char *push_format;
} embps_table_options_t;

#define EMBPS_TABLE_OPTIONS_DEFAULT                                                                \
    {                                                                                              \
        sizeof(embps_table_options_t), 0, "zeros", 0, {0}, "sgd", 0, {0}, 1, NULL, NULL, false, 0, \
            0, 0, false, 0, 0, false, 0, 0, false, 0, 0, 0, 0, 0, false, NULL, NULL                \
    }

/* What: opens a table of this name (1 to 255 bytes), creating it where it is new.
 * Errors: INVALID_ARGUMENT (names the option and its bounds), MISMATCH (exists with other options;
 * message holds both values), UNSUPPORTED (options that this library does not know).
 * Ownership: gives a table that lives as long as its client. Copies options. */
EMBPS_API EMBPS_MUST_CHECK int embps_table_open(embps_client_t *client, const char *name,
                                                const embps_table_options_t *options,
                                                embps_table_t **table_out, embps_error_t *error);

/* What: opens a table that exists, with the options that it was made with (pull_format and
 * push_format: "f32"). Errors: NOT_FOUND, INVALID_ARGUMENT (what is no name), as for pulls.
 * Ownership: gives a table that lives as long as its client. */
EMBPS_API EMBPS_MUST_CHECK int embps_table_find(embps_client_t *client, const char *name,
                                                embps_table_t **table_out, embps_error_t *error);

/* name and options are borrowed until fn returns; n_rows_created: rows of the table that came into
 * being in this run, in all servers. */
typedef void (*embps_table_fn)(void *context, const char *name,
                               const embps_table_options_t *options, uint64_t n_rows_created);

/* What: calls fn for each table that exists, in the order in which they were made, without opening
 * any. Errors: PROTOCOL (a server lists tables in another order, or one again), as for pulls. */
EMBPS_API EMBPS_MUST_CHECK int embps_tables(embps_client_t *client, embps_table_fn fn,
                                            void *context, embps_error_t *error);

EMBPS_API uint32_t embps_table_dim(const embps_table_t *table);

/* What: the number of the optimizer's step that later gradient pushes to this table belong to, from
 * 1; adam and its kin correct their bias by it. 0 (default): unknown, then the updates of the row
 * itself count. Pushes issued before keep theirs. */
EMBPS_API void embps_table_set_step(embps_table_t *table, uint64_t step);

/* ---- rows ---- */

typedef enum embps_push_kind {
    EMBPS_GRADIENT = 0, /* the table's optimizer applies it with the learning rate of the call */
    EMBPS_DELTA = 1,    /* added as it is */
    EMBPS_ASSIGN = 2,   /* replaces the row; of duplicates the last one counts */
} embps_push_kind_t;

/* What: reads rows. A row that was never pushed has its initial value, and reading creates nothing.
 * Shapes: ids [n] any values, duplicates allowed; rows_out [n, dim], in the order of ids.
 * Errors: INVALID_ARGUMENT, PEER_GONE, IO, CORRUPT, DISK_FULL, NO_MEMORY; rows_out is then
 * undefined. */
EMBPS_API EMBPS_MUST_CHECK int embps_pull(embps_table_t *table, const uint64_t *ids, size_t n,
                                          float *rows_out, embps_error_t *error);

/* What a pulled row is; as uint8_t in arrays. */
typedef enum embps_row_state {
    EMBPS_ROW_PRESENT = 0,
    EMBPS_ROW_INITIAL = 1,      /* never pushed: its initial value */
    EMBPS_ROW_NOT_ADMITTED = 2, /* pushed, but not often enough to be kept (admit_after): its
                                   initial value; with admit_shared any row not kept yet: the value
                                   of the shared row */
    EMBPS_ROW_EXPIRED = 3,      /* not pushed for too long (expire_after): its initial value */
    EMBPS_ROW_LATE = 5,         /* embps_pull_within alone: not there in time, no value */
} embps_row_state_t;

/* The pull is part of a pass over many rows (an export): they do not take the memory of those that
 * are in use. */
#define EMBPS_PULL_SCAN 1u
/* The rows come as float32, whatever the table's pull_format. */
#define EMBPS_PULL_EXACT 2u

/* What: embps_pull that also tells what each row is.
 * Shapes: states_out [n], an embps_row_state_t each, in the order of ids; NULL: not wanted.
 * flags: 0, or EMBPS_PULL_SCAN and EMBPS_PULL_EXACT or'ed. Errors: as embps_pull. */
EMBPS_API EMBPS_MUST_CHECK int embps_pull_states(embps_table_t *table, const uint64_t *ids,
                                                 size_t n, float *rows_out, uint8_t *states_out,
                                                 uint32_t flags, embps_error_t *error);

/*
 * What: changes rows. Duplicate ids in one call are summed first (ASSIGN: the last one counts).
 * Shapes: ids [n], rows [n, dim].
 * Errors: INVALID_ARGUMENT (also: a value that is not finite, named by its id; nothing was sent),
 * as for pull. Each server applies its part of a push whole or not at all; after an error the
 * message names the server whose part was refused.
 * Only the pushed values and the rate are checked for being finite, not the row after the change: a
 * row can overflow to infinity.
 */
EMBPS_API EMBPS_MUST_CHECK int embps_push(embps_table_t *table, embps_push_kind_t kind,
                                          const uint64_t *ids, size_t n, const float *rows,
                                          float learning_rate, embps_error_t *error);

/* What: the same without waiting for answers; it only waits while more than 32 MiB are queued for
 * one server. ids and rows are copied before return (push); rows_out and
 * states_out belong to the request until embps_wait returns (pull).
 * Ownership: gives request; embps_wait frees it. */
EMBPS_API EMBPS_MUST_CHECK int embps_pull_start(embps_table_t *table, const uint64_t *ids, size_t n,
                                                float *rows_out, embps_request_t **request_out,
                                                embps_error_t *error);
EMBPS_API EMBPS_MUST_CHECK int embps_pull_states_start(embps_table_t *table, const uint64_t *ids,
                                                       size_t n, float *rows_out,
                                                       uint8_t *states_out, uint32_t flags,
                                                       embps_request_t **request_out,
                                                       embps_error_t *error);
EMBPS_API EMBPS_MUST_CHECK int embps_push_start(embps_table_t *table, embps_push_kind_t kind,
                                                const uint64_t *ids, size_t n, const float *rows,
                                                float learning_rate, embps_request_t **request_out,
                                                embps_error_t *error);

/*
 * What: embps_pull_states that takes deadline_ms at most (from 1), and a little for the way there
 * and back: what is in the servers' memory then is returned, the other rows are EMBPS_ROW_LATE and
 * left as they are in rows_out. Late are rows that are being read from disk, all rows of a server
 * where the pull waits for clocks, for room, or for earlier calls of this client, and those of a
 * server that does not answer at all.
 * Shapes: as embps_pull_states; states_out is required. Errors: as embps_pull; a late row is none.
 */
EMBPS_API EMBPS_MUST_CHECK int embps_pull_within(embps_table_t *table, const uint64_t *ids,
                                                 size_t n, float *rows_out, uint8_t *states_out,
                                                 uint32_t flags, uint32_t deadline_ms,
                                                 embps_error_t *error);

/*
 * What: announces rows that this client will pull in a later clock (clock: how often it will have
 * called embps_clock by then; its present clock is possible too), so that servers read them from
 * disk before, and so that the client's cache, if it has one that may serve them then, has them.
 * Has no effect but speed, and never waits: what would have to wait is left out
 * (client.rows_prefetch_dropped of embps_stats), as are rows that a server cannot bring in time.
 * Servers keep announced rows in memory until they are used, up to a tenth of it.
 * Shapes: ids [n] any values, duplicates allowed. Errors: INVALID_ARGUMENT, NO_MEMORY, what ended
 * the client.
 */
EMBPS_API EMBPS_MUST_CHECK int embps_prefetch(embps_table_t *table, const uint64_t *ids, size_t n,
                                              uint64_t clock, embps_error_t *error);

/*
 * What: how long a server may owe an answer without a sign of life, in milliseconds; 0: for ever.
 * Default: 60,000, long enough for a machine that swaps and short enough not to waste a night.
 * After that the calls that wait for it fail with TIMEOUT, and the error names the server by rank
 * and host. Servers are asked for signs of life, so one that only waits for other workers, as a
 * barrier does, is not blamed; nor is any while this program is stopped or computes. The client
 * stays usable: for other servers at once, for this one when it goes on. A push that fails so may
 * still be applied. Holds for later calls.
 */
EMBPS_API void embps_set_timeout(embps_client_t *client, uint32_t ms);

/* Waits for a request and frees it. The code is that of the request. request NULL: no-op. */
EMBPS_API EMBPS_MUST_CHECK int embps_wait(embps_request_t *request, embps_error_t *error);

/* Moves messages without waiting; *done_out tells whether embps_wait would return at once. */
EMBPS_API EMBPS_MUST_CHECK int embps_test(embps_request_t *request, bool *done_out,
                                          embps_error_t *error);

/*
 * What: how the workers of a job keep together; all of them should use the same. Holds for later
 * pulls and pushes of the client.
 *
 * EMBPS_ASYNC (default): a pull never waits; a push is applied when it comes.
 *
 * s >= 1, bounded: a pull of a worker in clock c (it has ended c clocks) waits until all workers
 * have ended c - s clocks, and sees all that they pushed in them. Of later clocks it sees what has
 * come. A push is applied when it comes.
 *
 * 0, synchronous: a pull waits until all workers have ended c clocks, and sees what was pushed in
 * these, and nothing else: pushes of several workers are kept by the servers until all workers have
 * ended the clock, then summed row by row in the order of the workers and applied, as one step of
 * the optimizer a row (pushes of a row that differ in kind, rate or step are steps one after
 * another). So runs are equal to the last bit, whatever the number of servers and the order of
 * messages. A worker does not see its own pushes of the clock that is under way either. The pushes
 * of one clock must fit beside the rows into the memory of the servers (INVALID_ARGUMENT). A job of
 * one worker has nobody to wait for: its pushes are applied when they come.
 *
 * A worker that starts late counts as being in clock 0. A worker that has nothing more to push must
 * say so, with embps_last_clock or embps_close, or the others wait for its clocks.
 */
#define EMBPS_ASYNC UINT32_MAX
EMBPS_API void embps_set_staleness(embps_client_t *client, uint32_t clocks);

/*
 * What: lets pulls read rows straight from the memory of servers on this host, without a message,
 * where the servers allow it (embps-server --direct) and rows are float32 of tables without
 * admission and expiry. What they bring is the same. To be called before the first table is opened:
 * memory that already holds rows is not shared any more. on false: all rows come by messages again.
 * *n_servers_out (may be NULL): how many servers can be read so; 0 is no error.
 * Errors: PEER_GONE, NO_MEMORY, IO.
 */
EMBPS_API EMBPS_MUST_CHECK int embps_set_direct(embps_client_t *client, bool on,
                                                uint32_t *n_servers_out, embps_error_t *error);

/*
 * What: keeps copies of the rows that are pulled most often, within so many bytes of memory (all
 * tables and all book-keeping; at least 64 KiB), and accumulates deltas (EMBPS_DELTA) of these
 * rows, which this client sees at once and others when they are sent. 0 (default): no cache. With
 * staleness 0 it is off: nothing is served from it, and no bit of any row changes. Rows of tables
 * with admit_after or expire_* are not kept.
 *
 * What a pull of clock c promises at staleness s >= 1 stays: a copy is served without asking only
 * if what every worker sent in its first c - s clocks was in it. With EMBPS_ASYNC a copy that was
 * asked for in clock c is served until clock c + k - 1, k being the clocks of embps_set_flush. A
 * server that is asked sends a row only if it changed. After embps_barrier every copy is asked for.
 *
 * A client's own effects on a row are seen in the order in which they were issued, whatever is
 * kept. Gradients and assignments are never accumulated: the row's deltas leave first, then they.
 * The error of a delta that was accumulated comes with a later push, clock, barrier or close.
 * Errors: INVALID_ARGUMENT, NO_MEMORY; those of pushes when a cache is replaced.
 */
EMBPS_API EMBPS_MUST_CHECK int embps_set_cache(embps_client_t *client, size_t bytes,
                                               embps_error_t *error);

/*
 * For how many clocks deltas are accumulated, 1 (default) to EMBPS_FLUSH_MAX: those of clock c
 * leave at the end of clock c + clocks - 1, so with 1 at the end of c; those of rows that are
 * pushed in every clock leave four times as often. Others see this client's deltas as if their
 * staleness were greater by clocks - 1. All leave with embps_barrier, embps_last_clock and
 * embps_close.
 */
#define EMBPS_FLUSH_MAX 1000u
EMBPS_API void embps_set_flush(embps_client_t *client, uint32_t clocks);

/* What: embps_pull that also tells how old each row may be: with age a, in clocks, it holds all
 * that every worker sent in its first c - a clocks, c being this client's clock. With a bounded
 * staleness it is at most that. (Deltas that other clients accumulate were not sent yet.)
 * Shapes: ages_out [n], in the order of ids. Errors: as embps_pull. */
EMBPS_API EMBPS_MUST_CHECK int embps_pull_ages(embps_table_t *table, const uint64_t *ids, size_t n,
                                               float *rows_out, uint32_t *ages_out,
                                               embps_error_t *error);

/* ---- whole tables ---- */

/* Rows of a table. For an import: begin with EMBPS_BLOCK_DEFAULT, which sets size. */
typedef struct embps_block {
    size_t size; /* of this struct, in bytes */
    size_t n;
    uint32_t dim;
    uint32_t state_floats;  /* of a row in state; 0: no state */
    const uint64_t *ids;    /* [n] */
    const float *rows;      /* [n, dim] */
    const float *state;     /* [n, state_floats]: the optimizer's; NULL: none */
    const uint32_t *counts; /* [n, 2]: a row's version and its count of updates; NULL: none */
} embps_block_t;

#define EMBPS_BLOCK_DEFAULT                                                                        \
    {                                                                                              \
        sizeof(embps_block_t), 0, 0, 0, NULL, NULL, NULL, NULL                                     \
    }

typedef struct embps_export embps_export_t;
typedef struct embps_watch embps_watch_t;

#define EMBPS_EXPORT_STATE 1u /* blocks bring the optimizer's state and the counts too */
#define EMBPS_WATCH_ROWS 1u   /* the rows come too, not only their ids */

/* What: begins to read all rows that a table has, from all servers, in blocks. Each row is told
 * once, exactly as it is when its block is made; pushes go on meanwhile, and rows that are made
 * after the start may be told or not. Rows that expired or were not admitted yet are left out. The
 * servers' memory keeps the rows that are in use. Clocks and staleness make no difference.
 * Errors: INVALID_ARGUMENT (also: no memory for a walk within a server's --memory), PEER_GONE,
 * NO_MEMORY, those of pushes that a cache had accumulated.
 * Ownership: gives export; embps_export_end takes it, before its client is closed. */
EMBPS_API EMBPS_MUST_CHECK int embps_export_start(embps_table_t *table, uint32_t flags,
                                                  embps_export_t **export_out,
                                                  embps_error_t *error);

/* What: the next block, of some hundred rows as a rule; n 0: there are no more. Its order is the
 * servers' own. Its pointers are good until the next call with this export.
 * Errors: PEER_GONE, IO, CORRUPT, TIMEOUT, NO_MEMORY; an export that failed stays so. */
EMBPS_API EMBPS_MUST_CHECK int embps_export_next(embps_export_t *walk, embps_block_t *block_out,
                                                 embps_error_t *error);

/* Ends an export, read to its end or not; waits for blocks that were asked for. NULL: no-op. */
EMBPS_API void embps_export_end(embps_export_t *walk);

/* What: sets rows as given. Without state, as EMBPS_ASSIGN does. With state and counts rows become
 * what they were where they were exported, to the last bit, in a table of the same options; a
 * version only grows, so that no cache is misled. Applied at once at any staleness. Of duplicate
 * ids the last one counts. *created_out (may be NULL): rows that were not there before.
 * Errors: INVALID_ARGUMENT (also: without counts, a value that is not finite, named by its id;
 * nothing was sent), MISMATCH (dim, or state of another optimizer), as embps_push. */
EMBPS_API EMBPS_MUST_CHECK int embps_import(embps_table_t *table, const embps_block_t *block,
                                            uint64_t *created_out, embps_error_t *error);

/* What: begins to watch a table: rows that anybody's pushes or imports reach from the return on are
 * told. A server remembers the last 65,536 rows reached; a watch that falls behind, or does not ask
 * for 30 seconds, is told that it has lost some. Pushes never wait for a watch.
 * Errors: INVALID_ARGUMENT (also: no room within a server's --memory), PEER_GONE, NO_MEMORY.
 * Ownership: gives watch; embps_watch_end takes it, before its client is closed. */
EMBPS_API EMBPS_MUST_CHECK int embps_watch_start(embps_table_t *table, uint32_t flags,
                                                 embps_watch_t **watch_out, embps_error_t *error);

/* What: the next rows reached, of one server at a time; waits for some, for timeout_ms at most; n
 * 0: none. Each is told once, as it is now. *lost_out: others were reached, any number, that will
 * not be told: look at all. Pointers are good until the next call with this watch.
 * Errors: PEER_GONE, INTERRUPTED (a server ends), BUSY (too many watch), TIMEOUT; it stays so. */
EMBPS_API EMBPS_MUST_CHECK int embps_watch_next(embps_watch_t *watch, uint32_t timeout_ms,
                                                embps_block_t *block_out, bool *lost_out,
                                                embps_error_t *error);

/* Ends a watch; waits for the servers' word that they do so too. NULL: no-op. */
EMBPS_API void embps_watch_end(embps_watch_t *watch);

/* ---- workers together ---- */

/*
 * A worker whose process is killed, crashes or stands still for too long is taken for lost by the
 * servers, in a job that embps-run started on one machine: the others go on, and nobody waits for
 * it. Should it come back, its calls fail with PEER_GONE, and it should exit. After a loss
 * MPI_Finalize may wait for the lost for ever; embps-run ends such ranks once all have closed their
 * clients. Collectives of the program's own must not be used by a program that is to survive.
 */

/* What: ends this worker's clock: everything it issued before counts as done in the clock that
 * ends.
 * progress: any growing number of the program's own (e.g. words trained); the sum over all workers
 * comes back in *total_progress_out (may be NULL), as far as the servers know it. */
EMBPS_API EMBPS_MUST_CHECK int embps_clock(embps_client_t *client, uint64_t progress,
                                           uint64_t *total_progress_out, embps_error_t *error);

/* What: the same for this worker's last clock: nobody waits for it any more, and it must not push.
 * Its later pulls with a staleness wait until all workers have ended their last clock, and so see
 * everything. May be called again, for the sum of progress. */
EMBPS_API EMBPS_MUST_CHECK int embps_last_clock(embps_client_t *client, uint64_t progress,
                                                uint64_t *total_progress_out, embps_error_t *error);

/* Collective: over all workers. Returns when all have come and their earlier pushes are applied; at
 * staleness 0 those of clocks that have ended. */
EMBPS_API EMBPS_MUST_CHECK int embps_barrier(embps_client_t *client, embps_error_t *error);

/* ---- checkpoints ---- */

#define EMBPS_CHECKPOINT_NAME_BYTES 128

/* What: a checkpoint of all tables, on disk when it returns (embps_set_timeout must allow for it),
 * with state [n] bytes of the caller's own; its name goes to name_out (NULL, or so many bytes). It
 * has what this client pushed before, nothing after, and whole pushes of others, on all servers or
 * none; they go on. Errors: UNSUPPORTED (no --checkpoints), BUSY, IO, DISK_FULL; as a push. */
EMBPS_API EMBPS_MUST_CHECK int embps_checkpoint(embps_client_t *client, const void *state, size_t n,
                                                char *name_out, embps_error_t *error);

/* The bytes kept with one: *n_out of them, at most room go to state_out. name NULL: the newest that
 * this run of the servers has made, by whomever, or else the one that it went on from (--resume).
 * Errors: NOT_FOUND (NULL: there is neither), CORRUPT (nothing is given), UNSUPPORTED. */
EMBPS_API EMBPS_MUST_CHECK int embps_checkpoint_state(embps_client_t *client, const char *name,
                                                      void *state_out, size_t room, size_t *n_out,
                                                      char *name_out, embps_error_t *error);

/* ---- looking ---- */

typedef void (*embps_counter_fn)(void *context, const char *name, uint64_t value);

/* What: calls fn for each counter, summed over the servers, then the client's own ("client.*"). */
EMBPS_API EMBPS_MUST_CHECK int embps_stats(embps_client_t *client, embps_counter_fn fn,
                                           void *context, embps_error_t *error);

/* Bytes of all messages sent and received by this client so far. Cheap. */
EMBPS_API void embps_traffic(const embps_client_t *client, uint64_t *sent_out,
                             uint64_t *received_out);

/* "0.1.0" */
EMBPS_API const char *embps_version(void);

#ifdef __cplusplus
}
#endif

#endif
