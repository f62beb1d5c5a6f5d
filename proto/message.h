/*
 * Messages as plain structs: packed in place, unpacked with every length checked once.
 *
 * Past this point there is no protobuf type and no unchecked length. Unpacked messages borrow from
 * the buffer and from the scratch memory given; both must outlive them. Small fields go through
 * protobuf-c with an allocator of limited size; the bulk fields (ids, rows) are never copied when
 * they come in one piece.
 *
 *     const psp_pull_reply_t reply = {.dim = dim, .n = n, .format = pull->format};
 *     psp_pull_reply_begin(pool, &reply_header, &reply, &buffer, &rows, error);
 *     ... gather n rows of psp_row_bytes(format, dim) into rows (unaligned: use memcpy) ...
 *     psp_transport_send(transport, peer, buffer, error);
 */
#ifndef PROTO_MESSAGE_H
#define PROTO_MESSAGE_H

#include "proto/buffer.h"
#include "proto/row_format.h"

#include <stdbool.h>
#include <string.h>

#define PSP_PROTOCOL_VERSION 1u
#define PSP_NAME_MAX 255u  /* bytes of a table, initialiser, optimizer or counter name */
#define PSP_PARAMS_MAX 16u /* hyper-parameters in an OpenTable */
#define PSP_DIM_MAX 65536u
#define PSP_STALENESS_ASYNC UINT32_MAX
#define PSP_CLOCK_END UINT64_MAX         /* clock of a worker that has ended its last one */
#define PSP_MAX_MESSAGE_BYTES (1u << 20) /* default limit of a message, headers included */

/* The number travels beside the message (MPI tag, gRPC method). Never renumber. */
typedef enum psp_kind {
    PSP_HELLO = 1,
    PSP_HELLO_REPLY = 2,
    PSP_OPEN_TABLE = 3,
    PSP_OPEN_TABLE_REPLY = 4,
    PSP_PULL = 5,
    PSP_PULL_REPLY = 6,
    PSP_PUSH = 7,
    PSP_PUSH_REPLY = 8,
    PSP_CLOCK = 9,
    PSP_CLOCK_REPLY = 10,
    PSP_BARRIER = 11,
    PSP_BARRIER_REPLY = 12,
    PSP_STATS = 13,
    PSP_STATS_REPLY = 14,
    PSP_GOODBYE = 15,
    PSP_GOODBYE_REPLY = 16,
    PSP_PREFETCH = 17,
    PSP_PREFETCH_REPLY = 18,
    PSP_ATTACH = 19,
    PSP_ATTACH_REPLY = 20,
    PSP_TOUCHES = 21,
    PSP_TOUCHES_REPLY = 22,
    PSP_FIND_TABLE = 23,
    PSP_FIND_TABLE_REPLY = 24,
    PSP_EXPORT = 25,
    PSP_EXPORT_REPLY = 26,
    PSP_IMPORT = 27,
    PSP_IMPORT_REPLY = 28,
    PSP_CHECKPOINT = 29,
    PSP_CHECKPOINT_REPLY = 30,
    PSP_WATCH = 31,
    PSP_WATCH_REPLY = 32,
} psp_kind_t;
#define PSP_KIND_LAST PSP_WATCH_REPLY

typedef enum psp_push_kind {
    PSP_PUSH_GRADIENT = 0,
    PSP_PUSH_DELTA = 1,
    PSP_PUSH_ASSIGN = 2,
} psp_push_kind_t;

typedef enum psp_row_state {
    PSP_ROW_PRESENT = 0,
    PSP_ROW_INITIAL = 1,
    PSP_ROW_NOT_ADMITTED = 2,
    PSP_ROW_EXPIRED = 3,
    PSP_ROW_CURRENT = 4,
    PSP_ROW_LATE = 5,
} psp_row_state_t;
#define PSP_ROW_STATES 6u

/* Whether a value follows in the reply for a row of this state. */
static inline bool psp_row_has_value(uint8_t state)
{
    return state < PSP_ROW_CURRENT;
}

