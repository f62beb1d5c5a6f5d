/* What the core consists of: for core.c and core_time.c alone. */
#ifndef WORKER_CORE_STATE_H
#define WORKER_CORE_STATE_H

#include "worker/core.h"

#define PSW_CORE_NONE UINT32_MAX

/* A message of a request, from enqueue to its answer. */
typedef struct psw_part_state {
    psw_request_t *request; /* NULL: nobody waits for the answer */
    psp_buffer_t *buffer;   /* until sent */
    psp_buffer_t *kept;     /* from then on, where messages are kept; else NULL */
    uint64_t sequence;
    uint64_t since_us;    /* when it was enqueued, in the core's patience */
    uint64_t deadline_us; /* when its rows are late, in the driver's time; 0: never */
    size_t cost;          /* bytes of message and expected reply */
    uint32_t server;
    uint32_t generation;
    uint32_t reply_kind;
    uint32_t begin, n; /* rows in the request's order */
    uint32_t previous; /* open list */
    uint32_t next;     /* open list, or free list */
    uint32_t next_queued;
    bool open;
} psw_part_state_t;

typedef struct psw_server_state {
    uint64_t session; /* 0: none yet */
    uint64_t next_sequence;
    uint32_t open_head, open_tail;
    uint32_t queued_head, queued_tail;
    size_t queued_bytes;
    uint32_t n_queued;
    size_t window_bytes; /* sent and not answered */
    size_t max_window_bytes;
    uint32_t window_messages;
    uint32_t next_ready;
    bool ready;
    bool ping_due, pinged; /* to be asked for a sign of life; asked and not answered */
    uint32_t lease_ms;     /* 0: none */
    uint64_t heard_us;     /* when it last answered anything, in the core's patience */
    uint64_t pushed;       /* the last push or import that it acknowledged */
    uint64_t n_numbered;   /* pushes with numbers that were made for it */
    psp_tally_t made;      /* all pushes that were made for it */
    char host[PSP_NAME_MAX + 1];
} psw_server_state_t;

/* A session that has ended, with a server of those that are others now. */
typedef struct psw_former {
    uint64_t pushed;  /* the last push or import that was acknowledged */
    uint64_t counted; /* 1 + the last one that counts; 0: nobody has told */
} psw_former_t;

/* A part that was under way with it. */
typedef struct psw_strand {
    psw_request_t *request; /* NULL: it has its end */
    psp_buffer_t *buffer;   /* NULL: not kept */
    uint32_t reply_kind;
    uint32_t former; /* its index */
    bool was_sent;
    uint64_t sequence;
    uint64_t deadline_us;
    uint32_t begin, n;
} psw_strand_t;

struct psw_core {
    psw_core_options_t options;
    psw_server_state_t *servers;
    psp_scratch_t *scratch;
    psw_part_state_t *parts;
    size_t n_parts;
    uint32_t free_part;
    size_t n_open, n_unasked; /* parts in open lists; of those, without a request */
    uint32_t ready_head, ready_tail;
    psw_request_t *live;
    psw_request_t *free_requests;
    psc_slot_map_t map;
    size_t max_message_bytes;
    uint32_t n_sessions;
    uint64_t cluster;
    uint64_t clock, first_clock; /* first_clock: the one that hello told */
    char resumed[PSP_CHECKPOINT_NAME_MAX + 1];
    uint64_t requests_begun, messages_sent;
    uint64_t client;    /* of a guest that numbers its parts; 0: it does not */
    uint64_t *promised; /* [n_servers] the last push of the calls until now */
    psc_error_t error;

    uint64_t now_us;        /* the driver's time; 0: not told yet */
    uint64_t patience_us;   /* time during which the client was looking for answers */
    uint64_t timeout_us;    /* 0: none */
    psw_trouble_fn trouble; /* NULL: nobody knows */
    const void *trouble_context;
    uint64_t next_deadline_us; /* no part has an earlier one; UINT64_MAX: none has any */
    uint32_t pings_due;        /* servers with ping_due */
    uint64_t asked_around_us;  /* when all servers were asked for signs of life, in patience */

    bool keeps; /* messages with rows; and a session that ends makes it stale */
    bool stale, relaying;
    uint32_t stale_server;
    size_t n_unsealed; /* requests that get more parts */
    uint64_t relaid;
    psc_error_t refusal; /* why it is stale */
    psw_former_t *former;
    uint32_t n_former;
    uint64_t *former_sessions; /* [n_former] for hellos */
    psw_strand_t *strands;     /* [n_strands], those of one former server in order */
    size_t n_strands;
};

/* core.c for core_time.c: takes a part out of its server's open list and frees it; puts a server
 * that may send on the ready list. */
void psw_core_close_part(psw_core_t *core, uint32_t index);
void psw_core_make_ready(psw_core_t *core, uint32_t server);

/* core.c for core_relay.c: a server without a session. */
psw_server_state_t psw_core_new_server(const psw_core_t *core);

/* core_relay.c for core.c: a server has refused the session, with this; true: the core is stale
 * now, and nothing has failed. What a server tells of former sessions. Frees what is set apart; its
 * requests fail with error, or are left as they are where it is NULL. */
bool psw_core_refused(psw_core_t *core, uint32_t server, const psc_error_t *refusal);
PSC_MUST_CHECK psc_status_t psw_core_take_counted(psw_core_t *core, uint32_t server,
                                                  const psp_hello_reply_t *reply,
                                                  psc_error_t *error);
void psw_core_free_strands(psw_core_t *core, const psc_error_t *error);

/* core_time.c for core.c: a part's deadline; an answer of a server that has come, true when it is
 * that of a ping; the next ping to send, or NULL. */
void psw_core_note_deadline(psw_core_t *core, psw_part_state_t *part, uint32_t deadline_ms);
bool psw_core_hear(psw_core_t *core, uint32_t server, uint64_t number);
psp_buffer_t *psw_core_next_ping(psw_core_t *core);

#endif
