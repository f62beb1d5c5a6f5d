/*
 * The rules of the cache: what may be served, what is asked for, what becomes of pushes and
 * answers.
 *
 * A copy is (value, base). Base is the row as a server told it, together with this worker's own
 * pushes that were issued since; value has those that were not sent, too, each added as the server
 * would: it is what is served, so a worker sees its own pushes at once and in their order. What has
 * to be sent is their difference. (Sums of deltas in place of the value would be more to read for
 * each row that is served.)
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
#include "common/hash.h"
#include "common/vectors.h"
#include "worker/cache/deltas.h"
#include "worker/cache/entries.h"

#define TAKEN_AT_ONCE 4096u
#define COUNTS_AHEAD 8u
#define VALUE_LIMIT 0x1p126f /* differences of values within are finite */
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
    uint32_t *slots;  /* of its rows, as they were sought */
    uint32_t *others; /* rows that are named second */
    size_t n_asked;
    float *scratch; /* two rows: one that comes, a sum with it */
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
    psw_deltas_init(&cache->deltas);
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
    psc_free(cache->slots);
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
               grow((void **)&cache->slots, wanted, sizeof *cache->slots) &&
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

static size_t index_of(const psw_cache_rows_t *rows, size_t u)
{
    return rows->first != NULL ? rows->first[u] : u;
}

