/*
 * What ps/serve does for a pull and a push, without what is around it.
 *
 * The steps are the server's, in its order, over the same functions; what is left out is what does
 * not grow with the rows: unpacking, queues, replies. A request that has to wait sleeps until the
 * store's I/O thread wakes it, as a server does that has nothing else to do; that thread shares the
 * processor that the caller was bound to before the store was opened.
 */
#include "tests/bench/bench_shard.h"

#include "common/alloc.h"
#include "common/slots.h"
#include "ps/store/cold.h"
#include "ps/store/evict.h"
#include "ps/store/index.h"
#include "ps/table/rows.h"

#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NEAR_NS 2000000 /* a wake-up can be missed by a BUSY that has passed already */

struct bench_shard {
    ps_store_t *store;
    ps_table_t table;
    psc_slot_map_t map;
    size_t max_batch;
    uint32_t serial;
    uint64_t step;
    sem_t wake;
    uint64_t *ids, *hashes;
    ps_place_t *places;
    uint8_t *states;
    ps_row_scratch_t scratch;
    ps_rows_merge_space_t merge;
    bool all_hot; /* as far as the last pull says */
};

static void wake(void *context)
{
    bench_shard_t *shard = context;
    (void)sem_post(&shard->wake);
}

static void destroy(bench_shard_t *shard)
{
    ps_rows_merge_space_clear(&shard->merge);
    psc_free(shard->ids);
    psc_free(shard->hashes);
    psc_free(shard->places);
    psc_free(shard->states);
    ps_row_scratch_clear(&shard->scratch);
    (void)sem_destroy(&shard->wake);
    psc_free(shard);
}

static psc_status_t define(const bench_shard_options_t *options, ps_table_t *table,
                           psc_error_t *error)
{
    psp_open_table_t open = {.dim = (uint32_t)options->dim, .seed = 1, .table = BENCH_TABLE};
    (void)snprintf(open.name, sizeof open.name, "bench");
    (void)snprintf(open.init, sizeof open.init, "zeros");
    (void)snprintf(open.optimizer, sizeof open.optimizer, "%s", options->optimizer);
    psc_status_t st = ps_table_define(&open, table, error);
    table->number = BENCH_TABLE;
    return st;
}

static psc_status_t open_cold(const bench_shard_options_t *options, ps_cold_t **cold_out,
                              psc_error_t *error)
{
    if (options->dir == NULL)
        return ps_cold_memory_create(NULL, cold_out, error);
    return ps_cold_rocks_open(options->dir, ps_cold_rocks_memory(options->memory_bytes), cold_out,
                              error);
}

static void abandon_store(ps_store_t *store)
{
    psc_status_t st = ps_store_close(store, false, NULL);
    PSC_BUG_ON(st != PSC_OK); /* nothing is written, so nothing can fail */
}

static psc_status_t open_store(bench_shard_t *shard, const bench_shard_options_t *options,
                               psc_error_t *error)
{
    ps_cold_t *cold;
    psc_status_t st = open_cold(options, &cold, error);
    if (st != PSC_OK)
        return st;
    ps_store_options_t store = {
        .memory_bytes = options->memory_bytes, .cold = cold, .wake = wake, .wake_context = shard};
    st = ps_store_open(&store, &shard->store, error);
    if (st != PSC_OK) {
        cold->ops->destroy(cold);
        return st;
    }
    st = ps_store_table_add(shard->store, BENCH_TABLE, ps_table_row_bytes(&shard->table), error);
    if (st != PSC_OK)
        abandon_store(shard->store);
    return st;
}

