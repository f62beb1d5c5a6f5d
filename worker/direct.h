/*
 * Rows read straight from the memory of servers on this host, without a message.
 *
 *     psw_direct_attach(direct, server, path, key, error);    // what Attach's reply said
 *     st = psw_direct_read(direct, &pull, &distinct, error);  // leaves in distinct what to ask for
 *     psw_direct_learn(direct, server, ...);                  // places that a pull's reply told
 *     psw_direct_pushed(direct, server, ...);                 // rows of a push that was enqueued
 *
 * What is read is what a message that was sent instead would have brought, for all that this client
 * did itself: rows of its own pushes that are not acknowledged yet are left to messages, which
 * queue behind them; and so are all rows as long as the clocks are not as far as the pull's
 * staleness asks for. Internal to worker/.
 */
#ifndef WORKER_DIRECT_H
#define WORKER_DIRECT_H

#include "worker/batch.h"
#include "worker/core.h"

typedef struct psw_direct psw_direct_t;

#define PSW_DIRECT_TOUCHES 512u /* ids that are reported at once */

/* What a pull wants; as in psw_pull_options_t. */
typedef struct psw_direct_pull {
    uint32_t table, dim;
    const uint64_t *ids;
    float *rows_out;
    size_t stride;
    uint8_t *states_out; /* NULL: not wanted */
    uint32_t staleness;
} psw_direct_pull_t;

typedef struct psw_direct_counts {
    uint64_t read;   /* rows read from memory */
    uint64_t missed; /* of which the place was known, but that was not possible */
} psw_direct_counts_t;

/* Borrows core. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t psw_direct_create(psw_core_t *core, psw_direct_t **direct_out,
                                              psc_error_t *error);
/* NULL is a no-op. */
void psw_direct_destroy(psw_direct_t *direct);

/* Maps a server's rows. Errors: as psc_shared_open; then that server is asked as before. */
PSC_MUST_CHECK psc_status_t psw_direct_attach(psw_direct_t *direct, uint32_t server,
                                              const char *path, uint64_t key, psc_error_t *error);

/*
 * Reads what can be read of the distinct ids of a pull, and takes it out of distinct: what is left,
 * first and hashes, borrows from direct until the next call. Errors: NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t psw_direct_read(psw_direct_t *direct, const psw_direct_pull_t *pull,
                                            psw_distinct_t *distinct, psc_error_t *error);

/* Takes the places of a pull's reply, for rows of dim floats: n little-endian uint32, unaligned,
 * and the layout. */
void psw_direct_learn(psw_direct_t *direct, uint32_t server, uint32_t table, uint32_t dim,
                      const uint8_t *places, size_t n);

/* The rows ids[order[0..n-1]] are part of a push of this sequence. */
void psw_direct_pushed(psw_direct_t *direct, uint32_t server, uint64_t sequence, uint32_t table,
                       const uint64_t *ids, const uint32_t *order, size_t n);

/*
 * Samples of rows of a table that were read, when there are enough to report: PSW_DIRECT_TOUCHES
 * ids of one server, the caller's until the next call of psw_direct_read. False: not yet.
 */
bool psw_direct_touches(psw_direct_t *direct, uint32_t table, uint32_t *server_out,
                        const uint64_t **ids_out);

/* No more is read until it is called with false: a server may be gone. */
void psw_direct_pause(psw_direct_t *direct, bool pause);

psw_direct_counts_t psw_direct_counts(const psw_direct_t *direct);

#endif