typedef enum psp_precision {
    PSP_F32 = 0,
    PSP_BF16 = 1,
    PSP_F16 = 2,
} psp_precision_t;
#define PSP_PRECISIONS 3u

/* Meaning of each field: embps.proto. */
typedef struct psp_request_header {
    uint32_t protocol;
    uint64_t cluster;
    uint32_t map_epoch;
    uint64_t session;
    uint64_t sequence;
    uint64_t lowest_unacked;
    uint64_t request;
    uint64_t clock;
    uint32_t deadline_ms;
    uint64_t part;         /* 0: not numbered */
    size_t n_parts;        /* of Push and Clock: servers, or 0 */
    const uint64_t *parts; /* [n_parts]; when unpacked: in the scratch */
} psp_request_header_t;

typedef struct psp_reply_header {
    uint64_t request;
    uint32_t map_epoch;
    uint64_t least_clock;
    psc_error_t error; /* code PSC_OK: no error */
} psp_reply_header_t;

typedef struct psp_hello {
    uint32_t worker;
    uint32_t n_workers;     /* 0: a guest */
    size_t n_former;        /* sessions of a guest that this one takes the place of */
    const uint64_t *former; /* [n_former]; when unpacked: in the scratch */
    uint64_t client;        /* of a guest that numbers its parts; 0: it does not */
} psp_hello_t;

#define PSP_CHECKPOINT_NAME_MAX 127u

typedef struct psp_hello_reply {
    uint64_t cluster;
    uint64_t session;
    uint32_t server;
    uint32_t n_servers;
    uint32_t map_epoch;
    uint32_t max_message_bytes;
    const uint8_t *slot_owners;  /* PSC_SLOT_COUNT little-endian uint16, unaligned; NULL: none */
    char host[PSP_NAME_MAX + 1]; /* "": unknown */
    uint32_t window_bytes;       /* 0: no limit */
    uint32_t lease_ms;           /* of a guest; 0: none */
    size_t n_addresses;          /* 0 or n_servers */
    /* "HOST:PORT" by server, at most PSP_NAME_MAX bytes each; when unpacked: in the scratch */
    const char *const *addresses;
    size_t n_counted; /* 0, or how many former sessions were told */
    /* [n_counted]: 1 + the sequence of the last push of each that counts; 0: not known. When
     * unpacked: in the scratch */
    const uint64_t *counted;
    uint64_t clock; /* of a worker, from which it goes on */
    char resumed[PSP_CHECKPOINT_NAME_MAX + 1];
} psp_hello_reply_t;

typedef struct psp_open_table {
    char name[PSP_NAME_MAX + 1];
    uint32_t dim;
    char init[PSP_NAME_MAX + 1];
    uint32_t n_init_params;
    double init_params[PSP_PARAMS_MAX];
    char optimizer[PSP_NAME_MAX + 1];
    uint32_t n_optimizer_params;
    double optimizer_params[PSP_PARAMS_MAX];
    uint64_t seed;
    uint32_t table;
    psp_precision_t precision;
    psp_precision_t state_precision;
    bool per_row_steps;
    double l2;
    double clip_value;
    double clip_norm;
    bool has_bounds;
    double weight_min, weight_max;
    bool has_pad;
    uint64_t pad_id;
    uint32_t admit_after;
    bool admit_shared;
    uint32_t admit_counters;
    uint64_t expire_after;
    uint64_t expire_rare_after;
    uint32_t expire_rare_below;
    uint32_t expire_floor;
    bool expire_dry_run;
} psp_open_table_t;

/* Options that have the same name and kind in the public header, the plain struct and the wire: for
 * copying them from one to the next. */
