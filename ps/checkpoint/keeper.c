/*
 * Invariants. A folder with a plain name and a manifest was renamed into place when all in it was
 * synced, and is whole. What is being made has a name of its own, and so has what is being removed,
 * so that a kill at any moment leaves whole checkpoints and leftovers that the next start takes
 * away. The lock keeps two runs apart, whose leftovers would be each other's work.
 *
 * The lineage is written by whoever comes first (a link either is made or is there). A data
 * directory with the same number holds rows of a run that goes on from these checkpoints.
 *
 * A checkpoint that servers make at their end has rows alone, and a program that trains cannot go
 * on from there. So the newest with a client's state stays, however many without came after it.
 *
 * Threads: one at a time; the writer's, but for open and close and until the writer starts.
 */
#include "ps/checkpoint/keeper.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/log.h"
#include "proto/saved_change.h"
#include "ps/checkpoint/place_file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME_BEGINS "checkpoint-"
#define LINEAGE_BYTES ((size_t)64)
#define LINEAGE_TRIES 3

struct ps_keeper {
    ps_keeper_options_t options;
    char *folder;
    uint64_t lineage;
    int lock_fd; /* -1: none */
    /* Of this run, the one that it went on from included; "": none. */
    char standing[PSP_SAVED_NAME_MAX + 1];
    char with_state[PSP_SAVED_NAME_MAX + 1]; /* the newest with a client's state */
};

static psc_status_t no_memory(psc_error_t *error)
{
    return psc_error_set(error, PSC_NO_MEMORY, "out of memory for checkpoints");
}

/* ---- lineage ---- */

static psc_status_t read_lineage(const char *path, uint64_t *lineage_out, psc_error_t *error)
{
    char *text, *end;
    size_t size;
    psc_status_t st = psc_file_read(path, LINEAGE_BYTES, &text, &size, error);
    if (st != PSC_OK)
        return st;
    *lineage_out = strtoull(text, &end, 16);
    if (*end != '\n' || *lineage_out == 0)
        st = psc_error_set(error, PSC_CORRUPT, "%s is damaged: it is no lineage", path);
    psc_free(text);
    return st;
}

static psc_status_t make_lineage(const ps_keeper_t *keeper, const char *path, psc_error_t *error)
{
    char name[64], text[32];
    uint64_t number = 0;
    while (number == 0) {
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
            number = psc_clock_us();
    }
    (void)snprintf(name, sizeof name, ".lineage-%" PRIu32 "-%016" PRIx64, keeper->options.rank,
                   number);
    char *temporary = psp_saved_path(keeper->folder, name, NULL);
    if (temporary == NULL)
        return no_memory(error);
    const int size = snprintf(text, sizeof text, "%016" PRIx64 "\n", number);
    psc_status_t st = psc_file_write(temporary, text, (size_t)size, error);
    if (st == PSC_OK && link(temporary, path) != 0 && errno != EEXIST)
        st = psc_error_set_errno(error, errno, "cannot make %s", path);
    (void)unlink(temporary);
    if (st == PSC_OK) /* before data directories go by it */
        st = psc_file_sync_dir(keeper->folder, error);
    psc_free(temporary);
    return st;
}

static psc_status_t find_lineage(ps_keeper_t *keeper, psc_error_t *error)
{
    char *path = psp_saved_path(keeper->folder, "lineage", NULL);
    if (path == NULL)
        return no_memory(error);
    psc_status_t st = PSC_OK;
    for (int tries = 0; st == PSC_OK && !keeper->options.read_only && access(path, F_OK) != 0;
         tries++) {
        st = make_lineage(keeper, path, error);
        if (st == PSC_NOT_FOUND && tries < LINEAGE_TRIES)
            st = PSC_OK; /* the first server, which starts just now, took it for a leftover */
    }
    if (st == PSC_OK)
        st = read_lineage(path, &keeper->lineage, error);
    psc_free(path);
    return st;
}

/* ---- open ---- */

