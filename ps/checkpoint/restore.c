/*
 * Everything is checked first: manifest, part, every file of it with its checksum, the options of
 * every table. So a start that is refused has changed nothing, and what is damaged is named, and
 * never read as rows.
 *
 * Images are written over the cold tier before the store opens it; they are as many as were dirty
 * in memory at the cut. Workers' sessions are not revived: those processes are gone, and new ones
 * say hello. A guest's session goes on where the cut was; what it was answered after that is lost,
 * which ps/table/guests.c notices and says.
 *
 * Threads: none; at the start, before anything is served.
 */
#include "ps/checkpoint/restore.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/hash.h"
#include "ps/checkpoint/place_file.h"
#include "ps/serve/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SCRATCH_BYTES ((size_t)1 << 20)
#define WRITES 256u
#define BUSY_US 1000

struct ps_restore {
    char *folder;
    uint32_t rank;
    psp_saved_t *manifest, *saved;
    const psp_saved_part_t *part;
    ps_table_t *tables; /* [part->n_tables] as their options define them */
};

static psc_status_t no_memory(psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a checkpoint");
}

static psc_status_t damaged(const ps_restore_t *restore, const char *what, psc_error_t *error)
{
    return psc_error_set(error, PSC_CORRUPT,
                         "checkpoint %s in %s is damaged: %s of server %" PRIu32,
                         ps_restore_name(restore), restore->folder, what, restore->rank);
}

static char *path_of(const ps_restore_t *restore, const char *file)
{
    return psp_saved_server_path(restore->folder, ps_restore_name(restore), restore->rank, file);
}

/* ---- which ---- */

/* The one that is asked for, "": none; before: of "auto", the one before it, "": none. */
static psc_status_t choose(const char *folder, const char *resume,
                           char name[PSP_SAVED_NAME_MAX + 1], char before[PSP_SAVED_NAME_MAX + 1],
                           psc_error_t *error)
{
    psp_saved_names_t names;
    name[0] = before[0] = '\0';
    if (strcmp(resume, "none") == 0)
        return PSC_OK;
    if (strcmp(resume, "auto") != 0) {
        if (!psp_saved_is_name(resume))
            return psc_error_set(error, PSC_INVALID_ARGUMENT,
                                 "--resume %.127s: auto, none or the name of a checkpoint", resume);
        memcpy(name, resume, strlen(resume) + 1);
        return PSC_OK;
    }
    psc_status_t st = psp_saved_list(folder, &names, error);
    if (st != PSC_OK)
        return st;
    if (names.n > 0)
        memcpy(name, names.all[names.n - 1], PSP_SAVED_NAME_MAX + 1);
    if (names.n > 1)
        memcpy(before, names.all[names.n - 2], PSP_SAVED_NAME_MAX + 1);
    psp_saved_names_clear(&names);
    return PSC_OK;
}

/* What the options of each table define. */
static psc_status_t define_tables(ps_restore_t *restore, psc_error_t *error)
{
    const psp_saved_part_t *part = restore->part;
    psp_scratch_t *scratch = NULL;
    restore->tables = psc_alloc_zeroed(part->n_tables + 1, sizeof *restore->tables);
    if (restore->tables == NULL)
        return no_memory(error);
    psc_status_t st = psp_scratch_create(SCRATCH_BYTES, &scratch, error);
    uint32_t last = 0;
    for (size_t i = 0; st == PSC_OK && i < part->n_tables; i++) {
        const ProtobufCBinaryData *options = &part->tables[i]->options;
        psp_message_t message;
        st = psp_message_unpack(scratch, PSP_OPEN_TABLE, options->data, options->len, &message,
                                error);
        if (st != PSC_OK)
            break;
        const uint32_t number = message.u.open_table.table;
        if (number <= last || number > PS_TABLES_MAX) {
            st = damaged(restore, "the numbers of tables", error);
            break;
        }
        st = ps_table_define(&message.u.open_table, &restore->tables[i], error);
        restore->tables[i].number = (uint16_t)number;
        restore->tables[i].epoch = part->tables[i]->epoch;
        last = number;
    }
    psp_scratch_destroy(scratch);
    return st;
}

static psc_status_t open_checkpoint(ps_restore_t *restore, const char *name, uint32_t n_servers,
                                    psc_error_t *error)
{
    psc_status_t st = psp_saved_open(restore->folder, name, &restore->manifest, error);
    if (st != PSC_OK)
        return st;
    const psp_saved_manifest_t *manifest = psp_saved_manifest(restore->manifest);
    if (manifest->n_servers != n_servers)
        return psc_error_set(error, PSC_MISMATCH,
                             "checkpoint %s in %s is of %" PRIu32
                             " servers, and this run has %" PRIu32
                             ": start as many, or say --resume none",
                             name, restore->folder, manifest->n_servers, n_servers);
    st = psp_saved_open_part(restore->folder, manifest, restore->rank, &restore->saved, error);
    if (st != PSC_OK)
        return st;
    restore->part = psp_saved_part(restore->saved);
    st = psp_saved_check_files(restore->folder, manifest, restore->part, true, NULL, NULL, error);
    return st == PSC_OK ? define_tables(restore, error) : st;
}

