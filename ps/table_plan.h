/*
 * Memory and disk that a table will take on servers that need not exist: what `embps plan` prints.
 * Pure: nothing is opened.
 *
 *     ps_table_plan_request_t request = {.rows = 50000000, .dim = 4096, .optimizer = "adam",
 *                                        .precision = "bf16", .state_precision = "f32",
 *                                        .memory_bytes = 600 << 20, .n_servers = 4};
 *     st = ps_table_plan(&request, &plan, error);
 */
#ifndef PS_TABLE_PLAN_H
#define PS_TABLE_PLAN_H

#include "ps/store/store_plan.h"

#define PS_TABLE_PLAN_MIN_MEMORY PS_STORE_MIN_MEMORY
/* What a server takes beside --memory at the most: messages, code, stacks, the allocator's rest. */
#define PS_TABLE_PLAN_BESIDE_BYTES ((uint64_t)64 << 20)

typedef struct ps_table_plan_request {
    uint64_t rows; /* at most 2^40 */
    uint32_t dim;
    const char *optimizer, *precision, *state_precision;
    uint64_t memory_bytes; /* of each server; at least PS_TABLE_PLAN_MIN_MEMORY */
    uint32_t n_servers;    /* 1 to PSC_MAX_SERVERS */
    /* As OpenTable has them; 0: not so, or its default. */
    uint32_t admit_after, admit_counters;
    bool admit_shared;
    uint64_t expire_after, expire_rare_after;
    uint32_t expire_rare_below, expire_floor;
} ps_table_plan_request_t;

/* Plain data, in bytes. */
typedef struct ps_table_plan {
    size_t header_bytes, weight_bytes, state_bytes; /* of a row */
    ps_store_plan_t store;                          /* of a server */
    double row_memory_bytes;                        /* what a row in memory costs, all included */
    /* Of the server with most slots, rows spread evenly over these. */
    uint64_t server_rows;         /* its share */
    uint64_t server_shared_rows;  /* beside them: one a slot, where rows that wait share one */
    uint64_t server_hot_rows;     /* how many of both fit into its memory at once */
    uint64_t server_growth_bytes; /* of its memory: counts for admission and expiry */
    uint64_t server_resident_bytes;
    uint64_t server_live_disk_bytes; /* about: each row once */
    uint64_t server_disk_bytes;      /* about: with old versions and logs, at worst */
    uint64_t smallest_memory_bytes;  /* of a server, for the table to work at all */
    uint64_t all_hot_memory_bytes;   /* for all its rows in memory; 0: more than a store can use */
} ps_table_plan_t;

/* Errors: INVALID_ARGUMENT, naming what does not exist, or the smallest memory. */
PSC_MUST_CHECK psc_status_t ps_table_plan(const ps_table_plan_request_t *request,
                                          ps_table_plan_t *plan_out, psc_error_t *error);

#endif
