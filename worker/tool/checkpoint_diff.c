/*
 * embps checkpoint diff: what changed from one checkpoint to another.
 *
 * Read are the manifests and the parts, which say all but the rows themselves (with --rows these
 * too, checkpoint_rows.h); of the other files only whether they are there, and whether both
 * checkpoints have the same one on disk: a file that is linked into both takes its bytes once. Both
 * sides become JSON of one shape, are laid beside each other as pairs [first, second], with null
 * where a side has none, and the text is made from that. A damaged part is an error by name:
 * nothing is said of half a checkpoint.
 *
 * Threads: none. Cost: a look at each file; memory for the parts of both.
 */
#include "common/alloc.h"
#include "common/output.h"
#include "common/slots.h"
#include "proto/message.h"
#include "worker/table_options.h"
#include "worker/tool/checkpoint_files.h"
#include "worker/tool/checkpoint_rows.h"
#include "worker/tool/hit_output.h"
#include "worker/tool/table_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SCRATCH_BYTES ((size_t)1 << 20)
#define VALUE_BYTES ((size_t)1024) /* of an option as text */
#define NOT_COMPARED "not_compared"

/* A file on disk. */
typedef struct place {
    dev_t device;
    ino_t inode;
    uint64_t bytes;
} place_t;

typedef struct side {
    psp_saved_t *saved;
    const psp_saved_manifest_t *manifest;
    psp_saved_t **parts; /* [n_servers] */
    place_t *places;     /* [n_places], in their order */
    size_t n_places;
    json_t *tables; /* name -> {"options": {}, "rows": {"SERVER": n}} */
} side_t;

static psc_status_t no_memory(const char *folder, psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for checkpoints in %s", folder);
}

/* ---- one side ---- */

static int compare_places(const void *left, const void *right)
{
    const place_t *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return (a->inode > b->inode) - (a->inode < b->inode);
}

/* Where the file lies; takes path. */
static psc_status_t add_place(side_t *side, const char *folder, char *path, psc_error_t *error)
{
    struct stat status;
    place_t *grown = psc_realloc_array(side->places, side->n_places + 1, sizeof *side->places);
    psc_status_t st = PSC_OK;
    if (grown != NULL)
        side->places = grown;
    if (path == NULL || grown == NULL)
        st = no_memory(folder, error);
    else if (stat(path, &status) != 0)
        st = psc_error_set_errno(error, errno, "cannot read %s", path);
    else
        side->places[side->n_places++] = (place_t){
            .device = status.st_dev, .inode = status.st_ino, .bytes = (uint64_t)status.st_size};
    psc_free(path);
    return st;
}

static psc_status_t find_places(side_t *side, const char *folder, psc_error_t *error)
{
    const psp_saved_manifest_t *manifest = side->manifest;
    psc_status_t st =
        manifest->state != NULL
            ? add_place(side, folder, psp_saved_path(folder, manifest->name, "state"), error)
            : PSC_OK;
    if (st == PSC_OK && manifest->vocabulary != NULL)
        st = add_place(side, folder, psp_saved_path(folder, manifest->name, "vocabulary"), error);
    for (uint32_t i = 0; st == PSC_OK && i < manifest->n_servers; i++) {
        const psp_saved_part_t *part = psp_saved_part(side->parts[i]);
        st = psp_saved_check_files(folder, manifest, part, false, NULL, NULL, error);
        if (st == PSC_OK)
            st = add_place(side, folder, psp_saved_server_path(folder, manifest->name, i, "part"),
                           error);
        for (size_t k = 0; st == PSC_OK && k < part->n_files; k++)
            st = add_place(side, folder,
                           psp_saved_server_path(folder, manifest->name, i, part->files[k]->name),
                           error);
    }
    if (side->n_places != 0)
        qsort(side->places, side->n_places, sizeof *side->places, compare_places);
    return st;
}