/* Removes what a crash left. */
static psc_status_t clean(const ps_keeper_t *keeper, psc_error_t *error)
{
    DIR *entries = opendir(keeper->folder);
    psc_status_t st = PSC_OK;
    const struct dirent *entry;
    if (entries == NULL)
        return psc_error_set_errno(error, errno, "cannot read %s", keeper->folder);
    while (st == PSC_OK && (entry = readdir(entries)) != NULL) {
        char *path = psp_saved_is_leftover(entry->d_name)
                         ? psp_saved_path(keeper->folder, entry->d_name, NULL)
                         : NULL;
        if (path != NULL)
            st = psc_file_remove_all(path, error);
        psc_free(path);
    }
    (void)closedir(entries);
    return st;
}

psc_status_t ps_keeper_open(const ps_keeper_options_t *options, ps_keeper_t **keeper_out,
                            psc_error_t *error)
{
    ps_keeper_t *keeper = psc_alloc_zeroed(1, sizeof *keeper);
    if (keeper == NULL)
        return no_memory(error);
    keeper->options = *options;
    keeper->lock_fd = -1;
    keeper->folder = psc_strdup(options->folder);
    psc_status_t st = keeper->folder == NULL ? no_memory(error) : PSC_OK;
    const bool writes = !options->read_only, first = writes && options->rank == 0;
    if (st == PSC_OK && writes && mkdir(keeper->folder, 0777) != 0 && errno != EEXIST)
        st = psc_error_set_errno(error, errno, "cannot make the folder of checkpoints %s",
                                 keeper->folder);
    if (st == PSC_OK && writes) /* whoever made it may have been killed before it did that */
        st = psc_file_sync_parent(keeper->folder, error);
    if (st == PSC_OK && first)
        st = psp_saved_lock(keeper->folder, &keeper->lock_fd, error);
    if (st == PSC_OK && first)
        st = clean(keeper, error);
    if (st == PSC_OK && first) /* so also a checkpoint that nobody said is there */
        st = psc_file_sync_dir(keeper->folder, error);
    if (st == PSC_OK)
        st = find_lineage(keeper, error);
    if (st != PSC_OK) {
        ps_keeper_close(keeper);
        return st;
    }
    *keeper_out = keeper;
    return PSC_OK;
}

void ps_keeper_close(ps_keeper_t *keeper)
{
    if (keeper == NULL)
        return;
    if (keeper->lock_fd >= 0)
        (void)close(keeper->lock_fd);
    psc_free(keeper->folder);
    psc_free(keeper);
}

const char *ps_keeper_folder(const ps_keeper_t *keeper)
{
    return keeper->folder;
}

uint64_t ps_keeper_lineage(const ps_keeper_t *keeper)
{
    return keeper->lineage;
}

void ps_keeper_set_cluster(ps_keeper_t *keeper, uint64_t cluster)
{
    keeper->options.cluster = cluster;
}

void ps_keeper_stand_at(ps_keeper_t *keeper, const char *name, bool with_state)
{
    (void)snprintf(keeper->standing, sizeof keeper->standing, "%s", name);
    if (with_state)
        (void)snprintf(keeper->with_state, sizeof keeper->with_state, "%s", name);
}

const char *ps_keeper_standing(const ps_keeper_t *keeper)
{
    return keeper->standing;
}

/* ---- one checkpoint ---- */

char *ps_keeper_path(const ps_keeper_t *keeper, const char *name, const char *file, bool shared)
{
    char partial[PSP_SAVED_NAME_MAX + sizeof PSP_SAVED_PARTIAL];
    (void)snprintf(partial, sizeof partial, "%s%s", name, PSP_SAVED_PARTIAL);
    return shared ? psp_saved_path(keeper->folder, partial, file)
                  : psp_saved_server_path(keeper->folder, partial, keeper->options.rank, file);
}

