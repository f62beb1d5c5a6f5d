/*
 * embps checkpoint: makes one of running servers, and looks at those in a folder.
 *
 * list, inspect, verify and diff read files alone (proto/saved_folder.h); servers need not run, and
 * may. What is wrong with a checkpoint is told file by file, and the first fault is the exit
 * status. A checkpoint that is damaged is listed all the same, so that it can be seen what there
 * is.
 */
#include "worker/tool/checkpoint_files.h"
#include "common/output.h"
#include "common/slots.h"
#include "proto/message.h"
#include "worker/programs/client_error.h"
#include "worker/tool/commands.h"
#include "worker/tool/hit_output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define SCRATCH_BYTES ((size_t)1 << 20)

static const psc_option_t option_table[] = {
    {.name = "keep",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(psw_checkpoint_options_t, keep),
     .min = 1,
     .max = 1000000,
     .help = "prune: how many checkpoints stay, the newest that are whole. Beside them stay the "
             "newest with a client's state, also of the newest one's run, and damaged ones that "
             "were found on the way."},
    {.name = "dry-run",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(psw_checkpoint_options_t, dry_run),
     .help = "prune: remove nothing, and tell what would be."},
    {.name = "rows",
     .type = PSC_OPTION_FLAG,
     .offset = offsetof(psw_checkpoint_options_t, rows),
     .help = "diff: compare the rows too. Reads both checkpoints, each file against its checksum."},
    {.name = "top",
     .argument = "N",
     .type = PSC_OPTION_U64,
     .offset = offsetof(psw_checkpoint_options_t, top),
     .min = 0,
     .max = 100000,
     .default_value = "10",
     .help = "diff --rows: how many rows to show of each table, those that changed most."},
    {.name = "memory",
     .argument = "BYTES",
     .type = PSC_OPTION_SIZE,
     .offset = offsetof(psw_checkpoint_options_t, memory_bytes),
     .min = (double)(8 << 20),
     .max = 0x1p50,
     .default_value = "64M",
     .help = "diff --rows: memory for reading. With less, files of rows that were in servers' "
             "memory are read more often."},
};

static const psc_command_t command = {
    .name = "embps checkpoint",
    .synopsis = "ADDRESS | list DIR | inspect DIR NAME | verify DIR [NAME] | diff DIR NAME NAME "
                "[--rows] | prune DIR --keep N [--dry-run]",
    .summary = "Makes a checkpoint of running servers, or looks at a folder of them.",
    .description =
        "With the ADDRESS of one of the servers (embps-server --listen --checkpoints DIR) all of "
        "them make a checkpoint, whose name is printed. list shows the checkpoints of a folder, "
        "inspect what is in one and which servers had which slots, verify reads all files of one, "
        "or of all, and compares them with their checksums (the logs in DIR/log are not looked at: "
        "a start that goes on from them does that), diff tells what changed from one to another: "
        "tables and their options, rows that came into being, clocks, sessions, slots, and the "
        "bytes that they share on disk; without --rows not whether rows have changed. These need "
        "no servers.\n\n"
        "diff --rows compares the rows too, whatever numbers of servers made the checkpoints: how "
        "many of each table were added, removed or changed (their weights, or the state of the "
        "optimizer alone), and which changed most, by the L2 norm of the difference of their "
        "weights. Rows are compared as they are stored, also those that had expired and were not "
        "freed yet; both checkpoints have to be of one run, or of such that went on from it.\n\n"
        "prune removes old checkpoints, and what a crash left, from a folder that no server "
        "uses. It reads those that are to stay first; one that is damaged is named and does not "
        "count.",
    .options = option_table,
    .n_options = sizeof option_table / sizeof option_table[0],
    .operands = "ADDRESS, or what to do and a folder",
    .examples = "embps checkpoint 127.0.0.1:50051\nembps checkpoint verify saved\n"
                "embps checkpoint diff saved checkpoint-0000000003 checkpoint-0000000007 --rows\n"
                "embps checkpoint prune saved --keep 3 --dry-run",
};

