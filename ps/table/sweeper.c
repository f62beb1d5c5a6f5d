/*
 * A machine with one step a call: next table, next piece, places, read, erase.
 *
 * The walk tells headers as they were a while ago, and the row may have been pushed since. So what
 * looks forgotten is prepared like the rows of a push, and looked at again when it is ready: from
 * then until the release nothing else touches it. Those that live again are moved behind the others
 * and left out of what is erased. The store keeps the order of a row's erasing and of all later
 * writes, and a request that waits with such a row in its batch finds it absent, which is what it
 * would have made of a forgotten one.
 *
 * It takes turns with requests: one piece or one batch at a time, one call in eight while the shard
 * has other work, no room while a request is starving for it. Its rows are loaded as those of a
 * scan, so that they displace nothing. It waits for the disk alone, and for room without holding
 * anything, so it keeps nobody waiting for ever.
 *
 * Errors that concern the sweep alone (no memory left in the budget for a walk) end it until the
 * next one is due; they are logged, since there is nobody to return them to.
 */
#include "ps/table/sweeper.h"

#include "common/log.h"
#include "ps/table/shard_state.h"

#include <inttypes.h>

#define TURNS 8u

static bool is_forgotten(const ps_table_t *table, const ps_row_header_t *row)
{
    return ps_growth_age(table, psc_row_hash(table->number, row->id), row) == PS_AGE_FORGOTTEN;
}

static void end_sweep(ps_sweeper_t *sweeper)
{
    ps_store_scan_close(sweeper->scan);
    sweeper->scan = NULL;
    sweeper->table = NULL;
    sweeper->state = PS_SWEEPER_IDLE;
}

/* The next table whose time has come, round and round. */
static ps_table_t *find_due(const ps_shard_t *shard, uint32_t after)
{
    for (uint32_t i = 1; i <= shard->n_tables; i++) {
        ps_table_t *table = shard->tables[(after + i) % shard->n_tables];
        if (table != NULL && table->growth != NULL && table->growth->expiry != NULL &&
            shard->sessions.time >= table->growth->sweep_at)
            return table;
    }
    return NULL;
}

static psc_status_t begin_sweep(ps_shard_t *shard, bool *progress_out, psc_error_t *error)
{
    ps_sweeper_t *sweeper = &shard->sweeper;
    ps_table_t *table = find_due(shard, sweeper->table_number);
    if (table == NULL)
        return PSC_OK;
    psc_error_t refusal = PSC_ERROR_INIT;
    psc_status_t st = ps_store_scan_open(shard->options.store, table->number, 0, PSC_SLOT_COUNT,
                                         &sweeper->scan, &refusal);
    if (st == PSC_BUSY)
        return PSC_OK;
    table->growth->sweep_at = shard->sessions.time + ps_expiry_period(table->growth->expiry);
    sweeper->table_number = table->number;
    if (st == PSC_INVALID_ARGUMENT || st == PSC_NO_MEMORY) {
        psc_log(PSC_LOG_WARN, "table %.80s is not swept: %s", table->name, refusal.message);
        return PSC_OK;
    }
    if (st != PSC_OK) {
        *error = refusal;
        return st;
    }
    sweeper->table = table;
    size_t share = ps_store_max_batch(shard->options.store, table->number) / 4;
    sweeper->max_rows = share < PS_SWEEPER_ROWS ? share : PS_SWEEPER_ROWS;
    sweeper->piece = (ps_store_piece_t){0};
    sweeper->piece_at = 0;
    sweeper->seen = sweeper->due = sweeper->forgotten = sweeper->freed = 0;
    sweeper->state = PS_SWEEPER_WALKS;
    *progress_out = true;
    return PSC_OK;
}

static void finish_sweep(ps_shard_t *shard)
{
    ps_sweeper_t *sweeper = &shard->sweeper;
    ps_growth_counters_t *counters = &shard->counters.growth;
    ps_table_t *table = sweeper->table;
    counters->due += sweeper->due - table->growth->due;
    table->growth->due = sweeper->due;
    counters->sweeps++;
    bool news = sweeper->freed != 0 || (table->expire_dry_run && sweeper->due != 0);
    psc_log(news ? PSC_LOG_INFO : PSC_LOG_DEBUG,
            "table %.80s swept at clock %" PRIu64 ": rows %" PRIu64 ", expired %" PRIu64
            ", of these forgotten %" PRIu64 ", freed %" PRIu64 "%s",
            table->name, shard->sessions.time, sweeper->seen, sweeper->due, sweeper->forgotten,
            sweeper->freed, table->expire_dry_run ? " (dry run)" : "");
    end_sweep(sweeper);
}

/* Looks through the present piece, and gathers what is to be freed. */
static void look_through(ps_sweeper_t *sweeper)
{
    const ps_table_t *table = sweeper->table;
    sweeper->n = 0;
    while (sweeper->piece_at < sweeper->piece.n && sweeper->n < sweeper->max_rows) {
        const ps_row_header_t *row = &sweeper->piece.rows[sweeper->piece_at++];
        uint64_t hash = psc_row_hash(table->number, row->id);
        ps_age_t age = ps_growth_age(table, hash, row);
        sweeper->seen++;
        sweeper->due += age != PS_AGE_LIVE;
        sweeper->forgotten += age == PS_AGE_FORGOTTEN;
        if (age != PS_AGE_FORGOTTEN || table->expire_dry_run)
            continue;
        sweeper->ids[sweeper->n] = row->id;
        sweeper->hashes[sweeper->n] = hash;
        sweeper->n++;
    }
    if (sweeper->n != 0)
        sweeper->state = PS_SWEEPER_PREPARES;
}

