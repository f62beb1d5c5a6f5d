/* What a client and a table are, for the files that implement embps.h. Internal to worker/. */
#ifndef WORKER_CLIENT_STATE_H
#define WORKER_CLIENT_STATE_H

#include "worker/client.h"
#include "worker/driver.h"
#include "worker/issue.h"

/* Where a client came from, and what is to be done when it is gone. */
typedef struct psw_home {
    /* Frees transport and pool. orderly: goodbyes were said and answered. Takes context. */
    psc_status_t (*leave)(void *context, bool orderly, psc_error_t *error);
    void *context;
    bool is_rank; /* of a job: its end is recorded for the script that started the job */
} psw_home_t;

typedef struct psw_tally {
    uint64_t pulls, pushes;
    uint64_t rows_pulled, rows_pulled_distinct;
    uint64_t rows_pushed, rows_pushed_distinct;
    uint64_t prefetches, rows_prefetched, rows_prefetch_dropped;
} psw_tally_t;

/* The cache of a client, and its deltas under way (cached_rows.c). */
typedef struct psw_cached psw_cached_t;

struct embps_table {
    embps_table_t *next;
    embps_client_t *client;
    uint32_t number;
    uint32_t dim;
    uint32_t max_rows;        /* of one message: the least that a server told; 0: none did */
    bool whole;               /* its messages are not cut shorter than they must be */
    psp_open_table_t options; /* as it was opened; table: 0 */
    uint32_t *epochs;         /* by server */
    uint64_t step;            /* of later gradient pushes; 0: unknown */
    psp_format_t pull_format, push_format;
    uint64_t rounding_seed; /* of what is pushed */
    uint32_t pushes;        /* started so far; wraps */
    bool keeps;             /* a cache may have copies of its rows */
    psw_cache_table_t kept;
};

struct embps_client {
    psw_driver_t driver;
    psw_issuer_t issuer;
    embps_table_t *tables;
    uint32_t worker, n_workers;
    uint32_t staleness;
    uint32_t flush; /* clocks for which the cache may accumulate deltas */
    uint64_t barriers;
    uint32_t first, n_lost; /* workers that are there and lost, as the last clock's reply said */
    psw_cached_t *cached;   /* NULL: none */
    psw_tally_t tally;
    psw_request_t *touches; /* a report of rows read straight from memory; NULL: none yet */
    uint64_t touches_at;    /* rows read so when it was sent */
    psw_home_t home;
};

/*
 * A client without connection: core, batch, router. cluster: as in psw_core_options_t.
 * Borrows transport and pool until the client is gone. Errors: NO_MEMORY, INVALID_ARGUMENT. Gives.
 */
PSC_MUST_CHECK psc_status_t psw_client_create(psp_transport_t *transport, psp_pool_t *pool,
                                              uint64_t cluster, embps_client_t **client_out,
                                              psc_error_t *error);
/* Frees it without a word to anyone; home is not called. NULL is a no-op. */
void psw_client_destroy(embps_client_t *client);

/* Hello to all servers. Errors: what they answer, what ended the core. */
PSC_MUST_CHECK psc_status_t psw_client_hello(embps_client_t *client, psc_error_t *error);

/* Goodbye(0) to all servers after all outstanding work. Errors: what ended the core, the first
 * error of a request that nobody waited for. Goodbye is said in any case. */
PSC_MUST_CHECK psc_status_t psw_client_goodbye(embps_client_t *client, psc_error_t *error);

/* Waits for a request, takes its error and releases it. Takes request. */
PSC_MUST_CHECK psc_status_t psw_client_finish(embps_client_t *client, psw_request_t *request,
                                              psc_error_t *error);

/* A request with one small message to each of the servers first_server .. n_servers - 1:
 * message->request is filled in for each. Errors: NO_MEMORY, what ended the core. Gives. */
PSC_MUST_CHECK psc_status_t psw_client_ask(embps_client_t *client, psp_message_t *message,
                                           uint32_t first_server, uint32_t n_servers,
                                           psw_request_t **request_out, psc_error_t *error);

/*
 * Whether a call that failed with st is to be made again from its beginning: the servers had been
 * started again, and the client has found them anew. *relaid: psw_core_relaid from before the call.
 */
bool psw_client_again(const embps_client_t *client, psc_status_t st, uint64_t *relaid);
/* For what asks servers again and again, by their numbers. what: begins the error. Errors:
 * PEER_GONE: these are others than when psw_core_relaid was relaid. */
PSC_MUST_CHECK psc_status_t psw_client_check_servers(const embps_client_t *client, uint64_t relaid,
                                                     const char *what, psc_error_t *error);

/* After pulls of a table: reports the rows that were read straight from memory, now and then. */
void psw_client_report_touches(embps_table_t *table);

/* Until how much is queued for a server a call waits while it builds its messages: not at all; a
 * window, for those that wait anyway; some windows, for those that should not, so that they cannot
 * queue without end. */
typedef enum psw_room_kind {
    PSW_ROOM_NONE,
    PSW_ROOM_WINDOW,
    PSW_ROOM_QUEUE,
} psw_room_kind_t;

/* table_api.c: all tables of the client are opened again, at servers that are others now; copies
 * in its cache are not trusted any more, deltas stay. Errors: those of opening; MISMATCH: a table
 * is another one there. */
PSC_MUST_CHECK psc_status_t psw_tables_reopen(embps_client_t *client, psc_error_t *error);
/* A table by its number; NULL: the client has none. */
embps_table_t *psw_table_find(embps_client_t *client, uint32_t number);

/* table_api.c: a name for a message, [PSP_NAME_MAX + 1]; text may be NULL. Errors:
 * INVALID_ARGUMENT, beginning with what. */
PSC_MUST_CHECK psc_status_t psw_copy_name(const char *what, const char *text, char *out,
                                          psc_error_t *error);

/* rows_api.c: the parts of a call. rows: any pointer that must not be NULL. */
PSC_MUST_CHECK psc_status_t psw_check_rows(const char *what, const embps_table_t *table,
                                           const uint64_t *ids, size_t n, const void *rows,
                                           psc_error_t *error);
psw_target_t psw_table_target(const embps_table_t *table);
/* flags: of embps_pull_states. Errors: INVALID_ARGUMENT. */
PSC_MUST_CHECK psc_status_t psw_pull_options_of(embps_table_t *table, const uint64_t *ids, size_t n,
                                                float *rows_out, uint8_t *states_out,
                                                uint32_t flags, psw_pull_options_t *options_out,
                                                psc_error_t *error);
PSC_MUST_CHECK psc_status_t psw_start_pull(embps_table_t *table, const psw_pull_options_t *options,
                                           psw_room_kind_t room, psw_request_t **request_out,
                                           psc_error_t *error);

#endif
