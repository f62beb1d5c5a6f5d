/*
 * Everything is checked first: manifest, the parts of all servers, every file of those parts that
 * this server needs with its checksum, the options of every table. So a start that is refused has
 * changed nothing, and what is missing or damaged is named, and never read as rows. State and
 * vocabulary of the client, which workers go on with, are looked at by the first server, for all.
 *
 * A checkpoint may be of another number of servers. Parts are files of one folder, which all
 * servers see; each takes the slots that the map of this run gives it out of the parts that had
 * them (restore_rows.c, restore_shard.c). Where the map is the one that the checkpoint has, a
 * server has all of the part with its number, and the map keeps its epoch; else the epoch is one
 * more, so that nobody's requests are routed by the old one.
 *
 * What is one for all servers is taken to be the furthest that any of them had: clock, time, how
 * many sessions were given; tables are those that any of them had. Of a consistent cut these are
 * alike; a call of another client that was under way may have been on one server and not on
 * another. Counts of rows that came into being, which nobody divides by slots, go with their
 * server's number, modulo the number of servers: their sum stays.
 *
 * Memory: one part at a time, some 64 times the bytes of its file at worst. Threads: none; at the
 * start, before anything is served.
 */
#include "ps/checkpoint/restore_inside.h"

#include "common/alloc.h"
#include "common/log.h"
#include "ps/checkpoint/optimizer_reset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SCRATCH_BYTES ((size_t)1 << 20)

static psc_status_t no_memory(psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for a checkpoint");
}

psc_status_t ps_restore_damaged(const ps_restore_t *restore, uint32_t server, const char *what,
                                psc_error_t *error)
{
    return psc_error_set(error, PSC_CORRUPT,
                         "checkpoint %s in %s is damaged: %s of server %" PRIu32 " (host %s)",
                         ps_restore_name(restore), restore->folder, what, server,
                         psp_saved_manifest(restore->manifest)->parts[server]->host);
}

char *ps_restore_path(const ps_restore_t *restore, uint32_t server, const char *file)
{
    return psp_saved_server_path(restore->folder, ps_restore_name(restore), server, file);
}

psc_status_t ps_restore_open_part(const ps_restore_t *restore, uint32_t server,
                                  psp_saved_t **saved_out, psc_error_t *error)
{
    return psp_saved_open_part(restore->folder, psp_saved_manifest(restore->manifest), server,
                               saved_out, error);
}

bool ps_restore_needs(const ps_restore_t *restore, uint32_t server)
{
    for (uint32_t slot = 0; slot < PSC_SLOT_COUNT; slot++)
        if (ps_restore_takes(restore, server, slot))
            return true;
    return false;
}

/* ---- which ---- */

/* The newest of the first n that has a client's state, or a manifest that cannot be read, so that
 * it is named and not passed over; n: there is none. */
static psc_status_t newest_with_state(const char *folder, const psp_saved_names_t *names, size_t n,
                                      size_t *at_out, psc_error_t *error)
{
    *at_out = n;
    for (size_t i = n; i-- > 0 && *at_out == n;) {
        psp_saved_t *saved = NULL;
        psc_error_t fault = PSC_ERROR_INIT;
        const psc_status_t st = psp_saved_open(folder, names->all[i], &saved, &fault);
        if (st != PSC_OK || psp_saved_manifest(saved)->state != NULL)
            *at_out = i;
        psp_saved_destroy(saved);
        if (st == PSC_NO_MEMORY) {
            *error = fault;
            return st;
        }
    }
    return PSC_OK;
}

/* "auto": the newest, with_state: that has one, where any has; then the one before it that would
 * have been taken without it. */
static psc_status_t choose_newest(const char *folder, bool with_state,
                                  char name[PSP_SAVED_NAME_MAX + 1],
                                  char before[PSP_SAVED_NAME_MAX + 1], psc_error_t *error)
{
    psp_saved_names_t names;
    char *const chosen[] = {name, before};
    psc_status_t st = psp_saved_list(folder, &names, error);
    if (st != PSC_OK)
        return st;
    size_t n = names.n;
    for (size_t i = 0; st == PSC_OK && i < 2 && n > 0; i++) {
        size_t at = n;
        if (with_state)
            st = newest_with_state(folder, &names, n, &at, error);
        n = at < n ? at : n - 1;
        memcpy(chosen[i], names.all[n], PSP_SAVED_NAME_MAX + 1);
    }
    psp_saved_names_clear(&names);
    return st;
}

/* The one that is asked for, "": none; before: of "auto", the one before it, "": none. */
static psc_status_t choose(const char *folder, const char *resume, bool with_state,
                           char name[PSP_SAVED_NAME_MAX + 1], char before[PSP_SAVED_NAME_MAX + 1],
                           psc_error_t *error)
{
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
    return choose_newest(folder, with_state, name, before, error);
}

