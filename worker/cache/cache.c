/*
 * The rules of the cache: what may be served, what is asked for, what becomes of pushes and
 * answers.
 *
 * A copy is (base, deltas). Base is the row as a server told it, together with this worker's own
 * pushes that were issued since; deltas are pushes that were not sent yet. What is served is their
 * sum, so a worker sees its own pushes at once and in their order.
 *
 * Invariants. `version` is the one that servers have if nobody else changed the row: each own push
 * that is issued raises it by one, as it does at the server. An answer says what the row was when
 * it was asked for, so it may replace a base only if no own push was issued since: issuing one
 * changes the stamp, and the ticket of the question no longer fits. Answers that come in the wrong
 * order are told by their versions, which only grow. A row with deltas is never asked for: they go
 * to the outbox first, and the answer includes them.
 *
 * What cannot be foreseen ends a copy, that is its base: an assignment, a gradient until its reply
 * is there, a push that was refused (of any row of the table), another epoch of the table. The
 * entry stays for its deltas, its frequency and the next answer.
 *
 * Where servers do more to a row than add (16-bit rows, bounds on the weights), the version after
 * an own delta is taken as unknown, and the next question brings the row.
 *
 * Cost: a few cache lines a row, no allocation once full but growth of the arrays of a call. One
 * thread.
 */
#include "worker/cache/cache.h"

#include "common/alloc.h"
#include "common/vectors.h"
#include "worker/cache/deltas.h"
#include "worker/cache/entries.h"

#define TAKEN_AT_ONCE 4096u
#define ID_BYTES sizeof(uint64_t)
#define QUESTION_BYTES 4u /* a version, told and answered: what asking costs beside an id */

struct psw_cache {
    psw_entries_t entries;
    psw_deltas_t deltas;
    uint32_t staleness;
    uint32_t era;
    uint64_t clock;
    /* what a call names; grown to the largest call */
    size_t capacity;
    uint32_t *first;
    uint64_t *hashes;
    uint32_t *held;
    psw_ticket_t *tickets;
    /* the rows of a push that are named second */
    uint32_t *others;
    size_t n_asked;
    float *scratch; /* two rows */
    size_t scratch_floats;
    psw_cache_counters_t counters;
};

psc_status_t psw_cache_create(size_t bytes, psw_cache_t **cache_out, psc_error_t *error)
{
    psw_cache_t *cache = psc_alloc_zeroed(1, sizeof *cache);
    if (cache == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "no memory for a cache");
    psc_status_t st = psw_entries_init(&cache->entries, bytes, error);
    if (st != PSC_OK) {
        psc_free(cache);
        return st;
    }
    cache->staleness = 1;
    cache->deltas.flush = 1;
    *cache_out = cache;
    return PSC_OK;
}

void psw_cache_destroy(psw_cache_t *cache)
{
    if (cache == NULL)
        return;
    psw_entries_clear(&cache->entries);
    psw_deltas_clear(&cache->deltas);
    psc_free(cache->first);
    psc_free(cache->hashes);
    psc_free(cache->held);
    psc_free(cache->tickets);
    psc_free(cache->others);
    psc_free(cache->scratch);
    psc_free(cache);
}

void psw_cache_set_limits(psw_cache_t *cache, uint32_t staleness, uint32_t flush)
{
    if (flush < cache->deltas.flush)
        cache->deltas.all_due = true;
    cache->staleness = staleness;
    cache->deltas.flush = flush;
}

void psw_cache_set_clock(psw_cache_t *cache, uint64_t clock)
{
    if (clock > cache->clock + 1)
        cache->deltas.all_due = true;
    cache->clock = clock;
}

/* ---- room for a call ---- */

static bool grow(void **array, size_t n, size_t size)
{
    void *grown = psc_realloc_array(*array, n, size);
    if (grown != NULL)
        *array = grown;
    return grown != NULL;
}

static psc_status_t reserve(psw_cache_t *cache, size_t n, uint32_t dim, psc_error_t *error)
{
    bool fits = true;
    if (n > cache->capacity) {
        const size_t wanted = n + n / 2;
        fits = grow((void **)&cache->first, wanted, sizeof *cache->first) &&
               grow((void **)&cache->hashes, wanted, sizeof *cache->hashes) &&
               grow((void **)&cache->held, wanted, sizeof *cache->held) &&
               grow((void **)&cache->tickets, wanted, sizeof *cache->tickets) &&
               grow((void **)&cache->others, wanted, sizeof *cache->others);
        cache->capacity = fits ? wanted : cache->capacity;
    }
    if (fits && cache->scratch_floats < 2 * (size_t)dim) {
        fits = grow((void **)&cache->scratch, 2 * (size_t)dim, sizeof *cache->scratch);
        cache->scratch_floats = fits ? 2 * (size_t)dim : cache->scratch_floats;
    }
    cache->n_asked = 0;
    return fits ? PSC_OK
                : psc_error_set(error, PSC_NO_MEMORY, "no memory for a call of %zu rows", n);
}

