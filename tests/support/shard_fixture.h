/*
 * A shard over a memory tier, or over another one, driven by packed messages; its replies come back
 * in the order in which it answered. Everything here ends the test when it cannot do what is asked.
 */
#ifndef TESTS_SUPPORT_SHARD_FIXTURE_H
#define TESTS_SUPPORT_SHARD_FIXTURE_H

#include "proto/rights.h"
#include "ps/store/cold.h"
#include "ps/table/shard.h"

#define FIXTURE_CLUSTER UINT64_C(0xfeedfacecafe0001)
#define FIXTURE_WORKERS_MAX 8u

typedef struct shard_fixture {
    psp_pool_t *pool;
    ps_store_t *store;
    ps_shard_t *shard;
    psp_scratch_t *scratch;
    psp_buffer_t *first, *last; /* replies that were not taken yet */
    uint64_t session[FIXTURE_WORKERS_MAX];
    uint64_t sequence[FIXTURE_WORKERS_MAX];
    uint64_t clock[FIXTURE_WORKERS_MAX];
    uint64_t next_request;
    uint32_t n_workers; /* of the shard; those from there on are guests */
    uintptr_t next_call;
    psc_error_t failure;      /* what handle or poll returned; PSC_OK: nothing so far */
    bool sealed;              /* guests' messages came sealed from now on */
    const psp_grant_t *grant; /* of guests' messages from now on; NULL: no tokens */
    psp_buffer_t *taken;      /* buffer of the reply taken last */
} shard_fixture_t;

typedef struct fixture_options {
    uint64_t memory_bytes;
    uint32_t rank, n_servers, n_workers;
    uint32_t n_guests;
    uint64_t lease_us;
    ps_direct_t direct;
    ps_cold_t *cold;         /* taken; NULL: a memory tier */
    ps_cold_faults_t faults; /* of that memory tier */
} fixture_options_t;

void fixture_open(shard_fixture_t *f, const fixture_options_t *options);
/* Asserts that no buffer was lost. clean: the store is expected to close without an error. */
void fixture_close(shard_fixture_t *f, bool clean);

/* A header as worker's client would write it, with the next sequence and request number. */
psp_request_header_t fixture_header(shard_fixture_t *f, uint32_t worker);

/* Packs and hands in a message without rows. Returns its request number. */
uint64_t fixture_send(shard_fixture_t *f, uint32_t worker, psp_message_t *message);
uint64_t fixture_pull(shard_fixture_t *f, uint32_t worker, const psp_request_header_t *header,
                      psp_pull_t pull, const uint64_t *ids);
/* rows are encoded to the push's format. */
uint64_t fixture_push(shard_fixture_t *f, uint32_t worker, const psp_request_header_t *header,
                      psp_push_t push, const uint64_t *ids, const float *rows);
/* Hands in bytes as they are. A guest's message comes by call number f->next_call. */
void fixture_send_bytes(shard_fixture_t *f, uint32_t worker, uint32_t kind, const uint8_t *bytes,
                        size_t size);

/* The next reply, if one is there. Valid until the next call. *worker_out: whom it went to. */
bool fixture_take(shard_fixture_t *f, psp_message_t *reply_out, uint32_t *worker_out);
/* The same, after waiting for it. */
void fixture_wait(shard_fixture_t *f, psp_message_t *reply_out, uint32_t *worker_out);
/* One turn of a driver. */
void fixture_poll(shard_fixture_t *f);

/* Says hello and takes the reply. */
void fixture_hello(shard_fixture_t *f, uint32_t worker);
/* Opens a table; returns the status, and on success the reply. */
psc_status_t fixture_open_table(shard_fixture_t *f, const psp_open_table_t *options,
                                psp_open_table_reply_t *reply_out, psc_error_t *error_out);
/* Value of a counter of Stats; ends the test when it does not exist. */
uint64_t fixture_counter(shard_fixture_t *f, uint32_t worker, const char *name);

#endif