#define PSP_TABLE_WHOLE_OPTIONS(X)                                                                 \
    X(dim)                                                                                         \
    X(seed)                                                                                        \
    X(per_row_steps)                                                                               \
    X(has_bounds)                                                                                  \
    X(has_pad)                                                                                     \
    X(pad_id)                                                                                      \
    X(admit_after)                                                                                 \
    X(admit_shared)                                                                                \
    X(admit_counters)                                                                              \
    X(expire_after)                                                                                \
    X(expire_rare_after)                                                                           \
    X(expire_rare_below)                                                                           \
    X(expire_floor)                                                                                \
    X(expire_dry_run)
#define PSP_TABLE_REAL_OPTIONS(X)                                                                  \
    X(l2)                                                                                          \
    X(clip_value)                                                                                  \
    X(clip_norm)                                                                                   \
    X(weight_min)                                                                                  \
    X(weight_max)

typedef struct psp_open_table_reply {
    uint32_t table;
    uint32_t table_epoch;
    uint32_t max_rows; /* 0: as many as a message holds */
} psp_open_table_reply_t;

typedef struct psp_pull {
    uint32_t table;
    uint32_t table_epoch;
    uint32_t staleness;
    bool want_versions;
    bool scan;
    bool want_places;
    psp_format_t format; /* of the rows in the reply */
    size_t n;
    const uint8_t *ids;      /* n little-endian uint64, unaligned */
    const uint8_t *versions; /* n little-endian uint32, unaligned, or NULL */
} psp_pull_t;

typedef struct psp_pull_reply {
    uint32_t dim;
    psp_format_t format;
    size_t n;                /* rows that were asked for */
    size_t n_values;         /* of them, those with a value: length of rows / psp_row_bytes() */
    const uint8_t *versions; /* n little-endian uint32, unaligned, or NULL */
    const uint8_t *states;   /* n psp_row_state_t, or NULL: all present */
    const uint8_t *places;   /* n + 1 little-endian uint32, unaligned, or NULL; last the layout */
    const uint8_t *rows;     /* n_values rows of that format, unaligned */
} psp_pull_reply_t;

typedef struct psp_push {
    uint32_t table;
    uint32_t table_epoch;
    psp_push_kind_t kind;
    float learning_rate;
    uint32_t dim;
    uint64_t step;
    psp_format_t format;
    psp_format_t reply_format; /* of the rows in the reply */
    bool want_rows;
    bool synchronous;
    size_t n;
    const uint8_t *ids;
    const uint8_t *rows; /* exactly n rows of `format`, unaligned */
} psp_push_t;

typedef struct psp_push_reply {
    uint32_t dim; /* 0 without rows */
    psp_format_t format;
    size_t n;                /* rows; 0: none came */
    const uint8_t *versions; /* n little-endian uint32, unaligned */
    const uint8_t *rows;     /* n rows of that format, unaligned */
} psp_push_reply_t;

/* Pushes, as messages, and the rows in them. */
typedef struct psp_tally {
    uint64_t pushes, rows;
} psp_tally_t;

typedef struct psp_clock {
    uint64_t progress;
    psp_tally_t pushed; /* by this worker, to this server, before */
} psp_clock_t;

typedef struct psp_clock_reply {
    uint64_t min_clock;
    uint64_t total_progress;
    uint32_t first;  /* least rank of the workers that are still there */
    uint32_t n_lost; /* workers that were lost so far */
} psp_clock_reply_t;

typedef struct psp_barrier {
    uint64_t generation;
} psp_barrier_t;

typedef struct psp_barrier_reply {
    uint32_t first;  /* least rank of the workers that are still there */
    uint32_t n_lost; /* workers that were lost so far */
} psp_barrier_reply_t;

typedef struct psp_counter {
    const char *name; /* when unpacked: in the scratch memory */
    uint64_t value;
} psp_counter_t;

#define PSP_COUNTERS_MAX 256u
typedef struct psp_stats_reply {
    size_t n;
    const psp_counter_t *counters;
} psp_stats_reply_t;

typedef struct psp_goodbye {
    uint32_t status;
} psp_goodbye_t;

typedef struct psp_prefetch {
    uint32_t table;
    uint32_t table_epoch;
    uint64_t when;
    size_t n;
    const uint8_t *ids; /* n little-endian uint64, unaligned */
} psp_prefetch_t;