/* A table of one part joins those of the others. */
static psc_status_t add_table(side_t *side, psp_scratch_t *scratch, uint32_t server,
                              const psp_saved_table_t *from, psc_error_t *error)
{
    psp_message_t message;
    embps_table_options_t options;
    char number[16];
    psc_status_t st = psp_message_unpack(scratch, PSP_OPEN_TABLE, from->options.data,
                                         from->options.len, &message, error);
    if (st != PSC_OK)
        return st;
    const char *text = message.u.open_table.name;
    json_t *name = psw_json_text(text, strlen(text));
    const char *key = json_string_value(name);
    json_t *table = json_object_get(side->tables, key);
    if (table == NULL && key != NULL) {
        psw_table_options(&message.u.open_table, &options);
        table = json_pack("{s:o, s:{}}", "options", psw_table_text_write(&options), "rows");
        (void)json_object_set_new(side->tables, key, table);
        table = json_object_get(side->tables, key);
    }
    (void)snprintf(number, sizeof number, "%" PRIu32, server);
    if (json_object_set_new(json_object_get(table, "rows"), number,
                            json_integer((json_int_t)from->created)) != 0)
        st = psc_error_set(error, PSC_NO_MEMORY, "no memory for JSON");
    json_decref(name);
    return st;
}

static psc_status_t open_side(side_t *side, const char *folder, const char *name,
                              psp_scratch_t *scratch, psc_error_t *error)
{
    psc_status_t st = psp_saved_open(folder, name, &side->saved, error);
    if (st != PSC_OK)
        return st;
    side->manifest = psp_saved_manifest(side->saved);
    side->tables = json_object();
    side->parts = psc_alloc_zeroed(side->manifest->n_servers, sizeof(psp_saved_t *));
    if (side->parts == NULL || side->tables == NULL)
        st = no_memory(folder, error);
    for (uint32_t i = 0; st == PSC_OK && i < side->manifest->n_servers; i++) {
        st = psp_saved_open_part(folder, side->manifest, i, &side->parts[i], error);
        if (st != PSC_OK)
            continue;
        const psp_saved_part_t *part = psp_saved_part(side->parts[i]);
        for (size_t k = 0; st == PSC_OK && k < part->n_tables; k++)
            st = add_table(side, scratch, i, part->tables[k], error);
    }
    return st == PSC_OK ? find_places(side, folder, error) : st;
}

static void close_side(side_t *side)
{
    for (uint32_t i = 0; side->parts != NULL && i < side->manifest->n_servers; i++)
        psp_saved_destroy(side->parts[i]);
    psc_free(side->parts);
    psc_free(side->places);
    json_decref(side->tables);
    psp_saved_destroy(side->saved);
}

/* ---- tables ---- */

static json_t *pair(json_t *first, json_t *second)
{
    return json_pack("[O?, O?]", first, second);
}

/* {key: [first, second]} of what is not alike; all: of everything. */
static json_t *pairs(json_t *first, json_t *second, bool all)
{
    json_t *found = json_object(), *value;
    const char *key;
    json_object_foreach(first, key, value)
    {
        if (all || !json_equal(value, json_object_get(second, key)))
            (void)json_object_set_new(found, key, pair(value, json_object_get(second, key)));
    }
    json_object_foreach(second, key, value)
    {
        if (json_object_get(first, key) == NULL)
            (void)json_object_set_new(found, key, pair(NULL, value));
    }
    return found;
}

static json_int_t sum(const json_t *rows)
{
    json_int_t all = 0;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)rows, key, value) all += json_integer_value(value);
    return all;
}

/* "none" is known of rows too, once these were compared; until then of all but them. */
static json_t *diff_table(const char *name, const json_t *first, const json_t *second)
{
    const char *change = first == NULL ? "added" : second == NULL ? "removed" : NOT_COMPARED;
    json_t *options_of = json_object_get(first != NULL ? first : second, "options");
    json_t *options = first != NULL && second != NULL
                          ? pairs(options_of, json_object_get(second, "options"), false)
                          : json_object();
    const json_t *rows[] = {json_object_get(first, "rows"), json_object_get(second, "rows")};
    if (json_object_size(options) != 0 ||
        (first != NULL && second != NULL && !json_equal(rows[0], rows[1])))
        change = "changed";
    return json_pack("{s:s, s:s, s:O, s:o, s:[I, I], s:o}", "name", name, "change", change,
                     "options", options_of, "changed_options", options, "rows_created",
                     sum(rows[0]), sum(rows[1]), "rows_by_server",
                     pairs((json_t *)(uintptr_t)rows[0], (json_t *)(uintptr_t)rows[1], true));
}