/* ---- what all parts say ---- */

psc_status_t ps_restore_each_table(const ps_restore_t *restore, const psp_saved_part_t *part,
                                   ps_restore_table_fn fn, void *context, psc_error_t *error)
{
    psp_scratch_t *scratch = NULL;
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
        if (number <= last || number > PS_TABLES_MAX)
            st = ps_restore_damaged(restore, part->server, "the numbers of tables", error);
        else
            st = fn(context, part->tables[i], &message.u.open_table, error);
        last = number;
    }
    psp_scratch_destroy(scratch);
    return st;
}

/* The table of that number, there or made room for; NULL: out of memory. */
static ps_restore_table_t *place_table(ps_restore_t *restore, uint16_t number, bool *there_out)
{
    size_t at = 0;
    while (at < restore->n_tables && restore->tables[at].table.number < number)
        at++;
    *there_out = at < restore->n_tables && restore->tables[at].table.number == number;
    if (*there_out)
        return &restore->tables[at];
    void *grown =
        psc_realloc_array(restore->tables, restore->n_tables + 1, sizeof *restore->tables);
    if (grown == NULL)
        return NULL;
    restore->tables = grown;
    memmove(&restore->tables[at + 1], &restore->tables[at],
            (restore->n_tables - at) * sizeof *restore->tables);
    restore->n_tables++;
    restore->tables[at] = (ps_restore_table_t){.created = 0};
    return &restore->tables[at];
}

typedef struct adding {
    ps_restore_t *restore;
    uint32_t server;
} adding_t;

/* A table of a part: its options define it, and are the same on all servers. */
static psc_status_t add_table(void *context, const psp_saved_table_t *from,
                              const psp_open_table_t *options, psc_error_t *error)
{
    const adding_t *adding = context;
    ps_restore_t *restore = adding->restore;
    const uint32_t server = adding->server;
    ps_table_t table;
    bool there;
    psc_status_t st = ps_table_define(options, &table, error);
    if (st != PSC_OK)
        return st;
    table.number = (uint16_t)options->table;
    table.epoch = from->epoch;
    ps_restore_table_t *to = place_table(restore, table.number, &there);
    if (to == NULL)
        return no_memory(error);
    if (there && (strcmp(to->table.name, table.name) != 0 || to->table.epoch != table.epoch ||
                  ps_table_compare(&to->table, &table, NULL) != PSC_OK))
        return ps_restore_damaged(restore, server, "its tables are not those of others, those",
                                  error);
    if (!there)
        to->table = to->was = table;
    if (from->expiry_clock > to->expiry_clock)
        to->expiry_clock = from->expiry_clock;
    if (server % restore->n_servers == restore->rank) {
        to->created += from->created;
        to->companion_created += from->companion_created;
    }
    return PSC_OK;
}

static uint64_t furthest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static psc_status_t add_part(ps_restore_t *restore, const psp_saved_part_t *part,
                             psc_error_t *error)
{
    psc_slot_map_t *map = &restore->before;
    if (map->n_servers == 0) { /* the first */
        map->n_servers = part->n_servers;
        map->epoch = part->map_epoch;
        memcpy(map->owner, part->slot_owners.data, sizeof map->owner);
    } else if (part->map_epoch != map->epoch ||
               memcmp(map->owner, part->slot_owners.data, sizeof map->owner) != 0) {
        return ps_restore_damaged(restore, part->server, "the slot map", error);
    }
    for (size_t i = 0; part->server % restore->n_servers == restore->rank && i < part->n_counters;
         i++)
        ps_account_add_saved(&restore->account, part->counters[i]->name, part->counters[i]->value);
    restore->time = furthest(restore->time, part->time);
    restore->clock = furthest(restore->clock, part->clock);
    restore->sessions_given = furthest(restore->sessions_given, part->sessions_given);
    adding_t adding = {.restore = restore, .server = part->server};
    return ps_restore_each_table(restore, part, add_table, &adding, error);
}

/* Servers whose parts are missing, as far as a message has room. */
typedef struct missing {
    char text[256];
    size_t used;
    uint32_t n_more; /* that had no room */
} missing_t;

static void add_missing(missing_t *missing, uint32_t server, const char *host)
{
    const size_t room = sizeof missing->text - missing->used;
    const int put = snprintf(missing->text + missing->used, room, "%sserver %" PRIu32 " (host %s)",
                             missing->used != 0 ? ", " : "", server, host);
    if (missing->n_more == 0 && put > 0 && (size_t)put < room) {
        missing->used += (size_t)put;
        return;
    }
    missing->text[missing->used] = '\0';
    missing->n_more++;
}

