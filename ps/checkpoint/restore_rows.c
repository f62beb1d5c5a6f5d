/*
 * Rows on their way into the cold tier of a server that goes on.
 *
 * Where slots lie as they lay, the cold tier's files are linked or copied, and the images of rows
 * that were newer in memory written over them: as many as were dirty at the cut. Else the server
 * opens the saved cold tiers of all servers that had slots of its own, one after another, to read
 * from them alone, and takes the rows of these slots: keys begin with table and slot, so a run of
 * slots is a range. The images come behind. No row has two images, and slots of two servers are
 * never the same, so the order of servers means nothing.
 *
 * Images that a partial cut rests on come before its own, in the order of their cuts. They may be
 * older than what the cold tier has, and are then left out, by the version of the row.
 *
 * A table that is renewed (another optimizer, see optimizer_reset.h) has records of another size:
 * so its rows are read from the saved cold tier in any case, and of each the weights are taken.
 *
 * Images lie in the order in which they were in memory, which has nothing to do with keys. They are
 * sorted, as many at a time as a batch holds: RocksDB takes rows that lie near each other much
 * faster than others, and has less to compact, since what it writes at a time is a smaller range.
 *
 * Memory: a batch of as many bytes as a cold tier has (of one row, if that is more), twice that
 * where tables are renewed, and a second cold tier, while the store, which has most of --memory, is
 * not there yet. Cost: each row is read and written once; each file was read once before, for its
 * checksum.
 *
 * Nothing is undone on failure: the data directory stays marked open, and the next start empties
 * it and begins again. Threads: none; at the start.
 */
#include "ps/checkpoint/restore_inside.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/hash.h"
#include "ps/checkpoint/place_file.h"
#include "ps/table/row_values.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BATCH_MIN ((uint64_t)1 << 20) /* bytes */
#define BATCH_MAX ((uint64_t)64 << 20)
#define WRITE_ROWS 256u /* at a time, and bytes */
#define WRITE_BYTES ((size_t)1 << 20)
#define BUSY_US 1000
#define RECORD_ALIGN ((size_t)16)

/* ---- files ---- */

psc_status_t ps_restore_files(const ps_restore_t *restore, const char *rocksdb, psc_error_t *error)
{
    static const char prefix[] = "rocksdb/";
    psp_saved_t *saved = NULL;
    if (!restore->same || restore->renews)
        return PSC_OK;
    if (mkdir(rocksdb, 0777) != 0)
        return psc_error_set_errno(error, errno, "cannot make %s", rocksdb);
    psc_status_t st = ps_restore_open_part(restore, restore->rank, &saved, error);
    for (size_t i = 0; st == PSC_OK && i < psp_saved_part(saved)->n_files; i++) {
        const char *name = psp_saved_part(saved)->files[i]->name;
        if (strncmp(name, prefix, sizeof prefix - 1) != 0)
            continue;
        char *from = ps_restore_path(restore, restore->rank, name);
        char *to = psp_saved_path(rocksdb, name + sizeof prefix - 1, NULL);
        st = from == NULL || to == NULL
                 ? psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path")
                 : ps_place_file(from, to, ps_place_is_constant(name), error);
        psc_free(from);
        psc_free(to);
    }
    psp_saved_destroy(saved);
    return st;
}

/* ---- a batch ---- */

/* Records on their way from one server's part. */
typedef struct batch {
    const ps_restore_t *restore;
    ps_cold_t *cold;
    uint32_t server; /* whose part it is */
    bool rests;      /* images are those that a partial cut rests on */
    uint8_t *bytes;
    uint8_t *unread;  /* room for what is found of a record and not looked at */
    uint8_t *renewed; /* [max][stride] records of tables that are renewed, as they become */
    size_t stride;
    ps_row_scratch_t scratch; /* for them */
    size_t max;               /* records of the largest size that it has room for, 1 at least */
    ps_cold_write_t *writes;  /* [max] */
    size_t n;
    size_t at_once; /* that one write gets, WRITE_ROWS at most */
} batch_t;

/* The table of a record, or of which it is a companion's; NULL: there is no such table. */
static const ps_restore_table_t *table_of(const ps_restore_t *restore, uint16_t number)
{
    for (size_t i = 0; i < restore->n_tables; i++)
        if (restore->tables[i].table.number == (number & (uint16_t)~PS_TABLE_COMPANION))
            return &restore->tables[i];
    return NULL;
}

/* Bytes of a record in the checkpoint; 0: there is no such table. */
static size_t record_bytes(const ps_restore_t *restore, uint16_t number)
{
    const ps_restore_table_t *table = table_of(restore, number);
    return table != NULL ? sizeof(ps_row_header_t) + ps_table_row_bytes(&table->was) : 0;
}