static json_t *diff_tables(const side_t *first, const side_t *second)
{
    json_t *all = json_array(), *table;
    const char *name;
    json_object_foreach(first->tables, name, table)(void)
        json_array_append_new(all, diff_table(name, table, json_object_get(second->tables, name)));
    json_object_foreach(second->tables, name, table)
    {
        if (json_object_get(first->tables, name) == NULL)
            (void)json_array_append_new(all, diff_table(name, NULL, table));
    }
    return all;
}

static void print_table(const json_t *table)
{
    const char *name = json_string_value(json_object_get(table, "name"));
    const char *change = json_string_value(json_object_get(table, "change")), *key;
    const json_t *rows = json_object_get(table, "rows_created");
    json_t *value;
    psw_shown_t shown;
    if (strcmp(change, NOT_COMPARED) == 0)
        change = "same options, rows not compared (--rows)";
    (void)printf("table %s: %s; %" JSON_INTEGER_FORMAT " -> %" JSON_INTEGER_FORMAT " rows created",
                 psw_show(name, &shown), strcmp(change, "none") == 0 ? "no change" : change,
                 json_integer_value(json_array_get(rows, 0)),
                 json_integer_value(json_array_get(rows, 1)));
    const char *before = " (server ";
    json_object_foreach(json_object_get(table, "rows_by_server"), key, value)
    {
        (void)printf("%s%s: %" JSON_INTEGER_FORMAT " -> %" JSON_INTEGER_FORMAT, before, key,
                     json_integer_value(json_array_get(value, 0)),
                     json_integer_value(json_array_get(value, 1)));
        before = ", ";
    }
    (void)printf(")\n");
    json_object_foreach(json_object_get(table, "changed_options"), key, value)
    {
        char texts[2][VALUE_BYTES];
        for (size_t i = 0; i < 2; i++) {
            const size_t n = json_dumpb(json_array_get(value, i), texts[i], VALUE_BYTES - 1,
                                        JSON_ENCODE_ANY | JSON_COMPACT);
            texts[i][n < VALUE_BYTES ? n : 0] = '\0';
        }
        (void)printf("  %s: %s -> %s\n", key, texts[0], texts[1]);
    }
    psw_checkpoint_rows_print(json_object_get(table, "rows"));
}

/* ---- servers ---- */

static int compare_sessions(const void *left, const void *right)
{
    const psp_saved_session_t *const *a = left, *const *b = right;
    return ((*a)->id > (*b)->id) - ((*a)->id < (*b)->id);
}

/* How sessions went on from one part to another. */
typedef struct sessions {
    size_t n_new, n_gone, n_pushed; /* pushed: there before, and pushed since */
} sessions_t;

static sessions_t diff_sessions(const psp_saved_part_t *first, const psp_saved_part_t *second)
{
    sessions_t found = {0};
    const size_t n[] = {first->n_sessions, second->n_sessions};
    if (n[0] != 0)
        qsort(first->sessions, n[0], sizeof(void *), compare_sessions);
    if (n[1] != 0)
        qsort(second->sessions, n[1], sizeof(void *), compare_sessions);
    size_t i = 0, k = 0;
    while (i < n[0] && k < n[1]) {
        const psp_saved_session_t *a = first->sessions[i], *b = second->sessions[k];
        found.n_gone += a->id < b->id;
        found.n_new += b->id < a->id;
        found.n_pushed += a->id == b->id && a->push_sequence != b->push_sequence;
        i += a->id <= b->id;
        k += b->id <= a->id;
    }
    found.n_gone += n[0] - i;
    found.n_new += n[1] - k;
    return found;
}