static psc_status_t make(const psw_visit_t *visit, psc_error_t *error)
{
    embps_error_t what;
    char name[EMBPS_CHECKPOINT_NAME_BYTES];
    psw_shown_t shown;
    if (embps_checkpoint(visit->client, NULL, 0, name, &what) != 0)
        return psw_error_import(&what, error);
    if (visit->options.json)
        return psw_json_print(json_pack("{s:o}", "name", psw_json_text(name, strlen(name))), error);
    (void)printf("%s\n", psw_show(name, &shown));
    return psc_output_flush(error);
}

/* ---- list ---- */

static uint64_t total_bytes(const psp_saved_manifest_t *manifest)
{
    uint64_t bytes = manifest->state != NULL ? manifest->state->size : 0;
    bytes += manifest->vocabulary != NULL ? manifest->vocabulary->size : 0;
    for (size_t i = 0; i < manifest->n_parts; i++)
        bytes += manifest->parts[i]->bytes;
    return bytes;
}

static void time_text(uint64_t seconds, char text[32])
{
    const time_t when = (time_t)seconds;
    struct tm local;
    text[0] = '\0';
    if (localtime_r(&when, &local) != NULL)
        (void)strftime(text, 32, "%Y-%m-%d %H:%M:%S", &local);
}

json_t *psw_checkpoint_describe(const psp_saved_manifest_t *manifest)
{
    const psp_saved_file_t *words = manifest->vocabulary;
    char cluster[20], checksum[20];
    (void)snprintf(cluster, sizeof cluster, "%016" PRIx64, manifest->cluster);
    (void)snprintf(checksum, sizeof checksum, "%016" PRIx64, words != NULL ? words->checksum : 0);
    return json_pack("{s:o, s:I, s:i, s:I, s:I, s:I, s:s?, s:s, s:o}", "name",
                     psw_json_text(manifest->name, strlen(manifest->name)), "made",
                     (json_int_t)manifest->made_s, "servers", (int)manifest->n_servers, "bytes",
                     (json_int_t)total_bytes(manifest), "state_bytes",
                     (json_int_t)(manifest->state != NULL ? manifest->state->size : 0),
                     "vocabulary_bytes", (json_int_t)(words != NULL ? words->size : 0),
                     "vocabulary_checksum", words != NULL ? checksum : NULL, "run", cluster,
                     "release", psw_json_text(manifest->release, strlen(manifest->release)));
}

void psw_checkpoint_print_heading(void)
{
    (void)printf("%-28s%-22s%8s%16s%14s\n", "checkpoint", "made", "servers", "bytes", "state");
}

void psw_checkpoint_print_line(const psp_saved_manifest_t *manifest)
{
    char when[32];
    psw_shown_t shown;
    time_text(manifest->made_s, when);
    (void)printf("%-28s%-22s%8" PRIu32 "%16" PRIu64 "%14" PRIu64 "\n",
                 psw_show(manifest->name, &shown), when, manifest->n_servers, total_bytes(manifest),
                 manifest->state != NULL ? manifest->state->size : 0);
}

/* One that cannot be read. */
static void print_fault(json_t *all, const char *name, const psc_error_t *fault)
{
    psw_shown_t shown, message;
    if (all != NULL)
        (void)json_array_append_new(
            all, json_pack("{s:o, s:o}", "name", psw_json_text(name, strlen(name)), "fault",
                           psw_json_text(fault->message, strlen(fault->message))));
    else
        (void)printf("%-28s%s\n", psw_show(name, &shown), psw_show(fault->message, &message));
}

psc_status_t psw_checkpoint_sum_up(const char *folder, psc_status_t first, size_t n_faulty,
                                   size_t n, psc_error_t *error)
{
    return psc_error_set(error, first, "of %zu checkpoints in %s %zu have faults", n, folder,
                         n_faulty);
}

/* Of a folder that must be there. */
static psc_status_t names_in(const char *folder, psp_saved_names_t *names_out, psc_error_t *error)
{
    struct stat about;
    if (stat(folder, &about) != 0)
        return psc_error_set_errno(error, errno, "cannot look at %s", folder);
    return psp_saved_list(folder, names_out, error);
}