static int compare_writes(const void *left, const void *right)
{
    const ps_cold_write_t *a = left, *b = right;
    return memcmp(a->key, b->key, PS_COLD_KEY_BYTES);
}

/* Writes what the batch has, sorted. */
static psc_status_t flush(batch_t *batch, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0, n; st == PSC_OK && i < batch->n; i += n) {
        n = batch->n - i < batch->at_once ? batch->n - i : batch->at_once;
        while ((st = batch->cold->ops->write(batch->cold, batch->writes + i, n, error)) == PSC_BUSY)
            psc_clock_sleep_us(BUSY_US);
    }
    batch->n = 0;
    return st;
}

/* Weights as they are, with a state that begins. Returns the record's bytes. */
static size_t renew(batch_t *batch, const ps_table_t *table, const uint8_t *record,
                    uint8_t *renewed_out)
{
    const bool alone = batch->restore->weights;
    ps_row_header_t *row = (ps_row_header_t *)(void *)renewed_out;
    memcpy(row, record, sizeof *row);
    if (alone || table->expire_rare_below == 0)
        row->update_count = 0;
    if (alone)
        row->last_clock = 0;
    ps_row_begin(table, &batch->scratch, row);
    memcpy(row + 1, record + sizeof *row, table->weight_bytes);
    return sizeof *row + ps_table_row_bytes(table);
}

/* Adds a record that lies in bytes, if its slot is one that is taken. */
static void add(batch_t *batch, const uint8_t *record, size_t size)
{
    ps_row_header_t row;
    memcpy(&row, record, sizeof row);
    const uint32_t slot = psc_slot_of_hash(psc_row_hash(row.table, row.id));
    if (!ps_restore_takes(batch->restore, batch->server, slot))
        return;
    const ps_restore_table_t *of =
        batch->renewed != NULL ? table_of(batch->restore, row.table) : NULL;
    if (of != NULL && of->renewed) {
        uint8_t *renewed = batch->renewed + batch->n * batch->stride;
        size = renew(batch, &of->table, record, renewed);
        record = renewed;
    }
    ps_cold_write_t *write = &batch->writes[batch->n++];
    *write = (ps_cold_write_t){.record = record, .size = size};
    ps_cold_key(write->key, row.table, slot, row.id);
}

/* ---- out of a cold tier ---- */

/* The first key behind a record's. */
static void key_after(const ps_row_header_t *row, uint8_t key[PS_COLD_KEY_BYTES])
{
    const uint32_t slot = psc_slot_of_hash(psc_row_hash(row->table, row->id));
    if (row->id != UINT64_MAX)
        ps_cold_key(key, row->table, slot, row->id + 1);
    else
        ps_cold_key(key, row->table, slot + 1, 0);
}

/* Rows of a table, or its companion, in the slots from begin to before end, all of them taken. */
static psc_status_t take_range(batch_t *batch, ps_cold_t *from, uint16_t number, uint32_t begin,
                               uint32_t end, psc_error_t *error)
{
    const size_t bytes = record_bytes(batch->restore, number);
    ps_cold_scan_t scan = {
        .heads = batch->bytes, .head_bytes = bytes, .max = batch->max, .whole = true};
    psc_status_t st = PSC_OK;
    ps_cold_key(scan.from, number, begin, 0);
    ps_cold_key(scan.to, number, end, 0);
    while (st == PSC_OK && !scan.end) {
        ps_row_header_t row = {.id = 0};
        st = from->ops->scan(from, &scan, error);
        for (size_t i = 0; st == PSC_OK && i < scan.n; i++) {
            memcpy(&row, scan.heads + i * bytes, sizeof row);
            if (row.table != number || row.state != PS_ROW_PRESENT)
                return ps_restore_damaged(batch->restore, batch->server, "a row", error);
            add(batch, scan.heads + i * bytes, bytes);
        }
        if (st == PSC_OK && scan.n != 0)
            key_after(&row, scan.from);
        if (st == PSC_OK)
            st = flush(batch, error);
    }
    return st;
}

static psc_status_t take_table(batch_t *batch, ps_cold_t *from, uint16_t number, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (uint32_t begin = 0, end; st == PSC_OK && begin < PSC_SLOT_COUNT; begin = end) {
        const bool taken = ps_restore_takes(batch->restore, batch->server, begin);
        end = begin + 1;
        while (end < PSC_SLOT_COUNT &&
               ps_restore_takes(batch->restore, batch->server, end) == taken)
            end++;
        if (taken)
            st = take_range(batch, from, number, begin, end, error);
    }
    return st;
}