typedef struct psp_attach {
    uint64_t host;
} psp_attach_t;

#define PSP_PATH_MAX 63u
typedef struct psp_attach_reply {
    char path[PSP_PATH_MAX + 1]; /* "": none */
    uint64_t key;
} psp_attach_reply_t;

typedef struct psp_touches {
    uint32_t table;
    uint32_t table_epoch;
    size_t n;
    const uint8_t *ids; /* n little-endian uint64, unaligned */
} psp_touches_t;

typedef struct psp_find_table {
    char name[PSP_NAME_MAX + 1]; /* "": by number */
    uint32_t after;
} psp_find_table_t;

typedef struct psp_find_table_reply {
    bool found;
    psp_open_table_t options; /* where found */
    uint64_t rows_created;
} psp_find_table_reply_t;

#define PSP_CURSOR_MAX 64u /* bytes */
typedef struct psp_export {
    uint32_t table;
    uint32_t table_epoch;
    psp_format_t format;
    bool want_state;
    uint32_t max_rows; /* 0: as many as the server likes */
    size_t cursor_size;
    uint8_t cursor[PSP_CURSOR_MAX];
} psp_export_t;

typedef struct psp_export_reply {
    uint32_t dim;
    psp_format_t format;
    uint32_t state_floats; /* of a row in `state`; 0: none */
    size_t next_size;      /* 0: there is no further block */
    uint8_t next[PSP_CURSOR_MAX];
    size_t n;
    const uint8_t *ids;    /* n little-endian uint64, unaligned */
    const uint8_t *counts; /* 2 * n little-endian uint32, unaligned, or NULL */
    const uint8_t *state;  /* n * state_floats little-endian float, unaligned */
    const uint8_t *rows;   /* n rows of that format, unaligned */
} psp_export_reply_t;

typedef struct psp_import {
    psp_push_t rows;       /* that assigns them */
    uint32_t state_floats; /* of a row in `state`; 0: none */
    const uint8_t *counts; /* as above, or NULL */
    const uint8_t *state;
} psp_import_t;

typedef struct psp_import_reply {
    uint64_t rows;
    uint64_t created;
} psp_import_reply_t;

typedef enum psp_checkpoint_step {
    PSP_CHECKPOINT_WHOLE = 0,
    PSP_CHECKPOINT_SAVE = 1,
    PSP_CHECKPOINT_STATE = 2,
    PSP_CHECKPOINT_COMMIT = 3,
    PSP_CHECKPOINT_ABANDON = 4,
    PSP_CHECKPOINT_READ = 5,
    PSP_CHECKPOINT_LOOK = 6,
} psp_checkpoint_step_t;

typedef struct psp_checkpoint {
    psp_checkpoint_step_t step;
    char name[PSP_CHECKPOINT_NAME_MAX + 1];
    uint64_t offset;
    bool detached, in_step, everywhere;
    bool vocabulary;                /* STATE alone */
    uint64_t whole_bytes, checksum; /* with vocabulary: of all of it, if that is asked; else 0 */
    size_t n;
    const uint8_t *state; /* [n] */
} psp_checkpoint_t;

typedef struct psp_checkpoint_reply {
    char name[PSP_CHECKPOINT_NAME_MAX + 1];
    uint64_t state_bytes;
    bool over;
    size_t n;
    const uint8_t *state; /* [n] */
} psp_checkpoint_reply_t;

typedef struct psp_watch {
    uint32_t table;
    uint32_t table_epoch;
    psp_format_t format;
    bool want_rows;
    bool end;          /* those of the session that wait for this table are answered at once */
    uint32_t max_rows; /* 0: as many as the server likes */
    uint32_t wait_ms;  /* 0: the server's choice */
    size_t cursor_size;
    uint8_t cursor[PSP_CURSOR_MAX];
} psp_watch_t;