static void ask(psw_cache_t *cache, const psw_cache_rows_t *rows, size_t u,
                const psw_entry_t *entry, uint32_t held)
{
    const size_t at = cache->n_asked++;
    cache->first[at] = rows->first != NULL ? rows->first[u] : (uint32_t)u;
    cache->hashes[at] = rows->hashes[u];
    cache->held[at] = held;
    cache->tickets[at] = entry != NULL ? (psw_ticket_t){.slot = entry->slot, .stamp = entry->stamp}
                                       : (psw_ticket_t){.slot = PSW_CACHE_NO_SLOT};
}

static psw_asked_t asked(const psw_cache_t *cache)
{
    return (psw_asked_t){.n = cache->n_asked,
                         .first = cache->first,
                         .hashes = cache->hashes,
                         .held = cache->held,
                         .tickets = cache->tickets};
}

/* ---- pull ---- */

static psc_status_t take(psw_cache_t *cache, psw_entry_t *entry, psc_error_t *error)
{
    psc_status_t st = psw_deltas_take(&cache->deltas, &cache->entries, entry, cache->clock, error);
    if (st == PSC_OK) {
        const size_t bytes = entry->dim * sizeof(float) + ID_BYTES;
        cache->counters.flushed++;
        cache->counters.bytes_saved -=
            cache->counters.bytes_saved < bytes ? cache->counters.bytes_saved : bytes;
    }
    return st;
}

/* A place for a row that is not kept, if it deserves one. NULL: it does not. */
static psc_status_t admit(psw_cache_t *cache, const psw_cache_rows_t *rows, size_t u,
                          uint32_t table, uint32_t count, psw_entry_t **entry_out,
                          psc_error_t *error)
{
    const psw_cache_table_t *is = rows->table;
    const uint64_t id = rows->ids[rows->first != NULL ? rows->first[u] : u];
    *entry_out = NULL;
    if (is->has_pad && id == is->pad_id)
        return PSC_OK;
    psw_entries_t *entries = &cache->entries;
    if (psw_entries_cost(is->dim) > entries->budget - entries->budget / 8)
        return PSC_OK;
    for (;;) {
        *entry_out = psw_entries_add(entries, rows->hashes[u], id, table, is->dim);
        if (*entry_out != NULL) {
            cache->counters.admitted++;
            return PSC_OK;
        }
        psw_entry_t *victim = psw_entries_victim(entries, count);
        if (victim == NULL)
            return PSC_OK;
        psc_status_t st = victim->dirty ? take(cache, victim, error) : PSC_OK;
        if (st != PSC_OK)
            return st;
        psw_entries_remove(entries, victim);
        cache->counters.evicted++;
    }
}

static bool may_serve(const psw_cache_t *cache, const psw_entry_t *entry)
{
    if (!entry->has_base || entry->era != cache->era)
        return false;
    if (cache->staleness != PSW_CACHE_ASYNC)
        return cache->clock <= entry->least_clock ||
               cache->clock - entry->least_clock <= cache->staleness;
    uint32_t period = cache->deltas.flush;
    if (entry->period != 0 && entry->period < period)
        period = entry->period;
    return cache->clock - entry->asked_at < period;
}

static void copy_base(const psw_entry_t *entry, float *row)
{
    memcpy(row, entry->floats, entry->dim * sizeof *row);
}

static void serve(psw_cache_t *cache, psw_entry_t *entry, const psw_cache_out_t *out, size_t i)
{
    float *row = out->rows + i * out->stride;
    copy_base(entry, row);
    if (entry->dirty)
        psc_vector_add(row, psw_entry_deltas(entry), entry->dim);
    const uint64_t age = cache->clock > entry->least_clock ? cache->clock - entry->least_clock : 0;
    if (out->states != NULL)
        out->states[i] = entry->dirty ? (uint8_t)PSP_ROW_PRESENT : entry->state;
    if (out->ages != NULL)
        out->ages[i] = age < UINT32_MAX ? (uint32_t)age : UINT32_MAX;
    psw_cache_counters_t *counters = &cache->counters;
    counters->hits++;
    counters->bytes_saved += entry->dim * sizeof *row + ID_BYTES;
    if (age > counters->oldest)
        counters->oldest = age;
}