/* Rows of this server's slots that the saved cold tier of another has. */
static psc_status_t take_cold(batch_t *batch, const ps_restore_way_t *way, psc_error_t *error)
{
    ps_cold_t *from = NULL;
    char *path = ps_restore_path(batch->restore, batch->server, "rocksdb");
    psc_status_t st = path == NULL ? psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path")
                                   : ps_cold_rocks_open_to_read(path, way->scratch,
                                                                way->memory_bytes, &from, error);
    for (size_t i = 0; st == PSC_OK && i < batch->restore->n_tables; i++) {
        const ps_table_t *table = &batch->restore->tables[i].table;
        st = take_table(batch, from, table->number, error);
        if (st == PSC_OK && table->admit_shared)
            st = take_table(batch, from, (uint16_t)(table->number | PS_TABLE_COMPANION), error);
    }
    if (from != NULL)
        from->ops->destroy(from);
    psc_free(path);
    return st;
}

/* ---- images ---- */

/* Of n writes from *begin on, sorted: how many are to be kept, which are moved to *kept. */
static psc_status_t keep_newer(batch_t *batch, const ps_cold_write_t *begin, size_t n,
                               ps_cold_write_t *kept, size_t *n_out, psc_error_t *error)
{
    ps_cold_read_t reads[WRITE_ROWS];
    ps_row_header_t found[WRITE_ROWS] = {{.id = 0}}, row;
    *n_out = 0;
    for (size_t i = 0; i < n; i++) {
        reads[i] = (ps_cold_read_t){.head = (uint8_t *)&found[i],
                                    .body = batch->unread,
                                    .head_size = sizeof found[i],
                                    .size = begin[i].size};
        memcpy(reads[i].key, begin[i].key, PS_COLD_KEY_BYTES);
    }
    psc_status_t st = batch->cold->ops->read(batch->cold, reads, n, error);
    for (size_t i = 0; st == PSC_OK && i < n; i++) {
        memcpy(&row, begin[i].record, sizeof row);
        /* Versions wrap. */
        if (!reads[i].found || found[i].version - row.version > (uint32_t)INT32_MAX)
            kept[(*n_out)++] = begin[i];
    }
    return st;
}

/* Images of rows of which the cold tier has as much, since they left memory later, do not count. */
static psc_status_t drop_older(batch_t *batch, psc_error_t *error)
{
    size_t n_kept = 0, n, found;
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < batch->n; i += n) {
        n = batch->n - i < batch->at_once ? batch->n - i : batch->at_once;
        st = keep_newer(batch, batch->writes + i, n, batch->writes + n_kept, &found, error);
        n_kept += st == PSC_OK ? found : 0;
    }
    batch->n = st == PSC_OK ? n_kept : batch->n;
    return st;
}

/* The next image. *end_out: there is none. */
static psc_status_t read_image(batch_t *batch, FILE *file, size_t *used, bool *end_out,
                               psc_error_t *error)
{
    ps_row_header_t row;
    uint8_t *to = batch->bytes + *used;
    const size_t got = fread(&row, 1, sizeof row, file);
    *end_out = got == 0 && ferror(file) == 0;
    if (*end_out)
        return PSC_OK;
    const size_t size = got == sizeof row ? record_bytes(batch->restore, row.table) : 0;
    if (size == 0 || row.state != PS_ROW_PRESENT)
        return ps_restore_damaged(batch->restore, batch->server, "an image of a row", error);
    memcpy(to, &row, sizeof row);
    if (fread(to + sizeof row, 1, size - sizeof row, file) != size - sizeof row)
        return ps_restore_damaged(batch->restore, batch->server, "an image of a row", error);
    const size_t n = batch->n;
    add(batch, to, size);
    *used += batch->n != n ? size : 0;
    return PSC_OK;
}