psc_status_t bench_shard_open(const bench_shard_options_t *options, bench_shard_t **shard_out,
                              psc_error_t *error)
{
    bench_shard_t *shard = psc_alloc_zeroed(1, sizeof *shard);
    if (shard == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a shard");
    (void)sem_init(&shard->wake, 0, 0);
    psc_status_t st = define(options, &shard->table, error);
    if (st == PSC_OK)
        st = psc_slot_map_init(&shard->map, 1, error);
    if (st == PSC_OK) {
        size_t n = options->batch;
        shard->ids = psc_alloc_array(n, sizeof *shard->ids);
        shard->hashes = psc_alloc_array(n, sizeof *shard->hashes);
        shard->places = psc_alloc_array(n, sizeof *shard->places);
        shard->states = psc_alloc_array(n, sizeof *shard->states);
        if (shard->ids == NULL || shard->hashes == NULL || shard->places == NULL ||
            shard->states == NULL)
            st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for batches of %zu rows", n);
    }
    if (st == PSC_OK)
        st = ps_row_scratch_reserve(&shard->scratch, &shard->table, error);
    if (st == PSC_OK)
        st = open_store(shard, options, error);
    if (st != PSC_OK) {
        destroy(shard);
        return st;
    }
    shard->max_batch = ps_store_max_batch(shard->store, BENCH_TABLE);
    if (shard->max_batch > options->batch)
        shard->max_batch = options->batch;
    *shard_out = shard;
    return PSC_OK;
}

psc_status_t bench_shard_close(bench_shard_t *shard, psc_error_t *error)
{
    if (shard == NULL)
        return PSC_OK;
    psc_status_t st = ps_store_close(shard->store, true, error);
    destroy(shard);
    return st;
}

void bench_shard_abandon(bench_shard_t *shard)
{
    if (shard == NULL)
        return;
    abandon_store(shard->store);
    destroy(shard);
}

/* ---- requests ---- */

static psc_status_t wait_for_io(bench_shard_t *shard, psc_error_t *error)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NEAR_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)sem_timedwait(&shard->wake, &until);
    bool progress;
    return ps_store_poll(shard->store, &progress, error);
}

/* Finds out where the rows belong. */
static void locate(bench_shard_t *shard, ps_batch_t *batch, const uint64_t *ids, size_t n)
{
    (void)ps_rows_locate((const uint8_t *)ids, n, BENCH_TABLE, &shard->map, 0, shard->ids,
                         shard->hashes);
    batch->table = BENCH_TABLE;
    batch->n = n;
    batch->ids = shard->ids;
    batch->hashes = shard->hashes;
    batch->places = shard->places;
}

/* Has the rows of a located batch in memory. */
static psc_status_t prepare(bench_shard_t *shard, ps_batch_t *batch, psc_error_t *error)
{
    psc_status_t st;
    while ((st = ps_store_prepare(shard->store, batch, error)) == PSC_BUSY) {
        if ((st = wait_for_io(shard, error)) != PSC_OK)
            return st;
    }
    while (st == PSC_OK && !ps_store_ready(shard->store, batch))
        st = wait_for_io(shard, error);
    return st;
}

static ps_rows_t rows_of(bench_shard_t *shard, size_t n)
{
    return (ps_rows_t){.table = &shard->table,
                       .store = shard->store,
                       .scratch = &shard->scratch,
                       .n = n,
                       .ids = shard->ids,
                       .places = shard->places};
}

psc_status_t bench_shard_pull(bench_shard_t *shard, const uint64_t *ids, size_t n, float *out,
                              size_t *absent_out, psc_error_t *error)
{
    *absent_out = 0;
    for (size_t from = 0, part; from < n; from += part) {
        part = n - from < shard->max_batch ? n - from : shard->max_batch;
        ps_batch_t batch = {.mode = PS_BATCH_READ};
        locate(shard, &batch, ids + from, part);
        if (shard->all_hot &&
            ps_store_copy_hot(shard->store, &batch, shard->table.dim * sizeof(float),
                              out + from * shard->table.dim))
            continue;
        psc_status_t st = prepare(shard, &batch, error);
        if (st != PSC_OK)
            return st;
        ps_rows_t rows = rows_of(shard, part);
        size_t absent = ps_rows_inspect(&rows, shard->states, NULL);
        ps_rows_gather(&rows, absent != 0 ? shard->states : NULL, PSP_FORMAT_F32,
                       (uint8_t *)(out + from * shard->table.dim));
        *absent_out += absent;
        shard->all_hot = absent == 0 && batch.ticket == 0;
        ps_store_release(shard->store, &batch);
    }
    return PSC_OK;
}

