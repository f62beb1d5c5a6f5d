/*
 * Whether the data directories of servers that do not run are what they should be. Nothing in them
 * is changed.
 *
 *     for (size_t i = 0; i < n; i++)
 *         st = ps_data_check(data, ranks[i], 64 << 20, tell, NULL, &found, &error);
 *
 * Threads: none.
 */
#ifndef PS_DATA_CHECK_H
#define PS_DATA_CHECK_H

#include "ps/data_identity.h"

/* What was found of one server. */
typedef struct ps_data_found {
    ps_data_identity_t identity;
    bool known;   /* its identity was read */
    bool is_copy; /* the directory is another than the server's */
    size_t n_files;
    uint64_t n_rows, bytes; /* of rows at rest, and of files */
} ps_data_found_t;

/* The servers that have a directory below DATA, in order. Errors: NOT_FOUND (no DATA, or no server
 * in it), IO, NO_MEMORY. Gives (psc_free). */
PSC_MUST_CHECK psc_status_t ps_data_list(const char *data, uint32_t **ranks_out, size_t *n_out,
                                         psc_error_t *error);

/*
 * Checks DATA/server-<rank>: whose it is, whether it was closed in order, and then all its files
 * and rows, which are read. Each fault goes to fn. memory_bytes: for reading. Returns OK, or the
 * first fault: IN_USE (a server runs), UNCLEAN (open: of a server that was killed, or a copy made
 * while one ran; no identity, a damaged one or one of another format), MISMATCH (of another
 * server), NOT_FOUND and CORRUPT (a file, by name; a row), IO, NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_data_check(const char *data, uint32_t rank, uint64_t memory_bytes,
                                          ps_data_fault_fn fn, void *context,
                                          ps_data_found_t *found_out, psc_error_t *error);

/* Whether what two servers' directories say of themselves fits. Errors: MISMATCH, naming both. */
PSC_MUST_CHECK psc_status_t ps_data_same_run(const char *data, const ps_data_found_t *one,
                                             const ps_data_found_t *other, psc_error_t *error);

#endif
