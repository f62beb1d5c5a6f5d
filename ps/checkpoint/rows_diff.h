/*
 * Which rows are other ones in one checkpoint than in another of the same run, or of one that goes
 * on from it, whatever numbers of servers made them.
 *
 *     st = ps_rows_diff(folder, names, &options, &diff, error);
 *     diff->tables[i].n_changed ...
 *     ps_rows_diff_destroy(diff);
 *
 * A row is what the checkpoint has stored of it, also where it had expired and was not freed yet.
 * Shared rows of tables that admit rows late are none. Threads: none.
 */
#ifndef PS_CHECKPOINT_ROWS_DIFF_H
#define PS_CHECKPOINT_ROWS_DIFF_H

#include "common/status.h"
#include "proto/message.h"

typedef struct ps_rows_diff_options {
    size_t n_largest;      /* rows to tell of each table; up to PS_ROWS_DIFF_LARGEST_MAX */
    uint64_t memory_bytes; /* for reading rows; a few MiB at least are taken */
} ps_rows_diff_options_t;

#define PS_ROWS_DIFF_LARGEST_MAX 100000u

typedef struct ps_rows_diff_row {
    uint64_t id;
    double norm; /* of the difference of the weights; infinite where it is not finite */
} ps_rows_diff_row_t;

typedef struct ps_rows_diff_table {
    char name[PSP_NAME_MAX + 1];
    bool has[2];          /* whether the first, the second checkpoint has the table */
    bool states_compared; /* false: the optimizer is another one */
    uint64_t n_rows[2];   /* in the first, in the second */
    uint64_t n_added, n_removed;
    uint64_t n_changed;          /* in both, with other weights */
    uint64_t n_state_changed;    /* the same weights, and another state of the optimizer */
    uint64_t n_same;             /* the same weights and state */
    ps_rows_diff_row_t *largest; /* [n_largest] of those with other weights, the largest first, of
                                    equal ones that with the lesser id */
    size_t n_largest;
} ps_rows_diff_table_t;

typedef struct ps_rows_diff {
    size_t n_tables; /* that one of both has: first those of the first, by number */
    ps_rows_diff_table_t *tables;
} ps_rows_diff_t;

/*
 * Both are read whole, each file against its checksum, before anything is compared. Errors:
 * NOT_FOUND, IO, CORRUPT (by name of the file), MISMATCH (a table of both has another number, dim
 * or precision: they are of different runs), NO_MEMORY. Gives.
 */
PSC_MUST_CHECK psc_status_t ps_rows_diff(const char *folder, const char *const names[2],
                                         const ps_rows_diff_options_t *options,
                                         ps_rows_diff_t **diff_out, psc_error_t *error);

/* NULL is a no-op. */
void ps_rows_diff_destroy(ps_rows_diff_t *diff);

#endif