static void ask(psw_cache_t *cache, const psw_cache_rows_t *rows, size_t u,
                const psw_entry_t *entry, uint32_t held)
{
    const size_t at = cache->n_asked++;
    cache->first[at] = (uint32_t)index_of(rows, u);
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

/* The same, with rows behind that have no tickets: the first n of others. */
static psw_asked_t asked_with_others(psw_cache_t *cache, const psw_cache_rows_t *rows, size_t n)
{
    const size_t n_wanted = cache->n_asked;
    for (size_t i = 0; i < n; i++)
        ask(cache, rows, cache->others[i], NULL, 0);
    psw_asked_t all = asked(cache);
    all.n_wanted = n_wanted;
    return all;
}

/* Finds the rows of a call, as far as that can be done at once. */
static psc_status_t seek(psw_cache_t *cache, const psw_cache_rows_t *rows, uint32_t *table_out,
                         psc_error_t *error)
{
    psc_status_t st = reserve(cache, rows->n, rows->table->dim, error);
    if (st == PSC_OK)
        st = psw_deltas_table(&cache->deltas, rows->table, table_out, error);
    if (st == PSC_OK)
        psw_entries_seek(&cache->entries, rows->hashes, rows->n, cache->slots);
    return st;
}

static psw_entry_t *found(const psw_cache_t *cache, const psw_cache_rows_t *rows, size_t u,
                          uint32_t table)
{
    return psw_entries_found(&cache->entries, rows->hashes, cache->slots, u, rows->n, table);
}

static size_t dim_of(const psw_cache_t *cache, const psw_entry_t *entry)
{
    return cache->deltas.tables[entry->table].is.dim;
}

/* ---- pull ---- */

static psc_status_t take(psw_cache_t *cache, psw_entry_t *entry, psc_error_t *error)
{
    psc_status_t st = psw_deltas_take(&cache->deltas, &cache->entries, entry, cache->clock, error);
    if (st == PSC_OK) {
        const size_t bytes = dim_of(cache, entry) * sizeof(float) + ID_BYTES;
        cache->counters.flushed++;
        cache->counters.bytes_saved -=
            cache->counters.bytes_saved < bytes ? cache->counters.bytes_saved : bytes;
    }
    return st;
}

static psc_status_t evict(psw_cache_t *cache, psw_entry_t *entry, psc_error_t *error)
{
    psc_status_t st = entry->dirty ? take(cache, entry, error) : PSC_OK;
    if (st == PSC_OK) {
        psw_entries_remove(&cache->entries, entry);
        cache->counters.evicted++;
    }
    return st;
}

/* Makes room for rows of another width. */
static psc_status_t evict_chunk(psw_cache_t *cache, uint32_t chunk, psc_error_t *error)
{
    psw_entries_t *entries = &cache->entries;
    uint32_t slot = chunk << PSW_CHUNK_SHIFT;
    psw_entry_t *entry;
    while ((entry = psw_entries_next(entries, &slot)) != NULL &&
           entry->slot >> PSW_CHUNK_SHIFT == chunk) {
        psc_status_t st = evict(cache, entry, error);
        if (st != PSC_OK)
            return st;
    }
    psw_entries_free_chunk(entries, chunk);
    return PSC_OK;
}

/* A place for a row that is not kept, if it deserves one. NULL: it does not. */
static psc_status_t admit(psw_cache_t *cache, const psw_cache_rows_t *rows, size_t u,
                          uint32_t table, uint32_t count, psw_entry_t **entry_out,
                          psc_error_t *error)
{
    const psw_cache_table_t *is = rows->table;
    *entry_out = NULL;
    if (is->has_pad && rows->ids[index_of(rows, u)] == is->pad_id)
        return PSC_OK;
    psw_entries_t *entries = &cache->entries;
    if (psw_entries_cost(is->dim) > entries->budget - entries->budget / 8)
        return PSC_OK;
    for (;;) {
        *entry_out = psw_entries_add(entries, rows->hashes[u], table, is->dim);
        if (*entry_out != NULL) {
            cache->counters.admitted++;
            return PSC_OK;
        }
        psw_entry_t *victim = psw_entries_victim(entries, is->dim, count);
        if (victim == NULL)
            return PSC_OK;
        psc_status_t st = dim_of(cache, victim) == is->dim
                              ? evict(cache, victim, error)
                              : evict_chunk(cache, victim->slot >> PSW_CHUNK_SHIFT, error);
        if (st != PSC_OK)
            return st;
    }
}

/* For how many clocks an asynchronous copy is served. */
static uint32_t period_of(const psw_cache_t *cache, const psw_entry_t *entry)
{
    const uint32_t flush = cache->deltas.flush;
    return entry->period != 0 && entry->period < flush ? entry->period : flush;
}

/* In this clock, which is not over. */
static bool may_serve(const psw_cache_t *cache, const psw_entry_t *entry, uint64_t clock)
{
    if (!entry->has_base || entry->era != cache->era)
        return false;
    if (cache->staleness != PSW_CACHE_ASYNC)
        return clock <= entry->least_clock || clock - entry->least_clock <= cache->staleness;
    return clock - entry->asked_at < period_of(cache, entry);
}

static void serve(psw_cache_t *cache, const psw_entry_t *entry, const psw_cache_out_t *out,
                  size_t i)
{
    const size_t bytes = dim_of(cache, entry) * sizeof(float);
    memcpy(out->rows + i * out->stride, psw_entries_value(&cache->entries, entry->slot), bytes);
    const uint64_t age = cache->clock > entry->least_clock ? cache->clock - entry->least_clock : 0;
    if (out->states != NULL)
        out->states[i] = entry->dirty ? (uint8_t)PSP_ROW_PRESENT : entry->state;
    if (out->ages != NULL)
        out->ages[i] = age < UINT32_MAX ? (uint32_t)age : UINT32_MAX;
    psw_cache_counters_t *counters = &cache->counters;
    counters->hits++;
    counters->bytes_saved += bytes + ID_BYTES;
    if (age > counters->oldest)
        counters->oldest = age;
}

/* A row that has to be asked for. out: NULL for a prefetch. */
static psc_status_t pull_row(psw_cache_t *cache, const psw_cache_rows_t *rows, size_t u,
                             psw_entry_t *entry, const psw_cache_out_t *out, psc_error_t *error)
{
    psc_status_t st = entry->dirty ? take(cache, entry, error) : PSC_OK;
    if (st != PSC_OK)
        return st;
    const uint32_t held = entry->has_base && entry->has_version ? entry->version : 0;
    if (held != 0 && out != NULL)
        memcpy(out->rows + index_of(rows, u) * out->stride,
               psw_entries_value(&cache->entries, entry->slot),
               dim_of(cache, entry) * sizeof *out->rows);
    ask(cache, rows, u, entry, held);
    return PSC_OK;
}

psc_status_t psw_cache_pull(psw_cache_t *cache, const psw_cache_rows_t *rows,
                            const psw_cache_out_t *out, psw_asked_t *asked_out, psc_error_t *error)
{
    uint32_t table = 0;
    psw_frequency_t *frequency = &cache->entries.frequency;
    psc_status_t st = seek(cache, rows, &table, error);
    for (size_t u = 0; st == PSC_OK && u < rows->n; u++) {
        if (u + COUNTS_AHEAD < rows->n)
            psw_frequency_fetch(frequency, rows->hashes[u + COUNTS_AHEAD]);
        const uint32_t count = psw_frequency_add(frequency, rows->hashes[u]);
        psw_entry_t *entry = found(cache, rows, u, table);
        if (entry != NULL && may_serve(cache, entry, cache->clock)) {
            serve(cache, entry, out, index_of(rows, u));
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

/* ---- prefetch ---- */

/*
 * Whether an answer of now will do in clock `when`; entry: NULL, the row is not kept yet. An
 * asynchronous copy that is asked for so many clocks before its time is asked for that much more
 * often, so at most by a third.
 */
static bool is_worth_asking(const psw_cache_t *cache, const psw_entry_t *entry, uint64_t when)
{
    const uint64_t ahead = when - cache->clock;
    if (cache->staleness != PSW_CACHE_ASYNC)
        return ahead <= cache->staleness;
    const uint32_t period = entry != NULL ? period_of(cache, entry) : cache->deltas.flush;
    return entry != NULL && entry->has_base ? 4 * ahead <= period : ahead < period;
}

psc_status_t psw_cache_prefetch(psw_cache_t *cache, const psw_cache_rows_t *rows, uint64_t when,
                                psw_asked_t *asked_out, psc_error_t *error)
{
    uint32_t table = 0;
    size_t n_others = 0;
    psc_status_t st = seek(cache, rows, &table, error);
    for (size_t u = 0; st == PSC_OK && when >= cache->clock && u < rows->n; u++) {
        const uint64_t hash = rows->hashes[u];
        psw_entry_t *entry = found(cache, rows, u, table);
        if (entry != NULL && may_serve(cache, entry, when))
            continue;
        const bool is_worth = is_worth_asking(cache, entry, when);
        if (is_worth && entry == NULL)
            st = admit(cache, rows, u, table,
                       psw_frequency_count(&cache->entries.frequency, hash) + 1, &entry, error);
        if (st == PSC_OK && is_worth && entry != NULL)
            st = pull_row(cache, rows, u, entry, NULL, error);
        else
            cache->others[n_others++] = (uint32_t)u;
    }
    *asked_out = asked_with_others(cache, rows, n_others);
    return st;
}

/* ---- push ---- */

/* What a push writes. */
typedef struct pushed {
    psw_cache_fill_fn fill;
    void *context;
} pushed_t;

static psc_status_t refuse(const psw_cache_t *cache, const psw_entry_t *entry, psc_error_t *error)
{
    const uint64_t id =
        psc_row_id_of_hash(cache->deltas.tables[entry->table].is.number, entry->hash);
    psc_status_t st = psc_error_set(error, PSC_INVALID_ARGUMENT,
                                    "the row pushed for id %llu has a value that is not finite",
                                    (unsigned long long)id);
    if (error != NULL)
        error->id = id;
    return st;
}

/* From now on the entry keeps deltas alone. It is clean. */
static void lose_base(psw_cache_t *cache, psw_entry_t *entry)
{
    entry->has_base = entry->has_version = false;
    psw_entries_stamp(&cache->entries, entry);
}

/*
 * Writes the first delta of an entry without a base, or one of values so large that a difference
 * could be infinite: there base is 0, and value the sum of deltas.
 */
static psc_status_t begin_alone(psw_cache_t *cache, psw_entry_t *entry, const float *row,
                                psc_error_t *error)
{
    const size_t dim = dim_of(cache, entry), bytes = dim * sizeof *row;
    float *value = psw_entries_value(&cache->entries, entry->slot);
    if (!psc_vector_all_finite(row, dim))
        return refuse(cache, entry, error);
    psc_status_t st = entry->dirty ? take(cache, entry, error) : PSC_OK;
    if (st != PSC_OK)
        return st;
    if (entry->has_base)
        lose_base(cache, entry);
    memcpy(value, row, bytes);
    memset(value + dim, 0, bytes);
    return PSC_OK;
}

static psc_status_t accumulate(psw_cache_t *cache, psw_entry_t *entry, const pushed_t *pushed,
                               size_t i, psc_error_t *error)
{
    const size_t dim = dim_of(cache, entry), bytes = dim * sizeof(float);
    float *value = psw_entries_value(&cache->entries, entry->slot);
    float *row = cache->scratch, *sum = row + dim;
    pushed->fill(pushed->context, i, row);
    if ((entry->has_base || entry->dirty) && psc_vector_sum(sum, value, row, dim, VALUE_LIMIT)) {
        memcpy(value, sum, bytes);
    } else {
        psc_status_t st = begin_alone(cache, entry, row, error);
        if (st != PSC_OK)
            return st;
    }
    if (!entry->dirty)
        psw_deltas_begin(&cache->deltas, &cache->entries, entry, cache->clock);
    entry->pushes = (uint16_t)(entry->pushes + (entry->pushes < UINT16_MAX));
    entry->state = PSP_ROW_PRESENT;
    cache->counters.deltas++;
    cache->counters.bytes_saved += bytes + ID_BYTES;
    return PSC_OK;
}

/* A kept row whose push cannot be foreseen: its deltas leave before it, its copy ends. */
static psc_status_t end_copy(psw_cache_t *cache, psw_entry_t *entry, psc_error_t *error)
{
    psc_status_t st = entry->dirty ? take(cache, entry, error) : PSC_OK;
    if (st == PSC_OK)
        lose_base(cache, entry);
    return st;
}

psc_status_t psw_cache_push(psw_cache_t *cache, const psw_cache_rows_t *rows, psp_push_kind_t kind,
                            psw_cache_fill_fn fill, void *context, psw_asked_t *asked_out,
                            psc_error_t *error)
{
    uint32_t table = 0;
    size_t n_others = 0;
    const pushed_t pushed = {.fill = fill, .context = context};
    psc_status_t st = seek(cache, rows, &table, error);
    for (size_t u = 0; st == PSC_OK && u < rows->n; u++) {
        psw_entry_t *entry = found(cache, rows, u, table);
        if (entry == NULL) {
            cache->others[n_others++] = (uint32_t)u;
        } else if (kind == PSP_PUSH_DELTA) {
            st = accumulate(cache, entry, &pushed, index_of(rows, u), error);
        } else {
            st = end_copy(cache, entry, error);
            if (kind == PSP_PUSH_GRADIENT)
                ask(cache, rows, u, entry, 0);
            else
                cache->others[n_others++] = (uint32_t)u;
        }
    }
    *asked_out = asked_with_others(cache, rows, n_others);
    return st;
}

/* ---- deltas that leave ---- */

bool psw_cache_outbox(psw_cache_t *cache, psw_outbox_t *outbox_out)
{
    return psw_deltas_outbox(&cache->deltas, outbox_out);
}

/* Takes rows of one list of the wheel, some more than `most` perhaps. */
static psc_status_t take_list(psw_cache_t *cache, uint64_t clock, size_t most, size_t *taken,
                              psc_error_t *error)
{
    uint32_t slots[PSW_DUE_AT_ONCE];
    psc_status_t st = PSC_OK;
    size_t n;
    while (st == PSC_OK && *taken < most &&
           (n = psw_deltas_due(&cache->deltas, &cache->entries, clock, slots)) != 0) {
        for (size_t i = 0; st == PSC_OK && i < n; i++)
            st = take(cache, psw_entries_of(&cache->entries, slots[i]), error);
        *taken += n;
    }
    return st;
}

psc_status_t psw_cache_take_due(psw_cache_t *cache, psc_error_t *error)
{
    psw_deltas_t *deltas = &cache->deltas;
    psc_status_t st = PSC_OK;
    const uint64_t clocks = deltas->all_due ? PSW_WHEEL : 1;
    size_t taken = 0;
    for (uint64_t c = 0; st == PSC_OK && c < clocks; c++)
        st = take_list(cache, cache->clock + c, SIZE_MAX, &taken, error);
    deltas->all_due = st != PSC_OK;
    return st;
}

psc_status_t psw_cache_take_some(psw_cache_t *cache, bool *more_out, psc_error_t *error)
{
    psw_deltas_t *deltas = &cache->deltas;
    psc_status_t st = PSC_OK;
    size_t taken = 0;
    for (size_t c = 0; st == PSC_OK && deltas->n_dirty != 0 && c < PSW_WHEEL; c++)
        st = take_list(cache, c, TAKEN_AT_ONCE, &taken, error);
    *more_out = deltas->n_dirty != 0;
    return st;
}

/* ---- answers ---- */

/* The base becomes row, deltas stay. False: its values are too large to be kept. */
static bool put_base(psw_cache_t *cache, psw_entry_t *entry, const uint8_t *row)
{
    const size_t dim = dim_of(cache, entry), bytes = dim * sizeof(float);
    float *value = psw_entries_value(&cache->entries, entry->slot), *base = value + dim;
    float *fresh = cache->scratch, *sum = fresh + dim;
    memcpy(fresh, row, bytes);
    if (!psc_vector_all_within(fresh, dim, VALUE_LIMIT))
        return false;
    if (entry->dirty) {
        psc_vector_subtract(sum, value, base, dim);
        if (!psc_vector_sum(sum, sum, fresh, dim, VALUE_LIMIT))
            return false;
        memcpy(value, sum, bytes);
    } else {
        memcpy(value, fresh, bytes);
    }
    memcpy(base, fresh, bytes);
    return true;
}

void psw_cache_answer(psw_cache_t *cache, const psw_answer_t *answer)
{
    psw_cache_counters_t *counters = &cache->counters;
    psw_entry_t *entry = psw_entries_at(&cache->entries, answer->ticket);
    if (answer->row == NULL) {
        counters->confirmed++;
        if (entry != NULL)
            counters->bytes_saved += dim_of(cache, entry) * sizeof(float) - QUESTION_BYTES;
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
    if (answer->row != NULL && !put_base(cache, entry, answer->row))
        return;
    if (answer->row != NULL) {
        entry->version = answer->version;
        entry->state = answer->state;
        entry->has_base = entry->has_version = true;
    }
    entry->least_clock = answer->least_clock;
    if (entry->asked_at < answer->asked_at)
        entry->asked_at = answer->asked_at;
    entry->era = cache->era;
}

void psw_cache_expect(const psw_cache_t *cache, psw_ticket_t ticket)
{
    psw_entries_touch(&cache->entries, ticket.slot, true);
}

void psw_cache_end_table(psw_cache_t *cache, uint32_t table, bool drops)
{
    psw_entries_t *entries = &cache->entries;
    uint32_t slot = 0;
    psw_entry_t *entry;
    while ((entry = psw_entries_next(entries, &slot)) != NULL) {
        if (cache->deltas.tables[entry->table].is.number != table)
            continue;
        if (drops)
            psw_deltas_drop(&cache->deltas, entries, entry);
        if (entry->dirty && entry->has_base) {
            const size_t dim = dim_of(cache, entry);
            float *value = psw_entries_value(entries, entry->slot);
            psc_vector_subtract(value, value, value + dim, dim);
            memset(value + dim, 0, dim * sizeof *value);
        }
        lose_base(cache, entry);
    }
}

void psw_cache_empty(psw_cache_t *cache)
{
    psw_entries_t *entries = &cache->entries;
    uint32_t slot = 0;
    psw_entry_t *entry;
    while (entries->n != 0 && (entry = psw_entries_next(entries, &slot)) != NULL) {
        psw_deltas_drop(&cache->deltas, entries, entry);
        psw_entries_remove(entries, entry);
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
