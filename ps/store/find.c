/*
 * The two loops over a batch that meet memory first: the look-up of a batch that is prepared, and
 * the read of rows that are all there, which is the usual pull.
 *
 * Both do with a row, in the one loop that finds it (index_walk.h), all that has to be done with
 * its header, while that is in the nearest cache. The read copies the row as well, so that its
 * lines are fetched once; the passes of a batch that is prepared, used and released fetch them
 * twice, and cost 1.5 times as much. Copies for another processor are made by streaming stores,
 * since plain ones wait for its cache. Nothing may be in doubt then: a row that is not in memory,
 * or only for scans, or being read, ends it, and the caller goes the long way. Cost: two cache
 * misses a row and its lines.
 */
#include "ps/store/find.h"

#include "common/row_copy.h"
#include "common/stream_copy.h"
#include "common/vectors.h"
#include "ps/store/index_walk.h"

#include <string.h>

/* ---- of a batch to be prepared ---- */

typedef struct finding {
    ps_place_t *places;
    bool scan, read;
    bool must_pin;
} finding_t;

static inline void touch_found(void *context, size_t i, ps_place_t place, ps_row_header_t *row)
{
    finding_t *finding = context;
    finding->places[i] = place;
    if (row == NULL)
        return;
    if (!finding->scan) {
        ps_evict_touch(row);
        if ((row->flags & PS_ROW_SCAN) != 0)
            row->flags &= (uint16_t)~PS_ROW_SCAN;
    }
    if (row->state == PS_ROW_PRESENT && (row->flags & PS_ROW_SCAN) == 0)
        return;
    if (row->state == PS_ROW_ABSENT && finding->read)
        finding->places[i] = 0;
    else
        finding->must_pin = true;
}

PSC_MULTIVERSION
size_t ps_find_rows(const ps_store_table_t *table, ps_batch_t *batch, bool *must_pin_out)
{
    size_t n_missing = 0;
    finding_t finding = {.scan = batch->scan, .read = batch->mode == PS_BATCH_READ};
    for (size_t first = 0; first < batch->n; first += PS_WALK_MAX) {
        size_t left = batch->n - first;
        const ps_index_walk_t walk = {.index = table->index,
                                      .ids = batch->ids + first,
                                      .hashes = batch->hashes + first,
                                      .n = left < PS_WALK_MAX ? left : PS_WALK_MAX,
                                      .n_lines = 1,
                                      .run = PS_WALK_RUN_HEADERS};
        finding.places = batch->places + first;
        n_missing += ps_index_walk(&walk, touch_found, &finding);
    }
    *must_pin_out = finding.must_pin;
    return n_missing;
}

/* ---- of rows that are all there ---- */

typedef struct copying {
    uint8_t *out;
    size_t bytes;
    bool scan, streams;
    bool doubtful; /* a row is not simply there */
} copying_t;

static inline void copy_found(void *context, size_t i, ps_place_t place, ps_row_header_t *row)
{
    (void)place;
    copying_t *copying = context;
    if (__builtin_expect(
            row == NULL || row->state != PS_ROW_PRESENT || (row->flags & PS_ROW_SCAN) != 0, 0)) {
        copying->doubtful = true;
        return;
    }
    if (!copying->scan)
        ps_evict_touch(row);
    uint8_t *out = copying->out + i * copying->bytes;
    if (copying->streams)
        psc_stream_copy(out, row + 1, copying->bytes);
    else
        psc_row_copy(out, (const uint8_t *)(row + 1), copying->bytes);
}

PSC_MULTIVERSION
bool ps_store_copy_hot(ps_store_t *store, const ps_batch_t *batch, size_t bytes, void *out)
{
    const ps_store_table_t *table = ps_store_find_table(store, batch->table);
    if (table == NULL || store->failure.code != PSC_OK)
        return false;
    size_t touched = sizeof(ps_row_header_t) + bytes;
    PSC_BUG_ON(touched > table->value_bytes || bytes % sizeof(float) != 0);
    copying_t copying = {.out = out, .bytes = bytes, .scan = batch->scan};
    copying.streams = batch->away && ((uintptr_t)out | bytes) % 16 == 0;
    const size_t n_lines = ps_fetch_lines(touched, table->value_bytes - sizeof(ps_row_header_t));
    for (size_t first = 0; first < batch->n && !copying.doubtful; first += PS_WALK_MAX) {
        size_t left = batch->n - first;
        const ps_index_walk_t walk = {.index = table->index,
                                      .ids = batch->ids + first,
                                      .hashes = batch->hashes + first,
                                      .n = left < PS_WALK_MAX ? left : PS_WALK_MAX,
                                      .n_lines = n_lines,
                                      .run = PS_WALK_RUN_RECORDS};
        (void)ps_index_walk(&walk, copy_found, &copying);
        copying.out += walk.n * bytes;
    }
    psc_stream_end();
    if (copying.doubtful)
        return false;
    store->counters.hits += batch->n;
    return true;
}
