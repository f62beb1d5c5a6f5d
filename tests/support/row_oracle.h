/*
 * A dictionary of rows that does what a table of the server promises, on plain arrays: no records,
 * no batches, no memory limit, nothing is ever freed. One table for every optimizer and precision.
 *
 * Optimizers' kernels, initialisers and encoders are the server's, which have tests of their own;
 * which row a value belongs to, in which order it changes, what its state, counts and random bits
 * are, and when it begins and ends, is said here a second time.
 */
#ifndef TESTS_SUPPORT_ROW_ORACLE_H
#define TESTS_SUPPORT_ROW_ORACLE_H

#include "ps/table/schema.h"

#define ORACLE_IDS 40u
#define ORACLE_TABLES_MAX 48u
#define ORACLE_BATCH 10u
#define ORACLE_ABSENT 0u /* of oracle_hash: never that of a row */

typedef struct oracle_row {
    bool record;
    uint64_t id;
    uint32_t version, updates;
    uint64_t last; /* time of the last push */
    float *weights, *state;
} oracle_row_t;

typedef struct oracle_table {
    psp_open_table_t options;
    ps_table_t definition;
    size_t dim, k, m; /* weights, state, and how much of that has 16 bits */
    oracle_row_t rows[ORACLE_IDS];
    oracle_row_t initial; /* of the row that was asked for last */
    size_t n_gradients;
} oracle_table_t;

typedef struct oracle {
    uint64_t time;
    size_t n_tables;
    oracle_table_t tables[ORACLE_TABLES_MAX]; /* number: index + 1 */
} oracle_t;

/* A push; the index of a row may occur twice. */
typedef struct oracle_push {
    size_t table; /* index */
    psp_push_kind_t kind;
    float rate;
    uint64_t step;
    size_t n;
    const uint32_t *index;
    const float *values; /* [n, dim] */
} oracle_push_t;

/*
 * All optimizers with all precisions. Each table is as wide as it may be for records of at most
 * record_bytes. Ends the test on an error. Gives.
 */
oracle_t *oracle_create(size_t record_bytes);
void oracle_destroy(oracle_t *oracle);

/* begun_out (may be NULL) [n]: rows that began anew, after they were forgotten or never there. */
void oracle_apply(oracle_t *oracle, const oracle_push_t *push, bool *begun_out);

/* What a pull must answer; *weights_out until the next call. */
psp_row_state_t oracle_expect(oracle_t *oracle, size_t table, uint32_t index,
                              const float **weights_out);

/* A number for all that a row is. */
uint64_t oracle_hash(const oracle_table_t *table, const oracle_row_t *row);

/* Takes a row from a record: a header and what stands behind it. */
void oracle_adopt(oracle_table_t *table, oracle_row_t *row, const void *record);

#endif
