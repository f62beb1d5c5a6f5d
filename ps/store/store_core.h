/* What store.c, room.c and sweep.c share: the store itself. For these alone. */
#ifndef PS_STORE_STORE_CORE_H
#define PS_STORE_STORE_CORE_H

#include "ps/store/evict.h"
#include "ps/store/index.h"
#include "ps/store/io.h"
#include "ps/store/slab.h"

/* What a row costs beside its record; charged with its page. */
#define PS_STORE_ROW_BYTES (PS_INDEX_ROW_BYTES + PS_EVICT_ROW_BYTES)

#define PS_STORE_MIN_ROWS 64 /* that any table must be able to have in memory */

/* Flags of a LOADING row: its read job's number above this many bits, PS_ROW_SCAN below. */
#define PS_STORE_JOB_SHIFT 2

/* How a budget is divided; see store.c. */
typedef struct ps_store_layout {
    uint64_t rows_bytes; /* pages of rows, their part of index and policy included */
    size_t page_bytes;
    size_t n_read_jobs, n_write_jobs;
} ps_store_layout_t;

typedef struct ps_store_table {
    uint16_t number;
    bool cold_empty; /* the cold tier holds none of its rows, nor will by what is under way */
    uint32_t class_id;
    size_t value_bytes; /* header and row, as on disk */
    size_t max_batch;
    ps_index_t *index;
} ps_store_table_t;

/* The last prepared batch, while its rows are not pinned. */
typedef struct ps_store_held {
    const ps_place_t *places; /* NULL: there is none */
    size_t n;
    bool any_new; /* some rows were not there: release looks for those that nobody made */
} ps_store_held_t;

typedef struct ps_store_cut ps_store_cut_t;

struct ps_store {
    uint64_t memory_bytes;
    ps_store_layout_t layout;
    uint64_t reserved_bytes; /* of layout.rows_bytes, for others */
    ps_cold_t *cold;
    ps_slab_t *slab;
    uint8_t *base;
    ps_io_t *io;
    ps_store_table_t **tables; /* [n_tables], by number; NULL: not declared */
    uint32_t n_tables;
    ps_evict_class_t *evict; /* one per class */
    uint32_t n_evict;
    ps_io_job_t *write_job; /* being filled, or NULL */
    ps_io_job_t *read_jobs; /* of the batch being prepared; linked by next_free, newest first */
    ps_store_held_t held;
    psc_shared_file_t shared;   /* control NULL: the rows are not shared */
    uint32_t n_loads;           /* rows: for serials of loads */
    struct ps_store_scan *scan; /* open, or closed with its job under way; or NULL */
    ps_store_cut_t *cut;        /* under way; or NULL */
    uint64_t n_erased_cut;      /* counters.erased at the last cut */
    bool began_anew;            /* a row did, over what the cold tier may have of it */
    psc_error_t failure;        /* code PSC_OK while all is well */
    ps_store_counters_t counters;
};

/* For the files of the store: the table of this number or NULL; how a memory is divided, and how
   many records of one size that leaves room for; the rows' part of it; the store's failure. */
ps_store_table_t *ps_store_find_table(const ps_store_t *store, uint16_t number);
ps_store_layout_t ps_store_layout_of(uint64_t memory_bytes);
size_t ps_store_capacity_of(const ps_store_layout_t *layout, size_t record_bytes);
uint64_t ps_store_rows_bytes(const ps_store_t *store);
/* Pins the rows of the last batch, if they are not yet: from now on rows may leave memory. Errors:
   BUSY. */
psc_status_t ps_store_settle_held(ps_store_t *store, psc_error_t *error);
psc_status_t ps_store_failed(const ps_store_t *store, psc_error_t *error);
/* Submits a read job; its rows, which are LOADING, learn its number. more: it is read together with
   the one submitted next. Returns the number. */
uint64_t ps_store_submit_read(ps_store_t *store, ps_io_job_t *job, bool more);
/* A record, free until now, becomes that of a row: in this state, all else 0. */
void ps_share_reset_row(ps_row_header_t *row, uint64_t id, uint16_t table, ps_row_state_t state);
/* The serial of rows that are being loaded; another one each time. */
uint32_t ps_share_load_serial(ps_store_t *store);

#endif
