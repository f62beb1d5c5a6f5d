/*
 * Admission and expiry on batches of rows. What is decided, and why it is the same everywhere, is
 * in the header and in ps/growth; here it is applied to records.
 *
 * A push of a growing table is prepared like any other, with places for absent rows: whether a row
 * is admitted can only be told when it is known to be absent, which may take a read. Absent places
 * that get no row go with the release. A row that is not reached is marked by this push's serial
 * number in its record, absent or forgotten, so that its duplicates are dropped without being
 * counted. (The number comes round after 2^32 pushes; a forgotten row that was last pushed exactly
 * then goes uncounted once.) Rows that come into being are begun here, one after another in the
 * order of the message, so that a duplicate finds a live row; ps_rows_claim then finds no absent
 * ones.
 *
 * A slot's counts of live rows (only with a floor) hold each live record as its header says. A push
 * changes headers in ps_rows_apply, so the rows are taken out before and counted again after it.
 *
 * Threads: the owner's. Cost: one more pass over the headers, and up to four cache lines of the
 * sketch for a row that is absent; nothing at all for tables that do not grow.
 */
#include "ps/table/growth.h"

#include "common/alloc.h"
#include "common/hash.h"

#include <string.h>

/* ---- creation ---- */

static bool admits(const ps_table_t *table)
{
    return table->admit_after > 1;
}

static bool expires(const ps_table_t *table)
{
    return table->expire_after != 0 || table->expire_rare_after != 0;
}

static bool grows(const ps_table_t *table)
{
    return admits(table) || expires(table);
}

static ps_expiry_rule_t rule_of(const ps_table_t *table)
{
    return (ps_expiry_rule_t){.after = table->expire_after,
                              .rare_after = table->expire_rare_after,
                              .rare_below = table->expire_rare_below,
                              .floor = table->expire_floor};
}

static size_t number_slots(ps_growth_t *growth, const psc_slot_map_t *map, uint32_t rank)
{
    uint16_t n = 0;
    for (uint32_t slot = 0; slot < PSC_SLOT_COUNT; slot++)
        growth->slots[slot] = map->owner[slot] == rank ? n++ : UINT16_MAX;
    return n;
}

/* Another table of the same kind, whose rows come at once and stay. */
static ps_table_t companion_of(const ps_table_t *table)
{
    ps_table_t companion = *table;
    companion.number = (uint16_t)(table->number | PS_TABLE_COMPANION);
    companion.admit_after = 0;
    companion.admit_shared = false;
    companion.expire_after = companion.expire_rare_after = 0;
    companion.has_pad = false;
    companion.growth = NULL;
    companion.created = 0;
    return companion;
}

uint64_t ps_growth_bytes(const ps_table_t *table, size_t n_slots)
{
    if (!grows(table))
        return 0;
    ps_expiry_rule_t rule = rule_of(table);
    uint64_t bytes = sizeof(ps_growth_t);
    bytes += admits(table) ? ps_sketch_bytes(n_slots, table->admit_counters) : 0;
    bytes += expires(table) ? ps_expiry_bytes(n_slots, &rule) : 0;
    return bytes;
}