/* The number after that of the last checkpoint. */
static psc_status_t choose_name(const ps_keeper_t *keeper, char name[PSP_SAVED_NAME_MAX + 1],
                                psc_error_t *error)
{
    psp_saved_names_t names;
    uint64_t last = 0;
    psc_status_t st = psp_saved_list(keeper->folder, &names, error);
    if (st != PSC_OK)
        return st;
    for (size_t i = 0; i < names.n; i++) {
        const size_t length = strlen(NAME_BEGINS);
        const uint64_t number = strncmp(names.all[i], NAME_BEGINS, length) == 0
                                    ? strtoull(names.all[i] + length, NULL, 10)
                                    : 0;
        last = number > last ? number : last;
    }
    psp_saved_names_clear(&names);
    (void)snprintf(name, PSP_SAVED_NAME_MAX + 1, NAME_BEGINS "%010" PRIu64, last + 1);
    return PSC_OK;
}

static psc_status_t make_folder(char *path, bool may_exist, psc_error_t *error)
{
    psc_status_t st = path == NULL ? no_memory(error) : PSC_OK;
    if (st == PSC_OK && mkdir(path, 0777) != 0 && !(may_exist && errno == EEXIST))
        st = psc_error_set_errno(error, errno, "cannot make %s", path);
    psc_free(path);
    return st;
}

/* Of one of this name that was given up, and could not be removed then, this server's part goes. */
static psc_status_t remove_leftovers(const ps_keeper_t *keeper, const char *name,
                                     psc_error_t *error)
{
    struct stat found;
    char *path = ps_keeper_path(keeper, name, NULL, false);
    psc_status_t st = path == NULL ? no_memory(error) : PSC_OK;
    if (st == PSC_OK && lstat(path, &found) == 0 && S_ISDIR(found.st_mode))
        st = psc_file_remove_all(path, error);
    psc_free(path);
    return st;
}

psc_status_t ps_keeper_begin(ps_keeper_t *keeper, char name[PSP_SAVED_NAME_MAX + 1],
                             psc_error_t *error)
{
    psc_status_t st = PSC_OK;
    const bool first = keeper->options.rank == 0;
    if (first)
        st = choose_name(keeper, name, error);
    else if (!psp_saved_is_name(name))
        return psc_error_set(error, PSC_INVALID_ARGUMENT,
                             "a checkpoint has its name from the first server");
    if (st == PSC_OK && first)
        st = make_folder(ps_keeper_path(keeper, name, NULL, true), true, error);
    if (st == PSC_OK)
        st = remove_leftovers(keeper, name, error);
    if (st == PSC_OK)
        st = make_folder(ps_keeper_path(keeper, name, NULL, false), false, error);
    if (st == PSC_NOT_FOUND)
        st = psc_error_set(error, PSC_NOT_FOUND,
                           "%s has no checkpoint %s that was begun: do all servers see the same "
                           "--checkpoints?",
                           keeper->folder, name);
    if (st == PSC_OK)
        st = make_folder(ps_keeper_path(keeper, name, "rocksdb", false), false, error);
    return st;
}

/* What the manifest says of the part of one server; gives its parsed form, which that borrows. */
static psc_status_t look_at_part(const ps_keeper_t *keeper, const char *name, uint32_t server,
                                 psp_saved_part_file_t *file_out, psp_saved_t **saved_out,
                                 psc_error_t *error)
{
    char partial[PSP_SAVED_NAME_MAX + sizeof PSP_SAVED_PARTIAL];
    (void)snprintf(partial, sizeof partial, "%s%s", name, PSP_SAVED_PARTIAL);
    char *path = psp_saved_server_path(keeper->folder, partial, server, "part");
    if (path == NULL)
        return no_memory(error);
    embps__checkpoint__v1__part_file__init(file_out);
    psc_status_t st = psp_saved_sum(path, &file_out->size, &file_out->checksum, error);
    if (st == PSC_OK)
        st = psp_saved_read(path, PSP_SAVED_PART, saved_out, error);
    if (st == PSC_OK) {
        const psp_saved_part_t *part = psp_saved_part(*saved_out);
        file_out->host = part->host;
        file_out->bytes = file_out->size;
        for (size_t i = 0; i < part->n_files; i++)
            file_out->bytes += part->files[i]->size;
        if (strcmp(part->name, name) != 0 || part->server != server ||
            part->n_servers != keeper->options.n_servers ||
            part->cluster != keeper->options.cluster)
            st = psc_error_set(error, PSC_MISMATCH, "%s is not of this run's checkpoint %s", path,
                               name);
    }
    if (st == PSC_NOT_FOUND)
        st = psc_error_set(error, PSC_NOT_FOUND,
                           "%s is missing: do all servers see the same --checkpoints?", path);
    psc_free(path);
    return st;
}

