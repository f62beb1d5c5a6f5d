/*
 * When accumulated deltas leave.
 *
 * A row's deltas of clock c leave at the end of clock c + period - 1, so with a period of 1 before
 * the clock is announced. The period is `flush` clocks; of rows that were pushed in each clock of
 * their last period it is a quarter of that, of those pushed in half of them the half: the hottest
 * rows, which are few, are where workers would drift apart (so pWord2Vec synchronises them more
 * often). The first period of a row is cut at random, from its hash, so that rows that come
 * together do not leave together for ever.
 *
 * Rows that are due at the same clock hang in one list of a wheel. Taking a row puts its deltas,
 * value less base, into the outbox, which holds one run of rows for each table, and adds them to
 * its base: to the same float as the server will add them, so that base and server's row have the
 * same bits as long as nobody else pushes. Cost: O(1) a row.
 */
#include "worker/cache/deltas.h"

#include "common/alloc.h"
#include "common/hash.h"
#include "common/vectors.h"

#define NONE PSW_CACHE_NO_SLOT

void psw_deltas_init(psw_deltas_t *deltas)
{
    *deltas = (psw_deltas_t){.flush = 1};
    for (size_t i = 0; i < PSW_WHEEL; i++)
        deltas->wheel[i] = NONE;
}

void psw_deltas_clear(psw_deltas_t *deltas)
{
    for (uint32_t i = 0; i < deltas->n_tables; i++) {
        psc_free(deltas->tables[i].ids);
        psc_free(deltas->tables[i].rows);
    }
    psc_free(deltas->tables);
    psw_deltas_init(deltas);
}

psc_status_t psw_deltas_table(psw_deltas_t *deltas, const psw_cache_table_t *table,
                              uint32_t *index_out, psc_error_t *error)
{
    for (uint32_t i = 0; i < deltas->n_tables; i++) {
        if (deltas->tables[i].is.number == table->number) {
            deltas->tables[i].is = *table;
            *index_out = i;
            return PSC_OK;
        }
    }
    psw_kept_table_t *tables = NULL;
    if (deltas->n_tables < PSW_TABLES_MAX)
        tables = psc_realloc_array(deltas->tables, deltas->n_tables + 1, sizeof *tables);
    if (tables == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a table in the cache");
    deltas->tables = tables;
    tables[deltas->n_tables] = (psw_kept_table_t){.is = *table};
    *index_out = deltas->n_tables++;
    return PSC_OK;
}

void psw_deltas_begin(psw_deltas_t *deltas, const psw_entries_t *entries, psw_entry_t *entry,
                      uint64_t clock)
{
    uint64_t wait = entry->period;
    if (wait == 0) { /* its first time */
        entry->period = (uint16_t)deltas->flush;
        wait = 1 + (entry->hash >> 40) % deltas->flush;
    } else if (wait > deltas->flush) {
        wait = entry->period = (uint16_t)deltas->flush;
    }
    entry->since = (uint32_t)clock;
    entry->due = (uint16_t)((clock + wait - 1) % PSW_WHEEL);
    entry->pushes = 0;
    entry->dirty = true;
    uint32_t *list = &deltas->wheel[entry->due];
    entry->previous = NONE;
    entry->next = *list;
    if (*list != NONE)
        psw_entries_of(entries, *list)->previous = entry->slot;
    *list = entry->slot;
    deltas->n_dirty++;
}

size_t psw_deltas_due(const psw_deltas_t *deltas, const psw_entries_t *entries, uint64_t clock,
                      uint32_t slots_out[PSW_DUE_AT_ONCE])
{
    size_t n = 0;
    for (uint32_t slot = deltas->wheel[clock % PSW_WHEEL]; slot != NONE && n < PSW_DUE_AT_ONCE;
         slot = psw_entries_of(entries, slot)->next)
        slots_out[n++] = slot;
    for (size_t i = 0; i < n; i++)
        psw_entries_touch(entries, slots_out[i], true);
    return n;
}

static void unlink_entry(psw_deltas_t *deltas, const psw_entries_t *entries, psw_entry_t *entry)
{
    if (entry->previous != NONE)
        psw_entries_of(entries, entry->previous)->next = entry->next;
    else
        deltas->wheel[entry->due] = entry->next;
    if (entry->next != NONE)
        psw_entries_of(entries, entry->next)->previous = entry->previous;
    entry->dirty = false;
    deltas->n_dirty--;
}

static psc_status_t reserve(psw_kept_table_t *table, psc_error_t *error)
{
    if (table->n < table->capacity)
        return PSC_OK;
    const size_t capacity = table->capacity != 0 ? 2 * table->capacity : 64;
    size_t row_bytes = table->is.dim * sizeof(float);
    uint64_t *ids = psc_realloc_array(table->ids, capacity, sizeof *ids);
    if (ids != NULL)
        table->ids = ids;
    float *rows = ids != NULL ? psc_realloc_array(table->rows, capacity, row_bytes) : NULL;
    if (rows == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for the deltas of %zu rows",
                             capacity);
    table->rows = rows;
    table->capacity = capacity;
    return PSC_OK;
}

/* How long the row's next deltas wait, after a period that was not cut short. */
static void set_period(const psw_deltas_t *deltas, psw_entry_t *entry, uint64_t clock)
{
    const uint32_t clocks = (uint32_t)clock - entry->since + 1;
    if (clocks < entry->period)
        return;
    uint32_t period = deltas->flush;
    if (entry->pushes >= clocks)
        period /= 4;
    else if (2 * (uint32_t)entry->pushes >= clocks)
        period /= 2;
    entry->period = (uint16_t)(period != 0 ? period : 1);
}

psc_status_t psw_deltas_take(psw_deltas_t *deltas, psw_entries_t *entries, psw_entry_t *entry,
                             uint64_t clock, psc_error_t *error)
{
    psw_kept_table_t *table = &deltas->tables[entry->table];
    psc_status_t st = reserve(table, error);
    if (st != PSC_OK)
        return st;
    const size_t dim = table->is.dim;
    float *value = psw_entries_value(entries, entry->slot), *base = value + dim;
    float *row = table->rows + table->n * dim;
    psc_vector_subtract(row, value, base, dim);
    table->ids[table->n] = psc_row_id_of_hash(table->is.number, entry->hash);
    table->n++;
    set_period(deltas, entry, clock);
    unlink_entry(deltas, entries, entry);
    if (entry->has_base) {
        psc_vector_add(base, row, dim);
        memcpy(value, base, dim * sizeof *base);
    }
    entry->version++;
    entry->has_version = entry->has_version && table->is.exact;
    psw_entries_stamp(entries, entry);
    return PSC_OK;
}

void psw_deltas_drop(psw_deltas_t *deltas, const psw_entries_t *entries, psw_entry_t *entry)
{
    if (entry->dirty)
        unlink_entry(deltas, entries, entry);
}

bool psw_deltas_outbox(psw_deltas_t *deltas, psw_outbox_t *outbox_out)
{
    if (deltas->outbox_given) {
        deltas->tables[deltas->given].n = 0;
        deltas->outbox_given = false;
    }
    for (uint32_t i = 0; i < deltas->n_tables; i++) {
        const psw_kept_table_t *table = &deltas->tables[i];
        if (table->n == 0)
            continue;
        *outbox_out = (psw_outbox_t){
            .table = table->is.number, .n = table->n, .ids = table->ids, .rows = table->rows};
        deltas->given = i;
        deltas->outbox_given = true;
        return true;
    }
    return false;
}