typedef struct psp_watch_reply {
    psp_export_reply_t block; /* without counts and state; rows NULL: without them too */
    bool lost;
} psp_watch_reply_t;

/* One unpacked message. Of the headers only the one that fits the kind is set. */
typedef struct psp_message {
    psp_kind_t kind;
    psp_request_header_t request;
    psp_reply_header_t reply;
    union {
        psp_hello_t hello;
        psp_hello_reply_t hello_reply;
        psp_open_table_t open_table;
        psp_open_table_reply_t open_table_reply;
        psp_pull_t pull;
        psp_pull_reply_t pull_reply;
        psp_push_t push;
        psp_push_reply_t push_reply;
        psp_clock_t clock;
        psp_clock_reply_t clock_reply;
        psp_barrier_t barrier;
        psp_barrier_reply_t barrier_reply;
        psp_stats_reply_t stats_reply;
        psp_goodbye_t goodbye;
        psp_prefetch_t prefetch;
        psp_attach_t attach;
        psp_attach_reply_t attach_reply;
        psp_touches_t touches;
        psp_find_table_t find_table;
        psp_find_table_reply_t find_table_reply;
        psp_export_t export;
        psp_export_reply_t export_reply;
        psp_import_t import;
        psp_import_reply_t import_reply;
        psp_checkpoint_t checkpoint;
        psp_checkpoint_reply_t checkpoint_reply;
        psp_watch_t watch;
        psp_watch_reply_t watch_reply;
    } u;
} psp_message_t;

/* Scratch memory of an unpacked message, reusable from message to message. One thread at a time. */
typedef struct psp_scratch psp_scratch_t;

/* limit: bytes that one message may take beside its buffer. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psp_scratch_create(size_t limit, psp_scratch_t **scratch_out,
                                               psc_error_t *error);
void psp_scratch_destroy(psp_scratch_t *scratch);

/*
 * Unpacks size bytes of the given kind. message_out borrows from data and scratch until the next
 * call with this scratch. Any bytes are safe.
 * Errors: PROTOCOL (malformed, an unknown kind, a length over a limit, counts that disagree),
 * NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psp_message_unpack(psp_scratch_t *scratch, uint32_t kind,
                                               const uint8_t *data, size_t size,
                                               psp_message_t *message_out, psc_error_t *error);

/*
 * Packs any message without rows (for a pull, a prefetch or touches: with its ids) from its plain
 * struct, the reverse of unpack. Errors: NO_MEMORY, INVALID_ARGUMENT (a length over a limit). Gives
 * buffer.
 */
PSC_MUST_CHECK psc_status_t psp_message_pack(psp_pool_t *pool, const psp_message_t *message,
                                             psp_buffer_t **buffer_out, psc_error_t *error);

/*
 * Begins a pull of n ids: ids_out points at n * 8 bytes in the buffer for the caller to fill.
 * pull->ids is not read, pull->versions is copied.
 */
PSC_MUST_CHECK psc_status_t psp_pull_begin(psp_pool_t *pool, const psp_request_header_t *header,
                                           const psp_pull_t *pull, psp_buffer_t **buffer_out,
                                           uint8_t **ids_out, psc_error_t *error);

/* The same for a prefetch. */
PSC_MUST_CHECK psc_status_t psp_prefetch_begin(psp_pool_t *pool, const psp_request_header_t *header,
                                               const psp_prefetch_t *prefetch,
                                               psp_buffer_t **buffer_out, uint8_t **ids_out,
                                               psc_error_t *error);

/*
 * Begins a push: ids_out (n * 8 bytes) and rows_out (n rows of psp_row_bytes(push->format, dim))
 * point into the buffer, both unaligned. push->ids and push->rows are not read.
 */
PSC_MUST_CHECK psc_status_t psp_push_begin(psp_pool_t *pool, const psp_request_header_t *header,
                                           const psp_push_t *push, psp_buffer_t **buffer_out,
                                           uint8_t **ids_out, uint8_t **rows_out,
                                           psc_error_t *error);