/* A row that has to be asked for. */
static psc_status_t pull_row(psw_cache_t *cache, const psw_cache_rows_t *rows, size_t u,
                             psw_entry_t *entry, const psw_cache_out_t *out, psc_error_t *error)
{
    psc_status_t st = entry->dirty ? take(cache, entry, error) : PSC_OK;
    if (st != PSC_OK)
        return st;
    const uint32_t held = entry->has_base && entry->has_version ? entry->version : 0;
    const size_t i = rows->first != NULL ? rows->first[u] : u;
    if (held != 0)
        copy_base(entry, out->rows + i * out->stride);
    ask(cache, rows, u, entry, held);
    return PSC_OK;
}

psc_status_t psw_cache_pull(psw_cache_t *cache, const psw_cache_rows_t *rows,
                            const psw_cache_out_t *out, psw_asked_t *asked_out, psc_error_t *error)
{
    uint32_t table = 0;
    psc_status_t st = reserve(cache, rows->n, rows->table->dim, error);
    if (st == PSC_OK)
        st = psw_deltas_table(&cache->deltas, rows->table, &table, error);
    for (size_t u = 0; st == PSC_OK && u < rows->n; u++) {
        psw_entries_fetch(&cache->entries, rows->hashes, u, rows->n);
        const uint64_t hash = rows->hashes[u];
        const uint32_t count = psw_frequency_add(&cache->entries.frequency, hash);
        psw_entry_t *entry = psw_entries_find(&cache->entries, hash, table);
        if (entry != NULL && may_serve(cache, entry)) {
            serve(cache, entry, out, rows->first != NULL ? rows->first[u] : u);
        } else if (entry != NULL) {
            st = pull_row(cache, rows, u, entry, out, error);
        } else {
            st = admit(cache, rows, u, table, count, &entry, error);
            ask(cache, rows, u, entry, 0);
        }
    }
    *asked_out = asked(cache);
    return st;
}

/* ---- push ---- */

static psc_status_t accumulate(psw_cache_t *cache, psw_entry_t *entry, const float *row,
                               psc_error_t *error)
{
    float *deltas = psw_entry_deltas(entry);
    const size_t bytes = entry->dim * sizeof *row;
    psc_status_t st = PSC_OK;
    if (!psc_vector_all_finite(row, entry->dim)) {
        st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                           "the row pushed for id %llu has a value that is not finite",
                           (unsigned long long)entry->id);
        if (error != NULL)
            error->id = entry->id;
        return st;
    }
    const float *sum = row;
    if (entry->dirty) {
        float *both = cache->scratch + entry->dim;
        memcpy(both, deltas, bytes);
        psc_vector_add(both, row, entry->dim);
        if (psc_vector_all_finite(both, entry->dim))
            sum = both;
        else
            st = take(cache, entry, error);
    }
    if (st != PSC_OK)
        return st;
    memcpy(deltas, sum, bytes);
    if (!entry->dirty)
        psw_deltas_begin(&cache->deltas, entry, cache->clock);
    entry->pushes++;
    entry->state = PSP_ROW_PRESENT;
    cache->counters.deltas++;
    cache->counters.bytes_saved += bytes + ID_BYTES;
    return PSC_OK;
}

/* A kept row whose push cannot be foreseen: its deltas leave before it, its copy ends. */
static psc_status_t end_copy(psw_cache_t *cache, psw_entry_t *entry, psc_error_t *error)
{
    psc_status_t st = entry->dirty ? take(cache, entry, error) : PSC_OK;
    if (st != PSC_OK)
        return st;
    entry->has_base = entry->has_version = false;
    psw_entries_stamp(&cache->entries, entry);
    return PSC_OK;
}

psc_status_t psw_cache_push(psw_cache_t *cache, const psw_cache_rows_t *rows, psp_push_kind_t kind,
                            psw_cache_fill_fn fill, void *context, psw_asked_t *asked_out,
                            psc_error_t *error)
{
    uint32_t table = 0;
    size_t n_others = 0;
    psc_status_t st = reserve(cache, rows->n, rows->table->dim, error);
    if (st == PSC_OK)
        st = psw_deltas_table(&cache->deltas, rows->table, &table, error);
    for (size_t u = 0; st == PSC_OK && u < rows->n; u++) {
        psw_entries_fetch(&cache->entries, rows->hashes, u, rows->n);
        psw_entry_t *entry = psw_entries_find(&cache->entries, rows->hashes[u], table);
        if (entry == NULL) {
            cache->others[n_others++] = (uint32_t)u;
        } else if (kind == PSP_PUSH_DELTA) {
            fill(context, rows->first != NULL ? rows->first[u] : u, cache->scratch);
            st = accumulate(cache, entry, cache->scratch, error);
        } else {
            st = end_copy(cache, entry, error);
            if (kind == PSP_PUSH_GRADIENT)
                ask(cache, rows, u, entry, 0);
            else
                cache->others[n_others++] = (uint32_t)u;
        }
    }
    const size_t n_wanted = cache->n_asked;
    for (size_t i = 0; st == PSC_OK && i < n_others; i++)
        ask(cache, rows, cache->others[i], NULL, 0);
    *asked_out = asked(cache);
    asked_out->n_wanted = n_wanted;
    return st;
}

