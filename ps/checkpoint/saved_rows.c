/*
 * Two streams are merged. The cold tier has its records in the order of keys, and is scanned a
 * batch at a time. Images lie in files, in no order and as many as memory had rows, so they are not
 * read into memory: a pass over the files keeps, of the images behind the last window, those with
 * the least keys that there is room for, as (key, version, file, offset), sorted. That is a window;
 * the next pass begins where it ends. An image itself is read when its turn comes.
 *
 * A pass keeps the least keys by throwing away the upper half whenever the room is full: from then
 * on only keys below the first one that was thrown away are taken.
 *
 * Which record of a row counts is what restore_rows.c writes last: an image of "rows" in any case,
 * one of the files that this rests on where what came before is older by its version.
 *
 * Memory: a batch of the cold tier, a record, half of memory_bytes for a window and half for
 * RocksDB. Cost: the cold tier is read once, each file of images once for each window, and each
 * image that counts once more.
 */
#include "ps/checkpoint/saved_rows.h"

#include "common/alloc.h"
#include "ps/checkpoint/restore_inside.h"
#include "ps/store/cold.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BATCH_BYTES ((size_t)1 << 20)
#define BATCH_ROWS 1024u
#define WINDOW_MIN 1024u /* images; of one row there may be one in each file */
#define FILES_MAX 64u

/* Where a row stands: table, slot, id. */
typedef struct key {
    uint32_t place; /* number << 16 | slot */
    uint64_t id;
} row_key_t;

typedef struct image {
    row_key_t key;
    uint64_t offset; /* in its file */
    uint32_t version;
    uint32_t file; /* the later, the more it counts */
} image_t;

struct ps_saved_rows {
    const ps_restore_t *restore;
    uint32_t server;
    const bool *slots;

    ps_cold_t *cold;
    uint8_t *batch; /* [batch_max] records of the table that is scanned */
    size_t batch_max, batch_n, batch_at, batch_record;
    size_t table;            /* that is scanned; n_tables: all were */
    uint32_t begin, end;     /* the run of slots that is scanned; both 0: none is yet */
    ps_cold_scan_t scan;     /* of it */
    ps_row_header_t cold_at; /* a copy of the header of the record at batch_at */
    bool cold_there;

    FILE *files[FILES_MAX]; /* the oldest first, the last is "rows" */
    uint32_t n_files;
    image_t *window; /* [window_max] */
    size_t window_max, window_n, window_at;
    row_key_t from, bound; /* the window's keys: from this one, and before that */
    bool bounded;          /* there is another window behind it */

    uint8_t *record; /* of an image */
};

