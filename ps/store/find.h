/*
 * Looking up the rows of a batch. Part of the store.
 */
#ifndef PS_STORE_FIND_H
#define PS_STORE_FIND_H

#include "ps/store/store_core.h"

/*
 * Looks all rows of a batch up, tells the policy of those found, and takes known absent ones out of
 * a READ batch. Returns how many are not in memory. *must_pin_out: a row found must be pinned,
 * since it is not there yet or only as long as it is pinned.
 */
size_t ps_find_rows(const ps_store_table_t *table, ps_batch_t *batch, bool *must_pin_out);

#endif