psc_status_t psw_checkpoint_names(const char *folder, psp_saved_names_t *names_out,
                                  psc_error_t *error)
{
    psc_status_t st = names_in(folder, names_out, error);
    if (st == PSC_OK && names_out->n == 0)
        st = psc_error_set(error, PSC_NOT_FOUND, "there is no checkpoint in %s", folder);
    return st;
}

static psc_status_t list(const psw_visit_t *visit, const char *folder, const char *name,
                         psc_error_t *error)
{
    (void)name;
    psp_saved_names_t names;
    json_t *all = visit->options.json ? json_array() : NULL;
    psc_status_t st = names_in(folder, &names, error), first = PSC_OK;
    size_t n_faulty = 0;
    if (st != PSC_OK) {
        json_decref(all);
        return st;
    }
    if (all == NULL)
        psw_checkpoint_print_heading();
    for (size_t i = 0; i < names.n; i++) {
        psp_saved_t *saved = NULL;
        psc_error_t fault = PSC_ERROR_INIT;
        st = psp_saved_open(folder, names.all[i], &saved, &fault);
        if (st != PSC_OK)
            print_fault(all, names.all[i], &fault);
        else if (all != NULL)
            (void)json_array_append_new(all, psw_checkpoint_describe(psp_saved_manifest(saved)));
        else
            psw_checkpoint_print_line(psp_saved_manifest(saved));
        if (st != PSC_OK && first == PSC_OK)
            first = st;
        n_faulty += st != PSC_OK;
        psp_saved_destroy(saved);
    }
    const size_t n = names.n;
    psp_saved_names_clear(&names);
    st = visit->options.json ? psw_json_print(all, error) : psc_output_flush(error);
    return st != PSC_OK || first == PSC_OK
               ? st
               : psw_checkpoint_sum_up(folder, first, n_faulty, n, error);
}

/* ---- inspect ---- */

static psc_status_t print_table(psp_scratch_t *scratch, const psp_saved_table_t *from, json_t *all,
                                psc_error_t *error)
{
    psp_message_t message;
    psc_status_t st = psp_message_unpack(scratch, PSP_OPEN_TABLE, from->options.data,
                                         from->options.len, &message, error);
    if (st != PSC_OK)
        return st;
    const psp_open_table_t *table = &message.u.open_table;
    if (all == NULL) {
        psw_shown_t shown, init, optimizer;
        (void)psw_show(table->name, &shown);
        (void)printf("  table %-*s dim %-8" PRIu32 "init %-18s optimizer %-22s%12" PRIu64 " rows\n",
                     psw_shown_width(shown.text, 22), shown.text, table->dim,
                     psw_show(table->init, &init), psw_show(table->optimizer, &optimizer),
                     from->created);
        return PSC_OK;
    }
    (void)json_array_append_new(
        all,
        json_pack("{s:o, s:I, s:o, s:o, s:s, s:s, s:I}", "name",
                  psw_json_text(table->name, strlen(table->name)), "dim", (json_int_t)table->dim,
                  "init", psw_json_text(table->init, strlen(table->init)), "optimizer",
                  psw_json_text(table->optimizer, strlen(table->optimizer)), "precision",
                  psp_precision_name(table->precision), "state_precision",
                  psp_precision_name(table->state_precision), "rows_created",
                  (json_int_t)from->created));
    return PSC_OK;
}

static uint32_t owner_of(const psp_saved_part_t *part, uint32_t slot)
{
    uint16_t owner;
    memcpy(&owner, part->slot_owners.data + (size_t)slot * sizeof owner, sizeof owner);
    return owner;
}

/* The run of slots of a server that begins there, or the next one: its end, 0: there is none. */
static uint32_t next_run(const psp_saved_part_t *part, uint32_t *begin)
{
    uint32_t slot = *begin;
    for (; slot < PSC_SLOT_COUNT; slot++) {
        if (owner_of(part, slot) == part->server)
            break;
    }
    *begin = slot;
    while (slot < PSC_SLOT_COUNT && owner_of(part, slot) == part->server)
        slot++;
    return slot == *begin ? 0 : slot;
}