static psc_status_t apply(bench_shard_t *shard, size_t n, ps_rows_push_t push, psc_error_t *error)
{
    ps_rows_t rows = rows_of(shard, n);
    push.serial = ps_rows_take_serials(&shard->serial, n);
    push.step = ++shard->step;
    ps_rows_claim_t claim;
    psc_status_t st = ps_rows_reserve_firsts(&shard->merge, n, error);
    if (st != PSC_OK)
        return st;
    ps_rows_claim(&rows, &push, shard->merge.firsts, &claim);
    if (claim.repeated != 0) {
        st = ps_rows_merge(&rows, &push, &shard->merge, &rows, &push, error);
        if (st != PSC_OK)
            return st;
    }
    ps_rows_apply(&rows, &push);
    return PSC_OK;
}

psc_status_t bench_shard_push(bench_shard_t *shard, psp_push_kind_t kind, const uint64_t *ids,
                              size_t n, const float *values, float rate, psc_error_t *error)
{
    size_t dim = shard->table.dim;
    for (size_t from = 0, part; from < n; from += part) {
        part = n - from < shard->max_batch ? n - from : shard->max_batch;
        const float *part_values = values + from * dim;
        if (ps_rows_find_nonfinite(part_values, part, (uint32_t)dim) != part)
            return psc_error_set(error, PSC_INVALID_ARGUMENT, "a value that is not finite");
        ps_batch_t batch = {.mode = PS_BATCH_WRITE};
        locate(shard, &batch, ids + from, part);
        psc_status_t st = prepare(shard, &batch, error);
        if (st != PSC_OK)
            return st;
        ps_rows_push_t push = {
            .kind = kind, .learning_rate = rate, .clock = 1, .values = part_values};
        st = apply(shard, part, push, error);
        ps_store_release(shard->store, &batch);
        if (st != PSC_OK)
            return st;
    }
    return PSC_OK;
}

ps_store_counters_t bench_shard_counters(const bench_shard_t *shard)
{
    ps_store_counters_t counters;
    ps_store_counters(shard->store, &counters);
    return counters;
}

size_t bench_shard_max_batch(const bench_shard_t *shard)
{
    return shard->max_batch;
}

size_t bench_shard_value_bytes(const bench_shard_t *shard)
{
    return sizeof(ps_row_header_t) + ps_table_row_bytes(&shard->table);
}

size_t bench_shard_weights_at(void)
{
    return sizeof(ps_row_header_t);
}

size_t bench_shard_row_bytes(const bench_shard_t *shard)
{
    return ps_store_record_bytes(ps_table_row_bytes(&shard->table)) + PS_INDEX_ROW_BYTES +
           PS_EVICT_ROW_BYTES;
}

psc_status_t bench_shard_memory(const bench_shard_options_t *options, size_t n_rows,
                                uint64_t *memory_out, psc_error_t *error)
{
    bench_shard_options_t probe = *options;
    probe.dir = NULL;
    probe.batch = 1;
    probe.memory_bytes = PS_STORE_MIN_MEMORY;
    for (unsigned round = 0; round < 8; round++) {
        bench_shard_t *shard;
        psc_status_t st = bench_shard_open(&probe, &shard, error);
        if (st != PSC_OK)
            return st;
        uint64_t has = bench_shard_counters(shard).bytes_budget;
        uint64_t wants = (uint64_t)n_rows * bench_shard_row_bytes(shard);
        st = bench_shard_close(shard, error);
        if (st != PSC_OK)
            return st;
        double next = (double)probe.memory_bytes * (double)wants / (double)has;
        probe.memory_bytes = (uint64_t)next;
        if (probe.memory_bytes <= PS_STORE_MIN_MEMORY) {
            probe.memory_bytes = PS_STORE_MIN_MEMORY;
            break;
        }
    }
    *memory_out = probe.memory_bytes;
    return PSC_OK;
}