/* The manifest, once all parts are there. */
static psc_status_t write_manifest(const ps_keeper_t *keeper, const char *name,
                                   const ps_keeper_client_t *client, psc_error_t *error)
{
    const uint32_t n = keeper->options.n_servers;
    psp_saved_manifest_t manifest = EMBPS__CHECKPOINT__V1__MANIFEST__INIT;
    psp_saved_part_file_t *files = psc_alloc_zeroed(n, sizeof *files);
    psp_saved_part_file_t **pointers = psc_alloc_zeroed(n, sizeof(psp_saved_part_file_t *));
    psp_saved_t **parts = psc_alloc_zeroed(n, sizeof(psp_saved_t *));
    char *path = ps_keeper_path(keeper, name, "manifest", true);
    char release[] = EMBPS_VERSION, own_name[PSP_SAVED_NAME_MAX + 1];
    uint64_t size, checksum;
    psc_status_t st = PSC_OK;
    if (files == NULL || pointers == NULL || parts == NULL || path == NULL)
        st = no_memory(error);
    for (uint32_t i = 0; st == PSC_OK && i < n; i++) {
        pointers[i] = &files[i];
        st = look_at_part(keeper, name, i, &files[i], &parts[i], error);
    }
    (void)snprintf(own_name, sizeof own_name, "%s", name);
    manifest.name = own_name;
    manifest.cluster = keeper->options.cluster;
    manifest.lineage = keeper->lineage;
    manifest.made_s = (uint64_t)time(NULL);
    manifest.release = release;
    manifest.n_servers = n;
    manifest.n_parts = n;
    manifest.parts = pointers;
    manifest.state = client->state;
    manifest.vocabulary = client->vocabulary;
    if (st == PSC_OK)
        st = psp_saved_write(path, PSP_SAVED_MANIFEST, NULL, 0, &manifest.base, &size, &checksum,
                             error);
    for (uint32_t i = 0; parts != NULL && i < n; i++)
        psp_saved_destroy(parts[i]);
    psc_free(parts);
    psc_free(pointers);
    psc_free(files);
    psc_free(path);
    return st;
}

/* The newest one with a client's state, names->n: none has it. One whose manifest nobody can read
 * counts as without. */
static psc_status_t newest_with_state(const ps_keeper_t *keeper, const psp_saved_names_t *names,
                                      size_t *at_out, psc_error_t *error)
{
    *at_out = names->n;
    for (size_t i = names->n; i-- > 0 && *at_out == names->n;) {
        psp_saved_t *saved = NULL;
        psc_error_t fault = PSC_ERROR_INIT;
        const psc_status_t st = psp_saved_open(keeper->folder, names->all[i], &saved, &fault);
        if (st == PSC_OK && psp_saved_manifest(saved)->state != NULL)
            *at_out = i;
        psp_saved_destroy(saved);
        if (st != PSC_OK && st != PSC_NOT_FOUND && st != PSC_CORRUPT && st != PSC_UNSUPPORTED) {
            *error = fault;
            return st;
        }
    }
    return PSC_OK;
}