psc_status_t ps_restore_find(const char *folder, const char *resume, uint32_t rank,
                             uint32_t n_servers, ps_restore_t **restore_out, psc_error_t *error)
{
    char name[PSP_SAVED_NAME_MAX + 1], before[PSP_SAVED_NAME_MAX + 1];
    psc_error_t fault = PSC_ERROR_INIT;
    *restore_out = NULL;
    psc_status_t st = choose(folder, resume, name, before, error);
    if (st != PSC_OK || name[0] == '\0')
        return st;
    ps_restore_t *restore = psc_alloc_zeroed(1, sizeof *restore);
    if (restore == NULL)
        return no_memory(error);
    restore->rank = rank;
    restore->folder = psc_strdup(folder);
    st = restore->folder == NULL ? no_memory(&fault)
                                 : open_checkpoint(restore, name, n_servers, &fault);
    if (st == PSC_OK) {
        *restore_out = restore;
        return PSC_OK;
    }
    ps_restore_destroy(restore);
    if (before[0] != '\0' && st != PSC_MISMATCH)
        return psc_error_set(error, st, "%.350s. There is an earlier one: --resume %s",
                             fault.message, before);
    if (error != NULL)
        *error = fault;
    return st;
}

void ps_restore_destroy(ps_restore_t *restore)
{
    if (restore == NULL)
        return;
    psp_saved_destroy(restore->manifest);
    psp_saved_destroy(restore->saved);
    psc_free(restore->tables);
    psc_free(restore->folder);
    psc_free(restore);
}

const char *ps_restore_name(const ps_restore_t *restore)
{
    return psp_saved_manifest(restore->manifest)->name;
}

uint64_t ps_restore_cluster(const ps_restore_t *restore)
{
    return psp_saved_manifest(restore->manifest)->cluster;
}

/* ---- the cold tier ---- */

psc_status_t ps_restore_files(const ps_restore_t *restore, const char *rocksdb, psc_error_t *error)
{
    static const char prefix[] = "rocksdb/";
    if (mkdir(rocksdb, 0777) != 0)
        return psc_error_set_errno(error, errno, "cannot make %s", rocksdb);
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < restore->part->n_files; i++) {
        const char *name = restore->part->files[i]->name;
        if (strncmp(name, prefix, sizeof prefix - 1) != 0)
            continue;
        char *from = path_of(restore, name);
        char *to = psp_saved_path(rocksdb, name + sizeof prefix - 1, NULL);
        st = from == NULL || to == NULL
                 ? no_memory(error)
                 : ps_place_file(from, to, ps_place_is_constant(name), error);
        psc_free(from);
        psc_free(to);
    }
    return st;
}

/* Bytes of a record of a table, or of its companion; 0: there is no such table. */
static size_t record_bytes(const ps_restore_t *restore, uint16_t number)
{
    for (size_t i = 0; i < restore->part->n_tables; i++) {
        if (restore->tables[i].number == (number & (uint16_t)~PS_TABLE_COMPANION))
            return sizeof(ps_row_header_t) + ps_table_row_bytes(&restore->tables[i]);
    }
    return 0;
}

/* Images on their way into the cold tier. */
typedef struct images {
    FILE *file;
    uint8_t *bytes; /* room for WRITES of the largest */
    size_t most;    /* bytes of the largest */
    ps_cold_write_t writes[WRITES];
    size_t n;
} images_t;

static psc_status_t write_images(images_t *images, ps_cold_t *cold, psc_error_t *error)
{
    psc_status_t st;
    while ((st = cold->ops->write(cold, images->writes, images->n, error)) == PSC_BUSY)
        psc_clock_sleep_us(BUSY_US);
    images->n = 0;
    return st;
}

/* The next image. *end_out: there is none. */
static psc_status_t read_image(const ps_restore_t *restore, images_t *images, bool *end_out,
                               psc_error_t *error)
{
    ps_row_header_t row;
    uint8_t *to = images->bytes + images->n * images->most;
    const size_t got = fread(&row, 1, sizeof row, images->file);
    *end_out = got == 0 && ferror(images->file) == 0;
    if (*end_out)
        return PSC_OK;
    const size_t size = got == sizeof row ? record_bytes(restore, row.table) : 0;
    if (size == 0 || row.state != PS_ROW_PRESENT)
        return damaged(restore, "an image of a row", error);
    memcpy(to, &row, sizeof row);
    if (fread(to + sizeof row, 1, size - sizeof row, images->file) != size - sizeof row)
        return damaged(restore, "an image of a row", error);
    ps_cold_write_t *write = &images->writes[images->n++];
    *write = (ps_cold_write_t){.record = to, .size = size};
    ps_cold_key(write->key, row.table, psc_slot_of_hash(psc_row_hash(row.table, row.id)), row.id);
    return PSC_OK;
}