static psc_status_t tell_missing(const ps_restore_t *restore, const missing_t *missing,
                                 psc_error_t *error)
{
    char more[48] = "";
    if (missing->n_more != 0)
        (void)snprintf(more, sizeof more, "%s%" PRIu32 " more", missing->used != 0 ? " and " : "",
                       missing->n_more);
    return psc_error_set(error, PSC_NOT_FOUND,
                         "checkpoint %s in %.120s is without the part of %s%s",
                         ps_restore_name(restore), restore->folder, missing->text, more);
}

/* Reads all parts. Those that are missing are named, all of them that a message has room for. */
static psc_status_t read_parts(ps_restore_t *restore, psc_error_t *error)
{
    const psp_saved_manifest_t *manifest = psp_saved_manifest(restore->manifest);
    missing_t missing = {.used = 0};
    psc_status_t st = PSC_OK;
    for (uint32_t server = 0; st == PSC_OK && server < manifest->n_servers; server++) {
        psp_saved_t *saved = NULL;
        st = ps_restore_open_part(restore, server, &saved, error);
        if (st == PSC_OK)
            st = add_part(restore, psp_saved_part(saved), error);
        psp_saved_destroy(saved);
        if (st != PSC_NOT_FOUND)
            continue;
        st = PSC_OK;
        add_missing(&missing, server, manifest->parts[server]->host);
    }
    const bool any = missing.used != 0 || missing.n_more != 0;
    return st == PSC_OK && any ? tell_missing(restore, &missing, error) : st;
}

static void count_fault(void *context, const psc_error_t *fault)
{
    (void)fault;
    *(size_t *)context += 1;
}

/* Reads all files of the parts that this server needs; the first one those of the client too. */
static psc_status_t check_files(const ps_restore_t *restore, psc_error_t *error)
{
    psc_error_t first = PSC_ERROR_INIT;
    size_t n_faults = 0;
    for (uint32_t server = 0; server < restore->before.n_servers; server++) {
        psp_saved_t *saved = NULL;
        psc_error_t fault = PSC_ERROR_INIT;
        if (!ps_restore_needs(restore, server))
            continue;
        psc_status_t st = ps_restore_open_part(restore, server, &saved, &fault);
        if (st == PSC_OK)
            st = psp_saved_check_files(restore->folder, psp_saved_manifest(restore->manifest),
                                       psp_saved_part(saved), true, count_fault, &n_faults, &fault);
        psp_saved_destroy(saved);
        if (st != PSC_OK && first.code == PSC_OK)
            first = fault;
    }
    if (restore->client) {
        psc_error_t fault = PSC_ERROR_INIT;
        psc_status_t st =
            psp_saved_check_client(restore->folder, psp_saved_manifest(restore->manifest), true,
                                   count_fault, &n_faults, &fault);
        if (st != PSC_OK && first.code == PSC_OK)
            first = fault;
    }
    if (first.code != PSC_OK && n_faults > 1)
        return psc_error_set(error, first.code, "%.300s; %zu more files are missing or damaged",
                             first.message, n_faults - 1);
    if (first.code != PSC_OK && error != NULL)
        *error = first;
    return first.code;
}

static psc_status_t open_checkpoint(ps_restore_t *restore, const char *name, psc_error_t *error)
{
    psc_status_t st = psp_saved_open(restore->folder, name, &restore->manifest, error);
    if (st == PSC_OK)
        st = psc_slot_map_init(&restore->map, restore->n_servers, error);
    if (st == PSC_OK)
        st = read_parts(restore, error);
    if (st != PSC_OK)
        return st;
    restore->same =
        restore->before.n_servers == restore->n_servers &&
        memcmp(restore->before.owner, restore->map.owner, sizeof restore->map.owner) == 0;
    restore->map.epoch = restore->before.epoch + (restore->same ? 0 : 1);
    return check_files(restore, error);
}

/* client: what the client left is looked at too. */
static psc_status_t find(const char *folder, const char *resume, uint32_t rank, uint32_t n_servers,
                         bool with_state, bool client, ps_restore_t **restore_out,
                         psc_error_t *error)
{
    char name[PSP_SAVED_NAME_MAX + 1], before[PSP_SAVED_NAME_MAX + 1];
    psc_error_t fault = PSC_ERROR_INIT;
    *restore_out = NULL;
    psc_status_t st = choose(folder, resume, with_state, name, before, error);
    if (st != PSC_OK || name[0] == '\0')
        return st;
    ps_restore_t *restore = psc_alloc_zeroed(1, sizeof *restore);
    if (restore == NULL)
        return no_memory(error);
    restore->rank = rank;
    restore->n_servers = n_servers;
    restore->client = client;
    restore->folder = psc_strdup(folder);
    st = restore->folder == NULL ? no_memory(&fault) : open_checkpoint(restore, name, &fault);
    if (st == PSC_OK) {
        *restore_out = restore;
        return PSC_OK;
    }
    ps_restore_destroy(restore);
    if (before[0] != '\0')
        return psc_error_set(error, st, "%.350s. There is an earlier one: --resume %s",
                             fault.message, before);
    if (error != NULL)
        *error = fault;
    return st;
}