psc_status_t ps_growth_create(const ps_table_t *table, const psc_slot_map_t *map, uint32_t rank,
                              uint64_t clock, ps_store_t *store, ps_growth_t **growth_out,
                              psc_error_t *error)
{
    *growth_out = NULL;
    if (!grows(table))
        return PSC_OK;
    ps_growth_t *growth = psc_alloc_zeroed(1, sizeof *growth);
    if (growth == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for table %.80s", table->name);
    size_t n_slots = number_slots(growth, map, rank);
    ps_expiry_rule_t rule = rule_of(table);
    uint64_t bytes = ps_growth_bytes(table, n_slots);
    psc_status_t st = ps_store_reserve_memory(store, bytes, error);
    if (st == PSC_OK)
        growth->memory_bytes = bytes;
    if (st == PSC_OK && admits(table))
        st = ps_sketch_create(n_slots, table->admit_counters, table->admit_after, &growth->sketch,
                              error);
    if (st == PSC_OK && expires(table))
        st = ps_expiry_create(n_slots, &rule, clock, &growth->expiry, error);
    if (st != PSC_OK) {
        ps_growth_destroy(growth, store);
        return st;
    }
    if (expires(table))
        growth->sweep_at = clock + ps_expiry_period(growth->expiry);
    if (admits(table) && table->admit_shared)
        growth->companion = companion_of(table);
    *growth_out = growth;
    return PSC_OK;
}

void ps_growth_destroy(ps_growth_t *growth, ps_store_t *store)
{
    if (growth == NULL)
        return;
    ps_sketch_destroy(growth->sketch);
    ps_expiry_destroy(growth->expiry);
    ps_store_unreserve_memory(store, growth->memory_bytes);
    psc_free(growth);
}

void ps_growth_advance(ps_growth_t *growth, uint64_t clock)
{
    if (growth->expiry != NULL)
        ps_expiry_advance(growth->expiry, clock);
}

uint32_t ps_growth_clock(const ps_growth_t *growth, uint64_t clock)
{
    return growth != NULL && growth->expiry != NULL ? ps_expiry_now(growth->expiry)
                                                    : (uint32_t)clock;
}

/* ---- one row ---- */

static size_t slot_of(const ps_growth_t *growth, uint64_t hash)
{
    return growth->slots[psc_slot_of_hash(hash)];
}

static bool is_pad(const ps_table_t *table, uint64_t id)
{
    return table->has_pad && id == table->pad_id;
}

ps_age_t ps_growth_age(const ps_table_t *table, uint64_t hash, const ps_row_header_t *row)
{
    const ps_growth_t *growth = table->growth;
    if (growth->expiry == NULL || is_pad(table, row->id))
        return PS_AGE_LIVE;
    return ps_expiry_judge(growth->expiry, slot_of(growth, hash), row->update_count,
                           row->last_clock);
}

/* Its age as pulls and pushes see it. */
static ps_age_t effective_age(const ps_table_t *table, uint64_t hash, const ps_row_header_t *row)
{
    return table->expire_dry_run ? PS_AGE_LIVE : ps_growth_age(table, hash, row);
}

static bool counts_sightings(const ps_table_t *table, uint64_t id)
{
    return table->growth->sketch != NULL && !is_pad(table, id);
}

/* ---- shared rows ---- */

void ps_growth_locate_shared(const ps_growth_t *growth, const uint64_t *hashes, size_t n,
                             uint64_t *ids_out, uint64_t *hashes_out)
{
    for (size_t i = 0; i < n; i++) {
        /* Any hash with the slot in its low bits would do; indexes use the others. */
        uint64_t slot = psc_slot_of_hash(hashes[i]);
        hashes_out[i] = (psc_mix64(slot) & ~(uint64_t)(PSC_SLOT_COUNT - 1)) | slot;
        ids_out[i] = psc_row_id_of_hash(growth->companion.number, hashes_out[i]);
    }
}

void ps_growth_gather_shared(const ps_growth_rows_t *rows, const uint8_t *states,
                             psp_format_t format, uint8_t *out)
{
    size_t row_bytes = psp_row_bytes(format, rows->rows.table->dim);
    for (size_t i = 0; i < rows->shared.n; i++) {
        if (states[i] != PSP_ROW_NOT_ADMITTED)
            continue;
        uint8_t state;
        ps_rows_t one = rows->shared;
        one.n = 1;
        one.ids += i;
        one.places += i;
        (void)ps_rows_inspect(&one, &state, NULL);
        ps_rows_gather(&one, &state, format, out + i * row_bytes);
    }
}

/* ---- pull ---- */

/* State of a row that has no record, or a forgotten one. */
static psp_row_state_t state_of_none(const ps_table_t *table, uint64_t id, uint64_t hash)
{
    const ps_growth_t *growth = table->growth;
    if (!counts_sightings(table, id))
        return PSP_ROW_INITIAL;
    uint32_t seen = ps_sketch_count(growth->sketch, slot_of(growth, hash), hash);
    bool waits = seen < table->admit_after && (seen != 0 || table->admit_shared);
    return waits ? PSP_ROW_NOT_ADMITTED : PSP_ROW_INITIAL;
}

size_t ps_growth_inspect(const ps_growth_rows_t *rows, uint8_t *states, uint32_t *versions)
{
    const ps_table_t *table = rows->rows.table;
    uint8_t *base = ps_store_base(rows->rows.store);
    size_t n_absent = 0;
    for (size_t i = 0; i < rows->rows.n; i++) {
        psp_row_state_t state = (psp_row_state_t)states[i];
        uint64_t hash = rows->hashes[i];
        if (state == PSP_ROW_PRESENT) {
            ps_age_t age = effective_age(table, hash, ps_store_row(base, rows->rows.places[i]));
            if (age == PS_AGE_LIVE)
                continue;
            state = age == PS_AGE_EXPIRED ? PSP_ROW_EXPIRED : PSP_ROW_INITIAL;
            if (versions != NULL)
                versions[i] = 0;
        }
        if (state == PSP_ROW_INITIAL)
            state = state_of_none(table, rows->rows.ids[i], hash);
        states[i] = (uint8_t)state;
        n_absent++;
    }
    return n_absent;
}

/* ---- push ---- */

/* A record becomes a row without a past: its own initial value, fresh state, counts of 0. */
static void begin(const ps_growth_rows_t *rows, const ps_rows_push_t *push, size_t i,
                  ps_row_header_t *row)
{
    const ps_table_t *table = rows->rows.table;
    const ps_growth_t *growth = table->growth;
    ps_store_begin_change(row, push->serial + (uint32_t)i);
    ps_row_begin(table, rows->rows.scratch, row);
    row->version = row->update_count = 0;
    row->last_clock = ps_growth_clock(growth, 0);
    if (row->state == PS_ROW_ABSENT)
        ps_store_mark_new(rows->rows.store, row);
    else
        ps_store_mark_begun(rows->rows.store, row);
    if (growth->expiry != NULL && !is_pad(table, row->id))
        ps_expiry_add(growth->expiry, slot_of(growth, rows->hashes[i]), 0, row->last_clock);
}

/* Gives a row that has just begun the weights of the shared row, as pulls showed them. */
static void warm_start(const ps_growth_rows_t *rows, size_t i, ps_row_header_t *row)
{
    const ps_table_t *companion = rows->shared.table;
    ps_row_header_t *shared =
        ps_store_row(ps_store_base(rows->shared.store), rows->shared.places[i]);
    if (shared->state == PS_ROW_ABSENT) {
        ps_row_begin(companion, rows->shared.scratch, shared);
        ps_store_mark_new(rows->shared.store, shared);
    }
    memcpy(row + 1, shared + 1, companion->weight_bytes);
}

/* Counts a sighting of a row that is none. Returns whether the row comes into being; *warm_out: by
 * this sighting. */
static bool is_admitted(const ps_growth_rows_t *rows, const ps_rows_push_t *push, size_t i,
                        ps_row_header_t *row, bool *warm_out)
{
    const ps_table_t *table = rows->rows.table;
    const ps_growth_t *growth = table->growth;
    *warm_out = false;
    if (push->kind == PSP_PUSH_ASSIGN || !counts_sightings(table, row->id))
        return true;
    if (ps_rows_first(row, push, rows->rows.ids, i) != i) /* again in this push */
        return false;
    size_t slot = slot_of(growth, rows->hashes[i]);
    if (ps_sketch_count(growth->sketch, slot, rows->hashes[i]) >= table->admit_after)
        return true;
    *warm_out = ps_sketch_add(growth->sketch, slot, rows->hashes[i]) >= table->admit_after;
    if (!*warm_out)
        row->push_seq = push->serial + (uint32_t)i;
    return *warm_out;
}

/* Whether the push reaches this row, which has been begun where it had to be. */
static bool admit_row(const ps_growth_rows_t *rows, const ps_rows_push_t *push, size_t i,
                      ps_growth_counters_t *counters, size_t *created)
{
    const ps_table_t *table = rows->rows.table;
    ps_row_header_t *row = ps_store_row(ps_store_base(rows->rows.store), rows->rows.places[i]);
    if (is_pad(table, row->id))
        return true;
    ps_age_t age = PS_AGE_FORGOTTEN;
    if (row->state == PS_ROW_PRESENT)
        age = effective_age(table, rows->hashes[i], row);
    if (age == PS_AGE_LIVE)
        return true;
    bool warm = false;
    if (age == PS_AGE_EXPIRED)
        counters->renewed++;
    else if (is_admitted(rows, push, i, row, &warm))
        *created += 1;
    else
        return false;
    begin(rows, push, i, row);
    if (warm && rows->shared.n != 0)
        warm_start(rows, i, row);
    return true;
}

size_t ps_growth_admit(const ps_growth_rows_t *rows, const ps_growth_push_t *push,
                       ps_growth_counters_t *counters, size_t *created_out)
{
    uint8_t *base = ps_store_base(rows->rows.store);
    size_t n_missed = 0;
    for (size_t i = 0; i < rows->rows.n; i++) {
        if (i + PS_HEADERS_AHEAD < rows->rows.n)
            __builtin_prefetch(ps_store_row(base, rows->rows.places[i + PS_HEADERS_AHEAD]), 1);
        bool reached = admit_row(rows, &push->push, i, counters, created_out);
        push->kept[i] = reached ? rows->rows.places[i] : 0;
        if (rows->shared.n != 0)
            push->redirected[i] = reached ? 0 : rows->shared.places[i];
        n_missed += !reached;
    }
    if (rows->shared.n != 0)
        counters->shared += n_missed;
    else
        counters->dropped += n_missed;
    return n_missed;
}

static bool counts_live(const ps_growth_t *growth)
{
    return growth->expiry != NULL && ps_expiry_counts(growth->expiry);
}

void ps_growth_before_apply(const ps_growth_t *growth, const ps_rows_t *rows)
{
    uint8_t *base = ps_store_base(rows->store);
    for (size_t i = 0; counts_live(growth) && i < rows->n; i++) {
        const ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        if (!is_pad(rows->table, row->id))
            ps_expiry_remove(growth->expiry,
                             slot_of(growth, psc_row_hash(rows->table->number, row->id)),
                             row->update_count, row->last_clock);
    }
}

void ps_growth_after_apply(const ps_growth_t *growth, const ps_rows_t *rows)
{
    uint8_t *base = ps_store_base(rows->store);
    for (size_t i = 0; counts_live(growth) && i < rows->n; i++) {
        const ps_row_header_t *row = ps_store_row(base, rows->places[i]);
        if (!is_pad(rows->table, row->id))
            ps_expiry_add(growth->expiry,
                          slot_of(growth, psc_row_hash(rows->table->number, row->id)),
                          row->update_count, row->last_clock);
    }
}