/* Which slots a server had: runs, first and last. */
static json_t *slots_json(const psp_saved_part_t *part)
{
    json_t *runs = json_array();
    uint32_t begin = 0, end;
    for (; (end = next_run(part, &begin)) != 0; begin = end)
        (void)json_array_append_new(runs, json_pack("[i, i]", (int)begin, (int)end - 1));
    return runs;
}

static void print_slots(const psp_saved_part_t *part)
{
    uint32_t begin = 0, end;
    for (; (end = next_run(part, &begin)) != 0; begin = end)
        (void)printf(" %" PRIu32 "-%" PRIu32 ",", begin, end - 1);
}

static psc_status_t print_part(psp_scratch_t *scratch, const psp_saved_part_t *part, json_t *parts,
                               psc_error_t *error)
{
    json_t *tables = parts != NULL ? json_array() : NULL;
    psc_status_t st = PSC_OK;
    uint64_t bytes = 0;
    psw_shown_t shown;
    for (size_t i = 0; i < part->n_files; i++)
        bytes += part->files[i]->size;
    if (parts == NULL) {
        (void)printf("server %" PRIu32 " on %s: slots", part->server, psw_show(part->host, &shown));
        print_slots(part);
        (void)printf(" %zu files, %" PRIu64 " bytes, %zu sessions, clock %" PRIu64 "\n",
                     part->n_files, bytes, part->n_sessions, part->clock);
    }
    for (size_t i = 0; st == PSC_OK && i < part->n_tables; i++)
        st = print_table(scratch, part->tables[i], tables, error);
    if (parts == NULL)
        return st;
    (void)json_array_append_new(
        parts,
        json_pack("{s:i, s:o, s:o, s:i, s:i, s:I, s:i, s:I, s:o}", "server", (int)part->server,
                  "host", psw_json_text(part->host, strlen(part->host)), "slots", slots_json(part),
                  "map_epoch", (int)part->map_epoch, "files", (int)part->n_files, "bytes",
                  (json_int_t)bytes, "sessions", (int)part->n_sessions, "clock",
                  (json_int_t)part->clock, "tables", tables));
    return st;
}

static psc_status_t inspect(const psw_visit_t *visit, const char *folder, const char *name,
                            psc_error_t *error)
{
    psp_saved_t *saved = NULL;
    psp_scratch_t *scratch = NULL;
    psc_status_t st = psp_saved_open(folder, name, &saved, error);
    if (st != PSC_OK)
        return st;
    const psp_saved_manifest_t *manifest = psp_saved_manifest(saved);
    json_t *all = visit->options.json ? psw_checkpoint_describe(manifest) : NULL;
    json_t *parts = all != NULL ? json_array() : NULL;
    st = psp_scratch_create(SCRATCH_BYTES, &scratch, error);
    if (all == NULL) {
        psw_checkpoint_print_heading();
        psw_checkpoint_print_line(manifest);
    }
    for (uint32_t i = 0; st == PSC_OK && i < manifest->n_servers; i++) {
        psp_saved_t *part = NULL;
        st = psp_saved_open_part(folder, manifest, i, &part, error);
        if (st == PSC_OK)
            st = print_part(scratch, psp_saved_part(part), parts, error);
        psp_saved_destroy(part);
    }
    psp_scratch_destroy(scratch);
    psp_saved_destroy(saved);
    if (all != NULL)
        (void)json_object_set_new(all, "parts", parts);
    if (st != PSC_OK) {
        json_decref(all);
        return st;
    }
    return all != NULL ? psw_json_print(all, error) : psc_output_flush(error);
}

/* ---- verify ---- */

void psw_checkpoint_take_fault(void *context, const psc_error_t *fault)
{
    const psw_checkpoint_faults_t *faults = context;
    psw_shown_t shown, message;
    if (faults->all != NULL)
        (void)json_array_append_new(faults->all,
                                    psw_json_text(fault->message, strlen(fault->message)));
    else
        (void)printf("%s: %s\n", psw_show(faults->name, &shown),
                     psw_show(fault->message, &message));
}