static void prune(const ps_keeper_t *keeper)
{
    psp_saved_names_t names = {0};
    psc_error_t error = PSC_ERROR_INIT;
    size_t with_state = 0;
    if (keeper->options.keep == 0)
        return;
    psc_status_t st = psp_saved_list(keeper->folder, &names, &error);
    if (st == PSC_OK && names.n > keeper->options.keep)
        st = newest_with_state(keeper, &names, &with_state, &error);
    for (size_t i = 0; st == PSC_OK && i + keeper->options.keep < names.n; i++) {
        if (i == with_state || strcmp(names.all[i], keeper->with_state) == 0)
            continue;
        st = psp_saved_remove(keeper->folder, names.all[i], &error);
        if (st == PSC_OK)
            psc_log(PSC_LOG_INFO, "checkpoint %s is too old (--keep %" PRIu64 ") and was removed",
                    names.all[i], keeper->options.keep);
    }
    if (st != PSC_OK)
        psc_log(PSC_LOG_WARN, "old checkpoints stay: %s", error.message);
    psp_saved_names_clear(&names);
}

psc_status_t ps_keeper_commit(ps_keeper_t *keeper, const char *name,
                              const ps_keeper_client_t *client, psc_error_t *error)
{
    psc_status_t st = write_manifest(keeper, name, client, error);
    if (st != PSC_OK)
        return st;
    char *from = ps_keeper_path(keeper, name, NULL, true);
    char *to = psp_saved_path(keeper->folder, name, NULL);
    if (from == NULL || to == NULL)
        st = no_memory(error);
    if (st == PSC_OK)
        st = psc_file_sync_dir(from, error);
    if (st == PSC_OK && rename(from, to) != 0)
        st = psc_error_set_errno(error, errno, "cannot rename %s", from);
    if (st == PSC_OK)
        st = psc_file_sync_dir(keeper->folder, error);
    psc_free(from);
    psc_free(to);
    if (st == PSC_OK) {
        ps_keeper_stand_at(keeper, name, client->state != NULL);
        prune(keeper);
    }
    return st;
}

/* Is the file still what the manifest says of it? */
static bool is_whole(const char *path, const psp_saved_file_t *file)
{
    psc_error_t fault = PSC_ERROR_INIT;
    uint64_t size, checksum;
    if (psp_saved_sum(path, &size, &checksum, &fault) != PSC_OK)
        psc_log(PSC_LOG_WARN, "%s; the vocabulary is written again", fault.message);
    else if (size != file->size || checksum != file->checksum)
        psc_log(PSC_LOG_WARN, "%s is damaged: its checksum is another; it is written again", path);
    else
        return true;
    return false;
}

psc_status_t ps_keeper_link_vocabulary(const ps_keeper_t *keeper, const char *name, uint64_t size,
                                       uint64_t checksum, bool *linked_out, psc_error_t *error)
{
    psp_saved_t *saved = NULL;
    psc_error_t ignored = PSC_ERROR_INIT;
    psc_status_t st = PSC_OK;
    *linked_out = false;
    if (keeper->standing[0] == '\0' ||
        psp_saved_open(keeper->folder, keeper->standing, &saved, &ignored) != PSC_OK)
        return PSC_OK;
    const psp_saved_file_t *file = psp_saved_manifest(saved)->vocabulary;
    if (file != NULL && file->size == size && file->checksum == checksum) {
        char *from = psp_saved_path(keeper->folder, keeper->standing, "vocabulary");
        char *to = ps_keeper_path(keeper, name, "vocabulary", true);
        if (from == NULL || to == NULL) {
            st = no_memory(error);
        } else if (is_whole(from, file)) {
            st = ps_place_file(from, to, true, error);
            *linked_out = st == PSC_OK;
        }
        psc_free(from);
        psc_free(to);
    }
    psp_saved_destroy(saved);
    return st;
}

psc_status_t ps_keeper_abandon(const ps_keeper_t *keeper, const char *name, psc_error_t *error)
{
    if (!psp_saved_is_name(name))
        return PSC_OK;
    char *path = ps_keeper_path(keeper, name, NULL, keeper->options.rank == 0);
    psc_status_t st = path == NULL ? no_memory(error) : psc_file_remove_all(path, error);
    psc_free(path);
    return st;
}
