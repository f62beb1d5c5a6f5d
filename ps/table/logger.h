/*
 * The shard's part in a log of what changed it: after a crash of every process a checkpoint and the
 * log behind it make the same shard again.
 *
 * What took effect is handed to a sink (ps/log/log_writer.h), in the order in which it took effect:
 * pushes and imports as they came, sums of synchronous pushes as they were applied, new tables, the
 * time by which rows expire, and how far each guest's session is. Replies that tell of a change
 * wait until the sink has written it; so do all of a guest that have a sequence, since what it was
 * answered must not be unknown after a restart. No I/O and no threads of its own.
 */
#ifndef PS_TABLE_LOGGER_H
#define PS_TABLE_LOGGER_H

#include "common/queue.h"
#include "ps/table/request.h"

struct ps_shard;

/* What a record says. On disk: never renumber. */
typedef enum ps_log_kind {
    PS_LOG_PUSH = 1,    /* a packed PushRequest that was applied; of a guest with its session */
    PS_LOG_IMPORT = 2,  /* the same of an ImportRequest */
    PS_LOG_TABLE = 3,   /* a packed OpenTableRequest; its `table` is the number */
    PS_LOG_TIME = 4,    /* a uint64: the time that rows' ages are counted by */
    PS_LOG_SESSION = 5, /* a ps_log_session_t: of a guest, which began or was answered */
    PS_LOG_END = 6,     /* a ps_log_session_t, of which only `id` counts: it has ended */
} ps_log_kind_t;
#define PS_LOG_KIND_LAST PS_LOG_END

/* Little-endian, as all of the log. */
typedef struct ps_log_session {
    uint64_t id;
    uint64_t given; /* sessions that were given so far */
    uint64_t clock, progress;
    uint64_t push_sequence; /* the last push that counts */
    uint64_t sequence;      /* the last request that was served; 0: none of this record's */
    uint64_t client, part;  /* see ps_call_part_t */
} ps_log_session_t;

/* What the sink is to do. */
typedef enum ps_log_action {
    PS_LOG_WRITE,  /* a record */
    PS_LOG_CUT,    /* the next record begins segment `segment` */
    PS_LOG_FORGET, /* if there is a checkpoint `name`, segments below `segment` are in it, and go */
} ps_log_action_t;

/* One record, or something to do, on its way. */
typedef struct ps_log_entry {
    psc_queue_node_t node;     /* the sink's while it has the entry */
    struct ps_log_entry *next; /* the logger's */
    uint64_t position;         /* entries so far, this one included */
    ps_log_action_t action;
    uint64_t segment;
    ps_log_kind_t kind;
    const uint8_t *bytes; /* of a record; borrowed from buffer, copy or small */
    size_t n;
    psp_buffer_t *buffer; /* NULL: none */
    uint8_t *copy;        /* NULL: none */
    union {
        ps_log_session_t small;
        char name[PSP_CHECKPOINT_NAME_MAX + 1];
    };
} ps_log_entry_t;

/* Who writes. */
typedef struct ps_log_sink {
    void *context;
    uint64_t segment; /* that is written to at first */
    bool records;     /* else what changes the shard is not logged, and segments only follow cuts */
    /* Borrows entry until written() is at its position. */
    void (*submit)(void *context, ps_log_entry_t *entry);
    /* All up to this position is written, as safely as it was asked for. */
    uint64_t (*written)(void *context);
    /* Why nothing more is written, naming the file; PSC_OK: it is. */
    psc_status_t (*fault)(void *context, psc_error_t *error);
    /* For Stats: bytes of records, and how often they were written in one go. */
    void (*count)(void *context, uint64_t *bytes_out, uint64_t *groups_out);
} ps_log_sink_t;

struct ps_held_reply;

/* Part of a shard; all zero at first. */
typedef struct ps_logger {
    const ps_log_sink_t *sink;          /* NULL: there is no log. Borrowed */
    bool records;                       /* what changes the shard is logged */
    uint64_t segment;                   /* where the next record goes; 0: there never was a log */
    uint64_t cut_segment;               /* that began at the last cut */
    uint64_t position;                  /* of the last entry */
    uint64_t time;                      /* that was logged last */
    psc_error_t fault;                  /* of memory, which the next step reports */
    ps_log_entry_t *head, *tail, *free; /* entries that the sink has; spare ones */
    struct ps_held_reply *first, *last, *spare;
    size_t n_held;
    uint64_t n_records, n_replies_held, held_us; /* for Stats */
    uint64_t longest_us;                         /* that an answer waited */
} ps_logger_t;

/* From now on what changes the shard is logged, if the sink wants it. */
void ps_logger_start(struct ps_shard *shard, const ps_log_sink_t *sink);
/* Replies that are held are dropped; the sink has ended. */
void ps_logger_clear(struct ps_shard *shard);

/* The rows of a push or import have changed. */
void ps_logger_push(struct ps_shard *shard, ps_request_t *request);
/* A table was made. */
void ps_logger_table(struct ps_shard *shard, const struct ps_table *table);
/* Clocks have moved. */
void ps_logger_time(struct ps_shard *shard);
/* A guest's session began, or its clock moved; it has ended. */
void ps_logger_session(struct ps_shard *shard, uint32_t peer);
void ps_logger_end(struct ps_shard *shard, uint64_t session);

/* A cut is made at this moment: what changes later goes to a new segment. */
void ps_logger_cut(struct ps_shard *shard);
/* The checkpoint of that cut, which is the saver's last one, may be committed. */
void ps_logger_commit(struct ps_shard *shard);

/*
 * What is to be answered to a request (asked: its message, sequence: its own) may have to wait:
 * then it is taken, and sent by ps_logger_step; reply has peer and call already. False: send it
 * now.
 */
PSC_MUST_CHECK bool ps_logger_hold(struct ps_shard *shard, const ps_request_t *request,
                                   psp_buffer_t *reply);

/* Sends what has been waiting for what is written now. Errors: those of the sink: the shard's end.
 */
PSC_MUST_CHECK psc_status_t ps_logger_step(struct ps_shard *shard, bool *progress_out,
                                           psc_error_t *error);

/* The shard ends: whoever waits is told why instead; guests_go_on: no guest is told anything, since
 * they ask again. */
void ps_logger_refuse(struct ps_shard *shard, const psc_error_t *why, bool guests_go_on);

#endif
