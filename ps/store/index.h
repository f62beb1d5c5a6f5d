/*
 * id -> place of one table's rows in memory, 7.1 bytes a row. Any uint64 is an id. The ids
 * themselves are not kept here but read from the rows' headers.
 */
#ifndef PS_STORE_INDEX_H
#define PS_STORE_INDEX_H

#include "ps/store/store.h"

typedef struct ps_index ps_index_t;

/* What a row costs here at the most, once a table has some thousands; for budgets. */
#define PS_INDEX_ROW_BYTES 12

/* base: of the region that places refer to; borrowed. Errors: NO_MEMORY. Gives. */
PSC_MUST_CHECK psc_status_t ps_index_create(uint16_t table, uint8_t *base, ps_index_t **index_out,
                                            psc_error_t *error);
void ps_index_destroy(ps_index_t *index);

/* hash is psc_row_hash(table, id) everywhere. 0: not there. */
ps_place_t ps_index_find(const ps_index_t *index, uint64_t id, uint64_t hash);

/* The same for n rows at once, hiding the latency of memory. Returns how many are not there. */
size_t ps_index_find_batch(const ps_index_t *index, const uint64_t *ids, const uint64_t *hashes,
                           size_t n, ps_place_t *places_out);

/* The row's header holds its id already; the id must not be there. Errors: NO_MEMORY. */
PSC_MUST_CHECK psc_status_t ps_index_insert(ps_index_t *index, uint64_t hash, ps_place_t place,
                                            psc_error_t *error);

/* The row must be there; the header is not looked at. */
void ps_index_remove(ps_index_t *index, uint64_t hash, ps_place_t place);

size_t ps_index_count(const ps_index_t *index);
/* Memory it takes now, without the allocator's own. */
size_t ps_index_bytes(const ps_index_t *index);
/* Rows that the last insertion or removal moved to another group. */
size_t ps_index_moved(const ps_index_t *index);

#endif