static psc_status_t walk(ps_shard_t *shard, bool *progress_out, psc_error_t *error)
{
    ps_sweeper_t *sweeper = &shard->sweeper;
    if (sweeper->piece_at == sweeper->piece.n) {
        if (sweeper->piece.end) {
            finish_sweep(shard);
            return PSC_OK;
        }
        psc_status_t st = ps_store_scan_next(sweeper->scan, &sweeper->piece, error);
        if (st != PSC_OK) {
            sweeper->piece = (ps_store_piece_t){0};
            sweeper->piece_at = 0;
            return st;
        }
        sweeper->piece_at = 0;
    }
    *progress_out = true;
    look_through(sweeper);
    return PSC_OK;
}

static psc_status_t prepare(ps_shard_t *shard, psc_error_t *error)
{
    ps_sweeper_t *sweeper = &shard->sweeper;
    if (shard->starving != NULL)
        return PSC_BUSY;
    sweeper->batch = (ps_batch_t){.table = sweeper->table->number,
                                  .mode = PS_BATCH_WRITE,
                                  .n = sweeper->n,
                                  .ids = sweeper->ids,
                                  .hashes = sweeper->hashes,
                                  .places = sweeper->places,
                                  .scan = true};
    return ps_store_prepare(shard->options.store, &sweeper->batch, error);
}

/* Moves the rows that are forgotten still to the front; the order of the others does not matter. */
static size_t sort_out(ps_shard_t *shard)
{
    ps_sweeper_t *sweeper = &shard->sweeper;
    uint8_t *base = ps_store_base(shard->options.store);
    size_t n = 0;
    for (size_t i = 0; i < sweeper->n; i++) {
        const ps_row_header_t *row = ps_store_row(base, sweeper->places[i]);
        if (row->state != PS_ROW_PRESENT || !is_forgotten(sweeper->table, row))
            continue;
        ps_place_t place = sweeper->places[i];
        uint64_t id = sweeper->ids[i], hash = sweeper->hashes[i];
        sweeper->places[i] = sweeper->places[n];
        sweeper->ids[i] = sweeper->ids[n];
        sweeper->hashes[i] = sweeper->hashes[n];
        sweeper->places[n] = place;
        sweeper->ids[n] = id;
        sweeper->hashes[n] = hash;
        n++;
    }
    return n;
}

static psc_status_t erase(ps_shard_t *shard, psc_error_t *error)
{
    ps_sweeper_t *sweeper = &shard->sweeper;
    /* Rows can be pushed between two tries. */
    ps_batch_t part = sweeper->batch;
    part.n = sort_out(shard);
    psc_status_t st = part.n != 0 ? ps_store_erase(shard->options.store, &part, error) : PSC_OK;
    size_t left = st == PSC_OK ? 0 : sort_out(shard);
    sweeper->freed += part.n - left;
    shard->counters.growth.freed += part.n - left;
    return st;
}

void ps_sweeper_stop(ps_shard_t *shard)
{
    ps_sweeper_t *sweeper = &shard->sweeper;
    if (sweeper->state == PS_SWEEPER_READS || sweeper->state == PS_SWEEPER_ERASES) {
        ps_store_release(shard->options.store, &sweeper->batch);
        shard->room_changed = true;
    }
    end_sweep(sweeper);
}

static psc_status_t step(ps_shard_t *shard, bool *progress_out, psc_error_t *error)
{
    ps_sweeper_t *sweeper = &shard->sweeper;
    psc_status_t st = PSC_OK;
    switch (sweeper->state) {
    case PS_SWEEPER_IDLE:
        return begin_sweep(shard, progress_out, error);
    case PS_SWEEPER_WALKS:
        return walk(shard, progress_out, error);
    case PS_SWEEPER_PREPARES:
        st = prepare(shard, error);
        if (st == PSC_OK)
            sweeper->state = PS_SWEEPER_READS;
        break;
    case PS_SWEEPER_READS:
        if (!ps_store_ready(shard->options.store, &sweeper->batch))
            return PSC_OK;
        sweeper->state = PS_SWEEPER_ERASES;
        break;
    case PS_SWEEPER_ERASES:
        st = erase(shard, error);
        if (st != PSC_OK)
            break;
        ps_store_release(shard->options.store, &sweeper->batch);
        shard->room_changed = true;
        sweeper->state = PS_SWEEPER_WALKS;
        break;
    }
    *progress_out |= st == PSC_OK;
    return st;
}

psc_status_t ps_sweeper_step(ps_shard_t *shard, bool busy, bool *progress_out, psc_error_t *error)
{
    ps_sweeper_t *sweeper = &shard->sweeper;
    if ((shard->sessions.n != 0 && shard->sessions.n_departed == shard->sessions.n) ||
        shard->n_tables == 0)
        return PSC_OK;
    if (busy && ++sweeper->polls % TURNS != 0)
        return PSC_OK;
    psc_status_t st = step(shard, progress_out, error);
    return st == PSC_BUSY ? PSC_OK : st; /* comes by again */
}