static json_int_t n_slots(const psp_saved_part_t *part)
{
    json_int_t n = 0;
    for (size_t slot = 0; slot < PSC_SLOT_COUNT; slot++) {
        uint16_t owner;
        memcpy(&owner, part->slot_owners.data + slot * sizeof owner, sizeof owner);
        n += owner == part->server;
    }
    return n;
}

static json_t *describe_server(const psp_saved_part_t *part)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "clock", (json_int_t)part->clock, "sessions",
                     (json_int_t)part->n_sessions, "slots", n_slots(part), "map_epoch",
                     (json_int_t)part->map_epoch, "files", (json_int_t)part->n_files);
}

static json_t *diff_servers(const side_t *first, const side_t *second)
{
    static const psp_saved_part_t nobody = {.n_sessions = 0};
    json_t *all = json_array();
    for (uint32_t i = 0; i < first->manifest->n_servers || i < second->manifest->n_servers; i++) {
        const psp_saved_part_t *parts[] = {
            i < first->manifest->n_servers ? psp_saved_part(first->parts[i]) : NULL,
            i < second->manifest->n_servers ? psp_saved_part(second->parts[i]) : NULL};
        json_t *sides[2];
        for (size_t k = 0; k < 2; k++)
            sides[k] = parts[k] != NULL ? describe_server(parts[k]) : NULL;
        json_t *server = pairs(sides[0], sides[1], true);
        const sessions_t sessions = diff_sessions(parts[0] != NULL ? parts[0] : &nobody,
                                                  parts[1] != NULL ? parts[1] : &nobody);
        (void)json_object_set_new(server, "server", json_integer(i));
        (void)json_object_set_new(server, "sessions_new", json_integer((json_int_t)sessions.n_new));
        (void)json_object_set_new(server, "sessions_gone",
                                  json_integer((json_int_t)sessions.n_gone));
        (void)json_object_set_new(server, "sessions_that_pushed",
                                  json_integer((json_int_t)sessions.n_pushed));
        (void)json_array_append_new(all, server);
        json_decref(sides[0]);
        json_decref(sides[1]);
    }
    return all;
}

static void print_side(const json_t *value, const char *after)
{
    if (json_is_integer(value))
        (void)printf("%" JSON_INTEGER_FORMAT "%s", json_integer_value(value), after);
    else
        (void)printf("none%s", after);
}

static void print_server(const json_t *server)
{
    static const char *const names[] = {"clock", "slots", "map_epoch", "files", "sessions"};
    (void)printf("server %" JSON_INTEGER_FORMAT ":",
                 json_integer_value(json_object_get(server, "server")));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *both = json_object_get(server, names[i]);
        (void)printf(" %s ", names[i]);
        print_side(json_array_get(both, 0), " -> ");
        print_side(json_array_get(both, 1), i + 1 < sizeof names / sizeof names[0] ? "," : "");
    }
    (void)printf(" (%" JSON_INTEGER_FORMAT " new, %" JSON_INTEGER_FORMAT
                 " gone, %" JSON_INTEGER_FORMAT " that pushed)\n",
                 json_integer_value(json_object_get(server, "sessions_new")),
                 json_integer_value(json_object_get(server, "sessions_gone")),
                 json_integer_value(json_object_get(server, "sessions_that_pushed")));
}

/* ---- all of it ---- */

/* Bytes of files that are in both, in the first alone, in the second alone. */
static json_t *diff_bytes(const side_t *first, const side_t *second)
{
    uint64_t shared = 0, only[2] = {0, 0};
    size_t i = 0, k = 0;
    while (i < first->n_places && k < second->n_places) {
        const place_t *a = &first->places[i], *b = &second->places[k];
        const int order = compare_places(a, b);
        shared += order == 0 ? a->bytes : 0;
        only[0] += order < 0 ? a->bytes : 0;
        only[1] += order > 0 ? b->bytes : 0;
        i += order <= 0;
        k += order >= 0;
    }
    for (; i < first->n_places; i++)
        only[0] += first->places[i].bytes;
    for (; k < second->n_places; k++)
        only[1] += second->places[k].bytes;
    return json_pack("{s:I, s:I, s:I}", "shared", (json_int_t)shared, "old", (json_int_t)only[0],
                     "new", (json_int_t)only[1]);
}

