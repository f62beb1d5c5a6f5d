/*
 * What a store of a given memory will do for a table, without opening one: the store's own
 * formulas, as pure functions.
 */
#ifndef PS_STORE_STORE_PLAN_H
#define PS_STORE_STORE_PLAN_H

#include "ps/store/store.h"

typedef struct ps_store_plan {
    uint64_t rows_bytes;   /* of the memory, for rows and index; what is reserved is not in it */
    size_t page_bytes;     /* rows live in pages of so much */
    size_t record_bytes;   /* of a row: header, values, rounding */
    size_t page_rows;      /* rows of a page; 0: a row is larger than a page */
    size_t book_row_bytes; /* charged for each row: index, policy */
    uint64_t max_rows;     /* in memory at once, if no other table has any */
    bool works;            /* the store would take such a table */
    size_t disk_row_bytes; /* about, of a row in RocksDB */
} ps_store_plan_t;

/* memory_bytes: at least PS_STORE_MIN_MEMORY. reserved_bytes: of it, by ps_store_reserve_memory.
 * row_bytes: behind the header. */
void ps_store_plan(uint64_t memory_bytes, uint64_t reserved_bytes, size_t row_bytes,
                   ps_store_plan_t *plan_out);

/* The smallest memory in whole MiB that takes such a table beside what is reserved, and holds
 * n_rows of it at once; 0: none does. */
uint64_t ps_store_plan_memory(uint64_t reserved_bytes, size_t row_bytes, uint64_t n_rows);

/* About what a data directory takes at most, with n_rows that are written again and again. */
uint64_t ps_store_plan_disk(uint64_t memory_bytes, size_t row_bytes, uint64_t n_rows);

#endif