static int compare_keys(const row_key_t *a, const row_key_t *b)
{
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

static row_key_t key_of(const ps_row_header_t *row)
{
    const uint32_t slot = psc_slot_of_hash(psc_row_hash(row->table, row->id));
    return (row_key_t){.place = (uint32_t)row->table << 16 | slot, .id = row->id};
}

int ps_saved_rows_compare(const ps_row_header_t *a, const ps_row_header_t *b)
{
    const row_key_t keys[] = {key_of(a), key_of(b)};
    return compare_keys(&keys[0], &keys[1]);
}

static size_t record_bytes(const ps_table_t *table)
{
    return sizeof(ps_row_header_t) + ps_table_row_bytes(table);
}

/* Bytes of a record in the checkpoint; 0: there is no such table. */
static size_t bytes_of(const ps_saved_rows_t *rows, uint16_t number)
{
    const ps_restore_t *restore = rows->restore;
    const uint16_t table = number & (uint16_t)~PS_TABLE_COMPANION;
    for (size_t i = 0; i < restore->n_tables; i++)
        if (restore->tables[i].was.number == table)
            return record_bytes(&restore->tables[i].was);
    return 0;
}

static psc_status_t damaged_image(const ps_saved_rows_t *rows, psc_error_t *error)
{
    return ps_restore_damaged(rows->restore, rows->server, "an image of a row", error);
}

/* ---- the cold tier ---- */

/* The next run of wanted slots, of this table or the next. False: there is none. */
static bool next_run(ps_saved_rows_t *rows)
{
    for (; rows->table < rows->restore->n_tables; rows->table++, rows->end = 0) {
        uint32_t slot = rows->end;
        while (slot < PSC_SLOT_COUNT && !rows->slots[slot])
            slot++;
        rows->begin = slot;
        while (slot < PSC_SLOT_COUNT && rows->slots[slot])
            slot++;
        rows->end = slot;
        if (rows->begin < rows->end)
            return true;
    }
    return false;
}

static psc_status_t scan_more(ps_saved_rows_t *rows, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    rows->batch_at = rows->batch_n = 0;
    while (st == PSC_OK && rows->batch_n == 0) {
        if (rows->scan.end) {
            if (!next_run(rows))
                return PSC_OK;
            const ps_table_t *table = &rows->restore->tables[rows->table].was;
            rows->batch_record = record_bytes(table);
            rows->scan = (ps_cold_scan_t){.heads = rows->batch,
                                          .head_bytes = rows->batch_record,
                                          .max = rows->batch_max,
                                          .whole = true};
            ps_cold_key(rows->scan.from, table->number, rows->begin, 0);
            ps_cold_key(rows->scan.to, table->number, rows->end, 0);
        }
        st = rows->cold->ops->scan(rows->cold, &rows->scan, error);
        rows->batch_n = st == PSC_OK ? rows->scan.n : 0;
    }
    return st;
}

/* The next scan begins behind this row. */
static void go_behind(ps_saved_rows_t *rows, const ps_row_header_t *row)
{
    const uint32_t slot = psc_slot_of_hash(psc_row_hash(row->table, row->id));
    if (row->id != UINT64_MAX)
        ps_cold_key(rows->scan.from, row->table, slot, row->id + 1);
    else
        ps_cold_key(rows->scan.from, row->table, slot + 1, 0);
}

/* Looks at the next record of the cold tier. */
static psc_status_t look_cold(ps_saved_rows_t *rows, psc_error_t *error)
{
    const ps_row_header_t before = rows->cold_at;
    const bool had = rows->cold_there;
    ps_row_header_t *row = &rows->cold_at;
    psc_status_t st = PSC_OK;
    rows->cold_there = false;
    if (rows->batch_at == rows->batch_n)
        st = scan_more(rows, error);
    if (st != PSC_OK || rows->batch_at == rows->batch_n)
        return st;
    memcpy(row, rows->batch + rows->batch_at * rows->batch_record, sizeof *row);
    const uint16_t number = rows->restore->tables[rows->table].was.number;
    const row_key_t key = key_of(row);
    const uint32_t slot = key.place & UINT16_MAX;
    if (row->table != number || row->state != PS_ROW_PRESENT || slot < rows->begin ||
        slot >= rows->end || (had && ps_saved_rows_compare(&before, row) >= 0))
        return ps_restore_damaged(rows->restore, rows->server, "a row", error);
    if (rows->batch_at + 1 == rows->batch_n)
        go_behind(rows, row);
    rows->cold_there = true;
    return PSC_OK;
}

/* ---- images ---- */

static int compare_images(const void *left, const void *right)
{
    const image_t *a = left, *b = right;
    const int order = compare_keys(&a->key, &b->key);
    return order != 0 ? order : (a->file > b->file) - (a->file < b->file);
}

/* Throws away the upper half of the window, which is full: whole rows, and one at least stays. */
static psc_status_t make_room(ps_saved_rows_t *rows, psc_error_t *error)
{
    qsort(rows->window, rows->window_n, sizeof *rows->window, compare_images);
    size_t n = rows->window_n / 2;
    while (n > 0 && compare_keys(&rows->window[n - 1].key, &rows->window[n].key) == 0)
        n--;
    if (n == 0) /* of a row there are not so many */
        return damaged_image(rows, error);
    rows->bound = rows->window[n].key;
    rows->bounded = true;
    rows->window_n = n;
    return PSC_OK;
}

static psc_status_t add_image(ps_saved_rows_t *rows, const ps_row_header_t *row, uint64_t offset,
                              uint32_t file, psc_error_t *error)
{
    const image_t image = {
        .key = key_of(row), .offset = offset, .version = row->version, .file = file};
    if ((row->table & PS_TABLE_COMPANION) != 0 || !rows->slots[image.key.place & UINT16_MAX] ||
        compare_keys(&image.key, &rows->from) < 0 ||
        (rows->bounded && compare_keys(&image.key, &rows->bound) >= 0))
        return PSC_OK;
    if (rows->window_n == rows->window_max) {
        psc_status_t st = make_room(rows, error);
        if (st != PSC_OK || compare_keys(&image.key, &rows->bound) >= 0)
            return st;
    }
    rows->window[rows->window_n++] = image;
    return PSC_OK;
}

/* A pass over one file. */
static psc_status_t look_through(ps_saved_rows_t *rows, uint32_t file, psc_error_t *error)
{
    FILE *stream = rows->files[file];
    uint64_t offset = 0;
    psc_status_t st = PSC_OK;
    rewind(stream);
    while (st == PSC_OK) {
        ps_row_header_t row;
        const size_t got = fread(&row, 1, sizeof row, stream);
        if (got == 0 && ferror(stream) == 0)
            break;
        const size_t size = got == sizeof row ? bytes_of(rows, row.table) : 0;
        if (size == 0 || row.state != PS_ROW_PRESENT ||
            fread(rows->record, 1, size - sizeof row, stream) != size - sizeof row)
            return damaged_image(rows, error);
        st = add_image(rows, &row, offset, file, error);
        offset += size;
    }
    return st;
}

/* The window of images from rows->from on. */
static psc_status_t fill_window(ps_saved_rows_t *rows, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    rows->window_n = rows->window_at = 0;
    rows->bounded = false;
    for (uint32_t file = 0; st == PSC_OK && file < rows->n_files; file++)
        st = look_through(rows, file, error);
    if (rows->window_n != 0)
        qsort(rows->window, rows->window_n, sizeof *rows->window, compare_images);
    return st;
}

/* The image that is next; *image_out NULL: there is none. */
static psc_status_t look_images(ps_saved_rows_t *rows, const image_t **image_out,
                                psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && rows->window_at == rows->window_n && rows->bounded) {
        rows->from = rows->bound;
        st = fill_window(rows, error);
    }
    *image_out = rows->window_at < rows->window_n ? &rows->window[rows->window_at] : NULL;
    return st;
}

