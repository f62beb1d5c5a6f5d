/*
 * Where the store finds a record for one more row: a free one, a new page, a row or a page of rows
 * that is evicted. Part of the store.
 */
#ifndef PS_STORE_ROOM_H
#define PS_STORE_ROOM_H

#include "ps/store/store_core.h"

/*
 * A record for a row of this table; its content is undefined. Errors: BUSY (all is pinned, or all
 * write-back memory is under way), NO_MEMORY.
 */
PSC_MUST_CHECK psc_status_t ps_room_take(ps_store_t *store, const ps_store_table_t *table,
                                         ps_place_t *place_out, psc_error_t *error);

/* True when n records can be taken without evicting anything. */
bool ps_room_has(ps_store_t *store, const ps_store_table_t *table, size_t n);

/* Takes a row out of memory: index and record. */
void ps_room_drop(ps_store_t *store, ps_place_t place);

/* Copies a row into the write job that is being filled. False: all write jobs are under way. */
bool ps_room_write_back(ps_store_t *store, const ps_row_header_t *row);

/* Removes a row from the cold tier with the job that is being filled. False: as above. */
bool ps_room_remove_cold(ps_store_t *store, const ps_row_header_t *row);

/* Frees a page of rows if more is in use than the budget allows, as it does after it was made
   smaller. No batch may rely on rows that it did not pin. */
void ps_room_trim(ps_store_t *store);

/* Submits the write job that is being filled, if there is one. */
void ps_room_submit_writes(ps_store_t *store);

#endif