/* Those of one file. */
static psc_status_t take_file(batch_t *batch, const char *name, psc_error_t *error)
{
    bool end = false;
    size_t used = 0;
    char *path = ps_restore_path(batch->restore, batch->server, name);
    FILE *file = path != NULL ? fopen(path, "rbe") : NULL;
    psc_status_t st = PSC_OK;
    if (path == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path");
    else if (file == NULL)
        st = psc_error_set_errno(error, errno, "cannot read %s", path);
    while (st == PSC_OK && !end) {
        st = read_image(batch, file, &used, &end, error);
        if (st == PSC_OK && (end || batch->n == batch->max)) {
            if (batch->n != 0)
                qsort(batch->writes, batch->n, sizeof batch->writes[0], compare_writes);
            if (batch->rests)
                st = drop_older(batch, error);
            if (st == PSC_OK)
                st = flush(batch, error);
            used = 0;
        }
    }
    if (file != NULL)
        (void)fclose(file);
    psc_free(path);
    return st;
}

static bool has_file(const psp_saved_part_t *part, const char *name)
{
    for (size_t i = 0; i < part->n_files; i++) {
        if (strcmp(part->files[i]->name, name) == 0)
            return true;
    }
    return false;
}

/* First what those of the cut itself rest on, the oldest first. */
static psc_status_t take_images(batch_t *batch, psc_error_t *error)
{
    psp_saved_t *saved = NULL;
    char name[32];
    psc_status_t st = ps_restore_open_part(batch->restore, batch->server, &saved, error);
    batch->rests = true;
    for (size_t i = 0; st == PSC_OK; i++) {
        (void)snprintf(name, sizeof name, PSP_SAVED_CHAIN, i);
        if (!has_file(psp_saved_part(saved), name))
            break;
        st = take_file(batch, name, error);
    }
    psp_saved_destroy(saved);
    batch->rests = false;
    return st == PSC_OK ? take_file(batch, "rows", error) : st;
}

/* ---- all ---- */

static psc_status_t take_all(batch_t *batch, const ps_restore_way_t *way, psc_error_t *error)
{
    const ps_restore_t *restore = batch->restore;
    psc_status_t st = PSC_OK;
    for (uint32_t server = 0; st == PSC_OK && server < restore->before.n_servers; server++) {
        if (!ps_restore_needs(restore, server))
            continue;
        batch->server = server;
        if (!restore->same || restore->renews)
            st = take_cold(batch, way, error);
        if (st == PSC_OK)
            st = take_images(batch, error);
    }
    return st;
}

/* Bytes of the largest record, as it is in the checkpoint or as it becomes. */
static size_t largest_record(const ps_restore_t *restore)
{
    size_t most = 0;
    for (size_t i = 0; i < restore->n_tables; i++) {
        const size_t was = ps_table_row_bytes(&restore->tables[i].was);
        const size_t is = ps_table_row_bytes(&restore->tables[i].table);
        most = was > most ? was : most;
        most = is > most ? is : most;
    }
    return sizeof(ps_row_header_t) + most;
}

static psc_status_t make_room(batch_t *batch, uint64_t memory_bytes, psc_error_t *error)
{
    const ps_restore_t *restore = batch->restore;
    const size_t most = largest_record(restore);
    const uint64_t bytes = memory_bytes < BATCH_MIN   ? BATCH_MIN
                           : memory_bytes > BATCH_MAX ? BATCH_MAX
                                                      : memory_bytes;
    const size_t max = (size_t)bytes / (most + sizeof batch->writes[0]);
    psc_status_t st = PSC_OK;
    const size_t at_once = WRITE_BYTES / most;
    batch->at_once = at_once == 0 ? 1 : at_once < WRITE_ROWS ? at_once : WRITE_ROWS;
    batch->max = max == 0 ? 1 : max;
    batch->writes = psc_alloc_array(batch->max, sizeof batch->writes[0]);
    batch->stride = (most + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
    batch->bytes = psc_alloc_array(batch->max, most);
    batch->unread = psc_alloc_array(1, most);
    if (restore->renews)
        batch->renewed = psc_alloc_array(batch->max, batch->stride);
    if (batch->writes == NULL || batch->bytes == NULL || batch->unread == NULL ||
        (restore->renews && batch->renewed == NULL))
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for rows of a checkpoint");
    for (size_t i = 0; st == PSC_OK && restore->renews && i < restore->n_tables; i++)
        st = ps_row_scratch_reserve(&batch->scratch, &restore->tables[i].table, error);
    return st;
}

psc_status_t ps_restore_rows(const ps_restore_t *restore, const ps_restore_way_t *way,
                             ps_cold_t *cold, psc_error_t *error)
{
    batch_t *batch = psc_alloc_zeroed(1, sizeof *batch);
    if (batch == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for rows of a checkpoint");
    batch->restore = restore;
    batch->cold = cold;
    psc_status_t st = make_room(batch, way->memory_bytes, error);
    if (st == PSC_OK && mkdir(way->scratch, 0777) != 0)
        st = psc_error_set_errno(error, errno, "cannot make %s", way->scratch);
    if (st == PSC_OK)
        st = take_all(batch, way, error);
    if (st == PSC_OK)
        st = psc_file_remove_all(way->scratch, error);
    cold->was_empty = false;
    psc_free(batch->writes);
    psc_free(batch->bytes);
    psc_free(batch->unread);
    psc_free(batch->renewed);
    ps_row_scratch_clear(&batch->scratch);
    psc_free(batch);
    return st;
}