static psc_status_t read_image(ps_saved_rows_t *rows, const image_t *image, psc_error_t *error)
{
    const size_t size = bytes_of(rows, (uint16_t)(image->key.place >> 16));
    const int fd = fileno(rows->files[image->file]);
    ps_row_header_t row;
    for (size_t got = 0; got < size;) {
        const ssize_t n =
            pread(fd, rows->record + got, size - got, (off_t)(image->offset + (uint64_t)got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return psc_error_set_errno(error, errno, "cannot read images of rows of %s",
                                       ps_restore_name(rows->restore));
        if (n == 0)
            return damaged_image(rows, error);
        got += (size_t)n;
    }
    memcpy(&row, rows->record, sizeof row);
    const row_key_t key = key_of(&row);
    return compare_keys(&key, &image->key) == 0 && row.version == image->version
               ? PSC_OK
               : damaged_image(rows, error);
}

/* The images of one row, and what the cold tier has of it, if it has: the record that counts is in
 * rows->record, or the cold tier's (*of_cold_out). */
static psc_status_t choose(ps_saved_rows_t *rows, bool cold_has, bool *of_cold_out,
                           psc_error_t *error)
{
    const row_key_t key = rows->window[rows->window_at].key;
    const image_t *chosen = NULL;
    bool has = cold_has;
    uint32_t version = cold_has ? rows->cold_at.version : 0;
    while (rows->window_at < rows->window_n &&
           compare_keys(&rows->window[rows->window_at].key, &key) == 0) {
        const image_t *image = &rows->window[rows->window_at++];
        /* Versions wrap. */
        const bool newer = !has || version - image->version > (uint32_t)INT32_MAX;
        if (image->file + 1 < rows->n_files && !newer)
            continue;
        chosen = image;
        version = image->version;
        has = true;
    }
    *of_cold_out = chosen == NULL;
    return chosen == NULL ? PSC_OK : read_image(rows, chosen, error);
}

/* ---- both ---- */

psc_status_t ps_saved_rows_next(ps_saved_rows_t *rows, const uint8_t **record_out,
                                psc_error_t *error)
{
    const image_t *image;
    psc_status_t st = look_cold(rows, error);
    if (st == PSC_OK)
        st = look_images(rows, &image, error);
    if (st != PSC_OK)
        return st;
    if (!rows->cold_there && image == NULL) {
        *record_out = NULL;
        return PSC_OK;
    }
    int order = image == NULL ? -1 : 1;
    if (rows->cold_there && image != NULL) {
        const row_key_t key = key_of(&rows->cold_at);
        order = compare_keys(&key, &image->key);
    }
    bool of_cold = order < 0;
    if (order >= 0)
        st = choose(rows, order == 0, &of_cold, error);
    if (st != PSC_OK)
        return st;
    *record_out = of_cold ? rows->batch + rows->batch_at * rows->batch_record : rows->record;
    if (order <= 0)
        rows->batch_at++;
    else
        rows->cold_there = false; /* it is looked at again, and was not taken */
    return PSC_OK;
}

/* ---- life ---- */

static bool has_file(const psp_saved_part_t *part, const char *name)
{
    for (size_t i = 0; i < part->n_files; i++) {
        if (strcmp(part->files[i]->name, name) == 0)
            return true;
    }
    return false;
}

static psc_status_t open_file(ps_saved_rows_t *rows, const char *name, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    if (rows->n_files == FILES_MAX)
        return damaged_image(rows, error);
    char *path = ps_restore_path(rows->restore, rows->server, name);
    FILE *file = path != NULL ? fopen(path, "rbe") : NULL;
    if (path == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for a path");
    else if (file == NULL)
        st = psc_error_set_errno(error, errno, "cannot read %s", path);
    else
        rows->files[rows->n_files++] = file;
    psc_free(path);
    return st;
}

static psc_status_t open_files(ps_saved_rows_t *rows, psc_error_t *error)
{
    psp_saved_t *saved = NULL;
    char name[32];
    psc_status_t st = ps_restore_open_part(rows->restore, rows->server, &saved, error);
    for (size_t i = 0; st == PSC_OK; i++) {
        (void)snprintf(name, sizeof name, PSP_SAVED_CHAIN, i);
        if (!has_file(psp_saved_part(saved), name))
            break;
        st = open_file(rows, name, error);
    }
    psp_saved_destroy(saved);
    return st == PSC_OK ? open_file(rows, "rows", error) : st;
}

static psc_status_t open_all(ps_saved_rows_t *rows, const ps_saved_rows_options_t *options,
                             psc_error_t *error)
{
    const ps_restore_t *restore = rows->restore;
    size_t most = sizeof(ps_row_header_t);
    for (size_t i = 0; i < restore->n_tables; i++) {
        const size_t bytes = record_bytes(&restore->tables[i].was);
        most = bytes > most ? bytes : most;
    }
    const uint64_t fit = options->memory_bytes / 2 / sizeof(image_t);
    rows->window_max = fit < WINDOW_MIN ? WINDOW_MIN : (size_t)fit;
    rows->batch_max = BATCH_BYTES / most == 0           ? 1
                      : BATCH_BYTES / most < BATCH_ROWS ? BATCH_BYTES / most
                                                        : BATCH_ROWS;
    rows->batch = psc_alloc_array(rows->batch_max, most);
    rows->record = psc_alloc_array(1, most);
    rows->window = psc_alloc_array(rows->window_max, sizeof *rows->window);
    char *path = ps_restore_path(restore, rows->server, "rocksdb");
    psc_status_t st = PSC_OK;
    if (rows->batch == NULL || rows->record == NULL || rows->window == NULL || path == NULL)
        st = psc_error_set(error, PSC_NO_MEMORY, "out of memory for rows of a checkpoint");
    if (st == PSC_OK)
        st = ps_cold_rocks_open_to_read(path, options->log_dir, options->memory_bytes / 2,
                                        &rows->cold, error);
    psc_free(path);
    if (st == PSC_OK)
        st = open_files(rows, error);
    return st == PSC_OK ? fill_window(rows, error) : st;
}

psc_status_t ps_saved_rows_open(const ps_restore_t *restore, const ps_saved_rows_options_t *options,
                                ps_saved_rows_t **rows_out, psc_error_t *error)
{
    ps_saved_rows_t *rows = psc_alloc_zeroed(1, sizeof *rows);
    if (rows == NULL)
        return psc_error_set(error, PSC_NO_MEMORY, "out of memory for rows of a checkpoint");
    rows->restore = restore;
    rows->server = options->server;
    rows->slots = options->slots;
    rows->scan.end = true;
    psc_status_t st = open_all(rows, options, error);
    if (st != PSC_OK) {
        ps_saved_rows_close(rows);
        return st;
    }
    *rows_out = rows;
    return PSC_OK;
}

void ps_saved_rows_close(ps_saved_rows_t *rows)
{
    if (rows == NULL)
        return;
    if (rows->cold != NULL)
        rows->cold->ops->destroy(rows->cold);
    for (uint32_t i = 0; i < rows->n_files; i++)
        (void)fclose(rows->files[i]);
    psc_free(rows->window);
    psc_free(rows->record);
    psc_free(rows->batch);
    psc_free(rows);
}