static psc_status_t copy_images(const ps_restore_t *restore, images_t *images, ps_cold_t *cold,
                                psc_error_t *error)
{
    bool end = false;
    psc_status_t st = PSC_OK;
    while (st == PSC_OK && !end) {
        st = read_image(restore, images, &end, error);
        if (st == PSC_OK && images->n != 0 && (end || images->n == WRITES))
            st = write_images(images, cold, error);
    }
    return st;
}

psc_status_t ps_restore_rows(const ps_restore_t *restore, ps_cold_t *cold, psc_error_t *error)
{
    images_t images = {.most = sizeof(ps_row_header_t)};
    for (size_t i = 0; i < restore->part->n_tables; i++) {
        const size_t bytes = record_bytes(restore, restore->tables[i].number);
        images.most = bytes > images.most ? bytes : images.most;
    }
    char *path = path_of(restore, "rows");
    images.bytes = psc_alloc_array(WRITES, images.most);
    images.file = path != NULL ? fopen(path, "rbe") : NULL;
    psc_status_t st = PSC_OK;
    if (path == NULL || images.bytes == NULL)
        st = no_memory(error);
    else if (images.file == NULL)
        st = psc_error_set_errno(error, errno, "cannot read %s", path);
    if (st == PSC_OK)
        st = copy_images(restore, &images, cold, error);
    cold->was_empty = false;
    if (images.file != NULL)
        (void)fclose(images.file);
    psc_free(images.bytes);
    psc_free(path);
    return st;
}

/* ---- the shard ---- */

/* Sightings and ages of one table, from *at on. */
static psc_status_t load_growth(const ps_restore_t *restore, const psp_saved_table_t *from,
                                ps_growth_t *growth, const uint8_t **at, size_t *left,
                                psc_error_t *error)
{
    const size_t sketch =
        growth != NULL && growth->sketch != NULL ? ps_sketch_image_bytes(growth->sketch) : 0;
    const size_t expiry =
        growth != NULL && growth->expiry != NULL ? ps_expiry_image_bytes(growth->expiry) : 0;
    if (from->sketch_bytes != sketch || from->expiry_bytes != expiry || sketch + expiry > *left)
        return damaged(restore, "sightings", error);
    if (growth == NULL)
        return PSC_OK;
    growth->companion.created = from->companion_created;
    if (growth->sketch != NULL)
        ps_sketch_load(growth->sketch, *at);
    if (growth->expiry != NULL)
        ps_expiry_load(growth->expiry, from->expiry_clock, *at + sketch);
    *at += sketch + expiry;
    *left -= sketch + expiry;
    return PSC_OK;
}

static psc_status_t make_tables(const ps_restore_t *restore, ps_shard_t *shard,
                                const uint8_t *growth, size_t left, psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < restore->part->n_tables; i++) {
        const psp_saved_table_t *from = restore->part->tables[i];
        ps_table_t *table = NULL;
        st = ps_serve_make_table(shard, restore->tables[i].number, &restore->tables[i], &table,
                                 error);
        if (st != PSC_OK)
            break;
        table->epoch = from->epoch;
        table->created = from->created;
        st = load_growth(restore, from, table->growth, &growth, &left, error);
    }
    return st;
}

static psc_status_t revive_guests(const ps_restore_t *restore, ps_shard_t *shard,
                                  psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    for (size_t i = 0; st == PSC_OK && i < restore->part->n_sessions; i++) {
        const psp_saved_session_t *from = restore->part->sessions[i];
        const ps_session_t session = {.id = from->id,
                                      .state = PS_SESSION_LIVE,
                                      .clock = from->clock,
                                      .progress = from->progress,
                                      .push_sequence = from->push_sequence};
        if (from->guest && from->id != 0 && from->next_sequence != 0)
            st = ps_guests_revive(shard, &session, from->next_sequence, error);
    }
    return st;
}

psc_status_t ps_restore_shard(const ps_restore_t *restore, ps_shard_t *shard, bool sessions,
                              psc_error_t *error)
{
    const psp_saved_part_t *part = restore->part;
    char *growth = NULL;
    size_t n_growth = 0, wanted = 0;
    psc_status_t st = PSC_OK;
    for (size_t i = 0; i < part->n_files; i++) {
        if (strcmp(part->files[i]->name, "growth") == 0)
            wanted = (size_t)part->files[i]->size;
    }
    if (shard->sessions.n == 0) { /* else workers begin anew */
        shard->sessions.time = shard->sessions.min_clock = part->time;
        shard->clock = part->clock;
    }
    shard->sessions.n_given = part->sessions_given;
    if (wanted != 0) {
        char *path = path_of(restore, "growth");
        st = path == NULL ? no_memory(error)
                          : psc_file_read(path, wanted, &growth, &n_growth, error);
        psc_free(path);
    }
    if (st == PSC_OK)
        st = make_tables(restore, shard, (const uint8_t *)growth, n_growth, error);
    if (st == PSC_OK && sessions)
        st = revive_guests(restore, shard, error);
    psc_free(growth);
    return st;
}