/* Whether it is whole; *first: the first fault of all. */
static bool verify_one(const char *folder, const char *name, json_t *all, psc_status_t *first)
{
    psc_error_t fault = PSC_ERROR_INIT;
    psw_shown_t shown;
    psw_checkpoint_faults_t faults = {.name = name, .all = all != NULL ? json_array() : NULL};
    const psc_status_t st =
        psp_saved_verify(folder, name, true, psw_checkpoint_take_fault, &faults, &fault);
    if (all != NULL)
        (void)json_array_append_new(all, json_pack("{s:o, s:b, s:o}", "name",
                                                   psw_json_text(name, strlen(name)), "whole",
                                                   st == PSC_OK, "faults", faults.all));
    else if (st == PSC_OK)
        (void)printf("%s: whole\n", psw_show(name, &shown));
    if (*first == PSC_OK)
        *first = st;
    return st == PSC_OK;
}

/* A checkpoint of a name that is given must be there. */
static psc_status_t look_for(const char *folder, const char *name, psc_error_t *error)
{
    psp_saved_t *saved = NULL;
    psc_error_t fault = PSC_ERROR_INIT;
    const psc_status_t st = psp_saved_open(folder, name, &saved, &fault);
    psp_saved_destroy(saved);
    if (st != PSC_NOT_FOUND && st != PSC_INVALID_ARGUMENT)
        return PSC_OK; /* what else is wrong with it is a fault to show */
    *error = fault;
    return st;
}

static psc_status_t verify(const psw_visit_t *visit, const char *folder, const char *name,
                           psc_error_t *error)
{
    psp_saved_names_t names = {0};
    psc_status_t first = PSC_OK;
    size_t n_faulty = 0;
    json_t *all = visit->options.json ? json_array() : NULL;
    psc_status_t st =
        name == NULL ? psw_checkpoint_names(folder, &names, error) : look_for(folder, name, error);
    if (st != PSC_OK) {
        json_decref(all);
        return st;
    }
    const size_t n = name != NULL ? 1 : names.n;
    for (size_t i = 0; i < n; i++)
        n_faulty += !verify_one(folder, name != NULL ? name : names.all[i], all, &first);
    psp_saved_names_clear(&names);
    st = all != NULL ? psw_json_print(all, error) : psc_output_flush(error);
    return st != PSC_OK || first == PSC_OK
               ? st
               : psw_checkpoint_sum_up(folder, first, n_faulty, n, error);
}

psc_status_t psw_tool_checkpoint(int argc, char *const argv[], psc_error_t *error)
{
    static const struct {
        const char *word;
        psw_checkpoint_look_fn look;
        size_t least, most; /* words in all */
    } looks[] = {{"list", list, 2, 2},
                 {"inspect", inspect, 3, 3},
                 {"verify", verify, 2, 3},
                 {"diff", psw_checkpoint_diff, 4, 4},
                 {"prune", psw_checkpoint_prune, 2, 2}};
    psw_checkpoint_options_t options;
    psw_visit_t visit;
    bool go_on;
    psc_status_t st = psw_visit_parse(&command, &options, argc, argv, &visit, &go_on, error);
    if (st != PSC_OK || !go_on)
        return st;
    const size_t n = visit.words.n;
    size_t at = 0;
    while (at < sizeof looks / sizeof looks[0] && n != 0 &&
           strcmp(visit.words.items[0], looks[at].word) != 0)
        at++;
    const bool is_look = n != 0 && at < sizeof looks / sizeof looks[0];
    if (is_look ? n < looks[at].least || n > looks[at].most : n != 1)
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: wants %s; see %s --help",
                             command.name, command.synopsis, command.name);
    if ((options.keep != 0 || options.dry_run) &&
        !(is_look && looks[at].look == psw_checkpoint_prune))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "%s: --keep and --dry-run are for prune; see %s --help", command.name,
                             command.name);
    if (options.rows && !(is_look && looks[at].look == psw_checkpoint_diff))
        return psc_error_set(error, PSC_INVALID_ARGUMENT, "%s: --rows is for diff; see %s --help",
                             command.name, command.name);
    if (!is_look)
        return psw_visit_address(&visit, visit.words.items[0], make, error);
    return looks[at].look(&visit, visit.words.items[1], n > 2 ? visit.words.items[2] : NULL, error);
}
