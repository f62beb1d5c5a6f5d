/*
 * Rows in memory that other processes of this host read: the store's part of it. What readers and
 * the writer agree on is in common/shared_rows.h.
 *
 *     st = ps_store_share(store, error);       // before any row is in memory
 *     file = ps_store_shared(store);           // file->path, file->control->key: for the readers
 *     ... rows are changed as before, each push between psc_shared_begin and psc_shared_end ...
 *     ps_store_touch(store, table, ids, hashes, n);    // what readers say that they used
 */
#ifndef PS_STORE_SHARE_H
#define PS_STORE_SHARE_H

#include "ps/store/store.h"

/* Moves the region of rows into a memory file; nothing is done where it is in one. Errors: BUSY
 * (rows are in memory already), IO and NO_MEMORY (the system refused): all stays as it was. */
PSC_MUST_CHECK psc_status_t ps_store_share(ps_store_t *store, psc_error_t *error);

/* The file; NULL: rows are not shared. Borrowed. */
const psc_shared_file_t *ps_store_shared(const ps_store_t *store);

/* Its control block, to be written; NULL: rows are not shared. */
psc_shared_control_t *ps_store_shared_control(const ps_store_t *store);

/* The rows were used without the store's knowledge: tells the policy of those that are in memory.
 * At most PS_SHARE_TOUCHES at once. Returns how many there are. */
#define PS_SHARE_TOUCHES 256
size_t ps_store_touch(ps_store_t *store, uint16_t table, const uint64_t *ids,
                      const uint64_t *hashes, size_t n);

#endif