/* ---- deltas that leave ---- */

bool psw_cache_outbox(psw_cache_t *cache, psw_outbox_t *outbox_out)
{
    return psw_deltas_outbox(&cache->deltas, outbox_out);
}

psc_status_t psw_cache_take_due(psw_cache_t *cache, psc_error_t *error)
{
    psw_deltas_t *deltas = &cache->deltas;
    psc_status_t st = PSC_OK;
    const uint64_t clocks = deltas->all_due ? PSW_WHEEL : 1;
    for (uint64_t c = 0; c < clocks; c++) {
        psw_entry_t **list = &deltas->wheel[(cache->clock + c) % PSW_WHEEL];
        while (st == PSC_OK && *list != NULL)
            st = take(cache, *list, error);
    }
    deltas->all_due = st != PSC_OK;
    return st;
}

psc_status_t psw_cache_take_some(psw_cache_t *cache, bool *more_out, psc_error_t *error)
{
    psw_deltas_t *deltas = &cache->deltas;
    psc_status_t st = PSC_OK;
    size_t taken = 0;
    for (size_t c = 0; deltas->n_dirty != 0 && c < PSW_WHEEL; c++) {
        while (st == PSC_OK && taken < TAKEN_AT_ONCE && deltas->wheel[c] != NULL) {
            st = take(cache, deltas->wheel[c], error);
            taken++;
        }
    }
    *more_out = deltas->n_dirty != 0;
    return st;
}

/* ---- answers ---- */

void psw_cache_answer(psw_cache_t *cache, const psw_answer_t *answer)
{
    psw_cache_counters_t *counters = &cache->counters;
    psw_entry_t *entry = psw_entries_at(&cache->entries, answer->ticket);
    if (answer->row == NULL) {
        counters->confirmed++;
        if (entry != NULL)
            counters->bytes_saved += entry->dim * sizeof(float) - QUESTION_BYTES;
    } else if (answer->returned) {
        counters->returned++;
    } else {
        counters->fetched++;
    }
    if (entry == NULL)
        return;
    const bool older = entry->has_base && (answer->least_clock < entry->least_clock ||
                                           (entry->has_version && answer->row != NULL &&
                                            (int32_t)(answer->version - entry->version) < 0));
    if (older || (answer->row == NULL && !entry->has_base))
        return;
    if (answer->row != NULL) {
        memcpy(entry->floats, answer->row, entry->dim * sizeof(float));
        entry->version = answer->version;
        entry->state = answer->state;
        entry->has_base = entry->has_version = true;
    }
    entry->least_clock = answer->least_clock;
    if (entry->asked_at < answer->asked_at)
        entry->asked_at = answer->asked_at;
    entry->era = cache->era;
}

void psw_cache_end_table(psw_cache_t *cache, uint32_t table, bool drops)
{
    psw_entries_t *entries = &cache->entries;
    for (uint32_t i = 0; i < entries->n_slots; i++) {
        psw_entry_t *entry = entries->slots[i];
        if (entry == NULL || cache->deltas.tables[entry->table].is.number != table)
            continue;
        entry->has_base = entry->has_version = false;
        psw_entries_stamp(entries, entry);
        if (drops)
            psw_deltas_drop(&cache->deltas, entry);
    }
}

void psw_cache_empty(psw_cache_t *cache)
{
    psw_entries_t *entries = &cache->entries;
    for (uint32_t i = 0; entries->n != 0 && i < entries->n_slots; i++) {
        if (entries->slots[i] == NULL)
            continue;
        psw_deltas_drop(&cache->deltas, entries->slots[i]);
        psw_entries_remove(entries, entries->slots[i]);
    }
}

void psw_cache_expire(psw_cache_t *cache)
{
    cache->era++;
}

void psw_cache_counters(const psw_cache_t *cache, psw_cache_counters_t *counters_out)
{
    *counters_out = cache->counters;
    counters_out->rows = cache->entries.n;
    counters_out->bytes = cache->entries.used;
}