/*
 * Begins the reply of a pull of n rows. reply->versions, states and places (or NULL each) are
 * copied, n_values and rows not read. rows_out (psp_row_bytes(reply->format, dim) for each row that
 * has a value) is for the gather.
 */
PSC_MUST_CHECK psc_status_t psp_pull_reply_begin(psp_pool_t *pool, const psp_reply_header_t *header,
                                                 const psp_pull_reply_t *reply,
                                                 psp_buffer_t **buffer_out, uint8_t **rows_out,
                                                 psc_error_t *error);

/*
 * Begins the reply of a push that wants its rows back, n at least 1: rows_out (n rows of the
 * format) is for the gather; reply->versions [n] are copied, reply->rows is not read.
 */
PSC_MUST_CHECK psc_status_t psp_push_reply_begin(psp_pool_t *pool, const psp_reply_header_t *header,
                                                 const psp_push_reply_t *reply,
                                                 psp_buffer_t **buffer_out, uint8_t **rows_out,
                                                 psc_error_t *error);

/* Where the bulk fields of a block lie in its message, unaligned; for the caller to fill. */
typedef struct psp_block {
    uint8_t *ids;    /* n * 8 bytes */
    uint8_t *counts; /* n * 2 * 4 bytes, where there are any */
    uint8_t *state;  /* n * state_floats * 4 bytes */
    uint8_t *rows;   /* n rows of the format */
} psp_block_t;

/* Begins the reply of an export. reply->ids, state and rows are not read, counts only for whether
 * it is NULL. */
PSC_MUST_CHECK psc_status_t psp_export_reply_begin(psp_pool_t *pool,
                                                   const psp_reply_header_t *header,
                                                   const psp_export_reply_t *reply,
                                                   psp_buffer_t **buffer_out,
                                                   psp_block_t *block_out, psc_error_t *error);

/* The same for the reply of a watch; rows only for whether it is NULL. */
PSC_MUST_CHECK psc_status_t psp_watch_reply_begin(psp_pool_t *pool,
                                                  const psp_reply_header_t *header,
                                                  const psp_watch_reply_t *reply,
                                                  psp_buffer_t **buffer_out, psp_block_t *block_out,
                                                  psc_error_t *error);

/* The same for an import. */
PSC_MUST_CHECK psc_status_t psp_import_begin(psp_pool_t *pool, const psp_request_header_t *header,
                                             const psp_import_t *import, psp_buffer_t **buffer_out,
                                             psp_block_t *block_out, psc_error_t *error);

/* A bare reply of the given reply kind (error or ok) with only its header. */
PSC_MUST_CHECK psc_status_t psp_reply_pack(psp_pool_t *pool, psp_kind_t reply_kind,
                                           const psp_reply_header_t *header,
                                           psp_buffer_t **buffer_out, psc_error_t *error);

/* Rows of dim that a pull reply or push may have so that it fits in max_message_bytes; at least 1.
 * The same in all formats, so that decoded rows are as bounded as messages are. */
size_t psp_rows_per_message(uint32_t dim, size_t max_message_bytes);

/* The same for blocks of exports and imports. */
size_t psp_rows_per_block(uint32_t dim, uint32_t state_floats, size_t max_message_bytes);

/* Static name of a kind ("pull"), "unknown" otherwise. */
const char *psp_kind_name(uint32_t kind);

/* "f32", "bf16", "f16"; "unknown" otherwise. Static. */
const char *psp_precision_name(psp_precision_t precision);

/* The precision of a name; false when there is none of it. */
bool psp_precision_find(const char *name, psp_precision_t *precision_out);

/* The reply kind of a request kind; 0 when kind is no request. */
uint32_t psp_reply_kind(uint32_t kind);

static inline uint64_t psp_id_at(const uint8_t *ids, size_t i)
{
    uint64_t id;
    memcpy(&id, ids + i * sizeof id, sizeof id);
    return id; /* little-endian hosts only: CMakeLists.txt checks */
}

#endif
