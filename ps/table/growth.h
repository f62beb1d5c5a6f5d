/*
 * Rows grow with need: what the rules of ps/growth mean for the rows of a pull or push of a table
 * that admits rows late or lets them expire.
 *
 * A row is, at any moment and for everybody, one of
 *
 *     present       it has a record that is live. Pulls read it, pushes change it
 *     expired       its record is older than one life, less than two (ps/growth/expiry.h). A pull
 *                   answers the initial value; a push begins the row anew, and then changes it
 *     none          it has no record, or one that is forgotten (older than two lives)
 *
 * A row of none comes into being by the push that makes it the admit_after-th since the start, as
 * the slot's sketch counts (ps/growth/sketch.h; duplicates in one push are one), or by any ASSIGN:
 * that says what the row is. Until then a push is dropped, or with admit_shared it changes the
 * shared row of the slot, which is pulled in place of such rows. A pull tells them apart as
 *
 *     NOT_ADMITTED  it was pushed, and a push now would be counted. The value is the row's own
 *                   initial value; with admit_shared it is the shared row's, and a row that was
 *                   never pushed is told as this too
 *     INITIAL       the row's own initial value: never pushed, or forgotten
 *
 * A row begins with the value that a pull would have shown just before: the shared row's weights,
 * or its own initial value. Its optimizer state is fresh, its version and update count 0: nothing
 * is inherited, from an earlier life of the row or from what else was in its place. What was
 * admitted once, expired and was forgotten comes back with its first push, since counts do not
 * fall.
 *
 * The pad row is neither counted nor expired.
 *
 * All this depends on the requests in their order, the clocks and the records: not on which server
 * keeps the slot, nor on whether a forgotten record was freed already.
 *
 * The shared rows of a table are rows of its companion, number | PS_TABLE_COMPANION, one for each
 * slot, whose id is chosen so that it lies in that slot. They never expire.
 * Threads: the owner's.
 */
#ifndef PS_TABLE_GROWTH_H
#define PS_TABLE_GROWTH_H

#include "common/slots.h"
#include "ps/growth/expiry.h"
#include "ps/growth/sketch.h"
#include "ps/table/rows.h"

/* Counters of Stats; all since the start. */
typedef struct ps_growth_counters {
    uint64_t pulled_not_admitted, pulled_expired;
    uint64_t dropped; /* pushed rows that were not admitted, and dropped */
    uint64_t shared;  /* ... that went to a shared row */
    uint64_t renewed; /* expired rows that a push began anew */
    uint64_t due;     /* expired and forgotten rows that the last sweeps found, of all tables */
    uint64_t freed;   /* forgotten rows that sweeps took away */
    uint64_t sweeps;  /* that came to an end */
} ps_growth_counters_t;

typedef struct ps_growth {
    ps_table_t companion;           /* of the shared rows; number 0: rows share none */
    ps_sketch_t *sketch;            /* NULL: rows are admitted at once */
    ps_expiry_t *expiry;            /* NULL: rows never expire */
    uint64_t memory_bytes;          /* taken from the store's budget */
    uint64_t sweep_at;              /* clock of the next sweep */
    uint64_t due;                   /* rows that the last sweep found expired or forgotten */
    uint16_t slots[PSC_SLOT_COUNT]; /* among those that this server keeps, in their order */
} ps_growth_t;

/*
 * What a table needs to grow, or NULL when it does not; the memory is taken from the store's
 * budget. clock: least clock of the workers. Errors: INVALID_ARGUMENT (does not fit into the
 * budget), NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_growth_create(const ps_table_t *table, const psc_slot_map_t *map,
                                             uint32_t rank, uint64_t clock, ps_store_t *store,
                                             ps_growth_t **growth_out, psc_error_t *error);
/* What it takes from the budget of a server that keeps n_slots; 0: the table does not grow. */
uint64_t ps_growth_bytes(const ps_table_t *table, size_t n_slots);

/* Gives the memory back. NULL is a no-op. */
void ps_growth_destroy(ps_growth_t *growth, ps_store_t *store);

/* The least clock of the workers is now clock: to be told at every change. */
void ps_growth_advance(ps_growth_t *growth, uint64_t clock);

/* What a push of this moment leaves as the last clock of its rows; clock: the pushing worker's. */
uint32_t ps_growth_clock(const ps_growth_t *growth, uint64_t clock);

/* Whether the table has shared rows. */
static inline bool ps_growth_shares(const ps_growth_t *growth)
{
    return growth != NULL && growth->companion.number != 0;
}

/* Ids and hashes [n] of the shared rows of the slots of hashes [n]. */
void ps_growth_locate_shared(const ps_growth_t *growth, const uint64_t *hashes, size_t n,
                             uint64_t *ids_out, uint64_t *hashes_out);

/* The rows of a request of a table that grows. Plain data; borrows. */
typedef struct ps_growth_rows {
    ps_rows_t rows;
    const uint64_t *hashes; /* [n] */
    ps_rows_t shared;       /* of the same n slots; n 0 when there are none */
} ps_growth_rows_t;

/* After ps_rows_inspect: makes states [n] and versions [n] (may be NULL) say what is above. Returns
 * how many rows are not PRESENT. */
size_t ps_growth_inspect(const ps_growth_rows_t *rows, uint8_t *states, uint32_t *versions);

/* After ps_rows_gather: writes the shared rows over those that are NOT_ADMITTED. */
void ps_growth_gather_shared(const ps_growth_rows_t *rows, const uint8_t *states,
                             psp_format_t format, uint8_t *out);

/* What a push does to the rows of a table that grows. */
typedef struct ps_growth_push {
    ps_rows_push_t push;
    ps_place_t *kept;       /* [n] out: the row's place, or 0 where the push does not reach it */
    ps_place_t *redirected; /* [n] out, with shared rows: the shared row's place, or 0 where kept */
} ps_growth_push_t;

/*
 * Before ps_rows_claim: counts sightings, begins the rows that come into being, and those that
 * begin anew. Returns how many rows the push does not reach; adds to *created_out those that came
 * into being. Nothing here can fail.
 */
size_t ps_growth_admit(const ps_growth_rows_t *rows, const ps_growth_push_t *push,
                       ps_growth_counters_t *counters, size_t *created_out);

/* Around ps_rows_apply, of rows that are distinct and were admitted: keeps the slots' counts of
 * live rows right. */
void ps_growth_before_apply(const ps_growth_t *growth, const ps_rows_t *rows);
void ps_growth_after_apply(const ps_growth_t *growth, const ps_rows_t *rows);

/* Age of a row of the table by its header; LIVE with no expiry and for the pad row. */
ps_age_t ps_growth_age(const ps_table_t *table, uint64_t hash, const ps_row_header_t *row);

#endif
