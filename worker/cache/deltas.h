/* Accumulated deltas: which are due when, and the outbox through which they leave. Inside
 * worker/cache/. */
#ifndef WORKER_CACHE_DELTAS_H
#define WORKER_CACHE_DELTAS_H

#include "worker/cache/entries.h"

#define PSW_WHEEL 1024u /* above PSW_CACHE_FLUSH_MAX */
#define PSW_DUE_AT_ONCE 4u

/* A table and its part of the outbox. */
typedef struct psw_kept_table {
    psw_cache_table_t is;
    uint64_t *ids;
    float *rows; /* [n, dim] */
    size_t n, capacity;
} psw_kept_table_t;

typedef struct psw_deltas {
    psw_kept_table_t *tables;
    uint32_t n_tables;
    uint32_t wheel[PSW_WHEEL]; /* slots of rows with deltas by the clock they are due, modulo its
                                  size; PSW_CACHE_NO_SLOT: none */
    size_t n_dirty;
    uint32_t flush; /* clocks */
    bool all_due;
    bool outbox_given; /* its first part was handed out */
    uint32_t given;    /* table of that part */
} psw_deltas_t;

void psw_deltas_init(psw_deltas_t *deltas);
void psw_deltas_clear(psw_deltas_t *deltas);

/* The table's index, added when it is new. Errors: NO_MEMORY (also for more than 65,535 tables). */
PSC_MUST_CHECK psc_status_t psw_deltas_table(psw_deltas_t *deltas, const psw_cache_table_t *table,
                                             uint32_t *index_out, psc_error_t *error);

/* The row has deltas from clock on. */
void psw_deltas_begin(psw_deltas_t *deltas, const psw_entries_t *entries, psw_entry_t *entry,
                      uint64_t clock);

/* Slots of some rows of this list of the wheel, which are to be taken now. Their number; 0: there
 * are none. */
size_t psw_deltas_due(const psw_deltas_t *deltas, const psw_entries_t *entries, uint64_t clock,
                      uint32_t slots_out[PSW_DUE_AT_ONCE]);

/* Moves a row's deltas to the outbox: they are part of its base now. Errors: NO_MEMORY (nothing was
 * moved). */
PSC_MUST_CHECK psc_status_t psw_deltas_take(psw_deltas_t *deltas, psw_entries_t *entries,
                                            psw_entry_t *entry, uint64_t clock, psc_error_t *error);

/* Forgets a row's deltas. */
void psw_deltas_drop(psw_deltas_t *deltas, const psw_entries_t *entries, psw_entry_t *entry);

/* The next part of the outbox; the part given before is done with. */
bool psw_deltas_outbox(psw_deltas_t *deltas, psw_outbox_t *outbox_out);

#endif