psc_status_t ps_restore_find(const char *folder, const char *resume, uint32_t rank,
                             uint32_t n_servers, bool with_state, ps_restore_t **restore_out,
                             psc_error_t *error)
{
    return find(folder, resume, rank, n_servers, with_state, rank == 0, restore_out, error);
}

psc_status_t ps_restore_find_weights(const char *folder, const char *name, uint32_t rank,
                                     uint32_t n_servers, ps_restore_t **restore_out,
                                     psc_error_t *error)
{
    return find(folder, name, rank, n_servers, false, false, restore_out, error);
}

/* ---- another optimizer ---- */

static ps_restore_table_t *find_table(ps_restore_t *restore, const char *name)
{
    for (size_t i = 0; i < restore->n_tables; i++)
        if (strcmp(restore->tables[i].table.name, name) == 0)
            return &restore->tables[i];
    return NULL;
}

static void log_reset(const ps_restore_t *restore, const ps_restore_table_t *table)
{
    const psc_log_level_t level = restore->rank == 0 ? PSC_LOG_WARN : PSC_LOG_INFO;
    if (table->renewed)
        psc_log(level,
                "table %s of %s had optimizer %s and goes on with %s: the weights stay, the state "
                "of %s is dropped, and that of %s begins in every row at its initial value",
                table->table.name, ps_restore_name(restore), table->was.optim->name,
                table->table.optim->name, table->was.optim->name, table->table.optim->name);
    else
        psc_log(PSC_LOG_INFO,
                "table %s of %s has optimizer %s, as --reset-optimizer says: its "
                "state stays",
                table->table.name, ps_restore_name(restore), table->table.optim->name);
}

psc_status_t ps_restore_reset(ps_restore_t *restore, const char *text, psc_error_t *error)
{
    ps_optimizer_reset_t reset;
    ps_table_t changed;
    psc_status_t st = ps_optimizer_reset_parse(text, &reset, error);
    if (st != PSC_OK)
        return st;
    ps_restore_table_t *table = find_table(restore, reset.table);
    if (table == NULL)
        return psc_error_set(error, PSC_NOT_FOUND,
                             "--reset-optimizer %.80s: checkpoint %s has no table of this name",
                             reset.table, ps_restore_name(restore));
    if (table->renewed)
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "--reset-optimizer: table %.80s stands there twice", reset.table);
    st = ps_optimizer_reset_define(&reset, &table->was, &changed, &table->renewed, error);
    if (st != PSC_OK)
        return st;
    table->table = changed;
    restore->renews |= table->renewed;
    log_reset(restore, table);
    return PSC_OK;
}

void ps_restore_weights(ps_restore_t *restore)
{
    restore->weights = restore->renews = true;
    restore->time = restore->clock = 0;
    restore->account = (ps_account_t){.applied = {.pushes = 0}};
    for (size_t i = 0; i < restore->n_tables; i++) {
        ps_restore_table_t *table = &restore->tables[i];
        table->renewed = true;
        table->table.epoch = 1;
        table->expiry_clock = 0;
    }
    psc_log(PSC_LOG_INFO,
            "begins with the weights of %s in %s: states of optimizers, sessions, clocks and what "
            "a client left there are not taken",
            ps_restore_name(restore), restore->folder);
}

bool ps_restore_is_weights(const ps_restore_t *restore)
{
    return restore->weights;
}

bool ps_restore_renews(const ps_restore_t *restore)
{
    return restore->renews;
}

void ps_restore_destroy(ps_restore_t *restore)
{
    if (restore == NULL)
        return;
    psp_saved_destroy(restore->manifest);
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

bool ps_restore_with_state(const ps_restore_t *restore)
{
    return psp_saved_manifest(restore->manifest)->state != NULL;
}

psc_status_t ps_restore_log_segment(const ps_restore_t *restore, uint32_t server,
                                    uint64_t *segment_out, psc_error_t *error)
{
    psp_saved_t *saved = NULL;
    psc_status_t st = ps_restore_open_part(restore, server, &saved, error);
    if (st == PSC_OK)
        *segment_out = psp_saved_part(saved)->log_segment;
    psp_saved_destroy(saved);
    return st;
}

uint32_t ps_restore_servers(const ps_restore_t *restore)
{
    return psp_saved_manifest(restore->manifest)->n_servers;
}