static psc_status_t print_all(const side_t *sides, const json_t *bytes, const json_t *tables,
                              const json_t *servers, psc_error_t *error)
{
    size_t i;
    json_t *value;
    psw_checkpoint_print_heading();
    psw_checkpoint_print_line(sides[0].manifest);
    psw_checkpoint_print_line(sides[1].manifest);
    if (sides[0].manifest->cluster != sides[1].manifest->cluster)
        (void)printf("run %016" PRIx64 " -> %016" PRIx64 "\n", sides[0].manifest->cluster,
                     sides[1].manifest->cluster);
    json_array_foreach(tables, i, value) print_table(value);
    json_array_foreach(servers, i, value) print_server(value);
    (void)printf("%" JSON_INTEGER_FORMAT " bytes shared, %" JSON_INTEGER_FORMAT
                 " of the first alone, %" JSON_INTEGER_FORMAT " new\n",
                 json_integer_value(json_object_get(bytes, "shared")),
                 json_integer_value(json_object_get(bytes, "old")),
                 json_integer_value(json_object_get(bytes, "new")));
    return psc_output_flush(error);
}

/* Into each table the rows of it. */
static psc_status_t add_rows(const psw_checkpoint_options_t *options, const char *folder,
                             const side_t *sides, json_t *tables, psc_error_t *error)
{
    const psp_saved_manifest_t *const manifests[] = {sides[0].manifest, sides[1].manifest};
    json_t *rows, *table;
    size_t i;
    psc_status_t st = psw_checkpoint_rows(folder, manifests, options, &rows, error);
    if (st != PSC_OK)
        return st;
    json_array_foreach(tables, i, table)
    {
        json_t *of_table = json_object_get(rows, json_string_value(json_object_get(table, "name")));
        const char *change = json_string_value(json_object_get(table, "change"));
        if (strcmp(change, NOT_COMPARED) == 0)
            (void)json_object_set_new(
                table, "change",
                json_string(psw_checkpoint_rows_differ(of_table) ? "changed" : "none"));
        (void)json_object_set(table, "rows", of_table);
    }
    json_decref(rows);
    return PSC_OK;
}

psc_status_t psw_checkpoint_diff(const psw_visit_t *visit, const char *folder, const char *name,
                                 psc_error_t *error)
{
    side_t sides[2] = {0};
    const char *const names[] = {name, visit->words.items[3]};
    psp_scratch_t *scratch = NULL;
    psc_status_t st = psp_scratch_create(SCRATCH_BYTES, &scratch, error);
    for (size_t i = 0; st == PSC_OK && i < 2; i++)
        st = open_side(&sides[i], folder, names[i], scratch, error);
    if (st == PSC_OK) {
        json_t *bytes = diff_bytes(&sides[0], &sides[1]);
        json_t *tables = diff_tables(&sides[0], &sides[1]);
        json_t *servers = diff_servers(&sides[0], &sides[1]);
        const psw_checkpoint_options_t *options = visit->own;
        if (options->rows)
            st = add_rows(options, folder, sides, tables, error);
        if (st == PSC_OK && visit->options.json)
            st = psw_json_print(json_pack("{s:[o, o], s:O, s:O, s:O}", "checkpoints",
                                          psw_checkpoint_describe(sides[0].manifest),
                                          psw_checkpoint_describe(sides[1].manifest), "bytes",
                                          bytes, "tables", tables, "servers", servers),
                                error);
        else if (st == PSC_OK)
            st = print_all(sides, bytes, tables, servers, error);
        json_decref(bytes);
        json_decref(tables);
        json_decref(servers);
    }
    close_side(&sides[0]);
    close_side(&sides[1]);
    psp_scratch_destroy(scratch);
    return st;
}
