/*
 * Plans by the functions that the store itself divides its memory with (ps_store_layout_of,
 * ps_store_record_bytes, ps_slab_capacity) and by the cold tier's own account of a record on disk:
 * a plan cannot differ from the store, and a test compares it with stores that are open.
 *
 * Bytes of memory are exact: what the budget is charged. Bytes on disk are estimates: RocksDB's
 * files depend on what its compactions have done so far.
 *
 * The smallest memory is found by trying one MiB after another from what the rows alone take: pages
 * grow in steps, so more memory is not always more rows, and this is 0.1 s at the very worst.
 */
#include "ps/store/store_plan.h"

#include "ps/store/store_core.h"

#define MIB ((uint64_t)1 << 20)
/* More memory than this holds no more rows: their part is all that places can tell apart. */
#define ENOUGH (3 * PS_SLAB_MAX_REGION / 2)

/* The layout without what is reserved; nothing is left for rows when that is too much. */
static ps_store_layout_t layout_beside(uint64_t memory_bytes, uint64_t reserved_bytes)
{
    ps_store_layout_t layout = ps_store_layout_of(memory_bytes);
    bool fits = reserved_bytes <= layout.rows_bytes;
    layout.rows_bytes = fits ? layout.rows_bytes - reserved_bytes : 0;
    return layout;
}

void ps_store_plan(uint64_t memory_bytes, uint64_t reserved_bytes, size_t row_bytes,
                   ps_store_plan_t *plan_out)
{
    ps_store_layout_t layout = layout_beside(memory_bytes, reserved_bytes);
    size_t record_bytes = ps_store_record_bytes(row_bytes);
    uint64_t max_rows = ps_store_capacity_of(&layout, record_bytes);
    *plan_out = (ps_store_plan_t){
        .rows_bytes = layout.rows_bytes,
        .page_bytes = layout.page_bytes,
        .record_bytes = record_bytes,
        .page_rows = layout.page_bytes / record_bytes,
        .book_row_bytes = PS_STORE_ROW_BYTES,
        .max_rows = max_rows,
        .works = max_rows >= PS_STORE_MIN_ROWS,
        .disk_row_bytes = (size_t)ps_cold_rocks_row_bytes(sizeof(ps_row_header_t) + row_bytes),
    };
}

uint64_t ps_store_plan_memory(uint64_t reserved_bytes, size_t row_bytes, uint64_t n_rows)
{
    size_t record_bytes = ps_store_record_bytes(row_bytes);
    if (n_rows > PS_SLAB_MAX_REGION / record_bytes)
        return 0;
    if (n_rows < PS_STORE_MIN_ROWS)
        n_rows = PS_STORE_MIN_ROWS;
    uint64_t memory = (n_rows * record_bytes + reserved_bytes) / MIB * MIB;
    if (memory < PS_STORE_MIN_MEMORY)
        memory = PS_STORE_MIN_MEMORY;
    for (; memory <= ENOUGH; memory += MIB) {
        ps_store_layout_t layout = layout_beside(memory, reserved_bytes);
        if (ps_store_capacity_of(&layout, record_bytes) >= n_rows)
            return memory;
    }
    return 0;
}

uint64_t ps_store_plan_disk(uint64_t memory_bytes, size_t row_bytes, uint64_t n_rows)
{
    uint64_t row = ps_cold_rocks_row_bytes(sizeof(ps_row_header_t) + row_bytes);
    return ps_cold_rocks_disk(ps_cold_rocks_memory(memory_bytes), n_rows * row);
}
